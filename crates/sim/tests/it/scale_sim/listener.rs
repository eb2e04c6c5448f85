//! A listener: a player with a network, a clock and a sound card, and its session at an edge.

use aulos_core::{Frames, Instant, Ppm, Rng, Span};
use aulos_engine::fanout::ChunkCursor;
use aulos_proto::snap::Session;
use aulos_proto::snap::client::ClientInput;
use aulos_proto::snap::session::{SessionEvent, SessionInput, SessionOutput};
use aulos_proto::snap::wire::{Hello, ServerSettings};
use aulos_session::player::{DevicePosition, Player, PlayerConfig, PlayerOutput};
use aulos_sim::{Link, LocalClock, StreamLink};

use super::edge::Edge;
use super::feed::WAIT_TICKS;
use super::{OriginNode, PEAK, RAMP, RATE, TICK};

/// What is recorded of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerRecord {
    /// From its connection to its first sound.
    pub(crate) first_sound: Option<Span>,
    /// Seconds from the origin's capture to the loudspeaker, once in each second of the recording;
    /// NaN where nothing sounded.
    pub(crate) delays: Vec<f64>,
    pub(crate) gap: GapReport,
    /// Connections made, attempts that failed, and exchanges of the time.
    pub(crate) connections: u32,
    pub(crate) refused: u32,
    pub(crate) exchanges: u64,
    pub(crate) chunks: u64,
    pub(crate) cuts: u64,
    pub(crate) starts: u64,
    pub(crate) underruns: u64,
    /// Least time from the arrival of a chunk to its play-out.
    pub(crate) closest: Option<Span>,
}

/// Silence where there should be sound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GapReport {
    /// The longest one, and all of them together.
    pub(crate) longest: Span,
    pub(crate) total: Span,
    pub(crate) count: u32,
}

/// What makes one listener differ from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerPlan {
    pub(crate) link: Link,
    /// How fast its computer's clock and its card are.
    pub(crate) clock: Ppm,
    pub(crate) card: Ppm,
    pub(crate) connects_at: Instant,
    pub(crate) seed: u64,
}

pub(crate) struct Listener {
    plan: ListenerPlan,
    clock: LocalClock,
    player: Player,
    random: Rng,
    connection: Option<Connection>,
    device: Option<Device>,
    connected_at: Instant,
    last_sound: Option<Instant>,
    is_silent: bool,
    next: Instant,
    /// From when on delays and gaps are recorded.
    records_from: Instant,
    pub(crate) record: ListenerRecord,
}

/// One connection, with the state of both ends.
struct Connection {
    up: StreamLink,
    down: StreamLink,
    session: Session,
    cursor: Option<ChunkCursor>,
    /// The tick of its sends among those of a wait.
    phase: u64,
}

/// A device with a buffer, asked for its position and filled once per period.
struct Device {
    opened: Instant,
    written: u64,
    wakes_at: Instant,
}

/// What one listener needs of its world.
pub(crate) struct Surroundings<'a> {
    /// `None` while its edge is dead.
    pub(crate) edge: Option<&'a Edge>,
    pub(crate) origin: &'a OriginNode,
    /// Room for the frames of one period.
    pub(crate) frames: &'a mut Vec<f32>,
}

impl Listener {
    pub(crate) fn new(plan: ListenerPlan, records_from: Instant) -> Self {
        let booted = Instant::ZERO + Span::from_millis(1_000_000 + (plan.seed % 7_777) as i64);
        let clock = LocalClock::new(booted, plan.clock);
        let config = PlayerConfig {
            hello: Hello::new("listener"),
            latency: Span::ZERO,
            rate: None,
            release_after: Span::from_secs(5),
            plays_silence: false,
            seed: plan.seed,
        };
        Self {
            player: Player::new(config, clock.read(plan.connects_at)),
            clock,
            random: Rng::new(plan.seed),
            connection: None,
            device: None,
            connected_at: plan.connects_at,
            last_sound: None,
            is_silent: true,
            next: plan.connects_at,
            records_from,
            record: ListenerRecord::default(),
            plan,
        }
    }

    /// The edge is gone, and its kernel says so.
    pub(crate) fn disconnect(&mut self, now: Instant) {
        if self.connection.take().is_some() {
            self.player.disconnected(self.clock.read(now));
            self.next = now;
        }
    }

    /// Runs one tick, which ends at `now`.
    pub(crate) fn tick(&mut self, now: Instant, around: &mut Surroundings<'_>) {
        while self.next <= now {
            let event = self.next;
            self.handle(event, around);
            self.next = self.poll_timeout(event);
        }
        if let Some(edge) = around.edge
            && self.send_chunks(now, edge)
        {
            self.next = self.poll_timeout(now);
        }
    }

    /// What the player counts at the end.
    pub(crate) fn finish(&mut self, now: Instant) {
        let status = self.player.status(self.clock.read(now));
        self.record.cuts = status.playback.cuts;
        self.record.starts = status.playback.starts;
        self.record.underruns = status.playback.underruns + status.playback.jumps;
        self.record.chunks = status.received;
        if let Some(silent_since) = self.last_sound {
            self.count_gap(silent_since, now);
        }
    }

    fn poll_timeout(&self, now: Instant) -> Instant {
        let links =
            self.connection.as_ref().map(|one| [one.up.poll_timeout(), one.down.poll_timeout()]);
        let player = self.player.poll_timeout().map(|local| self.clock.world_at(local));
        let device = self.device.as_ref().map(|device| device.wakes_at);
        let links = links.into_iter().flatten();
        let next = links.chain([player, device]).flatten().min();
        // A timer that is not handled, such as that of a player without a server, is seen again.
        next.unwrap_or(now + TICK).max(now + Span::from_nanos(1))
    }

    fn handle(&mut self, now: Instant, around: &mut Surroundings<'_>) {
        let local = self.clock.read(now);
        if let (Some(connection), Some(edge)) = (&mut self.connection, around.edge) {
            self.record.exchanges += connection.run_session(now, edge);
            while let Some(bytes) = connection.down.receive(now) {
                self.player.handle_input(local, ClientInput::Received(&bytes));
            }
        }
        self.player.handle_timeout(local);
        self.drain(now, around.edge);
        self.serve_device(now, around);
        self.drain(now, around.edge);
    }

    fn drain(&mut self, now: Instant, edge: Option<&Edge>) {
        let local = self.clock.read(now);
        let mut bytes = Vec::new();
        while let Some(output) = self.player.poll_output() {
            match output {
                PlayerOutput::Connect => match edge {
                    Some(edge) => {
                        self.record.connections += 1;
                        let seed = self.plan.seed ^ u64::from(self.record.connections) << 40;
                        let (up, down) = (
                            StreamLink::new(self.plan.link, seed),
                            StreamLink::new(self.plan.link, !seed),
                        );
                        let session = Session::new(edge.clock.read(now));
                        let phase = self.plan.seed % WAIT_TICKS;
                        self.connection =
                            Some(Connection { up, down, session, cursor: None, phase });
                        self.player.connected(local);
                    }
                    None => {
                        self.record.refused += 1;
                        self.player.disconnected(local);
                    }
                },
                PlayerOutput::Send(message) => message.write(local, &mut bytes),
                PlayerOutput::Disconnect(_) => self.connection = None,
                _ => {}
            }
        }
        if let Some(connection) = &mut self.connection
            && !bytes.is_empty()
        {
            connection.up.send(now, &bytes);
        }
    }

    /// Sends what there is when the session's tick has come. True if something was sent.
    fn send_chunks(&mut self, now: Instant, edge: &Edge) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if !connection.session.is_ready_for_audio() {
            return false;
        }
        let tick = ((now - Instant::ZERO).as_nanos() / TICK.as_nanos()) as u64;
        let local = edge.clock.read(now);
        let playable = || edge.log.cursor_from(local - edge.buffer + edge.buffer / 10);
        let mut cursor = match connection.cursor {
            Some(_) if tick % WAIT_TICKS != connection.phase => return false,
            Some(cursor) => cursor,
            None => playable(),
        };
        let is_stale = match edge.log.get(cursor, 0) {
            Ok(first) => first.is_some_and(|chunk| chunk.timestamp + edge.buffer < local),
            Err(_) => true,
        };
        if is_stale {
            cursor = playable();
        }
        let mut bytes = Vec::new();
        while let Ok(Some(chunk)) = edge.log.get(cursor, 0) {
            bytes.extend_from_slice(chunk.chunk.framed());
            cursor.advance(1);
            let early = chunk.timestamp + edge.buffer - local;
            if self.record.closest.is_none_or(|closest| early < closest) {
                self.record.closest = Some(early);
            }
        }
        connection.cursor = Some(cursor);
        connection.down.send(now, &bytes);
        !bytes.is_empty()
    }

    fn serve_device(&mut self, now: Instant, around: &mut Surroundings<'_>) {
        let local = self.clock.read(now);
        if self.device.as_ref().is_some_and(|device| device.wakes_at > now) {
            return;
        }
        if self.player.device_format(local).is_none() {
            if self.device.take().is_some() {
                self.player.device_closed();
            }
            return;
        }
        if self.device.is_none() {
            self.device = Some(Device { opened: now, written: 0, wakes_at: now });
            self.player.device_opened();
        }
        let Some(device) = &mut self.device else { return };
        let pace = RATE * self.plan.card.factor();
        let played = ((now - device.opened).as_secs_f64() * pace) as u64;
        let first = device.written;
        let room = (DEVICE_BUFFER + played).saturating_sub(first);
        device.written += room;
        let late = self.random.exponential(LATE_NS) as i64;
        device.wakes_at = now + PERIOD + Span::from_nanos(late);
        let opened = device.opened;
        around.frames.clear();
        around.frames.resize(room as usize, 0.0);
        let position = DevicePosition { played: Frames(played.min(first)), at: local };
        self.player.render(local, position, around.frames);
        let sounds_at = |frame: u64| opened + Span::from_nanos((frame as f64 / pace * 1e9) as i64);
        self.listen(first, sounds_at, around);
    }

    /// Records what sounds: the frames from number `first` on.
    fn listen(
        &mut self,
        first: u64,
        sounds_at: impl Fn(u64) -> Instant,
        around: &Surroundings<'_>,
    ) {
        let Some([head, tail]) = ends(around.frames) else { return };
        let frames = &around.frames[..];
        for (number, sample) in (first..).zip(frames).step_by(GAP_STEP) {
            if sample.abs() <= AUDIBLE {
                self.is_silent = true;
                continue;
            }
            let at = sounds_at(number);
            if core::mem::take(&mut self.is_silent)
                && let Some(silent_since) = self.last_sound
            {
                self.count_gap(silent_since, at);
            }
            if self.record.first_sound.is_none() {
                self.record.first_sound = Some(at - self.connected_at);
            }
            self.last_sound = Some(at);
        }
        // A fade, or the edge of the ramp, says nothing.
        let slope = (tail - head) / (frames.len() - 1).max(1) as f64;
        let is_ramp = (slope / SLOPE - 1.0).abs() < 0.02 && head.abs().max(tail.abs()) < NEAR_EDGE;
        let at = sounds_at(first);
        if at < self.records_from || !is_ramp {
            return;
        }
        let second = (at - self.records_from).as_secs_f64() as usize;
        if second >= self.record.delays.len() {
            self.record.delays.resize(second, f64::NAN);
            self.record.delays.push(around.origin.delay_of(head, at));
        }
    }

    fn count_gap(&mut self, from: Instant, to: Instant) {
        let gap = to - from;
        if from >= self.records_from && gap > SHORTEST_GAP {
            let all = &mut self.record.gap;
            all.longest = all.longest.max(gap);
            all.total += gap;
            all.count += 1;
        }
    }
}

/// The first and the last frame.
fn ends(frames: &[f32]) -> Option<[f64; 2]> {
    Some([*frames.first()?, *frames.last()?].map(f64::from))
}

impl Connection {
    /// Runs the session of the edge; returns how many requests of the time it has answered.
    fn run_session(&mut self, now: Instant, edge: &Edge) -> u64 {
        let mut exchanges = 0;
        let local = edge.clock.read(now);
        while let Some(bytes) = self.up.receive(now) {
            self.session.handle_input(local, SessionInput::Received(&bytes));
            let mut answer = Vec::new();
            while let Some(output) = self.session.poll_output() {
                match output {
                    SessionOutput::Event(SessionEvent::Hello(_)) => {
                        let settings =
                            ServerSettings { buffer: edge.buffer, ..ServerSettings::default() };
                        self.session.handle_input(local, SessionInput::Settings(settings));
                        let header = SessionInput::Stream(edge.header.clone());
                        self.session.handle_input(local, header);
                    }
                    SessionOutput::Send(message) => {
                        exchanges += 1;
                        message.write(local, &mut answer);
                    }
                    _ => {}
                }
            }
            if !answer.is_empty() {
                self.down.send(now, &answer);
            }
        }
        exchanges
    }
}

/// Frames that a card buffers, 120 ms, and how often it is filled.
const DEVICE_BUFFER: u64 = 960;
const PERIOD: Span = Span::from_millis(40);

/// Mean time by which the program wakes up late: 50 us.
const LATE_NS: f64 = 5e4;

/// What is quieter is silence: the ramp is below it for a tenth of a frame.
const AUDIBLE: f32 = 5e-6;

/// Silence is looked for once per millisecond.
const GAP_STEP: usize = 8;

/// Twice as long as a fade.
const SHORTEST_GAP: Span = Span::from_millis(4);

/// Rise of the ramp per frame.
const SLOPE: f64 = 2.0 * PEAK / RAMP;

/// Nearer to the edge of the ramp, a resampler rings.
const NEAR_EDGE: f64 = PEAK * 0.98;

//! A server, networks and players with sound devices, in virtual time.
//!
//! The sound is two triangle waves, a quarter of their period apart, so each output frame says to
//! some ten nanoseconds which content it is, also behind a resampler. The player is judged by that
//! and by the times of the simulation alone.

use std::cell::{Ref, RefCell};
use std::f64::consts::TAU;
use std::rc::Rc;

use aulos_core::{Frames, Instant, Ppm, Rng, SampleSpec, Span};
use aulos_proto::snap::client::ClientInput;
use aulos_proto::snap::wire::Hello;
use aulos_sim::snap::{BUFFER, Peer, SimPeer, SimServer};
use aulos_sim::{Link, LocalClock};

use super::super::{DevicePosition, Player, PlayerConfig, PlayerOutput, PlayerStatus};

/// 24 bits: a step of the triangle is hundreds of steps of the samples.
const SPEC: &str = "48000:24:2";
const RATE: f64 = 48_000.0;
/// Frames of a period: two seconds.
const PERIOD: f64 = 96_000.0;
const CHUNK_FRAMES: u64 = 960;

/// Deviation of the content from its time at one output frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentDeviation {
    pub(super) at: Instant,
    /// Microseconds, positive when the content sounded too early.
    pub(super) early: f64,
}

impl ContentDeviation {
    /// The deviation that was heard last at a time, if there was sound then.
    pub(super) fn at(all: &[Self], at: Instant) -> Option<f64> {
        let after = all.partition_point(|heard| heard.at <= at);
        let heard = all.get(after.checked_sub(1)?)?;
        (at - heard.at < Span::from_millis(5)).then_some(heard.early)
    }
}

/// One player and its surroundings.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlayerOptions {
    /// How fast its computer's clock and its device are.
    pub(super) clock: Ppm,
    pub(super) card: Ppm,
    /// By how much its device swings around that, within half an hour.
    pub(super) wander: Ppm,
    pub(super) link: Link,
    pub(super) seed: u64,
    /// Mean time by which the program wakes up late.
    pub(super) late: Span,
    /// From this time on, the device stands still for this long.
    pub(super) stall: Option<(Instant, Span)>,
    /// Mean time by which the device's reports are old, which changes three times a second.
    pub(super) old_reports: Span,
    /// From its opening until the device takes frames.
    pub(super) opening: Span,
    /// Whether the player's output is a file.
    pub(super) plays_silence: bool,
}

impl Default for PlayerOptions {
    fn default() -> Self {
        Self {
            clock: Ppm::ZERO,
            card: Ppm::ZERO,
            wander: Ppm::ZERO,
            link: Link::CABLE,
            seed: 1,
            late: Span::from_micros(50),
            stall: None,
            old_reports: Span::ZERO,
            opening: Span::ZERO,
            plays_silence: false,
        }
    }
}

pub(super) struct World {
    server: SimServer,
    clock: LocalClock,
    players: Vec<Rc<RefCell<SimPlayer>>>,
}

impl World {
    pub(super) fn new(server_ppm: i32) -> Self {
        Self::with_audio(server_ppm, chunk)
    }

    /// The same, with silence in the chunks from 1,000 to 2,000: from 20 to 40 s.
    pub(super) fn with_pause() -> Self {
        Self::with_audio(0, |number| {
            let mut bytes = chunk(number);
            if (1_000..2_000).contains(&number) {
                bytes.fill(0);
            }
            bytes
        })
    }

    fn with_audio(server_ppm: i32, chunk: fn(u64) -> Vec<u8>) -> Self {
        let clock =
            LocalClock::new(Instant::ZERO + Span::from_secs(40_000), Ppm::from_ppm(server_ppm));
        let spec: SampleSpec = SPEC.parse().unwrap();
        Self { server: SimServer::with_audio(clock, spec, chunk), clock, players: Vec::new() }
    }

    pub(super) fn add(&mut self, options: PlayerOptions) {
        let player = Rc::new(RefCell::new(SimPlayer::new(options, self.clock)));
        self.players.push(Rc::clone(&player));
        let peer = Peer::Other(Box::new(Shared(player)));
        self.server.connect(peer, options.link, options.link, options.seed);
    }

    pub(super) fn run_until(&mut self, end: Instant) {
        self.server.run_until(end);
    }

    pub(super) fn heard(&self, player: usize) -> Ref<'_, Vec<ContentDeviation>> {
        Ref::map(self.players[player].borrow(), |player| &player.heard)
    }

    /// The largest rate, and the largest change of it within a second, of all whole seconds after
    /// the first ones of sound, in which the correction is quick.
    pub(super) fn rates(&self, player: usize) -> [Ppm; 2] {
        let player = self.players[player].borrow();
        let rates = player.rates.iter().skip(15).map(|rate| rate.as_ppb());
        let changes = rates.clone().zip(rates.clone().skip(1)).map(|(a, b)| (a - b).abs());
        [rates.map(i32::abs).max(), changes.max()].map(|ppb| Ppm::from_ppb(ppb.unwrap_or(0)))
    }

    /// Frames whose samples are whole numbers as in the stream, and others.
    pub(super) fn exact_frames(&self, player: usize) -> (u64, u64) {
        let [exact, other] = self.players[player].borrow().exact;
        (exact, other)
    }

    /// When the device was opened and released.
    pub(super) fn openings(&self, player: usize) -> Vec<Instant> {
        self.players[player].borrow().openings.clone()
    }

    /// The server's computer is gone, and nothing reaches it.
    pub(super) fn disconnect(&mut self, player: usize) {
        self.server.disconnect(player);
        let mut player = self.players[player].borrow_mut();
        player.is_reachable = false;
        let local = player.clock.read(self.server.now());
        player.player.disconnected(local);
    }

    /// The server can be reached again.
    pub(super) fn reconnect(&mut self, player: usize) {
        let mut held = self.players[player].borrow_mut();
        held.is_reachable = true;
        let (link, seed) = (held.options.link, !held.options.seed);
        self.server.reconnect(player, link, link, seed);
    }

    pub(super) fn status(&self, player: usize) -> PlayerStatus {
        let player = self.players[player].borrow();
        player.player.status(player.clock.read(player.now))
    }
}

/// The audio of a chunk.
fn chunk(number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * CHUNK_FRAMES as usize);
    for frame in 0..CHUNK_FRAMES {
        let phase = (number * CHUNK_FRAMES + frame) as f64 / PERIOD;
        for phase in [phase, phase + 0.25] {
            let value = (triangle(phase) * AMPLITUDE * 8_388_608.0).round() as i32;
            bytes.extend((value & 0xff_ffff).to_le_bytes());
        }
    }
    bytes
}

fn triangle(phase: f64) -> f64 {
    4.0 * (phase.fract() - 0.5).abs() - 1.0
}

/// The phase of a frame, of two triangles the one that is not near a corner.
fn phase_of(frame: [f32; 2]) -> f64 {
    let [left, right] = frame.map(|sample| f64::from(sample) / AMPLITUDE);
    if left.abs() <= right.abs() {
        if right < 0.0 { (1.0 - left) / 4.0 } else { (left + 3.0) / 4.0 }
    } else if left > 0.0 {
        (1.0 - right) / 4.0 - 0.25
    } else {
        (right + 3.0) / 4.0 - 0.25
    }
}

const AMPLITUDE: f64 = 0.9;

/// From one turn of a wandering device to the next.
const SWING_SECONDS: f64 = 1_800.0;

struct SimPlayer {
    options: PlayerOptions,
    clock: LocalClock,
    server: LocalClock,
    player: Player,
    device: Option<SimDevice>,
    random: Rng,
    heard: Vec<ContentDeviation>,
    /// The rate in each second.
    rates: Vec<Ppm>,
    now: Instant,
    is_reachable: bool,
    exact: [u64; 2],
    openings: Vec<Instant>,
    /// By how much reports are old now, and until when.
    report_age: (Span, Instant),
}

/// A device with a buffer, asked for its position and filled every 20 ms.
struct SimDevice {
    opened: Instant,
    written: u64,
    wakes_at: Instant,
}

const DEVICE_BUFFER: u64 = 3_840;
const PERIOD_TIME: Span = Span::from_millis(20);

impl SimPlayer {
    fn new(options: PlayerOptions, server: LocalClock) -> Self {
        let start = Instant::ZERO + Span::from_secs(1_000 + options.seed as i64);
        let clock = LocalClock::new(start, options.clock);
        let config = PlayerConfig {
            hello: Hello::new("sim"),
            latency: Span::ZERO,
            rate: None,
            release_after: Span::from_secs(5),
            plays_silence: options.plays_silence,
            seed: options.seed,
        };
        Self {
            player: Player::new(config, clock.read(Instant::ZERO)),
            random: Rng::new(options.seed),
            options,
            clock,
            server,
            device: None,
            heard: Vec::new(),
            rates: Vec::new(),
            now: Instant::ZERO,
            is_reachable: true,
            exact: [0, 0],
            openings: Vec::new(),
            report_age: (Span::ZERO, Instant::ZERO),
        }
    }

    fn drain(&mut self, now: Instant, out: &mut Vec<u8>) {
        let local = self.clock.read(now);
        while let Some(output) = self.player.poll_output() {
            match output {
                PlayerOutput::Connect if self.is_reachable => self.player.connected(local),
                PlayerOutput::Connect => self.player.disconnected(local),
                PlayerOutput::Send(message) => message.write(local, out),
                _ => {}
            }
        }
    }

    fn report_age(&mut self, now: Instant) -> Span {
        if self.options.old_reports > Span::ZERO && now >= self.report_age.1 {
            let mean = self.options.old_reports.as_nanos() as f64;
            let age = Span::from_nanos(self.random.exponential(mean) as i64);
            self.report_age = (age, now + Span::from_millis(330));
        }
        self.report_age.0
    }

    /// Frames that the device plays within `seconds`.
    fn played(&self, seconds: f64) -> f64 {
        (seconds + self.swing(seconds)) * RATE * self.options.card.factor()
    }

    /// Seconds in which the device plays so many frames.
    fn seconds(&self, frames: f64) -> f64 {
        let seconds = frames / (RATE * self.options.card.factor());
        seconds - self.swing(seconds)
    }

    /// What the wander of the device makes of `seconds`.
    fn swing(&self, seconds: f64) -> f64 {
        let wander = self.options.wander.factor() - 1.0;
        let turn = TAU / SWING_SECONDS;
        wander / turn * (1.0 - (turn * seconds).cos())
    }

    fn serve_device(&mut self, now: Instant) {
        let local = self.clock.read(now);
        if self.player.device_format(local).is_none() {
            if self.device.take().is_some() {
                self.openings.push(now);
                self.player.device_closed();
            }
            return;
        }
        let opening = now + self.options.opening;
        let device = self.device.get_or_insert_with(|| {
            self.openings.push(now);
            SimDevice { opened: opening, written: 0, wakes_at: opening }
        });
        if device.wakes_at > now {
            return;
        }
        if device.written == 0 {
            self.player.device_opened();
        }
        let opened = self.device.as_ref().map_or(now, |device| device.opened);
        let stalled = self.options.stall.map_or(Span::ZERO, |(at, long)| now.since(at).min(long));
        let played = self.played((now - opened - stalled).as_secs_f64()) as u64;
        let age = self.report_age(now);
        let reported = self.played((now - opened - stalled - age).as_secs_f64().max(0.0)) as u64;
        let Some(device) = &mut self.device else { return };
        let room = (DEVICE_BUFFER + played).saturating_sub(device.written);
        let first = device.written;
        device.written += room;
        let late =
            Span::from_nanos(self.random.exponential(self.options.late.as_nanos() as f64) as i64);
        device.wakes_at = now + PERIOD_TIME + late;
        let mut out = vec![0.0; 2 * room as usize];
        // The program was woken some time ago, and asks now.
        let position = DevicePosition { played: Frames(reported.min(first)), at: local };
        self.player.render(local, position, &mut out);
        for sample in out.iter().step_by(2).map(|sample| sample * 8_388_608.0) {
            self.exact[usize::from(sample.fract() != 0.0)] += u64::from(sample != 0.0);
        }
        let status = self.player.status(local);
        let second = (now - opened).as_secs_f64() as usize;
        if status.is_playing && second > self.rates.len() {
            self.rates.push(status.rate);
        }
        for (number, frame) in (first..).zip(out.as_chunks::<2>().0).step_by(240) {
            // The sum of both is constant, except in fades and silence.
            let level = f64::from(frame[0].abs() + frame[1].abs());
            if (level - AMPLITUDE).abs() > 1e-3 {
                continue;
            }
            let seconds = self.seconds(number as f64);
            let mut at = opened + Span::from_secs_f64(seconds);
            at += self
                .options
                .stall
                .filter(|(from, _)| at > *from)
                .map_or(Span::ZERO, |(_, long)| long);
            let wanted = self.server.read(at) - self.server.read(Instant::ZERO) - BUFFER;
            let wanted = wanted.as_secs_f64() * RATE / PERIOD;
            let off = phase_of(*frame) - wanted;
            let off = off - off.round();
            self.heard.push(ContentDeviation { at, early: off * PERIOD / RATE * 1e6 });
        }
    }
}

/// The player, also held by the world.
struct Shared(Rc<RefCell<SimPlayer>>);

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SimPlayer")
    }
}

impl SimPeer for Shared {
    fn connect(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        let player = self.0.borrow();
        let protocol = player.player.poll_timeout().map(|at| player.clock.world_at(at));
        let device = player.device.as_ref().map(|device| device.wakes_at);
        [protocol, device].into_iter().flatten().min()
    }

    fn receive(&mut self, now: Instant, bytes: &[u8], out: &mut Vec<u8>) {
        let mut player = self.0.borrow_mut();
        player.now = now;
        let local = player.clock.read(now);
        player.player.handle_input(local, ClientInput::Received(bytes));
        player.drain(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Vec<u8>) {
        let mut player = self.0.borrow_mut();
        player.now = now;
        let local = player.clock.read(now);
        player.player.handle_timeout(local);
        player.drain(now, out);
        player.serve_device(now);
        player.drain(now, out);
    }
}

/// The value below which this share of the values is.
pub(super) fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    percentile_of(&values, share)
}

/// The same of sorted values.
pub(super) fn percentile_of(values: &[f64], share: f64) -> f64 {
    let at = (share * values.len().saturating_sub(1) as f64) as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

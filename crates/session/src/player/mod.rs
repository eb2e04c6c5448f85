//! A synchronised player: from the bytes of a server to the frames that a sound device asks for.
//!
//! ```text
//!  bytes -> snap::SnapcastClient -> queue (encoded) -> decoder -> resampler -> volume -> device
//!                |                                          ^                      |
//!        server's clock (network loop)                  rate servo        positions played
//!                |                                          |                      |
//!                +------------- when a frame must sound --- - --- when it will <---+
//! ```
//!
//! Two clocks are followed, each by its own loop: the server's by the exchanges of the protocol,
//! the device's by the positions that it reports. They meet in one number, how far the content is
//! from its time when it sounds, and the servo corrects it by the rate: first the drift that is
//! known, then a share of the error, never by more than 500 ppm. Frames are neither dropped nor
//! doubled.
//!
//! Sound begins when the server's clock is known, placed to the frame. An error of more than 5 ms,
//! after an interruption or when a clock was set, is corrected at once between two fades.

pub(crate) mod connection;
pub(crate) mod decoder;
mod device;
mod format;
mod playback;
pub(crate) mod queue;
mod servo;
mod status;
mod volume;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use aulos_core::{Backoff, Instant, Ppm, SampleRate, SampleSpec, Span};
use aulos_proto::snap::client::{ClientInput, ClientOutgoing, ClientOutput, DisconnectReason};
use aulos_proto::snap::wire::{ClientInfo, Hello, PlayerReport, ServerSettings};

use connection::Connection;
use decoder::{ChunkDecoder, SoundDetector, has_sound};
use playback::{Playback, PlayoutTime};
use queue::ChunkQueue;
use volume::{VolumeRamp, fade_out};

pub use device::DevicePosition;
pub use format::{StreamFormat, UnsupportedStream};
pub use playback::{MAX_ERROR, PlaybackStats};
pub use status::PlayerStatus;

/// What a player is told once.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct PlayerConfig {
    /// What it says of itself to the server.
    pub hello: Hello,
    /// How much later than reported the device sounds. Added to the latency that the server has for
    /// this client.
    pub latency: Span,
    /// The device's sample rate; `None` for that of the stream.
    pub rate: Option<SampleRate>,
    /// Time without sound after which the device is released, and its end is reported.
    pub release_after: Span,
    /// Whether silence plays on, for as long as chunks arrive: the output is a file, and no device
    /// that other programs want.
    pub plays_silence: bool,
    /// Determines the random part of the pauses between attempts to connect.
    pub seed: u64,
}

/// What a player wants from the program around it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlayerOutput {
    /// Connect to the server; then call [`Player::connected`] or [`Player::disconnected`].
    Connect,
    /// Send this message, encoded at the moment of the write.
    Send(ClientOutgoing),
    /// Close the connection: the server or the protocol failed.
    Disconnect(DisconnectReason),
    /// The server sends another stream.
    Stream(StreamFormat),
    /// The server sends a stream that cannot be played.
    Unsupported(UnsupportedStream),
    /// The server has set volume, mute or latency.
    Settings(ServerSettings),
    /// Sound that is not silence begins or ends.
    Sounding(bool),
}

/// The player. It has no clock, socket or device: the program around it passes what arrives, opens
/// the device while [`device_format`](Self::device_format) says so, and lets
/// [`render`](Self::render) fill what the device has room for.
#[derive(Debug)]
pub struct Player {
    config: PlayerConfig,
    connection: Connection,
    settings: ServerSettings,
    queue: ChunkQueue,
    stream: Option<StreamFormat>,
    playback: Option<Playback>,
    outputs: VecDeque<PlayerOutput>,
    last_chunk: Option<Instant>,
    /// When sound that is not silence was rendered, or a chunk of it came, for the last time.
    last_sound: Option<Instant>,
    is_sounding: bool,
    /// Finds sound in chunks that come while silence is rendered, or nothing is.
    detector: SoundDetector,
    is_silent: bool,
    /// When the server wants the next report.
    report_at: Option<Instant>,
    has_fixed_volume: bool,
    /// Counters before the device was opened.
    earlier: PlaybackStats,
    earlier_slips: u64,
    device_underruns: u64,
    retries: Backoff,
}

impl Player {
    /// A player that wants to connect at `now`.
    #[must_use]
    pub fn new(config: PlayerConfig, now: Instant) -> Self {
        let retries = Backoff::half_jitter(RETRY_PAUSE, RETRY_PAUSE, config.seed);
        Self {
            connection: Connection::new(now),
            config,
            settings: ServerSettings::default(),
            queue: ChunkQueue::default(),
            stream: None,
            playback: None,
            outputs: VecDeque::new(),
            last_chunk: None,
            last_sound: None,
            is_sounding: false,
            detector: SoundDetector::default(),
            is_silent: true,
            report_at: None,
            has_fixed_volume: false,
            earlier: PlaybackStats::default(),
            earlier_slips: 0,
            device_underruns: 0,
            retries,
        }
    }

    /// Notes how often the device had nothing to play since the start, as it counts it.
    pub const fn set_device_underruns(&mut self, count: u64) {
        self.device_underruns = count;
    }

    /// Leaves the samples at full volume: something else follows what the server sets, or nothing
    /// does.
    pub fn fix_volume(&mut self) {
        self.has_fixed_volume = true;
    }

    /// The connection stands: the player introduces itself.
    pub fn connected(&mut self, now: Instant) {
        self.connection.begin(self.config.hello.clone(), false, now);
        self.drain(now);
    }

    /// The connection has failed or ended. What has arrived is played, and the player wants to
    /// connect again within a second: after a random pause, so that the listeners of a server that
    /// has failed do not return at the same moment, again and again.
    pub fn disconnected(&mut self, now: Instant) {
        let pause = self.retries.failed(now);
        self.connection.end(now + pause);
        self.report_at = None;
    }

    /// Processes what the server has sent; `now` is the instant directly after the read.
    pub fn handle_input(&mut self, now: Instant, input: ClientInput<'_>) {
        if let Some(client) = self.connection.client() {
            client.handle_input(now, input);
        }
        self.drain(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.connection.wants_to_connect(now) {
            self.outputs.push_back(PlayerOutput::Connect);
        }
        if let Some(client) = self.connection.client() {
            client.handle_timeout(now);
        }
        self.drain(now);
        if self.is_sounding && self.is_silent_since(now, self.config.release_after) {
            self.is_sounding = false;
            self.outputs.push_back(PlayerOutput::Sounding(false));
        }
        if self.report_at.is_some_and(|at| at <= now) {
            let info = ClientInfo { report: Some(self.report(now)), ..ClientInfo::default() };
            self.outputs.push_back(PlayerOutput::Send(ClientOutgoing::ClientInfo(info)));
            self.report_at = self.settings.report_interval.map(|interval| now + interval);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.last_sound.filter(|_| self.is_sounding);
        let silent = silent.map(|at| at + self.config.release_after);
        [self.connection.poll_timeout(), silent, self.report_at].into_iter().flatten().min()
    }

    /// Whether what the server sends can be left in the socket until the device wakes the program:
    /// there is enough to play, and no answer is expected of which the instant counts.
    #[must_use]
    pub fn can_read_later(&self) -> bool {
        let is_playing = self.playback.as_ref().is_some_and(Playback::is_playing);
        is_playing && self.connection.is_unhurried() && self.queue.span() >= ENOUGH
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<PlayerOutput> {
        self.outputs.pop_front()
    }

    /// What the device must be opened with, in the sample format of the stream; `None` when it is
    /// to be released, because there is no stream, or neither sound for a while nor any to come.
    #[must_use]
    pub fn device_format(&self, now: Instant) -> Option<SampleSpec> {
        let stream = self.stream.filter(|_| self.needs_device(now))?;
        let rate = self.config.rate.unwrap_or(stream.spec.rate);
        Some(SampleSpec { rate, ..stream.spec })
    }

    /// The device has been opened, with nothing written to it yet.
    pub fn device_opened(&mut self) {
        let Some(stream) = self.stream else { return };
        let Some(decoder) = ChunkDecoder::new(stream.codec, stream.spec) else { return };
        let rate = self.config.rate.unwrap_or(stream.spec.rate);
        self.keep_stats();
        let mut volume = VolumeRamp::new(rate);
        if !self.has_fixed_volume {
            volume.set(self.settings.volume, self.settings.muted);
        }
        self.playback = Some(Playback::new(decoder, rate, volume.settled()));
    }

    /// The device is closed.
    pub fn device_closed(&mut self) {
        self.keep_stats();
        self.playback = None;
        self.is_silent = true;
    }

    /// Fills `out`, interleaved and whole frames, with what the device plays next. `position` is
    /// how far it has played.
    ///
    /// # Real-time
    /// Does not lock, log or call the system; allocates only for chunks that are longer than all
    /// before.
    pub fn render(&mut self, now: Instant, position: DevicePosition, out: &mut [f32]) {
        let time = self.playout_time(now);
        let Some(playback) = &mut self.playback else { return out.fill(0.0) };
        playback.render(position, time, &mut self.queue, out);
        self.is_silent = !has_sound(out);
        if !self.is_silent {
            self.last_sound = Some(now);
            if !self.is_sounding {
                self.is_sounding = true;
                self.outputs.push_back(PlayerOutput::Sounding(true));
            }
        }
    }

    /// Fills `out` with the last frames before the device is closed: what would have played, faded
    /// out.
    pub fn render_end(&mut self, now: Instant, position: DevicePosition, out: &mut [f32]) {
        self.render(now, position, out);
        if let Some(playback) = &self.playback {
            fade_out(playback.channels(), out);
        }
    }

    /// The state of the player, for people and for the server.
    #[must_use]
    pub fn status(&self, now: Instant) -> PlayerStatus {
        let sync = self.connection.sync();
        let server = sync.and_then(|sync| sync.line_at(now));
        let playback = self.playback.as_ref();
        let device = playback.and_then(|playback| playback.device.line());
        let sounds_at = playback.and_then(|one| one.device.sounds_at(one.written()));
        let mut stats = self.earlier;
        if let Some(playback) = playback {
            stats.add(playback.stats);
        }
        PlayerStatus {
            is_connected: self.connection.is_connected(),
            is_playing: playback.is_some_and(|playback| playback.is_playing()),
            stream: self.stream,
            offset: server.map(|line| line.offset_at(now)),
            offset_error: server.map(|line| line.error),
            network_delay: server.map(|line| line.delay),
            server_drift: server.map_or(Ppm::ZERO, |line| line.drift),
            device_drift: device.map_or(Ppm::ZERO, |line| line.drift),
            device_delay: sounds_at.map(|at| at.since(now)),
            sync_error: playback.and_then(|playback| playback.error()),
            rate: playback.map_or(Ppm::ZERO, |playback| playback.rate()),
            queued: self.queue.len(),
            received: self.queue.stats.received,
            no_room: self.queue.stats.no_room,
            lost_events: 0,
            device_slips: self.earlier_slips
                + playback.map_or(0, |playback| playback.device.slips()),
            device_underruns: self.device_underruns,
            playback: stats,
        }
    }

    /// The status for the server, which sees both clocks as one difference.
    fn report(&self, now: Instant) -> PlayerReport {
        let status = self.status(now);
        let drift = status.device_drift.as_ppb().saturating_sub(status.server_drift.as_ppb());
        PlayerReport {
            sync_error: status.sync_error.filter(|_| status.is_playing),
            clock_error: status.offset_error,
            drift: Ppm::from_ppb(drift),
            device_delay: status.device_delay,
            cuts: status.playback.cuts,
            underruns: status.playback.underruns + status.playback.jumps,
            device_underruns: status.device_underruns,
            lost: status.playback.late + status.playback.damaged + status.no_room,
        }
    }

    fn playout_time(&self, now: Instant) -> Option<PlayoutTime> {
        let sync = self.connection.sync()?;
        let latency = self.settings.latency + self.config.latency;
        let delay = (self.settings.buffer - latency).max(Span::ZERO);
        Some(PlayoutTime {
            server: sync.line_at(now)?,
            delay,
            may_start: self.connection.knows_time(now),
        })
    }

    fn needs_device(&self, now: Instant) -> bool {
        let after = self.config.release_after;
        let is_recent = |at: Option<Instant>, span| at.is_some_and(|at| now - at < span);
        if self.config.plays_silence {
            return is_recent(self.last_chunk, after);
        }
        // A chunk that is never played, as one of next year, does not hold the device.
        let is_coming = is_recent(self.last_chunk, after + self.settings.buffer);
        is_recent(self.last_sound, after) || is_coming && self.queue.has_sound() && !self.is_muted()
    }

    const fn is_muted(&self) -> bool {
        !self.has_fixed_volume && (self.settings.muted || self.settings.volume == 0)
    }

    fn is_silent_since(&self, now: Instant, span: Span) -> bool {
        self.last_sound.is_none_or(|at| now - at >= span)
    }

    fn keep_stats(&mut self) {
        if let Some(playback) = &self.playback {
            self.earlier.add(playback.stats);
            self.earlier_slips += playback.device.slips();
        }
    }

    /// Handles everything that the client has for the player.
    fn drain(&mut self, now: Instant) {
        loop {
            let searches = self.is_silent && !self.config.plays_silence && !self.is_muted();
            let Some(output) = self.connection.client().and_then(|client| client.poll_output())
            else {
                return;
            };
            match output {
                ClientOutput::Send(message) => self.outputs.push_back(PlayerOutput::Send(message)),
                ClientOutput::Settings(settings) => {
                    self.settings = settings;
                    self.report_at = settings.report_interval.map(|interval| now + interval);
                    if let Some(playback) =
                        self.playback.as_mut().filter(|_| !self.has_fixed_volume)
                    {
                        playback.volume.set(settings.volume, settings.muted);
                    }
                    self.outputs.push_back(PlayerOutput::Settings(settings));
                }
                ClientOutput::Codec { codec, header } => {
                    let format = StreamFormat::parse(codec, header);
                    self.begin_stream(format);
                }
                ClientOutput::Chunk { timestamp, payload } => {
                    // What comes during sound counts as such, until it is rendered.
                    let has_sound = !searches || self.detector.has_sound(self.stream, payload);
                    if searches && has_sound {
                        self.last_sound = Some(now);
                    }
                    self.last_chunk = Some(now);
                    self.queue.push(timestamp, payload, has_sound);
                    self.drop_past_chunks(now);
                }
                ClientOutput::Close(reason) => {
                    self.outputs.push_back(PlayerOutput::Disconnect(reason));
                    self.disconnected(now);
                }
                _ => {}
            }
        }
    }

    /// While no device plays, nothing takes the chunks whose time has come.
    fn drop_past_chunks(&mut self, now: Instant) {
        let time = self.playout_time(now).filter(|_| self.playback.is_none());
        if let Some(PlayoutTime { server, delay, .. }) = time {
            self.earlier.late += self.queue.drop_until(server.peer_time(now) - delay);
        }
    }

    /// Another stream begins. What is queued of the one before cannot be decoded any more, unless
    /// both have the same format, as after a reconnection.
    fn begin_stream(&mut self, format: Result<StreamFormat, UnsupportedStream>) {
        match format {
            Ok(format) if self.stream == Some(format) => {}
            Ok(format) => {
                self.queue.clear();
                self.device_closed();
                self.detector = SoundDetector::default();
                self.stream = Some(format);
                self.outputs.push_back(PlayerOutput::Stream(format));
            }
            Err(why) => {
                self.queue.clear();
                self.device_closed();
                self.stream = None;
                self.outputs.push_back(PlayerOutput::Unsupported(why));
            }
        }
    }
}

/// The longest pause from a failure to the next attempt; the shortest is half of it.
const RETRY_PAUSE: Span = Span::from_millis(700);

/// Content that is enough to play until the device's next wake-up and the one after it.
const ENOUGH: Span = Span::from_millis(250);

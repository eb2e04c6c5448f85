//! The player's thread: `ppoll` on the socket, the device and its commands.
//!
//! It renders and writes where it also reads the socket: the devices that there are take what they
//! are given without waiting, so a thread more would only add a buffer.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;

use aulos_core::{Frames, Instant, SampleFormat, SampleSpec, Span};
use aulos_proto::snap::client::DisconnectReason;
use aulos_proto::snap::wire::{Hello, ServerSettings};
use aulos_rt::channel::{self, FdReceiver, SendError, Sender};
use aulos_rt::{LatestPublisher, LatestReader, latest};
use aulos_session::player::{
    Player, PlayerConfig, PlayerOutput, PlayerStatus, StreamFormat, UnsupportedStream,
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::address::ServerAddress;
use crate::clock;
use crate::inbox::PlayerCommand;
use crate::link::{Link, LinkEvent, LinkTarget};
use crate::mixer::Mixer;
#[cfg(feature = "device")]
use crate::output::DeviceEvent;
use crate::output::{Output, OutputConfig, OutputError};
use crate::tls::TlsClient;
use crate::transport::TransportEvent;

/// What to play, and where.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct PlayConfig {
    /// The server, or the type of service to search for.
    pub server: ServerAddress,
    /// Name of the server among those that a search finds; `None` for the first one.
    pub server_name: Option<String>,
    /// For addresses with TLS.
    pub tls: Option<TlsClient>,
    /// What follows the volume that the server sets.
    pub mixer: Mixer,
    /// Time of silence or without chunks after which the device is released and
    /// [`PlayerEvent::Sounding`] reports it; five seconds with snapclient.
    pub release_after: Span,
    /// The device.
    pub output: OutputConfig,
    /// Sample format of a file or pipe; `None` for that of the stream.
    pub format: Option<SampleFormat>,
    /// What the player says of itself.
    pub hello: Hello,
    /// How much later than reported the device sounds.
    pub latency: Span,
}

/// What has happened to a player.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlayerEvent {
    /// A search has found a server.
    Found {
        /// The name that it announces; `None` for one of this machine that announces none.
        name: Option<String>,
        /// Where it is.
        address: ServerAddress,
    },
    /// No server has answered a search; the message says for what. The player goes on searching.
    Searching(String),
    /// The server is connected and has answered.
    Connected,
    /// The server cannot be reached, or has closed the connection. The player tries again twice a
    /// second.
    Unreachable(io::Error),
    /// The player has closed the connection, and tries again.
    Rejected(DisconnectReason),
    /// A stream begins.
    Stream(StreamFormat),
    /// The server's stream cannot be played.
    Unsupported(UnsupportedStream),
    /// The server has changed volume, mute, buffer or latency.
    Settings(ServerSettings),
    /// Sound that is not silence begins or ends.
    Sounding(bool),
    /// This sound device plays, for the first time or after a failure.
    DevicePlaying(String),
    /// The sound device cannot be opened, or is lost. The player tries again once a second.
    DeviceFailed(OutputError),
}

/// A player that runs on a thread of its own.
#[derive(Debug)]
pub struct PlayerHandle {
    commands: Sender<PlayerCommand>,
    /// What has happened. The channel closes when the player has ended.
    pub events: FdReceiver<PlayerEvent>,
    /// The state, as of the last second or later.
    pub status: LatestReader<PlayerStatus>,
    thread: JoinHandle<Result<(), OutputError>>,
}

impl PlayerHandle {
    /// Starts a player.
    ///
    /// # Errors
    /// [`OutputError::Open`] if the output cannot be created, or the system has no thread.
    pub fn start(config: PlayConfig) -> Result<Self, OutputError> {
        let plays_silence = !config.output.is_device();
        let output = config.output.create(config.format)?;
        let system = |error| OutputError::Open { name: "the player's thread".to_owned(), error };
        let (commands, receiver) = channel::bounded(COMMANDS);
        let receiver = receiver.into_fd().map_err(|error| system(error.error))?;
        let (sender, events) = channel::bounded(EVENTS);
        let events = events.into_fd().map_err(|error| system(error.error))?;
        let now = clock::now();
        let mut hello = config.hello;
        hello.auth = config.server.auth.clone().or(hello.auth);
        let target =
            LinkTarget { address: config.server, name: config.server_name, tls: config.tls };
        let mut player = Player::new(
            PlayerConfig {
                hello,
                latency: config.latency,
                rate: None,
                release_after: config.release_after,
                plays_silence,
                seed: RandomState::new().hash_one(std::process::id()),
            },
            now,
        );
        if config.mixer != Mixer::Software {
            player.fix_volume();
        }
        let (publisher, status) = latest(player.status(now));
        let mut thread = PlayerThread {
            player,
            link: Link::new(target),
            output,
            open: None,
            is_ready: false,
            #[cfg(feature = "device")]
            last_device: None,
            settings: None,
            is_answered: false,
            last_failure: None,
            found: None,
            commands: receiver,
            own_commands: commands.clone(),
            events: sender,
            lost_events: 0,
            status: publisher,
            next_status: now,
            input: vec![0; READ],
            frames: Vec::new(),
        };
        let builder = std::thread::Builder::new().name("aulos-player".to_owned());
        let thread = builder.spawn(move || thread.run()).map_err(system)?;
        Ok(Self { commands, events, status, thread })
    }

    /// Ends the play-out with a fade. The event channel closes when that is done.
    pub fn stop(&self) {
        // Full of commands that the player has not read: it has ended, or this is among them.
        drop(self.commands.try_send(PlayerCommand::Stop));
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The output's, if it has ended the player. [`OutputError::ReaderGone`] is the end of a pipe.
    ///
    /// # Panics
    /// If the player's thread has panicked.
    pub fn join(self) -> Result<(), OutputError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[derive(Debug)]
struct PlayerThread {
    player: Player,
    link: Link,
    output: Box<dyn Output>,
    /// What the output is open with.
    open: Option<SampleSpec>,
    /// Whether the player knows that the device takes frames.
    is_ready: bool,
    /// The last message about the device: the same one is not repeated.
    #[cfg(feature = "device")]
    last_device: Option<String>,
    settings: Option<ServerSettings>,
    /// Whether the server has answered the Hello of this connection.
    is_answered: bool,
    /// The message of the last failed attempt: the same one is not repeated.
    last_failure: Option<String>,
    /// The server that a search has found.
    found: Option<ServerAddress>,
    commands: FdReceiver<PlayerCommand>,
    own_commands: Sender<PlayerCommand>,
    events: Sender<PlayerEvent>,
    lost_events: u64,
    status: LatestPublisher<PlayerStatus>,
    next_status: Instant,
    input: Vec<u8>,
    frames: Vec<f32>,
}

impl PlayerThread {
    fn run(&mut self) -> Result<(), OutputError> {
        // The descriptor tells of commands after the channel was found empty.
        let mut ready = Ready { commands: true, ..Ready::default() };
        loop {
            if ready.commands && self.take_commands() {
                return self.finish();
            }
            self.serve_link(&ready);
            self.player.handle_timeout(clock::now());
            self.drain()?;
            self.open_or_release()?;
            self.serve_output()?;
            self.play()?;
            self.drain()?;
            self.publish();
            ready = self.wait();
        }
    }

    /// Takes all commands; true if one of them is to stop.
    fn take_commands(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                PlayerCommand::Stop => return true,
                PlayerCommand::Resolved(found) => {
                    for event in self.link.resolved(found, clock::now()) {
                        self.link_event(event);
                    }
                }
            }
        }
        false
    }

    /// Does what the player wants.
    fn drain(&mut self) -> Result<(), OutputError> {
        while let Some(output) = self.player.poll_output() {
            match output {
                PlayerOutput::Connect => {
                    let event = self.link.begin(&self.own_commands, clock::now());
                    self.link_event(event);
                }
                PlayerOutput::Send(message) => {
                    let event = self.link.send(message);
                    self.link_event(event);
                }
                PlayerOutput::Disconnect(reason) => {
                    self.link.close();
                    if self.is_new_failure(format!("{reason:?}")) {
                        self.report(PlayerEvent::Rejected(reason));
                    }
                }
                PlayerOutput::Stream(stream) => {
                    self.release()?;
                    self.report(PlayerEvent::Stream(stream));
                }
                PlayerOutput::Unsupported(why) => self.report(PlayerEvent::Unsupported(why)),
                PlayerOutput::Settings(settings) => {
                    if !core::mem::replace(&mut self.is_answered, true) {
                        self.last_failure = None;
                        if let Some(own) = self.link.own_machine() {
                            self.report_found(None, own);
                        }
                        self.report(PlayerEvent::Connected);
                    }
                    if self.settings.replace(settings) != Some(settings) {
                        self.report(PlayerEvent::Settings(settings));
                    }
                }
                PlayerOutput::Sounding(is) => self.report(PlayerEvent::Sounding(is)),
                _ => {}
            }
        }
        Ok(())
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Nothing => {}
            LinkEvent::Connected => {
                self.is_answered = false;
                self.player.connected(clock::now());
            }
            LinkEvent::Found(name, address) => {
                self.report_found(Some(name), address);
            }
            LinkEvent::Searching(message) => {
                self.found = None;
                if self.is_new_failure(message.clone()) {
                    self.report(PlayerEvent::Searching(message));
                }
            }
            LinkEvent::Failed(error) => {
                self.player.disconnected(clock::now());
                // While searching this is only the attempt on this machine.
                if !self.link.is_searching() && self.is_new_failure(error.to_string()) {
                    self.report(PlayerEvent::Unreachable(error));
                }
            }
        }
    }

    /// Reads what has arrived, a bounded part of it: the device must be served meanwhile.
    fn serve_link(&mut self, ready: &Ready) {
        let event = self.link.progress(clock::now());
        self.link_event(event);
        if ready.link_writable {
            let event = self.link.flush();
            self.link_event(event);
        }
        for _ in 0..if ready.link_readable { READS } else { 0 } {
            let (player, is_answered) = (&mut self.player, &mut self.is_answered);
            let read = self.link.read(&mut self.input, &mut |event| match event {
                TransportEvent::Ready => {
                    *is_answered = false;
                    player.connected(clock::now());
                }
                TransportEvent::Input(at, input) => player.handle_input(at, input),
            });
            match read {
                Ok(length) if length < self.input.len() => return,
                Ok(_) => {}
                Err(error) => return self.link_event(LinkEvent::Failed(error)),
            }
        }
    }

    /// Opens the output when sound is to come, and closes it after a while without.
    fn open_or_release(&mut self) -> Result<(), OutputError> {
        let now = clock::now();
        let wanted = self.player.device_format(now);
        if wanted == self.open {
            return Ok(());
        }
        self.release()?;
        let Some(format) = wanted else { return Ok(()) };
        self.output.open(format, now)?;
        self.open = wanted;
        Ok(())
    }

    fn release(&mut self) -> Result<(), OutputError> {
        if self.open.take().is_some() {
            self.set_ready(false);
            self.output.close()?;
        }
        Ok(())
    }

    /// Serves the device, and follows whether it takes frames.
    fn serve_output(&mut self) -> Result<(), OutputError> {
        self.output.progress(clock::now())?;
        #[cfg(feature = "device")]
        self.report_device();
        self.set_ready(self.open.is_some() && self.output.is_ready());
        Ok(())
    }

    /// Reports what is new.
    #[cfg(feature = "device")]
    fn report_device(&mut self) {
        while let Some(event) = self.output.poll_event() {
            let (message, event) = match event {
                DeviceEvent::Playing(name) => (name.clone(), PlayerEvent::DevicePlaying(name)),
                DeviceEvent::Failed(e) => (e.to_string(), PlayerEvent::DeviceFailed(e)),
            };
            if self.last_device.as_ref() != Some(&message) {
                self.last_device = Some(message);
                self.report(event);
            }
        }
    }

    fn set_ready(&mut self, is_ready: bool) {
        if core::mem::replace(&mut self.is_ready, is_ready) == is_ready {
            return;
        }
        if is_ready {
            self.player.device_opened();
        } else {
            self.player.device_closed();
        }
    }

    /// Renders and writes what the output has room for.
    fn play(&mut self) -> Result<(), OutputError> {
        let Some(format) = self.open.filter(|_| self.is_ready) else { return Ok(()) };
        for _ in 0..MAX_BLOCKS {
            let now = clock::now();
            let frames = self.output.writable_frames(now).min(self.output.period());
            if frames == Frames::ZERO {
                break;
            }
            self.frames.resize(frames.as_usize() * format.layout.channels(), 0.0);
            let position = self.output.position(now);
            self.player.render(now, position, &mut self.frames);
            self.output.write(&self.frames)?;
        }
        Ok(())
    }

    /// Fades out and closes the output.
    fn finish(&mut self) -> Result<(), OutputError> {
        if let Some(format) = self.open.filter(|_| self.is_ready) {
            let now = clock::now();
            let frames = format.rate.frames(FADE).as_usize();
            self.frames.resize(frames * format.layout.channels(), 0.0);
            self.player.render_end(now, self.output.position(now), &mut self.frames);
            self.output.write(&self.frames)?;
            self.output.drain();
        }
        self.release()
    }

    fn publish(&mut self) {
        let now = clock::now();
        self.player.set_device_underruns(self.output.underruns());
        if now >= self.next_status {
            self.next_status = now + STATUS_INTERVAL;
            let mut status = self.player.status(now);
            status.lost_events = self.lost_events;
            self.status.publish(status);
        }
    }

    /// Waits until something is to be done.
    fn wait(&self) -> Ready {
        let timers =
            [self.player.poll_timeout(), self.link.poll_timeout(), self.output.poll_timeout()];
        let idle = (self.commands.as_fd(), PollFlags::empty());
        let reads_later = self.is_ready && self.player.can_read_later();
        let unread = if reads_later { PollFlags::IN } else { PollFlags::empty() };
        let link = self.link.descriptor().map(|(fd, flags)| (fd, flags - unread));
        let output = self.output.descriptor().filter(|_| self.open.is_some());
        let commands = (self.commands.as_fd(), PollFlags::IN);
        let mut fds = [commands, link.unwrap_or(idle), output.unwrap_or(idle)]
            .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
        let now = clock::now();
        let until = timers.into_iter().flatten().min().unwrap_or(now + MAX_WAIT);
        let most = if reads_later { MAX_UNREAD } else { MAX_WAIT };
        let timeout = clock::timeout((until - now).min(most));
        // A signal ends the wait early, and then nothing is ready.
        if poll(&mut fds, Some(&timeout)).is_err() {
            return Ready::default();
        }
        let [commands, link, _] = fds.map(|fd| fd.revents());
        let failed = PollFlags::ERR | PollFlags::HUP;
        Ready {
            commands: !commands.is_empty(),
            link_readable: reads_later || link.intersects(PollFlags::IN | failed),
            link_writable: link.intersects(PollFlags::OUT | failed),
        }
    }

    /// Reports a server that was found, unless it is the last one.
    fn report_found(&mut self, name: Option<String>, address: ServerAddress) {
        if self.found.as_ref() != Some(&address) {
            self.found = Some(address.clone());
            self.report(PlayerEvent::Found { name, address });
        }
    }

    /// Whether this is another failure than the last one.
    fn is_new_failure(&mut self, message: String) -> bool {
        self.last_failure.replace(message.clone()) != Some(message)
    }

    /// Events are for people: with a full channel they are reading too slowly, and lose some. After
    /// the end of the reader there is nothing to lose.
    fn report(&mut self, event: PlayerEvent) {
        let is_lost = matches!(self.events.try_send(event), Err(SendError::Full(_)));
        self.lost_events += u64::from(is_lost);
    }
}

/// What a wait has found.
#[derive(Debug, Default)]
struct Ready {
    commands: bool,
    link_readable: bool,
    link_writable: bool,
}

/// So that the status is published while nothing happens.
const MAX_WAIT: Span = Span::from_millis(500);

/// The longest time for which arrived chunks stay in the socket, if the device wakes nothing.
const MAX_UNREAD: Span = Span::from_millis(100);

/// At most this often.
const STATUS_INTERVAL: Span = Span::from_millis(100);

/// At the end of the play-out.
const FADE: Span = Span::from_millis(10);

const COMMANDS: usize = 8;
const EVENTS: usize = 64;

/// Bytes of one read, and reads before the device is served again.
const READ: usize = 65_536;
const READS: usize = 4;

/// Blocks that are rendered before the socket is served again.
const MAX_BLOCKS: usize = 16;

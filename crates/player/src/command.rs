//! The command line of a player, as `aulos play` and `aulos-player` share it.

use core::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aulos_core::{SampleFormat, Span};
use aulos_engine::codec_guard::panic_reports;
use aulos_rt::LineSender;
use aulos_rt::channel::TryRecvError;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::clock;
use crate::hooks::{HookConfig, HookRunner};
use crate::messages;
use crate::output::{DeviceInfo, OutputError, list_devices, millis};
use crate::report::{event_message, status_json, status_line};
use crate::thread::{PlayConfig, PlayerEvent, PlayerHandle};

/// What the command prints.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "options of the command line")]
pub struct PlayOutput {
    /// One JSON object a second on standard output.
    pub json: bool,
    /// A status line a second on standard error, although that is not a terminal.
    pub status: bool,
    /// No messages.
    pub quiet: bool,
}

/// Plays until a signal (SIGINT, SIGTERM, SIGHUP), or until the reader of a pipe of samples is
/// gone. Sound goes on without a reader of the status.
///
/// # Errors
/// [`PlayError`].
pub fn play(config: PlayConfig, output: PlayOutput, hooks: HookConfig) -> Result<(), PlayError> {
    if output.json && config.output.is_stdout() {
        return Err(PlayError::StdoutTwice);
    }
    let is_searching = config.server.service().is_some();
    let server = config.server.to_string();
    let (player, mixer) = (config.hello.client_id(), config.mixer.clone());
    let is_stopping = Arc::default();
    let signals = signals(&is_stopping).map_err(PlayError::System)?;
    let messages = messages::start().map_err(PlayError::System)?;
    let hooks = HookRunner::start(hooks, config.release_after, player, mixer, &messages);
    let hooks = hooks.map_err(PlayError::System)?;
    let handle = PlayerHandle::start(config).map_err(PlayError::Output)?;
    let mut front = Front {
        server,
        is_searching,
        output,
        messages,
        handle,
        hooks,
        signals,
        is_stopping,
        has_line: false,
        report_error: None,
        reported_panics: 0,
    };
    front.run();
    front.report_codec_panics();
    front.clear_line();
    let result = front.handle.join();
    front.hooks.finish(&front.server);
    front.messages.flush(messages::FLUSH_LIMIT);
    match result {
        Ok(()) | Err(OutputError::ReaderGone) => {
            front.report_error.map_or(Ok(()), |error| Err(PlayError::Report(error)))
        }
        Err(error) => Err(PlayError::Output(error)),
    }
}

/// Prints the sound devices of this machine, each as `--output` names it.
///
/// # Errors
/// That of the standard output.
pub fn print_devices() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let devices = list_devices();
    for device in &devices {
        match device {
            Ok(DeviceInfo { output, description }) => {
                writeln!(out, "{output}\n    {}", description.replace('\n', "; "))?;
            }
            Err(error) => messages::write_last(&error.to_string()),
        }
    }
    if devices.is_empty() {
        messages::write_last("this program was built without sound devices");
    }
    out.flush()
}

/// Prints why the program ends on standard error. Neither a pipe that is not read nor a closed one
/// keeps it from ending.
pub fn print_failure(failure: &dyn fmt::Display) {
    messages::write_last(&failure.to_string());
}

/// A pipe that is readable after a signal. While `is_stopping`, signals end the process.
fn signals(is_stopping: &Arc<AtomicBool>) -> io::Result<OwnedFd> {
    let (reader, writer) = io::pipe()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_default(signal, Arc::clone(is_stopping))?;
        pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader.into())
}

struct Front {
    /// The address, or that of the server that a search has found.
    server: String,
    is_searching: bool,
    output: PlayOutput,
    messages: LineSender,
    handle: PlayerHandle,
    hooks: HookRunner,
    signals: OwnedFd,
    is_stopping: Arc<AtomicBool>,
    /// Whether the terminal shows a status line, which the next line overwrites.
    has_line: bool,
    /// The error that has ended the status on standard output.
    report_error: Option<io::Error>,
    /// Number of codec libraries whose panics were reported.
    reported_panics: usize,
}

impl Front {
    /// Prints until the player has ended.
    fn run(&mut self) {
        let shows_line = !self.output.quiet && io::stderr().is_terminal();
        let prints = self.output.json || self.output.status || shows_line;
        let mut next = clock::now() + INTERVAL;
        loop {
            let until = [prints.then_some(next), self.hooks.poll_timeout()];
            let until = until.into_iter().flatten().min();
            let timeout = until.map(|until| clock::timeout(until - clock::now()));
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.handle.events, PollFlags::IN),
            ];
            let is_signal = poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
                && !fds[0].revents().is_empty();
            loop {
                match self.handle.events.try_recv() {
                    Ok(event) => self.event(&event),
                    Err(TryRecvError::Closed) => return,
                    Err(_) => break,
                }
            }
            if is_signal {
                // A second one ends the process at once, in case the output hangs.
                self.is_stopping.store(true, Ordering::Relaxed);
                return self.handle.stop();
            }
            self.hooks.handle_timeout(&self.server, clock::now());
            self.report_codec_panics();
            if prints && clock::now() >= next {
                next += INTERVAL;
                self.status(shows_line);
            }
        }
    }

    fn event(&mut self, event: &PlayerEvent) {
        match event {
            PlayerEvent::Found { address, .. } => {
                self.server = address.to_string();
                self.is_searching = false;
            }
            PlayerEvent::Searching(_) => self.is_searching = true,
            PlayerEvent::Sounding(is) => self.hooks.sounding(*is, &self.server, clock::now()),
            PlayerEvent::Settings(settings) => self.hooks.settings(settings),
            _ => {}
        }
        self.message(event_message(event, &self.server));
    }

    fn status(&mut self, shows_line: bool) {
        let status = *self.handle.status.read();
        if self.output.json {
            let mut line = status_json(&status);
            line["server"] = (!self.is_searching).then_some(&*self.server).into();
            let mut stdout = io::stdout().lock();
            if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
                // Without a reader there is no use in more lines.
                self.output.json = false;
                self.report_error = Some(error).filter(|it| it.kind() != io::ErrorKind::BrokenPipe);
            }
        }
        if self.output.status || shows_line {
            let state = if self.is_searching { "searching; " } else { "" };
            let line = format!("{state}{}", status_line(&status));
            if shows_line {
                self.messages.push(format!("\r\x1b[K{line}").into_bytes());
                self.has_line = true;
            } else {
                messages::push(&self.messages, &line);
            }
        }
    }

    /// Reports the first panic of each library. Without a status line it may come late, because
    /// nothing wakes this thread.
    fn report_codec_panics(&mut self) {
        let reports: Vec<_> = panic_reports().skip(self.reported_panics).collect();
        for report in reports {
            self.reported_panics += 1;
            self.message(Some(report.to_string()));
        }
    }

    fn message(&mut self, message: Option<String>) {
        if let Some(message) = message.filter(|_| !self.output.quiet) {
            self.clear_line();
            messages::push(&self.messages, &message);
        }
    }

    fn clear_line(&mut self) {
        if core::mem::take(&mut self.has_line) {
            self.messages.push(b"\r\x1b[K".to_vec());
        }
    }
}

/// Why a player could not play.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlayError {
    /// The output failed.
    Output(OutputError),
    /// The status could not be written to standard output; the sound was played.
    Report(io::Error),
    /// JSON and samples cannot both go to standard output.
    StdoutTwice,
    /// The system refuses what every program gets.
    System(io::Error),
}

impl PlayError {
    /// The exit code, as in sysexits.h.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::StdoutTwice => 2,
            Self::Output(OutputError::Open { .. }) => 73,
            Self::Output(_) | Self::Report(_) => 74,
            Self::System(_) => 70,
        }
    }
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(error) => error.fmt(f),
            Self::StdoutTwice => write!(
                f,
                "--json and --output stdout both need standard output; use --output file:PATH"
            ),
            Self::Report(error) => write!(f, "standard output: {error}"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PlayError {}

/// Parses the sample format of a file: 16, 24, 32 or f32.
///
/// # Errors
/// [`InvalidOption::Format`].
pub fn parse_format(text: &str) -> Result<SampleFormat, InvalidOption> {
    match text {
        "16" => Ok(SampleFormat::S16Le),
        "24" => Ok(SampleFormat::S24In32Le),
        "32" => Ok(SampleFormat::S32Le),
        "f32" => Ok(SampleFormat::F32),
        _ => Err(InvalidOption::Format(text.to_owned())),
    }
}

/// Parses a latency in milliseconds, with decimals.
///
/// # Errors
/// [`InvalidOption::Latency`].
pub fn parse_latency(text: &str) -> Result<Span, InvalidOption> {
    let value = text.parse().ok().filter(|value: &f64| value.abs() <= MAX_LATENCY);
    value.map(millis).ok_or_else(|| InvalidOption::Latency(text.to_owned()))
}

/// Parses a number of seconds, from 1.
///
/// # Errors
/// [`InvalidOption::Seconds`].
pub fn parse_seconds(text: &str) -> Result<Span, InvalidOption> {
    let value = text.parse().ok().filter(|value| (1..=MAX_SECONDS).contains(value));
    value.map(Span::from_secs).ok_or_else(|| InvalidOption::Seconds(text.to_owned()))
}

/// Parses the number of a player, from 1.
///
/// # Errors
/// [`InvalidOption::Instance`].
pub fn parse_instance(text: &str) -> Result<u32, InvalidOption> {
    let value = text.parse().ok().filter(|value| *value > 0);
    value.ok_or_else(|| InvalidOption::Instance(text.to_owned()))
}

/// Why the value of an option is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidOption {
    /// Not a sample format.
    Format(String),
    /// Not a number of milliseconds, or too large.
    Latency(String),
    /// Not a number from 1.
    Instance(String),
    /// Not a number of seconds, or too many.
    Seconds(String),
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(text) => {
                write!(f, "`{text}` is not a sample format; expected 16, 24, 32 or f32")
            }
            Self::Latency(text) => write!(
                f,
                "`{text}` is not a latency; expected milliseconds from -{MAX_LATENCY:.0} to \
                 {MAX_LATENCY:.0}"
            ),
            Self::Instance(text) => {
                write!(f, "`{text}` is not the number of a player; expected 1, 2, 3, ...")
            }
            Self::Seconds(text) => {
                write!(f, "`{text}` is not a time; expected seconds from 1 to {MAX_SECONDS}")
            }
        }
    }
}

impl core::error::Error for InvalidOption {}

/// A day.
const MAX_SECONDS: i64 = 86_400;

const INTERVAL: Span = Span::from_secs(1);

/// Milliseconds.
const MAX_LATENCY: f64 = 10_000.0;

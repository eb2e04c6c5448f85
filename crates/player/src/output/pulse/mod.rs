//! PulseAudio, and PipeWire by the same protocol: a stream over the server's unix socket.
//!
//! The protocol is spoken here and not by libpulse, because a player for small machines is linked
//! with the C library alone, and because the thread of the player serves the socket.

mod capture;
mod client;
mod list;
mod record;
mod server;
mod wire;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aulos_core::{Frames, Instant, SampleFormat, SampleSpec, Span};
use aulos_dsp::Dither;
use aulos_session::player::DevicePosition;
use rustix::event::PollFlags;

use client::{PulseClient, StreamConfig, StreamEvent};
use wire::{MAX_CHANNELS, sample_format};

use super::device::{DeviceEvent, Output, OutputError};
use super::positions::{DevicePositions, wait_until};

pub(crate) use capture::PulseCapture;
pub(super) use list::list_sinks;

/// Whether a server accepts connections.
pub(super) fn is_available() -> Result<(), OutputError> {
    server::connect_server().map(drop).map_err(open_error)
}

fn open_error((name, error): (String, io::Error)) -> OutputError {
    OutputError::Open { name: format!("the sound server at {name}"), error }
}

/// A stream of a sound server.
#[derive(Debug)]
pub(super) struct PulseOutput {
    /// `None` for the server's default.
    sink: Option<String>,
    buffer: Span,
    latency: Span,
    /// What was asked for; otherwise that of the stream.
    format: Option<SampleFormat>,
    /// What is played while the output is open.
    spec: Option<SampleSpec>,
    connection: Option<Connection>,
    retry_at: Instant,
    event: Option<DeviceEvent>,
    underruns: u64,
    dither: Dither,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    client: PulseClient,
    positions: DevicePositions,
    sink: String,
    /// Those that are not counted yet.
    underruns: u64,
}

impl PulseOutput {
    pub(super) fn new(
        sink: Option<String>,
        (buffer, latency): (Span, Span),
        format: Option<SampleFormat>,
    ) -> Self {
        Self {
            sink: sink.or_else(server::preferred_sink),
            buffer,
            latency,
            format,
            spec: None,
            connection: None,
            retry_at: Instant::ZERO,
            event: None,
            underruns: 0,
            dither: Dither::default(),
            bytes: Vec::new(),
        }
    }

    fn connect(&self, spec: SampleSpec, now: Instant) -> Result<Connection, OutputError> {
        if spec.layout.channels() > usize::from(MAX_CHANNELS) {
            let error = io::Error::other(format!("it takes at most {MAX_CHANNELS} channels"));
            return Err(OutputError::Open { name: "the sound server".to_owned(), error });
        }
        let socket = server::connect_server().map_err(open_error)?;
        let config = StreamConfig {
            spec,
            sink: self.sink.clone(),
            buffer: self.buffer,
            period: period(spec, self.buffer),
            cookie: server::cookie(),
        };
        let client = PulseClient::new(config, now);
        let positions = DevicePositions::new(spec.rate, self.latency, now);
        Ok(Connection { socket, client, positions, sink: String::new(), underruns: 0 })
    }

    /// Connects, or serves the connection.
    fn serve(&mut self, spec: SampleSpec, now: Instant) -> Result<(), OutputError> {
        if self.connection.is_none() {
            if now < self.retry_at {
                return Ok(());
            }
            self.connection = Some(self.connect(spec, now)?);
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let was_settled = connection.positions.is_settled();
        let result = connection.serve(spec, now);
        self.underruns += core::mem::take(&mut connection.underruns);
        result.map_err(|error| connection.error(error))?;
        if connection.positions.is_settled() && !was_settled {
            self.event = Some(DeviceEvent::Playing(connection.name()));
        }
        Ok(())
    }
}

impl Connection {
    fn name(&self) -> String {
        if self.sink.is_empty() { "pulse".to_owned() } else { format!("pulse:{}", self.sink) }
    }

    fn error(&self, error: io::Error) -> OutputError {
        OutputError::Device { name: self.name(), error }
    }

    /// Exchanges messages, and keeps the buffer filled with silence until the stream's position is
    /// known.
    fn serve(&mut self, spec: SampleSpec, now: Instant) -> io::Result<()> {
        self.flush()?;
        self.receive()?;
        self.client.handle_timeout(now).map_err(stream_error)?;
        while let Some(event) = self.client.poll_event() {
            match event {
                StreamEvent::Created(sink) => {
                    self.sink = sink;
                    self.write_silence(spec);
                    self.client.start();
                }
                StreamEvent::Moved => self.positions.restart(now),
                // Before the stream plays it is no fault.
                StreamEvent::Underrun => {
                    self.underruns += u64::from(self.positions.is_settled());
                }
                StreamEvent::Position(played, at) => self.positions.report(played, at),
            }
        }
        if self.positions.is_stuck(now) {
            return Err(io::Error::other("it does not play, or does not report its position"));
        }
        self.client.set_hasty(!self.positions.is_settled());
        if !self.positions.is_settled() {
            self.write_silence(spec);
        }
        self.flush()
    }

    fn write_silence(&mut self, spec: SampleSpec) {
        let frames = self.client.room() / spec.frame_bytes();
        if frames > 0 {
            self.client.write(&vec![spec.format.silence(); frames * spec.frame_bytes()]);
            self.positions.wrote(Frames::from(frames));
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let client = &mut self.client;
        server::receive(&self.socket, |bytes| {
            client.handle_input(crate::clock::now(), bytes).map_err(stream_error)
        })
    }

    /// Sends what the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        server::flush(&self.socket, self.client.output_mut())
    }
}

fn stream_error(error: client::StreamError) -> io::Error {
    io::Error::other(error.to_string())
}

impl Output for PulseOutput {
    fn open(&mut self, mut spec: SampleSpec, now: Instant) -> Result<(), OutputError> {
        spec.format = self.format.unwrap_or(spec.format);
        if sample_format(spec.format).is_none() {
            spec.format = SampleFormat::S16Le;
        }
        self.spec = Some(spec);
        self.progress(now)
    }

    fn progress(&mut self, now: Instant) -> Result<(), OutputError> {
        let Some(spec) = self.spec else { return Ok(()) };
        if let Err(error) = self.serve(spec, now) {
            self.connection = None;
            self.retry_at = now + RETRY;
            self.event = Some(DeviceEvent::Failed(error));
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.connection.as_ref().is_some_and(|one| one.positions.is_settled())
    }

    fn underruns(&self) -> u64 {
        self.underruns
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.event.take()
    }

    fn writable_frames(&mut self, _now: Instant) -> Frames {
        let (Some(one), Some(spec)) = (&self.connection, self.spec) else { return Frames::ZERO };
        Frames::from(one.client.room() / spec.frame_bytes())
    }

    fn period(&self) -> Frames {
        self.spec.map_or(Frames::ZERO, |spec| period(spec, self.buffer))
    }

    fn write(&mut self, samples: &[f32]) -> Result<(), OutputError> {
        let (Some(one), Some(spec)) = (&mut self.connection, self.spec) else { return Ok(()) };
        self.bytes.resize(samples.len() * spec.format.bytes(), 0);
        self.dither.encode(spec.format, samples, &mut self.bytes);
        one.client.write(&self.bytes);
        one.positions.wrote(Frames::from(samples.len() / spec.layout.channels()));
        // A failure shows again when the connection is served next.
        drop(one.flush());
        Ok(())
    }

    fn position(&self, now: Instant) -> DevicePosition {
        let closed = DevicePosition { played: Frames::ZERO, at: now };
        self.connection.as_ref().map_or(closed, |one| one.positions.position(now))
    }

    fn drain(&mut self) {
        let Some(one) = &self.connection else { return };
        let until = one.positions.sounded_at();
        wait_until(self, until);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.spec?;
        Some(self.connection.as_ref().map_or(self.retry_at, |one| one.client.poll_timeout()))
    }

    fn descriptor(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let one = self.connection.as_ref()?;
        let is_full = !one.client.output().is_empty();
        let out = if is_full { PollFlags::OUT } else { PollFlags::empty() };
        Some((one.socket.as_fd(), PollFlags::IN | out))
    }

    fn close(&mut self) -> Result<(), OutputError> {
        self.spec = None;
        if let Some(mut one) = self.connection.take() {
            one.client.delete();
            // The server notices the end of the connection as well.
            drop(one.flush());
        }
        Ok(())
    }
}

/// Frames that are rendered and written at once: a tenth of the buffer.
fn period(spec: SampleSpec, buffer: Span) -> Frames {
    Frames(spec.rate.frames(buffer / 10).0.max(1))
}

/// Between attempts to connect.
const RETRY: Span = Span::from_secs(1);

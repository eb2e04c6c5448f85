//! Performs the I/O of a [`SnapcastInput`]: the connection to the other server, with or without
//! TLS.
//!
//! As with every feeder, the socket is read on the tick of a reactor. The kernel stamps what
//! arrives, so that a tick does not blur the comparison of the clocks.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Instant, Span};
use aulos_proto::snap::client::ClientInput;
use aulos_rt::receive::{receive, stamp_arrivals};
use aulos_session::snapcast::{
    SnapcastInput, SnapcastInputCounts, SnapcastInputError, SnapcastInputOutput,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::connect::{ConnectAttempt, ConnectFailure};
use super::{Feeder, NextPoll};
use crate::SystemClock;

/// The server to connect to.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct SnapcastServer {
    /// `host:port`.
    pub address: String,
    /// The configuration of TLS and the name that the server's certificate must have, or why there
    /// is none.
    pub tls: Option<Result<(Arc<ClientConfig>, ServerName<'static>), String>>,
}

/// What happened to the chunks of all Snapcast sources.
#[derive(Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "plain counters")]
pub struct SnapcastCounters {
    /// Connections that have failed or could not be made.
    pub failures: AtomicU64,
    /// Chunks that were played.
    pub played: AtomicU64,
    /// Chunks that came too late to be played, also at the beginning of a connection, or were
    /// played already.
    pub late: AtomicU64,
    /// Chunks whose time is too far in the future.
    pub early: AtomicU64,
    /// Chunks that could not be decoded.
    pub damaged: AtomicU64,
    /// Panics of codec libraries.
    pub codec_panics: AtomicU64,
    /// Chunks that were dropped while they waited.
    pub dropped: AtomicU64,
    /// Gaps that were filled with silence.
    pub gaps: AtomicU64,
    /// Chunks that were handed to a station to be passed, and those for which it had no room.
    pub passed: AtomicU64,
    /// See [`Self::passed`].
    pub not_passed: AtomicU64,
}

impl SnapcastCounters {
    /// The counters and their stable names.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &AtomicU64); 10] {
        [
            ("snapcast_sources_failed", &self.failures),
            ("snapcast_chunks_played", &self.played),
            ("snapcast_chunks_late", &self.late),
            ("snapcast_chunks_early", &self.early),
            ("snapcast_chunks_damaged", &self.damaged),
            ("snapcast_codec_panics", &self.codec_panics),
            ("snapcast_chunks_dropped", &self.dropped),
            ("snapcast_gaps_filled", &self.gaps),
            ("snapcast_chunks_passed", &self.passed),
            ("snapcast_chunks_not_passed", &self.not_passed),
        ]
    }

    /// Adds what has happened to a source since `before`.
    pub fn add(&self, counts: SnapcastInputCounts, before: SnapcastInputCounts) {
        let values = |of: SnapcastInputCounts| {
            [
                of.failures,
                of.played,
                of.late,
                of.early,
                of.damaged,
                of.codec_panics,
                of.dropped,
                of.gaps,
                of.passed,
                of.not_passed,
            ]
        };
        let differences = values(counts).into_iter().zip(values(before));
        for ((_, counter), (count, before)) in self.named().into_iter().zip(differences) {
            counter.fetch_add(count - before, Ordering::Relaxed);
        }
    }
}

/// Connects a [`SnapcastInput`] with its server.
#[derive(Debug)]
pub struct SnapcastFeeder {
    server: SnapcastServer,
    input: SnapcastInput,
    link: SnapcastLink,
    counters: Arc<SnapcastCounters>,
    counted: SnapcastInputCounts,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum SnapcastLink {
    Down,
    Connecting(ConnectAttempt),
    /// Until the TLS handshake is complete, there is a deadline.
    Up(Box<SnapcastConnection>, Option<Instant>),
}

#[derive(Debug)]
struct SnapcastConnection {
    socket: TcpStream,
    tls: Option<ClientConnection>,
    /// Bytes that the socket did not take.
    pending: Vec<u8>,
    /// Decrypted bytes of the last read.
    plain: Vec<u8>,
}

impl SnapcastFeeder {
    /// A feeder that connects when `input` wants it.
    #[must_use]
    pub fn new(
        server: SnapcastServer,
        input: SnapcastInput,
        counters: Arc<SnapcastCounters>,
    ) -> Self {
        let (link, counted) = (SnapcastLink::Down, SnapcastInputCounts::default());
        Self { server, input, link, counters, counted, scratch: vec![0; READ_BYTES] }
    }

    /// Continues the attempt, or reads what has arrived.
    fn receive(&mut self, now: Instant) -> Result<(), SnapcastInputError> {
        match core::mem::replace(&mut self.link, SnapcastLink::Down) {
            SnapcastLink::Down => Ok(()),
            SnapcastLink::Connecting(attempt) => match step(attempt, now)? {
                ConnectAttempt::Connected(socket) => {
                    let connection = SnapcastConnection::new(socket, &self.server)?;
                    let deadline = connection.tls.is_some().then(|| now + HANDSHAKE_TIMEOUT);
                    if deadline.is_none() {
                        self.input.connected(now);
                    }
                    self.link = SnapcastLink::Up(Box::new(connection), deadline);
                    Ok(())
                }
                attempt => {
                    self.link = SnapcastLink::Connecting(attempt);
                    Ok(())
                }
            },
            SnapcastLink::Up(mut connection, mut deadline) => {
                for _ in 0..MAX_READS {
                    let Some(at) = connection.read(&mut self.scratch)? else { break };
                    if deadline.is_some() && !connection.is_handshaking() {
                        deadline = None;
                        self.input.connected(at);
                    }
                    self.input.handle_input(at, ClientInput::Received(&connection.plain));
                }
                if deadline.is_some_and(|deadline| deadline <= now) {
                    let why = "the server does not complete the handshake within 5 s";
                    return Err(SnapcastInputError::Tls(why.to_owned()));
                }
                self.link = SnapcastLink::Up(connection, deadline);
                Ok(())
            }
        }
    }

    /// Does what the source wants.
    fn execute(&mut self) -> Result<(), SnapcastInputError> {
        while let Some(output) = self.input.poll_output() {
            match (output, &mut self.link) {
                (SnapcastInputOutput::Connect, link) => {
                    let attempt = ConnectAttempt::begin(&self.server.address).map_err(io_error)?;
                    *link = SnapcastLink::Connecting(attempt);
                }
                (SnapcastInputOutput::Send(message), SnapcastLink::Up(connection, _)) => {
                    let mut bytes = Vec::new();
                    message.write(SystemClock::now(), &mut bytes);
                    connection.send(&bytes)?;
                }
                (SnapcastInputOutput::Disconnect, link) => *link = SnapcastLink::Down,
                _ => {}
            }
        }
        match &mut self.link {
            SnapcastLink::Up(connection, _) => connection.flush(),
            _ => Ok(()),
        }
    }
}

impl Feeder for SnapcastFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.input.is_abandoned() {
            return NextPoll::Never;
        }
        // What has arrived comes first: its times are before this tick.
        if let Err(why) = self.receive(now) {
            self.input.disconnected(now, why);
        }
        self.input.handle_timeout(now);
        if let Err(why) = self.execute() {
            self.link = SnapcastLink::Down;
            self.input.disconnected(now, why);
        }
        let counts = self.input.counts();
        self.counters.add(counts, core::mem::replace(&mut self.counted, counts));
        let is_connecting = !matches!(self.link, SnapcastLink::Down);
        let is_active = is_connecting || self.input.poll_timeout().is_some();
        if is_active { NextPoll::Soon } else { NextPoll::Later }
    }
}

impl SnapcastConnection {
    fn new(socket: TcpStream, server: &SnapcastServer) -> Result<Self, SnapcastInputError> {
        // A Time request must leave at the instant that it names.
        socket.set_nodelay(true).map_err(io_error)?;
        stamp_arrivals(&socket);
        let tls = match server.tls.clone().transpose().map_err(SnapcastInputError::Tls)? {
            Some((config, name)) => Some(ClientConnection::new(config, name).map_err(tls_error)?),
            None => None,
        };
        Ok(Self { socket, tls, pending: Vec::new(), plain: Vec::new() })
    }

    fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Reads once into `self.plain`; returns the time of arrival, `None` if nothing is there.
    fn read(&mut self, scratch: &mut [u8]) -> Result<Option<Instant>, SnapcastInputError> {
        self.plain.clear();
        let (length, at) = match receive(&self.socket, scratch) {
            Ok((0, _)) => return Err(SnapcastInputError::Closed),
            Ok((length, at)) => (length, Instant::from_nanos(at)),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                    _ => Err(io_error(error)),
                };
            }
        };
        let mut received = scratch.get(..length).unwrap_or_default();
        let Some(tls) = &mut self.tls else {
            self.plain.extend_from_slice(received);
            return Ok(Some(at));
        };
        while !received.is_empty() {
            tls.read_tls(&mut received).map_err(io_error)?;
            let state = tls.process_new_packets().map_err(tls_error)?;
            let from = self.plain.len();
            self.plain.resize(from + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.plain[from..]).map_err(io_error)?;
            if state.peer_has_closed() {
                return Err(SnapcastInputError::Closed);
            }
        }
        Ok(Some(at))
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SnapcastInputError> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(message).map_err(io_error)?,
            None => self.pending.extend_from_slice(message),
        }
        self.flush()
    }

    /// Sends what the socket takes now.
    fn flush(&mut self) -> Result<(), SnapcastInputError> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() && self.pending.len() <= MAX_PENDING {
                tls.write_tls(&mut self.pending).map_err(io_error)?;
            }
        }
        while !self.pending.is_empty() {
            match (&self.socket).write(&self.pending) {
                Ok(sent) => drop(self.pending.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error(error)),
            }
        }
        // A server that does not read is as good as gone.
        if self.pending.len() > MAX_PENDING {
            return Err(SnapcastInputError::Io(io::ErrorKind::TimedOut));
        }
        Ok(())
    }
}

fn step(attempt: ConnectAttempt, now: Instant) -> Result<ConnectAttempt, SnapcastInputError> {
    attempt.step(now).map_err(|failure| match failure {
        ConnectFailure::Unresolved => SnapcastInputError::Name,
        ConnectFailure::Io(error) => io_error(error),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn io_error(error: io::Error) -> SnapcastInputError {
    SnapcastInputError::Io(error.kind())
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn tls_error(error: rustls::Error) -> SnapcastInputError {
    SnapcastInputError::Tls(error.to_string())
}

/// The size and number of reads per tick: a flood must not block the reactor. Eight channels of
/// 192 kHz in 32 bits need half of it.
const READ_BYTES: usize = 16 * 1024;
const MAX_READS: usize = 8;

/// Messages of a client have some hundred bytes.
const MAX_PENDING: usize = 64 * 1024;

const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a server on a thread")]

    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant as StdInstant};

    use aulos_core::{Codec, SampleSpec};
    use aulos_engine::source::SourceItem;
    use aulos_proto::snap::wire::{
        ClientMessage, Hello, MAX_MESSAGE, MessageStamp, ParsedMessage, ServerMessage,
        ServerSettings, Transport, WireTime, codec_header, parse_message,
    };
    use aulos_rt::LatestReader;
    use aulos_rt::ring::Consumer;
    use aulos_session::snapcast::{SnapcastInputConfig, SnapcastInputSink, SnapcastInputStatus};
    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// A feeder, as a reactor would call it.
    struct Driven {
        feeder: SnapcastFeeder,
        items: Consumer<SourceItem>,
        state: LatestReader<SnapcastInputStatus>,
        counters: Arc<SnapcastCounters>,
        samples: Vec<f32>,
        lost: u32,
    }

    impl Driven {
        fn new(server: SnapcastServer) -> Self {
            let (sink, items, state) = SnapcastInputSink::new();
            let config = SnapcastInputConfig {
                hello: Hello::new("test"),
                latency: Span::ZERO,
                pass: None,
                seed: 1,
            };
            let input = SnapcastInput::new(config, sink, SystemClock::now());
            let counters = Arc::<SnapcastCounters>::default();
            let feeder = SnapcastFeeder::new(server, input, Arc::clone(&counters));
            Self { feeder, items, state, counters, samples: Vec::new(), lost: 0 }
        }

        /// Calls it every 10 ms until `is_done`, at most ten seconds.
        fn run_until(&mut self, is_done: impl Fn(&mut Self) -> bool) {
            let begin = StdInstant::now();
            while !is_done(self) {
                assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", self.state.read());
                assert_ne!(self.feeder.tick(SystemClock::now()), NextPoll::Never);
                while let Some(item) = self.items.pop() {
                    match item {
                        SourceItem::Block(block) => self.samples.extend(block.samples()),
                        SourceItem::Lost => self.lost += 1,
                        SourceItem::End => panic!("a live server does not end"),
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        fn error(&mut self) -> Option<String> {
            self.state.read().error.as_ref().map(ToString::to_string)
        }
    }

    /// Answers one client and sends it a second of audio, whose samples count.
    fn serve(mut stream: impl Read + Write) -> io::Result<()> {
        let (mut buffer, mut piece, mut begun) = (Vec::new(), [0; 4_096], None);
        let mut sent = 0_u16;
        while sent < 50 {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => buffer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let (now, mut out, mut read) = (SystemClock::now(), Vec::new(), 0);
            while let Ok(ParsedMessage::Message(frame)) =
                parse_message(&buffer[read..], MAX_MESSAGE)
            {
                let id = frame.header.stamp.id;
                let stamp = MessageStamp { refers_to: id, ..MessageStamp::default() };
                match ClientMessage::parse(&frame, Transport::Stream).unwrap() {
                    ClientMessage::Hello(_) => {
                        let buffer = Span::from_secs(2);
                        let settings = ServerSettings { buffer, ..ServerSettings::default() };
                        ServerMessage::Settings(settings).write(stamp, &mut out);
                        let header = codec_header(Codec::Pcm, SampleSpec::DEFAULT, &[]).unwrap();
                        // Behind the name and two lengths.
                        ServerMessage::CodecHeader { codec: b"pcm", header: &header[11..] }
                            .write(MessageStamp::default(), &mut out);
                        begun = Some(now);
                    }
                    ClientMessage::Time => {
                        let at = WireTime::from_instant(now);
                        let asked = frame.header.stamp.sent.as_micros();
                        let latency = WireTime::from_micros(at.as_micros() - asked);
                        let stamp = MessageStamp { sent: at, received: at, ..stamp };
                        ServerMessage::Time { latency }.write(stamp, &mut out);
                    }
                    other => panic!("{other:?}"),
                }
                read += 26 + frame.payload.len();
            }
            buffer.drain(..read);
            while let Some(at) = begun.map(|begun| begun + Span::from_millis(20) * i64::from(sent))
                && at <= now
                && sent < 50
            {
                let samples =
                    (0..960).flat_map(|frame| [(sent * 200 + frame / 5).to_le_bytes(); 2].concat());
                let payload: Vec<u8> = samples.collect();
                ServerMessage::WireChunk {
                    timestamp: WireTime::from_instant(at),
                    payload: &payload,
                }
                .write(MessageStamp::default(), &mut out);
                sent += 1;
            }
            stream.write_all(&out)?;
        }
        Ok(())
    }

    fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    fn accept(listener: &TcpListener) -> TcpStream {
        let stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn check_second(driven: &Driven) {
        let frames = driven.samples.chunks_exact(2).map(|frame| (frame[0] * 32_768.0).round());
        let frames: Vec<f32> = frames.collect();
        assert_eq!(frames.len(), 48_000);
        for (number, frame) in (0_u16..).zip(frames.chunks(5).map(|same| same[0])) {
            let wanted = f32::from(number / 192 * 200 + number % 192);
            assert!((frame - wanted).abs() < 0.5, "{number}: {frame} for {wanted}");
        }
    }

    #[test]
    fn a_server_is_played_to_its_last_frame_and_is_then_lost() {
        let (listener, address) = listen();
        let server = std::thread::spawn(move || serve(accept(&listener)));
        let mut driven = Driven::new(SnapcastServer { address, tls: None });
        driven.run_until(|driven| driven.lost == 1);
        server.join().unwrap().unwrap();
        check_second(&driven);
        assert_eq!(driven.counters.played.load(Ordering::Relaxed), 50);
        assert!(driven.counters.failures.load(Ordering::Relaxed) >= 1);
        driven.run_until(|driven| driven.error().is_some_and(|why| why.contains("refused")));
    }

    #[test]
    fn tls_needs_a_certificate_of_the_host() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Arc::new(client);
        for name in ["elsewhere", "localhost"] {
            let (listener, address) = listen();
            let config = Arc::clone(&config);
            let server = std::thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                serve(StreamOwned::new(connection, accept(&listener)))
            });
            let name = ServerName::try_from(name).unwrap();
            let is_valid = name == ServerName::try_from("localhost").unwrap();
            let tls = Some(Ok((Arc::clone(&client), name)));
            let mut driven = Driven::new(SnapcastServer { address, tls });
            if is_valid {
                driven.run_until(|driven| driven.lost == 1);
                check_second(&driven);
            } else {
                driven.run_until(|driven| driven.error().is_some());
                let why = driven.error().unwrap();
                assert!(why.starts_with("TLS failed: invalid peer certificate"), "{why}");
            }
            drop(driven);
            // With a wrong name it fails.
            drop(server.join().unwrap());
        }
    }

    #[test]
    fn a_name_without_address_is_said() {
        let address = "snapcast.invalid:1704".to_owned();
        let mut driven = Driven::new(SnapcastServer { address, tls: None });
        driven.run_until(|driven| driven.error().is_some());
        assert_eq!(driven.error().unwrap(), "the name of the server has no address");
    }
}

//! Reads the body of web radio on a reactor's tick.
//!
//! The code that makes the request (name, TLS, head, redirects) hands over the socket with its TLS
//! state and the bytes read already, and connects again when the end of the body is reported.
//! Chunked encoding and titles are removed here, and the rest goes to the decoder. A full decoder
//! holds the server back through the socket.

use std::io::{self, Read};
use std::net::TcpStream;

use aulos_core::{Instant, Span};
use aulos_engine::standby::{StandbyHandle, StandbyRequest};
use aulos_proto::http::BodyDecoder;
use aulos_proto::packets::FormatHint;
use aulos_proto::titles::TrackMetadata;
use aulos_rt::channel::{Receiver, Sender, TryRecvError};
use rustls::ClientConnection;

use super::segments::{SegmentFeed, SegmentFeedStatus};
use super::stream::StreamWriter;
use super::{Feeder, NextPoll};

/// A response body that begins, with its connection.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is made where the head was read")]
pub struct HttpBody {
    /// Non-blocking.
    pub socket: TcpStream,
    /// Its TLS state, with a complete handshake.
    pub tls: Option<Box<ClientConnection>>,
    /// The parser of chunked encoding and titles.
    pub body: BodyDecoder,
    /// Bytes of the body that have been read already.
    pub unread: Vec<u8>,
    /// The format according to the server.
    pub hint: FormatHint,
    /// Whether the body has a known length (a file), so that an earlier end is an error.
    pub finite: bool,
}

/// A command to the feeder.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third thing")]
pub enum HttpFeederCommand {
    /// Play this body in place of the current one.
    Play(Box<HttpBody>),
    /// Play these segments in place of the current body.
    PlaySegments(Box<SegmentFeed>),
    /// Close the connection.
    Stop,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a body ends well or not")]
pub enum HttpBodyEnd {
    /// It ended regularly.
    Ended,
    /// It broke off.
    Broken(HttpBodyError),
}

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpBodyError {
    /// The server closed the connection.
    Closed,
    /// It sent nothing, or next to nothing, for five seconds.
    Stalled,
    /// Its chunked encoding is invalid.
    InvalidChunks,
    /// The connection failed.
    Io(io::ErrorKind),
}

impl core::fmt::Display for HttpBodyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Stalled => f.write_str("the server stopped sending"),
            Self::InvalidChunks => f.write_str("the server sent invalid chunked encoding"),
            Self::Io(kind) => write!(f, "the connection broke: {kind}"),
        }
    }
}

/// Plays one body after another.
#[derive(Debug)]
pub struct HttpFeeder {
    writer: StreamWriter,
    commands: Receiver<HttpFeederCommand>,
    reports: Sender<HttpBodyEnd>,
    titles: Sender<TrackMetadata>,
    /// The stand-by control of the station; without one the source is always needed.
    standby: Option<StandbyHandle>,
    /// Reports whether a body is needed, and the last reported value.
    demand_reports: Option<Sender<bool>>,
    is_needed: bool,
    state: HttpFeederState,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum HttpFeederState {
    Idle,
    /// The decoder has not started this body yet.
    Begin(Box<HttpBody>),
    Play(Box<HttpBody>, ThroughputWindow),
    Segments(Box<SegmentFeed>),
    /// The decoder has not got the end mark yet.
    End,
}

/// The bytes received recently.
#[derive(Clone, Copy, Debug)]
struct ThroughputWindow {
    since: Instant,
    bytes: usize,
}

/// The result of reading a body.
enum ReadStatus {
    /// No more data, or no room for it.
    Pending,
    Ended,
    Broken(HttpBodyError),
}

impl HttpFeeder {
    /// A feeder that executes `commands`.
    #[must_use]
    pub fn new(
        writer: StreamWriter,
        commands: Receiver<HttpFeederCommand>,
        reports: Sender<HttpBodyEnd>,
        titles: Sender<TrackMetadata>,
    ) -> Self {
        let scratch = vec![0; READ_BYTES];
        let (standby, demand_reports, is_needed) = (None, None, true);
        Self {
            writer,
            commands,
            reports,
            titles,
            standby,
            demand_reports,
            is_needed,
            state: HttpFeederState::Idle,
            scratch,
        }
    }

    /// Connects it to the station's stand-by control, and reports every change of the demand,
    /// starting with the current value. In cold stand-by new bodies are dropped.
    #[must_use]
    pub fn with_standby(mut self, mut standby: StandbyHandle, needs: Sender<bool>) -> Self {
        self.is_needed = standby.request() == StandbyRequest::Close;
        self.standby = Some(standby);
        self.demand_reports = Some(needs);
        self
    }

    /// What the station currently needs.
    fn poll_demand(&mut self) -> StandbyRequest {
        let demand = self.standby.as_mut().map_or(StandbyRequest::Play, StandbyHandle::request);
        self.writer.set_parse_only(demand != StandbyRequest::Play);
        let needed = demand != StandbyRequest::Close;
        if needed != self.is_needed
            && self.demand_reports.as_ref().is_none_or(|needs| needs.try_send(needed).is_ok())
        {
            self.is_needed = needed;
        }
        demand
    }

    fn play(
        &mut self,
        mut body: Box<HttpBody>,
        mut pulse: ThroughputWindow,
        now: Instant,
    ) -> HttpFeederState {
        match self.read_body(&mut body, &mut pulse, now) {
            ReadStatus::Ended if body.finite => HttpFeederState::End,
            ReadStatus::Ended => self.report(HttpBodyEnd::Broken(HttpBodyError::Closed)),
            ReadStatus::Broken(fault) => self.report(HttpBodyEnd::Broken(fault)),
            ReadStatus::Pending if now.since(pulse.since) < STALL_TIMEOUT => {
                HttpFeederState::Play(body, pulse)
            }
            ReadStatus::Pending if pulse.bytes < MIN_BYTES_PER_WINDOW => {
                self.report(HttpBodyEnd::Broken(HttpBodyError::Stalled))
            }
            ReadStatus::Pending => {
                HttpFeederState::Play(body, ThroughputWindow { since: now, bytes: 0 })
            }
        }
    }

    /// Reads what is available and fits.
    fn read_body(
        &mut self,
        body: &mut HttpBody,
        pulse: &mut ThroughputWindow,
        now: Instant,
    ) -> ReadStatus {
        for _ in 0..MAX_READS {
            let room = self.writer.room().min(self.scratch.len());
            if room == 0 {
                // The pause is caused by this end.
                *pulse = ThroughputWindow { since: now, bytes: 0 };
                return ReadStatus::Pending;
            }
            let count = if body.unread.is_empty() {
                match body.read(&mut self.scratch[..room]) {
                    Ok(0) if body.finite => return ReadStatus::Broken(HttpBodyError::Closed),
                    Ok(0) => return ReadStatus::Ended,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return ReadStatus::Pending;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return ReadStatus::Broken(HttpBodyError::Io(error.kind())),
                }
            } else {
                let count = room.min(body.unread.len());
                self.scratch[..count].copy_from_slice(&body.unread[..count]);
                body.unread.drain(..count);
                count
            };
            let (writer, titles) = (&mut self.writer, &self.titles);
            let taken = body.body.push(
                &self.scratch[..count],
                |sound| {
                    // There is room for everything that was read.
                    pulse.bytes += writer.write(sound);
                },
                // Without a receiver the title is dropped.
                |title| drop(titles.try_send(title)),
            );
            if taken.is_err() {
                return ReadStatus::Broken(HttpBodyError::InvalidChunks);
            }
            if body.body.is_finished() {
                return ReadStatus::Ended;
            }
        }
        ReadStatus::Pending
    }

    fn report(&self, report: HttpBodyEnd) -> HttpFeederState {
        // The channel has room for one report, and only one body is active.
        self.reports.try_send(report).ok();
        HttpFeederState::Idle
    }
}

impl HttpBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return (&self.socket).read(into) };
        loop {
            match tls.reader().read(into) {
                // No close_notify: as without TLS, a known length reveals a truncation.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if tls.read_tls(&mut &self.socket)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            // Answers a key update; what cannot be sent now goes with the next one.
            while tls.wants_write() && tls.write_tls(&mut &self.socket).is_ok_and(|sent| sent > 0) {
            }
        }
    }
}

impl Feeder for HttpFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.writer.is_abandoned() {
            return NextPoll::Never;
        }
        let demand = self.poll_demand();
        match self.commands.try_recv() {
            Ok(HttpFeederCommand::Play(body)) => self.state = HttpFeederState::Begin(body),
            Ok(HttpFeederCommand::PlaySegments(feed)) => {
                self.state = HttpFeederState::Segments(feed);
            }
            Ok(HttpFeederCommand::Stop) => self.state = HttpFeederState::Idle,
            Err(TryRecvError::Closed) if matches!(self.state, HttpFeederState::Idle) => {
                return NextPoll::Never;
            }
            Err(_) => {}
        }
        if demand == StandbyRequest::Close {
            self.state = HttpFeederState::Idle;
        }
        self.state = match core::mem::replace(&mut self.state, HttpFeederState::Idle) {
            HttpFeederState::Idle => HttpFeederState::Idle,
            HttpFeederState::Begin(body) if self.writer.begin(body.hint) => {
                self.play(body, ThroughputWindow { since: now, bytes: 0 }, now)
            }
            HttpFeederState::Play(body, pulse) => self.play(body, pulse, now),
            HttpFeederState::Segments(mut feed) => match feed.feed(now, &mut self.writer) {
                SegmentFeedStatus::Playing => HttpFeederState::Segments(feed),
                SegmentFeedStatus::Ended => HttpFeederState::End,
                SegmentFeedStatus::Abandoned => HttpFeederState::Idle,
            },
            HttpFeederState::End if self.writer.end() => self.report(HttpBodyEnd::Ended),
            unchanged @ (HttpFeederState::Begin(_) | HttpFeederState::End) => unchanged,
        };
        if matches!(self.state, HttpFeederState::Idle) { NextPoll::Later } else { NextPoll::Soon }
    }
}

/// The size and number of reads per tick: servers that send everything at once must not block the
/// reactor.
const READ_BYTES: usize = 16 * 1024;
const MAX_READS: usize = 8;

/// A body has stalled when fewer bytes than this arrive in this time: less than any codec sends for
/// silence.
const STALL_TIMEOUT: Span = Span::from_secs(5);
const MIN_BYTES_PER_WINDOW: usize = 64;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use aulos_engine::standby::{Standby, standby_channel};
    use aulos_proto::http::BodyFraming;
    use aulos_rt::channel::bounded;

    use super::super::stream::{StreamReader, stream_channel};
    use super::*;

    struct HttpFixture {
        feed: HttpFeeder,
        commands: Sender<HttpFeederCommand>,
        reports: Receiver<HttpBodyEnd>,
        server: TcpStream,
        client: Option<TcpStream>,
        reader: Option<StreamReader>,
    }

    fn http_fixture() -> HttpFixture {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let (writer, reader) = stream_channel();
        let (commands, ordered) = bounded(2);
        let (reporter, reports) = bounded(2);
        let (titles, _) = bounded(2);
        let feed = HttpFeeder::new(writer, ordered, reporter, titles);
        HttpFixture { feed, commands, reports, server, client: Some(client), reader: Some(reader) }
    }

    impl HttpFixture {
        fn play(&mut self, framing: BodyFraming, finite: bool) {
            let body = HttpBody {
                socket: self.client.take().unwrap(),
                tls: None,
                body: BodyDecoder::new(framing, None),
                unread: b"1234".to_vec(),
                hint: FormatHint::None,
                finite,
            };
            self.commands.try_send(HttpFeederCommand::Play(Box::new(body))).unwrap();
        }

        /// Ticks in steps of a second until something is reported.
        fn wait(&mut self, mut each: impl FnMut(u64, &mut TcpStream)) -> (u64, HttpBodyEnd) {
            for second in 1..100 {
                each(second, &mut self.server);
                // Loopback delivery is asynchronous.
                std::thread::sleep(std::time::Duration::from_millis(2));
                self.feed.tick(Instant::from_nanos(second * 1_000_000_000));
                if let Ok(report) = self.reports.try_recv() {
                    return (second, report);
                }
            }
            panic!("nothing is reported");
        }
    }

    #[test]
    fn a_server_that_sends_a_byte_now_and_then_has_stalled() {
        let mut fixture = http_fixture();
        fixture.play(BodyFraming::UntilClosed, false);
        let (second, report) = fixture.wait(|_, server| server.write_all(b"x").unwrap());
        assert_eq!(report, HttpBodyEnd::Broken(HttpBodyError::Stalled));
        assert_eq!(second, 6, "five seconds after the first look");
    }

    #[test]
    fn one_that_is_held_back_by_us_has_not() {
        let mut fixture = http_fixture();
        fixture.play(BodyFraming::UntilClosed, false);
        // Nothing decodes: with a full ring the pause is caused by this end.
        for second in 1..60 {
            if second < 12 {
                fixture.server.write_all(&[0; 16_384]).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            fixture.feed.tick(Instant::from_nanos(second * 1_000_000_000));
            assert!(fixture.reports.try_recv().is_err(), "at {second} s");
        }
        assert_eq!(fixture.feed.writer.room(), 0);
    }

    #[test]
    fn a_file_that_is_cut_off_has_broken_and_a_whole_one_has_ended() {
        let mut cut = http_fixture();
        cut.play(BodyFraming::Length(10), true);
        let (_, report) = cut.wait(|_, server| drop(server.shutdown(std::net::Shutdown::Both)));
        assert_eq!(report, HttpBodyEnd::Broken(HttpBodyError::Closed));
        let mut whole = http_fixture();
        whole.play(BodyFraming::Length(10), true);
        let (_, report) = whole.wait(|second, server| {
            if second == 1 {
                server.write_all(b"567890and more").unwrap();
            }
        });
        assert_eq!(report, HttpBodyEnd::Ended);
    }

    #[test]
    fn a_cold_standby_feed_disconnects_and_reports_when_it_is_needed() {
        let mut fixture = http_fixture();
        let (mut gate, standby) = standby_channel(Standby::Cold);
        let (teller, mut needs) = bounded(2);
        fixture.feed = fixture.feed.with_standby(standby, teller);
        assert_eq!(fixture.feed.tick(Instant::ZERO), NextPoll::Later);
        assert_eq!(needs.try_recv(), Ok(false));
        gate.set_request(StandbyRequest::Play);
        fixture.feed.tick(Instant::ZERO);
        assert_eq!(needs.try_recv(), Ok(true));
        fixture.play(BodyFraming::UntilClosed, false);
        assert_eq!(fixture.feed.tick(Instant::ZERO), NextPoll::Soon);
        gate.set_request(StandbyRequest::Close);
        assert_eq!(fixture.feed.tick(Instant::ZERO), NextPoll::Later);
        assert_eq!((needs.try_recv(), needs.try_recv()), (Ok(false), Err(TryRecvError::Empty)));
        assert_eq!(fixture.server.read(&mut [0; 8]).unwrap(), 0, "it has hung up");
        assert!(fixture.reports.try_recv().is_err(), "which is nobody's fault");
    }

    #[test]
    fn a_removed_station_ends_the_feed() {
        let mut fixture = http_fixture();
        fixture.play(BodyFraming::UntilClosed, false);
        assert_eq!(fixture.feed.tick(Instant::ZERO), NextPoll::Soon);
        fixture.reader = None;
        assert_eq!(fixture.feed.tick(Instant::ZERO), NextPoll::Never);
    }
}

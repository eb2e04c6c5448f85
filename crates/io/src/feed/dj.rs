//! A live source client's stream (DJ): the body of a request whose head has been read elsewhere.
//!
//! A mount accepts one DJ at a time. The code that reads the request head acquires the mount,
//! answers, and hands the socket over. From then on the feeder polls it on the reactor's tick, and
//! the bytes go to the codec pool ([`super::StreamReader`]). The mount is released when the DJ is
//! gone for any reason, because the permit is a counted reference that moves with the socket.

use core::fmt;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aulos_core::{Instant, Span};
use aulos_engine::standby::{StandbyHandle, StandbyRequest};
use aulos_proto::http::{BodyDecoder, BodyFraming};
use aulos_proto::packets::FormatHint;
use aulos_rt::channel::{Receiver, Sender, bounded};
use aulos_rt::{LatestPublisher, LatestReader};

use super::stream::{RadioStreamInfo, StreamError, StreamState, StreamWriter};
use super::{Feeder, NextPoll};
use crate::reactor::MediaStream;

/// A stream that begins.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is what a seat takes")]
pub struct DjStream {
    /// Its connection.
    pub wire: MediaStream,
    /// Bytes of the body that have been read already.
    pub unread: Vec<u8>,
    /// The framing of the body.
    pub framing: BodyFraming,
    /// The format according to the request.
    pub hint: FormatHint,
}

/// A mount, which accepts one DJ at a time.
#[derive(Debug)]
pub struct DjMountSlot {
    occupied: Arc<AtomicBool>,
    /// The present DJ is to be disconnected.
    is_cut: Arc<AtomicBool>,
    hand_over: Sender<AdmittedDj>,
}

/// The permit to use the mount.
#[derive(Debug)]
pub struct DjMountPermit {
    place: MountOccupancy,
    hand_over: Sender<AdmittedDj>,
}

/// The mount is in use while this exists.
#[derive(Debug)]
struct MountOccupancy(Arc<AtomicBool>);

impl Drop for MountOccupancy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct AdmittedDj {
    dj: DjStream,
    _place: MountOccupancy,
}

impl DjMountSlot {
    /// Acquires the mount if it is free.
    #[must_use]
    pub fn try_acquire(&self) -> Option<DjMountPermit> {
        let free = !self.occupied.swap(true, Ordering::AcqRel);
        if free {
            self.is_cut.store(false, Ordering::Release);
        }
        free.then(|| DjMountPermit {
            place: MountOccupancy(Arc::clone(&self.occupied)),
            hand_over: self.hand_over.clone(),
        })
    }

    /// Disconnects the DJ with the next poll of its feeder; false if the mount is not in use.
    pub fn disconnect(&self) -> bool {
        let is_occupied = self.is_occupied();
        if is_occupied {
            self.is_cut.store(true, Ordering::Release);
        }
        is_occupied
    }

    /// Whether the mount is in use, from the moment of acquisition.
    #[must_use]
    pub fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire)
    }
}

impl DjMountPermit {
    /// Starts the stream. If the mount is gone by now, the connection is closed.
    pub fn start(self, dj: DjStream) {
        // The channel has room for one, and there is only one permit.
        drop(self.hand_over.try_send(AdmittedDj { dj, _place: self.place }));
    }
}

/// The status of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DjFeederState {
    /// Whether a DJ is streaming.
    pub on_air: bool,
    /// The format of the stream, once it is known.
    pub info: Option<RadioStreamInfo>,
    /// Bytes of audio received.
    pub bytes: u64,
    /// How the last stream ended.
    pub last_end: Option<DjEndReason>,
}

/// How a DJ's stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DjEndReason {
    /// It ended regularly.
    Ended,
    /// The connection broke.
    Broken,
    /// No playable audio arrived for [`DJ_STALL_TIMEOUT`].
    Stalled,
    /// The stream cannot be played.
    Unplayable(StreamError),
    /// Its chunked encoding is invalid.
    InvalidChunks,
    /// A controller disconnected it.
    Disconnected,
}

impl fmt::Display for DjEndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the last live source ended its stream"),
            Self::Broken => f.write_str("the connection of the last live source broke"),
            Self::Stalled => {
                write!(
                    f,
                    "the last live source sent no audio for {} s",
                    DJ_STALL_TIMEOUT.as_millis() / 1_000
                )
            }
            Self::Unplayable(why) => {
                write!(f, "the stream of the last live source cannot be played: {why}")
            }
            Self::Disconnected => f.write_str("the last live source was disconnected by a call"),
            Self::InvalidChunks => {
                f.write_str("the last live source sent invalid chunked encoding")
            }
        }
    }
}

/// Counters over all mounts.
#[derive(Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "counters")]
pub struct DjCounters {
    /// Streams that were started.
    pub started: AtomicU64,
    /// Streams whose connection broke.
    pub broken: AtomicU64,
    /// Streams without playable audio for too long.
    pub stalled: AtomicU64,
    /// Streams that could not be played.
    pub unplayable: AtomicU64,
}

/// Reads the bytes of a DJ's stream.
#[derive(Debug)]
pub struct DjFeeder {
    inbox: Receiver<AdmittedDj>,
    writer: StreamWriter,
    stream: LatestReader<StreamState>,
    state: LatestPublisher<DjFeederState>,
    last_state: DjFeederState,
    counters: Arc<DjCounters>,
    /// The stand-by control of the station; without one the source is always needed.
    standby: Option<StandbyHandle>,
    is_cut: Arc<AtomicBool>,
    /// Bodies so far, as the decoder counts them.
    bodies: u64,
    on_air: Option<ActiveDj>,
    scratch: Vec<u8>,
}

/// A DJ who is streaming.
#[derive(Debug)]
struct ActiveDj {
    admitted: AdmittedDj,
    body: BodyDecoder,
    /// The decoder has started this body.
    is_decoding: bool,
    /// The number of decoded packets at the last progress, and its time.
    packets: u64,
    last_decoded_at: Instant,
}

impl DjFeeder {
    /// A mount, its feeder for a reactor, and a reader of its status.
    #[must_use]
    pub fn new(
        writer: StreamWriter,
        stream: LatestReader<StreamState>,
        counters: Arc<DjCounters>,
    ) -> (DjMountSlot, Self, LatestReader<DjFeederState>) {
        let (hand_over, inbox) = bounded(1);
        let (publisher, state) = aulos_rt::latest(DjFeederState::default());
        let is_cut = Arc::<AtomicBool>::default();
        let mount =
            DjMountSlot { occupied: Arc::default(), is_cut: Arc::clone(&is_cut), hand_over };
        let feeder = Self {
            inbox,
            writer,
            stream,
            state: publisher,
            last_state: DjFeederState::default(),
            counters,
            standby: None,
            is_cut,
            bodies: 0,
            on_air: None,
            scratch: vec![0; READ_BYTES],
        };
        (mount, feeder, state)
    }

    /// Connects it to the station's stand-by control. A DJ cannot be summoned, so the mount stays
    /// open, and audio is not decoded while it is not needed.
    #[must_use]
    pub fn with_standby(mut self, standby: StandbyHandle) -> Self {
        self.standby = Some(standby);
        self
    }

    fn accept(&mut self, now: Instant) {
        let Ok(seated) = self.inbox.try_recv() else { return };
        count(&self.counters.started);
        let body = BodyDecoder::new(seated.dj.framing, None);
        let packets = self.stream.read().counts.packets;
        self.last_state = DjFeederState { on_air: true, ..DjFeederState::default() };
        self.on_air = Some(ActiveDj {
            admitted: seated,
            body,
            is_decoding: false,
            packets,
            last_decoded_at: now,
        });
    }

    /// Returns the end reason when the stream has ended.
    fn poll_stream(&mut self, now: Instant) -> Option<DjEndReason> {
        let on_air = self.on_air.as_mut()?;
        if self.is_cut.load(Ordering::Acquire) {
            return Some(DjEndReason::Disconnected);
        }
        if !on_air.is_decoding {
            if !self.writer.begin(on_air.admitted.dj.hint) {
                return None;
            }
            on_air.is_decoding = true;
            self.bodies += 1;
        }
        let stream = *self.stream.read();
        if stream.counts.packets != on_air.packets {
            (on_air.packets, on_air.last_decoded_at) = (stream.counts.packets, now);
        }
        if stream.body == self.bodies {
            self.last_state.info = stream.info;
            if let Some(error) = stream.error {
                return Some(DjEndReason::Unplayable(error));
            }
        }
        for _ in 0..MAX_READS {
            match on_air.read(&mut self.writer, &mut self.scratch, &mut self.last_state.bytes) {
                Ok(ReadStatus::Some) => {}
                Ok(ReadStatus::Empty) => break,
                Ok(ReadStatus::End) => return Some(DjEndReason::Ended),
                Err(left) => return Some(left),
            }
        }
        (now.since(on_air.last_decoded_at) > DJ_STALL_TIMEOUT).then_some(DjEndReason::Stalled)
    }

    fn end(&mut self, left: DjEndReason) -> bool {
        // The end is marked after the last byte; without room for the mark the next tick tries
        // again.
        if left == DjEndReason::Ended && !self.writer.end() {
            return false;
        }
        if let Some(mut on_air) = self.on_air.take()
            && left == DjEndReason::Ended
        {
            // A client that has closed already misses the response.
            drop(on_air.admitted.dj.wire.write(OK_RESPONSE));
        }
        match left {
            DjEndReason::Ended | DjEndReason::Disconnected => {}
            DjEndReason::Broken | DjEndReason::InvalidChunks => count(&self.counters.broken),
            DjEndReason::Stalled => count(&self.counters.stalled),
            DjEndReason::Unplayable(_) => count(&self.counters.unplayable),
        }
        self.last_state.on_air = false;
        self.last_state.last_end = Some(left);
        true
    }
}

impl Feeder for DjFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.writer.is_abandoned() {
            return NextPoll::Never;
        }
        if let Some(standby) = &mut self.standby {
            self.writer.set_parse_only(standby.request() != StandbyRequest::Play);
        }
        if self.on_air.is_none() {
            self.accept(now);
        }
        if let Some(left) = self.poll_stream(now) {
            self.end(left);
        }
        self.state.publish(self.last_state);
        if self.on_air.is_some() { NextPoll::Soon } else { NextPoll::Later }
    }
}

/// The result of a read.
enum ReadStatus {
    Some,
    Empty,
    End,
}

impl ActiveDj {
    fn read(
        &mut self,
        writer: &mut StreamWriter,
        scratch: &mut [u8],
        bytes: &mut u64,
    ) -> Result<ReadStatus, DjEndReason> {
        if self.body.is_finished() {
            return Ok(ReadStatus::End);
        }
        // The decoded body is never longer than its encoding.
        let room = writer.room().min(scratch.len());
        if room == 0 {
            return Ok(ReadStatus::Empty);
        }
        let DjStream { wire, unread, framing, .. } = &mut self.admitted.dj;
        let count = if unread.is_empty() {
            match wire.read(&mut scratch[..room]) {
                // Closing is the only end of such a body.
                Ok(0) if *framing == BodyFraming::UntilClosed => return Ok(ReadStatus::End),
                Ok(0) => return Err(DjEndReason::Broken),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(ReadStatus::Empty);
                }
                // Most programs close without a TLS close_notify; and a program that closes without
                // reading the response causes a reset.
                Err(error) if *framing == BodyFraming::UntilClosed && is_end(error.kind()) => {
                    return Ok(ReadStatus::End);
                }
                Err(_) => return Err(DjEndReason::Broken),
            }
        } else {
            let count = room.min(unread.len());
            scratch[..count].copy_from_slice(&unread[..count]);
            unread.drain(..count);
            count
        };
        let sound = |sound: &[u8]| *bytes += writer.write(sound) as u64;
        self.body.push(&scratch[..count], sound, drop).map_err(|_| DjEndReason::InvalidChunks)?;
        Ok(ReadStatus::Some)
    }
}

const fn is_end(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A DJ without decodable audio for this long is dropped: ten seconds, as in Icecast. Bytes alone
/// do not count, so a client that sends a byte per second is dropped as well.
pub const DJ_STALL_TIMEOUT: Span = Span::from_secs(10);

const READ_BYTES: usize = 8 * 1_024;

/// Reads per tick: 3 MB per second, more than any codec needs.
const MAX_READS: usize = 4;

const OK_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use aulos_engine::standby::{Standby, standby_channel};

    use super::super::testing::{StreamParts, StreamSource};
    use super::*;
    use crate::reactor::{AddressPermit, MediaSocket};
    use crate::{Job as _, SystemClock};

    struct DjFixture {
        mount: DjMountSlot,
        feeder: DjFeeder,
        state: LatestReader<DjFeederState>,
        parts: (StreamSource, aulos_rt::ring::Consumer<aulos_engine::source::SourceItem>),
        now: Instant,
    }

    impl DjFixture {
        fn new() -> Self {
            let StreamParts { writer, source, items, state, .. } = StreamParts::new();
            let (mount, feeder, state) = DjFeeder::new(writer, state, Arc::default());
            Self { mount, feeder, state, parts: (source, items), now: SystemClock::now() }
        }

        /// A DJ who is streaming, and the client's end of the connection.
        fn welcome(&mut self, framing: BodyFraming, unread: &[u8]) -> TcpStream {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (ours, address) = listener.accept().unwrap();
            let wire = MediaStream::new(MediaSocket::new(ours, address, AddressPermit::default()))
                .unwrap();
            let dj = DjStream { wire, unread: unread.to_vec(), framing, hint: FormatHint::None };
            self.mount.try_acquire().unwrap().start(dj);
            self.tick();
            theirs
        }

        fn tick(&mut self) -> DjFeederState {
            self.feeder.tick(self.now);
            let _later = self.parts.0.step();
            *self.state.read()
        }

        fn tick_until(&mut self, what: impl Fn(&DjFeederState) -> bool) -> DjFeederState {
            for _ in 0..10_000 {
                let state = self.tick();
                if what(&state) {
                    return state;
                }
                // Loopback delivery is asynchronous.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            panic!("it did not come to that: {:?}", self.state.read());
        }

        fn frames(&mut self) -> u64 {
            use aulos_engine::source::SourceItem;
            let mut frames = 0;
            while let Some(item) = self.parts.1.pop() {
                if let SourceItem::Block(block) = item {
                    frames += block.frames().0;
                }
            }
            frames
        }
    }

    fn wave(frames: i16) -> Vec<u8> {
        let mut wave =
            b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\
            \x02\0\x10\0data\xff\xff\xff\xff"
                .to_vec();
        wave.extend((0..frames).flat_map(|frame| frame.to_le_bytes()));
        wave
    }

    #[test]
    fn a_body_is_decoded_to_its_last_frame_and_the_seat_is_free_again() {
        let mut fixture = DjFixture::new();
        let wave = wave(10_000);
        let (first, rest) = wave.split_at(100);
        let mut dj = fixture.welcome(BodyFraming::UntilClosed, first);
        assert!(fixture.mount.try_acquire().is_none());
        dj.write_all(rest).unwrap();
        dj.shutdown(std::net::Shutdown::Write).unwrap();
        let state = fixture.tick_until(|state| !state.on_air);
        assert_eq!((state.last_end, state.bytes), (Some(DjEndReason::Ended), wave.len() as u64));
        for _ in 0..10 {
            fixture.tick();
        }
        assert_eq!(fixture.frames(), 10_000);
        assert!(fixture.mount.try_acquire().is_some());
    }

    #[test]
    fn a_standby_live_source_stays_connected_undecoded_and_plays_when_needed() {
        let mut fixture = DjFixture::new();
        let (mut gate, standby) = standby_channel(Standby::Cold);
        fixture.feeder = fixture.feeder.with_standby(standby);
        let wave = wave(30_000);
        let mut dj = fixture.welcome(BodyFraming::UntilClosed, &wave[..1_000]);
        dj.write_all(&wave[1_000..40_000]).unwrap();
        fixture.tick_until(|state| state.bytes == 40_000);
        let first = fixture.frames();
        assert!(first < 5_000, "{first} frames, which is one packet");
        // The client sends, so it has not stalled.
        fixture.now += DJ_STALL_TIMEOUT;
        dj.write_all(&wave[40_000..44_000]).unwrap();
        assert!(fixture.tick_until(|state| state.bytes == 44_000).on_air);
        for _ in 0..10 {
            fixture.tick();
        }
        assert_eq!(fixture.frames(), 0);
        gate.set_request(StandbyRequest::Play);
        fixture.tick();
        dj.write_all(&wave[44_000..]).unwrap();
        drop(dj);
        fixture.tick_until(|state| !state.on_air);
        for _ in 0..10 {
            fixture.tick();
        }
        let frames = fixture.frames();
        let sent = u64::try_from((wave.len() - 44_000) / 2).unwrap();
        assert!((sent - 5_000..=sent).contains(&frames), "{frames} of {sent}");
    }

    #[test]
    fn chunks_end_at_their_size_and_a_truncated_one_is_no_end() {
        let mut fixture = DjFixture::new();
        let wave = wave(1_000);
        let chunk =
            |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let mut dj = fixture.welcome(BodyFraming::Chunked, &chunk(&wave));
        dj.write_all(b"0\r\n\r\n").unwrap();
        let state = fixture.tick_until(|state| !state.on_air);
        assert_eq!(state.last_end, Some(DjEndReason::Ended));
        let dj = fixture.welcome(BodyFraming::Chunked, &chunk(&wave));
        drop(dj);
        assert_eq!(fixture.tick_until(|state| !state.on_air).last_end, Some(DjEndReason::Broken));
        fixture.welcome(BodyFraming::Chunked, b"these are no chunks");
        assert_eq!(
            fixture.tick_until(|state| !state.on_air).last_end,
            Some(DjEndReason::InvalidChunks)
        );
    }

    #[test]
    fn a_live_source_without_audio_is_dropped_and_can_reconnect_at_once() {
        let mut fixture = DjFixture::new();
        let _quiet = fixture.welcome(BodyFraming::UntilClosed, b"");
        fixture.now += DJ_STALL_TIMEOUT;
        assert!(fixture.tick().on_air);
        fixture.now += Span::from_millis(1);
        assert_eq!(fixture.tick().last_end, Some(DjEndReason::Stalled));
        let wave = wave(5_000);
        let _loud = fixture.welcome(BodyFraming::UntilClosed, &wave);
        let heard = fixture.tick_until(|state| state.bytes == wave.len() as u64);
        assert!(heard.on_air && heard.last_end.is_none());
    }

    #[test]
    fn a_byte_a_second_is_no_sound() {
        let mut fixture = DjFixture::new();
        let mut slow = fixture.welcome(BodyFraming::UntilClosed, b"");
        let mut last = DjFeederState::default();
        for second in 0..12_u64 {
            // The connection may have been cut already.
            drop(slow.write(b"x"));
            fixture.now += Span::from_secs(1);
            let sent = second + 1;
            last = fixture.tick_until(|state| !state.on_air || state.bytes >= sent);
        }
        assert_eq!(last.last_end, Some(DjEndReason::Stalled));
    }

    #[test]
    fn invalid_data_is_recognized_and_disconnected() {
        let mut fixture = DjFixture::new();
        let mut dj = fixture.welcome(BodyFraming::UntilClosed, b"<!DOCTYPE html><html>");
        let page = b"<p>this is no sound</p>".repeat(10_000);
        let sender = std::thread::spawn(move || drop(dj.write_all(&page)));
        let state = fixture.tick_until(|state| !state.on_air);
        assert!(matches!(state.last_end, Some(DjEndReason::Unplayable(_))), "{state:?}");
        sender.join().unwrap();
        assert!(fixture.mount.try_acquire().is_some());
    }
}

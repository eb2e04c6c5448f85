//! A DJ's stream: the body of a request that somebody else has read the head of.
//!
//! A mount has one seat. Whoever reads heads takes the seat, answers, and hands the socket over; from
//! then on it is looked at here, on the reactor's tick, and its bytes go to the codec pool
//! ([`super::StreamSource`]). The seat is free again as soon as the DJ is gone, for whatever reason:
//! it is a counted reference that goes where the socket goes.

use core::fmt;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aulos_core::{Instant, Span};
use aulos_engine::standby::{Keeper, Wish};
use aulos_proto::http::{Body, Framing};
use aulos_proto::packets::Hint;
use aulos_rt::channel::{Receiver, Sender, bounded};
use aulos_rt::{Publisher, Reader};

use super::stream::{StreamState, StreamWriter};
use super::{Feeder, Next};
use crate::decode::{StreamError, StreamInfo};
use crate::reactor::MediaWire;

/// A stream that begins.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is what a seat takes")]
pub struct Dj {
    /// Where it comes from.
    pub wire: MediaWire,
    /// What has been read of it already.
    pub unread: Vec<u8>,
    /// How long it is.
    pub framing: Framing,
    /// What it is said to be.
    pub hint: Hint,
}

/// Where DJs go on air, one at a time.
#[derive(Debug)]
pub struct DjMount {
    taken: Arc<AtomicBool>,
    hand_over: Sender<Seated>,
}

/// The right to be the one.
#[derive(Debug)]
pub struct DjSeat {
    place: Place,
    hand_over: Sender<Seated>,
}

/// Taken for as long as it is somewhere.
#[derive(Debug)]
struct Place(Arc<AtomicBool>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct Seated {
    dj: Dj,
    _place: Place,
}

impl DjMount {
    /// The seat, if it is free.
    #[must_use]
    pub fn take(&self) -> Option<DjSeat> {
        let free = !self.taken.swap(true, Ordering::AcqRel);
        free.then(|| DjSeat {
            place: Place(Arc::clone(&self.taken)),
            hand_over: self.hand_over.clone(),
        })
    }

    /// Somebody has the seat, from the moment in which he was let in.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }
}

impl DjSeat {
    /// Goes on air. A mount that is gone by now hangs up.
    pub fn sit(self, dj: Dj) {
        // Who has the seat is the only one: there is a place.
        drop(self.hand_over.try_send(Seated { dj, _place: self.place }));
    }
}

/// How a mount does, for people to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DjState {
    /// Somebody sends.
    pub on_air: bool,
    /// What he sends, once that is known.
    pub info: Option<StreamInfo>,
    /// Bytes of sound that he has sent.
    pub bytes: u64,
    /// How the last one left.
    pub left: Option<Left>,
}

/// How a DJ left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// He was done.
    Ended,
    /// His connection broke.
    Broken,
    /// Nothing that could be played came for [`STALL`].
    Stalled,
    /// What he sent cannot be played.
    Unplayable(StreamError),
    /// He sent chunks that are none.
    Chunks,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the last DJ has ended"),
            Self::Broken => f.write_str("the connection of the last DJ broke"),
            Self::Stalled => {
                write!(f, "the last DJ sent no sound for {} s", STALL.as_millis() / 1_000)
            }
            Self::Unplayable(why) => write!(f, "what the last DJ sent cannot be played: {why}"),
            Self::Chunks => f.write_str("the last DJ sent chunks that are none"),
        }
    }
}

/// What happened at all mounts of a house.
#[derive(Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "counters")]
pub struct DjCounters {
    /// DJs who went on air.
    pub seated: AtomicU64,
    /// Those whose connection broke.
    pub broken: AtomicU64,
    /// Those who sent nothing that could be played for too long.
    pub stalled: AtomicU64,
    /// Those who sent what cannot be played.
    pub unplayable: AtomicU64,
}

/// Takes a DJ's bytes off his socket.
#[derive(Debug)]
pub struct DjFeeder {
    inbox: Receiver<Seated>,
    writer: StreamWriter,
    stream: Reader<StreamState>,
    state: Publisher<DjState>,
    told: DjState,
    counters: Arc<DjCounters>,
    /// The line to the station; without one it always wants sound.
    keeper: Option<Keeper>,
    /// Bodies so far, as the decoder counts them.
    bodies: u64,
    on_air: Option<OnAir>,
    scratch: Vec<u8>,
}

/// Somebody sends.
#[derive(Debug)]
struct OnAir {
    seated: Seated,
    body: Body,
    /// The decoder knows of him.
    begun: bool,
    /// Packets that had been decoded when something last was, and when that was.
    packets: u64,
    heard_at: Instant,
}

impl DjFeeder {
    /// A mount, its feeder for a reactor, and how it does.
    #[must_use]
    pub fn new(
        writer: StreamWriter,
        stream: Reader<StreamState>,
        counters: Arc<DjCounters>,
    ) -> (DjMount, Self, Reader<DjState>) {
        let (hand_over, inbox) = bounded(1);
        let (publisher, state) = aulos_rt::latest(DjState::default());
        let mount = DjMount { taken: Arc::default(), hand_over };
        let feeder = Self {
            inbox,
            writer,
            stream,
            state: publisher,
            told: DjState::default(),
            counters,
            keeper: None,
            bodies: 0,
            on_air: None,
            scratch: vec![0; READ_BYTES],
        };
        (mount, feeder, state)
    }

    /// Hears from the station whether it is needed. Nobody can be made to come when it is, so the
    /// place stays open, and what a DJ sends meanwhile is not decoded.
    #[must_use]
    pub fn kept(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    fn seat(&mut self, now: Instant) {
        let Ok(seated) = self.inbox.try_recv() else { return };
        count(&self.counters.seated);
        let body = Body::new(seated.dj.framing, None);
        let packets = self.stream.read().counts.packets;
        self.told = DjState { on_air: true, ..DjState::default() };
        self.on_air = Some(OnAir { seated, body, begun: false, packets, heard_at: now });
    }

    /// How he left, if he has.
    fn listen(&mut self, now: Instant) -> Option<Left> {
        let on_air = self.on_air.as_mut()?;
        if !on_air.begun {
            if !self.writer.begin(on_air.seated.dj.hint) {
                return None;
            }
            on_air.begun = true;
            self.bodies += 1;
        }
        let stream = *self.stream.read();
        if stream.counts.packets != on_air.packets {
            (on_air.packets, on_air.heard_at) = (stream.counts.packets, now);
        }
        if stream.body == self.bodies {
            self.told.info = stream.info;
            if let Some(error) = stream.error {
                return Some(Left::Unplayable(error));
            }
        }
        for _ in 0..MAX_READS {
            match on_air.read(&mut self.writer, &mut self.scratch, &mut self.told.bytes) {
                Ok(Read::Some) => {}
                Ok(Read::Nothing) => break,
                Ok(Read::Over) => return Some(Left::Ended),
                Err(left) => return Some(left),
            }
        }
        (now.since(on_air.heard_at) > STALL).then_some(Left::Stalled)
    }

    fn leave(&mut self, left: Left) -> bool {
        // His end is told behind his last byte; without room for it we come again.
        if left == Left::Ended && !self.writer.end() {
            return false;
        }
        if let Some(mut on_air) = self.on_air.take()
            && left == Left::Ended
        {
            // Who has closed already does not hear it.
            drop(on_air.seated.dj.wire.write(THANKS));
        }
        match left {
            Left::Ended => {}
            Left::Broken | Left::Chunks => count(&self.counters.broken),
            Left::Stalled => count(&self.counters.stalled),
            Left::Unplayable(_) => count(&self.counters.unplayable),
        }
        self.told.on_air = false;
        self.told.left = Some(left);
        true
    }
}

impl Feeder for DjFeeder {
    fn tick(&mut self, now: Instant) -> Next {
        if self.writer.is_abandoned() {
            return Next::Never;
        }
        if let Some(keeper) = &mut self.keeper {
            self.writer.skim(keeper.wish() != Wish::Play);
        }
        if self.on_air.is_none() {
            self.seat(now);
        }
        if let Some(left) = self.listen(now) {
            self.leave(left);
        }
        self.state.publish(self.told);
        if self.on_air.is_some() { Next::Soon } else { Next::Later }
    }
}

/// How a read went.
enum Read {
    Some,
    Nothing,
    Over,
}

impl OnAir {
    fn read(
        &mut self,
        writer: &mut StreamWriter,
        scratch: &mut [u8],
        bytes: &mut u64,
    ) -> Result<Read, Left> {
        if self.body.is_over() {
            return Ok(Read::Over);
        }
        // A body is never longer than what it is made of.
        let room = writer.room().min(scratch.len());
        if room == 0 {
            return Ok(Read::Nothing);
        }
        let Dj { wire, unread, framing, .. } = &mut self.seated.dj;
        let count = if unread.is_empty() {
            match wire.read(&mut scratch[..room]) {
                // It has no other end than this.
                Ok(0) if *framing == Framing::UntilClosed => return Ok(Read::Over),
                Ok(0) => return Err(Left::Broken),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Read::Nothing);
                }
                // TLS without a goodbye, which most programs leave out; or a program that closed
                // without having read our answer, which the kernel makes a reset of.
                Err(error) if *framing == Framing::UntilClosed && is_end(error.kind()) => {
                    return Ok(Read::Over);
                }
                Err(_) => return Err(Left::Broken),
            }
        } else {
            let count = room.min(unread.len());
            scratch[..count].copy_from_slice(&unread[..count]);
            unread.drain(..count);
            count
        };
        let sound = |sound: &[u8]| *bytes += writer.write(sound) as u64;
        self.body.push(&scratch[..count], sound, drop).map_err(|_| Left::Chunks)?;
        Ok(Read::Some)
    }
}

const fn is_end(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A DJ from whom no packet of sound has come for so long is dropped: ten seconds, as Icecast has
/// it. Bytes alone do not count, so one who sends a byte a second is dropped as well.
pub const STALL: Span = Span::from_secs(10);

const READ_BYTES: usize = 8 * 1_024;

/// Reads in one tick: 3 MB a second, more than any codec makes.
const MAX_READS: usize = 4;

const THANKS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use aulos_engine::standby::{Standby, gate};

    use super::super::StreamParts;
    use super::*;
    use crate::reactor::{AddressPermit, MediaSocket};
    use crate::{Job as _, SystemClock};

    struct Studio {
        mount: DjMount,
        feeder: DjFeeder,
        state: Reader<DjState>,
        parts: (crate::feed::StreamSource, aulos_rt::ring::Consumer<aulos_engine::source::Item>),
        now: Instant,
    }

    impl Studio {
        fn new() -> Self {
            let StreamParts { writer, source, items, state, .. } = StreamParts::new();
            let (mount, feeder, state) = DjFeeder::new(writer, state, Arc::default());
            Self { mount, feeder, state, parts: (source, items), now: SystemClock::now() }
        }

        /// A DJ who is on air, and his end of the line.
        fn welcome(&mut self, framing: Framing, unread: &[u8]) -> TcpStream {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (ours, address) = listener.accept().unwrap();
            let wire =
                MediaWire::new(MediaSocket::new(ours, address, AddressPermit::default())).unwrap();
            let dj = Dj { wire, unread: unread.to_vec(), framing, hint: Hint::None };
            self.mount.take().unwrap().sit(dj);
            self.tick();
            theirs
        }

        fn tick(&mut self) -> DjState {
            self.feeder.tick(self.now);
            let _later = self.parts.0.step();
            *self.state.read()
        }

        fn tick_until(&mut self, what: impl Fn(&DjState) -> bool) -> DjState {
            for _ in 0..10_000 {
                let state = self.tick();
                if what(&state) {
                    return state;
                }
                // The other end is the kernel's.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            panic!("it did not come to that: {:?}", self.state.read());
        }

        fn frames(&mut self) -> u64 {
            use aulos_engine::source::Item;
            let mut frames = 0;
            while let Some(item) = self.parts.1.pop() {
                if let Item::Block(block) = item {
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
        let mut studio = Studio::new();
        let wave = wave(10_000);
        let (first, rest) = wave.split_at(100);
        let mut dj = studio.welcome(Framing::UntilClosed, first);
        assert!(studio.mount.take().is_none());
        dj.write_all(rest).unwrap();
        dj.shutdown(std::net::Shutdown::Write).unwrap();
        let state = studio.tick_until(|state| !state.on_air);
        assert_eq!((state.left, state.bytes), (Some(Left::Ended), wave.len() as u64));
        for _ in 0..10 {
            studio.tick();
        }
        assert_eq!(studio.frames(), 10_000);
        assert!(studio.mount.take().is_some());
    }

    #[test]
    fn a_dj_who_is_not_needed_stays_is_not_decoded_and_is_heard_when_he_is() {
        let mut studio = Studio::new();
        let (mut gate, keeper) = gate(Standby::Cold);
        studio.feeder = studio.feeder.kept(keeper);
        let wave = wave(30_000);
        let mut dj = studio.welcome(Framing::UntilClosed, &wave[..1_000]);
        dj.write_all(&wave[1_000..40_000]).unwrap();
        studio.tick_until(|state| state.bytes == 40_000);
        let first = studio.frames();
        assert!(first < 5_000, "{first} frames, which is one packet");
        // He sends, so he has not stalled.
        studio.now += STALL;
        dj.write_all(&wave[40_000..44_000]).unwrap();
        assert!(studio.tick_until(|state| state.bytes == 44_000).on_air);
        for _ in 0..10 {
            studio.tick();
        }
        assert_eq!(studio.frames(), 0);
        gate.wish(Wish::Play);
        studio.tick();
        dj.write_all(&wave[44_000..]).unwrap();
        drop(dj);
        studio.tick_until(|state| !state.on_air);
        for _ in 0..10 {
            studio.tick();
        }
        let frames = studio.frames();
        let sent = u64::try_from((wave.len() - 44_000) / 2).unwrap();
        assert!((sent - 5_000..=sent).contains(&frames), "{frames} of {sent}");
    }

    #[test]
    fn chunks_end_where_they_say_and_a_torn_one_is_no_end() {
        let mut studio = Studio::new();
        let wave = wave(1_000);
        let chunk =
            |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let mut dj = studio.welcome(Framing::Chunked, &chunk(&wave));
        dj.write_all(b"0\r\n\r\n").unwrap();
        let state = studio.tick_until(|state| !state.on_air);
        assert_eq!(state.left, Some(Left::Ended));
        let dj = studio.welcome(Framing::Chunked, &chunk(&wave));
        drop(dj);
        assert_eq!(studio.tick_until(|state| !state.on_air).left, Some(Left::Broken));
        studio.welcome(Framing::Chunked, b"these are no chunks");
        assert_eq!(studio.tick_until(|state| !state.on_air).left, Some(Left::Chunks));
    }

    #[test]
    fn who_sends_no_sound_is_dropped_and_may_come_back_at_once() {
        let mut studio = Studio::new();
        let _quiet = studio.welcome(Framing::UntilClosed, b"");
        studio.now += STALL;
        assert!(studio.tick().on_air);
        studio.now += Span::from_millis(1);
        assert_eq!(studio.tick().left, Some(Left::Stalled));
        let wave = wave(5_000);
        let _loud = studio.welcome(Framing::UntilClosed, &wave);
        let heard = studio.tick_until(|state| state.bytes == wave.len() as u64);
        assert!(heard.on_air && heard.left.is_none());
    }

    #[test]
    fn a_byte_a_second_is_no_sound() {
        let mut studio = Studio::new();
        let mut slow = studio.welcome(Framing::UntilClosed, b"");
        let mut last = DjState::default();
        for second in 0..12_u64 {
            // He may have been cut already.
            drop(slow.write(b"x"));
            studio.now += Span::from_secs(1);
            let sent = second + 1;
            last = studio.tick_until(|state| !state.on_air || state.bytes >= sent);
        }
        assert_eq!(last.left, Some(Left::Stalled));
    }

    #[test]
    fn garbage_is_recognised_and_cut() {
        let mut studio = Studio::new();
        let mut dj = studio.welcome(Framing::UntilClosed, b"<!DOCTYPE html><html>");
        let page = b"<p>this is no sound</p>".repeat(10_000);
        let sender = std::thread::spawn(move || drop(dj.write_all(&page)));
        let state = studio.tick_until(|state| !state.on_air);
        assert!(matches!(state.left, Some(Left::Unplayable(_))), "{state:?}");
        sender.join().unwrap();
        assert!(studio.mount.take().is_some());
    }
}

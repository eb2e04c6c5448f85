//! Converts a byte stream to blocks of whole frames.

use aulos_core::{Backoff, Block, Frames, Instant, MediaTime, ReconnectBackoff, SampleSpec, Span};
use aulos_dsp::{COMPARED_FRAMES, FrameStart, compare_frame_starts, convert};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{LinkState, StandbyHandle, StandbyRequest};
use aulos_proto::packets::{EncodedFormat, RawOpening, classify_raw_opening};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, Pool, Pooled};

use super::FeedState;
use crate::RetryTime;

/// Converts a byte stream to blocks for a station.
///
/// Bytes are accepted only as far as there is room, so a sender without a clock of its own is held
/// back by its pipe or socket, and nothing is lost.
///
/// A sender whose first bytes are those of an encoded file is refused: its bytes are dropped.
#[derive(Debug)]
pub struct ByteFeed {
    spec: SampleSpec,
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    state: LatestPublisher<FeedState>,
    reported: FeedState,
    open: Option<Pooled<Block>>,
    /// The beginning of an incomplete frame, and what follows while it is suspect.
    partial_frame: Vec<u8>,
    /// How many bytes before a pause may be the rest of a sender that broke off within a frame, so
    /// that frames begin so many bytes later; 0 if there is no doubt.
    suspect_bytes: usize,
    pushed_at: Instant,
    position: MediaTime,
    in_stream: bool,
    opening: SenderOpening,
    /// The first bytes of a sender, while they do not show yet whether they are samples.
    held: Vec<u8>,
    /// The last sender sent this instead of samples.
    refused: Option<EncodedFormat>,
    /// The stand-by control of the station; without one the source is always needed.
    standby: Option<StandbyHandle>,
    demand: StandbyRequest,
    retry: RetryTime,
    seed: u64,
}

/// What is known of the current sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderOpening {
    /// Not enough to decide.
    Undecided,
    /// It sends samples.
    Samples,
    /// It sends something else.
    Refused,
}

impl ByteFeed {
    /// A feed of bytes in `spec`, and the consumer for the station. `seed` determines the random
    /// pauses between retries and should differ for each feed.
    #[must_use]
    pub fn new(
        spec: SampleSpec,
        state: LatestPublisher<FeedState>,
        seed: u64,
    ) -> (Self, Consumer<SourceItem>) {
        // One more slot than there are blocks, so that the end mark always fits.
        let (items, consumer) = ring(FEED_BLOCKS + 1);
        let pool =
            Pool::new(FEED_BLOCKS, || Block::with_capacity(spec.rate, spec.layout, BLOCK_SAMPLES));
        let feed = Self {
            spec,
            pool,
            items,
            state,
            reported: FeedState::Waiting,
            open: None,
            partial_frame: Vec::with_capacity(spec.frame_bytes()),
            suspect_bytes: 0,
            pushed_at: Instant::ZERO,
            position: MediaTime::ZERO,
            in_stream: false,
            opening: SenderOpening::Undecided,
            held: Vec::new(),
            refused: None,
            standby: None,
            demand: StandbyRequest::Play,
            retry: RetryTime::default(),
            seed,
        };
        (feed, consumer)
    }

    /// Connects it to the station's stand-by control.
    #[must_use]
    pub fn with_standby(mut self, standby: StandbyHandle) -> Self {
        self.standby = Some(standby);
        self
    }

    /// What its bytes are.
    #[must_use]
    pub const fn spec(&self) -> SampleSpec {
        self.spec
    }

    /// The bytes from now on are in `spec`: a device delivers its own rate, format and channels.
    pub fn set_spec(&mut self, spec: SampleSpec) {
        if spec != self.spec {
            self.flush();
            self.open = None;
            self.drop_partial_frame();
            self.spec = spec;
        }
    }

    /// What the station currently needs; call it at the beginning of each tick. While it needs no
    /// audio, pushed bytes are dropped.
    pub fn poll_demand(&mut self) -> StandbyRequest {
        let demand = self.standby.as_mut().map_or(StandbyRequest::Play, StandbyHandle::request);
        if demand != StandbyRequest::Play && self.demand == StandbyRequest::Play {
            self.open = None;
        }
        self.demand = demand;
        demand
    }

    /// How many bytes [`ByteFeed::push`] accepts now.
    #[must_use]
    pub fn room(&mut self) -> usize {
        if self.demand != StandbyRequest::Play {
            return IDLE_ROOM;
        }
        if self.open.is_none() {
            self.open = self.pool.take().map(|mut block| {
                block.reset(self.spec.rate, self.spec.layout);
                block
            });
        }
        let Some(block) = &self.open else { return 0 };
        let frames = block.capacity() - block.frames();
        self.spec.bytes(frames).saturating_sub(self.partial_frame.len() + self.held.len())
    }

    /// Takes bytes that arrived at `now`, at most [`ByteFeed::room`].
    ///
    /// A pause within a frame may mean that its sender broke off there, and that another one begins
    /// with a frame of its own, which nothing else shows if the descriptor stayed open. So the
    /// bytes after the pause decide.
    pub fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.in_stream = true;
        let pause = now.since(core::mem::replace(&mut self.pushed_at, now));
        if pause >= TORN_FRAME_PAUSE {
            self.suspect_partial_frame();
            if self.opening == SenderOpening::Samples {
                self.opening = SenderOpening::Undecided;
            }
        }
        match self.opening {
            SenderOpening::Samples => self.push_samples(now, bytes),
            SenderOpening::Refused => {}
            SenderOpening::Undecided => {
                self.held.extend_from_slice(bytes);
                self.classify_sender(now, false);
            }
        }
    }

    /// Decides by the first bytes whether they are samples, and takes them in if they are.
    fn classify_sender(&mut self, now: Instant, ended: bool) {
        if self.opening != SenderOpening::Undecided || self.held.is_empty() {
            return;
        }
        match classify_raw_opening(&self.held, self.spec, ended) {
            // A fresh block has room for all that is held.
            RawOpening::Undecided => self.flush(),
            RawOpening::Encoded(format) => {
                self.opening = SenderOpening::Refused;
                self.refused = Some(format);
                self.held.clear();
            }
            RawOpening::Samples(start) => {
                self.opening = SenderOpening::Samples;
                self.refused = None;
                let mut held = core::mem::take(&mut self.held);
                // Opens a block.
                let _ = self.room();
                self.push_samples(now, &held[start..]);
                held.clear();
                self.held = held;
            }
        }
    }

    fn push_samples(&mut self, now: Instant, bytes: &[u8]) {
        if self.demand != StandbyRequest::Play {
            // Frame boundaries are kept, so that the first frame after the pause is complete.
            let torn = (self.partial_frame.len() + bytes.len()) % self.spec.frame_bytes();
            self.partial_frame.extend_from_slice(&bytes[bytes.len().saturating_sub(torn)..]);
            let surplus = self.partial_frame.len() - torn;
            self.partial_frame.drain(..surplus);
        } else if self.suspect_bytes > 0 {
            self.push_after_pause(now, bytes);
        } else {
            self.push_frames(now, bytes);
        }
    }

    /// The sender of an incomplete frame may be gone, and the next bytes those of another one. They
    /// decide whether they continue the frame.
    fn suspect_partial_frame(&mut self) {
        if !self.partial_frame.is_empty() {
            self.suspect_bytes = self.partial_frame.len();
        }
    }

    /// The sender is gone, and the next bytes are those of another one.
    pub fn suspect_new_sender(&mut self) {
        self.suspect_partial_frame();
        self.classify_sender(self.pushed_at, true);
        self.opening = SenderOpening::Undecided;
    }

    /// Finds out whether the bytes continue the incomplete frame.
    fn push_after_pause(&mut self, now: Instant, bytes: &[u8]) {
        let mut held = core::mem::take(&mut self.partial_frame);
        held.extend_from_slice(bytes);
        if held.len() < self.suspect_bytes + self.spec.frame_bytes() * COMPARED_FRAMES {
            self.partial_frame = held;
            // A fresh block has room for all that is held.
            return self.flush();
        }
        let start = match compare_frame_starts(self.spec, &held, self.suspect_bytes) {
            FrameStart::Later => core::mem::take(&mut self.suspect_bytes),
            FrameStart::First => {
                self.suspect_bytes = 0;
                0
            }
            // The same sound either way, for now.
            _ => 0,
        };
        self.push_frames(now, &held[start..]);
    }

    fn push_frames(&mut self, now: Instant, mut bytes: &[u8]) {
        let frame = self.spec.frame_bytes();
        if !self.partial_frame.is_empty() {
            let missing = (frame - self.partial_frame.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(missing);
            self.partial_frame.extend_from_slice(head);
            bytes = rest;
            if self.partial_frame.len() < frame {
                return;
            }
            let whole = core::mem::take(&mut self.partial_frame);
            self.append(now, &whole);
            self.partial_frame = whole;
            self.partial_frame.clear();
        }
        let whole = bytes.len() - bytes.len() % frame;
        self.append(now, &bytes[..whole]);
        self.partial_frame.extend_from_slice(&bytes[whole..]);
        if self.room() < frame {
            self.flush();
        }
    }

    /// Hands the current block to the station; called once per tick.
    pub fn flush(&mut self) {
        let Some(block) = self.open.take_if(|block| block.frames() > Frames::ZERO) else { return };
        // The ring has a slot for every block of the pool, so it cannot be full.
        drop(self.items.push(SourceItem::Block(block)));
    }

    /// The sender closed cleanly; an incomplete frame at the end is dropped.
    pub fn mark_ended(&mut self) {
        self.close(SourceItem::End);
    }

    /// The sender is gone without a clean close: when it returns, it has to be stable before it is
    /// used.
    pub fn mark_lost(&mut self) {
        self.close(SourceItem::Lost);
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// The back-off between retries.
    pub(super) const fn backoff(&self) -> Backoff {
        Backoff::new(self.seed)
    }

    /// The pauses before a peer is contacted again.
    pub(super) const fn reconnect_backoff(&self) -> ReconnectBackoff {
        ReconnectBackoff::new(self.seed)
    }

    /// Whether the current sender sends an encoded file.
    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.opening, SenderOpening::Refused)
    }

    /// When the source is tried again, for its status.
    #[must_use]
    pub fn retry_time(&self) -> RetryTime {
        self.retry.clone()
    }

    /// The source has failed, and is tried again then; to be called after [`ByteFeed::report`].
    pub(super) fn will_retry(&self, at: Instant) {
        self.retry.set(Some(at));
    }

    /// Publishes the state of the source. What was wrong with a sender is the state until the next
    /// one sends samples: a file is written and closed within milliseconds.
    pub fn report(&mut self, state: FeedState) {
        let state = match (self.refused, state) {
            (Some(format), FeedState::Waiting | FeedState::Running | FeedState::Finished) => {
                FeedState::Encoded(format, self.spec)
            }
            _ => state,
        };
        if let Some(standby) = &mut self.standby {
            let broken = matches!(
                state,
                FeedState::Failed(_)
                    | FeedState::Exited(_)
                    | FeedState::Unresponsive(_)
                    | FeedState::DeviceFailed(_)
                    | FeedState::Encoded(..)
            );
            standby.report(if broken { LinkState::Broken } else { LinkState::Healthy });
        }
        self.retry.set(None);
        if state != self.reported {
            self.reported = state;
            self.state.publish(state);
        }
    }

    /// Whether the current sender has sent anything yet.
    #[must_use]
    pub const fn is_in_stream(&self) -> bool {
        self.in_stream
    }

    fn close(&mut self, mark: SourceItem) {
        self.classify_sender(self.pushed_at, true);
        self.flush();
        self.drop_partial_frame();
        let opening = core::mem::replace(&mut self.opening, SenderOpening::Undecided);
        // A sender that was refused has not played.
        let was_heard = opening != SenderOpening::Refused && self.demand == StandbyRequest::Play;
        if core::mem::take(&mut self.in_stream) && was_heard {
            // Without room for the mark, the time-out of the station detects the end.
            drop(self.items.push(mark));
        }
    }

    fn drop_partial_frame(&mut self) {
        self.partial_frame.clear();
        self.suspect_bytes = 0;
    }

    fn append(&mut self, now: Instant, bytes: &[u8]) {
        let Some(block) = &mut self.open else { return };
        if bytes.is_empty() {
            return;
        }
        let old = block.frames();
        if old == Frames::ZERO {
            block.pts = self.position;
        }
        let new = Frames::from(bytes.len() / self.spec.frame_bytes());
        block.resize(old + new);
        block.received = now;
        let start = old.as_usize() * self.spec.layout.channels();
        convert::decode(self.spec.format, bytes, &mut block.samples_mut()[start..]);
        self.position += new;
    }
}

/// A sender in real time that delivers in pieces of any length does not pause for so long; after a
/// shorter pause a frame is continued without a look at it.
const TORN_FRAME_PAUSE: Span = Span::from_secs(1);

/// Bytes dropped per call.
const IDLE_ROOM: usize = 65_536;

/// Blocks between a feeder and its station: at least 0.6 s at 48 kHz stereo even if each tick fills
/// only 20 ms of a block.
pub const FEED_BLOCKS: usize = 32;

#[cfg(test)]
mod tests {
    use aulos_engine::standby::Standby;

    use super::*;

    fn feed(spec: &str) -> (ByteFeed, Consumer<SourceItem>) {
        let (publisher, _reader) = aulos_rt::latest(FeedState::Waiting);
        ByteFeed::new(spec.parse().unwrap(), publisher, 0)
    }

    fn samples(items: &mut Consumer<SourceItem>) -> (Vec<f32>, usize) {
        let (mut all, mut ends) = (Vec::new(), 0);
        while let Some(item) = items.pop() {
            match item {
                SourceItem::Block(block) => {
                    assert_eq!(block.pts, MediaTime((all.len() / 2) as u64), "a counted clock");
                    all.extend_from_slice(block.samples());
                }
                SourceItem::End => ends += 1,
                SourceItem::Lost => panic!("nobody broke off"),
            }
        }
        (all, ends)
    }

    #[test]
    fn what_is_not_wanted_is_thrown_away_and_the_first_frame_that_is_wanted_is_whole() {
        for grain in [1, 3, 7, 1_000] {
            let (feed, mut items) = feed("48000:16:2");
            let (mut gate, standby) = aulos_engine::standby::standby_channel(Standby::Warm);
            let mut feed = feed.with_standby(standby);
            let bytes: Vec<u8> = (0..3_000u16).flat_map(|n| (n as i16).to_le_bytes()).collect();
            assert_eq!(feed.poll_demand(), StandbyRequest::StayOpen);
            let (before, after) = bytes.split_at(3_001);
            before.chunks(grain).for_each(|piece| feed.push(Instant::ZERO, piece));
            assert!(items.is_empty());
            gate.set_request(StandbyRequest::Play);
            assert_eq!(feed.poll_demand(), StandbyRequest::Play);
            for piece in after.chunks(grain) {
                assert!(feed.room() >= piece.len());
                feed.push(Instant::ZERO, piece);
            }
            feed.mark_ended();
            let (samples, ends) = samples(&mut items);
            // Byte 3,000 begins frame 750.
            assert_eq!((samples[0] * 32_768.0).round().to_bits(), 1_500f32.to_bits(), "{grain}");
            assert_eq!((samples.len(), ends), (1_500, 1));
        }
    }

    #[test]
    fn frames_are_complete_for_any_segmentation_of_the_bytes() {
        let bytes: Vec<u8> = (0..3_000u16).flat_map(|n| (n as i16).to_le_bytes()).collect();
        let expected: Vec<f32> = (0..3_000u16).map(|n| f32::from(n) / 32_768.0).collect();
        for grain in [1, 2, 3, 5, 7, 64, 1_000, 6_000] {
            let (mut feed, mut items) = feed("48000:16:2");
            for piece in bytes.chunks(grain) {
                assert!(feed.room() >= piece.len());
                feed.push(Instant::ZERO, piece);
            }
            feed.mark_ended();
            assert_eq!(samples(&mut items), (expected.clone(), 1), "grain {grain}");
        }
    }

    #[test]
    fn a_sender_without_a_clock_is_held_back_and_nothing_is_lost() {
        let (mut feed, mut items) = feed("48000:16:2");
        let mut sent = 0;
        let mut received = Vec::new();
        for round in 0..10 {
            while feed.room() > 0 {
                let count = feed.room().min(4_096);
                feed.push(Instant::ZERO, &vec![u8::try_from(round).unwrap(); count]);
                sent += count;
            }
            while let Some(SourceItem::Block(block)) = items.pop() {
                received.push(block.samples().len() * 2);
            }
        }
        feed.flush();
        while let Some(SourceItem::Block(block)) = items.pop() {
            received.push(block.samples().len() * 2);
        }
        assert_eq!(received.iter().sum::<usize>(), sent - sent % 4);
    }

    #[test]
    fn a_sender_of_an_encoded_file_is_not_heard_and_its_format_is_reported() {
        let (publisher, mut state) = aulos_rt::latest(FeedState::Waiting);
        let (mut feed, mut items) = ByteFeed::new(SampleSpec::DEFAULT, publisher, 0);
        let flac = [&b"fLaC\0\0\0\x22"[..], &[0x55; 4_000]].concat();
        for grain in [1, 3, 1_000] {
            for piece in flac.chunks(grain) {
                assert!(feed.room() >= piece.len());
                feed.push(Instant::ZERO, piece);
                feed.flush();
            }
            assert!(feed.is_refused());
            feed.mark_ended();
            feed.report(FeedState::Waiting);
            assert_eq!(samples(&mut items), (Vec::new(), 0), "not even its end");
            let problem = state.read().problem().unwrap();
            assert_eq!(
                problem,
                "FLAC arrives, but samples are expected; send the output of: ffmpeg -re -i FILE -f \
                 s16le -ar 48000 -ac 2 -"
            );
        }
        // The next sender is heard from its first frame, and a WAVE header is none.
        let wave = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x02\0\x80\xbb\0\0\0\xee\x02\0\
                     \x04\0\x10\0data\xff\xff\xff\xff";
        for piece in [&wave[..], &[0, 64, 0, 32]].concat().chunks(5) {
            assert!(feed.room() >= piece.len());
            feed.push(Instant::ZERO, piece);
        }
        feed.report(FeedState::Running);
        assert_eq!(*state.read(), FeedState::Running);
        feed.mark_ended();
        assert_eq!(samples(&mut items), (vec![0.5, 0.25], 1));
    }

    #[test]
    fn samples_that_may_begin_a_file_are_played_as_soon_as_they_do_not() {
        let (mut feed, mut items) = feed("48000:16:2");
        for first in [&b"RIFF"[..], b"fLaC", b"ID3\x04", &[0xff, 0xfb, 0x90, 0x64]] {
            assert!(feed.room() > 4);
            feed.push(Instant::ZERO, first);
            feed.flush();
            assert!(items.is_empty());
            assert!(feed.room() > 8_000);
            feed.push(Instant::ZERO, &[9; 2_000]);
            feed.mark_ended();
            assert_eq!(samples_of(&mut items).len(), 1_002);
        }
    }

    #[test]
    fn half_a_frame_at_the_end_of_a_sender_does_not_swap_the_channels_of_the_next() {
        let (mut feed, mut items) = feed("48000:16:2");
        assert!(feed.room() > 0);
        feed.push(Instant::ZERO, &[1, 0, 2, 0, 9, 9, 9]);
        feed.mark_ended();
        assert!(feed.room() > 0);
        feed.push(Instant::ZERO, &[0, 64, 0, 32]);
        feed.mark_ended();
        let (samples, ends) = samples(&mut items);
        assert_eq!(samples[2..], [0.5, 0.25]);
        assert_eq!(ends, 2);
    }

    /// Right channel of what is played after `pieces`, each `pause` seconds after the previous one.
    fn right_channel(grain: usize, pause: i64, pieces: &[&[u8]]) -> Vec<f32> {
        let (mut feed, mut items) = feed("48000:16:2");
        let mut now = Instant::ZERO + Span::from_secs(10);
        let mut all = Vec::new();
        for piece in pieces {
            for part in piece.chunks(grain) {
                assert!(feed.room() >= part.len());
                feed.push(now, part);
                feed.flush();
                all.extend(samples_of(&mut items));
            }
            now += Span::from_secs(pause);
        }
        all.chunks(2).map(|frame| frame[1]).collect()
    }

    fn samples_of(items: &mut Consumer<SourceItem>) -> Vec<f32> {
        let mut all = Vec::new();
        while let Some(SourceItem::Block(block)) = items.pop() {
            all.extend_from_slice(block.samples());
        }
        all
    }

    /// A tone in the left channel, silence in the right one.
    fn left_tone(frames: usize) -> Vec<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "8,000 at most")]
        let left = |n: usize| ((n as f32 * 0.13).sin() * 8_000.0) as i16;
        (0..frames).flat_map(|n| [left(n).to_le_bytes(), [0, 0]].concat()).collect()
    }

    #[test]
    fn a_frame_that_was_torn_before_a_pause_is_dropped_and_a_paused_one_is_continued() {
        let (sound, silence) = (left_tone(500), vec![0; 800]);
        let silent = |right: &[f32]| right.iter().all(|sample| *sample == 0.0);
        for grain in [1, 3, 64, 1_000, 4_000] {
            for torn in 1..4 {
                let broken = &sound[..1_000 + torn];
                let right = right_channel(grain, 3, &[broken, &sound]);
                assert!(silent(&right) && right.len() == 750, "{grain} {torn}");
                // The new sender begins with silence, which leaves it open.
                let right = right_channel(grain, 3, &[broken, &silence, &sound]);
                assert!(silent(&right), "{grain} {torn}: {}", right.len());
                assert!((949..=950).contains(&right.len()));
                if torn != 2 {
                    let right = right_channel(grain, 3, &[broken, &sound[1_000 + torn..]]);
                    assert!(silent(&right) && right.len() == 500, "{grain} {torn}");
                }
                // What comes without a pause is not questioned.
                let right = right_channel(grain, 0, &[broken, &sound[1_000 + torn..]]);
                assert!(silent(&right) && right.len() == 500, "{grain} {torn}");
            }
        }
    }
}

//! Encoded streams: bytes from a feeder, decoded on the codec pool into blocks for a station.
//!
//! ```text
//!  StreamWriter --bytes--> StreamSource (codec pool) --blocks--> RingSource (station)
//!  (a feeder)   --marks-->            |--titles, state--> control
//! ```
//!
//! Both rings are bounded, so a sender without a clock is held back to its socket. No thread waits:
//! each polls again later.

use core::fmt;
use std::collections::VecDeque;

use aulos_core::{Block, ChannelLayout, MediaTime, SampleRate};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_io::feed::{
    BodyMark, FrameWriter, StreamCounts, StreamError, StreamReader, StreamState, StreamWriter,
    stream_channel,
};
use aulos_io::{Job, JobStatus};
use aulos_proto::packets::FormatHint;
use aulos_proto::titles::TrackMetadata;
use aulos_rt::channel::{Receiver, Sender, bounded};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader, Pool};

use crate::decode::{StreamDecodeStatus, StreamDecoder};

/// The ends of a new stream.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct StreamParts {
    /// For the feeder that has the bytes.
    pub writer: StreamWriter,
    /// For the codec pool.
    pub source: StreamSource,
    /// For the station, as a live source.
    pub items: Consumer<SourceItem>,
    /// For status displays.
    pub state: LatestReader<StreamState>,
    /// Titles from within the stream.
    pub titles: Receiver<TrackMetadata>,
}

impl StreamParts {
    /// A stream without data yet.
    #[must_use]
    pub fn new() -> Self {
        let (writer, input) = stream_channel();
        // The end mark needs a slot besides the blocks.
        let (items, consumer) = ring(STREAM_BLOCKS + 1);
        let (publisher, state) = aulos_rt::latest(StreamState::default());
        let (teller, titles) = bounded(MAX_TITLES);
        let source = StreamSource {
            input,
            decoder: None,
            pool: Pool::new(STREAM_BLOCKS, || {
                Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES)
            }),
            items,
            titles: teller,
            waiting_titles: VecDeque::new(),
            blocks: 0,
            state: publisher,
            published: StreamState::default(),
            previous_counts: StreamCounts::default(),
            frames: None,
            position: MediaTime::ZERO,
            follows: None,
        };
        Self { writer, source, items: consumer, state, titles }
    }
}

impl Default for StreamParts {
    fn default() -> Self {
        Self::new()
    }
}

/// A job of the codec pool: decodes the writer's bytes for as long as the station exists.
pub struct StreamSource {
    input: StreamReader,
    decoder: Option<StreamDecoder>,
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    titles: Sender<TrackMetadata>,
    /// Titles whose audio is still in the ring, each with the number of blocks before it.
    waiting_titles: VecDeque<(u64, TrackMetadata)>,
    /// Blocks that have been put into the ring.
    blocks: u64,
    state: LatestPublisher<StreamState>,
    published: StreamState,
    /// Counters of earlier bodies.
    previous_counts: StreamCounts,
    /// While no body is decoded: what gets its packets, and the media time of its first frame.
    frames: Option<FrameWriter>,
    position: MediaTime,
    /// The body that follows when the current one has been decoded.
    follows: Option<FormatHint>,
}

/// The result of one decoding step.
enum DecodeStep {
    /// Continue.
    Continue,
    /// Nothing can be done now.
    Idle,
}

impl StreamSource {
    /// The same, passing every packet that it decodes on.
    #[must_use]
    pub fn with_frames(mut self, frames: Option<FrameWriter>) -> Self {
        self.frames = frames;
        self
    }

    fn decode_step(&mut self) -> DecodeStep {
        // Room for a block and the end mark.
        if self.items.free() < 2 {
            return DecodeStep::Idle;
        }
        let Some(decoder) = &mut self.decoder else { return self.next_mark() };
        decoder.set_parse_only(self.input.is_parse_only());
        let Some(mut block) = self.pool.take() else { return DecodeStep::Idle };
        match decoder.next(&mut block) {
            Ok(StreamDecodeStatus::Block) => {
                // The ring has a slot for every block of the pool.
                drop(self.items.push(SourceItem::Block(block)));
                self.blocks += 1;
                DecodeStep::Continue
            }
            Ok(StreamDecodeStatus::NeedsInput) => {
                if self.input.read(|bytes| decoder.push(bytes)) > 0 {
                    DecodeStep::Continue
                } else {
                    self.next_mark()
                }
            }
            Ok(StreamDecodeStatus::End) if let Some(hint) = self.follows.take() => {
                self.next_body(|decoder| decoder.follow(hint));
                DecodeStep::Continue
            }
            Ok(StreamDecodeStatus::End) => {
                self.close(None);
                drop(self.items.push(SourceItem::End));
                self.blocks += 1;
                DecodeStep::Continue
            }
            Err(error) => {
                self.close(Some(error));
                DecodeStep::Continue
            }
        }
    }

    /// Handles the mark at this byte. Bytes of a body that is not decoded are dropped.
    fn next_mark(&mut self) -> DecodeStep {
        if self.decoder.is_none() {
            self.input.discard();
        }
        let Some(mark) = self.input.next_mark() else { return DecodeStep::Idle };
        match (mark, &mut self.decoder) {
            // The body broke off: the next one continues without a click.
            (BodyMark::Begin(hint), Some(_)) => self.next_body(|decoder| decoder.restart(hint)),
            (BodyMark::Begin(hint), None) => {
                let decoder =
                    StreamDecoder::new(hint).with_frames(self.frames.take(), self.position);
                self.decoder = Some(decoder);
                self.begin_state();
            }
            (BodyMark::Follow(hint), Some(decoder)) => {
                decoder.finish();
                self.follows = Some(hint);
            }
            (BodyMark::End, Some(decoder)) => decoder.finish(),
            (BodyMark::End | BodyMark::Follow(_), None) => {}
        }
        DecodeStep::Continue
    }

    /// Makes the decoder of the next body from that of the current one.
    fn next_body(&mut self, next: impl FnOnce(StreamDecoder) -> StreamDecoder) {
        let Some(decoder) = self.decoder.take() else { return };
        self.previous_counts = self.previous_counts.plus(decoder.counts());
        self.decoder = Some(next(decoder));
        self.begin_state();
    }

    fn begin_state(&mut self) {
        self.published = StreamState {
            error: None,
            finished: false,
            body: self.published.body + 1,
            ..self.published
        };
    }

    /// The body has no more data.
    fn close(&mut self, error: Option<StreamError>) {
        self.follows = None;
        if let Some(decoder) = self.decoder.take() {
            self.previous_counts = self.previous_counts.plus(decoder.counts());
            (self.frames, self.position) = decoder.into_frames();
        }
        self.published.error = error;
        self.published.finished = error.is_none();
    }

    fn publish_state(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            if let Some(title) = decoder.take_title() {
                if self.waiting_titles.len() >= MAX_TITLES {
                    self.waiting_titles.pop_front();
                }
                self.waiting_titles.push_back((self.blocks, title));
            }
            self.published.info = decoder.info().or(self.published.info);
            self.published.counts = self.previous_counts.plus(decoder.counts());
        } else {
            self.published.counts = self.previous_counts;
        }
        self.state.publish(self.published);
        self.send_titles();
    }

    /// Sends the titles whose audio the station has taken.
    fn send_titles(&mut self) {
        let taken = self.blocks - (self.items.capacity() - self.items.free()) as u64;
        while self.waiting_titles.front().is_some_and(|(before, _)| *before <= taken) {
            let Some((_, title)) = self.waiting_titles.pop_front() else { return };
            // Without a receiver the title is dropped.
            drop(self.titles.try_send(title));
        }
    }
}

impl Job for StreamSource {
    fn step(&mut self) -> JobStatus {
        if self.items.is_abandoned() {
            return JobStatus::Done;
        }
        for _ in 0..MAX_STEPS {
            if let DecodeStep::Idle = self.decode_step() {
                break;
            }
        }
        self.publish_state();
        JobStatus::Pending
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource").field("told", &self.published).finish_non_exhaustive()
    }
}

/// Blocks between the codec pool and a station: more than a second at 48 kHz stereo.
const STREAM_BLOCKS: usize = 16;

/// Titles in the channel, and those that wait for their audio.
const MAX_TITLES: usize = 8;

/// Decoding steps per call, so that many small packets cannot block the thread.
const MAX_STEPS: usize = 256;

#[cfg(test)]
mod tests {
    use aulos_io::feed::RAW_BYTES;

    use super::*;

    /// A second of counting samples, with a WAVE header.
    fn wave(frames: u16) -> Vec<u8> {
        let mut bytes =
            b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\
                          \x02\0\x10\0data\xff\xff\xff\xff"
                .to_vec();
        bytes.extend((0..frames).flat_map(u16::to_le_bytes));
        bytes
    }

    fn drain(parts: &mut StreamParts) -> (Vec<i32>, usize) {
        let (mut sound, mut ends) = (Vec::new(), 0);
        while let Some(item) = parts.items.pop() {
            match item {
                #[allow(clippy::cast_possible_truncation, reason = "made of whole numbers")]
                SourceItem::Block(block) => {
                    sound.extend(block.samples().iter().map(|it| (it * 32_768.0) as i32));
                }
                SourceItem::End => ends += 1,
                SourceItem::Lost => panic!("a body that breaks off is tried again"),
            }
        }
        (sound, ends)
    }

    fn send(parts: &mut StreamParts, mut bytes: &[u8]) -> (Vec<i32>, usize) {
        let mut got = (Vec::new(), 0);
        while !bytes.is_empty() {
            let taken = parts.writer.write(&bytes[..bytes.len().min(777)]);
            bytes = &bytes[taken..];
            assert_eq!(parts.source.step(), JobStatus::Pending);
            let (sound, ends) = drain(parts);
            got.0.extend(sound);
            got.1 += ends;
        }
        got
    }

    #[test]
    fn bodies_follow_one_another_and_only_a_clean_end_is_one() {
        let mut parts = StreamParts::new();
        assert!(parts.writer.begin(FormatHint::None));
        let (mut sound, ends) = send(&mut parts, &wave(30_000));
        assert_eq!((sound.len(), ends), (30_000, 0));
        // It breaks off; the next one ends cleanly.
        assert!(parts.writer.begin(FormatHint::None));
        sound.extend(send(&mut parts, &wave(30_000)).0);
        assert!(parts.writer.end());
        parts.source.step();
        let (rest, ends) = drain(&mut parts);
        sound.extend(rest);
        assert_eq!(ends, 1);
        // Between the two the last frame fades out.
        assert_eq!(sound.len(), 30_000 + 128 + 30_000);
        assert_eq!(sound[..30_000], (0..30_000).collect::<Vec<_>>());
        assert_eq!(sound[31_128..], (1_000..30_000).collect::<Vec<_>>());
        let state = *parts.state.read();
        assert_eq!((state.body, state.finished, state.error), (2, true, None));
        assert_eq!(state.info.map(|info| info.codec), Some("pcm"));
    }

    #[test]
    fn a_body_that_follows_adds_nothing_between_the_two() {
        let mut parts = StreamParts::new();
        assert!(parts.writer.begin(FormatHint::None));
        let (mut sound, _) = send(&mut parts, &wave(30_000));
        for _ in 0..2 {
            assert!(parts.writer.follow(FormatHint::None));
            let (next, ends) = send(&mut parts, &wave(30_000));
            assert_eq!(ends, 0);
            sound.extend(next);
        }
        let all: Vec<i32> = (0..3).flat_map(|_| 0..30_000).collect();
        assert!(sound == all, "{}", sound.len());
        assert_eq!(parts.state.read().body, 3);
        // Behind a body that cannot be played, none follows until one begins.
        assert!(parts.writer.begin(FormatHint::None));
        send(&mut parts, &[&b"<html>"[..], &[b' '; 200_000]].concat());
        assert!(parts.writer.follow(FormatHint::None));
        assert_eq!(send(&mut parts, &wave(1_000)).0.len(), 0);
        assert!(matches!(parts.state.read().error, Some(StreamError::Refused(_))));
        assert!(parts.writer.begin(FormatHint::None));
        assert_eq!(send(&mut parts, &wave(1_000)).0.len(), 1_000);
    }

    #[test]
    fn what_cannot_be_played_is_thrown_away_up_to_the_next_body() {
        let mut parts = StreamParts::new();
        assert!(parts.writer.begin(FormatHint::None));
        let page = [&b"<html>"[..], &[b' '; 200_000]].concat();
        assert_eq!(send(&mut parts, &page).0.len(), 0);
        assert!(matches!(parts.state.read().error, Some(StreamError::Refused(_))));
        assert!(parts.writer.begin(FormatHint::None));
        assert_eq!(send(&mut parts, &wave(40_000)).0.len(), 40_000);
        assert_eq!(parts.state.read().error, None);
    }

    #[test]
    fn a_sender_without_a_clock_is_held_back_and_nothing_is_lost() {
        let mut parts = StreamParts::new();
        assert!(parts.writer.begin(FormatHint::None));
        let bytes = wave(65_535).into_iter().chain(wave(0)).cycle();
        let bytes: Vec<u8> = bytes.take(600_000).collect();
        let mut written = 0;
        for _ in 0..100 {
            written += parts.writer.write(&bytes[written..]);
            parts.source.step();
        }
        assert!(written < RAW_BYTES * 2 + STREAM_BLOCKS * BLOCK_SAMPLES * 2, "{written}");
        assert_eq!(parts.writer.room(), 0);
        let mut heard = 0;
        while written < bytes.len() {
            heard += drain(&mut parts).0.len();
            parts.source.step();
            written += parts.writer.write(&bytes[written..]);
        }
        assert!(parts.writer.end());
        for _ in 0..20 {
            parts.source.step();
            heard += drain(&mut parts).0.len();
        }
        assert_eq!(heard, (bytes.len() - 44) / 2);
    }
}

//! The pipe compared with a `VecDeque`, also just before the positions wrap.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::MIRRORED;
use crate::pipe::*;

#[allow(clippy::duplicate_mod, reason = "the same tests over other memory")]
#[path = "waiting.rs"]
mod waiting;

/// A pipe as configured, with the kind of memory of this test run.
fn pipe(config: &PipeConfig) -> Result<(PipeWriter, PipeReader), PipeConfigError> {
    starting_at(config, 0)
}

fn starting_at(
    config: &PipeConfig,
    start: usize,
) -> Result<(PipeWriter, PipeReader), PipeConfigError> {
    let ends =
        crate::pipe::starting_at(&PipeConfig { mirrored: MIRRORED, ..config.clone() }, start)?;
    assert_eq!(ends.0.monitor().is_mirrored(), MIRRORED);
    Ok(ends)
}

#[derive(Clone, Debug)]
enum Op {
    Write(usize),
    Reserve(usize, usize),
    Read(usize),
    Peek(usize),
    Advance(usize),
    Clear,
    AskToClear,
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0..40_usize;
    prop_oneof![
        4 => n().prop_map(Op::Write),
        2 => (n(), n()).prop_map(|(n, k)| Op::Reserve(n, k)),
        4 => n().prop_map(Op::Read),
        1 => n().prop_map(Op::Peek),
        2 => n().prop_map(Op::Advance),
        1 => Just(Op::Clear),
        1 => Just(Op::AskToClear),
    ]
}

fn config() -> impl Strategy<Value = PipeConfig> {
    let overflow = prop_oneof![
        Just(OverflowPolicy::Block),
        Just(OverflowPolicy::Error),
        Just(OverflowPolicy::DropNewest),
        Just(OverflowPolicy::DropOldest)
    ];
    let underrun = prop_oneof![Just(UnderrunPolicy::Short), Just(UnderrunPolicy::Silence)];
    (1..14_usize, 1..5_usize, overflow, underrun).prop_map(
        |(capacity, channels, overflow, underrun)| PipeConfig {
            overflow,
            underrun,
            ..PipeConfig::audio(48_000, channels, SampleEncoding::U8, capacity)
        },
    )
}

/// The pipe and its reference model.
struct Pair {
    config: PipeConfig,
    writer: PipeWriter,
    reader: PipeReader,
    model: VecDeque<u8>,
    capacity: usize,
    next: u8,
    /// Bytes at the front that the writer has asked to clear.
    to_clear: usize,
    skipped: usize,
    high_water: usize,
    dropped: usize,
}

impl Pair {
    fn new(config: PipeConfig, start: usize) -> Self {
        let (writer, reader) = starting_at(&config, start).unwrap();
        let capacity = config.capacity_frames * config.channels;
        let model = VecDeque::new();
        let (next, to_clear, skipped, high_water, dropped) = (0, 0, 0, 0, 0);
        Self {
            config,
            writer,
            reader,
            model,
            capacity,
            next,
            to_clear,
            skipped,
            high_water,
            dropped,
        }
    }

    fn numbers(&mut self, n: usize) -> Vec<u8> {
        (0..n)
            .map(|_| {
                self.next = self.next.wrapping_add(1);
                self.next
            })
            .collect()
    }

    fn whole(&self, n: usize) -> usize {
        n / self.config.channels * self.config.channels
    }

    fn write(&mut self, n: usize) {
        let data = self.numbers(n);
        let n = self.whole(n);
        let room = self.capacity - self.model.len();
        let result = self.writer.write(&data);
        if n > room && self.config.overflow == OverflowPolicy::Error {
            assert_eq!(result, Err(PipeWriteError::Full { free: room }));
            return;
        }
        let written = result.unwrap();
        let mut dropped = 0;
        if self.config.overflow == OverflowPolicy::DropOldest {
            self.model.extend(&data[..n]);
            dropped = self.model.len().saturating_sub(self.capacity);
            let old = dropped.min(self.model.len() - n);
            self.model.drain(..dropped);
            self.skipped += old;
            self.to_clear = self.to_clear.saturating_sub(old);
            assert_eq!(written.stored, n.min(self.capacity));
        } else {
            let stored = n.min(room);
            self.model.extend(&data[..stored]);
            if self.config.overflow == OverflowPolicy::DropNewest {
                dropped = n - stored;
            }
            assert_eq!(written.stored, stored);
        }
        assert_eq!(written.dropped, dropped);
        self.dropped += dropped;
    }

    fn reserve(&mut self, n: usize, k: usize) {
        let given = self.whole(n.min(self.capacity - self.model.len()));
        let k = self.whole(k.min(given));
        let data = self.numbers(k);
        let place = self.writer.reserve(n);
        assert_eq!(place.len(), given);
        place[..k].copy_from_slice(&data);
        self.writer.commit(k);
        self.model.extend(data);
    }

    /// Applies what the reader finds at its next call.
    fn notice(&mut self) {
        self.model.drain(..self.to_clear);
        self.skipped += std::mem::take(&mut self.to_clear);
    }

    fn read(&mut self, n: usize) {
        self.notice();
        let real = self.whole(n.min(self.model.len()));
        let mut out = vec![0xEE; n];
        let read = self.reader.read(&mut out);
        assert_eq!((read.bytes, read.end), (real, None));
        assert_eq!(read.skipped, std::mem::take(&mut self.skipped));
        assert!(self.model.drain(..real).eq(out[..real].iter().copied()));
        let silent = self.config.underrun == UnderrunPolicy::Silence;
        assert_eq!(read.padded, if silent { n - real } else { 0 });
        let rest = if silent { 0x80 } else { 0xEE };
        assert!(out[real..].iter().all(|&byte| byte == rest));
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Write(n) => self.write(n),
            Op::Reserve(n, k) => self.reserve(n, k),
            Op::Read(n) => self.read(n),
            Op::Peek(n) => {
                self.notice();
                let there = self.reader.peek(n).map(<[u8]>::to_vec);
                let expected = (n <= self.model.len()).then(|| self.model.range(..n));
                assert_eq!(there, expected.map(|bytes| bytes.copied().collect()));
                self.reader.advance(0, 0);
            }
            Op::Advance(n) => {
                self.notice();
                assert!(self.reader.peek_all().iter().eq(&self.model));
                let examined = n.min(self.model.len());
                let consumed = self.whole(examined);
                self.reader.advance(consumed, examined);
                self.model.drain(..consumed);
            }
            Op::Clear => {
                self.notice();
                assert_eq!(self.reader.clear(), self.model.len());
                self.model.clear();
            }
            Op::AskToClear => {
                self.writer.clear();
                self.to_clear = self.model.len();
            }
        }
        self.high_water = self.high_water.max(self.model.len());
    }

    fn check_figures(&self) {
        let monitor = self.reader.monitor();
        assert_eq!(monitor.fill().bytes, self.model.len());
        assert_eq!(self.writer.free().bytes, self.capacity - self.model.len());
        assert_eq!(monitor.high_water().bytes, self.high_water);
        let channels = self.config.channels as u64;
        assert_eq!(monitor.dropped_frames() * channels, self.dropped as u64);
        assert_eq!(monitor.capacity().frames, self.config.capacity_frames);
    }
}

proptest! {
    #[test]
    fn is_a_bounded_queue_of_frames(
        config in config(),
        before_wrap in 0..60_usize,
        ops in prop::collection::vec(op(), 0..120),
    ) {
        let mut pair = Pair::new(config, 0_usize.wrapping_sub(before_wrap));
        for op in ops {
            pair.apply(&op);
            pair.check_figures();
        }
        // In any case both ends agree on the number of a frame.
        pair.reader.clear();
        prop_assert_eq!(pair.reader.position(), pair.writer.position());
    }
}

#[test]
fn invalid_configurations_are_reported() {
    let make = |config: PipeConfig| pipe(&config).map(|_| ()).unwrap_err();
    let bytes = PipeConfig::bytes;
    assert_eq!(make(bytes(0)), PipeConfigError::Empty);
    assert_eq!(make(PipeConfig { channels: 0, ..bytes(1) }), PipeConfigError::Empty);
    assert_eq!(make(bytes(usize::MAX)), PipeConfigError::OutOfMemory);
    assert_eq!(make(bytes(usize::MAX / 4)), PipeConfigError::OutOfMemory);
    let backpressure = Backpressure { pause_frames: Some(4), resume_frames: Some(4) };
    assert_eq!(make(PipeConfig { backpressure, ..bytes(8) }), PipeConfigError::Thresholds);
    let backpressure = Backpressure { pause_frames: Some(9), resume_frames: None };
    assert_eq!(make(PipeConfig { backpressure, ..bytes(8) }), PipeConfigError::Thresholds);
    let repeat = PipeConfig { underrun: UnderrunPolicy::Repeat, ..bytes(8) };
    assert_eq!(make(repeat), PipeConfigError::CannotFade);
}

/// A clear request during an access in place is executed by the reader's next call and not before.
#[test]
fn a_view_can_be_consumed_despite_requests_of_the_writer() {
    for overflow in [OverflowPolicy::Block, OverflowPolicy::DropOldest] {
        let (mut writer, mut reader) =
            pipe(&PipeConfig { overflow, ..PipeConfig::bytes(8) }).unwrap();
        assert_eq!(writer.write(b"abcd").unwrap().stored, 4);
        assert_eq!(reader.peek(3), Some(&b"abc"[..]));
        writer.clear();
        assert_eq!(writer.write(b"ef").unwrap().stored, 2);
        reader.advance(3, 3);
        assert_eq!(reader.peek_all(), b"ef");
        assert_eq!((reader.take_skipped(), reader.position()), (1, 4));
    }
}

/// A pipe that is emptied repeatedly, with a size at which it does not wrap around.
#[test]
fn an_emptied_pipe_starts_at_the_front_again() {
    let (mut writer, mut reader) = pipe(&PipeConfig::bytes(64 * 1024)).unwrap();
    let (mut written, mut taken, mut out) = (0, 0, vec![0; 5000]);
    let mut places = std::collections::BTreeSet::new();
    for round in 0..1000 {
        let data = stream(written, 700 + round * 13 % 4000);
        assert_eq!(writer.write(&data).unwrap().stored, data.len());
        written += data.len();
        // Sometimes data remains for a while, so that some checks do not find the pipe empty.
        let n = written - taken - if round % 7 == 3 { 100 } else { 0 };
        places.insert(reader.peek(n).unwrap().as_ptr().addr());
        assert_eq!(reader.read(&mut out[..n]).bytes, n);
        assert_eq!(out[..n], stream(taken, n));
        taken += n;
    }
    let span = places.last().unwrap() - places.first().unwrap();
    assert!(span < 32 * 1024, "{span} bytes are in use");
}

#[test]
fn amounts_are_bytes_and_frames_and_time() {
    let (mut writer, reader) =
        pipe(&PipeConfig::audio(8000, 2, SampleEncoding::S16Le, 100)).unwrap();
    assert_eq!(writer.write(&[1; 43]).unwrap().stored, 40);
    let fill = reader.available();
    assert_eq!((fill.bytes, fill.frames, fill.duration.as_micros()), (40, 10, 1250));
}

#[test]
fn the_end_is_reported_after_the_data() {
    let ends: [(fn(PipeWriter), EndReason); 3] = [
        (PipeWriter::finish, EndReason::Finished),
        (|writer| writer.fail(7), EndReason::Failed(7)),
        (drop, EndReason::Dropped),
    ];
    for (leave, end) in ends {
        let (mut writer, mut reader) = pipe(&PipeConfig::bytes(8)).unwrap();
        assert_eq!(writer.write(b"abc").unwrap().stored, 3);
        leave(writer);
        assert_eq!(reader.end(), None);
        let mut out = [0; 2];
        assert_eq!((reader.read(&mut out).end, out), (None, *b"ab"));
        let last = reader.read(&mut out);
        assert_eq!((last.bytes, last.end), (1, Some(end)));
        let after = reader.read(&mut out);
        assert_eq!((after.bytes, after.end), (0, Some(end)));
    }
}

#[test]
fn a_writer_detects_a_dropped_reader() {
    let (mut writer, reader) = pipe(&PipeConfig::bytes(8)).unwrap();
    drop(reader);
    assert!(writer.is_abandoned());
    assert_eq!(writer.write(b"a"), Err(PipeWriteError::ReaderGone));
    assert_eq!(writer.blocking().reserve(1), Err(PipeWriteError::ReaderGone));
}

#[test]
fn while_the_reader_has_a_view_the_newest_frames_are_dropped() {
    let config = PipeConfig { overflow: OverflowPolicy::DropOldest, ..PipeConfig::bytes(4) };
    let (mut writer, mut reader) = pipe(&config).unwrap();
    assert_eq!(writer.write(b"abcd").unwrap().dropped, 0);
    assert_eq!(reader.peek(2), Some(&b"ab"[..]));
    let written = writer.write(b"ef").unwrap();
    assert_eq!((written.stored, written.dropped), (0, 2));
    reader.advance(1, 1);
    let written = writer.write(b"gh").unwrap();
    assert_eq!((written.stored, written.dropped), (2, 1));
    assert_eq!(reader.peek_all(), b"cdgh");
    reader.advance(4, 4);
    assert_eq!((reader.take_skipped(), reader.position()), (1, 6));
}

#[test]
fn an_underrun_repeats_and_fades_the_last_audio() {
    let config = PipeConfig {
        underrun: UnderrunPolicy::Repeat,
        ..PipeConfig::audio(400, 1, SampleEncoding::U8, 16) // 10 ms are 4 frames
    };
    let (mut writer, mut reader) = pipe(&config).unwrap();
    assert_eq!(writer.write(&[0x90, 0xC0]).unwrap().stored, 2);
    let mut out = [0; 8];
    let read = reader.read(&mut out);
    assert_eq!((read.bytes, read.padded), (2, 6));
    assert_eq!(out, [0x90, 0xC0, 0xC0, 0x8C, 0x88, 0x90, 0x80, 0x80]);
    assert_eq!(reader.monitor().padded_frames(), 6);
}

/// The silence bytes of each format, from its standard and not from the table in the code.
#[test]
fn a_gap_is_silent_in_every_format() {
    let formats = [
        (SampleEncoding::Bytes, 0x00),
        (SampleEncoding::U8, 0x80),
        (SampleEncoding::MuLaw, 0xff),
        (SampleEncoding::ALaw, 0xd5),
        (SampleEncoding::S16Le, 0x00),
        (SampleEncoding::S24Le, 0x00),
        (SampleEncoding::S32Le, 0x00),
        (SampleEncoding::F32Le, 0x00),
    ];
    for (sample, silence) in formats {
        let audio = PipeConfig::audio(48_000, 2, sample, 10);
        let config = PipeConfig { underrun: UnderrunPolicy::Silence, ..audio };
        let (mut writer, mut reader) = pipe(&config).unwrap();
        let frame = 2 * sample.bytes();
        assert_eq!(writer.write(&vec![0x55; frame]).unwrap().stored, frame);
        let mut out = vec![0x77; 3 * frame];
        let read = reader.read(&mut out);
        assert_eq!((read.bytes, read.padded), (frame, 2 * frame), "{sample:?}");
        assert!(out[frame..].iter().all(|&byte| byte == silence), "{sample:?}: {out:?}");
        assert_eq!(reader.monitor().padded_frames(), 2);
    }
}

#[test]
fn stamps_cross_in_both_directions() {
    let (mut writer, mut reader) =
        pipe(&PipeConfig::audio(48_000, 2, SampleEncoding::S16Le, 9)).unwrap();
    assert_eq!((writer.reader_stamp(), reader.writer_stamp()), (None, None));
    assert_eq!(writer.write(&[0; 20]).unwrap().stored, 20);
    writer.stamp(1000);
    assert_eq!(reader.writer_stamp(), Some(FrameTimestamp { frame: 5, nanos: 1000 }));
    assert_eq!(reader.read(&mut [0; 8]).bytes, 8);
    reader.stamp(3000);
    assert_eq!(writer.reader_stamp(), Some(FrameTimestamp { frame: 2, nanos: 3000 }));
}

#[test]
#[should_panic(expected = "4 are reserved")]
fn more_than_reserved_cannot_be_committed() {
    let (mut writer, _reader) = pipe(&PipeConfig::bytes(4)).unwrap();
    writer.reserve(9);
    writer.commit(5);
}

#[test]
#[should_panic(expected = "part of a frame")]
fn no_part_of_a_frame_can_be_consumed() {
    let (mut writer, mut reader) = pipe(&PipeConfig::audio(1, 2, SampleEncoding::U8, 4)).unwrap();
    assert_eq!(writer.write(&[0; 4]).unwrap().stored, 4);
    reader.advance(1, 2);
}

/// Byte number `i` of the test stream.
fn byte(i: usize) -> u8 {
    let [byte, ..] = (i.wrapping_mul(31) >> 3).to_le_bytes();
    byte
}

fn stream(from: usize, n: usize) -> Vec<u8> {
    (from..from + n).map(byte).collect()
}

//! The pipe: a byte stream from one thread to another, with what a stream needs beyond a ring:
//! frames, silence, thresholds, timestamps, and an end.
//!
//! One core, three kinds of ends. [`PipeWriter`] and [`PipeReader`] are wait-free: they never wait
//! and never wake a thread, so they can be used in an audio callback. [`BlockingWriter`] and
//! [`BlockingReader`] sleep, and make system calls only for that or if the peer sleeps.
//! [`AsyncWriter`] and [`AsyncReader`] do the same as tasks. Any two kinds work together.
//!
//! Sizes in calls are in bytes, as those of slices; sizes in [`PipeConfig`] are in frames;
//! [`PipeAmount`] has both and the duration.
//!
//! The server does not use it: it is for other programs. The examples `c_callback`, `fft_blocks`
//! and `network_to_card` show it.
//!
//! # Thresholds
//! A waiting writer is paused when `pause` is reached and resumes when the fill is down to
//! `resume`. The fill is what the reader has not *consumed*: the memory is bounded, so data that
//! was examined and not consumed still occupies it. A reader that waits for more than is stored
//! lifts the pause up to its demand, so that the two cannot wait for each other; a demand above the
//! capacity is an error at once.
//!
//! # Memory
//! A ring that wraps around touches all of its memory, however small its fill. A writer that finds
//! the pipe empty continues at the front, so that a pipe whose reader keeps up stays in a few
//! kilobytes of the caches, whatever its capacity. (Not with [`OverflowPolicy::DropOldest`].)
//!
//! The memory is mapped twice in a row (`docs/decisions/pipe.md`), so any range is one slice;
//! without that, a range across the end goes through a scratch buffer, and nothing else changes.

mod blocking;
mod clear;
mod conceal;
mod config;
mod format;
mod future;
pub(crate) mod memory;
mod monitor;
mod outcome;
mod reader;
mod shared;
mod shared_head;
mod writer;

pub use blocking::{BlockingReader, BlockingWriter};
pub use config::{Backpressure, OverflowPolicy, PipeConfig, PipeConfigError, UnderrunPolicy};
pub use format::SampleEncoding;
pub use future::{AsyncReader, AsyncWriter};
pub use monitor::PipeMonitor;
pub use outcome::{
    EndReason, FrameTimestamp, PipeAmount, PipeReadError, PipeWriteError, ReadOutcome,
    WaitCancelled, WriteOutcome,
};
pub use reader::PipeReader;
pub use writer::PipeWriter;

use self::conceal::Concealer;
use self::memory::Memory;
use self::shared::Core;
use self::shared_head::SharedHead;
use crate::latest::latest;
use crate::spsc::{CachePadded, Positions};
use crate::sync::Arc;

/// Creates a pipe and returns its two ends.
///
/// Not for a real-time thread: allocates, and touches every page, so that no later access faults.
/// Dropping the last end or monitor frees the memory.
///
/// # Errors
/// [`PipeConfigError`] for an invalid configuration.
///
/// # Examples
/// Output to a sound card, with the silence of its sample format:
/// ```
/// use aulos_rt::pipe::{PipeConfig, SampleEncoding, UnderrunPolicy, pipe};
///
/// let audio = PipeConfig::audio(48_000, 2, SampleEncoding::U8, 480);
/// let config = PipeConfig { underrun: UnderrunPolicy::Silence, ..audio };
/// let (mut writer, mut reader) = pipe(&config).unwrap();
/// writer.write(&[1, 2, 3, 4]).unwrap();
/// let mut period = [0; 8];
/// let read = reader.read(&mut period);
/// assert_eq!(period, [1, 2, 3, 4, 0x80, 0x80, 0x80, 0x80]);
/// assert_eq!((read.bytes, read.padded), (4, 4));
/// ```
pub fn pipe(config: &PipeConfig) -> Result<(PipeWriter, PipeReader), PipeConfigError> {
    starting_at(config, 0)
}

/// A pipe whose positions begin at `start`, so that a test can start just before the wrap-around.
fn starting_at(
    config: &PipeConfig,
    start: usize,
) -> Result<(PipeWriter, PipeReader), PipeConfigError> {
    let frame = config.sample.bytes().checked_mul(config.channels).unwrap_or(0);
    if frame == 0 || config.capacity_frames == 0 {
        return Err(PipeConfigError::Empty);
    }
    let capacity = config.capacity_frames.checked_mul(frame).ok_or(PipeConfigError::OutOfMemory)?;
    let (pause, resume) = Core::thresholds(config.backpressure, frame, capacity);
    if pause == 0 || pause > capacity || resume >= pause {
        return Err(PipeConfigError::Thresholds);
    }
    if config.underrun == UnderrunPolicy::Repeat && !config.sample.can_fade() {
        return Err(PipeConfigError::CannotFade);
    }
    let core = Arc::new(Core {
        memory: Memory::new(capacity, config.mirrored).ok_or(PipeConfigError::OutOfMemory)?,
        positions: Positions::new(start),
        shared_head: (config.overflow == OverflowPolicy::DropOldest)
            .then(|| SharedHead::new(start)),
        capacity,
        frame,
        odd_frame: !frame.is_power_of_two(),
        rate: config.rate,
        pause,
        resume,
        writer: CachePadded::default(),
        reader: CachePadded::default(),
        clear: CachePadded::default(),
    });
    let conceal = match config.underrun {
        UnderrunPolicy::Repeat => Concealer::repeat(config.sample, frame, fade_frames(config.rate)),
        UnderrunPolicy::Silence | UnderrunPolicy::Short => Concealer::silence(config.sample, frame),
    };
    let (writer_stamps, writer_heard) = latest(None);
    let (reader_stamps, reader_heard) = latest(None);
    let gap = (config.underrun, conceal);
    let reader = PipeReader::new(core.clone(), start, gap, reader_stamps, writer_heard);
    Ok((PipeWriter::new(core, start, config.overflow, writer_stamps, reader_heard), reader))
}

/// 10 ms: long enough not to click, short enough not to be heard as a tone. 480 without a rate.
fn fade_frames(rate: u32) -> usize {
    if rate == 0 { 480 } else { usize::try_from(rate / 100).unwrap_or(480) }
}

#[cfg(test)]
mod tests;

//! Sources that read from a file descriptor: FIFO, TCP, process, standard input, web radio,
//! another Snapcast server, a Sendspin server.
//!
//! A feeder is polled on a tick and not woken by its descriptor. A sender of single frames would
//! otherwise cause a wake-up for each (`docs/decisions/reactors.md`). The kernel's buffer covers
//! the time between ticks.

mod bytes;
mod child;
mod connect;
mod device_failure;
mod dj;
mod fifo;
mod fifo_error;
mod frames;
mod http;
mod insert;
mod process;
mod process_log;
mod segments;
mod sendspin;
mod snapcast;
mod stdin;
mod stream;
mod tcp;
#[cfg(test)]
mod testing;
mod thread;

use std::path::Path;

use aulos_core::{Instant, SampleFormat, SampleSpec, Span};
use aulos_proto::packets::EncodedFormat;

pub use aulos_rt::isolate_child;
pub use bytes::{ByteFeed, FEED_BLOCKS};
pub(crate) use connect::begin_resolve;
pub use connect::connect_to_any;
pub use device_failure::DeviceFailure;
pub use dj::{
    DJ_STALL_TIMEOUT, DjCounters, DjEndReason, DjFeeder, DjFeederState, DjMountPermit, DjMountSlot,
    DjStream,
};
pub use fifo::{FifoAccess, FifoCounters, FifoFeeder, FifoMode, make_fifo};
pub use fifo_error::FifoError;
pub use frames::{FrameReader, FrameWriter, PassedFrame, frame_channel};
pub use http::{HttpBody, HttpBodyEnd, HttpBodyError, HttpFeeder, HttpFeederCommand};
pub use insert::{InsertFeedStatus, InsertFeeder, InsertOutput, InsertProgram};
pub use process::{ProcessConfig, ProcessFeeder, split_arguments};
pub use process_log::{LogLine, ProgramExit};
pub use segments::{SegmentFeed, SegmentFeedState, SegmentItem, SegmentQueue, segment_channel};
pub use sendspin::{SendspinCounters, SendspinEndpoint, SendspinFeeder};
pub use snapcast::{SnapcastCounters, SnapcastFeeder, SnapcastServer};
pub use stdin::StdinFeeder;
pub use stream::{
    BodyMark, RAW_BYTES, RadioStreamInfo, StreamCounts, StreamError, StreamReader, StreamState,
    StreamWriter, stream_channel,
};
pub use tcp::{TcpClientFeeder, TcpServerFeeder};
pub use thread::spawn_feeder;

/// Moves bytes from a descriptor to the ring of a station when polled.
pub trait Feeder: Send {
    /// Reads what is available without waiting, and returns when to poll again.
    fn tick(&mut self, now: Instant) -> NextPoll;

    /// Whether a tick may wait all the same, because a library does. Then the feeder needs a thread
    /// of its own ([`spawn_feeder`]).
    fn may_block(&self) -> bool {
        false
    }
}

/// When to poll a feeder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPoll {
    /// Soon: audio is flowing.
    Soon,
    /// Later: the feeder is idle.
    Later,
    /// Never: the feeder has finished.
    Never,
}

/// The state of a feeder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedState {
    /// Open, without a sender.
    Waiting,
    /// A sender is connected.
    Running,
    /// It could not be opened or failed, and will be retried. Holds the system's error number;
    /// `EEXIST` where something else has the name of a FIFO.
    Failed(i32),
    /// The name of the server has no address; the name is looked up again.
    Unresolved,
    /// The device has failed or is suspended, and will be retried.
    DeviceFailed(DeviceFailure),
    /// The program has ended, and will be started again.
    Exited(ProgramExit),
    /// The program wrote nothing for so long that it was ended; it will be started again.
    Unresponsive(Span),
    /// The sender has gone and will not return (standard input).
    Finished,
    /// The last sender sent this instead of samples, and was refused.
    Encoded(EncodedFormat, SampleSpec),
}

impl FeedState {
    /// As [`FeedState::problem`], for the output of a program.
    #[must_use]
    pub fn program_problem(self, program: &Path) -> Option<String> {
        match self {
            Self::Failed(libc::ENOENT) if program.components().count() == 1 => {
                Some(format!("no program `{}` in PATH", program.display()))
            }
            Self::Failed(libc::ENOENT) => Some(format!("no such program: {}", program.display())),
            other => other.problem(),
        }
    }

    /// The problem as text, if there is one.
    #[must_use]
    pub fn problem(self) -> Option<String> {
        let error = match self {
            Self::Failed(error) => error,
            Self::Exited(exit) => return Some(exit.to_string()),
            Self::Unresponsive(span) => {
                let seconds = span.as_millis() / 1_000;
                return Some(format!("the program has written nothing for {seconds} s"));
            }
            Self::DeviceFailed(failure) => return Some(failure.to_string()),
            Self::Encoded(format, spec) => return Some(encoded_problem(format, spec)),
            Self::Unresolved => return Some("the name of the server has no address".to_owned()),
            _ => return None,
        };
        Some(match error {
            libc::EEXIST => FifoError::NotAFifo.to_string(),
            libc::EXDEV => crate::confined_open::OUTSIDE_ROOTS.to_owned(),
            error => system_error_text(error),
        })
    }
}

/// The system's text of an error, as `std::io::ErrorKind` words it elsewhere: without its number,
/// and in lower case, because it stands behind a colon.
pub(crate) fn system_error_text(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// What arrives instead of samples, and how to send samples.
fn encoded_problem(format: EncodedFormat, spec: SampleSpec) -> String {
    let (hz, channels) = (spec.rate.hz(), spec.layout.channels());
    let samples = match spec.format {
        SampleFormat::U8 => "u8",
        SampleFormat::S8 => "s8",
        SampleFormat::S16Le => "s16le",
        SampleFormat::S24Le => "s24le",
        SampleFormat::S32Le => "s32le",
        SampleFormat::F32 => "f32le",
        // ffmpeg has no such format.
        _ => {
            return format!(
                "{format} arrives, but samples are expected; decode it to {spec} before it is sent"
            );
        }
    };
    format!(
        "{format} arrives, but samples are expected; send the output of: \
         ffmpeg -re -i FILE -f {samples} -ar {hz} -ac {channels} -"
    )
}

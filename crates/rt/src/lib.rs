#![doc = include_str!("page.md")]

pub mod channel;
pub mod clock;
mod drop_queue;
mod latest;
mod limits;
mod line_queue;
mod log;
pub mod main_loop;
pub mod notify;
pub mod pipe;
mod pool;
#[cfg(unix)]
pub mod receive;
pub mod ring;
pub mod scratch;
mod slots;
mod spsc;
mod sync;
mod sys;
mod wake;
pub mod writer_ring;

pub use drop_queue::{DropCollector, DropQueue, drop_queue};
pub use latest::{LatestPublisher, LatestReader, latest};
pub use line_queue::{LineSender, LineWriter, LostLines, line_queue};
pub use log::{LogEntry, RtLog, RtLogReader, rt_log};
pub use pool::{Pool, Pooled, SharedPooled};
pub use sys::DynamicLibrary;
#[cfg(unix)]
pub use sys::isolate_child;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#![doc = include_str!("page.md")]

mod bell;
pub mod channel;
pub mod clock;
mod discard;
mod latest;
mod limits;
mod log;
pub mod main_loop;
pub mod notify;
pub mod pipe;
mod pool;
pub mod ring;
mod slots;
mod spsc;
mod sync;
mod sys;
pub mod writer_ring;

pub use discard::{Bin, Collector, bin};
pub use latest::{Publisher, Reader, latest};
pub use log::{LogEntry, RtLog, RtLogReader, rt_log};
pub use pool::{Pool, Pooled, Shared};

//! Wait-free pipes, rings, pools and cells for real-time threads.
//!
//! Everything here is for a thread that must not wait: an audio callback, a station between two
//! quanta. Full and empty are answers, never waits; memory is made at construction and freed after
//! use by whoever drops the last end. What holds for each function is in its `# Real-time` line.
//!
//! | to hand over | use |
//! |---|---|
//! | "look here" to a thread that may not be woken | [`notify`] |
//! | a stream of bytes or frames, with back-pressure, silence and an end | [`pipe`] |
//! | items, each once, in order, to one other thread | [`ring`] |
//! | objects that must come back without being freed | [`Pool`] |
//! | what owns memory, to be dropped elsewhere | [`bin`] |
//! | facts for a log | [`rt_log`] |
//! | a state of which only the newest value matters | [`latest()`] |

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

pub use discard::{Bin, Collector, bin};
pub use latest::{Publisher, Reader, latest};
pub use log::{LogEntry, RtLog, RtLogReader, rt_log};
pub use pool::{Pool, Pooled, Shared};

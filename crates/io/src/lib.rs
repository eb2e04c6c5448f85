//! The I/O edge of the server: sockets, files, clocks and threads. The state machines of the other
//! crates decide; this crate performs their I/O.
//!
//! ```text
//!  feeders (FIFO, TCP, process, stdin) --ring--> Workers: Station --ring--> ReactorPool: reactors
//!  codec pool (files) ------------------ring-->                             sessions, listeners
//! ```

#![deny(unsafe_code)]

pub mod activation;
mod clock;
pub mod confined_open;
pub mod descriptors;
pub mod disk;
pub mod encoder;
pub mod feed;
pub mod file_writer;
pub mod mdns;
pub mod memory;
mod pool;
pub mod reactor;
pub mod replace;
mod retry_time;
mod slab;
mod source_path;
pub mod srt;
mod sys;
pub mod udp;
mod wheel;
mod worker;

pub use clock::SystemClock;
pub use pool::{CodecPool, Job, JobStatus};
pub use retry_time::RetryTime;
pub use source_path::SourcePath;
pub use worker::{WorkerTaskId, Workers};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

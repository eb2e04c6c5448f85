//! The source files of `aulos-rt`, compiled with loom's atomics.
//!
//! `cargo test --release --manifest-path crates/rt/loom/Cargo.toml` runs every model in `tests/`.
#![allow(dead_code)]

mod clock;
pub mod foreign;
mod limits;
pub mod models;
mod pipe {
    pub(crate) mod memory;
}
mod slots;
pub mod sync;
mod sys;

#[path = "../../src/pipe/clear.rs"]
mod clear;
#[path = "../../src/drop_queue.rs"]
pub mod drop_queue;
#[path = "../../src/latest.rs"]
pub mod latest;
#[path = "../../src/wake.rs"]
mod wake;
#[path = "../../src/channel/mod.rs"]
#[allow(unused_imports, reason = "the main loop, which models lack, uses more of it")]
pub mod channel;
#[path = "../../src/log.rs"]
pub mod log;
#[path = "../../src/notify/mod.rs"]
pub mod notify;
#[path = "../../src/pool.rs"]
pub mod pool;
#[path = "../../src/ring.rs"]
pub mod ring;
#[path = "../../src/spsc.rs"]
pub mod spsc;
#[path = "../../src/pipe/shared_head.rs"]
mod shared_head;
#[path = "../../src/writer_ring/mod.rs"]
pub mod writer_ring;

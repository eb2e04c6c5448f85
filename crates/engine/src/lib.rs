//! Decisions about sound, without I/O: where it comes from, how it is encoded, who gets it.
//!
//! ```text
//!  Source -> Input -+
//!  Source -> Input -+-> Switch -> Leveller -> Booth -> limiter -> Encoder -> ring per reactor -> Log
//!           (Gauge)     (one Station, one clock; a Gauge)             |                           |
//!                                    |-> Tap -> Patch -> another      |-> Rendition -> ...    cursors
//! ```
//!
//! A programmer's own graphs are built from the parts in [`graph`].
//!
//! Nothing here reads a clock or touches a socket: `now` is an argument, and a test can run hours
//! in milliseconds.

#![forbid(unsafe_code)]

pub mod announce;
pub mod decode;
pub mod encode;
pub mod fanout;
pub mod generate;
pub mod graph;
pub mod input;
pub mod loudness;
pub mod loudness_processor;
pub mod output_bus;
pub mod recorder;
pub mod rendition;
pub mod servo;
pub mod source;
pub mod standby;
pub mod station;
pub mod status;
pub mod swappable_source;
pub mod switch;

//! Sans-IO machines that join a protocol and sound.
//!
//! ```text
//!  bytes, datagrams (proto)            sound (engine)
//!        Snapcast ----- player ---------- a sound device
//!        Snapcast ---- snapcast --------- a station's input
//!        Sendspin ---- sendspin --------- a station's input
//!        NATS --------- nats ----------- a station's input
//!        RTP ----------- rtp ----------- a station's input, a rendition
//!        RTP ---------- relay ---------- transcoded, without a station
//!        HTTP --------- radio ---------- the body of a stream
//!        HLS --------- hls_source ------ the segments of a stream
//!        Icecast --- live_source ------- the body of a stream
//!        Icecast ------- push ---------- a rendition
//!        (files) ----- playlist -------- the order in which a station plays them
//!        SRT ------------ srt ---------- the payloads of a stream, in and out
//!        HLS ------------ hls ---------- a station's output
//!        a microphone -- talk ---------- an announcement
//!        (texts) ---- title_output ----- when a title goes to an RDS encoder or a program
//! ```
//!
//! `aulos-proto` and `aulos-engine` know nothing of each other; what needs both is here. A machine
//! has no clock, socket, file or thread: `now` is an argument, and what it sends is an output. So
//! hours of a bad network are tested in seconds, and the edge (`aulos-io`) only performs the I/O.

#![forbid(unsafe_code)]

mod block_sink;
pub mod connect;
pub mod datagram;
pub mod flac_stream;
#[cfg(feature = "hls")]
pub mod hls;
pub mod hls_source;
pub mod live_source;
pub mod mount;
pub mod nats;
pub mod player;
pub mod playlist;
pub mod push;
pub mod radio;
pub mod relay;
pub mod rtp;
#[cfg(feature = "sendspin")]
pub mod sendspin;
pub mod snapcast;
#[cfg(feature = "srt")]
pub mod srt;
pub mod talk;
mod timed_chunk;
pub mod title_output;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

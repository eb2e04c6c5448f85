//! MPEG transport streams (ISO/IEC 13818-1) with sound, as HLS, SRT and DVB carry it.
//!
//! [`TsDemuxer`] takes packets of 188 bytes and gives the bytes of one elementary stream, the first
//! sound that can be decoded. [`PacketSplitter`](crate::packets::PacketSplitter) recognizes
//! transport streams, finds their packets, and cuts those bytes into frames with their times.
//!
//! [`TsMuxer`] writes a stream with one sound.
//!
//! Sources: ISO/IEC 13818-1 (packets, tables, PES), ETSI TS 101 154 and EN 300 468 (types and
//! descriptors of sound), Opus in MPEG-TS (opus-codec.org), timed metadata for HLS.

mod demux;
mod mux;
mod packet;
mod pes;
mod section;
mod tables;
#[cfg(test)]
mod tests;
mod time;

pub use demux::{TsDemuxer, TsEvent};
pub use mux::TsMuxer;
pub use packet::TS_PACKET;
pub use tables::{TsCodec, UnsupportedTsCodec};
pub use time::{TsTime, TsTimeline};

pub(crate) use packet::is_sync;

//! The packets of SRT (draft-sharabayko-srt-01), live mode: data, handshakes, reports, keys.
//!
//! ```text
//!  datagram -> SrtPacket::parse -> Data    { sequence, message, timestamp, payload }
//!                            -> SrtControl { kind: Handshake | Ack | Nak | ... }
//! ```
//!
//! This is the wire format alone: a packet that parses is well formed, and nothing more is known of
//! it. Connections, retransmission and encryption are in `aulos_session::srt`.
//! `docs/decisions/srt.md` has the reason for own code. Integers are big-endian.

mod handshake;
mod key_material;
mod packet;
mod sequence;
mod words;

pub use handshake::{
    Extensions, Handshake, HandshakeKind, HandshakeTime, INDUCTION_MAGIC, MAX_STREAM_ID,
    RejectCode, SrtFlags,
};
pub use key_material::{KeyMaterial, KeyParity, KeySlots, MAX_WRAPPED, SALT_BYTES};
pub use packet::{
    Acknowledgement, ControlKind, DataPacket, HEADER_BYTES, LossRange, LossRanges, MAX_PAYLOAD,
    SrtControl, SrtPacket,
};
pub use sequence::Sequence;

#[cfg(test)]
mod tests;

//! RTP (RFC 3550): sound in datagrams, and what its peers tell each other about it.
//!
//! ```text
//!  datagram -> is_rtcp? -> Packet (checked view) -> Receiver (numbers, loss, jitter) -> jitter buffer
//! ```
//!
//! Beside that way stand the sources of a port ([`Table`]), what is told about them ([`report`]), what
//! their payloads mean ([`payload`]), and what repairs them ([`red`], [`legs`]).
//!
//! What is here is written from the RFCs, and `docs/standards/rtp.md` lists what we do and do not. The
//! crate `rtp-types` does not tell a lying CSRC count from a lying extension, nor either from a datagram
//! that was cut, and each has to be counted by itself. `rtcp-types` allocates for every SDES that it
//! reads and every compound that it builds, and takes the leading zeros of an SSRC in SDES for padding;
//! it judges ours in the tests (`docs/decisions/rtp-formats.md`).
//!
//! Nothing here allocates for a packet. Whatever comes is counted by kind, and bounded.

pub mod legs;
mod packet;
pub mod payload;
mod receiver;
pub mod red;
pub mod report;
pub mod rtcp;
pub mod sequence;
mod slots;
mod table;

pub use packet::{Extension, HEADER_LEN, Header, MAX_SOURCES, Malformed, Packet, Refused, is_rtcp};
pub use payload::{Codec, Encoding};
pub use receiver::{
    Accepted, MAX_DROPOUT, MAX_JUMP_SECONDS, MAX_MISORDER, MIN_SEQUENTIAL, Position, Receiver,
    Reception, Tally,
};
pub use table::{Found, Id, Identity, MAX_CONFLICTS, Table, TableConfig, TableTally, Whose};

//! RTP (RFC 3550): sound in datagrams, and what its peers tell each other about it.
//!
//! ```text
//!  datagram -> is_rtcp? -> Packet (checked view) -> Receiver (numbers, loss, jitter) -> jitter buffer
//! ```
//!
//! What is here is written from the RFCs. The crates `rtp-types` and `rtcp-types` were tried first:
//! the one tells neither a lying CSRC count from a lying extension nor either from a datagram that
//! was cut, and each has to be counted by itself; the other allocates for every SDES that it reads
//! and for every packet that it builds, checks the version of the first packet of a compound alone,
//! and takes the leading zeros of an SSRC in SDES for padding. `rtcp-types` judges ours in the tests.
//!
//! Nothing here allocates for a packet. Whatever comes is counted by kind, never believed twice.

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

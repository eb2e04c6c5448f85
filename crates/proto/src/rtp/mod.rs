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
//!
//! # Examples
//! A port on which any number of sources send, driven by hand:
//! ```
//! use core::net::SocketAddr;
//!
//! use aulos_core::{Instant, Span};
//! use aulos_proto::rtp::report::{Event, Rtcp, RtcpConfig};
//! use aulos_proto::rtp::{
//!     Accepted, Found, HEADER_LEN, Header, Packet, Receiver, Refused, Table, TableConfig, is_rtcp,
//! };
//!
//! struct Port {
//!     table: Table<Receiver>,
//!     rtcp: Rtcp,
//!     refused: Refused,
//!     reported: u32,
//! }
//!
//! impl Port {
//!     fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
//!         if is_rtcp(datagram) {
//!             // What cannot be read is counted in there.
//!             _ = self.rtcp.handle_input(now, datagram, |event| {
//!                 if let Event::Left { ssrc } = event {
//!                     println!("{ssrc} is gone");
//!                 }
//!             });
//!             return;
//!         }
//!         let packet = match Packet::parse(datagram) {
//!             Ok(packet) => packet,
//!             Err(why) => return self.refused.count(why),
//!         };
//!         let id = match self.table.enter(now, packet.ssrc(), from, Receiver::new) {
//!             Found::Known(id) | Found::Moved(id) | Found::Entered(id, _) => id,
//!             Found::Collision | Found::Full => return,
//!         };
//!         let Some(receiver) = self.table.get_mut(id) else { return };
//!         match receiver.receive(now, packet.sequence(), packet.timestamp(), 8_000) {
//!             Accepted::Valid(_position) | Accepted::Restarted(_position) => {
//!                 // What was held, and then packet.payload(), goes to the jitter buffer.
//!                 self.table.prove(id);
//!                 self.rtcp.received(now, packet.ssrc());
//!             }
//!             Accepted::Probation { .. } | Accepted::Stray => { /* to be held */ }
//!             Accepted::Duplicate => {}
//!         }
//!     }
//!
//!     /// Called when `rtcp.poll_timeout()` says so.
//!     fn report(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
//!         self.rtcp.handle_timeout(now, |_| ());
//!         let sources = self.table.iter_mut_after(self.reported).filter_map(|(ssrc, receiver)| {
//!             let reception = receiver.report()?;
//!             self.reported = ssrc;
//!             Some((ssrc, reception))
//!         });
//!         self.rtcp.poll_output(now, out, sources)
//!     }
//! }
//!
//! let mut port = Port {
//!     table: Table::new(TableConfig::default()),
//!     rtcp: Rtcp::new(RtcpConfig::default(), Instant::ZERO),
//!     refused: Refused::default(),
//!     reported: 0,
//! };
//! let (mut now, from) = (Instant::ZERO, "192.0.2.1:5004".parse()?);
//! for sequence in 0..500 {
//!     let header = Header { sequence, timestamp: 160 * u32::from(sequence), ssrc: 7, ..Header::default() };
//!     let mut datagram = [0; HEADER_LEN + 160];
//!     assert_eq!(header.write(&mut datagram), Some(HEADER_LEN));
//!     port.receive(now, from, &datagram);
//!     now += Span::from_millis(20);
//! }
//! let mut out = [0; 1_200];
//! assert!(port.report(now, &mut out).is_some_and(|length| length > 32), "with a block about 7");
//! # Ok::<(), core::net::AddrParseError>(())
//! ```

pub mod dual_path;
pub mod jitter;
mod packet;
pub mod payload;
mod receiver;
pub mod red;
pub mod rtcp;
pub mod rtcp_session;
pub mod sequence;
mod source_table;
mod ssrc_map;

pub use packet::{
    HEADER_LEN, HeaderExtension, MAX_SOURCES, RtpError, RtpErrorCounts, RtpHeader, RtpPacket,
    is_rtcp,
};
pub use payload::{Encoding, RtpCodec};
pub use receiver::{
    MAX_DROPOUT, MAX_JUMP_SECONDS, MAX_MISORDER, MIN_SEQUENTIAL, PacketPosition, ReceiveOutcome,
    Receiver, ReceiverStats, ReceptionReport,
};
pub use source_table::{
    LocalSsrc, MAX_CONFLICTS, SourceId, SourceLookup, SourceTable, SourceTableConfig,
    SourceTableStats, SsrcCheck,
};

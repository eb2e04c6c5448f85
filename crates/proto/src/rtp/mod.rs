//! RTP (RFC 3550) with RTCP and jitter buffer.
//!
//! ```text
//!  datagram -> is_rtcp? -> RtpPacket (checked view) -> RtpReceiver (loss, jitter) -> jitter buffer
//! ```
//!
//! Other parts are the table of a port's sources ([`SourceTable`]), RTCP sessions
//! ([`rtcp_session`]), payload types ([`payload`]), and protection against loss ([`red`],
//! [`dual_path`]).
//!
//! The implementation follows the RFCs; `docs/standards/rtp.md` lists what is and is not supported.
//! `docs/decisions/rtp-formats.md` has the reason for own code; the tests check it with the crate
//! `rtcp-types`.
//!
//! No packet causes an allocation. Everything that is received is counted by kind, and all memory
//! is bounded.
//!
//! # Examples
//! A port with any number of sources:
//! ```
//! use core::net::SocketAddr;
//!
//! use aulos_core::{Instant, Span};
//! use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpEvent, RtcpSession};
//! use aulos_proto::rtp::{
//!     HEADER_LEN, RtpReceiver, ReceiveOutcome, RtpErrorCounts, RtpHeader, RtpPacket, SourceLookup,
//!     SourceTable, SourceTableConfig, is_rtcp,
//! };
//!
//! struct Port {
//!     table: SourceTable<RtpReceiver>,
//!     rtcp: RtcpSession,
//!     refused: RtpErrorCounts,
//!     reported: u32,
//! }
//!
//! impl Port {
//!     fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
//!         if is_rtcp(datagram) {
//!             // Invalid datagrams are counted by the session.
//!             _ = self.rtcp.handle_input(now, datagram, |event| {
//!                 if let RtcpEvent::Left { ssrc } = event {
//!                     println!("{ssrc} has left");
//!                 }
//!             });
//!             return;
//!         }
//!         let packet = match RtpPacket::parse(datagram) {
//!             Ok(packet) => packet,
//!             Err(why) => return self.refused.count(why),
//!         };
//!         let id = match self.table.find_or_insert(now, packet.ssrc(), from, RtpReceiver::new) {
//!             SourceLookup::Known(id)
//!             | SourceLookup::Moved(id)
//!             | SourceLookup::Inserted(id, _) => id,
//!             SourceLookup::Collision | SourceLookup::Full => return,
//!         };
//!         let Some(receiver) = self.table.get_mut(id) else { return };
//!         match receiver.receive(now, packet.sequence(), packet.timestamp(), 8_000) {
//!             ReceiveOutcome::Valid(_position) | ReceiveOutcome::Restarted(_position) => {
//!                 // Insert the held packets, then packet.payload(), into the jitter buffer.
//!                 self.table.mark_valid(id);
//!                 self.rtcp.record_received(now, packet.ssrc());
//!             }
//!             ReceiveOutcome::Probation { .. } | ReceiveOutcome::Stray => { /* hold it */ }
//!             ReceiveOutcome::Duplicate => {}
//!         }
//!     }
//!
//!     /// Called at `rtcp.poll_timeout()`.
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
//!     table: SourceTable::new(SourceTableConfig::default()),
//!     rtcp: RtcpSession::new(RtcpConfig::default(), Instant::ZERO),
//!     refused: RtpErrorCounts::default(),
//!     reported: 0,
//! };
//! let (mut now, from) = (Instant::ZERO, "192.0.2.1:5004".parse()?);
//! for sequence in 0..500 {
//!     let timestamp = 160 * u32::from(sequence);
//!     let header = RtpHeader { sequence, timestamp, ssrc: 7, ..RtpHeader::default() };
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
    ReceiverStats, ReceptionReport, RtpReceiver,
};
pub use source_table::{
    LocalSsrc, MAX_CONFLICTS, SourceId, SourceLookup, SourceTable, SourceTableConfig,
    SourceTableStats, SsrcCheck,
};

//! The receiving side of RTP, for a station's source and for a relay.
//!
//! ```text
//!  datagram -> RtpReceiveConfig::parse -> IncomingPacket -> RtpIngress -> packets in order, gaps
//!                     (payload type, RED)                   (RtpReceiver, JitterBuffer, PayloadStore)
//! ```
//!
//! It neither decodes nor forwards: its users do, with the packets that [`ingress::RtpIngress`]
//! releases.

mod config;
pub(crate) mod ingress;
pub(crate) mod payload;
pub(crate) mod store;

pub use config::{MAX_REORDER_DELAY, RtpPayloadFormat, RtpReceiveConfig};

//! Snapcast: the stream protocol (TCP 1704, WebSocket `/stream`) and the framing of the control
//! protocol (1705).
//!
//! Written from observation of the wire and of the published behaviour of Snapcast 0.26 to 0.34;
//! `docs/standards/snapcast.md` lists what is and is not supported. The protocol has one message
//! framing for both directions ([`wire`]), one server-side machine ([`Session`]) and one
//! client-side machine ([`client::SnapcastClient`]). A common state machine for both sides was
//! rejected: they share nothing but the framing.

pub mod client;
pub mod control;
pub mod session;
pub mod sync;
pub mod wire;

pub use client::SnapcastClient;
pub use session::Session;
pub use sync::TimeSync;

//! SRT in live mode (draft-sharabayko-srt-01): connections, retransmission, encryption.
//!
//! ```text
//!  datagrams --> SrtEndpoint ----------------------------------> payloads, at their time
//!                 caller: induction, conclusion   Connection
//!                 listener: cookie, one caller      Receiver: order, NAK, ACK, play-out time
//!  datagrams <--                                    Sender:   copies until they are acknowledged
//!                                                   Keys:     AES-CTR, a new key in time
//! ```
//!
//! [`SrtEndpoint`] is the machine; the edge gives it datagrams and the time. Either side may send.
//! What the payloads contain is not known here. Not supported, and refused with a reason where a
//! peer asks for it: rendezvous, groups of connections, packet filters, files.
//!
//! # What a stranger can do
//! A listener answers an induction with a cookie and keeps nothing: the cookie is a code of the
//! address and the minute under a key of the process. Only a caller that got it can take the seat,
//! and it loses the seat after three seconds unless a packet for the connection's random number
//! follows, so that a handshake that is sent again from a forged address does not keep others out.
//! Deriving a key costs a millisecond; it is done for a few handshakes a second only.

mod agreement;
mod caller;
mod config;
mod connection;
mod encryption;
mod endpoint;
mod keys;
mod listener;
mod output;
mod receiver;
mod round_trip;
mod secret;
mod sender;

pub use config::{SrtConfig, SrtListenerConfig};
pub use endpoint::{SrtEndpoint, SrtStatus};
pub use output::{SrtCloseReason, SrtOutput};
pub use secret::{PassphraseError, SrtPassphrase};

#[cfg(test)]
mod tests;

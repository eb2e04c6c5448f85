//! What an endpoint wants done, and why its connections end.

use core::fmt;
use core::net::SocketAddr;
use std::collections::VecDeque;

use aulos_proto::srt::{RejectCode, SrtPacket};

/// What an endpoint wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SrtOutput {
    /// Send a datagram.
    Transmit {
        /// Where to.
        to: SocketAddr,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// There is a connection.
    Connected {
        /// The other end.
        peer: SocketAddr,
        /// The stream id of the caller.
        stream_id: Option<String>,
    },
    /// A payload at the time of its play-out.
    Payload(Vec<u8>),
    /// A caller was refused.
    Refused {
        /// Its address.
        from: SocketAddr,
        /// The reason, which it was told.
        code: RejectCode,
    },
    /// The connection is over. A caller has to be made anew; a listener waits for the next one.
    Closed(SrtCloseReason),
}

/// Why a connection is over, or has not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SrtCloseReason {
    /// The peer has ended it.
    Closed,
    /// Nothing has arrived for five seconds.
    Silent,
    /// The listener does not answer.
    NoAnswer,
    /// The listener refuses.
    Refused(RejectCode),
    /// The listener's handshake is invalid.
    InvalidHandshake,
    /// The peer's numbers jump further than its window.
    Discontinuity,
    /// The peer does not take the next key.
    KeyRefused,
}

impl fmt::Display for SrtCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer has closed the connection"),
            Self::Silent => f.write_str("the peer has sent nothing for 5 s"),
            Self::NoAnswer => f.write_str("nobody answers"),
            Self::Refused(code) => write!(f, "the peer refuses: {code}"),
            Self::InvalidHandshake => f.write_str("the peer's handshake is invalid"),
            Self::Discontinuity => f.write_str("the peer's sequence numbers jump"),
            Self::KeyRefused => f.write_str("the peer refuses the next key"),
        }
    }
}

/// What waits to be done.
#[derive(Debug, Default)]
pub(super) struct Outputs(pub(super) VecDeque<SrtOutput>);

impl Outputs {
    pub(super) fn push(&mut self, output: SrtOutput) {
        self.0.push_back(output);
    }

    pub(super) fn transmit(&mut self, to: SocketAddr, packet: &SrtPacket<'_>) {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        self.push(SrtOutput::Transmit { to, bytes });
    }
}

//! The configuration of a context.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use aulos_core::Span;
use aulos_session::datagram::StreamKey;

use super::socket::SocketOptions;

/// The configuration of a context.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UdpConfig {
    /// The number of threads: one for each processor that can be spared. More threads cost without
    /// gain.
    pub threads: usize,
    /// The interval of polls, 1 to 20 ms. It adds at most this much delay, half of it on average.
    pub wait: Span,
    /// The longest datagram accepted, 256 to 65,507 bytes; longer ones are counted and dropped.
    pub max_datagram: usize,
    /// Whether consecutive datagrams of the same length to the same destination are passed to the
    /// kernel as one. The receiver sees no difference.
    pub join_sends: bool,
    /// The local address that the context sends from; the kernel chooses the port.
    pub bind_v4: Ipv4Addr,
    /// The same for IPv6; optional on a machine without IPv6.
    pub bind_v6: Ipv6Addr,
    /// The options of the context's own sockets.
    pub send: SocketOptions,
    /// Finds the stream of a packet that arrives at one of the context's own sockets; by default
    /// the SSRC that an RTCP packet reports about. See
    /// [`Outbox::claim`](aulos_session::datagram::Outbox::claim).
    pub answer_key: AnswerKeyFn,
}

/// A function that finds the key of an answer.
pub type AnswerKeyFn = fn(&[u8], SocketAddr) -> Option<StreamKey>;

impl Default for UdpConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: cores.min(MAX_DEFAULT_THREADS),
            wait: Span::from_millis(5),
            max_datagram: 9_216,
            join_sends: true,
            bind_v4: Ipv4Addr::UNSPECIFIED,
            bind_v6: Ipv6Addr::UNSPECIFIED,
            send: SocketOptions { send_buffer: SEND_BUFFER, ..SocketOptions::default() },
            answer_key: |bytes, _| StreamKey::reported_ssrc(bytes),
        }
    }
}

const MAX_DEFAULT_THREADS: usize = 4;

/// The datagrams of one tick of thousands of streams, in the kernel's accounting.
const SEND_BUFFER: usize = 4 << 20;

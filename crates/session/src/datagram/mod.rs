//! State machines that datagrams drive, and what they send.
//!
//! The machines of this crate that use UDP ([`RelayStream`](crate::relay::RelayStream),
//! [`RtpSession`](crate::rtp::RtpSession)) implement [`Machine`]; a program's own machines may as
//! well. `aulos_io::udp` runs thousands of them on a few threads: it reads the sockets, passes the
//! [`Packets`] on, calls [`Machine::handle_timeout`] when [`Machine::poll_timeout`] says so, and
//! sends what a [`SendQueue`] holds. The machines know none of that, so a test drives them in
//! virtual time.
//!
//! One queue for all machines of a thread, instead of a list of outputs per machine: a system call
//! per datagram is the largest cost of a transport with many streams, and this way 64 datagrams
//! share a call whichever machine wrote them.

mod machine;
mod outbox;
mod queue;
mod stream_key;
#[cfg(test)]
pub(crate) mod testing;

pub use machine::{Machine, MachineFactory, Packet, Packets};
pub use outbox::{Outbox, Route};
pub use queue::{PACE_AHEAD, QueuedDatagram, SendQueue};
pub use stream_key::StreamKey;

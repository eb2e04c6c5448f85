//! Passes queued datagrams to the kernel, 64 messages per call.
//!
//! Consecutive datagrams of the same length to the same destination form one message
//! (`UDP_SEGMENT`), which the kernel or the network interface splits again. The receiver sees
//! ordinary datagrams.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use aulos_session::datagram::{QueuedDatagram, SendQueue};

use super::stats::UdpStats;
use crate::sys::{SendMessage, Sender};

/// A socket, and whether it is an IPv6 socket.
type SendSocket<'a> = (BorrowedFd<'a>, bool);

/// The buffers for sending.
pub(super) struct BatchSender {
    sender: Sender,
    messages: Vec<SendMessage>,
    /// Whether consecutive datagrams are joined.
    pub(super) joins_datagrams: bool,
}

impl BatchSender {
    pub(super) fn new(joins_datagrams: bool) -> Self {
        Self {
            sender: Sender::new(MESSAGES_PER_CALL),
            messages: Vec::with_capacity(MESSAGES_PER_CALL),
            joins_datagrams,
        }
    }

    /// Sends what is ready; what the kernel has no room for stays queued. `post` finds the socket
    /// for an address.
    pub(super) fn flush<'a>(
        &mut self,
        queue: &mut SendQueue,
        post: impl Fn(Option<u64>, bool) -> Option<SendSocket<'a>>,
        stats: &mut UdpStats,
    ) {
        queue.drain_runs(|run, bytes| {
            let Some(first) = run.first() else { return 0 };
            match post(first.from, first.to.is_ipv6()) {
                Some(post) => self.send_run(run, bytes, post, stats),
                None => {
                    stats.send_errors += run.len() as u64;
                    0
                }
            }
        });
    }

    /// Sends the datagrams of one socket, and returns how many remain.
    fn send_run(
        &mut self,
        mut entries: &[QueuedDatagram],
        bytes: &[u8],
        (socket, ipv6): SendSocket<'_>,
        stats: &mut UdpStats,
    ) -> usize {
        let (mut joins, mut again) = (self.joins_datagrams, true);
        while !entries.is_empty() {
            join_entries(entries, ipv6, joins, &mut self.messages);
            stats.sends += 1;
            let result = self.sender.send(socket, &self.messages, bytes);
            let sent = match result {
                Ok(sent) => {
                    again = true;
                    sent
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_buffer_full(&error) => {
                    stats.send_waits += 1;
                    return entries.len();
                }
                // The error belongs to an earlier datagram.
                Err(error) if again && error.kind() == ErrorKind::ConnectionRefused => {
                    stats.send_errors += 1;
                    again = false;
                    continue;
                }
                Err(_) if self.messages.first().is_some_and(|first| first.segment.is_some()) => {
                    // The message is too long for the path, or the kernel does not support joined
                    // sends.
                    stats.split += datagram_count(&self.messages[0]) as u64;
                    joins = false;
                    continue;
                }
                Err(_) => {
                    stats.send_errors += 1;
                    entries = &entries[1..];
                    continue;
                }
            };
            for message in &self.messages[..sent.min(self.messages.len())] {
                let parts = datagram_count(message);
                stats.sent += parts as u64;
                stats.sent_bytes += message.bytes.len() as u64;
                stats.sent_joined += if parts > 1 { parts as u64 } else { 0 };
                entries = &entries[parts.min(entries.len())..];
            }
            if sent == 0 {
                return entries.len();
            }
        }
        0
    }
}

/// Builds the messages of one call. Consecutive datagrams are contiguous in memory.
fn join_entries(
    entries: &[QueuedDatagram],
    ipv6: bool,
    joins: bool,
    messages: &mut Vec<SendMessage>,
) {
    messages.clear();
    let mut last: Option<(SocketAddr, usize)> = None;
    for entry in entries {
        let range = entry.range();
        let len = range.len();
        if let (Some((to, parts)), Some(message)) = (last, messages.last_mut())
            && joins
            && to == entry.to
            && parts < MAX_PARTS
            && message.bytes.end == range.start
            && message.bytes.len() + len <= MAX_JOINED
        {
            let size = message.segment.map_or_else(|| message.bytes.len(), usize::from);
            // All have the same length except the last, which may be shorter.
            let is_full = message.bytes.len().is_multiple_of(size);
            if let (true, true, Ok(segment)) = (is_full, len <= size, u16::try_from(size)) {
                message.segment = Some(segment);
                message.bytes.end += len;
                last = Some((to, parts + 1));
                continue;
            }
        }
        if messages.len() == MESSAGES_PER_CALL {
            break;
        }
        let to = if ipv6 { to_ipv4_mapped(entry.to) } else { entry.to };
        messages.push(SendMessage { to, bytes: range, segment: None });
        last = Some((entry.to, 1));
    }
}

fn datagram_count(message: &SendMessage) -> usize {
    message.segment.map_or(1, |size| message.bytes.len().div_ceil(usize::from(size).max(1)))
}

/// Maps an IPv4 address for an IPv6 socket.
fn to_ipv4_mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether the kernel is only temporarily out of room.
fn is_buffer_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

/// Messages per call; more bring no gain.
const MESSAGES_PER_CALL: usize = 64;

/// Datagrams per message (`UDP_MAX_SEGMENTS` of older kernels), and their bytes.
const MAX_PARTS: usize = 64;
const MAX_JOINED: usize = 65_000;

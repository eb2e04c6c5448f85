//! The counters of a thread and of a stream.

use aulos_core::Span;

/// Counters of one UDP thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Current streams.
    pub streams: u64,
    /// Watched sockets.
    pub sockets: u64,
    /// Datagrams delivered to a stream.
    pub packets: u64,
    /// The bytes of these datagrams.
    pub bytes: u64,
    /// Delivered packets that the kernel received joined with others, on a trunk.
    pub joined: u64,
    /// Dropped by the kernel because a socket's buffer was full: enlarge the buffer. Reported with
    /// the next packet of the socket.
    pub lost_in_kernel: u64,
    /// Dropped because they exceed the longest datagram.
    pub truncated: u64,
    /// Dropped because they were empty.
    pub empty: u64,
    /// Dropped because they belong to no stream: not RTP on a shared port, or an answer without a
    /// claim.
    pub keyless: u64,
    /// Dropped on shared ports because a new stream was refused.
    pub refused: u64,
    /// Streams of shared ports that ended after a long silence, or were replaced by a new stream.
    pub expired: u64,
    /// Failed reads, including ICMP errors for datagrams sent earlier.
    pub receive_errors: u64,
    /// Receive calls.
    pub receives: u64,
    /// Sockets that had more than one poll may read; the next poll continues.
    pub backlogs: u64,
    /// Datagrams passed to the kernel.
    pub sent: u64,
    /// The bytes of these datagrams.
    pub sent_bytes: u64,
    /// Send calls.
    pub sends: u64,
    /// Datagrams sent joined with others.
    pub sent_joined: u64,
    /// Joined datagrams that had to be sent one by one.
    pub split: u64,
    /// Datagrams that could not be sent: no route, too long, or refused.
    pub send_errors: u64,
    /// Times that the kernel was out of room, so that the rest was kept for the next tick.
    pub send_waits: u64,
    /// Datagrams dropped because too much was queued.
    pub send_drops: u64,
    /// Wake-ups of the thread.
    pub wakes: u64,
    /// Wake-ups for paced datagrams.
    pub paced_wakes: u64,
    /// Missed ticks, because the previous one took too long or the thread was scheduled late.
    pub overruns: u64,
    /// CPU time of the thread.
    pub cpu: Span,
}

impl UdpStats {
    /// CPU time per datagram delivered to a stream; `None` before the first.
    #[must_use]
    pub fn cpu_per_packet(&self) -> Option<Span> {
        let packets = i64::try_from(self.packets).ok().filter(|packets| *packets > 0)?;
        Some(self.cpu / packets)
    }

    /// Adds the counters of another thread.
    pub fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.sockets += other.sockets;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.joined += other.joined;
        self.lost_in_kernel += other.lost_in_kernel;
        self.truncated += other.truncated;
        self.empty += other.empty;
        self.keyless += other.keyless;
        self.refused += other.refused;
        self.expired += other.expired;
        self.receive_errors += other.receive_errors;
        self.receives += other.receives;
        self.backlogs += other.backlogs;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.sends += other.sends;
        self.sent_joined += other.sent_joined;
        self.split += other.split;
        self.send_errors += other.send_errors;
        self.send_waits += other.send_waits;
        self.send_drops += other.send_drops;
        self.wakes += other.wakes;
        self.paced_wakes += other.paced_wakes;
        self.overruns += other.overruns;
        self.cpu += other.cpu;
    }
}

/// Counters of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Datagrams delivered to it.
    pub packets: u64,
    /// The bytes of these datagrams.
    pub bytes: u64,
    /// Dropped by the kernel because the buffer of its own socket was full.
    pub lost_in_kernel: u64,
    /// Dropped because they exceed the longest datagram.
    pub truncated: u64,
}

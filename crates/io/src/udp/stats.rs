//! What is counted, of a thread and of a stream. Each number says one thing that somebody can act on.

use aulos_core::Span;

/// Counters of one shared thread, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Streams that are served now.
    pub streams: u64,
    /// Sockets that are watched now.
    pub sockets: u64,
    /// Datagrams given to a stream.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the packets, those that the kernel gave joined with others, on a trunk.
    pub joined: u64,
    /// Lost in the kernel, because a socket's buffer was full: it wants a larger one. Known when the
    /// next one of that socket comes.
    pub lost_in_kernel: u64,
    /// Lost because they were longer than the longest that is taken.
    pub truncated: u64,
    /// Lost because nothing was in them.
    pub empty: u64,
    /// Lost because they are of no stream: not RTP on a shared port, an answer that nobody claims.
    pub keyless: u64,
    /// Lost on shared ports because a new stream was refused.
    pub refused: u64,
    /// Streams of shared ports that ended because they were silent for too long, or the longest
    /// silent when another one wanted the place.
    pub expired: u64,
    /// Reads that failed; a host that refuses what we sent to it is told that way too.
    pub receive_errors: u64,
    /// Reads.
    pub receives: u64,
    /// Sockets that had more than one look may take; the next one goes on.
    pub backlogs: u64,
    /// Datagrams given to the kernel.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Calls that sent.
    pub sends: u64,
    /// Datagrams that were sent joined with others.
    pub sent_joined: u64,
    /// Joined datagrams that the kernel wanted one by one.
    pub split: u64,
    /// Datagrams that could not be sent: no way there, too long, refused.
    pub send_errors: u64,
    /// Times that the kernel had no room, so that the rest was kept for the next tick.
    pub send_waits: u64,
    /// Datagrams that were lost because too much waited to be sent.
    pub send_drops: u64,
    /// How often the thread woke.
    pub wakes: u64,
    /// Of these, for datagrams that wait for their moment.
    pub paced_wakes: u64,
    /// Ticks that were missed, because the one before took too long or the system let us wait.
    pub overruns: u64,
    /// What the thread has used of its processor.
    pub cpu: Span,
}

impl UdpStats {
    /// Nanoseconds of processor for each datagram given to a stream; none before the first.
    #[must_use]
    pub fn cpu_per_packet(&self) -> Option<Span> {
        let packets = i64::try_from(self.packets).ok().filter(|packets| *packets > 0)?;
        Some(self.cpu / packets)
    }

    /// Adds another thread's.
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
    /// Datagrams that it was given.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Lost in the kernel, because its own socket's buffer was full.
    pub lost_in_kernel: u64,
    /// Lost because they were longer than the longest that is taken.
    pub truncated: u64,
}

//! RTCP timing and reports (RFC 3550, 6.2 and 6.3): one machine per session.
//!
//! All members of a session together may use a twentieth of its bandwidth, so each member estimates
//! the number of members and adapts its interval. For a session of two, the machine takes a few
//! hundred bytes. It has no timer of its own: its deadline is a number, for a timer wheel that all
//! sessions share. The RTP receivers belong to the caller, which passes their statistics when a
//! report is due.

use std::sync::Arc;

use aulos_core::{Instant, Rng, Span};

use super::packet::RtpHeader;
use super::receiver::ReceptionReport;
use super::rtcp::{
    CompoundPacket, DlrrBlock, ExtendedBlock, NtpTime, ReportBlock, ReportBlocks, RtcpError,
    RtcpPacket, RtcpWriter, SenderInfo, from_ntp_short, to_ntp_short,
};
use super::ssrc_map::SsrcMap;

/// Minimum interval between two reports (RFC 3550, 6.2); half of it before the first one.
pub const MIN_INTERVAL: Span = Span::from_secs(5);
/// A member without packets for this many intervals has timed out (RFC 3550, 6.3.5).
pub const MEMBER_INTERVALS: i64 = 5;
/// With this many members or more, the BYE is delayed (RFC 3550, 6.3.7).
pub const BYE_BACK_OFF: usize = 50;
/// A member has left when it has sent nothing for this long after its BYE.
pub const BYE_GRACE: Span = Span::from_secs(2);
/// RTP received within this time after a BYE may have been on its way; later packets show that the
/// BYE was forged.
pub const BYE_STRAGGLER_TIME: Span = Span::from_millis(500);
/// Bytes of the IPv4 and UDP headers of a datagram; they count as bandwidth (RFC 3550, 6.2).
pub const IP_UDP_OVERHEAD: usize = 28;

/// Configuration of an [`RtcpSession`].
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct RtcpConfig {
    /// Local SSRC.
    pub ssrc: u32,
    /// Local CNAME, `user@host`; it stays the same when the SSRC changes.
    pub cname: Arc<str>,
    /// Bandwidth of all members together in bytes per second: a twentieth of the session's
    /// bandwidth.
    pub bandwidth: u32,
    /// Minimum interval between two reports: [`MIN_INTERVAL`], or [`RtcpConfig::reduced`].
    pub min_interval: Span,
    /// Maximum number of other members; 1 to 1,048,576. About 130 bytes each.
    pub max_members: usize,
    /// Measure the round-trip time to others even without sending RTP (RFC 3611, 4.4).
    pub reference_time: bool,
    /// Random seed; differs between sessions, and peers must not be able to guess it.
    pub seed: u64,
}

impl Default for RtcpConfig {
    fn default() -> Self {
        Self {
            ssrc: 0,
            cname: Arc::from("aulos"),
            bandwidth: 400,
            min_interval: MIN_INTERVAL,
            max_members: 4,
            reference_time: false,
            seed: 0,
        }
    }
}

impl RtcpConfig {
    /// Reduced minimum interval of RFC 3550, 6.2: 360 s divided by the session's bandwidth in
    /// kbit/s, at most [`MIN_INTERVAL`].
    #[must_use]
    pub fn reduced(session_bits_per_second: u32) -> Span {
        let nanos = 360_000_i64 * 1_000_000_000 / i64::from(session_bits_per_second.max(1));
        Span::from_nanos(nanos).min(MIN_INTERVAL)
    }
}

/// Information received from other members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RtcpEvent<'a> {
    /// Clock of a sender: `ntp` and `timestamp` denote the same instant.
    SenderClock {
        /// SSRC of the sender.
        ssrc: u32,
        /// Wall-clock time of the sender.
        ntp: NtpTime,
        /// RTP timestamp of the sender.
        timestamp: u32,
    },
    /// Reception report about the local source.
    ReceptionReport {
        /// SSRC of the reporting member.
        by: u32,
        /// Report block.
        block: ReportBlock,
        /// Round-trip time, if it could be computed.
        round_trip: Option<Span>,
    },
    /// Round-trip time to a sender, measured without sending RTP.
    RoundTrip {
        /// SSRC of the sender.
        by: u32,
        /// Round-trip time.
        span: Span,
    },
    /// Name of a member, not validated.
    Cname {
        /// SSRC of the member.
        ssrc: u32,
        /// CNAME.
        name: &'a [u8],
    },
    /// A member has left after a BYE, or has timed out.
    Left {
        /// SSRC of the member.
        ssrc: u32,
    },
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtcpStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Valid datagrams received.
    pub received: u64,
    /// Invalid datagrams received.
    pub malformed: u64,
    /// BYEs of members that kept sending, and of unknown members.
    pub forged_byes: u64,
    /// Members evicted to make room for others.
    pub evicted: u64,
    /// Members that timed out.
    pub timed_out: u64,
    /// Reports that refer to something that was never sent.
    pub implausible: u64,
}

/// RTCP session; the module documentation describes how to drive it. About 400 bytes, and 130 for
/// each member of the configured maximum.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpSession};
///
/// let mut rtcp = RtcpSession::new(RtcpConfig { ssrc: 7, ..RtcpConfig::default() }, Instant::ZERO);
/// let mut out = [0; 1_200];
/// let mut sent = 0;
/// while let Some(now) = rtcp.poll_timeout().filter(|_| sent < 3) {
///     rtcp.handle_timeout(now, |_| ());
///     while let Some(length) = rtcp.poll_output(now, &mut out, core::iter::empty()) {
///         assert!(length > 0, "to be sent");
///         sent += 1;
///     }
/// }
/// ```
#[derive(Debug)]
pub struct RtcpSession {
    config: RtcpConfig,
    state: State,
    members: SsrcMap<SessionMember>,
    rng: Rng,
    /// A wall-clock time and its local instant, for reports.
    clock: (Instant, NtpTime),
    started: Instant,
    /// Time of the last report, sent or reconsidered (tp).
    previous: Instant,
    /// Interval between the two reports before.
    last_interval: Span,
    /// Time of the next timeout (tn).
    next: Instant,
    /// Time at which the next pending BYE of another member takes effect.
    next_bye_expiry: Option<Instant>,
    /// Number of members when `next` was computed (pmembers).
    counted_members: usize,
    /// Average datagram size in bytes.
    average_size: f64,
    own: SentCounters,
    stats: RtcpStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for the time of the first report.
    Joining,
    /// Waits for the time of the next report.
    Reporting,
    /// A report is due; `first` if none was sent before.
    Due { first: bool },
    /// Waits for the time of the BYE; `byes` counts those of other members meanwhile.
    Leaving { byes: usize },
    /// The BYE is due.
    ByeDue,
    /// The session has ended.
    Left,
}

/// Counters of the local source.
#[derive(Clone, Copy, Debug, Default)]
struct SentCounters {
    packets: u32,
    octets: u32,
    /// Send time, timestamp and clock rate of the last packet.
    last: Option<(Instant, u32, u32)>,
    /// Whether a report was sent; without one, no BYE is necessary.
    reported: bool,
}

/// Another member of the session.
#[derive(Clone, Copy, Debug, Default)]
struct SessionMember {
    last_received: Instant,
    /// Time of the last RTP packet.
    rtp: Option<Instant>,
    /// Middle 32 bits of the last sender report's NTP time, and its arrival time.
    report: Option<(u32, Instant)>,
    /// The same for a reference time that has to be answered.
    reference: Option<(u32, Instant)>,
    /// Time of the BYE.
    bye: Option<Instant>,
}

impl RtcpSession {
    /// A session that begins at `now`. All memory is allocated here.
    #[must_use]
    pub fn new(config: RtcpConfig, now: Instant) -> Self {
        let mut rng = Rng::new(config.seed);
        let members = SsrcMap::new(config.max_members, rng.next_u64());
        #[allow(clippy::cast_precision_loss, reason = "a name is short")]
        let average_size = (IP_UDP_OVERHEAD + 8 + 12 + config.cname.len()) as f64;
        let mut rtcp = Self {
            config,
            state: State::Joining,
            members,
            rng,
            clock: (now, NtpTime::default()),
            started: now,
            previous: now,
            last_interval: Span::ZERO,
            next: now,
            next_bye_expiry: None,
            counted_members: 1,
            average_size,
            own: SentCounters::default(),
            stats: RtcpStats::default(),
        };
        rtcp.next = now + rtcp.interval(now);
        rtcp
    }

    /// Sets the wall-clock time at `now`, for reports. Without it, reports count from 1900, which
    /// suffices for round-trip times (RFC 3550, 4).
    pub const fn set_clock(&mut self, now: Instant, ntp: NtpTime) {
        self.clock = (now, ntp);
    }

    /// Records a sent RTP packet; `octets` is the length of its payload.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn record_sent(
        &mut self,
        now: Instant,
        header: &RtpHeader,
        octets: usize,
        clock_rate: u32,
    ) {
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        self.own.packets = self.own.packets.wrapping_add(1);
        self.own.octets = self.own.octets.wrapping_add(octets);
        self.own.last = Some((now, header.timestamp, clock_rate));
    }

    /// Records an RTP packet received from a validated source.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn record_received(&mut self, now: Instant, ssrc: u32) {
        let Some(number) = self.touch_member(now, ssrc) else { return };
        self.members.mark_valid(number);
        let Some(member) = self.members.get_mut(number) else { return };
        member.rtp = Some(now);
        if member.bye.is_some_and(|bye| now.since(bye) >= BYE_STRAGGLER_TIME) {
            member.bye = None;
            self.stats.forged_byes += 1;
        }
    }

    /// Processes a datagram received at `now` and reports its contents.
    ///
    /// The caller must check the source address, because RTCP is not authenticated.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `emit` does not.
    ///
    /// # Errors
    /// The reason why the datagram is not RTCP; it then has no effect.
    pub fn handle_input(
        &mut self,
        now: Instant,
        datagram: &[u8],
        mut emit: impl FnMut(RtcpEvent<'_>),
    ) -> Result<(), RtcpError> {
        let compound =
            CompoundPacket::parse(datagram).inspect_err(|_| self.stats.malformed += 1)?;
        self.stats.received += 1;
        let mut byes = false;
        for part in compound.packets() {
            match part {
                RtcpPacket::Report { ssrc, sender, blocks } => {
                    let Some(number) = self.touch_member(now, ssrc) else { continue };
                    if let Some(SenderInfo { ntp, timestamp, .. }) = sender {
                        if let Some(member) = self.members.get_mut(number) {
                            member.report = Some((ntp.middle_bits(), now));
                        }
                        emit(RtcpEvent::SenderClock { ssrc, ntp, timestamp });
                    }
                    self.handle_report_blocks(now, ssrc, blocks, &mut emit);
                }
                RtcpPacket::SourceDescription(chunks) => {
                    for (ssrc, name) in chunks.cnames() {
                        if self.touch_member(now, ssrc).is_some() {
                            emit(RtcpEvent::Cname { ssrc, name });
                        }
                    }
                }
                RtcpPacket::Bye(sources) => {
                    byes = true;
                    sources.iter().for_each(|ssrc| self.handle_bye(now, ssrc));
                }
                RtcpPacket::Extended { ssrc, blocks } => {
                    let Some(number) = self.touch_member(now, ssrc) else { continue };
                    blocks.iter().for_each(|block| {
                        self.handle_extended_block(now, ssrc, number, block, &mut emit);
                    });
                }
                RtcpPacket::Other(_) => {}
            }
        }
        if byes || !matches!(self.state, State::Leaving { .. }) {
            self.update_average_size(datagram.len());
        }
        Ok(())
    }

    /// Handles what is due at `now` and reports members that have left.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `emit` does not.
    pub fn handle_timeout(&mut self, now: Instant, mut emit: impl FnMut(RtcpEvent<'_>)) {
        if self.next_bye_expiry.is_some_and(|at| at <= now) {
            self.expire_byes(now, &mut emit);
        }
        if now < self.next {
            return;
        }
        let due = match self.state {
            State::Joining => State::Due { first: true },
            State::Reporting => State::Due { first: false },
            State::Leaving { .. } => State::ByeDue,
            State::Due { .. } | State::ByeDue | State::Left => return,
        };
        if matches!(due, State::Due { .. }) {
            self.expire_members(now, &mut emit);
        }
        // Reconsideration: the number of members may have grown since the timer was set (6.3.6).
        let next = self.previous + self.interval(now);
        self.counted_members = self.member_count();
        if next <= now { self.state = due } else { self.next = next }
    }

    /// Writes the due packets into `out` and returns their length in bytes; `None` when nothing is
    /// due.
    ///
    /// `sources` are the received sources with their [`super::RtpReceiver::report`]. No more are
    /// consumed than fit: with more than 31, begin where the last report ended
    /// ([`super::SourceTable::iter_mut_after`]). `out` should have the maximum length of a
    /// datagram; with less than 100 bytes, even the name does not fit.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `sources` does not.
    pub fn poll_output(
        &mut self,
        now: Instant,
        out: &mut [u8],
        sources: impl Iterator<Item = (u32, ReceptionReport)>,
    ) -> Option<usize> {
        let bye = match self.state {
            State::Due { .. } => false,
            State::ByeDue => true,
            _ => return None,
        };
        let length = self.write(now, out, bye, sources);
        self.update_average_size(length);
        self.stats.sent += 1;
        self.own.reported = true;
        self.state = if bye { State::Left } else { State::Reporting };
        (self.last_interval, self.previous) = (now.since(self.previous), now);
        self.next = now + self.interval(now);
        self.counted_members = self.member_count();
        Some(length)
    }

    /// Time at which to call [`RtcpSession::handle_timeout`]; `None` when the session has ended.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = (self.state != State::Left).then_some(self.next)?;
        Some(self.next_bye_expiry.map_or(next, |expiry| expiry.min(next)))
    }

    /// Leaves the session: with a BYE, immediately or delayed, unless nothing was ever sent.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn leave(&mut self, now: Instant) {
        if matches!(self.state, State::Leaving { .. } | State::ByeDue | State::Left) {
            return;
        }
        (self.previous, self.next, self.next_bye_expiry) = (now, now, None);
        if !self.own.reported && self.own.packets == 0 {
            self.state = State::Left;
        } else if self.member_count() < BYE_BACK_OFF {
            self.state = State::ByeDue;
        } else {
            self.state = State::Leaving { byes: 0 };
            self.average_size = BYE_BYTES;
            self.next = now + self.interval(now);
            self.counted_members = 1;
        }
    }

    /// Changes the SSRC after a collision (RFC 3550, 8.2) and writes the BYE of the old one.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn change_ssrc(&mut self, now: Instant, ssrc: u32, out: &mut [u8]) -> usize {
        let length = self.write(now, out, true, core::iter::empty());
        self.update_average_size(length);
        self.stats.sent += 1;
        self.config.ssrc = ssrc;
        self.own = SentCounters::default();
        length
    }

    /// Local SSRC.
    #[must_use]
    pub const fn ssrc(&self) -> u32 {
        self.config.ssrc
    }

    /// Number of known members, including the local one.
    #[must_use]
    pub const fn members(&self) -> usize {
        self.members.len() + 1
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> RtcpStats {
        self.stats
    }
}

mod inside;

/// Size of a BYE with an empty report, including the IP and UDP headers.
const BYE_BYTES: f64 = 28.0 + 8.0 + 24.0 + 8.0;

#[cfg(test)]
mod tests;

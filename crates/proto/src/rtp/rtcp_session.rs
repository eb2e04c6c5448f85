//! When to say what in RTCP (RFC 3550, 6.2 and 6.3): one machine per session.
//!
//! All members of a session together may use a twentieth of its bandwidth, however many there are, so
//! each has to find out how many there are, and to wait accordingly. The machine is a few hundred bytes
//! for a session of two and keeps no timer: its deadline is a number, for a wheel that all sessions
//! share. Whoever receives RTP keeps the receivers, and lends what they say when a report is due.

use std::sync::Arc;

use aulos_core::{Instant, Rng, Span};

use super::packet::RtpHeader;
use super::receiver::ReceptionReport;
use super::rtcp::{
    CompoundPacket, DlrrBlock, ExtendedBlock, NtpTime, ReportBlock, ReportBlocks, RtcpError,
    RtcpPacket, RtcpWriter, SenderInfo, from_ntp_short, to_ntp_short,
};
use super::ssrc_map::SsrcMap;

/// The shortest time between two reports (RFC 3550, 6.2); half of it before the first.
pub const MIN_INTERVAL: Span = Span::from_secs(5);
/// A member that was not heard for so many intervals is gone (RFC 3550, 6.3.5).
pub const MEMBER_INTERVALS: i64 = 5;
/// With as many members or more, a BYE waits its turn (RFC 3550, 6.3.7).
pub const BYE_BACK_OFF: usize = 50;
/// A member that said BYE has left when it has sent nothing for so long.
pub const BYE_GRACE: Span = Span::from_secs(2);
/// RTP that comes so soon after a BYE may have been on its way; what comes later says that the BYE was
/// not the member's own.
pub const BYE_STRAGGLER_TIME: Span = Span::from_millis(500);
/// Bytes of IPv4 and UDP in front of each datagram; they count as bandwidth (RFC 3550, 6.2).
pub const IP_UDP_OVERHEAD: usize = 28;

/// Wishes for an [`Rtcp`].
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct RtcpConfig {
    /// Our own number.
    pub ssrc: u32,
    /// Our own name, which stays the same when the number changes: `user@host`.
    pub cname: Arc<str>,
    /// Bytes per second that all members together may use: a twentieth of the session's bandwidth.
    pub bandwidth: u32,
    /// The shortest time between two reports: [`MIN_INTERVAL`], or [`RtcpConfig::reduced`].
    pub min_interval: Span,
    /// Other members that are kept at once; 1 to 1,048,576. About 130 bytes each.
    pub max_members: usize,
    /// Ask for the distance to others even when we send nothing (RFC 3611, 4.4).
    pub reference_time: bool,
    /// Anything that no other session has, and that peers cannot guess.
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
    /// The shorter minimum that RFC 3550, 6.2 allows: 360 s over the session's bandwidth in kbit/s,
    /// and never more than [`MIN_INTERVAL`].
    #[must_use]
    pub fn reduced(session_bits_per_second: u32) -> Span {
        let nanos = 360_000_i64 * 1_000_000_000 / i64::from(session_bits_per_second.max(1));
        Span::from_nanos(nanos).min(MIN_INTERVAL)
    }
}

/// What is learned from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RtcpEvent<'a> {
    /// A sender's clock: `ntp` and `timestamp` are the same moment.
    SenderClock {
        /// The sender.
        ssrc: u32,
        /// Time of day, as the sender has it.
        ntp: NtpTime,
        /// Its RTP timestamp.
        timestamp: u32,
    },
    /// What somebody receives of us.
    ReceptionReport {
        /// Who says it.
        by: u32,
        /// What it says.
        block: ReportBlock,
        /// The way there and back, when that could be told.
        round_trip: Option<Span>,
    },
    /// The way to a sender and back, which we asked for without sending.
    RoundTrip {
        /// The sender.
        by: u32,
        /// There and back.
        span: Span,
    },
    /// A member's name, unchecked.
    Cname {
        /// The member.
        ssrc: u32,
        /// Its CNAME.
        name: &'a [u8],
    },
    /// A member said BYE and has been quiet since, or was not heard for too long.
    Left {
        /// The member.
        ssrc: u32,
    },
}

/// What has happened in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtcpStats {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that were read.
    pub received: u64,
    /// Datagrams that could not be read.
    pub malformed: u64,
    /// BYEs of members that went on sending, and of such that are not there.
    pub forged_byes: u64,
    /// Members for which others had to go.
    pub evicted: u64,
    /// Members that were not heard for too long.
    pub timed_out: u64,
    /// Reports that answer what was never sent.
    pub implausible: u64,
}

/// The RTCP of one session; see the module for how it is driven. About 400 bytes, and 130 for each
/// member that it has room for.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::report::{Rtcp, RtcpConfig};
///
/// let mut rtcp = Rtcp::new(RtcpConfig { ssrc: 7, ..RtcpConfig::default() }, Instant::ZERO);
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
    members: SsrcMap<Member>,
    chance: Rng,
    /// A time of day and the moment at which it was, for reports.
    clock: (Instant, NtpTime),
    started: Instant,
    /// When the last report went out, or would have (tp).
    previous: Instant,
    /// The time between the two reports before.
    waited: Span,
    /// When to look again (tn).
    next: Instant,
    /// When the next BYE of somebody else is believed.
    leaving: Option<Instant>,
    /// Members at the time at which `next` was computed (pmembers).
    counted: usize,
    /// A mean of the datagrams' sizes, in bytes.
    average: f64,
    own: SentCounters,
    tally: RtcpStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for the first report's time.
    Joining,
    /// Waits for the next report's time.
    Reporting,
    /// A report waits to be fetched; `first` when none went out before.
    Due { first: bool },
    /// Waits for the BYE's time; so many others have said theirs meanwhile.
    Leaving { byes: usize },
    /// The BYE waits to be fetched.
    ByeDue,
    /// Nothing more comes.
    Left,
}

/// What we have sent ourselves.
#[derive(Clone, Copy, Debug, Default)]
struct SentCounters {
    packets: u32,
    octets: u32,
    /// The last packet: when it was sent, its timestamp, and the rate of that.
    last: Option<(Instant, u32, u32)>,
    /// Whether a report went out: without one there is nobody to say BYE.
    reported: bool,
}

/// Somebody else in the session.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    heard: Instant,
    /// When RTP came from it.
    rtp: Option<Instant>,
    /// Middle of its last sender report's time, and when that came.
    report: Option<(u32, Instant)>,
    /// The same of a reference time that is to be answered.
    reference: Option<(u32, Instant)>,
    /// When it said BYE.
    bye: Option<Instant>,
}

impl RtcpSession {
    /// A session that begins at `now`. This allocates all that it will ever need.
    #[must_use]
    pub fn new(config: RtcpConfig, now: Instant) -> Self {
        let mut chance = Rng::new(config.seed);
        let members = SsrcMap::new(config.max_members, chance.next_u64());
        #[allow(clippy::cast_precision_loss, reason = "a name is short")]
        let average = (IP_UDP_OVERHEAD + 8 + 12 + config.cname.len()) as f64;
        let mut rtcp = Self {
            config,
            state: State::Joining,
            members,
            chance,
            clock: (now, NtpTime::default()),
            started: now,
            previous: now,
            waited: Span::ZERO,
            next: now,
            leaving: None,
            counted: 1,
            average,
            own: SentCounters::default(),
            tally: RtcpStats::default(),
        };
        rtcp.next = now + rtcp.interval(now);
        rtcp
    }

    /// Says what time of day it is at `now`, for reports. Without it they count from 1900, which is
    /// enough to measure distances (RFC 3550, 4).
    pub const fn set_clock(&mut self, now: Instant, ntp: NtpTime) {
        self.clock = (now, ntp);
    }

    /// Counts an RTP packet that we sent; `octets` are those of its payload.
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

    /// Takes note of an RTP packet of a source that has proved to be one.
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
            self.tally.forged_byes += 1;
        }
    }

    /// Reads a datagram that came at `now`, and tells what is in it.
    ///
    /// Whether it came from where it should, the caller has to know: RTCP is not signed.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `tell` does not.
    ///
    /// # Errors
    /// Why it is no RTCP; then nothing in it counts.
    pub fn handle_input(
        &mut self,
        now: Instant,
        datagram: &[u8],
        mut tell: impl FnMut(RtcpEvent<'_>),
    ) -> Result<(), RtcpError> {
        let compound =
            CompoundPacket::parse(datagram).inspect_err(|_| self.tally.malformed += 1)?;
        self.tally.received += 1;
        let mut byes = false;
        for part in compound.packets() {
            match part {
                RtcpPacket::Report { ssrc, sender, blocks } => {
                    let Some(number) = self.touch_member(now, ssrc) else { continue };
                    if let Some(SenderInfo { ntp, timestamp, .. }) = sender {
                        if let Some(member) = self.members.get_mut(number) {
                            member.report = Some((ntp.middle_bits(), now));
                        }
                        tell(RtcpEvent::SenderClock { ssrc, ntp, timestamp });
                    }
                    self.handle_report_blocks(now, ssrc, blocks, &mut tell);
                }
                RtcpPacket::SourceDescription(chunks) => {
                    for (ssrc, name) in chunks.cnames() {
                        if self.touch_member(now, ssrc).is_some() {
                            tell(RtcpEvent::Cname { ssrc, name });
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
                        self.handle_extended_block(now, ssrc, number, block, &mut tell)
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

    /// Does what is due at `now`, and tells who is gone.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `tell` does not.
    pub fn handle_timeout(&mut self, now: Instant, mut tell: impl FnMut(RtcpEvent<'_>)) {
        if self.leaving.is_some_and(|at| at <= now) {
            self.expire_byes(now, &mut tell);
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
            self.expire_members(now, &mut tell);
        }
        // Reconsideration: there may be more members than when the timer was set (6.3.6).
        let next = self.previous + self.interval(now);
        self.counted = self.member_count();
        if next <= now { self.state = due } else { self.next = next }
    }

    /// Writes what is due into `out` and says how many bytes to send; none when nothing is due.
    ///
    /// `sources` are the sources that we receive, as [`super::Receiver::report`] has them. No more are
    /// taken than fit: with more than 31, begin where the last report ended
    /// ([`super::Table::iter_mut_after`]). `out` is best as long as a
    /// datagram may be; in fewer than 100 bytes not even a name has room.
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
        self.tally.sent += 1;
        self.own.reported = true;
        self.state = if bye { State::Left } else { State::Reporting };
        (self.waited, self.previous) = (now.since(self.previous), now);
        self.next = now + self.interval(now);
        self.counted = self.member_count();
        Some(length)
    }

    /// When to call [`Rtcp::handle_timeout`]; none when nothing more will come.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = (self.state != State::Left).then_some(self.next)?;
        Some(self.leaving.map_or(next, |leaving| leaving.min(next)))
    }

    /// Leaves the session: with a BYE, at once or in its turn, unless nobody knows of us.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn leave(&mut self, now: Instant) {
        if matches!(self.state, State::Leaving { .. } | State::ByeDue | State::Left) {
            return;
        }
        (self.previous, self.next, self.leaving) = (now, now, None);
        if !self.own.reported && self.own.packets == 0 {
            self.state = State::Left;
        } else if self.member_count() < BYE_BACK_OFF {
            self.state = State::ByeDue;
        } else {
            self.state = State::Leaving { byes: 0 };
            self.average = BYE_BYTES;
            self.next = now + self.interval(now);
            self.counted = 1;
        }
    }

    /// Takes another number after a collision (RFC 3550, 8.2) and writes the BYE of the old one.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn change_ssrc(&mut self, now: Instant, ssrc: u32, out: &mut [u8]) -> usize {
        let length = self.write(now, out, true, core::iter::empty());
        self.update_average_size(length);
        self.tally.sent += 1;
        self.config.ssrc = ssrc;
        self.own = SentCounters::default();
        length
    }

    /// Our own number.
    #[must_use]
    pub const fn ssrc(&self) -> u32 {
        self.config.ssrc
    }

    /// Members of the session that are known, we among them.
    #[must_use]
    pub const fn members(&self) -> usize {
        self.members.len() + 1
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> RtcpStats {
        self.tally
    }
}

mod inside;

/// A BYE with an empty report in front, as it goes over the wire.
const BYE_BYTES: f64 = 28.0 + 8.0 + 24.0 + 8.0;

#[cfg(test)]
mod tests;

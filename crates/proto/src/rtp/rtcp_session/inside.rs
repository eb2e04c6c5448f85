//! Internals of the session: members, intervals and the contents of reports.

use aulos_core::{Instant, Span};

use super::{
    BYE_GRACE, DlrrBlock, ExtendedBlock, IP_UDP_OVERHEAD, MEMBER_INTERVALS, MIN_INTERVAL, NtpTime,
    ReceptionReport, ReportBlock, ReportBlocks, RtcpEvent, RtcpSession, RtcpWriter, SenderInfo,
    SentCounters, SessionMember, State, from_ntp_short, to_ntp_short,
};

impl RtcpSession {
    /// Inserts a member, or updates the time of its last packet; `None` for the local SSRC.
    pub(super) fn touch_member(&mut self, now: Instant, ssrc: u32) -> Option<u32> {
        if ssrc == self.config.ssrc {
            return None;
        }
        if let Some(number) = self.members.find(ssrc) {
            self.members.touch(number);
            self.members.get_mut(number)?.last_received = now;
            return Some(number);
        }
        if self.members.len() == self.members.capacity() {
            let unproven = self.members.least_recent(false);
            let oldest = unproven.or_else(|| self.members.least_recent(true))?;
            self.members.remove(oldest);
            self.stats.evicted += 1;
        }
        self.members.insert(ssrc, SessionMember { last_received: now, ..SessionMember::default() })
    }

    pub(super) fn handle_report_blocks(
        &mut self,
        now: Instant,
        by: u32,
        blocks: ReportBlocks<'_>,
        emit: &mut impl FnMut(RtcpEvent<'_>),
    ) {
        let own = self.config.ssrc;
        if let Some(block) = blocks.iter().find(|block| block.ssrc == own) {
            let round_trip = self.round_trip(now, block.last_report, block.delay);
            emit(RtcpEvent::ReceptionReport { by, block, round_trip });
        }
    }

    pub(super) fn handle_extended_block(
        &mut self,
        now: Instant,
        by: u32,
        number: u32,
        block: ExtendedBlock,
        emit: &mut impl FnMut(RtcpEvent<'_>),
    ) {
        match block {
            ExtendedBlock::ReferenceTime(ntp) => {
                if let Some(member) = self.members.get_mut(number) {
                    member.reference = Some((ntp.middle_bits(), now));
                }
            }
            ExtendedBlock::Dlrr(delay) if delay.ssrc == self.config.ssrc => {
                if let Some(span) = self.round_trip(now, delay.last_report, delay.delay) {
                    emit(RtcpEvent::RoundTrip { by, span });
                }
            }
            ExtendedBlock::Dlrr(_) => {}
        }
    }

    /// RFC 3550, 6.4.1: now minus the time of the report minus the delay. A negative result, or one
    /// from before the session, is implausible.
    fn round_trip(&mut self, now: Instant, last_report: u32, delay: u32) -> Option<Span> {
        if last_report == 0 {
            return None;
        }
        let since_report = self.ntp(now).middle_bits().wrapping_sub(last_report);
        let units = since_report.checked_sub(delay);
        let span =
            units.filter(|_| from_ntp_short(since_report) <= now.since(self.started) + TOLERANCE);
        if span.is_none() {
            self.stats.implausible += 1;
        }
        span.map(from_ntp_short)
    }

    pub(super) fn handle_bye(&mut self, now: Instant, ssrc: u32) {
        if let State::Leaving { byes } = &mut self.state {
            *byes += 1;
            return;
        }
        match self.members.find(ssrc).and_then(|number| self.members.get_mut(number)) {
            Some(member) => {
                let until = *member.bye.get_or_insert(now) + BYE_GRACE;
                self.next_bye_expiry = Some(self.next_bye_expiry.map_or(until, |at| at.min(until)));
            }
            None => self.stats.forged_byes += 1,
        }
    }

    /// Removes members whose BYE was not followed by packets.
    pub(super) fn expire_byes(&mut self, now: Instant, emit: &mut impl FnMut(RtcpEvent<'_>)) {
        let gone =
            |member: &SessionMember| member.bye.is_some_and(|bye| now.since(bye) >= BYE_GRACE);
        self.drop_members(emit, gone);
        let byes = self.members.iter().filter_map(|(_, member)| member.bye);
        self.next_bye_expiry = byes.min().map(|bye| bye + BYE_GRACE);
        self.reconsider(now);
    }

    /// Removes members that have timed out (6.3.5).
    pub(super) fn expire_members(&mut self, now: Instant, emit: &mut impl FnMut(RtcpEvent<'_>)) {
        let limit = self.expected_interval(now) * MEMBER_INTERVALS;
        let silent = |member: &SessionMember| now.since(member.last_received) > limit;
        let gone = self.drop_members(emit, silent);
        self.stats.timed_out += gone;
        if gone > 0 {
            self.reconsider(now);
        }
    }

    fn drop_members(
        &mut self,
        emit: &mut impl FnMut(RtcpEvent<'_>),
        gone: impl Fn(&SessionMember) -> bool,
    ) -> u64 {
        let mut count = 0;
        for number in self.members.numbers() {
            if self.members.get(number).is_some_and(&gone) {
                let left = self.members.remove(number);
                left.into_iter().for_each(|(ssrc, _)| emit(RtcpEvent::Left { ssrc }));
                count += 1;
            }
        }
        count
    }

    /// Brings the next report forward when the number of members has decreased (6.3.4).
    fn reconsider(&mut self, now: Instant) {
        let members = self.member_count();
        if members >= self.counted_members || matches!(self.state, State::Leaving { .. }) {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "at most 2^20 members")]
        let share = members as f64 / self.counted_members as f64;
        self.next = now + scale(self.next.since(now), share);
        self.previous = now - scale(now.since(self.previous), share);
        self.counted_members = members;
    }

    /// Number of members for the timer; while leaving, the number of leaving members.
    pub(super) fn member_count(&self) -> usize {
        match self.state {
            State::Leaving { byes } => byes + 1,
            _ => self.members.len() + 1,
        }
    }

    /// Interval until the next report (6.3.1, A.7): randomized to avoid synchronization, and
    /// compensated for reconsideration.
    pub(super) fn interval(&mut self, now: Instant) -> Span {
        let random = self.rng.next_f64() + 0.5;
        let initial = matches!(self.state, State::Joining | State::Leaving { .. });
        let minimum = if initial { self.config.min_interval / 2 } else { self.config.min_interval };
        scale(self.bandwidth_interval(now).max(minimum), random / (core::f64::consts::E - 1.5))
    }

    /// Interval without randomization and with the full minimum, the base of timeouts (6.3.5).
    fn expected_interval(&self, now: Instant) -> Span {
        self.bandwidth_interval(now).max(MIN_INTERVAL)
    }

    /// Time in which all members of the same bandwidth share can send one report each.
    fn bandwidth_interval(&self, now: Instant) -> Span {
        let members = self.member_count();
        let leaving = matches!(self.state, State::Leaving { .. });
        let we_send = !leaving && self.own.last.is_some_and(|(at, ..)| self.is_recent(now, at));
        let sends = |member: &SessionMember| member.rtp.is_some_and(|at| self.is_recent(now, at));
        let others = self.members.iter().filter(|(_, member)| sends(member)).count();
        let senders = if leaving { 0 } else { others + usize::from(we_send) };
        let (count, part) = match (senders * 4 <= members, we_send) {
            (true, true) => (senders, 0.25),
            (true, false) => (members - senders, 0.75),
            (false, _) => (members, 1.0),
        };
        #[allow(clippy::cast_precision_loss, reason = "at most 2^20 members")]
        let seconds =
            self.average_size * count as f64 / (f64::from(self.config.bandwidth.max(1)) * part);
        scale(Span::from_secs(1), seconds)
    }

    /// Whether a packet at this time makes its sender a current one: within the last two intervals
    /// (6.3.5, 6.3.8).
    fn is_recent(&self, now: Instant, at: Instant) -> bool {
        let interval = self.last_interval.max(now.since(self.previous)).max(MIN_INTERVAL);
        now.since(at) < interval * 2
    }

    /// Updates the average datagram size with a weight of 1/16 (6.3.3).
    pub(super) fn update_average_size(&mut self, length: usize) {
        #[allow(clippy::cast_precision_loss, reason = "a datagram")]
        let size = (length + IP_UDP_OVERHEAD) as f64;
        self.average_size += (size - self.average_size) / 16.0;
    }

    pub(super) fn write(
        &mut self,
        now: Instant,
        out: &mut [u8],
        bye: bool,
        mut sources: impl Iterator<Item = (u32, ReceptionReport)>,
    ) -> usize {
        let ssrc = self.config.ssrc;
        let sender = self.sender_info(now);
        let ntp = self.ntp(now);
        let mut writer = RtcpWriter::new(out);
        let reserve = self.config.cname.len() + TRAILER_BYTES;
        let members = &self.members;
        let blocks = core::iter::from_fn(|| {
            let (ssrc, reception) = sources.next()?;
            let member = members.find(ssrc).and_then(|number| members.get(number));
            let report = member.and_then(|member| member.report);
            Some(block(now, ssrc, reception, report))
        });
        writer.report(ssrc, sender, reserve, blocks);
        writer.cname(ssrc, &self.config.cname);
        if bye {
            writer.bye(ssrc, "");
        } else {
            if self.config.reference_time && sender.is_none() {
                writer.reference_time(ssrc, ntp);
            }
            let asked = self.members.iter_mut().filter_map(|(ssrc, member)| {
                let (last_report, at) = member.reference.take()?;
                Some(DlrrBlock { ssrc, last_report, delay: to_ntp_short(now.since(at)) })
            });
            writer.dlrr(ssrc, asked);
        }
        writer.finish().len()
    }

    /// Sender information about the local source, while it is sending.
    fn sender_info(&self, now: Instant) -> Option<SenderInfo> {
        let (at, timestamp, rate) = self.own.last?;
        if !self.is_recent(now, at) {
            return None;
        }
        let since = now.since(at);
        let ticks = i128::from(since.as_nanos()) * i128::from(rate) / 1_000_000_000;
        let ticks = u32::try_from(ticks & i128::from(u32::MAX)).unwrap_or(0);
        let SentCounters { packets, octets, .. } = self.own;
        let timestamp = timestamp.wrapping_add(ticks);
        Some(SenderInfo { ntp: self.ntp(now), timestamp, packets, octets })
    }

    fn ntp(&self, now: Instant) -> NtpTime {
        let (at, ntp) = self.clock;
        ntp.after(now - at)
    }
}

/// Report block about a source; `report` is its last sender report and the arrival time.
fn block(
    now: Instant,
    ssrc: u32,
    reception: ReceptionReport,
    report: Option<(u32, Instant)>,
) -> ReportBlock {
    ReportBlock {
        ssrc,
        fraction_lost: reception.fraction_lost,
        cumulative_lost: reception.cumulative_lost,
        highest: reception.highest,
        jitter: reception.jitter,
        last_report: report.map_or(0, |(middle, _)| middle),
        delay: report.map_or(0, |(_, at)| to_ntp_short(now.since(at))),
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a wait")]
fn scale(span: Span, by: f64) -> Span {
    Span::from_nanos((span.as_nanos() as f64 * by) as i64)
}

/// Bytes after the report blocks, without the name: SDES, and BYE or a reference time.
const TRAILER_BYTES: usize = 16 + 20;
/// Tolerance for a report from before the session, in case the clock was set meanwhile.
const TOLERANCE: Span = Span::from_secs(1);

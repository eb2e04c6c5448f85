//! One relayed stream, as a machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::dual_path::{DualPathMerger, MergeOutcome, RedundantPath as Way};
use aulos_proto::rtp::jitter::JitterStats;
use aulos_proto::rtp::rtcp::{self, ReportBlock};
use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpEvent, RtcpSession};
use aulos_proto::rtp::{self, RtpErrorCounts};

use super::RelayPlan;
use super::egress::RtpEgress;
use super::ingress::RtpIngress;
use super::latch::{Latch, PacketOrigin, Verdict};
use super::payload::{IgnoreReason, IncomingPacket};
use crate::udp::{self, Machine, Outbox, Packets, Route, StreamKey};

/// What a stream came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Packets of the source: [`rtp::Receiver`] counts them.
    pub source: rtp::ReceiverStats,
    /// What stood in line, and for how long.
    pub jitter: JitterStats,
    /// Lost packets that were taken out of those behind them: RED.
    pub recovered_red: u64,
    /// Lost packets that were made of what Opus repeats of them.
    pub recovered_fec: u64,
    /// Of the packets that went out, keys that were pressed.
    pub dtmf: u64,
    /// Of the packets that went out, comfort noise.
    pub comfort_noise: u64,
    /// Packets that came over each of two ways before the other, or by themselves.
    pub taken: [u64; 2],
    /// Packets that each of two ways has lost.
    pub lost: [u64; 2],
    /// Packets that had come over the other way.
    pub duplicates: u64,
    /// Packets that went out, and their bytes with the headers of RTP.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that are no RTP.
    pub refused: u64,
    /// Packets of a payload type that nobody spoke of.
    pub unknown_types: u64,
    /// The last of these types.
    pub last_unknown_type: Option<u8>,
    /// Packets of other sources, which did not go on long enough to be followed.
    pub other_sources: u64,
    /// Packets from another address than the sender's, while he sends.
    pub other_addresses: u64,
    /// Packets that could not be transcoded: empty, cut, damaged.
    pub undecodable: u64,
    /// Packets that came too late for an encoding in which each needs the one before.
    pub too_late: u64,
    /// Packets for which there was no place in line.
    pub no_room: u64,
    /// Packets that could not go because too much waited to be sent.
    pub unsent: u64,
    /// How often the sender began anew under another number.
    pub restarts: u64,
    /// How often another sender took his place, after he had been silent for long enough.
    pub takeovers: u64,
    /// RTCP that came from where it should not, or could not be read.
    pub foreign_rtcp: u64,
    /// Good-byes of somebody else, or of a sender who sends on.
    pub forged_byes: u64,
}

/// What control knows a stream by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "two numbers of whoever made it")]
pub struct RelayStreamLabel {
    /// The relay that it is one of.
    pub relay: u32,
    /// The port that it comes to.
    pub port: u16,
}

/// What there is to know of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelayReport {
    /// Whose it is.
    pub label: RelayStreamLabel,
    /// Its source's number, while it has one.
    pub ssrc: Option<u32>,
    /// The number that it goes out with.
    pub sent_ssrc: u32,
    /// Who sends it.
    pub from: Option<SocketAddr>,
    /// Who sends it the other way, where there are two.
    pub second: Option<SocketAddr>,
    /// Where it goes.
    pub to: SocketAddr,
    /// What it came to.
    pub tally: RelayCounts,
    /// What the listener says that he receives, and the way to him and back.
    pub receiver_report: Option<(ReportBlock, Option<Span>)>,
    /// The way to the sender and back.
    pub round_trip: Option<Span>,
}

/// A stream of RTP from one port to one place.
#[derive(Debug)]
pub struct RelayStream {
    label: RelayStreamLabel,
    plan: Arc<RelayPlan>,
    ingress: Option<Box<RtpIngress>>,
    legs: Option<Box<DualPathMerger>>,
    from: Option<SocketAddr>,
    /// Our side of the conversation with the sender.
    sender_rtcp: Option<Box<RtcpSession>>,
    egress: RtpEgress,
    latch: Latch,
    refused: RtpErrorCounts,
    other_types: u64,
    other_type: Option<u8>,
    undecodable: u64,
    foreign_rtcp: u64,
    forged_byes: u64,
    round_trip: Option<Span>,
    /// What the sources before came to.
    previous_totals: SourceTotals,
    /// What makes our reports come at other times than those of others.
    seed: u64,
}

impl RelayStream {
    /// A relay to `to`. It sends as the source `ssrc`, which nobody else there may have; `seed` makes
    /// its reports come at other times than those of its neighbours.
    #[must_use]
    pub fn new(
        plan: Arc<RelayPlan>,
        label: RelayStreamLabel,
        to: SocketAddr,
        ssrc: u32,
        seed: u64,
    ) -> Self {
        let egress = RtpEgress::new(Arc::clone(&plan), to, ssrc);
        let latch = Latch::new(plan.config.takeover);
        Self {
            label,
            plan,
            ingress: None,
            legs: None,
            from: None,
            sender_rtcp: None,
            egress,
            latch,
            refused: RtpErrorCounts::default(),
            other_types: 0,
            other_type: None,
            undecodable: 0,
            foreign_rtcp: 0,
            forged_byes: 0,
            round_trip: None,
            previous_totals: Default::default(),
            seed,
        }
    }

    #[cfg(test)]
    pub(super) fn config(&self) -> &super::RelayStreamConfig {
        &self.plan.config
    }

    fn receive(&mut self, datagram: &udp::Packet<'_>, out: &mut Outbox<'_>) {
        let (received, from) = (datagram.received, datagram.from);
        let packet = match rtp::RtpPacket::parse(datagram.bytes) {
            Ok(packet) => packet,
            Err(why) => return self.refused.count(why),
        };
        let Some(incoming) = self.parse(&packet) else { return };
        let way = usize::from(datagram.is_second);
        let sender =
            PacketOrigin { path: way, from, ssrc: packet.ssrc(), sequence: packet.sequence() };
        let stream = self.ingress.as_ref().map(|leg| (leg.ssrc(), leg.receiver().is_valid()));
        match self.latch.judge(sender, stream, received, datagram.bytes) {
            Verdict::Ours => {}
            Verdict::Held | Verdict::Foreign => return,
            Verdict::Joins => self.process_held(sender, out),
            Verdict::Begins => {
                self.switch_source(received, out);
                self.process_held(sender, out);
            }
        }
        self.process_packet(received, sender, &incoming, out);
    }

    /// What is in a packet, if anything that we know.
    fn parse<'a>(&mut self, packet: &rtp::RtpPacket<'a>) -> Option<IncomingPacket<'a>> {
        match self.plan.config.parse(packet) {
            Ok(incoming) => return Some(incoming),
            Err(IgnoreReason::UnknownPayloadType) => {
                self.other_types += 1;
                self.other_type = Some(packet.payload_type());
            }
            Err(IgnoreReason::InvalidRed) => self.undecodable += 1,
        }
        None
    }

    /// Takes the packet that stood in probation.
    fn process_held(&mut self, sender: PacketOrigin, out: &mut Outbox<'_>) {
        let (received, datagram) = self.latch.take_held(sender.path);
        if let Ok(packet) = rtp::RtpPacket::parse(&datagram)
            && let Some(incoming) = self.parse(&packet)
        {
            self.process_packet(received, sender, &incoming, out);
        }
        self.latch.return_buffer(sender.path, datagram);
    }

    /// Takes a packet of the stream.
    fn process_packet(
        &mut self,
        received: Instant,
        sender: PacketOrigin,
        packet: &IncomingPacket<'_>,
        out: &mut Outbox<'_>,
    ) {
        let wishes = &self.plan.config;
        let clock_rate = wishes.from.encoding.clock_rate;
        if wishes.redundant {
            let way = if sender.path == 0 { Way::A } else { Way::B };
            let legs = self.legs.get_or_insert_default();
            let (sequence, timestamp) = (packet.sequence, packet.timestamp);
            if legs.receive(received, way, sequence, timestamp, clock_rate)
                == MergeOutcome::Duplicate
            {
                return;
            }
        }
        let fresh = self.ingress.is_none();
        let leg = self
            .ingress
            .get_or_insert_with(|| Box::new(RtpIngress::new(wishes, sender.ssrc, received)));
        leg.receive(packet, received);
        let proven = leg.receiver().is_valid();
        if proven {
            self.from = self.latch.sender_address(0).or_else(|| self.latch.sender_address(1));
        }
        self.egress.send_due(received, leg, out);
        if fresh {
            self.start_rtcp(received, out);
        }
        if let Some(rtcp) = self.sender_rtcp.as_mut().filter(|_| proven) {
            rtcp.record_received(received, sender.ssrc);
        }
    }

    /// RTCP begins with a source, on both sides.
    fn start_rtcp(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(cname) = &self.plan.config.cname else { return };
        // Who listens answers to where our packets come from.
        out.claim(StreamKey::Ssrc(self.egress.ssrc));
        self.seed = self.seed.wrapping_add(1);
        let config = |side: u64| RtcpConfig {
            ssrc: self.egress.ssrc,
            cname: Arc::clone(cname),
            max_members: MAX_RTCP_MEMBERS,
            seed: self.seed.rotate_left(32) ^ side,
            ..RtcpConfig::default()
        };
        let mut inward = RtcpSession::new(RtcpConfig { reference_time: true, ..config(0) }, now);
        let (at, ntp) = self.plan.config.clock;
        inward.set_clock(at, ntp);
        self.sender_rtcp = Some(Box::new(inward));
        if self.egress.rtcp.is_none() {
            let mut rtcp = RtcpSession::new(config(1), now);
            rtcp.set_clock(at, ntp);
            self.egress.rtcp = Some(Box::new(rtcp));
        }
    }

    fn receive_rtcp(&mut self, now: Instant, from: SocketAddr, is_answer: bool, bytes: &[u8]) {
        let round_trip = &mut self.round_trip;
        let outward = &mut self.egress;
        let read = if (is_answer && from.ip() == outward.to.ip()) || from == outward.to {
            let reported = &mut outward.reported;
            let ssrc = outward.ssrc;
            outward.rtcp.as_mut().map(|rtcp| {
                rtcp.handle_input(now, bytes, |event| {
                    if let RtcpEvent::ReceptionReport { block, round_trip, .. } = event
                        && block.ssrc == ssrc
                    {
                        *reported = Some((block, round_trip));
                    }
                })
            })
        } else if self.latch.is_from(from.ip()) {
            self.sender_rtcp.as_mut().map(|rtcp| {
                rtcp.handle_input(now, bytes, |event| {
                    if let RtcpEvent::RoundTrip { span, .. } = event {
                        *round_trip = Some(span);
                    }
                })
            })
        } else {
            None
        };
        self.foreign_rtcp += u64::from(!matches!(read, Some(Ok(()))));
        self.forged_byes += u64::from(read.is_none() && contains_bye(bytes));
    }

    /// The source is gone: what is left of it goes out, and the next one begins anew.
    fn end_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(leg) = &mut self.ingress else { return };
        leg.finish();
        self.egress.send_due(now, leg, out);
        self.previous_totals = self.totals();
        self.ingress = None;
        self.legs = None;
        self.egress.reset();
        if let (Some(mut rtcp), Some(from)) = (self.sender_rtcp.take(), self.from) {
            self.forged_byes += rtcp.stats().forged_byes;
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, Route::to(from).from_own_socket(), out);
        }
    }

    /// Another source has the stream now.
    fn switch_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        match self.ingress.take_if(|leg| !leg.receiver().is_valid()) {
            // It was none: what it sent is not for the listener.
            Some(leg) => {
                self.latch.count_abandoned(leg.receiver().stats().received);
                self.legs = None;
            }
            None => self.end_source(now, out),
        }
    }

    /// Nobody sends any more, and the listener is told.
    fn end_stream(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.end_source(now, out);
        self.latch.reset();
        if let Some(mut rtcp) = self.egress.rtcp.take() {
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, self.egress.route(), out);
        }
    }

    /// What all sources came to, up to now.
    fn totals(&self) -> SourceTotals {
        let mut sum = self.previous_totals;
        if let Some(leg) = &self.ingress {
            sum.add(leg);
        }
        if let Some(legs) = &self.legs {
            let tally = legs.stats();
            sum.copies += tally.duplicates;
            for (way, at) in [Way::A, Way::B].into_iter().zip(0..) {
                sum.taken[at] += tally.accepted[at];
                sum.lost[at] += legs.path_stats(way).lost;
            }
        }
        sum
    }

    fn idle_at(&self) -> Option<Instant> {
        self.ingress.as_ref().map(|leg| leg.last_received() + self.plan.config.idle_timeout)
    }
}

/// What sources came to.
#[derive(Clone, Copy, Debug, Default)]
struct SourceTotals {
    source: rtp::ReceiverStats,
    jitter: JitterStats,
    no_room: u64,
    recovered: u64,
    taken: [u64; 2],
    lost: [u64; 2],
    copies: u64,
}

impl SourceTotals {
    fn add(&mut self, leg: &RtpIngress) {
        let (tally, stats, line) = (leg.receiver().stats(), leg.jitter_stats(), self.jitter);
        let source = &mut self.source;
        source.received += tally.received;
        source.lost += tally.lost;
        source.duplicates += tally.duplicates;
        source.reordered += tally.reordered;
        source.strays += tally.strays;
        source.restarts += tally.restarts;
        source.jumps += tally.jumps;
        self.jitter = JitterStats {
            received: line.received + stats.received,
            duplicates: line.duplicates + stats.duplicates,
            reordered: line.reordered + stats.reordered,
            late: line.late + stats.late,
            lost: line.lost + stats.lost,
            strays: line.strays + stats.strays,
            skipped: line.skipped + stats.skipped,
            concealed: line.concealed + stats.concealed,
            silent: line.silent + stats.silent,
            restarts: line.restarts + stats.restarts,
            ..stats
        };
        self.no_room += leg.no_room();
        self.recovered += leg.redundancy_counts().used;
    }
}

/// Whether somebody leaves, whoever says so.
fn contains_bye(datagram: &[u8]) -> bool {
    let compound = rtcp::CompoundPacket::parse(datagram);
    compound.is_ok_and(|compound| {
        compound.packets().any(|part| matches!(part, rtcp::RtcpPacket::Bye(_)))
    })
}

fn write_rtcp(
    now: Instant,
    rtcp: &mut RtcpSession,
    leg: Option<&mut RtpIngress>,
    route: Route,
    out: &mut Outbox<'_>,
) {
    // Only when a report is due: to ask begins the next interval.
    let source = core::iter::once_with(|| {
        leg.and_then(|leg| Some((leg.ssrc(), leg.receiver_mut().report()?)))
    });
    out.write(route, RTCP_ROOM, |room| rtcp.poll_output(now, room, source.flatten()).unwrap_or(0));
}

impl Machine for RelayStream {
    type Command = Infallible;
    type Report = RelayReport;

    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
        for packet in packets {
            if rtp::is_rtcp(packet.bytes) {
                self.receive_rtcp(now, packet.from, packet.is_answer, packet.bytes);
            } else if !packet.is_answer {
                self.receive(&packet, out);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if self.idle_at().is_some_and(|at| at <= now) {
            self.end_stream(now, out);
        }
        if let Some(leg) = &mut self.ingress {
            self.egress.send_due(now, leg, out);
        }
        let mut left = false;
        if let (Some(rtcp), Some(from)) = (&mut self.sender_rtcp, self.from) {
            let ssrc = self.ingress.as_ref().map(|leg| leg.ssrc());
            rtcp.handle_timeout(now, |event| {
                left |= matches!(event, RtcpEvent::Left { ssrc: gone } if Some(gone) == ssrc);
            });
            write_rtcp(
                now,
                rtcp,
                self.ingress.as_deref_mut(),
                Route::to(from).from_own_socket(),
                out,
            );
        }
        let route = self.egress.route();
        if let Some(rtcp) = &mut self.egress.rtcp {
            rtcp.handle_timeout(now, |_| ());
            write_rtcp(now, rtcp, None, route, out);
        }
        if left {
            self.end_stream(now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let leg = self.ingress.as_ref().and_then(|leg| leg.poll_timeout());
        let inward = self.from.and(self.sender_rtcp.as_ref()).and_then(|rtcp| rtcp.poll_timeout());
        let outward = self.egress.rtcp.as_ref().and_then(|rtcp| rtcp.poll_timeout());
        [leg, inward, outward, self.idle_at()].into_iter().flatten().min()
    }

    fn handle_command(&mut self, _now: Instant, order: Infallible, _out: &mut Outbox<'_>) {
        match order {}
    }

    fn report(&self) -> RelayReport {
        let sum = self.totals();
        let (outward, latch) = (&self.egress, self.latch.counts());
        let forged = self.sender_rtcp.as_ref().map_or(0, |rtcp| rtcp.stats().forged_byes);
        RelayReport {
            label: self.label,
            ssrc: self.ingress.as_ref().map(|leg| leg.ssrc()),
            sent_ssrc: outward.ssrc,
            from: self.from,
            second: self.latch.sender_address(1),
            to: outward.to,
            tally: RelayCounts {
                source: sum.source,
                jitter: sum.jitter,
                recovered_red: sum.recovered,
                recovered_fec: outward.recovered,
                dtmf: outward.dtmf,
                comfort_noise: outward.comfort_noise,
                taken: sum.taken,
                lost: sum.lost,
                duplicates: sum.copies,
                sent: outward.sent,
                sent_bytes: outward.sent_bytes,
                refused: self.refused.total(),
                unknown_types: self.other_types,
                last_unknown_type: self.other_type,
                other_sources: latch.other_sources,
                other_addresses: latch.other_addresses,
                undecodable: self.undecodable + outward.undecodable,
                too_late: outward.too_late,
                no_room: sum.no_room,
                unsent: outward.unsent,
                restarts: latch.restarts,
                takeovers: latch.takeovers,
                foreign_rtcp: self.foreign_rtcp,
                forged_byes: self.forged_byes + forged,
            },
            receiver_report: outward.reported,
            round_trip: self.round_trip,
        }
    }

    fn finish(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.end_stream(now, out);
    }
}

/// Others in a session of RTCP: there is one, and whoever took his place.
const MAX_RTCP_MEMBERS: usize = 2;

/// Reports of one source, with a name of 255 bytes.
const RTCP_ROOM: usize = 512;

//! One relayed stream as a state machine.

use core::net::SocketAddr;
use std::convert::Infallible;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::dual_path::{DualPathMerger, MergeOutcome, RedundantPath as Way};
use aulos_proto::rtp::jitter::JitterStats;
use aulos_proto::rtp::rtcp::{self, ReportBlock};
use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpEvent, RtcpSession};
use aulos_proto::rtp::{self, RtpErrorCounts};

use super::RelayPlan;
use super::egress::RtpEgress;
use super::latch::{Acceptance, Latch, PacketOrigin};
use crate::datagram::{Machine, Outbox, Packet, Packets, Route, StreamKey};
use crate::rtp::receive::ingress::RtpIngress;
use crate::rtp::receive::payload::{IgnoreReason, IncomingPacket};

/// The counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Packets of the source, as counted by [`rtp::RtpReceiver`].
    pub source: rtp::ReceiverStats,
    /// Statistics of the jitter buffer.
    pub jitter: JitterStats,
    /// Lost packets that were recovered from RED.
    pub recovered_red: u64,
    /// Lost packets that were recovered from Opus FEC.
    pub recovered_fec: u64,
    /// Sent packets of telephone events.
    pub dtmf: u64,
    /// Sent packets of comfort noise.
    pub comfort_noise: u64,
    /// Packets that were used from each of two paths.
    pub taken: [u64; 2],
    /// Packets lost on each of two paths.
    pub lost: [u64; 2],
    /// Packets that had already arrived on the other path.
    pub duplicates: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent, with RTP headers.
    pub sent_bytes: u64,
    /// Datagrams that are not RTP.
    pub refused: u64,
    /// Packets with an unknown payload type.
    pub unknown_types: u64,
    /// The last unknown payload type.
    pub last_unknown_type: Option<u8>,
    /// Packets of other sources that were not accepted.
    pub other_sources: u64,
    /// Packets from another address while the sender is active.
    pub other_addresses: u64,
    /// Packets that could not be transcoded: empty, truncated or damaged.
    pub undecodable: u64,
    /// Panics of codec libraries. Each time a new decoder or encoder went on.
    pub codec_panics: u64,
    /// Packets that came too late for an encoding whose packets depend on each other.
    pub too_late: u64,
    /// Packets for which the jitter buffer had no room.
    pub no_room: u64,
    /// Packets dropped because the send queue was full.
    pub unsent: u64,
    /// How often the sender restarted with another SSRC.
    pub restarts: u64,
    /// How often another sender took over after a silence.
    pub takeovers: u64,
    /// RTCP from an unexpected address, or malformed.
    pub foreign_rtcp: u64,
    /// BYEs of another sender, or of a sender that continued.
    pub forged_byes: u64,
}

/// Identifies a stream for control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "two numbers of whoever made it")]
pub struct RelayStreamLabel {
    /// The index of its relay.
    pub relay: u32,
    /// The port at which it arrives.
    pub port: u16,
}

/// The status of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelayReport {
    /// The stream.
    pub label: RelayStreamLabel,
    /// The SSRC of its source, if there is one.
    pub ssrc: Option<u32>,
    /// The SSRC that it is sent with.
    pub sent_ssrc: u32,
    /// The address of the sender.
    pub from: Option<SocketAddr>,
    /// The address of the sender on the second path, if there are two.
    pub second: Option<SocketAddr>,
    /// The destination.
    pub to: SocketAddr,
    /// The counters.
    pub tally: RelayCounts,
    /// The last report block of the receiver, and the round-trip time to it.
    pub receiver_report: Option<(ReportBlock, Option<Span>)>,
    /// The round-trip time to the sender.
    pub round_trip: Option<Span>,
}

/// An RTP stream from one port to one destination.
#[derive(Debug)]
pub struct RelayStream {
    label: RelayStreamLabel,
    plan: Arc<RelayPlan>,
    ingress: Option<Box<RtpIngress>>,
    legs: Option<Box<DualPathMerger>>,
    from: Option<SocketAddr>,
    /// The RTCP state towards the sender.
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
    /// The totals of earlier sources.
    previous_totals: SourceTotals,
    /// Varies the times of the reports between streams.
    seed: u64,
}

impl RelayStream {
    /// A stream to `to`. It sends with the SSRC `ssrc`, which must be unique at the destination;
    /// `seed` varies the times of its reports.
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

    fn receive(&mut self, datagram: &Packet<'_>, out: &mut Outbox<'_>) {
        let (received, from) = (datagram.received, datagram.from);
        let packet = match rtp::RtpPacket::parse(datagram.bytes) {
            Ok(packet) => packet,
            Err(why) => return self.refused.count(why),
        };
        let Some(incoming) = self.parse(&packet) else { return };
        let path = usize::from(datagram.is_second);
        let sender = PacketOrigin { path, from, ssrc: packet.ssrc(), sequence: packet.sequence() };
        let stream =
            self.ingress.as_ref().map(|ingress| (ingress.ssrc(), ingress.receiver().is_valid()));
        match self.latch.judge(sender, stream, received, datagram.bytes) {
            Acceptance::Current => {}
            Acceptance::Held | Acceptance::Rejected => return,
            Acceptance::AddressChanged => self.process_held(sender, out),
            Acceptance::NewSource => {
                self.switch_source(received, out);
                self.process_held(sender, out);
            }
        }
        self.process_packet(received, sender, &incoming, out);
    }

    /// Parses a packet; `None` if it is of no use.
    fn parse<'a>(&mut self, packet: &rtp::RtpPacket<'a>) -> Option<IncomingPacket<'a>> {
        match self.plan.config.receive.parse(packet) {
            Ok(incoming) => return Some(incoming),
            Err(IgnoreReason::UnknownPayloadType) => {
                self.other_types += 1;
                self.other_type = Some(packet.payload_type());
            }
            Err(IgnoreReason::InvalidRed) => self.undecodable += 1,
        }
        None
    }

    /// Handles the packet that the latch held.
    fn process_held(&mut self, sender: PacketOrigin, out: &mut Outbox<'_>) {
        let (received, datagram) = self.latch.take_held(sender.path);
        if let Ok(packet) = rtp::RtpPacket::parse(&datagram)
            && let Some(incoming) = self.parse(&packet)
        {
            self.process_packet(received, sender, &incoming, out);
        }
        self.latch.return_buffer(sender.path, datagram);
    }

    /// Handles a packet of the stream.
    fn process_packet(
        &mut self,
        received: Instant,
        sender: PacketOrigin,
        packet: &IncomingPacket<'_>,
        out: &mut Outbox<'_>,
    ) {
        let config = &self.plan.config;
        let clock_rate = config.receive.media.encoding.clock_rate;
        if config.redundant {
            let path = if sender.path == 0 { Way::A } else { Way::B };
            let legs = self.legs.get_or_insert_default();
            let (sequence, timestamp) = (packet.sequence, packet.timestamp);
            if legs.receive(received, path, sequence, timestamp, clock_rate)
                == MergeOutcome::Duplicate
            {
                return;
            }
        }
        let fresh = self.ingress.is_none();
        let ingress = self.ingress.get_or_insert_with(|| {
            Box::new(RtpIngress::new(&config.receive, sender.ssrc, received))
        });
        ingress.receive(packet, received);
        let proven = ingress.receiver().is_valid();
        if proven {
            self.from = self.latch.sender_address(0).or_else(|| self.latch.sender_address(1));
        }
        self.egress.send_due(received, ingress, out);
        if fresh {
            self.start_rtcp(received, out);
        }
        if let Some(rtcp) = self.sender_rtcp.as_mut().filter(|_| proven) {
            rtcp.record_received(received, sender.ssrc);
        }
    }

    /// Starts RTCP for a source, on both sides.
    fn start_rtcp(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(cname) = &self.plan.config.cname else { return };
        // The receiver sends its reports to the source address of the packets.
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

    /// The source has ended: its queued packets are sent, and the next source starts anew.
    fn end_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(ingress) = &mut self.ingress else { return };
        ingress.finish();
        self.egress.send_due(now, ingress, out);
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

    /// Another source takes over the stream.
    fn switch_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        match self.ingress.take_if(|ingress| !ingress.receiver().is_valid()) {
            // The source was never validated, so its packets are not forwarded.
            Some(ingress) => {
                self.latch.count_abandoned(ingress.receiver().stats().received);
                self.legs = None;
            }
            None => self.end_source(now, out),
        }
    }

    /// The sender has left; a BYE tells the receiver.
    fn end_stream(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.end_source(now, out);
        self.latch.reset();
        if let Some(mut rtcp) = self.egress.rtcp.take() {
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, self.egress.route(), out);
        }
    }

    /// The totals of all sources so far.
    fn totals(&self) -> SourceTotals {
        let mut sum = self.previous_totals;
        if let Some(ingress) = &self.ingress {
            sum.add(ingress);
        }
        if let Some(legs) = &self.legs {
            let tally = legs.stats();
            sum.copies += tally.duplicates;
            for (path, at) in [Way::A, Way::B].into_iter().zip(0..) {
                sum.taken[at] += tally.accepted[at];
                sum.lost[at] += legs.path_stats(path).lost;
            }
        }
        sum
    }

    fn idle_at(&self) -> Option<Instant> {
        self.ingress.as_ref().map(|ingress| ingress.last_received() + self.plan.config.idle_timeout)
    }
}

/// Totals over sources.
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
    fn add(&mut self, ingress: &RtpIngress) {
        let (tally, stats, jitter) =
            (ingress.receiver().stats(), ingress.jitter_stats(), self.jitter);
        let source = &mut self.source;
        source.received += tally.received;
        source.lost += tally.lost;
        source.duplicates += tally.duplicates;
        source.reordered += tally.reordered;
        source.strays += tally.strays;
        source.restarts += tally.restarts;
        source.jumps += tally.jumps;
        self.jitter = JitterStats {
            received: jitter.received + stats.received,
            duplicates: jitter.duplicates + stats.duplicates,
            reordered: jitter.reordered + stats.reordered,
            late: jitter.late + stats.late,
            lost: jitter.lost + stats.lost,
            strays: jitter.strays + stats.strays,
            skipped: jitter.skipped + stats.skipped,
            concealed: jitter.concealed + stats.concealed,
            silent: jitter.silent + stats.silent,
            restarts: jitter.restarts + stats.restarts,
            ..stats
        };
        self.no_room += ingress.no_room();
        self.recovered += ingress.redundancy_counts().used;
    }
}

/// Whether a compound packet contains a BYE of any source.
fn contains_bye(datagram: &[u8]) -> bool {
    let compound = rtcp::CompoundPacket::parse(datagram);
    compound.is_ok_and(|compound| {
        compound.packets().any(|part| matches!(part, rtcp::RtcpPacket::Bye(_)))
    })
}

fn write_rtcp(
    now: Instant,
    rtcp: &mut RtcpSession,
    ingress: Option<&mut RtpIngress>,
    route: Route,
    out: &mut Outbox<'_>,
) {
    // Evaluated only when a report is due, because reading the state begins the next interval.
    let source = core::iter::once_with(|| {
        ingress.and_then(|ingress| Some((ingress.ssrc(), ingress.receiver_mut().report()?)))
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
        if let Some(ingress) = &mut self.ingress {
            self.egress.send_due(now, ingress, out);
        }
        let mut left = false;
        if let (Some(rtcp), Some(from)) = (&mut self.sender_rtcp, self.from) {
            let ssrc = self.ingress.as_ref().map(|ingress| ingress.ssrc());
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
        let ingress = self.ingress.as_ref().and_then(|ingress| ingress.poll_timeout());
        let inward = self.from.and(self.sender_rtcp.as_ref()).and_then(|rtcp| rtcp.poll_timeout());
        let outward = self.egress.rtcp.as_ref().and_then(|rtcp| rtcp.poll_timeout());
        [ingress, inward, outward, self.idle_at()].into_iter().flatten().min()
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
            ssrc: self.ingress.as_ref().map(|ingress| ingress.ssrc()),
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
                codec_panics: outward.codec_panics(),
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

/// Members of an RTCP session: the sender, and its successor.
const MAX_RTCP_MEMBERS: usize = 2;

/// Room for the reports of one source, with a CNAME of 255 bytes.
const RTCP_ROOM: usize = 512;

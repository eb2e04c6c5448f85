//! One relayed stream, as a machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::Stats;
use aulos_proto::rtp::legs::{Leg as Way, Legs, Picked};
use aulos_proto::rtp::report::{Event, Rtcp, RtcpConfig};
use aulos_proto::rtp::rtcp::{self, ReportBlock};
use aulos_proto::rtp::{self, Refused};

use super::Plan;
use super::kind::{Incoming, Unread};
use super::latch::{Latch, Sender, Verdict};
use super::leg::Leg;
use super::outward::Outward;
use crate::udp::{self, Key, Machine, Outbox, Packets, Route};

/// What a stream came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Packets of the source: [`rtp::Receiver`] counts them.
    pub source: rtp::Tally,
    /// What stood in line, and for how long.
    pub line: Stats,
    /// Lost packets that were taken out of those behind them: RED.
    pub recovered_red: u64,
    /// Lost packets that were made of what Opus repeats of them.
    pub recovered_fec: u64,
    /// Of the packets that went out, keys that were pressed.
    pub events: u64,
    /// Of the packets that went out, comfort noise.
    pub noise: u64,
    /// Packets that came over each of two ways before the other, or by themselves.
    pub taken: [u64; 2],
    /// Packets that each of two ways has lost.
    pub lost: [u64; 2],
    /// Packets that had come over the other way.
    pub copies: u64,
    /// Packets that went out, and their bytes with the headers of RTP.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that are no RTP.
    pub refused: u64,
    /// Packets of a payload type that nobody spoke of.
    pub other_types: u64,
    /// The last of these types.
    pub other_type: Option<u8>,
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
pub struct Label {
    /// The relay that it is one of.
    pub relay: u32,
    /// The port that it comes to.
    pub port: u16,
}

/// What there is to know of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Whose it is.
    pub label: Label,
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
    pub tally: Tally,
    /// What the listener says that he receives, and the way to him and back.
    pub reported: Option<(ReportBlock, Option<Span>)>,
    /// The way to the sender and back.
    pub round_trip: Option<Span>,
}

/// A stream of RTP from one port to one place.
#[derive(Debug)]
pub struct Relay {
    label: Label,
    plan: Arc<Plan>,
    leg: Option<Box<Leg>>,
    legs: Option<Box<Legs>>,
    from: Option<SocketAddr>,
    /// Our side of the conversation with the sender.
    inward: Option<Box<Rtcp>>,
    outward: Outward,
    latch: Latch,
    refused: Refused,
    other_types: u64,
    other_type: Option<u8>,
    undecodable: u64,
    foreign_rtcp: u64,
    forged_byes: u64,
    round_trip: Option<Span>,
    /// What the sources before came to.
    before: Sum,
    /// What makes our reports come at other times than those of others.
    seed: u64,
}

impl Relay {
    /// A relay to `to`. It sends as the source `ssrc`, which nobody else there may have; `seed` makes
    /// its reports come at other times than those of its neighbours.
    #[must_use]
    pub fn new(plan: Arc<Plan>, label: Label, to: SocketAddr, ssrc: u32, seed: u64) -> Self {
        let outward = Outward::new(Arc::clone(&plan), to, ssrc);
        let latch = Latch::new(plan.wishes.takeover);
        Self {
            label,
            plan,
            leg: None,
            legs: None,
            from: None,
            inward: None,
            outward,
            latch,
            refused: Refused::default(),
            other_types: 0,
            other_type: None,
            undecodable: 0,
            foreign_rtcp: 0,
            forged_byes: 0,
            round_trip: None,
            before: Default::default(),
            seed,
        }
    }

    #[cfg(test)]
    pub(super) fn wishes(&self) -> &super::Wishes {
        &self.plan.wishes
    }

    fn receive(&mut self, datagram: &udp::Packet<'_>, out: &mut Outbox<'_>) {
        let (received, from) = (datagram.received, datagram.from);
        let packet = match rtp::Packet::parse(datagram.bytes) {
            Ok(packet) => packet,
            Err(why) => return self.refused.count(why),
        };
        let Some(incoming) = self.read(&packet) else { return };
        let way = usize::from(datagram.is_second);
        let sender = Sender { way, from, ssrc: packet.ssrc(), sequence: packet.sequence() };
        let stream = self.leg.as_ref().map(|leg| (leg.ssrc(), leg.receiver().is_valid()));
        match self.latch.judge(sender, stream, received, datagram.bytes) {
            Verdict::Ours => {}
            Verdict::Kept | Verdict::Foreign => return,
            Verdict::Joins => self.take_kept(sender, out),
            Verdict::Begins => {
                self.leave_source(received, out);
                self.take_kept(sender, out);
            }
        }
        self.take(received, sender, &incoming, out);
    }

    /// What is in a packet, if anything that we know.
    fn read<'a>(&mut self, packet: &rtp::Packet<'a>) -> Option<Incoming<'a>> {
        match self.plan.wishes.read(packet) {
            Ok(incoming) => return Some(incoming),
            Err(Unread::Type) => {
                self.other_types += 1;
                self.other_type = Some(packet.payload_type());
            }
            Err(Unread::Red) => self.undecodable += 1,
        }
        None
    }

    /// Takes the packet that stood in probation.
    fn take_kept(&mut self, sender: Sender, out: &mut Outbox<'_>) {
        let (received, datagram) = self.latch.take_kept(sender.way);
        if let Ok(packet) = rtp::Packet::parse(&datagram)
            && let Some(incoming) = self.read(&packet)
        {
            self.take(received, sender, &incoming, out);
        }
        self.latch.give_back(sender.way, datagram);
    }

    /// Takes a packet of the stream.
    fn take(
        &mut self,
        received: Instant,
        sender: Sender,
        packet: &Incoming<'_>,
        out: &mut Outbox<'_>,
    ) {
        let wishes = &self.plan.wishes;
        let clock_rate = wishes.from.encoding.clock_rate;
        if wishes.two_ways {
            let way = if sender.way == 0 { Way::A } else { Way::B };
            let legs = self.legs.get_or_insert_default();
            let (sequence, timestamp) = (packet.sequence, packet.timestamp);
            if legs.receive(received, way, sequence, timestamp, clock_rate) == Picked::Copy {
                return;
            }
        }
        let fresh = self.leg.is_none();
        let leg = self.leg.get_or_insert_with(|| Box::new(Leg::new(wishes, sender.ssrc, received)));
        leg.receive(packet, received);
        let proven = leg.receiver().is_valid();
        if proven {
            self.from = self.latch.from(0).or_else(|| self.latch.from(1));
        }
        self.outward.send_due(received, leg, out);
        if fresh {
            self.greet(received, out);
        }
        if let Some(rtcp) = self.inward.as_mut().filter(|_| proven) {
            rtcp.received(received, sender.ssrc);
        }
    }

    /// RTCP begins with a source, on both sides.
    fn greet(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(cname) = &self.plan.wishes.cname else { return };
        // Who listens answers to where our packets come from.
        out.claim(Key::Ssrc(self.outward.ssrc));
        self.seed = self.seed.wrapping_add(1);
        let config = |side: u64| RtcpConfig {
            ssrc: self.outward.ssrc,
            cname: Arc::clone(cname),
            members: MEMBERS,
            seed: self.seed.rotate_left(32) ^ side,
            ..RtcpConfig::default()
        };
        let mut inward = Rtcp::new(RtcpConfig { reference_time: true, ..config(0) }, now);
        let (at, ntp) = self.plan.wishes.clock;
        inward.set_clock(at, ntp);
        self.inward = Some(Box::new(inward));
        if self.outward.rtcp.is_none() {
            let mut rtcp = Rtcp::new(config(1), now);
            rtcp.set_clock(at, ntp);
            self.outward.rtcp = Some(Box::new(rtcp));
        }
    }

    fn receive_rtcp(&mut self, now: Instant, from: SocketAddr, is_answer: bool, bytes: &[u8]) {
        let round_trip = &mut self.round_trip;
        let outward = &mut self.outward;
        let read = if (is_answer && from.ip() == outward.to.ip()) || from == outward.to {
            let reported = &mut outward.reported;
            let ssrc = outward.ssrc;
            outward.rtcp.as_mut().map(|rtcp| {
                rtcp.handle_input(now, bytes, |event| {
                    if let Event::Reported { block, round_trip, .. } = event
                        && block.ssrc == ssrc
                    {
                        *reported = Some((block, round_trip));
                    }
                })
            })
        } else if self.latch.is_from(from.ip()) {
            self.inward.as_mut().map(|rtcp| {
                rtcp.handle_input(now, bytes, |event| {
                    if let Event::RoundTrip { span, .. } = event {
                        *round_trip = Some(span);
                    }
                })
            })
        } else {
            None
        };
        self.foreign_rtcp += u64::from(!matches!(read, Some(Ok(()))));
        self.forged_byes += u64::from(read.is_none() && says_good_bye(bytes));
    }

    /// The source is gone: what is left of it goes out, and the next one begins anew.
    fn end_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(leg) = &mut self.leg else { return };
        leg.finish();
        self.outward.send_due(now, leg, out);
        self.before = self.sum();
        self.leg = None;
        self.legs = None;
        self.outward.reset();
        if let (Some(mut rtcp), Some(from)) = (self.inward.take(), self.from) {
            self.forged_byes += rtcp.tally().forged_byes;
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, Route::to(from).own(), out);
        }
    }

    /// Another source has the stream now.
    fn leave_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        match self.leg.take_if(|leg| !leg.receiver().is_valid()) {
            // It was none: what it sent is not for the listener.
            Some(leg) => {
                self.latch.abandon(leg.receiver().tally().received);
                self.legs = None;
            }
            None => self.end_source(now, out),
        }
    }

    /// Nobody sends any more, and the listener is told.
    fn end_stream(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.end_source(now, out);
        self.latch.forget();
        if let Some(mut rtcp) = self.outward.rtcp.take() {
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, self.outward.route(), out);
        }
    }

    /// What all sources came to, up to now.
    fn sum(&self) -> Sum {
        let mut sum = self.before;
        if let Some(leg) = &self.leg {
            sum.add(leg);
        }
        if let Some(legs) = &self.legs {
            let tally = legs.tally();
            sum.copies += tally.copies;
            for (way, at) in [Way::A, Way::B].into_iter().zip(0..) {
                sum.taken[at] += tally.taken[at];
                sum.lost[at] += legs.leg(way).lost;
            }
        }
        sum
    }

    fn idle_at(&self) -> Option<Instant> {
        self.leg.as_ref().map(|leg| leg.heard() + self.plan.wishes.idle)
    }
}

/// What sources came to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    source: rtp::Tally,
    line: Stats,
    no_room: u64,
    recovered: u64,
    taken: [u64; 2],
    lost: [u64; 2],
    copies: u64,
}

impl Sum {
    fn add(&mut self, leg: &Leg) {
        let (tally, stats, line) = (leg.receiver().tally(), leg.line(), self.line);
        let source = &mut self.source;
        source.received += tally.received;
        source.lost += tally.lost;
        source.duplicates += tally.duplicates;
        source.reordered += tally.reordered;
        source.strays += tally.strays;
        source.restarts += tally.restarts;
        source.jumps += tally.jumps;
        self.line = Stats {
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
        self.recovered += leg.copies().used;
    }
}

/// Whether somebody leaves, whoever says so.
fn says_good_bye(datagram: &[u8]) -> bool {
    let compound = rtcp::Compound::parse(datagram);
    compound.is_ok_and(|compound| compound.parts().any(|part| matches!(part, rtcp::Part::Bye(_))))
}

fn write_rtcp(
    now: Instant,
    rtcp: &mut Rtcp,
    leg: Option<&mut Leg>,
    route: Route,
    out: &mut Outbox<'_>,
) {
    // Only when a report is due: to ask begins the next interval.
    let source = core::iter::once_with(|| {
        leg.and_then(|leg| Some((leg.ssrc(), leg.receiver_mut().report()?)))
    });
    out.write(route, RTCP_ROOM, |room| rtcp.poll_output(now, room, source.flatten()).unwrap_or(0));
}

impl Machine for Relay {
    type Order = Infallible;
    type Report = Report;

    fn packets(&mut self, now: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
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
        if let Some(leg) = &mut self.leg {
            self.outward.send_due(now, leg, out);
        }
        let mut left = false;
        if let (Some(rtcp), Some(from)) = (&mut self.inward, self.from) {
            let ssrc = self.leg.as_ref().map(|leg| leg.ssrc());
            rtcp.handle_timeout(now, |event| {
                left |= matches!(event, Event::Left { ssrc: gone } if Some(gone) == ssrc);
            });
            write_rtcp(now, rtcp, self.leg.as_deref_mut(), Route::to(from).own(), out);
        }
        let route = self.outward.route();
        if let Some(rtcp) = &mut self.outward.rtcp {
            rtcp.handle_timeout(now, |_| ());
            write_rtcp(now, rtcp, None, route, out);
        }
        if left {
            self.end_stream(now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let leg = self.leg.as_ref().and_then(|leg| leg.poll_timeout());
        let inward = self.from.and(self.inward.as_ref()).and_then(|rtcp| rtcp.poll_timeout());
        let outward = self.outward.rtcp.as_ref().and_then(|rtcp| rtcp.poll_timeout());
        [leg, inward, outward, self.idle_at()].into_iter().flatten().min()
    }

    fn obey(&mut self, _now: Instant, order: Infallible, _out: &mut Outbox<'_>) {
        match order {}
    }

    fn report(&self) -> Report {
        let sum = self.sum();
        let (outward, latch) = (&self.outward, self.latch.counts());
        let forged = self.inward.as_ref().map_or(0, |rtcp| rtcp.tally().forged_byes);
        Report {
            label: self.label,
            ssrc: self.leg.as_ref().map(|leg| leg.ssrc()),
            sent_ssrc: outward.ssrc,
            from: self.from,
            second: self.latch.from(1),
            to: outward.to,
            tally: Tally {
                source: sum.source,
                line: sum.line,
                recovered_red: sum.recovered,
                recovered_fec: outward.recovered,
                events: outward.events,
                noise: outward.noise,
                taken: sum.taken,
                lost: sum.lost,
                copies: sum.copies,
                sent: outward.sent,
                sent_bytes: outward.sent_bytes,
                refused: self.refused.total(),
                other_types: self.other_types,
                other_type: self.other_type,
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
            reported: outward.reported,
            round_trip: self.round_trip,
        }
    }

    fn finish(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.end_stream(now, out);
    }
}

/// Others in a session of RTCP: there is one, and whoever took his place.
const MEMBERS: usize = 2;

/// Reports of one source, with a name of 255 bytes.
const RTCP_ROOM: usize = 512;

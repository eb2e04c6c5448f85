//! One relayed stream, as a machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::Stats;
use aulos_proto::rtp::report::{Event, Rtcp, RtcpConfig};
use aulos_proto::rtp::rtcp::ReportBlock;
use aulos_proto::rtp::{self, HEADER_LEN, Header, Refused, sequence};

use super::Plan;
use super::leg::{Leg, Ready, Turn};
use super::transcode::Transcoder;
use crate::udp::{Key, Machine, Outbox, Packets, Route};

/// What a stream came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Packets of the source: [`rtp::Receiver`] counts them.
    pub source: rtp::Tally,
    /// What stood in line, and for how long.
    pub line: Stats,
    /// Packets that went out, and their bytes with the headers of RTP.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that are no RTP.
    pub refused: u64,
    /// Packets of another payload type than the one that is relayed.
    pub other_types: u64,
    /// Packets of other sources, which did not go on long enough to be followed.
    pub other_sources: u64,
    /// Packets that could not be transcoded: empty, cut, damaged.
    pub undecodable: u64,
    /// Packets that came too late for an encoding in which each needs the one before.
    pub too_late: u64,
    /// Packets for which there was no place in line.
    pub no_room: u64,
    /// Packets that could not go because too much waited to be sent.
    pub unsent: u64,
    /// How often another source took the place of the one before.
    pub changes: u64,
    /// RTCP that came from where it should not, or could not be read.
    pub foreign_rtcp: u64,
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
    from: Option<SocketAddr>,
    /// Our side of the conversation with the sender.
    inward: Option<Box<Rtcp>>,
    outward: Outward,
    candidate: Candidate,
    refused: Refused,
    other_types: u64,
    other_sources: u64,
    changes: u64,
    foreign_rtcp: u64,
    round_trip: Option<Span>,
    /// What the sources before came to.
    before: (rtp::Tally, Stats, u64),
    /// What makes our reports come at other times than those of others.
    seed: u64,
}

/// The last packet of another source, which may be one of a sender who began anew.
#[derive(Debug, Default)]
struct Candidate {
    /// The source, and the number that would be next; none when a packet of ours has come since.
    next: Option<(u32, u16)>,
    received: Instant,
    datagram: Vec<u8>,
}

/// The listener's side.
#[derive(Debug)]
struct Outward {
    plan: Arc<Plan>,
    to: SocketAddr,
    ssrc: u32,
    transcoder: Transcoder,
    rtcp: Option<Box<Rtcp>>,
    sent: u64,
    sent_bytes: u64,
    undecodable: u64,
    too_late: u64,
    unsent: u64,
    reported: Option<(ReportBlock, Option<Span>)>,
}

impl Relay {
    /// A relay to `to`. It sends as the source `ssrc`, which nobody else there may have; `seed` makes
    /// its reports come at other times than those of its neighbours.
    #[must_use]
    pub fn new(plan: Arc<Plan>, label: Label, to: SocketAddr, ssrc: u32, seed: u64) -> Self {
        let transcoder = plan.transcoder.clone();
        let outward = Outward {
            plan: Arc::clone(&plan),
            to,
            ssrc,
            transcoder,
            rtcp: None,
            sent: 0,
            sent_bytes: 0,
            undecodable: 0,
            too_late: 0,
            unsent: 0,
            reported: None,
        };
        Self {
            label,
            plan,
            leg: None,
            from: None,
            inward: None,
            outward,
            candidate: Candidate::default(),
            refused: Refused::default(),
            other_types: 0,
            other_sources: 0,
            changes: 0,
            foreign_rtcp: 0,
            round_trip: None,
            before: Default::default(),
            seed,
        }
    }

    #[cfg(test)]
    pub(super) fn wishes(&self) -> &super::Wishes {
        &self.plan.wishes
    }

    fn receive(&mut self, received: Instant, from: SocketAddr, bytes: &[u8], out: &mut Outbox<'_>) {
        let packet = match rtp::Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(why) => return self.refused.count(why),
        };
        if !self.plan.wishes.from.takes(packet.payload_type()) {
            self.other_types += 1;
            return;
        }
        let ssrc = packet.ssrc();
        if self.leg.as_ref().is_some_and(|leg| leg.ssrc() != ssrc) {
            if !self.candidate.is_followed_by(&packet) {
                self.other_sources += u64::from(self.candidate.next.is_some());
                self.candidate.keep(&packet, received, bytes);
                return;
            }
            self.end_source(received, out);
            self.changes += 1;
            self.take_candidate(out);
        }
        self.other_sources += u64::from(self.candidate.next.take().is_some());
        let fresh = self.leg.is_none();
        let wishes = &self.plan.wishes;
        let leg = self.leg.get_or_insert_with(|| Box::new(Leg::new(wishes, ssrc, received)));
        leg.receive(&packet, received);
        if leg.receiver().is_valid() {
            self.from = Some(from);
        }
        self.outward.send_due(received, leg, out);
        if fresh {
            self.greet(received, out);
        }
        if let (Some(rtcp), Some(leg)) = (&mut self.inward, &self.leg)
            && leg.receiver().is_valid()
        {
            rtcp.received(received, ssrc);
        }
    }

    /// The packet that was the first of a new source.
    fn take_candidate(&mut self, out: &mut Outbox<'_>) {
        self.candidate.next = None;
        let Candidate { received, ref datagram, .. } = self.candidate;
        let Ok(packet) = rtp::Packet::parse(datagram) else { return };
        let mut leg = Box::new(Leg::new(&self.plan.wishes, packet.ssrc(), received));
        leg.receive(&packet, received);
        self.outward.send_due(received, &mut leg, out);
        self.leg = Some(leg);
        self.greet(received, out);
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
        } else if self.from.is_some_and(|sender| sender.ip() == from.ip()) {
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
    }

    /// The source is gone: what is left of it goes out, and the next one begins anew.
    fn end_source(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let Some(mut leg) = self.leg.take() else { return };
        leg.finish();
        self.outward.send_due(now, &mut leg, out);
        self.before = self.sum(&leg);
        self.outward.transcoder.reset();
        if let (Some(mut rtcp), Some(from)) = (self.inward.take(), self.from) {
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, Route::to(from).own(), out);
        }
    }

    /// Nobody sends any more, and the listener is told.
    fn end_stream(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.end_source(now, out);
        if let Some(mut rtcp) = self.outward.rtcp.take() {
            rtcp.leave(now);
            write_rtcp(now, &mut rtcp, None, self.outward.route(), out);
        }
    }

    fn sum(&self, leg: &Leg) -> (rtp::Tally, Stats, u64) {
        let (source, line, no_room) = &self.before;
        let (tally, stats) = (leg.receiver().tally(), leg.line());
        let mut source = *source;
        source.received += tally.received;
        source.lost += tally.lost;
        source.duplicates += tally.duplicates;
        source.reordered += tally.reordered;
        source.strays += tally.strays;
        source.restarts += tally.restarts;
        source.jumps += tally.jumps;
        let line = Stats {
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
        (source, line, no_room + leg.no_room())
    }

    fn idle_at(&self) -> Option<Instant> {
        self.leg.as_ref().map(|leg| leg.heard() + self.plan.wishes.idle)
    }
}

impl Candidate {
    /// Two packets in a row, with none of ours between them, are a sender who began anew.
    fn is_followed_by(&self, packet: &rtp::Packet<'_>) -> bool {
        self.next == Some((packet.ssrc(), packet.sequence()))
    }

    /// Allocates only for a datagram that is longer than all before it.
    fn keep(&mut self, packet: &rtp::Packet<'_>, received: Instant, datagram: &[u8]) {
        self.next = Some((packet.ssrc(), packet.sequence().wrapping_add(1)));
        self.received = received;
        self.datagram.clear();
        self.datagram.extend_from_slice(datagram);
    }
}

impl Outward {
    /// Sends what is due.
    fn send_due(&mut self, now: Instant, leg: &mut Leg, out: &mut Outbox<'_>) {
        while let Some(turn) = leg.turn(now) {
            match turn {
                Turn::Missing(units) => self.transcoder.miss(units),
                Turn::Packet(ready) => {
                    self.send(now, &ready, leg.payload(&ready), out);
                    leg.sent(ready);
                }
            }
        }
    }

    fn send(&mut self, now: Instant, ready: &Ready, payload: &[u8], out: &mut Outbox<'_>) {
        if ready.late && self.transcoder.has_memory() {
            self.too_late += 1;
            return;
        }
        if ready.begins_run {
            self.transcoder.reset();
        }
        let (from, to) =
            (self.plan.wishes.from.encoding.clock_rate, self.plan.wishes.to.encoding.clock_rate);
        let header = Header {
            marker: ready.marker,
            payload_type: self.plan.wishes.to.sent_type(),
            sequence: sequence::low_16(ready.sequence),
            timestamp: sequence::low_32(scaled(ready.timestamp, from, to)),
            ssrc: self.ssrc,
        };
        let transcoder = &mut self.transcoder;
        let most = HEADER_LEN + transcoder.most(payload.len());
        let mut length = None;
        let route = Route::to(self.to);
        let route = if self.plan.wishes.symmetric { route.own() } else { route };
        let sent = out.write(route, most, |room| {
            let Some((front, rest)) = room.split_at_mut_checked(HEADER_LEN) else { return 0 };
            length = transcoder.run(ready.timestamp, payload, rest);
            match length {
                Some(length) if header.write(front).is_some() => HEADER_LEN + length,
                _ => 0,
            }
        });
        match (sent, length) {
            (false, _) => self.unsent += 1,
            (true, None) => self.undecodable += 1,
            (true, Some(length)) => {
                self.sent += 1;
                self.sent_bytes += (HEADER_LEN + length) as u64;
                if let Some(rtcp) = &mut self.rtcp {
                    rtcp.sent(now, &header, length, to);
                }
            }
        }
    }

    fn route(&self) -> Route {
        let route = Route::to(self.to);
        if self.plan.wishes.symmetric { route.own() } else { route }
    }
}

/// The same moment on another clock.
fn scaled(timestamp: u64, from: u32, to: u32) -> u64 {
    if from == to {
        return timestamp;
    }
    let scaled = u128::from(timestamp) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(scaled & u128::from(u64::MAX)).unwrap_or(0)
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
                self.receive(packet.received, packet.from, packet.bytes, out);
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
        let (source, line, no_room) = match &self.leg {
            Some(leg) => self.sum(leg),
            None => self.before,
        };
        let outward = &self.outward;
        Report {
            label: self.label,
            ssrc: self.leg.as_ref().map(|leg| leg.ssrc()),
            sent_ssrc: outward.ssrc,
            from: self.from,
            to: outward.to,
            tally: Tally {
                source,
                line,
                sent: outward.sent,
                sent_bytes: outward.sent_bytes,
                refused: self.refused.total(),
                other_types: self.other_types,
                other_sources: self.other_sources,
                undecodable: outward.undecodable,
                too_late: outward.too_late,
                no_room,
                unsent: outward.unsent,
                changes: self.changes,
                foreign_rtcp: self.foreign_rtcp,
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

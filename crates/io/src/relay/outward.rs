//! The listener's side of a relay: what is due goes out.

use std::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::report::Rtcp;
use aulos_proto::rtp::rtcp::ReportBlock;
use aulos_proto::rtp::{HEADER_LEN, Header, sequence};

use super::Plan;
use super::kind::{COMFORT_HZ, COMFORT_NOISE, Kind, write_event};
use super::leg::{Leg, Ready, Turn};
use super::repeat::Repeats;
use super::transcode::Transcoder;
use crate::udp::{Outbox, Route};

/// The listener's side.
#[derive(Debug)]
pub(super) struct Outward {
    pub(super) plan: Arc<Plan>,
    pub(super) to: SocketAddr,
    pub(super) ssrc: u32,
    transcoder: Transcoder,
    repeats: Option<Box<Repeats>>,
    /// Units of the sender's clock for which nothing came.
    missing: u64,
    pub(super) rtcp: Option<Box<Rtcp>>,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) undecodable: u64,
    pub(super) too_late: u64,
    pub(super) unsent: u64,
    pub(super) events: u64,
    pub(super) noise: u64,
    /// Packets that were made of what the next one carried of them.
    pub(super) recovered: u64,
    pub(super) reported: Option<(ReportBlock, Option<Span>)>,
}

impl Outward {
    pub(super) fn new(plan: Arc<Plan>, to: SocketAddr, ssrc: u32) -> Self {
        let transcoder = plan.transcoder.clone();
        let repeats = plan.wishes.red_to.map(|wish| Box::new(Repeats::new(wish)));
        Self {
            plan,
            to,
            ssrc,
            transcoder,
            repeats,
            missing: 0,
            rtcp: None,
            sent: 0,
            sent_bytes: 0,
            undecodable: 0,
            too_late: 0,
            unsent: 0,
            events: 0,
            noise: 0,
            recovered: 0,
            reported: None,
        }
    }

    /// Sends what is due.
    pub(super) fn send_due(&mut self, now: Instant, leg: &mut Leg, out: &mut Outbox<'_>) {
        while let Some(turn) = leg.turn(now) {
            match turn {
                // What comes behind it may have it.
                Turn::Missing(missing) => self.missing = self.missing.saturating_add(missing.units),
                Turn::Packet(ready) => {
                    self.send(now, &ready, leg.payload(&ready), out);
                    leg.sent(ready);
                }
            }
        }
    }

    /// What comes next has nothing to do with what came before.
    pub(super) fn reset(&mut self) {
        self.transcoder.reset();
        self.missing = 0;
    }

    fn send(&mut self, now: Instant, ready: &Ready, payload: &[u8], out: &mut Outbox<'_>) {
        if ready.begins_run {
            self.reset();
        }
        let wishes = &self.plan.wishes;
        let (from, to) = (wishes.from.encoding, wishes.to.encoding);
        let mut head = Head {
            sequence: ready.sequence,
            timestamp: ready.timestamp,
            marker: ready.marker,
            payload_type: wishes.to.sent_type(),
        };
        match ready.kind {
            Kind::Event => {
                self.events += 1;
                head.payload_type = wishes.events.map_or(head.payload_type, |events| events.to);
                let write =
                    |room: &mut [u8]| write_event(from, to, payload, room).then_some(payload.len());
                self.plainly(now, &head, payload.len(), out, write);
            }
            Kind::Noise if to.clock_rate == COMFORT_HZ => {
                self.noise += 1;
                head.payload_type = COMFORT_NOISE;
                self.plainly(now, &head, payload.len(), out, |room| {
                    room.get_mut(..payload.len())?.copy_from_slice(payload);
                    Some(payload.len())
                });
            }
            Kind::Sound | Kind::Noise if ready.late && self.transcoder.has_memory() => {
                self.too_late += 1;
            }
            Kind::Noise => {
                self.noise += 1;
                let most = self.transcoder.most_noise();
                self.sound(now, &head, most, out, |transcoder, room| {
                    transcoder.noise(head.timestamp, payload, room)
                });
            }
            Kind::Sound => {
                if !ready.late {
                    self.bridge(now, &head, payload, out);
                }
                let most = self.transcoder.most(payload.len());
                self.sound(now, &head, most, out, |transcoder, room| {
                    transcoder.run(head.timestamp, payload, room)
                });
            }
        }
    }

    /// Goes on over what is missing. The packet behind it may carry it again: then that goes out,
    /// under the number that it had.
    fn bridge(&mut self, now: Instant, next: &Head, payload: &[u8], out: &mut Outbox<'_>) {
        let missing = core::mem::take(&mut self.missing);
        if missing == 0 {
            return;
        }
        let repeated = self.transcoder.repeated(payload).filter(|units| *units <= missing);
        let Some(units) = repeated else { return self.transcoder.miss(missing) };
        self.transcoder.miss(missing - units);
        let head = Head {
            sequence: next.sequence.saturating_sub(1),
            timestamp: next.timestamp.saturating_sub(units),
            marker: false,
            payload_type: next.payload_type,
        };
        let most = self.transcoder.most(payload.len());
        let sent = self.sound(now, &head, most, out, |transcoder, room| {
            transcoder.recover(units, head.timestamp, payload, room)
        });
        self.recovered += u64::from(sent);
    }

    /// Sends sound, with what was sent before if that is wished for.
    fn sound(
        &mut self,
        now: Instant,
        head: &Head,
        most: usize,
        out: &mut Outbox<'_>,
        make: impl FnOnce(&mut Transcoder, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let Some(mut repeats) = self.repeats.take() else {
            let mut transcoder = core::mem::replace(&mut self.transcoder, Transcoder::Same);
            let sent = self.plainly(now, head, most, out, |room| make(&mut transcoder, room));
            self.transcoder = transcoder;
            return sent;
        };
        let place = (head.sequence, self.scaled(head.timestamp));
        let made = make(&mut self.transcoder, repeats.room(most));
        let most = repeats.most(made.unwrap_or(0));
        let red = Head { payload_type: repeats.payload_type(), ..*head };
        let sent = self.plainly(now, &red, most, out, |room| {
            repeats.write(place, head.payload_type, made?, room)
        });
        self.repeats = Some(repeats);
        sent
    }

    /// Sends a packet of at most so many bytes behind its header.
    fn plainly(
        &mut self,
        now: Instant,
        head: &Head,
        most: usize,
        out: &mut Outbox<'_>,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let to = self.plan.wishes.to.encoding.clock_rate;
        let header = Header {
            marker: head.marker,
            payload_type: head.payload_type,
            sequence: sequence::low_16(head.sequence),
            timestamp: sequence::low_32(self.scaled(head.timestamp)),
            ssrc: self.ssrc,
        };
        let mut length = None;
        let sent = out.write(self.route(), HEADER_LEN + most, |room| {
            let Some((front, rest)) = room.split_at_mut_checked(HEADER_LEN) else { return 0 };
            length = fill(rest);
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
                return true;
            }
        }
        false
    }

    /// The same moment on the listener's clock.
    fn scaled(&self, timestamp: u64) -> u64 {
        let wishes = &self.plan.wishes;
        let (from, to) = (wishes.from.encoding.clock_rate, wishes.to.encoding.clock_rate);
        if from == to {
            return timestamp;
        }
        let scaled = u128::from(timestamp) * u128::from(to) / u128::from(from.max(1));
        u64::try_from(scaled & u128::from(u64::MAX)).unwrap_or(0)
    }

    pub(super) fn route(&self) -> Route {
        let route = Route::to(self.to);
        if self.plan.wishes.symmetric { route.own() } else { route }
    }
}

/// What stands in front of a payload, with the sender's own time.
#[derive(Clone, Copy, Debug)]
struct Head {
    sequence: u64,
    timestamp: u64,
    marker: bool,
    payload_type: u8,
}

//! The listener's side of a relay: what is due goes out.

use std::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::report::Rtcp;
use aulos_proto::rtp::rtcp::ReportBlock;
use aulos_proto::rtp::{HEADER_LEN, Header, sequence};

use super::Plan;
use super::leg::{Leg, Ready, Turn};
use super::transcode::Transcoder;
use crate::udp::{Outbox, Route};

/// The listener's side.
#[derive(Debug)]
pub(super) struct Outward {
    pub(super) plan: Arc<Plan>,
    pub(super) to: SocketAddr,
    pub(super) ssrc: u32,
    pub(super) transcoder: Transcoder,
    pub(super) rtcp: Option<Box<Rtcp>>,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) undecodable: u64,
    pub(super) too_late: u64,
    pub(super) unsent: u64,
    pub(super) reported: Option<(ReportBlock, Option<Span>)>,
}

impl Outward {
    pub(super) fn new(plan: Arc<Plan>, to: SocketAddr, ssrc: u32) -> Self {
        let transcoder = plan.transcoder.clone();
        Self {
            plan,
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
        }
    }

    /// Sends what is due.
    pub(super) fn send_due(&mut self, now: Instant, leg: &mut Leg, out: &mut Outbox<'_>) {
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

    pub(super) fn route(&self) -> Route {
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

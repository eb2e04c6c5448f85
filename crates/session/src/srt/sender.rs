//! What is sent: copies until they are acknowledged or too old.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::srt::{DataPacket, LossRange, Sequence};

use super::round_trip::RoundTrip;

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    /// The number of `unacknowledged[0]`.
    first: Sequence,
    unacknowledged: VecDeque<Sent>,
    message: u32,
    /// A copy that is older is of no use to the receiver.
    lifetime: Span,
    pub(super) round_trip: RoundTrip,
    pub(super) counts: SendCounts,
}

#[derive(Debug)]
struct Sent {
    message: u32,
    key: u8,
    timestamp: u32,
    /// Encrypted, if the stream is.
    payload: Vec<u8>,
    at: Instant,
    last_at: Instant,
}

/// Counters of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendCounts {
    pub(super) packets: u64,
    pub(super) resent: u64,
    pub(super) dropped: u64,
}

impl Sender {
    /// `latency` is that of the receiver.
    pub(super) fn new(first: Sequence, latency: Span) -> Self {
        Self {
            first,
            unacknowledged: VecDeque::new(),
            message: 0,
            lifetime: (latency * 5 / 4).max(SHORTEST_LIFETIME),
            round_trip: RoundTrip::new(),
            counts: SendCounts::default(),
        }
    }

    /// The number of the next packet.
    pub(super) fn next(&self) -> Sequence {
        self.first.plus(count(self.unacknowledged.len()))
    }

    /// The next packet; `payload` is encrypted with `key`.
    pub(super) fn push(
        &mut self,
        now: Instant,
        timestamp: u32,
        (key, payload): (u8, Vec<u8>),
    ) -> Option<DataPacket<'_>> {
        if self.unacknowledged.len() >= MAX_UNACKNOWLEDGED {
            self.drop_oldest();
        }
        // The numbers of messages begin with 1.
        self.message = (self.message + 1) & MESSAGE_MASK;
        self.counts.packets += 1;
        let (message, at, last_at) = (self.message, now, now);
        self.unacknowledged.push_back(Sent { message, key, timestamp, payload, at, last_at });
        let last = self.unacknowledged.len() - 1;
        self.packet(last, false)
    }

    /// Everything before `next` has arrived or was given up. A number that was not sent is ignored.
    pub(super) fn acknowledge(&mut self, next: Sequence, round_trip: (u32, u32)) {
        let Ok(arrived) = usize::try_from(next.since(self.first)) else { return };
        if arrived > self.unacknowledged.len() {
            return;
        }
        self.unacknowledged.drain(..arrived);
        self.first = next;
        if round_trip.0 > 0 {
            self.round_trip.measure(Span::from_micros(i64::from(round_trip.0)));
        }
    }

    /// Sends again what a receiver lacks, and returns the numbers that are no longer there. What was
    /// sent again a moment ago is still under way.
    pub(super) fn resend(
        &mut self,
        now: Instant,
        (first, last): LossRange,
        mut send: impl FnMut(&DataPacket<'_>),
    ) -> Option<LossRange> {
        let end = last.since(self.first);
        let begin = first.since(self.first);
        let from = usize::try_from(begin).unwrap_or(0);
        let to = usize::try_from(end).map_or(0, |end| end + 1).min(self.unacknowledged.len());
        let pause = self.round_trip.shortest().max(SHORTEST_RESEND);
        for at in from..to {
            self.resend_one(now, at, pause, &mut send);
        }
        (begin < 0).then(|| (first, if end < 0 { last } else { self.first.plus(u32::MAX) }))
    }

    /// Gives up what is too old. In a pause, sends again what should have been acknowledged by now:
    /// without a later packet the receiver does not know that the last ones are missing.
    pub(super) fn handle_timeout(&mut self, now: Instant, mut send: impl FnMut(&DataPacket<'_>)) {
        while self.unacknowledged.front().is_some_and(|sent| now.since(sent.at) > self.lifetime) {
            self.drop_oldest();
        }
        let pause = self.patience();
        if self.unacknowledged.back().is_some_and(|last| now.since(last.at) >= pause) {
            for at in 0..self.unacknowledged.len() {
                self.resend_one(now, at, pause, &mut send);
            }
        }
    }

    /// When to call [`Sender::handle_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let (oldest, last) = (self.unacknowledged.front()?, self.unacknowledged.back()?);
        let end = oldest.at + self.lifetime + Span::from_millis(1);
        Some((last.last_at + self.patience()).min(end))
    }

    fn resend_one(
        &mut self,
        now: Instant,
        at: usize,
        pause: Span,
        send: &mut impl FnMut(&DataPacket<'_>),
    ) {
        let Some(sent) = self.unacknowledged.get_mut(at) else { return };
        if now.since(sent.last_at) < pause {
            return;
        }
        sent.last_at = now;
        self.counts.resent += 1;
        if let Some(packet) = self.packet(at, true) {
            send(&packet);
        }
    }

    fn packet(&self, at: usize, is_retransmitted: bool) -> Option<DataPacket<'_>> {
        let Sent { message, key, timestamp, payload, .. } = self.unacknowledged.get(at)?;
        Some(DataPacket {
            sequence: self.first.plus(count(at)),
            message: *message,
            key: *key,
            is_retransmitted,
            timestamp: *timestamp,
            destination: 0,
            payload,
        })
    }

    /// A round trip, and two intervals between ACKs.
    fn patience(&self) -> Span {
        self.round_trip.longest() + Span::from_millis(20)
    }

    fn drop_oldest(&mut self) {
        if self.unacknowledged.pop_front().is_some() {
            self.first = self.first.plus(1);
            self.counts.dropped += 1;
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "at most the window")]
const fn count(packets: usize) -> u32 {
    packets as u32
}

/// Copies that are kept: as many as a receiver's default window.
const MAX_UNACKNOWLEDGED: usize = 8_192;

/// As libsrt: a second, or the latency and a quarter.
const SHORTEST_LIFETIME: Span = Span::from_secs(1);

/// The least time between two copies of a packet.
const SHORTEST_RESEND: Span = Span::from_millis(10);

const MESSAGE_MASK: u32 = (1 << 26) - 1;

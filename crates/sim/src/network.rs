//! Simulated network links.
//!
//! [`StreamLink`] models TCP over a bad link: everything arrives, in order, but late, and data
//! behind a lost piece waits for it. [`DatagramLink`] is the link itself. Neither models
//! congestion; scenarios with a peer that does not read cut the link instead.

use std::collections::{BTreeMap, VecDeque};

use aulos_core::{Instant, Rng, Span};

/// Faults of a link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Minimum delay of every piece.
    pub delay: Span,
    /// Mean of the additional delay, exponentially distributed.
    pub jitter: Span,
    /// Maximum of the additional delay.
    pub max_jitter: Span,
    /// Fraction that takes a detour, longer by [`Link::DETOUR`], so that others overtake it, 0 to
    /// 1; datagrams only.
    pub detours: f64,
    /// Fraction that is lost, 0 to 1. In a stream a lost piece arrives [`Link::RESEND`] later.
    pub loss: f64,
    /// Fraction that is duplicated, 0 to 1; datagrams only.
    pub duplicates: f64,
    /// Maximum number of bytes that arrive at once; streams only.
    pub segment: usize,
}

impl Link {
    /// A good cable.
    pub const CABLE: Self = Self {
        delay: Span::from_micros(200),
        jitter: Span::from_micros(20),
        max_jitter: Span::MAX,
        detours: 0.0,
        loss: 0.0,
        duplicates: 0.0,
        segment: 1_460,
    };

    /// A busy wifi.
    pub const WIFI: Self = Self {
        delay: Span::from_millis(2),
        jitter: Span::from_millis(4),
        max_jitter: Span::MAX,
        detours: 0.0,
        loss: 0.005,
        duplicates: 0.001,
        segment: 1_460,
    };

    /// Additional delay of a lost piece of a stream: TCP's shortest retransmission timeout on
    /// Linux.
    pub const RESEND: Span = Span::from_millis(200);

    /// Additional delay of a detour: two packets of 20 ms overtake one that takes it.
    pub const DETOUR: Span = Span::from_millis(45);

    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a test world")]
    fn transit(&self, random: &mut Rng) -> Span {
        let jitter = random.exponential(self.jitter.as_nanos() as f64);
        self.delay + Span::from_nanos(jitter as i64).min(self.max_jitter)
    }
}

/// Bytes in order.
#[derive(Debug)]
pub struct StreamLink {
    link: Link,
    random: Rng,
    in_flight: VecDeque<(Instant, Vec<u8>)>,
    cut: bool,
}

impl StreamLink {
    /// A stream over `link`, with random numbers from `seed`.
    #[must_use]
    pub const fn new(link: Link, seed: u64) -> Self {
        Self { link, random: Rng::new(seed), in_flight: VecDeque::new(), cut: false }
    }

    /// Sends bytes at `now`.
    pub fn send(&mut self, now: Instant, bytes: &[u8]) {
        if self.cut {
            return;
        }
        for piece in bytes.chunks(self.link.segment.max(1)) {
            let mut arrival = now + self.link.transit(&mut self.random);
            while self.random.chance(self.link.loss) {
                arrival += Link::RESEND;
            }
            let behind = self.in_flight.back().map_or(Instant::ZERO, |(last, _)| *last);
            self.in_flight.push_back((arrival.max(behind), piece.to_vec()));
        }
    }

    /// The next piece that has arrived by `now`.
    pub fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.in_flight.front()?.0 > now {
            return None;
        }
        self.in_flight.pop_front().map(|(_, piece)| piece)
    }

    /// Arrival time of the next piece.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|(arrival, _)| *arrival)
    }

    /// From now on nothing arrives, and neither end is notified.
    pub fn cut(&mut self) {
        self.cut = true;
        self.in_flight.clear();
    }
}

/// Independent packets.
#[derive(Debug)]
pub struct DatagramLink {
    link: Link,
    random: Rng,
    /// By arrival, then by the order of sending.
    in_flight: BTreeMap<(Instant, u64), Vec<u8>>,
    sent: u64,
}

impl DatagramLink {
    /// Packets over `link`, with random numbers from `seed`.
    #[must_use]
    pub const fn new(link: Link, seed: u64) -> Self {
        Self { link, random: Rng::new(seed), in_flight: BTreeMap::new(), sent: 0 }
    }

    /// Changes the link. Packets that are in flight arrive as before.
    pub const fn set(&mut self, link: Link) {
        self.link = link;
    }

    /// Sends a packet at `now`.
    pub fn send(&mut self, now: Instant, packet: &[u8]) {
        let copies = 1 + usize::from(self.random.chance(self.link.duplicates));
        for _ in 0..copies {
            if self.random.chance(self.link.loss) {
                continue;
            }
            let mut arrival = now + self.link.transit(&mut self.random);
            if self.link.detours > 0.0 && self.random.chance(self.link.detours) {
                arrival += Link::DETOUR;
            }
            self.in_flight.insert((arrival, self.sent), packet.to_vec());
            self.sent += 1;
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        let first = self.in_flight.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Arrival time of the next packet.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((arrival, _), _)| *arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Instant = Instant::from_nanos(u64::MAX);

    #[test]
    fn a_stream_keeps_its_order_despite_losses() {
        let link = Link { loss: 0.2, segment: 7, ..Link::WIFI };
        let mut stream = StreamLink::new(link, 3);
        let bytes: Vec<u8> = (0..=255).cycle().take(5_000).collect();
        for (at, piece) in (0_i64..).zip(bytes.chunks(100)) {
            stream.send(Instant::ZERO + Span::from_millis(at), piece);
        }
        let mut arrived = Vec::new();
        let mut last = Instant::ZERO;
        while let Some(at) = stream.poll_timeout() {
            assert!(at >= last);
            last = at;
            arrived.extend(stream.receive(at).unwrap());
        }
        assert_eq!(arrived, bytes);
        assert!(last > Instant::ZERO + Link::RESEND);
    }

    #[test]
    fn datagrams_are_lost_doubled_and_overtake_each_other() {
        let link = Link { loss: 0.1, duplicates: 0.1, ..Link::WIFI };
        let mut way = DatagramLink::new(link, 4);
        for number in 0_u16..2_000 {
            let now = Instant::ZERO + Span::from_millis(i64::from(number));
            way.send(now, &number.to_be_bytes());
        }
        let all: Vec<_> = core::iter::from_fn(|| way.receive(END)).collect();
        let mut sorted = all.clone();
        sorted.sort();
        assert_ne!(all, sorted);
        assert!((1_900..2_060).contains(&all.len()), "{}", all.len());
        sorted.dedup();
        assert!((1_780..1_860).contains(&sorted.len()), "{}", sorted.len());
    }

    #[test]
    fn behind_a_cut_nothing_arrives() {
        let mut stream = StreamLink::new(Link::CABLE, 5);
        stream.send(Instant::ZERO, b"lost");
        stream.cut();
        stream.send(Instant::ZERO, b"lost as well");
        assert_eq!(stream.receive(END), None);
    }
}

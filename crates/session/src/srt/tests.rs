//! Two ends in virtual time, with a network that delays, loses and repeats.

use core::net::SocketAddr;

use aulos_core::{Instant, Rng, Span};
use aulos_proto::srt::{RejectCode, SrtPacket};
use proptest::prelude::*;

use super::*;

fn addresses() -> [SocketAddr; 2] {
    ["192.0.2.1:5000".parse().unwrap(), "192.0.2.2:6000".parse().unwrap()]
}

/// A caller (0) and a listener (1).
struct World {
    now: Instant,
    ends: [SrtEndpoint; 2],
    /// Datagrams under way: when they arrive, where, and what they are.
    wire: Vec<(Instant, usize, Vec<u8>)>,
    delay: Span,
    loss: f64,
    rng: Rng,
    /// What each end has reported, and when.
    seen: [Vec<(Instant, SrtOutput)>; 2],
    /// Datagrams that the caller has sent.
    sent: Vec<Vec<u8>>,
    /// The caller's clock runs faster by so many millionths.
    drift_ppm: i64,
}

impl World {
    fn new(caller: SrtConfig, listener: SrtConfig) -> Self {
        Self::with(caller, listener, SrtListenerConfig::default())
    }

    fn with(caller: SrtConfig, listener: SrtConfig, settings: SrtListenerConfig) -> Self {
        let now = Instant::ZERO + Span::from_secs(100);
        let ends = [
            SrtEndpoint::caller(caller, addresses()[1], [1; 32], now),
            SrtEndpoint::listener(listener, settings, [2; 32], now),
        ];
        Self {
            now,
            ends,
            wire: Vec::new(),
            delay: Span::from_millis(10),
            loss: 0.0,
            rng: Rng::new(5),
            seen: Default::default(),
            sent: Vec::new(),
            drift_ppm: 0,
        }
    }

    fn time_of(&self, end: usize) -> Instant {
        let elapsed = self.now.since(Instant::ZERO).as_nanos();
        let fast = if end == 0 { elapsed / 1_000_000 * self.drift_ppm } else { 0 };
        self.now + Span::from_nanos(fast)
    }

    fn step(&mut self, by: Span) {
        self.now += by;
        let mut arrived: Vec<_> = self.wire.extract_if(.., |(at, ..)| *at <= self.now).collect();
        arrived.sort_by_key(|(at, ..)| *at);
        for (_, to, bytes) in arrived {
            let now = self.time_of(to);
            self.ends[to].handle_input(now, addresses()[1 - to], &bytes);
        }
        for end in 0..2 {
            let now = self.time_of(end);
            if self.ends[end].poll_timeout().is_some_and(|at| at <= now) {
                self.ends[end].handle_timeout(now);
            }
            self.drain(end);
        }
    }

    fn drain(&mut self, end: usize) {
        while let Some(output) = self.ends[end].poll_output() {
            let SrtOutput::Transmit { bytes, .. } = output else {
                self.seen[end].push((self.now, output));
                continue;
            };
            if end == 0 {
                self.sent.push(bytes.clone());
            }
            if !self.rng.chance(self.loss) {
                self.wire.push((self.now + self.delay, 1 - end, bytes));
            }
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.step(Span::from_millis(1));
        }
    }

    fn send(&mut self, end: usize, payload: &[u8]) {
        let now = self.time_of(end);
        assert!(self.ends[end].send(now, payload));
        self.drain(end);
    }

    fn payloads(&self, end: usize) -> Vec<Vec<u8>> {
        let payload = |(_, output): &(Instant, SrtOutput)| match output {
            SrtOutput::Payload(payload) => Some(payload.clone()),
            _ => None,
        };
        self.seen[end].iter().filter_map(payload).collect()
    }

    fn has(&self, end: usize, wanted: &SrtOutput) -> bool {
        self.seen[end].iter().any(|(_, output)| output == wanted)
    }

    fn connect(&mut self) {
        self.run(Span::from_millis(100));
        assert!(self.ends.iter().all(SrtEndpoint::is_connected), "{:?}", self.seen);
    }
}

fn with_passphrase(text: &str) -> SrtConfig {
    let passphrase = Some(SrtPassphrase::new(text.to_owned()).unwrap());
    SrtConfig { passphrase, ..SrtConfig::default() }
}

#[test]
fn payloads_arrive_in_order_and_at_the_larger_latency_in_both_directions() {
    for key_bytes in [0, 16, 24, 32] {
        let config = match key_bytes {
            0 => SrtConfig::default(),
            key_bytes => SrtConfig { key_bytes, ..with_passphrase("a passphrase") },
        };
        let slow = SrtConfig { latency: Span::from_millis(300), ..config.clone() };
        let mut world = World::new(config, slow);
        world.connect();
        for end in [0, 1] {
            let before = world.now;
            for number in 0..20u8 {
                world.send(end, &[number; 188]);
                world.run(Span::from_millis(20));
            }
            world.run(Span::from_millis(400));
            let expected: Vec<_> = (0..20u8).map(|number| vec![number; 188]).collect();
            assert_eq!(world.payloads(1 - end), expected, "{key_bytes} {end}");
            let first = world.seen[1 - end].iter().find(|(_, seen)| is_payload(seen)).unwrap().0;
            let late = (first - before).as_millis();
            assert!((300..=325).contains(&late), "{late} ms");
        }
    }
}

fn is_payload(output: &SrtOutput) -> bool {
    matches!(output, SrtOutput::Payload(_))
}

#[test]
fn an_encrypted_payload_is_not_readable_on_the_way() {
    let mut world = World::new(with_passphrase("a passphrase"), with_passphrase("a passphrase"));
    world.connect();
    world.sent.clear();
    world.send(0, &[0x47; 188]);
    let Some(SrtPacket::Data(data)) = SrtPacket::parse(&world.sent[0]) else { panic!() };
    assert!(data.key == 1 && data.payload.windows(4).all(|piece| piece != [0x47; 4]));
    assert!(!format!("{:?}", world.ends[0]).contains("a passphrase"));
}

/// What TARGETS want of an hour, in a short form.
#[test]
fn a_tenth_of_all_datagrams_lost_costs_no_payload_within_six_round_trips() {
    let config = SrtConfig { latency: Span::from_millis(600), ..SrtConfig::default() };
    let mut world = World::new(config.clone(), config);
    world.delay = Span::from_millis(50);
    world.run(Span::from_millis(300));
    world.loss = 0.1;
    for number in 0..6_000u32 {
        world.send(0, &number.to_be_bytes());
        world.run(Span::from_millis(20));
    }
    world.loss = 0.0;
    world.run(Span::from_secs(1));
    let status = world.ends[1].status();
    assert!((400..900).contains(&status.lost), "{status:?}");
    assert_eq!(status.packets + status.dropped, 6_000, "{status:?}");
    assert!(status.dropped <= 1, "{status:?}");
    assert_eq!(world.payloads(1).len() as u64, status.packets);
    let sent = world.ends[0].status();
    assert!(sent.resent < 1_500, "each is sent again little more often than it is lost: {sent:?}");
    assert!((90..140).contains(&status.round_trip.as_millis()), "{status:?}");
}

#[test]
fn a_connection_lasts_beyond_the_wrap_of_its_clock_and_follows_another_clock() {
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.drift_ppm = 50;
    world.connect();
    // 80 minutes, in coarse steps.
    for number in 0..96_000u32 {
        world.send(0, &number.to_be_bytes());
        for _ in 0..10 {
            world.step(Span::from_millis(5));
        }
    }
    world.run(Span::from_millis(500));
    let status = world.ends[1].status();
    assert_eq!((status.packets, status.dropped, status.lost), (96_000, 0, 0), "{status:?}");
    let (at, last) = world.seen[1].iter().rfind(|(_, seen)| is_payload(seen)).unwrap();
    assert_eq!(*last, SrtOutput::Payload(95_999u32.to_be_bytes().to_vec()));
    // Without following, 50 ppm are 240 ms by now, and it would be given out at once or that late.
    let late = (world.now - *at).as_millis();
    assert!((390..=460).contains(&late), "{late} ms before the end");
}

#[test]
fn who_is_refused_is_told_why_and_so_is_the_operator() {
    let plain = SrtConfig::default;
    let id = |id: &str| SrtConfig { stream_id: Some(id.to_owned()), ..plain() };
    let one = with_passphrase("the passphrase of one");
    let other = with_passphrase("that of somebody else");
    let senders = vec!["198.51.100.1".parse().unwrap()];
    let strict = SrtListenerConfig { senders };
    let open = SrtListenerConfig::default;
    for (caller, listener, settings, code) in [
        (one.clone(), other, open(), RejectCode::BAD_SECRET),
        (plain(), one.clone(), open(), RejectCode::UNPROTECTED),
        (one, plain(), open(), RejectCode::UNPROTECTED),
        (id("studio"), id("live"), open(), RejectCode::NOT_FOUND),
        (plain(), id("live"), open(), RejectCode::NOT_FOUND),
        (plain(), plain(), strict, RejectCode::FORBIDDEN),
    ] {
        let mut world = World::with(caller, listener, settings);
        world.run(Span::from_secs(1));
        assert!(world.has(0, &SrtOutput::Closed(SrtCloseReason::Refused(code))), "{code:?}");
        let from = addresses()[0];
        assert!(world.has(1, &SrtOutput::Refused { from, code }), "{code:?}");
        assert!(world.ends[1].status().refused >= 1 && !world.ends[1].is_connected());
    }
    let mut world = World::new(id("live"), plain());
    world.connect();
    let peer = addresses()[0];
    assert!(world.has(1, &SrtOutput::Connected { peer, stream_id: Some("live".to_owned()) }));
}

#[test]
fn a_second_caller_is_refused_and_the_first_one_plays_on() {
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.connect();
    let second: SocketAddr = "192.0.2.3:7000".parse().unwrap();
    let config = SrtConfig::default();
    let mut caller = SrtEndpoint::caller(config, addresses()[1], [9; 32], world.now);
    let mut told = Vec::new();
    for _ in 0..3 {
        caller.handle_timeout(world.now);
        while let Some(output) = caller.poll_output() {
            match output {
                SrtOutput::Transmit { bytes, .. } => {
                    world.ends[1].handle_input(world.now, second, &bytes);
                    while let Some(answer) = world.ends[1].poll_output() {
                        if let SrtOutput::Transmit { to, bytes } = answer {
                            assert_eq!(to, second);
                            caller.handle_input(world.now, addresses()[1], &bytes);
                        }
                    }
                }
                other => told.push(other),
            }
        }
    }
    let refused = SrtCloseReason::Refused(RejectCode::CONFLICT);
    assert_eq!(told, [SrtOutput::Closed(refused)]);
    world.send(0, b"still here");
    world.run(Span::from_millis(300));
    assert_eq!(world.payloads(1), [b"still here"]);
}

#[test]
fn a_flood_of_first_handshakes_leaves_nothing_behind_and_a_forged_cookie_is_ignored() {
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.ends[0].handle_timeout(world.now);
    world.drain(0);
    let induction = world.sent[0].clone();
    world.wire.clear();
    for port in 1..20_000u16 {
        let from = SocketAddr::new("198.51.100.7".parse().unwrap(), port);
        world.ends[1].handle_input(world.now, from, &induction);
        let Some(SrtOutput::Transmit { to, bytes }) = world.ends[1].poll_output() else { panic!() };
        assert!(to == from && bytes.len() <= induction.len(), "no amplification");
        assert_eq!(world.ends[1].poll_output(), None);
    }
    assert!(!world.ends[1].is_connected() && world.ends[1].poll_timeout().is_none());
    world.sent.clear();
    world.now += Span::from_millis(300);
    world.connect();
    let conclusion = world.sent.iter().find(|bytes| bytes.len() > 64).unwrap().clone();
    // Another address has another cookie.
    let mut fresh = World::new(SrtConfig::default(), SrtConfig::default());
    fresh.now = world.now;
    fresh.ends[1].handle_input(fresh.now, "198.51.100.7:1".parse().unwrap(), &conclusion);
    assert!(fresh.ends[1].poll_output().is_none() && !fresh.ends[1].is_connected());
    assert_eq!(fresh.ends[1].status().invalid, 1);
}

#[test]
fn a_handshake_that_is_sent_again_holds_the_seat_for_three_seconds_at_most() {
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.connect();
    let conclusion = world.sent.iter().find(|bytes| bytes.len() > 64).unwrap().clone();
    let now = world.now;
    world.ends[0].close(now);
    world.drain(0);
    world.run(Span::from_millis(100));
    assert!(!world.ends[1].is_connected());
    // The recorded one, from the same address, within the minute of its cookie.
    world.ends[1].handle_input(world.now, addresses()[0], &conclusion);
    assert!(world.ends[1].is_connected());
    world.run(Span::from_millis(2_900));
    assert!(world.ends[1].is_connected());
    world.run(Span::from_millis(300));
    assert!(!world.ends[1].is_connected());
    world.now += Span::from_secs(120);
    world.ends[1].handle_input(world.now, addresses()[0], &conclusion);
    assert!(!world.ends[1].is_connected(), "its cookie is out of date");
}

#[test]
fn a_caller_gives_up_without_an_answer_and_a_silent_peer_is_left() {
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.loss = 1.0;
    world.run(Span::from_secs(4));
    assert!(world.has(0, &SrtOutput::Closed(SrtCloseReason::NoAnswer)));
    assert_eq!(world.ends[0].poll_timeout(), None);
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.connect();
    // Packets that say that an end is there keep the connection.
    world.run(Span::from_secs(20));
    assert!(world.ends.iter().all(SrtEndpoint::is_connected));
    world.loss = 1.0;
    world.run(Span::from_secs(6));
    assert!(world.has(1, &SrtOutput::Closed(SrtCloseReason::Silent)));
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.connect();
    world.send(0, b"the end of the stream");
    let now = world.now;
    world.ends[0].close(now);
    world.drain(0);
    world.run(Span::from_millis(50));
    assert_eq!(world.payloads(1), [b"the end of the stream"]);
    assert!(world.has(1, &SrtOutput::Closed(SrtCloseReason::Closed)));
}

#[test]
fn a_new_key_takes_over_without_a_payload_lost() {
    let mut world = World::new(with_passphrase("a passphrase"), with_passphrase("a passphrase"));
    world.connect();
    let mut expected = Vec::new();
    for end in [0, 1] {
        world.ends[end].connection_mut().unwrap().age_key((1 << 24) - 4_100);
        world.sent.clear();
        expected.clear();
        for number in 0..6_000u32 {
            world.send(end, &number.to_be_bytes());
            expected.push(number.to_be_bytes().to_vec());
            world.step(Span::from_millis(2));
        }
        world.run(Span::from_millis(300));
        assert!(world.payloads(1 - end) == expected, "direction {end}");
        if end == 0 {
            let keys = world.sent.iter().filter_map(|bytes| match SrtPacket::parse(bytes) {
                Some(SrtPacket::Data(data)) => Some(data.key),
                _ => None,
            });
            let keys: Vec<u8> = keys.collect();
            assert_eq!((keys[0], keys[keys.len() - 1]), (1, 2), "from the even to the odd one");
        }
    }
}

#[test]
fn a_jump_of_the_numbers_ends_the_connection_with_a_reason() {
    let mut world = World::new(SrtConfig::default(), SrtConfig::default());
    world.connect();
    world.sent.clear();
    world.send(0, b"one");
    let mut bytes = world.sent[0].clone();
    let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
    let far = (number + 9_000) & 0x7FFF_FFFF;
    bytes[..4].copy_from_slice(&far.to_be_bytes());
    world.ends[1].handle_input(world.now, addresses()[0], &bytes);
    world.drain(1);
    assert!(world.has(1, &SrtOutput::Closed(SrtCloseReason::Discontinuity)));
}

#[test]
fn a_passphrase_has_10_to_79_bytes_and_is_not_shown() {
    for (length, is_valid) in [(9, false), (10, true), (79, true), (80, false)] {
        assert_eq!(SrtPassphrase::new("x".repeat(length)).is_ok(), is_valid, "{length}");
    }
    let passphrase = SrtPassphrase::new("very secret".to_owned()).unwrap();
    assert_eq!(format!("{passphrase:?}"), "SrtPassphrase(..)");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_datagram_of_the_peer_breaks_a_connection_beyond_its_end(
        noise in prop::collection::vec(
            (any::<u8>(), prop::collection::vec(any::<u8>(), 0..90)),
            1..60,
        ),
    ) {
        let config = with_passphrase("a passphrase");
        let mut world = World::new(config.clone(), config);
        world.connect();
        let destination: [u8; 4] = world.sent.iter().rev().find_map(|bytes| {
            let to = *bytes[12..].first_chunk()?;
            (to != [0; 4]).then_some(to)
        }).unwrap_or([0; 4]);
        for (kind, body) in noise {
            // Well-formed headers for this connection, with any contents.
            let mut bytes = vec![if kind % 4 == 0 { 0 } else { 0x80 }, kind % 9, 0, 0];
            bytes.extend_from_slice(&[kind; 8]);
            bytes.extend_from_slice(&destination);
            bytes.extend_from_slice(&body);
            world.ends[1].handle_input(world.now, addresses()[0], &bytes);
            world.run(Span::from_millis(3));
        }
        world.run(Span::from_millis(100));
    }
}

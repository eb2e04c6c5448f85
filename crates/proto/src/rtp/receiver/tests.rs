use std::collections::BTreeSet;

use aulos_core::Span;
use proptest::prelude::*;

use super::*;

const TURN: u64 = FIRST_SEQUENCE;

/// A receiver of packets 20 ms apart, at 8 kHz.
#[derive(Default)]
struct Harness {
    receiver: RtpReceiver,
    packets: i64,
}

impl Harness {
    fn get(&mut self, sequence: u16) -> ReceiveOutcome {
        self.packets += 1;
        let now = Instant::ZERO + Span::from_millis(20 * self.packets);
        let timestamp = u32::try_from(160 * self.packets).unwrap();
        self.receiver.receive(now, sequence, timestamp, 8_000)
    }

    fn number(&mut self, sequence: u16) -> u64 {
        match self.get(sequence) {
            ReceiveOutcome::Valid(at) | ReceiveOutcome::Restarted(at) => at.sequence,
            ReceiveOutcome::Probation { position, .. } => position.sequence,
            other => panic!("{sequence} is {other:?}"),
        }
    }

    fn run(&mut self, sequences: impl IntoIterator<Item = u16>) {
        sequences.into_iter().for_each(|sequence| _ = self.number(sequence));
    }
}

#[test]
fn two_in_a_row_make_a_source_and_count_from_the_first() {
    let mut world = Harness::default();
    assert!(matches!(world.get(9), ReceiveOutcome::Probation { fresh: false, .. }));
    assert!(!world.receiver.is_valid() && world.receiver.report().is_none());
    assert!(matches!(world.get(10), ReceiveOutcome::Valid(at) if at.sequence == TURN + 10));
    let reception = world.receiver.report().unwrap();
    assert_eq!((reception.highest, reception.cumulative_lost), (10, 0));
    assert_eq!(world.receiver.stats().received, 2);
}

#[test]
fn what_is_held_in_probation_keeps_its_numbers_through_loss_and_disorder() {
    let mut world = Harness::default();
    let numbers = [10, 12, 11, 15, 14].map(|sequence| world.number(sequence));
    assert_eq!(numbers, [10, 12, 11, 15, 14].map(|sequence| TURN + sequence));
    assert!(!world.receiver.is_valid());
    assert_eq!(world.get(14), ReceiveOutcome::Duplicate);
    assert!(matches!(world.get(16), ReceiveOutcome::Valid(_)));
    let tally = world.receiver.stats();
    assert_eq!((tally.received, tally.lost, tally.reordered, tally.duplicates), (6, 1, 2, 1));
}

#[test]
fn packets_of_a_failed_probation_are_dropped() {
    let mut world = Harness::default();
    world.run([10]);
    assert!(matches!(world.get(40_000), ReceiveOutcome::Probation { fresh: true, .. }));
    assert!(matches!(world.get(10), ReceiveOutcome::Probation { fresh: true, .. }));
    assert!(matches!(world.get(11), ReceiveOutcome::Valid(_)));
    let tally = world.receiver.stats();
    assert_eq!((tally.received, tally.lost, tally.strays), (2, 0, 2));
}

#[test]
fn numbers_go_on_through_the_wrap() {
    let mut world = Harness::default();
    world.run(65_000..=65_535);
    assert_eq!(world.number(0), 2 * TURN);
    assert_eq!(world.number(2), 2 * TURN + 2);
    assert_eq!(world.number(1), 2 * TURN + 1);
    let reception = world.receiver.report().unwrap();
    assert_eq!((reception.highest, reception.cumulative_lost), ((1 << 16) + 2, 0));
}

#[test]
fn packets_before_the_first_one_count_as_received() {
    let mut world = Harness::default();
    world.run([0, 1]);
    assert_eq!(world.number(65_534), TURN - 2);
    let tally = world.receiver.stats();
    assert_eq!((tally.received, tally.lost, tally.reordered), (3, 1, 1));
    assert_eq!(world.receiver.report().unwrap().highest, 1);
}

#[test]
fn the_limits_of_a_run() {
    let mut world = Harness::default();
    world.run([1_000, 1_001]);
    assert_eq!(world.number(1_001 + 2_999), TURN + 4_000);
    assert_eq!(world.get(4_000 - 100), ReceiveOutcome::Stray);
    assert!(matches!(world.get(4_000 - 99), ReceiveOutcome::Valid(_)));
    assert_eq!(world.get(7_000), ReceiveOutcome::Stray);
    assert!(matches!(world.get(6_999), ReceiveOutcome::Valid(_)));
}

#[test]
fn a_jump_is_accepted_when_it_continues() {
    let mut world = Harness::default();
    world.run(100..200);
    assert_eq!(world.get(50_000), ReceiveOutcome::Stray);
    // A packet of the old run between them is ignored (A.1).
    assert!(matches!(world.get(200), ReceiveOutcome::Valid(_)));
    assert!(
        matches!(world.get(50_001), ReceiveOutcome::Restarted(at) if at.sequence == 2 * TURN + 50_001)
    );
    assert_eq!(world.receiver.position(50_000, 0).sequence, 2 * TURN + 50_000);
    assert_eq!(
        world.get(50_000),
        ReceiveOutcome::Duplicate,
        "the stray packet is the first of the run"
    );
    world.run([50_002, 50_004]);
    let (tally, reception) = (world.receiver.stats(), world.receiver.report().unwrap());
    assert_eq!((tally.received, tally.lost, tally.restarts, tally.strays), (105, 1, 1, 0));
    assert_eq!(
        (reception.highest, reception.cumulative_lost),
        (50_004, 0),
        "one duplicate, one lost"
    );
}

#[test]
fn a_restart_right_at_the_wrap() {
    let mut world = Harness::default();
    world.run(100..200);
    assert_eq!(world.get(65_535), ReceiveOutcome::Stray);
    assert_eq!(world.number(0), 3 * TURN);
    assert_eq!(world.receiver.report().unwrap().highest, 1 << 16);
}

#[test]
fn two_strays_that_do_not_follow_each_other_change_nothing() {
    let mut world = Harness::default();
    world.run(100..200);
    assert_eq!(world.get(30_000), ReceiveOutcome::Stray);
    assert_eq!(world.get(60_000), ReceiveOutcome::Stray);
    assert_eq!(world.get(30_001), ReceiveOutcome::Stray);
    assert_eq!(world.number(200), TURN + 200);
    assert_eq!(world.receiver.stats().strays, 3);
}

/// The numbers of RFC 3550, A.3, by hand: 3 of 10 lost in the first interval, one duplicate more
/// than lost in the second.
#[test]
fn loss_by_interval() {
    let mut world = Harness::default();
    world.run([0, 1, 2, 4, 5, 8, 9]);
    let first = world.receiver.report().unwrap();
    assert_eq!((first.fraction_lost, first.cumulative_lost), (76, 3), "3 * 256 / 10");
    assert_eq!(world.receiver.report(), None, "nothing came since");
    world.run([10]);
    assert_eq!(world.get(10), ReceiveOutcome::Duplicate);
    let second = world.receiver.report().unwrap();
    assert_eq!((second.fraction_lost, second.cumulative_lost), (0, 2));
    world.run([11, 2_000]);
    assert_eq!(world.receiver.report().unwrap().fraction_lost, 255, "1988 of 1990, in 1/256");
}

#[test]
fn the_count_of_lost_packets_stays_in_24_bits() {
    let mut world = Harness::default();
    world.run([0, 1]);
    let mut sequence = 1_u16;
    for _ in 0..4_000 {
        sequence = sequence.wrapping_add(2_999);
        world.number(sequence);
    }
    assert_eq!(world.receiver.report().unwrap().cumulative_lost, 0x7f_ffff);
    let mut world = Harness::default();
    world.run([0, 1]);
    for _ in 0..0x80_0010 {
        world.receiver.receive(Instant::ZERO, 1, 0, 0);
    }
    assert_eq!(world.receiver.report().unwrap().cumulative_lost, -0x80_0000);
}

/// Packets 20 ms apart that arrive alternately 10 ms early and late: every difference is 20 ms, and
/// J approaches it by 1/16 of the remainder with each packet.
#[test]
fn jitter_approaches_the_mean_deviation() {
    let mut receiver = RtpReceiver::new();
    let mut expected = 0.0_f64;
    for packet in 0..1_000_u16 {
        let late = if packet % 2 == 0 { 10 } else { -10 };
        let now = Instant::ZERO + Span::from_millis(1_000 + 20 * i64::from(packet) + late);
        receiver.receive(now, packet, u32::from(packet) * 160, 8_000);
        if packet > 0 {
            expected += (160.0 - expected) / 16.0;
        }
        assert!((f64::from(receiver.jitter()) - expected).abs() <= 1.5, "{packet}");
    }
    assert!((159..=160).contains(&receiver.jitter()));
}

#[test]
fn neither_a_jump_of_time_nor_another_clock_is_jitter() {
    let mut receiver = RtpReceiver::new();
    let mut sequence = 0_u16;
    let mut get = |millis: i64, timestamp: u32, rate: u32| {
        let now = Instant::ZERO + Span::from_millis(millis);
        sequence += 1;
        receiver.receive(now, sequence, timestamp, rate);
        (receiver.jitter(), receiver.stats().jumps)
    };
    assert_eq!(get(0, u32::MAX - 159, 8_000), (0, 0));
    assert_eq!(get(20, 0, 8_000), (0, 0), "a wrap is no jump");
    assert_eq!(get(40, 3_000_000, 8_000), (0, 1));
    assert_eq!(get(60, 3_000_160, 8_000), (0, 1));
    assert_eq!(get(100, 3_000_320, 8_000), (10, 1), "20 ms late: 160 / 16");
    assert_eq!(get(120, 77, 48_000), (60, 1), "the same in units of the new clock");
    assert_eq!(get(140, 77 + 960, 48_000).1, 1);
    assert_eq!(get(10_140, 77 + 1_920, 0).1, 1, "a type of unknown rate");
    // A pause of the sender: time and timestamp advance together.
    assert_eq!(get(60_140, 77 + 960 + 60 * 48_000, 48_000).1, 1);
}

#[test]
fn its_size_is_as_documented() {
    assert!(size_of::<RtpReceiver>() <= 176);
}

proptest! {
    /// Whatever is lost, duplicated or reordered within the window: each packet is returned once,
    /// with its own number, and the missing ones are those that were lost.
    #[test]
    fn every_packet_once_and_under_its_number(
        start: u16,
        order in proptest::collection::vec((0_u64..12, 0_u8..20), 20..400),
    ) {
        let mut world = Harness::default();
        let first = world.number(start);
        world.number(start.wrapping_add(1));
        let mut sent: Vec<(u64, u64)> = Vec::new();
        for (index, (late, fate)) in order.into_iter().enumerate() {
            let number = first + 2 + index as u64;
            let copies = match fate { 0 => 0, 1 => 2, _ => 1 };
            (0..copies).for_each(|copy| sent.push((number + late + copy, number)));
        }
        sent.sort_unstable();
        let mut given = BTreeSet::from([first, first + 1]);
        let mut duplicates = 0;
        for (_, number) in sent {
            match world.get(low_16(number)) {
                ReceiveOutcome::Valid(at) => {
                    prop_assert_eq!(at.sequence, number);
                    prop_assert!(given.insert(number));
                }
                ReceiveOutcome::Duplicate => {
                    prop_assert!(given.contains(&number));
                    duplicates += 1;
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        let tally = world.receiver.stats();
        let highest = given.last().unwrap();
        prop_assert_eq!(tally.received, given.len() as u64);
        prop_assert_eq!(tally.duplicates, duplicates);
        prop_assert_eq!(tally.lost, highest - first + 1 - given.len() as u64);
    }

    /// Arbitrary packets at arbitrary times: no panic, numbers keep their lower bits, and a restart
    /// increases them.
    #[test]
    fn nonsense_is_counted(
        packets in proptest::collection::vec((any::<u16>(), any::<u32>(), any::<u64>(), 0_u32..5), 0..300),
    ) {
        let mut receiver = RtpReceiver::new();
        let mut last = 0;
        for (index, (sequence, timestamp, now, step)) in packets.iter().enumerate() {
            let sequence = if step % 2 == 0 { *sequence } else { last + 1 };
            let highest = receiver.highest.sequence;
            let at = receiver.receive(Instant::from_nanos(*now), sequence, *timestamp, step * 9_000);
            match at {
                ReceiveOutcome::Valid(at) | ReceiveOutcome::Probation { position: at, .. } => {
                    prop_assert_eq!((low_16(at.sequence), low_32(at.timestamp)), (sequence, *timestamp));
                }
                ReceiveOutcome::Restarted(at) => prop_assert!(at.sequence > highest),
                _ => {}
            }
            last = sequence.min(u16::MAX - 1);
            let tally = receiver.stats();
            prop_assert_eq!(tally.received + tally.duplicates + tally.strays, index as u64 + 1);
            receiver.report();
        }
    }
}

#[test]
fn what_is_missing_is_known_and_nothing_else_is() {
    let mut receiver = RtpReceiver::new();
    let come = |receiver: &mut RtpReceiver, sequence| {
        receiver.receive(Instant::ZERO, sequence, 0, 0);
    };
    come(&mut receiver, 65_530);
    assert!(!receiver.is_missing(65_529), "not known to be missing yet");
    for sequence in [65_531, 65_533, 1, 3] {
        come(&mut receiver, sequence);
    }
    let missing: Vec<u16> =
        (0..=u16::MAX).filter(|sequence| receiver.is_missing(*sequence)).collect();
    assert_eq!(missing, [0, 2, 65_532, 65_534, 65_535]);
    come(&mut receiver, 2);
    assert!(!receiver.is_missing(2));
    come(&mut receiver, 1_000);
    assert!(receiver.is_missing(999) && receiver.is_missing(873) && !receiver.is_missing(872));
}

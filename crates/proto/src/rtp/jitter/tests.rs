//! Each test checks one property of the buffer.

use aulos_core::{Instant, Span};
use proptest::prelude::*;

use super::*;

const RATE: u32 = 8_000;
const FRAME: u32 = 160;
const START: Instant = Instant::from_nanos(5_000_000_000);

fn ms(millis: i64) -> Span {
    Span::from_millis(millis)
}

fn playout(delay: DelayPolicy) -> JitterBuffer<u64> {
    JitterBuffer::new(JitterConfig {
        clock_rate: RATE,
        slots: 32,
        mode: JitterMode::Playout(delay),
    })
}

fn relay() -> JitterBuffer<u64> {
    JitterBuffer::new(JitterConfig {
        clock_rate: RATE,
        slots: 32,
        mode: JitterMode::Relay { hold: ms(60) },
    })
}

/// Packet `number` of a sender with one packet every 20 ms, received `late` after its time.
fn packet(number: u64, late: Span) -> Arrival {
    Arrival {
        sequence: 65_000 + number,
        timestamp: 4_000_000_000 + number * u64::from(FRAME),
        ticks: FRAME,
        marker: false,
        received: START + ms(20) * number.cast_signed() + late,
    }
}

/// All output up to the next `Wait`.
fn drain(buffer: &mut JitterBuffer<u64>, now: Instant) -> Vec<JitterOutput<u64>> {
    let mut out = Vec::new();
    loop {
        match buffer.poll(now) {
            JitterOutput::Wait(_) => return out,
            next => out.push(next),
        }
        assert!(out.len() < 10_000, "it never waits");
    }
}

/// Output in media time: a payload, or nothing for a gap.
fn played_media(out: &[JitterOutput<u64>]) -> Vec<(u64, Option<u64>)> {
    out.iter()
        .filter_map(|next| match next {
            JitterOutput::Packet(packet) => Some((packet.position, Some(packet.payload))),
            JitterOutput::Missing(missing) => Some((missing.position, None)),
            _ => None,
        })
        .collect()
}

/// Plays `arrivals`, sorted by arrival time, with a poll every 5 ms, and ends the stream after the
/// last one.
fn play(
    buffer: &mut JitterBuffer<u64>,
    arrivals: &[Arrival],
    until: Span,
) -> Vec<JitterOutput<u64>> {
    let (mut out, mut at) = (Vec::new(), 0);
    for tick in 0..until.as_millis() / 5 {
        let now = START + ms(5) * tick;
        while let Some(arrival) = arrivals.get(at).filter(|arrival| arrival.received <= now) {
            let _ = buffer.insert(*arrival, arrival.sequence - 65_000);
            at += 1;
        }
        if at == arrivals.len() {
            buffer.finish();
        }
        out.extend(drain(buffer, now));
    }
    out
}

#[test]
fn a_packet_is_played_at_its_time() {
    let mut buffer = playout(DelayPolicy::Fixed(ms(40)));
    assert_eq!(buffer.poll(START), JitterOutput::Wait(None));
    assert_eq!(buffer.insert(packet(0, ms(0)), 7), InsertOutcome::Held);
    assert_eq!(buffer.poll(START), JitterOutput::Wait(Some(START + ms(40))));
    let JitterOutput::Packet(first) = buffer.poll(START + ms(40)) else { panic!("it is time") };
    assert_eq!((first.position, first.payload, first.begins_run), (0, 7, true));
    assert_eq!(first.timestamp, 4_000_000_000);
    assert_eq!(buffer.poll(START + ms(41)), JitterOutput::Wait(Some(START + ms(60))));
}

#[test]
fn a_loss_is_reported_once_and_does_not_shift_time() {
    let arrivals: Vec<_> = [0, 1, 3, 4, 7, 8].map(|number| packet(number, ms(0))).into();
    for mut buffer in [playout(DelayPolicy::Fixed(ms(60))), relay()] {
        let mut out = play(&mut buffer, &arrivals, ms(400));
        out.truncate(9);
        let there = |number: u64| Some(number).filter(|number| ![2, 5, 6].contains(number));
        if buffer.mode == (JitterMode::Relay { hold: ms(60) }) {
            // A gap is one output here.
            let wanted = [0, 1, 2, 3, 4, 5, 7, 8].map(|number| (number * 160, there(number)));
            assert_eq!(played_media(&out), wanted);
        } else {
            let wanted: Vec<_> = (0..9).map(|number| (number * 160, there(number))).collect();
            assert_eq!(played_media(&out), wanted);
        }
        let stats = buffer.stats();
        assert_eq!((stats.received, stats.lost, stats.late), (6, 3, 0));
    }
}

#[test]
fn a_relay_emits_the_next_packet_at_once_and_waits_for_missing_ones() {
    let mut buffer = relay();
    for number in [0, 2] {
        assert_eq!(buffer.insert(packet(number, ms(0)), number), InsertOutcome::Held);
    }
    let now = START + ms(40);
    assert_eq!(played_media(&drain(&mut buffer, now)), [(0, Some(0))]);
    let JitterOutput::Wait(Some(until)) = buffer.poll(now) else {
        panic!("number 1 may still come")
    };
    assert!(until > now && until <= now + ms(60), "{:?}", until - now);
    assert_eq!(buffer.insert(packet(1, ms(25)), 1), InsertOutcome::Held);
    assert_eq!(played_media(&drain(&mut buffer, now + ms(5))), [(160, Some(1)), (320, Some(2))]);
}

#[test]
fn at_the_end_a_relay_emits_the_rest_at_once() {
    let mut buffer = relay();
    for number in [0, 2, 5] {
        assert_eq!(buffer.insert(packet(number, ms(0)), number), InsertOutcome::Held);
    }
    buffer.finish();
    let out = played_media(&drain(&mut buffer, START));
    let payloads: Vec<_> = out.iter().filter_map(|(_, payload)| *payload).collect();
    assert_eq!(payloads, [0, 2, 5]);
    assert_eq!(buffer.poll(START), JitterOutput::Wait(None));
}

#[test]
fn duplicate_and_late_packets_are_returned() {
    let mut buffer = playout(DelayPolicy::Fixed(ms(20)));
    assert_eq!(buffer.insert(packet(0, ms(0)), 0), InsertOutcome::Held);
    assert_eq!(buffer.insert(packet(0, ms(1)), 1), InsertOutcome::Duplicate(1));
    assert_eq!(drain(&mut buffer, START + ms(20)).len(), 1);
    assert_eq!(buffer.insert(packet(2, ms(0)), 2), InsertOutcome::Held);
    assert_eq!(drain(&mut buffer, START + ms(60)).len(), 2);
    assert_eq!(buffer.insert(packet(1, ms(50)), 3), InsertOutcome::Late(3));
    assert_eq!(buffer.insert(packet(1, ms(51)), 4), InsertOutcome::Duplicate(4));
    let stats = buffer.stats();
    assert_eq!((stats.received, stats.duplicates, stats.late, stats.lost), (3, 2, 1, 0));
    assert_eq!((stats.concealed, stats.reordered), (160, 1));
}

#[test]
fn a_silence_of_the_sender_is_not_loss() {
    let mut arrivals: Vec<_> = (0..60).map(|number| packet(number, ms(0))).collect();
    for arrival in &mut arrivals[30..] {
        // Half a second without packets.
        arrival.timestamp += 4_000;
        arrival.received += ms(500);
    }
    arrivals[30].marker = true;
    for mut buffer in [playout(DelayPolicy::Fixed(ms(60))), playout(DelayPolicy::ADAPTIVE)] {
        let out = play(&mut buffer, &arrivals, ms(1_800));
        let stats = buffer.stats();
        assert_eq!((stats.lost, stats.concealed, stats.late), (0, 0, 0));
        assert_eq!(stats.silent, 4_000);
        let played: Vec<_> =
            played_media(&out).into_iter().filter(|(_, sound)| sound.is_some()).collect();
        assert_eq!(played.len(), 60);
        assert_eq!(played[30], (30 * 160 + 4_000, Some(30)));
    }
}

#[test]
fn a_restarted_sender_continues_the_timeline() {
    let mut arrivals: Vec<_> = (0..40).map(|number| packet(number, ms(0))).collect();
    for arrival in &mut arrivals[20..] {
        arrival.timestamp = arrival.timestamp.wrapping_mul(977);
    }
    for (number, arrival) in arrivals[20..].iter_mut().enumerate() {
        arrival.timestamp = 77 + number as u64 * 160;
    }
    let mut buffer = playout(DelayPolicy::Fixed(ms(60)));
    let out = play(&mut buffer, &arrivals, ms(850));
    let wanted: Vec<_> = (0..40).map(|number| (number * 160, Some(number))).collect();
    assert_eq!(played_media(&out), wanted);
    assert_eq!(buffer.stats().restarts, 1);
}

#[test]
fn a_new_sequence_is_accepted_with_its_second_packet() {
    let mut buffer = relay();
    assert_eq!(buffer.insert(packet(0, ms(0)), 0), InsertOutcome::Held);
    assert_eq!(buffer.insert(packet(50_000, ms(0)), 1), InsertOutcome::Stray(1));
    assert_eq!(buffer.insert(packet(1, ms(0)), 2), InsertOutcome::Held);
    assert_eq!(buffer.insert(packet(90_000, ms(0)), 3), InsertOutcome::Stray(3));
    assert_eq!(buffer.insert(packet(90_001, ms(0)), 4), InsertOutcome::Held);
    let out = played_media(&drain(&mut buffer, START + ms(20)));
    assert_eq!(out.iter().filter_map(|(_, sound)| *sound).collect::<Vec<_>>(), [0, 2, 4]);
    let mut told = relay();
    assert_eq!(told.insert(packet(0, ms(0)), 0), InsertOutcome::Held);
    told.begin_run();
    assert_eq!(told.insert(packet(50_000, ms(0)), 1), InsertOutcome::Held);
}

#[test]
fn a_full_buffer_returns_packets_and_then_has_room() {
    for mut buffer in [playout(DelayPolicy::Fixed(ms(100))), relay()] {
        for number in 1..33 {
            assert_eq!(buffer.insert(packet(number, ms(0)), number), InsertOutcome::Held);
        }
        if buffer.mode == (JitterMode::Relay { hold: ms(60) }) {
            assert_eq!(drain(&mut buffer, START).len(), 32);
            assert_eq!(buffer.insert(packet(40, ms(0)), 40), InsertOutcome::Held);
        }
        let far = packet(73, ms(0));
        assert_eq!(buffer.insert(far, 73), InsertOutcome::Full(73));
        let out = drain(&mut buffer, START);
        assert!(!out.is_empty());
        assert_eq!(buffer.insert(far, 73), InsertOutcome::Held);
    }
}

#[test]
fn a_sender_that_paused_its_timestamps_is_played_after_half_a_second() {
    let late = |number| if number < 50 { ms(0) } else { ms(3_000) };
    let arrivals: Vec<_> = (0..150).map(|number| packet(number, late(number))).collect();
    let mut buffer = playout(DelayPolicy::ADAPTIVE);
    let out = play(&mut buffer, &arrivals, ms(6_300));
    let played = out.iter().filter(|next| matches!(next, JitterOutput::Packet(_))).count();
    assert!((120..=125).contains(&played), "{played}");
    assert_eq!(buffer.stats().restarts, 1);
    assert!(buffer.stats().delay < ms(60), "{}", buffer.stats().delay);
}

/// Output for packets sent every 20 ms whose sequence numbers are in `order`.
fn play_in_order(order: &[u64], mode: JitterMode) -> Vec<(u64, Option<u64>)> {
    let mut buffer = JitterBuffer::new(JitterConfig { clock_rate: RATE, slots: 32, mode });
    let arrivals: Vec<_> = (0..)
        .zip(order)
        .map(|(at, &number)| Arrival { received: START + ms(20) * at, ..packet(number, ms(0)) })
        .collect();
    played_media(&play(&mut buffer, &arrivals, ms(2_000)))
}

proptest! {
    #[test]
    fn any_order_within_the_window_gives_the_same_output(
        blocks in proptest::collection::vec(Just((0..8).collect::<Vec<u64>>()).prop_shuffle(), 5),
        copies in proptest::collection::vec(0..40_usize, 0..6),
    ) {
        let wanted: Vec<_> = (0..40).map(|number| (number * 160, Some(number))).collect();
        let mut order: Vec<u64> = (0..)
            .zip(&blocks)
            .flat_map(|(block, order)| order.iter().map(move |number| block * 8 + number))
            .collect();
        prop_assert_eq!(&play_in_order(&order, JitterMode::Playout(DelayPolicy::Fixed(ms(300)))), &wanted);
        // A relay has output the first packet before another one arrives.
        let first = order.iter().position(|&number| number == 0).unwrap_or(0);
        order.swap(0, first);
        prop_assert_eq!(&play_in_order(&order, JitterMode::Relay { hold: ms(400) }), &wanted);
        for copy in copies {
            // A copy arrives together with the next packet but one.
            let number = order[copy];
            order.insert(copy + 1, number);
        }
        prop_assert_eq!(&play_in_order(&order, JitterMode::Relay { hold: ms(400) }), &wanted);
    }

    #[test]
    fn loss_and_copies_never_shift_media_time(
        fates in proptest::collection::vec((0..100_u8, 0..120_i64), 50..200),
        adaptive in any::<bool>(),
    ) {
        let delay = if adaptive { DelayPolicy::ADAPTIVE } else { DelayPolicy::Fixed(ms(50)) };
        let mut buffer = playout(delay);
        let mut arrivals = Vec::new();
        for (number, &(fate, late)) in (0..).zip(&fates) {
            match fate {
                0..10 => {}
                10..20 => {
                    arrivals.push(packet(number, ms(late)));
                    arrivals.push(packet(number, ms(late / 2)));
                }
                _ => arrivals.push(packet(number, ms(late))),
            }
        }
        arrivals.sort_by_key(|arrival| arrival.received);
        let out = play(&mut buffer, &arrivals, ms(20) * fates.len() as i64 + ms(300));
        let (mut position, mut first) = (0, None);
        for next in &out {
            let (at, ticks) = match next {
                JitterOutput::Packet(packet) => {
                    let first = *first.get_or_insert(packet.payload);
                    prop_assert_eq!(packet.position, (packet.payload - first) * 160);
                    (packet.position, u64::from(packet.ticks))
                }
                JitterOutput::Missing(missing) => (missing.position, missing.ticks),
                // Packets at the front are skipped when the first arrivals were late.
                JitterOutput::Skip(_) if first.is_none() => continue,
                JitterOutput::Skip(packet) => (packet.position, u64::from(packet.ticks)),
                other @ JitterOutput::Wait(_) => unreachable!("{other:?}"),
            };
            prop_assert_eq!(at, position, "media time goes on without a gap");
            position = at + ticks;
        }
        let stats = buffer.stats();
        let packets = out.iter().filter(|next| matches!(next, JitterOutput::Packet(_))).count() as u64;
        prop_assert_eq!(packets + stats.late + stats.skipped, stats.received);
    }

    #[test]
    fn a_relay_emits_one_packet_for_each_input(
        fates in proptest::collection::vec((0..100_u8, 0..200_i64), 50..200),
    ) {
        let mut buffer = relay();
        let mut arrivals: Vec<_> = (0..)
            .zip(&fates)
            .filter(|(_, (fate, _))| *fate >= 10)
            .map(|(number, &(_, late))| packet(number, ms(late)))
            .collect();
        arrivals.sort_by_key(|arrival| arrival.received);
        let mut sent = Vec::new();
        for &arrival in &arrivals {
            sent.extend(drain(&mut buffer, arrival.received));
            match buffer.insert(arrival, arrival.sequence) {
                InsertOutcome::Held => {}
                InsertOutcome::Late(_) => sent.push(JitterOutput::Wait(None)),
                other => prop_assert!(false, "{:?}", other),
            }
        }
        buffer.finish();
        sent.extend(drain(&mut buffer, START));
        sent.retain(|next| !matches!(next, JitterOutput::Missing(_)));
        prop_assert_eq!(sent.len(), arrivals.len());
    }
}

#[test]
fn a_stream_of_200_ms_takes_less_than_three_kilobytes_beside_its_payloads() {
    let slots = 16 * size_of::<Option<HeldPacket<u32>>>() + 8;
    let all = slots + size_of::<JitterBuffer<u32>>();
    println!("{slots} bytes of slots, {all} in all");
    assert!(all < 3_000, "{all}");
}

#[test]
fn packets_of_a_millisecond_are_played_after_a_few() {
    let mode = JitterMode::Playout(DelayPolicy::Adaptive {
        quantile: 0.999,
        min: ms(1),
        max: ms(20),
        first: ms(3),
    });
    let mut buffer = JitterBuffer::new(JitterConfig { clock_rate: 48_000, slots: 64, mode });
    let (mut played, mut missing) = (0, 0);
    for number in 0..20_000_u64 {
        // A third of a millisecond of jitter.
        let late = Span::from_micros((number * 7_919 % 333).cast_signed());
        let now = START + ms(1) * number.cast_signed() + late;
        let arrival = Arrival {
            sequence: number,
            timestamp: number * 48,
            ticks: 48,
            marker: false,
            received: now,
        };
        assert_eq!(buffer.insert(arrival, number), InsertOutcome::Held);
        for next in drain(&mut buffer, now) {
            match next {
                JitterOutput::Packet(_) => played += 1,
                _ => missing += 1,
            }
        }
    }
    let stats = buffer.stats();
    assert!(played > 19_990 && missing == 0 && stats.late == 0, "{played} {missing} {stats:?}");
    assert!(stats.delay < ms(3) && stats.target == ms(1), "{stats:?}");
}

#[test]
fn who_stretches_time_is_obeyed_within_bounds() {
    let mut buffer = playout(DelayPolicy::ADAPTIVE);
    assert_eq!(buffer.adjust(ms(10)), ms(0), "nothing is played yet");
    assert_eq!(buffer.insert(packet(0, ms(0)), 0), InsertOutcome::Held);
    assert_eq!(drain(&mut buffer, START + ms(60)).len(), 1);
    let before = buffer.stats().delay;
    assert_eq!(buffer.adjust(ms(10)), ms(10));
    assert_eq!(buffer.stats().delay, before + ms(10));
    assert_eq!(buffer.insert(packet(1, ms(0)), 1), InsertOutcome::Held);
    let JitterOutput::Wait(Some(until)) = buffer.poll(START + ms(20) + before) else {
        panic!("too early")
    };
    assert!((until - (START + ms(30) + before)).abs() < Span::from_micros(10));
    assert_eq!(buffer.suggested_adjustment(), buffer.stats().target - buffer.stats().delay);
    let _ = buffer.adjust(ms(5_000));
    assert_eq!(buffer.stats().delay, ms(200));
    let _ = buffer.adjust(ms(-5_000));
    assert_eq!(buffer.stats().delay, ms(0));
}

#[test]
fn of_an_initial_burst_the_newest_packets_are_played() {
    let mut buffer = playout(DelayPolicy::Fixed(ms(60)));
    let (mut skipped, mut played) = (0, Vec::new());
    for number in 0..200 {
        // Two seconds at once, and then in real time.
        let now = START + ms(20) * (number - 100).max(0);
        let arrival = Arrival { received: now, ..packet(number.unsigned_abs(), ms(0)) };
        let mut again = buffer.insert(arrival, number.unsigned_abs());
        loop {
            match buffer.poll(now) {
                JitterOutput::Packet(packet) => played.push((packet.payload, now)),
                JitterOutput::Skip(_) => skipped += 1,
                JitterOutput::Missing(missing) => panic!("{missing:?}"),
                JitterOutput::Wait(_) => break,
            }
        }
        if again == InsertOutcome::Full(number.unsigned_abs()) {
            again = buffer.insert(arrival, number.unsigned_abs());
        }
        assert_eq!(again, InsertOutcome::Held);
    }
    let (last, when) = played.pop().unwrap();
    // The first packet was not followed by another yet.
    let torn = played.windows(2).filter(|pair| pair[0].0 + 1 != pair[1].0).count();
    assert!(played.len() >= 90 && torn <= 1, "{torn}, {played:?}");
    let late = when - (START + ms(20) * (last.cast_signed() - 100));
    assert!(late <= ms(100), "{late}");
    assert_eq!(buffer.stats().skipped, skipped);
}

#[test]
fn the_packet_behind_a_hole_can_be_looked_at() {
    let mut buffer = playout(DelayPolicy::Fixed(ms(40)));
    for number in [0, 2, 5] {
        assert_eq!(buffer.insert(packet(number, ms(0)), number), InsertOutcome::Held);
    }
    let mut seen = Vec::new();
    for tick in 0..40 {
        let next = buffer.poll(START + ms(5) * tick);
        if !matches!(next, JitterOutput::Wait(_)) {
            seen.push((matches!(next, JitterOutput::Missing(_)), buffer.peek_following().copied()));
        }
    }
    // Number 1 is recovered from number 2; of 3 and 4 only 4, from 5.
    let wanted = [None, Some(2), None, None, Some(5)];
    let missing: Vec<_> = seen.iter().take(5).map(|&(_, following)| following).collect();
    assert_eq!(missing, wanted);
    assert_eq!(seen.iter().take(5).filter(|(missing, _)| *missing).count(), 3);
}

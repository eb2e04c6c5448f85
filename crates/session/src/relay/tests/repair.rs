//! Recovery of losses: RED, redundant paths, and Opus FEC.

use aulos_proto::rtp::red::{self, RedBlock, RedBlocks};

use aulos_core::Rng;

use super::*;
use crate::datagram::testing::deliver_to;
use crate::rtp::RtpPayloadFormat;

const RED: u8 = 112;
const PACKETS: u64 = 20_000;

/// A payload that contains its number.
fn payload(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(20)
}

/// The number in each packet that was sent.
fn numbers(fixture: &RelayFixture) -> Vec<u64> {
    let number = |(header, bytes): &(RtpHeader, Vec<u8>)| {
        let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(*bytes, payload(number));
        let sent = packet(0, number, 160, 0, &[]);
        let sent = rtp::RtpPacket::parse(&sent).unwrap();
        assert_eq!((header.sequence, header.timestamp), (sent.sequence(), sent.timestamp()));
        number
    };
    fixture.out.iter().map(number).collect()
}

fn is_sorted(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}

fn red_of(number: u64, distance: u64) -> Vec<u8> {
    let before: Vec<Vec<u8>> =
        (1..=distance.min(number)).rev().map(|by| payload(number - by)).collect();
    let offsets = (1..=distance.min(number)).rev().map(|by| u16::try_from(by * 160).unwrap());
    let blocks: Vec<RedBlock<'_>> = before
        .iter()
        .zip(offsets)
        .map(|(data, offset)| RedBlock { payload_type: 0, timestamp_offset: offset, data })
        .collect();
    let mut out = vec![0; 4_000];
    let length = red::write(&mut out, &blocks, 0, &payload(number)).unwrap();
    out.truncate(length);
    packet(1, number, 160, RED, &out)
}

fn red_in() -> RelayStreamConfig {
    let mut config =
        RelayStreamConfig::new(RtpPayloadFormat::new(PCMU), RtpPayloadFormat::new(PCMU));
    config.receive.red_type = Some(RED);
    config
}

/// A tenth of all packets is lost; only losses of two and three in a row remain.
#[test]
fn red_restores_nearly_all_lost_packets() {
    for (distance, least, most) in [(1, 0.007, 0.013), (2, 0.0005, 0.002)] {
        let (mut fixture, mut dice) = (RelayFixture::with_config(red_in()), Rng::new(1));
        let mut lost = 0;
        for number in 0..PACKETS {
            if number > 1 && number < PACKETS - 1 && dice.chance(0.1) {
                lost += 1;
            } else {
                fixture.deliver(&red_of(number, distance));
            }
            fixture.wait(STEP);
        }
        fixture.finish();
        let numbers = numbers(&fixture);
        assert!(is_sorted(&numbers), "each once and in order");
        #[allow(clippy::cast_precision_loss, reason = "some thousands")]
        let missing = (PACKETS - numbers.len() as u64) as f64 / PACKETS as f64;
        assert!((least..most).contains(&missing), "distance {distance}: {missing} is missing");
        let tally = fixture.tally();
        // Network losses are counted as such.
        assert_eq!(tally.source.lost, lost);
        assert_eq!(tally.sent, tally.source.received + tally.recovered_red);
        assert_eq!((tally.sent, tally.no_room), (numbers.len() as u64, 0));
    }
}

#[test]
fn packets_restored_from_red_are_emitted_at_once_and_only_once() {
    let mut fixture = RelayFixture::with_config(red_in());
    for number in [0, 1, 2, 4, 5, 3, 6, 8, 8] {
        let before = fixture.out.len();
        fixture.deliver(&red_of(number, 1));
        if number == 4 {
            assert_eq!(fixture.out.len(), before + 2, "at once");
        }
        fixture.wait(STEP);
    }
    fixture.finish();
    assert_eq!(numbers(&fixture), (0..=8).collect::<Vec<_>>());
    let tally = fixture.tally();
    assert_eq!((tally.recovered_red, tally.source.received), (2, 8));
}

#[test]
fn plain_packets_and_red_without_copies_are_accepted_and_invalid_ones_counted() {
    let mut fixture = RelayFixture::with_config(red_in());
    for number in 0..30 {
        match number % 3 {
            0 => fixture.deliver(&packet(1, number, 160, 0, &payload(number))),
            1 => fixture.deliver(&red_of(number, 0)),
            _ => fixture.deliver(&red_of(number, 3)),
        }
        fixture.deliver(&packet(1, number, 160, RED, &[0x80, 0, 0]));
        fixture.deliver(&packet(1, number, 160, RED, &[99, 1, 2, 3]));
        fixture.wait(STEP);
    }
    fixture.finish();
    assert_eq!(numbers(&fixture), (0..30).collect::<Vec<_>>());
    let tally = fixture.tally();
    assert_eq!((tally.undecodable, tally.unknown_types, tally.recovered_red), (30, 30, 0));
}

/// One relay writes RED, another one reads it: transcoded there and back.
#[test]
fn red_that_a_relay_sends_is_whole() {
    for distance in 1..=MAX_RED_DISTANCE {
        let mut config =
            RelayStreamConfig::new(RtpPayloadFormat::new(PCMA), RtpPayloadFormat::new(PCMU));
        config.red_out = Some(RedConfig { payload_type: RED, distance });
        let mut first = RelayFixture::with_config(config);
        let mut second = RelayFixture::with_config(red_in());
        let mut dice = Rng::new(7);
        for number in 0..2_000 {
            first.send(1, number, 160, &[u8::try_from(number % 128).unwrap(); 160]);
            let (header, sent) = first.out.pop().unwrap_or_default();
            if sent.is_empty() {
                continue;
            }
            assert_eq!(header.payload_type, RED);
            let blocks = RedBlocks::parse(&sent).unwrap();
            let whole = number.min(distance.into()) + 1;
            assert!(number < 2 || blocks.iter().len() as u64 == whole);
            if number < 10 || !dice.chance(0.1) {
                second.deliver(&[&header.to_bytes()[..], &sent].concat());
            }
            second.wait(STEP);
        }
        second.finish();
        assert!(second.out.len() > 1_950, "{} of 2000", second.out.len());
        for (header, payload) in &second.out {
            let number = header.sequence.wrapping_sub(FIRST);
            let code = aulos_dsp::g711::G711Law::A.decode(u8::try_from(number % 128).unwrap());
            let code = aulos_dsp::g711::G711Law::Mu.encode(code);
            let near = i16::from(payload[0]) - i16::from(code);
            assert!(near.abs() <= 1 && payload.iter().all(|byte| *byte == payload[0]));
        }
    }
}

/// Delivers a datagram on one of two paths.
fn give(fixture: &mut RelayFixture, is_second: bool, from: &str, datagram: &[u8]) {
    let (now, from) = (fixture.now, from.parse().unwrap());
    let sent = deliver_to(&mut fixture.relay, is_second, now, from, datagram);
    fixture.take(sent);
}

fn two_ways() -> RelayFixture {
    let mut config =
        RelayStreamConfig::new(RtpPayloadFormat::new(PCMU), RtpPayloadFormat::new(PCMU));
    config.redundant = true;
    RelayFixture::with_config(config)
}

const OTHER: &str = "203.0.113.1:5004";

#[test]
fn two_ways_that_lose_a_tenth_each_lose_a_hundredth_together() {
    let (mut fixture, mut dice) = (two_ways(), Rng::new(3));
    let mut lost = [0, 0];
    for number in 0..PACKETS {
        let datagram = packet(1, number, 160, 0, &payload(number));
        for (way, from) in [SENDER, OTHER].into_iter().enumerate() {
            if number > 2 && number < PACKETS - 1 && dice.chance(0.1) {
                lost[way] += 1;
            } else {
                give(&mut fixture, way == 1, from, &datagram);
            }
            fixture.wait(STEP / 2);
        }
    }
    let report = fixture.relay.report();
    assert_eq!((report.from, report.second), (SENDER.parse().ok(), OTHER.parse().ok()));
    fixture.finish();
    let numbers = numbers(&fixture);
    assert!(is_sorted(&numbers), "each once and in order");
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    let missing = (PACKETS - numbers.len() as u64) as f64 / PACKETS as f64;
    assert!((0.007..0.013).contains(&missing), "{missing} is missing");
    let tally = fixture.tally();
    assert_eq!(tally.lost, lost, "each way says what it has lost");
    let came = 2 * PACKETS - lost[0] - lost[1];
    assert_eq!(tally.taken[0] + tally.taken[1] + tally.duplicates, came);
    assert_eq!((tally.sent, tally.other_addresses), (numbers.len() as u64, 0));
}

#[test]
fn a_failed_path_loses_nothing_and_recovers() {
    let mut fixture = two_ways();
    for number in 0..1_000 {
        let datagram = packet(1, number, 160, 0, &payload(number));
        if !(300..700).contains(&number) {
            give(&mut fixture, false, SENDER, &datagram);
        }
        fixture.wait(STEP / 4);
        if !(500..=800).contains(&number) {
            give(&mut fixture, true, OTHER, &datagram);
        }
        fixture.wait(STEP * 3 / 4);
    }
    fixture.finish();
    let wanted: Vec<u64> = (0..500).chain(700..1_000).collect();
    assert_eq!(numbers(&fixture), wanted, "but for the time without any");
}

#[test]
fn a_sender_restarts_only_when_both_paths_show_it() {
    let mut fixture = two_ways();
    for number in 0..600 {
        let ssrc = if number < 300 { 1 } else { 2 };
        let datagram = packet(ssrc, number, 160, 0, &payload(number));
        give(&mut fixture, false, SENDER, &datagram);
        // The other path is ten packets behind.
        if let Some(behind) = number.checked_sub(10) {
            let ssrc = if behind < 300 { 1 } else { 2 };
            let datagram = packet(ssrc, behind, 160, 0, &payload(behind));
            give(&mut fixture, true, OTHER, &datagram);
        }
        for way in [false, true].into_iter().filter(|_| number > 20) {
            give(&mut fixture, way, INTRUDER, &packet(ssrc, number + 5, 160, 0, &payload(9)));
            give(&mut fixture, way, INTRUDER, &packet(77, number, 160, 0, &payload(9)));
        }
        fixture.wait(STEP);
    }
    fixture.finish();
    assert_eq!(numbers(&fixture), (0..600).collect::<Vec<_>>());
    let tally = fixture.tally();
    assert_eq!((tally.restarts, tally.takeovers), (1, 0));
}

/// Speech-like: harmonics of 120 Hz with a varying level, as PCMU.
fn voice(packets: u32) -> Vec<Vec<u8>> {
    let sample = |at: u32| {
        let time = f64::from(at) / 8_000.0;
        let loud = 0.35 + 0.25 * (time * 3.1 * core::f64::consts::TAU).sin();
        let pitch = 120.0 + 15.0 * (time * 0.7 * core::f64::consts::TAU).sin();
        let sum: f64 = (1..12_u32)
            .map(|of| (time * pitch * f64::from(of) * core::f64::consts::TAU).sin() / f64::from(of))
            .sum();
        #[allow(clippy::cast_possible_truncation, reason = "within 16 bits")]
        let sample = (sum * loud * 10_000.0) as i16;
        aulos_dsp::g711::G711Law::Mu.encode(sample)
    };
    (0..packets).map(|packet| (0..160).map(|at| sample(packet * 160 + at)).collect()).collect()
}

/// The output of a relay to Opus, with headers.
fn opus_of(packets: &[Vec<u8>], fec: bool) -> Vec<(RtpHeader, Vec<u8>)> {
    let mut config =
        RelayStreamConfig::new(RtpPayloadFormat::new(PCMU), RtpPayloadFormat::new(OPUS));
    (config.opus_fec, config.opus_bitrate) = (fec, 24_000);
    let mut fixture = RelayFixture::with_config(config);
    for (number, payload) in (0..).zip(packets) {
        fixture.send(1, number, 160, payload);
        fixture.wait(STEP);
    }
    fixture.finish();
    fixture.out
}

#[test]
fn a_lost_packet_is_restored_from_opus_fec() {
    let voice = voice(1_000);
    let lost = |at: usize| at > 20 && at % 10 == 3;
    let mut errors = Vec::new();
    for fec in [false, true] {
        let sent = opus_of(&voice, fec);
        assert_eq!(sent.len(), voice.len());
        let hear = |loses: bool| {
            let mut fixture = RelayFixture::new(OPUS, PCMU);
            for (at, (header, payload)) in sent.iter().enumerate() {
                if !(loses && lost(at)) {
                    let header = RtpHeader { payload_type: 96, ..*header };
                    fixture.deliver(&[&header.to_bytes()[..], payload].concat());
                }
                fixture.wait(STEP);
            }
            fixture.finish();
            fixture
        };
        let (whole, holes) = (hear(false), hear(true));
        let gone = (0..sent.len()).filter(|at| lost(*at)).count() as u64;
        let tally = holes.tally();
        assert_eq!((whole.out.len(), tally.source.lost), (sent.len(), gone));
        assert_eq!(tally.sent, tally.source.received + tally.recovered_fec);
        if !fec {
            assert_eq!(tally.recovered_fec, 0, "nothing is repeated");
            continue;
        }
        // All except those during pauses.
        assert!(tally.recovered_fec * 100 >= gone * 95, "{} of {gone}", tally.recovered_fec);
        let sequences = holes.sequences();
        assert!(sequences.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]).cast_signed() > 0));
        let samples = |payload: &[u8]| -> Vec<f64> {
            payload
                .iter()
                .map(|code| f64::from(aulos_dsp::g711::G711Law::Mu.decode(*code)))
                .collect()
        };
        let (mut error, mut power) = (0.0, 0.0);
        for (at, (header, payload)) in whole.out.iter().enumerate().filter(|(at, _)| lost(*at)) {
            let again = holes.out.iter().find(|(other, _)| other.sequence == header.sequence);
            let Some((_, again)) = again else { continue };
            assert_eq!(again.len(), payload.len(), "packet {at}");
            for (a, b) in samples(payload).iter().zip(samples(again)) {
                error += (a - b).powi(2);
                power += a * a;
            }
        }
        errors.push(10.0 * f64::log10(power / error));
    }
    // The quality is low, but the audio is the same: silence would be 0 dB, and other audio less.
    assert!(errors.iter().all(|error| *error > 3.0), "{errors:?} dB");
}

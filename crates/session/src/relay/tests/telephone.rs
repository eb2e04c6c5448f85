//! Telephone events and comfort noise.

use super::*;
use crate::rtp::RtpPayloadFormat;

const EVENTS: u8 = 101;

/// A key of a tenth of a second according to RFC 4733: five packets with one timestamp, and the end
/// twice more. The sequence numbers continue after `first`.
fn key(first: u64, ticks: u32) -> Vec<Vec<u8>> {
    let durations = [1, 2, 3, 4, 5, 5, 5].map(|packets| u16::try_from(packets * ticks).unwrap());
    let numbers = (first..).zip(durations).zip(0_u8..);
    numbers
        .map(|((number, duration), at)| {
            let end = if at >= 4 { 0x80 } else { 0 };
            let [high, low] = duration.to_be_bytes();
            let mut datagram = packet(1, number, ticks, EVENTS, &[5, end | 10, high, low]);
            // All packets carry the time of the beginning; the first one has the marker bit.
            let began = packet(1, first, ticks, EVENTS, &[]);
            datagram[4..8].copy_from_slice(&began[4..8]);
            datagram[1] = EVENTS | if at == 0 { 0x80 } else { 0 };
            datagram
        })
        .collect()
}

/// Audio, a key, and audio.
fn call(to: Encoding, events: Option<DtmfPayloadTypes>) -> RelayFixture {
    let mut config = RelayStreamConfig::new(RtpPayloadFormat::new(PCMU), RtpPayloadFormat::new(to));
    config.receive.dtmf_type = events.map(|types| types.from);
    config.dtmf_to = events.map(|types| types.to);
    let mut fixture = RelayFixture::with_config(config);
    for number in 0..10 {
        fixture.send(1, number, 160, &[0x55; 160]);
        fixture.wait(STEP);
    }
    for datagram in key(10, 160) {
        fixture.deliver(&datagram);
        fixture.wait(STEP);
    }
    for number in 17..30 {
        fixture.send(1, number, 160, &[0x55; 160]);
        fixture.wait(STEP);
    }
    fixture.finish();
    fixture
}

#[test]
fn dtmf_events_are_relayed_unchanged() {
    let (from, to) = (EVENTS, 97);
    let fixture = call(PCMA, Some(DtmfPayloadTypes { from, to }));
    assert_eq!(fixture.out.len(), 30);
    for (number, (header, _)) in (0u16..).zip(&fixture.out) {
        assert_eq!(header.sequence, FIRST.wrapping_add(number));
    }
    for (at, (sent, (header, payload))) in key(10, 160).iter().zip(&fixture.out[10..17]).enumerate()
    {
        let sent = rtp::RtpPacket::parse(sent).unwrap();
        assert_eq!((header.payload_type, header.marker), (97, at == 0));
        assert_eq!((header.timestamp, &payload[..]), (sent.timestamp(), sent.payload()));
    }
    let tally = fixture.tally();
    assert_eq!((tally.dtmf, tally.sent, tally.unknown_types), (7, 30, 0));
    assert_eq!((tally.jitter.late, tally.source.lost, tally.undecodable), (0, 0, 0));
}

#[test]
fn a_key_has_the_time_of_the_listeners_clock() {
    let fixture = call(OPUS, Some(DtmfPayloadTypes { from: EVENTS, to: EVENTS }));
    assert_eq!(fixture.out.len(), 30);
    let (begin, _) = &fixture.out[9];
    for (at, (header, payload)) in (1_u16..).zip(&fixture.out[10..17]) {
        assert_eq!(header.timestamp, begin.timestamp.wrapping_add(960));
        let duration = (at.min(5) * 960).to_be_bytes();
        assert_eq!(payload[..], [5, if at >= 5 { 0x8a } else { 10 }, duration[0], duration[1]]);
    }
    assert_eq!(fixture.tally().dtmf, 7);
}

#[test]
fn an_unknown_payload_type_is_counted_and_dropped() {
    let fixture = call(PCMA, None);
    assert_eq!(fixture.out.len(), 23);
    assert_eq!(
        (fixture.tally().unknown_types, fixture.tally().last_unknown_type),
        (7, Some(EVENTS))
    );
}

#[test]
fn a_key_behind_a_hole_waits_no_longer_than_sound_does() {
    let mut config =
        RelayStreamConfig::new(RtpPayloadFormat::new(PCMU), RtpPayloadFormat::new(PCMU));
    (config.receive.dtmf_type, config.dtmf_to) = (Some(EVENTS), Some(EVENTS));
    let mut fixture = RelayFixture::with_config(config);
    for number in 0..500 {
        fixture.send(1, number, 160, &[1; 160]);
        fixture.wait(STEP);
    }
    let mut key = key(500, 160);
    key.remove(2);
    for datagram in key {
        fixture.deliver(&datagram);
        fixture.wait(STEP);
    }
    // The gap is detected as soon as its time is over, and not later.
    assert_eq!((fixture.out.len(), fixture.tally().source.lost), (506, 1));
}

/// After 20 packets a silence begins: one packet of comfort noise every 200 ms.
fn silence(to: Encoding, described: &[u8]) -> RelayFixture {
    let mut fixture = RelayFixture::new(PCMU, to);
    for number in 0..20 {
        fixture.send(1, number, 160, &[0xff; 160]);
        fixture.wait(STEP);
    }
    for number in 20..40 {
        // The timestamps advance while nothing is sent.
        let mut datagram = packet(1, number, 160, 13, described);
        let skipped = packet(1, 20 + (number - 20) * 10, 160, 13, &[]);
        datagram[4..8].copy_from_slice(&skipped[4..8]);
        fixture.deliver(&datagram);
        fixture.wait(STEP * 10);
    }
    fixture.finish();
    assert_eq!(fixture.out.len(), 40, "one for each");
    let tally = fixture.tally();
    assert_eq!((tally.comfort_noise, tally.source.lost, tally.undecodable), (20, 0, 0));
    fixture
}

#[test]
fn comfort_noise_is_relayed_where_the_receiver_supports_it() {
    for to in [PCMU, PCMA, G722] {
        let fixture = silence(to, &[50, 130, 120]);
        for (header, payload) in &fixture.out[20..] {
            assert_eq!((header.payload_type, &payload[..]), (13, &[50, 130, 120][..]));
        }
    }
}

#[test]
fn where_the_receiver_does_not_noise_of_that_level_is_sent() {
    for level in [30_u8, 50] {
        let fixture = silence(L16, &[level]);
        let (mut power, mut count) = (0.0, 0.0);
        for (header, payload) in &fixture.out[20..] {
            assert_eq!((header.payload_type, payload.len()), (96, 960 * 4));
            for frame in payload.as_chunks::<4>().0 {
                assert_eq!(frame[..2], frame[2..], "the same on both channels");
                power += (f64::from(i16::from_be_bytes([frame[0], frame[1]])) / 32_768.0).powi(2);
                count += 1.0;
            }
        }
        let heard = 10.0 * f64::log10(power / count);
        // The filter attenuates the top of the band.
        assert!((heard + f64::from(level)).abs() < 1.0, "{level}: {heard}");
    }
    // Opus has comfort noise packets that are not longer than the others.
    let fixture = silence(OPUS, &[40]);
    let ticks = |payload: &[u8]| OPUS.ticks(payload);
    assert!(fixture.out.iter().all(|(_, payload)| ticks(payload) == Some(960)));
}

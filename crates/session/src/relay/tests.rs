//! Relays in virtual time: datagrams in, datagrams out.

mod codec_panics;
mod repair;
mod telephone;

use core::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::rtcp::NtpTime;
use aulos_proto::rtp::{self, Encoding, RtpCodec, RtpHeader, is_rtcp, rtcp};
use proptest::prelude::*;

use super::*;
use crate::datagram::Machine as _;
use crate::datagram::testing::{SentDatagrams, deliver, finish, tick};
use crate::rtp::RtpPayloadFormat;

const SENDER: &str = "192.0.2.1:5004";
const INTRUDER: &str = "198.51.100.9:5004";
const DEST: &str = "192.0.2.2:7000";

const PCMU: Encoding = Encoding { codec: RtpCodec::Pcmu, clock_rate: 8_000, channels: 1 };
const PCMA: Encoding = Encoding { codec: RtpCodec::Pcma, clock_rate: 8_000, channels: 1 };
const G722: Encoding = Encoding { codec: RtpCodec::G722, clock_rate: 8_000, channels: 1 };
const OPUS: Encoding = Encoding { codec: RtpCodec::Opus, clock_rate: 48_000, channels: 2 };
const L16: Encoding = Encoding { codec: RtpCodec::L16, clock_rate: 48_000, channels: 2 };
const L24: Encoding = Encoding { codec: RtpCodec::L24, clock_rate: 44_100, channels: 1 };

/// A relay, a sender of 20 ms packets, and the output.
struct RelayFixture {
    relay: RelayStream,
    now: Instant,
    out: Vec<(RtpHeader, Vec<u8>)>,
    reports: SentDatagrams,
}

impl RelayFixture {
    fn new(from: Encoding, to: Encoding) -> Self {
        let mut config =
            RelayStreamConfig::new(RtpPayloadFormat::new(from), RtpPayloadFormat::new(to));
        config.clock = (Instant::ZERO, NtpTime::from_unix(Span::from_secs(1_700_000_000)));
        Self::with_config(config)
    }

    fn with_config(config: RelayStreamConfig) -> Self {
        let plan = Arc::new(RelayPlan::new(config).unwrap());
        let relay = RelayStream::new(
            plan,
            RelayStreamLabel::default(),
            DEST.parse().unwrap(),
            0xabcd_ef01,
            7,
        );
        Self {
            relay,
            now: Instant::ZERO + Span::from_secs(1),
            out: Vec::new(),
            reports: Vec::new(),
        }
    }

    fn take(&mut self, sent: SentDatagrams) {
        for (to, datagram) in sent {
            if is_rtcp(&datagram) {
                self.reports.push((to, datagram));
                continue;
            }
            assert_eq!(to, DEST.parse::<SocketAddr>().unwrap());
            let packet = rtp::RtpPacket::parse(&datagram).unwrap();
            self.out.push((packet.header(), packet.payload().to_vec()));
        }
    }

    /// Advances the time and fires every timer.
    fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(at) = self.relay.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let sent = tick(&mut self.relay, self.now);
            self.take(sent);
        }
        self.now = end;
    }

    fn deliver(&mut self, datagram: &[u8]) {
        self.deliver_from(SENDER, datagram);
    }

    fn deliver_from(&mut self, from: &str, datagram: &[u8]) {
        let sent = deliver(&mut self.relay, self.now, from.parse().unwrap(), datagram);
        self.take(sent);
    }

    fn send(&mut self, ssrc: u32, number: u64, ticks: u32, payload: &[u8]) {
        let datagram = packet(ssrc, number, ticks, self.payload_type(), payload);
        self.deliver(&datagram);
    }

    fn payload_type(&self) -> u8 {
        self.relay.config().receive.media.outgoing_payload_type()
    }

    fn finish(&mut self) {
        let sent = finish(&mut self.relay, self.now);
        self.take(sent);
    }

    fn sequences(&self) -> Vec<u16> {
        self.out.iter().map(|(header, _)| header.sequence).collect()
    }

    fn tally(&self) -> RelayCounts {
        self.relay.report().tally
    }
}

/// The packet with that number; numbering starts close to the wrap-around.
fn packet(ssrc: u32, number: u64, ticks: u32, payload_type: u8, payload: &[u8]) -> Vec<u8> {
    #[allow(clippy::cast_possible_truncation, reason = "as on the wire")]
    let header = RtpHeader {
        marker: number == 0,
        payload_type,
        sequence: FIRST.wrapping_add(number as u16),
        timestamp: (number as u32).wrapping_mul(ticks).wrapping_sub(5_000),
        ssrc,
    };
    [&header.to_bytes()[..], payload].concat()
}

const FIRST: u16 = 65_500;
const STEP: Span = Span::from_millis(20);

#[test]
fn each_input_packet_is_relayed_with_its_number_and_time() {
    let mut fixture = RelayFixture::new(PCMU, PCMA);
    for number in 0..100 {
        fixture.send(1, number, 160, &[0x55; 160]);
        fixture.wait(STEP);
    }
    fixture.finish();
    assert_eq!(fixture.out.len(), 100);
    for (number, (header, payload)) in (0u16..).zip(&fixture.out) {
        assert_eq!(header.sequence, FIRST.wrapping_add(number));
        assert_eq!(header.timestamp, (u32::from(number) * 160).wrapping_sub(5_000));
        assert_eq!((header.payload_type, header.ssrc), (8, 0xabcd_ef01));
        assert_eq!(header.marker, number == 0);
        assert_eq!(payload.len(), 160);
        assert!(payload.iter().all(|code| *code == payload[0] && *code != 0x55));
    }
    let tally = fixture.tally();
    assert_eq!((tally.source.received, tally.sent, tally.source.lost), (100, 100, 0));
}

#[test]
fn late_packets_are_reordered_and_lost_ones_stay_lost() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    for number in [0, 1, 3, 2, 4, 6, 7, 8, 9, 10, 11, 12] {
        fixture.send(1, number, 160, &[7; 160]);
        fixture.wait(STEP);
    }
    fixture.wait(Span::from_millis(200));
    let wanted: Vec<u16> = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
        .map(|number: u16| FIRST.wrapping_add(number))
        .into();
    assert_eq!(fixture.sequences(), wanted);
    let tally = fixture.tally();
    assert_eq!((tally.source.lost, tally.source.reordered, tally.sent), (1, 1, 12));
}

#[test]
fn a_very_late_packet_is_relayed_unless_it_would_disturb_others() {
    for (to, sent) in [(PCMA, 40), (G722, 39)] {
        let mut fixture = RelayFixture::new(PCMU, to);
        for number in (0..10).chain(11..40) {
            fixture.send(1, number, 160, &[7; 160]);
            fixture.wait(STEP);
        }
        fixture.send(1, 10, 160, &[7; 160]);
        fixture.finish();
        let tally = fixture.tally();
        assert_eq!((fixture.out.len(), tally.too_late), (sent, 40 - sent as u64));
        assert_eq!(tally.jitter.late, 1);
    }
}

#[test]
fn one_foreign_packet_is_ignored_and_two_mean_a_restarted_sender() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    for number in 0..10 {
        fixture.send(1, number, 160, &[1; 160]);
        fixture.wait(STEP);
        if number == 5 {
            fixture.send(99, 700, 160, &[9; 160]);
        }
    }
    assert_eq!((fixture.out.len(), fixture.tally().other_sources), (10, 1));
    for number in 500..510 {
        fixture.send(2, number, 160, &[2; 160]);
        fixture.wait(STEP);
    }
    fixture.finish();
    assert_eq!(fixture.out.len(), 20, "the first one of the new source is among them");
    let report = fixture.relay.report();
    assert_eq!((report.tally.restarts, report.tally.sent), (1, 20));
    assert_eq!(report.tally.source.received, 20);
}

#[test]
fn other_senders_are_ignored_while_the_sender_is_active() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    for number in 0..500 {
        fixture.send(1, number, 160, &[1; 160]);
        fixture.wait(STEP / 2);
        // From the intruder's address, with an SSRC of its own or the sender's: none of them gets
        // through.
        let ssrc = if number < 250 { 2 } else { 1 };
        fixture.deliver_from(INTRUDER, &packet(ssrc, number + 7, 160, 0, &[9; 160]));
        fixture.deliver_from("192.0.2.1:5006", &packet(ssrc, number + 7, 160, 0, &[9; 160]));
        fixture.wait(STEP / 2);
    }
    fixture.finish();
    assert!(
        fixture.out.len() == 500 && fixture.out.iter().all(|(_, payload)| payload == &[1; 160])
    );
    let tally = fixture.tally();
    // The first two came before the sender was validated.
    assert_eq!((tally.other_addresses, tally.other_sources), (998, 2));
    assert_eq!((tally.takeovers, tally.restarts), (0, 0));
    assert_eq!((tally.source.received, tally.source.duplicates), (500, 0));
}

#[test]
fn a_new_sender_takes_over_only_after_silence() {
    for (silence, taken) in [(TAKEOVER - STEP, false), (TAKEOVER + STEP, true)] {
        for ssrc in [1, 2] {
            let mut fixture = RelayFixture::new(PCMU, PCMU);
            for number in 0..100 {
                fixture.send(1, number, 160, &[1; 160]);
                fixture.wait(STEP);
            }
            fixture.wait(silence - STEP);
            // From the second packet on the sender has changed, and the first packet is used as
            // well.
            for number in 200..210 {
                fixture.deliver_from(INTRUDER, &packet(ssrc, number, 160, 0, &[2; 160]));
            }
            let (tally, report) = (fixture.tally(), fixture.relay.report());
            assert_eq!((tally.takeovers, tally.restarts), (u64::from(taken), 0));
            assert_eq!(tally.other_addresses, if taken { 0 } else { 10 });
            let sender = if taken { INTRUDER } else { SENDER };
            assert_eq!(report.from, Some(sender.parse().unwrap()));
            assert_eq!(report.ssrc, Some(if taken { ssrc } else { 1 }));
            // The stream stays with the new sender in the same way.
            fixture.send(1, 300, 160, &[3; 160]);
            fixture.finish();
            assert_eq!(fixture.out.len(), if taken { 110 } else { 101 });
            assert_eq!(fixture.tally().other_addresses, if taken { 1 } else { 10 });
        }
    }
}

#[test]
fn an_ended_stream_accepts_a_new_sender() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    for number in 0..500 {
        fixture.send(1, number, 160, &[1; 160]);
        fixture.wait(STEP);
    }
    let mut room = [0; 200];
    let mut writer = rtcp::RtcpWriter::new(&mut room);
    writer.report(1, None, 0, core::iter::empty());
    writer.bye(1, "");
    let bye = writer.finish().to_vec();
    fixture.deliver(&bye);
    // A BYE takes effect when nothing has arrived for two seconds.
    fixture.wait(Span::from_millis(2_100));
    assert_eq!(fixture.relay.report().ssrc, None);
    for number in 0..10 {
        fixture.deliver_from(INTRUDER, &packet(2, number, 160, 0, &[2; 160]));
        fixture.wait(STEP);
    }
    assert_eq!((fixture.relay.report().ssrc, fixture.out.len()), (Some(2), 510));
    assert_eq!((fixture.tally().takeovers, fixture.tally().other_addresses), (0, 0));
}

#[test]
fn a_scanner_does_not_keep_a_sender_out_and_is_not_sent_on() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    for number in 0..100 {
        if number % 10 == 0 {
            let stray = packet(number / 10 + 50, u64::from(number) * 500, 160, 0, &[9; 160]);
            fixture.deliver_from(INTRUDER, &stray);
        }
        fixture.send(1, number.into(), 160, &[1; 160]);
        fixture.wait(STEP);
    }
    fixture.finish();
    assert!(
        fixture.out.len() == 100 && fixture.out.iter().all(|(_, payload)| payload == &[1; 160])
    );
    let tally = fixture.tally();
    assert_eq!((tally.source.received, tally.other_addresses + tally.other_sources), (100, 10));
}

#[test]
fn packets_in_probation_are_held_and_then_relayed() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    fixture.send(1, 0, 160, &[1; 160]);
    fixture.wait(Span::from_secs(1));
    assert_eq!(fixture.out.len(), 0);
    fixture.finish();
    assert_eq!(fixture.out.len(), 1);
}

#[test]
fn a_silent_stream_ends_with_an_event_and_starts_again() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    for round in 0..2 {
        for number in 0..400 {
            fixture.send(1, round * 7_000 + number, 160, &[1; 160]);
            fixture.wait(STEP);
        }
        assert_eq!(fixture.relay.report().ssrc, Some(1));
        fixture.wait(Span::from_secs(40));
        assert_eq!(fixture.relay.report().ssrc, None);
    }
    assert_eq!(fixture.out.len(), 800);
    let byes = |to: &str| {
        let to: SocketAddr = to.parse().unwrap();
        let is_bye = |datagram: &[u8]| {
            let compound = rtcp::CompoundPacket::parse(datagram).unwrap();
            compound.packets().any(|part| matches!(part, rtcp::RtcpPacket::Bye(_)))
        };
        fixture.reports.iter().filter(|(dest, datagram)| *dest == to && is_bye(datagram)).count()
    };
    assert_eq!((byes(SENDER), byes(DEST)), (2, 2));
}

#[test]
fn both_sides_get_reception_reports() {
    let mut fixture = RelayFixture::new(PCMU, PCMA);
    for number in 0..1_500 {
        if number % 10 != 3 {
            fixture.send(1, number, 160, &[1; 160]);
        }
        fixture.wait(STEP);
    }
    let (mut senders, mut receivers) = (0, 0);
    for (to, datagram) in &fixture.reports {
        for part in rtcp::CompoundPacket::parse(datagram).unwrap().packets() {
            let rtcp::RtcpPacket::Report { ssrc, sender, blocks } = part else { continue };
            assert_eq!(ssrc, 0xabcd_ef01);
            if *to == DEST.parse::<SocketAddr>().unwrap() {
                let sender = sender.expect("a sender's report");
                // The packets sent by then, 160 bytes each.
                assert_eq!(sender.octets, sender.packets * 160);
                senders += 1;
            } else {
                let block = blocks.iter().next().expect("what is received of it");
                assert_eq!(block.ssrc, 1);
                if receivers > 0 {
                    let lost = f64::from(block.fraction_lost) / 256.0;
                    assert!((0.08..0.12).contains(&lost), "{lost}");
                }
                receivers += 1;
            }
        }
    }
    assert!(senders >= 3 && receivers >= 3, "{senders}, {receivers}");
    assert_eq!(fixture.out.len(), 1_350);
}

#[test]
fn a_forged_bye_is_ignored_and_a_genuine_one_ends_the_stream() {
    let mut fixture = RelayFixture::new(PCMU, PCMU);
    let bye = |ssrc: u32| {
        let mut room = [0; 200];
        let mut writer = rtcp::RtcpWriter::new(&mut room);
        writer.report(ssrc, None, 0, core::iter::empty());
        writer.bye(ssrc, "");
        writer.finish().to_vec()
    };
    for number in 0..500 {
        fixture.send(1, number, 160, &[1; 160]);
        fixture.wait(STEP);
        if number == 100 {
            fixture.deliver(&bye(1));
        }
    }
    assert_eq!(fixture.relay.report().ssrc, Some(1));
    assert_eq!((fixture.tally().forged_byes, fixture.tally().foreign_rtcp), (1, 0));
    // A BYE from another address has no effect, even when nothing else arrives.
    fixture.deliver_from(INTRUDER, &bye(1));
    fixture.wait(Span::from_secs(5));
    assert_eq!(fixture.relay.report().ssrc, Some(1));
    assert_eq!((fixture.tally().forged_byes, fixture.tally().foreign_rtcp), (2, 1));
    fixture.deliver(&bye(1));
    fixture.wait(Span::from_secs(5));
    assert_eq!((fixture.relay.report().ssrc, fixture.out.len()), (None, 500));
}

#[test]
fn every_encoding_becomes_every_other_and_keeps_its_time() {
    let all = [PCMU, PCMA, G722, OPUS, L16, L24];
    for from in all {
        // A tone in that encoding, made from L16 by another relay.
        let tone = if from == L16 { tone() } else { relayed(L16, from, &tone(), 960) };
        for to in all {
            let ticks = from.clock_rate / 50;
            let out = relayed(from, to, &tone, ticks);
            assert_eq!(out.len(), tone.len(), "{from:?} to {to:?}");
            let back = if to == L16 { out } else { relayed(to, L16, &out, to.clock_rate / 50) };
            assert_eq!(back.len(), tone.len(), "{to:?} and back");
            let share = tone_share(&back);
            let wanted = 0.97;
            assert!(share > wanted, "{from:?} to {to:?}: {share}");
        }
    }
}

/// The output of a relay for these payloads.
fn relayed(from: Encoding, to: Encoding, payloads: &[Vec<u8>], ticks: u32) -> Vec<Vec<u8>> {
    let mut config = RelayStreamConfig::new(RtpPayloadFormat::new(from), RtpPayloadFormat::new(to));
    config.opus_bitrate = 64_000;
    let mut fixture = RelayFixture::with_config(config);
    for (number, payload) in (0..).zip(payloads) {
        fixture.send(1, number, ticks, payload);
        fixture.wait(STEP);
    }
    fixture.finish();
    let tally = fixture.tally();
    assert_eq!((tally.undecodable, tally.no_room, tally.too_late), (0, 0, 0), "{from:?} to {to:?}");
    for pair in fixture.out.windows(2) {
        let step = pair[1].0.timestamp.wrapping_sub(pair[0].0.timestamp);
        assert_eq!(step, to.clock_rate / 50);
    }
    fixture.out.into_iter().map(|(_, payload)| payload).collect()
}

/// Two seconds of 440 Hz at -12 dBFS in L16, on both channels.
fn tone() -> Vec<Vec<u8>> {
    let frame = |at: u32| {
        let phase = f64::from(at) * 440.0 / 48_000.0 * core::f64::consts::TAU;
        #[allow(clippy::cast_possible_truncation, reason = "within 16 bits")]
        let [a, b] = ((phase.sin() * 8_192.0) as i16).to_be_bytes();
        [a, b, a, b]
    };
    (0..100).map(|packet| (0..960).flat_map(|at| frame(packet * 960 + at)).collect()).collect()
}

fn tone_share(payloads: &[Vec<u8>]) -> f64 {
    let (mut sine, mut cosine, mut all, mut count) = (0.0, 0.0, 0.0, 0.0);
    // After the start-up of the codecs.
    for frame in payloads[20..].iter().flat_map(|payload| payload.as_chunks::<4>().0) {
        let sample = f64::from(i16::from_be_bytes([frame[0], frame[1]]));
        let phase = count * 440.0 / 48_000.0 * core::f64::consts::TAU;
        sine += sample * phase.sin();
        cosine += sample * phase.cos();
        all += sample * sample;
        count += 1.0;
    }
    assert!(all / count > 1_000_000.0, "it is too quiet: {}", (all / count).sqrt());
    2.0 * (sine * sine + cosine * cosine) / (count * all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any input: nothing panics, and every accepted packet is sent or counted as lost.
    #[test]
    fn every_packet_is_accounted_for(
        steps in prop::collection::vec((0u64..60, 0i64..40, 0u32..3, 0usize..200), 1..200),
        stateful in any::<bool>(),
    ) {
        let mut fixture = RelayFixture::new(PCMU, if stateful { G722 } else { PCMA });
        for (jump, millis, ssrc, length) in steps {
            fixture.send(ssrc / 2 + 1, jump, 160, &vec![3; length]);
            fixture.wait(Span::from_millis(millis));
        }
        fixture.finish();
        let tally = fixture.tally();
        let gone = tally.undecodable + tally.too_late + tally.no_room + tally.unsent;
        prop_assert!(tally.sent + gone >= tally.source.received.saturating_sub(tally.jitter.strays));
        prop_assert!(tally.sent <= tally.source.received + tally.source.strays);
        prop_assert_eq!(tally.sent, fixture.out.len() as u64);
    }

    #[test]
    fn no_datagram_makes_it_panic(datagrams in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..64), 1..50)) {
        let mut config = RelayStreamConfig::new(RtpPayloadFormat::new(PCMU), RtpPayloadFormat::new(OPUS));
        (config.receive.dtmf_type, config.dtmf_to) = (Some(101), Some(101));
        config.receive.red_type = Some(112);
        config.red_out = Some(RedConfig { payload_type: 113, distance: 2 });
        (config.redundant, config.opus_fec) = (true, true);
        let mut fixture = RelayFixture::with_config(config);
        for (number, mut datagram) in (0_u8..).zip(datagrams) {
            // Half of them start with the header of one stream's packets.
            if let (Some(head), true) = (datagram.first_chunk_mut(), number.is_multiple_of(2)) {
                let kind = [0, 13, 101, 112][usize::from(number / 2 % 4)];
                *head = [0x80, kind, 0, number / 2, 0, 0, number, 0, 0, 0, 0, 1];
            }
            fixture.deliver(&datagram);
            fixture.wait(STEP);
        }
        fixture.finish();
    }
}

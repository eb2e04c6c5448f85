//! Recovery of lost packets: Opus FEC and RED.

use aulos_core::{Instant, Rng, Span};
use aulos_engine::source::SourceItem;
use aulos_opus::{Application, EncoderConfig, OpusEncoder};
use aulos_proto::rtp::payload::opus_fec_ticks;
use aulos_proto::rtp::red::{self, RedBlock};
use aulos_proto::rtp::{Encoding, HEADER_LEN, RtpCodec, RtpHeader};
use aulos_rt::ring::Consumer;
use aulos_session::rtp::RtpPayloadFormat;
use aulos_session::rtp::{PlayoutDelay, RtpInput, RtpInputConfig, RtpInputCounts, RtpInputSink};

pub(crate) const PCMU: Encoding =
    Encoding { codec: RtpCodec::Pcmu, clock_rate: 8_000, channels: 1 };
pub(crate) const OPUS: Encoding =
    Encoding { codec: RtpCodec::Opus, clock_rate: 48_000, channels: 2 };
pub(crate) const OPUS_TYPE: u8 = 111;
const RED_TYPE: u8 = 112;
const SENDER: &str = "192.0.2.1:5004";
pub(crate) const PACKET: Span = Span::from_millis(20);
pub(crate) const LOOK: Span = Span::from_millis(5);

/// A source without a station: its output is collected.
pub(crate) struct InputFixture {
    pub(crate) now: Instant,
    pub(crate) intake: RtpInput,
    items: Consumer<SourceItem>,
    pub(crate) heard: Vec<f32>,
}

impl InputFixture {
    pub(crate) fn new(encoding: Encoding, payload_type: u8) -> Self {
        Self::with(encoding, payload_type, None)
    }

    /// The same with a playout delay.
    pub(crate) fn with(encoding: Encoding, payload_type: u8, delay: Option<PlayoutDelay>) -> Self {
        let now = Instant::ZERO + Span::from_secs(5);
        let media = RtpPayloadFormat { encoding, payload_type: Some(payload_type) };
        let mut config = RtpInputConfig::new(media);
        config.delay = delay;
        config.red_payload_type = Some(RED_TYPE);
        config.opus_channels = 1;
        let (line, items, _) = RtpInputSink::new();
        let intake = RtpInput::new(config, line, now).unwrap();
        Self { now, intake, items, heard: Vec::new() }
    }

    pub(crate) fn receive(&mut self, packet: &[u8]) {
        self.intake.handle_packet(self.now, SENDER.parse().unwrap(), packet);
    }

    pub(crate) fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now += LOOK;
            if self.intake.poll_timeout() <= self.now {
                self.intake.handle_timeout(self.now);
            }
            self.intake.flush();
            while let Some(item) = self.items.pop() {
                if let SourceItem::Block(block) = item {
                    self.heard.extend_from_slice(block.samples());
                }
            }
        }
    }

    pub(crate) fn counts(&self) -> RtpInputCounts {
        self.intake.state().counts
    }
}

pub(crate) fn packet(
    ssrc: u32,
    number: u64,
    ticks: u64,
    payload_type: u8,
    payload: &[u8],
) -> Vec<u8> {
    let (sequence, timestamp) = (number as u16, (number * ticks) as u32);
    let header = RtpHeader { sequence, timestamp, ssrc, payload_type, ..RtpHeader::default() };
    [&header.to_bytes()[..], payload].concat()
}

/// A packet of `payloads[number]` that repeats the `generations` before it.
pub(crate) fn red_packet(
    payloads: &[Vec<u8>],
    number: usize,
    ticks: u64,
    payload_type: u8,
    generations: usize,
) -> Vec<u8> {
    let behind = (1..=generations.min(number)).rev();
    let blocks: Vec<RedBlock<'_>> = behind
        .map(|by| RedBlock {
            payload_type,
            timestamp_offset: by as u16 * ticks as u16,
            data: &payloads[number - by],
        })
        .collect();
    let mut bytes = vec![0; 4_000];
    let length = red::write(&mut bytes, &blocks, payload_type, &payloads[number]).unwrap();
    packet(1, number as u64, ticks, RED_TYPE, &bytes[..length])
}

/// Speech-like: harmonics of a moving fundamental in syllables, never silent. Opus repeats nothing
/// of a steady sound.
fn voice(at: u64, rate: f64) -> f32 {
    let time = at as f64 / rate;
    let loud = 0.55 * (0.03 + 0.97 * (time * 3.1 * std::f64::consts::PI).sin().powi(2));
    let phase = (time * 120.0 + 2.0 * (time * 0.7).sin()) * std::f64::consts::TAU;
    let harmonics = 1..12_u32;
    let sum: f64 = harmonics.map(|of| (phase * f64::from(of)).sin() / f64::from(of)).sum();
    (sum * loud * 0.4) as f32
}

/// The speech as Opus of 20 ms at 32 kbit/s with FEC. At this complexity the energy alone decides
/// what is speech.
pub(crate) fn opus_voice(packets: usize) -> Vec<Vec<u8>> {
    let config = EncoderConfig {
        bitrate: 32_000,
        complexity: 5,
        expected_loss: 20,
        ..EncoderConfig::new(16_000, 1, Application::Voice)
    };
    let mut encoder = OpusEncoder::new(config).unwrap();
    let encode = |number: usize| {
        let samples: Vec<f32> =
            (0..320).map(|at| voice(number as u64 * 320 + at, 16_000.0)).collect();
        let mut payload = vec![0; 1_500];
        let length = encoder.encode(&samples, 320, &mut payload).unwrap();
        payload.truncate(length);
        payload
    };
    (0..packets).map(encode).collect()
}

/// The speech as G.711.
pub(crate) fn pcmu_voice(packets: usize) -> Vec<Vec<u8>> {
    let encode = |number: usize| {
        let samples: Vec<f32> =
            (0..160).map(|at| voice(number as u64 * 160 + at, 8_000.0)).collect();
        let mut payload = vec![0; 160];
        aulos_dsp::g711::encode(aulos_dsp::g711::G711Law::Mu, &samples, &mut payload);
        payload
    };
    (0..packets).map(encode).collect()
}

/// The signal-to-noise ratio of `heard` against `sent` in dB.
fn snr(sent: &[f32], heard: &[f32]) -> f64 {
    let power = |samples: &mut dyn Iterator<Item = f64>| samples.map(|x| x * x).sum::<f64>();
    let signal = power(&mut sent.iter().map(|x| f64::from(*x)));
    let noise = power(&mut sent.iter().zip(heard).map(|(a, b)| f64::from(a - b)));
    10.0 * f64::log10(signal / noise.max(1e-12))
}

/// Plays Opus packets except those that `is_lost` selects.
pub(crate) fn opus_over(payloads: &[Vec<u8>], is_lost: impl Fn(usize) -> bool) -> InputFixture {
    let mut receiver = InputFixture::new(OPUS, OPUS_TYPE);
    for (number, payload) in payloads.iter().enumerate() {
        if !is_lost(number) {
            receiver.receive(&packet(1, number as u64, 960, OPUS_TYPE, payload));
        }
        receiver.wait(PACKET);
    }
    receiver.wait(Span::from_millis(200));
    receiver
}

/// How many of the lost packets are repeated in the next one.
pub(crate) fn repeated(payloads: &[Vec<u8>], is_lost: impl Fn(usize) -> bool) -> u64 {
    let lost = (0..payloads.len()).filter(|at| is_lost(*at) && !is_lost(at + 1));
    lost.filter(|at| opus_fec_ticks(&payloads[at + 1]).is_some()).count() as u64
}

#[test]
fn a_lost_opus_packet_is_decoded_from_the_next_one() {
    let payloads = opus_voice(1_000);
    let is_lost = |number: usize| number > 20 && number < 990 && number % 20 == 7;
    let whole = opus_over(&payloads, |_| false);
    let repaired = opus_over(&payloads, is_lost);
    let counts = repaired.counts();
    let lost = (0..1_000).filter(|number| is_lost(*number)).count() as u64;
    assert_eq!((counts.lost, counts.received), (lost, 1_000 - lost), "{counts:?}");
    // Opus repeats only packets with speech.
    let repeated = repeated(&payloads, is_lost);
    assert!(repeated > lost / 3);
    assert_eq!(counts.recovered_fec, repeated, "{counts:?}");
    assert_eq!(counts.concealed, (lost - counts.recovered_fec) * 960, "{counts:?}");
    assert_eq!((counts.gaps, counts.left_out, counts.recovered_red), (0, 0, 0));
    // As many frames as without loss.
    assert_eq!((whole.heard.len(), repaired.heard.len()), (960_000, 960_000));
    // The same stream with useless repetitions, because the next packet is lost as well.
    let pairs = |number: usize| is_lost(number) || (number > 0 && is_lost(number - 1));
    let concealed = opus_over(&payloads, pairs);
    let piece = |receiver: &InputFixture| -> Vec<f32> {
        let repeated = |at: &usize| opus_fec_ticks(&payloads[at + 1]).is_some();
        let lost = (0..1_000).filter(|number| is_lost(*number)).filter(repeated);
        lost.flat_map(|at| receiver.heard[at * 960..(at + 1) * 960].to_vec()).collect()
    };
    let sent = piece(&whole);
    let (fec, plain) = (snr(&sent, &piece(&repaired)), snr(&sent, &piece(&concealed)));
    println!("lost packets: {fec:.1} dB with the copy, {plain:.1} dB concealed");
    assert!(fec > plain + 3.0, "{fec} {plain}");
}

/// Of two consecutive losses the second packet is repeated in the next one, and the first is not.
#[test]
fn of_a_burst_loss_the_last_opus_packet_is_restored_and_the_others_concealed() {
    let payloads = opus_voice(500);
    let is_lost = |number: usize| (50..475).contains(&number) && matches!(number % 25, 3..=5);
    let repaired = opus_over(&payloads, is_lost);
    let (counts, bursts) = (repaired.counts(), (50..475).filter(|at| at % 25 == 3).count() as u64);
    assert_eq!(counts.lost, 3 * bursts);
    let repeated = repeated(&payloads, is_lost);
    assert!(repeated > bursts / 3);
    assert_eq!(counts.recovered_fec, repeated, "{counts:?}");
    assert_eq!(counts.concealed, (counts.lost - counts.recovered_fec) * 960);
    assert_eq!(repaired.heard.len(), 500 * 960);
}

/// Plays RED of G.711 with this many generations.
fn red_over(packets: usize, generations: usize, is_lost: impl Fn(usize) -> bool) -> InputFixture {
    let payloads = pcmu_voice(packets);
    let mut receiver = InputFixture::new(PCMU, 0);
    for number in 0..packets {
        if !is_lost(number) {
            receiver.receive(&red_packet(&payloads, number, 160, 0, generations));
        }
        receiver.wait(PACKET);
    }
    receiver.wait(Span::from_millis(200));
    receiver
}

#[test]
fn red_with_two_generations_restores_bursts_of_two_bit_by_bit() {
    let is_lost = |number: usize| number > 20 && number < 990 && matches!(number % 20, 7 | 8);
    let (whole, repaired) = (red_over(1_000, 2, |_| false), red_over(1_000, 2, is_lost));
    let lost = (0..1_000).filter(|number| is_lost(*number)).count() as u64;
    let counts = repaired.counts();
    assert_eq!((counts.lost, counts.recovered_red, counts.received), (lost, lost, 1_000 - lost));
    assert_eq!((counts.concealed, counts.late, counts.gaps, counts.duplicates), (0, 0, 0, 0));
    assert!(whole.heard == repaired.heard, "it is not what was sent");
    assert_eq!(whole.heard.len(), 160_000);
}

#[test]
fn in_a_longer_burst_packets_missing_in_red_are_concealed() {
    let is_lost = |number: usize| (50..475).contains(&number) && matches!(number % 25, 3..=5);
    let bursts = (50..475).filter(|at| at % 25 == 3).count() as u64;
    let counts = red_over(500, 2, is_lost).counts();
    assert_eq!((counts.lost, counts.recovered_red), (3 * bursts, 2 * bursts), "{counts:?}");
    assert_eq!(counts.concealed, bursts * 160);
}

#[test]
fn opus_in_red_is_restored_from_the_copy_and_not_from_fec() {
    let payloads = opus_voice(300);
    let mut receiver = InputFixture::new(OPUS, OPUS_TYPE);
    for number in 0..300 {
        if number < 20 || number % 10 != 7 {
            receiver.receive(&red_packet(&payloads, number, 960, OPUS_TYPE, 1));
        }
        receiver.wait(PACKET);
    }
    let (counts, whole) = (receiver.counts(), opus_over(&payloads, |_| false));
    assert_eq!((counts.recovered_red, counts.recovered_fec, counts.concealed), (28, 0, 0));
    assert!(receiver.heard[..280 * 960] == whole.heard[..280 * 960], "it is not what was sent");
}

/// A packet that arrives after its copy is neither lost nor recovered, and is not played twice.
#[test]
fn a_packet_that_arrives_after_its_copy_is_not_lost() {
    let payloads = pcmu_voice(200);
    let mut receiver = InputFixture::new(PCMU, 0);
    for pair in 0..100 {
        // The first packets are in order, which validates the source.
        let order = if pair < 2 { [0, 1] } else { [1, 0] };
        for at in order {
            receiver.receive(&red_packet(&payloads, 2 * pair + at, 160, 0, 1));
            receiver.wait(PACKET);
        }
    }
    receiver.wait(Span::from_millis(200));
    let counts = receiver.counts();
    assert_eq!((counts.received, counts.lost, counts.recovered_red), (200, 0, 0), "{counts:?}");
    assert_eq!((counts.duplicates, counts.concealed, counts.late), (0, 0, 0), "{counts:?}");
    assert_eq!(receiver.heard.len(), 200 * 160);
}

#[test]
fn malformed_red_and_unknown_types_are_counted_and_the_rest_is_played() {
    let payloads = pcmu_voice(300);
    let mut receiver = InputFixture::new(PCMU, 0);
    for number in 0..300 {
        receiver.receive(&red_packet(&payloads, number, 160, 0, 2));
        let at = number as u64;
        // A truncated header, a block that is too long, too many blocks; a wrong payload type
        // inside, and outside.
        for nonsense in [&[0x80, 0, 0][..], &[0x80, 2, 3, 255, 0, 1], &[0x80; 40], &[]] {
            receiver.receive(&packet(1, at, 160, RED_TYPE, nonsense));
        }
        receiver.receive(&packet(1, at, 160, RED_TYPE, &[8, 1, 2, 3]));
        receiver.receive(&packet(1, at, 160, 97, &payloads[number]));
        receiver.wait(PACKET);
    }
    let counts = receiver.counts();
    assert_eq!((counts.undecodable, counts.other_types), (1_200, 600), "{counts:?}");
    assert_eq!((counts.received, counts.lost, counts.concealed), (300, 0, 0), "{counts:?}");
}

/// Copies of another payload type, from before the stream, or without data fill no gap.
#[test]
fn a_copy_that_is_none_fills_no_hole() {
    let payloads = pcmu_voice(100);
    let mut receiver = InputFixture::new(PCMU, 0);
    for number in (0..100).filter(|number| number % 10 != 5) {
        let wrong = [
            RedBlock { payload_type: 8, timestamp_offset: 160, data: &[1; 160] },
            RedBlock { payload_type: 0, timestamp_offset: 160, data: &[] },
        ];
        let mut bytes = vec![0; 1_000];
        let own = &payloads[number];
        let length = red::write(&mut bytes, &wrong, 0, own).unwrap();
        receiver.receive(&packet(1, number as u64, 160, RED_TYPE, &bytes[..length]));
        receiver.wait(PACKET);
    }
    receiver.wait(Span::from_millis(200));
    let counts = receiver.counts();
    assert_eq!((counts.lost, counts.recovered_red, counts.concealed), (10, 0, 1_600), "{counts:?}");
}

/// A sender that restarts with another SSRC: the counters continue, and no copy of one source is
/// played for the other.
#[test]
fn a_new_sender_starts_without_copies_of_the_old_one() {
    let payloads = pcmu_voice(400);
    let mut receiver = InputFixture::new(PCMU, 0);
    for number in 0..400 {
        if number == 200 {
            receiver.wait(Span::from_millis(300));
        }
        if number < 20 || number % 20 != 7 {
            let mut bytes = red_packet(&payloads, number, 160, 0, 2);
            if number >= 200 {
                bytes[8..HEADER_LEN].copy_from_slice(&2_u32.to_be_bytes());
            }
            receiver.receive(&bytes);
        }
        receiver.wait(PACKET);
    }
    receiver.wait(Span::from_millis(200));
    let counts = receiver.counts();
    assert_eq!((counts.changes, counts.lost, counts.recovered_red), (1, 19, 19), "{counts:?}");
    // The first packet of the second source revealed it, and was played as well.
    assert_eq!((counts.other_senders, counts.concealed), (0, 0), "{counts:?}");
}

/// Any bytes as RED: nothing panics, and each packet is counted once.
#[test]
fn random_red_is_counted() {
    let payloads = pcmu_voice(2_000);
    let mut receiver = InputFixture::new(PCMU, 0);
    let mut dice = Rng::new(1);
    let mut random = || dice.next_u64() as u8;
    for number in 0..2_000 {
        if number % 3 > 0 {
            receiver.receive(&red_packet(&payloads, number, 160, 0, 2));
        } else {
            let length = usize::from(random());
            let bytes: Vec<u8> = (0..length).map(|_| random()).collect();
            receiver.receive(&packet(1, number as u64, 160, RED_TYPE, &bytes));
        }
        receiver.wait(PACKET);
    }
    let counts = receiver.counts();
    let seen = counts.received + counts.undecodable + counts.other_types + counts.other_senders;
    assert!(seen >= 2_000, "{counts:?}");
    assert!(counts.recovered_red > 500, "{counts:?}");
}

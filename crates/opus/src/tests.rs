//! Every rate, duration and channel count, losses and damage; and libopus itself as the judge.

use proptest::prelude::*;

use super::*;

mod libopus;

const RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

/// Units of 2.5 ms: the durations of packets.
const UNITS: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 40, 48];

fn application() -> impl Strategy<Value = Application> {
    prop_oneof![Just(Application::Voice), Just(Application::Audio), Just(Application::LowDelay)]
}

fn config() -> impl Strategy<Value = EncoderConfig> {
    let settings = (application(), 6_000..=510_000_u32, any::<bool>(), 0..=10_u8, 0..=100_u8);
    (proptest::sample::select(RATES.to_vec()), 1..=2_usize, settings).prop_map(
        |(rate, channels, (application, bitrate, is_constant, complexity, expected_loss))| {
            EncoderConfig {
                bitrate,
                is_constant,
                complexity,
                expected_loss,
                ..EncoderConfig::new(rate, channels, application)
            }
        },
    )
}

/// A second of tones and noise that changes its kind, at a level.
fn sound(kind: u8, level: f32, rate: u32, channels: usize) -> Vec<f32> {
    let mut noise = 1_u32;
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a second of frames, in tenths"
    )]
    let sample = |at: usize| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let hiss = (noise >> 8) as f32 / 8_388_608.0 - 1.0;
        let time = (at / channels) as f32 / rate as f32;
        let tone = (time * 440.0 * core::f32::consts::TAU).sin();
        let part = (time * 10.0) as u8;
        level
            * match (kind + part) % 6 {
                0 => 0.0,
                1 => hiss,
                2 => tone,
                3 => tone.signum(),
                4 if at.is_multiple_of(4_801) => 1.0,
                4 => 1e-9 * hiss,
                _ => 0.7 * tone + 0.1 * hiss,
            }
    };
    (0..rate as usize * channels).map(sample).collect()
}

/// What reaches a decoder in place of a packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    /// Recovered from the next one.
    Recovered,
    /// With a byte changed, or cut there.
    Damaged(usize, Option<u8>),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Recovered),
        2 => (0..200_usize, any::<Option<u8>>()).prop_map(|(at, byte)| Fate::Damaged(at, byte)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A panic of the library fails the test.
    #[test]
    fn what_is_encoded_is_decoded_at_any_rate_with_any_loss(
        config in config(),
        kind in 0..6_u8,
        level in prop_oneof![Just(0.3_f32), Just(1.0), Just(8.0), Just(1e-6)],
        units in proptest::sample::select(UNITS.to_vec()),
        to_rate in proptest::sample::select(RATES.to_vec()),
        to_channels in 1..=2_usize,
        fates in proptest::collection::vec(fate(), 24),
    ) {
        let frames = config.rate as usize / 400 * units;
        let mut encoder = OpusEncoder::new(config).unwrap();
        let mut packets = Vec::new();
        for piece in sound(kind, level, config.rate, config.channels)
            .chunks_exact(frames * config.channels)
            .take(fates.len())
        {
            let mut packet = vec![0; 1_275 * 6 + 14];
            let length = encoder.encode(piece, frames, &mut packet).unwrap();
            packet.truncate(length);
            packets.push(packet);
        }
        let mut decoder = OpusDecoder::new(to_rate, to_channels).unwrap();
        let decoded = to_rate as usize / 400 * units;
        let mut out = vec![0.0; decoded * to_channels];
        for (number, packet) in packets.iter().enumerate() {
            let following = packets.get(number + 1);
            match (fates[number], following) {
                (Fate::Arrives, _) => {
                    prop_assert_eq!(decoder.decode(packet, &mut out), Some(decoded));
                }
                (Fate::Recovered, Some(following)) => {
                    prop_assert_eq!(decoder.recover(following, &mut out), Some(decoded));
                }
                (Fate::Lost | Fate::Recovered, _) => {
                    prop_assert_eq!(decoder.conceal(&mut out), Some(decoded));
                }
                (Fate::Damaged(at, byte), _) => {
                    let mut packet = packet.clone();
                    match (packet.get_mut(at), byte) {
                        (Some(place), Some(byte)) => *place = byte,
                        _ => packet.truncate(at),
                    }
                    decoder.decode(&packet, &mut out);
                }
            }
            prop_assert!(out.iter().all(|sample| sample.is_finite()));
        }
    }

    /// Packets of several streams begin with any mode; an empty one stands for a gap.
    #[test]
    fn any_packet_of_several_streams_is_survived(
        streams in 1..=4_u8,
        coupled in 0..=4_u8,
        table in proptest::collection::vec(0..9_u8, 1..9),
        packets in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 0..300), 1..16,
        ),
    ) {
        let channels = table.into_iter().map(|from| if from == 8 { 255 } else { from }).collect();
        let mapping = StreamMapping { streams, coupled_streams: coupled, channels };
        let decoder = MultistreamDecoder::new(48_000, &mapping);
        prop_assert_eq!(decoder.is_some(), mapping.is_valid());
        let Some(mut decoder) = decoder else { return Ok(()) };
        let mut out = vec![0.0; 5_760 * mapping.channels.len()];
        for packet in &packets {
            match packet.is_empty() {
                true => prop_assert_eq!(decoder.conceal(&mut out), Some(5_760)),
                false => drop(decoder.decode(packet, &mut out)),
            }
            prop_assert!(out.iter().all(|sample| sample.is_finite()));
        }
    }
}

#[test]
fn what_opus_does_not_have_is_refused() {
    let config = EncoderConfig::new(48_000, 2, Application::Audio);
    for refused in [
        EncoderConfig { rate: 44_100, ..config },
        EncoderConfig { channels: 3, ..config },
        EncoderConfig { channels: 0, ..config },
        EncoderConfig { bitrate: 0, ..config },
        EncoderConfig { complexity: 11, ..config },
        EncoderConfig { expected_loss: 101, ..config },
    ] {
        assert!(OpusEncoder::new(refused).is_none(), "{refused:?}");
    }
    let mut encoder = OpusEncoder::new(config).unwrap();
    assert_eq!(encoder.delay(), 312);
    let (silence, mut packet) = ([0.0; 1_920], [0; 1_275]);
    assert_eq!(encoder.encode(&silence, 961, &mut packet), None, "more frames than samples");
    assert_eq!(encoder.encode(&silence, 959, &mut packet), None, "no duration of Opus");
    assert_eq!(encoder.encode(&silence, 960, &mut []), None, "no room");
    assert!(encoder.encode(&silence, 960, &mut packet).is_some());
    assert!(OpusDecoder::new(44_100, 2).is_none() && OpusDecoder::new(48_000, 3).is_none());
    let mut decoder = OpusDecoder::new(48_000, 2).unwrap();
    let mut out = [0.0; 1_920];
    assert_eq!(decoder.decode(&[], &mut out), None, "nothing");
    assert_eq!(decoder.decode(&[31 << 3 | 1, 0, 0], &mut out), None, "longer than the room");
    assert_eq!(decoder.conceal(&mut out[..1_000]), None, "no multiple of 2.5 ms");
    assert_eq!(decoder.conceal(&mut out), Some(960));
}

use aulos_core::Block;
use aulos_engine::decode::{Decoder as _, OpusPacketDecoder};
use aulos_engine::encode::{EncodeError, Encoder as _};

use super::*;

const LIBOPUS: OpusConfig = OpusConfig {
    bitrate: 96_000,
    rate_control: RateControl::Vbr,
    complexity: 10,
    library: OpusLibrary::Libopus,
};

/// Whether the system has libopus; without it the built-in encoder would be tested in its place.
fn has_libopus() -> bool {
    let is_there = check_library(LIBOPUS).is_ok();
    if !is_there {
        println!("skipped: no libopus0");
    }
    is_there
}

fn spec(text: &str) -> SampleSpec {
    text.parse().unwrap()
}

/// The packets of a second of a tone, and their sound.
fn round_trip(config: OpusConfig, spec: SampleSpec, frames: usize) -> (Vec<usize>, Vec<f32>) {
    let mut encoder = make_opus_encoder(config, spec, Frames::from(frames)).unwrap();
    let channels = spec.layout.channels();
    let mut decoder = OpusPacketDecoder::new(spec.rate, channels).unwrap();
    let mut block = Block::with_capacity(spec.rate, spec.layout, frames * channels);
    block.resize(Frames::from(frames));
    let (mut lengths, mut sound, mut frame) = (Vec::new(), Vec::new(), 0_u16);
    let mut out = vec![0.0; frames * channels];
    for _ in 0..48_000 / frames {
        for samples in block.samples_mut().chunks_exact_mut(channels) {
            samples.fill(tone(usize::from(frame)));
            frame += 1;
        }
        let mut packet = Vec::new();
        encoder.encode(&block, &mut packet).unwrap();
        assert_eq!(decoder.decode(&packet, &mut out), Ok(frames));
        lengths.push(packet.len());
        sound.extend(out.chunks_exact(channels).map(|samples| samples[0]));
    }
    (lengths, sound)
}

/// 440 Hz at a quarter of full scale.
#[allow(clippy::cast_precision_loss, reason = "a second of frames")]
fn tone(frame: usize) -> f32 {
    0.25 * (core::f32::consts::TAU * 440.0 / 48_000.0 * frame as f32).sin()
}

#[test]
fn libopus_keeps_the_tone_its_level_and_its_time() {
    if !has_libopus() {
        return;
    }
    for (spec_text, frames) in [("48000:16:2", 960), ("48000:16:1", 480), ("48000:16:2", 2_880)] {
        let (lengths, sound) = round_trip(LIBOPUS, spec(spec_text), frames);
        // After the first packets, with the delay that the encoder states.
        let delay = OpusPacketEncoder::DELAY.as_usize();
        let (mut noise, mut signal) = (0.0, 0.0);
        for (at, sample) in sound.iter().enumerate().skip(9_600) {
            let wanted = tone(at - delay);
            noise += f64::from(sample - wanted).powi(2);
            signal += f64::from(wanted).powi(2);
        }
        let snr = 10.0 * (signal / noise).log10();
        assert!(snr > 25.0, "{spec_text}, {frames} frames: {snr:.1} dB");
        let bits = lengths.iter().sum::<usize>() * 8;
        assert!((90_000..105_000).contains(&bits), "{spec_text}, {frames} frames: {bits} bits");
    }
}

#[test]
fn libopus_has_every_setting() {
    if !has_libopus() {
        return;
    }
    let constant = OpusConfig { rate_control: RateControl::Cbr, complexity: 3, ..LIBOPUS };
    let (lengths, _) = round_trip(constant, SampleSpec::DEFAULT, 960);
    assert!(lengths.iter().all(|length| *length == 240), "{lengths:?}");
    let out_of_range = OpusConfig { bitrate: 1, complexity: 200, ..LIBOPUS };
    assert!(round_trip(out_of_range, SampleSpec::DEFAULT, 960).0.iter().sum::<usize>() < 1_500);
    // It is another encoder than the built-in one.
    let builtin = OpusConfig { library: OpusLibrary::Builtin, ..LIBOPUS };
    let lengths = [LIBOPUS, builtin].map(|one| round_trip(one, SampleSpec::DEFAULT, 960).0);
    assert_ne!(lengths[0], lengths[1]);
}

#[test]
fn libopus_encodes_any_floats_and_refuses_other_blocks() {
    if !has_libopus() {
        return;
    }
    let mut encoder = make_opus_encoder(LIBOPUS, SampleSpec::DEFAULT, Frames(960)).unwrap();
    let special = [f32::NAN, f32::INFINITY, f32::MIN, f32::MIN_POSITIVE, 1e-45, 1.0, -1.0, 0.0];
    let mut rng = aulos_core::Rng::new(0x0b05);
    let SampleSpec { rate, layout, .. } = SampleSpec::DEFAULT;
    let mut block = Block::with_capacity(rate, layout, 1_920);
    block.resize(Frames(960));
    for _ in 0..200 {
        let run = 1 + rng.below(50);
        let values: Vec<f32> = (0..run)
            .map(|_| match rng.below(2) {
                0 => special[rng.below(special.len())],
                _ => f32::from_bits(u32::try_from(rng.next_u64() >> 32).unwrap()),
            })
            .collect();
        for (sample, value) in block.samples_mut().iter_mut().zip(values.iter().cycle()) {
            *sample = *value;
        }
        let mut packet = Vec::new();
        encoder.encode(&block, &mut packet).unwrap();
        assert!((1..=1_275).contains(&packet.len()), "{}", packet.len());
    }
    block.resize(Frames(480));
    assert_eq!(encoder.encode(&block, &mut Vec::new()), Err(EncodeError::Shape));
    for (text, block) in [("48000:16:2", 100), ("44100:16:2", 960), ("48000:16:6", 960)] {
        assert!(make_opus_encoder(LIBOPUS, spec(text), Frames(block)).is_err(), "{text} {block}");
    }
}

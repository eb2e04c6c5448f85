use aulos_engine::encode::Encoder as _;

use super::*;

fn rms(samples: &[f32]) -> f64 {
    (samples.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / samples.len() as f64).sqrt()
}

/// A sine of 1 kHz, encoded and decoded.
fn round_trip(config: Mp3Config, spec: SampleSpec) -> (Frames, Vec<f32>) {
    let mut encoder = make_mp3_encoder(config, spec, Frames(960)).unwrap();
    let step = core::f32::consts::TAU * 1_000.0 / spec.rate.hz() as f32;
    let channels = spec.layout.channels();
    let samples: Vec<f32> = (0..spec.rate.hz() as usize * 2 * channels)
        .map(|at| 0.25 * ((at / channels) as f32 * step).sin())
        .collect();
    let mut out = Vec::new();
    for block in samples.chunks(960 * channels) {
        encoder.encode_samples(block, &mut out).unwrap();
    }
    let mut decoder = rusty_mp3::Mp3Decoder::new();
    decoder.push(&out);
    decoder.flush();
    let mut decoded = Vec::new();
    while let Ok(frame) = decoder.next_frame() {
        assert_eq!(frame.samples.len() % channels, 0);
        decoded.extend(frame.samples);
    }
    assert!(samples.len() - decoded.len() < 4 * 1_152 * channels, "{}", decoded.len());
    (encoder.delay(), decoded)
}

#[test]
fn lame_keeps_the_level_at_every_bit_rate() {
    let lame = |kbps: u32| Mp3Config { bitrate: kbps * 1_000, library: Mp3Library::Lame };
    if check_library(lame(128)).is_err() {
        println!("skipped: no libmp3lame0");
        return;
    }
    for spec in ["48000:16:2", "44100:16:2", "32000:16:1", "24000:16:2", "22050:16:1"] {
        for kbps in [64, 128, 160, 192, 224, 256, 320] {
            let (delay, decoded) = round_trip(lame(kbps), spec.parse().unwrap());
            assert_eq!(delay, Frames(576), "{spec} {kbps}");
            let level = 20.0 * (rms(&decoded[24_000..]) / (0.25 / 2f64.sqrt())).log10();
            assert!(level.abs() < 0.05, "{spec} {kbps}k: {level:.3} dB");
        }
    }
}

#[test]
fn the_builtin_encoder_keeps_the_level() {
    for spec in ["48000:16:2", "44100:16:1", "24000:16:2"] {
        let (_, decoded) = round_trip(Mp3Config::default(), spec.parse().unwrap());
        let level = 20.0 * (rms(&decoded[24_000..]) / (0.25 / 2f64.sqrt())).log10();
        assert!(level.abs() < 0.05, "{spec}: {level:.3} dB");
    }
}

#[test]
fn lame_makes_whole_frames_of_any_floats() {
    let lame = |kbps: u32| Mp3Config { bitrate: kbps * 1_000, library: Mp3Library::Lame };
    if check_library(lame(128)).is_err() {
        println!("skipped: no libmp3lame0");
        return;
    }
    let special = [f32::NAN, f32::INFINITY, f32::MIN, f32::MIN_POSITIVE, 1e-45, 1.0, -1.0, 0.0];
    let mut rng = aulos_core::Rng::new(0x3a3e);
    for spec in ["48000:16:2", "44100:16:1", "22050:16:2", "16000:16:1"] {
        let spec: SampleSpec = spec.parse().unwrap();
        for kbps in [32, 160, 320] {
            let mut encoder = make_mp3_encoder(lame(kbps), spec, Frames(960)).unwrap();
            let mut out = Vec::new();
            for _ in 0..100 {
                // Runs of one to fifty values: noise, constants, clicks.
                let length = 1 + rng.below(50);
                let run: Vec<f32> = (0..length)
                    .map(|_| match rng.below(3) {
                        0 => special[rng.below(special.len())],
                        1 => f32::from_bits(u32::try_from(rng.next_u64() >> 32).unwrap()),
                        _ => rng.below(2_000) as f32 / 1_000.0 - 1.0,
                    })
                    .collect();
                let samples = run.repeat(1 + 4_000 / length);
                let even = samples.len() / 2 * 2;
                encoder.encode_samples(&samples[..even], &mut out).unwrap();
            }
            assert!(encoder.frame_count() > 100 && encoder.clipped() > 0, "{spec} {kbps}");
        }
    }
}

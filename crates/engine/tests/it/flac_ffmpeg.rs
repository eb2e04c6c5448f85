//! FLAC output decoded by ffmpeg: bit-exact.

use aulos_core::{Frames, SampleSpec};
use aulos_dsp::convert;
use aulos_engine::encode::{Encoder, FlacEncoder};

use crate::judge::{self, Noise, encode, ffmpeg};

const FRAMES: usize = 48_000;

fn sine(channels: usize) -> Vec<f32> {
    (0..FRAMES * channels)
        .map(|n| (0.9 * ((n / channels) as f64 * 0.1309 + (n % channels) as f64).sin()) as f32)
        .collect()
}

fn noise(channels: usize) -> Vec<f32> {
    let mut noise = Noise(7);
    (0..FRAMES * channels).map(|_| noise.next()).collect()
}

/// Full scale both ways and back, left against right: the largest difference possible.
fn square(channels: usize) -> Vec<f32> {
    (0..FRAMES * channels)
        .map(|n| if (n / channels / 37 + n % channels).is_multiple_of(2) { 1.0 } else { -1.0 })
        .collect()
}

fn silence(channels: usize) -> Vec<f32> {
    vec![0.0; FRAMES * channels]
}

/// Audio, then silence, then one sample.
fn mixed(channels: usize) -> Vec<f32> {
    let mut sound = sine(channels);
    sound[10_000..40_000].fill(0.0);
    sound[25_000] = -1.0;
    sound
}

fn flac(spec: &str, frames: usize, level: u8) -> FlacEncoder {
    let spec: SampleSpec = spec.parse().unwrap();
    FlacEncoder::new(spec, Frames::from(frames), level).unwrap()
}

/// The expected output of a decoder, as packed little-endian samples.
fn expected(spec: SampleSpec, samples: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; samples.len() * spec.format.bytes()];
    convert::encode(spec.format, samples, &mut bytes);
    bytes
}

/// Samples that a source of this format can send: they need no dither.
fn integers(spec: SampleSpec, samples: &[f32]) -> Vec<f32> {
    let mut integers = vec![0.0; samples.len()];
    convert::decode(spec.format, &expected(spec, samples), &mut integers);
    integers
}

fn decode(name: &str, spec: SampleSpec, stream: &[u8]) -> Vec<u8> {
    let format = if spec.format.bits() == 16 { "s16le" } else { "s24le" };
    let arguments = format!(
        "-err_detect crccheck+explode -f flac -i {{in}} -f {format} -c:a pcm_{format} {{out}}"
    );
    ffmpeg(name, stream, &arguments)
}

#[test]
fn sixteen_and_twenty_four_bits_arrive_exactly() {
    type Signal = fn(usize) -> Vec<f32>;
    let signals: [(&str, Signal); 5] = [
        ("sine", sine),
        ("noise", noise),
        ("square", square),
        ("silence", silence),
        ("mixed", mixed),
    ];
    for spec in ["48000:16:2", "48000:s24:2", "44100:16:1", "96000:s24:6"] {
        for (name, signal) in signals {
            let mut flac = flac(spec, 960, FlacEncoder::DEFAULT_LEVEL);
            let spec = flac.spec();
            let samples = integers(spec, &signal(spec.layout.channels()));
            let mut stream = flac.header().to_vec();
            stream.extend(encode(&mut flac, 960, &samples).concat());
            let heard = decode(&format!("flac-{name}-{}", spec.rate.hz()), spec, &stream);
            assert!(heard == expected(spec, &samples), "{name} {spec}");
        }
    }
}

#[test]
fn every_level_and_block_length_arrives_exactly() {
    for (level, frames) in (0..=8).zip([16, 441, 480, 882, 960, 1_152, 1_920, 2_880, 4_608]) {
        let mut flac = flac("48000:s24:2", frames, level);
        let samples = integers(flac.spec(), &mixed(2));
        let mut stream = flac.header().to_vec();
        stream.extend(encode(&mut flac, frames, &samples).concat());
        let heard = decode("flac-levels", flac.spec(), &stream);
        let expected = expected(flac.spec(), &samples);
        assert!(heard[..expected.len()] == expected, "level {level}, {frames} frames");
    }
}

#[test]
fn a_decoder_can_start_at_any_frame() {
    let mut flac = flac("48000:16:2", 960, FlacEncoder::DEFAULT_LEVEL);
    let samples = integers(flac.spec(), &sine(2));
    let packets = encode(&mut flac, 960, &samples);
    for first in [1, 17, 49] {
        let mut stream = flac.header().to_vec();
        stream.extend(packets[first..].concat());
        let heard = decode("flac-join", flac.spec(), &stream);
        assert!(heard == expected(flac.spec(), &samples)[first * 960 * 4..], "from {first}");
    }
}

#[test]
fn frame_numbers_go_on_beyond_one_byte() {
    // 20 ms frames for a minute: numbers of one, two and three bytes.
    let mut flac = flac("8000:16:1", 160, 0);
    let samples: Vec<f32> = (0..160 * 3_000).map(|n| (n as f32 * 0.01).sin()).collect();
    let samples = integers(flac.spec(), &samples);
    let mut stream = flac.header().to_vec();
    stream.extend(encode(&mut flac, 160, &samples).concat());
    assert!(decode("flac-long", flac.spec(), &stream) == expected(flac.spec(), &samples));
}

#[test]
fn music_shrinks() {
    let samples = judge::music(5.0);
    for level in [0, 2, 5, 8] {
        let mut flac = flac("48000:16:2", 960, level);
        let packed: usize = encode(&mut flac, 960, &samples).iter().map(Vec::len).sum();
        let ratio = packed as f64 / (samples.len() * 2) as f64;
        println!("level {level}: {:.1} %", 100.0 * ratio);
        assert!(ratio < 0.75, "level {level}: {ratio}");
    }
}

/// The amplitude of the left channel at this frequency, in 16-bit steps.
fn amplitude(bytes: &[u8], hz: usize) -> f64 {
    let (frames, _) = bytes.as_chunks::<4>();
    let (mut sine, mut cosine) = (0.0, 0.0);
    for (n, frame) in frames.iter().enumerate() {
        let sample = f64::from(i16::from_le_bytes([frame[0], frame[1]]));
        let angle = std::f64::consts::TAU * (n * hz % frames.len()) as f64 / frames.len() as f64;
        sine += sample * angle.sin();
        cosine += sample * angle.cos();
    }
    sine.hypot(cosine) * 2.0 / frames.len() as f64
}

#[test]
fn a_tone_of_two_steps_arrives_without_harmonics() {
    let mut flac = flac("48000:16:2", 960, FlacEncoder::DEFAULT_LEVEL);
    let height = 10f64.powf(-84.0 / 20.0);
    let step = std::f64::consts::TAU * 997.0 / 48_000.0;
    let samples: Vec<f32> =
        (0..2 * FRAMES).map(|n| (height * (step * (n / 2) as f64).sin()) as f32).collect();
    let mut stream = flac.header().to_vec();
    stream.extend(encode(&mut flac, 960, &samples).concat());
    let heard = decode("flac-dither", flac.spec(), &stream);
    let tone = amplitude(&heard, 997);
    assert!((tone - height * 32_768.0).abs() < 0.03, "{tone} steps");
    for harmonic in 2..=24 {
        let db = 20.0 * (amplitude(&heard, harmonic * 997) / tone).log10();
        assert!(db < -40.0, "harmonic {harmonic}: {db:.1} dB");
    }
}

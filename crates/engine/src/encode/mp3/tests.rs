use aulos_core::{ChannelLayout, SampleFormat, SampleRate};
use proptest::prelude::*;
use rusty_mp3::{Error, Mp3Decoder};

use super::*;
use crate::encode::MP3_KBPS;

fn spec(hz: u32, channels: u8) -> SampleSpec {
    let layout = ChannelLayout::new(channels.into()).unwrap();
    SampleSpec { rate: SampleRate::new(hz).unwrap(), format: SampleFormat::S16Le, layout }
}

fn config(kbps: u32) -> Mp3Config {
    Mp3Config { bitrate: kbps * 1_000, ..Mp3Config::default() }
}

fn encoder(hz: u32, channels: u8, kbps: u32) -> Mp3Encoder {
    Mp3Encoder::new(spec(hz, channels), Frames(960), config(kbps)).unwrap()
}

/// Splits a stream into its frames; each must be one of `shape`.
fn frames(shape: Mp3FrameShape, mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(begin) = stream.first_chunk() {
        let (frame, rest) = stream.split_at(shape.frame_bytes(*begin).unwrap());
        all.push(frame.to_vec());
        stream = rest;
    }
    assert!(stream.is_empty());
    all
}

#[test]
fn frames_have_the_length_of_their_bit_rate_on_average() {
    for hz in [16_000, 22_050, 24_000, 32_000, 44_100, 48_000] {
        for (channels, kbps) in [(1, 32), (2, 128), (2, 320)] {
            let mut encoder = encoder(hz, channels, kbps);
            let shape = encoder.shape();
            assert_eq!(shape.kbps, if hz < 32_000 { kbps.min(160) } else { kbps });
            let samples = vec![0.1; hz as usize * usize::from(channels)];
            let mut out = Vec::new();
            encoder.encode_samples(&samples, &mut out).unwrap();
            let all = frames(shape, &out);
            assert_eq!(all.len() as u64, u64::from(hz) / shape.frames().0);
            let seconds = all.len() as f64 * shape.frames().0 as f64 / f64::from(hz);
            let bits = out.len() as f64 * 8.0 / seconds;
            let wanted = f64::from(shape.kbps) * 1_000.0;
            // One byte less at most: padding follows as soon as it is owed.
            assert!((bits - wanted).abs() < 16.0 / seconds, "{hz} {kbps}: {bits}");
        }
    }
}

#[test]
fn a_sine_has_its_level_and_its_delay() {
    let mut encoder = encoder(48_000, 2, 192);
    let wave = |at: usize| 0.25 * (at as f32 * 0.0625).sin();
    let samples: Vec<f32> = (0..96_000).flat_map(|at| [wave(at), -wave(at)]).collect();
    let mut out = Vec::new();
    encoder.encode_samples(&samples, &mut out).unwrap();
    let mut decoder = Mp3Decoder::new();
    decoder.push(&out);
    decoder.flush();
    let mut decoded = Vec::new();
    loop {
        match decoder.next_frame() {
            Ok(frame) => decoded.extend(frame.samples),
            Err(Error::Eof | Error::Again) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    let delay = encoder.delay().as_usize() + 529;
    let late = &decoded[2 * delay..];
    let error: f64 =
        (24_000..48_000).map(|at| f64::from(late[2 * at] - wave(at)).powi(2) / 24_000.0).sum();
    // 40 dB below the sine: one sample more or less of delay would be 24 dB below it.
    assert!(error.sqrt() < 0.25 / 2f64.sqrt() / 100.0, "{error}");
}

#[test]
fn what_mp3_does_not_have_is_refused() {
    let of = |hz, channels| Mp3Encoder::new(spec(hz, channels), Frames(960), config(128)).err();
    assert_eq!(of(96_000, 2), Some(UnsupportedFormat::Rate(Codec::Mp3)));
    assert_eq!(of(11_025, 2), Some(UnsupportedFormat::Rate(Codec::Mp3)));
    assert_eq!(of(48_000, 3), Some(UnsupportedFormat::Channels(Codec::Mp3)));
    let text = UnsupportedFormat::Rate(Codec::Mp3).to_string();
    assert!(text.contains("44100 or 48000 Hz"), "{text}");
    let lame = Mp3Config { library: Mp3Library::Lame, ..config(128) };
    let error = Mp3Encoder::new(spec(48_000, 2), Frames(960), lame).unwrap_err();
    assert!(error.to_string().contains("libmp3lame0"), "{error}");
}

/// A library that puts out what it is told to.
struct Scripted(Vec<u8>);

impl Mp3FrameEncoder for Scripted {
    fn encode(&mut self, _: &[Vec<f32>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn delay(&self) -> Frames {
        Frames(0)
    }
}

#[test]
fn a_library_that_puts_out_something_else_is_an_error_and_grows_nothing() {
    let shape = Mp3FrameShape::new(spec(48_000, 2), config(128)).unwrap();
    let cases = [
        vec![0; 100],
        // Another version, one channel, a part of a frame without an end.
        vec![0xff, 0xf3, 0x94, 0x04],
        vec![0xff, 0xfb, 0x94, 0xc4],
        // 112 kbit/s, 32 kHz.
        vec![0xff, 0xfb, 0x84, 0x04],
        vec![0xff, 0xfb, 0x98, 0x04],
    ];
    for bytes in cases {
        let library = Box::new(Scripted(bytes));
        let mut encoder = Mp3Encoder::with_library(spec(48_000, 2), Frames(960), shape, library);
        let mut out = Vec::new();
        assert_eq!(encoder.encode_samples(&[0.0; 2 * 1_152], &mut out), Err(EncodeError::Codec));
        assert!(out.is_empty() && encoder.encoded.is_empty());
    }
    // Late by a part of a frame is fine, and comes out whole.
    let frame = [&[0xff, 0xfb, 0x94, 0x04][..], &[7; 380]].concat();
    let library = Box::new(Scripted(frame[..192].to_vec()));
    let mut encoder = Mp3Encoder::with_library(spec(48_000, 2), Frames(960), shape, library);
    let mut out = Vec::new();
    encoder.encode_samples(&[0.0; 2 * 1_152], &mut out).unwrap();
    assert!(out.is_empty());
    encoder.library = Box::new(Scripted(frame[192..].to_vec()));
    encoder.encode_samples(&[0.0; 2 * 1_152], &mut out).unwrap();
    assert_eq!(out, frame);
}

/// Any bit pattern, and the ones that encoders stumble over.
fn samples() -> impl Strategy<Value = Vec<f32>> {
    let special = prop::sample::select(vec![
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-40,
        1.0,
        -1.0,
        0.0,
        -0.0,
    ]);
    let any = any::<u32>().prop_map(f32::from_bits);
    let sound = -1.0f32..1.0;
    let one = prop_oneof![2 => special, 1 => any, 2 => sound];
    // Runs of a few values, repeated: noise, constants, clicks and silences.
    let run = (prop::collection::vec(one, 1..40), 1..80usize)
        .prop_map(|(values, times)| values.repeat(times));
    prop::collection::vec(run, 1..12).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_floats_become_whole_frames(
        samples in samples(),
        hz in prop::sample::select(vec![16_000u32, 22_050, 24_000, 32_000, 44_100, 48_000]),
        channels in 1..3u8,
        kbps in prop::sample::select(MP3_KBPS.to_vec()),
    ) {
        let mut encoder = encoder(hz, channels, kbps);
        let mut out = Vec::new();
        for part in samples.chunks(997 * usize::from(channels)) {
            encoder.encode_samples(part, &mut out).unwrap();
        }
        let count = frames(encoder.shape(), &out).len();
        prop_assert!(encoder.encoded.is_empty());
        prop_assert!(count <= samples.len() / encoder.shape().frames().as_usize());
        // Nothing is left behind that spoils what follows.
        let before = out.len();
        encoder.encode_samples(&[0.0; 4 * 1_152], &mut out).unwrap();
        prop_assert!(out.len() > before);
    }
}

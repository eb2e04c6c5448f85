use aulos_core::{ChannelLayout, SampleFormat, SampleRate};
use proptest::prelude::*;
use syom::{DecodeOptions, decode_with};

use super::*;
use crate::codec_guard::{CodecLibrary, fault};

pub(super) fn spec(hz: u32, channels: u8) -> SampleSpec {
    let layout = ChannelLayout::new(channels.into()).unwrap();
    SampleSpec { rate: SampleRate::new(hz).unwrap(), format: SampleFormat::S16Le, layout }
}

fn encoder(hz: u32, channels: u8, kbps: u32) -> AacEncoder {
    let config = AacConfig { bitrate: kbps * 1_000 };
    AacEncoder::new(spec(hz, channels), Frames(960), config).unwrap()
}

/// Splits a stream into its ADTS frames by the lengths in their headers.
fn frames(format: AacFormat, mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(header) = stream.first_chunk::<ADTS_HEADER_BYTES>() {
        let length = usize::from(header[3] & 3) << 11
            | usize::from(header[4]) << 3
            | usize::from(header[5]) >> 5;
        assert_eq!(*header, format.adts_header(length - ADTS_HEADER_BYTES));
        let (frame, rest) = stream.split_at(length);
        all.push(frame.to_vec());
        stream = rest;
    }
    assert!(stream.is_empty());
    all
}

#[test]
fn headers_are_those_of_the_standard() {
    let stereo = AacFormat::new(spec(48_000, 2)).unwrap();
    assert_eq!(stereo.audio_specific_config(), [0x11, 0x90]);
    assert_eq!(stereo.adts_header(400), [0xff, 0xf1, 0x4c, 0x80, 0x32, 0xff, 0xfc]);
    let mono = AacFormat::new(spec(44_100, 1)).unwrap();
    assert_eq!(mono.audio_specific_config(), [0x12, 0x08]);
    assert_eq!(mono.adts_header(1_529), [0xff, 0xf1, 0x50, 0x40, 0xc0, 0x1f, 0xfc]);
}

/// What has the content of several frames: noise whose colour and level change.
pub(super) fn noise(frames: usize, channels: usize) -> Vec<f32> {
    let (mut state, mut low) = (1_u32, 0.0_f32);
    let mut next = |at: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let white = state as f32 / u32::MAX as f32 - 0.5;
        low += 0.1 * (white - low);
        let level = 0.3 + 0.25 * (at as f32 * 0.000_3).sin();
        level * (low + 0.2 * white)
    };
    (0..frames * channels).map(|at| next(at / channels)).collect()
}

#[test]
fn the_bit_rate_is_kept_at_every_sample_rate() {
    for hz in [8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000] {
        for (channels, kbps) in [(1, 32), (2, 64), (2, 128), (2, 320)] {
            let mut encoder = encoder(hz, channels, kbps);
            let mut out = Vec::new();
            let seconds = 11;
            let samples = noise((hz * seconds) as usize, channels.into());
            encoder.encode_samples(&samples, &mut out).unwrap();
            let all = frames(encoder.frames.format(), &out);
            assert_eq!(all.len(), (hz * seconds / 1_024) as usize);
            let bits = out.len() as f64 * 8.0 / f64::from(seconds);
            let wanted = f64::from(AacConfig { bitrate: kbps * 1_000 }.bitrate_at(encoder.spec));
            // Headers of ADTS, 56 bits of each frame, come on top.
            let headers = f64::from(hz) / 1_024.0 * 56.0;
            let off = (bits - headers) / wanted - 1.0;
            assert!((-0.05..0.03).contains(&off), "{hz} Hz {channels} {kbps}k: {off:.3}");
        }
    }
}

#[test]
fn a_sine_has_its_level_and_its_delay() {
    let mut encoder = encoder(48_000, 2, 128);
    let wave = |at: usize| 0.25 * (at as f32 * 0.0625).sin();
    let samples: Vec<f32> = (0..96_000).flat_map(|at| [wave(at), -wave(at)]).collect();
    let mut out = Vec::new();
    encoder.encode_samples(&samples, &mut out).unwrap();
    let decoded = decode_with(&out, &DecodeOptions::audio()).unwrap();
    let late = &decoded.channels[0][AacFrameEncoder::DELAY.as_usize()..];
    let error: f64 =
        (24_000..48_000).map(|at| f64::from(late[at] - wave(at)).powi(2) / 24_000.0).sum();
    // 40 dB below the sine: one sample more or less of delay would be 24 dB below it.
    assert!(error.sqrt() < 0.25 / 2f64.sqrt() / 100.0, "{error}");
}

#[test]
fn what_aac_does_not_have_is_refused() {
    let of =
        |hz, channels| AacEncoder::new(spec(hz, channels), Frames(960), AacConfig::default()).err();
    assert_eq!(of(50_000, 2), Some(UnsupportedFormat::Rate(Codec::Aac)));
    assert_eq!(of(192_000, 2), Some(UnsupportedFormat::Rate(Codec::Aac)));
    assert_eq!(of(48_000, 3), Some(UnsupportedFormat::Channels(Codec::Aac)));
    let mut frames = AacFrameEncoder::new(spec(48_000, 2), AacConfig::default()).unwrap();
    let mut out = vec![1];
    assert_eq!(frames.encode(&[0.0; 2 * 1_023], &mut out), Err(EncodeError::Shape));
    assert_eq!(out, [1]);
    // A bit rate that 8 kHz does not have.
    let config = AacConfig { bitrate: 320_000 };
    assert_eq!(config.bitrate_at(spec(8_000, 1)), 48_000);
    assert!(AacFrameEncoder::new(spec(8_000, 1), config).is_ok());
}

#[test]
#[cfg(debug_assertions)]
fn a_panic_of_the_library_costs_no_frame() {
    let mut encoder = encoder(48_000, 2, 128);
    let mut out = Vec::new();
    encoder.encode_samples(&noise(10 * 1_024, 2), &mut out).unwrap();
    fault::plan(CodecLibrary::Syom, 0);
    encoder.encode_samples(&noise(10 * 1_024, 2), &mut out).unwrap();
    assert_eq!(encoder.panics(), 1);
    assert_eq!(frames(encoder.frames.format(), &out).len(), 20);
    // After an error of the library the next frame is encoded all the same.
    let mut library = BuiltinLibrary::new(encoder.frames.format(), 128_000).unwrap();
    let before = out.len();
    let beyond_full_scale = [vec![2.0; 1_024], vec![0.0; 1_024]];
    assert_eq!(library.encode(&beyond_full_scale, &mut out), Err(EncodeError::Codec));
    assert_eq!(out.len(), before);
    library.encode(&[vec![0.0; 1_024], vec![0.0; 1_024]], &mut out).unwrap();
    assert!(out.len() > before);
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
    let run = (prop::collection::vec(one, 1..40), 1..80usize)
        .prop_map(|(values, times)| values.repeat(times));
    prop::collection::vec(run, 1..12).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_floats_become_frames_that_decode(
        samples in samples(),
        hz in prop::sample::select(vec![8_000u32, 16_000, 24_000, 44_100, 48_000, 96_000]),
        channels in 1..3u8,
        kbps in 32..513u32,
    ) {
        let whole = samples.len() / usize::from(channels);
        let mut encoder = encoder(hz, channels, kbps);
        let mut out = Vec::new();
        for part in samples.chunks(997 * usize::from(channels)) {
            let part = &part[..part.len() / usize::from(channels) * usize::from(channels)];
            encoder.encode_samples(part, &mut out).unwrap();
        }
        prop_assert_eq!(frames(encoder.frames.format(), &out).len(), whole / 1_024);
        encoder.encode_samples(&vec![0.0; 4 * 1_024 * usize::from(channels)], &mut out).unwrap();
        let decoded = decode_with(&out, &DecodeOptions::audio()).unwrap();
        prop_assert!(decoded.channels.iter().flatten().all(|sample| sample.abs() < 4.0));
        prop_assert_eq!(encoder.panics(), 0);
    }
}

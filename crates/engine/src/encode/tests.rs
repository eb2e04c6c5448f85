mod settings;

use aulos_core::{Block, ChannelLayout, SampleFormat, SampleRate};

use super::*;
use crate::codec_guard::{CodecLibrary, fault};

fn spec(text: &str) -> SampleSpec {
    text.parse().unwrap()
}

fn block(spec: SampleSpec, frames: u64) -> Block {
    let samples = usize::try_from(frames).unwrap() * spec.layout.channels();
    let mut block = Block::with_capacity(spec.rate, spec.layout, samples);
    block.resize(Frames(frames));
    block
}

#[test]
fn pcm_is_the_samples_in_the_wire_s_format() {
    let mut pcm = PcmEncoder::new(spec("48000:24:2"));
    let mut block = block(pcm.spec(), 2);
    block.samples_mut().copy_from_slice(&[-1.0, 0.5, 1.5, 0.0]);
    let mut out = vec![7];
    pcm.encode(&block, &mut out).unwrap();
    let expected = [0, 0, 0x80, 0xFF, 0, 0, 0x40, 0, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0, 0];
    assert_eq!(out[0], 7);
    assert_eq!(out[1..], expected);
    assert_eq!(pcm.clipped(), 1);
}

/// An encoder, a reader of one of its samples, the bytes of a sample, and full scale.
type Case = (Box<dyn Encoder>, fn(&[u8]) -> i32, usize, f32);

#[test]
fn between_two_integers_samples_are_dithered_and_integers_are_not() {
    let spec = spec("48000:16:2");
    let wire = |format| RtpPayloadEncoder::new(format, spec, Frames(960), spec.rate, 2);
    let cases: [Case; 3] = [
        (Box::new(PcmEncoder::new(spec)), |x| i16::from_le_bytes([x[0], x[1]]).into(), 2, 32_768.0),
        (
            Box::new(wire(RtpPayloadCodec::L16)),
            |x| i16::from_be_bytes([x[0], x[1]]).into(),
            2,
            32_768.0,
        ),
        (
            Box::new(wire(RtpPayloadCodec::L24)),
            |x| i32::from_be_bytes([x[0], x[1], x[2], 0]) >> 8,
            3,
            8_388_608.0,
        ),
    ];
    for (mut encoder, integer, bytes, full) in cases {
        let mut sent = |steps: f32| {
            let mut block = block(spec, 960);
            block.samples_mut().fill(steps / full);
            let mut out = Vec::new();
            encoder.encode(&block, &mut out).unwrap();
            let integers: Vec<i32> = out.chunks(bytes).map(integer).collect();
            assert_eq!(integers.len(), 1_920);
            integers
        };
        assert!(sent(5.0).iter().all(|x| *x == 5));
        // Rounding alone would make all of them 5.
        let sum: i32 = sent(5.3).iter().sum();
        assert!((f64::from(sum) / 1_920.0 - 5.3).abs() < 0.05, "{sum}");
        assert!(sent(0.0).iter().all(|x| *x == 0));
    }
}

#[test]
fn the_flac_header_describes_the_stream() {
    let flac = FlacEncoder::new(spec("44100:24:2"), Frames(882), 2).unwrap();
    let header = flac.header();
    assert_eq!(header.len(), 42);
    assert_eq!(header[..8], *b"fLaC\x80\0\0\x22");
    assert_eq!(header[8..12], [0x03, 0x72, 0x03, 0x72]);
    // 44,100 = 0x0AC44, two channels, 24 bits.
    assert_eq!(header[18..26], [0x0A, 0xC4, 0x43, 0x70, 0, 0, 0, 0]);
}

#[test]
fn flac_frames_are_numbered_one_by_one() {
    let mut flac = FlacEncoder::new(spec("48000:16:2"), Frames(960), 2).unwrap();
    let mut out = Vec::new();
    // A client that joins a running station starts with any frame number, so the first one may be
    // any, too: the encoder's warm-up used those before it.
    flac.encode(&block(flac.spec(), 960), &mut out).unwrap();
    for number in out[4] + 1..out[4] + 4 {
        out.clear();
        flac.encode(&block(flac.spec(), 960), &mut out).unwrap();
        // Sync, fixed block size; the number follows four bytes (RFC 9639, section 9.1).
        assert_eq!(out[..2], [0xFF, 0xF8]);
        assert_eq!(out[4], number);
    }
}

#[test]
fn a_file_of_flac_begins_with_frame_0_and_ends_with_a_short_one() {
    let mut flac = FlacEncoder::for_file(spec("48000:16:2"), Frames(960), 5).unwrap();
    let mut out = Vec::new();
    flac.encode(&block(flac.spec(), 960), &mut out).unwrap();
    assert_eq!((&out[..2], out[4]), (&[0xFF, 0xF8][..], 0));
    for (number, frames) in [(1, 1), (2, 15), (3, 16), (4, 959), (5, 960)] {
        out.clear();
        flac.encode_last(&block(flac.spec(), frames), &mut out).unwrap();
        assert_eq!(out[4], number);
    }
    out.clear();
    flac.encode(&block(flac.spec(), 960), &mut out).unwrap();
    assert_eq!(out[4], 6);
    for frames in [0, 961] {
        let wrong = flac.encode_last(&block(flac.spec(), frames), &mut out);
        assert_eq!(wrong, Err(EncodeError::Shape));
    }
}

#[test]
fn a_block_of_another_shape_is_refused() {
    let default = SampleSpec::DEFAULT;
    for codec in [Codec::Pcm, Codec::Flac, Codec::Opus, Codec::Mp3] {
        let mut encoder = make_encoder(codec, default, Frames(960)).unwrap();
        assert_eq!((encoder.codec(), encoder.spec()), (codec, default));
        let mut out = Vec::new();
        let mono = SampleSpec { layout: ChannelLayout::MONO, ..default };
        let slow = SampleSpec { rate: SampleRate::HZ_44100, ..default };
        for wrong in [block(mono, 960), block(slow, 960)] {
            assert_eq!(encoder.encode(&wrong, &mut out), Err(EncodeError::Shape));
        }
        if codec != Codec::Pcm {
            let short = block(default, 480);
            assert_eq!(encoder.encode(&short, &mut out), Err(EncodeError::Shape));
        }
        assert!(out.is_empty());
        // A frame of MP3 is longer than a block.
        for _ in 0..2 {
            encoder.encode(&block(default, 960), &mut out).unwrap();
        }
        assert!(!out.is_empty());
    }
}

#[test]
fn unsupported_formats_are_reported_at_creation() {
    let refused = |codec, text: &str, frames| make_encoder(codec, spec(text), Frames(frames)).err();
    let (flac, opus) = (Codec::Flac, Codec::Opus);
    assert_eq!(refused(flac, "48000:32:2", 960), Some(UnsupportedFormat::Format(flac)));
    assert_eq!(refused(flac, "48000:f32:2", 960), Some(UnsupportedFormat::Format(flac)));
    assert_eq!(refused(flac, "48000:16:9", 960), Some(UnsupportedFormat::Channels(flac)));
    assert_eq!(refused(flac, "48000:16:2", 15), Some(UnsupportedFormat::BlockLength(flac)));
    assert_eq!(refused(flac, "48000:16:2", 65_536), Some(UnsupportedFormat::BlockLength(flac)));
    assert_eq!(refused(flac, "705607:16:2", 960), Some(UnsupportedFormat::Rate(flac)));
    assert_eq!(refused(flac, "2822400:16:2", 960), Some(UnsupportedFormat::Rate(flac)));
    assert_eq!(refused(opus, "44100:16:2", 882), Some(UnsupportedFormat::Rate(opus)));
    assert_eq!(refused(opus, "48000:16:3", 960), Some(UnsupportedFormat::Channels(opus)));
    assert_eq!(refused(opus, "48000:16:2", 1_000), Some(UnsupportedFormat::BlockLength(opus)));
    for (codec, frames) in [(flac, 16), (flac, 65_535), (opus, 480), (opus, 2_880)] {
        assert_eq!(refused(codec, "48000:24:1", frames), None);
    }
    assert_eq!(refused(flac, "192000:s24:8", 3_840), None);
}

#[test]
fn no_sample_value_stops_an_encoder() {
    let spec = SampleSpec { format: SampleFormat::S16Le, ..SampleSpec::DEFAULT };
    for codec in [Codec::Pcm, Codec::Flac, Codec::Opus] {
        let mut encoder = make_encoder(codec, spec, Frames(960)).unwrap();
        let mut block = block(spec, 960);
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, f32::MIN_POSITIVE];
        for (sample, value) in block.samples_mut().iter_mut().zip(bad.into_iter().cycle()) {
            *sample = value;
        }
        for _ in 0..10 {
            let mut out = Vec::new();
            encoder.encode(&block, &mut out).unwrap();
            assert!(!out.is_empty(), "{codec}");
        }
    }
}

#[test]
fn no_signal_stops_opus_at_any_rate() {
    let mut noise = 1u32;
    for (frames, bitrate) in [480, 960, 1_920, 2_880]
        .into_iter()
        .flat_map(|frames| [0, 16_000, 64_000, 192_000, u32::MAX].map(|rate| (frames, rate)))
    {
        let mut opus =
            OpusPacketEncoder::new(SampleSpec::DEFAULT, Frames(frames), bitrate).unwrap();
        let mut block = block(opus.spec(), frames);
        for round in 0..24 {
            for (index, sample) in block.samples_mut().iter_mut().enumerate() {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let hiss = f32::from((noise >> 16).to_le_bytes()[0]) / 128.0 - 1.0;
                *sample = match round / 3 {
                    0 | 4 => 0.0,
                    1 => hiss,
                    2 => 8.0 * hiss,
                    3 => 1.0,
                    5 if index == 700 => -1.0,
                    6 => 1e-9 * hiss,
                    _ => {
                        if index / 96 % 2 == 0 {
                            1.0
                        } else {
                            -1.0
                        }
                    }
                };
            }
            let mut out = Vec::new();
            opus.encode(&block, &mut out).unwrap();
            // 64 kB/s is more than the highest rate; CELT configurations are 16 to 31.
            let most = usize::try_from(frames).unwrap() * 64_000 / 48_000 + 1_275;
            assert!((1..=most).contains(&out.len()), "{frames} {bitrate}: {}", out.len());
            let may_be_speech = bitrate <= 64_000;
            assert!(out[0] >> 3 >= 16 || may_be_speech, "{frames} {bitrate}: low delay only");
        }
    }
}

/// Encodes noise; the library panics at one block, if one is given.
fn encode_with_fault(
    config: CodecConfig,
    fault: Option<(CodecLibrary, u64)>,
) -> (Vec<Vec<u8>>, u64) {
    let mut encoder = make_encoder(config, spec("48000:16:2"), Frames(960)).unwrap();
    let mut rng = aulos_core::Rng::new(9);
    let mut packets = Vec::new();
    for number in 0..60 {
        let mut block = block(encoder.spec(), 960);
        for sample in block.samples_mut() {
            *sample = rng.below(20_000) as f32 / 32_768.0 - 0.3;
        }
        if let Some((library, _)) = fault.filter(|(_, at)| *at == number) {
            fault::plan(library, 0);
        }
        let mut out = Vec::new();
        encoder.encode(&block, &mut out).unwrap();
        packets.push(out);
    }
    (packets, encoder.panics())
}

#[test]
fn a_block_at_which_the_library_panics_is_encoded_by_a_new_one() {
    let cases = [
        (CodecConfig::Flac(FlacConfig { level: 5 }), CodecLibrary::FlacCodec),
        (CodecConfig::Opus(OpusConfig::default()), CodecLibrary::UnsafeLibopus),
        (CodecConfig::Mp3(Mp3Config::default()), CodecLibrary::RustyMp3),
    ];
    for (config, library) in cases {
        let (whole, none) = encode_with_fault(config, None);
        let (hit, panics) = encode_with_fault(config, Some((library, 30)));
        assert_eq!((none, panics), (0, 1), "{library:?}");
        assert_eq!(hit[..30], whole[..30], "{library:?}");
        // The new encoder does not know the blocks before, and FLAC's numbers begin again.
        assert!(
            hit.iter().zip(&whole).all(|(with, without)| with.is_empty() == without.is_empty())
        );
        if library == CodecLibrary::FlacCodec {
            assert_eq!((hit[30][4], hit[31][4]), (0, 1));
        }
    }
}

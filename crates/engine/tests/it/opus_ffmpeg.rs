//! The translation of libopus against libopus, in both directions, by ffmpeg with `-c:a libopus`.
//! docs/decisions/opus-codec.md quotes these figures.

use aulos_core::{Frames, SampleSpec};
use aulos_engine::encode::{Encoder, OpusConfig, OpusPacketEncoder, RateControl};
use aulos_opus::OpusDecoder;

use crate::judge::ogg::{self, opus_packets};
use crate::judge::{self, encode, ffmpeg, floats, music, snr, sweep};

fn opus(spec: &str, frames: usize, bitrate: u32) -> OpusPacketEncoder {
    let spec: SampleSpec = spec.parse().unwrap();
    OpusPacketEncoder::new(spec, Frames::from(frames), bitrate).unwrap()
}

/// Our packets, decoded by libopus; aligned with the input.
fn heard_by_libopus(
    name: &str,
    encoder: &mut OpusPacketEncoder,
    frames: usize,
    input: &[f32],
) -> Vec<f32> {
    let channels = encoder.spec().layout.channels();
    let packets = encode(encoder, frames, input);
    let stream = ogg::opus_stream(&packets, channels, OpusPacketEncoder::DELAY.as_usize(), frames);
    floats(&ffmpeg(name, &stream, DECODE))
}

#[test]
fn libopus_decodes_our_packets_as_intended() {
    let input = music(10.0);
    for (frames, bitrate, least) in [
        (960, 192_000, 25.0),
        (480, 192_000, 25.0),
        (1_920, 192_000, 25.0),
        (2_880, 192_000, 25.0),
        (960, 96_000, 20.0),
        (960, 510_000, 27.0),
    ] {
        let mut encoder = opus("48000:16:2", frames, bitrate);
        let heard = heard_by_libopus("opus-out", &mut encoder, frames, &input);
        let snr = snr(&input, &heard);
        println!("{frames} frames, {bitrate} b/s: SNR {snr:.1} dB");
        assert!(
            heard.len() >= input.len() - 2 * OpusPacketEncoder::DELAY.as_usize(),
            "nothing is missing"
        );
        assert!(snr >= least, "{frames} frames, {bitrate} b/s: {snr} dB");
    }
}

/// At the same bit rate, constrained as ours is (unconstrained libopus takes 16 to 64 % more than
/// requested). A waveform SNR is no listening test, but it finds defects.
#[test]
fn our_encoder_is_as_good_as_libopus() {
    let (music, sweep, bells) = (music(10.0), sweep(10.0), bells(4.0));
    let tones = |hz: &[f64]| tones(hz, 2.0);
    for (material, input, kbps) in [
        ("music", music, &[32, 64, 96, 192][..]),
        ("sweep", sweep, &[48, 96, 128, 256]),
        // In two channels strong high tones are the hardest test of how bits are distributed.
        ("bells", bells, &[48, 64, 128]),
        ("6.5 kHz", tones(&[6_500.0]), &[56]),
        ("8 kHz", tones(&[8_000.0]), &[64]),
        ("9.6 kHz", tones(&[9_600.0]), &[96]),
        ("11.3 kHz", tones(&[11_300.0]), &[64, 72]),
        ("12.5 kHz", tones(&[12_500.0]), &[96]),
        ("2.1, 5.8 and 11.3 kHz", tones(&[2_100.0, 5_800.0, 11_300.0]), &[64]),
    ] {
        for kbps in kbps {
            compare_with_libopus(&format!("{material} {kbps}"), &input, kbps * 1_000);
        }
    }
}

fn compare_with_libopus(case: &str, input: &[f32], bitrate: u32) {
    let file = case.replace(' ', "");
    let settings = format!("-b:a {bitrate} -frame_duration 20 -vbr constrained");
    let theirs = encoded_by_libopus(&format!("opus-theirs-{file}"), input, &settings);
    let decoded = floats(&ffmpeg(&format!("opus-reference-{file}"), &theirs, DECODE));
    let reference = snr(input, &decoded);
    let their_size = size(&opus_packets(&theirs).packets);

    let our_size = size(&encode(&mut opus("48000:16:2", 960, bitrate), 960, input));
    let mut encoder = opus("48000:16:2", 960, bitrate);
    let ours =
        snr(input, &heard_by_libopus(&format!("opus-ours-{file}"), &mut encoder, 960, input));
    println!(
        "{case}: libopus {reference:.1} dB, {their_size}; ours {ours:.1} dB, {our_size} bytes"
    );
    assert!(ours >= reference - 1.5, "{case}: libopus {reference} dB, ours {ours} dB");
    assert!(our_size as f64 <= 1.02 * their_size as f64, "{case}: {our_size} {their_size}");
}

/// Sine tones of equal level, -10 dB in all, the same in both channels.
fn tones(hz: &[f64], seconds: f64) -> Vec<f32> {
    (0..(seconds * 48_000.0) as u32)
        .flat_map(|n| {
            let time = f64::from(n) / 48_000.0;
            let sum: f64 = hz.iter().map(|hz| (std::f64::consts::TAU * hz * time).sin()).sum();
            [(0.316 * sum / hz.len() as f64) as f32; 2]
        })
        .collect()
}

/// A bar of metal struck four times a second, at changing pitches and places.
fn bells(seconds: f64) -> Vec<f32> {
    (0..(seconds * 48_000.0) as u32)
        .flat_map(|n| {
            let time = f64::from(n) / 48_000.0;
            let number = (time * 4.0).floor();
            let since = time - number / 4.0;
            let pitch = 1_800.0 * (1.0 + 0.19 * (number * 2.4).sin());
            // The modes of a free bar.
            let modes = [(1.0, 1.0), (2.756, 0.6), (5.404, 0.4)];
            let struck = |(ratio, level): (f64, f64)| {
                let decay = (-since * (2.0 + 3.0 * ratio)).exp();
                level * decay * (std::f64::consts::TAU * pitch * ratio * since).sin()
            };
            let bell: f64 = 0.3 * modes.into_iter().map(struck).sum::<f64>();
            let place = 0.5 + 0.4 * number.sin();
            [(bell * (1.0 - place)) as f32, (bell * place) as f32]
        })
        .collect()
}

/// Below 64 kbit/s speech is encoded as speech, and music is not.
#[test]
fn the_rate_decides_whether_speech_is_encoded_as_speech() {
    let Some(speech) = speech() else { return };
    let music = music(10.0);
    let mono: Vec<f32> = speech.as_chunks::<2>().0.iter().map(|[left, _]| *left).collect();
    for (spec, input, bitrate, is_speech) in [
        ("48000:16:1", &mono, 12_000, true),
        ("48000:16:1", &mono, 24_000, true),
        ("48000:16:1", &mono, 40_000, true),
        ("48000:16:2", &speech, 24_000, true),
        ("48000:16:2", &speech, 192_000, false),
        ("48000:16:2", &music, 32_000, false),
    ] {
        let mut encoder = opus(spec, 960, bitrate);
        let packets = encode(&mut encoder, 960, input);
        // CELT configurations are 16 to 31 (RFC 6716, section 3.1).
        let celt = packets.iter().filter(|packet| packet[0] >> 3 >= 16).count();
        println!("{spec}, {bitrate} b/s: {celt} of {} packets are CELT", packets.len());
        let as_expected = if is_speech { packets.len() - celt } else { celt };
        assert!(as_expected * 4 > packets.len() * 3, "{spec}, {bitrate} b/s: {celt} are CELT");
    }
}

/// Packet sizes of music, and the report of opusinfo on them in a stream.
fn sizes_and_opusinfo(rate_control: RateControl, bitrate: u32) -> (Vec<usize>, Option<String>) {
    let config = OpusConfig { bitrate, rate_control, ..OpusConfig::default() };
    let mut encoder =
        OpusPacketEncoder::with_config(SampleSpec::DEFAULT, Frames(960), config).unwrap();
    let packets = encode(&mut encoder, 960, &music(10.0));
    let stream = ogg::opus_stream(&packets, 2, OpusPacketEncoder::DELAY.as_usize(), 960);
    let sizes = packets.iter().map(Vec::len).collect();
    (sizes, judge::opusinfo(&format!("opusinfo-{bitrate}-{rate_control:?}"), &stream))
}

#[test]
fn a_variable_bit_rate_varies_and_a_constant_one_does_not() {
    for bitrate in [64_000, 128_000, 192_000] {
        let nominal = bitrate as usize / 8 / 50;
        let (sizes, info) = sizes_and_opusinfo(RateControl::Vbr, bitrate);
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        println!("variable, {bitrate} b/s: {least} to {most} bytes, {mean:.1} on average");
        assert!((mean / nominal as f64 - 1.0).abs() < 0.03, "{mean} instead of {nominal}");
        assert!(*most as f64 >= 1.2 * nominal as f64 && *least < nominal, "{least} to {most}");
        if let Some(info) = info {
            assert!(info.contains("Average bitrate") && !info.contains("hard-CBR"), "{info}");
        }

        let mut encoder = opus("48000:16:2", 960, bitrate);
        let silence = encode(&mut encoder, 960, &[0.0; 2 * 48_000]);
        println!("silence: {} bytes", silence[49].len());
        assert!(silence[49].len() < 10, "silence takes {} bytes", silence[49].len());

        let (sizes, info) = sizes_and_opusinfo(RateControl::Cbr, bitrate);
        assert!(sizes.iter().all(|&size| size == nominal), "{sizes:?} instead of {nominal}");
        if let Some(info) = info {
            assert!(info.contains("hard-CBR"), "{info}");
        }
    }
}

#[test]
fn libopus_decodes_every_setting() {
    let input = music(5.0);
    for (bitrate, rate_control, complexity, least) in [
        (192_000, RateControl::Cbr, 10, 25.0),
        (128_000, RateControl::Cbr, 5, 22.0),
        (192_000, RateControl::Vbr, 0, 22.0),
        (128_000, RateControl::Vbr, 5, 22.0),
    ] {
        let config = OpusConfig { bitrate, rate_control, complexity };
        let mut encoder =
            OpusPacketEncoder::with_config(SampleSpec::DEFAULT, Frames(960), config).unwrap();
        let snr = snr(&input, &heard_by_libopus("opus-settings", &mut encoder, 960, &input));
        println!("{config}: SNR {snr:.1} dB");
        assert!(snr >= least, "{config}: {snr} dB");
    }
}

#[test]
fn mono_works_too() {
    let input: Vec<f32> = music(5.0).as_chunks::<2>().0.iter().map(|[left, _]| *left).collect();
    let mut encoder = opus("48000:16:1", 960, 96_000);
    let snr = snr(&input, &heard_by_libopus("opus-mono", &mut encoder, 960, &input));
    println!("mono, 96 kb/s: SNR {snr:.1} dB");
    assert!(snr >= 20.0, "{snr} dB");
}

#[test]
fn the_library_decodes_the_music_of_libopus_exactly() {
    let input = music(10.0);
    for (case, settings) in [
        ("music", "-b:a 192k -application audio"),
        ("delay", "-b:a 128k -application lowdelay -frame_duration 10"),
        ("long", "-b:a 96k -application audio -frame_duration 60"),
    ] {
        let worst = differences(case, &input, settings).into_iter().fold(0.0, f32::max);
        println!("{case}: the largest difference is {worst:.1e}");
        assert!(worst < EXACT, "{case}: {worst}");
    }
}

/// Of fast-changing audio in every mode.
#[test]
fn the_library_decodes_every_mode_exactly() {
    let input = sweep(10.0);
    for (case, settings) in [
        ("plenty", "-b:a 192k -application audio"),
        ("hybrid", "-b:a 32k -application voip"),
        ("speech", "-b:a 16k -application voip -ac 1"),
        ("narrow", "-b:a 32k -application lowdelay"),
    ] {
        let packets = differences(case, &input, settings);
        let worst = packets.into_iter().fold(0.0, f32::max);
        println!("{case}: the largest difference is {worst:.1e}");
        assert!(worst < EXACT, "{case}: {worst}");
    }
}

/// For each of libopus' packets: the maximum difference between the library's output and libopus'
/// own.
fn differences(case: &str, input: &[f32], settings: &str) -> Vec<f32> {
    decoded_twice(case, input, settings).iter().map(DecodedPacket::largest).collect()
}

/// A packet of libopus, decoded by the library and by libopus.
struct DecodedPacket {
    /// The configuration in its first byte (RFC 6716, section 3.1).
    config: u8,
    ours: Vec<f32>,
    theirs: Vec<f32>,
}

impl DecodedPacket {
    fn largest(&self) -> f32 {
        self.ours.iter().zip(&self.theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }
}

fn decoded_twice(case: &str, input: &[f32], settings: &str) -> Vec<DecodedPacket> {
    let stream = encoded_by_libopus(&format!("opus-in-{case}"), input, settings);
    let reference = floats(&ffmpeg(&format!("opus-ref-{case}"), &stream, DECODE));

    let ogg::OpusStream { channels, skip, packets } = opus_packets(&stream);
    assert!(reference.len() > 9 * 48_000 * channels, "ffmpeg decoded all of it");
    let mut decoder = OpusDecoder::new(48_000, channels).unwrap();
    let mut block = vec![0.0; 5_760 * channels];
    let mut skip = skip * channels;
    let mut rest = &reference[..];
    packets
        .iter()
        .map(|packet| {
            let frames = decoder.decode(packet, &mut block).unwrap();
            let heard = &block[skip.min(frames * channels)..frames * channels];
            skip -= frames * channels - heard.len();
            let (expected, behind) = rest.split_at(heard.len().min(rest.len()));
            rest = behind;
            let heard = &heard[..expected.len()];
            DecodedPacket {
                config: packet[0] >> 3,
                ours: heard.to_vec(),
                theirs: expected.to_vec(),
            }
        })
        .collect()
}

/// Ten seconds of a synthetic voice, in stereo; `None`, and a line, without espeak-ng.
fn speech() -> Option<Vec<f32>> {
    let text = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue \
        background. It is easy to tell the depth of a well. These days a chicken leg is a rare \
        dish. Rice is often served in round bowls.";
    let spoken = std::process::Command::new("espeak-ng")
        .args(["-v", "en+klatt4", "--stdout", text])
        .output();
    let Ok(spoken) = spoken.as_ref().map(|output| &output.stdout) else {
        println!("skipped: no espeak-ng");
        return None;
    };
    let arguments = "-i {in} -ar 48000 -ac 2 -f f32le {out}";
    Some(floats(&ffmpeg("opus-speech", spoken, arguments)))
}

/// Every sample beside libopus' decoder: speech and music, at rates that take each of the three
/// modes. docs/decisions/opus-codec.md has the table.
#[test]
fn the_library_decodes_speech_and_music_beside_libopus() {
    println!(
        "| material | settings | SILK, hybrid, CELT | SNR, dB | largest | packets that differ |"
    );
    let music = music(10.0);
    for (name, settings) in OPUS_CASES {
        let input = if name == "speech" { speech() } else { Some(music.clone()) };
        let Some(input) = input else { return };
        let packets = decoded_twice(&settings.replace(' ', ""), &input, settings);
        let modes = [0..=11, 12..=15, 16..=31]
            .map(|mode| packets.iter().filter(|packet| mode.contains(&packet.config)).count());
        let all = |side: fn(&DecodedPacket) -> &Vec<f32>| -> Vec<f32> {
            packets.iter().flat_map(side).copied().collect()
        };
        let (theirs, ours) = (all(|packet| &packet.theirs), all(|packet| &packet.ours));
        let snr = snr(&theirs, &ours);
        let largest = packets.iter().map(DecodedPacket::largest).fold(0.0, f32::max);
        let differing = packets.iter().filter(|packet| packet.largest() >= EXACT).count();
        println!(
            "| {name} | `{settings}` | {modes:?} | {snr:.1} | {largest:.1e} | {differing} of {} |",
            packets.len()
        );
        assert!(snr >= 120.0, "{name}, {settings}: {snr} dB");
        assert_eq!(differing, 0, "{name}, {settings}");
    }
}

/// Material, and settings of the encoder.
const OPUS_CASES: [(&str, &str); 9] = [
    ("speech", "-b:a 12k -application voip -ac 1"),
    ("speech", "-b:a 16k -application voip -ac 1"),
    ("speech", "-b:a 24k -application voip -ac 1"),
    ("speech", "-b:a 32k -application voip -ac 1"),
    ("speech", "-b:a 64k -application audio"),
    ("music", "-b:a 32k -application audio"),
    ("music", "-b:a 64k -application audio"),
    ("music", "-b:a 128k -application audio"),
    ("music", "-b:a 96k -application lowdelay"),
];

fn encoded_by_libopus(name: &str, input: &[f32], settings: &str) -> Vec<u8> {
    let bytes: Vec<u8> = input.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let before = "-f f32le -ar 48000 -ac 2 -i {in} -c:a libopus";
    ffmpeg(name, &bytes, &format!("{before} {settings} -f ogg {{out}}"))
}

fn size(packets: &[Vec<u8>]) -> usize {
    packets.iter().map(Vec::len).sum()
}

const DECODE: &str = "-request_sample_fmt flt -c:a libopus -f ogg -i {in} -f f32le {out}";

/// The precision to expect of f32 in another order of operations.
const EXACT: f32 = 1e-4;

//! Justifies the pure Rust codec in place of libopus: it is measured against libopus in both
//! directions, by ffmpeg with `-c:a libopus`. docs/decisions/opus-codec.md quotes these figures.

use aulos_core::{Frames, SampleSpec};
use aulos_engine::encode::{Encoder, OpusConfig, OpusPacketEncoder, RateControl};

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
        (960, 510_000, 30.0),
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
fn our_encoder_is_as_good_as_libopus_at_the_rates_of_music() {
    for (material, input) in [("music", music(10.0)), ("sweep", sweep(10.0))] {
        for (bitrate, behind) in [(96_000, 1.5), (128_000, 1.0), (192_000, 0.0), (256_000, 0.0)] {
            let case = format!("{material}-{bitrate}");
            let settings =
                format!("-b:a {bitrate} -application lowdelay -frame_duration 20 -vbr constrained");
            let theirs = encoded_by_libopus(&format!("opus-theirs-{case}"), &input, &settings);
            let decoded = floats(&ffmpeg(&format!("opus-reference-{case}"), &theirs, DECODE));
            let reference = snr(&input, &decoded);
            let their_size = size(&opus_packets(&theirs).packets);

            let mut encoder = opus("48000:16:2", 960, bitrate);
            let our_size = size(&encode(&mut opus("48000:16:2", 960, bitrate), 960, &input));
            let ours = snr(&input, &heard_by_libopus("opus-ours", &mut encoder, 960, &input));
            println!(
                "{case} b/s: SNR libopus {reference:.1} dB, {their_size} bytes; \
                 ours {ours:.1} dB, {our_size} bytes"
            );
            assert!(ours >= reference - behind, "{case}: libopus {reference} dB, ours {ours} dB");
            assert!(our_size as f64 <= 1.01 * their_size as f64, "{our_size} {their_size}");
        }
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
        let config = OpusConfig { bitrate, rate_control, complexity, ..OpusConfig::default() };
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

/// A known fault of the library (0.1.40): of fast-changing audio, some packets decode to something
/// else than libopus 1.3 and 1.6 agree on, more of them at lower rates. The packets around them are
/// right. This keeps the fault within its known extent.
#[test]
fn the_library_decodes_few_packets_otherwise() {
    let input = sweep(10.0);
    for (case, settings) in [
        ("plenty", "-b:a 192k -application audio"),
        ("hybrid", "-b:a 32k -application voip"),
        ("speech", "-b:a 16k -application voip -ac 1"),
        ("narrow", "-b:a 32k -application lowdelay"),
    ] {
        let packets = differences(case, &input, settings);
        let wrong = packets.iter().filter(|&&worst| worst >= EXACT).count();
        println!("{case}: {wrong} of {} packets differ", packets.len());
        assert!(wrong * 5 <= packets.len(), "{case}: {wrong} of {}", packets.len());
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
    let mut decoder = opus_rs::OpusDecoder::new(48_000, channels).unwrap();
    let mut block = vec![0.0; 5_760 * channels];
    let mut skip = skip * channels;
    let mut rest = &reference[..];
    packets
        .iter()
        .map(|packet| {
            let frames = decoder.decode(packet, 5_760, &mut block).unwrap();
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
    for (name, settings, least) in OPUS_CASES {
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
        assert!(snr >= least, "{name}, {settings}: {snr} dB");
        assert!(differing * 50 <= packets.len(), "{name}, {settings}: {differing} packets");
    }
}

/// Material, settings of the encoder, and the least SNR in dB: that of rounding, and less where some
/// packets of the hybrid mode are known to differ.
const OPUS_CASES: [(&str, &str, f64); 9] = [
    ("speech", "-b:a 12k -application voip -ac 1", 120.0),
    ("speech", "-b:a 16k -application voip -ac 1", 60.0),
    ("speech", "-b:a 24k -application voip -ac 1", 60.0),
    ("speech", "-b:a 32k -application voip -ac 1", 60.0),
    ("speech", "-b:a 64k -application audio", 120.0),
    ("music", "-b:a 32k -application audio", 38.0),
    ("music", "-b:a 64k -application audio", 120.0),
    ("music", "-b:a 128k -application audio", 120.0),
    ("music", "-b:a 96k -application lowdelay", 120.0),
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

//! A stream of FLAC whose compression is switched off and on, judged by ffmpeg.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, which hands ffmpeg a file"
)]

use std::fs;
use std::process::Command;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{Block, Frames, SampleSpec};
use aulos_engine::encode::{Effort, Encoder};
use aulos_session::flac_stream::FlacStreamEncoder;

/// 100 frames whose effort changes every 7, and their samples.
fn stream(spec: SampleSpec) -> (Vec<u8>, Vec<i32>) {
    let mut encoder = FlacStreamEncoder::new(spec, Frames(480), 2).unwrap();
    let samples = 480 * spec.layout.channels();
    let mut block = Block::with_capacity(spec.rate, spec.layout, samples);
    block.resize(Frames(480));
    let (mut out, mut integers) = (encoder.header().to_vec(), Vec::new());
    for number in 0..100u16 {
        for (index, sample) in (0u16..).zip(block.samples_mut()) {
            let integer = i32::from(number.wrapping_mul(960).wrapping_add(index) % 4_001) - 2_000;
            integers.push(integer);
            *sample = integer as f32 / 32_768.0;
        }
        encoder.set_effort(if number / 7 % 2 == 0 { Effort::Least } else { Effort::Full });
        encoder.encode(&block, &mut out).unwrap();
    }
    (out, integers)
}

#[test]
fn a_decoder_plays_the_same_when_the_compression_is_switched_off_and_on() {
    let scratch = ScratchDir::new("flac-stream").unwrap();
    let file = scratch.path().join("stream.flac");
    for (spec, step) in [("48000:16:2", 1 << 16), ("44100:24:1", 1 << 16), ("96000:16:6", 1 << 16)]
    {
        let (flac, integers) = stream(spec.parse().unwrap());
        fs::write(&file, &flac).unwrap();
        let decode = ["-v", "warning", "-i", file.to_str().unwrap(), "-f", "s32le", "-"];
        let decoded = Command::new("ffmpeg").args(decode).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&decoded.stderr), "", "{spec}");
        let decoded = decoded.stdout.chunks(4).map(|x| i32::from_le_bytes(x.try_into().unwrap()));
        assert!(decoded.eq(integers.iter().map(|integer| integer * step)), "{spec}");
        assert!(flac.len() > integers.len(), "half of it is stored");
    }
}

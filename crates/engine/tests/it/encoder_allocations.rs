//! Allocations per encoded block. This crate's are zero; those of the libraries are printed.

use aulos_blackbox::alloc::allocations;
use aulos_core::{Block, Codec, Frames, SampleSpec};
use aulos_engine::encode::{CodecConfig, Encoder, FlacEncoder, make_encoder};

/// Allocations per block, after a second of warm-up.
fn per_block(encoder: &mut dyn Encoder) -> f64 {
    let SampleSpec { rate, layout, .. } = encoder.spec();
    let mut block = Block::with_capacity(rate, layout, 960 * layout.channels());
    block.resize(Frames(960));
    let mut out = Vec::with_capacity(64 << 10);
    let mut noise = 1u32;
    let mut before = 0;
    for round in 0..100u16 {
        if round == 50 {
            before = allocations();
        }
        for (index, sample) in block.samples_mut().iter_mut().enumerate() {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = f32::from((noise >> 16).to_le_bytes()[0]) / 4_096.0;
            *sample = 0.4 * (index as f32 * 0.01 * f32::from(round)).sin() + hiss;
        }
        out.clear();
        encoder.encode(&block, &mut out).unwrap();
    }
    (allocations() - before) as f64 / 50.0
}

#[test]
fn blocks_are_encoded_without_allocating() {
    for spec in ["48000:16:2", "48000:24:2", "48000:32:6"] {
        let spec = spec.parse().unwrap();
        let mut pcm = make_encoder(Codec::Pcm, spec, Frames(960)).unwrap();
        assert!(per_block(&mut *pcm) == 0.0, "pcm {spec}");
    }
    for level in 0..=8 {
        for spec in ["48000:16:2", "48000:24:2"] {
            let spec = spec.parse().unwrap();
            let count = per_block(&mut FlacEncoder::new(spec, Frames(960), level).unwrap());
            println!("flac, level {level}, {spec}: {count} allocations per block");
            assert!(count <= FLAC_LIBRARY, "level {level}, {spec}: {count}");
        }
    }
    for text in
        ["opus", "opus:12k", "opus:32k", "opus:64k", "opus:510k,cbr", "opus:128k,complexity=0"]
    {
        let config: CodecConfig = text.parse().unwrap();
        let mut opus = make_encoder(config, SampleSpec::DEFAULT, Frames(960)).unwrap();
        let count = per_block(&mut *opus);
        println!("{text}: {count} allocations per block");
        assert!(count <= OPUS_LIBRARY, "{text}: {count}");
    }
}

/// The libraries' known allocations, so that they cannot grow unnoticed.
const FLAC_LIBRARY: f64 = 0.0;
const OPUS_LIBRARY: f64 = 0.0;

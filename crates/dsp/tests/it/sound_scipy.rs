//! The sound of a client compared with scipy's, sample by sample.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the judge is another program, and without it the test proves nothing"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{ChannelLayout, Db, Rng, SampleRate};
use aulos_dsp::equalizer::{EqualizerBand, FilterType};
use aulos_dsp::sound::{ChannelChain, SoundChain, SoundProcessor, SoundProgram};

/// The greatest difference in dBFS that scipy finds.
fn difference(rate: SampleRate, name: &str, chain: &SoundChain, sound: &[f32]) -> f64 {
    let program = SoundProgram::new(chain, rate, Db::ZERO);
    let mut processor = SoundProcessor::new(rate, ChannelLayout::STEREO, &program);
    let mut ours = sound.to_vec();
    // In blocks of a length that divides nothing.
    ours.chunks_mut(2 * 331).for_each(|block| processor.process(block));
    let folder = ScratchDir::new(&format!("sound-{name}")).expect("a folder");
    let paths = ["ours", "input"].map(|part| folder.join(part));
    for (path, samples) in paths.iter().zip([&ours[..], sound]) {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        std::fs::write(path, bytes).expect("a file in the folder");
    }
    let mut filters = String::new();
    for (channel, side) in [&chain.left, &chain.right].into_iter().enumerate() {
        for band in &side.bands {
            let EqualizerBand { filter_type, hz, gain, q } = band;
            let (kind, gain) = (filter_type.name(), gain.get());
            writeln!(filters, "{channel} {kind} {hz} {gain} {q}").expect("a String");
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = std::env::var_os("AULOS_TEST_VENV")
        .map_or_else(|| root.join("../../target/test-venv"), PathBuf::from);
    let mut judge = Command::new(venv.join("bin/python"))
        .arg(root.join("tests/it/sound_scipy.py"))
        .arg(rate.hz().to_string())
        .args(&paths)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python with scipy must be installed: it is the judge of this test");
    let mut pipe = judge.stdin.take().expect("a pipe");
    pipe.write_all(filters.as_bytes()).expect("the judge reads");
    drop(pipe);
    let done = judge.wait_with_output().expect("the judge ends");
    let said = String::from_utf8_lossy(&done.stdout);
    said.trim().parse().expect("the judge prints a number")
}

#[test]
fn each_filter_and_sixteen_of_them_are_within_120_db_of_scipy() {
    let mut random = Rng::new(7);
    #[allow(clippy::cast_precision_loss, reason = "a test signal")]
    let mut unit = || (random.next_u64() >> 40) as f32 / (1 << 24) as f32;
    let sound: Vec<f32> = (0..2 * 48_000).map(|_| 0.25 * (2.0 * unit() - 1.0)).collect();
    let band = |filter_type, hz, gain, q| EqualizerBand { filter_type, hz, gain: Db::new(gain), q };
    let side = |bands| ChannelChain { bands, ..ChannelChain::default() };
    for hz in [44_100, 192_000] {
        let rate = SampleRate::new(hz).expect("a rate");
        for kind in FilterType::ALL {
            let chain = SoundChain {
                preamp: Some(Db::ZERO),
                left: side(vec![band(kind, 40.0, 9.0, 0.7)]),
                right: side(vec![band(kind, 6_000.0, -7.5, 3.0)]),
                ..SoundChain::default()
            };
            let found = difference(rate, &format!("{hz}-{}", kind.name()), &chain, &sound);
            assert!(found < -120.0, "{} at {hz} Hz: {found} dB", kind.name());
        }
        let bands: Vec<EqualizerBand> = (0..16_u8)
            .map(|at| {
                let kind = FilterType::ALL[usize::from(at) % 3];
                let gain = if at % 2 == 0 { 4.0 } else { -5.0 };
                band(kind, 30.0 * 1.5f64.powi(at.into()), gain, 1.1)
            })
            .collect();
        let (left, right) = (side(bands.clone()), side(bands.into_iter().rev().collect()));
        let chain = SoundChain { preamp: Some(Db::ZERO), left, right, ..SoundChain::default() };
        let found = difference(rate, &format!("{hz}-all"), &chain, &sound);
        assert!(found < -120.0, "16 bands at {hz} Hz: {found} dB");
    }
}

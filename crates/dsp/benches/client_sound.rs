//! Cost of the sounds of ten rooms.
//!
//! Stereo at 48 kHz, blocks of 20 ms, the fastest of 20 runs of a second of audio in each of ten
//! rooms. Columns: bands in each channel, nanoseconds per frame, load of a core by all ten rooms.
//! More than 2 % of a core with eight bands is bad.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use aulos_core::{ChannelLayout, Db, SampleRate};
use aulos_dsp::equalizer::{EqualizerBand, FilterType};
use aulos_dsp::sound::{SoundChain, SoundProcessor, SoundProgram};

fn main() {
    for bands in [0, 1, 4, 8, 16] {
        measure(bands);
    }
}

fn measure(bands: u32) {
    let rate = SampleRate::HZ_48000;
    let band = |at| EqualizerBand {
        filter_type: FilterType::Peaking,
        hz: 40.0 * 1.4f64.powi(at),
        gain: Db::new(-3.0),
        q: 1.4,
    };
    let mut rooms: Vec<SoundProcessor> = (0..10)
        .map(|room| {
            let bands = (0..bands).map(|at| band(i32::try_from(at).unwrap_or(0))).collect();
            let mut chain = SoundChain::of_bands(bands);
            chain.preamp = Some(Db::new(-1.0 - f64::from(room)));
            let program = SoundProgram::new(&chain, rate, Db::new(-1.0));
            SoundProcessor::new(rate, ChannelLayout::STEREO, &program)
        })
        .collect();
    #[allow(clippy::cast_precision_loss, reason = "a test signal")]
    let input: Vec<f32> = (0..2 * 960).map(|n| 0.5 * (n as f32 * 0.37).sin()).collect();
    let mut sound = input.clone();
    let fastest = (0..20)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..50 {
                for room in &mut rooms {
                    sound.copy_from_slice(&input);
                    room.process(black_box(&mut sound));
                }
            }
            begin.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanos = fastest.as_secs_f64() * 1e9 / 480_000.0;
    let core = fastest.as_secs_f64() * 100.0;
    println!("{bands:2} bands: {nanos:6.2} ns, ten rooms {core:.2} %");
}

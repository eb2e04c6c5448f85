//! A tone on a shared thread: a source, a graph and a sink, and a program that reads the samples.
//!
//! ```text
//!  Tone -> Graph (a worker's thread) -> LaneSink --lane--> AppReader (this thread)
//! ```

use std::error::Error;

use aulos_core::{ChannelLayout, Db, Frames, SampleRate, Span};
use aulos_engine::generate::Tone;
use aulos_engine::graph::{Graph, GraphPace, LaneConfig, app_sink};
use aulos_io::{SystemClock, Workers};

const RATE: SampleRate = SampleRate::HZ_48000;
const STEREO: ChannelLayout = ChannelLayout::STEREO;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let tone = Tone::new(997.0, Db::new(-20.0), RATE, STEREO, RATE.frames(Span::from_millis(10)));
    // One second of buffer: this thread may be that late.
    let (sink, mut reader) = app_sink(&LaneConfig::new(RATE, STEREO).capacity(Span::from_secs(1)))?;

    let mut workers = Workers::start(1)?;
    let place = workers.add(Graph::new(tone, sink, GraphPace::Clock, SystemClock::now()));

    let (mut heard, mut peak) = (Frames::ZERO, 0.0_f32);
    let mut samples = [0.0; 4_096];
    while heard < RATE.frames(Span::from_millis(500)) {
        let taken = reader.pull(&mut samples);
        heard += taken.frames;
        for sample in &samples[..taken.frames.as_usize() * STEREO.channels()] {
            peak = peak.max(sample.abs());
        }
        SystemClock::sleep_until(SystemClock::now() + Span::from_millis(20));
    }
    workers.remove(place);
    workers.stop();

    let peak = Db::from_amplitude(peak.into()).get();
    println!("{heard} of a tone, peak {peak:.2} dBFS, {} lost", reader.lost());
    assert!((peak + 20.0).abs() < 0.01);
    Ok(())
}

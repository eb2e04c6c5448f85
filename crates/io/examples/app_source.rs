//! A program pushes its own samples into a graph, and learns when there is no room.
//!
//! Processing is done by a source that wraps another one: here, a gain.
//!
//! ```text
//!  AppWriter --lane--> LaneSource -> Gain -> Graph -> LaneSink --lane--> AppReader
//! ```

use std::error::Error;

use aulos_core::{Block, ChannelLayout, Frames, Instant, SampleRate, Span};
use aulos_engine::graph::{Graph, GraphPace, LaneConfig, app_sink, app_source};
use aulos_engine::source::{Pacing, PullResult, Source};
use aulos_io::{SystemClock, Workers};

/// Halves the amplitude of the inner source.
struct Gain<S>(S);

impl<S: Source> Source for Gain<S> {
    fn pull(&mut self, now: Instant, into: &mut Block) -> PullResult {
        let pulled = self.0.pull(now, into);
        if pulled == PullResult::Block {
            into.samples_mut().iter_mut().for_each(|sample| *sample *= 0.5);
        }
        pulled
    }

    fn pacing(&self) -> Pacing {
        self.0.pacing()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // 50 ms in each direction, so that neither side can run away from the other.
    let lane =
        LaneConfig::new(SampleRate::HZ_48000, ChannelLayout::MONO).capacity(Span::from_millis(50));
    let (mut writer, source) = app_source(&lane)?;
    let (sink, mut reader) = app_sink(&lane)?;
    let mut workers = Workers::start(1)?;
    workers.add(Graph::new(Gain(source), sink, GraphPace::Free, SystemClock::now()));

    let (mut pushed, mut heard, mut held) = (0, Vec::new(), 0);
    let song: Vec<f32> = (0..24_000_u16).map(|n| f32::from(n) / 24_000.0).collect();
    let mut out = [0.0; 1_024];
    while pushed < song.len() {
        // Samples without room are tried again.
        pushed += writer.push(&song[pushed..])?.as_usize();
        held += usize::from(pushed < song.len());
        let taken = reader.pull(&mut out);
        heard.extend_from_slice(&out[..taken.frames.as_usize()]);
        SystemClock::sleep_until(SystemClock::now() + Span::from_millis(2));
    }
    writer.finish();
    while reader.ending().is_none() {
        let taken = reader.pull(&mut out);
        heard.extend_from_slice(&out[..taken.frames.as_usize()]);
        if taken.frames == Frames::ZERO {
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(2));
        }
    }
    workers.stop();

    println!(
        "{} frames there and back, held {held} times, ended {:?}",
        heard.len(),
        reader.ending()
    );
    assert!(heard.iter().zip(&song).all(|(heard, sung)| (heard - sung * 0.5).abs() < 1e-6));
    assert_eq!(heard.len(), song.len());
    Ok(())
}

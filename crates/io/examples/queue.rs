//! A queue between two graphs on two threads. The second one stops for a while, as a disk or a
//! sound card might: the queue buffers the audio meanwhile, drops the oldest when it is full, and
//! counts it.
//!
//! ```text
//!  Tone -> Graph -> LaneSink --lane--> LaneSource -> (this thread)
//! ```

use std::error::Error;

use aulos_core::{Block, ChannelLayout, Db, Frames, SampleRate, Span};
use aulos_engine::generate::Tone;
use aulos_engine::graph::{Graph, GraphPace, LaneConfig, LaneOverflow, queue};
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, PullResult, Source as _};
use aulos_io::{SystemClock, Workers};

const RATE: SampleRate = SampleRate::HZ_48000;
const STEREO: ChannelLayout = ChannelLayout::STEREO;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let lane = LaneConfig::new(RATE, STEREO)
        .capacity(Span::from_millis(100))
        .overflow(LaneOverflow::DropOldest)
        .pacing(Pacing::LocalClock);
    let (sink, mut source) = queue(&lane)?;
    let monitor = sink.monitor();
    let tone = Tone::new(440.0, Db::new(-18.0), RATE, STEREO, Frames(480));
    let mut workers = Workers::start(1)?;
    workers.add(Graph::new(tone, sink, GraphPace::Clock, SystemClock::now()));

    let mut block = Block::with_capacity(RATE, STEREO, BLOCK_SAMPLES);
    let (mut heard, mut told) = (Frames::ZERO, Frames::ZERO);
    for look in 0..60 {
        let pause = if look == 30 { Span::from_millis(300) } else { Span::from_millis(10) };
        SystemClock::sleep_until(SystemClock::now() + pause);
        while source.pull(SystemClock::now(), &mut block) == PullResult::Block {
            heard += block.frames();
            if source.lost() > told {
                // The media time of the block has advanced by as much, so a player can insert
                // silence and stays in sync.
                let lost = source.lost() - told;
                told = source.lost();
                println!("look {look}: {lost} lost, so this block begins at {}", block.pts);
            }
        }
    }
    workers.stop();

    println!("{heard} heard, at most {} waited, {} lost", monitor.high_water(), monitor.lost());
    assert!(source.lost() > Frames::ZERO && monitor.high_water() <= monitor.capacity());
    Ok(())
}

//! One source for many: a proxy passes its audio to readers that come and go, each at its own pace.
//! The slow one loses the oldest pending audio and learns how much; the others are not affected.
//!
//! ```text
//!  Tone -> Graph -> ProxySink ==lanes=> LaneSource -> Graph (another thread)
//!                                  ===> AppReader (this thread, slow)
//! ```

use std::error::Error;

use aulos_core::{ChannelLayout, Db, Frames, SampleRate, Span};
use aulos_engine::generate::Tone;
use aulos_engine::graph::{Graph, GraphPace, LaneConfig, app_sink, proxy};
use aulos_io::{SystemClock, Workers};

const RATE: SampleRate = SampleRate::HZ_48000;
const STEREO: ChannelLayout = ChannelLayout::STEREO;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let lane = LaneConfig::new(RATE, STEREO).capacity(Span::from_secs(1));
    let (sink, mut proxy) = proxy(RATE, STEREO);
    let tone = Tone::new(440.0, Db::new(-18.0), RATE, STEREO, Frames(480));
    let mut workers = Workers::start(2)?;
    workers.add(Graph::new(tone, sink, GraphPace::Clock, SystemClock::now()));

    // One reader is a graph of its own on the other thread.
    let (quick, mut out) = app_sink(&lane)?;
    let source = proxy.source(&lane.capacity(Span::from_secs(10)))?;
    let its_lane = source.monitor();
    workers.add(Graph::new(source, quick, GraphPace::Free, SystemClock::now()));
    // One reader is this thread, which sleeps for longer than its lane can buffer.
    let mut slow = proxy.reader(&lane.capacity(Span::from_millis(100)))?;

    let (mut quick, mut samples) = (Frames::ZERO, [0.0; 8_192]);
    for _ in 0..5 {
        SystemClock::sleep_until(SystemClock::now() + Span::from_millis(150));
        let taken = slow.pull(&mut samples);
        println!(
            "slow: {} from {} on, {} lost in front of them",
            taken.frames, taken.at, taken.lost
        );
        loop {
            let frames = out.pull(&mut samples).frames;
            if frames == Frames::ZERO {
                break;
            }
            quick += frames;
        }
    }
    workers.stop();

    println!("quick: {quick}, {} lost; slow: {} lost", its_lane.lost(), slow.lost());
    assert!(its_lane.lost() == Frames::ZERO && slow.lost() > Frames::ZERO);
    Ok(())
}

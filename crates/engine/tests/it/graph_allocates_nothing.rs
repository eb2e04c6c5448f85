//! The real-time side of a graph's parts never allocates: writers, readers, graphs, readers that
//! come, lag and leave, and the end.

use aulos_blackbox::alloc::calls_during;
use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, SampleRate, Span};
use aulos_engine::generate::Tone;
use aulos_engine::graph::{
    Graph, GraphPace, LaneConfig, LaneOverflow, Sink as _, StreamEnd, TimedTask as _, app_sink,
    app_source, proxy, queue,
};
use aulos_engine::source::{BLOCK_SAMPLES, PullResult, Source as _};

const RATE: SampleRate = SampleRate::HZ_48000;
const STEREO: ChannelLayout = ChannelLayout::STEREO;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn tone() -> Tone {
    Tone::new(440.0, Db::new(-20.0), RATE, STEREO, Frames(480))
}

fn block() -> Block {
    Block::with_capacity(RATE, STEREO, BLOCK_SAMPLES)
}

#[test]
fn the_counter_counts() {
    assert_eq!(calls_during(|| drop(vec![1])), 2);
}

#[test]
fn lanes_of_every_kind_are_filled_and_emptied() {
    for rule in [LaneOverflow::Block, LaneOverflow::DropOldest, LaneOverflow::DropNewest] {
        let lane = LaneConfig::new(RATE, STEREO).capacity(Span::from_millis(30)).overflow(rule);
        let (mut writer, mut source) = app_source(&lane).unwrap();
        let (mut sink, mut reader) = app_sink(&lane).unwrap();
        let (samples, mut out, mut into) = ([0.5; 1_000], [0.0; 1_000], block());
        let mut sound = 0;
        let calls = calls_during(|| {
            for number in 0..1_000 {
                writer.push(&samples).unwrap();
                if number % 5 > 2 {
                    while source.pull(at(0), &mut into) == PullResult::Block {
                        sound += into.frames().0;
                        let _ = sink.push(at(0), &into, Frames::ZERO);
                        reader.pull(&mut out);
                    }
                }
            }
            sink.end(StreamEnd::Finished);
        });
        assert!(sound > 10_000);
        assert_eq!(calls, 0, "{rule:?}");
    }
}

#[test]
fn graphs_carry_on_the_clock_and_freely() {
    let lane = LaneConfig::new(RATE, STEREO);
    let (sink, source) = queue(&lane).unwrap();
    let (end, mut reader) = app_sink(&lane).unwrap();
    let mut first = Graph::new(tone(), sink, GraphPace::Clock, at(0));
    let mut second = Graph::new(source, end, GraphPace::Free, at(0));
    let mut out = [0.0; 4_096];
    let calls = calls_during(|| {
        for millis in (0..10_000).step_by(10) {
            first.handle_timeout(at(millis));
            second.handle_timeout(at(millis));
            reader.pull(&mut out);
        }
    });
    assert_eq!(calls, 0);
    drop(reader);
    let calls = calls_during(|| {
        for millis in (10_000..11_000).step_by(10) {
            first.handle_timeout(at(millis));
            second.handle_timeout(at(millis));
        }
    });
    assert_eq!((calls, second.status().ended), (0, Some(StreamEnd::Lost)));
}

#[test]
fn readers_of_a_proxy_join_lag_and_leave() {
    let (mut sink, mut proxy) = proxy(RATE, STEREO);
    let lane = LaneConfig::new(RATE, STEREO).capacity(Span::from_millis(50));
    let (mut tone, mut into, mut out) = (tone(), block(), [0.0; 1_000]);
    let mut stays = proxy.reader(&lane).unwrap();
    for _ in 0..20 {
        // It lags, and then it leaves.
        let goes = proxy.reader(&lane).unwrap();
        let mut push = |times: usize| {
            for _ in 0..times {
                tone.pull(at(0), &mut into);
                let _ = sink.push(at(0), &into, Frames::ZERO);
                stays.pull(&mut out);
            }
        };
        assert_eq!(calls_during(|| push(20)), 0);
        drop(goes);
        assert_eq!(calls_during(|| push(2)), 0);
    }
    assert_eq!(calls_during(|| sink.end(StreamEnd::Finished)), 0);
}

use aulos_core::{ChannelLayout, Db, MediaTime, SampleRate, Span};

use super::*;
use crate::generate::Tone;
use crate::source::{BLOCK_SAMPLES, Pacing, PullResult, Source};

const RATE: SampleRate = SampleRate::HZ_48000;
const STEREO: ChannelLayout = ChannelLayout::STEREO;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + millis * 1_000_000)
}

fn lane() -> LaneConfig {
    LaneConfig::new(RATE, STEREO)
}

fn block() -> Block {
    Block::with_capacity(RATE, STEREO, BLOCK_SAMPLES)
}

/// Frames that carry their number.
fn numbered(first: u64, frames: u64) -> Vec<f32> {
    (first..first + frames).flat_map(|number| [number as f32, -(number as f32)]).collect()
}

fn numbered_block(first: u64, frames: u64) -> Block {
    let mut block = block();
    block.resize(Frames(frames));
    block.samples_mut().copy_from_slice(&numbered(first, frames));
    block
}

/// A tone of 10 ms blocks.
fn tone() -> Tone {
    Tone::new(997.0, Db::new(-20.0), RATE, STEREO, Frames(480))
}

/// Calls a graph when it is due, from its start at `at(0)` until `until`.
fn play(graph: &mut Graph, until: Instant) {
    while graph.poll_timeout() <= until {
        let now = graph.poll_timeout();
        graph.handle_timeout(now);
    }
}

#[test]
fn pushed_blocks_are_output_complete_and_in_order() {
    const FRAMES: u64 = 100_000;
    let (mut writer, mut source) = app_source(&lane().capacity(Span::from_millis(7))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < FRAMES {
                // Block sizes that divide nothing.
                let wanted = (1 + next % 500).min(FRAMES - next);
                let taken = writer.push(&numbered(next, wanted)).unwrap();
                assert!(taken.0 <= wanted);
                next += taken.0;
                if taken.0 < wanted {
                    std::thread::yield_now();
                }
            }
            writer.finish();
        });
        let (mut into, mut next) = (block(), 0);
        loop {
            match source.pull(at(5), &mut into) {
                PullResult::Block => {
                    assert_eq!((into.pts, into.received), (MediaTime(next), at(5)));
                    assert!(into.frames() > Frames::ZERO && into.frames() <= Frames(480));
                    assert_eq!(into.samples(), numbered(next, into.frames().0));
                    next += into.frames().0;
                }
                PullResult::Pending => std::thread::yield_now(),
                PullResult::Ended => break,
                PullResult::Lost => panic!("it was finished"),
            }
        }
        assert_eq!(next, FRAMES);
    });
}

#[test]
fn half_a_frame_and_too_much_stay_with_the_program() {
    let (mut writer, mut source) = app_source(&lane().capacity(Span::from_millis(1))).unwrap();
    assert_eq!(writer.push(&numbered(0, 10)[..19]), Ok(Frames(9)));
    assert_eq!(writer.free(), Frames(39));
    assert_eq!(writer.push(&numbered(9, 60)), Ok(Frames(39)));
    assert_eq!(writer.push(&numbered(48, 1)), Ok(Frames::ZERO));
    let mut into = block();
    assert_eq!(source.pull(at(0), &mut into), PullResult::Block);
    assert_eq!(into.samples(), numbered(0, 48));
    assert_eq!(source.pull(at(0), &mut into), PullResult::Pending);
    assert_eq!(
        (writer.monitor().lost(), writer.monitor().high_water()),
        (Frames::ZERO, Frames(48))
    );
    drop(source);
    assert_eq!((writer.is_abandoned(), writer.push(&[0.0; 2])), (true, Err(DisconnectedError)));
}

#[test]
fn an_end_is_reported_after_the_sound_with_its_cause() {
    for finished in [true, false] {
        let (mut writer, mut source) = app_source(&lane()).unwrap();
        assert_eq!(writer.push(&numbered(0, 500)), Ok(Frames(500)));
        if finished {
            writer.finish();
        } else {
            drop(writer);
        }
        let mut into = block();
        let mut pulled = || source.pull(at(0), &mut into);
        assert_eq!((pulled(), pulled()), (PullResult::Block, PullResult::Block));
        let end = if finished { PullResult::Ended } else { PullResult::Lost };
        assert_eq!((pulled(), pulled()), (end, end));
    }
}

/// Pushes 5,000 frames in blocks of 500 into a lane of 1,000, which is not read before the end.
fn overfill(rule: LaneOverflow) -> (u64, Vec<(u64, u64)>, Frames, LaneMonitor) {
    let config = lane().capacity(Span::from_nanos(20_833_334)).overflow(rule);
    let (mut sink, mut source) = queue(&config).unwrap();
    let mut taken = 0;
    for first in (0..5_000).step_by(500) {
        let PushResult::Accepted(frames) =
            sink.push(at(0), &numbered_block(first, 500), Frames::ZERO)
        else {
            panic!("it fits");
        };
        taken += frames.0;
    }
    let mut runs = Vec::new();
    let mut into = block();
    while source.pull(at(0), &mut into) == PullResult::Block {
        assert_eq!(into.samples(), numbered(into.pts.0, into.frames().0), "the time is the number");
        runs.push((into.pts.0, into.frames().0));
    }
    // The frames after a loss report it.
    if rule != LaneOverflow::Block {
        assert_eq!(
            sink.push(at(0), &numbered_block(5_000, 10), Frames::ZERO),
            PushResult::Accepted(Frames(10))
        );
        assert_eq!(source.pull(at(0), &mut into), PullResult::Block);
        assert_eq!((into.pts, into.frames()), (MediaTime(5_000), Frames(10)));
    }
    (taken, runs, source.lost(), sink.monitor())
}

#[test]
fn a_full_queue_blocks_or_drops_as_configured_and_counts() {
    let (taken, runs, lost, monitor) = overfill(LaneOverflow::Block);
    assert_eq!((taken, runs, lost), (1_000, vec![(0, 480), (480, 480), (960, 40)], Frames::ZERO));
    assert_eq!(
        (monitor.lost(), monitor.high_water(), monitor.capacity()),
        (Frames(0), Frames(1_000), Frames(1_000))
    );

    let (taken, runs, lost, monitor) = overfill(LaneOverflow::DropOldest);
    assert_eq!(taken, 5_000);
    assert_eq!(runs, [(4_000, 480), (4_480, 480), (4_960, 40)]);
    assert_eq!((lost, monitor.lost()), (Frames(4_000), Frames(4_000)));

    let (taken, runs, lost, monitor) = overfill(LaneOverflow::DropNewest);
    assert_eq!((taken, runs), (5_000, vec![(0, 480), (480, 480), (960, 40)]));
    assert_eq!((lost, monitor.lost()), (Frames(4_000), Frames(4_000)));
}

#[test]
fn a_loss_is_reported_once_to_concurrent_threads() {
    const FRAMES: u64 = 200_000;
    for rule in [LaneOverflow::DropOldest, LaneOverflow::DropNewest] {
        let config = lane().capacity(Span::from_millis(3)).overflow(rule);
        let (mut sink, mut reader) = app_sink(&config).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for first in (0..FRAMES).step_by(100) {
                    let pushed = sink.push(at(0), &numbered_block(first, 100), Frames::ZERO);
                    assert_eq!(pushed, PushResult::Accepted(Frames(100)));
                    if first % 3_000 == 0 {
                        std::thread::yield_now();
                    }
                }
                sink.end(StreamEnd::Finished);
            });
            let (mut got, mut lost, mut next) = (0, 0, 0);
            let mut samples = [0.0; 300];
            while reader.ending().is_none() {
                let taken = reader.pull(&mut samples);
                if taken.frames == Frames::ZERO {
                    std::thread::yield_now();
                    continue;
                }
                assert_eq!(taken.at.0, next + taken.lost.0);
                next = taken.at.0 + taken.frames.0;
                (got, lost) = (got + taken.frames.0, lost + taken.lost.0);
                // Each reader keeps its own order, and the last frame of a read is the expected
                // one.
                let numbers: Vec<f32> =
                    samples.chunks(2).take(taken.frames.as_usize()).map(|frame| frame[0]).collect();
                assert!(numbers.is_sorted_by(|a, b| a < b));
            }
            assert_eq!((got + lost, Frames(lost)), (next, reader.lost()));
            // A loss after the last frame is reported by no later one.
            assert_eq!(reader.monitor().lost().0, FRAMES - got);
        });
    }
}

#[test]
fn readers_of_a_proxy_are_independent_and_a_slow_one_gets_its_loss_count() {
    let (mut sink, mut proxy) = proxy(RATE, STEREO);
    let push = |sink: &mut ProxySink, first: u64| {
        let pushed = sink.push(at(0), &numbered_block(first, 480), Frames::ZERO);
        assert_eq!(pushed, PushResult::Accepted(Frames(480)));
    };
    // Without a reader.
    push(&mut sink, 0);
    let mut quick = proxy.source(&lane()).unwrap();
    let mut slow = proxy.reader(&lane().capacity(Span::from_millis(50))).unwrap();
    let left = proxy.source(&lane()).unwrap();
    let mut into = block();
    for number in 1..=20 {
        push(&mut sink, number * 480);
        assert_eq!(quick.pull(at(0), &mut into), PullResult::Block);
        assert_eq!(into.pts, MediaTime((number - 1) * 480));
        assert_eq!(into.samples(), numbered(number * 480, 480));
        assert_eq!(quick.pull(at(0), &mut into), PullResult::Pending);
    }
    assert_eq!((sink.readers(), quick.lost()), (3, Frames::ZERO));
    drop(left);
    push(&mut sink, 21 * 480);
    assert_eq!(sink.readers(), 2);
    proxy.tidy();
    // 50 ms of 210.
    let mut samples = vec![0.0; 20_000];
    let taken = slow.pull(&mut samples);
    assert_eq!(
        (taken.frames, taken.lost, taken.at),
        (Frames(2_400), Frames(7_680), MediaTime(7_680))
    );
    assert_eq!(samples[..4_800], numbered(22 * 480 - 2_400, 2_400));
    assert_eq!(slow.lost(), Frames(7_680));
    // All readers see the end, also those created after it.
    sink.end(StreamEnd::Finished);
    assert_eq!(quick.pull(at(0), &mut into), PullResult::Block);
    assert_eq!(quick.pull(at(0), &mut into), PullResult::Ended);
    assert_eq!(slow.ending(), Some(StreamEnd::Finished));
}

#[test]
fn a_proxy_has_so_many_readers_and_no_more() {
    let (mut sink, mut proxy) = proxy(RATE, STEREO);
    let mut readers = Vec::new();
    for _ in 0..2 * MAX_READERS {
        readers.push(proxy.reader(&lane().capacity(Span::from_millis(1))).unwrap());
        if readers.len() % 8 == 0 {
            let _ = sink.push(at(0), &numbered_block(0, 1), Frames::ZERO);
        }
    }
    assert_eq!(sink.readers(), MAX_READERS);
    assert_eq!(proxy.reader(&lane()).unwrap_err(), ProxyError::Busy);
    readers.truncate(1);
    let _ = sink.push(at(0), &numbered_block(0, 1), Frames::ZERO);
    let _ = sink.push(at(0), &numbered_block(0, 1), Frames::ZERO);
    assert!(proxy.reader(&lane()).is_ok());
}

#[test]
fn a_graph_on_the_clock_carries_as_many_frames_as_time_has_passed() {
    let (sink, mut reader) = app_sink(&lane().overflow(LaneOverflow::DropOldest)).unwrap();
    let mut graph = Graph::new(tone(), sink, GraphPace::Clock, at(0));
    let mut watch = graph.status_reader();
    // Ten minutes, with a late call now and then.
    let mut samples = vec![0.0; 40_000];
    let mut got = 0;
    for second in 1..=600 {
        play(&mut graph, at(second * 1_000 - 30));
        graph.handle_timeout(at(second * 1_000));
        loop {
            let frames = reader.pull(&mut samples).frames.0;
            got += frames;
            if frames == 0 {
                break;
            }
        }
    }
    let status = *watch.read();
    assert_eq!(status, graph.status());
    // A block is passed on when its first frame is due.
    let wanted = 600 * 48_000;
    assert!((wanted..wanted + 480).contains(&status.frames), "{status:?}");
    assert_eq!((status.stalls, status.waits_for_sink, status.mismatched), (0, 0, 0));
    assert_eq!(got + reader.lost().0, status.frames);
}

#[test]
fn after_a_long_stop_a_graph_does_not_catch_up() {
    let (sink, _reader) = app_sink(&lane().overflow(LaneOverflow::DropOldest)).unwrap();
    let mut graph = Graph::new(tone(), sink, GraphPace::Clock, at(0));
    play(&mut graph, at(1_000));
    let before = graph.status().frames;
    graph.handle_timeout(at(60_000));
    play(&mut graph, at(61_000));
    let status = graph.status();
    assert_eq!(status.stalls, 1);
    assert!(status.frames - before <= 48_960, "{status:?}");
}

#[test]
fn an_unpaced_graph_runs_at_the_speed_of_its_sink_in_bounded_steps() {
    let (sink, mut reader) = app_sink(&lane().capacity(Span::from_secs(100))).unwrap();
    let mut graph = Graph::new(tone(), sink, GraphPace::Free, at(0));
    graph.handle_timeout(at(0));
    let once = graph.status().frames;
    assert!((16_384..17_000).contains(&once), "{once}");
    for call in 1..1_000 {
        graph.handle_timeout(at(call));
    }
    // It is full: 100 s in one, and the rest waits for room.
    assert_eq!(graph.status().frames, 4_800_000);
    assert!(graph.status().waits_for_sink > 0);
    let mut samples = vec![0.0; 200];
    assert_eq!(reader.pull(&mut samples).frames, Frames(100));
    graph.handle_timeout(at(2_000));
    assert_eq!(graph.status().frames, 4_800_100);
}

#[test]
fn a_graph_ends_with_its_source_and_with_its_sink() {
    // The source ends.
    let (mut writer, source) = app_source(&lane()).unwrap();
    let (sink, mut reader) = app_sink(&lane()).unwrap();
    let mut graph = Graph::new(source, sink, GraphPace::Free, at(0));
    graph.handle_timeout(at(0));
    assert_eq!((graph.status().waits_for_source, graph.status().ended), (1, None));
    writer.push(&numbered(0, 700)).unwrap();
    writer.finish();
    graph.handle_timeout(at(10));
    assert_eq!(graph.status().ended, Some(StreamEnd::Finished));
    assert_eq!(graph.poll_timeout(), Instant::from_nanos(u64::MAX));
    let mut samples = vec![0.0; 2_000];
    assert_eq!(
        (reader.pull(&mut samples).frames, reader.ending()),
        (Frames(700), Some(StreamEnd::Finished))
    );
    assert_eq!(samples[..1_400], numbered(0, 700));
    // The receiver is gone.
    let (sink, reader) = app_sink(&lane()).unwrap();
    let mut graph = Graph::new(tone(), sink, GraphPace::Clock, at(0));
    drop(reader);
    graph.handle_timeout(at(0));
    graph.handle_timeout(at(10));
    assert_eq!(graph.status().ended, Some(StreamEnd::Lost));
}

#[test]
fn what_does_not_fit_the_sink_is_counted_and_holds_nothing_up() {
    let cd = Tone::new(440.0, Db::new(-20.0), SampleRate::HZ_44100, STEREO, Frames(441));
    let (sink, mut reader) = app_sink(&lane()).unwrap();
    let mut graph = Graph::new(cd, sink, GraphPace::Clock, at(0));
    play(&mut graph, at(1_000));
    let status = graph.status();
    assert!((44_100..44_541 + 441).contains(&status.mismatched), "{status:?}");
    assert_eq!((status.frames, reader.pull(&mut [0.0; 2]).frames), (0, Frames::ZERO));
}

#[test]
fn two_graphs_are_one_through_a_queue() {
    let (sink, middle) = queue(&lane().pacing(Pacing::LocalClock)).unwrap();
    let (end, mut reader) = app_sink(&lane()).unwrap();
    let mut first = Graph::new(tone(), sink, GraphPace::Clock, at(0));
    let mut second = Graph::new(middle, end, GraphPace::Free, at(0));
    let (mut heard, mut samples) = (Vec::new(), vec![0.0; 20_000]);
    for millis in (0..1_000).step_by(10) {
        first.handle_timeout(at(millis));
        second.handle_timeout(at(millis));
        let frames = reader.pull(&mut samples).frames.as_usize();
        heard.extend_from_slice(&samples[..frames * 2]);
    }
    let (mut wanted, mut block, mut tone) = (Vec::new(), block(), tone());
    while wanted.len() < heard.len() {
        tone.pull(at(0), &mut block);
        wanted.extend_from_slice(block.samples());
    }
    assert!(heard.len() >= 2 * 47_520, "{}", heard.len());
    assert_eq!(heard, wanted[..heard.len()]);
}

//! Once created, the generators never allocate.

use aulos_blackbox::alloc::{calls, calls_during};
use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, SampleRate, SampleSpec, Span};
use aulos_engine::generate::{Demo, TestTone, TestToneSource, Tone};
use aulos_engine::source::{BLOCK_SAMPLES, Source};

fn calls_of(source: &mut dyn Source, blocks: usize) -> u64 {
    let mut into = Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
    let before = calls();
    for _ in 0..blocks {
        source.pull(Instant::ZERO, &mut into);
    }
    calls() - before
}

#[test]
fn pulling_never_touches_the_allocator() {
    assert_eq!(calls_during(|| drop(vec![1])), 2, "the counter counts");
    // More than one pass of the programme, so that every note and the seam are included.
    let mut demo = Demo::new(SampleRate::HZ_48000, Frames(960));
    assert_eq!(calls_of(&mut demo, 9_400), 0);
    let mut tone = Tone::new(
        440.0,
        Db::new(-20.0),
        SampleRate::HZ_48000,
        ChannelLayout::SURROUND_5_1,
        Frames(960),
    );
    assert_eq!(calls_of(&mut tone, 1_000), 0);
    for kind in TestTone::ALL {
        // To its end and beyond.
        let length = Span::from_secs(5);
        let mut tone = TestToneSource::new(kind, length, SampleSpec::DEFAULT, Frames(960));
        assert_eq!(calls_of(&mut tone, 300), 0, "{kind:?}");
    }
}

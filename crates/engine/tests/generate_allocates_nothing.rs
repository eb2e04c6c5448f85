//! Once created, the generators never allocate.

#![allow(unsafe_code, reason = "a counting allocator is the proof, and allocators are unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, SampleRate};
use aulos_engine::generate::{Demo, Tone};
use aulos_engine::source::{BLOCK_SAMPLES, Source};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls_during(source: &mut dyn Source, blocks: usize) -> u64 {
    let mut into = Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
    let before = CALLS.get();
    for _ in 0..blocks {
        source.pull(Instant::ZERO, &mut into);
    }
    CALLS.get() - before
}

#[test]
fn pulling_never_touches_the_allocator() {
    let before = CALLS.get();
    drop(vec![1]);
    assert_eq!(CALLS.get() - before, 2, "the counter counts");
    // More than one pass of the programme, so that every note and the seam are included.
    let mut demo = Demo::new(SampleRate::HZ_48000, Frames(960));
    assert_eq!(calls_during(&mut demo, 9_400), 0);
    let mut tone = Tone::new(
        440.0,
        Db::new(-20.0),
        SampleRate::HZ_48000,
        ChannelLayout::SURROUND_5_1,
        Frames(960),
    );
    assert_eq!(calls_during(&mut tone, 1_000), 0);
}

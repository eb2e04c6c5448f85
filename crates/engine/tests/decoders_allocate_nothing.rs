//! Checks every `# Real-time` line of `decode`: neither a packet nor a loss allocates.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "a counting allocator can only be an unsafe implementation"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::g711::G711Law;
use aulos_engine::decode::{
    Decoder, G711Decoder, G722Decoder, L16Decoder, L24Decoder, OpusPacketDecoder,
};

struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_counter_counts() {
    let before = CALLS.get();
    drop(vec![before]);
    assert_eq!(CALLS.get() - before, 2);
}

#[test]
fn packets_and_holes() {
    let (studio, stereo) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
    let mut decoders: [(Box<dyn Decoder>, Vec<u8>); 6] = [
        (Box::new(G711Decoder::new(G711Law::Mu)), (0..160).collect()),
        (Box::new(G711Decoder::new(G711Law::A)), (0..160).collect()),
        (Box::new(G722Decoder::new()), (0..160).collect()),
        (Box::new(L16Decoder::new(studio, stereo)), (0..192).collect()),
        (Box::new(L24Decoder::new(studio, stereo)), (0..240).chain(0..48).collect()),
        // CELT, 20 ms: any bytes decode to audio.
        (
            Box::new(OpusPacketDecoder::new(studio, 1).unwrap()),
            [31 << 3].into_iter().chain(1..100).collect(),
        ),
    ];
    let mut out = [0.0; 5_760];
    for (decoder, packet) in &mut decoders {
        let frames = decoder.frames(packet).unwrap() * decoder.channels();
        let mut heard = 0.0;
        let mut before = 0;
        for round in 0..200 {
            if round == 50 {
                before = CALLS.get();
            }
            match round % 7 {
                2 => decoder.recover(packet, &mut out[..frames]),
                3..5 => decoder.conceal(&mut out[..frames]),
                _ => assert!(decoder.decode(packet, &mut out).is_ok()),
            }
            heard += out[0].abs();
        }
        assert_eq!(CALLS.get() - before, 0, "{frames}");
        assert!(heard > 0.0, "nothing was heard of {frames}");
    }
}

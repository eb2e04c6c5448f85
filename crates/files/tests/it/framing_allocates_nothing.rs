//! Framing a recording: with fully grown buffers, WAVE and Opus do not allocate, and the FLAC
//! library allocates only for audio that is harder to compress than all before.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

use std::sync::atomic::Ordering::SeqCst;
use std::time::UNIX_EPOCH;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_files::record::format::{FileMetadata, make_file_encoder};

use crate::counting::{ALLOCATED, COUNTING, FREED};

/// Allocations and frees of ten seconds, after ten seconds of warm-up.
fn counted(format: &str, channels: usize) -> (u64, u64) {
    let layout = ChannelLayout::new(channels).unwrap();
    let metadata = FileMetadata::new(SampleRate::HZ_48000, layout, "Hall", UNIX_EPOCH);
    let (mut out, mut patches) = (Vec::with_capacity(1 << 20), Vec::with_capacity(16));
    let mut encoder = make_file_encoder(format.parse().unwrap(), &metadata, &mut out).unwrap();
    let samples: Vec<f32> = (0..960 * channels).map(|n| (n as f32 * 0.013).sin() * 0.5).collect();
    for round in 0..1_000 {
        if round == 500 {
            ALLOCATED.store(0, SeqCst);
            FREED.store(0, SeqCst);
            COUNTING.store(true, SeqCst);
        }
        encoder.write(&samples, &mut out).unwrap();
        if round % 10 == 9 {
            encoder.flush(&mut out, &mut patches);
            out.clear();
            patches.clear();
        }
    }
    COUNTING.store(false, SeqCst);
    (ALLOCATED.load(SeqCst), FREED.load(SeqCst))
}

#[test]
fn a_running_recording_does_not_allocate() {
    // Only threads with these names are counted.
    let work = || {
        for (format, channels) in [
            ("wav:16", 2),
            ("wav:24", 6),
            ("wav:f32", 2),
            ("flac:16", 2),
            ("flac:24", 1),
            ("opus:96k", 2),
            ("opus:24k", 1),
        ] {
            assert_eq!(counted(format, channels), (0, 0), "{format}, {channels} channels");
        }
    };
    let thread = std::thread::Builder::new().name("aulos-record-test".into()).spawn(work);
    thread.unwrap().join().unwrap();
}

//! Fuzz targets: each accepts arbitrary bytes and checks a property of a machine.
//!
//! They are plain functions, so that `cargo test` runs them on the corpus and on seeded mutations
//! with a stable compiler, and cargo-fuzz (`fuzz/`) runs the same functions for hours.

#![allow(clippy::missing_panics_doc, clippy::panic, reason = "to panic is how a target says no")]

use std::sync::Arc;

use aulos_core::{ChannelLayout, Frames, SampleRate};
use aulos_proto::mp3::{MainData, whole_frames};
use aulos_proto::ogg::{ParsedPage, parse_page};
use aulos_proto::packets::{FormatHint, PacketSplitter, SplitterEvent};
use aulos_session::mount::{FrameFormat, MountCodec, MountFormat, MountStream};

/// All targets by name, which is also the name of the corpus.
pub const TARGETS: [(&str, FuzzTarget); 1] = [("mount", mount)];

/// Accepts any bytes, and panics when a property is violated.
pub type FuzzTarget = fn(&[u8]);

/// A mount whose sources send anything: what listeners get is whole frames or pages, no MP3 frame
/// needs data that are not there, and every Ogg link but the last one ends.
///
/// ```text
///  codec | step, length / 16, bytes | step, length / 16, bytes | ...
/// ```
pub fn mount(data: &[u8]) {
    let Some((&codec, mut rest)) = data.split_first() else { return };
    let codec = MountCodec::ALL[usize::from(codec) % MountCodec::ALL.len()];
    let (rate, layout) = (SampleRate::HZ_44100, ChannelLayout::STEREO);
    let mut stream = MountStream::new(MountFormat { codec, rate, layout }, 1);
    let (mut out, mut header, mut are_whole) = (Vec::new(), None, true);
    while let [step, length, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(*length) * 16));
        rest = behind;
        match step % 4 {
            0 => push_source(&mut stream, bytes),
            1 => stream.skip(),
            2 => stream.end_batch(),
            // No splitter gives such a frame.
            _ => {
                are_whole = false;
                stream.push(bytes, Frames(bytes.len() as u64));
            }
        }
        drain(&mut stream, &mut out, &mut header);
    }
    assert!(stream.poll_output().is_none(), "all has been taken");
    // Headers of Ogg have a vendor and a title; lacing and page headers are less than the rest.
    assert!(out.len() <= data.len() * 8 + 1_000 * (data.len() / 2 + 1), "{} bytes", out.len());
    match codec {
        MountCodec::Mp3 if are_whole => check_mp3(&out),
        MountCodec::Mp3 | MountCodec::Aac => {}
        MountCodec::Opus | MountCodec::Vorbis | MountCodec::Flac => check_ogg(&out),
    }
}

/// Passes the packets of a stream, if the mount can.
fn push_source(stream: &mut MountStream, bytes: &[u8]) {
    let MountFormat { rate, layout, .. } = stream.format();
    let mut splitter = PacketSplitter::new(FormatHint::None);
    let (mut at, mut is_passed) = (0, false);
    while let Ok(event) = splitter.next() {
        match event {
            Some(SplitterEvent::Begin(start)) => {
                let format = FrameFormat { packets: start.format, rate, layout };
                is_passed = stream.begin(&format, None).is_ok();
            }
            Some(SplitterEvent::Packet(_)) if is_passed => {
                stream.push(splitter.packet(), Frames(1_152));
            }
            Some(SplitterEvent::Lost(_)) => stream.skip(),
            Some(_) => {}
            None => {
                let taken = splitter.push(&bytes[at..]);
                if taken == 0 {
                    return;
                }
                at += taken;
            }
        }
    }
}

/// What a listener gets that has joined at the start.
fn drain(stream: &mut MountStream, out: &mut Vec<u8>, last: &mut Option<Arc<[u8]>>) {
    while let Some(chunk) = stream.poll_output() {
        if chunk.header != last.as_ref() {
            *last = chunk.header.cloned();
            out.extend_from_slice(last.as_deref().unwrap_or_default());
        }
        out.extend_from_slice(chunk.bytes);
    }
}

fn check_mp3(out: &[u8]) {
    let (mut available, mut whole) = (0, 0);
    for (frame, _) in whole_frames(out) {
        whole += frame.len();
        let Some(data) = MainData::of_frame(frame) else { continue };
        assert!(data.begin <= available, "it needs {} of {available}", data.begin);
        available += data.own;
    }
    assert_eq!(whole, out.len(), "frames are whole");
}

fn check_ogg(mut out: &[u8]) {
    let mut open = None;
    while !out.is_empty() {
        let Ok(ParsedPage::Page(page)) = parse_page(out) else { panic!("no page") };
        assert_eq!(page.first, open.is_none(), "a link begins when the one before has ended");
        assert!(open.is_none_or(|serial| serial == page.serial), "one link at a time");
        open = (!page.last).then_some(page.serial);
        out = &out[page.total_len()..];
    }
}

//! Fuzz targets: each accepts arbitrary bytes and checks a property of a machine.
//!
//! They are plain functions, so that `cargo test` runs them on the corpus and on seeded mutations
//! with a stable compiler, and cargo-fuzz (`fuzz/`) runs the same functions for hours.

#![allow(clippy::missing_panics_doc, clippy::panic, reason = "to panic is how a target says no")]

use std::sync::Arc;

use aulos_core::{ChannelLayout, Frames, Instant, SampleRate, Span};
use aulos_engine::source::SourceItem;
use aulos_proto::mp3::{MainData, whole_frames};
use aulos_proto::ogg::{ParsedPage, parse_page};
use aulos_proto::packets::{FormatHint, PacketSplitter, SplitterEvent};
use aulos_session::mount::{FrameFormat, MountCodec, MountFormat, MountStream};
use aulos_session::talk::{MAX_AHEAD, MAX_HELD, MAX_LATE, Talk, TalkFormat, TalkSink};

/// All targets by name, which is also the name of the corpus.
pub const TARGETS: [(&str, FuzzTarget); 2] = [("mount", mount), ("talk", talk)];

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

/// A microphone that sends anything at any time: a talk ends once, what is handed over was sent,
/// and a timer that has fired is over.
///
/// ```text
///  format | pause in ms, length / 4, bytes | pause in ms, length / 4, bytes | ...
/// ```
pub fn talk(data: &[u8]) {
    let Some((&format, mut rest)) = data.split_first() else { return };
    let channels = 1 + format % 2;
    let format = match format / 2 % 3 {
        0 => TalkFormat::Opus { channels },
        1 => TalkFormat::Pcm { rate: SampleRate::HZ_48000, channels },
        _ => TalkFormat::Pcm { rate: SampleRate::HZ_44100, channels },
    };
    let (sink, mut sound) = TalkSink::new();
    let begin = Instant::ZERO + Span::from_secs(1);
    let mut now = begin;
    let mut talk = Talk::new(sink, format, now);
    let (mut samples, mut ends) = (0, 0);
    let mut take = |blocks: usize| {
        for _ in 0..blocks {
            match sound.items.pop() {
                Some(SourceItem::Block(block)) => samples += block.samples().len(),
                Some(SourceItem::End) => ends += 1,
                Some(SourceItem::Lost) => panic!("a talk ends cleanly"),
                None => return,
            }
        }
    };
    while let [pause, length, behind @ ..] = rest {
        let (frame, behind) = behind.split_at(behind.len().min(usize::from(*length) * 4));
        rest = behind;
        let until = now + Span::from_millis((*pause).into());
        while let Some(at) = talk.poll_timeout().filter(|at| *at <= until) {
            now = now.max(at);
            talk.handle_timeout(now);
            assert_ne!(talk.poll_timeout(), Some(at), "a timer fires again");
        }
        now = until;
        talk.handle_frame(now, frame);
        // The room is busy at times.
        take(usize::from(pause / 64));
    }
    talk.end(now, None);
    while let Some(at) = talk.poll_timeout() {
        now = now.max(at);
        take(usize::MAX);
        talk.handle_timeout(now);
    }
    take(usize::MAX);
    assert_eq!(ends, 1);
    let most = format.rate().frames(now - begin + MAX_AHEAD + MAX_LATE + MAX_HELD);
    assert!(samples <= (most.as_usize() + 5_760) * format.channels(), "{samples} samples");
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

//! Programmes of many sources, judged by other decoders.

use std::fs;
use std::process::{Command, Output, Stdio};

use aulos_blackbox::peer;
use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{ChannelLayout, Rng, SampleRate};
use aulos_proto::mp3::MainData;
use aulos_proto::ogg::{ParsedPage, parse_page};
use aulos_proto::packets::{FormatHint, PacketSplitter, SplitterEvent};

use super::*;

/// Made by LAME 3.100: 128 kbit/s, VBR, and 128 kbit/s with checksums; joint stereo, 44,100 Hz.
const MP3: [&[u8]; 3] = [
    include_bytes!("../../tests/vectors/mp3_128.mp3"),
    include_bytes!("../../tests/vectors/mp3_variable.mp3"),
    include_bytes!("../../tests/vectors/mp3_protected.mp3"),
];

const FORMAT: MountFormat = MountFormat {
    codec: MountCodec::Mp3,
    rate: SampleRate::HZ_44100,
    layout: ChannelLayout::STEREO,
};

/// The frames of a stream, and its format.
fn split(bytes: &[u8]) -> (FrameFormat, Vec<Vec<u8>>) {
    let mut splitter = PacketSplitter::new(FormatHint::None);
    let (mut format, mut frames, mut at) = (None, Vec::new(), 0);
    loop {
        at += splitter.push(&bytes[at..]);
        if at == bytes.len() {
            splitter.finish();
        }
        match splitter.next().unwrap() {
            Some(SplitterEvent::Begin(start)) => format = Some(start.format),
            Some(SplitterEvent::Packet(_)) => frames.push(splitter.packet().to_vec()),
            Some(_) => {}
            None if at == bytes.len() => break,
            None => {}
        }
    }
    let (rate, layout) = (FORMAT.rate, FORMAT.layout);
    (FrameFormat { packets: format.unwrap(), rate, layout }, frames)
}

/// What a listener gets that joins at the start.
fn drain(stream: &mut MountStream, out: &mut Vec<u8>, last: &mut Option<Arc<[u8]>>) {
    stream.end_batch();
    while let Some(chunk) = stream.poll_output() {
        if let Some(header) = chunk.header
            && !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, header))
        {
            out.extend_from_slice(header);
            *last = Some(Arc::clone(header));
        }
        out.extend_from_slice(chunk.bytes);
    }
}

/// A stream of so many sources in turn, each for 40 frames more than `least` at most, from any
/// position.
fn switch(
    sources: &[(FrameFormat, Vec<Vec<u8>>)],
    format: MountFormat,
    (switches, duration, least): (usize, Frames, usize),
) -> (Vec<u8>, MountStats) {
    let (mut stream, mut rng) = (MountStream::new(format, 1), Rng::new(40));
    let (mut out, mut last) = (Vec::new(), None);
    for switch in 0..switches {
        let (format, frames) = &sources[switch % sources.len()];
        stream.begin(format, None).unwrap();
        let at = rng.below(frames.len() - least);
        let count = least + rng.below(40);
        for frame in frames.iter().cycle().skip(at).take(count.min(frames.len() - at)) {
            stream.push(frame, duration);
        }
        drain(&mut stream, &mut out, &mut last);
    }
    (out, stream.stats())
}

fn run(program: &str, arguments: &[&str], input: Stdio) -> Option<Output> {
    let program = peer::find_or_skip(program)?;
    Some(Command::new(program).args(arguments).stdin(input).output().unwrap())
}

/// What the decoders say against a stream: nothing, if it has no error.
#[allow(clippy::disallowed_methods, reason = "mpg123 reads a file")]
fn complaints(bytes: &[u8], mpg123: bool) -> String {
    let dir = ScratchDir::new("mount").unwrap();
    let path = dir.path().join("stream");
    fs::write(&path, bytes).unwrap();
    // As a stream: in a file, ffmpeg reads the end first.
    let (input, mut all) = (fs::File::open(&path).unwrap().into(), String::new());
    let ffmpeg = ["-v", "error", "-xerror", "-i", "-", "-f", "s16le", "-y", "/dev/null"];
    if let Some(output) = run("ffmpeg", &ffmpeg, input) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The lengths of Vorbis packets are guessed here, so that positions are not exact.
        all.extend(said.lines().filter(|line| !line.contains("non monotonically")));
    }
    if mpg123 && let Some(output) = run("mpg123", &["-t", path.to_str().unwrap()], Stdio::null()) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_complaint =
            |line: &&str| ["error", "Note", "arning"].iter().any(|it| line.contains(it));
        all.extend(said.lines().filter(is_complaint));
    }
    all
}

#[test]
fn a_thousand_switches_of_mp3_decode_without_a_word() {
    let sources: Vec<_> = MP3.iter().map(|bytes| split(bytes)).collect();
    let (out, stats) = switch(&sources, FORMAT, (1_000, Frames(1_152), 1));
    assert_eq!(stats.splices, 1_000);
    assert!(stats.silenced > 500 && stats.silenced < stats.frames / 2, "{stats:?}");
    assert_eq!(complaints(&out, true), "");
}

/// The judge can fail: the same frames without the care for the reservoir.
#[test]
fn frames_that_are_only_put_one_behind_the_other_do_not() {
    let sources: Vec<_> = MP3.iter().map(|bytes| split(bytes)).collect();
    let parts = sources.iter().cycle().enumerate().take(60);
    let frames = parts.flat_map(|(part, (_, frames))| frames.iter().skip(part * 7 % 30).take(12));
    let bytes: Vec<u8> = frames.flatten().copied().collect();
    if peer::find_or_skip("mpg123").is_some() {
        assert_ne!(complaints(&bytes, true), "");
    }
}

#[test]
fn only_the_first_frames_of_a_source_are_silent_and_the_rest_is_as_it_came() {
    let (format, frames) = split(MP3[1]);
    let mut stream = MountStream::new(FORMAT, 0);
    stream.begin(&format, None).unwrap();
    let (mut available, mut silenced) = (0, 0);
    for frame in &frames[10..] {
        let before = MainData::of_frame(frame).unwrap();
        stream.push(frame, Frames(1_152));
        let chunk = stream.poll_output().unwrap();
        assert_eq!(chunk.duration, Frames(1_152));
        if before.begin > available {
            silenced += 1;
            assert_ne!(chunk.bytes, frame);
        } else {
            assert_eq!(chunk.bytes, frame);
        }
        available += before.own;
    }
    assert!((1..=9).contains(&silenced), "{silenced}");
    assert_eq!(stream.stats().silenced, silenced);
    assert!(stream.poll_output().is_none());
}

#[test]
fn a_source_that_has_lost_frames_is_spliced_again() {
    let (format, frames) = split(MP3[1]);
    let mut stream = MountStream::new(FORMAT, 0);
    stream.begin(&format, None).unwrap();
    for (number, frame) in frames.iter().enumerate() {
        if (20..24).contains(&number) {
            continue;
        }
        if number == 24 {
            stream.skip();
        }
        stream.push(frame, Frames(1_152));
    }
    let (mut out, mut last) = (Vec::new(), None);
    drain(&mut stream, &mut out, &mut last);
    assert!(stream.stats().silenced > 0);
    assert_eq!(complaints(&out, true), "");
}

/// A source that `ffmpeg` encodes: two seconds of a tone of this frequency.
fn encoded(hz: u32, arguments: &[&str]) -> Option<(FrameFormat, Vec<Vec<u8>>)> {
    let input = format!("sine={hz}:duration=2,aformat=sample_rates=44100:channel_layouts=stereo");
    let input = ["-v", "error", "-f", "lavfi", "-i", &input];
    let output = run("ffmpeg", &[&input, arguments, &["-"]].concat(), Stdio::null())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(split(&output.stdout))
}

#[test]
fn aac_gets_its_headers_back_and_is_switched_at_any_frame() {
    let arguments = ["-c:a", "aac", "-b:a", "96k", "-f", "adts"];
    let Some(sources) =
        [440, 660].into_iter().map(|hz| encoded(hz, &arguments)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let format = MountFormat { codec: MountCodec::Aac, ..FORMAT };
    let (out, stats) = switch(&sources, format, (1_000, Frames(1_024), 1));
    assert_eq!((stats.splices, stats.silenced), (1_000, 0));
    let (again, frames) = split(&out);
    assert_eq!(again.packets, sources[0].0.packets);
    assert_eq!(frames.len() as u64, stats.frames);
    assert_eq!(complaints(&out, false), "");
}

#[test]
fn ogg_gets_a_link_for_every_source() {
    let codecs: [(MountCodec, &[&str], u64); 3] = [
        (MountCodec::Opus, &["-c:a", "libopus", "-f", "ogg"], 960),
        (MountCodec::Vorbis, &["-c:a", "libvorbis", "-f", "ogg"], 1_024),
        (MountCodec::Flac, &["-c:a", "flac", "-f", "ogg"], 4_608),
    ];
    // With fewer packets than an encoder needs to start, ffmpeg takes two links for one.
    for (codec, arguments, duration) in codecs {
        let Some(sources) =
            [440, 660].into_iter().map(|hz| encoded(hz, arguments)).collect::<Option<Vec<_>>>()
        else {
            return;
        };
        let format = MountFormat { codec, ..FORMAT };
        let (out, stats) = switch(&sources, format, (100, Frames(duration), 12));
        let (mut rest, mut first, mut last, mut serials) = (&out[..], 0, 0, Vec::new());
        while !rest.is_empty() {
            let Ok(ParsedPage::Page(page)) = parse_page(rest) else { panic!("{codec}: no page") };
            first += u32::from(page.first);
            last += u32::from(page.last);
            serials.push(page.serial);
            rest = &rest[page.total_len()..];
        }
        serials.dedup();
        assert_eq!((first, last, serials.len()), (100, 99, 100), "{codec}");
        assert_eq!(stats.splices, 100);
        assert_eq!(split(&out).1.len() as u64, stats.frames, "{codec}");
        assert_eq!(complaints(&out, false), "", "{codec}");
    }
}

#[test]
fn a_source_of_another_format_is_not_passed() {
    let (format, _) = split(MP3[0]);
    let mut stream = MountStream::new(FORMAT, 0);
    let other = FrameFormat { rate: SampleRate::HZ_48000, ..format.clone() };
    let error = stream.begin(&other, None).unwrap_err();
    assert_eq!(error.to_string(), "it sends 48000 Hz, the mount 44100 Hz");
    let other = FrameFormat { layout: ChannelLayout::MONO, ..format.clone() };
    assert!(matches!(stream.begin(&other, None), Err(PassObstacle::Channels { .. })));
    let mut aac = MountStream::new(MountFormat { codec: MountCodec::Aac, ..FORMAT }, 0);
    let error = aac.begin(&format, None).unwrap_err();
    assert_eq!(error.to_string(), "it sends mp3, the mount aac");
    assert_eq!(stream.stats(), MountStats::default());
}

//! Complete files as other programs read them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{ChannelLayout, Frames, SampleRate};
use aulos_files::record::format::{FileFormat, FileMetadata, make_file_encoder, repair};

use super::{decoded_by_ffmpeg, file, format, metadata, music, write_file};

fn probed(path: &Path) -> String {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-show_format", "-show_streams"])
        .arg(path)
        .output()
        .expect("ffprobe must be installed: it comes with ffmpeg");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn files_state_their_origin_and_channel_layout() {
    let scratch = ScratchDir::new("made").unwrap();
    for (name, channels, lines) in [
        (
            "wav:24",
            6,
            &[
                "channel_layout=5.1",
                "TAG:comment=Hall",
                "TAG:encoded_by=aulos",
                "TAG:date=2026-11-22",
                "TAG:creation_time=10:15:01",
                "TAG:time_reference=1771248000",
                "TAG:coding_history=A=PCM,F=48000,W=24,M=multichannel,T=aulos",
            ][..],
        ),
        ("wav:16", 2, &["channels=2", "TAG:time_reference=1771248000"]),
        ("flac:16", 8, &["channel_layout=7.1", "TAG:TITLE=Hall"]),
        (
            "flac:24",
            2,
            &[
                "bits_per_raw_sample=24",
                "duration_ts=1000",
                "TAG:DATE=2026-11-22T10:15:01Z",
                "TAG:TIME_REFERENCE=1771248000",
            ],
        ),
        ("opus:32k", 1, &["channels=1", "TAG:DATE=2026-11-22T10:15:01Z", "TAG:TITLE=Hall"]),
        (
            "mp3:128k,builtin",
            2,
            &[
                "bit_rate=128000",
                "start_time=0.022021",
                "duration=0.048000",
                "TAG:title=Hall",
                "TAG:date=2026-11-22T10:15:01",
                "TAG:TIME_REFERENCE=1771248000",
            ],
        ),
        (
            "m4a:128k",
            2,
            &[
                "start_time=0.000000",
                "duration=0.020833",
                "TAG:title=Hall",
                "TAG:date=2026-11-22T10:15:01Z",
                "TAG:TIME_REFERENCE=1771248000",
            ],
        ),
    ] {
        let kind = format(name);
        let path = scratch.join(format!("{name}.{}", kind.extension()));
        let metadata = metadata(48_000, channels).after(Frames(36_000));
        write_file(&path, &file(kind, &metadata, &music(48_000, channels, 1_000)));
        let report = probed(&path);
        for line in lines {
            assert!(report.contains(line), "{name}: no {line} in\n{report}");
        }
    }
}

/// ffmpeg decodes the file and computes the sum of its samples.
#[test]
fn a_flac_file_has_the_md5_sum_of_its_samples() {
    let scratch = ScratchDir::new("made-md5").unwrap();
    // Whole blocks, a part of one, and less than one; and above full scale, which is clipped.
    for (name, channels, frames, gain) in [
        ("flac:16", 2, 8_192, 1.0),
        ("flac:24", 2, 10_001, 1.0),
        ("flac:16", 1, 100, 4.0),
        ("flac:24", 6, 5_000, 4.0),
    ] {
        let path = scratch.join(format!("{channels}-{frames}.flac"));
        let sound: Vec<f32> =
            music(48_000, channels, frames).iter().map(|sample| sample * gain).collect();
        write_file(&path, &file(format(name), &metadata(48_000, channels), &sound));
        let bytes = std::fs::read(&path).unwrap();
        let report: String = bytes[26..42].iter().map(|byte| format!("{byte:02x}")).collect();
        let codec = if name == "flac:16" { "pcm_s16le" } else { "pcm_s24le" };
        let output = Command::new("ffmpeg")
            .args(["-hide_banner", "-nostdin", "-v", "error", "-i"])
            .arg(&path)
            .args(["-c:a", codec, "-f", "md5", "-"])
            .output()
            .expect("ffmpeg must be installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let decoded = String::from_utf8_lossy(&output.stdout);
        assert_eq!(decoded.trim(), format!("MD5={report}"), "{name}, {channels} channels");
        // A truncated file has another sum, which is unknown.
        let torn = File::options().read(true).write(true).open(&path).unwrap();
        torn.set_len(bytes.len() as u64 - 10).unwrap();
        if repair(&torn).is_ok() {
            let mut sum = [1; 16];
            torn.read_exact_at(&mut sum, 26).unwrap();
            assert_eq!(sum, [0; 16], "{name}");
        }
    }
}

/// For any number of splits, and at midnight.
#[test]
fn time_references_are_exact() {
    let (rate, day) = (SampleRate::HZ_44100, 86_400 * 44_100);
    let begun = UNIX_EPOCH + Duration::new(1_795_391_999, 999_999_999);
    let first = FileMetadata::new(rate, ChannelLayout::MONO, "Hall", begun);
    assert_eq!(first.time_reference, Frames(day - 1));
    let (mut metadata, mut frames) = (first.clone(), 0);
    for length in (1..2_000).map(|number| number * 37 % 50_000) {
        metadata = metadata.after(Frames(length));
        frames += length;
        assert_eq!(metadata.time_reference, Frames((day - 1 + frames) % day));
        assert_eq!(first.after(Frames(frames)).time_reference, metadata.time_reference);
    }
}

#[test]
fn unsupported_sound_is_reported_with_a_remedy() {
    for (name, hz, channels, report) in [
        (
            "opus:64k",
            44_100,
            2,
            "opus supports 48000 Hz only: record flac or wav, or run the station",
        ),
        ("opus:64k", 48_000, 6, "opus supports at most 2 channels: record flac or wav"),
        ("mp3:64k", 96_000, 2, "mp3 requires 16000, 22050, 24000, 32000, 44100 or 48000 Hz"),
        ("mp3:64k", 48_000, 6, "mp3 supports at most 2 channels: record flac or wav"),
        ("m4a:64k", 48_000, 6, "aac supports at most 2 channels: record flac or wav"),
        ("flac:16", 48_000, 9, "flac supports at most 8 channels: record wav"),
        ("flac:16", 705_607, 2, "flac does not support this sample rate: record wav"),
    ] {
        let refused = make_file_encoder(format(name), &metadata(hz, channels), &mut Vec::new());
        let refused = refused.err().map(|refused| refused.to_string()).unwrap_or_default();
        assert!(refused.starts_with(report), "{refused}");
    }
    let odd =
        make_file_encoder(FileFormat::Flac { bits: 20 }, &metadata(48_000, 2), &mut Vec::new());
    assert!(odd.is_err());
    for channels in 1..=64 {
        assert!(
            make_file_encoder(format("wav:f32"), &metadata(384_000, channels), &mut Vec::new())
                .is_ok()
        );
    }
}

/// A file whose writer was killed beyond 4 GiB before its header was patched; most of it is a
/// sparse hole.
#[test]
fn a_torn_file_beyond_4_gib_becomes_rf64() {
    let scratch = ScratchDir::new("made").unwrap();
    let path = scratch.join("long.wav");
    let sound = music(48_000, 2, 9_600);
    let file = write_file(&path, &file(format("wav:16"), &metadata(48_000, 2), &[]));
    let head = file.metadata().unwrap().len();
    let before = 1_100_000_000_u64;
    let mut bytes = vec![0; sound.len() * 2];
    aulos_dsp::convert::encode(aulos_core::SampleFormat::S16Le, &sound, &mut bytes);
    file.write_all_at(&bytes, head + before * 4).unwrap();
    file.write_all_at(&[1, 2, 3], head + (before + 9_600) * 4).unwrap();
    let whole = repair(&file).unwrap();
    assert_eq!(
        (whole.frames, whole.truncated_bytes, whole.changed),
        (Frames(before + 9_600), 3, true)
    );
    assert!(!repair(&file).unwrap().changed);
    let mut name = [0; 4];
    file.read_exact_at(&mut name, 0).unwrap();
    assert_eq!(&name, b"RF64");
    let report = probed(&path);
    assert!(report.contains(&format!("duration_ts={}", before + 9_600)), "{report}");
    let tail = scratch.join("tail.wav");
    let from = format!("{:.6}", (before as f64) / 48_000.0);
    let status = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-v", "error", "-y", "-ss", &from, "-i"])
        .arg(&path)
        .args(["-c:a", "copy"])
        .arg(&tail)
        .status();
    assert!(status.unwrap().success());
    let (parts, _) = decoded_by_ffmpeg(&[tail], aulos_core::SampleFormat::S16Le);
    // ffmpeg seeks to whole packets.
    assert!(
        !parts[0].is_empty() && bytes.ends_with(&parts[0][parts[0].len().saturating_sub(4_000)..])
    );
    drop(File::open(&path));
}

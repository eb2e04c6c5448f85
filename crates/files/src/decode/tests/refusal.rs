//! Files that are not audio are refused with a helpful reason.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use super::super::{FileDecodeOptions, FileDecoder, OpenError};
use super::fixture::Folder;

fn refusal(path: &Path) -> Option<OpenError> {
    FileDecoder::open(path, FileDecodeOptions::default()).err()
}

#[test]
fn missing_files_directories_devices_and_fifos() {
    let folder = Folder::new();
    assert_eq!(refusal(&folder.file("missing.flac")), Some(OpenError::NoSuchFile));
    assert_eq!(refusal(&folder.file("")), Some(OpenError::NotAFile));
    assert_eq!(refusal(Path::new("/dev/zero")), Some(OpenError::NotAFile));
    let fifo = folder.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(refusal(&fifo), Some(OpenError::NotAFile));
}

#[test]
fn what_is_no_sound() {
    let folder = Folder::new();
    let text = "It was a bright cold day in April. ".repeat(3_000);
    assert_eq!(refusal(&folder.write("empty.wav", b"")), Some(OpenError::Empty));
    assert_eq!(refusal(&folder.write("empty.raw", b"")), Some(OpenError::Empty));
    assert_eq!(refusal(&folder.write("a.txt", text.as_bytes())), Some(OpenError::NotAudio));
    assert_eq!(refusal(&folder.write("a.mp3", text.as_bytes())), Some(OpenError::NotAudio));
    assert_eq!(refusal(&folder.write("zero", &[0; 300_000])), Some(OpenError::NotAudio));
}

#[test]
fn unsupported_kinds_have_their_names() {
    let folder = Folder::new();
    for (name, arguments, kind) in [
        ("a.wv", "-c:a wavpack", "WavPack"),
        ("a.wma", "-c:a wmav2", "Windows Media (ASF, WMA)"),
        ("a.ts", "-c:a aac -f mpegts", "MPEG-TS"),
        ("mp3.wav", "-c:a libmp3lame -f wav", "MP3 in WAVE"),
        ("a.ac3", "-c:a ac3", "AC-3"),
        ("a.w64", "-c:a pcm_s16le", "Wave64 (W64)"),
        ("a.au", "-c:a pcm_s16be", "Sun audio (AU)"),
        ("a.tta", "-c:a tta", "True Audio (TTA)"),
    ] {
        let path = folder.encoded(name, 48_000, 16, arguments);
        assert_eq!(refusal(&path), Some(OpenError::UnsupportedKind(kind)), "{name}");
    }
    let whole = fs::read(folder.encoded("a.m4a", 48_000, 16, "-c:a aac")).unwrap();
    let half = folder.write("half.m4a", &whole[..whole.len() / 2]);
    assert_eq!(refusal(&half), Some(OpenError::NoIndex));
}

#[test]
fn headers_without_a_frame_have_no_sound() {
    let folder = Folder::new();
    let whole = fs::read(folder.encoded("a.wav", 48_000, 16, "-c:a pcm_s16le")).unwrap();
    let data = whole.windows(4).position(|part| part == b"data").unwrap() + 8;
    let mut header = whole[..data].to_vec();
    assert_eq!(refusal(&folder.write("a.wav", &header)), Some(OpenError::Torn));
    header[data - 4..].fill(0);
    assert_eq!(refusal(&folder.write("b.wav", &header)), Some(OpenError::NoFrames));
}

#[test]
fn a_codec_that_is_not_supported() {
    let folder = Folder::new();
    let ac3 = folder.encoded("a.mkv", 48_000, 16, "-c:a ac3");
    assert_eq!(refusal(&ac3), Some(OpenError::UnsupportedCodec));
}

#[test]
fn a_head_without_a_body_is_torn() {
    let folder = Folder::new();
    let whole = fs::read(folder.encoded("a.flac", 48_000, 16, "-c:a flac")).unwrap();
    assert_eq!(refusal(&folder.write("b.flac", &whole[..30])), Some(OpenError::Torn));
}

/// Root may read every file, so root runs this test once more as an unprivileged user.
#[test]
fn what_may_not_be_read() {
    const GIVEN: &str = "AULOS_TEST_UNREADABLE";
    if let Ok(path) = env::var(GIVEN) {
        assert_eq!(refusal(Path::new(&path)), Some(OpenError::Permission));
        return;
    }
    let folder = Folder::new();
    fs::set_permissions(folder.file(""), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.write("secret.wav", b"RIFF");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_err() {
        assert_eq!(refusal(&path), Some(OpenError::Permission));
        return;
    }
    let program = folder.file("test");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(&program)
        .args(["--exact", "decode::tests::refusal::what_may_not_be_read"])
        .env(GIVEN, &path)
        .current_dir("/")
        .uid(65_534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

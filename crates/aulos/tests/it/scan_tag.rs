//! `aulos scan --tag`: what is written, judged by ffprobe and loudgain, and what is never broken.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::scratch;
use serde_json::Value;

struct Done {
    code: i32,
    out: String,
    err: String,
}

fn run(command: &mut Command) -> Done {
    let Output { status, stdout, stderr } = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: see scripts/test-setup"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Done { code: status.code().expect("no signal ends it"), out: text(stdout), err: text(stderr) }
}

fn aulos(arguments: &str, paths: &[&Path]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    run(command.arg("scan").args(arguments.split_whitespace()).args(paths))
}

fn ffmpeg(arguments: &str, to: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-y"]).args(arguments.split_whitespace()).arg(to);
    let done = run(&mut command);
    assert_eq!(done.code, 0, "{}", done.err);
}

/// Five seconds of noise with a title.
fn sound(to: &Path, level: f64, arguments: &str) {
    let source = format!("anoisesrc=d=5:r=48000:a={level}:seed=7");
    let options = format!("-f lavfi -i {source} -ac 2 -metadata title=Kept {arguments}");
    ffmpeg(&options, to);
}

/// All tags of a file and its streams, as FFmpeg reads them, by small letters.
fn tags(path: &Path) -> Vec<(String, String)> {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_entries", "format_tags:stream_tags", "-of", "json"]);
    let all: Value = serde_json::from_str(&run(command.arg(path)).out).unwrap();
    let places = [&all["format"]["tags"], &all["streams"][0]["tags"]];
    let pairs = places.into_iter().filter_map(Value::as_object).flatten();
    let mut pairs: Vec<(String, String)> = pairs
        .map(|(key, value)| (key.to_ascii_lowercase(), value.as_str().unwrap().into()))
        .collect();
    pairs.sort();
    pairs
}

fn tag(path: &Path, key: &str) -> Option<String> {
    tags(path).into_iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// What FFmpeg decodes of a file.
fn samples(path: &Path) -> String {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(path);
    let done = run(command.args(["-f", "md5", "-"]));
    assert_eq!((done.code, &*done.err), (0, ""), "{}", path.display());
    done.out
}

const FORMATS: [(&str, &str); 6] = [
    ("a.flac", "-sample_fmt s16"),
    ("a.mp3", "-b:a 128k"),
    ("a.m4a", "-c:a aac"),
    ("a.ogg", "-c:a libvorbis"),
    ("a.aiff", "-write_id3v2 1"),
    ("a.opus", "-c:a libopus"),
];

#[test]
fn tags_are_those_of_loudgain_and_all_else_stays() {
    let folder = scratch();
    for (name, arguments) in FORMATS {
        let (ours, theirs) = (folder.join(name), folder.join(format!("their-{name}")));
        sound(&ours, 0.3, arguments);
        fs::copy(&ours, &theirs).unwrap();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o640)).unwrap();
        let (before, sounds) = (tags(&ours), samples(&ours));
        let dry = aulos("--tag --true-peak --dry-run", &[&ours]);
        assert_eq!((dry.code, tags(&ours)), (0, before.clone()), "{name}");
        assert_eq!(aulos("--tag --true-peak", &[&ours]).code, 0, "{name}");
        let done = run(Command::new("loudgain").args(["-s", "e", "-q"]).arg(&theirs));
        assert_eq!(done.code, 0, "{}", done.err);
        let after = tags(&ours);
        for pair in &before {
            assert!(after.contains(pair), "{name} lost {pair:?}");
        }
        assert_eq!(samples(&ours), sounds, "{name}");
        assert_eq!(ours.metadata().unwrap().mode() & 0o777, 0o640, "{name}");
        let wanted: Vec<_> =
            tags(&theirs).into_iter().filter(|pair| !before.contains(pair)).collect();
        assert!(!wanted.is_empty(), "{name}");
        for (key, theirs) in wanted {
            let ours = after.iter().find(|(name, _)| *name == key).map(|(_, value)| value);
            let figure = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
            // A step of R128 tags is 1/256 dB.
            let near = if key.starts_with("r128") { 2.0 } else { 0.011 };
            let is_near = |ours: &String| (figure(ours) - figure(&theirs)).abs() <= near;
            assert!(ours.is_some_and(is_near), "{name} {key}: {ours:?}, loudgain {theirs}");
            let said = format!("{}: none -> {}", key.to_uppercase(), ours.unwrap());
            assert!(dry.out.contains(&said), "{said} is not in\n{}", dry.out);
        }
        // A second run finds nothing to do.
        let file = ours.metadata().unwrap();
        assert!(
            aulos("--tag --true-peak", &[&ours]).err.starts_with("0 file(s) tagged, 1 unchanged")
        );
        assert_eq!(ours.metadata().unwrap().ino(), file.ino(), "{name}");
    }
}

/// mp3gain keeps its gains in an `APEv2` tag at the end, which some players prefer.
#[test]
fn gains_of_mp3gain_are_put_right_as_well() {
    let folder = scratch();
    let path = folder.join("a.mp3");
    sound(&path, 0.3, "-b:a 128k");
    let done = run(Command::new("mp3gain").args(["-q", "-s", "a"]).arg(&path));
    assert_eq!(done.code, 0, "{}", done.err);
    let in_ape = |name: &str| {
        let bytes = fs::read(&path).unwrap();
        let start = bytes.windows(8).position(|at| at == b"APETAGEX").expect("an APEv2 tag");
        let key = [name.as_bytes(), b"\0"].concat();
        let item =
            bytes[start..].windows(key.len()).position(|at| at.eq_ignore_ascii_case(&key))?;
        let item = start + item;
        let length = u32::from_le_bytes(bytes[item - 8..item - 4].try_into().unwrap());
        let text = &bytes[item + key.len()..][..usize::try_from(length).unwrap()];
        Some(String::from_utf8(text.to_vec()).unwrap())
    };
    let theirs = in_ape("REPLAYGAIN_TRACK_GAIN").expect("mp3gain has written its gain");
    let undo = in_ape("MP3GAIN_MINMAX");
    let sounds = samples(&path);
    assert_eq!(aulos("--tag", &[&path]).code, 0);
    let ours = tag(&path, "replaygain_track_gain").unwrap();
    assert_ne!(ours, theirs, "else the test shows nothing");
    assert_eq!(in_ape("REPLAYGAIN_TRACK_GAIN"), Some(ours.clone()));
    assert_eq!((in_ape("MP3GAIN_MINMAX"), samples(&path)), (undo, sounds));
    // mp3gain comes back: its gain alone is stale.
    let again = Command::new("mp3gain").args(["-q", "-s", "r", "-s", "a"]).arg(&path).status();
    assert!(again.unwrap().success());
    assert_ne!(in_ape("REPLAYGAIN_TRACK_GAIN"), Some(ours.clone()));
    let done = aulos("--tag --skip-tagged", &[&path]);
    assert!(done.err.starts_with("1 file(s) tagged"), "{}", done.err);
    assert_eq!(in_ape("REPLAYGAIN_TRACK_GAIN"), Some(ours));
}

#[test]
fn wave_files_keep_their_sound_and_remember_their_tags() {
    let folder = scratch();
    let path = folder.join("a.wav");
    sound(&path, 0.3, "-c:a pcm_s24le");
    let sounds = samples(&path);
    assert_eq!(aulos("--tag", &[&path]).code, 0);
    assert_eq!((samples(&path), tag(&path, "title").as_deref()), (sounds, Some("Kept")));
    let left_out = aulos("--tag --skip-tagged", &[&path]);
    assert!(left_out.err.contains("1 file(s) skipped"), "{}", left_out.err);
}

/// An ID3v2.3 tag with this title, and padding.
fn id3v2(title: &str, padding: usize) -> Vec<u8> {
    let text = [b"\0", title.as_bytes()].concat();
    let mut frames =
        [b"TIT2".to_vec(), u32::try_from(text.len()).unwrap().to_be_bytes().to_vec()].concat();
    frames.extend([0, 0]);
    frames.extend(text);
    frames.resize(frames.len() + padding, 0);
    let size = u32::try_from(frames.len()).unwrap();
    let mut tag = b"ID3\x03\0\0".to_vec();
    tag.extend([21, 14, 7, 0].map(|bits| u8::try_from(size >> bits & 0x7f).unwrap()));
    [tag, frames].concat()
}

fn id3v1(title: &str, artist: &str) -> Vec<u8> {
    let mut tag = b"TAG".to_vec();
    for (field, length) in [(title, 30), (artist, 30), ("", 30), ("1999", 4), ("", 30)] {
        tag.extend(field.bytes().chain(std::iter::repeat(0)).take(length));
    }
    tag.push(12);
    tag
}

fn apev2(title: &str) -> Vec<u8> {
    let mut item = u32::try_from(title.len()).unwrap().to_le_bytes().to_vec();
    item.extend([0; 4]);
    item.extend(b"Title\0");
    item.extend(title.bytes());
    let block = |flags: u32| {
        let size = u32::try_from(item.len()).unwrap() + 32;
        let numbers = [2_000, size, 1, flags, 0, 0].map(u32::to_le_bytes).concat();
        [&b"APETAGEX"[..], &numbers].concat()
    };
    [block(0xa000_0000), item.clone(), block(0x8000_0000)].concat()
}

/// A new tag of higher rank hides those that were there, so it has to have their fields.
#[test]
fn titles_stay_where_the_gain_needs_a_new_tag() {
    let folder = scratch();
    let plain = folder.join("plain.mp3");
    sound(&plain, 0.3, "-b:a 128k -id3v2_version 0 -write_xing 0");
    let mp3 = fs::read(&plain).unwrap();
    let bare = folder.join("bare.flac");
    sound(&bare, 0.3, "-metadata title=");
    let flac = fs::read(&bare).unwrap();
    let v1 = id3v1("Old title", "Old artist");
    for (name, bytes, title, artist) in [
        ("v1.mp3", [&mp3[..], &v1].concat(), "Old title", Some("Old artist")),
        (
            "ape.mp3",
            [&mp3[..], &apev2("A longer title than thirty letters")].concat(),
            "A longer title than thirty letters",
            None,
        ),
        (
            "both.mp3",
            [&mp3[..], &apev2("Title of APE"), &v1].concat(),
            "Title of APE",
            Some("Old artist"),
        ),
        ("id3.flac", [&id3v2("Title of ID3", 100)[..], &flac].concat(), "Title of ID3", None),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let sounds = samples(&path);
        let done = aulos("--tag", &[&path]);
        assert_eq!(done.code, 0, "{name}: {}{}", done.out, done.err);
        assert!(tag(&path, "replaygain_track_gain").is_some(), "{name}: {:?}", tags(&path));
        assert_eq!(tag(&path, "title").as_deref(), Some(title), "{name}");
        if let Some(artist) = artist {
            assert_eq!(tag(&path, "artist").as_deref(), Some(artist), "{name}");
        }
        assert_eq!(samples(&path), sounds, "{name}");
        let again = aulos("--tag --skip-tagged", &[&path]);
        assert!(again.err.contains("1 file(s) skipped"), "{name}: {}", again.err);
    }
}

#[test]
fn bytes_between_tags_and_sound_are_no_reason_not_to_tag() {
    let folder = scratch();
    let plain = folder.join("plain.mp3");
    sound(&plain, 0.3, "-b:a 128k -id3v2_version 0 -write_xing 0");
    let mp3 = fs::read(&plain).unwrap();
    for (name, front) in [
        ("twice.mp3", [id3v2("One", 0), id3v2("Two", 0)].concat()),
        ("padded.mp3", [id3v2("One", 0), id3v2("Two", 2_000)].concat()),
        ("gap.mp3", [id3v2("One", 0), vec![0; 2_000]].concat()),
        ("large.mp3", [id3v2("One", 500), vec![0; 40_000]].concat()),
    ] {
        let path = folder.join(name);
        fs::write(&path, [&front[..], &mp3].concat()).unwrap();
        let sounds = samples(&path);
        let done = aulos("--tag", &[&path]);
        assert_eq!(done.code, 0, "{name}: {}{}", done.out, done.err);
        assert!(tag(&path, "replaygain_track_gain").is_some(), "{name}");
        assert!(tag(&path, "title").is_some(), "{name}");
        assert_eq!(samples(&path), sounds, "{name}");
    }
}

#[test]
fn an_album_has_one_gain_and_a_stale_or_doubled_one_is_put_right() {
    let folder = scratch();
    let (loud, soft) = (folder.join("1.flac"), folder.join("2.flac"));
    let stale = "-metadata REPLAYGAIN_ALBUM_GAIN=+1.00 -metadata replaygain_reference_loudness=-14";
    sound(&loud, 0.4, stale);
    sound(&soft, 0.2, "");
    // Another reference: what was said of an album no longer holds.
    assert_eq!(aulos("--tag", &[&loud]).code, 0);
    assert_eq!(tag(&loud, "replaygain_album_gain"), None);
    assert_eq!(tag(&loud, "replaygain_reference_loudness").as_deref(), Some("-18.00 LUFS"));
    for (rule, is_near_the_loudest) in [("energy", false), ("loudest", true)] {
        let arguments = format!("--tag --album --album-rule {rule}");
        assert_eq!(aulos(&arguments, &[&folder]).code, 0);
        let gain = |path, key| {
            let text = tag(path, key).unwrap();
            text.trim_end_matches(" dB").parse::<f64>().unwrap()
        };
        let album = gain(&loud, "replaygain_album_gain");
        assert!((album - gain(&soft, "replaygain_album_gain")).abs() < 1e-9);
        let track = gain(&loud, "replaygain_track_gain");
        assert_eq!((album - track).abs() < 1e-9, is_near_the_loudest, "{rule}: {album} {track}");
    }
    // What is complete is left out, folder by folder.
    let again = aulos("--tag --album --skip-tagged --json", &[&folder]);
    assert_eq!((again.code, &*again.out), (0, ""), "{}", again.err);
    sound(&soft, 0.2, "");
    let again = aulos("--tag --album --skip-tagged --json", &[&folder]);
    assert_eq!((again.code, again.out.lines().count()), (0, 3), "{}", again.err);
}

#[test]
fn opus_gains_add_to_the_header_and_replaygain_is_removed() {
    let folder = scratch();
    let path = folder.join("a.opus");
    sound(&path, 0.3, "-c:a libopus -metadata REPLAYGAIN_TRACK_GAIN=-9.00");
    assert_eq!(aulos("--tag", &[&path]).code, 0);
    let plain: f64 = tag(&path, "r128_track_gain").unwrap().parse().unwrap();
    assert_eq!(tag(&path, "replaygain_track_gain"), None);
    // Minus 6 dB in the header, and the checksum of its page made right by the muxer.
    let quiet = folder.join("quiet.opus");
    ffmpeg(&format!("-i {} -c copy", path.display()), &quiet);
    let mut bytes = fs::read(&quiet).unwrap();
    let head = bytes.windows(8).position(|window| window == b"OpusHead").unwrap();
    bytes[head + 16..head + 18].copy_from_slice(&(-6 * 256_i16).to_le_bytes());
    let page = head - 28..head + 19;
    bytes[22..26].fill(0);
    let sum = ogg_checksum(&bytes[page]);
    bytes[22..26].copy_from_slice(&sum.to_le_bytes());
    fs::write(&quiet, bytes).unwrap();
    assert_eq!(aulos("--tag", &[&quiet]).code, 0);
    let lifted: f64 = tag(&quiet, "r128_track_gain").unwrap().parse().unwrap();
    assert!((lifted - plain - 6.0 * 256.0).abs() <= 2.0, "{plain} {lifted}");
}

/// RFC 3533 section 6: a CRC of 32 bits, not reflected, from zero.
fn ogg_checksum(page: &[u8]) -> u32 {
    page.iter().fold(0, |sum, byte| {
        let bits = sum ^ (u32::from(*byte) << 24);
        (0..8).fold(bits, |sum, _| if sum >> 31 == 1 { (sum << 1) ^ 0x04c1_1db7 } else { sum << 1 })
    })
}

#[test]
fn a_gain_limited_by_the_peak_is_reported() {
    let folder = scratch();
    let path = folder.join("a.flac");
    sound(&path, 0.02, "");
    let row = |arguments: &str| -> Value {
        serde_json::from_str(&aulos(arguments, &[&path]).out).unwrap()
    };
    let free = row("--json --target -1");
    let held = row("--json --target -1 --max-true-peak -3");
    let sum = held["gain_db"].as_f64().unwrap() + held["true_peak_dbtp"].as_f64().unwrap();
    assert!((sum + 3.0).abs() < 1e-5, "{held}");
    assert!(held["gain_db"].as_f64() < free["gain_db"].as_f64());
    let table = aulos("--target -1 --max-true-peak -3", &[&path]).out;
    assert!(table.contains("gain lowered by"), "{table}");
    assert!(!aulos("--target -40 --max-true-peak -3", &[&path]).out.contains("lowered"));
}

#[test]
fn a_file_that_cannot_be_tagged_is_unchanged_with_a_reason() {
    let folder = scratch();
    let path = folder.join("a.flac");
    sound(&path, 0.3, "-sample_fmt s16");
    let bytes = fs::read(&path).unwrap();
    let same = || assert!(fs::read(&path).unwrap() == bytes);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let done = aulos("--tag --json", &[&path]);
    assert_eq!(done.code, 3);
    assert!(done.out.contains("read-only") && done.err.contains("1 failed"), "{}", done.out);
    same();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    // No room: the system gives no file more than 100 kB.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$@\"", "sh"]);
    command.args([env!("CARGO_BIN_EXE_aulos"), "scan", "--tag"]).arg(&path);
    let done = run(&mut command);
    assert_eq!(done.code, 3, "{}", done.err);
    assert!(done.out.contains("tags cannot be written: file too large"), "{}", done.out);
    same();
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1, "nothing is left lying about");
    for (name, arguments) in [
        ("a.mka", "-c:a libvorbis"),
        ("mp3.mka", "-c:a libmp3lame"),
        ("a.caf", "-c:a pcm_s16be"),
        ("rf64.wav", "-c:a pcm_s16le -rf64 always"),
    ] {
        let path = folder.join(name);
        sound(&path, 0.3, arguments);
        let before = fs::read(&path).unwrap();
        let done = aulos("--tag", &[&path]);
        assert!(done.code == 3 && done.out.contains("tags cannot be written"), "{}", done.out);
        assert!(fs::read(&path).unwrap() == before, "{name}");
    }
}

/// Killed at any moment, a file is the old one or the new one, and sounds the same.
#[test]
fn a_run_that_is_killed_breaks_nothing() {
    let folder = scratch();
    let (path, journal) = (folder.join("a.flac"), folder.join("journal"));
    sound(&path, 0.3, "-sample_fmt s16");
    let sounds = samples(&path);
    let start = |target: i32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
        command.args(["scan", "--tag", "--quiet", "--target", &target.to_string(), "--resume"]);
        command.arg(&journal).arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    // What is measured is kept, so that a run is hardly more than the copy.
    assert!(start(-10).wait().unwrap().success());
    let begin = Instant::now();
    assert!(start(-11).wait().unwrap().success());
    let whole = begin.elapsed();
    let (mut old, mut new) = (0, 0);
    for n in 0..24 {
        let before = tags(&path);
        let mut child = start(-12 - n);
        sleep(whole.mul_f64(f64::from(n % 12) / 10.0).min(Duration::from_secs(2)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(samples(&path), sounds);
        if tags(&path) == before {
            old += 1;
        } else {
            let reference = tag(&path, "replaygain_reference_loudness");
            assert_eq!(reference, Some(format!("{}.00 LUFS", -12 - n)));
            new += 1;
        }
    }
    println!("killed: {old} times the old file, {new} times the new one");
    assert!(start(-18).wait().unwrap().success());
    let left: Vec<PathBuf> = fs::read_dir(&*folder).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "the copies that killed runs left were used up: {left:?}");
    assert_eq!(tag(&path, "replaygain_reference_loudness").as_deref(), Some("-18.00 LUFS"));
}

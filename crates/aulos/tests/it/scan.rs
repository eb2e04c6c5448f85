//! `aulos scan` as it is typed, with FFmpeg as the judge of its figures.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::scratch;
use serde_json::Value;

const KEYS: [&str; 15] = [
    "path",
    "ok",
    "error",
    "sample_rate",
    "channels",
    "seconds",
    "integrated_lufs",
    "loudness_range_lu",
    "max_momentary_lufs",
    "max_short_term_lufs",
    "true_peak_dbtp",
    "sample_peak_dbfs",
    "relative_threshold_lufs",
    "gain_db",
    "warnings",
];

pub(crate) fn scan(arguments: &[&str], paths: &[&Path]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    let Output { status, stdout, stderr } =
        command.arg("scan").args(arguments).args(paths).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("no signal ends it"), text(stdout), text(stderr))
}

/// The rows, each with exactly the keys of the contract.
fn rows(arguments: &[&str], paths: &[&Path]) -> (i32, Vec<Value>) {
    let (code, out, _) = scan(&[&["--json"], arguments].concat(), paths);
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let object = row.as_object().unwrap();
        assert!(object.len() == KEYS.len() && KEYS.iter().all(|key| object.contains_key(*key)));
        row
    };
    (code, out.lines().map(row).collect())
}

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-y", "-hide_banner"]).stdin(Stdio::null());
    command
}

fn run_ffmpeg(command: &mut Command) -> String {
    let output =
        command.output().expect("these tests need ffmpeg: install it (apt-get install ffmpeg)");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Twenty seconds of chirps, chords and noise at changing levels, another in each channel.
fn programme(to: &Path, channels: usize, rate: u32, arguments: &str) {
    let channel = |n: usize| {
        let level = format!("(0.08+0.3*gt(mod(t+{n}\\,7)\\,4))");
        let hz = 180 + 130 * n;
        format!(
            "{level}*(sin(2*PI*({hz}+90*t)*t)+0.5*sin(2*PI*{}*t)+0.2*(random({n})-0.5))",
            9 * hz
        )
    };
    let expressions: Vec<_> = (0..channels).map(channel).collect();
    let layout = ["mono", "stereo", "5.1"][channels / 2 - channels / 6];
    let source = format!("aevalsrc={}:d=20:s={rate}:c={layout}", expressions.join("|"));
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-i", &source]).args(arguments.split_whitespace()).arg(to);
    run_ffmpeg(&mut command);
}

/// Integrated loudness, range and true peak as FFmpeg shows them.
fn judge(path: &Path) -> [f64; 3] {
    let mut command = ffmpeg();
    command.arg("-i").arg(path).args(["-af", "ebur128=peak=true", "-f", "null", "-"]);
    let text = run_ffmpeg(&mut command);
    let summary = text.rsplit_once("Summary:").expect("a summary").1;
    ["I:", "LRA:", "Peak:"].map(|label| {
        let line = summary.lines().find_map(|line| line.trim().strip_prefix(label)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// Fifteen seconds of music and of speech, as people have them.
fn real_sound(folder: &Path) -> [PathBuf; 2] {
    let [music, voice, speech] =
        ["music.wav", "voice.wav", "speech.wav"].map(|name| folder.join(name));
    let mut command = ffmpeg();
    command.args(["-ss", "31", "-i", MUSIC, "-t", "15", "-ac", "2"]);
    run_ffmpeg(command.arg(&music));
    let mut espeak = Command::new("espeak-ng");
    let said = espeak.args(["-s", "150", "-w"]).arg(&voice).arg(TEXT).status();
    assert!(said.expect("espeak-ng: see scripts/test-setup").success());
    let mut command = ffmpeg();
    command.arg("-i").arg(&voice).args(["-t", "15", "-ar", "48000", "-ac", "2"]);
    run_ffmpeg(command.arg(&speech));
    [music, speech]
}

#[test]
fn figures_of_music_and_speech_are_those_of_ffmpeg_in_all_formats() {
    let folder = scratch();
    let cases = [
        ("16.wav", 2, 48_000, "-c:a pcm_s16le"),
        ("float.wav", 2, 96_000, "-c:a pcm_f32le"),
        ("double.wav", 2, 44_100, "-c:a pcm_f64le"),
        ("long.wav", 2, 44_100, "-c:a pcm_s32le"),
        ("mono.wav", 1, 44_100, "-c:a pcm_s24le"),
        ("surround.wav", 6, 48_000, "-c:a pcm_s16le"),
        ("cd.flac", 2, 44_100, "-sample_fmt s16"),
        ("studio.flac", 2, 96_000, "-sample_fmt s32"),
        ("surround.flac", 6, 48_000, "-sample_fmt s16"),
        ("a.mp3", 2, 44_100, "-b:a 160k"),
        ("mono.mp3", 1, 48_000, "-b:a 96k"),
        ("a.ogg", 2, 44_100, "-c:a libvorbis -q:a 5"),
        ("surround.ogg", 6, 48_000, "-c:a libvorbis -q:a 5"),
        ("a.opus", 2, 48_000, "-c:a libopus -b:a 128k"),
        ("mono.opus", 1, 48_000, "-c:a libopus -b:a 64k"),
        ("surround.opus", 6, 48_000, "-c:a libopus -b:a 256k"),
        ("a.m4a", 2, 44_100, "-c:a aac -b:a 160k"),
        ("a.aiff", 2, 48_000, "-c:a pcm_s16be"),
        ("alac.m4a", 2, 48_000, "-c:a alac"),
    ];
    let (mut paths, mut made): (Vec<PathBuf>, Vec<_>) = (Vec::new(), Vec::new());
    for (n, from) in real_sound(&folder).into_iter().enumerate() {
        // Music in all of them, speech in every second.
        for (name, channels, rate, arguments) in cases.into_iter().step_by(n + 1) {
            made.push((name, channels, rate));
            let to = folder.join(format!("{}-{name}", from.file_stem().unwrap().display()));
            let mut command = ffmpeg();
            command.arg("-i").arg(&from).args(["-ar", &rate.to_string()]);
            let pan = ["mono|c0=FL", "stereo|FL=FL|FR=FR", SURROUND][channels / 2 - channels / 6];
            command.args(["-af", &format!("pan={pan}")]);
            run_ffmpeg(command.args(arguments.split_whitespace()).arg(&to));
            paths.push(to);
        }
    }
    let borrowed: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let (code, rows) = rows(&["--true-peak", "--lra-hop", "100ms"], &borrowed);
    let mut wrong = Vec::new();
    for ((path, (name, channels, rate)), row) in paths.iter().zip(&made).zip(&rows) {
        let theirs = judge(path);
        let ours = ["integrated_lufs", "loudness_range_lu", "true_peak_dbtp"]
            .map(|key| row[key].as_f64().unwrap_or(f64::NAN));
        // Half a step of their display; the range besides by a place in the sorted list, where the
        // percentiles are rounded otherwise, the true peak by the interpolator.
        let near = ours.iter().zip(theirs).zip([0.06, 0.2, 0.2]);
        let near = near.into_iter().all(|((ours, theirs), most)| (ours - theirs).abs() <= most);
        let shape = row["channels"] == *channels && row["sample_rate"] == *rate;
        let length = (row["seconds"].as_f64().unwrap_or(0.0) - 15.0).abs() < 0.1;
        let gain = (row["gain_db"].as_f64().unwrap_or(0.0) + 18.0 + ours[0]).abs() < 1e-5;
        if !(near && shape && length && gain) {
            wrong.push(format!("{name}: {ours:?}, FFmpeg {theirs:?}, {row}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((code, rows.len()), (0, made.len()));
}

#[test]
fn an_unmeasurable_file_is_a_row_and_the_run_continues() {
    let folder = scratch();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).unwrap();
        folder.join(name)
    };
    let good = folder.join("good.wav");
    programme(&good, 2, 48_000, "-c:a pcm_s16le");
    let bytes = fs::read(&good).unwrap();
    let flac = folder.join("whole.flac");
    programme(&flac, 2, 48_000, "-sample_fmt s16");
    let flac = fs::read(flac).unwrap();
    let clear = folder.join("clear.m4a");
    programme(&clear, 2, 48_000, "-t 1 -c:a aac");
    let mut protected = fs::read(&clear).unwrap();
    let entry = protected.windows(4).rposition(|window| window == b"mp4a").unwrap();
    protected[entry..entry + 4].copy_from_slice(b"drms");
    let protected = write("bought.m4p", &protected);
    let why = rows(&[], &[&protected]).1[0]["error"].as_str().unwrap().to_owned();
    assert!(why.contains("copy-protected"), "{why}");
    let bad = [
        write("empty.wav", b""),
        write("garbage.mp3", &[0x55; 70_000]),
        write("text.flac", b"this is not sound\n"),
        write("cut.wav", &bytes[..bytes.len() / 2]),
        write("cut.flac", &flac[..flac.len() / 2]),
        write("short.wav", &{
            let mut head = bytes[..44].to_vec();
            head.resize(44 + 4 * 9_600, 1);
            head
        }),
        folder.join("missing.wav"),
        folder.clone().join("nowhere/at/all.ogg"),
        protected,
    ];
    let mut paths: Vec<&Path> = bad.iter().map(PathBuf::as_path).collect();
    paths.insert(3, &good);
    paths.push(&good);
    let (code, found) = rows(&[], &paths);
    let order: Vec<_> = found.iter().map(|row| row["path"].as_str().unwrap()).collect();
    let wanted: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!((code, &order), (3, &wanted));
    for row in &found {
        let is_good = row["path"] == good.to_str().unwrap();
        assert_eq!(row["ok"], is_good, "{row}");
        assert_eq!(row["error"].is_null(), is_good, "{row}");
        let one_line = row["error"].as_str().is_none_or(|error| error.lines().count() == 1);
        assert!(one_line && row["true_peak_dbtp"].is_null(), "{row}");
    }
    let table = scan(&[], &paths).1;
    assert_eq!(table.lines().count(), 1 + paths.len(), "{table}");
    for path in &bad[..4] {
        assert_eq!(rows(&[], &[path]).0, 65, "{}", path.display());
    }
    assert_eq!(rows(&[], &[&bad[6]]).0, 66);
    assert_eq!(rows(&[], &[&bad[0], &bad[6]]).0, 3);
}

#[test]
fn silence_has_no_loudness_and_a_folder_without_sound_is_no_input() {
    let folder = scratch();
    let silence = folder.join("silence.wav");
    let source = "anullsrc=d=5:r=48000:cl=stereo";
    run_ffmpeg(ffmpeg().args(["-f", "lavfi", "-i", source]).arg(&silence));
    let (code, found) = rows(&["--true-peak"], &[&silence]);
    assert_eq!((code, &found[0]["ok"], &found[0]["seconds"]), (0, &true.into(), &5.0.into()));
    for key in &KEYS[6..14] {
        assert!(found[0][*key].is_null(), "{key}");
    }
    assert_eq!(found[0]["warnings"][0]["kind"], "silent");
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("notes.txt"), "nothing").unwrap();
    let (code, found) = rows(&[], &[&empty]);
    assert_eq!((code, found.len(), &found[0]["ok"]), (66, 1, &false.into()));
    assert_eq!(scan(&[], &[]).0, 2);
}

#[test]
fn csv_has_the_keys_as_its_header() {
    let folder = scratch();
    let path = folder.join("a, \"b\".wav");
    programme(&path, 1, 48_000, "-c:a pcm_s16le");
    let (code, text, _) = scan(&["--csv"], &[&path, &folder.join("missing.wav")]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((code, lines.len(), lines[0]), (3, 3, KEYS.join(",").as_str()));
    assert!(lines[1].contains("a, \"\"b\"\".wav\",true,,48000,1,20.0,-"), "{}", lines[1]);
    assert!(lines[2].ends_with("missing.wav,false,no such file,,,,,,,,,,,,"), "{text}");
}

#[test]
fn each_option_changes_its_own_result() {
    let folder = scratch();
    let path = folder.join("mono.wav");
    programme(&path, 1, 48_000, "-c:a pcm_s16le");
    let figure = |arguments: &[&str], key: &str| rows(arguments, &[&path]).1[0][key].as_f64();
    let plain = figure(&[], "integrated_lufs").unwrap();
    let dual = figure(&["--dual-mono"], "integrated_lufs").unwrap();
    assert!((dual - plain - 3.0103).abs() < 1e-4);
    let gain = |arguments: &[&str]| figure(arguments, "gain_db").unwrap() + plain;
    for (target, lufs) in [("-23", -23.0), ("ebu", -23.0), ("replaygain", -18.0), ("-14", -14.0)] {
        assert!((gain(&["--target", target]) - lufs).abs() < 1e-5, "{target}");
    }
    assert_eq!(figure(&[], "true_peak_dbtp"), None);
    assert!(figure(&["--true-peak"], "true_peak_dbtp") >= figure(&[], "sample_peak_dbfs"));
    for wrong in [["--target", "loud"], ["--jobs", "0"], ["--lra-hop", "2s"], ["--json", "--csv"]] {
        assert_eq!(scan(&wrong, &[&path]).0, 2, "{wrong:?}");
    }
}

#[test]
fn an_album_is_its_tracks_played_one_after_the_other() {
    let folder = scratch();
    let album = folder.join("album");
    fs::create_dir(&album).unwrap();
    let (one, two) = (album.join("1.wav"), album.join("2.wav"));
    programme(&one, 2, 48_000, "-c:a pcm_s16le");
    programme(&two, 2, 48_000, "-af volume=-9dB -c:a pcm_s16le");
    let whole = folder.join("whole.wav");
    let mut command = ffmpeg();
    command.arg("-i").arg(&one).arg("-i").arg(&two);
    run_ffmpeg(command.args(["-filter_complex", "concat=v=0:a=1"]).arg(&whole));
    let (code, found) = rows(&["--album", "--true-peak"], &[&album]);
    let row = &found[2];
    assert_eq!((code, found.len(), &row["path"]), (0, 3, &album.to_str().unwrap().into()));
    assert_eq!((&row["seconds"], &row["channels"]), (&40.0.into(), &2.into()));
    let theirs = judge(&whole);
    assert!((row["integrated_lufs"].as_f64().unwrap() - theirs[0]).abs() <= 0.1, "{row}");
    assert!((row["true_peak_dbtp"].as_f64().unwrap() - theirs[2]).abs() <= 0.2, "{row}");
    assert_eq!(rows(&["--album"], &[&album, &album.join("3.wav")]).1[3]["ok"], false);
}

#[test]
fn one_job_is_one_thread_and_the_rows_are_the_same_with_many() {
    let folder = scratch();
    let path = folder.join("a.wav");
    programme(&path, 1, 48_000, "-t 1 -c:a pcm_s16le");
    // More rows than a pipe holds: it cannot end before the output is read.
    let paths = vec![path.as_path(); 400];
    let count = |jobs: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
        command.args(["scan", "--json", "--jobs", jobs]).args(&paths).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
        let rest: Vec<_> = out.lines().map(Result::unwrap).collect();
        assert!(child.wait().unwrap().success());
        assert!(rest.len() == 399 && rest.iter().all(|row| row == first.trim_end()));
        (threads, first)
    };
    let (one, three) = (count("1"), count("3"));
    assert_eq!((one.0, one.1), (1, three.1));
    assert_eq!(three.0, 4, "three jobs, and the thread that prints");
}

#[test]
fn a_closed_output_pipe_ends_the_run() {
    let folder = scratch();
    let path = folder.join("a.wav");
    programme(&path, 1, 48_000, "-t 1 -c:a pcm_s16le");
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    command.args(["scan", "--json"]).args(vec![&path; 400]).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn a_long_file_is_the_same_in_pieces_on_any_number_of_threads() {
    let folder = scratch();
    let short = folder.join("short.flac");
    programme(&short, 2, 44_100, "-sample_fmt s16");
    // Eight minutes are cut in two; rows are compared with those of a format that cannot be cut.
    let path = |name: &str| folder.join(name);
    let long = |name: &str, arguments: &str| {
        let mut command = ffmpeg();
        command.args(["-stream_loop", "23", "-i"]).arg(&short);
        run_ffmpeg(command.args(arguments.split_whitespace()).arg(path(name)));
    };
    long("a.wav", "-c:a pcm_s16le");
    long("a.flac", "-sample_fmt s16");
    long("a.aiff", "-c:a pcm_s16be");
    long("rf64.wav", "-c:a pcm_s16le -rf64 always");
    let all = ["a.wav", "a.flac", "a.aiff", "rf64.wav"].map(path);
    let paths: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
    let one = rows(&["--true-peak", "--jobs", "1"], &paths);
    assert_eq!((one.0, &one), (0, &rows(&["--true-peak", "--jobs", "4"], &paths)));
    for row in &one.1 {
        for key in &KEYS[3..] {
            assert_eq!(row[*key], one.1[2][*key], "{key} of {row}");
        }
    }
}

#[test]
fn waves_that_are_odd_are_read_as_far_as_they_go() {
    let folder = scratch();
    let plain = folder.join("plain.wav");
    programme(&plain, 2, 48_000, "-t 2 -c:a pcm_s16le -bitexact");
    let bytes = fs::read(&plain).unwrap();
    let with = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        fs::write(folder.join(name), bytes).unwrap();
        rows(&[], &[&folder.join(name)]).1.remove(0)
    };
    let size = |bytes: &mut Vec<u8>, riff: u32, data: u32| {
        bytes[4..8].copy_from_slice(&riff.to_le_bytes());
        bytes[40..44].copy_from_slice(&data.to_le_bytes());
    };
    assert_eq!(&bytes[36..40], b"data");
    let whole = with("whole.wav", &|_| {});
    let sane = [
        with("stream.wav", &|bytes| size(bytes, u32::MAX, u32::MAX)),
        with("never-closed.wav", &|bytes| size(bytes, 0, 0)),
        with("ragged.wav", &|bytes| {
            size(bytes, u32::MAX, u32::MAX);
            bytes.extend([1, 2, 3]);
        }),
        with("trailer.wav", &|bytes| bytes.extend(b"LIST\x04\0\0\0INFO")),
        with("odd.wav", &|bytes| drop(bytes.splice(12..12, *b"junk\x03\0\0\0abc\0"))),
    ];
    for row in sane {
        assert_eq!((&row["ok"], &row["seconds"]), (&true.into(), &2.0.into()), "{row}");
        assert_eq!(row["integrated_lufs"], whole["integrated_lufs"], "{row}");
    }
    let huge = with("huge.wav", &|bytes| size(bytes, 0x7fff_fff0, 0x7fff_0000));
    assert_eq!((&huge["ok"], &huge["seconds"]), (&false.into(), &2.0.into()), "{huge}");
    let none = with("no-channels.wav", &|bytes| bytes[22..24].fill(0));
    assert!(none["ok"] == false && none["channels"].is_null(), "{none}");
    let empty = with("empty.wav", &|bytes| {
        bytes.truncate(44);
        size(bytes, 36, 0);
    });
    assert_eq!(empty["ok"], false, "{empty}");
    // A mask of four that has no surrounds: all count alike.
    let four = folder.join("four.wav");
    programme(&four, 2, 48_000, "-t 2 -af pan=4.0|FL=FL|FR=FR|FC=FL|BC=FR -c:a pcm_s16le");
    let row = rows(&[], &[&four]).1.remove(0);
    let more =
        row["integrated_lufs"].as_f64().unwrap() - whole["integrated_lufs"].as_f64().unwrap();
    assert!((more - 3.0103).abs() < 0.001, "{more}");
}

#[test]
fn a_second_run_measures_only_new_files() {
    let folder = scratch();
    let (music, journal) = (folder.join("music"), folder.join("journal"));
    fs::create_dir(&music).unwrap();
    let paths = ["1.wav", "2.wav", "3.wav"].map(|name| music.join(name));
    for path in &paths {
        programme(path, 1, 48_000, "-t 1 -c:a pcm_s16le");
    }
    let run = |arguments: &[&str]| {
        let resume = ["--album", "--resume", journal.to_str().unwrap()];
        rows(&[&resume, arguments].concat(), &[&music])
    };
    let lines = || fs::read_to_string(&journal).unwrap().lines().count();
    let first = run(&[]);
    assert_eq!((first.0, first.1.len(), lines()), (0, 4, 3));
    assert_eq!((&first, lines()), (&run(&[]), 3));
    // Half a line, as a run leaves that is killed; a file that has changed; one that is broken.
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 40]).unwrap();
    programme(&paths[0], 1, 48_000, "-t 2 -c:a pcm_s16le");
    fs::write(music.join("4.wav"), "nothing").unwrap();
    let second = run(&[]);
    assert_eq!((second.0, second.1.len(), lines()), (3, 5, 5));
    assert_eq!((&second.1[1], &second.1[2]), (&first.1[1], &first.1[2]));
    assert_eq!(second.1[0]["seconds"], 2.0);
    // Other options are other figures.
    assert!(run(&["--true-peak"]).1[0]["true_peak_dbtp"].is_number());
}

#[test]
fn the_report_is_one_page_that_names_cannot_break() {
    let folder = scratch();
    let (music, page) = (folder.join("music"), folder.join("report.html"));
    fs::create_dir(&music).unwrap();
    programme(&music.join("<b>&\"a\" 'b'.wav"), 2, 48_000, "-c:a pcm_s16le");
    programme(&music.join("soft.wav"), 2, 48_000, "-af volume=-20dB -c:a pcm_s16le");
    fs::write(music.join("broken.wav"), "nothing").unwrap();
    let (code, found) = rows(&["--true-peak", "--report", page.to_str().unwrap()], &[&music]);
    let plain = rows(&["--true-peak"], &[&music]);
    assert_eq!((code, &found), (3, &plain.1), "curves change no figure");
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        !html.contains("<b>&\"a\"") && html.contains("&lt;b&gt;&amp;&quot;a&quot; &#39;b&#39;")
    );
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("broken.wav") < at("softer than the median") || at("louder than the median") > 0);
    assert_eq!(html.matches("<svg").count(), 2);
    assert_eq!(scan(&["--report", "/nowhere/at/all.html"], &[&music]).0, 73);
}

const MUSIC: &str = "/usr/share/games/frozen-bubble/snd/frozen-mainzik-1p.ogg";

/// All six channels, each with something of its own.
const SURROUND: &str = "5.1|FL=FL|FR=FR|FC=0.5*FL+0.5*FR|LFE=FL|BL=0.3*FR|BR=0.4*FL";

const TEXT: &str = "Loudness is what listeners notice first. A whisper, a shout! Then a long pause, \
    after which the speaker goes on as if nothing had happened; quietly, at first, and then not \
    so quietly any more. Do you hear the difference? Most people do, and reach for the knob. \
    A meter that knows what they hear can reach for it before them.";

//! `aulos normalize` as it is typed, with FFmpeg as the judge of what comes out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does; clippy excepts only test functions"
)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::scratch;
use serde_json::Value;

/// Exit code, standard output, standard error.
fn normalize(arguments: &[&str], from: &Path, to: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    command.arg("normalize").args(arguments).arg(from).arg(to).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("no signal ends it"), text(output.stdout), text(output.stderr))
}

fn ffmpeg(arguments: &[&str], files: &[&Path]) -> String {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-y", "-hide_banner"]);
    let mut files = files.iter();
    for word in arguments {
        if *word == "FILE" {
            command.arg(files.next().unwrap());
        } else {
            command.arg(word);
        }
    }
    let output = command.output().expect("ffmpeg: see scripts/test-setup");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Integrated loudness and true peak.
fn judge(path: &Path) -> [f64; 2] {
    let said = ffmpeg(&["-i", "FILE", "-af", "ebur128=peak=true", "-f", "null", "-"], &[path]);
    let summary = said.rsplit_once("Summary:").expect("a summary").1;
    ["I:", "Peak:"].map(|label| {
        let line = summary.lines().find_map(|line| line.trim().strip_prefix(label)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// Twenty seconds of noise: half of them quiet, half of them loud.
fn noise(to: &Path, more: &str) {
    let sound =
        "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=20,volume='if(lt(t,10),0.25,1)':eval=frame";
    let more: Vec<_> = more.split_whitespace().collect();
    let all = [&["-f", "lavfi", "-i", sound][..], &more, &["FILE"]].concat();
    ffmpeg(&all, &[to]);
}

#[test]
fn one_gain_leads_to_the_target_in_every_format() {
    let folder = scratch();
    let from = folder.join("in.wav");
    for (form, more) in [
        ("pcm_s16le", "-ac 2"),
        ("pcm_s24le", "-ac 1"),
        ("pcm_s32le", "-ac 2 -ar 44100"),
        ("pcm_f32le", "-ac 6"),
    ] {
        noise(&from, &format!("{more} -c:a {form}"));
        for name in ["out.wav", "out.flac"] {
            let to = folder.join(name);
            let (code, out, said) = normalize(&["--target", "-26"], &from, &to);
            assert_eq!(code, 0, "{form} {name}: {said}");
            assert!(out.contains("integrated loudness") && out.contains("-26.0 LUFS"), "{out}");
            let [integrated, _] = judge(&to);
            assert!((integrated + 26.0).abs() <= 0.1, "{form} {name}: {integrated}");
        }
        let probe = ffmpeg(&["-i", "FILE", "-f", "null", "-"], &[&folder.join("out.wav")]);
        assert!(probe.contains(form), "WAVE keeps {form}: {probe}");
    }
}

#[test]
fn where_the_peaks_forbid_the_target_that_is_said_and_nothing_turns_dynamic() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    noise(&from, "-ac 2");
    let (code, out, said) = normalize(&["--target", "-8", "--json"], &from, &to);
    assert_eq!(code, 0);
    assert!(said.contains("the peaks allow a gain of") && said.contains("--mode full"), "{said}");
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["bound"], "ceiling");
    assert!(out["gain_db"].as_f64() < out["wanted_db"].as_f64());
    let range = |side: &str| out[side]["loudness_range_lu"].as_f64().unwrap();
    assert!((range("before") - range("after")).abs() < 0.05);
    assert!(judge(&to)[1] <= -0.9);

    let arguments = ["--target", "-14", "--mode", "full", "--json"];
    let (code, out, said) = normalize(&arguments, &from, &to);
    assert_eq!(code, 0, "{said}");
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["gain_db"], Value::Null);
    let [integrated, peak] = judge(&to);
    assert!((integrated + 14.0).abs() <= 1.0, "{integrated}");
    assert!(peak <= -0.9, "{peak}");
}

#[test]
fn the_length_is_that_of_the_file() {
    let folder = scratch();
    let (from, to) = (folder.join("in.flac"), folder.join("out.wav"));
    for seconds in ["0.01", "1", "3", "3.1"] {
        let sound = format!("sine=f=997:r=44100:d={seconds}");
        ffmpeg(&["-f", "lavfi", "-i", &sound, "-ac", "2", "-sample_fmt", "s16", "FILE"], &[&from]);
        let frames = (seconds.parse::<f64>().unwrap() * 44_100.0).round();
        for mode in ["linear", "full", "mid", "low"] {
            let (code, _, said) = normalize(&["--mode", mode], &from, &to);
            assert_eq!(code, 0, "{mode}: {said}");
            #[allow(clippy::cast_precision_loss, reason = "a short file")]
            let bytes = fs::metadata(&to).unwrap().len() as f64;
            assert!((bytes - 44.0 - 4.0 * frames).abs() < 0.5, "{mode} {seconds}: {bytes}");
        }
    }
}

#[test]
fn what_fails_leaves_everything_as_it_was() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    fs::write(&to, "precious").unwrap();
    let untouched = |what: &str| {
        assert_eq!(fs::read(&to).unwrap(), b"precious", "{what}");
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let parts = names.filter(|name| name.to_string_lossy().ends_with(".part"));
        assert_eq!(parts.count(), 0, "{what}");
    };
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 66 && said.contains("no such file"), "{said}");
    untouched("no such file");
    fs::write(&from, "this is no sound").unwrap();
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 65 && said.contains("in.wav"), "{said}");
    untouched("no sound");
    noise(&from, "-ac 2");
    for (arguments, word) in [
        (&["--target", "-3"][..], "between -70 and -5"),
        (&["--lra", "60"], "between 1 and 50"),
        (&["--dual-mono"], "dual mono is for one channel"),
    ] {
        let (code, _, said) = normalize(arguments, &from, &to);
        assert!(code == 2 && said.contains(word), "{arguments:?}: {said}");
        untouched(word);
    }
    let (code, _, said) = normalize(&[], &from, &from);
    assert!(code == 2 && said.contains("another name"), "{said}");
    let (code, _, said) = normalize(&[], &from, &folder.join("out.mp3"));
    assert!(code == 2 && said.contains(".wav or .flac"), "{said}");
    let (code, _, said) = normalize(&[], &from, &folder.join("none/out.wav"));
    assert!(code == 73 && said.contains("cannot be written"), "{said}");
    untouched("everything else");
    assert_eq!(normalize(&[], &from, &to).0, 0);
    assert!(fs::read(&to).unwrap().starts_with(b"RIFF"));
}

#[test]
fn silence_is_copied_and_said() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    ffmpeg(&["-f", "lavfi", "-i", "anullsrc=r=48000:d=2", "FILE"], &[&from]);
    let (code, out, said) = normalize(&[], &from, &to);
    assert!(code == 0 && said.contains("nothing to be heard"), "{said}");
    assert!(out.contains('-'), "{out}");
    let data = fs::read(&to).unwrap();
    assert!(data[44..].iter().all(|byte| *byte == 0));
}

#[test]
fn whoever_kills_it_finds_the_old_file_or_the_new_one() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    noise(&from, "-ac 2");
    let whole = 44 + 20 * 48_000 * 4;
    for ms in [0, 30, 100, 200, 400] {
        fs::write(&to, "precious").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
        command.args(["normalize", "--quiet", "--mode", "full"]).arg(&from).arg(&to);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(ms));
        child.kill().ok();
        child.wait().unwrap();
        let found = fs::read(&to).unwrap();
        assert!(found == b"precious" || found.len() == whole, "{ms} ms: {} bytes", found.len());
    }
    // What such a run leaves behind is in nobody's way.
    assert_eq!(normalize(&[], &from, &to).0, 0);
    assert_eq!(fs::read(&to).unwrap().len(), whole);
}

//! One file.

use std::fs;

use super::{ffmpeg, judge, noise, normalize, rows};
use crate::common::scratch;

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
fn a_target_limited_by_peaks_is_reported_and_the_gain_stays_constant() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    noise(&from, "-ac 2");
    let (code, out, said) = normalize(&["--target", "-8", "--json"], &from, &to);
    assert_eq!(code, 0);
    assert!(said.contains("the peaks allow a gain of") && said.contains("--limit"), "{said}");
    let out = &rows(&out)[0];
    assert_eq!(out["bound"], "ceiling");
    assert!(out["gain_db"].as_f64() < out["wanted_db"].as_f64());
    let range = |side: &str| out[side]["loudness_range_lu"].as_f64().unwrap();
    assert!((range("before") - range("after")).abs() < 0.05);
    assert!(judge(&to)[1] <= -0.9);

    let arguments = ["--target", "-14", "--mode", "full", "--lra", "7", "--json"];
    let (code, out, said) = normalize(&arguments, &from, &to);
    assert_eq!(code, 0, "{said}");
    let out = &rows(&out)[0];
    assert_eq!(out["gain_db"], serde_json::Value::Null);
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
        for mode in
            ["linear", "linear --limit", "full --lra 7", "mid --lra 7", "low --lra 7", "low"]
        {
            let arguments: Vec<_> = ["--mode"].into_iter().chain(mode.split(' ')).collect();
            let (code, _, said) = normalize(&arguments, &from, &to);
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
        (&["--lra", "60"], "from 1 to 50"),
        (&["--lra", "5"], "needs --mode full, mid or low"),
        (&["--album", "--mode", "full", "--lra", "5"], "omit one of them"),
        (&["--bitrate", "3"], "from 6 to 510"),
        (&["--dual-mono"], "dual mono needs one channel"),
    ] {
        let (code, _, said) = normalize(arguments, &from, &to);
        assert!(code == 2 && said.contains(word), "{arguments:?}: {said}");
        untouched(word);
    }
    let (code, _, said) = normalize(&[], &from, &from);
    assert!(code == 2 && said.contains("another name"), "{said}");
    let (code, _, said) = normalize(&[], &from, &folder.join("out.mp3"));
    assert!(code == 2 && said.contains(".wav, .flac or .opus"), "{said}");
    let (code, _, said) = normalize(&[], &from, &folder.join("none/out.wav"));
    assert!(code == 73 && said.contains("cannot be written"), "{said}");
    untouched("everything else");
    assert_eq!(normalize(&[], &from, &to).0, 0);
    assert!(fs::read(&to).unwrap().starts_with(b"RIFF"));
}

#[test]
fn silence_is_copied_and_reported() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    ffmpeg(&["-f", "lavfi", "-i", "anullsrc=r=48000:d=2", "FILE"], &[&from]);
    let (code, out, said) = normalize(&[], &from, &to);
    assert!(code == 0 && said.contains("silent, so it has no loudness"), "{said}");
    assert!(out.contains('-'), "{out}");
    let data = fs::read(&to).unwrap();
    assert!(data[44..].iter().all(|byte| *byte == 0));
}

#[test]
fn with_the_limiter_the_target_is_reached_and_the_range_stays() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    noise(&from, "-ac 2");
    for how in [&["--limit"][..], &["--mode", "full"], &["--mode", "low"]] {
        let (code, out, said) =
            normalize(&[how, &["--target", "-11", "--json"]].concat(), &from, &to);
        assert_eq!(code, 0, "{how:?}: {said}");
        assert!(said.contains("the limiter reduced peaks by up to"), "{how:?}: {said}");
        let out = &rows(&out)[0];
        assert!(out["bound"].is_null() && out["limited_db"].as_f64() > Some(1.0), "{how:?}: {out}");
        let [integrated, peak] = judge(&to);
        assert!((integrated + 11.0).abs() <= 0.1, "{how:?}: {integrated}");
        assert!(peak <= -0.9, "{how:?}: {peak}");
    }
    // Where nothing has to be limited, it is one gain and nothing else, bit for bit.
    let other = folder.join("other.wav");
    assert_eq!(normalize(&["--limit", "--target", "-30"], &from, &to).0, 0);
    assert_eq!(normalize(&["--target", "-30"], &from, &other).0, 0);
    assert_eq!(fs::read(&to).unwrap(), fs::read(&other).unwrap());
}

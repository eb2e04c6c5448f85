//! What no file should be, and disks that do not take any.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{
    decoded, ffmpeg, generated, in_place, judge, names, noise, normalize, of_output, rows,
};
use crate::common::scratch;

/// WAVE of 32-bit floats, one channel, 48 kHz.
fn floats(to: &Path, samples: &[f32]) {
    let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x03\0\x01\0".to_vec();
    bytes.extend(48_000_u32.to_le_bytes());
    bytes.extend(192_000_u32.to_le_bytes());
    bytes.extend(b"\x04\0\x20\0data");
    bytes.extend((4 * u32::try_from(samples.len()).unwrap()).to_le_bytes());
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    fs::write(to, bytes).unwrap();
}

#[test]
fn samples_that_are_none_are_silent_and_counted_and_the_rest_is_right() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    let mut samples: Vec<f32> = (0..240_000).map(|n| 0.05 * (0.13 * n as f32).sin()).collect();
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 10_000.0, -3e38];
    for (n, sample) in bad.into_iter().enumerate() {
        samples[40_000 * (n + 1)] = sample;
    }
    floats(&from, &samples);
    for (how, name) in [
        (&[][..], "out.wav"),
        (&["--limit"], "out.flac"),
        (&["--mode", "full", "--lra", "7"], "out.wav"),
        (&["--mode", "low", "--lra", "7"], "out.opus"),
    ] {
        let to = folder.join(name);
        let (code, out, said) = normalize(&[how, &["--json"]].concat(), &from, &to);
        assert_eq!(code, 0, "{how:?}: {said}");
        assert_eq!(rows(&out)[0]["rejected"], 5, "{how:?}: {out}");
        assert!(said.contains("5 samples are not finite or above +20 dBFS"), "{how:?}: {said}");
        let out = decoded(&to);
        assert_eq!(out.len(), samples.len(), "{how:?}");
        assert!(out.iter().all(|sample| sample.abs() < 1.0), "{how:?}");
        let [integrated, _] = judge(&to);
        assert!((integrated + 23.0).abs() <= 0.3, "{how:?}: {integrated}");
    }
    floats(&from, &[f32::NAN; 48_000]);
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 0 && said.contains("silent, so it has no loudness"), "{said}");
    assert!(decoded(&to).iter().all(|sample| *sample == 0.0));
}

#[test]
fn a_constant_is_silence_and_one_beneath_sound_takes_head_room_only() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    // It comes so slowly that no filter of a meter hears it.
    let rise: Vec<f32> = (0..480_000).map(|n| 0.5 - 0.5 * (n as f32 / 160_000.0).cos()).collect();
    floats(&from, &rise);
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 0 && said.contains("silent, so it has no loudness"), "{said}");
    let tone: Vec<f32> = (0..240_000).map(|n| 0.3 + 0.05 * (0.13 * n as f32).sin()).collect();
    floats(&from, &tone);
    assert_eq!(normalize(&[], &from, &to).0, 0);
    assert!((judge(&to)[0] + 23.0).abs() <= 0.2);
    let (code, _, said) = normalize(&["--target", "-10"], &from, &to);
    assert!(code == 0 && said.contains("the peaks allow"), "{said}");
}

#[test]
fn empty_files_are_rejected_and_short_ones_copied() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.flac"));
    fs::write(&from, "").unwrap();
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 65 && said.contains("in.wav"), "{code}: {said}");
    floats(&from, &[]);
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 65 && said.contains("in.wav"), "{code}: {said}");
    floats(&from, &[0.25; 480]);
    for name in ["out.flac", "out.wav", "out.opus"] {
        let to = folder.join(name);
        let (code, out, said) = normalize(&["--json"], &from, &to);
        assert!(code == 0 && said.contains("shorter than 400 ms"), "{code}: {said}");
        assert_eq!(rows(&out)[0]["bound"], "silence");
        assert_eq!(decoded(&to).len(), 480, "{name}");
    }
}

#[test]
fn a_change_of_format_in_the_middle_is_converted_to_the_first_format() {
    let folder = scratch();
    let [one, other] = ["one.ogg", "other.ogg"].map(|name| folder.join(name));
    generated(&one, "sine=d=2:r=48000", "-ac 2 -c:a libvorbis");
    generated(&other, "sine=d=2:r=44100", "-ac 1 -c:a libvorbis");
    let chain = folder.join("chain.ogg");
    fs::write(&chain, [fs::read(&one).unwrap(), fs::read(&other).unwrap()].concat()).unwrap();
    let out = folder.join("out.wav");
    for how in [&["--json"][..], &["--json", "--mode", "full", "--lra", "7"]] {
        let (code, text, said) = normalize(how, &chain, &out);
        assert_eq!(code, 0, "{said}");
        let change = "the input: the format changes once, from 48000 Hz with 2 channels to \
                      44100 Hz with 1 channel";
        assert!(said.contains(change), "{said}");
        let row = &rows(&text)[0];
        assert!(row["remarks"].as_array().unwrap().iter().any(|it| it == change), "{row}");
        let frames = decoded(&out).len() / 2;
        assert!(frames.abs_diff(4 * 48_000) < 5_000, "{frames}");
    }
}

#[test]
fn a_damaged_file_is_written_as_far_as_it_goes_and_fails() {
    let folder = scratch();
    let (from, to) = (folder.join("in.flac"), folder.join("out.flac"));
    noise(&from, "-ac 2");
    let mut broken = fs::read(&from).unwrap();
    let middle = broken.len() / 2;
    broken[middle..middle + 50].iter_mut().for_each(|byte| *byte ^= 0x55);
    fs::write(&from, &broken).unwrap();
    let what = "only its readable part was written";
    let (code, out, said) = normalize(&["--json"], &from, &to);
    assert!(code == 65 && said.contains("in.flac: the input is damaged at"), "{code}: {said}");
    assert!(said.contains(what) && to.exists(), "{said}");
    let row = &rows(&out)[0];
    assert!(row["ok"] == false && row["state"] == "written", "{row}");
    assert!(row["error"].as_str().unwrap().contains(what), "{row}");
    let (code, out, _) = normalize(&["--json", "--keep-going"], &from, &to);
    assert_eq!((code, &rows(&out)[0]["ok"]), (0, &true.into()));
    // The original is all that there is of the rest.
    let (code, _, said) = in_place(&[], &[&from]);
    assert!(code == 65 && said.contains("not replaced; --keep-going"), "{code}: {said}");
    assert!(fs::read(&from).unwrap() == broken);
    let (code, _, said) = in_place(&["--keep-going"], &[&from]);
    assert!(code == 0 && fs::read(&from).unwrap() != broken, "{code}: {said}");
    assert_eq!(names(&folder), ["in.flac", "out.flac"]);
}

#[test]
fn what_is_read_only_or_no_file_is_left_alone() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    noise(&from, "-ac 2");
    fs::write(&to, "precious").unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o444)).unwrap();
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 77 && said.contains("read-only"), "{code}: {said}");
    assert_eq!(fs::read(&to).unwrap(), b"precious");
    let old = fs::read(&from).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o444)).unwrap();
    let (code, _, said) = in_place(&[], &[&from]);
    assert!(code == 77 && said.contains("read-only"), "{code}: {said}");
    assert!(fs::read(&from).unwrap() == old);
    fs::create_dir(folder.join("folder.wav")).unwrap();
    let (code, _, said) = normalize(&[], &from, &folder.join("folder.wav"));
    assert!(code == 73 && said.contains("not a regular file"), "{code}: {said}");
    assert_eq!(names(&folder), ["folder.wav", "in.wav", "out.wav"]);
}

/// A disk of a megabyte, in a world of its own.
#[test]
fn a_full_disk_is_reported_and_existing_files_stay() {
    let folder = scratch();
    let (from, disk) = (folder.join("in.wav"), folder.join("disk"));
    noise(&from, "-ac 2");
    fs::create_dir(&disk).unwrap();
    for (name, more) in [("out.wav", ""), ("out.flac", ""), ("out.opus", "--bitrate 510")] {
        let script = format!(
            "mount -t tmpfs -o size=1m none {disk} && echo precious > {disk}/{name} && \
             {{ {aulos} normalize --force {more} {from} {disk}/{name}; code=$?; }}; \
             ls -A {disk}; cat {disk}/{name}; exit $code",
            disk = disk.display(),
            aulos = env!("CARGO_BIN_EXE_aulos"),
            from = from.display(),
        );
        // Root in a name space of its own, where that is what it takes.
        let spaces = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
        let output =
            Command::new("unshare").args([spaces, "sh", "-c", &script]).output().expect("unshare");
        let (code, out, said) = of_output(&output);
        assert!(code == 74 && said.contains("cannot be written"), "{name} {code}: {said}");
        assert_eq!(out, format!("{name}\nprecious\n"), "{said}");
    }
}

#[test]
fn a_file_beyond_the_count_of_32_bits_is_read() {
    // RF64 that says its size in its own way; that of 4 GiB is looked at in the writer's own test.
    let folder = scratch();
    let (plain, from) = (folder.join("plain.wav"), folder.join("in.wav"));
    noise(&plain, "-ac 2");
    ffmpeg(&["-i", "FILE", "-rf64", "always", "-c", "copy", "FILE"], &[&plain, &from]);
    assert!(fs::read(&from).unwrap().starts_with(b"RF64"));
    for how in [&[][..], &["--mode", "full", "--lra", "7"]] {
        let (code, _, said) = normalize(how, &from, &folder.join("out.wav"));
        assert_eq!(code, 0, "{said}");
        assert_eq!(decoded(&folder.join("out.wav")).len(), decoded(&plain).len());
    }
    assert_eq!(in_place(&["--quiet"], &[&from]).0, 0);
    assert!((judge(&from)[0] + 23.0).abs() <= 0.1);
}

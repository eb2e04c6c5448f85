//! This library in place of the distribution's libebur128: symbols, corner cases, figures, and
//! programs that were built for the original.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::disallowed_methods, reason = "programs write what they measured into files")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const EXPORTS: [&str; 23] = [
    "ebur128_add_frames_double",
    "ebur128_add_frames_float",
    "ebur128_add_frames_int",
    "ebur128_add_frames_short",
    "ebur128_change_parameters",
    "ebur128_destroy",
    "ebur128_get_version",
    "ebur128_init",
    "ebur128_loudness_global",
    "ebur128_loudness_global_multiple",
    "ebur128_loudness_momentary",
    "ebur128_loudness_range",
    "ebur128_loudness_range_multiple",
    "ebur128_loudness_shortterm",
    "ebur128_loudness_window",
    "ebur128_prev_sample_peak",
    "ebur128_prev_true_peak",
    "ebur128_relative_threshold",
    "ebur128_sample_peak",
    "ebur128_set_channel",
    "ebur128_set_max_history",
    "ebur128_set_max_window",
    "ebur128_true_peak",
];

/// A folder with this library under the names that linkers and loaders search for.
fn ours() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // Cargo does not build a C library for a test that does not link it.
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--offline", "--lib", "-p", "aulos-capi"]);
        build.args(["--target-dir".as_ref(), scratch().join("target").as_os_str()]);
        assert!(build.status().unwrap().success(), "our library can be built");
        let folder = scratch().join("lib");
        std::fs::create_dir_all(&folder).unwrap();
        let library = scratch().join("target/debug/libebur128.so");
        for name in ["libebur128.so", "libebur128.so.1"] {
            std::fs::copy(&library, folder.join(name)).unwrap();
        }
        folder
    })
}

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds a C program of this folder, with our header and library or with those of the
/// distribution.
fn build(name: &str, source: &str, flags: &[&str], with_ours: bool) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = scratch().join(name);
    let mut cc = Command::new("cc");
    cc.args(flags).arg("-o").arg(&program).arg(here.join("tests").join(source));
    if with_ours {
        cc.arg(format!("-I{}", here.join("include").display()));
        cc.arg(format!("-L{}", ours().display()));
    }
    output(cc.args(["-lebur128", "-lm"]));
    program
}

const PLAIN: [&str; 3] = ["-O1", "-g", "-w"];

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

fn has_original() -> bool {
    let linked = Command::new("cc")
        .args(["-x", "c", "-", "-o", "/dev/null", "-lebur128"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write as _;
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(b"#include <ebur128.h>\nint main(void) { return 0; }\n")?;
            drop(stdin);
            child.wait()
        });
    linked.is_ok_and(|status| status.success())
}

#[test]
fn the_library_has_the_name_and_the_23_exports() {
    let library = ours().join("libebur128.so");
    let listed = output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut names: Vec<&str> = listed.lines().filter_map(|l| l.split(' ').nth(2)).collect();
    names.sort_unstable();
    assert_eq!(names, EXPORTS);
    let dynamic = output(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libebur128.so.1]"), "{dynamic}");
}

#[test]
fn every_corner_and_many_programmes_read_as_with_the_original() {
    let with_ours = build("compare-ours", "compare.c", &PLAIN, true);
    let mine = output(Command::new(&with_ours).env("LD_LIBRARY_PATH", ours()));
    if !has_original() {
        println!("skipped: no libebur128");
        return;
    }
    let with_theirs = build("compare-theirs", "compare.c", &PLAIN, false);
    let theirs = output(&mut Command::new(&with_theirs));
    compare(&mine, &theirs);
    // A program that was built for the original runs with this library without being rebuilt.
    let replaced = output(Command::new(&with_theirs).env("LD_LIBRARY_PATH", ours()));
    assert!(replaced == mine, "the same library under another program");
}

/// Line by line: text and return values the same, numbers within 1e-9 LU or 5e-7 of a peak.
fn compare(ours: &str, theirs: &str) {
    assert_eq!(ours.lines().count(), theirs.lines().count());
    let mut context = "";
    let mut apart = Vec::new();
    for (number, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        if ["programme", "init", "odd", "constant", "several"].iter().any(|c| ours.starts_with(c)) {
            context = theirs;
        }
        if ours != theirs && !is_close(ours, theirs, context) {
            apart.push(format!("{number}: {ours} | {theirs} ({context})"));
        }
    }
    let shown = apart.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(apart.is_empty(), "{} lines apart:\n{shown}", apart.len());
}

fn is_close(ours: &str, theirs: &str, context: &str) -> bool {
    let (Some((name, mine)), Some((other, yours))) =
        (ours.rsplit_once(' '), theirs.rsplit_once(' '))
    else {
        return false;
    };
    let (Ok(mine), Ok(yours)) = (mine.parse::<f64>(), yours.parse::<f64>()) else { return false };
    // The precision of the original's single fourth-order section decreases with the rate.
    let rough = ["88200", "96000", "192000"].iter().any(|hz| context.contains(hz));
    let tolerance = if rough { 2e-8 } else { 1e-9 };
    // Far below all gates, both libraries read their own rounding errors.
    let nothing = mine < -200.0 && yours < -200.0;
    let both_nan = mine.is_nan() && yours.is_nan();
    name == other && ((mine - yours).abs() < tolerance || both_nan || nothing)
}

/// Twelve seconds of a signal generated by ffmpeg.
fn sound(name: &str, filter: &str) -> PathBuf {
    let file = scratch().join(name);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y", "-f", "lavfi", "-i", filter, "-t", "12"]);
    output(ffmpeg.args(["-sample_fmt", "s16", "-ac", "2"]).arg(&file));
    file
}

const NOISE: &str = "anoisesrc=r=44100:c=pink:seed=5:a=0.6,tremolo=f=0.3:d=0.9";
const SWEEP: &str = "aevalsrc=0.4*sin(2*PI*t*(100+300*t))*(0.2+0.8*abs(sin(t))):s=48000";

#[test]
fn loudgain_prints_the_same() {
    if !is_installed("loudgain") || !is_installed("ffmpeg") {
        println!("skipped: no loudgain");
        return;
    }
    let files = [sound("noise.flac", NOISE), sound("sweep.flac", SWEEP)];
    let run = |libraries: Option<&Path>, mode: &[&str]| {
        let mut loudgain = Command::new("loudgain");
        loudgain.args(mode).args(["-s", "s", "-q", "-O"]).args(&files);
        if let Some(libraries) = libraries {
            loudgain.env("LD_LIBRARY_PATH", libraries);
        }
        output(&mut loudgain)
    };
    for mode in [&[][..], &["-a"], &["-a", "-k"]] {
        let theirs = run(None, mode);
        assert!(theirs.contains("LUFS") || theirs.contains("dB"), "{theirs}");
        assert_eq!(run(Some(ours()), mode), theirs);
    }
}

#[test]
fn melt_measures_the_same() {
    if !is_installed("melt") || !is_installed("ffmpeg") {
        println!("skipped: no melt");
        return;
    }
    let files = [sound("melt-noise.wav", NOISE), sound("melt-sweep.wav", SWEEP)];
    let run = |name: &str, libraries: Option<&Path>| {
        let out = scratch().join(name);
        let mut melt = Command::new("melt");
        melt.env("QT_QPA_PLATFORM", "offscreen").env("SDL_AUDIODRIVER", "dummy");
        melt.arg("-silent").args(&files).args(["-filter", "loudness_meter"]);
        for measure in ["program", "shortterm", "momentary", "range", "peak", "true_peak"] {
            melt.arg(format!("calc_{measure}=1"));
        }
        melt.arg("-consumer").arg(format!("xml:{}", out.display())).arg("all=1");
        if let Some(libraries) = libraries {
            melt.env("LD_LIBRARY_PATH", libraries);
        }
        output(&mut melt);
        let xml = output(Command::new("cat").arg(&out));
        let names = ["program", "shortterm", "momentary", "range", "peak", "true_peak"];
        let measured = |line: &&str| names.iter().any(|name| line.contains(&format!("\"{name}\"")));
        xml.lines().filter(measured).map(str::to_owned).collect::<Vec<_>>()
    };
    let theirs = run("theirs.xml", None);
    assert!(theirs.len() >= 6, "melt measured: {theirs:?}");
    assert_eq!(run("ours.xml", Some(ours())), theirs);
}

/// The gain control of Pulse Effects computes a gain from the library's readings ten times a
/// second, so its output is the same only if every reading is.
#[test]
fn a_gain_control_in_gstreamer_plays_the_same() {
    let inspected = Command::new("gst-inspect-1.0").arg("peautogain").output();
    if !inspected.is_ok_and(|output| output.status.success()) || !is_installed("ffmpeg") {
        println!("skipped: no peautogain");
        return;
    }
    let raw = scratch().join("gain-in.raw");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y", "-i"]).arg(sound("gain-sweep.wav", SWEEP));
    output(ffmpeg.args(["-f", "f32le"]).arg(&raw));
    let play = |name: &str, libraries: Option<&Path>| {
        let out = scratch().join(name);
        let mut gst = Command::new("gst-launch-1.0");
        gst.args(["-q", "filesrc"]).arg(format!("location={}", raw.display()));
        gst.args("! rawaudioparse format=pcm pcm-format=f32le sample-rate=48000".split(' '));
        gst.args("num-channels=2 ! peautogain target=-30 ! filesink".split(' '));
        gst.arg(format!("location={}", out.display()));
        if let Some(libraries) = libraries {
            gst.env("LD_LIBRARY_PATH", libraries);
        }
        output(&mut gst);
        std::fs::read(out).unwrap()
    };
    let theirs = play("gain-theirs.raw", None);
    assert!(theirs != std::fs::read(&raw).unwrap(), "it does change the gain");
    assert!(play("gain-ours.raw", Some(ours())) == theirs);
}

#[test]
fn null_and_absurd_sizes_are_answered_and_do_not_crash() {
    let program = null_program();
    output(Command::new(program).env("LD_LIBRARY_PATH", ours()));
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    if !is_installed("valgrind") {
        println!("skipped: no valgrind");
        return;
    }
    let compare = build("compare-short", "compare.c", &PLAIN, true);
    let null = null_program();
    // Covers each function and corner case; the signals are a fiftieth as long.
    for (program, arguments) in [(compare.as_path(), &["6", "50"][..]), (null, &[])] {
        let mut valgrind = Command::new("valgrind");
        valgrind.args([
            "-q",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=all",
        ]);
        output(valgrind.arg(program).args(arguments).env("LD_LIBRARY_PATH", ours()));
    }
}

/// `null.c`, built with all warnings against our header and our library.
fn null_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c99", "-pthread"];
        build("null", "null.c", &strict, true)
    })
}

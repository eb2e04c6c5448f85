//! Loudness range of real music, and movement of the gain on it. With `AULOS_SOAK` all the music of
//! the distribution packages that the tests need (an hour and a half), otherwise some pieces of
//! each kind.

use std::path::Path;

use aulos_dsp::normalize::{LookAhead, Settings};

use super::reference::{measure, measure_with_peak};
use super::sound::Sound;

const BUBBLE: &str = "/usr/share/games/frozen-bubble/snd";
const SUPERTUX: &str = "/usr/share/games/supertux2/music";

/// Pieces whose range is within 7 LU. Those that build up over a minute have no short form: nothing
/// at their start shows that they do.
const PIECES: [(&str, &str); 5] = [
    ("pop", "frozen-bubble/snd/introzik"),
    ("orchestra", "supertux2/music/misc/christmas_theme"),
    ("march", "supertux2/music/forest/clavelian_march"),
    ("electronic", "supertux2/music/antarctic/jewels"),
    ("theme", "supertux2/music/misc/theme"),
];

/// The loudness range, by the crate `ebur128`.
fn range(sound: &Sound) -> f64 {
    let mut meter = ebur128::EbuR128::new(2, sound.hz, ebur128::Mode::LRA).unwrap();
    meter.add_frames_f32(&sound.samples).unwrap();
    meter.loudness_range().unwrap()
}

fn check_range(name: &str, sound: &Sound) {
    let before = range(sound);
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        let (out, _) = sound.normalized(mode, &Settings::default());
        let after = range(&out);
        println!("{name}, {mode:?}: {before:.2} -> {after:.2} LU");
        assert!((after - before).abs() <= 1.0, "{name}, {mode:?}: {before} became {after} LU");
    }
}

#[test]
fn music_and_speech_within_the_range_setting_keep_their_range() {
    for folder in [BUBBLE, SUPERTUX] {
        if !Path::new(folder).exists() {
            println!("skipped: no {folder}");
            return;
        }
    }
    check_range("speech", &Sound::speech());
    for (kind, path) in PIECES {
        check_range(kind, &Sound::file(&format!("/usr/share/games/{path}.ogg")));
    }
}

#[test]
fn an_hour_of_music_reaches_the_target_and_keeps_its_range_on_average() {
    if std::env::var_os("AULOS_SOAK").is_none() {
        return check_one_piece();
    }
    let (mut changes, mut seconds) = (Vec::new(), 0.0);
    for folder in [BUBBLE, SUPERTUX] {
        for path in ogg_files(Path::new(folder)) {
            let sound = Sound::file(path.to_str().unwrap());
            let before = range(&sound);
            if sound.seconds() < 60.0 {
                continue;
            }
            let (out, statistics) = sound.normalized(LookAhead::Full, &Settings::default());
            let (measured, after) = (measure_with_peak(&out), range(&out));
            let deviation = measured.integrated + 23.0;
            println!("{}: {deviation:+.2} LU, {before:.1} -> {after:.1} LU", path.display());
            assert!(
                deviation.abs() <= 1.5 && measured.peak <= -0.95,
                "{}: {measured:?}",
                path.display()
            );
            assert_eq!(statistics.clamped, 0);
            seconds += sound.seconds();
            if before <= 7.0 {
                changes.push((after - before).abs());
            }
        }
    }
    let mean = changes.iter().sum::<f64>() / changes.len() as f64;
    println!("{:.0} min, {} pieces inside the range: {mean:.2} LU", seconds / 60.0, changes.len());
    assert!(seconds >= 3_600.0, "{seconds} s of music: see scripts/test-setup");
    assert!(mean <= 1.0, "{mean} LU");
}

/// The same with one piece.
fn check_one_piece() {
    let sound = Sound::file(&format!("{BUBBLE}/introzik.ogg"));
    let (out, _) = sound.normalized(LookAhead::Full, &Settings::default());
    let deviation = measure(&out).integrated + 23.0;
    assert!(deviation.abs() <= 0.5, "{deviation:+.2} LU");
}

fn ogg_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(ogg_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "ogg") {
            files.push(path);
        }
    }
    files.sort();
    files
}

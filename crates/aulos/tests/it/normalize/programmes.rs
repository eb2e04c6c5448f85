//! Programmes A to F, music and speech through every mode, judged by ffmpeg.

use std::path::Path;
use std::process::Command;

use super::{ffmpeg, generated, judged, normalize};
use crate::common::scratch;

/// What is generated, and by how much it may be off where the gain moves.
const PROGRAMMES: [(&str, &str); 6] = [
    (
        "A: steps of 20 LU",
        "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=60,\
         volume='if(lt(t,20),0.063,if(lt(t,40),0.63,0.12))':eval=frame",
    ),
    (
        "B: syllables and pauses",
        "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=60,\
         volume='if(lt(mod(t,0.25),0.17),0.7,0.05)*if(lt(mod(t,5),3.5),1,0.001)':eval=frame",
    ),
    (
        "C: clicks",
        "aevalsrc='0.03*(2*random(0)-1)+if(lt(mod(t,1.7),0.002),0.9,0)*sin(2*PI*3000*t)':s=48000:d=60",
    ),
    (
        "D: a late start",
        "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=60,volume='if(lt(t,15),0,0.2)':eval=frame",
    ),
    ("E: two seconds", "anoisesrc=r=48000:c=pink:seed=5:a=0.6:d=2"),
    ("F: between the samples", "aevalsrc='0.97*sin(2*PI*12000*t+PI/4)':s=48000:d=40"),
];

fn check(name: &str, from: &Path, how: &[&str], keeps_range: bool, limit: f64) {
    let to = from.with_file_name("out.wav");
    let (code, _, said) = normalize(how, from, &to);
    assert_eq!(code, 0, "{name} {how:?}: {said}");
    let ([before, range, _], [after, new_range, peak]) = (judged(from), judged(&to));
    println!("{name:24} {how:?}: I {before} -> {after}, LRA {range} -> {new_range}, TP {peak}");
    assert!((after + 23.0).abs() <= limit, "{name} {how:?}: {after} LUFS");
    assert!(peak <= -0.9, "{name} {how:?}: {peak} dBTP");
    assert!(
        !keeps_range || (new_range - range).abs() <= 1.0,
        "{name} {how:?}: {range} {new_range}"
    );
}

/// By one gain and the limiter, and as a station has it. (That a live mode without `--lra` is the
/// first of these is looked at elsewhere.)
fn check_all(name: &str, from: &Path) {
    check(name, from, &["--limit"], true, 0.1);
    check(name, from, &["--mode", "full", "--lra", "7"], false, 0.5);
}

#[test]
fn every_programme_reaches_the_target_and_keeps_its_range() {
    let folder = scratch();
    let from = folder.join("in.wav");
    for (name, sound) in PROGRAMMES {
        generated(&from, sound, "-ac 2 -c:a pcm_s24le");
        check_all(name, &from);
    }
}

#[test]
fn music_and_speech_of_every_rate_reach_the_target_and_keep_their_range() {
    let folder = scratch();
    let from = folder.join("in.wav");
    let music = Path::new("/usr/share/games/frozen-bubble/snd/frozen-mainzik-2p.ogg");
    let spoken = folder.join("spoken.wav");
    let said = "The aulos was the double pipe of the Greeks: two reeds, one breath. ".repeat(12);
    let mut espeak = Command::new("espeak-ng");
    let status = espeak.arg("-w").arg(&spoken).arg(&said).status();
    assert!(status.expect("espeak-ng: see scripts/test-setup").success());
    for (name, more) in [
        ("music", &["-ac", "2"][..]),
        ("music, mono, 44.1 kHz", &["-ac", "1", "-ar", "44100"]),
        ("music, 96 kHz", &["-ac", "2", "-ar", "96000"]),
        ("music, 192 kHz", &["-ac", "2", "-ar", "192000"]),
        ("music, 8 kHz", &["-ac", "1", "-ar", "8000"]),
        ("music, 5.1", &["-filter_complex", "[0:a]pan=5.1|FL=c0|FR=c1|FC=.5*c0|BL=.3*c1|BR=.3*c0"]),
    ] {
        ffmpeg(
            &[&["-t", "50", "-i", "FILE"], more, &["-c:a", "pcm_s24le", "FILE"]].concat(),
            &[music, &from],
        );
        check_all(name, &from);
    }
    check_all("speech", &spoken);
    let turns = "[0:a]aresample=48000,aformat=channel_layouts=stereo,atrim=0:12,volume=-12dB[s];\
                 [1:a]aresample=48000,aformat=channel_layouts=stereo,atrim=0:12,asetpts=N/SR/TB[m];\
                 [s]asplit[s1][s2];[m]asplit[m1][m2];[s1][m1][s2][m2]concat=n=4:v=0:a=1";
    let arguments = ["-i", "FILE", "-i", "FILE", "-filter_complex", turns, "FILE"];
    ffmpeg(&arguments, &[&spoken, music, &from]);
    check_all("speech and music by turns", &from);
}

//! Opus out: length, place, loudness and peaks of what ffmpeg decodes.

use super::{decoded, ffmpeg, generated, judge, noise, normalize, rows};
use crate::common::scratch;

#[test]
fn the_length_is_exact_at_every_rate() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.opus"));
    for (rate, frames) in [
        (48_000, 480_u64),
        (48_000, 840),
        (48_000, 841),
        (48_000, 96_001),
        (44_100, 44_100),
        (44_100, 31_337),
        (96_000, 96_001),
        (8_000, 12_345),
        (192_000, 100_000),
        (11_025, 1),
    ] {
        let sound = format!("anoisesrc=r={rate}:seed=3:a=0.3:d=3,atrim=end_sample={frames}");
        generated(&from, &sound, "-ac 2");
        let (code, _, said) = normalize(&[], &from, &to);
        assert_eq!(code, 0, "{rate}: {said}");
        assert_eq!(said.contains("the only rate of Opus"), rate != 48_000, "{said}");
        let wanted = (frames * 48_000 + rate / 2) / rate;
        assert_eq!(decoded(&to).len() as u64, 2 * wanted, "{frames} frames at {rate} Hz");
    }
}

#[test]
fn every_frame_is_where_it_was() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.opus"));
    for rate in [48_000, 44_100] {
        let sound = "anoisesrc=r=48000:c=pink:seed=8:a=0.2:d=2,lowpass=f=4000";
        generated(&from, sound, &format!("-ac 1 -ar {rate}"));
        assert_eq!(normalize(&["--bitrate", "256"], &from, &to).0, 0);
        let reference = folder.join("reference.wav");
        ffmpeg(&["-i", "FILE", "-ar", "48000", "-c:a", "pcm_f32le", "FILE"], &[&from, &reference]);
        let (one, other) = (decoded(&reference), decoded(&to));
        // From 400 frames early to 400 late.
        let likeness = |at: usize| -> f64 {
            let pairs = one[1_000..90_000].iter().zip(&other[600 + at..]);
            pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let best = (0..800).max_by(|a, b| likeness(*a).total_cmp(&likeness(*b)));
        assert_eq!(best, Some(400), "{rate} Hz");
    }
}

#[test]
fn loudness_and_peaks_are_right_behind_the_codec() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.opus"));
    for (more, arguments) in [
        ("-ac 2", &["--target", "-23"][..]),
        ("-ac 1 -ar 44100", &["--target", "-20"]),
        ("-ac 2", &["--target", "-12", "--limit"]),
        ("-ac 2", &["--target", "-12", "--limit", "--bitrate", "64"]),
        ("-ac 2 -ar 96000", &["--target", "-16", "--mode", "full", "--lra", "7"]),
    ] {
        noise(&from, more);
        let (code, out, said) = normalize(&[arguments, &["--json"]].concat(), &from, &to);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        let [integrated, peak] = judge(&to);
        let target: f64 = arguments[1].parse().unwrap();
        let told = rows(&out)[0]["after"]["integrated_lufs"].as_f64().unwrap();
        assert!((integrated - told).abs() <= 0.06, "{arguments:?}: {integrated}, not {told}");
        assert!((integrated - target).abs() <= 0.3, "{arguments:?}: {integrated}");
        assert!(peak <= -0.9, "{arguments:?}: {peak} dBTP");
    }
}

#[test]
fn a_codec_that_raises_the_peaks_gets_less_gain_with_a_remark() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.opus"));
    // Square waves lose their harmonics, and what is left overshoots.
    let sound = "aevalsrc='0.05*sgn(sin(2*PI*440*t))*(1+sgn(sin(2*PI*0.5*t)))':s=48000:d=6";
    generated(&from, sound, "-ac 2");
    let (code, out, said) = normalize(&["--target", "-6", "--bitrate", "24", "--json"], &from, &to);
    assert_eq!(code, 0, "{said}");
    assert!(judge(&to)[1] <= -0.9, "{} dBTP", judge(&to)[1]);
    let row = &rows(&out)[0];
    assert_eq!(row["bound"], "ceiling", "{row}");
    assert!(said.contains("the peaks allow"), "{said}");
}

#[test]
fn six_channels_are_refused_and_nothing_is_left() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.opus"));
    generated(&from, "anoisesrc=d=1:a=0.2", "-ac 6");
    let (code, _, said) = normalize(&[], &from, &to);
    assert!(code == 73 && said.contains("one or two channels"), "{code}: {said}");
    assert_eq!(super::names(&folder), ["in.wav"]);
}

#[test]
fn the_bit_rate_is_as_requested() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.opus"));
    noise(&from, "-ac 2");
    let size = |kbps: &str| {
        assert_eq!(normalize(&["--bitrate", kbps], &from, &to).0, 0);
        std::fs::metadata(&to).unwrap().len() * 8 / 20_000
    };
    for kbps in [64_u64, 160] {
        let found = size(&kbps.to_string());
        assert!(found.abs_diff(kbps) * 10 <= kbps * 2, "{found} kb/s, not {kbps}");
    }
}

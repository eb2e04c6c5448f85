//! The pilot test: what a limiter does to a quiet tone while it takes bursts away.

use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::path::Path;

use aulos_benches::{Row, argument};
use aulos_dsp::normalize::LookAhead;

use crate::peers::{GStreamer, judge, loudnorm};
use crate::{CEILING, HZ, LOUDNORM, Sound, TARGET, db, noise, ours, stereo};

const PILOT_HZ: f64 = 19_000.0;
const PILOT: f64 = 0.01;

/// Noise at the target, so that nobody wants much of a gain; in it a pilot and, each second, a burst.
pub(crate) fn pilot(rows: &mut Vec<Row>, gstreamer: Option<&GStreamer>) {
    let mut draw = noise(8);
    // Below some hundred hertz, so that nothing of it is near the pilot.
    let mut poles = [0.0; 3];
    let background = stereo(20, |_| {
        poles.iter_mut().fold(draw(), |input, pole| {
            *pole += 0.1 * (input - *pole);
            *pole
        })
    });
    let gain = db(TARGET - judge(&background).integrated);
    let height = db(CEILING + 6.0);
    let mut frames = background.chunks(2);
    let sound = stereo(20, |time| {
        let noise = gain * f64::from(frames.next().expect("as long")[0]);
        let within = (time.fract() - 0.5) / 0.002;
        let inside = (0.0..1.0).contains(&within);
        let shape = if inside { (within * TAU / 2.0).sin().powi(2) } else { 0.0 };
        let burst = height * shape * (TAU * 1_000.0 * (time - 0.001)).cos();
        noise + burst + PILOT * (TAU * PILOT_HZ * time).sin()
    });
    let theirs = gstreamer.map(|peer| ("audioloudnorm", peer.loudnorm(&sound)));
    let outs = [("aulos", ours(&sound, LookAhead::Full)), ("loudnorm", loudnorm(&sound, LOUDNORM))];
    let curves: Vec<(&str, Vec<f64>)> = outs
        .into_iter()
        .chain(theirs)
        .map(|(name, out)| (name, averaged(&demodulated(&out))))
        .collect();
    for (name, curve) in &curves {
        let after = &curve[AT_MS + 12..AT_MS + 480];
        let falls = after.windows(2).map(|pair| pair[0] - pair[1]).fold(0.0, f64::max);
        let back = after.iter().rposition(|gain| *gain < -0.1).map_or(0, |index| index + 12);
        let deepest = curve.iter().copied().fold(0.0, f64::min);
        for (words, value) in [
            ("dB at the burst", deepest),
            ("dB of fall per ms afterwards", falls),
            ("ms until back to 0.1 dB", back as f64),
        ] {
            rows.push(Row::figure("normal", format!("pilot, {name}, {words}"), value));
        }
    }
    if argument("svg", 0) == 1 {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images/limiter-pilot.svg");
        std::fs::write(path, drawn(&curves)).expect("the drawing can be written");
    }
}

/// Where the burst begins in the averaged curve.
const AT_MS: usize = 500;

/// The pilot's amplitude each millisecond, over 2 ms under a Hann window.
fn demodulated(sound: &Sound) -> Vec<f64> {
    const WIDTH: usize = HZ / 500;
    let shape = |n: usize| (TAU / 2.0 * (n as f64 + 0.5) / WIDTH as f64).sin().powi(2);
    let window: Vec<f64> = (0..WIDTH).map(shape).collect();
    let shifted: Vec<(f64, f64)> = sound
        .chunks(2)
        .enumerate()
        .map(|(n, frame)| {
            let angle = TAU * PILOT_HZ * n as f64 / HZ as f64;
            (f64::from(frame[0]) * angle.sin(), f64::from(frame[0]) * angle.cos())
        })
        .collect();
    let starts = (0..shifted.len() - WIDTH).step_by(HZ / 1_000);
    starts
        .map(|start| {
            let part = &shifted[start..start + WIDTH];
            let sums = part
                .iter()
                .zip(&window)
                .fold((0.0, 0.0), |(a, b), (x, w)| (a + x.0 * w, b + x.1 * w));
            sums.0.hypot(sums.1)
        })
        .collect()
}

/// The mean of seconds 8 to 17, in dB of what it is between the bursts.
fn averaged(amplitudes: &[f64]) -> Vec<f64> {
    let rest: f64 =
        (8..18).flat_map(|second| &amplitudes[1_000 * second + 400..1_000 * second + 480]).sum();
    let rest = rest / 800.0;
    let mean =
        |ms: usize| (8..18).map(|second| amplitudes[1_000 * second + ms]).sum::<f64>() / 10.0;
    // The window is centred 1 ms after its start.
    (0..1_000).map(|ms| 20.0 * (mean((ms + 999) % 1_000) / rest).log10()).collect()
}

/// The curves from 50 ms before the burst to 300 ms after.
fn drawn(curves: &[(&str, Vec<f64>)]) -> String {
    const WIDTH: f64 = 760.0;
    let x = |ms: f64| 60.0 + (ms + 50.0) / 350.0 * (WIDTH - 100.0);
    let y = |gain: f64| 40.0 - gain.clamp(-12.0, 1.0) * 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 330\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"330\" fill=\"#fff\"/>\n"
    );
    for gain in (-12..=0).step_by(3) {
        let at = y(f64::from(gain));
        let _ = writeln!(
            out,
            "<path d=\"M60 {at}H{}\" stroke=\"#ddd\"/><text x=\"50\" y=\"{}\" text-anchor=\"end\" fill=\"#333\">{gain} dB</text>",
            WIDTH - 40.0,
            at + 4.0
        );
    }
    for ms in (-50..=300).step_by(50) {
        let at = x(f64::from(ms));
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} 20V290\" stroke=\"#eee\"/><text x=\"{at:.1}\" y=\"308\" text-anchor=\"middle\" fill=\"#333\">{ms} ms</text>"
        );
    }
    for ((name, curve), colour) in curves.iter().zip(["#0a6", "#c40", "#46c"]).rev() {
        let points: Vec<String> = (-50..300)
            .map(|ms| {
                format!("{:.1},{:.2}", x(f64::from(ms)), y(curve[(AT_MS as i32 + ms) as usize]))
            })
            .collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>",
            points.join(" ")
        );
        let line = match *name {
            "aulos" => 230,
            "loudnorm" => 250,
            _ => 270,
        };
        let _ = writeln!(out, "<text x=\"600\" y=\"{line}\" fill=\"{colour}\">{name}</text>");
    }
    out.push_str("</svg>\n");
    out
}

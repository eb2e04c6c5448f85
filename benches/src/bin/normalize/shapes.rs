//! What a normalizer does to a fade-out, to room tone in a pause and to a step that stays.
//!
//! Drawn as the gain of each 100 ms, which is the ratio of what comes out to what went in, so that a
//! reader sees at once what is raised that should not be.

use std::fmt::Write as _;
use std::path::Path;

use aulos_benches::{Row, argument};
use aulos_dsp::normalize::LookAhead;

use crate::peers::loudnorm;
use crate::{HZ, LOUDNORM, Sound, db, noise, ours, stereo};

/// Level of the programme before, in dBFS of the noise.
const PROGRAMME: f64 = -20.0;
/// Where it changes, and how long all of it is.
const CHANGE_S: f64 = 30.0;
const SECONDS: usize = 60;

/// A name, the level at each time, and when it is over what must not be raised.
type Shape = (&'static str, fn(f64) -> f64, f64);

const SHAPES: [Shape; 3] = [
    (
        "fade-out of 40 dB in 12 s",
        |after| if after < 12.0 { -40.0 / 12.0 * after } else { 0.0 },
        12.0,
    ),
    ("8 s of room tone 27 dB down", |after| if after < 8.0 { -27.0 } else { 0.0 }, 8.0),
    ("12 dB less for good", |_| -12.0, 0.0),
];

pub(crate) fn shapes(rows: &mut Vec<Row>) {
    let mut panels = Vec::new();
    for (name, level, over) in SHAPES {
        let mut draw = noise(21);
        let level =
            |time: f64| PROGRAMME + if time < CHANGE_S { 0.0 } else { level(time - CHANGE_S) };
        let sound = stereo(SECONDS, |time| draw() * db(level(time)));
        let curves: Vec<(&str, Vec<f64>)> = [
            ("full", ours(&sound, LookAhead::Full)),
            ("mid", ours(&sound, LookAhead::Mid)),
            ("low", ours(&sound, LookAhead::Low)),
            ("loudnorm", loudnorm(&sound, LOUDNORM)),
        ]
        .into_iter()
        .map(|(name, out)| (name, gains(&sound, &out)))
        .collect();
        if over > 0.0 {
            let rise = |curve: &[f64]| rise(curve, over);
            let theirs = rise(&curves[3].1);
            for (mode, curve) in &curves[..3] {
                let limit = if over > 10.0 { 7.0 } else { 4.0 };
                let case = format!("{name}, dB of rise, {mode} / loudnorm, one pass");
                rows.push(Row {
                    target: Some(format!("<= {limit}")),
                    met: Some(rise(curve) <= limit),
                    ..Row::against("normal", case, rise(curve), theirs, None)
                });
            }
        }
        panels.push((name, level_curve(&level), curves));
    }
    if argument("svg", 0) == 1 {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images/normalizer-gain.svg");
        std::fs::write(path, drawn(&panels)).expect("the drawing can be written");
    }
}

/// In dB, each 100 ms.
fn gains(sound: &Sound, out: &Sound) -> Vec<f64> {
    const STEP: usize = 2 * HZ / 10;
    let power = |part: &[f32]| part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let parts = sound.chunks_exact(STEP).zip(out.chunks_exact(STEP));
    parts.map(|(before, after)| 10.0 * (power(after) / power(before)).log10()).collect()
}

/// How far the gain rises above what it was before, until `over` seconds after the change.
fn rise(curve: &[f64], over: f64) -> f64 {
    let at = (10.0 * CHANGE_S) as usize;
    let before = curve[at - 60..at - 30].iter().sum::<f64>() / 30.0;
    let during = &curve[at - 30..at + (10.0 * over) as usize];
    during.iter().copied().fold(before, f64::max) - before
}

fn level_curve(level: &impl Fn(f64) -> f64) -> Vec<f64> {
    (0..10 * SECONDS).map(|tenth| level(tenth as f64 / 10.0) - PROGRAMME).collect()
}

type Panel<'a> = (&'a str, Vec<f64>, Vec<(&'a str, Vec<f64>)>);

/// From 10 s before the change to 25 s after it, one panel below the other.
fn drawn(panels: &[Panel<'_>]) -> String {
    const WIDTH: f64 = 760.0;
    const HEIGHT: f64 = 250.0;
    let x = |seconds: f64| 60.0 + (seconds - CHANGE_S + 10.0) / 35.0 * (WIDTH - 190.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        HEIGHT * panels.len() as f64
    );
    for (number, (name, level, curves)) in panels.iter().enumerate() {
        let top = HEIGHT * number as f64;
        let y = |gain: f64| top + 80.0 - gain.clamp(-42.0, 15.0) * 3.0 * 0.9;
        let _ =
            writeln!(out, "<text x=\"60\" y=\"{}\" font-weight=\"bold\">{name}</text>", top + 22.0);
        for gain in (-40..=10).step_by(10) {
            let at = y(f64::from(gain));
            let _ = writeln!(
                out,
                "<path d=\"M60 {at:.1}H{}\" stroke=\"#ddd\"/><text x=\"52\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333\">{gain} dB</text>",
                WIDTH - 130.0,
                at + 4.0
            );
        }
        for seconds in (-10..=25).step_by(5) {
            let at = x(CHANGE_S + f64::from(seconds));
            let _ = writeln!(
                out,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#333\">{seconds} s</text>",
                top + 215.0
            );
        }
        let reference = |curve: &[f64]| curve[200..250].iter().sum::<f64>() / 50.0;
        let input = [("input", level.clone())];
        let all = input.iter().chain(curves);
        for ((name, curve), (colour, width)) in all.zip(COLOURS) {
            let zero = if *name == "input" { 0.0 } else { reference(curve) };
            let points: Vec<String> = (200..550)
                .map(|tenth| format!("{:.1},{:.1}", x(tenth as f64 / 10.0), y(curve[tenth] - zero)))
                .collect();
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" points=\"{}\"/>",
                points.join(" ")
            );
        }
        let names = ["level of the input", "aulos, full", "aulos, mid", "aulos, low", "loudnorm"];
        for (row, (name, (colour, _))) in names.iter().zip(COLOURS).enumerate() {
            let at = top + 60.0 + 20.0 * row as f64;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{at}\" fill=\"{colour}\">{name}</text>",
                WIDTH - 122.0
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

const COLOURS: [(&str, f64); 5] =
    [("#999", 1.0), ("#0a6", 2.0), ("#46c", 1.4), ("#a3c", 1.4), ("#c40", 1.6)];

//! Two independent meters: ffmpeg's `ebur128` and the crate of that name.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use super::sound::Sound;

/// Measurement of a programme by ffmpeg's `ebur128`.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// LUFS.
    pub(crate) integrated: f64,
    /// LU.
    pub(crate) range: f64,
    /// dBTP, at 192 kHz; not a number unless it was asked for.
    pub(crate) peak: f64,
    /// LUFS of each window of 3 s, one for each tenth of a second.
    pub(crate) short_term: Vec<f64>,
    /// LUFS of each window of 400 ms, one for each tenth of a second.
    pub(crate) momentary: Vec<f64>,
}

impl Measurement {
    /// The short-term loudness of the 3 s that end at `seconds`.
    pub(crate) fn at(&self, seconds: f64) -> f64 {
        self.short_term[(seconds * 10.0).round() as usize - 1]
    }

    /// The greatest momentary loudness of the windows that end within these seconds.
    pub(crate) fn max_momentary(&self, from: f64, to: f64) -> f64 {
        let at = |time: f64| (time * 10.0).round() as usize;
        self.momentary[at(from)..at(to)].iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Measures loudness with ffmpeg; the crate must agree within the rounding of ffmpeg's output.
pub(crate) fn measure(sound: &Sound) -> Measurement {
    agreed(sound, ffmpeg(sound, "ebur128=metadata=1"))
}

/// Measures true peak too, which takes three times as long.
pub(crate) fn measure_with_peak(sound: &Sound) -> Measurement {
    agreed(sound, ffmpeg(sound, "ebur128=peak=true:metadata=1"))
}

/// Integrated loudness by the crate, in LUFS.
pub(crate) fn integrated(sound: &Sound) -> f64 {
    let mode = ebur128::Mode::I;
    let mut meter = ebur128::EbuR128::new(sound.channels as u32, sound.hz, mode).unwrap();
    meter.add_frames_f32(&sound.samples).unwrap();
    meter.loudness_global().unwrap()
}

/// The measurement, once the crate agrees with it.
fn agreed(sound: &Sound, measured: Measurement) -> Measurement {
    let integrated = integrated(sound);
    if integrated > -70.0 {
        let apart = (integrated - measured.integrated).abs();
        assert!(apart < 0.1, "meters differ: {integrated} and {}", measured.integrated);
    }
    measured
}

/// True peak in dBTP, measured by the crate.
pub(crate) fn ebur128_peak(sound: &Sound) -> f64 {
    let mode = ebur128::Mode::TRUE_PEAK;
    let mut meter = ebur128::EbuR128::new(sound.channels as u32, sound.hz, mode).unwrap();
    meter.add_frames_f32(&sound.samples).unwrap();
    let channels = 0..sound.channels as u32;
    20.0 * channels.map(|c| meter.true_peak(c).unwrap()).fold(0.0, f64::max).log10()
}

fn ffmpeg(sound: &Sound, meter: &str) -> Measurement {
    let filter = format!("{meter},ametadata=print:file=-");
    let output = filtered(sound, &["-af", &filter, "-f", "null", "-"]);
    let output = String::from_utf8_lossy(&output);
    let mut last = HashMap::new();
    let (mut short_term, mut momentary) = (Vec::new(), Vec::new());
    for line in output.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value: f64 = value.parse().unwrap_or(f64::NEG_INFINITY);
        match key {
            "lavfi.r128.S" => short_term.push(value),
            "lavfi.r128.M" => momentary.push(value),
            _ => {}
        }
        last.insert(key.to_owned(), value);
    }
    let figure = |name: &str| last.get(&format!("lavfi.r128.{name}")).copied().unwrap_or(-70.0);
    let peaks = (0..sound.channels)
        .map(|channel| last.get(&format!("lavfi.r128.true_peaks_ch{channel}")).copied());
    // Without the peak of a channel there is none of the whole.
    let peaks: Option<Vec<f64>> = peaks.collect();
    let peak = peaks.map_or(f64::NAN, |peaks| peaks.into_iter().fold(0.0, f64::max));
    let peak = 20.0 * peak.log10();
    Measurement { integrated: figure("I"), range: figure("LRA"), peak, short_term, momentary }
}

/// The output of ffmpeg for the sound.
pub(crate) fn filtered(sound: &Sound, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-f", "f32le", "-ar", &sound.hz.to_string()]);
    command.args(["-ac", &sound.channels.to_string(), "-i", "pipe:0"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("ffmpeg: see scripts/test-setup");
    let mut input = child.stdin.take().unwrap();
    let bytes: Vec<u8> = sound.samples.iter().flat_map(|x| x.to_le_bytes()).collect();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "ffmpeg failed");
        output.stdout
    })
}

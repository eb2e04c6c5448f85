//! Two judges that know nothing of us: ffmpeg's `ebur128` and the crate of that name.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::sound::Sound;

/// What a programme is, by ffmpeg's `ebur128=peak=true`.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    /// LUFS.
    pub(crate) integrated: f64,
    /// LU.
    pub(crate) range: f64,
    /// dBTP, of 192 kHz.
    pub(crate) peak: f64,
    /// LUFS of the 3 s that end each tenth of a second.
    pub(crate) short_term: Vec<f64>,
}

impl Judged {
    /// The short-term loudness of the 3 s that end at `seconds`.
    pub(crate) fn at(&self, seconds: f64) -> f64 {
        self.short_term[(seconds * 10.0).round() as usize - 1]
    }
}

/// Asks ffmpeg; the crate must agree, to the digits that ffmpeg's own rounding leaves.
pub(crate) fn judge(sound: &Sound) -> Judged {
    let judged = ffmpeg(sound);
    let mode = ebur128::Mode::I;
    let mut second = ebur128::EbuR128::new(sound.channels as u32, sound.hz, mode).unwrap();
    second.add_frames_f32(&sound.samples).unwrap();
    let integrated = second.loudness_global().unwrap();
    if integrated > -70.0 {
        let apart = (integrated - judged.integrated).abs();
        assert!(apart < 0.1, "judges differ: {integrated} and {}", judged.integrated);
    }
    judged
}

/// The true peak in dBTP that the crate reads.
pub(crate) fn second_peak(sound: &Sound) -> f64 {
    let mode = ebur128::Mode::TRUE_PEAK;
    let mut judge = ebur128::EbuR128::new(sound.channels as u32, sound.hz, mode).unwrap();
    judge.add_frames_f32(&sound.samples).unwrap();
    let channels = 0..sound.channels as u32;
    20.0 * channels.map(|c| judge.true_peak(c).unwrap()).fold(0.0, f64::max).log10()
}

fn ffmpeg(sound: &Sound) -> Judged {
    let filter = "ebur128=peak=true:metadata=1,ametadata=print:file=-";
    let said = filtered(sound, &["-af", filter, "-f", "null", "-"]);
    let said = String::from_utf8_lossy(&said);
    let mut last = HashMap::new();
    let mut short_term = Vec::new();
    for line in said.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value: f64 = value.parse().unwrap_or(f64::NEG_INFINITY);
        if key == "lavfi.r128.S" {
            short_term.push(value);
        }
        last.insert(key.to_owned(), value);
    }
    let figure = |name: &str| last.get(&format!("lavfi.r128.{name}")).copied().unwrap_or(-70.0);
    let peaks = (0..sound.channels).map(|channel| figure(&format!("true_peaks_ch{channel}")));
    let peak = 20.0 * peaks.fold(0.0, f64::max).log10();
    Judged { integrated: figure("I"), range: figure("LRA"), peak, short_term }
}

/// What ffmpeg makes of the sound.
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

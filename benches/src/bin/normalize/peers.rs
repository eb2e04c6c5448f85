//! The others, and the judge.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::{CEILING, LOUDNORM, Sound, TARGET};

/// What ffmpeg makes of the sound, and what it says.
pub(crate) fn ffmpeg(sound: &Sound, filter: &str, out: &[&str]) -> (Vec<u8>, String) {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-nostats", "-threads", "1", "-f", "f32le", "-ar", "48000"]);
    command.args(["-ac", "2", "-i", "pipe:0", "-af", filter]).args(out);
    through(command, sound)
}

/// What a program that reads raw sound makes of it, and what it says.
fn through(mut command: Command, sound: &Sound) -> (Vec<u8>, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program can be run");
    let mut input = child.stdin.take().expect("a pipe");
    let bytes: Vec<u8> = sound.iter().flat_map(|x| x.to_le_bytes()).collect();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(&bytes));
        child.wait_with_output().expect("the program ends")
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    (output.stdout, said)
}

pub(crate) fn samples(bytes: &[u8]) -> Sound {
    bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

pub(crate) fn loudnorm(sound: &Sound, filter: &str) -> Sound {
    let (bytes, _) = ffmpeg(sound, filter, &["-ar", "48000", "-f", "f32le", "-"]);
    samples(&bytes)
}

/// The filter of the second pass.
pub(crate) fn second_pass(sound: &Sound) -> String {
    let filter = format!("{LOUDNORM}:print_format=json");
    let (_, said) = ffmpeg(sound, &filter, &["-f", "null", "-"]);
    let value = |key: &str| {
        let (_, behind) = said.split_once(&format!("\"{key}\" : \"")).expect("a figure");
        behind.split_once('"').expect("its end").0.to_owned()
    };
    format!(
        "{LOUDNORM}:measured_I={}:measured_LRA={}:measured_TP={}:measured_thresh={}:linear=true",
        value("input_i"),
        value("input_lra"),
        value("input_tp"),
        value("input_thresh")
    )
}

pub(crate) struct Judged {
    pub(crate) integrated: f64,
    pub(crate) peak: f64,
    pub(crate) short_term: Vec<f64>,
}

pub(crate) fn judge(sound: &Sound) -> Judged {
    let filter = "ebur128=peak=true:metadata=1,ametadata=print:file=-";
    let (said, _) = ffmpeg(sound, filter, &["-f", "null", "-"]);
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut last = HashMap::new();
    let mut short_term = Vec::new();
    for (key, value) in said.lines().filter_map(|line| line.split_once('=')) {
        let value: f64 = value.parse().unwrap_or(f64::NEG_INFINITY);
        if key == "lavfi.r128.S" {
            short_term.push(value);
        }
        last.insert(key.to_owned(), value);
    }
    let figure = |name: &str| last.get(name).copied().unwrap_or(-70.0);
    let peak = figure("lavfi.r128.true_peaks_ch0").max(figure("lavfi.r128.true_peaks_ch1"));
    Judged { integrated: figure("lavfi.r128.I"), peak: 20.0 * peak.log10(), short_term }
}

/// GStreamer's element, where it is installed.
pub(crate) struct GStreamer(());

impl GStreamer {
    pub(crate) fn find() -> Option<Self> {
        // Not with `--exists`, which wants a plugin of GStreamer's own version.
        let inspect = Command::new("gst-inspect-1.0").arg("audioloudnorm").output();
        inspect.is_ok_and(|output| output.status.success()).then_some(Self(()))
    }

    pub(crate) fn loudnorm(&self, sound: &Sound) -> Sound {
        let element = format!(
            "! audioconvert ! audioresample ! audioloudnorm loudness-target={TARGET} \
             loudness-range-target=7 max-true-peak={CEILING} ! audioresample ! audioconvert"
        );
        self.pipeline(sound, &element)
    }

    /// The same without the element, and without what it needs around it.
    pub(crate) fn copy(&self, sound: &Sound) -> Sound {
        self.pipeline(sound, "")
    }

    fn pipeline(&self, sound: &Sound, elements: &str) -> Sound {
        let caps = "audio/x-raw,format=F32LE,rate=48000,channels=2,layout=interleaved";
        let text = format!(
            "fdsrc fd=0 ! rawaudioparse format=pcm pcm-format=f32le sample-rate=48000 \
             num-channels=2 {elements} ! {caps} ! fdsink fd=1"
        );
        let mut command = Command::new("gst-launch-1.0");
        command.arg("-q").args(text.split_whitespace());
        samples(&through(command, sound).0)
    }
}

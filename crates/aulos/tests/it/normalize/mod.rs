//! `aulos normalize` as it is typed, with FFmpeg as the judge of what comes out.

mod bad;
mod many;
mod one;
mod opus;
mod pauses;
mod programmes;
mod tags;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Exit code, standard output, standard error.
/// Replaces `to`: the tests use one name again and again.
fn normalize(arguments: &[&str], from: &Path, to: &Path) -> (i32, String, String) {
    of_output(&command(&[&["--force"], arguments].concat(), &[from, to]).output().unwrap())
}

fn in_place(arguments: &[&str], paths: &[&Path]) -> (i32, String, String) {
    of_output(&command(&[&["--in-place"], arguments].concat(), paths).output().unwrap())
}

fn command(arguments: &[&str], paths: &[&Path]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    command.arg("normalize").args(arguments).args(paths);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn of_output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().expect("no signal ends it");
    (code, text(&output.stdout), text(&output.stderr))
}

/// The rows that `--json` printed.
fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ffmpeg(arguments: &[&str], files: &[&Path]) -> String {
    let output = ffmpeg_command(arguments, files).output().expect("ffmpeg: see scripts/test-setup");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

fn ffmpeg_command(arguments: &[&str], files: &[&Path]) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-y", "-hide_banner"]);
    let mut files = files.iter();
    for word in arguments {
        if *word == "FILE" {
            command.arg(files.next().unwrap());
        } else {
            command.arg(word);
        }
    }
    command
}

/// A file of what a filter of ffmpeg's makes.
fn generated(to: &Path, sound: &str, more: &str) {
    let more: Vec<_> = more.split_whitespace().collect();
    let all = [&["-f", "lavfi", "-i", sound][..], &more, &["FILE"]].concat();
    ffmpeg(&all, &[to]);
}

/// Integrated loudness, loudness range and true peak.
fn judged(path: &Path) -> [f64; 3] {
    let filter = ["-i", "FILE", "-map", "0:a", "-af", "ebur128=peak=true", "-f", "null", "-"];
    let said = ffmpeg(&filter, &[path]);
    let summary = said.rsplit_once("Summary:").expect("a summary").1;
    ["I:", "LRA:", "Peak:"].map(|label| {
        let line = summary.lines().find_map(|line| line.trim().strip_prefix(label)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// Integrated loudness and true peak.
fn judge(path: &Path) -> [f64; 2] {
    let [integrated, _, peak] = judged(path);
    [integrated, peak]
}

/// The samples, as ffmpeg decodes them.
fn decoded(path: &Path) -> Vec<f32> {
    let arguments = ["-v", "error", "-i", "FILE", "-map", "0:a", "-f", "f32le", "-"];
    let output = ffmpeg_command(&arguments, &[path]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Twenty seconds of noise: half of them quiet, half of them loud.
fn noise(to: &Path, more: &str) {
    let sound =
        "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=20,volume='if(lt(t,10),0.25,1)':eval=frame";
    generated(to, sound, more);
}

/// Two seconds, of which there can be many.
fn short(to: &Path, db: i32) {
    generated(to, &format!("anoisesrc=r=48000:c=pink:seed=5:a=0.5:d=2,volume={db}dB"), "-ac 2");
}

/// The names in a folder, those of hidden files too, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

//! `aulos meter` as it is typed, with FFmpeg as the judge of its figures.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::common::scratch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// In the order of the contract.
const KEYS: [&str; 9] = [
    "time_s",
    "momentary_lufs",
    "short_term_lufs",
    "integrated_lufs",
    "loudness_range_lu",
    "true_peak_dbtp",
    "max_momentary_lufs",
    "max_short_term_lufs",
    "sample_peak_dbfs",
];

fn meter(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    command.arg("meter").args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    ended(command.spawn().unwrap())
}

fn ended(child: Child) -> (i32, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("no signal ends it"), text(stdout), text(stderr))
}

/// A line of JSON with exactly the keys of the contract, in its order.
fn line(text: &str) -> Value {
    let places = KEYS.map(|key| text.find(&format!("\"{key}\":")).expect(key));
    assert!(places.is_sorted(), "{text}");
    let line: Value = serde_json::from_str(text).unwrap();
    assert_eq!(line.as_object().unwrap().len(), KEYS.len());
    line
}

fn near(value: &Value, expected: f64, tolerance: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - expected).abs() <= tolerance)
}

/// BS.1770: 997 Hz at 0 dBFS reads -3.01 LKFS in one channel, and 0.0 in two.
#[test]
fn a_tone_reads_its_level_and_a_closed_pipe_ends_it_quietly() {
    for (channels, expected) in [(1, -23.01), (2, -20.0)] {
        let uri = format!("tone://?hz=997&dbfs=-20&sampleformat=48000:16:{channels}");
        let mut child = meter(&["--json", &uri]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for n in 1..=31 {
            let read = line(&lines.next().unwrap().unwrap());
            assert!(near(&read["time_s"], f64::from(n) / 10.0, 1e-9), "{read}");
            for (key, from) in
                [("momentary_lufs", 4), ("max_momentary_lufs", 4), ("short_term_lufs", 30)]
            {
                if n < from {
                    assert_eq!(read[key], Value::Null, "{read}");
                } else {
                    assert!(near(&read[key], expected, 0.02), "{key}: {read}");
                }
            }
            assert!(near(&read["true_peak_dbtp"], -20.0, 0.1), "{read}");
        }
        drop(lines);
        assert_eq!(ended(child), (0, String::new(), String::new()));
    }
}

/// Integrated loudness, range and true peak as FFmpeg shows them; `more` is for its filter.
fn judge(path: &Path, more: &str) -> [f64; 3] {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-hide_banner", "-i"])
        .arg(path)
        .args(["-af", &format!("ebur128=peak=true{more}"), "-f", "null", "-"])
        .output()
        .expect("this test needs ffmpeg: install it (apt-get install ffmpeg)");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = text.rsplit("Summary:").next().unwrap();
    ["I:", "LRA:", "Peak:"].map(|name| {
        let after = summary.split(name).nth(1).expect(name);
        after.split_whitespace().next().unwrap().parse().unwrap()
    })
}

#[test]
fn figures_of_a_file_agree_with_ffmpeg() {
    let path = scratch().join("programme.wav");
    let sound = "aevalsrc=(0.05+0.3*gt(mod(t\\,9)\\,5))*(sin(400*t*(1+t/30))+0.5*sin(7000*t))\
                 |0.2*sin(2500*t)+0.1*(random(1)-0.5):d=30:s=44100";
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", sound, "-c:a", "pcm_s16le"])
        .arg(&path)
        .status();
    assert!(made.expect("this test needs ffmpeg: install it (apt-get install ffmpeg)").success());
    let uri = format!("file://{}", path.display());
    let (code, out, summary) = run(&mut meter(&["--json", "--no-pace", &uri]));
    assert_eq!(code, 0, "{summary}");
    let lines: Vec<_> = out.lines().map(line).collect();
    assert_eq!(lines.len(), 300, "ten a second");
    let last = lines.last().unwrap();
    let [integrated, range, peak] = judge(&path, "");
    assert!(near(&last["integrated_lufs"], integrated, 0.1), "{integrated}: {last}");
    assert!(near(&last["loudness_range_lu"], range, 0.2), "{range}: {last}");
    assert!(near(&last["true_peak_dbtp"], peak, 0.2), "{peak}: {last}");
    assert!(summary.contains(&uri) && summary.contains("00:00:30"), "{summary}");
    let (_, _, quiet) = run(&mut meter(&["--json", "--no-pace", "-q", &uri]));
    assert_eq!(quiet, "");
    fs::remove_file(path).unwrap();
}

#[test]
fn one_channel_can_count_as_two() {
    let path = scratch().join("mono.wav");
    let sound = "aevalsrc=0.2*sin(2500*t)+0.1*(random(1)-0.5):d=5:s=48000";
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", sound, "-c:a", "pcm_s16le"])
        .arg(&path)
        .status();
    assert!(made.expect("this test needs ffmpeg: install it (apt-get install ffmpeg)").success());
    let uri = format!("file://{}", path.display());
    let mut read = Vec::new();
    for (arguments, filter) in [(&[][..], ""), (&["--dual-mono"], ":dualmono=true")] {
        let arguments = [&["--json", "--no-pace", "-q", &uri], arguments].concat();
        let (code, out, errors) = run(&mut meter(&arguments));
        assert_eq!((code, errors.as_str()), (0, ""), "{out}");
        let last = line(out.lines().last().unwrap());
        let [integrated, _, _] = judge(&path, filter);
        assert!(near(&last["integrated_lufs"], integrated, 0.1), "{integrated}: {last}");
        read.push(last["integrated_lufs"].as_f64().unwrap());
    }
    assert!((read[1] - read[0] - 3.01).abs() < 0.02, "{read:?}");
    fs::remove_file(path).unwrap();
}

#[test]
fn silence_on_standard_input_is_dashes_and_the_end_of_it_is_the_end() {
    let mut child = meter(&["-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![0; 48_000 * 4 * 2]).unwrap();
    drop(input);
    let (code, out, errors) = ended(child);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let lines: Vec<_> = out.lines().collect();
    let second = "00:00:02  M     -  S     -  I     - LUFS  LRA    - LU  TP     - dBTP";
    assert_eq!((lines[1], lines[2]), (second, "stdin:  00:00:02"), "{out}");
    assert_eq!(lines.len(), 9, "{out}");
}

#[test]
fn a_program_is_measured_to_its_end() {
    let uri = "process:///usr/bin/head?params=-c 288000 /dev/zero";
    let (code, out, errors) = run(&mut meter(&["--json", "-q", uri]));
    assert_eq!((code, errors.as_str()), (0, ""));
    let last = line(out.lines().last().unwrap());
    assert_eq!((&last["time_s"], &last["momentary_lufs"]), (&1.5.into(), &Value::Null));
}

#[test]
fn an_interrupt_ends_it_with_a_summary() {
    let mut child = meter(&["tone://"]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(ended(child).0, 0);
    assert!(text.starts_with("00:00:01  M -20.0"), "{text}");
    assert!(text.contains("maximum momentary    -20.0 LUFS"), "{text}");
}

/// A web server has a second of a square wave of -20 dBFS, as a file that ends.
#[test]
fn web_radio_is_measured_while_it_plays() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 64]).unwrap();
        let wave = |frame: usize| if frame % 48 < 24 { 3_277_i16 } else { -3_277 };
        let file = crate::common::wave(&(0..48_000).map(wave).collect::<Vec<_>>());
        let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
        socket.write_all(&[head.as_bytes(), &file].concat()).unwrap();
        // Until it is taken.
        drop(socket.read_to_end(&mut Vec::new()));
    });
    let (code, out, errors) = run(&mut meter(&["--json", &format!("http://127.0.0.1:{port}/a")]));
    assert_eq!(code, 0, "{errors}");
    let last = line(out.lines().last().unwrap());
    assert_eq!(last["time_s"], Value::from(1.0), "{out}");
    let peak = last["sample_peak_dbfs"].as_f64().unwrap();
    assert!((peak + 20.0).abs() < 0.1, "{last}");
    server.join().unwrap();
}

#[test]
fn what_cannot_be_measured_is_one_clear_fact_and_a_code() {
    let dir = scratch();
    let text = dir.join("text.wav");
    fs::write(&text, "this is no sound").unwrap();
    let (text, here) = (text.display().to_string(), format!("file://{}", text.display()));
    for (arguments, code, says) in [
        (&["gopher://x"][..], 2, "unknown source scheme `gopher`"),
        (&["http://127.0.0.1:1/live"], 69, "connection refused"),
        (&["tone://?dbfs=3"], 2, "`dbfs` is 3: it must be -120 to 0 dBFS"),
        (&[&text], 65, "not an audio file of a supported format"),
        (&["nowhere/at/all.wav"], 2, "hint: there is no "),
        (&["--no-pace", "demo://"], 2, "--no-pace needs a file"),
        (&["file:///nowhere/at/all.wav"], 66, "no such file"),
        (&[&here], 65, "not an audio file of a supported format"),
        (&["process:///nowhere/at/all"], 66, "no such program: /nowhere/at/all"),
        (&["pipe:///nowhere/at/all?mode=read"], 66, "no such file"),
        (&[&format!("pipe://{text}")], 69, "the path exists but is not a FIFO"),
        (&["tcp://127.0.0.1:1?mode=client"], 69, "refused"),
        (&["-"], 66, "the source ended without any audio"),
    ] {
        let (found, out, errors) = run(&mut meter(arguments));
        assert_eq!((found, out.as_str()), (code, ""), "{arguments:?}: {errors}");
        assert!(errors.contains(says), "{arguments:?}: {errors}");
        assert!(errors.lines().count() <= 2, "{arguments:?}: {errors}");
    }
    fs::remove_dir_all(dir).unwrap();
}

/// What is a file format, or needs another transport, is named; a stream of it would never play.
#[test]
fn a_stream_that_cannot_be_decoded_ends_with_the_reason() {
    let mp4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom".to_vec();
    let webm = b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04".to_vec();
    let mut transport = vec![0xff; 188];
    transport[..4].copy_from_slice(&[0x47, 0x40, 0x00, 0x10]);
    for (bytes, reason) in [
        (mp4, "MP4"),
        (webm, "Matroska and WebM"),
        (transport, "the transport stream has no sound"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/live", listener.local_addr().unwrap());
        // It serves every connection until the end of the test.
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let mut sent = socket.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
                while sent.is_ok() {
                    sent = socket.write_all(&bytes.repeat(50));
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            }
        });
        let (code, out, err) = run(&mut meter(&["--json", &url]));
        assert!(code != 0 && out.is_empty(), "{reason}: {code}, {out}");
        assert!(err.contains(reason), "{reason}: {err}");
    }
}

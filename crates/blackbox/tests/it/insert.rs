//! The built server with real programs as inserts: what comes out is compared with the programme.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, programme, write_wav};
use serde_json::{Value, json};

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::wave_recording::WaveRecording;
use crate::{fallback, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// The insert of each station, by name.
fn inserts(rpc: &mut Rpc) -> Vec<(String, Value)> {
    let status = rpc.call("Aulos.GetStatus", &Value::Null);
    let stations = status["stations"].as_array().unwrap().iter();
    stations.map(|one| (one["name"].as_str().unwrap().to_owned(), one["insert"].clone())).collect()
}

fn insert(rpc: &mut Rpc, station: &str) -> Value {
    inserts(rpc).into_iter().find(|(name, _)| name == station).unwrap().1
}

fn frames_of(recording: WaveRecording) -> Vec<Frame> {
    SampleWidth::B16.frames(&recording.bytes())
}

/// How a recording departs from a programme that begins again and again: frames that are not the
/// next ones, and by how much at most.
fn departures(recorded: &[Frame], programme: &[Frame]) -> (usize, i32) {
    const KEY: usize = 16;
    let key = &recorded[..KEY];
    let start = programme.windows(KEY).position(|run| run == key).expect("it is in the programme");
    let expected = programme.iter().cycle().skip(start);
    let differences = recorded.iter().zip(expected).map(|(a, b)| {
        let [left, right] = [0, 1].map(|channel| (a[channel] - b[channel]).abs());
        left.max(right)
    });
    differences.fold((0, 0), |(count, most), by| (count + usize::from(by > 0), most.max(by)))
}

/// The URI of an insert with this script.
fn program(scratch: &ScratchDir, name: &str, line: &str) -> String {
    format!("process://{}", text(&fallback::program(scratch, name, line)))
}

/// A folder with the programme, ten seconds long.
fn with_programme(name: &str) -> (ScratchDir, Vec<Frame>, String) {
    let scratch = ScratchDir::new(name).unwrap();
    let frames = programme(10 * RATE, SampleWidth::B16, 40);
    let path = scratch.join("programme.wav");
    let file = BufWriter::new(File::create(&path).unwrap());
    write_wav(file, &frames, SampleWidth::B16).unwrap();
    let source = format!("file://{}?loop=true", text(Path::new(&path)));
    (scratch, frames, source)
}

/// Stations with programs that pass the programme, delay it, or make it quieter.
fn processed_stations(scratch: &ScratchDir, source: &str) -> String {
    let station = |name: &str, source: &str, insert: &str| {
        format!(
            "[[station]]\nname = \"{name}\"\ncodec = \"pcm\"\nsources = [\"{source}\"]\n\
             insert = {insert}\n"
        )
    };
    let pass = program(scratch, "pass", "exec cat");
    let sox = program(scratch, "sox", "exec sox -q -t wav - -t wav - pad 0.05");
    let filter = "-f wav -probesize 32 -i pipe:0 -af adelay=50|50 -c:a pcm_f32le -f wav";
    let line = format!("exec ffmpeg -v error {} pipe:1", filter.replace('|', "\\|"));
    let ffmpeg = program(scratch, "ffmpeg", &line);
    let quiet = program(scratch, "quiet", "exec sox -q -t wav - -t wav - vol 0.25");
    let tone = "tone://?hz=500&dbfs=-6";
    [
        station("pass", source, &format!("\"{pass}\"")),
        station("sox", source, &format!("{{ uri = \"{sox}\", format = \"s16\" }}")),
        station("ffmpeg", source, &format!("\"{ffmpeg}\"")),
        station("quiet", tone, &format!("{{ uri = \"{quiet}\", latency = \"600ms\" }}")),
    ]
    .concat()
}

#[test]
fn the_programme_goes_on_exact_to_the_frame_whatever_happens_to_the_program() {
    retry_after_stall("insert::the_programme_goes_on_exact_to_the_frame", || {
        let peers = ["sox", "ffmpeg"].map(find_or_skip);
        if peers.contains(&None) {
            return;
        }
        let _turn = shared_turn();
        let (scratch, frames, source) = with_programme("insert");
        let config = processed_stations(&scratch, &source);
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let names = ["pass", "sox", "ffmpeg", "quiet"];
        wait_for("all programs", PATIENCE, || {
            inserts(&mut rpc).iter().all(|(_, insert)| insert["state"] == "processing")
        });
        for (name, insert) in inserts(&mut rpc) {
            println!("{name}: {insert}");
        }
        assert_eq!(insert(&mut rpc, "pass")["delay_frames"], 0);
        for name in ["sox", "ffmpeg"] {
            assert_eq!(insert(&mut rpc, name)["delay_frames"], 2_400, "{name}: 50 ms");
        }
        // A listener begins with the last second, and the latency was found in that.
        std::thread::sleep(Duration::from_secs(2));
        let recordings = names.map(|name| WaveRecording::start(server.http, name));
        std::thread::sleep(Duration::from_millis(500));
        fallback::signal(&scratch.join("pass"), "STOP");
        fallback::signal(&scratch.join("quiet"), "KILL");
        wait_for("the bypass", PATIENCE, || {
            ["pass", "quiet"].iter().all(|name| insert(&mut rpc, name)["state"] == "bypassed")
        });
        wait_for("the return", PATIENCE, || {
            ["pass", "quiet"].iter().all(|name| insert(&mut rpc, name)["state"] == "processing")
        });
        std::thread::sleep(Duration::from_millis(200));
        let (pass, quiet) = (insert(&mut rpc, "pass"), insert(&mut rpc, "quiet"));
        assert_eq!((&pass["failures"]["no_output"], &pass["starts"]), (&json!(1), &json!(2)));
        assert_eq!(
            (&quiet["failures"]["exited"], &quiet["latency_ms"]),
            (&json!(1), &json!(600.0))
        );
        let [pass, sox, ffmpeg, quiet] = recordings.map(frames_of);
        for (name, recorded) in [("pass", &pass), ("sox", &sox), ("ffmpeg", &ffmpeg)] {
            let (count, most) = departures(recorded, &frames);
            println!("{name}: {} frames, {count} differ by up to {most}", recorded.len());
            assert!(recorded.len() > RATE, "{name}");
            // In a fade between two equal signals a sum is rounded, and then dithered.
            assert!(count < RATE / 10 && most <= 3, "{name}: {count} {most}");
        }
        judge_fades(&quiet);
        let events = rpc.call("Aulos.GetEvents", &json!({ "kind": "insert" })).to_string();
        let reason = "insert bypassed: the program has written nothing for 500 ms";
        assert!(events.contains(reason), "{events}");
        assert!(events.contains("insert processes again after"), "{events}");
        server.stop().unwrap();
    });
}

/// A tone that is faded from a quarter of its level to all of it and back has no click and no hole.
fn judge_fades(recorded: &[Frame]) {
    let left: Vec<i32> = recorded.iter().map(|frame| frame[0]).collect();
    let step = left.windows(2).map(|pair| (pair[1] - pair[0]).abs()).max().unwrap();
    // -6 dBFS at 500 Hz, and the fade of 10 ms.
    let amplitude = 32_768.0 * 10_f64.powf(-6.0 / 20.0);
    let largest = amplitude * (std::f64::consts::TAU * 500.0 / 48_000.0 + 0.75 / 480.0) + 4.0;
    // A period of the tone has 96 frames.
    let peaks: Vec<i32> =
        left.chunks_exact(96).map(|run| run.iter().map(|x| x.abs()).max().unwrap()).collect();
    let (quietest, loudest) = (peaks.iter().min().unwrap(), peaks.iter().max().unwrap());
    println!("steps up to {step}, limit {largest:.0}; peaks from {quietest} to {loudest}");
    assert!(f64::from(step) < largest, "a click");
    assert!(f64::from(*quietest) > 0.24 * amplitude && f64::from(*loudest) < 1.01 * amplitude);
    assert!(f64::from(*loudest) > 0.99 * amplitude, "it was bypassed");
}

/// Programs that are no processors: name, URI, further keys of the insert, and the fault.
fn wrong_programs(scratch: &ScratchDir) -> [(&'static str, String, &'static str, &'static str); 9] {
    let few = "while head -c 3840; do head -c 3840 >/dev/null; done";
    [
        ("ends", program(scratch, "ends", "exec false"), "", "exited"),
        // In the middle of a frame of eight bytes.
        (
            "tears",
            program(scratch, "tears", "exec head -c 1300003"),
            ", latency = \"300ms\"",
            "exited",
        ),
        ("says", program(scratch, "says", "exec yes garbage"), "", "format"),
        ("rate", program(scratch, "rate", "exec sox -q -t wav - -r 44100 -t wav -"), "", "format"),
        (
            "floods",
            program(scratch, "floods", "exec cat /dev/zero"),
            ", raw = true, delay = 0",
            "too_many_frames",
        ),
        (
            "halves",
            program(scratch, "halves", few),
            ", raw = true, format = \"s16\", delay = 0",
            "too_few_frames",
        ),
        (
            "noise",
            program(scratch, "noise", "exec sox -q -t wav - -t wav - synth whitenoise"),
            "",
            "unrecognized",
        ),
        ("absent", "process:///nowhere/processor".to_owned(), "", "not_started"),
        ("sleeps", program(scratch, "sleeps", "exec sleep 100"), "", "no_output"),
    ]
}

#[test]
fn a_program_that_does_not_do_its_work_is_bypassed_and_named() {
    retry_after_stall("insert::a_program_that_does_not_do_its_work_is_bypassed", || {
        if find_or_skip("sox").is_none() {
            return;
        }
        let _turn = shared_turn();
        let (scratch, frames, source) = with_programme("insert-wrong");
        let programs = wrong_programs(&scratch);
        let config = programs.each_ref().map(|(name, uri, more, _)| {
            format!(
                "[[station]]\nname = \"{name}\"\ncodec = \"pcm\"\nsources = [\"{source}\"]\n\
                 insert = {{ uri = \"{uri}\"{more} }}\n"
            )
        });
        let server = AulosServer::start(&scratch, &config.concat()).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let recordings =
            programs.each_ref().map(|(name, ..)| WaveRecording::start(server.http, name));
        for (name, .., cause) in &programs {
            wait_for(&format!("{name}: {cause}"), PATIENCE, || {
                let count = &insert(&mut rpc, name)["failures"][cause];
                count.as_u64().is_some_and(|count| count > 0)
            });
        }
        for ((name, .., cause), recording) in programs.iter().zip(recordings) {
            let now = insert(&mut rpc, name);
            // The station begins with silence, until its source has begun.
            let (count, most) = departures(&frames_of(recording)[RATE..], &frames);
            println!("{name} ({cause}): {now}; {count} frames differ by up to {most}");
            assert_ne!(now["state"], "processing", "{name}");
            assert!(count < RATE / 10 && most <= 3, "{name}");
        }
        let absent = insert(&mut rpc, "absent");
        assert_eq!(absent["reason"], "no such program: /nowhere/processor");
        server.stop().unwrap();
    });
}

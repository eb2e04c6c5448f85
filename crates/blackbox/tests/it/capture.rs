//! Stations that record: a monitor of PulseAudio and of PipeWire, and devices of ALSA.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, before_others, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{RATE, SampleWidth, write_wav};
use serde_json::Value;

use crate::dj::{listen, share_of_the_tone};
use crate::pipewire::{PipeWire, TONE_DBFS, judge_tone, tone_frame, wait_for_source};
use crate::play_devices::{PulseAudio, has_alsa};
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// Of a station's output that is the tone.
const LEAST_SHARE: f64 = 0.999;

/// Judges a station again where a program on a busy machine was late.
const ATTEMPTS: usize = 4;

fn station(name: &str, sources: &str) -> String {
    format!("[[station]]\nname = \"{name}\"\ncodec = \"pcm\"\nsources = [{sources}]\n")
}

/// The first source of a station.
fn first_source(rpc: &mut Rpc, station: usize) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][station]["sources"][0].clone()
}

/// Waits until the first source of a station has failed with a reason.
fn wait_for_reason(rpc: &mut Rpc, station: usize, expected: &str) {
    wait_for(expected, PATIENCE, || {
        let reason = first_source(rpc, station)["reason"].clone();
        reason.as_str().is_some_and(|reason| reason.contains(expected))
    });
}

/// Judges what listeners of a station get.
fn assert_tone(server: &AulosServer, ffmpeg: &Path, station: &str) {
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let (report, samples) = listen(ffmpeg, server.http, station);
        let share = share_of_the_tone(&samples[samples.len().saturating_sub(72_000)..]);
        match judge_tone(station, &samples, TONE_DBFS) {
            Ok(()) if share > LEAST_SHARE => return println!("{station}: {share:.5}"),
            Ok(()) => found.push(format!("{station}: {share:.5}")),
            Err(wrong) => found.push(wrong + &report),
        }
    }
    panic!("{found:#?}");
}

/// Plays the tone for a minute into a sink of PulseAudio.
fn play(scratch: &ScratchDir, pulse: &PulseAudio, name: &str) -> Process {
    let tone = scratch.join("tone.wav");
    if !tone.exists() {
        let frames: Vec<_> = (0..60 * RATE).map(tone_frame).collect();
        write_wav(std::fs::File::create(&tone).unwrap(), &frames, SampleWidth::B16).unwrap();
    }
    let mut command = before_others(Path::new("paplay"));
    command.arg("--device=silent").arg(&tone).env("PULSE_SERVER", &pulse.server);
    let [out, err] = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
    Process::start(&mut command, &out, &err).unwrap()
}

/// Suspends the sink, and with it its monitor, or resumes it.
fn suspend(pulse: &PulseAudio, how: &str) {
    let mut command = Command::new("pactl");
    command.args(["suspend-sink", "silent", how]).env("PULSE_SERVER", &pulse.server);
    assert!(command.status().unwrap().success());
}

/// The monitor of a sink, by the sound server's protocol and by ALSA's plug-in; the fallback plays
/// while the sound server is away.
#[test]
fn a_station_records_a_monitor_of_pulseaudio_and_finds_it_again() {
    let Some(program) = find_or_skip("pulseaudio").filter(|_| has_alsa()) else { return };
    let (Some(ffmpeg), Some(_)) = (find_or_skip("ffmpeg"), find_or_skip("paplay")) else { return };
    let _turn = long_shared_turn();
    let scratch = ScratchDir::new("capture-pulse").unwrap();
    let asound = scratch.join("asound.conf");
    std::fs::write(&asound, "pcm.monitor { type pulse device silent.monitor }\n").unwrap();
    let config = scratch.join("aulos.toml");
    let stations = [
        station("default", "\"pulse://silent.monitor\", \"tone://?hz=3000\""),
        station("unknown", "\"pulse:nothing\", \"tone://?hz=3000\""),
        station("alsa", "\"alsa://monitor?sampleformat=44100:16:1\", \"tone://?hz=3000\""),
    ];
    std::fs::write(&config, stations.concat()).unwrap();
    let variable = format!("unix:{}", text(&scratch.join("native")));
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&config);
        command.env("PULSE_SERVER", variable).env("ALSA_CONFIG_PATH", &asound);
    })
    .unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for_reason(&mut rpc, 0, "the sound server at");
    let mut pulse = PulseAudio::start(&program, &scratch, "card");
    let playing = play(&scratch, &pulse, "play");
    wait_for_source(&mut rpc, "pulse");
    assert_tone(&server, &ffmpeg, "default");
    wait_for_reason(&mut rpc, 1, "pulse:nothing: no such device; there are card.monitor");
    wait_for("ALSA's source", PATIENCE, || first_source(&mut rpc, 2)["state"] == "ready");
    assert_tone(&server, &ffmpeg, "alsa");
    suspend(&pulse, "1");
    wait_for_reason(&mut rpc, 0, "the sound server has suspended the device");
    suspend(&pulse, "0");
    wait_for("the resumed source", PATIENCE, || first_source(&mut rpc, 0)["state"] == "ready");
    pulse.kill();
    drop(playing);
    wait_for_source(&mut rpc, "tone");
    wait_for_reason(&mut rpc, 0, "the sound server at");
    let pulse = PulseAudio::start(&program, &scratch, "card");
    let _playing = play(&scratch, &pulse, "play-again");
    wait_for_source(&mut rpc, "pulse");
    assert_tone(&server, &ffmpeg, "default");
    let log = server.printed().unwrap();
    let repeated = log.lines().filter(|line| line.contains("pulse:nothing: no such device"));
    assert_eq!(repeated.count(), 1, "{log}");
    server.stop().unwrap();
}

/// PipeWire serves the same protocol.
#[test]
fn a_station_records_a_monitor_of_pipewire() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("capture-pipewire").unwrap();
    let sink = "{ factory = adapter args = { factory.name = support.null-audio-sink node.name = \
        speaker media.class = Audio/Sink audio.position = [ FL FR ] } }";
    let Some(mut pipewire) = PipeWire::start(&scratch, "", sink) else { return };
    pipewire.play("speaker");
    let config = scratch.join("aulos.toml");
    let stations = [
        station("default", "\"pulse://speaker.monitor\", \"tone://?hz=3000\""),
        station("unknown", "\"pulse:nothing\", \"tone://?hz=3000\""),
    ];
    std::fs::write(&config, stations.concat()).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&config).env("PULSE_SERVER", pipewire.pulse_server());
    })
    .unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for_source(&mut rpc, "pulse");
    assert_tone(&server, &ffmpeg, "default");
    wait_for_reason(&mut rpc, 1, "pulse:nothing: no such device; there are speaker.monitor");
    server.stop().unwrap();
}

/// A device of ALSA that has no clock: it is held back, and nothing is lost.
#[test]
fn a_device_of_alsa_is_recorded_and_an_unknown_one_named() {
    if !has_alsa() {
        return;
    }
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("capture-alsa").unwrap();
    let (raw, asound) = (scratch.join("tone.raw"), scratch.join("asound.conf"));
    let samples: Vec<u8> = (0..30 * RATE)
        .flat_map(tone_frame)
        .flat_map(|sample| i16::try_from(sample).unwrap().to_le_bytes())
        .collect();
    std::fs::write(&raw, &samples).unwrap();
    let device = format!(
        "pcm.tone {{ type file slave.pcm {{ type null }} file /dev/null infile \"{}\" format raw }}\n",
        text(&raw)
    );
    std::fs::write(&asound, device).unwrap();
    let config = scratch.join("aulos.toml");
    let stations = [station("default", "\"alsa:tone\""), station("unknown", "\"alsa://hw:7,0\"")];
    std::fs::write(&config, stations.concat()).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&config).env("ALSA_CONFIG_PATH", &asound);
    })
    .unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for_reason(&mut rpc, 1, "alsa:hw:7,0: no such device");
    assert_tone(&server, &ffmpeg, "default");
    server.stop().unwrap();
}

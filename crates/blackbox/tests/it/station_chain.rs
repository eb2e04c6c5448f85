//! The radio station of docs/tutorials/radio-station.md under its listeners, while its parts are
//! killed one after the other: what each listener hears is printed. With `AULOS_SOAK` there are
//! 200 listeners of streams and 200 of HLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_blackbox::http;
use aulos_blackbox::listeners::{ListenerReport, Listeners, Player};
use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_or_short, script, shared_turn, soak, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

const TUTORIAL: &str = include_str!("../../../../docs/tutorials/radio-station.md");

const PLAYERS: [Player; 4] = [
    Player::Stream("/listen/radio.mp3"),
    Player::Stream("/listen/radio.aac"),
    Player::Hls("/hls/radio/flac/index.m3u8"),
    Player::Hls("/hls/radio/opus-96k/index.m3u8"),
];

/// The last configuration of the page, with the paths, ports and times of this test.
fn configuration(of: &[(&str, String)], schedule: &str) -> String {
    let block = TUTORIAL.rsplit("```toml\n").next().and_then(|rest| rest.split("```").next());
    let mut config = block.unwrap().replace(schedule_line(), schedule);
    for (shown, here) in of {
        assert!(config.contains(shown), "the page has no {shown} in its last configuration");
        config = config.replace(shown, here);
    }
    config
}

/// The schedule of the page, whose times are not now.
fn schedule_line() -> &'static str {
    TUTORIAL.lines().rfind(|line| line.starts_with("schedule ")).unwrap()
}

/// A date and time of day in the time zone of the page, this many seconds from now.
fn local_time(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut date = Command::new("date");
    date.env("TZ", "Europe/Vienna").args(["-d", &format!("@{}", now + seconds)]);
    let printed = date.arg("+%Y-%m-%d %H:%M:%S").output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

/// Ten seconds of a tone, as a file.
fn tone(ffmpeg: &Path, hz: u32, file: &Path) {
    let sound = format!("sine={hz}:r=48000:d=10,volume=6dB");
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", &sound, "-ac", "2"]).arg(file);
    assert!(command.status().unwrap().success());
}

/// A DJ with a tone of 440 Hz.
fn dj(ffmpeg: &Path, port: u16, scratch: &ScratchDir) -> Process {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-loglevel", "error", "-re", "-f", "lavfi", "-i"]);
    command.args(["sine=440:r=48000,volume=6dB", "-ac", "2", "-c:a", "libmp3lame"]);
    command.args(["-content_type", "audio/mpeg", "-f", "mp3"]);
    command.arg(format!("icecast://source:a-long-word@127.0.0.1:{port}/live"));
    Process::start(&mut command, &scratch.join("dj.out"), &scratch.join("dj.err")).unwrap()
}

/// A reporter with a tone of 700 Hz.
fn reporter(ffmpeg: &Path, port: u16, scratch: &ScratchDir) -> Process {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-loglevel", "error", "-re", "-f", "lavfi", "-i"]);
    command.args(["sine=700:r=48000,volume=6dB", "-ac", "2", "-c:a", "aac", "-f", "mpegts"]);
    command.arg(format!("srt://127.0.0.1:{port}?passphrase=a-long-passphrase&latency=300000"));
    Process::start(&mut command, &scratch.join("srt.out"), &scratch.join("srt.err")).unwrap()
}

struct Station {
    scratch: ScratchDir,
    http: SocketAddr,
    control: SocketAddr,
    listeners: Vec<Listeners>,
}

impl Station {
    fn serve(scratch: &ScratchDir, http: SocketAddr) -> AulosServer {
        let file = scratch.join("aulos.toml");
        let started = AulosServer::start_with(scratch, |command| {
            let port = format!("listen.http={http}");
            command.arg("--config").arg(&file).args(["--set", &port]);
        });
        started.unwrap()
    }

    fn active(&self) -> Value {
        let status = Rpc::connect(self.control).call("Aulos.GetStatus", &Value::Null);
        status["stations"][0]["active"].clone()
    }

    /// Waits until the source is on air and has been for a while, and prints what was heard.
    fn phase(&self, what: &str, source: &str) -> Vec<ListenerReport> {
        wait_for(source, PATIENCE, || self.active() == source);
        std::thread::sleep(long_or_short(30, 2));
        self.print(what)
    }

    fn print(&self, what: &str) -> Vec<ListenerReport> {
        let mut all = Vec::new();
        for listeners in &self.listeners {
            let heard = listeners.heard();
            let sum = |of: fn(&ListenerReport) -> f64| heard.iter().map(of).sum::<f64>();
            let most = heard.iter().map(|it| it.longest).max().unwrap_or_default();
            println!(
                "{what:24} {:30} {:4} listeners: {:6.1} s each, {:4} errors, {:4} stalls, longest {:5} ms, \
                 together {:7.1} s, {:3} segments missed, {:3} discontinuities",
                listeners.player().path(),
                heard.len(),
                sum(|it| it.sound.as_secs_f64()) / heard.len() as f64,
                sum(|it| f64::from(it.errors)),
                sum(|it| f64::from(it.stalls)),
                most.as_millis(),
                sum(|it| it.stalled.as_secs_f64()),
                heard.iter().map(|it| it.missed).sum::<u64>(),
                sum(|it| f64::from(it.discontinuities)),
            );
            all.extend(heard);
        }
        all
    }
}

/// Nobody is disconnected, and no segment is missing. Stalls are printed only: this machine may
/// be busy.
fn assert_unbroken(heard: &[ListenerReport]) {
    let is_unbroken = |it: &ListenerReport| (it.errors, it.missed, it.discontinuities) == (0, 0, 0);
    assert!(heard.iter().all(is_unbroken), "{heard:?}");
    assert!(heard.iter().all(|it| it.sound > Duration::ZERO), "{heard:?}");
}

/// Silences of 50 ms and more in what a listener received, in seconds: begin and duration.
fn silences(ffmpeg: &Path, bytes: &[u8], file: &Path) -> Vec<(f64, f64)> {
    fs::write(file, bytes).unwrap();
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-hide_banner", "-i"]).arg(file);
    command.args(["-af", "silencedetect=noise=-60dB:d=0.05", "-f", "null", "-"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let number = |text: &str| text.trim().parse::<f64>().unwrap();
    let ends = said.lines().filter_map(|line| line.split_once("silence_end: "));
    ends.map(|(_, rest)| {
        let (end, duration) = rest.split_once("| silence_duration: ").unwrap();
        (number(end) - number(duration), number(duration))
    })
    .collect()
}

/// The folders and files that the page names, and where they are here.
fn files(ffmpeg: &Path, scratch: &ScratchDir) -> Vec<(&'static str, String)> {
    let [music, jingles] = ["music", "jingles"].map(|name| scratch.join(name));
    for folder in [&music, &jingles] {
        fs::create_dir(folder).unwrap();
    }
    for (hz, file) in [(1_000, "one.flac"), (1_100, "two.flac"), (1_200, "three.flac")] {
        tone(ffmpeg, hz, &music.join(file));
    }
    tone(ffmpeg, 2_000, &jingles.join("name.flac"));
    fs::write(scratch.join("dj"), "a-long-word\n").unwrap();
    fs::write(scratch.join("srt"), "a-long-passphrase\n").unwrap();
    let events = scratch.join("events");
    let alarm = format!("#!/bin/sh\necho \"$AULOS_EVENT\" >> {}\n", events.display());
    script(&scratch.join("alarm"), &alarm);
    let shown = [
        ("/srv/music", "music"),
        ("/srv/jingles", "jingles"),
        ("/srv/log", "log"),
        ("/srv/rec", "rec"),
        ("/etc/aulos/dj", "dj"),
        ("/etc/aulos/srt", "srt"),
        ("/usr/local/bin/alarm", "alarm"),
    ];
    shown.into_iter().map(|(shown, here)| (shown, text(&scratch.join(here)).to_owned())).collect()
}

/// A station that is the source of the page's news.
fn news(scratch: &ScratchDir) -> AulosServer {
    let config =
        "[[station]]\nname = \"news\"\nsources = [\"tone://?hz=1500&dbfs=-12\"]\nmp3 = \"128k\"\n";
    AulosServer::start(scratch, config).unwrap()
}

/// The sources come and fail, one after the other. `live` and `srt` are their ports.
fn fail_sources(station: &Station, ffmpeg: &Path, [live, srt]: [u16; 2]) {
    let scratch = &station.scratch;
    let on_air = dj(ffmpeg, live, scratch);
    assert_unbroken(&station.phase("a DJ comes", "studio"));
    let stopped = Command::new("kill").args(["-STOP", &on_air.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    assert_unbroken(&station.phase("the DJ hangs", "music"));
    drop(on_air);
    let on_air = dj(ffmpeg, live, scratch);
    assert_unbroken(&station.phase("and comes again", "studio"));
    drop(on_air);
    assert_unbroken(&station.phase("the DJ is killed", "music"));
    let on_air = reporter(ffmpeg, srt, scratch);
    assert_unbroken(&station.phase("a reporter over SRT", "outside"));
    drop(on_air);
    assert_unbroken(&station.phase("the reporter is killed", "music"));
}

/// What every first listener has received has no silence.
fn assert_no_silence(station: &Station, ffmpeg: &Path) {
    for listeners in &station.listeners {
        let path = listeners.player().path();
        let silent = silences(ffmpeg, &listeners.received(), &station.scratch.join("heard"));
        // The first segments of HLS have the beginning of the station.
        assert!(silent.iter().all(|(begin, _)| *begin < 0.1), "{path}: {silent:?}");
    }
}

#[test]
fn the_station_of_the_tutorial_plays_on_while_its_parts_are_killed() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("chain").unwrap();
    let news_scratch = ScratchDir::new("chain-news").unwrap();
    let news = news(&news_scratch);
    let [live, srt, http_port] = [(); 3].map(|()| free_port().unwrap());
    let http = SocketAddr::from(([127, 0, 0, 1], http_port));
    let renditions = "renditions = [\"opus:96k\", \"flac\"]";
    let mut of = files(&ffmpeg, &scratch);
    of.extend([
        (":9000?", format!(":{srt}?")),
        (":8000/live", format!(":{live}/live")),
        ("https://radio.example/live", format!("http://{}/listen/news.mp3", news.http)),
        (renditions, format!("{renditions}, segment = \"1.92s\", window = \"60s\"")),
    ]);
    let file = scratch.join("aulos.toml");
    let write = |schedule: &str| fs::write(&file, configuration(&of, schedule)).unwrap();
    write("");
    let server = Station::serve(&scratch, http);
    let mut station = Station { scratch, http, control: server.control, listeners: vec![] };
    wait_for("segments", PATIENCE, || {
        let list = http::get(http, "/hls/radio/opus-96k/index.m3u8");
        list.is_ok_and(|(_, text)| String::from_utf8_lossy(&text).matches(".m4s").count() >= 3)
    });
    let count = if soak() { 100 } else { 5 };
    station.listeners =
        PLAYERS.into_iter().map(|player| Listeners::start(player, http, count)).collect();
    assert_unbroken(&station.phase("music", "music"));
    fail_sources(&station, &ffmpeg, [live, srt]);

    let at = local_time(3);
    write(&format!("schedule = [{{ at = \"{at}\", for = \"1h\", source = \"news\" }}]"));
    let reloaded = Rpc::connect(station.control).call("Aulos.Reload", &Value::Null);
    assert_eq!(reloaded["adjusted"], json!(["radio"]), "{reloaded}");
    assert_unbroken(&station.phase("the news begin", "news"));
    drop(news);
    assert_unbroken(&station.phase("their server is killed", "music"));
    assert_no_silence(&station, &ffmpeg);

    // A killed server's listeners come back.
    drop(server);
    let again = ScratchDir::new("chain-again").unwrap();
    fs::copy(&file, again.join("aulos.toml")).unwrap();
    let server = Station::serve(&again, station.http);
    station.control = server.control;
    station.phase("the server is killed", "music");
    std::thread::sleep(long_or_short(30, 6));
    let after = station.print("and has been back");
    assert!(after.iter().all(|it| it.sound > Duration::ZERO), "{after:?}");
    station.listeners.drain(..).for_each(Listeners::stop);
    server.stop().unwrap();

    let events = fs::read_to_string(station.scratch.join("events")).unwrap_or_default();
    assert!(events.contains("fallback"), "{events:?}");
    let log = station.scratch.join("log");
    let verified = Command::new(binary()).args(["logger", "verify", text(&log)]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

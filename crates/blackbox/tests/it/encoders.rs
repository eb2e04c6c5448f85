//! Programs that encode a sound card for a server of live sources: butt, DarkIce, IceS 2.
//!
//! The sound card is PipeWire's; IceS reads standard input.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::dj::{COVERED, active, listen, port, source};
use crate::mounts::on_air;
use crate::pipewire::{
    MICROPHONE, PipeWire, TONE_DBFS, assert_station_plays_tone, judge_tone, wait_for_source,
};
use crate::players::vlc_plays;
use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A station for one live source, and its port.
struct Stage {
    scratch: ScratchDir,
    server: AulosServer,
    rpc: Rpc,
    port: String,
}

impl Stage {
    fn new(name: &str) -> Self {
        let scratch = ScratchDir::new(name).unwrap();
        let server = AulosServer::start(&scratch, COVERED).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let port = port(&mut rpc).rsplit(':').next().unwrap().to_owned();
        Self { scratch, server, rpc, port }
    }

    fn run(&self, command: &mut Command, name: &str) -> Process {
        let [out, err] = ["out", "err"].map(|end| self.scratch.join(format!("{name}.{end}")));
        Process::start(command, &out, &err).unwrap()
    }

    fn said(&self, name: &str) -> String {
        let read = |end| std::fs::read_to_string(self.scratch.join(format!("{name}.{end}")));
        ["out", "err"].map(|end| read(end).unwrap_or_default()).concat()
    }

    /// A free display, chosen by Xvfb.
    fn display(&self, xvfb: &Path) -> (Process, String) {
        let file = self.scratch.join("display");
        let script = "exec \"$0\" -displayfd 3 -screen 0 640x480x16 -nolisten tcp 3>\"$1\"";
        let mut command = Command::new("sh");
        let process = self.run(command.args(["-c", script]).arg(xvfb).arg(&file), "xvfb");
        let mut number = String::new();
        wait_for("the display", PATIENCE, || {
            number = std::fs::read_to_string(&file).unwrap_or_default();
            number.ends_with('\n')
        });
        (process, format!(":{}", number.trim()))
    }

    /// Waits until the encoder is on air, and returns its state.
    fn on_air(&mut self, encoder: &mut Process, name: &str) -> Value {
        wait_for(name, PATIENCE, || {
            assert!(encoder.ended().unwrap().is_none(), "{}", self.said(name));
            active(&mut self.rpc) == "icecast"
        });
        wait_for_source(&mut self.rpc, "icecast");
        source(&mut self.rpc)["dj"].clone()
    }

    /// Waits for a title of the live source.
    fn has_title(&mut self, artist: &str, title: &str) {
        let wanted = [json!([artist]), json!(title)];
        wait_for(title, PATIENCE, || {
            let told = source(&mut self.rpc)["dj"]["title"].clone();
            [told["artist"].clone(), told["title"].clone()] == wanted
        });
    }

    /// butt asks for the number of listeners every few seconds.
    fn counts_listeners(&self, butt: &Path, control: &str) {
        let mut listener = TcpStream::connect(self.server.http).unwrap();
        write!(listener, "GET /listen/default.opus HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        wait_for("the number of listeners", PATIENCE, || {
            let status = Command::new(butt).args(["-S", "-p", control]).output().unwrap().stdout;
            if String::from_utf8_lossy(&status).contains("listeners: 1") {
                return true;
            }
            // It answers once a second.
            std::thread::sleep(Duration::from_millis(1_100));
            false
        });
    }

    /// The live source ends its stream by itself when it is terminated.
    fn ends(mut self, mut encoder: Process) {
        drop(encoder.terminate(PATIENCE));
        wait_for("its end", PATIENCE, || source(&mut self.rpc)["dj"]["on_air"] == false);
        self.server.stop().unwrap();
    }
}

#[test]
fn butt_streams_mp3_with_titles_and_shows_the_number_of_listeners() {
    butt_streams("mp3", "audio/mpeg", TONE_DBFS - LAME_DB);
}

#[test]
fn butt_streams_opus_with_titles() {
    butt_streams("opus", "audio/ogg", TONE_DBFS);
}

#[test]
fn butt_streams_flac_with_titles() {
    butt_streams("flac", "audio/ogg", TONE_DBFS);
}

/// LAME lowers the level.
const LAME_DB: f64 = 0.45;

/// butt's window is on a display of its own.
fn butt_streams(codec: &str, content_type: &str, dbfs: f64) {
    let (Some(butt), Some(xvfb)) = (find_or_skip("butt"), find_or_skip("Xvfb")) else { return };
    if find_or_skip("ffmpeg").is_none() {
        return;
    }
    let _turn = shared_turn();
    let mut stage = Stage::new(&format!("butt-{codec}"));
    let Some(mut pipewire) = PipeWire::start(&stage.scratch, "", MICROPHONE) else { return };
    pipewire.play_to_microphone();
    let (_xvfb, display) = stage.display(&xvfb);
    let config = stage.scratch.join("buttrc");
    std::fs::write(&config, butt_config(&stage, codec)).unwrap();
    let control = free_port().unwrap().to_string();
    let mut command = pipewire.command(&butt);
    command.env("DISPLAY", display).env("JACK_NO_START_SERVER", "1");
    let mut dj = stage.run(command.arg("-c").arg(&config).args(["-p", &control]), "butt");
    let state = stage.on_air(&mut dj, "butt");
    for (key, wanted) in [("codec", codec), ("content_type", content_type), ("name", "House")] {
        assert_eq!(state[key], wanted, "{state}");
    }
    assert!(state["user_agent"].as_str().unwrap().starts_with("butt "), "{state}");
    assert_station_plays_tone(&format!("butt, {codec}"), &stage.server, dbfs);
    let tell = ["-u", "Björk - Jóga", "-p", &control];
    assert!(Command::new(&butt).args(tell).status().unwrap().success());
    stage.has_title("Björk", "Jóga");
    if codec == "mp3" {
        stage.counts_listeners(&butt, &control);
    }
    let log = stage.server.printed().unwrap();
    assert!(!log.contains("live source refused"), "{log}");
    stage.ends(dj);
}

/// The frames of butt are passed as they come.
#[test]
fn what_butt_streams_to_a_mount_vlc_plays() {
    let (Some(butt), Some(xvfb)) = (find_or_skip("butt"), find_or_skip("Xvfb")) else { return };
    let Some(vlc) = find_or_skip("vlc") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("butt-mount").unwrap();
    let port = free_port().unwrap().to_string();
    let config = format!(
        "[[mount]]\nname = \"live.mp3\"\nspec = \"48000:16:2\"\nsources = [\
         {{ uri = \"icecast://127.0.0.1:{port}/live\", password = \"very secret\" }}]\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let rpc = Rpc::connect(server.control);
    let mut stage = Stage { scratch, server, rpc, port };
    let Some(mut pipewire) = PipeWire::start(&stage.scratch, "", MICROPHONE) else { return };
    pipewire.play_to_microphone();
    let (_xvfb, display) = stage.display(&xvfb);
    let config = stage.scratch.join("buttrc");
    std::fs::write(&config, butt_config(&stage, "mp3")).unwrap();
    let control = free_port().unwrap().to_string();
    let mut command = pipewire.command(&butt);
    command.env("DISPLAY", display).env("JACK_NO_START_SERVER", "1");
    let mut dj = stage.run(command.arg("-c").arg(&config).args(["-p", &control]), "butt");
    wait_for("frames that are passed", PATIENCE, || {
        assert!(dj.ended().unwrap().is_none(), "{}", stage.said("butt"));
        on_air(&mut stage.rpc).1
    });
    let url = format!("http://{}/live.mp3", stage.server.http);
    let mut found = Vec::new();
    // Again where a program on a busy machine was late.
    for _ in 0..3 {
        let (wave, said) = vlc_plays(&vlc, &url, 5, &stage.scratch);
        let samples = wave.get(44..).unwrap_or_default().as_chunks::<4>().0.iter();
        let left: Vec<i16> =
            samples.map(|frame| i16::from_le_bytes([frame[0], frame[1]])).collect();
        match judge_tone("butt by VLC", &left, TONE_DBFS - LAME_DB) {
            Ok(()) => return stage.server.stop().unwrap(),
            Err(wrong) => found.push(wrong + &said),
        }
    }
    panic!("{found:#?}");
}

/// It connects when it starts.
fn butt_config(stage: &Stage, codec: &str) -> String {
    format!(
        "[main]\nserver = here\nsrv_ent = here\nnum_of_srv = 1\nicy = House\nicy_ent = House\n\
         num_of_icy = 1\nconnect_at_startup = 1\ncheck_for_update = 0\ngain = 1.0\n\
         [here]\naddress = 127.0.0.1\nport = {}\npassword = very secret\ntype = 1\ntls = 0\n\
         mount = live\nusr = source\nprotocol = 0\n[House]\npub = 0\ndescription = House\n\
         [audio]\ndevice = default\nsamplerate = 48000\nbitrate = 128\nchannel = 2\n\
         codec = {codec}\n[record]\nfolder = {}/\n",
        stage.port,
        text(stage.scratch.path())
    )
}

#[test]
fn darkice_streams_vorbis() {
    darkice_streams("vorbis", "vbr", TONE_DBFS);
}

#[test]
fn darkice_streams_mp3() {
    darkice_streams("mp3", "cbr", TONE_DBFS - LAME_DB);
}

#[test]
fn darkice_streams_opus() {
    darkice_streams("opus", "cbr", TONE_DBFS);
}

fn darkice_streams(format: &str, mode: &str, dbfs: f64) {
    let Some(darkice) = find_or_skip("darkice") else { return };
    if find_or_skip("ffmpeg").is_none() {
        return;
    }
    let _turn = shared_turn();
    let mut stage = Stage::new(&format!("darkice-{format}"));
    let Some(mut pipewire) = PipeWire::start(&stage.scratch, "", MICROPHONE) else { return };
    pipewire.play_to_microphone();
    let config = format!(
        "[general]\nduration = 0\nbufferSecs = 1\nreconnect = yes\nrealtime = no\n\
         [input]\ndevice = default\nsampleRate = 48000\nbitsPerSample = 16\nchannel = 2\n\
         [icecast2-0]\nbitrateMode = {mode}\nformat = {format}\nbitrate = 128\nquality = 0.6\n\
         server = 127.0.0.1\nport = {}\npassword = very secret\nmountPoint = live\n\
         name = House\npublic = no\n",
        stage.port
    );
    let file = stage.scratch.join("darkice.cfg");
    std::fs::write(&file, config).unwrap();
    let mut dj = stage.run(pipewire.command(&darkice).arg("-c").arg(&file), "darkice");
    let state = stage.on_air(&mut dj, "darkice");
    assert_eq!((&state["codec"], &state["name"]), (&format.into(), &"House".into()), "{state}");
    assert!(state["user_agent"].as_str().unwrap().starts_with("DarkIce/"), "{state}");
    assert_station_plays_tone(&format!("DarkIce, {format}"), &stage.server, dbfs);
    stage.ends(dj);
}

/// A title begins another logical stream of Ogg; the sound goes on.
#[test]
fn ices2_streams_standard_input_with_titles() {
    let (Some(ices), Some(ffmpeg)) = (find_or_skip("ices2"), find_or_skip("ffmpeg")) else {
        return;
    };
    let _turn = shared_turn();
    let mut stage = Stage::new("ices2");
    let input = stage.scratch.fifo("input").unwrap();
    let title = stage.scratch.join("title");
    std::fs::write(&title, "artist=Frozen\ntitle=Penguin\n").unwrap();
    let config = format!(
        "<?xml version=\"1.0\"?><ices><background>0</background><consolelog>1</consolelog>\
         <loglevel>4</loglevel><stream><metadata><name>House</name></metadata><input>\
         <module>stdinpcm</module><param name=\"rate\">48000</param><param name=\"channels\">2\
         </param><param name=\"metadata\">1</param><param name=\"metadatafilename\">{}</param>\
         </input><instance><hostname>127.0.0.1</hostname><port>{}</port>\
         <username>source</username><password>very secret</password><mount>/live</mount>\
         <encode><quality>6</quality><samplerate>48000</samplerate><channels>2</channels></encode>\
         </instance></stream></ices>",
        text(&title),
        stage.port
    );
    let file = stage.scratch.join("ices.xml");
    std::fs::write(&file, config).unwrap();
    let _tone = stage.run(&mut tone(&ffmpeg, &input), "tone");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$1\" < \"$2\""]).arg(&ices).arg(&file).arg(&input);
    let mut dj = stage.run(&mut command, "ices2");
    let state = stage.on_air(&mut dj, "ices2");
    assert_eq!((&state["codec"], &state["name"]), (&"vorbis".into(), &"House".into()), "{state}");
    assert!(state["user_agent"].as_str().unwrap().starts_with("IceS "), "{state}");
    for (artist, name) in [("Frozen", "Penguin"), ("Björk", "Jóga")] {
        std::fs::write(&title, format!("artist={artist}\ntitle={name}\n")).unwrap();
        let pid = Pid::from_raw(i32::try_from(dj.id()).unwrap()).unwrap();
        kill_process(pid, Signal::USR1).unwrap();
        stage.has_title(artist, name);
        // Once: the change is within it.
        let (report, samples) = listen(&ffmpeg, stage.server.http, "default");
        judge_tone(&format!("IceS 2, {name}"), &samples, TONE_DBFS)
            .unwrap_or_else(|wrong| panic!("{wrong}\n{report}"));
    }
    stage.ends(dj);
}

/// Half a minute of the tone as samples of 16 bits, in real time.
fn tone(ffmpeg: &Path, to: &Path) -> Command {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-loglevel", "error", "-y", "-re", "-f", "lavfi"]);
    command.args(["-i", "sine=440:r=48000:d=30,volume=6dB,pan=stereo|c0=c0|c1=c0"]);
    command.args(["-f", "s16le"]).arg(to);
    command
}

//! `aulos play` into sound devices: PulseAudio, PipeWire and ALSA, none of which needs a card here.
//!
//! PulseAudio's pipe sink is a sound card whose clock is the reader of its pipe, and this is that
//! reader: so it is known when each frame sounds, without a word of the sound server.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aulos_blackbox::capture_check::compare;
use aulos_blackbox::peer::{Process, before_others, find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{Frame, NoiseRng, RATE, SampleWidth, programme};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::pipewire::{PipeWire, TONE_DBFS, judge_tone};
use crate::play::{LEAD_S, Player, StampedCapture, serve};
use crate::retry::retry_after_stall;
use crate::{
    long_or_short, long_quiet_turn, long_timed_turn, quiet_turn, shared_turn, text, timed_turn,
    wait_for,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A file's promise: a frame sounds so much after it was written.
const FILE_DELAY: f64 = 0.010;

/// A private PulseAudio with a pipe sink, `card`, whose format is 48000:16:2, and a null sink.
pub(crate) struct PulseAudio {
    process: Process,
    pub(crate) server: String,
    fifo: PathBuf,
}

impl PulseAudio {
    pub(crate) fn start(program: &Path, scratch: &ScratchDir, name: &str) -> Self {
        let (socket, fifo) = (scratch.join("native"), scratch.join(name));
        let mut command = before_others(program);
        command.args(["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no"]);
        command.args(["--disable-shm=yes", "-L"]);
        command
            .arg(format!("module-native-protocol-unix auth-anonymous=1 socket={}", text(&socket)));
        command.arg("-L").arg(format!(
            "module-pipe-sink sink_name=card file={} rate=48000 format=s16le channels=2",
            text(&fifo)
        ));
        command.args(["-L", "module-null-sink sink_name=silent rate=48000"]);
        for key in ["HOME", "XDG_RUNTIME_DIR", "PULSE_RUNTIME_PATH"] {
            command.env(key, scratch.path());
        }
        let logs = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
        let process = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
        let server = format!("unix:{}", text(&socket));
        let connects = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        wait_for("PulseAudio", PATIENCE, || connects() && fifo.exists());
        Self { process, server, fifo }
    }

    pub(crate) fn kill(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(id, Signal::KILL).unwrap();
        self.process.wait(PATIENCE).unwrap();
    }
}

/// The sound card behind a pipe sink: it takes frames at its own rate.
struct PipeCard {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<u8>, f64)>,
    rate: f64,
}

impl PipeCard {
    /// A card that runs `ppm` faster than its nominal rate. Times are those since `begin`.
    fn start(fifo: &Path, ppm: f64, begin: Instant) -> Self {
        let mut file = File::open(fifo).unwrap();
        // As little as possible in the pipe: what PulseAudio does not report of it is an error.
        rustix::pipe::fcntl_setpipe_size(&file, 4_096).unwrap();
        fcntl_setfl(&file, fcntl_getfl(&file).unwrap() | OFlags::NONBLOCK).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let rate = RATE as f64 * (1.0 + ppm * 1e-6);
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut clock, mut buffer) = (Vec::new(), f64::INFINITY, [0; 65_536]);
            let start = begin.elapsed().as_secs_f64();
            let mut is_idle = false;
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let now = begin.elapsed().as_secs_f64();
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "> 0")]
                let due = ((now - start) * rate) as usize * 4 - bytes.len();
                let length = file.read(&mut buffer[..due.min(65_536)]).unwrap_or(0);
                bytes.extend(&buffer[..length]);
                // PulseAudio writes nothing without a stream, and a card plays on.
                is_idle = length == 0 && (is_idle || due > IDLE);
                if is_idle {
                    bytes.resize(bytes.len() + due, 0);
                }
                clock = clock.min(now - (bytes.len() / 4) as f64 / rate);
            }
            (bytes, clock)
        });
        Self { is_over, thread, rate }
    }

    /// Ends it; returns what was played, when it began and its rate.
    fn stop(self) -> (Vec<Frame>, f64, f64) {
        self.is_over.store(true, Ordering::Relaxed);
        let (bytes, clock) = self.thread.join().unwrap();
        (SampleWidth::B16.frames(&bytes), clock, self.rate)
    }
}

/// Stops a player until its device has nothing to play, which the device counts.
fn starve(player: &Player) {
    let id = Pid::from_raw(i32::try_from(player.process.id()).unwrap()).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    kill_process(id, Signal::CONT).unwrap();
    wait_for("an underrun of the device", PATIENCE, || {
        let status = player.statuses().pop().unwrap();
        status["device_underruns"].as_u64() > Some(0)
    });
}

/// Within this time of the first sound a player has converged; there is a click in each second.
const CONVERGED_S: usize = 3;

/// Bytes by which PulseAudio is later than a busy machine explains: half a second.
const IDLE: usize = 96_000;

/// A smooth click in the middle of each second.
fn clicks(seconds: usize) -> Vec<Frame> {
    let sample = |at: usize| {
        let phase = (at % RATE) as f64 - (RATE / 2) as f64;
        let inside = phase.abs() < CLICK / 2.0;
        let height = (phase / CLICK * std::f64::consts::TAU).cos().mul_add(0.5, 0.5);
        #[expect(clippy::cast_possible_truncation, reason = "16 bits")]
        let value = (16_000.0 * height).round() as i32;
        if inside { [value; 2] } else { [0; 2] }
    };
    (0..seconds * RATE).map(sample).collect()
}

/// Frames of a click.
const CLICK: f64 = 480.0;

/// The times of the clicks that are there in full: the center of the energy of each, good to a
/// fraction of a frame.
fn click_times(frames: &[Frame], clock: f64, rate: f64) -> Vec<f64> {
    let is_loud = |frame: &Frame| frame[0].abs() > 200;
    let mut times = Vec::new();
    let mut at = 0;
    while let Some(first) = frames[at..].iter().position(is_loud) {
        let begin = at + first;
        at = (begin + RATE / 4).min(frames.len());
        let (mut energy, mut moment) = (0.0, 0.0);
        for (index, frame) in frames[begin..at].iter().enumerate() {
            let power = f64::from(frame[0]).powi(2);
            energy += power;
            moment += power * index as f64;
        }
        if frames[begin..at].iter().any(|frame| frame[0] > 15_000) {
            times.push(clock + (begin as f64 + moment / energy) / rate);
        }
    }
    times
}

/// How much later in seconds each click of `one` is than the nearest of `other`.
fn lags(one: &[f64], other: &[f64]) -> Vec<f64> {
    let nearest = |time: &f64| {
        other.iter().map(|other| time - other).min_by(|a, b| a.abs().total_cmp(&b.abs()))
    };
    one.iter().filter_map(nearest).filter(|lag| lag.abs() < 0.5).collect()
}

/// A station of clicks, and a player that writes a pipe: the reference.
struct Reference {
    server: AulosServer,
    player: Player,
    reader: JoinHandle<StampedCapture>,
}

impl Reference {
    fn start(scratch: &ScratchDir, seconds: usize, begin: Instant) -> Self {
        Self::start_with(scratch, &clicks(seconds), begin)
    }

    fn start_with(scratch: &ScratchDir, sound: &[Frame], begin: Instant) -> Self {
        let server = serve(scratch, "pcm", SampleWidth::B16, sound);
        let fifo = scratch.fifo("reference").unwrap();
        let path = fifo.clone();
        let reader = std::thread::spawn(move || StampedCapture::read(&path, begin));
        // A player does not wait for the reader of a FIFO.
        std::thread::sleep(Duration::from_millis(200));
        let target = format!("file:{}", text(&fifo));
        let arguments: &[&str] = &["--output", &target];
        let url = format!("tcp://{}", server.stream);
        let player = Player::start_with(&url, scratch, ("reference", arguments), |command| command);
        Self { server, player, reader }
    }

    /// A player with another output.
    fn add(&self, scratch: &ScratchDir, output: &str, variables: &[(&str, &str)]) -> Player {
        let arguments: &[&str] = &["--output", output];
        let url = format!("tcp://{}", self.server.stream);
        let set = |command: &mut Command| {
            command.envs(variables.iter().copied());
        };
        Player::start_with(&url, scratch, ("device", arguments), |command| {
            set(command);
            command
        })
    }

    /// Ends it; returns when its clicks sounded.
    fn stop(mut self) -> Vec<f64> {
        self.player.process.terminate(Duration::from_secs(1)).unwrap();
        let capture = self.reader.join().unwrap();
        self.server.stop().unwrap();
        click_times(&capture.frames, capture.clock + FILE_DELAY, RATE as f64)
    }
}

/// The median and the largest of some lags, in microseconds.
fn summary(what: &str, lags: &[f64]) -> (f64, f64) {
    let mut sorted: Vec<f64> = lags.iter().map(|lag| lag * 1e6).collect();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY);
    let largest = sorted.last().copied().unwrap_or(f64::INFINITY);
    println!("{what}: median {median:+.0} us, largest {largest:+.0} us, {} clicks", sorted.len());
    (median.abs(), largest.abs())
}

/// The card runs 60 ppm too fast: half a millisecond in eight seconds, if it was not followed.
#[test]
fn pulseaudio_sounds_at_the_time_of_a_file() {
    retry_after_stall("play_devices::pulseaudio_sounds_at_the_time_of_a_file", || {
        let Some(program) = find_or_skip("pulseaudio") else { return };
        let _turn = timed_turn();
        let scratch = ScratchDir::new("play-pulse").unwrap();
        let seconds = usize::try_from(playing().as_secs()).unwrap();
        let begin = Instant::now();
        let pulse = PulseAudio::start(&program, &scratch, "card");
        let card = PipeCard::start(&pulse.fifo, 60.0, begin);
        let reference = Reference::start(&scratch, seconds, begin);
        let variables = [("PULSE_SERVER", pulse.server.as_str())];
        let mut player = reference.add(&scratch, "pulse:card", &variables);
        std::thread::sleep(Duration::from_secs(LEAD_S + 2) + playing());
        let status = player.statuses().pop().unwrap();
        let ended = player.process.terminate(Duration::from_secs(2)).unwrap();
        assert!(ended.success(), "{}", player.messages());
        assert!(player.messages().contains("playing on pulse:card"), "{}", player.messages());
        let (frames, clock, rate) = card.stop();
        let lags = lags(&click_times(&frames, clock, rate), &reference.stop());
        // The clock of a device that was just opened is known to a millisecond or two.
        let (median, largest) =
            summary("PulseAudio after a file", &lags[CONVERGED_S.min(lags.len())..]);
        assert!(lags.len() + 1 >= seconds, "{lags:.6?} {status}");
        assert!(median < 500.0 && largest < 1_000.0, "{lags:.6?} {status}");
    });
}

/// The station sends digital silence for ten seconds, and the sound server gets nothing then. The
/// first click before and after it is heard in full.
#[test]
fn a_device_is_released_in_silence_and_no_sound_is_cut() {
    let name = "play_devices::a_device_is_released_in_silence_and_no_sound_is_cut";
    retry_after_stall(name, release_in_silence);
}

fn release_in_silence() {
    let Some(program) = find_or_skip("pulseaudio") else { return };
    let Some(control) = find_or_skip("pactl") else { return };
    let _turn = long_timed_turn();
    let scratch = ScratchDir::new("play-pulse-release").unwrap();
    let begin = Instant::now();
    let pulse = PulseAudio::start(&program, &scratch, "card");
    let card = PipeCard::start(&pulse.fifo, 0.0, begin);
    let sound = [clicks(2), vec![[0, 0]; 10 * RATE], clicks(2)].concat();
    let reference = Reference::start_with(&scratch, &sound, begin);
    let inputs = || {
        let mut command = Command::new(&control);
        command.args(["list", "short", "sink-inputs"]).env("PULSE_SERVER", &pulse.server);
        String::from_utf8(command.output().unwrap().stdout).unwrap().lines().count()
    };
    let mut player = reference.add(&scratch, "pulse:card", &[("PULSE_SERVER", &pulse.server)]);
    for (what, expected) in [("sound", 1), ("the release", 0), ("sound again", 1)] {
        wait_for(what, PATIENCE, || inputs() == expected);
        println!("{what} after {:.1} s", begin.elapsed().as_secs_f64());
    }
    std::thread::sleep(Duration::from_secs(4));
    let status = player.statuses().pop().unwrap();
    player.process.terminate(Duration::from_secs(2)).unwrap();
    let (frames, clock, rate) = card.stop();
    let lags = lags(&click_times(&frames, clock, rate), &reference.stop());
    // The clock of a device that was just opened is known to a millisecond or two.
    let (_, largest) = summary("PulseAudio around silence", &lags);
    assert!(lags.len() == 4 && largest < 5_000.0, "{lags:.6?} {status}");
    assert_eq!((&status["starts"], &status["late"]), (&json!(2), &json!(0)), "{status}");
}

/// It is killed without a word, and another one begins.
#[test]
fn a_player_survives_pulseaudio() {
    retry_after_stall("play_devices::a_player_survives_pulseaudio", survive_pulseaudio);
}

fn survive_pulseaudio() {
    let Some(program) = find_or_skip("pulseaudio") else { return };
    let _turn = long_timed_turn();
    let scratch = ScratchDir::new("play-pulse-kill").unwrap();
    let begin = Instant::now();
    let reference = Reference::start(&scratch, 40, begin);
    // None at the start.
    let server = format!("unix:{}", text(&scratch.join("native")));
    let mut player = reference.add(&scratch, "pulse:card", &[("PULSE_SERVER", &server)]);
    wait_for("a message", PATIENCE, || player.messages().contains("No such file or directory"));
    let mut pulse = PulseAudio::start(&program, &scratch, "first");
    let card = PipeCard::start(&pulse.fifo, 0.0, begin);
    let playing = |player: &Player| player.messages().matches("playing on pulse:card").count();
    wait_for("sound", PATIENCE, || playing(&player) == 1);
    std::thread::sleep(Duration::from_secs(3));
    starve(&player);
    pulse.kill();
    drop(card.stop());
    wait_for("the loss", PATIENCE, || player.messages().contains("closed the connection"));
    // Attempts fail meanwhile, with one message.
    std::thread::sleep(Duration::from_secs(3));
    let pulse = PulseAudio::start(&program, &scratch, "second");
    let card = PipeCard::start(&pulse.fifo, 0.0, begin);
    let start = Instant::now();
    wait_for("sound again", PATIENCE, || playing(&player) == 2);
    println!("plays again after {:?}", start.elapsed());
    std::thread::sleep(Duration::from_secs(6));
    let ended = player.process.terminate(Duration::from_secs(2)).unwrap();
    let messages = player.messages();
    assert!(ended.success() && messages.lines().count() < 12, "{messages}");
    let (frames, clock, rate) = card.stop();
    let lags = lags(&click_times(&frames, clock, rate), &reference.stop());
    let (median, _) = summary("a second PulseAudio after a file", &lags);
    assert!(lags.len() >= 3 && median < 1_000.0, "{lags:.6?}\n{messages}");
}

/// By the protocol of PulseAudio.
#[test]
fn pipewire_plays_what_a_player_gives() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("play-pipewire").unwrap();
    let sink = "{ factory = adapter args = { factory.name = support.null-audio-sink node.name = \
        card media.class = Audio/Sink audio.position = [ FL FR ] } }";
    let Some(mut pipewire) = PipeWire::start(&scratch, "", sink) else { return };
    let config = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
        sources = [\"tone://?hz=440&dbfs=-12\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let socket = pipewire.pulse_server();
    wait_for("the list of sinks", PATIENCE, || {
        let mut command = Command::new(binary());
        let listed = command.args(["play", "--list-outputs"]).env("PULSE_SERVER", &socket);
        String::from_utf8_lossy(&listed.output().unwrap().stdout).contains("pulse:card")
    });
    let arguments: &[&str] = &["--output", "pulse:card"];
    let url = format!("tcp://{}", server.stream);
    let mut player = Player::start_with(&url, &scratch, ("device", arguments), |command| {
        command.env("PULSE_SERVER", socket)
    });
    wait_for("sound", PATIENCE, || player.messages().contains("playing on pulse:card"));
    let mut outcome = Err(String::new());
    for _ in 0..ATTEMPTS {
        let samples = pipewire.record_monitor("card", Duration::from_secs(6));
        outcome = judge_tone("PipeWire's monitor", &samples, TONE_DBFS);
        if outcome.is_ok() {
            break;
        }
    }
    let status = player.statuses().pop().unwrap();
    println!("PipeWire: error {} us of its clocks", status["error_us"]);
    assert_eq!(outcome, Ok(()), "{status}");
    let error = status["error_us"].as_f64().unwrap();
    assert!(error.abs() < 2_000.0 && status["device_delay_ms"].as_f64() > Some(20.0), "{status}");
    starve(&player);
    player.process.terminate(Duration::from_secs(2)).unwrap();
    server.stop().unwrap();
}

/// ALSA's `file` device writes what it gets, and `null` behind it has no clock.
#[test]
fn alsa_gets_the_samples_bit_by_bit() {
    retry_after_stall("play_devices::alsa_gets_the_samples_bit_by_bit", play_to_an_alsa_file);
}

fn play_to_an_alsa_file() {
    if !has_alsa() {
        return;
    }
    let _turn = long_quiet_turn();
    std::thread::scope(|scope| {
        for (codec, bits) in [("pcm", SampleWidth::B16), ("flac", SampleWidth::B24)] {
            scope.spawn(move || play_into_alsas_file(codec, bits));
        }
    });
}

fn play_into_alsas_file(codec: &str, bits: SampleWidth) {
    let scratch = ScratchDir::new("play-alsa").unwrap();
    let heard = scratch.join("heard.raw");
    let config = format!(
        "pcm.written {{ type file slave.pcm {{ type null }} file \"{}\" format raw }}\n",
        text(&heard)
    );
    let path = scratch.join("asound.conf");
    std::fs::write(&path, config).unwrap();
    let sound = programme(usize::try_from(playing().as_secs()).unwrap() * RATE, bits, 5);
    let server = serve(&scratch, codec, bits, &sound);
    let arguments: &[&str] = &["--output", "alsa:written"];
    let url = format!("tcp://{}", server.stream);
    let mut player = Player::start_with(&url, &scratch, ("device", arguments), |command| {
        command.env("ALSA_CONFIG_PATH", &path)
    });
    std::thread::sleep(Duration::from_secs(LEAD_S + 3) + playing());
    player.process.terminate(Duration::from_secs(2)).unwrap();
    let messages = player.messages();
    assert!(messages.contains("playing on alsa:written"), "{messages}");
    let captured = bits.frames(&std::fs::read(&heard).unwrap());
    let faults = compare(&sound, &captured);
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{codec} {bits:?}: {list:?}\n{messages}");
    println!("ALSA, {codec} {bits:?}: {} frames bit-exact", sound.len());
    server.stop().unwrap();
}

/// ALSA's plug-in for PulseAudio, and PulseAudio's monitor.
#[test]
fn alsa_plays_through_a_plug_in() {
    let Some(program) = find_or_skip("pulseaudio").filter(|_| has_alsa()) else { return };
    let Some(recorder) = find_or_skip("parec") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("play-alsa-pulse").unwrap();
    let pulse = PulseAudio::start(&program, &scratch, "card");
    let config = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
        sources = [\"tone://?hz=440&dbfs=-12\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let url = format!("tcp://{}", server.stream);
    let asound = scratch.join("asound.conf");
    std::fs::write(&asound, "pcm.silent { type pulse device silent }\n").unwrap();
    let arguments: &[&str] = &["--output", "alsa:silent?buffer=200"];
    let mut player = Player::start_with(&url, &scratch, ("device", arguments), |command| {
        command.env("PULSE_SERVER", &pulse.server).env("ALSA_CONFIG_PATH", &asound)
    });
    wait_for("sound", PATIENCE, || player.messages().contains("playing on alsa:silent"));
    // PulseAudio's null sink begins with a second of silence that it has prepared.
    std::thread::sleep(Duration::from_secs(3));
    let mut outcome = Err(String::new());
    for _ in 0..ATTEMPTS {
        let (heard, log) = (scratch.join("heard.raw"), scratch.join("parec.err"));
        let mut command = before_others(&recorder);
        command.args(["--device=silent.monitor", "--format=s16le", "--rate=48000", "--raw"]);
        command.args(["--channels=1", "--latency-msec=50"]).env("PULSE_SERVER", &pulse.server);
        let process = Process::start(&mut command, &heard, &log).unwrap();
        std::thread::sleep(Duration::from_secs(4));
        drop(process);
        let bytes = std::fs::read(&heard).unwrap();
        let samples = bytes.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
        let samples: Vec<i16> = samples.collect();
        outcome = judge_tone("ALSA's plug-in", &samples, TONE_DBFS);
        if outcome.is_ok() {
            break;
        }
    }
    let status = player.statuses().pop().unwrap();
    assert_eq!(outcome, Ok(()), "{status}");
    player.process.terminate(Duration::from_secs(2)).unwrap();
    server.stop().unwrap();
}

pub(crate) fn has_alsa() -> bool {
    let folders = ["/usr/lib", "/usr/lib64", "/lib"].iter().flat_map(std::fs::read_dir).flatten();
    let all = folders.flatten().map(|entry| entry.path());
    let found =
        all.chain([PathBuf::from("/usr/lib")]).any(|folder| folder.join("libasound.so.2").exists());
    if !found {
        skip("libasound2");
    }
    found
}

/// Servers that are none: the player says so, stays small and can be stopped.
#[test]
fn false_sound_servers_are_told_apart_and_tried_again() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("play-pulse-false").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let mut noise = vec![0; 20_000];
    let mut rng = NoiseRng(7);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a byte")]
    noise.fill_with(|| (rng.sample() * 127.0) as i8 as u8);
    // The reply to a creation that ends in the middle, and one of four gigabytes.
    let cut = [&[0, 0, 0, 40, 255, 255, 255, 255][..], &[0; 12], &[b'L', 0, 0, 0, 2]].concat();
    let huge = [255; 4_096];
    // Small packets of a stream that does not exist, without an end.
    let endless = [&[0, 0, 0, 1, 0, 0, 0, 0][..], &[0; 13]].concat();
    let attempts: [(&[u8], bool, &str); 4] = [
        (&noise, false, "malformed"),
        (&cut, false, "closed the connection"),
        (&huge, false, "malformed"),
        (&endless, true, "does not answer"),
    ];
    for (index, (bytes, is_endless, expected)) in attempts.into_iter().enumerate() {
        let socket = scratch.join(format!("false-{index}"));
        let listener = UnixListener::bind(&socket).unwrap();
        let bytes = bytes.to_vec();
        std::thread::spawn(move || {
            while let Ok((mut socket, _)) = listener.accept() {
                while socket.write_all(&bytes).is_ok() && is_endless {}
            }
        });
        let variable = format!("unix:{}", text(&socket));
        let arguments: &[&str] = &["--output", "pulse"];
        let url = format!("tcp://{}", server.stream);
        let mut player = Player::start_with(&url, &scratch, ("device", arguments), |command| {
            command.env("PULSE_SERVER", variable)
        });
        wait_for(expected, PATIENCE, || player.messages().contains(expected));
        std::thread::sleep(Duration::from_secs(2));
        let lines = player.messages().lines().filter(|line| line.contains(expected)).count();
        assert_eq!(lines, 1, "{}", player.messages());
        let memory = memory_kb(player.process.id());
        println!("`{expected}`: {memory} kB");
        assert!(memory < 40_000, "{memory} kB");
        assert!(player.process.terminate(Duration::from_secs(1)).unwrap().success());
    }
    server.stop().unwrap();
}

/// Resident memory.
fn memory_kb(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Without `--output` it is the sound server; without one and without ALSA, the message has names.
#[test]
fn the_default_output_is_the_sound_server() {
    let Some(program) = find_or_skip("pulseaudio") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("play-default").unwrap();
    let run = |arguments: &[&str], server: &str| {
        let mut command = Command::new(binary());
        command.arg("play").args(arguments).env("PULSE_SERVER", server);
        command.env("ALSA_CONFIG_PATH", scratch.join("nothing")).output().unwrap()
    };
    let nothing = format!("unix:{}", text(&scratch.join("nothing")));
    let output = run(&[], &nothing);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(73), "{said}");
    for words in ["No such file or directory", "alsa:default", "null, file:PATH and stdout"] {
        assert!(said.contains(words), "no `{words}`: {said}");
    }
    let pulse = PulseAudio::start(&program, &scratch, "card");
    let listed = run(&["--list-outputs"], &pulse.server);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.starts_with("pulse:silent\n"), "{listed}");
    assert!(listed.contains("\npulse:card\n"), "{listed}");
    let config = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let url = format!("tcp://{}", server.stream);
    let arguments: &[&str] = &["--output", "auto"];
    let mut player = Player::start_with(&url, &scratch, ("device", arguments), |command| {
        command.env("PULSE_SERVER", &pulse.server)
    });
    wait_for("sound", PATIENCE, || player.messages().contains("playing on pulse:silent"));
    player.process.terminate(Duration::from_secs(2)).unwrap();
    server.stop().unwrap();
}

fn playing() -> Duration {
    long_or_short(60, 6)
}

/// Recordings: on a busy machine the recorder itself is late.
const ATTEMPTS: usize = 3;

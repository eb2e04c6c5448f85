//! `aulos play` before real servers: the samples, the time, the end.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aulos_blackbox::capture_check::{compare, snr_db};
use aulos_blackbox::paced_writer::PacedWriter;
use aulos_blackbox::peer::{Process, Snapserver, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, programme, tonal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::retry::{ClientCorrection, retry, retry_after_stall};
use crate::rpc::Rpc;
use crate::{long_or_short, long_quiet_turn, quiet_turn, shared_turn, text, timed_turn, wait_for};

/// Silence before the programme, while the player connects, and after it, while its buffer drains.
pub(crate) const LEAD_S: u64 = 4;
pub(crate) const TAIL_S: u64 = 2;

/// Bytes that a player writes to a file or FIFO at once: 50 ms.
const BLOCK: usize = 9_600;

const PATIENCE: Duration = Duration::from_secs(20);

/// A player, by default one that writes a file.
pub(crate) struct Player {
    pub(crate) process: Process,
    sound: PathBuf,
    printed: [PathBuf; 2],
}

impl Player {
    fn start(port: u16, scratch: &ScratchDir, name: &str, more: &[&str]) -> Self {
        Self::start_at(&format!("tcp://127.0.0.1:{port}"), scratch, name, more)
    }

    /// Starts it with an address; an empty one is left out.
    pub(crate) fn start_at(url: &str, scratch: &ScratchDir, name: &str, more: &[&str]) -> Self {
        Self::start_with(url, scratch, (name, more), |command| command)
    }

    /// The same in another environment.
    pub(crate) fn start_with(
        url: &str,
        scratch: &ScratchDir,
        (name, more): (&str, &[&str]),
        environment: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let sound = scratch.join(format!("{name}.pcm"));
        let printed = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
        let mut command = Command::new(binary());
        command.arg("play").args(Some(url).filter(|url| !url.is_empty()));
        if !more.contains(&"--output") {
            command.arg("--output").arg(format!("file:{}", sound.display()));
        }
        environment(command.args(["--id", name, "--json"]).args(more));
        let process = Process::start(&mut command, &printed[0], &printed[1]).unwrap();
        Self { process, sound, printed }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its status, once a second.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.printed[0]).unwrap();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn messages(&self) -> String {
        std::fs::read_to_string(&self.printed[1]).unwrap()
    }

    /// Ends it within a second, with success; returns what it played.
    pub(crate) fn stop(&mut self) -> Vec<u8> {
        let status = self.process.terminate(Duration::from_secs(1)).unwrap();
        assert!(status.success(), "{status}: {}", self.messages());
        std::fs::read(&self.sound).unwrap()
    }
}

#[test]
fn what_aulos_serves_is_played_bit_by_bit() {
    retry_after_stall("play::what_aulos_serves_is_played_bit_by_bit", || {
        let _turn = long_quiet_turn();
        std::thread::scope(|scope| {
            for (codec, bits) in
                [("pcm", SampleWidth::B16), ("flac", SampleWidth::B16), ("flac", SampleWidth::B24)]
            {
                scope.spawn(move || play_bit_by_bit(codec, bits));
            }
        });
    });
}

fn play_bit_by_bit(codec: &str, bits: SampleWidth) {
    let scratch = ScratchDir::new("play").unwrap();
    let sound = programme(frames(), bits, 5);
    let server = serve(&scratch, codec, bits, &sound);
    let mut player = Player::start(server.stream.port(), &scratch, "player", &[]);
    std::thread::sleep(Duration::from_secs(LEAD_S + TAIL_S) + playing());
    let statuses = player.statuses();
    let captured = bits.frames(&player.stop());
    let faults = compare(&sound, &captured);
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let last = statuses.last();
    let printed = server.printed().unwrap();
    assert!(faults.is_empty(), "{codec} {bits:?}: {list:?} {last:#?} {printed}");
    println!("{codec} {bits:?}: {} frames bit-exact", sound.len());
    server.stop().unwrap();
}

#[test]
fn opus_of_aulos_keeps_the_waveform_to_20_db() {
    retry_after_stall("play::opus_of_aulos_keeps_the_waveform_to_20_db", || {
        let _turn = quiet_turn();
        let scratch = ScratchDir::new("play-opus").unwrap();
        let sound = tonal(frames(), SampleWidth::B16);
        let server = serve(&scratch, "opus", SampleWidth::B16, &sound);
        let mut player = Player::start(server.stream.port(), &scratch, "player", &[]);
        std::thread::sleep(Duration::from_secs(LEAD_S + TAIL_S) + playing());
        let captured = SampleWidth::B16.frames(&player.stop());
        let snr = snr_db(&sound, &captured);
        println!("opus: waveform SNR {snr:.1?} dB");
        assert!(snr.is_some_and(|snr| snr >= 20.0), "{snr:?}");
        server.stop().unwrap();
    });
}

#[test]
fn what_snapserver_serves_is_played_bit_by_bit() {
    retry_after_stall("play::what_snapserver_serves_is_played_bit_by_bit", || {
        let Some(program) = find_or_skip("snapserver") else { return };
        let _turn = timed_turn();
        std::thread::scope(|scope| {
            for (codec, bits) in [("pcm", SampleWidth::B16), ("flac", SampleWidth::B24)] {
                let program = &program;
                scope.spawn(move || {
                    let sound = programme(frames(), bits, 3);
                    through_snapserver(bits, &sound, |scratch, fifo| {
                        let spec = format!("48000:{}:2", bits.count());
                        let server =
                            Snapserver::start(program, scratch, fifo, codec, &spec).unwrap();
                        let url = format!("tcp://127.0.0.1:{}", server.port);
                        (server, url)
                    });
                });
            }
        });
    });
}

/// Plays a programme from the FIFO of a snapserver that `start` starts; `start` returns the address
/// for the player. Snapserver shifts all timestamps when its reader is late, as on a busy machine:
/// then the player is interrupted and says so, and the programme is played again, at most twice.
pub(crate) fn through_snapserver(
    bits: SampleWidth,
    sound: &[Frame],
    start: impl Fn(&ScratchDir, &Path) -> (Snapserver, String),
) {
    retry(&format!("snapserver's {bits:?}"), || {
        play_once(bits, sound, &start).map_err(ClientCorrection::host_stall)
    });
}

/// An error if the server interrupted the programme.
fn play_once(
    bits: SampleWidth,
    sound: &[Frame],
    start: impl Fn(&ScratchDir, &Path) -> (Snapserver, String),
) -> Result<(), String> {
    let scratch = ScratchDir::new("play-snapserver").unwrap();
    let fifo = scratch.fifo("in").unwrap();
    let (_server, url) = start(&scratch, &fifo);
    let mut player = Player::start_at(&url, &scratch, "player", &[]);
    let silence = |s: u64| vec![[0, 0]; RATE * usize::try_from(s).unwrap()];
    let bytes = bits.bytes(&[&silence(LEAD_S), sound, &silence(TAIL_S)].concat());
    let per_second = bits.bytes(&silence(1)).len();
    let pipe = OpenOptions::new().write(true).open(fifo).unwrap();
    PacedWriter::steady(pipe, per_second).write(&bytes).unwrap();
    let last = player.statuses().pop().unwrap();
    let captured = bits.frames(&player.stop());
    let faults = compare(sound, &captured);
    if faults.is_empty() {
        return Ok(());
    }
    let interrupted = ["jumps", "cuts", "underruns", "late"].iter().any(|key| last[key] != 0);
    assert!(interrupted, "{faults:?}, which the player does not report: {last:#}");
    Err(format!("{faults:?}: {last}"))
}

/// The server ends without a word, and another one begins on its port.
#[test]
fn a_player_survives_its_server_and_says_so() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("play-kill").unwrap();
    let config =
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=440\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let port = server.stream.port();
    let mut player = Player::start(port, &scratch, "kitchen", &["--name", "Kitchen"]);
    let is_in_sync = |player: &Player, after: usize| {
        player.statuses().iter().skip(after).any(|status| {
            let error = status["error_us"].as_f64();
            status["connected"] == true
                && status["playing"] == true
                && error.is_some_and(|error| error.abs() < 2_000.0)
        })
    };
    wait_for("sound", PATIENCE, || is_in_sync(&player, 0));
    let mut rpc = Rpc::connect(server.control);
    let client = rpc.group_of("kitchen").unwrap()["clients"][0].clone();
    assert_eq!(client["host"]["name"], "Kitchen", "{client}");
    assert_eq!(client["snapclient"]["name"], "aulos-player", "{client}");
    let volume = json!({ "id": "kitchen", "volume": { "muted": false, "percent": 50 } });
    rpc.call("Client.SetVolume", &volume);
    wait_for("the volume", PATIENCE, || player.messages().contains("volume 50 %"));
    let mut sync = Value::Null;
    wait_for("its report", PATIENCE, || {
        let status = rpc.call("Aulos.GetStatus", &Value::Null);
        sync = status["stations"][0]["clients"][0]["health"]["sync"].clone();
        sync["error_us"].as_f64().is_some_and(|error| error.abs() < 2_000.0)
    });
    assert!(sync["clock_error_us"].is_i64() && sync["device_delay_ms"].is_f64(), "{sync}");
    assert_eq!((&sync["cuts"], &sync["lost"]), (&json!(0), &json!(0)), "{sync}");
    let client = rpc.group_of("kitchen").unwrap()["clients"][0].clone();
    assert_eq!(client["config"]["volume"]["percent"], 50, "a report changes no volume");
    let id = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    kill_process(id, Signal::KILL).unwrap();
    let before = player.statuses().len();
    wait_for("silence", PATIENCE, || {
        player.statuses().iter().skip(before).any(|status| status["playing"] == false)
    });
    drop(server);
    let again = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(scratch.join("aulos.toml"));
        command.args(["--set", &format!("listen.stream=127.0.0.1:{port}")]);
    });
    let again = again.unwrap();
    let begin = Instant::now();
    let before = player.statuses().len();
    wait_for("sound again", PATIENCE, || is_in_sync(&player, before));
    let took = begin.elapsed();
    let status = player.statuses().pop().unwrap();
    println!("in sync again after {took:?}: {status}");
    // Status lines come once a second.
    assert!(took < Duration::from_secs(4), "{took:?} {status:#}");
    assert!(status["starts"].as_u64().unwrap() >= 2, "{status:#}");
    let messages = player.messages();
    for words in ["connected to tcp://127.0.0.1:", "trying again", "stream is pcm 48000:16:2"] {
        assert!(messages.contains(words), "no `{words}`: {messages}");
    }
    let captured = SampleWidth::B16.frames(&player.stop());
    judge_interruption(&captured);
    again.stop().unwrap();
}

/// Sound, silence, sound; no step larger than the tone makes by itself, so all ends are faded.
fn judge_interruption(captured: &[Frame]) {
    let loud: Vec<bool> = captured
        .chunks(RATE / 100)
        .map(|part| part.iter().any(|frame| frame[0].abs() > 300))
        .collect();
    let first = loud.iter().position(|is| *is).unwrap();
    let silent = loud[first..].iter().filter(|is| !**is).count();
    let changes = loud.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 3 && silent > 10, "{changes} changes, {silent} x 10 ms of silence");
    let peak = captured.iter().map(|frame| frame[0].abs()).max().unwrap();
    let step = captured.windows(2).map(|pair| (pair[1][0] - pair[0][0]).abs()).max().unwrap();
    // 2 pi 440 / 48000 of the peak, and a little for the fades.
    assert!(f64::from(step) < f64::from(peak) * 0.075, "step {step}, peak {peak}");
}

#[test]
fn standard_output_ends_with_its_reader_and_with_a_signal() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("play-stdout").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let start = || {
        let mut command = Command::new(binary());
        command.arg("play").arg(format!("tcp://{}", server.stream));
        command.args(["--output", "stdout", "--quiet", "--format", "f32"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    };
    // A signal, while the pipe is full.
    let mut child = start();
    let mut reader = child.stdout.take().unwrap();
    let mut sound = vec![0; 8 * RATE];
    reader.read_exact(&mut sound).unwrap();
    let peak = sound.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    let peak = peak.fold(0.0, |peak: f32, sample| peak.max(sample.abs()));
    assert!((0.01..=1.0).contains(&peak), "{peak}");
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() && begin.elapsed() < Duration::from_secs(1), "{status}");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    // The reader is gone.
    let mut child = start();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut sound[..1_000]).unwrap();
    drop(reader);
    let begin = Instant::now();
    wait_for("the end", PATIENCE, || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success() && begin.elapsed() < Duration::from_secs(2));
    server.stop().unwrap();
}

#[test]
fn a_full_disk_ends_the_player_with_the_path() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("play-full").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let mut command = Command::new(binary());
    command.arg("play").arg(format!("tcp://{}", server.stream));
    command.args(["--output", "file:/dev/full", "--quiet"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains("/dev/full: No space left on device"), "{said}");
    server.stop().unwrap();
}

/// Two players of one server: the difference of the times at which each frame sounds. Each frame of
/// the content has its number in its samples, and the times are those at which a reader gets the
/// blocks; the most punctual of them are the clock of each output. Asserted is what a busy machine
/// permits; the figures are printed.
#[test]
fn two_players_sound_at_the_same_time() {
    retry_after_stall("play::two_players_sound_at_the_same_time", || {
        let _turn = timed_turn();
        let scratch = ScratchDir::new("play-sync").unwrap();
        let length = RATE * usize::try_from(playing().as_secs() + 10).unwrap();
        let sound: Vec<Frame> = (0..i32::try_from(length).unwrap()).map(numbered).collect();
        let server = serve(&scratch, "pcm", SampleWidth::B16, &sound);
        let begin = Instant::now();
        let players = ["one", "other"].map(|name| {
            let fifo = scratch.fifo(name).unwrap();
            let path = fifo.clone();
            let reader = std::thread::spawn(move || StampedCapture::read(&path, begin));
            // A player does not wait for the reader of a FIFO.
            std::thread::sleep(Duration::from_millis(200));
            let target = format!("file:{}", text(&fifo));
            let player =
                Player::start(server.stream.port(), &scratch, name, &["--output", &target]);
            (player, reader)
        });
        std::thread::sleep(Duration::from_secs(LEAD_S + 4) + playing());
        let [one, other] = players.map(|(mut player, reader)| {
            let status = player.statuses().pop().unwrap();
            player.process.terminate(Duration::from_secs(1)).unwrap();
            assert_eq!((&status["starts"], &status["cuts"]), (&json!(1), &json!(0)), "{status:#}");
            reader.join().unwrap()
        });
        server.stop().unwrap();
        let pairs = one.times.iter().zip(&other.times).skip(1).step_by(480);
        let mut apart: Vec<f64> = pairs
            .filter_map(|(one, other)| Some((one.as_ref()? - other.as_ref()?).abs() * 1e6))
            .collect();
        apart.sort_by(f64::total_cmp);
        let least = usize::try_from(playing().as_secs()).unwrap() * 90;
        assert!(apart.len() > least, "{} of {least} frames in both", apart.len());
        let at = |share: usize| apart[(apart.len() - 1) * share / 100];
        println!(
            "two players on loopback, us apart: p50 {:.0}, p95 {:.0}, p99 {:.0}, {} x 10 ms",
            at(50),
            at(95),
            at(99),
            apart.len()
        );
        assert!(at(99) < 5_000.0, "{:.0} us", at(99));
    });
}

/// A frame that names itself. Silence is no number.
const fn numbered(number: i32) -> Frame {
    [(number & 0xffff) - 0x8000, (number >> 16) + 1]
}

/// What a player wrote, and when which frame of the content sounds.
pub(crate) struct StampedCapture {
    pub(crate) frames: Vec<Frame>,
    /// When the first of them was written, in seconds.
    pub(crate) clock: f64,
    /// Seconds, by the number of the frame; `None` for one that was not heard or was resampled.
    times: Vec<Option<f64>>,
}

impl StampedCapture {
    /// Reads a FIFO to its end.
    pub(crate) fn read(fifo: &Path, begin: Instant) -> Self {
        let mut file = File::open(fifo).unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), [0; 65_536]);
        let (mut clock, mut block) = (f64::INFINITY, f64::INFINITY);
        loop {
            let length = file.read(&mut buffer).unwrap();
            let now = begin.elapsed().as_secs_f64();
            if length == 0 {
                break;
            }
            // The first piece of a block: its first frame has just been written. The last block is
            // the fade, which does not wait for its time.
            if bytes.len().is_multiple_of(BLOCK) {
                clock = clock.min(block);
                block = now - seconds(bytes.len() / 4);
            }
            bytes.extend(&buffer[..length]);
        }
        let frames = SampleWidth::B16.frames(&bytes);
        let mut times = vec![None; frames.len()];
        for (at, pair) in frames.windows(2).enumerate() {
            let number = (pair[0][1] - 1) * 0x1_0000 + pair[0][0] + 0x8000;
            if pair[0][1] < 1 || pair[1] != numbered(number + 1) {
                continue;
            }
            if let Some(time) =
                usize::try_from(number).ok().and_then(|number| times.get_mut(number))
            {
                *time = Some(clock + seconds(at));
            }
        }
        Self { frames, clock, times }
    }
}

#[expect(clippy::cast_precision_loss, reason = "minutes of frames")]
fn seconds(frames: usize) -> f64 {
    frames as f64 / RATE as f64
}

/// Starts a server whose only station plays a programme, and ends.
pub(crate) fn serve(
    scratch: &ScratchDir,
    codec: &str,
    bits: SampleWidth,
    sound: &[Frame],
) -> AulosServer {
    let silence = |s: u64| vec![[0, 0]; RATE * usize::try_from(s).unwrap()];
    let whole = [&silence(LEAD_S), sound, &silence(TAIL_S)].concat();
    crate::bits::serve(scratch, codec, bits, &whole)
}

pub(crate) fn playing() -> Duration {
    long_or_short(60, 3)
}

pub(crate) fn frames() -> usize {
    RATE * usize::try_from(playing().as_secs()).unwrap()
}

//! PipeWire without a sound card: it plays into a station's FIFO and sends RTP to a station, and it
//! plays a station's RTP that it found by SAP.

use std::net::UdpSocket;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::capture_check::{level_dbfs, tone_share};
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, before_others, find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{RATE, SampleWidth, write_wav};
use serde_json::Value;

use crate::dj::{active, listen, source};
use crate::rpc::Rpc;
use crate::station_rtp::station;
use crate::{quiet_turn, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// RMS of the tone that [`PipeWire`] plays; its peaks are at -12 dBFS.
pub(crate) const TONE_DBFS: f64 = -15.05;

/// A private PipeWire with its session manager.
pub(crate) struct PipeWire {
    folder: PathBuf,
    tone: PathBuf,
    processes: Vec<Process>,
}

impl PipeWire {
    /// Starts it with further modules and objects; `None` without it, which is reported as skipped.
    pub(crate) fn start(scratch: &ScratchDir, modules: &str, objects: &str) -> Option<Self> {
        let (daemon, manager) = (find_or_skip("pipewire")?, find_or_skip("wireplumber")?);
        let folder = scratch.join("pipewire");
        let scripts = folder.join("main.lua.d");
        std::fs::create_dir_all(&scripts).unwrap();
        std::fs::write(scripts.join("10-all.lua"), POLICY).unwrap();
        std::fs::write(folder.join("wireplumber.conf"), MANAGER).unwrap();
        let pulse = format!("unix:{}", text(&folder.join("pulse")));
        let device = format!("pcm.!default {{ type pulse server \"{pulse}\" }}\n");
        std::fs::write(folder.join(".asoundrc"), device).unwrap();
        let config = DAEMON.replace("PULSE", &pulse).replace("MODULES", modules);
        let config = config.replace("OBJECTS", objects);
        std::fs::write(folder.join("pipewire.conf"), config).unwrap();
        let tone = folder.join("tone.wav");
        let frames: Vec<_> = (0..60 * RATE).map(tone_frame).collect();
        write_wav(std::fs::File::create(&tone).unwrap(), &frames, SampleWidth::B16).unwrap();
        let mut this = Self { folder, tone, processes: Vec::new() };
        let mut command = this.sound_command(text(&daemon));
        this.run(command.arg("-c").arg(this.folder.join("pipewire.conf")), "daemon");
        let socket = this.folder.join("pipewire-0");
        wait_for("PipeWire's socket", PATIENCE, || {
            std::fs::metadata(&socket).is_ok_and(|file| file.file_type().is_socket())
        });
        let mut command = this.command(&manager);
        this.run(&mut command, "manager");
        Some(this)
    }

    /// Where its server of PulseAudio's protocol listens.
    pub(crate) fn pulse_server(&self) -> String {
        format!("unix:{}", text(&self.folder.join("pulse")))
    }

    /// A program that uses this PipeWire, also as the default device of ALSA (by its plugin for
    /// PulseAudio, whose protocol PipeWire has).
    pub(crate) fn command(&self, program: &Path) -> Command {
        self.with_environment(Command::new(program))
    }

    /// The same with a higher priority: a sound server that is late on a busy machine says nothing
    /// about the station.
    fn sound_command(&self, program: &str) -> Command {
        self.with_environment(before_others(Path::new(program)))
    }

    fn with_environment(&self, mut command: Command) -> Command {
        for key in [
            "HOME",
            "XDG_RUNTIME_DIR",
            "PIPEWIRE_RUNTIME_DIR",
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "WIREPLUMBER_CONFIG_DIR",
        ] {
            command.env(key, &self.folder);
        }
        command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("PULSE_SERVER");
        command
    }

    /// Runs a line of the shell until the end of the test, in its home.
    pub(crate) fn run_shell(&mut self, line: &str, name: &str) {
        let mut command = self.sound_command("sh");
        command.current_dir(&self.folder).args(["-c", &format!("exec {line}")]);
        self.run(&mut command, name);
    }

    fn run(&mut self, command: &mut Command, name: &str) {
        let [out, err] = ["out", "err"].map(|end| self.folder.join(format!("{name}.{end}")));
        self.processes.push(Process::start(command, &out, &err).unwrap());
    }

    /// Plays a tone of 440 Hz for a minute to a node; `0` for no node.
    pub(crate) fn play(&mut self, target: &str) {
        let mut command = self.sound_command("pw-cat");
        self.run(command.args(["-p", "--target", target]).arg(&self.tone), "play");
    }

    /// Plays the tone as the input of a microphone, the object [`MICROPHONE`].
    pub(crate) fn play_to_microphone(&mut self) {
        self.play("0");
        for channel in ["FL", "FR"] {
            let ends = [format!("pw-cat:output_{channel}"), format!("microphone:input_{channel}")];
            wait_for("the microphone", PATIENCE, || {
                let linked = self.command(Path::new("pw-link")).args(&ends).output().unwrap();
                linked.status.success()
            });
        }
    }

    /// The left channel of what a sink plays for a while: 16 bits, 48 kHz.
    pub(crate) fn record_monitor(&mut self, sink: &str, length: Duration) -> Vec<i16> {
        let file = self.folder.join("monitor.wav");
        let mut command = self.sound_command("pw-cat");
        command.args(["-r", "-P", "{ stream.capture.sink = true }", "--target", sink]);
        command.args(["--rate", "48000", "--channels", "2", "--format", "s16"]).arg(&file);
        self.run(&mut command, "monitor");
        std::thread::sleep(length);
        drop(self.processes.pop());
        let bytes = std::fs::read(&file).unwrap_or_default();
        let frames = bytes.get(44..).unwrap_or_default().as_chunks::<4>().0;
        frames.iter().map(|frame| i16::from_le_bytes([frame[0], frame[1]])).collect()
    }

    /// Records a node into a file without a header: 16 bits, stereo, 48 kHz.
    fn record(&mut self, target: &str) -> PathBuf {
        let file = self.folder.join("recorded.wav");
        let mut command = self.sound_command("pw-cat");
        command.args(["-r", "--target", target, "--rate", "48000", "--channels", "2"]);
        self.run(command.args(["--format", "s16"]).arg(&file), "record");
        file
    }
}

/// A source whose input other programs provide.
pub(crate) const MICROPHONE: &str = "{ factory = adapter args = { factory.name = \
    support.null-audio-sink node.name = microphone media.class = Audio/Source/Virtual \
    audio.position = [ FL FR ] } }";

/// The least that plays: no card, no D-Bus, no real-time scheduling.
const DAEMON: &str = "\
context.properties = { core.daemon = true core.name = pipewire-0 support.dbus = false
  default.clock.rate = 48000 default.clock.quantum = 2048 default.clock.min-quantum = 2048 }
context.spa-libs = { audio.convert.* = audioconvert/libspa-audioconvert
  support.* = support/libspa-support }
context.modules = [
  { name = libpipewire-module-protocol-native }
  { name = libpipewire-module-metadata }
  { name = libpipewire-module-spa-node-factory }
  { name = libpipewire-module-client-node }
  { name = libpipewire-module-access }
  { name = libpipewire-module-adapter }
  { name = libpipewire-module-link-factory }
  { name = libpipewire-module-session-manager }
  { name = libpipewire-module-protocol-pulse args = { server.address = [ \"PULSE\" ] } }
  MODULES
]
context.objects = [
  { factory = spa-node-factory args = { factory.name = support.node.driver
    node.name = clock node.group = pipewire.dummy priority.driver = 20000 } }
  OBJECTS
]
";

const MANAGER: &str = "\
context.properties = { wireplumber.script-engine = lua-scripting support.dbus = false }
context.spa-libs = { audio.convert.* = audioconvert/libspa-audioconvert
  support.* = support/libspa-support }
context.modules = [
  { name = libpipewire-module-protocol-native }
  { name = libpipewire-module-client-node }
  { name = libpipewire-module-client-device }
  { name = libpipewire-module-adapter }
  { name = libpipewire-module-metadata }
  { name = libpipewire-module-session-manager }
]
wireplumber.components = [
  { name = libwireplumber-module-lua-scripting, type = module }
  { name = main.lua, type = config/lua }
]
";

/// Links streams to their targets; neither devices nor stored state.
const POLICY: &str = r#"
components = {}
for _, name in ipairs { "metadata", "default-nodes", "si-node", "si-audio-adapter",
    "si-standard-link", "si-audio-endpoint", "default-nodes-api", "mixer-api" } do
  components[name] = { "libwireplumber-module-" .. name, type = "module" }
end
for _, name in ipairs { "create-item.lua", "policy-node.lua" } do
  components[name] = { name, type = "script/lua", args = { move = true, follow = true } }
end
"#;

/// 440 Hz at -12 dBFS.
pub(crate) fn tone_frame(index: usize) -> [i32; 2] {
    let phase = index as f64 * 440.0 / RATE as f64 * std::f64::consts::TAU;
    #[allow(clippy::cast_possible_truncation, reason = "16 bits")]
    let sample = (8_192.0 * phase.sin()).round() as i32;
    [sample; 2]
}

/// What is wrong with the last second and a half of sound, mono at 48 kHz, if it is not the tone at
/// this RMS level.
///
/// Each tenth of a second is judged alone: a station follows the clock of a live source, which
/// moves the phase slowly, and a gap or a jump spoils one of them.
pub(crate) fn judge_tone(what: &str, samples: &[i16], dbfs: f64) -> Result<(), String> {
    let from = samples.len().checked_sub(72_000).ok_or_else(|| format!("{what}: too short"))?;
    let frames: Vec<_> = samples[from..].iter().map(|sample| [i32::from(*sample); 2]).collect();
    let shares = frames.chunks_exact(RATE / 10).map(|piece| tone_share(piece, 440.0, RATE as f64));
    let (share, level) = (shares.fold(1.0, f64::min), level_dbfs(&frames, 32_767));
    let found = format!("{what}: {share:.5} or more of it is the tone, at {level:.2} dBFS");
    println!("{found}");
    let is_right = share > 0.98 && (level - dbfs).abs() < 0.5;
    if is_right { Ok(()) } else { Err(format!("{found}; expected at {dbfs:.2} dBFS")) }
}

/// Judges a station's output, again where a program on a busy machine was late.
pub(crate) fn assert_station_plays_tone(what: &str, server: &AulosServer, dbfs: f64) {
    let ffmpeg = find_or_skip("ffmpeg").expect("checked by the caller");
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let (report, samples) = listen(&ffmpeg, server.http, "default");
        match judge_tone(what, &samples, dbfs) {
            Ok(()) => return,
            Err(wrong) if samples.is_empty() => found.push(wrong + &report),
            Err(wrong) => found.push(wrong),
        }
    }
    panic!("{found:#?}");
}

const ATTEMPTS: usize = 4;

/// A recording of a node that does not exist yet stays empty.
const RECORD_AGAIN_AFTER: Duration = Duration::from_secs(8);

/// Waits until a source of a station is on air, without the crossfade.
pub(crate) fn wait_for_source(rpc: &mut Rpc, name: &str) {
    wait_for(name, PATIENCE, || active(rpc) == name);
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn pipewire_plays_into_a_fifo() {
    if find_or_skip("ffmpeg").is_none() {
        return;
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("pipewire-fifo").unwrap();
    let fifo = scratch.join("fifo");
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"pipe://{}\", \
         \"tone://?hz=3000\"]\n",
        text(&fifo)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("the FIFO", PATIENCE, || fifo.exists());
    let tunnel = format!(
        "{{ name = libpipewire-module-pipe-tunnel args = {{ tunnel.mode = sink pipe.filename = \
         \"{}\" audio.format = S16LE audio.rate = 48000 audio.channels = 2 audio.position = \
         [ FL FR ] stream.props = {{ node.name = station }} }} }}",
        text(&fifo)
    );
    let Some(mut pipewire) = PipeWire::start(&scratch, &tunnel, "") else { return };
    pipewire.play("station");
    wait_for_source(&mut rpc, "pipe");
    assert_station_plays_tone("the FIFO of PipeWire", &server, TONE_DBFS);
    server.stop().unwrap();
}

/// The station reads the description that PipeWire announces.
#[test]
fn a_station_plays_the_rtp_that_pipewire_announces() {
    if find_or_skip("ffmpeg").is_none() {
        return;
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("pipewire-rtp-sink").unwrap();
    let announced = UdpSocket::bind("127.0.0.1:0").unwrap();
    announced.set_read_timeout(Some(PATIENCE)).unwrap();
    let (port, sap) = (free_port().unwrap(), announced.local_addr().unwrap().port());
    let sink = format!(
        "{{ name = libpipewire-module-rtp-sink args = {{ source.ip = \"127.0.0.1\" \
         destination.ip = \"127.0.0.1\" destination.port = {port} sap.ip = \"127.0.0.1\" \
         sap.port = {sap} audio.format = S16BE audio.rate = 48000 audio.channels = 2 \
         audio.position = [ FL FR ] sess.name = House stream.props = {{ node.name = station \
         media.class = Audio/Sink }} }} }}"
    );
    let Some(mut pipewire) = PipeWire::start(&scratch, &sink, "") else { return };
    pipewire.play("station");
    let mut datagram = [0; 2_048];
    let length = announced.recv(&mut datagram).expect("an announcement");
    let at = datagram.windows(4).position(|four| four == b"v=0\n" || four == b"v=0\r").unwrap();
    let sdp = scratch.join("announced.sdp");
    std::fs::write(&sdp, &datagram[at..length]).unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"sdp://{}\", \
         \"tone://?hz=3000\"]\n",
        text(&sdp)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let said = String::from_utf8_lossy(&datagram[at..length]).into_owned();
    wait_for_source(&mut rpc, "sdp");
    assert_station_plays_tone(&said, &server, TONE_DBFS);
    let rtp = source(&mut rpc)["rtp"].clone();
    assert!(rtp["received"].as_u64().unwrap() > 500, "{rtp}");
    for what in ["lost", "late", "undecodable", "refused", "other_types", "other_senders"] {
        assert_eq!(rtp[what], 0, "{what}: {rtp}");
    }
    server.stop().unwrap();
}

/// Multicast from one machine to another, each in its own namespace.
#[test]
fn pipewire_plays_the_rtp_that_a_station_announces() {
    let _turn = quiet_turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    for payload in ["l16", "l24"] {
        let scratch = ScratchDir::new(&format!("pipewire-rtp-{payload}")).unwrap();
        let source = "{ name = libpipewire-module-rtp-source args = { sap.ip = \
            \"239.255.255.255\" local.ifname = card sess.latency.msec = 100 stream.props = { \
            node.name = received media.class = Audio/Source } } }";
        let Some(mut pipewire) = net.run_inside(1, || PipeWire::start(&scratch, source, "")) else {
            return;
        };
        let config = format!(
            "[[station]]\nname = \"Hall\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
             rtp = [{{ dest = \"rtp://239.69.0.1\", payload = \"{payload}\", interface = \
             \"10.77.0.1\", sap = true }}]\n"
        );
        let server = net.run_inside(0, || AulosServer::start(&scratch, &config).unwrap());
        // The stream exists from the announcement on, the second of which comes after half a
        // minute.
        let (mut recorded, mut since) = (pipewire.record("received"), Instant::now());
        let mut samples = Vec::new();
        wait_for("three seconds of it", 3 * PATIENCE, || {
            if samples.is_empty() && since.elapsed() > RECORD_AGAIN_AFTER {
                drop(pipewire.processes.pop());
                (recorded, since) = (pipewire.record("received"), Instant::now());
            }
            let bytes = std::fs::read(&recorded).unwrap_or_default();
            let frames = bytes.get(44..).unwrap_or_default().as_chunks::<4>().0;
            samples = frames.iter().map(|frame| i16::from_le_bytes([frame[0], frame[1]])).collect();
            samples.len() > 3 * RATE
        });
        judge_tone(&format!("a station's {payload} in PipeWire"), &samples, TONE_DBFS).unwrap();
        let rpc = || station(&mut Rpc::connect(server.control))["rtp"][0].clone();
        let output = net.run_inside(0, rpc);
        assert_eq!((&output["state"], &output["unsent"]), (&"sending".into(), &Value::from(0)));
        server.stop().unwrap();
    }
}

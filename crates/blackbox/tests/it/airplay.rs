//! The real shairport-sync as a source, with PipeWire as the AirPlay client.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;

use crate::dj::source;
use crate::pipewire::{PipeWire, TONE_DBFS, assert_station_plays_tone, wait_for_source};
use crate::rpc::Rpc;
use crate::{shared_turn, text, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

const STATION: &str = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\
    \"airplay:///shairport-sync?devicename=Living Room&params=--configfile=CONFIG\", \
    \"tone://?hz=3000\"]\n";

/// A configuration file of shairport-sync: the volume of a player would change the level.
fn station(scratch: &ScratchDir) -> String {
    let file = scratch.join("shairport.conf");
    std::fs::write(&file, "general = { ignore_volume_control = \"yes\"; };\n").unwrap();
    STATION.replace("CONFIG", text(&file))
}

/// Avahi on a bus of its own, which shairport-sync needs; its folder in `/run` is private too.
fn avahi(scratch: &ScratchDir, bus: &str) -> Option<[Process; 2]> {
    let daemon = find_or_skip("dbus-daemon")?;
    // Not every user has this folder in `PATH`.
    let installed = Some(PathBuf::from("/usr/sbin/avahi-daemon")).filter(|path| path.is_file());
    let avahi = installed.or_else(|| find_or_skip("avahi-daemon"))?;
    let start = |command: &mut Command, name: &str| {
        let [out, err] = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
        Process::start(command, &out, &err).unwrap()
    };
    let mut command = Command::new(daemon);
    command.args(["--session", "--nofork", "--nopidfile"]).arg(format!("--address={bus}"));
    let bus_daemon = start(&mut command, "bus");
    let socket = scratch.join("bus");
    wait_for("the bus", PATIENCE, || socket.exists());
    let config = scratch.join("avahi.conf");
    let text = "[server]\nallow-interfaces=card\n[publish]\npublish-workstation=no\n[rlimits]\n";
    std::fs::write(&config, text).unwrap();
    let script = "mount -t tmpfs none /run && mkdir /run/avahi-daemon && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(avahi).arg("-f").arg(&config);
    command.args(["--no-drop-root", "--no-chroot", "--no-rlimits"]);
    let avahi = start(command.env("DBUS_SYSTEM_BUS_ADDRESS", bus), "avahi");
    let log = scratch.join("avahi.err");
    wait_for("Avahi", PATIENCE, || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("startup complete"))
    });
    Some([avahi, bus_daemon])
}

#[test]
fn pipewire_plays_to_shairport_sync_and_the_station_plays_it() {
    if find_or_skip("shairport-sync").is_none() {
        return;
    }
    if find_or_skip("ffmpeg").is_none() {
        return;
    }
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    let scratch = ScratchDir::new("airplay").unwrap();
    let bus = format!("unix:path={}", text(&scratch.join("bus")));
    net.run_inside(0, || play(&scratch, &bus));
}

fn play(scratch: &ScratchDir, bus: &str) {
    let Some(_avahi) = avahi(scratch, bus) else { return };
    let file = scratch.join("aulos.toml");
    std::fs::write(&file, station(scratch)).unwrap();
    let server = AulosServer::start_with(scratch, |command| {
        command.arg("--config").arg(&file).env("DBUS_SYSTEM_BUS_ADDRESS", bus);
    })
    .unwrap();
    let mut rpc = Rpc::connect(server.control);
    // The port of the source's arguments.
    wait_for("shairport-sync", PATIENCE, || {
        let connected = std::net::TcpStream::connect("127.0.0.1:5000");
        assert!(connected.is_ok() || source(&mut rpc)["state"] != "failed", "{}", source(&mut rpc));
        connected.is_ok()
    });
    let client = "{ name = libpipewire-module-raop-sink args = { raop.hostname = \"127.0.0.1\" \
        raop.ip = \"127.0.0.1\" raop.port = 5000 raop.transport = udp raop.encryption.type = none \
        raop.audio.codec = PCM stream.props = { node.name = speaker media.class = Audio/Sink } } }";
    let Some(mut pipewire) = PipeWire::start(scratch, client, "") else { return };
    pipewire.play("speaker");
    wait_for_source(&mut rpc, "airplay");
    assert_station_plays_tone("AirPlay", &server, TONE_DBFS);
    // From its metadata pipe.
    wait_for("its state of play", PATIENCE, || {
        rpc.status()["streams"][0]["properties"]["playbackStatus"] == "playing"
    });
    server.stop().unwrap();
}

/// Without Avahi it ends at once: the status and the log have the last line of its standard error.
#[test]
fn the_last_line_of_shairport_sync_is_the_reason_of_the_source() {
    if find_or_skip("shairport-sync").is_none() {
        return;
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("airplay-ends").unwrap();
    let file = scratch.join("aulos.toml");
    std::fs::write(&file, station(&scratch)).unwrap();
    let nowhere = format!("unix:path={}", text(&scratch.join("no-bus")));
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&file).env("DBUS_SYSTEM_BUS_ADDRESS", &nowhere);
    })
    .unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("the reason", PATIENCE, || {
        let state = source(&mut rpc);
        state["reason"].as_str().is_some_and(|reason| reason.contains("mDNS advertisement"))
    });
    wait_for("the log", PATIENCE, || server.printed().unwrap().contains("mDNS advertisement"));
    server.stop().unwrap();
}

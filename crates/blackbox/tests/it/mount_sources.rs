//! Sources of mounts that fail in every way but a clean end, and listeners that hear nothing of it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::icecast;
use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::mounts::{
    MountListener, check_frames, complaints, on_air, send, tone_file, two_sources,
};
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends what ffmpeg makes of these arguments to a mount.
fn encode(ffmpeg: &Path, arguments: &str, to: &str, scratch: &ScratchDir, name: &str) -> Process {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-loglevel", "error", "-re", "-f", "lavfi", "-i"]);
    command.args(arguments.split_whitespace()).arg(to);
    let [out, err] = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
    Process::start(&mut command, &out, &err).unwrap()
}

fn signal(process: &Process, signal: Signal) {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, signal).unwrap();
}

fn passed(source: &str) -> (String, bool) {
    (source.to_owned(), true)
}

#[test]
fn silence_and_a_stall_are_followed_by_the_next_source() {
    let name = "mount_sources::silence_and_a_stall_are_followed_by_the_next_source";
    retry_after_stall(name, || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mount-silence").unwrap();
        let port = free_port().unwrap();
        let config = two_sources(port) + "silence = { below_dbfs = -50, for_s = 1 }\n";
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let to = |mount: &str| format!("icecast://source:any@127.0.0.1:{port}/{mount}");
        // Sound for two seconds of every five.
        let sound = "aevalsrc='0.4*sin(2*PI*440*t)*lt(mod(t,5),2)':s=44100,\
                     aformat=channel_layouts=stereo -c:a libmp3lame -b:a 128k -write_xing 0 \
                     -id3v2_version 0 -content_type audio/mpeg -f mp3";
        let reserve = tone_file(&ffmpeg, &scratch, 660, "-c:a libmp3lame -q:a 3");
        let _second = send(&ffmpeg, &reserve, &to("second"), &scratch, "second");
        wait_for("the second source", PATIENCE, || on_air(&mut rpc) == passed("second"));
        let first = encode(&ffmpeg, sound, &to("first"), &scratch, "first");
        let (mut listener, _) = MountListener::connect(server.http, "/live.mp3", "");
        listener.read_until("the first source", || on_air(&mut rpc) == passed("first"));
        listener.read_until("its silence", || on_air(&mut rpc) == passed("second"));
        listener.read_until("its sound", || on_air(&mut rpc) == passed("first"));
        signal(&first, Signal::STOP);
        listener.read_until("its stall", || on_air(&mut rpc) == passed("second"));
        // What it catches up with may be silent again a second later, so its return is counted.
        let before = returns(&mut rpc);
        signal(&first, Signal::CONT);
        listener.read_until("its return", || returns(&mut rpc) > before);
        listener.read_for(Duration::from_secs(1));
        assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
        server.stop().unwrap();
    });
}

/// How often the mount has returned to a better source.
fn returns(rpc: &mut Rpc) -> u64 {
    mount(rpc)["switch"]["switches"]["better"].as_u64().unwrap_or(0)
}

fn mount(rpc: &mut Rpc) -> Value {
    let status = rpc.call("Aulos.GetStatus", &Value::Null);
    let stations = status["stations"].as_array().unwrap();
    stations.iter().find(|one| one["name"] == "live.mp3").unwrap().clone()
}

/// What keeps the first source from being passed; empty if nothing does.
fn obstacle(rpc: &mut Rpc) -> String {
    let mount = mount(rpc);
    let is_active = mount["active"] == "first";
    let pass = &mount["sources"][0]["pass"]["reason"];
    pass.as_str().filter(|_| is_active).unwrap_or_default().to_owned()
}

#[test]
fn a_source_that_comes_back_in_another_format_is_encoded() {
    let name = "mount_sources::a_source_that_comes_back_in_another_format_is_encoded";
    retry_after_stall(name, || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mount-format").unwrap();
        let port = free_port().unwrap();
        let server = AulosServer::start(&scratch, &two_sources(port)).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let to = format!("icecast://source:any@127.0.0.1:{port}/first");
        let mp3 = "-c:a libmp3lame -b:a 128k -content_type audio/mpeg -f mp3";
        let formats = [
            ("44100", "stereo", mp3, ""),
            ("48000", "stereo", mp3, "it sends 48000 Hz, the mount 44100 Hz"),
            ("44100", "mono", mp3, "it sends 1 channel(s), the mount 2"),
            (
                "44100",
                "stereo",
                "-c:a aac -content_type audio/aac -f adts",
                "it sends aac, the mount mp3",
            ),
            ("44100", "stereo", mp3, ""),
        ];
        wait_for("the station", PATIENCE, || on_air(&mut rpc).0 == "default");
        let (mut listener, _) = MountListener::connect(server.http, "/live.mp3", "");
        for (rate, layout, encoder, reason) in formats {
            let sound = format!(
                "aevalsrc='0.4*sin(2*PI*440*t)':s={rate},aformat=channel_layouts={layout} {encoder}"
            );
            let mut source = encode(&ffmpeg, &sound, &to, &scratch, "first");
            listener.read_until("the source", || match reason {
                "" => on_air(&mut rpc) == passed("first"),
                _ => obstacle(&mut rpc) == reason,
            });
            listener.read_for(Duration::from_secs(1));
            source.terminate(PATIENCE).unwrap();
            listener.read_until("its end", || on_air(&mut rpc).0 == "default");
        }
        assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
        server.stop().unwrap();
    });
}

/// Receives a mount over TLS for some seconds.
fn receive_by_tls(http: SocketAddr, seconds: u32, scratch: &ScratchDir) -> Option<Vec<u8>> {
    let curl = find_or_skip("curl")?;
    let file = scratch.join("by-tls.mp3");
    let url = format!("https://{http}/live.mp3");
    // It ends with the time-out, which is an error of its own.
    Command::new(curl)
        .args(["-s", "-k", "--max-time", &seconds.to_string(), "-o", text(&file), &url])
        .status()
        .unwrap();
    Some(std::fs::read(file).unwrap())
}

#[test]
fn a_real_icecast_is_a_source_and_listeners_may_use_tls() {
    let name = "mount_sources::a_real_icecast_is_a_source_and_listeners_may_use_tls";
    retry_after_stall(name, || {
        let Some(icecast_program) = find_or_skip("icecast2") else { return };
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mount-icecast").unwrap();
        let port = free_port().unwrap();
        let mut peer = icecast::start(&icecast_program, port, 100, &scratch).unwrap();
        let files = [
            tone_file(&ffmpeg, &scratch, 440, "-c:a libmp3lame -b:a 128k"),
            tone_file(&ffmpeg, &scratch, 660, "-t 3 -c:a libmp3lame -q:a 3"),
        ];
        let to = format!("icecast://source:secret@127.0.0.1:{port}/live");
        let _source = send(&ffmpeg, &files[0], &to, &scratch, "source");
        let config = format!(
            "[[station]]\nname = \"default\"\nspec = \"44100:16:2\"\nsources = [\"tone://\"]\n\
             [[mount]]\nname = \"live.mp3\"\nstation = \"default\"\nsources = [\n\
             {{ name = \"icecast\", uri = \"http://127.0.0.1:{port}/live\" }},\n\
             {{ name = \"file\", uri = \"file://{}?loop=true\" }}]\n",
            text(&files[1])
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        wait_for("icecast", PATIENCE, || on_air(&mut rpc) == passed("icecast"));
        let (mut listener, _) = MountListener::connect(server.http, "/live.mp3", "");
        listener.read_for(Duration::from_secs(3));
        let received = receive_by_tls(server.http, 3, &scratch);
        peer.terminate(PATIENCE).unwrap();
        // The file is three seconds long, so it comes more than once.
        listener.read_until("the file", || on_air(&mut rpc) == passed("file"));
        listener.read_for(Duration::from_secs(5));
        check_frames(&listener.bytes, &files, [150, 150, 0]);
        assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
        if let Some(received) = received {
            // The burst, and a piece.
            assert!(received.len() > 65_000, "{}", received.len());
            assert_eq!(complaints(&ffmpeg, &mpg123, &received, &scratch), "");
        }
        server.stop().unwrap();
    });
}

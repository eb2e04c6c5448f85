//! A log that nobody reads any more, that stands still, or that lies on a full disk costs lines,
//! and nothing else.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::http::get;
use aulos_blackbox::peer::Process;
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose output goes to any file, so that its addresses are not taken from there.
struct LoggingServer {
    process: Process,
    control: SocketAddr,
    http: SocketAddr,
}

impl LoggingServer {
    fn start(scratch: &ScratchDir, stdout: &Path, stderr: &Path, more: &[&str]) -> Self {
        let config = scratch.join("aulos.toml");
        std::fs::write(&config, "[[station]]\nname = \"a\"\nsources = [\"tone://\"]\n").unwrap();
        let [stream, control, http] =
            [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port().unwrap())));
        let mut command = Command::new(binary());
        command.arg("serve").arg("--config").arg(&config).args(more);
        command.arg("--state-dir").arg(scratch.join("state"));
        for (key, address) in [("stream", stream), ("control", control), ("http", http)] {
            command.args(["--set", &format!("listen.{key}={address}")]);
        }
        let process = Process::start(&mut command, stdout, stderr).unwrap();
        Self { process, control, http }
    }

    fn wait_until_ready(&mut self) {
        wait_for("the start", PATIENCE, || {
            let ended = self.process.ended().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}");
            get(self.http, "/healthz").is_ok_and(|(status, _)| status == 200)
        });
    }

    /// Causes lines of the log, and checks that calls are answered meanwhile and afterwards.
    fn check_answers(&mut self) {
        let mut rpc = Rpc::connect(self.control);
        for number in 0..20 {
            let uri = format!("tcp://127.0.0.1:0?name=s{number}&sampleformat=48000:16:2");
            rpc.call("Stream.AddStream", &json!({ "streamUri": uri }));
            rpc.call("Aulos.Reload", &json!({}));
        }
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        rpc.status();
        assert_eq!(get(self.http, "/healthz").unwrap().0, 200);
        assert_eq!(self.process.ended().unwrap(), None);
    }

    fn stop(mut self) {
        // In less than the second that a server is given, of a debug build on a loaded machine.
        let status = self.process.terminate(Duration::from_secs(5)).unwrap();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn a_server_starts_plays_and_ends_with_its_log_on_a_full_disk() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("log-full").unwrap();
    let full = Path::new("/dev/full");
    let mut server = LoggingServer::start(&scratch, full, full, &[]);
    server.wait_until_ready();
    server.check_answers();
    server.stop();
}

#[test]
fn a_server_plays_on_when_the_reader_of_its_log_is_gone() {
    let _turn = shared_turn();
    for format in ["text", "json"] {
        let scratch = ScratchDir::new("log-gone").unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let pipe = Path::new(&path);
        let mut server = LoggingServer::start(&scratch, pipe, pipe, &["--log", format]);
        drop(writer);
        server.wait_until_ready();
        drop(reader);
        server.check_answers();
        server.stop();
    }
}

#[test]
fn a_server_answers_and_ends_while_nobody_reads_its_log_which_goes_on_afterwards() {
    let _turn = shared_turn();
    for is_read_at_last in [true, false] {
        let scratch = ScratchDir::new("log-stuck").unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // A pipe has room for this (pipe(7)), and then for nothing.
        writer.write_all(&[b'x'; 65_536]).unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let pipe = Path::new(&path);
        let mut server = LoggingServer::start(&scratch, pipe, pipe, &[]);
        drop(writer);
        server.wait_until_ready();
        server.check_answers();
        if is_read_at_last {
            let rest = std::thread::spawn(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).map(|_| text)
            });
            Rpc::connect(server.control).call("Aulos.Reload", &json!({}));
            server.stop();
            let text = rest.join().unwrap().unwrap();
            assert!(text.trim_start_matches('x').contains("\n  control "), "{text}");
            assert!(text.contains("INFO"), "{text}");
        } else {
            server.stop();
        }
    }
}

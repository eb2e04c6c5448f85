//! Web radio: a real icecast2 with ffmpeg as its source, and a server that disconnects.

use std::io::{Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// The `radio` object of the first source of the first station.
fn radio(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["sources"][0]["radio"].clone()
}

/// `seconds` seconds of the station as a browser gets it: mono of 16 bits at 48 kHz.
pub(crate) fn listen(http: SocketAddr, seconds: usize) -> Vec<i16> {
    let mut socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(socket, "GET /listen/default HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut bytes = vec![0; 1_000 + seconds * 96_000];
    socket.read_exact(&mut bytes).unwrap();
    let data = bytes.windows(4).position(|four| four == b"data").unwrap() + 8;
    bytes[data..].as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
}

/// The peak of each 5 ms.
fn peaks(sound: &[i16]) -> Vec<u16> {
    let peak = |piece: &[i16]| piece.iter().map(|s| s.unsigned_abs()).max().unwrap_or(0);
    sound.chunks(240).map(peak).collect()
}

fn station(url: &str) -> String {
    format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:16:1\"\n\
         sources = [\"{url}\"]\n"
    )
}

pub(crate) fn icecast(program: &Path, port: u16, scratch: &ScratchDir) -> Process {
    aulos_blackbox::icecast::start(program, port, 100, scratch).unwrap()
}

fn push(ffmpeg: &Path, port: u16, codec: &str, scratch: &ScratchDir) -> Process {
    let arguments = format!(
        "-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000 -ac 1 {codec} \
         -metadata title=Penguin -metadata artist=Frozen -ice_name House \
         icecast://source:secret@127.0.0.1:{port}/live"
    );
    let mut command = Command::new(ffmpeg);
    command.args(arguments.split_whitespace());
    Process::start(&mut command, &scratch.join("push.out"), &scratch.join("push.err")).unwrap()
}

/// Sets the title in icecast, as butt does; returns the response.
fn update_title(port: u16) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // printf 'source:secret' | base64
    write!(
        socket,
        "GET /admin/metadata?mount=/live&mode=updinfo&song=Frozen+-+Penguin HTTP/1.0\r\n\
         Authorization: Basic c291cmNlOnNlY3JldA==\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_real_icecast_plays_with_titles_and_its_end_is_reported() {
    retry_after_stall("radio::a_real_icecast_plays_with_titles_and_its_end_is_reported", || {
        let Some(icecast_program) = find_or_skip("icecast2") else { return };
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = long_shared_turn();
        let formats = [
            ("mp3", "-c:a libmp3lame -b:a 128k -content_type audio/mpeg -f mp3"),
            ("opus", "-c:a libopus -b:a 96k -content_type application/ogg -f ogg"),
        ];
        for (codec, arguments) in formats {
            let scratch = ScratchDir::new(&format!("radio-{codec}")).unwrap();
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut ice = icecast(&icecast_program, port, &scratch);
            let mut source = push(&ffmpeg, port, arguments, &scratch);
            if codec == "mp3" {
                wait_for("the mount", PATIENCE, || update_title(port).contains("200 OK"));
            }
            let server =
                AulosServer::start(&scratch, &station(&format!("http://127.0.0.1:{port}/live")))
                    .unwrap();
            let mut rpc = Rpc::connect(server.control);
            wait_for("the radio", PATIENCE * 2, || {
                let seen = radio(&mut rpc);
                seen["phase"] == "playing" && seen["codec"] == codec
            });
            wait_for("its title", PATIENCE, || radio(&mut rpc)["title"]["title"] == "Penguin");
            wait_for("its title for controllers", PATIENCE, || {
                let streams = rpc.status()["streams"].clone();
                streams[0]["properties"]["metadata"]["title"] == "Penguin"
            });
            assert_eq!(radio(&mut rpc)["name"], "House");
            let sound = listen(server.http, 3);
            let loud = peaks(&sound).iter().filter(|peak| **peak > 1_000).count();
            assert!(loud > 400, "{codec}: {loud} of 600 pieces have the tone");
            source.terminate(PATIENCE).unwrap();
            // The mount disappears with its source.
            wait_for("a 404", PATIENCE, || {
                let status = rpc.call("Aulos.GetStatus", &Value::Null);
                let source = &status["stations"][0]["sources"][0];
                source["reason"].as_str().is_some_and(|reason| reason.contains("404"))
            });
            ice.terminate(PATIENCE).unwrap();
            server.stop().unwrap();
        }
    });
}

#[test]
fn a_server_that_hangs_up_leaves_no_hole_while_the_buffer_lasts() {
    retry_after_stall(
        "radio::a_server_that_hangs_up_leaves_no_hole_while_the_buffer_lasts",
        || {
            let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
            let _turn = shared_turn();
            let scratch = ScratchDir::new("radio-hole").unwrap();
            let tone = "-nostdin -loglevel error -f lavfi -i sine=440:r=48000:d=20 -ac 1 -c:a libmp3lame -b:a \
                128k -write_xing 0 -f mp3 pipe:1";
            let tone = Command::new(ffmpeg).args(tone.split_whitespace()).output().unwrap().stdout;
            assert!(tone.len() > 300_000);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            std::thread::spawn(move || {
                // Each listener gets a burst of four seconds, then audio in real time, and is
                // disconnected three seconds later.
                for mut stream in listener.incoming().take(16).flatten() {
                    let tone = tone.clone();
                    std::thread::spawn(move || {
                        let mut head = [0; 64];
                        stream.read_exact(&mut head).ok();
                        stream
                            .write_all(b"HTTP/1.0 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n")
                            .ok();
                        let (burst, rest) = tone.split_at(64_000);
                        stream.write_all(burst).ok();
                        let start = Instant::now();
                        for (turn, piece) in (1..).zip(rest.chunks(1_600)).take(30) {
                            let due = Duration::from_millis(100) * turn;
                            std::thread::sleep(due.saturating_sub(start.elapsed()));
                            stream.write_all(piece).ok();
                        }
                    });
                }
            });
            let server =
                AulosServer::start(&scratch, &station(&format!("http://127.0.0.1:{port}/live")))
                    .unwrap();
            let mut rpc = Rpc::connect(server.control);
            wait_for("the radio", PATIENCE, || radio(&mut rpc)["phase"] == "playing");
            let sound = listen(server.http, 15);
            let connects = radio(&mut rpc)["connects"].as_u64().unwrap();
            assert!(connects >= 3, "it hung up {connects} times");
            let peaks = peaks(&sound);
            let first = peaks.iter().position(|peak| *peak > 1_000).unwrap();
            let quiet: Vec<_> = (first..peaks.len()).filter(|at| peaks[*at] < 1_000).collect();
            // At a joint the tone fades and comes back within a few milliseconds.
            assert!(
                quiet.len() <= 2 * usize::try_from(connects).unwrap(),
                "quiet at {quiet:?} of 5 ms each"
            );
            server.stop().unwrap();
        },
    );
}

//! What plays nothing: sources that send silence, and players that have paused.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    ANY_PORTS, Heard, Playing, Room, eventually, player, resolve, scratch, script, wave,
};
use serde_json::json;

#[test]
fn whatever_its_source_a_station_that_plays_silence_is_idle() {
    let dir = scratch();
    let file = dir.join("silence.wav");
    std::fs::write(&file, wave(&[0; 48_000])).unwrap();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let fifo = dir.join("x.fifo");
    let sources = [
        ("file", format!("file://{}?loop=true", file.display())),
        ("tone", "tone://?dbfs=-100".to_owned()),
        ("process", "process:///bin/cat?params=/dev/zero".to_owned()),
        ("pipe", format!("pipe://{}", fifo.display())),
        ("tcp", format!("tcp://127.0.0.1:{port}")),
        ("meta", "meta:///pipe".to_owned()),
        ("loud", "tone://?dbfs=-40".to_owned()),
    ];
    let stations = sources.iter().map(|(name, source)| {
        format!(
            "[[station]]\nname = \"{name}\"\ncodec = \"pcm\"\nsources = [\"{source}\"]\n\
             silence = {{ below_dbfs = -60.0, for_s = 0.5 }}\n"
        )
    });
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + &stations.collect::<String>())));
    let over = Arc::new(AtomicBool::new(false));
    // Silence comes in all the time, as from a player that has paused.
    let ending = Arc::clone(&over);
    let sender = std::thread::spawn(move || {
        let mut fifo = std::fs::OpenOptions::new().read(true).write(true).open(&fifo);
        let mut socket = TcpStream::connect(("127.0.0.1", port));
        while !ending.load(Ordering::Relaxed) {
            if let (Ok(fifo), Ok(socket)) = (&mut fifo, &mut socket) {
                fifo.write_all(&[0; 3_840]).unwrap();
                socket.write_all(&[0; 3_840]).unwrap();
            } else {
                fifo = std::fs::OpenOptions::new().read(true).write(true).open(dir.join("x.fifo"));
                socket = TcpStream::connect(("127.0.0.1", port));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut caller = server.controller();
    for (name, _) in sources {
        let wanted = if name == "loud" { ("playing", "ready") } else { ("silent", "silent") };
        eventually(|| {
            let status = caller.call("Aulos.GetStatus", json!({}));
            let stations = status["result"]["stations"].as_array().unwrap();
            let shown = stations.iter().find(|station| station["name"] == name).unwrap();
            let source = &shown["sources"][0]["state"];
            (shown["state"].as_str(), source.as_str()) == (Some(wanted.0), Some(wanted.1))
        });
    }
    let status = caller.call("Server.GetStatus", json!({}));
    let streams = status["result"]["server"]["streams"].as_array().unwrap();
    let playing = streams.iter().filter(|stream| stream["status"] == "playing").count();
    assert_eq!(playing, 1, "{streams:?}");
    over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
}

/// Plays until it is told to pause.
const PLAYER: &str = "*GetProperties*) tell playing ;;
    *pause*) tell paused ;;
    *) tell playing ;;";

#[test]
fn a_pause_takes_effect_at_once_and_not_after_the_buffer() {
    let dir = scratch();
    let path = dir.join("player.sh");
    script(&path, &player(PLAYER));
    let text = format!(
        "{ANY_PORTS}[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://\"]\n\
         plugin = {{ script = \"{}\" }}\n[[station]]\nname = \"also\"\nsources = [\"meta:///hall\"]\n",
        path.display()
    );
    let server = Playing::start(resolve(&text));
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "shelf");
    let mut control = |command: &str| {
        eventually(|| {
            let params = json!({ "id": "hall", "command": command });
            caller.call("Stream.Control", params)["result"] == "ok"
        });
    };
    while !matches!(room.hear(), Heard::Chunk(..)) {}
    for _ in 0..3 {
        control("pause");
        // A codec header in the middle: who gets it throws away what it has.
        let (mut last, mut heard) = (0, 0);
        loop {
            match room.hear() {
                Heard::Chunk(time, _) => (last, heard) = (time, heard + 1),
                Heard::Codec(_) => break,
                Heard::Other(_) => {}
            }
            assert!(heard < 1_000, "twenty seconds without a header");
        }
        let Heard::Chunk(time, _) = room.hear() else { panic!("a chunk follows") };
        assert!(time > last, "nothing of the past comes again");
        assert_eq!((time - last) % 20_000, 0, "the time line goes on");
        // It goes on without another header.
        control("play");
        for _ in 0..20 {
            let Heard::Chunk(next, _) = room.hear() else { continue };
            assert!(next > last);
            last = next;
        }
    }
}

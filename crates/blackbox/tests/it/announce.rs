//! Announcements from input to output: espeak-ng speaks and a real snapclient plays; and frame by
//! frame, what each client of a station gets.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_blackbox::capture_check::peaks_of_10_ms;
use aulos_blackbox::client::clock_us;
use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{SampleWidth, write_wav};
use aulos_blackbox::wire::{self, HEADER, MessageHeader, kind};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{quiet_turn, shared_turn, text, wait_for};

#[test]
fn speech_ducks_the_programme_and_restores_it() {
    speak_to("station", "default");
}

/// The client changes to another FLAC stream and back.
#[test]
fn speech_to_one_client_ducks_the_programme_and_restores_it() {
    speak_to("client", "room");
}

fn speak_to(target: &str, name: &str) {
    let Some(client) = find_or_skip("snapclient") else { return };
    let Some(speaker) = find_or_skip("espeak-ng") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("announce").unwrap();
    let speech = scratch.join("dinner.wav");
    let mut speak = Command::new(speaker);
    assert!(speak.arg("-w").arg(&speech).arg("Dinner is ready").status().unwrap().success());
    let config = format!(
        "[streams]\nroots = [\"{}\"]\n[[station]]\nname = \"default\"\ncodec = \"flac\"\n\
         sources = [\"tone://?hz=997&dbfs=-46\"]\n",
        text(scratch.path())
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut room = Snapclient::start(&client, server.stream.port(), &scratch, "room").unwrap();
    let mut controller = Rpc::connect(server.control);
    let played = || std::fs::metadata(&room.sound).map_or(0, |file| file.len());
    wait_for("the room plays", Duration::from_secs(20), || played() > 2 * 192_000);
    let params = json!({ target: name, "uri": format!("file://{}", text(&speech)) });
    let mut call = Command::new(binary());
    call.args(["rpc", "Aulos.Announce", &params.to_string(), "--server"]);
    let answer = call.arg(server.control.to_string()).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let ended = loop {
        let notice = controller.read();
        if notice["method"] == "Aulos.OnAnnouncement" && notice["params"]["state"] == "ended" {
            break notice["params"].clone();
        }
    };
    assert_eq!((&ended["cause"], &ended["reason"]), (&json!("played"), &Value::Null));
    // Audio sent now is played once the client's buffer has passed.
    let now = played();
    wait_for("the room goes on", Duration::from_secs(20), || played() > now + 4 * 192_000);
    let sound = room.stop().unwrap();
    server.stop().unwrap();

    // Half a per cent of full scale is the tone, at -46 dBFS.
    let peaks = peaks_of_10_ms(&sound);
    let spoken = |peak: &&u16| **peak > 1_000;
    let voice = peaks.iter().filter(spoken).count();
    assert!(voice > 20, "{voice} pieces of speech");
    let first = peaks.iter().position(|peak| *peak > 1_000).unwrap();
    let last = peaks.iter().rposition(|peak| *peak > 1_000).unwrap();
    assert!(last - first < 300, "one announcement, and no second one");
    let is_tone = |peak: &u16| (160..170).contains(peak);
    // In between the tone is ducked within 200 ms and restored within a second; a sentence ends in
    // silence.
    assert!(peaks[first - 100..first - 25].iter().all(is_tone), "the programme before it");
    assert!(peaks[last + 170..last + 230].iter().all(is_tone), "the programme behind it");
}

/// A client that stores the chunks that it gets, on a thread of its own.
pub(crate) struct RecordingClient {
    pub(crate) id: String,
    socket: TcpStream,
    recorded: Arc<Mutex<RecordedStream>>,
    thread: Option<JoinHandle<()>>,
}

/// What a client was sent.
#[derive(Clone, Default)]
pub(crate) struct RecordedStream {
    headers: usize,
    pub(crate) chunks: Vec<RecordedChunk>,
}

/// A chunk of PCM: its time and its arrival in microseconds, and its samples.
#[derive(Clone)]
pub(crate) struct RecordedChunk {
    pub(crate) timestamp: i64,
    arrived: i64,
    pub(crate) samples: Vec<i16>,
}

impl RecordedChunk {
    fn is_loud(&self) -> bool {
        self.samples.iter().any(|sample| *sample < -LOUD)
    }
}

impl RecordingClient {
    pub(crate) fn connect(server: SocketAddr, number: usize) -> Self {
        let mut socket = TcpStream::connect(server).unwrap();
        socket.write_all(&wire::hello(number)).unwrap();
        let recorded = Arc::<Mutex<RecordedStream>>::default();
        let (mut reader, store) = (socket.try_clone().unwrap(), Arc::clone(&recorded));
        let thread = std::thread::spawn(move || {
            let mut head = [0; HEADER];
            while reader.read_exact(&mut head).is_ok() {
                let header = MessageHeader::parse(&head).unwrap();
                let mut payload = vec![0; header.size as usize];
                if reader.read_exact(&mut payload).is_err() {
                    return;
                }
                let mut recorded = store.lock().unwrap();
                match header.kind {
                    kind::CODEC_HEADER => recorded.headers += 1,
                    kind::WIRE_CHUNK => {
                        let samples = payload[12..].as_chunks::<2>().0.iter();
                        recorded.chunks.push(RecordedChunk {
                            timestamp: wire::time_at(&payload, 0).unwrap(),
                            arrived: clock_us(),
                            samples: samples.map(|two| i16::from_le_bytes(*two)).collect(),
                        });
                    }
                    _ => {}
                }
            }
        });
        let id = format!("02:00:00:00:00:{number:02x}");
        Self { id, socket, recorded, thread: Some(thread) }
    }

    pub(crate) fn recorded(&self) -> RecordedStream {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn leave(&mut self) {
        self.socket.shutdown(Shutdown::Both).ok();
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl RecordedStream {
    /// Every chunk is there once and follows the one before; one codec header came.
    fn assert_gapless(&self) {
        for pair in self.chunks.windows(2) {
            let step = pair[1].timestamp - pair[0].timestamp;
            assert!((19_999..=20_001).contains(&step), "a step of {step} us");
        }
        assert_eq!(self.headers, 1);
    }

    /// Every frame is the one that the file has after the frame before: bit-exact and gapless. The
    /// first half second is left out: at its start, a station's source is dithered for a moment.
    fn assert_untouched(&self) {
        self.assert_gapless();
        let samples = self.chunks[25..].iter().flat_map(|chunk| &chunk.samples);
        let frames: Vec<i16> = samples.copied().collect();
        for (at, pair) in frames.as_chunks::<2>().0.windows(2).enumerate() {
            assert_eq!(pair[1][0], (pair[0][0] + 1) % CODES, "frame {at}");
            assert_eq!(pair[0], [pair[0][0], CODES - 1 - pair[0][0]], "frame {at}");
        }
    }

    /// The times of the chunks that differ from those of a client that heard the programme alone.
    fn differing(&self, other: &Self) -> Vec<i64> {
        self.assert_gapless();
        let of: HashMap<i64, &[i16]> =
            other.chunks.iter().map(|chunk| (chunk.timestamp, &chunk.samples[..])).collect();
        let known = self.chunks.iter().filter(|chunk| of.contains_key(&chunk.timestamp));
        known
            .filter(|chunk| of[&chunk.timestamp] != chunk.samples)
            .map(|chunk| chunk.timestamp)
            .collect()
    }
}

/// Frame codes of the programme: positive, so that an announcement below zero can be told.
const CODES: i16 = 16_384;
/// Below the negative of it there is the announcement.
const LOUD: i16 = 4_000;
/// Milliseconds of the announcement, and of the ramps around it.
const SOUND_MS: usize = 600;
const RAMPS_MS: usize = 1_200;

/// A station in PCM whose frames are numbered, and three clients; the first two are a group.
struct NumberedStation {
    server: AulosServer,
    rpc: Rpc,
    clients: Vec<RecordingClient>,
    group: String,
    uri: String,
    _scratch: ScratchDir,
}

impl NumberedStation {
    fn start() -> Self {
        let scratch = ScratchDir::new("announce").unwrap();
        let (programme, bell) = (scratch.join("numbers.wav"), scratch.join("bell.wav"));
        let write = |path, frames: &[[i32; 2]]| {
            write_wav(BufWriter::new(File::create(path).unwrap()), frames, SampleWidth::B16)
        };
        let codes = i32::from(CODES);
        let numbers: Vec<_> = (0..codes * 8).map(|n| [n % codes, codes - 1 - n % codes]).collect();
        write(&programme, &numbers).unwrap();
        write(&bell, &vec![[-20_000; 2]; SOUND_MS * 48]).unwrap();
        let config = format!(
            "[streams]\nroots = [\"{}\"]\n[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
             buffer_ms = 1000\nsources = [\"file://{}?loop=true\"]\n",
            text(scratch.path()),
            text(&programme)
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let clients: Vec<_> =
            (1..=3).map(|number| RecordingClient::connect(server.stream, number)).collect();
        wait_for("three clients", Duration::from_secs(10), || {
            clients.iter().all(|client| rpc.group_of(&client.id).is_some())
        });
        let group = rpc.group_of(&clients[0].id).unwrap()["id"].as_str().unwrap().to_owned();
        let members = json!([clients[0].id, clients[1].id]);
        rpc.call("Group.SetClients", &json!({ "id": group, "clients": members }));
        let uri = format!("file://{}", text(&bell));
        let station = Self { server, rpc, clients, group, uri, _scratch: scratch };
        wait_for("sound", Duration::from_secs(10), || {
            station.clients.iter().all(|client| client.recorded().chunks.len() > 100)
        });
        station
    }

    fn announce(&mut self, target: &str, id: &str) -> Value {
        self.rpc.call("Aulos.Announce", &json!({ target: id, "uri": self.uri }))
    }

    /// The notification that an announcement has ended.
    fn ended(&mut self, answer: &Value) -> Value {
        loop {
            let notice = self.rpc.hear("Aulos.OnAnnouncement");
            if notice["id"] == answer["id"] && notice["state"] == "ended" {
                return notice;
            }
        }
    }

    fn overlays(&mut self) -> Value {
        self.rpc.call("Aulos.GetStatus", &json!({}))["counters"]["announcement_overlays"].clone()
    }

    fn wait_for_the_end_of_overlays(&mut self) {
        wait_for("no overlay", Duration::from_secs(10), || self.overlays() == json!(0));
        std::thread::sleep(Duration::from_millis(300));
    }

    fn stop(self) {
        drop(self.clients);
        self.server.stop().unwrap();
    }
}

/// One run of chunks of this many milliseconds.
fn assert_one_run(times: &[i64], millis: usize) {
    let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(steps.into_iter().all(|step| step <= 20_001), "one run: {times:?}");
    let expected = millis / 20;
    // It begins and ends within a chunk, and the limiter and the resampler hold some of it.
    assert!((expected..expected + 4).contains(&times.len()), "{} chunks", times.len());
}

#[test]
fn an_announcement_to_a_group_or_client_is_heard_by_it_alone_and_breaks_nothing() {
    let _turn = quiet_turn();
    let mut station = NumberedStation::start();
    let group = station.group.clone();
    let called = clock_us();
    let answer = station.announce("group", &group);
    assert_eq!((&answer["station"], &answer["before"]), (&json!("default"), &json!(0)));
    assert_eq!(station.announce("group", &group)["before"], 1);
    let second = station.announce("group", &group);
    station.rpc.call("Aulos.CancelAnnouncement", &json!({ "id": second["id"] }));
    let ended = station.ended(&answer);
    assert_eq!((&ended["cause"], &ended["group"]), (&json!("played"), &json!(group)));
    let members: Vec<&str> = station.clients[..2].iter().map(|client| &client.id[..]).collect();
    assert_eq!(ended["clients"], json!(members));
    assert_eq!(station.overlays(), json!(1));
    station.wait_for_the_end_of_overlays();
    let recorded: Vec<_> = station.clients.iter().map(RecordingClient::recorded).collect();
    recorded[2].assert_untouched();
    let times = recorded[0].differing(&recorded[2]);
    assert_one_run(&times, RAMPS_MS + 2 * SOUND_MS);
    assert_eq!(times, recorded[1].differing(&recorded[2]), "both at the same time");
    let first = recorded[0].chunks.iter().find(|chunk| chunk.is_loud()).unwrap();
    let sent = (first.arrived - called) / 1_000;
    println!("the first chunk with its sound arrives {sent} ms after the call");
    println!("and plays {} ms after it", (first.timestamp - called) / 1_000 + 1_000);
    assert!((200..1_500).contains(&sent), "{sent} ms");

    // To one client of the group, and to the group behind it.
    let client = station.clients[1].id.clone();
    let answer = station.announce("client", &client);
    let behind = station.announce("group", &group);
    let ended = station.ended(&answer);
    assert_eq!((&ended["client"], &ended["clients"]), (&json!(client), &json!([client])));
    assert_eq!(ended["group"], Value::Null);
    station.ended(&behind);
    station.wait_for_the_end_of_overlays();
    let recorded: Vec<_> = station.clients.iter().map(RecordingClient::recorded).collect();
    recorded[2].assert_untouched();
    let more = |client: usize, since: i64| -> Vec<i64> {
        let times = recorded[client].differing(&recorded[2]);
        times.into_iter().filter(|time| *time > since).collect()
    };
    let since = times[times.len() - 1];
    assert_one_run(&more(0, since), RAMPS_MS + SOUND_MS);
    let (own, shared) = (more(1, since), more(0, since));
    let at = own.iter().position(|time| *time == shared[0]).unwrap();
    assert_one_run(&own[..at], RAMPS_MS + SOUND_MS);
    assert_eq!(own[at..], shared);
    station.stop();
}

#[test]
fn a_client_that_leaves_an_announced_group_or_station_hears_the_programme_again() {
    let _turn = quiet_turn();
    let mut station = NumberedStation::start();
    let group = station.group.clone();
    // Six of them, a second and a half each with their ramps: one leaves its group, one goes.
    let answers: Vec<_> = (0..6).map(|_| station.announce("group", &group)).collect();
    let is_loud = |client: &RecordingClient| {
        client.recorded().chunks.iter().rev().take(10).any(RecordedChunk::is_loud)
    };
    wait_for("the announcement", Duration::from_secs(10), || is_loud(&station.clients[1]));
    let alone = json!({ "id": group, "clients": [station.clients[0].id] });
    station.rpc.call("Group.SetClients", &alone);
    wait_for("its end", Duration::from_secs(2), || !is_loud(&station.clients[1]));
    assert!(is_loud(&station.clients[0]));
    station.clients[1].recorded().assert_gapless();
    let ended = station.ended(&answers[0]);
    assert_eq!(ended["clients"], json!([station.clients[0].id]));
    station.clients[0].leave();
    let ended = station.ended(&answers[1]);
    assert_eq!((&ended["clients"], &ended["cause"]), (&json!([]), &json!("played")));
    // The announcements to the group end, and those to others go on.
    let last = station.clients[2].id.clone();
    let over = station.announce("client", &last);
    wait_for("the announcement", Duration::from_secs(10), || is_loud(&station.clients[2]));
    let before = station.clients[1].recorded();
    before.assert_gapless();
    station.rpc.call("Aulos.CancelAnnouncement", &json!({ "group": group }));
    // Those that have not begun end at once.
    let mut causes = HashMap::new();
    while causes.len() < 5 {
        let notice = station.rpc.hear("Aulos.OnAnnouncement");
        if notice["state"] == "ended" {
            causes.insert(notice["id"].as_u64().unwrap(), notice["cause"].clone());
        }
    }
    let cause = |answer: &Value| causes[&answer["id"].as_u64().unwrap()].as_str().unwrap();
    assert_eq!((cause(&over), cause(&answers[5])), ("played", "cancelled"), "{causes:?}");
    station.wait_for_the_end_of_overlays();
    station.clients[1].recorded().assert_gapless();
    station.clients[2].recorded().assert_gapless();
    station.stop();
}

#[test]
fn an_announcement_to_an_unknown_group_or_client_names_those_there_are() {
    let _turn = shared_turn();
    let mut station = NumberedStation::start();
    let uri = station.uri.clone();
    let (first, group) = (station.clients[0].id.clone(), station.group.clone());
    let mut error = |params: Value| {
        let answer = station.rpc.answer("Aulos.Announce", &params);
        answer["error"].to_string()
    };
    let unknown = error(json!({ "group": "attic", "uri": uri }));
    assert!(unknown.contains("`group`: there is no group `attic`"), "{unknown}");
    assert!(unknown.contains(&group), "{unknown}");
    let unknown = error(json!({ "client": "attic", "uri": uri }));
    assert!(unknown.contains("`client`: there is no client `attic`"), "{unknown}");
    assert!(unknown.contains(&first), "{unknown}");
    let both = error(json!({ "client": first, "group": group, "uri": uri }));
    assert!(both.contains("only one of them"), "{both}");
    station.stop();
}

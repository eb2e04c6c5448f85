//! Push to talk: microphones that behave, and microphones that do not.

use std::net::{SocketAddr, TcpStream};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::common::{
    Controller, Heard, Playing, Room, Server, TWO_STATIONS, eventually, resolve, scratch, wave,
};
use crate::websocket::{message, open};

const CONFIG: &str = r#"
    [listen]
    stream = 0
    control = 0
    http = 0
    [[station]]
    name = "hall"
    codec = "pcm"
    buffer_ms = 400
    sources = ["tone://?dbfs=-40"]
"#;

/// 20 ms in one channel at 48 kHz, at half of full scale.
const SAMPLES: usize = 960;
const FRAME: Duration = Duration::from_millis(20);

fn frame() -> Message {
    let samples = [16_384_i16; SAMPLES];
    Message::binary(samples.into_iter().flat_map(i16::to_le_bytes).collect::<Vec<u8>>())
}

/// A microphone at a server.
struct Microphone(WebSocket<TcpStream>);

impl Microphone {
    fn connect(http: SocketAddr) -> Self {
        Self(open(http, "/api/v1/talk", "").unwrap())
    }

    /// Asks for a talk; returns the answer.
    fn request(&mut self, request: &Value) -> Value {
        self.0.send(Message::text(request.to_string())).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Value {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A talk to the hall that has been admitted, and its number.
    fn admitted(http: SocketAddr, request: &Value) -> (Self, u64) {
        let mut microphone = Self::connect(http);
        let answer = microphone.request(request);
        let id = answer["id"].as_u64().unwrap_or_else(|| panic!("{answer}"));
        (microphone, id)
    }

    /// The reason why the server ends the talk, and its close behind that.
    fn reason(mut self) -> String {
        let answer = self.answer();
        assert!(matches!(self.0.read(), Ok(Message::Close(_))));
        answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Speaks in real time, on a thread, until the time is over, and releases the button.
    fn speak_for(mut self, time: Duration) -> JoinHandle<()> {
        spawn(move || {
            let begin = Instant::now();
            let mut frames = 0;
            while FRAME * frames < time {
                self.0.send(frame()).unwrap();
                frames += 1;
                sleep((FRAME * frames).saturating_sub(begin.elapsed()));
            }
            self.0.close(None).unwrap();
            // The peer closes too.
            while self.0.read().is_ok() {}
        })
    }
}

fn to_the_hall() -> Value {
    json!({ "station": "hall", "format": "pcm", "duck_db": -20 })
}

/// The notification of the end of an announcement.
fn ended(caller: &mut Controller, id: u64) -> Value {
    loop {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["id"] == id && notice["state"] == "ended" {
            return notice;
        }
    }
}

fn counter(caller: &mut Controller, name: &str) -> Value {
    caller.call("Aulos.GetStatus", json!({}))["result"]["counters"][name].clone()
}

fn loud(samples: &[f32]) -> usize {
    samples.iter().filter(|sample| **sample > 0.4).count()
}

#[test]
fn a_station_plays_what_is_spoken_meanwhile_and_all_of_it() {
    let server = Playing::start(resolve(CONFIG));
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    assert_eq!(loud(&sound.samples(9_600)), 0, "the tone alone");
    let mut microphone = Microphone::connect(server.http);
    let answer = microphone.request(&json!({ "station": "ha", "format": "pcm", "duck_db": -20 }));
    assert_eq!(answer, json!({ "id": 1, "station": "hall", "before": 0 }));
    let speaker = microphone.speak_for(Duration::from_secs(2));
    let mut heard = 0;
    while heard < 2 * SAMPLES {
        heard += loud(&sound.samples(1_920));
    }
    assert!(!speaker.is_finished(), "it is played while it is spoken");
    speaker.join().unwrap();
    for _ in 0..300 {
        heard += loud(&sound.samples(1_920));
        if heard >= 2 * 95_000 {
            break;
        }
    }
    let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
    assert_eq!((&notice["state"], &notice["uri"]), (&json!("began"), &json!("talk:")));
    let notice = ended(&mut caller, 1);
    assert_eq!((&notice["cause"], &notice["reason"]), (&json!("played"), &Value::Null));
    // Nothing follows, and the tone is back.
    heard += (0..50).map(|_| loud(&sound.samples(1_920))).sum::<usize>();
    assert!((2 * 95_000..=2 * 96_100).contains(&heard), "{heard}");
}

#[test]
fn a_talk_to_a_group_by_its_name_is_heard_there_alone() {
    let server = Playing::start(resolve(CONFIG));
    let mut caller = server.controller();
    let mut rooms = [Room::enter(server.stream, "bath"), Room::enter(server.stream, "attic")];
    let status = caller.call("Server.GetStatus", json!({}))["result"]["server"].clone();
    let groups = status["groups"].as_array().unwrap();
    let group = groups.iter().find(|one| one["clients"][0]["id"] == "bath").unwrap();
    let name = json!({ "id": group["id"], "name": "Upstairs" });
    caller.call("Group.SetName", name);
    let request = json!({ "group": "upst", "format": "pcm", "rate": 48_000, "volume": 100 });
    let (microphone, id) = Microphone::admitted(server.http, &request);
    let speaker = microphone.speak_for(Duration::from_millis(1_500));
    // A buffer and a second after the end of the talk.
    let loudest = rooms.each_mut().map(|room| {
        let (mut loudest, mut chunks) = (0, 0);
        while chunks < 150 {
            if let Heard::Chunk(_, bytes) = room.hear() {
                chunks += 1;
                let samples = bytes.as_chunks::<2>().0.iter();
                let most = samples.map(|two| i16::from_le_bytes(*two)).max().unwrap_or(0);
                loudest = loudest.max(most);
            }
        }
        loudest
    });
    speaker.join().unwrap();
    let notice = ended(&mut caller, id);
    assert_eq!((&notice["cause"], &notice["clients"]), (&json!("played"), &json!(["bath"])));
    assert!(loudest[0] > 10_000, "{loudest:?}");
    assert!(loudest[1] < 400, "{loudest:?}");
}

#[test]
fn a_talk_interrupts_an_announcement() {
    let folder = scratch();
    std::fs::write(folder.join("long.wav"), wave(&vec![1_000; 48_000 * 60])).unwrap();
    let roots = format!("{CONFIG}\n[streams]\nroots = [\"{}\"]\n", folder.display());
    let server = Playing::start(resolve(&roots));
    let mut caller = server.controller();
    let uri = format!("file://{}/long.wav", folder.display());
    caller.call("Aulos.Announce", json!({ "station": "hall", "uri": uri }));
    assert_eq!(caller.notice_of("Aulos.OnAnnouncement")["params"]["state"], "began");
    let mut microphone = Microphone::connect(server.http);
    assert_eq!(microphone.request(&to_the_hall())["before"], 0);
    let speaker = microphone.speak_for(Duration::from_millis(500));
    assert_eq!(ended(&mut caller, 1)["cause"], "interrupted");
    assert_eq!(ended(&mut caller, 2)["cause"], "played");
    speaker.join().unwrap();
}

#[test]
fn what_is_no_request_is_refused_with_the_reason() {
    let server = Playing::start(resolve(CONFIG));
    let mut caller = server.controller();
    let cases = [
        (json!({ "station": "cellar", "format": "pcm" }), "hall"),
        (json!({ "station": "hall", "group": "x", "format": "pcm" }), "only one of"),
        (json!({ "format": "pcm" }), "`station`"),
        (json!({ "station": "hall" }), "`format`"),
        (json!({ "station": "hall", "format": "mp3" }), "opus or pcm"),
        (json!({ "station": "hall", "format": "pcm", "rate": 4_000 }), "from 8000 to 96000"),
        (json!({ "station": "hall", "format": "pcm", "channels": 3 }), "from 1 to 2"),
        (json!({ "station": "hall", "format": "pcm", "url": "x" }), "`url`"),
        (json!([7]), "must be an object"),
    ];
    for (request, expected) in &cases {
        let mut microphone = Microphone::connect(server.http);
        microphone.0.send(Message::text(request.to_string())).unwrap();
        let reason = microphone.reason();
        assert!(reason.contains(expected), "{request}: {reason}");
    }
    for (first, expected) in [
        (Message::text("hall"), "must be a JSON object"),
        (frame(), "the first message must be a text"),
    ] {
        let mut microphone = Microphone::connect(server.http);
        microphone.0.send(first).unwrap();
        let reason = microphone.reason();
        assert!(reason.contains(expected), "{reason}");
    }
    assert_eq!(counter(&mut caller, "talks_refused_request"), cases.len() + 2);
    let announcements =
        &caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0]["announcements"];
    assert_eq!(*announcements, json!([]));
}

#[test]
fn microphones_that_stall_or_send_noise_are_ended_with_the_reason_and_the_station_plays_on() {
    type Fault = fn(&mut WebSocket<TcpStream>);
    let opus = json!({ "station": "hall", "format": "opus" });
    let faults: [(&str, Value, &str, Fault); 7] = [
        ("talks_cut_stalled", to_the_hall(), "the microphone sent nothing for 2 s", |_| ()),
        ("talks_cut_too_fast", to_the_hall(), "faster than it can be spoken", |socket| {
            // The server may close before all is sent.
            (0..100).for_each(|_| drop(socket.send(frame())));
        }),
        ("talks_cut_damaged", opus, "5 frames were no packets of Opus", |socket| {
            (0..10).for_each(|_| drop(socket.send(Message::binary([0xFF; 100].to_vec()))));
        }),
        ("talks_cut_damaged", to_the_hall(), "1921 bytes is no multiple of 2", |socket| {
            socket.send(Message::binary([7; 1_921].to_vec())).unwrap();
        }),
        ("talks_cut_damaged", to_the_hall(), "65536 bytes at most", |socket| {
            socket.send(Message::binary(vec![7; 70_000])).unwrap();
        }),
        ("talks_cut_damaged", to_the_hall(), "65536 bytes at most", |socket| {
            socket.send(Message::binary(vec![7; 1_000_000])).ok();
        }),
        ("talks_cut_damaged", to_the_hall(), "a text came", |socket| {
            socket.send(Message::text("{}")).unwrap();
        }),
    ];
    let server = Playing::start(resolve(CONFIG));
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    let mut wrong = Vec::new();
    for (counted, request, expected, fault) in faults {
        let before = counter(&mut caller, counted).as_u64().unwrap();
        let (mut microphone, id) = Microphone::admitted(server.http, &request);
        fault(&mut microphone.0);
        let reason = microphone.reason();
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(counter(&mut caller, counted), before + 1, "{reason}");
        wrong.push((id, reason));
    }
    // One without sound ends before one that is being heard.
    while !wrong.is_empty() {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["state"] == "ended" {
            let at = wrong.iter().position(|(id, _)| notice["id"] == *id).unwrap();
            let (_, reason) = wrong.swap_remove(at);
            assert_eq!((&notice["cause"], &notice["reason"]), (&json!("failed"), &json!(reason)));
        }
    }
    // 100 ms of the tone, without a hole.
    let samples = sound.samples(9_600);
    assert!(samples.chunks(480).all(|part| part.iter().any(|sample| sample.abs() > 0.005)));
}

#[test]
fn a_connection_that_is_lost_in_mid_word_and_a_cancelled_talk_end() {
    let server = Playing::start(resolve(CONFIG));
    let mut caller = server.controller();
    let (mut lost, id) = Microphone::admitted(server.http, &to_the_hall());
    for _ in 0..10 {
        lost.0.send(frame()).unwrap();
    }
    // Half of a frame: the head of one with 100 bytes, and some of them.
    std::io::Write::write_all(lost.0.get_mut(), &[0x82, 0xE4, 1, 2, 3, 4, 5]).unwrap();
    drop(lost);
    let notice = ended(&mut caller, id);
    assert_eq!(notice["reason"], "the connection to the microphone was lost");
    assert_eq!(counter(&mut caller, "talks_lost"), 1);

    let (mut cancelled, id) = Microphone::admitted(server.http, &to_the_hall());
    cancelled.0.send(frame()).unwrap();
    caller.call("Aulos.CancelAnnouncement", json!({ "station": "hall" }));
    cancelled.0.get_ref().set_read_timeout(Some(FRAME)).unwrap();
    // The next frame that is spoken learns of it.
    let told = loop {
        cancelled.0.send(frame()).ok();
        if let Ok(Message::Text(text)) = cancelled.0.read() {
            break text;
        }
    };
    assert!(told.contains("the announcement was cancelled"), "{told}");
    assert_eq!(ended(&mut caller, id)["cause"], "cancelled");
}

#[test]
fn so_many_talk_at_once_and_no_more() {
    let server = Playing::start(resolve(CONFIG));
    let mut caller = server.controller();
    let mut held: Vec<_> = (0..8).map(|_| Microphone::connect(server.http)).collect();
    // A place is taken after the handshake.
    let mut refused = None;
    eventually(|| {
        let mut microphone = Microphone::connect(server.http);
        microphone.0.get_ref().set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        refused = microphone.0.read().ok();
        refused.is_some()
    });
    let Some(Message::Text(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("8 talks are spoken already; try again later"), "{text}");
    assert!(counter(&mut caller, "talks_refused_full").as_u64().unwrap() >= 1);
    let answer = held[0].request(&to_the_hall());
    assert_eq!(answer["id"], 1, "those who came first are served: {answer}");
    held.truncate(1);
    eventually(|| {
        let mut microphone = Microphone::connect(server.http);
        message_of(&mut microphone.0, &to_the_hall())["id"].is_u64()
    });
}

fn message_of(socket: &mut WebSocket<TcpStream>, request: &Value) -> Value {
    socket.send(Message::text(request.to_string())).ok();
    message(socket)
}

#[test]
fn a_talk_needs_the_right_to_announce_and_a_page_of_this_server() {
    let users = "[[user]]\nname = \"kitchen\"\nrole = \"listen\"\ntoken = \"a token of listeners\"\n\
                 [[user]]\nname = \"board\"\nrole = \"control\"\ntoken = \"a token of a board\"\n";
    let server = Server::of(resolve(&format!("{TWO_STATIONS}{users}")));
    let connect = |header: &str| open(server.http, "/api/v1/talk", header);
    assert!(connect("").unwrap_err().contains("401"));
    assert!(connect("Authorization: Bearer a wrong token").unwrap_err().contains("401"));
    let listener = connect("Authorization: Bearer a token of listeners").unwrap_err();
    assert!(listener.contains("403"), "{listener}");
    let board = connect("Authorization: Bearer a token of a board").unwrap();
    // This backend has no announcements, which is the last thing that is looked at.
    let mut board = Microphone(board);
    let answer = board.request(&json!({ "station": "default", "format": "opus" }));
    assert_eq!(answer["error"], "announcements are not available");

    let open_to_all = Server::start();
    let cross = open(open_to_all.http, "/api/v1/talk", "Origin: http://evil.example");
    assert!(cross.unwrap_err().contains("403"));
    let (status, _) = aulos_blackbox::http::get(open_to_all.http, "/api/v1/talk").unwrap();
    assert_eq!(status, 426);
}

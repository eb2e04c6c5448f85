//! Pictures of a session, in virtual time and without encryption. The messages are checked by the
//! rules of a client: what it would close the connection for fails the test.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::sendspin::artwork::{ArtworkFormat, ArtworkRendition};
use crate::sendspin::dialect::Dialect;
use crate::sendspin::hello::ClientHello;
use crate::sendspin::room::{ControllerState, PlaybackState, RoomState, TrackInfo};
use crate::sendspin::session::{ClientSession, ClientSessionEvent};
use crate::ws::{WsMessage, WsReader, WsWriter};

struct Display {
    session: ClientSession,
    dialect: DialectInfo,
    now: Instant,
    /// Types of texts, and `begin`, `part`, `cancel`, `clear` and `whole` of frames, in their
    /// order.
    kinds: Vec<String>,
    /// The last object of `stream/start`.
    start: Value,
    requests: Vec<ArtworkRequest>,
    shown: [Option<Vec<u8>>; MAX_ARTWORK_CHANNELS],
    /// What is on its way: the channel, the size, and what has come.
    pending: Option<(usize, usize, Vec<u8>)>,
    writer: WsWriter,
}

fn room() -> Arc<RoomState> {
    Arc::new(RoomState {
        group_id: "g".to_owned(),
        group_name: "Hall".to_owned(),
        playback: PlaybackState::Playing,
        track: TrackInfo::default(),
        controller: ControllerState::default(),
    })
}

fn album(width: u32, height: u32) -> Value {
    json!({ "source": "album", "format": "jpeg", "width": width, "height": height })
}

fn picture(length: usize, byte: u8) -> Option<Arc<[u8]>> {
    Some(vec![byte; length].into())
}

impl Display {
    fn new(dialect: Dialect, support: &Value) -> Self {
        let mut hello = json!({
            "client_id": "display",
            "name": "Display",
            "version": 1,
            "supported_roles": ["artwork@v1"],
            "artwork@v1_support": support,
        });
        if dialect == Dialect::FirstNoise {
            hello["trust_level"] = "user".into();
        }
        let id = (dialect != Dialect::Legacy).then(|| "display".to_owned());
        let hello = ClientHello::parse(&hello, id).unwrap();
        assert_eq!(hello.dialect, dialect);
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            session: ClientSession::new(hello, None, now),
            dialect: dialect.info(),
            now,
            kinds: Vec::new(),
            start: Value::Null,
            requests: Vec::new(),
            shown: Default::default(),
            pending: None,
            writer: WsWriter::default(),
        }
    }

    /// A client of the specification that shows the album in one channel.
    fn current() -> Self {
        let mut display = Self::new(Dialect::Current, &Value::Null);
        display.session.set_room(room());
        display.state(&json!([album(300, 200)]));
        display.kinds.clear();
        display
    }

    fn say(&mut self, kind: &str, payload: &Value) {
        let text = json!({ "type": kind, "payload": payload }).to_string();
        self.session.receive(self.now, true, text.as_bytes());
        self.drain();
    }

    fn state(&mut self, channels: &Value) {
        let artwork = json!({ "channels": channels });
        self.say("client/state", &json!({ "available": true, "artwork": artwork }));
    }

    fn wait(&mut self, span: Span) {
        self.now += span;
        if self.session.poll_timeout().is_some_and(|at| at <= self.now) {
            self.session.handle_timeout(self.now);
        }
        self.drain();
    }

    /// Answers the last request with a picture in every channel that wants one.
    fn answer(&mut self, picture: &Option<Arc<[u8]>>) {
        let renditions = self.requests.last().unwrap().renditions;
        let pictures = renditions.map(|one| one.and_then(|_| picture.clone()));
        self.session.set_artwork(&ArtworkUpdate { renditions, pictures });
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            match output {
                ClientSessionOutput::Send(message) => {
                    let mut out = Vec::new();
                    self.session.write(&message, self.now, &mut self.writer, &mut out);
                    self.receive(&out);
                }
                ClientSessionOutput::Event(ClientSessionEvent::Artwork(request)) => {
                    self.requests.push(request);
                }
                ClientSessionOutput::Event(ClientSessionEvent::Introduced(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends one message about pictures.
    fn pump(&mut self) -> bool {
        let mut out = Vec::new();
        let has_message = self.session.has_artwork();
        let written = self.session.write_artwork(self.now, &mut self.writer, &mut out);
        assert_eq!((written, written), (has_message, !out.is_empty()));
        self.receive(&out);
        written
    }

    fn pump_all(&mut self) {
        for _ in 0..100 {
            if !self.pump() {
                return;
            }
        }
        panic!("it does not end");
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        let mut reader = WsReader::from_server();
        while let Some(message) = reader.next(&mut bytes).unwrap() {
            match message {
                WsMessage::Text(text) => {
                    let text: Value = serde_json::from_slice(text).unwrap();
                    self.kinds.push(text["type"].as_str().unwrap().to_owned());
                    if text["type"] == "stream/start" {
                        self.start = text["payload"]["artwork"].clone();
                    } else if text["type"] == "stream/end" {
                        assert_eq!(text["payload"]["roles"], json!(["artwork"]));
                        (self.start, self.pending) = (Value::Null, None);
                        self.shown = Default::default();
                    }
                }
                WsMessage::Binary(message) => {
                    let (channel, frame) = ArtworkFrame::parse(self.dialect, message).unwrap();
                    self.frame(channel, frame);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn frame(&mut self, channel: usize, frame: ArtworkFrame<'_>) {
        assert!(!self.start.is_null(), "{frame:?} without a stream");
        let kind = match frame {
            ArtworkFrame::Begin { at, size } => {
                assert_eq!((at, self.pending.take()), (micros(self.now), None));
                if size == 0 {
                    self.shown[channel] = None;
                    "clear"
                } else {
                    self.pending = Some((channel, usize::try_from(size).unwrap(), Vec::new()));
                    "begin"
                }
            }
            ArtworkFrame::Part(bytes) => {
                assert!((1..=MAX_PART).contains(&bytes.len()));
                let (own, size, mut all) = self.pending.take().unwrap();
                assert_eq!(own, channel);
                all.extend_from_slice(bytes);
                assert!(all.len() <= size);
                if all.len() == size {
                    self.shown[channel] = Some(all);
                } else {
                    self.pending = Some((channel, size, all));
                }
                "part"
            }
            ArtworkFrame::Cancel => {
                assert_eq!(self.pending.take().unwrap().0, channel);
                "cancel"
            }
            ArtworkFrame::Whole { picture, .. } => {
                self.shown[channel] = (!picture.is_empty()).then(|| picture.to_vec());
                "whole"
            }
        };
        self.kinds.push(kind.to_owned());
    }

    fn take_kinds(&mut self) -> Vec<String> {
        core::mem::take(&mut self.kinds)
    }
}

#[test]
fn a_picture_goes_out_in_parts_once_the_client_is_ready() {
    let mut display = Display::new(Dialect::Current, &Value::Null);
    display.state(&json!([album(300, 200), { "source": "none" }]));
    assert!(display.take_kinds().is_empty());
    display.session.set_room(room());
    display.drain();
    display.wait(Span::ZERO);
    assert_eq!(display.take_kinds(), ["group/update", "stream/start"]);
    assert_eq!(display.start, json!({ "channels": [album(300, 200)] }));
    let jpeg = ArtworkRendition { format: ArtworkFormat::Jpeg, width: 300, height: 200 };
    assert_eq!(display.requests[0].renditions, [Some(jpeg), None, None, None]);
    assert!(!display.pump(), "the picture is not known yet");
    display.answer(&picture(100_000, 7));
    display.pump_all();
    assert_eq!(display.take_kinds(), ["begin", "part", "part", "part", "part"]);
    assert_eq!(display.shown[0], Some(vec![7; 100_000]));
    // The same once more, another one, and none.
    display.answer(&picture(100_000, 7));
    display.pump_all();
    assert!(display.take_kinds().is_empty());
    display.answer(&picture(10, 8));
    display.pump_all();
    assert_eq!(display.shown[0], Some(vec![8; 10]));
    display.answer(&None);
    display.pump_all();
    assert_eq!(display.take_kinds(), ["begin", "part", "clear"]);
    assert_eq!(display.shown[0], None);
}

#[test]
fn another_title_cancels_the_picture_that_is_on_its_way() {
    let mut display = Display::current();
    display.answer(&picture(100_000, 1));
    assert!(display.pump() && display.pump());
    display.answer(&picture(100_000, 1));
    assert!(display.pump());
    display.answer(&picture(20, 2));
    display.pump_all();
    assert_eq!(display.take_kinds(), ["begin", "part", "part", "cancel", "begin", "part"]);
    display.answer(&picture(100_000, 3));
    assert!(display.pump());
    display.answer(&None);
    display.pump_all();
    assert_eq!(display.take_kinds(), ["begin", "cancel", "clear"]);
}

#[test]
fn a_client_that_is_not_available_has_no_stream_and_gets_its_picture_again() {
    let mut display = Display::current();
    display.answer(&picture(100_000, 1));
    assert!(display.pump() && display.pump());
    display.say("client/state", &json!({ "available": false }));
    display.wait(Span::from_secs(2));
    assert!(!display.pump());
    assert_eq!(display.take_kinds(), ["begin", "part", "cancel", "stream/end"]);
    display.say("client/state", &json!({ "available": true }));
    assert_eq!((display.take_kinds(), display.requests.len()), (vec!["stream/start".into()], 2));
    display.answer(&picture(100_000, 1));
    display.pump_all();
    assert_eq!(display.shown[0], Some(vec![1; 100_000]));
    display.say("client/leave", &json!({}));
    assert_eq!(display.take_kinds().last().unwrap(), "stream/end");
}

#[test]
fn another_size_is_announced_and_an_earlier_answer_does_not_count() {
    let mut display = Display::current();
    display.answer(&picture(10, 1));
    display.pump_all();
    display.wait(Span::from_secs(1));
    let artist = json!({ "source": "artist", "format": "png", "width": 9, "height": 9 });
    display.state(&json!([album(64, 64), artist]));
    assert_eq!(display.start, json!({ "channels": [album(64, 64), artist] }));
    // The answer to the first request, then that to the second one.
    let first = display.requests[0].renditions;
    let pictures = [picture(10, 2), None, None, None];
    display.session.set_artwork(&ArtworkUpdate { renditions: first, pictures });
    display.pump_all();
    assert_eq!(display.take_kinds(), ["begin", "part", "stream/start", "clear"]);
    assert_eq!(display.shown[0], Some(vec![1; 10]));
    display.answer(&picture(10, 3));
    display.pump_all();
    assert_eq!(display.shown[0], Some(vec![3; 10]));
    // A channel that ends is cleared first.
    display.kinds.clear();
    display.wait(Span::from_secs(1));
    display.state(&json!([{ "source": "none" }, artist]));
    assert_eq!(display.take_kinds(), ["clear", "stream/start"]);
    assert_eq!(display.shown[0], None);
}

#[test]
fn a_client_that_changes_its_channels_all_the_time_is_put_off_and_counted() {
    let mut display = Display::current();
    // As often as a client may send messages.
    for number in 0..250 {
        display.wait(Span::from_millis(20));
        display.state(&json!([album(1 + number, 10)]));
        display.answer(&picture(10, 1));
        display.pump_all();
    }
    display.wait(Span::from_secs(1));
    let starts = display.kinds.iter().filter(|kind| *kind == "stream/start").count();
    assert!((5..=7).contains(&starts), "{starts}");
    assert_eq!(display.start, json!({ "channels": [album(250, 10)] }));
    let limited = display.requests.last().unwrap().limited;
    assert!((240..=250).contains(&limited), "{limited}");
    display.wait(Span::from_secs(1));
    display.state(&json!([album(65_535, 65_535)]));
    assert_eq!(display.start, json!({ "channels": [album(1_024, 1_024)] }));
    assert_eq!(display.requests.last().unwrap().limited, limited + 1);
}

#[test]
fn the_first_dialects_get_each_picture_in_one_message() {
    for dialect in [Dialect::FirstNoise, Dialect::Legacy] {
        let channel = json!({ "source": "album", "format": "bmp", "media_width": 8,
            "media_height": 4 });
        let mut display = Display::new(dialect, &json!({ "channels": [channel] }));
        display.session.set_room(room());
        let available = json!({ "available": true, "state": "synchronized" });
        display.say("client/state", &available);
        let start = json!({ "source": "album", "format": "bmp", "width": 8, "height": 4 });
        assert_eq!(display.start, json!({ "channels": [start] }));
        display.answer(&picture(200_000, 1));
        display.pump_all();
        assert_eq!(display.take_kinds()[1..], ["stream/start", "whole"]);
        assert_eq!(display.shown[0], Some(vec![1; 200_000]));
        display.answer(&picture(MAX_WHOLE_ARTWORK + 1, 1));
        display.pump_all();
        assert_eq!(display.shown[0], None, "nothing can interrupt it");
        display.wait(Span::from_secs(1));
        let change = json!({ "artwork": { "channel": 0, "format": "png", "media_width": 99 } });
        display.say("stream/request-format", &change);
        let png = ArtworkRendition { format: ArtworkFormat::Png, width: 99, height: 4 };
        assert_eq!(display.requests.last().unwrap().renditions[0], Some(png));
        let change = json!({ "artwork": { "channel": 77, "format": "png" } });
        display.say("stream/request-format", &change);
        assert_eq!(display.requests.len(), 2);
    }
}

proptest! {
    #[test]
    fn whatever_happens_a_client_never_sees_a_broken_transfer(
        steps in prop::collection::vec((0..8_u8, 1..100_000_usize), 1..60),
    ) {
        let mut display = Display::current();
        for (what, number) in steps {
            let byte = u8::try_from(number % 250).unwrap();
            let side = u32::try_from(number % 3).unwrap();
            match what {
                0 => display.answer(&picture(number, byte)),
                1 => display.answer(&None),
                2 => display.state(&json!([album(side, 3), album(4, 4)])),
                3 => display.state(&json!([{ "source": "none" }, album(side, 5)])),
                4 => display.say("client/state", &json!({ "available": number % 2 == 0 })),
                5 => display.wait(Span::from_millis(i64::try_from(number % 2_000).unwrap())),
                _ => drop(display.pump()),
            }
        }
        display.say("client/state", &json!({ "available": true }));
        display.wait(Span::from_secs(1));
        display.answer(&picture(70_000, 9));
        display.pump_all();
        prop_assert_eq!(display.pending.clone(), None);
        for (channel, one) in display.requests.last().unwrap().renditions.iter().enumerate() {
            let expected = one.map(|_| vec![9; 70_000]);
            prop_assert_eq!(&display.shown[channel], &expected);
        }
    }
}

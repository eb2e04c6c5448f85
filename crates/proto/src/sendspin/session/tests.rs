//! A session without encryption, in virtual time.

use aulos_core::{ChannelLayout, Codec, SampleFormat, SampleRate, SampleSpec};

use super::super::dialect::Dialect;
use super::super::message::Goodbye;
use super::super::room::{ControllerState, PlaybackState, TrackInfo};
use super::*;
use crate::snap::wire::codec_header;

struct World {
    session: ClientSession,
    now: Instant,
    texts: Vec<Value>,
    events: Vec<ClientSessionEvent>,
    closed: Option<CloseReason>,
}

fn header(codec: Codec, bits: SampleFormat) -> Vec<u8> {
    let rate = SampleRate::new(48_000).unwrap();
    let spec = SampleSpec { rate, format: bits, layout: ChannelLayout::STEREO };
    codec_header(codec, spec, &[]).unwrap()
}

fn room(name: &str) -> Arc<RoomState> {
    Arc::new(RoomState {
        group_id: "g".to_owned(),
        group_name: name.to_owned(),
        playback: PlaybackState::Playing,
        track: TrackInfo { title: Some("Title".to_owned()), ..TrackInfo::default() },
        controller: ControllerState { volume: 50, ..ControllerState::default() },
    })
}

impl World {
    fn new() -> Self {
        let payload = json!({
            "client_id": "browser",
            "name": "Kitchen",
            "version": 1,
            "supported_roles": ["player@v1", "controller@v1", "metadata@v1"],
            "player@v1_support": {
                "supported_formats": [
                    { "codec": "pcm", "channels": 2, "sample_rate": 48_000, "bit_depth": 16 },
                ],
                "buffer_capacity": 20_000,
                "supported_commands": ["volume", "mute"],
            },
        });
        let hello = ClientHello::parse(&payload, None).unwrap();
        assert_eq!(hello.dialect, Dialect::Legacy);
        let now = Instant::from_nanos(7_000_000_000);
        let session = ClientSession::new(hello, None, now);
        Self { session, now, texts: Vec::new(), events: Vec::new(), closed: None }
    }

    /// Settings, stream, room and the first state.
    fn playing() -> Self {
        let mut world = Self::new();
        world.settings(40);
        world.session.set_stream(&header(Codec::Pcm, SampleFormat::S16Le));
        world.session.set_room(room("Kitchen"));
        world.state(&json!({ "state": "synchronized", "volume": 100, "muted": false }));
        let info = ClientInfo { volume: Some(100), muted: Some(false), report: None };
        assert_eq!(world.events, [ClientSessionEvent::Introduced(info)]);
        world.events.clear();
        world
    }

    fn settings(&mut self, volume: u8) {
        let settings = ServerSettings { volume, ..ServerSettings::default() };
        self.session.set_settings(self.now, settings);
        self.drain();
    }

    fn state(&mut self, player: &Value) {
        self.say("client/state", &json!({ "player": player }));
    }

    fn say(&mut self, kind: &str, payload: &Value) {
        let text = json!({ "type": kind, "payload": payload }).to_string();
        self.session.receive(self.now, true, text.as_bytes());
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            match output {
                ClientSessionOutput::Send(message) => {
                    self.texts.push(message.to_json(Dialect::Legacy, self.now));
                }
                ClientSessionOutput::Event(event) => self.events.push(event),
                ClientSessionOutput::Close(reason) => self.closed = Some(reason),
            }
        }
    }

    fn kinds(&mut self) -> Vec<String> {
        let texts = core::mem::take(&mut self.texts);
        texts.iter().map(|text| text["type"].as_str().unwrap().to_owned()).collect()
    }

    fn chunk(&mut self, timestamp: Instant) -> Option<Vec<u8>> {
        let duration = Span::from_millis(20);
        let chunk = AudioChunk { timestamp, duration, payload: &[3; 3_840] };
        let mut out = Vec::new();
        let mut writer = WsWriter::default();
        self.session.write_chunk(chunk, self.now, &mut writer, &mut out).then_some(out)
    }
}

#[test]
fn a_stream_begins_once_the_client_is_ready() {
    let mut world = World::new();
    world.settings(40);
    world.session.set_stream(&header(Codec::Pcm, SampleFormat::S16Le));
    world.drain();
    assert!(world.texts.is_empty() && !world.session.is_ready_for_audio());
    world.session.set_room(room("Kitchen"));
    world.drain();
    assert_eq!(world.kinds(), ["group/update", "server/state", "server/state"]);
    world.state(&json!({ "state": "error", "volume": 100, "muted": false }));
    assert_eq!(world.kinds(), ["server/command"]);
    world.state(&json!({ "state": "synchronized" }));
    let start = world.texts.pop().unwrap();
    assert_eq!(start["type"], "stream/start");
    assert_eq!(start["payload"]["player"]["codec"], "pcm");
    assert!(world.session.is_ready_for_audio());
    world.state(&json!({ "state": "external_source" }));
    assert_eq!(world.kinds(), ["stream/end"]);
    assert!(!world.session.is_ready_for_audio());
}

#[test]
fn sound_has_the_time_at_which_snapcast_clients_play_it() {
    let mut world = World::playing();
    let settings = ServerSettings { latency: Span::from_millis(30), ..ServerSettings::default() };
    world.session.set_settings(world.now, settings);
    let out = world.chunk(world.now).unwrap();
    // Header of the WebSocket, type, timestamp.
    assert_eq!(out[..5], [0x82, 126, 0x0f, 0x09, 4]);
    let timestamp = i64::from_be_bytes(out[5..13].try_into().unwrap());
    assert_eq!(timestamp, 7_000_000 + 1_000_000 - 30_000);
}

#[test]
fn a_player_is_not_sent_more_than_it_holds() {
    let mut world = World::playing();
    let begin = world.now;
    let mut sent = 0;
    for number in 0..200 {
        let timestamp = begin + Span::from_millis(20) * number;
        while world.chunk(timestamp).is_none() {
            world.now += Span::from_millis(1);
            assert!(world.now < begin + Span::from_secs(10));
        }
        sent += 1;
        // Five chunks of 3,853 bytes are in 20,000.
        let played = (world.now - begin - Span::from_secs(1)).as_millis() / 20;
        assert!(sent <= played.max(0) + 5, "{sent} sent, {played} played");
    }
}

#[test]
fn another_station_clears_what_is_buffered() {
    let mut world = World::playing();
    world.kinds();
    world.session.set_stream(&header(Codec::Pcm, SampleFormat::S16Le));
    world.drain();
    assert_eq!(world.kinds(), ["stream/clear"]);
    // A format that it cannot play.
    world.session.set_stream(&header(Codec::Opus, SampleFormat::S16Le));
    world.drain();
    assert_eq!(world.kinds(), ["stream/clear", "stream/end"]);
    world.session.set_stream(&header(Codec::Pcm, SampleFormat::S16Le));
    world.drain();
    assert_eq!(world.kinds(), ["stream/start"]);
    world.say("client/leave", &json!({}));
    assert_eq!(world.kinds(), ["stream/end"]);
}

#[test]
fn a_player_introduces_itself_by_its_first_state() {
    let mut world = World::new();
    world.drain();
    assert_eq!(world.events, []);
    world.state(&json!({ "volume": 40 }));
    let info = ClientInfo { volume: Some(40), muted: None, report: None };
    assert_eq!(world.events, [ClientSessionEvent::Introduced(info)]);
    // It has what is wanted then.
    world.texts.clear();
    world.settings(40);
    world.state(&json!({ "volume": 40, "muted": false }));
    let mute = json!({ "player": { "command": "mute", "mute": false } });
    let sent: Vec<_> = world.texts.iter().map(|text| &text["payload"]).collect();
    assert_eq!((sent, world.events.len()), (vec![&mute], 1));
}

#[test]
fn volumes_of_both_sides_do_not_fight() {
    let mut world = World::playing();
    let command = |volume| json!({ "player": { "command": "volume", "volume": volume } });
    assert!(world.texts.iter().any(|text| text["payload"] == command(40)));
    world.texts.clear();
    // The echo of a state before the command, then that of the command.
    world.settings(30);
    world.state(&json!({ "volume": 40 }));
    assert_eq!(world.texts[0]["payload"], command(30));
    assert!(world.events.is_empty());
    world.state(&json!({ "volume": 30 }));
    assert!(world.events.is_empty());
    // The user turns the knob.
    world.state(&json!({ "volume": 55, "muted": true }));
    let info = ClientInfo { volume: Some(55), muted: Some(true), report: None };
    assert_eq!(world.events, [ClientSessionEvent::Volume(info)]);
    world.texts.clear();
    // The registry repeats it; nothing is to be sent.
    let settings = ServerSettings { volume: 55, muted: true, ..ServerSettings::default() };
    world.session.set_settings(world.now, settings);
    world.drain();
    assert!(world.texts.is_empty());
    // A player that does not obey has its own mind, after a while.
    world.settings(20);
    world.now += Span::from_secs(3);
    world.state(&json!({ "volume": 60, "muted": false }));
    assert_eq!(world.events.len(), 2);
}

#[test]
fn questions_for_the_time_are_answered_and_a_flood_is_not() {
    let mut world = World::playing();
    world.texts.clear();
    world.say("client/time", &json!({ "client_transmitted": 12 }));
    let answer = &world.texts[0]["payload"];
    assert_eq!(
        (&answer["client_transmitted"], &answer["server_received"]),
        (&json!(12), &json!(7_000_000))
    );
    for _ in 0..20_000 {
        world.say("client/time", &json!({ "client_transmitted": 12 }));
        world.texts.clear();
    }
    assert_eq!(world.closed, Some(CloseReason::TimeFlood));
}

#[test]
fn a_flood_of_messages_ends_the_session() {
    // Fifty a second for a minute are a busy hand.
    let mut world = World::playing();
    for volume in 0..3_000 {
        world.now += Span::from_millis(20);
        world.state(&json!({ "volume": volume % 100 }));
    }
    assert_eq!(world.closed, None);
    let begin = world.now;
    while world.closed.is_none() {
        world.now += Span::from_millis(1);
        world.say("client/command", &json!({ "controller": { "command": "next" } }));
    }
    assert_eq!(world.closed, Some(CloseReason::MessageFlood));
    let commands =
        world.events.iter().filter(|event| matches!(event, ClientSessionEvent::Command(_)));
    assert!((256..300).contains(&commands.count()), "{:?}", world.now - begin);
    world.texts.clear();
    world.say("client/state", &json!({}));
    assert!(world.texts.is_empty());
}

#[test]
fn a_client_that_comes_and_goes_a_thousand_times_a_second_is_sent_no_sound_for_it() {
    let mut world = World::playing();
    world.texts.clear();
    let mut begun = 0;
    for step in 0..1_000 {
        world.now += Span::from_millis(1);
        let word = ["external_source", "synchronized"][step % 2];
        world.state(&json!({ "state": word }));
        begun += world.kinds().iter().filter(|kind| *kind == "stream/start").count();
    }
    assert_eq!(world.closed, Some(CloseReason::MessageFlood));
    assert!(begun <= 16, "{begun} streams");
    // Once in two seconds is no flood.
    let mut world = World::playing();
    for step in 0..200 {
        world.now += Span::from_secs(1);
        let word = ["external_source", "synchronized"][step % 2];
        world.state(&json!({ "state": word }));
    }
    assert_eq!((world.closed, world.session.is_ready_for_audio()), (None, true));
}

#[test]
fn a_lie_about_the_output_delay_leaves_nothing_to_account_for() {
    let mut world = World::playing();
    world.state(&json!({ "static_delay_ms": 1e12, "min_buffer_ms": 1e12 }));
    assert_eq!(world.session.lead().total(), Span::from_secs(6));
    for _ in 0..1_000 {
        world.now += Span::from_millis(20);
        assert!(world.chunk(world.now).is_some());
        assert!(world.session.account.held() < 4_000);
    }
}

#[test]
fn silence_and_a_missing_state_end_the_session() {
    let mut world = World::new();
    world.now = world.session.poll_timeout().unwrap();
    world.session.handle_timeout(world.now);
    world.drain();
    assert_eq!(world.closed, Some(CloseReason::NoHello));
    let mut world = World::playing();
    world.texts.clear();
    let begin = world.now;
    while world.closed.is_none() {
        world.now = world.session.poll_timeout().unwrap();
        world.session.handle_timeout(world.now);
        let messages = core::iter::from_fn(|| world.session.poll_output());
        for message in messages.collect::<Vec<_>>() {
            match message {
                ClientSessionOutput::Close(reason) => world.closed = Some(reason),
                other => assert_eq!(other, ClientSessionOutput::Send(SessionMessage::Ping)),
            }
        }
    }
    assert_eq!((world.now - begin, world.closed), (SILENT_TIMEOUT, Some(CloseReason::Silent)));
}

#[test]
fn a_goodbye_ends_the_session() {
    let mut world = World::playing();
    world.say("client/goodbye", &json!({ "reason": "another_server" }));
    assert_eq!(world.events, [ClientSessionEvent::Goodbye(Goodbye::AnotherServer)]);
    assert_eq!(world.closed, Some(CloseReason::Goodbye));
}

proptest::proptest! {
    #[test]
    fn no_message_panics(texts in proptest::collection::vec(".{0,80}", 0..20), text: bool) {
        let mut world = World::playing();
        for message in texts {
            world.session.receive(world.now, text, message.as_bytes());
            world.drain();
        }
    }
}

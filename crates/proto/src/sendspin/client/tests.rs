//! Our client against our own server side, and against a server that lies.

use proptest::prelude::*;

use super::super::{
    ActivatedClient, Admission, AdmissionInput, AdmissionOutput, ArtworkRequest, ArtworkUpdate,
    AudioChunk, ClientSession, ClientSessionEvent, ClientSessionOutput, ControllerCommand,
    ControllerState, PairingToken, PlaybackState, Psk, RoomState, ServerInfo, Trust,
};
use super::*;
use crate::sendspin::format::SupportedFormat;
use crate::snap::wire::{ServerSettings, codec_header};
use crate::ws::{WsMessage, WsReader};
use aulos_core::{Codec, SampleSpec};

const SERVER: [u8; KEY_LEN] = [5; KEY_LEN];
const PCM: SupportedFormat =
    SupportedFormat { codec: Codec::Pcm, channels: 2, hz: 48_000, bits: 16 };

fn at(millis: i64) -> Instant {
    Instant::from_nanos(1_000_000_000) + Span::from_millis(millis)
}

fn identity() -> Arc<ClientIdentity> {
    Arc::new(ClientIdentity::new([6; KEY_LEN]))
}

fn hello(unpaired_access: bool) -> Arc<PlayerHello> {
    Arc::new(PlayerHello {
        name: "Station".to_owned(),
        version: "0.1".to_owned(),
        formats: vec![PCM],
        buffer_capacity: 1_000_000,
        unpaired_access,
    })
}

const DELAYS: PlayerDelays = PlayerDelays { output_ms: 1_400, lead_ms: 250 };

/// Client and server, joined without a network.
struct World {
    client: SendspinClient,
    admission: Admission,
    trust: Trust,
    session: Option<ClientSession>,
    waits: bool,
    paired: Option<Psk>,
    events: Vec<SendspinClientEvent>,
    chunks: Vec<(Instant, Vec<u8>)>,
    commands: Vec<ControllerCommand>,
    request: Option<ArtworkRequest>,
    now: Instant,
}

impl World {
    fn new(unpaired_access: bool, trust: Trust) -> Self {
        let server = Arc::new(ServerInfo::new("House".to_owned(), SERVER));
        Self {
            client: SendspinClient::new(
                identity(),
                hello(unpaired_access),
                DELAYS,
                ([9; 32], at(0)),
            ),
            admission: Admission::new(server, [7; KEY_LEN], at(0)),
            trust,
            session: None,
            waits: false,
            paired: None,
            events: Vec::new(),
            chunks: Vec::new(),
            commands: Vec::new(),
            request: None,
            now: at(0),
        }
    }

    /// Carries messages until there are none, at this time and then every 10 ms for `millis`.
    fn run(&mut self, millis: i64) {
        let end = self.now + Span::from_millis(millis);
        loop {
            self.client.handle_timeout(self.now);
            while self.carry() {}
            if self.now >= end {
                return;
            }
            self.now += Span::from_millis(10);
        }
    }

    fn carry(&mut self) -> bool {
        let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
        let mut is_busy = self.take(&mut frames, &mut writer);
        for (is_text, message) in messages(&frames) {
            self.send_to_server(is_text, &message);
        }
        while let Some(output) = self.admission.poll_output() {
            is_busy = true;
            match output {
                AdmissionOutput::SendText(text) => self.send_to_client(true, text.as_bytes()),
                AdmissionOutput::SendBinary(message) => self.send_to_client(false, &message),
                AdmissionOutput::Ask(_) => {
                    self.admission.handle_input(self.now, AdmissionInput::Trust(self.trust));
                }
                AdmissionOutput::Waits(_) => self.waits = true,
                AdmissionOutput::Paired { psk, .. } => self.paired = Some(psk),
                AdmissionOutput::Done(ActivatedClient { hello, cipher, .. }) => {
                    let mut session = ClientSession::new(hello, cipher, self.now);
                    session.set_settings(self.now, ServerSettings::default());
                    self.session = Some(session);
                }
                AdmissionOutput::Fail(_) => {}
            }
        }
        let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
        while let Some(session) = &mut self.session
            && let Some(output) = session.poll_output()
        {
            is_busy = true;
            match output {
                ClientSessionOutput::Send(message) => {
                    session.write(&message, self.now, &mut writer, &mut frames);
                }
                ClientSessionOutput::Event(ClientSessionEvent::Command(command)) => {
                    self.commands.push(command);
                }
                ClientSessionOutput::Event(ClientSessionEvent::Artwork(request)) => {
                    self.request = Some(request);
                }
                _ => {}
            }
        }
        for (is_text, message) in messages(&frames) {
            self.send_to_client(is_text, &message);
        }
        is_busy
    }

    fn send_to_server(&mut self, is_text: bool, message: &[u8]) {
        match (&mut self.session, is_text) {
            (Some(session), _) => session.receive(self.now, is_text, message),
            (None, true) => {
                self.admission.handle_input(self.now, AdmissionInput::Text(message));
            }
            (None, false) => {
                self.admission.handle_input(self.now, AdmissionInput::Binary(message));
            }
        }
    }

    fn send_to_client(&mut self, is_text: bool, message: &[u8]) {
        self.client.handle_message(self.now, is_text, message);
        let mut frames = Vec::new();
        self.take(&mut frames, &mut WsWriter::default());
        for (is_text, message) in messages(&frames) {
            self.send_to_server(is_text, &message);
        }
    }

    /// Takes the client's outputs; whether there were any.
    fn take(&mut self, frames: &mut Vec<u8>, writer: &mut WsWriter) -> bool {
        let mut sent = Vec::new();
        let mut is_busy = false;
        while let Some(output) = self.client.poll_output() {
            is_busy = true;
            match output {
                SendspinClientOutput::Send(message) => {
                    sent.push(());
                    self.client.write(message, self.now, writer, frames);
                }
                SendspinClientOutput::Event(event) => self.events.push(event),
                SendspinClientOutput::Chunk { timestamp, payload } => {
                    self.chunks.push((timestamp, payload.to_vec()));
                }
            }
        }
        is_busy
    }

    /// Lets the server show this picture, and carries all its messages.
    fn show(&mut self, picture: Option<&[u8]>) {
        let session = self.session.as_mut().unwrap();
        let renditions = self.request.unwrap().renditions;
        let picture = picture.map(Arc::from);
        let pictures = renditions.map(|rendition| rendition.and_then(|_| picture.clone()));
        session.set_artwork(&ArtworkUpdate { renditions, pictures });
        let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
        while session.write_artwork(self.now, &mut writer, &mut frames) {}
        for (is_text, message) in messages(&frames) {
            self.send_to_client(is_text, &message);
        }
    }

    fn send_chunk(&mut self, timestamp: Instant, payload: &[u8]) {
        let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
        let chunk = AudioChunk { timestamp, duration: Span::from_millis(20), payload };
        let session = self.session.as_mut().unwrap();
        assert!(session.write_chunk(chunk, self.now, &mut writer, &mut frames));
        for (is_text, message) in messages(&frames) {
            self.send_to_client(is_text, &message);
        }
    }

    fn closed(&self) -> Option<SendspinClientError> {
        self.events.iter().find_map(|event| match event {
            SendspinClientEvent::Closed(error) => Some(*error),
            _ => None,
        })
    }
}

/// The messages in frames.
fn messages(mut frames: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let (mut reader, mut messages) = (WsReader::from_server(), Vec::new());
    while let Some(message) = reader.next(&mut frames).unwrap() {
        match message {
            WsMessage::Text(text) => messages.push((true, text.to_vec())),
            WsMessage::Binary(bytes) => messages.push((false, bytes.to_vec())),
            other => panic!("{other:?}"),
        }
    }
    messages
}

fn room() -> RoomState {
    RoomState {
        group_id: "group".to_owned(),
        group_name: "Group".to_owned(),
        playback: PlaybackState::Playing,
        track: TrackInfo { title: Some("Title".to_owned()), ..TrackInfo::default() },
        controller: ControllerState { can_skip: true, ..ControllerState::default() },
    }
}

fn approved() -> Trust {
    Trust { is_approved: true, ..Trust::default() }
}

#[test]
fn an_unpaired_server_plays_where_that_is_allowed() {
    let mut world = World::new(true, approved());
    world.run(1_000);
    assert_eq!(world.client.peer(), (Dialect::Current, ServerTrust::Unpaired));
    assert_eq!(world.client.activity(), ServerActivity::Playback);
    let line = world.client.clock(world.now).unwrap();
    assert!(line.offset_at(world.now).abs() <= Span::from_micros(1), "{line:?}");
    let session = world.session.as_mut().unwrap();
    let spec: SampleSpec = "48000:16:2".parse().unwrap();
    session.set_room(Arc::new(room()));
    session.set_stream(&codec_header(Codec::Pcm, spec, &[]).unwrap());
    world.run(0);
    assert_eq!(world.session.as_ref().unwrap().lead().output_delay, Span::from_millis(1_400));
    world.send_chunk(at(5_000), &[1, 2, 3, 4]);
    let buffer = ServerSettings::default().buffer;
    assert_eq!(world.chunks, [(at(5_000) + buffer, vec![1, 2, 3, 4])]);
    // A message in fragments.
    let long: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    world.send_chunk(at(5_020), &long);
    assert_eq!(world.chunks[1], (at(5_020) + buffer, long));
    assert!(world.events.contains(&SendspinClientEvent::Stream(PCM)), "{:?}", world.events);
    let title = world.events.iter().find_map(|event| match event {
        SendspinClientEvent::Track(_, track) => track.title.clone(),
        _ => None,
    });
    assert_eq!(title.as_deref(), Some("Title"));
    world.client.control(TransportCommand::Next);
    world.run(0);
    assert_eq!(world.commands, [ControllerCommand::Next]);
    world.session.as_mut().unwrap().end_stream();
    world.run(0);
    assert_eq!(world.events.last(), Some(&SendspinClientEvent::StreamEnded));
    world.client.close(SendspinClientError::AnotherServer);
    world.run(0);
    assert_eq!(world.closed(), Some(SendspinClientError::AnotherServer));
}

#[test]
fn the_picture_of_the_album_comes_from_the_server() {
    let mut world = World::new(true, approved());
    world.run(1_000);
    world.session.as_mut().unwrap().set_room(Arc::new(room()));
    world.run(0);
    world.now += Span::from_secs(2);
    world.session.as_mut().unwrap().handle_timeout(world.now);
    world.run(0);
    let wanted = world.request.unwrap().renditions;
    assert_eq!(wanted[0].map(|it| (it.width, it.height)), Some((640, 640)));
    assert_eq!(wanted[1..], [None; 3]);
    let picture: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    world.show(Some(&picture));
    let shown = SendspinClientEvent::Artwork(world.now, Some(Arc::from(picture)));
    assert_eq!(world.events.last(), Some(&shown));
    world.show(None);
    assert_eq!(world.events.last(), Some(&SendspinClientEvent::Artwork(world.now, None)));
    let end = json!({ "type": "stream/end", "payload": { "roles": ["artwork"] } }).to_string();
    for _ in 0..2 {
        world.client.text(world.now, end.as_bytes()).unwrap();
    }
    world.run(0);
    let ends = world.events.iter().filter(|event| **event == SendspinClientEvent::ArtworkEnded);
    assert_eq!((ends.count(), world.client.malformed()), (1, 0));
}

#[test]
fn a_server_is_paired_with_the_token_and_known_from_then_on() {
    let token = PairingToken::parse(&identity().pairing_token().to_text()).unwrap();
    assert_eq!(token.client, identity().id());
    let pairing = Trust { pairing: Some(Psk(token.psk)), ..Trust::default() };
    let mut world = World::new(false, pairing);
    world.run(100);
    let psk = world.paired.unwrap();
    assert_eq!(world.client.peer(), (Dialect::Current, ServerTrust::Paired));
    assert!(world.session.is_some());
    let mut later = World::new(false, Trust { paired: Some(psk), ..Trust::default() });
    later.run(100);
    assert!(later.session.is_some());
    assert_eq!(later.client.peer().1, ServerTrust::Paired);
    // A server that waits for its operator is paired on the same connection.
    let mut world = World::new(false, Trust::default());
    world.run(100);
    assert!(world.waits && world.session.is_none());
    world.admission.handle_input(world.now, AdmissionInput::Trust(pairing));
    world.run(100);
    assert_eq!((world.paired, world.closed()), (Some(psk), None));
    assert!(world.session.is_some());
}

#[test]
fn a_stranger_does_not_play_and_a_wrong_key_is_no_key() {
    let mut world = World::new(false, Trust { paired: Some(Psk([3; 32])), ..Trust::default() });
    world.run(100);
    // It has forgotten this server, which lets it wait.
    assert_eq!(world.client.peer(), (Dialect::Current, ServerTrust::Unpaired));
    assert!(world.waits && world.session.is_none());
    let activate = json!({ "activities": ["playback"], "active_roles": ["player@v1"] });
    assert_eq!(
        world.client.activate(world.now, &activate),
        Err(SendspinClientError::PairingRequired)
    );
    world.client.trust = ServerTrust::Pairing;
    let unauthorized = SendspinClientError::Unauthorized(ServerTrust::Pairing);
    assert_eq!(world.client.activate(world.now, &activate), Err(unauthorized));
}

#[test]
fn forged_repeated_and_early_messages_end_the_connection() {
    let mut world = World::new(true, approved());
    world.run(100);
    let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
    let session = world.session.as_mut().unwrap();
    session.set_room(Arc::new(room()));
    while let Some(ClientSessionOutput::Send(message)) = session.poll_output() {
        session.write(&message, world.now, &mut writer, &mut frames);
    }
    let sealed = messages(&frames).remove(0).1;
    for (earlier, bytes) in [
        (0, {
            let mut forged = sealed.clone();
            forged[7] ^= 1;
            forged
        }),
        (1, sealed.clone()),
        (0, Vec::new()),
    ] {
        let mut world = World::new(true, approved());
        world.run(100);
        let before = world.events.len();
        for _ in 0..earlier {
            world.send_to_client(false, &sealed);
        }
        world.send_to_client(false, &bytes);
        assert_eq!(world.closed(), Some(SendspinClientError::Forged), "{before}");
    }
    for (is_text, text, error) in [
        (true, r#"{"type": "server/error", "payload": {}}"#, SendspinClientError::Refused),
        (true, r#"{"type": "server/hello", "payload": {}}"#, SendspinClientError::Malformed),
        (true, "{", SendspinClientError::Malformed),
        (false, "{", SendspinClientError::OutOfOrder),
    ] {
        let mut client = SendspinClient::new(identity(), hello(true), DELAYS, ([9; 32], at(0)));
        client.handle_message(at(0), is_text, text.as_bytes());
        client.handle_message(at(0), is_text, text.as_bytes());
        client.handle_timeout(at(60_000));
        let mut closed = Vec::new();
        while let Some(output) = client.poll_output() {
            if let SendspinClientOutput::Event(SendspinClientEvent::Closed(why)) = output {
                closed.push(why);
            }
        }
        assert_eq!((closed, client.poll_timeout()), (vec![error], None));
    }
    let mut client = SendspinClient::new(identity(), hello(true), DELAYS, ([9; 32], at(0)));
    let deadline = client.poll_timeout().unwrap();
    client.handle_timeout(deadline);
    drop(client.poll_output());
    let timed_out = SendspinClientEvent::Closed(SendspinClientError::TimedOut);
    assert!(matches!(
        client.poll_output(),
        Some(SendspinClientOutput::Event(event)) if event == timed_out
    ));
}

proptest! {
    #[test]
    fn no_text_of_a_server_panics_or_is_kept(
        kind in "(server/(hello|activate|time|state|command)|stream/(start|clear|end)|group/update|noise/handshake)",
        texts in prop::collection::vec(".{0,100}", 0..20),
        numbers in prop::collection::vec(any::<i64>(), 20),
    ) {
        let mut world = World::new(true, approved());
        world.run(20);
        for (text, number) in texts.iter().zip(&numbers) {
            let payload = json!({
                "activities": ["playback", text], "active_roles": [text, "player@v1"],
                "client_transmitted": number, "server_received": number, "server_transmitted": 1,
                "player": { "codec": "pcm", "sample_rate": number, "channels": 2, "bit_depth": text },
                "metadata": { "timestamp": number, "title": text, "progress": number },
                "controller": { "supported_commands": [text, number] },
                "data": text, "name": text, "playback_state": text,
            });
            let bytes = json!({ "type": kind, "payload": payload }).to_string();
            world.client.text(world.now, bytes.as_bytes()).ok();
            world.client.text(world.now, text.as_bytes()).ok();
            prop_assert!(world.client.outputs.len() < 12);
            world.take(&mut Vec::new(), &mut WsWriter::default());
        }
    }

    #[test]
    fn no_message_panics(messages in prop::collection::vec(
        (any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..8
    )) {
        let mut client = SendspinClient::new(identity(), hello(true), DELAYS, ([9; 32], at(0)));
        for (is_text, message) in &messages {
            client.handle_message(at(0), *is_text, message);
        }
        prop_assert!(client.outputs.len() <= 2);
    }
}

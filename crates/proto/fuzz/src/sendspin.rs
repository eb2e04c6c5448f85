//! Sendspin: what a stranger says first, what a client without encryption says, and what servers say
//! with and without encryption.

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::sendspin::{
    Admission, AdmissionInput, AdmissionOutput, ArtworkRequest, ArtworkUpdate, ClientIdentity,
    ClientSession, ClientSessionEvent, ClientSessionOutput, ControllerState, MAX_ARTWORK_SIDE,
    MAX_PLAINTEXT, MessageCipher, PairingToken, PlaybackState, PlayerDelays, PlayerHello,
    RoomState, SendspinClient, SendspinClientOutput, ServerInfo, TrackInfo, Trust,
};
use aulos_proto::ws::{WsMessage, WsReader, WsWriter};

/// Lines, each one text of a client; those that begin with a zero are binary messages. A client that
/// is let in goes on with its session.
pub fn sendspin(data: &[u8]) {
    let server = Arc::new(ServerInfo::new("fuzz".to_owned(), [7; 32]));
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut admission = Admission::new(server, [8; 32], now);
    let mut session: Option<ClientSession> = None;
    let mut writer = WsWriter::default();
    for line in data.split(|byte| *byte == b'\n').take(MAX_LINES) {
        now += Span::from_millis(10);
        let is_text = line.first() != Some(&0);
        if let Some(session) = &mut session {
            session.receive(now, is_text, line);
            session.handle_timeout(now);
            let mut out = Vec::new();
            while let Some(output) = session.poll_output() {
                match output {
                    ClientSessionOutput::Send(message) => {
                        session.write(&message, now, &mut writer, &mut out);
                    }
                    ClientSessionOutput::Event(ClientSessionEvent::Artwork(request)) => {
                        show_picture(session, request);
                    }
                    _ => {}
                }
            }
            session.write_artwork(now, &mut writer, &mut out);
            assert!(out.len() < MAX_ANSWER, "{} bytes for {}", out.len(), line.len());
            continue;
        }
        let input = match is_text {
            true => AdmissionInput::Text(line),
            false => AdmissionInput::Binary(line),
        };
        admission.handle_input(now, input);
        while let Some(output) = admission.poll_output() {
            match output {
                AdmissionOutput::Ask(_) => {
                    let trust = Trust { allows_legacy: true, ..Trust::default() };
                    admission.handle_input(now, AdmissionInput::Trust(trust));
                }
                AdmissionOutput::Done(client) => {
                    assert!(client.cipher.is_none(), "encrypted without a key");
                    let client =
                        session.insert(ClientSession::new(client.hello, client.cipher, now));
                    client.set_room(Arc::new(room()));
                }
                _ => {}
            }
        }
    }
    drop(PairingToken::parse(&String::from_utf8_lossy(data)));
    server_texts(data);
}

fn room() -> RoomState {
    RoomState {
        group_id: String::new(),
        group_name: String::new(),
        playback: PlaybackState::Playing,
        track: TrackInfo::default(),
        controller: ControllerState::default(),
    }
}

/// Answers a client that wants pictures, which are never too large to make.
fn show_picture(session: &mut ClientSession, request: ArtworkRequest) {
    let renditions = request.renditions;
    for rendition in renditions.iter().flatten() {
        assert!((1..=MAX_ARTWORK_SIDE).contains(&rendition.width), "{rendition:?}");
        assert!((1..=MAX_ARTWORK_SIDE).contains(&rendition.height), "{rendition:?}");
    }
    let pictures = renditions.map(|rendition| rendition.map(|_| Arc::from([1; 4_000])));
    session.set_artwork(&ArtworkUpdate { renditions, pictures });
}

/// The same lines as those of a server: before a client knows its keys, and encrypted afterwards.
fn server_texts(data: &[u8]) {
    let now = Instant::from_nanos(1_000_000_000);
    let mut stranger = client(now);
    let mut known = client(now);
    let Some(mut cipher) = handshake(&mut known, now) else { panic!("our own server is refused") };
    let mut message = Vec::new();
    for line in data.split(|byte| *byte == b'\n').take(MAX_LINES) {
        stranger.handle_message(now, line.first() != Some(&0), line);
        messages_of(&mut stranger, now);
        let Some(plaintext) = line.get(..line.len().min(MAX_PLAINTEXT)) else { continue };
        message.clear();
        if cipher.encrypt(plaintext, &mut message).is_ok() {
            known.handle_message(now, false, &message);
            known.handle_timeout(now);
            let sent = messages_of(&mut known, now);
            let bytes: usize = sent.iter().map(|(_, message)| message.len()).sum();
            assert!(bytes < MAX_ANSWER, "{bytes} bytes for {}", line.len());
        }
    }
}

fn client(now: Instant) -> SendspinClient {
    let hello = PlayerHello {
        name: "fuzz".to_owned(),
        version: String::new(),
        formats: Vec::new(),
        buffer_capacity: 100_000,
        unpaired_access: true,
    };
    let identity = Arc::new(ClientIdentity::new([6; 32]));
    let delays = PlayerDelays { output_ms: 1_000, lead_ms: 250 };
    SendspinClient::new(identity, Arc::new(hello), delays, ([9; 32], now))
}

/// The server's cipher, once it has let the client in.
fn handshake(client: &mut SendspinClient, now: Instant) -> Option<Box<dyn MessageCipher>> {
    let server = Arc::new(ServerInfo::new("fuzz".to_owned(), [7; 32]));
    let mut admission = Admission::new(server, [8; 32], now);
    for _ in 0..MAX_LINES {
        for (is_text, message) in messages_of(client, now) {
            admission.handle_input(
                now,
                match is_text {
                    true => AdmissionInput::Text(&message),
                    false => AdmissionInput::Binary(&message),
                },
            );
        }
        while let Some(output) = admission.poll_output() {
            match output {
                AdmissionOutput::SendText(text) => {
                    client.handle_message(now, true, text.as_bytes());
                }
                AdmissionOutput::SendBinary(message) => {
                    client.handle_message(now, false, &message);
                }
                AdmissionOutput::Ask(_) => {
                    let trust = Trust { is_approved: true, ..Trust::default() };
                    admission.handle_input(now, AdmissionInput::Trust(trust));
                }
                AdmissionOutput::Done(client) => return client.cipher,
                _ => {}
            }
        }
    }
    None
}

/// What a client sends.
fn messages_of(client: &mut SendspinClient, now: Instant) -> Vec<(bool, Vec<u8>)> {
    let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
    while let Some(output) = client.poll_output() {
        if let SendspinClientOutput::Send(message) = output {
            client.write(message, now, &mut writer, &mut frames);
        }
    }
    let (mut bytes, mut reader, mut messages) = (&*frames, WsReader::from_server(), Vec::new());
    while let Ok(Some(message)) = reader.next(&mut bytes) {
        match message {
            WsMessage::Text(text) => messages.push((true, text.to_vec())),
            WsMessage::Binary(message) => messages.push((false, message.to_vec())),
            _ => {}
        }
    }
    messages
}

/// Messages that are tried.
const MAX_LINES: usize = 64;

/// What one message is answered with at most: states and commands.
const MAX_ANSWER: usize = 16 * 1_024;

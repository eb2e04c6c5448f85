//! Client and session connected to each other, and the client with faulty servers.

use std::sync::Arc;

use aulos_core::{Codec, HEADROOM, SampleSpec};
use proptest::prelude::*;

use super::super::wire::{
    ClientMessage, MessageStamp, Transport, codec_header, write_chunk_header,
};
use super::super::{Session, session};
use super::*;

fn at(micros: i64) -> Instant {
    Instant::ZERO + Span::from_secs(50) + Span::from_micros(micros)
}

fn client() -> SnapcastClient {
    SnapcastClient::new(
        ClientConfig { hello: Hello::new("me"), filter: OffsetFilter::default() },
        at(0),
    )
}

/// Takes all output of a client: its bytes for the server, and the rest as text.
fn drain(client: &mut SnapcastClient, now: Instant) -> (Vec<u8>, Vec<String>) {
    let (mut bytes, mut words) = (Vec::new(), Vec::new());
    while let Some(output) = client.poll_output() {
        match output {
            ClientOutput::Send(outgoing) => outgoing.write(now, &mut bytes),
            ClientOutput::Settings(settings) => words.push(format!("volume {}", settings.volume)),
            ClientOutput::Codec { codec, header } => {
                words.push(format!("{} {}", String::from_utf8_lossy(codec), header.len()));
            }
            ClientOutput::Chunk { timestamp, payload } => {
                words.push(format!("{} {payload:?}", (timestamp - at(0)).as_micros()));
            }
            ClientOutput::Close(cause) => words.push(format!("{cause:?}")),
        }
    }
    (bytes, words)
}

/// Takes all output of a session and answers its Hello event as a driver does.
fn serve(session: &mut Session, now: Instant, bytes: &[u8]) -> Vec<u8> {
    session.handle_input(now, session::SessionInput::Received(bytes));
    let mut out = Vec::new();
    while let Some(output) = session.poll_output() {
        match output {
            session::SessionOutput::Event(session::SessionEvent::Hello(_)) => {
                let settings = ServerSettings { volume: 42, ..ServerSettings::default() };
                session.handle_input(now, session::SessionInput::Settings(settings));
                let header = codec_header(Codec::Pcm, SampleSpec::DEFAULT, &[]).unwrap();
                session.handle_input(now, session::SessionInput::Stream(Arc::from(header)));
            }
            session::SessionOutput::Send(outgoing) => outgoing.write(now, &mut out),
            _ => {}
        }
    }
    out
}

fn chunk(sound: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADROOM];
    let used = write_chunk_header(&mut bytes, at(20), at(7), sound.len());
    [&bytes[HEADROOM - used..], sound].concat()
}

#[test]
fn the_two_sides_understand_each_other() {
    let (mut session, mut client) = (Session::new(at(0)), client());
    let (greeting, _) = drain(&mut client, at(0));
    let mut answer = serve(&mut session, at(1), &greeting);
    assert!(session.is_ready_for_audio());
    answer.extend(chunk(&[1, 2, 3]));
    client.handle_input(at(2), ClientInput::Received(&answer));
    let (_, words) = drain(&mut client, at(2));
    assert_eq!(words, ["volume 42", "pcm 44", "7 [1, 2, 3]"]);
    assert_eq!(client.poll_timeout(), Some(at(2)));

    client.handle_timeout(at(2));
    let (request, _) = drain(&mut client, at(3));
    let reply = serve(&mut session, at(5), &request);
    client.handle_input(at(7), ClientInput::Received(&reply));
    drain(&mut client, at(7));
    assert_eq!(client.sync().offset(at(7)), Some(Span::ZERO));
    assert_eq!(client.playout(at(7)), Some(at(1_000_007)));
}

#[test]
fn a_server_that_keeps_silent_is_dead() {
    let mut client = client();
    drain(&mut client, at(0));
    client.handle_timeout(at(2_000_000));
    assert_eq!(drain(&mut client, at(2_000_000)).1, ["NoAnswer"]);
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn what_would_crash_snapclient_is_not_accepted() {
    let header = |refers_to| {
        let mut bytes = Vec::new();
        ServerMessage::CodecHeader { codec: b"pcm", header: &[] }
            .write(MessageStamp { refers_to, ..MessageStamp::default() }, &mut bytes);
        bytes
    };
    for bytes in [header(0), header(HELLO_ID), chunk(&[])] {
        let mut client = client();
        drain(&mut client, at(0));
        client.handle_input(at(1), ClientInput::Received(&bytes));
        assert_eq!(drain(&mut client, at(1)).1, ["OutOfOrder"]);
    }
}

#[test]
fn a_refusal_has_its_reason() {
    let mut bytes = Vec::new();
    let refusal = session::Refusal::Unauthorized;
    session::ServerOutgoing::Error { refers_to: HELLO_ID, refusal }.write(at(0), &mut bytes);
    let mut client = client();
    drain(&mut client, at(0));
    client.handle_input(at(1), ClientInput::Framed(&bytes));
    assert_eq!(drain(&mut client, at(1)).1, ["Refused(401)"]);
}

#[test]
fn its_own_volume_reaches_the_server() {
    let mut client = client();
    drain(&mut client, at(0));
    let info = ClientInfo { volume: Some(3), muted: Some(true), report: None };
    client.handle_input(at(1), ClientInput::MixerChanged(info));
    let (bytes, _) = drain(&mut client, at(1));
    let Ok(ParsedMessage::Message(frame)) = parse_message(&bytes, MAX_MESSAGE) else {
        panic!("no message")
    };
    let message = ClientMessage::parse(&frame, Transport::Stream);
    assert_eq!(message, Ok(ClientMessage::ClientInfo(info)));
}

proptest! {
    #[test]
    fn chunks_are_assembled_from_any_segmentation(
        sounds in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
        cuts in prop::collection::vec(1..300_usize, 1..10),
    ) {
        let (mut session, mut client) = (Session::new(at(0)), client());
        let (greeting, _) = drain(&mut client, at(0));
        let mut bytes = serve(&mut session, at(1), &greeting);
        for sound in &sounds {
            bytes.extend(chunk(sound));
        }
        let (mut words, mut rest, mut cuts) = (Vec::new(), &bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            client.handle_input(at(2), ClientInput::Received(piece));
            words.extend(drain(&mut client, at(2)).1);
            rest = behind;
        }
        let wanted: Vec<_> = sounds.iter().map(|sound| format!("7 {sound:?}")).collect();
        prop_assert_eq!(&words[2..], &wanted[..]);
    }

    #[test]
    fn any_server_is_survived(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
        framed: bool,
    ) {
        let mut client = client();
        for piece in &pieces {
            let input = if framed { ClientInput::Framed(piece) } else { ClientInput::Received(piece) };
            client.handle_input(at(1), input);
            drain(&mut client, at(1));
        }
    }
}

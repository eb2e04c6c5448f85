//! Recorded messages of real peers, byte for byte: their meaning, and the same bytes when encoded
//! here.
//!
//! Each vector is `vectors/NAME.hex` with a description in `vectors/NAME.txt`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use aulos_core::{Codec, Instant, SampleSpec, Span};
use aulos_proto::snap::session::ServerOutgoing;
use aulos_proto::snap::wire::{
    ClientInfo, ClientMessage, HEADER_LEN, MAX_MESSAGE, MessageFrame, ParsedMessage, ServerMessage,
    ServerSettings, Transport, WireTime, codec_header, parse_framed, parse_message,
    write_chunk_header,
};

macro_rules! vector {
    ($name:literal) => {
        unhex(include_str!(concat!("vectors/", $name, ".hex")))
    };
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn frame(bytes: &[u8]) -> MessageFrame<'_> {
    match parse_message(bytes, MAX_MESSAGE) {
        Ok(ParsedMessage::Message(frame)) if HEADER_LEN + frame.payload.len() == bytes.len() => {
            frame
        }
        other => panic!("{other:?}"),
    }
}

const fn time(sec: i32, usec: i32) -> WireTime {
    WireTime { sec, usec }
}

fn instant(sec: i64, usec: i64) -> Instant {
    Instant::ZERO + Span::from_micros(sec * 1_000_000 + usec)
}

#[test]
fn snapclient_greets() {
    let bytes = vector!("hello");
    let frame = frame(&bytes);
    assert_eq!((frame.header.stamp.id, frame.header.stamp.refers_to), (2, 0));
    let Ok(ClientMessage::Hello(hello)) = ClientMessage::parse(&frame, Transport::Stream) else {
        panic!("no greeting")
    };
    assert_eq!(hello.client_id(), "kitchen#2");
    assert_eq!((hello.mac.as_str(), hello.host_name.as_str()), ("b8:27:eb:00:00:01", "pi"));
    assert_eq!((hello.client_name.as_str(), hello.version.as_str()), ("Snapclient", "0.26.0"));
    assert_eq!(
        (hello.os.as_str(), hello.arch.as_str()),
        ("Debian GNU/Linux 12 (bookworm)", "x86_64")
    );
    assert_eq!((hello.protocol_version, hello.auth), (2, None));
}

#[test]
fn snapweb_greets_with_two_wrong_lengths() {
    let bytes = vector!("hello_snapweb");
    let frame = parse_framed(&bytes).unwrap();
    let Ok(ClientMessage::Hello(hello)) = ClientMessage::parse(&frame, Transport::WebSocket) else {
        panic!("no greeting")
    };
    assert_eq!(hello.client_id(), "2f1a7c1e-0000-4000-8000-000000000001");
    assert_eq!(hello.host_name, "K\u{fc}che");
}

#[test]
fn our_answer_to_snapclients_time_request_is_snapservers() {
    let request = vector!("time_request");
    let request = frame(&request);
    assert_eq!(ClientMessage::parse(&request, Transport::Stream), Ok(ClientMessage::Time));
    let stamp = request.header.stamp;
    assert_eq!((stamp.id, stamp.sent), (3, time(3_471, 569_294)));

    let received = instant(3_472, 592_988);
    let reply = ServerOutgoing::Time { id: stamp.id, requested: stamp.sent, received };
    let mut bytes = Vec::new();
    reply.write(instant(3_472, 592_997), &mut bytes);
    assert_eq!(bytes, vector!("time_reply"));
    let latency = time(1, 23_694);
    assert_eq!(ServerMessage::parse(&frame(&bytes)), Ok(ServerMessage::Time { latency }));
}

#[test]
fn a_client_whose_clock_is_ahead() {
    let reply = ServerOutgoing::Time { id: 9, requested: time(9, 21), received: instant(7, 11) };
    let mut bytes = Vec::new();
    reply.write(instant(7, 20), &mut bytes);
    assert_eq!(bytes, vector!("time_reply_negative"));
}

#[test]
fn snapservers_settings() {
    let bytes = vector!("server_settings");
    let frame = frame(&bytes);
    assert_eq!((frame.header.stamp.id, frame.header.stamp.refers_to), (0, 2));
    let settings = ServerSettings {
        buffer: Span::from_secs(1),
        latency: Span::ZERO,
        volume: 100,
        muted: false,
    };
    assert_eq!(ServerMessage::parse(&frame), Ok(ServerMessage::Settings(settings)));
}

#[test]
fn our_codec_headers_are_snapservers() {
    for (codec, bytes) in
        [(Codec::Pcm, vector!("codec_header_pcm")), (Codec::Opus, vector!("codec_header_opus"))]
    {
        let payload = codec_header(codec, SampleSpec::DEFAULT, &[]).unwrap();
        assert_eq!(frame(&bytes).payload, payload, "{codec}");
    }
}

#[test]
fn our_chunk_header_equals_snapservers_except_an_unused_timestamp() {
    let bytes = vector!("wire_chunk");
    let timestamp = time(3_473, 580_122);
    let payload = &[0xfc, 0xff, 0xfe][..];
    let message = ServerMessage::parse(&frame(&bytes));
    assert_eq!(message, Ok(ServerMessage::WireChunk { timestamp, payload }));

    let mut ours = [0; 38];
    write_chunk_header(&mut ours, instant(3_473, 604_233), timestamp.to_instant(), payload.len());
    let mut theirs = bytes[..38].to_vec();
    theirs[14..22].fill(0);
    assert_eq!(&ours[..], &theirs[..]);
}

#[test]
fn a_client_turns_its_own_volume() {
    let bytes = vector!("client_info");
    let info = ClientInfo { volume: Some(74), muted: Some(true) };
    let message = ClientMessage::parse(&frame(&bytes), Transport::Stream);
    assert_eq!(message, Ok(ClientMessage::ClientInfo(info)));
}

#[test]
fn a_server_refuses() {
    let bytes = vector!("error");
    let frame = frame(&bytes);
    assert_eq!(frame.header.stamp.refers_to, 2);
    let error =
        ServerMessage::Error { code: 401, error: b"Unauthorized", detail: b"Login required" };
    assert_eq!(ServerMessage::parse(&frame), Ok(error));
    let mut ours = Vec::new();
    error.write(frame.header.stamp, &mut ours);
    assert_eq!(ours, bytes);
}

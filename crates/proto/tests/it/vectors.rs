//! Recorded messages of real peers, byte for byte: their meaning, and the same bytes when encoded
//! here.
//!
//! Each vector is `vectors/NAME.hex` with a description in `vectors/NAME.txt`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use aulos_core::{Codec, Frames, Instant, MediaTime, SampleSpec, Span};
use aulos_proto::nats::{
    ChunkHeader, ChunkMessage, ClockReply, ClockRequest, StreamRecord, origin_tag,
};
use aulos_proto::snap::session::ServerOutgoing;
use aulos_proto::snap::wire::{
    ClientInfo, ClientMessage, HEADER_LEN, MAX_MESSAGE, MessageFrame, ParsedMessage, ServerMessage,
    ServerSettings, Transport, WireTime, codec_header, parse_framed, parse_message,
    write_chunk_header,
};

macro_rules! vector {
    ($name:literal) => {
        unhex(include_str!(concat!("../vectors/", $name, ".hex")))
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
        report_interval: None,
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
    let info = ClientInfo { volume: Some(74), muted: Some(true), report: None };
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

#[test]
fn records_of_a_cluster_are_those_of_another_encoder() {
    let bytes = vector!("nats_chunk");
    let header = ChunkHeader {
        origin: origin_tag("K\u{fc}che"),
        epoch: 1_790_000_000,
        sequence: 1_234,
        first_frame: MediaTime(1_184_640),
        recorded: Instant::from_nanos(3_473_580_122_333),
        wall_nanos: 1_790_000_024_680_000_000,
        frames: Frames(960),
    };
    let chunk = ChunkMessage { header, payload: &[0xfc, 0xff, 0xfe] };
    assert_eq!(ChunkMessage::parse(&bytes), Ok(chunk));
    assert_eq!(written(|out| chunk.write(out)), bytes);

    let bytes = vector!("nats_stream");
    let opus = [b'S', b'U', b'P', b'O', 0x80, 0xbb, 0, 0, 16, 0, 2, 0];
    let record = StreamRecord {
        epoch: 1_790_000_000,
        is_leased: false,
        buffer: Span::from_secs(1),
        chunk: Frames(960),
        spec: SampleSpec::DEFAULT,
        node: "K\u{fc}che",
        codec: "opus",
        codec_header: &opus,
    };
    assert_eq!(StreamRecord::parse(&bytes), Ok(record));
    assert_eq!(written(|out| record.write(out)), bytes);

    let bytes = vector!("nats_clock_request");
    let request = ClockRequest { id: 513, sent: Instant::from_nanos(1_000_000_007) };
    assert_eq!(ClockRequest::parse(&bytes), Ok(request));
    assert_eq!(written(|out| request.write(out)), bytes);

    let bytes = vector!("nats_clock_reply");
    let sent = Instant::from_nanos(999_999_999);
    let reply = ClockReply { id: 513, latency: Span::from_nanos(-250), sent };
    assert_eq!(ClockReply::parse(&bytes), Ok(reply));
    assert_eq!(written(|out| reply.write(out)), bytes);
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

//! Every message that can be built is encoded and parsed back unchanged; no input causes a panic.

use aulos_core::{Ppm, Span};
use proptest::prelude::*;

use super::*;

fn roundtrip(message: &ClientMessage, framing: Transport) -> ClientMessage {
    let mut bytes = Vec::new();
    message.write(MessageStamp { id: 7, ..MessageStamp::default() }, &mut bytes);
    let Ok(ParsedMessage::Message(frame)) = parse_message(&bytes, MAX_MESSAGE) else {
        panic!("no message")
    };
    assert_eq!(frame.header.stamp.id, 7);
    ClientMessage::parse(&frame, framing).unwrap()
}

#[test]
fn a_greeting_needs_no_more_than_a_mac() {
    let hello = Hello::parse(br#"{"MAC":"b8:27:eb:00:11:22"}"#).unwrap();
    assert_eq!(hello.client_id(), "b8:27:eb:00:11:22");
    assert_eq!((hello.instance, hello.protocol_version), (1, 1));
    assert_eq!(Hello::parse(b"{}"), Err(PayloadError::NoIdentity));
    assert_eq!(Hello::parse(b"[1]"), Err(PayloadError::NoIdentity));
}

#[test]
fn numbers_and_nulls_are_accepted_as_strings() {
    let json = br#"{"ID":42,"MAC":null,"HostName":["x"],"Version":true,"Instance":"2","Arch":1.5}"#;
    let hello = Hello::parse(json).unwrap();
    assert_eq!(hello.client_id(), "42#2");
    assert_eq!((hello.host_name.as_str(), hello.version.as_str()), ("", "true"));
    assert_eq!(hello.arch, "1.5");
}

#[test]
fn the_id_is_bounded_and_never_cut() {
    let id = |length: usize| format!(r#"{{"ID":"{}"}}"#, "x".repeat(length));
    assert!(Hello::parse(id(MAX_ID).as_bytes()).is_ok());
    assert_eq!(Hello::parse(id(MAX_ID + 1).as_bytes()), Err(PayloadError::IdTooLong));
    let long = format!(r#"{{"ID":"a","HostName":"{}"}}"#, "\u{e4}".repeat(1_000));
    assert_eq!(Hello::parse(long.as_bytes()).unwrap().host_name.len(), MAX_TEXT);
}

#[test]
fn control_characters_do_not_reach_a_log() {
    let hello = Hello::parse(br#"{"ID":"a\nb\u0000\u001b[31m"}"#).unwrap();
    assert_eq!(hello.id, "ab[31m");
}

#[test]
fn a_password_is_not_printed() {
    let hello = Hello::parse(br#"{"ID":"a","Auth":{"scheme":"Plain","param":"me:secret"}}"#);
    let hello = hello.unwrap();
    assert_eq!(hello.auth.as_ref().unwrap().param, "me:secret");
    assert!(!format!("{hello:?}").contains("secret"));
}

#[test]
fn snapwebs_short_json_length_is_read_to_the_end_of_the_message() {
    let json = "{\"ID\":\"w\",\"HostName\":\"K\u{fc}che\"}".as_bytes();
    let units = u32::try_from(json.len() - 1).unwrap();
    let payload = [&units.to_le_bytes(), json].concat();
    let size = u32::try_from(payload.len() + HEADER_LEN).unwrap();
    let header = MessageHeader { kind: MessageKind::Hello, stamp: MessageStamp::default(), size };
    let bytes = [&header.to_bytes()[..], &payload].concat();
    let frame = parse_framed(&bytes).unwrap();
    let Ok(ClientMessage::Hello(hello)) = ClientMessage::parse(&frame, Transport::WebSocket) else {
        panic!("no greeting")
    };
    assert_eq!(hello.host_name, "K\u{fc}che");
    assert!(ClientMessage::parse(&frame, Transport::Stream).is_err());
}

#[test]
fn volumes_are_clamped() {
    let info = ClientInfo::parse(br#"{"volume":1e9}"#).unwrap();
    assert_eq!(info, ClientInfo { volume: Some(100), muted: None, report: None });
    assert_eq!(ServerSettings::parse(br#"{"volume":-3}"#).unwrap().volume, 0);
    assert_eq!(ServerSettings::parse(b"{}").unwrap(), ServerSettings::default());
}

fn server_roundtrip(message: &ServerMessage<'_>, stamp: MessageStamp) {
    let mut bytes = vec![1, 2, 3];
    message.write(stamp, &mut bytes);
    let Ok(ParsedMessage::Message(frame)) = parse_message(&bytes[3..], MAX_MESSAGE) else {
        panic!("no message")
    };
    assert_eq!(frame.payload.len() + HEADER_LEN + 3, bytes.len());
    assert_eq!(frame.header.stamp, stamp);
    assert_eq!(ServerMessage::parse(&frame), Ok(*message));
}

proptest! {
    #[test]
    fn hello_messages_round_trip(
        texts in prop::array::uniform7("[^\\p{Cc}]{0,40}"), id in "[^\\p{Cc}]{1,30}",
        instance: u32, protocol_version: u32, auth: bool,
    ) {
        let [mac, host_name, version, client_name, os, arch, param] = texts;
        let hello = Hello {
            mac, host_name, version, client_name, os, arch, instance, id, protocol_version,
            auth: auth.then(|| Auth { scheme: "Plain".to_owned(), param }),
        };
        for framing in [Transport::Stream, Transport::WebSocket] {
            let sent = ClientMessage::Hello(Box::new(hello.clone()));
            prop_assert_eq!(roundtrip(&sent, framing), sent);
        }
    }

    #[test]
    fn client_messages_round_trip(
        volume in prop::option::of(0..=100_u8), muted: Option<bool>,
        times in prop::option::of(prop::array::uniform3(prop::option::of(-100_000_000..=100_000_000_i64))),
        drift: i32, counts: [u32; 4],
    ) {
        let report = times.map(|[sync_error, clock_error, device_delay]| PlayerReport {
            sync_error: sync_error.map(Span::from_micros),
            clock_error: clock_error.map(Span::from_micros),
            drift: Ppm::from_ppb(drift),
            device_delay: device_delay.map(Span::from_micros),
            cuts: counts[0].into(),
            underruns: counts[1].into(),
            device_underruns: counts[2].into(),
            lost: counts[3].into(),
        });
        let info = ClientMessage::ClientInfo(ClientInfo { volume, muted, report });
        for sent in [info, ClientMessage::Time, ClientMessage::Ignored(MessageKind::StreamTags)] {
            prop_assert_eq!(roundtrip(&sent, Transport::Stream), sent);
        }
    }

    #[test]
    fn server_messages_round_trip(
        a in prop::collection::vec(any::<u8>(), 0..300), b: Vec<u8>, code: u32,
        times: [i32; 6], id: u16, refers_to: u16, volume in 0..=100_u8, muted: bool,
        buffer in 0..i64::from(i32::MAX), latency in -10_000..10_000_i64,
        report in prop::option::of(500..10_000_i64),
    ) {
        let time = |at: usize| WireTime { sec: times[at], usec: times[at + 1] };
        let stamp = MessageStamp { id, refers_to, sent: time(0), received: time(2) };
        let settings = ServerSettings {
            buffer: Span::from_millis(buffer), latency: Span::from_millis(latency), volume, muted,
            report_interval: report.map(Span::from_millis),
        };
        for message in [
            ServerMessage::CodecHeader { codec: &b, header: &a },
            ServerMessage::WireChunk { timestamp: time(4), payload: &a },
            ServerMessage::Settings(settings),
            ServerMessage::Time { latency: time(4) },
            ServerMessage::Error { code, error: &a, detail: &b },
            ServerMessage::Ignored(MessageKind::StreamTags),
        ] {
            server_roundtrip(&message, stamp);
        }
    }

    #[test]
    fn any_payload_is_parsed_or_rejected(number in 0..9_u16, payload: Vec<u8>) {
        let kind = MessageKind::from_number(number).unwrap();
        let size = u32::try_from(payload.len()).unwrap();
        let frame =
            MessageFrame { header: MessageHeader { kind, stamp: MessageStamp::default(), size }, payload: &payload };
        drop(ClientMessage::parse(&frame, Transport::Stream));
        drop(ClientMessage::parse(&frame, Transport::WebSocket));
        let _ = ServerMessage::parse(&frame);
    }

    #[test]
    fn any_json_is_parsed_or_rejected(json in "[\\[\\]{}\":,0-9a-zA-Z\\\\ .-]{0,200}") {
        drop(Hello::parse(json.as_bytes()));
        let _ = ClientInfo::parse(json.as_bytes());
        let _ = ServerSettings::parse(json.as_bytes());
    }
}

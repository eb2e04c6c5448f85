//! Order of messages, timestamps of a Time reply, and reactions to faulty peers.

use proptest::prelude::*;

use super::super::wire::{
    HEADER_LEN, MAX_MESSAGE, MessageHeader, MessageStamp, ParsedMessage, ServerMessage, WireTime,
    parse_message,
};
use super::*;

fn at(millis: i64) -> Instant {
    Instant::ZERO + Span::from_secs(1_000) + Span::from_millis(millis)
}

fn message(kind: MessageKind, id: u16, payload: &[u8]) -> Vec<u8> {
    let stamp =
        MessageStamp { id, sent: WireTime { sec: 5, usec: 250_000 }, ..MessageStamp::default() };
    let header = MessageHeader { kind, stamp, size: u32::try_from(payload.len()).unwrap() };
    [&header.to_bytes()[..], payload].concat()
}

fn hello(id: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = ClientMessage::Hello(Box::new(Hello::new("me")));
    hello.write(MessageStamp { id, ..MessageStamp::default() }, &mut bytes);
    bytes
}

fn info(json: &str) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap();
    message(MessageKind::ClientInfo, 0, &[&length.to_le_bytes()[..], json.as_bytes()].concat())
}

fn drain(session: &mut Session) -> Vec<SessionOutput> {
    core::iter::from_fn(|| session.poll_output()).collect()
}

fn receive(session: &mut Session, millis: i64, bytes: &[u8]) -> Vec<SessionOutput> {
    session.handle_input(at(millis), SessionInput::Received(bytes));
    drain(session)
}

/// A session that is streaming.
fn playing() -> Session {
    let mut session = Session::new(at(0));
    receive(&mut session, 1, &hello(2));
    session.handle_input(at(1), SessionInput::Settings(ServerSettings::default()));
    session.handle_input(at(1), SessionInput::Stream(Arc::from(&b"codec"[..])));
    drain(&mut session);
    session
}

fn time_ids(outputs: &[SessionOutput]) -> Vec<u16> {
    let id = |output: &SessionOutput| match output {
        SessionOutput::Send(ServerOutgoing::Time { id, .. }) => Some(*id),
        _ => None,
    };
    outputs.iter().filter_map(id).collect()
}

#[test]
fn the_hello_is_answered_with_settings_codec_header_and_time() {
    let mut session = Session::new(at(0));
    let both = [hello(2), message(MessageKind::Time, 3, &[0; 8])].concat();
    let outputs = receive(&mut session, 1, &both);
    assert_eq!(outputs, [SessionOutput::Event(SessionEvent::Hello(Box::new(Hello::new("me"))))]);
    assert!(!session.is_ready_for_audio());

    session.handle_input(at(2), SessionInput::Stream(Arc::from(&b"codec"[..])));
    assert_eq!(drain(&mut session), []);
    session.handle_input(at(3), SessionInput::Settings(ServerSettings::default()));
    let outputs = drain(&mut session);
    let settings = ServerOutgoing::Settings { refers_to: 2, settings: ServerSettings::default() };
    assert_eq!(outputs[0], SessionOutput::Send(settings));
    assert_eq!(time_ids(&outputs[1..2]), [3]);
    assert_eq!(
        outputs[2],
        SessionOutput::Send(ServerOutgoing::CodecHeader(Arc::from(&b"codec"[..])))
    );
    assert_eq!(outputs.len(), 3);
    assert!(session.is_ready_for_audio());
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn later_settings_answer_nothing_and_a_station_change_is_a_new_codec_header() {
    let mut session = playing();
    let quiet = ServerSettings { volume: 10, ..ServerSettings::default() };
    session.handle_input(at(9), SessionInput::Settings(quiet));
    session.handle_input(at(9), SessionInput::Stream(Arc::from(&b"other"[..])));
    let wanted = [
        SessionOutput::Send(ServerOutgoing::Settings { refers_to: 0, settings: quiet }),
        SessionOutput::Send(ServerOutgoing::CodecHeader(Arc::from(&b"other"[..]))),
    ];
    assert_eq!(drain(&mut session), wanted);
    assert!(session.is_ready_for_audio());
}

#[test]
fn a_time_reply_has_both_stamps_and_the_difference() {
    let mut session = playing();
    let outputs = receive(&mut session, 20, &message(MessageKind::Time, 77, &[0; 8]));
    let [SessionOutput::Send(reply)] = &outputs[..] else { panic!("{outputs:?}") };
    let mut bytes = Vec::new();
    reply.write(at(20) + Span::from_micros(9), &mut bytes);
    let Ok(ParsedMessage::Message(frame)) = parse_message(&bytes, MAX_MESSAGE) else {
        panic!("no message")
    };
    let stamp = frame.header.stamp;
    assert_eq!((stamp.id, stamp.refers_to), (77, 77));
    assert_eq!(stamp.received, WireTime { sec: 1_000, usec: 20_000 });
    assert_eq!(stamp.sent, WireTime { sec: 1_000, usec: 20_009 });
    let latency = WireTime { sec: 994, usec: 770_000 };
    assert_eq!(ServerMessage::parse(&frame), Ok(ServerMessage::Time { latency }));
}

#[test]
fn a_client_whose_clock_is_ahead_gets_a_negative_difference_in_timeval_form() {
    let requested = WireTime { sec: 2_000, usec: 1 };
    let reply = ServerOutgoing::Time { id: 1, requested, received: at(0) };
    let mut bytes = Vec::new();
    reply.write(at(0), &mut bytes);
    assert_eq!(bytes[HEADER_LEN..], WireTime { sec: -1_001, usec: 999_999 }.to_le_bytes());
}

#[test]
fn a_connection_without_a_hello_times_out() {
    let mut session = Session::new(at(0));
    assert_eq!(session.poll_timeout(), Some(at(5_000)));
    assert_eq!(receive(&mut session, 4_999, &hello(2)[..30]), []);
    session.handle_timeout(at(5_000));
    assert_eq!(drain(&mut session), [SessionOutput::Close(CloseReason::NoHello)]);
    assert_eq!(session.poll_timeout(), None);
    assert_eq!(receive(&mut session, 5_001, &hello(2)[30..]), []);
}

#[test]
fn a_greeting_after_the_deadline_is_late_even_when_the_timer_is_later_still() {
    let mut session = Session::new(at(0));
    assert_eq!(
        receive(&mut session, 6_000, &hello(2)),
        [SessionOutput::Close(CloseReason::NoHello)]
    );
}

#[test]
fn every_lie_has_its_cause() {
    let header = |kind, size| {
        MessageHeader { kind, stamp: MessageStamp::default(), size }.to_bytes().to_vec()
    };
    let blob = |length: u32, json: &str| [&length.to_le_bytes()[..], json.as_bytes()].concat();
    let cases = [
        (CloseReason::BadType, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        (CloseReason::TooLarge, header(MessageKind::Hello, 65_537)),
        (CloseReason::TooLarge, header(MessageKind::Base, u32::MAX)),
        (CloseReason::BadHello, message(MessageKind::Hello, 1, &blob(99, "{}"))),
        (CloseReason::BadHello, message(MessageKind::Hello, 1, &blob(u32::MAX, "{}"))),
        (CloseReason::BadHello, message(MessageKind::Hello, 1, &blob(2, "{}"))),
        (CloseReason::BadHello, message(MessageKind::Hello, 1, b"")),
        (CloseReason::SecondHello, [hello(1), hello(2)].concat()),
        (CloseReason::TooLarge, [hello(1), header(MessageKind::Time, 1_000_001)].concat()),
        (
            CloseReason::Malformed,
            [hello(1), message(MessageKind::ClientInfo, 0, &blob(5, "{]"))].concat(),
        ),
    ];
    for (cause, bytes) in cases {
        let outputs = receive(&mut Session::new(at(0)), 1, &bytes);
        assert_eq!(outputs.last(), Some(&SessionOutput::Close(cause)), "{bytes:?}");
    }
}

/// A web page of any origin can make a browser send such a request with any body.
#[test]
fn a_hello_in_the_body_of_an_http_request_is_ignored() {
    for method in ["GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "PATCH", "CONNECT"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: 127.0.0.1:1704\r\n\r\n");
        let request =
            [head.as_bytes(), &hello(2), &message(MessageKind::Time, 3, &[0; 8])].concat();
        for piece in [1, 7, 26, request.len()] {
            let mut session = Session::new(at(0));
            let outputs: Vec<SessionOutput> =
                request.chunks(piece).flat_map(|piece| receive(&mut session, 1, piece)).collect();
            assert_eq!(
                outputs,
                [SessionOutput::Close(CloseReason::BadType)],
                "{method}, {piece} bytes at once"
            );
        }
    }
}

#[test]
fn legal_messages_that_mean_nothing_here_are_passed_over() {
    let mut session = playing();
    let nothing = [
        message(MessageKind::Base, 0, &[]),
        message(MessageKind::WireChunk, 0, b"sound"),
        message(MessageKind::StreamTags, 0, b"{}"),
    ];
    assert_eq!(receive(&mut session, 9, &nothing.concat()), []);
    assert_eq!(session.stats().ignored, 3);
    assert!(session.is_ready_for_audio());
}

#[test]
fn a_megabyte_that_means_nothing_is_not_kept() {
    let mut session = playing();
    let bytes = message(MessageKind::StreamTags, 0, &vec![0; MAX_MESSAGE]);
    for piece in bytes.chunks(10_000) {
        assert_eq!(receive(&mut session, 9, piece), []);
        assert!(session.assembly.capacity() <= MAX_READ + HEADER_LEN);
    }
    assert_eq!(session.stats().ignored, 1);
    assert_eq!(time_ids(&receive(&mut session, 10, &message(MessageKind::Time, 4, &[0; 8]))), [4]);
}

#[test]
fn an_idle_session_keeps_no_buffer_of_a_busy_past() {
    let mut session = playing();
    let big = info(&format!(r#"{{"volume":1,"pad":"{}"}}"#, "x".repeat(60_000)));
    receive(&mut session, 9, &big[..50_000]);
    receive(&mut session, 9, &big[50_000..]);
    assert!(session.assembly.capacity() <= 256);
    let idle = size_of::<Session>() + 256 + IDLE_OUTPUTS * size_of::<SessionOutput>();
    assert!(idle <= 1_536, "{idle} bytes");
}

#[test]
fn snapclients_fifty_requests_are_answered_and_a_flood_is_not() {
    let mut session = playing();
    let requests = |from: u16, to: u16| {
        (from..to).flat_map(|id| message(MessageKind::Time, id, &[0; 8])).collect::<Vec<u8>>()
    };
    assert_eq!(time_ids(&receive(&mut session, 2, &requests(1, 51))).len(), 50);
    let answered = time_ids(&receive(&mut session, 3, &requests(1, 1_001))).len();
    assert_eq!(answered, 206);
    assert_eq!(session.stats().unanswered, 794);
    assert_eq!(time_ids(&receive(&mut session, 1_003, &requests(1, 200))).len(), 100);
    let outputs = receive(&mut session, 1_003, &requests(0, 10_000));
    assert_eq!(outputs, [SessionOutput::Close(CloseReason::TimeFlood)]);
}

#[test]
fn a_volume_that_is_dragged_is_one_event() {
    let mut session = playing();
    let dragged = [info(r#"{"volume":1,"muted":true}"#), info(r#"{"volume":2}"#)].concat();
    let last = ClientInfo { volume: Some(2), muted: Some(true), report: None };
    assert_eq!(
        receive(&mut session, 2, &dragged),
        [SessionOutput::Event(SessionEvent::ClientInfo(last))]
    );
}

#[test]
fn a_rejected_client_gets_the_reason_and_is_disconnected() {
    let mut session = Session::new(at(0));
    receive(&mut session, 1, &hello(9));
    session.handle_input(at(2), SessionInput::Refuse(Refusal::Unauthorized));
    let error = ServerOutgoing::Error { refers_to: 9, refusal: Refusal::Unauthorized };
    assert_eq!(
        drain(&mut session),
        [SessionOutput::Send(error), SessionOutput::Close(CloseReason::Refused)]
    );
}

#[test]
fn a_websocket_message_has_the_size_of_its_frame() {
    let mut session = Session::new(at(0));
    let mut bytes = hello(2);
    bytes[22..26].copy_from_slice(&u32::MAX.to_le_bytes());
    session.handle_input(at(1), SessionInput::Framed(&bytes));
    assert!(matches!(drain(&mut session)[..], [SessionOutput::Event(SessionEvent::Hello(_))]));
    session.handle_input(at(1), SessionInput::Framed(b"short"));
    assert_eq!(drain(&mut session), [SessionOutput::Close(CloseReason::Malformed)]);
}

#[test]
fn time_that_runs_backwards_is_counted_and_clamped() {
    let mut session = playing();
    receive(&mut session, 100, &[]);
    let outputs = receive(&mut session, 50, &message(MessageKind::Time, 4, &[0; 8]));
    let requested = WireTime { sec: 5, usec: 250_000 };
    assert_eq!(
        outputs,
        [SessionOutput::Send(ServerOutgoing::Time { id: 4, requested, received: at(100) })]
    );
    assert_eq!(session.stats().backwards, 1);
}

/// Messages that a client may send, valid and invalid.
fn any_messages() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        4 => any::<u16>().prop_map(|id| message(MessageKind::Time, id, &[0; 8])),
        2 => any::<u16>().prop_map(hello),
        2 => (0..200_u8).prop_map(|volume| info(&format!(r#"{{"volume":{volume}}}"#))),
        1 => (0..9_u16, prop::collection::vec(any::<u8>(), 0..100)).prop_map(|(kind, payload)| {
            message(MessageKind::from_number(kind).unwrap(), 0, &payload)
        }),
        1 => (MAX_READ - 5..MAX_READ + 5).prop_map(|size| {
            message(MessageKind::StreamTags, 0, &vec![1; size])
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(one, 0..12).prop_map(|messages| messages.concat())
}

/// Output for bytes in these pieces, without the volume events, because the number of merged ones
/// depends on the reads.
fn outcome(bytes: &[u8], cuts: &[usize]) -> (Vec<SessionOutput>, SessionStats) {
    let mut session = Session::new(at(0));
    let (mut outputs, mut rest) = (Vec::new(), bytes);
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        rest = behind;
        session.handle_input(at(1), SessionInput::Received(piece));
        while let Some(output) = session.poll_output() {
            if matches!(output, SessionOutput::Event(SessionEvent::Hello(_))) {
                session.handle_input(at(1), SessionInput::Settings(ServerSettings::default()));
            }
            if !matches!(output, SessionOutput::Event(SessionEvent::ClientInfo(_))) {
                outputs.push(output);
            }
        }
    }
    // Outputs that wait for the settings are lost when the peer is disconnected in the same read,
    // and follow them otherwise.
    if outputs.iter().any(|output| matches!(output, SessionOutput::Close(_))) {
        outputs.retain(|output| !matches!(output, SessionOutput::Send(_)));
    }
    outputs.sort_by_key(|output| format!("{output:?}"));
    (outputs, session.stats())
}

proptest! {
    #[test]
    fn how_the_bytes_are_cut_does_not_matter(
        hello_id in prop::option::of(any::<u16>()), tail in any_messages(),
        cuts in prop::collection::vec(1..50_usize, 1..20),
    ) {
        let bytes = [hello_id.map(hello).unwrap_or_default(), tail].concat();
        let whole = outcome(&bytes, &[usize::MAX]);
        prop_assert_eq!(&outcome(&bytes, &cuts), &whole);
        prop_assert_eq!(&outcome(&bytes, &[1]), &whole);
        prop_assert!(whole.0.iter().filter(|output| matches!(output, SessionOutput::Close(_))).count() <= 1);
    }

    #[test]
    fn there_is_no_output_after_the_end(ops in prop::collection::vec((0..5_u8, any_messages()), 0..12)) {
        let mut session = Session::new(at(0));
        let mut ended = false;
        for (millis, (op, bytes)) in (0_i64..).step_by(900).zip(ops) {
            let input = match op {
                0 => SessionInput::Settings(ServerSettings::default()),
                1 => SessionInput::Stream(Arc::from(&b"x"[..])),
                2 => SessionInput::Framed(&bytes),
                3 if bytes.len() % 7 == 0 => SessionInput::Refuse(Refusal::Forbidden),
                _ => SessionInput::Received(&bytes),
            };
            session.handle_input(at(millis), input);
            for output in drain(&mut session) {
                prop_assert!(!ended, "{output:?} after the end");
                ended = matches!(output, SessionOutput::Close(_));
            }
            prop_assert!(!ended || !session.is_ready_for_audio());
        }
    }
}

//! The order of messages, the stamps of a Time reply, and what is done to peers that lie.

use proptest::prelude::*;

use super::super::wire::{
    HEADER_LEN, Header, MAX_MESSAGE, Parsed, ServerMessage, Stamp, WireTime, parse,
};
use super::*;

fn at(millis: i64) -> Instant {
    Instant::ZERO + Span::from_secs(1_000) + Span::from_millis(millis)
}

fn message(kind: Kind, id: u16, payload: &[u8]) -> Vec<u8> {
    let stamp = Stamp { id, sent: WireTime { sec: 5, usec: 250_000 }, ..Stamp::default() };
    let header = Header { kind, stamp, size: u32::try_from(payload.len()).unwrap() };
    [&header.emit()[..], payload].concat()
}

fn hello(id: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = ClientMessage::Hello(Box::new(Hello::new("me")));
    hello.write(Stamp { id, ..Stamp::default() }, &mut bytes);
    bytes
}

fn info(json: &str) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap();
    message(Kind::ClientInfo, 0, &[&length.to_le_bytes()[..], json.as_bytes()].concat())
}

fn drain(session: &mut Session) -> Vec<Output> {
    core::iter::from_fn(|| session.poll_output()).collect()
}

fn receive(session: &mut Session, millis: i64, bytes: &[u8]) -> Vec<Output> {
    session.handle_input(at(millis), Input::Received(bytes));
    drain(session)
}

/// A session that plays.
fn playing() -> Session {
    let mut session = Session::new(at(0));
    receive(&mut session, 1, &hello(2));
    session.handle_input(at(1), Input::Settings(ServerSettings::default()));
    session.handle_input(at(1), Input::Stream(Arc::from(&b"codec"[..])));
    drain(&mut session);
    session
}

fn time_ids(outputs: &[Output]) -> Vec<u16> {
    let id = |output: &Output| match output {
        Output::Send(Outgoing::Time { id, .. }) => Some(*id),
        _ => None,
    };
    outputs.iter().filter_map(id).collect()
}

#[test]
fn settings_answer_the_greeting_then_comes_the_codec_then_the_time() {
    let mut session = Session::new(at(0));
    let both = [hello(2), message(Kind::Time, 3, &[0; 8])].concat();
    let outputs = receive(&mut session, 1, &both);
    assert_eq!(outputs, [Output::Event(Event::Hello(Box::new(Hello::new("me"))))]);
    assert!(!session.wants_audio());

    session.handle_input(at(2), Input::Stream(Arc::from(&b"codec"[..])));
    assert_eq!(drain(&mut session), []);
    session.handle_input(at(3), Input::Settings(ServerSettings::default()));
    let outputs = drain(&mut session);
    let settings = Outgoing::Settings { refers_to: 2, settings: ServerSettings::default() };
    assert_eq!(outputs[0], Output::Send(settings));
    assert_eq!(time_ids(&outputs[1..2]), [3]);
    assert_eq!(outputs[2], Output::Send(Outgoing::CodecHeader(Arc::from(&b"codec"[..]))));
    assert_eq!(outputs.len(), 3);
    assert!(session.wants_audio());
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn later_settings_answer_nothing_and_a_station_change_is_a_new_codec_header() {
    let mut session = playing();
    let quiet = ServerSettings { volume: 10, ..ServerSettings::default() };
    session.handle_input(at(9), Input::Settings(quiet));
    session.handle_input(at(9), Input::Stream(Arc::from(&b"other"[..])));
    let wanted = [
        Output::Send(Outgoing::Settings { refers_to: 0, settings: quiet }),
        Output::Send(Outgoing::CodecHeader(Arc::from(&b"other"[..]))),
    ];
    assert_eq!(drain(&mut session), wanted);
    assert!(session.wants_audio());
}

#[test]
fn a_time_reply_has_both_stamps_and_the_difference() {
    let mut session = playing();
    let outputs = receive(&mut session, 20, &message(Kind::Time, 77, &[0; 8]));
    let [Output::Send(reply)] = &outputs[..] else { panic!("{outputs:?}") };
    let mut bytes = Vec::new();
    reply.write(at(20) + Span::from_micros(9), &mut bytes);
    let Ok(Parsed::Message(frame)) = parse(&bytes, MAX_MESSAGE) else { panic!("no message") };
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
    let reply = Outgoing::Time { id: 1, requested, received: at(0) };
    let mut bytes = Vec::new();
    reply.write(at(0), &mut bytes);
    assert_eq!(bytes[HEADER_LEN..], WireTime { sec: -1_001, usec: 999_999 }.to_le_bytes());
}

#[test]
fn nobody_stays_without_a_greeting() {
    let mut session = Session::new(at(0));
    assert_eq!(session.poll_timeout(), Some(at(5_000)));
    assert_eq!(receive(&mut session, 4_999, &hello(2)[..30]), []);
    session.handle_timeout(at(5_000));
    assert_eq!(drain(&mut session), [Output::Close(Cause::NoHello)]);
    assert_eq!(session.poll_timeout(), None);
    assert_eq!(receive(&mut session, 5_001, &hello(2)[30..]), []);
}

#[test]
fn a_greeting_after_the_deadline_is_late_even_when_the_timer_is_later_still() {
    let mut session = Session::new(at(0));
    assert_eq!(receive(&mut session, 6_000, &hello(2)), [Output::Close(Cause::NoHello)]);
}

#[test]
fn every_lie_has_its_cause() {
    let header = |kind, size| Header { kind, stamp: Stamp::default(), size }.emit().to_vec();
    let blob = |length: u32, json: &str| [&length.to_le_bytes()[..], json.as_bytes()].concat();
    let cases = [
        (Cause::BadType, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        (Cause::TooLarge, header(Kind::Hello, 65_537)),
        (Cause::TooLarge, header(Kind::Base, u32::MAX)),
        (Cause::BadHello, message(Kind::Hello, 1, &blob(99, "{}"))),
        (Cause::BadHello, message(Kind::Hello, 1, &blob(u32::MAX, "{}"))),
        (Cause::BadHello, message(Kind::Hello, 1, &blob(2, "{}"))),
        (Cause::BadHello, message(Kind::Hello, 1, b"")),
        (Cause::SecondHello, [hello(1), hello(2)].concat()),
        (Cause::TooLarge, [hello(1), header(Kind::Time, 1_000_001)].concat()),
        (Cause::Malformed, [hello(1), message(Kind::ClientInfo, 0, &blob(5, "{]"))].concat()),
    ];
    for (cause, bytes) in cases {
        let outputs = receive(&mut Session::new(at(0)), 1, &bytes);
        assert_eq!(outputs.last(), Some(&Output::Close(cause)), "{bytes:?}");
    }
}

/// A web page of any origin can make a browser send such a request, and chooses its body.
#[test]
fn a_greeting_in_the_body_of_an_http_request_is_not_heard() {
    for method in ["GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "PATCH", "CONNECT"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: 127.0.0.1:1704\r\n\r\n");
        let request = [head.as_bytes(), &hello(2), &message(Kind::Time, 3, &[0; 8])].concat();
        for piece in [1, 7, 26, request.len()] {
            let mut session = Session::new(at(0));
            let outputs: Vec<Output> =
                request.chunks(piece).flat_map(|piece| receive(&mut session, 1, piece)).collect();
            assert_eq!(outputs, [Output::Close(Cause::BadType)], "{method}, {piece} bytes at once");
        }
    }
}

#[test]
fn legal_messages_that_mean_nothing_here_are_passed_over() {
    let mut session = playing();
    let nothing = [
        message(Kind::Base, 0, &[]),
        message(Kind::WireChunk, 0, b"sound"),
        message(Kind::StreamTags, 0, b"{}"),
    ];
    assert_eq!(receive(&mut session, 9, &nothing.concat()), []);
    assert_eq!(session.counts().ignored, 3);
    assert!(session.wants_audio());
}

#[test]
fn a_megabyte_that_means_nothing_is_not_kept() {
    let mut session = playing();
    let bytes = message(Kind::StreamTags, 0, &vec![0; MAX_MESSAGE]);
    for piece in bytes.chunks(10_000) {
        assert_eq!(receive(&mut session, 9, piece), []);
        assert!(session.assembly.held() <= MAX_READ + HEADER_LEN);
    }
    assert_eq!(session.counts().ignored, 1);
    assert_eq!(time_ids(&receive(&mut session, 10, &message(Kind::Time, 4, &[0; 8]))), [4]);
}

#[test]
fn an_idle_session_keeps_no_buffer_of_a_busy_past() {
    let mut session = playing();
    let big = info(&format!(r#"{{"volume":1,"pad":"{}"}}"#, "x".repeat(60_000)));
    receive(&mut session, 9, &big[..50_000]);
    receive(&mut session, 9, &big[50_000..]);
    assert!(session.assembly.held() <= 256);
    let idle = size_of::<Session>() + 256 + IDLE_OUTPUTS * size_of::<Output>();
    assert!(idle <= 1_536, "{idle} bytes");
}

#[test]
fn snapclients_fifty_requests_are_answered_and_a_flood_is_not() {
    let mut session = playing();
    let requests = |from: u16, to: u16| {
        (from..to).flat_map(|id| message(Kind::Time, id, &[0; 8])).collect::<Vec<u8>>()
    };
    assert_eq!(time_ids(&receive(&mut session, 2, &requests(1, 51))).len(), 50);
    let answered = time_ids(&receive(&mut session, 3, &requests(1, 1_001))).len();
    assert_eq!(answered, 206);
    assert_eq!(session.counts().unanswered, 794);
    assert_eq!(time_ids(&receive(&mut session, 1_003, &requests(1, 200))).len(), 100);
    let outputs = receive(&mut session, 1_003, &requests(0, 10_000));
    assert_eq!(outputs, [Output::Close(Cause::TimeFlood)]);
}

#[test]
fn a_volume_that_is_dragged_is_one_event() {
    let mut session = playing();
    let dragged = [info(r#"{"volume":1,"muted":true}"#), info(r#"{"volume":2}"#)].concat();
    let last = ClientInfo { volume: Some(2), muted: Some(true) };
    assert_eq!(receive(&mut session, 2, &dragged), [Output::Event(Event::ClientInfo(last))]);
}

#[test]
fn a_refused_client_is_told_and_cut() {
    let mut session = Session::new(at(0));
    receive(&mut session, 1, &hello(9));
    session.handle_input(at(2), Input::Refuse(Refusal::Unauthorized));
    let error = Outgoing::Error { refers_to: 9, refusal: Refusal::Unauthorized };
    assert_eq!(drain(&mut session), [Output::Send(error), Output::Close(Cause::Refused)]);
}

#[test]
fn a_websocket_message_is_a_message_whatever_its_header_says() {
    let mut session = Session::new(at(0));
    let mut bytes = hello(2);
    bytes[22..26].copy_from_slice(&u32::MAX.to_le_bytes());
    session.handle_input(at(1), Input::Framed(&bytes));
    assert!(matches!(drain(&mut session)[..], [Output::Event(Event::Hello(_))]));
    session.handle_input(at(1), Input::Framed(b"short"));
    assert_eq!(drain(&mut session), [Output::Close(Cause::Malformed)]);
}

#[test]
fn time_that_runs_backwards_is_counted_and_stands_still() {
    let mut session = playing();
    receive(&mut session, 100, &[]);
    let outputs = receive(&mut session, 50, &message(Kind::Time, 4, &[0; 8]));
    let requested = WireTime { sec: 5, usec: 250_000 };
    assert_eq!(outputs, [Output::Send(Outgoing::Time { id: 4, requested, received: at(100) })]);
    assert_eq!(session.counts().backwards, 1);
}

/// Messages that a client could send, good and bad.
fn any_messages() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        4 => any::<u16>().prop_map(|id| message(Kind::Time, id, &[0; 8])),
        2 => any::<u16>().prop_map(hello),
        2 => (0..200_u8).prop_map(|volume| info(&format!(r#"{{"volume":{volume}}}"#))),
        1 => (0..9_u16, prop::collection::vec(any::<u8>(), 0..100)).prop_map(|(kind, payload)| {
            message(Kind::from_number(kind).unwrap(), 0, &payload)
        }),
        1 => (MAX_READ - 5..MAX_READ + 5).prop_map(|size| {
            message(Kind::StreamTags, 0, &vec![1; size])
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(one, 0..12).prop_map(|messages| messages.concat())
}

/// What comes out when the bytes arrive in these pieces; events of the volume are left out because
/// how many are merged depends on the reads.
fn outcome(bytes: &[u8], cuts: &[usize]) -> (Vec<Output>, Counts) {
    let mut session = Session::new(at(0));
    let (mut outputs, mut rest) = (Vec::new(), bytes);
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        rest = behind;
        session.handle_input(at(1), Input::Received(piece));
        while let Some(output) = session.poll_output() {
            if matches!(output, Output::Event(Event::Hello(_))) {
                session.handle_input(at(1), Input::Settings(ServerSettings::default()));
            }
            if !matches!(output, Output::Event(Event::ClientInfo(_))) {
                outputs.push(output);
            }
        }
    }
    // What waits for the settings is lost when the peer is cut in the same read, and stands behind
    // them otherwise.
    if outputs.iter().any(|output| matches!(output, Output::Close(_))) {
        outputs.retain(|output| !matches!(output, Output::Send(_)));
    }
    outputs.sort_by_key(|output| format!("{output:?}"));
    (outputs, session.counts())
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
        prop_assert!(whole.0.iter().filter(|output| matches!(output, Output::Close(_))).count() <= 1);
    }

    #[test]
    fn nothing_comes_after_the_end(ops in prop::collection::vec((0..5_u8, any_messages()), 0..12)) {
        let mut session = Session::new(at(0));
        let mut ended = false;
        for (millis, (op, bytes)) in (0_i64..).step_by(900).zip(ops) {
            let input = match op {
                0 => Input::Settings(ServerSettings::default()),
                1 => Input::Stream(Arc::from(&b"x"[..])),
                2 => Input::Framed(&bytes),
                3 if bytes.len() % 7 == 0 => Input::Refuse(Refusal::Forbidden),
                _ => Input::Received(&bytes),
            };
            session.handle_input(at(millis), input);
            for output in drain(&mut session) {
                prop_assert!(!ended, "{output:?} after the end");
                ended = matches!(output, Output::Close(_));
            }
            prop_assert!(!ended || !session.wants_audio());
        }
    }
}

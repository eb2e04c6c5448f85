//! Requests of source clients, whole and in pieces.

use super::*;

const PUT: &[u8] = b"PUT /live HTTP/1.1\r\nContent-Type: audio/mpeg\r\n\
    Authorization: Basic eDp5\r\nExpect: 100-continue\r\n\r\nsound";

fn handshake() -> SourceHandshake {
    SourceHandshake::new(Instant::ZERO)
}

fn response(handshake: &mut SourceHandshake) -> LiveResponse {
    match handshake.poll_output() {
        Some(HandshakeOutput::Respond(response)) => response,
        other => panic!("no response: {other:?}"),
    }
}

fn response_to(request: &str) -> LiveResponse {
    let mut handshake = handshake();
    handshake.handle_input(HandshakeInput::Received(request.as_bytes()));
    response(&mut handshake)
}

#[test]
fn a_stream_begins_when_it_is_authorized_and_the_mount_is_free() {
    let mut handshake = handshake();
    for byte in PUT {
        assert!(handshake.poll_output().is_none());
        handshake.handle_input(HandshakeInput::Received(&[*byte]));
        if handshake.poll_timeout().is_none() {
            break;
        }
    }
    match handshake.poll_output() {
        Some(HandshakeOutput::Authorize { mount, authorization, .. }) => {
            assert_eq!((&mount[..], authorization.as_deref()), ("/live", Some("Basic eDp5")));
        }
        other => panic!("{other:?}"),
    }
    handshake.handle_input(HandshakeInput::Authorized(Ok(())));
    assert!(matches!(handshake.poll_output(), Some(HandshakeOutput::Acquire { .. })));
    handshake.handle_input(HandshakeInput::Acquired(true));
    match handshake.poll_output() {
        Some(HandshakeOutput::Start(start)) => assert!(start.answer.starts_with(b"HTTP/1.1 100")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_behind_the_head_belong_to_the_stream() {
    let mut handshake = handshake();
    handshake.handle_input(HandshakeInput::Received(PUT));
    handshake.handle_input(HandshakeInput::Authorized(Ok(())));
    handshake.handle_input(HandshakeInput::Acquired(true));
    let start = std::iter::from_fn(|| handshake.poll_output()).last();
    assert!(matches!(start, Some(HandshakeOutput::Start(start)) if start.unread == b"sound"));
}

#[test]
fn each_refusal_has_its_response() {
    assert_eq!(
        response_to("PUT /live HTTP/1.1\r\nOrigin: http://a\r\n\r\n"),
        LiveResponse::CrossSite
    );
    assert_eq!(response_to("OPTIONS * HTTP/1.1\r\n\r\n"), LiveResponse::Methods);
    assert_eq!(response_to("GET /listen HTTP/1.1\r\n\r\n"), LiveResponse::NotFound);
    let mut query = handshake();
    let request = b"GET /status-json.xsl?mount=/live HTTP/1.1\r\nHost: radio:8000\r\n\r\n";
    query.handle_input(HandshakeInput::Received(request));
    let asked = query.poll_output();
    let host = Some("radio:8000");
    assert!(
        matches!(&asked, Some(HandshakeOutput::SendStatus { host: said }) if said.as_deref() == host),
        "{asked:?}"
    );
    assert_eq!(response_to("\u{16}\u{3}\u{1}\r\n\r\n"), LiveResponse::BadRequest);
    assert_eq!(response_to(&"x".repeat(MAX_HEAD)), LiveResponse::HeadTooLong);
    let late_end = format!("PUT /live HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD));
    assert_eq!(response_to(&late_end), LiveResponse::HeadTooLong);
    let mut refused = handshake();
    refused.handle_input(HandshakeInput::Received(PUT));
    drop(refused.poll_output());
    refused.handle_input(HandshakeInput::Authorized(Err(LiveResponse::NoMount)));
    assert_eq!(response(&mut refused), LiveResponse::NoMount);
    let mut taken = handshake();
    taken.handle_input(HandshakeInput::Received(PUT));
    taken.handle_input(HandshakeInput::Authorized(Ok(())));
    taken.handle_input(HandshakeInput::Acquired(false));
    let last = std::iter::from_fn(|| taken.poll_output()).last();
    assert!(matches!(last, Some(HandshakeOutput::Respond(LiveResponse::MountInUse))), "{last:?}");
}

#[test]
fn only_a_request_that_does_not_come_is_limited_and_what_was_not_asked_is_ignored() {
    let mut handshake = handshake();
    handshake.handle_input(HandshakeInput::Authorized(Ok(())));
    handshake.handle_input(HandshakeInput::Acquired(true));
    handshake.handle_timeout(Instant::ZERO + Span::from_secs(9));
    assert!(handshake.poll_output().is_none());
    assert_eq!(handshake.poll_timeout(), Some(Instant::ZERO + REQUEST_TIMEOUT));
    handshake.handle_timeout(Instant::ZERO + REQUEST_TIMEOUT);
    let closed = handshake.poll_output();
    assert!(matches!(closed, Some(HandshakeOutput::Close { is_silent: true })), "{closed:?}");
    handshake.handle_input(HandshakeInput::Received(PUT));
    assert!(handshake.poll_output().is_none());
}

/// Answers what is asked, with every mount free, and collects what is sent.
fn serve(handshake: &mut SourceHandshake, sent: &mut Vec<u8>) -> Option<LiveStreamStart> {
    while let Some(output) = handshake.poll_output() {
        let input = match output {
            HandshakeOutput::Authorize { mount, is_title, password, authorization, .. } => {
                assert!(mount.is_empty() && !is_title && authorization.is_none());
                let right = password.as_deref() == Some("very secret");
                HandshakeInput::Authorized(right.then_some(()).ok_or(LiveResponse::InvalidPassword))
            }
            HandshakeOutput::Acquire { name, content_type, .. } => {
                assert_eq!((name.as_deref(), &*content_type), (Some("Evening"), "audio/mpeg"));
                HandshakeInput::Acquired(true)
            }
            HandshakeOutput::Send(bytes) => {
                sent.extend_from_slice(bytes);
                continue;
            }
            HandshakeOutput::Start(start) => return Some(start),
            HandshakeOutput::Respond(response) => {
                sent.extend_from_slice(response.text().as_bytes());
                continue;
            }
            other => panic!("{other:?}"),
        };
        handshake.handle_input(input);
    }
    None
}

#[test]
fn a_shoutcast_source_is_answered_behind_its_password_and_streams_behind_its_fields() {
    let (line, fields) = ("very secret\r\n", "icy-name:Evening\r\nicy-br:128\r\n\r\nsound");
    for piece in [1, 5, usize::MAX] {
        let (mut handshake, mut sent, mut start) = (handshake(), Vec::new(), None);
        for part in line.as_bytes().chunks(piece) {
            handshake.handle_input(HandshakeInput::Received(part));
            start = serve(&mut handshake, &mut sent);
        }
        assert!(start.is_none() && handshake.poll_timeout().is_some());
        assert_eq!(sent, b"OK2\r\nicy-caps:11\r\n\r\n", "before the fields");
        let mut rest = fields.as_bytes().chunks(piece);
        while start.is_none() {
            handshake.handle_input(HandshakeInput::Received(rest.next().unwrap()));
            start = serve(&mut handshake, &mut sent);
        }
        let start = start.unwrap();
        assert_eq!((start.answer, start.framing), (&b""[..], BodyFraming::UntilClosed));
        let left: Vec<u8> = rest.flatten().copied().collect();
        assert_eq!([start.unread, left].concat(), b"sound", "{piece}");
    }
}

#[test]
fn a_shoutcast_source_may_send_its_fields_at_once_and_not_without_end() {
    let (mut eager, mut endless, mut silent) = (handshake(), handshake(), handshake());
    let mut sent = Vec::new();
    let all = b"very secret\nicy-name:Evening\n\nsound";
    eager.handle_input(HandshakeInput::Received(all));
    assert_eq!(serve(&mut eager, &mut sent).unwrap().unread, b"sound");
    endless.handle_input(HandshakeInput::Received(b"very secret\r\n"));
    assert!(serve(&mut endless, &mut sent).is_none());
    for _ in 0..MAX_HEAD / 8 {
        endless.handle_input(HandshakeInput::Received(b"icy-a:b\n"));
    }
    assert_eq!(response(&mut endless), LiveResponse::HeadTooLong);
    silent.handle_input(HandshakeInput::Received(b"very secret\r\n"));
    drop(serve(&mut silent, &mut sent));
    silent.handle_timeout(Instant::ZERO + REQUEST_TIMEOUT);
    let closed = silent.poll_output();
    assert!(matches!(closed, Some(HandshakeOutput::Close { is_silent: true })), "{closed:?}");
}

#[test]
fn a_wrong_shoutcast_password_is_refused_and_a_request_is_none() {
    let (mut handshake, mut sent) = (handshake(), Vec::new());
    handshake.handle_input(HandshakeInput::Received(b"hackme\r\n"));
    assert!(serve(&mut handshake, &mut sent).is_none());
    assert!(sent.starts_with(b"HTTP/1.1 400 "), "{sent:?}");
    assert_eq!(response_to("GET /\r\n\r\n"), LiveResponse::BadRequest);
}

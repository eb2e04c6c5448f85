//! Fetches against servers that redirect, stay silent and lie, in virtual time.

use std::collections::HashSet;

use aulos_core::{Instant, Span};
use aulos_proto::http::{BodyFraming, HttpUrl};

use super::*;

const CONFIG: FetchConfig = FetchConfig::radio("test");

struct FetchFixture {
    fetch: StreamFetch,
    now: Instant,
}

impl FetchFixture {
    fn new(url: &str) -> Self {
        Self::without(url, &[])
    }

    fn without(url: &str, refused: &[&str]) -> Self {
        let refused: HashSet<HttpUrl> = refused.iter().map(|url| url.parse().unwrap()).collect();
        let now = Instant::from_nanos(1_000_000_000);
        Self { fetch: StreamFetch::new(CONFIG, url.parse().unwrap(), refused, now), now }
    }

    fn input(&mut self, input: FetchInput<'_>) {
        self.fetch.handle_input(self.now, input);
    }

    /// Connects to the host, whose address is `at`, and returns the request.
    fn connect(&mut self, at: &str) -> String {
        let output = self.fetch.poll_output();
        assert!(matches!(output, Some(FetchOutput::Resolve(_))), "{output:?}");
        self.input(FetchInput::Resolved(vec![at.parse().unwrap()]));
        match self.fetch.poll_output() {
            Some(FetchOutput::Connect(to)) => self.input(FetchInput::Connected(to[0])),
            other => panic!("no connection: {other:?}"),
        }
        let request = match self.fetch.poll_output() {
            Some(FetchOutput::Send(request)) => request,
            other => panic!("no request: {other:?}"),
        };
        self.input(FetchInput::Done);
        request
    }

    fn answer(&mut self, answer: &str) {
        self.input(FetchInput::Received(answer.as_bytes()));
    }

    fn failure(&mut self) -> RadioError {
        loop {
            match self.fetch.poll_output() {
                Some(FetchOutput::Failed(error)) => return error,
                Some(_) => {}
                None => panic!("it has not failed"),
            }
        }
    }

    fn opened(&mut self) -> FetchedStream {
        match self.fetch.poll_output() {
            Some(FetchOutput::Opened(stream)) => *stream,
            other => panic!("it is not open: {other:?}"),
        }
    }

    fn expire(&mut self) -> Span {
        let begun = self.now;
        self.now = self.fetch.poll_timeout().unwrap();
        self.fetch.handle_timeout(self.now);
        self.now - begun
    }
}

const LOCAL: &str = "127.0.0.1:8000";
const SOUND: &str = "\u{1}\u{2}\u{3}\u{4}no playlist, and more than a few bytes";

#[test]
fn the_head_of_an_old_shoutcast_server_may_come_byte_by_byte() {
    let mut fetch = FetchFixture::new("http://a.example:8000/live");
    let request = fetch.connect(LOCAL);
    assert!(request.starts_with("GET /live HTTP/1.0\r\n"), "{request}");
    assert!(request.contains("\r\nIcy-MetaData: 1\r\n"), "{request}");
    let answer = format!("ICY 200 OK\r\nicy-name: A\r\nicy-br:128\r\n\r\n{SOUND}");
    let (head, sound) = answer.split_at(5);
    fetch.answer(head);
    for byte in sound.bytes() {
        fetch.input(FetchInput::Received(&[byte]));
        if fetch.fetch.poll_timeout().is_none() {
            break;
        }
    }
    let stream = fetch.opened();
    assert_eq!(stream.about.name.as_deref(), Some("A"));
    assert!(
        stream.framing == BodyFraming::UntilClosed && SOUND.as_bytes().starts_with(&stream.unread)
    );
    assert_eq!(stream.unread.len(), 24);
}

#[test]
fn a_redirect_and_a_playlist_lead_to_the_stream() {
    let mut fetch = FetchFixture::new("http://a.example/live.m3u");
    fetch.connect(LOCAL);
    fetch.answer("HTTP/1.1 302 Found\r\nLocation: /b.m3u\r\n\r\n");
    assert!(matches!(fetch.fetch.poll_output(), Some(FetchOutput::Redirected)));
    fetch.connect(LOCAL);
    fetch.answer("HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n#EXTM3U\r\nhttp://b.example/1\r\n");
    assert!(fetch.fetch.poll_output().is_none(), "the list is not complete");
    fetch.answer("http://c.example/2\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n");
    // The first entry is a page, and the second a stream.
    fetch.connect(LOCAL);
    fetch.answer("HTTP/1.1 404 Not Found\r\n\r\n");
    assert!(fetch.connect(LOCAL).contains("Host: c.example\r\n"));
    fetch.answer(&format!("HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n{SOUND}"));
    assert_eq!(fetch.opened().url.to_string(), "http://c.example/2");
}

#[test]
fn each_stage_has_a_limit_and_says_what_took_so_long() {
    let limits = [
        (10, "resolving"),
        (5, "connecting"),
        (5, "sending the request"),
        (10, "waiting for the answer"),
        (10, "waiting for audio"),
    ];
    for (stage, (limit, what)) in limits.into_iter().enumerate() {
        let mut fetch = FetchFixture::new("http://a.example/live");
        let inputs: [FetchInput<'_>; 4] = [
            FetchInput::Resolved(vec![LOCAL.parse().unwrap()]),
            FetchInput::Connected(LOCAL.parse().unwrap()),
            FetchInput::Done,
            FetchInput::Received(b"HTTP/1.1 200 OK\r\n\r\n"),
        ];
        for input in inputs.into_iter().take(stage) {
            fetch.now += Span::from_secs(1);
            fetch.input(input);
        }
        assert_eq!(fetch.expire(), Span::from_secs(limit), "{what}");
        let error = fetch.failure().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn all_addresses_are_tried_at_once() {
    let mut fetch = FetchFixture::new("http://a.example/live");
    drop(fetch.fetch.poll_output());
    let all = ["127.0.0.1:80", "127.0.0.2:80", "127.0.0.3:80"].map(|text| text.parse().unwrap());
    fetch.input(FetchInput::Resolved(all.to_vec()));
    let output = fetch.fetch.poll_output();
    assert!(matches!(&output, Some(FetchOutput::Connect(to)) if *to == all), "{output:?}");
    fetch.input(FetchInput::Failed(RadioError::Connect(std::io::ErrorKind::ConnectionRefused)));
    assert!(matches!(fetch.failure(), RadioError::Connect(_)));
    let mut fetch = FetchFixture::new("http://a.example/live");
    fetch.input(FetchInput::Resolved(Vec::new()));
    assert_eq!(fetch.failure(), RadioError::Name("a.example".to_owned()));
}

#[test]
fn loops_and_chains_end() {
    let mut fetch = FetchFixture::new("http://a.example/0");
    fetch.connect(LOCAL);
    fetch.answer("HTTP/1.1 302 Found\r\nLocation: /0\r\n\r\n");
    assert_eq!(fetch.failure(), RadioError::RedirectLoop);
    let mut fetch = FetchFixture::new("http://a.example/0");
    for hop in 1.. {
        fetch.connect(LOCAL);
        fetch.answer(&format!("HTTP/1.1 302 Found\r\nLocation: /{hop}\r\n\r\n"));
        match fetch.fetch.poll_output() {
            Some(FetchOutput::Redirected) => assert!(hop < 20),
            Some(FetchOutput::Failed(error)) => {
                assert_eq!((error, hop), (RadioError::TooManyRedirects, 9));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let mut fetch = FetchFixture::without("http://a.example/0", &["http://a.example/0"]);
    assert_eq!(fetch.failure(), RadioError::NothingPlayable);
}

#[test]
fn a_head_without_an_end_and_one_that_is_none_are_refused() {
    let mut fetch = FetchFixture::new("http://a.example/live");
    fetch.connect(LOCAL);
    fetch.answer("HTTP/1.1 200 OK\r\n");
    for _ in 0..40 {
        fetch.answer(&format!("X: {}\r\n", "y".repeat(1_000)));
    }
    assert_eq!(fetch.failure(), RadioError::Head);
    for text in ["SSH-2.0-OpenSSH_9.2\r\n", ""] {
        let mut fetch = FetchFixture::new("http://a.example/live");
        fetch.connect(LOCAL);
        fetch.answer(text);
        assert_eq!(fetch.failure(), RadioError::Head, "{text}");
    }
}

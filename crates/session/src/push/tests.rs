//! A push against servers that accept, refuse and stay silent, in virtual time.

use super::*;

/// A push, and what it has asked for.
struct PushFixture {
    session: PushSession,
    counters: Arc<PushCounters>,
    now: Instant,
}

impl PushFixture {
    fn new(password: Option<&str>) -> Self {
        let config = PushConfig {
            target: "icecast://192.0.2.1:8000/live".parse().unwrap(),
            password: password.map(str::to_owned),
            about: StreamMetadata::default(),
            agent: "test",
            sends_titles: true,
            answer_timeout: Span::from_secs(10),
            seed: 7,
        };
        let counters = Arc::<PushCounters>::default();
        let now = Instant::from_nanos(1_000_000_000);
        Self { session: PushSession::new(config, Arc::clone(&counters), now), counters, now }
    }

    fn input(&mut self, input: PushInput<'_>) {
        self.session.handle_input(self.now, input);
    }

    /// The next request, at its time.
    fn request(&mut self) -> String {
        if let Some(due) = self.session.poll_timeout() {
            self.now = self.now.max(due);
            self.session.handle_timeout(self.now);
        }
        loop {
            match self.session.poll_output() {
                Some(PushOutput::Request(request)) => return request,
                Some(PushOutput::Close) => {}
                other => panic!("no request: {other:?}"),
            }
        }
    }

    fn answer(&mut self, answer: &str) {
        self.input(PushInput::Requested);
        self.input(PushInput::Received(answer.as_bytes()));
    }

    fn start(&mut self) {
        self.request();
        self.answer("HTTP/1.0 200 OK\r\n\r\n");
        assert_eq!(self.session.poll_output(), Some(PushOutput::Serve));
        self.input(PushInput::Serving);
    }

    fn state(&self) -> PushState {
        self.session.progress().state(self.now)
    }

    fn count(&self, name: &str) -> u64 {
        self.counters.counters().iter().find(|(known, _)| *known == name).unwrap().1
    }
}

#[test]
fn a_server_without_put_is_asked_with_source_at_once() {
    let mut push = PushFixture::new(None);
    assert!(push.request().starts_with("PUT /live "));
    push.answer("HTTP/1.0 405 No\r\n\r\n");
    let PushOutput::Request(old) = push.session.poll_output().unwrap() else {
        panic!("no request")
    };
    assert!(old.starts_with("SOURCE /live "), "{old}");
    push.answer("HTTP/1.0 405 No\r\n\r\n");
    push.input(PushInput::Received(b""));
    assert_eq!(push.state().phase, PushPhase::Refused);
    assert_eq!(push.state().failures, 1);
}

#[test]
fn each_silence_ends_at_its_limit_and_the_next_attempt_follows() {
    let mut push = PushFixture::new(None);
    push.request();
    let begun = push.now;
    // The connection is not made.
    push.now = push.session.poll_timeout().unwrap();
    assert_eq!(push.now - begun, Span::from_secs(10));
    push.session.handle_timeout(push.now);
    assert_eq!(push.state().phase, PushPhase::Waiting);
    // It is made, and no answer comes.
    push.request();
    push.now += Span::from_secs(3);
    push.input(PushInput::Requested);
    assert_eq!(push.session.poll_timeout(), Some(push.now + Span::from_secs(10)));
    push.now += Span::from_secs(10);
    push.session.handle_timeout(push.now);
    assert_eq!((push.state().failures, push.count("push_failures_timeout")), (2, 2));
    assert!(push.state().retry_in.unwrap() <= Span::from_secs(1), "{:?}", push.state());
}

#[test]
fn the_reason_of_a_refusal_is_read_for_a_second_and_no_longer() {
    let mut push = PushFixture::new(None);
    push.request();
    push.answer("HTTP/1.0 403 No\r\n\r\ntoo many");
    assert_eq!(push.state().failures, 0);
    push.now += Span::from_millis(900);
    push.input(PushInput::Received(b" sources"));
    assert_eq!(push.state().failures, 0);
    push.now = push.session.poll_timeout().unwrap();
    push.session.handle_timeout(push.now);
    let error = push.state().error.unwrap();
    assert!(error.contains("(403, \"too many sources\")"), "{error}");
    // However the connection ends.
    push.request();
    push.answer("HTTP/1.0 403 No\r\n\r\nno such name");
    push.input(PushInput::ReceiveFailed(io::ErrorKind::ConnectionReset));
    assert!(push.state().error.unwrap().contains("no such name"));
    // And whatever its length.
    push.request();
    push.answer(&format!("HTTP/1.0 403 No\r\n\r\n{}", "x".repeat(5_000)));
    assert_eq!(push.state().failures, 3);
}

#[test]
fn titles_are_sent_beside_the_stream_and_a_failed_one_again() {
    let mut push = PushFixture::new(None);
    push.start();
    // There is no title yet, and none to clear.
    push.session.handle_timeout(push.now);
    assert_eq!((push.session.poll_output(), push.session.poll_timeout()), (None, None));
    push.input(PushInput::Title(Arc::from("One")));
    assert!(push.request().contains("song=One"));
    push.input(PushInput::RequestFailed(PushError::Connect(io::ErrorKind::ConnectionRefused)));
    assert_eq!(push.state().phase, PushPhase::Pushing);
    assert!(push.state().title_error.unwrap().contains("connection refused"));
    assert_eq!(push.session.poll_timeout(), Some(push.now + TITLE_RETRY));
    assert!(push.request().contains("song=One"));
    // A title that changes meanwhile follows at once.
    push.input(PushInput::Title(Arc::from("Two")));
    push.answer("HTTP/1.0 200 OK\r\n\r\n");
    assert_eq!(push.session.poll_timeout(), Some(push.now));
    assert!(push.request().contains("song=Two"));
    push.answer("HTTP/1.0 200 OK\r\n\r\n");
    assert_eq!((push.count("push_titles"), push.count("push_titles_failed")), (2, 1));
    assert_eq!(push.state().title_error, None);
    // One that has been sent is cleared.
    push.input(PushInput::Title(Arc::from("")));
    assert!(push.request().contains("song= HTTP"));
}

#[test]
fn a_refusal_in_the_middle_of_the_stream_is_one() {
    let mut push = PushFixture::new(Some("secret"));
    push.start();
    push.input(PushInput::Progress { bytes: 1_000, lagged: 3 });
    let state = push.state();
    assert_eq!((state.bytes, state.lagged, state.connects), (1_000, 3, 1));
    push.input(PushInput::Ended { error: PushError::HungUp, refusal_status: Some(401) });
    assert_eq!(push.state().phase, PushPhase::Refused);
    assert!(push.state().error.unwrap().contains("`password`"));
    push.start();
    assert_eq!((push.state().bytes, push.state().connects), (0, 2));
    push.input(PushInput::Ended { error: PushError::NotReading, refusal_status: None });
    assert_eq!(push.state().phase, PushPhase::Waiting);
    assert_eq!(push.count("push_failures_not_reading"), 1);
}

#[test]
fn late_and_foreign_inputs_change_nothing() {
    let mut push = PushFixture::new(None);
    push.input(PushInput::Received(b"HTTP/1.0 200 OK\r\n\r\n"));
    push.input(PushInput::Requested);
    assert_eq!(push.session.poll_output(), None);
    push.start();
    push.session.handle_timeout(push.now);
    push.input(PushInput::Received(b"HTTP/1.0 403 No\r\n\r\n"));
    push.input(PushInput::RequestFailed(PushError::TimedOut));
    assert_eq!((push.state().phase, push.state().title_error), (PushPhase::Pushing, None));
}

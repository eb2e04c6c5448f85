//! Servers that say yes, no and nothing, on loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use aulos_config::Hidden;
use aulos_io::reactor::MediaWire;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::runtime::Runtime;

use super::*;
use crate::dial::own_authority;

/// One who listens and answers with what a script says, a connection each; what he was told comes
/// back.
struct Script {
    port: u16,
    heads: mpsc::Receiver<String>,
    thread: JoinHandle<()>,
}

impl Script {
    fn new(answers: &'static [&'static str]) -> Self {
        Self::over(None, answers, b"")
    }

    /// One who does not wait for a connection's end before he hears the next one.
    fn talking(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, heads) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut first = None;
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                tell.send(head_of(&mut socket)).ok();
                socket.write_all(answer.as_bytes()).unwrap();
                first.get_or_insert(socket);
            }
        });
        Self { port, heads, thread }
    }

    /// Behind the last answer he waits for these bytes.
    fn over(
        tls: Option<Arc<ServerConfig>>,
        answers: &'static [&'static str],
        until: &'static [u8],
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, heads) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                let respond = |mut stream: Box<dyn Both>| {
                    tell.send(head_of(&mut stream)).ok();
                    stream.write_all(answer.as_bytes()).unwrap();
                    stream.flush().unwrap();
                    let mut heard = vec![0; until.len()];
                    stream.read_exact(&mut heard).unwrap();
                    assert_eq!(heard, until);
                };
                match &tls {
                    None => {
                        respond(Box::new(socket.try_clone().unwrap()));
                        // He hangs up when the other end has gone.
                        drop(socket.read_to_end(&mut Vec::new()));
                    }
                    Some(tls) => {
                        let session = ServerConnection::new(Arc::clone(tls)).unwrap();
                        respond(Box::new(StreamOwned::new(session, socket)));
                    }
                }
            }
        });
        Self { port, heads, thread }
    }

    fn head(&self) -> String {
        self.heads.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

fn head_of(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A push with all that drives it, in a test's own hands.
struct Rig {
    runtime: Runtime,
    out: Outgoing,
}

impl Rig {
    fn new(pusher: &Pusher, url: &str, password: Option<&str>, codec: Codec) -> Self {
        let push = Push {
            target: url.parse().unwrap(),
            password: Hidden(password.map(str::to_owned)),
            codec: codec.into(),
            name: None,
            description: None,
            genre: None,
            site: None,
            public: false,
            titles: true,
        };
        let about = About { content_type: "audio/x".to_owned(), ..About::default() };
        let mut out = pusher.push(&push, about, 7);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap();
        runtime.spawn(std::mem::replace(&mut out.chore, Box::pin(async {})));
        Self { runtime, out }
    }

    fn plain(script: &Script, password: Option<&str>) -> Self {
        let url = format!("icecast://127.0.0.1:{}/live", script.port);
        Self::new(&Pusher::default(), &url, password, Codec::Pcm)
    }

    /// Drives it until it is as it should be; half a minute is only to end a test that fails.
    fn until<T>(&mut self, mut wanted: impl FnMut(&mut Outgoing) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = wanted(&mut self.out) {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", self.out.watch.state());
            self.runtime.block_on(async { sleep(Duration::from_millis(5)).await });
        }
    }

    fn fails(&mut self) -> PushState {
        self.until(|out| Some(out.watch.state()).filter(|state| state.failures > 0))
    }

    fn opened(&mut self) -> Opened {
        self.until(|out| out.opened.try_recv().ok())
    }
}

#[test]
fn who_may_not_is_told_what_to_do_and_asks_seldom() {
    let script = Script::new(&["HTTP/1.0 401 Unauthorized\r\n\r\n"]);
    let mut rig = Rig::plain(&script, Some("secret"));
    let state = rig.fails();
    assert_eq!(state.phase, Phase::Refused);
    let error = state.error.unwrap();
    assert!(error.contains("401") && error.contains("`password`"), "{error}");
    // printf source:secret | base64
    let head = script.head();
    assert!(head.starts_with("PUT /live HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\n"), "{head}");
    assert!(head.contains("\r\nExpect: 100-continue\r\n"), "{head}");
    assert!(!error.contains("secret"));
    let script = Script::new(&["HTTP/1.0 401 Unauthorized\r\n\r\n"]);
    let error = Rig::plain(&script, None).fails().error.unwrap();
    assert!(error.contains("password_file"), "{error}");
    assert!(!script.head().contains("Authorization"));
}

#[test]
fn a_mount_that_is_taken_and_one_that_is_refused_are_told_apart() {
    let script = Script::new(&["HTTP/1.0 403 Forbidden\r\n\r\n<b>403 - Mountpoint in use</b>"]);
    let mut rig = Rig::plain(&script, Some("secret"));
    let state = rig.fails();
    assert_eq!(state.phase, Phase::Waiting, "it may be our own, from before");
    assert!(state.error.as_deref().unwrap().contains("somebody else sends"), "{state:?}");
    let script = Script::new(&["HTTP/1.0 403 No\r\n\r\n<b>too many sources connected</b>"]);
    let state = Rig::plain(&script, Some("secret")).fails();
    assert_eq!(state.phase, Phase::Refused);
    assert!(state.error.unwrap().contains("(403, \"too many sources connected\")"));
}

#[test]
fn an_old_server_is_asked_the_old_way() {
    let script = Script::new(&["HTTP/1.0 405 No\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n"]);
    let mut rig = Rig::plain(&script, Some("secret"));
    let _opened = rig.opened();
    assert!(script.head().starts_with("PUT "));
    let old = script.head();
    assert!(old.starts_with("SOURCE /live HTTP/1.0\r\n") && !old.contains("Expect"), "{old}");
    assert_eq!(rig.out.watch.state().phase, Phase::Pushing);
}

#[test]
fn nobody_a_stranger_and_one_who_says_nothing() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("icecast://127.0.0.1:{port}/live");
    let state = Rig::new(&Pusher::default(), &url, None, Codec::Opus).fails();
    assert!(state.error.unwrap().contains("cannot be reached"));
    assert_eq!(state.phase, Phase::Waiting);
    let script = Script::new(&["+OK POP3 ready\r\n\r\n"]);
    let state = Rig::plain(&script, None).fails();
    assert!(state.error.unwrap().contains("look at host and port"));
    let script = Script::new(&[""]);
    let pusher = Pusher::default();
    let url = format!("icecast://127.0.0.1:{}/live", script.port);
    let state = Rig::new(&pusher, &url, None, Codec::Opus).fails();
    assert!(state.error.unwrap().contains("too long"));
    assert!(state.retry_in.is_some());
    assert!(pusher.counters().contains(&("push_failures_timeout", 1)));
}

#[test]
fn titles_are_told_beside_a_stream_that_has_no_place_for_them() {
    const YES: &str = "HTTP/1.0 200 OK\r\n\r\n";
    let script = Script::talking(&[YES, "HTTP/1.0 400 Bad\r\n\r\nno such title", YES]);
    let mut rig = Rig::plain(&script, Some("secret"));
    let _opened = rig.opened();
    script.head();
    rig.out.titles.send_replace(Arc::from("Björk - Jóga"));
    let told = rig.until(|_| script.heads.try_recv().ok());
    assert!(told.starts_with("GET /admin/metadata?mode=updinfo&charset=UTF-8&mount=/live&song=Bj%C3%B6rk%20-%20J%C3%B3ga HTTP/1.0\r\n"), "{told}");
    assert!(told.contains("\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\n"), "{told}");
    let error = rig.until(|out| out.watch.state().title_error);
    assert!(error.contains("(400, \"no such title\")"), "{error}");
    // The next one is told at once, and what was wrong is over.
    rig.out.titles.send_replace(Arc::from("Now"));
    rig.until(|out| out.watch.state().title_error.is_none().then_some(()));
    assert_eq!(rig.out.watch.state().phase, Phase::Pushing);
}

#[test]
fn over_tls_the_stream_goes_through_the_same_session() {
    let (server, client) = own_authority();
    let script = Script::over(Some(server), &["HTTP/1.1 100 Continue\r\n\r\n"], b"sound");
    let pusher = Pusher { dialer: Arc::new(Dialer::trusting(client)), ..Pusher::default() };
    let url = format!("icecasts://localhost:{}/live", script.port);
    let mut rig = Rig::new(&pusher, &url, Some("secret"), Codec::Opus);
    let Opened { socket, line: _line } = rig.opened();
    assert!(socket.is_tls());
    let mut wire = MediaWire::new(socket).unwrap();
    wire.write_all(b"sound").unwrap();
    wire.flush().unwrap();
    script.thread.join().unwrap();
    // This machine's own authorities do not know it.
    let state = Rig::new(&Pusher::default(), &url, Some("secret"), Codec::Opus).fails();
    assert!(state.error.is_some());
}

#[test]
fn when_nobody_wants_it_any_more_it_ends() {
    let script = Script::new(&["HTTP/1.1 100 Continue\r\n\r\n"]);
    let mut rig = Rig::plain(&script, None);
    let opened = rig.opened();
    let Rig { runtime, out } = rig;
    drop(out);
    runtime.block_on(async { sleep(LOOK * 2).await });
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    drop(opened);
    script.thread.join().unwrap();
}

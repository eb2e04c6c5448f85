//! Pushes to local servers that accept, refuse and stay silent.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use aulos_config::{PushTarget, RedactedDebug};
use aulos_core::Codec;
use aulos_io::reactor::MediaStream;
use aulos_session::push::PushPhase;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::runtime::Runtime;

use super::*;
use crate::dial::own_authority;

/// A server that answers each connection with the next line of a script; the request heads are sent
/// back.
struct ScriptedServer {
    port: u16,
    heads: mpsc::Receiver<String>,
    thread: JoinHandle<()>,
}

impl ScriptedServer {
    fn new(answers: &'static [&'static str]) -> Self {
        Self::with_tls(None, answers, b"")
    }

    /// A server that does not wait for the end of a connection before it accepts the next one.
    fn keeping_open(answers: &'static [&'static str]) -> Self {
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

    /// After the last answer it expects these bytes.
    fn with_tls(
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
                let respond = |mut stream: Box<dyn ReadWrite>| {
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
                        // It hangs up when the other end has closed.
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

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn head_of(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A push driven by a test.
struct PushHarness {
    runtime: Runtime,
    out: PushHandles,
}

impl PushHarness {
    fn new(pusher: &PushClient, url: &str, password: Option<&str>, codec: Codec) -> Self {
        let target: IcecastUrl = url.parse().unwrap();
        let push = PushSettings {
            target: PushTarget::Icecast(target.clone()),
            password: RedactedDebug(password.map(str::to_owned)),
            codec: codec.into(),
            name: None,
            description: None,
            genre: None,
            site: None,
            public: false,
            titles: true,
        };
        let about =
            StreamMetadata { content_type: "audio/x".to_owned(), ..StreamMetadata::default() };
        let mut out = pusher.start(&push, &target, about, 7);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap();
        runtime.spawn(std::mem::replace(&mut out.task, Box::pin(async {})));
        Self { runtime, out }
    }

    fn plain(script: &ScriptedServer, password: Option<&str>) -> Self {
        let url = format!("icecast://127.0.0.1:{}/live", script.port);
        Self::new(&PushClient::default(), &url, password, Codec::Pcm)
    }

    /// Drives it until `wanted` returns a value; half a minute only ends a failing test.
    fn until<T>(&mut self, mut wanted: impl FnMut(&mut PushHandles) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = wanted(&mut self.out) {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", self.out.status.state());
            self.runtime.block_on(async { sleep(Duration::from_millis(5)).await });
        }
    }

    fn fails(&mut self) -> PushState {
        self.until(|out| Some(out.status.state()).filter(|state| state.failures > 0))
    }

    fn opened(&mut self) -> OpenedPush {
        self.until(|out| out.opened.try_recv().ok())
    }
}

#[test]
fn a_rejected_login_is_reported_with_a_remedy_and_retried_rarely() {
    let script = ScriptedServer::new(&["HTTP/1.0 401 Unauthorized\r\n\r\n"]);
    let mut rig = PushHarness::plain(&script, Some("secret"));
    let state = rig.fails();
    assert_eq!(state.phase, PushPhase::Refused);
    let error = state.error.unwrap();
    assert!(error.contains("401") && error.contains("`password`"), "{error}");
    // printf source:secret | base64
    let head = script.head();
    assert!(head.starts_with("PUT /live HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\n"), "{head}");
    assert!(head.contains("\r\nExpect: 100-continue\r\n"), "{head}");
    assert!(!error.contains("secret"));
    let script = ScriptedServer::new(&["HTTP/1.0 401 Unauthorized\r\n\r\n"]);
    let error = PushHarness::plain(&script, None).fails().error.unwrap();
    assert!(error.contains("password_file"), "{error}");
    assert!(!script.head().contains("Authorization"));
}

#[test]
fn an_occupied_mount_and_a_rejected_one_are_distinguished() {
    let script =
        ScriptedServer::new(&["HTTP/1.0 403 Forbidden\r\n\r\n<b>403 - Mountpoint in use</b>"]);
    let mut rig = PushHarness::plain(&script, Some("secret"));
    let state = rig.fails();
    assert_eq!(state.phase, PushPhase::Waiting, "it may be our own, from before");
    assert!(state.error.as_deref().unwrap().contains("in use by another source"), "{state:?}");
    let script = ScriptedServer::new(&["HTTP/1.0 403 No\r\n\r\n<b>too many sources connected</b>"]);
    let state = PushHarness::plain(&script, Some("secret")).fails();
    assert_eq!(state.phase, PushPhase::Refused);
    assert!(state.error.unwrap().contains("(403, \"too many sources connected\")"));
}

#[test]
fn an_old_server_gets_the_source_method() {
    let script = ScriptedServer::new(&["HTTP/1.0 405 No\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n"]);
    let mut rig = PushHarness::plain(&script, Some("secret"));
    let _opened = rig.opened();
    assert!(script.head().starts_with("PUT "));
    let old = script.head();
    assert!(old.starts_with("SOURCE /live HTTP/1.0\r\n") && !old.contains("Expect"), "{old}");
    assert_eq!(rig.out.status.state().phase, PushPhase::Pushing);
}

#[test]
fn no_server_a_foreign_one_and_a_silent_one_are_reported() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("icecast://127.0.0.1:{port}/live");
    let state = PushHarness::new(&PushClient::default(), &url, None, Codec::Opus).fails();
    assert!(state.error.unwrap().contains("connection refused"));
    assert_eq!(state.phase, PushPhase::Waiting);
    let script = ScriptedServer::new(&["+OK POP3 ready\r\n\r\n"]);
    let state = PushHarness::plain(&script, None).fails();
    assert!(state.error.unwrap().contains("check host and port"));
    let script = ScriptedServer::new(&[""]);
    let pusher = PushClient::default();
    let url = format!("icecast://127.0.0.1:{}/live", script.port);
    let state = PushHarness::new(&pusher, &url, None, Codec::Opus).fails();
    assert!(state.error.unwrap().contains("too long"));
    assert!(state.retry_in.is_some());
    assert!(pusher.counters().contains(&("push_failures_timeout", 1)));
}

#[test]
fn titles_are_sent_separately_for_streams_without_metadata() {
    const YES: &str = "HTTP/1.0 200 OK\r\n\r\n";
    let script = ScriptedServer::keeping_open(&[YES, "HTTP/1.0 400 Bad\r\n\r\nno such title", YES]);
    let mut rig = PushHarness::plain(&script, Some("secret"));
    let _opened = rig.opened();
    script.head();
    rig.out.titles.send_replace(Arc::from("Björk - Jóga"));
    let told = rig.until(|_| script.heads.try_recv().ok());
    assert!(told.starts_with("GET /admin/metadata?mode=updinfo&charset=UTF-8&mount=/live&song=Bj%C3%B6rk%20-%20J%C3%B3ga HTTP/1.0\r\n"), "{told}");
    assert!(told.contains("\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\n"), "{told}");
    let error = rig.until(|out| out.status.state().title_error);
    assert!(error.contains("(400, \"no such title\")"), "{error}");
    // The next title is sent at once, and clears the error.
    rig.out.titles.send_replace(Arc::from("Now"));
    rig.until(|out| out.status.state().title_error.is_none().then_some(()));
    assert_eq!(rig.out.status.state().phase, PushPhase::Pushing);
}

#[test]
fn over_tls_the_stream_goes_through_the_same_session() {
    let (server, client) = own_authority();
    let script =
        ScriptedServer::with_tls(Some(server), &["HTTP/1.1 100 Continue\r\n\r\n"], b"sound");
    let pusher = PushClient { dialer: Arc::new(Dialer::with_tls(client)), ..PushClient::default() };
    let url = format!("icecasts://localhost:{}/live", script.port);
    let mut rig = PushHarness::new(&pusher, &url, Some("secret"), Codec::Opus);
    let OpenedPush { socket, line: _line } = rig.opened();
    assert!(socket.is_tls());
    let mut wire = MediaStream::new(socket).unwrap();
    wire.write_all(b"sound").unwrap();
    wire.flush().unwrap();
    script.thread.join().unwrap();
    // The machine's root certificates do not include it.
    let state = PushHarness::new(&PushClient::default(), &url, Some("secret"), Codec::Opus).fails();
    assert!(state.error.is_some());
}

#[test]
fn a_push_ends_when_it_is_removed() {
    let script = ScriptedServer::new(&["HTTP/1.1 100 Continue\r\n\r\n"]);
    let mut rig = PushHarness::plain(&script, None);
    let opened = rig.opened();
    let PushHarness { runtime, out } = rig;
    drop(out);
    runtime.block_on(async { sleep(POLL_INTERVAL * 2).await });
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    drop(opened);
    script.thread.join().unwrap();
}

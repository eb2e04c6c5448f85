//! Deliveries to real programs and servers.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use aulos_blackbox::scratch::ScratchDir;
use aulos_control::Clock;
use aulos_control::backend::SwitchCause;
use aulos_control::hooks::HookEvent;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use aulos_config::{ConfigFile, Environment, Hook};
use aulos_core::{Db, Span};
use serde_json::json;

use super::*;

/// Time-out of a test, longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repetitions of a run with a time-out of a second on a busy machine; fewer than the events per
/// minute.
const MANY: u64 = 20;

fn configured(text: &str) -> Vec<Hook> {
    let env = Environment { home: Some("/nonexistent".into()), ..Environment::default() };
    let file = ConfigFile { name: "aulos.toml", text };
    aulos_config::load(Some(file), &[], &env).unwrap_or_else(|error| panic!("{error}")).hooks
}

/// Writes a program that runs in this directory; returns its path.
fn script(dir: &Path, body: &str) -> String {
    let path = dir.join("alarm");
    std::fs::write(&path, format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\n{body}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_default()
}

/// Hooks that run on the runtime of a test.
struct Running {
    hooks: Hooks,
    runner: HookRunner,
}

impl Running {
    async fn start(config: &str) -> Self {
        Self::through(config, Dialer::default()).await
    }

    async fn through(config: &str, dialer: Dialer) -> Self {
        let hooks = Hooks::new("box", &configured(config), Clock::default());
        let mut runner = HookRunner::with_dialer(dialer);
        runner.update(&hooks).await;
        Self { hooks, runner }
    }

    fn notify(&self, event: &HookEvent) {
        self.hooks.notify("default", event);
    }

    /// Sends one event, and waits for the result.
    async fn outcome(&self, event: &HookEvent) -> Value {
        let before = self.ended();
        self.notify(event);
        self.until(|all| all.ended() > before).await;
        self.status_json()
    }

    fn status_json(&self) -> Value {
        self.hooks.status()[0].clone()
    }

    fn ended(&self) -> u64 {
        let shown = self.status_json();
        shown["delivered"].as_u64().unwrap() + shown["failed"].as_u64().unwrap()
    }

    async fn until(&self, done: impl Fn(&Self) -> bool) {
        eventually(|| done(self)).await;
    }
}

async fn eventually(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "it did not happen");
        sleep(Duration::from_millis(10)).await;
    }
}

fn source_lost() -> HookEvent {
    let (from, to) = (Some("studio".to_owned()), None);
    HookEvent::Fallback { from, to, cause: SwitchCause::DeadChannel }
}

fn is_alive(pid: &str) -> bool {
    // A zombie process counts as dead.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim_start().is_empty() && !rest.starts_with(" Z"))
}

#[tokio::test]
async fn a_program_gets_the_event_in_both_ways() {
    let scratch = ScratchDir::new("both").unwrap();
    let program = script(&scratch, "cat > stdin; env > env; echo \"$@\" > arguments\n");
    let all = Running::start(&format!("[[hook]]\nrun = \"{program} --loud 'a b'\"")).await;
    let shown = all.outcome(&source_lost()).await;
    assert_eq!((&shown["delivered"], &shown["failed"]), (&json!(1), &json!(0)));
    assert_eq!((&shown["name"], &shown["kind"]), (&json!("alarm"), &json!("command")));
    let told: Value = serde_json::from_str(&read(&scratch, "stdin")).unwrap();
    let (id, time) = (told["id"].clone(), told["time"].clone());
    let expected = json!({
        "id": id, "time": time, "event": "fallback", "station": "default", "server": "box",
        "hook": "alarm", "from": "studio", "to": null, "cause": "dead channel", "dropped": 0,
        "text": "default: studio failed (dead channel); playing the last resort",
    });
    assert_eq!(told, expected);
    assert_eq!(shown["last_event"]["id"], id);
    let env = read(&scratch, "env");
    let env: HashMap<&str, &str> = env.lines().filter_map(|line| line.split_once('=')).collect();
    for (key, value) in told.as_object().unwrap() {
        let expected = match value {
            Value::Null => "",
            Value::String(text) => text,
            _ => "0",
        };
        let variable = format!("AULOS_{}", key.to_uppercase());
        assert_eq!(env.get(&variable[..]), Some(&expected), "{variable}");
    }
    assert_eq!(read(&scratch, "arguments"), "--loud a b\n");
}

#[tokio::test]
async fn text_of_an_event_is_data_for_a_program_and_no_command() {
    let scratch = ScratchDir::new("data").unwrap();
    let program = script(&scratch, "cat > stdin; printf %s \"$AULOS_FROM\" > from\n");
    let all = Running::start(&format!("[[hook]]\nrun = \"{program}\"")).await;
    let evil = "$(touch oops) `touch oops`; touch oops\n'\"\u{0}--x\x1b[2J";
    let (from, to) = (Some(evil.to_owned()), None);
    let event = HookEvent::Fallback { from, to, cause: SwitchCause::Error };
    assert_eq!(all.outcome(&event).await["delivered"], 1);
    let told: Value = serde_json::from_str(&read(&scratch, "stdin")).unwrap();
    assert_eq!(told["from"], evil);
    // A variable has no zero byte.
    assert_eq!(read(&scratch, "from"), evil.replace('\0', ""));
    assert!(!scratch.join("oops").exists());
}

#[tokio::test]
async fn a_program_that_hangs_is_ended_with_all_its_children() {
    let scratch = ScratchDir::new("hangs").unwrap();
    let program = script(
        &scratch,
        "echo $$ > pids; sleep 600 & echo $! >> pids\n\
         (trap '' TERM; sleep 600 & echo $! >> pids; wait) &\necho $! >> pids; wait\n",
    );
    let all = Running::start(&format!("[[hook]]\nrun = \"{program}\"\ntimeout_s = 1")).await;
    // A busy machine may not have got far when the time is over.
    let mut runs = 0;
    while read(&scratch, "pids").lines().count() < 4 {
        assert!(runs < MANY, "it never got far");
        let shown = all.outcome(&source_lost()).await;
        runs += 1;
        assert_eq!(shown["last_error"]["text"], "timed out after 1 s");
        assert_eq!(shown["failed"], runs);
    }
    let pids = read(&scratch, "pids");
    eventually(|| !pids.lines().any(is_alive)).await;
}

#[tokio::test]
async fn a_program_that_leaves_a_job_behind_has_done_its_work_and_the_next_event_is_handled() {
    let scratch = ScratchDir::new("leaves").unwrap();
    let program = script(&scratch, "sleep 600 & echo $! >> pids; echo run\nexit $1");
    // The jobs would fill the test's patience if an event waited for the end of one.
    let all = Running::start(&format!("[[hook]]\nrun = \"{program} 0\"\ntimeout_s = 300")).await;
    for delivered in 1..=3 {
        assert_eq!(all.outcome(&source_lost()).await["delivered"], delivered);
    }
    let pids = read(&scratch, "pids");
    assert_eq!(pids.lines().filter(|pid| is_alive(pid)).count(), 3, "a job has its time");
    // The end of the server ends them.
    all.runner.end().await;
    eventually(|| !pids.lines().any(is_alive)).await;
    // The status is that of the program, whatever it has left behind.
    let all = Running::start(&format!("[[hook]]\nrun = \"{program} 3\"\ntimeout_s = 300")).await;
    let shown = all.outcome(&source_lost()).await;
    assert_eq!(shown["last_error"]["text"], "the program ended with exit status: 3");
    all.runner.end().await;
}

#[tokio::test]
async fn a_job_that_a_program_leaves_behind_is_killed_at_the_end_of_the_time() {
    let scratch = ScratchDir::new("job").unwrap();
    let program = script(&scratch, "sleep 600 & echo $! > pid\n");
    let all = Running::start(&format!("[[hook]]\nrun = \"{program}\"\ntimeout_s = 1")).await;
    // A busy machine may not have got far when the time is over.
    let mut runs = 0;
    while all.outcome(&source_lost()).await["delivered"] != 1 {
        runs += 1;
        assert!(runs < MANY, "{}", all.status_json());
    }
    let pid = read(&scratch, "pid");
    eventually(|| !is_alive(pid.trim())).await;
}

#[tokio::test]
async fn a_program_that_fails_is_run_again_as_often_as_it_may() {
    let scratch = ScratchDir::new("fails").unwrap();
    let program = script(&scratch, "echo \"$AULOS_ID\" >> ids; echo no mail today >&2; exit 3\n");
    let all = Running::start(&format!("[[hook]]\nrun = \"{program}\"\ntries = 2")).await;
    let shown = all.outcome(&source_lost()).await;
    assert_eq!((&shown["failed"], &shown["retries"]), (&json!(1), &json!(1)));
    assert_eq!(shown["last_error"]["text"], "the program ended with exit status: 3");
    let ids = read(&scratch, "ids");
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids, [ids[0], ids[0]]);
}

#[tokio::test]
async fn programs_run_one_after_the_other_and_in_order() {
    let scratch = ScratchDir::new("order").unwrap();
    let program = script(
        &scratch,
        "mkdir busy || echo two at once >> log\nsleep 0.05\n\
         echo \"$AULOS_TIMES\" >> log; rmdir busy\n",
    );
    let all = Running::start(&format!("[[hook]]\nrun = \"{program}\"")).await;
    for times in 0..8 {
        let (peak, ceiling) = (Db::new(1.0), Db::ZERO);
        all.notify(&HookEvent::OverCeiling { source: None, peak, ceiling, times });
    }
    all.until(|all| all.ended() == 8).await;
    assert_eq!(read(&scratch, "log"), "0\n1\n2\n3\n4\n5\n6\n7\n");
}

#[tokio::test]
async fn a_hook_program_may_ignore_its_input_and_print_much() {
    let scratch = ScratchDir::new("talks").unwrap();
    let program = script(&scratch, "exec <&-; yes | head -c 3000000; yes | head -c 3000000 >&2\n");
    let all = Running::start(&format!("[[hook]]\nrun = \"{program}\"\ntimeout_s = 60")).await;
    assert_eq!(all.outcome(&source_lost()).await["delivered"], 1);
}

#[tokio::test]
async fn a_hook_gets_the_events_that_it_subscribed_to() {
    let scratch = ScratchDir::new("asked").unwrap();
    let program = script(&scratch, "echo \"$AULOS_EVENT $AULOS_STATION\" >> log\n");
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n\
         [[station]]\nname = \"other\"\nsources = [\"demo://\"]\n\
         [[hook]]\nrun = \"{program}\"\non = [\"sound\", \"fallback\"]\nstations = [\"default\"]"
    );
    let all = Running::start(&config).await;
    let sound = HookEvent::Sound { source: None, lasted: Span::from_secs(9) };
    let silence = HookEvent::Silence { source: None, cause: "silent", lasted: Span::from_secs(9) };
    for event in [&silence, &sound, &source_lost()] {
        all.hooks.notify("other", event);
        all.hooks.notify("default", event);
    }
    // A test goes only to its own hook.
    assert!(all.hooks.test(&json!("nobody")).is_none() && all.hooks.test(&json!(1)).is_none());
    assert_eq!(all.hooks.test(&json!(0)).unwrap().0, "alarm");
    all.until(|all| all.ended() == 3).await;
    assert_eq!(read(&scratch, "log"), "sound default\nfallback default\ntest \n");
}

/// A server that answers each request with the next of these heads, and records the requests.
/// Without a head it does not answer, and closes when the client does.
struct WebhookServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

#[derive(Clone, Debug)]
struct ReceivedRequest {
    head: String,
    body: Value,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        let lines = self.head.lines();
        let mut found = lines.filter(|line| line.to_ascii_lowercase().starts_with(&start));
        let line = found.next().unwrap_or_else(|| panic!("no {name} in {}", self.head));
        &line[start.len()..]
    }
}

impl WebhookServer {
    fn start(answers: &[&'static str], tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers) = (Arc::clone(&asked), answers.to_vec());
        std::thread::spawn(move || {
            for (answer, socket) in answers.into_iter().zip(listener.incoming()) {
                let socket = socket.unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                match &tls {
                    Some(tls) => {
                        let session = ServerConnection::new(Arc::clone(tls)).unwrap();
                        serve(StreamOwned::new(session, socket), answer, &kept);
                    }
                    None => serve(socket, answer, &kept),
                }
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    socket: impl std::io::Read + std::io::Write,
    answer: &str,
    kept: &Mutex<Vec<ReceivedRequest>>,
) {
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        // A client that rejects the certificate closes.
        if !matches!(reader.read_line(&mut head), Ok(1..)) {
            return;
        }
    }
    let asked = ReceivedRequest { head, body: Value::Null };
    let mut body = vec![0; asked.header("content-length").parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap();
    kept.lock().unwrap().push(ReceivedRequest { body, ..asked });
    if answer.is_empty() {
        drop(reader.read_to_end(&mut Vec::new()));
        return;
    }
    let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\nok");
    reader.get_mut().write_all(head.as_bytes()).unwrap();
    reader.get_mut().flush().unwrap();
    drop(reader.read_to_end(&mut Vec::new()));
}

fn webhook(web: &WebhookServer, more: &str) -> String {
    format!("[[hook]]\nurl = \"http://{}/topic/secret?x=1\"\n{more}", web.address)
}

#[tokio::test]
async fn a_server_that_fails_twice_gets_the_same_event_a_third_time() {
    let web = WebhookServer::start(&["500 Oops", "503 Busy", "204 Taken"], None);
    let more = "token = \"tk_1\"\nheaders = { Priority = \"high\" }";
    let all = Running::start(&webhook(&web, more)).await;
    let shown = all.outcome(&source_lost()).await;
    assert_eq!(
        (&shown["delivered"], &shown["failed"], &shown["retries"]),
        (&json!(1), &json!(0), &json!(2))
    );
    assert_eq!(shown["last_error"]["text"], "the answer was 503");
    assert_eq!(shown["target"], format!("http://{}", web.address), "the rest may be a secret");
    assert!(!format!("{:?}", all.hooks.states()).contains("secret"));
    let asked = web.asked();
    let [first, second, third] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((&first.body, &first.body), (&second.body, &third.body));
    assert_eq!(first.header("idempotency-key"), first.body["id"]);
    assert_eq!(first.header("idempotency-key"), third.header("idempotency-key"));
    assert!(first.head.starts_with("POST /topic/secret?x=1 HTTP/1.1\r\n"), "{}", first.head);
    assert_eq!(first.header("host"), web.address.to_string());
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.header("user-agent"), concat!("aulos/", env!("CARGO_PKG_VERSION")));
    assert_eq!(first.header("authorization"), "Bearer tk_1");
    assert_eq!(first.header("priority"), "high");
    assert_eq!(first.body["hook"], "127.0.0.1");
}

#[tokio::test]
async fn what_a_server_refuses_is_not_sent_again() {
    for (answer, text) in [
        ("400 Bad Request", "the answer was 400"),
        ("302 Found", "the answer was 302; redirects are not followed"),
    ] {
        let web = WebhookServer::start(&[answer, "200 OK"], None);
        let all = Running::start(&webhook(&web, "")).await;
        let shown = all.outcome(&source_lost()).await;
        assert_eq!((&shown["failed"], &shown["retries"]), (&json!(1), &json!(0)));
        assert_eq!(shown["last_error"]["text"], text);
        assert_eq!(web.asked().len(), 1);
        // The next event is independent.
        assert_eq!(all.outcome(&source_lost()).await["delivered"], 1);
    }
}

#[tokio::test]
async fn a_webhook_server_that_hangs_or_disconnects_is_retried() {
    let web = WebhookServer::start(&["", "200 OK", "200 OK", "200 OK", "200 OK"], None);
    let all = Running::start(&webhook(&web, "timeout_s = 1")).await;
    let shown = all.outcome(&source_lost()).await;
    assert_eq!((&shown["delivered"], &shown["failed"]), (&json!(1), &json!(0)));
    assert!(shown["retries"].as_u64() >= Some(1), "{shown}");
    assert_eq!(shown["last_error"]["text"], "timed out after 1 s");
    // The port is closed.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!("[[hook]]\nurl = \"http://{closed}\"\ntries = 1");
    let shown = Running::start(&config).await.outcome(&source_lost()).await;
    assert_eq!(shown["last_error"]["text"], "the host cannot be reached: connection refused");
    // A server without HTTP, or without an answer.
    for words in ["220 mail.example.org ESMTP\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config =
            format!("[[hook]]\nurl = \"http://{}\"\ntries = 1", listener.local_addr().unwrap());
        let speaker = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(words.as_bytes()).unwrap();
            wait_for_request(&mut socket);
        });
        let shown = Running::start(&config).await.outcome(&source_lost()).await;
        let text = "the connection broke before an answer";
        assert_eq!(shown["last_error"]["text"], text, "{words:?}");
        speaker.join().unwrap();
    }
}

/// Reads the request, because unread data would reset the connection.
fn wait_for_request(socket: &mut TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(socket.read(&mut [0; 4_096]));
}

/// A server for `localhost` with a private CA, and a client that trusts it.
fn authority() -> (Arc<ServerConfig>, ClientConfig) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider());
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(provider());
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    (Arc::new(server.with_single_cert(vec![certificate], key).unwrap()), client)
}

#[tokio::test]
async fn a_webhook_uses_tls_with_the_systems_trusted_certificates() {
    let (server, client) = authority();
    let (_, stranger) = authority();
    let web = WebhookServer::start(&["200 OK"], Some(Arc::clone(&server)));
    let config = |web: &WebhookServer| {
        let port = web.address.port();
        format!("[[hook]]\nurl = \"https://localhost:{port}/x\"\ntries = 1")
    };
    let all = Running::through(&config(&web), Dialer::with_tls(client)).await;
    assert_eq!(all.outcome(&source_lost()).await["delivered"], 1);
    assert_eq!(web.asked()[0].header("host"), format!("localhost:{}", web.address.port()));
    let web = WebhookServer::start(&["200 OK"], Some(server));
    let all = Running::through(&config(&web), Dialer::with_tls(stranger)).await;
    let shown = all.outcome(&source_lost()).await;
    let text = shown["last_error"]["text"].as_str().unwrap();
    assert!(text.starts_with("TLS: "), "{text}");
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn hooks_are_added_removed_and_changed_while_others_continue() {
    let scratch = ScratchDir::new("change").unwrap();
    let program =
        script(&scratch, "echo $$ > \"pid-$1\"; echo $1 >> log; test $1 = quick || sleep 600\n");
    let hook = |name: &str, more: &str| {
        format!("[[hook]]\nname = \"{name}\"\nrun = \"{program} {name}\"\n{more}\n")
    };
    let mut all = Running::start(&(hook("quick", "") + &hook("slow", "timeout_s = 300"))).await;
    all.notify(&source_lost());
    all.until(|all| all.ended() == 1 && !read(&scratch, "pid-slow").is_empty()).await;
    let slow = read(&scratch, "pid-slow");
    // The slow hook ends, and its program with it; the quick one keeps its counters.
    all.hooks.change(&configured(&(hook("new", "") + &hook("quick", "on = [\"fallback\"]"))));
    all.runner.update(&all.hooks).await;
    eventually(|| !is_alive(slow.trim())).await;
    let shown = all.hooks.status();
    assert_eq!((&shown[0]["name"], &shown[0]["delivered"]), (&json!("new"), &json!(0)));
    assert_eq!((&shown[1]["name"], &shown[1]["delivered"]), (&json!("quick"), &json!(1)));
    all.notify(&HookEvent::Sound { source: None, lasted: Span::ZERO });
    all.notify(&source_lost());
    eventually(|| read(&scratch, "log").lines().filter(|line| *line == "quick").count() == 2).await;
    // At the end the attempt in progress is aborted.
    eventually(|| !read(&scratch, "pid-new").is_empty()).await;
    let new = read(&scratch, "pid-new");
    all.runner.end().await;
    eventually(|| !is_alive(new.trim())).await;
}

#[test]
fn a_hook_program_is_found_relative_to_the_configuration() {
    assert!(Path::new("/bin/sh").exists());
    let action = configured("[[hook]]\nrun = \"/bin/sh -c 'echo \\\"a  b\\\"'\"").remove(0).action;
    let (program, arguments) =
        ("/bin/sh".into(), vec!["-c".to_owned(), "echo \"a  b\"".to_owned()]);
    assert_eq!(action, HookAction::Run { program, arguments });
}

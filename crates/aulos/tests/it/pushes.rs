//! A station whose stream goes to other servers, in a server that plays. The other servers are
//! scripts: what a real Icecast makes of it is told in `crates/blackbox/tests/it`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use aulos_config::Environment;

use crate::common::{ANY_PORTS, Controller, PATIENCE, Playing, eventually, resolve, scratch};
use aulos_proto::ogg::{ParsedPage, parse_page};
use rustix::net::sockopt;
use serde_json::{Value, json};

/// A server that takes streams.
struct Icecast(TcpListener);

/// One that has come, and what he said.
struct Caller {
    socket: TcpStream,
    head: String,
}

impl Icecast {
    fn open() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// The next one who comes; the patience of a caller is longer than a test's.
    fn caller(&self) -> Caller {
        let (mut socket, _) = self.0.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        Caller { socket, head: String::from_utf8(head).unwrap() }
    }

    /// The same, who may send.
    fn guest(&self) -> Caller {
        let mut caller = self.caller();
        caller.say("HTTP/1.1 100 Continue\r\n\r\n");
        caller
    }
}

impl Caller {
    fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    fn hear(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// A station of a tone, whose titles a control script tells, and which is pushed so.
fn start(pushes: &str) -> (Playing, Controller) {
    let server = Playing::start(resolve(&configuration(pushes)));
    let caller = server.controller();
    (server, caller)
}

fn configuration(pushes: &str) -> String {
    format!(
        "{ANY_PORTS}[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:16:1\"\n\
         sources = [\"tone://?dbfs=-6\"]\npush = [{pushes}]\n"
    )
}

fn push(to: &Icecast, more: &str) -> String {
    format!("{{ url = \"icecast://{}/live\", password = \"hackme\"{more} }}", to.address())
}

fn station(caller: &mut Controller) -> Value {
    caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone()
}

fn state(caller: &mut Controller) -> Value {
    station(caller)["pushes"][0].clone()
}

fn counter(caller: &mut Controller, name: &str) -> u64 {
    caller.call("Aulos.GetStatus", json!({}))["result"]["counters"][name].as_u64().unwrap()
}

/// Whether a second of mono of 16 bits is the tone.
fn is_loud(sound: &[u8]) -> bool {
    let samples = sound.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
    samples.filter(|sample| sample.unsigned_abs() > 8_000).count() > sound.len() / 8
}

#[test]
fn a_push_is_reconnected_after_a_break() {
    let ice = Icecast::open();
    let words = ", format = \"wav\", name = \"Evening\", genre = \"Tones\", public = true";
    let (_server, mut caller) = start(&push(&ice, words));
    let mut first = ice.guest();
    for line in [
        "PUT /live HTTP/1.1\r\n",
        "\r\nContent-Type: audio/wav\r\n",
        "\r\nIce-Name: Evening\r\n",
        "\r\nIce-Genre: Tones\r\n",
        "\r\nIce-Public: 1\r\n",
        "\r\nIce-Audio-Info: ice-samplerate=48000;ice-channels=1;ice-bitrate=768\r\n",
        // printf source:hackme | base64
        "\r\nAuthorization: Basic c291cmNlOmhhY2ttZQ==\r\n",
    ] {
        assert!(first.head.contains(line), "{line} in {}", first.head);
    }
    assert!(first.hear(44).starts_with(b"RIFF"), "no head of a response, and no burst before it");
    assert!(is_loud(&first.hear(96_000)));
    eventually(|| state(&mut caller)["bytes"].as_u64().unwrap() > 50_000);
    let told = state(&mut caller);
    assert_eq!(told["state"], "pushing", "{told}");
    assert_eq!(told["target"], format!("icecast://{}/live", ice.address()), "{told}");
    assert!(!told.to_string().contains("hackme"));
    // It is no listener of ours.
    assert_eq!(counter(&mut caller, "web_listeners"), 0);
    drop(first);
    let mut second = ice.guest();
    assert!(second.hear(44).starts_with(b"RIFF"));
    assert!(is_loud(&second.hear(96_000)));
    eventually(|| state(&mut caller)["connects"] == 2);
    let told = state(&mut caller);
    assert_eq!((&told["failures"], &told["state"]), (&json!(1), &json!("pushing")), "{told}");
    assert!(counter(&mut caller, "push_failures_broken_off") == 1);
}

#[test]
fn a_rejection_by_the_server_is_reported_with_a_remedy() {
    let ice = Icecast::open();
    let (server, mut caller) = start(&push(&ice, ""));
    ice.caller().say("HTTP/1.0 401 Unauthorized\r\n\r\n");
    eventually(|| state(&mut caller)["state"] == "refused");
    let told = state(&mut caller);
    assert!(told["last_error"].as_str().unwrap().contains("`password` of the push"), "{told}");
    assert!(told["retry_in_s"].as_u64().is_some());
    assert_eq!(counter(&mut caller, "push_failures_password"), 1);
    // A password that is mended counts at once, and the station plays on.
    let mut listener = server.listen("default");
    server.next(resolve(&configuration(&push(&ice, "").replace("hackme", "better"))));
    let reloaded = caller.call("Aulos.Reload", json!({}));
    assert_eq!(reloaded["result"]["adjusted"], json!(["default"]), "{reloaded}");
    let mut again = ice.guest();
    // printf source:better | base64
    assert!(again.head.contains("Basic c291cmNlOmJldHRlcg=="), "{}", again.head);
    assert!(again.hear(4) == b"OggS");
    assert_eq!(listener.samples(48_000).len(), 48_000);
    // One that is left out ends.
    server.next(resolve(&configuration("")));
    caller.call("Aulos.Reload", json!({}));
    let mut rest = Vec::new();
    again.socket.read_to_end(&mut rest).unwrap();
    assert_eq!(station(&mut caller)["pushes"], json!([]));
}

#[test]
fn a_no_in_the_middle_of_the_stream_is_understood() {
    let ice = Icecast::open();
    let (_server, mut caller) = start(&push(&ice, ""));
    // A proxy in front of the server accepts every client at first.
    let mut guest = ice.guest();
    guest.hear(1_000);
    guest.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    eventually(|| state(&mut caller)["state"] == "refused");
    assert_eq!(counter(&mut caller, "push_failures_password"), 1);
}

#[test]
fn titles_are_in_ogg_streams_and_sent_separately_for_others() {
    let (ogg, wav) = (Icecast::open(), Icecast::open());
    let plugin = scratch().join("titles");
    crate::common::script(
        &plugin,
        r#"
echo '{"jsonrpc":"2.0","method":"Plugin.Stream.Ready"}'
for title in One Two; do
  while [ ! -e "$title" ]; do sleep 0.05; done
  printf '{"jsonrpc":"2.0","method":"Plugin.Stream.Player.Properties","params":'
  printf '{"metadata":{"title":"%s","artist":["Band"]}}}\n' "$title"
done
sleep 60
"#,
    );
    let pushes = format!("{}, {}", push(&ogg, ""), push(&wav, ", format = \"wav\""));
    let plugin_key = format!("plugin = {{ script = \"{}\" }}\n", plugin.display());
    let server = Playing::start(resolve(&(configuration(&pushes) + &plugin_key)));
    let (mut stream, mut other) = (ogg.guest(), wav.guest());
    other.hear(44 + 9_600);
    let (mut bytes, mut titles) = (Vec::new(), Vec::new());
    // Each title is a link of its own, which begins where the one before has ended.
    let mut hear_until = |wanted: &str| {
        while !titles.iter().any(|title: &String| title.ends_with(wanted)) {
            bytes.extend(stream.hear(500));
            let (mut rest, mut open) = (&bytes[..], None);
            titles.clear();
            while let Ok(ParsedPage::Page(page)) = parse_page(rest) {
                assert_eq!(page.first, open.is_none(), "one link at a time");
                open = (!page.last).then_some(page.serial);
                if page.body.starts_with(b"OpusTags") {
                    titles.push(String::from_utf8_lossy(page.body).into_owned());
                }
                rest = &rest[page.total_len()..];
            }
        }
        titles.clone()
    };
    let say = |title: &str| std::fs::write(plugin.with_file_name(title), "").unwrap();
    say("One");
    let mut told = wav.caller();
    let request = "GET /admin/metadata?mode=updinfo&charset=UTF-8&mount=/live&song=";
    assert!(told.head.starts_with(&format!("{request}Band%20-%20One HTTP")), "{}", told.head);
    told.say("HTTP/1.0 200 OK\r\n\r\n");
    hear_until("ARTIST=Band\u{9}\0\0\0TITLE=One");
    say("Two");
    let mut told = wav.caller();
    assert!(told.head.starts_with(&format!("{request}Band%20-%20Two HTTP")), "{}", told.head);
    told.say("HTTP/1.0 200 OK\r\n\r\n");
    let titles = hear_until("ARTIST=Band\u{9}\0\0\0TITLE=Two");
    assert!(titles[0].ends_with("TITLE=default"), "{titles:?}");
    assert!(
        titles[1].ends_with("ARTIST=Band\u{9}\0\0\0TITLE=One") && titles.len() == 3,
        "{titles:?}"
    );
    let mut caller = server.controller();
    eventually(|| counter(&mut caller, "push_titles") == 2);
}

#[test]
fn a_server_that_never_reads_does_not_affect_others() {
    let ice = Icecast::open();
    // What it has not read fills its buffers in a few seconds.
    sockopt::set_socket_recv_buffer_size(&ice.0, 4_096).unwrap();
    let (server, mut caller) = start(&push(&ice, ", format = \"wav\""));
    let silent = ice.guest();
    let mut listener = server.listen("default");
    let mut heard = 0;
    // In sound, not in time: two minutes of it are more than all that waits anywhere.
    while counter(&mut caller, "push_failures_not_reading") == 0 {
        let second = listener.samples(48_000);
        assert!(second.iter().filter(|sample| sample.abs() > 0.1).count() > 24_000);
        heard += 1;
        assert!(heard < 120, "{}", state(&mut caller));
    }
    assert_eq!(state(&mut caller)["last_error"], "the server read no data for 10 s");
    drop(silent);
    // And it is tried again.
    assert!(ice.guest().hear(44).starts_with(b"RIFF"));
}

#[test]
fn an_invalid_push_is_reported_before_the_server_starts() {
    let text = r#"[[station]]
name = "a"
sources = ["demo://"]
push = [
  { url = "http://radio.example/live" },
  { url = "icecast://source:hackme@radio.example/live" },
  { url = "icecast://radio.example/twice", format = "amr" },
  { url = "icecast://radio.example:8000/twice" },
  { url = "icecast://radio.example/file", password_file = "/does/not/exist" },
  { url = "icecast://radio.example" },
  { format = "flac" },
  "icecast://radio.example/live",
  { url = "icecast://radio.example/x", bitrate = 128 },
]
[[station]]
name = "b"
spec = "44100:16:2"
sources = ["demo://"]
push = [{ url = "icecast://radio.example/b" }]
"#;
    let file = aulos_config::ConfigFile { name: "aulos.toml", text };
    let error = aulos_config::load(Some(file), &[], &Environment::default()).unwrap_err();
    let told = error.to_string();
    for line in [
        "aulos.toml:5:11: `url` does not start with icecast:// or icecasts://",
        "aulos.toml:6:11: `url` contains a password, but URLs are shown to users",
        "aulos.toml:7:53: `format` is \"amr\", which is not supported",
        "aulos.toml:8:3: duplicate push to icecast://radio.example:8000/twice",
        "aulos.toml:9:59: /does/not/exist: ",
        "aulos.toml:10:11: `url` has no mount",
        "aulos.toml:11:3: `station.a.push.6` has no `url`",
        "aulos.toml:12:3: `push` is text: it must be a table",
        "unknown key `bitrate` in `station.a.push.8`",
        "aulos.toml:19:9: opus requires 48000 Hz, 16 bit and 1 or 2 channels: `spec` is 44100:16:2",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
}

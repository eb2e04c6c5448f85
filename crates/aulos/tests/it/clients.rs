//! `aulos client`, `group` and `station`, and the clients of `aulos status`, with a server.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::command_line::{Running, run};
use crate::common::{Room, eventually, scratch};

/// A server with two stations and two clients, `pi` and `shelf`, and a terminal.
struct Terminal {
    server: Running,
    control: String,
    _clients: [Room; 2],
}

impl Terminal {
    fn open() -> Self {
        let file = scratch().join("aulos.toml");
        let stations = ["hall", "jazz"].map(|name| {
            format!(
                "[[station]]\nname = \"{name}\"\ncodec = \"pcm\"\n\
                 sources = [\"demo://\", {{ uri = \"tone://\", name = \"signal\" }}]\n"
            )
        });
        std::fs::write(&file, stations.concat()).unwrap();
        let server = Running::start(&["--config", file.to_str().unwrap()]);
        let stream = server.value("stream").split_whitespace().next().unwrap().parse().unwrap();
        let control = server.value("control").to_owned();
        let clients = ["pi", "shelf"].map(|id| Room::enter(stream, id));
        let terminal = Self { server, control, _clients: clients };
        eventually(|| terminal.json("client list --json").as_array().unwrap().len() == 2);
        terminal
    }

    /// The exit code, and what was printed to both outputs.
    fn call(&self, line: &str) -> (i32, String, String) {
        let words: Vec<&str> = line.split(' ').collect();
        run(&[&words[..], &["--server", &self.control]].concat())
    }

    fn good(&self, line: &str) -> String {
        let (code, out, error) = self.call(line);
        assert_eq!((code, error.as_str()), (0, ""), "{line}: {out}");
        out
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.good(line)).unwrap()
    }
}

#[test]
fn clients_and_groups_are_listed_and_changed_by_what_people_type() {
    let terminal = Terminal::open();
    let (good, json) = (|line: &str| terminal.good(line), |line: &str| terminal.json(line));
    for (line, expected) in [
        ("client rename pi Kitchen", "pi is now Kitchen\n"),
        ("client volume kit 40", "Kitchen: volume 40 %\n"),
        ("client volume KITCHEN -5", "Kitchen: volume 35 %\n"),
        ("client volume pi +20", "Kitchen: volume 55 %\n"),
        ("client mute kitchen", "Kitchen: muted\n"),
        ("client mute kitchen off", "Kitchen: not muted\n"),
        ("client move she kit", "shelf is in Kitchen\n"),
        ("client volume shelf 5", "shelf: volume 5 %\n"),
        ("group volume kitchen 50", "Kitchen and shelf: volume 50 %\n"),
        ("group mute kitchen", "Kitchen and shelf: muted\n"),
        ("group rename kitchen Downstairs", "Kitchen and shelf is now Downstairs\n"),
        ("group move down JAZZ", "Downstairs plays jazz\n"),
    ] {
        assert_eq!(good(line), expected, "{line}");
    }
    let groups = json("group list --json");
    let [group] = &groups.as_array().unwrap()[..] else { panic!("{groups}") };
    assert_eq!(
        (&group["name"], &group["station"], &group["muted"], &group["volume"]),
        (&json!("Downstairs"), &json!("jazz"), &json!(true), &json!(50))
    );
    assert_eq!(group["clients"], json!(["pi", "shelf"]));
    assert_eq!(json("client list --json")[0]["volume"], 75, "55 + 20, and 5 + 20");
    let list = good("client list");
    let row = "\nKitchen  Downstairs  jazz     connected  75 %    pi\n";
    assert!(list.starts_with("client   group       station  sync       volume  id\n"), "{list}");
    assert!(list.contains(row), "{list}");
    eventually(|| {
        good("status").contains("  client    Kitchen          muted, in Downstairs, connected\n")
    });
    assert_eq!(good("client move shelf --alone"), "shelf is in a group of its own\n");
    assert_eq!(good("client move shelf --alone"), "shelf is in a group of its own\n");
    assert_eq!(json("group list --json").as_array().unwrap().len(), 2);
    assert_eq!(json("station list --json")[1]["clients"], 2);
    assert!(good("station list").contains("\njazz     playing  demo    2        0\n"));
    terminal.server.end(Signal::TERM);
}

#[test]
fn the_sound_of_a_client_is_imported_and_a_test_tone_is_played() {
    let terminal = Terminal::open();
    let folder = scratch();
    let file = folder.join("room.txt");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "Hello\nFilter 1: ON PK Fc 63,0 Hz Gain -5,0 dB Q 3,00\n").unwrap();
    let import = |options: &str| terminal.call(&format!("client sound import pi {path}{options}"));
    let shown = || terminal.good("client sound show pi");
    let (code, out, error) = import(" --dry-run");
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("pi: preamplification "), "{out}");
    assert!(out.contains("63"), "{out}");
    assert!(error.starts_with("line 1: "), "{error}");
    assert_eq!(shown(), "pi: no processing\n", "a preview changes nothing");
    assert_eq!(import("").1, out);
    assert_eq!(shown(), out);
    std::fs::write(&file, "Filter 1: ON BP Fc 63 Hz\n").unwrap();
    let (code, _, error) = import("");
    assert_eq!(code, 1);
    assert!(error.contains("line 1"), "{error}");
    assert_eq!(shown(), out, "what was refused changes nothing");
    assert_eq!(terminal.good("client sound preset pi flat"), "pi: no processing\n");
    let (code, _, error) = terminal.call("client sound import pi no-such-file");
    assert_eq!(code, 2, "{error}");

    assert_eq!(
        terminal.good("client test-tone pi identify --seconds 20"),
        "pi plays identify for 20.0 s\n"
    );
    assert_eq!(terminal.good("group test-tone shelf click"), "shelf plays click for 10.0 s\n");
    let status: Value = terminal.json("status --json");
    let tones = status["stations"][0]["announcements"].as_array().unwrap();
    let uris: Vec<&Value> = tones.iter().map(|one| &one["uri"]).collect();
    assert_eq!(uris, ["test-tone:identify", "test-tone:click"]);
    for (line, code) in [
        ("client test-tone pi loud", 2),
        ("client test-tone attic click", 1),
        ("client test-tone pi click --seconds 61", 1),
    ] {
        assert_eq!(terminal.call(line).0, code, "{line}");
    }
    terminal.server.end(Signal::TERM);
}

#[test]
fn a_station_is_switched_to_a_source_and_back() {
    let terminal = Terminal::open();
    let good = |line: &str| terminal.good(line);
    assert_eq!(good("station source ja signal"), "jazz: signal is selected\n");
    let source = || terminal.json("station list --json")[1]["source"].clone();
    eventually(|| source() == "signal");
    assert_eq!(good("station source jazz auto"), "jazz chooses its source by priority\n");
    eventually(|| source() == "demo");
    let result = terminal.json("station source jazz signal --for 3600 --json");
    assert_eq!((&result["source"], &result["for_s"]), (&json!("signal"), &json!(3_600.0)));
    for (line, part) in [
        ("station source attic signal", "there is no station `attic`"),
        ("station source jazz record", "record"),
        // Neither a playlist nor a control script.
        ("station control jazz next", "canGoNext"),
        ("station control jazz pause", "canPause"),
    ] {
        let (code, out, error) = terminal.call(line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}");
        assert!(error.contains(part), "{line}: {error}");
    }
    terminal.server.end(Signal::TERM);
}

#[test]
fn a_name_that_is_unknown_or_ambiguous_lists_what_there_is() {
    let terminal = Terminal::open();
    terminal.good("client rename shelf pigeon");
    for (line, code, parts) in [
        (
            "client volume attic 5",
            1,
            ["there is no client `attic`; there are ", "`pigeon` (shelf)"],
        ),
        ("client mute p", 1, ["`p` names several clients: ", "`pigeon` (shelf)"]),
        (
            "group move pi attic",
            1,
            ["there is no station `attic`; there are ", "`hall` and `jazz`"],
        ),
        ("client volume pi 101", 2, ["a volume is 0 to 100, or a change ", "such as +5 or -5"]),
        ("client move pi", 2, ["required arguments", "<GROUP>"]),
    ] {
        let (found, out, error) = terminal.call(line);
        assert_eq!((found, out.as_str()), (code, ""), "{line}");
        assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
    }
    let Terminal { server, control, .. } = terminal;
    server.end(Signal::TERM);
    assert_eq!(run(&["client", "list", "--server", &control]).0, 69);
}

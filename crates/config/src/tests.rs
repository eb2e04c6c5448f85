//! The messages for wrong configurations are kept in `tests/golden/*.txt`;
//! `AULOS_BLESS=1 cargo test -p aulos` rewrites them.

mod client_sound;
mod hls;
mod hooks;
mod insert;
mod keys;
mod logger;
mod machine;
mod mounts;
mod now_playing;
mod records;
mod relays;
mod schedule;
mod security;
mod sound;
mod sources;

use proptest::prelude::*;

use super::*;
use crate::source::{GeneratedSource, HttpSource, PipeSource, PlayedStation};
use aulos_core::{Codec, Db, SampleSpec, Span};
use aulos_dsp::normalize::LookAhead;
use aulos_dsp::silence::SilenceConfig;
use aulos_engine::encode::CodecConfig;
use aulos_engine::generate::{Cadence, Generator, Sine, ToneConfig};
use aulos_engine::standby::Standby;
use aulos_engine::switch::{DEFAULT_STARTUP_WAIT, FailbackMode, SwitchConfig};
use aulos_io::feed::{FifoAccess, FifoMode};
use aulos_proto::titles::TitleCharset;

fn env() -> Environment {
    Environment {
        runtime_dir: Some("/run/user/1000".into()),
        state_home: None,
        home: Some("/home/u".into()),
        uid: 1000,
        variables: Variables::default(),
    }
}

pub(crate) fn load_text(text: &str, sets: &[&str]) -> Result<ResolvedConfig, ConfigError> {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    load(Some(ConfigFile { name: "aulos.toml", text }), &sets, &env())
}

pub(crate) fn first_problem(text: &str, sets: &[&str]) -> String {
    load_text(text, sets).unwrap_err().to_string()
}

pub(crate) fn station(keys: &str) -> String {
    format!("[[station]]\nname = \"a\"\n{keys}\n")
}

#[test]
fn nothing_configured_is_a_fifo_and_then_the_demo_on_loopback() {
    let resolved = load(None, &[], &env()).unwrap();
    assert_eq!(resolved.state_dir.to_str(), Some("/home/u/.local/state/aulos"));
    assert_eq!(resolved.listen.stream.to_string(), "127.0.0.1:1704");
    assert_eq!(resolved.listen.control.to_string(), "127.0.0.1:1705");
    assert_eq!(resolved.listen.http.to_string(), "127.0.0.1:1780");
    let [station] = &resolved.stations[..] else { panic!("{resolved:?}") };
    assert_eq!((station.name.as_str(), station.codec.codec()), ("default", Codec::Flac));
    assert_eq!((station.chunk_ms, station.buffer_ms), (20, 1000));
    let switch = SwitchConfig {
        failback_delay: Span::from_secs(5),
        failback: FailbackMode::Auto,
        startup_wait: Some(DEFAULT_STARTUP_WAIT),
    };
    assert_eq!((station.switch, &station.last_resort), (switch, &None));
    assert_eq!(station.crossfade, Span::from_millis(20));
    let (threshold, duration) = (Db::new(-60.0), Span::from_secs(10));
    let silence = SilenceConfig { threshold, duration, dc: true, dead_channel: None };
    assert_eq!(station.silence, silence);
    let input = &station.sources[0].input;
    assert_eq!((input.timeout.as_millis(), input.buffer.as_millis()), (300, 400));
    assert_eq!(
        station.sources[0].config,
        SourceConfig::Pipe(PipeSource {
            path: "/run/user/1000/aulos.fifo".into(),
            mode: FifoMode::Create(FifoAccess::default()),
            spec: SampleSpec::DEFAULT
        })
    );
    assert_eq!(
        station.sources[1].config,
        GeneratedSource { generator: Generator::Demo, spec: SampleSpec::DEFAULT }.into()
    );
}

#[test]
fn all_that_others_reach_is_announced_unless_it_is_switched_off() {
    let mdns = |keys: &str| load_text(&format!("[mdns]\n{keys}"), &[]).map(|all| all.mdns);
    let found = |keys: &str| {
        let MdnsSettings { name, stream, control, http, https } = mdns(keys).unwrap();
        (name, [stream, control, http, https])
    };
    assert_eq!(found(""), ("Snapcast".to_owned(), [true; 4]));
    let keys = "name = \"House\"\nhttp = false\nhttps = false";
    assert_eq!(found(keys), ("House".to_owned(), [true, true, false, false]));
    assert_eq!(found("enabled = false").1, [false; 4]);
    for wrong in ["name = \"\"", "name = \"a\\n\"", "http = 1780", "tcp = true"] {
        assert!(mdns(wrong).is_err(), "{wrong}");
    }
    assert!(mdns(&format!("name = \"{}\"", "x".repeat(57))).is_err());
}

#[test]
fn without_a_runtime_dir_the_fifo_carries_the_users_number() {
    let env = Environment { runtime_dir: None, ..env() };
    assert_eq!(env.fifo().to_str(), Some("/tmp/aulos-1000.fifo"));
    let odd = Environment { runtime_dir: Some("/run/a b?c#d%".into()), ..env };
    let resolved = load(None, &[], &odd).unwrap();
    let SourceConfig::Pipe(pipe) = &resolved.stations[0].sources[0].config else { panic!() };
    assert_eq!(pipe.path.to_str(), Some("/run/a b?c#d%/aulos.fifo"));
}

#[test]
fn every_source_has_its_typed_value() {
    let text = station(
        r#"sources = [
            "tone://?hz=440&dbfs=-6&sampleformat=44100:f32:1",
            { uri = "stdin:", name = "desk", gain_db = -3, timeout_ms = 50 },
            "pipe:///run/x?mode=read",
            "file:///srv/a.flac?loop=true", "file:///srv/b.raw", "file:///c?sampleformat=8000:8:1",
            "process:///usr/bin/x?params=-a%20-b&log_stderr=true",
            "librespot:///usr/bin/librespot", "airplay:///usr/bin/shairport-sync",
            "tcp://", "tcp://[::1]:7?mode=client&name=far", "tcp://0.0.0.0:0",
        ]"#,
    );
    let resolved = load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let sources = &resolved.stations[0].sources;
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "tone",
            "desk",
            "pipe",
            "file",
            "file-2",
            "file-3",
            "process",
            "librespot",
            "airplay",
            "tcp",
            "far",
            "tcp-2"
        ]
    );
    assert_eq!(sources[1].input.gain, Db::new(-3.0));
    let timeout = |at: usize| sources[at].input.timeout.as_millis();
    assert_eq!((timeout(1), timeout(2)), (50, 300));
    golden("sources", &format!("{sources:#?}\n"));
}

#[test]
fn what_happens_when_a_source_fails_can_be_said() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let text = station(&format!(
        r#"sources = [
            "demo://", {{ uri = "demo://", standby = "cold", silence = {{ dead_channel_s = 2 }} }},
            {{ uri = "tcp://", standby = "warm", timeout_ms = 800 }},
            "http://radio.example/live",
            {{ uri = "http://radio.example/live", name = "near", input_buffer_ms = 500 }},
        ]
        silence = {{ dc = false, for_s = 0.5 }}
        [station.switch]
        input_buffer_ms = 1000
        failback = "manual"
        immediate = false
        last_resort = "file://{here}""#
    ));
    let resolved = load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let station = &resolved.stations[0];
    assert_eq!(
        (station.switch.failback, station.switch.startup_wait),
        (FailbackMode::Manual, None)
    );
    assert!(matches!(station.last_resort, Some(SourceConfig::File(_))));
    let standby: Vec<Standby> = station.sources.iter().map(|source| source.input.standby).collect();
    assert_eq!(standby[..3], [Standby::Hot, Standby::Cold, Standby::Warm]);
    let sources = station.sources.iter();
    let buffers: Vec<i64> = sources.map(|source| source.input.buffer.as_millis()).collect();
    assert_eq!(buffers, [1000, 1000, 1000, 2000, 500]);
    let own = station.sources[1].input.silence;
    assert_eq!((own.dead_channel, own.dc), (Some(Span::from_secs(2)), true));
    assert!(!station.silence.dc && station.sources[0].input.silence == station.silence);
    let text = r#"
[[station]]
name = "a"
sources = [{ uri = "tcp://", standby = "warn", timeout_ms = 500 }, { uri = "http://radio.example/live", standby = "cold", timeout_ms = 300 }]
[station.switch]
failback = "later"
timeout_ms = 400
last_resort = "tcp://"
[[station]]
name = "b"
sources = ["demo://"]
switch = { last_resort = "file:///nowhere/to/be/found.flac", immediate = 1 }
[[station]]
name = "c"
sources = ["demo://"]
switch = { last_resort = "music", input_buffer_ms = 0 }
"#;
    golden("fallback", &first_problem(text, &[]));
}

#[test]
fn ports_alone_take_the_address() {
    let listen = |text: &str| load_text(text, &[]).unwrap().listen;
    let all = listen("[listen]\naddress = \"0.0.0.0\"\nhttp = 8080\nstream = \":0\"");
    assert_eq!(
        (all.http.to_string(), all.stream.to_string()),
        ("0.0.0.0:8080".into(), "0.0.0.0:0".into())
    );
    let six = listen("[listen]\naddress = \"::\"\ncontrol = \"[::1]:5\"\nhttp = \"localhost:7\"");
    assert_eq!(six.stream.to_string(), "[::]:1704");
    assert_eq!(six.control.to_string(), "[::1]:5");
    assert_eq!(six.http.to_string(), "localhost:7");
}

#[test]
fn sets_reach_every_key() {
    let sets = [
        "listen.stream=127.0.0.1:0",
        "state_dir=/x",
        "station.default.codec=opus",
        "station.0.buffer_ms=400",
        "station.0.switch.failback_delay_s=1",
        "station.0.silence.below_dbfs=-50",
        "station.0.sources=[\"demo://\", \"tone://\"]",
        "station.0.sources.1.name=5",
        "station.1.name=two",
        "station.1.sources=[\"demo:\"]",
    ];
    let resolved = load_text("", &sets).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(resolved.listen.stream.port, 0);
    assert_eq!(resolved.state_dir.to_str(), Some("/x"));
    let station = &resolved.stations[0];
    assert_eq!((station.codec.codec(), station.buffer_ms), (Codec::Opus, 400));
    let delay = station.switch.failback_delay.as_millis();
    assert_eq!((delay, station.silence.threshold), (1_000, Db::new(-50.0)));
    assert_eq!(station.sources[1].name, "5");
    assert_eq!(resolved.stations[1].name, "two");
}

#[test]
fn a_codec_has_settings_in_files_sets_and_pushes() {
    let text = station(
        r#"codec = "opus:96k,cbr"
        sources = ["demo://"]
        push = [
            { url = "icecast://radio.example:8000/a" },
            { url = "icecast://radio.example:8000/b", format = "opus:64k" },
            { url = "icecast://radio.example:8000/c", format = "flac:8" },
        ]"#,
    );
    let of = |sets: &[&str]| {
        let mut resolved = load_text(&text, sets).unwrap_or_else(|error| panic!("{error}"));
        let station = resolved.stations.remove(0);
        let pushes: Vec<_> = station.pushes.iter().map(|push| push.codec.to_string()).collect();
        (station.codec.to_string(), pushes.join(" "))
    };
    assert_eq!(of(&[]), ("opus:96k,cbr".into(), "opus:96k,cbr opus:64k flac:8".into()));
    let sets = ["station.a.codec=flac:5,"];
    assert!(load_text(&text, &sets).is_err(), "a comma too many");
    let set = of(&["station.a.codec=flac:8"]);
    assert_eq!(set, ("flac:8".into(), "opus opus:64k flac:8".into()));

    let mut wrong = String::new();
    for codec in ["flac:9", "opus:1k", "opus:128k,complexity=11", "opus:128k,quick", "pcm:16"] {
        let text = station(&format!("codec = \"{codec}\"\nsources = [\"demo://\"]"));
        wrong += &first_problem(&text, &[]);
    }
    golden("codecs", &wrong);
}

#[test]
fn mp3_has_one_setting_for_a_station_and_is_refused_where_it_is_not_possible() {
    let push = |keys: &str, format: &str| {
        let url = "icecast://radio.example:8000/a";
        station(&format!(
            "{keys}\nsources = [\"demo://\"]\npush = [{{ url = \"{url}\", format = \"{format}\" }}]\n\
             record = {{ dir = \"/r\", format = \"mp3\" }}"
        ))
    };
    for (keys, format, expected) in [
        ("", "mp3", ["192k", "mp3", "mp3:192k"]),
        ("mp3 = \"128k,lame\"", "mp3:256k", ["128k,lame", "mp3:256k,lame", "mp3:128k,lame"]),
        ("mp3 = \"lame\"", "mp3:96k,builtin", ["192k,lame", "mp3:96k,builtin", "mp3:192k,lame"]),
        ("spec = \"24000:16:1\"", "mp3", ["192k", "mp3", "mp3:192k"]),
    ] {
        let resolved =
            load_text(&push(keys, format), &[]).unwrap_or_else(|error| panic!("{error}"));
        let station = &resolved.stations[0];
        let (push, record) = (station.pushes[0].codec, station.records[0].recording.format);
        let CodecConfig::Mp3(mp3) = station.codec_settings(Codec::Mp3) else { panic!() };
        assert_eq!([mp3.to_string(), push.to_string(), record.to_string()], expected);
    }
    let mut wrong = String::new();
    for (keys, format) in [
        ("codec = \"mp3\"", "mp3"),
        ("mp3 = \"100k\"", "mp3:fast"),
        ("mp3 = \"128k,lame,lame\"", "mp3"),
        ("spec = \"96000:24:2\"", "mp3"),
        ("spec = \"48000:16:6\"", "mp3"),
    ] {
        wrong += &first_problem(&push(keys, format), &[]);
    }
    golden("mp3", &wrong);
}

#[test]
fn every_problem_is_told_at_once() {
    let text = include_str!("../tests/golden/broken.toml");
    let sets = ["listen.htpp=1", "station.0.chunk_ms=5", "station.z.codec=pcm", "nothing"];
    golden("broken", &first_problem(text, &sets));
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    golden("syntax", &first_problem("[listen\nhttp = 1\nx = = 2\n", &[]));
}

#[test]
fn titles_have_a_charset_that_a_radio_or_a_mount_may_name() {
    let station = |source: &str| format!("[[station]]\nname = \"a\"\nsources = [{source}]\n");
    let charset = |source: &str| {
        let resolved = load_text(&station(source), &[]).unwrap();
        match &resolved.stations[0].sources[0].config {
            SourceConfig::Http(radio) => radio.charset,
            SourceConfig::Icecast(mount) => mount.charset,
            other => panic!("{other:?}"),
        }
    };
    let cyrillic = TitleCharset::of_label("windows-1251").unwrap();
    let entry = |uri: &str, more: &str| format!("{{ uri = \"{uri}\"{more} }}");
    for uri in ["http://radio.example/live", "icecast://127.0.0.1:8000/live"] {
        assert_eq!(charset(&entry(uri, "")), TitleCharset::default());
        assert_eq!(charset(&entry(uri, ", charset = \"CP1251\"")), cyrillic);
    }
    for (source, why) in [
        (entry("http://radio.example/", ", charset = \"klingon\""), "unknown charset \"klingon\""),
        (entry("demo://", ", charset = \"utf-8\""), "requires an http: or icecast: source"),
    ] {
        let problem = first_problem(&station(&source), &[]);
        assert!(problem.contains(why), "{problem}");
    }
}

#[test]
fn an_address_of_web_radio_is_taken_as_it_is_and_its_password_is_not_shown() {
    let text = "[[station]]\nname = \"a\"\nsources = [\"http://radio.example/live?q=1&name=Two\", \
                \"https://dj:secret@radio.example:8443/x\"]\n";
    let resolved = load_text(text, &[]).unwrap();
    let [plain, secret] = &resolved.stations[0].sources[..] else { panic!() };
    assert_eq!(
        (&plain.name[..], &plain.uri[..]),
        ("Two", "http://radio.example/live?q=1&name=Two")
    );
    let SourceConfig::Http(HttpSource { url, .. }) = &plain.config else { panic!() };
    assert_eq!(url.target, "/live?q=1&name=Two", "the query is the server's");
    assert_eq!(secret.uri, "https://radio.example:8443/x");
    let SourceConfig::Http(HttpSource { url, .. }) = &secret.config else { panic!() };
    assert_eq!(url.user.as_deref(), Some("dj:secret"));
    let wrong = "[[station]]\nname = \"a\"\nsources = [\"http://\"]\n";
    let problem = first_problem(wrong, &[]);
    assert!(problem.contains("aulos.toml:3:12: "), "{problem}");
    assert!(problem.contains("the URL has no host"), "{problem}");
    assert!(problem.contains("hint: as in http://radio.example/live"), "{problem}");
}

#[test]
fn what_is_not_built_yet_is_refused_and_named() {
    let text = r#"
[listen]
https = 1788
[[station]]
name = "a"
sources = ["jack://default"]
"#;
    golden("not_yet", &first_problem(text, &[]));
}

#[test]
fn codecs_and_specs_that_no_client_plays_are_refused() {
    for (keys, ok) in [
        ("codec = \"opus\"", true),
        ("codec = \"opus\"\nspec = \"48000:16:1\"", true),
        ("codec = \"opus\"\nspec = \"44100:16:2\"", false),
        ("codec = \"opus\"\nspec = \"48000:24:2\"", false),
        ("codec = \"opus\"\nchunk_ms = 30", false),
        ("spec = \"96000:24:2\"", true),
        ("spec = \"48000:32:2\"", false),
        ("codec = \"pcm\"\nspec = \"48000:32:2\"", true),
        ("codec = \"pcm\"\nspec = \"48000:f32:2\"", false),
        ("spec = \"48000:16:9\"", false),
        ("spec = \"192000:16:8\"", false),
        ("spec = \"4000:16:2\"", false),
        ("buffer_ms = 20\nchunk_ms = 40", false),
    ] {
        let result = load_text(&station(&format!("sources = [\"demo:\"]\n{keys}")), &[]);
        assert_eq!(result.is_ok(), ok, "{keys}: {result:?}");
    }
}

#[test]
fn a_file_without_stations_keeps_the_built_in_one() {
    let resolved = load_text("[listen]\nhttp = 1", &[]).unwrap();
    assert_eq!(resolved.stations[0].name, "default");
    assert!(first_problem("station = []", &[]).contains("no station"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,300}", set in "[a-z.0-9]{0,20}=\\PC{0,20}") {
        drop(load_text(&text, &[&set]));
    }

    #[test]
    fn no_shape_makes_it_panic(
        key in "(state_dir|listen|station|tls|x)",
        value in "(1|-5|1e400|true|\"\\\\n\"|\\[\\]|\\[1\\]|\\[\\{\\}\\]|\\{\\}|\\{name=1\\}|1979-05-27|\\[\\{sources=\\[1,\\{\\}\\]\\}\\])",
        deep in "(sources|switch|silence|name)",
    ) {
        drop(load_text(&format!("{key} = {value}"), &[&format!("station.0.{deep}={value}")]));
    }
}

/// Compares with a golden file.
fn golden(name: &str, found: &str) {
    aulos_blackbox::golden::compare(
        env!("CARGO_MANIFEST_DIR"),
        &format!("config_{name}.txt"),
        found,
    );
}

#[test]
fn a_station_may_play_others_but_not_itself() {
    let station = |name: &str, sources: &str| {
        format!("[[station]]\nname = \"{name}\"\nsources = [{sources}]\n")
    };
    let good = station("best", "\"meta:///a/two%20words//\", \"demo://\"")
        + &station("a", "\"meta://two words\"")
        + &station("two words", "\"tone://\"");
    let resolved = load_text(&good, &[]).unwrap();
    let sources: Vec<_> = resolved.stations[0].sources.iter().collect();
    let names: Vec<_> = sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["a", "two words", "demo"]);
    let played = PlayedStation { name: "two words".to_owned() }.into();
    assert_eq!((&sources[1].config, &resolved.stations[1].sources[0].config), (&played, &played));

    let ring = station("a", "\"meta:///b\"")
        + &station("b", "\"demo://\", \"meta:///c/d\"")
        + &station("c", "\"tone://\"")
        + &station("d", "\"meta:///a\"");
    for (text, wanted) in [
        (ring, "`a` plays itself: it plays `b`, which plays `d`, which plays `a`"),
        (station("me", "\"meta:///me\""), "`me` plays itself"),
        (good.replace("tone://", "meta:///aa"), "did you mean `a`?"),
        (station("x", "\"meta:///\""), "names no station"),
        (good.replace("//\",", "/a\","), "duplicate source name `a`"),
    ] {
        let error = load_text(&text, &[]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

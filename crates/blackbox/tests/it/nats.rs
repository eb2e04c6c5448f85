//! Stations of other servers through a real NATS server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aulos_blackbox::capture_check::{compare, tone_share};
use aulos_blackbox::nats::{NatsServer, RawNatsClient};
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, programme, write_wav};
use serde_json::{Value, json};

use crate::play::{LEAD_S, Player, TAIL_S, frames, playing};
use crate::retry::{ClientCorrection, retry, retry_after_stall};
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, text, timed_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// The buffer of the origin, that of the source, and a reserve: what an edge delays.
const EDGE_DELAY: Duration = Duration::from_millis(1_800);

/// The default of `lease_ttl_ms`.
const LEASE_TTL: Duration = Duration::from_secs(2);

/// The tones of the origin and of the edge's own source.
const ORIGIN_HZ: f64 = 440.0;
const FALLBACK_HZ: f64 = 1_000.0;

fn nats_server() -> Option<PathBuf> {
    find_or_skip("nats-server")
}

/// A server with the station `studio`, which it publishes.
fn origin(port: u16, scratch: &ScratchDir, node: &str, station: &str) -> AulosServer {
    let config = format!(
        "[cluster]\nurl = \"nats://127.0.0.1:{port}\"\nnode = \"{node}\"\nsite = \"test\"\n\
         [[station]]\nname = \"studio\"\npublish = true\n{station}\n"
    );
    AulosServer::start(scratch, &config).unwrap()
}

/// The same with keys of the station and more tables behind them, among them `[cluster]`.
fn origin_with(port: u16, scratch: &ScratchDir, node: &str, keys: &str) -> AulosServer {
    let config = format!(
        "[[station]]\nname = \"studio\"\npublish = true\n{keys}\n\
         url = \"nats://127.0.0.1:{port}\"\nnode = \"{node}\"\nsite = \"test\"\n"
    );
    AulosServer::start(scratch, &config).unwrap()
}

fn tone_origin(port: u16, scratch: &ScratchDir, node: &str) -> AulosServer {
    let station = format!("codec = \"flac\"\nsources = [\"tone://?hz={ORIGIN_HZ}\"]");
    origin(port, scratch, node, &station)
}

/// A server that plays `studio`, and a player of it.
struct Edge {
    server: AulosServer,
    player: Player,
    bits: SampleWidth,
    _scratch: ScratchDir,
}

impl Edge {
    fn start(port: u16, bits: SampleWidth, more: &str) -> Self {
        let scratch = ScratchDir::new("nats-edge").unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:{}:2\"\n\
             sources = [\"nats://127.0.0.1:{port}/studio?site=test\"{more}]\n",
            bits.count(),
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let url = format!("tcp://{}", server.stream);
        let player = Player::start_at(&url, &scratch, "player", &[]);
        Self { server, player, bits, _scratch: scratch }
    }

    /// With a tone of its own as the second source.
    fn with_fallback(port: u16) -> Self {
        let fallback = format!(", \"tone://?hz={FALLBACK_HZ}\"");
        Self::start(port, SampleWidth::B16, &fallback)
    }

    fn status(&self) -> Value {
        Rpc::connect(self.server.control).call("Aulos.GetStatus", &json!({}))
    }

    fn counter(&self, name: &str) -> u64 {
        self.status()["counters"][name].as_u64().unwrap()
    }

    /// The name of the source that plays.
    fn active(&self) -> Value {
        self.status()["stations"][0]["active"].clone()
    }

    fn wait_for_source(&self, name: &str) {
        wait_for(name, PATIENCE, || self.active() == name);
    }

    /// What has been played.
    fn end(mut self) -> Vec<Frame> {
        let sound = self.bits.frames(&self.player.stop());
        self.server.stop().unwrap();
        sound
    }

    /// Ends it; the last that was played is the origin's tone.
    fn end_with_the_origin(self) {
        let sound = self.end();
        let share = share_at(&sound, ORIGIN_HZ, Duration::from_millis(500));
        assert!(share > 0.99, "{share}");
    }
}

/// The share of a tone in the last second but `before_end` of what was played.
fn share_at(sound: &[Frame], hz: f64, before_end: Duration) -> f64 {
    let end = sound.len() - usize::try_from(before_end.as_millis()).unwrap() * RATE / 1_000;
    tone_share(&sound[end - RATE..end], hz, f64::from(u32::try_from(RATE).unwrap()))
}

#[test]
fn a_published_station_is_played_bit_by_bit_elsewhere() {
    retry_after_stall("nats::a_published_station_is_played_bit_by_bit_elsewhere", || {
        let Some(program) = nats_server() else { return };
        let _turn = timed_turn();
        let nats = NatsServer::start(&program).unwrap();
        std::thread::scope(|scope| {
            for (codec, bits) in [("pcm", SampleWidth::B16), ("flac", SampleWidth::B24)] {
                let port = nats.port;
                scope.spawn(move || publish_bit_by_bit(port, codec, bits));
            }
        });
    });
}

fn publish_bit_by_bit(port: u16, codec: &str, bits: SampleWidth) {
    let sound = programme(frames(), bits, 17);
    retry(&format!("nats {codec} {bits:?}"), || match through_nats(port, codec, bits, &sound) {
        // While a busy machine lets the clocks appear to drift, the edge resamples.
        Err(why) if why.starts_with("[NotFound]") => Err(ClientCorrection::host_stall(why)),
        outcome => {
            assert_eq!(outcome, Ok(()), "{codec} {bits:?}");
            Ok(())
        }
    });
    println!("{codec} {bits:?}: {} frames bit-exact", sound.len());
}

fn through_nats(port: u16, codec: &str, bits: SampleWidth, sound: &[Frame]) -> Result<(), String> {
    let scratch = ScratchDir::new("nats-origin").unwrap();
    let file = scratch.join("in.wav");
    let silence = |s: u64| vec![[0, 0]; RATE * usize::try_from(s).unwrap()];
    let whole = [&silence(LEAD_S), sound, &silence(TAIL_S)].concat();
    write_wav(std::fs::File::create(&file).unwrap(), &whole, bits).unwrap();
    let edge = Edge::start(port, bits, "");
    let station = format!(
        "codec = \"{codec}\"\nspec = \"48000:{}:2\"\nsources = [\"file://{}\"]",
        bits.count(),
        text(&file)
    );
    let origin = origin(port, &scratch, "one", &station);
    std::thread::sleep(Duration::from_secs(LEAD_S + TAIL_S) + playing() + EDGE_DELAY);
    let status = edge.status();
    let faults = compare(sound, &edge.end());
    origin.stop().unwrap();
    if faults.is_empty() { Ok(()) } else { Err(format!("{faults:?}: {}", status["counters"])) }
}

/// No operator has to act when NATS is back.
#[test]
fn the_sound_returns_after_nats_was_killed() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let mut nats = NatsServer::start(&program).unwrap();
    let scratch = ScratchDir::new("nats-origin").unwrap();
    let origin = tone_origin(nats.port, &scratch, "one");
    let edge = Edge::with_fallback(nats.port);
    edge.wait_for_source("nats");
    nats.kill();
    edge.wait_for_source("tone");
    let played = edge.counter("nats_chunks_played");
    std::thread::sleep(Duration::from_secs(2));
    nats.restart().unwrap();
    edge.wait_for_source("nats");
    assert!(edge.counter("nats_chunks_played") > played);
    assert!(edge.counter("nats_disconnects") >= 1);
    std::thread::sleep(Duration::from_secs(3));
    edge.end_with_the_origin();
    let mut rpc = Rpc::connect(origin.control);
    let counters = rpc.call("Aulos.GetStatus", &json!({}))["counters"].clone();
    // The origin has gone on, and what it could not publish is counted.
    assert!(counters["nats_chunks_unconnected"].as_u64().unwrap() > 50, "{counters}");
    origin.stop().unwrap();
}

#[test]
fn the_next_source_plays_when_the_origin_is_killed() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let nats = NatsServer::start(&program).unwrap();
    let scratch = ScratchDir::new("nats-origin").unwrap();
    let origin = tone_origin(nats.port, &scratch, "one");
    let edge = Edge::with_fallback(nats.port);
    edge.wait_for_source("nats");
    std::thread::sleep(Duration::from_secs(2));
    // As `kill -9` does.
    drop(origin);
    edge.wait_for_source("tone");
    std::thread::sleep(Duration::from_secs(3));
    // Another run of it has another epoch.
    let again = tone_origin(nats.port, &scratch, "one");
    edge.wait_for_source("nats");
    std::thread::sleep(Duration::from_secs(3));
    edge.end_with_the_origin();
    again.stop().unwrap();
}

/// One of two origins sends; when it is killed, the other one does within two terms of the lease,
/// and the first one stays on stand-by when it is back.
#[test]
fn the_standby_takes_over_and_the_first_origin_stays_on_standby() {
    retry_after_stall("nats::the_standby_takes_over", || {
        let Some(program) = nats_server() else { return };
        let _turn = timed_turn();
        let nats = NatsServer::start(&program).unwrap();
        let scratches = ["one", "two"].map(|_| ScratchDir::new("nats-origin").unwrap());
        let first = tone_origin(nats.port, &scratches[0], "one");
        wait_for_part(&first, "sending");
        let second = tone_origin(nats.port, &scratches[1], "two");
        wait_for_part(&second, "standby");
        assert_eq!(publication(&second)["holder"], "one");
        let edge = Edge::start(nats.port, SampleWidth::B16, "");
        edge.wait_for_source("nats");
        std::thread::sleep(Duration::from_secs(4));
        // As `kill -9` does.
        drop(first);
        wait_for_part(&second, "sending");
        let back = tone_origin(nats.port, &scratches[0], "one");
        wait_for_part(&back, "standby");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(publication(&second)["part"], "sending");
        assert_eq!(publication(&back)["holder"], "two");
        let events = Rpc::connect(second.control).call("Aulos.GetEvents", &json!({})).to_string();
        assert!(events.contains("stand-by: `one` sends") && events.contains("this server sends"));
        let accepted = edge.counter("nats_chunks_accepted");
        // The first origin has sent in one epoch and the second in one, and never both at a time.
        assert_eq!(edge.counter("nats_messages_fenced") + edge.counter("nats_chunks_repeated"), 0);
        let withheld = counter(&back, "nats_chunks_withheld");
        assert!(withheld > 100 && counter(&back, "nats_chunks_published") == 0, "{withheld}");
        let gap = longest_silence(&edge.end());
        println!("gap {} ms, {accepted} chunks", gap.as_millis());
        assert!(gap <= LEASE_TTL * 2, "{gap:?}");
        back.stop().unwrap();
        second.stop().unwrap();
    });
}

/// An origin that ends as it should gives the lease back.
#[test]
fn the_standby_follows_at_once_when_the_origin_is_stopped() {
    let Some(program) = nats_server() else { return };
    let _turn = long_shared_turn();
    let nats = NatsServer::start(&program).unwrap();
    let scratches = ["one", "two"].map(|_| ScratchDir::new("nats-origin").unwrap());
    let [first, second] = [0, 1].map(|at| {
        // With a lease of a minute only its return can make the other one follow in time.
        let station = "sources = [\"tone://\"]\n[cluster]\nlease_ttl_ms = 60000";
        let server = origin_with(nats.port, &scratches[at], ["one", "two"][at], station);
        wait_for_part(&server, ["sending", "standby"][at]);
        server
    });
    first.stop().unwrap();
    wait_for_part(&second, "sending");
    second.stop().unwrap();
}

/// Without `JetStream` there is no lease: both send, and the status says what to do.
#[test]
fn without_jetstream_both_origins_send() {
    let Some(program) = nats_server() else { return };
    let _turn = long_shared_turn();
    let nats = NatsServer::start_without_jetstream(&program).unwrap();
    let scratches = ["one", "two"].map(|_| ScratchDir::new("nats-origin").unwrap());
    let [first, second] = [0, 1].map(|at| {
        let server = tone_origin(nats.port, &scratches[at], ["one", "two"][at]);
        wait_for_part(&server, "unleased");
        // Another epoch.
        std::thread::sleep(Duration::from_millis(1_100));
        server
    });
    assert!(first.printed().unwrap().contains("start nats-server with -js"));
    let edge = Edge::with_fallback(nats.port);
    edge.wait_for_source("nats");
    std::thread::sleep(Duration::from_secs(3));
    let of_first = counter(&first, "nats_times_answered");
    assert!(counter(&second, "nats_times_answered") > 0);
    assert!(edge.counter("nats_messages_fenced") > 0);
    // As `kill -9` does.
    drop(second);
    edge.wait_for_source("tone");
    edge.wait_for_source("nats");
    wait_for("the clock of the other origin", PATIENCE, || {
        counter(&first, "nats_times_answered") > of_first
    });
    std::thread::sleep(Duration::from_secs(3));
    edge.end_with_the_origin();
    first.stop().unwrap();
}

/// Which part a server has in the publication of its station.
fn publication(server: &AulosServer) -> Value {
    let status = Rpc::connect(server.control).call("Aulos.GetStatus", &json!({}));
    status["stations"][0]["publication"].clone()
}

fn wait_for_part(server: &AulosServer, part: &str) {
    wait_for(part, PATIENCE, || publication(server)["part"] == part);
}

fn counter(server: &AulosServer, name: &str) -> u64 {
    let status = Rpc::connect(server.control).call("Aulos.GetStatus", &json!({}));
    status["counters"][name].as_u64().unwrap()
}

/// The longest silence between two parts of what was played.
fn longest_silence(sound: &[Frame]) -> Duration {
    let heard = |frame: &Frame| frame[0].unsigned_abs() > 3;
    let positions: Vec<usize> = (0..sound.len()).filter(|at| heard(&sound[*at])).collect();
    let longest = positions.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    Duration::from_millis(u64::try_from(longest * 1_000 / RATE).unwrap())
}

/// A peer that may publish cannot stop an edge with what is no chunk of the stream.
#[test]
fn forged_and_damaged_messages_are_counted_and_the_sound_goes_on() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let nats = NatsServer::start(&program).unwrap();
    let scratch = ScratchDir::new("nats-origin").unwrap();
    let origin = tone_origin(nats.port, &scratch, "one");
    let edge = Edge::with_fallback(nats.port);
    edge.wait_for_source("nats");
    let mut client = RawNatsClient::connect(nats.port).unwrap();
    let audio = "aulos.v1.test.audio.studio.flac";
    let (meta, clock) = ("aulos.v1.test.meta.studio", "aulos.v1.test.clock.one");
    let chunk = client.receive(audio).unwrap();
    let record = client.receive(meta).unwrap();
    let names = [
        "nats_messages_malformed",
        "nats_messages_checksum",
        "nats_messages_fenced",
        "nats_chunks_repeated",
    ];
    let before = names.map(|name| edge.counter(name));
    for number in 0..100_u8 {
        client.publish(audio, &chunk).unwrap();
        client.publish(audio, &chunk[..usize::from(number) % 52]).unwrap();
        client.publish(audio, &vec![number; 500_000]).unwrap();
        let mut damaged = chunk.clone();
        damaged[52 + usize::from(number)] ^= 1;
        client.publish(audio, &damaged).unwrap();
        client.publish(meta, &record[..record.len() - 1]).unwrap();
        client.publish(clock, &[number; 16]).unwrap();
        // A lower epoch, with its checksum.
        client.publish(audio, &of_epoch(&chunk, 1)).unwrap();
        client.flush().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    wait_for("the counters", PATIENCE, || {
        let since = names.map(|name| edge.counter(name));
        let since: Vec<u64> = since.iter().zip(before).map(|(now, then)| now - then).collect();
        since[0] >= 200 && since[1] >= 200 && since[2] >= 100 && since[3] >= 100
    });
    assert_eq!(edge.active(), "nats");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(edge.active(), "nats", "{}", edge.status()["counters"]);
    edge.end_with_the_origin();
    origin.stop().unwrap();
}

/// The chunk with another epoch and the checksum for it.
fn of_epoch(chunk: &[u8], epoch: u32) -> Vec<u8> {
    let mut chunk = chunk.to_vec();
    chunk[8..12].copy_from_slice(&epoch.to_le_bytes());
    let covered = chunk[..48].iter().chain(&chunk[52..]);
    let checksum = !covered.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    });
    chunk[48..52].copy_from_slice(&checksum.to_le_bytes());
    chunk
}

/// Over TLS, with user and password or an nkey, and with no more rights than docs/how-to/cluster.md
/// says that they need.
#[test]
fn a_server_logs_in_and_needs_few_rights() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("nats-origin").unwrap();
    // A certificate for localhost: that of a server of ours.
    let tone = "[[station]]\nname = \"a\"\nsources = [\"tone://\"]\n";
    AulosServer::start(&scratch, tone).unwrap().stop().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|file| scratch.join("state/tls").join(file));
    let nats = NatsServer::start_with(&program, |_| rights(&cert, &key)).unwrap();
    let cluster = |ca: &str, login: &str| {
        format!(
            "[cluster]\nurl = \"tls://localhost:{}\"\nsite = \"test\"\n{ca}\n{login}\n",
            nats.port
        )
    };
    let ca = format!("ca = \"{}\"", text(&cert));
    let published = format!(
        "{}node = \"one\"\n[[station]]\nname = \"studio\"\npublish = true\ncodec = \"pcm\"\n\
         sources = [\"tone://\"]\n",
        cluster(&ca, "user = \"studio\"\npassword = \"secret\"")
    );
    let origin = AulosServer::start(&scratch, &published).unwrap();
    let plays = |ca: &str, login: &str| play_with_login(&cluster(ca, login));
    // The seed is an example of NATS's documentation.
    let seed = "nkey = \"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\"";
    let (is_played, printed) = plays(&ca, seed);
    assert!(is_played && !printed.contains("permission"), "{printed}");
    let (is_played, printed) = plays(&ca, "user = \"studio\"\npassword = \"wrong\"");
    assert!(!is_played && printed.contains("authorization"), "{printed}");
    assert!(!printed.contains("wrong"), "{printed}");
    // Without the authority, the certificate is not trusted.
    let (is_played, printed) = plays("", seed);
    assert!(!is_played && printed.contains("cannot connect"), "{printed}");
    let printed = origin.printed().unwrap().to_lowercase();
    assert!(!printed.contains("permission") && !printed.contains("cannot store"), "{printed}");
    origin.stop().unwrap();
}

/// What `nats-server` needs for TLS, a publishing user and a playing nkey.
fn rights(cert: &Path, key: &Path) -> String {
    format!(
        r#"tls: {{ cert_file: "{}", key_file: "{}" }}
        authorization: {{ users: [
          {{ user: "studio", password: "secret", permissions: {{
              publish: ["aulos.v1.test.audio.>", "aulos.v1.test.meta.>",
                        "aulos.v1.test.control.>", "_INBOX.>", "$JS.API.>", "$KV.aulos_streams.>"]
              subscribe: ["aulos.v1.test.clock.>", "aulos.v1.test.repair.>",
                          "aulos.v1.test.control.>", "_INBOX.>"] }} }}
          {{ nkey: "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4", permissions: {{
              publish: ["aulos.v1.test.clock.>", "aulos.v1.test.repair.>",
                        "aulos.v1.test.control.status", "_INBOX.>",
                        "$JS.API.STREAM.INFO.KV_aulos_streams",
                        "$JS.API.DIRECT.GET.KV_aulos_streams.>"]
              subscribe: ["aulos.v1.test.audio.>", "aulos.v1.test.meta.>",
                          "aulos.v1.test.control.status", "_INBOX.>"] }} }}
        ] }}"#,
        text(cert),
        text(key)
    )
}

/// Whether an edge with this `cluster` plays the station within five seconds, and what it logs.
fn play_with_login(cluster: &str) -> (bool, String) {
    let scratch = ScratchDir::new("nats-edge").unwrap();
    let station = "[[station]]\nname = \"default\"\nsources = [\"nats:///studio\"]\n";
    let server = AulosServer::start(&scratch, &format!("{cluster}{station}")).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let is_played = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        rpc.call("Aulos.GetStatus", &json!({}))["counters"]["nats_chunks_played"] != 0
    });
    let printed = server.printed().unwrap().to_lowercase();
    server.stop().unwrap();
    (is_played, printed)
}

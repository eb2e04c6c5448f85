//! A whole cluster of real processes: three NATS servers, two origins, three edges with players, in
//! network namespaces with delays between them. What the players wrote is the judge.
//!
//! The short forms assert; the long ones (`scripts/soak cluster::`) print the tables of
//! `docs/explanation/scale.md`.

mod rig;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use aulos_blackbox::nats::NatsServer;
use aulos_blackbox::nats_cluster::{NatsCluster, monitored};
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::sync::delayed_network::LineDelay;
use aulos_blackbox::sync::playout::{differences, percentile};

use serde_json::{Value, json};

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_timed_turn, shared_turn, soak, turn, wait_for};
use rig::{EDGES, NATS_NODES, PlayedSound, Rig, RigConfig, now};

const PATIENCE: Duration = Duration::from_secs(60);

/// The default of `lease_ttl_ms`.
const LEASE_TTL: Duration = Duration::from_secs(2);

/// The programs that a rig needs.
struct Programs {
    nats_server: PathBuf,
    compiler: PathBuf,
    snapclient: PathBuf,
    net: NetNamespaces,
}

impl Programs {
    fn find() -> Option<Self> {
        let [nats_server, compiler, snapclient] =
            [find_or_skip("nats-server")?, find_or_skip("cc")?, find_or_skip("snapclient")?];
        let net = NetNamespaces::isolated(NATS_NODES + EDGES).inspect_err(|e| println!("{e}"));
        let Ok(net) = net else {
            skip("network namespaces");
            return None;
        };
        Some(Self { nats_server, compiler, snapclient, net })
    }

    fn config(&self) -> RigConfig<'_> {
        let line = |millis| {
            let delay = Duration::from_millis(millis);
            LineDelay { up: delay, down: delay, jitter: Duration::from_micros(500) }
        };
        RigConfig {
            nats_server: &self.nats_server,
            compiler: &self.compiler,
            snapclient: Some(&self.snapclient),
            lines: [line(0), line(2), line(5), line(0), line(5), line(15)],
            latency: [0.0; EDGES],
            players: 1,
        }
    }
}

/// A failure, and when it began.
struct Failure {
    name: String,
    at: u64,
    /// Edges whose players may hear it.
    edges: Vec<usize>,
    /// The longest silence that those may hear.
    limit: Duration,
}

/// kill -9 of a NATS server, of an edge and of the active origin in turn, then a network that is
/// gone for a while.
#[test]
fn each_part_of_a_cluster_may_fail() {
    retry_after_stall("cluster::each_part_of_a_cluster_may_fail", || {
        let _turn = long_timed_turn();
        let Some(programs) = Programs::find() else { return };
        let mut rig = Rig::start(programs.config(), &programs.net);
        let epoch = now();
        rig.start_players();
        let apart = Duration::from_secs(if soak() { 12 } else { 4 });
        std::thread::sleep(apart);
        let mut failures = Vec::new();
        let mut fail = |name: String, edges: &[usize], limit| {
            println!("{name}");
            failures.push(Failure { name, at: now(), edges: edges.to_vec(), limit });
        };

        let node = rig.nats_node_of("edge0").unwrap();
        let sender = rig.sender().unwrap();
        let of_origin = rig.nats_node_of(["one", "two"][sender]);
        let name =
            format!("NATS server {node} of edge 0; that of origin {sender} is {of_origin:?}");
        fail(name, &[0, 1, 2], Duration::ZERO);
        replace_nats_server(&mut rig, node, apart);

        let sender = rig.sender().unwrap();
        let other = rig.nats_node_of(["one", "two"][sender]).unwrap();
        fail(format!("NATS server {other} of origin {sender}"), &[0, 1, 2], Duration::ZERO);
        replace_nats_server(&mut rig, other, apart);

        let before: Vec<usize> = (0..EDGES).map(|edge| rig.connects(edge)).collect();
        fail("edge 1".to_owned(), &[1], PATIENCE);
        rig.kill_edge(1);
        std::thread::sleep(Duration::from_secs(1));
        rig.restart_edge(1);
        wait_for("edge 1", PATIENCE, || rig.passes(1));
        std::thread::sleep(apart);

        wait_for("a sender", PATIENCE, || rig.sender().is_some());
        let sender = rig.sender().unwrap();
        fail(format!("origin {sender}"), &[0, 1, 2], LEASE_TTL * 2);
        rig.kill_origin(sender);
        wait_for("the other origin", PATIENCE, || rig.sender() == Some(1 - sender));
        wait_for("passed chunks", PATIENCE, || (0..EDGES).all(|edge| rig.passes(edge)));
        std::thread::sleep(apart);

        let cut = Duration::from_secs(if soak() { 30 } else { 6 });
        fail(format!("{} s without network at edge 2", cut.as_secs()), &[2], cut + LEASE_TTL * 2);
        rig.network.cut(NATS_NODES + 2, true);
        std::thread::sleep(cut);
        rig.network.cut(NATS_NODES + 2, false);
        wait_for("passed chunks", PATIENCE, || rig.passes(2));
        std::thread::sleep(apart);

        let connects: Vec<usize> = (0..EDGES).map(|edge| rig.connects(edge)).collect();
        println!("connections {before:?} {connects:?}");
        for edge in 0..EDGES {
            println!("edge {edge}: {}", rig.edge_status(edge)["counters"]);
        }
        assert!(connects.iter().all(|count| *count == rig.players_of_an_edge()), "{connects:?}");
        let sounds = rig.finish(epoch);
        let faults = judge(&failures, &sounds);
        assert!(faults.is_empty(), "{faults:#?}");
    });
}

/// Kills it, and starts it again after a while.
fn replace_nats_server(rig: &mut Rig<'_>, node: usize, apart: Duration) {
    rig.nats.kill(node);
    std::thread::sleep(apart);
    rig.nats.restart(node).unwrap();
    rig.nats.wait_until_healthy(node).unwrap();
}

/// Prints what was silent after each failure; what must not have been.
fn judge(failures: &[Failure], sounds: &[PlayedSound]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, failure) in failures.iter().enumerate() {
        let end = failures.get(number + 1).map_or(u64::MAX, |next| next.at);
        for sound in sounds {
            let heard = sound.silences.iter().filter(|one| (failure.at..end).contains(&one.at));
            let (count, longest) = heard.fold((0, Duration::ZERO), |(count, longest), one| {
                (count + 1, longest.max(one.duration))
            });
            let program = if sound.is_ours { "aulos" } else { "snapclient" };
            let text = format!(
                "{}: edge {}, {program}: {count} silences, longest {longest:?}",
                failure.name, sound.edge
            );
            println!("{text}");
            let is_hit = failure.edges.contains(&sound.edge);
            let own = if sound.is_ours { Duration::ZERO } else { OF_SNAPCLIENT };
            let limit = if is_hit { failure.limit.max(own) } else { own };
            if longest > limit {
                faults.push(text);
            }
        }
    }
    faults
}

/// Players on different edges play together, with a comparison of clocks through NATS, delays of up
/// to 20 ms, and one line that is slower in one direction.
#[test]
fn players_of_all_edges_play_together() {
    if !soak() {
        return;
    }
    let _turn = turn();
    let Some(programs) = Programs::find() else { return };
    for (name, extra, latency) in
        [("the same both ways", 0, 0.0), ("4 ms more to edge 2", 4, 0.0), ("corrected", 4, 2.0)]
    {
        let mut config = programs.config();
        config.lines[NATS_NODES + 2].down += Duration::from_millis(extra);
        config.latency[2] = latency;
        let mut rig = Rig::start(config, &programs.net);
        let epoch = now();
        rig.start_players();
        let crowds = rig.start_crowd(CROWD, SYNC_RUN - Duration::from_secs(15));
        std::thread::sleep(SYNC_RUN);
        let sounds = rig.finish(epoch);
        for (edge, crowd) in crowds.into_iter().enumerate() {
            let report = crowd.join().unwrap();
            // Stamps that are passed follow the origin's clock, by some microseconds at a time.
            let steps = report.listeners.iter().map(|one| one.largest_gap_us.abs());
            let (cut, step) = (report.cut(), steps.max().unwrap_or_default());
            println!("{name}: edge {edge}: {CROWD} more clients: {cut} cut, steps of {step} us");
            assert!(cut == 0 && step < CHUNK_US, "edge {edge}");
        }
        let p99 = report_sync(name, &sounds);
        assert!(extra > 0 && latency == 0.0 || p99 <= 1_000.0, "{name}: {p99:.0} us");
    }
}

/// Prints how far players of one edge and of two are apart; the worst 99th percentile of two edges.
fn report_sync(name: &str, sounds: &[PlayedSound]) -> f64 {
    let mut worst: f64 = 0.0;
    for (number, one) in sounds.iter().enumerate() {
        for other in &sounds[number + 1..] {
            if one.is_ours != other.is_ours {
                continue;
            }
            for age in [30.0, 60.0, 90.0, 120.0] {
                let points = differences(&one.playout, &other.playout);
                let is_in = |at: f64| at >= age - 15.0 && at < age + 15.0;
                let points = points.iter().filter(|point| is_in(point.at));
                let signed: Vec<f64> = points.map(|point| point.ahead * 1e6).collect();
                let mut apart: Vec<f64> = signed.iter().map(|us| us.abs()).collect();
                if apart.is_empty() {
                    continue;
                }
                apart.sort_by(f64::total_cmp);
                let [p50, p99] = [0.5, 0.99].map(|share| percentile(&apart, share));
                let program = if one.is_ours { "aulos" } else { "snapclient" };
                println!(
                    "{name}: {program}, edges {} and {}, {age} s: p50 {p50:.0}, p99 {p99:.0} us, \
                     first {:+.0} us",
                    one.edge, other.edge, signed[0]
                );
                if one.is_ours && age > 30.0 {
                    worst = worst.max(p99);
                }
            }
        }
    }
    worst
}

/// A lost chunk is a step of 20 ms.
const CHUNK_US: i64 = 20_000;

/// Clients of each edge besides the players that are judged.
const CROWD: usize = 98;

/// snapclient drops and inserts sound by itself, also while nothing fails.
const OF_SNAPCLIENT: Duration = Duration::from_millis(50);

/// From the start of the players to their end.
const SYNC_RUN: Duration = Duration::from_secs(90);

/// A server whose NATS server has this port, with one station.
fn start_node(name: &str, port: u16, station: &str) -> (AulosServer, ScratchDir) {
    let scratch = ScratchDir::new(name).unwrap();
    let config = format!(
        "[[station]]\nname = \"studio\"\ncodec = \"flac\"\n{station}\n[cluster]\n\
         url = \"nats://127.0.0.1:{port}\"\nsite = \"test\"\nnode = \"{name}\"\n"
    );
    (AulosServer::start(&scratch, &config).unwrap(), scratch)
}

fn count(server: &AulosServer, name: &str) -> u64 {
    let status = Rpc::connect(server.control).call("Aulos.GetStatus", &json!({}));
    status["counters"][name].as_u64().unwrap()
}

/// Two edges of one place are at a leaf node, whose line to the others carries each chunk once.
#[test]
fn one_copy_crosses_the_line_to_a_leaf_node() {
    let _turn = long_timed_turn();
    let Some(program) = find_or_skip("nats-server") else { return };
    let cluster = NatsCluster::start(&program, &[Ipv4Addr::LOCALHOST; 3], None).unwrap();
    let monitor = free_port().unwrap();
    let leaf = NatsServer::start_with(&program, |_| {
        let remotes = cluster.nodes().iter();
        let remotes: Vec<_> =
            remotes.map(|node| format!("\"nats://127.0.0.1:{}\"", node.leaf)).collect();
        format!(
            "server_name: leaf\nhttp: \"127.0.0.1:{monitor}\"\n\
             leafnodes: {{ remotes: [ {{ urls: [{}] }} ] }}\n",
            remotes.join(", ")
        )
    })
    .unwrap();
    let port = cluster.nodes()[0].port;
    let (origin, _folder) = start_node("one", port, "publish = true\nsources = [\"demo://\"]");
    // What the leaf node has received over its line, and what it has sent to its clients.
    let line = || {
        let body = monitored(Ipv4Addr::LOCALHOST, monitor, "/leafz").unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        body["leafs"][0]["in_bytes"].as_u64().unwrap_or(0)
    };
    let delivered = || {
        let body = monitored(Ipv4Addr::LOCALHOST, monitor, "/connz").unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        let clients = body["connections"].as_array().unwrap().iter();
        clients.map(|client| client["out_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    wait_for("publishing", PATIENCE, || count(&origin, "nats_chunks_published") > 50);
    let before = line();
    std::thread::sleep(Duration::from_secs(2));
    let idle = line() - before;
    let edges = ["edge0", "edge1"].map(|name| {
        start_node(name, leaf.port, "buffer_ms = 650\nsources = [\"nats:///studio?pass=true\"]")
    });
    for (edge, _) in &edges {
        wait_for("chunks", PATIENCE, || count(edge, "nats_chunks_accepted") > 200);
    }
    let all = || {
        let accepted = edges.iter().map(|(edge, _)| count(edge, "nats_chunks_accepted"));
        (count(&origin, "nats_chunks_published"), accepted.sum::<u64>(), line(), delivered())
    };
    let before = all();
    std::thread::sleep(Duration::from_secs(4));
    let after = all();
    let published = after.0 - before.0;
    let (accepted, crossed) = (after.1 - before.1, after.2 - before.2);
    let delivered = after.3 - before.3;
    println!(
        "without an edge {idle} bytes crossed in 2 s; with two, in 4 s: {published} chunks \
         published, {crossed} bytes crossed, {delivered} delivered, {accepted} chunks accepted",
    );
    // Without an edge nothing but the leaf node's own traffic; the chunks of 2 s have 100 kB and
    // more.
    assert!(idle < 20_000, "{idle}");
    assert!(accepted >= published * 19 / 10, "{accepted} of {published}");
    // Two edges get what has crossed once. The answers about the time, one for each edge, are
    // small.
    assert!(delivered * 10 >= crossed * 17, "{crossed} crossed, {delivered} delivered");
    for (server, _) in edges {
        server.stop().unwrap();
    }
    origin.stop().unwrap();
}

/// The records and leases are on all three servers of a cluster, also if the bucket was made with
/// one copy.
#[test]
fn records_and_leases_are_on_three_servers_of_a_cluster() {
    let _turn = shared_turn();
    let Some(program) = find_or_skip("nats-server") else { return };
    let cluster = NatsCluster::start(&program, &[Ipv4Addr::LOCALHOST; 3], None).unwrap();
    let copies = || {
        let bodies = (0..3).map(|node| cluster.monitor(node, "/jsz?streams=true").unwrap());
        bodies.filter(|body| body.contains("KV_aulos_streams")).count()
    };
    let port = cluster.nodes()[0].port;
    for (number, (replicas, expected)) in [("replicas = 1\n", 1), ("", 3)].into_iter().enumerate() {
        let scratch = ScratchDir::new("replicas").unwrap();
        let config = format!(
            "[cluster]\nurl = \"nats://127.0.0.1:{port}\"\nnode = \"n{number}\"\n{replicas}\
             [[station]]\nname = \"a\"\npublish = true\nsources = [\"tone://\"]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        wait_for("the copies", PATIENCE, || copies() == expected);
        server.stop().unwrap();
    }
}

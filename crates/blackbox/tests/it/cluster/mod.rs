//! A whole cluster of real processes: three NATS servers, two origins, three edges with players, in
//! network namespaces with delays between them. What the players wrote is the judge.
//!
//! The short forms assert; the long ones (`scripts/soak cluster::`) print the tables of
//! `docs/explanation/scale.md`.

mod rig;

use std::path::PathBuf;
use std::time::Duration;

use aulos_blackbox::nats_cluster::NatsCluster;
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::sync::delayed_network::LineDelay;
use aulos_blackbox::sync::playout::{differences, percentile};

use crate::retry::retry_after_stall;
use crate::{soak, turn, wait_for};
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
        let _turn = turn();
        let Some(programs) = Programs::find() else { return };
        let mut rig = Rig::start(programs.config(), &programs.net);
        let epoch = now();
        rig.start_players();
        let apart = Duration::from_secs(if soak() { 12 } else { 5 });
        std::thread::sleep(apart);
        let mut failures = Vec::new();
        let mut fail = |name: String, edges: &[usize], limit| {
            println!("{name}");
            failures.push(Failure { name, at: now(), edges: edges.to_vec(), limit });
        };

        let node = rig.nats_node_of("edge0").unwrap();
        let of_origin = rig.nats_node_of(["one", "two"][rig.sender().unwrap()]);
        let name = format!("NATS server {node} of edge 0; that of the origin is {of_origin:?}");
        fail(name, &[], Duration::ZERO);
        rig.nats.kill(node);
        std::thread::sleep(apart);
        rig.nats.restart(node).unwrap();
        rig.nats.wait_until_healthy(node).unwrap();

        let other = of_origin.unwrap();
        fail(format!("NATS server {other} of the origin"), &[], Duration::ZERO);
        rig.nats.kill(other);
        std::thread::sleep(apart);
        rig.nats.restart(other).unwrap();
        rig.nats.wait_until_healthy(other).unwrap();

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

        let cut = Duration::from_secs(if soak() { 30 } else { 8 });
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
            let limit = if is_hit { failure.limit } else { Duration::ZERO };
            if longest > limit {
                faults.push(text);
            }
        }
    }
    faults
}

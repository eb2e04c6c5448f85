//! What fails in a cluster, for how long its listeners hear nothing, and how many connect again.

use std::fmt::Write;

use aulos_core::{Instant, Span};

use crate::scale_sim::{
    Cluster, ClusterPlan, EdgeKind, ListenerRecord, OriginNode, Outage, Population, at,
    for_each_edge, is_long, judge, percentile,
};

/// What fails at [`FAILS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The origin that is played; another one publishes the same programme.
    Origin,
    /// The server of the first edge, which is started again after two seconds.
    Edge,
    /// The same, and its listeners connect to the second edge.
    EdgeForGood,
    /// The network between the first edge and NATS, for 30 s.
    Partition,
    /// The NATS server of the first third of the edges; they know of another one.
    NatsNode,
}

impl Failure {
    const ALL: [Self; 5] =
        [Self::Origin, Self::Edge, Self::EdgeForGood, Self::Partition, Self::NatsNode];

    const fn name(self) -> &'static str {
        match self {
            Self::Origin => "active origin killed, another one publishes",
            Self::Edge => "edge killed, started again after 2 s",
            Self::EdgeForGood => "edge killed, its listeners go to another",
            Self::Partition => "30 s without network between edge and NATS",
            Self::NatsNode => "NATS server killed, its edges have another",
        }
    }

    const fn hits(self, edge: usize, edges: usize) -> bool {
        match self {
            Self::Origin => true,
            Self::NatsNode => edge < edges.div_ceil(3),
            Self::Edge | Self::EdgeForGood | Self::Partition => edge == 0,
        }
    }

    const fn hits_one_edge(self) -> bool {
        matches!(self, Self::Edge | Self::EdgeForGood | Self::Partition)
    }

    /// The bar for the silence of one of its listeners.
    const fn limit(self) -> Span {
        match self {
            Self::Origin => Span::from_secs(7),
            Self::Edge => Span::from_secs(5),
            Self::EdgeForGood => Span::from_millis(100),
            Self::Partition => Span::from_secs(35),
            Self::NatsNode => Span::from_millis(500),
        }
    }

    /// How often each of its listeners connects again.
    const fn connects_again(self) -> u32 {
        match self {
            Self::Edge | Self::EdgeForGood => 1,
            Self::Origin | Self::Partition | Self::NatsNode => 0,
        }
    }

    /// What breaks between an edge and NATS.
    const fn outage(self) -> Option<Outage> {
        let (until, noticed_after) = match self {
            Self::Partition => (Instant::from_nanos(FAILS_NS + 30_000_000_000), NOTICED),
            // The kernel of the node ends the connection; the other server is there.
            Self::NatsNode => (Instant::from_nanos(FAILS_NS + 1), Span::ZERO),
            Self::Origin | Self::Edge | Self::EdgeForGood => return None,
        };
        Some(Outage { from: FAILS, until, noticed_after })
    }
}

#[test]
fn a_failure_in_a_cluster_is_heard_by_its_own_listeners_only() {
    let (edges, per_edge, file) =
        if is_long() { (50, 4, "failures-long.txt") } else { (3, 6, "failures.txt") };
    let mut table = format!(
        "2 origins, {edges} edges, {per_edge} listeners each, NATS\n{}\n{}\n",
        HEAD[0], HEAD[1]
    );
    for failure in Failure::ALL {
        let records = run(failure, edges, per_edge);
        let hit = |edge: &usize| failure.hits(*edge, edges);
        let of = |edges: Vec<usize>| edges.iter().flat_map(|edge| &records[*edge]).collect();
        let (own, others): (Vec<usize>, Vec<usize>) = (0..edges).partition(hit);
        let (own, others): (Vec<_>, Vec<_>) = (of(own), of(others));
        row(&mut table, failure.name(), &own, &others);
        for other in others {
            assert_eq!((other.gap.count, other.connections, other.cuts), (0, 1, 0), "{failure:?}");
        }
        for one in own {
            let (gap, again) = (one.gap, one.connections - 1);
            assert!(gap.total <= failure.limit(), "{failure:?}: {gap:?}");
            assert_eq!(again, failure.connects_again(), "{failure:?}");
        }
    }
    judge(file, &table);
}

fn run(failure: Failure, edges: usize, per_edge: usize) -> Vec<Vec<ListenerRecord>> {
    let population =
        Population { per_edge, from: at(10.0), spread: Span::from_secs(2), records_from: at(15.0) };
    // The origin with the higher epoch is played.
    let mut studio = OriginNode::new("studio", 900, 20, 6);
    let reserve = OriginNode::new("reserve", 5_000, -35, 5);
    if failure == Failure::Origin {
        studio.killed_at = Some(FAILS);
    }
    let origins = vec![studio, reserve];
    let mut plan = ClusterPlan::new(EdgeKind::Decoding, edges, origins, population);
    for edge in (0..edges).filter(|edge| failure.hits(*edge, edges)) {
        failure.outage().into_iter().for_each(|outage| plan.break_path(edge, outage));
    }
    for_each_edge(edges, |edge| {
        let is_hit = failure.hits(edge, edges);
        let mut plan = plan.clone();
        if is_long() && is_hit && failure.hits_one_edge() {
            plan.population.per_edge = FULL_EDGE;
        }
        let both = [edge, (edge + 1) % edges];
        let moves = is_hit && failure == Failure::EdgeForGood;
        let mut cluster = Cluster::new(plan.only(if moves { &both } else { &both[..1] }));
        cluster.run_until(FAILS);
        if moves {
            // Those of the other edge are simulated with that one.
            cluster.sites[1].listeners.clear();
            cluster.kill_edge(0);
            cluster.move_listeners(0, 1);
        } else if is_hit && failure == Failure::Edge {
            cluster.kill_edge(0);
            cluster.run_until(FAILS + Span::from_secs(2));
            cluster.start_edge(0);
        }
        cluster.run_until(at(100.0));
        cluster.finish(usize::from(moves))
    })
}

fn row(table: &mut String, name: &str, own: &[&ListenerRecord], others: &[&ListenerRecord]) {
    let gaps = |all: &[&ListenerRecord]| {
        let mut gaps: Vec<f64> = all.iter().map(|one| one.gap.total.as_secs_f64() * 1e3).collect();
        gaps.sort_by(f64::total_cmp);
        [0.0, 0.5, 1.0].map(|share| percentile(&gaps, share))
    };
    let again = |all: &[&ListenerRecord]| all.iter().map(|one| one.connections - 1).sum::<u32>();
    let refused: u32 = own.iter().map(|one| one.refused).sum();
    let cuts: u64 = own.iter().map(|one| one.cuts).sum();
    let [least, middle, most] = gaps(own);
    let others_gap = if others.is_empty() { 0.0 } else { gaps(others)[2] };
    let written = writeln!(
        table,
        "{name:<44} {:>6} {least:>6.0} {middle:>6.0} {most:>6.0} {:>6} {refused:>8} {cuts:>5}    {:>6} {others_gap:>4.0} {:>6}",
        own.len(),
        again(own),
        others.len(),
        again(others),
    );
    assert!(written.is_ok());
}

/// In the long form, listeners of the one edge that fails.
const FULL_EDGE: usize = 500;

const FAILS_NS: u64 = 30_000_000_000;
const FAILS: Instant = Instant::from_nanos(FAILS_NS);

/// Two pings of NATS's client without an answer, and the pause before the first.
const NOTICED: Span = Span::from_secs(6);

const HEAD: [&str; 2] = [
    "                                              its listeners: silence, ms   connections                the others",
    "what fails                                    number  least    p50   most  again  refused  cuts    number  gap  again",
];

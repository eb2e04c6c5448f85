//! Listeners of different edges hear the same frame within a millisecond, if the edges pass chunks.
//!
//! The table is kept for few listeners beside this file, and for 100,000 as `docs` has it:
//! `AULOS_SOAK=1` runs those.

use std::fmt::Write;

use aulos_core::Span;

use crate::scale_sim::{
    Cluster, ClusterPlan, Differences, EdgeKind, ListenerRecord, OriginNode, Population, at,
    for_each_edge, is_long, judge, percentile,
};

/// One row of the table.
struct Case {
    name: &'static str,
    kind: EdgeKind,
    /// For how long the edges have run when the listeners come.
    age_s: f64,
    /// By how much longer the way to every second edge is than the way back, and whether that is
    /// corrected.
    asymmetry: (Span, bool),
    /// The bar for two listeners of different edges, microseconds.
    p99_limit: f64,
}

const NONE: (Span, bool) = (Span::ZERO, false);
const FOUR_MS: Span = Span::from_millis(4);

const CASES: [Case; 7] = [
    Case {
        name: "snapcast, pass=true",
        kind: EdgeKind::Passing,
        age_s: 30.0,
        asymmetry: NONE,
        p99_limit: 1_000.0,
    },
    Case {
        name: "the same, 4 ms asymmetry",
        kind: EdgeKind::Passing,
        age_s: 30.0,
        asymmetry: (FOUR_MS, false),
        p99_limit: 3_000.0,
    },
    Case {
        name: "the same, corrected",
        kind: EdgeKind::Passing,
        age_s: 30.0,
        asymmetry: (FOUR_MS, true),
        p99_limit: 1_000.0,
    },
    Case {
        name: "nats, pass=true, 30 s old",
        kind: EdgeKind::PassingNats,
        age_s: 30.0,
        asymmetry: NONE,
        p99_limit: 1_000.0,
    },
    Case {
        name: "the same, 600 s old",
        kind: EdgeKind::PassingNats,
        age_s: 600.0,
        asymmetry: NONE,
        p99_limit: 1_000.0,
    },
    Case {
        name: "nats, edges 30 s old",
        kind: EdgeKind::Decoding,
        age_s: 30.0,
        asymmetry: NONE,
        p99_limit: 30_000.0,
    },
    Case {
        name: "nats, edges 600 s old",
        kind: EdgeKind::Decoding,
        age_s: 600.0,
        asymmetry: NONE,
        p99_limit: 30_000.0,
    },
];

#[test]
fn clients_of_all_edges_play_at_the_same_time() {
    let (edges, per_edge, seconds, file) = if is_long() {
        (50, 2_000, 12.0, "listeners-long.txt")
    } else {
        (5, 8, 20.0, "listeners.txt")
    };
    let mut table = format!(
        "1 origin, {edges} edges, {per_edge} listeners each, {seconds} s\n{}\n{}\n",
        HEAD[0], HEAD[1]
    );
    for (number, case) in CASES.iter().enumerate() {
        // In the long form, the first row has all listeners, and the others a twentieth.
        let per_edge = if number > 0 && is_long() { per_edge / 20 } else { per_edge };
        let records = run(case, (edges, per_edge), seconds);
        let limit = row(&mut table, case.name, &records, seconds);
        assert!(limit < case.p99_limit, "{}: {limit} us\n{table}", case.name);
    }
    judge(file, &table);
}

fn run(case: &Case, (edges, per_edge): (usize, usize), seconds: f64) -> Vec<Vec<ListenerRecord>> {
    let population = Population {
        per_edge,
        from: at(case.age_s),
        spread: Span::from_secs(2),
        records_from: at(case.age_s + 5.0),
    };
    let origins = vec![OriginNode::new("studio", 900, 20, 5)];
    let mut plan = ClusterPlan::new(case.kind, edges, origins, population);
    plan.add_asymmetry(case.asymmetry.0, case.asymmetry.1);
    for_each_edge(edges, |edge| {
        let mut cluster = Cluster::new(plan.only(&[edge]));
        cluster.run_until(at(case.age_s + seconds));
        let [sent, passed] = cluster.sent(0);
        match case.kind {
            EdgeKind::Passing | EdgeKind::PassingNats => {
                assert!(passed * 10 > sent * 9, "{passed} of {sent}");
            }
            EdgeKind::Decoding => assert_eq!(passed, 0),
        }
        cluster.finish(0)
    })
}

/// Appends a row, and returns its 99th percentile for two listeners of different edges.
fn row(table: &mut String, name: &str, edges: &[Vec<ListenerRecord>], seconds: f64) -> f64 {
    let of_edge = |edge: &Vec<ListenerRecord>| {
        let delays = edge.iter().filter_map(|one| one.delays.last().copied());
        format!("{:.2}", delays.sum::<f64>() * 1e3 / edge.len() as f64)
    };
    println!("{name}: delay of each edge, ms: {:?}", edges.iter().map(of_edge).collect::<Vec<_>>());
    let listeners = edges.iter().flatten();
    let count = listeners.clone().count();
    let own = Differences::new(edges, true, 1);
    let other = Differences::new(edges, false, 2);
    let first = listeners.clone().map(|one| one.first_sound.map_or(f64::NAN, Span::as_secs_f64));
    let mut first: Vec<f64> = first.map(|seconds| seconds * 1e3).collect();
    first.sort_by(f64::total_cmp);
    let sum = |value: fn(&ListenerRecord) -> u64| listeners.clone().map(value).sum::<u64>();
    let asked = sum(|one| one.exchanges) as f64 / count as f64 / (seconds - 1.0);
    let gaps = sum(|one| u64::from(one.gap.count));
    let connections = sum(|one| u64::from(one.connections));
    let closest = listeners.clone().filter_map(|one| one.closest).min();
    let closest = closest.map_or(0, Span::as_millis);
    let written = writeln!(
        table,
        "{name:<25} {count:>7} {:>5.0} {:>6.0} {:>7.0} {:>6.0} {:>6.0} {:>7.0} {:>6.0} {:>6.0} {asked:>6.1} {closest:>6} {:>9} {gaps:>5} {:>5} {connections:>8}",
        own.at(0.5),
        own.at(0.99),
        own.at(1.0),
        other.at(0.5),
        other.at(0.99),
        other.at(1.0),
        percentile(&first, 0.5),
        percentile(&first, 0.99),
        sum(|one| one.chunks),
        sum(|one| one.cuts),
    );
    assert!(written.is_ok() && other.count() > count, "{} differences", other.count());
    other.at(0.99)
}

const HEAD: [&str; 2] = [
    "                                    one edge, us         two edges, us       sound, ms   asked  least            interruptions",
    "edges                   listeners   p50    p99     max    p50    p99     max    p50    p99   per s  lead      chunks  gaps  cuts  connects",
];

//! Listeners of different edges hear the same frame within a millisecond.

use crate::scale_sim::{Cluster, ClusterPlan, Differences, EdgeKind, OriginNode, Population, at};
use aulos_core::Span;

#[test]
fn probe() {
    let get = |name: &str, or: f64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(or)
    };
    let (warm, seconds) = (get("WARM", 30.0), get("SECONDS", 30.0));
    let population = Population {
        per_edge: get("PER_EDGE", 20.0) as usize,
        from: at(warm),
        spread: Span::from_secs(2),
        records_from: at(warm + 5.0),
    };
    let kind = if get("NATS", 0.0) > 0.0 { EdgeKind::Decoding } else { EdgeKind::Passing };
    let edges = get("EDGES", 4.0) as usize;
    let origins = vec![OriginNode::new("studio", 900, 20, 5)];
    let plan = ClusterPlan::new(kind, edges, origins, population);
    let mut records = Vec::new();
    for edge in 0..edges {
        let mut cluster = Cluster::new(plan.only(edge));
        cluster.run_until(at(warm + seconds));
        let counts = cluster.sites[0].edge.as_ref().unwrap().counts();
        let sent = cluster.sites[0].edge.as_mut().unwrap().sent();
        let mut record = cluster.finish(0);
        println!("edge {edge}: {counts:?} {sent:?} {:?}", record[0].delays.last());
        for one in record.iter_mut().take(2) {
            one.delays.truncate(3);
            println!("{one:?}");
        }
        records.push(cluster.finish(0));
        records.pop();
        records.push(record);
    }
    let all = Differences::new(&records, false, 1);
    println!("{} {:.0} {:.0} {:.0}", all.count(), all.at(0.5), all.at(0.99), all.at(1.0));
}

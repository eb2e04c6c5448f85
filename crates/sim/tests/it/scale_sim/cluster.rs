//! Edges with their listeners, in steps of one tick.

use aulos_core::{Instant, Ppm, Rng, Span};
use aulos_sim::{Link, LocalClock};

use super::edge::{Edge, EdgeKind, EdgePlan};
use super::feed::{Outage, SitePath};
use super::listener::{Listener, ListenerPlan, ListenerRecord, Surroundings};
use super::{OriginNode, TICK};

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan {
    /// The first one is that by which delays are measured.
    pub(crate) origins: Vec<OriginNode>,
    pub(crate) edges: Vec<EdgePlan>,
    pub(crate) population: Population,
}

/// The listeners of each edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Population {
    pub(crate) per_edge: usize,
    /// They connect within `spread` after that.
    pub(crate) from: Instant,
    pub(crate) spread: Span,
    /// From when on delays and gaps are recorded.
    pub(crate) records_from: Instant,
}

impl ClusterPlan {
    /// `edges` edges of one kind, whose one-way delays to the origin are 0 to 20 ms, and whose
    /// clocks are up to 50 ppm off.
    pub(crate) fn new(
        kind: EdgeKind,
        edges: usize,
        origins: Vec<OriginNode>,
        population: Population,
    ) -> Self {
        let edge = |number: usize| {
            let delay = Span::from_micros(20_000 * number as i64 / (edges - 1).max(1) as i64);
            let mut random = Rng::new(7_000 + number as u64);
            let booted = Instant::ZERO + Span::from_secs(2_000 + 333 * number as i64);
            let path = SitePath {
                down: delay,
                up: delay,
                jitter: Span::from_micros(500),
                outages: Vec::new(),
            };
            let clock = LocalClock::new(booted, ppm(&mut random, 50.0));
            EdgePlan { kind, clock, path, latency: Span::ZERO, seed: random.next_u64() }
        };
        Self { origins, edges: (0..edges).map(edge).collect(), population }
    }

    /// The same cluster with these edges only. Edges share nothing but the origins.
    pub(crate) fn only(&self, edges: &[usize]) -> Self {
        let edges = edges.iter().map(|edge| self.edges[*edge].clone()).collect();
        Self { edges, ..self.clone() }
    }

    /// An edge's connection breaks.
    pub(crate) fn break_path(&mut self, edge: usize, outage: Outage) {
        self.edges[edge].path.outages.push(outage);
    }

    /// The way to every second edge takes so much longer than the way back. Half of it is an error
    /// of the clock that the edge computes; with `is_corrected`, its source plays earlier by that.
    pub(crate) fn add_asymmetry(&mut self, longer: Span, is_corrected: bool) {
        for edge in self.edges.iter_mut().skip(1).step_by(2) {
            edge.path.down += longer;
            edge.latency = if is_corrected { longer / 2 } else { Span::ZERO };
        }
    }
}

/// A cluster that runs.
pub(crate) struct Cluster {
    plan: ClusterPlan,
    pub(crate) now: Instant,
    pub(crate) sites: Vec<Site>,
    frames: Vec<f32>,
}

/// One edge and those who listen there.
pub(crate) struct Site {
    /// `None` while it is dead.
    pub(crate) edge: Option<Edge>,
    pub(crate) listeners: Vec<Listener>,
}

impl Cluster {
    pub(crate) fn new(plan: ClusterPlan) -> Self {
        let site = |edge: &EdgePlan| Site {
            edge: Some(Edge::start(edge, &plan.origins, Instant::ZERO)),
            listeners: listeners(edge.seed, plan.population),
        };
        let sites = plan.edges.iter().map(site).collect();
        Self { now: Instant::ZERO, sites, plan, frames: Vec::new() }
    }

    /// Runs the cluster until `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        while self.now + TICK <= end {
            self.now += TICK;
            let (now, origin, frames) = (self.now, &self.plan.origins[0], &mut self.frames);
            for site in &mut self.sites {
                if let Some(edge) = &mut site.edge {
                    edge.tick(now);
                }
                let edge = site.edge.as_ref();
                let mut around = Surroundings { edge, origin, frames: &mut *frames };
                for listener in &mut site.listeners {
                    listener.tick(now, &mut around);
                }
            }
        }
    }

    /// The server of an edge is gone; the kernel ends its connections.
    pub(crate) fn kill_edge(&mut self, edge: usize) {
        let site = &mut self.sites[edge];
        site.edge = None;
        site.listeners.iter_mut().for_each(|listener| listener.disconnect(self.now));
    }

    /// It is started again, on the same machine.
    pub(crate) fn start_edge(&mut self, edge: usize) {
        let started = Edge::start(&self.plan.edges[edge], &self.plan.origins, self.now);
        self.sites[edge].edge = Some(started);
    }

    /// The listeners of a dead edge go to another one when they connect again.
    pub(crate) fn move_listeners(&mut self, from: usize, to: usize) {
        let listeners = core::mem::take(&mut self.sites[from].listeners);
        self.sites[to].listeners.extend(listeners);
    }

    /// Chunks that the station of an edge has sent, and those of them that it has passed.
    pub(crate) fn sent(&mut self, edge: usize) -> [u64; 2] {
        self.sites[edge].edge.as_mut().map_or([0; 2], Edge::sent)
    }

    /// What was recorded of the listeners of an edge.
    pub(crate) fn finish(&mut self, edge: usize) -> Vec<ListenerRecord> {
        let now = self.now;
        let finished = |listener: &mut Listener| {
            listener.finish(now);
            core::mem::take(&mut listener.record)
        };
        self.sites[edge].listeners.iter_mut().map(finished).collect()
    }
}

/// Four of five listeners have a cable, the fifth a busy wifi. Computers are up to 50 ppm off,
/// cards up to 100.
fn listeners(seed: u64, population: Population) -> Vec<Listener> {
    let mut random = Rng::new(!seed);
    let listener = |number: usize| {
        let link = if number % 5 == 4 { Link::WIFI } else { Link::CABLE };
        // A send is one piece: of the segments of one, the last would be late more than a single
        // one.
        let link = Link { segment: 65_536, ..link };
        let (clock, card) = (ppm(&mut random, 50.0), ppm(&mut random, 100.0));
        let wait = population.spread.as_secs_f64() * random.next_f64();
        let connects_at = population.from + Span::from_nanos((wait * 1e9) as i64);
        let plan = ListenerPlan { link, clock, card, connects_at, seed: random.next_u64() };
        Listener::new(plan, population.records_from)
    };
    (0..population.per_edge).map(listener).collect()
}

/// A drift between plus and minus `most`.
fn ppm(random: &mut Rng, most: f64) -> Ppm {
    Ppm::from_ppb(((random.next_f64() * 2.0 - 1.0) * most * 1e3) as i32)
}

/// Runs what is to be done for each edge on all processors; the results are in the order of edges.
pub(crate) fn for_each_edge<T: Send>(edges: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(edges);
    let run = &run;
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let share = |thread: usize| {
            scope.spawn(move || {
                (thread..edges).step_by(threads).map(|edge| (edge, run(edge))).collect::<Vec<_>>()
            })
        };
        let shares: Vec<_> = (0..threads).map(share).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).collect()
    });
    results.sort_by_key(|(edge, _)| *edge);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Whether the long form is asked for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("AULOS_SOAK").is_some()
}

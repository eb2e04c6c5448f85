//! Nodes, and a bucket behind a network that delays, loses and repeats.

use aulos_core::Rng;

use super::*;

const STEP: Span = Span::from_millis(10);

fn key(id: &str) -> SettingsKey {
    SettingsKey::Client(id.to_owned())
}

fn client() -> SharedClientSettings {
    SharedClientSettings {
        name: String::new(),
        volume: 100,
        muted: false,
        cap: 100,
        latency_ms: 0,
        group: "g".into(),
    }
}

#[derive(Default)]
struct Bucket {
    revision: u64,
    values: BTreeMap<SettingsKey, (u64, SettingsRecord)>,
    /// Each revision: its key and who wrote it.
    log: Vec<(SettingsKey, usize, Instant)>,
}

/// A server with one or more clients.
struct Node {
    machine: SharedSettings,
    has: BTreeMap<SettingsKey, SharedClientSettings>,
    is_cut_off: bool,
}

enum Transit {
    Request { id: u64, key: SettingsKey, operation: SettingsOperation },
    Event(SettingsEvent),
}

struct World {
    now: Instant,
    bucket: Bucket,
    nodes: Vec<Node>,
    network: Vec<(Instant, usize, Transit)>,
    rng: Rng,
    /// The share of messages that are lost, in percent.
    loss: u64,
}

impl World {
    fn new(nodes: usize, seed: u64) -> Self {
        let now = Instant::ZERO;
        let node =
            |_| Node { machine: SharedSettings::new(now), has: BTreeMap::new(), is_cut_off: false };
        let nodes = (0..nodes).map(node).collect();
        let mut world = Self {
            now,
            bucket: Bucket::default(),
            nodes,
            network: Vec::new(),
            rng: Rng::new(seed),
            loss: 0,
        };
        for node in 0..world.nodes.len() {
            world.open(node);
        }
        world
    }

    /// A watch begins: every entry comes.
    fn open(&mut self, node: usize) {
        self.nodes[node].is_cut_off = false;
        self.nodes[node].machine.handle_input(self.now, SettingsEvent::Opened);
        let all: Vec<_> = self.bucket.values.clone().into_iter().collect();
        for (key, (revision, record)) in all {
            let value = SettingsValue::Record(record);
            self.send(node, Transit::Event(SettingsEvent::Entry { key, revision, value }));
        }
    }

    fn cut_off(&mut self, node: usize) {
        self.nodes[node].is_cut_off = true;
        self.nodes[node].machine.handle_input(self.now, SettingsEvent::Closed);
    }

    fn send(&mut self, node: usize, message: Transit) {
        // A request and its answer may be lost; a watch is repeated by the client of NATS.
        let may_be_lost = !matches!(message, Transit::Event(SettingsEvent::Entry { .. }));
        if may_be_lost && self.rng.next_u64() % 100 < self.loss {
            return;
        }
        let delay = i64::try_from(self.rng.next_u64() % 80).unwrap();
        self.network.push((self.now + Span::from_millis(delay), node, message));
    }

    /// A user of a node changes a client.
    fn set(&mut self, node: usize, id: &str, change: impl FnOnce(&mut SharedClientSettings)) {
        let Node { machine, has, .. } = &mut self.nodes[node];
        let before = has.get(&key(id)).cloned().unwrap_or_else(client);
        let mut after = before.clone();
        change(&mut after);
        has.insert(key(id), after.clone());
        let [before, after] = [before, after].map(SettingsRecord::Client);
        machine.handle_change(self.now, key(id), Some(before), after);
    }

    fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        while self.now < end {
            self.now += STEP;
            for number in 0..self.nodes.len() {
                self.step(number);
            }
            let due: Vec<_> = self.network.extract_if(.., |one| one.0 <= self.now).collect();
            for (_, node, message) in due {
                self.deliver(node, message);
            }
        }
    }

    fn step(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.machine.poll_timeout().is_some_and(|at| at <= self.now) {
            node.machine.handle_timeout(self.now);
        }
        while let Some(output) = self.nodes[number].machine.poll_output() {
            match output {
                SettingsOutput::Request { id, key, operation } => {
                    self.send(number, Transit::Request { id, key, operation });
                }
                SettingsOutput::Apply { key, record: SettingsRecord::Client(record) } => {
                    self.nodes[number].has.insert(key, record);
                }
                SettingsOutput::Apply { .. } => panic!("there are no groups"),
            }
        }
    }

    fn deliver(&mut self, node: usize, message: Transit) {
        if self.nodes[node].is_cut_off {
            return;
        }
        match message {
            Transit::Event(event) => self.nodes[node].machine.handle_input(self.now, event),
            Transit::Request { id, key, operation } => {
                let reply = self.apply(node, &key, operation);
                self.send(node, Transit::Event(SettingsEvent::Reply { id, reply }));
            }
        }
    }

    fn apply(
        &mut self,
        node: usize,
        key: &SettingsKey,
        operation: SettingsOperation,
    ) -> SettingsReply {
        let known = self.bucket.values.get(key);
        match operation {
            SettingsOperation::Read => match known {
                Some((revision, record)) => SettingsReply::Entry {
                    revision: *revision,
                    value: SettingsValue::Record(record.clone()),
                },
                None => SettingsReply::Entry { revision: 0, value: SettingsValue::Absent },
            },
            SettingsOperation::Write { revision, .. }
                if revision != known.map_or(0, |(revision, _)| *revision) =>
            {
                SettingsReply::Conflict
            }
            SettingsOperation::Write { record, .. } => {
                self.bucket.revision += 1;
                let revision = self.bucket.revision;
                self.bucket.values.insert(key.clone(), (revision, record.clone()));
                self.bucket.log.push((key.clone(), node, self.now));
                for watcher in 0..self.nodes.len() {
                    let value = SettingsValue::Record(record.clone());
                    let entry = SettingsEvent::Entry { key: key.clone(), revision, value };
                    self.send(watcher, Transit::Event(entry));
                }
                SettingsReply::Written { revision }
            }
        }
    }

    fn committed(&self, id: &str) -> SharedClientSettings {
        match &self.bucket.values[&key(id)].1 {
            SettingsRecord::Client(client) => client.clone(),
            SettingsRecord::Group(_) => panic!("there are no groups"),
        }
    }

    /// All nodes have what the bucket has, and nothing waits.
    fn assert_agreement(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            assert_eq!(node.machine.waiting(), 0, "node {number}");
            for (key, (_, record)) in &self.bucket.values {
                let has = node.has.get(key).cloned().map(SettingsRecord::Client);
                assert_eq!(has.as_ref(), Some(record), "node {number} {key:?}");
            }
        }
    }
}

#[test]
fn a_change_reaches_all_nodes() {
    let mut world = World::new(3, 1);
    world.set(0, "kitchen", |client| client.volume = 30);
    world.run(Span::from_secs(1));
    assert_eq!(world.committed("kitchen").volume, 30);
    world.assert_agreement();
}

/// 60 steps a second for ten seconds.
#[test]
fn a_slider_makes_one_revision_a_second() {
    let mut world = World::new(2, 2);
    for step in 0..600_u16 {
        world.set(0, "kitchen", |client| client.volume = u8::try_from(step % 100).unwrap());
        world.run(Span::from_millis(if step % 3 == 0 { 20 } else { 10 }));
    }
    let seconds = (world.now - Instant::ZERO).as_millis() / 1_000;
    world.run(Span::from_secs(3));
    let revisions = i64::try_from(world.bucket.log.len()).unwrap();
    assert!((seconds - 1..=seconds + 2).contains(&revisions), "{revisions} in {seconds} s");
    assert_eq!(world.committed("kitchen").volume, 99);
    world.assert_agreement();
}

#[test]
fn two_changes_at_once_of_different_fields_both_stay() {
    for seed in 0..50 {
        let mut world = World::new(2, seed);
        world.set(0, "kitchen", |client| client.volume = 30);
        world.set(1, "kitchen", |client| client.name = "Kitchen".into());
        world.run(Span::from_secs(5));
        let client = world.committed("kitchen");
        assert_eq!((client.volume, client.name.as_str()), (30, "Kitchen"), "seed {seed}");
        world.assert_agreement();
    }
}

#[test]
fn of_two_changes_at_once_of_one_field_that_which_is_written_last_stays() {
    let mut winners = BTreeSet::new();
    for seed in 0..50 {
        let mut world = World::new(2, seed);
        world.set(0, "kitchen", |client| client.volume = 30);
        world.set(1, "kitchen", |client| client.volume = 60);
        world.run(Span::from_secs(8));
        let (_, last, _) = *world.bucket.log.last().as_ref().unwrap();
        assert_eq!(world.committed("kitchen").volume, [30, 60][*last], "seed {seed}");
        assert_eq!(world.bucket.log.len(), 2, "it ends");
        winners.insert(*last);
        world.assert_agreement();
    }
    assert_eq!(winners.len(), 2, "no node wins always");
}

/// What was changed while the bucket was away is written when it is back; what it was not, is
/// taken.
#[test]
fn a_change_without_the_bucket_waits_for_it() {
    let mut world = World::new(2, 3);
    world.set(0, "kitchen", |client| client.volume = 50);
    world.run(Span::from_secs(2));
    world.cut_off(0);
    world.set(0, "kitchen", |client| client.volume = 30);
    world.set(0, "bath", |client| client.muted = true);
    world.set(1, "kitchen", |client| client.latency_ms = 40);
    world.set(1, "kitchen", |client| client.volume = 70);
    world.run(Span::from_secs(600));
    assert_eq!(world.committed("kitchen").volume, 70);
    assert_eq!(world.nodes[0].has[&key("kitchen")].volume, 30);
    world.open(0);
    world.run(Span::from_secs(5));
    let client = world.committed("kitchen");
    assert_eq!((client.volume, client.latency_ms), (30, 40));
    assert!(world.committed("bath").muted);
    world.assert_agreement();
}

/// A node that starts has clients of its own file; the bucket goes first.
#[test]
fn an_offer_is_written_only_where_there_is_none() {
    let mut world = World::new(2, 4);
    world.set(0, "kitchen", |client| client.volume = 50);
    world.run(Span::from_secs(2));
    let saved = SettingsRecord::Client(SharedClientSettings { volume: 10, ..client() });
    for id in ["kitchen", "bath"] {
        let now = world.now;
        world.nodes[1].has.insert(key(id), SharedClientSettings { volume: 10, ..client() });
        world.nodes[1].machine.handle_change(now, key(id), None, saved.clone());
    }
    world.run(Span::from_secs(3));
    assert_eq!((world.committed("kitchen").volume, world.committed("bath").volume), (50, 10));
    world.assert_agreement();
    // The same before its watch has brought anything.
    let mut world = World::new(2, 5);
    world.set(0, "kitchen", |client| client.volume = 50);
    world.cut_off(1);
    world.nodes[1].has.insert(key("kitchen"), client());
    let now = world.now;
    world.nodes[1].machine.handle_change(now, key("kitchen"), None, saved);
    world.run(Span::from_secs(2));
    world.open(1);
    world.run(Span::from_secs(3));
    assert_eq!(world.committed("kitchen").volume, 50);
    world.assert_agreement();
}

/// The bucket is another one, with lower revisions, after its server was replaced.
#[test]
fn an_emptied_bucket_is_written_by_the_next_change() {
    let mut world = World::new(2, 6);
    for volume in [10, 20, 30] {
        world.set(0, "kitchen", |client| client.volume = volume);
        world.run(Span::from_secs(2));
    }
    for node in 0..2 {
        world.cut_off(node);
    }
    world.bucket = Bucket::default();
    for node in 0..2 {
        world.open(node);
    }
    world.set(1, "kitchen", |client| client.muted = true);
    world.run(Span::from_secs(3));
    let client = world.committed("kitchen");
    assert_eq!((client.volume, client.muted), (30, true));
    assert_eq!(world.bucket.revision, 1);
    world.assert_agreement();
}

/// Changes of three nodes through loss, delay and partitions: in the end all agree, and each field
/// of each client is one that was set.
#[test]
fn nodes_agree_in_the_end_whatever_is_lost() {
    for seed in 0..20 {
        let mut world = World::new(3, seed);
        world.loss = 20;
        let mut rng = Rng::new(seed + 1_000);
        for number in 0..60_u8 {
            let node = usize::try_from(rng.next_u64() % 3).unwrap();
            let id = ["kitchen", "bath", "hall"][usize::try_from(rng.next_u64() % 3).unwrap()];
            match rng.next_u64() % 6 {
                0 if !world.nodes[node].is_cut_off => world.cut_off(node),
                1 if world.nodes[node].is_cut_off => world.open(node),
                2 => world.set(node, id, |client| client.name = format!("n{number}")),
                _ => world.set(node, id, |client| client.volume = number),
            }
            let pause = i64::try_from(rng.next_u64() % 900).unwrap();
            world.run(Span::from_millis(pause));
        }
        for node in 0..3 {
            if world.nodes[node].is_cut_off {
                world.open(node);
            }
        }
        world.loss = 0;
        world.run(Span::from_secs(30));
        world.assert_agreement();
        assert!(!world.bucket.values.is_empty());
        let log = &world.bucket.log;
        for (at, (key, node, now)) in log.iter().enumerate() {
            let earlier = log[..at].iter().rev().find(|one| (&one.0, one.1) == (key, *node));
            // A write may be delayed by less than a tenth of a second.
            let least = WRITE_INTERVAL - Span::from_millis(100);
            assert!(earlier.is_none_or(|one| *now - one.2 >= least), "seed {seed}");
        }
    }
}

#[test]
fn what_is_wrong_is_dropped_and_counted() {
    let now = Instant::ZERO;
    let mut machine = SharedSettings::new(now);
    machine.handle_input(now, SettingsEvent::Opened);
    let entry = |revision, value| SettingsEvent::Entry { key: key("a"), revision, value };
    machine.handle_input(now, entry(1, SettingsValue::Unreadable));
    let group = GroupSettings { name: String::new(), muted: false, station: "s".into() };
    machine.handle_input(now, entry(2, SettingsValue::Record(SettingsRecord::Group(group))));
    assert_eq!((machine.counts().malformed, machine.poll_output()), (2, None));
    let record = SettingsRecord::Client(client());
    for revision in [3, 3, 1] {
        machine.handle_input(now, entry(revision, SettingsValue::Record(record.clone())));
    }
    let applied = SettingsOutput::Apply { key: key("a"), record };
    assert_eq!((machine.poll_output(), machine.poll_output()), (Some(applied), None));
    assert_eq!((machine.counts().repeated, machine.counts().applied), (2, 1));
    machine.handle_input(now, SettingsEvent::Reply { id: 77, reply: SettingsReply::Conflict });
    assert_eq!(machine.counts().conflicts, 0);
}

#[test]
fn keys_and_requests_are_limited() {
    let now = Instant::ZERO;
    let mut machine = SharedSettings::new(now);
    machine.handle_input(now, SettingsEvent::Opened);
    let record = SettingsRecord::Client(client());
    for number in 0..MAX_SETTINGS_KEYS + 5 {
        machine.handle_change(now, key(&number.to_string()), None, record.clone());
    }
    assert_eq!((machine.waiting(), machine.counts().overflow), (MAX_SETTINGS_KEYS, 5));
    machine.handle_timeout(now + COALESCE);
    let requests = std::iter::from_fn(|| machine.poll_output()).count();
    assert_eq!(requests, MAX_REQUESTS);
    // They fail when nothing answers, and others follow.
    machine.handle_timeout(now + COALESCE + REQUEST_TIMEOUT);
    assert_eq!(machine.counts().failed, u64::try_from(MAX_REQUESTS).unwrap());
    assert_eq!(std::iter::from_fn(|| machine.poll_output()).count(), MAX_REQUESTS);
}

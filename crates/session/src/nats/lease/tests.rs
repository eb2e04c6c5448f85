//! Origins with clocks of their own, and a bucket behind a network that loses and delays.

use std::collections::HashMap;

use aulos_core::{Ppm, Rng};
use aulos_sim::LocalClock;
use proptest::prelude::*;

use super::*;

const TTL: Span = Span::from_secs(2);
const STEP: Span = Span::from_millis(5);
const FIRST_EPOCH: u32 = 1_000;

/// One key with its revision.
#[derive(Default)]
struct Bucket {
    revision: u64,
    value: Option<LeaseRecord>,
}

impl Bucket {
    fn apply(&mut self, operation: LeaseOperation) -> LeaseReply {
        match operation {
            LeaseOperation::Read => {
                let value = self.value.clone().map_or(LeaseValue::Absent, LeaseValue::Lease);
                LeaseReply::Entry { revision: self.revision, value }
            }
            LeaseOperation::Write { revision, .. } if revision != self.revision => {
                LeaseReply::Conflict
            }
            LeaseOperation::Write { lease, .. } => {
                (self.revision, self.value) = (self.revision + 1, Some(lease));
                LeaseReply::Written { revision: self.revision }
            }
        }
    }
}

/// An origin of the station.
struct Contender {
    lease: Lease,
    clock: LocalClock,
    process: u64,
    states: Vec<LeaseState>,
    /// Whether messages to and from it are lost.
    is_cut_off: bool,
    is_alive: bool,
}

impl Contender {
    fn is_confirmed(&self, local: Instant) -> bool {
        matches!(self.lease.state(local), LeaseState::Holder { .. })
    }
}

/// A message on its way.
struct TransitMessage {
    due: Instant,
    origin: usize,
    process: u64,
    id: u64,
    content: Content,
}

enum Content {
    Request(LeaseOperation),
    Reply(LeaseReply),
}

struct World {
    now: Instant,
    bucket: Bucket,
    has_jetstream: bool,
    contenders: Vec<Contender>,
    network: Vec<TransitMessage>,
    /// The probability that a message is lost, and the longest delay.
    loss: f64,
    delay: Span,
    rng: Rng,
    processes: u64,
    /// Which process has sent with an epoch.
    senders: HashMap<u32, u64>,
    /// The instants at which something was sent that an edge plays, and with which epoch: the
    /// highest that it has seen.
    played: Vec<(Instant, u32)>,
    fence: u32,
}

impl World {
    fn new(origins: usize, seed: u64) -> Self {
        let mut world = Self {
            now: Instant::ZERO + Span::from_secs(1_000),
            bucket: Bucket::default(),
            has_jetstream: true,
            contenders: Vec::new(),
            network: Vec::new(),
            loss: 0.0,
            delay: Span::from_millis(20),
            rng: Rng::new(seed),
            processes: 0,
            senders: HashMap::new(),
            played: Vec::new(),
            fence: 0,
        };
        for _ in 0..origins {
            let contender = world.contender();
            world.contenders.push(contender);
        }
        world
    }

    /// An origin that begins now, on a machine with a clock of its own.
    fn contender(&mut self) -> Contender {
        self.processes += 1;
        let ahead = Span::from_secs(i64::try_from(self.rng.below(1_000)).unwrap());
        let ppm = i32::try_from(self.rng.below(400)).unwrap() - 200;
        let clock = LocalClock::new(Instant::ZERO + ahead, Ppm::from_ppm(ppm));
        let config = LeaseConfig {
            node: format!("node {}", self.processes),
            process: self.processes,
            run: 1,
            ttl: TTL,
            first_epoch: FIRST_EPOCH,
        };
        Contender {
            lease: Lease::new(config, clock.read(self.now)),
            clock,
            process: self.processes,
            states: Vec::new(),
            is_cut_off: false,
            is_alive: true,
        }
    }

    fn kill(&mut self, origin: usize) {
        self.contenders[origin].is_alive = false;
    }

    fn restart(&mut self, origin: usize) {
        self.contenders[origin] = self.contender();
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis / STEP.as_millis() {
            self.now += STEP;
            self.step();
        }
    }

    fn step(&mut self) {
        self.deliver();
        for origin in 0..self.contenders.len() {
            let contender = &mut self.contenders[origin];
            if !contender.is_alive {
                continue;
            }
            let local = contender.clock.read(self.now);
            if contender.lease.poll_timeout() <= local {
                contender.lease.handle_timeout(local);
            }
            self.drain(origin);
        }
        self.check_senders();
    }

    /// There is never more than one confirmed lease, never another sender with the same epoch, and
    /// so never more than one that an edge plays.
    fn check_senders(&mut self) {
        let (mut epochs, mut confirmed) = (Vec::new(), 0);
        for contender in self.contenders.iter().filter(|contender| contender.is_alive) {
            let local = contender.clock.read(self.now);
            let Some(epoch) = contender.lease.epoch(local) else { continue };
            epochs.push(epoch);
            confirmed += u32::from(contender.is_confirmed(local));
            if self.has_jetstream {
                let sender = *self.senders.entry(epoch).or_insert(contender.process);
                assert_eq!(sender, contender.process, "two senders of epoch {epoch}");
            }
        }
        if self.has_jetstream {
            assert!(confirmed <= 1, "{epochs:?}");
        }
        self.fence = epochs.iter().fold(self.fence, |fence, epoch| fence.max(*epoch));
        if epochs.contains(&self.fence) {
            self.played.push((self.now, self.fence));
        }
    }

    fn drain(&mut self, origin: usize) {
        while let Some(output) = self.contenders[origin].lease.poll_output() {
            match output {
                LeaseOutput::Changed(state) => self.contenders[origin].states.push(state),
                LeaseOutput::Request(LeaseRequest { id, operation }) => {
                    self.post(origin, id, Content::Request(operation));
                }
            }
        }
    }

    fn post(&mut self, origin: usize, id: u64, content: Content) {
        let lost = self.contenders[origin].is_cut_off || self.rng.chance(self.loss);
        if !lost {
            let longest = usize::try_from(self.delay.as_micros()).unwrap();
            let delay = i64::try_from(self.rng.below(longest)).unwrap();
            let due = self.now + Span::from_micros(delay);
            let process = self.contenders[origin].process;
            self.network.push(TransitMessage { due, origin, process, id, content });
        }
    }

    fn deliver(&mut self) {
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.network).into_iter().partition(|m| m.due <= self.now);
        self.network = later;
        due.sort_by_key(|message| message.due);
        for TransitMessage { origin, process, id, content, .. } in due {
            let is_same = self.contenders[origin].process == process;
            match content {
                Content::Request(_) if !self.has_jetstream => {
                    self.post(origin, id, Content::Reply(LeaseReply::Unsupported));
                }
                // The request of a process that has ended arrives all the same.
                Content::Request(operation) => {
                    let reply = self.bucket.apply(operation);
                    if is_same {
                        self.post(origin, id, Content::Reply(reply));
                    }
                }
                Content::Reply(reply) => {
                    let contender = &mut self.contenders[origin];
                    if is_same && contender.is_alive && !contender.is_cut_off {
                        let local = contender.clock.read(self.now);
                        contender.lease.handle_input(local, id, reply);
                        self.drain(origin);
                    }
                }
            }
        }
    }

    fn holder(&self) -> Option<usize> {
        let holds = |contender: &Contender| {
            contender.is_alive && contender.is_confirmed(contender.clock.read(self.now))
        };
        self.contenders.iter().position(holds)
    }

    /// The longest time in which nothing was played, between the first and the last instant.
    fn longest_gap(&self) -> Span {
        let gaps = self.played.windows(2).map(|pair| pair[1].0 - pair[0].0);
        gaps.max().unwrap_or(Span::ZERO)
    }

    /// How often the epoch has changed; it only rises.
    fn changes(&self) -> usize {
        self.played.windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }
}

#[test]
fn the_first_origin_sends_and_the_others_wait() {
    let mut world = World::new(3, 1);
    world.run(100);
    let holder = world.holder().unwrap();
    world.run(60_000);
    assert_eq!((world.holder(), world.changes()), (Some(holder), 0));
    assert_eq!(world.longest_gap(), STEP);
    assert_eq!(world.played[0].1, FIRST_EPOCH);
    for (index, contender) in world.contenders.iter().enumerate() {
        let is_standby = matches!(contender.states.last(), Some(LeaseState::Standby { .. }));
        assert_eq!(is_standby, index != holder, "{:?}", contender.states);
    }
}

#[test]
fn the_standby_takes_over_within_two_ttls_and_keeps_the_lease() {
    for seed in 0..50 {
        let mut world = World::new(2, seed);
        world.run(5_000 + i64::try_from(seed).unwrap() * 13);
        let first = world.holder().unwrap();
        world.kill(first);
        world.run(4_000);
        let second = world.holder().expect("a new holder");
        assert_ne!(first, second);
        world.restart(first);
        world.run(30_000);
        assert_eq!((world.holder(), world.changes()), (Some(second), 1));
        let gap = world.longest_gap();
        assert!(gap > TTL / 2 && gap < TTL * 3 / 2, "{gap}");
        let returned = world.contenders[first].states.last().unwrap();
        let holder = format!("node {}", world.contenders[second].process);
        assert_eq!(*returned, LeaseState::Standby { holder });
    }
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut world = World::new(2, 3);
    world.run(5_000);
    let first = world.holder().unwrap();
    let local = world.contenders[first].clock.read(world.now);
    world.contenders[first].lease.release(local);
    assert_eq!(world.holder(), None);
    world.run(5_000);
    assert_eq!((world.holder(), world.changes()), (Some(1 - first), 1));
    assert!(world.longest_gap() < TTL / 2, "{}", world.longest_gap());
}

/// The configuration of a station is changed: it runs again in the same process.
#[test]
fn a_later_run_of_the_station_does_not_wait() {
    let mut world = World::new(1, 4);
    world.run(5_000);
    let clock = world.contenders[0].clock;
    let config = LeaseConfig { run: 2, ..world.contenders[0].lease.config.clone() };
    world.contenders[0].lease = Lease::new(config, clock.read(world.now));
    world.network.clear();
    world.run(1_000);
    assert_eq!((world.holder(), world.changes()), (Some(0), 1));
    assert!(world.longest_gap() < Span::from_millis(200), "{}", world.longest_gap());
}

/// Edges that hear both hear no gap; those that are cut off with the holder go on hearing that.
#[test]
fn a_holder_that_is_cut_off_sends_on_and_the_other_one_supersedes_it() {
    for seed in 0..50 {
        let mut world = World::new(2, seed);
        world.run(5_000 + i64::try_from(seed).unwrap() * 17);
        let first = world.holder().unwrap();
        world.contenders[first].is_cut_off = true;
        // Two confirmed leases at one instant would fail here.
        world.run(10_000);
        assert_eq!(world.holder(), Some(1 - first));
        let last = world.contenders[first].states.last().unwrap();
        assert_eq!(*last, LeaseState::Unconfirmed { epoch: FIRST_EPOCH });
        world.contenders[first].is_cut_off = false;
        world.run(10_000);
        assert_eq!((world.holder(), world.changes()), (Some(1 - first), 1));
        assert_eq!(world.longest_gap(), STEP);
        assert!(matches!(world.contenders[first].states.last(), Some(LeaseState::Standby { .. })));
    }
}

/// No other origin wanted the lease meanwhile, so edges see no change.
#[test]
fn a_single_origin_continues_its_epoch_while_nats_is_away() {
    let mut world = World::new(1, 5);
    world.run(5_000);
    world.contenders[0].is_cut_off = true;
    world.run(20_000);
    assert_eq!(world.holder(), None);
    world.contenders[0].is_cut_off = false;
    world.run(1_000);
    assert_eq!((world.holder(), world.changes()), (Some(0), 0));
    assert_eq!(world.longest_gap(), STEP);
}

/// As while `JetStream` elects a leader: no origin gets an answer.
#[test]
fn while_the_bucket_does_not_answer_nothing_changes() {
    for seed in 0..20 {
        let mut world = World::new(2, seed);
        world.run(5_000 + i64::try_from(seed).unwrap() * 23);
        let first = world.holder().unwrap();
        world.loss = 1.0;
        world.run(6_000);
        world.loss = 0.0;
        world.run(5_000);
        assert_eq!(world.longest_gap(), STEP);
        assert_eq!((world.holder(), world.changes()), (Some(first), 0));
    }
}

/// An operator deletes the key, or the bucket is lost, while the holder is cut off.
#[test]
fn an_empty_bucket_does_not_end_a_lease_early() {
    for seed in 0..20 {
        let mut world = World::new(2, seed);
        world.run(5_000 + i64::try_from(seed).unwrap() * 29);
        let first = world.holder().unwrap();
        world.contenders[first].is_cut_off = true;
        (world.bucket.value, world.bucket.revision) = (None, 0);
        world.run(5_000);
        assert_eq!((world.holder(), world.changes()), (Some(1 - first), 1));
    }
}

#[test]
fn a_lost_answer_to_a_claim_does_not_lose_the_lease() {
    let mut world = World::new(1, 6);
    while world.bucket.value.is_none() {
        world.run(5);
    }
    // The answer is on its way.
    world.network.clear();
    assert_eq!(world.holder(), None);
    world.run(1_000);
    assert_eq!(world.holder(), Some(0));
    assert_eq!(world.bucket.value.as_ref().unwrap().epoch, FIRST_EPOCH);
}

#[test]
fn a_clock_that_steps_back_does_not_prolong_a_lease() {
    let mut world = World::new(1, 7);
    world.run(5_000);
    let contender = &mut world.contenders[0];
    let local = contender.clock.read(world.now);
    assert!(contender.is_confirmed(local) && !contender.is_confirmed(local + TTL));
    contender.lease.handle_timeout(local + TTL);
    let before = local - Span::from_secs(100);
    contender.lease.handle_timeout(before);
    assert!(contender.lease.epoch(before).is_some());
    let states =
        std::iter::from_fn(|| contender.lease.poll_output()).filter_map(|output| match output {
            LeaseOutput::Changed(state) => Some(state),
            LeaseOutput::Request(_) => None,
        });
    assert!(matches!(states.last(), Some(LeaseState::Unconfirmed { .. })));
}

#[test]
fn without_jetstream_all_send_until_there_is_one() {
    let mut world = World::new(2, 8);
    world.has_jetstream = false;
    world.run(5_000);
    let unleased = LeaseState::Unleased { epoch: FIRST_EPOCH };
    for contender in &world.contenders {
        assert_eq!(contender.states.last(), Some(&unleased));
    }
    world.has_jetstream = true;
    world.senders.clear();
    // Each looks every ten seconds.
    for contender in &mut world.contenders {
        contender.lease.next_at = contender.lease.now;
    }
    world.played.clear();
    world.kill(1);
    world.run(1_000);
    assert!(matches!(world.contenders[0].states.last(), Some(LeaseState::Holder { .. })));
    let epoch = world.played.last().unwrap().1;
    assert!(epoch > FIRST_EPOCH);
    // Once it has answered, its absence is a failure.
    world.has_jetstream = false;
    world.run(10_000);
    assert_eq!(world.contenders[0].states.last(), Some(&LeaseState::Unconfirmed { epoch }));
}

#[test]
fn what_is_no_lease_is_replaced_after_a_ttl() {
    let config = LeaseConfig {
        node: "one".to_owned(),
        process: 1,
        run: 1,
        ttl: TTL,
        first_epoch: FIRST_EPOCH,
    };
    let start = Instant::ZERO;
    let (mut lease, mut now) = (Lease::new(config, start), start);
    loop {
        lease.handle_timeout(now);
        let Some(LeaseOutput::Request(request)) = std::iter::from_fn(|| lease.poll_output())
            .find(|output| matches!(output, LeaseOutput::Request(_)))
        else {
            now += STEP;
            continue;
        };
        if let LeaseOperation::Write { revision, lease } = request.operation {
            assert_eq!((revision, lease.epoch), (9, FIRST_EPOCH));
            break;
        }
        let entry = LeaseReply::Entry { revision: 9, value: LeaseValue::Unreadable };
        lease.handle_input(now, request.id, entry);
    }
    assert_eq!(now - start, TTL);
}

/// What happens to the world in one of the scenarios.
#[derive(Clone, Debug)]
enum Action {
    Kill(usize),
    Restart(usize),
    CutOff(usize),
    Heal(usize),
    Release(usize),
    /// A network with this loss in percent, and this delay in milliseconds.
    Network(u8, u16),
    Run(u16),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..3_usize).prop_map(Action::Kill),
        (0..3_usize).prop_map(Action::Restart),
        (0..3_usize).prop_map(Action::CutOff),
        (0..3_usize).prop_map(Action::Heal),
        (0..3_usize).prop_map(Action::Release),
        (0..60_u8, 1..3_000_u16).prop_map(|(loss, delay)| Action::Network(loss, delay)),
        (1..6_000_u16).prop_map(Action::Run),
        (1..6_000_u16).prop_map(Action::Run),
        (1..6_000_u16).prop_map(Action::Run),
    ]
}

proptest! {
    /// Whatever fails, two leases are never confirmed at once, and an epoch has one sender; once
    /// everything works there is a holder again.
    #[test]
    fn there_are_never_two_confirmed_leases(
        origins in 2..=3_usize,
        seed in any::<u64>(),
        actions in proptest::collection::vec(action(), 1..25),
    ) {
        let mut world = World::new(origins, seed);
        for action in actions {
            match action {
                Action::Kill(origin) => world.kill(origin % origins),
                Action::Restart(origin) => world.restart(origin % origins),
                Action::CutOff(origin) => world.contenders[origin % origins].is_cut_off = true,
                Action::Heal(origin) => world.contenders[origin % origins].is_cut_off = false,
                Action::Release(origin) => {
                    let contender = &mut world.contenders[origin % origins];
                    contender.lease.release(contender.clock.read(world.now));
                }
                Action::Network(loss, delay) => {
                    world.loss = f64::from(loss) / 100.0;
                    world.delay = Span::from_millis(delay.into());
                }
                Action::Run(millis) => world.run(millis.into()),
            }
        }
        (world.loss, world.delay) = (0.0, Span::from_millis(20));
        world.restart(0);
        world.contenders.iter_mut().for_each(|contender| contender.is_cut_off = false);
        world.run(10_000);
        prop_assert!(world.holder().is_some());
    }
}

//! The switch in virtual time: facts in, changes out.

use super::*;

/// An input as the test moves it.
#[derive(Clone, Copy)]
struct Sender {
    pacing: Pacing,
    sending: bool,
    ended: bool,
    buffered: Span,
    last_arrival: Option<Instant>,
    silent: bool,
}

impl Sender {
    const LIVE: Self = Self {
        pacing: Pacing::Live,
        sending: false,
        ended: false,
        buffered: Span::ZERO,
        last_arrival: None,
        silent: false,
    };
    const FILE: Self =
        Self { pacing: Pacing::OnDemand, sending: true, buffered: STEP, ..Self::LIVE };
}

struct World {
    now: Instant,
    switch: Switch,
    senders: Vec<Sender>,
    changes: Vec<(i64, Changed)>,
}

impl World {
    fn new(senders: &[Sender]) -> Self {
        Self {
            now: Instant::ZERO + Span::from_secs(1),
            switch: Switch::new(Config::default(), senders.len()),
            senders: senders.to_vec(),
            changes: Vec::new(),
        }
    }

    /// One quantum: arrivals, decision, play-out.
    fn step(&mut self) {
        let (now, bound) = (self.now, Config::default().input_buffer);
        for sender in &mut self.senders {
            if sender.sending && sender.pacing == Pacing::Live {
                sender.buffered = (sender.buffered + STEP).min(bound + bound);
                sender.last_arrival = Some(now);
            }
        }
        let facts: Vec<Facts> = self.senders.iter().map(facts).collect();
        if let Some(changed) = self.switch.decide(now, &facts) {
            self.changes.push(((now - Instant::ZERO).as_millis() - 1_000, changed));
        }
        for (index, sender) in self.senders.iter_mut().enumerate() {
            if sender.pacing == Pacing::OnDemand {
                continue;
            }
            let on_air = self.switch.active() == Some(index);
            if on_air && sender.buffered <= Span::ZERO && !sender.ended {
                self.switch.starved(index);
            }
            if on_air || sender.buffered > bound {
                sender.buffered = (sender.buffered - STEP).max(Span::ZERO);
            }
        }
        self.now += STEP;
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis / STEP.as_millis() {
            self.step();
        }
    }

    fn last(&self) -> (i64, Option<usize>, Cause) {
        let (at, changed) = self.changes.last().expect("a change");
        (*at, changed.to, changed.cause)
    }
}

fn facts(sender: &Sender) -> Facts {
    Facts {
        pacing: sender.pacing,
        buffered: sender.buffered,
        full: false,
        ended: sender.ended,
        last_arrival: sender.last_arrival,
        timeout: Span::from_millis(300),
        silent: sender.silent,
    }
}

const STEP: Span = Span::from_millis(20);

#[test]
fn until_someone_plays_the_fallback_is_on_air() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(1_000);
    assert_eq!(world.changes.len(), 1);
    assert_eq!(world.last(), (0, Some(1), Cause::First));
}

#[test]
fn a_sender_that_comes_is_on_air_as_soon_as_its_buffer_is_filled() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(1_000);
    world.senders[0].sending = true;
    world.run(1_000);
    let (at, to, cause) = world.last();
    assert_eq!((to, cause), (Some(0), Cause::Better));
    assert!((1_360..=1_400).contains(&at), "{at}");
}

#[test]
fn a_sender_that_dies_is_replaced_while_it_still_has_sound_in_its_buffer() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[0].sending = false;
    let mut buffered = Span::ZERO;
    for _ in 0..50 {
        let changes = world.changes.len();
        buffered = world.senders[0].buffered;
        world.step();
        if world.changes.len() > changes {
            break;
        }
    }
    let (at, to, cause) = world.last();
    assert_eq!((to, cause), (Some(1), Cause::Late));
    assert!((2_300..=2_320).contains(&at), "within a quantum of the time-out: {at}");
    assert!(buffered >= Span::from_millis(60), "enough for a cross-fade: {buffered}");
}

#[test]
fn after_a_failure_a_sender_has_to_run_for_five_seconds() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[0].sending = false;
    world.run(1_000);
    world.senders[0].sending = true;
    world.run(4_900);
    assert_eq!(world.last().1, Some(1));
    world.run(400);
    assert_eq!(world.last().1, Some(0));
}

#[test]
fn a_sender_that_flaps_once_a_second_makes_the_output_change_once() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    let before = world.changes.len();
    for _ in 0..60 {
        world.senders[0].sending = false;
        world.run(500);
        world.senders[0].sending = true;
        world.run(500);
    }
    assert_eq!(world.changes.len() - before, 1);
}

#[test]
fn after_a_clean_end_everything_is_played_and_the_next_sender_is_trusted() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[0].sending = false;
    world.senders[0].ended = true;
    world.run(1_000);
    let (at, to, cause) = world.last();
    assert_eq!((to, cause), (Some(1), Cause::Ended));
    assert!((2_360..=2_420).contains(&at), "when the buffer was empty: {at}");
    world.senders[0].ended = false;
    world.senders[0].sending = true;
    world.run(500);
    assert_eq!(world.last().1, Some(0));
}

#[test]
fn a_sound_shorter_than_the_buffer_is_played() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(100);
    world.senders[0].buffered = Span::from_millis(80);
    world.senders[0].ended = true;
    world.senders[0].last_arrival = Some(world.now);
    world.run(20);
    assert_eq!(world.last().1, Some(0));
    world.run(200);
    assert_eq!(world.last().1, Some(1));
}

#[test]
fn alone_a_late_sender_stays_on_air_to_its_last_frame_and_comes_back_when_it_is_primed() {
    let mut world = World::new(&[Sender::LIVE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[0].sending = false;
    world.run(1_000);
    assert_eq!(world.last().1, None, "the last resort");
    world.senders[0].sending = true;
    world.run(600);
    assert_eq!(world.last().1, Some(0), "no hold-in when nothing else plays");
}

#[test]
fn a_pause_shorter_than_the_time_out_changes_nothing() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    let before = world.changes.len();
    for _ in 0..20 {
        world.senders[0].sending = false;
        world.run(280);
        world.senders[0].sending = true;
        world.senders[0].buffered += Span::from_millis(280);
        world.run(1_000);
    }
    assert_eq!(world.changes.len(), before);
}

#[test]
fn a_sender_of_silence_gives_way_and_comes_back_with_its_sound() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[0].silent = true;
    world.run(40);
    assert_eq!((world.last().1, world.last().2), (Some(1), Cause::Silent));
    world.senders[0].silent = false;
    world.run(40);
    assert_eq!((world.last().1, world.last().2), (Some(0), Cause::Better));
}

#[test]
fn when_all_are_silent_the_one_on_air_stays() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[1].silent = true;
    world.senders[0].silent = true;
    let before = world.changes.len();
    world.run(2_000);
    assert_eq!(world.changes.len(), before);
}

//! The switch in virtual time: facts in, changes out.

mod preferences;
mod properties;
mod schedule;

use aulos_dsp::silence::SilenceVerdict;

use super::*;
use crate::source::Pacing;
use crate::standby::LinkState;

/// An input that the test controls.
#[derive(Clone, Copy, Debug)]
struct Sender {
    pacing: Pacing,
    sending: bool,
    ended: bool,
    buffered: Span,
    last_arrival: Option<Instant>,
    lost: bool,
    verdict: SilenceVerdict,
    standby: Standby,
}

impl Sender {
    const LIVE: Self = Self {
        pacing: Pacing::Live,
        sending: false,
        ended: false,
        buffered: Span::ZERO,
        last_arrival: None,
        lost: false,
        verdict: SilenceVerdict::Sound,
        standby: Standby::Hot,
    };
    const FILE: Self =
        Self { pacing: Pacing::OnDemand, sending: true, buffered: STEP, ..Self::LIVE };
}

struct World {
    now: Instant,
    switch: Switch,
    senders: Vec<Sender>,
    changes: Vec<(i64, InputChange)>,
}

impl World {
    fn new(senders: &[Sender]) -> Self {
        Self::of(SwitchConfig::default(), senders)
    }

    fn of(config: SwitchConfig, senders: &[Sender]) -> Self {
        Self {
            now: Instant::ZERO + Span::from_secs(1),
            switch: Switch::new(config, senders.len()),
            senders: senders.to_vec(),
            changes: Vec::new(),
        }
    }

    /// One quantum: arrivals, decision, play-out.
    fn step(&mut self) {
        let (now, bound) = (self.now, WANTED);
        for sender in &mut self.senders {
            if sender.sending && sender.pacing == Pacing::Live {
                sender.buffered = (sender.buffered + STEP).min(bound + bound);
                sender.last_arrival = Some(now);
                (sender.ended, sender.lost) = (false, false);
            }
        }
        let facts: Vec<InputFacts> = self.senders.iter().map(facts).collect();
        self.switch.follow_schedule(now);
        if let Some(changed) = self.switch.decide(now, &facts) {
            self.changes.push(((now - Instant::ZERO).as_millis() - 1_000, changed));
        }
        for (index, sender) in self.senders.iter_mut().enumerate() {
            if !self.switch.is_needed(index) {
                sender.buffered = Span::ZERO;
            }
            if sender.pacing == Pacing::OnDemand {
                continue;
            }
            let on_air = self.switch.active() == Some(index);
            if on_air && sender.buffered <= Span::ZERO && !sender.ended {
                self.switch.report_underrun(now, index);
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

    fn last(&self) -> (i64, Option<usize>, SwitchCause) {
        let (at, changed) = self.changes.last().expect("a change");
        (*at, changed.to, changed.cause)
    }
}

fn facts(sender: &Sender) -> InputFacts {
    InputFacts {
        pacing: sender.pacing,
        buffered: sender.buffered,
        prime_target: WANTED,
        full: false,
        ended: sender.ended,
        last_arrival: sender.last_arrival,
        timeout: Span::from_millis(300),
        lost: sender.lost,
        verdict: sender.verdict,
        standby: sender.standby,
        link: LinkState::Healthy,
    }
}

const STEP: Span = Span::from_millis(20);

const WANTED: Span = Span::from_millis(400);

#[test]
fn until_someone_plays_the_fallback_is_on_air() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(2_000);
    assert_eq!(world.changes.len(), 1);
    assert_eq!(
        world.last(),
        (1_000, Some(1), SwitchCause::First),
        "after a second for the first one"
    );
}

#[test]
fn startup_waits_only_for_an_absent_or_exclusively_preferred_source() {
    let mut world = World::new(&[Sender::FILE, Sender::FILE]);
    world.run(40);
    assert_eq!(world.last(), (0, Some(0), SwitchCause::First));
    let config = SwitchConfig { startup_wait: None, ..SwitchConfig::default() };
    let mut world = World::of(config, &[Sender::LIVE, Sender::FILE]);
    world.run(60_000);
    assert_eq!(world.changes, []);
    world.senders[0].sending = true;
    world.run(1_000);
    assert_eq!(world.last().1, Some(0));
    world.senders[0].sending = false;
    world.run(1_000);
    assert_eq!(world.last().1, Some(1), "afterwards it is as any other");
}

#[test]
fn a_new_sender_is_on_air_as_soon_as_its_buffer_is_filled() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(2_000);
    world.senders[0].sending = true;
    world.run(1_000);
    let (at, to, cause) = world.last();
    assert_eq!((to, cause), (Some(0), SwitchCause::Better));
    assert!((2_360..=2_400).contains(&at), "{at}");
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
    assert_eq!((to, cause), (Some(1), SwitchCause::Late));
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
fn a_sender_that_flaps_once_a_second_causes_one_switch() {
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
fn rearranged_inputs_keep_their_health_and_a_new_one_takes_its_place() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(3_000);
    assert_eq!(world.switch.active(), Some(0));
    world.switch.set_preference(Some(Preference { input: 0, until: None }));
    world.senders = vec![Sender::FILE, Sender::LIVE, world.senders[0]];
    world.switch.rearrange(&[Some(1), None, Some(0)]);
    assert_eq!(world.switch.active(), Some(2));
    assert_eq!(world.switch.preference(), Some(Preference { input: 2, until: None }));
    assert!(matches!(world.switch.health(2), InputHealth::Healthy { .. }));
    assert_eq!(world.switch.health(1), InputHealth::Connecting);
    world.switch.set_preference(None);
    world.run(100);
    assert_eq!(world.switch.active(), Some(0), "the file has the highest priority now");
    world.switch.rearrange(&[None]);
    assert_eq!(world.switch.active(), None);
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
    assert_eq!((to, cause), (Some(1), SwitchCause::Ended));
    assert!((2_360..=2_420).contains(&at), "when the buffer was empty: {at}");
    world.senders[0].ended = false;
    world.senders[0].sending = true;
    world.run(500);
    assert_eq!(world.last().1, Some(0));
}

#[test]
fn a_sound_shorter_than_the_buffer_is_played() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(2_000);
    world.senders[0].buffered = Span::from_millis(80);
    world.senders[0].ended = true;
    world.senders[0].last_arrival = Some(world.now);
    world.run(20);
    assert_eq!(world.last().1, Some(0));
    world.run(200);
    assert_eq!(world.last().1, Some(1));
}

#[test]
fn a_lone_late_sender_plays_to_its_last_frame_and_returns_when_primed() {
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
fn a_silent_sender_falls_back_and_returns_with_its_sound() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.run(5_000);
    world.senders[0].verdict = SilenceVerdict::Silent;
    world.run(40);
    assert_eq!((world.last().1, world.last().2), (Some(1), SwitchCause::Silent));
    world.senders[0].verdict = SilenceVerdict::Sound;
    world.run(40);
    assert_eq!((world.last().1, world.last().2), (Some(0), SwitchCause::Better));
}

#[test]
fn when_all_inputs_are_silent_the_current_one_stays_on_air() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    world.senders[1].verdict = SilenceVerdict::Silent;
    world.senders[0].verdict = SilenceVerdict::Silent;
    let before = world.changes.len();
    world.run(2_000);
    assert_eq!(world.changes.len(), before);
}

/// One failure of this many milliseconds after this much health, and the time until it is back.
fn failback_after(world: &mut World, well: i64, gone: i64) -> i64 {
    world.run(well);
    world.senders[0].sending = false;
    world.run(gone);
    assert_eq!(world.last().1, Some(1));
    world.senders[0].sending = true;
    let mut millis = 0;
    while world.switch.active() != Some(0) {
        world.run(20);
        millis += 20;
        assert!(millis < 100_000, "it never came back");
    }
    millis
}

#[test]
fn the_hold_in_doubles_with_each_failure_up_to_a_minute_and_is_forgiven() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    let waits: Vec<i64> = (0..6).map(|_| failback_after(&mut world, 6_000, 1_000)).collect();
    let expected = [5_000, 10_000, 20_000, 40_000, 60_000, 60_000];
    for (wait, expected) in waits.iter().zip(expected) {
        assert!((expected..=expected + 60).contains(wait), "{waits:?}");
    }
    let wait = failback_after(&mut world, 60_000, 1_000);
    assert!((5_000..=5_060).contains(&wait), "after a minute of health: {wait}");
}

#[test]
fn a_sender_that_pauses_is_back_when_its_buffer_is_filled_and_one_that_flaps_is_not() {
    // Healthy for at least the failback delay, and gone for as long: a pause.
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    let waits: Vec<i64> = (0..6).map(|_| failback_after(&mut world, 6_000, 6_000)).collect();
    assert!(waits.iter().all(|wait| *wait <= 440), "{waits:?}");
    // Its buffer is filled, as after a clean end.
    let buffered = world.senders[0].buffered;
    assert!(buffered >= WANTED - STEP, "{buffered}");
    // A pause does not make the next failure worse.
    let wait = failback_after(&mut world, 6_000, 1_000);
    assert!((5_000..=5_060).contains(&wait), "{wait}");
    // It was not healthy for long, or broke off.
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    let wait = failback_after(&mut world, 0, 6_000);
    assert!((5_000..=5_060).contains(&wait), "{wait}");
    world.run(10_000);
    world.senders[0].lost = true;
    let wait = failback_after(&mut world, 0, 6_000);
    assert!(wait >= 5_000, "{wait}");
    let before = world.changes.len();
    for _ in 0..60 {
        world.senders[0].sending = false;
        world.run(6_000);
        world.senders[0].sending = true;
        world.run(3_000);
    }
    assert!(world.changes.len() - before <= 2, "{:?}", world.changes);
}

#[test]
fn whoever_breaks_off_is_left_at_once_and_has_to_prove_himself() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(2_000);
    (world.senders[0].sending, world.senders[0].lost) = (false, true);
    world.run(20);
    assert_eq!(
        (world.last().0, world.last().1, world.last().2),
        (2_000, Some(1), SwitchCause::Error)
    );
    assert_eq!(world.switch.failures(0).error, 1);
    world.run(1_000);
    world.senders[0].sending = true;
    world.run(4_900);
    assert_eq!(world.last().1, Some(1));
    world.run(400);
    assert_eq!(world.last().1, Some(0));
}

#[test]
fn an_input_has_started_once_it_was_ready_and_for_ever() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(2_000);
    assert_eq!((world.switch.has_started(0), world.switch.has_started(1)), (false, true));
    world.senders[0].sending = true;
    world.run(2_000);
    (world.senders[0].sending, world.senders[0].ended) = (false, true);
    world.run(2_000);
    assert_eq!(world.switch.health(0), InputHealth::Connecting);
    assert!(world.switch.has_started(0) && !world.switch.has_started(2));
}

#[test]
fn a_short_sound_is_played_each_time_and_a_flapping_sender_loses_trust() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.run(2_000);
    let ring = |world: &mut World, pause: i64| {
        world.senders[0].sending = true;
        world.run(600);
        (world.senders[0].sending, world.senders[0].ended) = (false, true);
        world.run(pause);
    };
    let before = world.changes.len();
    (0..10).for_each(|_| ring(&mut world, 6_000));
    assert_eq!(world.changes.len() - before, 20, "there and back");
    let before = world.changes.len();
    (0..60).for_each(|_| ring(&mut world, 700));
    assert!(world.changes.len() - before <= 6, "{:?}", world.changes);
    assert_eq!(world.switch.failures(0).flaps, 1);
}

#[test]
fn every_audible_fault_has_a_name_and_a_counter() {
    for (verdict, cause) in [
        (SilenceVerdict::Silent, SwitchCause::Silent),
        (SilenceVerdict::Dc, SwitchCause::Dc),
        (SilenceVerdict::DeadChannel, SwitchCause::DeadChannel),
    ] {
        let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
        world.senders[0].sending = true;
        world.run(10_000);
        world.senders[0].verdict = verdict;
        world.run(20);
        assert_eq!((world.last().0, world.last().2), (10_000, cause));
        world.senders[0].verdict = SilenceVerdict::Sound;
        world.run(4_900);
        // A pause is not a failure; an equipment fault is one.
        assert_eq!(world.last().1, Some(usize::from(verdict != SilenceVerdict::Silent)));
        world.run(200);
        assert_eq!(world.last().1, Some(0));
        let failures = world.switch.failures(0);
        assert_eq!(failures.silent + failures.dc + failures.dead_channel, 1);
    }
}

#[test]
fn a_sender_with_flapping_silence_causes_no_switching() {
    let mut world = World::new(&[Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.run(10_000);
    let before = world.changes.len();
    for _ in 0..60 {
        world.senders[0].verdict = SilenceVerdict::Silent;
        world.run(500);
        world.senders[0].verdict = SilenceVerdict::Sound;
        world.run(500);
    }
    assert!(world.changes.len() - before <= 3, "{:?}", world.changes);
}

#[test]
fn without_automatic_failback_an_input_waits_for_a_command_or_a_failure() {
    for comeback in [FailbackMode::Manual, FailbackMode::Never] {
        let config = SwitchConfig { failback: comeback, ..SwitchConfig::default() };
        let mut world = World::of(config, &[Sender::LIVE, Sender::LIVE, Sender::FILE]);
        world.senders[0].sending = true;
        world.senders[1].sending = true;
        world.run(2_000);
        world.senders[0].sending = false;
        world.run(1_000);
        world.senders[0].sending = true;
        world.run(60_000);
        assert_eq!(world.last().1, Some(1), "{comeback:?}");
        world.senders[1].sending = false;
        world.run(1_000);
        let need = if comeback == FailbackMode::Manual { 0 } else { 2 };
        assert_eq!(world.last().1, Some(need), "{comeback:?}");
        world.switch.set_preference(None);
        world.run(20);
        assert_eq!(world.last().1, Some(0), "{comeback:?}");
    }
}

#[test]
fn a_cold_standby_source_is_activated_when_all_better_ones_fail() {
    let cold = Sender { standby: Standby::Cold, ..Sender::FILE };
    let mut world = World::new(&[Sender::LIVE, cold]);
    world.senders[0].sending = true;
    world.run(5_000);
    assert!(!world.switch.is_needed(1) && world.switch.health(1) == InputHealth::Disabled);
    world.senders[0].sending = false;
    world.run(320);
    assert!(world.switch.is_needed(1));
    world.senders[1].buffered = STEP;
    world.run(40);
    assert_eq!((world.last().1, world.last().2), (Some(1), SwitchCause::Late));
    world.senders[0].sending = true;
    world.run(6_000);
    assert_eq!(world.last().1, Some(0));
    assert!(!world.switch.is_needed(1));
}

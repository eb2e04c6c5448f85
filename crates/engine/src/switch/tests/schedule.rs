//! The schedule.

use super::*;

fn three() -> World {
    let mut world = World::new(&[Sender::LIVE, Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.senders[1].sending = true;
    world.run(2_000);
    world
}

/// A change, in milliseconds from now.
fn change(
    world: &World,
    millis: i64,
    input: Option<usize>,
    begins: u64,
) -> Option<ScheduledChange> {
    let begins = input.map(|_| begins);
    Some(ScheduledChange { at: world.now + Span::from_millis(millis), input, begins })
}

/// An entry of this input.
fn schedule(world: &mut World, input: usize, from: i64, until: i64) {
    let schedule = [change(world, from, Some(input), 7), change(world, until, None, 0)];
    world.switch.set_schedule(schedule);
}

#[test]
fn a_scheduled_input_plays_from_its_time_to_its_end() {
    let mut world = three();
    schedule(&mut world, 2, 1_000, 4_000);
    assert_eq!(world.switch.next_scheduled(), Some(world.now + Span::from_secs(1)));
    world.run(1_020);
    assert_eq!(world.last(), (3_000, Some(2), SwitchCause::Schedule));
    world.run(4_000);
    assert_eq!(world.last(), (6_000, Some(0), SwitchCause::Schedule));
    assert_eq!(world.switch.next_scheduled(), None);
}

#[test]
fn a_scheduled_input_that_dies_is_replaced_and_returns_within_its_time() {
    for failback in [FailbackMode::Auto, FailbackMode::Manual, FailbackMode::Never] {
        let config = SwitchConfig { failback, ..SwitchConfig::default() };
        let mut world = World::of(config, &[Sender::LIVE, Sender::LIVE]);
        world.senders.iter_mut().for_each(|sender| sender.sending = true);
        world.run(2_000);
        schedule(&mut world, 1, 0, 60_000);
        world.run(1_000);
        assert_eq!(world.last(), (2_000, Some(1), SwitchCause::Schedule));
        world.senders[1].sending = false;
        world.run(1_000);
        assert_eq!((world.last().1, world.last().2), (Some(0), SwitchCause::Late));
        world.senders[1].sending = true;
        world.run(10_000);
        assert_eq!((world.last().1, world.last().2), (Some(1), SwitchCause::Schedule));
        world.run(50_000);
        assert_eq!(world.last(), (62_000, Some(0), SwitchCause::Schedule), "{failback:?}");
    }
}

#[test]
fn a_scheduled_input_that_is_dead_from_the_beginning_changes_nothing() {
    let mut world = three();
    world.senders[1].sending = false;
    world.run(2_000);
    schedule(&mut world, 1, 1_000, 4_000);
    let before = world.changes.len();
    world.run(10_000);
    assert_eq!(world.changes.len(), before);
}

#[test]
fn a_preference_wins_within_an_entry_and_ends_with_the_beginning_of_the_next() {
    let mut world = three();
    schedule(&mut world, 2, 0, 4_000);
    world.run(1_000);
    let until = Some(world.now + Span::from_millis(1_000));
    world.switch.set_preference(Some(Preference { input: 1, until }));
    world.run(500);
    assert_eq!(world.last(), (3_000, Some(1), SwitchCause::Manual));
    world.run(520);
    assert_eq!(world.last(), (4_000, Some(2), SwitchCause::Schedule));
    // One without an end outlasts the entry, until another one begins.
    world.switch.set_preference(Some(Preference { input: 1, until: None }));
    world.run(5_000);
    assert_eq!(world.last(), (4_020, Some(1), SwitchCause::Manual));
    let next = [change(&world, 1_000, Some(2), 8), change(&world, 2_000, None, 0)];
    world.switch.set_schedule(next);
    world.run(1_020);
    assert_eq!((world.last().1, world.last().2), (Some(2), SwitchCause::Schedule));
    assert_eq!(world.switch.preference(), None);
}

#[test]
fn a_plan_that_is_sent_again_ends_no_preference() {
    let mut world = three();
    schedule(&mut world, 2, 0, 4_000);
    world.run(1_000);
    world.switch.set_preference(Some(Preference { input: 1, until: None }));
    schedule(&mut world, 2, -1_000, 3_000);
    world.run(1_000);
    assert_eq!(world.last().1, Some(1));
}

#[test]
fn without_a_schedule_nothing_has_precedence() {
    let mut world = three();
    schedule(&mut world, 2, 0, 4_000);
    world.run(1_000);
    world.switch.set_schedule([None; MAX_SCHEDULED_CHANGES]);
    world.run(20);
    assert_eq!((world.last().1, world.last().2), (Some(0), SwitchCause::Schedule));
    schedule(&mut world, 9, 0, 4_000);
    world.run(1_000);
    assert_eq!(world.last().1, Some(0), "an input that does not exist is none");
}

#[test]
fn the_startup_waits_for_the_scheduled_input() {
    let mut world = World::new(&[Sender::FILE, Sender::FILE]);
    schedule(&mut world, 1, 0, 4_000);
    world.run(100);
    assert_eq!(world.changes.len(), 1);
    assert_eq!(world.last(), (0, Some(1), SwitchCause::First));
}

#[test]
fn a_source_on_standby_is_open_before_its_time() {
    let cold = Sender { standby: Standby::Cold, ..Sender::LIVE };
    let mut world = World::new(&[Sender::FILE, cold]);
    world.run(2_000);
    schedule(&mut world, 1, 60_000, 70_000);
    world.run(44_000);
    assert!(!world.switch.is_needed(1));
    world.run(1_040);
    assert!(world.switch.is_needed(1));
    world.run(30_000);
    assert!(!world.switch.is_needed(1), "and may go to sleep when it is over");
}

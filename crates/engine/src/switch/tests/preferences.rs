//! Preferences for an input.

use super::*;

fn three() -> World {
    let mut world = World::new(&[Sender::LIVE, Sender::LIVE, Sender::FILE]);
    world.senders[0].sending = true;
    world.senders[1].sending = true;
    world.run(2_000);
    world
}

fn wish(world: &mut World, input: usize, millis: Option<i64>) {
    let until = millis.map(|millis| world.now + Span::from_millis(millis));
    world.switch.set_preference(Some(Preference { input, until }));
}

#[test]
fn a_wish_holds_until_its_time_is_over() {
    let mut world = three();
    wish(&mut world, 2, Some(3_000));
    world.run(2_980);
    assert_eq!((world.last().1, world.last().2), (Some(2), SwitchCause::Manual));
    world.run(60);
    assert_eq!(world.last(), (5_000, Some(0), SwitchCause::Better));
    assert_eq!(world.switch.preference(), None);
}

#[test]
fn a_preference_without_an_end_lasts_until_it_is_cancelled() {
    let mut world = three();
    wish(&mut world, 1, None);
    world.run(600_000);
    assert_eq!(world.last().1, Some(1));
    world.switch.set_preference(None);
    world.run(20);
    assert_eq!(world.last().1, Some(0));
}

#[test]
fn a_preference_ends_when_its_input_fails_and_stays_ended() {
    let mut world = three();
    wish(&mut world, 1, None);
    world.run(1_000);
    world.senders[1].sending = false;
    world.run(340);
    assert_eq!((world.last().1, world.last().2), (Some(0), SwitchCause::Late));
    world.senders[1].sending = true;
    world.run(60_000);
    assert_eq!(world.last().1, Some(0));
    for end in ["silent", "ended"] {
        let mut world = three();
        wish(&mut world, 1, None);
        world.run(1_000);
        if end == "silent" {
            world.senders[1].verdict = SilenceVerdict::Silent;
        } else {
            (world.senders[1].sending, world.senders[1].ended) = (false, true);
        }
        world.run(1_000);
        assert_eq!(world.last().1, Some(0), "{end}");
        assert_eq!(world.switch.preference(), None, "{end}");
    }
}

#[test]
fn a_wish_for_an_input_that_is_not_there_waits_for_it_and_no_hold_in_keeps_it_away() {
    let mut world = three();
    world.senders[0].sending = false;
    world.run(1_000);
    wish(&mut world, 0, None);
    world.run(1_000);
    assert_eq!(world.last().1, Some(1), "nothing is lost by waiting");
    world.senders[0].sending = true;
    world.run(440);
    assert_eq!((world.last().1, world.last().2), (Some(0), SwitchCause::Manual));
}

#[test]
fn an_input_that_never_had_sound_can_be_preferred() {
    let mut world = three();
    world.senders[1].verdict = SilenceVerdict::Silent;
    world.run(100);
    wish(&mut world, 1, None);
    world.run(5_000);
    assert_eq!(world.last().1, Some(1), "somebody is about to speak");
    world.senders[1].verdict = SilenceVerdict::Sound;
    world.run(1_000);
    world.senders[1].verdict = SilenceVerdict::Silent;
    world.run(40);
    assert_eq!(world.last().1, Some(0));
}

#[test]
fn a_wish_for_an_input_that_does_not_exist_is_none() {
    let mut world = three();
    wish(&mut world, 3, None);
    world.run(100);
    assert_eq!((world.last().1, world.switch.preference()), (Some(0), None));
}

#[test]
fn a_preference_activates_a_standby_source() {
    let cold = Sender { standby: Standby::Cold, ..Sender::LIVE };
    let mut world = World::new(&[Sender::FILE, cold]);
    world.run(2_000);
    assert!(!world.switch.is_needed(1));
    wish(&mut world, 1, Some(1_000));
    world.run(20);
    assert!(world.switch.is_needed(1));
    world.run(1_000);
    assert!(!world.switch.is_needed(1), "and may go to sleep when it is over");
}

//! Properties that hold for any behaviour of the inputs.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum TestAction {
    Send(usize, bool),
    End(usize),
    Lose(usize),
    Hear(usize, SilenceVerdict),
    Wish(Option<usize>, i64),
    Run(i64),
}

fn acts() -> impl Strategy<Value = Vec<TestAction>> {
    let who = 0..4usize;
    let verdict = prop_oneof![
        3 => Just(SilenceVerdict::Sound),
        1 => Just(SilenceVerdict::Silent),
        1 => Just(SilenceVerdict::Dc),
        1 => Just(SilenceVerdict::DeadChannel),
    ];
    let act = prop_oneof![
        4 => (who.clone(), any::<bool>()).prop_map(|(who, sends)| TestAction::Send(who, sends)),
        1 => who.clone().prop_map(TestAction::End),
        1 => who.clone().prop_map(TestAction::Lose),
        2 => (who, verdict).prop_map(|(who, verdict)| TestAction::Hear(who, verdict)),
        1 => (prop::option::of(0..5usize), 0..20_000i64).prop_map(|(who, ms)| TestAction::Wish(who, ms)),
        6 => (1..400i64).prop_map(|steps| TestAction::Run(20 * steps)),
    ];
    prop::collection::vec(act, 1..60)
}

fn inputs() -> impl Strategy<Value = Vec<Sender>> {
    let standby = prop_oneof![
        4 => Just(Standby::Hot),
        1 => Just(Standby::Warm),
        1 => Just(Standby::Cold)
    ];
    let sender = standby.prop_map(|standby| Sender { standby, ..Sender::LIVE });
    prop::collection::vec(sender, 1..5)
}

impl World {
    fn act(&mut self, act: TestAction) {
        match act {
            TestAction::Wish(who, millis) => {
                let until = Some(self.now + Span::from_millis(millis));
                self.switch.set_preference(who.map(|input| Preference { input, until }));
                // A preference takes effect at the next decision.
                self.step();
            }
            TestAction::Run(millis) => self.run(millis),
            TestAction::Send(who, _)
            | TestAction::End(who)
            | TestAction::Lose(who)
            | TestAction::Hear(who, _) => {
                let Some(sender) = self.senders.get_mut(who) else { return };
                match act {
                    TestAction::Send(_, sends) => sender.sending = sends,
                    TestAction::End(_) => (sender.sending, sender.ended) = (false, true),
                    TestAction::Lose(_) => (sender.sending, sender.lost) = (false, true),
                    TestAction::Hear(_, verdict) => sender.verdict = verdict,
                    TestAction::Wish(..) | TestAction::Run(_) => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_input_with_sound_is_on_air_and_each_change_is_reported(
        senders in inputs(),
        acts in acts(),
        failback in prop_oneof![Just(FailbackMode::Auto), Just(FailbackMode::Manual), Just(FailbackMode::Never)],
    ) {
        let config = SwitchConfig { failback, ..SwitchConfig::default() };
        let mut world = World::of(config, &senders);
        let mut air = None;
        for act in acts {
            world.act(act);
            // Each change starts where the last one ended, and changes something. An input that ran
            // dry may return.
            for (at, changed) in world.changes.drain(..) {
                prop_assert!(changed.from.is_none() || changed.from == air, "{at}: {changed:?}");
                prop_assert!(changed.from != changed.to || changed.to.is_none());
                air = changed.to;
            }
            let on_air = world.switch.active();
            let healthy = |input: usize| matches!(world.switch.health(input), InputHealth::Healthy { .. });
            if (0..senders.len()).any(healthy) && world.now > Instant::ZERO + Span::from_secs(3) {
                prop_assert!(on_air.is_some(), "somebody is well and nobody is heard");
            }
            if let (Some(active), None) = (on_air, world.switch.preference()) {
                prop_assert!(healthy(active) || !(0..senders.len()).any(healthy));
                prop_assert!(world.switch.is_needed(active));
            }
        }
        // When all inputs are healthy for long enough, the first one is on air, unless it must not
        // return.
        world.switch.set_preference(None);
        for sender in &mut world.senders {
            *sender = Sender { sending: true, standby: sender.standby, ..Sender::LIVE };
        }
        world.run(70_000);
        if failback == FailbackMode::Auto {
            prop_assert_eq!(world.switch.active(), Some(0));
        }
        prop_assert!(world.switch.active().is_some());
    }
}

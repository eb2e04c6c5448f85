//! What holds whatever the inputs do.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    Send(usize, bool),
    End(usize),
    Lose(usize),
    Hear(usize, Verdict),
    Wish(Option<usize>, i64),
    Run(i64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let who = 0..4usize;
    let verdict = prop_oneof![
        3 => Just(Verdict::Sound),
        1 => Just(Verdict::Silent),
        1 => Just(Verdict::Dc),
        1 => Just(Verdict::DeadChannel),
    ];
    let act = prop_oneof![
        4 => (who.clone(), any::<bool>()).prop_map(|(who, sends)| Act::Send(who, sends)),
        1 => who.clone().prop_map(Act::End),
        1 => who.clone().prop_map(Act::Lose),
        2 => (who, verdict).prop_map(|(who, verdict)| Act::Hear(who, verdict)),
        1 => (prop::option::of(0..5usize), 0..20_000i64).prop_map(|(who, ms)| Act::Wish(who, ms)),
        6 => (1..400i64).prop_map(|steps| Act::Run(20 * steps)),
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
    fn act(&mut self, act: Act) {
        match act {
            Act::Wish(who, millis) => {
                let until = Some(self.now + Span::from_millis(millis));
                self.switch.prefer(who.map(|input| Preference { input, until }));
                // A wish is heard at the next decision.
                self.step();
            }
            Act::Run(millis) => self.run(millis),
            Act::Send(who, _) | Act::End(who) | Act::Lose(who) | Act::Hear(who, _) => {
                let Some(sender) = self.senders.get_mut(who) else { return };
                match act {
                    Act::Send(_, sends) => sender.sending = sends,
                    Act::End(_) => (sender.sending, sender.ended) = (false, true),
                    Act::Lose(_) => (sender.sending, sender.lost) = (false, true),
                    Act::Hear(_, verdict) => sender.verdict = verdict,
                    Act::Wish(..) | Act::Run(_) => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn whoever_has_sound_is_on_air_and_each_change_is_told(
        senders in inputs(),
        acts in acts(),
        comeback in prop_oneof![Just(Comeback::Auto), Just(Comeback::Manual), Just(Comeback::Never)],
    ) {
        let config = Config { comeback, ..Config::default() };
        let mut world = World::of(config, &senders);
        let mut air = None;
        for act in acts {
            world.act(act);
            // Each change begins where the last one ended, and is one. What ran dry may come back.
            for (at, changed) in world.changes.drain(..) {
                prop_assert!(changed.from.is_none() || changed.from == air, "{at}: {changed:?}");
                prop_assert!(changed.from != changed.to || changed.to.is_none());
                air = changed.to;
            }
            let on_air = world.switch.active();
            let healthy = |input: usize| matches!(world.switch.health(input), Health::Healthy { .. });
            if (0..senders.len()).any(healthy) && world.now > Instant::ZERO + Span::from_secs(3) {
                prop_assert!(on_air.is_some(), "somebody is well and nobody is heard");
            }
            if let (Some(active), None) = (on_air, world.switch.preference()) {
                prop_assert!(healthy(active) || !(0..senders.len()).any(healthy));
                prop_assert!(world.switch.is_wanted(active));
            }
        }
        // When all is well for long enough, the first one is on air, unless it must not come back.
        world.switch.prefer(None);
        for sender in &mut world.senders {
            *sender = Sender { sending: true, standby: sender.standby, ..Sender::LIVE };
        }
        world.run(70_000);
        if comeback == Comeback::Auto {
            prop_assert_eq!(world.switch.active(), Some(0));
        }
        prop_assert!(world.switch.active().is_some());
    }
}

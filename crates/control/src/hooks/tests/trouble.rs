//! Events of a failing station, in virtual time.

use aulos_config::StationSettings;
use aulos_core::Instant;
use proptest::prelude::*;

use super::*;
use crate::backend::SwitchCause::{
    self, Better, DeadChannel, Ended, Error, First, Late, Manual, Silent,
};
use crate::backend::{InputChange, Loudness, StationReport, StationState, StationStatus};

struct World {
    watch: StationWatch,
    station: StationSettings,
    now: Instant,
}

const SECOND: i64 = 10;

impl World {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        let text = "[[station]]\nname = \"a\"\nsources = [\"tcp://:1?name=one\", \
                    \"tcp://:2?name=two\", \"tcp://:3?name=three\"]\n";
        let station = resolve(&(text.to_owned() + settings)).stations.remove(0);
        Self { watch: StationWatch::default(), station, now: Instant::from_nanos(1_000) }
    }

    fn news(&mut self) -> Vec<HookEvent> {
        std::iter::from_fn(|| self.watch.poll_output()).collect()
    }

    fn switch(
        &mut self,
        from: Option<usize>,
        to: Option<usize>,
        cause: SwitchCause,
    ) -> Vec<HookEvent> {
        self.now += Span::from_secs(1);
        let switched = InputChange { from, to, cause };
        self.watch.handle_input(self.now, &self.station, Observation::Switched(switched));
        self.news()
    }

    /// This many polls, ten per second.
    fn repeat_status(&mut self, looks: i64, status: &StationReport) -> Vec<HookEvent> {
        for _ in 0..looks {
            self.now += Span::from_millis(100);
            self.watch.handle_input(self.now, &self.station, Observation::Status(status));
        }
        self.news()
    }
}

/// A station that plays its first source at this level.
fn at(dbfs: f64) -> StationReport {
    StationReport {
        state: StationState::Playing,
        machine: StationStatus {
            active: Some(0),
            loudness: Loudness {
                measured: Span::from_secs(1),
                current_sample_peak: Some(Db::new(dbfs)).filter(|level| level.get().is_finite()),
                ..Loudness::NONE
            },
            ..StationStatus::new(Instant::ZERO)
        },
        ..StationReport::default()
    }
}

fn digital_silence() -> StationReport {
    at(f64::NEG_INFINITY)
}

fn kinds(news: &[HookEvent]) -> Vec<&'static str> {
    news.iter().map(|news| news.kind().name()).collect()
}

#[test]
fn failure_and_return_of_a_source_are_reported_once_each() {
    let mut world = World::new();
    assert_eq!(world.switch(None, Some(0), First), []);
    let lost = HookEvent::Fallback {
        from: Some("one".to_owned()),
        to: Some("two".to_owned()),
        cause: Late,
    };
    assert_eq!(world.switch(Some(0), Some(1), Late), [lost]);
    let back = HookEvent::Recovered {
        from: Some("two".to_owned()),
        to: Some("one".to_owned()),
        cause: Better,
        after: Span::from_secs(1),
        complete: true,
    };
    assert_eq!(world.switch(Some(1), Some(0), Better), [back]);
}

#[test]
fn each_step_of_fallback_and_failback_is_reported() {
    let mut world = World::new();
    let mut steps = Vec::new();
    for (from, to, cause) in [
        (Some(0), Some(1), Error),
        (Some(1), None, Silent),
        (None, Some(2), First),
        (Some(2), Some(1), Better),
        (Some(1), Some(0), Better),
        (Some(0), Some(1), DeadChannel),
    ] {
        for news in world.switch(from, to, cause) {
            let complete = matches!(news, HookEvent::Recovered { complete: true, .. });
            steps.push((news.kind().name(), complete));
        }
    }
    assert_eq!(
        steps,
        [
            ("fallback", false),
            ("fallback", false),
            ("recovered", false),
            ("recovered", false),
            ("recovered", true),
            ("fallback", false),
        ]
    );
}

#[test]
fn requested_changes_and_regular_ends_raise_no_alarm() {
    let mut world = World::new();
    for (from, to, cause) in [
        (None, Some(1), First),
        (Some(1), Some(0), Better),
        (Some(0), Some(1), Ended),
        (Some(1), Some(0), Better),
        (Some(0), Some(2), Manual),
        (Some(2), Some(0), Late),
        (Some(0), None, Manual),
        (None, Some(0), First),
    ] {
        assert_eq!(world.switch(from, to, cause), [], "{from:?} {to:?} {cause:?}");
    }
    // But the last resort is a failure.
    assert_eq!(kinds(&world.switch(Some(0), None, Ended)), ["fallback"]);
    // A manual switch recovers from it as well as the source itself.
    assert_eq!(kinds(&world.switch(None, Some(0), Manual)), ["recovered"]);
}

#[test]
fn a_scheduled_source_that_fails_is_missed_wherever_it_is_listed() {
    let (mut world, mut status) = (World::new(), at(-20.0));
    assert_eq!(world.switch(Some(0), Some(2), SwitchCause::Schedule), []);
    status.machine.scheduled = Some(2);
    assert_eq!(world.repeat_status(1, &status), []);
    for _ in 0..2 {
        assert_eq!(kinds(&world.switch(Some(2), Some(0), Error)), ["fallback"]);
        assert_eq!(world.switch(Some(0), Some(1), Ended), []);
        let back = world.switch(Some(1), Some(2), Better);
        assert!(matches!(back[..], [HookEvent::Recovered { complete: true, .. }]), "{back:?}");
    }
    // Its time ends while it is dead.
    assert_eq!(kinds(&world.switch(Some(2), Some(0), Silent)), ["fallback"]);
    status.machine.scheduled = None;
    assert_eq!(kinds(&world.repeat_status(10, &status)), ["recovered"]);
    assert_eq!(world.switch(Some(0), Some(2), Manual), []);
    assert_eq!(world.switch(Some(2), Some(0), Better), []);
}

#[test]
fn silence_and_its_end_are_reported_once() {
    let mut world = World::new();
    assert_eq!(world.repeat_status(60 * SECOND, &at(-20.0)), []);
    // The switch would have played another source by now.
    assert_eq!(world.repeat_status(10 * SECOND, &digital_silence()), []);
    assert_eq!(world.repeat_status(SECOND, &at(-20.0)), []);
    let silent = world.repeat_status(3_600 * SECOND, &digital_silence());
    let expected = HookEvent::Silence {
        source: Some("one".to_owned()),
        cause: "silent",
        lasted: Span::from_millis(10_500),
    };
    assert_eq!(silent, [expected]);
    // Neither a click nor a level between the thresholds is sound.
    assert_eq!(world.repeat_status(4, &at(-20.0)), []);
    assert_eq!(world.repeat_status(600 * SECOND, &at(-57.0)), []);
    let sound = world.repeat_status(60 * SECOND, &at(-20.0));
    let [HookEvent::Sound { lasted, .. }] = &sound[..] else { panic!("{sound:?}") };
    assert_eq!(*lasted, Span::from_millis(3_600_000 + 400 + 600_000));
}

#[test]
fn a_level_at_the_bar_does_not_ring() {
    let mut world = World::new();
    for _ in 0..1_000 {
        assert_eq!(world.repeat_status(50, &at(-60.5)), []);
        assert_eq!(world.repeat_status(1, &at(-59.5)), []);
    }
    assert_eq!(kinds(&world.repeat_status(200, &at(-60.5))), ["silence"]);
    for _ in 0..1_000 {
        assert_eq!(world.repeat_status(50, &at(-54.5)), []);
        assert_eq!(world.repeat_status(5, &at(-53.5)), []);
    }
    assert_eq!(kinds(&world.repeat_status(10, &at(-53.5))), ["sound"]);
}

#[test]
fn where_nothing_is_on_air_the_last_resort_has_to_sound() {
    let mut world = World::new();
    let nothing = |level| {
        let mut report = StationReport { state: StationState::Silent, ..at(level) };
        report.machine.active = None;
        report
    };
    assert_eq!(world.repeat_status(60 * SECOND, &nothing(-12.0)), []);
    let news = world.repeat_status(60 * SECOND, &nothing(f64::NEG_INFINITY));
    let [HookEvent::Silence { source: None, cause: "last resort", .. }] = &news[..] else {
        panic!("{news:?}")
    };
}

#[test]
fn silence_detected_by_the_engine_is_reported_soon() {
    let mut world = World::new();
    let dc = StationReport { state: StationState::Silent, ..at(-3.0) };
    // Another source takes over in the next moment.
    assert_eq!(world.repeat_status(3, &dc), []);
    assert_eq!(world.repeat_status(SECOND, &at(-3.0)), []);
    assert_eq!(kinds(&world.repeat_status(60 * SECOND, &dc)), ["silence"]);
    assert_eq!(kinds(&world.repeat_status(60 * SECOND, &at(-3.0))), ["sound"]);
}

#[test]
fn a_station_that_does_not_run_is_not_listened_to() {
    let mut world = World::new();
    assert_eq!(world.repeat_status(60 * SECOND, &StationReport::default()), []);
}

fn peak(now: f64, whole: f64) -> StationReport {
    let mut status = at(-3.0);
    status.machine.loudness.current_true_peak = Some(Db::new(now));
    status.machine.loudness.true_peak = Some(Db::new(whole));
    status
}

#[test]
fn peaks_are_reported_once_a_minute_with_the_highest() {
    let mut world = World::new();
    assert_eq!(
        world.repeat_status(600, &peak(0.0, 0.0)),
        [],
        "the ceiling is not above the ceiling"
    );
    let over = |peak: f64, times| {
        let (peak, ceiling) = (Db::new(peak), Db::ZERO);
        HookEvent::OverCeiling { source: Some("one".to_owned()), peak, ceiling, times }
    };
    assert_eq!(world.repeat_status(1, &peak(0.3, 0.3)), [over(0.3, 1)]);
    assert_eq!(world.repeat_status(100, &peak(0.5, 0.5)), []);
    assert_eq!(world.repeat_status(1, &peak(2.0, 2.0)), []);
    assert_eq!(world.repeat_status(600, &peak(-6.0, 2.0)), [], "nothing is above it now");
    assert_eq!(world.repeat_status(1, &peak(0.1, 2.0)), [over(2.0, 102)]);
    assert_eq!(world.repeat_status(6_000, &peak(-6.0, 2.0)), []);
    // A peak between two polls appears in the overall peak; a reset is none.
    assert_eq!(world.repeat_status(1, &peak(-6.0, 2.5)), [over(2.5, 1)]);
    assert_eq!(world.repeat_status(6_000, &at(-3.0)), []);
    assert_eq!(world.repeat_status(6_000, &peak(-6.0, -6.0)), []);
}

#[test]
fn the_peak_alarm_uses_the_ceiling_of_the_normalizer() {
    let mut world = World::with("normalize = { true_peak = -3.0 }");
    assert_eq!(world.repeat_status(600, &peak(-2.9, -2.9)), [], "nobody measures finer");
    let [HookEvent::OverCeiling { ceiling, .. }] = world.repeat_status(1, &peak(-2.8, -2.8))[..]
    else {
        panic!("it is above");
    };
    assert!((ceiling.get() + 2.9).abs() < 1e-9, "{ceiling}");
    let mut world = World::with("normalize = { true_peak = -3.0, mode = \"gain-only\" }");
    assert_eq!(world.repeat_status(600, &peak(-0.1, -0.1)), [], "without a limiter there is none");
}

proptest! {
    /// For any output: silence and sound alternate, silence only after its time, and at most one of
    /// them in ten seconds.
    #[test]
    fn silence_and_its_end_alternate(
        pieces in proptest::collection::vec((-120.0..0.0f64, 1..200i64), 1..60)
    ) {
        let mut world = World::new();
        let (mut last, mut told) = ("sound", Vec::new());
        for (level, looks) in pieces {
            for _ in 0..looks {
                for news in world.repeat_status(1, &at(level)) {
                    let kind = news.kind().name();
                    prop_assert_ne!(kind, last);
                    last = kind;
                    told.push((kind, world.now));
                }
            }
        }
        for pair in told.windows(2) {
            let pause = pair[1].1 - pair[0].1;
            prop_assert!(pair[1].0 == "sound" || pause >= Span::from_secs(10), "{pair:?}");
        }
    }
}

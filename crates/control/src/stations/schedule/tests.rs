//! The schedule of a station in virtual time.

use super::json::schedule_json;
use super::*;
use aulos_core::Instant;

fn station(keys: &str) -> StationSettings {
    let text = format!(
        "[[station]]\nname = \"a\"\nsources = [{{ uri = \"demo://\", name = \"music\" }}, \
         {{ uri = \"tone://\", name = \"news\" }}, {{ uri = \"tone://\", name = \"talk\" }}]\n\
         timezone = \"UTC\"\n{keys}"
    );
    let file = aulos_config::ConfigFile { name: "a.toml", text: &text };
    let env = aulos_config::Environment::default();
    aulos_config::load(Some(file), &[], &env).unwrap().stations.remove(0)
}

fn hourly() -> StationSettings {
    station(
        "schedule = [{ at = \"07:00\", for = \"1h\", source = \"news\" }, \
         { at = \"07:30\", for = \"10m\", source = \"talk\" }]",
    )
}

/// A clock at this time of 1 March 2027, whose local clock began at midnight.
fn clock(time: &str) -> WallClock {
    let at: Timestamp = format!("2027-03-01T{time}Z").parse().unwrap();
    let midnight: Timestamp = "2027-03-01T00:00:00Z".parse().unwrap();
    let since = Span::from_nanos(i64::try_from(at.duration_since(midnight).as_nanos()).unwrap());
    WallClock { local: START + since, utc: unix_time(at), ..WallClock::default() }
}

/// An instant of the local clock, in minutes since midnight.
fn minutes(minutes: i64) -> Instant {
    START + Span::from_secs(60 * minutes)
}

/// What the station was told: minutes, input, and whether an entry begins.
fn told(update: &ScheduleUpdate) -> Vec<(Instant, Option<usize>, bool)> {
    let schedule = update.send.expect("a schedule");
    let told = |change: &ScheduledChange| (change.at, change.input, change.begins.is_some());
    schedule.iter().flatten().map(told).collect()
}

/// The events: `+` for an entry that becomes active, `-` for one that is not any more.
fn events(update: &ScheduleUpdate) -> String {
    let ended = update.ended.iter().map(|entry| format!("-{}", entry.source));
    ended.chain(update.began.iter().map(|entry| format!("+{}", entry.source))).collect()
}

const START: Instant = Instant::from_nanos(1_000_000_000_000);

#[test]
fn a_station_knows_each_change_before_its_time() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    let first = state.update(&station, &clock("06:00:00"));
    assert_eq!(told(&first), [(minutes(360), None, false), (minutes(420), Some(1), true)]);
    for (time, sent, event) in [
        ("06:59:59.9", None, ""),
        ("07:00:00", Some([(420, Some(1), true), (450, Some(2), true)]), "+news"),
        ("07:00:00.1", None, ""),
        ("07:30:00.05", Some([(450, Some(2), true), (460, Some(1), false)]), "-news+talk"),
        ("07:40:00.09", Some([(460, Some(1), false), (480, None, false)]), "-talk+news"),
        ("08:00:00.02", Some([(480, None, false), (1_860, Some(1), true)]), "-news"),
    ] {
        let update = state.update(&station, &clock(time));
        let expected = sent.map(|sent| sent.map(|(at, input, is)| (minutes(at), input, is)));
        assert_eq!(update.send.map(|_| told(&update)), expected.map(Vec::from), "{time}");
        assert_eq!(events(&update), event, "{time}");
    }
}

#[test]
fn an_entry_that_has_begun_is_active_at_once() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    let update = state.update(&station, &clock("07:45:00"));
    assert_eq!(told(&update), [(minutes(420), Some(1), true), (minutes(480), None, false)]);
    assert_eq!(events(&update), "+news");
}

#[test]
fn every_beginning_has_a_number_of_its_own() {
    let station = hourly();
    let mut numbers = std::collections::BTreeSet::new();
    for time in ["07:10:00", "07:35:00"] {
        let update = ScheduleState::default().update(&station, &clock(time));
        numbers.insert(update.send.unwrap()[0].unwrap().begins);
    }
    let tomorrow =
        WallClock { utc: unix_time("2027-03-02T07:10:00Z".parse().unwrap()), ..clock("07:10:00") };
    let update = ScheduleState::default().update(&station, &tomorrow);
    numbers.insert(update.send.unwrap()[0].unwrap().begins);
    assert_eq!(numbers.len(), 3);
}

#[test]
fn a_wall_clock_that_is_set_changes_the_plan() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    state.update(&station, &clock("06:00:00"));
    // Forward into an entry: it is 06:00:10 by the local clock.
    let set = |wall: &str, local: &str| WallClock { local: clock(local).local, ..clock(wall) };
    let update = state.update(&station, &set("07:20:00", "06:00:10"));
    let offset = Span::from_secs(80 * 60 - 10);
    assert_eq!(told(&update)[1], (minutes(450) - offset, Some(2), true));
    assert_eq!((told(&update)[0].1, events(&update)), (Some(1), "+news".to_owned()));
    // And back before it.
    let update = state.update(&station, &set("06:10:00", "06:00:20"));
    let offset = Span::from_secs(10 * 60 - 20);
    assert_eq!(told(&update)[0].1, None);
    assert!(told(&update)[0].0 <= clock("06:00:20").local);
    assert_eq!(told(&update)[1], (minutes(420) - offset, Some(1), true));
    assert_eq!(events(&update), "-news");
}

#[test]
fn a_drift_of_the_wall_clock_moves_the_change_and_noise_does_not() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    state.update(&station, &clock("06:00:00"));
    let late = |nanos| {
        let clock = clock("06:30:00");
        WallClock { local: clock.local + Span::from_nanos(nanos), ..clock }
    };
    assert_eq!(state.update(&station, &late(50_000)).send, None);
    let update = state.update(&station, &late(500_000));
    assert_eq!(told(&update)[1].0, minutes(420) + Span::from_nanos(500_000));
}

#[test]
fn other_settings_apply_at_once_and_none_end_everything() {
    let mut state = ScheduleState::default();
    state.update(&hourly(), &clock("07:10:00"));
    let talk = station("schedule = [{ at = \"07:05\", for = \"1h\", source = \"talk\" }]");
    state.renew(false);
    let update = state.update(&talk, &clock("07:10:01"));
    assert_eq!((told(&update)[0].1, events(&update)), (Some(2), "-news+talk".to_owned()));
    let none = station("");
    state.renew(false);
    let update = state.update(&none, &clock("07:10:02"));
    assert_eq!((update.send, events(&update)), (Some([None; 2]), "-talk".to_owned()));
    assert!(state.is_idle());
}

#[test]
fn a_station_that_starts_anew_is_told_again_without_an_event() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    let first = state.update(&station, &clock("07:10:00"));
    state.renew(true);
    let again = state.update(&station, &clock("07:10:00"));
    assert_eq!((again.send, events(&again)), (first.send, String::new()));
}

#[test]
fn the_status_names_the_active_entry_and_the_next_five() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    state.update(&station, &clock("07:10:00"));
    let status = schedule_json(&station, state.plan().map(|plan| &**plan));
    assert_eq!(status["timezone"], "UTC");
    assert_eq!(status["active"]["source"], "news");
    assert_eq!(status["active"]["until"], "2027-03-01T08:00:00+00:00");
    let next: Vec<_> = status["next"].as_array().unwrap().iter().map(|e| &e["from"]).collect();
    assert_eq!(
        next,
        [
            "2027-03-01T07:30:00+00:00",
            "2027-03-02T07:00:00+00:00",
            "2027-03-02T07:30:00+00:00",
            "2027-03-03T07:00:00+00:00",
            "2027-03-03T07:30:00+00:00",
        ]
    );
}

#[test]
fn a_call_is_an_entry_at_its_time_by_the_wall_clock_or_to_the_frame() {
    let (station, mut state) = (hourly(), ScheduleState::default());
    let early = clock("06:00:00");
    state.update(&station, &early);
    let at = OrderTime::Wall("2027-03-01T06:30:00Z".parse().unwrap());
    let talk = Some("talk".to_owned());
    let ten_minutes = Some(Span::from_secs(600));
    let first = state.order(talk, at, ten_minutes, &early).unwrap().id;
    // A frame that begins between two nanoseconds of the wall clock, for all it knows.
    let frame = minutes(400) + Span::from_nanos(1);
    let second = state.order(None, OrderTime::Local(frame), None, &early).unwrap().id;
    assert_ne!(first, second);
    let update = state.update(&station, &early);
    assert_eq!(told(&update), [(minutes(360), None, false), (minutes(390), Some(2), true)]);
    for (time, sent, event) in [
        ("06:30:00", [(minutes(390), Some(2), true), (minutes(400), None, false)], "+talk"),
        ("06:40:00", [(minutes(400), None, false), (frame, None, true)], "-talk"),
        // Automatic selection lasts until the next entry begins.
        ("06:50:00", [(frame, None, true), (minutes(420), Some(1), true)], "+automatic selection"),
        (
            "07:00:00",
            [(minutes(420), Some(1), true), (minutes(450), Some(2), true)],
            "-automatic selection+news",
        ),
    ] {
        let update = state.update(&station, &clock(time));
        assert_eq!(told(&update), sent, "{time}");
        assert_eq!(events(&update), event, "{time}");
    }
    state.update(&station, &clock("07:00:00.1"));
    assert_eq!(state.orders(), [], "the one has ended, the other was followed by an entry");
}

#[test]
fn what_readings_of_the_clocks_differ_by_ends_no_switch() {
    let (station, mut state) = (station(""), ScheduleState::default());
    let early = clock("06:00:00");
    let news = Some("news".to_owned());
    state.order(news, OrderTime::Local(minutes(370)), None, &early).unwrap();
    state.update(&station, &early);
    assert_eq!(events(&state.update(&station, &clock("06:10:00"))), "+news");
    for (time, nanos) in [("06:10:00.1", 200), ("06:10:00.2", 900_000), ("06:10:00.3", 0)] {
        let clock = clock(time);
        let clock = WallClock { local: clock.local + Span::from_nanos(nanos), ..clock };
        assert_eq!(state.update(&station, &clock), ScheduleUpdate::default(), "{time}");
        assert_eq!(state.orders().len(), 1, "{time}");
    }
}

#[test]
fn a_call_lasts_for_its_frames_although_the_wall_clock_is_slewed() {
    let (station, mut state) = (station(""), ScheduleState::default());
    let (early, begin) = (clock("06:00:00"), minutes(370));
    let (news, second) = (Some("news".to_owned()), Span::from_secs(1));
    state.order(news, OrderTime::Local(begin), Some(second), &early).unwrap();
    state.update(&station, &early);
    let later = clock("06:10:00.5");
    let slewed = WallClock { local: later.local - Span::from_millis(10), ..later };
    let update = state.update(&station, &slewed);
    assert_eq!(told(&update)[1].0, begin + second);
}

#[test]
fn the_end_of_a_call_stays_planned_until_the_station_has_come_to_it() {
    let (station, mut state) = (station(""), ScheduleState::default());
    let (early, begin) = (clock("06:00:00"), minutes(370));
    let (news, second) = (Some("news".to_owned()), Span::from_secs(1));
    state.order(news, OrderTime::Local(begin), Some(second), &early).unwrap();
    for now in ["06:00:00", "06:10:00.5"] {
        state.update(&station, &clock(now));
    }
    assert_eq!(told(&state.update(&station, &clock("06:10:01.05")))[0].0, begin + second);
    assert_eq!(state.update(&station, &clock("06:10:01.2")).send, None);
    assert_eq!(state.update(&station, &clock("06:10:02")).send, Some([None, None]));
    assert!(state.orders().is_empty());
}

#[test]
fn a_call_that_comes_while_another_one_ends_is_planned() {
    let (station, mut state) = (station(""), ScheduleState::default());
    let early = clock("06:00:00");
    for (source, at) in [("news", 370), ("talk", 380)] {
        let at = OrderTime::Local(minutes(at));
        state.order(Some(source.to_owned()), at, None, &early).unwrap();
    }
    state.update(&station, &early);
    state.update(&station, &clock("06:10:00"));
    let later = clock("06:20:00");
    assert_eq!(events(&state.update(&station, &later)), "-news+talk");
    let third = OrderTime::Local(minutes(390));
    state.order(Some("news".to_owned()), third, None, &later).unwrap();
    let update = state.update(&station, &clock("06:20:00.1"));
    assert_eq!((told(&update)[1], state.orders().len()), ((minutes(390), Some(1), true), 2));
}

#[test]
fn a_call_is_cancelled_before_its_time_and_while_it_lasts() {
    let (station, mut state) = (station(""), ScheduleState::default());
    let at = |time: &str| OrderTime::Wall(format!("2027-03-01T{time}Z").parse().unwrap());
    let news = || Some("news".to_owned());
    let now = clock("06:00:00");
    assert!(state.is_idle());
    let late = state.order(news(), at("08:00:00"), None, &now).unwrap().id;
    let early = state.order(news(), at("06:10:00"), None, &now).unwrap().id;
    assert_eq!(told(&state.update(&station, &now))[1], (minutes(370), Some(1), true));
    assert!(state.cancel(late) && !state.cancel(late));
    let update = state.update(&station, &clock("06:10:00"));
    assert_eq!(
        (told(&update), events(&update)),
        (vec![(minutes(370), Some(1), true)], "+news".to_owned())
    );
    assert!(state.cancel(early));
    let update = state.update(&station, &clock("06:20:00"));
    assert_eq!((update.send, events(&update)), (Some([None; 2]), "-news".to_owned()));
    assert!(state.is_idle());
    for _ in 0..MAX_ORDERS {
        assert!(state.order(news(), at("08:00:00"), None, &now).is_some());
    }
    assert!(state.order(news(), at("08:00:00"), None, &now).is_none());
}

#[test]
fn a_call_goes_with_the_clock_that_it_names() {
    let (station, mut state) = (station(""), ScheduleState::default());
    let now = clock("06:00:00");
    let at = OrderTime::Wall("2027-03-01T07:00:00Z".parse().unwrap());
    state.order(Some("news".to_owned()), at, None, &now).unwrap();
    state.update(&station, &now);
    // The wall clock is set forward by half an hour.
    let set = WallClock { utc: clock("06:30:00").utc, ..clock("06:00:01") };
    let update = state.update(&station, &set);
    assert_eq!(told(&update)[1].0, minutes(390) + Span::from_secs(1));
    // A source that the station has no longer.
    let mut without = station;
    without.sources.retain(|source| source.name != "news");
    state.renew(false);
    let update = state.update(&without, &set);
    assert_eq!((update.send, state.orders().len()), (Some([None; 2]), 0));
}

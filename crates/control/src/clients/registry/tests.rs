mod saved;
mod sound;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use aulos_core::{ChannelMap, Span};
use proptest::prelude::*;

use super::*;
use crate::backend::test_events::{arrival, departure, hello_of, volume_change};
use crate::backend::{ClientSound, ConnectionHealth, ServerSettings};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn registry() -> Registry {
    let station = |name: &str, buffer_ms| StationInfo { name: name.to_owned(), buffer_ms };
    Registry::new(vec![station("kitchen", 400), station("default", 1_000)], 7)
}

fn render(registry: &Registry) -> String {
    store::Snapshot::new(registry, Vec::new(), Vec::new()).into_text()
}

fn hello(registry: &mut Registry, session: u64, id: &str) -> Effects {
    let hello = hello_of(id);
    registry.apply(arrival(SessionId(session), PEER, hello), WallTime::default())
}

fn group_of(registry: &Registry, id: &str) -> String {
    registry.table.client(id).unwrap().0.id.clone()
}

fn settings(volume: u8, muted: bool, latency_ms: i64, buffer_ms: i64) -> ServerSettings {
    let (latency, buffer) = (Span::from_millis(latency_ms), Span::from_millis(buffer_ms));
    let report_interval = Some(Span::from_secs(2));
    ServerSettings { volume, muted, latency, buffer, report_interval }
}

#[test]
fn a_view_stays_as_it_was_when_its_clients_change() {
    let mut registry = registry();
    let _effects = hello(&mut registry, 1, "a");
    let text = |view: &GroupView| to_json_text(&GroupJson::new(view));
    let before = registry.table.views();
    let shown = text(&before[0]);
    drop(registry.set_volume("a", Some(7), None).unwrap());
    drop(registry.set_group_name(&before[0].group.id, "Kitchen").unwrap());
    assert_eq!(text(&before[0]), shown);
    let after = text(&registry.table.views()[0]);
    assert!(after.contains("\"percent\":7") && after.contains("Kitchen"), "{after}");
}

#[test]
fn a_new_client_is_an_update_and_a_known_one_a_connect() {
    let mut registry = registry();
    let first = hello(&mut registry, 1, "a");
    assert_eq!(first.notices, [Notice::Server]);
    let session = SessionId(1);
    assert_eq!(
        first.commands,
        [
            SessionCommand::SetSettings { session, settings: settings(100, false, 0, 1_000) },
            SessionCommand::MoveClient {
                session,
                station: 1,
                sound: ClientSound::default(),
                continues: false
            },
        ]
    );
    let gone = registry.apply(departure(session), WallTime { sec: 5, usec: 0 });
    assert_eq!(gone.notices, [Notice::Disconnected("a".to_owned())]);
    assert_eq!(registry.table.client("a").unwrap().1.last_seen.sec, 5);
    assert_eq!(hello(&mut registry, 2, "a").notices, [Notice::Connected("a".to_owned())]);
}

#[test]
fn a_new_client_keeps_the_volume_that_it_has_and_a_known_one_gets_the_stored_one() {
    let mut registry = registry();
    registry.set_volume_limits(60, 80);
    let arrive = |registry: &mut Registry, session, id, volume, muted| {
        let event = ReactorEvent::Hello {
            session: SessionId(session),
            hello: Box::new(hello_of(id)),
            address: (PEER, 0).into(),
            authorized: true,
            answered: None,
            volume: ClientInfo { volume, muted, report: None },
        };
        let effects = registry.apply(event, WallTime::default());
        let client = registry.table.client(id).unwrap().1;
        let sent = settings(client.volume, client.muted, 0, 1_000);
        let session = SessionId(session);
        assert!(
            effects.commands.contains(&SessionCommand::SetSettings { session, settings: sent })
        );
        (client.volume, client.muted, client.volume_by_client)
    };
    assert_eq!(arrive(&mut registry, 1, "own", Some(35), Some(true)), (35, true, true));
    assert_eq!(arrive(&mut registry, 2, "loud", Some(100), None), (80, false, true));
    assert_eq!(arrive(&mut registry, 3, "mute", None, Some(true)), (60, true, true));
    assert_eq!(arrive(&mut registry, 4, "silent", None, None), (60, false, false));
    drop(registry.apply(departure(SessionId(1)), WallTime::default()));
    assert_eq!(arrive(&mut registry, 5, "own", Some(70), Some(false)), (35, true, true));
}

#[test]
fn repeated_audio_reports_are_dropped_and_late_ones_corrected() {
    let mut registry = registry();
    let told = |answered| ReactorEvent::Hello {
        session: SessionId(1),
        hello: Box::new(hello_of("a")),
        address: (PEER, 0).into(),
        authorized: false,
        answered,
        volume: ClientInfo::default(),
    };
    let newcomer = registry.newcomer_greeting().unwrap();
    assert_eq!(newcomer.station, 1);
    let first = registry.apply(told(Some(newcomer)), WallTime::default());
    assert_eq!(first.commands, []);
    drop(registry.apply(departure(SessionId(1)), WallTime::default()));
    drop(registry.set_volume("a", Some(20), None).unwrap());
    let session = SessionId(1);
    let late = registry.apply(told(Some(newcomer)), WallTime::default());
    let settings = settings(20, false, 0, 1_000);
    assert_eq!(late.commands, [SessionCommand::SetSettings { session, settings }]);
    assert_eq!(registry.greeting_of("a"), Some(Greeting { settings, station: 1 }));
}

fn asked(us_ago: Option<i64>) -> ConnectionHealth {
    let since_time_request = us_ago.map(Span::from_micros);
    ConnectionHealth { since_time_request, ..ConnectionHealth::default() }
}

fn report(registry: &mut Registry, session: u64, seen_us_ago: i64) -> Option<SharedId> {
    let health = asked(Some(seen_us_ago));
    let event = ReactorEvent::Health { session: SessionId(session), health };
    registry.apply(event, WallTime::default()).shared
}

fn left(registry: &mut Registry, session: u64) -> Effects {
    registry.apply(departure(SessionId(session)), WallTime::default())
}

#[test]
fn a_returning_client_has_a_new_session_before_its_dead_one_ends() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "a"));
    let client = |registry: &Registry| registry.table.client("a").unwrap().1.clone();
    assert_eq!(client(&registry).session, Some(SessionId(2)));
    // A dead session is seen ever longer ago.
    for seen in 1..20 {
        assert_eq!(report(&mut registry, 1, seen * 250_000), None);
        assert_eq!(report(&mut registry, 2, 0), None);
    }
    assert_eq!(left(&mut registry, 1), Effects::default());
    assert_eq!(client(&registry).session, Some(SessionId(2)));
    assert_eq!(registry.table.connected(), 1);
    assert_eq!(left(&mut registry, 2).notices, [Notice::Disconnected("a".to_owned())]);
    assert_eq!(client(&registry).session, None);
    assert!(registry.table.is_consistent());
}

#[test]
fn two_machines_with_one_id_both_play_and_are_reported_once() {
    let mut registry = registry();
    let hello_from = |registry: &mut Registry, session, ip: &str| {
        let hello = hello_of("a");
        let (session, peer) = (SessionId(session), ip.parse().unwrap());
        let event = arrival(session, peer, hello);
        registry.apply(event, WallTime::default())
    };
    drop(hello_from(&mut registry, 1, "192.0.2.1"));
    let second = hello_from(&mut registry, 2, "192.0.2.2");
    assert!(second.commands.iter().all(|command| command.session() == SessionId(2)));
    let kicks = |effects: &Effects| {
        effects.commands.iter().filter(|it| matches!(it, SessionCommand::Kick { .. })).count()
    };
    assert_eq!((kicks(&second), registry.table.connected()), (0, 1));
    let mut shared = Vec::new();
    for seen in [900_000, 100_000, 300_000, 200_000, 900_000, 0] {
        shared.extend(report(&mut registry, 1, seen));
        shared.extend(report(&mut registry, 2, seen));
    }
    let addresses = ["192.0.2.1", "192.0.2.2"].map(str::to_owned);
    assert_eq!(shared, [SharedId { id: "a".to_owned(), addresses }]);
    // Settings reach both; the newer one decides.
    let told = registry.set_volume("a", Some(30), None).unwrap();
    let sessions: Vec<_> = told.commands.iter().map(SessionCommand::session).collect();
    assert_eq!(sessions, [SessionId(1), SessionId(2)]);
    let volume = |session, percent| volume_change(SessionId(session), Some(percent), None);
    drop(registry.apply(volume(1, 80), WallTime::default()));
    assert_eq!(registry.table.client("a").unwrap().1.volume, 30);
    drop(registry.apply(volume(2, 50), WallTime::default()));
    assert_eq!(registry.table.client("a").unwrap().1.volume, 50);
    // The one that stays is the client.
    assert_eq!(left(&mut registry, 2).notices, [Notice::Connected("a".to_owned())]);
    let client = registry.table.client("a").unwrap().1;
    assert_eq!((client.session, client.ip.as_str()), (Some(SessionId(1)), "192.0.2.1"));
    // However many there are, only the oldest ones are ended.
    for session in 3..40 {
        drop(hello(&mut registry, session, "a"));
        assert!(registry.table.is_consistent());
    }
    assert_eq!(
        (registry.table.client("a").unwrap().1.sessions().count(), registry.table.connected()),
        (16, 1)
    );
    let deleted = registry.delete_client("a").unwrap();
    assert_eq!(kicks(&deleted), 16);
    assert!(registry.table.is_consistent() && registry.table.connected() == 0);
}

#[test]
fn instances_of_one_machine_are_clients_of_their_own() {
    let mut registry = registry();
    for (session, instance) in [(1, 1), (2, 2)] {
        let hello = Hello { instance, ..hello_of("m") };
        let session = SessionId(session);
        drop(registry.apply(arrival(session, PEER, hello), WallTime::default()));
    }
    assert!(registry.table.client("m").is_some() && registry.table.client("m#2").is_some());
    let nameless = hello(&mut registry, 3, "");
    let session = SessionId(3);
    assert_eq!(
        nameless.commands,
        [SessionCommand::Kick { session, cause: KickReason::Unidentified }]
    );
}

#[test]
fn the_groups_mute_and_the_stations_buffer_reach_the_client() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    let group = group_of(&registry, "a");
    let session = SessionId(1);
    let muted = registry.set_mute(&group, true).unwrap();
    let wanted = SessionCommand::SetSettings { session, settings: settings(100, true, 0, 1_000) };
    assert_eq!(muted.commands, [wanted]);
    let moved = registry.set_stream(&group, "kitchen").unwrap();
    assert_eq!(
        moved.commands,
        [
            SessionCommand::SetSettings { session, settings: settings(100, true, 0, 400) },
            SessionCommand::MoveClient {
                session,
                station: 0,
                sound: ClientSound::default(),
                continues: false
            },
        ]
    );
    drop(registry.set_latency("a", 9_999).unwrap());
    assert_eq!(registry.table.client("a").unwrap().1.latency_ms, 400);
    drop(registry.set_volume("a", Some(-3), None).unwrap());
    assert_eq!(registry.table.client("a").unwrap().1.volume, 0);
}

#[test]
fn whoever_is_left_out_gets_a_group_of_the_same_station() {
    let mut registry = registry();
    for (session, id) in [(1, "a"), (2, "b"), (3, "c")] {
        drop(hello(&mut registry, session, id));
    }
    let group = group_of(&registry, "a");
    drop(registry.set_stream(&group, "kitchen").unwrap());
    let joined = registry.set_clients(&group, &["a".into(), "b".into(), "nobody".into()]).unwrap();
    assert_eq!(registry.table.groups().count(), 2);
    let session = SessionId(2);
    assert!(joined.commands.contains(&SessionCommand::MoveClient {
        session,
        station: 0,
        sound: ClientSound::default(),
        continues: false
    }));
    drop(registry.set_clients(&group, &["b".into()]).unwrap());
    let (own, _) = registry.table.client("a").unwrap();
    assert_eq!((own.station.as_str(), registry.table.members(&own.id).count()), ("kitchen", 1));
    drop(registry.set_clients(&group, &[]).unwrap());
    assert!(registry.table.group(&group).is_none());
    assert_eq!(registry.set_clients(&group, &[]), Err(NotFound::Group));
}

#[test]
fn the_client_absent_longest_is_evicted_and_a_full_registry_is_reported() {
    let mut registry = registry();
    for number in 0..MAX_CLIENTS as u64 {
        drop(hello(&mut registry, number, &format!("c{number}")));
    }
    let session = SessionId(99_999);
    let refused = hello(&mut registry, session.0, "late");
    assert_eq!(refused.commands, [SessionCommand::Kick { session, cause: KickReason::Full }]);
    drop(registry.apply(departure(SessionId(17)), WallTime { sec: 1, usec: 0 }));
    drop(registry.apply(departure(SessionId(3)), WallTime { sec: 2, usec: 0 }));
    drop(hello(&mut registry, session.0, "late"));
    assert!(registry.table.client("c17").is_none() && registry.table.client("c3").is_some());
}

/// A client connects and disconnects.
fn visit(registry: &mut Registry, session: u64, id: &str) -> Effects {
    let came = hello(registry, session, id);
    drop(registry.apply(departure(SessionId(session)), WallTime::default()));
    came
}

#[test]
fn invented_ids_push_out_no_client_that_something_is_known_of() {
    let mut registry = registry();
    let real =
        ["named", "capped", "mapped", "late", "turned", "muted", "kitchen", "a", "b", "kept"];
    for (session, id) in real.into_iter().enumerate() {
        drop(visit(&mut registry, session as u64, id));
    }
    drop(visit(&mut registry, 10, "old stranger"));
    drop(registry.set_client_name("named", "Küche").unwrap());
    drop(registry.set_cap("capped", 30).unwrap());
    drop(registry.set_map("mapped", ChannelMap::Left).unwrap());
    drop(registry.set_latency("late", 20).unwrap());
    drop(registry.set_volume("turned", Some(20), None).unwrap());
    drop(registry.set_volume("muted", None, Some(true)).unwrap());
    let group = group_of(&registry, "kitchen");
    drop(registry.set_stream(&group, "kitchen").unwrap());
    let group = group_of(&registry, "a");
    drop(registry.set_clients(&group, &["a".into(), "b".into()]).unwrap());
    assert_eq!(registry.save_preset("all"), Ok(()));
    // "kept" has no settings but is in this preset.
    drop(hello(&mut registry, 11, "connected stranger"));
    let invented = MAX_CLIENTS as u64 + 100;
    for number in 0..invented {
        let session = 100 + number;
        drop(hello(&mut registry, session, &format!("invented {number}")));
        // A volume set at the client itself does not keep it from being forgotten.
        let info = volume_change(SessionId(session), Some(9), None);
        drop(registry.apply(info, WallTime::default()));
        drop(registry.apply(departure(SessionId(session)), WallTime::default()));
    }
    for id in real.into_iter().chain(["old stranger", "connected stranger"]) {
        assert!(registry.table.client(id).is_some(), "{id} is forgotten");
    }
    assert_eq!(registry.table.client("capped").unwrap().1.cap, 30);
    assert_eq!(registry.table.remembered(), MAX_CLIENTS);
    assert_eq!(registry.discarded.evicted, 112);
    assert!(registry.table.is_consistent());
}

/// A client of this id and program connects and disconnects.
fn visit_with(registry: &mut Registry, session: u64, id: &str, program: &str) {
    let (session, instance) = (SessionId(session), 1);
    let hello =
        Hello { id: id.to_owned(), client_name: program.to_owned(), instance, ..hello_of("") };
    let event = arrival(session, PEER, hello);
    drop(registry.apply(event, WallTime::default()));
    drop(registry.apply(departure(session), WallTime::default()));
}

#[test]
fn a_browser_that_is_gone_is_forgotten_unless_something_was_set_for_it() {
    const PAGE: &str = "aulos web player";
    let mut registry = registry();
    let kept = ["named", "turned", "late", "joined", "grouped", "mapped"];
    let browsers = kept.into_iter().chain(["moved", "plain", "here", "other"]);
    for (session, id) in (1..).zip(browsers) {
        visit_with(&mut registry, session, id, PAGE);
    }
    visit_with(&mut registry, 50, "snapclient", "Snapclient");
    visit_with(&mut registry, 51, "Snapweb", "Snapweb");
    drop(registry.set_client_name("named", "Tablet").unwrap());
    drop(registry.set_volume("turned", Some(20), None).unwrap());
    drop(registry.set_latency("late", 30).unwrap());
    drop(registry.set_map("mapped", ChannelMap::Left).unwrap());
    let group = group_of(&registry, "joined");
    drop(registry.set_clients(&group, &["joined".into(), "snapclient".into()]).unwrap());
    let group = group_of(&registry, "grouped");
    drop(registry.set_group_name(&group, "Upstairs").unwrap());
    // The page chooses a station whenever it begins to play.
    let group = group_of(&registry, "moved");
    drop(registry.set_stream(&group, "kitchen").unwrap());
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    assert_eq!(registry.forget_absent_browsers(at(0)), Effects::default());
    assert_eq!(registry.forget_absent_browsers(at(55)), Effects::default());
    // A client that comes back in between begins anew.
    visit_with(&mut registry, 60, "here", PAGE);
    let session = SessionId(61);
    let hello =
        Hello { id: "other".to_owned(), client_name: PAGE.to_owned(), instance: 1, ..hello_of("") };
    let event = arrival(session, PEER, hello);
    drop(registry.apply(event, WallTime::default()));
    let effects = registry.forget_absent_browsers(at(60));
    assert_eq!(effects, Effects { save: true, ..Effects::notice(Notice::Server) });
    drop(registry.apply(departure(session), WallTime::default()));
    assert_eq!(registry.forget_absent_browsers(at(65)), Effects::default());
    let known = |registry: &Registry, id: &str| registry.table.client(id).is_some();
    for id in kept.into_iter().chain(["here", "other", "snapclient", "Snapweb"]) {
        assert!(known(&registry, id), "{id} is forgotten");
    }
    for id in ["moved", "plain"] {
        assert!(!known(&registry, id), "{id} is still there");
    }
    assert_ne!(registry.forget_absent_browsers(at(124)), Effects::default());
    assert!(!known(&registry, "here") && known(&registry, "other"));
    assert_ne!(registry.forget_absent_browsers(at(125)), Effects::default());
    assert!(!known(&registry, "other") && registry.absent_browsers.is_empty());
    assert!(registry.table.is_consistent());
}

#[test]
fn with_a_full_registry_a_new_client_plays_without_being_stored() {
    let mut registry = registry();
    for number in 0..MAX_CLIENTS as u64 {
        let id = format!("c{number}");
        drop(visit(&mut registry, number, &id));
        drop(registry.set_client_name(&id, "Küche").unwrap());
    }
    let before = render(&registry);
    let late = hello(&mut registry, 99_999, "late");
    let session = SessionId(99_999);
    let moved = SessionCommand::MoveClient {
        session,
        station: 1,
        sound: ClientSound::default(),
        continues: false,
    };
    assert!(late.commands.contains(&moved), "{late:?}");
    // It can be controlled, but is in no file and no preset.
    drop(registry.set_volume("late", Some(7), None).unwrap());
    assert_eq!(registry.table.client("late").unwrap().1.volume, 7);
    assert_eq!(render(&registry), before);
    assert_eq!(registry.save_preset("all"), Ok(()));
    assert_eq!(registry.presets.list[0].client_count(), MAX_CLIENTS);
    drop(registry.apply(departure(session), WallTime::default()));
    assert!(registry.table.client("late").is_none() && registry.table.is_consistent());
    // Exactly this many at once.
    let served = (0..2_000).filter(|number| {
        let effects = hello(&mut registry, 100_000 + number, &format!("late {number}"));
        !matches!(effects.commands[..], [SessionCommand::Kick { cause: KickReason::Full, .. }])
    });
    assert_eq!(served.count(), MAX_TRANSIENT);
    assert_eq!(registry.discarded.transient, 1 + MAX_TRANSIENT as u64);
    assert!(registry.table.is_consistent());
    // A remembered client is always accepted.
    let back = hello(&mut registry, 200_000, "c17");
    assert_eq!(back.notices, [Notice::Connected("c17".to_owned())]);
}

#[test]
fn a_group_has_a_volume_and_a_client_a_cap() {
    let mut registry = registry();
    registry.set_volume_limits(40, 90);
    for (session, id) in [(1, "a"), (2, "b")] {
        drop(hello(&mut registry, session, id));
    }
    let group = group_of(&registry, "a");
    drop(registry.set_clients(&group, &["a".into(), "b".into()]).unwrap());
    let volumes =
        |registry: &Registry| ["a", "b"].map(|id| registry.table.client(id).unwrap().1.volume);
    assert_eq!(volumes(&registry), [40, 40]);
    drop(registry.change_volume("b", VolumeChange::By(20)).unwrap());
    assert_eq!(registry.table.group_volume(&group), Some(50));
    let louder = registry.change_group_volume(&group, VolumeChange::To(60)).unwrap();
    assert_eq!((volumes(&registry), louder.notices.len()), ([50, 70], 2));
    drop(registry.change_group_volume(&group, VolumeChange::By(35)).unwrap());
    assert_eq!(volumes(&registry), [85, 90]);
    drop(registry.set_cap("a", 30).unwrap());
    assert_eq!(volumes(&registry), [30, 90]);
    drop(registry.set_volume("a", Some(100), None).unwrap());
    assert_eq!(volumes(&registry), [30, 90]);
    // A volume that was raised at the client itself is lowered again.
    let session = SessionId(1);
    let info = volume_change(session, Some(99), None);
    let told = registry.apply(info, WallTime::default()).commands;
    assert_eq!(
        told,
        [SessionCommand::SetSettings { session, settings: settings(30, false, 0, 1_000) }]
    );
    let saved = render(&registry);
    assert!(saved.contains("\"cap\":30"), "{saved}");
}

#[test]
fn a_preset_brings_the_groups_back() {
    let mut registry = registry();
    for (session, id) in [(1, "a"), (2, "b"), (3, "c")] {
        drop(hello(&mut registry, session, id));
    }
    let group = group_of(&registry, "a");
    drop(registry.set_clients(&group, &["a".into(), "b".into()]).unwrap());
    drop(registry.set_stream(&group, "kitchen").unwrap());
    drop(registry.set_volume("b", Some(20), None).unwrap());
    registry.save_preset("party").unwrap();
    drop(registry.set_clients(&group, &["c".into()]).unwrap());
    drop(registry.set_stream(&group, "default").unwrap());
    drop(registry.set_volume("b", Some(90), None).unwrap());
    drop(registry.delete_client("c").unwrap());
    let effects = registry.apply_preset("party", true).unwrap();
    assert_eq!(effects.notices, [Notice::Server]);
    let (own, b) = registry.table.client("b").unwrap();
    assert_eq!(
        (own.station.as_str(), b.volume, registry.table.members(&own.id).count()),
        ("kitchen", 20, 2)
    );
    assert_eq!(registry.table.groups().count(), 1);
    let back =
        serde_json::from_value::<Preset>(serde_json::json!(registry.presets.list[0].as_ref()));
    assert_eq!(back.unwrap(), *registry.presets.list[0]);
    assert_eq!(registry.apply_preset("nope", true), Err(NotFound::Preset));
    registry.presets.delete("party").unwrap();
    assert_eq!(registry.presets.delete("party"), Err(NotFound::Preset));
    assert!((0..MAX_PRESETS).all(|number| registry.save_preset(&number.to_string()).is_ok()));
    assert_eq!(registry.save_preset("one more"), Err(PresetError::TooMany));
    assert_eq!(registry.save_preset("7"), Ok(()));
}

#[test]
fn the_groups_of_a_removed_station_play_the_default_one() {
    let mut registry = registry();
    registry.add_station(2, StationInfo { name: "added".to_owned(), buffer_ms: 300 });
    drop(hello(&mut registry, 1, "a"));
    let group = group_of(&registry, "a");
    drop(registry.set_stream(&group, "added").unwrap());
    let gone = registry.remove_station(2);
    let session = SessionId(1);
    assert_eq!(
        gone.commands,
        [
            SessionCommand::SetSettings { session, settings: settings(100, false, 0, 1_000) },
            SessionCommand::MoveClient {
                session,
                station: 1,
                sound: ClientSound::default(),
                continues: false
            },
        ]
    );
    assert_eq!(gone.notices, [Notice::Stream(group.clone())]);
    assert_eq!(registry.set_stream(&group, "added"), Err(NotFound::Station));
}

#[test]
fn default_is_there_even_where_no_station_has_that_name() {
    let station = |name: &str| StationInfo { name: name.to_owned(), buffer_ms: 400 };
    let mut registry = Registry::new(vec![station("one"), station("two")], 7);
    drop(hello(&mut registry, 1, "a"));
    let group = group_of(&registry, "a");
    drop(registry.set_stream(&group, "two").unwrap());
    drop(registry.set_stream(&group, "default").unwrap());
    assert_eq!(registry.table.group(&group).unwrap().station, "one");
}

#[derive(Clone, Debug)]
enum Step {
    Hello(u64, u8),
    Left(u64),
    SetClients(u8, Vec<u8>),
    SetStream(u8, bool),
    Delete(u8),
    Info(u64, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..20u64, 0..6u8).prop_map(|(session, id)| Step::Hello(session, id)),
        (0..20u64).prop_map(Step::Left),
        (0..6u8, prop::collection::vec(0..8u8, 0..5))
            .prop_map(|(of, ids)| Step::SetClients(of, ids)),
        (0..6u8, any::<bool>()).prop_map(|(of, kitchen)| Step::SetStream(of, kitchen)),
        (0..6u8).prop_map(Step::Delete),
        (0..20u64, any::<u32>()).prop_map(|(session, volume)| Step::Info(session, volume)),
    ]
}

fn group_at(registry: &Registry, number: u8) -> Option<String> {
    registry.table.groups().nth(usize::from(number)).map(|group| group.id.clone())
}

fn take(registry: &mut Registry, step: Step) -> Option<Effects> {
    match step {
        Step::Hello(session, id) => Some(hello(registry, session, &format!("c{id}"))),
        Step::Left(session) => {
            // The wall clock may step arbitrarily.
            let wall = WallTime { sec: (session.cast_signed() * 7_919) % 101 - 50, usec: 0 };
            Some(registry.apply(departure(SessionId(session)), wall))
        }
        Step::SetClients(of, ids) => {
            let ids: Vec<String> = ids.iter().map(|id| format!("c{id}")).collect();
            registry.set_clients(&group_at(registry, of)?, &ids).ok()
        }
        Step::SetStream(of, kitchen) => {
            let station = if kitchen { "kitchen" } else { "default" };
            registry.set_stream(&group_at(registry, of)?, station).ok()
        }
        Step::Delete(id) => registry.delete_client(&format!("c{id}")).ok(),
        Step::Info(session, volume) => {
            let volume = u8::try_from(volume).ok();
            let event = volume_change(SessionId(session), volume, None);
            Some(registry.apply(event, WallTime::default()))
        }
    }
}

proptest! {
    /// After any sequence: no empty group, every client once, unique ids, and the audio backend has
    /// the station that the registry shows.
    #[test]
    fn the_registry_is_consistent_after_every_step(steps in prop::collection::vec(step(), 0..60)) {
        let mut registry = registry();
        let mut plays = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            // Session ids are never reused.
            let step = match step {
                Step::Hello(session, id) => Step::Hello(session + 100 * number as u64, id),
                other => other,
            };
            for command in take(&mut registry, step).unwrap_or_default().commands {
                if let SessionCommand::MoveClient { session, station, .. } = command {
                    plays.insert(session, station);
                }
            }
            let mut ids = Vec::new();
            prop_assert!(registry.table.is_consistent());
            for group in registry.table.groups() {
                ids.push(group.id.clone());
                for client in registry.table.members(&group.id) {
                    ids.push(client.id.clone());
                    prop_assert!(client.volume <= 100);
                    if let Some(session) = client.session {
                        let station = registry.stations.find(&group.station).unwrap().0;
                        prop_assert_eq!(plays.get(&session), Some(&station));
                    }
                }
            }
            let count = ids.len();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), count);
        }
    }
}

/// Music Assistant takes a client whose `lastSeen` stands still for 15 s as disconnected.
#[test]
fn a_client_is_last_seen_at_its_last_time_request() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    let mut seen_at = |sec, health| {
        let event = ReactorEvent::Health { session: SessionId(1), health };
        let effects = registry.apply(event, WallTime { sec, usec: 250_000 });
        assert!(!effects.save && effects.notices.is_empty());
        registry.table.client("a").unwrap().1.last_seen
    };
    let before = seen_at(100, asked(None));
    assert!(before.sec < 90, "it has sent no request yet: {before:?}");
    assert_eq!(seen_at(100, asked(Some(1_500_000))), WallTime { sec: 98, usec: 750_000 });
    assert_eq!(seen_at(102, asked(Some(0))), WallTime { sec: 102, usec: 250_000 });
    // The wall clock was set back.
    assert_eq!(seen_at(50, asked(Some(250_001))), WallTime { sec: 49, usec: 999_999 });
}

#[test]
fn a_client_that_plays_one_channel_is_answered_by_us_and_keeps_it() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "b"));
    let effects = registry.set_map("a", ChannelMap::Left).unwrap();
    let moved = |station, map| SessionCommand::MoveClient {
        session: SessionId(1),
        station,
        sound: ClientSound { map, chain: None },
        continues: false,
    };
    let active_maps = |registry: &Registry| {
        let all = active_sounds(registry).into_iter();
        all.map(|one| (one.station, one.sound.map)).collect::<Vec<_>>()
    };
    assert!(effects.save && effects.commands.contains(&moved(1, ChannelMap::Left)));
    assert_eq!(effects.notices, [Notice::ChannelMap("a".to_owned())]);
    assert_eq!(active_maps(&registry), [(1, ChannelMap::Left)]);
    let asks = ["a", "b"].map(|id| registry.greeting_of(id).map(|greeting| greeting.station));
    assert_eq!(asks, [Some(Greeting::DEFER_TO_CONTROL), Some(1)]);
    let again = registry.set_map("a", ChannelMap::Left).unwrap();
    assert!(!again.commands.contains(&moved(1, ChannelMap::Left)), "it plays on");
    let saved = render(&registry);
    assert!(saved.contains(r#""channels":"left""#), "{saved}");
    drop(registry.apply(departure(SessionId(1)), WallTime::default()));
    assert!(active_maps(&registry).is_empty());
    assert!(hello(&mut registry, 1, "a").commands.contains(&moved(1, ChannelMap::Left)));
    let group = group_of(&registry, "a");
    let effects = registry.set_stream(&group, "kitchen").unwrap();
    assert!(effects.commands.contains(&moved(0, ChannelMap::Left)));
    let back = registry.set_map("a", ChannelMap::Stereo).unwrap();
    assert!(back.commands.contains(&moved(0, ChannelMap::Stereo)));
    assert_eq!(registry.set_map("x", ChannelMap::Mono), Err(NotFound::Client));
}

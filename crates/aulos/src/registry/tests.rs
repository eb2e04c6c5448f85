use std::net::{IpAddr, Ipv4Addr};

use aulos_core::ChannelMap;
use proptest::prelude::*;

use super::store::{Loaded, Saved, load, save};
use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn registry() -> Registry {
    let station = |name: &str, buffer_ms| StationInfo { name: name.to_owned(), buffer_ms };
    Registry::new(vec![station("kitchen", 400), station("default", 1_000)], 7)
}

fn render(registry: &Registry) -> String {
    store::render(registry, &[], &[])
}

fn hello(registry: &mut Registry, session: u64, id: &str) -> Effects {
    let hello = Hello { id: id.to_owned(), instance: 1, ..Hello::default() };
    registry.apply(
        Event::Hello {
            session: SessionId(session),
            peer: PEER,
            hello: hello.into(),
            answered: None,
        },
        Wall::default(),
    )
}

fn group_of(registry: &Registry, id: &str) -> String {
    registry.client(id).unwrap().0.id.clone()
}

fn settings(volume: u8, muted: bool, latency_ms: i32, buffer_ms: u32) -> Settings {
    Settings { volume, muted, latency_ms, buffer_ms }
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
            Command::SetSettings { session, settings: settings(100, false, 0, 1_000) },
            Command::MoveClient { session, station: 1, map: ChannelMap::Stereo },
        ]
    );
    let gone = registry.apply(Event::Left { session }, Wall { sec: 5, usec: 0 });
    assert_eq!(gone.notices, [Notice::Disconnected("a".to_owned())]);
    assert_eq!(registry.client("a").unwrap().1.last_seen.sec, 5);
    assert_eq!(hello(&mut registry, 2, "a").notices, [Notice::Connected("a".to_owned())]);
}

#[test]
fn what_the_audio_has_said_already_is_not_said_again_and_what_was_late_is_set_right() {
    let mut registry = registry();
    let told = |answered| Event::Hello {
        session: SessionId(1),
        peer: PEER,
        hello: Box::new(Hello { id: "a".to_owned(), instance: 1, ..Hello::default() }),
        answered,
    };
    let newcomer = registry.newcomers_greeting().unwrap();
    assert_eq!(newcomer.station, 1);
    let first = registry.apply(told(Some(newcomer)), Wall::default());
    assert_eq!(first.commands, []);
    drop(registry.apply(Event::Left { session: SessionId(1) }, Wall::default()));
    drop(registry.set_volume("a", Some(20), None).unwrap());
    let session = SessionId(1);
    let late = registry.apply(told(Some(newcomer)), Wall::default());
    let settings = settings(20, false, 0, 1_000);
    assert_eq!(late.commands, [Command::SetSettings { session, settings }]);
    assert_eq!(registry.greeting_of("a"), Some(Greeting { settings, station: 1 }));
}

#[test]
fn a_client_that_comes_back_ends_its_dead_session_and_stays_connected() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    let again = hello(&mut registry, 2, "a");
    let session = SessionId(1);
    assert_eq!(again.commands[0], Command::Kick { session, cause: Cause::Replaced });
    assert_eq!(registry.apply(Event::Left { session }, Wall::default()), Effects::default());
    assert_eq!(registry.client("a").unwrap().1.session, Some(SessionId(2)));
}

#[test]
fn instances_of_one_machine_are_clients_of_their_own() {
    let mut registry = registry();
    for (session, instance) in [(1, 1), (2, 2)] {
        let hello = Hello { mac: "m".to_owned(), instance, ..Hello::default() };
        let session = SessionId(session);
        drop(registry.apply(
            Event::Hello { session, peer: PEER, hello: hello.into(), answered: None },
            Wall::default(),
        ));
    }
    assert!(registry.client("m").is_some() && registry.client("m#2").is_some());
    let nameless = hello(&mut registry, 3, "");
    let session = SessionId(3);
    assert_eq!(nameless.commands, [Command::Kick { session, cause: Cause::Nameless }]);
}

#[test]
fn the_groups_mute_and_the_stations_buffer_reach_the_client() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    let group = group_of(&registry, "a");
    let session = SessionId(1);
    let muted = registry.set_mute(&group, true).unwrap();
    let wanted = Command::SetSettings { session, settings: settings(100, true, 0, 1_000) };
    assert_eq!(muted.commands, [wanted]);
    let moved = registry.set_stream(&group, "kitchen").unwrap();
    assert_eq!(
        moved.commands,
        [
            Command::SetSettings { session, settings: settings(100, true, 0, 400) },
            Command::MoveClient { session, station: 0, map: ChannelMap::Stereo },
        ]
    );
    drop(registry.set_latency("a", 9_999).unwrap());
    assert_eq!(registry.client("a").unwrap().1.latency_ms, 400);
    drop(registry.set_volume("a", Some(-3), None).unwrap());
    assert_eq!(registry.client("a").unwrap().1.volume, 0);
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
    assert_eq!(registry.groups().count(), 2);
    let session = SessionId(2);
    assert!(joined.commands.contains(&Command::MoveClient {
        session,
        station: 0,
        map: ChannelMap::Stereo
    }));
    drop(registry.set_clients(&group, &["b".into()]).unwrap());
    let (own, _) = registry.client("a").unwrap();
    assert_eq!((own.station.as_str(), registry.members(&own.id).count()), ("kitchen", 1));
    drop(registry.set_clients(&group, &[]).unwrap());
    assert!(registry.group(&group).is_none());
    assert_eq!(registry.set_clients(&group, &[]), Err(NotFound::Group));
}

#[test]
fn the_client_longest_away_makes_room_and_a_full_house_says_so() {
    let mut registry = registry();
    for number in 0..MAX_CLIENTS as u64 {
        drop(hello(&mut registry, number, &format!("c{number}")));
    }
    let session = SessionId(99_999);
    let refused = hello(&mut registry, session.0, "late");
    assert_eq!(refused.commands, [Command::Kick { session, cause: Cause::Full }]);
    drop(registry.apply(Event::Left { session: SessionId(17) }, Wall { sec: 1, usec: 0 }));
    drop(registry.apply(Event::Left { session: SessionId(3) }, Wall { sec: 2, usec: 0 }));
    drop(hello(&mut registry, session.0, "late"));
    assert!(registry.client("c17").is_none() && registry.client("c3").is_some());
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    drop(registry.set_client_name("a", &"ä\n".repeat(1_000)).unwrap());
    assert_eq!(registry.client("a").unwrap().1.name.len(), MAX_TEXT);
}

#[test]
fn what_is_saved_comes_back() {
    let dir = crate::golden::scratch("store");
    let (mut registry, mut back) = (registry(), registry());
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "b"));
    drop(registry.set_client_name("a", "Küche").unwrap());
    let group = group_of(&registry, "a");
    drop(registry.set_clients(&group, &["a".into(), "b".into()]).unwrap());
    save(&dir, &render(&registry)).unwrap();

    let Loaded::Saved(Saved { groups, .. }) = load(&dir).unwrap() else { panic!() };
    back.restore(groups);
    assert_eq!(render(&back).replace("true", "false"), render(&registry).replace("true", "false"));
    assert_eq!(hello(&mut back, 9, "a").notices, [Notice::Connected("a".to_owned())]);
}

#[test]
fn a_broken_file_is_put_aside_and_a_missing_one_is_nothing() {
    let dir = crate::golden::scratch("broken");
    assert!(matches!(load(&dir).unwrap(), Loaded::Nothing));
    std::fs::write(dir.join(store::FILE), "{\"Groups\":").unwrap();
    assert!(matches!(load(&dir).unwrap(), Loaded::Broken(None)));
    assert!(dir.join("server.json.broken").exists());
}

#[test]
fn snapservers_own_file_is_read() {
    let dir = crate::golden::scratch("theirs");
    std::fs::copy("tests/golden/snapserver_server.json", dir.join(store::FILE)).unwrap();
    let Loaded::Saved(Saved { groups, .. }) = load(&dir).unwrap() else { panic!() };
    let mut registry = registry();
    registry.restore(groups);
    let group = registry.groups().next().unwrap();
    let client = registry.members(&group.id).next().unwrap();
    assert_eq!((client.volume, client.latency_ms, client.muted), (74, 50, true));
    assert_eq!(group.station, "default");
}

#[test]
fn what_was_saved_before_a_broken_file_is_taken() {
    let (dir, mut registry) = (crate::golden::scratch("previous"), registry());
    drop(hello(&mut registry, 1, "a"));
    save(&dir, &render(&registry)).unwrap();
    drop(hello(&mut registry, 2, "b"));
    save(&dir, &render(&registry)).unwrap();
    std::fs::write(dir.join(store::FILE), "").unwrap();
    let Loaded::Broken(Some(saved)) = load(&dir).unwrap() else { panic!() };
    assert_eq!(saved.groups.len(), 1);
    // And again, if nothing has changed until the next start; a save then keeps it.
    let Loaded::Saved(again) = load(&dir).unwrap() else { panic!() };
    assert_eq!(again.groups, saved.groups);
    save(&dir, &render(&registry)).unwrap();
    std::fs::write(dir.join(store::FILE), "{").unwrap();
    let Loaded::Broken(Some(before)) = load(&dir).unwrap() else { panic!() };
    assert_eq!(before.groups, saved.groups);
}

#[test]
fn what_cannot_be_written_leaves_the_file_as_it_is_and_nothing_behind() {
    let (dir, registry) = (crate::golden::scratch("unwritable"), registry());
    save(&dir, &render(&registry)).unwrap();
    // A folder in the place of the new file: nobody can write there, not even root.
    std::fs::create_dir(dir.join("server.json.new")).unwrap();
    save(&dir, "{}").unwrap_err();
    std::fs::remove_dir(dir.join("server.json.new")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join(store::FILE)).unwrap(), render(&registry));
    save(&dir, "{}").unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["server.json", "server.json.previous"]);
}

#[test]
fn a_group_has_a_volume_and_a_client_a_cap() {
    let mut registry = registry();
    registry.set_loudness(40, 90);
    for (session, id) in [(1, "a"), (2, "b")] {
        drop(hello(&mut registry, session, id));
    }
    let group = group_of(&registry, "a");
    drop(registry.set_clients(&group, &["a".into(), "b".into()]).unwrap());
    let volumes = |registry: &Registry| ["a", "b"].map(|id| registry.client(id).unwrap().1.volume);
    assert_eq!(volumes(&registry), [40, 40]);
    drop(registry.change_volume("b", Change::By(20)).unwrap());
    assert_eq!(registry.group_volume(&group), Some(50));
    let louder = registry.change_group_volume(&group, Change::To(60)).unwrap();
    assert_eq!((volumes(&registry), louder.notices.len()), ([50, 70], 2));
    drop(registry.change_group_volume(&group, Change::By(35)).unwrap());
    assert_eq!(volumes(&registry), [85, 90]);
    drop(registry.set_cap("a", 30).unwrap());
    assert_eq!(volumes(&registry), [30, 90]);
    drop(registry.set_volume("a", Some(100), None).unwrap());
    assert_eq!(volumes(&registry), [30, 90]);
    // What is turned up at the client itself comes down again.
    let session = SessionId(1);
    let info = Event::ClientInfo { session, volume: Some(99), muted: None };
    let told = registry.apply(info, Wall::default()).commands;
    assert_eq!(told, [Command::SetSettings { session, settings: settings(30, false, 0, 1_000) }]);
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
    assert!(registry.save_preset("party"));
    drop(registry.set_clients(&group, &["c".into()]).unwrap());
    drop(registry.set_stream(&group, "default").unwrap());
    drop(registry.set_volume("b", Some(90), None).unwrap());
    drop(registry.delete_client("c").unwrap());
    let effects = registry.apply_preset("party", true).unwrap();
    assert_eq!(effects.notices, [Notice::Server]);
    let (own, b) = registry.client("b").unwrap();
    assert_eq!(
        (own.station.as_str(), b.volume, registry.members(&own.id).count()),
        ("kitchen", 20, 2)
    );
    assert_eq!(registry.groups().count(), 1);
    let back = presets::preset_from(&preset_json(&registry.presets()[0]));
    assert_eq!(back, registry.presets()[0]);
    assert_eq!(registry.apply_preset("nope", true), Err(NotFound::Preset));
    registry.delete_preset("party").unwrap();
    assert_eq!(registry.delete_preset("party"), Err(NotFound::Preset));
    assert!((0..MAX_PRESETS).all(|number| registry.save_preset(&number.to_string())));
    assert!(!registry.save_preset("one more"));
}

#[test]
fn the_groups_of_a_removed_station_play_the_default_one() {
    let mut registry = registry();
    registry.put_station(2, StationInfo { name: "added".to_owned(), buffer_ms: 300 });
    drop(hello(&mut registry, 1, "a"));
    let group = group_of(&registry, "a");
    drop(registry.set_stream(&group, "added").unwrap());
    let gone = registry.remove_station(2);
    let session = SessionId(1);
    assert_eq!(
        gone.commands,
        [
            Command::SetSettings { session, settings: settings(100, false, 0, 1_000) },
            Command::MoveClient { session, station: 1, map: ChannelMap::Stereo },
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
    assert_eq!(registry.group(&group).unwrap().station, "one");
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
    registry.groups().nth(usize::from(number)).map(|group| group.id.clone())
}

fn take(registry: &mut Registry, step: Step) -> Option<Effects> {
    match step {
        Step::Hello(session, id) => Some(hello(registry, session, &format!("c{id}"))),
        Step::Left(session) => {
            // The wall clock steps as it likes.
            let wall = Wall { sec: (session.cast_signed() * 7_919) % 101 - 50, usec: 0 };
            Some(registry.apply(Event::Left { session: SessionId(session) }, wall))
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
            let event = Event::ClientInfo { session: SessionId(session), volume, muted: None };
            Some(registry.apply(event, Wall::default()))
        }
    }
}

proptest! {
    /// After any sequence: no empty group, every client once, ids unique, and the audio was told
    /// the station that the registry shows.
    #[test]
    fn the_house_is_in_order_after_every_step(steps in prop::collection::vec(step(), 0..60)) {
        let mut registry = registry();
        let mut plays = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            // Sessions are never used twice.
            let step = match step {
                Step::Hello(session, id) => Step::Hello(session + 100 * number as u64, id),
                other => other,
            };
            for command in take(&mut registry, step).unwrap_or_default().commands {
                if let Command::MoveClient { session, station, .. } = command {
                    plays.insert(session, station);
                }
            }
            let mut ids = Vec::new();
            prop_assert!(registry.table.is_sound());
            for group in registry.groups() {
                ids.push(group.id.clone());
                for client in registry.members(&group.id) {
                    ids.push(client.id.clone());
                    prop_assert!(client.volume <= 100);
                    if let Some(session) = client.session {
                        let station = registry.station(&group.station).unwrap().0;
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

#[test]
fn a_client_that_plays_one_channel_is_answered_by_us_and_keeps_it() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "b"));
    let effects = registry.set_map("a", ChannelMap::Left).unwrap();
    let moved = |station, map| Command::MoveClient { session: SessionId(1), station, map };
    assert!(effects.save && effects.commands.contains(&moved(1, ChannelMap::Left)));
    assert_eq!(effects.notices, [Notice::ChannelMap("a".to_owned())]);
    assert_eq!(registry.maps(), [(1, ChannelMap::Left)]);
    let asks = ["a", "b"].map(|id| registry.greeting_of(id).map(|greeting| greeting.station));
    assert_eq!(asks, [Some(Greeting::ASK), Some(1)]);
    let again = registry.set_map("a", ChannelMap::Left).unwrap();
    assert!(!again.commands.contains(&moved(1, ChannelMap::Left)), "it plays on");
    let saved = render(&registry);
    assert!(saved.contains(r#""channels":"left""#), "{saved}");
    drop(registry.apply(Event::Left { session: SessionId(1) }, Wall::default()));
    assert!(registry.maps().is_empty());
    assert!(hello(&mut registry, 1, "a").commands.contains(&moved(1, ChannelMap::Left)));
    let group = group_of(&registry, "a");
    let effects = registry.set_stream(&group, "kitchen").unwrap();
    assert!(effects.commands.contains(&moved(0, ChannelMap::Left)));
    let back = registry.set_map("a", ChannelMap::Stereo).unwrap();
    assert!(back.commands.contains(&moved(0, ChannelMap::Stereo)));
    assert_eq!(registry.set_map("x", ChannelMap::Mono), Err(NotFound::Client));
}

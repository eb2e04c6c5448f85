use std::net::{IpAddr, Ipv4Addr};

use aulos_core::ChannelMap;
use proptest::prelude::*;

use super::store::{LoadOutcome, SavedState, load, save};
use aulos_blackbox::scratch::ScratchDir;

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
        AudioEvent::Hello {
            session: SessionId(session),
            peer: PEER,
            hello: hello.into(),
            greeting_sent: None,
        },
        WallTime::default(),
    )
}

fn group_of(registry: &Registry, id: &str) -> String {
    registry.client(id).unwrap().0.id.clone()
}

fn settings(volume: u8, muted: bool, latency_ms: i32, buffer_ms: u32) -> PlaybackSettings {
    PlaybackSettings { volume, muted, latency_ms, buffer_ms }
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
            SessionCommand::MoveClient { session, station: 1, map: ChannelMap::Stereo },
        ]
    );
    let gone = registry.apply(AudioEvent::Left { session }, WallTime { sec: 5, usec: 0 });
    assert_eq!(gone.notices, [Notice::Disconnected("a".to_owned())]);
    assert_eq!(registry.client("a").unwrap().1.last_seen.sec, 5);
    assert_eq!(hello(&mut registry, 2, "a").notices, [Notice::Connected("a".to_owned())]);
}

#[test]
fn repeated_audio_reports_are_dropped_and_late_ones_corrected() {
    let mut registry = registry();
    let told = |answered| AudioEvent::Hello {
        session: SessionId(1),
        peer: PEER,
        hello: Box::new(Hello { id: "a".to_owned(), instance: 1, ..Hello::default() }),
        greeting_sent: answered,
    };
    let newcomer = registry.newcomer_greeting().unwrap();
    assert_eq!(newcomer.station, 1);
    let first = registry.apply(told(Some(newcomer)), WallTime::default());
    assert_eq!(first.commands, []);
    drop(registry.apply(AudioEvent::Left { session: SessionId(1) }, WallTime::default()));
    drop(registry.set_volume("a", Some(20), None).unwrap());
    let session = SessionId(1);
    let late = registry.apply(told(Some(newcomer)), WallTime::default());
    let settings = settings(20, false, 0, 1_000);
    assert_eq!(late.commands, [SessionCommand::SetSettings { session, settings }]);
    assert_eq!(registry.greeting_of("a"), Some(Greeting { settings, station: 1 }));
}

#[test]
fn a_returning_client_replaces_its_dead_session() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    let again = hello(&mut registry, 2, "a");
    let session = SessionId(1);
    assert_eq!(again.commands[0], SessionCommand::Kick { session, cause: KickReason::Replaced });
    assert_eq!(
        registry.apply(AudioEvent::Left { session }, WallTime::default()),
        Effects::default()
    );
    assert_eq!(registry.client("a").unwrap().1.session, Some(SessionId(2)));
}

#[test]
fn instances_of_one_machine_are_clients_of_their_own() {
    let mut registry = registry();
    for (session, instance) in [(1, 1), (2, 2)] {
        let hello = Hello { mac: "m".to_owned(), instance, ..Hello::default() };
        let session = SessionId(session);
        drop(registry.apply(
            AudioEvent::Hello { session, peer: PEER, hello: hello.into(), greeting_sent: None },
            WallTime::default(),
        ));
    }
    assert!(registry.client("m").is_some() && registry.client("m#2").is_some());
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
            SessionCommand::MoveClient { session, station: 0, map: ChannelMap::Stereo },
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
    assert!(joined.commands.contains(&SessionCommand::MoveClient {
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
fn the_client_absent_longest_is_evicted_and_a_full_registry_is_reported() {
    let mut registry = registry();
    for number in 0..MAX_CLIENTS as u64 {
        drop(hello(&mut registry, number, &format!("c{number}")));
    }
    let session = SessionId(99_999);
    let refused = hello(&mut registry, session.0, "late");
    assert_eq!(refused.commands, [SessionCommand::Kick { session, cause: KickReason::Full }]);
    drop(registry.apply(AudioEvent::Left { session: SessionId(17) }, WallTime { sec: 1, usec: 0 }));
    drop(registry.apply(AudioEvent::Left { session: SessionId(3) }, WallTime { sec: 2, usec: 0 }));
    drop(hello(&mut registry, session.0, "late"));
    assert!(registry.client("c17").is_none() && registry.client("c3").is_some());
}

/// A client connects and disconnects.
fn visit(registry: &mut Registry, session: u64, id: &str) -> Effects {
    let came = hello(registry, session, id);
    drop(registry.apply(AudioEvent::Left { session: SessionId(session) }, WallTime::default()));
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
        let info =
            AudioEvent::ClientInfo { session: SessionId(session), volume: Some(9), muted: None };
        drop(registry.apply(info, WallTime::default()));
        drop(registry.apply(AudioEvent::Left { session: SessionId(session) }, WallTime::default()));
    }
    for id in real.into_iter().chain(["old stranger", "connected stranger"]) {
        assert!(registry.client(id).is_some(), "{id} is forgotten");
    }
    assert_eq!(registry.client("capped").unwrap().1.cap, 30);
    assert_eq!(registry.table.remembered(), MAX_CLIENTS);
    assert_eq!(registry.discarded().evicted, 112);
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
    let moved = SessionCommand::MoveClient { session, station: 1, map: ChannelMap::Stereo };
    assert!(late.commands.contains(&moved), "{late:?}");
    // It can be controlled, but is in no file and no preset.
    drop(registry.set_volume("late", Some(7), None).unwrap());
    assert_eq!(registry.client("late").unwrap().1.volume, 7);
    assert_eq!(render(&registry), before);
    assert_eq!(registry.save_preset("all"), Ok(()));
    assert_eq!(registry.presets()[0].client_count(), MAX_CLIENTS);
    drop(registry.apply(AudioEvent::Left { session }, WallTime::default()));
    assert!(registry.client("late").is_none() && registry.table.is_consistent());
    // Exactly this many at once.
    let served = (0..2_000).filter(|number| {
        let effects = hello(&mut registry, 100_000 + number, &format!("late {number}"));
        !matches!(effects.commands[..], [SessionCommand::Kick { cause: KickReason::Full, .. }])
    });
    assert_eq!(served.count(), MAX_TRANSIENT);
    assert_eq!(registry.discarded().transient, 1 + MAX_TRANSIENT as u64);
    assert!(registry.table.is_consistent());
    // A remembered client is always accepted.
    let back = hello(&mut registry, 200_000, "c17");
    assert_eq!(back.notices, [Notice::Connected("c17".to_owned())]);
}

/// Prints the processor time of an operation; other tests may run at the same time.
fn timed<T>(what: &str, act: impl FnOnce() -> T) -> T {
    use rustix::time::{ClockId, clock_gettime};
    let now = || clock_gettime(ClockId::ThreadCPUTime);
    let before = now();
    let done = act();
    let spent = now() - before;
    println!("{what}: {} ms of the processor", spent.tv_sec * 1_000 + spent.tv_nsec / 1_000_000);
    done
}

#[test]
fn presets_are_bounded_and_a_refused_one_costs_no_other() {
    let mut registry = registry();
    for number in 0..MAX_CLIENTS as u64 {
        drop(visit(&mut registry, number, &format!("00:11:22:33:44:{number:04x}")));
    }
    let saved =
        (0..MAX_PRESETS).take_while(|number| registry.save_preset(&number.to_string()).is_ok());
    let saved = saved.count();
    assert!((8..MAX_PRESETS).contains(&saved), "{saved}");
    assert_eq!(registry.save_preset("more"), Err(PresetError::Full));
    // Replacing an existing preset fits.
    timed("a preset of 8,192 clients is made", || registry.save_preset("3")).unwrap();
    assert_eq!(registry.presets().len(), saved);
    let text = serde_json::to_string(registry.presets()[0].as_ref()).unwrap();
    assert!(text.len() * saved <= MAX_PRESETS_BYTES && text.len() * 3 <= MAX_PRESET_BYTES);
    // Names of maximum length make a single preset too large.
    let ids: Vec<String> = registry.ids().map(str::to_owned).collect();
    let long = "\"".repeat(MAX_TEXT);
    for id in &ids {
        let group = group_of(&registry, id);
        drop(registry.set_group_name(&group, &long).unwrap());
    }
    assert_eq!(registry.save_preset("3"), Err(PresetError::TooLarge));
    assert_eq!(registry.presets().len(), saved);
    // One group with all clients, and a preset in which each has its own.
    let group = group_of(&registry, &ids[0]);
    drop(registry.set_clients(&group, &ids).unwrap());
    assert_eq!(registry.groups().count(), 1);
    drop(
        timed("a preset of 8,192 clients is applied", || registry.apply_preset("3", true)).unwrap(),
    );
    assert_eq!(registry.groups().count(), MAX_CLIENTS);
    let snapshot =
        timed("a state of 8,192 clients is taken", || store::Snapshot::new(&registry, &[], &[]));
    assert!(snapshot.into_text().len() > MAX_CLIENTS * 100);
    for number in 0..saved {
        registry.delete_preset(&number.to_string()).unwrap();
    }
    assert!(!registry.presets.contains_client(&ids[0]));
}

/// A client whose texts have the maximum length and consist of characters that are escaped.
fn visit_of_the_longest(registry: &mut Registry, number: u64) -> String {
    let long = "\"".repeat(MAX_TEXT);
    let said = Hello {
        id: format!("{number:04}{}", &long[4..]),
        instance: u32::MAX,
        mac: long.clone(),
        host_name: long.clone(),
        client_name: long.clone(),
        version: long.clone(),
        os: long.clone(),
        arch: long.clone(),
        protocol: u32::MAX,
        ..Hello::default()
    };
    let id = format!("{}#{}", said.id, said.instance);
    let (session, peer) = (SessionId(number), IpAddr::from([0xffff; 8]));
    let event = AudioEvent::Hello { session, peer, hello: said.into(), greeting_sent: None };
    let now = WallTime { sec: i64::MIN, usec: u32::MAX };
    drop(registry.apply(event, now));
    drop(registry.apply(AudioEvent::Left { session }, now));
    drop(registry.set_client_name(&id, &long).unwrap());
    drop(registry.set_latency(&id, -10_000).unwrap());
    drop(registry.set_map(&id, ChannelMap::Stereo).unwrap());
    drop(registry.set_cap(&id, 99).unwrap());
    id
}

#[test]
fn the_largest_state_that_can_be_accepted_is_read_back() {
    let dir = ScratchDir::new("largest").unwrap();
    let (mut registry, mut back) = (registry(), registry());
    let long = "\"".repeat(MAX_TEXT);
    // As many clients in one group as fit into a preset.
    let ids: Vec<String> =
        (0..6_500).map(|number| visit_of_the_longest(&mut registry, number)).collect();
    let group = group_of(&registry, &ids[0]);
    drop(registry.set_clients(&group, &ids).unwrap());
    let mut name = (0..).map(|number| format!("{number:04}{}", &long[4..]));
    while registry.save_preset(&name.next().unwrap()).is_ok() {}
    // Smaller presets use up the remaining room.
    for count in [1_000, 100, 10] {
        drop(registry.set_clients(&group, &ids[..1]).unwrap());
        let mut small = registry.clone();
        for id in &ids[count..] {
            drop(small.delete_client(id).unwrap());
        }
        while small.save_preset(&name.next().unwrap()).is_ok() {}
        registry.presets = small.presets;
    }
    assert!(registry.presets().len() >= 4);
    for number in 6_500..MAX_CLIENTS as u64 {
        visit_of_the_longest(&mut registry, number);
    }
    let groups: Vec<String> = registry.groups().map(|group| group.id.clone()).collect();
    assert_eq!(groups.len(), MAX_CLIENTS);
    for group in groups {
        drop(registry.set_group_name(&group, &long).unwrap());
    }
    let uri = "\u{1}".repeat(aulos_proto::uri::MAX_URI);
    let streams = vec![uri; crate::control::MAX_ADDED];
    let sound = serde_json::json!("s".repeat(store::MAX_SOUND_BYTES - 2));
    let sounds = vec![sound; aulos_config::limits::MAX_STATIONS + crate::control::MAX_ADDED];
    let text = store::render(&registry, &streams, &sounds);
    println!("the largest state has {} bytes of {}", text.len(), store::MAX_BYTES);
    // Not far below either: the limit is computed from what can occur.
    assert!(text.len() <= store::MAX_BYTES && text.len() > store::MAX_BYTES / 4 * 3);
    save(&dir, &text).unwrap();
    let LoadOutcome::Saved(saved) = load(&dir).unwrap() else { panic!() };
    assert_eq!((saved.streams.len(), saved.sounds.len()), (streams.len(), sounds.len()));
    assert_eq!(back.restore(saved.groups), 0);
    assert_eq!(back.restore_presets(saved.presets), Vec::<String>::new());
    assert_eq!(back.presets(), registry.presets());
    assert!(store::render(&back, &saved.streams, &saved.sounds) == text, "it comes back another");
}

#[test]
fn the_longest_sound_settings_fit_the_state_file() {
    let spec = aulos_core::SampleSpec::DEFAULT;
    let band = serde_json::json!({
        "type": "peaking", "hz": 1_234.567_890_123_456_7, "gain_db": -11.123_456_789_012_345,
        "q": 1.234_567_890_123_456_7,
    });
    let mut sound = aulos_config::SoundSettings::default();
    sound.set_equalizer(&serde_json::json!(vec![band; 16]), spec).unwrap();
    sound.set_normalize(&serde_json::json!("podcast"), spec).unwrap();
    // Current settings, the configuration's settings, and the station's name.
    let size = 2 * sound.json().to_string().len() + 2 * aulos_config::limits::MAX_NAME + 64;
    assert!(size > 2 * 16 * 50 && size <= store::MAX_SOUND_BYTES, "{size}");
}

#[test]
fn a_file_beyond_the_limit_is_named_so_and_no_save_replaces_it() {
    let (dir, mut registry) = (ScratchDir::new("too-large").unwrap(), registry());
    drop(hello(&mut registry, 1, "a"));
    save(&dir, &render(&registry)).unwrap();
    drop(hello(&mut registry, 2, "b"));
    save(&dir, &render(&registry)).unwrap();
    // A sparse file, so that it takes no space on the disk.
    let large = store::MAX_BYTES as u64 + 1;
    let make =
        || std::fs::File::create(dir.join(store::STATE_FILE)).unwrap().set_len(large).unwrap();
    for name in ["server.json.too-large", "server.json.too-large.2"] {
        make();
        let loaded = load(&dir).unwrap();
        let LoadOutcome::Unusable { why, aside, previous: Some(previous) } = loaded else {
            panic!()
        };
        assert!(why.to_string().contains(&store::MAX_BYTES.to_string()), "{why}");
        assert_eq!((aside.as_str(), previous.groups.len()), (name, 1));
        for _ in 0..2 {
            save(&dir, &render(&registry)).unwrap();
            registry.set_volume("a", Some(1), None).map(drop).unwrap();
        }
        assert_eq!(std::fs::metadata(dir.join(name)).unwrap().len(), large);
        // The previous file for the next round.
        std::fs::write(dir.join("server.json.previous"), "{\"Groups\":[{}]}").unwrap();
    }
}

#[test]
fn a_state_that_could_not_be_read_back_is_not_written() {
    let dir = ScratchDir::new("unreadable").unwrap();
    save(&dir, "{}").unwrap();
    let error = save(&dir, &" ".repeat(store::MAX_BYTES + 1)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    assert!(error.to_string().contains(&store::MAX_BYTES.to_string()), "{error}");
    assert_eq!(std::fs::read_to_string(dir.join(store::STATE_FILE)).unwrap(), "{}");
}

#[test]
fn a_file_that_the_disk_does_not_give_is_put_aside_and_not_replaced() {
    let (dir, registry) = (ScratchDir::new("unreadable-file").unwrap(), registry());
    // A folder cannot be read as a file, not even by root.
    std::fs::create_dir(dir.join(store::STATE_FILE)).unwrap();
    let LoadOutcome::Unusable { aside, previous: None, .. } = load(&dir).unwrap() else { panic!() };
    save(&dir, &render(&registry)).unwrap();
    assert!(dir.join(aside).is_dir() && dir.join(store::STATE_FILE).is_file());
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let mut registry = registry();
    drop(hello(&mut registry, 1, "a"));
    drop(registry.set_client_name("a", &"ä\n".repeat(1_000)).unwrap());
    assert_eq!(registry.client("a").unwrap().1.name.len(), MAX_TEXT);
}

#[test]
fn saved_state_round_trips() {
    let dir = ScratchDir::new("store").unwrap();
    let (mut registry, mut back) = (registry(), registry());
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "b"));
    drop(registry.set_client_name("a", "Küche").unwrap());
    let group = group_of(&registry, "a");
    drop(registry.set_clients(&group, &["a".into(), "b".into()]).unwrap());
    save(&dir, &render(&registry)).unwrap();

    let LoadOutcome::Saved(SavedState { groups, .. }) = load(&dir).unwrap() else { panic!() };
    assert_eq!(back.restore(groups), 0);
    assert_eq!(render(&back).replace("true", "false"), render(&registry).replace("true", "false"));
    assert_eq!(hello(&mut back, 9, "a").notices, [Notice::Connected("a".to_owned())]);
}

#[test]
fn a_broken_file_is_put_aside_and_a_missing_one_is_nothing() {
    let dir = ScratchDir::new("broken").unwrap();
    assert!(matches!(load(&dir).unwrap(), LoadOutcome::Nothing));
    std::fs::write(dir.join(store::STATE_FILE), "{\"Groups\":").unwrap();
    assert!(matches!(load(&dir).unwrap(), LoadOutcome::Broken(None)));
    assert!(dir.join("server.json.broken").exists());
}

#[test]
fn snapservers_own_file_is_read() {
    let dir = ScratchDir::new("theirs").unwrap();
    std::fs::copy("tests/golden/snapserver_server.json", dir.join(store::STATE_FILE)).unwrap();
    let LoadOutcome::Saved(SavedState { groups, .. }) = load(&dir).unwrap() else { panic!() };
    let mut registry = registry();
    assert_eq!(registry.restore(groups), 0);
    let group = registry.groups().next().unwrap();
    let client = registry.members(&group.id).next().unwrap();
    assert_eq!((client.volume, client.latency_ms, client.muted), (74, 50, true));
    assert_eq!(group.station, "default");
}

#[test]
fn the_backup_of_a_corrupt_state_file_is_loaded() {
    let (dir, mut registry) = (ScratchDir::new("previous").unwrap(), registry());
    drop(hello(&mut registry, 1, "a"));
    save(&dir, &render(&registry)).unwrap();
    drop(hello(&mut registry, 2, "b"));
    save(&dir, &render(&registry)).unwrap();
    std::fs::write(dir.join(store::STATE_FILE), "").unwrap();
    let LoadOutcome::Broken(Some(saved)) = load(&dir).unwrap() else { panic!() };
    assert_eq!(saved.groups.len(), 1);
    // The same happens at the next start if nothing has changed; a save then keeps the file.
    let LoadOutcome::Saved(again) = load(&dir).unwrap() else { panic!() };
    assert_eq!(again.groups, saved.groups);
    save(&dir, &render(&registry)).unwrap();
    std::fs::write(dir.join(store::STATE_FILE), "{").unwrap();
    let LoadOutcome::Broken(Some(before)) = load(&dir).unwrap() else { panic!() };
    assert_eq!(before.groups, saved.groups);
}

#[test]
fn what_cannot_be_written_leaves_the_file_as_it_is_and_nothing_behind() {
    let (dir, registry) = (ScratchDir::new("unwritable").unwrap(), registry());
    save(&dir, &render(&registry)).unwrap();
    // A folder in place of the new file cannot be written, not even by root.
    std::fs::create_dir(dir.join("server.json.new")).unwrap();
    save(&dir, "{}").unwrap_err();
    std::fs::remove_dir(dir.join("server.json.new")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join(store::STATE_FILE)).unwrap(), render(&registry));
    save(&dir, "{}").unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["server.json", "server.json.previous"]);
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
    let volumes = |registry: &Registry| ["a", "b"].map(|id| registry.client(id).unwrap().1.volume);
    assert_eq!(volumes(&registry), [40, 40]);
    drop(registry.change_volume("b", VolumeChange::By(20)).unwrap());
    assert_eq!(registry.group_volume(&group), Some(50));
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
    let info = AudioEvent::ClientInfo { session, volume: Some(99), muted: None };
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
    let (own, b) = registry.client("b").unwrap();
    assert_eq!(
        (own.station.as_str(), b.volume, registry.members(&own.id).count()),
        ("kitchen", 20, 2)
    );
    assert_eq!(registry.groups().count(), 1);
    let back = presets::preset_from(&serde_json::json!(registry.presets()[0].as_ref()));
    assert_eq!(back, *registry.presets()[0]);
    assert_eq!(registry.apply_preset("nope", true), Err(NotFound::Preset));
    registry.delete_preset("party").unwrap();
    assert_eq!(registry.delete_preset("party"), Err(NotFound::Preset));
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
            SessionCommand::MoveClient { session, station: 1, map: ChannelMap::Stereo },
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
            // The wall clock may step arbitrarily.
            let wall = WallTime { sec: (session.cast_signed() * 7_919) % 101 - 50, usec: 0 };
            Some(registry.apply(AudioEvent::Left { session: SessionId(session) }, wall))
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
            let event = AudioEvent::ClientInfo { session: SessionId(session), volume, muted: None };
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
    let moved = |station, map| SessionCommand::MoveClient { session: SessionId(1), station, map };
    assert!(effects.save && effects.commands.contains(&moved(1, ChannelMap::Left)));
    assert_eq!(effects.notices, [Notice::ChannelMap("a".to_owned())]);
    assert_eq!(registry.active_maps(), [(1, ChannelMap::Left)]);
    let asks = ["a", "b"].map(|id| registry.greeting_of(id).map(|greeting| greeting.station));
    assert_eq!(asks, [Some(Greeting::DEFER_TO_CONTROL), Some(1)]);
    let again = registry.set_map("a", ChannelMap::Left).unwrap();
    assert!(!again.commands.contains(&moved(1, ChannelMap::Left)), "it plays on");
    let saved = render(&registry);
    assert!(saved.contains(r#""channels":"left""#), "{saved}");
    drop(registry.apply(AudioEvent::Left { session: SessionId(1) }, WallTime::default()));
    assert!(registry.active_maps().is_empty());
    assert!(hello(&mut registry, 1, "a").commands.contains(&moved(1, ChannelMap::Left)));
    let group = group_of(&registry, "a");
    let effects = registry.set_stream(&group, "kitchen").unwrap();
    assert!(effects.commands.contains(&moved(0, ChannelMap::Left)));
    let back = registry.set_map("a", ChannelMap::Stereo).unwrap();
    assert!(back.commands.contains(&moved(0, ChannelMap::Stereo)));
    assert_eq!(registry.set_map("x", ChannelMap::Mono), Err(NotFound::Client));
}

#[test]
fn saved_clients_beyond_the_limit_are_dropped_and_counted() {
    let (mut registry, mut more, dir) = (registry(), registry(), ScratchDir::new("many").unwrap());
    for number in 0..MAX_CLIENTS as u64 {
        drop(visit(&mut registry, number, &format!("c{number}")));
    }
    for number in 0..7 {
        drop(visit(&mut more, number, &format!("d{number}")));
    }
    let saved = |registry: &Registry| {
        save(&dir, &render(registry)).unwrap();
        let LoadOutcome::Saved(SavedState { groups, .. }) = load(&dir).unwrap() else { panic!() };
        groups
    };
    let all = [saved(&registry), saved(&more)].concat();
    let mut back = self::registry();
    assert_eq!(back.restore(all.clone()), 7);
    assert_eq!(back.table.remembered(), MAX_CLIENTS);
    // Every client is now in it twice; only the same seven are lost.
    assert_eq!(back.restore(all), 7);
    assert!(back.table.is_consistent());
}

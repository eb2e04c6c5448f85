//! Presets and the saved state: their limits, and what comes back.

use std::sync::Arc;

use aulos_core::Db;
use aulos_dsp::equalizer::{EqualizerBand, FilterType, MAX_BANDS};
use aulos_dsp::sound::{ChannelChain, Headroom, SoundChain};

use super::super::store::{LoadOutcome, MAX_ADDED, SavedState, load, save};
use super::*;

/// Prints the processor time of an operation; other tests may run at the same time.
fn timed<T>(what: &str, act: impl FnOnce() -> T) -> T {
    use rustix::time::{ClockId, clock_gettime};
    let now = || clock_gettime(ClockId::ThreadCPUTime);
    let before = now();
    let done = act();
    let spent = now() - before;
    println!("{what}: {} us of the processor", spent.tv_sec * 1_000_000 + spent.tv_nsec / 1_000);
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
    assert_eq!(registry.presets.list.len(), saved);
    let text = serde_json::to_string(registry.presets.list[0].as_ref()).unwrap();
    assert!(text.len() * saved <= MAX_PRESETS_BYTES && text.len() * 3 <= MAX_PRESET_BYTES);
    // Names of maximum length make a single preset too large.
    let ids: Vec<String> = registry.table.ids().map(str::to_owned).collect();
    let long = "\"".repeat(MAX_TEXT);
    for id in &ids {
        let group = group_of(&registry, id);
        drop(registry.set_group_name(&group, &long).unwrap());
    }
    assert_eq!(registry.save_preset("3"), Err(PresetError::TooLarge));
    assert_eq!(registry.presets.list.len(), saved);
    // One group with all clients, and a preset in which each has its own.
    let group = group_of(&registry, &ids[0]);
    drop(registry.set_clients(&group, &ids).unwrap());
    assert_eq!(registry.table.groups().count(), 1);
    drop(
        timed("a preset of 8,192 clients is applied", || registry.apply_preset("3", true)).unwrap(),
    );
    assert_eq!(registry.table.groups().count(), MAX_CLIENTS);
    let snapshot = timed("a state of 8,192 clients is taken", || {
        store::Snapshot::new(&registry, vec![], vec![])
    });
    let text = timed("its text", || snapshot.into_text());
    assert!(text.len() > MAX_CLIENTS * 100);
    for number in 0..saved {
        registry.presets.delete(&number.to_string()).unwrap();
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
        protocol_version: u32::MAX,
        ..hello_of("")
    };
    let id = format!("{}#{}", said.id, said.instance);
    let (session, peer) = (SessionId(number), IpAddr::from([0xffff; 8]));
    let event = arrival(session, peer, said);
    let now = WallTime { sec: i64::MIN, usec: u32::MAX };
    drop(registry.apply(event, now));
    drop(registry.apply(departure(session), now));
    drop(registry.set_client_name(&id, &long).unwrap());
    drop(registry.set_latency(&id, -10_000).unwrap());
    drop(registry.set_map(&id, ChannelMap::Stereo).unwrap());
    drop(registry.set_cap(&id, 99).unwrap());
    id
}

/// The texts of a Hello have a limit in sum, so that the status of all clients does.
#[test]
fn what_a_client_reports_of_itself_is_short_in_json() {
    let mut registry = registry();
    let id = visit_of_the_longest(&mut registry, 1);
    let client = registry.table.client(&id).unwrap().1;
    assert_eq!(client.mac, "\"".repeat(128));
    assert!([&client.host_name, &client.os, &client.version].iter().all(|text| text.is_empty()));
    let usual = Hello {
        id: "b8:27:eb:00:00:01".to_owned(),
        mac: "b8:27:eb:00:00:01".to_owned(),
        host_name: "küche\u{7}".to_owned(),
        client_name: "Snapclient".to_owned(),
        version: "0.31.0".to_owned(),
        os: "Raspbian GNU/Linux 12 (bookworm)".to_owned(),
        arch: "aarch64".to_owned(),
        ..hello_of("")
    };
    let (session, peer) = (SessionId(2), IpAddr::from([0xffff; 8]));
    let event = arrival(session, peer, usual);
    drop(registry.apply(event, WallTime::default()));
    let client = registry.table.with_session(session).unwrap();
    assert_eq!((&*client.host_name, &*client.arch), ("küche", "aarch64"));
    assert_eq!(client.os, "Raspbian GNU/Linux 12 (bookworm)");
}

/// A chain whose numbers have as many digits as any.
fn longest_chain() -> SoundChain {
    let odd = |most: f64| -most / 3.000_000_1;
    let band = EqualizerBand {
        filter_type: FilterType::HighShelf,
        hz: 20_000.0 / 3.000_000_1,
        gain: Db::new(odd(24.0)),
        q: 19.0 / 3.000_000_1,
    };
    let side = |ns| ChannelChain {
        gain: Db::new(odd(24.0)),
        delay: Span::from_nanos(ns),
        bands: vec![band; MAX_BANDS],
    };
    SoundChain {
        preamp: Some(Db::new(odd(40.0))),
        headroom: Headroom::Limiter,
        map: ChannelMap::Stereo,
        left: side(33_333_333),
        right: side(77_777_777),
    }
}

#[test]
fn the_largest_state_that_can_be_accepted_is_read_back() {
    let dir = aulos_blackbox::scratch::ScratchDir::new("largest").unwrap();
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
    assert!(registry.presets.list.len() >= 4);
    for number in 6_500..MAX_CLIENTS as u64 {
        visit_of_the_longest(&mut registry, number);
    }
    let longest = Arc::new(longest_chain());
    let written = aulos_config::client_sound::chain_json(&longest).to_string().len();
    assert!(written <= store::MAX_CHAIN_BYTES, "{written} bytes");
    for id in &ids[..MAX_CLIENT_SOUNDS] {
        drop(set_sound(&mut registry, id, Some(Arc::clone(&longest)), 1).unwrap());
    }
    let one_more = set_sound(&mut registry, &ids[MAX_CLIENT_SOUNDS], Some(longest), 1);
    assert_eq!(one_more, Err(SoundError::TooManyClients));
    let groups: Vec<String> = registry.table.groups().map(|group| group.id.clone()).collect();
    assert_eq!(groups.len(), MAX_CLIENTS);
    for group in groups {
        drop(registry.set_group_name(&group, &long).unwrap());
    }
    let uri = "\u{1}".repeat(aulos_proto::uri::MAX_URI);
    let streams = vec![uri; MAX_ADDED];
    let around = serde_json::json!({ "station": "", "instead_of": {} }).to_string().len();
    let name = "s".repeat(store::MAX_SOUND_BYTES - around);
    let sound = serde_json::json!({ "station": name, "instead_of": {} });
    let sounds = vec![sound; aulos_config::limits::MAX_STATIONS + MAX_ADDED];
    let text = store::Snapshot::new(&registry, streams.clone(), sounds.clone()).into_text();
    println!("the largest state has {} bytes of {}", text.len(), store::MAX_BYTES);
    // Not far below either: the limit is computed from what can occur.
    assert!(text.len() <= store::MAX_BYTES && text.len() > store::MAX_BYTES / 4 * 3);
    save(&dir, &text).unwrap();
    let LoadOutcome::Saved(saved) = load(&dir).unwrap() else { panic!() };
    assert_eq!((saved.streams.len(), saved.sounds.len()), (streams.len(), sounds.len()));
    assert_eq!(back.restore(saved.groups), 0);
    assert_eq!(back.presets.restore(saved.presets), Vec::<String>::new());
    assert_eq!(back.presets.list, registry.presets.list);
    let again = store::Snapshot::new(&back, saved.streams, saved.sounds).into_text();
    assert!(again == text, "it comes back another");
}

#[test]
fn the_longest_sound_settings_fit_the_state_file() {
    let spec = aulos_core::SampleSpec::DEFAULT;
    let band = serde_json::json!({
        "type": "peaking", "hz": 1_234.567_890_123_456_7, "gain_db": -11.123_456_789_012_345,
        "q": 1.234_567_890_123_456_7,
    });
    let mut sound = aulos_config::ProcessingSettings::default();
    sound.set_equalizer(&serde_json::json!(vec![band; 16]), spec).unwrap();
    sound.set_normalize(&serde_json::json!("podcast"), spec).unwrap();
    // Current settings, the configuration's settings, and the station's name.
    let size = 2 * sound.json().to_string().len() + 2 * aulos_config::limits::MAX_NAME + 64;
    assert!(size > 2 * 16 * 50 && size <= store::MAX_SOUND_BYTES, "{size}");
}

#[test]
fn a_file_beyond_the_limit_is_named_so_and_no_save_replaces_it() {
    let (dir, mut registry) =
        (aulos_blackbox::scratch::ScratchDir::new("too-large").unwrap(), registry());
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
        std::fs::write(dir.join("server.json.previous"), "{\"Groups\":[{\"id\":\"g\"}]}").unwrap();
    }
}

#[test]
fn a_state_that_could_not_be_read_back_is_not_written() {
    let dir = aulos_blackbox::scratch::ScratchDir::new("unreadable").unwrap();
    save(&dir, "{}").unwrap();
    let error = save(&dir, &" ".repeat(store::MAX_BYTES + 1)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    assert!(error.to_string().contains(&store::MAX_BYTES.to_string()), "{error}");
    assert_eq!(std::fs::read_to_string(dir.join(store::STATE_FILE)).unwrap(), "{}");
}

#[test]
fn a_file_that_the_disk_does_not_give_is_put_aside_and_not_replaced() {
    let (dir, registry) =
        (aulos_blackbox::scratch::ScratchDir::new("unreadable-file").unwrap(), registry());
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
    assert_eq!(registry.table.client("a").unwrap().1.name.len(), MAX_TEXT);
}

#[test]
fn saved_state_round_trips() {
    let dir = aulos_blackbox::scratch::ScratchDir::new("store").unwrap();
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
    let dir = aulos_blackbox::scratch::ScratchDir::new("broken").unwrap();
    assert!(matches!(load(&dir).unwrap(), LoadOutcome::Nothing));
    std::fs::write(dir.join(store::STATE_FILE), "{\"Groups\":").unwrap();
    assert!(matches!(load(&dir).unwrap(), LoadOutcome::Broken { previous: None, .. }));
    assert!(dir.join("server.json.broken").exists());
}

#[test]
fn a_state_with_one_part_of_another_shape_is_put_aside_and_the_previous_one_taken() {
    let (dir, mut registry) =
        (aulos_blackbox::scratch::ScratchDir::new("shape").unwrap(), registry());
    drop(hello(&mut registry, 1, "a"));
    drop(hello(&mut registry, 2, "b"));
    registry.save_preset("night").unwrap();
    let sound = serde_json::json!({ "station": "default", "instead_of": {} });
    let streams = vec!["tcp://127.0.0.1:4953?name=x".to_owned()];
    let good = store::Snapshot::new(&registry, streams, vec![sound]).into_text();
    let whole: serde_json::Value = serde_json::from_str(&good).unwrap();
    let other = |value: &serde_json::Value| match value {
        serde_json::Value::Bool(_) => vec![1.into(), "true".into()],
        serde_json::Value::Number(_) => vec![true.into(), "1".into(), (-0.5).into()],
        serde_json::Value::String(_) => vec![1.into(), serde_json::json!(["a"])],
        serde_json::Value::Array(_) => vec![serde_json::json!({}), "".into(), 1.into()],
        _ => vec![serde_json::json!([]), "".into(), 1.into(), false.into()],
    };
    let ignored = ["/ConfigVersion", "/connected"];
    let mut tried = 0;
    for path in pointers(&whole, "") {
        if ignored.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        for wrong in other(whole.pointer(&path).unwrap()) {
            let mut damaged = whole.clone();
            *damaged.pointer_mut(&path).unwrap() = wrong.clone();
            std::fs::write(dir.join(store::STATE_FILE), damaged.to_string()).unwrap();
            std::fs::write(dir.join("server.json.previous"), &good).unwrap();
            let loaded = load(&dir).unwrap();
            let LoadOutcome::Broken { previous: Some(previous), .. } = loaded else {
                panic!("{path} = {wrong}: {loaded:?}")
            };
            assert_eq!((previous.groups.len(), previous.presets.len()), (2, 1));
            let kept = std::fs::read_to_string(dir.join("server.json.broken")).unwrap();
            assert_eq!(kept, damaged.to_string());
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
    // The case that was reported: the text of the reason names the place.
    std::fs::write(dir.join(store::STATE_FILE), "{\"Groups\":[{\"id\":1}]}").unwrap();
    let LoadOutcome::Broken { why, .. } = load(&dir).unwrap() else { panic!() };
    assert!(why.to_string().contains("expected a string at line 1"), "{why}");
}

/// The JSON pointers (RFC 6901) of all values below this one.
fn pointers(value: &serde_json::Value, path: &str) -> Vec<String> {
    let below: Vec<(String, &serde_json::Value)> = match value {
        serde_json::Value::Array(list) => {
            list.iter().enumerate().map(|(at, one)| (format!("{path}/{at}"), one)).collect()
        }
        serde_json::Value::Object(map) => {
            map.iter().map(|(key, one)| (format!("{path}/{key}"), one)).collect()
        }
        _ => Vec::new(),
    };
    let deeper = below.iter().flat_map(|(path, one)| pointers(one, path));
    below.iter().map(|(path, _)| path.clone()).chain(deeper).collect()
}

#[test]
fn snapservers_own_file_is_read() {
    let dir = aulos_blackbox::scratch::ScratchDir::new("theirs").unwrap();
    std::fs::copy("tests/golden/snapserver_server.json", dir.join(store::STATE_FILE)).unwrap();
    let LoadOutcome::Saved(SavedState { groups, .. }) = load(&dir).unwrap() else { panic!() };
    let mut registry = registry();
    assert_eq!(registry.restore(groups), 0);
    let group = registry.table.groups().next().unwrap();
    let client = registry.table.members(&group.id).next().unwrap();
    assert_eq!((client.volume, client.latency_ms, client.muted), (74, 50, true));
    assert_eq!(group.station, "default");
}

#[test]
fn the_backup_of_a_corrupt_state_file_is_loaded() {
    let (dir, mut registry) =
        (aulos_blackbox::scratch::ScratchDir::new("previous").unwrap(), registry());
    drop(hello(&mut registry, 1, "a"));
    save(&dir, &render(&registry)).unwrap();
    drop(hello(&mut registry, 2, "b"));
    save(&dir, &render(&registry)).unwrap();
    std::fs::write(dir.join(store::STATE_FILE), "").unwrap();
    let LoadOutcome::Broken { previous: Some(saved), .. } = load(&dir).unwrap() else { panic!() };
    assert_eq!(saved.groups.len(), 1);
    // The same happens at the next start if nothing has changed; a save then keeps the file.
    let LoadOutcome::Saved(again) = load(&dir).unwrap() else { panic!() };
    assert_eq!(again.groups, saved.groups);
    save(&dir, &render(&registry)).unwrap();
    std::fs::write(dir.join(store::STATE_FILE), "{").unwrap();
    let LoadOutcome::Broken { previous: Some(before), .. } = load(&dir).unwrap() else { panic!() };
    assert_eq!(before.groups, saved.groups);
}

#[test]
fn what_cannot_be_written_leaves_the_file_as_it_is_and_nothing_behind() {
    let (dir, registry) =
        (aulos_blackbox::scratch::ScratchDir::new("unwritable").unwrap(), registry());
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
fn saved_clients_beyond_the_limit_are_dropped_and_counted() {
    let (mut registry, mut more, dir) =
        (registry(), registry(), aulos_blackbox::scratch::ScratchDir::new("many").unwrap());
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

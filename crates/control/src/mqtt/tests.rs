//! The bridge in virtual time.

mod home_assistant;

use super::*;

fn bridge() -> MqttBridge {
    let topics = MqttTopics::new("aulos", "box", Some("homeassistant"));
    MqttBridge::new(topics, "box", 7, Instant::ZERO)
}

fn at(ms: i64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

fn station(name: &str) -> StationFacts {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    StationFacts {
        shape: StationShape {
            name: name.to_owned(),
            sources: texts(&["studio", "loop"]),
            has_recorder: true,
            has_playlist: true,
            has_clients: true,
        },
        loudness: [Some(-23.04), Some(-22.96), None, Some(5.0), Some(-1.25), Some(0.0)],
        source: Some("studio".to_owned()),
        title: "Song".to_owned(),
        equalizer: json!([{ "type": "peak", "hz": 100 }]),
        ..StationFacts::default()
    }
}

fn facts() -> ServerFacts {
    let client = ClientFacts {
        id: "02:42".to_owned(),
        name: "Kitchen".to_owned(),
        group: "g1".to_owned(),
        station: "hall".to_owned(),
        volume: 40,
        is_connected: true,
        ..ClientFacts::default()
    };
    ServerFacts {
        connected_clients: 1,
        uptime_s: 400,
        presets: vec!["Night".to_owned()],
        stations: vec![station("hall"), station("Café")],
        clients: vec![client],
        ..ServerFacts::default()
    }
}

fn published(bridge: &mut MqttBridge) -> Vec<MqttMessage> {
    std::iter::from_fn(|| bridge.poll_output()).take(10_000).collect()
}

fn connected(facts: &ServerFacts) -> MqttBridge {
    let mut bridge = bridge();
    bridge.handle_input(at(0), MqttInput::Connected);
    bridge.handle_input(at(0), MqttInput::Facts(facts));
    bridge
}

/// What a change publishes, as `TOPIC PAYLOAD` below the server's topic.
fn changes(bridge: &mut MqttBridge, ms: i64, facts: &ServerFacts) -> Vec<String> {
    bridge.handle_input(at(ms), MqttInput::Facts(facts));
    let short = |message: MqttMessage| {
        let topic = message.topic.strip_prefix("aulos/box/").unwrap_or(&message.topic).to_owned();
        format!("{topic} {}", message.payload)
    };
    published(bridge).into_iter().map(short).collect()
}

fn command(bridge: &mut MqttBridge, ms: i64, topic: &str, payload: &str) -> Option<MqttCall> {
    let topic = format!("aulos/box/{topic}");
    let payload = payload.as_bytes();
    let message = MqttInput::Message { topic: &topic, payload, is_retained: false };
    bridge.handle_input(at(ms), message);
    bridge.poll_call()
}

#[test]
fn everything_is_published_once_and_retained_and_descriptions_come_first() {
    let mut bridge = connected(&facts());
    let all = published(&mut bridge);
    let is_description = |message: &MqttMessage| message.topic.starts_with("homeassistant/");
    assert_eq!(all.iter().filter(|message| is_description(message)).count(), 1 + 2 + 1);
    assert!(all.iter().all(|message| message.is_retained && !message.payload.is_empty()));
    let mut topics: Vec<&str> = all.iter().map(|message| message.topic.as_str()).collect();
    topics.sort_unstable();
    let count = topics.len();
    topics.dedup();
    assert_eq!(topics.len(), count);
    assert!(changes(&mut bridge, 1_000, &facts()).is_empty());
    // After a new connection everything is published again.
    bridge.handle_input(at(2_000), MqttInput::Disconnected);
    assert!(changes(&mut bridge, 2_000, &facts()).is_empty());
    bridge.handle_input(at(3_000), MqttInput::Connected);
    let again = published(&mut bridge);
    assert_eq!(again.len(), count);
    assert!(again[..4].iter().all(is_description), "{:?}", again[4].topic);
}

#[test]
fn a_value_is_published_when_it_changes_by_more_than_its_last_digit() {
    let mut facts = facts();
    facts.clients.clear();
    facts.stations.truncate(1);
    let mut bridge = connected(&facts);
    let all = published(&mut bridge);
    let loudness = all.iter().find(|one| one.topic == "aulos/box/station/hall/loudness").unwrap();
    assert_eq!(
        loudness.payload,
        r#"{"gain":0.0,"integrated":null,"momentary":-23.0,"range":5.0,"short_term":-23.0,"true_peak":-1.3}"#
    );
    facts.stations[0].loudness[0] = Some(-22.92);
    assert_eq!(changes(&mut bridge, 1_000, &facts), [""; 0]);
    facts.stations[0].loudness[0] = Some(-22.8);
    let [message] = &changes(&mut bridge, 2_000, &facts)[..] else { panic!("one message") };
    assert!(message.contains(r#""momentary":-22.8"#), "{message}");
    // At most one a second, however fast it changes.
    let mut count = 0;
    for tick in 0_u8..100 {
        facts.stations[0].loudness[0] = Some(-20.0 - f64::from(tick % 7));
        count += changes(&mut bridge, 3_000 + 100 * i64::from(tick), &facts).len();
    }
    assert!((9..=10).contains(&count), "{count}");
    // One that stays is repeated before it expires after ten seconds.
    let mut times = Vec::new();
    for second in 14..34 {
        if !changes(&mut bridge, second * 1_000, &facts).is_empty() {
            times.push(second);
        }
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 5) && times.len() >= 3, "{times:?}");
    facts.stations[0].loudness = [None; 6];
    let message = changes(&mut bridge, 40_000, &facts).remove(0);
    assert!(message.contains(r#""momentary":null"#), "{message}");
}

#[test]
fn states_and_events_follow_what_happens() {
    let mut facts = facts();
    let mut bridge = connected(&facts);
    published(&mut bridge);
    let hall = &mut facts.stations[0];
    hall.source = Some("loop".to_owned());
    hall.selected = Some("loop".to_owned());
    (hall.is_silent, hall.is_on_fallback, hall.is_announcing) = (true, true, true);
    hall.recording = Some(95.0);
    hall.title = "x".repeat(400);
    hall.equalizer = json!([]);
    facts.clients[0].volume = 41;
    facts.clients[0].is_connected = false;
    let said = changes(&mut bridge, 100, &facts);
    for expected in [
        "station/hall/source loop",
        "station/hall/programme loop",
        "station/hall/silence ON",
        "station/hall/fallback ON",
        "station/hall/recording ON",
        "station/hall/recorded 1.5",
        "station/hall/equalizer OFF",
        "client/02_42_63f5f2b5/volume 41",
        r#"station/hall/event {"event_type":"silence_began"}"#,
        r#"station/hall/event {"event_type":"source_changed","from":"studio","to":"loop"}"#,
        r#"station/hall/event {"event_type":"record_began"}"#,
        r#"station/hall/event {"event_type":"announcement_began"}"#,
    ] {
        let client = expected.starts_with("client/");
        let is_it = |one: &String| match client {
            true => one.starts_with("client/02_42_") && one.ends_with("/volume 41"),
            false => one == expected,
        };
        assert!(said.iter().any(is_it), "{expected}: {said:#?}");
    }
    let title = said.iter().find(|one| one.starts_with("station/hall/title ")).unwrap();
    assert_eq!(title.len(), "station/hall/title ".len() + 255);
    facts.stations[0].title.clear();
    facts.stations[0].source = None;
    let said = changes(&mut bridge, 200, &facts);
    assert!(said.contains(&"station/hall/title None".to_owned()), "{said:?}");
    assert!(said.contains(&"station/hall/source None".to_owned()), "{said:?}");
}

#[test]
fn what_is_gone_is_removed_with_its_description() {
    let mut facts = facts();
    let mut bridge = connected(&facts);
    published(&mut bridge);
    facts.stations.pop();
    facts.clients.clear();
    bridge.handle_input(at(100), MqttInput::Facts(&facts));
    let removed: Vec<MqttMessage> =
        published(&mut bridge).into_iter().filter(|one| one.payload.is_empty()).collect();
    let has = |part: &str| removed.iter().filter(|one| one.topic.contains(part)).count();
    assert_eq!((has("homeassistant/device/aulos_box_station_Caf__"), has("client_02_42_")), (1, 1));
    assert_eq!(has("aulos/box/client/02_42_"), 5);
    assert!(has("aulos/box/station/Caf__") > 5 && has("hall") == 0, "{removed:?}");
    assert!(changes(&mut bridge, 200, &facts).is_empty());
}

/// A retained message that the broker delivers at the subscription.
fn retained(bridge: &mut MqttBridge, topic: &str) {
    let message = MqttInput::Message { topic, payload: b"OFF", is_retained: true };
    bridge.handle_input(at(0), message);
}

#[test]
fn what_was_removed_while_there_was_no_connection_is_removed_at_the_broker() {
    let mut bridge = bridge();
    bridge.handle_input(at(0), MqttInput::Connected);
    // Before the server has been read, and after that.
    retained(&mut bridge, "aulos/box/station/attic/silence");
    retained(&mut bridge, "aulos/box/station/hall/silence");
    bridge.handle_input(at(0), MqttInput::Facts(&facts()));
    let all = published(&mut bridge);
    let removed = |all: &[MqttMessage]| -> Vec<String> {
        let removed = all.iter().filter(|one| one.payload.is_empty() && one.is_retained);
        removed.map(|one| one.topic.clone()).collect()
    };
    let gone = removed(&all);
    assert_eq!(gone[0], "homeassistant/device/aulos_box_station_attic/config");
    assert_eq!(gone.len(), 1 + 10, "{gone:?}");
    assert!(gone[1..].iter().all(|topic| topic.starts_with("aulos/box/station/attic/")));
    retained(&mut bridge, "aulos/box/client/02_42/connected");
    retained(&mut bridge, &format!("aulos/box/client/{}/connected", escape("02:42")));
    bridge.handle_input(at(500), MqttInput::Facts(&facts()));
    let gone = removed(&published(&mut bridge));
    assert_eq!(gone.len(), 1 + 5, "{gone:?}");
    assert!(gone.iter().all(|topic| topic.contains("client_02_42/") || topic.contains("/02_42/")));
    // What this server publishes comes back, and is neither a command nor a leftover.
    let (topic, payload) = ("aulos/box/station/shed/silence", &b"OFF"[..]);
    bridge.handle_input(at(600), MqttInput::Message { topic, payload, is_retained: false });
    assert!(changes(&mut bridge, 1_000, &facts()).is_empty());
    assert_eq!(bridge.take_stats().refused, 0);
}

/// Every topic that is published of a part is one that is removed.
#[test]
fn every_retained_topic_of_a_part_is_known() {
    let mut facts = facts();
    facts.stations[0].recording = Some(1.0);
    let all = published(&mut connected(&facts));
    for part in &topics::PARTS {
        let prefix = format!("aulos/box/{}/", part.kind);
        let topics = all.iter().filter_map(|one| one.topic.strip_prefix(&prefix));
        let mut found: Vec<&str> = topics.filter_map(|one| one.split('/').nth(1)).collect();
        found.sort_unstable();
        found.dedup();
        let mut known = part.entities.to_vec();
        known.sort_unstable();
        assert_eq!(found, known, "{}", part.kind);
        assert!(known.contains(&part.marker));
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn messages_become_calls_of_a_controller() {
    let mut facts = facts();
    let mut bridge = connected(&facts);
    published(&mut bridge);
    let cafe = escape("Café");
    let client = escape("02:42");
    let ok = |method, params| Some(MqttCall { method, params });
    for (topic, payload, expected) in [
        (
            "station/hall/programme/set",
            "loop",
            ok("Aulos.SetSource", json!({ "station": "hall", "source": "loop" })),
        ),
        (
            &format!("station/{cafe}/programme/set"),
            "auto",
            ok("Aulos.SetSource", json!({ "station": "Café", "source": "auto" })),
        ),
        ("station/hall/programme/set", "pipe:///etc/passwd", None),
        (
            "station/hall/recording/set",
            "ON",
            ok("Aulos.StartRecording", json!({ "station": "hall" })),
        ),
        ("station/hall/recording/set", "on", None),
        (
            "station/hall/normalize/set",
            "ON",
            ok("Aulos.SetNormalize", json!({ "station": "hall", "normalize": true })),
        ),
        (
            "station/hall/equalizer/set",
            "OFF",
            ok("Aulos.SetEqualizer", json!({ "station": "hall", "equalizer": [] })),
        ),
        (
            "station/hall/cancel/press",
            "PRESS",
            ok("Aulos.CancelAnnouncement", json!({ "station": "hall" })),
        ),
        ("station/hall/next/press", "PRESS", ok("Aulos.SkipTrack", json!({ "station": "hall" }))),
        ("station/hall/next/press", "", None),
        (
            &format!("client/{client}/volume/set"),
            "35.0",
            ok("Client.SetVolume", json!({ "id": "02:42", "volume": { "percent": 35 } })),
        ),
        (&format!("client/{client}/volume/set"), "101", None),
        (&format!("client/{client}/volume/set"), "NaN", None),
        (
            &format!("client/{client}/mute/set"),
            "ON",
            ok("Client.SetVolume", json!({ "id": "02:42", "volume": { "muted": true } })),
        ),
        (
            &format!("client/{client}/latency/set"),
            "-20",
            ok("Client.SetLatency", json!({ "id": "02:42", "latency": -20 })),
        ),
        (
            &format!("client/{client}/stream/set"),
            "Café",
            ok("Group.SetStream", json!({ "id": "g1", "stream_id": "Café" })),
        ),
        ("server/preset/Night/press", "PRESS", ok("Aulos.ApplyPreset", json!({ "name": "Night" }))),
        ("server/preset/Day/press", "PRESS", None),
        ("station/attic/programme/set", "loop", None),
        ("station/hall/volume/set", "5", None),
        ("station/hall/loudness", "{}", None),
    ] {
        bridge.commands = TokenBucket::new(1, COMMAND_INTERVAL, at(0));
        assert_eq!(command(&mut bridge, 0, topic, payload), expected, "{topic} {payload}");
    }
    // What was turned off comes back as it was.
    let bands = facts.stations[0].equalizer.clone();
    facts.stations[0].equalizer = json!([]);
    facts.stations[0].normalize = json!({ "target": -18 });
    changes(&mut bridge, 1_000, &facts);
    facts.stations[0].normalize = Value::Null;
    changes(&mut bridge, 2_000, &facts);
    for (entity, method, key, value) in [
        ("equalizer", "Aulos.SetEqualizer", "equalizer", bands),
        ("normalize", "Aulos.SetNormalize", "normalize", json!({ "target": -18 })),
    ] {
        bridge.commands = TokenBucket::new(1, COMMAND_INTERVAL, at(0));
        let call =
            command(&mut bridge, 9_000, &format!("station/hall/{entity}/set"), "ON").unwrap();
        assert_eq!(call, MqttCall { method, params: json!({ "station": "hall", key: value }) });
    }
}

#[test]
fn a_broker_that_floods_gets_a_counter() {
    let mut bridge = connected(&facts());
    published(&mut bridge);
    let mut calls = 0;
    for _ in 0..10_000 {
        calls += usize::from(command(&mut bridge, 0, "station/hall/next/press", "PRESS").is_some());
    }
    assert_eq!((calls, bridge.take_stats().refused), (32, 10_000 - 32));
    assert!(command(&mut bridge, 1_000, "station/hall/next/press", "PRESS").is_some());
    // A command that the broker has kept, and what is no text.
    let topic = "aulos/box/station/hall/next/press";
    for (payload, is_retained) in [(&b"PRESS"[..], true), (b"\xff\xfe", false)] {
        bridge.handle_input(at(2_000), MqttInput::Message { topic, payload, is_retained });
        assert_eq!(bridge.poll_call(), None);
    }
    assert_eq!(bridge.take_stats().refused, 2);
}

#[test]
fn a_broker_that_is_slow_or_away_gets_the_newest_values_from_bounded_memory() {
    let mut facts = facts();
    let mut bridge = connected(&facts);
    for round in 0..1_000_i64 {
        facts.stations[0].title = format!("song {round}");
        facts.stations[0].is_silent = round % 2 == 0;
        bridge.handle_input(at(round), MqttInput::Facts(&facts));
    }
    let all = published(&mut bridge);
    let titles: Vec<&MqttMessage> =
        all.iter().filter(|one| one.topic == "aulos/box/station/hall/title").collect();
    assert_eq!((titles.len(), titles[0].payload.as_str()), (1, "song 999"));
    assert_eq!(all.iter().filter(|one| !one.is_retained).count(), 64);
    assert_eq!(bridge.take_stats().dropped_events, 1_000 - 64);
}

#[test]
fn home_assistant_gets_everything_again_after_its_start_and_not_at_every_message() {
    let mut bridge = connected(&facts());
    let count = published(&mut bridge).len();
    let (mut sent, mut births) = (0, 0);
    for ms in (1_000..60_000).step_by(100) {
        let (topic, payload) = ("homeassistant/status", b"online");
        bridge.handle_input(at(ms), MqttInput::Message { topic, payload, is_retained: false });
        let due = bridge.poll_timeout().unwrap();
        assert!(due <= at(ms) + MAX_REPUBLISH_PAUSE + MAX_REPUBLISH_PAUSE);
        bridge.handle_timeout(at(ms));
        sent += published(&mut bridge).len();
        births += 1;
    }
    assert!(births > 500 && (3 * count..=7 * count).contains(&sent), "{sent} of {count}");
    let mut bridge = connected(&facts());
    published(&mut bridge);
    let (topic, payload) = ("homeassistant/status", b"offline");
    bridge.handle_input(at(0), MqttInput::Message { topic, payload, is_retained: false });
    assert_eq!(bridge.poll_timeout(), None);
}

//! The rules of discovery by device in Home Assistant 2026.11: the keys of each platform, the
//! values of classes, unique ids, one shared availability.

use serde_json::Map;

use super::*;

/// The keys that a component of each platform must and may have, besides [`COMMON`].
const PLATFORMS: [(&str, &[&str], &[&str]); 7] = [
    (
        "sensor",
        &["stat_t"],
        &[
            "val_tpl",
            "unit_of_meas",
            "dev_cla",
            "stat_cla",
            "sug_dsp_prc",
            "exp_aft",
            "ent_cat",
            "ops",
        ],
    ),
    ("binary_sensor", &["stat_t"], &["dev_cla", "ent_cat"]),
    ("select", &["cmd_t", "stat_t", "ops"], &[]),
    ("switch", &["cmd_t", "stat_t"], &[]),
    ("button", &["cmd_t"], &[]),
    ("number", &["cmd_t", "stat_t"], &["min", "max", "step", "mode", "unit_of_meas"]),
    ("event", &["stat_t", "evt_typ"], &[]),
];

const COMMON: [&str; 3] = ["p", "uniq_id", "name"];

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Whether a topic is one of a subscription.
fn is_subscribed(filter: &str, topic: &str) -> bool {
    let (filter, topic) = (filter.split('/'), topic.split('/'));
    filter.clone().count() == topic.clone().count()
        && filter.zip(topic).all(|(filter, part)| filter == "+" || filter == part)
}

fn check_values(key: &str, platform: &str, component: &Map<String, Value>) {
    if let Some(class) = component.get("dev_cla") {
        let classes: &[&str] = match platform {
            "binary_sensor" => &["problem", "running", "sound", "connectivity"],
            _ => &["enum", "duration"],
        };
        assert!(classes.contains(&class.as_str().unwrap()), "{key}: {class}");
        assert_eq!(class == "enum", component.contains_key("ops"), "{key}");
    }
    if let Some(category) = component.get("ent_cat") {
        assert_eq!(category, "diagnostic");
    }
    if let Some(options) = component.get("ops").and_then(Value::as_array) {
        let is_repeated = |index: usize| options[..index].contains(&options[index]);
        assert!(!options.is_empty() && !(0..options.len()).any(is_repeated), "{key}: {options:?}");
    }
    if platform == "number" {
        assert!(component["min"].as_f64() < component["max"].as_f64(), "{key}");
    }
}

#[test]
fn descriptions_keep_the_rules_of_home_assistant() {
    let mut facts = facts();
    facts.stations[0].shape.sources.push("studio".to_owned());
    let mut bridge = connected(&facts);
    let all = published(&mut bridge);
    let topics: Vec<&str> = all.iter().map(|message| message.topic.as_str()).collect();
    let subscriptions = bridge.topics.subscriptions();
    let (mut ids, mut platforms) = (Vec::new(), Vec::new());
    for message in all.iter().filter(|message| message.topic.starts_with("homeassistant/")) {
        let object = message.topic.strip_prefix("homeassistant/device/").unwrap();
        let object = object.strip_suffix("/config").unwrap();
        assert!(is_id(object), "{object}");
        let document: Value = serde_json::from_str(&message.payload).unwrap();
        assert_eq!(document["dev"]["ids"], json!([object]));
        assert!(document["dev"]["name"].is_string() && document["o"]["name"] == "aulos");
        assert_eq!(document["avty_t"], "aulos/box/status");
        let is_part = object != "aulos_box";
        assert_eq!(document["dev"]["via_device"] == "aulos_box", is_part, "{object}");
        for (key, component) in document["cmps"].as_object().unwrap() {
            let component = component.as_object().unwrap();
            let platform = component["p"].as_str().unwrap();
            let (name, required, optional) =
                PLATFORMS.into_iter().find(|(name, ..)| *name == platform).unwrap();
            platforms.push(name);
            ids.push(component["uniq_id"].as_str().unwrap().to_owned());
            assert!(is_id(key) && is_id(ids.last().unwrap()), "{key}");
            for name in COMMON.iter().chain(required) {
                assert!(component.contains_key(*name), "{object} {key}: no {name}");
            }
            let known = [&COMMON, required, optional].concat();
            let unknown = component.keys().find(|name| !known.contains(&name.as_str()));
            assert_eq!(unknown, None, "{object} {key}");
            check_values(key, platform, component);
            // A state that is described is published, apart from events, and a command is heard.
            if platform != "event"
                && let Some(topic) = component.get("stat_t")
            {
                assert!(topics.contains(&topic.as_str().unwrap()), "{topic}");
            }
            if let Some(topic) = component.get("cmd_t").and_then(Value::as_str) {
                assert!(subscriptions.iter().any(|filter| is_subscribed(filter, topic)), "{topic}");
            }
        }
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    let is_used = |(name, ..): &(&str, _, _)| platforms.contains(name);
    assert!(PLATFORMS.iter().all(is_used), "{platforms:?}");
}

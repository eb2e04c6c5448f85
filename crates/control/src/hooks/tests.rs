//! Events and deliveries in virtual time.

mod queue;
mod trouble;

use aulos_config::{ConfigFile, Environment, HookEventKind, ResolvedConfig};
use aulos_core::{Db, Span};

use super::*;

fn resolve(text: &str) -> ResolvedConfig {
    let env = Environment { home: Some("/nonexistent".into()), ..Environment::default() };
    let name = "aulos.toml";
    aulos_config::load(Some(ConfigFile { name, text }), &[], &env)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn figures_never_replace_a_field_of_the_head() {
    let hooks = Hooks::new("box", &[], Clock::default());
    let event = HookEvent::Recorder {
        kind: HookEventKind::Recorded,
        text: "a has recorded 1.0 s".to_owned(),
        figures: json!({ "event": "closed", "station": 7, "time": 1, "bytes": 9 }),
    };
    let body = hooks.message(Some("hall"), &event).body;
    assert_eq!((&body["event"], &body["station"]), (&json!("recorded"), &json!("hall")));
    assert!(body["time"].is_string() && body["bytes"] == 9, "{body:?}");
}

//! What is told, when and how often, in virtual time; and real programs and servers that are told it.

mod deliver;
mod queue;
mod trouble;

use super::*;
use crate::config::{self, Environment, File, Resolved};

fn resolve(text: &str) -> Resolved {
    let env = Environment { home: Some("/nonexistent".into()), ..Environment::default() };
    let name = "aulos.toml";
    config::load(Some(File { name, text }), &[], &env).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn days_have_their_dates() {
    for (seconds, date) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_709_251_199, "2024-02-29T23:59:59Z"),
        (1_767_225_599, "2025-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(utc(seconds), date);
    }
}

//! Events and deliveries in virtual time, and deliveries to real programs and servers.

mod deliver;
mod queue;
mod trouble;

use aulos_config::{ConfigFile, Environment, HookEventKind, ResolvedConfig};
use aulos_core::{Db, Span};

use super::*;
use crate::backend::SwitchCause;

fn resolve(text: &str) -> ResolvedConfig {
    let env = Environment { home: Some("/nonexistent".into()), ..Environment::default() };
    let name = "aulos.toml";
    aulos_config::load(Some(ConfigFile { name, text }), &[], &env)
        .unwrap_or_else(|error| panic!("{error}"))
}

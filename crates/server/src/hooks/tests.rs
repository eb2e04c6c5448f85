//! What is told, when and how often, in virtual time; and real programs and servers that are told it.

mod deliver;
mod queue;
mod trouble;

use aulos_config::{ConfigFile, Environment, ResolvedConfig};

use super::*;

fn resolve(text: &str) -> ResolvedConfig {
    let env = Environment { home: Some("/nonexistent".into()), ..Environment::default() };
    let name = "aulos.toml";
    aulos_config::load(Some(ConfigFile { name, text }), &[], &env)
        .unwrap_or_else(|error| panic!("{error}"))
}

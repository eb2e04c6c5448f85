//! What is told, when and how often, in virtual time; and real programs and servers that are told it.

mod deliver;
mod queue;
mod trouble;

use aulos_config::{Environment, File, Resolved};

use super::*;

fn resolve(text: &str) -> Resolved {
    let env = Environment { home: Some("/nonexistent".into()), ..Environment::default() };
    let name = "aulos.toml";
    aulos_config::load(Some(File { name, text }), &[], &env)
        .unwrap_or_else(|error| panic!("{error}"))
}

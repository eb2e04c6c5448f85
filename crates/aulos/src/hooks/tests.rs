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

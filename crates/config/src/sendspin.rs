//! Sendspin players.

use crate::model::SendspinConfig;
use crate::names::{Endpoint, endpoint, without_brackets};
use crate::problem::Problems;
use crate::settings::SendspinSettings;

/// The settings, if it is enabled; what is written is checked in any case. `host` is that of ports
/// without one.
pub(crate) fn resolve(
    config: &SendspinConfig,
    host: &str,
    problems: &Problems,
) -> Option<SendspinSettings> {
    let text = &config.listen.value.0;
    let listen = endpoint(text, Some(without_brackets(host)), None);
    if listen.is_none() {
        let message = format!("`listen` is \"{text}\": it must be an address");
        let hint = "\"HOST:PORT\", \":PORT\" or a port alone";
        problems.add_with_hint(config.listen.at, message, hint);
    }
    let connect: Vec<Endpoint> = config
        .connect
        .iter()
        .filter_map(|player| {
            let found = endpoint(&player.value, None, Some(CLIENT_PORT));
            if found.is_none() {
                let message = format!("\"{}\" is not the address of a player", player.value);
                problems.add_with_hint(player.at, message, "\"kitchen.local:8928\"");
            }
            found
        })
        .collect();
    if let Some(player) = config.connect.get(MAX_CONNECT) {
        let message = format!("there are more than {MAX_CONNECT} players to connect to");
        problems.add(player.at, message);
    }
    let is_enabled = config.enabled.value;
    let enabled = listen.filter(|_| is_enabled);
    enabled.map(|listen| SendspinSettings {
        listen,
        discover: config.discover,
        connect,
        all_legacy: config.legacy.iter().any(|id| id.value == "*"),
        legacy: config.legacy.iter().map(|id| id.value.clone()).collect(),
    })
}

/// The port on which players listen.
const CLIENT_PORT: u16 = aulos_proto::sendspin::CLIENT_PORT;

/// Players to connect to; those of a house are found by themselves.
const MAX_CONNECT: usize = 64;

//! Relays by call. What a call adds is not written to the configuration, and is gone when the server
//! is started again.

use std::sync::PoisonError;

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::methods::{Answer, text, wanted};
use super::rpc::internal;
use super::{Control, State};
use crate::relay::Keeper;

/// `Aulos.GetRelays {streams}`.
pub(super) fn get(state: &mut State<'_>, params: &Value) -> Answer {
    let streams = match &params["streams"] {
        Value::Null => false,
        given => given.as_bool().ok_or_else(|| wanted("streams", "true or false"))?,
    };
    Ok(state.control.with_relays(|relays| relays.json(streams)))
}

/// `Aulos.AddRelay {name, listen, from, to, dest, ...}`.
pub(super) fn add(state: &mut State<'_>, params: &Value) -> Answer {
    let relay =
        aulos_config::relay_from_json(params).map_err(|why| RpcError::invalid_params(&why))?;
    let listen = state
        .control
        .with_relays(|relays| relays.add(&relay))
        .map_err(|error| internal(error.to_string().replace("\n    hint: ", "; ")))?;
    Ok(json!({ "name": relay.name, "listen": listen, "dest": relay.dest.to_string() }))
}

/// `Aulos.RemoveRelay {name}`.
pub(super) fn remove(state: &mut State<'_>, params: &Value) -> Answer {
    let name = text(params, "name")?;
    if !state.control.with_relays(|relays| relays.remove(name)) {
        return Err(internal("Relay not found"));
    }
    Ok(json!({ "name": name }))
}

impl Control {
    /// These relays run already.
    #[must_use]
    pub(crate) fn relaying(mut self, relays: Keeper) -> Self {
        *self.relays.get_mut().unwrap_or_else(PoisonError::into_inner) = relays;
        self
    }

    /// Ends all relays: what they still have is sent.
    pub(crate) fn end_relays(&self) {
        self.with_relays(Keeper::end);
    }

    pub(super) fn with_relays<T>(&self, act: impl FnOnce(&mut Keeper) -> T) -> T {
        act(&mut self.relays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

//! Relay methods. Relays added by a call are not written to the configuration and end with the
//! server.

pub(crate) mod watch;

use std::sync::PoisonError;
use std::time::Instant;

use aulos_proto::snap::control::RpcError;
use serde_json::json;

use crate::backend::RelayControl;
use crate::control::context::CallContext;
use crate::control::state::Control;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

/// `Aulos.GetRelays`.
pub(crate) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let streams = params.bool("streams")?;
    Ok(context.control.with_relays(|relays| relays.json(streams)))
}

/// `Aulos.AddRelay`.
pub(crate) fn add(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let relay = aulos_config::relay_from_json(params.values())
        .map_err(|why| RpcError::invalid_params(&why))?;
    let listen =
        context.control.with_relays(|relays| relays.add(&relay)).map_err(internal_error)?;
    Ok(json!({ "name": relay.name, "listen": listen, "dest": relay.dest.to_string() }))
}

/// `Aulos.RemoveRelay`.
pub(crate) fn remove(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let name = params.text("name")?;
    if !context.control.with_relays(|relays| relays.remove(name)) {
        return Err(internal_error(format!("there is no relay `{name}`")));
    }
    Ok(json!({ "name": name }))
}

impl Control {
    /// Adds events of relays that drop packets.
    pub(crate) fn watch_relays(&self, now: Instant) {
        let mut watch = self.relay_watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_due(now) {
            let summary = self.with_relays(|relays| relays.summary());
            for event in watch.events(now, &summary) {
                self.add_event(event);
            }
        }
    }

    /// Ends all relays after they have sent what they hold.
    pub fn end_relays(&self) {
        self.with_relays(|relays| relays.end());
    }

    pub(crate) fn with_relays<T>(&self, act: impl FnOnce(&mut dyn RelayControl) -> T) -> T {
        act(&mut **self.relays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

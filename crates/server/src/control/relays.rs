//! Relay methods. Relays added by a call are not written to the configuration and end with the
//! server.

use std::sync::PoisonError;

use aulos_proto::snap::control::RpcError;
use serde_json::json;

use super::Control;
use super::context::CallContext;
use super::params::Params;
use super::rpc::{MethodResult, internal_error};
use crate::relay::RtpRelayManager;

/// `Aulos.GetRelays`.
pub(super) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let streams = params.bool("streams")?;
    Ok(context.control.with_relays(|relays| relays.json(streams)))
}

/// `Aulos.AddRelay`.
pub(super) fn add(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let relay = aulos_config::relay_from_json(params.values())
        .map_err(|why| RpcError::invalid_params(&why))?;
    let listen = context
        .control
        .with_relays(|relays| relays.add(&relay))
        .map_err(|error| internal_error(error.to_string().replace("\n    hint: ", "; ")))?;
    Ok(json!({ "name": relay.name, "listen": listen, "dest": relay.dest.to_string() }))
}

/// `Aulos.RemoveRelay`.
pub(super) fn remove(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let name = params.text("name")?;
    if !context.control.with_relays(|relays| relays.remove(name)) {
        return Err(internal_error(format!("there is no relay `{name}`")));
    }
    Ok(json!({ "name": name }))
}

impl Control {
    /// Takes over relays that already run.
    #[must_use]
    pub(crate) fn with_initial_relays(mut self, relays: RtpRelayManager) -> Self {
        *self.relays.get_mut().unwrap_or_else(PoisonError::into_inner) = relays;
        self
    }

    /// Ends all relays after they have sent what they hold.
    pub(crate) fn end_relays(&self) {
        self.with_relays(RtpRelayManager::end);
    }

    pub(super) fn with_relays<T>(&self, act: impl FnOnce(&mut RtpRelayManager) -> T) -> T {
        act(&mut self.relays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

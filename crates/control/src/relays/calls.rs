//! Relay methods. Relays added by a call are not written to the configuration and end with the
//! server.

use aulos_proto::snap::control::RpcError;
use serde_json::json;

use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

/// `Aulos.GetRelays`.
pub(crate) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let streams = params.bool("streams")?;
    Ok(context.control.relays.with(|relays| relays.json(streams)).into())
}

/// `Aulos.AddRelay`.
pub(crate) fn add(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let relay = aulos_config::relay_from_json(params.values())
        .map_err(|why| RpcError::invalid_params(&why))?;
    let listen =
        context.control.relays.with(|relays| relays.add(&relay)).map_err(internal_error)?;
    Ok(json!({ "name": relay.name, "listen": listen, "dest": relay.dest.to_string() }).into())
}

/// `Aulos.RemoveRelay`.
pub(crate) fn remove(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let name = params.text("name")?;
    if !context.control.relays.with(|relays| relays.remove(name)) {
        return Err(internal_error(format!("there is no relay `{name}`")));
    }
    Ok(json!({ "name": name }).into())
}

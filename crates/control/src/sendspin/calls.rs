//! The calls for Sendspin clients.

use aulos_proto::sendspin::PairingToken;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::trust::{MAX_RECORDS, MAX_TOKENS, is_key};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::MethodResult;

/// `Aulos.GetSendspinClients`.
pub(crate) fn get_clients(context: &mut CallContext<'_>, _: &Params<'_>) -> MethodResult {
    let clients: Vec<Value> = context
        .control
        .sendspin
        .list()
        .into_iter()
        .map(|(id, record, waiting)| {
            let name = waiting.as_ref().map_or(&record.name, |waiting| &waiting.name);
            json!({
                "id": id,
                "name": name,
                "approved": record.is_approved,
                "paired": record.paired.is_some(),
                "waiting": waiting.is_some(),
                "admits_unpaired": waiting.map(|waiting| waiting.unpaired_access),
            })
        })
        .collect();
    Ok(json!({ "clients": clients }).into())
}

/// `Aulos.GetSendspinSources`.
pub(crate) fn get_sources(context: &mut CallContext<'_>, _: &Params<'_>) -> MethodResult {
    let views = context.subjects.stations.views(&*context.control.backend);
    let all = views.iter().flat_map(|view| {
        let inputs = view.status.sendspin_inputs.iter().zip(&view.station.sources);
        inputs.filter_map(|(input, source)| {
            let identity = input.as_ref()?.identity.as_ref()?;
            Some(json!({
                "station": view.station.name,
                "source": source.name,
                "id": identity.id().to_string(),
                "token": identity.pairing_token().to_text(),
            }))
        })
    });
    Ok(json!({ "sources": all.collect::<Vec<Value>>() }).into())
}

/// `Aulos.ApproveSendspinClient`.
pub(crate) fn approve(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let client = params.text("client")?;
    if !is_key(client) {
        return Err(params.invalid("client", &"the id of a Sendspin client, of 43 characters"));
    }
    let is_approved = params.bool("approved")?;
    if !context.control.sendspin.set_approved(client, is_approved) {
        let text = format!("{MAX_RECORDS} Sendspin clients are known: forget one first");
        return Err(RpcError::invalid_params(&text));
    }
    Ok(json!({ "client": client, "approved": is_approved }).into())
}

/// `Aulos.PairSendspinClient`.
pub(crate) fn pair(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let token = PairingToken::parse(params.text("token")?)
        .map_err(|error| RpcError::invalid_params(&error.to_string()))?;
    if !context.control.sendspin.add_token(&token) {
        let text = format!("{MAX_TOKENS} tokens wait for their clients: forget one first");
        return Err(RpcError::invalid_params(&text));
    }
    Ok(json!({ "client": token.client.to_string() }).into())
}

/// `Aulos.ForgetSendspinClient`.
pub(crate) fn forget(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let client = params.text("client")?;
    if !context.control.sendspin.forget(client) {
        return Err(params.invalid("client", &"a client of Aulos.GetSendspinClients"));
    }
    Ok(json!({ "client": client }).into())
}

//! Calls of a connection about itself: a login, and what it subscribes to.

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::subscription::{MAX_HZ, MIN_HZ, MeterSubscription, Subscription};
use crate::access::{Credentials, LoginError, Role};
use crate::control::context::CallContext;
use crate::methods::params::{Param, ParamType, Params, Presence};
use crate::methods::roles::{FORBIDDEN, UNAUTHORIZED};
use crate::methods::rpc::{MethodResult, internal_error};
use crate::names::NamedKind;

/// `Server.Authenticate`.
pub(crate) fn authenticate(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let access = &context.control.access;
    if access.rules().users.is_empty() {
        // No users are configured, so any login succeeds.
        return Ok(json!("ok").into());
    }
    let credentials = Credentials::parse(params.text("scheme")?, params.text("param")?);
    let denied = |(code, message), data: &str| RpcError {
        data: Some(data.into()),
        ..RpcError::new(code, message)
    };
    let login =
        context.control.login(context.caller.from, &credentials).map_err(|why| match why {
            LoginError::WrongCredentials => denied(UNAUTHORIZED, "the name or the secret is wrong"),
            LoginError::RateLimited => {
                denied(FORBIDDEN, "too many wrong logins: try again in a minute")
            }
        })?;
    let role = login.role;
    context.caller.grant(login);
    context.caller.has_logged_in = true;
    if let Some(peer) = context.caller.peer.filter(|_| role >= Role::Listen) {
        context.control.subscribe(peer);
    }
    Ok(json!("ok").into())
}

/// The members of `meters`.
pub(crate) const METERS: ParamType = ParamType::Object(
    &[
        Param::optional("stations", ParamType::Ids(NamedKind::Station), "all stations without it"),
        Param::default(
            "hz",
            ParamType::Number { min: MIN_HZ, max: MAX_HZ },
            Presence::Number(MAX_HZ),
            "frames per second, rounded to a whole number of tenths of a second between two frames",
        ),
    ],
    "an object with stations, hz or none of them",
);

/// `Aulos.Subscribe`.
pub(crate) fn subscribe(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    if context.caller.subscription.is_none() {
        return Err(internal_error(
            "only a WebSocket carries a feed; subscribe on a WebSocket at /jsonrpc",
        ));
    }
    let meters = match params.value("meters")? {
        Value::Null => None,
        _ => Some(meter_subscription(context, &params.object("meters", "meters.")?)?),
    };
    let events = params.bool("events")?.then_some(context.caller.role);
    let subscription = Subscription { status: params.bool("status")?, meters, events };
    let answer = subscription.json();
    context.caller.subscription = Some(subscription);
    Ok(answer.into())
}

fn meter_subscription(
    context: &CallContext<'_>,
    params: &Params<'_>,
) -> Result<MeterSubscription, RpcError> {
    let stations = match params.optional_texts("stations")? {
        // Names that exist bound the list.
        Some(names) => Some(
            names
                .into_iter()
                .map(|name| context.station(name).map(|_| name.to_owned()))
                .collect::<Result<Vec<_>, _>>()?
                .into(),
        ),
        None => None,
    };
    let hz = params.optional_number("hz")?.unwrap_or(MAX_HZ);
    Ok(MeterSubscription::new(stations, hz))
}

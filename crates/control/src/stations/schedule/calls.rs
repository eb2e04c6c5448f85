//! `Aulos.SwitchAt`, `Aulos.CancelSwitch` and `Aulos.GetSwitches`.

use aulos_core::{MediaTime, Span};
use aulos_proto::snap::control::RpcError;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::occurrence::timestamp;
use super::order::{MAX_ORDERS, OrderTime, zone};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::calls::parse_source;

/// `Aulos.SwitchAt`.
pub(crate) fn switch_at(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let control = context.control;
    let (number, slot) = context.station_param(params)?;
    let source = parse_source(&slot.station.sources, params)?;
    let name = source.and_then(|index| slot.station.sources.get(index));
    let (name, station) = (name.map(|source| source.name.clone()), slot.station.clone());
    let length = params.optional_number("for_s")?.map(Span::from_secs_f64);
    let time = order_time(context, params, number)?;
    let outside = control.outside();
    let clock = outside.clock.reading();
    let slot = context.subjects.stations.get_mut(number);
    let slot = slot.ok_or_else(|| internal_error("the station has been removed"))?;
    let order = slot.schedule.order(name, time, length, &clock).ok_or_else(|| {
        internal_error(format!("the station has {MAX_ORDERS} switches to come: cancel one"))
    })?;
    let mut answer = order.json(&zone(&station));
    answer["station"] = json!(station.name);
    context.subjects.stations.follow_schedule(number, outside);
    Ok(answer.into())
}

/// `Aulos.CancelSwitch`.
pub(crate) fn cancel_switch(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let control = context.control;
    let (number, _) = context.station_param(params)?;
    let id = params.count("id")?;
    let outside = control.outside();
    let slot = context.subjects.stations.get_mut(number);
    let slot = slot.ok_or_else(|| internal_error("the station has been removed"))?;
    if !slot.schedule.cancel(id) {
        return Err(internal_error(format!("there is no switch {id}")));
    }
    let answer = json!({ "station": slot.station.name, "id": id });
    context.subjects.stations.follow_schedule(number, outside);
    Ok(answer.into())
}

/// `Aulos.GetSwitches`.
pub(crate) fn get_switches(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (_, slot) = context.station_param(params)?;
    let zone = zone(&slot.station);
    let orders: Vec<Value> = slot.schedule.orders().iter().map(|order| order.json(&zone)).collect();
    Ok(json!({ "station": slot.station.name, "switches": orders }).into())
}

/// The time of a call: `at`, `in_s` or `frame`.
fn order_time(
    context: &CallContext<'_>,
    params: &Params<'_>,
    number: usize,
) -> Result<OrderTime, RpcError> {
    let clock = context.control.outside().clock.reading();
    let now = timestamp(clock.utc);
    let time = match params.at_most_one(&["at", "in_s", "frame"])? {
        Some("frame") => {
            let status = context.control.backend.status(number);
            let line = status.machine.timeline;
            let line = line.ok_or_else(|| internal_error("the station does not run"))?;
            OrderTime::Local(line.local_at(MediaTime(params.count("frame")?)))
        }
        Some("in_s") => OrderTime::Local(clock.local + Span::from_secs_f64(params.number("in_s")?)),
        Some(_) => {
            let at = params.text("at")?.parse::<Timestamp>();
            OrderTime::Wall(at.map_err(|_| params.invalid("at", &EXAMPLE))?)
        }
        None => return Err(params.invalid("at", &EXAMPLE)),
    };
    let from = match time {
        OrderTime::Wall(at) => at,
        OrderTime::Local(at) => timestamp(clock.utc_at(at)),
    };
    let ahead = from.duration_since(now).as_secs();
    if !(-LATE_S..=i64::from(MAX_AHEAD_S)).contains(&ahead) {
        return Err(RpcError::invalid_params(&format!(
            "the time of the switch is {ahead} s from now: it must be 0 to {MAX_AHEAD_S}"
        )));
    }
    Ok(time)
}

const EXAMPLE: &str = "a time as in 2026-12-24T18:00:00+01:00, or `in_s` or `frame`";

/// A call that comes a little late is carried out at once.
const LATE_S: i64 = 1;

/// A month.
pub(crate) const MAX_AHEAD_S: u32 = 31 * 86_400;

/// A week.
pub(crate) const MAX_LENGTH_S: f64 = 7.0 * 86_400.0;

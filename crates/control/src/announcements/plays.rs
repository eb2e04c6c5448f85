//! Calls that play a sound in place of the programme, to its end.

use aulos_core::{Db, Span};
use aulos_engine::announce::{Ducking, Layer, Priority};
use aulos_proto::snap::control::RpcError;
use serde_json::json;

use super::calls::{
    Place, RequestedSound, TARGETS, announced_place, named_entries, submit, volume_gain,
};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::MethodResult;

/// `Aulos.Play`.
pub(crate) fn play(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let title = params.optional_text("title")?.map(str::to_owned);
    if title.as_ref().is_some_and(|title| title.len() > MAX_TITLE) {
        return Err(params.invalid("title", &format!("text of at most {MAX_TITLE} bytes")));
    }
    let sound = RequestedSound {
        layer: Layer::Play,
        priority: Priority::DEFAULT,
        lead: None,
        ducking: Ducking { gain: Db::SILENCE, release: RELEASE },
        gain: volume_gain(params.number("volume")?),
        normalize: params.bool("normalize")?,
        loudness: None,
        key: None,
        title,
    };
    let entry = submit(context, params, sound)?;
    Ok(json!({ "id": entry.id, "station": entry.station }).into())
}

/// `Aulos.StopPlay`.
pub(crate) fn stop(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let stopped = match params.optional_integer("id")? {
        Some(id) => named_entries(context, Layer::Play, |entry| i64::try_from(entry.id) == Ok(id)),
        None => {
            let Place { target, number, .. } = announced_place(context, params, TARGETS)?;
            named_entries(context, Layer::Play, |entry| {
                entry.number == number && entry.target == target
            })
        }
    };
    for (id, number) in &stopped {
        context.control.backend.cancel_announcement(*number, *id);
    }
    let ids: Vec<u64> = stopped.into_iter().map(|(id, _)| id).collect();
    Ok::<_, RpcError>(json!({ "stopped": ids }).into())
}

/// Longest title, in bytes.
const MAX_TITLE: usize = 512;

/// Time in which the programme returns after a play.
const RELEASE: Span = Span::from_millis(500);

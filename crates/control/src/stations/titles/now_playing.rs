//! What a station plays now, as automation reports it.
//!
//! The title of a report stands until another one, or the next title of the source on air: the
//! latest is what listeners are shown. It is shown when the sound that enters the station with the
//! report goes out.

use aulos_core::Span;
use aulos_proto::snap::control::RpcError;
use aulos_proto::titles::{TrackMetadata, clean_text};
use serde_json::json;

use crate::control::context::CallContext;
use crate::methods::params::{Param, ParamType, Params};
use crate::methods::rpc::MethodResult;
use crate::names::NamedKind;
use crate::stations::calls::MAX_DURATION_S;
use crate::stations::titles::shown::NewTitle;

/// The parameters of `Aulos.SetNowPlaying`.
pub(crate) const SET: &[Param] = &[
    Param::required("station", ParamType::Id(NamedKind::Station), ""),
    Param::optional("title", ParamType::Text, "without title and artist nothing is shown"),
    Param::optional("artist", ParamType::Text, ""),
    Param::optional("album", ParamType::Text, ""),
    Param::optional(
        "duration_s",
        ParamType::Seconds { min: 0.0, max: MAX_DURATION_S },
        "the length of the track",
    ),
    Param::optional("next", ParamType::Text, "what follows, in one line, for outputs"),
];

/// The parameters of `Aulos.GetNowPlaying`.
pub(crate) const GET: &[Param] = &[
    Param::required("station", ParamType::Id(NamedKind::Station), ""),
    Param::optional("from", ParamType::Integer, "only titles from this Unix time on"),
    Param::optional("to", ParamType::Integer, "only titles up to this Unix time"),
];

/// `Aulos.SetNowPlaying`.
pub(crate) fn set(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let name = slot.station.name.clone();
    let text = |name| -> Result<Option<String>, RpcError> {
        Ok(params.optional_text(name)?.and_then(|text| clean_text(text.as_bytes())))
    };
    let title = TrackMetadata {
        title: text("title")?,
        artist: text("artist")?,
        album: text("album")?,
        duration: params.optional_number("duration_s")?.map(Span::from_secs_f64),
        ..TrackMetadata::default()
    };
    let answer = json!({ "station": name, "title": title.title, "artist": title.artist });
    let new = NewTitle { title, next: text("next")?, source: None };
    let effects = context.subjects.stations.queue_title(number, new, context.control.outside());
    context.push_effects(effects);
    Ok(answer.into())
}

/// `Aulos.GetNowPlaying`.
pub(crate) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let from = params.optional_integer("from")?.unwrap_or(0);
    let to = params.optional_integer("to")?.unwrap_or(i64::MAX);
    let (_, slot) = context.station_param(params)?;
    Ok(json!({
        "station": slot.station.name,
        "now": slot.titles.history.now(),
        "played": slot.titles.history.json(from, to),
    })
    .into())
}

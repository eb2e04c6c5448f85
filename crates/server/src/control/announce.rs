//! Announcements: playing a file over a station's programme, their queue and their notifications.
//!
//! Only a file below the folders of `[streams] roots` can be announced, the same files that can be
//! added as a stream: a call must not read anything else.

use aulos_core::Db;
use aulos_engine::announce::{DEFAULT_DUCK, MAX_DUCK, MIN_DUCK};
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::methods::{MethodResult, integer, invalid_param, text_param};
use super::rpc::internal_error;
use super::streams::remote_refusal;
use super::{CallContext, Control, ControlState};
use crate::backend::{Announcement, AnnouncementEvent, AnnouncementOutcome};
use crate::registry::NotFound;

/// Every announcement of the server that has not ended.
#[derive(Debug, Default)]
pub(super) struct AnnouncementList {
    last: u64,
    list: Vec<AnnouncementEntry>,
}

#[derive(Debug)]
struct AnnouncementEntry {
    id: u64,
    station: String,
    number: usize,
    uri: String,
    duck: Db,
    is_playing: bool,
}

impl AnnouncementList {
    /// The announcements of one station, for its status.
    pub(super) fn of_station(&self, station: usize) -> Value {
        let own = self.list.iter().filter(|entry| entry.number == station);
        own.map(|entry| {
            json!({
                "id": entry.id,
                "uri": entry.uri,
                "duck_db": entry.duck.get(),
                "state": if entry.is_playing { "playing" } else { "waiting" },
            })
        })
        .collect()
    }
}

/// `Aulos.Announce {station | group, uri, duck_db?, gain_db?, normalize?}`.
pub(super) fn announce(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let station = station_name(state, params)?;
    let number = state.station(&station).ok_or(NotFound::Station)?;
    let uri = text_param(params, "uri")?;
    let mut source =
        aulos_config::parse_announcement(uri).map_err(|why| RpcError::invalid_params(&why))?;
    let allowed = &state.control.config().streams;
    if let Some(why) = remote_refusal(&source.uri, allowed) {
        return Err(RpcError::invalid_params(&why));
    }
    source.config.confine(&allowed.roots);
    let duck = parse_duck(&params["duck_db"])?;
    let all = &mut state.inner.announcements;
    let id = all.last + 1;
    let gain = parse_gain(&params["gain_db"])?;
    let normalize = match &params["normalize"] {
        Value::Null => true,
        Value::Bool(normalize) => *normalize,
        _ => return Err(invalid_param("normalize", "true or false")),
    };
    let announcement = Announcement { id, source: source.config, duck, gain, normalize };
    state.control.backend.announce(number, &announcement).map_err(internal_error)?;
    all.last = id;
    let before = all.list.iter().filter(|entry| entry.number == number).count();
    let entry = AnnouncementEntry {
        id,
        station: station.clone(),
        number,
        uri: uri.to_owned(),
        duck,
        is_playing: false,
    };
    all.list.push(entry);
    state.control.bump_revision();
    Ok(json!({ "id": id, "station": station, "before": before }))
}

/// `Aulos.CancelAnnouncement {id}` or `{station | group}`, which cancels all announcements of that
/// station.
pub(super) fn cancel(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let wanted: Vec<(u64, usize)> = if params["id"].is_null() {
        let station = station_name(state, params)?;
        let number = state.station(&station).ok_or(NotFound::Station)?;
        let own = state.inner.announcements.list.iter().filter(|entry| entry.number == number);
        own.map(|entry| (entry.id, number)).collect()
    } else {
        let id = u64::try_from(integer(&params["id"], "id")?).unwrap_or(0);
        let found = state.inner.announcements.list.iter().find(|entry| entry.id == id);
        found.map(|entry| (entry.id, entry.number)).into_iter().collect()
    };
    for (id, number) in &wanted {
        state.control.backend.cancel_announcement(*number, *id);
    }
    let ids: Vec<u64> = wanted.into_iter().map(|(id, _)| id).collect();
    Ok(json!({ "cancelled": ids }))
}

/// The station of the call. Every group of a station gets the same chunks, so an announcement to
/// one of them plays in all.
fn station_name(state: &CallContext<'_>, params: &Value) -> Result<String, RpcError> {
    match (params["station"].as_str(), params["group"].as_str()) {
        (Some(station), None) => Ok(station.to_owned()),
        (None, Some(group)) => {
            let group = state.inner.registry.group(group).ok_or(NotFound::Group)?;
            Ok(group.station.clone())
        }
        _ => Err(invalid_param("station", "a text, or `group` is one; not both")),
    }
}

fn parse_duck(value: &Value) -> Result<Db, RpcError> {
    if value.is_null() {
        return Ok(DEFAULT_DUCK);
    }
    let (least, most) = (MIN_DUCK.get(), MAX_DUCK.get());
    let given = value.as_f64().filter(|db| (most..=least).contains(db));
    given
        .map(Db::new)
        .ok_or_else(|| invalid_param("duck_db", &format!("a number from {most} to {least}")))
}

fn parse_gain(value: &Value) -> Result<Db, RpcError> {
    if value.is_null() {
        return Ok(Db::ZERO);
    }
    let (least, most) = (GAIN_DB.start(), GAIN_DB.end());
    let given = value.as_f64().filter(|db| GAIN_DB.contains(db));
    given
        .map(Db::new)
        .ok_or_else(|| invalid_param("gain_db", &format!("a number from {least} to {most}")))
}

/// A lower gain is inaudible over the programme; a higher one points to a broken file.
const GAIN_DB: std::ops::RangeInclusive<f64> = -40.0..=20.0;

impl Control {
    /// Notifies controllers of what happened to announcements.
    pub(super) fn notify_announcements(&self, inner: &mut ControlState) {
        for (id, what) in self.backend.announcement_events() {
            let list = &mut inner.announcements.list;
            let Some(at) = list.iter().position(|entry| entry.id == id) else { continue };
            let entry = &mut list[at];
            let mut params = json!({ "id": id, "station": entry.station, "uri": entry.uri });
            match what {
                AnnouncementEvent::Started => {
                    entry.is_playing = true;
                    params["state"] = json!("began");
                }
                AnnouncementEvent::Ended(outcome) => {
                    let (cause, reason) = outcome_text(outcome);
                    params["state"] = json!("ended");
                    params["cause"] = json!(cause);
                    params["reason"] = json!(reason);
                    list.remove(at);
                }
            }
            self.notify(inner, None, "Aulos.OnAnnouncement", &params);
            self.bump_revision();
        }
    }
}

fn outcome_text(outcome: AnnouncementOutcome) -> (&'static str, Option<String>) {
    match outcome {
        AnnouncementOutcome::Played => ("played", None),
        AnnouncementOutcome::Cancelled => ("cancelled", None),
        AnnouncementOutcome::TooLong => ("too long", None),
        AnnouncementOutcome::StationGone => ("station gone", None),
        AnnouncementOutcome::Failed(why) => ("failed", Some(why)),
    }
}

//! Announcements: playing a file over a station's programme, their queue and their notifications.
//!
//! Only a file below the folders of `[streams] roots` can be announced, the same files that can be
//! added as a stream: a call must not read anything else.

use aulos_core::Db;
use aulos_proto::snap::control::RpcError;
use serde_json::json;

use super::announcement_list::AnnouncementEntry;
use super::context::CallContext;
use super::params::Params;
use super::rpc::{MethodResult, internal_error};
use super::streams::remote_refusal;
use super::{Control, ControlState};
use crate::backend::{Announcement, AnnouncementEvent, AnnouncementOutcome};
use crate::registry::NotFound;

/// `Aulos.Announce`.
pub(super) fn announce(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let station = station_name(context, params)?;
    let (number, _) = context.station(&station)?;
    let uri = params.text("uri")?;
    let mut source =
        aulos_config::parse_announcement(uri).map_err(|why| RpcError::invalid_params(&why))?;
    let allowed = &context.control.config().streams;
    if let Some(why) = remote_refusal(&source.uri, allowed) {
        return Err(RpcError::invalid_params(&why));
    }
    source.config.confine(&allowed.roots);
    let duck = Db::new(params.number("duck_db")?);
    let gain = Db::new(params.number("gain_db")?);
    let normalize = params.bool("normalize")?;
    let all = &mut context.inner.announcements;
    let id = all.last + 1;
    let announcement = Announcement { id, source: source.config, duck, gain, normalize };
    context.control.backend.announce(number, &announcement).map_err(internal_error)?;
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
    context.control.bump_revision();
    Ok(json!({ "id": id, "station": station, "before": before }))
}

/// `Aulos.CancelAnnouncement`.
pub(super) fn cancel(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let list = &context.inner.announcements.list;
    let cancelled: Vec<(u64, usize)> = if let Some(id) = params.optional_integer("id")? {
        let id = u64::try_from(id).unwrap_or(0);
        let found = list.iter().find(|entry| entry.id == id);
        found.map(|entry| (entry.id, entry.number)).into_iter().collect()
    } else {
        let (number, _) = context.station(&station_name(context, params)?)?;
        let own = list.iter().filter(|entry| entry.number == number);
        own.map(|entry| (entry.id, number)).collect()
    };
    for (id, number) in &cancelled {
        context.control.backend.cancel_announcement(*number, *id);
    }
    let ids: Vec<u64> = cancelled.into_iter().map(|(id, _)| id).collect();
    Ok(json!({ "cancelled": ids }))
}

/// The station of the call. Every group of a station gets the same chunks, so an announcement to
/// one of them plays in all.
fn station_name(context: &CallContext<'_>, params: &Params<'_>) -> Result<String, RpcError> {
    let key = params.only_one(&["station", "group"])?;
    let name = params.text(key)?;
    if key == "station" {
        return Ok(name.to_owned());
    }
    let group = context.inner.registry.group(name).ok_or(NotFound::Group)?;
    Ok(group.station.clone())
}

/// Range of `gain_db`: a lower gain is inaudible over the programme; a higher one points to a broken
/// file.
pub(super) const MIN_GAIN_DB: f64 = -40.0;
pub(super) const MAX_GAIN_DB: f64 = 20.0;

impl Control {
    /// Notifies controllers of what happened to an announcement.
    pub(super) fn notify_announcement(
        &self,
        inner: &mut ControlState,
        id: u64,
        event: AnnouncementEvent,
    ) {
        let list = &mut inner.announcements.list;
        let Some(at) = list.iter().position(|entry| entry.id == id) else { return };
        let entry = &mut list[at];
        let mut params = json!({ "id": id, "station": entry.station, "uri": entry.uri });
        match event {
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

fn outcome_text(outcome: AnnouncementOutcome) -> (&'static str, Option<String>) {
    match outcome {
        AnnouncementOutcome::Played => ("played", None),
        AnnouncementOutcome::Cancelled => ("cancelled", None),
        AnnouncementOutcome::TooLong => ("too long", None),
        AnnouncementOutcome::StationGone => ("station gone", None),
        AnnouncementOutcome::Failed(why) => ("failed", Some(why)),
    }
}

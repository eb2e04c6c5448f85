//! Announcements: playing a sound over a station's programme, their queue and their notifications.
//!
//! Only a file below the folders of `[streams] roots` can be announced, the same files that can be
//! added as a stream, or an uploaded one, or a URL of the hosts in `[streams] announce_hosts`: a call must not read
//! anything else. The path of a URL is a secret that gives access to what it names (a speech service
//! puts a token into it), so it appears neither in the status nor in notifications.

use std::path::PathBuf;

use aulos_config::StreamSettings;
use aulos_core::{ChannelMap, Db, Lufs};
use aulos_engine::announce::Ducking;
use aulos_proto::http::HttpUrl;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::announcements::list::AnnouncementEntry;
use crate::backend::{
    Announcement, AnnouncementEvent, AnnouncementOutcome, AnnouncementSource, AnnouncementTarget,
    SessionId,
};
use crate::clients::registry::Registry;
use crate::control::context::{CallContext, unknown_name};
use crate::control::state::{Control, ControlState};
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::fallback::seconds;
use crate::stations::streams::remote_refusal;

/// `Aulos.Announce`.
pub(crate) fn announce(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (target, station) = announced_target(context, params)?;
    let (number, _) = context.station(&station)?;
    let config = context.control.config();
    let (source, uri) = announced_source(params.text("uri")?, &config.streams, config.uploads())
        .map_err(|why| RpcError::invalid_params(&why))?;
    let release = seconds(params.number("release_s")?);
    let ducking = Ducking { gain: Db::new(params.number("duck_db")?), release };
    let gain = Db::new(params.number("gain_db")? + volume_gain(params.number("volume")?).get());
    let normalize = params.bool("normalize")?;
    let loudness = params.optional_number("loudness_lufs")?.map(Lufs::new);
    let key = params.optional_text("key")?.map(str::to_owned);
    if key.as_ref().is_some_and(|key| key.len() > MAX_KEY) {
        return Err(params.invalid("key", &format!("text of at most {MAX_KEY} bytes")));
    }
    let ControlState { announcements: all, registry, .. } = &mut *context.inner;
    let (id, before) = (all.last + 1, all.count(number, &target));
    let own = target.clone();
    let announcement =
        Announcement { id, target: own, source, ducking, gain, normalize, loudness, key };
    let of_target = |number, target: &_| sessions(registry, number, target);
    let announced = context.control.backend.announce(number, &announcement, &of_target);
    announced.map_err(internal_error)?;
    all.last = id;
    let shown = station.clone();
    let entry = AnnouncementEntry { id, station, target, number, uri, ducking, is_playing: false };
    all.list.push(entry);
    context.control.bump_revision();
    Ok(json!({ "id": id, "station": shown, "before": before }))
}

/// The gain of a volume in percent: the curve of Snapcast's clients, so that a number means the same
/// as in `Client.SetVolume`.
fn volume_gain(percent: f64) -> Db {
    Db::new(20.0 * ((10.0_f64.powf(percent / 100.0) - 1.0) / 9.0).log10())
}

/// The sound behind a URI, and the URI without its secrets.
fn announced_source(
    uri: &str,
    allowed: &StreamSettings,
    uploads: PathBuf,
) -> Result<(AnnouncementSource, String), String> {
    let scheme = uri.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        let url: HttpUrl = uri.parse().map_err(|why| format!("`uri`: {why}"))?;
        let scheme = scheme.to_ascii_lowercase();
        let shown = format!("{scheme}://{}/...", url.authority());
        return Ok((AnnouncementSource::Url(url, allowed.announce_hosts.clone()), shown));
    }
    let mut source = aulos_config::parse_announcement(uri)?;
    let roots = [&allowed.roots[..], &[uploads]].concat();
    if let Some(why) = remote_refusal(&source.uri, allowed, &roots) {
        return Err(why);
    }
    source.config.confine(&roots);
    Ok((AnnouncementSource::File(source.config), uri.to_owned()))
}

/// `Aulos.CancelAnnouncement`.
pub(crate) fn cancel(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let list = &context.inner.announcements.list;
    let cancelled: Vec<(u64, usize)> = if let Some(id) = params.optional_integer("id")? {
        let id = u64::try_from(id).unwrap_or(0);
        let found = list.iter().find(|entry| entry.id == id);
        found.map(|entry| (entry.id, entry.number)).into_iter().collect()
    } else {
        let (target, station) = announced_target(context, params)?;
        let (number, _) = context.station(&station)?;
        let all_of_station = target == AnnouncementTarget::Station;
        let is_named = |entry: &&AnnouncementEntry| {
            entry.number == number && (all_of_station || entry.target == target)
        };
        list.iter().filter(is_named).map(|entry| (entry.id, number)).collect()
    };
    for (id, number) in &cancelled {
        context.control.backend.cancel_announcement(*number, *id);
    }
    let ids: Vec<u64> = cancelled.into_iter().map(|(id, _)| id).collect();
    Ok(json!({ "cancelled": ids }))
}

/// The clients that the call names, and the station that they play.
fn announced_target(
    context: &CallContext<'_>,
    params: &Params<'_>,
) -> Result<(AnnouncementTarget, String), RpcError> {
    let key = params.only_one(&["station", "group", "client"])?;
    let name = params.text(key)?;
    let registry = &context.inner.registry;
    let found = match key {
        "station" => return Ok((AnnouncementTarget::Station, name.to_owned())),
        "group" => {
            registry.table.group(name).map(|group| (AnnouncementTarget::Group(name.into()), group))
        }
        _ => {
            let client = registry.table.client(name);
            client.map(|(group, _)| (AnnouncementTarget::Client(name.into()), group))
        }
    };
    if let Some((target, group)) = found {
        return Ok((target, group.station.clone()));
    }
    let groups = registry.table.groups().map(|group| group.id.as_str());
    Err(match key {
        "group" => unknown_name("`group`: ", (key, "groups"), name, groups),
        _ => unknown_name("`client`: ", (key, "clients"), name, registry.table.ids()),
    })
}

/// The sessions of a target's connected clients, with their channel maps; `None` if the target does
/// not play the station of this number.
pub(crate) fn sessions(
    registry: &Registry,
    number: usize,
    target: &AnnouncementTarget,
) -> Option<Vec<(SessionId, ChannelMap)>> {
    let (group, only) = match target {
        AnnouncementTarget::Station => return None,
        AnnouncementTarget::Group(id) => (registry.table.group(id)?, None),
        AnnouncementTarget::Client(id) => (registry.table.client(id)?.0, Some(id)),
    };
    registry.stations.find(&group.station).filter(|(own, _)| *own == number)?;
    let members = registry.table.members(&group.id);
    let named = members.filter(|client| only.is_none_or(|only| client.id == *only));
    Some(named.flat_map(|client| client.sessions().map(|one| (one, client.map))).collect())
}

/// Range of `loudness_lufs`: below it is quieter than any speech, above it is no headroom.
pub(crate) const MIN_LOUDNESS: f64 = -40.0;
pub(crate) const MAX_LOUDNESS: f64 = -5.0;

/// Maximum length of a key.
const MAX_KEY: usize = 128;

/// Range of `gain_db`: a lower gain is inaudible over the programme; a higher one points to a broken
/// file.
pub(crate) const MIN_GAIN_DB: f64 = -40.0;
pub(crate) const MAX_GAIN_DB: f64 = 20.0;

impl Control {
    /// Notifies controllers of what happened to an announcement.
    pub(crate) fn notify_announcement(
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
                let entry = list.remove(at);
                params["clients"] = connected_clients(&inner.registry, &entry);
                params["group"] = json!(entry.group());
                params["client"] = json!(entry.client());
            }
        }
        self.notify(inner, None, "Aulos.OnAnnouncement", &params);
        self.bump_revision();
    }
}

/// The ids of the connected clients for which an announcement was.
fn connected_clients(registry: &Registry, entry: &AnnouncementEntry) -> Value {
    let AnnouncementEntry { station, number, target, .. } = entry;
    if *target == AnnouncementTarget::Station {
        return registry.table.clients_of_station(station).collect();
    }
    let sessions = sessions(registry, *number, target).into_iter().flatten();
    let mut ids: Vec<&str> = sessions
        .filter_map(|(session, _)| registry.table.with_session(session))
        .map(|client| client.id.as_str())
        .collect();
    // A client may have several sessions.
    ids.dedup();
    ids.into()
}

fn outcome_text(outcome: AnnouncementOutcome) -> (&'static str, Option<String>) {
    match outcome {
        AnnouncementOutcome::Played => ("played", None),
        AnnouncementOutcome::Cancelled => ("cancelled", None),
        AnnouncementOutcome::Replaced => ("replaced", None),
        AnnouncementOutcome::TooLong => ("too long", None),
        AnnouncementOutcome::StationGone => ("station gone", None),
        AnnouncementOutcome::Failed(why) => ("failed", Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_that_of_a_client() {
        for (percent, expected) in [(100.0, 0.0), (50.0, -12.39), (1.0, -51.74)] {
            let gain = volume_gain(percent).get();
            assert!((gain - expected).abs() < 0.01, "{percent}: {gain}");
        }
    }
}

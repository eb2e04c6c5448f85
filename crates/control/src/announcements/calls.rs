//! Calls that play a sound over a station's programme, and what they share with plays.
//!
//! Only a file below the folders of `[streams] roots` can be played, the same files that can be
//! added as a stream, or an uploaded one, or a URL of the hosts in `[streams] announce_hosts`: a
//! call must not read anything else. The path of a URL is a secret that gives access to what it
//! names (a speech service puts a token into it), so it appears neither in the status nor in
//! notifications.

use std::path::PathBuf;

use aulos_config::StreamSettings;
use aulos_core::{Db, Lufs, Span};
use aulos_engine::announce::{Ducking, Layer, Priority};
use aulos_proto::http::HttpUrl;
use aulos_proto::snap::control::RpcError;
use serde_json::json;

use crate::announcements::{AnnouncementEntry, sessions};
use crate::backend::{Announcement, AnnouncementLead, AnnouncementSource, AnnouncementTarget};
use crate::clients::registry::{Effects, NotFound};
use crate::control::context::CallContext;
use crate::control::state::Subjects;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::added::remote_refusal;

/// `Aulos.Announce`.
pub(crate) fn announce(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let release = Span::from_secs_f64(params.number("release_s")?);
    let key = params.optional_text("key")?.map(str::to_owned);
    if key.as_ref().is_some_and(|key| key.len() > MAX_KEY) {
        return Err(params.invalid("key", &format!("text of at most {MAX_KEY} bytes")));
    }
    let sound = RequestedSound {
        layer: Layer::Announcement,
        priority: priority(params)?,
        lead: requested_lead(context, params)?,
        ducking: Ducking { gain: Db::new(params.number("duck_db")?), release },
        gain: Db::new(params.number("gain_db")? + volume_gain(params.number("volume")?).get()),
        normalize: params.bool("normalize")?,
        loudness: params.optional_number("loudness_lufs")?.map(Lufs::new),
        key,
        title: None,
    };
    let entry = submit(context, params, sound)?;
    let before = context.subjects.announcements.before(&entry);
    Ok(json!({ "id": entry.id, "station": entry.station, "before": before }).into())
}

/// The priority of an announcement.
pub(super) fn priority(params: &Params<'_>) -> Result<Priority, RpcError> {
    let level = params.number("priority")?.round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 9")]
    Ok(Priority::new(level as u8))
}

/// What a call asks to sound before an announcement.
fn requested_lead(
    context: &CallContext<'_>,
    params: &Params<'_>,
) -> Result<Option<AnnouncementLead>, RpcError> {
    let has_chime = params.bool("chime")?;
    let Some(uri) = params.optional_text("before")? else {
        return Ok(has_chime.then_some(AnnouncementLead::Chime));
    };
    if has_chime {
        return Err(params.invalid("before", &"left out where `chime` is true"));
    }
    let (source, _) = requested_source(context, uri)
        .map_err(|why| params.invalid("before", &format_args!("a sound: {why}")))?;
    Ok(Some(AnnouncementLead::Sound(source)))
}

/// The sound behind a URI that a call may have played, and the URI without its secrets.
fn requested_source(
    context: &CallContext<'_>,
    uri: &str,
) -> Result<(AnnouncementSource, String), String> {
    let config = context.control.config();
    announced_source(uri, &config.streams, config.uploads())
}

/// How a sound is to be played.
pub(super) struct RequestedSound {
    pub(super) layer: Layer,
    pub(super) priority: Priority,
    pub(super) lead: Option<AnnouncementLead>,
    pub(super) ducking: Ducking,
    pub(super) gain: Db,
    pub(super) normalize: bool,
    pub(super) loudness: Option<Lufs>,
    pub(super) key: Option<String>,
    pub(super) title: Option<String>,
}

/// Where a sound is to be played.
pub(super) struct Place {
    pub(super) target: AnnouncementTarget,
    pub(super) station: String,
    pub(super) number: usize,
}

/// The place that a call names by one of these parameters.
pub(super) fn announced_place(
    context: &CallContext<'_>,
    params: &Params<'_>,
    targets: &'static [&'static str],
) -> Result<Place, RpcError> {
    let (target, station) = announced_target(context, params, targets)?;
    let (number, _) = context.station(&station)?;
    Ok(Place { target, station, number })
}

/// Queues the sound of the parameter `uri` at the place that a call names.
pub(super) fn submit(
    context: &mut CallContext<'_>,
    params: &Params<'_>,
    sound: RequestedSound,
) -> Result<AnnouncementEntry, RpcError> {
    let place = announced_place(context, params, TARGETS)?;
    let source = requested_source(context, params.text("uri")?)
        .map_err(|why| RpcError::invalid_params(&why))?;
    queue(context, place, source, sound)
}

/// Passes a sound, with the URI that is shown of it, to the audio side, and lists it.
pub(super) fn queue(
    context: &mut CallContext<'_>,
    place: Place,
    (source, uri): (AnnouncementSource, String),
    sound: RequestedSound,
) -> Result<AnnouncementEntry, RpcError> {
    let Place { target, station, number } = place;
    let RequestedSound { layer, priority, lead, ducking, gain, normalize, loudness, key, title } =
        sound;
    let Subjects { announcements: all, clients, .. } = &mut *context.subjects;
    let (id, own) = (all.next_id(), target.clone());
    let announcement = Announcement {
        id,
        layer,
        target: own,
        priority,
        lead,
        source,
        ducking,
        gain,
        normalize,
        loudness,
        key,
    };
    let of_target = |number, target: &_| sessions(&clients.registry, number, target);
    let announced = context.control.backend.announce(number, &announcement, &of_target);
    announced.map_err(internal_error)?;
    let entry = AnnouncementEntry {
        id,
        layer,
        priority,
        station,
        target,
        number,
        uri,
        title,
        ducking,
        is_playing: false,
    };
    all.add(entry.clone());
    context.control.sound_added.notify_one();
    context.push_effects(Effects { is_shown: true, ..Effects::default() });
    Ok(entry)
}

/// The gain of a volume in percent: the curve of Snapcast's clients, so that a number means the
/// same as in `Client.SetVolume`.
pub(super) fn volume_gain(percent: f64) -> Db {
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
    let layer = Layer::Announcement;
    let cancelled = if let Some(id) = params.optional_integer("id")? {
        named_entries(context, layer, |entry| i64::try_from(entry.id) == Ok(id))
    } else {
        let (target, station) = announced_target(context, params, TARGETS)?;
        let (number, _) = context.station(&station)?;
        let all_of_station = target == AnnouncementTarget::Station;
        named_entries(context, layer, |entry| {
            entry.number == number && (all_of_station || entry.target == target)
        })
    };
    for (id, number) in &cancelled {
        context.control.backend.cancel_announcement(*number, *id);
    }
    let ids: Vec<u64> = cancelled.into_iter().map(|(id, _)| id).collect();
    Ok(json!({ "cancelled": ids }).into())
}

/// The sounds of a layer that a call names: the id of each, and the number of its station.
pub(super) fn named_entries(
    context: &CallContext<'_>,
    layer: Layer,
    is_named: impl Fn(&AnnouncementEntry) -> bool,
) -> Vec<(u64, usize)> {
    let entries = context.subjects.announcements.all().iter();
    let named = entries.filter(|entry| entry.layer == layer && is_named(entry));
    named.map(|entry| (entry.id, entry.number)).collect()
}

/// The clients that the call names by one of `keys`, and the station that they play.
pub(super) fn announced_target(
    context: &CallContext<'_>,
    params: &Params<'_>,
    keys: &'static [&'static str],
) -> Result<(AnnouncementTarget, String), RpcError> {
    let key = params.only_one(keys)?;
    let name = params.text(key)?;
    let registry = &context.subjects.clients.registry;
    Ok(match key {
        "station" => (AnnouncementTarget::Station, name.to_owned()),
        "group" => {
            let group = registry.table.group(name).ok_or(NotFound::Group)?;
            (AnnouncementTarget::Group(name.into()), group.station.clone())
        }
        _ => {
            let (group, _) = registry.table.client(name).ok_or(NotFound::Client)?;
            (AnnouncementTarget::Client(name.into()), group.station.clone())
        }
    })
}

/// The parameters of which one names who hears an announcement.
pub(crate) const TARGETS: &[&str] = &["station", "group", "client"];

/// Range of `loudness_lufs`: below it is quieter than any speech, above it is no headroom.
pub(crate) const MIN_LOUDNESS: f64 = -40.0;
pub(crate) const MAX_LOUDNESS: f64 = -5.0;

/// Maximum length of a key.
const MAX_KEY: usize = 128;

/// Range of `gain_db`: a lower gain is inaudible over the programme; a higher one points to a
/// broken file.
pub(crate) const MIN_GAIN_DB: f64 = -40.0;
pub(crate) const MAX_GAIN_DB: f64 = 20.0;

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

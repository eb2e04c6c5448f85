//! What each Sendspin client is told of its group.
//!
//! Ten times a second the state of each is made and compared with what was sent: it depends on
//! groups, clients, titles and stations, and a comparison cannot forget one of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use aulos_proto::sendspin::{
    ArtworkRequest, ArtworkUpdate, ControllerCommand, ControllerState, PlaybackState, RoomState,
    TrackInfo,
};
use serde_json::{Map, Value};

use super::artwork::{ArtworkKey, ArtworkRenditions};
use crate::backend::{AudioBackend, ReactorEvent, SessionId};
use crate::clients::registry::{Registry, VolumeChange};
use crate::effects::Effects;
use crate::stations::Stations;
use crate::stations::art::picture_name;
use crate::stations::transport::control_stream;

/// The sessions of Sendspin clients, each with what it was sent.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    sessions: HashMap<SessionId, Room>,
}

/// What a client was sent.
#[derive(Debug, Default)]
struct Room {
    state: Option<Arc<RoomState>>,
    /// The pictures that it wants.
    request: ArtworkRequest,
    /// The picture of its station that it was sent; `None` before it was sent one, or that there is
    /// none.
    picture: Option<Option<Arc<str>>>,
}

impl Rooms {
    /// Notes which sessions there are, and tells the audio side what they can play.
    /// Returns how many requests for pictures exceeded a limit.
    pub(crate) fn handle_event(&mut self, event: &ReactorEvent, backend: &dyn AudioBackend) -> u64 {
        match event {
            ReactorEvent::SendspinClient { session, formats } => {
                self.sessions.insert(*session, Room::default());
                backend.set_player_formats(*session, Some(formats));
            }
            ReactorEvent::Artwork { session, request } => {
                let Some(room) = self.sessions.get_mut(session) else { return 0 };
                let limited = request.limited.saturating_sub(room.request.limited);
                (room.request, room.picture) = (*request, None);
                return limited.into();
            }
            ReactorEvent::SessionEnded { session, .. } if self.sessions.contains_key(session) => {
                self.sessions.remove(session);
                backend.set_player_formats(*session, None);
            }
            _ => {}
        }
        0
    }

    /// Sends what has changed. What the audio side cannot take is sent the next time.
    pub(crate) fn update(
        &mut self,
        registry: &Registry,
        stations: &Stations,
        backend: &dyn AudioBackend,
        artwork: &ArtworkRenditions,
    ) {
        let mut wanted = BTreeSet::new();
        for (session, room) in &mut self.sessions {
            let Some(state) = room_state(*session, registry, stations) else { continue };
            let name = state.track.artwork_url.as_deref().and_then(picture_name).map(Arc::from);
            if room.state.as_deref() != Some(&state) {
                let state = Arc::new(state);
                if !backend.set_room(*session, &state) {
                    continue;
                }
                room.state = Some(state);
            }
            room.show_picture(name, stations, artwork, &mut wanted, |update| {
                backend.set_artwork(*session, update)
            });
        }
        artwork.retain(&wanted);
    }
}

impl Room {
    /// Sends the picture of this name as the client wants it, once all its forms are made.
    fn show_picture(
        &mut self,
        name: Option<Arc<str>>,
        stations: &Stations,
        artwork: &ArtworkRenditions,
        wanted: &mut BTreeSet<ArtworkKey>,
        send: impl FnOnce(&Arc<ArtworkUpdate>) -> bool,
    ) {
        let renditions = self.request.renditions;
        let key = |rendition| name.clone().zip(rendition);
        wanted.extend(renditions.into_iter().filter_map(key));
        if self.picture.as_ref() == Some(&name) || renditions.iter().all(Option::is_none) {
            return;
        }
        let mut update = ArtworkUpdate { renditions, ..ArtworkUpdate::default() };
        for (picture, rendition) in update.pictures.iter_mut().zip(renditions) {
            let Some(key) = key(rendition) else { continue };
            let original = || Some(stations.picture(&key.0)?.1);
            let Some(made) = artwork.get(&key, original) else { return };
            *picture = made;
        }
        if send(&Arc::new(update)) {
            self.picture = Some(name);
        }
    }
}

/// Carries out a command of a client for its group.
pub(crate) fn command(
    session: SessionId,
    command: ControllerCommand,
    registry: &mut Registry,
    stations: &Stations,
    backend: &dyn AudioBackend,
) -> Effects {
    let table = &registry.table;
    let client = table.with_session(session).and_then(|client| table.client(&client.id));
    let Some((group, _)) = client else { return Effects::default() };
    let (group, station) = (group.id.clone(), group.station.clone());
    let word = match command {
        ControllerCommand::Volume(volume) => {
            let change = VolumeChange::To(volume.into());
            return registry.change_group_volume(&group, change).unwrap_or_default();
        }
        ControllerCommand::Mute(muted) => {
            return registry.set_mute(&group, muted).unwrap_or_default();
        }
        ControllerCommand::Play => "play",
        ControllerCommand::Pause => "pause",
        ControllerCommand::Stop => "stop",
        ControllerCommand::Next => "next",
        ControllerCommand::Previous => "previous",
        _ => return Effects::default(),
    };
    // What the station cannot do is not offered to the client, so an error tells nobody anything.
    if let Some((number, _)) = stations.find(&station) {
        drop(control_stream(backend, stations, number, word, &Value::Null));
    }
    Effects::default()
}

fn room_state(session: SessionId, registry: &Registry, stations: &Stations) -> Option<RoomState> {
    let table = &registry.table;
    let (group, client) = table.client(&table.with_session(session)?.id)?;
    let slot = stations.find(&group.station).map(|(_, slot)| slot);
    let nothing = Map::new();
    let properties = slot.map_or(&nothing, |slot| &*slot.properties);
    let can = |key: &str| properties.get(key) == Some(&Value::Bool(true));
    let skips =
        slot.is_some_and(|slot| slot.station.sources.iter().any(|source| source.config.can_skip()));
    let is_paused = properties
        .get("playbackStatus")
        .is_some_and(|status| status == "paused" || status == "stopped");
    let members = table.members(&group.id);
    let is_muted = group.muted || members.into_iter().all(|member| member.muted);
    let own_name = if client.name.is_empty() { &client.host_name } else { &client.name };
    Some(RoomState {
        group_id: group.id.clone(),
        group_name: if group.name.is_empty() { own_name.clone() } else { group.name.clone() },
        playback: match is_paused {
            true => PlaybackState::Stopped,
            false => PlaybackState::Playing,
        },
        track: slot.map(|slot| track(&slot.properties)).unwrap_or_default(),
        controller: ControllerState {
            volume: u8::try_from(table.group_volume(&group.id).unwrap_or(0)).unwrap_or(100),
            muted: is_muted,
            can_pause: can("canPause") && can("canPlay"),
            can_skip: can("canGoNext") && can("canGoPrevious") || skips,
        },
    })
}

/// What plays, from the properties of a station, which are those that controllers are shown.
fn track(properties: &Map<String, Value>) -> TrackInfo {
    let Some(metadata) = properties.get("metadata").and_then(Value::as_object) else {
        return TrackInfo::default();
    };
    let text = |key: &str| {
        let value = metadata.get(key)?;
        let first = value.as_array().map_or(Some(value), |all| all.first());
        first?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let number = |key: &str| u32::try_from(metadata.get(key)?.as_u64()?).ok();
    TrackInfo {
        title: text("title"),
        artist: text("artist"),
        album: text("album"),
        album_artist: text("albumArtist"),
        artwork_url: text("artUrl"),
        track: number("trackNumber"),
        year: None,
    }
}

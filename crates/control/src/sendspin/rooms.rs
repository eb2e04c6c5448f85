//! What each Sendspin client is told of its group.
//!
//! Ten times a second the state of each is made and compared with what was sent: it depends on
//! groups, clients, titles and stations, and a comparison cannot forget one of them.

use std::collections::HashMap;
use std::sync::Arc;

use aulos_proto::sendspin::{
    ControllerCommand, ControllerState, PlaybackState, RoomState, TrackInfo,
};
use serde_json::{Map, Value};

use crate::backend::{AudioBackend, ReactorEvent, SessionId};
use crate::clients::registry::{Registry, VolumeChange};
use crate::effects::Effects;
use crate::stations::Stations;
use crate::stations::transport::control_stream;

/// The sessions of Sendspin clients, each with what it was sent.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    sessions: HashMap<SessionId, Option<Arc<RoomState>>>,
}

impl Rooms {
    /// Notes which sessions there are, and tells the audio side what they can play.
    pub(crate) fn handle_event(&mut self, event: &ReactorEvent, backend: &dyn AudioBackend) {
        match event {
            ReactorEvent::SendspinClient { session, formats } => {
                self.sessions.insert(*session, None);
                backend.set_player_formats(*session, Some(formats));
            }
            ReactorEvent::SessionEnded { session, .. } if self.sessions.contains_key(session) => {
                self.sessions.remove(session);
                backend.set_player_formats(*session, None);
            }
            _ => {}
        }
    }

    /// Sends what has changed. What the audio side cannot take is sent the next time.
    pub(crate) fn update(
        &mut self,
        registry: &Registry,
        stations: &Stations,
        backend: &dyn AudioBackend,
    ) {
        for (session, sent) in &mut self.sessions {
            let Some(state) = room_state(*session, registry, stations) else { continue };
            if sent.as_deref() == Some(&state) {
                continue;
            }
            let state = Arc::new(state);
            if backend.set_room(*session, &state) {
                *sent = Some(state);
            }
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

//! Channels and sounds of clients.

use std::fmt;
use std::sync::Arc;

use aulos_core::ChannelMap;
use aulos_dsp::sound::SoundChain;

use super::{Client, Effects, Move, NotFound, Notice, Registry, push_one};
use crate::backend::{ActiveSound, ClientSound};

/// Clients that can have a sound of their own: hundreds of rooms. The state file has room for them.
pub const MAX_CLIENT_SOUNDS: usize = 256;

impl Client {
    /// What it plays of its station. The channels of its sound have precedence over its map.
    #[must_use]
    pub fn sound(&self) -> ClientSound {
        let own = self.chain.as_ref().map(|chain| chain.map).filter(|map| !map.is_stereo());
        ClientSound { map: own.unwrap_or(self.map), chain: self.chain.clone() }
    }

    /// Whether it plays the station's own chunks.
    pub(super) fn plays_all(&self) -> bool {
        self.map == ChannelMap::Stereo && self.chain.is_none()
    }
}

/// Why a client does not get a sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundError {
    /// No such client.
    NotFound(NotFound),
    /// This many different sounds are in use, which is the limit of the configuration.
    TooManySounds(usize),
    /// [`MAX_CLIENT_SOUNDS`] clients have a sound.
    TooManyClients,
}

impl fmt::Display for SoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(what) => write!(f, "{what}"),
            Self::TooManySounds(limit) => write!(
                f,
                "{limit} different sounds are in use, which is the limit: give the client one of \
                 them, or raise `clients.max_sounds`"
            ),
            Self::TooManyClients => {
                write!(
                    f,
                    "{MAX_CLIENT_SOUNDS} clients have a sound of their own, which is the limit"
                )
            }
        }
    }
}

impl std::error::Error for SoundError {}

/// Checks whether a client can get this sound: clients of a station with equal sounds share one
/// rendition, and there are at most `limit` of them.
///
/// # Errors
/// [`SoundError`].
pub(crate) fn check_sound(
    registry: &Registry,
    id: &str,
    chain: &Arc<SoundChain>,
    limit: usize,
) -> Result<(), SoundError> {
    let (group, client) =
        registry.table.client(id).ok_or(SoundError::NotFound(NotFound::Client))?;
    let station = group.station.as_str();
    let mut with = client.clone();
    with.chain = Some(Arc::clone(chain));
    let mut sounds = vec![(station, with.sound())];
    let mut clients = 1;
    for other in registry.table.clients().filter(|one| one.chain.is_some() && one.id != id) {
        clients += 1;
        let group = registry.table.client(&other.id).map(|(group, _)| group);
        let pair = (group.map_or("", |group| group.station.as_str()), other.sound());
        if !sounds.contains(&pair) {
            sounds.push(pair);
        }
    }
    if sounds.len() > limit {
        return Err(SoundError::TooManySounds(limit));
    }
    if clients > MAX_CLIENT_SOUNDS { Err(SoundError::TooManyClients) } else { Ok(()) }
}

/// Sets or ends the sound of a client, which plays on meanwhile.
///
/// # Errors
/// [`SoundError`]; nothing has changed then.
pub(crate) fn set_sound(
    registry: &mut Registry,
    id: &str,
    chain: Option<Arc<SoundChain>>,
    limit: usize,
) -> Result<Effects, SoundError> {
    if let Some(chain) = &chain {
        check_sound(registry, id, chain, limit)?;
    }
    let client = registry.table.client_mut(id).ok_or(SoundError::NotFound(NotFound::Client))?;
    let before = client.sound();
    client.chain = chain;
    let after = client.sound();
    let mut effects = Effects { save: true, ..Effects::notice(Notice::Sound(id.to_owned())) };
    if before != after
        && let Some((group, client)) = registry.table.client(id)
    {
        // Other channels begin anew; another sound is faded in.
        let change = if before.map == after.map { Move::Continue } else { Move::Join };
        push_one(&registry.stations, group, client, Some(change), &mut effects);
    }
    Ok(effects)
}

impl Registry {
    /// Sets which channels a client plays.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_map(&mut self, id: &str, map: ChannelMap) -> Result<Effects, NotFound> {
        let client = self.table.client_mut(id).ok_or(NotFound::Client)?;
        let before = client.sound();
        client.map = map;
        let is_moved = before != client.sound();
        let mut effects =
            Effects { save: true, ..Effects::notice(Notice::ChannelMap(id.to_owned())) };
        self.push_client(id, is_moved, &mut effects);
        Ok(effects)
    }
}

/// Every sound in use by a session of a client, except for that of the station itself.
pub(crate) fn active_sounds(registry: &Registry) -> Vec<ActiveSound> {
    let mut all = Vec::new();
    for client in registry.table.clients().filter(|client| !client.plays_all()) {
        let group = registry.table.client(&client.id).map(|(group, _)| group);
        let number = group.and_then(|group| registry.stations.find(&group.station));
        let Some((station, _)) = number else { continue };
        let sound = client.sound();
        all.extend(client.sessions().map(|session| ActiveSound {
            session,
            station,
            sound: sound.clone(),
        }));
    }
    all
}

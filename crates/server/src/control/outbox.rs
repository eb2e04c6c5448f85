//! Commands that are on their way to the audio.

use std::collections::{BTreeMap, HashMap};

use aulos_core::ChannelMap;

use crate::backend::{
    AudioBackend, CommandQueueFull, KickReason, PlaybackSettings, SessionCommand, SessionId,
};

/// Sessions in the order in which something was first to be told to them, and the newest of each
/// kind of command for each. So it holds no more than two commands per session, however long the
/// audio does not take them, and another one costs the same however many wait.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    order: BTreeMap<u64, SessionId>,
    pending: HashMap<SessionId, PendingCommands>,
    next: u64,
}

/// What one session is to be told. Settings go before the station: a client wants to know the
/// buffer before it gets a codec. After the end there is nothing to be told.
#[derive(Clone, Copy, Debug)]
struct PendingCommands {
    sequence: u64,
    kick: Option<KickReason>,
    settings: Option<PlaybackSettings>,
    station: Option<(usize, ChannelMap)>,
}

impl Outbox {
    pub(super) fn push(&mut self, command: SessionCommand) {
        let session = command.session();
        let (next, line) = (&mut self.next, &mut self.order);
        let waiting = self.pending.entry(session).or_insert_with(|| {
            *next += 1;
            line.insert(*next, session);
            PendingCommands { sequence: *next, kick: None, settings: None, station: None }
        });
        match command {
            SessionCommand::SetSettings { settings, .. } => waiting.settings = Some(settings),
            SessionCommand::MoveClient { station, map, .. } => {
                waiting.station = Some((station, map))
            }
            SessionCommand::Kick { cause, .. } => waiting.kick = Some(cause),
        }
    }

    /// Hands over as many as are taken.
    pub(super) fn flush(&mut self, house: &dyn AudioBackend) {
        while let Some((place, session)) = self.order.pop_first() {
            let Some(mut waiting) = self.pending.remove(&session) else { continue };
            while let Some(command) = waiting.take(session) {
                if let Err(CommandQueueFull(command)) = house.command(command) {
                    waiting.put_back(command);
                    self.order.insert(place, session);
                    self.pending.insert(session, waiting);
                    return;
                }
            }
        }
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(waiting) = self.pending.remove(&session) {
            self.order.remove(&waiting.sequence);
        }
    }
}

impl PendingCommands {
    const fn take(&mut self, session: SessionId) -> Option<SessionCommand> {
        if let Some(cause) = self.kick.take() {
            (self.settings, self.station) = (None, None);
            return Some(SessionCommand::Kick { session, cause });
        }
        if let Some(settings) = self.settings.take() {
            return Some(SessionCommand::SetSettings { session, settings });
        }
        match self.station.take() {
            Some((station, map)) => Some(SessionCommand::MoveClient { session, station, map }),
            None => None,
        }
    }

    const fn put_back(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::SetSettings { settings, .. } => self.settings = Some(settings),
            SessionCommand::MoveClient { station, map, .. } => self.station = Some((station, map)),
            SessionCommand::Kick { cause, .. } => self.kick = Some(cause),
        }
    }
}

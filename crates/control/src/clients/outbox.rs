//! Commands that wait for the audio backend.

use std::collections::{BTreeMap, HashMap};

use crate::backend::{
    AudioBackend, ClientSound, CommandQueueFull, KickReason, ServerSettings, SessionCommand,
    SessionId,
};

/// Sessions in the order of their first pending command, with the newest command of each kind per
/// session. The queue thus holds at most two commands per session however long the backend is busy,
/// and adding one takes the same time whatever its length.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    order: BTreeMap<u64, SessionId>,
    pending: HashMap<SessionId, PendingCommands>,
    next: u64,
}

/// The pending commands of one session. Settings go before the station, because a client needs its
/// buffer length before the codec header. Nothing follows a kick.
#[derive(Clone, Debug)]
struct PendingCommands {
    sequence: u64,
    kick: Option<KickReason>,
    settings: Option<ServerSettings>,
    /// The station, its sound, and whether the session continues.
    station: Option<(usize, ClientSound, bool)>,
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
            SessionCommand::MoveClient { station, sound, continues, .. } => {
                // A session that has not begun has nothing to continue.
                let joins = waiting.station.as_ref().is_some_and(|(_, _, continues)| !continues);
                waiting.station = Some((station, sound, continues && !joins));
            }
            SessionCommand::Kick { cause, .. } => waiting.kick = Some(cause),
        }
    }

    /// Sends commands until the backend's queue is full.
    pub(super) fn flush(&mut self, backend: &dyn AudioBackend) {
        while let Some((place, session)) = self.order.pop_first() {
            let Some(mut waiting) = self.pending.remove(&session) else { continue };
            while let Some(command) = waiting.take(session) {
                if let Err(CommandQueueFull(command)) = backend.command(command) {
                    waiting.put_back(command);
                    self.order.insert(place, session);
                    self.pending.insert(session, waiting);
                    return;
                }
            }
        }
    }

    /// Drops the commands of an ended session.
    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(waiting) = self.pending.remove(&session) {
            self.order.remove(&waiting.sequence);
        }
    }
}

impl PendingCommands {
    fn take(&mut self, session: SessionId) -> Option<SessionCommand> {
        if let Some(cause) = self.kick.take() {
            (self.settings, self.station) = (None, None);
            return Some(SessionCommand::Kick { session, cause });
        }
        if let Some(settings) = self.settings.take() {
            return Some(SessionCommand::SetSettings { session, settings });
        }
        let station = self.station.take();
        station.map(|(station, sound, continues)| SessionCommand::MoveClient {
            session,
            station,
            sound,
            continues,
        })
    }

    fn put_back(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::SetSettings { settings, .. } => self.settings = Some(settings),
            SessionCommand::MoveClient { station, sound, continues, .. } => {
                self.station = Some((station, sound, continues));
            }
            SessionCommand::Kick { cause, .. } => self.kick = Some(cause),
        }
    }
}

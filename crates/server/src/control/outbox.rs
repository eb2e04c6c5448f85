//! Commands that are on their way to the audio.

use std::collections::{BTreeMap, HashMap};

use aulos_core::ChannelMap;

use crate::house::{Cause, Command, Full, House, SessionId, Settings};

/// Sessions in the order in which something was first to be told to them, and the newest of each
/// kind of command for each. So it holds no more than two commands per session, however long the
/// audio does not take them, and another one costs the same however many wait.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    line: BTreeMap<u64, SessionId>,
    waiting: HashMap<SessionId, Waiting>,
    next: u64,
}

/// What one session is to be told. Settings go before the station: a client wants to know the
/// buffer before it gets a codec. After the end there is nothing to be told.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    place: u64,
    kick: Option<Cause>,
    settings: Option<Settings>,
    station: Option<(usize, ChannelMap)>,
}

impl Outbox {
    pub(super) fn push(&mut self, command: Command) {
        let session = command.session();
        let (next, line) = (&mut self.next, &mut self.line);
        let waiting = self.waiting.entry(session).or_insert_with(|| {
            *next += 1;
            line.insert(*next, session);
            Waiting { place: *next, kick: None, settings: None, station: None }
        });
        match command {
            Command::SetSettings { settings, .. } => waiting.settings = Some(settings),
            Command::MoveClient { station, map, .. } => waiting.station = Some((station, map)),
            Command::Kick { cause, .. } => waiting.kick = Some(cause),
        }
    }

    /// Hands over as many as are taken.
    pub(super) fn flush(&mut self, house: &dyn House) {
        while let Some((place, session)) = self.line.pop_first() {
            let Some(mut waiting) = self.waiting.remove(&session) else { continue };
            while let Some(command) = waiting.take(session) {
                if let Err(Full(command)) = house.command(command) {
                    waiting.put_back(command);
                    self.line.insert(place, session);
                    self.waiting.insert(session, waiting);
                    return;
                }
            }
        }
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(waiting) = self.waiting.remove(&session) {
            self.line.remove(&waiting.place);
        }
    }
}

impl Waiting {
    const fn take(&mut self, session: SessionId) -> Option<Command> {
        if let Some(cause) = self.kick.take() {
            (self.settings, self.station) = (None, None);
            return Some(Command::Kick { session, cause });
        }
        if let Some(settings) = self.settings.take() {
            return Some(Command::SetSettings { session, settings });
        }
        match self.station.take() {
            Some((station, map)) => Some(Command::MoveClient { session, station, map }),
            None => None,
        }
    }

    const fn put_back(&mut self, command: Command) {
        match command {
            Command::SetSettings { settings, .. } => self.settings = Some(settings),
            Command::MoveClient { station, map, .. } => self.station = Some((station, map)),
            Command::Kick { cause, .. } => self.kick = Some(cause),
        }
    }
}

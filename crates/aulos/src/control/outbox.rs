//! Commands that are on their way to the audio.

use std::collections::VecDeque;

use crate::house::{Command, Full, House, SessionId};

/// Commands in order. Of each kind only the newest per session is kept, so that it can hold no
/// more than two commands per session however long the audio does not take them.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<Command>);

impl Outbox {
    pub(super) fn push(&mut self, command: Command) {
        if matches!(command, Command::Kick { .. }) {
            self.forget(command.session());
        }
        let same = |old: &&mut Command| {
            old.session() == command.session()
                && std::mem::discriminant(*old) == std::mem::discriminant(&command)
        };
        match self.0.iter_mut().find(same) {
            Some(old) => *old = command,
            None => self.0.push_back(command),
        }
    }

    /// Hands over as many as are taken.
    pub(super) fn flush(&mut self, house: &dyn House) {
        while let Some(command) = self.0.pop_front() {
            if let Err(Full(command)) = house.command(command) {
                self.0.push_front(command);
                return;
            }
        }
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.0.retain(|command| command.session() != session);
    }
}

//! The volume of a player that both sides can change.
//!
//! A player answers a command by reporting its state. A report that was on its way when the command
//! was sent has the volume before it; taken as a change by the user, it would undo the command. So
//! after a command what is reported counts only once it is what was commanded, or after a while.

use aulos_core::{Instant, Span};
use serde_json::{Value, json};

use crate::sendspin::message::{Commands, PlayerState};

/// The volume that the server wants, and since when it waits for the player to have it.
#[derive(Debug, Default)]
pub(super) struct WantedVolume {
    wanted: Option<(u8, bool)>,
    commanded_at: Option<Instant>,
    /// The player has been sent what it has to be, or has it already.
    has_begun: bool,
}

impl WantedVolume {
    /// The server wants this.
    pub(super) fn want(&mut self, volume: u8, muted: bool) {
        self.wanted = Some((volume.min(100), muted));
    }

    /// The commands that bring the player there, as payloads.
    pub(super) fn commands(
        &mut self,
        now: Instant,
        player: PlayerState,
        can: Commands,
    ) -> Vec<Value> {
        let Some((volume, muted)) = self.wanted else { return Vec::new() };
        self.has_begun = true;
        let mut commands = Vec::new();
        let waits = self.commanded_at.is_some();
        if can.volume && (waits || player.volume != Some(volume)) {
            commands.push(json!({ "command": "volume", "volume": volume }));
        }
        if can.mute && (waits || player.muted != Some(muted)) {
            commands.push(json!({ "command": "mute", "mute": muted }));
        }
        if !commands.is_empty() {
            self.commanded_at = Some(now);
        }
        commands
    }

    /// The player reports its state; volume and mute if its user has changed them.
    pub(super) fn reported(
        &mut self,
        now: Instant,
        player: PlayerState,
        can: Commands,
    ) -> Option<(u8, bool)> {
        let (volume, muted) = self.wanted?;
        let own = (
            player.volume.filter(|_| can.volume).unwrap_or(volume),
            player.muted.filter(|_| can.mute).unwrap_or(muted),
        );
        if own == (volume, muted) {
            self.commanded_at = None;
            return None;
        }
        // Before the first command the server's volume holds.
        let is_echo = self.commanded_at.is_some_and(|at| now.since(at) < ECHO_TIMEOUT);
        if is_echo || !self.has_begun {
            return None;
        }
        (self.wanted, self.commanded_at) = (Some(own), None);
        Some(own)
    }
}

/// A player that has not answered a command after this time has its own mind.
const ECHO_TIMEOUT: Span = Span::from_secs(2);

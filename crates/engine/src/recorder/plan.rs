//! Scheduled commands in order. An invalid command is refused when it is scheduled, not when it is
//! due.

use aulos_core::{Instant, MediaTime, Timeline};

use super::types::{CommandError, CommandTime, MAX_PLANNED, RecorderCommand};

/// The time of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPosition {
    Frame(MediaTime),
    /// No frames have been received, so the frame is not known yet.
    Local(Instant),
}

impl CommandPosition {
    pub(super) fn resolve(when: CommandTime, now: Instant, line: Option<Timeline>) -> Self {
        let local = match when {
            CommandTime::Frame(frame) => return Self::Frame(frame),
            CommandTime::Now => now,
            CommandTime::Ago(span) => now - span,
            CommandTime::Local(local) => local,
        };
        line.map_or(Self::Local(local), |line| Self::Frame(line.media_at(local)))
    }

    pub(super) fn at_least(self, frame: MediaTime) -> Self {
        match self {
            Self::Frame(at) => Self::Frame(at.max(frame)),
            Self::Local(_) => self,
        }
    }

    pub(super) const fn frame(self) -> Option<MediaTime> {
        match self {
            Self::Frame(frame) => Some(frame),
            Self::Local(_) => None,
        }
    }

    /// A frame and an instant cannot be compared: they keep their order of arrival.
    fn is_after(self, other: Self) -> bool {
        match (self, other) {
            (Self::Frame(one), Self::Frame(two)) => one > two,
            (Self::Local(one), Self::Local(two)) => one > two,
            _ => false,
        }
    }
}

/// What a recorder does, as far as it decides which commands are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecorderMode {
    Idle,
    Recording,
    Paused,
}

impl RecorderMode {
    fn after(self, command: RecorderCommand) -> Result<Self, CommandError> {
        match (command, self) {
            (RecorderCommand::Start, Self::Idle) => Ok(Self::Recording),
            (RecorderCommand::Start, _) => Err(CommandError::Recording),
            (_, Self::Idle) => Err(CommandError::Idle),
            (RecorderCommand::Stop, _) => Ok(Self::Idle),
            (RecorderCommand::Pause(_) | RecorderCommand::Cut, Self::Paused) => {
                Err(CommandError::Paused)
            }
            (RecorderCommand::Pause(_), Self::Recording) => Ok(Self::Paused),
            (RecorderCommand::Resume, Self::Recording) => Err(CommandError::NotPaused),
            (RecorderCommand::Resume, Self::Paused) | (RecorderCommand::Cut, Self::Recording) => {
                Ok(Self::Recording)
            }
        }
    }
}

/// Commands in the order of their frames.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandPlan {
    list: Vec<(RecorderCommand, CommandPosition)>,
}

impl CommandPlan {
    /// Adds a command after those for the same frame.
    pub(super) fn add(
        &mut self,
        mode: RecorderMode,
        command: RecorderCommand,
        place: CommandPosition,
    ) -> Result<(), CommandError> {
        let behind = self.list.iter().position(|(_, other)| other.is_after(place));
        let at = behind.unwrap_or(self.list.len());
        let mut list = self.list.clone();
        if command == RecorderCommand::Stop {
            let planned = list.len() > at;
            list.truncate(at);
            let ends = list.iter().try_fold(mode, |mode, (next, _)| mode.after(*next))?;
            if ends == RecorderMode::Idle && planned {
                // It cancels what was scheduled for later.
                self.list = list;
                return Ok(());
            }
        }
        if list.len() >= MAX_PLANNED {
            return Err(CommandError::Busy);
        }
        list.insert(at, (command, place));
        list.iter().try_fold(mode, |mode, (next, _)| mode.after(*next))?;
        self.list = list;
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    /// Resolves commands without a frame: `line` is the timeline of the first block, which begins
    /// at `first`.
    pub(super) fn resolve(&mut self, line: Timeline, first: MediaTime) {
        let mut last = first;
        for (_, place) in &mut self.list {
            let frame = match *place {
                CommandPosition::Frame(frame) => frame,
                CommandPosition::Local(local) => line.media_at(local),
            };
            last = last.max(frame);
            *place = CommandPosition::Frame(last);
        }
    }

    /// Keeps the local times of commands when the timeline changes.
    pub(super) fn rebase(&mut self, old: Timeline, new: Timeline) {
        for (_, place) in &mut self.list {
            if let CommandPosition::Frame(frame) = place {
                *frame = new.media_at(old.local_at(*frame));
            }
        }
    }

    /// Moves commands for `past` or before, up to the next stop, to `to` at the latest.
    pub(super) fn pull_forward(&mut self, past: MediaTime, to: MediaTime) {
        for (command, place) in &mut self.list {
            match place {
                CommandPosition::Frame(frame) if *frame <= past => *frame = to.min(*frame),
                _ => return,
            }
            if *command == RecorderCommand::Stop {
                return;
            }
        }
    }

    /// Removes and returns the command that is due at `reached` or before.
    pub(super) fn due(&mut self, reached: MediaTime) -> Option<(RecorderCommand, MediaTime)> {
        let (command, at) = self.list.first().copied()?;
        let frame = at.frame().filter(|frame| *frame <= reached)?;
        self.list.remove(0);
        Some((command, frame))
    }

    pub(super) fn first(&self) -> Option<(RecorderCommand, CommandPosition)> {
        self.list.first().copied()
    }

    pub(super) fn next_frame(&self) -> Option<MediaTime> {
        self.list.first().and_then(|(_, place)| place.frame())
    }
}

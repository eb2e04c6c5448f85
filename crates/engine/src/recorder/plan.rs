//! Commands that wait for their frame, in order; what would make no sense is refused at once, not
//! when its time comes and nobody looks.

use aulos_core::{Instant, MediaTime, Timeline};

use super::types::{CommandError, CommandTime, MAX_PLANNED, RecorderCommand};

/// Where on the line a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPosition {
    Frame(MediaTime),
    /// Nothing has been heard, so no frame is known.
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

    /// A frame and an instant cannot be compared: they stay as they came.
    fn is_after(self, other: Self) -> bool {
        match (self, other) {
            (Self::Frame(one), Self::Frame(two)) => one > two,
            (Self::Local(one), Self::Local(two)) => one > two,
            _ => false,
        }
    }
}

/// What a recorder does, as far as it decides what can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Idle,
    Recording,
    Paused,
}

impl Mode {
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
pub(super) struct Plan {
    list: Vec<(RecorderCommand, CommandPosition)>,
}

impl Plan {
    /// Takes a command in, behind those for the same frame.
    pub(super) fn add(
        &mut self,
        mode: Mode,
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
            if ends == Mode::Idle && planned {
                // It takes back what was to begin later.
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

    /// Gives a frame to what has none: `line` is that of the first block, which begins at `first`.
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

    /// Keeps the moments, where frames are counted anew.
    pub(super) fn rebase(&mut self, old: Timeline, new: Timeline) {
        for (_, place) in &mut self.list {
            if let CommandPosition::Frame(frame) = place {
                *frame = new.media_at(old.local_at(*frame));
            }
        }
    }

    /// What was for `past` or before, up to the next stop, is for `to` at the latest.
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

    /// Takes out what is to be done at `reached` or before.
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

//! The terminal of the meter's screen: raw mode, keys, and restoring it on every exit.

use std::io;
use std::time::Duration;

use aulos_server::exit::{Exit, Failure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use tokio::time::{MissedTickBehavior, interval};

use super::output::MeterResult;
use super::screen::Screen;
use crate::cli::keys::{quits, read_keys};
use crate::cli::signals::Signals;
use crate::cli::source_reader::{ReaderCommand, ReaderEvent, ReaderHandle, thread_panicked};

/// Shows the meter until it ends.
pub(super) async fn run(
    uri: &str,
    colors: bool,
    meter: &mut ReaderHandle,
    signals: &mut Signals,
) -> Result<MeterResult, Failure> {
    let mut keys = read_keys(Key::of)?;
    // `try_init` also installs a panic hook that restores the terminal.
    let mut terminal = TerminalGuard(ratatui::try_init().map_err(|error| failed(&error))?);
    let mut screen = Screen::new(uri, colors);
    let mut frames = interval(FRAME_INTERVAL);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = meter.events.recv() => match event {
                Some(ReaderEvent::Format(rate, layout)) => screen.set_format(rate, layout),
                Some(ReaderEvent::Reading(loudness)) => screen.add_reading(loudness),
                Some(ReaderEvent::Waiting) => screen.waiting = true,
                Some(ReaderEvent::Ended(loudness, result)) => {
                    return Ok(MeterResult { loudness, result, pipe_closed: false });
                }
                None => return Err(thread_panicked()),
            },
            Some(key) = keys.recv() => key.apply(&mut screen, meter),
            () = signals.wait() => meter.send(ReaderCommand::Quit),
            _ = frames.tick() => {
                terminal.0.draw(|frame| screen.draw(frame)).map_err(|error| failed(&error))?;
            }
        }
    }
}

/// Restores the terminal on drop.
struct TerminalGuard(DefaultTerminal);

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// A key of the meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Reset,
    Pause,
    Scale,
}

impl Key {
    fn of(key: KeyEvent) -> Option<Self> {
        match key.code {
            _ if quits(key) => Some(Self::Quit),
            KeyCode::Char('r' | 'R') => Some(Self::Reset),
            KeyCode::Char('p' | 'P' | ' ') => Some(Self::Pause),
            KeyCode::Char('e' | 'E') => Some(Self::Scale),
            _ => None,
        }
    }

    fn apply(self, screen: &mut Screen, meter: &ReaderHandle) {
        match self {
            Self::Quit => meter.send(ReaderCommand::Quit),
            Self::Reset => {
                screen.reset();
                meter.send(ReaderCommand::Reset);
            }
            Self::Pause => {
                screen.paused = !screen.paused;
                meter.send(ReaderCommand::Pause(screen.paused));
            }
            Self::Scale => screen.next_scale(),
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(
        Exit::Io,
        format!("cannot use the terminal: {error}\n    hint: --json, or a pipe, needs none"),
    )
}

/// The rate of new readings.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

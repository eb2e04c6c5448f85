//! Keys of the programs with a screen.

use aulos_server::exit::{Exit, Failure};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{Receiver, channel};

/// Reads keys on a thread of its own, because reading blocks; the thread ends with the process.
/// Keys without a meaning are ignored, and so are resize events: the next frame has the new size.
///
/// # Errors
/// [`Exit::Internal`] without a thread.
pub(super) fn read_keys<K: Send + 'static>(
    meaning: impl Fn(KeyEvent) -> Option<K> + Send + 'static,
) -> Result<Receiver<K>, Failure> {
    let (sender, keys) = channel(16);
    let listen = move || {
        while let Ok(event) = event::read() {
            if let Some(key) = pressed(&event).and_then(&meaning)
                && sender.blocking_send(key).is_err()
            {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("aulos-keys".into())
        .spawn(listen)
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot start a thread: {error}")))?;
    Ok(keys)
}

fn pressed(event: &Event) -> Option<KeyEvent> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(*key),
        _ => None,
    }
}

/// Whether a key ends a program: q, Escape, Ctrl-C or Ctrl-D. The terminal sends no signal for
/// Ctrl-C in raw mode.
pub(super) fn quits(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if control => true,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
        _ => false,
    }
}

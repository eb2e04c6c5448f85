//! Keys of the table of `--top`. Without the feature `tui` there are none.

use std::io::{self, IsTerminal};

use aulos_server::exit::Failure;
#[cfg(feature = "tui")]
use ratatui::crossterm::{
    event::{KeyCode, KeyEvent},
    terminal::{disable_raw_mode, enable_raw_mode},
};
use tokio::sync::mpsc::Receiver;

#[cfg(feature = "tui")]
use crate::cli::keys::{quits, read_keys};

/// A key of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tui"), allow(dead_code, reason = "there are no keys"))]
pub(super) enum Key {
    Quit,
    Scroll(Scroll),
}

/// How far a key scrolls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tui"), allow(dead_code, reason = "there are no keys"))]
pub(super) enum Scroll {
    Line { down: bool },
    Page { down: bool },
    Home,
    End,
}

impl Scroll {
    /// The first line after the key; `page` is the number of lines on the screen.
    pub(super) const fn apply_to(self, first: usize, page: usize) -> usize {
        match self {
            Self::Line { down: false } => first.saturating_sub(1),
            Self::Line { down: true } => first.saturating_add(1),
            Self::Page { down: false } => first.saturating_sub(page),
            Self::Page { down: true } => first.saturating_add(page),
            Self::Home => 0,
            Self::End => usize::MAX,
        }
    }
}

#[cfg(feature = "tui")]
impl Key {
    fn of(key: KeyEvent) -> Option<Self> {
        Some(match key.code {
            _ if quits(key) => Self::Quit,
            KeyCode::Up | KeyCode::Char('k') => Self::Scroll(Scroll::Line { down: false }),
            KeyCode::Down | KeyCode::Char('j') => Self::Scroll(Scroll::Line { down: true }),
            KeyCode::PageUp => Self::Scroll(Scroll::Page { down: false }),
            KeyCode::PageDown | KeyCode::Char(' ') => Self::Scroll(Scroll::Page { down: true }),
            KeyCode::Home => Self::Scroll(Scroll::Home),
            KeyCode::End => Self::Scroll(Scroll::End),
            _ => return None,
        })
    }
}

/// The keys of a terminal, which is in raw mode until this is dropped.
#[derive(Debug)]
pub(super) struct Keys(pub(super) Receiver<Key>);

impl Keys {
    /// Keys, if standard input is a terminal.
    ///
    /// # Errors
    /// Without a thread.
    pub(super) fn open() -> Result<Option<Self>, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        #[cfg(feature = "tui")]
        {
            let keys = read_keys(Key::of)?;
            Ok(enable_raw_mode().is_ok().then_some(Self(keys)))
        }
        #[cfg(not(feature = "tui"))]
        Ok(None)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        #[cfg(feature = "tui")]
        disable_raw_mode().ok();
    }
}

#[cfg(all(test, feature = "tui"))]
mod tests {
    use ratatui::crossterm::event::KeyModifiers;

    use super::*;

    #[test]
    fn keys_scroll_and_quit() {
        let key = |code, modifiers| Key::of(KeyEvent::new(code, modifiers));
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(key(code, KeyModifiers::NONE), Some(Key::Quit));
        }
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), None);
        let down = key(KeyCode::PageDown, KeyModifiers::NONE);
        let Some(Key::Scroll(page)) = down else { panic!("{down:?}") };
        assert_eq!((page.apply_to(5, 20), Scroll::Home.apply_to(5, 20)), (25, 0));
        assert_eq!(Scroll::Page { down: false }.apply_to(5, 20), 0);
        assert_eq!(Scroll::Line { down: false }.apply_to(0, 20), 0);
        assert_eq!(Scroll::Line { down: true }.apply_to(usize::MAX, 20), usize::MAX);
    }
}

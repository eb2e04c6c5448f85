//! Sendspin peers of other implementations: aiosendspin's client and server in two dialects, and
//! sendspin-js in a browser for the third.
//!
//! Each runs in a program of its own (`client.py`, `server.py`, `page.html`) that prints events and
//! takes commands. What a chunk contains and when it sounds is said by the peer's own decoder and
//! its own clock filter: a formula of ours would share its errors with the server.

mod event;
mod page;
mod process;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use event::{Chunk, Event, PlayTime, Received};
pub use page::SendspinPage;
pub use process::SendspinProcess;

use crate::peer::skip;

/// What an aiosendspin speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The specification's, by aiosendspin 10.
    Current,
    /// The first one with Noise, by aiosendspin 9 as in Music Assistant 2.10.
    FirstNoise,
}

impl Dialect {
    /// Its folder among the tools.
    const fn folder(self) -> &'static str {
        match self {
            Self::Current => "10",
            Self::FirstNoise => "9",
        }
    }
}

/// The installed peers.
#[derive(Debug)]
pub struct SendspinTools(PathBuf);

impl SendspinTools {
    /// The peers that `scripts/test-setup` has installed, or a message that the test is skipped.
    #[must_use]
    pub fn find_or_skip() -> Option<Self> {
        let found = std::env::var_os("AULOS_TEST_SENDSPIN").map(PathBuf::from);
        let found = found.filter(|tools| {
            ["10", "9", "common", "js/index.js", "python"].iter().all(|it| tools.join(it).exists())
        });
        if found.is_none() {
            skip("aiosendspin");
        }
        found.map(Self)
    }
}

/// A running peer.
pub trait SendspinPeer {
    /// Its next event; `None` if there is none by then.
    ///
    /// # Errors
    /// If the peer has ended.
    fn next_event(&mut self, deadline: Instant) -> io::Result<Option<Event>>;

    /// What it has received so far.
    fn received(&self) -> &Received;

    /// Waits for an event of which `pick` makes something; earlier ones are passed over. Chunks and
    /// play times are kept in [`SendspinPeer::received`] too.
    ///
    /// # Errors
    /// `TimedOut` if there is none within `limit`, with the names of those that came; and if the
    /// peer has ended.
    fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut pick: impl FnMut(&Event) -> Option<T>,
    ) -> io::Result<T>
    where
        Self: Sized,
    {
        let deadline = Instant::now() + limit;
        let mut passed = Vec::new();
        while let Some(event) = self.next_event(deadline)? {
            if let Some(picked) = pick(&event) {
                return Ok(picked);
            }
            passed.push(event);
        }
        let names: Vec<_> = passed.iter().map(Event::name).collect();
        let complaints = &self.received().complaints;
        let text = format!("{what}: not within {limit:?}, but {names:?}, {complaints:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// Waits until it has received so many chunks.
    ///
    /// # Errors
    /// As [`SendspinPeer::wait_for`].
    fn wait_for_chunks(&mut self, count: usize, limit: Duration) -> io::Result<()>
    where
        Self: Sized,
    {
        let deadline = Instant::now() + limit;
        while self.received().chunks.len() < count {
            if self.next_event(deadline)?.is_none() {
                let text = format!("{} of {count} chunks", self.received().chunks.len());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
        Ok(())
    }
}

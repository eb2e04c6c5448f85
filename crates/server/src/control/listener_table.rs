//! The web listeners, as figures for statistics and the access log.
//!
//! A listener has ended when the reactor has dropped its session. The table is looked at with every
//! tick; nothing is added to the path of a chunk.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aulos_io::reactor::ListenerSession;

/// A web listener.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    /// A number that is never reused in the lifetime of a server.
    pub(crate) id: u64,
    /// Its station; none for an unknown path.
    pub(crate) station: Option<String>,
    /// The first line of its request, without the query, which may have credentials.
    pub(crate) request: String,
    pub(crate) from: IpAddr,
    pub(crate) agent: String,
    pub(crate) referer: String,
    pub(crate) since: Instant,
    pub(crate) session: Arc<ListenerSession>,
}

/// All web listeners.
#[derive(Debug, Default)]
pub(super) struct ListenerTable(Mutex<ListenerState>);

#[derive(Debug, Default)]
struct ListenerState {
    next_id: u64,
    total: u64,
    active: Vec<Listener>,
    /// The most listeners at once of each station.
    peaks: Vec<(String, usize)>,
}

impl ListenerTable {
    /// A poisoned lock is taken all the same: each change is a single step.
    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a listener and gives it an id.
    pub(super) fn add(&self, listener: Listener) {
        let mut state = self.lock();
        state.next_id += 1;
        state.total += 1;
        let id = state.next_id;
        state.active.push(Listener { id, ..listener });
    }

    /// Listeners of a station that receive its stream.
    pub(super) fn of_station(&self, station: &str) -> Vec<Listener> {
        let state = self.lock();
        state.active.iter().filter(|one| one.streams(station)).cloned().collect()
    }

    /// How many there are, and how many there have been at once.
    pub(super) fn count(&self, station: &str) -> (usize, usize) {
        let state = self.lock();
        let now = state.active.iter().filter(|one| one.streams(station)).count();
        let peak =
            state.peaks.iter().find(|(name, _)| name == station).map_or(0, |(_, peak)| *peak);
        (now, peak.max(now))
    }

    /// Listeners so far, and those at present.
    pub(super) fn totals(&self) -> (u64, usize) {
        let state = self.lock();
        (state.total, state.active.iter().filter(|one| one.session.is_streaming()).count())
    }

    /// Removes the listeners whose session has ended.
    pub(super) fn take_ended(&self, stations: &[&str]) -> Vec<Listener> {
        let mut state = self.lock();
        let ListenerState { active, peaks, .. } = &mut *state;
        peaks.retain(|(name, _)| stations.contains(&name.as_str()));
        for station in stations {
            let now = active.iter().filter(|one| one.streams(station)).count();
            match peaks.iter_mut().find(|(name, _)| name == station) {
                Some((_, peak)) => *peak = now.max(*peak),
                None if now > 0 => peaks.push(((*station).to_owned(), now)),
                None => {}
            }
        }
        let is_over = |one: &mut Listener| Arc::strong_count(&one.session) == 1;
        active.extract_if(.., is_over).collect()
    }
}

impl Listener {
    fn streams(&self, station: &str) -> bool {
        self.session.is_streaming() && self.station.as_deref() == Some(station)
    }
}

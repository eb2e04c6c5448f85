//! The web listeners, as figures for statistics and the access log.
//!
//! A listener has ended when the reactor has dropped its session. The table is looked at with every
//! tick; nothing is added to the path of a chunk.

use std::collections::BTreeMap;
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
pub(crate) struct ListenerTable(Mutex<ListenerState>);

#[derive(Debug, Default)]
struct ListenerState {
    next_id: u64,
    total: u64,
    active: Vec<Listener>,
    /// The most listeners at once of each station.
    peaks: BTreeMap<String, usize>,
}

impl ListenerTable {
    /// A poisoned lock is taken all the same: each change is a single step.
    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a listener and gives it an id.
    pub(crate) fn add(&self, listener: Listener) {
        let mut state = self.lock();
        state.next_id += 1;
        state.total += 1;
        let id = state.next_id;
        state.active.push(Listener { id, ..listener });
    }

    /// Listeners of a station that receive its stream.
    pub(crate) fn of_station(&self, station: &str) -> Vec<Listener> {
        let state = self.lock();
        state.active.iter().filter(|one| one.streams(station)).cloned().collect()
    }

    /// Disconnects the listener of this station with this id; false if there is none.
    pub(crate) fn cut(&self, station: &str, id: u64) -> bool {
        let state = self.lock();
        let found = state.active.iter().find(|one| one.id == id && one.streams(station));
        found.inspect(|one| one.session.cut()).is_some()
    }

    /// Registers the listeners of one station for another one, and returns their number.
    pub(crate) fn move_to(&self, from: &str, to: &str) -> usize {
        let mut state = self.lock();
        let moved = state.active.iter_mut().filter(|one| one.station.as_deref() == Some(from));
        moved.map(|one| one.station = Some(to.to_owned())).count()
    }

    /// How many there are, and how many there have been at once.
    pub(crate) fn count(&self, station: &str) -> (usize, usize) {
        let state = self.lock();
        let now = state.active.iter().filter(|one| one.streams(station)).count();
        (now, state.peaks.get(station).map_or(now, |peak| *peak.max(&now)))
    }

    /// Listeners of this station, with those that have not begun.
    pub(crate) fn registered(&self, station: &str) -> usize {
        let is_of = |one: &&Listener| one.station.as_deref() == Some(station);
        self.lock().active.iter().filter(is_of).count()
    }

    /// Listeners so far, and those at present.
    pub(crate) fn totals(&self) -> (u64, usize) {
        let state = self.lock();
        (state.total, state.active.iter().filter(|one| one.session.is_streaming()).count())
    }

    /// Removes the listeners whose session has ended, and the peaks of stations that are gone.
    pub(crate) fn take_ended(&self, is_station: impl Fn(&str) -> bool) -> Vec<Listener> {
        let mut state = self.lock();
        let ListenerState { active, peaks, .. } = &mut *state;
        peaks.retain(|name, _| is_station(name));
        let mut now: BTreeMap<&str, usize> = BTreeMap::new();
        for name in active.iter().filter_map(|one| one.streamed_station()) {
            *now.entry(name).or_default() += 1;
        }
        for (name, count) in now {
            match peaks.get_mut(name) {
                Some(peak) => *peak = count.max(*peak),
                None => drop(peaks.insert(name.to_owned(), count)),
            }
        }
        let is_over = |one: &mut Listener| Arc::strong_count(&one.session) == 1;
        active.extract_if(.., is_over).collect()
    }
}

impl Listener {
    fn streams(&self, station: &str) -> bool {
        self.streamed_station() == Some(station)
    }

    /// The station whose stream it receives.
    fn streamed_station(&self) -> Option<&str> {
        self.station.as_deref().filter(|_| self.session.is_streaming())
    }
}

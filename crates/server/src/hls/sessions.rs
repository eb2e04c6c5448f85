//! Sessions of clients of HLS.
//!
//! A client asks for a playlist and a segment now and then; what it is between two requests, no
//! connection says. A session is all requests for one station from one address with one
//! `User-Agent`, or with one `id` in the query, until none has come for some time. To the rest of
//! the program it is a web listener: in the status, the statistics, the metrics and the access log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aulos_control::backend::ListenerSession;

/// What tells sessions apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub(crate) station: String,
    pub(crate) from: IpAddr,
    /// The `id` of the query, or the `User-Agent`.
    pub(crate) client: String,
}

/// The sessions of all stations.
#[derive(Debug, Default)]
pub(crate) struct HlsSessions(Mutex<HashMap<SessionKey, Entry>>);

#[derive(Debug)]
struct Entry {
    session: Arc<ListenerSession>,
    last: Instant,
}

impl HlsSessions {
    /// The session of a request, which goes on with it.
    pub(crate) fn find(&self, key: &SessionKey, now: Instant) -> Option<Arc<ListenerSession>> {
        let mut sessions = self.lock();
        let entry = sessions.get_mut(key)?;
        entry.last = now;
        Some(Arc::clone(&entry.session))
    }

    /// Adds a session; one that another request has added before is the one. Beyond
    /// [`MAX_SESSIONS`] nothing is remembered.
    pub(crate) fn add(
        &self,
        key: SessionKey,
        session: Arc<ListenerSession>,
        now: Instant,
    ) -> Arc<ListenerSession> {
        let mut sessions = self.lock();
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&key) {
            return session;
        }
        let entry = sessions.entry(key).or_insert(Entry { session, last: now });
        entry.last = now;
        Arc::clone(&entry.session)
    }

    /// Ends the sessions without a request for [`SESSION_TIMEOUT`].
    pub(crate) fn end_idle(&self, now: Instant) {
        self.lock().retain(|_, entry| now.duration_since(entry.last) < SESSION_TIMEOUT);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Entry>> {
        // A poisoned lock is taken all the same: each change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client loads a playlist every 20 s at most, that is a segment of the longest duration.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(45);

/// Some hundred bytes each.
const MAX_SESSIONS: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: &str) -> SessionKey {
        let from = "192.0.2.1".parse().unwrap();
        SessionKey { station: "a".to_owned(), from, client: client.to_owned() }
    }

    #[test]
    fn a_session_lasts_while_requests_come_and_not_longer() {
        let (sessions, start) = (HlsSessions::default(), Instant::now());
        assert!(sessions.find(&key("x"), start).is_none());
        let session = sessions.add(key("x"), Arc::default(), start);
        let again = sessions.add(key("x"), Arc::default(), start);
        assert!(Arc::ptr_eq(&session, &again), "two requests at once are one session");
        let later = start + SESSION_TIMEOUT - Duration::from_secs(1);
        assert!(
            sessions.find(&key("x"), later).is_some() && sessions.find(&key("y"), later).is_none()
        );
        sessions.end_idle(later + SESSION_TIMEOUT - Duration::from_secs(1));
        assert!(sessions.find(&key("x"), later).is_some());
        sessions.end_idle(later + SESSION_TIMEOUT);
        assert!(sessions.find(&key("x"), later).is_none());
    }

    #[test]
    fn no_number_of_clients_takes_memory_without_end() {
        let (sessions, now) = (HlsSessions::default(), Instant::now());
        for number in 0..MAX_SESSIONS + 10 {
            sessions.add(key(&number.to_string()), Arc::default(), now);
        }
        assert_eq!(sessions.lock().len(), MAX_SESSIONS);
    }
}

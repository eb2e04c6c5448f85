//! The web listeners: who they are for statistics, and the access log.
//!
//! A listener is registered when its connection is handed to the audio side, and has ended when the
//! reactor has dropped its session. The table is looked at with every tick; nothing is added to the
//! path of a chunk.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use aulos_io::reactor::ListenerSession;
use aulos_proto::http::ReceivedHead;
use aulos_proto::uri::Uri;

use super::{Control, ControlState};

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

impl Control {
    /// Registers a listener by the head of its request. Its session goes to the audio side.
    pub(crate) fn register_listener(&self, head: &[u8], from: IpAddr) -> Arc<ListenerSession> {
        let session = Arc::<ListenerSession>::default();
        let (request, path) = request_line(head);
        let field = |name: &str| {
            let head = ReceivedHead::parse(head).ok()?;
            Some(printable(&String::from_utf8_lossy(head.field(name)?)))
        };
        let station = station_of(&self.lock(), &path);
        let listener = Listener {
            id: 0,
            station,
            request,
            from,
            agent: field("user-agent").unwrap_or_default(),
            referer: field("referer").unwrap_or_default(),
            since: Instant::now(),
            session: Arc::clone(&session),
        };
        let mut state = self.listeners.lock();
        state.next_id += 1;
        state.total += 1;
        let id = state.next_id;
        state.active.push(Listener { id, ..listener });
        session
    }

    /// Logs the listeners that have ended since the last call.
    pub(super) fn log_ended_listeners(&self, inner: &ControlState) {
        let stations: Vec<&str> =
            inner.slots().map(|(_, slot)| slot.station.name.as_str()).collect();
        for listener in self.listeners.take_ended(&stations) {
            if listener.session.is_streaming() && self.access_log.is_enabled() {
                self.access_log.write(access_line(&listener, SystemTime::now()));
            }
        }
    }
}

/// The first line without its query, and the decoded path behind `/listen/`.
fn request_line(head: &[u8]) -> (String, String) {
    let parsed = ReceivedHead::parse(head).ok();
    let line = parsed.as_ref().and_then(ReceivedHead::request_line);
    let Some((method, target, version)) = line else { return Default::default() };
    let path = target.split('?').next().unwrap_or_default();
    let name = path.strip_prefix("/listen/").unwrap_or_default();
    // `Uri` percent-decodes the path of a complete URI only.
    let decoded = format!("http://station/{name}").parse::<Uri>().map(|uri| uri.path);
    let name = decoded.unwrap_or_default().trim_start_matches('/').to_owned();
    (printable(&format!("{method} {path} {version}")), name)
}

/// The station of a path, by its name or by its name with an ending.
fn station_of(inner: &ControlState, name: &str) -> Option<String> {
    let named = |name: &str| inner.slot(name).map(|(_, slot)| slot.station.name.clone());
    named(name).or_else(|| named(name.rsplit_once('.')?.0))
}

/// At most 200 characters in one line, without what would end a field of the access log.
fn printable(text: &str) -> String {
    let letters = text.chars().filter(|c| !c.is_control()).take(200);
    letters.map(|c| if c == '"' { '\'' } else { c }).collect()
}

/// A line of the access log: the combined format, and the seconds as the last field, as in Icecast.
fn access_line(listener: &Listener, now: SystemTime) -> String {
    let Listener { from, request, agent, referer, session, since, .. } = listener;
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    format!(
        "{} - - [{}] \"{request}\" 200 {} \"{}\" \"{}\" {}\n",
        from.to_canonical(),
        super::icecast_stats::log_date(now),
        session.bytes(),
        or_dash(referer),
        or_dash(agent),
        since.elapsed().as_secs(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_access_log_has_no_query_and_no_quotes_of_others() {
        let head = b"GET /listen/a%20b.ogg?token=secret HTTP/1.1\r\nUser-Agent: VLC \"3\"\r\n\r\n";
        let (request, path) = request_line(head);
        assert_eq!((&*request, &*path), ("GET /listen/a%20b.ogg HTTP/1.1", "a b.ogg"));
        let listener = Listener {
            id: 1,
            station: None,
            request,
            from: "::ffff:192.0.2.7".parse().unwrap(),
            agent: printable("VLC \"3\"\n"),
            referer: String::new(),
            since: Instant::now(),
            session: Arc::default(),
        };
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(951_825_599);
        let expected = "192.0.2.7 - - [29/Feb/2000:11:59:59 +0000] \"GET /listen/a%20b.ogg \
                        HTTP/1.1\" 200 0 \"-\" \"VLC '3'\" 0\n";
        assert_eq!(access_line(&listener, now), expected);
    }
}

//! Web listeners: who receives which station, and the access log.
//!
//! A listener is registered when its connection is handed to the audio side.

mod access_log;
pub(crate) mod table;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use aulos_config::StationSettings;
use aulos_io::reactor::ListenerSession;
use aulos_proto::http::ReceivedHead;
use aulos_proto::uri::Uri;

use crate::control::clock::Clock;
use crate::events::EventLog;
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::views::dates::log_date;
use access_log::AccessLog;
use table::{Listener, ListenerTable};

/// The web listeners, and the log of those that have ended.
#[derive(Debug, Default)]
pub struct Listeners {
    table: ListenerTable,
    access_log: AccessLog,
}

impl Listeners {
    /// Registers a listener by the head of its request; `station_of` gives the station of a path
    /// below `/listen/`. Its session goes to the audio side.
    pub(crate) fn register(
        &self,
        (head, from): (&[u8], IpAddr),
        now: Instant,
        events: &EventLog,
        station_of: impl FnOnce(&str) -> Option<String>,
    ) -> Arc<ListenerSession> {
        let session = Arc::<ListenerSession>::default();
        let (request, path) = request_line(head);
        let field = |name: &str| {
            let head = ReceivedHead::parse(head).ok()?;
            Some(printable(&String::from_utf8_lossy(head.field(name)?)))
        };
        let listener = Listener {
            id: 0,
            station: station_of(&path),
            request,
            from,
            agent: field("user-agent").unwrap_or_default(),
            referer: field("referer").unwrap_or_default(),
            since: now,
            session: Arc::clone(&session),
        };
        add_event(events, &listener, "connected");
        self.table.add(listener);
        session
    }

    /// Writes the access log into the file that is configured at the time, until the future is
    /// dropped.
    pub async fn write_access_log(&self, configured: impl Fn() -> Option<PathBuf>) {
        self.access_log.run(configured).await;
    }

    /// Whether more listeners of this mount are registered than it may have.
    #[must_use]
    pub fn is_full(&self, mount: &StationSettings) -> bool {
        let most = mount.mount.as_ref().and_then(|settings| settings.max_listeners);
        most.is_some_and(|most| self.table.registered(&mount.name) > most as usize)
    }

    /// Disconnects a listener of this station within a second; false if there is none of this id.
    pub fn cut(&self, station: &str, id: u64) -> bool {
        self.table.cut(station, id)
    }

    /// Registers the listeners of one mount for another one, and returns their number; the audio
    /// side moves their connections.
    pub fn move_to(&self, from: &str, to: &str) -> usize {
        self.table.move_to(from, to)
    }

    /// Logs the listeners that have ended since the last call.
    pub(crate) fn log_ended(
        &self,
        clock: &Clock,
        events: &EventLog,
        is_station: impl Fn(&str) -> bool,
    ) {
        for listener in self.table.take_ended(is_station) {
            if listener.session.is_streaming() && self.access_log.is_enabled() {
                let seconds = clock.now().saturating_duration_since(listener.since).as_secs();
                self.access_log.write(access_line(&listener, clock.wall(), seconds));
            }
            add_event(events, &listener, "disconnected");
        }
    }

    pub(crate) const fn table(&self) -> &ListenerTable {
        &self.table
    }
}

/// Adds an event of a listener of a station, within the limit of lines that peers can cause.
/// Its address is personal data, which listeners may not see.
fn add_event(events: &EventLog, listener: &Listener, what: &str) {
    let Some(station) = listener.station.as_ref().filter(|_| events.admits()) else { return };
    events.add(NewEvent {
        kind: EventKind::Listener,
        severity: EventSeverity::Info,
        station: Some(station.clone()),
        subject: listener.agent.clone(),
        text: format!("web listener {what}"),
    });
}

/// The first line without its query, and the decoded path behind `/listen/`.
fn request_line(head: &[u8]) -> (String, String) {
    let parsed = ReceivedHead::parse(head).ok();
    let line = parsed.as_ref().and_then(ReceivedHead::request_line);
    let Some((method, target, version)) = line else { return Default::default() };
    let path = target.split('?').next().unwrap_or_default();
    // All that a client of HLS asks for is below the name of its station.
    let hls = path.strip_prefix("/hls/").and_then(|rest| rest.split('/').next());
    let listen = path.strip_prefix("/listen/").or(hls);
    let name = listen.unwrap_or_default().trim_start_matches('/');
    // `Uri` percent-decodes the path of a complete URI only.
    let decoded = format!("http://station/{name}").parse::<Uri>().map(|uri| uri.path);
    let name = decoded.unwrap_or_default().trim_start_matches('/').to_owned();
    (printable(&format!("{method} {path} {version}")), name)
}

/// At most 200 characters in one line, without what would end a field of the access log.
fn printable(text: &str) -> String {
    let letters = text.chars().filter(|c| !c.is_control()).take(200);
    letters.map(|c| if c == '"' { '\'' } else { c }).collect()
}

/// A line of the access log: the combined format, and the seconds as the last field, as in Icecast.
fn access_line(listener: &Listener, now: SystemTime, seconds: u64) -> String {
    let Listener { from, request, agent, referer, session, .. } = listener;
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    format!(
        "{} - - [{}] \"{request}\" 200 {} \"{}\" \"{}\" {}\n",
        from.to_canonical(),
        log_date(now),
        session.bytes(),
        or_dash(referer),
        or_dash(agent),
        seconds,
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
        let (request_of_mount, path) = request_line(b"GET /a.mp3?x=1 HTTP/1.1\r\n\r\n");
        assert_eq!((&*request_of_mount, &*path), ("GET /a.mp3 HTTP/1.1", ""));
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
        assert_eq!(access_line(&listener, now, 0), expected);
    }
}

//! Integration with systemd: notifications (ready, reloading, watchdog, stopping), and sockets
//! opened by socket activation.
//!
//! The protocol is a datagram of `KEY=VALUE` lines to the socket in `$NOTIFY_SOCKET`
//! (`sd_notify(3)`); a library for that would be longer than this.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use aulos_control::backend::StationPosition;
use aulos_io::SystemClock;
use aulos_io::activation::{self, ActivationEnvironment, InheritedListener};

use crate::exit::{Exit, Failure};

/// The service manager that started this process; does nothing if that was not systemd.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Watchdog time-out (`WatchdogSec=`).
    watchdog: Option<Duration>,
}

/// Limits the time for which a supervisor that does not read can block.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

/// A station advances by one chunk at a time, of 60 ms at most, and publishes each.
const MIN_HEARTBEAT: Duration = Duration::from_millis(250);

impl Supervisor {
    /// The supervisor given by the environment.
    #[must_use]
    pub fn from_env() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let supervisor = Self::connect(&name).unwrap_or_else(|error| {
            tracing::warn!(path = %name.display(), %error, "cannot use NOTIFY_SOCKET");
            Self::default()
        });
        let value = |name| std::env::var(name).ok();
        let timeout = watchdog_timeout(value("WATCHDOG_USEC"), value("WATCHDOG_PID"));
        Self { watchdog: timeout, ..supervisor }
    }

    /// Interval of [`notify_alive`](Self::notify_alive): half of the time-out, as
    /// `sd_watchdog_enabled(3)` recommends. `None` without a watchdog.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Duration> {
        self.socket.as_ref().and(self.watchdog).map(|timeout| (timeout / 2).max(MIN_HEARTBEAT))
    }

    /// Reports that the server is alive.
    pub fn notify_alive(&self) {
        self.notify("WATCHDOG=1");
    }

    /// A supervisor that listens on this socket: a path, or after `@` an abstract name.
    ///
    /// # Errors
    /// When the name is invalid, or no socket can be created.
    pub fn connect(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket: Some((socket, address)), watchdog: None })
    }

    /// Reports readiness; `status` appears in `systemctl status`.
    pub fn notify_ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the configuration is being reloaded, until [`Self::notify_ready`].
    pub fn notify_reloading(&self) {
        // Type=notify-reload compares this with its own clock.
        let now = SystemClock::now().as_nanos() / 1_000;
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Reports that the shutdown has begun.
    pub fn notify_stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// Reports another text for `systemctl status`.
    pub fn notify_status(&self, status: &str) {
        self.notify(&format!("STATUS={}", one_line(status)));
    }

    fn notify(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "cannot notify systemd");
        }
    }
}

/// `WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process.
fn watchdog_timeout(usec: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let usec = usec?.parse().ok().filter(|usec| *usec > 0)?;
    is_ours.then(|| Duration::from_micros(usec))
}

/// Checks whether the server works: a station at the same position as at the last check is stuck,
/// because media time advances with or without audio.
#[derive(Debug, Default)]
pub struct Liveness {
    last: Vec<StationPosition>,
    warned: bool,
}

impl Liveness {
    /// Whether every station has advanced since the last check. The first stuck one is logged,
    /// once.
    pub fn check(&mut self, positions: Vec<StationPosition>) -> bool {
        let stuck = positions.iter().find(|one| self.last.contains(one));
        match stuck {
            Some(one) if !self.warned => {
                tracing::error!(
                    station = one.name,
                    "station stalled; withholding the watchdog heartbeat"
                );
            }
            _ => {}
        }
        self.warned = stuck.is_some();
        let is_alive = stuck.is_none();
        self.last = positions;
        is_alive
    }
}

/// Sockets that were open before the server started, and that are not in use yet.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<InheritedListener>);

impl InheritedSockets {
    /// The sockets that systemd has opened for this process (socket activation).
    ///
    /// # Errors
    /// [`Exit::Unavailable`] when they are not what the environment says.
    pub fn from_env() -> Result<Self, Failure> {
        let value = |name| std::env::var(name).unwrap_or_default();
        let handover = ActivationEnvironment {
            pid: value("LISTEN_PID"),
            count: value("LISTEN_FDS"),
            names: value("LISTEN_FDNAMES"),
        };
        activation::take_listeners(&handover).map(Self).map_err(|error| {
            let hint = "    hint: each must be a ListenStream= with a port in a .socket unit";
            Failure::new(
                Exit::Unavailable,
                format!("cannot use the sockets of systemd: {error}\n{hint}"),
            )
        })
    }

    /// The socket for a key of `[listen]`: by its name, otherwise by the configured port.
    pub(crate) fn take(&mut self, key: &str, port: u16) -> Option<TcpListener> {
        let fits = |one: &InheritedListener| {
            let own = one.listener.local_addr().map(|address| address.port());
            port != 0 && own.ok() == Some(port)
        };
        let named = self.0.iter().position(|one| one.name == key);
        let at = named.or_else(|| self.0.iter().position(fits))?;
        Some(self.0.swap_remove(at).listener)
    }

    /// Closes unused sockets, and logs them.
    pub fn close_unused(self) {
        for InheritedListener { name, listener } in self.0 {
            let address = listener.local_addr().map_or_else(|_| name, |at| at.to_string());
            tracing::warn!(
                address,
                hint = "use the port of a key of [listen], or FileDescriptorName= stream, control \
                        or http",
                "socket of systemd not used by the configuration; closed"
            );
        }
    }
}

/// A line break would start another key.
fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut block = [0; 512];
        let count = socket.recv(&mut block).unwrap();
        String::from_utf8(block[..count].to_vec()).unwrap()
    }

    #[test]
    fn notifications_reach_path_and_abstract_sockets() {
        let scratch = ScratchDir::new("notify").unwrap();
        let path = scratch.join("socket");
        let name = format!("aulos-notify-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&hidden).unwrap(), format!("@{name}").into()),
        ];
        for (socket, name) in sockets {
            let supervisor = Supervisor::connect(&name).unwrap();
            supervisor.notify_ready("2 stations\nSTOPPING=1");
            assert_eq!(received(&socket), "READY=1\nSTATUS=2 stations STOPPING=1");
            supervisor.notify_reloading();
            let said = received(&socket);
            let since = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(since.parse::<u64>().unwrap() > 0, "{said}");
            supervisor.notify_stopping();
            assert_eq!(received(&socket), "STOPPING=1");
        }
    }

    #[test]
    fn signs_of_life_are_sent_where_they_are_waited_for() {
        let own = std::process::id().to_string();
        let timeout = |usec: &str, pid: Option<&str>| {
            watchdog_timeout(Some(usec.to_owned()), pid.map(str::to_owned))
        };
        assert_eq!(timeout("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(timeout("30000000", Some(&own)), Some(Duration::from_secs(30)));
        assert_eq!(timeout("30000000", Some("1")), None, "for another process");
        for bad in ["", "0", "-1", "x"] {
            assert_eq!(timeout(bad, None), None, "{bad}");
        }
        assert_eq!(watchdog_timeout(None, None), None);
        let scratch = ScratchDir::new("notify-alive").unwrap();
        let path = scratch.join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::connect(path.as_os_str()).unwrap();
        assert_eq!(supervisor.heartbeat(), None, "nothing waits for it");
        let watchdog = Some(Duration::from_secs(30));
        let supervisor = Supervisor { watchdog, ..supervisor };
        assert_eq!(supervisor.heartbeat(), Some(Duration::from_secs(15)));
        assert_eq!(Supervisor { watchdog, socket: None }.heartbeat(), None);
        supervisor.notify_alive();
        assert_eq!(received(&socket), "WATCHDOG=1");
    }

    #[test]
    fn a_stalled_station_sends_no_watchdog_notification() {
        let at = |run, position| StationPosition {
            instance: run,
            name: format!("s{run}"),
            position: aulos_core::MediaTime(position),
        };
        let mut liveness = Liveness::default();
        assert!(liveness.check(vec![at(1, 0), at(2, 0)]), "they may just have begun");
        assert!(liveness.check(vec![at(1, 960), at(2, 960)]));
        assert!(!liveness.check(vec![at(1, 1_920), at(2, 960)]), "one of two");
        assert!(!liveness.check(vec![at(1, 2_880), at(2, 960)]), "still");
        assert!(liveness.check(vec![at(1, 3_840), at(2, 1_920)]), "it goes on");
        assert!(liveness.check(vec![at(1, 4_800), at(3, 1_920)]), "another station in its place");
        assert!(
            liveness.check(vec![]) && liveness.check(vec![]),
            "without stations control counts"
        );
    }

    #[test]
    fn a_removed_station_does_not_stop_the_watchdog() {
        let scratch = ScratchDir::new("notify-gone").unwrap();
        let path = scratch.join("socket");
        Supervisor::connect(path.as_os_str()).unwrap().notify_ready("fine");
        Supervisor::default().notify_ready("fine");
    }
}

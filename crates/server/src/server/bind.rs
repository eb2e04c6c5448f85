//! Opening what a server needs before its first task: ports, the TLS policy, the state directory.

use std::fs::DirBuilder;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use aulos_config::{Endpoint, ListenEndpoints, RelaySettings, ResolvedConfig, SendspinSettings};
use aulos_control::backend::ListenPolicy;
use aulos_io::reactor::lengthen_backlog;

use crate::exit::{Exit, Failure};
use crate::relay::RtpRelayManager;
use crate::systemd::InheritedSockets;
use crate::tls;

/// The open ports of the control plane.
#[derive(Debug)]
pub struct ControlPlaneSockets {
    pub(super) control: TcpListener,
    pub(super) http: TcpListener,
    pub(super) listen_policy: ListenPolicy,
    pub(super) relays: RtpRelayManager,
    /// For Sendspin players.
    pub(super) sendspin: Option<TcpListener>,
    /// Address for controllers.
    pub control_address: SocketAddr,
    /// Address for browsers.
    pub http_address: SocketAddr,
    /// Address for Sendspin players, if they are served.
    pub sendspin_address: Option<SocketAddr>,
}

impl ControlPlaneSockets {
    /// Sets the policy for connections to these ports; the default accepts everything.
    #[must_use]
    pub fn with_listen_policy(self, policy: ListenPolicy) -> Self {
        Self { listen_policy: policy, ..self }
    }

    /// Starts these relays beside the control plane; by default there are none at the start.
    ///
    /// # Errors
    /// [`Exit::Unavailable`] or [`Exit::Permission`] when a port cannot be opened.
    pub fn with_relays(self, relays: &[RelaySettings]) -> Result<Self, Failure> {
        Ok(Self { relays: RtpRelayManager::start(relays)?, ..self })
    }

    /// Opens the port for Sendspin players, if they are served.
    ///
    /// # Errors
    /// As [`bind`].
    pub fn with_sendspin(
        self,
        settings: Option<&SendspinSettings>,
        given: &mut InheritedSockets,
    ) -> Result<Self, Failure> {
        let opened = settings.map(|settings| bind_port("sendspin", &settings.listen, given));
        let (sendspin, sendspin_address) = opened.transpose()?.unzip();
        Ok(Self { sendspin, sendspin_address, ..self })
    }

    /// The policy for connections.
    pub(super) const fn listen_policy(&self) -> &ListenPolicy {
        &self.listen_policy
    }

    /// The relays.
    #[must_use]
    pub const fn relays(&self) -> &RtpRelayManager {
        &self.relays
    }
}

/// The policy for connections. If TLS is not explicitly configured and no certificate can be had,
/// the server runs without TLS.
///
/// # Errors
/// [`Exit::Config`] when the configured TLS cannot be set up.
pub fn listen_policy(resolved: &ResolvedConfig) -> Result<ListenPolicy, Failure> {
    let security = &resolved.security;
    tls::listen_policy(&security.tls, security.limits, &resolved.state_dir).or_else(|error| {
        if security.tls.is_required() {
            return Err(Failure::new(Exit::Config, format!("TLS: {error}")));
        }
        tracing::warn!(%error, "TLS is not available");
        Ok(ListenPolicy { limits: security.limits, ..ListenPolicy::default() })
    })
}

/// Opens the ports except inherited ones; reports every port that cannot be opened, with a hint how
/// to choose another.
///
/// # Errors
/// [`Exit::Unavailable`], or [`Exit::Permission`] when none of them is allowed.
pub fn bind(
    listen: &ListenEndpoints,
    given: &mut InheritedSockets,
) -> Result<ControlPlaneSockets, Failure> {
    let control = bind_port("control", &listen.control, given);
    let http = bind_port("http", &listen.http, given);
    match (control, http) {
        (Ok((control, control_address)), Ok((http, http_address))) => {
            let (listen_policy, relays) = (ListenPolicy::default(), RtpRelayManager::default());
            Ok(ControlPlaneSockets {
                control,
                http,
                listen_policy,
                relays,
                sendspin: None,
                control_address,
                http_address,
                sendspin_address: None,
            })
        }
        (Err(first), Err(second)) => {
            let exit = if second.exit == Exit::Permission { first.exit } else { second.exit };
            Err(Failure::new(exit, format!("{}\n{}", first.message, second.message)))
        }
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

/// Opens one port of `[listen]`; `key` is its key there. An inherited port is open already.
///
/// # Errors
/// As [`bind`].
pub fn bind_port(
    key: &str,
    endpoint: &Endpoint,
    given: &mut InheritedSockets,
) -> Result<(TcpListener, SocketAddr), Failure> {
    let mut open = || {
        let listener = match given.take(key, endpoint.port) {
            Some(listener) => listener,
            None => {
                let addresses: Vec<_> =
                    (endpoint.host.as_str(), endpoint.port).to_socket_addrs()?.collect();
                TcpListener::bind(&addresses[..])?
            }
        };
        listener.set_nonblocking(true)?;
        lengthen_backlog(&listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|error| bind_failure(key, endpoint, &error))
}

/// The failure for a port that cannot be opened, with the likely remedy.
fn bind_failure(key: &str, endpoint: &Endpoint, error: &io::Error) -> Failure {
    let set = |host: &str, port: u16| {
        let name = match key {
            "sendspin" => "sendspin.listen".to_owned(),
            key => format!("listen.{key}"),
        };
        format!("--set {name}={}", Endpoint { host: host.to_owned(), port })
    };
    let (host, port) = (endpoint.host.as_str(), endpoint.port);
    let (exit, fact, hint) = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let next = if port == u16::MAX { port - 1 } else { port + 1 };
            let (next, any) = (set(host, next), set(host, 0));
            let hint = format!("use another port with {next}, or any free one with {any}");
            (Exit::Unavailable, "is in use by another program".to_owned(), hint)
        }
        io::ErrorKind::PermissionDenied => {
            let other = set(host, port.saturating_add(UNPRIVILEGED_OFFSET));
            let hint = format!(
                "use a port from 1024 on with {other}, or give the program the capability \
                 CAP_NET_BIND_SERVICE"
            );
            let fact = "is not permitted: ports below 1024 need a privilege".to_owned();
            (Exit::Permission, fact, hint)
        }
        io::ErrorKind::AddrNotAvailable => {
            let (all, own) = (set("0.0.0.0", port), set("127.0.0.1", port));
            let hint = format!("use all addresses with {all}, or this machine only with {own}");
            (Exit::Unavailable, "is not an address of this machine".to_owned(), hint)
        }
        _ => {
            let hint = format!("use another address with {}", set("127.0.0.1", port));
            (Exit::Unavailable, format!("cannot be opened: {error}"), hint)
        }
    };
    Failure::new(exit, format!("the {key} port {endpoint} {fact}\n    hint: {hint}"))
}

/// Added to a privileged port for the hint: 80 becomes 8080.
const UNPRIVILEGED_OFFSET: u16 = 8_000;

/// Creates the state directory, for this user alone, if it is missing.
///
/// # Errors
/// [`Exit::CannotCreate`] or [`Exit::Permission`].
pub fn make_state_dir(dir: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let exit = if denied { Exit::Permission } else { Exit::CannotCreate };
        let hint = "use another directory with --state-dir DIR";
        Failure::new(
            exit,
            format!("the state directory {}: {error}\n    hint: {hint}", dir.display()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_cannot_be_opened_is_named_with_a_remedy() {
        use io::ErrorKind as K;
        for (kind, port, exit, remedies) in [
            (K::AddrInUse, 1780, Exit::Unavailable, ["10.0.0.1:1781", "10.0.0.1:0"]),
            (K::AddrInUse, u16::MAX, Exit::Unavailable, ["10.0.0.1:65534", "10.0.0.1:0"]),
            (K::PermissionDenied, 80, Exit::Permission, ["10.0.0.1:8080", "CAP_NET_BIND_SERVICE"]),
            (K::AddrNotAvailable, 80, Exit::Unavailable, ["0.0.0.0:80", "127.0.0.1:80"]),
        ] {
            let endpoint = Endpoint { host: "10.0.0.1".to_owned(), port };
            let failure = bind_failure("http", &endpoint, &kind.into());
            let text = failure.message;
            assert_eq!(failure.exit, exit, "{text}");
            assert!(text.starts_with(&format!("the http port 10.0.0.1:{port} is ")), "{text}");
            assert!(remedies.iter().all(|remedy| text.contains(remedy)), "{text}");
        }
    }
}

//! Opening what a server needs before its first task: ports, the TLS policy, the state directory.

use std::fs::DirBuilder;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use aulos_config::{Endpoint, ListenEndpoints, RelaySettings, ResolvedConfig};
use aulos_io::reactor::lengthen_backlog;

use crate::backend::ListenPolicy;
use crate::exit::{Exit, Failure};
use crate::relay::RelayManager;
use crate::systemd::InheritedSockets;
use crate::tls;

/// The open ports of the control plane.
#[derive(Debug)]
pub struct BoundPorts {
    pub(super) control: TcpListener,
    pub(super) http: TcpListener,
    pub(super) listen_policy: ListenPolicy,
    pub(super) relays: RelayManager,
    /// Address for controllers.
    pub control_address: SocketAddr,
    /// Address for browsers.
    pub http_address: SocketAddr,
}

impl BoundPorts {
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
        Ok(Self { relays: RelayManager::start(relays)?, ..self })
    }

    /// The policy for connections.
    pub(super) const fn listen_policy(&self) -> &ListenPolicy {
        &self.listen_policy
    }

    /// The relays.
    #[must_use]
    pub const fn relays(&self) -> &RelayManager {
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
        tracing::warn!("there is no TLS: {error}");
        Ok(ListenPolicy { limits: security.limits, ..ListenPolicy::default() })
    })
}

/// Opens the ports except inherited ones; reports every port that cannot be opened, with a hint how
/// to choose another.
///
/// # Errors
/// [`Exit::Unavailable`], or [`Exit::Permission`] when none of them is allowed.
pub fn bind(listen: &ListenEndpoints, given: &mut InheritedSockets) -> Result<BoundPorts, Failure> {
    let control = bind_port("control", &listen.control, given);
    let http = bind_port("http", &listen.http, given);
    match (control, http) {
        (Ok((control, control_address)), Ok((http, http_address))) => {
            let (listen_policy, relays) = (ListenPolicy::default(), RelayManager::default());
            Ok(BoundPorts { control, http, listen_policy, relays, control_address, http_address })
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
    open().map_err(|error: io::Error| {
        let other = Endpoint { port: endpoint.port.saturating_add(1), ..endpoint.clone() };
        let free = Endpoint { port: 0, ..endpoint.clone() };
        let choose = format!(
            "    hint: choose another with --set listen.{key}={other}, or any free one with \
             --set listen.{key}={free}"
        );
        let (exit, fact) = match error.kind() {
            io::ErrorKind::AddrInUse => (Exit::Unavailable, "is in use by another program".into()),
            io::ErrorKind::PermissionDenied => {
                (Exit::Permission, "is not allowed: ports below 1024 are the system's".into())
            }
            io::ErrorKind::AddrNotAvailable => {
                (Exit::Unavailable, "is not an address of this machine".into())
            }
            _ => (Exit::Unavailable, format!("cannot be opened: {error}")),
        };
        Failure::new(exit, format!("the {key} port {endpoint} {fact}\n{choose}"))
    })
}

/// Creates the state directory, for this user alone, if it is missing.
///
/// # Errors
/// [`Exit::CannotCreate`] or [`Exit::Permission`].
pub fn make_state_dir(dir: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let exit = if denied { Exit::Permission } else { Exit::CannotCreate };
        let hint = "choose another with --state-dir DIR";
        Failure::new(
            exit,
            format!("the state directory {}: {error}\n    hint: {hint}", dir.display()),
        )
    })
}

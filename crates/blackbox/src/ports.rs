//! Ports for programs that cannot let the system choose one.
//!
//! A port that was free a moment ago may be given to another program before it is used, or twice to
//! the same test. So these come from outside the range that the system chooses from, and each is
//! given once: the claim is a socket in the abstract namespace, which the kernel removes with the
//! process and which, like the ports, belongs to one network namespace.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Below the range of the system's own choice (32,768 and more), above the usual services.
const FIRST: u16 = 10_000;
const LAST: u16 = 19_998;

/// The claims of this process, and the port that is tried next.
static CLAIMS: Mutex<(Vec<UnixDatagram>, u16)> = Mutex::new((Vec::new(), 0));

/// An even port of loopback that no test has been given, free for TCP and UDP as the one after it,
/// which RTCP uses.
///
/// # Errors
/// If all are taken.
pub fn free_port() -> io::Result<u16> {
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    if claims.1 == 0 {
        // Processes that run side by side begin at different ports.
        let pairs = u32::from((LAST - FIRST) / 2);
        let pair = std::process::id().wrapping_mul(97) % pairs;
        claims.1 = FIRST + 2 * u16::try_from(pair).unwrap_or_default();
    }
    for _ in (FIRST..=LAST).step_by(2) {
        let port = claims.1;
        claims.1 = if port >= LAST { FIRST } else { port + 2 };
        let Ok(claim) = claim(port) else { continue };
        if [port, port + 1].into_iter().all(is_free) {
            claims.0.push(claim);
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("ports {FIRST} to {LAST} are taken")))
}

fn claim(port: u16) -> io::Result<UnixDatagram> {
    let name = format!("aulos-test-port-{port}");
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_and_taken_ones_are_left_out() {
        let mut ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        let last = ports[49];
        assert!(claim(last).is_err(), "another process could claim {last}");
        let next = if last >= LAST { FIRST } else { last + 2 };
        let _taken = UdpSocket::bind(("127.0.0.1", next + 1));
        assert_ne!(free_port().unwrap(), next);
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| port.is_multiple_of(2)));
    }
}

//! Socket activation: listening sockets that systemd opens and passes to the server. systemd starts
//! the server on the first connection, and connections survive a restart (`sd_listen_fds(3)`).
//!
//! The descriptors are inherited through `exec` with numbers from 3 on; the environment holds their
//! count and the process they are meant for.

use std::io;
use std::net::TcpListener;

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::sys;

/// A listening socket that was inherited.
#[derive(Debug)]
pub struct InheritedListener {
    /// Its name (`FileDescriptorName=`); systemd's default is the name of the unit.
    pub name: String,
    /// The socket.
    pub listener: TcpListener,
}

/// The environment variables of socket activation.
#[derive(Clone, Debug, Default)]
pub struct ActivationEnvironment {
    /// `LISTEN_PID`.
    pub pid: String,
    /// `LISTEN_FDS`.
    pub count: String,
    /// `LISTEN_FDNAMES`.
    pub names: String,
}

/// More than a server has ports.
const MAX_INHERITED: i32 = 64;
/// The number of the first descriptor.
const FIRST_DESCRIPTOR: i32 = 3;

/// Takes the inherited sockets. Works once: a second call finds none.
///
/// # Errors
/// When a descriptor is not open or not a TCP listener, or there are more than 64.
pub fn take_listeners(handover: &ActivationEnvironment) -> io::Result<Vec<InheritedListener>> {
    if handover.pid.parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: i32 = handover.count.parse().unwrap_or(0);
    if !(0..=MAX_INHERITED).contains(&count) {
        return Err(io::Error::other(format!("{count} sockets exceed the limit")));
    }
    let mut names = handover.names.split(':');
    let mut all = Vec::new();
    for (number, taken) in (FIRST_DESCRIPTOR..).zip(sys::take_inherited(FIRST_DESCRIPTOR, count)?) {
        let name = names.next().unwrap_or_default().to_owned();
        let Some(descriptor) = taken else { continue };
        let is_port = sockopt::socket_acceptconn(&descriptor)?
            && sockopt::socket_type(&descriptor)? == SocketType::STREAM
            && [AddressFamily::INET, AddressFamily::INET6]
                .contains(&sockopt::socket_domain(&descriptor)?);
        if !is_port {
            let what = "not a listening TCP socket (ListenStream=)";
            return Err(io::Error::other(format!("descriptor {number} ({name}): {what}")));
        }
        all.push(InheritedListener { name, listener: descriptor.into() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_another_process_or_opened_here_are_not_used() {
        let handover = |pid: u32, count: &str| ActivationEnvironment {
            pid: pid.to_string(),
            count: count.to_owned(),
            names: String::new(),
        };
        let own = std::process::id();
        assert!(take_listeners(&handover(own + 1, "3")).unwrap().is_empty());
        assert!(take_listeners(&handover(own, "")).unwrap().is_empty());
        assert!(
            take_listeners(&handover(own, "-1")).is_err()
                && take_listeners(&handover(own, "65")).is_err()
        );
        // A descriptor that was opened in this process keeps its owner.
        let file = std::fs::File::open(".").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(sys::take_inherited(number, 1).unwrap().iter().all(Option::is_none));
        drop(file);
    }

    #[test]
    fn no_descriptor_is_taken_twice() {
        use std::os::fd::AsRawFd;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Like a descriptor that was inherited through `exec`.
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
        let number = listener.as_raw_fd();
        // Only the first call in a process takes descriptors, and this is not the first.
        sys::take_inherited(0, 0).unwrap();
        assert!(sys::take_inherited(number, 1).unwrap().iter().all(Option::is_none));
        // The descriptor is still open and still has its owner.
        assert!(listener.local_addr().is_ok());
    }

    #[test]
    fn standard_streams_and_files_are_never_inherited_sockets() {
        assert!(sys::take_inherited(0, 3).unwrap().iter().all(Option::is_none));
    }
}

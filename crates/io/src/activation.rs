//! Ports that were open before this process began: systemd listens, and starts the server when
//! somebody comes, or starts it anew while nobody is turned away (`sd_listen_fds(3)`).
//!
//! The descriptors come through `exec` with the numbers from 3 on, and the environment says how many
//! there are and for whom.

use std::io;
use std::net::TcpListener;

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::sys;

/// A port that was open before.
#[derive(Debug)]
pub struct InheritedListener {
    /// What it is called (`FileDescriptorName=`); for systemd's default, the name of its unit.
    pub name: String,
    /// The port.
    pub listener: TcpListener,
}

/// What the environment says of them.
#[derive(Clone, Debug, Default)]
pub struct ActivationEnvironment {
    /// `LISTEN_PID`.
    pub pid: String,
    /// `LISTEN_FDS`.
    pub count: String,
    /// `LISTEN_FDNAMES`.
    pub names: String,
}

/// More than a server has ports for.
const MAX_INHERITED: i32 = 64;
/// The first one's number.
const FIRST_DESCRIPTOR: i32 = 3;

/// Takes them, once: the second call finds none.
///
/// # Errors
/// When one of them is not open, is no port of TCP, or there are more than 64.
pub fn take_listeners(handover: &ActivationEnvironment) -> io::Result<Vec<InheritedListener>> {
    if handover.pid.parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: i32 = handover.count.parse().unwrap_or(0);
    if !(0..=MAX_INHERITED).contains(&count) {
        return Err(io::Error::other(format!("{count} sockets at once")));
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
            let what = "it does not listen for TCP connections (ListenStream=)";
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
    fn what_is_for_another_process_or_was_opened_here_is_not_taken() {
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
        // Whatever it is that has this number, it came from this process: it stays whose it is.
        let file = std::fs::File::open(".").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(sys::take_inherited(number, 1).unwrap().iter().all(Option::is_none));
        drop(file);
    }

    #[test]
    fn no_descriptor_is_taken_twice() {
        use std::os::fd::AsRawFd;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // As one that came through `exec`.
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
        let number = listener.as_raw_fd();
        // Whichever test was first, this one is not.
        sys::take_inherited(0, 0).unwrap();
        assert!(sys::take_inherited(number, 1).unwrap().iter().all(Option::is_none));
        // It is open still, and whose it was.
        assert!(listener.local_addr().is_ok());
    }

    #[test]
    fn standard_streams_and_files_are_never_taken() {
        assert!(sys::take_inherited(0, 3).unwrap().iter().all(Option::is_none));
    }
}

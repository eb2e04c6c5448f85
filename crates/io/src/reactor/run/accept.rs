//! Accepts connections and sets the options of their sockets.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
#[cfg(not(target_os = "linux"))]
use std::os::fd::AsFd as _;

use aulos_core::Span;
use rustix::event::epoll::EventFlags;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::super::connection_limiter::{AddressPermit, AdmitError};
use super::super::mailbox::ReactorCommand;
#[cfg(not(target_os = "linux"))]
use super::socket::configure_socket;
use super::{Reactor, ReactorEntity};
use crate::SystemClock;
use crate::descriptors::DescriptorUse;

impl Reactor {
    pub(super) fn accept(&mut self, token: u64) {
        self.accept_some(token);
        for (index, mailbox) in self.mailboxes.iter().enumerate() {
            if index == self.index {
                continue;
            }
            mailbox.wake();
        }
    }

    fn accept_some(&mut self, token: u64) {
        for _ in 0..MAX_ACCEPTS {
            let Some(ReactorEntity::Acceptor(listener)) = self.entities.get_mut(token) else {
                return;
            };
            match DescriptorUse::Sound.check_next().and_then(|()| accept(listener)) {
                Ok((socket, address)) => {
                    self.stats.accepted += 1;
                    match self.connection_limiter.admit(address.ip(), SystemClock::now()) {
                        Ok(permit) => {
                            self.has_new_peers = true;
                            self.add_connection(socket, address, permit);
                        }
                        Err(AdmitError::TooMany) => self.stats.refused += 1,
                        Err(AdmitError::TooFast) => self.stats.refused_too_fast += 1,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Most likely out of descriptors: the listener would stay ready for ever. It
                    // pauses and tries again later.
                    self.stats.accept_errors += 1;
                    self.modify(token, EventFlags::empty());
                    self.acceptors_paused_until = Some(SystemClock::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn add_connection(&mut self, socket: TcpStream, address: SocketAddr, permit: AddressPermit) {
        let command = ReactorCommand::AddSnapcastClient(socket, address, permit);
        self.next_mailbox = (self.next_mailbox + 1) % self.mailboxes.len();
        if self.next_mailbox == self.index {
            self.handle_command(command);
        } else {
            // A reactor that is thousands of commands behind accepts no connection; the socket
            // closes.
            let taken = self.mailboxes[self.next_mailbox].enqueue(command);
            self.stats.accept_errors += u64::from(!taken);
        }
    }

    pub(super) fn resume_acceptors(&mut self) {
        self.acceptors_paused_until = None;
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            if let Some(ReactorEntity::Acceptor(_)) = self.entities.get_mut(token) {
                self.modify(token, EventFlags::IN);
            }
        }
    }
}

/// Accepts a non-blocking connection.
#[cfg(target_os = "linux")]
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, address) = acceptfrom_with(listener, flags)?;
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    Ok((socket.into(), address.ok_or(io::ErrorKind::NotConnected)?))
}

/// The same on systems where accepted sockets do not inherit options.
#[cfg(not(target_os = "linux"))]
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, address) = listener.accept()?;
    socket.set_nonblocking(true)?;
    configure_socket(socket.as_fd())?;
    Ok((socket, address))
}

/// Connections accepted per poll.
const MAX_ACCEPTS: usize = 64;

/// The pause after running out of descriptors.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::net::sockopt;

    use super::super::socket::{DEAD_AFTER_MS, SEND_BUFFER, configure_socket};
    use super::*;

    #[test]
    fn accepted_sockets_have_the_options_of_media_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        configure_socket(listener.as_fd()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, address) = accept(&listener).unwrap();
        assert!(address.ip().is_loopback());
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), DEAD_AFTER_MS);
        // The kernel doubles the value for its own bookkeeping.
        let buffer = sockopt::socket_send_buffer_size(&socket).unwrap();
        assert!((SEND_BUFFER / 2..=2 * SEND_BUFFER).contains(&buffer), "{buffer}");
        let mut byte = [0];
        let read = io::Read::read(&mut &socket, &mut byte);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

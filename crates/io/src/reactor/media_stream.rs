//! A non-blocking byte stream over a socket that was accepted elsewhere.

use std::io::{self, Read, Write};

use rustix::net::sockopt;

use super::connection::MediaConnection;
use super::connection_limiter::AddressPermit;
use super::tls::MediaSocket;

/// Non-blocking reads and writes, through TLS where it is used.
#[derive(Debug)]
pub struct MediaStream {
    connection: MediaConnection,
    _permit: AddressPermit,
}

impl MediaStream {
    /// The byte stream of a socket.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn new(mut socket: MediaSocket) -> io::Result<Self> {
        socket.socket.set_nonblocking(true)?;
        sockopt::set_socket_recv_buffer_size(&socket.socket, RECEIVE_BUFFER)?;
        let permit = core::mem::take(&mut socket.permit);
        Ok(Self {
            connection: MediaConnection::from_media_socket(socket, MediaConnection::new),
            _permit: permit,
        })
    }
}

impl Read for MediaStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.connection.read(into)
    }
}

impl Write for MediaStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush()
    }
}

/// Receive buffer: a sender that is faster than playout is held back before minutes of audio pile
/// up in the kernel.
const RECEIVE_BUFFER: usize = 64 * 1_024;

//! A socket that was accepted elsewhere, for whoever reads a stream from it.

use std::io::{self, Read, Write};

use rustix::net::sockopt;

use super::connection::MediaConnection;
use super::connection_limiter::AddressPermit;
use super::tls::MediaSocket;

/// Bytes without waiting, through TLS where that is spoken.
#[derive(Debug)]
pub struct MediaStream {
    connection: MediaConnection,
    _permit: AddressPermit,
}

impl MediaStream {
    /// The bytes of this socket.
    ///
    /// # Errors
    /// When the socket cannot be made not to block.
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

/// What the kernel keeps of a stream: whoever sends faster than it is played is held back before
/// minutes of it lie there.
const RECEIVE_BUFFER: usize = 64 * 1_024;

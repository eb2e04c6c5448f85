//! TLS around a media socket.
//!
//! rustls is a machine like ours: it is given what the socket gave and says what is to go into it,
//! and never touches a socket by itself. So TLS is one more way in which a [`Line`](super::line)
//! reads and writes, and nothing else of a session knows of it. What a session holds is bounded: at
//! most 64 KiB wait to be sent, and one record (or a handshake's 64 KiB) to be read. A thread or a
//! task per session that does the TLS was rejected for the same reason as one that does the sending.
//!
//! Chunks are encrypted for each session anew, and so they are copied: never from their own memory.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::connection_limiter::{AddressLimits, AddressPermit};

/// What a connection has to be to be let in.
#[derive(Clone, Debug, Default)]
pub struct ListenPolicy {
    /// How TLS is spoken; none: not at all.
    pub tls: Option<LazyTlsConfig>,
    /// Whoever does not speak it is cut.
    pub require_tls: bool,
    /// What one address may have.
    pub limits: AddressLimits,
}

/// How TLS is spoken: a certificate, and what is asked of the peer.
#[derive(Clone, Debug)]
pub struct LazyTlsConfig(Arc<LazyLock<Option<Arc<ServerConfig>>, MakeTlsConfig>>);

type MakeTlsConfig = Box<dyn FnOnce() -> Option<Arc<ServerConfig>> + Send>;

impl LazyTlsConfig {
    /// Terms that `make` works out when somebody speaks TLS for the first time: on many servers
    /// nobody ever does, and the code for it is a tenth of the memory of an idle one. `make` reads no
    /// file, because it may run on a reactor.
    #[must_use]
    pub fn new_lazy(make: impl FnOnce() -> Option<Arc<ServerConfig>> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }

    /// The terms; none, when they could not be made after all.
    #[must_use]
    pub fn get(&self) -> Option<&Arc<ServerConfig>> {
        LazyLock::force(&self.0).as_ref()
    }
}

impl From<Arc<ServerConfig>> for LazyTlsConfig {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self::new_lazy(|| Some(config))
    }
}

/// A connection that was accepted or made elsewhere: its socket, and all that belongs to it.
#[derive(Debug)]
pub struct MediaSocket {
    pub(super) socket: TcpStream,
    pub(super) tls: Option<Box<Connection>>,
    pub(super) address: SocketAddr,
    pub(super) permit: AddressPermit,
    pub(super) authorized: bool,
}

impl MediaSocket {
    /// A socket that does not block, from `address`.
    #[must_use]
    pub fn new(socket: TcpStream, address: SocketAddr, permit: AddressPermit) -> Self {
        Self { socket, tls: None, address, permit, authorized: false }
    }

    /// The same with TLS, whose handshake is over.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Box<ServerConnection>>) -> Self {
        self.tls = tls.map(|tls| Box::new(Connection::Server(*tls)));
        self
    }

    /// The same for a connection that we have made.
    #[must_use]
    pub fn with_client_tls(mut self, tls: Option<Box<ClientConnection>>) -> Self {
        self.tls = tls.map(|tls| Box::new(Connection::Client(*tls)));
        self
    }

    /// Somebody has made sure already that this client may listen.
    #[must_use]
    pub const fn authorized(mut self, vouched: bool) -> Self {
        self.authorized = vouched;
        self
    }

    /// Where it comes from.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it speaks TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether somebody has made sure already that this client may listen.
    #[must_use]
    pub const fn is_authorized(&self) -> bool {
        self.authorized
    }

    /// The socket alone, for whoever wants to do something else with it.
    #[must_use]
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Sends this as far as it can be sent at once, and hangs up.
    pub fn respond_and_close(mut self, bytes: &[u8]) {
        let sent = match self.tls.take() {
            None => self.socket.write(bytes).map(drop),
            Some(tls) => {
                let mut tls = TlsSession::new(tls);
                let sent = tls.write(&self.socket, &[IoSlice::new(bytes)]).map(drop);
                tls.send_close_notify(&self.socket);
                sent
            }
        };
        // Whoever does not take the answer gets none.
        drop(sent);
    }
}

/// The first byte of a connection that speaks TLS: a record with a handshake (RFC 8446, 5.1). No
/// message of Snapcast's begins with it, and no request of HTTP.
pub const TLS_FIRST_BYTE: u8 = 0x16;

/// One session's TLS.
#[derive(Debug)]
pub(super) struct TlsSession(Box<Connection>);

/// What went into a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteCounts {
    pub(super) calls: u64,
    pub(super) bytes: u64,
}

impl TlsSession {
    /// Goes on with a connection.
    pub(super) const fn new(connection: Box<Connection>) -> Self {
        Self(connection)
    }

    /// Begins with the first bytes of one.
    pub(super) fn begin(
        terms: &LazyTlsConfig,
        socket: &TcpStream,
        mut first: &[u8],
    ) -> io::Result<Self> {
        let config = terms.get().ok_or(io::ErrorKind::InvalidData)?;
        let connection = ServerConnection::new(Arc::clone(config)).map_err(tls_error)?;
        let mut tls = Self(Box::new(connection.into()));
        while !first.is_empty() {
            tls.process_incoming(socket, &mut first)?;
        }
        Ok(tls)
    }

    /// Whether the handshake is not over yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Whether the peer has shown a certificate, which was good.
    pub(super) fn has_certificate(&self) -> bool {
        self.0.peer_certificates().is_some_and(|chain| !chain.is_empty())
    }

    /// Reads what the peer said. What has been decrypted already comes first: of that the kernel
    /// does not know.
    pub(super) fn read(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.process_incoming(socket, &mut &*socket)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Takes some of what the peer sent, and answers as far as that is TLS's own business.
    fn process_incoming(&mut self, socket: &TcpStream, from: &mut dyn Read) -> io::Result<usize> {
        let count = self.0.read_tls(from)?;
        let state = self.0.process_new_packets();
        // The handshake's answers, or an alert; what does not go now goes with the next write.
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        state.map_err(tls_error)?;
        Ok(count)
    }

    /// Encrypts as much as there is room for, and sends as much of that as the socket takes.
    ///
    /// # Errors
    /// `WouldBlock` when the socket has yet to take what was encrypted before.
    pub(super) fn write(
        &mut self,
        socket: &TcpStream,
        slices: &[IoSlice<'_>],
    ) -> io::Result<(usize, WriteCounts)> {
        let mut written = self.flush(socket)?;
        let taken = self.0.writer().write_vectored(slices)?;
        match self.flush(socket) {
            Ok(more) => written = written.plus(more),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok((taken, written))
    }

    /// Sends what has been encrypted.
    ///
    /// # Errors
    /// `WouldBlock` while the socket does not take all of it.
    pub(super) fn flush(&mut self, socket: &TcpStream) -> io::Result<WriteCounts> {
        let mut written = WriteCounts::default();
        while self.0.wants_write() {
            let count = self.0.write_tls(&mut &*socket)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written = written.plus(WriteCounts { calls: 1, bytes: count as u64 });
        }
        Ok(written)
    }

    /// Says that nothing more will come, as far as the socket takes it: whoever plays what it gets
    /// can tell our end from somebody's cut.
    pub(super) fn send_close_notify(&mut self, socket: &TcpStream) {
        if !self.0.is_handshaking() {
            self.0.send_close_notify();
            drop(self.flush(socket));
        }
    }
}

impl WriteCounts {
    const fn plus(self, more: Self) -> Self {
        Self { calls: self.calls + more.calls, bytes: self.bytes + more.bytes }
    }
}

/// What breaks TLS comes as this kind, and nothing else does.
fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

//! TLS of a media socket.
//!
//! rustls does no I/O: it is given the bytes of the socket and returns bytes to send. So TLS is one
//! more way in which a [`MediaConnection`](super::connection) reads and writes, and the rest of a
//! session does not depend on it. The memory of a session is bounded: at most 64 KiB wait to be
//! sent, and one record (or 64 KiB of a handshake) to be read. `docs/decisions/tls.md` has the
//! alternatives.
//!
//! Chunks are encrypted for each session, so they are copied and never sent from their own memory.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::connection_limiter::{AddressLimits, AddressPermit};

/// The requirements for a connection to be accepted.
#[derive(Clone, Debug, Default)]
pub struct ListenPolicy {
    /// The TLS configuration; `None` disables TLS.
    pub tls: Option<LazyTlsConfig>,
    /// Whether clients without TLS are cut.
    pub require_tls: bool,
    /// The limits per address.
    pub limits: AddressLimits,
}

/// A TLS server configuration that is built on first use.
#[derive(Clone, Debug)]
pub struct LazyTlsConfig(Arc<LazyLock<Option<Arc<ServerConfig>>, MakeTlsConfig>>);

type MakeTlsConfig = Box<dyn FnOnce() -> Option<Arc<ServerConfig>> + Send>;

impl LazyTlsConfig {
    /// Builds the configuration with `make` at the first TLS connection: many servers never have
    /// one, and the TLS code is a tenth of the memory of an idle server. `make` must not read
    /// files, because it may run on a reactor.
    #[must_use]
    pub fn new_lazy(make: impl FnOnce() -> Option<Arc<ServerConfig>> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }

    /// The configuration; `None` when it could not be built.
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

/// A connection that was accepted or opened elsewhere, with its TLS state and its permit.
#[derive(Debug)]
pub struct MediaSocket {
    pub(super) socket: TcpStream,
    pub(super) tls: Option<Box<Connection>>,
    /// The client; behind a proxy, its word.
    pub(super) address: SocketAddr,
    /// The other end of the connection.
    pub(super) peer: IpAddr,
    pub(super) permit: AddressPermit,
    pub(super) authorized: bool,
    is_https: bool,
}

impl MediaSocket {
    /// A non-blocking socket whose peer is `address`.
    #[must_use]
    pub fn new(socket: TcpStream, address: SocketAddr, permit: AddressPermit) -> Self {
        let peer = address.ip();
        Self { socket, tls: None, address, peer, permit, authorized: false, is_https: false }
    }

    /// Adds server TLS whose handshake is complete.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Box<ServerConnection>>) -> Self {
        self.is_https = tls.is_some();
        self.tls = tls.map(|tls| Box::new(Connection::Server(*tls)));
        self
    }

    /// Adds client TLS whose handshake is complete.
    #[must_use]
    pub fn with_client_tls(mut self, tls: Option<Box<ClientConnection>>) -> Self {
        self.tls = tls.map(|tls| Box::new(Connection::Client(*tls)));
        self
    }

    /// Sets the client for which a trusted proxy has opened the connection, whether that client
    /// uses HTTPS, and its permit.
    #[must_use]
    pub fn forwarded(mut self, client: IpAddr, is_https: bool, permit: AddressPermit) -> Self {
        self.address.set_ip(client);
        self.is_https = is_https;
        self.permit = permit;
        self
    }

    /// Sets whether the client is already authorized to listen.
    #[must_use]
    pub const fn authorized(mut self, vouched: bool) -> Self {
        self.authorized = vouched;
        self
    }

    /// The address of the client.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the connection uses TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the client uses HTTPS, to this server or to a trusted proxy.
    #[must_use]
    pub const fn is_https(&self) -> bool {
        self.is_https
    }

    /// Whether the client is already authorized to listen.
    #[must_use]
    pub const fn is_authorized(&self) -> bool {
        self.authorized
    }

    /// The socket alone.
    #[must_use]
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Sends as much of `bytes` as possible at once, and closes the connection.
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
        // A peer that does not read loses the answer.
        drop(sent);
    }
}

/// The first byte of a TLS connection: a handshake record (RFC 8446, 5.1). No Snapcast message and
/// no HTTP request begins with it.
pub const TLS_FIRST_BYTE: u8 = 0x16;

/// The TLS state of one session.
#[derive(Debug)]
pub(super) struct TlsSession(Box<Connection>);

/// Calls and bytes written to a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteCounts {
    pub(super) calls: u64,
    pub(super) bytes: u64,
}

impl TlsSession {
    /// Continues an existing TLS connection.
    pub(super) const fn new(connection: Box<Connection>) -> Self {
        Self(connection)
    }

    /// Starts TLS with the first bytes of a connection.
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

    /// Whether the handshake is not complete yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Whether the peer has presented a valid certificate.
    pub(super) fn has_certificate(&self) -> bool {
        self.0.peer_certificates().is_some_and(|chain| !chain.is_empty())
    }

    /// Reads decrypted bytes. Bytes that are decrypted already come first, because the kernel does
    /// not report them.
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

    /// Processes bytes of the peer, and sends the protocol's own answers.
    fn process_incoming(&mut self, socket: &TcpStream, from: &mut dyn Read) -> io::Result<usize> {
        let count = self.0.read_tls(from)?;
        let state = self.0.process_new_packets();
        // Handshake messages or an alert; what cannot be sent now goes with the next write.
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        state.map_err(tls_error)?;
        Ok(count)
    }

    /// Encrypts as much as there is room for, and sends as much of it as the socket accepts.
    ///
    /// # Errors
    /// `WouldBlock` while the socket has not accepted the bytes encrypted before.
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

    /// Sends the encrypted bytes.
    ///
    /// # Errors
    /// `WouldBlock` while the socket does not accept all of them.
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

    /// Sends `close_notify` as far as the socket accepts it, so that a player can tell a regular
    /// end from a truncation.
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

/// TLS errors have this error kind, and no other error has it.
fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

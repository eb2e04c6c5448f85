//! A connection of the control plane, with or without TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use aulos_io::reactor::{AddressPermit, ListenPolicy, MediaSocket, TLS_FIRST_BYTE};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ByteStream;
use super::watched_socket::{PeerWatch, WatchedSocket};

/// A connection whose protocol, TLS or plain, is known.
#[derive(Debug)]
pub(crate) struct ClientStream {
    transport: Transport,
    address: SocketAddr,
    permit: AddressPermit,
}

type Transport = ByteStream<TlsStream<WatchedSocket>, WatchedSocket>;

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// It was closed.
    Gone,
    /// It was closed during the handshake, as by a client that does not trust the certificate.
    Aborted,
    /// It sent nothing in time.
    Silent,
    /// It does not use TLS, which is required.
    Plain,
    /// The handshake timed out.
    Unfinished,
    /// The handshake is invalid.
    Broken,
}

/// How the peers of a port begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerStart {
    /// Time until the first byte.
    pub(crate) patience: Duration,
    /// One that sends nothing in this time is taken as plain text, where that is allowed.
    pub(crate) may_be_quiet: bool,
    /// Plain text is HTTP, so its refusal can be an answer.
    pub(crate) is_http: bool,
}

/// Detects whether a new connection uses TLS.
pub(crate) async fn open(
    (socket, address): (TcpStream, SocketAddr),
    permit: AddressPermit,
    door: &ListenPolicy,
    start: PeerStart,
) -> Result<ClientStream, RefusalReason> {
    let wire = handshake(socket, door, start).await?;
    Ok(ClientStream { transport: wire, address, permit })
}

async fn handshake(
    socket: TcpStream,
    door: &ListenPolicy,
    start: PeerStart,
) -> Result<Transport, RefusalReason> {
    let Some(terms) = &door.tls else { return Ok(Transport::Plain(socket.into())) };
    let may_be_quiet = start.may_be_quiet;
    let mut first = [0];
    match timeout(start.patience, socket.peek(&mut first)).await {
        Err(_) if may_be_quiet && !door.require_tls => return Ok(Transport::Plain(socket.into())),
        Ok(Ok(1)) if first == [TLS_FIRST_BYTE] => {}
        Ok(Ok(1)) if door.require_tls => {
            if start.is_http {
                timeout(REFUSAL_TIMEOUT, refuse_http(socket)).await.ok();
            }
            return Err(RefusalReason::Plain);
        }
        Ok(Ok(1)) => return Ok(Transport::Plain(socket.into())),
        Ok(_) => return Err(RefusalReason::Gone),
        Err(_) => return Err(RefusalReason::Silent),
    }
    let Some(config) = terms.get() else { return Err(RefusalReason::Broken) };
    let handshake = TlsAcceptor::from(config.clone()).accept(WatchedSocket::from(socket));
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(tls)) => Ok(Transport::Tls(Box::new(tls))),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(RefusalReason::Broken),
        Ok(Err(_)) => Err(RefusalReason::Aborted),
        Err(_) => Err(RefusalReason::Unfinished),
    }
}

/// Answers plain HTTP on a port that requires TLS, and reads the request, up to a limit: the kernel
/// resets a connection that is closed with unread bytes, and the peer may lose the answer then.
async fn refuse_http(mut socket: TcpStream) {
    let (mut block, mut left) = ([0; 1_024], MAX_REFUSED_REQUEST);
    let written = async {
        socket.write_all(TLS_REQUIRED.as_bytes()).await?;
        socket.shutdown().await
    };
    if written.await.is_err() {
        return;
    }
    while let Ok(count @ 1..) = socket.read(&mut block).await {
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}

const TLS_REQUIRED: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 37\r\nConnection: close\r\n\r\n\
    this port requires TLS; use https://\n";
/// A peer that does not close after the answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest head that hyper reads.
const MAX_REFUSED_REQUEST: usize = 64 << 10;

/// Time-out of a handshake, which takes two round trips.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

impl ClientStream {
    /// The peer's address.
    pub(crate) const fn peer_ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Whether it uses TLS.
    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }

    /// The watch of its peer.
    pub(crate) fn watch(&self) -> PeerWatch {
        match &self.transport {
            Transport::Plain(socket) => socket.watch(),
            Transport::Tls(tls) => tls.get_ref().0.watch(),
        }
    }

    /// The peer's valid certificate, if it sent one.
    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => tls.get_ref().1.peer_certificates()?.first(),
        }
    }

    /// The socket and its TLS state, for a reactor.
    pub(crate) fn into_media(self) -> io::Result<MediaSocket> {
        let (socket, tls) = match self.transport {
            Transport::Plain(socket) => (socket, None),
            Transport::Tls(tls) => {
                let (socket, tls) = tls.into_inner();
                (socket, Some(Box::new(tls)))
            }
        };
        Ok(MediaSocket::new(socket.into_std()?, self.address, self.permit).with_tls(tls))
    }

    /// Sends as much as possible without waiting, for a peer that is about to be disconnected.
    pub(crate) fn try_send_response(self, bytes: &[u8]) {
        if let Ok(socket) = self.into_media() {
            socket.respond_and_close(bytes);
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_read(context, into)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_plain_http_has_its_declared_length() {
        let (head, body) = TLS_REQUIRED.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}

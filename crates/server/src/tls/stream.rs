//! A connection of the control plane, with TLS or without.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use aulos_io::reactor::{AddressPermit, Door, FIRST_BYTE, MediaSocket};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A connection of which it is known what it speaks.
#[derive(Debug)]
pub(crate) struct Stream {
    wire: Wire,
    address: SocketAddr,
    permit: AddressPermit,
}

#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It went away.
    Gone,
    /// It said nothing in time.
    Silent,
    /// It does not speak TLS, and has to.
    Plain,
    /// It began a handshake and did not end it in time.
    Unfinished,
    /// What it sent was no TLS after all.
    Broken,
}

/// Finds out what a new connection speaks. One that says nothing for `patience` speaks plainly,
/// where that is allowed and `may_be_quiet`.
pub(crate) async fn open(
    (socket, address): (TcpStream, SocketAddr),
    permit: AddressPermit,
    door: &Door,
    patience: Duration,
    may_be_quiet: bool,
) -> Result<Stream, Refused> {
    let wire = shake_hands(socket, door, patience, may_be_quiet).await?;
    Ok(Stream { wire, address, permit })
}

async fn shake_hands(
    socket: TcpStream,
    door: &Door,
    patience: Duration,
    may_be_quiet: bool,
) -> Result<Wire, Refused> {
    let Some(terms) = &door.tls else { return Ok(Wire::Plain(socket)) };
    let mut first = [0];
    match timeout(patience, socket.peek(&mut first)).await {
        Err(_) if may_be_quiet && !door.require_tls => return Ok(Wire::Plain(socket)),
        Ok(Ok(1)) if first == [FIRST_BYTE] => {}
        Ok(Ok(1)) if door.require_tls => return Err(Refused::Plain),
        Ok(Ok(1)) => return Ok(Wire::Plain(socket)),
        Ok(_) => return Err(Refused::Gone),
        Err(_) => return Err(Refused::Silent),
    }
    let Some(config) = terms.get() else { return Err(Refused::Broken) };
    let handshake = TlsAcceptor::from(config.clone()).accept(socket);
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(tls)) => Ok(Wire::Tls(Box::new(tls))),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(Refused::Broken),
        Ok(Err(_)) => Err(Refused::Gone),
        Err(_) => Err(Refused::Unfinished),
    }
}

/// How long a handshake may take: it is two round trips.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

impl Stream {
    /// Where it comes from.
    pub(crate) const fn from(&self) -> IpAddr {
        self.address.ip()
    }

    /// Whether it speaks TLS.
    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self.wire, Wire::Tls(_))
    }

    /// The certificate that the peer has shown, which was good.
    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match &self.wire {
            Wire::Plain(_) => None,
            Wire::Tls(tls) => tls.get_ref().1.peer_certificates()?.first(),
        }
    }

    /// The socket and its TLS, for a reactor.
    pub(crate) fn into_media(self) -> io::Result<MediaSocket> {
        let (socket, tls) = match self.wire {
            Wire::Plain(socket) => (socket, None),
            Wire::Tls(tls) => {
                let (socket, tls) = tls.into_inner();
                (socket, Some(Box::new(tls)))
            }
        };
        Ok(MediaSocket::new(socket.into_std()?, self.address, self.permit).with_tls(tls))
    }

    /// Sends what goes out at once, for a peer that is about to be cut.
    pub(crate) fn try_answer(self, bytes: &[u8]) {
        if let Ok(socket) = self.into_media() {
            socket.answer(bytes);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(socket) => Pin::new(socket).poll_read(context, into),
            Wire::Tls(tls) => Pin::new(tls).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.wire {
            Wire::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Wire::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.wire {
            Wire::Plain(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Wire::Tls(tls) => Pin::new(tls).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(socket) => Pin::new(socket).poll_flush(context),
            Wire::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Wire::Tls(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}

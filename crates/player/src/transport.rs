//! The layers on the socket: TLS, WebSocket, the protocol's bytes.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;

use aulos_core::Instant;
use aulos_proto::snap::client::ClientInput;
use aulos_proto::ws::{FrameKind, WsClient, WsClientEvent, WsMessage};
use aulos_rt::receive::{receive, stamp_arrivals};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::address::ServerAddress;
use crate::tls::{TlsClient, TlsSession};

/// A connected socket with its layers.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) socket: OwnedFd,
    tls: Option<TlsSession>,
    websocket: Option<WsClient>,
    /// Whether all handshakes are complete.
    pub(crate) is_ready: bool,
    /// Bytes that the socket did not take.
    pending: Vec<u8>,
    /// Decrypted bytes of the last read.
    plain: Vec<u8>,
}

/// What a read has found.
#[derive(Debug)]
pub(crate) enum TransportEvent<'a> {
    /// All handshakes are complete.
    Ready,
    /// Bytes or a message, and when they arrived.
    Input(Instant, ClientInput<'a>),
}

impl Transport {
    /// Begins the handshakes on a connected socket. `host` is the name that the server's
    /// certificate must have.
    pub(crate) fn new(
        socket: OwnedFd,
        address: &ServerAddress,
        host: &str,
        tls: Option<&TlsClient>,
    ) -> io::Result<Self> {
        stamp_arrivals(&socket);
        let scheme = address.scheme;
        let tls = match tls.filter(|_| scheme.has_tls()) {
            Some(client) => Some(TlsSession::new(client, host)?),
            None if scheme.has_tls() => return Err(io::Error::other("TLS is not configured")),
            None => None,
        };
        let seed = RandomState::new().hash_one(0);
        let is_websocket = cfg!(feature = "ws") && scheme.is_websocket();
        let websocket = is_websocket.then(|| WsClient::new(seed));
        let is_ready = tls.is_none() && websocket.is_none();
        let (pending, plain) = (Vec::new(), Vec::new());
        let mut transport = Self { socket, tls, websocket, is_ready, pending, plain };
        let request = transport.websocket.as_ref().map(|websocket| {
            let auth = address.auth.as_ref();
            websocket.request(&address.authority(), &address.path, auth).into_bytes()
        });
        // Without a request, this is the beginning of the TLS handshake.
        push(&mut transport.tls, &request.unwrap_or_default(), &mut transport.pending)?;
        transport.flush()?;
        Ok(transport)
    }

    /// Sends a message of the protocol.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let Self { tls, websocket, pending, .. } = self;
        match built(websocket) {
            Some(websocket) => send_frame(websocket, tls, FrameKind::Binary, message, pending)?,
            None => push(tls, message, pending)?,
        }
        self.flush()
    }

    /// Whether the socket has not taken everything.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Sends what the socket did not take before.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match send(&self.socket, &self.pending, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.pending.drain(..sent)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads into `buffer` and delivers what that contains; the number of bytes, zero if nothing
    /// was there.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        deliver: &mut dyn FnMut(TransportEvent<'_>),
    ) -> io::Result<usize> {
        let (length, at) = match receive(&self.socket, buffer) {
            Ok((0, _)) => return Err(io::Error::other("the server has closed the connection")),
            Ok((length, at)) => (length, Instant::from_nanos(at)),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                    _ => Err(error),
                };
            }
        };
        let result = self.process(buffer.get(..length).unwrap_or_default(), at, deliver);
        // Also after a failure: the server is told why.
        let flushed = self.flush();
        result.and(flushed).map(|()| length)
    }

    fn process(
        &mut self,
        received: &[u8],
        at: Instant,
        deliver: &mut dyn FnMut(TransportEvent<'_>),
    ) -> io::Result<()> {
        let Self { tls, websocket, is_ready, pending, plain, .. } = self;
        let mut bytes = received;
        // What has arrived with the end of the connection is delivered all the same: it may say
        // why.
        let mut end = Ok(());
        if let Some(tls) = tls {
            plain.clear();
            end = tls.read(received, plain, pending);
            bytes = plain;
            if end.is_ok() && websocket.is_none() && !*is_ready && !tls.is_handshaking() {
                *is_ready = true;
                deliver(TransportEvent::Ready);
            }
        }
        let Some(websocket) = built(websocket) else {
            if !bytes.is_empty() {
                deliver(TransportEvent::Input(at, ClientInput::Received(bytes)));
            }
            return end;
        };
        while let Some(event) = websocket.next(&mut bytes).map_err(io::Error::other)? {
            match event {
                WsClientEvent::Open => {
                    *is_ready = true;
                    deliver(TransportEvent::Ready);
                }
                WsClientEvent::Message(WsMessage::Binary(message)) => {
                    deliver(TransportEvent::Input(at, ClientInput::Framed(message)));
                }
                WsClientEvent::Message(WsMessage::Ping(payload)) => {
                    let payload = payload.to_vec();
                    send_frame(websocket, tls, FrameKind::Pong, &payload, pending)?;
                }
                WsClientEvent::Message(WsMessage::Close(payload)) => {
                    let payload = payload.to_vec();
                    send_frame(websocket, tls, FrameKind::Close, &payload, pending)?;
                    return Err(io::Error::other("the server has closed the connection"));
                }
                _ => {}
            }
        }
        end
    }
}

/// `None` where the program is built without WebSocket, so that its code is left out.
fn built(websocket: &mut Option<WsClient>) -> Option<&mut WsClient> {
    if cfg!(feature = "ws") { websocket.as_mut() } else { None }
}

fn send_frame(
    websocket: &mut WsClient,
    tls: &mut Option<TlsSession>,
    kind: FrameKind,
    payload: &[u8],
    pending: &mut Vec<u8>,
) -> io::Result<()> {
    let mut frame = Vec::new();
    websocket.write(kind, payload, &mut frame);
    push(tls, &frame, pending)
}

/// Appends bytes to those that wait for the socket, encrypted where there is TLS.
fn push(tls: &mut Option<TlsSession>, bytes: &[u8], pending: &mut Vec<u8>) -> io::Result<()> {
    match tls {
        Some(tls) => tls.write(bytes, pending)?,
        None => pending.extend_from_slice(bytes),
    }
    if pending.len() > MAX_PENDING {
        return Err(io::Error::other("the server does not read what it is sent"));
    }
    Ok(())
}

/// Messages of a client have some hundred bytes.
const MAX_PENDING: usize = 65_536;

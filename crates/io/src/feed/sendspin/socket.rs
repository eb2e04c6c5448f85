//! A WebSocket of either side on a socket that never waits.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use aulos_core::Instant;
use aulos_proto::http::head_length;
use aulos_proto::ws::{
    FrameKind, MAX_RESPONSE_HEAD, WsClient, WsClientEvent, WsMessage, WsReader, WsWriter, accept,
};
use aulos_rt::receive::{receive, stamp_arrivals};
use aulos_session::sendspin::SendspinInputError;

/// A WebSocket.
#[derive(Debug)]
pub(super) struct WsSocket {
    socket: TcpStream,
    state: State,
    /// Bytes that the socket did not take.
    pending: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// We have asked.
    Asked(Box<WsClient>),
    /// We are asked for this path; the head so far.
    Accepting(String, Vec<u8>),
    Open(WsReader, WsWriter),
}

/// What has arrived.
#[derive(Debug)]
pub(super) enum WsEvent<'a> {
    /// The handshake is over.
    Open,
    /// A message; whether it is a text.
    Message(bool, &'a [u8]),
}

impl WsSocket {
    /// Asks the server behind `socket` for a WebSocket. `seed` should not be guessable.
    pub(super) fn ask(
        socket: TcpStream,
        (host, path): (&str, &str),
        seed: u64,
    ) -> io::Result<Self> {
        prepare(&socket)?;
        let client = WsClient::new(seed);
        let pending = client.request(host, path, None).into_bytes();
        Ok(Self { socket, state: State::Asked(Box::new(client)), pending })
    }

    /// Expects to be asked for this path.
    pub(super) fn accept(socket: TcpStream, path: &str) -> io::Result<Self> {
        prepare(&socket)?;
        let state = State::Accepting(path.to_owned(), Vec::new());
        Ok(Self { socket, state, pending: Vec::new() })
    }

    /// Reads once and passes on what has arrived with its time. False if nothing has.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8],
        mut handle: impl FnMut(Instant, WsEvent<'_>),
    ) -> Result<bool, SendspinInputError> {
        let (length, at) = match receive(&self.socket, scratch) {
            Ok((0, _)) => return Err(SendspinInputError::Closed),
            Ok((length, at)) => (length, Instant::from_nanos(at)),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                    kind => Err(SendspinInputError::Io(kind)),
                };
            }
        };
        let mut bytes = scratch.get(..length).unwrap_or_default();
        let rest;
        if let State::Asked(client) = &mut self.state {
            match client.next(&mut bytes).map_err(|error| websocket(&error))? {
                Some(WsClientEvent::Open) => {}
                _ => return Ok(true),
            }
            if let State::Asked(client) = core::mem::replace(&mut self.state, State::closed()) {
                let (reader, writer) = client.into_parts();
                self.state = State::Open(reader, writer);
            }
            handle(at, WsEvent::Open);
        } else if let State::Accepting(path, head) = &mut self.state {
            head.extend_from_slice(bytes);
            let Some(length) = head_length(head) else {
                let is_long = head.len() > MAX_RESPONSE_HEAD;
                return if is_long { Err(no_websocket()) } else { Ok(true) };
            };
            rest = head.split_off(length);
            let (answer, is_accepted) = accept(head, path, "Sendspin servers");
            self.pending.extend_from_slice(answer.as_bytes());
            self.flush()?;
            if !is_accepted {
                return Err(no_websocket());
            }
            self.state = State::Open(WsReader::default(), WsWriter::default());
            bytes = &rest;
            handle(at, WsEvent::Open);
        }
        let State::Open(reader, writer) = &mut self.state else { return Ok(true) };
        while let Some(message) = reader.next(&mut bytes).map_err(|error| websocket(&error))? {
            match message {
                WsMessage::Text(text) => handle(at, WsEvent::Message(true, text)),
                WsMessage::Binary(bytes) => handle(at, WsEvent::Message(false, bytes)),
                WsMessage::Ping(payload) => {
                    writer.write(FrameKind::Pong, payload, &mut self.pending);
                }
                WsMessage::Close(_) => return Err(SendspinInputError::Closed),
                _ => {}
            }
        }
        Ok(true)
    }

    /// The writer and the bytes to be sent, once it is open.
    pub(super) const fn writer(&mut self) -> Option<(&mut WsWriter, &mut Vec<u8>)> {
        match &mut self.state {
            State::Open(_, writer) => Some((writer, &mut self.pending)),
            _ => None,
        }
    }

    /// Sends what the socket takes now.
    pub(super) fn flush(&mut self) -> Result<(), SendspinInputError> {
        while !self.pending.is_empty() {
            match (&self.socket).write(&self.pending) {
                Ok(sent) => drop(self.pending.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SendspinInputError::Io(error.kind())),
            }
        }
        // A server that does not read is as good as gone.
        if self.pending.len() > MAX_PENDING {
            return Err(SendspinInputError::Io(io::ErrorKind::TimedOut));
        }
        Ok(())
    }

    /// Says that the connection ends. What the peer has sent meanwhile is read, so that the kernel does
    /// not reset the connection before the peer has read the last message.
    pub(super) fn close(mut self) {
        if let Some((writer, pending)) = self.writer() {
            writer.write(FrameKind::Close, &NORMAL_CLOSE, pending);
        }
        if self.flush().is_ok() {
            drop(self.socket.shutdown(std::net::Shutdown::Write));
            let mut unread = [0; 4_096];
            while matches!((&self.socket).read(&mut unread), Ok(1..)) {}
        }
    }
}

impl State {
    fn closed() -> Self {
        Self::Open(WsReader::default(), WsWriter::default())
    }
}

/// A request for the time must leave at the instant that it names.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    stamp_arrivals(socket);
    Ok(())
}

fn websocket(error: &dyn core::fmt::Display) -> SendspinInputError {
    SendspinInputError::WebSocket(error.to_string())
}

fn no_websocket() -> SendspinInputError {
    SendspinInputError::WebSocket("the request is not for a WebSocket of Sendspin".to_owned())
}

/// Messages of a client have some hundred bytes.
const MAX_PENDING: usize = 64 * 1024;

/// Status 1000 (RFC 6455, section 7.4.1).
const NORMAL_CLOSE: [u8; 2] = 1_000_u16.to_be_bytes();

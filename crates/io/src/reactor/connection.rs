//! A media socket that sends by copying, from the chunk's own memory, or through TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aulos_core::Instant;
use aulos_engine::fanout::TimedChunk;
use aulos_rt::SharedPooled;
use rustix::net::sockopt;

use super::SessionEndCause;
use super::outbox::ChunkSocket;
use super::tls::{ListenPolicy, MediaSocket, TLS_FIRST_BYTE, TlsSession, WriteCounts};
use super::zerocopy::{Completion, ZeroCopy};
use crate::sys;

/// A socket that counts what is sent.
#[derive(Debug)]
pub(super) struct MediaConnection {
    socket: TcpStream,
    /// Whether the protocol is known; otherwise the first byte decides between TLS and plain.
    is_protocol_known: bool,
    /// `None` on loopback, where the kernel copies in any case.
    send_mode: Option<Box<SendMode>>,
    counts: SendCounts,
}

/// State that only some connections need; it is boxed so that the others do not pay for it.
#[derive(Debug)]
enum SendMode {
    ZeroCopy(ZeroCopy<SharedPooled<Vec<u8>>>),
    Tls(TlsSession),
}

/// Counts of sends and bytes by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendCounts {
    pub(super) sends: u64,
    pub(super) bytes: u64,
    pub(super) zero_sends: u64,
    pub(super) zero_bytes: u64,
    pub(super) zero_copied: u64,
    pub(super) zero_fallbacks: u64,
}

impl MediaConnection {
    /// A connection that sends by copying.
    pub(super) fn new(socket: TcpStream) -> Self {
        Self::with_send_mode(socket, None)
    }

    /// A connection that sends without copying where the kernel supports it.
    pub(super) fn with_zero_copy(socket: TcpStream) -> Self {
        let can = sys::enable_zero_copy(socket.as_fd()).is_ok();
        Self::with_send_mode(socket, can.then(|| SendMode::ZeroCopy(ZeroCopy::new())))
    }

    /// Continues a connection that was accepted elsewhere. Without TLS, `plain` makes it.
    pub(super) fn from_media_socket(socket: MediaSocket, plain: fn(TcpStream) -> Self) -> Self {
        let mut connection = match socket.tls {
            None => plain(socket.socket),
            Some(tls) => {
                Self::with_send_mode(socket.socket, Some(SendMode::Tls(TlsSession::new(tls))))
            }
        };
        connection.is_protocol_known = true;
        connection
    }

    /// Whether the first byte has not arrived yet.
    pub(super) const fn is_protocol_unknown(&self) -> bool {
        !self.is_protocol_known
    }

    /// Detects the protocol from the first bytes. Returns true when they are the peer's data, and
    /// false when they belong to TLS, in which case the data is still to be read.
    pub(super) fn detect_protocol(
        &mut self,
        first: &[u8],
        policy: &ListenPolicy,
    ) -> Result<bool, SessionEndCause> {
        self.is_protocol_known = true;
        match &policy.tls {
            Some(terms) if first.first() == Some(&TLS_FIRST_BYTE) => {
                let tls = TlsSession::begin(terms, &self.socket, first);
                let tls = tls.map_err(|error| session_end_cause(&error))?;
                self.send_mode = Some(Box::new(SendMode::Tls(tls)));
                Ok(false)
            }
            _ if policy.require_tls => Err(SessionEndCause::PlainRefused),
            _ => Ok(true),
        }
    }

    /// Whether the TLS handshake is in progress.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(TlsSession::is_handshaking)
    }

    /// Whether the peer has presented a valid certificate.
    pub(super) fn has_certificate(&self) -> bool {
        self.tls().is_some_and(TlsSession::has_certificate)
    }

    /// Whether the connection uses TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls().is_some()
    }

    fn with_send_mode(socket: TcpStream, special: Option<SendMode>) -> Self {
        Self {
            socket,
            is_protocol_known: false,
            send_mode: special.map(Box::new),
            counts: SendCounts::default(),
        }
    }

    fn tls(&self) -> Option<&TlsSession> {
        match self.send_mode.as_deref() {
            Some(SendMode::Tls(tls)) => Some(tls),
            _ => None,
        }
    }

    const fn count_write(&mut self, written: WriteCounts) {
        self.counts.sends += written.calls;
        self.counts.bytes += written.bytes;
    }

    /// Reads the kernel's notifications of completed sends.
    pub(super) fn read_completions(&mut self) {
        let Some(SendMode::ZeroCopy(zero)) = self.send_mode.as_deref_mut() else { return };
        for _ in 0..MAX_COMPLETIONS {
            // The next read of the socket reports any error.
            let Ok(Some(error)) = sys::read_error(self.socket.as_fd()) else { return };
            if let Some(completion) = Completion::parse(&error) {
                self.counts.zero_copied += u64::from(completion.copied);
                zero.complete(completion);
            }
        }
    }

    /// The timestamp of the oldest chunk that the kernel may still read.
    pub(super) fn oldest_held(&self) -> Option<Instant> {
        let Some(SendMode::ZeroCopy(zero)) = self.send_mode.as_deref() else { return None };
        zero.oldest()
    }

    /// The counts since the last call.
    pub(super) fn take_counts(&mut self) -> SendCounts {
        core::mem::take(&mut self.counts)
    }
}

/// The end cause of a session whose socket cannot be read.
pub(super) fn session_end_cause(error: &io::Error) -> SessionEndCause {
    match error.kind() {
        io::ErrorKind::InvalidData => SessionEndCause::TlsFailed,
        // A missing TLS close_notify is not an error here: the peer has closed its socket.
        io::ErrorKind::UnexpectedEof => SessionEndCause::Closed,
        _ => SessionEndCause::Network,
    }
}

impl Drop for MediaConnection {
    /// The chunks return to their pool now and will be overwritten. The kernel must not send what
    /// it still holds of them, so the connection is reset.
    fn drop(&mut self) {
        if let Some(SendMode::Tls(tls)) = self.send_mode.as_deref_mut() {
            tls.send_close_notify(&self.socket);
        }
        if self.oldest_held().is_some() {
            // This fails only for a closed descriptor.
            let at_once = Some(Duration::ZERO);
            let _ = sockopt::set_socket_linger(&self.socket, at_once);
        }
    }
}

impl Read for MediaConnection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.send_mode.as_deref_mut() {
            Some(SendMode::Tls(tls)) => tls.read(&self.socket, into),
            _ => self.socket.read(into),
        }
    }
}

impl Write for MediaConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_tls() {
            return self.write_vectored(&[IoSlice::new(bytes)]);
        }
        let count = self.socket.write(bytes)?;
        self.counts.sends += 1;
        self.counts.bytes += count as u64;
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(SendMode::Tls(tls)) = self.send_mode.as_deref_mut() {
            let (count, written) = tls.write(&self.socket, slices)?;
            self.count_write(written);
            return Ok(count);
        }
        let count = self.socket.write_vectored(slices)?;
        self.counts.sends += 1;
        self.counts.bytes += count as u64;
        Ok(count)
    }

    /// Only TLS buffers.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(SendMode::Tls(tls)) = self.send_mode.as_deref_mut() {
            let written = tls.flush(&self.socket)?;
            self.count_write(written);
        }
        Ok(())
    }
}

impl ChunkSocket for MediaConnection {
    fn send_chunks<'c>(
        &mut self,
        slices: &[IoSlice<'_>],
        chunks: impl Iterator<Item = &'c TimedChunk>,
    ) -> io::Result<usize> {
        let Some(SendMode::ZeroCopy(zero)) = self.send_mode.as_deref_mut() else {
            return self.write_vectored(slices);
        };
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if !zero.should_use(slices.len(), bytes) {
            return self.write_vectored(slices);
        }
        match sys::send_zero_copy(self.socket.as_fd(), slices) {
            Ok(count) => {
                zero.record_send(chunks.map(|chunk| (chunk.timestamp, chunk.chunk.bytes.clone())));
                self.counts.zero_sends += 1;
                self.counts.zero_bytes += count as u64;
                Ok(count)
            }
            // The kernel has no memory for the notification (`optmem_max`, locked memory).
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                zero.record_refusal();
                self.counts.zero_fallbacks += 1;
                self.write_vectored(slices)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for MediaConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Notifications read at once: more than there can be sends in flight.
const MAX_COMPLETIONS: usize = 32;

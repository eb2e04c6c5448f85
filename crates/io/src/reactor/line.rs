//! A media socket and its ways of sending: a copy, the chunk's own memory, or TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aulos_core::Instant;
use aulos_engine::fanout::Stamped;
use aulos_rt::Shared;
use rustix::net::sockopt;

use super::LeaveCause;
use super::outbox::Wire;
use super::tls::{Door, FIRST_BYTE, MediaSocket, Tls, Written};
use super::zerocopy::{Completion, ZeroCopy};
use crate::sys;

/// A socket that counts what goes out of it.
#[derive(Debug)]
pub(super) struct Line {
    socket: TcpStream,
    /// What it speaks is known; before that its first byte has to say it.
    known: bool,
    /// None towards this machine, where the kernel copies in any case.
    special: Option<Box<Special>>,
    tally: Tally,
}

/// What only some lines have: the others pay nothing for it.
#[derive(Debug)]
enum Special {
    ZeroCopy(ZeroCopy<Shared<Vec<u8>>>),
    Tls(Tls),
}

/// What went which way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sends: u64,
    pub(super) bytes: u64,
    pub(super) zero_sends: u64,
    pub(super) zero_bytes: u64,
    pub(super) zero_copied: u64,
    pub(super) zero_fallbacks: u64,
}

impl Line {
    /// A line that copies.
    pub(super) fn new(socket: TcpStream) -> Self {
        Self::with(socket, None)
    }

    /// A line that need not copy, if the kernel can do that.
    pub(super) fn to_remote(socket: TcpStream) -> Self {
        let can = sys::enable_zero_copy(socket.as_fd()).is_ok();
        Self::with(socket, can.then(|| Special::ZeroCopy(ZeroCopy::new())))
    }

    /// A line that others have begun to speak on. One without TLS goes on as `plain` makes it.
    pub(super) fn of(socket: MediaSocket, plain: fn(TcpStream) -> Self) -> Self {
        let mut line = match socket.tls {
            None => plain(socket.socket),
            Some(tls) => Self::with(socket.socket, Some(Special::Tls(Tls::new(tls)))),
        };
        line.known = true;
        line
    }

    /// Whether its first byte has yet to come.
    pub(super) const fn is_new(&self) -> bool {
        !self.known
    }

    /// Looks at the first bytes that came. True when they are what the peer says, false when they
    /// are TLS's: then what it says is still to be read.
    pub(super) fn recognise(&mut self, first: &[u8], door: &Door) -> Result<bool, LeaveCause> {
        self.known = true;
        match &door.tls {
            Some(terms) if first.first() == Some(&FIRST_BYTE) => {
                let tls = Tls::begin(terms, &self.socket, first);
                let tls = tls.map_err(|error| leave_cause(&error))?;
                self.special = Some(Box::new(Special::Tls(tls)));
                Ok(false)
            }
            _ if door.require_tls => Err(LeaveCause::PlainRefused),
            _ => Ok(true),
        }
    }

    /// Whether TLS's handshake is under way.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(Tls::is_handshaking)
    }

    /// Whether the peer has shown a certificate, which was good.
    pub(super) fn has_certificate(&self) -> bool {
        self.tls().is_some_and(Tls::has_certificate)
    }

    /// Whether it is a line with TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls().is_some()
    }

    fn with(socket: TcpStream, special: Option<Special>) -> Self {
        Self { socket, known: false, special: special.map(Box::new), tally: Tally::default() }
    }

    fn tls(&self) -> Option<&Tls> {
        match self.special.as_deref() {
            Some(Special::Tls(tls)) => Some(tls),
            _ => None,
        }
    }

    const fn note(&mut self, written: Written) {
        self.tally.sends += written.calls;
        self.tally.bytes += written.bytes;
    }

    /// Reads what the kernel says of sends that are over.
    pub(super) fn read_completions(&mut self) {
        let Some(Special::ZeroCopy(zero)) = self.special.as_deref_mut() else { return };
        for _ in 0..MAX_COMPLETIONS {
            // Whatever is wrong with the socket, the next read of it will say.
            let Ok(Some(error)) = sys::read_error(self.socket.as_fd()) else { return };
            if let Some(completion) = Completion::of(&error) {
                self.tally.zero_copied += u64::from(completion.copied);
                zero.completed(completion);
            }
        }
    }

    /// The timestamp of the oldest chunk that the kernel may still read.
    pub(super) fn oldest_held(&self) -> Option<Instant> {
        let Some(Special::ZeroCopy(zero)) = self.special.as_deref() else { return None };
        zero.oldest()
    }

    /// What was counted since the last time.
    pub(super) fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.tally)
    }
}

/// Why a session ends whose socket could not be read.
pub(super) fn leave_cause(error: &io::Error) -> LeaveCause {
    match error.kind() {
        io::ErrorKind::InvalidData => LeaveCause::TlsFailed,
        // TLS has no end of its own here; a peer that closes its socket has closed.
        io::ErrorKind::UnexpectedEof => LeaveCause::Closed,
        _ => LeaveCause::Network,
    }
}

impl Drop for Line {
    /// The chunks go back to their pool now and will be written to. What the kernel has yet to send
    /// of them must not go out any more: the connection is reset.
    fn drop(&mut self) {
        if let Some(Special::Tls(tls)) = self.special.as_deref_mut() {
            tls.end(&self.socket);
        }
        if self.oldest_held().is_some() {
            // The only failure would be a closed descriptor.
            let at_once = Some(Duration::ZERO);
            let _ = sockopt::set_socket_linger(&self.socket, at_once);
        }
    }
}

impl Read for Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.special.as_deref_mut() {
            Some(Special::Tls(tls)) => tls.read(&self.socket, into),
            _ => self.socket.read(into),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_tls() {
            return self.write_vectored(&[IoSlice::new(bytes)]);
        }
        let count = self.socket.write(bytes)?;
        self.tally.sends += 1;
        self.tally.bytes += count as u64;
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(Special::Tls(tls)) = self.special.as_deref_mut() {
            let (count, written) = tls.write(&self.socket, slices)?;
            self.note(written);
            return Ok(count);
        }
        let count = self.socket.write_vectored(slices)?;
        self.tally.sends += 1;
        self.tally.bytes += count as u64;
        Ok(count)
    }

    /// Only TLS holds anything back.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(Special::Tls(tls)) = self.special.as_deref_mut() {
            let written = tls.flush(&self.socket)?;
            self.note(written);
        }
        Ok(())
    }
}

impl Wire for Line {
    fn send_chunks<'c>(
        &mut self,
        slices: &[IoSlice<'_>],
        chunks: impl Iterator<Item = &'c Stamped>,
    ) -> io::Result<usize> {
        let Some(Special::ZeroCopy(zero)) = self.special.as_deref_mut() else {
            return self.write_vectored(slices);
        };
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if !zero.wants(slices.len(), bytes) {
            return self.write_vectored(slices);
        }
        match sys::send_zero_copy(self.socket.as_fd(), slices) {
            Ok(count) => {
                zero.sent(chunks.map(|chunk| (chunk.timestamp, chunk.chunk.bytes.clone())));
                self.tally.zero_sends += 1;
                self.tally.zero_bytes += count as u64;
                Ok(count)
            }
            // Out of memory for notes (`optmem_max`, locked memory).
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                zero.refused();
                self.tally.zero_fallbacks += 1;
                self.write_vectored(slices)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Entries that are read at once: more than there can be sends under way.
const MAX_COMPLETIONS: usize = 32;

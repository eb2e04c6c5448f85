//! A media socket and its two ways of sending: a copy, or the chunk's own memory.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aulos_core::Instant;
use aulos_engine::fanout::Stamped;
use aulos_rt::Shared;
use rustix::net::sockopt;

use super::outbox::Wire;
use super::zerocopy::{Completion, ZeroCopy};
use crate::sys;

/// A socket that counts what goes out of it.
#[derive(Debug)]
pub(super) struct Line {
    socket: TcpStream,
    /// None towards this machine, where the kernel copies in any case.
    zero: Option<Box<ZeroCopy<Shared<Vec<u8>>>>>,
    tally: Tally,
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
        Self { socket, zero: None, tally: Tally::default() }
    }

    /// A line that need not copy, if the kernel can do that.
    pub(super) fn to_remote(socket: TcpStream) -> Self {
        let can = sys::enable_zero_copy(socket.as_fd()).is_ok();
        Self { zero: can.then(|| Box::new(ZeroCopy::new())), socket, tally: Tally::default() }
    }

    /// Reads what the kernel says of sends that are over.
    pub(super) fn read_completions(&mut self) {
        let Some(zero) = &mut self.zero else { return };
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
        self.zero.as_ref()?.oldest()
    }

    /// What was counted since the last time.
    pub(super) fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.tally)
    }
}

impl Drop for Line {
    /// The chunks go back to their pool now and will be written to. What the kernel has yet to send
    /// of them must not go out any more: the connection is reset.
    fn drop(&mut self) {
        if self.oldest_held().is_some() {
            // The only failure would be a closed descriptor.
            let at_once = Some(Duration::ZERO);
            let _ = sockopt::set_socket_linger(&self.socket, at_once);
        }
    }
}

impl Read for Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.socket.write(bytes)?;
        self.tally.sends += 1;
        self.tally.bytes += count as u64;
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.socket.write_vectored(slices)?;
        self.tally.sends += 1;
        self.tally.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Wire for Line {
    fn send_chunks<'c>(
        &mut self,
        slices: &[IoSlice<'_>],
        chunks: impl Iterator<Item = &'c Stamped>,
    ) -> io::Result<usize> {
        let Some(zero) = &mut self.zero else { return self.write_vectored(slices) };
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

//! Systems without these calls: everything works, with slightly more delay.

use std::io;
use std::os::fd::BorrowedFd;

use super::TcpInfo;
use crate::reactor::QueuedError;

/// Does nothing: the kernel decides how much may wait unsent.
pub(crate) fn set_notsent_lowat(_socket: BorrowedFd<'_>, _bytes: u32) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the allocator decides.
pub(crate) fn map_allocations_from(_bytes: i32) -> bool {
    false
}

/// Does nothing: the allocator decides.
pub(crate) fn release_free_memory() -> bool {
    false
}

/// Unsupported.
pub(crate) fn enable_zero_copy(_socket: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Unsupported, and never called.
pub(crate) fn send_zero_copy(_: BorrowedFd<'_>, _: &[io::IoSlice<'_>]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is never an entry.
pub(crate) fn read_error(_socket: BorrowedFd<'_>) -> io::Result<Option<QueuedError>> {
    Ok(None)
}

/// Unsupported.
pub(crate) fn tcp_account(_socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    Err(io::ErrorKind::Unsupported.into())
}

/// No descriptors are passed on these systems.
pub(crate) fn take_inherited(_: i32, _: i32) -> io::Result<Vec<Option<std::os::fd::OwnedFd>>> {
    Ok(Vec::new())
}

/// Never learns of it.
#[derive(Debug)]
pub(crate) struct CloseWatch;

impl CloseWatch {
    /// Unsupported.
    pub(crate) fn new(_fifo: BorrowedFd<'_>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never called.
    pub(crate) fn take(&mut self) -> bool {
        false
    }
}

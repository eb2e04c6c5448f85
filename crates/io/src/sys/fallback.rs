//! Systems without these calls: everything works, a little less promptly.

use std::io;
use std::os::fd::BorrowedFd;
use std::process::Command;

use super::TcpAccount;
use crate::reactor::QueuedError;

/// Does nothing: the kernel decides how much waits unsent.
pub(crate) fn set_notsent_lowat(_socket: BorrowedFd<'_>, _bytes: u32) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the child of a killed parent lives until it writes.
pub(crate) fn end_with_parent(_command: &mut Command) {}

/// Does nothing: the allocator decides.
pub(crate) fn map_allocations_from(_bytes: i32) -> bool {
    false
}

/// Is not to be had.
pub(crate) fn enable_zero_copy(_socket: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Is not to be had, and so nobody asks for it.
pub(crate) fn send_zero_copy(_: BorrowedFd<'_>, _: &[io::IoSlice<'_>]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is nothing to read.
pub(crate) fn read_error(_socket: BorrowedFd<'_>) -> io::Result<Option<QueuedError>> {
    Ok(None)
}

/// Is not to be had.
pub(crate) fn tcp_account(_socket: BorrowedFd<'_>) -> io::Result<TcpAccount> {
    Err(io::ErrorKind::Unsupported.into())
}

/// None are handed over.
pub(crate) fn take_inherited(_: i32, _: i32) -> io::Result<Vec<Option<std::os::fd::OwnedFd>>> {
    Ok(Vec::new())
}

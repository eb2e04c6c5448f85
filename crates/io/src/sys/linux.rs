//! Linux.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Tells the kernel to call a socket writable only while less than `bytes` wait unsent in it, so
/// that what is urgent never queues behind much.
pub(crate) fn set_notsent_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let size = u32::try_from(size_of::<u32>()).unwrap_or(4);
    // SAFETY: the descriptor is open for the length of the borrow, and the option is read from a
    // live u32 whose size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

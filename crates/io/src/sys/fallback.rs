//! Systems without these calls: everything works, a little less promptly.

use std::io;
use std::os::fd::BorrowedFd;

/// Does nothing: the kernel decides how much waits unsent.
pub(crate) fn set_notsent_lowat(_socket: BorrowedFd<'_>, _bytes: u32) -> io::Result<()> {
    Ok(())
}

//! Linux.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::TcpAccount;
use crate::reactor::QueuedError;

/// Tells the kernel to call a socket writable only while less than `bytes` wait unsent in it, so
/// that what is urgent never queues behind much.
pub(crate) fn set_notsent_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Has the kernel end a child when the thread that starts it ends, however that comes about.
pub(crate) fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have gone before it could be asked for.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: between fork and exec it makes two system calls and nothing else: no lock is taken
    // and no memory allocated.
    unsafe { command.pre_exec(prepare) };
}

/// Lets a socket send from our memory without a copy, for calls that ask for it.
pub(crate) fn enable_zero_copy(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

/// Sends without a copy. The bytes must stay as they are until the socket's error queue says that
/// the call is over; should they change, the peer gets what they have become.
pub(crate) fn send_zero_copy(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let zero_copy = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());
    let flags = zero_copy | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Takes one entry off a socket's error queue, none when that is empty.
pub(crate) fn read_error(socket: BorrowedFd<'_>) -> io::Result<Option<QueuedError>> {
    // Words, because the kernel aligns what it writes here.
    let mut control = [0usize; CONTROL_WORDS];
    // SAFETY: a header of zeros is valid: it has no name, no buffers and no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the descriptor is open for the length of the borrow, and the kernel writes no more
    // control than the live array has, whose size is given.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    if result < 0 {
        let error = io::Error::last_os_error();
        let empty = error.kind() == io::ErrorKind::WouldBlock;
        return if empty { Ok(None) } else { Err(error) };
    }
    // One entry, `struct cmsghdr` before it: length (a word), level, type; the data is aligned.
    let mut bytes = [0; CONTROL_WORDS * size_of::<usize>()];
    for (bytes, word) in bytes.chunks_exact_mut(size_of::<usize>()).zip(control) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let int =
        |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (level, kind) = (int(size_of::<usize>()), int(size_of::<usize>() + 4));
    let mut data = [0; 16];
    data.copy_from_slice(&bytes[size_of::<usize>() + 8..][..16]);
    Ok(Some(QueuedError { level, kind, data }))
}

/// Takes a descriptor that came through `exec`; none when it was opened in this process, or has been
/// taken before. Those are closed on `exec`, and those that came through it cannot be.
pub(crate) fn take_descriptor(number: i32) -> io::Result<Option<OwnedFd>> {
    // SAFETY: this reads the flags of whatever has this number, and fails where nothing has.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Ok(None);
    }
    // SAFETY: this changes no more than that flag, which makes the descriptor one of ours.
    if unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nobody here owns it: whatever is opened here is closed on `exec`, and
    // this one was not.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// What the kernel knows of a connection. Older kernels know less, and leave the end as it is.
pub(crate) fn tcp_account(socket: BorrowedFd<'_>) -> io::Result<TcpAccount> {
    let mut info = [0u32; TCP_INFO_WORDS];
    let mut size = libc::socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: the descriptor is open for the length of the borrow, and the kernel writes no more
    // than the live array has, whose size is given.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpAccount {
        round_trip_us: info[tcp_info::RTT],
        variation_us: info[tcp_info::RTTVAR],
        retransmitted: info[tcp_info::TOTAL_RETRANS],
        unsent_bytes: info[tcp_info::NOTSENT_BYTES],
    })
}

/// Words of `struct tcp_info` (linux/tcp.h): two of flags, 24 numbers, four numbers of two words,
/// and then those of Linux 4.6.
mod tcp_info {
    pub(super) const RTT: usize = 17;
    pub(super) const RTTVAR: usize = 18;
    pub(super) const TOTAL_RETRANS: usize = 25;
    pub(super) const NOTSENT_BYTES: usize = 36;
}
const TCP_INFO_WORDS: usize = 37;

/// Sets an option whose value the kernel reads as it is.
pub(super) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: T,
) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the descriptor is open for the length of the borrow, and the option is read from a
    // live value whose size is given.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for one entry with the longest address behind it, 60 bytes and a header.
const CONTROL_WORDS: usize = 16;

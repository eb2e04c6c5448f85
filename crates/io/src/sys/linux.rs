//! System calls on Linux.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::TcpInfo;
use crate::reactor::QueuedError;

/// Makes the kernel report a socket as writable only while less than `bytes` wait unsent in it, so
/// that urgent messages never queue behind much data.
pub(crate) fn set_notsent_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// With glibc, maps each allocation of at least `bytes` bytes separately; returns whether it does.
pub(crate) fn map_allocations_from(bytes: i32) -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and may be called from any thread at any time.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) } == 1;
    #[cfg(not(target_env = "gnu"))]
    let is_set = bytes < 0;
    is_set
}

/// With glibc, gives the free pages of the heap back to the system; returns whether there were any.
pub(crate) fn release_free_memory() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number and may be called from any thread at any time.
    let is_released = unsafe { libc::malloc_trim(0) } == 1;
    #[cfg(not(target_env = "gnu"))]
    let is_released = false;
    is_released
}

/// Allows sends from this process's memory without a copy, for calls that request it.
pub(crate) fn enable_zero_copy(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

/// Sends without a copy. The bytes must not change until the socket's error queue reports the call
/// as complete; otherwise the peer receives the changed bytes.
pub(crate) fn send_zero_copy(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let zero_copy = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());
    let flags = zero_copy | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Takes one entry off a socket's error queue; `None` when it is empty.
pub(crate) fn read_error(socket: BorrowedFd<'_>) -> io::Result<Option<QueuedError>> {
    // Words, because the kernel aligns its entries.
    let mut control = [0usize; CONTROL_WORDS];
    // SAFETY: a header of zeros is valid: it has no name, no buffers and no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the descriptor is open for the length of the borrow, and the kernel writes no more
    // control than the live array has, whose size is given.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    if result < 0 {
        let error = io::Error::last_os_error();
        let empty = error.kind() == io::ErrorKind::WouldBlock;
        return if empty { Ok(None) } else { Err(error) };
    }
    // One entry, preceded by `struct cmsghdr`: length (a word), level, type; the data is aligned.
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

/// Takes the sockets among the descriptors `first` to `first + count` that were inherited through
/// `exec`, in order; `None` for a number that was opened in this process or has been taken. An
/// inherited descriptor that is not a socket is an error.
///
/// The conditions for safety are checked here: only the first call in a process takes any, so no
/// descriptor gets two owners; the standard streams are never taken, nor descriptors with
/// close-on-exec, which cannot have been inherited; and each taken descriptor is a socket.
pub(crate) fn take_inherited(first: i32, count: i32) -> io::Result<Vec<Option<OwnedFd>>> {
    /// Descriptors belong to the process, and so does this flag.
    static TAKEN: AtomicBool = AtomicBool::new(false);

    let is_first = !TAKEN.swap(true, Ordering::Relaxed);
    let take = |number: i32| {
        if !is_first || number <= libc::STDERR_FILENO || !is_inherited_socket(number)? {
            return Ok(None);
        }
        // SAFETY: it is open, as `is_inherited_socket` says. Code here opens descriptors so that
        // they are closed on `exec`, and this one is not, so it has no owner yet; and it gets no
        // second one, because this function takes descriptors only once.
        let descriptor = unsafe { take_descriptor(number) }?;
        Ok(Some(descriptor))
    };
    (first..first.saturating_add(count)).map(take).collect()
}

/// Whether this number is an open socket without close-on-exec, as an inherited one is.
fn is_inherited_socket(number: i32) -> io::Result<bool> {
    // SAFETY: this reads the flags of whatever has this number, and fails where nothing has.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a `stat` is plain numbers, for which zero is a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `stat` into a place for one, and fails where nothing is open.
    if unsafe { libc::fstat(number, &raw mut found) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Ok(false);
    }
    if found.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(io::Error::other(format!("descriptor {number}: not a socket")));
    }
    Ok(true)
}

/// Takes ownership of a descriptor by its number, and sets close-on-exec.
///
/// # Safety
///
/// * The descriptor is open.
/// * Nothing else owns it, or borrows it, now or later: it is closed when the returned value is
///   dropped.
unsafe fn take_descriptor(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the caller says that it is open and has no owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// Reads the kernel's statistics of a TCP connection. Older kernels return fewer fields; the rest
/// stays zero.
pub(crate) fn tcp_account(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
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
    Ok(TcpInfo {
        round_trip_us: info[tcp_info::RTT],
        round_trip_variation_us: info[tcp_info::RTTVAR],
        retransmitted: info[tcp_info::TOTAL_RETRANS],
        unsent_bytes: info[tcp_info::NOTSENT_BYTES],
    })
}

/// Word offsets in `struct tcp_info` (linux/tcp.h): two words of flags, 24 numbers, four numbers of
/// two words, and then the fields of Linux 4.6.
mod tcp_info {
    pub(super) const RTT: usize = 17;
    pub(super) const RTTVAR: usize = 18;
    pub(super) const TOTAL_RETRANS: usize = 25;
    pub(super) const NOTSENT_BYTES: usize = 36;
}
const TCP_INFO_WORDS: usize = 37;

/// Learns when a writer of a FIFO closes it.
#[derive(Debug)]
pub(crate) struct CloseWatch(OwnedFd);

impl CloseWatch {
    /// Watches an open FIFO, whatever its name is later.
    pub(crate) fn new(fifo: BorrowedFd<'_>) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let path = format!("/proc/self/fd/{}", fifo.as_raw_fd());
        inotify::add_watch(&watch, path, WatchFlags::CLOSE_WRITE)?;
        Ok(Self(watch))
    }

    /// Whether a writer has closed it since the last call.
    pub(crate) fn take(&mut self) -> bool {
        // Equal events that follow each other are one.
        let mut events = [MaybeUninit::uninit(); 256];
        let mut events = inotify::Reader::new(&self.0, &mut events);
        let mut closed = false;
        while let Ok(event) = events.next() {
            closed |= event.events().contains(ReadFlags::CLOSE_WRITE);
        }
        closed
    }
}

/// Sets a socket option with a plain value.
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

/// Room for one entry followed by the longest address: 60 bytes and a header.
const CONTROL_WORDS: usize = 16;

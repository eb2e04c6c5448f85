//! Linux.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use crate::sync::AtomicU32;

/// A range of memory that is mapped twice in a row, so that any range in it that begins in the
/// first half is contiguous, whatever its length up to the size.
#[derive(Debug)]
pub(crate) struct MirroredMapping {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the value alone; it is plain memory.
unsafe impl Send for MirroredMapping {}
// SAFETY: `&MirroredMapping` gives out a pointer and nothing else; what is done with it is up to
// the caller.
unsafe impl Sync for MirroredMapping {}

impl MirroredMapping {
    /// Maps at least `at_least` bytes, a power of two, all zero and already backed by pages; `None`
    /// if the system refuses.
    pub(crate) fn new(at_least: usize) -> Option<Self> {
        let size = at_least.max(page_size()).checked_next_power_of_two()?;
        let twice = size.checked_mul(2)?;
        let file = memory_file(size)?;
        let base = map(std::ptr::null_mut(), twice, libc::PROT_NONE, ANONYMOUS, -1)?;
        // From here on dropping `mirror` undoes everything.
        let mirror = Self { base, size };
        for half in 0..2 {
            let at = base.as_ptr().wrapping_add(half * size);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            map(at, size, rights, MIRROR_FLAGS, file.as_raw_fd())?;
        }
        Some(mirror)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for MirroredMapping {
    fn drop(&mut self) {
        // SAFETY: exactly this range was mapped by `new`, and no pointer into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * self.size) };
    }
}

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// Pages are populated at once, so that the audio thread takes no page fault.
const MIRROR_FLAGS: i32 = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;

fn map(at: *mut u8, size: usize, rights: i32, flags: i32, file: i32) -> Option<NonNull<u8>> {
    // SAFETY: a fixed address comes only from `MirroredMapping::new`, which has reserved that range
    // itself.
    let address = unsafe { libc::mmap(at.cast(), size, rights, flags, file, 0) };
    if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
}

fn memory_file(size: usize) -> Option<OwnedFd> {
    // SAFETY: the name is a C string.
    let number = unsafe { libc::memfd_create(c"aulos-rt".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return None;
    }
    // SAFETY: the call has just made this descriptor, and no other code knows it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    let length = libc::off_t::try_from(size).ok()?;
    // SAFETY: a plain call on an open descriptor.
    let refused = unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0;
    if refused { None } else { Some(file) }
}

fn page_size() -> usize {
    // SAFETY: a question without arguments.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Sleeps while `word` is `expected`, until [`futex_wake`] or the time-out. May return early.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|span| libc::timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(i32::MAX as _),
        // Less than 2^30, and the field has 32 bits or more.
        tv_nsec: span.subsec_nanos() as _,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live during the call; the kernel only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, limit) };
}

/// Wakes every thread that sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    wake_at_most(word, i32::MAX);
}

/// Wakes one of the threads that sleep on `word`.
pub(crate) fn futex_wake_one(word: &AtomicU32) {
    wake_at_most(word, 1);
}

fn wake_at_most(word: &AtomicU32, most: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address of the word as a name only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, most) };
}

/// A file descriptor that is readable from [`Signal::raise`] until [`Signal::clear`].
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    /// Creates a signal that is not raised.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a plain request.
        let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor, and no other code knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    pub(crate) fn raise(&self) {
        let one = 1_u64.to_ne_bytes();
        // The write fails only if the counter is at its maximum, and then the signal is raised.
        // SAFETY: eight bytes of an array that lives during the call.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: the array has room for the eight bytes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl<T> AsFd for crate::channel::FdReceiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal().0.as_fd()
    }
}

impl AsFd for crate::main_loop::LoopFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal().0.as_fd()
    }
}

/// Nanoseconds on the monotonic clock.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let (seconds, nanos) = wide(time);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(seconds) * 1_000_000_000 + part(nanos)
}

/// Seconds and nanoseconds of a time, whose fields are smaller on 32-bit systems.
#[allow(clippy::useless_conversion, reason = "they are not smaller on 64-bit systems")]
fn wide(time: libc::timespec) -> (i64, i64) {
    (time.tv_sec.into(), time.tv_nsec.into())
}

/// Makes this thread's sleeps end on time instead of up to 50 us later, which is the kernel's
/// default to save power.
pub(crate) fn precise_sleep() {
    let one_nanosecond: libc::c_ulong = 1;
    // SAFETY: a plain request for this thread; where it is refused, sleeps are less precise.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, one_nanosecond) };
}

/// Requests the real-time class with a priority from 1 to 99; returns the system's error number.
pub(crate) fn set_fifo(priority: u8) -> Result<(), i32> {
    // The kernel's `struct sched_param`. Not libc's function: musl's refuses every call.
    let parameter = libc::c_int::from(priority);
    // SAFETY: 0 means this thread; the kernel only reads the parameter, which lives during the
    // call.
    let refused = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const parameter)
    } != 0;
    if refused { Err(last_error()) } else { Ok(()) }
}

/// Requests a nice value from -20 to 19; returns the system's error number.
pub(crate) fn set_nice(nice: i8) -> Result<(), i32> {
    // SAFETY: on Linux 0 means this thread.
    let refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice.into()) } != 0;
    if refused { Err(last_error()) } else { Ok(()) }
}

/// Ends this process, which becomes a child's program, when the thread that started it ends.
///
/// # Errors
/// `parent`, the process that asks for it, has ended already.
pub(super) fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: the call takes a number.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have ended before the signal was requested.
    // SAFETY: the call has no conditions.
    let now = unsafe { libc::getppid() };
    if u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Closes all descriptors but standard input, output and error when the next program begins. Not at
/// once: the standard library needs one until then. Kernels before 5.11 do nothing, and the program
/// gets what this process has inherited itself; its own descriptors all close by themselves.
pub(super) fn close_others_at_exec() {
    // SAFETY: the call takes numbers, and marks descriptors that stay open.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Makes the kernel stamp what arrives at a socket. Where it is refused, there are no stamps.
pub(crate) fn stamp_arrivals(socket: BorrowedFd<'_>) {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the kernel reads one number, which lives during the call.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            socklen(size_of_val(&flags)),
        )
    };
}

/// Reads from a socket without waiting: the number of bytes, and how many nanoseconds ago the last
/// of them arrived, if the kernel has stamped it.
pub(crate) fn receive_stamped(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Words, because the kernel aligns its entries.
    let mut control = [0_usize; CONTROL_WORDS];
    // SAFETY: a header of zeros is valid: it has no name, no buffers and no control.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to a buffer and a control of the sizes told, which live during the
    // call; the descriptor is open while it is borrowed.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
    let stamp = stamp_in(&control.map(usize::to_ne_bytes).concat(), header.msg_controllen as usize);
    Ok((length, stamp.and_then(age)))
}

/// Seconds and nanoseconds of the software's stamp in the first entry of a control message: a
/// length (a word), a level, a type, and three times whose fields have four or eight bytes.
fn stamp_in(control: &[u8], length: usize) -> Option<(i64, i64)> {
    let entry = control.get(..length)?;
    let (size, rest) = entry.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    if [level, kind].map(|bytes| i32::from_ne_bytes(*bytes))
        != [libc::SOL_SOCKET, libc::SCM_TIMESTAMPING]
    {
        return None;
    }
    let times = entry.get(size_of::<usize>() + 8..usize::from_ne_bytes(*size))?;
    let wide = |at: usize| times.get(at..)?.first_chunk().map(|bytes| i64::from_ne_bytes(*bytes));
    let narrow = |at: usize| times.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    let stamp = match times.len() {
        48 => (wide(0)?, wide(8)?),
        24 => (narrow(0)?.into(), narrow(4)?.into()),
        _ => return None,
    };
    // Zero: only another part of the system has stamped it.
    (stamp.0 > 0).then_some(stamp)
}

/// Time since a stamp of the wall clock, in nanoseconds; none if that clock has been set since.
fn age((seconds, nanos): (i64, i64)) -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let (now_seconds, now_nanos) = wide(now);
    let span = now_seconds.checked_sub(seconds)?.checked_mul(1_000_000_000)?;
    u64::try_from(span.checked_add(now_nanos.checked_sub(nanos)?)?).ok()
}

fn socklen(size: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(size).unwrap_or(0)
}

/// Room for an entry of three times and its header.
const CONTROL_WORDS: usize = 16;

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

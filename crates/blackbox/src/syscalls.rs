//! A filter of system calls: the proof that a real-time path makes none.
//!
//! The filter is installed on a new thread (it cannot be removed again). It makes the kernel refuse
//! every system call and send a signal instead, whose handler counts.
//!
//! ```
//! use aulos_blackbox::syscalls::{NONE, guarded};
//!
//! assert_eq!(guarded(|| drop(std::hint::black_box(1 + 1))), NONE);
//! assert_ne!(guarded(|| std::thread::yield_now()), NONE);
//! ```

#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a signal handler and a filter: steps of one request"
)]
#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Once;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static LATEST: Cell<i32> = const { Cell::new(-1) };
}

/// Result of a guarded thread: number of calls, and the number of the last system call.
pub type SyscallReport = (u32, i32);

/// No system call was made.
pub const NONE: SyscallReport = (0, -1);

/// Runs `work` on a new thread that counts system calls. What `work` owns must not be freed by it:
/// that is a system call at times.
///
/// # Panics
/// If the system has no such filter.
pub fn guarded(work: impl FnOnce() + Send + 'static) -> SyscallReport {
    install_handler();
    let (sender, receiver) = channel();
    let body = move || {
        // The channel's first message allocates; a second one then needs no system call before the
        // count is read.
        sender.send((0, 0)).unwrap();
        let sender: Sender<SyscallReport> = sender;
        black_box(Instant::now());
        guard_this_thread();
        work();
        let verdict = (CALLS.get(), LATEST.get());
        // From here on calls are counted without effect, and refused: the message is in memory
        // already when the wake fails, and the receiver polls.
        sender.send(verdict).ok();
        loop {
            // SAFETY: ends this thread without its regular cleanup, which the filter would refuse
            // anyway.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
    };
    drop(std::thread::Builder::new().spawn(body).unwrap());
    receiver.recv().unwrap();
    loop {
        if let Ok(verdict) = receiver.recv_timeout(Duration::from_millis(1)) {
            return verdict;
        }
    }
}

fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zero is a valid description; the handler touches only this thread's cells.
        let refused = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_call as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
        };
        assert_eq!(refused, 0);
    });
}

extern "C" fn on_call(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // The number of the call follows the address of the caller (signal.h, `_sigsys`). SAFETY: the
    // kernel passes a complete description.
    let number = unsafe { info.cast::<u8>().add(24).cast::<i32>().read() };
    LATEST.set(number);
    CALLS.set(CALLS.get() + 1);
}

/// Makes the kernel refuse every further system call of this thread, except its exit and the
/// handler's return.
fn guard_this_thread() {
    let step = |code: u32, on_equal: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: on_equal,
        jf: 0,
        k,
    };
    let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let number = |call: libc::c_long| u32::try_from(call).unwrap();
    let answer = |action| step(libc::BPF_RET | libc::BPF_K, 0, action);
    let mut filter = [
        load_number,
        step(compare, 3, number(libc::SYS_rt_sigreturn)),
        step(compare, 2, number(libc::SYS_exit)),
        step(compare, 1, number(libc::SYS_exit_group)),
        answer(libc::SECCOMP_RET_TRAP),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: plain requests for this thread; the program lives during the call.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(refused, 0, "this system has no call filter");
}

//! All calls of the operating system, one function each.
//!
//! `linux.rs` and `other.rs` have the same names; no other module of the crate has a `cfg` on the
//! system. None of these functions may be called on a real-time thread, except [`now`], which is
//! not a system call where the kernel maps its clock into the process (Linux on x86-64 and Arm
//! does).

#[cfg(unix)]
mod child;
#[cfg(unix)]
pub use child::isolate_child;
mod dylib;
pub use dylib::DynamicLibrary;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    MirroredMapping, Signal, futex_wait, futex_wake, futex_wake_one, now, precise_sleep,
    receive_stamped, set_fifo, set_nice, stamp_arrivals,
};
#[cfg(target_os = "linux")]
use linux::{close_others_at_exec, end_with};

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{
    Mirror, Signal, futex_wait, futex_wake, futex_wake_one, now, precise_sleep, set_fifo, set_nice,
};
#[cfg(all(unix, not(target_os = "linux")))]
use other::{close_others_at_exec, end_with};
#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use other::{receive_stamped, stamp_arrivals};

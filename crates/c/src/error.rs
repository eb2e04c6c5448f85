//! Error codes, and what every exported function does with pointers and panics.

use core::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `enum aulos_error` without `AULOS_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    Argument = -1,
    Memory = -2,
    Internal = -3,
    Full = -4,
    Gone = -5,
    Busy = -6,
}

pub(crate) type CResult<T> = Result<T, ErrorCode>;

pub(crate) const fn text(error: c_int) -> &'static CStr {
    match error {
        0 => c"no error",
        -1 => c"a null pointer, or a value out of range",
        -2 => c"not enough memory",
        -3 => c"a defect of the library; please report it",
        -4 => c"the pipe or the dispatcher has not enough room",
        -5 => c"the other end of the pipe was destroyed",
        -6 => c"the dispatcher is in use by another thread or by its own callback",
        _ => c"unknown error",
    }
}

/// Runs the body of an exported function.
pub(crate) fn run(work: impl FnOnce() -> CResult<()>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(ErrorCode::Internal));
    done.map_or_else(|error| error as c_int, |()| 0)
}

/// Runs the body of an exported function without a result; an error is a null pointer.
pub(crate) fn run_quietly(work: impl FnOnce()) {
    run(|| {
        work();
        Ok(())
    });
}

/// # Safety
/// `object` is null or valid, and no other reference to it exists.
pub(crate) unsafe fn exclusive<'a, T>(object: *mut T) -> CResult<&'a mut T> {
    // SAFETY: the caller's contract is passed on.
    unsafe { object.as_mut() }.ok_or(ErrorCode::Argument)
}

/// # Safety
/// `object` is null or valid, and no exclusive reference to it exists.
pub(crate) unsafe fn shared<'a, T>(object: *const T) -> CResult<&'a T> {
    // SAFETY: the caller's contract is passed on.
    unsafe { object.as_ref() }.ok_or(ErrorCode::Argument)
}

/// Takes an object back from C; `None` for null.
///
/// # Safety
/// `object` is null or comes from [`Box::into_raw`], and is not used afterwards.
pub(crate) unsafe fn take<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's contract is passed on.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

/// # Safety
/// `out` is null or can be written to.
pub(crate) unsafe fn write<T>(out: *mut T, value: T) -> CResult<()> {
    if out.is_null() {
        return Err(ErrorCode::Argument);
    }
    // SAFETY: the caller vouches for it.
    unsafe { out.write(value) };
    Ok(())
}

/// A buffer of `count` items; a null pointer is a buffer of none.
///
/// # Safety
/// `data` is null or points to `count` items, for this call only.
pub(crate) unsafe fn buffer<'a, T>(data: *const T, count: usize) -> CResult<&'a [T]> {
    if !check_size(data, count)? {
        return Ok(&[]);
    }
    // SAFETY: the caller vouches for `count` items, which are no more than memory can hold.
    Ok(unsafe { core::slice::from_raw_parts(data, count) })
}

/// # Safety
/// As [`buffer`], and the items can be written to.
pub(crate) unsafe fn buffer_mut<'a, T>(data: *mut T, count: usize) -> CResult<&'a mut [T]> {
    if !check_size(data, count)? {
        return Ok(&mut []);
    }
    // SAFETY: the caller vouches for `count` items, which are no more than memory can hold.
    Ok(unsafe { core::slice::from_raw_parts_mut(data, count) })
}

/// Whether there is anything in a buffer; an error for one that cannot be.
fn check_size<T>(data: *const T, count: usize) -> CResult<bool> {
    let fits = count <= isize::MAX as usize / size_of::<T>();
    if count > 0 && (data.is_null() || !fits || !data.is_aligned()) {
        return Err(ErrorCode::Argument);
    }
    Ok(count > 0)
}

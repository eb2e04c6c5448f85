//! The 23 functions of `ebur128.h`, which documents them.
//!
//! All share one contract: a state comes from [`ebur128_init`], has not been destroyed, and is used
//! by one thread at a time; `out` can be written to; arrays are as long as their length arguments.
//! Null pointers give an error. Return values are those of [`ErrorCode`](crate::state::ErrorCode),
//! 0 for success.

#![allow(clippy::missing_safety_doc, reason = "one contract, at the head of the module")]

use core::ffi::{c_double, c_int, c_short, c_uint, c_ulong};
use std::panic::{AssertUnwindSafe, catch_unwind};

use aulos_dsp::meter::{Meter, MeterSample, integrated_of, range_of};

use crate::state::{EburResult, ErrorCode, I, LRA, SAMPLE_PEAK, State, TRUE_PEAK};

/// The version of libebur128 that this library is compatible with.
const VERSION: [c_int; 3] = [1, 2, 6];

/// Writes the version of the interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_get_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) {
    for (out, number) in [major, minor, patch].into_iter().zip(VERSION) {
        // SAFETY: see the head of the module.
        let _ = unsafe { write_result(out, || Ok(number)) };
    }
}

/// Creates a state; null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn ebur128_init(channels: c_uint, samplerate: c_ulong, mode: c_int) -> *mut State {
    let new = || State::new(channels, samplerate, mode).map(|state| Box::into_raw(Box::new(state)));
    catch_unwind(new).ok().flatten().unwrap_or(core::ptr::null_mut())
}

/// Frees a state and sets the caller's pointer to null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_destroy(state: *mut *mut State) {
    // SAFETY: see the head of the module.
    let Some(slot) = (unsafe { state.as_mut() }) else { return };
    let state = core::mem::replace(slot, core::ptr::null_mut());
    if !state.is_null() {
        // SAFETY: the state comes from `ebur128_init`, and the caller's pointer is gone.
        let state = unsafe { Box::from_raw(state) };
        catch_unwind(AssertUnwindSafe(|| drop(state))).ok();
    }
}

/// Sets the position of a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_set_channel(
    state: *mut State,
    channel_number: c_uint,
    value: c_int,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { change(state, |state| state.set_channel(channel_number, value)) }
}

/// Continues with other channels or another rate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_change_parameters(
    state: *mut State,
    channels: c_uint,
    samplerate: c_ulong,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { change(state, |state| state.change(channels, samplerate)) }
}

/// Sets the longest window, in milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_set_max_window(state: *mut State, window: c_ulong) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { change(state, |state| state.set_max_window(window)) }
}

/// Sets the length of the history, in milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_set_max_history(state: *mut State, history: c_ulong) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { change(state, |state| state.set_max_history(history)) }
}

/// Measures interleaved frames of `short`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_add_frames_short(
    state: *mut State,
    src: *const c_short,
    frames: usize,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { add(state, src, frames) }
}

/// Measures interleaved frames of `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_add_frames_int(
    state: *mut State,
    src: *const c_int,
    frames: usize,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { add(state, src, frames) }
}

/// Measures interleaved frames of `float`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_add_frames_float(
    state: *mut State,
    src: *const f32,
    frames: usize,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { add(state, src, frames) }
}

/// Measures interleaved frames of `double`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_add_frames_double(
    state: *mut State,
    src: *const c_double,
    frames: usize,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { add(state, src, frames) }
}

/// Integrated loudness in LUFS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_global(state: *const State, out: *mut c_double) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { read(state, out, |state| integrated(&[state])) }
}

/// Loudness of the last 400 ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_momentary(
    state: *const State,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { read(state, out, |state| state.hops(4)) }
}

/// Loudness of the last 3 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_shortterm(
    state: *const State,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { read(state, out, |state| state.hops(30)) }
}

/// Loudness of the last `window` milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_window(
    state: *const State,
    window: c_ulong,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { read(state, out, |state| state.window(window)) }
}

/// Loudness range in LU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_range(state: *const State, out: *mut c_double) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { read(state, out, |state| range(&[state])) }
}

/// The relative gate in LUFS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_relative_threshold(
    state: *const State,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe {
        read(state, out, |state| {
            state.require(I)?;
            state.meter().relative_threshold().map(|lufs| lufs.get()).ok_or(ErrorCode::InvalidMode)
        })
    }
}

/// The maximum sample of a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_sample_peak(
    state: *const State,
    channel_number: c_uint,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe {
        read(state, out, |state| peak(state, SAMPLE_PEAK, channel_number, Meter::sample_peak))
    }
}

/// The maximum sample of a channel in the last call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_prev_sample_peak(
    state: *const State,
    channel_number: c_uint,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe {
        read(state, out, |state| peak(state, SAMPLE_PEAK, channel_number, Meter::last_sample_peak))
    }
}

/// The true peak of a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_true_peak(
    state: *const State,
    channel_number: c_uint,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe { read(state, out, |state| peak(state, TRUE_PEAK, channel_number, Meter::true_peak)) }
}

/// The true peak of a channel in the last call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_prev_true_peak(
    state: *const State,
    channel_number: c_uint,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    unsafe {
        read(state, out, |state| peak(state, TRUE_PEAK, channel_number, Meter::last_true_peak))
    }
}

/// Integrated loudness over several states; null entries are skipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_global_multiple(
    states: *const *const State,
    size: usize,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    let states = unsafe { entries(states, size) };
    // SAFETY: see the head of the module.
    unsafe { write_result(out, || integrated(&present(states?))) }
}

/// Loudness range over several states; null entries are skipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebur128_loudness_range_multiple(
    states: *const *const State,
    size: usize,
    out: *mut c_double,
) -> c_int {
    // SAFETY: see the head of the module.
    let states = unsafe { entries(states, size) };
    let work = || {
        let states = states?;
        // The first entry decides for all; if it is null, exact histories are assumed.
        let histogram =
            states.first().is_some_and(|first| first.is_some_and(State::uses_histogram));
        let states = present(states);
        for state in &states {
            state.require(LRA)?;
            if state.uses_histogram() != histogram {
                return Err(ErrorCode::InvalidMode);
            }
        }
        range(&states)
    };
    // SAFETY: see the head of the module.
    unsafe { write_result(out, work) }
}

fn integrated(states: &[&State]) -> EburResult<f64> {
    for state in states {
        state.require(I)?;
    }
    Ok(integrated_of(states.iter().map(|state| state.meter())).get())
}

fn range(states: &[&State]) -> EburResult<f64> {
    for state in states {
        state.require(LRA)?;
    }
    Ok(range_of(states.iter().map(|state| state.meter())).get())
}

fn peak(
    state: &State,
    bits: c_int,
    channel: c_uint,
    read: impl Fn(&Meter, usize) -> Option<f64>,
) -> EburResult<f64> {
    state.require(bits)?;
    read(state.meter(), channel as usize).ok_or(ErrorCode::InvalidChannelIndex)
}

fn present<'a>(states: &[Option<&'a State>]) -> Vec<&'a State> {
    states.iter().copied().flatten().collect()
}

/// The states, `None` for null; fails if the size is impossible.
///
/// # Safety
/// `states` is null or points to `size` pointers, each null or to a state.
unsafe fn entries<'a>(
    states: *const *const State,
    size: usize,
) -> EburResult<&'a [Option<&'a State>]> {
    if states.is_null() || size == 0 {
        return Ok(&[]);
    }
    if size > isize::MAX as usize / size_of::<*const State>() {
        return Err(ErrorCode::NoMemory);
    }
    // SAFETY: the caller vouches for `size` entries, and an optional reference is a pointer that
    // may be null.
    Ok(unsafe { core::slice::from_raw_parts(states.cast(), size) })
}

/// # Safety
/// The contract at the head of the module.
unsafe fn add<T: MeterSample>(state: *mut State, src: *const T, frames: usize) -> c_int {
    let work = |state: &mut State| {
        let count = frames.checked_mul(state.channels as usize);
        let fits = count.filter(|&count| count <= isize::MAX as usize / size_of::<T>());
        let count = fits.ok_or(ErrorCode::NoMemory)?;
        let samples = match count {
            0 => &[],
            _ if src.is_null() => return Err(ErrorCode::NoMemory),
            // SAFETY: the caller vouches for so many frames.
            _ => unsafe { core::slice::from_raw_parts(src, count) },
        };
        state.add(samples);
        Ok(())
    };
    // SAFETY: the caller's contract is passed on.
    unsafe { change(state, work) }
}

/// # Safety
/// The contract at the head of the module.
unsafe fn change(state: *mut State, work: impl FnOnce(&mut State) -> EburResult<()>) -> c_int {
    // SAFETY: the caller's contract is passed on.
    let Some(state) = (unsafe { state.as_mut() }) else { return ErrorCode::InvalidMode as c_int };
    let done = catch_unwind(AssertUnwindSafe(|| work(state)));
    done.unwrap_or(Err(ErrorCode::NoMemory)).map_or_else(|failure| failure as c_int, |()| 0)
}

/// # Safety
/// The contract at the head of the module.
unsafe fn read(
    state: *const State,
    out: *mut c_double,
    work: impl FnOnce(&State) -> EburResult<f64>,
) -> c_int {
    // SAFETY: the caller's contract is passed on.
    let Some(state) = (unsafe { state.as_ref() }) else { return ErrorCode::InvalidMode as c_int };
    // SAFETY: the caller's contract is passed on.
    unsafe { write_result(out, || work(state)) }
}

/// Writes a result; leaves `out` unchanged on failure.
///
/// # Safety
/// `out` is null or can be written to.
unsafe fn write_result<T>(out: *mut T, work: impl FnOnce() -> EburResult<T>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(ErrorCode::NoMemory)) {
        Ok(value) => {
            if !out.is_null() {
                // SAFETY: the caller vouches for it.
                unsafe { out.write(value) };
            }
            0
        }
        Err(failure) => failure as c_int,
    }
}

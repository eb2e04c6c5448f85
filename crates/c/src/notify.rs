//! The functions `aulos_dispatcher_*` and `aulos_notifier_*`.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aulos_rt::clock;
use aulos_rt::notify::{CallbackId, Dispatcher, Notifier, PollStrategy, StopHandle};

use crate::error::{CResult, ErrorCode, exclusive, run, run_quietly, shared, take, write};

/// `aulos_dispatcher`. Other threads may stop it while one uses the rest.
#[allow(unnameable_types, missing_debug_implementations, reason = "opaque to callers")]
pub struct DispatcherObject {
    dispatcher: UnsafeCell<Dispatcher<dyn FnMut()>>,
    /// A call uses `dispatcher`.
    busy: AtomicBool,
    stop: StopHandle,
}

/// `aulos_callback_function`.
type CallbackFunction = extern "C" fn(*mut c_void);

/// Creates a dispatcher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_create(
    strategy: c_int,
    interval_ns: u64,
    dispatcher: *mut *mut DispatcherObject,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { write(dispatcher, core::ptr::null_mut()) }?;
        let object = DispatcherObject::new(poll_strategy(strategy, interval_ns)?);
        // SAFETY: see the head of the crate.
        unsafe { write(dispatcher, Box::into_raw(Box::new(object))) }
    })
}

/// Frees a dispatcher that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_destroy(dispatcher: *mut DispatcherObject) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let Some(object) = (unsafe { dispatcher.as_ref() }) else { return Ok(()) };
        object.lock()?;
        // SAFETY: no call uses it.
        drop(unsafe { take(dispatcher) });
        Ok(())
    })
}

/// Adds a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_register(
    dispatcher: *mut DispatcherObject,
    function: Option<CallbackFunction>,
    context: *mut c_void,
    each: c_int,
    callback: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let callback = unsafe { exclusive(callback) }?;
        let function = function.ok_or(ErrorCode::Argument)?;
        let body = Box::new(move || function(context));
        let add = |dispatcher: &mut Dispatcher<dyn FnMut()>| match each {
            0 => dispatcher.on(body),
            _ => dispatcher.on_each(body),
        };
        // SAFETY: see the head of the crate.
        let id = unsafe { with(dispatcher, add) }?.map_err(|_| ErrorCode::Full)?;
        *callback = id.to_bits();
        Ok(())
    })
}

/// Removes a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_unregister(
    dispatcher: *mut DispatcherObject,
    callback: u64,
) -> c_int {
    run(|| {
        let id = CallbackId::from_bits(callback);
        // SAFETY: see the head of the crate.
        let removed = unsafe { with(dispatcher, |dispatcher| dispatcher.remove(id)) }?;
        removed.map(drop).ok_or(ErrorCode::Argument)
    })
}

/// Runs what was notified.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_dispatch(
    dispatcher: *mut DispatcherObject,
    now_ns: u64,
    next_ns: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let next = unsafe { with(dispatcher, |dispatcher| dispatcher.poll(now_ns)) }?;
        // SAFETY: see the head of the crate.
        unsafe { write_wanted(next_ns, next.unwrap_or(u64::MAX)) }
    })
}

/// Dispatches until it is stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_run(dispatcher: *mut DispatcherObject) -> c_int {
    // SAFETY: see the head of the crate.
    run(|| unsafe { with(dispatcher, Dispatcher::run) })
}

/// Ends the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_stop(dispatcher: *const DispatcherObject) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate; only shared references to it are ever made.
        unsafe { shared(dispatcher) }?.stop.stop();
        Ok(())
    })
}

/// Discards the notifications of a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_cancel(
    dispatcher: *mut DispatcherObject,
    callback: u64,
) -> c_int {
    let id = CallbackId::from_bits(callback);
    // SAFETY: see the head of the crate.
    run(|| unsafe { with(dispatcher, |dispatcher| dispatcher.cancel(id)) })
}

/// Whether a callback waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_is_pending(
    dispatcher: *mut DispatcherObject,
    callback: u64,
    pending: *mut c_int,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let pending = unsafe { exclusive(pending) }?;
        let id = CallbackId::from_bits(callback);
        // SAFETY: see the head of the crate.
        *pending = unsafe { with(dispatcher, |dispatcher| dispatcher.is_pending(id)) }?.into();
        Ok(())
    })
}

/// Runs a callback that waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_dispatcher_handle_now(
    dispatcher: *mut DispatcherObject,
    callback: u64,
    handled: *mut c_int,
) -> c_int {
    run(|| {
        let id = CallbackId::from_bits(callback);
        // SAFETY: see the head of the crate.
        let ran = unsafe { with(dispatcher, |dispatcher| dispatcher.handle_now(id)) }?;
        // SAFETY: see the head of the crate.
        unsafe { write_wanted(handled, ran.into()) }
    })
}

/// Creates a notifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_notifier_create(
    dispatcher: *mut DispatcherObject,
    period_ns: u64,
    notifier: *mut *mut Notifier,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { write(notifier, core::ptr::null_mut()) }?;
        let period = (period_ns > 0).then(|| Duration::from_nanos(period_ns));
        // SAFETY: see the head of the crate.
        let new = unsafe { with(dispatcher, |dispatcher| dispatcher.notifier(period)) }?;
        let new = Box::new(new.map_err(|_| ErrorCode::Full)?);
        // SAFETY: see the head of the crate.
        unsafe { write(notifier, Box::into_raw(new)) }
    })
}

/// Frees a notifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_notifier_destroy(notifier: *mut Notifier) {
    // SAFETY: see the head of the crate.
    run_quietly(|| drop(unsafe { take(notifier) }));
}

/// Loads into the caches what a notification needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_notifier_prefetch(notifier: *mut Notifier) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { exclusive(notifier) }?.prefetch();
        Ok(())
    })
}

/// Notifies a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_notifier_notify(notifier: *mut Notifier, callback: u64) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { exclusive(notifier) }?.notify(CallbackId::from_bits(callback));
        Ok(())
    })
}

/// Reports the end of the audio callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_notifier_callback_ended(
    notifier: *mut Notifier,
    now_ns: u64,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { exclusive(notifier) }?.callback_ended(now_ns);
        Ok(())
    })
}

/// Wakes the dispatcher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_notifier_wake(notifier: *const Notifier) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { shared(notifier) }?.wake();
        Ok(())
    })
}

/// The monotonic clock.
#[unsafe(no_mangle)]
pub extern "C" fn aulos_clock_ns() -> u64 {
    clock::now()
}

impl DispatcherObject {
    fn new(strategy: PollStrategy) -> Self {
        let dispatcher = Dispatcher::new(strategy);
        let stop = dispatcher.stop_handle();
        Self { dispatcher: UnsafeCell::new(dispatcher), busy: AtomicBool::new(false), stop }
    }

    fn lock(&self) -> CResult<()> {
        // Acquire: what the call before did is visible, whichever thread made it.
        let busy = self.busy.swap(true, Ordering::Acquire);
        if busy { Err(ErrorCode::Busy) } else { Ok(()) }
    }
}

/// Resets the flag when the call ends, also by a panic.
struct Unlock<'a>(&'a AtomicBool);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Uses the dispatcher, unless another thread or a call further up on this thread does: from a
/// callback a second exclusive reference would be undefined behaviour.
///
/// # Safety
/// The object is null or valid.
unsafe fn with<T>(
    object: *const DispatcherObject,
    work: impl FnOnce(&mut Dispatcher<dyn FnMut()>) -> T,
) -> CResult<T> {
    // SAFETY: the caller's contract is passed on.
    let object = unsafe { shared(object) }?;
    object.lock()?;
    let _unlock = Unlock(&object.busy);
    // SAFETY: the flag excludes every other reference.
    Ok(work(unsafe { &mut *object.dispatcher.get() }))
}

/// Writes a result, unless the caller passed null.
///
/// # Safety
/// `out` is null or can be written to.
unsafe fn write_wanted<T>(out: *mut T, value: T) -> CResult<()> {
    if out.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's contract is passed on.
    unsafe { write(out, value) }
}

fn poll_strategy(strategy: c_int, interval_ns: u64) -> CResult<PollStrategy> {
    match (strategy, interval_ns) {
        (0, 0) => Ok(PollStrategy::PhaseLocked),
        (1, MIN_INTERVAL_NS..=MAX_INTERVAL_NS) => {
            Ok(PollStrategy::Every(Duration::from_nanos(interval_ns)))
        }
        (2, 0) => Ok(PollStrategy::Event),
        _ => Err(ErrorCode::Argument),
    }
}

/// Shorter is a loop that never sleeps, and longer is forgotten.
const MIN_INTERVAL_NS: u64 = 10_000;
const MAX_INTERVAL_NS: u64 = 10_000_000_000;

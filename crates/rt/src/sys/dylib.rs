//! Libraries that are loaded when they are wanted, so that no program is linked with them.

#![allow(unsafe_code, reason = "the system's loader")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A loaded library; closed when it is dropped.
#[derive(Debug)]
pub struct DynamicLibrary(NonNull<c_void>);

// SAFETY: a handle has no ties to the thread that opened it.
unsafe impl Send for DynamicLibrary {}
// SAFETY: the loader's functions may be called from any thread.
unsafe impl Sync for DynamicLibrary {}

impl DynamicLibrary {
    /// Loads the library of this file name; `None` if there is none.
    ///
    /// # Safety
    /// * The initializers of the library have no conditions that the program does not meet.
    #[must_use]
    pub unsafe fn open(name: &CStr) -> Option<Self> {
        // SAFETY: the name ends with 0, and the caller answers for the initializers.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(library).map(Self)
    }

    /// The function of this name, which must not be called after the library has been dropped.
    ///
    /// # Safety
    /// * `F` is the type of a function pointer, and the function has that type.
    #[must_use]
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open, and the name ends with 0.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        // SAFETY: the caller states that it is such a pointer, and it is not null.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

impl Drop for DynamicLibrary {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and what used its functions has been dropped.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

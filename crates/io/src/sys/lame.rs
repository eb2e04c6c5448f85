//! LAME, loaded when it is wanted: the program is neither linked with it nor built against it.
//!
//! The functions and their types are those of `lame.h`; soname 0 has had them since 3.98.

use std::ffi::{CStr, c_char, c_float, c_int, c_uchar, c_void};
use std::ptr::NonNull;

use aulos_rt::DynamicLibrary;

/// The library's handle of an encoder.
type Handle = *mut c_void;
type Set = unsafe extern "C" fn(Handle, c_int) -> c_int;

/// An encoder of the library, which lives as long.
pub(crate) struct Lame {
    handle: NonNull<c_void>,
    encode: unsafe extern "C" fn(
        Handle,
        *const c_float,
        *const c_float,
        c_int,
        *mut c_uchar,
        c_int,
    ) -> c_int,
    close: unsafe extern "C" fn(Handle) -> c_int,
    delay: c_int,
    /// Behind the functions: it is closed last.
    _library: DynamicLibrary,
}

/// What an encoder is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LameConfig {
    pub(crate) hz: u32,
    /// 1 or 2.
    pub(crate) channels: usize,
    pub(crate) kbps: u32,
    /// Factor of the samples.
    pub(crate) scale: f32,
}

// SAFETY: a handle has no ties to the thread that made it, and the library has no global state
// behind its initialization; `&mut self` keeps two threads from using one handle.
unsafe impl Send for Lame {}

/// Calls one of LAME's functions that set a value.
fn set(library: &DynamicLibrary, handle: NonNull<c_void>, name: &CStr, value: c_int) -> Option<()> {
    // SAFETY: the names that are passed are those of functions of this type.
    let function = unsafe { library.function::<Set>(name) }?;
    // SAFETY: the handle is that of an open encoder.
    (unsafe { function(handle.as_ptr(), value) } >= 0).then_some(())
}

impl Lame {
    /// The version of the library; `None` if it is missing.
    pub(crate) fn version() -> Option<String> {
        // SAFETY: LAME's initializers have no conditions.
        let library = unsafe { DynamicLibrary::open(SONAME) }?;
        // SAFETY: `get_lame_version` has this type.
        let version: unsafe extern "C" fn() -> *const c_char =
            unsafe { library.function(c"get_lame_version") }?;
        // SAFETY: it has no conditions.
        let text = NonNull::new(unsafe { version() }.cast_mut())?;
        // SAFETY: it is a text of the library that ends with 0, and the library is open.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Some(text.to_string_lossy().into_owned())
    }

    /// An encoder of constant bit rate without a reservoir, whose frames stand alone. `None` if the
    /// library is missing or refuses.
    pub(crate) fn new(config: LameConfig) -> Option<Self> {
        // SAFETY: LAME's initializers have no conditions.
        let library = unsafe { DynamicLibrary::open(SONAME) }?;
        // SAFETY: `lame_init` has this type.
        let init: unsafe extern "C" fn() -> Handle = unsafe { library.function(c"lame_init") }?;
        // SAFETY: so has `lame_close`,
        let close = unsafe { library.function(c"lame_close") }?;
        // SAFETY: and `lame_encode_buffer_ieee_float`.
        let encode = unsafe { library.function(c"lame_encode_buffer_ieee_float") }?;
        // SAFETY: it has no conditions.
        let handle = NonNull::new(unsafe { init() })?;
        let mut lame = Self { handle, encode, close, delay: 0, _library: library };
        lame.configure(config)?;
        Some(lame)
    }

    fn configure(&mut self, config: LameConfig) -> Option<()> {
        type Get = unsafe extern "C" fn(Handle) -> c_int;
        type SetFloat = unsafe extern "C" fn(Handle, c_float) -> c_int;
        let (library, handle) = (&self._library, self.handle);
        let hz = c_int::try_from(config.hz).ok()?;
        let mono = config.channels == 1;
        for (name, value) in [
            (c"lame_set_in_samplerate", hz),
            (c"lame_set_out_samplerate", hz),
            (c"lame_set_num_channels", if mono { 1 } else { 2 }),
            (c"lame_set_mode", if mono { MODE_MONO } else { MODE_JOINT_STEREO }),
            (c"lame_set_brate", c_int::try_from(config.kbps).ok()?),
            (c"lame_set_quality", QUALITY),
            (c"lame_set_bWriteVbrTag", 0),
            (c"lame_set_disable_reservoir", 1),
        ] {
            set(library, handle, name, value)?;
        }
        // SAFETY: `lame_set_scale` has this type.
        let scale: SetFloat = unsafe { library.function(c"lame_set_scale") }?;
        // SAFETY: the handle is that of an open encoder.
        (unsafe { scale(handle.as_ptr(), config.scale) } >= 0).then_some(())?;
        // SAFETY: `lame_init_params` has this type.
        let begin: Get = unsafe { library.function(c"lame_init_params") }?;
        // SAFETY: the handle is that of an open encoder.
        (unsafe { begin(handle.as_ptr()) } >= 0).then_some(())?;
        // SAFETY: `lame_get_encoder_delay` has this type.
        let delay: Get = unsafe { library.function(c"lame_get_encoder_delay") }?;
        // SAFETY: the handle is that of an encoder with parameters.
        self.delay = unsafe { delay(handle.as_ptr()) };
        Some(())
    }

    /// Encodes samples of -1 to 1 into the front of `out`; returns the number of bytes. One channel
    /// is passed twice. `None` if the library refuses.
    pub(crate) fn encode(&mut self, left: &[f32], right: &[f32], out: &mut [u8]) -> Option<usize> {
        let count = c_int::try_from(left.len().min(right.len())).ok()?;
        let room = c_int::try_from(out.len()).ok()?;
        let (left, right, handle) = (left.as_ptr(), right.as_ptr(), self.handle.as_ptr());
        // SAFETY: both pointers have `count` samples, `out` has `room` bytes, and the handle is
        // that of an encoder with parameters.
        let written = unsafe { (self.encode)(handle, left, right, count, out.as_mut_ptr(), room) };
        usize::try_from(written).ok().filter(|written| *written <= out.len())
    }

    /// Delay of the encoder in frames.
    pub(crate) fn delay(&self) -> u64 {
        u64::try_from(self.delay).unwrap_or(0)
    }
}

impl Drop for Lame {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is not used after this.
        unsafe { (self.close)(self.handle.as_ptr()) };
    }
}

const SONAME: &CStr = c"libmp3lame.so.0";

/// `MPEG_mode` of `lame.h`.
const MODE_JOINT_STEREO: c_int = 1;
const MODE_MONO: c_int = 3;

/// Near the best, 0, at a quarter of its work.
const QUALITY: c_int = 3;

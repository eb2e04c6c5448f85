//! libopus, loaded when it is wanted: the program is neither linked with it nor built against it.
//!
//! The functions, their types and the numbers of requests are those of `opus.h` and
//! `opus_defines.h`; soname 0 has had them since 1.0.

use std::ffi::{CStr, c_float, c_int, c_uchar, c_void};
use std::ptr::{self, NonNull};

use aulos_rt::DynamicLibrary;

/// The library's handle of an encoder.
type Handle = *mut c_void;

/// An encoder of the library at 48 kHz without look-ahead for speech; the library lives as long.
pub(crate) struct LibopusEncoder {
    handle: NonNull<c_void>,
    channels: usize,
    encode: unsafe extern "C" fn(Handle, *const c_float, c_int, *mut c_uchar, i32) -> i32,
    destroy: unsafe extern "C" fn(Handle),
    /// Behind the functions: it is closed last.
    _library: DynamicLibrary,
}

/// What an encoder is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LibopusConfig {
    /// 1 or 2.
    pub(crate) channels: usize,
    /// Bits per second, 6,000 to 510,000.
    pub(crate) bitrate: u32,
    /// Constant bit rate; otherwise constrained variable bit rate.
    pub(crate) is_constant: bool,
    /// 0 to 10.
    pub(crate) complexity: u8,
}

// SAFETY: a handle has no ties to the thread that made it, and the library has no global state;
// `&mut self` keeps two threads from using one handle.
unsafe impl Send for LibopusEncoder {}

impl LibopusEncoder {
    /// `None` if the library is missing or refuses.
    pub(crate) fn new(config: LibopusConfig) -> Option<Self> {
        type Create = unsafe extern "C" fn(i32, c_int, c_int, *mut c_int) -> Handle;
        type Control = unsafe extern "C" fn(Handle, c_int, ...) -> c_int;
        let channels = c_int::try_from(config.channels).ok()?;
        // SAFETY: the library's initializers have no conditions.
        let library = unsafe { DynamicLibrary::open(SONAME) }?;
        // SAFETY: `opus_encoder_create` has this type,
        let create: Create = unsafe { library.function(c"opus_encoder_create") }?;
        // SAFETY: and so have `opus_encoder_ctl`,
        let control: Control = unsafe { library.function(c"opus_encoder_ctl") }?;
        // SAFETY: `opus_encode_float`
        let encode = unsafe { library.function(c"opus_encode_float") }?;
        // SAFETY: and `opus_encoder_destroy`.
        let destroy = unsafe { library.function(c"opus_encoder_destroy") }?;
        // SAFETY: no place for the error is given, which is allowed; other values that do not fit
        // give no handle.
        let handle = unsafe { create(48_000, channels, RESTRICTED_LOW_DELAY, ptr::null_mut()) };
        let handle = NonNull::new(handle)?;
        let encoder =
            Self { handle, channels: config.channels, encode, destroy, _library: library };
        for (request, value) in [
            (SET_BITRATE, i32::try_from(config.bitrate).ok()?),
            (SET_VBR, i32::from(!config.is_constant)),
            (SET_VBR_CONSTRAINT, 1),
            (SET_COMPLEXITY, i32::from(config.complexity)),
        ] {
            // SAFETY: the handle is that of an open encoder, and each of these requests has one
            // argument of 32 bits.
            let result = unsafe { control(handle.as_ptr(), request, value) };
            (result == OK).then_some(())?;
        }
        Some(encoder)
    }

    /// Encodes `frames` interleaved frames into the front of `packet`; returns the number of bytes.
    /// `None` if the library refuses, as it does a number of frames that Opus does not have.
    pub(crate) fn encode(
        &mut self,
        samples: &[f32],
        frames: usize,
        packet: &mut [u8],
    ) -> Option<usize> {
        if samples.len() < frames.checked_mul(self.channels)? {
            return None;
        }
        let frames = c_int::try_from(frames).ok()?;
        let room = i32::try_from(packet.len()).ok()?;
        let (handle, from, to) = (self.handle.as_ptr(), samples.as_ptr(), packet.as_mut_ptr());
        // SAFETY: there are as many samples as the frames of the encoder have, `packet` has `room`
        // bytes, and the handle is that of an open encoder.
        let written = unsafe { (self.encode)(handle, from, frames, to, room) };
        usize::try_from(written).ok().filter(|written| (1..=packet.len()).contains(written))
    }
}

impl Drop for LibopusEncoder {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is not used after this.
        unsafe { (self.destroy)(self.handle.as_ptr()) };
    }
}

const SONAME: &CStr = c"libopus.so.0";

/// `OPUS_OK`.
const OK: c_int = 0;

/// `OPUS_APPLICATION_RESTRICTED_LOWDELAY`.
const RESTRICTED_LOW_DELAY: c_int = 2_051;

/// `OPUS_SET_BITRATE_REQUEST` and so on.
const SET_BITRATE: c_int = 4_002;
const SET_VBR: c_int = 4_006;
const SET_COMPLEXITY: c_int = 4_010;
const SET_VBR_CONSTRAINT: c_int = 4_020;

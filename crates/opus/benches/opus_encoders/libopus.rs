//! libopus, loaded at run time.

#![allow(unsafe_code, reason = "a C library")]

use std::ffi::{c_float, c_int, c_uchar, c_void};
use std::ptr;

use aulos_rt::DynamicLibrary;

type Handle = *mut c_void;
type Encode = unsafe extern "C" fn(Handle, *const c_float, c_int, *mut c_uchar, i32) -> i32;
type Decode = unsafe extern "C" fn(Handle, *const c_uchar, i32, *mut c_float, c_int, c_int) -> i32;

/// An encoder and a decoder at 48 kHz.
pub(crate) struct Libopus {
    encoder: Handle,
    decoder: Handle,
    encode: Encode,
    decode: Decode,
    destroy: [unsafe extern "C" fn(Handle); 2],
    _library: DynamicLibrary,
}

impl Libopus {
    /// Constrained variable bit rate at complexity 10. `None` without the library.
    pub(crate) fn new(channels: usize, bitrate: u32) -> Option<Self> {
        type CreateEncoder = unsafe extern "C" fn(i32, c_int, c_int, *mut c_int) -> Handle;
        type CreateDecoder = unsafe extern "C" fn(i32, c_int, *mut c_int) -> Handle;
        type Control = unsafe extern "C" fn(Handle, c_int, ...) -> c_int;
        // SAFETY: the library's initializers have no conditions, and its functions have these
        // types.
        unsafe {
            let library = DynamicLibrary::open(c"libopus.so.0")?;
            let create_encoder: CreateEncoder = library.function(c"opus_encoder_create")?;
            let create_decoder: CreateDecoder = library.function(c"opus_decoder_create")?;
            let control: Control = library.function(c"opus_encoder_ctl")?;
            let destroy_encoder = library.function(c"opus_encoder_destroy")?;
            let destroy_decoder = library.function(c"opus_decoder_destroy")?;
            let count = c_int::try_from(channels).ok()?;
            let one = Self {
                encoder: create_encoder(48_000, count, AUDIO, ptr::null_mut()),
                decoder: create_decoder(48_000, count, ptr::null_mut()),
                encode: library.function(c"opus_encode_float")?,
                decode: library.function(c"opus_decode_float")?,
                destroy: [destroy_encoder, destroy_decoder],
                _library: library,
            };
            control(one.encoder, SET_BITRATE, bitrate.cast_signed());
            control(one.encoder, SET_COMPLEXITY, 10);
            Some(one)
        }
    }

    /// Encodes 20 ms into the front of `packet`.
    pub(crate) fn encode(&mut self, samples: &[f32], packet: &mut [u8]) -> usize {
        let (from, to) = (samples.as_ptr(), packet.as_mut_ptr());
        let room = i32::try_from(packet.len()).unwrap_or(0);
        // SAFETY: there are 960 frames, and `packet` has that room.
        let length = unsafe { (self.encode)(self.encoder, from, 960, to, room) };
        usize::try_from(length).unwrap_or(0)
    }

    /// Decodes 20 ms.
    pub(crate) fn decode(&mut self, packet: &[u8], out: &mut [f32]) {
        let length = i32::try_from(packet.len()).unwrap_or(0);
        // SAFETY: the packet has that length, and `out` has room for 960 frames.
        unsafe {
            (self.decode)(self.decoder, packet.as_ptr(), length, out.as_mut_ptr(), 960, 0);
        }
    }
}

impl Drop for Libopus {
    fn drop(&mut self) {
        let [encoder, decoder] = self.destroy;
        // SAFETY: both are open, and are not used after this.
        unsafe {
            encoder(self.encoder);
            decoder(self.decoder);
        }
    }
}

/// `OPUS_APPLICATION_AUDIO`.
const AUDIO: c_int = 2_049;

/// `OPUS_SET_BITRATE_REQUEST` and so on.
const SET_BITRATE: c_int = 4_002;
const SET_COMPLEXITY: c_int = 4_010;

//! Encoder.

use core::ffi::c_int;
use core::ptr::{self, NonNull};

use aulos_rt::scratch::with_scratch;
use unsafe_libopus as unsafe_library;

/// What the sound is, which decides how it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what libopus has")]
pub enum Application {
    /// Speech: below some 72 kbit/s it is encoded as speech (SILK, hybrid) in case of doubt.
    Voice,
    /// Anything: an analysis of the sound chooses.
    Audio,
    /// Anything, always as music (CELT): 4 ms less delay.
    LowDelay,
}

/// What an encoder is made for. Values out of range are refused by [`OpusEncoder::new`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct EncoderConfig {
    /// Sample rate in Hz: 8,000, 12,000, 16,000, 24,000 or 48,000.
    pub rate: u32,
    /// 1 or 2.
    pub channels: usize,
    /// What the sound is.
    pub application: Application,
    /// Bits per second.
    pub bitrate: u32,
    /// Constant bit rate; otherwise constrained variable bit rate.
    pub is_constant: bool,
    /// 0 (least work) to 10 (best).
    pub complexity: u8,
    /// Each packet contains the one before it in a coarse form, for receivers that have lost that,
    /// at an expected loss of so many per cent. 0: it does not.
    pub expected_loss: u8,
}

impl EncoderConfig {
    /// The best encoder at 96 kbit/s, without error correction.
    #[must_use]
    pub const fn new(rate: u32, channels: usize, application: Application) -> Self {
        Self {
            rate,
            channels,
            application,
            bitrate: 96_000,
            is_constant: false,
            complexity: 10,
            expected_loss: 0,
        }
    }
}

/// An encoder of blocks of 2.5, 5, 10, 20, 40, 60, 80, 100 or 120 ms.
#[derive(Debug)]
pub struct OpusEncoder {
    state: NonNull<unsafe_library::OpusEncoder>,
    channels: usize,
}

// SAFETY: the state has no ties to the thread that made it, and the library's tables are constant.
unsafe impl Send for OpusEncoder {}

// SAFETY: nothing is done through a shared reference.
unsafe impl Sync for OpusEncoder {}

impl OpusEncoder {
    /// `None` when a setting is out of range.
    #[must_use]
    pub fn new(config: EncoderConfig) -> Option<Self> {
        let EncoderConfig { rate, channels, application, .. } = config;
        let application = match application {
            Application::Voice => unsafe_library::OPUS_APPLICATION_VOIP,
            Application::Audio => unsafe_library::OPUS_APPLICATION_AUDIO,
            Application::LowDelay => unsafe_library::OPUS_APPLICATION_RESTRICTED_LOWDELAY,
        };
        let (hz, count) = (i32::try_from(rate).ok()?, i32::try_from(channels).ok()?);
        // SAFETY: values that the library does not have give no state, and no place for the error
        // is wanted.
        let state =
            unsafe { unsafe_library::opus_encoder_create(hz, count, application, ptr::null_mut()) };
        let encoder = Self { state: NonNull::new(state)?, channels };
        for (request, value) in [
            (unsafe_library::OPUS_SET_BITRATE_REQUEST, i32::try_from(config.bitrate).ok()?),
            (unsafe_library::OPUS_SET_VBR_REQUEST, i32::from(!config.is_constant)),
            (unsafe_library::OPUS_SET_VBR_CONSTRAINT_REQUEST, 1),
            (unsafe_library::OPUS_SET_COMPLEXITY_REQUEST, i32::from(config.complexity)),
            (unsafe_library::OPUS_SET_INBAND_FEC_REQUEST, i32::from(config.expected_loss > 0)),
            (unsafe_library::OPUS_SET_PACKET_LOSS_PERC_REQUEST, i32::from(config.expected_loss)),
        ] {
            encoder.set(request, value)?;
        }
        Some(encoder)
    }

    fn set(&self, request: c_int, value: i32) -> Option<()> {
        let arguments = unsafe_library::varargs!(value);
        let state = self.state.as_ptr();
        // SAFETY: the state is that of an encoder, and each of these requests has one argument of
        // 32 bits.
        let result = unsafe { unsafe_library::opus_encoder_ctl_impl(state, request, arguments) };
        (result == unsafe_library::OPUS_OK).then_some(())
    }

    /// Changes the complexity, 0 to 10, from the next packet on. `None` when it is out of range.
    pub fn set_complexity(&mut self, complexity: u8) -> Option<()> {
        self.set(unsafe_library::OPUS_SET_COMPLEXITY_REQUEST, complexity.into())
    }

    /// Delay of a decoder's output relative to the input, in frames.
    #[must_use]
    pub fn delay(&self) -> usize {
        let mut frames = 0;
        let arguments = unsafe_library::varargs!(&mut frames);
        let (state, request) = (self.state.as_ptr(), unsafe_library::OPUS_GET_LOOKAHEAD_REQUEST);
        // SAFETY: as in `set`; this request writes to its argument and changes nothing else.
        unsafe { unsafe_library::opus_encoder_ctl_impl(state, request, arguments) };
        usize::try_from(frames).unwrap_or(0)
    }

    /// Encodes `frames` interleaved frames of finite samples into the front of `packet`; returns
    /// the packet's length. `None` when Opus has no packets of that duration, and when the packet
    /// has no room.
    ///
    /// # Real-time
    /// Allocates nothing in a program with a [`ScratchAllocator`](aulos_rt::scratch), does not lock
    /// or call the system.
    ///
    /// # Panics
    /// By a bug of the library.
    pub fn encode(&mut self, samples: &[f32], frames: usize, packet: &mut [u8]) -> Option<usize> {
        if samples.len() < frames.checked_mul(self.channels)? {
            return None;
        }
        let frames = i32::try_from(frames).ok()?;
        let room = i32::try_from(packet.len()).unwrap_or(i32::MAX);
        let (state, from, to) = (self.state.as_ptr(), samples.as_ptr(), packet.as_mut_ptr());
        // SAFETY: there are as many samples as the frames have, `packet` has `room` bytes, and the
        // state is that of an encoder.
        let encode = || unsafe { unsafe_library::opus_encode_float(state, from, frames, to, room) };
        let length = usize::try_from(with_scratch(encode)).ok()?;
        (1..=packet.len()).contains(&length).then_some(length)
    }
}

impl Drop for OpusEncoder {
    fn drop(&mut self) {
        // SAFETY: the state is that of an encoder, and is not used after this.
        unsafe { unsafe_library::opus_encoder_destroy(self.state.as_ptr()) };
    }
}

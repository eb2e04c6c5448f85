//! Decoders.

use core::ptr::{self, NonNull};

use aulos_rt::scratch::with_scratch;
use unsafe_libopus_decoder as unsafe_library;

/// A decoder of one stream, of one or two channels.
#[derive(Debug)]
pub struct OpusDecoder {
    state: NonNull<unsafe_library::OpusDecoder>,
    channels: usize,
}

// SAFETY: the state has no ties to the thread that made it, and the library's tables are constant.
unsafe impl Send for OpusDecoder {}

// SAFETY: nothing is done through a shared reference.
unsafe impl Sync for OpusDecoder {}

impl OpusDecoder {
    /// A decoder at `rate`, which is 8,000, 12,000, 16,000, 24,000 or 48,000 Hz; `None` for
    /// another rate, and for other than one or two channels.
    #[must_use]
    pub fn new(rate: u32, channels: usize) -> Option<Self> {
        let (hz, count) = (i32::try_from(rate).ok()?, i32::try_from(channels).ok()?);
        // SAFETY: values that the library does not have give no state, and no place for the error
        // is wanted.
        let state = unsafe { unsafe_library::opus_decoder_create(hz, count, ptr::null_mut()) };
        Some(Self { state: NonNull::new(state)?, channels })
    }

    /// Decodes a packet into the front of `out`; returns the number of frames. `None` for a damaged
    /// packet, and one that is longer than `out`.
    ///
    /// # Real-time
    /// Allocates nothing in a program with a [`ScratchAllocator`](aulos_rt::scratch), does not lock
    /// or call the system.
    ///
    /// # Panics
    /// By a bug of the library.
    pub fn decode(&mut self, packet: &[u8], out: &mut [f32]) -> Option<usize> {
        (!packet.is_empty()).then(|| self.call(packet, out, false))?
    }

    /// Fills `out` with a continuation of the sound in place of a lost packet. `None` for a length
    /// that is no multiple of 2.5 ms.
    ///
    /// # Real-time
    /// As [`OpusDecoder::decode`].
    ///
    /// # Panics
    /// By a bug of the library.
    pub fn conceal(&mut self, out: &mut [f32]) -> Option<usize> {
        self.call(&[], out, false)
    }

    /// Fills `out` with what the packet `following` contains of the lost one before it, or with a
    /// continuation of the sound; that packet has to be decoded next. `None` as of
    /// [`OpusDecoder::conceal`].
    ///
    /// # Real-time
    /// As [`OpusDecoder::decode`].
    ///
    /// # Panics
    /// By a bug of the library.
    pub fn recover(&mut self, following: &[u8], out: &mut [f32]) -> Option<usize> {
        self.call(following, out, true)
    }

    fn call(&self, packet: &[u8], out: &mut [f32], fec: bool) -> Option<usize> {
        let (data, length) = packet_parts(packet)?;
        let frames = out.len() / self.channels;
        let room = i32::try_from(frames).ok()?;
        let (state, to) = (self.state.as_ptr(), out.as_mut_ptr());
        let fec = i32::from(fec);
        // SAFETY: `data` has `length` bytes, `out` has room for `room` frames of the decoder's
        // channels, and the state is that of a decoder.
        let decode =
            || unsafe { unsafe_library::opus_decode_float(state, data, length, to, room, fec) };
        usize::try_from(with_scratch(decode)).ok().filter(|decoded| *decoded <= frames)
    }
}

impl Drop for OpusDecoder {
    fn drop(&mut self) {
        // SAFETY: the state is that of a decoder, and is not used after this.
        unsafe { unsafe_library::opus_decoder_destroy(self.state.as_ptr()) };
    }
}

/// How streams of one and two channels make one of more channels (RFC 7845, section 5.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what an identification header has")]
pub struct StreamMapping {
    /// Number of streams in a packet.
    pub streams: u8,
    /// How many of them, the first ones, have two channels.
    pub coupled_streams: u8,
    /// For each channel of the output the decoded one, or 255 for silence.
    pub channels: Vec<u8>,
}

impl StreamMapping {
    /// Whether there is a stream, and each channel of the output is one that a stream has.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let Some(decoded) = self.streams.checked_add(self.coupled_streams) else { return false };
        self.streams > 0
            && self.coupled_streams <= self.streams
            && (1..=MAX_CHANNELS).contains(&self.channels.len())
            && self.channels.iter().all(|&from| from < decoded || from == SILENT)
    }
}

/// A decoder of several streams in one packet.
#[derive(Debug)]
pub struct MultistreamDecoder {
    state: NonNull<unsafe_library::OpusMSDecoder>,
    channels: usize,
    rate: u32,
}

// SAFETY: as of `OpusDecoder`.
unsafe impl Send for MultistreamDecoder {}

// SAFETY: as of `OpusDecoder`.
unsafe impl Sync for MultistreamDecoder {}

impl MultistreamDecoder {
    /// As [`OpusDecoder::new`]; `None` also for a mapping that names channels which no stream has.
    #[must_use]
    pub fn new(rate: u32, mapping: &StreamMapping) -> Option<Self> {
        if !mapping.is_valid() {
            return None;
        }
        let channels = mapping.channels.len();
        let (hz, count) = (i32::try_from(rate).ok()?, i32::try_from(channels).ok()?);
        let (streams, coupled) = (mapping.streams.into(), mapping.coupled_streams.into());
        let table = mapping.channels.as_ptr();
        let error = ptr::null_mut();
        // SAFETY: the table has an entry for each channel and is valid for these streams; a rate
        // that the library does not have gives no state, and no place for the error is wanted.
        let state = unsafe {
            unsafe_library::opus_multistream_decoder_create(
                hz, count, streams, coupled, table, error,
            )
        };
        Some(Self { state: NonNull::new(state)?, channels, rate })
    }

    /// As [`OpusDecoder::decode`].
    ///
    /// # Panics
    /// By a bug of the library.
    pub fn decode(&mut self, packet: &[u8], out: &mut [f32]) -> Option<usize> {
        (!packet.is_empty()).then(|| self.call(packet, out))?
    }

    /// As [`OpusDecoder::conceal`], for at most 120 ms.
    ///
    /// # Panics
    /// By a bug of the library.
    pub fn conceal(&mut self, out: &mut [f32]) -> Option<usize> {
        self.call(&[], out)
    }

    fn call(&self, packet: &[u8], out: &mut [f32]) -> Option<usize> {
        let (data, length) = packet_parts(packet)?;
        // The library uses memory for as many frames as it is offered.
        let frames = (out.len() / self.channels).min(self.rate as usize / 25 * 3);
        let room = i32::try_from(frames).ok()?;
        let (state, to) = (self.state.as_ptr(), out.as_mut_ptr());
        // SAFETY: `data` has `length` bytes, `out` has room for `room` frames of the decoder's
        // channels, and the state is that of a decoder of several streams.
        let decode = || unsafe {
            unsafe_library::opus_multistream_decode_float(state, data, length, to, room, 0)
        };
        usize::try_from(with_scratch(decode)).ok().filter(|decoded| *decoded <= frames)
    }
}

impl Drop for MultistreamDecoder {
    fn drop(&mut self) {
        // SAFETY: the state is that of a decoder of several streams, and is not used after this.
        unsafe { unsafe_library::opus_multistream_decoder_destroy(self.state.as_ptr()) };
    }
}

/// Start and length; a null pointer for no packet, as libopus wants it.
fn packet_parts(packet: &[u8]) -> Option<(*const u8, i32)> {
    let data = if packet.is_empty() { ptr::null() } else { packet.as_ptr() };
    Some((data, i32::try_from(packet.len()).ok()?))
}

/// The number of channels is a byte (RFC 7845, section 5.1).
const MAX_CHANNELS: usize = 255;

/// The table entry of a silent channel.
const SILENT: u8 = 255;

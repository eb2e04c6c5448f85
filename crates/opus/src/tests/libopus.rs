//! The system's libopus decodes the same packets, whole and damaged ones.

use std::ffi::{c_float, c_int, c_uchar, c_void};
use std::ptr;

use aulos_rt::DynamicLibrary;

use super::*;

type Handle = *mut c_void;

/// A decoder of libopus.
struct Judge {
    handle: Handle,
    channels: usize,
    decode: unsafe extern "C" fn(Handle, *const c_uchar, i32, *mut c_float, c_int, c_int) -> c_int,
    destroy: unsafe extern "C" fn(Handle),
    _library: DynamicLibrary,
}

impl Judge {
    fn new(rate: i32, channels: usize) -> Option<Self> {
        type Create = unsafe extern "C" fn(i32, c_int, *mut c_int) -> Handle;
        // SAFETY: the library's initializers have no conditions.
        let library = unsafe { DynamicLibrary::open(c"libopus.so.0") }?;
        // SAFETY: `opus_decoder_create` has this type,
        let create: Create = unsafe { library.function(c"opus_decoder_create") }?;
        // SAFETY: and so have `opus_decode_float`
        let decode = unsafe { library.function(c"opus_decode_float") }?;
        // SAFETY: and `opus_decoder_destroy`.
        let destroy = unsafe { library.function(c"opus_decoder_destroy") }?;
        let count = c_int::try_from(channels).ok()?;
        // SAFETY: no place for the error is wanted.
        let handle = unsafe { create(rate, count, ptr::null_mut()) };
        Some(Self { handle, channels, decode, destroy, _library: library })
    }

    fn decode(&mut self, packet: &[u8], out: &mut [f32]) -> Option<usize> {
        let (data, length) = (packet.as_ptr(), i32::try_from(packet.len()).ok()?);
        let data = if packet.is_empty() { ptr::null() } else { data };
        let frames = c_int::try_from(out.len() / self.channels).ok()?;
        // SAFETY: `data` has `length` bytes, `out` has room for the frames, the handle is open.
        let decoded =
            unsafe { (self.decode)(self.handle, data, length, out.as_mut_ptr(), frames, 0) };
        usize::try_from(decoded).ok()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is not used after this.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// The largest difference of two signals, as a part of the larger one.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    let most = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, f32::max);
    let apart = most(&mut ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()));
    apart / most(&mut theirs.iter().map(|sample| sample.abs())).max(1e-3)
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Silk,
    Hybrid,
    Celt,
}

impl Mode {
    /// RFC 6716, section 3.1.
    fn of(packet: &[u8]) -> Self {
        match packet[0] >> 3 {
            ..12 => Self::Silk,
            12..16 => Self::Hybrid,
            16.. => Self::Celt,
        }
    }
}

proptest! {
    /// Random bytes after a first byte of one frame, and gaps after speech. What continues music,
    /// in a gap or where another mode begins, is left out: it depends on the last bits of a
    /// correlation, which libopus adds up in another order.
    #[test]
    fn libopus_decodes_any_packet_to_the_same_sound(
        rate in proptest::sample::select(RATES.to_vec()),
        channels in 1..=2_usize,
        packets in proptest::collection::vec(
            prop_oneof![
                5 => proptest::collection::vec(any::<u8>(), 3..200),
                1 => Just(Vec::new()),
            ],
            1..24,
        ),
    ) {
        let Some(mut judge) = Judge::new(rate.cast_signed(), channels) else {
            println!("skipped: no libopus0");
            return Ok(());
        };
        let mut decoder = OpusDecoder::new(rate, channels).unwrap();
        let longest = rate as usize / 25 * 3 * channels;
        let (mut ours, mut theirs) = (vec![0.0; longest], vec![0.0; longest]);
        let mut before = Mode::Silk;
        for mut packet in packets {
            let mode = if packet.is_empty() { None } else { Some(Mode::of(&packet)) };
            if before != Mode::Silk && mode != Some(before) {
                continue;
            }
            before = mode.unwrap_or(before);
            let (room, decoded) = if let Some(first) = packet.first_mut() {
                *first &= 0xfc;
                (longest, decoder.decode(&packet, &mut ours))
            } else {
                let room = longest / 6;
                (room, decoder.conceal(&mut ours[..room]))
            };
            prop_assert_eq!(decoded, judge.decode(&packet, &mut theirs[..room]));
            let samples = decoded.unwrap_or(0) * channels;
            let apart = difference(&ours[..samples], &theirs[..samples]);
            prop_assert!(apart < 1e-4, "{apart}");
        }
    }
}

//! libebur128 of the distribution, loaded when the tests run.

#![allow(unsafe_code, reason = "a C library")]
#![allow(clippy::missing_transmute_annotations, reason = "the fields have the types")]

use core::ffi::{CStr, c_double, c_int, c_uint, c_ulong, c_void};

type Pointer = *mut c_void;
type Add<T> = unsafe extern "C" fn(Pointer, *const T, usize) -> c_int;
type Read = unsafe extern "C" fn(Pointer, *mut c_double) -> c_int;
type ReadPeak = unsafe extern "C" fn(Pointer, c_uint, *mut c_double) -> c_int;

/// Functions of the library.
#[derive(Clone, Copy)]
pub(crate) struct Libebur128 {
    init: unsafe extern "C" fn(c_uint, c_ulong, c_int) -> Pointer,
    destroy: unsafe extern "C" fn(*mut Pointer),
    set_channel: unsafe extern "C" fn(Pointer, c_uint, c_int) -> c_int,
    change: unsafe extern "C" fn(Pointer, c_uint, c_ulong) -> c_int,
    history: unsafe extern "C" fn(Pointer, c_ulong) -> c_int,
    add_i16: Add<i16>,
    add_i32: Add<i32>,
    add_f32: Add<f32>,
    add_f64: Add<f64>,
    reads: [Read; 5],
    window: unsafe extern "C" fn(Pointer, c_ulong, *mut c_double) -> c_int,
    peaks: [ReadPeak; 4],
}

/// Figures of the whole programme, in the order of [`LibraryMeter::read`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    Momentary,
    ShortTerm,
    Integrated,
    Range,
    Threshold,
}

/// The peaks of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peak {
    Sample,
    True,
    LastSample,
    LastTrue,
}

impl Libebur128 {
    /// `None` if it is not installed.
    pub(crate) fn load() -> Option<Self> {
        // SAFETY: loading it has no effects of its own.
        let library = unsafe { libc::dlopen(c"libebur128.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        macro_rules! find {
            ($name:literal) => {{
                let name: &CStr = $name;
                // SAFETY: the library has been loaded, and is never unloaded.
                let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                assert!(!found.is_null(), "libebur128 has {name:?}");
                // SAFETY: the field has the type that the header declares.
                unsafe { core::mem::transmute::<*mut c_void, _>(found) }
            }};
        }
        Some(Self {
            init: find!(c"ebur128_init"),
            destroy: find!(c"ebur128_destroy"),
            set_channel: find!(c"ebur128_set_channel"),
            change: find!(c"ebur128_change_parameters"),
            history: find!(c"ebur128_set_max_history"),
            add_i16: find!(c"ebur128_add_frames_short"),
            add_i32: find!(c"ebur128_add_frames_int"),
            add_f32: find!(c"ebur128_add_frames_float"),
            add_f64: find!(c"ebur128_add_frames_double"),
            reads: [
                find!(c"ebur128_loudness_momentary"),
                find!(c"ebur128_loudness_shortterm"),
                find!(c"ebur128_loudness_global"),
                find!(c"ebur128_loudness_range"),
                find!(c"ebur128_relative_threshold"),
            ],
            window: find!(c"ebur128_loudness_window"),
            peaks: [
                find!(c"ebur128_sample_peak"),
                find!(c"ebur128_true_peak"),
                find!(c"ebur128_prev_sample_peak"),
                find!(c"ebur128_prev_true_peak"),
            ],
        })
    }
}

/// A meter of libebur128.
pub(crate) struct LibraryMeter {
    of: Libebur128,
    state: Pointer,
    channels: usize,
}

impl LibraryMeter {
    pub(crate) fn new(of: Libebur128, rate: u32, map: &[u8], mode: i32) -> Self {
        // SAFETY: plain numbers.
        let state = unsafe { (of.init)(map.len() as c_uint, c_ulong::from(rate), mode) };
        assert!(!state.is_null(), "libebur128 takes {} channels at {rate} Hz", map.len());
        let mut new = Self { of, state, channels: map.len() };
        new.set_map(map);
        new
    }

    pub(crate) fn change(&mut self, rate: u32, map: &[u8]) {
        let channels = map.len() as c_uint;
        // SAFETY: the state is alive.
        unsafe { (self.of.change)(self.state, channels, c_ulong::from(rate)) };
        self.channels = map.len();
        self.set_map(map);
    }

    pub(crate) fn set_history(&mut self, ms: u32) {
        // SAFETY: the state is alive.
        unsafe { (self.of.history)(self.state, c_ulong::from(ms)) };
    }

    pub(crate) fn add_i16(&mut self, samples: &[i16]) {
        self.add(self.of.add_i16, samples);
    }

    pub(crate) fn add_i32(&mut self, samples: &[i32]) {
        self.add(self.of.add_i32, samples);
    }

    pub(crate) fn add_f32(&mut self, samples: &[f32]) {
        self.add(self.of.add_f32, samples);
    }

    pub(crate) fn add_f64(&mut self, samples: &[f64]) {
        self.add(self.of.add_f64, samples);
    }

    pub(crate) fn read(&self, figure: Figure) -> Option<f64> {
        let mut out = 0.0;
        // SAFETY: the state is alive, and there is room for the answer.
        let failed = unsafe { self.of.reads[figure as usize](self.state, &raw mut out) };
        (failed == 0).then_some(out)
    }

    pub(crate) fn window(&self, ms: u32) -> Option<f64> {
        let mut out = 0.0;
        // SAFETY: the state is alive, and there is room for the answer.
        let failed = unsafe { (self.of.window)(self.state, c_ulong::from(ms), &raw mut out) };
        (failed == 0).then_some(out)
    }

    pub(crate) fn peak(&self, figure: Peak, channel: usize) -> Option<f64> {
        let (mut out, read) = (0.0, self.of.peaks[figure as usize]);
        // SAFETY: the state is alive, and there is room for the answer.
        let failed = unsafe { read(self.state, channel as c_uint, &raw mut out) };
        (failed == 0).then_some(out)
    }

    fn set_map(&mut self, map: &[u8]) {
        for (channel, &number) in map.iter().enumerate() {
            // SAFETY: the state is alive.
            let failed = unsafe {
                (self.of.set_channel)(self.state, channel as c_uint, c_int::from(number))
            };
            assert_eq!(failed, 0, "channel {channel} may be {number}");
        }
    }

    fn add<T>(&mut self, add: Add<T>, samples: &[T]) {
        let frames = samples.len() / self.channels;
        // SAFETY: the state is alive, and there are so many frames.
        let failed = unsafe { add(self.state, samples.as_ptr(), frames) };
        assert_eq!(failed, 0, "libebur128 takes {frames} frames");
    }
}

impl Drop for LibraryMeter {
    fn drop(&mut self) {
        // SAFETY: the state is alive, and is not used after this.
        unsafe { (self.of.destroy)(&raw mut self.state) };
    }
}

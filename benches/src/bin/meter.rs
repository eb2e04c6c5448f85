//! What does it cost to measure the loudness of a frame?
//!
//! Ours, with AVX2 alone and with AVX-512 where the processor has it, beside libebur128 (the
//! distribution's, loaded at run time) and the crate `ebur128`, on one programme-like signal at
//! 48 kHz, in f32, in calls of 100 ms or less; polled means that M and S are read after each call.
//! Columns are nanoseconds of CPU time per frame, the smallest of `reps=` rounds in which all take
//! turns; `s=` seconds of sound; `only=` a part of a case's name. The case "nothing prunable" is a
//! tone whose envelope is constant, so that no true peak can be passed over.
//! Bad would be: less than the ratios of the targets, or a cost that grows with shorter calls.

use std::ffi::{c_char, c_double, c_int, c_uint, c_ulong, c_void};
use std::hint::black_box;

use aulos_benches::{Row, argument, report};
use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::meter::{Meter, MeterConfig, MeterKernel, MeterMode};

struct Case {
    name: &'static str,
    channels: usize,
    call: usize,
    polled: bool,
    steady: bool,
    /// Mode bits of libebur128.
    mode: c_int,
    /// How many times faster than C and than the crate we must be; 0 where nothing is asked.
    must: (f64, f64),
}

const I: c_int = 5;
const IMS: c_int = 7;
const LRA: c_int = 15;
const TP: c_int = 53;
const ALL: c_int = 63;

#[rustfmt::skip]
const CASES: [Case; 11] = [
    Case { name: "I, 100 ms calls", channels: 2, call: 4800, polled: false, steady: false, mode: I, must: (12.0, 8.0) },
    Case { name: "I+S+M, 100 ms calls", channels: 2, call: 4800, polled: false, steady: false, mode: IMS, must: (12.0, 8.0) },
    Case { name: "I, 10 ms calls", channels: 2, call: 480, polled: false, steady: false, mode: I, must: (6.0, 4.0) },
    Case { name: "I, 64-frame calls", channels: 2, call: 64, polled: false, steady: false, mode: I, must: (6.0, 4.0) },
    Case { name: "I+S+M polled at 10 Hz", channels: 2, call: 4800, polled: true, steady: false, mode: IMS, must: (35.0, 30.0) },
    Case { name: "I+LRA", channels: 2, call: 4800, polled: false, steady: false, mode: LRA, must: (14.0, 10.0) },
    Case { name: "I + true peak, nothing prunable", channels: 2, call: 4800, polled: false, steady: true, mode: TP, must: (20.0, 9.0) },
    Case { name: "I + true peak, programme", channels: 2, call: 4800, polled: false, steady: false, mode: TP, must: (30.0, 14.0) },
    Case { name: "everything, polled, programme", channels: 2, call: 4800, polled: true, steady: false, mode: ALL, must: (45.0, 30.0) },
    Case { name: "5.1 I", channels: 6, call: 4800, polled: false, steady: false, mode: I, must: (10.0, 7.0) },
    Case { name: "mono I", channels: 1, call: 4800, polled: false, steady: false, mode: I, must: (0.0, 0.0) },
];

fn main() {
    let (reps, seconds) = (argument("reps", 11), argument("s", 20));
    let only = std::env::args().find_map(|word| Some(word.strip_prefix("only=")?.to_string()));
    let original = Original::load();
    if original.is_none() {
        println!("skipped: no libebur128");
    }
    let mut rows = Vec::new();
    for case in &CASES {
        if only.as_ref().is_none_or(|part| case.name.contains(part.as_str())) {
            rows.extend(measure(case, reps, seconds, original.as_ref()));
        }
    }
    report(&rows);
}

fn measure(case: &Case, reps: usize, seconds: usize, original: Option<&Original>) -> Vec<Row> {
    let signal = signal(case, seconds * 48_000);
    let frames = (signal.len() / case.channels) as f64;
    let mut best = [f64::INFINITY; 5];
    for _ in 0..reps {
        let times = [
            ours(case, &signal, MeterKernel::Avx2, MeterMode::MOMENTARY),
            original.map_or(f64::INFINITY, |peer| peer.measure(case, &signal)),
            ours(case, &signal, MeterKernel::Best, MeterMode::MOMENTARY),
            the_crate(case, &signal),
            ours(case, &signal, MeterKernel::Best, MeterMode::MAXIMA),
        ];
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time / frames * 1e9);
        }
    }
    let [avx2, c, widest, rust, maxima] = best;
    let mut rows = Vec::new();
    for (registers, ours) in [("AVX2", avx2), ("AVX-512", widest)] {
        if registers == "AVX-512" && !is_x86_feature_detected!("avx512vl") {
            continue;
        }
        for (peer, theirs, must) in [("libebur128", c, case.must.0), ("ebur128", rust, case.must.1)]
        {
            let name = format!("{}, {registers} / {peer}", case.name);
            let target = (must > 0.0).then(|| 1.0 / must);
            if theirs.is_finite() {
                rows.push(Row::against("meter", name, ours, theirs, target));
            }
        }
    }
    let name = format!("{}, with maxima / without", case.name);
    rows.push(Row::against("meter", name, maxima, widest, None));
    rows
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = cpu_time();
    work();
    cpu_time() - start
}

/// Seconds that this thread has run: what others take of the machine meanwhile does not count.
fn cpu_time() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and there is room for its time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn ours(case: &Case, signal: &[f32], kernel: MeterKernel, more: MeterMode) -> f64 {
    let mut mode = more;
    for (bit, add) in [
        (2, MeterMode::SHORT_TERM),
        (4, MeterMode::INTEGRATED),
        (8, MeterMode::RANGE),
        (16, MeterMode::SAMPLE_PEAK),
        (32, MeterMode::TRUE_PEAK),
    ] {
        mode = if case.mode & bit != 0 { mode | add } else { mode };
    }
    let layout = ChannelLayout::new(case.channels).expect("a few channels");
    let mut config = MeterConfig::new(SampleRate::HZ_48000, layout, mode);
    config.kernel = kernel;
    let mut meter = Meter::new(config).expect("a plain configuration");
    timed(|| {
        for call in signal.chunks(case.call * case.channels) {
            meter.add(call);
            if case.polled {
                black_box((meter.momentary(), meter.short_term()));
            }
        }
        black_box((meter.integrated(), meter.range(), meter.true_peak(0)));
    })
}

fn the_crate(case: &Case, signal: &[f32]) -> f64 {
    let mode = ebur128::Mode::from_bits_truncate(case.mode as u8);
    let mut meter = ebur128::EbuR128::new(case.channels as u32, 48_000, mode).expect("plain");
    timed(|| {
        for call in signal.chunks(case.call * case.channels) {
            meter.add_frames_f32(call).expect("whole frames");
            if case.polled {
                black_box((meter.loudness_momentary().ok(), meter.loudness_shortterm().ok()));
            }
        }
        black_box((meter.loudness_global().ok(), meter.loudness_range().ok()));
    })
}

/// libebur128, as the distribution built it.
struct Original {
    init: unsafe extern "C" fn(c_uint, c_ulong, c_int) -> *mut c_void,
    destroy: unsafe extern "C" fn(*mut *mut c_void),
    add: unsafe extern "C" fn(*mut c_void, *const f32, usize) -> c_int,
    reads: [unsafe extern "C" fn(*mut c_void, *mut c_double) -> c_int; 4],
}

impl Original {
    fn load() -> Option<Self> {
        // SAFETY: a library whose loading has no effects of its own.
        let library = unsafe { libc::dlopen(c"libebur128.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let find = |name: &'static std::ffi::CStr| {
            let name: *const c_char = name.as_ptr();
            // SAFETY: the library has been loaded and is never unloaded.
            let found = unsafe { libc::dlsym(library, name) };
            assert!(!found.is_null(), "libebur128 has all its functions");
            found
        };
        let read = |name| {
            // SAFETY: the type is that of the header.
            unsafe { std::mem::transmute::<*mut c_void, _>(find(name)) }
        };
        // SAFETY: the types are those of the header.
        unsafe {
            Some(Self {
                init: std::mem::transmute::<*mut c_void, _>(find(c"ebur128_init")),
                destroy: std::mem::transmute::<*mut c_void, _>(find(c"ebur128_destroy")),
                add: std::mem::transmute::<*mut c_void, _>(find(c"ebur128_add_frames_float")),
                reads: [
                    read(c"ebur128_loudness_momentary"),
                    read(c"ebur128_loudness_shortterm"),
                    read(c"ebur128_loudness_global"),
                    read(c"ebur128_loudness_range"),
                ],
            })
        }
    }

    fn measure(&self, case: &Case, signal: &[f32]) -> f64 {
        // SAFETY: the calls follow the header's contract.
        let mut state = unsafe { (self.init)(case.channels as c_uint, 48_000, case.mode) };
        let mut out = 0.0;
        let time = timed(|| {
            for call in signal.chunks(case.call * case.channels) {
                // SAFETY: the slice has so many frames.
                unsafe { (self.add)(state, call.as_ptr(), call.len() / case.channels) };
                if case.polled {
                    for read in &self.reads[..2] {
                        // SAFETY: the state is alive.
                        unsafe { read(state, &mut out) };
                    }
                }
            }
            for read in &self.reads[2..] {
                // SAFETY: the state is alive.
                unsafe { read(state, &mut out) };
            }
        });
        // SAFETY: the state is alive, and not used after this.
        unsafe { (self.destroy)(&mut state) };
        black_box(out);
        time
    }
}

/// Noise under an envelope of words and pauses with a tone below; or a steady tone.
fn signal(case: &Case, frames: usize) -> Vec<f32> {
    let mut seed = 1u64;
    let mut draw = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let (mut level, mut held) = (0.1, 0.0);
    let mut out = Vec::with_capacity(frames * case.channels);
    for frame in 0..frames {
        if frame % 6_857 == 0 {
            level = 10f64.powf((draw() - 1.0) * 0.6);
        }
        for channel in 0..case.channels {
            held = 0.7 * held + 0.3 * draw();
            let tone = (frame as f64 * 0.0288 * (1 + channel) as f64).sin();
            let steady = 0.9 * (frame as f64 * 0.777).sin();
            let value = if case.steady { steady } else { level * (0.8 * held + 0.15 * tone) };
            out.push(value as f32);
        }
    }
    out
}

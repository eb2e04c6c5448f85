//! The functions `aulos_normalizer_*`.

use core::ffi::{CStr, c_char, c_int};

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::normalize::{
    LookAhead, LoudnessStats, Memory, Normalizer, NormalizerPreset, Settings,
};

use crate::error::{
    CResult, ErrorCode, buffer, buffer_mut, exclusive, run, run_quietly, shared, take, write,
};

/// `aulos_normalizer`.
#[derive(Debug)]
#[allow(unnameable_types, reason = "opaque to callers")]
pub struct NormalizerObject {
    normalizer: Normalizer,
    config: NormalizerConfig,
}

/// `aulos_normalizer_config`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct NormalizerConfig {
    pub rate: u32,
    pub channels: u32,
    pub mode: i32,
    pub dual_mono: i32,
    pub target_lufs: f64,
    pub ceiling_dbtp: f64,
    pub range_lu: f64,
    pub min_gain_db: f64,
    pub max_gain_db: f64,
    pub rise_db_s: f64,
    pub fall_db_s: f64,
    pub gate_lufs: f64,
    pub memory_s: u32,
}

/// `aulos_loudness`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct Loudness {
    pub momentary_lufs: f64,
    pub short_term_lufs: f64,
    pub integrated_lufs: f64,
    pub range_lu: f64,
    pub true_peak_dbtp: f64,
}

/// `aulos_normalizer_status`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct NormalizerStatus {
    pub input: Loudness,
    pub output: Loudness,
    pub gain_db: f64,
    pub level_lufs: f64,
    pub reduction_db: f64,
    pub clamped: u64,
    pub rejected: u64,
}

/// Fills a configuration with a preset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_config_init(
    config: *mut NormalizerConfig,
    preset: *const c_char,
) -> c_int {
    run(|| {
        let preset = if preset.is_null() {
            NormalizerPreset::R128
        } else {
            // SAFETY: the caller passes a string that ends with a zero.
            let name = unsafe { CStr::from_ptr(preset) }.to_str();
            let preset = name.ok().and_then(|name| name.parse().ok());
            preset.ok_or(ErrorCode::Argument)?
        };
        // SAFETY: see the head of the crate.
        unsafe { write(config, NormalizerConfig::of(&preset.settings())) }
    })
}

/// Creates a normalizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_create(
    config: *const NormalizerConfig,
    normalizer: *mut *mut NormalizerObject,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { write(normalizer, core::ptr::null_mut()) }?;
        // SAFETY: see the head of the crate.
        let config = *unsafe { shared(config) }?;
        let object = NormalizerObject { normalizer: config.normalizer()?, config };
        // SAFETY: see the head of the crate.
        unsafe { write(normalizer, Box::into_raw(Box::new(object))) }
    })
}

/// Frees a normalizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_destroy(normalizer: *mut NormalizerObject) {
    // SAFETY: see the head of the crate.
    run_quietly(|| drop(unsafe { take(normalizer) }));
}

/// Processes interleaved frames in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_process(
    normalizer: *mut NormalizerObject,
    samples: *mut f32,
    frames: usize,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(normalizer) }?;
        // SAFETY: see the head of the crate.
        let samples = unsafe { buffer_mut(samples, object.samples_in(frames)?) }?;
        object.normalizer.process(samples);
        Ok(())
    })
}

/// Processes interleaved frames from one buffer to another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_process_to(
    normalizer: *mut NormalizerObject,
    input: *const f32,
    out: *mut f32,
    frames: usize,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(normalizer) }?;
        let count = object.samples_in(frames)?;
        // SAFETY: see the head of the crate.
        if unsafe { buffer(input, count) }?.is_empty() {
            return Ok(());
        }
        // SAFETY: see the head of the crate. The slice is not used before the copy.
        unsafe { buffer_mut(out, count) }?;
        // SAFETY: both have `count` samples, checked to be possible; they may overlap.
        unsafe { core::ptr::copy(input, out, count) };
        // SAFETY: as above; the input is not used any more.
        object.normalizer.process(unsafe { buffer_mut(out, count) }?);
        Ok(())
    })
}

/// Fills `out` with what is still delayed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_drain(
    normalizer: *mut NormalizerObject,
    out: *mut f32,
    frames: usize,
    delayed: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(normalizer) }?;
        // SAFETY: see the head of the crate.
        let delayed = unsafe { exclusive(delayed) }?;
        // SAFETY: see the head of the crate.
        let out = unsafe { buffer_mut(out, object.samples_in(frames)?) }?;
        *delayed = object.normalizer.drain(out).as_usize();
        Ok(())
    })
}

/// Changes the settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_set(
    normalizer: *mut NormalizerObject,
    config: *const NormalizerConfig,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(normalizer) }?;
        // SAFETY: see the head of the crate.
        let config = *unsafe { shared(config) }?;
        let fixed = |config: &NormalizerConfig| (config.rate, config.channels, config.mode);
        if fixed(&config) != fixed(&object.config) {
            return Err(ErrorCode::Argument);
        }
        let changed = object.normalizer.set_settings(config.settings());
        changed.map_err(|_| ErrorCode::Argument)?;
        object.config = config;
        Ok(())
    })
}

/// Marks a discontinuity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_interrupt(normalizer: *mut NormalizerObject) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { exclusive(normalizer) }?.normalizer.interrupt();
        Ok(())
    })
}

/// The delay in frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_delay(normalizer: *const NormalizerObject) -> usize {
    // SAFETY: see the head of the crate.
    unsafe { shared(normalizer) }.map_or(0, |object| object.normalizer.latency().as_usize())
}

/// Loudness and gain so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_normalizer_get_status(
    normalizer: *const NormalizerObject,
    status: *mut NormalizerStatus,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let now = unsafe { shared(normalizer) }?.normalizer.statistics();
        let now = NormalizerStatus {
            input: Loudness::of(&now.input),
            output: Loudness::of(&now.output),
            gain_db: now.gain.get(),
            level_lufs: now.level.get(),
            reduction_db: now.reduction.get(),
            clamped: now.clamped,
            rejected: now.rejected,
        };
        // SAFETY: see the head of the crate.
        unsafe { write(status, now) }
    })
}

impl NormalizerObject {
    fn samples_in(&self, frames: usize) -> CResult<usize> {
        frames.checked_mul(self.config.channels as usize).ok_or(ErrorCode::Argument)
    }
}

impl NormalizerConfig {
    fn of(settings: &Settings) -> Self {
        Self {
            rate: SampleRate::HZ_48000.hz(),
            channels: 2,
            mode: 0,
            dual_mono: settings.dual_mono.into(),
            target_lufs: settings.target.get(),
            ceiling_dbtp: settings.ceiling.get(),
            range_lu: settings.tolerance.get(),
            min_gain_db: settings.min_gain.get(),
            max_gain_db: settings.max_gain.get(),
            rise_db_s: settings.max_rise.get(),
            fall_db_s: settings.max_fall.get(),
            gate_lufs: settings.gate.get(),
            memory_s: match settings.memory {
                Memory::Sliding { seconds } => seconds,
                _ => 0,
            },
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            target: Lufs::new(self.target_lufs),
            tolerance: Db::new(self.range_lu),
            ceiling: Db::new(self.ceiling_dbtp),
            min_gain: Db::new(self.min_gain_db),
            max_gain: Db::new(self.max_gain_db),
            max_rise: Db::new(self.rise_db_s),
            max_fall: Db::new(self.fall_db_s),
            gate: Lufs::new(self.gate_lufs),
            memory: match self.memory_s {
                0 => Memory::Endless,
                seconds => Memory::Sliding { seconds },
            },
            dual_mono: self.dual_mono != 0,
        }
    }

    fn normalizer(&self) -> CResult<Normalizer> {
        let mode = usize::try_from(self.mode).ok().and_then(|at| MODES.get(at).copied());
        let rate = SampleRate::new(self.rate).map_err(|_| ErrorCode::Argument)?;
        let layout = ChannelLayout::new(self.channels as usize);
        let layout = layout.map_err(|_| ErrorCode::Argument)?;
        let mode = mode.ok_or(ErrorCode::Argument)?;
        let made = Normalizer::new(mode, self.settings(), rate, layout);
        made.map_err(|_| ErrorCode::Argument)
    }
}

impl Loudness {
    fn of(stats: &LoudnessStats) -> Self {
        Self {
            momentary_lufs: stats.momentary.get(),
            short_term_lufs: stats.short_term.get(),
            integrated_lufs: stats.integrated.get(),
            range_lu: stats.range.get(),
            true_peak_dbtp: stats.true_peak.get(),
        }
    }
}

/// `enum aulos_normalizer_mode`.
const MODES: [LookAhead; 4] =
    [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly];

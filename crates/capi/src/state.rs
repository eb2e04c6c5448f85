//! The public struct of the C interface, and the meter in it.

use core::ffi::{c_int, c_uint, c_ulong};

use aulos_core::{MAX_CHANNELS, SampleRate};
use aulos_dsp::meter::{Meter, MeterConfig, MeterHistory, MeterMode, MeterSample, NonFinitePolicy};

use crate::position::{DUAL_MONO, default_map, position};

/// `ebur128_state`: 24 bytes on platforms with 8-byte pointers.
#[repr(C)]
#[derive(Debug)]
pub struct State {
    /// The requested mode, unchanged.
    pub mode: c_int,
    /// Number of channels.
    pub channels: c_uint,
    /// Frames per second.
    pub samplerate: c_ulong,
    pub(crate) inner: *mut StateInner,
}

/// The private part of the state.
#[derive(Debug)]
#[allow(unnameable_types, reason = "opaque to callers")]
pub struct StateInner {
    pub(crate) meter: Meter,
    /// Milliseconds, as set.
    window: c_ulong,
    /// Longest readable window in milliseconds. A configured window is at least 3 s, because with
    /// the original, which allocates a thousand times too much, short-term loudness can then be
    /// read.
    readable: c_ulong,
    history: c_ulong,
}

/// `enum error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the original's")]
#[non_exhaustive]
pub enum ErrorCode {
    NoMemory = 1,
    InvalidMode = 2,
    InvalidChannelIndex = 3,
    NoChange = 4,
}

/// Result of an exported function.
pub(crate) type EburResult<T> = Result<T, ErrorCode>;

impl State {
    pub(crate) fn new(channels: c_uint, samplerate: c_ulong, mode: c_int) -> Option<Self> {
        let (rate, count) = check_parameters(channels, samplerate).ok()?;
        let window = if has_bits(mode, S) { SHORT_TERM_MS } else { MOMENTARY_MS };
        let mut modes = has_bits(mode, M).then_some(MeterMode::MOMENTARY)?;
        for (bits, more) in [
            (S, MeterMode::SHORT_TERM),
            (I, MeterMode::INTEGRATED),
            (LRA, MeterMode::RANGE),
            (SAMPLE_PEAK, MeterMode::SAMPLE_PEAK),
            (TRUE_PEAK, MeterMode::TRUE_PEAK),
        ] {
            modes = if has_bits(mode, bits) { modes | more } else { modes };
        }
        let mut config = MeterConfig::new(rate, aulos_core::ChannelLayout::new(count).ok()?, modes);
        config.positions = default_map(count);
        config.non_finite = NonFinitePolicy::Propagate;
        // At a rate of which 100 ms are no whole number of frames, the windows of the meter would
        // otherwise be a few frames shorter.
        config.max_window_ms = u32::try_from(window).ok()?;
        config.call_peaks = true;
        let histogram = has_bits(mode, HISTOGRAM);
        config.history = if histogram { MeterHistory::Histogram } else { MeterHistory::Unbounded };
        let meter = Meter::new(config).ok()?;
        let inner = Box::new(StateInner { meter, window, readable: window, history: c_ulong::MAX });
        Some(Self { mode, channels, samplerate, inner: Box::into_raw(inner) })
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.inner().meter
    }

    pub(crate) fn add<T: MeterSample>(&mut self, samples: &[T]) {
        self.inner_mut().meter.add(samples);
    }

    pub(crate) fn set_channel(&mut self, channel: c_uint, number: c_int) -> EburResult<()> {
        if channel >= self.channels {
            return Err(ErrorCode::InvalidChannelIndex);
        }
        if number == DUAL_MONO && self.channels != 1 {
            use std::io::Write as _;
            // The error is ignored if there is no standard error.
            writeln!(std::io::stderr(), "EBUR128_DUAL_MONO needs a state with one channel").ok();
            return Err(ErrorCode::InvalidChannelIndex);
        }
        let moved = self.inner_mut().meter.set_position(channel as usize, position(number));
        moved.map_err(|_| ErrorCode::InvalidChannelIndex)
    }

    pub(crate) fn change(&mut self, channels: c_uint, samplerate: c_ulong) -> EburResult<()> {
        let (rate, count) = check_parameters(channels, samplerate)?;
        if channels == self.channels && samplerate == self.samplerate {
            return Err(ErrorCode::NoChange);
        }
        check_window_size(samplerate, self.inner().meter.config().max_window_ms.into())?;
        let kept = self.meter().config().positions.clone();
        let positions = if channels == self.channels { kept } else { default_map(count) };
        self.inner_mut().meter.change_format(rate, &positions).map_err(|_| ErrorCode::NoMemory)?;
        self.inner_mut().readable = self.inner().window;
        (self.channels, self.samplerate) = (channels, samplerate);
        Ok(())
    }

    pub(crate) fn set_max_window(&mut self, window: c_ulong) -> EburResult<()> {
        let least = if has_bits(self.mode, S) { SHORT_TERM_MS } else { MOMENTARY_MS };
        let window = window.max(least);
        if window == self.inner().window {
            return Err(ErrorCode::NoChange);
        }
        let readable = window.max(SHORT_TERM_MS);
        let ms = u32::try_from(readable).map_err(|_| ErrorCode::NoMemory)?;
        check_window_size(self.samplerate, readable)?;
        let inner = self.inner_mut();
        inner.meter.set_max_window(ms).map_err(|_| ErrorCode::NoMemory)?;
        (inner.window, inner.readable) = (window, readable);
        Ok(())
    }

    pub(crate) fn set_max_history(&mut self, history: c_ulong) -> EburResult<()> {
        let least = if has_bits(self.mode, LRA) { SHORT_TERM_MS } else { MOMENTARY_MS };
        let history = history.max(least);
        let inner = self.inner_mut();
        if history == inner.history {
            return Err(ErrorCode::NoChange);
        }
        inner.history = history;
        let entries = |ms: c_ulong| usize::try_from(history / ms).unwrap_or(usize::MAX);
        // One short-term value per 3 s, though one per second is stored: the original's rule.
        let (blocks, ranges) = (entries(BLOCK_MS), entries(SHORT_TERM_MS));
        inner.meter.set_history(MeterHistory::Entries { blocks, ranges });
        Ok(())
    }

    /// Loudness of the last `hops` tenths of a second.
    pub(crate) fn hops(&self, hops: usize) -> EburResult<f64> {
        self.window_frames(hops * self.meter().hop())
    }

    /// Loudness of the last `ms` milliseconds.
    pub(crate) fn window(&self, ms: c_ulong) -> EburResult<f64> {
        if ms > self.inner().readable {
            return Err(ErrorCode::InvalidMode);
        }
        let frames = self.samplerate.checked_mul(ms).ok_or(ErrorCode::InvalidMode)? / 1000;
        self.window_frames(usize::try_from(frames).map_err(|_| ErrorCode::InvalidMode)?)
    }

    /// Fails if the mode lacks one of the bits.
    pub(crate) fn require(&self, bits: c_int) -> EburResult<()> {
        if has_bits(self.mode, bits) { Ok(()) } else { Err(ErrorCode::InvalidMode) }
    }

    pub(crate) fn uses_histogram(&self) -> bool {
        has_bits(self.mode, HISTOGRAM)
    }

    fn window_frames(&self, frames: usize) -> EburResult<f64> {
        // The longest window in whole hops; at rates below 150 Hz that is less than configured.
        let longest = self.samplerate.saturating_mul(self.inner().readable) / 1000;
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        if frames > longest.next_multiple_of(self.meter().hop()) {
            return Err(ErrorCode::InvalidMode);
        }
        let energy = self.meter().window_energy(frames).ok_or(ErrorCode::InvalidMode)?;
        Ok(if energy <= 0.0 { f64::NEG_INFINITY } else { aulos_dsp::meter::loudness(energy) })
    }

    fn inner(&self) -> &StateInner {
        // SAFETY: `inner` comes from `Box::into_raw` in `new` and lives until `drop`.
        unsafe { &*self.inner }
    }

    fn inner_mut(&mut self) -> &mut StateInner {
        // SAFETY: `inner` comes from `Box::into_raw` in `new`, lives until `drop`, and `self` is
        // borrowed exclusively.
        unsafe { &mut *self.inner }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: `inner` comes from `Box::into_raw` in `new`, and is not used after this.
        drop(unsafe { Box::from_raw(self.inner) });
    }
}

fn check_parameters(channels: c_uint, samplerate: c_ulong) -> EburResult<(SampleRate, usize)> {
    let channels = usize::try_from(channels).unwrap_or(usize::MAX);
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(ErrorCode::NoMemory);
    }
    let hz = u32::try_from(samplerate).map_err(|_| ErrorCode::NoMemory)?;
    Ok((SampleRate::new(hz).map_err(|_| ErrorCode::NoMemory)?, channels))
}

/// Checks that a window can be allocated. Rust aborts the process when an allocation fails, so the
/// same amount is first allocated in a way that may fail.
fn check_window_size(samplerate: c_ulong, window: c_ulong) -> EburResult<()> {
    let frames = samplerate.checked_mul(window).ok_or(ErrorCode::NoMemory)? / 1000;
    let frames = usize::try_from(frames).map_err(|_| ErrorCode::NoMemory)?;
    if frames > MAX_WINDOW_FRAMES {
        return Err(ErrorCode::NoMemory);
    }
    Vec::<f64>::new().try_reserve_exact(frames).map_err(|_| ErrorCode::NoMemory)
}

fn has_bits(mode: c_int, bits: c_int) -> bool {
    mode & bits == bits
}

// `enum mode`.
pub(crate) const M: c_int = 1;
pub(crate) const S: c_int = 2 | M;
pub(crate) const I: c_int = 4 | M;
pub(crate) const LRA: c_int = 8 | S;
pub(crate) const SAMPLE_PEAK: c_int = 16 | M;
pub(crate) const TRUE_PEAK: c_int = 32 | SAMPLE_PEAK;
pub(crate) const HISTOGRAM: c_int = 64;

/// 2 GiB of energies: an hour at 48 kHz takes 1.4 GB.
const MAX_WINDOW_FRAMES: usize = (2 << 30) / size_of::<f64>();

const BLOCK_MS: c_ulong = 100;
const MOMENTARY_MS: c_ulong = 400;
const SHORT_TERM_MS: c_ulong = 3_000;

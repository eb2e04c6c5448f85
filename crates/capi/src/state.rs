//! What a C caller holds: the public struct, and the meter behind it.

use core::ffi::{c_int, c_uint, c_ulong};

use aulos_core::{MAX_CHANNELS, SampleRate};
use aulos_dsp::meter::{Config, History, Meter, Mode, NonFinite, Sample};

use crate::position::{DUAL_MONO, default_map, position};

/// `ebur128_state`: 24 bytes where pointers have 8.
#[repr(C)]
#[derive(Debug)]
pub struct State {
    /// What the caller asked for, word for word.
    pub mode: c_int,
    /// Number of channels.
    pub channels: c_uint,
    /// Frames per second.
    pub samplerate: c_ulong,
    pub(crate) inner: *mut Inner,
}

/// The part that callers cannot see.
#[derive(Debug)]
#[allow(unnameable_types, reason = "opaque to callers")]
pub struct Inner {
    pub(crate) meter: Meter,
    /// Milliseconds, as set.
    window: c_ulong,
    /// Milliseconds that can be read. A window that was set holds 3 s at least, because with the
    /// original, which takes a thousand times too much, short-term loudness can then be read.
    readable: c_ulong,
    history: c_ulong,
}

/// `enum error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the original's")]
#[non_exhaustive]
pub enum Failure {
    NoMemory = 1,
    InvalidMode = 2,
    InvalidChannelIndex = 3,
    NoChange = 4,
}

/// What an export answers.
pub(crate) type Answer<T> = Result<T, Failure>;

impl State {
    pub(crate) fn new(channels: c_uint, samplerate: c_ulong, mode: c_int) -> Option<Self> {
        let (rate, count) = checked(channels, samplerate).ok()?;
        let window = if has(mode, S) { SHORT_TERM_MS } else { MOMENTARY_MS };
        let mut modes = has(mode, M).then_some(Mode::MOMENTARY)?;
        for (bits, more) in [
            (S, Mode::SHORT_TERM),
            (I, Mode::INTEGRATED),
            (LRA, Mode::RANGE),
            (SAMPLE_PEAK, Mode::SAMPLE_PEAK),
            (TRUE_PEAK, Mode::TRUE_PEAK),
        ] {
            modes = if has(mode, bits) { modes | more } else { modes };
        }
        let mut config = Config::new(rate, aulos_core::ChannelLayout::new(count).ok()?, modes);
        config.positions = default_map(count);
        config.non_finite = NonFinite::Spoil;
        config.call_peaks = true;
        let histogram = has(mode, HISTOGRAM);
        config.history = if histogram { History::Histogram } else { History::Unbounded };
        let meter = Meter::new(config).ok()?;
        let inner = Box::new(Inner { meter, window, readable: window, history: c_ulong::MAX });
        Some(Self { mode, channels, samplerate, inner: Box::into_raw(inner) })
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.inner().meter
    }

    pub(crate) fn add<T: Sample>(&mut self, samples: &[T]) {
        self.inner_mut().meter.add(samples);
    }

    pub(crate) fn set_channel(&mut self, channel: c_uint, number: c_int) -> Answer<()> {
        if channel >= self.channels {
            return Err(Failure::InvalidChannelIndex);
        }
        if number == DUAL_MONO && self.channels != 1 {
            use std::io::Write as _;
            // Nobody can be told when there is no standard error.
            writeln!(std::io::stderr(), "EBUR128_DUAL_MONO is for one channel only").ok();
            return Err(Failure::InvalidChannelIndex);
        }
        let moved = self.inner_mut().meter.set_position(channel as usize, position(number));
        moved.map_err(|_| Failure::InvalidChannelIndex)
    }

    pub(crate) fn change(&mut self, channels: c_uint, samplerate: c_ulong) -> Answer<()> {
        let (rate, count) = checked(channels, samplerate)?;
        if channels == self.channels && samplerate == self.samplerate {
            return Err(Failure::NoChange);
        }
        afford(samplerate, self.inner().meter.config().max_window_ms.into())?;
        let kept = self.meter().config().positions.clone();
        let positions = if channels == self.channels { kept } else { default_map(count) };
        self.inner_mut().meter.change(rate, &positions).map_err(|_| Failure::NoMemory)?;
        self.inner_mut().readable = self.inner().window;
        (self.channels, self.samplerate) = (channels, samplerate);
        Ok(())
    }

    pub(crate) fn set_max_window(&mut self, window: c_ulong) -> Answer<()> {
        let least = if has(self.mode, S) { SHORT_TERM_MS } else { MOMENTARY_MS };
        let window = window.max(least);
        if window == self.inner().window {
            return Err(Failure::NoChange);
        }
        let readable = window.max(SHORT_TERM_MS);
        let ms = u32::try_from(readable).map_err(|_| Failure::NoMemory)?;
        afford(self.samplerate, readable)?;
        let inner = self.inner_mut();
        inner.meter.set_max_window(ms).map_err(|_| Failure::NoMemory)?;
        (inner.window, inner.readable) = (window, readable);
        Ok(())
    }

    pub(crate) fn set_max_history(&mut self, history: c_ulong) -> Answer<()> {
        let least = if has(self.mode, LRA) { SHORT_TERM_MS } else { MOMENTARY_MS };
        let history = history.max(least);
        let inner = self.inner_mut();
        if history == inner.history {
            return Err(Failure::NoChange);
        }
        inner.history = history;
        let entries = |ms: c_ulong| usize::try_from(history / ms).unwrap_or(usize::MAX);
        // One short-term value per 3 s, though one a second is taken: the original's rule.
        let (blocks, ranges) = (entries(BLOCK_MS), entries(SHORT_TERM_MS));
        inner.meter.set_history(History::Entries { blocks, ranges });
        Ok(())
    }

    /// Loudness of the last `hops` tenths of a second.
    pub(crate) fn hops(&self, hops: usize) -> Answer<f64> {
        self.window_frames(hops * self.meter().hop())
    }

    /// Loudness of the last `ms` milliseconds.
    pub(crate) fn window(&self, ms: c_ulong) -> Answer<f64> {
        let frames = self.samplerate.checked_mul(ms).ok_or(Failure::InvalidMode)? / 1000;
        self.window_frames(usize::try_from(frames).map_err(|_| Failure::InvalidMode)?)
    }

    /// Fails when the mode lacks one of the bits.
    pub(crate) fn require(&self, bits: c_int) -> Answer<()> {
        if has(self.mode, bits) { Ok(()) } else { Err(Failure::InvalidMode) }
    }

    pub(crate) fn uses_histogram(&self) -> bool {
        has(self.mode, HISTOGRAM)
    }

    fn window_frames(&self, frames: usize) -> Answer<f64> {
        // The longest window in whole hops; at rates below 150 Hz that is less than it says.
        let longest = self.samplerate.saturating_mul(self.inner().readable) / 1000;
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        if frames > longest.next_multiple_of(self.meter().hop()) {
            return Err(Failure::InvalidMode);
        }
        let energy = self.meter().window_energy(frames).ok_or(Failure::InvalidMode)?;
        Ok(if energy <= 0.0 { f64::NEG_INFINITY } else { aulos_dsp::meter::loudness(energy) })
    }

    fn inner(&self) -> &Inner {
        // SAFETY: `inner` comes from `Box::into_raw` in `new` and lives until `drop`.
        unsafe { &*self.inner }
    }

    fn inner_mut(&mut self) -> &mut Inner {
        // SAFETY: `inner` comes from `Box::into_raw` in `new`, lives until `drop`, and `self` is
        // borrowed exclusively.
        unsafe { &mut *self.inner }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: `inner` comes from `Box::into_raw` in `new`, and nobody uses it after this.
        drop(unsafe { Box::from_raw(self.inner) });
    }
}

fn checked(channels: c_uint, samplerate: c_ulong) -> Answer<(SampleRate, usize)> {
    let channels = usize::try_from(channels).unwrap_or(usize::MAX);
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(Failure::NoMemory);
    }
    let hz = u32::try_from(samplerate).map_err(|_| Failure::NoMemory)?;
    Ok((SampleRate::new(hz).map_err(|_| Failure::NoMemory)?, channels))
}

/// Whether a window can be had. Rust ends the process when memory cannot be had, so the same amount
/// is asked for in a way that may fail.
fn afford(samplerate: c_ulong, window: c_ulong) -> Answer<()> {
    let frames = samplerate.checked_mul(window).ok_or(Failure::NoMemory)? / 1000;
    let frames = usize::try_from(frames).map_err(|_| Failure::NoMemory)?;
    if frames > MOST_WINDOW_FRAMES {
        return Err(Failure::NoMemory);
    }
    Vec::<f64>::new().try_reserve_exact(frames).map_err(|_| Failure::NoMemory)
}

fn has(mode: c_int, bits: c_int) -> bool {
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
const MOST_WINDOW_FRAMES: usize = (2 << 30) / size_of::<f64>();

const BLOCK_MS: c_ulong = 100;
const MOMENTARY_MS: c_ulong = 400;
const SHORT_TERM_MS: c_ulong = 3_000;

//! Hears whether a source sends sound or only bytes.
//!
//! A source that is connected and sends zeros is as dead to a listener as one that is gone. The
//! measure is the RMS of the loudest channel over 100 ms, as in the practice of broadcast silence
//! detectors; peaks would let a click every few seconds pass for a programme.

use aulos_core::{Db, SampleRate, Span};

/// What counts as silence. `Default` has the values of the configuration's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Below this RMS level of full scale, in each channel.
    pub below: Db,
    /// For so long.
    pub span: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { below: Db::new(-60.0), span: Span::from_secs(10) }
    }
}

/// Tells sound from silence, with hysteresis: silence ends after half a second that is 6 dB above
/// the threshold.
#[derive(Clone, Debug)]
pub struct Detector {
    enter: f64,
    leave: f64,
    window: usize,
    windows_to_enter: u32,
    sums: [f64; MAX_CHANNELS],
    channels: usize,
    filled: usize,
    run: u32,
    silent: bool,
}

impl Detector {
    /// A detector for interleaved frames of `channels` channels at `rate`.
    #[must_use]
    pub fn new(config: Config, rate: SampleRate, channels: usize) -> Self {
        let square = |db: f64| Db::new(db).amplitude().powi(2);
        let windows = config.span.as_nanos() / WINDOW.as_nanos();
        Self {
            enter: square(config.below.get()),
            leave: square(config.below.get() + HYSTERESIS_DB),
            window: rate.frames(WINDOW).as_usize().max(1),
            windows_to_enter: u32::try_from(windows.max(1)).unwrap_or(u32::MAX),
            sums: [0.0; MAX_CHANNELS],
            channels: channels.min(MAX_CHANNELS),
            filled: 0,
            run: 0,
            silent: false,
        }
    }

    /// Listens to interleaved frames.
    ///
    /// # Real-time
    /// One multiplication per sample.
    pub fn update(&mut self, samples: &[f32], channels: usize) {
        for frame in samples.chunks_exact(channels.max(1)) {
            for (sum, sample) in self.sums.iter_mut().zip(frame) {
                *sum += f64::from(*sample) * f64::from(*sample);
            }
            self.filled += 1;
            if self.filled == self.window {
                self.judge();
            }
        }
    }

    /// Whether it has been silent for as long as it takes.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.silent
    }

    #[allow(clippy::cast_precision_loss, reason = "a window has some thousand frames")]
    fn judge(&mut self) {
        let loudest = self.sums[..self.channels].iter().copied().fold(0.0, f64::max);
        let square = loudest / self.filled as f64;
        self.sums = [0.0; MAX_CHANNELS];
        self.filled = 0;
        let (speaks_against, needed) = if self.silent {
            (square > self.leave, WINDOWS_TO_LEAVE)
        } else {
            (square < self.enter, self.windows_to_enter)
        };
        self.run = if speaks_against { self.run + 1 } else { 0 };
        if self.run >= needed {
            self.silent = !self.silent;
            self.run = 0;
        }
    }
}

const WINDOW: Span = Span::from_millis(100);
const HYSTERESIS_DB: f64 = 6.0;
const WINDOWS_TO_LEAVE: u32 = 5;

/// What a station may have; more channels are not listened to.
const MAX_CHANNELS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(detector: &mut Detector, level: f32, millis: usize) {
        let frame = [level, 0.0];
        detector.update(&frame.repeat(48 * millis), 2);
    }

    fn detector() -> Detector {
        Detector::new(Config::default(), SampleRate::STUDIO, 2)
    }

    #[test]
    fn ten_seconds_below_the_threshold_are_silence_and_nothing_shorter_is() {
        let mut detector = detector();
        listen(&mut detector, 0.1, 1_000);
        listen(&mut detector, 0.0009, 9_900);
        assert!(!detector.is_silent());
        listen(&mut detector, 0.0009, 200);
        assert!(detector.is_silent());
    }

    #[test]
    fn one_channel_that_sounds_is_enough_and_a_click_is_not() {
        let mut detector = detector();
        listen(&mut detector, 0.002, 20_000);
        assert!(!detector.is_silent());
        for _ in 0..11 {
            listen(&mut detector, 0.0, 999);
            // One frame at half of full scale: -41 dBFS in its window.
            detector.update(&[0.5, 0.5], 2);
        }
        assert!(!detector.is_silent(), "a click of that size is above the threshold");
        listen(&mut detector, 0.0, 11_000);
        for _ in 0..20 {
            listen(&mut detector, 0.0, 999);
            detector.update(&[0.5, 0.5], 2);
        }
        assert!(detector.is_silent(), "but clicks alone do not end a silence");
    }

    #[test]
    fn silence_ends_after_half_a_second_of_sound() {
        let mut detector = detector();
        listen(&mut detector, 0.0, 11_000);
        listen(&mut detector, 0.0015, 5_000);
        assert!(detector.is_silent(), "not yet 6 dB above the threshold");
        listen(&mut detector, 0.01, 400);
        assert!(detector.is_silent());
        listen(&mut detector, 0.01, 200);
        assert!(!detector.is_silent());
    }
}

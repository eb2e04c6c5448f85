//! Silence detection.
//!
//! For a listener, a connected source that sends zeros is as dead as a disconnected one. The
//! measure is the RMS of the loudest channel over the last 100 ms, as in broadcast silence
//! detectors; with peaks, a click every few seconds would count as a programme. The mean is
//! subtracted first: a constant value is inaudible, however large it is. The window slides by 10
//! ms, which is the resolution of the silence's duration.

use aulos_core::{Db, SampleRate, Span};

/// Thresholds of silence detection. `Default` has the defaults of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SilenceConfig {
    /// RMS level relative to full scale below which a channel counts as silent.
    pub threshold: Db,
    /// Duration of the level before it counts as silence.
    pub duration: Span,
    /// Whether a constant value (DC) counts as silence; otherwise it counts as sound.
    pub dc: bool,
    /// Duration after which a single silent channel is reported as dead; `None` disables that.
    pub dead_channel: Option<Span>,
}

impl Default for SilenceConfig {
    fn default() -> Self {
        Self {
            threshold: Db::new(-60.0),
            duration: Span::from_secs(10),
            dc: true,
            dead_channel: None,
        }
    }
}

/// State of the signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SilenceVerdict {
    /// Sound, or a short pause.
    #[default]
    Sound,
    /// Silence in all channels for the configured duration.
    Silent,
    /// A constant value instead of a signal.
    Dc,
    /// Silence in one channel while another one has sound.
    DeadChannel,
}

/// Distinguishes sound from silence, with hysteresis: silence ends after half a second that is 6 dB
/// above the threshold.
#[derive(Clone, Debug)]
pub struct SilenceDetector {
    enter: f64,
    leave: f64,
    dc: bool,
    hop: usize,
    hops_to_enter: u32,
    hops_to_die: Option<u32>,
    channels: usize,
    /// Frames of the current hop, and its index in the window.
    filled: usize,
    at: usize,
    /// Hops until the window is full for the first time.
    missing: u32,
    sums: [HopSums; MAX_CHANNELS],
    /// Number of successive hops that contradict the verdict.
    run: u32,
    activity: [ChannelActivity; MAX_CHANNELS],
    verdict: SilenceVerdict,
}

/// Sums and sums of squares of one channel per hop.
#[derive(Clone, Copy, Debug, Default)]
struct HopSums {
    values: [f64; HOPS],
    squares: [f64; HOPS],
}

/// Whether one channel is dead, and the number of successive hops that contradict that.
#[derive(Clone, Copy, Debug, Default)]
struct ChannelActivity {
    run: u32,
    dead: bool,
}

/// Power of a channel: of the alternating part, and of the constant part.
#[derive(Clone, Copy, Debug, Default)]
struct ChannelPower {
    moving: f64,
    constant: f64,
}

impl SilenceDetector {
    /// A detector for interleaved frames of `channels` channels at `rate`.
    #[must_use]
    pub fn new(config: SilenceConfig, rate: SampleRate, channels: usize) -> Self {
        let square = |db: f64| Db::new(db).amplitude().powi(2);
        // A window below the threshold has been so for its whole length.
        let hops = |span: Span| u32::try_from(span.as_nanos() / HOP.as_nanos()).unwrap_or(u32::MAX);
        let at_least = |span: Span| hops(span).max(WINDOW_HOPS);
        Self {
            enter: square(config.threshold.get()),
            leave: square(config.threshold.get() + HYSTERESIS_DB),
            dc: config.dc,
            hop: rate.frames(HOP).as_usize().max(1),
            hops_to_enter: at_least(config.duration),
            hops_to_die: config.dead_channel.map(at_least),
            channels: channels.clamp(1, MAX_CHANNELS),
            filled: 0,
            at: 0,
            missing: WINDOW_HOPS,
            sums: [HopSums::default(); MAX_CHANNELS],
            run: 0,
            activity: [ChannelActivity::default(); MAX_CHANNELS],
            verdict: SilenceVerdict::Sound,
        }
    }

    /// The longest time from the first sound after silence to the verdict: half a second of sound,
    /// before which a quiet one fills the window.
    pub const ONSET: Span = Span::from_nanos(HOP.as_nanos() * (HOPS_TO_LEAVE + WINDOW_HOPS) as i64);

    /// Processes interleaved frames.
    ///
    /// # Real-time
    /// One multiplication per sample.
    pub fn update(&mut self, samples: &[f32], channels: usize) {
        for frame in samples.chunks_exact(channels.max(1)) {
            for (sums, sample) in self.sums.iter_mut().zip(frame) {
                let sample = f64::from(*sample);
                sums.values[self.at] += sample;
                sums.squares[self.at] += sample * sample;
            }
            self.filled += 1;
            if self.filled == self.hop {
                self.update_verdict();
            }
        }
    }

    /// The current state of the signal.
    #[must_use]
    pub const fn verdict(&self) -> SilenceVerdict {
        self.verdict
    }

    /// Whether all channels have been silent for the configured duration.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        matches!(self.verdict, SilenceVerdict::Silent | SilenceVerdict::Dc)
    }

    fn update_verdict(&mut self) {
        let mut powers = [ChannelPower::default(); MAX_CHANNELS];
        for (power, sums) in powers.iter_mut().zip(&self.sums).take(self.channels) {
            *power = sums.power(self.hop);
        }
        self.filled = 0;
        self.at = (self.at + 1) % HOPS;
        for sums in &mut self.sums {
            (sums.values[self.at], sums.squares[self.at]) = (0.0, 0.0);
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing > 0 {
            return;
        }
        let powers = &powers[..self.channels];
        let loudest = powers.iter().map(|power| power.moving).fold(0.0, f64::max);
        let constant = powers.iter().map(|power| power.constant).fold(0.0, f64::max);
        let stuck = constant >= self.enter;
        let inaudible = |below: f64| loudest < below && (self.dc || !stuck);
        if self.is_silent() {
            self.run = if inaudible(self.leave) { 0 } else { self.run + 1 };
            if self.run >= HOPS_TO_LEAVE {
                (self.run, self.verdict) = (0, SilenceVerdict::Sound);
            }
        } else {
            self.run = next_run(self.run, inaudible(self.enter));
            if self.run >= self.hops_to_enter {
                self.run = 0;
                self.verdict = if stuck { SilenceVerdict::Dc } else { SilenceVerdict::Silent };
            }
        }
        if let Some(hops) = self.hops_to_die {
            self.update_channels(powers, loudest, hops);
        }
    }

    /// A channel is evaluated only while another one has sound.
    fn update_channels(&mut self, powers: &[ChannelPower], loudest: f64, hops_to_die: u32) {
        if loudest > self.leave {
            let (enter, leave) = (self.enter, self.leave);
            for (life, power) in self.activity.iter_mut().zip(powers) {
                let alive = power.moving > leave;
                life.update(power.moving < enter, alive, hops_to_die);
            }
        }
        if !self.is_silent() {
            let dead = self.activity.iter().any(|life| life.dead);
            self.verdict = if dead { SilenceVerdict::DeadChannel } else { SilenceVerdict::Sound };
        }
    }
}

impl HopSums {
    #[allow(clippy::cast_precision_loss, reason = "a window has some thousand frames")]
    fn power(&self, hop: usize) -> ChannelPower {
        let frames = (hop * HOPS) as f64;
        let mean = self.values.iter().sum::<f64>() / frames;
        let square = self.squares.iter().sum::<f64>() / frames;
        ChannelPower { moving: (square - mean * mean).max(0.0), constant: mean * mean }
    }
}

impl ChannelActivity {
    fn update(&mut self, silent: bool, alive: bool, hops_to_die: u32) {
        if self.dead {
            self.run = if alive { self.run + 1 } else { 0 };
        } else {
            self.run = next_run(self.run, silent);
        }
        if self.run >= if self.dead { HOPS_TO_LEAVE } else { hops_to_die } {
            *self = Self { run: 0, dead: !self.dead };
        }
    }
}

/// A silent window has been so for its whole length.
const fn next_run(run: u32, silent: bool) -> u32 {
    match (silent, run) {
        (false, _) => 0,
        (true, 0) => WINDOW_HOPS,
        (true, run) => run + 1,
    }
}

const HOP: Span = Span::from_millis(10);
const HOPS: usize = 10;
const WINDOW_HOPS: u32 = 10;
const HYSTERESIS_DB: f64 = 6.0;
const HOPS_TO_LEAVE: u32 = 50;

/// Maximum number of channels of a station; further channels are ignored.
const MAX_CHANNELS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of a square wave of 1 kHz on these constant values.
    fn listen(detector: &mut SilenceDetector, levels: [f32; 2], constant: f32, millis: usize) {
        for frame in 0..48 * millis {
            let sign = if frame / 24 % 2 == 0 { 1.0 } else { -1.0 };
            detector.update(&levels.map(|level| constant + sign * level), 2);
        }
    }

    fn detector() -> SilenceDetector {
        SilenceDetector::new(SilenceConfig::default(), SampleRate::HZ_48000, 2)
    }

    /// Milliseconds until the verdict is `verdict`, in steps of 10 ms.
    fn until(
        verdict: SilenceVerdict,
        detector: &mut SilenceDetector,
        levels: [f32; 2],
        constant: f32,
    ) -> usize {
        let mut millis = 0;
        while detector.verdict() != verdict {
            listen(detector, levels, constant, 10);
            millis += 10;
            assert!(millis < 60_000, "never {verdict:?}");
        }
        millis
    }

    #[test]
    fn ten_seconds_below_the_threshold_are_silence_wherever_they_begin() {
        for begin in [1_000, 1_003, 1_047, 1_095] {
            let mut detector = detector();
            listen(&mut detector, [0.1; 2], 0.0, begin);
            let millis = until(SilenceVerdict::Silent, &mut detector, [0.000_9; 2], 0.0);
            assert!((9_980..=10_020).contains(&millis), "{millis}");
        }
        for span in [500, 600_000] {
            let config =
                SilenceConfig { duration: Span::from_millis(span), ..SilenceConfig::default() };
            let mut detector = SilenceDetector::new(config, SampleRate::new(8_000).unwrap(), 1);
            detector.update(&vec![0.0; usize::try_from(8 * span - 160).unwrap()], 1);
            assert!(!detector.is_silent());
            detector.update(&[0.0; 320], 1);
            assert!(detector.is_silent());
        }
    }

    #[test]
    fn one_active_channel_ends_silence_but_a_click_does_not() {
        let mut detector = detector();
        listen(&mut detector, [0.002, 0.0], 0.0, 20_000);
        assert!(!detector.is_silent());
        for _ in 0..11 {
            listen(&mut detector, [0.0; 2], 0.0, 999);
            // One frame at half of full scale: -43 dBFS in its window.
            detector.update(&[0.5, 0.5], 2);
        }
        assert!(!detector.is_silent(), "a click of that size is above the threshold");
        listen(&mut detector, [0.0; 2], 0.0, 11_000);
        for _ in 0..20 {
            listen(&mut detector, [0.0; 2], 0.0, 999);
            detector.update(&[0.5, 0.5], 2);
        }
        assert!(detector.is_silent(), "but clicks alone do not end a silence");
    }

    #[test]
    fn silence_ends_after_half_a_second_of_sound() {
        let mut detector = detector();
        listen(&mut detector, [0.0; 2], 0.0, 11_000);
        listen(&mut detector, [0.0015; 2], 0.0, 5_000);
        assert!(detector.is_silent(), "not yet 6 dB above the threshold");
        let millis = until(SilenceVerdict::Sound, &mut detector, [0.01; 2], 0.0);
        assert!((480..=540).contains(&millis), "{millis}");
    }

    #[test]
    fn a_value_that_does_not_move_is_no_sound_unless_it_is_to_be() {
        let mut stuck = detector();
        listen(&mut stuck, [0.1; 2], 0.0, 1_000);
        let millis = until(SilenceVerdict::Dc, &mut stuck, [0.0; 2], 0.7);
        assert!((9_980..=10_120).contains(&millis), "{millis}");
        assert!(stuck.is_silent());
        until(SilenceVerdict::Sound, &mut stuck, [0.1; 2], 0.7);
        let config = SilenceConfig { dc: false, ..SilenceConfig::default() };
        let mut careless = SilenceDetector::new(config, SampleRate::HZ_48000, 2);
        listen(&mut careless, [0.0; 2], 0.7, 20_000);
        assert_eq!(careless.verdict(), SilenceVerdict::Sound);
        listen(&mut careless, [0.0; 2], 0.0, 10_200);
        assert_eq!(careless.verdict(), SilenceVerdict::Silent);
    }

    #[test]
    fn a_channel_is_dead_when_it_alone_is_silent_for_its_time() {
        let span = Span::from_secs(5);
        let config = SilenceConfig { dead_channel: Some(span), ..SilenceConfig::default() };
        let mut detector = SilenceDetector::new(config, SampleRate::HZ_48000, 2);
        listen(&mut detector, [0.1; 2], 0.0, 1_000);
        let millis = until(SilenceVerdict::DeadChannel, &mut detector, [0.1, 0.0], 0.0);
        assert!((4_980..=5_020).contains(&millis), "{millis}");
        // Silence in all channels does not revive a dead channel.
        until(SilenceVerdict::Silent, &mut detector, [0.0; 2], 0.0);
        let millis = until(SilenceVerdict::Sound, &mut detector, [0.1; 2], 0.0);
        assert!((480..=540).contains(&millis), "{millis}");
        listen(&mut detector, [0.1, 0.0], 0.0, 4_900);
        assert_eq!(detector.verdict(), SilenceVerdict::Sound);
    }
}

//! A sound card that exists only as a clock.
//!
//! It takes frames from its buffer at its own rate, and each sounds a fixed latency later. `null`
//! is such a card; for files and pipes it defines when their frames sound.

use aulos_core::{Frames, Instant, SampleRate, Span};
use aulos_session::player::DevicePosition;

/// Properties of a virtual card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CardConfig {
    /// How much faster than its nominal rate it runs, in parts per million.
    pub(crate) ppm: f64,
    /// From the buffer to the loudspeaker.
    pub(crate) latency: Span,
    /// Length of the buffer.
    pub(crate) buffer: Span,
    /// Room in the buffer at which it asks for frames; at most the buffer.
    pub(crate) period: Span,
    /// By how much a frame may be late before it is an underrun.
    pub(crate) patience: Span,
}

#[derive(Debug)]
pub(crate) struct VirtualCard {
    config: CardConfig,
    /// Nanoseconds of one frame.
    frame: f64,
    /// When the first frame left the buffer, or would have: an underrun moves it.
    origin: Instant,
    written: u64,
    buffer: u64,
    period: u64,
    /// Number of underruns.
    pub(crate) stops: u64,
}

impl VirtualCard {
    pub(crate) fn new(config: CardConfig, rate: SampleRate, now: Instant) -> Self {
        let in_frames = |span| rate.frames(span).0;
        let period = in_frames(config.period.min(config.buffer)).max(1);
        Self {
            frame: 1e9 / (f64::from(rate.hz()) * (1.0 + config.ppm * 1e-6)),
            origin: now,
            written: 0,
            buffer: in_frames(config.buffer).max(period),
            period,
            stops: 0,
            config,
        }
    }

    /// Frames that fit into the buffer now: none, or at least a period.
    pub(crate) fn writable_frames(&mut self, now: Instant) -> Frames {
        let due = self.frames(now - self.origin - self.config.latency - self.config.patience);
        if due > self.written {
            self.stops += 1;
            self.origin = now - self.span(self.written) - self.config.latency;
        }
        let room = (self.frames(now - self.origin) + self.buffer).saturating_sub(self.written);
        Frames(if room < self.period { 0 } else { room })
    }

    pub(crate) const fn wrote(&mut self, frames: Frames) {
        self.written += frames.0;
    }

    /// When [`writable_frames`](Self::writable_frames) has room for the next period.
    pub(crate) fn next_room(&self) -> Instant {
        let frames = (self.written + self.period).saturating_sub(self.buffer);
        self.origin + self.span(frames)
    }

    /// The last frame that has sounded, and when exactly. Before the first frame that time is to
    /// come.
    pub(crate) fn position(&self, now: Instant) -> DevicePosition {
        let sounded = self.frames(now - self.origin - self.config.latency).min(self.written);
        let at = self.origin + self.config.latency + self.span(sounded);
        DevicePosition { played: Frames(sounded), at }
    }

    /// Frames in a block that is rendered at once.
    pub(crate) const fn period(&self) -> Frames {
        Frames(self.period)
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "exact for a hundred days; negative spans are no frames"
    )]
    fn frames(&self, span: Span) -> u64 {
        // A time that `span` made belongs to its frame, despite the rounding to nanoseconds.
        (span.as_nanos() as f64 / self.frame + 1e-4).floor() as u64
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "exact for a hundred days"
    )]
    fn span(&self, frames: u64) -> Span {
        Span::from_nanos((frames as f64 * self.frame).ceil() as i64)
    }
}

/// A card with the buffer of usual sound servers: long periods, since each wake-up costs.
pub(super) const NULL_CARD: CardConfig = CardConfig {
    ppm: 0.0,
    latency: Span::from_millis(10),
    buffer: Span::from_millis(85),
    period: Span::from_millis(45),
    patience: Span::ZERO,
};

/// A sound server's stream; the card's own latency is part of what it reports.
#[cfg(feature = "pulse")]
pub(super) const PULSE_CARD: CardConfig =
    CardConfig { buffer: Span::from_millis(200), ..AUTO_CARD };

/// ALSA's buffer, of four periods.
#[cfg(any(feature = "alsa", feature = "alsa-hw"))]
pub(super) const ALSA_CARD: CardConfig = CardConfig { buffer: Span::from_millis(80), ..AUTO_CARD };

/// Until the device is chosen.
pub(super) const AUTO_CARD: CardConfig = CardConfig { latency: Span::ZERO, ..NULL_CARD };

/// For files and pipes: the first frame of a block sounds 10 ms after its write, as with snapclient's
/// file player. A late block is written in full, so that a busy machine leaves no gap in a file.
pub(super) const STREAM_CARD: CardConfig = CardConfig {
    ppm: 0.0,
    latency: Span::from_millis(10),
    buffer: Span::from_millis(50),
    period: Span::from_millis(50),
    patience: Span::from_millis(500),
};

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: CardConfig = CardConfig {
        ppm: 100.0,
        latency: Span::from_millis(10),
        buffer: Span::from_millis(80),
        period: Span::from_millis(20),
        patience: Span::ZERO,
    };

    fn start() -> Instant {
        Instant::ZERO + Span::from_secs(5_000)
    }

    fn run(card: &mut VirtualCard, seconds: i64) -> Instant {
        let end = start() + Span::from_secs(seconds);
        let mut now = start();
        while now < end {
            let room = card.writable_frames(now);
            assert!(room == Frames::ZERO || room >= card.period());
            card.wrote(room);
            now = card.next_room();
        }
        now
    }

    #[test]
    fn a_card_plays_at_its_own_rate() {
        let mut card = VirtualCard::new(CONFIG, SampleRate::HZ_48000, start());
        let now = run(&mut card, 1_000);
        let position = card.position(now);
        let expected = 48_000.0 * 1.0001 * (now - start()).as_secs_f64() - 480.0;
        #[allow(clippy::cast_precision_loss, reason = "a test of 1000 s")]
        let played = position.played.0 as f64;
        assert!((played - expected).abs() < 2.0, "{played} {expected}");
        assert!(now - position.at < Span::from_micros(21) && position.at <= now);
        assert_eq!(card.stops, 0);
    }

    #[test]
    fn without_frames_it_stands_still() {
        let mut card = VirtualCard::new(CONFIG, SampleRate::HZ_48000, start());
        let now = run(&mut card, 1);
        let before = card.position(now).played;
        let later = now + Span::from_secs(1);
        assert!(card.writable_frames(later) >= Frames(3_840));
        assert_eq!(card.stops, 1);
        let position = card.position(later);
        let buffered = Frames(480 + 3_840);
        assert!(position.played > before && position.played - before <= buffered);
        card.wrote(Frames(3_840));
        let soon = card.position(later + Span::from_millis(10)).played;
        assert!((479..=481).contains(&(soon - position.played).0));
    }

    #[test]
    fn a_patient_one_waits_for_frames_that_are_late() {
        let config = CardConfig { patience: Span::from_millis(500), ..CONFIG };
        let mut card = VirtualCard::new(config, SampleRate::HZ_48000, start());
        let now = run(&mut card, 1);
        let late = card.writable_frames(now + Span::from_millis(400));
        assert!(late >= Frames(400 * 48));
        card.wrote(late);
        assert_eq!(
            (card.writable_frames(now + Span::from_secs(1)) > Frames::ZERO, card.stops),
            (true, 1)
        );
    }
}

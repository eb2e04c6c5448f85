//! How far a sound device has played of what the player has written.
//!
//! A device that was just opened has no steady position yet: it fills its own buffers, or wakes up.
//! So it plays silence until its reports are steady, and the player's frames come behind that. The
//! first position that the player learns is the most punctual one of that time.

use aulos_core::{Frames, Instant, SampleRate, Span};
use aulos_session::player::DevicePosition;
use rustix::event::{PollFd, poll};

use super::device::Output;
use crate::clock;

/// The positions of an open device.
#[derive(Debug)]
pub(super) struct DevicePositions {
    rate: SampleRate,
    /// Added to what the device reports.
    latency: Span,
    /// Frames written, those of the silence included.
    written: u64,
    /// Frames of silence before the player's, once the device is settled.
    lead: Option<u64>,
    /// When the device was opened or moved.
    since: Instant,
    /// The first report of a device that plays.
    playing_since: Option<Instant>,
    reports: u32,
    /// The most punctual report of the last [`HOLD`], or of the time in which the device settles.
    report: Option<(u64, Instant)>,
}

impl DevicePositions {
    pub(super) const fn new(rate: SampleRate, latency: Span, now: Instant) -> Self {
        Self {
            rate,
            latency,
            written: 0,
            lead: None,
            since: now,
            playing_since: None,
            reports: 0,
            report: None,
        }
    }

    pub(super) const fn wrote(&mut self, frames: Frames) {
        self.written += frames.0;
    }

    /// Whether the player's frames can be placed.
    pub(super) const fn is_settled(&self) -> bool {
        self.lead.is_some()
    }

    /// Begins to settle anew, because positions have jumped.
    #[cfg(feature = "pulse")]
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { written: self.written, ..Self::new(self.rate, self.latency, now) };
    }

    /// Whether the device has reported nothing that can be used for too long.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        !self.is_settled() && now - self.since > MAX_SETTLING
    }

    /// The device has sounded `played` frames of all that were written, as known at `at` or a
    /// little earlier. Reports that no device can mean are ignored.
    pub(super) fn report(&mut self, played: i64, at: Instant) {
        let Ok(played) = u64::try_from(played) else { return };
        let off = self.rate.span(Frames(played.abs_diff(self.written)));
        if played == 0 || off > MAX_DELAY {
            return;
        }
        // Of reports in quick succession some are older than others.
        let start = |(played, at)| at - self.rate.span(Frames(played));
        let is_better = |old| start((played, at)) <= start(old);
        if self.is_settled() {
            if self.report.is_none_or(|old| is_better(old) || at - old.1 > HOLD) {
                self.report = Some((played, at));
            }
            return;
        }
        let since = *self.playing_since.get_or_insert(at);
        if at - since < UNSTEADY {
            return;
        }
        self.reports += 1;
        if self.report.is_none_or(is_better) {
            self.report = Some((played, at));
        }
        if self.reports >= MIN_REPORTS && at - since >= UNSTEADY + SETTLING {
            self.lead = Some(self.written);
        }
    }

    /// How far the device has played of the player's frames. Before the first of them that time is
    /// to come.
    pub(super) fn position(&self, now: Instant) -> DevicePosition {
        let (Some(lead), Some((played, at))) = (self.lead, self.report) else {
            return DevicePosition { played: Frames::ZERO, at: now };
        };
        let ahead = self.rate.span(Frames(lead.saturating_sub(played)));
        DevicePosition {
            played: Frames(played.saturating_sub(lead)),
            at: at + ahead + self.latency,
        }
    }

    /// When everything that was written has sounded, if the device plays.
    pub(super) fn sounded_at(&self) -> Option<Instant> {
        let (played, at) = self.report?;
        let ahead = self.rate.span(Frames(self.written.saturating_sub(played)));
        Some(at + ahead + self.latency)
    }
}

/// Serves a device until then, at the end of the play-out.
pub(super) fn wait_until(output: &mut dyn Output, until: Option<Instant>) {
    let start = clock::now();
    let until = until.unwrap_or(start).min(start + MAX_DRAIN);
    loop {
        let now = clock::now();
        if now >= until || output.progress(now).is_err() {
            return;
        }
        let next = output.poll_timeout().map_or(until, |at| at.min(until));
        let timeout = clock::timeout((next - now).max(MIN_WAIT));
        // A signal ends the wait early.
        let _ = match output.descriptor() {
            Some((fd, flags)) => poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)),
            None => poll(&mut [], Some(&timeout)),
        };
    }
}

/// Larger differences between what was written and what has sounded are no delays.
const MAX_DELAY: Span = Span::from_secs(10);

/// The first reports are those of a device that still fills its buffers.
const UNSTEADY: Span = Span::from_millis(100);

/// Then so many reports over such a time: the most punctual of them is good to some tens of
/// microseconds, also where the server's figures are up to 21 ms old.
const SETTLING: Span = Span::from_millis(200);
const MIN_REPORTS: u32 = 8;

/// Positions are followed over minutes; this is the longest time between updates of a sound server.
const HOLD: Span = Span::from_millis(90);

/// For sound that is still in the device at the end of the play-out, and the shortest wait then.
const MAX_DRAIN: Span = Span::from_millis(700);
const MIN_WAIT: Span = Span::from_millis(1);

const MAX_SETTLING: Span = Span::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_punctual_report_places_the_first_frame() {
        let start = Instant::ZERO + Span::from_secs(100);
        let mut positions = DevicePositions::new(SampleRate::HZ_48000, Span::from_millis(3), start);
        positions.wrote(Frames(96_000));
        let mut now = start;
        while !positions.is_settled() {
            now += Span::from_millis(7);
            // Played as of the last tick of 20 ms.
            let ticks = (now - start).as_millis() / 20;
            positions.report(ticks * 960, now);
            assert!(now - start < Span::from_millis(500));
        }
        // The first frame after the silence sounds two seconds and the latency after the start, and
        // the reports of 20 ms come a millisecond late at best.
        let position = positions.position(now);
        let late = position.at - (start + Span::from_millis(2_003));
        assert!(position.played == Frames::ZERO && late >= Span::ZERO, "{late}");
        assert!(late <= Span::from_millis(1), "{late}");
        positions.report(97_000, start + Span::from_secs(3));
        let later = positions.position(now);
        assert_eq!((later.played, later.at), (Frames(1_000), start + Span::from_millis(3_003)));
    }

    #[test]
    fn reports_that_cannot_be_true_are_ignored_and_the_device_is_stuck() {
        let mut positions = DevicePositions::new(SampleRate::HZ_48000, Span::ZERO, Instant::ZERO);
        for step in 0..2_000 {
            let now = Instant::ZERO + Span::from_millis(step * 4);
            for played in [i64::MIN, -1, 0, i64::MAX, 600_000] {
                positions.report(played, now);
            }
            assert_eq!(positions.is_stuck(now), step > 1_250);
        }
    }
}

//! Announcements over a programme: the envelope and the mix, sample by sample.

use std::f64::consts::PI;

use super::*;
use crate::announce::{
    AnnouncementEnd, DEFAULT_DUCK, DEFAULT_RELEASE, DUCK_TIME, Ducking, FADE_OUT_TIME, MAX_LENGTH,
    MAX_QUEUE, QueueEvent, QueueFull,
};
use crate::announce::{MAX_STALL, MAX_START_WAIT, matching_gain};

/// A constant value, this many frames of it, at this rate; if it does not end, it stalls after
/// them.
pub(super) struct ConstantSource {
    pub(super) value: f32,
    pub(super) frames: u64,
    pub(super) rate: u32,
    pub(super) ends: bool,
}

impl Source for ConstantSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        if self.frames == 0 {
            return if self.ends { PullResult::Ended } else { PullResult::Pending };
        }
        into.reset(SampleRate::new(self.rate).unwrap(), ChannelLayout::MONO);
        let count = self.frames.min(480);
        into.resize(Frames(count));
        into.samples_mut().fill(self.value);
        self.frames -= count;
        PullResult::Block
    }
    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

pub(super) fn announcement_source(value: f32, millis: u64) -> Box<dyn Source> {
    Box::new(ConstantSource { value, frames: millis * 48, rate: 48_000, ends: true })
}

/// A station that plays 0.5 for ever, with its announcement queue.
pub(super) struct AnnouncementHarness {
    pub(super) world: World,
    pub(super) events: Vec<QueueEvent>,
}

pub(super) struct HalfScaleSource;

impl Source for HalfScaleSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        into.reset(SampleRate::HZ_48000, ChannelLayout::MONO);
        into.resize(Frames(480));
        into.samples_mut().fill(0.5);
        PullResult::Block
    }
    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

impl AnnouncementHarness {
    pub(super) fn new(programme: Box<dyn Source>) -> Self {
        let mut world = World::new(vec![programme]);
        world.run(100);
        Self { world, events: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        id: u64,
        source: Box<dyn Source>,
        duck: Db,
    ) -> Result<(), QueueFull> {
        self.world.handle.announcements().add(id, source, Ducking::by(duck))
    }

    /// Runs for this long; the queue is polled every 100 ms.
    pub(super) fn run(&mut self, millis: u64) -> Vec<f32> {
        let mut out = Vec::new();
        for _ in 0..millis / 100 {
            self.poll();
            out.extend(self.world.run(100));
        }
        self.poll();
        out
    }

    fn poll(&mut self) {
        self.world.handle.handle_timeout(self.world.now, |event| {
            if let StationEvent::Announcement(event) = event {
                self.events.push(event);
            }
        });
    }
}

/// Gain of the programme this many frames after a ramp from one gain to another began, by the
/// formula and in another precision.
pub(super) fn envelope(from: f64, to: f64, frame: usize, length: usize) -> f64 {
    let way = ((frame as f64 + 0.5) / length as f64).min(1.0);
    from + (to - from) * (0.5 - 0.5 * (PI * way).cos())
}

#[test]
fn an_announcement_ducks_the_programme_and_restores_it() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    room.add(7, announcement_source(0.8, 500), DEFAULT_DUCK).unwrap();
    let out = room.run(2_500);
    let duck = 10f64.powf(-15.0 / 20.0);
    let (down, lag) = (9_600, latency());
    // Half a second of announcement, and the silence of its resampler's delay.
    let (said, up) = (down + lag, down + lag + 24_000);
    for (frame, sample) in out.iter().enumerate() {
        let expected = match frame {
            _ if frame < down => 0.5 * envelope(1.0, duck, frame, 9_600),
            _ if frame < said => 0.5 * duck,
            _ if frame < up => 0.5 * duck + 0.8 * (1.0 - duck),
            _ if frame < up + 48_000 => 0.5 * envelope(duck, 1.0, frame - up, 48_000),
            _ => 0.5,
        };
        assert!((f64::from(*sample) - expected).abs() < 1e-6, "{frame}: {sample}, {expected}");
    }
    assert_eq!(room.events, [QueueEvent::Began(7), QueueEvent::Ended(7, AnnouncementEnd::Played)]);
    assert_eq!(room.world.handle.announcements().ids().count(), 0);
}

#[test]
fn the_programme_outside_an_announcement_is_bit_exact() {
    let counter = || Box::new(Counter { next: 0, base: 0 });
    let (mut room, mut twin) =
        (AnnouncementHarness::new(counter()), AnnouncementHarness::new(counter()));
    assert_eq!(room.run(500), twin.run(500));
    // A signal at another rate.
    let bell = ConstantSource { value: 0.3, frames: 4_410, rate: 44_100, ends: true };
    room.add(1, Box::new(bell), DEFAULT_DUCK).unwrap();
    let (with, without) = (room.run(2_000), twin.run(2_000));
    let differs = |at: &usize| with[*at].to_bits() != without[*at].to_bits();
    let last = (0..with.len()).rev().find(differs).unwrap();
    // 100 ms of signal and its resampler's delay, 200 ms before and a second after it.
    assert!((62_400..62_600).contains(&last), "{last}");
    assert_eq!(room.run(1_000), twin.run(1_000));
    assert_eq!(room.events, [QueueEvent::Began(1), QueueEvent::Ended(1, AnnouncementEnd::Played)]);
}

#[test]
fn one_follows_the_other_without_the_programme_between_them() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    room.add(1, announcement_source(0.0, 300), Db::new(-20.0)).unwrap();
    room.add(2, announcement_source(0.0, 300), Db::new(-40.0)).unwrap();
    let out = room.run(2_000);
    let between = &out[9_600..out.len() / 2];
    let (low, high) = (0.5 * 0.01, 0.5 * 0.1);
    let until = between.iter().position(|sample| *sample < low * 1.001).unwrap();
    assert!(between[..until].iter().all(|sample| *sample < high * 1.001), "it came up");
    let steps = out.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    assert!(steps.fold(0.0, f32::max) < 1e-4, "a click");
    let ended = |id| QueueEvent::Ended(id, AnnouncementEnd::Played);
    assert_eq!(room.events, [QueueEvent::Began(1), ended(1), QueueEvent::Began(2), ended(2)]);
}

#[test]
fn the_sum_never_passes_full_scale() {
    for duck in [0.0, -6.0, -15.0, -60.0, -1e9] {
        let mut world = World::new(vec![Box::new(ConstantSource {
            value: 1.0,
            frames: u64::MAX,
            rate: 48_000,
            ends: false,
        })]);
        world
            .handle
            .announcements()
            .add(1, announcement_source(1.0, 400), Ducking::by(Db::new(duck)))
            .unwrap();
        for _ in 0..15 {
            world.handle.handle_timeout(world.now, |_| {});
            assert!(world.run(100).iter().all(|sample| *sample <= 1.0 + 1e-6), "{duck} dB");
        }
    }
}

#[test]
fn who_is_cancelled_leaves_without_a_click_wherever_it_is() {
    // During the duck ramp, while it plays, beside another one, and in the queue.
    for (id, after) in [(1, 100), (1, 500), (2, 500), (3, 100)] {
        let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
        for id in 1..=3 {
            room.add(id, announcement_source(0.4, 600), DEFAULT_DUCK).unwrap();
        }
        let mut out = room.run(after);
        room.world.handle.cancel_announcement(id);
        room.world.handle.cancel_announcement(id);
        out.extend(room.run(4_000));
        let ended = |event: &&QueueEvent| matches!(event, QueueEvent::Ended(..));
        let causes: Vec<_> = room.events.iter().filter(ended).copied().collect();
        assert_eq!(causes.len(), 3, "{:?}", room.events);
        assert!(
            causes.contains(&QueueEvent::Ended(id, AnnouncementEnd::Cancelled)),
            "{:?}",
            room.events
        );
        assert_eq!(out.last().unwrap().to_bits(), 0.5f32.to_bits());
        if id == 1 && after == 500 {
            // From 0.4 to zero in 50 ms; then the next one starts at full level.
            let gone = room.world.station.rate.frames(FADE_OUT_TIME).as_usize();
            let mut steps =
                out[24_000..24_000 + gone].windows(2).map(|pair| (pair[1] - pair[0]).abs());
            assert!(steps.all(|step| step < 1e-3), "a click");
        }
    }
}

#[test]
fn a_silent_announcement_does_not_duck_and_a_stalled_one_ends() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    let dumb = |frames| Box::new(ConstantSource { value: 0.4, frames, rate: 48_000, ends: false });
    room.add(1, dumb(0), DEFAULT_DUCK).unwrap();
    room.add(2, announcement_source(0.4, 100), DEFAULT_DUCK).unwrap();
    let wait = u64::try_from(MAX_START_WAIT.as_millis()).unwrap();
    assert!(room.run(wait).iter().all(|sample| sample.to_bits() == 0.5f32.to_bits()));
    room.run(1_500);
    let played = [QueueEvent::Began(2), QueueEvent::Ended(2, AnnouncementEnd::Played)];
    assert_eq!(room.events[0], QueueEvent::Ended(1, AnnouncementEnd::NoSound));
    assert_eq!(room.events[1..], played);
    room.add(3, dumb(4_800), DEFAULT_DUCK).unwrap();
    let stall = u64::try_from((MAX_STALL + DUCK_TIME + DEFAULT_RELEASE).as_millis()).unwrap();
    let out = room.run(stall + 600);
    assert_eq!(out.last().unwrap().to_bits(), 0.5f32.to_bits());
    assert_eq!(
        room.events[3..],
        [QueueEvent::Began(3), QueueEvent::Ended(3, AnnouncementEnd::NoSound)]
    );
}

#[test]
fn nothing_lasts_for_ever_and_no_queue_grows_without_bound() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    for id in 0..MAX_QUEUE as u64 {
        room.add(id, announcement_source(0.1, 100_000_000), DEFAULT_DUCK).unwrap();
    }
    assert_eq!(room.add(99, announcement_source(0.1, 1), DEFAULT_DUCK), Err(QueueFull));
    room.run(300);
    assert_eq!(room.add(99, announcement_source(0.1, 1), DEFAULT_DUCK), Err(QueueFull));
    room.run(u64::try_from(MAX_LENGTH.as_millis()).unwrap() + 300);
    assert_eq!(
        room.events[..2],
        [QueueEvent::Began(0), QueueEvent::Ended(0, AnnouncementEnd::TooLong)]
    );
    assert!(room.add(99, announcement_source(0.1, 1), DEFAULT_DUCK).is_ok());
}

#[test]
fn a_matching_gain_leads_to_the_target_and_has_bounds() {
    use crate::loudness::Loudness;
    use aulos_core::Lufs;
    let gain = |integrated: Option<f64>, peak: f64, duck: f64| {
        let integrated = integrated.map(Lufs::new);
        let loudness = Loudness { integrated, true_peak: Some(Db::new(peak)), ..Loudness::NONE };
        matching_gain(&loudness, Lufs::new(-18.0), Db::new(-1.0), Db::new(duck)).get()
    };
    for (loudness, peak, duck, wanted) in [
        (Some(-23.0), -10.0, -60.0, 5.01),
        // Beside a programme at half the level, the announcement gives away half.
        (Some(-23.0), -12.0, -6.0, 11.04),
        (Some(-10.0), -1.0, -60.0, -7.99),
        (Some(-60.0), -50.0, -60.0, 20.0),
        // The limiter takes 6 dB at most: -3 dBTP may become +5 dBTP, 6 dB above the ceiling.
        (Some(-33.0), -3.0, -60.0, 8.01),
        (None, -3.0, -60.0, 0.0),
    ] {
        let gain = gain(loudness, peak, duck);
        assert!((gain - wanted).abs() < 0.01, "{loudness:?} {peak} {duck}: {gain}");
    }
}

//! Announcements of different priorities, and sounds before them.

use super::announce::{AnnouncementHarness, ConstantSource, HalfScaleSource, announcement_source};
use super::*;
use crate::announce::{
    AnnouncementConfig, AnnouncementEnd, CHIME_LENGTH, Chime, DEFAULT_DUCK, Ducking, MAX_QUEUE,
    MAX_STALL, MAX_START_WAIT, Priority, QueueEvent, QueueFull, SoundPart,
};

impl AnnouncementHarness {
    fn rank(&mut self, id: u64, source: Box<dyn Source>, level: u8) -> Result<(), QueueFull> {
        self.lead(id, None, source, level)
    }

    fn lead(
        &mut self,
        id: u64,
        lead: Option<Box<dyn Source>>,
        source: Box<dyn Source>,
        level: u8,
    ) -> Result<(), QueueFull> {
        let (ducking, priority) = (Ducking::by(DEFAULT_DUCK), Priority::new(level));
        let config = AnnouncementConfig { ducking, priority, lead };
        self.world.handle.announcements().add_with(id, source, config)
    }

    fn ended(&self) -> Vec<(u64, AnnouncementEnd)> {
        let ended = self.events.iter().filter_map(|event| match event {
            QueueEvent::Ended(id, cause) => Some((*id, *cause)),
            QueueEvent::Began(_) => None,
        });
        ended.collect()
    }
}

#[test]
fn a_higher_one_interrupts_and_a_lower_or_equal_one_waits() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    for (id, level) in [(1, 5), (2, 5), (3, 2)] {
        room.rank(id, announcement_source(0.3, 2_000), level).unwrap();
    }
    room.run(1_000);
    room.rank(4, announcement_source(0.6, 500), 8).unwrap();
    let out = room.run(1_500);
    let duck = 0.5 * 10f32.powf(-15.0 / 20.0);
    let lowest = out.iter().fold(1.0f32, |lowest, sample| lowest.min(*sample));
    assert!((lowest - duck).abs() < 1e-3, "the programme stays ducked: {lowest}");
    room.rank(5, announcement_source(0.3, 500), 8).unwrap();
    room.run(8_000);
    let (played, interrupted) = (AnnouncementEnd::Played, AnnouncementEnd::Interrupted);
    let expected = [(1, interrupted), (4, played), (2, interrupted), (5, played), (3, played)];
    assert_eq!(room.ended(), expected);
}

#[test]
fn one_that_comes_before_a_lower_one_has_begun_goes_before_it() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    for (id, level) in [(1, 8), (2, 5)] {
        room.rank(id, announcement_source(0.3, 1_000), level).unwrap();
    }
    room.run(500);
    for (id, level) in [(3, 6), (4, 7), (5, 4), (6, 7)] {
        room.rank(id, announcement_source(0.3, 300), level).unwrap();
    }
    room.run(6_000);
    let played = [1, 4, 6, 3, 2, 5].map(|id| (id, AnnouncementEnd::Played));
    assert_eq!(room.ended(), played);
}

#[test]
fn one_without_sound_interrupts_nothing_and_a_full_queue_gives_way_to_a_higher_one() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    for id in 0..MAX_QUEUE as u64 {
        room.rank(id, announcement_source(0.1, 30_000), 5).unwrap();
    }
    room.run(500);
    assert_eq!(room.rank(50, announcement_source(0.1, 100), 5), Err(QueueFull));
    let dumb = ConstantSource { value: 0.4, frames: 0, rate: 48_000, ends: true };
    room.rank(60, Box::new(dumb), 9).unwrap();
    room.run(500);
    let last = MAX_QUEUE as u64 - 1;
    let expected = [(last, AnnouncementEnd::Interrupted), (60, AnnouncementEnd::NoSound)];
    assert_eq!(room.ended(), expected);
}

#[test]
fn the_chime_and_then_the_announcement_sound_at_gains_of_their_own() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    let rate = SampleRate::HZ_48000;
    let other_rate = ConstantSource { value: 0.6, frames: 11_025, rate: 22_050, ends: true };
    room.lead(1, Some(Box::new(Chime::new(rate))), Box::new(other_rate), 5).unwrap();
    room.world.handle.announcements().hold(1, SoundPart::Lead);
    let waits = room.run(500).iter().all(|sample| (sample - 0.5).abs() < 1e-6);
    assert!(waits, "it waits for the gain");
    room.world.handle.announcements().set_part_gain(1, SoundPart::Lead, Db::from_amplitude(0.5));
    let out = room.run(3_000);
    let duck = 10f32.powf(-15.0 / 20.0);
    let said: Vec<f32> = out.iter().map(|sample| (sample - 0.5 * duck) / (1.0 - duck)).collect();
    // 200 ms of ramp before.
    let length = rate.frames(CHIME_LENGTH).as_usize();
    let chime = &said[9_600 + latency()..][..length];
    let expected = Chime::samples(rate);
    let pairs = chime.iter().zip(&expected).map(|(heard, sample)| (heard - 0.5 * sample).abs());
    assert!(pairs.fold(0.0, f32::max) < 1e-3, "the chime at half its level");
    let main = &said[9_600 + length + 2_400..][..19_000];
    assert!(main.iter().all(|sample| (sample - 0.6).abs() < 1e-3), "the announcement follows");
    let played = [QueueEvent::Began(1), QueueEvent::Ended(1, AnnouncementEnd::Played)];
    assert_eq!(room.events, played);
}

#[test]
fn a_lead_without_sound_is_left_out() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    let ends = ConstantSource { value: 0.4, frames: 0, rate: 48_000, ends: true };
    room.lead(1, Some(Box::new(ends)), announcement_source(0.6, 200), 5).unwrap();
    let stalls = ConstantSource { value: 0.4, frames: 0, rate: 48_000, ends: false };
    room.lead(2, Some(Box::new(stalls)), announcement_source(0.6, 200), 5).unwrap();
    room.run(1_000);
    assert_eq!(room.ended(), [(1, AnnouncementEnd::Played)]);
    room.world.handle.announcements().remove_lead(2);
    room.run(1_000);
    assert_eq!(room.ended()[1..], [(2, AnnouncementEnd::Played)]);
    let stalls = |frames| ConstantSource { value: 0.4, frames, rate: 48_000, ends: false };
    for (id, frames) in [(3, 0), (4, 4_800)] {
        room.lead(id, Some(Box::new(stalls(frames))), announcement_source(0.6, 200), 5).unwrap();
    }
    let wait = MAX_START_WAIT + MAX_STALL + Span::from_secs(2);
    room.run(wait.as_millis().unsigned_abs());
    assert_eq!(room.ended()[2..], [3, 4].map(|id| (id, AnnouncementEnd::Played)));
}

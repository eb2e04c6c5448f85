//! Plays: sounds in place of the programme.

use super::announce::{AnnouncementHarness, ConstantSource, HalfScaleSource, announcement_source};
use super::*;
use crate::announce::{
    AnnouncementEnd, DEFAULT_DUCK, Ducking, FADE_OUT_TIME, Layer, MAX_LENGTH, QueueEvent,
};

impl AnnouncementHarness {
    fn play(&mut self, id: u64, source: Box<dyn Source>) {
        let ducking = Ducking { gain: Db::SILENCE, release: Span::from_millis(500) };
        let queue = self.world.handle.queue(None, Layer::Play).unwrap();
        queue.add(id, source, ducking).unwrap();
    }
}

const fn ended(id: u64, cause: AnnouncementEnd) -> QueueEvent {
    QueueEvent::Ended(id, cause)
}

#[test]
fn a_play_takes_the_place_of_the_programme_and_gives_it_back_bit_by_bit() {
    let counter = || Box::new(Counter { next: 0, base: 0 });
    let (mut room, mut twin) =
        (AnnouncementHarness::new(counter()), AnnouncementHarness::new(counter()));
    room.play(1, announcement_source(0.8, 500));
    let (with, without) = (room.run(2_000), twin.run(2_000));
    // 200 ms to silence the programme, the delay of the resampler, and the sound at its own level.
    let begin = 9_600 + latency() + 50;
    let played = &with[begin..begin + 23_900];
    assert!(played.iter().all(|sample| (sample - 0.8).abs() < 1e-5), "nothing else is heard");
    let differs = |at: &usize| with[*at].to_bits() != without[*at].to_bits();
    let last = (0..with.len()).rev().find(differs).unwrap();
    // Half a second of it, 200 ms before and half a second after it.
    assert!((57_600..57_900).contains(&last), "{last}");
    assert_eq!(room.run(500), twin.run(500));
    assert_eq!(room.events, [QueueEvent::Began(1), ended(1, AnnouncementEnd::Played)]);
}

#[test]
fn an_announcement_ducks_a_play_and_does_not_wait_for_its_end() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    room.play(1, announcement_source(0.4, 5_000));
    room.run(1_000);
    room.add(2, announcement_source(0.0, 500), DEFAULT_DUCK).unwrap();
    let out = room.run(2_500);
    let duck = 10f32.powf(-15.0 / 20.0);
    let lowest = out.iter().fold(1.0f32, |lowest, sample| lowest.min(*sample));
    assert!((lowest - 0.4 * duck).abs() < 1e-4, "{lowest}");
    assert!((out[out.len() - 1] - 0.4).abs() < 1e-5, "the play goes on");
    let over = [QueueEvent::Began(2), ended(2, AnnouncementEnd::Played)];
    assert_eq!(room.events[1..], over);
    room.run(4_000);
    assert_eq!(room.events[3..], [ended(1, AnnouncementEnd::Played)]);
}

#[test]
fn a_newer_play_ends_the_older_one_without_the_programme_between_them() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    room.play(1, announcement_source(0.4, 60_000));
    room.run(1_000);
    // One that cannot be played leaves the older one on air.
    let dumb = ConstantSource { value: 0.4, frames: 0, rate: 48_000, ends: true };
    room.play(2, Box::new(dumb));
    let out = room.run(1_000);
    let off = out.iter().position(|sample| (sample - 0.4).abs() > 1e-5);
    assert_eq!(off.map(|at| (at, out[at])), None);
    room.play(3, announcement_source(0.7, 500));
    let out = room.run(600);
    // The programme is silent already, so the newer one begins after the fade of the older one.
    let begin = room.world.station.rate.frames(FADE_OUT_TIME).as_usize() + latency() + 50;
    let newer = &out[begin..begin + 23_900];
    assert!(newer.iter().all(|sample| (sample - 0.7).abs() < 1e-5), "no programme between them");
    room.run(1_500);
    let expected = [
        QueueEvent::Began(1),
        ended(2, AnnouncementEnd::NoSound),
        ended(1, AnnouncementEnd::Replaced),
        QueueEvent::Began(3),
        ended(3, AnnouncementEnd::Played),
    ];
    assert_eq!(room.events, expected);
}

#[test]
fn a_play_is_as_long_as_it_is_and_a_cancelled_or_stalled_one_gives_the_programme_back() {
    let mut room = AnnouncementHarness::new(Box::new(HalfScaleSource));
    room.play(1, announcement_source(0.1, 100_000_000));
    let length = u64::try_from(MAX_LENGTH.as_millis()).unwrap();
    let out = room.run(length + 2_000);
    assert!((out[out.len() - 1] - 0.1).abs() < 1e-5, "it has no greatest length");
    room.world.handle.cancel_announcement(1);
    let out = room.run(1_000);
    assert_eq!(out[out.len() - 1].to_bits(), 0.5f32.to_bits());
    let stalls = ConstantSource { value: 0.1, frames: 48_000, rate: 48_000, ends: false };
    room.play(2, Box::new(stalls));
    let out = room.run(7_000);
    assert_eq!(out[out.len() - 1].to_bits(), 0.5f32.to_bits());
    let expected = [
        QueueEvent::Began(1),
        ended(1, AnnouncementEnd::Cancelled),
        QueueEvent::Began(2),
        ended(2, AnnouncementEnd::NoSound),
    ];
    assert_eq!(room.events, expected);
}

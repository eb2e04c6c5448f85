//! Talks in virtual time: microphones that behave, that stall, and that send something else.

use aulos_core::SampleRate;
use aulos_opus::{Application, EncoderConfig, OpusEncoder};

use super::*;

const PCM: TalkFormat = TalkFormat::Pcm { rate: SampleRate::HZ_48000, channels: 1 };
const OPUS: TalkFormat = TalkFormat::Opus { channels: 1 };

/// 20 ms of PCM in one channel.
const FRAME: Span = Span::from_millis(20);
const SAMPLES: usize = 960;

/// A talk, what a room plays of it, and the time.
struct World {
    talk: Talk,
    sound: TalkSound,
    now: Instant,
    /// The frames that have been sent.
    sent: usize,
    /// What the room has taken.
    heard: Vec<f32>,
    ends: usize,
}

impl World {
    fn new(format: TalkFormat) -> Self {
        let (sink, sound) = TalkSink::new();
        let now = Instant::ZERO + Span::from_secs(100);
        let talk = Talk::new(sink, format, now);
        Self { talk, sound, now, sent: 0, heard: Vec::new(), ends: 0 }
    }

    /// Lets time pass, with every timer on the way.
    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(at) = self.talk.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.talk.handle_timeout(self.now);
            assert_ne!(self.talk.poll_timeout(), Some(at), "a timer that has fired is set anew");
        }
        self.now = until;
    }

    /// Sends the next frame, whose samples count on.
    fn speak(&mut self) {
        let frame: Vec<u8> = (0..SAMPLES).flat_map(|at| sample(self.sent * SAMPLES + at)).collect();
        self.sent += 1;
        self.talk.handle_frame(self.now, &frame);
    }

    /// Speaks in real time, while the room plays.
    fn speak_for(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.speak();
            self.take(usize::MAX);
            self.pass(FRAME);
        }
    }

    /// The room takes blocks.
    fn take(&mut self, blocks: usize) {
        for _ in 0..blocks {
            match self.sound.items.pop() {
                Some(SourceItem::Block(block)) => self.heard.extend_from_slice(block.samples()),
                Some(SourceItem::End) => self.ends += 1,
                Some(SourceItem::Lost) => panic!("a talk ends cleanly"),
                None => return,
            }
        }
    }

    /// Asserts that the talk is over for this reason, and that everything that was said is played.
    fn assert_over(&mut self, problem: Option<TalkError>) {
        self.take(usize::MAX);
        assert_eq!(self.talk.problem(), problem);
        assert_eq!(*self.sound.problem.read(), problem);
        assert!(!self.talk.is_speaking() && self.talk.poll_timeout().is_none());
        assert_eq!(self.ends, 1);
        assert_eq!(self.heard.len(), self.sent * SAMPLES);
        for (at, heard) in self.heard.iter().enumerate() {
            assert_eq!(heard.to_bits(), value(at).to_bits(), "sample {at}");
        }
    }
}

fn number(at: usize) -> i16 {
    i16::try_from(at % 65_536).unwrap_or(-1)
}

fn sample(at: usize) -> [u8; 2] {
    number(at).to_le_bytes()
}

fn value(at: usize) -> f32 {
    f32::from(number(at)) / 32_768.0
}

fn opus(world: &mut World, packets: usize) {
    let config = EncoderConfig::new(48_000, 1, Application::Voice);
    let mut encoder = OpusEncoder::new(config).unwrap();
    for _ in 0..packets {
        let mut packet = [0; 1_275];
        let tone: Vec<f32> = (0..SAMPLES).map(|at| if at % 96 < 48 { 0.3 } else { -0.3 }).collect();
        let length = encoder.encode(&tone, SAMPLES, &mut packet).unwrap();
        world.talk.handle_frame(world.now, &packet[..length]);
        world.take(usize::MAX);
        world.pass(FRAME);
    }
}

#[test]
fn what_is_said_until_the_button_is_released_is_played_to_its_end() {
    let mut world = World::new(PCM);
    world.speak_for(Span::from_secs(3));
    assert!(world.talk.is_speaking());
    world.talk.end(world.now, None);
    world.assert_over(None);
    // What comes later is ignored.
    world.talk.handle_frame(world.now, &[0; 960]);
    world.talk.end(world.now, Some(TalkError::Lost));
    world.assert_over(None);
}

#[test]
fn packets_of_opus_are_decoded() {
    let mut world = World::new(OPUS);
    opus(&mut world, 50);
    world.talk.end(world.now, None);
    world.take(usize::MAX);
    assert_eq!((world.heard.len(), world.ends), (48_000, 1));
    assert_eq!(world.talk.problem(), None);
    assert!(world.heard[9_600..].iter().any(|sample| sample.abs() > 0.01));
}

#[test]
fn a_microphone_that_never_begins_or_stops_ends_after_two_seconds() {
    let mut world = World::new(PCM);
    world.pass(MAX_LATE - Span::from_millis(1));
    assert!(world.talk.is_speaking());
    world.pass(Span::from_millis(1));
    world.assert_over(Some(TalkError::Stalled));

    let mut world = World::new(PCM);
    world.speak_for(Span::from_secs(1));
    world.pass(MAX_LATE - Span::from_millis(30));
    assert!(world.talk.is_speaking());
    world.pass(Span::from_millis(30));
    world.assert_over(Some(TalkError::Stalled));
    assert_eq!(TalkError::Stalled.to_string(), "the microphone sent nothing for 2 s");
}

#[test]
fn pauses_of_the_network_are_survived_until_their_sum_is_too_late() {
    let mut world = World::new(PCM);
    for _ in 0..20 {
        world.speak_for(Span::from_millis(200));
        // A pause, and then all that was said in it.
        world.pass(Span::from_millis(1_000));
        (0..50).for_each(|_| world.speak());
        world.take(usize::MAX);
    }
    assert!(world.talk.is_speaking(), "{:?}", world.talk);
    // From now on half of what is said comes.
    for _ in 0..99 {
        world.speak();
        world.pass(FRAME + FRAME);
        world.take(usize::MAX);
    }
    assert!(world.talk.is_speaking());
    world.pass(FRAME + FRAME);
    world.assert_over(Some(TalkError::Late));
}

#[test]
fn sound_faster_than_speech_is_refused_and_so_are_frames_of_nothing() {
    let mut world = World::new(PCM);
    // A second ahead of the one that has been spoken.
    (0..51).for_each(|_| world.speak());
    assert!(world.talk.is_speaking());
    world.speak();
    world.take(usize::MAX);
    world.pass(FRAME);
    world.assert_over(Some(TalkError::TooFast));

    let mut world = World::new(PCM);
    for _ in 0..500 {
        world.talk.handle_frame(world.now, &[]);
    }
    world.assert_over(Some(TalkError::TooFast));
}

#[test]
fn frames_that_are_no_sound_are_refused_with_the_reason() {
    let frames = [(vec![0; 961], TalkError::PartialFrame { bytes: 961, size: 2 })];
    let long = (vec![0; MAX_FRAME_BYTES + 2], TalkError::FrameTooLong);
    for (frame, problem) in frames.into_iter().chain([long]) {
        let mut world = World::new(PCM);
        world.speak_for(Span::from_millis(100));
        world.talk.handle_frame(world.now, &frame);
        world.assert_over(Some(problem));
    }
    let stereo = TalkFormat::Pcm { rate: SampleRate::HZ_44100, channels: 2 };
    let mut world = World::new(stereo);
    world.talk.handle_frame(world.now, &[0; 882 * 4 + 2]);
    let size = world.talk.problem();
    assert_eq!(size, Some(TalkError::PartialFrame { bytes: 3_530, size: 4 }));
}

#[test]
fn a_few_damaged_packets_are_counted_and_noise_ends_the_talk() {
    let mut world = World::new(OPUS);
    opus(&mut world, 10);
    // A packet of 63 frames would be longer than 120 ms, and an empty one is none.
    for noise in [&[0xFF; 40][..], &[], &[0xFF; 40], &[]] {
        world.talk.handle_frame(world.now, noise);
        world.pass(FRAME);
    }
    opus(&mut world, 10);
    assert!(world.talk.is_speaking());
    world.talk.handle_frame(world.now, &[0xFF; 40]);
    assert_eq!(world.talk.problem(), Some(TalkError::Damaged { packets: 5 }));
    world.take(usize::MAX);
    assert_eq!((world.heard.len(), world.ends), (20 * SAMPLES, 1));
}

#[test]
fn what_is_said_while_another_announcement_plays_is_played_after_it() {
    let mut world = World::new(PCM);
    for _ in 0..400 {
        world.speak();
        world.pass(FRAME);
    }
    world.talk.end(world.now, None);
    assert!(world.talk.poll_timeout().is_some(), "the rest waits for room");
    for _ in 0..500 {
        world.take(1);
        world.pass(FRAME);
    }
    world.assert_over(None);

    let mut world = World::new(PCM);
    while world.talk.is_speaking() {
        world.speak();
        world.pass(FRAME);
        assert!(world.sent < 1_000, "{:?}", world.talk);
    }
    for _ in 0..1_000 {
        world.take(1);
        world.pass(FRAME);
    }
    world.assert_over(Some(TalkError::Busy));
}

#[test]
fn a_talk_ends_after_five_minutes_and_with_its_announcement() {
    let mut world = World::new(PCM);
    world.speak_for(MAX_TALK);
    assert!(world.talk.is_speaking());
    world.speak();
    world.assert_over(Some(TalkError::TooLong));

    let mut world = World::new(PCM);
    world.speak_for(Span::from_secs(1));
    let World { mut talk, sound, now, .. } = world;
    drop(sound);
    talk.handle_frame(now, &[0; 960]);
    assert!(talk.is_abandoned() && !talk.is_speaking() && talk.poll_timeout().is_none());
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut world = World::new(PCM);
    world.speak_for(Span::from_secs(1));
    world.talk.handle_frame(Instant::ZERO, &[0; 960]);
    assert_eq!(world.talk.problem(), Some(TalkError::TooFast));
}

//! The element's scenarios in virtual time.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use aulos_core::{ChannelLayout, Db};
use aulos_engine::switch::FailbackMode;

use super::*;
use crate::pcm::PcmSpec;

const RATE: SampleRate = SampleRate::HZ_48000;

/// A sender of a tone, in blocks of 10 ms.
struct Sender {
    spec: PcmSpec,
    channels: usize,
    tone_hz: f64,
    sending: bool,
    silent: bool,
    /// Milliseconds of running time that were sent.
    sent_ms: u64,
}

struct World {
    mixer: Mixer,
    senders: Vec<Sender>,
    out: Vec<f32>,
    /// Milliseconds of running time, and the change.
    changes: Vec<(u64, InputChange)>,
    empty: usize,
}

impl World {
    fn new(rates: &[u32]) -> Self {
        let switch = SwitchConfig {
            failback_delay: Span::from_secs(1),
            failback: FailbackMode::Auto,
            startup_wait: Some(Span::from_millis(500)),
        };
        let silence = SilenceConfig {
            threshold: Db::new(-60.0),
            duration: Span::from_secs(2),
            ..SilenceConfig::default()
        };
        let config =
            MixerConfig { switch, crossfade: Span::from_millis(20), silence: Some(silence) };
        let mut mixer = Mixer::new(config, RATE, 1, Span::ZERO);
        mixer.rearrange(&vec![None; rates.len()]);
        let sender = |hz: &u32| Sender {
            spec: PcmSpec::for_test(SampleRate::new(*hz).unwrap(), ChannelLayout::STEREO),
            channels: 2,
            tone_hz: 1_000.0,
            sending: true,
            silent: false,
            sent_ms: 0,
        };
        let senders = rates.iter().map(sender).collect();
        Self { mixer, senders, out: Vec::new(), changes: Vec::new(), empty: 0 }
    }

    /// Runs for `ms` milliseconds, with every sender in time.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            for index in 0..self.senders.len() {
                self.send(index);
            }
            let mut block = vec![9.0; self.mixer.samples()];
            let at = self.mixer.position() / 48;
            let rendered = self.mixer.render(&mut block);
            self.out.extend(block);
            self.changes.extend(rendered.change.map(|change| (at, change)));
            self.empty += usize::from(rendered.empty);
        }
    }

    fn send(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        sender.sent_ms = sender.sent_ms.max(self.mixer.position() / 480 * 10);
        let hz = f64::from(sender.spec.rate.hz());
        while sender.sending && self.mixer.is_wanted(index) {
            let block: Vec<f32> = (0..sender.spec.rate.hz() / 100)
                .flat_map(|n| {
                    let time = sender.sent_ms as f64 / 1e3 + f64::from(n) / hz;
                    let tone = 0.3 * (2.0 * std::f64::consts::PI * sender.tone_hz * time).sin();
                    let sample = if sender.silent { 0.0 } else { tone as f32 };
                    std::iter::repeat_n(sample, sender.channels)
                })
                .collect();
            let now = self.mixer.position();
            let track = self.mixer.track(index).unwrap();
            track.set_format(&sender.spec);
            track.push(&block, Some(sender.sent_ms * 1_000_000), now);
            sender.sent_ms += 10;
        }
    }

    fn end(&mut self, index: usize) {
        self.senders[index].sending = false;
        self.mixer.track(index).unwrap().end();
    }

    fn inputs(&self) -> Vec<Option<usize>> {
        self.changes.iter().map(|(_, change)| change.to).collect()
    }

    fn causes(&self) -> Vec<SwitchCause> {
        self.changes.iter().map(|(_, change)| change.cause).collect()
    }

    /// The longest silence in frames after the first sound, and the largest step.
    fn hole_and_step(&self) -> (usize, f32) {
        let start = self.out.iter().position(|sample| sample.abs() > 0.01).unwrap();
        let sound = &self.out[start..];
        let runs = sound.split(|sample| sample.abs() > 0.002).map(<[f32]>::len);
        let steps = sound.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        (runs.max().unwrap(), steps.fold(0.0, f32::max))
    }

    fn is_without_holes(&self) {
        let (hole, _) = self.hole_and_step();
        assert!(hole < 48, "{hole} frames of silence");
        self.is_without_steps();
    }

    fn is_without_steps(&self) {
        let (_, step) = self.hole_and_step();
        assert!(step < 0.06, "a step of {step}");
    }
}

#[test]
fn the_main_input_dies_and_comes_back() {
    let mut world = World::new(&[48_000, 48_000]);
    world.run(3_000);
    world.senders[0].sending = false;
    world.run(500);
    assert!(!world.mixer.is_healthy(0) && world.mixer.is_healthy(1));
    world.senders[0].sending = true;
    world.run(3_000);
    assert_eq!(world.inputs(), [Some(0), Some(1), Some(0)]);
    assert_eq!(world.causes(), [SwitchCause::First, SwitchCause::Late, SwitchCause::Better]);
    let back = world.changes[2].0;
    assert!((4_490..4_550).contains(&back), "after the failback delay: {:?}", world.changes);
    world.is_without_holes();
    assert_eq!(world.empty, 0);
}

#[test]
fn rates_that_differ_make_no_difference() {
    for rates in [[44_100, 48_000], [8_000, 192_000], [96_000, 11_025]] {
        let mut world = World::new(&rates);
        world.run(1_000);
        world.senders[0].sending = false;
        world.run(1_000);
        world.senders[0].sending = true;
        world.run(2_000);
        assert_eq!(world.inputs(), [Some(0), Some(1), Some(0)], "{rates:?}");
        world.is_without_holes();
    }
}

#[test]
fn an_input_may_change_its_rate_in_mid_stream() {
    let mut world = World::new(&[48_000, 48_000]);
    for hz in [44_100, 8_000, 192_000, 48_000] {
        world.run(500);
        world.senders[0].spec =
            PcmSpec::for_test(SampleRate::new(hz).unwrap(), ChannelLayout::MONO);
        world.senders[0].channels = 1;
    }
    world.run(500);
    assert_eq!(world.inputs(), [Some(0)]);
    let (hole, _) = world.hole_and_step();
    assert!(hole < 48, "{hole} frames of silence");
}

#[test]
fn a_main_input_that_starts_late_is_awaited() {
    let mut world = World::new(&[48_000, 48_000]);
    world.senders[0].sending = false;
    world.run(300);
    assert!(world.changes.is_empty() && world.empty == 30);
    world.run(700);
    assert_eq!(world.changes[0].0, 500, "{:?}", world.changes);
    world.senders[0].sending = true;
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(1), Some(0)]);
    world.is_without_holes();
}

#[test]
fn a_main_input_that_ends_is_followed_without_a_gap() {
    let mut world = World::new(&[48_000, 48_000]);
    world.run(1_000);
    world.end(0);
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(0), Some(1)]);
    assert_eq!(world.causes()[1], SwitchCause::Ended);
    world.is_without_holes();
    assert!(world.mixer.has_any_ended() && !world.mixer.has_ended());
    world.end(1);
    world.run(100);
    assert!(world.mixer.has_ended());
}

#[test]
fn the_only_input_is_played_from_its_first_frame_to_its_last() {
    let mut world = World::new(&[48_000]);
    world.run(1_000);
    let exact = |n: usize| (0.3 * (2.0 * std::f64::consts::PI * n as f64 / 48.0).sin()) as f32;
    for (n, sample) in world.out.iter().enumerate() {
        assert!((sample - exact(n)).abs() < 1e-6, "frame {n}: {sample}");
    }
    let sent = world.senders[0].sent_ms as usize * 48;
    world.end(0);
    world.run(200);
    let last = world.out.iter().rposition(|sample| sample.abs() > 0.01).unwrap();
    assert!(last > sent - 10 && last < sent, "{last} of {sent}");
}

#[test]
fn with_all_inputs_dead_time_goes_on() {
    let mut world = World::new(&[48_000, 44_100]);
    world.run(1_000);
    world.senders.iter_mut().for_each(|sender| sender.sending = false);
    world.run(2_000);
    assert_eq!(world.inputs().last(), Some(&None));
    assert!(world.out[96_000..].iter().all(|sample| *sample == 0.0));
    assert_eq!(world.out.len(), 3_000 * 48);
    let steps = world.out.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    assert!(steps.fold(0.0, f32::max) < 0.06, "it fades out");
    world.senders[1].sending = true;
    world.run(1_000);
    assert_eq!(world.inputs().last(), Some(&Some(1)));
}

#[test]
fn a_silent_main_input_is_left_and_returns_with_its_sound() {
    let mut world = World::new(&[48_000, 48_000]);
    world.run(3_000);
    world.senders[0].silent = true;
    world.run(4_000);
    let (at, change) = world.changes[1];
    assert_eq!((change.to, change.cause), (Some(1), SwitchCause::Silent));
    assert!((4_900..5_150).contains(&at), "{at} ms");
    world.senders[0].silent = false;
    world.run(2_000);
    assert_eq!(world.inputs(), [Some(0), Some(1), Some(0)]);
}

#[test]
fn a_manual_choice_holds_whatever_happens() {
    let mut world = World::new(&[48_000, 48_000]);
    world.mixer.select(Selection::Manual(Some(1)));
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(1)]);
    world.senders[1].sending = false;
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(1)]);
    world.mixer.select(Selection::Manual(Some(0)));
    world.run(1_000);
    world.mixer.select(Selection::Auto);
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(1), Some(0)]);
}

#[test]
fn a_choice_by_hand_goes_before_priority() {
    let mut world = World::new(&[48_000, 48_000]);
    world.run(1_000);
    world.mixer.prefer(Some(1));
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(0), Some(1)]);
    world.senders[1].sending = false;
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(0), Some(1), Some(0)]);
    world.is_without_holes();
}

#[test]
fn a_choice_by_hand_is_withdrawn() {
    let mut world = World::new(&[48_000, 48_000]);
    world.mixer.prefer(Some(1));
    world.run(1_000);
    world.mixer.prefer(None);
    world.run(1_000);
    assert_eq!(world.inputs(), [Some(1), Some(0)]);
    world.is_without_holes();
}

#[test]
fn inputs_come_and_go_while_it_plays() {
    let mut world = World::new(&[48_000, 48_000]);
    world.run(1_000);
    // The main input is removed; a better one is put before the other.
    world.mixer.rearrange(&[None, Some(1)]);
    world.run(2_000);
    assert_eq!(world.mixer.chosen(), Some(0));
    assert_eq!(world.out.len(), 3_000 * 48);
    world.mixer.rearrange(&[]);
    world.senders.clear();
    world.run(100);
    assert_eq!(world.mixer.chosen(), None);
    assert!(!world.mixer.has_ended(), "another one may come");
    assert_eq!(world.inputs().last(), Some(&None), "{:?}", world.changes);
    world.is_without_steps();
}

#[test]
fn the_input_that_is_heard_is_removed_without_a_click() {
    for crossfading in [false, true] {
        let mut world = World::new(&[48_000, 48_000]);
        // No zero of the tone where it is removed.
        world.senders.iter_mut().for_each(|sender| sender.tone_hz = 1_025.0);
        world.run(1_000);
        if crossfading {
            world.mixer.prefer(Some(1));
        }
        world.run(10);
        world.mixer.rearrange(&[Some(usize::from(!crossfading))]);
        world.senders.truncate(1);
        world.run(1_000);
        world.is_without_holes();
        assert_eq!(world.mixer.tracks.len(), 1);
    }
}

#[test]
fn flapping_inputs_never_leave_a_hole_while_one_plays() {
    let mut world = World::new(&[48_000, 44_100, 48_000]);
    world.run(1_000);
    let mut state = 7u32;
    for _ in 0..1_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let which = (state >> 16) as usize % 2;
        world.senders[which].sending = !world.senders[which].sending;
        world.run(u64::from(state >> 24));
    }
    world.is_without_holes();
    assert_eq!(world.empty, 0);
}

#[test]
fn one_wrong_timestamp_does_not_lose_an_input() {
    for wrong_ms in [3_600_000, 5_000] {
        let mut world = World::new(&[48_000]);
        world.run(1_000);
        let now = world.mixer.position();
        world.mixer.track(0).unwrap().push(&[0.1; 960], Some(wrong_ms * 1_000_000), now);
        world.run(7_000);
        assert_eq!(world.inputs(), [Some(0)], "{wrong_ms}");
        world.is_without_holes();
    }
}

#[test]
fn only_a_wrong_timestamp_is_not_played() {
    let mut world = World::new(&[48_000]);
    world.run(1_000);
    world.senders[0].sending = false;
    let now = world.mixer.position();
    world.mixer.track(0).unwrap().push(&[0.1; 960], Some(u64::MAX / 2), now);
    assert!(!world.mixer.is_starved());
    world.run(40);
    assert!(world.mixer.is_starved(), "what comes next is awaited");
    world.end(0);
    assert!(world.mixer.has_ended());
}

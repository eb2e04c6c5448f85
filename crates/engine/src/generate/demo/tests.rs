use std::sync::OnceLock;

use super::*;
use crate::source::BLOCK_SAMPLES;

/// The first `frames` frames at `rate`, cut into blocks of `block` frames.
fn render(rate: SampleRate, block: u64, frames: u64) -> Vec<[f32; 2]> {
    let mut demo = Demo::new(rate, Frames(block));
    let mut into = Block::with_capacity(rate, ChannelLayout::STEREO, BLOCK_SAMPLES);
    let mut sound = Vec::new();
    while (sound.len() as u64) < frames {
        assert_eq!(demo.pull(Instant::ZERO, &mut into), PullResult::Block);
        assert_eq!(into.pts, MediaTime(sound.len() as u64));
        sound.extend(into.samples().chunks_exact(2).map(|frame| [frame[0], frame[1]]));
    }
    sound.truncate(usize::try_from(frames).unwrap());
    sound
}

/// Three repeats at 48 kHz, rendered once for all tests.
fn three_rounds() -> &'static [[f32; 2]] {
    static SOUND: OnceLock<Vec<[f32; 2]>> = OnceLock::new();
    SOUND.get_or_init(|| render(SampleRate::HZ_48000, 960, 3 * length(SampleRate::HZ_48000)))
}

fn programme() -> &'static [[f32; 2]] {
    &three_rounds()[..usize::try_from(length(SampleRate::HZ_48000)).unwrap()]
}

fn length(rate: SampleRate) -> u64 {
    Demo::new(rate, Frames(960)).length().0
}

fn peak(sound: &[[f32; 2]]) -> f32 {
    sound.iter().flatten().fold(0.0, |peak, sample| peak.max(sample.abs()))
}

fn steepest_step(sound: &[[f32; 2]]) -> f32 {
    let steps = sound.windows(2).flat_map(|pair| [0, 1].map(|c| pair[1][c] - pair[0][c]));
    steps.fold(0.0, |steepest, step| steepest.max(step.abs()))
}

#[test]
fn the_true_peak_stays_below_minus_one_dbfs_at_every_usual_rate() {
    for rate in [SampleRate::HZ_44100, SampleRate::HZ_48000, SampleRate::new(96_000).unwrap()] {
        let sound = render(rate, 960, length(rate));
        let mut highest = f64::from(peak(&sound));
        for channel in 0..2 {
            for at in TAPS..sound.len() - TAPS {
                if sound[at][channel].abs() > 0.4 {
                    for quarter in [0.25, 0.5, 0.75] {
                        let between = interpolate(&sound[at - TAPS..at + TAPS], channel, quarter);
                        highest = highest.max(between.abs());
                    }
                }
            }
        }
        assert!(20.0 * highest.log10() < -1.0, "{rate}: {highest}");
        assert!(highest > 0.5, "{rate}: too timid, {highest}");
    }
}

const TAPS: usize = 16;

/// The band-limited value between the two middle frames: sinc with a Hann window.
fn interpolate(around: &[[f32; 2]], channel: usize, between: f64) -> f64 {
    around
        .iter()
        .enumerate()
        .map(|(i, frame)| {
            let x = core::f64::consts::PI * (i as f64 - TAPS as f64 - between);
            let window = 0.5 + 0.5 * (x / (TAPS + 1) as f64).cos();
            f64::from(frame[channel]) * window * x.sin() / x
        })
        .sum()
}

#[test]
fn the_demo_is_the_same_for_any_block_length() {
    let rate = SampleRate::HZ_48000;
    let bits =
        |sound: Vec<[f32; 2]>| sound.into_iter().map(|f| f.map(f32::to_bits)).collect::<Vec<_>>();
    let wanted = bits(render(rate, 960, 480_000));
    for block in [1, 64, 441, 4_096, u64::MAX] {
        assert!(bits(render(rate, block, 480_000)) == wanted, "blocks of {block}");
    }
}

#[test]
fn the_demo_repeats_after_three_minutes_without_a_step() {
    let rate = SampleRate::HZ_48000;
    let length = length(rate);
    assert!((150 * 48_000..300 * 48_000).contains(&length), "{length}");
    let sound = three_rounds();
    let length = usize::try_from(length).unwrap();
    let (second, third) = (&sound[length..2 * length], &sound[2 * length..]);
    for (at, (a, b)) in second.iter().zip(third).enumerate() {
        assert!((a[0] - b[0]).abs() < 1e-6 && (a[1] - b[1]).abs() < 1e-6, "frame {at}");
    }
    // At the seam nothing is steeper than in the quiet music on both sides of it.
    let seam = steepest_step(&sound[length - 480..length + 480]);
    let before = steepest_step(&sound[length - 480_000..length - 480]);
    assert!(seam <= before, "{seam} against {before}");
}

#[test]
fn nothing_pops() {
    let sound = programme();
    assert!(steepest_step(sound) < 0.3);
    // The first passage has no drums, so a step that is large against the music is a fault.
    let quiet = &sound[..20 * 48_000];
    assert!(steepest_step(quiet) < 0.2 * peak(quiet), "{} {}", steepest_step(quiet), peak(quiet));
}

#[test]
fn quiet_and_loud_passages_are_more_than_ten_loudness_units_apart() {
    let sound = programme();
    let loudness = short_term(sound);
    let share = |wanted: &dyn Fn(f64) -> bool| {
        loudness.iter().filter(|lufs| wanted(**lufs)).count() as f64 / loudness.len() as f64
    };
    assert!(share(&|lufs| lufs > -20.0) > 0.25, "{loudness:?}");
    assert!(share(&|lufs| lufs < -27.0) > 0.25, "{loudness:?}");
    // It is continuous music, without gaps or extreme levels.
    assert!(share(&|lufs| (-36.0..=-11.0).contains(&lufs)) >= 1.0, "{loudness:?}");
}

/// Short-term loudness (3 s, ITU-R BS.1770-5 and EBU Tech 3341) each second, at 48 kHz.
fn short_term(sound: &[[f32; 2]]) -> Vec<f64> {
    let mut seconds = vec![0.0; sound.len() / 48_000];
    for channel in 0..2 {
        // BS.1770-5 Annex 1, tables 1 and 2.
        let shelf = [1.535_124_859_586_97, -2.691_696_189_406_38, 1.198_392_810_852_85];
        let mut shelf = Biquad::new(shelf, [-1.690_659_293_182_41, 0.732_480_774_215_85]);
        let mut pass = Biquad::new([1.0, -2.0, 1.0], [-1.990_047_454_833_98, 0.990_072_250_366_21]);
        for (second, frames) in seconds.iter_mut().zip(sound.chunks(48_000)) {
            for frame in frames {
                *second += pass.step(shelf.step(frame[channel].into())).powi(2) / 48_000.0;
            }
        }
    }
    seconds.windows(3).map(|w| 10.0 * (w.iter().sum::<f64>() / 3.0).log10() - 0.691).collect()
}

struct Biquad {
    b: [f64; 3],
    a: [f64; 2],
    state: [f64; 2],
}

impl Biquad {
    fn new(b: [f64; 3], a: [f64; 2]) -> Self {
        Self { b, a, state: [0.0; 2] }
    }

    fn step(&mut self, x: f64) -> f64 {
        let y = self.b[0] * x + self.state[0];
        self.state[0] = self.b[1] * x - self.a[0] * y + self.state[1];
        self.state[1] = self.b[2] * x - self.a[1] * y;
        y
    }
}

#[test]
fn it_is_wide_and_balanced() {
    let sound = programme();
    let energy = |of: &dyn Fn(&[f32; 2]) -> f32| {
        sound.iter().map(|frame| f64::from(of(frame)).powi(2)).sum::<f64>()
    };
    let (left, right) = (energy(&|f| f[0]), energy(&|f| f[1]));
    assert!((10.0 * (left / right).log10()).abs() < 1.5);
    let (middle, side) = (energy(&|f| f[0] + f[1]), energy(&|f| f[0] - f[1]));
    assert!((0.1..0.7).contains(&(side / middle)), "{}", side / middle);
}

#[test]
fn the_score_never_needs_more_voices_than_there_are() {
    let mut demo = Demo::new(SampleRate::HZ_44100, Frames(960));
    let mut most = 0;
    for _ in 0..demo.page_of(total_steps()) {
        demo.next_page();
        most = most.max(demo.voices.iter().flatten().count());
    }
    assert!(most > 8 && most < VOICES, "{most} voices");
}

#[test]
fn rates_that_cannot_carry_it_get_48_khz() {
    for (asked, given) in [(8_000, 48_000), (32_000, 32_000), (192_000, 192_000), (384_000, 48_000)]
    {
        let mut demo = Demo::new(SampleRate::new(asked).unwrap(), Frames(100));
        let mut into =
            Block::with_capacity(SampleRate::HZ_44100, ChannelLayout::MONO, BLOCK_SAMPLES);
        demo.pull(Instant::ZERO, &mut into);
        assert_eq!((into.rate().hz(), into.frames()), (given, Frames(100)));
    }
}

//! Passages that follow each other at different levels: what the gain does before, at and after a
//! change, and that it does nothing where there is none. Loudness is that of ffmpeg's `ebur128`;
//! the gain of each 100 ms is the ratio of what comes out to what went in. With `AULOS_SOAK` the
//! figures of ffmpeg's `loudnorm` are printed beside ours.

use aulos_core::{Db, Rng};
use aulos_dsp::normalize::{LookAhead, Settings};

use super::material::{at, mixed, music, shaped, speech};
use super::reference::{filtered, measure};
use super::sound::Sound;

const TARGET: f64 = -23.0;

/// What became of a sound.
struct Run {
    /// `None`: one pass of loudnorm.
    mode: Option<LookAhead>,
    out: Sound,
}

impl Run {
    /// With a maximum gain that is never in the way.
    fn new(sound: &Sound, mode: LookAhead) -> Self {
        let settings = Settings { max_gain: Db::new(30.0), ..Settings::default() };
        let (out, statistics) = sound.normalized(mode, &settings);
        assert_eq!(statistics.clamped, 0);
        Self { mode: Some(mode), out }
    }

    /// Whether a bound holds; the peer has none.
    fn holds(&self, is_within: bool) -> bool {
        self.mode.is_none() || is_within
    }

    fn is_full(&self) -> bool {
        self.mode == Some(LookAhead::Full)
    }

    fn name(&self) -> String {
        self.mode.map_or_else(|| "loudnorm".to_owned(), |mode| format!("{mode:?}"))
    }
}

/// The sound in each live mode.
fn runs(sound: &Sound) -> Vec<Run> {
    let modes = [LookAhead::Full, LookAhead::Mid, LookAhead::Low];
    let ours = modes.map(|mode| Run::new(sound, mode));
    let with_peer = std::env::var_os("AULOS_SOAK").is_some();
    let peer = with_peer.then(|| {
        let stereo = "aformat=channel_layouts=stereo";
        let chain = format!("{stereo},loudnorm=I=-23:LRA=7:TP=-1,aresample=48000,{stereo}");
        let bytes = filtered(sound, &["-af", &chain, "-f", "f32le", "-"]);
        let mut out: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        out.resize(sound.samples.len(), 0.0);
        Run { mode: None, out: Sound { samples: out, ..*sound } }
    });
    ours.into_iter().chain(peer).collect()
}

/// The gain in dB of each 100 ms; infinite or NaN where the input is silent.
fn gains(sound: &Sound, out: &Sound) -> Vec<f64> {
    let each = sound.channels * sound.hz as usize / 10;
    let product = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let parts = sound.samples.chunks_exact(each).zip(out.samples.chunks_exact(each));
    parts.map(|(a, b)| 20.0 * (product(a, b) / product(a, a)).log10()).collect()
}

fn median(gains: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = gains.iter().copied().filter(|gain| gain.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Maximum less minimum.
fn movement(gains: &[f64]) -> f64 {
    let gains = gains.iter().copied().filter(|gain| gain.is_finite());
    let (min, max) = gains.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), gain| {
        (gain.min(min), gain.max(max))
    });
    max - min
}

/// Changes of the gain by more than 1.5 dB within 2 s.
fn moves(gains: &[f64]) -> usize {
    let (mut count, mut quiet_until) = (0, 0);
    for (index, pair) in gains.windows(21).enumerate() {
        if index >= quiet_until && movement(&[pair[0], pair[20]]) > 1.5 {
            (count, quiet_until) = (count + 1, index + 20);
        }
    }
    count
}

/// What was outside its bounds, so that one run shows all of it.
#[derive(Default)]
struct Bounds {
    exceeded: Vec<String>,
}

impl Bounds {
    fn require(&mut self, within: bool, what: String) {
        println!("{what}{}", if within { "" } else { " (outside)" });
        if !within {
            self.exceeded.push(what);
        }
    }

    fn check(self) {
        assert!(self.exceeded.is_empty(), "{:#?}", self.exceeded);
    }
}

#[test]
fn the_end_of_a_quiet_passage_is_not_faded_before_a_loud_one() {
    let mut bounds = Bounds::default();
    // The loud passage begins anywhere in the 100 ms of which one energy is known.
    for (offset, most) in [(0.0, 3.0), (0.03, 3.5), (0.07, 3.5)] {
        let quiet = at(&speech(30.0 + offset), -32.0);
        let sound = quiet.then(&at(&music(20.0, |_| 0.0), -17.0));
        for run in runs(&sound) {
            let gains = gains(&sound.part(offset, 50.0), &run.out.part(offset, 50.0));
            let before = median(&gains[200..260]);
            let end = [290, 295, 299].map(|tenth| gains[tenth] - before);
            let measured = measure(&run.out);
            let (loudest, lufs) = (measured.max_momentary(30.0, 33.0), measured.integrated);
            // A gap between two words has no gain.
            let is_kept = end.iter().all(|gain| gain.is_nan() || (-most..=1.0).contains(gain));
            let is_loud = run.is_full() && (loudest > -15.0 || (lufs - TARGET).abs() > 0.5);
            bounds.require(
                run.holds(is_kept && !is_loud),
                format!("{offset} s, {}: {end:.1?} dB, M {loudest:.1}, I {lufs:.1}", run.name()),
            );
        }
    }
    bounds.check();
}

/// Sounds with hits shorter than a second, and by how much integrated loudness may be off: where
/// hits change the loudness after a sixth of the minute, what was before counts.
fn hits() -> Vec<(&'static str, Sound, f64)> {
    let tune = music(60.0, |_| 0.0);
    let hit = |every: f64, seconds: f64, from: f64, db: f64| {
        move |time: f64| if time >= from && time % every < seconds { db } else { 0.0 }
    };
    let burst = |time: f64| if time % 4.0 < 0.4 { 0.0 } else { f64::NEG_INFINITY };
    let tone = Sound::new(48_000, 2, {
        let sample = |frame: usize| 0.08 * (frame as f32 * 0.130_9).sin();
        (0..60 * 48_000).flat_map(|frame| [sample(frame); 2]).collect()
    });
    let noise = Sound::noise(48_000, 2, 60.0, |_| -26.0);
    let pump = shaped(&at(&tune, -26.0), hit(2.0, 0.5, 0.0, 12.0));
    let bursts = mixed(&tone, &shaped(&at(&tune, -10.0), burst));
    let later = shaped(&noise, hit(4.0, 0.4, 10.0, 12.0));
    let single = shaped(&noise, hit(30.0, 0.9, 10.0, 12.0));
    vec![
        ("12 dB for 0.5 s each 2 s", pump, 0.5),
        ("0.4 s of music in a tone each 4 s", bursts, 0.5),
        ("12 dB for 0.4 s each 4 s from 10 s on", later, 0.7),
        ("12 dB for 0.9 s each 30 s", single, 0.5),
    ]
}

#[test]
fn hits_shorter_than_a_second_hardly_move_the_gain() {
    let mut bounds = Bounds::default();
    for (name, sound, most) in hits() {
        for run in runs(&sound) {
            let gains = gains(&sound, &run.out);
            let within_3_s = gains[100..590].windows(30).map(movement).fold(0.0, f64::max);
            // The level includes frequent hits, after some of them.
            let settled = if name.contains("30 s") { 0.0 } else { movement(&gains[250..590]) };
            let lufs = measure(&run.out).integrated;
            bounds.require(
                run.holds(within_3_s <= 3.0 && settled <= 3.0 && (lufs - TARGET).abs() <= most),
                format!(
                    "{name}, {}: {within_3_s:.1} dB in 3 s, {settled:.1} in all, I {lufs:.1}",
                    run.name()
                ),
            );
        }
    }
    bounds.check();
}

#[test]
fn an_even_programme_has_no_step_of_the_gain() {
    let mut random = Rng::new(17);
    let bars: Vec<f64> = (0..90).map(|_| 5.0 * random.next_f64()).collect();
    let phrases = music(150.0, |bar| bars[bar] + if (bar / 12) % 2 == 0 { 0.0 } else { 2.0 });
    let swell = music(150.0, |bar| 2.5 * (bar as f64 / 14.0).sin());
    let voices = shaped(&speech(120.0), |time| if time % 14.0 < 7.0 { 0.0 } else { 3.0 });
    let mut bounds = Bounds::default();
    for (name, sound) in [("phrases", phrases), ("swell", swell), ("two voices", voices)] {
        let before = measure(&sound).range;
        for run in runs(&sound) {
            let count = moves(&gains(&sound, &run.out)[50..]);
            let after = measure(&run.out);
            let (range, lufs) = (after.range, after.integrated);
            // A swell of minutes is a change of the level, which is followed.
            let is_kept =
                name == "swell" || (lufs - TARGET).abs() <= 0.5 && (range - before).abs() <= 1.0;
            bounds.require(
                run.holds(count == 0 && is_kept),
                format!("{name}, {}: {count} moves, LRA {before} -> {range}, I {lufs}", run.name()),
            );
        }
    }
    bounds.check();
}

#[test]
fn speech_far_below_music_is_raised_within_six_seconds() {
    let mut bounds = Bounds::default();
    let loud = at(&music(30.0, |_| 0.0), -17.0);
    let voices = [("generated", speech(40.0)), ("espeak-ng", Sound::speech().part(0.0, 40.0))];
    for (voice, words) in voices {
        for depth in [12.0, 16.0, 18.0, 20.0] {
            let wanted = TARGET - (-17.0 - depth);
            let sound = loud.clone().then(&at(&words, -17.0 - depth));
            for run in runs(&sound) {
                let gains = gains(&sound, &run.out);
                let low = |gain: &f64| *gain < wanted - 3.0;
                let late = gains[300..].iter().rposition(low).map_or(0, |last| last + 1);
                let rise = gains[299] - median(&gains[200..280]);
                bounds.require(
                    run.holds(late <= 60),
                    format!(
                        "{voice}, {depth} LU, {}: {:.1} s, before it {rise:+.1} dB",
                        run.name(),
                        late as f64 / 10.0
                    ),
                );
            }
        }
    }
    bounds.check();
}

#[test]
fn a_loud_programme_does_not_start_far_above_the_target() {
    let mut bounds = Bounds::default();
    let noise = Sound::noise(48_000, 2, 20.0, |_| 0.0);
    let dense = music(20.0, |_| 0.0).gain(24.0);
    let dense = Sound { samples: dense.samples.iter().map(|x| x.tanh()).collect(), ..dense };
    for (name, sound) in [("noise", at(&noise, -5.0)), ("dense music", at(&dense, -5.0))] {
        for run in runs(&sound) {
            let gains = gains(&sound, &run.out);
            let settled = median(&gains[50..]);
            let first: Vec<f64> = gains[..10].iter().map(|gain| gain - settled).collect();
            let lufs = measure(&run.out).integrated;
            let is_loud = first.iter().any(|gain| *gain > 3.0);
            bounds.require(
                run.holds(!is_loud && (lufs - TARGET).abs() <= 0.5),
                format!("{name}, {}: {first:.1?} dB, I {lufs}", run.name()),
            );
        }
    }
    bounds.check();
}

/// Verses and choruses, as in a song: a second kind of piece beside those that are even.
#[test]
fn a_song_with_verses_and_choruses_keeps_its_range() {
    songs_keep_their_range(&[(16, 8), (8, 8)], &[4.0, 6.0], runs);
}

/// The memory of the normalizer holds a verse at one time and none at another.
#[test]
fn a_song_whose_choruses_are_longer_than_its_verses_keeps_its_range() {
    let full = |song: &Sound| vec![Run::new(song, LookAhead::Full)];
    songs_keep_their_range(&[(6, 12), (8, 12), (8, 16)], &[6.0, 7.3], full);
}

/// Songs of so many bars of verse and chorus, with verses so far below the choruses, in dB.
fn songs_keep_their_range(
    forms: &[(usize, usize)],
    depths: &[f64],
    runs: impl Fn(&Sound) -> Vec<Run>,
) {
    let mut bounds = Bounds::default();
    for (verse, chorus) in forms {
        for deep in depths {
            let level = |bar: usize| if bar % (verse + chorus) < *verse { -deep } else { 0.0 };
            let song = music(180.0, level);
            let before = measure(&song).range;
            for run in runs(&song) {
                let after = measure(&run.out);
                let (range, lufs) = (after.range, after.integrated);
                let is_kept = !run.is_full() || (range - before).abs() <= 1.0;
                bounds.require(
                    run.holds(is_kept && (lufs - TARGET).abs() <= 0.5),
                    format!(
                        "{verse}, {chorus} bars, {deep} dB, {}: LRA {before} -> {range}, I {lufs}",
                        run.name()
                    ),
                );
            }
        }
    }
    bounds.check();
}

//! Steadiness, distortion and cost of a normalizer.
//!
//! Ours beside ffmpeg's `loudnorm` (one pass, and two with the first one's figures), and GStreamer's
//! `audioloudnorm` where it is installed, on the programmes that are hard for one (crates/sim) and
//! `s=60` seconds of noise under an envelope of words. Target -23 LUFS, ceiling -2 dBTP; the judge is
//! ffmpeg's `ebur128=peak=true`. Columns: LU off the target; seconds until the short-term loudness is
//! within 1 LU for good after a step of 12 LU (30.1: not within the 30 s that follow it); dB above the ceiling; seconds of CPU, the smallest of
//! `reps=5` rounds in which all take turns (ours in process, theirs the whole process less one that
//! only copies). The pilot test lets a tone of 19 kHz through with bursts of 2 ms that must be limited
//! by 6 dB and demodulates it: what it shows of each is drawn into `docs/images/limiter-pilot.svg`, if
//! `svg=1`. The shapes (a fade-out, room tone, a step) are drawn into `docs/images/normalizer-gain.svg` likewise.
//! The range part lets whole pieces of music through (see `range.rs`).
//! `only=quality`, `only=range`, `only=cpu`, `only=pilot` or `only=shapes` leaves the rest out. Bad would
//! be: an error above 1 LU, a curve that falls after the burst, or a step in it; a fade or a pause that is
//! raised; music whose range was small and is smaller now, a gain that moves more than loudnorm's.

mod peers;
mod pilot;
mod range;
mod shapes;

use std::collections::HashMap;
use std::f64::consts::TAU;

use aulos_benches::{Row, argument, minimum, report};
use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::Limiter;
use aulos_dsp::meter::{Meter, MeterConfig, MeterMode};
use aulos_dsp::normalize::{LinearGain, LookAhead, Normalizer, Settings};

use peers::{GStreamer, Judged, judge, loudnorm, second_pass};

const HZ: usize = 48_000;
const TARGET: f64 = -23.0;
const CEILING: f64 = -2.0;
const LOUDNORM: &str = "loudnorm=I=-23:LRA=7:TP=-2";

fn main() {
    let (reps, seconds) = (argument("reps", 5), argument("s", 60));
    let only = std::env::args().find_map(|word| Some(word.strip_prefix("only=")?.to_string()));
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    let gstreamer = GStreamer::find();
    let gstreamer = gstreamer.as_ref();
    let mut rows = Vec::new();
    if wanted("quality") {
        for (name, sound, limit) in programmes() {
            quality(&mut rows, name, &sound, limit, gstreamer);
        }
        settling(&mut rows, gstreamer);
    }
    if wanted("range") {
        range::range(&mut rows);
    }
    if wanted("cpu") {
        costs(&mut rows, seconds, reps, gstreamer);
    }
    if wanted("pilot") {
        pilot::pilot(&mut rows, gstreamer);
    }
    if wanted("shapes") {
        shapes::shapes(&mut rows);
    }
    if gstreamer.is_none() {
        println!("skipped: no GStreamer audioloudnorm (rsaudiofx)");
    }
    report(&rows);
}

/// Interleaved stereo.
type Sound = Vec<f32>;

fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut seed = seed;
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

fn db(level: f64) -> f64 {
    10f64.powf(level / 20.0)
}

fn stereo(seconds: usize, mut sample: impl FnMut(f64) -> f64) -> Sound {
    (0..seconds * HZ)
        .flat_map(|frame| {
            let value = sample(frame as f64 / HZ as f64) as f32;
            [value, value]
        })
        .collect()
}

fn programmes() -> Vec<(&'static str, Sound, f64)> {
    let mut draw = [(); 6].map(|()| noise(11));
    let [steps, speech, clicks, late, short, steady] = &mut draw;
    let level = |time: f64| [-33.0, -13.0, -27.5][(time / 20.0) as usize];
    let mut spoken = true;
    let mut syllable = -1.0;
    let mut chance = noise(12);
    vec![
        ("steps 0/+20/+5.5 dB", stereo(60, |time| steps() * db(level(time))), 1.0),
        (
            "syllables and pauses",
            stereo(60, |time| {
                if (time * 4.0).floor() > syllable {
                    syllable = (time * 4.0).floor();
                    spoken = chance() > -0.4;
                }
                let shape = 0.5 - 0.5 * (TAU * (time * 4.0).fract()).cos();
                speech() * db(-10.0) * if spoken { shape } else { 0.0 }
            }),
            0.5,
        ),
        (
            "quiet noise and clicks",
            stereo(60, |time| {
                let value = clicks();
                if time % 1.7 < 0.002 { value.signum() * db(-0.5) } else { value * db(-30.0) }
            }),
            1.0,
        ),
        (
            "15 s of silence, then noise",
            stereo(60, |time| if time < 15.0 { 0.0 } else { late() * db(-27.0) }),
            1.0,
        ),
        ("two seconds", stereo(2, |_| short() * db(-6.0)), 1.0),
        ("steady noise", stereo(60, |_| steady() * db(-30.0)), 0.5),
    ]
}

fn settings() -> Settings {
    Settings { target: Lufs::new(TARGET), ceiling: Db::new(CEILING), ..Settings::default() }
}

fn ours(sound: &Sound, mode: LookAhead) -> Sound {
    let mut normalizer =
        Normalizer::new(mode, settings(), SampleRate::HZ_48000, ChannelLayout::STEREO)
            .expect("settings within bounds");
    let mut out = sound.clone();
    out.chunks_mut(2 * 960).for_each(|block| normalizer.process(block));
    let mut block = [0.0; 2 * 960];
    loop {
        let frames = normalizer.drain(&mut block).0 as usize;
        if frames == 0 {
            break;
        }
        out.extend(&block[..2 * frames]);
    }
    out.drain(..2 * normalizer.latency().0 as usize);
    out
}

/// One gain, from a measurement.
fn ours_linear(sound: &Sound) -> Sound {
    let mode = MeterMode::INTEGRATED | MeterMode::TRUE_PEAK;
    let config = MeterConfig::new(SampleRate::HZ_48000, ChannelLayout::STEREO, mode);
    let mut meter = Meter::new(config).expect("a plain configuration");
    meter.add(sound);
    let measured = meter.measurement();
    let peak = Db::from_amplitude(measured.true_peak());
    let mut out = sound.clone();
    LinearGain::plan(measured.integrated(), peak, &settings()).apply(&mut out);
    out
}

fn quality(
    rows: &mut Vec<Row>,
    name: &str,
    sound: &Sound,
    limit: f64,
    gstreamer: Option<&GStreamer>,
) {
    let (full, linear) = (judge(&ours(sound, LookAhead::Full)), judge(&ours_linear(sound)));
    let mut pairs = vec![
        ("full", &full, limit, "loudnorm, one pass", loudnorm(sound, LOUDNORM)),
        ("linear", &linear, 0.0, "loudnorm, two passes", loudnorm(sound, &second_pass(sound))),
    ];
    if let Some(peer) = gstreamer {
        pairs.push(("full", &full, limit, "audioloudnorm", peer.loudnorm(sound)));
    }
    for (mode, ours, limit, peer, theirs) in pairs {
        let theirs = judge(&theirs);
        let off = |judged: &Judged| (judged.integrated - TARGET).abs();
        let over = |judged: &Judged| (judged.peak - CEILING).max(0.0);
        let mut row = Row::against(
            "normal",
            format!("{name}, LU off, {mode} / {peer}"),
            off(ours),
            off(&theirs),
            None,
        );
        if limit > 0.0 {
            row.target = Some(format!("<= {limit}"));
            row.met = Some(off(ours) <= limit);
        }
        rows.push(row);
        let mut row = Row::against(
            "normal",
            format!("{name}, dB over, {mode} / {peer}"),
            over(ours),
            over(&theirs),
            None,
        );
        row.target = Some("<= 0.1".into());
        row.met = Some(over(ours) <= 0.1);
        row.ratio = None;
        rows.push(row);
    }
}

/// Seconds from the step until short-term loudness is within 1 LU of the target for good.
fn settled(judged: &Judged, step: usize) -> f64 {
    let tenths = &judged.short_term[10 * step..];
    let last_off = tenths.iter().rposition(|lufs| (lufs - TARGET).abs() > 1.0);
    last_off.map_or(0.0, |index| (index + 2) as f64 / 10.0)
}

fn settling(rows: &mut Vec<Row>, gstreamer: Option<&GStreamer>) {
    for (name, before, after, limit) in
        [("louder", -32.0, -20.0, 4.0), ("quieter", -20.0, -32.0, 5.0)]
    {
        let mut draw = noise(5);
        let sound = stereo(60, |time| draw() * db(if time < 30.0 { before } else { after }));
        let theirs = judge(&loudnorm(&sound, LOUDNORM));
        for (mode, words) in [(LookAhead::Full, "full"), (LookAhead::Mid, "mid"), (LookAhead::Low, "low")] {
            let ours = judge(&ours(&sound, mode));
            let name = format!("12 LU {name}, s to settle, {words} / loudnorm, one pass");
            let mut row =
                Row::against("normal", name, settled(&ours, 30), settled(&theirs, 30), None);
            if mode == LookAhead::Full {
                row.target = Some(format!("<= {limit}"));
                row.met = Some(settled(&ours, 30) <= limit);
            }
            rows.push(row);
        }
        if let Some(peer) = gstreamer {
            let name = format!("12 LU {name}, s to settle, full / audioloudnorm");
            let [ours, theirs] = [ours(&sound, LookAhead::Full), peer.loudnorm(&sound)];
            let [ours, theirs] = [ours, theirs].map(|out| settled(&judge(&out), 30));
            rows.push(Row::against("normal", name, ours, theirs, None));
        }
    }
    let mut draw = noise(5);
    let sound = stereo(45, |time| if time < 15.0 { 0.0 } else { draw() * db(-32.0) });
    let ours = judge(&ours(&sound, LookAhead::Full));
    let mut peers = vec![("loudnorm, one pass", loudnorm(&sound, LOUDNORM))];
    peers.extend(gstreamer.map(|peer| ("audioloudnorm", peer.loudnorm(&sound))));
    let off = |judged: &Judged| (judged.short_term[179] - TARGET).abs();
    for (peer, theirs) in peers {
        let name = format!("3 s after silence, LU off, full / {peer}");
        rows.push(Row {
            target: Some("<= 2".into()),
            met: Some(off(&ours) <= 2.0),
            ..Row::against("normal", name, off(&ours), off(&judge(&theirs)), None)
        });
    }
}

fn costs(rows: &mut Vec<Row>, seconds: usize, reps: usize, gstreamer: Option<&GStreamer>) {
    let (mut draw, mut chance) = (noise(3), noise(4));
    let (mut level, mut next) = (0.1, 0.0);
    let programme = stereo(seconds, |time| {
        if time >= next {
            next = time + 0.14;
            level = 10f64.powf((chance() - 1.0) * 0.6);
        }
        level * (0.7 * draw() + 0.2 * (TAU * 220.0 * time).sin())
    });
    let mut times: HashMap<&str, Vec<f64>> = HashMap::new();
    for _ in 0..reps {
        let mut note = |name, time| times.entry(name).or_default().push(time);
        for (name, mode) in [("full", LookAhead::Full), ("mid", LookAhead::Mid), ("low", LookAhead::Low)] {
            note(name, thread_time(|| drop(ours(&programme, mode))));
        }
        let copy = child_time(|| drop(loudnorm(&programme, "anull")));
        note("loudnorm", child_time(|| drop(loudnorm(&programme, LOUDNORM))) - copy);
        let filter = second_pass(&programme);
        note(
            "two",
            child_time(|| drop(second_pass(&programme)))
                + child_time(|| drop(loudnorm(&programme, &filter)))
                - 2.0 * copy,
        );
        if let Some(peer) = gstreamer {
            let copy = child_time(|| drop(peer.copy(&programme)));
            note("audioloudnorm", child_time(|| drop(peer.loudnorm(&programme))) - copy);
        }
        note("linear", thread_time(|| drop(ours_linear(&programme))));
        note("limiter", thread_time(|| limit(&programme, -23.0)));
        note("limiter, hot", thread_time(|| limit(&programme, 6.0)));
    }
    let best = |name: &str| minimum(&times[name]);
    for (mode, target) in [("full", Some(0.25)), ("mid", None), ("low", None)] {
        let name = format!("{seconds} s, s of CPU, {mode} / loudnorm, one pass");
        rows.push(Row::against("normal", name, best(mode), best("loudnorm"), target));
    }
    if gstreamer.is_some() {
        let name = format!("{seconds} s, s of CPU, full / audioloudnorm");
        rows.push(Row::against("normal", name, best("full"), best("audioloudnorm"), None));
    }
    let name = format!("{seconds} s, s of CPU, linear / loudnorm, two passes");
    rows.push(Row::against("normal", name, best("linear"), best("two"), None));
    for (name, words) in [("limiter", "nothing to do"), ("limiter, hot", "always at work")] {
        let per_frame = best(name) / (seconds * HZ) as f64 * 1e9;
        rows.push(Row::figure("normal", format!("limiter, {words}, ns a frame"), per_frame));
    }
}

fn limit(programme: &Sound, gain: f64) {
    let mut limiter = Limiter::new(SampleRate::HZ_48000, ChannelLayout::STEREO, Db::new(-1.0));
    let gain = db(gain) as f32;
    let mut block = [0.0; 2 * 960];
    for part in programme.chunks(2 * 960) {
        block.iter_mut().zip(part).for_each(|(out, x)| *out = x * gain);
        limiter.process(&mut block[..part.len()]);
    }
    std::hint::black_box(block);
}

fn thread_time(work: impl FnOnce()) -> f64 {
    let now = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists, and there is room for its time.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let start = now();
    work();
    now() - start
}

fn child_time(work: impl FnOnce()) -> f64 {
    let children = || {
        // SAFETY: the kernel fills plain data in.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
            seconds(usage.ru_utime) + seconds(usage.ru_stime)
        }
    };
    let start = children();
    work();
    children() - start
}

//! How steady, how clean and how dear is a normaliser?
//!
//! Ours beside ffmpeg's `loudnorm` (one pass, and two with the first one's figures), and GStreamer's
//! `audioloudnorm` where it is installed, on the programmes that are hard for one (crates/sim) and
//! `s=60` seconds of noise under an envelope of words. Target -23 LUFS, ceiling -2 dBTP; the judge is
//! ffmpeg's `ebur128=peak=true`. Columns: LU off the target; seconds until the short-term loudness is
//! within 1 LU for good after a step of 12 LU (30.1: not within the 30 s that follow it); dB above the ceiling; seconds of CPU, the smallest of
//! `reps=5` rounds in which all take turns (ours in process, theirs the whole process less one that
//! only copies). The pilot test lets a tone of 19 kHz through with bursts of 2 ms that must be limited
//! by 6 dB and demodulates it: what it shows of each is drawn into `docs/limiter-pilot.svg`, if
//! `svg=1`. `only=quality`, `only=cpu` or `only=pilot` leaves the rest out. Bad would be: an error above 1 LU, a curve that falls after the burst, or a step in it.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use aulos_benches::{Row, argument, minimum, report};
use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::Limiter;
use aulos_dsp::meter::{Config, Meter, Mode as Measures};
use aulos_dsp::normalize::{Linear, Mode, Normaliser, Settings};

const HZ: usize = 48_000;
const TARGET: f64 = -23.0;
const CEILING: f64 = -2.0;
const LOUDNORM: &str = "loudnorm=I=-23:LRA=7:TP=-2";

fn main() {
    let (reps, seconds) = (argument("reps", 5), argument("s", 60));
    let only = std::env::args().find_map(|word| Some(word.strip_prefix("only=")?.to_string()));
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    let mut rows = Vec::new();
    if wanted("quality") {
        for (name, sound, limit) in programmes() {
            quality(&mut rows, name, &sound, limit);
        }
        settling(&mut rows);
    }
    if wanted("cpu") {
        costs(&mut rows, seconds, reps);
    }
    if wanted("pilot") {
        pilot(&mut rows);
    }
    if !gstreamer_has_one() {
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

fn ours(sound: &Sound, mode: Mode) -> Sound {
    let mut normaliser =
        Normaliser::new(mode, settings(), SampleRate::STUDIO, ChannelLayout::STEREO)
            .expect("settings within bounds");
    let mut out = sound.clone();
    out.chunks_mut(2 * 960).for_each(|block| normaliser.process(block));
    let mut block = [0.0; 2 * 960];
    loop {
        let frames = normaliser.drain(&mut block).0 as usize;
        if frames == 0 {
            break;
        }
        out.extend(&block[..2 * frames]);
    }
    out.drain(..2 * normaliser.latency().0 as usize);
    out
}

/// One gain, from a measurement.
fn ours_linear(sound: &Sound) -> Sound {
    let mode = Measures::INTEGRATED | Measures::TRUE_PEAK;
    let config = Config::new(SampleRate::STUDIO, ChannelLayout::STEREO, mode);
    let mut meter = Meter::new(config).expect("a plain configuration");
    meter.add(sound);
    let measured = meter.measurement();
    let peak = Db::from_amplitude(measured.true_peak());
    let mut out = sound.clone();
    Linear::plan(measured.integrated(), peak, &settings()).apply(&mut out);
    out
}

/// What ffmpeg makes of the sound, and what it says.
fn ffmpeg(sound: &Sound, filter: &str, out: &[&str]) -> (Vec<u8>, String) {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-nostats", "-threads", "1", "-f", "f32le", "-ar", "48000"]);
    command.args(["-ac", "2", "-i", "pipe:0", "-af", filter]).args(out);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ffmpeg can be run");
    let mut input = child.stdin.take().expect("a pipe");
    let bytes: Vec<u8> = sound.iter().flat_map(|x| x.to_le_bytes()).collect();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(&bytes));
        child.wait_with_output().expect("ffmpeg ends")
    });
    assert!(output.status.success(), "{filter}");
    (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn loudnorm(sound: &Sound, filter: &str) -> Sound {
    let (bytes, _) = ffmpeg(sound, filter, &["-ar", "48000", "-f", "f32le", "-"]);
    bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// The filter of the second pass.
fn second_pass(sound: &Sound) -> String {
    let filter = format!("{LOUDNORM}:print_format=json");
    let (_, said) = ffmpeg(sound, &filter, &["-f", "null", "-"]);
    let value = |key: &str| {
        let (_, behind) = said.split_once(&format!("\"{key}\" : \"")).expect("a figure");
        behind.split_once('"').expect("its end").0.to_owned()
    };
    format!(
        "{LOUDNORM}:measured_I={}:measured_LRA={}:measured_TP={}:measured_thresh={}:linear=true",
        value("input_i"),
        value("input_lra"),
        value("input_tp"),
        value("input_thresh")
    )
}

struct Judged {
    integrated: f64,
    peak: f64,
    short_term: Vec<f64>,
}

fn judge(sound: &Sound) -> Judged {
    let filter = "ebur128=peak=true:metadata=1,ametadata=print:file=-";
    let (said, _) = ffmpeg(sound, filter, &["-f", "null", "-"]);
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut last = HashMap::new();
    let mut short_term = Vec::new();
    for (key, value) in said.lines().filter_map(|line| line.split_once('=')) {
        let value: f64 = value.parse().unwrap_or(f64::NEG_INFINITY);
        if key == "lavfi.r128.S" {
            short_term.push(value);
        }
        last.insert(key.to_owned(), value);
    }
    let figure = |name: &str| last.get(name).copied().unwrap_or(-70.0);
    let peak = figure("lavfi.r128.true_peaks_ch0").max(figure("lavfi.r128.true_peaks_ch1"));
    Judged { integrated: figure("lavfi.r128.I"), peak: 20.0 * peak.log10(), short_term }
}

fn quality(rows: &mut Vec<Row>, name: &str, sound: &Sound, limit: f64) {
    let outs = [("full", ours(sound, Mode::Full), limit), ("linear", ours_linear(sound), 0.0)];
    let peers = [
        ("loudnorm, one pass", loudnorm(sound, LOUDNORM)),
        ("loudnorm, two passes", loudnorm(sound, &second_pass(sound))),
    ];
    for ((mode, out, limit), (peer, theirs)) in outs.into_iter().zip(peers) {
        let (ours, theirs) = (judge(&out), judge(&theirs));
        let off = |judged: &Judged| (judged.integrated - TARGET).abs();
        let over = |judged: &Judged| (judged.peak - CEILING).max(0.0);
        let mut row = Row::against(
            "normal",
            format!("{name}, LU off, {mode} / {peer}"),
            off(&ours),
            off(&theirs),
            None,
        );
        if limit > 0.0 {
            row.target = Some(format!("<= {limit}"));
            row.met = Some(off(&ours) <= limit);
        }
        rows.push(row);
        let mut row = Row::against(
            "normal",
            format!("{name}, dB over, {mode} / {peer}"),
            over(&ours),
            over(&theirs),
            None,
        );
        row.target = Some("<= 0.1".into());
        row.met = Some(over(&ours) <= 0.1);
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

fn settling(rows: &mut Vec<Row>) {
    for (name, before, after, limit) in
        [("louder", -32.0, -20.0, 4.0), ("quieter", -20.0, -32.0, 5.0)]
    {
        let mut draw = noise(5);
        let sound = stereo(60, |time| draw() * db(if time < 30.0 { before } else { after }));
        let theirs = judge(&loudnorm(&sound, LOUDNORM));
        for (mode, words) in [(Mode::Full, "full"), (Mode::Mid, "mid"), (Mode::Low, "low")] {
            let ours = judge(&ours(&sound, mode));
            let name = format!("12 LU {name}, s to settle, {words} / loudnorm, one pass");
            let mut row =
                Row::against("normal", name, settled(&ours, 30), settled(&theirs, 30), None);
            if mode == Mode::Full {
                row.target = Some(format!("<= {limit}"));
                row.met = Some(settled(&ours, 30) <= limit);
            }
            rows.push(row);
        }
    }
    let mut draw = noise(5);
    let sound = stereo(45, |time| if time < 15.0 { 0.0 } else { draw() * db(-32.0) });
    let (ours, theirs) = (judge(&ours(&sound, Mode::Full)), judge(&loudnorm(&sound, LOUDNORM)));
    let off = |judged: &Judged| (judged.short_term[179] - TARGET).abs();
    let name = "3 s after silence, LU off, full / loudnorm, one pass".into();
    rows.push(Row {
        target: Some("<= 2".into()),
        met: Some(off(&ours) <= 2.0),
        ..Row::against("normal", name, off(&ours), off(&theirs), None)
    });
}

fn costs(rows: &mut Vec<Row>, seconds: usize, reps: usize) {
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
        for (name, mode) in [("full", Mode::Full), ("mid", Mode::Mid), ("low", Mode::Low)] {
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
        note("linear", thread_time(|| drop(ours_linear(&programme))));
        note("limiter", thread_time(|| limit(&programme, -23.0)));
        note("limiter, hot", thread_time(|| limit(&programme, 6.0)));
    }
    let best = |name: &str| minimum(&times[name]);
    for (mode, target) in [("full", Some(0.25)), ("mid", None), ("low", None)] {
        let name = format!("{seconds} s, s of CPU, {mode} / loudnorm, one pass");
        rows.push(Row::against("normal", name, best(mode), best("loudnorm"), target));
    }
    let name = format!("{seconds} s, s of CPU, linear / loudnorm, two passes");
    rows.push(Row::against("normal", name, best("linear"), best("two"), None));
    for (name, words) in [("limiter", "nothing to do"), ("limiter, hot", "always at work")] {
        let per_frame = best(name) / (seconds * HZ) as f64 * 1e9;
        rows.push(Row::figure("normal", format!("limiter, {words}, ns a frame"), per_frame));
    }
}

fn limit(programme: &Sound, gain: f64) {
    let mut limiter = Limiter::new(SampleRate::STUDIO, ChannelLayout::STEREO, Db::new(-1.0));
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

const PILOT_HZ: f64 = 19_000.0;
const PILOT: f64 = 0.01;

/// Noise at the target, so that nobody wants much of a gain; in it a pilot and, each second, a burst.
fn pilot(rows: &mut Vec<Row>) {
    let mut draw = noise(8);
    // Below some hundred hertz, so that nothing of it is near the pilot.
    let mut poles = [0.0; 3];
    let background = stereo(20, |_| {
        poles.iter_mut().fold(draw(), |input, pole| {
            *pole += 0.1 * (input - *pole);
            *pole
        })
    });
    let gain = db(TARGET - judge(&background).integrated);
    let height = db(CEILING + 6.0);
    let mut frames = background.chunks(2);
    let sound = stereo(20, |time| {
        let noise = gain * f64::from(frames.next().expect("as long")[0]);
        let within = (time.fract() - 0.5) / 0.002;
        let inside = (0.0..1.0).contains(&within);
        let shape = if inside { (within * TAU / 2.0).sin().powi(2) } else { 0.0 };
        let burst = height * shape * (TAU * 1_000.0 * (time - 0.001)).cos();
        noise + burst + PILOT * (TAU * PILOT_HZ * time).sin()
    });
    let curves: Vec<(&str, Vec<f64>)> =
        [("aulos", ours(&sound, Mode::Full)), ("loudnorm", loudnorm(&sound, LOUDNORM))]
            .into_iter()
            .map(|(name, out)| (name, averaged(&demodulated(&out))))
            .collect();
    for (name, curve) in &curves {
        let after = &curve[AT_MS + 12..AT_MS + 480];
        let falls = after.windows(2).map(|pair| pair[0] - pair[1]).fold(0.0, f64::max);
        let back = after.iter().rposition(|gain| *gain < -0.1).map_or(0, |index| index + 12);
        let deepest = curve.iter().copied().fold(0.0, f64::min);
        for (words, value) in [
            ("dB at the burst", deepest),
            ("dB of fall per ms afterwards", falls),
            ("ms until back to 0.1 dB", back as f64),
        ] {
            rows.push(Row::figure("normal", format!("pilot, {name}, {words}"), value));
        }
    }
    if argument("svg", 0) == 1 {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limiter-pilot.svg");
        std::fs::write(path, drawn(&curves)).expect("the drawing can be written");
    }
}

/// Where the burst begins in the averaged curve.
const AT_MS: usize = 500;

/// The pilot's amplitude each millisecond, over 2 ms under a Hann window.
fn demodulated(sound: &Sound) -> Vec<f64> {
    const WIDTH: usize = HZ / 500;
    let shape = |n: usize| (TAU / 2.0 * (n as f64 + 0.5) / WIDTH as f64).sin().powi(2);
    let window: Vec<f64> = (0..WIDTH).map(shape).collect();
    let shifted: Vec<(f64, f64)> = sound
        .chunks(2)
        .enumerate()
        .map(|(n, frame)| {
            let angle = TAU * PILOT_HZ * n as f64 / HZ as f64;
            (f64::from(frame[0]) * angle.sin(), f64::from(frame[0]) * angle.cos())
        })
        .collect();
    let starts = (0..shifted.len() - WIDTH).step_by(HZ / 1_000);
    starts
        .map(|start| {
            let part = &shifted[start..start + WIDTH];
            let sums = part
                .iter()
                .zip(&window)
                .fold((0.0, 0.0), |(a, b), (x, w)| (a + x.0 * w, b + x.1 * w));
            sums.0.hypot(sums.1)
        })
        .collect()
}

/// The mean of seconds 8 to 17, in dB of what it is between the bursts.
fn averaged(amplitudes: &[f64]) -> Vec<f64> {
    let rest: f64 =
        (8..18).flat_map(|second| &amplitudes[1_000 * second + 400..1_000 * second + 480]).sum();
    let rest = rest / 800.0;
    let mean =
        |ms: usize| (8..18).map(|second| amplitudes[1_000 * second + ms]).sum::<f64>() / 10.0;
    // The window is centred 1 ms after its start.
    (0..1_000).map(|ms| 20.0 * (mean((ms + 999) % 1_000) / rest).log10()).collect()
}

/// Both curves from 50 ms before the burst to 300 ms after.
fn drawn(curves: &[(&str, Vec<f64>)]) -> String {
    const WIDTH: f64 = 760.0;
    let x = |ms: f64| 60.0 + (ms + 50.0) / 350.0 * (WIDTH - 100.0);
    let y = |gain: f64| 40.0 - gain.clamp(-12.0, 1.0) * 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 330\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"330\" fill=\"#fff\"/>\n"
    );
    for gain in (-12..=0).step_by(3) {
        let at = y(f64::from(gain));
        let _ = writeln!(
            out,
            "<path d=\"M60 {at}H{}\" stroke=\"#ddd\"/><text x=\"50\" y=\"{}\" text-anchor=\"end\" fill=\"#333\">{gain} dB</text>",
            WIDTH - 40.0,
            at + 4.0
        );
    }
    for ms in (-50..=300).step_by(50) {
        let at = x(f64::from(ms));
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} 20V290\" stroke=\"#eee\"/><text x=\"{at:.1}\" y=\"308\" text-anchor=\"middle\" fill=\"#333\">{ms} ms</text>"
        );
    }
    for ((name, curve), colour) in curves.iter().zip(["#0a6", "#c40"]) {
        let points: Vec<String> = (-50..300)
            .map(|ms| {
                format!("{:.1},{:.2}", x(f64::from(ms)), y(curve[(AT_MS as i32 + ms) as usize]))
            })
            .collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>",
            points.join(" ")
        );
        let line = if *name == "aulos" { 230 } else { 250 };
        let _ = writeln!(out, "<text x=\"600\" y=\"{line}\" fill=\"{colour}\">{name}</text>");
    }
    out.push_str("</svg>\n");
    out
}

fn gstreamer_has_one() -> bool {
    let inspect = Command::new("gst-inspect-1.0").args(["--exists", "audioloudnorm"]).status();
    inspect.is_ok_and(|status| status.success())
}

//! The elements beside their peers.
//!
//!     cargo bench --manifest-path crates/gst/Cargo.toml --bench peers -- [--rows FILE]
//!
//! * CPU of the normalizer in a pipeline, beside ffmpeg's `loudnorm` and beside `audioloudnorm`
//!   (gst-plugin-audiofx), which wants 192 kHz: processor time less that of a pipeline that only
//!   copies; by turns, the least of five. More than a quarter of a peer's would be bad.
//! * Integrated loudness of the results, judged by ffmpeg's `ebur128`: more than 0.5 LU off would
//!   be bad.
//! * The longest hole in what comes out of the switch, beside `fallbackswitch`
//!   (gst-plugin-fallbackswitch): silence or missing time. More than 1 ms would be bad.
//!
//! Peers are found through `GST_PLUGIN_PATH`; a row of one that is not there says so.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;

#[path = "../tests/it/signals.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod signals;

fn main() {
    gst::init().expect("GStreamer starts");
    gstaulos::plugin_register_static().expect("the plug-in registers");
    let mut table = Table::default();
    normalizers(&mut table);
    switches(&mut table);
    let arguments: Vec<_> = std::env::args().collect();
    let rows = arguments.iter().position(|text| text == "--rows");
    if let Some(file) = rows.and_then(|at| arguments.get(at + 1)) {
        std::fs::write(file, format!("[{}]\n", table.rows.join(",\n"))).expect("rows are written");
    }
}

#[derive(Default)]
struct Table {
    rows: Vec<String>,
}

impl Table {
    fn row(&mut self, case: &str, ours: f64, peer: Option<f64>, limit: Limit) {
        let ratio = peer.map(|peer| ours / peer);
        let (met, target) = match limit {
            Limit::Ratio(most) => (ratio.is_some_and(|ratio| ratio <= most), most),
            Limit::Figure(most) => (ours <= most, most),
        };
        let number = |value: Option<f64>| value.map_or("null".to_owned(), |it| format!("{it:.4}"));
        let (peer, ratio) = (number(peer), number(ratio));
        println!("{case:<60} {ours:>9.4} {peer:>9} {ratio:>8} {target:>6} {met}");
        self.rows.push(format!(
            "{{\"part\": \"gstreamer\", \"case\": \"{case}\", \"ours\": {ours:.4}, \
             \"peer\": {peer}, \"ratio\": {ratio}, \"target\": {target}, \"met\": {met}}}"
        ));
    }

    fn skip(&mut self, case: &str, peer: &str) {
        println!("{case:<60} skipped: no {peer}");
    }
}

/// Acceptance limit of a row.
#[derive(Clone, Copy)]
enum Limit {
    /// The greatest part of the peer's.
    Ratio(f64),
    /// The greatest figure of ours.
    Figure(f64),
}

const LOUDNORM: &str = "aformat=channel_layouts=stereo,loudnorm=I=-23:LRA=7:TP=-2";
const SECONDS: usize = 60;
const ROUNDS: usize = 5;
/// Ours is so short that the kernel's ticks would be most of it.
const REPEATS: usize = 10;

fn normalizers(table: &mut Table) {
    let folder = signals::folder("bench");
    let file = |name: &str| folder.join(name);
    signals::write_wave(&file("in.wav"), 48_000, 2, &signals::programme(48_000, 2, SECONDS));
    let source = format!("filesrc location={} ! wavparse", file("in.wav").display());
    let to = |filter: &str, sink: &str| format!("{source} ! {filter} ! {sink}");
    let ours = "aulosnormalize target=-23 lra=7 true-peak=-2";
    let theirs = "audioconvert ! audioresample ! audio/x-raw,rate=192000,format=F64LE \
        ! audioloudnorm loudness-target=-23 loudness-range-target=7 max-true-peak=-2 \
        ! audioresample ! audioconvert ! audio/x-raw,rate=48000,format=F32LE";
    let has_peer = gst::ElementFactory::find("audioloudnorm").is_some();
    let mut least = [f64::INFINITY; 5];
    for _ in 0..ROUNDS {
        let runs: [&dyn Fn(); 5] = [
            &|| (0..REPEATS).for_each(|_| play(&to("identity", "fakesink sync=false"))),
            &|| (0..REPEATS).for_each(|_| play(&to(ours, "fakesink sync=false"))),
            &|| {
                if has_peer {
                    play(&to(theirs, "fakesink sync=false"))
                }
            },
            &|| ffmpeg(&file("in.wav"), "anull", None),
            &|| ffmpeg(&file("in.wav"), LOUDNORM, None),
        ];
        for (least, run) in least.iter_mut().zip(runs) {
            *least = least.min(cpu_of(run));
        }
    }
    let [copy, ours_cpu, peer_cpu, ffmpeg_copy, ffmpeg_cpu] = least;
    let copy = copy / REPEATS as f64;
    let cost = ours_cpu / REPEATS as f64 - copy;
    let limit = Limit::Ratio(0.25);
    let case = |peer: &str| format!("60 s of stereo, s of CPU: {peer}");
    table.row(&case("loudnorm"), cost, Some(ffmpeg_cpu - ffmpeg_copy), limit);
    if has_peer {
        table.row(&case("audioloudnorm"), cost, Some(peer_cpu - copy), limit);
    } else {
        table.skip(&case(""), "audioloudnorm");
    }
    let error = |path: &Path| (signals::ffmpeg_loudness(path).expect("ffmpeg").0 + 23.0).abs();
    let sink = |name: &str| format!("wavenc ! filesink location={}", file(name).display());
    let case = |peer: &str| format!("integrated loudness, LU off: {peer}");
    let limit = Limit::Figure(0.5);
    play(&to(ours, &sink("ours.wav")));
    let ours = error(&file("ours.wav"));
    ffmpeg(&file("in.wav"), LOUDNORM, Some(&file("ffmpeg.wav")));
    table.row(&case("loudnorm"), ours, Some(error(&file("ffmpeg.wav"))), limit);
    if has_peer {
        play(&to(theirs, &sink("peer.wav")));
        table.row(&case("audioloudnorm"), ours, Some(error(&file("peer.wav"))), limit);
    }
}

fn play(description: &str) {
    let pipeline = gst::parse::launch(description).expect("a pipeline");
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::NONE, &kinds);
    assert_eq!(message.expect("an end").type_(), gst::MessageType::Eos, "{description}");
    pipeline.set_state(gst::State::Null).expect("it stops");
}

fn ffmpeg(input: &Path, filter: &str, output: Option<&PathBuf>) {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-y", "-i"]).arg(input);
    command.args(["-af", filter, "-ar", "48000", "-ac", "2"]);
    match output {
        Some(path) => command.args(["-c:a", "pcm_f32le"]).arg(path),
        None => command.args(["-f", "null", "-"]),
    };
    assert!(command.status().expect("ffmpeg runs").success());
}

/// Processor time in seconds, that of children included.
fn cpu_of(run: &dyn Fn()) -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(4);
        fields.map(|field| field.parse::<u64>().unwrap()).sum::<u64>()
    };
    let before = ticks();
    run();
    // A tick is a hundredth of a second on every Linux that we know of.
    (ticks() - before) as f64 / 100.0
}

/// What happens to the two inputs: milliseconds to wait, then which one sends or does not.
type Schedule = &'static [(u64, usize, bool)];

fn switches(table: &mut Table) {
    let scenarios: [(&str, [u32; 2], Schedule); 5] = [
        ("main dies", [48_000, 48_000], &[(1_000, 0, false)]),
        ("main dies and comes back", [48_000, 48_000], &[(1_000, 0, false), (1_500, 0, true)]),
        ("main is late", [48_000, 48_000], &[(0, 0, false), (2_000, 0, true)]),
        ("rates differ", [48_000, 44_100], &[(1_000, 0, false), (1_500, 0, true)]),
        (
            "both die: time missing",
            [48_000, 48_000],
            &[(1_000, 0, false), (0, 1, false), (1_500, 1, true)],
        ),
    ];
    for (name, rates, schedule) in scenarios {
        let case = format!("longest hole, ms: {name}");
        let is_dead = name.starts_with("both");
        let hole = |element: &str| {
            let holes = holes(element, rates, schedule);
            if is_dead { holes.time_ms } else { holes.time_ms.max(holes.sound_ms) }
        };
        let peer = gst::ElementFactory::find("fallbackswitch").map(|_| hole("fallbackswitch"));
        let ours = hole("aulosfallback failback-delay=500000000");
        table.row(&case, ours, peer, Limit::Figure(1.0));
        if peer.is_none() {
            table.skip(&case, "fallbackswitch");
        }
    }
}

/// Times of a buffer in nanoseconds, and its samples.
type PlayedBuffer = (u64, u64, Vec<f32>);

struct Holes {
    sound_ms: f64,
    time_ms: f64,
}

fn holes(element: &str, rates: [u32; 2], schedule: Schedule) -> Holes {
    let input = |index: usize| {
        format!(
            "audiotestsrc is-live=true freq=1000 samplesperbuffer=480 volume=0.3 \
             ! audio/x-raw,format=F32LE,channels=1,rate={} ! valve name=valve{index} \
             ! switch.sink_{index}",
            rates[index]
        )
    };
    let description = format!(
        "{element} name=switch timeout=500000000 latency=200000000 \
         ! fakesink name=out sync=false signal-handoffs=true {} {}",
        input(0),
        input(1)
    );
    let pipeline = gst::parse::launch(&description).expect("a pipeline");
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let switch = pipeline.by_name("switch").unwrap();
    switch.static_pad("sink_1").unwrap().set_property("priority", 1u32);
    let heard: Arc<Mutex<Vec<PlayedBuffer>>> = Arc::default();
    let into = heard.clone();
    pipeline.by_name("out").unwrap().connect("handoff", false, move |values| {
        let buffer = values[1].get::<gst::Buffer>().unwrap();
        let start = buffer.pts().unwrap().nseconds();
        let end = start + buffer.duration().unwrap().nseconds();
        let samples = signals::floats(&buffer.map_readable().unwrap());
        into.lock().unwrap().push((start, end, samples));
        None
    });
    let valve = |index: usize, sends: bool| {
        pipeline.by_name(&format!("valve{index}")).unwrap().set_property("drop", !sends);
    };
    for (_, index, sends) in schedule.iter().filter(|(wait, ..)| *wait == 0 && schedule[0].0 == 0) {
        valve(*index, *sends);
    }
    pipeline.set_state(gst::State::Playing).expect("it plays");
    for (wait, index, sends) in schedule {
        std::thread::sleep(Duration::from_millis(*wait));
        valve(*index, *sends);
    }
    std::thread::sleep(Duration::from_millis(1_500));
    pipeline.set_state(gst::State::Null).expect("it stops");
    let heard = heard.lock().unwrap();
    let first = heard.iter().position(|(.., samples)| samples.iter().any(|x| x.abs() > 0.01));
    let heard = &heard[first.expect("something is heard")..];
    let gaps = heard.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64 / 1e6);
    let sound: Vec<f32> = heard.iter().flat_map(|(.., samples)| samples.iter().copied()).collect();
    let silences = sound.split(|sample| sample.abs() > 0.002).map(|run| run.len() as f64 / 48.0);
    Holes { sound_ms: silences.fold(0.0, f64::max), time_ms: gaps.fold(0.0, f64::max) }
}

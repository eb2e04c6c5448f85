//! Is music inside the wished range left as it is, and how far does the gain move on it?
//!
//! All music of a minute and more of two games of the distribution, and a reading by espeak-ng, whole,
//! through each live mode and through loudnorm in one pass. Loudness range and integrated loudness, at the
//! end and after the first minute, are read by ffmpeg's `ebur128`; the gain of a second is the ratio of
//! the powers of what comes out and what went in, so that all are measured alike. Seconds below -60 dBFS
//! have none. `mid` and `low` begin at 0 dB because nothing is known yet: their first two seconds are
//! left out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use aulos_benches::Row;
use aulos_dsp::normalize::LookAhead;

use crate::peers::{ffmpeg, loudnorm, samples};
use crate::{HZ, LOUDNORM, Sound, TARGET, ours};

const FOLDERS: [&str; 2] =
    ["/usr/share/games/frozen-bubble/snd", "/usr/share/games/supertux2/music"];
/// The range of `LOUDNORM` and of our default settings, in LU.
const RANGE: f64 = 7.0;
const SHORTEST_S: usize = 60;
/// A second whose power is less has no gain: -60 dBFS.
const AUDIBLE: f64 = 1e-6;
const TEXT: &str = "The aulos was the double pipe of the Greeks: two reeds, one breath. This one takes \
    live sound in at one end, keeps it at a steady loudness, and gives it out, in time, at many others. \
    When the song ends the demo programme comes back; send another one, and it plays. ";

/// One piece; what came out, in the order of [`NAMES`].
struct Piece {
    name: String,
    seconds: usize,
    range: f64,
    out: Vec<Out>,
}

struct Out {
    /// Loudness range, LU.
    range: f64,
    /// LU off the target, at the end and after a minute.
    off: f64,
    off_minute: f64,
    /// From the lowest gain of a second to the highest, dB.
    movement: f64,
}

const NAMES: [&str; 4] = ["full", "mid", "low", "loudnorm"];
const LOUDNORM_AT: usize = 3;

pub(crate) fn range(rows: &mut Vec<Row>) {
    let files: Vec<PathBuf> =
        FOLDERS.iter().flat_map(|folder| ogg_files(Path::new(folder))).collect();
    if files.is_empty() {
        println!("skipped: no frozen-bubble-data and supertux-data");
        return;
    }
    let (next, pieces) = (Mutex::new(files.into_iter()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(path) = next.lock().expect("no panic").next() else { break };
                    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    let sound = decoded(&path);
                    if sound.len() >= 2 * HZ * SHORTEST_S {
                        let piece = measured(name, &sound);
                        pieces.lock().expect("no panic").push(piece);
                    }
                }
            });
        }
    });
    let mut pieces = pieces.into_inner().expect("no panic");
    pieces.extend(speech().map(|sound| measured("speech".into(), &sound)));
    pieces.sort_by(|a, b| a.name.cmp(&b.name));
    print_pieces(&pieces);
    summary(rows, &pieces);
}

fn ogg_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .flat_map(|path| match path.extension() {
            _ if path.is_dir() => ogg_files(&path),
            Some(extension) if extension == "ogg" => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

/// A file as stereo at 48 kHz.
fn decoded(path: &Path) -> Sound {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-i"]).arg(path);
    let output = command.args(["-ac", "2", "-ar", "48000", "-f", "f32le", "-"]).output();
    let output = output.expect("ffmpeg can be run");
    assert!(output.status.success(), "{}: ffmpeg cannot decode it", path.display());
    samples(&output.stdout)
}

/// A minute and a half, where there is espeak-ng.
fn speech() -> Option<Sound> {
    let path = std::env::temp_dir().join(format!("aulos-bench-{}.wav", std::process::id()));
    let mut espeak = Command::new("espeak-ng");
    let status = espeak.args(["-s", "150", "-w"]).arg(&path).arg(TEXT.repeat(5)).status();
    let sound = status.is_ok_and(|status| status.success()).then(|| decoded(&path));
    let _absent_without_espeak = std::fs::remove_file(&path);
    sound
}

fn measured(name: String, sound: &Sound) -> Piece {
    let (range, ..) = judged(sound);
    let outs = [LookAhead::Full, LookAhead::Mid, LookAhead::Low].map(|mode| ours(sound, mode));
    let theirs = loudnorm(sound, LOUDNORM);
    let blind_s = [0, 2, 2, 0];
    let out = outs.iter().chain([&theirs]).zip(blind_s).map(|(out, blind_s)| {
        let (range, end, minute) = judged(out);
        let gains = gains(sound, out);
        let gains = gains[blind_s..].iter().copied().filter(|gain| gain.is_finite());
        let (least, most) = gains.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
        Out { range, off: end - TARGET, off_minute: minute - TARGET, movement: most - least }
    });
    Piece { name, seconds: sound.len() / 2 / HZ, range, out: out.collect() }
}

/// Loudness range, integrated loudness, and that of the first minute, by ffmpeg.
fn judged(sound: &Sound) -> (f64, f64, f64) {
    let filter = "ebur128=metadata=1,ametadata=print:file=-";
    let (said, _) = ffmpeg(sound, filter, &["-f", "null", "-"]);
    let said = String::from_utf8_lossy(&said);
    let figures = |key: &str| -> Vec<f64> {
        let lines = said.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.map(|value| value.parse().unwrap_or(f64::NAN)).collect()
    };
    let (integrated, range) = (figures("lavfi.r128.I"), figures("lavfi.r128.LRA"));
    let last = |figures: &[f64]| figures.last().copied().unwrap_or(f64::NAN);
    (last(&range), last(&integrated), integrated[10 * SHORTEST_S - 1])
}

/// In dB, each second; not finite where nothing is to be heard.
fn gains(sound: &Sound, out: &Sound) -> Vec<f64> {
    let power =
        |part: &[f32]| part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / part.len() as f64;
    let parts = sound.chunks_exact(2 * HZ).zip(out.chunks_exact(2 * HZ));
    parts
        .map(|(before, after)| match power(before) {
            before if before < AUDIBLE => f64::NAN,
            before => 10.0 * (power(after) / before).log10(),
        })
        .collect()
}

fn print_pieces(pieces: &[Piece]) {
    println!(
        "{:26} {:>4}  LRA in  full   mid   low  loudn.   off at the end: full  loudn.   at 60 s: full  loudn.   movement: full   mid   low  loudn.",
        "piece", "s"
    );
    for Piece { name, seconds, range, out } in pieces {
        let [full, mid, low, theirs] = out.as_slice() else { continue };
        println!(
            "{name:26} {seconds:4} {range:7.1} {:5.1} {:5.1} {:5.1} {:7.1} {:21.2} {:7.2} {:15.2} {:7.2} {:16.1} {:5.1} {:5.1} {:7.1}",
            full.range,
            mid.range,
            low.range,
            theirs.range,
            full.off,
            theirs.off,
            full.off_minute,
            theirs.off_minute,
            full.movement,
            mid.movement,
            low.movement,
            theirs.movement
        );
    }
}

fn summary(rows: &mut Vec<Row>, pieces: &[Piece]) {
    let inside: Vec<&Piece> = pieces.iter().filter(|piece| piece.range <= RANGE).collect();
    let count =
        |of: &dyn Fn(&Piece) -> bool| pieces.iter().filter(|piece| of(piece)).count() as f64;
    let mean = |of: &dyn Fn(&Piece) -> f64| {
        pieces.iter().map(of).sum::<f64>() / pieces.len().max(1) as f64
    };
    let change = |piece: &Piece, at: usize| (piece.out[at].range - piece.range).abs();
    let (all, few) = (pieces.len(), inside.len());
    for (at, mode) in NAMES.iter().enumerate().take(LOUDNORM_AT) {
        let mut against = |case: String, target: Option<f64>, of: &dyn Fn(usize) -> f64| {
            let case = format!("{case}, {mode} / loudnorm, one pass");
            let mut row = Row::against("normal", case, of(at), of(LOUDNORM_AT), None);
            if let Some(limit) = target.filter(|_| at == 0) {
                (row.target, row.met) = (Some(format!("<= {limit}")), Some(of(at) <= limit));
            }
            rows.push(row);
        };
        against(format!("{few} pieces inside 7 LU, LU of change of LRA"), Some(1.0), &|at| {
            inside.iter().map(|piece| change(piece, at)).sum::<f64>() / few.max(1) as f64
        });
        against(format!("of these, more than 1 LU changed, of {few}"), Some(0.0), &|at| {
            count(&|piece| piece.range <= RANGE && change(piece, at) > 1.0)
        });
        against(format!("{all} pieces, LU off"), Some(0.5), &|at| {
            mean(&|piece| piece.out[at].off.abs())
        });
        against(format!("of these, more than 0.5 LU off, of {all}"), Some(0.0), &|at| {
            count(&|piece| piece.out[at].off.abs() > 0.5)
        });
        against(format!("{all} pieces, LU off after 60 s"), Some(0.5), &|at| {
            mean(&|piece| piece.out[at].off_minute.abs())
        });
        let moved = |at: usize| mean(&|piece| piece.out[at].movement);
        let case = format!("{all} pieces, dB of gain movement, {mode} / loudnorm, one pass");
        let target = (at == 0).then_some(1.0);
        rows.push(Row::against("normal", case, moved(at), moved(LOUDNORM_AT), target));
    }
}

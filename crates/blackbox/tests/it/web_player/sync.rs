//! When the browser sounds, beside our player and snapclient.
//!
//! As in `sync_proof`, nothing comes from a player's own status. The content says its position; the
//! recorder in the page says the frame of the audio context, the browser at which time of the page
//! a frame sounds (`getOutputTimestamp`), and the debugging pipe how the page's clock stands to the
//! system's: a call returns between two readings of the latter.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aulos_blackbox::browser::{Browser, from_base64};
use aulos_blackbox::peer::{Process, before_others, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, write_wav};
use aulos_blackbox::sync::playout::{Playout, differences, percentile};
use aulos_blackbox::sync::position_tone::{ToneCapture, frame};
use aulos_blackbox::sync::write_stamps::{StampLibrary, WriteStamp, read_stamps};
use serde_json::Value;

use super::{bar_says, open_tapped, play};
use crate::retry::{ClientCorrection, retry};
use crate::{soak, text, turn};

/// The browser's play-out may be so far from another player's, in microseconds.
const LIMIT_US: f64 = 5_000.0;

/// What both programs promise of a file: a frame sounds so long after it was written in time.
const FILE_DELAY_NS: u64 = 10_000_000;

/// Seconds of sound that are compared.
const SECONDS: u64 = 10;

/// `CLOCK_MONOTONIC` in nanoseconds, as in the stamps.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// The system's clock minus the page's, in milliseconds, and the error that this has at most.
fn page_clock(browser: &mut Browser) -> (f64, f64) {
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    for _ in 0..200 {
        let before = millis(now());
        let page = browser.run("performance.now()").unwrap().as_f64().unwrap();
        low = low.max(before - page);
        high = high.min(millis(now()) - page);
    }
    (low.midpoint(high), (high - low) / 2.0)
}

#[expect(clippy::cast_precision_loss, reason = "days in nanoseconds have less than 53 bits")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// A player that writes a file, and a log of its writes.
struct FilePlayer {
    process: Process,
    sound: PathBuf,
    stamps: PathBuf,
}

impl FilePlayer {
    fn start(
        scratch: &ScratchDir,
        library: &StampLibrary,
        port: u16,
        snapclient: Option<&Path>,
    ) -> Self {
        let name = if snapclient.is_some() { "snapclient" } else { "ours" };
        let file = |ending: &str| scratch.join(format!("{name}.{ending}"));
        let (sound, stamps) = (file("pcm"), file("stamps"));
        let mut command = before_others(snapclient.unwrap_or(&binary()));
        match snapclient {
            Some(_) => {
                command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "--hostID", name]);
                command.arg("--player").arg(format!("file:filename={}", sound.display()));
                command.args(["--logsink", "stderr"]);
            }
            None => {
                command.arg("play").arg(format!("tcp://127.0.0.1:{port}"));
                command.arg("--output").arg(format!("file:{}", sound.display()));
                command.args(["--id", name, "--quiet"]);
            }
        }
        library.load_into(&mut command, &sound, &stamps, 0);
        let process = Process::start(&mut command, &file("out"), &file("err")).unwrap();
        Self { process, sound, stamps }
    }

    fn finish(mut self, epoch: u64) -> Playout {
        // Snapclient's status after SIGTERM is not always success.
        self.process.terminate(Duration::from_secs(5)).unwrap();
        let frames = SampleWidth::B16.frames(&std::fs::read(&self.sound).unwrap());
        let mut stamps = read_stamps(&self.stamps).unwrap();
        stamps.iter_mut().for_each(|stamp| stamp.nanos += FILE_DELAY_NS);
        Playout::new(ToneCapture::new(&frames), &stamps, epoch, 0)
    }
}

/// What the browser has played, from its recorder. Fails if the machine kept its audio from
/// running.
fn browser_playout(found: &Value, clock_ms: f64, epoch: u64) -> Result<Playout, ClientCorrection> {
    let bytes = from_base64(found["sound"].as_str().unwrap());
    let sound = SampleWidth::B16.frames(&bytes);
    let number = |value: &Value| value.as_f64().unwrap();
    let rate = number(&found["rate"]);
    let blocks: Vec<f64> = found["frames"].as_array().unwrap().iter().map(number).collect();
    assert!((rate - 48_000.0).abs() < 0.5, "{rate} Hz");
    // The frame of the first block, by each of them. A worklet that is run late may be given the
    // number of the quantum before.
    let mut firsts: Vec<f64> =
        (0_u32..).zip(&blocks).map(|(n, at)| at - f64::from(n) * BLOCK).collect();
    firsts.sort_by(f64::total_cmp);
    let first = percentile(&firsts, 0.5);
    let agree = firsts.iter().filter(|one| (**one - first).abs() < 0.5).count();
    if agree * 10 < firsts.len() * 9 {
        return Err(ClientCorrection::host_stall(format!(
            "the recorder left out blocks: {blocks:?}"
        )));
    }
    // When frame 0 sounds: the same at each time, unless the device has stood still.
    let times = found["times"].as_array().unwrap().iter();
    let mut origins: Vec<f64> =
        times.map(|pair| number(&pair[1]) - number(&pair[0]) / rate * 1e3).collect();
    origins.sort_by(f64::total_cmp);
    let [low, origin, high] = [0.02, 0.5, 0.98].map(|share| percentile(&origins, share));
    println!("frame 0 at {origin:.3} ms of the page, {:.3} to +{:.3}", low - origin, high - origin);
    if high - low > 2.0 {
        return Err(ClientCorrection::host_stall(format!(
            "the browser's audio stood still: {low} {high}"
        )));
    }
    let stamp = |number: u32| {
        let at = first + f64::from(number) * BLOCK;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let nanos = ((clock_ms + origin + at / rate * 1e3) * 1e6) as u64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4096 frames")]
        let bytes = BLOCK as u64 * 4;
        WriteStamp { nanos, bytes }
    };
    let stamps: Vec<WriteStamp> = (0_u32..).zip(&blocks).map(|(number, _)| stamp(number)).collect();
    Ok(Playout::new(ToneCapture::new(&sound), &stamps, epoch, 0))
}

/// Frames of a block of the recorder.
const BLOCK: f64 = 4_096.0;

/// A server with a station that plays the tone of positions.
fn serve(scratch: &ScratchDir) -> AulosServer {
    let file = scratch.join("tone.wav");
    let frames: Vec<Frame> = (0..90 * RATE).map(frame).collect();
    write_wav(BufWriter::new(File::create(&file).unwrap()), &frames, SampleWidth::B16).unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"flac\"\nspec = \"48000:16:2\"\n\
         sources = [\"file://{}\"]\n",
        text(&file)
    );
    AulosServer::start(scratch, &config).unwrap()
}

#[test]
fn the_browser_sounds_within_5_ms_of_other_players() {
    let (Some(program), Some(compiler)) = (find_or_skip("chromium"), find_or_skip("cc")) else {
        return;
    };
    let snapclient = find_or_skip("snapclient");
    let _turn = turn();
    retry("the browser in sync", || compare(&program, &compiler, snapclient.as_deref()));
}

fn compare(
    program: &Path,
    compiler: &Path,
    snapclient: Option<&Path>,
) -> Result<(), ClientCorrection> {
    let scratch = ScratchDir::new("web-player-sync").unwrap();
    let library = StampLibrary::build(compiler, &scratch).unwrap();
    let server = serve(&scratch);
    let mut browser = Browser::open(program, &scratch, "about:blank").unwrap();
    open_tapped(&mut browser, &format!("http://{}/", server.http));
    let epoch = now();
    let ours = FilePlayer::start(&scratch, &library, server.stream.port(), None);
    let theirs = snapclient
        .map(|one| FilePlayer::start(&scratch, &library, server.stream.port(), Some(one)));
    play(&mut browser, "default");
    bar_says(&mut browser, "in time");
    // Snapclient corrects its start in its first seconds.
    std::thread::sleep(Duration::from_secs(5));
    browser.run("tap.blocks.length = 0; tap.watch(); 0").unwrap();
    let seconds = if soak() { 6 * SECONDS } else { SECONDS };
    std::thread::sleep(Duration::from_secs(seconds));
    let found = browser.run("tap.sound()").unwrap();
    let shown = browser.run(super::BAR).unwrap();
    let (clock_ms, clock_error) = page_clock(&mut browser);
    println!("the page's clock is known to {clock_error:.3} ms; the bar: {shown}");
    assert!(clock_error < 1.0, "the debugging pipe is slow: {clock_error} ms");
    let ours = ours.finish(epoch);
    let theirs = theirs.map(|one| one.finish(epoch));
    drop(browser);
    server.stop().unwrap();
    let page = browser_playout(&found, clock_ms, epoch)?;
    let mut results = Vec::new();
    assert!(page.tone().breaks.is_empty(), "clicks at the frames {:?}", page.tone().breaks);
    for (name, other) in [("ours", Some(&ours)), ("snapclient", theirs.as_ref())] {
        let Some(other) = other else { continue };
        if other.stops() > 0 {
            return Err(ClientCorrection::host_stall(format!("{name} stood still")));
        }
        let points = differences(&page, other);
        let mut ahead: Vec<f64> = points.iter().map(|point| point.ahead * 1e6).collect();
        ahead.sort_by(f64::total_cmp);
        let [low, middle, high] = [0.01, 0.5, 0.99].map(|share| percentile(&ahead, share));
        println!(
            "ahead of {name}: {middle:.0} us, 1 % below {low:.0}, 1 % above {high:.0}, {} points",
            ahead.len()
        );
        results.push((name, low, high, ahead.len()));
    }
    for (name, low, high, points) in results {
        assert!(points > 500, "{name}: {points} points");
        assert!(low > -LIMIT_US && high < LIMIT_US, "{name}: {low:.0} to {high:.0} us");
    }
    Ok(())
}

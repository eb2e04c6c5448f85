//! `aulos meter`: the loudness of a source while it plays.

mod output;

use aulos_engine::loudness::Loudness;
use aulos_server::exit::{Exit, Failure};
use clap::Args;

use super::output::is_stdout_open;
use super::signals::Signals;
use super::source::source_reader::{ReaderEvent, ReaderHandle, thread_panicked};
use super::source::{self, OpenSource};
use output::{MeterOutput, MeterResult};

#[derive(Debug, Args)]
pub(super) struct MeterArgs {
    /// Path of a file or FIFO, or a source URI as in the configuration; `-` reads raw samples
    /// (48000 Hz, 16 bit, stereo) from standard input
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Print ten JSON objects per second, one per line
    #[arg(long)]
    json: bool,
    /// Measure a mono source as played by two loudspeakers (+3 LU)
    #[arg(long)]
    dual_mono: bool,
    /// Read a file as fast as possible instead of in real time
    #[arg(long)]
    no_pace: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos meter demo://
  aulos meter file:///srv/programme.flac
  aulos meter --json --no-pace file:///srv/programme.flac | tail -1
  aulos meter https://radio.example/live
  ffmpeg -i FILE -f s16le -ar 48000 -ac 2 - | aulos meter -
  aulos meter pulse://

Values that do not exist, as the loudness of silence, are null in JSON and a
dash in text.";

pub(super) fn run(args: &MeterArgs, quiet: bool) -> Result<Exit, Failure> {
    let (uri, config) = source::parse(&args.source)?;
    if args.no_pace && !config.ends() {
        let message = "--no-pace needs a file source without `repeat`: other sources have a pace \
                       of their own or no end";
        return Err(Failure::new(Exit::Usage, message));
    }
    let mut opened = OpenSource::open(uri, &config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
    runtime.block_on(async {
        // Installed before anything is read, because a signal may come at once.
        let mut signals = Signals::new()?;
        if let Some(task) = opened.take_background_task() {
            // The task ends with the runtime.
            drop(tokio::spawn(task));
        }
        let mut meter =
            ReaderHandle::start("aulos-meter", opened, !args.no_pace, args.dual_mono, None)?;
        let ended = print(args.json, &mut meter, &mut signals).await;
        meter.end().await;
        let ended = ended?;
        if !ended.pipe_closed {
            output::summary(uri, &ended.loudness, args.json, quiet)?;
        }
        ended.result.map(|()| Exit::Ok)
    })
}

async fn print(
    json: bool,
    meter: &mut ReaderHandle,
    signals: &mut Signals,
) -> Result<MeterResult, Failure> {
    let lines = MeterOutput::new(json);
    let mut last = Loudness::NONE;
    loop {
        let event = tokio::select! {
            event = meter.events.recv() => event,
            () = signals.wait() => {
                meter.quit();
                continue;
            }
        };
        match event {
            Some(ReaderEvent::Reading(loudness)) => {
                if !is_stdout_open(lines.print(&loudness))? {
                    return Ok(MeterResult { loudness, result: Ok(()), pipe_closed: true });
                }
                last = loudness;
            }
            Some(ReaderEvent::Waiting) => {}
            Some(ReaderEvent::Ended(loudness, result)) => {
                // After hours, integrated loudness and range lag behind in the regular lines; the
                // last line is exact. A closed pipe makes no difference here.
                if json && loudness != last {
                    drop(lines.print(&loudness));
                }
                return Ok(MeterResult { loudness, result, pipe_closed: false });
            }
            None => return Err(thread_panicked()),
        }
    }
}

//! `aulos record`: records a source into files.

mod output;
mod recorder;

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use aulos_config::{SourceConfig, units};
use aulos_core::{MediaTime, Span};
use aulos_engine::loudness::Loudness;
use aulos_engine::recorder::{CommandTime, RecorderCommand, RecordingState};
use aulos_files::record::RecorderEventKind;
use aulos_files::record::format::FILE_FORMATS;
use aulos_server::exit::{Exit, Failure};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::ColorMode as Colors;
use super::reader::{ReaderCommand, ReaderEvent, ReaderHandle, thread_panicked};
use super::signals::Signals;
use super::source::{self, OpenSource};
use output::RecordOutput;
use recorder::FileRecorder;

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Path of a file or FIFO, or a source URI as in the configuration; `-` reads raw samples
    /// (48000 Hz, 16 bit, stereo) from standard input
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Output file: .wav, .flac or .opus; may contain strftime codes, as in %Y-%m-%d
    ///
    /// An existing file is never overwritten. An incomplete file has the suffix `.part`.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// File format [default: that of the extension of OUT]
    #[arg(long, value_name = "wav|flac|opus", value_parser = FILE_FORMATS.each_ref().map(|row| row.name))]
    format: Option<String>,
    /// Bits per sample: 16, 24 or, in wav only, 32 (floating point) [default: 16]
    #[arg(long, value_name = "16|24|32", value_parser = clap::value_parser!(u32).range(16..=32))]
    bits: Option<u32>,
    /// Opus bit rate, 6 to 510 kbit/s [default: 160]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=510))]
    kbps: Option<u32>,
    /// Maximum duration of a file: 90s, 30min, 1h; at least 1 s [default: none]
    #[arg(long, value_name = "TIME", value_parser = units::parse_span)]
    rotate: Option<Span>,
    /// Align --rotate to the clock: 1h starts a new file at every full hour
    #[arg(long, requires = "rotate")]
    align: bool,
    /// Maximum size of a file: 500MB, 2GiB; at least 64 KiB [default: none]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    rotate_size: Option<u64>,
    /// Use the local time zone in file names and for --align, instead of UTC
    #[arg(long)]
    local_time: bool,
    /// Stop after this duration of audio: 90s, 30min, 1h [default: none]
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_span)]
    length: Option<Span>,
    /// Start on Enter or SIGUSR1, and include this much audio from before it: up to 10min
    #[arg(long, value_name = "TIME", value_parser = units::parse_span)]
    pre_roll: Option<Span>,
    /// Write a JSON file beside each file: start time, loudness, SHA-256
    #[arg(long)]
    sidecar: bool,
    /// Print one JSON object per complete file instead of its path
    #[arg(long)]
    json: bool,
    /// Read a file as fast as possible instead of in real time
    #[arg(long)]
    no_pace: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos record https://radio.example/live show.flac --for 1h
  aulos record tcp://0.0.0.0:4953 'log/%Y-%m-%d/%H%M.opus' \\
      --rotate 1h --align --local-time
  aulos record 'process:///usr/bin/arecord?params=-t raw -f dat' \\
      take.wav --pre-roll 10s
      Enter starts the recording ten seconds back, the next Enter stops it.
  ffmpeg -i FILE -f s16le -ar 48000 -ac 2 - | aulos record - song.flac

Signals: SIGUSR1 starts and stops a recording, SIGUSR2 starts a new file without
a gap, SIGINT (Ctrl-C) writes the remaining audio and exits. The path of each
complete file goes to standard output. Files that a crash left incomplete are
repaired by the next recording to the same path.";

/// Interval of the status line.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(args: &RecordArgs, quiet: bool, color: Colors) -> Result<Exit, Failure> {
    let (uri, config) = source::parse(&args.source)?;
    if args.no_pace && !matches!(config, SourceConfig::File { repeat: false, .. }) {
        let message = "--no-pace needs a file source without `repeat`: other sources have a pace \
                       of their own or no end";
        return Err(Failure::new(Exit::Usage, message));
    }
    let settings = recorder::recorder_config(args)?;
    let mut opened = OpenSource::open(uri, &config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
    let output = RecordOutput::new(args.json, quiet, color);
    runtime.block_on(async {
        // Installed before anything is read, because a signal may come at once.
        let mut signals = Signals::new()?;
        let mut keys = KeyInput::new(args.source == "-")?;
        if let Some(task) = opened.take_background_task() {
            // The task ends with the runtime.
            drop(tokio::spawn(task));
        }
        let (recorder, sink) = FileRecorder::new(settings, args.length, args.no_pace)?;
        if args.pre_roll.is_none() {
            // A file may be read faster than real time, so the start is its first frame and not a
            // time.
            recorder.send_command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO))?;
        }
        let mut reader =
            ReaderHandle::start("aulos-record", opened, !args.no_pace, false, Some(sink))?;
        let ended = watch(&recorder, &output, &mut reader, &mut signals, &mut keys, args).await;
        reader.end().await;
        let done = recorder.finish(&output);
        ended.and(done).map(|()| Exit::Ok)
    })
}

/// Shows the progress, and handles keys and signals until the source or a signal ends the
/// recording.
async fn watch(
    recorder: &FileRecorder,
    output: &RecordOutput,
    reader: &mut ReaderHandle,
    signals: &mut Signals,
    keys: &mut KeyInput,
    args: &RecordArgs,
) -> Result<(), Failure> {
    let mut tick = tokio::time::interval(STATUS_INTERVAL);
    let mut loudness = Loudness::NONE;
    if args.pre_roll.is_some() {
        output.print_message("waiting: Enter or SIGUSR1 starts and stops the recording");
    }
    loop {
        tokio::select! {
            news = reader.events.recv() => match news {
                Some(ReaderEvent::Reading(read)) => loudness = read,
                Some(ReaderEvent::Shape(..) | ReaderEvent::Waiting) => {}
                Some(ReaderEvent::Ended(_, result)) => return result,
                None => return Err(thread_panicked()),
            },
            () = signals.wait() => reader.send(ReaderCommand::Quit),
            key = keys.next() => handle_key(recorder, output, key),
            _ = tick.tick() => {}
        }
        for event in recorder.events() {
            output.event(&event)?;
            if let RecorderEventKind::Failed(fault) = &event
                && recorder.has_written_nothing(fault)
            {
                return Err(Failure::new(Exit::CannotCreate, fault.to_string()));
            }
        }
        output.print_progress(recorder, &loudness);
        if recorder.is_length_reached() {
            reader.send(ReaderCommand::Quit);
        }
    }
}

/// Executes a key; errors are printed.
fn handle_key(recorder: &FileRecorder, output: &RecordOutput, key: RecordKey) {
    let command = match (key, recorder.state()) {
        (RecordKey::Cut, _) => RecorderCommand::Cut,
        (RecordKey::Toggle, RecordingState::Idle) => RecorderCommand::Start,
        (RecordKey::Toggle, _) => RecorderCommand::Stop,
    };
    let when = match command {
        RecorderCommand::Start => CommandTime::Ago(recorder.pre_roll()),
        _ => CommandTime::Now,
    };
    if let Err(failure) = recorder.send_command(command, when) {
        output.print_message(&failure.message);
    }
}

#[derive(Clone, Copy, Debug)]
enum RecordKey {
    /// Start or stop.
    Toggle,
    /// Begin a new file.
    Cut,
}

/// Commands from signals, and from the Enter key if standard input is not the source.
struct KeyInput {
    toggle: tokio::signal::unix::Signal,
    cut: tokio::signal::unix::Signal,
    lines: mpsc::Receiver<()>,
}

impl KeyInput {
    fn new(stdin_is_taken: bool) -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Internal, error.to_string()));
        let (tell, lines) = mpsc::channel(1);
        if !stdin_is_taken && io::stdin().is_terminal() {
            // The thread ends with the process, because a blocked terminal read cannot be woken.
            drop(std::thread::spawn(move || {
                for line in io::stdin().lock().lines() {
                    if line.is_err() || tell.blocking_send(()).is_err() {
                        return;
                    }
                }
            }));
        }
        let (toggle, cut) =
            (listen(SignalKind::user_defined1())?, listen(SignalKind::user_defined2())?);
        Ok(Self { toggle, cut, lines })
    }

    async fn next(&mut self) -> RecordKey {
        let Self { toggle, cut, lines } = self;
        tokio::select! {
            _ = toggle.recv() => RecordKey::Toggle,
            _ = cut.recv() => RecordKey::Cut,
            Some(()) = lines.recv() => RecordKey::Toggle,
        }
    }
}

//! `aulos record`: records a source into files.

mod args;
mod output;
mod programme_clock;
mod recorder;

use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use aulos_core::MediaTime;
use aulos_engine::loudness::Loudness;
use aulos_engine::recorder::{CommandTime, RecorderCommand, RecordingState};
use aulos_files::record::RecorderEventKind;
use aulos_server::exit::{Exit, Failure};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub(super) use args::{RecordArgs, about};

use super::output::ColorMode;
use super::signals::Signals;
use super::source::source_reader::{ReaderEvent, ReaderHandle, thread_panicked};
use super::source::{self, OpenSource};
use output::RecordOutput;
use recorder::FileRecorder;

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos record https://radio.example/live show.flac --for 1h
  aulos record tcp://0.0.0.0:4953 'log/%Y-%m-%d/%H%M.opus' \\
      --rotate 1h --align --local-time
  aulos record alsa://hw:1,0 take.wav --pre-roll 10s
      Enter starts the recording ten seconds back, the next Enter stops it.
  ffmpeg -i FILE -f s16le -ar 48000 -ac 2 - | aulos record - song.flac

Signals: SIGUSR1 starts and stops a recording, SIGUSR2 starts a new file without
a gap, SIGINT (Ctrl-C) writes the remaining audio and exits. The path of each
complete file goes to standard output. Files that a crash left incomplete are
repaired by the next recording to the same path.";

/// Interval of the status line.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(args: &RecordArgs, quiet: bool, color: ColorMode) -> Result<Exit, Failure> {
    let (uri, config) = source::parse(&args.source)?;
    if args.no_pace && !config.ends() {
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
    let mut output = RecordOutput::new(args.json, quiet, color);
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
        let ended = watch(&recorder, &mut output, &mut reader, &mut signals, &mut keys, args).await;
        recorder.stop_waiting();
        reader.end().await;
        let done = recorder.finish(&mut output, &mut signals).await;
        let printed = output.end();
        ended.and(done).and(printed).map(|()| Exit::Ok)
    })
}

/// Shows the progress, and handles keys and signals until the source or a signal ends the
/// recording.
async fn watch(
    recorder: &FileRecorder,
    output: &mut RecordOutput,
    reader: &mut ReaderHandle,
    signals: &mut Signals,
    keys: &mut KeyInput,
    args: &RecordArgs,
) -> Result<(), Failure> {
    let mut tick = tokio::time::interval(STATUS_INTERVAL);
    let mut loudness = Loudness::NONE;
    let mut has_sound = false;
    if args.pre_roll.is_some() {
        output.print_message("waiting: Enter or SIGUSR1 starts and stops the recording");
    }
    loop {
        tokio::select! {
            news = reader.events.recv() => match news {
                Some(ReaderEvent::Reading(read)) => {
                    loudness = read;
                    has_sound = true;
                }
                Some(ReaderEvent::Waiting) if has_sound => {
                    output.print_message("the source sends nothing; waiting for it");
                }
                Some(ReaderEvent::Waiting) => {}
                Some(ReaderEvent::Ended(_, result)) => return result,
                None => return Err(thread_panicked()),
            },
            () = signals.wait() => {
                recorder.stop_waiting();
                reader.quit();
            }
            key = keys.next() => handle_key(recorder, output, key),
            _ = tick.tick() => {}
        }
        for event in recorder.events() {
            output.event(&event);
            if let RecorderEventKind::Failed(fault) = &event
                && recorder.has_written_nothing(fault)
            {
                return Err(Failure::new(Exit::CannotCreate, fault.to_string()));
            }
        }
        output.print_progress(&recorder.status(), &loudness);
        if recorder.is_length_reached() {
            reader.quit();
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
        let (line_read, lines) = mpsc::channel(1);
        if !stdin_is_taken && io::stdin().is_terminal() {
            // The thread ends with the process, because a blocked terminal read cannot be woken.
            drop(std::thread::spawn(move || {
                for line in io::stdin().lock().lines() {
                    if line.is_err() || line_read.blocking_send(()).is_err() {
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

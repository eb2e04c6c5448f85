//! The recorder of the command line, fed by the reader thread.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_engine::recorder::{
    ClockZone, CommandTime, DEFAULT_CAPACITY, DEFAULT_PRE_ROLL, PauseMode, RecordTap,
    RecorderCommand, RecordingState, Rotation, TapPoint, record_tap,
};
use aulos_files::record::format::{FILE_FORMATS, FileFormat, FileFormatInfo, FormatSettings};
use aulos_files::record::{
    FileNamePattern, RecorderEvent, RecorderEventKind, RecorderFault, RecorderHandle,
    RecorderService, RecorderStatus, RecordingConfig,
};
use aulos_io::SystemClock;
use aulos_rt::channel::Receiver;
use aulos_server::exit::{Exit, Failure};

use super::args::RecordArgs;
use super::output::RecordOutput;
use super::programme_clock::ProgrammeClock;
use crate::cli::signals::Signals;
use crate::cli::source::source_reader::{BlockSink, SinkInput};

/// A recorder for one source.
pub(super) struct FileRecorder {
    shared: Arc<SharedRecorder>,
    service: RecorderService,
    events: std::cell::RefCell<Receiver<RecorderEvent>>,
    pre_roll: Span,
}

/// State shared with the reader thread.
struct SharedRecorder {
    recorder: RecorderHandle,
    /// The requested length has been recorded.
    length_reached: AtomicBool,
    /// The reader no longer waits for room.
    stopping: AtomicBool,
}

/// The recorder's configuration from the arguments.
pub(super) fn recorder_config(args: &RecordArgs) -> Result<RecordingConfig, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let (folder, file) = split(&args.out);
    let named = Path::new(&file).extension().and_then(|ending| ending.to_str());
    let format = format(args, named)?;
    let has_codes = file.contains(['%', '{']);
    if !has_codes && folder.join(&file).exists() {
        let message = format!(
            "{}: the file already exists, and a recording never overwrites a file\n    hint: use \
             another name, or one with the time, as in take-%H%M%S.flac",
            args.out.display()
        );
        return Err(Failure::new(Exit::CannotCreate, message));
    }
    let ending = format!(".{}", format.extension());
    let mut stem = file.strip_suffix(&ending).unwrap_or(&file).to_owned();
    if !has_codes && (args.rotate.is_some() || args.rotate_size.is_some()) {
        stem += "-{index}";
    }
    let zone = if args.local_time { ClockZone::Local } else { ClockZone::Utc };
    let mut settings =
        RecordingConfig::new("record", folder, format).map_err(|why| usage(why.to_string()))?;
    settings.pattern = FileNamePattern::new(&stem, zone)
        .map_err(|why| usage(format!("{}: {why}", args.out.display())))?;
    settings.recorder.rotation = rotation(args, zone)?;
    settings.recorder.pre_roll = args.pre_roll.unwrap_or(DEFAULT_PRE_ROLL);
    settings.recorder.interruptions =
        if args.fill { PauseMode::Silence } else { PauseMode::Closed };
    settings.keep_sidecar = args.sidecar;
    Ok(settings)
}

/// Splits the path into a fixed folder and a file name pattern.
fn split(out: &Path) -> (PathBuf, String) {
    let mut folder = PathBuf::new();
    let parts: Vec<Component<'_>> = out.components().collect();
    let has_codes = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(['%', '{']);
    let last = parts.len().saturating_sub(1);
    let first = parts.iter().position(has_codes).unwrap_or(last).min(last);
    folder.extend(&parts[..first]);
    if folder.as_os_str().is_empty() {
        folder.push(".");
    }
    let rest: PathBuf = parts[first..].iter().collect();
    (folder, rest.to_string_lossy().into_owned())
}

fn format(args: &RecordArgs, ending: Option<&str>) -> Result<FileFormat, Failure> {
    let name = args.format.as_deref().or(ending).map(str::to_ascii_lowercase).unwrap_or_default();
    let Some(row) = FileFormatInfo::of_name(&name) else {
        let names = FILE_FORMATS.each_ref().map(|row| format!(".{}", row.name)).join(" or ");
        let hint = format!("use the extension {names}, or --format");
        let message = format!("{}: unknown file format\n    hint: {hint}", args.out.display());
        return Err(Failure::new(Exit::Usage, message));
    };
    let (bits, kbps) = (args.bits, args.kbps);
    let settings = FormatSettings { bits, usual_bits: DEFAULT_BITS, kbps, codecs: &[] };
    row.with(settings).map_err(|_| {
        let (option, value, hint) = match (bits, kbps) {
            (None, Some(kbps)) => {
                ("--kbps", kbps, "32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256 or 320")
            }
            _ => {
                let hint = "16, 24 or 32 for wav, 16 or 24 for flac; opus, mp3 and m4a have --kbps \
                            instead";
                ("--bits", bits.unwrap_or(DEFAULT_BITS), hint)
            }
        };
        let message = format!("{option} {value} is not possible for {name}\n    hint: {hint}");
        Failure::new(Exit::Usage, message)
    })
}

fn rotation(args: &RecordArgs, zone: ClockZone) -> Result<Rotation, Failure> {
    aulos_config::rotation_for(args.rotate, args.align, args.rotate_size, zone).ok_or_else(|| {
        let message =
            "--rotate with --align must be at least 1min and divide a day evenly, as 15min or 1h";
        Failure::new(Exit::Usage, message)
    })
}

impl FileRecorder {
    /// Makes the recorder, and the sink for blocks. With `patient` the reader waits for the disk.
    pub(super) fn new(
        settings: RecordingConfig,
        length: Option<Span>,
        patient: bool,
    ) -> Result<(Self, BlockSink), Failure> {
        let cannot = |error: std::io::Error| Failure::new(Exit::Internal, error.to_string());
        let (mut service, events) = RecorderService::start().map_err(cannot)?;
        let pre_roll = settings.recorder.pre_roll;
        let fills = settings.recorder.interruptions == PauseMode::Silence;
        let (shape, room) = ((SampleRate::HZ_48000, ChannelLayout::STEREO), DEFAULT_CAPACITY);
        let (mut tap, tap_reader) = record_tap(TapPoint::Input(0), shape.0, shape.1, room);
        let handle = service
            .add(settings, Vec::new(), tap_reader)
            .map_err(|error| Failure::new(Exit::CannotCreate, error.to_string()))?;
        let (length_reached, stopping) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(SharedRecorder { recorder: handle, length_reached, stopping });
        let mut feed = RecordSink {
            shape,
            remaining: length,
            fills,
            waits_for_disk: patient,
            programme: ProgrammeClock::default(),
            shared: Arc::clone(&shared),
        };
        let sink: BlockSink = Box::new(move |input| {
            let now = SystemClock::now();
            match input {
                SinkInput::Block { block, resumes } => {
                    feed.push_block(&mut tap, now, block, resumes);
                }
                SinkInput::Interrupted => feed.fill_to_end(&mut tap, now),
            }
            Ok(())
        });
        Ok((Self { shared, service, events: events.into(), pre_roll }, sink))
    }

    pub(super) fn send_command(
        &self,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, Failure> {
        let refused =
            |why: aulos_engine::recorder::CommandError| Failure::new(Exit::Usage, why.to_string());
        self.shared.recorder.command(command, when).map_err(refused)
    }

    pub(super) fn events(&self) -> Vec<RecorderEventKind> {
        let mut events = self.events.borrow_mut();
        std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.kind).collect()
    }

    pub(super) fn status(&self) -> RecorderStatus {
        self.shared.recorder.status()
    }

    pub(super) fn state(&self) -> RecordingState {
        self.status().state
    }

    pub(super) const fn pre_roll(&self) -> Span {
        self.pre_roll
    }

    /// Whether the requested length has been recorded.
    pub(super) fn is_length_reached(&self) -> bool {
        self.shared.length_reached.load(Ordering::Relaxed)
    }

    /// Whether nothing has ever been written: the path may be wrong, and retrying would hide that.
    pub(super) fn has_written_nothing(&self, _trouble: &RecorderFault) -> bool {
        let status = self.status();
        status.segments == 0 && status.bytes == 0
    }

    /// Lets the reader thread end, which may wait for a disk that takes nothing.
    pub(super) fn stop_waiting(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    /// Writes everything, and reports every file. Gives up at a signal, and on a disk that refuses
    /// what is left.
    pub(super) async fn finish(
        mut self,
        output: &mut RecordOutput,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let begin = SystemClock::now();
        self.stop_waiting();
        self.shared.recorder.close();
        let mut fault = self.status().fault;
        let mut notice_due = Some(begin + NOTICE_DELAY);
        let mut limit = FINISH_TIMEOUT;
        let is_done = loop {
            let is_done = self.shared.recorder.is_done();
            for event in self.events() {
                match &event {
                    RecorderEventKind::Failed(new) => fault = Some(new.clone()),
                    RecorderEventKind::Recovered => fault = None,
                    _ => {}
                }
                output.event(&event);
            }
            if fault.is_some() {
                limit = limit.min(FAULT_TIMEOUT);
            }
            let now = SystemClock::now();
            if is_done || now - begin > limit {
                break is_done;
            }
            if notice_due.take_if(|due| now >= *due).is_some() {
                output.print_message("waiting for the disk; a signal ends the wait");
            }
            tokio::select! {
                // A disk that works ends the recording within this time.
                () = signals.wait() => limit = limit.min(now - begin + SIGNAL_TIMEOUT),
                () = tokio::time::sleep(ROOM_POLL_INTERVAL) => {}
            }
        };
        drop(self.service.stop(if is_done { FINISH_TIMEOUT } else { Span::ZERO }));
        if is_done {
            return Ok(());
        }
        let reason =
            fault.map_or_else(|| "the disk does not respond".to_owned(), |fault| fault.to_string());
        let message = format!(
            "{reason}\nThe end of the recording is not written. What was written before is in the file \
             that ends in .part, and the next recording to the same path completes it."
        );
        Err(Failure::new(Exit::Io, message))
    }
}

/// The reader thread's end of the recorder.
struct RecordSink {
    shape: (SampleRate, ChannelLayout),
    remaining: Option<Span>,
    /// Silence fills interruptions of the source.
    fills: bool,
    waits_for_disk: bool,
    programme: ProgrammeClock,
    shared: Arc<SharedRecorder>,
}

impl RecordSink {
    /// Records a block; `resumes` if the source was interrupted before it.
    fn push_block(&mut self, tap: &mut RecordTap, now: Instant, block: &Block, resumes: bool) {
        let length = block.rate().span(block.frames());
        let mut missing = self.programme.receive(now, length, resumes);
        let shape = (block.rate(), block.layout());
        if std::mem::replace(&mut self.shape, shape) != shape {
            let (new, tap_reader) =
                record_tap(TapPoint::Input(0), shape.0, shape.1, DEFAULT_CAPACITY);
            self.shared.recorder.replace_tap(tap_reader);
            *tap = new;
        }
        if self.fills {
            missing = self.count(missing);
        }
        let frames = match self.remaining {
            None => block.frames(),
            Some(left) => block.frames().min(shape.0.frames(left)),
        };
        let samples = &block.samples()[..frames.as_usize() * shape.1.channels()];
        while self.waits_for_disk
            && !tap.has_room(samples.len())
            && !self.shared.stopping.load(Ordering::Relaxed)
        {
            std::thread::sleep(ROOM_POLL_INTERVAL);
        }
        tap.push_samples(samples, shape.0, now, shape.0.frames(missing));
        self.count(shape.0.span(frames));
    }

    /// While the source is interrupted: ends a recording that is filled with silence in time.
    fn fill_to_end(&mut self, tap: &mut RecordTap, now: Instant) {
        let missing = self.programme.missing_at(now);
        if self.fills && self.remaining.is_some_and(|left| left <= missing) {
            let missing = self.count(missing);
            tap.push_samples(&[], self.shape.0, now, self.shape.0.frames(missing));
        }
    }

    /// Counts what is recorded, and returns how much of it belongs to the requested length.
    fn count(&mut self, recorded: Span) -> Span {
        let Some(left) = &mut self.remaining else { return recorded };
        let counted = recorded.min(*left);
        *left -= counted;
        if self.shape.0.frames(*left) == Frames::ZERO {
            self.shared.length_reached.store(true, Ordering::Relaxed);
        }
        counted
    }
}

/// Default bits per sample.
const DEFAULT_BITS: u32 = 16;

/// Time limit for the last writes, in case the disk hangs: a disk that others write much to may
/// need tens of seconds for one sync.
const FINISH_TIMEOUT: Span = Span::from_secs(60);

/// A wait for the disk is not reported before.
const NOTICE_DELAY: Span = Span::from_secs(2);

/// The same for a disk that refuses to write: long enough for another attempt.
const FAULT_TIMEOUT: Span = Span::from_secs(1);

/// The same after a signal that asks not to wait.
const SIGNAL_TIMEOUT: Span = Span::from_millis(500);

/// Interval of checks for room, and for the end.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(5);

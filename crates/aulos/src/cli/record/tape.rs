//! One recorder for one source, which the reader's thread fills.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aulos_config::NotMade;
use aulos_core::{Block, ChannelLayout, Frames, MediaTime, SampleRate, Span};
use aulos_engine::recorder::{
    Command, DEFAULT_PRE_ROLL, DEFAULT_ROOM, Pickup, Rotation, Side, State, When, Zone, pickup,
};
use aulos_io::SystemClock;
use aulos_io::record::format::FileFormat;
use aulos_io::record::{Deck, Event, Pattern, Recorders, Status, Trouble, What, Wish};
use aulos_rt::channel::Receiver;
use aulos_server::exit::{Exit, Failure};

use super::RecordArgs;
use super::output::Output;
use crate::cli::reader::Ear;

/// The recorder.
pub(super) struct Tape {
    shared: Arc<Shared>,
    recorders: Recorders,
    events: std::cell::RefCell<Receiver<Event>>,
    pre_roll: Span,
}

/// What the reader's thread has of it.
struct Shared {
    deck: Deck,
    /// As much has been heard as was asked for.
    full: AtomicBool,
    /// Nobody waits for room any more.
    over: AtomicBool,
}

/// What the arguments ask for.
pub(super) fn wish(args: &RecordArgs) -> Result<Wish, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let (folder, file) = split(&args.out);
    let named = Path::new(&file).extension().and_then(|ending| ending.to_str());
    let format = format(args, named)?;
    let has_codes = file.contains(['%', '{']);
    if !has_codes && folder.join(&file).exists() {
        let message = format!(
            "{} is there already, and a recording overwrites nothing\n    hint: give another name, \
             or one with the time in it, as in take-%H%M%S.flac",
            args.out.display()
        );
        return Err(Failure::new(Exit::CannotCreate, message));
    }
    let ending = format!(".{}", format.extension());
    let mut stem = file.strip_suffix(&ending).unwrap_or(&file).to_owned();
    if !has_codes && (args.rotate.is_some() || args.rotate_size.is_some()) {
        stem += "-{index}";
    }
    let zone = if args.local_time { Zone::Local } else { Zone::Utc };
    let mut wish = Wish::new("record", folder, format).map_err(|why| usage(why.to_string()))?;
    wish.pattern =
        Pattern::new(&stem, zone).map_err(|why| usage(format!("{}: {why}", args.out.display())))?;
    wish.config.rotation = rotation(args, zone)?;
    wish.config.pre_roll = args.pre_roll.unwrap_or(DEFAULT_PRE_ROLL);
    wish.sidecar = args.sidecar;
    Ok(wish)
}

/// The folder, as far as its name is the same for every file, and what comes behind it.
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
    aulos_config::made(&name, args.bits, USUAL_BITS, args.kbps).map_err(|why| {
        let message = match why {
            NotMade::Bits(bits, _) => {
                let hint = "wav has 16, 24 or 32, flac 16 or 24, and opus --kbps instead";
                format!("{name} does not have --bits {bits}\n    hint: {hint}")
            }
            NotMade::Name => {
                let hint = "end its name with .wav, .flac or .opus, or say --format";
                format!("{} does not say what it is\n    hint: {hint}", args.out.display())
            }
        };
        Failure::new(Exit::Usage, message)
    })
}

fn rotation(args: &RecordArgs, zone: Zone) -> Result<Rotation, Failure> {
    aulos_config::rotated(args.rotate, args.align, args.rotate_size, zone).ok_or_else(|| {
        let message = "--rotate with --align is a minute or more, a whole number of times a day";
        Failure::new(Exit::Usage, message)
    })
}

impl Tape {
    /// Makes the recorder, and what is to hear every block. `patient` waits for the disk.
    pub(super) fn new(
        wish: Wish,
        length: Option<Span>,
        patient: bool,
    ) -> Result<(Self, Ear), Failure> {
        let cannot = |error: std::io::Error| Failure::new(Exit::Internal, error.to_string());
        let (mut recorders, events) = Recorders::start().map_err(cannot)?;
        let pre_roll = wish.config.pre_roll;
        let (shape, room) = ((SampleRate::STUDIO, ChannelLayout::STEREO), DEFAULT_ROOM);
        let (mut pickup, spool) = pickup(Side::Input(0), shape.0, shape.1, room);
        let deck = recorders
            .add(wish, spool)
            .map_err(|error| Failure::new(Exit::CannotCreate, error.to_string()))?;
        let (full, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { deck, full, over });
        let mut heard = Heard { shape, left: length, patient, shared: Arc::clone(&shared) };
        let ear: Ear = Box::new(move |block| {
            heard.hear(&mut pickup, block);
            Ok(())
        });
        Ok((Self { shared, recorders, events: events.into(), pre_roll }, ear))
    }

    pub(super) fn tell(&self, command: Command, when: When) -> Result<Option<MediaTime>, Failure> {
        let refused =
            |why: aulos_engine::recorder::Refused| Failure::new(Exit::Usage, why.to_string());
        self.shared.deck.tell(command, when).map_err(refused)
    }

    pub(super) fn events(&self) -> Vec<What> {
        let mut events = self.events.borrow_mut();
        std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.what).collect()
    }

    pub(super) fn status(&self) -> Status {
        self.shared.deck.status()
    }

    pub(super) fn state(&self) -> State {
        self.status().state
    }

    pub(super) const fn pre_roll(&self) -> Span {
        self.pre_roll
    }

    /// Whether as much has been heard as was asked for.
    pub(super) fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Relaxed)
    }

    /// Whether there never was a file: nobody would know of a mistake in its name for hours.
    pub(super) fn is_hopeless(&self, _trouble: &Trouble) -> bool {
        let status = self.status();
        status.segments == 0 && status.bytes == 0
    }

    /// Writes all there is, and tells of every file.
    pub(super) fn finish(self, output: &Output) -> Result<(), Failure> {
        self.shared.over.store(true, Ordering::Relaxed);
        let Self { shared, mut recorders, events, .. } = self;
        shared.deck.close();
        let unwritten = recorders.stop(PATIENCE);
        let mut events = events.into_inner();
        while let Ok(event) = events.try_recv() {
            output.event(&event.what)?;
        }
        output.end();
        if unwritten.is_empty() {
            return Ok(());
        }
        let message = "the disk does not answer: not all of it could be written";
        Err(Failure::new(Exit::Io, message))
    }
}

/// What the reader's thread knows.
struct Heard {
    shape: (SampleRate, ChannelLayout),
    left: Option<Span>,
    patient: bool,
    shared: Arc<Shared>,
}

impl Heard {
    fn hear(&mut self, pickup: &mut Pickup, block: &Block) {
        let shape = (block.rate(), block.layout());
        if std::mem::replace(&mut self.shape, shape) != shape {
            let (new, spool) = self::pickup(Side::Input(0), shape.0, shape.1, DEFAULT_ROOM);
            self.shared.deck.replace(spool);
            *pickup = new;
        }
        let frames = match self.left {
            None => block.frames(),
            Some(left) => block.frames().min(shape.0.frames(left)),
        };
        let samples = &block.samples()[..frames.as_usize() * shape.1.channels()];
        while self.patient
            && !pickup.has_room(samples.len())
            && !self.shared.over.load(Ordering::Relaxed)
        {
            std::thread::sleep(A_MOMENT);
        }
        pickup.take_in(samples, shape.0, SystemClock::now(), None);
        if let Some(left) = &mut self.left {
            *left -= shape.0.span(frames);
            if shape.0.frames(*left) == Frames::ZERO {
                self.shared.full.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Of a sample, where nothing else is said.
const USUAL_BITS: u32 = 16;

/// For a disk that does not answer, at the end.
const PATIENCE: Span = Span::from_secs(10);

/// Between two looks whether there is room.
const A_MOMENT: Duration = Duration::from_millis(5);

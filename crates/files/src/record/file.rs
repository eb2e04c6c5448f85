//! One segment while it is written: sound becomes bytes, and bytes go to the disk in pieces that
//! wait here when it does not take them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use aulos_core::{ChannelLayout, Db, Frames, Instant, Lufs, MediaTime, Span};
use aulos_dsp::meter::{self, Meter, MeterHistory, MeterMode};
use aulos_engine::recorder::{SegmentStart, UnixTime};
use aulos_io::disk::AppendFile;
use aulos_proto::Patch;

use super::format::{self, About, FileFormat, Framer};
use super::marker::Turn;
use super::note::Note;
use super::report::{Doing, Measured, Trouble};
use super::store::Store;

/// A file in the making.
pub(super) struct Writing {
    pub(super) note: Note,
    /// What it will be called, below the folder; `.part` is behind it meanwhile.
    pub(super) name: String,
    pub(super) medium: Box<dyn AppendFile>,
    pub(super) about: About,
    framer: Option<Box<dyn Framer>>,
    meter: Option<Meter>,
    /// What is to be appended, and how much of it has been.
    pending: Vec<u8>,
    sent: usize,
    /// What comes after that.
    patches: Vec<Patch>,
    /// Bytes in the file.
    written: u64,
    pub(super) frames: Frames,
    /// Something was taken since the last flush.
    dirty: bool,
    pub(super) flush_due: Instant,
    /// Something was written since it was last made to last.
    pub(super) unsynced: bool,
    /// Somebody has removed it.
    pub(super) gone: bool,
    /// Who writes its sidecar.
    pub(super) turn: Arc<Mutex<Turn>>,
    /// The frame behind the last one that was taken or left out.
    reached: MediaTime,
    /// Where the frames of the station that follow each other begin, and where in the file.
    joints: VecDeque<(MediaTime, Frames)>,
}

/// A file that is there already for a segment that comes.
pub(super) struct Ahead {
    pub(super) opening: SegmentStart,
    pub(super) name: String,
    pub(super) medium: Box<dyn AppendFile>,
}

impl Writing {
    pub(super) fn begin(
        ahead: Ahead,
        opening: SegmentStart,
        format: FileFormat,
        about: About,
        recorder: &str,
        layout: ChannelLayout,
    ) -> Result<Self, format::Refused> {
        let mut pending = Vec::with_capacity(2 * BATCH);
        let framer = Some(format::open(format, &about, &mut pending)?);
        let note = Note {
            recorder: recorder.to_owned(),
            opening,
            layout,
            gaps: Vec::new(),
            markers: Vec::new(),
            lost: Frames::ZERO,
            loudness: Measured::default(),
        };
        let Ahead { name, medium, .. } = ahead;
        let mode =
            MeterMode::INTEGRATED | MeterMode::RANGE | MeterMode::TRUE_PEAK | MeterMode::MAXIMA;
        let config = meter::MeterConfig {
            history: MeterHistory::Histogram,
            ..meter::MeterConfig::new(opening.rate, layout, mode)
        };
        Ok(Self {
            note,
            name,
            medium,
            about,
            framer,
            meter: Meter::new(config).ok(),
            pending,
            sent: 0,
            patches: Vec::new(),
            written: 0,
            frames: Frames::ZERO,
            dirty: true,
            flush_due: Instant::ZERO,
            unsynced: false,
            gone: false,
            turn: Arc::default(),
            reached: opening.at,
            joints: VecDeque::from([(opening.at, Frames::ZERO)]),
        })
    }

    /// All frames before `frame` are in the file, or left out.
    pub(super) const fn reach(&mut self, frame: MediaTime) {
        self.reached = frame;
    }

    /// The frames before `frame` are left out.
    pub(super) fn skip_to(&mut self, frame: MediaTime) {
        self.reached = frame;
        if self.joints.len() >= MAX_JOINTS {
            self.joints.pop_front();
        }
        self.joints.push_back((frame, self.frames));
    }

    /// The frame behind the last one that was taken or left out.
    pub(super) const fn reached(&self) -> MediaTime {
        self.reached
    }

    /// Where a frame of the station is in the file; one that is left out is where the sound goes on.
    /// None: it is too long ago.
    pub(super) fn position(&self, frame: MediaTime) -> Option<Frames> {
        let joint = self.joints.iter().rposition(|(from, _)| *from <= frame)?;
        let (from, position) = *self.joints.get(joint)?;
        let end = self.joints.get(joint + 1).map_or(self.frames, |(_, next)| *next);
        let last = Frames(self.frames.0.saturating_sub(1));
        Some((position + frame.since(from)).min(end).min(last))
    }

    /// Takes whole frames; false when the codec failed, and they are lost.
    pub(super) fn take(&mut self, samples: &[f32]) -> bool {
        self.frames += Frames::from(samples.len() / self.note.layout.channels());
        if let Some(meter) = &mut self.meter {
            meter.add(samples);
        }
        self.dirty = true;
        self.framer.as_mut().is_some_and(|framer| framer.write(samples, &mut self.pending).is_ok())
    }

    /// Whether there is enough for a write of its own.
    pub(super) const fn is_full(&self) -> bool {
        self.pending.len() - self.sent >= BATCH
    }

    /// Bytes of the file, with those that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.written + (self.pending.len() - self.sent) as u64
    }

    /// Makes readable what was taken, once it has waited for long enough.
    pub(super) fn flush(&mut self, now: Instant, every: Span) -> io::Result<()> {
        if now < self.flush_due {
            return Ok(());
        }
        if self.dirty
            && self.patches.is_empty()
            && let Some(framer) = &mut self.framer
        {
            framer.flush(&mut self.pending, &mut self.patches);
            self.dirty = false;
        }
        self.put()?;
        self.flush_due = now + every;
        Ok(())
    }

    /// Writes what waits; what is not taken stays.
    pub(super) fn put(&mut self) -> io::Result<()> {
        while self.sent < self.pending.len() {
            match self.medium.append(&[IoSlice::new(&self.pending[self.sent..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    self.sent += taken;
                    self.written += taken as u64;
                    self.unsynced = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.sent = 0;
        while let Some(patch) = self.patches.first() {
            self.medium.patch(patch.at(), patch.bytes())?;
            self.unsynced = true;
            self.patches.remove(0);
        }
        Ok(())
    }

    /// Ends the file, and writes all of it. Called again after an error, it goes on.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Some(mut framer) = self.framer.take() {
            if let Some(meter) = self.meter.take() {
                self.note.loudness = measured(&meter);
                framer.set_loudness(&self.note.loudness);
            }
            // What the codec cannot end, a repair does.
            let _ = framer.finish(&mut self.pending, &mut self.patches);
        }
        self.put()
    }

    pub(super) fn trouble(&self, doing: Doing, store: &dyn Store, error: io::Error) -> Trouble {
        Trouble { doing, path: store.path().join(part(&self.name)), error: Arc::new(error) }
    }
}

/// The head of a file that begins with `opening`, exactly behind the last one where that is told.
pub(super) fn about(
    opening: &SegmentStart,
    layout: ChannelLayout,
    recorder: &str,
    last: Option<&(About, SegmentStart)>,
) -> About {
    match last {
        Some((about, before)) if before.rate == opening.rate && before.at <= opening.at => {
            about.after(opening.at.since(before.at))
        }
        _ => {
            let nanos = u64::try_from(opening.utc.as_nanos()).unwrap_or(0);
            let begun = UNIX_EPOCH + Duration::from_nanos(nanos);
            About::new(opening.rate, layout, recorder, begun)
        }
    }
}

/// The name of a file that is not complete.
pub(super) fn part(name: &str) -> String {
    format!("{name}{PART}")
}

/// When a segment of so many frames ends.
pub(super) fn end_of(opening: &SegmentStart, frames: Frames) -> UnixTime {
    let length = opening.rate.span(frames).as_nanos();
    UnixTime::from_nanos(opening.utc.as_nanos().saturating_add(length))
}

fn measured(meter: &Meter) -> Measured {
    let measurement = meter.measurement();
    let finite = |value: f64| value.is_finite().then_some(value);
    let lufs = |value: Lufs| finite(value.get()).map(Lufs::new);
    let peak = measurement.true_peak();
    Measured {
        integrated: lufs(measurement.integrated()),
        range: finite(measurement.range().get()).map(Db::new),
        true_peak: (peak > 0.0).then(|| Db::from_amplitude(peak)),
        max_momentary: lufs(measurement.max_momentary()),
        max_short_term: lufs(measurement.max_short_term()),
    }
}

/// What stands behind the name of a file that is not complete.
pub(super) const PART: &str = ".part";

/// Pauses of one file in which frames were left out; a marker before the oldest of more has no position.
const MAX_JOINTS: usize = 1_000;

/// What is worth a write of its own.
const BATCH: usize = 64 << 10;

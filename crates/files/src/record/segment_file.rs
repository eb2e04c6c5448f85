//! One segment while it is written: samples become bytes, and bytes go to the disk in batches,
//! which wait here while the disk does not take them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use aulos_core::{ChannelLayout, Db, Frames, Instant, Lufs, MediaTime, Span};
use aulos_dsp::meter::{self, Meter, MeterHistory, MeterMode};
use aulos_engine::recorder::SegmentStart;
use aulos_io::disk::AppendFile;
use aulos_proto::Patch;

use super::format::{self, FileEncoder, FileFormat, FileMetadata};
use super::report::{FileOperation, RecorderFault, SegmentLoudness};
use super::sidecar::{Sidecar, SidecarState};
use super::store::RecordingStore;

/// The file of a segment that is being written.
pub(super) struct SegmentFile {
    pub(super) sidecar: Sidecar,
    /// Its final name, below the folder; until then with the suffix `.part`.
    pub(super) name: String,
    pub(super) output: Box<dyn AppendFile>,
    pub(super) metadata: FileMetadata,
    encoder: Option<Box<dyn FileEncoder>>,
    meter: Option<Meter>,
    /// Bytes to append, and how many of them are written.
    pending: Vec<u8>,
    pending_written: usize,
    /// Patches that follow these bytes.
    patches: Vec<Patch>,
    /// Bytes in the file.
    written: u64,
    pub(super) frames: Frames,
    /// Samples were encoded since the last flush.
    has_unflushed: bool,
    pub(super) flush_due: Instant,
    /// Bytes were written since the last sync.
    pub(super) has_unsynced: bool,
    /// The file was removed by another program.
    pub(super) is_removed: bool,
    /// State of its sidecar, shared by the threads that write it.
    pub(super) sidecar_state: Arc<Mutex<SidecarState>>,
    /// End of the frames that are written or left out.
    end_frame: MediaTime,
    /// Start of each continuous run of frames, in the station and in the file.
    runs: VecDeque<(MediaTime, Frames)>,
}

/// A file that was created ahead of its segment.
pub(super) struct PreparedFile {
    pub(super) start: SegmentStart,
    pub(super) name: String,
    pub(super) output: Box<dyn AppendFile>,
}

impl SegmentFile {
    pub(super) fn new(
        prepared: PreparedFile,
        start: SegmentStart,
        format: FileFormat,
        metadata: FileMetadata,
        recorder: &str,
        layout: ChannelLayout,
    ) -> Result<Self, format::UnsupportedFileFormat> {
        let mut pending = Vec::with_capacity(2 * WRITE_BATCH_BYTES);
        let encoder = Some(format::make_file_encoder(format, &metadata, &mut pending)?);
        let sidecar = Sidecar {
            recorder: recorder.to_owned(),
            start,
            layout,
            gaps: Vec::new(),
            markers: Vec::new(),
            clock_changes: Vec::new(),
            lost: Frames::ZERO,
            waited: None,
            loudness: SegmentLoudness::default(),
        };
        let PreparedFile { name, output, .. } = prepared;
        let mode =
            MeterMode::INTEGRATED | MeterMode::RANGE | MeterMode::TRUE_PEAK | MeterMode::MAXIMA;
        let config = meter::MeterConfig {
            history: MeterHistory::Histogram,
            ..meter::MeterConfig::new(start.rate, layout, mode)
        };
        Ok(Self {
            sidecar,
            name,
            output,
            metadata,
            encoder,
            meter: Meter::new(config).ok(),
            pending,
            pending_written: 0,
            patches: Vec::new(),
            written: 0,
            frames: Frames::ZERO,
            has_unflushed: true,
            flush_due: Instant::ZERO,
            has_unsynced: false,
            is_removed: false,
            sidecar_state: Arc::default(),
            end_frame: start.at,
            runs: VecDeque::from([(start.at, Frames::ZERO)]),
        })
    }

    /// All frames before `frame` are in the file, or left out.
    pub(super) const fn set_end_frame(&mut self, frame: MediaTime) {
        self.end_frame = frame;
    }

    /// Leaves out the frames before `frame`.
    pub(super) fn skip_to(&mut self, frame: MediaTime) {
        self.end_frame = frame;
        if self.runs.len() >= MAX_RUNS {
            self.runs.pop_front();
        }
        self.runs.push_back((frame, self.frames));
    }

    /// End of the frames that are written or left out.
    pub(super) const fn end_frame(&self) -> MediaTime {
        self.end_frame
    }

    /// Position of a frame of the station in the file; for a frame that was left out, the position
    /// at which the sound continues. `None` if it is too long ago.
    pub(super) fn position(&self, frame: MediaTime) -> Option<Frames> {
        let run = self.runs.iter().rposition(|(from, _)| *from <= frame)?;
        let (from, position) = *self.runs.get(run)?;
        let end = self.runs.get(run + 1).map_or(self.frames, |(_, next)| *next);
        let last = Frames(self.frames.0.saturating_sub(1));
        Some((position + frame.since(from)).min(end).min(last))
    }

    /// Encodes whole frames; `false` when the codec failed and they are lost.
    pub(super) fn write_samples(&mut self, samples: &[f32]) -> bool {
        self.frames += Frames::from(samples.len() / self.sidecar.layout.channels());
        if let Some(meter) = &mut self.meter {
            meter.add(samples);
        }
        self.has_unflushed = true;
        self.encoder
            .as_mut()
            .is_some_and(|encoder| encoder.write(samples, &mut self.pending).is_ok())
    }

    /// Whether enough bytes wait for a write.
    pub(super) const fn has_full_batch(&self) -> bool {
        self.pending.len() - self.pending_written >= WRITE_BATCH_BYTES
    }

    /// Bytes of the file, including those that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.written + (self.pending.len() - self.pending_written) as u64
    }

    /// Makes the encoded sound readable when the flush is due.
    pub(super) fn flush(&mut self, now: Instant, every: Span) -> io::Result<()> {
        if now < self.flush_due {
            return Ok(());
        }
        if self.has_unflushed
            && self.patches.is_empty()
            && let Some(encoder) = &mut self.encoder
        {
            encoder.flush(&mut self.pending, &mut self.patches);
            self.has_unflushed = false;
        }
        self.write_pending()?;
        self.flush_due = now + every;
        Ok(())
    }

    /// Writes the waiting bytes; the rest stays after an error.
    pub(super) fn write_pending(&mut self) -> io::Result<()> {
        while self.pending_written < self.pending.len() {
            match self.output.append(&[IoSlice::new(&self.pending[self.pending_written..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    self.pending_written += taken;
                    self.written += taken as u64;
                    self.has_unsynced = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.pending_written = 0;
        while let Some(patch) = self.patches.first() {
            self.output.patch(patch.at(), patch.bytes())?;
            self.has_unsynced = true;
            self.patches.remove(0);
        }
        Ok(())
    }

    /// Completes the file and writes all of it. After an error, another call continues.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Some(mut encoder) = self.encoder.take() {
            if let Some(meter) = self.meter.take() {
                self.sidecar.loudness = segment_loudness(&meter);
                encoder.set_loudness(&self.sidecar.loudness);
            }
            // If the codec fails here, a repair completes the file.
            let _ = encoder.finish(&mut self.pending, &mut self.patches);
        }
        self.write_pending()
    }

    pub(super) fn fault(
        &self,
        operation: FileOperation,
        store: &dyn RecordingStore,
        error: io::Error,
    ) -> RecorderFault {
        RecorderFault {
            operation,
            path: store.path().join(part_name(&self.name)),
            error: Arc::new(error),
        }
    }
}

/// Metadata of a file that begins with `start`, which is exact if the previous segment is known.
pub(super) fn segment_metadata(
    start: &SegmentStart,
    layout: ChannelLayout,
    recorder: &str,
    last: Option<&(FileMetadata, SegmentStart)>,
) -> FileMetadata {
    match last {
        Some((metadata, before)) if before.rate == start.rate && before.at <= start.at => {
            metadata.after(start.at.since(before.at))
        }
        _ => {
            let nanos = u64::try_from(start.utc.as_nanos()).unwrap_or(0);
            let start_time = UNIX_EPOCH + Duration::from_nanos(nanos);
            FileMetadata::new(start.rate, layout, recorder, start_time)
        }
    }
}

/// The name of an incomplete file.
pub(super) fn part_name(name: &str) -> String {
    format!("{name}{PART_SUFFIX}")
}

/// The `number`th name for the same time.
pub(super) fn numbered_name(stem: &str, number: u32, extension: &str) -> String {
    match number {
        1 => format!("{stem}.{extension}"),
        _ => format!("{stem}-{number}.{extension}"),
    }
}

fn segment_loudness(meter: &Meter) -> SegmentLoudness {
    let measurement = meter.measurement();
    let finite = |value: f64| value.is_finite().then_some(value);
    let lufs = |value: Lufs| finite(value.get()).map(Lufs::new);
    let peak = measurement.true_peak();
    SegmentLoudness {
        integrated: lufs(measurement.integrated()),
        range: finite(measurement.range().get()).map(Db::new),
        true_peak: (peak > 0.0).then(|| Db::from_amplitude(peak)),
        max_momentary: lufs(measurement.max_momentary()),
        max_short_term: lufs(measurement.max_short_term()),
    }
}

/// Suffix of incomplete files.
pub(super) const PART_SUFFIX: &str = ".part";

/// Maximum number of names for the same time.
pub(super) const MAX_NAME_NUMBER: u32 = 9_999;

/// Maximum number of runs in a file; a marker before the oldest one kept has no position.
const MAX_RUNS: usize = 1_000;

/// Minimum size of a write.
const WRITE_BATCH_BYTES: usize = 64 << 10;

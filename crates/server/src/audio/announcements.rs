//! The announcements and plays of one station: fetching, decoding and gain matching.

use std::collections::VecDeque;

use aulos_config::{SourceConfig, StationSettings};
use aulos_control::backend::{
    Announcement, AnnouncementEvent, AnnouncementOutcome, AnnouncementSource, BackgroundTask,
    ProgrammeEvent,
};
use aulos_core::{ChannelLayout, Db, Instant, Lufs, Span};
use aulos_dsp::normalize::Settings;
use aulos_engine::announce::{
    AnnouncementEnd, AnnouncementQueue, Layer, MAX_LENGTH, MAX_LIMITER_REDUCTION, MAX_QUEUE,
    MAX_STALL, QueueEvent, QueueFull, headroom, matching_gain,
};
use aulos_engine::generate::TestToneSource;
use aulos_engine::loudness::Loudness;
use aulos_engine::source::{Pacing, RingSource, Source, SourceItem};
use aulos_engine::station::StationHandle;
use aulos_files::decode::FileDecodeOptions;
use aulos_files::source::{FileMeter, FileSource, FileState};
use aulos_io::CodecPool;
use aulos_rt::LatestReader;
use aulos_rt::ring::Consumer;

use crate::radio::{ClipClient, ClipHandles, ClipKind, ClipState};

/// What a test tone is computed in at once.
const TONE_BLOCK: Span = Span::from_millis(10);

/// The announcements in a station's queue.
#[derive(Debug, Default)]
pub(super) struct StationAnnouncements {
    sounds: Vec<QueuedSound>,
    /// Events for the control plane, and when each is due.
    events: VecDeque<(Instant, ProgrammeEvent)>,
    /// Announcements whose gain is not known yet.
    pending: Vec<PendingGain>,
}

/// An announcement that has not ended.
#[derive(Debug)]
struct QueuedSound {
    id: u64,
    /// The overlay that plays it, as a number on the station's output bus; `None` is the station.
    overlay: Option<u64>,
    layer: Layer,
    key: Option<String>,
    state: SoundState,
    has_begun: bool,
    is_replaced: bool,
}

/// What became of the sound of an announcement.
#[derive(Debug)]
enum SoundState {
    File(LatestReader<FileState>),
    Clip(ClipState),
    /// It is computed, which cannot fail.
    Generated,
}

/// A sound that is being decoded.
struct OpenedSound {
    source: Box<dyn Source>,
    state: SoundState,
    /// The result of measuring its loudness, if that is wanted.
    loudness: Option<LatestReader<Option<Loudness>>>,
}

/// An announcement whose loudness is being measured.
#[derive(Debug)]
struct PendingGain {
    id: u64,
    overlay: Option<u64>,
    layer: Layer,
    duck: Db,
    gain: Db,
    /// The wanted loudness, and the true peak that it may have.
    target: Lufs,
    ceiling: Db,
    loudness: LatestReader<Option<Loudness>>,
}

impl StationAnnouncements {
    /// Appends an announcement to the queue of the station or of an overlay, and starts decoding
    /// it.
    pub(super) fn add(
        &mut self,
        announcement: &Announcement,
        overlay: Option<u64>,
        station: &StationSettings,
        handle: &mut StationHandle,
        threads: &mut SoundThreads<'_>,
    ) -> Result<(), String> {
        let Announcement { id, layer, ducking, gain, ref key, .. } = *announcement;
        let is_replaced = |one: &QueuedSound| {
            let has_key = key.is_some() && one.key == *key;
            let is_same = one.overlay == overlay && one.layer == layer;
            // A play that has begun ends when the new one is ready.
            !one.has_begun && is_same && (has_key || layer == Layer::Play)
        };
        let replaced = self.sounds.iter().filter(|one| is_replaced(one)).count();
        let queued = queue(handle, overlay, layer)?.ids().count();
        if queued.saturating_sub(replaced) >= MAX_QUEUE {
            return Err(QueueFull.to_string());
        }
        let normalize = station.sound.normalize.as_ref().map(|it| &it.settings);
        let matching = matching(announcement, normalize, overlay.is_some());
        let dual_mono = normalize.is_some_and(|it| it.dual_mono);
        let measured = matching.map(|_| (station.spec.layout, dual_mono));
        let OpenedSound { source, state, loudness } = match announcement.source {
            AnnouncementSource::TestTone(kind, length) => {
                let block = station.spec.rate.frames(TONE_BLOCK);
                OpenedSound::generated(TestToneSource::new(kind, length, station.spec, block))
            }
            _ => threads.open(announcement, measured)?,
        };
        for one in self.sounds.iter_mut().filter(|one| is_replaced(one)) {
            one.is_replaced = true;
            handle.cancel_announcement(one.id);
        }
        let queue = queue(handle, overlay, layer)?;
        queue.add(id, source, ducking).map_err(|full| full.to_string())?;
        match matching.zip(loudness) {
            Some(((target, ceiling), loudness)) => {
                queue.hold(id);
                let duck = layer.duck(ducking.gain);
                let pending =
                    PendingGain { id, overlay, layer, duck, gain, target, ceiling, loudness };
                self.pending.push(pending);
            }
            None => queue.set_gain(id, gain),
        }
        let (key, has_begun) = (key.clone(), false);
        let is_replaced = false;
        self.sounds.push(QueuedSound { id, overlay, layer, key, state, has_begun, is_replaced });
        Ok(())
    }

    /// Whether an overlay has sounds of this layer that have not ended.
    pub(super) fn has_any(&self, overlay: u64, layer: Layer) -> bool {
        self.sounds.iter().any(|one| one.overlay == Some(overlay) && one.layer == layer)
    }

    /// Cancels the sounds of an overlay.
    pub(super) fn cancel_all(&self, overlay: u64, handle: &mut StationHandle) {
        for one in self.sounds.iter().filter(|one| one.overlay == Some(overlay)) {
            handle.cancel_announcement(one.id);
        }
    }

    /// Sets gains that are known by now, and cancels announcements whose sound cannot be played.
    pub(super) fn update(&mut self, handle: &mut StationHandle) {
        self.pending.retain_mut(|one| {
            let Some(loudness) = *one.loudness.read() else { return true };
            let matching = matching_gain(&loudness, one.target, one.ceiling, one.duck);
            if let Ok(queue) = queue(handle, one.overlay, one.layer) {
                queue.set_gain(one.id, Db::new(matching.get() + one.gain.get()));
            }
            false
        });
        for QueuedSound { id, state, .. } in &mut self.sounds {
            if state.is_unplayable() {
                handle.cancel_announcement(*id);
            }
        }
    }

    /// Takes an event of the queue. What is sent now is heard at `heard_at`, and reported then: the
    /// beginning, and the end of an announcement that has begun.
    pub(super) fn handle_event(&mut self, event: QueueEvent, now: Instant, heard_at: Instant) {
        let event = match event {
            QueueEvent::Began(id) => {
                for one in self.sounds.iter_mut().filter(|one| one.id == id) {
                    one.has_begun = true;
                }
                (heard_at, ProgrammeEvent::Announcement(id, AnnouncementEvent::Started))
            }
            QueueEvent::Ended(id, cause) => {
                let has_begun = self.sounds.iter().any(|one| one.id == id && one.has_begun);
                (if has_begun { heard_at } else { now }, ended(id, self.outcome(id, cause)))
            }
        };
        self.events.push_back(event);
    }

    /// The next event that is due. Those of one announcement are in order.
    pub(super) fn poll_event(&mut self, now: Instant) -> Option<ProgrammeEvent> {
        let at = self.events.iter().position(|(due, _)| *due <= now)?;
        self.events.remove(at).map(|(_, event)| event)
    }

    /// Ends every announcement because the station ends.
    pub(super) fn end_all(self) -> impl Iterator<Item = ProgrammeEvent> {
        let left = self.sounds.into_iter();
        let left = left.map(|one| ended(one.id, AnnouncementOutcome::StationGone));
        self.events.into_iter().map(|(_, event)| event).chain(left)
    }

    fn outcome(&mut self, id: u64, cause: AnnouncementEnd) -> AnnouncementOutcome {
        self.pending.retain(|one| one.id != id);
        let at = self.sounds.iter().position(|one| one.id == id);
        let mut sound = at.map(|at| self.sounds.swap_remove(at));
        if sound.as_ref().is_some_and(|one| one.is_replaced) {
            return AnnouncementOutcome::Replaced;
        }
        let has_begun = sound.as_ref().is_some_and(|one| one.has_begun);
        match (sound.as_mut().and_then(|one| one.state.problem()), cause) {
            (Some(problem), _) => AnnouncementOutcome::Failed(problem),
            (None, AnnouncementEnd::Played) => AnnouncementOutcome::Played,
            (None, AnnouncementEnd::Cancelled) => AnnouncementOutcome::Cancelled,
            (None, AnnouncementEnd::Replaced) => AnnouncementOutcome::Replaced,
            (None, AnnouncementEnd::TooLong) => AnnouncementOutcome::TooLong,
            (None, _) if has_begun => AnnouncementOutcome::Failed(format!(
                "the sound stopped for more than {} s",
                MAX_STALL.as_secs_f64()
            )),
            (None, _) => AnnouncementOutcome::Failed("the sound contains no audio".to_owned()),
        }
    }
}

/// A queue of the station or of an overlay.
fn queue(
    handle: &mut StationHandle,
    overlay: Option<u64>,
    layer: Layer,
) -> Result<&mut AnnouncementQueue, String> {
    handle.queue(overlay, layer).ok_or_else(|| "the overlay has been removed".to_owned())
}

/// The loudness to which an announcement is brought, and the true peak that it may have; none if it
/// plays as loud as it is.
fn matching(
    announcement: &Announcement,
    normalize: Option<&Settings>,
    is_overlay: bool,
) -> Option<(Lufs, Db)> {
    let share = headroom(announcement.layer.duck(announcement.ducking.gain)).get();
    let own = normalize.filter(|_| announcement.normalize).map(|settings| settings.target);
    let target = announcement.loudness.or(own)?;
    let ceiling = normalize.map_or_else(
        || {
            // No limiter follows: the announcement has its share of full scale, and no more.
            Db::new(share - MAX_LIMITER_REDUCTION.get())
        },
        // On an overlay, the announcement is limited by itself, to its share of the ceiling.
        |settings| Db::new(settings.ceiling.get() + if is_overlay { share } else { 0.0 }),
    );
    Some((target, ceiling))
}

impl OpenedSound {
    /// A sound that other threads decode.
    fn new(
        items: Consumer<SourceItem>,
        state: SoundState,
        loudness: Option<LatestReader<Option<Loudness>>>,
    ) -> Self {
        Self { source: Box::new(RingSource::new(items, Pacing::OnDemand)), state, loudness }
    }

    /// A sound that the station computes, as loud as it is.
    fn generated(source: TestToneSource) -> Self {
        Self { source: Box::new(source), state: SoundState::Generated, loudness: None }
    }
}

impl SoundState {
    /// Why it cannot be played, or not to its end.
    fn problem(&mut self) -> Option<String> {
        match self {
            Self::File(state) => state.read().problem(),
            Self::Clip(state) => state.problem(),
            Self::Generated => None,
        }
    }

    /// Whether no more of it will come, without an end that the station sees.
    fn is_unplayable(&mut self) -> bool {
        match self {
            // The decoder would retry for ever, and an announcement that starts late is useless.
            Self::File(state) => matches!(state.read(), FileState::OpenFailed(_)),
            Self::Clip(state) => state.is_unplayable(),
            Self::Generated => false,
        }
    }
}

/// The threads that fetch, decode and measure sounds.
pub(super) struct SoundThreads<'a> {
    pub(super) codecs: &'a mut CodecPool,
    pub(super) clips: &'a ClipClient,
    /// Tasks for the control runtime.
    pub(super) tasks: &'a mut Vec<BackgroundTask>,
}

impl SoundThreads<'_> {
    /// Starts to decode the sound of an announcement, and to measure it for this channel layout,
    /// with one channel counted as two equal ones or not.
    fn open(
        &mut self,
        announcement: &Announcement,
        measured: Option<(ChannelLayout, bool)>,
    ) -> Result<OpenedSound, String> {
        let (path, spec) = match &announcement.source {
            AnnouncementSource::File(SourceConfig::File(file)) if !file.repeat => {
                (&file.path, file.spec)
            }
            AnnouncementSource::File(_) | AnnouncementSource::TestTone(..) => {
                return Err("the sound must be a file source without `repeat`".to_owned());
            }
            AnnouncementSource::Url(url, hosts) => {
                let kind = match announcement.layer {
                    Layer::Play => ClipKind::Streamed,
                    Layer::Announcement => ClipKind::Held,
                };
                let clip = self.clips.open(url.clone(), hosts.clone(), kind, measured)?;
                let ClipHandles { source, items, meter, state, task } = clip;
                let loudness = meter.map(|(meter, loudness)| {
                    self.codecs.add(Box::new(meter));
                    loudness
                });
                self.codecs.add(Box::new(source));
                self.tasks.push(task);
                return Ok(OpenedSound::new(items, SoundState::Clip(state), loudness));
            }
        };
        let options = FileDecodeOptions { looped: false, raw: spec };
        let loudness = measured.map(|shape| {
            let longest = match announcement.layer {
                Layer::Play => PLAY_MEASURED,
                Layer::Announcement => MAX_LENGTH,
            };
            let (meter, loudness) = FileMeter::new(path.clone(), options, shape, longest);
            self.codecs.add(Box::new(meter));
            loudness
        });
        let (file, items, state) = FileSource::new(path.clone(), options, announcement.id);
        self.codecs.add(Box::new(file.with_report(crate::file_warnings::log)));
        Ok(OpenedSound::new(items, SoundState::File(state), loudness))
    }
}

/// How much of a file is measured before it plays in the programme's place: all of it would take
/// as long as a hundredth of its length.
const PLAY_MEASURED: Span = Span::from_secs(60);

const fn ended(id: u64, outcome: AnnouncementOutcome) -> ProgrammeEvent {
    ProgrammeEvent::Announcement(id, AnnouncementEvent::Ended(outcome))
}

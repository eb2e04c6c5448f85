//! The announcements and plays of one station: fetching, decoding and gain matching.

use std::collections::VecDeque;

use aulos_config::{SourceConfig, StationSettings};
use aulos_control::backend::{
    Announcement, AnnouncementEvent, AnnouncementLead, AnnouncementOutcome, AnnouncementSource,
    BackgroundTask, LiveSound, ProgrammeEvent,
};
use aulos_core::{ChannelLayout, Db, Instant, Lufs, SampleRate, Span};
use aulos_dsp::meter::MeterHistory;
use aulos_dsp::normalize::Settings;
use aulos_engine::announce::{
    AnnouncementConfig, AnnouncementEnd, AnnouncementQueue, Chime, Layer, MAX_LENGTH,
    MAX_LIMITER_REDUCTION, MAX_QUEUE, MAX_STALL, Priority, QueueEvent, QueueFull, SoundPart,
    headroom, matching_gain,
};
use aulos_engine::generate::TestToneSource;
use aulos_engine::loudness::{Loudness, LoudnessMeter};
use aulos_engine::source::{Pacing, RingSource, Source, SourceItem};
use aulos_engine::station::StationHandle;
use aulos_files::decode::FileDecodeOptions;
use aulos_files::source::{FileMeter, FileSource, FileState};
use aulos_io::CodecPool;
use aulos_rt::LatestReader;
use aulos_rt::ring::Consumer;
use aulos_session::talk::{TalkError, TalkSound};

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
    priority: Priority,
    key: Option<String>,
    state: SoundState,
    /// What became of the sound before it, while that may still fail.
    lead: Option<SoundState>,
    has_begun: bool,
    is_replaced: bool,
}

/// What became of the sound of an announcement.
#[derive(Debug)]
enum SoundState {
    File(LatestReader<FileState>),
    Clip(ClipState),
    /// It is spoken meanwhile.
    Live(LatestReader<Option<TalkError>>),
    /// It is computed, which cannot fail.
    Generated,
}

/// A sound that is being decoded.
struct OpenedSound {
    source: Box<dyn Source>,
    state: SoundState,
    /// Its loudness, if that is wanted.
    loudness: Option<SoundLoudness>,
}

/// The loudness of a sound.
enum SoundLoudness {
    /// The result of measuring it, which takes a while.
    Measured(LatestReader<Option<Loudness>>),
    Known(Loudness),
}

/// An announcement whose loudness is being measured.
#[derive(Debug)]
struct PendingGain {
    id: u64,
    overlay: Option<u64>,
    layer: Layer,
    part: SoundPart,
    matching: Matching,
    loudness: LatestReader<Option<Loudness>>,
}

/// How an announcement is brought to a loudness.
#[derive(Clone, Copy, Debug)]
struct Matching {
    target: Lufs,
    /// The true peak that it may have.
    ceiling: Db,
    duck: Db,
    /// On top of it.
    gain: Db,
}

impl Matching {
    /// The gain for a sound of this loudness.
    fn gain(&self, loudness: &Loudness) -> Db {
        let matching = matching_gain(loudness, self.target, self.ceiling, self.duck);
        Db::new(matching.get() + self.gain.get())
    }
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
        let Announcement { id, layer, priority, ducking, gain, ref key, .. } = *announcement;
        let is_replaced = |one: &QueuedSound| {
            let has_key = key.is_some() && one.key == *key;
            let is_same = one.overlay == overlay && one.layer == layer;
            // A play that has begun ends when the new one is ready.
            !one.has_begun && is_same && (has_key || layer == Layer::Play)
        };
        let replaced = self.sounds.iter().filter(|one| is_replaced(one)).count();
        let queue_now = queue(handle, overlay, layer)?;
        let queued = queue_now.ids().count();
        if queued.saturating_sub(replaced) >= MAX_QUEUE && !queue_now.has_room(priority) {
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
            _ => threads.open(&announcement.source, (id, layer), measured)?,
        };
        let lead = announcement.lead.as_ref().map(|lead| match lead {
            AnnouncementLead::Chime => Ok(OpenedSound::chime(station.spec.rate, measured)),
            AnnouncementLead::Sound(sound) => threads.open(sound, (id, layer), measured),
        });
        let (lead, lead_state, lead_loudness) = OpenedSound::into_parts(lead.transpose()?);
        for one in self.sounds.iter_mut().filter(|one| is_replaced(one)) {
            one.is_replaced = true;
            handle.cancel_announcement(one.id);
        }
        let queue = queue(handle, overlay, layer)?;
        let config = AnnouncementConfig { ducking, priority, lead };
        queue.add_with(id, source, config).map_err(|full| full.to_string())?;
        for (part, loudness) in [(SoundPart::Main, loudness), (SoundPart::Lead, lead_loudness)] {
            match matching.zip(loudness) {
                Some((matching, SoundLoudness::Measured(loudness))) => {
                    queue.hold(id, part);
                    self.pending.push(PendingGain { id, overlay, layer, part, matching, loudness });
                }
                Some((matching, SoundLoudness::Known(loudness))) => {
                    queue.set_part_gain(id, part, matching.gain(&loudness));
                }
                None => queue.set_part_gain(id, part, gain),
            }
        }
        self.sounds.push(QueuedSound {
            id,
            overlay,
            layer,
            priority,
            key: key.clone(),
            state,
            lead: lead_state,
            has_begun: false,
            is_replaced: false,
        });
        Ok(())
    }

    /// The highest priority of the sounds of this layer of an overlay that have not ended.
    pub(super) fn highest(&self, overlay: u64, layer: Layer) -> Option<Priority> {
        let all = self.sounds.iter();
        let own = all.filter(|one| one.overlay == Some(overlay) && one.layer == layer);
        own.map(|one| one.priority).max()
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
            if let Ok(queue) = queue(handle, one.overlay, one.layer) {
                queue.set_part_gain(one.id, one.part, one.matching.gain(&loudness));
            }
            false
        });
        for QueuedSound { id, overlay, layer, state, lead, .. } in &mut self.sounds {
            if state.is_unplayable() {
                handle.cancel_announcement(*id);
            }
            if let Some(mut failed) = lead.take_if(SoundState::is_unplayable) {
                let why = failed.problem().unwrap_or_default();
                tracing::warn!(id, "the sound before an announcement is left out: {why}");
                if let Ok(queue) = queue(handle, *overlay, *layer) {
                    queue.remove_lead(*id);
                }
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
            (None, AnnouncementEnd::Interrupted) => AnnouncementOutcome::Interrupted,
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

/// The loudness to which an announcement is brought; none if it plays as loud as it is.
fn matching(
    announcement: &Announcement,
    normalize: Option<&Settings>,
    is_overlay: bool,
) -> Option<Matching> {
    let duck = announcement.layer.duck(announcement.ducking.gain);
    let share = headroom(duck).get();
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
    Some(Matching { target, ceiling, duck, gain: announcement.gain })
}

impl OpenedSound {
    /// A sound that other threads decode.
    fn new(
        items: Consumer<SourceItem>,
        state: SoundState,
        loudness: Option<LatestReader<Option<Loudness>>>,
    ) -> Self {
        let source = Box::new(RingSource::new(items, Pacing::OnDemand));
        Self { source, state, loudness: loudness.map(SoundLoudness::Measured) }
    }

    /// Its source, state and loudness, if there is one.
    fn into_parts(
        sound: Option<Self>,
    ) -> (Option<Box<dyn Source>>, Option<SoundState>, Option<SoundLoudness>) {
        match sound {
            Some(Self { source, state, loudness }) => (Some(source), Some(state), loudness),
            None => (None, None, None),
        }
    }

    /// The built-in chime, measured in a channel layout, with one channel counted as two equal ones
    /// or not.
    fn chime(rate: SampleRate, measured: Option<(ChannelLayout, bool)>) -> Self {
        let loudness = measured.map(|(layout, dual_mono)| {
            let make = if dual_mono { LoudnessMeter::dual_mono } else { LoudnessMeter::new };
            let mut meter = make(rate, layout, MeterHistory::Histogram);
            let samples = Chime::samples(rate).into_iter();
            let in_each = |sample| std::iter::repeat_n(sample, layout.channels());
            meter.push(&samples.flat_map(in_each).collect::<Vec<f32>>());
            SoundLoudness::Known(meter.finish())
        });
        Self { source: Box::new(Chime::new(rate)), state: SoundState::Generated, loudness }
    }

    /// A sound that is spoken meanwhile.
    fn live(sound: &LiveSound) -> Result<Self, String> {
        let TalkSound { items, problem } =
            sound.take().ok_or_else(|| "the talk is played already".to_owned())?;
        Ok(Self::new(items, SoundState::Live(problem), None))
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
            Self::Live(problem) => problem.read().map(|problem| problem.to_string()),
            Self::Generated => None,
        }
    }

    /// Whether no more of it will come, without an end that the station sees.
    fn is_unplayable(&mut self) -> bool {
        match self {
            // The decoder would retry for ever, and an announcement that starts late is useless.
            Self::File(state) => matches!(state.read(), FileState::OpenFailed(_)),
            Self::Clip(state) => state.is_unplayable(),
            Self::Live(_) | Self::Generated => false,
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
    /// Starts to decode a sound of the announcement `id`, and to measure it for this channel layout,
    /// with one channel counted as two equal ones or not.
    fn open(
        &mut self,
        source: &AnnouncementSource,
        (id, layer): (u64, Layer),
        measured: Option<(ChannelLayout, bool)>,
    ) -> Result<OpenedSound, String> {
        let (path, spec) = match source {
            AnnouncementSource::File(SourceConfig::File(file)) if !file.repeat => {
                (&file.path, file.spec)
            }
            AnnouncementSource::Live(sound) => return OpenedSound::live(sound),
            AnnouncementSource::File(_) | AnnouncementSource::TestTone(..) => {
                return Err("the sound must be a file source without `repeat`".to_owned());
            }
            AnnouncementSource::Url(url, hosts) => {
                let kind = match layer {
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
            let longest = match layer {
                Layer::Play => PLAY_MEASURED,
                Layer::Announcement => MAX_LENGTH,
            };
            let (meter, loudness) = FileMeter::new(path.clone(), options, shape, longest);
            self.codecs.add(Box::new(meter));
            loudness
        });
        let (file, items, state) = FileSource::new(path.clone(), options, id);
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

//! The announcements of one station: decoding and gain matching.

use aulos_config::{SourceConfig, Station};
use aulos_core::Db;
use aulos_dsp::normalize::Settings;
use aulos_engine::announce::{EndReason, MAX_LENGTH, MAX_QUEUE, QueueEvent, matching_gain};
use aulos_engine::loudness::Loudness;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::station::StationHandle;
use aulos_files::decode::FileDecodeOptions;
use aulos_files::source::{FileMeter, FileSource, FileState};
use aulos_io::CodecPool;
use aulos_rt::LatestReader;

use crate::backend::{Announcement, AnnouncementEvent, AnnouncementOutcome, StationEvent};

/// The decode state of each file in a station's announcement queue.
#[derive(Debug, Default)]
pub(super) struct StationAnnouncements {
    files: Vec<(u64, LatestReader<FileState>)>,
    /// Announcements whose gain is not known yet.
    pending: Vec<PendingGain>,
}

/// An announcement whose loudness is being measured.
#[derive(Debug)]
struct PendingGain {
    id: u64,
    duck: Db,
    gain: Db,
    settings: Settings,
    loudness: LatestReader<Option<Loudness>>,
}

impl StationAnnouncements {
    /// Appends an announcement to the queue and starts decoding it.
    pub(super) fn add(
        &mut self,
        announcement: &Announcement,
        station: &Station,
        handle: &mut StationHandle,
        codecs: &mut CodecPool,
    ) -> Result<(), String> {
        let SourceConfig::File { path, repeat: false, spec } = &announcement.source else {
            return Err("an announcement must be a file source without `repeat`".to_owned());
        };
        let options = FileDecodeOptions { looped: false, raw: *spec };
        let (file, items, state) = FileSource::new(path.clone(), options, announcement.id);
        let source = Box::new(RingSource::new(items, Pacing::OnDemand));
        let Announcement { id, duck, gain, .. } = *announcement;
        handle.announcements().add(id, source, duck).map_err(|full| full.to_string())?;
        match station.sound.normalize.as_ref().filter(|_| announcement.normalize) {
            None => handle.announcements().set_gain(id, gain),
            Some(normalize) => {
                let layout = (station.spec.layout, normalize.settings.dual_mono);
                let (meter, loudness) = FileMeter::new(path.clone(), options, layout, MAX_LENGTH);
                codecs.add(Box::new(meter));
                handle.announcements().hold(id);
                let settings = normalize.settings.clone();
                self.pending.push(PendingGain { id, duck, gain, settings, loudness });
            }
        }
        codecs.add(Box::new(file));
        self.files.push((id, state));
        debug_assert!(self.files.len() <= MAX_QUEUE);
        Ok(())
    }

    /// Sets gains that are known by now, and cancels announcements whose file cannot be opened.
    pub(super) fn update(&mut self, handle: &mut StationHandle) {
        self.pending.retain_mut(|PendingGain { id, duck, gain, settings, loudness }| {
            let Some(loudness) = *loudness.read() else { return true };
            let matching = matching_gain(&loudness, settings.target, settings.ceiling, *duck);
            handle.announcements().set_gain(*id, Db::new(matching.get() + gain.get()));
            false
        });
        for (id, state) in &mut self.files {
            // The decoder would retry for ever, and an announcement that starts late is useless.
            if matches!(state.read(), FileState::OpenFailed(_)) {
                handle.cancel_announcement(*id);
            }
        }
    }

    /// The control plane's event for an event of the queue.
    pub(super) fn event(&mut self, event: QueueEvent) -> StationEvent {
        match event {
            QueueEvent::Began(id) => StationEvent::Announcement(id, AnnouncementEvent::Started),
            QueueEvent::Ended(id, cause) => ended(id, self.outcome(id, cause)),
        }
    }

    /// Ends every announcement because the station ends.
    pub(super) fn end_all(self) -> impl Iterator<Item = StationEvent> {
        self.files.into_iter().map(|(id, _)| ended(id, AnnouncementOutcome::StationGone))
    }

    fn outcome(&mut self, id: u64, cause: EndReason) -> AnnouncementOutcome {
        self.pending.retain(|one| one.id != id);
        let at = self.files.iter().position(|(other, _)| *other == id);
        let state = at.map(|at| *self.files.swap_remove(at).1.read());
        match (state.and_then(FileState::problem), cause) {
            (Some(problem), _) => AnnouncementOutcome::Failed(problem),
            (None, EndReason::Played) => AnnouncementOutcome::Played,
            (None, EndReason::Cancelled) => AnnouncementOutcome::Cancelled,
            (None, EndReason::TooLong) => AnnouncementOutcome::TooLong,
            (None, _) => AnnouncementOutcome::Failed("the file contains no audio".to_owned()),
        }
    }
}

const fn ended(id: u64, outcome: AnnouncementOutcome) -> StationEvent {
    StationEvent::Announcement(id, AnnouncementEvent::Ended(outcome))
}

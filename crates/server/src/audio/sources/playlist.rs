//! Playlists of files, decoded on the codec pool.

use aulos_core::SampleSpec;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;
use aulos_files::playlist::{
    PlaylistHandle, PlaylistOptions, PlaylistParts, PlaylistSource, PlaylistStatus,
};

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// Opens a playlist for a station of this spec.
pub(crate) fn open(
    options: &PlaylistOptions,
    spec: SampleSpec,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let format = (spec.rate, spec.layout);
    let PlaylistParts { source, items, handle } =
        PlaylistSource::new(options.clone(), format, inner.seeds.next_u64());
    let source = source.with_report(|path, reason| {
        tracing::warn!(path = %path.display(), reason, "a file of a playlist is skipped");
    });
    inner.codecs.add(match standby {
        Some(standby) => Box::new(source.with_standby(standby)),
        None => Box::new(source),
    });
    (Box::new(RingSource::new(items, Pacing::OnDemand)), Box::new(handle))
}

impl SourceMonitor for PlaylistHandle {
    fn problem(&mut self) -> Option<String> {
        // A list that is not complete plays.
        let status = self.status();
        status.problem.filter(|_| status.files == 0)
    }

    fn playlist(&mut self) -> Option<PlaylistStatus> {
        Some(self.status())
    }

    fn skip_track(&mut self) -> bool {
        self.skip();
        true
    }
}

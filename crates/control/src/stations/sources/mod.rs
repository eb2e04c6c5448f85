//! The sources of a station: their titles, and their status as JSON.

pub(crate) mod djs;
pub(crate) mod playlist;
pub(crate) mod radio;
pub(crate) mod rtp;

use std::borrow::Cow;

use aulos_proto::titles::TrackMetadata;

use crate::backend::StationReport;

/// The title of the active source, where that knows its titles itself: web radio, a live input, a
/// playlist.
pub(crate) fn title(status: &StationReport) -> Option<Cow<'_, TrackMetadata>> {
    fn of<T>(all: &[Option<T>], active: usize) -> Option<&T> {
        all.get(active).and_then(Option::as_ref)
    }
    let active = status.machine.active?;
    let radio = of(&status.radios, active).and_then(|radio| radio.title.as_ref());
    let dj = || of(&status.live_inputs, active).and_then(|dj| dj.title.as_ref());
    let playlist = || of(&status.playlists, active).and_then(|it| it.title.as_deref());
    radio.or_else(dj).or_else(playlist).map(Cow::Borrowed)
}

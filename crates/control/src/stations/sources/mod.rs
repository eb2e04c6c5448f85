//! The sources of a station: their titles, and their status as JSON.

pub(crate) mod djs;
pub(crate) mod playlist;
pub(crate) mod radio;
pub(crate) mod rtp;
pub(crate) mod sendspin;
pub(crate) mod srt;

use std::borrow::Cow;

use aulos_proto::titles::TrackMetadata;

use crate::backend::StationReport;

/// The title of the active source, where that knows its titles itself: web radio, a live input, a
/// playlist, a Sendspin server.
pub(crate) fn title(status: &StationReport) -> Option<Cow<'_, TrackMetadata>> {
    let active = status.machine.active?;
    let radio = of_source(&status.radios, active).and_then(|radio| radio.title.as_ref());
    let dj = || of_source(&status.live_inputs, active).and_then(|dj| dj.title.as_ref());
    let playlist = || of_source(&status.playlists, active).and_then(|it| it.title.as_deref());
    let borrowed = radio.or_else(dj).or_else(playlist).map(Cow::Borrowed);
    let server = of_source(&status.sendspin_inputs, active);
    borrowed.or_else(|| Some(Cow::Owned(sendspin::title(server?)?)))
}

/// What a report has for the source with this index, if it is of that kind.
pub(crate) fn of_source<T>(all: &[Option<T>], index: usize) -> Option<&T> {
    all.get(index)?.as_ref()
}

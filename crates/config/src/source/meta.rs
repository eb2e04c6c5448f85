//! The programmes of other stations: `meta:`.

use crate::source::kind::SourceKind;
use crate::source::query::{NoParams, Parsed, Query};

/// The programme of another station, before announcements.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedStation {
    /// Its name.
    pub name: String,
}

impl SourceKind for PlayedStation {
    fn scheme(&self) -> &'static str {
        "meta"
    }

    fn station(&self) -> Option<&str> {
        Some(&self.name)
    }
}

/// The stations of `meta:///a/b`, in order of priority. As in snapserver, empty parts are skipped,
/// and a name in place of the host counts.
pub(crate) fn parse(query: &Query<'_>) -> Parsed<PlayedStation> {
    let NoParams { .. } = query.params();
    let host = query.uri.authority();
    let names = std::iter::once(host.as_str()).chain(query.uri.path.split('/'));
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    let stations: Vec<PlayedStation> =
        names.map(|name| PlayedStation { name: name.to_owned() }).collect();
    if stations.is_empty() {
        let hint = "the names of stations in order of priority, as in meta:///kitchen/radio";
        return query.refuse(format!("\"{}\" names no station", query.uri.raw), hint);
    }
    Some(stations)
}

//! One source of a station that is another station; `links` connects it.

use aulos_engine::swappable_source::SwappableSourceHandle;

/// One source that is another station.
#[derive(Debug)]
pub(crate) struct StationLink {
    pub(crate) from: String,
    pub(crate) source: SwappableSourceHandle,
    /// The run of the station to which this source is connected.
    pub(crate) connected_run: Option<u64>,
}

impl StationLink {
    pub(crate) fn new(from: &str, source: SwappableSourceHandle) -> Self {
        Self { from: from.to_owned(), source, connected_run: None }
    }
}

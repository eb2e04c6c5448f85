//! The mounts by their paths, for the HTTP port.
//!
//! Every request is compared with them before anything is known of its sender, so they are a
//! snapshot that a reload replaces, and not read under the lock of the state.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use aulos_config::StationSettings;

/// The mounts of a configuration by the bytes of their paths: `/live.mp3`.
#[derive(Debug, Default)]
pub struct MountTable(BTreeMap<Vec<u8>, Arc<StationSettings>>);

impl MountTable {
    /// The mounts among these stations.
    #[must_use]
    pub fn new(stations: &[StationSettings]) -> Self {
        let mounts = stations.iter().filter(|station| station.mount.is_some());
        let by_path = |mount: &StationSettings| {
            (format!("/{}", mount.name).into_bytes(), Arc::new(mount.clone()))
        };
        Self(mounts.map(by_path).collect())
    }

    /// The mount at this path, as it is in a request line. Names of mounts need no escapes.
    #[must_use]
    pub fn at_path(&self, path: &[u8]) -> Option<&Arc<StationSettings>> {
        self.0.get(path)
    }

    /// Whether the path of a mount begins with these bytes.
    #[must_use]
    pub fn has_path_beginning(&self, bytes: &[u8]) -> bool {
        let mut from = self.0.range::<[u8], _>((Bound::Included(bytes), Bound::Unbounded));
        from.next().is_some_and(|(path, _)| path.starts_with(bytes))
    }
}

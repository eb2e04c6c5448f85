//! What the registry knows of the stations: their names, and what a client needs of one.

use std::collections::HashMap;

use aulos_core::Span;

use super::client::{Client, Group};
use crate::backend::{Greeting, ServerSettings};

/// What the registry needs of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationInfo {
    /// Its name, which is also the id of its Snapcast stream.
    pub name: String,
    /// Milliseconds from capture to play-out.
    pub buffer_ms: u32,
}

/// The stations, by number and by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct StationTable {
    /// Indexed by station number; none where a station was removed.
    stations: Vec<Option<StationInfo>>,
    /// The numbers of stations by name.
    numbers: HashMap<String, usize>,
}

impl StationTable {
    /// Adds a station under the number that the audio backend gave it; returns the one that it
    /// replaces.
    pub(super) fn add(&mut self, number: usize, info: StationInfo) -> Option<StationInfo> {
        if self.stations.len() <= number {
            self.stations.resize(number + 1, None);
        }
        let name = info.name.clone();
        let old = self.stations[number].replace(info);
        if let Some(old) = &old {
            self.numbers.remove(&old.name);
        }
        self.numbers.insert(name, number);
        old
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<StationInfo> {
        let info = self.stations.get_mut(number).and_then(Option::take)?;
        self.numbers.remove(&info.name);
        Some(info)
    }

    /// The station of this name, with its number.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &StationInfo)> {
        let number = *self.numbers.get(name)?;
        Some((number, self.stations.get(number)?.as_ref()?))
    }

    /// The station `default`, to which controllers move groups back, or else the first one.
    pub(crate) fn default_name(&self) -> &str {
        let default = self.find("default").map(|(_, info)| info);
        let first = || self.stations.iter().flatten().next();
        default.or_else(first).map_or("", |station| station.name.as_str())
    }

    /// What a client of this group is sent; none if its station does not exist.
    pub(super) fn greeting(&self, group: &Group, client: &Client) -> Option<Greeting> {
        let (station, info) = self.find(&group.station)?;
        let settings = ServerSettings {
            volume: client.volume,
            muted: client.muted || group.muted,
            latency: Span::from_millis(client.latency_ms.into()),
            buffer: Span::from_millis(info.buffer_ms.into()),
            report_interval: Some(REPORT_INTERVAL),
        };
        Some(Greeting { settings, station })
    }
}

/// How often a player reports: as often as the reactors report the health of its connection.
const REPORT_INTERVAL: Span = Span::from_secs(2);

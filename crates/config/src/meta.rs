//! Checks `meta:` sources: the stations must exist, and none may play itself.

use super::model::Config;
use super::problem::{Problems, did_you_mean};
use super::resolve::Station;
use super::source::SourceConfig;

/// Reports unknown stations and loops.
pub(super) fn check(config: &Config, all: &[Station], problems: &Problems) {
    for (config, station) in config.stations.iter().zip(all) {
        for source in &station.sources {
            let SourceConfig::Station { name } = &source.config else { continue };
            let entry = config.sources.iter().find(|entry| entry.uri.value == source.uri);
            let at = entry.map_or(config.at, |entry| entry.uri.at);
            if all.iter().all(|other| other.name != *name) {
                let names: Vec<&str> = all.iter().map(|other| other.name.as_str()).collect();
                let hint = match did_you_mean(name, &names) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "meta: plays other stations of this file".to_owned(),
                };
                problems.add_with_hint(at, format!("there is no station `{name}`"), hint);
            } else if let Some(way) = meta_loop(all, name, &station.name) {
                let message = format!("`{}` plays itself: it plays {way}", station.name);
                problems.add_with_hint(at, message, "take one of them out of the ring");
            }
        }
    }
}

/// The path by which `from` plays `to`, if there is one: "`a`, which plays `b`".
pub fn meta_loop<'a>(
    stations: impl IntoIterator<Item = &'a Station>,
    from: &str,
    to: &str,
) -> Option<String> {
    let stations: Vec<&Station> = stations.into_iter().collect();
    // Each station is visited once, so the search ends in loops too.
    let mut seen: Vec<&str> = vec![];
    let mut ways = vec![(from, format!("`{from}`"))];
    while let Some((name, way)) = ways.pop() {
        if name == to {
            return Some(way);
        }
        let Some(station) = stations.iter().find(|station| station.name == name) else { continue };
        if seen.contains(&&*station.name) {
            continue;
        }
        seen.push(&station.name);
        for source in &station.sources {
            if let SourceConfig::Station { name } = &source.config {
                ways.push((name, format!("{way}, which plays `{name}`")));
            }
        }
    }
    None
}

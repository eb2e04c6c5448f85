//! Checks `meta:` sources: the stations must exist, and none may play itself.

use crate::keys::hint_for;
use crate::model::StationConfig;
use crate::problem::Problems;
use crate::station::StationSettings;

/// Reports unknown stations and loops.
pub(crate) fn check(configs: &[StationConfig], all: &[StationSettings], problems: &Problems) {
    for (config, station) in configs.iter().zip(all) {
        for source in &station.sources {
            let Some(name) = source.config.station() else { continue };
            let entry = config.sources.iter().find(|entry| entry.uri.value == source.uri);
            let at = entry.map_or(config.at, |entry| entry.uri.at);
            if all.iter().all(|other| other.name != name) {
                let names: Vec<&str> = all.iter().map(|other| other.name.as_str()).collect();
                problems.add_with_hint(
                    at,
                    format!("unknown station `{name}`"),
                    hint_for(name, &names),
                );
            } else if let Some(path) = meta_loop(all, name, &station.name) {
                let message = format!("`{}` plays itself: it plays {path}", station.name);
                problems.add_with_hint(at, message, "remove one of these sources");
            }
        }
    }
}

/// The path by which `from` plays `to`, if there is one: "`a`, which plays `b`".
pub fn meta_loop<'a>(
    stations: impl IntoIterator<Item = &'a StationSettings>,
    from: &str,
    to: &str,
) -> Option<String> {
    let stations: Vec<&StationSettings> = stations.into_iter().collect();
    // Each station is visited once, so the search ends in loops too.
    let mut seen: Vec<&str> = vec![];
    let mut paths = vec![(from, format!("`{from}`"))];
    while let Some((name, path)) = paths.pop() {
        if name == to {
            return Some(path);
        }
        let Some(station) = stations.iter().find(|station| station.name == name) else { continue };
        if seen.contains(&&*station.name) {
            continue;
        }
        seen.push(&station.name);
        for source in &station.sources {
            if let Some(name) = source.config.station() {
                paths.push((name, format!("{path}, which plays `{name}`")));
            }
        }
    }
    None
}

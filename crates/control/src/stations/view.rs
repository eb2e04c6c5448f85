//! A station as others see it.

use std::sync::Arc;

use aulos_config::StationSettings;
use aulos_proto::uri::Uri;
use serde_json::{Map, Value, json};

use crate::backend::{StationReport, StationState};
use crate::stations::schedule::SchedulePlan;

/// A station at one moment, to be rendered without the lock of the state.
#[derive(Clone, Debug)]
pub(crate) struct StationView {
    pub(crate) number: usize,
    pub(crate) station: Arc<StationSettings>,
    /// The URI with which a call added it.
    pub(crate) added: Option<Arc<Uri>>,
    /// The properties that it shows; those of the station that it plays, if it plays one.
    pub(crate) properties: Arc<Map<String, Value>>,
    pub(crate) status: StationReport,
    /// The entries of its schedule that are active or come next.
    pub(crate) schedule: Option<Arc<SchedulePlan>>,
}

impl StationView {
    /// The station as a Snapcast stream. Its URI is the one with which it was added, or that of its
    /// first source.
    pub(crate) fn stream_json(&self) -> Value {
        let station = &self.station;
        let first = || station.sources.first().and_then(|source| source.uri.parse::<Uri>().ok());
        let uri = self.added.as_deref().cloned().or_else(first);
        let part = |of: fn(&Uri) -> String| uri.as_ref().map_or_else(String::new, of);
        let (scheme, path) = (part(|uri| uri.scheme.clone()), part(|uri| uri.path.clone()));
        let (host, fragment) = (part(Uri::authority), part(|uri| uri.fragment.clone()));
        let pairs = uri.iter().flat_map(|uri| &uri.query);
        let mut query: Map<String, Value> =
            pairs.map(|(key, value)| (key.clone(), json!(value))).collect();
        query.insert("name".to_owned(), json!(station.name));
        query.insert("codec".to_owned(), json!(station.codec.to_string()));
        query.insert("sampleformat".to_owned(), json!(station.spec.to_string()));
        query.insert("chunk_ms".to_owned(), json!(station.chunk_ms.to_string()));
        let pairs: Vec<String> = query
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
            .collect();
        let made = || format!("{scheme}://{host}{path}?{}", pairs.join("&"));
        let raw = self.added.as_ref().map_or_else(made, |uri| uri.raw.clone());
        json!({
            "id": station.name,
            "status": match self.status.state {
                StationState::Stopped => "unknown",
                StationState::Silent => "idle",
                StationState::Playing => "playing",
            },
            "uri": {
                "raw": raw,
                "scheme": scheme,
                "host": host,
                "path": path,
                "fragment": fragment,
                "query": query,
            },
            "properties": *self.properties,
        })
    }
}

//! Titles in the properties of streams.

use aulos_proto::http::icy;
use aulos_proto::titles::TrackMetadata;
use serde_json::{Map, Value, json};

/// A title in one line, from the properties of a stream.
pub(crate) fn title_line(properties: &Map<String, Value>) -> String {
    let (title, artist) = title_and_artist(properties);
    icy::stream_title(&TrackMetadata { artist, title, ..TrackMetadata::default() })
}

/// Title and performers, from the properties of a stream.
pub(crate) fn title_and_artist(
    properties: &Map<String, Value>,
) -> (Option<String>, Option<String>) {
    let metadata = properties.get("metadata");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let field = |key: &str| metadata.and_then(|metadata| metadata.get(key));
    let artist = match field("artist") {
        Some(Value::Array(all)) => {
            let all: Vec<_> = all.iter().filter_map(Value::as_str).collect();
            (!all.is_empty()).then(|| all.join(", "))
        }
        other => other.and_then(text),
    };
    (field("title").and_then(text), artist)
}

/// A title in a control script's format.
pub(crate) fn metadata(title: &TrackMetadata) -> Map<String, Value> {
    let TrackMetadata { title, artist, album, genre, composer, duration, url, art_url, .. } = title;
    let one = |text: &Option<String>| text.as_ref().map(|text| json!([text]));
    let pairs = [
        ("title", title.as_ref().map(|text| json!(text))),
        ("artist", one(artist)),
        ("album", album.as_ref().map(|text| json!(text))),
        ("genre", one(genre)),
        ("composer", one(composer)),
        ("duration", duration.map(|duration| json!(seconds(duration)))),
        ("url", url.as_ref().map(|text| json!(text))),
        ("artUrl", art_url.as_ref().map(|text| json!(text))),
    ];
    let known = |(key, value): (&str, Option<Value>)| Some((key.to_owned(), value?));
    pairs.into_iter().filter_map(known).collect()
}

/// Seconds, as the properties have them.
pub(crate) fn seconds(span: aulos_core::Span) -> f64 {
    span.as_millis() as f64 / 1e3
}

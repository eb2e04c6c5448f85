//! Live inputs: their status as JSON.

use serde_json::{Value, json};

use crate::backend::DjStatus;
use crate::stations::titles::json::metadata;

/// The status of a live input.
pub(crate) fn status_json(dj: &DjStatus) -> Value {
    let about = &dj.client_info;
    json!({
        "on_air": dj.on_air,
        "port": dj.address.map(|address| address.to_string()),
        "from": about.from.map(|from| from.to_string()),
        "user_agent": about.agent,
        "name": about.name,
        "content_type": about.content_type,
        "tls": about.tls,
        "since_s": dj.since.map(|since| since.as_millis() / 1_000),
        "bytes": dj.bytes,
        "codec": dj.info.map(|info| info.codec),
        "sample_rate": dj.info.map(|info| info.rate.hz()),
        "channels": dj.info.map(|info| info.layout.channels()),
        "title": dj.title.as_ref().map(metadata),
        "last_left": dj.left.map(|left| left.to_string()),
    })
}

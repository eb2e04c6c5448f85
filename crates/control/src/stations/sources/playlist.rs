//! The status of playlists, as JSON.

use aulos_files::playlist::PlaylistStatus;
use serde_json::{Value, json};

use crate::stations::titles::json::seconds;

/// The status of a playlist.
pub(crate) fn status_json(playlist: &PlaylistStatus) -> Value {
    let current = playlist.current.as_ref().map(|(track, position)| {
        json!({
            "file": track.path.to_string_lossy(),
            "jingle": track.is_jingle,
            "position_s": seconds(*position),
            "duration_s": track.duration.map(seconds),
            "gain_db": (track.gain_db * 10.0).round() / 10.0,
        })
    });
    let next: Vec<_> = playlist.next.iter().map(|file| file.to_string_lossy()).collect();
    let skipped = playlist
        .last_skipped
        .as_ref()
        .map(|skipped| json!({ "file": skipped.path.to_string_lossy(), "reason": skipped.reason }));
    json!({
        "files": playlist.files,
        "current": current,
        "next": next,
        "played": playlist.played,
        "skipped": playlist.skipped,
        "last_skipped": skipped,
        "problem": playlist.problem,
    })
}

//! Players of a Sendspin server: their status as JSON, and what their servers say of the programme.

use aulos_proto::sendspin::{ServerTrust, TransportCommand};
use aulos_proto::titles::TrackMetadata;
use aulos_session::sendspin::{SendspinInputCounts, SendspinInputStatus};
use serde_json::{Map, Value, json};

use crate::backend::StationReport;

/// The status of a source.
pub(crate) fn status_json(status: &SendspinInputStatus) -> Value {
    let SendspinInputCounts {
        failures,
        refused,
        forged,
        malformed,
        played,
        late,
        early,
        repeated,
        damaged,
        dropped,
        gaps,
        ..
    } = status.counts;
    json!({
        "server": status.server.as_ref().map(|server| json!({
            "name": server.name,
            "id": server.id.to_string(),
            "dialect": server.dialect.info().name,
            "paired": server.trust == ServerTrust::Paired,
        })),
        "stream": status.stream.map(|stream| format!("{} {}", stream.codec, stream.spec)),
        "connections": status.connections,
        "playing": status.is_playing,
        "failures": failures,
        "refused": refused,
        "forged": forged,
        "malformed": malformed,
        "played": played,
        "late": late,
        "early": early,
        "repeated": repeated,
        "damaged": damaged,
        "dropped": dropped,
        "gaps": gaps,
    })
}

/// What the server says of its programme, as stations show it; `None` if it says nothing.
pub(super) fn title(status: &SendspinInputStatus) -> Option<TrackMetadata> {
    let picture = status.artwork.clone();
    let Some(track) = status.track.as_deref() else {
        return picture.map(|it| TrackMetadata { picture: Some(it), ..TrackMetadata::default() });
    };
    Some(TrackMetadata {
        title: track.title.clone(),
        artist: track.artist.clone(),
        album: track.album.clone(),
        art_url: track.artwork_url.clone(),
        picture,
        ..TrackMetadata::default()
    })
}

/// The source whose server can be told something: that on air, else the first one. So a programme that
/// was paused can be played again.
pub(crate) fn source_of(status: &StationReport) -> Option<usize> {
    let has_server = |index: &usize| {
        let source = status.sendspin_inputs.get(*index);
        source.is_some_and(|source| source.as_ref().is_some_and(|it| it.server.is_some()))
    };
    let first = (0..status.sendspin_inputs.len()).find(has_server);
    status.machine.active.filter(has_server).or(first)
}

/// What that source says of its programme, in the format of a control script.
pub(crate) fn transport(status: &StationReport) -> Option<Map<String, Value>> {
    let index = source_of(status)?;
    let source = status.sendspin_inputs.get(index)?.as_ref()?;
    let commands = source.commands;
    let all = [
        ("canControl", commands != Default::default()),
        ("canPlay", commands.play),
        ("canPause", commands.pause),
        ("canGoNext", commands.next),
        ("canGoPrevious", commands.previous),
        ("canSeek", commands.seek),
    ];
    let mut properties: Map<String, Value> =
        all.into_iter().map(|(key, can)| (key.to_owned(), json!(can))).collect();
    if status.machine.active == Some(index) {
        let playback = if source.is_playing { "playing" } else { "stopped" };
        properties.insert("playbackStatus".to_owned(), json!(playback));
    }
    Some(properties)
}

/// The command of `Stream.Control`, whose arguments are checked.
pub(crate) fn command(
    command: &str,
    arguments: &Map<String, Value>,
    is_playing: bool,
) -> Option<TransportCommand> {
    #[allow(clippy::cast_possible_truncation, reason = "clamped")]
    let millis = |key: &str, least: f64| {
        let seconds = arguments.get(key).and_then(Value::as_f64)?;
        Some((seconds * 1e3).clamp(least, f64::from(i32::MAX)) as i32)
    };
    Some(match command {
        "play" => TransportCommand::Play,
        "playPause" if !is_playing => TransportCommand::Play,
        "pause" | "playPause" => TransportCommand::Pause,
        "stop" => TransportCommand::Stop,
        "next" => TransportCommand::Next,
        "previous" => TransportCommand::Previous,
        "seek" => TransportCommand::SeekBy(millis("offset", f64::from(i32::MIN))?),
        "setPosition" => TransportCommand::Seek(millis("position", 0.0)?.unsigned_abs()),
        _ => return None,
    })
}

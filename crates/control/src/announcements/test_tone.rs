//! `Aulos.TestTone`: a signal for setting up loudspeakers, in place of the programme.
//!
//! It is an announcement without a file: it is played by the overlay of its client or group, so that
//! the other clients are not touched, and is cancelled as any other.

use aulos_core::{Db, Span};
use aulos_engine::announce::{DEFAULT_RELEASE, Ducking, Layer, MAX_DUCK, Priority};
use aulos_engine::generate::TestTone;
use aulos_proto::snap::control::RpcError;
use serde_json::json;

use crate::announcements::AnnouncementEntry;
use crate::announcements::calls::{RequestedSound, announced_place, queue};
use crate::backend::{AnnouncementSource, AnnouncementTarget};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::MethodResult;

/// The parameters of which one names who hears the tone.
pub(crate) const TARGETS: &[&str] = &["client", "group"];

/// Range and default of `seconds`.
pub(crate) const MIN_SECONDS: f64 = 1.0;
pub(crate) const MAX_SECONDS: f64 = 60.0;
pub(crate) const DEFAULT_SECONDS: f64 = 10.0;

/// The scheme of a tone in place of the URI of a sound.
const SCHEME: &str = "test-tone:";

/// `Aulos.TestTone`.
pub(crate) fn test_tone(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let place = announced_place(context, params, TARGETS)?;
    let name = params.text("kind")?;
    let kind = TestTone::named(name)
        .ok_or_else(|| RpcError::invalid_params(&format!("`kind`: unknown {name}")))?;
    let seconds = params.number("seconds")?;
    cancel_former(context, place.number, &place.target);
    let source = AnnouncementSource::TestTone(kind, Span::from_secs_f64(seconds));
    let sound = RequestedSound {
        layer: Layer::Announcement,
        priority: Priority::DEFAULT,
        lead: None,
        // The programme is hardly heard: a level or a moment is to be compared.
        ducking: Ducking { gain: MAX_DUCK, release: DEFAULT_RELEASE },
        gain: Db::ZERO,
        normalize: false,
        loudness: None,
        key: Some(SCHEME.to_owned()),
        title: None,
    };
    let entry = queue(context, place, (source, format!("{SCHEME}{name}")), sound)?;
    let AnnouncementEntry { id, station, .. } = entry;
    Ok(json!({ "id": id, "station": station, "kind": name, "seconds": seconds }).into())
}

/// Ends the tone that plays: who chooses another kind does not wait for the end of the first.
fn cancel_former(context: &CallContext<'_>, number: usize, target: &AnnouncementTarget) {
    let all = context.subjects.announcements.all().iter();
    let former = all
        .filter(|one| one.number == number && one.target == *target && one.uri.starts_with(SCHEME));
    for entry in former {
        context.control.backend.cancel_announcement(number, entry.id);
    }
}

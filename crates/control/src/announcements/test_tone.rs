//! `Aulos.TestTone`: a signal for setting up loudspeakers, in place of the programme.
//!
//! It is an announcement without a file: it is played by the overlay of its client or group, so that
//! the other clients are not touched, and is cancelled as any other.

use aulos_core::{Db, Span};
use aulos_engine::announce::{DEFAULT_RELEASE, Ducking, Layer, MAX_DUCK, Priority};
use aulos_engine::generate::TestTone;
use aulos_proto::snap::control::RpcError;
use serde_json::json;

use crate::announcements::calls::announced_target;
use crate::announcements::{AnnouncementEntry, sessions};
use crate::backend::{Announcement, AnnouncementSource, AnnouncementTarget};
use crate::control::context::CallContext;
use crate::control::state::Subjects;
use crate::effects::Effects;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

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
    let (target, station) = announced_target(context, params, TARGETS)?;
    let name = params.text("kind")?;
    let kind = TestTone::named(name)
        .ok_or_else(|| RpcError::invalid_params(&format!("`kind`: unknown {name}")))?;
    let seconds = params.number("seconds")?;
    let (number, _) = context.station(&station)?;
    cancel_former(context, number, &target);
    // The programme is hardly heard: a level or a moment is to be compared.
    let ducking = Ducking { gain: MAX_DUCK, release: DEFAULT_RELEASE };
    let Subjects { announcements: all, clients, .. } = &mut *context.subjects;
    let id = all.next_id();
    let announcement = Announcement {
        id,
        layer: Layer::Announcement,
        target: target.clone(),
        priority: Priority::DEFAULT,
        lead: None,
        source: AnnouncementSource::TestTone(kind, Span::from_secs_f64(seconds)),
        ducking,
        gain: Db::ZERO,
        normalize: false,
        loudness: None,
        key: Some(SCHEME.to_owned()),
    };
    let of_target = |number, target: &_| sessions(&clients.registry, number, target);
    let announced = context.control.backend.announce(number, &announcement, &of_target);
    announced.map_err(internal_error)?;
    let (shown, uri) = (station.clone(), format!("{SCHEME}{name}"));
    let (layer, title, is_playing) = (Layer::Announcement, None, false);
    all.add(AnnouncementEntry {
        id,
        layer,
        priority: Priority::DEFAULT,
        station,
        target,
        number,
        uri,
        title,
        ducking,
        is_playing,
    });
    context.control.sound_added.notify_one();
    context.push_effects(Effects { is_shown: true, ..Effects::default() });
    Ok(json!({ "id": id, "station": shown, "kind": name, "seconds": seconds }).into())
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

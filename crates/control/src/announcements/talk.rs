//! A talk: an announcement of what is spoken into a microphone meanwhile.
//!
//! It is no method of the control API, because its sound follows on the same connection. Its request
//! is checked as the parameters of one, so that names, ranges and reasons are the same.

use aulos_core::{Db, SampleRate, Span};
use aulos_engine::announce::{Ducking, Layer, Priority};
use aulos_proto::snap::control::RpcError;
use aulos_session::talk::{MAX_RATE, MIN_RATE, TalkFormat};
use serde_json::Value;

use crate::access::Role;
use crate::announcements::AnnouncementEntry;
use crate::announcements::calls::{
    RequestedSound, TARGETS, announced_place, priority, queue, volume_gain,
};
use crate::backend::{AnnouncementSource, LiveSound};
use crate::control::calls::run_call;
use crate::control::context::CallContext;
use crate::control::state::Control;
use crate::methods::announcements::{
    SOUND_CLIENT, SOUND_DUCK, SOUND_GROUP, SOUND_RELEASE, SOUND_STATION, SOUND_VOLUME,
    sound_priority,
};
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType, Params, Presence};
use crate::methods::roles::Caller;
use crate::methods::rpc::{MethodResult, method_not_found};

/// A talk that has been admitted.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the request has led to")]
pub struct AdmittedTalk {
    /// The number of the announcement.
    pub id: u64,
    /// The station that plays it.
    pub station: String,
    /// The number of announcements to the same target in front of it.
    pub before: usize,
    /// The format in which the microphone sends.
    pub format: TalkFormat,
}

/// The request of a talk.
const TALK: Method = Method::new(
    "a talk",
    Role::Control,
    "Speak over a station's programme, which is ducked meanwhile",
    not_a_method,
)
.params(&[
    SOUND_STATION,
    SOUND_GROUP,
    SOUND_CLIENT,
    Param::required("format", ParamType::Word(&["opus", "pcm"]), "what the frames are"),
    Param::default(
        "rate",
        ParamType::Number { min: MIN_RATE as f64, max: MAX_RATE as f64 },
        Presence::Number(48_000.0),
        "of `pcm`: samples a second in each channel",
    ),
    Param::default(
        "channels",
        ParamType::Number { min: 1.0, max: 2.0 },
        Presence::Number(1.0),
        "one or two",
    ),
    SOUND_VOLUME,
    SOUND_DUCK,
    SOUND_RELEASE,
    sound_priority(PRIORITY),
])
.exclusive(TARGETS);

/// Above that of other announcements: who speaks does not wait for the end of a weather report.
const PRIORITY: Priority = Priority::new(8);

/// What stands for a talk in place of the URI of a sound.
const URI: &str = "talk:";

/// Queues what a microphone will say, for the target and in the format of this request: a JSON
/// object.
///
/// # Errors
/// The reason, for users to read; then `sound` is dropped.
pub fn admit(
    control: &Control,
    caller: &mut Caller,
    request: &[u8],
    sound: LiveSound,
) -> Result<AdmittedTalk, String> {
    let values: Value = serde_json::from_slice(request)
        .map_err(|error| format!("the request of a talk must be a JSON object: {error}"))?;
    let (admitted, _) = run_call(control, caller, &TALK, |context| {
        TALK.check_and(context, &values, |context, params| queue_talk(context, params, sound))
    });
    control.deliver();
    admitted.map_err(|error| match error.data {
        Some(Value::String(reason)) => reason,
        _ => error.message.into_owned(),
    })
}

fn queue_talk(
    context: &mut CallContext<'_>,
    params: &Params<'_>,
    sound: LiveSound,
) -> Result<AdmittedTalk, RpcError> {
    let place = announced_place(context, params, TARGETS)?;
    let format = format(params)?;
    let release = Span::from_secs_f64(params.number("release_s")?);
    let requested = RequestedSound {
        layer: Layer::Announcement,
        priority: priority(params)?,
        lead: None,
        ducking: Ducking { gain: Db::new(params.number("duck_db")?), release },
        gain: volume_gain(params.number("volume")?),
        // What will be said cannot be measured.
        normalize: false,
        loudness: None,
        key: None,
        title: None,
    };
    let source = (AnnouncementSource::Live(sound), URI.to_owned());
    let entry = queue(context, place, source, requested)?;
    let before = context.subjects.announcements.before(&entry);
    let AnnouncementEntry { id, station, .. } = entry;
    Ok(AdmittedTalk { id, station, before, format })
}

fn format(params: &Params<'_>) -> Result<TalkFormat, RpcError> {
    let channels = if params.number("channels")? < 1.5 { 1 } else { 2 };
    if params.text("format")? == "opus" {
        return Ok(TalkFormat::Opus { channels });
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its range")]
    let rate = SampleRate::new(params.number("rate")?.round() as u32);
    let rate = rate.map_err(|_| params.invalid("rate", &"a sample rate"))?;
    Ok(TalkFormat::Pcm { rate, channels })
}

/// A talk has a sound, which no call has.
fn not_a_method(_: &mut CallContext<'_>, _: &Params<'_>) -> MethodResult {
    Err(method_not_found())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_names_each_parameter_and_its_role() {
        let page = include_str!("../../../../docs/reference/http-api.md");
        for param in TALK.params {
            let row = format!("| `{}` |", param.name);
            assert!(page.contains(&row), "docs/reference/http-api.md has no row `{row}`");
        }
        assert_eq!(TALK.role, crate::methods::find("Aulos.Announce").unwrap().role);
    }
}

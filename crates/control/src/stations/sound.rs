//! Normalizer and equalizer of a station: methods, notifications and saved state.
//!
//! Settings made by a call apply until the configuration of the same station changes. An edited
//! file therefore takes effect, and a restart without an edit does not reset what a call has set.

use aulos_config::{ProcessingSettings, Station};
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::control::context::CallContext;
use crate::control::state::{Control, ControlState};
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::level_json::{loudness, normalizer_json};
use crate::stations::slot::StationSlot;

/// `Aulos.GetLoudness`.
pub(crate) fn get_loudness(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let status = context.control.backend.status(number);
    let sources = slot.station.sources.iter().zip(&status.source_loudness);
    let sources = sources
        .map(|(source, measured)| json!({ "name": source.name, "loudness": loudness(measured) }));
    Ok(json!({
        "station": slot.station.name,
        "loudness": loudness(&status.loudness),
        "sources": sources.collect::<Vec<_>>(),
    }))
}

/// `Aulos.ResetLoudness`.
pub(crate) fn reset_loudness(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    context.control.backend.reset_loudness(number);
    Ok(json!({ "station": slot.station.name }))
}

/// `Aulos.GetNormalize`.
pub(crate) fn get_normalize(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let status = context.control.backend.status(number).normalizer;
    Ok(json!({
        "station": slot.station.name,
        "normalize": slot.station.sound.normalize_json(),
        "status": normalizer_json(status.as_ref(), slot.station.spec.rate),
    }))
}

/// `Aulos.SetNormalize`.
pub(crate) fn set_normalize(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let value = params.value("normalize")?;
    change_sound(context, params, |sound, slot| sound.set_normalize(value, slot.station.spec))?;
    let (_, slot) = context.station_param(params)?;
    Ok(json!({ "station": slot.station.name, "normalize": slot.station.sound.normalize_json() }))
}

/// `Aulos.GetEqualizer`.
pub(crate) fn get_equalizer(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (_, slot) = context.station_param(params)?;
    Ok(json!({ "station": slot.station.name, "equalizer": slot.station.sound.equalizer_json() }))
}

/// `Aulos.SetEqualizer`.
pub(crate) fn set_equalizer(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let value = params.value("equalizer")?;
    change_sound(context, params, |sound, slot| sound.set_equalizer(value, slot.station.spec))?;
    get_equalizer(context, params)
}

/// `Aulos.SetCompare`.
pub(crate) fn set_compare(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let on = params.bool("compare")?;
    let (number, slot) = context.station_param(params)?;
    if slot.station.sound.normalize.is_none() {
        return Err(internal_error("the station is not normalized: there is nothing to compare"));
    }
    let answer = json!({ "station": slot.station.name, "compare": on });
    context.control.backend.set_bypass(number, on);
    context.control.bump_revision();
    let from = context.caller.peer;
    context.control.notify(context.inner, from, "Aulos.OnCompareChanged", &answer);
    Ok(answer)
}

/// Applies a change, saves it and notifies other controllers.
fn change_sound(
    context: &mut CallContext<'_>,
    params: &Params<'_>,
    edit: impl FnOnce(&mut ProcessingSettings, &StationSlot) -> Result<(), String>,
) -> Result<(), RpcError> {
    let (number, slot) = context.station_param(params)?;
    let mut sound = slot.station.sound.clone();
    edit(&mut sound, slot).map_err(|why| RpcError::invalid_params(&why))?;
    if sound == slot.station.sound {
        return Ok(());
    }
    context.control.backend.set_sound(number, &sound).map_err(internal_error)?;
    if let Some(slot) = context.inner.slots[number].as_mut() {
        slot.set_sound(sound);
        let params = sound_json(slot);
        let from = context.caller.peer;
        context.control.notify(context.inner, from, "Aulos.OnSoundChanged", &params);
    }
    context.request_save();
    Ok(())
}

/// A station's sound settings, as notifications and the state file have them.
pub(crate) fn sound_json(slot: &StationSlot) -> Value {
    let mut all = slot.station.sound.json();
    all["station"] = json!(slot.station.name);
    all
}

impl StationSlot {
    /// Sets sound settings, and remembers those of the configuration if they differ.
    fn set_sound(&mut self, sound: ProcessingSettings) {
        let old = std::mem::replace(&mut self.station.sound, sound);
        let file = self.file_sound.take().unwrap_or(old);
        self.file_sound = (file != self.station.sound).then_some(file);
    }

    /// The slot of a replaced station: settings made by calls stay if the configuration's are
    /// unchanged.
    pub(crate) fn successor(&self, station: &Station) -> Self {
        let mut new = Self::new(station.clone(), None);
        if self.file_sound.is_some() && *self.configured_sound() == station.sound {
            new.set_sound(self.station.sound.clone());
        }
        new
    }

    /// The sound settings of the configuration.
    pub(crate) fn configured_sound(&self) -> &ProcessingSettings {
        self.file_sound.as_ref().unwrap_or(&self.station.sound)
    }
}

impl ControlState {
    /// Settings made by calls, each with those of the configuration, for the state file.
    pub(crate) fn sound_overrides(&self) -> Vec<Value> {
        let one = |slot: &StationSlot| {
            let file = slot.file_sound.as_ref()?;
            let mut all = sound_json(slot);
            all["instead_of"] = file.json();
            Some(all)
        };
        self.slots().filter_map(|(_, slot)| one(slot)).collect()
    }
}

impl Control {
    /// Restores settings made by calls, where the configuration is unchanged since.
    pub(crate) fn restore_sounds(&self, inner: &mut ControlState, saved: &[Value]) {
        for saved in saved {
            let Some((number, slot)) = saved["station"].as_str().and_then(|name| inner.slot(name))
            else {
                continue;
            };
            let name = &slot.station.name;
            if saved["instead_of"] != slot.station.sound.json() {
                tracing::info!(
                    name,
                    "sound settings of earlier calls are dropped: the configuration has changed"
                );
                continue;
            }
            let sound = ProcessingSettings::from_json(saved, slot.station.spec);
            let set = sound.and_then(|sound| {
                self.backend.set_sound(number, &sound)?;
                Ok(sound)
            });
            match (set, inner.slots[number].as_mut()) {
                (Ok(sound), Some(slot)) => slot.set_sound(sound),
                (Err(why), _) => {
                    tracing::warn!(number, "cannot restore sound settings of earlier calls: {why}");
                }
                (Ok(_), None) => {}
            }
        }
    }
}

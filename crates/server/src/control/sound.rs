//! Normalizer and equalizer of a station: methods, notifications and saved state.
//!
//! Settings made by a call apply until the configuration of the same station changes. An edited
//! file therefore takes effect, and a restart without an edit does not reset what a call has set.

use aulos_config::{SoundSettings, Station};
use aulos_core::{Db, Lufs, SampleRate};
use aulos_dsp::normalize::LoudnessStats;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::methods::{MethodResult, invalid_param, text_param};
use super::rpc::internal_error;
use super::status_json::{self, round_to_hundredths};
use super::streams::StationSlot;
use super::{CallContext, Control, ControlState};
use crate::backend::NormalizerStatus;
use crate::registry::NotFound;

/// `Aulos.GetNormalize {station}`.
pub(super) fn get_normalize(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let (number, slot) = station_slot(state, params)?;
    let steadiness = state.control.backend.status(number).normalizer;
    Ok(json!({
        "station": slot.station.name,
        "normalize": slot.station.sound.normalize_json(),
        "status": normalizer_json(steadiness.as_ref(), slot.station.spec.rate),
    }))
}

/// `Aulos.SetNormalize {station, normalize}`.
pub(super) fn set_normalize(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let value = required_param(params, "normalize", "true, false, a preset or an object")?;
    change_sound(state, params, |sound, slot| sound.set_normalize(value, slot.station.spec))?;
    let (_, slot) = station_slot(state, params)?;
    Ok(json!({ "station": slot.station.name, "normalize": slot.station.sound.normalize_json() }))
}

/// `Aulos.GetEqualizer {station}`.
pub(super) fn get_equalizer(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let (_, slot) = station_slot(state, params)?;
    Ok(json!({ "station": slot.station.name, "equalizer": slot.station.sound.equalizer_json() }))
}

/// `Aulos.SetEqualizer {station, equalizer}`.
pub(super) fn set_equalizer(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let value = required_param(params, "equalizer", "a list of bands")?;
    change_sound(state, params, |sound, slot| sound.set_equalizer(value, slot.station.spec))?;
    get_equalizer(state, params)
}

/// `Aulos.SetCompare {station, compare}`.
pub(super) fn set_compare(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let on =
        params["compare"].as_bool().ok_or_else(|| invalid_param("compare", "true or false"))?;
    let (number, slot) = station_slot(state, params)?;
    if slot.station.sound.normalize.is_none() {
        return Err(internal_error("the station is not normalized: there is nothing to compare"));
    }
    let name = slot.station.name.clone();
    state.control.backend.set_bypass(number, on);
    state.control.bump_revision();
    let answer = json!({ "station": name, "compare": on });
    state.control.notify(state.inner, state.caller.peer, "Aulos.OnCompareChanged", &answer);
    Ok(answer)
}

fn station_slot<'a>(
    state: &'a CallContext<'_>,
    params: &Value,
) -> Result<(usize, &'a StationSlot), RpcError> {
    Ok(state.inner.slot(text_param(params, "station")?).ok_or(NotFound::Station)?)
}

fn required_param<'a>(
    params: &'a Value,
    key: &'static str,
    kind: &str,
) -> Result<&'a Value, RpcError> {
    params.get(key).ok_or_else(|| invalid_param(key, kind))
}

/// Applies a change, saves it and notifies other controllers.
fn change_sound(
    state: &mut CallContext<'_>,
    params: &Value,
    edit: impl FnOnce(&mut SoundSettings, &StationSlot) -> Result<(), String>,
) -> Result<(), RpcError> {
    let (number, slot) = station_slot(state, params)?;
    let mut sound = slot.station.sound.clone();
    edit(&mut sound, slot).map_err(|why| RpcError::invalid_params(&why))?;
    if sound == slot.station.sound {
        return Ok(());
    }
    state.control.backend.set_sound(number, &sound).map_err(internal_error)?;
    if let Some(slot) = state.inner.slots[number].as_mut() {
        slot.set_sound(sound);
        let params = sound_json(slot);
        state.control.notify(state.inner, state.caller.peer, "Aulos.OnSoundChanged", &params);
    }
    state.request_save();
    Ok(())
}

impl Control {
    /// The loudness of a station and its sources.
    pub(super) fn loudness_json(&self, inner: &ControlState, number: usize) -> Value {
        let status = self.backend.status(number);
        let station = inner.slots.get(number).and_then(Option::as_ref).map(|slot| &slot.station);
        let sources = station.map_or(&[][..], |station| &station.sources);
        let sources = sources.iter().zip(&status.source_loudness).map(|(source, loudness)| {
            json!({ "name": source.name, "loudness": status_json::loudness(loudness) })
        });
        json!({
            "station": station.map(|station| &station.name),
            "loudness": status_json::loudness(&status.loudness),
            "sources": sources.collect::<Vec<_>>(),
        })
    }
}

/// A station's sound settings, as notifications and the state file have them.
pub(super) fn sound_json(slot: &StationSlot) -> Value {
    let mut all = slot.station.sound.json();
    all["station"] = json!(slot.station.name);
    all
}

impl StationSlot {
    /// Sets sound settings, and remembers those of the configuration if they differ.
    fn set_sound(&mut self, sound: SoundSettings) {
        let old = std::mem::replace(&mut self.station.sound, sound);
        let file = self.file_sound.take().unwrap_or(old);
        self.file_sound = (file != self.station.sound).then_some(file);
    }

    /// The slot of a replaced station: settings made by calls stay if the configuration's are
    /// unchanged.
    pub(super) fn successor(&self, station: &Station) -> Self {
        let mut new = Self::new(station.clone(), None);
        if self.file_sound.is_some() && *self.configured_sound() == station.sound {
            new.set_sound(self.station.sound.clone());
        }
        new
    }

    /// The sound settings of the configuration.
    pub(super) fn configured_sound(&self) -> &SoundSettings {
        self.file_sound.as_ref().unwrap_or(&self.station.sound)
    }
}

impl ControlState {
    /// Settings made by calls, each with those of the configuration, for the state file.
    pub(super) fn sound_overrides(&self) -> Vec<Value> {
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
    pub(super) fn restore_sounds(&self, inner: &mut ControlState, saved: &[Value]) {
        for saved in saved {
            let Some((number, slot)) = saved["station"].as_str().and_then(|name| inner.slot(name))
            else {
                continue;
            };
            let name = &slot.station.name;
            if saved["instead_of"] != slot.station.sound.json() {
                tracing::info!(
                    name,
                    "the configuration says something else about its loudness now"
                );
                continue;
            }
            let sound = SoundSettings::from_json(saved, slot.station.spec);
            let set = sound.and_then(|sound| {
                self.backend.set_sound(number, &sound)?;
                Ok(sound)
            });
            match (set, inner.slots[number].as_mut()) {
                (Ok(sound), Some(slot)) => slot.set_sound(sound),
                (Err(why), _) => tracing::warn!(number, "what was set before cannot be: {why}"),
                (Ok(_), None) => {}
            }
        }
    }
}

/// The state of a normalizer, rounded to hundredths; missing values are null.
pub(super) fn normalizer_json(steadiness: Option<&NormalizerStatus>, rate: SampleRate) -> Value {
    let Some(steady) = steadiness else { return Value::Null };
    let programme = &steady.programme_stats;
    json!({
        "latency_frames": steady.latency.0,
        "latency_ms": round_to_hundredths(rate.span(steady.latency).as_nanos() as f64 / 1e6),
        "compare": steady.bypassed,
        "matching_gain_db": db(steady.matching_gain),
        "gain_db": db(programme.gain),
        "reduction_db": db(steady.reduction),
        "level_lufs": lufs(programme.level),
        "clamped": steady.clamped,
        "rejected": programme.rejected,
        "input": figures(&programme.input),
        "output": figures(&programme.output),
    })
}

fn figures(figures: &LoudnessStats) -> Value {
    json!({
        "momentary_lufs": lufs(figures.momentary),
        "short_term_lufs": lufs(figures.short_term),
        "integrated_lufs": lufs(figures.integrated),
        "loudness_range_lu": db(figures.range),
        "true_peak_dbtp": db(figures.true_peak),
    })
}

fn lufs(value: Lufs) -> Option<f64> {
    Some(round_to_hundredths(value.get())).filter(|value| value.is_finite())
}

fn db(value: Db) -> Option<f64> {
    // Avoids -0.0 in the output.
    Some(round_to_hundredths(value.get()) + 0.0).filter(|value| value.is_finite())
}

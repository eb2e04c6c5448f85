//! Normaliser and equaliser of a station: what a call changes, who hears of it, what is kept.
//!
//! What a call has set holds until the configuration says something else about it than it did then:
//! somebody who edits the file wants what he writes, and somebody who turned a knob does not want it
//! back where it was because the server was started again.

use aulos_config::{Sound, Station};
use aulos_core::{Db, Lufs, SampleRate};
use aulos_dsp::normalize::Figures;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::methods::{Answer, text, wanted};
use super::rpc::internal;
use super::shape::{self, hundredth};
use super::streams::Slot;
use super::{Control, Inner, State};
use crate::house::Steadiness;
use crate::registry::NotFound;

/// `Aulos.GetNormalize {station}`.
pub(super) fn get_normalize(state: &mut State<'_>, params: &Value) -> Answer {
    let (number, slot) = slot(state, params)?;
    let steadiness = state.control.house.status(number).steadiness;
    Ok(json!({
        "station": slot.station.name,
        "normalize": slot.station.sound.normalize_json(),
        "status": steadiness_json(steadiness.as_ref(), slot.station.spec.rate),
    }))
}

/// `Aulos.SetNormalize {station, normalize}`.
pub(super) fn set_normalize(state: &mut State<'_>, params: &Value) -> Answer {
    let wish = given(params, "normalize", "true, false, a preset or an object")?;
    change(state, params, |sound, slot| sound.set_normalize(wish, slot.station.spec))?;
    let (_, slot) = slot(state, params)?;
    Ok(json!({ "station": slot.station.name, "normalize": slot.station.sound.normalize_json() }))
}

/// `Aulos.GetEqualizer {station}`.
pub(super) fn get_equalizer(state: &mut State<'_>, params: &Value) -> Answer {
    let (_, slot) = slot(state, params)?;
    Ok(json!({ "station": slot.station.name, "equalizer": slot.station.sound.equalizer_json() }))
}

/// `Aulos.SetEqualizer {station, equalizer}`.
pub(super) fn set_equalizer(state: &mut State<'_>, params: &Value) -> Answer {
    let wish = given(params, "equalizer", "a list of bands")?;
    change(state, params, |sound, slot| sound.set_equalizer(wish, slot.station.spec))?;
    get_equalizer(state, params)
}

/// `Aulos.SetCompare {station, compare}`.
pub(super) fn set_compare(state: &mut State<'_>, params: &Value) -> Answer {
    let on = params["compare"].as_bool().ok_or_else(|| wanted("compare", "true or false"))?;
    let (number, slot) = slot(state, params)?;
    if slot.station.sound.normalize.is_none() {
        return Err(internal("the station is not normalized: there is nothing to compare"));
    }
    let name = slot.station.name.clone();
    state.control.house.compare(number, on);
    state.control.changed();
    let answer = json!({ "station": name, "compare": on });
    state.control.tell(state.inner, state.caller.peer, "Aulos.OnCompareChanged", &answer);
    Ok(answer)
}

fn slot<'a>(state: &'a State<'_>, params: &Value) -> Result<(usize, &'a Slot), RpcError> {
    Ok(state.inner.slot(text(params, "station")?).ok_or(NotFound::Station)?)
}

fn given<'a>(params: &'a Value, key: &'static str, kind: &str) -> Result<&'a Value, RpcError> {
    params.get(key).ok_or_else(|| wanted(key, kind))
}

/// Carries out what differs, keeps it, and tells the others.
fn change(
    state: &mut State<'_>,
    params: &Value,
    edit: impl FnOnce(&mut Sound, &Slot) -> Result<(), String>,
) -> Result<(), RpcError> {
    let (number, slot) = slot(state, params)?;
    let mut sound = slot.station.sound.clone();
    edit(&mut sound, slot).map_err(|why| RpcError::invalid_params(&why))?;
    if sound == slot.station.sound {
        return Ok(());
    }
    state.control.house.set_sound(number, &sound).map_err(internal)?;
    if let Some(slot) = state.inner.slots[number].as_mut() {
        slot.turn(sound);
        let params = told(slot);
        state.control.tell(state.inner, state.caller.peer, "Aulos.OnSoundChanged", &params);
    }
    state.keep_saved();
    Ok(())
}

impl Control {
    /// How loud a station and its sources are.
    pub(super) fn loudness_json(&self, inner: &Inner, number: usize) -> Value {
        let status = self.house.status(number);
        let station = inner.slots.get(number).and_then(Option::as_ref).map(|slot| &slot.station);
        let sources = station.map_or(&[][..], |station| &station.sources);
        let sources = sources.iter().zip(&status.source_loudness).map(|(source, loudness)| {
            json!({ "name": source.name, "loudness": shape::loudness(loudness) })
        });
        json!({
            "station": station.map(|station| &station.name),
            "loudness": shape::loudness(&status.loudness),
            "sources": sources.collect::<Vec<_>>(),
        })
    }
}

/// What others hear of a station's sound.
pub(super) fn told(slot: &Slot) -> Value {
    let mut all = slot.station.sound.json();
    all["station"] = json!(slot.station.name);
    all
}

impl Slot {
    /// Something else than the configuration says, or that again.
    fn turn(&mut self, sound: Sound) {
        let old = std::mem::replace(&mut self.station.sound, sound);
        let file = self.file_sound.take().unwrap_or(old);
        self.file_sound = (file != self.station.sound).then_some(file);
    }

    /// The slot of another station of this name: what a call has set holds on where the configuration
    /// says the same about it.
    pub(super) fn successor(&self, station: &Station) -> Self {
        let mut new = Self::new(station.clone(), None);
        if self.file_sound.is_some() && *self.asked() == station.sound {
            new.turn(self.station.sound.clone());
        }
        new
    }

    /// The sound that the configuration asks for.
    pub(super) fn asked(&self) -> &Sound {
        self.file_sound.as_ref().unwrap_or(&self.station.sound)
    }
}

impl Inner {
    /// What calls have set, to be kept, each with what the configuration said.
    pub(super) fn turned(&self) -> Vec<Value> {
        let one = |slot: &Slot| {
            let file = slot.file_sound.as_ref()?;
            let mut all = told(slot);
            all["instead_of"] = file.json();
            Some(all)
        };
        self.slots().filter_map(|(_, slot)| one(slot)).collect()
    }
}

impl Control {
    /// Puts back what calls had set, where the configuration says the same as then.
    pub(super) fn restore_sounds(&self, inner: &mut Inner, saved: &[Value]) {
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
            let sound = Sound::from_json(saved, slot.station.spec);
            let set = sound.and_then(|sound| {
                self.house.set_sound(number, &sound)?;
                Ok(sound)
            });
            match (set, inner.slots[number].as_mut()) {
                (Ok(sound), Some(slot)) => slot.turn(sound),
                (Err(why), _) => tracing::warn!(number, "what was set before cannot be: {why}"),
                (Ok(_), None) => {}
            }
        }
    }
}

/// What a normaliser does, in hundredths; what does not exist is null.
pub(super) fn steadiness_json(steadiness: Option<&Steadiness>, rate: SampleRate) -> Value {
    let Some(steady) = steadiness else { return Value::Null };
    let programme = &steady.programme;
    json!({
        "latency_frames": steady.latency.0,
        "latency_ms": hundredth(rate.span(steady.latency).as_nanos() as f64 / 1e6),
        "compare": steady.comparing,
        "matching_gain_db": db(steady.matching),
        "gain_db": db(programme.gain),
        "reduction_db": db(steady.reduction),
        "level_lufs": lufs(programme.level),
        "clamped": steady.clamped,
        "rejected": programme.rejected,
        "input": figures(&programme.input),
        "output": figures(&programme.output),
    })
}

fn figures(figures: &Figures) -> Value {
    json!({
        "momentary_lufs": lufs(figures.momentary),
        "short_term_lufs": lufs(figures.short_term),
        "integrated_lufs": lufs(figures.integrated),
        "loudness_range_lu": db(figures.range),
        "true_peak_dbtp": db(figures.true_peak),
    })
}

fn lufs(value: Lufs) -> Option<f64> {
    Some(hundredth(value.get())).filter(|value| value.is_finite())
}

fn db(value: Db) -> Option<f64> {
    // Not -0.0: somebody reads it.
    Some(hundredth(value.get()) + 0.0).filter(|value| value.is_finite())
}

//! Calls about the sound of a client.

use std::sync::Arc;

use aulos_config::client_sound::{chain_from_json, chain_json};
use aulos_core::{Db, SampleRate};
use aulos_dsp::sound::{
    ImportOptions, ImportProblem, ImportWarning, ImportedChain, SoundChain, SoundPreset, export,
    import, response_frequencies,
};
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::clients::registry::{NotFound, SoundError, check_sound, set_sound};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

/// `Aulos.SetClientSound`.
pub(crate) fn set_client_sound(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("client")?;
    let rate = rate_of(context, id)?;
    let (chain, warnings) = requested_chain(params, rate)?;
    let chain = chain.map(Arc::new);
    let limit = usize::from(context.control.config().clients.max_sounds);
    let mut answer = sound_json(id, chain.as_deref(), rate);
    answer["warnings"] = warnings.iter().map(warning_json).collect();
    if params.bool("dry_run")? {
        let registry = &context.subjects.clients.registry;
        if let Some(chain) = &chain {
            check_sound(registry, id, chain, limit).map_err(refused)?;
        }
        return Ok(answer.into());
    }
    let registry = &mut context.subjects.clients.registry;
    let effects = set_sound(registry, id, chain, limit).map_err(refused)?;
    context.push_effects(effects);
    Ok(answer.into())
}

/// `Aulos.GetClientSound`.
pub(crate) fn get_client_sound(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("client")?;
    let rate = rate_of(context, id)?;
    let client = context.subjects.clients.registry.table.client(id);
    let chain = client.and_then(|(_, client)| client.chain.clone());
    let mut answer = sound_json(id, chain.as_deref(), rate);
    answer["presets"] = json!(SoundPreset::NAMES);
    Ok(answer.into())
}

/// The chain of a call, with what is to be said about it; `None` for no processing.
fn requested_chain(
    params: &Params<'_>,
    rate: SampleRate,
) -> Result<(Option<SoundChain>, Vec<ImportWarning>), RpcError> {
    match params.only_one(&["chain", "text", "preset"])? {
        "chain" => {
            let chain = chain_from_json(params.value("chain")?, rate);
            let chain =
                chain.map_err(|why| RpcError::invalid_params(&format!("`chain`: {why}")))?;
            Ok((Some(chain), Vec::new()))
        }
        "text" => {
            let options = ImportOptions { rate, lenient: params.bool("lenient")? };
            let imported = import(params.text("text")?, options).map_err(|why| text_error(&why))?;
            let ImportedChain { chain, warnings } = imported;
            Ok((Some(chain), warnings))
        }
        _ => {
            let preset = SoundPreset::named(params.text("preset")?);
            Ok((preset.and_then(SoundPreset::chain), Vec::new()))
        }
    }
}

/// The sample rate of a client's station, for which widths are converted and limits hold.
fn rate_of(context: &CallContext<'_>, id: &str) -> Result<SampleRate, RpcError> {
    let subjects = &context.subjects;
    let (group, _) = subjects.clients.registry.table.client(id).ok_or(NotFound::Client)?;
    let slot = subjects.stations.find(&group.station);
    Ok(slot.map_or(SampleRate::HZ_48000, |(_, slot)| slot.station.spec.rate))
}

fn sound_json(id: &str, chain: Option<&SoundChain>, rate: SampleRate) -> Value {
    let Some(chain) = chain else { return json!({ "client": id, "chain": null }) };
    let frequencies: Vec<f64> = response_frequencies(rate).collect();
    let response = frequencies.iter().map(|hz| chain.response(*hz, rate));
    let (left, right): (Vec<f64>, Vec<f64>) =
        response.map(|[left, right]| (rounded(left), rounded(right))).unzip();
    json!({
        "client": id,
        "chain": chain_json(chain),
        "text": export(chain),
        "preamp_db": rounded(chain.effective_preamp(rate)),
        "peak_db": rounded(chain.peak(rate)),
        "response": {
            "hz": frequencies.iter().map(|hz| (hz * 10.0).round() / 10.0).collect::<Vec<_>>(),
            "left_db": left,
            "right_db": right,
        },
    })
}

fn warning_json(warning: &ImportWarning) -> Value {
    json!({ "line": warning.line, "message": warning.reason.to_string() })
}

fn text_error(problems: &[ImportProblem]) -> RpcError {
    let mut said: Vec<String> =
        problems.iter().take(MAX_REPORTED).map(ToString::to_string).collect();
    if let Some(more) = problems.len().checked_sub(MAX_REPORTED).filter(|more| *more > 0) {
        said.push(format!("{more} more"));
    }
    RpcError::invalid_params(&format!("`text`: {}", said.join("; ")))
}

fn refused(error: SoundError) -> RpcError {
    internal_error(error.to_string())
}

/// In hundredths of a dB, and never -0. A notch has no level, and JSON no infinity.
fn rounded(db: Db) -> f64 {
    (db.get().max(LOWEST_DB) * 100.0).round() / 100.0 + 0.0
}

/// Problems of a text in one message.
const MAX_REPORTED: usize = 8;

/// The lowest level in an answer.
const LOWEST_DB: f64 = -120.0;

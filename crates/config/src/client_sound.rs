//! The sound of a client in JSON, as controllers and the state file have it.

use aulos_core::{ChannelMap, Db, SampleRate, SampleSpec};
use aulos_dsp::sound::{ChannelChain, Headroom, SoundChain};
use serde_json::{Value as Json, json};

use crate::keys::{NamedEnum, keys, table_of};
use crate::limits::{CHANNEL_DELAY_MS, CHANNEL_GAIN_DB, PREAMP_DB};
use crate::problem::Problems;
use crate::station::sound::{BandConfig, bands_json, resolve_equalizer};
use crate::tree;

keys! {
    /// Sound of a client.
    struct ChainKeys {
        /// Gain of all channels.
        preamp_db: Option<f64>, range PREAMP_DB, "dB", default_doc "what `headroom` needs";
        /// What keeps a response above 0 dB from clipping.
        headroom: Option<Headroom>, default_doc "`lower`";
        /// Channels that the client plays.
        channels: Option<ChannelMap>, default_doc "those of `Aulos.SetChannelMap`";
        /// Processing of both channels.
        both: Option<ChannelKeys>;
        /// Processing of the left channel.
        left: Option<ChannelKeys>;
        /// Processing of the right channel.
        right: Option<ChannelKeys>;
    }

    /// Processing of a channel.
    struct ChannelKeys {
        /// Gain.
        gain_db: f64 = 0.0, range CHANNEL_GAIN_DB, "dB";
        /// Delay; only the difference between the channels is audible.
        delay_ms: f64 = 0.0, range CHANNEL_DELAY_MS, "ms";
        /// Filters.
        bands: Vec<BandConfig>;
    }
}

impl NamedEnum for Headroom {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|kind| (kind.name(), kind)).to_vec()
    }
}

impl NamedEnum for ChannelMap {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|map| (map.name(), map)).to_vec()
    }
}

/// The JSON form of a chain, which [`chain_from_json`] reads back.
#[must_use]
pub fn chain_json(chain: &SoundChain) -> Json {
    let mut json = json!({ "headroom": chain.headroom.name() });
    if let Some(preamp) = chain.preamp {
        json["preamp_db"] = json!(preamp.get());
    }
    if chain.map != ChannelMap::Stereo {
        json["channels"] = json!(chain.map.name());
    }
    if chain.left == chain.right {
        json["both"] = channel_json(&chain.left);
    } else {
        (json["left"], json["right"]) = (channel_json(&chain.left), channel_json(&chain.right));
    }
    json
}

fn channel_json(channel: &ChannelChain) -> Json {
    json!({
        "gain_db": channel.gain.get(),
        "delay_ms": channel.delay_ms(),
        "bands": bands_json(&channel.bands),
    })
}

/// Reads a chain for a station of this rate.
///
/// # Errors
/// What is wrong with it, for display.
pub fn chain_from_json(json: &Json, rate: SampleRate) -> Result<SoundChain, String> {
    let problems = Problems::default();
    if !json.is_object() {
        return Err("a sound is a table of keys".to_owned());
    }
    let keys: ChainKeys = table_of(&tree::from_json(json), "", &problems);
    let spec = SampleSpec { rate, ..SampleSpec::DEFAULT };
    let both = keys.both.as_ref().map(|both| resolve_channel(both, spec, &problems));
    let side = |side: Option<&ChannelKeys>| {
        let own = side.map(|side| resolve_channel(side, spec, &problems));
        own.or_else(|| both.clone()).unwrap_or_default()
    };
    let chain = SoundChain {
        preamp: keys.preamp_db.map(Db::new),
        headroom: keys.headroom.unwrap_or_default(),
        map: keys.channels.unwrap_or_default(),
        left: side(keys.left.as_ref()),
        right: side(keys.right.as_ref()),
    };
    if !problems.is_empty() {
        return Err(problems.errors_as_line());
    }
    if keys.both.is_some() && (keys.left.is_some() || keys.right.is_some()) {
        return Err("`both` excludes `left` and `right`".to_owned());
    }
    chain.validate(rate).map_err(|wrong| wrong.to_string())?;
    Ok(chain)
}

fn resolve_channel(keys: &ChannelKeys, spec: SampleSpec, problems: &Problems) -> ChannelChain {
    ChannelChain {
        gain: Db::new(keys.gain_db),
        delay: ChannelChain::delay_of_ms(keys.delay_ms),
        bands: resolve_equalizer(&keys.bands, spec, problems),
    }
}

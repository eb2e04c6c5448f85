//! Sounds of clients.

use aulos_core::{ChannelMap, Db, SampleRate, Span};
use aulos_dsp::sound::{Headroom, SoundPreset};
use serde_json::json;

use crate::client_sound::{chain_from_json, chain_json};

const RATE: SampleRate = SampleRate::HZ_48000;

#[test]
fn a_chain_is_read_whole_and_back() {
    let written = json!({
        "preamp_db": -4.5, "headroom": "limiter", "channels": "swap",
        "left": { "delay_ms": 2.5, "bands": [{ "type": "all-pass", "hz": 300 }] },
        "right": { "gain_db": -3 },
    });
    let chain = chain_from_json(&written, RATE).unwrap();
    assert_eq!((chain.preamp, chain.headroom), (Some(Db::new(-4.5)), Headroom::Limiter));
    assert_eq!((chain.map, chain.left.delay), (ChannelMap::Swap, Span::from_micros(2_500)));
    assert_eq!((chain.left.bands.len(), chain.right.gain), (1, Db::new(-3.0)));
    for chain in SoundPreset::ALL.into_iter().filter_map(SoundPreset::chain).chain([chain]) {
        assert_eq!(chain_from_json(&chain_json(&chain), RATE), Ok(chain));
    }
}

#[test]
fn what_is_no_chain_is_refused_with_its_reason() {
    let band = json!({ "type": "high-pass", "hz": 30 });
    for (written, why) in [
        (json!([]), "a table of keys"),
        (json!({ "both": {}, "right": {} }), "excludes"),
        (json!({ "bands": [] }), "bands"),
        (json!({ "preamp_db": 41 }), "-40 to 40"),
        (json!({ "channels": "front" }), "front"),
        (json!({ "channels": "9" }), "9"),
        (json!({ "both": { "bands": [{ "type": "band-pass", "hz": 30 }] } }), "band-pass"),
        (json!({ "both": { "bands": [{ "type": "notch", "hz": 23_000 }] } }), "10 to 21600"),
        (json!({ "both": { "bands": vec![band; 17] } }), "at most 16 bands"),
    ] {
        let found = chain_from_json(&written, RATE).unwrap_err();
        assert!(found.contains(why), "{written}: {found}");
    }
}

//! The normalizer and the equalizer.

use super::*;

#[test]
fn a_normalizer_and_an_equalizer_are_read_whole() {
    let sound = |keys: &str, sets: &[&str]| {
        let text = station(&format!("sources = [\"demo:\"]\n{keys}"));
        let loaded = load_text(&text, sets).unwrap_or_else(|error| panic!("{error}"));
        loaded.stations.into_iter().next().unwrap().sound
    };
    assert_eq!(sound("", &[]), ProcessingSettings::default());
    assert_eq!(sound("normalize = false", &[]), ProcessingSettings::default());
    let all = sound(
        r#"normalize = { preset = "podcast", mode = "mid", true_peak = -2, lra = 4.5,
            min_gain_db = -10, max_gain_db = 6, rise_db_s = 1, fall_db_s = 20, gate_lufs = -60,
            memory_s = "endless" }
        equalizer = [
            { type = "high-pass", hz = 40 },
            { type = "peaking", hz = 100, gain_db = -3.0, q = 1.0 },
        ]"#,
        &["station.a.normalize.memory_s=30", "station.0.equalizer.1.q=2"],
    );
    golden("sound", &format!("{:#}\n", all.json()));
    // The JSON form is read back unchanged.
    assert_eq!(ProcessingSettings::from_json(&all.json(), SampleSpec::DEFAULT), Ok(all));
    // A source with its own normalizer.
    let text = station("sources = [{ uri = \"demo:\", normalize = { target = -18 } }, \"tone:\"]");
    let loaded = load_text(&text, &["station.a.sources.1.normalize.mode=low"]).unwrap();
    let modes: Vec<_> = loaded.stations[0]
        .sources
        .iter()
        .map(|source| source.normalize.as_ref().map(|one| (one.mode, one.settings.target.get())))
        .collect();
    assert_eq!(modes, [Some((LookAhead::Mid, -18.0)), Some((LookAhead::Low, -23.0))]);
    let preset = |keys: &str, sets: &[&str]| sound(keys, sets).normalize_json()["target"].clone();
    assert_eq!(preset("normalize = \"a85\"", &[]), -24.0);
    assert_eq!(preset("normalize = true", &[]), -23.0);
    assert_eq!(preset("", &["station.0.normalize.target=-18"]), -18.0);
    assert_eq!(preset("", &["station.0.normalize=stream-14"]), -14.0);
}

#[test]
fn what_is_wrong_with_a_sound_is_told_at_once() {
    let text = r#"
[[station]]
name = "a"
sources = ["demo:"]
normalize = { target = 3, true_peak = -12, mode = "ful", range = 7, preset = "r182", memory_s = 5,
  lra = "x", dual_mono = true }
equalizer = [
  { type = "peking", hz = 100 }, { type = "notch", hz = 23000, gain_db = 1 }, { hz = 5 },
  { type = "low-shelf", hz = 100, gain_db = 30, q = 0 }, { type = "peaking", hz = 100 }, 7,
]
[[station]]
name = "b"
sources = ["demo:"]
normalize = "louder"
equalizer = "bass"
[[station]]
name = "c"
sources = ["demo:"]
normalize = 3
"#;
    golden("sound_wrong", &first_problem(text, &["station.2.normalize.gain=4"]));
}

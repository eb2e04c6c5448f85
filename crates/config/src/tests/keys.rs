//! Old keys, warnings, and what the table of keys says about other crates.

use super::*;
use aulos_core::{Lufs, SampleRate};
use aulos_dsp::equalizer::{EqualizerBand, FilterType};
use aulos_dsp::normalize::{Memory, Settings};

#[test]
fn old_keys_are_read_with_a_warning_that_names_the_new_one() {
    let text = station(
        "sources = [\"demo://\"]\nswitch = { comeback = \"never\" }\n\
         [[relay]]\nlisten = \"udp://127.0.0.1:6000\"\nfrom = \"pcmu\"\nto = \"pcma\"\n\
         dest = \"udp://192.0.2.7:7000\"\nevents = 101",
    );
    let loaded = load_text(&text, &["station.a.switch.hold_in_s=9"]).unwrap();
    let switch = loaded.stations[0].switch;
    let nine = Span::from_secs(9);
    assert_eq!((switch.failback_delay, switch.failback), (nine, FailbackMode::Never));
    assert_eq!(loaded.relays[0].dtmf.unwrap().to, 101);
    let warnings = loaded.warnings.join("\n");
    for line in [
        "aulos.toml:4:12: warning: `comeback` is an old name of `failback`; write `failback`",
        "aulos.toml:10:1: warning: `events` is an old name of `dtmf`; write `dtmf`",
        "--set station.a.switch.hold_in_s=9: warning: `hold_in_s` is an old name of `failback_delay_s`",
    ] {
        assert!(warnings.contains(line), "{line}\n{warnings}");
    }
    let new = rename_old_keys(ConfigFile { name: "aulos.toml", text: &text }).unwrap();
    let fixed = load_text(&new.text, &[]).unwrap();
    let failback = fixed.stations[0].switch.failback;
    assert_eq!((fixed.warnings.len(), failback), (0, FailbackMode::Never));
}

#[test]
fn of_an_old_and_a_new_key_the_later_set_counts_and_a_file_with_both_is_wrong() {
    let text = station("sources = [\"demo://\"]\nswitch = { hold_in_s = 7 }");
    let loaded = load_text(&text, &["station.a.switch.failback_delay_s=9"]).unwrap();
    assert_eq!(loaded.stations[0].switch.failback_delay, Span::from_secs(9));
    let both = text.replace("= 7", "= 7, failback_delay_s = 8");
    let error = load_text(&both, &[]).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("aulos.toml:4:27: `hold_in_s` and `failback_delay_s` are the same key"),
        "{told}"
    );
    assert!(told.contains("warning: `hold_in_s`"), "{told}");
}

#[test]
fn the_ranges_of_normalizer_and_equalizer_are_those_of_the_signal_processing() {
    type Set = fn(&mut Settings, f64);
    let normalizer: [(_, Set); 8] = [
        (limits::TARGET_LUFS, |all, value| all.target = Lufs::new(value)),
        (limits::TRUE_PEAK, |all, value| all.ceiling = Db::new(value)),
        (limits::LRA, |all, value| all.tolerance = Db::new(value)),
        (limits::MIN_GAIN_DB, |all, value| all.min_gain = Db::new(value)),
        (limits::MAX_GAIN_DB, |all, value| all.max_gain = Db::new(value)),
        (limits::RISE_DB_S, |all, value| all.max_rise = Db::new(value)),
        (limits::FALL_DB_S, |all, value| all.max_fall = Db::new(value)),
        (limits::GATE_LUFS, |all, value| all.gate = Lufs::new(value)),
    ];
    for (range, set) in normalizer {
        let is_valid = |value: f64| {
            let mut all = Settings::default();
            set(&mut all, value);
            all.validate().is_ok()
        };
        let (low, high) = (*range.start(), *range.end());
        let found = [low - 0.01, low, high, high + 0.01].map(is_valid);
        assert_eq!(found, [false, true, true, false], "{range:?}");
    }
    let is_valid = |seconds| {
        let memory = Memory::Sliding { seconds };
        Settings { memory, ..Settings::default() }.validate().is_ok()
    };
    let (low, high) = (*limits::MEMORY_S.start(), *limits::MEMORY_S.end());
    assert_eq!([low - 1, low, high, high + 1].map(is_valid), [false, true, true, false]);
    let is_valid = |gain, q| {
        let filter_type = FilterType::Peaking;
        let rate = SampleRate::new(48_000).unwrap();
        EqualizerBand { filter_type, hz: 1e3, gain: Db::new(gain), q }.validate(rate).is_ok()
    };
    let (low, high) = (*limits::BAND_GAIN_DB.start(), *limits::BAND_GAIN_DB.end());
    let found = [low - 0.01, low, high, high + 0.01].map(|gain| is_valid(gain, 1.0));
    assert_eq!(found, [false, true, true, false]);
    let (low, high) = (*limits::BAND_Q.start(), *limits::BAND_Q.end());
    let found = [low - 0.01, low, high, high + 0.01].map(|q| is_valid(0.0, q));
    assert_eq!(found, [false, true, true, false]);
}

#[test]
fn a_misspelt_key_is_one_problem() {
    let error = first_problem("[[station]]\nnaem = \"a\"\nsources = [\"demo://\"]\n", &[]);
    let expected =
        "aulos.toml:2:1: unknown key `naem` in `station.0`\n    hint: did you mean `name`?";
    assert_eq!(error.trim_end(), expected);
    // A key that nothing resembles is missing.
    let error = first_problem("[[station]]\nsources = [\"demo://\"]\n", &[]);
    assert!(error.contains("`station.0` has no `name`"), "{error}");
}

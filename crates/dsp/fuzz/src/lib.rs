//! Fuzz targets: each accepts arbitrary bytes and checks a property of a parser.
//!
//! They are plain functions, so that `cargo test` runs them on the corpus and on seeded mutations
//! with a stable compiler, and cargo-fuzz (`fuzz/`) runs the same functions for hours.

#![allow(clippy::missing_panics_doc, clippy::panic, reason = "to panic is how a target says no")]

use aulos_core::{ChannelLayout, Db, SampleRate};
use aulos_dsp::sound::{
    ImportOptions, MAX_TEXT_LINES, SoundProcessor, SoundProgram, export, import,
};

/// All targets by name, which is also the name of the corpus.
pub const TARGETS: [(&str, FuzzTarget); 1] = [("sound_text", sound_text)];

/// Accepts any bytes, and panics when a property is violated.
pub type FuzzTarget = fn(&[u8]);

/// A filter text: what is accepted is valid, can be written and read back, and runs.
pub fn sound_text(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    for lenient in [false, true] {
        let options = ImportOptions { rate: SampleRate::HZ_48000, lenient };
        let chain = match import(text, options) {
            Ok(imported) => imported.chain,
            Err(problems) => {
                assert!(!problems.is_empty() && problems.len() <= MAX_TEXT_LINES);
                continue;
            }
        };
        assert_eq!(chain.validate(options.rate), Ok(()));
        let again = import(&export(&chain), ImportOptions { lenient: false, ..options });
        assert_eq!(again.map(|one| one.chain), Ok(chain.clone()));
        let program = SoundProgram::new(&chain, options.rate, Db::new(-1.0));
        let mut processor = SoundProcessor::new(options.rate, ChannelLayout::STEREO, &program);
        let mut sound = [0.25; 64];
        processor.process(&mut sound);
        assert!(sound.iter().all(|sample| sample.is_finite()));
    }
}

//! Runs the fuzz targets on their corpora, and on several seconds of seeded mutations.

/// They are a library of their own for cargo-fuzz, which needs a C++ compiler.
#[allow(unreachable_pub, dead_code, reason = "it is a library of its own")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use crate::mutation;
use targets::TARGETS;

/// One round takes some hundred microseconds, most of it for the delay lines.
const ROUNDS: usize = 5_000;

#[test]
fn every_corpus_file_and_its_mutations_are_survived() {
    for (name, target) in TARGETS {
        let files = mutation::corpus(env!("CARGO_MANIFEST_DIR"), name);
        assert!(!files.is_empty(), "no corpus for {name}");
        files.iter().for_each(|file| target(file));
        mutation::run(&files, ROUNDS, target);
    }
}

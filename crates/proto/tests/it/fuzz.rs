//! Runs the fuzz targets on their corpora, and on some seconds of seeded mutations.

/// They are a library of their own for cargo-fuzz, which needs a C++ compiler.
#[allow(unreachable_pub, dead_code, reason = "it is a library of its own")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use crate::mutation::{corpus, run};
use targets::TARGETS;

/// Enough to reach every branch behind the length checks; one round takes a few microseconds.
const ROUNDS: usize = 25_000;

#[test]
fn every_corpus_file_is_survived() {
    for (name, target) in TARGETS {
        let files = corpus(env!("CARGO_MANIFEST_DIR"), name);
        assert!(!files.is_empty(), "no corpus for {name}");
        for file in files {
            target(&file);
        }
    }
}

#[test]
fn mutations_of_the_corpus_are_survived() {
    for (name, target) in TARGETS {
        run(&corpus(env!("CARGO_MANIFEST_DIR"), name), ROUNDS, target);
    }
}

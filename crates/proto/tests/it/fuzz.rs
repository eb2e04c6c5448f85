//! Runs the fuzz targets on their corpora, and on several seconds of seeded mutations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

/// They are a library of their own for cargo-fuzz, which needs a C++ compiler.
#[allow(unreachable_pub, dead_code, reason = "it is a library of its own")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

use aulos_core::Rng;
use targets::TARGETS;

/// Enough to reach every branch behind the length checks; one round takes a few microseconds.
const ROUNDS: usize = 100_000;

#[test]
fn every_corpus_file_is_survived() {
    for (name, target) in TARGETS {
        let files = corpus(name);
        assert!(!files.is_empty(), "no corpus for {name}");
        for file in files {
            target(&file);
        }
    }
}

#[test]
fn mutations_of_the_corpus_are_survived() {
    for (name, target) in TARGETS {
        let files = corpus(name);
        let mut random = Rng::new(1);
        for _ in 0..ROUNDS {
            let mut data = files[random.below(files.len())].clone();
            for _ in 0..=random.below(4) {
                mutate(&mut data, &files, &mut random);
            }
            target(&data);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the corpus is a folder that fuzzing adds files to")]
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn mutate(data: &mut Vec<u8>, files: &[Vec<u8>], random: &mut Rng) {
    let at = random.below(data.len() + 1);
    match random.below(7) {
        0 => data.truncate(at),
        1 => data.insert(at, random.next_u64().to_le_bytes()[0]),
        2 if at < data.len() => data[at] ^= 1_u8 << random.below(8),
        3 if at < data.len() => data[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        4 => {
            let other = &files[random.below(files.len())];
            data.truncate(at);
            data.extend_from_slice(&other[random.below(other.len())..]);
        }
        5 => {
            let length = random.below(data.len() - at + 1).min(64);
            let piece = data[at..at + length].to_vec();
            data.splice(at..at, piece);
        }
        _ => {
            let end = (at + random.below(8)).min(data.len());
            data.drain(at..end);
        }
    }
}

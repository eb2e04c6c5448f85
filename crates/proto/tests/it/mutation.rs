//! Mutations of a corpus, the same in every run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;

use aulos_core::Rng;

/// The files of a target's corpus.
#[allow(clippy::disallowed_methods, reason = "the corpus is a folder that fuzzing adds files to")]
pub(crate) fn corpus(package: &str, name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(package).join("fuzz/corpus").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Calls a target with so many mutations of the files.
pub(crate) fn run(files: &[Vec<u8>], rounds: usize, target: fn(&[u8])) {
    let mut random = Rng::new(1);
    for _ in 0..rounds {
        let mut data = files[random.below(files.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, files, &mut random);
        }
        target(&data);
    }
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

//! What `--tag` does, and what is said about it.

use std::collections::BTreeMap;
use std::path::Path;

use aulos_core::{Db, Lufs};
use aulos_io::scan::tag::{self, GainTags, TagChange, TagError, TagRequest};
use aulos_io::scan::{LoudnessSummary, ScanFile};

use super::album::folder_of;
use super::output::plain;

/// The writer of tags, if they are to be written.
#[derive(Debug)]
pub(super) struct Tagger {
    dry_run: bool,
    reference: Lufs,
    ceiling: Option<Db>,
    written: usize,
    already_correct: usize,
    pub(super) failed: usize,
}

impl Tagger {
    pub(super) const fn new(dry_run: bool, reference: Lufs, ceiling: Option<Db>) -> Self {
        Self { dry_run, reference, ceiling, written: 0, already_correct: 0, failed: 0 }
    }

    /// How a player should turn the volume for what has this loudness; nothing for silence.
    pub(super) fn volume(
        &self,
        loudness: &LoudnessSummary,
        rule: Option<Lufs>,
    ) -> Option<GainTags> {
        Some(GainTags::from_loudness(loudness, rule?, self.reference, self.ceiling))
    }

    /// Tags one file, and returns lines that say what changes, if that is asked for.
    pub(super) fn tag(
        &mut self,
        path: &Path,
        loudness: &LoudnessSummary,
        album: Option<GainTags>,
    ) -> Result<String, TagError> {
        let Some(track) = self.volume(loudness, loudness.integrated) else {
            self.already_correct += 1;
            let silent = "    silent: its tags stay as they are\n";
            return Ok(if self.dry_run { silent.into() } else { String::new() });
        };
        let wish = TagRequest { track, album, reference: self.reference };
        let done = if self.dry_run { tag::changes(path, &wish) } else { tag::write(path, &wish) };
        match done {
            Ok(changes) if changes.is_empty() => {
                self.already_correct += 1;
                Ok(if self.dry_run {
                    "    its tags are right already\n".into()
                } else {
                    String::new()
                })
            }
            Ok(changes) => {
                self.written += 1;
                Ok(if self.dry_run { changes.iter().map(line).collect() } else { String::new() })
            }
            Err(error) => {
                self.failed += 1;
                Err(error)
            }
        }
    }

    /// What was done, for standard error.
    pub(super) fn summary(&self) -> String {
        let Self { written, already_correct: right, failed, .. } = self;
        let written_is = if self.dry_run { "would be tagged" } else { "tagged" };
        let mut text = format!("{written} file(s) {written_is}, {right} left as they are");
        if *failed > 0 {
            text += &format!(", {failed} failed");
        }
        text
    }
}

fn line(change: &TagChange) -> String {
    let said = |text: &Option<String>| text.as_deref().map_or_else(|| "none".into(), plain);
    format!("    {}: {} -> {}\n", change.name, said(&change.old), said(&change.new))
}

/// Takes out the files whose tags say everything already, and returns how many. Of an album, all
/// files or none: its gain needs them all.
pub(super) fn skip_tagged(files: &mut Vec<ScanFile>, album: bool, reference: Lufs) -> usize {
    let done = |found: &ScanFile| {
        let known = found.error.is_none();
        known && tag::is_complete(&found.path, album, reference).unwrap_or(false)
    };
    let each: Vec<bool> = files.iter().map(done).collect();
    let mut folders: BTreeMap<_, bool> = BTreeMap::new();
    for (found, done) in files.iter().zip(&each) {
        *folders.entry(folder_of(&found.path).to_path_buf()).or_insert(true) &= done;
    }
    let before = files.len();
    let mut each = each.into_iter();
    files.retain(|found| {
        let done = each.next().unwrap_or(false);
        !(if album { folders.get(folder_of(&found.path)) == Some(&true) } else { done })
    });
    before - files.len()
}

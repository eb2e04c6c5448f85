//! `--tag`: writes gain tags and prints the changes.

use std::collections::BTreeMap;
use std::path::Path;

use aulos_core::{Db, Lufs};
use aulos_files::scan::tag::{self, GainTags, TagChange, TagError, TagRequest};
use aulos_files::scan::{LoudnessSummary, ScanFile};

use super::album::folder_of;
use super::output::plain;

/// Writes tags, or shows what would change.
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

    /// The volume tags for a loudness; none for silence.
    pub(super) fn volume(
        &self,
        loudness: &LoudnessSummary,
        rule: Option<Lufs>,
    ) -> Option<GainTags> {
        Some(GainTags::from_loudness(loudness, rule?, self.reference, self.ceiling))
    }

    /// Tags one file; returns lines with the changes in a dry run.
    pub(super) fn tag(
        &mut self,
        path: &Path,
        loudness: &LoudnessSummary,
        album: Option<GainTags>,
    ) -> Result<String, TagError> {
        let Some(track) = self.volume(loudness, loudness.integrated) else {
            self.already_correct += 1;
            let silent = "    silent: tags unchanged\n";
            return Ok(if self.dry_run { silent.into() } else { String::new() });
        };
        let request = TagRequest { track, album, reference: self.reference };
        let done =
            if self.dry_run { tag::changes(path, &request) } else { tag::write(path, &request) };
        match done {
            Ok(changes) if changes.is_empty() => {
                self.already_correct += 1;
                Ok(if self.dry_run {
                    "    tags are already correct\n".into()
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

    /// The summary for standard error.
    pub(super) fn summary(&self) -> String {
        let Self { written, already_correct: right, failed, .. } = self;
        let written_is = if self.dry_run { "would be tagged" } else { "tagged" };
        let mut text = format!("{written} file(s) {written_is}, {right} unchanged");
        if *failed > 0 {
            text += &format!(", {failed} failed");
        }
        text
    }
}

fn line(change: &TagChange) -> String {
    let display = |text: &Option<String>| text.as_deref().map_or_else(|| "none".into(), plain);
    format!("    {}: {} -> {}\n", change.name, display(&change.old), display(&change.new))
}

/// Removes the files with complete tags; returns how many. An album is skipped only as a whole,
/// because its gain needs all files.
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

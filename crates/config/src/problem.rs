//! Problems of a configuration, with location and hint.
//!
//! serde's errors stop at the first one and have no location for values of `--set`. A migration
//! needs the whole list, so problems are collected as values with a [`ConfigLocation`].

use std::cell::RefCell;
use std::fmt;

/// Where a value was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigLocation {
    /// It is a default.
    #[default]
    Default,
    /// At this byte of the configuration file.
    File(usize),
    /// In the `--set` with this index.
    Set(usize),
}

/// A value with its location.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConfigValue<T> {
    /// The value.
    pub value: T,
    /// The location.
    pub at: ConfigLocation,
}

impl<T> ConfigValue<T> {
    /// A default value.
    pub const fn default_value(value: T) -> Self {
        Self { value, at: ConfigLocation::Default }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The location.
    pub at: ConfigLocation,
    /// What is wrong, as a sentence without a full stop.
    pub message: String,
    /// What to do about it, if known.
    pub hint: Option<String>,
}

/// Collects problems through a shared reference while the configuration is read.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// Adds a problem.
    pub(super) fn add(&self, at: ConfigLocation, message: impl Into<String>) {
        self.push(at, message.into(), None);
    }

    /// Adds a problem with a hint.
    pub(super) fn add_with_hint(
        &self,
        at: ConfigLocation,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(at, message.into(), Some(hint.into()));
    }

    /// Whether there are no problems.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The problems by location, without duplicates.
    pub(super) fn into_sorted(self) -> Vec<Problem> {
        let mut list = self.0.into_inner();
        list.sort_by_key(|problem| problem.at);
        list.dedup();
        list
    }

    fn push(&self, at: ConfigLocation, message: String, hint: Option<String>) {
        self.0.borrow_mut().push(Problem { at, message, hint });
    }
}

/// All problems of a configuration; prints in the format of compilers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The problems, at least one.
    pub problems: Vec<Problem>,
    locations: Vec<String>,
}

impl ConfigError {
    /// Resolves the problems' locations in the texts of file and `--set`.
    #[must_use]
    pub fn new(problems: Vec<Problem>, name: &str, text: &str, sets: &[String]) -> Self {
        let locations =
            problems.iter().map(|problem| location_text(problem.at, name, text, sets)).collect();
        Self { problems, locations }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (problem, place) in self.problems.iter().zip(&self.locations) {
            writeln!(f, "{place}: {}", problem.message)?;
            if let Some(hint) = &problem.hint {
                writeln!(f, "    hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The most similar candidate, if one is similar enough.
pub(super) fn did_you_mean<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    candidates
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Formats words as a list: `a`, `b` and `c`, each in back-ticks.
pub(super) fn quoted_list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn location_text(at: ConfigLocation, name: &str, text: &str, sets: &[String]) -> String {
    match at {
        ConfigLocation::Default => "built-in default".to_owned(),
        ConfigLocation::Set(index) => {
            format!("--set {}", sets.get(index).map_or("", String::as_str))
        }
        ConfigLocation::File(offset) => {
            let before = text.get(..offset).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            format!("{name}:{line}:{column}")
        }
    }
}

/// The Damerau-Levenshtein distance (optimal string alignment), over bytes; longer words than
/// [`MAX_WORD`] are not compared.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() > MAX_WORD || b.len() > MAX_WORD {
        return usize::MAX;
    }
    let mut rows = [(0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1], vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        rows.rotate_right(1);
        let [row, above, two_above] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(two_above[j - 2] + 1);
            }
        }
    }
    rows[0][b.len()]
}

/// More than twice the longest key.
const MAX_WORD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        let keys = ["codec", "chunk_ms", "buffer_ms", "sources", "name"];
        assert_eq!(did_you_mean("codek", &keys), Some("codec"));
        assert_eq!(did_you_mean("chunkms", &keys), Some("chunk_ms"));
        assert_eq!(did_you_mean("buffre_ms", &keys), Some("buffer_ms"));
        assert_eq!(did_you_mean("SOURCES", &keys), Some("sources"));
        assert_eq!(did_you_mean("volume", &keys), None);
    }

    #[test]
    fn exchange_of_neighbours_is_one_step() {
        assert_eq!(distance("naem", "name"), 1);
        assert_eq!(distance("", "name"), 4);
        assert_eq!(distance("name", ""), 4);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn columns_count_characters_and_start_at_one() {
        assert_eq!(location_text(ConfigLocation::File(0), "a.toml", "x", &[]), "a.toml:1:1");
        assert_eq!(
            location_text(ConfigLocation::File(7), "a.toml", "# ä\nab = 1", &[]),
            "a.toml:2:3"
        );
        assert_eq!(location_text(ConfigLocation::File(99), "a.toml", "x\n", &[]), "a.toml:2:1");
    }
}

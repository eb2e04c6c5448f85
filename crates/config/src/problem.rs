//! What is wrong with a configuration, where, and what to do about it.
//!
//! serde's errors stop at the first fault and forget where a value came from. A person who moves a
//! server over wants the whole list, so problems are collected as plain values with a [`Place`].

use std::cell::RefCell;
use std::fmt;

/// Where a value was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigLocation {
    /// Nowhere: it is a default of ours.
    #[default]
    Default,
    /// At this byte of the configuration file.
    File(usize),
    /// In the `--set` with this index.
    Set(usize),
}

/// A value and where it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConfigValue<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub at: ConfigLocation,
}

impl<T> ConfigValue<T> {
    /// A value that nobody wrote.
    pub const fn default_value(value: T) -> Self {
        Self { value, at: ConfigLocation::Default }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: ConfigLocation,
    /// The fact, in one sentence without a full stop.
    pub message: String,
    /// What to do about it, where we know.
    pub hint: Option<String>,
}

/// The list that readers write to while they go on reading.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// Notes a fact.
    pub(super) fn add(&self, at: ConfigLocation, message: impl Into<String>) {
        self.push(at, message.into(), None);
    }

    /// Notes a fact and what to do about it.
    pub(super) fn add_with_hint(
        &self,
        at: ConfigLocation,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(at, message.into(), Some(hint.into()));
    }

    /// Whether nothing was noted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The list in the order of the file, then of the command line; each problem once.
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

/// Everything that is wrong with a configuration; prints as compilers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The problems, never none.
    pub problems: Vec<Problem>,
    locations: Vec<String>,
}

impl ConfigError {
    /// Binds the problems to the texts that they speak of.
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

/// The candidate that `word` most likely was meant to be.
pub(super) fn did_you_mean<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    candidates
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` and `c`, each in back-ticks.
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

/// Levenshtein's distance with neighbours' exchange counted as one (Damerau, restricted), over
/// bytes; words longer than [`MAX_WORD`] are not compared.
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

/// No key of ours is half as long.
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

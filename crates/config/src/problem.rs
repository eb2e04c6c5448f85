//! Problems of a configuration, with location and hint.
//!
//! serde's errors stop at the first one and have no location for values of `--set`. A migration
//! needs the whole list, so problems are collected as values with a [`ConfigLocation`].

use std::cell::RefCell;
use std::fmt;

/// A configuration file that has been read.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile<'a> {
    /// The file name, as the user wrote it.
    pub name: &'a str,
    /// The contents.
    pub text: &'a str,
}

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
pub(crate) struct ConfigValue<T> {
    /// The value.
    pub value: T,
    /// The location.
    pub at: ConfigLocation,
}

impl<T> ConfigValue<T> {
    /// A default value.
    pub(crate) const fn default_value(value: T) -> Self {
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
pub(super) struct Problems {
    errors: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

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

    /// Adds a problem with an example as its hint, if there is one.
    pub(super) fn add_example(&self, at: ConfigLocation, message: String, example: Option<&str>) {
        self.push(at, message, example.map(|example| format!("as in {example}")));
    }

    /// Adds a warning: the value is used, but should be written in another way.
    pub(super) fn warn(
        &self,
        at: ConfigLocation,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let (message, hint) = (message.into(), Some(hint.into()));
        self.warnings.borrow_mut().push(Problem { at, message, hint });
    }

    /// Whether there are no problems; warnings do not count.
    pub(super) fn is_empty(&self) -> bool {
        self.errors.borrow().is_empty()
    }

    /// The problems by location, without duplicates.
    pub(super) fn into_errors(self) -> Vec<Problem> {
        self.into_parts().0
    }

    /// Problems and warnings by location, without duplicates.
    pub(super) fn into_parts(self) -> (Vec<Problem>, Vec<Problem>) {
        let sorted = |list: RefCell<Vec<Problem>>| {
            let mut list = list.into_inner();
            list.sort_by_key(|problem| problem.at);
            list.dedup();
            list
        };
        (sorted(self.errors), sorted(self.warnings))
    }

    /// The problems as one line, for the answer to a call.
    pub(super) fn errors_as_line(self) -> String {
        let all = self.into_errors().into_iter().map(|problem| match problem.hint {
            Some(hint) => format!("{} ({hint})", problem.message),
            None => problem.message,
        });
        all.collect::<Vec<_>>().join("; ")
    }

    fn push(&self, at: ConfigLocation, message: String, hint: Option<String>) {
        self.errors.borrow_mut().push(Problem { at, message, hint });
    }
}

/// The texts of a configuration, from which locations are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigTexts<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) sets: &'a [String],
}

impl ConfigTexts<'_> {
    /// The warnings as lines with locations.
    pub(super) fn warnings(&self, warnings: &[Problem]) -> Vec<String> {
        let line = |warning: &Problem| {
            let hint = warning.hint.as_deref().unwrap_or_default();
            format!("{}: warning: {}; {hint}", self.location(warning.at), warning.message)
        };
        warnings.iter().map(line).collect()
    }

    pub(super) fn location(&self, at: ConfigLocation) -> String {
        match at {
            ConfigLocation::Default => "built-in default".to_owned(),
            ConfigLocation::Set(index) => {
                format!("--set {}", self.sets.get(index).map_or("", String::as_str))
            }
            ConfigLocation::File(offset) => {
                let before = self.text.get(..offset).unwrap_or(self.text);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                format!("{}:{line}:{column}", self.name)
            }
        }
    }
}

/// All problems of a configuration; prints in the format of compilers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The problems, at least one.
    pub problems: Vec<Problem>,
    /// The warnings, as lines with locations.
    pub warnings: Vec<String>,
    locations: Vec<String>,
}

impl ConfigError {
    /// Computes the locations of the problems.
    pub(super) fn new(problems: Problems, texts: ConfigTexts<'_>) -> Self {
        let (problems, warnings) = problems.into_parts();
        let locations = problems.iter().map(|problem| texts.location(problem.at)).collect();
        Self { warnings: texts.warnings(&warnings), problems, locations }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (problem, location) in self.problems.iter().zip(&self.locations) {
            writeln!(f, "{location}: {}", problem.message)?;
            if let Some(hint) = &problem.hint {
                writeln!(f, "    hint: {hint}")?;
            }
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "{warning}"))
    }
}

impl std::error::Error for ConfigError {}

/// The most similar candidate, if one is similar enough to be a typing error. Words of more than 64
/// bytes are not compared; the case of `word` does not matter.
#[must_use]
pub fn did_you_mean<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    if word.len() > MAX_WORD {
        return None;
    }
    let word = word.to_ascii_lowercase();
    candidates
        .iter()
        .map(|candidate| (strsim::osa_distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Formats words as a list: `a`, `b` and `c`, each in back-ticks.
pub(super) fn quoted_list(words: &[&str], conjunction: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => {
            format!("{} {conjunction} {last}", rest.join(", "))
        }
        _ => quoted.concat(),
    }
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
    fn a_swap_of_neighbors_counts_as_one_edit() {
        assert_eq!(did_you_mean("naem", &["name"]), Some("name"));
        assert_eq!(did_you_mean("neam", &["name"]), Some("name"));
        assert_eq!(did_you_mean("sitting", &["kitten"]), None);
        assert_eq!(did_you_mean("", &["name"]), None);
        assert_eq!(did_you_mean(&"name".repeat(20), &["name"]), None);
    }

    #[test]
    fn columns_count_characters_and_start_at_one() {
        let at = |text, offset| {
            ConfigTexts { name: "a.toml", text, sets: &[] }.location(ConfigLocation::File(offset))
        };
        assert_eq!(at("x", 0), "a.toml:1:1");
        assert_eq!(at("# ä\nab = 1", 7), "a.toml:2:3");
        assert_eq!(at("x\n", 99), "a.toml:2:1");
    }
}

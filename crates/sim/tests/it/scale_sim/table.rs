//! Figures of many listeners, and the tables that are kept.

use aulos_core::Rng;

use super::listener::ListenerRecord;

/// How far apart listeners sound, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Differences {
    /// Sorted.
    values: Vec<f64>,
}

impl Differences {
    /// In every second, each listener beside a random one of another edge, or of its own.
    pub(crate) fn new(edges: &[Vec<ListenerRecord>], is_own_edge: bool, seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let mut values = Vec::new();
        for (number, edge) in edges.iter().enumerate() {
            for listener in edge {
                for (second, delay) in listener.delays.iter().enumerate() {
                    let other = match is_own_edge {
                        true => number,
                        false => (number + 1 + random.below(edges.len() - 1)) % edges.len(),
                    };
                    let other = &edges[other][random.below(edges[other].len())];
                    let other = other.delays.get(second).copied().unwrap_or(f64::NAN);
                    let difference = (delay - other).abs() * 1e6;
                    if !difference.is_nan() {
                        values.push(difference);
                    }
                }
            }
        }
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// The value below which this share is.
    pub(crate) fn at(&self, share: f64) -> f64 {
        percentile(&self.values, share)
    }

    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }
}

/// The value of a sorted list below which this share is.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Compares a table with `tests/it/scale_sim/NAME`; `AULOS_BLESS=1` writes it anew.
#[allow(clippy::disallowed_methods, reason = "the table is written anew by hand")]
pub(crate) fn judge(name: &str, table: &str) {
    println!("{table}");
    let file = format!("{}/tests/it/scale_sim/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("AULOS_BLESS").is_some() {
        std::fs::write(&file, table).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let agrees = table.lines().count() == expected.lines().count()
        && table.lines().zip(expected.lines()).all(|(found, kept)| agrees(found, kept));
    assert!(agrees, "AULOS_BLESS=1 writes {name} anew; it was\n{expected}");
}

/// Whether two lines say the same. The last bits of a resampled frame depend on the processor, so a
/// figure may be rounded to the next whole number.
fn agrees(found: &str, kept: &str) -> bool {
    let is_near = |(one, other): (&str, &str)| {
        let both = one.parse::<f64>().ok().zip(other.parse::<f64>().ok());
        one == other || both.is_some_and(|(one, other)| (one - other).abs() <= 1.0)
    };
    let [words, kept_words] = [found, kept].map(|line| line.split_whitespace().count());
    words == kept_words && found.split_whitespace().zip(kept.split_whitespace()).all(is_near)
}

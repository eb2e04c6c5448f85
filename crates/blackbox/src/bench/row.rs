//! A row of the results table, and the table.

use std::io;

use serde_json::{Value, json};

/// A measurement, with the other server's and the target.
#[derive(Clone, Debug)]
pub struct BenchRow {
    /// Part of the server.
    pub part: &'static str,
    /// The measurement, with its unit.
    pub case: String,
    /// Value for this server.
    pub ours: f64,
    /// Value for the other server, if there is one.
    pub peer: Option<f64>,
    /// Upper limit of the value.
    pub target: BenchTarget,
}

/// A limit. In this table less is always better.
#[derive(Clone, Copy, Debug)]
pub enum BenchTarget {
    /// Ratio of this server's value to the other's.
    Ratio(f64),
    /// This server's value, in the unit of the row.
    AtMost(f64),
    /// No limit: for information.
    None,
}

impl BenchRow {
    /// Ratio of this server's value to the other's.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours / self.peer.filter(|peer| *peer > 0.0)?)
    }

    /// Whether the target is met; `None` if that is unknown.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        match self.target {
            BenchTarget::Ratio(most) => Some(self.ratio()? <= most),
            BenchTarget::AtMost(most) => Some(self.ours <= most),
            BenchTarget::None => None,
        }
    }

    fn json(&self) -> Value {
        let target = match self.target {
            BenchTarget::Ratio(most) => json!(format!("ratio <= {most:.3}")),
            BenchTarget::AtMost(most) => json!(format!("<= {most}")),
            BenchTarget::None => Value::Null,
        };
        json!({
            "part": self.part, "case": self.case, "ours": self.ours, "peer": self.peer,
            "ratio": self.ratio(), "target": target, "met": self.met(),
        })
    }
}

/// The rows as in `target/bench.json`.
#[must_use]
pub fn json(rows: &[BenchRow]) -> Value {
    rows.iter().map(BenchRow::json).collect()
}

/// Prints the rows as a table.
pub fn print(rows: &[BenchRow]) {
    table(&json(rows));
}

/// Joins files of rows (a missing one is reported): the list on stdout, the table on stderr.
///
/// # Errors
/// If a file is not a list of rows.
pub fn join(files: &[String]) -> io::Result<()> {
    let mut all = Vec::new();
    for file in files {
        match std::fs::read(file) {
            Ok(text) => all.extend(serde_json::from_slice::<Vec<Value>>(&text)?),
            Err(e) => eprintln!("aulos-bench: {file}: {e}"),
        }
    }
    let all = Value::Array(all);
    table(&all);
    println!("{all:#}");
    Ok(())
}

fn table(rows: &Value) {
    const HEAD: [&str; 7] = ["part", "case", "ours", "peer", "ratio", "target", "met"];
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.as_array().into_iter().flatten().map(|row| HEAD.map(|key| cell(&row[key]))));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    for (n, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        eprintln!("| {} |", cells.join(" | "));
        if n == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            eprintln!("|{}|", rule.join("|"));
        }
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(met) => (if *met { "yes" } else { "no" }).to_owned(),
        other => match other.as_f64() {
            Some(x) if x != 0.0 && x.abs() < 0.1 => format!("{x:.4}"),
            Some(x) if x.abs() < 100.0 => format!("{x:.2}"),
            Some(x) => format!("{x:.0}"),
            None => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_or_not_or_unknown() {
        let row = |peer, target| BenchRow { part: "x", case: "y".into(), ours: 2.0, peer, target };
        assert_eq!(row(Some(12.0), BenchTarget::Ratio(1.0 / 6.0)).met(), Some(true));
        assert_eq!(row(Some(11.0), BenchTarget::Ratio(1.0 / 6.0)).met(), Some(false));
        assert_eq!(row(None, BenchTarget::Ratio(1.0)).met(), None);
        assert_eq!(row(None, BenchTarget::AtMost(1.5)).met(), Some(false));
        let json = json(&[row(None, BenchTarget::None)]);
        for key in ["part", "case", "ours", "peer", "ratio", "target", "met"] {
            assert!(json[0].get(key).is_some(), "{key}");
        }
    }
}

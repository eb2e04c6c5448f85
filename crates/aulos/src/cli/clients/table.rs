//! A table of text.

use std::fmt::Write as _;

/// Columns as wide as their widest text, two blanks apart.
pub(super) fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    let head = head.map(str::to_owned);
    let rows: Vec<[String; N]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (text, width) in row.iter().zip(widths) {
            write!(line, "{text:<width$}  ").ok();
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

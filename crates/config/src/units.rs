//! Durations and sizes with units: `1h30m`, `500ms`, `30d`; `2GiB`, `500MB`.

use aulos_core::Span;
use bytesize::ByteSize;
use jiff::SpanRelativeTo;

use super::problem::{ConfigValue, Problems};
use super::read::TableReader;

/// Parses a duration; a day has 24 hours.
///
/// # Errors
/// The expected format.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let wrong = || format!("\"{text}\" is no length of time: write 90s, 30min, 1h30m or 7d");
    let parsed: jiff::Span = text.trim().parse().map_err(|_| wrong())?;
    let length = parsed.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    let nanos = i64::try_from(length.as_nanos()).map_err(|_| wrong())?;
    if nanos < 0 { Err(wrong()) } else { Ok(Span::from_nanos(nanos)) }
}

/// Parses a size in bytes.
///
/// # Errors
/// The expected format.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match text.trim().parse::<ByteSize>() {
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err(format!("\"{text}\" is no size: write 500MB, 2GiB or 4096")),
    }
}

/// Reads a duration.
pub(super) fn span_key(
    table: &mut TableReader<'_>,
    key: &'static str,
    problems: &Problems,
) -> Option<ConfigValue<Span>> {
    parse_key(table, key, problems, parse_span)
}

/// Reads a size in bytes.
pub(super) fn bytes_key(
    table: &mut TableReader<'_>,
    key: &'static str,
    problems: &Problems,
) -> Option<ConfigValue<u64>> {
    parse_key(table, key, problems, parse_bytes)
}

fn parse_key<T>(
    table: &mut TableReader<'_>,
    key: &'static str,
    problems: &Problems,
    parse: fn(&str) -> Result<T, String>,
) -> Option<ConfigValue<T>> {
    let text = table.text(key)?;
    match parse(&text.value) {
        Ok(value) => Some(ConfigValue { value, at: text.at }),
        Err(why) => {
            problems.add(text.at, format!("`{key}`: {why}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("90s", 90),
            ("30min", 1_800),
            ("30m", 1_800),
            ("1h", 3_600),
            ("1h30m", 5_400),
            ("1h 30m", 5_400),
            ("2 hours", 7_200),
            ("7d", 604_800),
            ("PT15M", 900),
        ] {
            assert_eq!(parse_span(text), Ok(Span::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_span("500ms"), Ok(Span::from_millis(500)));
        for text in ["", "1", "h", "-1h", "1y2", "1h ago", "99999999999h", "1 fortnight"] {
            let why = parse_span(text).unwrap_err();
            assert_eq!(
                why,
                format!("\"{text}\" is no length of time: write 90s, 30min, 1h30m or 7d")
            );
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, size) in [
            ("4096", 4_096),
            ("500MB", 500_000_000),
            ("2GiB", 2 << 30),
            ("2 GiB", 2 << 30),
            ("1.5kB", 1_500),
            ("100M", 100_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(size), "{text}");
        }
        for text in ["", "GB", "-1", "1XB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}

//! Durations and sizes with units: `1h30m`, `500ms`, `30d`; `2GiB`, `500MB`.

use aulos_core::Span;
use bytesize::ByteSize;
use jiff::SpanRelativeTo;

/// Parses a duration; a day has 24 hours.
///
/// # Errors
/// The expected format.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let wrong = || "not a duration: write 90s, 30min, 1h30m or 7d".to_owned();
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
        Err(_) => Err("not a size: write 500MB, 2GiB or 4096".to_owned()),
    }
}

/// Formats a duration so that [`parse_span`] reads it.
pub(crate) fn format_span(span: Span) -> String {
    let millis = span.as_millis();
    match [(3_600_000, "h"), (60_000, "min"), (1_000, "s")]
        .iter()
        .find(|(unit, _)| millis % unit == 0)
    {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

/// Formats a size so that [`parse_bytes`] reads it.
pub(crate) fn format_bytes(bytes: u64) -> String {
    match [(30, "GiB"), (20, "MiB"), (10, "KiB")]
        .iter()
        .find(|(bits, _)| bytes.is_multiple_of(1 << bits))
    {
        Some((bits, name)) => format!("{}{name}", bytes >> bits),
        None => bytes.to_string(),
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
            assert_eq!(why, "not a duration: write 90s, 30min, 1h30m or 7d", "{text}");
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

//! Times as people write them, in UTC or local time.

use std::fmt;

use aulos_engine::recorder::UnixTime;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// Parses `2026-10-25T02:30:00Z`, `2026-10-25T02:30:00+01:00`, or a local time without an offset,
/// as in `2026-10-25 02:30`. `zone` is a name of the time zone database; without it, local time is
/// that of the system.
///
/// # Errors
/// [`LocalTimeError`]; for a local time that comes twice or not at all, with the two offsets.
///
/// # Examples
/// ```
/// use aulos_files::logger::parse_local_time;
///
/// let berlin = Some("Europe/Berlin");
/// let error = parse_local_time("2026-10-25 02:30", berlin).unwrap_err();
/// assert!(error.to_string().contains("2026-10-25T02:30:00+02:00"), "{error}");
/// let later = parse_local_time("2026-10-25T02:30:00+01:00", berlin)?;
/// assert_eq!(later, parse_local_time("2026-10-25T01:30:00Z", None)?);
/// # Ok::<(), aulos_files::logger::LocalTimeError>(())
/// ```
pub fn parse_local_time(text: &str, zone: Option<&str>) -> Result<UnixTime, LocalTimeError> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return unix_time(at);
    }
    let zone = zone_named(zone)?;
    let civil: DateTime = text.parse().map_err(|_| LocalTimeError::Invalid)?;
    let with = |offset: Offset| {
        let at = offset.to_timestamp(civil).unwrap_or(Timestamp::UNIX_EPOCH);
        at.display_with_offset(offset).to_string()
    };
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => {
            unix_time(ambiguous.compatible().map_err(|_| LocalTimeError::Invalid)?)
        }
        AmbiguousOffset::Fold { before, after } => {
            Err(LocalTimeError::Twice(with(before), with(after)))
        }
        AmbiguousOffset::Gap { before, after } => {
            Err(LocalTimeError::Skipped(with(before), with(after)))
        }
    }
}

/// A time with its offset from UTC, with milliseconds.
///
/// # Errors
/// [`LocalTimeError::UnknownZone`].
pub fn local_text(at: UnixTime, zone: Option<&str>) -> Result<String, LocalTimeError> {
    let at = Timestamp::from_nanosecond(at.as_nanos().into()).unwrap_or(Timestamp::UNIX_EPOCH);
    let zoned = at.to_zoned(zone_named(zone)?);
    Ok(zoned.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string())
}

fn zone_named(zone: Option<&str>) -> Result<TimeZone, LocalTimeError> {
    zone.map_or_else(
        || Ok(TimeZone::system()),
        |name| TimeZone::get(name).map_err(|_| LocalTimeError::UnknownZone(name.to_owned())),
    )
}

fn unix_time(at: Timestamp) -> Result<UnixTime, LocalTimeError> {
    let nanos = i64::try_from(at.as_nanosecond()).map_err(|_| LocalTimeError::Invalid)?;
    Ok(UnixTime::from_nanos(nanos))
}

/// A time that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalTimeError {
    /// The text is not a time.
    Invalid,
    /// The system does not know the time zone.
    UnknownZone(String),
    /// The clock goes back and shows the time twice; with the two moments.
    Twice(String, String),
    /// The clock goes forward and does not show the time; with what it would be with the offsets
    /// before and after.
    Skipped(String, String),
}

impl fmt::Display for LocalTimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str(
                "not a time: write 2026-11-22T10:00:00Z, or local time as 2026-11-22T10:00",
            ),
            Self::UnknownZone(zone) => write!(f, "unknown time zone `{zone}`, as in Europe/Berlin"),
            Self::Twice(a, b) => write!(f, "the clock shows this time twice: write {a} or {b}"),
            Self::Skipped(a, b) => {
                write!(f, "the clock skips this time: write {a} or {b}")
            }
        }
    }
}

impl std::error::Error for LocalTimeError {}

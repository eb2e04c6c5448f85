//! File names of segments: the user's pattern, which cannot leave the folder.

use std::fmt;
use std::path::{Component, Path};

use aulos_core::Span;
use aulos_engine::recorder::{ClockZone, SegmentStart, UnixTime};
use jiff::fmt::strtime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};

/// Pattern of a recorder's file names: `strftime`, with `{name}` for the recorder's name and
/// `{index}` for the number of the segment. A `/` creates folders. The extension of the format is
/// appended, and a number before it if the name exists.
///
/// # Examples
/// ```
/// use aulos_engine::recorder::ClockZone;
/// use aulos_files::record::FileNamePattern;
///
/// assert!(FileNamePattern::new("{name}/%Y-%m-%d/%H%M%S", ClockZone::Utc).is_ok());
/// let error = FileNamePattern::new("../%H", ClockZone::Utc).unwrap_err();
/// assert!(error.to_string().contains("`..`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNamePattern {
    text: String,
    zone: ClockZone,
}

impl FileNamePattern {
    /// A pattern whose times are in `zone`.
    ///
    /// # Errors
    /// [`InvalidPattern`], when a name could leave the folder or be invalid.
    pub fn new(text: &str, zone: ClockZone) -> Result<Self, InvalidPattern> {
        let pattern = Self { text: text.to_owned(), zone };
        // The longest allowed name, and a date with two digits in each place.
        let name = "n".repeat(MAX_RECORDER_NAME_BYTES);
        let at = UnixTime::from_nanos(1_797_940_799_999_999_999);
        pattern.expand(&name, u64::from(u32::MAX), &timestamp(at).to_zoned(TimeZone::UTC))?;
        // The text itself must not leave the folder either: `{name}` and dates are checked after
        // expansion.
        validate_path(&text.replace(['{', '}', '%'], "_"))?;
        Ok(pattern)
    }

    /// Name of a segment, without an extension.
    ///
    /// # Errors
    /// [`InvalidPattern`]; a pattern that [`FileNamePattern::new`] has accepted fails only for a
    /// recorder whose name is longer than [`MAX_RECORDER_NAME_BYTES`].
    pub fn file_stem(
        &self,
        recorder: &str,
        segment: &SegmentStart,
    ) -> Result<String, InvalidPattern> {
        // A segment cut at a full hour begins a fraction of a frame before or after it.
        let utc = segment.utc.as_nanos().saturating_add(ROUNDING_NANOS);
        let utc = timestamp(UnixTime::from_nanos(utc));
        self.unique_stem(recorder, segment.number, &utc.to_zoned(time_zone(self.zone)))
    }

    /// A name with the offset from UTC behind it, in the hour that comes twice when the clock goes
    /// back, unless the pattern tells the two hours apart.
    fn unique_stem(
        &self,
        recorder: &str,
        index: u64,
        at: &Zoned,
    ) -> Result<String, InvalidPattern> {
        let name = self.expand(recorder, index, at)?;
        let AmbiguousOffset::Fold { before, after } =
            at.time_zone().to_ambiguous_zoned(at.datetime()).offset()
        else {
            return Ok(name);
        };
        let other = if at.offset() == before { after } else { before };
        let zone = TimeZone::fixed(other);
        let Ok(twin) = at.datetime().to_zoned(zone) else { return Ok(name) };
        if self.expand(recorder, index, &twin)? != name {
            return Ok(name);
        }
        let offset = strtime::format("%z", at).unwrap_or_default();
        Ok(name + &offset)
    }

    fn expand(&self, recorder: &str, index: u64, zoned: &Zoned) -> Result<String, InvalidPattern> {
        let mut out = String::new();
        // The date is expanded first: the recorder's name may have percent signs.
        let with_date = strtime::format(&self.text, zoned)
            .map_err(|error| InvalidPattern::Date(error.to_string()))?;
        let mut rest = with_date.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            out.push_str(before);
            let (placeholder, after) = brace.split_once('}').unwrap_or((brace, ""));
            match placeholder {
                "{name}" | "{name" => out.push_str(&sanitize(recorder)),
                "{index" => out.push_str(&format!("{index:06}")),
                _ => {
                    return Err(InvalidPattern::UnknownPlaceholder(
                        placeholder.chars().take(20).collect(),
                    ));
                }
            }
            rest = after;
        }
        out.push_str(rest);
        validate_path(&out)?;
        Ok(out)
    }
}

impl fmt::Display for FileNamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Offset of a time zone from UTC at a time.
pub(super) fn utc_offset(at: UnixTime, zone: &TimeZone) -> Span {
    Span::from_secs(i64::from(zone.to_offset(timestamp(at)).seconds()))
}

/// A time in RFC 3339, UTC, with microseconds.
#[must_use]
pub fn rfc3339(at: UnixTime) -> String {
    format!("{:.6}", timestamp(at))
}

/// The time zone; that of the system is cached.
pub(super) fn time_zone(zone: ClockZone) -> TimeZone {
    match zone {
        ClockZone::Utc => TimeZone::UTC,
        ClockZone::Local => TimeZone::system(),
    }
}

pub(super) fn timestamp(at: UnixTime) -> Timestamp {
    // Any 64-bit number of nanoseconds is within the supported years.
    Timestamp::from_nanosecond(i128::from(at.as_nanos())).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A recorder's name as part of a file name: without folders, not hidden.
pub(crate) fn sanitize(name: &str) -> String {
    let fits = |c: char| !c.is_control() && c != '/' && c != '\\';
    let sanitized: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    match sanitized.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => sanitized,
    }
}

/// Checks that a name is a relative path to a file below the folder.
fn validate_path(name: &str) -> Result<(), InvalidPattern> {
    if name.contains('\0') {
        return Err(InvalidPattern::Nul);
    }
    if name.len() > MAX_PATH_BYTES {
        return Err(InvalidPattern::TooLong);
    }
    if name.is_empty() || name.ends_with('/') {
        return Err(InvalidPattern::Empty);
    }
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) if part.len() > MAX_COMPONENT_BYTES => {
                return Err(InvalidPattern::TooLong);
            }
            Component::Normal(part) if part.as_encoded_bytes().starts_with(b".") => {
                return Err(InvalidPattern::Hidden);
            }
            Component::Normal(_) => {}
            Component::RootDir | Component::Prefix(_) => return Err(InvalidPattern::Absolute),
            Component::ParentDir | Component::CurDir => return Err(InvalidPattern::Parent),
        }
    }
    Ok(())
}

/// Why a pattern is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidPattern {
    /// It is an absolute path.
    Absolute,
    /// It has a component `.` or `..`.
    Parent,
    /// A component begins with a dot.
    Hidden,
    /// It has a NUL byte.
    Nul,
    /// A name could be longer than a file system allows.
    TooLong,
    /// It is empty, or ends with a folder.
    Empty,
    /// An invalid date format; holds the error.
    Date(String),
    /// An unknown placeholder; holds it.
    UnknownPlaceholder(String),
}

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute => {
                f.write_str("the pattern begins with `/`; it must be relative to the folder")
            }
            Self::Parent => {
                f.write_str("the pattern has a component `.` or `..`; it must stay in its folder")
            }
            Self::Hidden => f.write_str(
                "the pattern has a component that begins with `.`; hidden files are not allowed",
            ),
            Self::Nul => f.write_str("the pattern has a NUL byte"),
            Self::TooLong => write!(
                f,
                "file name could exceed {MAX_COMPONENT_BYTES} bytes per component or {MAX_PATH_BYTES} in total, with \
                 {MAX_RECORDER_NAME_BYTES} for `{{name}}`"
            ),
            Self::Empty => f.write_str("the pattern is empty or ends with `/`; add a file name"),
            Self::Date(error) => {
                write!(f, "invalid date in the pattern: {error}; write `%%` for a percent sign")
            }
            Self::UnknownPlaceholder(placeholder) => {
                write!(f, "unknown placeholder `{placeholder}`; expected `{{name}}` or `{{index}}`")
            }
        }
    }
}

impl std::error::Error for InvalidPattern {}

/// Maximum length of a recorder's name in bytes.
pub const MAX_RECORDER_NAME_BYTES: usize = 64;

/// One millisecond.
const ROUNDING_NANOS: i64 = 1_000_000;

/// File systems allow 255; a number, two extensions and `.part` are appended.
const MAX_COMPONENT_BYTES: usize = 200;

/// The same for a whole path below the folder.
const MAX_PATH_BYTES: usize = 1_024;

#[cfg(test)]
mod tests {
    use aulos_core::{MediaTime, SampleRate};
    use aulos_engine::recorder::SegmentReason;
    use proptest::prelude::*;

    use super::*;

    fn segment(number: u64, seconds: i64) -> SegmentStart {
        SegmentStart {
            number,
            at: MediaTime::ZERO,
            utc: UnixTime::from_nanos(seconds * 1_000_000_000),
            rate: SampleRate::HZ_48000,
            cause: SegmentReason::Start,
        }
    }

    #[test]
    fn placeholders_expand_to_date_recorder_and_number() {
        let pattern =
            FileNamePattern::new("{name}/%Y/%m-%d/%H%M%S-{index}%%", ClockZone::Utc).unwrap();
        let name = pattern.file_stem("Hall 1", &segment(7, 951_825_599)).unwrap();
        assert_eq!(name, "Hall 1/2000/02-29/115959-000007%");
        // The recorder's name is sanitized and not expanded.
        let name = pattern.file_stem("../a/b\0{index}%Y", &segment(7, 0)).unwrap();
        assert_eq!(name, "_._a_b_{index}%Y/1970/01-01/000000-000007%");
        assert_eq!(
            rfc3339(UnixTime::from_nanos(951_825_599_123_456_789)),
            "2000-02-29T11:59:59.123456Z"
        );
    }

    #[test]
    fn names_do_not_repeat_in_the_hour_that_comes_twice() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let names = |pattern: &str, times: &[&str]| -> Vec<String> {
            let pattern = FileNamePattern::new(pattern, ClockZone::Local).unwrap();
            let zoned = |text: &&str| text.parse::<Timestamp>().unwrap().to_zoned(zone.clone());
            times.iter().map(|at| pattern.unique_stem("hall", 3, &zoned(at)).unwrap()).collect()
        };
        let autumn = [
            "2026-10-24T23:00:00Z",
            "2026-10-25T00:00:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T02:00:00Z",
        ];
        assert_eq!(
            names("%m-%dT%H%M", &autumn),
            ["10-25T0100", "10-25T0200+0200", "10-25T0200+0100", "10-25T0300"]
        );
        // The pattern has an offset of its own, or a time that does not repeat.
        assert_eq!(names("%H%z", &autumn[1..3]), ["02+0200", "02+0100"]);
        assert_eq!(names("%s", &autumn[1..2]), ["1792886400"]);
        let spring = ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"];
        assert_eq!(names("%m-%dT%H%M", &spring), ["03-29T0100", "03-29T0300"]);
    }

    #[test]
    fn each_invalid_pattern_is_rejected_with_its_reason() {
        let long = "a".repeat(MAX_COMPONENT_BYTES + 1);
        let longer = "aaaaaaaaa/".repeat(110) + "b";
        let cases = [
            ("/srv/%H", InvalidPattern::Absolute),
            ("a/../../b", InvalidPattern::Parent),
            ("..", InvalidPattern::Parent),
            ("./a", InvalidPattern::Parent),
            (".hidden", InvalidPattern::Hidden),
            ("a\0b", InvalidPattern::Nul),
            (&long, InvalidPattern::TooLong),
            ("{name}{name}{name}{name}", InvalidPattern::TooLong),
            (&longer, InvalidPattern::TooLong),
            ("", InvalidPattern::Empty),
            ("a/", InvalidPattern::Empty),
            ("{station}", InvalidPattern::UnknownPlaceholder("{station".into())),
            ("a}", InvalidPattern::UnknownPlaceholder(String::new())),
        ];
        for (text, wanted) in cases {
            let error = FileNamePattern::new(text, ClockZone::Utc).unwrap_err();
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&wanted),
                "{text}: {error:?}"
            );
            assert!(error.to_string().len() > 15);
        }
        assert!(matches!(FileNamePattern::new("%!", ClockZone::Utc), Err(InvalidPattern::Date(_))));
        assert!(matches!(FileNamePattern::new("a%", ClockZone::Utc), Err(InvalidPattern::Date(_))));
    }

    proptest! {
        #[test]
        fn no_accepted_pattern_leaves_the_folder(
            text in "(\\{name\\}|\\{index\\}|%[A-Za-z%0^_:.-]|[./a\\\\\u{0}é{}]){0,12}",
            name in "\\PC{0,20}|[./\u{0}]{0,6}", seconds in any::<i32>(),
        ) {
            if let Ok(pattern) = FileNamePattern::new(&text, ClockZone::Utc)
                && let Ok(name) = pattern.file_stem(&name, &segment(1, i64::from(seconds)))
            {
                let path = Path::new("/srv/rec").join(&name);
                prop_assert!(path.starts_with("/srv/rec"), "{name}");
                prop_assert!(Path::new(&name).components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(!name.contains('\0'));
            }
        }
    }
}

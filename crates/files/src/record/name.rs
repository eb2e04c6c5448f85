//! What a segment is called: a pattern of the person's, and nothing that leaves their folder.

use std::fmt;
use std::path::{Component, Path};

use aulos_engine::recorder::{ClockZone, SegmentStart, UnixTime};
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// How the files of a recorder are called: `strftime`, with `{name}` for the recorder's name and
/// `{index}` for the number of the segment. A `/` makes folders. The format's extension is put
/// behind it, and a number in front of that where the name is taken.
///
/// # Examples
/// ```
/// use aulos_engine::recorder::ClockZone;
/// use aulos_files::record::Pattern;
///
/// assert!(Pattern::new("{name}/%Y-%m-%d/%H%M%S", ClockZone::Utc).is_ok());
/// let error = Pattern::new("../%H", ClockZone::Utc).unwrap_err();
/// assert!(error.to_string().contains("`..`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    zone: ClockZone,
}

impl Pattern {
    /// A pattern whose times are those of `zone`.
    ///
    /// # Errors
    /// [`BadPattern`], when it could leave the folder or cannot be a name.
    pub fn new(text: &str, zone: ClockZone) -> Result<Self, BadPattern> {
        let pattern = Self { text: text.to_owned(), zone };
        // The longest name that anybody is allowed, and a date with two digits in each place.
        let name = "n".repeat(MAX_NAME);
        let at = UnixTime::from_nanos(1_797_940_799_999_999_999);
        pattern.expand(&name, u64::from(u32::MAX), at)?;
        // What stands there before anything is put in must not be a way out either: `{name}` is
        // cleaned, and so is what a date brings.
        check(&text.replace(['{', '}', '%'], "_"))?;
        Ok(pattern)
    }

    /// The name of a segment, without an extension.
    ///
    /// # Errors
    /// [`BadPattern`]; what [`Pattern::new`] has taken fails only for a recorder whose name is
    /// longer than [`MAX_NAME`].
    pub fn name(&self, recorder: &str, segment: &SegmentStart) -> Result<String, BadPattern> {
        // What was cut at a full hour begins a part of a frame away from that, on either side.
        let utc = segment.utc.as_nanos().saturating_add(ROUNDING);
        self.expand(recorder, segment.number, UnixTime::from_nanos(utc))
    }

    fn expand(&self, recorder: &str, index: u64, at: UnixTime) -> Result<String, BadPattern> {
        let zoned = zoned(at, self.zone);
        let mut out = String::new();
        // The date first: what is put in afterwards may have percent signs.
        let dated = strtime::format(&self.text, &zoned)
            .map_err(|error| BadPattern::Date(error.to_string()))?;
        let mut rest = dated.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            out.push_str(before);
            let (word, behind) = brace.split_once('}').unwrap_or((brace, ""));
            match word {
                "{name}" | "{name" => out.push_str(&cleaned(recorder)),
                "{index" => out.push_str(&format!("{index:06}")),
                _ => return Err(BadPattern::Word(word.chars().take(20).collect())),
            }
            rest = behind;
        }
        out.push_str(rest);
        check(&out)?;
        Ok(out)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How far the time of the house's zone is ahead of UTC at a moment, in nanoseconds.
pub(super) fn offset(at: UnixTime) -> i64 {
    i64::from(zoned(at, ClockZone::Local).offset().seconds()) * 1_000_000_000
}

/// A moment as RFC 3339 has it, in UTC, to the microsecond.
#[must_use]
pub fn rfc3339(at: UnixTime) -> String {
    format!("{:.6}", timestamp(at))
}

fn zoned(at: UnixTime, zone: ClockZone) -> Zoned {
    let zone = match zone {
        ClockZone::Utc => TimeZone::UTC,
        ClockZone::Local => TimeZone::system(),
    };
    timestamp(at).to_zoned(zone)
}

fn timestamp(at: UnixTime) -> Timestamp {
    // Every count of nanoseconds in 64 bits is within its years.
    Timestamp::from_nanosecond(i128::from(at.as_nanos())).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A recorder's name as a part of a file's: no folder, not hidden.
fn cleaned(name: &str) -> String {
    let fits = |c: char| !c.is_control() && c != '/' && c != '\\';
    let clean: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    match clean.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => clean,
    }
}

/// Whether it is a way to a file below the folder that it is for.
fn check(name: &str) -> Result<(), BadPattern> {
    if name.contains('\0') {
        return Err(BadPattern::Nul);
    }
    if name.len() > MAX_PATH {
        return Err(BadPattern::Long);
    }
    if name.is_empty() || name.ends_with('/') {
        return Err(BadPattern::Empty);
    }
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) if part.len() > MAX_PART => return Err(BadPattern::Long),
            Component::Normal(part) if part.as_encoded_bytes().starts_with(b".") => {
                return Err(BadPattern::Hidden);
            }
            Component::Normal(_) => {}
            Component::RootDir | Component::Prefix(_) => return Err(BadPattern::Absolute),
            Component::ParentDir | Component::CurDir => return Err(BadPattern::Parent),
        }
    }
    Ok(())
}

/// Why a pattern cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPattern {
    /// It begins at the root of the file system.
    Absolute,
    /// It has a part that leads up or nowhere.
    Parent,
    /// A part of it begins with a point.
    Hidden,
    /// A byte in it cannot be in a name.
    Nul,
    /// A name of it could be longer than a file system takes.
    Long,
    /// Nothing would be left of it, or it ends with a folder.
    Empty,
    /// A date in it is none; holds what is wrong.
    Date(String),
    /// A word in braces is not known; holds it.
    Word(String),
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute => f.write_str("it begins with `/`: name the folder apart from it"),
            Self::Parent => f.write_str("it has `.` or `..` in it: it must stay in its folder"),
            Self::Hidden => f.write_str("a name in it begins with `.`: such files are not seen"),
            Self::Nul => f.write_str("it has a NUL byte in it"),
            Self::Long => write!(
                f,
                "a name could be too long: {MAX_PART} bytes for each part, {MAX_PATH} for all, with \
                 {MAX_NAME} for `{{name}}`"
            ),
            Self::Empty => f.write_str("it is empty or ends with `/`: a file needs a name"),
            Self::Date(what) => write!(f, "{what}: `%%` is a percent sign"),
            Self::Word(word) => {
                write!(f, "`{word}` is not known: there are `{{name}}` and `{{index}}`")
            }
        }
    }
}

impl std::error::Error for BadPattern {}

/// The longest name of a recorder, in bytes.
pub const MAX_NAME: usize = 64;

/// A millisecond.
const ROUNDING: i64 = 1_000_000;

/// What a file system takes is 255; a number, two extensions and `.part` come behind it.
const MAX_PART: usize = 200;

/// The same for a whole path, of which the folder is a part.
const MAX_PATH: usize = 1_024;

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
    fn a_name_has_the_date_the_recorder_and_the_number() {
        let pattern = Pattern::new("{name}/%Y/%m-%d/%H%M%S-{index}%%", ClockZone::Utc).unwrap();
        let name = pattern.name("Hall 1", &segment(7, 951_825_599)).unwrap();
        assert_eq!(name, "Hall 1/2000/02-29/115959-000007%");
        // A name is a part of a name, whatever is in it.
        let name = pattern.name("../a/b\0{index}%Y", &segment(7, 0)).unwrap();
        assert_eq!(name, "_._a_b_{index}%Y/1970/01-01/000000-000007%");
        assert_eq!(
            rfc3339(UnixTime::from_nanos(951_825_599_123_456_789)),
            "2000-02-29T11:59:59.123456Z"
        );
    }

    #[test]
    fn what_leads_out_of_the_folder_is_refused_with_the_reason() {
        let long = "a".repeat(MAX_PART + 1);
        let longer = "aaaaaaaaa/".repeat(110) + "b";
        let cases = [
            ("/srv/%H", BadPattern::Absolute),
            ("a/../../b", BadPattern::Parent),
            ("..", BadPattern::Parent),
            ("./a", BadPattern::Parent),
            (".hidden", BadPattern::Hidden),
            ("a\0b", BadPattern::Nul),
            (&long, BadPattern::Long),
            ("{name}{name}{name}{name}", BadPattern::Long),
            (&longer, BadPattern::Long),
            ("", BadPattern::Empty),
            ("a/", BadPattern::Empty),
            ("{station}", BadPattern::Word("{station".into())),
            ("a}", BadPattern::Word(String::new())),
        ];
        for (text, wanted) in cases {
            let error = Pattern::new(text, ClockZone::Utc).unwrap_err();
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&wanted),
                "{text}: {error:?}"
            );
            assert!(error.to_string().len() > 15);
        }
        assert!(matches!(Pattern::new("%!", ClockZone::Utc), Err(BadPattern::Date(_))));
        assert!(matches!(Pattern::new("a%", ClockZone::Utc), Err(BadPattern::Date(_))));
    }

    proptest! {
        #[test]
        fn no_pattern_and_no_name_leads_out(
            text in "(\\{name\\}|\\{index\\}|%[A-Za-z%0^_:.-]|[./a\\\\\u{0}é{}]){0,12}",
            name in "\\PC{0,20}|[./\u{0}]{0,6}", seconds in any::<i32>(),
        ) {
            if let Ok(pattern) = Pattern::new(&text, ClockZone::Utc)
                && let Ok(name) = pattern.name(&name, &segment(1, i64::from(seconds)))
            {
                let path = Path::new("/srv/rec").join(&name);
                prop_assert!(path.starts_with("/srv/rec"), "{name}");
                prop_assert!(Path::new(&name).components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(!name.contains('\0'));
            }
        }
    }
}

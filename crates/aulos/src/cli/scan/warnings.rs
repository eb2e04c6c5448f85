//! Warnings of a scanned file as JSON, for rows and for the journal.

use aulos_core::{ChannelLayout, SampleRate};
use aulos_files::decode::{FileWarning, RateAndLayout};
use serde_json::{Value, json};

/// An array of objects, each with a word and a sentence, and the figures.
pub(super) fn to_json(warnings: &[FileWarning]) -> Value {
    warnings.iter().map(object).collect()
}

fn object(warning: &FileWarning) -> Value {
    let mut object = match warning {
        FileWarning::Length { stated, found } => {
            json!({"stated_seconds": rounded(*stated), "seconds": rounded(*found)})
        }
        FileWarning::FormatChanges { changes, first, last } => {
            json!({"changes": changes, "first": format(first), "last": format(last)})
        }
        FileWarning::NotFinite { samples } => json!({"samples": samples}),
        _ => json!({}),
    };
    object["kind"] = warning.kind().into();
    object["message"] = warning.to_string().into();
    object
}

fn format((rate, layout): &RateAndLayout) -> Value {
    json!([rate.hz(), layout.channels()])
}

/// What [`to_json`] has written; what is not known is left out.
pub(super) fn from_json(value: &Value) -> Vec<FileWarning> {
    value.as_array().into_iter().flatten().filter_map(warning).collect()
}

fn warning(value: &Value) -> Option<FileWarning> {
    let seconds = |key: &str| value[key].as_f64();
    Some(match value["kind"].as_str()? {
        "length" => {
            FileWarning::Length { stated: seconds("stated_seconds")?, found: seconds("seconds")? }
        }
        "format_changes" => FileWarning::FormatChanges {
            changes: value["changes"].as_u64()?,
            first: parsed_format(&value["first"])?,
            last: parsed_format(&value["last"])?,
        },
        "silent" => FileWarning::Silent,
        "not_finite" => FileWarning::NotFinite { samples: value["samples"].as_u64()? },
        _ => return None,
    })
}

fn parsed_format(value: &Value) -> Option<RateAndLayout> {
    let rate = SampleRate::new(u32::try_from(value[0].as_u64()?).ok()?).ok()?;
    Some((rate, ChannelLayout::new(usize::try_from(value[1].as_u64()?).ok()?).ok()?))
}

/// To a millionth, as all figures of a row.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_keeps_every_warning() {
        let format =
            |hz, channels| (SampleRate::new(hz).unwrap(), ChannelLayout::new(channels).unwrap());
        let (first, last) = (format(48_000, 2), format(44_100, 1));
        let warnings = [
            FileWarning::Length { stated: 8.0, found: 16.08 },
            FileWarning::FormatChanges { changes: 2, first, last },
            FileWarning::Silent,
            FileWarning::NotFinite { samples: 11 },
        ];
        let text = to_json(&warnings).to_string();
        assert_eq!(from_json(&serde_json::from_str(&text).unwrap()), warnings);
        assert!(text.contains("the header says 8.000 s, the file has 16.080 s"), "{text}");
        assert_eq!(from_json(&Value::Null), []);
    }
}

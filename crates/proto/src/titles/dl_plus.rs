//! The text file of `ODR-PadEnc`: a dynamic label of DAB+, with DL Plus tags (ETSI TS 102 980) that
//! say which part of it is the title.

use core::fmt::Write as _;

use super::template::{RenderedTitle, TitleField};

/// The file for a label. `toggle` changes with each title, so that receivers know a new one by the
/// same name; the text is cut to [`MAX_LABEL`] bytes.
#[must_use]
pub fn dynamic_label(rendered: &RenderedTitle, toggle: bool) -> String {
    let text: String = one_line(&rendered.text);
    let mut end = MAX_LABEL.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    let is_running = rendered.fields.iter().any(|(field, _)| *field == TitleField::Title);
    let mut file = format!(
        "{OPEN}DL_PLUS=1\nDL_PLUS_ITEM_TOGGLE={}\nDL_PLUS_ITEM_RUNNING={}\n",
        u8::from(toggle),
        u8::from(is_running)
    );
    let tags = rendered.fields.iter().filter_map(|(field, place)| {
        let before = text.get(..place.start)?.chars().count();
        let length = text.get(place.start..place.end.min(end))?.chars().count();
        // The length is coded as one less.
        Some((tag(*field)?, before, length.checked_sub(1)?))
    });
    for (kind, start, length) in tags.take(MAX_TAGS) {
        // Writing to a text cannot fail.
        writeln!(file, "DL_PLUS_TAG={kind} {start} {length}").ok();
    }
    file + CLOSE + text + "\n"
}

/// The content type of a field, as TS 102 980 numbers them.
const fn tag(field: TitleField) -> Option<u8> {
    match field {
        TitleField::Title => Some(1),
        TitleField::Album => Some(2),
        TitleField::Artist => Some(4),
        TitleField::Station => Some(32),
        TitleField::Song | TitleField::Duration | TitleField::Next => None,
    }
}

/// A line break would end the label. Each is one byte, so places stay.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// Bytes of a label.
pub const MAX_LABEL: usize = 128;

/// Tags of a label.
const MAX_TAGS: usize = 4;

const OPEN: &str = "##### parameters { #####\n";
const CLOSE: &str = "##### parameters } #####\n";

#[cfg(test)]
mod tests {
    use super::super::TrackMetadata;
    use super::super::template::{NowPlaying, TitleTemplate};
    use super::*;

    fn label(template: &str, line: &str, toggle: bool) -> String {
        let title = TrackMetadata::from_stream_title(line);
        let playing = NowPlaying { station: "Radio".to_owned(), title, next: None };
        dynamic_label(&template.parse::<TitleTemplate>().unwrap().render(&playing), toggle)
    }

    #[test]
    fn tags_count_characters_and_not_bytes() {
        let expected = "##### parameters { #####\nDL_PLUS=1\nDL_PLUS_ITEM_TOGGLE=1\n\
                        DL_PLUS_ITEM_RUNNING=1\nDL_PLUS_TAG=4 5 4\nDL_PLUS_TAG=1 13 3\n\
                        ##### parameters } #####\nNow: Björk - Jóga\n";
        assert_eq!(label("Now: {song}", "Björk - Jóga", true), expected);
    }

    #[test]
    fn without_a_title_the_station_is_named_and_no_item_runs() {
        let file = label("{song}", "", false);
        assert!(file.contains("ITEM_TOGGLE=0\nDL_PLUS_ITEM_RUNNING=0\nDL_PLUS_TAG=32 0 4\n"));
        assert!(file.ends_with("#####\nRadio\n"), "{file}");
    }

    #[test]
    fn a_long_label_is_cut_with_its_tags() {
        let line = format!("{} - {}", "é".repeat(62), "x".repeat(50));
        let file = label("{song}\nlater", &line, false);
        assert!(file.contains("DL_PLUS_TAG=4 0 61\nDL_PLUS_TAG=1 65 0\n"), "{file}");
        assert_eq!(file.lines().last().unwrap().len(), MAX_LABEL);
        let file = label("{song}", &format!("{} - x", "é".repeat(80)), false);
        assert!(file.contains("DL_PLUS_TAG=4 0 63\n####"), "{file}");
    }
}

//! Texts about what is playing, made from a template such as `TEXT={artist} - {title}`.

use core::fmt;
use core::ops::Range;

use aulos_core::Span;

use super::TrackMetadata;
use crate::http::icy::stream_title;

/// What a station plays, for outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a template can name")]
pub struct NowPlaying {
    /// The name of the station.
    pub station: String,
    /// The present title; empty while none is known.
    pub title: TrackMetadata,
    /// What follows, in one line.
    pub next: Option<String>,
}

/// A field of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TitleField {
    /// `{song}`: performer and title in one line, or the station's name while neither is known.
    Song,
    /// `{artist}`.
    Artist,
    /// `{title}`.
    Title,
    /// `{album}`.
    Album,
    /// `{duration}`: the length in whole seconds.
    Duration,
    /// `{station}`.
    Station,
    /// `{next}`: what follows.
    Next,
}

/// A text with fields in braces; `{{` and `}}` are braces.
///
/// # Examples
/// ```
/// use aulos_proto::titles::{NowPlaying, TitleTemplate, TrackMetadata};
///
/// let template: TitleTemplate = "TEXT={song}\r".parse().unwrap();
/// let title = TrackMetadata::from_stream_title("Alma - Rain");
/// let playing = NowPlaying { title, ..NowPlaying::default() };
/// assert_eq!(template.render(&playing).text, "TEXT=Alma - Rain\r");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TitleTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(TitleField),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// A field has no closing brace, or a closing brace has no field.
    Unbalanced,
    /// There is no field of this name.
    UnknownField(String),
}

/// A text made from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct RenderedTitle {
    /// The text.
    pub text: String,
    /// Where fields that are not empty lie in it, in bytes. Of `{song}` its parts are given.
    pub fields: Vec<(TitleField, Range<usize>)>,
}

impl TitleField {
    /// Every field.
    pub const ALL: [Self; 7] = [
        Self::Song,
        Self::Artist,
        Self::Title,
        Self::Album,
        Self::Duration,
        Self::Station,
        Self::Next,
    ];

    /// Its name in a template.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Song => "song",
            Self::Artist => "artist",
            Self::Title => "title",
            Self::Album => "album",
            Self::Duration => "duration",
            Self::Station => "station",
            Self::Next => "next",
        }
    }

    fn value(self, playing: &NowPlaying) -> String {
        let title = &playing.title;
        let text = match self {
            Self::Song => Some(stream_title(title)).filter(|line| !line.is_empty()),
            Self::Artist => title.artist.clone(),
            Self::Title => title.title.clone(),
            Self::Album => title.album.clone(),
            Self::Duration => title.duration.map(whole_seconds),
            Self::Station => None,
            Self::Next => return playing.next.clone().unwrap_or_default(),
        };
        match self {
            Self::Song | Self::Station => text.unwrap_or_else(|| playing.station.clone()),
            _ => text.unwrap_or_default(),
        }
    }

    /// The parts of a field that have a meaning of their own, with their place in its value.
    fn parts(self, playing: &NowPlaying, value: &str) -> Vec<(Self, Range<usize>)> {
        let (artist, title) = (&playing.title.artist, &playing.title.title);
        let artist = artist.as_ref().map(String::len);
        match self {
            Self::Song if artist.is_some() || title.is_some() => {
                let of_artist = artist.map(|end| (Self::Artist, 0..end));
                let of_title = title.as_ref().map(|title| {
                    (Self::Title, value.len().saturating_sub(title.len())..value.len())
                });
                of_artist.into_iter().chain(of_title).collect()
            }
            Self::Song => vec![(Self::Station, 0..value.len())],
            _ => vec![(self, 0..value.len())],
        }
    }
}

impl TitleTemplate {
    /// The text for what is playing.
    #[must_use]
    pub fn render(&self, playing: &NowPlaying) -> RenderedTitle {
        let mut rendered = RenderedTitle::default();
        for part in &self.0 {
            let at = rendered.text.len();
            match part {
                Part::Text(text) => rendered.text += text,
                Part::Field(field) => {
                    let value = field.value(playing);
                    let parts = field.parts(playing, &value).into_iter();
                    let placed = parts.map(|(of, place)| (of, at + place.start..at + place.end));
                    rendered.fields.extend(placed.filter(|(_, place)| !place.is_empty()));
                    rendered.text += &value;
                }
            }
        }
        rendered
    }

    /// The text with each value changed by `escape`, as for a URL.
    #[must_use]
    pub fn render_escaped(&self, playing: &NowPlaying, escape: impl Fn(&str) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(field) => escape(&field.value(playing)),
        };
        self.0.iter().map(part).collect()
    }
}

impl core::str::FromStr for TitleTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain += before;
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.extend(from.chars().next());
                rest = after;
                continue;
            }
            let inner = from.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, after) = inner.ok_or(TemplateError::Unbalanced)?;
            let field = TitleField::ALL.into_iter().find(|field| field.name() == name);
            let field = field.ok_or_else(|| TemplateError::UnknownField(name.to_owned()))?;
            if !plain.is_empty() {
                parts.push(Part::Text(core::mem::take(&mut plain)));
            }
            parts.push(Part::Field(field));
            rest = after;
        }
        plain += rest;
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbalanced => f.write_str("has a brace without its counterpart"),
            Self::UnknownField(name) => write!(f, "has the unknown field {{{name}}}"),
        }
    }
}

impl core::error::Error for TemplateError {}

fn whole_seconds(span: Span) -> String {
    (span.as_millis() / 1_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn playing(line: &str) -> NowPlaying {
        NowPlaying {
            station: "Radio".to_owned(),
            title: TrackMetadata::from_stream_title(line),
            next: Some("Bela".to_owned()),
        }
    }

    fn render(template: &str, line: &str) -> RenderedTitle {
        template.parse::<TitleTemplate>().unwrap().render(&playing(line))
    }

    #[test]
    fn fields_are_replaced_and_found_again_by_their_places() {
        let rendered = render("{{x}} {song} on {station}, then {next}{album}", "Ärzte - Rain");
        assert_eq!(rendered.text, "{x} Ärzte - Rain on Radio, then Bela");
        let found: Vec<_> = rendered
            .fields
            .iter()
            .map(|(field, place)| (field.name(), &rendered.text[place.clone()]))
            .collect();
        let expected =
            [("artist", "Ärzte"), ("title", "Rain"), ("station", "Radio"), ("next", "Bela")];
        assert_eq!(found, expected);
    }

    #[test]
    fn without_a_title_the_song_is_the_station() {
        assert_eq!(render("{song}", "").text, "Radio");
        assert_eq!(render("{artist}|{title}", "").text, "|");
        assert_eq!(render("{song}", "Rain").text, "Rain");
    }

    #[test]
    fn a_wrong_template_is_refused() {
        let error = |text: &str| text.parse::<TitleTemplate>().unwrap_err();
        assert_eq!(error("{track}"), TemplateError::UnknownField("track".to_owned()));
        for text in ["{title", "title}", "{", "}", "{title}}"] {
            assert_eq!(error(text), TemplateError::Unbalanced, "{text}");
        }
    }

    #[test]
    fn values_are_escaped_and_the_text_around_them_is_not() {
        let template: TitleTemplate = "/set?t={title}&x=1".parse().unwrap();
        let escaped = template.render_escaped(&playing("a&b"), |value| value.replace('&', "%26"));
        assert_eq!(escaped, "/set?t=a%26b&x=1");
    }
}

//! Copies the tags of the old file to the new one.
//!
//! Tags about the old audio are left out: gains (players would apply them again), the encoder, and
//! encoder delays. The library converts between formats. A tag that it does not know keeps its
//! name; a tag that cannot be converted is listed in [`Tags::lost`].

use core::num::NonZero;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use flac_codec::encode::Options;
use flac_codec::metadata::{self, PictureType};
use lofty::config::WriteOptions;
use lofty::id3::v2::{ExtendedTextFrame, Frame, Id3v2Tag};
use lofty::mp4::{AtomData, AtomIdent, Ilst};
use lofty::ogg::OggPictureStorage;
use lofty::ogg::tag::VorbisComments;
use lofty::picture::{Picture, PictureInformation};
use lofty::tag::{ItemKey, ItemValue, SplitTag, Tag, TagExt, TagType};

use super::container::OutputContainer;
use crate::scan::tag::TagError;
use crate::scan::tag::container::TagContainer;

/// The tags in the forms of the output formats.
#[derive(Default)]
pub(super) struct Tags {
    /// For FLAC and Opus.
    pub(super) comments: Vec<(String, String)>,
    pub(super) pictures: Vec<(Picture, PictureInformation)>,
    /// For WAVE: an ID3 tag, or empty.
    pub(super) id3: Vec<u8>,
    /// Tags that could not be converted.
    pub(super) lost: Vec<String>,
}

impl Tags {
    /// The tags of the file `from`, for an output in the format `to`. Missing or damaged tags
    /// result in none; only the audio is essential.
    pub(super) fn read(from: &Path, to: OutputContainer) -> Self {
        let read = File::open(from).map_err(TagError::from);
        match read.and_then(|mut file| TagContainer::read(&mut file)) {
            Ok(container) if to == OutputContainer::Wave => Self::for_wave(container),
            Ok(container) => Self::for_comments(container),
            Err(TagError::Damaged) => Self { lost: vec!["all: damaged".into()], ..Self::default() },
            Err(_) => Self::default(),
        }
    }

    /// As FLAC metadata blocks.
    pub(super) fn flac(&self, mut options: Options) -> Options {
        for (name, text) in &self.comments {
            options = options.tag(name, text);
        }
        for (picture, about) in &self.pictures {
            let kind = usize::from(picture.pic_type().as_u8());
            options = options.picture(metadata::Picture {
                picture_type: *PICTURE_TYPES.get(kind).unwrap_or(&PictureType::Other),
                media_type: picture.mime_type().map_or_else(String::new, |kind| kind.to_string()),
                description: picture.description().unwrap_or_default().to_owned(),
                width: about.width,
                height: about.height,
                color_depth: about.color_depth,
                colors_used: NonZero::new(about.num_colors),
                data: picture.data().to_vec(),
            });
        }
        options
    }

    /// As comments, including pictures (RFC 7845, section 5.2.2).
    pub(super) fn opus(&self) -> Vec<(String, String)> {
        let pictures = self.pictures.iter().map(|(picture, about)| {
            let text = picture.as_flac_bytes(*about, true);
            ("METADATA_BLOCK_PICTURE".to_owned(), String::from_utf8_lossy(&text).into_owned())
        });
        self.comments.iter().cloned().chain(pictures).collect()
    }

    fn for_wave(container: TagContainer) -> Self {
        let (mut frames, lost) = match container.into_family() {
            TagFamily::Frames(frames) => (frames, BTreeSet::new()),
            other => {
                let NeutralTags { mut tag, others, mut lost } = other.neutral();
                // FFmpeg writes a comment where Vorbis comments have a description.
                let description = tag.take_strings(ItemKey::Description).next();
                if let (Some(text), None) = (description, tag.get(ItemKey::Comment)) {
                    tag.insert_text(ItemKey::Comment, text);
                }
                let mut named = Vec::new();
                for item in tag.items() {
                    if PAIRED_KEYS.contains(&item.key()) || is_supported_by(item, TagType::Id3v2) {
                        continue;
                    }
                    let name = item.key().map_key(TagType::VorbisComments);
                    match (name, item.value().text()) {
                        (Some(name), Some(text)) => named.push((name.into(), text.to_owned())),
                        _ => drop(lost.insert(format!("{:?}", item.key()))),
                    }
                }
                tag.retain(|item| !describes_audio_key(item.key()));
                let mut frames = Id3v2Tag::from(tag);
                for (name, text) in others.into_iter().chain(named) {
                    drop(frames.insert_user_text(name, text));
                }
                (frames, lost)
            }
        };
        frames.retain(|frame| !describes_audio_frame(frame));
        let mut tags = Self { lost: lost.into_iter().collect(), ..Self::default() };
        if !frames.is_empty() && frames.dump_to(&mut tags.id3, WriteOptions::default()).is_err() {
            tags.id3.clear();
            tags.lost.push("all: too much for WAVE".into());
        }
        tags
    }

    fn for_comments(container: TagContainer) -> Self {
        let (comments, others, lost) = match container.into_family() {
            TagFamily::Comments(comments) => (comments, Vec::new(), BTreeSet::new()),
            other => {
                let NeutralTags { tag, others, mut lost } = other.neutral();
                for item in tag.items() {
                    if !is_supported_by(item, TagType::VorbisComments) {
                        lost.insert(format!("{:?}", item.key()));
                    }
                }
                (VorbisComments::from(tag), others, lost)
            }
        };
        let items = comments.items().map(|(name, text)| (name.to_owned(), text.to_owned()));
        let (good, bad): (Vec<_>, Vec<_>) = items
            .chain(others)
            .filter(|(name, _)| !describes_audio(name))
            .partition(|(name, _)| is_valid_comment_name(name));
        let bad = bad.into_iter().map(|(name, _)| name);
        Self {
            comments: good,
            pictures: comments.pictures().to_vec(),
            id3: Vec::new(),
            lost: lost.into_iter().chain(bad).collect(),
        }
    }
}

/// The tag systems of the formats.
enum TagFamily {
    Comments(VorbisComments),
    Frames(Id3v2Tag),
    Atoms(Ilst),
    /// Formats with a few fixed fields.
    Plain(Tag),
    Nothing,
}

/// Tags that the library knows, tags with custom names, and tags that cannot be converted.
struct NeutralTags {
    tag: Tag,
    others: Vec<(String, String)>,
    lost: BTreeSet<String>,
}

impl TagContainer {
    fn into_family(self) -> TagFamily {
        match self {
            Self::Flac(mut it) => {
                let mut comments = it.remove_vorbis_comments().unwrap_or_default();
                for (picture, about) in it.pictures() {
                    // The library needs the dimensions of a picture format that it cannot parse.
                    drop(comments.insert_picture(picture.clone(), Some(*about)));
                }
                TagFamily::Comments(comments)
            }
            Self::Vorbis(it) => TagFamily::Comments(it.vorbis_comments().clone()),
            Self::Opus(it) => TagFamily::Comments(it.vorbis_comments().clone()),
            Self::Mp4(mut it) => it.remove_ilst().map_or(TagFamily::Nothing, TagFamily::Atoms),
            Self::Aac(mut it) => it.remove_id3v2().map_or(TagFamily::Nothing, TagFamily::Frames),
            Self::Mpeg(mut it) => match it.remove_id3v2() {
                Some(frames) => TagFamily::Frames(frames),
                None => plain_family(
                    it.remove_ape().map(Tag::from).or_else(|| it.remove_id3v1().map(Tag::from)),
                ),
            },
            Self::Wav(mut it) => match it.remove_id3v2() {
                Some(frames) => TagFamily::Frames(frames),
                None => plain_family(it.remove_riff_info().map(Tag::from)),
            },
            Self::Aiff(mut it) => match it.remove_id3v2() {
                Some(frames) => TagFamily::Frames(frames),
                None => plain_family(it.remove_text_chunks().map(Tag::from)),
            },
        }
    }
}

fn plain_family(tag: Option<Tag>) -> TagFamily {
    tag.map_or(TagFamily::Nothing, TagFamily::Plain)
}

impl TagFamily {
    fn neutral(self) -> NeutralTags {
        let mut others = Vec::new();
        let mut lost = BTreeSet::new();
        let tag = match self {
            Self::Comments(comments) => {
                let (rest, tag) = comments.split_tag();
                let rest = rest.items().map(|(name, text)| (name.to_owned(), text.to_owned()));
                others.extend(rest);
                split_number_pairs(tag)
            }
            Self::Frames(frames) => {
                let (rest, tag) = frames.split_tag();
                for frame in &*rest {
                    match frame {
                        Frame::UserText(ExtendedTextFrame { description, content, .. }) => {
                            others.push((description.to_string(), content.to_string()));
                        }
                        frame if describes_audio_frame(frame) => {}
                        frame => drop(lost.insert(frame.id_str().to_owned())),
                    }
                }
                tag
            }
            Self::Atoms(atoms) => {
                let (rest, tag) = atoms.split_tag();
                for atom in &*rest {
                    let name = match atom.ident() {
                        AtomIdent::Freeform { name, .. } => name.to_string(),
                        AtomIdent::Fourcc(code) => String::from_utf8_lossy(code).into_owned(),
                    };
                    let texts = atom.data().filter_map(|data| match data {
                        AtomData::UTF8(text) | AtomData::UTF16(text) => Some(text.clone()),
                        _ => None,
                    });
                    let before = others.len();
                    others.extend(texts.map(|text| (name.clone(), text)));
                    if others.len() == before && !describes_audio(&name) {
                        lost.insert(name);
                    }
                }
                tag
            }
            Self::Plain(tag) => split_number_pairs(tag),
            Self::Nothing => Tag::new(TagType::VorbisComments),
        };
        others.retain(|(name, _)| !describes_audio(name));
        NeutralTags { tag, others, lost }
    }
}

/// Some programs write "3/9" where Vorbis comments have two fields.
fn split_number_pairs(mut tag: Tag) -> Tag {
    for [number, total] in
        [[ItemKey::TrackNumber, ItemKey::TrackTotal], [ItemKey::DiscNumber, ItemKey::DiscTotal]]
    {
        let pair = tag.get_string(number).and_then(|text| text.split_once('/'));
        if let Some((one, all)) = pair.map(|(one, all)| (one.to_owned(), all.to_owned())) {
            tag.insert_text(number, one.trim().to_owned());
            tag.insert_text(total, all.trim().to_owned());
        }
    }
    tag
}

/// Whether the target's tag type supports this item.
fn is_supported_by(item: &lofty::tag::TagItem, kind: TagType) -> bool {
    describes_audio_key(item.key())
        || (item.key().map_key(kind).is_some() && !matches!(item.value(), ItemValue::Binary(_)))
}

const fn describes_audio_key(key: ItemKey) -> bool {
    matches!(
        key,
        ItemKey::ReplayGainAlbumGain
            | ItemKey::ReplayGainAlbumPeak
            | ItemKey::ReplayGainTrackGain
            | ItemKey::ReplayGainTrackPeak
            | ItemKey::R128TrackGain
            | ItemKey::R128AlbumGain
            | ItemKey::EncoderSoftware
            | ItemKey::EncoderSettings
    )
}

fn describes_audio_frame(frame: &Frame<'_>) -> bool {
    match frame {
        Frame::UserText(ExtendedTextFrame { description, .. }) => describes_audio(description),
        frame => AUDIO_FRAMES.contains(&frame.id_str()),
    }
}

fn describes_audio(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    AUDIO_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a comment may have this name (RFC 9639, section 8.6).
fn is_valid_comment_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| (b' '..=b'}').contains(&byte) && byte != b'=')
}

/// Prefixes of names about loudness, the old encoder, or encoder delays.
const AUDIO_PREFIXES: [&str; 8] = [
    "REPLAYGAIN_",
    "R128_",
    "MP3GAIN_",
    "ITUNNORM",
    "ITUNSMPB",
    "ENCODER",
    "ENCODING",
    "METADATA_BLOCK_PICTURE",
];
/// Volume and its equivalents in the library, the encoder, its settings, and the length.
const AUDIO_FRAMES: [&str; 7] = ["RVA2", "RVAD", "RGAD", "TSSE", "TLEN", "MLLT", "ASPI"];
/// Each pair shares one frame, which is queried by its first key.
const PAIRED_KEYS: [ItemKey; 4] =
    [ItemKey::TrackNumber, ItemKey::TrackTotal, ItemKey::DiscNumber, ItemKey::DiscTotal];
/// Indexed by picture type (RFC 9639, section 8.8).
const PICTURE_TYPES: [PictureType; 21] = [
    PictureType::Other,
    PictureType::Png32x32,
    PictureType::GeneralFileIcon,
    PictureType::FrontCover,
    PictureType::BackCover,
    PictureType::LinerNotes,
    PictureType::MediaLabel,
    PictureType::LeadArtist,
    PictureType::Artist,
    PictureType::Conductor,
    PictureType::Band,
    PictureType::Composer,
    PictureType::Lyricist,
    PictureType::RecordingLocation,
    PictureType::DuringRecording,
    PictureType::DuringPerformance,
    PictureType::ScreenCapture,
    PictureType::Fish,
    PictureType::Illustration,
    PictureType::BandLogo,
    PictureType::PublisherLogo,
];

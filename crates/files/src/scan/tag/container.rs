//! Reads, changes and writes the tags of all supported formats.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read, Seek};

use aulos_engine::codec_guard::{CodecLibrary, guard};
use lofty::aac::AacFile;
use lofty::ape::ApeItem;
use lofty::config::{ParseOptions, WriteOptions};
use lofty::error::FileEncodingError;
use lofty::file::{AudioFile, FileType};
use lofty::flac::FlacFile;
use lofty::id3::v2::{ExtendedTextFrame, Frame, Id3v2Tag, Id3v2Version};
use lofty::iff::aiff::AiffFile;
use lofty::iff::wav::WavFile;
use lofty::mp4::{Atom, AtomData, AtomIdent, Ilst, Mp4File};
use lofty::mpeg::MpegFile;
use lofty::ogg::tag::VorbisComments;
use lofty::ogg::{OpusFile, VorbisFile};
use lofty::probe::Probe;
use lofty::tag::{ItemKey, ItemValue, Tag, TagType};

use super::TagError;

/// All tags of a file.
pub(crate) enum TagContainer {
    Flac(FlacFile),
    Vorbis(VorbisFile),
    Opus(OpusFile),
    Mpeg(MpegFile),
    Mp4(Mp4File),
    Wav(WavFile),
    Aiff(AiffFile),
    Aac(AacFile),
}

enum TagRef<'a> {
    Comments(&'a VorbisComments),
    Frames(&'a Id3v2Tag),
    Atoms(&'a Ilst),
}

enum TagMut<'a> {
    Comments(&'a mut VorbisComments),
    Frames(&'a mut Id3v2Tag),
    Atoms(&'a mut Ilst),
}

impl TagContainer {
    /// Reads the tags; the content and not the name decides about the format.
    pub(crate) fn read(file: &mut File) -> Result<Self, TagError> {
        call(|| {
            file.rewind()?;
            let mut reader = BufReader::new(file);
            let mut front = [0; 12];
            reader.read_exact(&mut front)?;
            reader.rewind()?;
            let search = ParseOptions::new().max_junk_bytes(MAX_BYTES_BEFORE_AUDIO);
            let kind = Probe::new(&mut reader).options(search).guess_file_type()?.file_type();
            let kind = kind.filter(|kind| has_signature(&front, *kind));
            reader.rewind()?;
            // Frames of older ID3 versions are kept as they are.
            let mut options = search;
            let options = options.read_properties(false).implicit_conversions(false);
            let from = &mut reader;
            match kind {
                Some(FileType::Flac) => Self::flac(FlacFile::read_from(from, options)),
                Some(FileType::Vorbis) => VorbisFile::read_from(from, options).map(Self::Vorbis),
                Some(FileType::Opus) => OpusFile::read_from(from, options).map(Self::Opus),
                Some(FileType::Mpeg) => MpegFile::read_from(from, options).map(Self::Mpeg),
                Some(FileType::Mp4) => Mp4File::read_from(from, options).map(Self::Mp4),
                Some(FileType::Wav) => WavFile::read_from(from, options).map(Self::Wav),
                Some(FileType::Aiff) => AiffFile::read_from(from, options).map(Self::Aiff),
                Some(FileType::Aac) => AacFile::read_from(from, options).map(Self::Aac),
                _ => return Err(TagError::Unsupported),
            }
            .map_err(|error| TagError::from_library(&error))
        })
    }

    /// ID3 tags in front of FLAC can be read but not written, and players do not read gains from
    /// them. Comments hide them, so comments without title and artist get their fields.
    fn flac<E>(file: Result<FlacFile, E>) -> Result<Self, E> {
        let mut file = file?;
        let Some(frames) = file.remove_id3v2() else { return Ok(Self::Flac(file)) };
        let mut comments = file.remove_vorbis_comments().unwrap_or_default();
        if ["TITLE", "ARTIST"].iter().all(|name| comments.get(name).is_none()) {
            let fields = merged(vec![Tag::from(frames)], TagType::VorbisComments);
            for (name, text) in VorbisComments::from(fields).items() {
                if comments.get(name).is_none() {
                    comments.push(name.to_owned(), text.to_owned());
                }
            }
        }
        file.set_vorbis_comments(comments);
        Ok(Self::Flac(file))
    }

    pub(super) fn write(&self, file: &mut File) -> Result<(), TagError> {
        let version = match self.tag_ref() {
            Some(TagRef::Frames(frames)) => frames.original_version(),
            _ => Id3v2Version::V4,
        };
        let search = ParseOptions::new().max_junk_bytes(MAX_BYTES_BEFORE_AUDIO);
        let options =
            WriteOptions::new().parse_options(search).use_id3v23(version == Id3v2Version::V3);
        call(|| {
            file.rewind()?;
            self.save(file, options).map_err(|error| TagError::from_library(&error))
        })
    }

    fn save(&self, file: &mut File, options: WriteOptions) -> Result<(), FileEncodingError> {
        match self {
            Self::Flac(it) => it.save_to(file, options),
            Self::Vorbis(it) => it.save_to(file, options),
            Self::Opus(it) => it.save_to(file, options),
            Self::Mpeg(it) => it.save_to(file, options),
            Self::Mp4(it) => it.save_to(file, options),
            Self::Wav(it) => it.save_to(file, options),
            Self::Aiff(it) => it.save_to(file, options),
            Self::Aac(it) => it.save_to(file, options),
        }
    }

    pub(super) const fn is_opus(&self) -> bool {
        matches!(self, Self::Opus(_))
    }

    /// The text of a tag. Names are compared without case, because programs differ in that.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.all(name).into_iter().next()
    }

    /// Whether a tag exists more than once, with an `APEv2` tag of another text counted: players
    /// differ in which one they use.
    pub(super) fn has_doubles(&self, name: &str) -> bool {
        let copy = self.ape_text(name);
        self.all(name).len() > 1 || (copy.is_some() && copy != self.get(name))
    }

    /// The text in the `APEv2` tag of an MP3 file, where mp3gain keeps its gains.
    pub(super) fn ape_text(&self, name: &str) -> Option<String> {
        let Self::Mpeg(file) = self else { return None };
        file.ape()?.get(name)?.text_values()?.next().map(ToOwned::to_owned)
    }

    /// Writes a tag into the `APEv2` tag if that has it.
    fn update_ape(&mut self, name: &str, new: Option<&str>) {
        let Self::Mpeg(file) = self else { return };
        let Some(tag) = file.ape_mut().filter(|tag| tag.get(name).is_some()) else { return };
        tag.remove(name);
        let text = new.map(|text| ItemValue::Text(text.to_owned()));
        if let Some(Ok(item)) = text.map(|text| ApeItem::new(name.to_owned(), text)) {
            tag.insert(item);
        }
    }

    fn all(&self, name: &str) -> Vec<String> {
        match self.tag_ref() {
            None => Vec::new(),
            Some(TagRef::Comments(comments)) => {
                comments.get_all(name).map(ToOwned::to_owned).collect()
            }
            Some(TagRef::Frames(frames)) => {
                let texts = frames.into_iter().filter_map(|frame| text_of(frame, name));
                texts.map(ToOwned::to_owned).collect()
            }
            Some(TagRef::Atoms(atoms)) => {
                let named = atoms.into_iter().filter(|atom| is_named(atom.ident(), name));
                let texts = named.flat_map(Atom::data).filter_map(|data| match data {
                    AtomData::UTF8(text) | AtomData::UTF16(text) => Some(text.clone()),
                    _ => None,
                });
                texts.collect()
            }
        }
    }

    pub(super) fn apply(&mut self, changes: &[TagChange]) {
        for TagChange { name, new, .. } in changes {
            self.update_ape(name, new.as_deref());
        }
        let mut place = self.tag_mut_or_insert();
        for TagChange { name, new, .. } in changes {
            match &mut place {
                TagMut::Comments(comments) => match new {
                    Some(text) => comments.insert((*name).into(), text.clone()),
                    None => drop(comments.remove(name)),
                },
                TagMut::Frames(frames) => {
                    frames.retain(|frame| text_of(frame, name).is_none());
                    if let Some(text) = new {
                        drop(frames.insert_user_text((*name).into(), text.clone()));
                    }
                }
                TagMut::Atoms(atoms) => {
                    atoms.retain(|atom| !is_named(atom.ident(), name));
                    if let Some(text) = new {
                        atoms.insert(freeform_atom(name, text.clone()));
                    }
                }
            }
        }
    }

    fn tag_ref(&self) -> Option<TagRef<'_>> {
        match self {
            Self::Flac(it) => it.vorbis_comments().map(TagRef::Comments),
            Self::Vorbis(it) => Some(TagRef::Comments(it.vorbis_comments())),
            Self::Opus(it) => Some(TagRef::Comments(it.vorbis_comments())),
            Self::Mpeg(it) => it.id3v2().map(TagRef::Frames),
            Self::Mp4(it) => it.ilst().map(TagRef::Atoms),
            Self::Wav(it) => it.id3v2().map(TagRef::Frames),
            Self::Aiff(it) => it.id3v2().map(TagRef::Frames),
            Self::Aac(it) => it.id3v2().map(TagRef::Frames),
        }
    }

    /// The fields of tags that players do not read beside `ID3v2`; so a new one must have them.
    fn hidden_fields(&self) -> Id3v2Tag {
        let tags = match self {
            Self::Mpeg(it) => {
                vec![it.ape().cloned().map(Tag::from), it.id3v1().cloned().map(Tag::from)]
            }
            Self::Aac(it) => vec![it.id3v1().cloned().map(Tag::from)],
            Self::Wav(it) => vec![it.riff_info().cloned().map(Tag::from)],
            Self::Aiff(it) => vec![it.text_chunks().cloned().map(Tag::from)],
            Self::Flac(_) | Self::Vorbis(_) | Self::Opus(_) | Self::Mp4(_) => Vec::new(),
        };
        merged(tags.into_iter().flatten().collect(), TagType::Id3v2).into()
    }

    /// The tags, created if there are none.
    fn tag_mut_or_insert(&mut self) -> TagMut<'_> {
        if self.tag_ref().is_none() {
            let frames = self.hidden_fields();
            match self {
                Self::Flac(it) => drop(it.set_vorbis_comments(VorbisComments::default())),
                Self::Mpeg(it) => drop(it.set_id3v2(frames)),
                Self::Mp4(it) => drop(it.set_ilst(Ilst::default())),
                Self::Wav(it) => drop(it.set_id3v2(frames)),
                Self::Aiff(it) => drop(it.set_id3v2(frames)),
                Self::Aac(it) => drop(it.set_id3v2(frames)),
                Self::Vorbis(_) | Self::Opus(_) => {}
            }
        }
        self.tag_mut().unwrap_or_else(|| unreachable!("it was inserted above"))
    }

    fn tag_mut(&mut self) -> Option<TagMut<'_>> {
        Some(match self {
            Self::Flac(it) => TagMut::Comments(it.vorbis_comments_mut()?),
            Self::Vorbis(it) => TagMut::Comments(it.vorbis_comments_mut()),
            Self::Opus(it) => TagMut::Comments(it.vorbis_comments_mut()),
            Self::Mpeg(it) => TagMut::Frames(it.id3v2_mut()?),
            Self::Mp4(it) => TagMut::Atoms(it.ilst_mut()?),
            Self::Wav(it) => TagMut::Frames(it.id3v2_mut()?),
            Self::Aiff(it) => TagMut::Frames(it.id3v2_mut()?),
            Self::Aac(it) => TagMut::Frames(it.id3v2_mut()?),
        })
    }
}

/// The fields of several tags for a tag of another kind; of a field that more than one has, that of
/// the first. Without gains, which are written anew, and without pictures.
fn merged(tags: Vec<Tag>, kind: TagType) -> Tag {
    let mut all = Tag::new(kind);
    for tag in tags {
        let known: Vec<ItemKey> = all.items().map(|item| item.key()).collect();
        for item in tag.items() {
            if !GAIN_KEYS.contains(&item.key()) && !known.contains(&item.key()) {
                // A field that this kind of tag cannot have is left out.
                let _accepted = all.push(item.clone());
            }
        }
    }
    all
}

/// The library searches far into a file for MPEG frames and finds false ones in many files; tags
/// must not be written on such a guess.
fn has_signature(front: &[u8; 12], kind: FileType) -> bool {
    let [a, b, c, d, e, f, g, h, form @ ..] = front;
    let (first, second) = ([*a, *b, *c, *d], [*e, *f, *g, *h]);
    if first.starts_with(b"ID3") {
        return matches!(kind, FileType::Mpeg | FileType::Aac | FileType::Flac);
    }
    match kind {
        FileType::Flac => &first == b"fLaC",
        FileType::Vorbis | FileType::Opus => &first == b"OggS",
        FileType::Mpeg | FileType::Aac => *a == 0xff && *b >= 0xe0,
        FileType::Mp4 => &second == b"ftyp",
        FileType::Wav => &first == b"RIFF" && form == b"WAVE",
        FileType::Aiff => &first == b"FORM" && form.starts_with(b"AIF"),
        _ => false,
    }
}

fn text_of<'a>(frame: &'a Frame<'_>, name: &str) -> Option<&'a str> {
    match frame {
        Frame::UserText(ExtendedTextFrame { description, content, .. }) => {
            description.eq_ignore_ascii_case(name).then_some(&**content)
        }
        _ => None,
    }
}

fn is_named(ident: &AtomIdent<'_>, wanted: &str) -> bool {
    matches!(ident, AtomIdent::Freeform { mean, name }
        if mean == ITUNES && name.eq_ignore_ascii_case(wanted))
}

fn freeform_atom(name: &'static str, text: String) -> Atom<'static> {
    let name = Cow::Borrowed(name);
    Atom::new(AtomIdent::Freeform { mean: Cow::Borrowed(ITUNES), name }, AtomData::UTF8(text))
}

/// Calls the library; a panic counts as a damaged file.
fn call<T>(work: impl FnOnce() -> Result<T, TagError>) -> Result<T, TagError> {
    guard(CodecLibrary::Lofty, work).unwrap_or(Err(TagError::Damaged))
}

/// Names of gains in the library.
const GAIN_KEYS: [ItemKey; 6] = [
    ItemKey::ReplayGainAlbumGain,
    ItemKey::ReplayGainAlbumPeak,
    ItemKey::ReplayGainTrackGain,
    ItemKey::ReplayGainTrackPeak,
    ItemKey::R128TrackGain,
    ItemKey::R128AlbumGain,
];

/// Bytes between the tags at the beginning and the first frame: programs that shorten a tag leave
/// its padding, which is as long as the pictures that were removed.
const MAX_BYTES_BEFORE_AUDIO: usize = 4 * 1024 * 1024;

pub(crate) const ITUNES: &str = "com.apple.iTunes";

/// One tag before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagChange {
    /// Its name as spelled in the standard.
    pub name: &'static str,
    /// Its current text.
    pub old: Option<String>,
    /// Its new text; `None` if it is removed.
    pub new: Option<String>,
}

//! The `moov` box: the track of sound, and what its fragments leave out.

use aulos_core::{ChannelLayout, SampleRate};

use super::super::audio_config::{AudioConfig, BitReader};
use super::super::{PacketFormat, StreamFormatError};
use super::boxes::{Fields, boxes, find};
use crate::flac::StreamInfo;
use crate::ogg::opus_head_of;

/// The first track of sound.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Track {
    pub(super) id: u32,
    /// Units of its times in a second.
    pub(super) timescale: u32,
    pub(super) format: PacketFormat,
    pub(super) default_duration: u32,
    pub(super) default_bytes: u32,
}

impl Track {
    /// The track that a `moov` describes.
    ///
    /// # Errors
    /// [`StreamFormatError`] for a movie without fragments, or without sound of a known codec.
    pub(super) fn parse(movie: &[u8]) -> Result<Self, StreamFormatError> {
        let extends = find(movie, b"mvex").ok_or(StreamFormatError::Mp4)?;
        let mut failure = StreamFormatError::MovieFragments;
        let tracks = boxes(movie).filter(|(kind, _)| kind == b"trak");
        for (_, track) in tracks.take(MAX_TRACKS) {
            match Self::of_track(track, extends) {
                Ok(Some(track)) => return Ok(track),
                Ok(None) => {}
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    /// `None` for a track of something else.
    fn of_track(track: &[u8], extends: &[u8]) -> Result<Option<Self>, StreamFormatError> {
        let sound = || {
            let media = find(track, b"mdia")?;
            let handler = find(media, b"hdlr")?.get(8..12)?;
            let mut header = Fields(find(track, b"tkhd")?);
            let (version, _) = header.version()?;
            header.sized(version)?;
            header.sized(version)?;
            let id = header.u32()?;
            let mut header = Fields(find(media, b"mdhd")?);
            let (version, _) = header.version()?;
            header.sized(version)?;
            header.sized(version)?;
            let timescale = header.u32().filter(|scale| *scale > 0)?;
            let table = find(find(media, b"minf")?, b"stbl")?;
            let entries = find(table, b"stsd")?.get(8..)?;
            (handler == b"soun").then_some((id, timescale, boxes(entries).next()?))
        };
        let Some((id, timescale, (kind, entry))) = sound() else { return Ok(None) };
        if matches!(&kind, b"enca" | b"drms") {
            return Err(StreamFormatError::Scrambled);
        }
        let Some(format) = format(kind, entry) else { return Ok(None) };
        let defaults = |extends: &[u8]| {
            let mut fields = Fields(extends);
            fields.version()?;
            let (track, _) = (fields.u32()?, fields.u32()?);
            (track == id).then_some((fields.u32()?, fields.u32()?))
        };
        let mut all = boxes(extends).filter(|(kind, _)| kind == b"trex");
        let found = all.find_map(|(_, extends)| defaults(extends));
        let (default_duration, default_bytes) = found.unwrap_or((0, 0));
        Ok(Some(Self { id, timescale, format, default_duration, default_bytes }))
    }
}

/// The format of a sample entry (ISO/IEC 14496-12, 12.2.3); `None` for other codecs.
fn format(kind: [u8; 4], entry: &[u8]) -> Option<PacketFormat> {
    let inside = entry.get(SOUND_ENTRY..)?;
    match &kind {
        b"mp4a" => {
            let config = decoder_config(find(inside, b"esds")?.get(4..)?)?;
            AudioConfig::read(&mut BitReader::new(config))?.format()
        }
        b"fLaC" => {
            // The version of the box, and the header of the block.
            let info: [u8; 34] = *find(inside, b"dfLa")?.get(8..)?.first_chunk()?;
            let parsed = StreamInfo::parse(&info)?;
            let rate = SampleRate::new(parsed.hz()).ok()?;
            let layout = ChannelLayout::new(parsed.channels()).ok()?;
            Some(PacketFormat::Flac { info, rate, layout })
        }
        b"Opus" => {
            let mut fields = Fields(find(inside, b"dOps")?);
            let [0, channels @ 1..=2] = fields.array()? else { return None };
            let (_, rate) = (fields.array::<2>()?, fields.u32()?);
            let gain = i16::from_be_bytes(fields.array()?);
            let [0] = fields.array()? else { return None };
            // The stream was joined, so nothing is skipped.
            Some(PacketFormat::Opus { head: opus_head_of(channels, 0, rate, gain) })
        }
        _ => None,
    }
}

/// The `AudioSpecificConfig` in the descriptors of an `esds` (ISO/IEC 14496-1, 7.2.6).
fn decoder_config(descriptors: &[u8]) -> Option<&[u8]> {
    let (tag, mut stream) = descriptor(descriptors)?;
    let [_, _, flags] = stream.array()?;
    if flags & 0x80 != 0 {
        stream.take(2)?;
    }
    if flags & 0x40 != 0 {
        let [length] = stream.array()?;
        stream.take(length.into())?;
    }
    if flags & 0x20 != 0 {
        stream.take(2)?;
    }
    let (config_tag, mut config) = descriptor(stream.0)?;
    let [object, ..] = config.array::<13>()?;
    let (specific_tag, specific) = descriptor(config.0)?;
    let is_aac = (tag, config_tag, specific_tag, object) == (3, 4, 5, MPEG_4_AUDIO);
    is_aac.then_some(specific.0)
}

/// The tag and the contents of the descriptor at the front, whose length has seven bits in a byte.
fn descriptor(bytes: &[u8]) -> Option<(u8, Fields<'_>)> {
    let mut fields = Fields(bytes);
    let [tag] = fields.array()?;
    let mut length = 0;
    for _ in 0..4 {
        let [byte] = fields.array()?;
        length = length << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((tag, Fields(fields.take(length)?)))
}

/// Bytes of a sample entry of sound before the boxes in it.
const SOUND_ENTRY: usize = 28;

/// `objectTypeIndication` of AAC.
const MPEG_4_AUDIO: u8 = 0x40;

/// Tracks that are looked at; a segment has one or two.
const MAX_TRACKS: usize = 8;

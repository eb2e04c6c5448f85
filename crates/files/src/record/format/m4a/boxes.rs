//! The boxes of a file, by the crate `mp4-atom`; only free-form tags, which it does not have, are
//! written here.

use aulos_engine::encode::AacFrameEncoder;
use aulos_proto::Patch;
use mp4_atom::esds::{DecoderConfig, DecoderSpecific, EsDescriptor, SLConfig};
use mp4_atom::{
    Audio, Co64, Codec, Dinf, Dref, DrefEntry, Edts, Elst, ElstEntry, Encode, Esds, FixedPoint,
    FourCC, Ftyp, Hdlr, Mdhd, Mdia, Mfhd, Minf, Moof, Moov, Mp4a, Mvex, Mvhd, Smhd, Stbl, Stco,
    Stsc, StscEntry, Stsd, Stsz, StszSamples, Stts, SttsEntry, Tfdt, Tfhd, Tkhd, Traf, Trak, Trex,
    Trun, TrunEntry, Url,
};

use crate::record::format::FileMetadata;

/// What the access units of a file have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct M4aTrack {
    pub(super) hz: u32,
    pub(super) channels: usize,
    /// The `AudioSpecificConfig`.
    pub(super) config: [u8; 2],
    pub(super) bitrate: u32,
}

/// The fragments of a file, and what becomes its index.
#[derive(Debug)]
pub(super) struct M4aIndex {
    track: M4aTrack,
    /// The box `udta`.
    tags: Vec<u8>,
    /// Offset of the head that becomes that of `mdat`.
    head: u64,
    /// End of the last fragment.
    end: u64,
    /// Number of access units.
    units: u64,
    /// The length of each in bytes, up to [`MAX_INDEXED`].
    lengths: Vec<u16>,
    /// Number of units and offset of the first one, of each fragment.
    chunks: Vec<(u32, u64)>,
    fragments: u32,
    /// The frames of the last unit.
    last: u64,
}

impl M4aIndex {
    /// Begins a file at its front.
    pub(super) fn begin(track: M4aTrack, tags: Vec<u8>, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        put(&file_type(), out);
        let head = (out.len() - start) as u64;
        out.extend_from_slice(&FREE);
        let mut index = Self::new(track, tags, head, 0);
        out.extend_from_slice(&index.moov(true));
        index.end = (out.len() - start) as u64;
        index
    }

    /// The index of a file that has been written up to its first fragment.
    pub(super) fn new(track: M4aTrack, tags: Vec<u8>, head: u64, end: u64) -> Self {
        let (lengths, chunks) = (Vec::new(), Vec::new());
        Self { track, tags, head, end, units: 0, lengths, chunks, fragments: 0, last: 0 }
    }

    /// Writes a fragment of units of these lengths, the last of which has `last` frames; none for
    /// no units.
    pub(super) fn push_fragment(
        &mut self,
        lengths: &[u16],
        last: u64,
        units: &[u8],
        out: &mut Vec<u8>,
    ) {
        if lengths.is_empty() {
            return;
        }
        let start = out.len();
        put(&self.moof(lengths, last, 0), out);
        let length = out.len() - start;
        // Behind this box and the head of the next.
        let offset = i32::try_from(length + 8).unwrap_or(i32::MAX);
        out.truncate(start);
        put(&self.moof(lengths, last, offset), out);
        let bytes = u32::try_from(units.len() + 8).unwrap_or(u32::MAX);
        out.extend_from_slice(&bytes.to_be_bytes());
        out.extend_from_slice(b"mdat");
        out.extend_from_slice(units);
        self.add_fragment(lengths, last, length as u64 + 8);
    }

    /// Counts a fragment whose units begin `before` bytes behind the last one.
    pub(super) fn add_fragment(&mut self, lengths: &[u16], last: u64, before: u64) {
        let count = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
        self.units += u64::from(count);
        self.fragments = self.fragments.saturating_add(1);
        if self.units <= MAX_INDEXED {
            self.chunks.push((count, self.end + before));
            self.lengths.extend_from_slice(lengths);
        }
        self.end += before + lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
        self.last = last;
    }

    /// Whether the file is short enough for an index.
    pub(super) const fn is_indexed(&self) -> bool {
        self.units <= MAX_INDEXED
    }

    /// Ends the file: appends the index and makes one `mdat` of what is before it. A file that is
    /// too long for an index stays fragmented.
    pub(super) fn finish(&self, out: &mut Vec<u8>, patches: &mut Vec<Patch>) {
        if !self.is_indexed() {
            return;
        }
        out.extend_from_slice(&self.moov(false));
        patches.push(Patch::new(self.head, &self.data_head()));
    }

    /// The head of the `mdat` of a complete file, with a length of 64 bits.
    pub(super) fn data_head(&self) -> [u8; FREE.len()] {
        let mut head = *b"\0\0\0\x01mdat\0\0\0\0\0\0\0\0";
        if let Some(length) = head.last_chunk_mut() {
            *length = (self.end - self.head).to_be_bytes();
        }
        head
    }

    /// Offset of the head of `mdat`.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// End of the last fragment.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    pub(super) const fn track(&self) -> M4aTrack {
        self.track
    }

    pub(super) const fn unit_count(&self) -> u64 {
        self.units
    }

    /// Frames of the sound in whole fragments.
    pub(super) const fn frames(&self) -> aulos_core::Frames {
        aulos_core::Frames(self.duration().saturating_sub(AacFrameEncoder::DELAY.0))
    }

    /// Frames of all units.
    const fn duration(&self) -> u64 {
        (self.unit_count().saturating_sub(1)) * AacFrameEncoder::FRAMES.0 + self.last
    }

    fn moof(&self, lengths: &[u16], last: u64, offset: i32) -> Moof {
        let entry = |(at, length): (usize, &u16)| TrunEntry {
            duration: Some(if at + 1 == lengths.len() { narrow(last) } else { UNIT }),
            size: Some(u32::from(*length)),
            ..TrunEntry::default()
        };
        let entries: Vec<_> = lengths.iter().enumerate().map(entry).collect();
        let traf = Traf {
            tfhd: Tfhd { track_id: TRACK, default_base_is_moof: true, ..Tfhd::default() },
            tfdt: Some(Tfdt {
                base_media_decode_time: self.unit_count() * AacFrameEncoder::FRAMES.0,
            }),
            trun: vec![Trun { data_offset: Some(offset), samples: entries.into() }],
            ..Traf::default()
        };
        let sequence_number = self.fragments.saturating_add(1);
        Moof { mfhd: Mfhd { sequence_number }, traf: vec![traf] }
    }

    /// The box `moov`: of a fragmented file it has no units, and its edit lasts to the end.
    pub(super) fn moov(&self, is_fragmented: bool) -> Vec<u8> {
        let M4aTrack { hz, .. } = self.track;
        let frames = if is_fragmented { 0 } else { self.frames().0 };
        let trex = Trex {
            track_id: TRACK,
            default_sample_description_index: 1,
            default_sample_duration: UNIT,
            ..Trex::default()
        };
        let moov = Moov {
            mvhd: Mvhd {
                timescale: hz,
                duration: frames,
                next_track_id: TRACK + 1,
                ..Mvhd::default()
            },
            mvex: is_fragmented.then(|| Mvex { mehd: None, trex: vec![trex] }),
            trak: vec![self.trak(is_fragmented, frames)],
            ..Moov::default()
        };
        let mut bytes = Vec::new();
        put(&moov, &mut bytes);
        let at = bytes.len();
        bytes.extend_from_slice(&self.tags);
        if !is_fragmented {
            self.state_length(bytes.get_mut(at..).unwrap_or_default());
        }
        // The tags are its last box.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(field) = bytes.first_chunk_mut() {
            *field = length.to_be_bytes();
        }
        bytes
    }

    fn trak(&self, is_fragmented: bool, frames: u64) -> Trak {
        let edit = ElstEntry {
            segment_duration: frames,
            media_time: Some(AacFrameEncoder::DELAY.0),
            media_rate: FixedPoint::from(1),
        };
        Trak {
            tkhd: Tkhd {
                track_id: TRACK,
                duration: frames,
                alternate_group: 1,
                enabled: true,
                in_movie: true,
                volume: FixedPoint::from(1),
                ..Tkhd::default()
            },
            edts: Some(Edts { elst: Some(Elst { entries: vec![edit] }) }),
            mdia: Mdia {
                mdhd: Mdhd {
                    timescale: self.track.hz,
                    duration: if is_fragmented { 0 } else { self.duration() },
                    language: "und".to_owned(),
                    ..Mdhd::default()
                },
                hdlr: Hdlr { handler: FourCC::new(b"soun"), name: String::new() },
                minf: Minf {
                    smhd: Some(Smhd::default()),
                    dinf: Dinf { dref: Dref { entries: vec![DrefEntry::Url(Url::default())] } },
                    stbl: self.sample_table(is_fragmented),
                    ..Minf::default()
                },
            },
            ..Trak::default()
        }
    }

    /// Completes the tag that states delay, padding and length.
    fn state_length(&self, tags: &mut [u8]) {
        let open = OPEN_ENDED.as_bytes();
        let Some(at) = tags.windows(open.len()).position(|bytes| bytes == open) else { return };
        let padding = self.unit_count() * AacFrameEncoder::FRAMES.0 - self.duration();
        let text = format!(" 00000000 00000400 {padding:08X} {:016X}", self.frames().0);
        if let Some(place) = tags.get_mut(at..at + open.len()) {
            place.copy_from_slice(text.as_bytes());
        }
    }

    fn sample_table(&self, is_empty: bool) -> Stbl {
        let stsd = Stsd { codecs: vec![Codec::Mp4a(description(self.track))] };
        if is_empty {
            return Stbl { stsd, stco: Some(Stco::default()), ..Stbl::default() };
        }
        let entry =
            |count: u64, delta| SttsEntry { sample_count: narrow(count), sample_delta: delta };
        let entries = [(self.unit_count().saturating_sub(1), UNIT), (1, narrow(self.last))];
        let entries = entries.iter().filter(|(count, _)| *count > 0);
        let stts = Stts { entries: entries.map(|(count, delta)| entry(*count, *delta)).collect() };
        let mut runs: Vec<StscEntry> = Vec::new();
        for (at, (count, _)) in (1..).zip(&self.chunks) {
            if runs.last().is_none_or(|run| run.samples_per_chunk != *count) {
                runs.push(StscEntry {
                    first_chunk: at,
                    samples_per_chunk: *count,
                    sample_description_index: 1,
                });
            }
        }
        let sizes = self.lengths.iter().map(|length| u32::from(*length)).collect();
        let is_long = u32::try_from(self.end).is_err();
        let offsets = self.chunks.iter().map(|(_, at)| *at);
        Stbl {
            stsd,
            stts,
            stsc: Stsc { entries: runs },
            stsz: Stsz { samples: StszSamples::Different { sizes } },
            stco: (!is_long).then(|| Stco { entries: offsets.clone().map(narrow).collect() }),
            co64: is_long.then(|| Co64 { entries: offsets.collect() }),
            ..Stbl::default()
        }
    }
}

/// The box `ftyp`. A fragmented file is one of the brand `iso6`; `M4A ` is what players know.
fn file_type() -> Ftyp {
    Ftyp {
        major_brand: FourCC::new(b"M4A "),
        minor_version: 0,
        compatible_brands: [b"M4A ", b"mp42", b"isom", b"iso6"].map(FourCC::new).to_vec(),
    }
}

fn description(track: M4aTrack) -> Mp4a {
    let channels = u16::try_from(track.channels).unwrap_or(u16::MAX);
    Mp4a {
        audio: Audio {
            data_reference_index: 1,
            channel_count: channels,
            sample_size: 16,
            // It has no room for more; the configuration below is what decoders go by.
            sample_rate: FixedPoint::from(u16::try_from(track.hz).unwrap_or(0)),
        },
        esds: Esds {
            es_desc: EsDescriptor {
                dec_config: DecoderConfig {
                    object_type_indication: MPEG_4_AUDIO,
                    stream_type: AUDIO_STREAM,
                    max_bitrate: track.bitrate,
                    avg_bitrate: track.bitrate,
                    dec_specific: Some(DecoderSpecific {
                        raw: track.config.to_vec(),
                        ..DecoderSpecific::default()
                    }),
                    ..DecoderConfig::default()
                },
                sl_config: SLConfig::default(),
                ..EsDescriptor::default()
            },
        },
        btrt: None,
        taic: None,
    }
}

/// The box `udta` with the tags of a file, as iTunes stores them.
pub(super) fn tags(metadata: &FileMetadata) -> Vec<u8> {
    let text = |value: &str| {
        // Type 1, UTF-8.
        make_box(b"data", &[&[0, 0, 0, 1, 0, 0, 0, 0], value.as_bytes()])
    };
    let free_form = |name: &str, value: &str| {
        let mean = make_box(b"mean", &[&[0; 4], b"com.apple.iTunes"]);
        let name = make_box(b"name", &[&[0; 4], name.as_bytes()]);
        make_box(b"----", &[&mean, &name, &text(value)])
    };
    let items = [
        make_box(b"\xa9nam", &[&text(&metadata.title)]),
        make_box(b"\xa9day", &[&text(&metadata.date().to_string())]),
        free_form("TIME_REFERENCE", &metadata.time_reference.0.to_string()),
        // Decoders of fragmented files go by this, where they do not go by the edit list: the
        // delay of the encoder, 1,024 frames.
        free_form("iTunSMPB", OPEN_ENDED),
    ];
    let list = make_box(b"ilst", &[&items.concat()]);
    let handler = make_box(b"hdlr", &[&[0; 8], b"mdirappl", &[0; 9]]);
    let meta = make_box(b"meta", &[&[0; 4], &handler, &list]);
    make_box(b"udta", &[&meta])
}

fn make_box(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len() + 8).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], kind, &body].concat()
}

/// Appends a box. The library fails where a length does not fit, which these do.
fn put(value: &impl Encode, out: &mut Vec<u8>) {
    let before = out.len();
    if value.encode(out).is_err() {
        out.truncate(before);
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The value of the tag iTunSMPB while a file grows: a delay of 1,024 frames, no padding and no
/// length, in hexadecimal digits.
const OPEN_ENDED: &str = " 00000000 00000400 00000000 0000000000000000";

/// Takes the place of the head of `mdat` until the file is complete.
pub(super) const FREE: [u8; 16] = *b"\0\0\0\x10free\0\0\0\0\0\0\0\0";

/// Units of an index at most: a day and a half at 48 kHz, and 16 MB of memory.
const MAX_INDEXED: u64 = 1 << 23;

const TRACK: u32 = 1;

/// Frames of a unit.
const UNIT: u32 = 1_024;

/// ISO/IEC 14496-1, tables 5 and 6.
const MPEG_4_AUDIO: u8 = 0x40;
const AUDIO_STREAM: u8 = 5;

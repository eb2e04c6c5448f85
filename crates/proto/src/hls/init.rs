//! The init segment: what a player must know before the first media segment.

use aulos_core::SampleRate;
use mp4_atom::{
    Audio, Codec, Decode as _, Dfla, Dinf, Dops, Dref, Encode as _, Esds, FixedPoint, Flac,
    FlacMetadataBlock, FourCC, Ftyp, Hdlr, Mdhd, Mdia, Minf, Moov, Mp4a, Mvex, Mvhd, Opus, Smhd,
    Stbl, Stco, Stsd, Tkhd, Trak, Trex, u24,
};

/// The one track of a rendition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what an init segment says")]
pub struct Track {
    /// The codec.
    pub codec: TrackCodec,
    /// Frames per second; the time scale of the track.
    pub rate: SampleRate,
    /// Number of channels.
    pub channels: u8,
}

/// The codec of a track, with what its decoder needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrackCodec {
    /// FLAC in ISOBMFF, version 0.0.4.
    Flac {
        /// Bits per sample, 16 or 24.
        bits: u8,
        /// Frames in a block.
        block: u16,
    },
    /// Opus in ISOBMFF, version 0.8.1.
    Opus,
    /// AAC (ISO/IEC 14496-14).
    Aac {
        /// The `AudioSpecificConfig`.
        config: Vec<u8>,
        /// Bits per second.
        bitrate: u32,
    },
}

impl TrackCodec {
    /// The name for `CODECS` (RFC 6381).
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Flac { .. } => "fLaC".to_owned(),
            Self::Opus => "Opus".to_owned(),
            // The audio object type: the first five bits.
            Self::Aac { config, .. } => {
                format!("mp4a.40.{}", config.first().map_or(AAC_LC, |first| first >> 3))
            }
        }
    }
}

impl Track {
    /// The init segment; `None` for a track that has none, such as one of more than 255 bits.
    #[must_use]
    pub fn init_segment(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        ftyp().encode(&mut out).ok()?;
        self.moov()?.encode(&mut out).ok()?;
        Some(out)
    }

    fn moov(&self) -> Option<Moov> {
        let timescale = self.rate.hz();
        let mvhd = Mvhd { timescale, next_track_id: TRACK + 1, ..Mvhd::default() };
        let trex = Trex {
            track_id: TRACK,
            default_sample_description_index: 1,
            default_sample_flags: SYNC_SAMPLE,
            ..Trex::default()
        };
        let stbl = Stbl {
            stsd: Stsd { codecs: vec![self.sample_entry()?] },
            stco: Some(Stco::default()),
            ..Stbl::default()
        };
        let dinf =
            Dinf { dref: Dref { entries: vec![mp4_atom::DrefEntry::Url(Default::default())] } };
        let minf = Minf { smhd: Some(Smhd::default()), dinf, stbl, ..Minf::default() };
        let mdia = Mdia {
            mdhd: Mdhd { timescale, language: "und".to_owned(), ..Mdhd::default() },
            hdlr: Hdlr { handler: FourCC::new(b"soun"), name: String::new() },
            minf,
        };
        let tkhd = Tkhd {
            track_id: TRACK,
            enabled: true,
            in_movie: true,
            volume: 1.into(),
            ..Tkhd::default()
        };
        let trak = Trak { tkhd, mdia, ..Trak::default() };
        let mvex = Mvex { mehd: None, trex: vec![trex] };
        Some(Moov { mvhd, mvex: Some(mvex), trak: vec![trak], ..Moov::default() })
    }

    fn sample_entry(&self) -> Option<Codec> {
        let rate = u16::try_from(self.rate.hz()).ok()?;
        let audio = |sample_size| Audio {
            data_reference_index: 1,
            channel_count: self.channels.into(),
            sample_size,
            sample_rate: FixedPoint::from(rate),
        };
        Some(match &self.codec {
            TrackCodec::Flac { bits, block } => {
                let info = FlacMetadataBlock::StreamInfo {
                    minimum_block_size: *block,
                    maximum_block_size: *block,
                    // Zeros are "unknown", as a live stream has it.
                    minimum_frame_size: u24::default(),
                    maximum_frame_size: u24::default(),
                    sample_rate: self.rate.hz(),
                    num_channels_minus_one: self.channels.checked_sub(1)?,
                    bits_per_sample_minus_one: bits.checked_sub(1)?,
                    number_of_interchannel_samples: 0,
                    md5_checksum: vec![0; 16],
                };
                let dfla = Dfla { blocks: vec![info] };
                Flac { audio: audio(u16::from(*bits)), dfla }.into()
            }
            TrackCodec::Opus => {
                let dops = Dops {
                    output_channel_count: self.channels,
                    // A player joins in mid-stream, where there are no priming samples.
                    pre_skip: 0,
                    input_sample_rate: self.rate.hz(),
                    output_gain: 0,
                    channel_mapping: None,
                };
                Opus { audio: audio(16), dops, btrt: None }.into()
            }
            TrackCodec::Aac { config, bitrate } => {
                let esds = Esds::decode(&mut &*esds(config, *bitrate)?).ok()?;
                Mp4a { audio: audio(16), esds, btrt: None, taic: None }.into()
            }
        })
    }
}

/// An `esds` box (ISO/IEC 14496-1, 7.2.6): descriptors inside descriptors.
fn esds(config: &[u8], bitrate: u32) -> Option<Vec<u8>> {
    let descriptor = |tag: u8, body: &[u8]| -> Option<Vec<u8>> {
        let length = u8::try_from(body.len()).ok().filter(|length| *length < 0x80)?;
        Some([&[tag, length], body].concat())
    };
    let specific = descriptor(0x05, config)?;
    // MPEG-4 audio; an audio stream; no buffer size.
    let mut decoder = vec![0x40, 0x15, 0, 0, 0];
    decoder.extend_from_slice(&bitrate.to_be_bytes());
    decoder.extend_from_slice(&bitrate.to_be_bytes());
    decoder.extend_from_slice(&specific);
    let decoder = descriptor(0x04, &decoder)?;
    let sync = descriptor(0x06, &[2])?;
    let stream = descriptor(0x03, &[&[0, 0, 0], &*decoder, &*sync].concat())?;
    let body = [&[0; 4], &*stream].concat();
    let size = u32::try_from(body.len() + 8).ok()?;
    Some([&size.to_be_bytes(), b"esds".as_slice(), &*body].concat())
}

fn ftyp() -> Ftyp {
    let brands = [b"iso6", b"mp41", b"cmfc"].map(FourCC::new);
    Ftyp { major_brand: FourCC::new(b"iso6"), minor_version: 0, compatible_brands: brands.into() }
}

/// The id of the only track.
pub(super) const TRACK: u32 = 1;

/// `sample_depends_on` 2: every frame of sound can be decoded without others.
const SYNC_SAMPLE: u32 = 0x0200_0000;

/// The audio object type of AAC-LC.
const AAC_LC: u8 = 2;

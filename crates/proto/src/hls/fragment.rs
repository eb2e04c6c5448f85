//! A media segment: one movie fragment.

use mp4_atom::{
    Emsg, EmsgTimestamp, Encode as _, FourCC, Mfhd, Moof, Styp, Tfdt, Tfhd, Traf, Trun, TrunEntry,
};

use super::init::TRACK;

/// The contents of a media segment.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what a fragment has")]
pub struct Fragment<'a> {
    /// The number of the segment.
    pub sequence: u64,
    /// The time of its first sample, in units of the track's time scale.
    pub decode_time: u64,
    /// The time scale.
    pub timescale: u32,
    /// What each frame lasts, in units of the time scale.
    pub frame_duration: u32,
    /// The bytes of each frame.
    pub sizes: &'a [u32],
    /// All frames.
    pub payload: &'a [u8],
    /// Timed metadata.
    pub events: &'a [EventMessage],
}

/// An ID3 tag with its time ("Carriage of ID3 Timed Metadata in CMAF").
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what an event has")]
pub struct EventMessage {
    /// In units of the time scale.
    pub time: u64,
    /// The same for every repetition of an event.
    pub id: u32,
    /// The tag.
    pub tag: Vec<u8>,
}

impl Fragment<'_> {
    /// The bytes of the segment; `None` if a size is beyond its field.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.payload.len() + self.sizes.len() * 4 + OVERHEAD);
        let brands = [b"msdh", b"cmfs"].map(FourCC::new).to_vec();
        let styp =
            Styp { major_brand: FourCC::new(b"msdh"), minor_version: 0, compatible_brands: brands };
        styp.encode(&mut out).ok()?;
        for event in self.events {
            self.event(event).encode(&mut out).ok()?;
        }
        // The offset of the sound counts from the beginning of a box that contains it.
        let mut moof = Vec::new();
        self.moof(0).encode(&mut moof).ok()?;
        let offset = i32::try_from(moof.len() + BOX_HEADER).ok()?;
        self.moof(offset).encode(&mut out).ok()?;
        let size = u32::try_from(self.payload.len() + BOX_HEADER).ok()?;
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(b"mdat");
        out.extend_from_slice(self.payload);
        Some(out)
    }

    fn event(&self, event: &EventMessage) -> Emsg {
        Emsg {
            timescale: self.timescale,
            presentation_time: EmsgTimestamp::Absolute(event.time),
            event_duration: UNKNOWN_DURATION,
            id: event.id,
            scheme_id_uri: ID3_SCHEME.to_owned(),
            value: String::new(),
            message_data: event.tag.clone(),
        }
    }

    fn moof(&self, data_offset: i32) -> Moof {
        let entry = |size: &u32| TrunEntry { size: Some(*size), ..TrunEntry::default() };
        let entries: Vec<_> = self.sizes.iter().map(entry).collect();
        let tfhd = Tfhd {
            track_id: TRACK,
            default_sample_duration: Some(self.frame_duration),
            default_base_is_moof: true,
            ..Tfhd::default()
        };
        let traf = Traf {
            tfhd,
            tfdt: Some(Tfdt { base_media_decode_time: self.decode_time }),
            trun: vec![Trun { data_offset: Some(data_offset), samples: entries.into() }],
            ..Traf::default()
        };
        // The field wraps; players use it for nothing but errors.
        let [.., a, b, c, d] = self.sequence.to_be_bytes();
        let mfhd = Mfhd { sequence_number: u32::from_be_bytes([a, b, c, d]) };
        Moof { mfhd, traf: vec![traf] }
    }
}

/// The scheme of events that are ID3 tags.
const ID3_SCHEME: &str = "https://aomedia.org/emsg/ID3";

/// A title lasts until the next one.
const UNKNOWN_DURATION: u32 = u32::MAX;

/// Bytes of a size and a name.
const BOX_HEADER: usize = 8;

/// Bytes of the boxes around the sound.
const OVERHEAD: usize = 512;

//! What clients can get: the playlists, and the segments of the window.

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Frames, MediaTime, SampleRate};
use aulos_proto::hls::{
    DateRange, HlsDate, MediaPlaylist, PlaylistSegment, Variant, multivariant_playlist,
};

use super::format::{HlsContainer, HlsFormat};
use super::object::HlsObject;
use super::segmenter::SegmentSet;
use super::titles::Titles;

/// What a window has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct WindowConfig {
    /// The renditions, in the order of the multivariant playlist.
    pub formats: Vec<HlsFormat>,
    /// Samples in a segment.
    pub segment: Frames,
    /// Segments in a playlist, at least [`WindowConfig::MIN_LISTED`].
    pub listed: usize,
    /// Segments that a playlist must have before it is given out.
    pub first_listed: usize,
}

impl WindowConfig {
    /// A playlist never becomes shorter than this (RFC 8216, section 6.2.2).
    pub const MIN_LISTED: usize = 3;
}

/// Bytes that a client can get, and their entity tag.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "bytes and their name")]
pub struct HlsBody {
    /// The bytes, shared by all clients.
    pub bytes: Arc<[u8]>,
    /// A digest of the bytes: two servers with the same bytes have the same tag.
    pub tag: u64,
    /// Made with samples that were filled in.
    pub is_filled: bool,
}

/// The segments of all renditions, and their playlists.
///
/// A segment that has left the playlists can be fetched for as long as a playlist that names it
/// may be in use: its own duration and that of the playlist (RFC 8216, section 6.2.2). So there are
/// twice as many segments in memory as in a playlist, and one.
#[derive(Debug)]
pub struct HlsWindow {
    config: WindowConfig,
    rate: SampleRate,
    names: Vec<Arc<str>>,
    /// None for packed audio.
    inits: Vec<Option<HlsBody>>,
    segments: VecDeque<StoredSegment>,
    /// Discontinuities that have left the playlists.
    discontinuities: u64,
    is_restarted: bool,
    date_offset_ms: i64,
    titles: Titles,
    /// Segments that were appended, and changes.
    pushed: u64,
    revision: u64,
    /// The texts, made anew with each change.
    multivariant: HlsBody,
    playlists: Vec<HlsBody>,
}

/// A segment; without bodies, one that does not exist.
#[derive(Debug)]
struct StoredSegment {
    number: u64,
    is_discontinuous: bool,
    bodies: Vec<HlsBody>,
}

impl HlsWindow {
    /// An empty window; `None` if a rendition has no init segment.
    #[must_use]
    pub fn new(config: WindowConfig) -> Option<Self> {
        let init = |format: &HlsFormat| match format.container {
            HlsContainer::Fragments => {
                Some(Some(HlsBody::new(format.track.init_segment()?, false)))
            }
            HlsContainer::Packed => Some(None),
        };
        let inits = config.formats.iter().map(init).collect::<Option<Vec<_>>>()?;
        let rate = config.formats.first()?.spec.rate;
        let names = config.formats.iter().map(|format| Arc::from(format.name())).collect();
        Some(Self {
            config,
            rate,
            names,
            inits,
            segments: VecDeque::new(),
            discontinuities: 0,
            is_restarted: false,
            date_offset_ms: 0,
            titles: Titles::default(),
            pushed: 0,
            revision: 0,
            multivariant: HlsBody::new(Vec::new(), false),
            playlists: Vec::new(),
        })
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &WindowConfig {
        &self.config
    }

    /// Appends a segment. Between it and the last one, numbers without a segment are listed as a
    /// gap; a number that goes back, or has jumped beyond the window, empties the window.
    pub fn push(&mut self, set: SegmentSet) {
        let SegmentSet { number, bodies, is_filled, mut is_discontinuous } = set;
        if let Some(last) = self.segments.back().map(|last| last.number) {
            let missing = number.checked_sub(last + 1);
            match missing.filter(|missing| *missing < self.config.listed as u64) {
                Some(missing) => {
                    for number in (last + 1)..=(last + missing) {
                        self.store(StoredSegment {
                            number,
                            is_discontinuous: false,
                            bodies: Vec::new(),
                        });
                    }
                }
                None => {
                    let listed = self.listed();
                    self.discontinuities +=
                        listed.filter(|one| one.is_discontinuous).count() as u64;
                    self.segments.clear();
                    is_discontinuous = true;
                }
            }
        }
        is_discontinuous |= std::mem::take(&mut self.is_restarted);
        let bodies = bodies.into_iter().map(|bytes| HlsBody::new(bytes, is_filled)).collect();
        self.store(StoredSegment { number, is_discontinuous, bodies });
        self.pushed += 1;
        self.write();
    }

    /// The next segment does not continue what is there: its station has begun anew.
    pub fn restart(&mut self) {
        self.is_restarted = !self.segments.is_empty();
    }

    /// Adds so much to the date of every place on the grid.
    pub const fn set_date_offset(&mut self, milliseconds: i64) {
        self.date_offset_ms = milliseconds;
    }

    /// Sets the title from `at` on; `id` is another one for each.
    pub fn set_title(&mut self, id: u32, at: MediaTime, title: &str) {
        self.titles.add(id, at, title);
        if !self.segments.is_empty() {
            self.write();
        }
    }

    /// The multivariant playlist, once there are enough segments.
    #[must_use]
    pub fn multivariant(&self) -> Option<&HlsBody> {
        self.is_ready().then_some(&self.multivariant)
    }

    /// The media playlist of the rendition of this name, once there are enough segments.
    #[must_use]
    pub fn playlist(&self, rendition: &str) -> Option<&HlsBody> {
        self.playlists.get(self.number_of(rendition)?).filter(|_| self.is_ready())
    }

    /// The init segment or the segment of this name.
    #[must_use]
    pub fn body(&self, rendition: &str, name: &str) -> Option<&HlsBody> {
        match HlsObject::parse(&format!("{rendition}/{name}"))? {
            HlsObject::Playlist(_) => None,
            object => self.object(&object),
        }
    }

    /// The object, once there is one; a playlist, once there are enough segments.
    #[must_use]
    pub fn object(&self, object: &HlsObject) -> Option<&HlsBody> {
        match object {
            HlsObject::Multivariant => self.multivariant(),
            HlsObject::Playlist(rendition) => self.playlist(rendition),
            HlsObject::Init { rendition, tag } => {
                let init = self.inits.get(self.number_of(rendition)?)?.as_ref()?;
                (init.tag == *tag).then_some(init)
            }
            HlsObject::Segment { rendition, number, container } => {
                let rendition = self.number_of(rendition)?;
                if self.config.formats.get(rendition)?.container != *container {
                    return None;
                }
                let at = number.checked_sub(self.segments.front()?.number)?;
                self.segments.get(usize::try_from(at).ok()?)?.bodies.get(rendition)
            }
        }
    }

    /// The segment of a rendition, by its place among them, with this number.
    #[must_use]
    pub fn segment_object(&self, rendition: usize, number: u64) -> Option<HlsObject> {
        let container = self.config.formats.get(rendition)?.container;
        let rendition = Arc::clone(self.names.get(rendition)?);
        Some(HlsObject::Segment { rendition, number, container })
    }

    /// The names of the renditions.
    #[must_use]
    pub fn renditions(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The init segments of the renditions that have one.
    pub fn inits(&self) -> impl Iterator<Item = (HlsObject, &HlsBody)> {
        let named = self.names.iter().zip(&self.inits);
        named.filter_map(|(name, init)| Some((init_object(name, init.as_ref()?), init.as_ref()?)))
    }

    /// The segments in the playlists: their numbers, which have no gap, and their bytes in the
    /// order of the renditions, or none for one that does not exist.
    pub fn listed_segments(&self) -> impl Iterator<Item = (u64, &[HlsBody])> {
        self.listed().map(|segment| (segment.number, &*segment.bodies))
    }

    /// The media playlists, and behind them the multivariant playlist.
    pub fn playlists(&self) -> impl Iterator<Item = (HlsObject, &HlsBody)> {
        let named = self.names.iter().zip(&self.playlists);
        let media = named.map(|(name, body)| (HlsObject::Playlist(Arc::clone(name)), body));
        media.chain(std::iter::once((HlsObject::Multivariant, &self.multivariant)))
    }

    /// Segments that were appended so far.
    #[must_use]
    pub const fn pushed(&self) -> u64 {
        self.pushed
    }

    /// A number that changes with the playlists.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether there are enough segments for a playlist.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.segments.len() >= self.config.first_listed.max(1)
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bodies = self.segments.iter().flat_map(|segment| &segment.bodies);
        bodies.map(|body| body.bytes.len() as u64).sum()
    }

    fn number_of(&self, rendition: &str) -> Option<usize> {
        self.config.formats.iter().position(|format| format.name() == rendition)
    }

    fn listed(&self) -> impl Iterator<Item = &StoredSegment> {
        let first = self.segments.len().saturating_sub(self.config.listed);
        self.segments.range(first..)
    }

    fn store(&mut self, segment: StoredSegment) {
        let leaves = self.segments.len().checked_sub(self.config.listed);
        let leaves = leaves.and_then(|at| self.segments.get(at));
        self.discontinuities += u64::from(leaves.is_some_and(|one| one.is_discontinuous));
        self.segments.push_back(segment);
        while self.segments.len() > 2 * self.config.listed + 1 {
            self.segments.pop_front();
        }
    }

    /// Makes the texts.
    fn write(&mut self) {
        self.revision += 1;
        let segment = self.config.segment;
        let Some(first) = self.listed().next().map(|first| first.number) else { return };
        let from = MediaTime(first * segment.0);
        self.titles.drop_before(from);
        let ranges = self.titles.iter().map(|title| DateRange {
            id: title.id.into(),
            start: self.date(title.at),
            title: title.text.clone(),
        });
        let ranges: Vec<_> = ranges.collect();
        let listed: Vec<_> = self.listed().collect();
        let segment_micros = segment.0 * 1_000_000 / u64::from(self.rate.hz());
        let formats = &self.config.formats;
        let playlists = self.names.iter().zip(&self.inits).zip(formats).map(|(named, format)| {
            let map = named.1.as_ref().map(|init| init_object(named.0, init).name());
            let segments: Vec<_> = listed
                .iter()
                .map(|one| PlaylistSegment {
                    uri: format!("{}{}", one.number, format.container.suffix()),
                    date: self.date(MediaTime(one.number * segment.0)),
                    is_discontinuous: one.is_discontinuous,
                    is_gap: one.bodies.is_empty(),
                })
                .collect();
            let playlist = MediaPlaylist {
                segment_micros,
                media_sequence: first,
                discontinuity_sequence: self.discontinuities,
                map: map.as_deref(),
                segments: &segments,
                ranges: &ranges,
            };
            HlsBody::new(playlist.write().into_bytes(), false)
        });
        self.playlists = playlists.collect();
        let variants = self.config.formats.iter().enumerate();
        let variants: Vec<_> =
            variants.map(|(number, format)| self.variant(number, format)).collect();
        let has_maps = self.inits.iter().any(Option::is_some);
        self.multivariant =
            HlsBody::new(multivariant_playlist(&variants, has_maps).into_bytes(), false);
    }

    fn variant(&self, number: usize, format: &HlsFormat) -> Variant {
        let sizes =
            self.listed().filter_map(|one| Some(one.bodies.get(number)?.bytes.len() as u64));
        let (count, sum, most) = sizes
            .fold((0, 0, 0), |(count, sum, most), size| (count + 1, sum + size, size.max(most)));
        let segment = self.config.segment.0.max(1);
        let bits = |bytes: u64| {
            (bytes * 8 * u64::from(self.rate.hz())).div_ceil(segment).next_multiple_of(1_000)
        };
        Variant {
            uri: format!("{}/index.m3u8", format.name()),
            peak: bits(most).max(format.peak),
            average: bits(sum / u64::max(count, 1)),
            codecs: format.track.codec.name(),
        }
    }

    fn date(&self, at: MediaTime) -> HlsDate {
        let millis = u128::from(at.0) * 1_000 / u128::from(self.rate.hz());
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        HlsDate(millis.saturating_add_signed(self.date_offset_ms))
    }
}

impl HlsBody {
    fn new(bytes: Vec<u8>, is_filled: bool) -> Self {
        Self { tag: digest(&bytes), bytes: bytes.into(), is_filled }
    }
}

/// Its name changes with its bytes, because clients keep it for ever.
fn init_object(rendition: &Arc<str>, init: &HlsBody) -> HlsObject {
    HlsObject::Init { rendition: Arc::clone(rendition), tag: init.tag }
}

/// FNV-1a of 64 bits: it tells contents apart that nobody has chosen to collide.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

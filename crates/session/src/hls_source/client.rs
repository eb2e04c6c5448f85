//! The client: from the address of a playlist to segments in order.

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::http::HttpUrl;
use aulos_proto::m3u8::{ByteRange, Encryption, MAX_M3U8_BYTES, Playlist, SegmentKey, SegmentMap};
use aulos_proto::titles::TrackMetadata;

use super::decrypt::decrypt;
use super::error::HlsError;
use super::media_state::MediaState;
use super::variant::VariantChoice;
use crate::radio::RadioError;

/// The address of an HLS playlist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a fetch has found")]
pub struct HlsAddress {
    /// Its URL.
    pub url: HttpUrl,
    /// A public server has led to it, so that it may lead only to public ones.
    pub is_public: bool,
}

/// A resource to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a request needs")]
pub struct HlsRequest {
    /// Its URL.
    pub url: HttpUrl,
    /// Only public addresses are permitted.
    pub is_public: bool,
    /// The part that is wanted, if not the whole.
    pub range: Option<ByteRange>,
    /// The most bytes that the answer may have.
    pub max_bytes: usize,
}

/// What has happened.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "what a fetch can report")]
pub enum HlsInput {
    /// The resource that was requested last.
    Fetched {
        /// Its final URL.
        url: HttpUrl,
        /// A public server has answered.
        is_public: bool,
        /// The answer is the requested range, and not the whole.
        is_partial: bool,
        /// The whole answer.
        bytes: Vec<u8>,
    },
    /// It could not be fetched.
    Failed(RadioError),
    /// So much is held behind this client.
    Held(HeldMedia),
}

/// What was given out and is not released yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what limits it")]
pub struct HeldMedia {
    /// Its duration.
    pub media: Span,
    /// Its bytes.
    pub bytes: u64,
    /// The number of segments.
    pub segments: u64,
}

/// What to do.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "whoever fetches does each of them")]
pub enum HlsOutput {
    /// Fetch a resource. The next comes only after the answer.
    Fetch(HlsRequest),
    /// Play a segment.
    Segment(HlsSegment),
    /// The title of the segment that follows.
    Title(TrackMetadata),
    /// All segments have been given out, and none will come. The client is over.
    Ended,
    /// The stream cannot be played any more. The client is over.
    Failed(RadioError),
}

/// A segment, decrypted, with what must precede it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be played")]
pub struct HlsSegment {
    /// MPEG-TS, fragmented MP4, or packed audio with tags.
    pub bytes: Vec<u8>,
    /// Its duration according to the playlist.
    pub duration: Span,
    /// Duration of the media that is missing before it.
    pub missing: Span,
    /// It does not continue the segment before: the decoder starts anew.
    pub begins: bool,
}

/// What a client has found and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the status shows")]
pub struct HlsSourceStatus {
    /// Bits per second of the variant, where there are several.
    pub bandwidth: Option<u64>,
    /// The target duration of the playlist.
    pub target: Span,
    /// Segments that were given out.
    pub segments: u64,
    /// Segments that were lost: they fell out of the playlist, or could not be fetched.
    pub lost: u64,
    /// Discontinuities, those of a restart of the server among them.
    pub discontinuities: u64,
}

/// What is being fetched.
#[derive(Debug)]
enum Activity {
    Playlist,
    Key(HttpUrl),
    Map(Arc<SegmentMap>),
    Segment,
}

/// A resource: its URL, the part of it that is wanted, and the most bytes that it may have.
type Resource = (Activity, HttpUrl, Option<ByteRange>, usize);

/// Follows one HLS stream.
#[derive(Debug)]
pub struct HlsClient {
    choice: VariantChoice,
    /// The playlist that is fetched: the address given, later that of the variant.
    address: HlsAddress,
    /// The address is that of a variant.
    is_variant: bool,
    media: Option<MediaState>,
    activity: Option<Activity>,
    /// Failures of the segment at the front, and of segments in a row.
    attempts: u32,
    failures: u32,
    retry_at: Option<Instant>,
    /// Keys by their address, the newest last.
    keys: VecDeque<(HttpUrl, [u8; 16])>,
    /// What precedes the segments now, and whether it has been given out.
    map: Option<(Arc<SegmentMap>, Vec<u8>, bool)>,
    held: HeldMedia,
    is_over: bool,
    status: HlsSourceStatus,
    outputs: VecDeque<HlsOutput>,
}

impl HlsClient {
    /// A client of the playlist at `address`.
    #[must_use]
    pub fn new(address: HlsAddress, choice: VariantChoice, now: Instant) -> Self {
        let mut client = Self {
            choice,
            address,
            is_variant: false,
            media: None,
            activity: None,
            attempts: 0,
            failures: 0,
            retry_at: None,
            keys: VecDeque::new(),
            map: None,
            held: HeldMedia::default(),
            is_over: false,
            status: HlsSourceStatus::default(),
            outputs: VecDeque::new(),
        };
        client.proceed(now);
        client
    }

    /// Handles what has happened.
    pub fn handle_input(&mut self, now: Instant, input: HlsInput) {
        if self.is_over {
            return;
        }
        let result = match input {
            HlsInput::Held(held) => {
                self.held = held;
                Ok(())
            }
            HlsInput::Failed(error) => self.handle_failure(now, error),
            HlsInput::Fetched { url, is_public, is_partial, bytes } => {
                self.address.is_public |= is_public;
                match self.activity.take() {
                    Some(Activity::Playlist) => self.read_playlist(now, url, &bytes),
                    Some(activity) => match self.read_resource(activity, is_partial, bytes) {
                        Ok(()) => Ok(()),
                        Err(HlsError::Encrypted) => Err(HlsError::Encrypted.into()),
                        Err(_) => self.lose_segment(),
                    },
                    None => Ok(()),
                }
            }
        };
        match result {
            Ok(()) => self.proceed(now),
            Err(error) => self.fail(error),
        }
    }

    /// Reloads the playlist, or repeats a request.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.proceed(now);
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<HlsOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`HlsClient::handle_timeout`]; never while a resource is being fetched.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over || self.activity.is_some() {
            return None;
        }
        let reload = self.media.as_ref().filter(|media| !media.is_ended);
        let reload = reload.map(|media| media.reload_at);
        [self.retry_at, reload].into_iter().flatten().min()
    }

    /// What it has found and counted.
    #[must_use]
    pub const fn status(&self) -> HlsSourceStatus {
        self.status
    }

    fn fail(&mut self, error: RadioError) {
        self.is_over = true;
        self.outputs.push_back(HlsOutput::Failed(error));
    }

    /// Requests what is needed next, unless something is on its way.
    fn proceed(&mut self, now: Instant) {
        while self.activity.is_none() && !self.is_over {
            let Some(media) = &mut self.media else { return self.fetch_playlist() };
            if let Some(since) = media.staleness(now) {
                return self.fail(HlsError::Stale(since).into());
            }
            if !media.is_ended && now >= media.reload_at {
                return self.fetch_playlist();
            }
            let HeldMedia { media: reserve, bytes, segments } = self.held;
            let wants_more = reserve < media.target * RESERVE_TARGETS
                && bytes < MAX_HELD_BYTES
                && segments < MAX_HELD_SEGMENTS;
            let Some(queued) = media.queue.front() else {
                if media.is_ended {
                    if self.status.segments == 0 {
                        return self.fail(HlsError::Segments.into());
                    }
                    self.is_over = true;
                    self.outputs.push_back(HlsOutput::Ended);
                }
                return;
            };
            if queued.segment.is_gap {
                media.drop_front();
                continue;
            }
            let is_waiting = self.retry_at.is_some_and(|at| now < at);
            if is_waiting || !wants_more {
                return;
            }
            self.retry_at = None;
            let lost = match self.next_resource() {
                Ok(Some((activity, url, range, most))) => {
                    return self.fetch(activity, url, range, most);
                }
                Ok(None) => return,
                Err(HlsError::Encrypted) => Err(HlsError::Encrypted.into()),
                Err(_) => self.lose_segment(),
            };
            if let Err(error) = lost {
                return self.fail(error);
            }
        }
    }

    /// The segment at the front, or first its key or what precedes it.
    fn next_resource(&self) -> Result<Option<Resource>, HlsError> {
        let Some(media) = &self.media else { return Ok(None) };
        let Some(queued) = media.queue.front() else { return Ok(None) };
        let join = |uri: &str| media.url.join(uri).map_err(|_| HlsError::Address);
        let segment = &queued.segment;
        let is_current =
            |map: &Arc<SegmentMap>| self.map.as_ref().is_some_and(|(current, _, _)| current == map);
        let map = segment.map.as_ref().filter(|map| !is_current(map));
        let keys = [map.and_then(|map| map.key.as_ref()), segment.key.as_ref()];
        for key in keys.into_iter().flatten() {
            if key.method != Encryption::Aes128 {
                return Err(HlsError::Encrypted);
            }
            let url = join(&key.uri)?;
            if !self.keys.iter().any(|(known, _)| *known == url) {
                return Ok(Some((Activity::Key(url.clone()), url, None, MAX_KEY_BYTES)));
            }
        }
        if let Some(map) = map {
            let activity = Activity::Map(Arc::clone(map));
            return Ok(Some((activity, join(&map.uri)?, map.range, MAX_MAP_BYTES)));
        }
        let url = join(&segment.uri)?;
        Ok(Some((Activity::Segment, url, segment.range, MAX_SEGMENT_BYTES)))
    }

    fn fetch_playlist(&mut self) {
        let url = self.address.url.clone();
        self.fetch(Activity::Playlist, url, None, MAX_M3U8_BYTES);
    }

    fn fetch(
        &mut self,
        activity: Activity,
        url: HttpUrl,
        range: Option<ByteRange>,
        max_bytes: usize,
    ) {
        self.activity = Some(activity);
        let is_public = self.address.is_public;
        self.outputs.push_back(HlsOutput::Fetch(HlsRequest { url, is_public, range, max_bytes }));
    }

    fn read_playlist(
        &mut self,
        now: Instant,
        url: HttpUrl,
        bytes: &[u8],
    ) -> Result<(), RadioError> {
        self.retry_at = None;
        let playlist = match Playlist::parse(bytes) {
            Ok(playlist) => playlist,
            // One broken version may be replaced by the next.
            Err(error) => match &mut self.media {
                Some(media) => {
                    media.retry(now);
                    return Ok(());
                }
                None => return Err(HlsError::Playlist(error).into()),
            },
        };
        match playlist {
            Playlist::Multivariant(_) if self.is_variant => Err(HlsError::Nested.into()),
            Playlist::Multivariant(all) => {
                let variant = self.choice.choose(&all).ok_or(HlsError::NoVariant)?;
                self.address.url = url.join(&variant.uri).map_err(|_| HlsError::Address)?;
                self.is_variant = true;
                self.status.bandwidth = Some(variant.bandwidth);
                Ok(())
            }
            Playlist::Media(playlist) => {
                self.status.target = playlist.target;
                let media = self.media.get_or_insert_with(|| MediaState::new(url.clone(), now));
                media.url = url;
                let outcome = media.update(now, playlist);
                self.status.lost = self.status.lost.saturating_add(outcome.lost);
                if outcome.restarted {
                    self.keys.clear();
                    self.map = None;
                }
                Ok(())
            }
        }
    }

    /// Takes a key, what precedes segments, or a segment.
    fn read_resource(
        &mut self,
        activity: Activity,
        is_partial: bool,
        bytes: Vec<u8>,
    ) -> Result<(), HlsError> {
        match activity {
            Activity::Playlist => {}
            Activity::Key(url) => {
                let key = <[u8; 16]>::try_from(bytes).map_err(|_| HlsError::Key)?;
                if self.keys.len() == MAX_KEYS {
                    self.keys.pop_front();
                }
                self.keys.push_back((url, key));
            }
            Activity::Map(map) => {
                let mut bytes = part(bytes, map.range, is_partial)?;
                // A map that is encrypted has an IV (RFC 8216, 4.3.2.5).
                self.decrypt(map.key.as_ref(), 0, &mut bytes)?;
                self.map = Some((map, bytes, false));
            }
            Activity::Segment => self.read_segment(is_partial, bytes)?,
        }
        Ok(())
    }

    fn read_segment(&mut self, is_partial: bool, bytes: Vec<u8>) -> Result<(), HlsError> {
        let Some(media) = &self.media else { return Ok(()) };
        let Some(queued) = media.queue.front() else { return Ok(()) };
        let mut bytes = part(bytes, queued.segment.range, is_partial)?;
        self.decrypt(queued.segment.key.as_ref(), queued.sequence, &mut bytes)?;
        let front = bytes.trim_ascii_start();
        if front.first().is_some_and(|first| matches!(first, b'<' | b'#' | b'{')) {
            return Err(HlsError::WebPage);
        }
        let Some(media) = &mut self.media else { return Ok(()) };
        let Some(queued) = media.queue.pop_front() else { return Ok(()) };
        let mut begins = queued.begins;
        let missing = media.take_missing(&mut begins);
        if let Some((map, content, given)) = &mut self.map
            && queued.segment.map.as_ref() == Some(&*map)
            && (begins || !*given)
        {
            bytes.splice(..0, content.iter().copied());
            *given = true;
        }
        (self.attempts, self.failures) = (0, 0);
        self.status.discontinuities += u64::from(begins && self.status.segments > 0);
        self.status.segments += 1;
        self.outputs.extend(queued.segment.title.map(HlsOutput::Title));
        let duration = queued.segment.duration;
        self.held.media += missing + duration;
        self.held.bytes += bytes.len() as u64;
        self.held.segments += 1;
        self.outputs.push_back(HlsOutput::Segment(HlsSegment { bytes, duration, missing, begins }));
        Ok(())
    }

    fn decrypt(
        &self,
        key: Option<&Arc<SegmentKey>>,
        sequence: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), HlsError> {
        let (Some(key), Some(media)) = (key, &self.media) else { return Ok(()) };
        let url = media.url.join(&key.uri).map_err(|_| HlsError::Address)?;
        let known = self.keys.iter().find(|(known, _)| *known == url).ok_or(HlsError::Key)?;
        let iv = key.iv.unwrap_or_else(|| u128::from(sequence).to_be_bytes());
        decrypt(known.1, iv, bytes)
    }

    /// A request has failed.
    fn handle_failure(&mut self, now: Instant, error: RadioError) -> Result<(), RadioError> {
        match self.activity.take() {
            None => Ok(()),
            Some(Activity::Playlist) => match &mut self.media {
                Some(media) if !error.is_permanent() || error.is_absence() => {
                    media.retry(now);
                    Ok(())
                }
                _ => Err(error),
            },
            Some(_) => {
                self.attempts += 1;
                let has_left = matches!(error, RadioError::Status(404 | 410));
                if has_left || self.attempts >= MAX_ATTEMPTS {
                    return self.lose_segment();
                }
                self.retry_at = Some(now + RETRY * i64::from(self.attempts));
                Ok(())
            }
        }
    }

    /// Gives up the segment at the front; fails when that was one of too many in a row.
    fn lose_segment(&mut self) -> Result<(), RadioError> {
        (self.attempts, self.retry_at) = (0, None);
        self.failures += 1;
        self.status.lost += 1;
        self.media.as_mut().and_then(MediaState::drop_front);
        if self.failures >= MAX_FAILURES {
            return Err(HlsError::Segments.into());
        }
        Ok(())
    }
}

/// The range of an answer that is not the range itself.
fn part(bytes: Vec<u8>, range: Option<ByteRange>, is_partial: bool) -> Result<Vec<u8>, HlsError> {
    let bytes = match range {
        Some(range) if !is_partial => {
            let at = |number| usize::try_from(number).unwrap_or(usize::MAX);
            let end = at(range.offset + range.length);
            bytes.get(at(range.offset)..end).ok_or(HlsError::Short)?.to_vec()
        }
        Some(range) if bytes.len() as u64 != range.length => return Err(HlsError::Short),
        _ => bytes,
    };
    if bytes.is_empty() { Err(HlsError::Short) } else { Ok(bytes) }
}

impl From<HlsError> for RadioError {
    fn from(error: HlsError) -> Self {
        Self::Hls(error)
    }
}

/// The reserve beyond which nothing is fetched, in target durations: more than a live playlist
/// offers from where playback begins.
const RESERVE_TARGETS: i64 = 6;

/// What is held at most, however much a playlist says that it lasts: 32 s of FLAC in 24 bits and
/// 96 kHz and one more segment, or segments of a tenth of a second.
const MAX_HELD_BYTES: u64 = 16 * 1_024 * 1_024;
const MAX_HELD_SEGMENTS: u64 = 60;

/// The largest answers. 16 MiB are 30 s of FLAC in 24 bits and 96 kHz.
const MAX_SEGMENT_BYTES: usize = 16 * 1_024 * 1_024;
const MAX_MAP_BYTES: usize = 512 * 1_024;
const MAX_KEY_BYTES: usize = 1_024;

/// Keys that are remembered.
const MAX_KEYS: usize = 8;

/// Requests for one segment, the pause before the second, and segments that may fail in a row.
const MAX_ATTEMPTS: u32 = 3;
const RETRY: Span = Span::from_millis(700);
const MAX_FAILURES: u32 = 6;

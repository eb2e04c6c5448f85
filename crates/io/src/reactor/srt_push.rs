//! A station's stream that is sent over SRT: a cursor on the chunks of a station, a multiplexer and
//! a link.

use std::fmt;
use std::sync::Arc;

use aulos_core::{Codec, Instant, SampleRate, Span};
use aulos_engine::fanout::ChunkCursor;
use aulos_proto::mpegts::{TS_PACKET, TsCodec, TsMuxer, TsTime};
use aulos_rt::{LatestPublisher, LatestReader};

use super::stations::ReactorStation;
use crate::srt::{SrtLink, SrtLinkEvent, SrtLinkStatus};

/// Sends a station's stream while its monitor exists.
pub struct SrtPush {
    pub(super) station: usize,
    pub(super) due: Instant,
    link: SrtLink,
    muxer: Option<TsMuxer>,
    /// The next chunk; none while nobody is connected.
    cursor: Option<ChunkCursor>,
    /// Frames since the connection began, which are the time of the stream.
    frames: u64,
    packets: Vec<u8>,
    progress: SrtPushProgress,
    published: LatestPublisher<SrtPushProgress>,
    /// Keeps the rendition alive that is sent.
    _rendition: Option<Arc<()>>,
    alive: Arc<()>,
}

/// How far a push over SRT has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "status")]
pub struct SrtPushProgress {
    /// The connection.
    pub link: SrtLinkStatus,
    /// When it began.
    pub since: Option<Instant>,
    /// Bytes sent in it.
    pub bytes: u64,
    /// Chunks skipped in it.
    pub lagged: u64,
    /// Connections so far.
    pub connects: u64,
    /// Failed or broken connections.
    pub failures: u64,
    /// The station has been replaced or removed.
    pub has_ended: bool,
}

/// The controlling side. Dropping it ends the push.
pub struct SrtPushMonitor {
    progress: LatestReader<SrtPushProgress>,
    _alive: Arc<()>,
}

impl SrtPushMonitor {
    /// The progress.
    pub fn progress(&mut self) -> SrtPushProgress {
        *self.progress.read()
    }
}

impl fmt::Debug for SrtPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SrtPush").field("station", &self.station).finish_non_exhaustive()
    }
}

impl fmt::Debug for SrtPushMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SrtPushMonitor(..)")
    }
}

impl SrtPush {
    /// A push of the station with this number, and its monitor. `rendition` keeps the station alive
    /// if it is a rendition. The counters go on from `progress`.
    #[must_use]
    pub fn new(
        link: SrtLink,
        station: usize,
        rendition: Option<Arc<()>>,
        progress: SrtPushProgress,
    ) -> (Self, SrtPushMonitor) {
        let SrtPushProgress { connects, failures, .. } = progress;
        let progress = SrtPushProgress { connects, failures, ..SrtPushProgress::default() };
        let (published, reader) = aulos_rt::latest(progress);
        let alive = Arc::new(());
        let monitor = SrtPushMonitor { progress: reader, _alive: Arc::clone(&alive) };
        let push = Self {
            station,
            due: Instant::ZERO,
            link,
            muxer: None,
            cursor: None,
            frames: 0,
            packets: Vec::new(),
            progress,
            published,
            _rendition: rendition,
            alive,
        };
        (push, monitor)
    }

    /// Receives and sends. False when it is over, because nobody wants it any more.
    pub(super) fn tick(&mut self, now: Instant, tap: Option<&ReactorStation>) -> bool {
        self.due = now + INTERVAL;
        let Some(tap) = tap.filter(|_| Arc::strong_count(&self.alive) > 1) else {
            self.end(now);
            return false;
        };
        let (mut begins, mut ends) = (false, false);
        self.link.poll(now, |event| match event {
            SrtLinkEvent::Connected => begins = true,
            SrtLinkEvent::Ended(_) => ends = true,
            // A receiver has nothing to say.
            SrtLinkEvent::Payload(_) => {}
        });
        if ends {
            self.cursor = None;
            self.progress.since = None;
            self.progress.failures += 1;
        }
        if begins && self.link.is_connected() {
            self.begin(now, tap);
        }
        if self.cursor.is_some() {
            tap.descriptor.demand.renew(now);
            self.send_chunks(now, tap);
        }
        self.progress.link = self.link.status();
        self.published.publish(self.progress);
        true
    }

    /// Ends the connection; the monitor learns that the push is over.
    pub(super) fn end(&mut self, now: Instant) {
        self.link.close(now);
        self.progress.has_ended = true;
        self.progress.link = self.link.status();
        self.published.publish(self.progress);
    }

    fn begin(&mut self, now: Instant, tap: &ReactorStation) {
        let codec = match tap.descriptor.codec {
            Codec::Aac => TsCodec::Adts,
            Codec::Mp3 => TsCodec::Mpeg,
            _ => TsCodec::Opus(if tap.descriptor.spec.layout.channels() == 1 { 1 } else { 2 }),
        };
        self.muxer = Some(TsMuxer::new(codec));
        self.cursor = Some(tap.log.cursor_at_end());
        self.frames = 0;
        let SrtPushProgress { connects, failures, .. } = self.progress;
        self.progress = SrtPushProgress {
            since: Some(now),
            connects: connects + 1,
            failures,
            ..SrtPushProgress::default()
        };
    }

    fn send_chunks(&mut self, now: Instant, tap: &ReactorStation) {
        let (Some(muxer), Some(cursor)) = (&mut self.muxer, &mut self.cursor) else { return };
        if tap.log.get(*cursor, 0).is_err() {
            let present = tap.log.cursor_at_end();
            self.progress.lagged += cursor.distance(present);
            *cursor = present;
        }
        let rate = tap.descriptor.spec.rate;
        while let Ok(Some(timed)) = tap.log.get(*cursor, 0) {
            muxer.push(stream_time(self.frames, rate), timed.chunk.payload());
            self.frames += timed.chunk.duration.0;
            cursor.advance(1);
            if muxer.is_full() {
                muxer.flush(&mut self.packets);
            }
        }
        if muxer.waiting_ticks(stream_time(self.frames, rate)) >= LONGEST_WAIT {
            muxer.flush(&mut self.packets);
        }
        for payload in self.packets.chunks(PAYLOAD) {
            self.progress.bytes += payload.len() as u64;
            self.link.send(now, payload);
        }
        self.packets.clear();
    }
}

/// The time of a frame in ticks of 90 kHz, from one second on.
fn stream_time(frames: u64, rate: SampleRate) -> TsTime {
    let ticks = u128::from(frames) * 90_000 / u128::from(rate.hz());
    TsTime::from_ticks(90_000 + u64::try_from(ticks).unwrap_or(0))
}

/// What one datagram of SRT carries.
const PAYLOAD: usize = 7 * TS_PACKET;

/// Frames wait for a datagram to be full for at most 60 ms, in ticks.
const LONGEST_WAIT: i64 = 5_400;

/// The pace of SRT's acknowledgements.
const INTERVAL: Span = Span::from_millis(10);

//! Fetches the sound of an announcement from a URL, and passes it to the decoder as it arrives.
//!
//! A speech service gives out a URL that is valid for a short time, while the speech is still being
//! made. So the request is sent at once, what arrives is held in memory however long the
//! announcement waits for its turn, and playback begins with the first sound. Where loudness is
//! matched, it is measured on what arrives within [`MEASURE_TIME`]: waiting for all of it would
//! take as long as the speech.
//!
//! A play has any length, or no end. So no more of it is held than its decoder needs next, and the
//! server is read as fast as the sound plays.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_control::backend::BackgroundTask;
use aulos_core::ChannelLayout;
use aulos_engine::loudness::Loudness;
use aulos_engine::source::SourceItem;
use aulos_files::source::{StreamMeter, StreamParts, StreamSource};
use aulos_io::feed::{StreamState, StreamWriter};
use aulos_io::udp::interface_networks;
use aulos_proto::http::{BodyFraming, HttpUrl};
use aulos_rt::LatestReader;
use aulos_rt::ring::Consumer;
use aulos_session::radio::{FetchedStream, HostAllowList, HostRule, IpNetwork, RadioError};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::fetch::{FetchResult, StreamFetcher};
use crate::dial::DialedStream;

/// Fetches sounds; one per server.
#[derive(Debug)]
pub struct ClipClient {
    fetcher: Arc<StreamFetcher>,
    permits: Arc<Semaphore>,
}

impl Default for ClipClient {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(MAX_CLIPS));
        Self { fetcher: Arc::new(StreamFetcher::of_clips()), permits }
    }
}

/// The parts of one sound, for the threads that run them.
pub struct ClipHandles {
    /// For the codec pool.
    pub source: StreamSource,
    /// For the station.
    pub items: Consumer<SourceItem>,
    /// For the codec pool, if its loudness is wanted, and the result.
    pub meter: Option<(StreamMeter, LatestReader<Option<Loudness>>)>,
    /// What became of it.
    pub state: ClipState,
    /// For the control runtime.
    pub task: BackgroundTask,
}

impl std::fmt::Debug for ClipHandles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClipHandles").field("state", &self.state).finish_non_exhaustive()
    }
}

/// How much of a sound is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum ClipKind {
    /// All of it, at once: 8 MiB and 300 s at most.
    Held,
    /// What is played next, of any length.
    Streamed,
}

/// What became of a sound.
#[derive(Debug)]
pub struct ClipState {
    failure: SharedFailure,
    decoder: LatestReader<StreamState>,
}

/// Why the sound is not complete.
type SharedFailure = Arc<Mutex<Option<ClipFailure>>>;

/// What went wrong with a sound.
#[derive(Clone, Debug)]
struct ClipFailure {
    why: String,
    /// What has arrived by then is played, and then ends.
    is_cut_short: bool,
}

impl ClipFailure {
    fn fatal(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_cut_short: false }
    }

    fn cut_short(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_cut_short: true }
    }
}

impl ClipState {
    /// Why the sound cannot be played, or not to its end.
    pub fn problem(&mut self) -> Option<String> {
        let failure = self.failure().map(|failure| failure.why);
        failure.or_else(|| self.decoder.read().error.map(|error| error.to_string()))
    }

    /// Whether no more of it will come, without an end that the station sees.
    pub fn is_unplayable(&mut self) -> bool {
        self.failure().is_some_and(|failure| !failure.is_cut_short)
            || self.decoder.read().error.is_some()
    }

    fn failure(&self) -> Option<ClipFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClipClient {
    /// Begins to fetch `url` from one of the hosts that the rules permit. With `measured`, the
    /// channel layout in which it is played and whether one channel counts as two equal ones, its
    /// loudness is measured.
    ///
    /// # Errors
    /// The reason, for users to read: too many sounds are held already.
    pub fn open(
        &self,
        url: HttpUrl,
        rules: Vec<HostRule>,
        kind: ClipKind,
        measured: Option<(ChannelLayout, bool)>,
    ) -> Result<ClipHandles, String> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| {
            format!("{MAX_CLIPS} sounds from URLs are waiting or playing; try again later")
        })?;
        let StreamParts { writer, source, items, state, .. } = StreamParts::new();
        let (meter_writer, meter) = match measured {
            Some(shape) => {
                let (writer, meter, loudness) = StreamMeter::new(shape);
                (Some(writer), Some((meter, loudness)))
            }
            None => (None, None),
        };
        let failure = SharedFailure::default();
        let task = ClipTask {
            fetcher: Arc::clone(&self.fetcher),
            url,
            rules,
            kind,
            sinks: [Some(ClipSink::new(writer)), meter_writer.map(ClipSink::new)],
            sound: Vec::new(),
            dropped: 0,
        };
        let state = ClipState { failure: Arc::clone(&failure), decoder: state };
        let task = async move {
            let _permit = permit;
            if let Err(why) = task.run().await {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        };
        Ok(ClipHandles { source, items, meter, state, task: Box::pin(task) })
    }
}

struct ClipTask {
    fetcher: Arc<StreamFetcher>,
    url: HttpUrl,
    rules: Vec<HostRule>,
    kind: ClipKind,
    /// The decoder that plays, and the one that measures.
    sinks: [Option<ClipSink>; 2],
    /// The sound as far as it has arrived, without the bytes that have been dropped.
    sound: Vec<u8>,
    /// The number of bytes that the decoders have taken and that are not held any more.
    dropped: u64,
}

/// A decoder that takes the sound.
struct ClipSink {
    writer: StreamWriter,
    written: u64,
    ended: bool,
}

/// A body that is being received.
struct ClipBody {
    opened: FetchedStream,
    stream: DialedStream,
    /// It ended, well or not.
    end: Option<Result<(), String>>,
    /// When it counts as stalled.
    stalled_at: Instant,
}

impl ClipTask {
    /// Fetches the sound, and passes it on until it has been taken or is not wanted any more.
    async fn run(mut self) -> Result<(), ClipFailure> {
        let fetch = fetch(Arc::clone(&self.fetcher), self.url.clone(), self.rules.clone());
        let opened = tokio::select! {
            opened = timeout(FIRST_BYTE_TIMEOUT, fetch) => opened,
            () = self.until_abandoned() => return Ok(()),
        };
        let (opened, stream) = match opened {
            Ok(opened) => opened.map_err(|error| ClipFailure::fatal(message(&error)))?,
            Err(_) => return Err(ClipFailure::fatal("timeout: no sound within 10 s")),
        };
        let is_held = self.kind == ClipKind::Held;
        if is_held
            && matches!(opened.framing, BodyFraming::Length(length) if length > MAX_BYTES as u64)
        {
            return Err(ClipFailure::fatal(TOO_LARGE));
        }
        for sink in self.sinks.iter_mut().flatten() {
            // The ring of marks is empty.
            let _has_room = sink.writer.begin(opened.hint);
        }
        let begun = Instant::now();
        let mut body = ClipBody { opened, stream, end: None, stalled_at: begun + STALL_TIMEOUT };
        body.take_unread(&mut self.sound);
        let mut piece = [0; 16 * 1024];
        loop {
            if let [_, Some(meter)] = &mut self.sinks
                && begun.elapsed() >= MEASURE_TIME
            {
                meter.end(meter.written);
            }
            let has_room = self.feed(&mut body);
            let is_taken = self.sinks.iter().flatten().all(|sink| sink.ended);
            if self.is_abandoned() {
                return Ok(());
            } else if let Some(end) = body.end.as_ref().filter(|_| is_taken) {
                return end.clone().map_err(ClipFailure::cut_short);
            }
            tokio::select! {
                read = body.stream.read(&mut piece), if body.end.is_none() && has_room => {
                    let read = read.map(|count| piece.get(..count).unwrap_or_default());
                    body.receive(read, &mut self.sound);
                    if is_held && self.sound.len() > MAX_BYTES {
                        return Err(ClipFailure::fatal(TOO_LARGE));
                    } else if is_held && begun.elapsed() > MAX_FETCH_TIME {
                        body.end = Some(Err("the server sends for longer than 300 s".to_owned()));
                    }
                }
                () = sleep_until(body.stalled_at), if body.end.is_none() => {
                    body.end = Some(Err("the server sent nothing for 3 s".to_owned()));
                }
                () = sleep(FEED_INTERVAL) => {}
            }
        }
    }

    /// Passes on what has arrived. False while the decoders have enough of a streamed sound.
    fn feed(&mut self, body: &mut ClipBody) -> bool {
        let whole = body.end.is_some().then_some(self.arrived());
        for sink in self.sinks.iter_mut().flatten() {
            sink.feed((&self.sound, self.dropped), whole);
        }
        if self.kind == ClipKind::Held {
            return true;
        }
        self.drop_taken();
        let has_room = self.sound.len() < MAX_STREAMED_AHEAD;
        if !has_room {
            // The server is not waited for meanwhile.
            body.stalled_at = Instant::now() + STALL_TIMEOUT;
        }
        has_room
    }

    /// The number of bytes that have arrived.
    const fn arrived(&self) -> u64 {
        self.dropped + self.sound.len() as u64
    }

    /// Drops what every decoder has taken.
    fn drop_taken(&mut self) {
        let reading = self.sinks.iter().flatten().filter(|sink| !sink.ended);
        let taken = reading.map(|sink| sink.written).min().unwrap_or_else(|| self.arrived());
        let taken = usize::try_from(taken - self.dropped).unwrap_or(0);
        if taken >= DROPPED_AT_ONCE {
            self.sound.drain(..taken);
            self.dropped += taken as u64;
        }
    }

    /// Whether the announcement is over, or its station.
    fn is_abandoned(&self) -> bool {
        self.sinks[0].as_ref().is_none_or(|sink| sink.writer.is_abandoned())
    }

    #[allow(clippy::needless_pass_by_ref_mut, reason = "a shared reference to it is not `Send`")]
    async fn until_abandoned(&mut self) {
        while !self.is_abandoned() {
            sleep(FEED_INTERVAL).await;
        }
    }
}

impl ClipSink {
    const fn new(writer: StreamWriter) -> Self {
        Self { writer, written: 0, ended: false }
    }

    /// Passes on what there is room for of a sound, given without its first `dropped` bytes, and
    /// the end of one of `whole` bytes.
    fn feed(&mut self, (sound, dropped): (&[u8], u64), whole: Option<u64>) {
        if !self.ended {
            let start = usize::try_from(self.written - dropped).unwrap_or(usize::MAX);
            self.written += self.writer.write(sound.get(start..).unwrap_or_default()) as u64;
        }
        if let Some(whole) = whole {
            self.end(whole);
        }
    }

    /// Ends it once so many bytes have been passed on.
    fn end(&mut self, whole: u64) {
        if !self.ended && self.written >= whole {
            self.ended = self.writer.end();
        }
    }
}

impl ClipBody {
    /// Takes the bytes that were read with the head.
    fn take_unread(&mut self, sound: &mut Vec<u8>) {
        let unread = std::mem::take(&mut self.opened.unread);
        if !unread.is_empty() {
            self.receive(Ok(&unread), sound);
        }
    }

    fn receive(&mut self, read: std::io::Result<&[u8]>, sound: &mut Vec<u8>) {
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                self.end = Some(Err(message(&RadioError::Io(error.kind()))));
                return;
            }
        };
        self.stalled_at = Instant::now() + STALL_TIMEOUT;
        let body = &mut self.opened.body;
        let decoded = body.push(bytes, |fresh| sound.extend_from_slice(fresh), |_| {});
        self.end = if decoded.is_err() {
            Some(Err(message(&RadioError::InvalidChunks)))
        } else if body.is_finished()
            || (bytes.is_empty() && self.opened.framing == BodyFraming::UntilClosed)
        {
            Some(Ok(()))
        } else if bytes.is_empty() {
            Some(Err("the server closed the connection before the end".to_owned()))
        } else {
            None
        };
    }
}

/// Sends the request, to permitted hosts only, and returns when the first bytes of sound are there.
async fn fetch(
    fetcher: Arc<StreamFetcher>,
    url: HttpUrl,
    rules: Vec<HostRule>,
) -> Result<(FetchedStream, DialedStream), RadioError> {
    let lan = interface_networks().unwrap_or_default().into_iter();
    let lan = lan.map(|(address, prefix)| IpNetwork { address, prefix }).collect();
    let hosts = HostAllowList { rules, lan };
    match fetcher.open(&url, &HashSet::new(), Some(&hosts), &mut || ()).await? {
        FetchResult::Stream(opened, stream) => Ok((*opened, stream)),
        FetchResult::Hls(_) => Err(RadioError::TooDeep),
    }
}

/// The text of an error, for a caller who knows no radio station and no configuration.
fn message(error: &RadioError) -> String {
    match error {
        RadioError::NotAllowed(..) => {
            format!("{error}, and not in `streams.announce_hosts`")
        }
        RadioError::NotPublic(host, address, class) => {
            format!("a public server refers to {host}, and {address} is {class}")
        }
        RadioError::TooManyRedirects => "more than 3 redirects".to_owned(),
        RadioError::TooDeep => "a playlist, not audio; use the URL of the sound".to_owned(),
        RadioError::Status(404) => "the URL does not exist on the server (404)".to_owned(),
        other => other.to_string(),
    }
}

/// The most that one sound may have, and what is said then.
const MAX_BYTES: usize = 8 * 1024 * 1024;
const TOO_LARGE: &str = "the sound is larger than 8 MiB";

/// The most that is held of a sound of any length, and what is dropped of it at once: seconds of
/// it, because the decoder itself is seconds ahead.
const MAX_STREAMED_AHEAD: usize = 256 * 1024;
const DROPPED_AT_ONCE: usize = 32 * 1024;

/// The most sounds that are held at once.
const MAX_CLIPS: usize = 16;

/// Limits of the time from the call to the first bytes of sound, of a pause of the server, and of
/// the whole transfer: the last is the longest announcement.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
const STALL_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_FETCH_TIME: Duration = Duration::from_secs(300);

/// How long sound is collected for the measurement of its loudness.
const MEASURE_TIME: Duration = Duration::from_millis(300);

/// Interval at which a full decoder is offered more; its ring holds more than the codec pool takes
/// in this time.
const FEED_INTERVAL: Duration = Duration::from_millis(20);

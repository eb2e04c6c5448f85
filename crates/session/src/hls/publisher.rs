//! Writes a window to a folder or a storage: what is put and removed there, and in which order.
//!
//! ```text
//!  HlsWindow -> HlsPublisher -> put, remove, list, read -> folder or storage
//!                    ^------------- result ------------------'
//! ```
//!
//! One state of the window is written at a time: its segments, then the playlists that name them,
//! and then the newest state. So there is no queue: of a target that is slow or gone, no more is
//! held than the segments of one playlist, and what leaves the window before it was written is
//! dropped and counted. A segment that a playlist there has named stays as long as RFC 8216,
//! section 6.2.2, wants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use aulos_core::{Backoff, Instant, Span};
use aulos_proto::m3u8::Playlist;

use super::object::HlsObject;
use super::window::{HlsBody, HlsWindow, WindowConfig};

/// Something to do, one at a time; its result is the next input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "every target does all of it")]
pub enum PublishAction {
    /// List what is there: [`PublishResult::Found`].
    List,
    /// Read an object: [`PublishResult::Contents`].
    Read(HlsObject),
    /// Write an object, so that readers find the old one or the new one and no part.
    Put {
        /// The object.
        object: HlsObject,
        /// Its contents.
        bytes: Arc<[u8]>,
        /// Leave one that exists as it is.
        only_if_absent: bool,
    },
    /// Remove an object; one that does not exist is removed.
    Remove(HlsObject),
}

/// What became of the action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "every target gives all of it")]
pub enum PublishResult {
    /// It is done.
    Done,
    /// It failed, and why.
    Failed(String),
    /// The objects that are there.
    Found(Vec<HlsObject>),
    /// The contents of an object; `None` if it does not exist.
    Contents(Option<Vec<u8>>),
}

/// The state of a publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts, which metrics list")]
pub struct PublisherStatus {
    /// Segments written, of all renditions.
    pub segments: u64,
    /// Playlists written.
    pub playlists: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Objects removed.
    pub removed: u64,
    /// Failed attempts.
    pub failures: u64,
    /// Segments that left the window before they were written.
    pub dropped: u64,
    /// When the playlists were complete last.
    pub complete_at: Option<Instant>,
    /// Why the last attempt failed; none when one has succeeded since.
    pub error: Option<String>,
    /// When it failed first.
    pub failing_since: Option<Instant>,
    /// When it is tried again.
    pub retry_at: Option<Instant>,
}

/// Keeps a target as a window is.
#[derive(Debug)]
pub struct HlsPublisher {
    renditions: u64,
    /// Segments in a full playlist.
    listed: u64,
    segment: Span,
    /// How long a segment stays when no playlist there names it any more.
    retention: Span,
    /// Another server writes to the target too.
    is_paired: bool,
    now: Instant,
    /// The revision of the window that was taken last.
    revision: Option<u64>,
    task: Option<PublishTask>,
    /// First and last number of the playlist that was taken last.
    taken: Option<(u64, u64)>,
    /// Segments that had left the playlists then.
    left: u64,
    pub(super) objects: BTreeMap<HlsObject, StoredObject>,
    /// What no playlist names, in the order of the times at which it is removed.
    unlisted: VecDeque<(Instant, HlsObject)>,
    /// Removals until the window is looked at again.
    removals_left: usize,
    is_listed: bool,
    /// The last number in the playlist of the other server, and when it was seen first.
    other: Option<(u64, Instant)>,
    pending: Option<PublishAction>,
    /// Of writing, and apart from it of listing and removing.
    puts: Backoff,
    cleaning: Backoff,
    /// Why the last attempt of each failed.
    put_error: Option<String>,
    cleaning_error: Option<String>,
    status: PublisherStatus,
}

/// A state of the window that is being written.
#[derive(Debug)]
struct PublishTask {
    /// First and last number in the playlists.
    numbers: (u64, u64),
    segments: VecDeque<(HlsObject, HlsBody)>,
    /// Whether the playlist of the other server has to be looked at first.
    is_unchecked: bool,
    playlists: VecDeque<(HlsObject, HlsBody)>,
    /// All of it, with one segment of each rendition.
    named: Vec<HlsObject>,
}

/// What is known of an object of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredObject {
    /// It was there.
    Found,
    /// It has the contents of this tag.
    Written(u64),
    /// No playlist names it, and it is removed then.
    Unlisted(Instant),
}

impl HlsPublisher {
    /// A publisher of a window. `seed` randomizes the pauses after failures.
    #[must_use]
    pub fn new(config: &WindowConfig, seed: u64) -> Self {
        let rate = config.formats.first().map(|format| format.spec.rate);
        let segment = rate.map_or(Span::ZERO, |rate| rate.span(config.segment));
        let playlist = segment * i64::try_from(config.listed).unwrap_or(i64::MAX);
        let is_paired = config.first_listed > 1;
        // What was there in the beginning may be in the playlist of the other server from then on.
        let other = if is_paired { playlist } else { Span::ZERO };
        Self {
            renditions: config.formats.len() as u64,
            listed: config.listed as u64,
            segment,
            retention: segment + playlist + other,
            is_paired,
            now: Instant::ZERO,
            revision: None,
            task: None,
            taken: None,
            left: 0,
            objects: BTreeMap::new(),
            unlisted: VecDeque::new(),
            removals_left: 0,
            is_listed: false,
            other: None,
            pending: None,
            puts: Backoff::half_jitter(FIRST_PAUSE, LONGEST_PAUSE, seed),
            cleaning: Backoff::half_jitter(FIRST_PAUSE, LONGEST_PAUSE, seed.rotate_left(32)),
            put_error: None,
            cleaning_error: None,
            status: PublisherStatus::default(),
        }
    }

    /// Looks at the window, and takes its state when the last one is written.
    pub fn handle_window(&mut self, now: Instant, window: &HlsWindow) {
        self.handle_timeout(now);
        self.removals_left = REMOVALS_AT_ONCE;
        let is_idle = self.task.is_none() && self.pending.is_none();
        let is_new = self.revision != Some(window.revision());
        if is_idle && is_new && window.is_ready() && self.puts.is_due(self.now) {
            self.take(window);
        }
    }

    /// Handles the result of the last action.
    pub fn handle_input(&mut self, now: Instant, result: PublishResult) {
        self.handle_timeout(now);
        let Some(action) = self.pending.take() else { return };
        match (action, result) {
            (action, PublishResult::Failed(error)) => self.failed(&action, error),
            (PublishAction::List, PublishResult::Found(found)) => {
                self.is_listed = true;
                self.cleaned();
                for object in found.into_iter().take(MAX_FOUND) {
                    self.objects.entry(object).or_insert(StoredObject::Found);
                }
            }
            (PublishAction::Read(_), PublishResult::Contents(text)) => {
                if self.is_covered_by(text.as_deref().unwrap_or_default()) {
                    self.complete();
                } else if let Some(task) = &mut self.task {
                    task.is_unchecked = false;
                }
            }
            (PublishAction::Put { .. }, _) => self.written(),
            (PublishAction::Remove(object), _) => {
                self.cleaned();
                self.objects.remove(&object);
                self.unlisted.pop_front();
                self.status.removed += 1;
            }
            // A target that answers something else.
            (action, _) => self.failed(&action, "an answer to another question".to_owned()),
        }
    }

    /// Time has passed: an attempt or a removal may be due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The next thing to do, if the last one has its result.
    pub fn poll_output(&mut self) -> Option<PublishAction> {
        if self.pending.is_some() {
            return None;
        }
        let may_clean = self.cleaning.is_due(self.now);
        let action = if !self.is_listed && may_clean {
            PublishAction::List
        } else if let Some(task) = &self.task {
            task.next_action(self.is_paired)?
        } else if may_clean && self.removals_left > 0 {
            self.removals_left -= 1;
            PublishAction::Remove(self.next_removal()?)
        } else {
            return None;
        };
        self.pending = Some(action.clone());
        Some(action)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called; the window is to be looked at
    /// then, and whenever it has changed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let removal = self.unlisted.front().map(|(at, _)| (*at).max(self.cleaning.retry_at()));
        let listing = (!self.is_listed).then(|| self.cleaning.retry_at());
        let put = Some(self.puts.retry_at()).filter(|at| *at > self.now);
        [removal, listing, put].into_iter().flatten().min()
    }

    /// What has happened so far.
    #[must_use]
    pub const fn status(&self) -> &PublisherStatus {
        &self.status
    }

    /// Begins to write a state of the window.
    fn take(&mut self, window: &HlsWindow) {
        let mut listed = window.listed_segments().map(|(number, _)| number);
        let Some(first) = listed.next() else { return };
        let numbers = (first, listed.last().unwrap_or(first));
        self.count_dropped(window, numbers);
        let segments = window.listed_segments().flat_map(|(number, bodies)| {
            bodies.iter().enumerate().filter_map(move |(rendition, body)| {
                Some((window.segment_object(rendition, number)?, body))
            })
        });
        let missing =
            window.inits().chain(segments).filter(|(object, body)| !self.has(object, body));
        let segments = missing.map(|(object, body)| (object, body.clone())).collect();
        let named = window.inits().chain(window.playlists()).map(|(object, _)| object);
        let renditions = 0..window.renditions().len();
        let one_of_each =
            renditions.filter_map(|rendition| window.segment_object(rendition, first));
        let named = named.chain(one_of_each).collect();
        let playlists = window.playlists().filter(|(object, body)| !self.has(object, body));
        let playlists: VecDeque<_> =
            playlists.map(|(object, body)| (object, body.clone())).collect();
        let is_unchecked = self.is_paired && !playlists.is_empty();
        self.revision = Some(window.revision());
        self.taken = Some(numbers);
        self.task = Some(PublishTask { numbers, segments, is_unchecked, playlists, named });
        self.complete_if_empty();
    }

    fn has(&self, object: &HlsObject, body: &HlsBody) -> bool {
        self.objects.get(object) == Some(&StoredObject::Written(body.tag))
    }

    /// Counts the segments that have left the playlists since one was taken last, and were not
    /// written.
    fn count_dropped(&mut self, window: &HlsWindow, (first, last): (u64, u64)) {
        let exists = |(_, bodies): &(u64, &[HlsBody])| !bodies.is_empty();
        let listed = window.listed_segments().filter(exists).count() as u64;
        let left = window.pushed().saturating_sub(listed);
        let new = left.saturating_sub(std::mem::replace(&mut self.left, left));
        let Some((from, to)) = self.taken else { return };
        let has_left =
            |number: u64| (from..=to).contains(&number) && !(first..=last).contains(&number);
        let is_written = |(object, state): &(&HlsObject, &StoredObject)| match object {
            HlsObject::Segment { number, .. } => {
                has_left(*number) && matches!(state, StoredObject::Written(_))
            }
            _ => false,
        };
        let written = self.objects.iter().filter(is_written).count() as u64;
        self.status.dropped += (new * self.renditions).saturating_sub(written);
    }

    /// Whether the playlist of the other server has all that is in ours, or is alive and reaches
    /// further back than ours does yet.
    fn is_covered_by(&mut self, text: &[u8]) -> bool {
        let Some(PublishTask { numbers: (first, last), .. }) = &self.task else { return true };
        let Ok(Playlist::Media(other)) = Playlist::parse(text) else { return false };
        let (begin, count) = (other.sequence, other.segments.len() as u64);
        let end = begin.saturating_add(count.saturating_sub(1));
        let since = match self.other {
            Some((known, since)) if known == end => since,
            _ => self.now,
        };
        self.other = Some((end, since));
        let has_all = begin <= *first && end >= *last;
        let is_alive = self.now.since(since) <= self.segment * ALIVE_SEGMENTS;
        // Ours is short because this server was started a while ago.
        let is_longer = begin < *first && last - first + 1 < self.listed.min(count);
        has_all || is_longer && is_alive
    }

    /// What is being written is there.
    fn written(&mut self) {
        self.puts.succeeded(self.now);
        let Some(task) = &mut self.task else { return };
        let from = if task.segments.is_empty() { &mut task.playlists } else { &mut task.segments };
        let Some((object, body)) = from.pop_front() else { return };
        self.status.bytes += body.bytes.len() as u64;
        match object {
            HlsObject::Segment { .. } => self.status.segments += 1,
            HlsObject::Init { .. } => {}
            HlsObject::Playlist(_) | HlsObject::Multivariant => self.status.playlists += 1,
        }
        self.objects.insert(object, StoredObject::Written(body.tag));
        self.complete_if_empty();
    }

    fn complete_if_empty(&mut self) {
        let is_empty = |task: &PublishTask| task.segments.is_empty() && task.playlists.is_empty();
        if self.task.as_ref().is_some_and(is_empty) {
            self.complete();
        }
    }

    /// The state of the window is there: what it does not name can be removed some time later.
    fn complete(&mut self) {
        let Some(PublishTask { numbers: (first, last), named, .. }) = self.task.take() else {
            return;
        };
        let is_named = |object: &HlsObject| match object {
            HlsObject::Segment { rendition, number, container } => {
                let number = if (first..=last).contains(number) { first } else { *number };
                let (rendition, container) = (Arc::clone(rendition), *container);
                named.contains(&HlsObject::Segment { rendition, number, container })
            }
            _ => named.contains(object),
        };
        let at = self.now + self.retention;
        for (object, state) in &mut self.objects {
            if !matches!(state, StoredObject::Unlisted(_)) && !is_named(object) {
                *state = StoredObject::Unlisted(at);
                self.unlisted.push_back((at, object.clone()));
            }
        }
        while self.unlisted.len() > MAX_UNLISTED {
            // What cannot be removed is found again after the next start.
            let forgotten = self.unlisted.pop_front();
            forgotten.map(|(_, object)| self.objects.remove(&object));
        }
        self.status.complete_at = Some(self.now);
        self.put_error = None;
        self.show_error();
    }

    fn cleaned(&mut self) {
        self.cleaning.succeeded(self.now);
        self.cleaning_error = None;
        self.show_error();
    }

    /// Shows the error that matters more.
    fn show_error(&mut self) {
        let (error, retry_at) = match (&self.put_error, &self.cleaning_error) {
            (Some(error), _) => (error, self.puts.retry_at()),
            (None, Some(error)) => (error, self.cleaning.retry_at()),
            (None, None) => {
                self.status.error = None;
                (self.status.failing_since, self.status.retry_at) = (None, None);
                return;
            }
        };
        self.status.error = Some(error.clone());
        self.status.failing_since.get_or_insert(self.now);
        self.status.retry_at = Some(retry_at);
    }

    /// The object that is to be removed now.
    fn next_removal(&mut self) -> Option<HlsObject> {
        while let Some((at, object)) = self.unlisted.front() {
            // It may have been written again.
            if self.objects.get(object) != Some(&StoredObject::Unlisted(*at)) {
                self.unlisted.pop_front();
                continue;
            }
            return (*at <= self.now).then(|| object.clone());
        }
        None
    }

    fn failed(&mut self, action: &PublishAction, error: String) {
        self.status.failures += 1;
        match action {
            PublishAction::List | PublishAction::Remove(_) => {
                self.cleaning.failed(self.now);
                self.cleaning_error = Some(error);
            }
            PublishAction::Read(_) | PublishAction::Put { .. } => {
                // The window will have another state then.
                (self.task, self.revision) = (None, None);
                self.puts.failed(self.now);
                self.put_error = Some(error);
            }
        }
        self.show_error();
    }
}

impl PublishTask {
    fn next_action(&self, is_paired: bool) -> Option<PublishAction> {
        let next = match self.segments.front() {
            None if self.is_unchecked => {
                return self
                    .playlists
                    .front()
                    .map(|(object, _)| PublishAction::Read(object.clone()));
            }
            None => self.playlists.front(),
            segment => segment,
        };
        let (object, body) = next?;
        // The other server may have the sound that was filled in here.
        let only_if_absent = is_paired && body.is_filled;
        let (object, bytes) = (object.clone(), Arc::clone(&body.bytes));
        Some(PublishAction::Put { object, bytes, only_if_absent })
    }
}

/// The first pause after a failure, less than a segment; and the longest.
const FIRST_PAUSE: Span = Span::from_secs(1);
const LONGEST_PAUSE: Span = Span::from_secs(60);

/// Removals before the window is looked at again: none of them delays a segment for long.
const REMOVALS_AT_ONCE: usize = 10;

/// Objects that wait to be removed: three renditions of the longest window in the shortest
/// segments, twice.
const MAX_UNLISTED: usize = 100_000;

/// Objects of an earlier run that are removed.
const MAX_FOUND: usize = 100_000;

/// A playlist that has not changed for this many segments has no server.
const ALIVE_SEGMENTS: i64 = 3;

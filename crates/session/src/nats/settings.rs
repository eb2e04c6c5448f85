//! Settings of clients and groups that the nodes of a site share in a bucket.
//!
//! ```text
//!  a change of this node --> waits (coalesced) --> write if the revision is still this one
//!                                  ^                        |conflict
//!                                  +-- merged by field <-- read
//!  an entry of the bucket --> merged with what waits --> applied to this node
//! ```
//!
//! The rule where several nodes change the same record: **a record is compared field by field with
//! what it was when the change was made; a field that has changed is written, every other field is
//! that of the bucket.** So of two changes of different fields both stay, and of two changes of the
//! same field the one that is written last. A change that is made while the bucket is away waits,
//! and is written by the same rule when it is back. No clock is compared with another machine's.
//!
//! A node writes a record at most once in [`WRITE_INTERVAL`], whatever moves a slider.
//!
//! Rejected: one key for all settings, which every change would conflict with; and a time stamp in
//! each record, by which the node with the fastest clock would win.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aulos_core::{Instant, Span};
use aulos_proto::nats::{GroupSettings, SettingsKey, SettingsRecord, SharedClientSettings};

/// What has come from the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the caller fills in")]
pub enum SettingsEvent {
    /// The bucket is watched: it can be read and written, and entries will come.
    Opened,
    /// It cannot be reached. Requests under way have failed.
    Closed,
    /// An entry, at the beginning and whenever it changes. It may come again.
    Entry {
        /// Its key.
        key: SettingsKey,
        /// Its revision.
        revision: u64,
        /// Its value.
        value: SettingsValue,
    },
    /// The answer to a request. Answers to earlier requests are ignored.
    Reply {
        /// The id of the request.
        id: u64,
        /// The answer.
        reply: SettingsReply,
    },
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the caller fills in")]
pub enum SettingsValue {
    /// There is none, or it was deleted.
    Absent,
    /// A record.
    Record(SettingsRecord),
    /// Bytes that are no record, or one of another kind; the next change replaces them.
    Unreadable,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the caller fills in")]
pub enum SettingsReply {
    /// The key's revision, zero if it has never been written, and its value.
    Entry {
        /// The revision.
        revision: u64,
        /// The value.
        value: SettingsValue,
    },
    /// The record was written with this revision.
    Written {
        /// The new revision.
        revision: u64,
    },
    /// It was not written: the key has another revision.
    Conflict,
    /// The request has failed; a write may have been applied.
    Failed,
}

/// What to do with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a caller handles all")]
pub enum SettingsOperation {
    /// Read its value and revision.
    Read,
    /// Write a record if the revision is still this one; zero if the key has never been written.
    Write {
        /// The expected revision.
        revision: u64,
        /// The new value.
        record: SettingsRecord,
    },
}

/// What the machine wants from the program around it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsOutput {
    /// Carry this out.
    Request {
        /// Which answer belongs to it.
        id: u64,
        /// The key.
        key: SettingsKey,
        /// What to do with it.
        operation: SettingsOperation,
    },
    /// The record is to be that of this node.
    Apply {
        /// What it is about.
        key: SettingsKey,
        /// The record.
        record: SettingsRecord,
    },
}

/// What has happened, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingsCounts {
    /// Records that were written.
    pub written: u64,
    /// Records of other nodes that were applied.
    pub applied: u64,
    /// Writes that another node was ahead of.
    pub conflicts: u64,
    /// Requests that failed or were not answered in time.
    pub failed: u64,
    /// Values that are no record.
    pub malformed: u64,
    /// Entries that are not newer than what is known.
    pub repeated: u64,
    /// Changes and entries for which there is no room.
    pub overflow: u64,
}

impl SettingsCounts {
    /// The counts with the names of what has happened.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("written", self.written),
            ("applied", self.applied),
            ("conflicts", self.conflicts),
            ("failed", self.failed),
            ("malformed", self.malformed),
            ("repeated", self.repeated),
            ("overflow", self.overflow),
        ]
    }
}

/// The settings that a node shares with the others of its site.
#[derive(Debug)]
pub struct SharedSettings {
    records: BTreeMap<SettingsKey, SharedRecord>,
    /// Changes that wait, by the time at which they may be written.
    due: BTreeSet<(Instant, SettingsKey)>,
    /// Keys whose record is not yet that of this node.
    unapplied: VecDeque<SettingsKey>,
    requests: BTreeMap<u64, PendingRequest>,
    next_id: u64,
    is_open: bool,
    counts: SettingsCounts,
    now: Instant,
    outputs: VecDeque<SettingsOutput>,
}

/// What is known of a key.
#[derive(Debug, Default)]
struct SharedRecord {
    /// The last revision; none if it has to be read before a write.
    revision: Option<u64>,
    /// The record of that revision, or the last that was known.
    committed: Option<SettingsRecord>,
    /// What this node has, or is about to have.
    own: Option<SettingsRecord>,
    change: Option<PendingChange>,
    /// Its place in `due`.
    scheduled: Option<Instant>,
    /// When it was written last by this node.
    written_at: Option<Instant>,
    is_requested: bool,
    is_unapplied: bool,
}

/// A change of `own` that has not been written.
#[derive(Debug)]
struct PendingChange {
    /// The record when the change was made; none if this node knew of none.
    base: Option<SettingsRecord>,
    /// When it may be written.
    due: Instant,
}

#[derive(Debug)]
struct PendingRequest {
    key: SettingsKey,
    sent: Instant,
    /// The record that is written; none for a read.
    record: Option<SettingsRecord>,
}

impl SharedSettings {
    /// Nothing is shared yet.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            records: BTreeMap::new(),
            due: BTreeSet::new(),
            unapplied: VecDeque::new(),
            requests: BTreeMap::new(),
            next_id: 0,
            is_open: false,
            counts: SettingsCounts {
                written: 0,
                applied: 0,
                conflicts: 0,
                failed: 0,
                malformed: 0,
                repeated: 0,
                overflow: 0,
            },
            now,
            outputs: VecDeque::new(),
        }
    }

    /// This node has changed a record. Without `before`, it offers one that it has had for some
    /// time: that of the bucket goes first, if there is one.
    pub fn handle_change(
        &mut self,
        now: Instant,
        key: SettingsKey,
        before: Option<SettingsRecord>,
        after: SettingsRecord,
    ) {
        let now = self.advance(now);
        let Some(entry) = self.entry(&key) else { return };
        if before.is_none() && entry.committed.is_some() {
            entry.own.clone_from(&entry.committed);
            return self.apply(&key);
        }
        // Only what has changed: the node may not be able to have all of a record as it is, for
        // example a volume above its own limit, or may not have applied the last one yet.
        entry.own = Some(match &entry.own {
            Some(own) => merge(before.as_ref(), &after, own),
            None => after,
        });
        if entry.change.is_none() && entry.own != entry.committed {
            let base = if before.is_some() { entry.committed.clone().or(before) } else { None };
            let earliest = entry.written_at.map_or(now, |at| at + WRITE_INTERVAL);
            entry.change = Some(PendingChange { base, due: earliest.max(now + COALESCE) });
        }
        self.schedule(&key);
    }

    /// Processes what has come from the bucket.
    pub fn handle_input(&mut self, now: Instant, event: SettingsEvent) {
        let now = self.advance(now);
        match event {
            SettingsEvent::Opened => self.is_open = true,
            SettingsEvent::Closed => self.close(),
            SettingsEvent::Entry { key, revision, value } => {
                self.handle_entry(now, &key, revision, value, false);
            }
            SettingsEvent::Reply { id, reply } => self.handle_reply(now, id, reply),
        }
        self.act(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        let is_late = |request: &&u64| {
            self.requests.get(request).is_some_and(|one| now - one.sent >= REQUEST_TIMEOUT)
        };
        let late: Vec<u64> = self.requests.keys().filter(is_late).copied().collect();
        for id in late {
            self.handle_reply(now, id, SettingsReply::Failed);
        }
        self.act(now);
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<SettingsOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let key = self.unapplied.pop_front()?;
        let entry = self.records.get_mut(&key)?;
        entry.is_unapplied = false;
        let record = entry.own.clone()?;
        self.counts.applied += 1;
        Some(SettingsOutput::Apply { key, record })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called; none while nothing waits.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let requests = self.requests.values().map(|request| request.sent + REQUEST_TIMEOUT);
        let first = self.due.first().filter(|_| self.may_request());
        requests.chain(first.map(|(at, _)| *at)).min()
    }

    /// Changes that wait or are being written.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.due.len() + self.requests.len()
    }

    /// What has happened, since the beginning.
    #[must_use]
    pub const fn counts(&self) -> SettingsCounts {
        self.counts
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// The entry of a key, which is made if there is room.
    fn entry(&mut self, key: &SettingsKey) -> Option<&mut SharedRecord> {
        if self.records.len() >= MAX_SETTINGS_KEYS && !self.records.contains_key(key) {
            self.counts.overflow += 1;
            return None;
        }
        Some(self.records.entry(key.clone()).or_default())
    }

    /// The bucket may be another one when it is back, with lower revisions.
    fn close(&mut self) {
        self.is_open = false;
        self.counts.failed += self.requests.len() as u64;
        for entry in self.records.values_mut() {
            (entry.revision, entry.is_requested) = (None, false);
        }
        for request in std::mem::take(&mut self.requests).into_values() {
            self.schedule(&request.key);
        }
    }

    fn handle_entry(
        &mut self,
        now: Instant,
        key: &SettingsKey,
        revision: u64,
        value: SettingsValue,
        is_answer: bool,
    ) {
        let record = match (value, key) {
            (SettingsValue::Record(record @ SettingsRecord::Client(_)), SettingsKey::Client(_))
            | (SettingsValue::Record(record @ SettingsRecord::Group(_)), SettingsKey::Group(_)) => {
                Some(record)
            }
            (SettingsValue::Absent, _) => None,
            (SettingsValue::Record(_) | SettingsValue::Unreadable, _) => {
                self.counts.malformed += 1;
                None
            }
        };
        if self.records.get(key).and_then(|entry| entry.revision).is_some_and(|at| revision <= at) {
            self.counts.repeated += u64::from(!is_answer);
            return;
        }
        let Some(entry) = self.entry(key) else { return };
        entry.revision = Some(revision);
        if let Some(record) = record {
            self.commit(now, key, record);
        }
    }

    /// The bucket has this record; what waits is merged with it.
    fn commit(&mut self, now: Instant, key: &SettingsKey, record: SettingsRecord) {
        let Some(entry) = self.records.get_mut(key) else { return };
        let wanted = match (&mut entry.change, &entry.own) {
            (Some(change), Some(own)) => {
                let merged = merge(change.base.as_ref(), own, &record);
                change.base = Some(record.clone());
                change.due = change.due.max(now);
                merged
            }
            _ => record.clone(),
        };
        if wanted == record {
            entry.change = None;
        }
        entry.committed = Some(record);
        if entry.own.as_ref() != Some(&wanted) {
            entry.own = Some(wanted);
            self.apply(key);
        }
        self.schedule(key);
    }

    /// Puts a change that waits at its place in `due`.
    fn schedule(&mut self, key: &SettingsKey) {
        let Some(entry) = self.records.get_mut(key) else { return };
        let idle = entry.change.as_ref().filter(|_| !entry.is_requested);
        let wanted = idle.map(|change| change.due);
        let before = std::mem::replace(&mut entry.scheduled, wanted);
        if before == wanted {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(wanted) = wanted {
            self.due.insert((wanted, key.clone()));
        }
    }

    fn apply(&mut self, key: &SettingsKey) {
        if let Some(entry) = self.records.get_mut(key)
            && !std::mem::replace(&mut entry.is_unapplied, true)
        {
            self.unapplied.push_back(key.clone());
        }
    }

    fn handle_reply(&mut self, now: Instant, id: u64, reply: SettingsReply) {
        let Some(PendingRequest { key, record, sent }) = self.requests.remove(&id) else { return };
        let Some(entry) = self.records.get_mut(&key) else { return };
        entry.is_requested = false;
        match reply {
            SettingsReply::Entry { revision, value } => {
                self.handle_entry(now, &key, revision, value, true);
            }
            SettingsReply::Written { revision } => {
                self.counts.written += 1;
                let Some(record) = record else { return };
                // The watch may have brought a later one already.
                if entry.revision.is_none_or(|known| known < revision) {
                    entry.revision = Some(revision);
                    self.commit(now, &key, record);
                }
                self.postpone(&key, sent + WRITE_INTERVAL);
            }
            SettingsReply::Conflict => {
                entry.revision = None;
                self.counts.conflicts += 1;
            }
            SettingsReply::Failed => {
                entry.revision = None;
                self.counts.failed += 1;
                self.postpone(&key, now + RETRY);
            }
        }
        self.schedule(&key);
    }

    fn postpone(&mut self, key: &SettingsKey, until: Instant) {
        if let Some(change) = self.records.get_mut(key).and_then(|entry| entry.change.as_mut()) {
            change.due = until;
        }
    }

    fn may_request(&self) -> bool {
        self.is_open && self.requests.len() < MAX_REQUESTS
    }

    /// Sends the requests that are due, as far as the limit allows.
    fn act(&mut self, now: Instant) {
        while self.may_request() {
            let Some((_, key)) = self.due.first().filter(|(at, _)| now >= *at).cloned() else {
                return;
            };
            let Some(entry) = self.records.get_mut(&key) else { return };
            entry.is_requested = true;
            let (operation, record) = match (entry.revision, entry.own.clone()) {
                (Some(revision), Some(record)) => {
                    (SettingsOperation::Write { revision, record: record.clone() }, Some(record))
                }
                _ => (SettingsOperation::Read, None),
            };
            if record.is_some() {
                entry.written_at = Some(now);
            }
            self.next_id += 1;
            let id = self.next_id;
            self.requests.insert(id, PendingRequest { key: key.clone(), sent: now, record });
            self.schedule(&key);
            self.outputs.push_back(SettingsOutput::Request { id, key, operation });
        }
    }
}

/// A field of this node where it has changed since `base`, otherwise that of the bucket. Without a
/// base all are those of the bucket.
fn merge(
    base: Option<&SettingsRecord>,
    own: &SettingsRecord,
    bucket: &SettingsRecord,
) -> SettingsRecord {
    match (base, own, bucket) {
        (
            Some(SettingsRecord::Client(base)),
            SettingsRecord::Client(own),
            SettingsRecord::Client(bucket),
        ) => SettingsRecord::Client(SharedClientSettings {
            name: pick(&base.name, &own.name, &bucket.name),
            volume: pick(&base.volume, &own.volume, &bucket.volume),
            muted: pick(&base.muted, &own.muted, &bucket.muted),
            cap: pick(&base.cap, &own.cap, &bucket.cap),
            latency_ms: pick(&base.latency_ms, &own.latency_ms, &bucket.latency_ms),
            group: pick(&base.group, &own.group, &bucket.group),
        }),
        (
            Some(SettingsRecord::Group(base)),
            SettingsRecord::Group(own),
            SettingsRecord::Group(bucket),
        ) => SettingsRecord::Group(GroupSettings {
            name: pick(&base.name, &own.name, &bucket.name),
            muted: pick(&base.muted, &own.muted, &bucket.muted),
            station: pick(&base.station, &own.station, &bucket.station),
        }),
        _ => bucket.clone(),
    }
}

fn pick<T: Clone + PartialEq>(base: &T, own: &T, bucket: &T) -> T {
    if own == base { bucket.clone() } else { own.clone() }
}

/// How long a change waits for the next one: a slider that is moved makes many.
pub const COALESCE: Span = Span::from_millis(250);

/// The least time between two writes of a record.
pub const WRITE_INTERVAL: Span = Span::from_secs(1);

/// Limit of records: a client and a group for each client that a server remembers.
pub const MAX_SETTINGS_KEYS: usize = 16_384;

/// Requests under way at a time.
pub const MAX_REQUESTS: usize = 8;

/// How long a request may take.
pub const REQUEST_TIMEOUT: Span = Span::from_secs(5);

/// Until a request that has failed is made again.
const RETRY: Span = Span::from_secs(2);

//! The lease of a published station: which of several origins sends.
//!
//! ```text
//!  Standby --revision stands for a TTL, or is released--> claim by compare-and-set --> Holder
//!     ^                                                                                  |
//!     +------------------- another origin's lease is read -------------------------------+
//! ```
//!
//! The lease is one key of a bucket, and two rules tell without a common clock that it is held:
//!
//! - A holder counts its lease as confirmed until three quarters of the TTL after it has *sent* the
//!   request whose answer says so.
//! - A contender may claim a revision a whole TTL after it has *received* it, which is later.
//!
//! So two leases are never confirmed at once, whatever was lost or delayed, as long as clocks of
//! two machines do not differ by a quarter in their speed.
//!
//! A holder that gets no answer goes on sending, unconfirmed, until it reads the lease of another
//! origin: `JetStream` is silent while it elects a leader, and then no other origin can claim. If
//! one could, because only this holder was cut off, it has a higher epoch, which edges play alone;
//! those that are cut off with the holder go on hearing it.
//!
//! After an outage of `JetStream`, contenders leave the holder half a TTL to renew.
//!
//! Rejected: to stop when the lease is no longer confirmed. It saves the bytes of a second sender,
//! and each election was a silence of one to three seconds everywhere.
//!
//! Rejected: the TTL of `JetStream` itself. It needs a server of version 2.11, counts in whole
//! seconds, and the instant at which it deletes a key is unknown to the holder.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::nats::LeaseRecord;

/// The origin that wants a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct LeaseConfig {
    /// The name of the node.
    pub node: String,
    /// A random number, the same for all stations of this process.
    pub process: u64,
    /// The run of the station in this process; a later run has a higher number.
    pub run: u32,
    /// For how long a lease lasts; between [`MIN_LEASE_TTL`] and [`MAX_LEASE_TTL`].
    pub ttl: Span,
    /// The lowest epoch to use: the second at which the origin began, so that epochs rise even if
    /// the bucket is lost.
    pub first_epoch: u32,
}

/// What the lease wants from the bucket. At most one request is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the caller does")]
pub struct LeaseRequest {
    /// Which answer belongs to it.
    pub id: u64,
    /// What to do.
    pub operation: LeaseOperation,
}

/// An operation on the key of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a caller handles all")]
pub enum LeaseOperation {
    /// Read its value and revision.
    Read,
    /// Write a value if the revision is still this one; zero if the key has never been written.
    Write {
        /// The expected revision.
        revision: u64,
        /// The new value.
        lease: LeaseRecord,
    },
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the caller fills in")]
pub enum LeaseReply {
    /// The key's revision and value.
    Entry {
        /// The revision; zero if the key has never been written.
        revision: u64,
        /// The value.
        value: LeaseValue,
    },
    /// The value was written with this revision.
    Written {
        /// The new revision.
        revision: u64,
    },
    /// The value was not written: the key has another revision.
    Conflict,
    /// There is no `JetStream`.
    Unsupported,
    /// The request has failed, or was not answered in time; a write may have been applied.
    Failed,
}

/// The value of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the caller fills in")]
pub enum LeaseValue {
    /// There is none, or it was deleted.
    Absent,
    /// A lease.
    Lease(LeaseRecord),
    /// Bytes that are no lease; they are respected for a TTL, and then replaced.
    Unreadable,
}

/// Which part an origin has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a caller handles all")]
pub enum LeaseState {
    /// Nothing is known of the lease: nothing is sent.
    Waiting,
    /// It sends, with this epoch.
    Holder {
        /// The fencing number.
        epoch: u32,
    },
    /// It sends with this epoch, although it could not renew its lease in time.
    Unconfirmed {
        /// The fencing number.
        epoch: u32,
    },
    /// Another origin has the lease: nothing is sent.
    Standby {
        /// The name of its node; empty if it is not known.
        holder: String,
    },
    /// There is no `JetStream` and so no lease: it sends, as every other origin of the station
    /// does.
    Unleased {
        /// The epoch.
        epoch: u32,
    },
}

/// What the lease wants from the program around it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseOutput {
    /// Send this request.
    Request(LeaseRequest),
    /// The part of the origin has changed.
    Changed(LeaseState),
}

/// The lease of one station at one origin.
#[derive(Debug)]
pub struct Lease {
    config: LeaseConfig,
    role: Role,
    /// What was read last.
    seen: Option<SeenLease>,
    /// The highest epoch that was seen or used.
    highest_epoch: u32,
    /// The epoch of the last claim, whose answer may be lost.
    claimed: Option<u32>,
    pending: Option<PendingRequest>,
    /// When the next request is due.
    next_at: Instant,
    /// Requests in a row that were not answered.
    failures: u32,
    /// After `JetStream` was silent: until then the holder may renew what it could not.
    respected_until: Instant,
    /// Whether the outcome of a write is unknown, so that the key must be read before the next one.
    is_in_doubt: bool,
    /// Whether `JetStream` has ever answered.
    has_answered: bool,
    is_released: bool,
    requests: u64,
    /// The latest instant of a call.
    now: Instant,
    announced: Option<LeaseState>,
    outputs: VecDeque<LeaseOutput>,
}

/// What the origin may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Nothing but to observe the key and to claim it.
    Contender,
    /// It sends. Its lease is confirmed before `until`, and if the key still has this revision it
    /// may renew.
    Holder { epoch: u32, revision: u64, until: Instant },
    /// It sends without a lease.
    Unleased { epoch: u32 },
}

/// A revision, and since when it is known.
#[derive(Clone, Debug)]
struct SeenLease {
    revision: u64,
    value: LeaseValue,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    id: u64,
    sent: Instant,
    /// The epoch that is written; none for a read.
    epoch: Option<u32>,
}

impl Lease {
    /// An origin that wants the lease from `now` on.
    #[must_use]
    pub fn new(config: LeaseConfig, now: Instant) -> Self {
        let ttl = config.ttl.clamp(MIN_LEASE_TTL, MAX_LEASE_TTL);
        Self {
            highest_epoch: config.first_epoch.saturating_sub(1),
            config: LeaseConfig { ttl, ..config },
            role: Role::Contender,
            seen: None,
            claimed: None,
            pending: None,
            next_at: now,
            failures: 0,
            respected_until: now,
            is_in_doubt: true,
            has_answered: false,
            is_released: false,
            requests: 0,
            now,
            announced: None,
            outputs: VecDeque::new(),
        }
    }

    /// Processes the answer to the request `id`. Answers to earlier requests are ignored.
    pub fn handle_input(&mut self, now: Instant, id: u64, reply: LeaseReply) {
        let now = self.advance(now);
        let Some(request) = self.pending.take_if(|pending| pending.id == id) else { return };
        if reply == LeaseReply::Failed {
            self.failures += 1;
        } else if std::mem::take(&mut self.failures) >= MIN_OUTAGE {
            self.respected_until = now + self.part(2);
        }
        match reply {
            LeaseReply::Entry { revision, value } => self.handle_entry(now, revision, value),
            LeaseReply::Written { revision } => self.handle_written(request, revision),
            LeaseReply::Conflict => self.retry_at(now),
            LeaseReply::Unsupported if !self.has_answered => self.begin_unleased(now),
            LeaseReply::Unsupported | LeaseReply::Failed => self.retry_at(now + self.part(8)),
        }
        self.act(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        let limit = self.part(4);
        if self.pending.take_if(|pending| now - pending.sent >= limit).is_some() {
            self.failures += 1;
            self.retry_at(now);
        }
        self.act(now);
    }

    /// Gives the lease back, so that another origin need not wait for its end. Nothing is sent
    /// after this call.
    pub fn release(&mut self, now: Instant) {
        let now = self.advance(now);
        let role = std::mem::replace(&mut self.role, Role::Contender);
        if let (Role::Holder { epoch, revision, .. }, false) = (role, self.is_released) {
            let lease = self.record(epoch, true);
            self.send(now, LeaseOperation::Write { revision, lease });
        }
        self.is_released = true;
        self.announce(now);
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<LeaseOutput> {
        self.outputs.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let request = self.pending.map_or(self.next_at, |pending| pending.sent + self.part(4));
        match self.role {
            Role::Holder { until, .. } if self.now < until => request.min(until),
            Role::Holder { .. } | Role::Contender | Role::Unleased { .. } => request,
        }
    }

    /// The epoch with which the origin may send at `now`; none if it must not.
    #[must_use]
    pub fn epoch(&self, now: Instant) -> Option<u32> {
        match self.state(now.max(self.now)) {
            LeaseState::Holder { epoch }
            | LeaseState::Unconfirmed { epoch }
            | LeaseState::Unleased { epoch } => Some(epoch),
            LeaseState::Waiting | LeaseState::Standby { .. } => None,
        }
    }

    /// A clock that goes backwards must not make a lease last longer.
    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    fn state(&self, now: Instant) -> LeaseState {
        match self.role {
            Role::Holder { epoch, until, .. } if now < until => LeaseState::Holder { epoch },
            Role::Unleased { epoch } => LeaseState::Unleased { epoch },
            Role::Holder { epoch, .. } => LeaseState::Unconfirmed { epoch },
            Role::Contender => match self.seen.as_ref().map(|seen| &seen.value) {
                Some(LeaseValue::Lease(lease)) if !self.owns(lease) && !lease.is_released => {
                    LeaseState::Standby { holder: lease.node.clone() }
                }
                Some(LeaseValue::Unreadable) => LeaseState::Standby { holder: String::new() },
                Some(_) | None => LeaseState::Waiting,
            },
        }
    }

    fn announce(&mut self, now: Instant) {
        let state = self.state(now);
        if self.announced.as_ref() != Some(&state) {
            self.announced = Some(state.clone());
            self.outputs.push_back(LeaseOutput::Changed(state));
        }
    }

    fn handle_entry(&mut self, now: Instant, revision: u64, value: LeaseValue) {
        (self.has_answered, self.is_in_doubt) = (true, false);
        if let LeaseValue::Lease(lease) = &value {
            self.highest_epoch = self.highest_epoch.max(lease.epoch);
        }
        let until = match self.role {
            Role::Holder { epoch, until, .. } if Some(epoch) == self.claimed => until,
            // The answer to the claim was lost, so the lease counts from the next renewal on.
            _ => now,
        };
        self.role = match &value {
            LeaseValue::Lease(lease) if self.owns(lease) && !lease.is_released => {
                Role::Holder { epoch: lease.epoch, revision, until }
            }
            LeaseValue::Lease(_) | LeaseValue::Absent | LeaseValue::Unreadable => Role::Contender,
        };
        let free_at = self.free_at();
        let since = match self.seen.take() {
            Some(seen) if seen.revision == revision && seen.value == value => seen.since,
            // A bucket that was lost or emptied does not end the lease that was in it.
            Some(SeenLease { value: LeaseValue::Lease(_), .. }) if value == LeaseValue::Absent => {
                free_at.map_or(now, |at| at.max(now))
            }
            Some(_) | None => now,
        };
        self.seen = Some(SeenLease { revision, value, since });
        self.next_at = match (self.role, self.free_at()) {
            (Role::Holder { .. }, _) => now,
            (_, Some(free_at)) => free_at.clamp(now, now + self.part(4)),
            (_, None) => now + self.part(4),
        };
    }

    fn handle_written(&mut self, request: PendingRequest, revision: u64) {
        let Some(epoch) = request.epoch else { return };
        (self.has_answered, self.is_in_doubt) = (true, false);
        if self.is_released {
            return;
        }
        let until = request.sent + self.part(4) * 3;
        self.role = Role::Holder { epoch, revision, until };
        self.next_at = request.sent + self.part(4);
    }

    /// The key is read before anything else is written.
    const fn retry_at(&mut self, at: Instant) {
        self.is_in_doubt = true;
        self.next_at = at;
    }

    fn begin_unleased(&mut self, now: Instant) {
        if !matches!(self.role, Role::Unleased { .. }) {
            self.highest_epoch = self.highest_epoch.saturating_add(1);
            self.role = Role::Unleased { epoch: self.highest_epoch };
        }
        self.retry_at(now + UNLEASED_RETRY);
    }

    /// Sends the request that is due, if none is under way.
    fn act(&mut self, now: Instant) {
        if self.pending.is_none() && now >= self.next_at && !self.is_released {
            let operation = self.next_operation(now);
            self.send(now, operation);
        }
        self.announce(now);
    }

    fn next_operation(&mut self, now: Instant) -> LeaseOperation {
        if self.is_in_doubt {
            return LeaseOperation::Read;
        }
        if let Role::Holder { epoch, revision, .. } = self.role {
            return LeaseOperation::Write { revision, lease: self.record(epoch, false) };
        }
        let is_free = self.free_at().is_some_and(|at| now >= at);
        match self.seen.as_ref().filter(|_| is_free).map(|seen| seen.revision) {
            Some(revision) => {
                self.highest_epoch = self.highest_epoch.saturating_add(1);
                self.claimed = Some(self.highest_epoch);
                let lease = self.record(self.highest_epoch, false);
                LeaseOperation::Write { revision, lease }
            }
            None => LeaseOperation::Read,
        }
    }

    fn send(&mut self, now: Instant, operation: LeaseOperation) {
        self.requests += 1;
        let epoch = match &operation {
            LeaseOperation::Write { lease, .. } => Some(lease.epoch),
            LeaseOperation::Read => None,
        };
        // Until the answer, its outcome is unknown.
        self.is_in_doubt = true;
        self.next_at = now + self.part(4);
        self.pending = Some(PendingRequest { id: self.requests, sent: now, epoch });
        let request = LeaseRequest { id: self.requests, operation };
        self.outputs.push_back(LeaseOutput::Request(request));
    }

    /// When what was read last may be claimed.
    fn free_at(&self) -> Option<Instant> {
        let seen = self.seen.as_ref()?;
        Some(match &seen.value {
            LeaseValue::Absent => seen.since,
            LeaseValue::Lease(lease) if lease.is_released || self.is_earlier_run(lease) => {
                seen.since
            }
            LeaseValue::Lease(lease) => {
                let ttl = lease.ttl.clamp(MIN_LEASE_TTL, MAX_LEASE_TTL);
                (seen.since + ttl).max(self.respected_until)
            }
            LeaseValue::Unreadable => seen.since + self.config.ttl,
        })
    }

    /// Whether this origin has written it.
    fn owns(&self, lease: &LeaseRecord) -> bool {
        (lease.process, lease.run) == (self.config.process, self.config.run)
            && self.claimed == Some(lease.epoch)
    }

    /// Whether it is of the station before its configuration was changed.
    const fn is_earlier_run(&self, lease: &LeaseRecord) -> bool {
        lease.process == self.config.process && lease.run < self.config.run
    }

    fn record(&self, epoch: u32, is_released: bool) -> LeaseRecord {
        LeaseRecord {
            epoch,
            process: self.config.process,
            run: self.config.run,
            ttl: self.config.ttl,
            is_released,
            node: self.config.node.clone(),
        }
    }

    /// A part of the TTL.
    fn part(&self, of: i64) -> Span {
        self.config.ttl / of
    }
}

/// A shorter lease could not be renewed in time over a slow line.
pub const MIN_LEASE_TTL: Span = Span::from_millis(200);

/// A longer one would keep listeners waiting.
pub const MAX_LEASE_TTL: Span = Span::from_secs(60);

/// So many requests without an answer are no accident: the holder could not renew either.
const MIN_OUTAGE: u32 = 2;

/// How often an origin without `JetStream` looks whether there is one.
const UNLEASED_RETRY: Span = Span::from_secs(10);

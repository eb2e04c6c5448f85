//! The nodes of a site, as one of them sees them: a request to all, and what each has answered.
//!
//! No list of nodes is configured, and none is kept in a bucket: a node that answers exists. One
//! that does not answer any more stays in the table for [`FORGET_AFTER`], with the age of its last
//! answer, because a node that has failed is what an operator looks for.
//!
//! Requests that come while a round is open, or shortly after it, share its result. So the number
//! of pages that look at a node does not change what it asks of the others.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use aulos_core::{Instant, Span};
use aulos_proto::nats::{NodeStatus, RecordError};

/// What the table of nodes wants from the program around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeTableOutput {
    /// Ask all nodes, in this round.
    Ask {
        /// The number of the round.
        round: u32,
    },
    /// The round is over: requests that wait are answered from the table.
    Complete,
}

/// A node that has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownNode {
    /// Its name.
    pub name: String,
    /// A random number of its process.
    pub process: u64,
    /// Its last document, unchecked JSON.
    pub document: Vec<u8>,
    /// When that was received.
    pub answered_at: Instant,
    /// Whether it has answered in the last round that is over.
    pub is_reachable: bool,
    /// Whether another process with the same name answered in the last round.
    pub is_duplicate: bool,
    /// The last round that it has answered.
    round: u32,
}

/// Answers by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTableCounts {
    /// Those that were accepted.
    pub accepted: u64,
    /// Those that are no answer, or of another version.
    pub malformed: u64,
    /// Those that are too large.
    pub too_large: u64,
    /// Those with a wrong checksum.
    pub checksum: u64,
    /// Those of an earlier round, or of none.
    pub late: u64,
    /// Second answers of a node in the same round, also of another process with its name.
    pub repeated: u64,
    /// Those of nodes for which there is no room.
    pub overflow: u64,
}

impl NodeTableCounts {
    /// The counts with the names of their causes.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("accepted", self.accepted),
            ("malformed", self.malformed),
            ("too_large", self.too_large),
            ("checksum", self.checksum),
            ("late", self.late),
            ("repeated", self.repeated),
            ("overflow", self.overflow),
        ]
    }
}

/// The nodes of a site.
#[derive(Debug)]
pub struct NodeTable {
    nodes: BTreeMap<String, KnownNode>,
    state: RoundState,
    /// The number of the last round.
    round: u32,
    /// The bytes of all documents.
    bytes: usize,
    counts: NodeTableCounts,
    now: Instant,
    outputs: VecDeque<NodeTableOutput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundState {
    /// None is open; the table is as it was then, if there has been one.
    Idle { completed: Option<Instant> },
    /// Answers are accepted until then.
    Open { until: Instant },
}

impl NodeTable {
    /// No node is known. `first_round` is any number; that of an earlier run of the process should
    /// not come again soon.
    #[must_use]
    pub const fn new(first_round: u32, now: Instant) -> Self {
        Self {
            nodes: BTreeMap::new(),
            state: RoundState::Idle { completed: None },
            round: first_round,
            bytes: 0,
            counts: NodeTableCounts {
                accepted: 0,
                malformed: 0,
                too_large: 0,
                checksum: 0,
                late: 0,
                repeated: 0,
                overflow: 0,
            },
            now,
            outputs: VecDeque::new(),
        }
    }

    /// A status of all nodes is requested: a round begins, unless one is open or was just
    /// completed.
    pub fn request(&mut self, now: Instant) {
        let now = self.advance(now);
        match self.state {
            RoundState::Open { .. } => {}
            RoundState::Idle { completed: Some(at) } if now - at < REUSE => {
                self.outputs.push_back(NodeTableOutput::Complete);
            }
            RoundState::Idle { .. } => {
                self.round = self.round.wrapping_add(1);
                self.state = RoundState::Open { until: now + ROUND };
                self.outputs.push_back(NodeTableOutput::Ask { round: self.round });
            }
        }
    }

    /// Processes an answer.
    pub fn handle_input(&mut self, now: Instant, bytes: &[u8]) {
        let now = self.advance(now);
        let status = match NodeStatus::parse(bytes) {
            Ok(status) => status,
            Err(RecordError::Checksum) => return self.counts.checksum += 1,
            Err(RecordError::TooLarge) => return self.counts.too_large += 1,
            Err(_) => return self.counts.malformed += 1,
        };
        if !matches!(self.state, RoundState::Open { .. }) || status.round != self.round {
            self.counts.late += 1;
            return;
        }
        let before = self.nodes.get_mut(status.node);
        if let Some(node) = &before
            && node.round == status.round
        {
            self.counts.repeated += 1;
            if let Some(node) = before {
                node.is_duplicate |= node.process != status.process;
            }
            return;
        }
        let freed = before.as_ref().map_or(0, |node| node.document.len());
        let is_new = before.is_none();
        let bytes = self.bytes - freed + status.document.len();
        if bytes > MAX_DOCUMENT_BYTES || is_new && self.nodes.len() >= MAX_NODES {
            self.counts.overflow += 1;
            return;
        }
        self.bytes = bytes;
        self.counts.accepted += 1;
        let node = KnownNode {
            name: status.node.to_owned(),
            process: status.process,
            document: status.document.to_vec(),
            answered_at: now,
            is_reachable: true,
            is_duplicate: false,
            round: status.round,
        };
        self.nodes.insert(node.name.clone(), node);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        if let RoundState::Open { until } = self.state
            && now >= until
        {
            self.state = RoundState::Idle { completed: Some(now) };
            let round = self.round;
            self.nodes.retain(|_, node| {
                node.is_reachable = node.round == round;
                now - node.answered_at < FORGET_AFTER
            });
            self.bytes = self.nodes.values().map(|node| node.document.len()).sum();
            self.outputs.push_back(NodeTableOutput::Complete);
        }
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<NodeTableOutput> {
        self.outputs.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called; none while no round is open.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            RoundState::Open { until } => Some(until),
            RoundState::Idle { .. } => None,
        }
    }

    /// The nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &KnownNode> {
        self.nodes.values()
    }

    /// Answers by what became of them, since the beginning.
    #[must_use]
    pub const fn counts(&self) -> NodeTableCounts {
        self.counts
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }
}

/// How long a round waits for answers: a few times what a message takes around the world.
pub const ROUND: Span = Span::from_millis(500);

/// For how long the result of a round answers more requests.
pub const REUSE: Span = Span::from_secs(1);

/// How long a node that does not answer is remembered.
pub const FORGET_AFTER: Span = Span::from_secs(3_600);

/// Limit of nodes: five times the largest simulated cluster.
pub const MAX_NODES: usize = 256;

/// Limit of all documents together, in bytes; a node with a hundred clients has some 20 kB.
pub const MAX_DOCUMENT_BYTES: usize = 8 << 20;

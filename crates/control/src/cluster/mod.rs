//! The interface between the control plane and the other servers of a cluster.
//!
//! ```text
//!  control --- ClusterLink::request_status ----> NATS
//!          <-- mpsc::Receiver<StatusRequest> -- (requests of other nodes)
//! ```
//!
//! The link carries bytes and decides nothing about stations and clients; what a document
//! means is decided in the control plane. Neither side waits for the other: an answer comes through
//! a channel, and a request that finds the queue full is dropped and counted.

pub(crate) mod calls;
pub(crate) mod node_document;
pub(crate) mod settings_sync;

use std::fmt;
use std::sync::Arc;

use aulos_core::Span;
use aulos_proto::nats::{SettingsKey, SettingsRecord};
use tokio::sync::{mpsc, oneshot};

/// The connection to the other nodes of a site.
pub trait ClusterLink: Send + Sync {
    /// This node, and whether it is connected.
    fn state(&self) -> ClusterState;

    /// Requests the status of all nodes; the answer comes after half a second at most, and at once
    /// if there is no connection. `None` if the link is busy or has ended.
    fn request_status(&self) -> Option<oneshot::Receiver<Vec<NodeReport>>>;

    /// Whether the nodes share the settings of clients and groups.
    fn shares_settings(&self) -> bool;

    /// Shares a change, or without `before` offers what this node has had for some time; false if
    /// the link is busy: try again.
    fn change_settings(&self, change: SettingsChange) -> bool;

    /// The next record of another node, which this one is to have.
    fn take_settings(&self) -> Option<(SettingsKey, SettingsRecord)>;
}

/// A change of a setting that the nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsChange {
    /// What has changed.
    pub key: SettingsKey,
    /// What it was.
    pub before: Option<SettingsRecord>,
    /// What it is.
    pub after: SettingsRecord,
}

/// This node in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// The name of the site.
    pub site: String,
    /// The name of this node.
    pub node: String,
    /// A random number of this process.
    pub process: u64,
    /// Whether there is a connection to NATS.
    pub is_connected: bool,
}

/// What is known of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// A random number of its process.
    pub process: u64,
    /// Since its last answer.
    pub age: Span,
    /// Whether it has answered this time.
    pub is_reachable: bool,
    /// Whether several processes have answered with this name.
    pub is_duplicate: bool,
    /// Its status: JSON, unchecked.
    pub document: Vec<u8>,
}

/// A request of another node for the document with the status of this one.
pub type StatusRequest = oneshot::Sender<String>;

/// Both ends that the control plane has of a cluster.
pub struct ClusterHandle {
    /// Requests to other nodes.
    pub link: Arc<dyn ClusterLink>,
    /// Requests of other nodes, a queue of [`CLUSTER_QUEUE`].
    pub requests: mpsc::Receiver<StatusRequest>,
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterHandle").finish_non_exhaustive()
    }
}

/// Capacity of the queue of requests.
pub const CLUSTER_QUEUE: usize = 64;

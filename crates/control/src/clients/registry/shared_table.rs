//! The records that other nodes of a cluster have sent, whether their clients have been here or not.

use std::collections::HashMap;

use aulos_proto::nats::{GroupSettings, SharedClientSettings};

/// What other nodes know of clients and groups, by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTable {
    pub(super) clients: HashMap<String, SharedClientSettings>,
    pub(super) groups: HashMap<String, GroupSettings>,
}

//! What others read of the server: status, metrics, Icecast's statistics, meters.

pub(crate) mod icecast;
pub(crate) mod meter_feed;
pub(crate) mod run_statistics;
pub(crate) mod snapshot;
pub(crate) mod status_json;

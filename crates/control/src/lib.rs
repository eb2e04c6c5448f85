//! The control plane: clients, groups and stations, and everything that changes them.
//!
//! [`Control`] joins the registry, the methods of the control API, users and hooks. It makes no
//! decision about audio and opens no port: the running audio is behind the traits of [`backend`],
//! and the `aulos-server` crate brings the connections.

#![forbid(unsafe_code)]

pub mod access;
pub mod backend;
pub mod cluster;
mod control;
pub mod hooks;
pub mod markup;
mod refusals;
pub mod registry;

pub use control::{
    Answer, AnswerPermit, CALL_SECONDS, Caller, ClientSnapshot, Clock, ConfigLoader, Control,
    Counters, EVENT_KINDS, EVENT_LIMITS, EVENT_LIST_MEMBERS, EVENT_SEVERITIES, EventKind,
    EventQuery, EventSeverity, HISTORY_QUEUE, Histogram, HistoryError, HistoryRequest,
    HistorySecond, HostInfo, Inbox, MAX_ADDED, MeterFrames, MeterSnapshot, MeterSubscription,
    NewEvent, Notification, PeerId, ReloadReport, STATUS_MEMBERS, ServerSnapshot, StationActivity,
    StationSnapshot, Subscription, TICK, closed_segment_json, count, plugin, registry_for,
    set_icecast_sources, status_notification, titles,
};
pub use refusals::RefusalFilter;

//! The control plane: clients, groups and stations, and everything that changes them.
//!
//! [`Control`] joins the registry, the methods of the control API, users and hooks. It makes no
//! decision about audio and opens no port: the running audio is behind the traits of [`backend`],
//! and the `aulos-server` crate brings the connections.

#![forbid(unsafe_code)]

pub mod access;
mod announcements;
pub mod backend;
mod clients;
pub mod cluster;
mod control;
mod effects;
mod events;
mod history;
pub mod hooks;
mod listeners;
pub mod logs;
pub mod markup;
mod message_text;
mod methods;
pub mod mqtt;
pub mod names;
mod outside;
mod peers;
mod recordings;
mod refusals;
mod relays;
pub mod sendspin;
mod settings;
mod stations;
mod views;

pub use announcements::start::{SOUND_START_STEP, SOUND_START_TIME, start_sounds};
pub use announcements::talk;
pub use clients::registry;
pub use clients::registry::store::MAX_ADDED;
pub use cluster::calls::serve as serve_cluster;
pub use control::{
    Answer, Clock, ConfigLoader, Control, ControlOptions, ControlParts, Counters, HostInfo, count,
    is_call_for_everyone, registry_for,
};
pub use events::history::{
    EVENT_KINDS, EVENT_SEVERITIES, EventKind, EventQuery, EventSeverity, NewEvent,
};
pub use events::{EVENT_LIMITS, EventLog};
pub use history::sampler::{HISTORY_QUEUE, HistoryError, HistoryRequest, HistorySecond};
pub use listeners::Listeners;
pub use methods::reference::openrpc;
pub use methods::roles::Caller;
pub use methods::{EVENT_LIST_MEMBERS, STATUS_MEMBERS};
pub use peers::long_calls::AnswerPermit;
pub use peers::notification::Notification;
pub use peers::subscription::{MeterSubscription, Subscription};
pub use peers::{Inbox, PeerId};
pub use recordings::closed_segment_json;
pub use refusals::RefusalFilter;
pub use relays::RelaySupervisor;
pub use settings::reload::ReloadReport;
pub use stations::activity::{StationActivity, TICK};
pub use stations::mount_table::MountTable;
pub use stations::titles::{ShownTitle, TitleHistory};
pub use stations::{mounts, plugin, titles};
pub use views::Views;
pub use views::icecast::{IcecastView, icecast_response, set_icecast_sources};
pub use views::meter_feed::{MeterFrames, MeterSnapshot, status_notification};
pub use views::run_statistics::{CALL_SECONDS, Histogram};
pub use views::snapshot::{ClientSnapshot, ServerSnapshot, StationSnapshot};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

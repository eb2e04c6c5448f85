//! A station, with the state that Snapcast keeps per stream.

use std::sync::Arc;

use aulos_config::{ProcessingSettings, StationSettings};
use aulos_proto::uri::Uri;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::backend::StationReport;
use crate::hooks::StationWatch;
use crate::stations::activity::StationActivity;
use crate::stations::event_log::LoggedFailures;
use crate::stations::schedule::ScheduleState;
use crate::stations::titles::shown::StationTitles;

/// A station, with the state that Snapcast keeps per stream.
#[derive(Debug)]
pub(crate) struct StationSlot {
    pub(crate) station: Arc<StationSettings>,
    /// The URI with which a call added it; none for a station of the configuration.
    pub(crate) added: Option<Arc<Uri>>,
    /// The configuration's sound settings, if a call has changed them.
    pub(crate) file_sound: Option<ProcessingSettings>,
    /// Properties reported by the control script.
    pub(crate) properties: Arc<Map<String, Value>>,
    /// The titles that its listeners are and were shown.
    pub(crate) titles: StationTitles,
    /// The control script, while it runs.
    pub(crate) plugin: Option<PluginHandle>,
    /// The state of this station's hook events.
    pub(crate) watch: StationWatch,
    /// Its status at the last notification, without levels and times.
    pub(crate) shown: StationReport,
    /// Failures of its sources in the log.
    pub(crate) logged_failures: LoggedFailures,
    /// Which entry of its schedule is active.
    pub(crate) schedule: ScheduleState,
    /// What its metrics and health need over time.
    pub(crate) activity: StationActivity,
}

impl StationSlot {
    pub(crate) fn new(station: StationSettings, added: Option<Uri>) -> Self {
        Self {
            added: added.map(Arc::new),
            file_sound: None,
            properties: own_properties(&station).into(),
            titles: StationTitles::default(),
            plugin: None,
            watch: StationWatch::default(),
            shown: StationReport::default(),
            logged_failures: LoggedFailures::default(),
            schedule: ScheduleState::default(),
            activity: StationActivity::default(),
            station: station.into(),
        }
    }
}

/// The properties of a stream without a control script: a playlist can go to its next file.
pub(crate) fn own_properties(station: &StationSettings) -> Map<String, Value> {
    let can_skip = station.sources.iter().any(|source| source.config.can_skip());
    let own = [("canControl", can_skip), ("canGoNext", can_skip)];
    let never = ["canGoPrevious", "canPause", "canPlay", "canSeek"].map(|key| (key, false));
    let all = own.into_iter().chain(never);
    all.map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

/// Handle to a running script.
#[derive(Clone, Debug)]
pub(crate) struct PluginHandle(pub(crate) mpsc::Sender<String>);

impl PluginHandle {
    /// Sends a call; false when the script does not read.
    pub(crate) fn call(&self, method: &str, params: &Value) -> bool {
        let call = json!({ "id": 1, "jsonrpc": "2.0", "method": method, "params": params });
        self.0.try_send(call.to_string()).is_ok()
    }
}

/// What happens to the control script of a stream.
#[derive(Debug)]
pub(crate) enum ScriptEvent {
    /// It is ready for calls.
    Ready(PluginHandle),
    /// It has reported properties.
    Properties(Map<String, Value>),
    /// It has ended.
    Ended,
}

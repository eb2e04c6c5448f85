//! A station, with the state that Snapcast keeps per stream.

use aulos_config::{ProcessingSettings, Station};
use aulos_proto::uri::Uri;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::event_log::LoggedFailures;
use super::station_activity::StationActivity;
use crate::hooks::StationWatch;

/// A station, with the state that Snapcast keeps per stream.
#[derive(Debug)]
pub(super) struct StationSlot {
    pub(super) station: Station,
    /// The URI with which a call added it; none for a station of the configuration.
    pub(super) added: Option<Uri>,
    /// The configuration's sound settings, if a call has changed them.
    pub(super) file_sound: Option<ProcessingSettings>,
    /// Properties reported by the control script.
    pub(super) properties: Map<String, Value>,
    /// The control script, while it runs.
    pub(super) plugin: Option<PluginHandle>,
    /// The state of this station's hook events.
    pub(super) watch: StationWatch,
    /// Failures of its sources in the log.
    pub(super) logged_failures: LoggedFailures,
    /// What its metrics and health need over time.
    pub(super) activity: StationActivity,
}

impl StationSlot {
    pub(super) fn new(station: Station, added: Option<Uri>) -> Self {
        let (properties, plugin, watch) =
            (uncontrollable_properties(), None, StationWatch::default());
        let logged_failures = LoggedFailures::default();
        let activity = StationActivity::default();
        Self {
            station,
            added,
            file_sound: None,
            properties,
            plugin,
            watch,
            logged_failures,
            activity,
        }
    }
}

/// The properties of a stream without a control script.
pub(super) fn uncontrollable_properties() -> Map<String, Value> {
    let keys = ["canControl", "canGoNext", "canGoPrevious", "canPause", "canPlay", "canSeek"];
    keys.into_iter().map(|key| (key.to_owned(), json!(false))).collect()
}

/// Handle to a running script.
#[derive(Clone, Debug)]
pub(super) struct PluginHandle(pub(super) mpsc::Sender<String>);

impl PluginHandle {
    /// Sends a call; false when the script does not read.
    pub(super) fn call(&self, method: &str, params: &Value) -> bool {
        let call = json!({ "id": 1, "jsonrpc": "2.0", "method": method, "params": params });
        self.0.try_send(call.to_string()).is_ok()
    }
}

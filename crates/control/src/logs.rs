//! Legal logs of stations by call: find a range of time, and hold one.
//!
//! A log is on a disk that may be slow and has thousands of files, so a call reads it on a thread
//! of its own, of which there are few, and its answer comes later.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aulos_engine::recorder::UnixTime;
use aulos_files::logger::{
    LogReport, LoggerCatalog, LoggerError, add_hold, is_exportable, list_holds, parse_local_time,
    release_hold,
};
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::control::context::CallContext;
use crate::control::state::Control;
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::methods::params::Params;
use crate::methods::rpc::{CallOutput, MethodResult, internal_error};

/// Where the log of a station is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationLog {
    /// The recorder, which is named in the files.
    pub recorder: String,
    /// Its folder.
    pub folder: PathBuf,
}

impl StationLog {
    /// Opens the catalog of the log. Blocks.
    ///
    /// # Errors
    /// [`LoggerError`].
    pub fn open(&self) -> Result<LoggerCatalog, LoggerError> {
        LoggerCatalog::open(&self.folder, Some(&self.recorder))
    }
}

/// The log of a station; `None` if the station is unknown or has none.
#[must_use]
pub fn station_log(control: &Control, station: &str) -> Option<StationLog> {
    let station = control.stations().into_iter().find(|one| one.name == station)?;
    log_of(&station.records)
}

fn log_of(records: &[aulos_config::RecorderSettings]) -> Option<StationLog> {
    let recording = &records.iter().find(|record| record.is_logger)?.recording;
    Some(StationLog { recorder: recording.name.clone(), folder: recording.folder.clone() })
}

/// The threads that read logs for calls.
pub(crate) fn log_reads() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_READS))
}

/// `Aulos.GetLog`.
pub(crate) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let log = log_param(context, params)?;
    let range = range_params(params)?;
    let zone = params.optional_text("zone")?.map(str::to_owned);
    let read = move || {
        let mut report = LogReport::new(&log.open().map_err(text)?, range);
        report.truncate(MAX_ENTRIES);
        report.json(zone.as_deref()).map_err(text)
    };
    Ok(on_disk(context, read))
}

/// `Aulos.GetLogHolds`.
pub(crate) fn get_holds(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let log = log_param(context, params)?;
    let zone = params.optional_text("zone")?.map(str::to_owned);
    let read = move || {
        let holds = list_holds(&log.folder, &log.recorder).map_err(text)?;
        let holds = holds.iter().map(|hold| hold.json(zone.as_deref()));
        let holds = holds.collect::<Result<Vec<_>, _>>().map_err(text)?;
        Ok(json!({ "holds": holds }))
    };
    Ok(on_disk(context, read))
}

/// `Aulos.AddLogHold`.
pub(crate) fn hold(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let log = log_param(context, params)?;
    let range = range_params(params)?;
    let why = params.text("why")?.to_owned();
    let zone = params.optional_text("zone")?.map(str::to_owned);
    let until = params.optional_text("until")?;
    let until = until.map(|until| time_param(params, "until", until)).transpose()?;
    let note = note(context, params, &log)?;
    let write = move || {
        let hold = add_hold(&log.folder, &log.recorder, range, &why, until).map_err(text)?;
        note(&format!("hold {} added", hold.id));
        hold.json(zone.as_deref()).map_err(text)
    };
    Ok(on_disk(context, write))
}

/// `Aulos.ReleaseLogHold`.
pub(crate) fn release(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let log = log_param(context, params)?;
    let id = params.count("hold")?;
    let note = note(context, params, &log)?;
    let write = move || {
        release_hold(&log.folder, &log.recorder, id).map_err(text)?;
        note(&format!("hold {id} released"));
        Ok(json!({ "hold": id }))
    };
    Ok(on_disk(context, write))
}

/// A function that notes what the caller has changed.
fn note(
    context: &CallContext<'_>,
    params: &Params<'_>,
    log: &StationLog,
) -> Result<impl FnOnce(&str) + Send + 'static, RpcError> {
    let events = Arc::clone(&context.control.events);
    let (station, who) = (params.text("station")?.to_owned(), context.caller.name());
    let recorder = log.recorder.clone();
    Ok(move |what: &str| {
        let text = format!("{what} by {who}");
        tracing::info!(target: "recorder", station, recorder, "log: {text}");
        let (station, subject) = (Some(station), recorder);
        let (kind, severity) = (EventKind::Recorder, EventSeverity::Info);
        events.add(NewEvent { kind, severity, station, subject, text });
    })
}

fn log_param(context: &CallContext<'_>, params: &Params<'_>) -> Result<StationLog, RpcError> {
    let (_, slot) = context.station_param(params)?;
    log_of(&slot.station.records)
        .ok_or_else(|| internal_error("the station has no log; `logger` gives it one"))
}

/// The parameters `from` and `to`.
fn range_params(params: &Params<'_>) -> Result<(UnixTime, UnixTime), RpcError> {
    let time = |name| time_param(params, name, params.text(name)?);
    let (from, to) = (time("from")?, time("to")?);
    if !is_exportable((from, to)) {
        return Err(params.invalid("to", &"later than `from` by at most 31 days"));
    }
    Ok((from, to))
}

fn time_param(params: &Params<'_>, name: &str, value: &str) -> Result<UnixTime, RpcError> {
    let zone = params.optional_text("zone")?;
    parse_local_time(value, zone)
        .map_err(|error| RpcError::invalid_params(&format!("`{name}`: {error}")))
}

/// Runs work that waits for the disk on a thread, as the later answer of a call.
fn on_disk(
    context: &CallContext<'_>,
    work: impl FnOnce() -> Result<Value, String> + Send + 'static,
) -> CallOutput {
    let reads = Arc::clone(&context.control.log_reads);
    CallOutput::later(async move {
        let slow = || internal_error("the disk of the log does not respond in time");
        let permit = timeout(QUEUE_TIMEOUT, reads.acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(slow()) };
        let task = tokio::task::spawn_blocking(move || {
            let result = work();
            // A thread that hangs stays in use.
            drop(permit);
            result
        });
        match timeout(READ_TIMEOUT, task).await {
            Ok(done) => {
                let done = done.map_err(|error| io::Error::other(error).to_string());
                done.and_then(|result| result).map_err(internal_error)
            }
            Err(_) => Err(slow()),
        }
    })
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Threads that read logs for calls.
const MAX_READS: usize = 2;

/// How long a call waits for one.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call waits for the disk.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Files and gaps in an answer: 31 days have 744 files.
const MAX_ENTRIES: usize = 1_000;

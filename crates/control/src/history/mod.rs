//! The way to the history: a thread of the server keeps it, since a disk may be slow. Requests go
//! there by a bounded queue, and what does not fit is counted.

pub(crate) mod sampler;

use std::time::Duration;

use aulos_config::StationSettings;
use aulos_files::history::{HistoryRange, Series};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::backend::StationReport;
use crate::control::counters::count;
use crate::outside::Outside;
use sampler::{HistoryError, HistoryRequest, HistorySampler, HistorySecond};

/// Time limit of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The samples of the present second, and the way to the history; without one nothing is kept.
#[derive(Debug, Default)]
pub(crate) struct History {
    sampler: HistorySampler,
    requests: Option<mpsc::Sender<HistoryRequest>>,
}

impl History {
    pub(crate) fn new(requests: Option<mpsc::Sender<HistoryRequest>>) -> Self {
        Self { sampler: HistorySampler::default(), requests }
    }

    /// Takes a sample of a station.
    pub(crate) fn sample(
        &mut self,
        number: usize,
        station: &StationSettings,
        status: &StationReport,
    ) {
        self.sampler.sample(number, station, status);
    }

    /// Sends the second that is over to the history; `name` gives the name of a station.
    pub(crate) fn keep_second(
        &mut self,
        outside: Outside<'_>,
        name: impl Fn(usize) -> Option<String>,
    ) {
        let Some(requests) = &self.requests else { return };
        let now = u32::try_from(outside.clock.wall_time().sec).unwrap_or(u32::MAX);
        let Some((time, records)) = self.sampler.turn(now) else { return };
        let records = records.into_iter().filter_map(|(number, one)| Some((name(number)?, one)));
        let second = HistorySecond { time, records: records.collect() };
        if requests.try_send(HistoryRequest::Second(second)).is_err() {
            count(&outside.counters.history_seconds_dropped);
        }
    }

    /// The queue of requests.
    pub(crate) fn requests(&self) -> Option<mpsc::Sender<HistoryRequest>> {
        self.requests.clone()
    }
}

/// What was measured of a station in a span of time.
///
/// # Errors
/// [`HistoryError`].
pub(crate) async fn query(
    requests: Option<mpsc::Sender<HistoryRequest>>,
    station: &str,
    range: HistoryRange,
) -> Result<Series, HistoryError> {
    let requests = requests.ok_or(HistoryError::Disabled)?;
    let (reply, answer) = oneshot::channel();
    let request = HistoryRequest::Query { station: station.to_owned(), range, reply };
    requests.try_send(request).map_err(|_| HistoryError::Busy)?;
    match timeout(QUERY_TIMEOUT, answer).await {
        Ok(Ok(series)) => series.map_err(HistoryError::Io),
        _ => Err(HistoryError::Busy),
    }
}

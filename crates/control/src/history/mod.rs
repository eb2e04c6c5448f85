//! The way to the history: a thread of the server keeps it, since a disk may be slow. Requests go
//! there by a bounded queue, and what does not fit is counted.

pub(crate) mod sampler;

use std::time::Duration;

use aulos_config::Station;
use aulos_files::history::{HistoryRange, Series};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::clients::registry::WallTime;
use crate::control::counters::count;
use crate::control::state::{Control, ControlState};
use crate::history::sampler::{HistoryError, HistoryRequest, HistorySecond};

/// Time limit of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

impl Control {
    /// Sets where the history is kept. Without it there is none.
    #[must_use]
    pub fn with_history(mut self, requests: mpsc::Sender<HistoryRequest>) -> Self {
        self.history = Some(requests);
        self
    }

    /// Sends the second that is over to the history.
    pub(crate) fn keep_second(&self, inner: &mut ControlState, now: WallTime) {
        let Some(requests) = &self.history else { return };
        let now = u32::try_from(now.sec).unwrap_or(u32::MAX);
        let Some((time, records)) = inner.history.turn(now) else { return };
        let name = |number: usize| Some(inner.slots.get(number)?.as_ref()?.station.name.clone());
        let records = records.into_iter().filter_map(|(number, one)| Some((name(number)?, one)));
        let second = HistorySecond { time, records: records.collect() };
        if requests.try_send(HistoryRequest::Second(second)).is_err() {
            count(&self.counters.history_seconds_dropped);
        }
    }

    /// What was measured of a station in a span of time.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub async fn query_history(
        &self,
        station: &str,
        range: HistoryRange,
    ) -> Result<(Station, Series), HistoryError> {
        let found = self.lock().slot(station).map(|(_, slot)| slot.station.clone());
        let found = found.ok_or(HistoryError::UnknownStation)?;
        let requests = self.history.as_ref().ok_or(HistoryError::Disabled)?;
        let (reply, answer) = oneshot::channel();
        let request = HistoryRequest::Query { station: station.to_owned(), range, reply };
        requests.try_send(request).map_err(|_| HistoryError::Busy)?;
        match timeout(QUERY_TIMEOUT, answer).await {
            Ok(Ok(series)) => Ok((found, series.map_err(HistoryError::Io)?)),
            _ => Err(HistoryError::Busy),
        }
    }
}

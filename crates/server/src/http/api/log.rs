//! `/log/STATION.FORMAT?from=&to=`: a range of the log of a station, as sound, text or JSON.
//!
//! A range is decoded and encoded on a thread of its own with a low priority, of which there are
//! few: the codec pool has the sound of stations to encode. The thread waits for its client, and
//! gives up one that does not read. A file of the whole range was rejected: it would need as much
//! space as the log, and the client would wait for its end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aulos_control::logs::{StationLog, station_log};
use aulos_control::{Caller, count};
use aulos_engine::recorder::UnixTime;
use aulos_files::logger::{
    ExportError, ExportOutput, LogReport, LoggerCatalog, LoggerError, exact_bits, export_log,
    is_exportable, note_export, parse_local_time,
};
use aulos_files::record::format::{FileFormat, FileFormatInfo, FormatSettings};
use aulos_proto::Patch;
use aulos_rt::clock::ThreadPriority;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{ALLOW, CONTENT_DISPOSITION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::resource::{Parameter, ParameterKind, Query};
use crate::http::app_state::AppState;
use crate::http::pages::PageError;

/// The route.
pub(crate) const LOG_ROUTE: &str = "/log/{*name}";

const RANGE: &[Parameter] = &[
    Parameter {
        name: "from",
        kind: ParameterKind::Text,
        about: "first time, as in 2026-11-22T10:00:00Z, or a local time",
    },
    Parameter { name: "to", kind: ParameterKind::Text, about: "time before which to end" },
    Parameter {
        name: "zone",
        kind: ParameterKind::Text,
        about: "time zone of local times; the server's without it",
    },
    Parameter {
        name: "bits",
        kind: ParameterKind::Integer(16, 32),
        about: "bits per sample of wav and flac; those of the recording without it",
    },
    Parameter { name: "kbps", kind: ParameterKind::Integer(6, 510), about: "bit rate of opus" },
];

/// The exports that are running.
#[derive(Clone, Debug)]
pub(crate) struct LogExports(Arc<Semaphore>);

impl Default for LogExports {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_EXPORTS)))
    }
}

/// What a request asks for.
struct LogRequest {
    log: StationLog,
    range: (UnixTime, UnixTime),
    zone: Option<String>,
    bits: Option<u32>,
    kbps: Option<u32>,
}

/// A status with its text.
type Refusal = (StatusCode, String);

/// `GET /log/STATION.FORMAT`.
pub(crate) async fn serve(
    State(app): State<AppState>,
    Extension(exports): Extension<LogExports>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    method: Method,
    uri: Uri,
) -> Response {
    if method != Method::GET {
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response();
    }
    let query = match Query::parse(RANGE, &uri) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    let not_found = |text: &str| (StatusCode::NOT_FOUND, text.to_owned()).into_response();
    let Some((station, extension)) = name.rsplit_once('.') else {
        return not_found("the path is /log/STATION.flac, .wav, .opus, .txt or .json\n");
    };
    let Some(log) = station_log(&app.control, station) else {
        return not_found("no station of that name has a log\n");
    };
    let request = match LogRequest::new(log, &query) {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    match extension {
        "txt" => report(&app, request, "text/plain; charset=utf-8").await,
        "json" => report(&app, request, "application/json").await,
        "flac" | "wav" | "opus" => {
            let Some(row) = FileFormatInfo::of_name(extension) else { return not_found("\n") };
            let file = file_name(station, &request, extension);
            let headers = [
                (CONTENT_TYPE, row.media_type.to_owned()),
                (CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
            ];
            match exports.start(&app, request, row, caller.name()).await {
                Ok(body) => (headers, Body::from_stream(body)).into_response(),
                Err(refusal) => refusal,
            }
        }
        _ => not_found("the formats are flac, wav, opus, txt and json\n"),
    }
}

/// The files and gaps of a range.
async fn report(app: &AppState, request: LogRequest, media: &'static str) -> Response {
    let read = move || {
        Ok(request.open().and_then(|catalog| {
            let mut report = LogReport::new(&catalog, request.range);
            report.truncate(MAX_ENTRIES);
            let zone = request.zone.as_deref();
            let text = if media == "application/json" {
                report.json(zone).map(|json| json.to_string())
            } else {
                report.text(zone)
            };
            text.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))
        }))
    };
    match app.recordings.run(read).await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, media)], text).into_response(),
        Ok(Err(refusal)) => refusal.into_response(),
        Err(error @ (PageError::Busy | PageError::Slow | PageError::Io(_))) => {
            app.recordings.error_response(&error)
        }
    }
}

impl LogRequest {
    fn new(log: StationLog, query: &Query) -> Result<Self, Refusal> {
        let zone = query.text("zone").map(str::to_owned);
        let time = |name| {
            let wrong = |why: &dyn ToString| {
                (StatusCode::BAD_REQUEST, format!("`{name}`: {}\n", why.to_string()))
            };
            let text = query.text(name).ok_or_else(|| wrong(&"missing"))?;
            parse_local_time(&with_offset(text), zone.as_deref()).map_err(|why| wrong(&why))
        };
        let range = (time("from")?, time("to")?);
        if !is_exportable(range) {
            return Err(refusal(&ExportError::Range));
        }
        let number = |name| query.integer(name).and_then(|number| u32::try_from(number).ok());
        Ok(Self { log, range, zone, bits: number("bits"), kbps: number("kbps") })
    }

    fn open(&self) -> Result<LoggerCatalog, Refusal> {
        self.log.open().map_err(|error| {
            let status = match error {
                LoggerError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::NOT_FOUND,
            };
            (status, format!("{error}\n"))
        })
    }

    fn format(&self, catalog: &LoggerCatalog, row: &FileFormatInfo) -> Result<FileFormat, Refusal> {
        let usual_bits = exact_bits(catalog, self.range).map_err(|error| refusal(&error))?;
        let settings = FormatSettings { bits: self.bits, usual_bits, kbps: self.kbps, codecs: &[] };
        row.with(settings).map_err(|hint| {
            (StatusCode::BAD_REQUEST, format!("{}: the query must have {hint}\n", row.name))
        })
    }
}

/// A query has a space for the sign of an offset that is written as it is.
fn with_offset(text: &str) -> String {
    match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(':') => format!("{time}+{offset}"),
        _ => text.to_owned(),
    }
}

fn refusal(error: &ExportError) -> Refusal {
    let status = match error {
        ExportError::Range | ExportError::Format(_) => StatusCode::BAD_REQUEST,
        ExportError::NothingFound => StatusCode::NOT_FOUND,
        ExportError::ShapeChanged(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n"))
}

/// A name for the file that a browser saves.
fn file_name(station: &str, request: &LogRequest, extension: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let station: String = station.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let from = aulos_files::logger::local_text(request.range.0, Some("UTC")).unwrap_or_default();
    let from: String = from.split('.').next().unwrap_or_default().replace(':', "");
    format!("{station}-{from}Z.{extension}")
}

impl LogExports {
    /// Starts an export; it is noted before its first byte is sent.
    #[allow(clippy::result_large_err, reason = "it is made once a request")]
    async fn start(
        &self,
        app: &AppState,
        request: LogRequest,
        row: &'static FileFormatInfo,
        who: String,
    ) -> Result<ExportBody, Response> {
        let unavailable = |text: &'static str| {
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], text).into_response()
        };
        let counters = &app.control.counters;
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            count(&counters.log_exports_refused);
            return Err(unavailable("too many exports are running; try again later\n"));
        };
        let (start, started) = oneshot::channel();
        let (bytes, body) = mpsc::channel(QUEUED_PIECES);
        let output = StreamOutput { start: Some(start), bytes, runtime: Handle::current() };
        let thread = std::thread::Builder::new().name("aulos-log".to_owned());
        let spawned = thread.spawn(move || run(&request, row, &who, output, permit));
        if spawned.is_err() {
            return Err(unavailable("no thread is free; try again later\n"));
        }
        match timeout(START_TIMEOUT, started).await {
            Ok(Ok(Ok(()))) => {
                count(&counters.log_exports);
                Ok(ExportBody { pieces: body, is_over: false })
            }
            Ok(Ok(Err(refusal))) => Err(refusal.into_response()),
            _ => Err(unavailable("the disk of the log does not respond in time\n")),
        }
    }
}

/// Exports on the calling thread.
fn run(
    request: &LogRequest,
    row: &FileFormatInfo,
    who: &str,
    mut output: StreamOutput,
    permit: OwnedSemaphorePermit,
) {
    // Refused only where the limits of the process are odd; the export is then as important as
    // other threads.
    let _ = ThreadPriority::Nice(NICE).request();
    let exported = request.open().and_then(|catalog| {
        let format = request.format(&catalog, row)?;
        let what = format!("HTTP {}", row.name);
        note_export(&catalog, who, request.range, &what).map_err(|error| {
            let text = format!("cannot note the export: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        tracing::info!(target: "recorder", recorder = request.log.recorder, who, "log exported");
        export_log(&catalog, request.range, format, &mut output).map_err(|error| refusal(&error))
    });
    match exported {
        Ok(summary) => {
            if summary.damaged.0 > 0 {
                tracing::warn!(
                    recorder = request.log.recorder,
                    frames = summary.damaged.0,
                    "frames of damaged files are silent in an export: run `aulos logger verify`"
                );
            }
            // The client may have gone.
            drop(output.send(None));
        }
        Err(refusal) => output.refuse(refusal),
    }
    drop(permit);
}

/// The body of a response as the output of an export.
struct StreamOutput {
    /// Takes the result of the beginning.
    start: Option<oneshot::Sender<Result<(), Refusal>>>,
    /// Pieces, and `None` behind the last one.
    bytes: mpsc::Sender<Option<Bytes>>,
    runtime: Handle,
}

impl StreamOutput {
    fn send(&self, piece: Option<Bytes>) -> io::Result<()> {
        let sent = self.bytes.send(piece);
        match self.runtime.block_on(async { timeout(STALL_TIMEOUT, sent).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Refuses the request, if its response has not begun.
    fn refuse(&mut self, refusal: Refusal) {
        if let Some(start) = self.start.take() {
            // The client may have gone.
            drop(start.send(Err(refusal)));
        }
    }
}

impl ExportOutput for StreamOutput {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(start) = self.start.take() {
            start.send(Ok(())).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        if bytes.is_empty() { Ok(()) } else { self.send(Some(Bytes::copy_from_slice(bytes))) }
    }

    fn patch(&mut self, _: &Patch) -> io::Result<()> {
        Ok(())
    }
}

/// The pieces of an export in their order. Without its end, which says that it is complete, the
/// response is broken off, so that the client sees it.
struct ExportBody {
    pieces: mpsc::Receiver<Option<Bytes>>,
    is_over: bool,
}

impl Stream for ExportBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(context));
        self.is_over = !matches!(piece, Some(Some(_)));
        Poll::Ready(match piece {
            Some(Some(bytes)) => Some(Ok(bytes)),
            Some(None) => None,
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

/// Exports at once.
const MAX_EXPORTS: usize = 2;

/// Files and gaps in a report.
const MAX_ENTRIES: usize = 10_000;

/// Pieces of 64 KiB that wait for the client.
const QUEUED_PIECES: usize = 2;

/// How long a client may read nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the disk may take to open the log and the first file.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Behind everything that plays.
const NICE: i8 = 15;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// The results of a body whose thread has sent these pieces and ended.
    fn ends_of(pieces: impl IntoIterator<Item = Option<Bytes>>) -> Vec<bool> {
        let (bytes, pieces_of_body) = mpsc::channel(QUEUED_PIECES);
        pieces.into_iter().for_each(|piece| bytes.try_send(piece).unwrap());
        drop(bytes);
        let mut body = ExportBody { pieces: pieces_of_body, is_over: false };
        let mut context = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match Pin::new(&mut body).poll_next(&mut context) {
            Poll::Ready(result) => result.map(|piece| piece.is_ok()),
            Poll::Pending => panic!("the thread has ended"),
        })
        .collect()
    }

    #[test]
    fn an_export_that_was_given_up_is_no_complete_response() {
        let piece = || Some(Bytes::from_static(b"sound"));
        assert_eq!(ends_of([piece(), None]), [true]);
        assert_eq!(ends_of([piece()]), [true, false]);
        assert_eq!(ends_of([]), [false]);
    }

    #[test]
    fn an_offset_may_be_written_with_its_sign() {
        for (text, wanted) in [
            ("2026-10-25T02:30:00 01:00", "2026-10-25T02:30:00+01:00"),
            ("2026-10-25 02:30", "2026-10-25 02:30"),
            ("2026-10-25 02:30:00 0100", "2026-10-25 02:30:00+0100"),
            ("2026-10-25T02:30:00Z", "2026-10-25T02:30:00Z"),
            ("", ""),
        ] {
            assert_eq!(with_offset(text), wanted);
        }
    }
}

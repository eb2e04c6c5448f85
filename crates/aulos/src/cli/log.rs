//! The log on standard error: text, JSON, or the fields of systemd's journal.
//!
//! The journal takes text from standard error too, but then it does not know levels and fields. Its
//! protocol is a datagram per line (`systemd.io/JOURNAL_NATIVE_PROTOCOL`); a library for it would
//! be longer than this.
//!
//! No line is waited for, wherever it goes: see [`console`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_core::Utc;
use aulos_rt::LostLines;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::output::ColorMode;
use super::output::console::{self, LineOutput};

/// Help heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// What a command prints to standard error, and how.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Log more to standard error: -v up to level debug, -vv up to level trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    /// Log errors only, and print no progress, notes or summaries to standard error
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = GLOBAL)]
    pub(super) quiet: bool,
    /// When to use colors; `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = GLOBAL)]
    pub(super) color: ColorMode,
    /// Format of the log on standard error; `auto`: fields for the journal if systemd has started
    /// the program, otherwise text
    #[arg(long, global = true, value_name = "FORMAT", default_value = "auto", help_heading = GLOBAL)]
    log: LogFormat,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Auto,
    Text,
    Json,
}

/// Starts the log. The lines of a server have a time stamp and their target.
pub(super) fn start(output: &OutputArgs, is_server: bool) {
    let level = match (output.quiet, output.verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::INFO,
        (_, 1) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let journal = || {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        is_stream(&stream, io::stderr()).then(|| journal_socket(Path::new(JOURNAL_SOCKET)))?.ok()
    };
    let journal = if output.log == LogFormat::Auto { journal() } else { None };
    let is_json = output.log == LogFormat::Json;
    let report: fn(&LostLines) -> Vec<u8> = match (is_json, is_server) {
        (true, _) => |lost| lost_line(lost).json_line(),
        (false, true) => |lost| lost_line(lost).text_line(),
        (false, false) => |lost| lost_line(lost).message_line(),
    };
    let lines = console::start(report, is_server);
    if is_server {
        std::panic::set_hook(Box::new(log_panic));
    }
    let fields = match (journal, is_json) {
        (Some(socket), _) => {
            let report = |lost: &LostLines| lost_line(lost).journal_entry();
            let entries = console::start_writer("aulos-journal", Journal(socket), report);
            console::set_log(&entries);
            FieldLog { lines: LineOutput::Queue(entries), render: |line| line.journal_entry() }
        }
        (None, true) => FieldLog { lines, render: |line| line.json_line() },
        (None, false) => return start_text(output, level, is_server, lines),
    };
    tracing_subscriber::registry().with(targets(level)).with(fields).init();
}

fn start_text(output: &OutputArgs, level: LevelFilter, is_server: bool, lines: LineOutput) {
    let log = tracing_subscriber::fmt()
        .with_writer(move || EventWriter(lines.clone()))
        .with_max_level(level)
        .with_ansi(output.color.colors(io::stderr().is_terminal()))
        .with_target(is_server)
        .fmt_fields(debug_fn(write_field).delimited(" "));
    if is_server {
        log.with_timer(LogTime).finish().with(targets(level)).init();
    } else {
        log.without_time().finish().with(targets(level)).init();
    }
}

/// Takes each line of the log, which is written in one piece.
struct EventWriter(LineOutput);

impl Write for EventWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the message or `key=value`, on one line. What clients, titles and programs say may be in
/// both: a line break in it would forge a line, and an escape sequence would reach the terminal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match field.name() {
        "message" => {}
        name if writer.has_ansi_escapes() => {
            write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
        }
        name => write!(writer, "{name}=")?,
    }
    write!(OneLine(writer), "{value:?}")
}

/// Writes a text with its control characters escaped.
struct OneLine<'a, W>(&'a mut W);

impl<W: fmt::Write> fmt::Write for OneLine<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if letter.is_control() {
                write!(self.0, "{}", letter.escape_default())?;
            } else {
                self.0.write_char(letter)?;
            }
        }
        Ok(())
    }
}

/// Logs a panic as any other line: the standard library would write to standard error itself, and
/// could wait there.
fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    // Taken where the environment asks for it.
    let trace = Backtrace::capture();
    let backtrace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
    tracing::error!(target: "panic", thread, backtrace, "{info}");
}

/// The line that says how many lines are missing before it.
fn lost_line(lost: &LostLines) -> LogLine {
    let mut line = LogLine::new(Level::WARN, "log");
    line.message = "lines of this log were lost".to_owned();
    line.fields.push(("lines", lost.count.into()));
    let reason = lost.reason.as_ref().map(ToString::to_string);
    let reason = reason.unwrap_or_else(|| "they were not read in time".to_owned());
    line.fields.push(("reason", reason.into()));
    line
}

/// The levels by target. The client of NATS logs each message that it drops as information; the
/// server counts them, and logs the connection itself.
fn targets(level: LevelFilter) -> Targets {
    Targets::new().with_default(level).with_target("async_nats", level.min(LevelFilter::WARN))
}

/// The time of a log line: UTC to the millisecond.
struct LogTime;

impl FormatTime for LogTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", timestamp(SystemTime::now()))
    }
}

fn timestamp(now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = Utc::from_unix(now.as_secs()).to_string();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), now.subsec_millis())
}

/// The log of lines with fields.
struct FieldLog {
    lines: LineOutput,
    render: fn(&LogLine) -> Vec<u8>,
}

impl<S: Subscriber> Layer<S> for FieldLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = LogLine::new(*event.metadata().level(), event.metadata().target());
        event.record(&mut line);
        self.lines.push((self.render)(&line));
    }
}

/// The journal, which takes one datagram for each line.
struct Journal(UnixDatagram);

impl Write for Journal {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        self.0.send(entry)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line of the log.
struct LogLine {
    level: Level,
    target: String,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl LogLine {
    fn new(level: Level, target: &str) -> Self {
        Self { level, target: target.to_owned(), message: String::new(), fields: Vec::new() }
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }

    fn json(&self, now: SystemTime) -> String {
        let fields = self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let mut line: Map<String, Value> = fields.collect();
        // The head last: a field never takes its place.
        line.insert("time".to_owned(), timestamp(now).into());
        line.insert("level".to_owned(), self.level.as_str().to_ascii_lowercase().into());
        line.insert("target".to_owned(), self.target.as_str().into());
        line.insert("message".to_owned(), self.message.as_str().into());
        Value::Object(line).to_string()
    }

    fn json_line(&self) -> Vec<u8> {
        (self.json(SystemTime::now()) + "\n").into_bytes()
    }

    /// As the text format of a server writes it.
    fn text_line(&self) -> Vec<u8> {
        let head = format!("{} {:>5} {}: ", timestamp(SystemTime::now()), self.level, self.target);
        [head.into_bytes(), self.message_line()].concat()
    }

    fn message_line(&self) -> Vec<u8> {
        let fields = self.fields.iter().map(|(name, value)| format!(" {name}={value}"));
        (self.message.clone() + &fields.collect::<String>() + "\n").into_bytes()
    }

    /// The message has the fields as text too, because `journalctl` shows nothing else by default.
    fn journal_entry(&self) -> Vec<u8> {
        let priority = match self.level {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            _ => "7",
        };
        let mut message = format!("{}: {}", self.target, self.message);
        let mut entry = Vec::new();
        push_field(&mut entry, "PRIORITY", priority);
        push_field(&mut entry, "SYSLOG_IDENTIFIER", "aulos");
        push_field(&mut entry, "AULOS_TARGET", &self.target);
        for (name, value) in &self.fields {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            message += &format!(" {name}={value}");
            let name = name.to_ascii_uppercase().replace('.', "_");
            match name.as_str() {
                "STATION" | "SOURCE" | "RECORDER" | "HOOK" | "RELAY" => {
                    push_field(&mut entry, &name, &text);
                }
                _ => push_field(&mut entry, &format!("AULOS_{name}"), &text),
            }
        }
        push_field(&mut entry, "MESSAGE", &message);
        entry
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// Longest value of a field in the journal, in bytes: an entry is one datagram, whose default limit
/// in the kernel is 208 KiB.
const MAX_VALUE: usize = 32 << 10;

/// A value with a line break has its length in front (64 bits, little endian).
fn push_field(entry: &mut Vec<u8>, name: &str, value: &str) {
    let mut ends = (0..=value.len().min(MAX_VALUE)).rev();
    let value = &value[..ends.find(|end| value.is_char_boundary(*end)).unwrap_or(0)];
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

/// Where the journal listens.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// A journal that does not read costs a line after this time.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

fn journal_socket(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

/// Whether a file is the one that `$JOURNAL_STREAM` names by device and inode: otherwise standard
/// error has been redirected since systemd opened it.
fn is_stream(stream: &str, file: impl AsFd) -> bool {
    let Ok(found) = rustix::fs::fstat(file) else { return false };
    stream == format!("{}:{}", found.st_dev, found.st_ino)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use aulos_blackbox::scratch::ScratchDir;
    use serde_json::json;
    use tracing::subscriber::with_default;

    use super::*;

    #[test]
    fn a_line_of_json_has_its_fields_and_its_head() {
        let mut line = LogLine::new(Level::WARN, "station");
        line.message = "a \"quoted\"\nmessage".to_owned();
        line.fields = vec![("station", "a".into()), ("level", 7.into()), ("ok", true.into())];
        let text = line.json(UNIX_EPOCH + Duration::from_millis(1_500));
        assert!(!text.contains('\n'), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "time": "1970-01-01T00:00:01.500Z", "level": "warn", "target": "station",
            "message": "a \"quoted\"\nmessage", "station": "a", "ok": true,
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn the_journal_gets_level_and_fields_in_one_datagram() {
        let scratch = ScratchDir::new("journal").unwrap();
        let path = scratch.join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let socket = Journal(journal_socket(&path).unwrap());
        let lines = console::start_writer("journal", socket, |_| Vec::new());
        let log = FieldLog { lines: LineOutput::Queue(lines), render: |line| line.journal_entry() };
        let log = tracing_subscriber::registry().with(LevelFilter::INFO).with(log);
        with_default(log, || {
            tracing::debug!("not at this level");
            let (station, source) = ("kitchen", "1");
            tracing::warn!(target: "station", station, source, count = 3, "two\nlines");
        });
        let mut buffer = [0; 1_024];
        let length = journal.recv(&mut buffer).unwrap();
        let message = "station: two\nlines station=\"kitchen\" source=\"1\" count=3";
        let mut expected = b"PRIORITY=4\nSYSLOG_IDENTIFIER=aulos\nAULOS_TARGET=station\n\
            STATION=kitchen\nSOURCE=1\nAULOS_COUNT=3\nMESSAGE\n"
            .to_vec();
        expected.extend_from_slice(&(message.len() as u64).to_le_bytes());
        expected.extend_from_slice(message.as_bytes());
        expected.push(b'\n');
        assert_eq!(String::from_utf8_lossy(&buffer[..length]), String::from_utf8_lossy(&expected));
    }

    #[test]
    fn text_from_outside_stays_on_its_line_and_reaches_no_terminal() {
        let (lines, writer) = aulos_rt::line_queue();
        let lines = LineOutput::Queue(lines);
        let log = tracing_subscriber::fmt()
            .with_writer(move || EventWriter(lines.clone()))
            .with_ansi(false)
            .without_time()
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .finish();
        let evil = "a\n2026-01-01T00:00:00.000Z ERROR forged: \x1b]0;title\x07\u{9b}2J\r\u{7f}";
        let io_error = io::Error::other(evil);
        with_default(log, || {
            tracing::info!(target: "t", name = evil, shown = %evil, error = %io_error, "{evil}");
        });
        let mut out = Vec::new();
        writer.run(&mut out, |_| Vec::new());
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with('\n') && text.matches('\n').count() == 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
        assert_eq!(text.matches("ERROR forged").count(), 4, "{text}");
        assert!(text.contains(" shown=a\\n2026"), "{text}");
    }

    #[test]
    fn a_line_about_lost_lines_looks_like_the_others() {
        let mut line = LogLine::new(Level::WARN, "log");
        line.message = "lines of this log were lost".to_owned();
        line.fields = vec![("lines", 3.into()), ("reason", "full".into())];
        let text = String::from_utf8(line.text_line()).unwrap();
        let end = "Z  WARN log: lines of this log were lost lines=3 reason=\"full\"\n";
        assert!(text.ends_with(end), "{text}");
        let read: Value = serde_json::from_slice(&line.json_line()).unwrap();
        assert_eq!((&read["lines"], &read["level"]), (&json!(3), &json!("warn")));
        let entry = String::from_utf8(line.journal_entry()).unwrap();
        assert!(
            entry.starts_with("PRIORITY=4\n") && entry.contains("\nAULOS_LINES=3\n"),
            "{entry}"
        );
    }

    #[test]
    fn a_long_value_is_cut_at_a_character() {
        let mut entry = Vec::new();
        push_field(&mut entry, "A", &"ü".repeat(MAX_VALUE));
        assert_eq!(entry.len(), "A=\n".len() + MAX_VALUE);
        assert!(String::from_utf8(entry).is_ok());
    }

    #[test]
    fn only_the_file_that_systemd_opened_is_the_journal() {
        let scratch = ScratchDir::new("journal-stream").unwrap();
        let file = File::create(scratch.join("file")).unwrap();
        let about = file.metadata().unwrap();
        assert!(is_stream(&format!("{}:{}", about.dev(), about.ino()), &file));
        for other in ["", "0:0", &format!("{}:{}", about.dev(), about.ino() + 1)] {
            assert!(!is_stream(other, &file), "{other}");
        }
    }
}

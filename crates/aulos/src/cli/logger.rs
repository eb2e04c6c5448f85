//! `aulos logger`: finds, exports, checks and holds recordings by time, without a server.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use aulos_engine::recorder::UnixTime;
use aulos_files::logger::{
    ExportError, ExportSummary, Hold, LogReport, LoggerCatalog, LoggerError, add_hold, exact_bits,
    export_log, list_holds, local_text, note_export, parse_local_time, release_hold, verify_log,
};
use aulos_files::record::format::{FILE_FORMAT_NAMES, FileFormat, FileFormatInfo, FormatSettings};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, Subcommand};
use serde_json::json;

use super::output::console::note;
use super::output::print;

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos logger find /srv/log --from '2026-11-22 10:00' --to '2026-11-22 10:05'
  aulos logger export /srv/log complaint.flac \\
      --from 2026-11-22T10:00:00Z --to 2026-11-22T10:05:00Z
  aulos logger verify /srv/log --head 7d865e959b2466918c9863afca942d0f...
  aulos logger hold /srv/log --from 2026-11-22T10:00Z --to 2026-11-22T11:00Z \\
      --why 'complaint 7' --until 2027-03-01T00:00Z
  aulos logger hold /srv/log --release 1";

#[derive(Debug, Args)]
pub(super) struct LoggerArgs {
    #[command(subcommand)]
    command: LoggerCommand,
}

#[derive(Debug, Subcommand)]
enum LoggerCommand {
    /// Print the files of a range of time, and what is missing in it
    Find(FindArgs),
    /// Write a range of time to a file, exact to the frame
    Export(ExportArgs),
    /// Check every file and every line of the index
    Verify(VerifyArgs),
    /// Keep a range of time from being deleted; without a range, list what is kept
    Hold(HoldArgs),
}

#[derive(Debug, Args)]
struct LogArgs {
    /// Directory of the recordings
    dir: PathBuf,
    /// Recorder, which has the name of its station by default
    #[arg(long, value_name = "NAME")]
    station: Option<String>,
    /// Time zone of times without an offset [default: the system's]
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
}

#[derive(Debug, Args)]
struct FindArgs {
    #[command(flatten)]
    log: LogArgs,
    /// First time, as in 2026-11-22T10:00:00Z, or a local time
    #[arg(long, value_name = "TIME")]
    from: String,
    /// Time before which to end
    #[arg(long, value_name = "TIME")]
    to: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Output file; its extension selects the format
    output: PathBuf,
    /// First time, as in 2026-11-22T10:00:00Z, or a local time
    #[arg(long, value_name = "TIME")]
    from: String,
    /// Time before which to end
    #[arg(long, value_name = "TIME")]
    to: String,
    /// Bits per sample [default: those of the recording]
    #[arg(long)]
    bits: Option<u32>,
    /// Bit rate of Opus and MP3 in kbit/s
    #[arg(long)]
    kbps: Option<u32>,
    /// Replace the output file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Hash of a line that was kept elsewhere
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct HoldArgs {
    #[command(flatten)]
    log: LogArgs,
    /// First time
    #[arg(long, value_name = "TIME", requires_all = ["to", "why"])]
    from: Option<String>,
    /// Time before which to end
    #[arg(long, value_name = "TIME", requires = "from")]
    to: Option<String>,
    /// Reason
    #[arg(long, value_name = "TEXT", requires = "from")]
    why: Option<String>,
    /// When the hold ends [default: when it is released]
    #[arg(long, value_name = "TIME", requires = "from")]
    until: Option<String>,
    /// Release a hold
    #[arg(long, value_name = "NUMBER", conflicts_with = "from")]
    release: Option<u64>,
}

pub(super) fn run(args: &LoggerArgs) -> Result<Exit, Failure> {
    match &args.command {
        LoggerCommand::Find(args) => find(args),
        LoggerCommand::Export(args) => export(args),
        LoggerCommand::Verify(args) => verify(args),
        LoggerCommand::Hold(args) => hold(args),
    }
}

fn find(args: &FindArgs) -> Result<Exit, Failure> {
    let range = args.log.range(&args.from, &args.to)?;
    let report = LogReport::new(&args.log.open()?, range);
    let exit = if report.files.is_empty() { Exit::Negative } else { Exit::Ok };
    let zone = args.log.zone.as_deref();
    let text = if args.json {
        report.json(zone).map(|object| format!("{object}\n"))
    } else {
        report.text(zone)
    };
    print(text.map_err(usage)?.as_bytes())?;
    Ok(exit)
}

fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    let range = args.log.range(&args.from, &args.to)?;
    let catalog = args.log.open()?;
    let format = args.format(&catalog, range)?;
    let report = LogReport::new(&catalog, range).text(args.log.zone.as_deref()).map_err(usage)?;
    let cannot_create = |error: io::Error| {
        let message = format!("cannot create {}: {error}", args.output.display());
        Failure::new(Exit::CannotCreate, message)
    };
    let mut options = File::options();
    options.write(true).truncate(args.force).create(true).create_new(!args.force);
    let mut output = options.open(&args.output).map_err(cannot_create)?;
    let name = args.output.to_string_lossy();
    let noted = note_export(&catalog, &user(), range, &name);
    let exported = noted
        .map_err(|error| {
            let dir = args.log.dir.display();
            Failure::new(Exit::Io, format!("cannot note the export in {dir}: {error}"))
        })
        .and_then(|()| export_log(&catalog, range, format, &mut output).map_err(export_failure));
    let summary = exported.inspect_err(|_| {
        // An incomplete export must not be taken for a complete one.
        drop(fs::remove_file(&args.output));
    })?;
    output.sync_all().map_err(cannot_create)?;
    let mut beside = args.output.clone().into_os_string();
    beside.push(".txt");
    fs::write(Path::new(&beside), &report).map_err(cannot_create)?;
    print_summary(&summary, &args.output);
    Ok(if summary.damaged.0 > 0 { Exit::SomeFailed } else { Exit::Ok })
}

fn print_summary(summary: &ExportSummary, output: &Path) {
    let (frames, silent, damaged) = (summary.frames.0, summary.silent.0, summary.damaged.0);
    note!("{}: {frames} frames, {silent} silent", output.display());
    if damaged > 0 {
        note!("{damaged} frames of damaged files are silent: run `aulos logger verify`");
    }
}

fn verify(args: &VerifyArgs) -> Result<Exit, Failure> {
    let LogArgs { dir, station, .. } = &args.log;
    let report = verify_log(dir, station.as_deref(), args.head.as_deref());
    let report = report.map_err(|error| args.log.failure(&error))?;
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let (lines, files, head) = (report.lines, report.files, &report.head);
    let text = if args.json {
        let object = json!({ "lines": lines, "files": files, "head": head, "problems": problems });
        format!("{object}\n")
    } else {
        let mut text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        let _ = writeln!(text, "{lines} lines, {files} files, {} problems", problems.len());
        let _ = writeln!(text, "head {head}");
        text
    };
    print(text.as_bytes())?;
    Ok(if problems.is_empty() { Exit::Ok } else { Exit::Negative })
}

fn hold(args: &HoldArgs) -> Result<Exit, Failure> {
    let station = args.log.open()?.station().to_owned();
    let failed = |error: io::Error| {
        let exit = match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::NotFound => Exit::Usage,
            _ => Exit::Io,
        };
        Failure::new(exit, format!("{}: {error}", args.log.dir.display()))
    };
    if let Some(id) = args.release {
        release_hold(&args.log.dir, &station, id).map_err(failed)?;
    } else if let (Some(from), Some(to), Some(why)) = (&args.from, &args.to, &args.why) {
        let until = args.until.as_ref().map(|until| args.log.time(until)).transpose()?;
        let range = args.log.range(from, to)?;
        let hold = add_hold(&args.log.dir, &station, range, why, until).map_err(failed)?;
        print(args.log.hold_line(&hold)?.as_bytes())?;
    } else {
        for hold in list_holds(&args.log.dir, &station).map_err(failed)? {
            print(args.log.hold_line(&hold)?.as_bytes())?;
        }
    }
    Ok(Exit::Ok)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn usage(error: impl fmt::Display) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}

impl LogArgs {
    fn open(&self) -> Result<LoggerCatalog, Failure> {
        LoggerCatalog::open(&self.dir, self.station.as_deref())
            .map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &LoggerError) -> Failure {
        let exit = match error {
            LoggerError::SeveralStations(_) => Exit::Usage,
            _ => Exit::NoInput,
        };
        Failure::new(exit, format!("{}: {error}", self.dir.display()))
    }

    fn time(&self, text: &str) -> Result<UnixTime, Failure> {
        parse_local_time(text, self.zone.as_deref())
            .map_err(|error| Failure::new(Exit::Usage, format!("`{text}`: {error}")))
    }

    fn range(&self, from: &str, to: &str) -> Result<(UnixTime, UnixTime), Failure> {
        let (from, to) = (self.time(from)?, self.time(to)?);
        if from >= to {
            return Err(Failure::new(Exit::Usage, "`--to` must be later than `--from`".to_owned()));
        }
        Ok((from, to))
    }

    fn text(&self, at: UnixTime) -> Result<String, Failure> {
        local_text(at, self.zone.as_deref()).map_err(usage)
    }

    fn hold_line(&self, hold: &Hold) -> Result<String, Failure> {
        let (from, to) = (self.text(hold.from)?, self.text(hold.to)?);
        let until = hold.until.map(|until| self.text(until)).transpose()?;
        let until = until.map_or_else(|| "released".to_owned(), |until| format!("the {until}"));
        Ok(format!("hold {} {from} to {to} until {until}: {}\n", hold.id, hold.why))
    }
}

impl ExportArgs {
    /// The format of the output; without a loss where the recording has none.
    fn format(
        &self,
        catalog: &LoggerCatalog,
        range: (UnixTime, UnixTime),
    ) -> Result<FileFormat, Failure> {
        let extension = self.output.extension().and_then(|it| it.to_str()).unwrap_or_default();
        let row = FileFormatInfo::of_name(extension).ok_or_else(|| {
            usage(format_args!("the extension of the output must be one of {FILE_FORMAT_NAMES}"))
        })?;
        let usual_bits = exact_bits(catalog, range).map_err(export_failure)?;
        let settings = FormatSettings { bits: self.bits, usual_bits, kbps: self.kbps, codecs: &[] };
        row.with(settings).map_err(|hint| usage(format_args!("{}: write {hint}", row.name)))
    }
}

fn export_failure(error: ExportError) -> Failure {
    let exit = match error {
        ExportError::Range | ExportError::Format(_) => Exit::Usage,
        ExportError::NothingFound => Exit::NoInput,
        ExportError::File(..) | ExportError::ShapeChanged(_) => Exit::Data,
        ExportError::Output(_) => Exit::Io,
        _ => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}

/// The name under which an export is noted.
fn user() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"].into_iter();
    let name = names.filter_map(|key| std::env::var(key).ok()).find(|name| !name.is_empty());
    name.unwrap_or_else(|| "unknown".to_owned())
}

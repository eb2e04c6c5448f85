//! `aulos history export`: reads day files without a server.

use std::io;
use std::path::PathBuf;

use aulos_core::Utc;
use aulos_files::history::{
    HistoryFigure, HistoryFlags, HistoryRecord, HistoryStore, HistoryTier, KEEP_DAYS,
};
use aulos_files::record::parse_utc;
use aulos_server::exit::{Exit, Failure};
use aulos_server::history::HISTORY_DIR;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::output::print;

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos history export /var/lib/aulos > history.csv
  aulos history export /var/lib/aulos --station kitchen --step 1s --format jsonl
  aulos history export /var/lib/aulos --from 2026-11-01T00:00:00Z --step 15min";

#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Debug, Subcommand)]
enum HistoryCommand {
    /// Print the history as CSV or as JSON lines
    Export(ExportArgs),
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// State directory of the server, or a copy of its folder `history`
    dir: PathBuf,
    /// Station; every station by default
    #[arg(long, value_name = "NAME")]
    station: Option<String>,
    /// Time between two rows
    #[arg(long, value_enum, default_value_t = Step::Minute)]
    step: Step,
    /// First time, as in 2026-11-22T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<u32>,
    /// Time before which to end
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<u32>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Step {
    #[value(name = "1s")]
    Second,
    #[value(name = "10s")]
    TenSeconds,
    #[value(name = "1min")]
    Minute,
    #[value(name = "15min")]
    Quarter,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    /// A head and a line for each row
    Csv,
    /// A JSON object for each row
    Jsonl,
}

fn parse_time(text: &str) -> Result<u32, String> {
    let wrong = || "not a time in UTC: write 2026-11-22T10:00:00Z".to_owned();
    let nanos = parse_utc(text).ok_or_else(wrong)?.as_nanos();
    u32::try_from(nanos / 1_000_000_000).map_err(|_| wrong())
}

pub(super) fn run(args: &HistoryArgs) -> Result<Exit, Failure> {
    let HistoryCommand::Export(args) = &args.command;
    let below = args.dir.join(HISTORY_DIR);
    let dir = if below.is_dir() { below } else { args.dir.clone() };
    let tier = match args.step {
        Step::Second => HistoryTier::Second,
        Step::TenSeconds => HistoryTier::TenSeconds,
        Step::Minute => HistoryTier::Minute,
        Step::Quarter => HistoryTier::Quarter,
    };
    if !dir.join(tier.name()).is_dir() {
        let message = format!(
            "no history in {}: expected folders 1s, 10s, 1min and 15min, or `history` with them",
            args.dir.display()
        );
        return Err(Failure::new(Exit::NoInput, message));
    }
    let unreadable = |error: io::Error| {
        Failure::new(Exit::NoInput, format!("cannot read {}: {error}", dir.display()))
    };
    let mut store = HistoryStore::new(dir.clone(), *KEEP_DAYS.end());
    let span = (args.from.unwrap_or(0), args.to.unwrap_or(u32::MAX));
    let names = match &args.station {
        Some(name) => [name.clone()].into(),
        None => store.stations(tier).map_err(unreadable)?,
    };
    if args.format == Format::Csv {
        print(head().as_bytes())?;
    }
    // One station at a time: two days of seconds of one are some 20 MB of text.
    for name in names {
        let records = store.records(tier, &name, span).map_err(unreadable)?;
        let mut rows = String::new();
        for (time, record) in records {
            rows += &row(args.format, &name, time, &record);
        }
        print(rows.as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn head() -> String {
    let flags = HistoryFlags::NAMES.map(|(name, _)| name);
    format!("time,station,{},{}\n", HistoryRecord::FIGURE_NAMES.join(","), flags.join(","))
}

fn row(format: Format, station: &str, time: u32, record: &HistoryRecord) -> String {
    let time = Utc::from_unix(time.into()).to_string();
    let figures = record.figures().map(HistoryFigure::get);
    let flags = HistoryFlags::NAMES.map(|(name, flag)| (name, record.flags.contains(flag)));
    if format == Format::Csv {
        let figures = figures.map(|one| one.map_or_else(String::new, |one| format!("{one:.2}")));
        let flags = flags.map(|(_, is_set)| u8::from(is_set).to_string());
        let station = station.replace('"', "\"\"");
        return format!("{time},\"{station}\",{},{}\n", figures.join(","), flags.join(","));
    }
    let mut row = Map::new();
    row.insert("time".to_owned(), json!(time));
    row.insert("station".to_owned(), json!(station));
    let names = HistoryRecord::FIGURE_NAMES.iter();
    row.extend(names.zip(figures).map(|(name, one)| ((*name).to_owned(), json!(one))));
    row.extend(flags.map(|(name, is_set)| (name.to_owned(), json!(is_set))));
    format!("{}\n", Value::Object(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_columns_of_its_head_and_a_name_is_only_text() {
        let mut record = HistoryRecord { parts: 10, ..HistoryRecord::ABSENT };
        record.momentary_max = HistoryFigure::new(Some(-18.25));
        record.flags = HistoryFlags::SILENT;
        let csv = row(Format::Csv, "a \"b\"", 1_795_305_600, &record);
        assert_eq!(csv, "2026-11-22T00:00:00Z,\"a \"\"b\"\"\",-18.25,,,,,,,0,0,1,0,0,0\n");
        assert_eq!(head().matches(',').count(), csv.matches(',').count());
        let object: Value =
            serde_json::from_str(&row(Format::Jsonl, "a \"b\"", 0, &record)).unwrap();
        assert_eq!(object["momentary_max_lufs"], -18.25);
        assert_eq!((&object["silent"], &object["gain_db"]), (&json!(true), &Value::Null));
        assert_eq!(parse_time("1970-01-01T00:01:00Z"), Ok(60));
        assert!(parse_time("yesterday").is_err() && parse_time("1969-01-01T00:00:00Z").is_err());
    }
}

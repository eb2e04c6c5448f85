//! `aulos station`: what stations play, and which source.

use aulos_server::exit::{Exit, Failure};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::call_args::CallArgs;
use super::overview::ServerOverview;
use super::play::{self, PlayArgs, StopArgs};
use super::table::table;
use crate::cli::scan::plain;

pub(crate) const STATION_EXAMPLES: &str = "\
Examples:
  aulos station list
  aulos station list --json | jq '.[].source'
  aulos station source jazz studio       switch to the source `studio`
  aulos station source jazz studio --for 600
  aulos station source jazz auto         choose by priority again
  aulos station control jazz next        the next file of a playlist
  aulos station control jazz pause       at its player, by a control script
  aulos station play kitchen http://nas.local/fairy-tale.mp3
  aulos station stop kitchen

A station has no volume: `aulos client` and `aulos group` set that of its
clients, and `aulos group move` lets a group play another station. Its name
is `name` in the configuration.";

#[derive(Debug, Args)]
pub(crate) struct StationArgs {
    #[command(subcommand)]
    command: StationCommand,
}

#[derive(Debug, Subcommand)]
enum StationCommand {
    /// List the stations with what they play
    List(CallArgs),
    /// Switch a station to a source
    Source(SourceArgs),
    /// Control a playlist, or the player of a station
    Control(ControlArgs),
    /// Play a file to its end in place of the programme
    Play(PlayArgs),
    /// End what `play` has begun
    Stop(StopArgs),
}

#[derive(Debug, Args)]
struct SourceArgs {
    /// Name of the station
    name: String,
    /// Name of the source, or `auto` for the choice by priority
    source: String,
    /// How long the selection lasts [default: until the source fails]
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<f64>,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct ControlArgs {
    /// Name of the station
    name: String,
    /// What it does: `next` skips a file of a playlist; all go to the player, by its control script
    #[arg(value_parser = PossibleValuesParser::new(COMMANDS))]
    command: String,
    #[command(flatten)]
    call: CallArgs,
}

/// Commands of `Stream.Control` without parameters.
const COMMANDS: [&str; 5] = ["play", "pause", "stop", "next", "previous"];

pub(crate) fn station(args: &StationArgs) -> Result<Exit, Failure> {
    match &args.command {
        StationCommand::List(list) => {
            let overview = list.overview()?;
            let json = overview.stations.iter().map(|one| one.json());
            list.print_list(json, || station_table(&overview))
        }
        StationCommand::Source(args) => select_source(args),
        StationCommand::Control(ControlArgs { name, command, call }) => {
            let station = call.overview()?.station(name)?;
            let params = json!({ "id": station, "command": command });
            call.change("Stream.Control", &params, |_| format!("{}: {command}\n", plain(&station)))
        }
        StationCommand::Play(args) => play::play("station", args),
        StationCommand::Stop(args) => play::stop("station", args),
    }
}

fn select_source(args: &SourceArgs) -> Result<Exit, Failure> {
    let station = args.call.overview()?.station(&args.name)?;
    let mut params = json!({ "station": station, "source": args.source });
    if let Some(seconds) = args.seconds {
        params["for_s"] = json!(seconds);
    }
    args.call.change("Aulos.SetSource", &params, |result| source_line(&station, result))
}

fn source_line(station: &str, result: &Value) -> String {
    let station = plain(station);
    let Some(source) = result["source"].as_str() else {
        return format!("{station} chooses its source by priority\n");
    };
    let length = result["for_s"].as_f64().map(|seconds| format!(" for {seconds} s"));
    format!("{station}: {} is selected{}\n", plain(source), length.unwrap_or_default())
}

pub(super) fn station_table(overview: &ServerOverview) -> String {
    let rows = overview.stations.iter().map(|station| {
        let source = station.source.as_deref().unwrap_or("-");
        let counts = [station.clients.to_string(), station.listeners.to_string()];
        [&station.name, &station.state, source, &counts[0], &counts[1]].map(plain)
    });
    table(["station", "state", "source", "clients", "web listeners"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_says_what_was_selected_and_for_how_long() {
        for (result, expected) in [
            (json!({ "source": "studio", "for_s": null }), "hall: studio is selected\n"),
            (json!({ "source": "studio", "for_s": 90.5 }), "hall: studio is selected for 90.5 s\n"),
            (json!({ "source": null }), "hall chooses its source by priority\n"),
        ] {
            assert_eq!(source_line("hall", &result), expected);
        }
        let evil = source_line("hall", &json!({ "source": "a\u{1b}[2J\nb" }));
        assert!(!evil.contains('\u{1b}') && evil.lines().count() == 1, "{evil:?}");
    }
}

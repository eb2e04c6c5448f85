//! The command line: one definition for the parser, the help, the manual page and the completions.

mod calls;
mod check;
mod clients;
mod config;
mod config_args;
mod history;
mod log;
mod logger;
mod meter;
mod normalize;
mod output;
mod play;
mod record;
#[cfg(test)]
mod reference;
mod relay;
mod rpc;
mod scan;
mod serve;
mod signals;
mod snapcast;
mod source;

use std::io::{self, Write};
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use aulos_config::did_you_mean;
use aulos_engine::codec_guard::{install_panic_hook, panic_reports};
use aulos_server::exit::{Exit, Failure};

use config_args::{ConfigArgs, check_rereadable, load};
use log::OutputArgs;
use output::console::{self, note};
use output::print;
use serve::HangupHandler;
use snapcast::{snapclient, snapserver};

/// Audio server for synchronized playback, and tools for loudness and RTP
///
/// `aulos serve` receives live audio from FIFOs, programs, files, web radio, live source clients
/// and RTP, plays the next source when one fails, and plays every station in sync on Snapcast
/// clients and in web browsers. The other commands measure, normalize, record and relay audio, and
/// control a server.
#[derive(Debug, Parser)]
#[command(name = "aulos", version, arg_required_else_help = true, max_term_width = 80)]
#[command(after_help = "\
Examples:
  aulos serve                      run the built-in station;
                                   then play it: snapclient -h localhost
  aulos serve aulos.toml           run the stations of a configuration file
  aulos check aulos.toml           check a configuration file
  aulos status                     show the stations of the running server
  aulos client volume kitchen 40   set the volume of a client
  aulos scan music/                measure every audio file below a folder
  aulos normalize in.wav out.wav   write a copy at -23 LUFS
  aulos meter demo://              show the loudness of the built-in programme
  aulos record demo:// demo.flac   record the built-in programme

Exit codes: 0 success, 1 negative result, 2 usage, 3 some files failed,
65 invalid data, 66 no input, 69 unavailable, 70 internal error,
73 cannot create output, 74 I/O error, 77 permission denied,
78 invalid configuration, 130 stopped by a signal.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    ///
    /// Without a configuration file the server runs one station, `default`, which plays the audio
    /// written to a FIFO and, while there is none, a built-in programme. It accepts connections
    /// from this machine only, unless `listen.address` says otherwise. SIGINT (Ctrl-C) and SIGTERM
    /// stop the server. SIGHUP reloads the configuration file; unchanged stations continue without
    /// a gap.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ConfigArgs),
    /// Check a configuration file
    ///
    /// Prints every problem with its file, line and column. Exits with 78 if there is one. Folders,
    /// files and programs that this machine does not have are warnings. Opens no port and starts
    /// nothing.
    #[command(after_help = "\
Examples:
  aulos check aulos.toml
  aulos check - < aulos.toml
  aulos check aulos.toml --set station.kitchen.codec=opus
  aulos check aulos.toml --offline    on another machine than the server's
  aulos check aulos.toml --fix")]
    Check(check::CheckArgs),
    /// Print the reference of the configuration, or its JSON Schema
    #[command(after_help = config::EXAMPLES)]
    Config(config::ReferenceArgs),
    /// Measure the loudness of files and folders
    ///
    /// Measures loudness, loudness range and peaks as defined by ITU-R BS.1770-4 and EBU R 128, and
    /// computes the gain to a target loudness. Prints a table, JSON lines or CSV with one row per
    /// file, in the order of the files. The row of a file that cannot be measured has the reason.
    #[command(after_help = scan::EXAMPLES)]
    Scan(scan::ScanArgs),
    /// Normalize the loudness of files and folders
    ///
    /// Applies one gain, computed from a measurement of the whole file (the default), one gain and
    /// a limiter, or the time-varying gain and the limiter of a station. Prints the loudness before
    /// and after, and reports a target that could not be reached. Writes WAVE, FLAC or Opus, to new
    /// files or in place.
    #[command(after_help = normalize::EXAMPLES)]
    Normalize(normalize::NormalizeArgs),
    /// Measure the loudness of a source while it plays
    ///
    /// Shows momentary (M), short-term (S) and integrated (I) loudness, loudness range (LRA) and
    /// true peak as defined by ITU-R BS.1770-4 and EBU R 128: as one text line per second, with
    /// --json as ten JSON lines per second. Ends with a summary when the source ends or on Ctrl-C;
    /// a FIFO or a listening port waits for the next sender instead.
    #[command(after_help = meter::EXAMPLES)]
    Meter(meter::MeterArgs),
    /// Record a source into files
    #[command(long_about = record::about(), after_help = record::EXAMPLES)]
    Record(record::RecordArgs),
    /// Play a station in sync with its other players
    ///
    /// Connects to a Snapcast server, this one or another, and plays its stream: to PulseAudio,
    /// PipeWire or ALSA, into a file, to standard output, or without sound. The server shows the
    /// player like any other client. The player connects again for as long as it runs. SIGINT
    /// (Ctrl-C) and SIGTERM end it.
    #[command(after_help = play::EXAMPLES)]
    Play(play::PlayArgs),
    /// Relay and transcode RTP streams
    ///
    /// Receives RTP packets, reorders, transcodes and forwards them: thousands of streams on a few
    /// threads. Each port of a range carries one stream; a single port carries many, identified by
    /// their SSRC.
    #[command(after_help = relay::EXAMPLES)]
    Relay(relay::RelayArgs),
    /// Call a control method of a running server
    ///
    /// Prints the result as JSON. Exits with 1 if the server answers with an error, and with 69 if
    /// it cannot be reached or does not answer within 5 s.
    #[command(after_help = "\
Examples:
  aulos rpc Server.GetStatus
  aulos rpc Client.SetVolume \\
      '{\"id\": \"00:21:6a:7d:74:fc\", \"volume\": {\"percent\": 40}}'
  aulos rpc General.GetRPCCommands --server kitchen.local
  aulos rpc Aulos.Reload --server kitchen.local --login /etc/aulos/login \\
      --tls-ca kitchen.pem")]
    Rpc(rpc::RpcArgs),
    /// Show the stations of a running server
    ///
    /// Prints each station with its sources, outputs and connected clients, and why a part of it has
    /// failed. A client has its group, its volume, and how far its sound is ahead of its time, if it
    /// reports that; players other than `aulos play` are only `connected`.
    #[command(after_help = calls::STATUS_EXAMPLES)]
    Status(calls::StatusArgs),
    /// List and change the clients of a running server
    ///
    /// Sets volumes, mutes, moves clients between groups, names them, imports filters, and plays test
    /// tones, and files in place of the programme. Exits with 1 if a name is unknown or fits several,
    /// and lists what there is.
    #[command(after_help = clients::CLIENT_EXAMPLES)]
    Client(clients::ClientArgs),
    /// List and change the groups of a running server
    ///
    /// Sets volumes, mutes, lets a group play another station, names groups, and plays test tones, and
    /// files in place of the programme. Exits with 1 if a name is unknown or fits several, and lists
    /// what there is.
    #[command(after_help = clients::GROUP_EXAMPLES)]
    Group(clients::GroupArgs),
    /// List and control the stations of a running server
    ///
    /// Lists them, switches to a source, controls the player behind a station, and plays files in
    /// place of the programme; `aulos status` shows sources, outputs and clients. Exits with 1 if a
    /// name is unknown or fits several, and lists what there is.
    #[command(after_help = clients::STATION_EXAMPLES)]
    Station(clients::StationArgs),
    /// Reload the configuration of a running server
    ///
    /// Prints what has changed; stations whose configuration is the same continue without a gap.
    /// Exits with 1 if the file has a problem, and changes nothing then.
    #[command(after_help = calls::RELOAD_EXAMPLES)]
    Reload(calls::ReloadArgs),
    /// Play a sound over a station's programme
    ///
    /// The programme is ducked meanwhile. All clients of a station hear it, or those of one group,
    /// or one client. Announcements to the same clients play one after the other.
    #[command(after_help = calls::ANNOUNCE_EXAMPLES)]
    Announce(calls::AnnounceArgs),
    /// Print the recorded history of loudness
    ///
    /// Reads the day files that a server keeps in its state directory, while it runs or later.
    #[command(after_help = history::EXAMPLES)]
    History(history::HistoryArgs),
    /// Find, export, check and hold recordings by time
    ///
    /// Works on the directory of a recorder, while a server records into it or later. Times are in
    /// UTC or with an offset, or local. The exit code is 1 if `verify` finds a problem, and if
    /// `find` finds no file.
    #[command(after_help = logger::EXAMPLES)]
    Logger(logger::LoggerArgs),
    /// Convert a configuration file of snapserver or Icecast
    ///
    /// Prints an aulos configuration. The mounts and relays of Icecast become mounts. Settings
    /// without a counterpart are listed in its comments and on standard error. Exits with 78 if the
    /// result has problems that need an edit.
    #[command(after_help = snapserver::CONVERT_EXAMPLES)]
    Convert(snapserver::ConvertArgs),
    /// Run the server with the arguments of snapserver
    ///
    /// Selected as well when the program is called under the name `snapserver`. Without `--config`
    /// it reads /etc/snapserver.conf, if that file exists.
    #[command(after_help = snapserver::SNAPSERVER_EXAMPLES)]
    Snapserver(snapserver::SnapserverArgs),
    /// Play with the arguments of snapclient
    ///
    /// Selected as well when the program is called under the name `snapclient`. The options of
    /// snapclient 0.26 to 0.34 are understood; `aulos play` has more.
    #[command(after_help = snapclient::EXAMPLES, disable_help_flag = true)]
    Snapclient(snapclient::SnapclientArgs),
    /// Print the completion script for a shell
    #[command(after_help = "\
Examples:
  aulos completions bash > ~/.local/share/bash-completion/completions/aulos
  aulos completions zsh > \"${fpath[1]}/_aulos\"")]
    Completions {
        /// Name of the shell
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_help = "\
Examples:
  aulos man | man -l -
  aulos man serve > aulos-serve.1")]
    Man {
        /// Command whose page to print [default: the page of aulos itself]
        command: Option<String>,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:
  aulos serve
      Run the built-in station. Play it with `snapclient -h localhost` or at
      http://localhost:1780. Send audio to it (the path of the FIFO is
      printed at startup):
      ffmpeg -re -i song.flac -f s16le -ar 48000 -ac 2 - > FIFO
  aulos serve --set listen.address=0.0.0.0
      Accept connections from other machines.
  aulos serve --set station.default.normalize=r128
      Normalize the station to -23 LUFS (EBU R 128).
  aulos serve aulos.toml --set station.kitchen.codec=opus
      Override any key of the file by its path; a station is addressed by
      name or number.";

/// Runs the command line of this process.
#[must_use]
pub(crate) fn main() -> Exit {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let name = arguments.first().and_then(|program| Path::new(program).file_name());
    let other_names =
        [("snapserver", snapserver::VERSION_LINE), ("snapclient", snapclient::VERSION_LINE)];
    if let Some((other, version)) =
        other_names.into_iter().find(|(other, _)| name == Some(other.as_ref()))
    {
        if arguments.iter().any(|argument| argument == "--version" || argument == "-v") {
            return print(version.as_bytes()).unwrap_or(Exit::Io);
        }
        arguments.insert(1, other.into());
    }
    // Without it the command installs its own, a little later.
    let handler = arguments
        .get(1..)
        .filter(|arguments| HangupHandler::is_needed(arguments))
        .and_then(|_| HangupHandler::install().ok());
    let text: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let asked = |when: &str| {
        let pair = text.windows(2).any(|pair| pair[0] == "--color" && pair[1] == when);
        pair || text.iter().any(|one| *one == format!("--color={when}"))
    };
    let color = match (asked("always"), asked("never")) {
        (true, _) => ColorChoice::Always,
        (_, true) => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    let matches = Cli::command().color(color).try_get_matches_from(arguments);
    let cli = matches.and_then(|matches| <Cli as clap::FromArgMatches>::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(mut error) => {
            keep_nearest_command(&mut error);
            // Help and version are not errors and go to standard output. A closed pipe is ignored.
            error.print().ok();
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    let is_server = matches!(cli.command, Command::Serve(_) | Command::Snapserver(_));
    log::start(&cli.output, is_server);
    // After the log's own hook, which gets what no guard contains.
    install_panic_hook();
    let is_player = matches!(cli.command, Command::Play(_) | Command::Snapclient(_));
    let result = run(cli, handler);
    if !is_server && !is_player {
        // Servers and players have reported them when they occurred.
        panic_reports().for_each(|report| tracing::error!("{report}"));
    }
    let exit = match result {
        Ok(exit) => exit,
        Err(Failure { exit, message }) => {
            note!("{}", message.trim_end());
            exit
        }
    };
    console::flush();
    exit
}

/// Of several commands that a word resembles, keeps the most similar one: `serve` for `serv`, and
/// not `snapserver` before it.
fn keep_nearest_command(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let Some(ContextValue::Strings(similar)) = error.get(ContextKind::SuggestedSubcommand) else {
        return;
    };
    let candidates: Vec<&str> = similar.iter().map(String::as_str).collect();
    if let Some(nearest) = did_you_mean(word, &candidates) {
        let nearest = ContextValue::Strings(vec![nearest.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, nearest);
    }
}

fn run(cli: Cli, handler: Option<HangupHandler>) -> Result<Exit, Failure> {
    match cli.command {
        Command::Serve(mut args) => {
            args.resolve_config_path();
            let network_command = args.network_command();
            serve::run(
                handler,
                move |reading| {
                    check_rereadable(args.config.as_deref(), reading)?;
                    load(&args)
                },
                "",
                &network_command,
            )
        }
        Command::Convert(args) => snapserver::convert_file(&args),
        Command::Snapserver(args) => snapserver::run(args, handler),
        Command::Snapclient(args) => snapclient::run(&args),
        Command::Check(args) => check::run(args),
        Command::Config(args) => config::run(&args),
        Command::Scan(args) => scan::run(&args, cli.output.quiet),
        Command::Normalize(args) => normalize::run(&args, cli.output.quiet),
        Command::Meter(args) => meter::run(&args, cli.output.quiet),
        Command::Record(args) => record::run(&args, cli.output.quiet, cli.output.color),
        Command::Play(args) => play::run(args, cli.output.quiet),
        Command::Relay(args) => relay::run(&args, cli.output.quiet, cli.output.color),
        Command::Rpc(args) => rpc::run(&args),
        Command::Status(args) => calls::status(&args),
        Command::Client(args) => clients::client(&args),
        Command::Group(args) => clients::group(&args),
        Command::Station(args) => clients::station(&args),
        Command::Reload(args) => calls::reload(&args),
        Command::Announce(args) => calls::announce(&args),
        Command::History(args) => history::run(&args),
        Command::Logger(args) => logger::run(&args),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "aulos", &mut out);
            print(&out)
        }
        Command::Man { command } => man(command.as_deref()),
    }
}

fn man(command: Option<&str>) -> Result<Exit, Failure> {
    let mut whole = Cli::command();
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => {
            let Some(part) = whole.find_subcommand(name) else {
                let hint = "`aulos --help` lists the commands";
                let message = format!("unknown command `{name}`\n    hint: {hint}");
                return Err(Failure::new(Exit::Usage, message));
            };
            part.clone()
        }
    };
    match manual_page(page) {
        Ok(page) => print(&page),
        Err(error) => Err(Failure::new(Exit::Internal, error.to_string())),
    }
}

/// The manual page of a command. The text after the help has examples, whose lines must stay: it is
/// not filled.
fn manual_page(command: clap::Command) -> io::Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (has_subcommands, has_version) =
        (command.has_subcommands(), command.get_version().is_some());
    let page = clap_mangen::Man::new(command.after_help(""));
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if has_subcommands {
        page.render_subcommands_section(&mut out)?;
    }
    out.extend_from_slice(b".SH EXAMPLES\n.nf\n");
    for line in after.trim_start_matches("Examples:").trim_matches('\n').lines() {
        // A point or an apostrophe at the beginning would be a request of roff.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        writeln!(out, "\\&{line}")?;
    }
    out.extend_from_slice(b".fi\n");
    if has_version {
        page.render_version_section(&mut out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of a standard terminal.
    const HELP_WIDTH: usize = 80;

    #[test]
    fn the_table_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_matches_its_expected_text() {
        let mut command = Cli::command().color(ColorChoice::Never).term_width(HELP_WIDTH);
        command.build();
        let mut text = command.render_long_help().to_string();
        for part in command.get_subcommands_mut().filter(|part| part.get_name() != "help") {
            text += &format!(
                "\n{:=^HELP_WIDTH$}\n\n{}",
                format!(" {} ", part.get_name()),
                part.render_long_help()
            );
        }
        for line in text.lines() {
            assert!(line.chars().count() <= HELP_WIDTH, "longer than a terminal is wide: {line}");
        }
        aulos_blackbox::golden::compare(env!("CARGO_MANIFEST_DIR"), "help.txt", &text);
    }

    /// Help and documents list what the tables know.
    #[test]
    fn what_the_tables_know_is_in_the_help_and_in_the_comparison() {
        let mut command = Cli::command();
        let record = command.find_subcommand_mut("record").unwrap().render_long_help().to_string();
        let record = record.split_whitespace().collect::<Vec<_>>().join(" ");
        for format in &aulos_files::record::format::FILE_FORMATS {
            assert!(record.contains(format.title), "record --help: {}", format.title);
            assert!(
                record.contains(&format!(".{}", format.name)),
                "record --help: {}",
                format.name
            );
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/comparison.md");
        let comparison = std::fs::read_to_string(path).unwrap();
        let row = |title: &str| {
            let row = comparison.lines().find(|line| line.starts_with(&format!("| {title} |")));
            row.unwrap_or_else(|| panic!("no row {title:?}")).to_lowercase()
        };
        let (clients, push) =
            (row("codecs to synchronized clients"), row("stream pushed to an Icecast server"));
        for codec in &aulos_core::CODECS {
            assert!(!codec.is_for_stations || clients.contains(codec.name), "{}", codec.name);
            // PCM is pushed as WAVE.
            let pushed = if codec.name == "pcm" { "wave" } else { codec.name };
            assert!(push.contains(pushed), "{pushed}");
        }
    }

    #[test]
    fn every_command_has_an_example() {
        for part in Cli::command().get_subcommands().filter(|part| part.get_name() != "help") {
            let help = part.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{}", part.get_name());
            // Examples are not wrapped: a break would make them fail when pasted.
            let after = part.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = after.lines().find(|line| line.chars().count() > HELP_WIDTH);
            assert_eq!(long, None, "{}", part.get_name());
        }
    }
}

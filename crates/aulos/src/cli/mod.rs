//! The command line: one definition for the parser, the help, the manual page and the completions.

mod figures;
mod meter;
mod normalize;
mod reader;
mod record;
mod relay;
mod rpc;
mod scan;
mod serve;
mod signals;
mod snapserver;
mod source;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use aulos_config::{Environment, ResolvedConfig, limits};
use aulos_server::exit::{Exit, Failure};
use serve::LoadReason;

/// Any live audio in, steady and in time out.
///
/// aulos takes live sound from wherever it comes, never falls silent, and plays it in sync on every
/// Snapcast client in the house and in every browser.
#[derive(Debug, Parser)]
#[command(name = "aulos", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  aulos serve                      hear the built-in programme: snapclient -h localhost
  aulos serve --config aulos.toml  run your own stations
  aulos check --config aulos.toml  is it right? every problem with its line
  aulos scan music/                how loud is it? every file below
  aulos normalize in.wav out.wav   a file at -23 LUFS
  aulos meter demo://              how loud is it now?
  aulos record demo:// demo.flac   keep it

Exit codes: 0 ok, 1 negative result, 2 usage, 3 some files failed, 65 bad data, 66 no input,
69 unavailable, 70 internal, 73 cannot create, 74 I/O, 77 permission, 78 config, 130 stopped.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    chatter: OutputArgs,
}

#[derive(Debug, Args)]
struct OutputArgs {
    /// Say more on standard error; twice says everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Everywhere")]
    verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Everywhere")]
    quiet: bool,
    /// Colours: `auto` is on a terminal and without `NO_COLOR`
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Everywhere"
    )]
    color: ColorMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ColorMode {
    Auto,
    Always,
    Never,
}

impl ColorMode {
    /// Whether to use colors on a stream; `terminal` tells whether it is one.
    fn colors(self, terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    ///
    /// Without a configuration it runs one station, `default`: what is written to a FIFO, and a
    /// built-in programme while nothing is. It listens on this machine only until it is told
    /// otherwise. SIGINT (Ctrl-C) and SIGTERM end it. SIGHUP makes it read its configuration file
    /// again; stations that are the same play on untouched.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ConfigArgs),
    /// Say everything that is wrong with a configuration
    ///
    /// Prints every problem with its file, line and column, and ends with 78 if there is one.
    /// Nothing is opened and nothing is started.
    #[command(after_help = "\
Examples:
  aulos check --config aulos.toml
  aulos check --config - < aulos.toml
  aulos check --config aulos.toml --set station.kitchen.codec=opus")]
    Check(ConfigArgs),
    /// Measure the loudness of files and folders
    ///
    /// Loudness, loudness range and peaks after ITU-R BS.1770-4 and EBU R 128, and the gain to a
    /// target. Prints a table, JSON or CSV with one row per file, in the order of the files. A file
    /// that cannot be measured is a row that says why.
    #[command(after_help = scan::EXAMPLES)]
    Scan(scan::ScanArgs),
    /// Bring files to a loudness
    ///
    /// With one gain from a measurement of the whole (the default), with one gain and a limiter, or
    /// with the gain that moves and the limiter that live sound gets. Prints what it was and what it
    /// is, and says where the target could not be reached. Writes WAVE, FLAC or Opus, of one file or
    /// of a folder, to another place or in place.
    #[command(after_help = normalize::EXAMPLES)]
    Normalize(normalize::NormalizeArgs),
    /// Show how loud a source is, while it plays
    ///
    /// Momentary (M), short-term (S) and integrated (I) loudness, loudness range (LRA) and true peak
    /// after ITU-R BS.1770-4 and EBU R 128, ten times a second: on a terminal as a screen, as lines
    /// of JSON with --json, otherwise as one line a second. It ends with its source, or on Ctrl-C,
    /// with a summary; a FIFO and a listening port wait for the next sender instead.
    #[command(after_help = meter::EXAMPLES)]
    Meter(meter::MeterArgs),
    /// Record a source into files
    ///
    /// WAVE, FLAC or Ogg Opus, with a new file after a time, at a size or by the clock, without a gap
    /// between them. What a kill or a loss of power leaves behind is whole but for the last half second,
    /// or the last six.
    #[command(after_help = record::EXAMPLES)]
    Record(record::RecordArgs),
    /// Relay RTP: many streams in, another encoding out
    ///
    /// Receives, puts in order, transcodes and sends on, thousands of streams on a few threads. Each port
    /// of a range is one stream; one port alone takes many, told apart by their SSRC.
    #[command(after_help = relay::EXAMPLES)]
    Relay(relay::RelayArgs),
    /// Make one control call to a running server
    ///
    /// Prints the result as JSON. Ends with 1 when the server answers with an error, and with 69
    /// when it does not answer.
    #[command(after_help = "\
Examples:
  aulos rpc Server.GetStatus
  aulos rpc Client.SetVolume '{\"id\": \"00:21:6a:7d:74:fc\", \"volume\": {\"percent\": 40}}'
  aulos rpc General.GetRPCCommands --server kitchen.local
  aulos rpc Aulos.Reload --login /etc/aulos/login --tls-ca kitchen.pem --server kitchen.local")]
    Rpc(RpcArgs),
    /// Turn snapserver's configuration into ours
    ///
    /// Prints it. What has no counterpart is a comment in it and said on standard error; ends with
    /// 78 when what came out still has to be looked at.
    #[command(after_help = snapserver::CONVERT_EXAMPLES)]
    Convert(snapserver::ConvertArgs),
    /// Run as snapserver does, with snapserver's arguments
    ///
    /// Also when it is called under the name `snapserver`. Without `--config` it reads
    /// /etc/snapserver.conf, if that is there.
    #[command(after_help = snapserver::SNAPSERVER_EXAMPLES)]
    Snapserver(snapserver::SnapserverArgs),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  aulos completions bash > ~/.local/share/bash-completion/completions/aulos
  aulos completions zsh > \"${fpath[1]}/_aulos\"")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_help = "\
Examples:
  aulos man | man -l -
  aulos man serve > aulos-serve.1")]
    Man {
        /// Of this command instead of the whole
        command: Option<String>,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:
  aulos serve
      then hear it:       snapclient -h localhost    or    http://localhost:1780
      and send it sound:  ffmpeg -re -i song.flac -f s16le -ar 48000 -ac 2 - > FIFO
      (the name of the FIFO is printed at the start)
  aulos serve --set listen.address=0.0.0.0
      for every machine on the network
  aulos serve --set station.default.normalize=r128
      one loudness (EBU R 128), whatever is sent; normalize.target=-18 for another one
  aulos serve --config aulos.toml --set station.kitchen.codec=opus
      every key of the file can be set: by its path, a station by name or number";

#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration file; `-` is standard input
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Where to keep groups, names and volumes
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    state_dir: Option<PathBuf>,
    /// Set a key of the configuration; may be given many times
    #[arg(long = "set", short = 's', value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

#[derive(Debug, Args)]
struct RpcArgs {
    /// The method, as in Server.GetStatus
    method: String,
    /// Its parameters, a JSON object; `-` is standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    params: String,
    /// Where the server is
    #[arg(long, value_name = "HOST[:PORT]", default_value = "localhost:1705")]
    server: String,
    /// Log in with what stands in this file: `user:password`, or a token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    login: Option<PathBuf>,
    /// Speak TLS, and trust this certificate or whom it vouches for (PEM)
    ///
    /// A server's own is `tls/cert.pem` in its state directory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tls_ca: Option<PathBuf>,
}

/// Runs the command line of this process.
#[must_use]
pub(crate) fn main() -> Exit {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let name = arguments.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == "snapserver") {
        if arguments.iter().any(|argument| argument == "--version" || argument == "-v") {
            return print(snapserver::VERSION_LINE.as_bytes()).unwrap_or(Exit::Io);
        }
        arguments.insert(1, "snapserver".into());
    }
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
        Err(error) => {
            // Help and version are not errors and go to standard output. A closed pipe is ignored.
            error.print().ok();
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    start_log(&cli.chatter);
    match run(cli) {
        Ok(exit) => exit,
        Err(Failure { exit, message }) => {
            eprintln!("{}", message.trim_end());
            exit
        }
    }
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(
            move |reading| {
                check_rereadable(args.config.as_deref(), reading)?;
                load(&args)
            },
            "",
        ),
        Command::Convert(args) => snapserver::convert_file(&args),
        Command::Snapserver(args) => snapserver::run(args),
        Command::Check(args) => check(&args),
        Command::Scan(args) => scan::run(&args, cli.chatter.quiet),
        Command::Normalize(args) => normalize::run(&args, cli.chatter.quiet),
        Command::Meter(args) => meter::run(&args, cli.chatter.quiet, cli.chatter.color),
        Command::Record(args) => record::run(&args, cli.chatter.quiet, cli.chatter.color),
        Command::Relay(args) => relay::run(&args, cli.chatter.quiet, cli.chatter.color),
        Command::Rpc(args) => rpc::run(&args),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "aulos", &mut out);
            print(&out)
        }
        Command::Man { command } => man(command.as_deref()),
    }
}

/// The problems are the result of `check`, so they go to standard output.
fn check(args: &ConfigArgs) -> Result<Exit, Failure> {
    match load(args) {
        Ok(resolved) => {
            let sources: usize =
                resolved.stations.iter().map(|station| station.sources.len()).sum();
            tracing::info!(
                "no problem: {} station(s), {sources} source(s)",
                resolved.stations.len()
            );
            Ok(Exit::Ok)
        }
        Err(Failure { exit: Exit::Config, message }) => {
            print(message.as_bytes())?;
            Ok(Exit::Config)
        }
        Err(failure) => Err(failure),
    }
}

fn man(command: Option<&str>) -> Result<Exit, Failure> {
    let mut whole = Cli::command();
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => {
            let Some(part) = whole.find_subcommand(name) else {
                return Err(Failure::new(Exit::Usage, format!("there is no command `{name}`")));
            };
            part.clone()
        }
    };
    let mut out = Vec::new();
    match clap_mangen::Man::new(page).render(&mut out) {
        Ok(()) => print(&out),
        Err(error) => Err(Failure::new(Exit::Internal, error.to_string())),
    }
}

fn load(args: &ConfigArgs) -> Result<ResolvedConfig, Failure> {
    let file = args.config.as_deref().map(read_config).transpose()?;
    let file = file.as_ref().map(|(name, text)| aulos_config::ConfigFile { name, text });
    let env = Environment::of_process();
    let mut resolved = aulos_config::load(file, &args.sets, &env)
        .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    if let Some(dir) = &args.state_dir {
        resolved.state_dir.clone_from(dir);
    }
    Ok(resolved)
}

/// Checks before a reload that the configuration can be read again: standard input and pipes are
/// empty by now, which would read as a configuration without stations.
fn check_rereadable(path: Option<&Path>, reading: LoadReason) -> Result<(), Failure> {
    let Some(path) = path.filter(|_| reading == LoadReason::Again) else { return Ok(()) };
    // If this fails, reading the file reports the error.
    if path != Path::new("-") && std::fs::metadata(path).map_or(true, |data| data.is_file()) {
        return Ok(());
    }
    let why = "it is not a file, so it cannot be read again; restart the server instead";
    Err(Failure::new(Exit::NoInput, format!("{}: {why}", path.display())))
}

fn read_config(path: &Path) -> Result<(String, String), Failure> {
    use io::Read;
    let name = if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
    let fail = |exit, why: &dyn std::fmt::Display| Failure::new(exit, format!("{name}: {why}"));
    let mut bytes = Vec::new();
    let limit = limits::MAX_FILE;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => fail(Exit::NoInput, &"there is no such file"),
        io::ErrorKind::PermissionDenied => fail(Exit::Permission, &error),
        _ => fail(Exit::Io, &error),
    })?;
    if bytes.len() as u64 > limit {
        return Err(fail(Exit::Config, &format!("a configuration has at most {limit} bytes")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((name, text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let lines = error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
            Err(fail(Exit::Config, &format!("line {} is not UTF-8", lines + 1)))
        }
    }
}

/// Writes to standard output; a closed pipe counts as success.
fn print(bytes: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    is_reader_open(out.write_all(bytes).and_then(|()| out.flush())).map(|_| Exit::Ok)
}

/// Whether standard output is still open; other errors are failures.
fn is_reader_open(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Exit::Io, format!("standard output: {error}"))),
    }
}

/// All problems of command line arguments, with their hints.
fn usage_failure(problems: &[aulos_config::Problem]) -> Failure {
    let lines = problems.iter().map(|aulos_config::Problem { message, hint, .. }| match hint {
        Some(hint) => format!("{message}\n    hint: {hint}"),
        None => message.clone(),
    });
    Failure::new(Exit::Usage, lines.collect::<Vec<_>>().join("\n"))
}

fn start_log(chatter: &OutputArgs) {
    use tracing::level_filters::LevelFilter;
    let level = match (chatter.quiet, chatter.verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::INFO,
        (_, 1) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let ansi = chatter.color.colors(io::stderr().is_terminal());
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level)
        .with_ansi(ansi)
        .with_target(false)
        .without_time()
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_matches_its_expected_text() {
        let mut command = Cli::command().color(ColorChoice::Never).term_width(100);
        command.build();
        let mut text = command.render_long_help().to_string();
        for part in command.get_subcommands_mut().filter(|part| part.get_name() != "help") {
            text += &format!(
                "\n{:=^100}\n\n{}",
                format!(" {} ", part.get_name()),
                part.render_long_help()
            );
        }
        aulos_blackbox::golden::compare(env!("CARGO_MANIFEST_DIR"), "help.txt", &text);
    }

    #[test]
    fn every_command_has_an_example() {
        for part in Cli::command().get_subcommands().filter(|part| part.get_name() != "help") {
            let help = part.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{}", part.get_name());
        }
    }
}

//! `aulos-player`: the player alone, for small machines. Its options are those of `aulos play`.

#![forbid(unsafe_code)]

use core::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use aulos_engine::codec_guard::install_panic_hook;
use aulos_player::{
    OutputConfig, PlayOptions, PlayOutput, parse_format, parse_instance, parse_latency,
    parse_seconds, play, print_devices, print_failure,
};
use aulos_rt::scratch::ScratchAllocator;

/// The thread that plays decodes Opus.
#[global_allocator]
static ALLOCATOR: ScratchAllocator = ScratchAllocator::new();

const HELP: &str = "\
Play a station of a Snapcast server, in sync with its other players

Usage: aulos-player [OPTIONS] [SERVER]

Arguments:
  [SERVER]  tcp://[USER:PASSWORD@]HOST[:PORT], ws://..., or the type of mDNS
            services to search for [default: tcp://_snapcast._tcp]

Options:
      --server NAME    Name of the server among those that a search finds
                       [default: the first one that answers]
      --output OUTPUT  auto, pulse[:SINK], alsa[:DEVICE], alsa-hw[:CARD[,DEV]],
                       null, file:PATH or stdout [default: auto, a sound server
                       or else ALSA]
      --force          Replace the file of --output file:PATH if it exists
      --list-outputs   Print the sound devices of this machine
      --id ID          Id on the server [default: the MAC address of this host]
      --name NAME      Name on the server [default: the name of this host]
      --instance N     Number of this player on this host [default: 1]
      --latency MS     Delay of the device that it does not report [default: 0]
      --format FORMAT  Samples of a file or device: 16, 24, 32 or f32
                       [default: the format of the stream]
      --mixer MIXER    What follows the volume: software, none or script:PATH
                       [default: software]
      --on-start CMD   Run this with the shell when sound begins
      --on-stop CMD    Run this when sound has ended
      --stop-after S   Seconds of silence before --on-stop, and before the
                       device is released (5 at most) [default: 5]
TLS_OPTIONS      --json           Print the status as one JSON object per second
      --status         Print a status line per second, also without a terminal
  -q, --quiet          Print no messages
  -h, --help           Print this help
  -V, --version        Print the version

Options of outputs: ?latency=MS; for sound devices and null also ?buffer=MS, and
for null ?ppm=N, as in null?latency=20&ppm=50. Samples of a file sound `latency`
(10 ms) after they are written; a name that ends in .wav makes a WAVE file.
";

/// Only where there is TLS.
const TLS_HELP: &str = "\
      --server-cert F  Certificate of the server, or of its authority, for wss://
                       and tls:// [default: those of the system]
      --cert F         Certificate of this player
      --cert-key F     Its private key
";

fn help() -> String {
    HELP.replace("TLS_OPTIONS", if cfg!(feature = "tls") { TLS_HELP } else { "" })
}

fn main() -> ExitCode {
    install_panic_hook();
    let (options, output) = match parse(std::env::args().skip(1)) {
        Ok(Parsed::Play(options, output)) => (options, output),
        Ok(Parsed::Print(text)) => {
            // A closed pipe is no failure.
            drop(io::stdout().write_all(text.as_bytes()));
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::ListOutputs) => {
            // A closed pipe is no failure.
            drop(print_devices());
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            return fail(&format!("{message}\nTry `aulos-player --help`."), USAGE);
        }
    };
    let (config, hooks) = match options.into_config() {
        Ok(config) => config,
        Err(error) => return fail(&error, UNREADABLE),
    };
    match play(config, output, hooks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, error.exit_code()),
    }
}

/// The exit code of a failure, whose message is printed.
fn fail(message: &dyn Display, code: u8) -> ExitCode {
    print_failure(message);
    ExitCode::from(code)
}

enum Parsed {
    Play(Box<PlayOptions>, PlayOutput),
    Print(String),
    ListOutputs,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Parsed, String> {
    let mut options = PlayOptions::new(OutputConfig::default());
    let mut output = PlayOutput::default();
    let (mut has_server, mut force) = (false, false);
    while let Some(argument) = arguments.next() {
        let (option, inline) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let mut value = || {
            let value = inline.clone().or_else(|| arguments.next());
            value.ok_or_else(|| format!("`{option}` needs a value"))
        };
        match option {
            "--server" => options.server_name = Some(value()?),
            "--output" => options.output = checked(value()?.parse())?,
            "--id" => options.id = Some(value()?),
            "--name" => options.name = Some(value()?),
            "--instance" => options.instance = checked(parse_instance(&value()?))?,
            "--latency" => options.latency = checked(parse_latency(&value()?))?,
            "--format" => options.format = Some(checked(parse_format(&value()?))?),
            "--mixer" => options.mixer = checked(value()?.parse())?,
            "--on-start" => options.hooks.on_start = Some(value()?),
            "--on-stop" => options.hooks.on_stop = Some(value()?),
            "--stop-after" => options.hooks.stop_after = checked(parse_seconds(&value()?))?,
            "--server-cert" if HAS_TLS => options.tls.server_ca = Some(value()?.into()),
            "--cert" if HAS_TLS => options.tls.certificate = Some(value()?.into()),
            "--cert-key" if HAS_TLS => options.tls.key = Some(value()?.into()),
            _ if inline.is_some() => return Err(format!("unknown option `{option}`")),
            "--json" => output.json = true,
            "--status" => output.status = true,
            "--force" => force = true,
            "--list-outputs" => return Ok(Parsed::ListOutputs),
            "-q" | "--quiet" => output.quiet = true,
            "-h" | "--help" => return Ok(Parsed::Print(help())),
            "-V" | "--version" => {
                return Ok(Parsed::Print(format!("aulos-player {}\n", env!("CARGO_PKG_VERSION"))));
            }
            _ if option.starts_with('-') => return Err(format!("unknown option `{option}`")),
            _ if has_server => return Err(format!("one server too many: `{argument}`")),
            _ => {
                options.server = checked(argument.parse())?;
                has_server = true;
            }
        }
    }
    if force {
        options.output = options.output.replacing();
    }
    Ok(Parsed::Play(Box::new(options), output))
}

const HAS_TLS: bool = cfg!(feature = "tls");

/// The message of an error.
fn checked<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Exit codes: a wrong command line, and a file that cannot be read (sysexits.h).
const USAGE: u8 = 2;
const UNREADABLE: u8 = 66;

#[cfg(test)]
mod tests {
    use aulos_core::Span;
    use aulos_player::Mixer;

    use super::*;

    fn parsed(line: &str) -> Result<Parsed, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_parsed_in_both_forms() {
        let line = "--id=k --instance 3 tcp://kitchen --latency=2.5 --output stdout --format f32 -q \
             --mixer none --on-stop=off --stop-after 60";
        let Ok(Parsed::Play(options, output)) = parsed(line) else { panic!("{line}") };
        let (config, hooks) = options.into_config().unwrap();
        assert_eq!(config.hello.client_id(), "k#3");
        assert_eq!((config.mixer, hooks.on_stop.as_deref()), (Mixer::None, Some("off")));
        let times = [hooks.stop_after, config.release_after];
        assert_eq!(times, [Span::from_secs(60), Span::from_secs(5)]);
        assert_eq!(config.server.to_string(), "tcp://kitchen:1704");
        assert_eq!(config.latency, Span::from_micros(2_500));
        assert!(config.output.is_stdout() && output.quiet && !output.json);
    }

    #[test]
    fn a_wrong_command_line_is_refused_with_the_reason() {
        for (line, reason) in [
            ("--outputs null", "unknown option `--outputs`"),
            ("--output", "`--output` needs a value"),
            ("--json=1", "unknown option `--json`"),
            ("--output speaker", "unknown output `speaker`"),
            ("--instance 0", "`0` is not the number of a player"),
            ("--latency soon", "`soon` is not a latency"),
            ("--format 8", "`8` is not a sample format"),
            ("http://a", "expected tcp, ws, wss or tls"),
            ("--mixer hardware", "unknown mixer `hardware`"),
            ("--stop-after 0", "`0` is not a time"),
            ("a b", "one server too many: `b`"),
        ] {
            let Err(message) = parsed(line) else { panic!("{line}") };
            assert!(message.contains(reason), "{line}: {message}");
        }
    }

    #[test]
    fn the_help_fits_a_terminal_and_names_every_option() {
        assert!(help().lines().all(|line| line.chars().count() <= 80));
        let Ok(Parsed::Print(text)) = parsed("--help") else { panic!("no help") };
        assert_eq!(text, help());
    }
}

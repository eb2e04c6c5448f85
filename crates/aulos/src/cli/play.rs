//! `aulos play`: the synchronised player.

use std::path::PathBuf;

use aulos_core::{SampleFormat, Span};
use aulos_player::{
    HookConfig, Mixer, OutputConfig, PlayError, PlayOptions, PlayOutput, ServerAddress, TlsFiles,
    parse_format, parse_instance, parse_latency, parse_seconds, print_devices,
};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueHint};

#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    /// Address of the server: `tcp://HOST[:PORT]`, `ws://`, `wss://` or `tls://`, or a type of mDNS
    /// services
    ///
    /// A login is written in front of the host, `USER:PASSWORD@`. Without an address, and with
    /// `tcp://_snapcast._tcp`, the player takes the first server that answers on this network, or
    /// one on this machine. The default ports are 1704, with ws 1780, with wss 1788.
    #[arg(value_name = "ADDRESS", default_value = "tcp://_snapcast._tcp")]
    address: ServerAddress,
    /// Name of the server among those that a search finds [default: the first one that answers]
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Where to play: `auto`, `pulse[:SINK]`, `alsa[:DEVICE]`, `alsa-hw[:CARD[,DEVICE]]`, `null` (a
    /// device without sound), `file:PATH` or `stdout`
    ///
    /// `pulse` is a sound server, PulseAudio or PipeWire, of the user that runs the player. `auto`
    /// is `pulse` if a server answers, and otherwise `alsa`. Both take `?buffer=` ms (200, 80) and
    /// `?latency=` ms, which they do not know themselves. `alsa-hw` is a sound card without ALSA's
    /// library (experimental). A device that is missing, busy or lost is tried again once a second.
    ///
    /// A file has the samples of the stream bit by bit, at volume 100 and while its clock follows
    /// that of the server: raw, or WAVE if its name ends in .wav. A sample sounds 10 ms after it
    /// was written, or `?latency=` ms. `null` also takes `?buffer=` ms and `?ppm=`, the error of
    /// its clock.
    #[arg(long, value_name = "OUTPUT", default_value = "auto")]
    output: OutputConfig,
    /// Replace the file of `--output file:PATH` if it exists
    #[arg(long)]
    force: bool,
    /// Print the sound devices of this machine, as `--output` names them
    #[arg(long)]
    list_outputs: bool,
    /// Id by which the server knows this player [default: the MAC address of this host]
    #[arg(long)]
    id: Option<String>,
    /// Name that the server shows [default: the name of this host]
    #[arg(long)]
    name: Option<String>,
    /// Number of this player among those of this host
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_instance)]
    instance: u32,
    /// Delay of the device that it does not report, in milliseconds
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_latency)]
    #[arg(allow_negative_numbers = true)]
    latency: Span,
    /// Sample format of a file, a device or standard output: 16, 24 (in 4 bytes; in WAVE in 3), 32
    /// or f32 [default: the format of the stream]
    #[arg(long, value_parser = parse_format)]
    format: Option<SampleFormat>,
    /// What follows the volume that the server sets: `software`, `none` or `script:PATH`
    ///
    /// A script is called with `--volume 0.5 --mute false`.
    #[arg(long, value_name = "MIXER", default_value = "software")]
    mixer: Mixer,
    /// Run this command with the shell when sound begins
    #[arg(long, value_name = "COMMAND")]
    on_start: Option<String>,
    /// Run this command with the shell when sound has ended, and when the player ends
    #[arg(long, value_name = "COMMAND")]
    on_stop: Option<String>,
    /// Time of silence before `--on-stop`, in seconds
    ///
    /// The sound device is released after so much silence too, but at most after 5 s.
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_seconds)]
    stop_after: Span,
    /// Certificate of the server, or of its authority, for wss:// and tls:// [default: those of the
    /// system]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    server_cert: Option<PathBuf>,
    /// Certificate of this player, for servers that require one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert_key")]
    cert: Option<PathBuf>,
    /// Private key of `--cert`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert")]
    cert_key: Option<PathBuf>,
    /// Print the status as one JSON object per second
    #[arg(long)]
    json: bool,
    /// Print a status line per second to standard error, also if that is no terminal
    #[arg(long)]
    status: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos play tcp://kitchen.local
  aulos play --output alsa:hw:0,0 --latency 12.5
  aulos play --output file:heard.wav
  aulos play --json --output null | jq .error_us
  aulos play wss://anna:secret@kitchen --server-cert kitchen.pem
  aulos play --on-start 'gpioset 0 17=1' --on-stop 'gpioset 0 17=0'
  aulos play --output 'null?ppm=50&latency=20' --status --id probe

The status says how far the sound is from its time, how well the server's clock
is known, by how much both clocks drift, and what was corrected or lost. Values
that are not known are null in JSON and a dash in text.";

pub(super) fn run(args: PlayArgs, quiet: bool) -> Result<Exit, Failure> {
    if args.list_outputs {
        // A closed pipe is no failure.
        drop(print_devices());
        return Ok(Exit::Ok);
    }
    let options = PlayOptions {
        server: args.address,
        server_name: args.server,
        tls: TlsFiles { server_ca: args.server_cert, certificate: args.cert, key: args.cert_key },
        output: if args.force { args.output.replacing() } else { args.output },
        format: args.format,
        mixer: args.mixer,
        latency: args.latency,
        id: args.id,
        name: args.name,
        instance: args.instance,
        hooks: HookConfig {
            on_start: args.on_start,
            on_stop: args.on_stop,
            stop_after: args.stop_after,
        },
    };
    play(options, PlayOutput { json: args.json, status: args.status, quiet })
}

/// Plays until the end.
pub(super) fn play(options: PlayOptions, output: PlayOutput) -> Result<Exit, Failure> {
    let (config, hooks) =
        options.into_config().map_err(|error| Failure::new(Exit::NoInput, error.to_string()))?;
    match aulos_player::play(config, output, hooks) {
        Ok(()) => Ok(Exit::Ok),
        Err(error) => Err(Failure::new(exit_code_of(&error), error.to_string())),
    }
}

fn exit_code_of(error: &PlayError) -> Exit {
    use aulos_player::OutputError;
    match error {
        PlayError::StdoutTwice => Exit::Usage,
        PlayError::Output(OutputError::Open { .. }) => Exit::CannotCreate,
        PlayError::Output(_) | PlayError::Report(_) => Exit::Io,
        _ => Exit::Internal,
    }
}

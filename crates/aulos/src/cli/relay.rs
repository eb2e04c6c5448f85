//! `aulos relay`: relays RTP until a signal ends it.

mod output;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use aulos_config::RelaySettings;
use aulos_server::exit::{Exit, Failure};
use aulos_server::relay::{RelaySnapshot, Relays};
use clap::{Args, ValueHint};

use super::output::console::note;
use super::output::{ColorMode, SideReport, usage_failure};
use super::signals::Signals;
use output::TableView;

#[derive(Debug, Args)]
pub(super) struct RelayArgs {
    /// Address to receive on: one port for many streams, or a range with a port for each stream;
    /// trunk://ADDRESS:PORT receives from another relay
    #[arg(value_name = "udp://ADDRESS:PORT[-PORT]", required_unless_present = "config")]
    #[arg(requires_all = ["from", "to", "dest"])]
    listen: Option<String>,
    /// Second address to receive the same streams on, over another network path; the first copy of
    /// each packet is used
    #[arg(long, value_name = "udp://ADDRESS:PORT[-PORT]", conflicts_with = "config")]
    also: Option<String>,
    /// Encoding of the input: pcmu, pcma, g722, opus, l16/RATE/CHANNELS or l24/RATE/CHANNELS, each
    /// with an optional RTP payload type, as in opus:111
    #[arg(long, value_name = "CODEC")]
    from: Option<String>,
    /// Encoding of the output, in the same form
    #[arg(long, value_name = "CODEC")]
    to: Option<String>,
    /// Address to send to: one port for all streams, or a range with a port for each;
    /// trunk://HOST:PORT sends to another relay
    #[arg(long, value_name = "udp://HOST:PORT[-PORT]")]
    dest: Option<String>,
    /// RTP payload type of DTMF telephone-events, 96 to 127; 101:96 if input and output differ
    #[arg(long, value_name = "TYPE[:TYPE]", conflicts_with = "config")]
    events: Option<String>,
    /// RTP payload type of received RED (RFC 2198), 96 to 127; lost packets are restored from it
    #[arg(long, value_name = "TYPE", conflicts_with = "config", value_parser = clap::value_parser!(u32).range(96..=127))]
    red_from: Option<u32>,
    /// Send RED (RFC 2198) with this RTP payload type, 96 to 127
    #[arg(long, value_name = "TYPE", conflicts_with = "config", value_parser = clap::value_parser!(u32).range(96..=127))]
    red_to: Option<u32>,
    /// Number of earlier packets that each RED packet repeats, 1 to 4 [default: 1]
    #[arg(long, value_name = "N", requires = "red_to", value_parser = clap::value_parser!(u32).range(1..=4))]
    red_distance: Option<u32>,
    #[allow(rustdoc::broken_intra_doc_links, reason = "this is the help text: TOML, not a link")]
    /// Configuration file whose [[relay]] tables to run; `-` reads standard input
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["listen", "from", "to", "dest"])]
    config: Option<PathBuf>,
    /// How long a packet waits for a missing earlier one, 0 to 1000 ms
    #[arg(long, value_name = "MS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    hold: u32,
    /// Time without packets after which another sender address may take over a stream, 0 to 60000
    /// ms
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    takeover: u32,
    /// Send each stream from the port on which it is received (symmetric RTP)
    #[arg(long)]
    symmetric: bool,
    /// Send no RTCP reports
    #[arg(long)]
    no_rtcp: bool,
    /// Opus bit rate, 6000 to 510000 bit/s
    #[arg(long, value_name = "BPS", default_value_t = 24_000, value_parser = clap::value_parser!(u32).range(6_000..=510_000))]
    opus_bitrate: u32,
    /// Opus encoder complexity, 0 (least CPU) to 10 (best quality)
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=10))]
    opus_complexity: u32,
    /// Send Opus in-band FEC: each packet repeats the previous one in low quality
    #[arg(long)]
    opus_fec: bool,
    /// Number of threads, 1 to 64 [default: one per processor, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Show a table of the streams, updated once per second
    #[arg(long, conflicts_with = "json")]
    top: bool,
    /// Print one JSON object per second, and a final one with every stream
    #[arg(long)]
    json: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos relay udp://0.0.0.0:6000-6999 --from pcmu --to pcma \\
      --dest udp://192.0.2.7:7000
      Forward a thousand streams, each received on its own port, to one port.
  aulos relay udp://0.0.0.0:5004 --from l16/48000/2 --to opus:111 \\
      --dest udp://192.0.2.7:5004 --top
      Transcode all streams of one port, and show them.
  aulos relay udp://0.0.0.0:5004 --also udp://0.0.0.0:5006 \\
      --from opus:111 --red-from 112 --to l16 --dest udp://192.0.2.7:5004
      Receive a stream over two network paths and with RED.
  aulos relay udp://0.0.0.0:6000-6999 --from pcmu --to pcmu \\
      --dest trunk://192.0.2.7:7000
  aulos relay trunk://0.0.0.0:7000 --from pcmu --to pcma \\
      --dest udp://127.0.0.1:6000-6999
      Send a thousand streams from one machine to another in large datagrams.
  aulos relay --config relays.toml --json | jq '.relays[].lost'

RTP and RTCP share each port (RFC 5761). The relay sends one packet for each
received packet; it does not replace lost packets, except from RED, FEC or the
second path. Ctrl-C stops the relay and prints the totals.";

/// Interval of the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn run(args: &RelayArgs, quiet: bool, color: ColorMode) -> Result<Exit, Failure> {
    let configs = relays_from_args(args)?;
    super::serve::raise_file_limit();
    let fail = |error: io::Error| Failure::new(Exit::Internal, error.to_string());
    let mut relays = Relays::start(args.threads.map(usize::from)).map_err(fail)?;
    for config in &configs {
        if let Err(error) = relays.add(config) {
            relays.stop();
            return Err(error.into());
        }
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    let watched = runtime.block_on(async {
        // Installed before anything is printed, because the reader may send a signal at once.
        let mut signals = Signals::new()?;
        if !quiet {
            print_startup(&relays);
        }
        watch(args, color, &mut relays, &mut signals).await
    });
    let status = relays.stop();
    let mut report = watched?;
    report.print(&match args.json {
        true => format!("{}\n", status.json(true)),
        false => output::summary(&status),
    });
    report.finish().map(|()| Exit::Ok)
}

/// The relays to run, from a file or from the arguments.
fn relays_from_args(args: &RelayArgs) -> Result<Vec<RelaySettings>, Failure> {
    if let Some(path) = &args.config {
        let (name, text) = super::config_args::read_config(path)?;
        let file = aulos_config::ConfigFile { name: &name, text: &text };
        let resolved =
            aulos_config::load(Some(file), &[], &aulos_config::Environment::of_process())
                .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
        super::config_args::log_warnings(&resolved);
        if resolved.relays.is_empty() {
            let message = format!(
                "{name}: no [[relay]] table found; add one, or give the relay as arguments"
            );
            return Err(Failure::new(Exit::Config, message));
        }
        return Ok(resolved.relays);
    }
    let given = [
        ("listen", &args.listen),
        ("also", &args.also),
        ("from", &args.from),
        ("to", &args.to),
        ("dest", &args.dest),
        ("dtmf", &args.events),
    ];
    let given = given.into_iter().filter_map(|(key, text)| Some((key, text.clone()?)));
    let numbers = [
        ("red_from", args.red_from),
        ("red_to", args.red_to),
        ("red_distance", args.red_distance),
        ("hold_ms", Some(args.hold)),
        ("takeover_ms", Some(args.takeover)),
        ("opus_bitrate", Some(args.opus_bitrate)),
        ("opus_complexity", Some(args.opus_complexity)),
    ];
    let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, number?.to_string())));
    let flags =
        [("rtcp", !args.no_rtcp), ("symmetric", args.symmetric), ("opus_fec", args.opus_fec)];
    let flags = flags.into_iter().map(|(key, flag)| (key, flag.to_string()));
    aulos_config::relay_from_keys(&given.chain(numbers).chain(flags).collect::<Vec<_>>())
        .map(|relay| vec![relay])
        .map_err(|problems| usage_failure(&problems))
}

fn print_startup(relays: &Relays) {
    for (name, listen, dest) in relays.addresses() {
        note!("{name}: {listen} -> {dest}");
    }
    for (name, bytes) in relays.short_buffers() {
        note!(
            "{name}: the receive buffer of its port has only {} kB, which bursts may overflow\n    \
             hint: sysctl -w net.core.rmem_max=8388608",
            bytes / 1_000
        );
    }
}

/// Shows the status until the end.
async fn watch(
    args: &RelayArgs,
    color: ColorMode,
    relays: &mut Relays,
    signals: &mut Signals,
) -> Result<SideReport, Failure> {
    let mut report = SideReport::new();
    let screen = StatusScreen::new(args.top, color);
    let mut clock = tokio::time::interval(STATUS_INTERVAL);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut before: Option<RelaySnapshot> = None;
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = signals.wait() => return Ok(report),
        }
        if !args.json && !args.top {
            relays.maintain();
            continue;
        }
        let status = relays.status();
        if args.json {
            report.print(&format!("{}\n", status.json(false)));
        } else {
            report.print_with(|| screen.show(&status, before.as_ref()));
        }
        before = Some(status);
    }
}

/// The table of `--top`: redrawn in place on a terminal, printed repeatedly elsewhere.
struct StatusScreen {
    redraws: bool,
    colors: bool,
}

impl StatusScreen {
    fn new(wanted: bool, color: ColorMode) -> Self {
        let terminal = io::stdout().is_terminal();
        let screen = Self { redraws: wanted && terminal, colors: color.colors(terminal) };
        if screen.redraws {
            // Switches to the alternate screen and hides the cursor.
            screen.write("\x1b[?1049h\x1b[?25l").ok();
        }
        screen
    }

    fn show(&self, status: &RelaySnapshot, before: Option<&RelaySnapshot>) -> io::Result<()> {
        let (width, height) = if self.redraws { output::size() } else { (120, usize::MAX) };
        let table =
            output::table(status, before, &TableView { width, height, colors: self.colors });
        if self.redraws {
            // Clears each line to its end, and everything below the last one.
            let lines = table.trim_end().replace('\n', "\x1b[K\r\n");
            return self.write(&format!("\x1b[H{lines}\x1b[K\x1b[J"));
        }
        self.write(&table)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    }
}

impl Drop for StatusScreen {
    fn drop(&mut self) {
        if self.redraws {
            self.write("\x1b[?25h\x1b[?1049l").ok();
        }
    }
}

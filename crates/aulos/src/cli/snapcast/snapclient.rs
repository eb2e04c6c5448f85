//! `aulos snapclient`: the player with the arguments of Snapcast's client, 0.26 to 0.34.

use aulos_player::{
    Mixer, OutputConfig, PlayOptions, PlayOutput, ServerAddress, parse_format, parse_instance,
    parse_latency,
};
use aulos_server::exit::{Exit, Failure};
use clap::{ArgAction, Args};

use crate::cli::output::console::note;
use crate::cli::play;

pub(crate) const EXAMPLES: &str = "\
Examples:
  aulos snapclient tcp://kitchen --hostID attic --latency 20
  aulos snapclient -h kitchen -p 1704 --player file:filename=stdout
  ln -s aulos snapclient; ./snapclient ws://kitchen";

#[derive(Debug, Args)]
pub(crate) struct SnapclientArgs {
    /// Print help
    // Without the short form, which names the server here.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        help = "Arguments of snapclient: [URL] [-i N] [--hostID ID] [--latency MS] [--player NAME] ..."
    )]
    arguments: Vec<String>,
}

/// What programs look for that start snapclient.
pub(crate) const VERSION_LINE: &str =
    concat!("snapclient v0.34.0 (aulos ", env!("CARGO_PKG_VERSION"), ")\n");

/// Plays with snapclient's arguments.
pub(crate) fn run(args: &SnapclientArgs) -> Result<Exit, Failure> {
    let (options, output) = parse_arguments(&args.arguments)?;
    play::play(options, output)
}

/// The arguments as they were given, before some of them are combined.
#[derive(Default)]
struct SnapclientOptions {
    url: Option<ServerAddress>,
    host: Option<String>,
    port: Option<u16>,
    player: Option<String>,
    sound_card: Option<String>,
}

/// Options with a value: short name, long name.
const WITH_VALUE: [(&str, &str); 19] = [
    ("h", "host"),
    ("p", "port"),
    ("i", "instance"),
    ("", "hostID"),
    ("s", "soundcard"),
    ("", "latency"),
    ("", "sampleformat"),
    ("", "player"),
    ("", "mixer"),
    ("", "cert"),
    ("", "cert-key"),
    ("", "key-password"),
    ("", "user"),
    ("", "logsink"),
    ("", "logfilter"),
    ("", "sharingmode"),
    ("", "config"),
    // Their values are optional, and need a `=`.
    ("", "server-cert"),
    ("d", "daemon"),
];

/// Splits an argument into the name of the option, long if there is one, and its value.
fn split<'a>(
    argument: &'a str,
    rest: &mut core::slice::Iter<'a, String>,
) -> Result<(&'a str, Option<&'a str>), Failure> {
    let (name, inline) = match argument.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument, None),
    };
    let (name, inline) = match name.strip_prefix("--") {
        Some(name) => (name, inline),
        None => {
            let name = name.strip_prefix('-').unwrap_or(name);
            // As in -p1704.
            let (short, attached) = name.split_at_checked(1).unwrap_or((name, ""));
            let attached = Some(attached).filter(|value| !value.is_empty()).or(inline);
            let long = WITH_VALUE.iter().find(|(known, _)| *known == short);
            long.map_or((name, inline), |(_, long)| (*long, attached))
        }
    };
    let needs_value = WITH_VALUE.iter().any(|(_, known)| *known == name)
        && !["server-cert", "daemon"].contains(&name);
    match inline {
        None if needs_value => match rest.next() {
            Some(value) => Ok((name, Some(value))),
            None => Err(usage(&format!("{argument} needs a value"))),
        },
        inline => Ok((name, inline)),
    }
}

fn parse_arguments(arguments: &[String]) -> Result<(PlayOptions, PlayOutput), Failure> {
    let mut given = SnapclientOptions::default();
    let mut options = PlayOptions::new(parsed("null")?);
    let mut output = PlayOutput::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if !argument.starts_with('-') {
            if given.url.replace(parsed(argument)?).is_some() {
                return Err(usage(&format!("one URL too many: {argument}")));
            }
            continue;
        }
        let (name, value) = split(argument, &mut rest)?;
        let text = value.unwrap_or_default();
        match name {
            "host" => given.host = Some(text.to_owned()),
            "port" => given.port = Some(text.parse().map_err(|_| invalid("port", text))?),
            "player" => given.player = Some(text.to_owned()),
            "soundcard" => given.sound_card = Some(text.to_owned()),
            "daemon" => note!("--daemon is ignored: the player stays in the foreground"),
            "logsink" => output.quiet = is_quiet(text)?,
            "logfilter" => output.status = text.split(',').any(|one| one.ends_with(":debug")),
            "sharingmode" if text == "shared" => {}
            "l" | "list" => return Err(no_list()),
            _ => set(&mut options, name, text).map_err(|why| match why {
                Some(why) => why,
                None => usage(&format!("{argument}: unknown argument of snapclient")),
            })?,
        }
    }
    options.server = server(&given)?;
    // As snapclient, which replaces the file of `--player file`.
    options.output = device(&given)?.replacing();
    Ok((options, output))
}

/// Sets an option that stands for itself. `Err(None)` if it is not known.
fn set(options: &mut PlayOptions, name: &str, text: &str) -> Result<(), Option<Failure>> {
    let checked = |message: String| Some(usage(&message));
    match name {
        "instance" => {
            options.instance = parse_instance(text).map_err(|why| checked(why.to_string()))?;
        }
        "hostID" => options.id = Some(text.to_owned()),
        "latency" => {
            options.latency = parse_latency(text).map_err(|why| checked(why.to_string()))?;
        }
        "sampleformat" => {
            let [rate, bits, channels] = text.split(':').collect::<Vec<_>>()[..] else {
                return Err(Some(invalid("sampleformat", text)));
            };
            if (rate, channels) != ("*", "*") {
                return Err(checked(format!(
                    "--sampleformat {text}: rate and channels are those of the stream; expected \
                     *:{bits}:*"
                )));
            }
            if bits != "*" {
                let format = parse_format(bits).map_err(|why| checked(why.to_string()))?;
                options.format = Some(format);
            }
        }
        "mixer" => {
            let plain = ["software", "software:exp", "software:exp:10"];
            let name = if plain.contains(&text) { "software" } else { text };
            options.mixer = name.parse::<Mixer>().map_err(|why| checked(why.to_string()))?;
        }
        "cert" => options.tls.certificate = Some(text.into()),
        "cert-key" => options.tls.key = Some(text.into()),
        // The server is always verified; without a file, against the authorities of the system.
        "server-cert" => options.tls.server_ca = Some(text.into()).filter(|_| !text.is_empty()),
        "key-password" => {
            return Err(checked(
                "--key-password: encrypted keys are not supported; decrypt the key \
                                with `openssl pkey`"
                    .to_owned(),
            ));
        }
        "user" => {
            return Err(checked(
                "--user is not supported; start the player as that user, for \
                                example by `User=` of its systemd unit"
                    .to_owned(),
            ));
        }
        _ => return Err(None),
    }
    Ok(())
}

/// The server: a URL, or host and port as before 0.32.
fn server(given: &SnapclientOptions) -> Result<ServerAddress, Failure> {
    let SnapclientOptions { url, host, port, .. } = given;
    match (url, host) {
        (Some(_), Some(_)) => Err(usage("give a URL or --host, not both")),
        (Some(url), None) => Ok(url.clone()),
        (None, Some(host)) => {
            let mut address: ServerAddress = parsed(host)?;
            address.port = port.unwrap_or(address.port);
            Ok(address)
        }
        (None, None) => Ok(ServerAddress::default()),
    }
}

/// The device of snapclient's player and sound card.
fn device(given: &SnapclientOptions) -> Result<OutputConfig, Failure> {
    let card = given.sound_card.as_deref().filter(|card| *card != "default");
    // Snapclient takes the first player that it was built with.
    let first = if card.is_some() { "alsa" } else { "auto" };
    let player = given.player.as_deref().unwrap_or(first);
    let (name, parameters) = player.split_once(':').unwrap_or((player, ""));
    let mut target = name.to_owned();
    let mut is_append = false;
    for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
        match (name, parameter.split_once('=')) {
            ("file", Some(("filename", "null"))) => "null".clone_into(&mut target),
            ("file", Some(("filename", "stdout"))) => "stdout".clone_into(&mut target),
            ("file", Some(("filename", path))) if path != "stderr" => {
                target = format!("file:{path}");
            }
            ("file", Some(("mode", mode))) => is_append = mode == "a",
            ("alsa" | "pulse", Some(("buffer_time", ms))) => {
                target = format!("{}?buffer={ms}", with_card(name, card));
            }
            // Periods are the output's own affair.
            ("alsa", Some(("fragments", _))) => {}
            _ => return Err(invalid("player", player)),
        }
    }
    if is_append {
        return Err(usage("--player file: mode=a is not supported; a file is written anew"));
    }
    match name {
        "file" if target == "file" => parsed("stdout"),
        "auto" | "file" => parsed(&target),
        "alsa" | "pulse" if !target.contains('?') => parsed(&with_card(name, card)),
        "alsa" | "pulse" => parsed(&target),
        _ => Err(usage(&format!(
            "--player {name}: not supported; expected alsa, pulse or file:filename=PATH"
        ))),
    }
}

fn with_card(name: &str, card: Option<&str>) -> String {
    card.map_or_else(|| name.to_owned(), |card| format!("{name}:{card}"))
}

fn is_quiet(sink: &str) -> Result<bool, Failure> {
    match sink {
        "null" => Ok(true),
        // Messages are on standard error; systemd takes them from there.
        "" | "stderr" | "stdout" | "system" => Ok(false),
        _ => Err(usage(&format!("--logsink {sink}: expected null, stderr, stdout or system"))),
    }
}

fn no_list() -> Failure {
    usage("--list is not supported; `aulos play --list-outputs` prints the sound devices")
}

fn parsed<T: core::str::FromStr<Err: core::fmt::Display>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error: T::Err| usage(&error.to_string()))
}

fn invalid(option: &str, value: &str) -> Failure {
    usage(&format!("--{option}: invalid value `{value}`"))
}

fn usage(message: &str) -> Failure {
    Failure::new(Exit::Usage, message.to_owned())
}

#[cfg(test)]
mod tests {
    use aulos_core::Span;

    use super::*;

    fn parse(line: &str) -> Result<(PlayOptions, PlayOutput), String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse_arguments(&arguments).map_err(|failure| failure.message)
    }

    #[test]
    fn arguments_of_0_26_and_0_34_are_understood() {
        let file = "--player file:filename=/tmp/x.pcm,mode=w";
        let (options, output) = parse(&format!(
            "-h kitchen -p 1705 --hostID attic -i 2 --latency 20 {file} --sampleformat *:24:* \
             --logsink stderr --logfilter *:debug --mixer script:/bin/volume -d"
        ))
        .unwrap();
        assert_eq!(options.server.to_string(), "tcp://kitchen:1705");
        assert_eq!((options.id.as_deref(), options.instance), (Some("attic"), 2));
        assert_eq!(options.latency, Span::from_millis(20));
        let file: OutputConfig = "file:/tmp/x.pcm".parse().unwrap();
        assert_eq!(options.output, file.replacing());
        assert_eq!(options.mixer, Mixer::Script("/bin/volume".into()));
        assert!(options.format.is_some() && output.status && !output.quiet);
        let (options, output) = parse(
            "wss://anna:pw@kitchen --server-cert=ca.pem --cert a.pem --cert-key=a.key \
             --player file:filename=stdout --logsink=null",
        )
        .unwrap();
        assert_eq!(options.server.to_string(), "wss://kitchen:1788");
        assert_eq!(options.tls.server_ca, Some("ca.pem".into()));
        assert!(options.output.is_stdout() && output.quiet);
        let (options, _) = parse("--player file:filename=null -p1704").unwrap();
        assert_eq!(options.server, ServerAddress::default());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (line, words) in [
            ("--nonsense", "--nonsense: unknown argument of snapclient"),
            ("-x", "-x: unknown argument"),
            ("-h", "-h needs a value"),
            ("-p many", "--port: invalid value `many`"),
            ("tcp://a tcp://b", "one URL too many: tcp://b"),
            ("tcp://a -h b", "a URL or --host, not both"),
            ("--user snap:audio", "`User=` of its systemd unit"),
            ("--key-password x", "encrypted keys are not supported"),
            ("--sampleformat 44100:16:*", "expected *:16:*"),
            ("--sampleformat 16", "--sampleformat: invalid value `16`"),
            ("--mixer software:poly:3", "unknown mixer `software:poly:3`"),
            ("--player jack", "--player jack: not supported"),
            ("--player file:filename=x,mode=a", "mode=a is not supported"),
            ("--player file:filename=stderr", "--player: invalid value"),
            ("--logsink file:/tmp/log", "--logsink file:/tmp/log: expected"),
            ("-l", "aulos play --list-outputs"),
        ] {
            let message = parse(line).map(|_| ()).unwrap_err();
            assert!(message.contains(words), "{line}: {message}");
        }
    }
}

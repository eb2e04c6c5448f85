//! `aulos convert` and `aulos snapserver`: migration from Snapcast.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use aulos_config::snapserver::{ConversionResult, IniFile, convert};
use aulos_config::{Environment, ResolvedConfig};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueHint};

use super::serve::LoadReason;
use super::{check_rereadable, print, read_config, serve};

pub(super) const CONVERT_EXAMPLES: &str = "\
Examples:
  aulos convert /etc/snapserver.conf > aulos.toml
  aulos check --config aulos.toml";

pub(super) const SNAPSERVER_EXAMPLES: &str = "\
Examples:
  aulos snapserver --config=/etc/snapserver.conf
  aulos snapserver --stream.source='pipe:///tmp/snapfifo?name=default' --http.port=1780
  ln -s aulos snapserver; ./snapserver --server.datadir=/var/lib/snapserver";

#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    /// snapserver's configuration; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct SnapserverArgs {
    /// snapserver's own arguments: --config=FILE, --SECTION.KEY=VALUE
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Prints the converted configuration. Differences are comments in it, and also go to standard
/// error.
pub(super) fn convert_file(args: &ConvertArgs) -> Result<Exit, Failure> {
    let (name, text) = read_config(&args.file)?;
    let (ini, odd) = IniFile::parse(&text);
    let mut converted = convert(&ini, "::");
    for line in odd {
        converted.notes.push(format!("{name}:{line}: neither a section nor `key = value`"));
    }
    let file = aulos_config::ConfigFile { name: "aulos.toml", text: &converted.toml };
    let problems = aulos_config::load(Some(file), &[], &Environment::of_process()).err();
    let mut out = format!("# Made by `aulos convert` from {}.\n", one_line(&name));
    for note in &converted.notes {
        eprintln!("{note}");
        out += &format!("# {}\n", one_line(note));
    }
    out += "\n";
    out += converted.toml.trim_start();
    if let Some(problems) = &problems {
        eprint!("{problems}");
        out += "\n# What is not right yet (aulos check):\n";
        for line in problems.to_string().lines() {
            out += &format!("# {line}\n");
        }
    }
    print(out.as_bytes())?;
    Ok(if problems.is_some() { Exit::Config } else { Exit::Ok })
}

/// Runs with snapserver's arguments.
pub(super) fn run(args: SnapserverArgs) -> Result<Exit, Failure> {
    serve::run(move |reading| read(&args, reading), VERSION_LINE)
}

fn read(args: &SnapserverArgs, reading: LoadReason) -> Result<ResolvedConfig, Failure> {
    let ParsedArguments { file, values } = parse_arguments(&args.arguments)?;
    check_rereadable(file.as_deref(), reading)?;
    let text = match file {
        Some(file) => read_config(&file)?.1,
        None => String::new(),
    };
    let (mut ini, _) = IniFile::parse(&text);
    ini.override_with(values);
    let ConversionResult { toml, notes } = convert(&ini, wildcard());
    for note in notes {
        tracing::info!("{note}");
    }
    let file = aulos_config::ConfigFile { name: "what snapserver's arguments mean", text: &toml };
    let mut resolved = aulos_config::load(Some(file), &[], &Environment::of_process())
        .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    // Music Assistant passes a folder that need not exist.
    if let Some(root) = resolved.http.doc_root.take_if(|root| !root.is_dir()) {
        tracing::info!("{}: no such folder; our own page is served", root.display());
    }
    Ok(resolved)
}

/// Music Assistant waits for a line with `(Snapserver) Version 0.` before it connects.
pub(super) const VERSION_LINE: &str =
    concat!("[Info] (Snapserver) Version ", "0.34.0", " (aulos ", env!("CARGO_PKG_VERSION"), ")\n");

struct ParsedArguments {
    file: Option<PathBuf>,
    values: Vec<(String, String)>,
}

/// `--config=FILE`, `-c FILE`, `--section.key=value`, `--section.key` (true).
fn parse_arguments(arguments: &[String]) -> Result<ParsedArguments, Failure> {
    let default = Path::new("/etc/snapserver.conf");
    let mut given =
        ParsedArguments { file: default.exists().then(|| default.to_owned()), values: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let usage = || {
            let message = format!(
                "{argument}: not an argument of snapserver\n    hint: --config=FILE or \
                 --SECTION.KEY=VALUE, as in --stream.buffer=1000"
            );
            Failure::new(Exit::Usage, message)
        };
        let bare = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        let (key, value) = match bare.ok_or_else(usage)?.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (bare.unwrap_or_default(), None),
        };
        match key {
            "config" | "c" => {
                let file = value.or_else(|| rest.next().cloned()).ok_or_else(usage)?;
                given.file = (!file.is_empty()).then(|| PathBuf::from(file));
            }
            "daemon" | "d" => {
                tracing::warn!("it stays in the foreground: systemd sees to the rest");
            }
            key if key.contains('.') => {
                given.values.push((key.to_owned(), value.unwrap_or_else(|| "true".to_owned())));
            }
            _ => return Err(usage()),
        }
    }
    Ok(given)
}

/// All addresses of this machine: the IPv6 wildcard includes IPv4; without IPv6, the IPv4 wildcard.
fn wildcard() -> &'static str {
    if TcpListener::bind("[::]:0").is_ok() { "::" } else { "0.0.0.0" }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn music_assistants_arguments_are_understood() {
        let arguments = [
            "--config=",
            "--server.datadir=/tmp/x",
            "--http.enabled",
            "--http.port=1780",
            "--stream.codec=flac",
            "--stream.send_to_muted=true",
        ];
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let ParsedArguments { file, values } = parse_arguments(&arguments).unwrap();
        assert_eq!(file, None);
        assert!(values.contains(&("http.enabled".to_owned(), "true".to_owned())));
        assert!(values.contains(&("server.datadir".to_owned(), "/tmp/x".to_owned())));
        for bad in ["x", "--nonsense", "--config"] {
            assert!(parse_arguments(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}

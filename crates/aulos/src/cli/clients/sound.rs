//! `aulos client sound` and `test-tone`: what a client makes of its station, and how it is set up.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use aulos_dsp::sound::SoundPreset;
use aulos_engine::generate::TestTone;
use aulos_server::exit::{Exit, Failure};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::call_args::CallArgs;
use crate::cli::calls::list;
use crate::cli::output::console::note;
use crate::cli::output::print;
use crate::cli::rpc::call;
use crate::cli::scan::plain;

const IMPORT_EXAMPLES: &str = "\
Examples:
  aulos client sound import kitchen room.txt --dry-run
  aulos client sound import kitchen room.txt
  aulos client sound import kitchen 'HD 650 ParametricEQ.txt' --lenient
  aulos client sound preset kitchen flat     ends the processing

REW writes such a file by `Export filter settings as text`; AutoEq has them
for headphones. A line that cannot be taken over is named with its number.";

#[derive(Debug, Args)]
pub(super) struct SoundArgs {
    #[command(subcommand)]
    command: SoundCommand,
}

#[derive(Debug, Subcommand)]
enum SoundCommand {
    /// Show the sound of a client, as Equalizer APO reads it
    Show(ShowArgs),
    /// Import filters from REW, Equalizer APO and programs that write like them
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Set a preset; `flat` ends the processing
    Preset(PresetArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Name or id of the client
    name: String,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// Name or id of the client
    name: String,
    /// File with the filters; `-` is standard input
    file: PathBuf,
    /// Change nothing, and show what would be set
    #[arg(long)]
    dry_run: bool,
    /// Limit gains and quality factors that are out of range, instead of refusing the file
    #[arg(long)]
    lenient: bool,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct PresetArgs {
    /// Name or id of the client
    name: String,
    /// Name of the preset
    #[arg(value_parser = PossibleValuesParser::new(SoundPreset::NAMES))]
    preset: String,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
pub(super) struct TestToneArgs {
    /// Name or id
    pub(super) name: String,
    /// Clicks once a second, pink noise at -20 dBFS, 1 kHz at -18 dBFS, a sweep from 20 Hz to 20 kHz,
    /// or a note on the left and one on the right
    #[arg(value_parser = PossibleValuesParser::new(TestTone::NAMES))]
    kind: String,
    /// How long it plays, from 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    #[command(flatten)]
    pub(super) call: CallArgs,
}

/// The longest file that a server takes as text.
const MAX_FILE: u64 = 256 << 10;

pub(super) fn sound(args: &SoundArgs) -> Result<Exit, Failure> {
    match &args.command {
        SoundCommand::Show(ShowArgs { name, call }) => {
            let overview = call.overview()?;
            let client = overview.client(name)?;
            let params = json!({ "client": client.id });
            call.change("Aulos.GetClientSound", &params, |sound| sound_text(&client.name, sound))
        }
        SoundCommand::Import(args) => import(args),
        SoundCommand::Preset(PresetArgs { name, preset, call }) => {
            let overview = call.overview()?;
            let client = overview.client(name)?;
            let params = json!({ "client": client.id, "preset": preset });
            call.change("Aulos.SetClientSound", &params, |sound| sound_text(&client.name, sound))
        }
    }
}

/// Warnings go to standard error, beside the text that may be read by a program.
fn import(args: &ImportArgs) -> Result<Exit, Failure> {
    let ImportArgs { name, file, dry_run, lenient, call: call_args } = args;
    let text = read_text(file).map_err(|why| {
        Failure::new(Exit::Usage, format!("{}: {why}", plain(&file.to_string_lossy())))
    })?;
    let overview = call_args.overview()?;
    let client = overview.client(name)?;
    let params =
        json!({ "client": client.id, "text": text, "dry_run": dry_run, "lenient": lenient });
    let sound = call(&call_args.server, "Aulos.SetClientSound", &params)?;
    for warning in list(&sound["warnings"]) {
        let message = plain(warning["message"].as_str().unwrap_or_default());
        note!("line {}: {message}", warning["line"]);
    }
    let text = match call_args.json {
        true => format!("{sound:#}\n"),
        false => sound_text(&client.name, &sound),
    };
    print(text.as_bytes())
}

fn read_text(file: &PathBuf) -> io::Result<String> {
    let mut bytes = Vec::new();
    let source: Box<dyn io::Read> =
        if file.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(File::open(file)?) };
    source.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        let text = format!("more than {MAX_FILE} bytes, which is no list of filters");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // REW writes UTF-8, and Latin-1 in some notes, which are no filters.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The levels of a sound in a line, and its filters.
fn sound_text(name: &str, sound: &Value) -> String {
    let name = plain(name);
    let Some(filters) = sound["text"].as_str() else {
        return format!("{name}: no processing\n");
    };
    let (preamp, peak) = (&sound["preamp_db"], &sound["peak_db"]);
    let mut text = format!("{name}: preamplification {preamp} dB, peak {peak} dB\n");
    for line in filters.lines() {
        writeln!(text, "{}", plain(line)).ok();
    }
    text
}

/// Plays a tone to a client or a group: `target` is the parameter and the id.
pub(super) fn test_tone(
    args: &TestToneArgs,
    (key, id): (&str, &str),
    name: &str,
) -> Result<Exit, Failure> {
    let TestToneArgs { kind, seconds, call, .. } = args;
    let params = json!({ key: id, "kind": kind, "seconds": seconds });
    call.change("Aulos.TestTone", &params, |result| {
        format!("{} plays {kind} for {} s\n", plain(name), result["seconds"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_is_shown_with_its_levels_and_no_control_characters() {
        let sound = json!({
            "preamp_db": -5.0, "peak_db": 0.0, "text": "Preamp: -5 dB\nFilter 1: \u{1b}[2J\n",
        });
        let text = sound_text("Küche", &sound);
        assert!(
            text.starts_with("Küche: preamplification -5.0 dB, peak 0.0 dB\nPreamp: -5 dB\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}') && text.lines().count() == 3, "{text:?}");
        assert_eq!(sound_text("shelf", &json!({ "chain": null })), "shelf: no processing\n");
    }

    #[test]
    fn a_file_that_is_no_list_of_filters_is_not_sent() {
        let file = std::env::temp_dir().join(format!("aulos-filters-{}", std::process::id()));
        std::fs::write(&file, b"Notes: K\xfcche\nFilter 1: ON PK Fc 100 Hz Gain -3 dB Q 1\n")
            .unwrap();
        assert_eq!(read_text(&file).unwrap().lines().count(), 2);
        std::fs::write(&file, vec![b'x'; (256 << 10) + 1]).unwrap();
        assert!(read_text(&file).unwrap_err().to_string().contains("no list of filters"));
        std::fs::remove_file(&file).unwrap();
        assert!(read_text(&file).is_err());
    }
}

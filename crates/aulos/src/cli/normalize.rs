//! `aulos normalize`: a file brought to a loudness.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use aulos_core::{Db, Lufs};
use aulos_dsp::normalize::{Bound, Linear, Mode, Settings};
use aulos_io::decode::{DecodeError, OpenError};
use aulos_io::normalize::{self, NormalizeError, Outcome, Wishes};
use aulos_io::scan::Loudness;
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::scan::{Target, ceiling, plain};
use crate::exit::{Exit, Failure};

#[derive(Debug, Args)]
pub(super) struct NormalizeArgs {
    /// The file, in any format that `aulos scan` reads
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    from: PathBuf,
    /// The new file: .wav or .flac; one that is there is replaced
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    to: PathBuf,
    /// How loud it is to be: LUFS, or a name as in `aulos scan --target`
    #[arg(long, value_name = "LUFS|PRESET", default_value = "-23", allow_hyphen_values = true)]
    target: Target,
    /// The highest true peak
    #[arg(
        long,
        value_name = "DB",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = ceiling
    )]
    true_peak: Db,
    /// How quiet passages may stay in the live modes, 1 to 50 LU below the rest, and how loud, half
    /// of that above; a smaller range is kept as it is
    #[arg(long, value_name = "LU", default_value = "7", value_parser = range)]
    lra: Db,
    /// One gain for all of it, or the gain that a station would have
    #[arg(long, value_name = "MODE", default_value = "linear")]
    mode: Way,
    /// One channel is going to be heard from two loudspeakers (+3 LU)
    #[arg(long)]
    dual_mono: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// One gain, from a measurement of the whole; nothing else changes
    Linear,
    /// A gain that moves, with a look-ahead of 3 s, and a limiter
    Full,
    /// The same with 400 ms
    Mid,
    /// The same with 5 ms
    Low,
}

impl Way {
    const fn mode(self) -> Option<Mode> {
        match self {
            Self::Linear => None,
            Self::Full => Some(Mode::Full),
            Self::Mid => Some(Mode::Mid),
            Self::Low => Some(Mode::Low),
        }
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos normalize talk.wav talk-23.wav                 -23 LUFS, one gain
  aulos normalize --target podcast talk.mp3 talk.flac  -16 LUFS
  aulos normalize --mode full meeting.wav level.wav    quiet and loud speakers alike
  aulos normalize --json in.flac out.flac | jq .after.integrated_lufs

With one gain (linear) nothing changes but the level: where the peaks do not allow the target, the
gain is what they allow, and that is said. WAVE keeps the sample format; what has none (MP3, Opus)
becomes 24 bits. 16 bits are dithered. The new file appears when it is complete; tags are not taken
over.";

pub(super) fn run(args: &NormalizeArgs, quiet: bool) -> Result<Exit, Failure> {
    // A file is no station: whatever gain it needs is fine.
    let settings = Settings {
        target: args.target.lufs(),
        ceiling: args.true_peak,
        range: args.lra,
        min_gain: Db::new(-60.0),
        max_gain: Db::new(60.0),
        dual_mono: args.dual_mono,
        ..Settings::default()
    };
    let wishes = Wishes { settings, mode: args.mode.mode() };
    let bar = bar(quiet);
    let outcome = normalize::file(&args.from, &args.to, &wishes, |done| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 1,000")]
        bar.set_position((done * f64::from(STEPS)) as u64);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| failure(args, &error))?;
    for line in remarks(&outcome, args.target.lufs()) {
        if !quiet {
            eprintln!("{}: {line}", plain(&args.to.to_string_lossy()));
        }
    }
    let text = if args.json { json_of(args, &outcome).to_string() + "\n" } else { table(&outcome) };
    super::print(text.as_bytes())
}

/// What somebody should know who looks at the new file only.
fn remarks(outcome: &Outcome, target: Lufs) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Linear { wanted, gain, bound: Some(bound), .. }) = outcome.linear {
        let missing = wanted - gain;
        lines.push(match bound {
            Bound::Silence => "there is nothing to be heard; it is a copy".to_owned(),
            Bound::Ceiling => format!(
                "the peaks allow a gain of {gain}, not {wanted}: it is {missing} below the target \
                 (--mode full limits them instead)"
            ),
            _ => format!("the gain is {gain}, not {wanted}"),
        });
    } else if let Some(lufs) = outcome.after.integrated
        && (lufs - target).get().abs() > WORTH_SAYING
    {
        lines.push(format!("it came out at {lufs}, not {target}"));
    }
    if outcome.rejected > 0 {
        lines.push(format!("{} samples were no numbers, and are silence", outcome.rejected));
    }
    if outcome.damaged > 0 {
        lines.push(format!("the file is damaged in {} places", outcome.damaged));
    }
    lines
}

fn table(outcome: &Outcome) -> String {
    let mut text = format!("{:20} {:>12} {:>12}\n", "", "before", "after");
    let mut row = |name: &str, pick: fn(&Loudness) -> Option<f64>, unit: &str| {
        let [before, after] = [&outcome.before, &outcome.after].map(|side| {
            pick(side).map_or_else(|| "-".to_owned(), |value| format!("{value:.1} {unit}"))
        });
        text += &format!("{name:20} {before:>12} {after:>12}\n");
    };
    row("integrated loudness", |side| side.integrated.map(Lufs::get), "LUFS");
    row("loudness range", |side| side.range.map(Db::get), "LU");
    row("loudest 3 s", |side| side.max_short_term.map(Lufs::get), "LUFS");
    row("true peak", |side| side.true_peak.map(Db::get), "dBTP");
    if let Some(linear) = outcome.linear {
        text += &format!("{:20} {:>25}\n", "gain", format!("{:+.1} dB", linear.gain.get()));
    }
    text
}

fn json_of(args: &NormalizeArgs, outcome: &Outcome) -> Value {
    let side = |side: &Loudness| {
        json!({
            "integrated_lufs": side.integrated.map(Lufs::get),
            "loudness_range_lu": side.range.map(Db::get),
            "max_momentary_lufs": side.max_momentary.map(Lufs::get),
            "max_short_term_lufs": side.max_short_term.map(Lufs::get),
            "true_peak_dbtp": side.true_peak.map(Db::get),
            "sample_peak_dbfs": side.sample_peak.map(Db::get),
        })
    };
    let bound = outcome.linear.and_then(|plan| plan.bound).map(|bound| match bound {
        Bound::Ceiling => "ceiling",
        Bound::Silence => "silence",
        _ => "gain",
    });
    json!({
        "path": args.from.to_string_lossy(),
        "out": args.to.to_string_lossy(),
        "mode": args.mode.to_possible_value().map(|value| value.get_name().to_owned()),
        "target_lufs": args.target.lufs().get(),
        "seconds": outcome.seconds,
        "wanted_db": outcome.linear.map(|plan| plan.wanted.get()),
        "gain_db": outcome.linear.map(|plan| plan.gain.get()),
        "bound": bound,
        "before": side(&outcome.before),
        "after": side(&outcome.after),
        "rejected": outcome.rejected,
        "damaged": outcome.damaged,
    })
}

fn failure(args: &NormalizeArgs, error: &NormalizeError) -> Failure {
    let of_input = |exit| (exit, &args.from);
    let (exit, path) = match error {
        NormalizeError::Open(OpenError::NoSuchFile) => of_input(Exit::NoInput),
        NormalizeError::Open(OpenError::Permission) => of_input(Exit::Permission),
        NormalizeError::Open(OpenError::Io(_)) | NormalizeError::Decode(DecodeError::Io(_)) => {
            of_input(Exit::Io)
        }
        NormalizeError::Open(_) | NormalizeError::Decode(_) | NormalizeError::Changes => {
            of_input(Exit::Data)
        }
        NormalizeError::Settings(why) => return Failure::new(Exit::Usage, why.to_string()),
        NormalizeError::Container | NormalizeError::SameFile => (Exit::Usage, &args.to),
        NormalizeError::Save(why) if why.kind() == io::ErrorKind::StorageFull => {
            (Exit::Io, &args.to)
        }
        _ => (Exit::CannotCreate, &args.to),
    };
    Failure::new(exit, format!("{}: {error}", plain(&Path::to_string_lossy(path))))
}

/// Reads a loudness range.
fn range(text: &str) -> Result<Db, String> {
    match text.parse() {
        Ok(lu) if (1.0..=50.0).contains(&lu) => Ok(Db::new(lu)),
        _ => Err("a range is a number of LU between 1 and 50".to_owned()),
    }
}

fn bar(quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(STEPS.into()), ProgressDrawTarget::stderr());
    // The template is a constant; were it wrong, the default would do.
    bar.with_style(
        ProgressStyle::with_template("{wide_bar} {percent} %, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// Steps of the bar.
const STEPS: u32 = 1_000;
/// An error of loudness that is said, in LU: the tolerance of EBU R 128.
const WORTH_SAYING: f64 = 0.5;

//! The arguments of `aulos normalize`, and what they ask for.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use aulos_core::Db;
use aulos_dsp::normalize::{LookAhead, Settings};
use aulos_files::normalize::{
    self, NormalizeConfig, NormalizeItem, NormalizeMethod, NormalizeTask, OutputContainer,
};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueEnum, ValueHint};

use crate::cli::scan::{LoudnessTarget, ceiling, plain};

#[derive(Debug, Args)]
#[command(override_usage = "aulos normalize [OPTIONS] <IN> <OUT>
       aulos normalize [OPTIONS] --in-place <FILE|FOLDER>...")]
#[allow(clippy::struct_excessive_bools, reason = "each is a command line switch")]
pub(in crate::cli) struct NormalizeArgs {
    /// Input file, in any format that `aulos scan` reads, and output file: .wav, .flac or .opus; or
    /// input folder and output folder
    #[arg(required = true, num_args = 1.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(super) paths: Vec<PathBuf>,
    /// Replace the input files; a folder stands for the audio files in it and in its subfolders
    #[arg(long)]
    pub(super) in_place: bool,
    /// Replace output files that exist
    #[arg(long, conflicts_with = "in_place")]
    pub(super) force: bool,
    /// Target loudness: -70 to -5 LUFS, or a preset as in `aulos scan --target`
    ///
    /// The default is that of broadcasting (EBU R 128), as in a station. `aulos scan` has -18 LUFS,
    /// the reference of ReplayGain tags, which players expect.
    #[arg(long, value_name = "LUFS|PRESET", default_value = "-23", allow_hyphen_values = true)]
    pub(super) target: LoudnessTarget,
    /// Maximum true peak, -30 to 0 dBTP
    #[arg(
        long,
        value_name = "DB",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = ceiling
    )]
    pub(super) true_peak: Db,
    /// How the gain is computed
    #[arg(long, value_name = "MODE", default_value = "linear")]
    pub(super) mode: NormalizeMode,
    /// Reach the target with one gain, and limit the peaks above --true-peak
    #[arg(long)]
    pub(super) limit: bool,
    /// Loudness range that the modes full, mid and low keep, 1 to 50 LU: quiet passages stay up to
    /// this far below the target, loud ones up to half of it above [default: one gain, which keeps
    /// the range, and the limiter]
    #[arg(long, value_name = "LU", value_parser = range)]
    pub(super) lra: Option<Db>,
    /// Measure a mono file as played by two loudspeakers (+3 LU)
    #[arg(long)]
    pub(super) dual_mono: bool,
    /// Apply the same gain to all files of a folder, so that the folder reaches the target
    #[arg(long)]
    pub(super) album: bool,
    /// Format of the output files of a folder [default: that of the input; flac if it cannot be
    /// written]
    #[arg(long, value_name = "FORMAT", conflicts_with = "in_place")]
    pub(super) format: Option<OutputFormat>,
    /// Opus bit rate of all channels together, 6 to 510 kbit/s [default: 192]
    #[arg(long, value_name = "KBPS", value_parser = bitrate)]
    pub(super) bitrate: Option<u32>,
    /// Number of files processed in parallel, 1 to 256 [default: one per processor]
    #[arg(long, value_name = "N")]
    pub(super) jobs: Option<NonZeroUsize>,
    /// Measure, print what would be written, and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Count damaged input files as success, and with --in-place replace them by their readable
    /// part
    #[arg(long)]
    pub(super) keep_going: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum NormalizeMode {
    /// One gain, from a measurement of the whole file
    Linear,
    /// Time-varying gain of a station with 3 s of look-ahead, and a limiter; needs --lra
    Full,
    /// As full, with 400 ms of look-ahead
    Mid,
    /// As full, with 5 ms of look-ahead
    Low,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    Wav,
    Flac,
    Opus,
}

impl NormalizeArgs {
    /// The files, and whether a single file was given by name.
    pub(super) fn items(&self) -> Result<(Vec<NormalizeItem>, bool), Failure> {
        let usage = |what: &str| Failure::new(Exit::Usage, what.to_owned());
        if self.in_place {
            let single = self.paths.len() == 1 && !self.paths[0].is_dir();
            return Ok((normalize::plan_in_place(&self.paths), single));
        }
        let [from, to] = &self.paths[..] else {
            return Err(usage(
                "expected two paths, IN and OUT; use --in-place to replace the input files",
            ));
        };
        if !from.is_dir() {
            let container = self.format.map(OutputFormat::container);
            let (from, to) = (from.clone(), to.clone());
            let task =
                NormalizeTask { from, to, in_place: false, create_folders: false, container };
            return Ok((vec![NormalizeItem { task, error: None }], true));
        }
        let name = plain(&to.to_string_lossy());
        if to.exists() && !to.is_dir() {
            return Err(usage(&format!(
                "{name}: is a file, but IN is a folder; OUT must be a folder too"
            )));
        }
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        if real(to).is_some() && real(from) == real(to) {
            return Err(usage(&format!("{name}: is also the input folder; use --in-place")));
        }
        Ok((normalize::plan_folder(from, to, self.format.map(OutputFormat::container)), false))
    }

    pub(super) fn options(&self) -> Result<NormalizeConfig, Failure> {
        let usage = |what: &str| Err(Failure::new(Exit::Usage, what.to_owned()));
        let live = |mode| match self.lra {
            Some(_) => NormalizeMethod::Live(mode),
            None => NormalizeMethod::Limited,
        };
        let manner = match self.mode {
            NormalizeMode::Linear if self.lra.is_some() => {
                return usage(
                    "--lra needs --mode full, mid or low: the mode linear keeps the range",
                );
            }
            _ if self.limit && self.lra.is_some() => {
                return usage(
                    "--limit (one gain) excludes --lra (time-varying gain): omit one of them",
                );
            }
            NormalizeMode::Linear if self.limit => NormalizeMethod::Limited,
            NormalizeMode::Linear => NormalizeMethod::Linear,
            NormalizeMode::Full => live(LookAhead::Full),
            NormalizeMode::Mid => live(LookAhead::Mid),
            NormalizeMode::Low => live(LookAhead::Low),
        };
        if self.album && matches!(manner, NormalizeMethod::Live(_)) {
            return usage(
                "--album (one gain) excludes --lra (time-varying gain): omit one of them",
            );
        }
        let default = Settings::default();
        // A file may need any gain, so the gain limits of a station do not apply.
        let settings = Settings {
            target: self.target.lufs(),
            ceiling: self.true_peak,
            tolerance: self.lra.unwrap_or(default.tolerance),
            min_gain: Db::new(-60.0),
            max_gain: Db::new(60.0),
            dual_mono: self.dual_mono,
            ..default
        };
        let Self { album, dry_run, keep_going, force: overwrite, .. } = *self;
        let bitrate =
            self.bitrate.unwrap_or(aulos_engine::encode::OpusPacketEncoder::DEFAULT_BITRATE);
        let method = manner;
        Ok(NormalizeConfig { settings, method, bitrate, album, overwrite, dry_run, keep_going })
    }
}

impl OutputFormat {
    const fn container(self) -> OutputContainer {
        match self {
            Self::Wav => OutputContainer::Wave,
            Self::Flac => OutputContainer::Flac,
            Self::Opus => OutputContainer::Opus,
        }
    }
}

/// Parses a loudness range.
fn range(text: &str) -> Result<Db, String> {
    match text.parse() {
        Ok(lu) if (1.0..=50.0).contains(&lu) => Ok(Db::new(lu)),
        _ => Err("a loudness range is a number from 1 to 50 LU".to_owned()),
    }
}

/// Parses a bit rate in kbit/s.
fn bitrate(text: &str) -> Result<u32, String> {
    match text.strip_suffix(['k', 'K']).unwrap_or(text).parse::<u32>() {
        Ok(kbps) if (6..=510).contains(&kbps) => Ok(kbps * 1_000),
        _ => Err("a bit rate is a number from 6 to 510 kbit/s".to_owned()),
    }
}

//! `aulos scan`: measures the loudness of files and folders.

mod album;
mod journal;
mod output;
mod report;
mod tags;
mod target;
mod warnings;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use aulos_core::{Db, Lufs};
use aulos_dsp::meter::RangeHop;
use aulos_files::scan::{
    self, LoudnessSummary, ScanEvent, ScanFile, ScanOptions, ScanProgress, ScanReport, tag,
};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::SideReport;
use super::output::console::{note, write_now};
use super::output::output_file::check_own;
use album::{Album, AlbumRule};
use journal::Journal;
pub(super) use output::plain;
use output::{Row, RowFormat, RowWriter};
use report::ReportPage;
use tags::Tagger;
pub(super) use target::{LoudnessTarget, ceiling};

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a command line switch")]
pub(super) struct ScanArgs {
    /// Files and folders; a folder stands for the audio files in it and in its subfolders
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a header
    #[arg(long)]
    csv: bool,
    /// Write an HTML page with loudness curves and outliers to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Also print one row per folder: its files measured together as an album
    #[arg(long)]
    album: bool,
    /// Loudness from which the gain of an album is computed
    #[arg(long, value_name = "RULE", default_value = "energy", requires = "album")]
    album_rule: AlbumRule,
    /// Also measure the true peak (peaks between samples), which takes longer
    #[arg(long)]
    true_peak: bool,
    /// Target loudness: -70 to 0 LUFS, or a preset: replaygain (-18), ebu (-23), atsc (-24), arib
    /// (-24), op59 (-24), podcast (-16), podcast-mono (-19), spotify (-14), apple (-16), youtube
    /// (-14), aes-music (-16), aes-album (-14); an unknown name lists all presets
    #[arg(long, value_name = "LUFS|PRESET", default_value = "-18", allow_hyphen_values = true)]
    target: LoudnessTarget,
    /// Limit the gain so that the true peak stays at or below this: -30 to 0 dBTP; implies
    /// --true-peak [default: no limit]
    #[arg(
        long,
        value_name = "DB",
        allow_hyphen_values = true,
        value_parser = ceiling
    )]
    max_true_peak: Option<Db>,
    /// Measure a mono file as played by two loudspeakers (+3 LU)
    #[arg(long)]
    dual_mono: bool,
    /// Interval of the loudness range's values: 1s as in libebur128, 100ms as in FFmpeg
    #[arg(long, value_name = "HOP", default_value = "1s")]
    lra_hop: LraHop,
    /// Write gain and peak to the tags of the files: ReplayGain 2.0, for Opus R128
    #[arg(long)]
    tag: bool,
    /// Show the old and new tags that --tag would write, and write nothing
    #[arg(long, requires = "tag")]
    dry_run: bool,
    /// Skip files whose gain tags are complete; with --album, folders in which all are complete
    #[arg(long, requires = "tag")]
    skip_tagged: bool,
    /// Keep the measurements in this file, and measure only new and changed files
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "report")]
    resume: Option<PathBuf>,
    /// Replace the file of --report or --resume even if it is another one
    #[arg(long)]
    force: bool,
    /// Number of threads, 1 to 1024 [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LraHop {
    #[value(name = "1s")]
    Second,
    #[value(name = "100ms")]
    Tenth,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos scan music/                        print a table
  aulos scan --album --true-peak music/    also folders and true peaks
  aulos scan --json *.flac | jq .integrated_lufs
  aulos scan --csv --target ebu programme.wav > programme.csv
  aulos scan --tag --album --dry-run music/
  aulos scan --tag --album --max-true-peak -1 music/
  aulos scan --true-peak --report loudness.html music/

A tagged file is replaced atomically by a complete copy. Mode and owner are
kept; the modification time changes; a hard link becomes a separate file. The
peak tag is the true peak with --true-peak or --max-true-peak, otherwise the
sample peak. Without --album the album tags stay unchanged. WavPack, Monkey's
Audio, Matroska, CAF and RF64 files cannot be tagged.

Exit codes: 3 if files could not be measured completely or not be tagged, 65 if
the only file is invalid, 66 if no file could be read, as in a folder without
audio files.";

pub(super) fn run(args: &ScanArgs, quiet: bool) -> Result<Exit, Failure> {
    let options = ScanOptions {
        true_peak: args.true_peak || args.max_true_peak.is_some(),
        dual_mono: args.dual_mono,
        range_hop: match args.lra_hop {
            LraHop::Second => RangeHop::Second,
            LraHop::Tenth => RangeHop::Tenth,
        },
        keep_measurement: args.album,
        curve: args.report.is_some(),
    };
    check_outputs(args)?;
    let (mut files, unsupported) = scan::find_all_files(&args.paths);
    let mut skipped = 0;
    if args.skip_tagged {
        skipped = tags::skip_tagged(&mut files, args.album, args.target.lufs());
    }
    let jobs = args.jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut scan = ScanRun::new(args, &options, &files, quiet)?;
    scan.begin();
    let fresh = scan.recall(files);
    scan::scan_files(fresh, jobs.min(MAX_JOBS), &options, |event| scan.handle_event(event))
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot start a thread: {error}")))?;
    scan.report_recalled();
    scan.report_albums();
    if !quiet && !unsupported.is_empty() {
        note!("{}", unsupported_note(&unsupported));
    }
    scan.end(skipped)
}

/// The files of a folder scan that were left out because of their format.
fn unsupported_note(files: &[PathBuf]) -> String {
    let named = files.iter().take(MAX_NAMED).map(|path| plain(&path.to_string_lossy()));
    let mut names = named.collect::<Vec<_>>().join(", ");
    if files.len() > MAX_NAMED {
        names += ", ...";
    }
    format!("{} file(s) skipped: their format is not supported: {names}", files.len())
}

/// Before anything is measured: the files that are written must be free, or of an earlier scan.
fn check_outputs(args: &ScanArgs) -> Result<(), Failure> {
    if args.force {
        return Ok(());
    }
    if let Some(path) = &args.report {
        check_own(path, ReportPage::is_one)?;
    }
    if let Some(path) = &args.resume {
        check_own(path, Journal::is_one)?;
    }
    Ok(())
}

/// A scan run.
struct ScanRun<'a> {
    args: &'a ScanArgs,
    options: &'a ScanOptions,
    quiet: bool,
    rows: RowWriter,
    bar: ProgressBar,
    /// Number of files, and of finished files.
    files: usize,
    done: usize,
    /// Bytes of files taken from the journal, and the progress of the others.
    known_bytes: u64,
    progress: ScanProgress,
    journal: Option<Journal>,
    /// Files that are not reported yet, in order; with the report if it was in the journal.
    order: VecDeque<Option<ScanReport>>,
    tagger: Option<Tagger>,
    page: Option<ReportPage>,
    albums: Vec<Album>,
    measured: usize,
    failed: usize,
    /// Whether all failures were missing input.
    no_input: bool,
    output: SideReport,
    /// Whether the scan writes files, and so goes on when its rows cannot be printed.
    writes_files: bool,
    journal_error: Option<io::Error>,
}

impl<'a> ScanRun<'a> {
    fn new(
        args: &'a ScanArgs,
        options: &'a ScanOptions,
        files: &[ScanFile],
        quiet: bool,
    ) -> Result<Self, Failure> {
        let format = match (args.json, args.csv) {
            (true, _) => RowFormat::Json,
            (_, true) => RowFormat::Csv,
            _ => RowFormat::Table { true_peak: options.true_peak, target: args.target.lufs() },
        };
        let journal = args.resume.as_ref().map(|path| {
            let tags_follow = args.tag && !args.dry_run;
            Journal::open(path, options, tags_follow).map_err(|error| cannot_write(path, &error))
        });
        let target = args.target.lufs();
        Ok(Self {
            args,
            options,
            quiet,
            rows: RowWriter::new(format),
            bar: progress(files, quiet),
            files: files.len(),
            done: 0,
            known_bytes: 0,
            progress: ScanProgress::default(),
            journal: journal.transpose()?,
            order: VecDeque::new(),
            tagger: args.tag.then(|| Tagger::new(args.dry_run, target, args.max_true_peak)),
            page: args.report.as_ref().map(|_| ReportPage::new(args.target, args.max_true_peak)),
            albums: Vec::new(),
            measured: 0,
            failed: 0,
            no_input: true,
            output: SideReport::new(),
            writes_files: args.tag && !args.dry_run
                || args.report.is_some()
                || args.resume.is_some(),
            journal_error: None,
        })
    }

    fn begin(&mut self) {
        self.output.print_with(|| self.rows.header());
    }

    /// Splits off the files whose reports are in the journal; returns the rest.
    fn recall(&mut self, files: Vec<ScanFile>) -> Vec<ScanFile> {
        let Some(journal) = &self.journal else { return files };
        let known = |found: &ScanFile| match found.error {
            None => journal.recall(&found.path),
            Some(_) => None,
        };
        self.order = files.iter().map(known).collect();
        let fresh = files.into_iter().zip(&self.order);
        fresh.filter(|(_, known)| known.is_none()).map(|(found, _)| found).collect()
    }

    fn handle_event(&mut self, event: ScanEvent) -> ControlFlow<()> {
        match event {
            ScanEvent::Progress(progress) => {
                self.progress = progress;
                self.draw();
            }
            ScanEvent::Measured => {
                self.done += 1;
                self.draw();
            }
            ScanEvent::Report(report) => {
                self.report_recalled();
                self.order.pop_front();
                self.journal_report(&report);
                self.report_file(*report);
            }
        }
        if self.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    const fn goes_on(&self) -> bool {
        self.output.is_open() || self.writes_files
    }

    /// Reports files from the journal, up to the next one that has to be measured.
    fn report_recalled(&mut self) {
        while self.goes_on()
            && let Some(report) = self.order.front_mut().and_then(Option::take)
        {
            self.order.pop_front();
            self.done += 1;
            self.known_bytes += bytes(&report.path);
            self.draw();
            self.report_file(report);
        }
    }

    fn draw(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let rate = self.progress.seconds / self.bar.elapsed().as_secs_f64().max(1e-3);
        let files = if self.files == 1 { "file" } else { "files" };
        self.bar
            .set_message(format!("{}/{} {files}, {rate:.0} x real time", self.done, self.files));
        self.bar.set_position(self.known_bytes + self.progress.bytes);
    }

    fn journal_report(&mut self, report: &ScanReport) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.note(report)
        {
            // The scan continues without the journal, and reports the error at the end.
            (self.journal, self.journal_error) = (None, Some(error));
        }
    }

    fn report_file(&mut self, mut report: ScanReport) {
        if self.args.album {
            Album::of(&mut self.albums, &report).add(&report);
        }
        let mut error = report.error.map(|error| error.to_string());
        match report.error {
            None => self.measured += 1,
            Some(error) => {
                self.failed += 1;
                self.no_input &= error.is_no_input();
            }
        }
        let mut tagged = Ok(String::new());
        if !self.args.album && error.is_none() {
            tagged = self.tag(&report.path, &report.loudness, None);
        }
        let changes = tagged.unwrap_or_else(|why| {
            error = Some(why.to_string());
            String::new()
        });
        let (gain, lowered) = self.gain(report.loudness.integrated, &report.loudness);
        if let Some(page) = &mut self.page {
            page.add(&mut report, error.clone(), gain);
        }
        let rate = report.shape.map(|shape| shape.rate.hz());
        let row = Row {
            path: &report.path,
            error,
            sample_rate: rate,
            channels: report.shape.map(|shape| shape.layout.channels()),
            seconds: report.shape.map(|shape| shape.seconds),
            loudness: report.loudness,
            gain,
            lowered,
            warnings: report.warnings,
        };
        self.print(&row);
        self.print_message(&changes);
    }

    /// The gain for a file or album with loudness `gain_basis`, and by how much the peak limits it.
    fn gain(
        &self,
        gain_basis: Option<Lufs>,
        loudness: &LoudnessSummary,
    ) -> (Option<Db>, Option<Db>) {
        let Some(target_gain) = self.args.target.gain(gain_basis) else { return (None, None) };
        let gain = tag::limit_gain(target_gain, loudness.true_peak, self.args.max_true_peak);
        let lowered = target_gain - gain;
        (Some(gain), (lowered.get() > 0.0).then_some(lowered))
    }

    fn tag(
        &mut self,
        path: &Path,
        loudness: &LoudnessSummary,
        album: Option<tag::GainTags>,
    ) -> Result<String, tag::TagError> {
        let Some(tagger) = &mut self.tagger else { return Ok(String::new()) };
        let lines = tagger.tag(path, loudness, album)?;
        if let Some(journal) = &mut self.journal
            && !self.args.dry_run
            && let Err(error) = journal.tagged(path)
        {
            (self.journal, self.journal_error) = (None, Some(error));
        }
        Ok(lines)
    }

    /// Reports albums, in the order of their folders.
    fn report_albums(&mut self) {
        for album in std::mem::take(&mut self.albums) {
            if !self.goes_on() {
                return;
            }
            let loudness = album.loudness(self.options);
            let gain_basis = album.gain_basis(self.args.album_rule, &loudness);
            let (gain, lowered) = self.gain(gain_basis, &loudness);
            let row = Row {
                path: &album.folder,
                error: album.error(),
                sample_rate: album.rate.common(),
                channels: album.channels.common(),
                seconds: album.seconds(),
                loudness,
                gain,
                lowered,
                warnings: Vec::new(),
            };
            self.print(&row);
            // An incomplete album has no gain.
            let is_complete = album.error().is_none();
            let tagger = self.tagger.as_ref().filter(|_| is_complete);
            let volume = tagger.and_then(|tagger| tagger.volume(&loudness, gain_basis));
            self.tag_album(&album, volume);
        }
    }

    fn tag_album(&mut self, album: &Album, volume: Option<tag::GainTags>) {
        for (path, loudness) in &album.tracks {
            if !self.goes_on() {
                return;
            }
            let name = plain(&path.to_string_lossy());
            match self.tag(path, loudness, volume) {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => self.print_message(&format!("{name}\n{changes}")),
                Err(error) => self.bar.suspend(|| write_now(format_args!("{name}: {error}"))),
            }
        }
    }

    fn print(&mut self, row: &Row<'_>) {
        self.output.print_with(|| self.bar.suspend(|| self.rows.print(row)));
    }

    fn print_message(&mut self, text: &str) {
        if !text.is_empty() {
            self.output.print_with(|| self.bar.suspend(|| self.rows.print_message(text)));
        }
    }

    fn end(self, skipped: usize) -> Result<Exit, Failure> {
        self.bar.finish_and_clear();
        if !self.goes_on() {
            return self.output.finish().map(|()| Exit::Ok);
        }
        if let Some((page, path)) = self.page.zip(self.args.report.as_ref()) {
            page.write(path).map_err(|error| cannot_write(path, &error))?;
        }
        if let Some((error, path)) = self.journal_error.zip(self.args.resume.as_ref()) {
            return Err(cannot_write(path, &error));
        }
        if skipped > 0 && !self.quiet {
            note!("{skipped} file(s) skipped: their gain tags are complete");
        }
        let untagged = self.tagger.as_ref().map_or(0, |tagger| tagger.failed);
        if let Some(tagger) = self.tagger.filter(|_| !self.quiet && self.measured > 0) {
            note!("{}", tagger.summary());
        }
        match (self.measured, self.failed) {
            _ if untagged > 0 => Ok(Exit::SomeFailed),
            (_, 0) => self.output.finish().map(|()| Exit::Ok),
            (0, _) if self.no_input => Ok(Exit::NoInput),
            (0, 1) => Ok(Exit::Data),
            _ => Ok(Exit::SomeFailed),
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let name = plain(&path.to_string_lossy());
    Failure::new(Exit::CannotCreate, format!("{name}: cannot be written: {error}"))
}

/// A progress bar over the bytes of all files.
fn progress(files: &[ScanFile], quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let all = files.iter().map(|found| bytes(&found.path)).sum();
    let bar = ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr());
    // The template is a constant and valid; the default would do as well.
    bar.with_style(
        ProgressStyle::with_template("{wide_bar} {msg}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// The size of a file; 0 if there is none.
fn bytes(path: &Path) -> u64 {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map_or(0, |file| file.len())
}

/// Files that a note names; their number is always said.
const MAX_NAMED: usize = 20;

/// Limit of threads; more than the number of processors only cost memory.
const MAX_JOBS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

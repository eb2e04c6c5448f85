//! Output of a recording: a status line on a terminal, and each complete file.

use std::io::{self, IsTerminal};

use aulos_control::closed_segment_json;
use aulos_core::{Frames, Span};
use aulos_engine::loudness::Loudness;
use aulos_engine::recorder::RecordingState;
use aulos_files::record::{RecorderEventKind, RecorderStatus};
use aulos_server::exit::Failure;

use crate::cli::output::console::{note, write_error};
use crate::cli::output::figures::{clock, db, lufs};
use crate::cli::output::{ColorMode, SideReport};

/// Files go to standard output, messages to standard error.
pub(super) struct RecordOutput {
    json: bool,
    quiet: bool,
    /// Whether standard error is a terminal, where the status line is redrawn.
    line: bool,
    red: (&'static str, &'static str),
    report: SideReport,
}

impl RecordOutput {
    pub(super) fn new(json: bool, quiet: bool, color: ColorMode) -> Self {
        let terminal = io::stderr().is_terminal();
        let red = if color.colors(terminal) { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        Self { json, quiet, line: terminal && !quiet, red, report: SideReport::new() }
    }

    /// Prints a message for people.
    pub(super) fn print_message(&self, text: &str) {
        if !self.quiet {
            self.clear();
            note!("{text}");
        }
    }

    /// Draws the status line.
    pub(super) fn print_progress(&self, status: &RecorderStatus, loudness: &Loudness) {
        if !self.line {
            return;
        }
        let word = match status.state {
            RecordingState::Idle | RecordingState::Waiting { .. } => "wait",
            RecordingState::Recording { .. } => "REC ",
            RecordingState::Paused { .. } => "hold",
        };
        let (on, off) = if word == "REC " { self.red } else { ("", "") };
        let (time, file) = match &status.segment {
            Some(segment) => {
                let name = segment.path.file_name().unwrap_or_default();
                (segment.rate.span(segment.frames), name.to_string_lossy().into_owned())
            }
            None => (Span::ZERO, String::new()),
        };
        let bytes = status.segment.as_ref().map_or(0, |segment| segment.bytes);
        let mut text = format!(
            "{on}{word}{off} {}  {}  M {:>5}  I {:>5} LUFS  TP {:>5} dBTP",
            clock(time),
            size(bytes),
            lufs(loudness.momentary),
            lufs(loudness.integrated),
            db(loudness.true_peak),
        );
        if let Some(free) = status.free_bytes {
            text += &format!("  {} free", size(free));
        }
        if !file.is_empty() {
            text += &format!("  {file}");
        }
        if let Some(fault) = &status.fault {
            text += &format!("  ({fault})");
        }
        write_error(format!("\r\x1b[K{text}"));
    }

    /// Reports an event of the recorder.
    pub(super) fn event(&mut self, what: &RecorderEventKind) {
        match what {
            RecorderEventKind::SegmentClosed(closed) => {
                self.clear();
                let line = if self.json {
                    format!("{}\n", closed_segment_json(closed))
                } else {
                    format!("{}\n", closed.path.display())
                };
                self.report.print(&line);
                if closed.lost > Frames::ZERO {
                    let seconds = closed.rate.span(closed.lost).as_secs_f64();
                    let path = closed.path.display();
                    self.print_message(&format!("{path}: {seconds:.3} s of sound are missing"));
                }
            }
            RecorderEventKind::FramesLost { frames, rate, cause, .. } => {
                let seconds = rate.span(*frames).as_secs_f64();
                self.print_message(&format!("{cause}: {seconds:.3} s of sound lost"));
            }
            RecorderEventKind::ClockChanged { change, .. } => {
                self.print_message(&change.to_string());
            }
            RecorderEventKind::Failed(fault) => self.print_message(&format!("{fault}; retrying")),
            RecorderEventKind::Recovered => self.print_message("writing works again"),
            RecorderEventKind::FileRemoved { path } => {
                self.print_message(&format!("{}: file has disappeared", path.display()));
            }
            RecorderEventKind::FileRepaired { path } => {
                self.print_message(&format!("{}: incomplete file repaired", path.display()));
            }
            RecorderEventKind::RepairFailed { path, reason } => {
                self.print_message(&format!(
                    "{}: incomplete file cannot be repaired: {reason}",
                    path.display()
                ));
            }
            _ => {}
        }
    }

    /// Ends the status line, and returns the error of standard output.
    pub(super) fn end(self) -> Result<(), Failure> {
        self.clear();
        self.report.finish()
    }

    fn clear(&self) {
        if self.line {
            write_error("\r\x1b[K".to_owned());
        }
    }
}

/// Formats a size with three significant digits.
fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().si().to_string()
}

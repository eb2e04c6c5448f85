//! What a recording shows: a line that moves on a terminal, and each complete file.

use std::io::{self, IsTerminal, Write};

use aulos_core::Span;
use aulos_engine::loudness::Loudness;
use aulos_engine::recorder::RecordingState;
use aulos_io::record::What;
use aulos_server::control::closed_figures;
use aulos_server::exit::Failure;

use super::recorder::FileRecorder;
use crate::cli::figures::{clock, db, lufs};
use crate::cli::{ColorMode, print};

/// Standard output for files, standard error for people.
pub(super) struct RecordOutput {
    json: bool,
    quiet: bool,
    /// A terminal: the line that is there is drawn over.
    line: bool,
    red: (&'static str, &'static str),
}

impl RecordOutput {
    pub(super) fn new(json: bool, quiet: bool, color: ColorMode) -> Self {
        let terminal = io::stderr().is_terminal();
        let red = if color.colors(terminal) { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        Self { json, quiet, line: terminal && !quiet, red }
    }

    /// A sentence for people.
    pub(super) fn print_message(&self, text: &str) {
        if !self.quiet {
            self.clear();
            eprintln!("{text}");
        }
    }

    /// How it goes, on a terminal.
    pub(super) fn print_progress(&self, tape: &FileRecorder, loudness: &Loudness) {
        if !self.line {
            return;
        }
        let status = tape.status();
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
        if let Some(free) = status.free {
            text += &format!("  {} free", size(free));
        }
        if !file.is_empty() {
            text += &format!("  {file}");
        }
        if let Some(trouble) = status.trouble {
            text += &format!("  ({trouble})");
        }
        eprint!("\r\x1b[K{text}");
        // Nobody reads it any more: it is only a picture.
        drop(io::stderr().flush());
    }

    /// Something has happened.
    pub(super) fn event(&self, what: &What) -> Result<(), Failure> {
        match what {
            What::Closed(closed) => {
                self.clear();
                let line = if self.json {
                    format!("{}\n", closed_figures(closed))
                } else {
                    format!("{}\n", closed.path.display())
                };
                print(line.as_bytes()).map(|_| ())?;
            }
            What::Lost { frames, .. } => {
                self.print_message(&format!("the disk is too slow: {} frames were lost", frames.0));
            }
            What::Trouble(trouble) => self.print_message(&format!("{trouble}; trying again")),
            What::Recovered => self.print_message("the disk is there again"),
            What::Vanished { path } => {
                self.print_message(&format!("{} has disappeared", path.display()))
            }
            What::Repaired { path } => {
                self.print_message(&format!(
                    "{} was left behind, and is whole again",
                    path.display()
                ));
            }
            What::Unrepaired { path, why } => {
                self.print_message(&format!(
                    "{} was left behind, and cannot be mended: {why}",
                    path.display()
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// The last line stays.
    pub(super) fn end(&self) {
        self.clear();
    }

    fn clear(&self) {
        if self.line {
            eprint!("\r\x1b[K");
        }
    }
}

/// Bytes, to three figures.
fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().si().to_string()
}

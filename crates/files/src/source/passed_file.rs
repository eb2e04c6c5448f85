//! A file whose encoded frames a mount passes: its bytes go through the decoder of streams.
//!
//! ```text
//!  PassedFile (codec pool) --bytes--> StreamSource (codec pool) --blocks--> station
//!                                          '------frames------> mount
//! ```
//!
//! Nothing paces it but the room in front of the decoder. A loop opens the file anew, so that a
//! replaced one is played, and its first frame follows the last one without a pause.

use core::fmt;
use std::fs::File;
use std::io::{self, Read as _};

use aulos_core::Backoff;
use aulos_io::feed::{StreamError, StreamState, StreamWriter};
use aulos_io::{Job, JobStatus, RetryTime, SourcePath, SystemClock};
use aulos_proto::packets::{FormatHint, PacketSplitter, SplitterEvent};
use aulos_rt::{LatestPublisher, LatestReader};

/// Why a file is not played. It is tried again in each case, because it may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassedFileError {
    /// It cannot be opened or read.
    Io(io::ErrorKind),
    /// It cannot be decoded.
    Stream(StreamError),
    /// It has no frame.
    Empty,
}

/// A job of the codec pool: feeds a file to a [`super::StreamSource`], once or in a loop.
pub struct PassedFile {
    path: SourcePath,
    is_looped: bool,
    writer: StreamWriter,
    stream: LatestReader<StreamState>,
    phase: Phase,
    /// Bodies so far, as the decoder counts them, and the number of the first one since a failure.
    bodies: u64,
    first_body: u64,
    /// Packets of the stream when that body began.
    packets: u64,
    piece: Vec<u8>,
    backoff: Backoff,
    retry: RetryTime,
    error: LatestPublisher<Option<PassedFileError>>,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open(File),
    /// It has been read to its end, which is to be marked.
    Ending,
    Ended,
}

impl PassedFile {
    /// The job, and a reader of what keeps it from playing. `stream` is the state of the decoder
    /// behind `writer`, and `seed` determines the random pauses between retries.
    #[must_use]
    pub fn new(
        path: SourcePath,
        is_looped: bool,
        (writer, stream): (StreamWriter, LatestReader<StreamState>),
        seed: u64,
    ) -> (Self, LatestReader<Option<PassedFileError>>) {
        let (error, seen) = aulos_rt::latest(None);
        let file = Self {
            path,
            is_looped,
            writer,
            stream,
            phase: Phase::Closed,
            bodies: 0,
            first_body: 0,
            packets: 0,
            piece: vec![0; READ_BYTES],
            backoff: Backoff::new(seed),
            retry: RetryTime::default(),
            error,
        };
        (file, seen)
    }

    /// Whether a file is a stream of frames; one that cannot be read is judged by its name.
    #[must_use]
    pub fn is_stream(path: &SourcePath) -> bool {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match open_file(path) {
            Ok(file) => has_frames(file).unwrap_or(false),
            Err(_) => STREAM_ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)),
        }
    }

    /// When the file is tried again, for its status.
    #[must_use]
    pub fn retry_time(&self) -> RetryTime {
        self.retry.clone()
    }

    fn open(&mut self) {
        if !self.backoff.is_due(SystemClock::now()) {
            return;
        }
        match open_file(&self.path) {
            Ok(file) => {
                let is_first = self.first_body == 0;
                let has_begun = match is_first {
                    true => self.writer.begin(FormatHint::None),
                    false => self.writer.follow(FormatHint::None),
                };
                // Without room for the mark, the next step tries again.
                if !has_begun {
                    return;
                }
                self.bodies += 1;
                if is_first {
                    self.first_body = self.bodies;
                    self.packets = self.stream.read().counts.packets;
                    self.retry.set(None);
                    self.error.publish(None);
                }
                self.phase = Phase::Open(file);
            }
            Err(error) => self.fail(PassedFileError::Io(error.kind())),
        }
    }

    fn fail(&mut self, error: PassedFileError) {
        self.error.publish(Some(error));
        self.backoff.failed(SystemClock::now());
        self.retry.set(Some(self.backoff.retry_at()));
        (self.phase, self.first_body) = (Phase::Closed, 0);
    }

    /// Reads as much as there is room for, to the end of the file at most.
    fn feed(&mut self) {
        if let Some(error) = self.stream_error() {
            return self.fail(error);
        }
        loop {
            let Phase::Open(file) = &mut self.phase else { return };
            let room = self.writer.room().min(self.piece.len());
            let piece = self.piece.get_mut(..room).unwrap_or_default();
            if piece.is_empty() {
                return;
            }
            match file.read(piece) {
                Ok(0) if self.is_looped => self.phase = Phase::Closed,
                Ok(0) => self.phase = Phase::Ending,
                Ok(count) => {
                    self.writer.write(piece.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(PassedFileError::Io(error.kind())),
            }
        }
    }

    /// What the decoder says of the bodies since the last failure.
    fn stream_error(&mut self) -> Option<PassedFileError> {
        let StreamState { body, error, counts, .. } = *self.stream.read();
        if self.first_body == 0 || body < self.first_body {
            return None;
        }
        match error {
            Some(error) => Some(PassedFileError::Stream(error)),
            // A whole round without one.
            None if body > self.first_body && counts.packets == self.packets => {
                Some(PassedFileError::Empty)
            }
            None => {
                if counts.packets > self.packets {
                    self.backoff.succeeded(SystemClock::now());
                }
                None
            }
        }
    }
}

impl Job for PassedFile {
    fn step(&mut self) -> JobStatus {
        if self.writer.is_abandoned() {
            return JobStatus::Done;
        }
        // A short file is read more than once.
        for _ in 0..MAX_ROUNDS {
            match self.phase {
                Phase::Closed => self.open(),
                Phase::Open(_) => self.feed(),
                Phase::Ending if self.writer.end() => self.phase = Phase::Ended,
                Phase::Ending | Phase::Ended => {}
            }
        }
        JobStatus::Pending
    }
}

impl fmt::Debug for PassedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Display for PassedFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(kind) => write!(f, "{kind}"),
            Self::Stream(error) => write!(f, "{error}"),
            Self::Empty => f.write_str("it has no sound"),
        }
    }
}

impl core::error::Error for PassedFileError {}

/// Opens a regular file: a FIFO would never end.
fn open_file(path: &SourcePath) -> io::Result<File> {
    let file = path.open()?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Whether the beginning of a file is that of a stream.
fn has_frames(file: File) -> io::Result<bool> {
    let (mut bytes, mut at) = (Vec::new(), 0);
    file.take(PROBED_BYTES).read_to_end(&mut bytes)?;
    let mut splitter = PacketSplitter::new(FormatHint::None);
    loop {
        match splitter.next() {
            Ok(Some(SplitterEvent::Begin(_))) => return Ok(true),
            Ok(Some(_)) => {}
            Err(_) => return Ok(false),
            Ok(None) => {
                let count = splitter.push(bytes.get(at..).unwrap_or_default());
                if count == 0 {
                    return Ok(false);
                }
                at += count;
            }
        }
    }
}

const READ_BYTES: usize = 16 * 1_024;

/// A picture in front of the sound is longer, and such a file is decoded as a whole one.
const PROBED_BYTES: u64 = 1 << 20;

/// Openings and readings of a step, so that a file of some bytes cannot block the thread.
const MAX_ROUNDS: usize = 16;

const STREAM_ENDINGS: [&str; 6] = ["mp3", "aac", "ogg", "oga", "opus", "flac"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use aulos_blackbox::scratch::ScratchDir;
    use aulos_engine::source::SourceItem;
    use aulos_io::feed::{FrameReader, frame_channel};

    use super::super::StreamParts;
    use super::*;

    /// Silent MP3 frames of 128 kbit/s, 44,100 Hz and stereo.
    fn mp3(frames: usize) -> Vec<u8> {
        let frame: Vec<u8> = [0xff, 0xfb, 0x90, 0].into_iter().chain([0; 413]).collect();
        frame.repeat(frames)
    }

    #[derive(Default)]
    struct Played {
        frames: usize,
        begins: usize,
        samples: usize,
        ends: usize,
        error: Option<PassedFileError>,
    }

    /// Runs both jobs for a number of steps.
    fn play(path: &Path, is_looped: bool, steps: usize) -> Played {
        let StreamParts { writer, source, mut items, state, .. } = StreamParts::new();
        let (frame_writer, mut frames): (_, FrameReader) = frame_channel();
        let mut source = source.with_frames(Some(frame_writer));
        let (mut file, mut error) = PassedFile::new(path.into(), is_looped, (writer, state), 1);
        let mut played = Played::default();
        for _ in 0..steps {
            assert_eq!(file.step(), JobStatus::Pending);
            source.step();
            while let Some(item) = items.pop() {
                match item {
                    SourceItem::Block(block) => played.samples += block.samples().len() / 2,
                    SourceItem::End => played.ends += 1,
                    SourceItem::Lost => panic!("a file is never lost"),
                }
            }
            while let Some(frame) = frames.pop() {
                assert!(!frame.is_after_gap && frame.bytes.len() == 417, "{frame:?}");
                played.frames += 1;
                played.begins += usize::from(frame.begins.is_some());
            }
        }
        played.error = *error.read();
        played
    }

    #[test]
    fn a_loop_passes_every_frame_of_every_round_without_a_pause() {
        let scratch = ScratchDir::new("passed-file").unwrap();
        let path = scratch.join("a.mp3");
        std::fs::write(&path, mp3(100)).unwrap();
        let played = play(&path, true, 200);
        assert!(played.frames > 300, "{}", played.frames);
        // Each round is a stream of its own.
        assert_eq!(played.begins, played.frames.div_ceil(100));
        assert_eq!((played.ends, played.error), (0, None));
        assert!(played.frames * 1_152 - played.samples < 1_152, "{}", played.samples);
        let once = play(&path, false, 200);
        assert_eq!((once.frames, once.begins, once.ends), (100, 1, 1));
        assert_eq!(once.samples, 100 * 1_152);
        // The whole of a short one is in front of the decoder many times.
        std::fs::write(&path, mp3(2)).unwrap();
        let played = play(&path, true, 20);
        assert!(played.frames > 100 && played.begins == played.frames.div_ceil(2));
    }

    #[test]
    fn what_cannot_be_played_is_reported_and_does_not_run_on() {
        let scratch = ScratchDir::new("passed-file-error").unwrap();
        let missing = play(&scratch.join("none.mp3"), true, 3);
        assert_eq!(missing.error, Some(PassedFileError::Io(io::ErrorKind::NotFound)));
        let folder = play(&scratch, true, 3);
        assert_eq!(folder.error, Some(PassedFileError::Io(io::ErrorKind::InvalidInput)));
        let path = scratch.join("page.mp3");
        for text in ["<html>", " "] {
            std::fs::write(&path, text.repeat(100_000)).unwrap();
            let page = play(&path, true, 100);
            assert!(matches!(page.error, Some(PassedFileError::Stream(_))), "{:?}", page.error);
            assert_eq!(page.frames, 0);
        }
        for few in [&b""[..], b"x", &[0; 50]] {
            std::fs::write(&path, few).unwrap();
            assert!(play(&path, true, 20).error.is_some(), "{few:?}");
        }
    }

    #[test]
    fn a_file_is_a_stream_by_its_content_or_if_there_is_none_by_its_name() {
        let scratch = ScratchDir::new("passed-file-kind").unwrap();
        let is_stream = |path: &Path| PassedFile::is_stream(&path.into());
        let path = scratch.join("a.wrong");
        std::fs::write(&path, mp3(3)).unwrap();
        assert!(is_stream(&path));
        let path = scratch.join("a.mp3");
        std::fs::write(&path, b"\0\0\0\x20ftypM4A \0\0\0\0").unwrap();
        assert!(!is_stream(&path));
        assert!(is_stream(&scratch.join("later.MP3")));
        assert!(!is_stream(&scratch.join("later.m4a")));
        assert!(!is_stream(&scratch));
    }
}

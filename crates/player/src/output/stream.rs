//! Files and standard output: samples at the pace of a virtual card.
//!
//! A pipe may be full. What does not fit waits here, up to a second; then there is no more room,
//! and the card stands still until the pipe is read again. Nothing blocks, so that the player can
//! always be stopped.

use std::fs::{File, metadata};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use aulos_core::{Frames, Instant, SampleFormat, SampleSpec};
use aulos_dsp::Dither;
use aulos_session::player::DevicePosition;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use super::card::{CardConfig, VirtualCard};
use super::device::{Output, OutputError};
use super::wav::{WavSizes, wave_format};

#[derive(Debug)]
pub(super) struct StreamOutput {
    file: File,
    /// For messages.
    name: String,
    is_regular: bool,
    config: CardConfig,
    /// What was asked for; otherwise that of the stream.
    format: Option<SampleFormat>,
    is_wav: bool,
    sizes: Option<WavSizes>,
    /// The spec of what has been written.
    spec: Option<SampleSpec>,
    card: Option<VirtualCard>,
    dither: Dither,
    /// Bytes that wait to be written, and how many of them have been.
    pending: Vec<u8>,
    done: usize,
    /// Bytes of samples, including those that wait.
    samples: u64,
}

impl StreamOutput {
    /// Creates a file; one with contents is an error, unless it is to be replaced. A FIFO must have
    /// its reader.
    pub(super) fn file(
        (path, replaces): (&Path, bool),
        config: CardConfig,
        format: Option<SampleFormat>,
    ) -> Result<Self, OutputError> {
        let name = path.display().to_string();
        let has_contents = || metadata(path).is_ok_and(|it| it.is_file() && it.len() > 0);
        if !replaces && has_contents() {
            let error = io::Error::other(
                "the file already exists; use another name, or --force to replace it",
            );
            return Err(OutputError::Open { name, error });
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = open(path, flags | OFlags::NONBLOCK, mode).map(File::from).map_err(|error| {
            let error = match error {
                rustix::io::Errno::NXIO => io::Error::other("the FIFO has no reader"),
                other => other.into(),
            };
            OutputError::Open { name: name.clone(), error }
        })?;
        let is_wav = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("wav"));
        Ok(Self::new(file, (name, is_wav), config, format))
    }

    /// Standard output, unless it is a terminal.
    pub(super) fn stdout(
        config: CardConfig,
        format: Option<SampleFormat>,
    ) -> Result<Self, OutputError> {
        let name = "standard output".to_owned();
        let stdout = io::stdout();
        let opened = if stdout.is_terminal() {
            Err(io::Error::other("samples are not for a terminal; redirect it"))
        } else {
            stdout.as_fd().try_clone_to_owned()
        };
        match opened {
            Ok(own) => Ok(Self::new(own.into(), (name, false), config, format)),
            Err(error) => Err(OutputError::Open { name, error }),
        }
    }

    fn new(
        file: File,
        (name, is_wav): (String, bool),
        config: CardConfig,
        format: Option<SampleFormat>,
    ) -> Self {
        let is_regular = fstat(&file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Self {
            file,
            name,
            is_regular,
            config,
            format,
            is_wav,
            sizes: None,
            spec: None,
            card: None,
            dither: Dither::default(),
            pending: Vec::new(),
            done: 0,
            samples: 0,
        }
    }

    /// Whether a write of [`PIPE_BUF`] bytes does not block. Standard output belongs to other
    /// programs too, so it must not be made non-blocking.
    fn is_writable(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
        // A gone reader is an error that the write reports.
        self.is_regular || poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    fn write_pending(&mut self) -> io::Result<()> {
        while self.done < self.pending.len() && self.is_writable() {
            let rest = &self.pending[self.done..];
            let most = if self.is_regular { rest.len() } else { rest.len().min(PIPE_BUF) };
            match self.file.write(&rest[..most]) {
                Ok(written) => self.done += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.done == self.pending.len() {
            self.pending.clear();
            self.done = 0;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), OutputError> {
        self.write_pending().map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> OutputError {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return OutputError::ReaderGone;
        }
        OutputError::Write { name: self.name.clone(), error }
    }
}

impl Output for StreamOutput {
    fn open(&mut self, mut spec: SampleSpec, now: Instant) -> Result<(), OutputError> {
        spec.format = self.format.unwrap_or(spec.format);
        if self.is_wav {
            spec.format = wave_format(spec.format);
        }
        match self.spec {
            Some(from) if from != spec => {
                let name = self.name.clone();
                return Err(OutputError::SpecChanged { name, from, to: spec });
            }
            None if self.is_wav => {
                let sizes = WavSizes::begin(spec, &mut self.pending);
                self.sizes = Some(sizes.map_err(|error| self.error(error))?);
            }
            _ => {}
        }
        self.spec = Some(spec);
        self.card = Some(VirtualCard::new(self.config, spec.rate, now));
        Ok(())
    }

    fn writable_frames(&mut self, now: Instant) -> Frames {
        let (Some(card), Some(spec)) = (&mut self.card, self.spec) else { return Frames::ZERO };
        let room = card.writable_frames(now);
        let second = spec.bytes(Frames(spec.rate.hz().into()));
        let waits = self.pending.len() - self.done;
        Frames(room.0.min((second.saturating_sub(waits) / spec.frame_bytes()) as u64))
    }

    fn period(&self) -> Frames {
        self.card.as_ref().map_or(Frames::ZERO, VirtualCard::period)
    }

    fn write(&mut self, samples: &[f32]) -> Result<(), OutputError> {
        let (Some(card), Some(spec)) = (&mut self.card, self.spec) else { return Ok(()) };
        card.wrote(Frames::from(samples.len() / spec.layout.channels()));
        if self.done > 0 {
            self.pending.drain(..self.done);
            self.done = 0;
        }
        let start = self.pending.len();
        self.pending.resize(start + samples.len() * spec.format.bytes(), 0);
        self.dither.encode(spec.format, samples, &mut self.pending[start..]);
        self.samples += (self.pending.len() - start) as u64;
        self.flush()
    }

    fn progress(&mut self, _now: Instant) -> Result<(), OutputError> {
        self.flush()
    }

    fn position(&self, now: Instant) -> DevicePosition {
        let closed = DevicePosition { played: Frames::ZERO, at: now };
        self.card.as_ref().map_or(closed, |card| card.position(now))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A full pipe wakes the player by its descriptor.
        self.card.as_ref().filter(|_| self.pending.is_empty()).map(VirtualCard::next_room)
    }

    fn descriptor(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let is_full = !self.pending.is_empty();
        let flags = if is_full { PollFlags::OUT } else { PollFlags::empty() };
        (!self.is_regular).then(|| (self.file.as_fd(), flags))
    }

    fn close(&mut self) -> Result<(), OutputError> {
        self.card = None;
        self.flush()?;
        if let Some(sizes) = self.sizes.as_ref().filter(|_| self.is_regular) {
            sizes.write(&self.file, self.samples).map_err(|error| self.error(error))?;
        }
        Ok(())
    }
}

/// A pipe that is writable takes this much at once (pipe(7)).
const PIPE_BUF: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use aulos_blackbox::scratch::ScratchDir;
    use aulos_core::Span;

    use super::super::OutputConfig;
    use super::super::card::STREAM_CARD;
    use super::*;

    fn spec(text: &str) -> SampleSpec {
        text.parse().unwrap()
    }

    fn config(path: &Path) -> OutputConfig {
        format!("file:{}", path.display()).parse().unwrap()
    }

    #[test]
    fn a_file_with_contents_is_replaced_only_when_that_was_asked_for() {
        let scratch = ScratchDir::new("player-replace").unwrap();
        let path = scratch.join("song.flac");
        std::fs::write(&path, "a song").unwrap();
        let error = config(&path).create(None).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a song");
        assert!(config(&path).replacing().create(None).is_ok());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_wave_file_is_complete_after_each_close() {
        let scratch = ScratchDir::new("player-wav").unwrap();
        let path = scratch.join("a.WAV");
        let mut output = config(&path).create(None).unwrap();
        for rounds in 1..=2 {
            output.open(spec("48000:24:1"), Instant::ZERO).unwrap();
            output.write(&[0.5, -0.25, 0.0]).unwrap();
            output.close().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let samples = rounds * 9;
            let data = bytes.windows(4).position(|word| word == b"data").unwrap();
            let size = u32::from_le_bytes(bytes[data + 4..data + 8].try_into().unwrap());
            assert_eq!(size as usize, samples);
            assert_eq!(bytes.len(), data + 8 + samples + samples % 2);
            assert_eq!(bytes[data + 8..data + 17], [0, 0, 0x40, 0, 0, 0xe0, 0, 0, 0]);
        }
        let error = output.open(spec("44100:24:1"), Instant::ZERO).unwrap_err().to_string();
        assert!(error.contains("from 48000:s24:1 to 44100:s24:1"), "{error}");
        assert!(error.contains("a.WAV"), "{error}");
    }

    #[test]
    fn a_full_disk_is_an_error_with_its_path() {
        let mut output = config(Path::new("/dev/full")).create(None).unwrap();
        output.open(spec("48000:16:2"), Instant::ZERO).unwrap();
        let error = output.write(&[0.0; 64]).unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
        let error = config(Path::new("/nowhere/a")).create(None).unwrap_err();
        assert!(error.to_string().contains("/nowhere/a"), "{error}");
    }

    #[test]
    fn a_pipe_that_is_not_read_takes_a_second_and_no_more() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let card = CardConfig { latency: Span::ZERO, ..STREAM_CARD };
        let mut output = StreamOutput::new(file, ("a pipe".to_owned(), false), card, None);
        output.open(spec("48000:16:2"), Instant::ZERO).unwrap();
        let mut now = Instant::ZERO;
        let mut sent = 0;
        for _ in 0..500 {
            now += Span::from_millis(20);
            let room = output.writable_frames(now).min(output.period());
            output.write(&vec![0.25; room.as_usize() * 2]).unwrap();
            sent += room.as_usize() * 4;
        }
        assert!(
            output.writable_frames(now) == Frames::ZERO && (192_000..300_000).contains(&sent),
            "{sent}"
        );
        assert!(output.pending.capacity() < 600_000);
        let mut got = vec![0; sent];
        let reading = std::thread::spawn(move || reader.read_exact(&mut got).map(|()| got));
        while !output.pending.is_empty() {
            output.flush().unwrap();
        }
        let got = reading.join().unwrap().unwrap();
        assert!(got.chunks(2).all(|sample| sample == [0, 0x20]));
        // The reader is gone with its thread.
        assert!(matches!(output.write(&[0.0; 2]), Err(OutputError::ReaderGone)));
    }
}

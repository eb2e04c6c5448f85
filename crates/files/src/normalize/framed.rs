//! Writes WAVE and Ogg Opus with the file encoders of the recorder, plus a buffer and tags.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use aulos_core::Frames;
use aulos_proto::wav;

use super::container::OutputContainer;
use super::spec::OutputSpec;
use crate::record::format::{OpusFileEncoder, WaveFileEncoder};

/// A file that is being written.
pub(super) struct FramedFile {
    out: BufWriter<File>,
    encoder: WaveOrOpusEncoder,
    bytes: Vec<u8>,
}

enum WaveOrOpusEncoder {
    Wave(WaveFileEncoder),
    Opus(Box<OpusFileEncoder>),
}

impl FramedFile {
    pub(super) fn new(mut out: BufWriter<File>, output: &OutputSpec<'_>) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let encoder = match output.container {
            OutputContainer::Opus => WaveOrOpusEncoder::Opus(Box::new(opus(output, &mut bytes)?)),
            _ => WaveOrOpusEncoder::Wave(wave(output, &mut bytes)?),
        };
        out.write_all(&bytes)?;
        Ok(Self { out, encoder, bytes })
    }

    pub(super) fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        self.bytes.clear();
        match &mut self.encoder {
            WaveOrOpusEncoder::Wave(wave) => wave.encode(samples, &mut self.bytes),
            WaveOrOpusEncoder::Opus(opus) => {
                opus.encode_samples(samples, &mut self.bytes).map_err(io::Error::other)?;
            }
        }
        self.out.write_all(&self.bytes)
    }

    /// Completes the file; WAVE gets an ID3 tag unless `id3` is empty.
    pub(super) fn finish(mut self, id3: &[u8]) -> io::Result<()> {
        let (mut bytes, mut patches) = (Vec::new(), Vec::new());
        match self.encoder {
            WaveOrOpusEncoder::Wave(wave) => {
                wave.finish_with_chunks(&id3_chunk(id3), &mut bytes, &mut patches)
                    .map_err(too_long)?;
            }
            WaveOrOpusEncoder::Opus(opus) => {
                opus.finish_file(&mut bytes).map_err(io::Error::other)?;
            }
        }
        self.out.write_all(&bytes)?;
        for patch in patches {
            self.out.seek(SeekFrom::Start(patch.at()))?;
            self.out.write_all(patch.bytes())?;
        }
        self.out.flush()
    }
}

fn wave(output: &OutputSpec<'_>, bytes: &mut Vec<u8>) -> io::Result<WaveFileEncoder> {
    // With a known length far below the limit, the plain RIFF header is used, which every player
    // supports.
    let frame = output.spec.frame_bytes() as u64;
    let expected = output.frames.map(|frames| frames.saturating_mul(frame));
    let reserve_ds64 = expected.is_none_or(|bytes| bytes > MAX_PLAIN_WAVE_BYTES);
    let header = wav::WavFileHeader {
        spec: output.spec,
        channel_mask: output.speakers,
        reserve_ds64,
        broadcast: None,
    };
    WaveFileEncoder::new(&header, bytes).map_err(io::Error::other)
}

fn opus(output: &OutputSpec<'_>, bytes: &mut Vec<u8>) -> io::Result<OpusFileEncoder> {
    let comments = output.tags.opus();
    let comments = comments.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let page = Frames(u64::MAX);
    OpusFileEncoder::new(output.spec, output.from, output.bitrate, comments, page, bytes).map_err(
        |_| {
            let channels = output.spec.layout.channels();
            let what = format!(
                "Opus output supports one or two channels, not {channels}; write FLAC or WAVE"
            );
            io::Error::new(io::ErrorKind::InvalidInput, what)
        },
    )
}

fn too_long(_: wav::FileTooLong) -> io::Error {
    let what = "the file exceeds the 4 GiB of its WAVE header; write FLAC";
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

fn id3_chunk(tag: &[u8]) -> Vec<u8> {
    if tag.is_empty() {
        return Vec::new();
    }
    let length = u32::try_from(tag.len()).unwrap_or(u32::MAX);
    let mut chunk = [b"id3 ", &length.to_le_bytes()[..], tag].concat();
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

/// Far enough below 4 GiB for any tag, and for a file that is longer than its header says.
const MAX_PLAIN_WAVE_BYTES: u64 = 3 << 30;

#[cfg(test)]
mod tests {
    use aulos_core::{ChannelLayout, SampleFormat, SampleRate, SampleSpec};

    use super::super::tags::Tags;
    use super::*;
    use crate::decode::WaveFile;

    fn written(frames: Option<u64>, most: Option<u64>, id3: &[u8]) -> (Vec<u8>, Option<WaveFile>) {
        let tags = Tags::default();
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
        let output = OutputSpec {
            container: OutputContainer::Wave,
            spec: SampleSpec { rate, layout, format: SampleFormat::S24Le },
            from: rate,
            frames,
            speakers: None,
            bitrate: 0,
            tags: &tags,
        };
        let file = tempfile();
        let mut wave = FramedFile::new(BufWriter::new(file.try_clone().unwrap()), &output).unwrap();
        if let Some(most) = most {
            let WaveOrOpusEncoder::Wave(encoder) = wave.encoder else { panic!() };
            wave.encoder = WaveOrOpusEncoder::Wave(encoder.with_max_riff_size(most));
        }
        wave.write(&[0.25; 1_001]).unwrap();
        wave.finish(id3).unwrap();
        let mut bytes = Vec::new();
        let mut whole = file.try_clone().unwrap();
        whole.seek(SeekFrom::Start(0)).unwrap();
        io::Read::read_to_end(&mut whole, &mut bytes).unwrap();
        (bytes, WaveFile::from_file(file).unwrap())
    }

    fn tempfile() -> File {
        let name = format!("aulos-wave-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        std::fs::remove_file(path).unwrap();
        file.unwrap()
    }

    #[test]
    fn a_short_file_has_the_plain_header_and_a_long_one_space_for_64_bit_sizes() {
        let (bytes, read) = written(Some(1_001), None, b"ID3tag");
        assert_eq!((&bytes[..4], &bytes[12..16]), (&b"RIFF"[..], &b"fmt "[..]));
        assert_eq!(read.unwrap().frames().0, 1_001);
        let riff = u32::try_from(bytes.len() - 8).unwrap();
        assert_eq!(riff.to_le_bytes(), bytes[4..8]);
        assert!(bytes.ends_with(b"\0id3 \x06\0\0\0ID3tag"));
        let (bytes, read) = written(None, None, b"");
        assert_eq!((&bytes[..4], &bytes[12..16]), (&b"RIFF"[..], &b"JUNK"[..]));
        assert_eq!(read.unwrap().frames().0, 1_001);
    }

    #[test]
    fn a_file_beyond_32_bit_sizes_is_rf64() {
        let (bytes, read) = written(None, Some(1_000), b"ID3");
        assert_eq!((&bytes[..8], &bytes[12..16]), (&b"RF64\xff\xff\xff\xff"[..], &b"ds64"[..]));
        let size = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([size(20), size(28), size(36)], [bytes.len() as u64 - 8, 3_003, 1_001]);
        let mut read = read.unwrap();
        assert_eq!((read.frames().0, read.is_cut()), (1_001, false));
        assert!(read.next(Frames(9)).unwrap().is_some());
    }
}

//! RIFF WAVE, which becomes RF64 (EBU Tech 3306) when it grows beyond the 4 GiB that it can count.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use aulos_core::{SampleFormat, SampleSpec};
use aulos_dsp::convert;

use super::save::Form;

pub(super) struct Wave {
    out: BufWriter<File>,
    format: SampleFormat,
    frame: u64,
    head: u64,
    /// Whether there is room in front for the sizes of RF64.
    reserved: bool,
    data: u64,
    bytes: Vec<u8>,
    /// An ID3 tag for the end of the file.
    id3: Vec<u8>,
    /// What 32 bits can count; less in tests.
    most: u64,
}

impl Wave {
    pub(super) fn new(mut out: BufWriter<File>, form: &Form<'_>) -> io::Result<Self> {
        let spec = form.spec;
        let frame = spec.frame_bytes() as u64;
        // Where the length is known and far below the limit, players get the plain old header.
        let expected = form.frames.map(|frames| frames.saturating_mul(frame));
        let reserved = expected.is_none_or(|bytes| bytes > SURELY_SHORT);
        let head = head_of(spec, form.speakers, reserved);
        out.write_all(&head)?;
        Ok(Self {
            out,
            format: spec.format,
            frame,
            head: head.len() as u64,
            reserved,
            data: 0,
            bytes: Vec::new(),
            id3: form.tags.id3.clone(),
            most: u64::from(u32::MAX),
        })
    }

    pub(super) fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        self.bytes.resize(samples.len() * self.format.bytes(), 0);
        convert::encode(self.format, samples, &mut self.bytes);
        self.data += self.bytes.len() as u64;
        self.out.write_all(&self.bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        // Chunks begin at even places; the byte that sees to it is not counted in its chunk.
        let odd = self.data % 2;
        self.out.write_all(&[0][..usize::from(odd == 1)])?;
        let mut behind = odd;
        if !self.id3.is_empty() {
            let length = u32::try_from(self.id3.len()).unwrap_or(u32::MAX);
            self.out.write_all(b"id3 ")?;
            self.out.write_all(&length.to_le_bytes())?;
            self.out.write_all(&self.id3)?;
            let odd = self.id3.len() % 2;
            self.out.write_all(&[0][..odd])?;
            behind += 8 + u64::from(length) + odd as u64;
        }
        let riff = self.head - 8 + self.data + behind;
        if riff > self.most {
            return self.become_rf64(riff);
        }
        self.at(4, &small(riff))?;
        self.at(self.head - 4, &small(self.data))?;
        self.out.flush()
    }

    /// The name, the placeholder and the sizes are exchanged; the sound stays where it is.
    fn become_rf64(mut self, riff: u64) -> io::Result<()> {
        if !self.reserved {
            let what = "it grew beyond the length that its header says: write FLAC";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        self.at(0, b"RF64")?;
        self.at(4, &u32::MAX.to_le_bytes())?;
        let mut sizes = b"ds64".to_vec();
        sizes.extend(DS64.to_le_bytes());
        for size in [riff, self.data, self.data / self.frame] {
            sizes.extend(size.to_le_bytes());
        }
        sizes.extend(0_u32.to_le_bytes());
        self.at(12, &sizes)?;
        self.at(self.head - 4, &u32::MAX.to_le_bytes())?;
        self.out.flush()
    }

    fn at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(place))?;
        self.out.write_all(bytes)
    }
}

fn small(size: u64) -> [u8; 4] {
    u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes()
}

/// Everything up to the first sample, sizes empty. More than two channels or 16 bits need the
/// extensible form (Microsoft, "Multiple channel audio data and WAVE files").
fn head_of(spec: SampleSpec, speakers: Option<u32>, reserved: bool) -> Vec<u8> {
    let SampleSpec { rate, layout, format } = spec;
    let channels = u16::try_from(layout.channels()).unwrap_or(u16::MAX);
    let frame = u16::try_from(spec.frame_bytes()).unwrap_or(u16::MAX);
    let tag: u16 = if format == SampleFormat::F32 { FLOAT } else { WHOLE };
    let extensible = channels > 2 || format != SampleFormat::S16Le;
    let mut head = Vec::new();
    head.extend(b"RIFF\0\0\0\0WAVE");
    if reserved {
        head.extend(b"JUNK");
        head.extend(DS64.to_le_bytes());
        head.extend([0; DS64 as usize]);
    }
    head.extend(b"fmt ");
    head.extend(if extensible { 40_u32 } else { 16 }.to_le_bytes());
    head.extend(if extensible { EXTENSIBLE } else { tag }.to_le_bytes());
    head.extend(channels.to_le_bytes());
    head.extend(rate.hz().to_le_bytes());
    head.extend(rate.hz().saturating_mul(u32::from(frame)).to_le_bytes());
    head.extend(frame.to_le_bytes());
    head.extend(format.bits().to_le_bytes());
    if extensible {
        let mask = speakers.filter(|mask| mask.count_ones() == u32::from(channels));
        head.extend(22_u16.to_le_bytes());
        head.extend(format.bits().to_le_bytes());
        head.extend(mask.unwrap_or(0).to_le_bytes());
        head.extend(tag.to_le_bytes());
        head.extend(SUBFORMAT);
    }
    head.extend(b"data\0\0\0\0");
    head
}

const WHOLE: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;
/// The rest of the identifier of a sub-format.
const SUBFORMAT: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];
/// Three sizes of 64 bits and an empty table.
const DS64: u32 = 28;
/// Below 4 GiB by more than any tag, and by more than a file may be longer than it says.
const SURELY_SHORT: u64 = 3 << 30;

#[cfg(test)]
mod tests {
    use aulos_core::{ChannelLayout, SampleRate};

    use super::super::save::Container;
    use super::super::tags::Tags;
    use super::*;
    use crate::decode::WaveFile;

    fn written(frames: Option<u64>, most: u64, id3: &[u8]) -> (Vec<u8>, Option<WaveFile>) {
        let tags = Tags { id3: id3.to_vec(), ..Tags::default() };
        let (rate, layout) = (SampleRate::STUDIO, ChannelLayout::MONO);
        let form = Form {
            container: Container::Wave,
            spec: SampleSpec { rate, layout, format: SampleFormat::S24Le },
            from: rate,
            frames,
            speakers: None,
            dither: false,
            bitrate: 0,
            tags: &tags,
        };
        let file = tempfile();
        let mut wave = Wave::new(BufWriter::new(file.try_clone().unwrap()), &form).unwrap();
        wave.most = most;
        wave.write(&[0.25; 1_001]).unwrap();
        wave.finish().unwrap();
        let mut bytes = Vec::new();
        let mut whole = file.try_clone().unwrap();
        whole.seek(SeekFrom::Start(0)).unwrap();
        io::Read::read_to_end(&mut whole, &mut bytes).unwrap();
        (bytes, WaveFile::of(file).unwrap())
    }

    fn tempfile() -> File {
        let name = format!("aulos-wave-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        std::fs::remove_file(path).unwrap();
        file.unwrap()
    }

    #[test]
    fn a_short_file_has_the_plain_header_and_a_long_one_room_for_sizes() {
        let (bytes, read) = written(Some(1_001), u64::from(u32::MAX), b"ID3tag");
        assert_eq!((&bytes[..4], &bytes[12..16]), (&b"RIFF"[..], &b"fmt "[..]));
        assert_eq!(read.unwrap().frames().0, 1_001);
        assert_eq!(small(bytes.len() as u64 - 8), bytes[4..8]);
        let (bytes, read) = written(None, u64::from(u32::MAX), b"");
        assert_eq!((&bytes[..4], &bytes[12..16]), (&b"RIFF"[..], &b"JUNK"[..]));
        assert_eq!(read.unwrap().frames().0, 1_001);
    }

    #[test]
    fn what_32_bits_cannot_count_is_rf64() {
        let (bytes, read) = written(None, 1_000, b"ID3");
        assert_eq!((&bytes[..8], &bytes[12..16]), (&b"RF64\xff\xff\xff\xff"[..], &b"ds64"[..]));
        let size = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([size(20), size(28), size(36)], [bytes.len() as u64 - 8, 3_003, 1_001]);
        let mut read = read.unwrap();
        assert_eq!((read.frames().0, read.is_cut()), (1_001, false));
        assert!(read.next(aulos_core::Frames(9)).unwrap().is_some());
    }
}

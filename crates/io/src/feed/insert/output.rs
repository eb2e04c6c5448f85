//! The standard output of an insert's program as samples.

use aulos_core::{SampleFormat, SampleSpec};
use aulos_dsp::convert;
use aulos_proto::wav::{self, ParseOutcome, WavSampleFormat};

/// The output is no WAVE file, or not one of the station's rate and channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongOutput;

/// Splits bytes into a header and samples.
#[derive(Debug)]
pub(super) struct OutputReader {
    spec: SampleSpec,
    /// The bytes so far, while the header is not complete.
    head: Option<Vec<u8>>,
    format: SampleFormat,
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
}

impl OutputReader {
    /// A reader of WAVE in any sample format, with the rate and the channels of `spec`.
    pub(super) const fn wave(spec: SampleSpec) -> Self {
        Self { spec, head: Some(Vec::new()), format: spec.format, partial: Vec::new() }
    }

    /// A reader of samples alone.
    pub(super) const fn raw(spec: SampleSpec) -> Self {
        Self { spec, head: None, format: spec.format, partial: Vec::new() }
    }

    /// Appends the whole frames of these bytes to `samples`.
    ///
    /// # Errors
    /// [`WrongOutput`].
    pub(super) fn push(&mut self, bytes: &[u8], samples: &mut Vec<f32>) -> Result<(), WrongOutput> {
        let Some(mut head) = self.head.take() else {
            self.convert(bytes, samples);
            return Ok(());
        };
        head.extend_from_slice(bytes);
        match wav::parse(&head) {
            Ok(ParseOutcome::Incomplete { needed }) if needed <= MAX_HEAD => {
                self.head = Some(head);
            }
            Ok(ParseOutcome::Complete(info))
                if info.rate == self.spec.rate && info.layout == self.spec.layout =>
            {
                let WavSampleFormat::Native(format) = info.sample_format else {
                    return Err(WrongOutput);
                };
                // The length is not looked at: programs write 0, the maximum, or that of a file.
                self.format = format;
                self.convert(&head[info.data_offset..], samples);
            }
            _ => return Err(WrongOutput),
        }
        Ok(())
    }

    fn convert(&mut self, bytes: &[u8], samples: &mut Vec<f32>) {
        let frame = self.format.bytes() * self.spec.layout.channels();
        let mut bytes = bytes;
        if !self.partial.is_empty() {
            let (rest, behind) = bytes.split_at(bytes.len().min(frame - self.partial.len()));
            self.partial.extend_from_slice(rest);
            bytes = behind;
            if self.partial.len() < frame {
                return;
            }
            append(self.format, &self.partial, samples);
            self.partial.clear();
        }
        let whole = bytes.len() - bytes.len() % frame;
        append(self.format, &bytes[..whole], samples);
        self.partial.extend_from_slice(&bytes[whole..]);
    }
}

fn append(format: SampleFormat, bytes: &[u8], samples: &mut Vec<f32>) {
    let start = samples.len();
    samples.resize(start + bytes.len() / format.bytes(), 0.0);
    convert::decode(format, bytes, &mut samples[start..]);
}

/// A header with more metadata in front of the samples is not one of a processor.
const MAX_HEAD: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> SampleSpec {
        text.parse().unwrap()
    }

    /// The samples of `bytes` in pieces.
    fn read(bytes: &[u8], piece: usize, wanted: &str) -> Result<Vec<f32>, WrongOutput> {
        let (mut reader, mut samples) = (OutputReader::wave(spec(wanted)), Vec::new());
        bytes.chunks(piece).try_for_each(|bytes| reader.push(bytes, &mut samples))?;
        Ok(samples)
    }

    #[test]
    fn frames_are_whole_for_any_pieces_and_formats() {
        for (written, bytes) in [("48000:16:2", 2), ("48000:s24:2", 3), ("48000:f32:2", 4)] {
            let head = wav::header(spec(written), wav::DataLength::Bytes(3)).unwrap();
            let sound = (0..40).map(|n| f32::from(u8::try_from(n).unwrap()) / 64.0);
            let sound: Vec<f32> = sound.collect();
            let mut all = head.to_vec();
            all.resize(44 + 40 * bytes, 0);
            convert::encode(spec(written).format, &sound, &mut all[44..]);
            for piece in [1, 3, 7, 45, 1_000] {
                assert_eq!(
                    read(&all, piece, "48000:f32:2"),
                    Ok(sound.clone()),
                    "{written} {piece}"
                );
                // The end of a program that dies within a frame.
                assert_eq!(read(&all[..all.len() - 1], piece, "48000:16:2").unwrap().len(), 38);
            }
        }
    }

    #[test]
    fn what_is_not_the_stations_wave_is_refused() {
        let other = |text| wav::header(spec(text), wav::DataLength::Endless).unwrap();
        assert_eq!(read(&other("44100:16:2"), 9, "48000:16:2"), Err(WrongOutput));
        assert_eq!(read(&other("48000:16:1"), 9, "48000:16:2"), Err(WrongOutput));
        assert_eq!(read(b"Usage: processor [OPTIONS]\n", 5, "48000:16:2"), Err(WrongOutput));
        let long = [&b"RIFF\xff\xff\xff\xffWAVEjunk\xff\xff\x0f\x00"[..], &[0; 100]].concat();
        assert_eq!(read(&long, 9, "48000:16:2"), Err(WrongOutput));
    }
}

use std::time::UNIX_EPOCH;

use aulos_core::{ChannelLayout, Frames, SampleRate};
use aulos_engine::codec_guard::{CodecLibrary, fault};
use aulos_proto::wav::{self, ParseOutcome, WaveInfo};

use super::*;

fn read(file: &[u8]) -> WaveInfo {
    let Ok(ParseOutcome::Complete(wave)) = wav::parse(file) else {
        panic!("{:?}", wav::parse(file))
    };
    wave
}

/// A limit of some kilobytes stands for 4 GiB.
#[test]
fn a_file_that_exceeds_32_bits_becomes_rf64_while_it_is_written() {
    let metadata = FileMetadata::new(SampleRate::HZ_48000, ChannelLayout::MONO, "Hall", UNIX_EPOCH);
    let (mut file, mut out, mut patches) = (Vec::new(), Vec::new(), Vec::new());
    let encoder =
        wave::make_encoder(WavEncoding::S24, &metadata, &mut file).with_max_riff_size(8_000);
    let mut encoder: Box<dyn FileEncoder> = Box::new(encoder);
    let start = read(&file).data_offset;
    for round in 1..=9 {
        encoder.write(&[0.25; 501], &mut out).unwrap();
        file.append(&mut out);
        let mut min_length = read(&file).data_bytes;
        encoder.flush(&mut out, &mut patches);
        for patch in patches.drain(..) {
            let at = usize::try_from(patch.at()).unwrap();
            file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
            // A reader between two patches finds at least what it found before.
            let length = read(&file).data_bytes;
            assert!(length.is_none() || length >= min_length, "round {round}: {length:?}");
            min_length = length;
        }
        let data = 501 * 3 * round;
        assert_eq!(
            (read(&file).data_bytes, encoder.readable_frames()),
            (Some(data), Frames(501 * round))
        );
        assert_eq!(file.starts_with(b"RF64"), start as u64 - 8 + data >= 8_000, "round {round}");
    }
    encoder.write(&[0.5; 2], &mut out).unwrap();
    encoder.finish(&mut out, &mut patches).unwrap();
    // 4,511 frames of three bytes, and one padding byte.
    assert_eq!((file.len() + out.len()) % 2, 0);
    assert_eq!(out.len(), 7);
    assert!(file.starts_with(b"RF64") && patches.len() == 2);
}

/// A file of noise with a tone, and its number of frames. The library panics in the middle, if one
/// is given.
fn encode_file(format: FileFormat, fault: Option<CodecLibrary>) -> (Vec<u8>, Frames) {
    let metadata =
        FileMetadata::new(SampleRate::HZ_48000, ChannelLayout::STEREO, "Hall", UNIX_EPOCH);
    let (mut file, mut patches) = (Vec::new(), Vec::new());
    let mut encoder = make_file_encoder(format, &metadata, &mut file).unwrap();
    let mut rng = aulos_core::Rng::new(4);
    for number in 0..100 {
        let samples: Vec<f32> = (0..2 * 960_u16)
            .map(|at| f32::from(at % 256) / 512.0 + rng.below(99) as f32 / 999.0)
            .collect();
        if let Some(library) = fault.filter(|_| number == 50) {
            fault::plan(library, 0);
        }
        encoder.write(&samples, &mut file).unwrap();
    }
    assert!(!fault::is_planned(), "{format}: the library was called");
    let frames = encoder.frames();
    encoder.finish(&mut file, &mut patches).unwrap();
    for patch in patches {
        let at = usize::try_from(patch.at()).unwrap();
        file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
    }
    (file, frames)
}

#[test]
fn a_file_loses_nothing_when_the_library_of_its_encoder_panics() {
    for (format, library) in [
        ("flac", CodecLibrary::FlacCodec),
        ("opus", CodecLibrary::UnsafeLibopus),
        ("mp3:192k,builtin", CodecLibrary::RustyMp3),
    ] {
        let format: FileFormat = format.parse().unwrap();
        let (whole, frames) = encode_file(format, None);
        let (hit, frames_of_hit) = encode_file(format, Some(library));
        assert_eq!(frames_of_hit, frames);
        if library == CodecLibrary::FlacCodec {
            assert!(hit == whole, "FLAC's frames stand alone, and are numbered by the file");
        } else {
            assert!(hit.len().abs_diff(whole.len()) < whole.len() / 50, "{format}");
        }
    }
}

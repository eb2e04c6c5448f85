//! Tests with files that ffmpeg encodes from a known signal.

mod aac;
mod codec_panics;
mod damage;
mod feed;
mod fixture;
mod formats;
mod formats_page;
mod lengths;
mod refusal;
mod stream;

use aulos_core::{Block, ChannelLayout, MediaTime, SampleRate};
use aulos_engine::source::BLOCK_SAMPLES;

use super::{FileDecodeError, FileDecodeStatus, FileDecoder};

fn block() -> Block {
    Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES)
}

/// Up to `frames` frames of a file, and how it ended.
fn read(decoder: &mut FileDecoder, frames: usize) -> (Vec<f32>, Result<(), FileDecodeError>) {
    let (mut sound, mut into) = (Vec::new(), block());
    let channels = decoder.info().layout.channels();
    while sound.len() < frames * channels {
        match decoder.next(&mut into) {
            Ok(FileDecodeStatus::Block) => {
                assert!(into.frames().0 > 0 && into.samples().len() <= BLOCK_SAMPLES);
                assert_eq!(into.pts, MediaTime((sound.len() / channels) as u64));
                sound.extend_from_slice(into.samples());
            }
            Ok(FileDecodeStatus::End) => return (sound, Ok(())),
            Err(error) => return (sound, Err(error)),
        }
    }
    sound.truncate(frames * channels);
    (sound, Ok(()))
}

/// All frames of a file that must be intact.
fn read_whole(decoder: &mut FileDecoder) -> Vec<f32> {
    let (sound, end) = read(decoder, usize::MAX / 64);
    assert_eq!(end, Ok(()));
    assert_eq!(decoder.damaged(), 0);
    sound
}

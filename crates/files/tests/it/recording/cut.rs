//! A stream that is split into many files.

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{Frames, Rng};
use aulos_dsp::convert;

use super::{
    decode_format, decoded_by_ffmpeg, file, floats, format, metadata, music, snr, write_file,
};

/// Random positions, including files of one frame and of a few frames.
fn places(random: &mut Rng, frames: usize, cuts: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..cuts).map(|_| random.below(frames)).collect();
    let first = places[0].min(frames - 40);
    places.extend([0, first, first + 1, first + 3, first + 18, frames]);
    places.sort_unstable();
    places.dedup();
    places
}

#[test]
fn wav_and_flac_joined_are_the_stream_bit_for_bit() {
    let scratch = ScratchDir::new("cut").unwrap();
    let mut random = Rng::new(0xca7);
    for (name, hz, channels) in [
        ("wav:16", 48_000, 2),
        ("wav:24", 44_100, 1),
        ("wav:f32", 48_000, 2),
        ("flac:16", 48_000, 2),
        ("flac:24", 48_000, 2),
        ("flac:24", 22_050, 5),
    ] {
        let (kind, frames) = (format(name), 60_000);
        // As a source of that format sends it, so no dither is needed.
        let mut bytes = vec![0; frames * channels * decode_format(kind).bytes()];
        convert::encode(decode_format(kind), &music(hz, channels, frames), &mut bytes);
        let mut sound = vec![0.0; frames * channels];
        convert::decode(decode_format(kind), &bytes, &mut sound);
        // Above full scale: clipping is the same in every file.
        sound[5_000..5_100].fill(1.5);
        let places = places(&mut random, frames, 10);
        let paths: Vec<_> = places
            .windows(2)
            .map(|pair| {
                let metadata = metadata(hz, channels).after(Frames(pair[0] as u64));
                let part = &sound[pair[0] * channels..pair[1] * channels];
                let path =
                    scratch.join(format!("{name}-{channels}-{}.{}", pair[0], kind.extension()));
                write_file(&path, &file(kind, &metadata, part));
                path
            })
            .collect();
        let (parts, complaints) = decoded_by_ffmpeg(&paths, decode_format(kind));
        assert_eq!(complaints, "", "{name}");
        let mut expected = vec![0; sound.len() * decode_format(kind).bytes()];
        convert::encode(decode_format(kind), &sound, &mut expected);
        assert!(parts.concat() == expected, "{name} cut at {places:?}");
    }
}

#[test]
fn processed_sound_is_dithered_where_it_is_recorded_with_16_bits() {
    let scratch = ScratchDir::new("cut").unwrap();
    for name in ["wav:16", "flac:16"] {
        let sound = vec![5.3 / 32_768.0; 48_000];
        let path = scratch.join(name.replace(':', "."));
        write_file(&path, &file(format(name), &metadata(48_000, 1), &sound));
        let (parts, complaints) = decoded_by_ffmpeg(&[path], decode_format(format(name)));
        assert_eq!(complaints, "", "{name}");
        let bytes = parts.concat();
        let steps = bytes.as_chunks().0.iter().map(|x| i32::from(i16::from_le_bytes(*x)));
        assert_eq!(steps.len(), 48_000, "{name}");
        assert!(steps.clone().all(|x| (4..=7).contains(&x)), "{name}");
        // Rounding alone would make all of them 5.
        let mean = f64::from(steps.sum::<i32>()) / 48_000.0;
        assert!((mean - 5.3).abs() < 0.02, "{name}: {mean}");
    }
}

#[test]
fn opus_mp3_and_m4a_joined_have_exactly_the_frames() {
    for name in ["opus:128k", "mp3:192k", "m4a:128k"] {
        joined_has_exactly_the_frames(name);
    }
}

fn joined_has_exactly_the_frames(name: &str) {
    let scratch = ScratchDir::new("cut").unwrap();
    let frames = 100_000;
    let sound = music(48_000, 2, frames);
    let places = places(&mut Rng::new(0x0905), frames, 10);
    let kind = format(name);
    let paths: Vec<_> = places
        .windows(2)
        .map(|pair| {
            let path = scratch.join(format!("{}.{}", pair[0], kind.extension()));
            let part = &sound[pair[0] * 2..pair[1] * 2];
            write_file(&path, &file(kind, &metadata(48_000, 2), part));
            path
        })
        .collect();
    let (mut parts, complaints) = decoded_by_ffmpeg(&paths, aulos_core::SampleFormat::F32);
    assert_eq!(complaints, "");
    for (part, pair) in parts.iter_mut().zip(places.windows(2)) {
        let length = pair[1] - pair[0];
        if kind.extension() == "m4a" {
            // ffmpeg does not cut the padding off the last access unit.
            assert!(part.len() / 8 < length + 1_024, "from {}: {}", pair[0], part.len() / 8);
            part.truncate(length * 8);
        }
        assert_eq!(part.len() / 8, length, "from {}", pair[0]);
    }
    let snr = snr(&sound, &floats(&parts.concat()));
    assert!(snr > 20.0, "{name}: {snr} dB");
}

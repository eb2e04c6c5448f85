use std::time::UNIX_EPOCH;

use aulos_core::{ChannelLayout, Frames, SampleRate};
use aulos_proto::wav::{self, Parsed, Wave};

use super::*;

fn read(file: &[u8]) -> Wave {
    let Ok(Parsed::Wave(wave)) = wav::parse(file) else { panic!("{:?}", wav::parse(file)) };
    wave
}

/// A limit of some kilobytes stands for the one of 4 GiB.
#[test]
fn a_file_that_outgrows_32_bits_becomes_rf64_while_it_is_written() {
    let about = About::new(SampleRate::HZ_48000, ChannelLayout::MONO, "Hall", UNIX_EPOCH);
    let (mut file, mut out, mut patches) = (Vec::new(), Vec::new(), Vec::new());
    let framer = wave::open(WavSamples::S24, &about, &mut file).short_up_to(8_000);
    let mut framer: Box<dyn Framer> = Box::new(framer);
    let start = read(&file).start;
    for round in 1..=9 {
        framer.write(&[0.25; 501], &mut out).unwrap();
        file.append(&mut out);
        let mut least = read(&file).length;
        framer.flush(&mut out, &mut patches);
        for patch in patches.drain(..) {
            let at = usize::try_from(patch.at()).unwrap();
            file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
            // Whoever reads between two patches finds what was there before, at least.
            let length = read(&file).length;
            assert!(length.is_none() || length >= least, "round {round}: {length:?}");
            least = length;
        }
        let data = 501 * 3 * round;
        assert_eq!((read(&file).length, framer.readable()), (Some(data), Frames(501 * round)));
        assert_eq!(file.starts_with(b"RF64"), start as u64 - 8 + data >= 8_000, "round {round}");
    }
    framer.write(&[0.5; 2], &mut out).unwrap();
    framer.finish(&mut out, &mut patches).unwrap();
    // 4,511 frames of three bytes, and one to make them even.
    assert_eq!((file.len() + out.len()) % 2, 0);
    assert_eq!(out.len(), 7);
    assert!(file.starts_with(b"RF64") && patches.len() == 2);
}

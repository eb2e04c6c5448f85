//! Opus with every configuration, damaged packets, and a library that panics.

use core::ops::Range;

use aulos_opus::{Application, EncoderConfig, OpusEncoder};

use super::*;
use crate::codec_guard::{CodecLibrary, fault};

/// What arrives, or does not.
#[derive(Clone, Debug)]
enum Step {
    Packet(Vec<u8>),
    /// A gap of that many quarters of 10 ms.
    Lost(usize),
    /// The same, and the packet after it.
    LostBefore(usize, Vec<u8>),
}

/// A first byte of any mode, bandwidth, duration, channel count and frame count, and random bytes.
fn packet(rest: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), 1..=48_u8, any::<[bool; 2]>(), proptest::collection::vec(any::<u8>(), rest))
        .prop_map(|(toc, count, [vbr, padding], mut rest)| {
            // A count that fits 120 ms, so that the packet is not refused at once.
            if let (3, Some(head)) = (toc & 3, rest.first_mut()) {
                let units = units_of(toc);
                *head = count.min(48 / units).max(1) | u8::from(vbr) << 7 | u8::from(padding) << 6;
            }
            rest.insert(0, toc);
            rest
        })
}

/// Length of a frame in quarters of 10 ms (RFC 6716, section 3.1).
fn units_of(toc: u8) -> u8 {
    match toc >> 3 {
        config @ 0..12 => [4, 8, 16, 24][usize::from(config & 3)],
        config @ 12..16 => [4, 8][usize::from(config & 1)],
        config => [1, 2, 4, 8][usize::from(config & 3)],
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => packet(0..400).prop_map(Step::Packet),
        1 => (1..=48_usize).prop_map(Step::Lost),
        1 => ((1..=48_usize), packet(0..400)).prop_map(|(gap, next)| Step::LostBefore(gap, next)),
    ]
}

fn run(decoder: &mut OpusPacketDecoder, steps: &[Step]) -> Vec<f32> {
    let mut out = vec![0.0; LONGEST];
    let mut all = Vec::new();
    for step in steps {
        let gap = |units: usize, decoder: &OpusPacketDecoder| {
            units * decoder.rate().hz() as usize / 400 * decoder.channels()
        };
        let samples = match step {
            Step::Packet(payload) => {
                decoder.decode(payload, &mut out).unwrap_or(0) * decoder.channels()
            }
            Step::Lost(units) => {
                let samples = gap(*units, decoder);
                decoder.conceal(&mut out[..samples]);
                samples
            }
            Step::LostBefore(units, following) => {
                let samples = gap(*units, decoder);
                decoder.recover(following, &mut out[..samples]);
                samples
            }
        };
        all.extend_from_slice(&out[..samples]);
    }
    all
}

/// 120 ms at 48 kHz in two channels.
const LONGEST: usize = 2 * 5_760;

proptest! {
    #[test]
    fn any_packet_of_opus_and_any_gap_are_survived(
        hz in proptest::sample::select(vec![8_000, 12_000, 16_000, 24_000, 48_000]),
        channels in 1..=2_usize,
        steps in proptest::collection::vec(step(), 1..24),
    ) {
        let mut decoder = OpusPacketDecoder::new(SampleRate::new(hz).unwrap(), channels).unwrap();
        let sound = run(&mut decoder, &steps);
        prop_assert!(sound.iter().all(|sample| sample.is_finite()));
        prop_assert_eq!(decoder.panics(), 0, "a bug of the library, to be reported");
    }
}

/// Two seconds of stereo.
fn music_packets() -> Vec<Vec<u8>> {
    let mut encoder = OpusEncoder::new(EncoderConfig::new(48_000, 2, Application::Audio)).unwrap();
    let sound = speech(96_000, 2);
    let mut packet = vec![0; 1_500];
    let encode = |piece: &[f32]| {
        let length = encoder.encode(piece, 960, &mut packet).unwrap();
        packet[..length].to_vec()
    };
    sound.chunks_exact(1_920).map(encode).collect()
}

/// A lost packet in place of one whose decoder panics: the neighbour on the thread does not notice,
/// and the stream itself fades out and goes on.
#[test]
fn a_panic_of_the_library_costs_one_packet_of_one_stream() {
    let packets = music_packets();
    let stereo = || OpusPacketDecoder::new(SampleRate::HZ_48000, 2).unwrap();
    let undisturbed = decode_with_losses(&mut stereo(), &packets, &vec![false; packets.len()]);
    let (mut hit, mut neighbor) = (stereo(), stereo());
    let (mut sound, mut beside) = (Vec::new(), Vec::new());
    let mut out = [0.0; 1_920];
    for (number, packet) in packets.iter().enumerate() {
        if number == FAULT {
            fault::plan(CodecLibrary::UnsafeLibopus, 0);
        }
        match hit.decode(packet, &mut out) {
            Ok(frames) => assert_eq!(frames, 960),
            Err(error) => {
                assert_eq!((number, error), (FAULT, DecodeError::Damaged));
                hit.conceal(&mut out);
            }
        }
        sound.extend_from_slice(&out);
        assert_eq!(neighbor.decode(packet, &mut out), Ok(960));
        beside.extend_from_slice(&out);
    }
    assert!(beside == undisturbed, "the neighbour's sound changed");
    assert_eq!((hit.panics(), neighbor.panics()), (1, 0));
    let (begin, end) = (FAULT * 1_920, (FAULT + 1) * 1_920);
    assert_eq!(sound[..begin], undisturbed[..begin]);
    // 2.5 ms of fade from the last frame, and no step in it.
    let largest_step = |sound: &[f32]| {
        sound.windows(3).map(|three| (three[2] - three[0]).abs()).fold(0.0, f32::max)
    };
    assert!(sound[begin + 240..end].iter().all(|sample| *sample == 0.0));
    assert!(largest_step(&sound[begin - 2..end]) <= largest_step(&undisturbed));
    // The new decoder has the history again after 80 ms (RFC 7845, section 4.6).
    let again = end + 4 * 1_920;
    let error = sound[again..].iter().zip(&undisturbed[again..]).map(|(a, b)| (a - b).abs());
    assert!(error.fold(0.0, f32::max) < 0.02);
}

/// In the middle, and not in a pause.
const FAULT: usize = 50;

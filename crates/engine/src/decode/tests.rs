//! Tests of the output for lost packets.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "test signals are numbers"
)]

use std::f64::consts::TAU;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::g711::{self, G711Law};
use aulos_opus::{Application, EncoderConfig, OpusEncoder};
use proptest::prelude::*;

use super::*;

mod opus;

/// A speech-like signal: syllables of a voice with varying pitch and formants, and pauses between
/// words.
fn speech(hz: u32, seconds: u32) -> Vec<f32> {
    let (mut phase, mut noise) = (0.0_f64, 1_u32);
    (0..hz * seconds)
        .map(|at| {
            let time = f64::from(at) / f64::from(hz);
            let pitch = 125.0 + 25.0 * (time * 2.1).sin() + 8.0 * (time * 7.0).sin();
            phase += pitch / f64::from(hz);
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = f64::from(noise >> 8) / 8_388_608.0 - 1.0;
            let formants =
                [500.0 + 250.0 * (time * 4.3).sin(), 1_600.0 + 500.0 * (time * 3.1).sin()];
            let voice: f64 = (1..26)
                .map(|number| {
                    let overtone = f64::from(number);
                    let near =
                        |formant: f64| (-((overtone * pitch - formant) / 250.0).powi(2)).exp();
                    let level = 0.05 + near(formants[0]) + 0.4 * near(formants[1]);
                    level / overtone * (TAU * phase * overtone).sin()
                })
                .sum();
            let syllable =
                (time * 11.0).sin().max(0.0).sqrt() * f64::from(u8::from(time % 1.7 < 1.4));
            (0.25 * syllable * voice + 0.004 * hiss) as f32
        })
        .collect()
}

/// Which packets are lost: a fraction `loss`, sometimes two or three in a row.
fn losses(packets: usize, loss: f64) -> Vec<bool> {
    let mut state = 7_u32;
    let mut chance = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / 16_777_216.0
    };
    let mut lost = false;
    (0..packets)
        .map(|number| {
            lost = number > 10 && chance() < if lost { 0.3 } else { loss * 0.75 };
            lost
        })
        .collect()
}

/// The output of `decoder` when some packets are lost, without its delay.
fn decode_with_losses(decoder: &mut dyn Decoder, packets: &[Vec<u8>], lost: &[bool]) -> Vec<f32> {
    let (mut all, mut out) = (Vec::new(), [0.0; 5_760]);
    for (packet, &lost) in packets.iter().zip(lost) {
        let frames = decoder.frames(packet).unwrap();
        if lost {
            decoder.conceal(&mut out[..frames * decoder.channels()]);
        } else {
            assert_eq!(decoder.decode(packet, &mut out), Ok(frames));
        }
        all.extend_from_slice(&out[..frames * decoder.channels()]);
    }
    all.drain(..decoder.delay() * decoder.channels());
    all
}

/// The reference to beat: silence, or the last packet repeated.
fn filled(sound: &[f32], frames: usize, lost: &[bool], again: bool) -> Vec<f32> {
    let mut all: Vec<f32> = Vec::new();
    for (piece, &lost) in sound.chunks_exact(frames).zip(lost) {
        match (lost, again) {
            (false, _) => all.extend_from_slice(piece),
            (true, true) => all.extend_from_within(all.len() - frames..),
            (true, false) => all.resize(all.len() + frames, 0.0),
        }
    }
    all
}

/// Signal-to-noise ratio where packets were lost and right after, in dB.
fn snr(clean: &[f32], heard: &[f32], frames: usize, lost: &[bool]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (number, (clean, heard)) in clean.chunks(frames).zip(heard.chunks(frames)).enumerate() {
        if lost.get(number) == Some(&true) || (number > 0 && lost.get(number - 1) == Some(&true)) {
            for (&clean, &heard) in clean.iter().zip(heard) {
                signal += f64::from(clean).powi(2);
                noise += f64::from(clean - heard).powi(2);
            }
        }
    }
    10.0 * (signal / noise).log10()
}

/// Distance of two spectra in dB, over 10 ms at a time where packets were lost: the mean of the
/// distances in 24 critical bands.
fn spectral_distance(clean: &[f32], heard: &[f32], frames: usize, lost: &[bool]) -> f64 {
    let bands = |sound: &[f32]| -> Vec<f64> {
        (0..24)
            .map(|band| {
                let turns = 150.0 * 1.14_f64.powi(band) / 8_000.0;
                let (mut re, mut im) = (0.0, 0.0);
                for (at, &sample) in sound.iter().enumerate() {
                    let window = (std::f64::consts::PI * at as f64 / sound.len() as f64).sin();
                    re += window * f64::from(sample) * (TAU * turns * at as f64).cos();
                    im += window * f64::from(sample) * (TAU * turns * at as f64).sin();
                }
                10.0 * (re * re + im * im + 1e-3).log10()
            })
            .collect()
    };
    let (mut sum, mut count) = (0.0, 0.0);
    for (number, (clean, heard)) in clean.chunks(frames).zip(heard.chunks(frames)).enumerate() {
        if lost.get(number) == Some(&true) {
            for (clean, heard) in clean.chunks(frames / 2).zip(heard.chunks(frames / 2)) {
                let both = bands(clean).into_iter().zip(bands(heard));
                sum += both.map(|(clean, heard)| (clean - heard).abs()).sum::<f64>() / 24.0;
                count += 1.0;
            }
        }
    }
    sum / count
}

/// How much sharper the sharpest corner near a loss is than in the original: a click stands out.
/// Corners too quiet to be heard do not count.
fn sharpest(clean: &[f32], heard: &[f32], frames: usize, lost: &[bool]) -> f32 {
    let corner = |sound: &[f32]| {
        sound.windows(3).map(|at| (at[0] - 2.0 * at[1] + at[2]).abs()).fold(0.0, f32::max)
    };
    let near = |sound: &[f32], from: usize, to: usize, around: usize| {
        corner(&sound[from * frames - around..(to * frames + around).min(sound.len())])
    };
    let ends = (11..lost.len() - 11).filter(|&at| lost[at] && !lost[at + 1]);
    ends.map(|end| {
        let begin = (0..end).rev().find(|&at| !lost[at]).unwrap_or(0) + 1;
        let natural = near(clean, begin, end + 1, 5 * frames).max(QUIET);
        near(heard, begin, end + 1, frames / 2) / natural
    })
    .fold(0.0, f32::max)
}

/// A corner of 54 dB below full scale.
const QUIET: f32 = 0.002;

fn mu_packets(sound: &[f32]) -> Vec<Vec<u8>> {
    let encode = |piece: &[f32]| {
        let mut codes = vec![0; piece.len()];
        g711::encode(G711Law::Mu, piece, &mut codes);
        codes
    };
    sound.chunks_exact(160).map(encode).collect()
}

#[test]
fn concealment_is_closer_to_the_original_than_silence_and_repetition() {
    let sound = speech(8_000, 120);
    let packets = mu_packets(&sound);
    let clean = decode_with_losses(
        &mut G711PacketDecoder::new(G711Law::Mu),
        &packets,
        &vec![false; packets.len()],
    );
    for loss in [0.01, 0.05, 0.1] {
        let lost = losses(packets.len(), loss);
        let ours = decode_with_losses(&mut G711PacketDecoder::new(G711Law::Mu), &packets, &lost);
        let silence = filled(&clean, 160, &lost, false);
        let again = filled(&clean, 160, &lost, true);
        let [us, nothing, repeated] = [&ours, &silence, &again].map(|other| {
            let snr = snr(&clean, other, 160, &lost);
            let distance = spectral_distance(&clean, other, 160, &lost);
            println!("{:.0} %: {snr:.2} dB, spectra {distance:.2} dB apart", loss * 100.0);
            (snr, distance)
        });
        assert!(
            us.0 > nothing.0 + 2.0 && us.0 > repeated.0 + 2.0,
            "{us:?} {nothing:?} {repeated:?}"
        );
        // A repeated packet has the right spectrum too; it is wrong at its edges.
        assert!(
            us.1 < 0.7 * nothing.1 && us.1 < 1.1 * repeated.1,
            "{us:?} {nothing:?} {repeated:?}"
        );
        let [us, nothing, repeated] =
            [&ours, &silence, &again].map(|other| sharpest(&clean, other, 160, &lost));
        println!("edges {us:.2} times as sharp as the speech, {nothing:.2}, {repeated:.2}");
        assert!(us < 2.0, "a click {us} times as sharp as the speech there");
        assert!(us < nothing && us < repeated, "{us} {nothing} {repeated}");
    }
}

#[test]
fn without_loss_nothing_is_changed_but_3_75_ms() {
    let sound = speech(8_000, 2);
    let packets = mu_packets(&sound);
    let mut decoder = G711PacketDecoder::new(G711Law::Mu);
    assert_eq!(decoder.delay(), 30);
    let heard = decode_with_losses(&mut decoder, &packets, &vec![false; packets.len()]);
    let mut wanted = vec![0.0; sound.len()];
    g711::decode(G711Law::Mu, &packets.concat(), &mut wanted);
    assert!(heard == wanted[..heard.len()]);
}

#[test]
fn concealment_continues_a_voice_fades_and_is_silent_after_60_ms() {
    let mut concealer = Concealer::new(8_000, 1);
    let tone = |at: usize| (TAU * 160.0 * at as f64 / 8_000.0).sin() as f32 * 0.5;
    let mut sound: Vec<f32> = (0..800).map(tone).collect();
    concealer.push_decoded(&mut sound);
    let mut made = vec![0.0; 960];
    concealer.conceal(&mut made);
    // The first part was output already; 30 frames later the first 10 ms are as without a loss.
    for (at, &sample) in made.iter().enumerate().take(110) {
        assert!((sample - tone(770 + at)).abs() < 0.02, "{at}: {sample} {}", tone(770 + at));
    }
    let loudest =
        |from: usize| made[from..from + 50].iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    assert!((0.37..0.47).contains(&loudest(30 + 120)), "{}", loudest(150));
    assert!((0.17..0.27).contains(&loudest(30 + 280)), "{}", loudest(310));
    assert!(made[30 + 480..].iter().all(|&sample| sample == 0.0));
}

#[test]
fn packets_of_any_length_are_concealed_alike() {
    let sound = speech(8_000, 1);
    let whole = |piece: usize| {
        let mut concealer = Concealer::new(8_000, 1);
        let mut all = sound.clone();
        let (before, rest) = all.split_at_mut(4_000);
        let (hole, after) = rest.split_at_mut(480);
        before.chunks_mut(piece).for_each(|piece| concealer.push_decoded(piece));
        hole.chunks_mut(piece).for_each(|piece| concealer.conceal(piece));
        after.chunks_mut(piece).for_each(|piece| concealer.push_decoded(piece));
        all
    };
    let wanted = whole(160);
    for piece in [1, 7, 40, 480] {
        assert!(whole(piece) == wanted, "pieces of {piece}");
    }
}

#[test]
fn the_channels_of_l24_keep_together() {
    let left = speech(48_000, 2);
    let packets: Vec<Vec<u8>> = left
        .chunks_exact(48)
        .map(|piece| {
            let both: Vec<f32> = piece.iter().flat_map(|&sample| [sample, -0.5 * sample]).collect();
            let mut bytes = vec![0; both.len() * 3];
            aulos_dsp::linear_pcm::encode_l24(&both, &mut bytes);
            bytes
        })
        .collect();
    let lost: Vec<_> = (0..packets.len()).map(|number| number % 100 > 92).collect();
    let mut decoder = L24PacketDecoder::new(SampleRate::HZ_48000, ChannelLayout::STEREO);
    let heard = decode_with_losses(&mut decoder, &packets, &lost);
    for frame in heard.as_chunks::<2>().0 {
        assert!((frame[0] + 2.0 * frame[1]).abs() < 1e-3, "{frame:?}");
    }
}

#[test]
fn wideband_conceals_too() {
    let sound = speech(16_000, 20);
    let mut bytes = vec![0; sound.len() / 2];
    aulos_dsp::g722::G722Encoder::new().encode(&sound, &mut bytes);
    let packets: Vec<Vec<u8>> = bytes.chunks_exact(160).map(<[u8]>::to_vec).collect();
    let clean =
        decode_with_losses(&mut G722PacketDecoder::new(), &packets, &vec![false; packets.len()]);
    let lost = losses(packets.len(), 0.05);
    let ours = decode_with_losses(&mut G722PacketDecoder::new(), &packets, &lost);
    let silence = filled(&clean, 320, &lost, false);
    let (us, nothing) = (snr(&clean, &ours, 320, &lost), snr(&clean, &silence, 320, &lost));
    println!("G.722: {us:.2} dB, silence {nothing:.2} dB");
    assert!(us > nothing, "{us} {nothing}");
}

#[test]
fn opus_conceals_by_itself_and_takes_any_length() {
    let mut decoder = OpusPacketDecoder::new(SampleRate::HZ_48000, 2).unwrap();
    let mut out = [1.0; 2 * 6_000];
    decoder.conceal(&mut out);
    assert!(out.iter().all(|&sample| sample == 0.0), "nothing was heard yet");
    assert_eq!(decoder.frames(&[]), Err(DecodeError::Damaged));
    // Hybrid of 20 ms, two frames; CELT of 2.5 ms, 49 frames; code 3 without a count.
    assert_eq!(decoder.frames(&[13 << 3 | 1, 0]), Ok(1_920));
    assert_eq!(decoder.frames(&[16 << 3 | 3, 49]), Err(DecodeError::Damaged));
    assert_eq!(decoder.frames(&[3]), Err(DecodeError::Damaged));
    assert!(OpusPacketDecoder::new(SampleRate::HZ_48000, 3).is_none());
}

proptest! {
    #[test]
    fn any_payload_and_any_hole_are_survived(
        steps in proptest::collection::vec(
            (0..4_u8, proptest::collection::vec(any::<u8>(), 0..400)), 1..20,
        ),
    ) {
        let mut decoders: [Box<dyn Decoder>; 5] = [
            Box::new(G711PacketDecoder::new(G711Law::A)),
            Box::new(G722PacketDecoder::new()),
            Box::new(L16PacketDecoder::new(SampleRate::HZ_48000, ChannelLayout::STEREO)),
            Box::new(L24PacketDecoder::new(SampleRate::HZ_48000, ChannelLayout::MONO)),
            Box::new(OpusPacketDecoder::new(SampleRate::HZ_48000, 1).unwrap()),
        ];
        let mut out = [0.0; 1_000];
        for decoder in &mut decoders {
            for (what, payload) in &steps {
                let room = payload.len() / 2 * 2;
                match what {
                    0 | 1 => drop(decoder.decode(payload, &mut out)),
                    2 => decoder.conceal(&mut out[..room]),
                    _ => decoder.recover(payload, &mut out[..room]),
                }
                prop_assert!(out.iter().all(|sample| sample.is_finite()));
            }
            decoder.reset();
        }
    }
}

/// Speech in Opus at telephone bandwidth, with a copy of each packet in the next one.
fn opus_packets(sound: &[f32]) -> Vec<Vec<u8>> {
    let config = EncoderConfig {
        bitrate: 32_000,
        expected_loss: 20,
        ..EncoderConfig::new(16_000, 1, Application::Voice)
    };
    let mut encoder = OpusEncoder::new(config).unwrap();
    let mut packet = vec![0; 1_500];
    sound
        .chunks_exact(320)
        .map(|piece| {
            let length = encoder.encode(piece, 320, &mut packet).unwrap();
            packet[..length].to_vec()
        })
        .collect()
}

#[test]
fn opus_recovers_a_lost_packet_from_the_next_one() {
    let sound = speech(16_000, 60);
    let packets = opus_packets(&sound);
    let lost = losses(packets.len(), 0.1);
    let play = |recovers: bool| {
        let mut decoder = OpusPacketDecoder::new(SampleRate::new(16_000).unwrap(), 1).unwrap();
        let (mut all, mut out) = (Vec::new(), [0.0; 320]);
        for (number, packet) in packets.iter().enumerate() {
            let following = packets.get(number + 1).filter(|_| !lost[(number + 1) % lost.len()]);
            match following {
                _ if !lost[number] => assert_eq!(decoder.decode(packet, &mut out), Ok(320)),
                Some(following) if recovers => decoder.recover(following, &mut out),
                _ => decoder.conceal(&mut out),
            }
            all.extend_from_slice(&out);
        }
        all
    };
    let clean = decode_with_losses(
        &mut OpusPacketDecoder::new(SampleRate::new(16_000).unwrap(), 1).unwrap(),
        &packets,
        &vec![false; packets.len()],
    );
    let silence = filled(&clean, 320, &lost, false);
    let [recovered, guessed, nothing] =
        [&play(true), &play(false), &silence].map(|other| snr(&clean, other, 320, &lost));
    println!("Opus: recovered {recovered:.2} dB, guessed {guessed:.2} dB, silence {nothing:.2} dB");
    assert!(recovered > guessed + 2.0 && recovered > nothing + 2.0);
}

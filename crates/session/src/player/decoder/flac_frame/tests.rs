//! Frames of all kinds, made by an encoder that chooses nothing, and files of ffmpeg.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test signals")]

use std::process::{Command, Stdio};

use aulos_core::Rng;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Constant,
    Verbatim,
    Fixed(usize),
    Lpc(usize),
}

#[derive(Clone, Copy, Debug)]
enum Residual {
    /// Rice codes with parameters of this width.
    Rice(u32),
    /// Plain numbers, after a parameter of this width.
    Plain(u32),
}

/// How a channel is coded.
#[derive(Clone, Copy, Debug)]
struct Subframe {
    kind: Kind,
    residual: Residual,
    /// Logarithm of the number of partitions.
    partitions: u32,
    wasted: u32,
}

#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl BitWriter {
    fn push(&mut self, value: i64, count: u32) {
        for bit in (0..count).rev() {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let bit = (value >> bit & 1) as u8;
            *self.bytes.last_mut().unwrap() |= bit << (7 - self.count % 8);
            self.count += 1;
        }
    }

    fn push_subframe(&mut self, how: Subframe, bits: u32, samples: &[i64]) {
        let code = match how.kind {
            Kind::Constant => 0,
            Kind::Verbatim => 1,
            Kind::Fixed(order) => 8 + order as i64,
            Kind::Lpc(order) => 31 + order as i64,
        };
        self.push(code, 7);
        self.push(i64::from(how.wasted > 0), 1);
        self.push(1, how.wasted);
        let bits = bits - how.wasted;
        let samples: Vec<i64> = samples.iter().map(|sample| sample >> how.wasted).collect();
        let (coefficients, shift) = match how.kind {
            Kind::Constant => return self.push(samples[0], bits),
            Kind::Verbatim => return samples.iter().for_each(|sample| self.push(*sample, bits)),
            Kind::Fixed(order) => (FIXED[order].to_vec(), 0),
            Kind::Lpc(order) => {
                let mut newest_last: Vec<i64> = (0..order as i64).map(|at| at % 5 - 2).collect();
                newest_last[order - 1] += 1_020;
                (newest_last, 10)
            }
        };
        let order = coefficients.len();
        samples[..order].iter().for_each(|sample| self.push(*sample, bits));
        if let Kind::Lpc(_) = how.kind {
            self.push(12 - 1, 4);
            self.push(shift, 5);
            coefficients.iter().rev().for_each(|coefficient| self.push(*coefficient, 12));
        }
        let residual: Vec<i64> = (order..samples.len())
            .map(|at| {
                let products = coefficients.iter().zip(&samples[at - order..]);
                samples[at] - (products.map(|(a, b)| a * b).sum::<i64>() >> shift)
            })
            .collect();
        self.push_residual(how, order, &residual);
    }

    fn push_residual(&mut self, how: Subframe, order: usize, mut residual: &[i64]) {
        let (Residual::Rice(width) | Residual::Plain(width)) = how.residual;
        self.push(i64::from(width - 4), 2);
        self.push(how.partitions.into(), 4);
        let each = (residual.len() + order) >> how.partitions;
        for partition in 0..1 << how.partitions {
            let (these, rest) = residual.split_at(each - if partition == 0 { order } else { 0 });
            residual = rest;
            let widest = these.iter().map(|one| 65 - (one ^ one >> 63).leading_zeros()).max();
            // Numbers of no bits are zeros.
            let needed = widest.filter(|_| these.iter().any(|one| *one != 0)).unwrap_or(0);
            if let Residual::Plain(_) = how.residual {
                assert!(needed < 32);
                self.push(-1, width);
                self.push(needed.into(), 5);
                these.iter().for_each(|one| self.push(*one, needed));
                continue;
            }
            let parameter = needed.saturating_sub(2).min((1 << width) - 2);
            self.push(parameter.into(), width);
            for one in these {
                let folded = one << 1 ^ one >> 63;
                (0..folded >> parameter).for_each(|_| self.push(0, 1));
                self.push(1, 1);
                self.push(folded, parameter);
            }
        }
    }
}

/// A frame; `code` is that of its channel assignment.
fn frame(code: i64, bits: u32, how: Subframe, channels: &[Vec<i64>]) -> Vec<u8> {
    let mut writer = BitWriter::default();
    writer.push(0xfff8, 16);
    writer.push(7, 4);
    writer.push([9, 12, 13][code as usize % 3], 4);
    writer.push(code, 4);
    let bits_code = [(8, 1), (12, 2), (16, 4), (20, 5), (24, 6), (32, 7)];
    writer.push(bits_code.iter().find(|(of, _)| *of == bits).map_or(0, |(_, code)| *code), 3);
    writer.push(0, 1);
    // A number of three bytes.
    writer.push(0xe2_82_ac, 24);
    writer.push(channels[0].len() as i64 - 1, 16);
    writer.push(0, [0, 8, 16][code as usize % 3]);
    writer.push(0, 8);
    for (number, channel) in channels.iter().enumerate() {
        let side = u32::from(matches!((code, number), (8 | 10, 1) | (9, 0)));
        writer.push_subframe(how, bits + side, channel);
    }
    let unused = writer.count.next_multiple_of(8) - writer.count;
    writer.push(0, unused as u32);
    let sum = checksum(&writer.bytes);
    writer.push(sum.into(), 16);
    writer.bytes
}

/// Left and right, and what is coded of them. `step` is what all samples are a multiple of.
fn stereo(code: i64, bits: u32, length: usize, step: i64, random: &mut Rng) -> [[Vec<i64>; 2]; 2] {
    let scale = f64::from(2.0_f32).powi(bits as i32 - 3);
    #[allow(clippy::cast_precision_loss, reason = "some hundred")]
    let mut wave = |phase: f64| -> Vec<i64> {
        let noise = (0..length).map(|_| random.next_u64() as i64 % 3);
        noise
            .enumerate()
            .map(|(at, noise)| (((at as f64 * 0.02 + phase).sin() * scale) as i64 + noise) * step)
            .collect()
    };
    let (left, right) = (wave(0.0), wave(2.0));
    let pairs = left.iter().zip(&right);
    let side: Vec<i64> = pairs.clone().map(|(left, right)| left - right).collect();
    let mid = pairs.map(|(left, right)| (left + right) >> 1).collect();
    let coded = match code {
        8 => [left.clone(), side],
        9 => [side, right.clone()],
        10 => [mid, side],
        _ => [left.clone(), right.clone()],
    };
    [[left, right], coded]
}

/// Every kind of subframe, residual, channel assignment and sample size; calls `check` with the
/// frame and with what it decodes to.
fn all_kinds(mut check: impl FnMut(&[u8], u32, &[Vec<i64>; 2], &str)) {
    let mut random = Rng::new(9);
    let kinds = [Kind::Constant, Kind::Verbatim].into_iter().chain((0..=4).map(Kind::Fixed));
    for kind in kinds.chain([1, 2, 7, 8, 12, 32].map(Kind::Lpc)) {
        for residual in [4, 5].into_iter().flat_map(|w| [Residual::Rice(w), Residual::Plain(w)]) {
            for bits in [8, 12, 16, 20, 24, 32] {
                for (code, partitions, wasted) in [(1, 0, 3), (8, 2, 0), (9, 0, 0), (10, 1, 0)] {
                    let how = Subframe { kind, residual, partitions, wasted };
                    let step = 1 << wasted;
                    let [mut pair, mut coded] = stereo(code, bits - wasted, 160, step, &mut random);
                    if let Kind::Constant = kind {
                        pair.iter_mut().chain(&mut coded).for_each(|one| {
                            let first = one[0];
                            one.fill(first);
                        });
                    }
                    let bytes = frame(code, bits, how, &coded);
                    check(&bytes, bits, &pair, &format!("{bits} bits, {code}, {how:?}"));
                }
            }
        }
    }
}

#[test]
fn every_kind_of_frame_is_exact() {
    let (mut samples, mut count) = (Vec::new(), 0);
    all_kinds(|bytes, bits, pair, what| {
        // What follows is another frame's.
        let more = [bytes, &[0xff; 9]].concat();
        let decoded = decode_frame(&more, (2, bits), &mut samples);
        assert_eq!(decoded, Some(DecodedFrame { length: 160, bytes: bytes.len() }), "{what}");
        assert_eq!(samples, pair.concat(), "{what}");
        assert_eq!(decode_frame(bytes, (3, bits), &mut samples), None, "{what}");
        count += 1;
    });
    assert_eq!(count, 13 * 4 * 6 * 4);
}

#[test]
fn what_is_damaged_or_cut_is_no_frame() {
    let (mut samples, mut random, mut decoded) = (Vec::new(), Rng::new(4), 0);
    all_kinds(|bytes, bits, _, what| {
        for end in (0..bytes.len()).rev().step_by(1 + bytes.len() / 16) {
            assert_eq!(decode_frame(&bytes[..end], (2, bits), &mut samples), None, "{what} {end}");
        }
        for _ in 0..10 {
            let mut bytes = bytes.to_vec();
            for _ in 0..1 + random.next_u64() % 4 {
                let at = random.next_u64() as usize % bytes.len();
                bytes[at] ^= 1 << (random.next_u64() % 8);
            }
            let frame = decode_frame(&bytes, (2, bits), &mut samples);
            decoded += usize::from(frame.is_some());
            // A valid checksum is no protection against one that lies.
            let end = bytes.len() - 2;
            let sum = checksum(&bytes[..end]).to_be_bytes();
            bytes[end..].copy_from_slice(&sum);
            decode_frame(&bytes, (2, bits), &mut samples);
        }
    });
    // Bits that were changed twice.
    assert!(decoded < 200, "{decoded}");
}

#[test]
fn what_ffmpeg_encodes_is_exact() {
    let Some(ffmpeg) = aulos_blackbox::peer::find_or_skip("ffmpeg") else { return };
    let run = |arguments: &str, input: &str| {
        let noise = "anoisesrc=d=1:a=0.1:seed=3[a];sine=f=300:d=1[b];[a][b]amerge,volume=0.9";
        let mut command = Command::new(&ffmpeg);
        command.args(["-v", "error", "-f", "lavfi", "-i", noise]).args(input.split(' '));
        let output = command.args(arguments.split(' ')).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
        output.stdout
    };
    for (sample, raw, bits) in [("s16", "s16le", 16), ("s32", "s32le", 24)] {
        for options in [
            "-compression_level 0",
            "-compression_level 5",
            "-compression_level 12 -lpc_type cholesky",
            "-ch_mode left_side",
            "-ch_mode right_side",
            "-ch_mode mid_side",
            "-frame_size 192 -exact_rice_parameters 1",
        ] {
            let format = format!("-sample_fmt {sample} -bitexact");
            let file = run(&format!("-c:a flac {options} -f flac -"), &format);
            let expected = run(&format!("-f {raw} -"), &format);
            let width = if bits == 16 { 2 } else { 4 };
            let expected: Vec<i64> = expected
                .chunks_exact(width)
                .map(|sample| {
                    let mut word = [0; 4];
                    word[4 - width..].copy_from_slice(sample);
                    i64::from(i32::from_le_bytes(word)) >> (32 - bits)
                })
                .collect();
            let mut rest = &file[first_frame(&file)..];
            let (mut samples, mut all) = (Vec::new(), Vec::new());
            while !rest.is_empty() {
                let frame = decode_frame(rest, (2, bits), &mut samples);
                let frame = frame.unwrap_or_else(|| panic!("{options}: after {}", all.len()));
                let (left, right) = samples.split_at(frame.length);
                all.extend(left.iter().zip(right).flat_map(|(left, right)| [*left, *right]));
                rest = &rest[frame.bytes..];
            }
            assert!(all == expected, "{bits} bits, {options}");
        }
    }
}

/// Where the metadata of a file ends.
fn first_frame(file: &[u8]) -> usize {
    let mut at = 4;
    loop {
        let header = u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        at += 4 + (header & 0xff_ffff) as usize;
        if header >> 31 == 1 {
            return at;
        }
    }
}

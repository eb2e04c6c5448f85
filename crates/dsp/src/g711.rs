//! G.711: companding of telephone audio to eight bits, by two laws.
//!
//! Decoding uses a table of 256 entries. Encoding is arithmetic and not a table of 65,536: finding
//! the segment is one instruction, and a table that fills the cache slows down other code.
//! Transcoding between the laws uses a table again.
//!
//! Encoding follows the decision values of ITU-T G.711 (tables 1a to 2b). At the edges of segments
//! these are not the midpoints between two output values, which some other encoders use; the
//! inaudible difference is at most one step of the finer segment.

use crate::convert::round_short;

/// One of the two companding laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there are two")]
pub enum G711Law {
    /// Mu-law of North America and Japan: PCMU, 14 bits.
    Mu,
    /// A-law of all other countries: PCMA, 13 bits.
    A,
}

impl G711Law {
    /// The 16-bit sample of a code.
    ///
    /// # Examples
    /// ```
    /// use aulos_dsp::g711::G711Law;
    /// assert_eq!((G711Law::Mu.decode(0x80), G711Law::A.decode(0xd5)), (32_124, 8));
    /// ```
    #[must_use]
    pub const fn decode(self, code: u8) -> i16 {
        self.samples()[code as usize]
    }

    /// The code of a 16-bit sample.
    #[must_use]
    pub const fn encode(self, sample: i16) -> u8 {
        match self {
            Self::Mu => encode_mu(sample),
            Self::A => encode_a(sample),
        }
    }

    /// The code of silence.
    #[must_use]
    pub const fn silence(self) -> u8 {
        self.encode(0)
    }

    const fn samples(self) -> &'static [i16; 256] {
        match self {
            Self::Mu => &FROM_MU,
            Self::A => &FROM_A,
        }
    }
}

/// Converts `codes` to f32; returns the number converted, which is the smaller of the two lengths.
///
/// # Real-time
/// Does not allocate; one table lookup per sample.
pub fn decode(law: G711Law, codes: &[u8], out: &mut [f32]) -> usize {
    let samples = law.samples();
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = f32::from(samples[usize::from(code)]) / 32_768.0;
    }
    codes.len().min(out.len())
}

/// Converts f32 to codes, as many as fit into `out`; returns the number of clipped samples: those
/// beyond full scale, or NaN, which becomes silence.
///
/// # Real-time
/// Does not allocate; some ten instructions per sample.
#[allow(clippy::cast_possible_truncation, reason = "rounded into 16 bits")]
pub fn encode(law: G711Law, samples: &[f32], out: &mut [u8]) -> usize {
    let mut clipped = 0;
    for (out, &sample) in out.iter_mut().zip(samples) {
        let (value, excess) = round_short(sample, 32_768.0);
        *out = law.encode(value as i16);
        clipped += excess as usize;
    }
    clipped
}

/// Transcodes codes of the law `from` to the law `to`, in place.
///
/// # Real-time
/// Does not allocate; one table lookup per sample.
pub fn transcode(from: G711Law, to: G711Law, codes: &mut [u8]) {
    let table = match (from, to) {
        (G711Law::Mu, G711Law::A) => &MU_TO_A,
        (G711Law::A, G711Law::Mu) => &A_TO_MU,
        _ => return,
    };
    for code in codes {
        *code = table[usize::from(*code)];
    }
}

/// Sign, three bits of segment, four of step, all inverted. The highest set bit of the biased
/// sample determines the segment.
const fn encode_mu(sample: i16) -> u8 {
    let magnitude = sample.unsigned_abs();
    let magnitude = if magnitude > MU_MAX { MU_MAX } else { magnitude } + MU_BIAS;
    let segment = 8 - leading_zeros(magnitude);
    let step = (magnitude >> (segment + 3)) & 0xf;
    let sign = if sample < 0 { 0x80 } else { 0 };
    !low_byte(sign | segment << 4 | step)
}

const fn decode_mu(code: u8) -> i16 {
    let code = !code;
    let step = (code & 0xf) as i16;
    let magnitude = (((step << 3) + MU_BIAS.cast_signed()) << ((code >> 4) & 7)) - MU_BIAS as i16;
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The same, but the first two segments have the same step size, and every second bit is inverted.
const fn encode_a(sample: i16) -> u8 {
    // The smallest negative step is that of -1, as the smallest positive one is that of 0.
    let magnitude = (if sample < 0 { !sample } else { sample }).cast_unsigned() >> 4;
    let code = if magnitude < 32 {
        magnitude
    } else {
        let segment = 12 - leading_zeros(magnitude);
        segment << 4 | (magnitude >> (segment - 1)) & 0xf
    };
    let sign = if sample < 0 { 0 } else { 0x80 };
    low_byte(sign | code) ^ 0x55
}

const fn decode_a(code: u8) -> i16 {
    let code = code ^ 0x55;
    let (segment, step) = ((code >> 4) & 7, (code & 0xf) as i16);
    let magnitude = match segment {
        0 => (step << 4) + 8,
        _ => ((step << 4) + 0x108) << (segment - 1),
    };
    if code & 0x80 == 0 { -magnitude } else { magnitude }
}

#[allow(clippy::cast_possible_truncation, reason = "at most 16")]
const fn leading_zeros(value: u16) -> u16 {
    value.leading_zeros() as u16
}

const fn low_byte(value: u16) -> u8 {
    value.to_le_bytes()[0]
}

const MU_BIAS: u16 = 132;
const MU_MAX: u16 = 32_635;

static FROM_MU: [i16; 256] = samples(G711Law::Mu);
static FROM_A: [i16; 256] = samples(G711Law::A);
static MU_TO_A: [u8; 256] = codes(G711Law::Mu);
static A_TO_MU: [u8; 256] = codes(G711Law::A);

#[allow(clippy::cast_possible_truncation, reason = "below 256")]
const fn samples(law: G711Law) -> [i16; 256] {
    let (mut table, mut code) = ([0; 256], 0);
    while code < 256 {
        table[code] = match law {
            G711Law::Mu => decode_mu(code as u8),
            G711Law::A => decode_a(code as u8),
        };
        code += 1;
    }
    table
}

#[allow(clippy::cast_possible_truncation, reason = "below 256")]
const fn codes(from: G711Law) -> [u8; 256] {
    let (mut table, mut code) = ([0; 256], 0);
    while code < 256 {
        table[code] = match from {
            G711Law::Mu => encode_a(decode_mu(code as u8)),
            G711Law::A => encode_mu(decode_a(code as u8)),
        };
        code += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAWS: [G711Law; 2] = [G711Law::Mu, G711Law::A];

    /// The decision values of the Recommendation, in 16 bits, from zero upwards.
    fn decisions(law: G711Law) -> Vec<i32> {
        let (mut values, mut next) = (Vec::new(), 0);
        for segment in 0..8 {
            for step in 0..16 {
                values.push(next);
                next += match (law, segment, step) {
                    // Table 2a: 0, 1, 3, ... 31, 35, ... in 14 bits.
                    (G711Law::Mu, 0, 0) => 4,
                    (G711Law::Mu, segment, _) => 8 << segment,
                    // Table 1a: 0, 2, 4, ... 64, 68, ... in 13 bits.
                    (G711Law::A, 0, _) => 16,
                    (G711Law::A, segment, _) => 16 << (segment - 1),
                };
            }
        }
        values
    }

    #[test]
    fn samples_map_to_the_code_of_their_decision_interval() {
        for law in LAWS {
            let decisions = decisions(law);
            for sample in i16::MIN..=i16::MAX {
                let magnitude = match law {
                    G711Law::Mu => i32::from(sample).abs(),
                    G711Law::A => i32::from(if sample < 0 { !sample } else { sample }),
                };
                let step = decisions.iter().rposition(|&from| from <= magnitude).unwrap();
                let step = u8::try_from(step).unwrap();
                let wanted = match law {
                    G711Law::Mu => !(step | if sample < 0 { 0x80 } else { 0 }),
                    G711Law::A => (step | if sample < 0 { 0 } else { 0x80 }) ^ 0x55,
                };
                assert_eq!(law.encode(sample), wanted, "{law:?} {sample}");
            }
        }
    }

    #[test]
    fn codes_round_trip() {
        for law in LAWS {
            for code in 0..=255 {
                let again = law.encode(law.decode(code));
                // Mu-law has two zeros; a sample becomes the positive one.
                let is_zero = law == G711Law::Mu && code == 0x7f;
                assert_eq!(again, if is_zero { 0xff } else { code }, "{law:?} {code}");
            }
        }
    }

    #[test]
    fn a_law_for_another_is_as_near_as_it_can_be() {
        for (from, to) in [(G711Law::Mu, G711Law::A), (G711Law::A, G711Law::Mu)] {
            let mut codes: Vec<u8> = (0..=255).collect();
            transcode(from, to, &mut codes);
            for (code, &made) in (0..=255).zip(&codes) {
                assert_eq!(made, to.encode(from.decode(code)));
            }
            transcode(from, from, &mut codes);
        }
    }

    #[test]
    fn floats_are_clipped_and_counted() {
        for law in LAWS {
            let mut codes = [0; 4];
            assert_eq!(encode(law, &[0.0, 2.0, f32::NAN, -0.5], &mut codes), 2);
            assert_eq!(codes[0], law.silence());
            assert_eq!(codes[1], law.encode(i16::MAX));
            assert_eq!(codes[2], law.silence());
            let mut samples = [0.0; 3];
            assert_eq!(decode(law, &codes, &mut samples), 3);
            assert!((samples[1] - 0.98).abs() < 0.01, "{samples:?}");
        }
    }
}

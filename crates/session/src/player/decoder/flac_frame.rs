//! FLAC frames of any kind (RFC 9639), from 8 to 32 bits.
//!
//! claxon does not decode residuals without a Rice code, which encoders write where sound begins or
//! ends within a block, and flac-codec panics on some damaged frames. A player needs no container,
//! no metadata and no seeking, so a frame decoder of its own is smaller than either.

/// What a frame has turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodedFrame {
    /// Samples of each channel.
    pub(super) length: usize,
    /// Bytes that the frame takes.
    pub(super) bytes: usize,
}

/// Decodes the frame at the front of `bytes`: replaces `samples` by those of one channel after the
/// other. `stream_bits` are the bits of a sample where the frame does not say them. `None` if the
/// frame is damaged or has another number of channels.
///
/// # Real-time
/// Allocates for a frame that is longer than all before.
pub(super) fn decode_frame(
    bytes: &[u8],
    (channels, stream_bits): (usize, u32),
    samples: &mut Vec<i64>,
) -> Option<DecodedFrame> {
    let mut reader = BitReader::new(bytes);
    let header = FrameHeader::parse(&mut reader, stream_bits)?;
    if header.assignment.channels() != channels {
        return None;
    }
    samples.resize(channels * header.length, 0);
    for (channel, samples) in samples.chunks_exact_mut(header.length).enumerate() {
        let side = u32::from(header.assignment.side() == Some(channel));
        decode_channel(&mut reader, header.bits + side, samples)?;
    }
    reader.align();
    let coded = reader.position();
    if reader.bits(16)? != u64::from(checksum(bytes.get(..coded)?)) {
        return None;
    }
    header.assignment.decorrelate(samples.split_at_mut(header.length));
    Some(DecodedFrame { length: header.length, bytes: coded + 2 })
}

struct FrameHeader {
    length: usize,
    bits: u32,
    assignment: ChannelAssignment,
}

impl FrameHeader {
    fn parse(reader: &mut BitReader<'_>, stream_bits: u32) -> Option<Self> {
        // The last bit says whether all blocks have one size.
        if reader.bits(16)? >> 1 != 0x7ffc {
            return None;
        }
        let [size, rate, assignment] = [reader.bits(4)?, reader.bits(4)?, reader.bits(4)?];
        let bits = match reader.bits(4)? >> 1 {
            0 => stream_bits,
            1 => 8,
            2 => 12,
            4 => 16,
            5 => 20,
            6 => 24,
            7 => 32,
            _ => return None,
        };
        // The number of the frame, coded as UTF-8 codes a character.
        let more = u8::try_from(reader.bits(8)?).ok()?.leading_ones().saturating_sub(1);
        (0..more).try_for_each(|_| reader.bits(8).map(drop))?;
        let length = match size {
            1 => 192,
            2..=5 => 576 << (size - 2),
            6 => reader.bits(8)? + 1,
            7 => reader.bits(16)? + 1,
            8.. => 256 << (size - 8),
            _ => return None,
        };
        // The rate if it has no code, and the header's checksum, which the frame's includes.
        reader.bits(match rate {
            12 => 16,
            13 | 14 => 24,
            _ => 8,
        })?;
        let assignment = ChannelAssignment::parse(assignment)?;
        Some(Self { length: usize::try_from(length).ok()?, bits, assignment })
    }
}

/// What the channels of a frame are.
#[derive(Clone, Copy)]
enum ChannelAssignment {
    Independent(usize),
    LeftSide,
    SideRight,
    MidSide,
}

impl ChannelAssignment {
    fn parse(code: u64) -> Option<Self> {
        Some(match code {
            0..8 => Self::Independent(usize::try_from(code).ok()? + 1),
            8 => Self::LeftSide,
            9 => Self::SideRight,
            10 => Self::MidSide,
            _ => return None,
        })
    }

    const fn channels(self) -> usize {
        if let Self::Independent(count) = self { count } else { 2 }
    }

    /// The channel that is a difference, and so has a bit more.
    const fn side(self) -> Option<usize> {
        match self {
            Self::Independent(_) => None,
            Self::LeftSide | Self::MidSide => Some(1),
            Self::SideRight => Some(0),
        }
    }

    /// Makes left and right of what was coded.
    fn decorrelate(self, (first, second): (&mut [i64], &mut [i64])) {
        for (first, second) in first.iter_mut().zip(second) {
            (*first, *second) = match self {
                Self::Independent(_) => return,
                Self::LeftSide => (*first, first.wrapping_sub(*second)),
                Self::SideRight => (first.wrapping_add(*second), *second),
                Self::MidSide => {
                    let sum = *first << 1 | (*second & 1);
                    (sum.wrapping_add(*second) >> 1, sum.wrapping_sub(*second) >> 1)
                }
            };
        }
    }
}

/// Decodes a subframe of samples of `bits` bits.
fn decode_channel(reader: &mut BitReader<'_>, bits: u32, samples: &mut [i64]) -> Option<()> {
    let kind = usize::try_from(reader.bits(7)?).ok()?;
    let wasted = if reader.bits(1)? == 1 { reader.zeros()? + 1 } else { 0 };
    let bits = bits.checked_sub(wasted).filter(|bits| *bits > 0)?;
    match kind {
        0 => samples.fill(reader.signed(bits)?),
        1 => read_samples(reader, bits, samples)?,
        8..=12 => {
            let coefficients = FIXED[kind - 8];
            read_samples(reader, bits, samples.get_mut(..coefficients.len())?)?;
            read_residual(reader, coefficients.len(), samples)?;
            predict(coefficients, 0, samples);
        }
        32..=63 => {
            let order = kind - 31;
            read_samples(reader, bits, samples.get_mut(..order)?)?;
            let precision = u32::try_from(reader.bits(4)?).ok()? + 1;
            let shift = reader.signed(5)?.try_into().ok()?;
            let mut coefficients = [0; MAX_ORDER];
            // The first one is that of the newest sample.
            let coefficients = &mut coefficients[..order];
            for coefficient in coefficients.iter_mut().rev() {
                *coefficient = reader.signed(precision)?;
            }
            read_residual(reader, order, samples)?;
            predict(coefficients, shift, samples);
        }
        _ => return None,
    }
    if wasted > 0 {
        samples.iter_mut().for_each(|sample| *sample <<= wasted);
    }
    Some(())
}

fn read_samples(reader: &mut BitReader<'_>, bits: u32, samples: &mut [i64]) -> Option<()> {
    samples.iter_mut().try_for_each(|sample| reader.signed(bits).map(|value| *sample = value))
}

/// Reads the residual of all samples but the first `order`.
fn read_residual(reader: &mut BitReader<'_>, order: usize, samples: &mut [i64]) -> Option<()> {
    let width = match reader.bits(2)? {
        0 => 4,
        1 => 5,
        _ => return None,
    };
    let partitions = 1_usize << reader.bits(4)?;
    let each = samples.len() / partitions;
    if !samples.len().is_multiple_of(partitions) || each < order {
        return None;
    }
    for (number, partition) in samples.chunks_exact_mut(each.max(1)).enumerate() {
        let partition = &mut partition[if number == 0 { order } else { 0 }..];
        let parameter = u32::try_from(reader.bits(width)?).ok()?;
        if parameter == (1 << width) - 1 {
            let raw = u32::try_from(reader.bits(5)?).ok()?;
            read_samples(reader, raw, partition)?;
            continue;
        }
        for sample in partition {
            let value = u64::from(reader.zeros()?) << parameter | reader.bits(parameter)?;
            *sample = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
        }
    }
    Some(())
}

/// Adds to each residual what the samples before predict; the last coefficient is that of the
/// newest sample.
fn predict(coefficients: &[i64], shift: u32, samples: &mut [i64]) {
    let order = coefficients.len();
    for at in order..samples.len() {
        let window = &mut samples[at - order..=at];
        let mut sum = 0_i64;
        for (coefficient, sample) in coefficients.iter().zip(&*window) {
            sum = sum.wrapping_add(coefficient.wrapping_mul(*sample));
        }
        window[order] = window[order].wrapping_add(sum >> shift);
    }
}

/// The fixed predictors (section 9.2.5).
const FIXED: [&[i64]; 5] = [&[], &[1], &[-1, 2], &[1, -3, 3], &[-1, 4, -6, 4]];

/// The most coefficients of a predictor.
const MAX_ORDER: usize = 32;

/// The checksum of a frame: the polynomial 0x8005, from the highest bit on.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, byte| {
        let [high, _] = sum.to_be_bytes();
        sum << 8 ^ CHECKSUMS[usize::from(high ^ byte)]
    })
}

/// The checksums of all bytes.
#[allow(clippy::cast_possible_truncation, reason = "below 256")]
const CHECKSUMS: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut sum = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum << 1) ^ ((sum >> 15) * 0x8005);
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// Reads bits from the highest of each byte on.
struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next byte that is not in the cache.
    at: usize,
    /// The next bits, the first one highest. Behind those that count, bits of the next bytes may be
    /// there already.
    cache: u64,
    /// Bits of the cache that count.
    left: u32,
}

impl<'a> BitReader<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, cache: 0, left: 0 }
    }

    /// Fills the cache to 56 bits or more, or with all that there are.
    fn refill(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(word) = rest.first_chunk() {
            self.cache |= u64::from_be_bytes(*word) >> self.left;
            let taken = (63 - self.left) / 8;
            self.at += taken as usize;
            self.left += 8 * taken;
            return;
        }
        for byte in rest {
            if self.left > 56 {
                break;
            }
            self.cache |= u64::from(*byte) << (56 - self.left);
            self.at += 1;
            self.left += 8;
        }
    }

    const fn consume(&mut self, count: u32) {
        self.cache <<= count;
        self.left -= count;
    }

    /// At most 56 bits.
    fn bits(&mut self, count: u32) -> Option<u64> {
        if self.left < count {
            self.refill();
            if self.left < count {
                return None;
            }
        }
        let value = self.cache >> 1 >> (63 - count);
        self.consume(count);
        Some(value)
    }

    /// At most 56 bits in two's complement.
    fn signed(&mut self, count: u32) -> Option<i64> {
        let value = self.bits(count)?.cast_signed();
        let unused = 64 - count;
        Some(if count == 0 { 0 } else { value << unused >> unused })
    }

    /// Zeros before the next one.
    fn zeros(&mut self) -> Option<u32> {
        let mut count = 0;
        loop {
            let zeros = self.cache.leading_zeros();
            if zeros < self.left {
                self.consume(zeros + 1);
                return Some(count + zeros);
            }
            count += self.left;
            self.consume(self.left);
            self.refill();
            if self.left == 0 {
                return None;
            }
        }
    }

    /// Goes to the next whole byte.
    const fn align(&mut self) {
        self.consume(self.left % 8);
    }

    /// Whole bytes that were read.
    const fn position(&self) -> usize {
        self.at - (self.left / 8) as usize
    }
}

#[cfg(test)]
mod tests;

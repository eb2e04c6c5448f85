//! The bytes of PulseAudio's native protocol: the packets, and the tagged values in them.
//!
//! A packet is a descriptor of five words and its payload: a message, or samples of a stream. A
//! message is a row of values, each behind a byte that names its type; a command and a tag, which
//! the reply repeats, come first. Everything is big endian. Only what playing and recording need is
//! here; the version that is spoken is [`VERSION`], so newer servers leave out what is newer.

use aulos_core::{SampleFormat, SampleSpec};

/// The version of the protocol that has all that is used: PulseAudio 0.9.15.
pub(super) const VERSION: u32 = 15;

/// Commands to the server.
pub(super) mod command {
    pub(in super::super) const CREATE_PLAYBACK_STREAM: u32 = 3;
    pub(in super::super) const DELETE_PLAYBACK_STREAM: u32 = 4;
    pub(in super::super) const CREATE_RECORD_STREAM: u32 = 5;
    pub(in super::super) const DELETE_RECORD_STREAM: u32 = 6;
    pub(in super::super) const AUTH: u32 = 8;
    pub(in super::super) const SET_CLIENT_NAME: u32 = 9;
    pub(in super::super) const GET_PLAYBACK_LATENCY: u32 = 14;
    pub(in super::super) const GET_SERVER_INFO: u32 = 20;
    pub(in super::super) const GET_SINK_INFO_LIST: u32 = 22;
    pub(in super::super) const GET_SOURCE_INFO_LIST: u32 = 24;
    pub(in super::super) const CORK_PLAYBACK_STREAM: u32 = 41;
    pub(in super::super) const GET_RECORD_LATENCY: u32 = 57;
}

/// What a server sends.
pub(super) mod event {
    pub(in super::super) const ERROR: u32 = 0;
    pub(in super::super) const REPLY: u32 = 2;
    pub(in super::super) const REQUEST: u32 = 61;
    pub(in super::super) const UNDERFLOW: u32 = 63;
    pub(in super::super) const KILLED: u32 = 64;
    pub(in super::super) const RECORD_KILLED: u32 = 65;
    pub(in super::super) const SUSPENDED: u32 = 76;
    pub(in super::super) const RECORD_SUSPENDED: u32 = 77;
    pub(in super::super) const MOVED: u32 = 78;
    pub(in super::super) const RECORD_MOVED: u32 = 79;
}

/// Types of values.
mod tag {
    pub(super) const STRING: u8 = b't';
    pub(super) const NO_STRING: u8 = b'N';
    pub(super) const U32: u8 = b'L';
    pub(super) const U8: u8 = b'B';
    pub(super) const U64: u8 = b'R';
    pub(super) const S64: u8 = b'r';
    pub(super) const SPEC: u8 = b'a';
    pub(super) const BYTES: u8 = b'x';
    pub(super) const TRUE: u8 = b'1';
    pub(super) const FALSE: u8 = b'0';
    pub(super) const TIME: u8 = b'T';
    pub(super) const MICROS: u8 = b'U';
    pub(super) const CHANNEL_MAP: u8 = b'm';
    pub(super) const CHANNEL_VOLUMES: u8 = b'v';
    pub(super) const PROPERTIES: u8 = b'P';
    pub(super) const VOLUME: u8 = b'V';
}

/// Instead of an index.
pub(super) const NONE: u32 = u32::MAX;

const DESCRIPTOR: usize = 20;
/// In place of the channel of a stream: the payload is a message.
const MESSAGE: u32 = u32::MAX;
/// A list of a hundred sinks has about this size; a message of a stream has less than a kilobyte.
pub(super) const MAX_PAYLOAD: usize = 512 * 1024;

/// A message that is being written.
#[derive(Debug)]
pub(super) struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> MessageWriter<'a> {
    /// Begins a message at the end of `out`.
    pub(super) fn new(out: &'a mut Vec<u8>, command: u32, tag: u32) -> Self {
        let start = out.len();
        out.extend([0; DESCRIPTOR]);
        Self { out, start }.u32(command).u32(tag)
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.out.push(tag::U32);
        self.out.extend(value.to_be_bytes());
        self
    }

    pub(super) fn boolean(self, value: bool) -> Self {
        self.out.push(if value { tag::TRUE } else { tag::FALSE });
        self
    }

    pub(super) fn booleans(mut self, values: &[bool]) -> Self {
        for value in values {
            self = self.boolean(*value);
        }
        self
    }

    /// A text ends with a zero byte, so it is cut at its own.
    pub(super) fn text(self, value: Option<&str>) -> Self {
        match value.and_then(|text| text.split('\0').next()) {
            None => self.out.push(tag::NO_STRING),
            Some(text) => {
                self.out.push(tag::STRING);
                self.out.extend(text.as_bytes());
                self.out.push(0);
            }
        }
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        self.out.push(tag::BYTES);
        self.out.extend(length(value).to_be_bytes());
        self.out.extend(value);
        self
    }

    /// Seconds and microseconds.
    pub(super) fn time(self, seconds: u32, micros: u32) -> Self {
        self.out.push(tag::TIME);
        self.out.extend(seconds.to_be_bytes());
        self.out.extend(micros.to_be_bytes());
        self
    }

    /// Sample spec, channel map; [`sample_format`] must know the format.
    pub(super) fn spec(self, spec: SampleSpec) -> Self {
        let channels = channels(spec);
        self.out.extend([tag::SPEC, sample_format(spec.format).unwrap_or_default(), channels]);
        self.out.extend(spec.rate.hz().to_be_bytes());
        self.out.extend([tag::CHANNEL_MAP, channels]);
        self.out.extend(positions(channels));
        self
    }

    /// Full volume for all channels.
    pub(super) fn full_volume(self, spec: SampleSpec) -> Self {
        let channels = channels(spec);
        self.out.extend([tag::CHANNEL_VOLUMES, channels]);
        self.out.extend((0..channels).flat_map(|_| FULL_VOLUME.to_be_bytes()));
        self
    }

    /// Properties are bytes, by custom a text with its zero byte.
    pub(super) fn properties(mut self, list: &[(&str, &str)]) -> Self {
        self.out.push(tag::PROPERTIES);
        for (key, value) in list {
            let value = [value.as_bytes(), &[0]].concat();
            self = self.text(Some(key)).u32(length(&value)).bytes(&value);
        }
        self.text(None)
    }

    /// Writes the descriptor, which has the length.
    pub(super) fn end(self) {
        let size = self.out.len() - self.start - DESCRIPTOR;
        write_descriptor(&mut self.out[self.start..], MESSAGE, size);
    }
}

/// Writes samples of a stream, which follow those before.
pub(super) fn write_samples(out: &mut Vec<u8>, channel: u32, samples: &[u8]) {
    let start = out.len();
    out.extend([0; DESCRIPTOR]);
    out.extend(samples);
    write_descriptor(&mut out[start..], channel, samples.len());
}

fn write_descriptor(out: &mut [u8], channel: u32, size: usize) {
    #[allow(clippy::cast_possible_truncation, reason = "messages and blocks are much smaller")]
    let words = [size as u32, channel, 0, 0, 0];
    for (place, word) in out.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// A packet from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// A message; `None` for samples.
    pub(super) message: Option<&'a [u8]>,
    /// The stream that samples belong to, and the samples.
    pub(super) samples: Option<(u32, &'a [u8])>,
    /// Bytes of the whole packet.
    pub(super) length: usize,
}

/// The server does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Packet<'a> {
    /// The first packet of `input`; `None` if it is not complete yet.
    pub(super) fn parse(input: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let word = |at| input.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let (Some(size), Some(channel)) = (word(0), word(4)) else { return Ok(None) };
        let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > MAX_PAYLOAD {
            return Err(Malformed);
        }
        let length = DESCRIPTOR + size;
        let payload = input.get(DESCRIPTOR..length);
        let channel = u32::from_be_bytes(channel);
        let is_message = channel == MESSAGE;
        Ok(payload.map(|payload| Self {
            message: is_message.then_some(payload),
            samples: (!is_message).then_some((channel, payload)),
            length,
        }))
    }
}

/// Handles the complete packets of `input`, and removes them from it.
pub(super) fn take_packets<E: From<Malformed>>(
    input: &mut Vec<u8>,
    mut handle: impl FnMut(Packet<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0;
    while let Some(packet) = Packet::parse(input.get(done..).unwrap_or_default())? {
        done += packet.length;
        handle(packet)?;
    }
    input.drain(..done);
    Ok(())
}

/// Reads the values of a message, one after the other; `None` at the end or at another type.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageReader<'a>(pub(super) &'a [u8]);

impl<'a> MessageReader<'a> {
    fn tagged<const N: usize>(&mut self, tag: u8) -> Option<[u8; N]> {
        let rest = self.0.strip_prefix(&[tag])?;
        let (value, rest) = rest.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }

    fn skip(&mut self, length: usize) -> Option<&'a [u8]> {
        let (skipped, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(skipped)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.tagged(tag::U32).map(u32::from_be_bytes)
    }

    pub(super) fn s64(&mut self) -> Option<i64> {
        self.tagged(tag::S64).map(i64::from_be_bytes)
    }

    pub(super) fn micros(&mut self) -> Option<u64> {
        self.tagged(tag::MICROS).map(u64::from_be_bytes)
    }

    /// A text, which may be missing.
    pub(super) fn text(&mut self) -> Option<Option<String>> {
        match *self.skip(1)?.first()? {
            tag::NO_STRING => Some(None),
            tag::STRING => {
                let end = self.0.iter().position(|byte| *byte == 0)?;
                let text = self.skip(end + 1)?.get(..end)?;
                Some(Some(String::from_utf8_lossy(text).into_owned()))
            }
            _ => None,
        }
    }

    /// Channels and rate; the format may be one that is not used here.
    pub(super) fn spec(&mut self) -> Option<(u8, u32)> {
        let [_, channels, a, b, c, d] = self.tagged(tag::SPEC)?;
        Some((channels, u32::from_be_bytes([a, b, c, d])))
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        match *self.skip(1)?.first()? {
            tag::TRUE => Some(true),
            tag::FALSE => Some(false),
            _ => None,
        }
    }

    /// Skips one value of any type.
    pub(super) fn skip_value(&mut self) -> Option<()> {
        let kind = *self.skip(1)?.first()?;
        let length = match kind {
            tag::TRUE | tag::FALSE | tag::NO_STRING => 0,
            tag::STRING => self.0.iter().position(|byte| *byte == 0)? + 1,
            tag::U8 => 1,
            tag::U32 | tag::VOLUME => 4,
            tag::SPEC => 6,
            tag::U64 | tag::S64 | tag::MICROS | tag::TIME => 8,
            tag::CHANNEL_MAP => 1 + usize::from(*self.0.first()?),
            tag::CHANNEL_VOLUMES => 1 + 4 * usize::from(*self.0.first()?),
            tag::PROPERTIES => {
                while self.text()?.is_some() {
                    self.u32()?;
                    let size = u32::from_be_bytes(self.tagged(tag::BYTES)?);
                    self.skip(usize::try_from(size).ok()?)?;
                }
                0
            }
            _ => return None,
        };
        self.skip(length).map(drop)
    }

    pub(super) fn skip_values(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.skip_value())
    }
}

/// The protocol's number of a sample format.
pub(super) const fn sample_format(format: SampleFormat) -> Option<u8> {
    match format {
        SampleFormat::U8 => Some(0),
        SampleFormat::S16Le => Some(3),
        SampleFormat::F32 => Some(5),
        SampleFormat::S32Le => Some(7),
        SampleFormat::S24Le => Some(9),
        SampleFormat::S24In32Le => Some(11),
        SampleFormat::S8 => None,
    }
}

/// At most as many as the protocol has.
fn channels(spec: SampleSpec) -> u8 {
    u8::try_from(spec.layout.channels()).unwrap_or(MAX_CHANNELS).min(MAX_CHANNELS)
}

pub(super) const MAX_CHANNELS: u8 = 32;

/// The loudspeaker of each channel, in the order of WAVE.
fn positions(channels: u8) -> impl Iterator<Item = u8> {
    /// Front left and right, center, low frequency, rear left and right, side left and right.
    const ORDER: [u8; 8] = [1, 2, 3, 7, 5, 6, 10, 11];
    const MONO: u8 = 0;
    /// The first position without a place.
    const AUX: u8 = 12;
    (0..channels).map(move |at| match channels {
        1 => MONO,
        // Quadro and 5.0 have no low frequency channel.
        4 => [1, 2, 5, 6][usize::from(at)],
        5 => [1, 2, 3, 5, 6][usize::from(at)],
        2..=8 => ORDER[usize::from(at)],
        _ => AUX + at,
    })
}

const FULL_VOLUME: u32 = 0x1_0000;

/// Lengths here are those of names and keys.
#[allow(clippy::cast_possible_truncation, reason = "names and keys are short")]
const fn length(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    #[test]
    fn a_message_is_written_byte_by_byte() {
        let mut out = vec![0xaa];
        let spec = "44100:16:2".parse().unwrap();
        MessageWriter::new(&mut out, command::SET_CLIENT_NAME, 7)
            .spec(spec)
            .full_volume(spec)
            .boolean(true)
            .text(Some("a\0b"))
            .properties(&[("k", "v")])
            .time(1, 2)
            .end();
        let expected = "aa 00000046 ffffffff 00000000 00000000 00000000 4c00000009 4c00000007 \
            61 03 02 0000ac44 6d 02 01 02 76 02 00010000 00010000 31 74 61 00 \
            50 74 6b 00 4c 00000002 78 00000002 76 00 4e 54 00000001 00000002";
        let expected = hex(expected);
        assert_eq!(out[21..], expected[21..]);
        assert_eq!(usize::from(out[4]), out.len() - 21);
        assert_eq!(out[5..21], expected[5..21]);
    }

    #[test]
    fn values_are_read_back_and_skipped() {
        let mut out = Vec::new();
        let spec = "48000:24:6".parse().unwrap();
        MessageWriter::new(&mut out, 1, 2)
            .spec(spec)
            .full_volume(spec)
            .properties(&[("a", "b"), ("c", "")])
            .text(None)
            .text(Some("end"))
            .booleans(&[true, false])
            .end();
        let packet = Packet::parse(&out).unwrap().unwrap();
        assert_eq!(packet.length, out.len());
        let mut values = MessageReader(packet.message.unwrap());
        assert_eq!((values.u32(), values.u32()), (Some(1), Some(2)));
        assert_eq!(values.spec(), Some((6, 48_000)));
        values.skip_values(3).unwrap();
        assert_eq!(values.text(), Some(None));
        assert_eq!(values.text(), Some(Some("end".to_owned())));
        values.skip_values(2).unwrap();
        assert!(values.is_empty() && values.skip_value().is_none() && values.u32().is_none());
    }

    #[test]
    fn every_layout_has_as_many_positions_as_channels() {
        for channels in 1..=MAX_CHANNELS {
            let list: std::collections::BTreeSet<u8> = positions(channels).collect();
            assert_eq!(list.len(), usize::from(channels));
        }
    }

    #[test]
    fn damaged_bytes_are_refused_and_never_panic() {
        assert_eq!(Packet::parse(&[0xff; 20]), Err(Malformed));
        assert_eq!(Packet::parse(&[0; 7]), Ok(None));
        assert_eq!(Packet::parse(&[0; 20]).unwrap().unwrap().message, None);
        let mut random = aulos_core::Rng::new(7);
        for _ in 0..20_000 {
            let length = usize::try_from(random.next_u64() % 40).unwrap();
            let kinds = b"tNLBRrax10TUmvPV";
            let bytes: Vec<u8> = (0..length)
                .map(|_| match random.next_u64() % 3 {
                    0 => kinds[usize::try_from(random.next_u64() % 16).unwrap()],
                    other => {
                        u8::try_from(random.next_u64() & if other == 1 { 3 } else { 255 }).unwrap()
                    }
                })
                .collect();
            let mut values = MessageReader(&bytes);
            while values.skip_value().is_some() {}
            drop((values.u32(), values.text(), values.spec()));
        }
    }
}

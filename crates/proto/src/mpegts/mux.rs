//! The multiplexer: one sound as a programme of its own.

use super::packet::TS_PACKET;
use super::{TsCodec, TsTime};
use crate::crc::crc32;

/// Writes frames of one codec as a transport stream with one programme.
///
/// Frames are gathered until they fill what SRT sends as one datagram. The tables come first and
/// then every 250 ms, so that a receiver may join at any time.
///
/// # Examples
/// ```
/// use aulos_proto::mpegts::{TS_PACKET, TsCodec, TsMuxer, TsTime};
///
/// let mut muxer = TsMuxer::new(TsCodec::Mpeg);
/// let mut stream = Vec::new();
/// muxer.push(TsTime::from_ticks(0), &[0xff; 576]);
/// muxer.flush(&mut stream);
/// assert_eq!((stream[0], stream.len() % TS_PACKET), (0x47, 0));
/// ```
#[derive(Debug)]
pub struct TsMuxer {
    codec: TsCodec,
    /// Frames that wait, and the time of the first one.
    frames: Vec<u8>,
    time: TsTime,
    /// When the tables were written last.
    tables_at: Option<TsTime>,
    /// The counters of the tables and of the sound.
    counters: [u8; 3],
}

impl TsMuxer {
    /// A stream of this codec.
    #[must_use]
    pub const fn new(codec: TsCodec) -> Self {
        let time = TsTime::from_ticks(0);
        Self { codec, frames: Vec::new(), time, tables_at: None, counters: [0; 3] }
    }

    /// Adds the frame, which begins at `time`. Opus is a packet without a container; the frames of
    /// other codecs have their headers. A frame of more than 8 kB is left out: no codec has such.
    pub fn push(&mut self, time: TsTime, frame: &[u8]) {
        if frame.len() > MAX_FRAME {
            return;
        }
        if self.frames.is_empty() {
            self.time = time;
        }
        if matches!(self.codec, TsCodec::Opus(_)) {
            self.frames.extend_from_slice(&OPUS_PREFIX);
            let mut rest = frame.len();
            while rest >= 255 {
                self.frames.push(255);
                rest -= 255;
            }
            self.frames.push(u8::try_from(rest).unwrap_or(0));
        }
        self.frames.extend_from_slice(frame);
    }

    /// Whether the frames fill a datagram, or a frame more could be too much.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.frames.len() >= FULL
    }

    /// Time from the first frame that waits to `time`, in ticks of 90 kHz; 0 without frames.
    #[must_use]
    pub const fn waiting_ticks(&self, time: TsTime) -> i64 {
        if self.frames.is_empty() { 0 } else { time.diff(self.time) }
    }

    /// Appends the frames that wait to `out`, in whole packets, behind the tables where those are
    /// due.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.frames.is_empty() {
            return;
        }
        let is_due = |at: TsTime| !(0..TABLE_INTERVAL).contains(&self.time.diff(at));
        if self.tables_at.is_none_or(is_due) {
            self.tables_at = Some(self.time);
            self.write_tables(out);
        }
        let mut unit = self.header();
        unit.append(&mut self.frames);
        let mut clock = Some(self.time);
        let mut rest = unit.as_slice();
        while !rest.is_empty() {
            let is_first = clock.is_some();
            let adaptation = clock.take().map(clock_reference).unwrap_or_default();
            rest = self.write_packet(SOUND, is_first, adaptation, rest, out);
        }
    }

    /// Begins anew for another receiver, which needs the tables.
    pub fn restart(&mut self) {
        self.frames.clear();
        self.tables_at = None;
    }

    /// The header of a PES packet, with the time at which its first frame is presented.
    fn header(&self) -> Vec<u8> {
        let stream = if matches!(self.codec, TsCodec::Opus(_)) { PRIVATE_1 } else { AUDIO };
        let length = u16::try_from(self.frames.len() + 8).unwrap_or(0);
        let [high, low] = length.to_be_bytes();
        // Marker and "begins with a frame"; a time stamp of presentation alone; its five bytes.
        let mut header = vec![0, 0, 1, stream, high, low, 0x84, 0x80, 5];
        let time = TsTime::from_ticks(self.time.ticks() + PRESENTATION_DELAY).ticks();
        let bits = |shift: u32| (time >> shift).to_le_bytes()[0];
        header.push(0x21 | (bits(30) & 7) << 1);
        header.extend_from_slice(&[bits(22), bits(14) | 1, bits(7), bits(0) << 1 | 1]);
        header
    }

    fn write_tables(&mut self, out: &mut Vec<u8>) {
        // One programme, number 1.
        let association = section(0, &[0, 1, 0xe0 | PROGRAMME[0], PROGRAMME[1]]);
        let (kind, descriptors): (u8, &[u8]) = match self.codec {
            TsCodec::Adts => (0x0f, &[]),
            TsCodec::Latm => (0x11, &[]),
            TsCodec::Mpeg => (0x03, &[]),
            TsCodec::Opus(1) => (0x06, b"\x05\x04Opus\x7f\x02\x80\x01"),
            TsCodec::Opus(_) => (0x06, b"\x05\x04Opus\x7f\x02\x80\x02"),
        };
        // The sound carries the clock; the programme has no descriptors.
        let mut programme = vec![0xe0 | SOUND[0], SOUND[1], 0xf0, 0];
        let length = u8::try_from(descriptors.len()).unwrap_or(0);
        programme.extend_from_slice(&[kind, 0xe0 | SOUND[0], SOUND[1], 0xf0, length]);
        programme.extend_from_slice(descriptors);
        for (pid, table) in [([0, 0], association), (PROGRAMME, section(2, &programme))] {
            let mut rest = table.as_slice();
            let mut is_first = true;
            while !rest.is_empty() {
                rest = self.write_packet(pid, is_first, Vec::new(), rest, out);
                is_first = false;
            }
        }
    }

    /// Appends a packet with the beginning of `payload`, and returns the rest of that.
    fn write_packet<'a>(
        &mut self,
        pid: [u8; 2],
        is_first: bool,
        mut adaptation: Vec<u8>,
        payload: &'a [u8],
        out: &mut Vec<u8>,
    ) -> &'a [u8] {
        let head = if adaptation.is_empty() { 0 } else { adaptation.len() + 1 };
        let room = TS_PACKET - HEADER - head;
        let (piece, rest) = payload.split_at_checked(room).unwrap_or((payload, &[]));
        let mut stuffing = room - piece.len();
        let has_adaptation = head > 0 || stuffing > 0;
        let counter = match pid {
            [0, 0] => &mut self.counters[0],
            PROGRAMME => &mut self.counters[1],
            _ => &mut self.counters[2],
        };
        let control = 0x10 | u8::from(has_adaptation) << 5 | *counter;
        *counter = (*counter + 1) & 0x0f;
        out.extend_from_slice(&[0x47, pid[0] | u8::from(is_first) << 6, pid[1], control]);
        if has_adaptation {
            if head == 0 {
                // The byte of the length, and if there is room, that of the flags.
                stuffing -= 1;
                if stuffing > 0 {
                    adaptation.push(0);
                    stuffing -= 1;
                }
            }
            adaptation.resize(adaptation.len() + stuffing, 0xff);
            out.push(u8::try_from(adaptation.len()).unwrap_or(0));
            out.extend_from_slice(&adaptation);
        }
        out.extend_from_slice(piece);
        rest
    }
}

/// The content of an adaptation field with the clock: a point to join, and a clock reference.
fn clock_reference(time: TsTime) -> Vec<u8> {
    // 33 bits of 90 kHz, six reserved ones, nine of 27 MHz, which are 0.
    let bits = time.ticks() << 15 | 0x7e00;
    let [_, _, clock @ ..] = bits.to_be_bytes();
    let mut field = vec![0x50];
    field.extend_from_slice(&clock);
    field
}

/// A table in one section, with its checksum; behind the pointer that begins a packet.
fn section(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 9).unwrap_or(0);
    let [high, low] = (0xb000 | length).to_be_bytes();
    // Number 1 (of the stream, or of the programme), version 0 in force, section 0 of 0.
    let mut bytes = vec![kind, high, low, 0, 1, 0xc1, 0, 0];
    bytes.extend_from_slice(body);
    let crc = crc32(u32::MAX, bytes.iter().copied());
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes.insert(0, 0);
    bytes
}

/// Bytes before adaptation field and payload.
const HEADER: usize = 4;

/// PIDs: the table of the programme, and its sound; those that ffmpeg takes.
const PROGRAMME: [u8; 2] = [0x10, 0x00];
const SOUND: [u8; 2] = [0x01, 0x00];

/// Types of PES streams: audio 0, and private stream 1.
const AUDIO: u8 = 0xc0;
const PRIVATE_1: u8 = 0xbd;

/// The control header of an Opus packet without trimming.
const OPUS_PREFIX: [u8; 2] = [0x7f, 0xe0];

/// Bytes of frames that fill seven packets with their headers.
const FULL: usize = 7 * 184 - 22 - 376;

/// As the length of a PES packet has 16 bits, `FULL` and a frame must fit in it.
const MAX_FRAME: usize = 8 * 1024;

/// The tables come every 250 ms, in ticks.
const TABLE_INTERVAL: i64 = 22_500;

/// From the clock to the presentation: 100 ms, in which a receiver gets the whole unit.
const PRESENTATION_DELAY: u64 = 9_000;

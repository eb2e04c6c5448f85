//! Headers on the audio path: the codec header once per stream, the chunk header for every chunk.

use core::fmt;

use aulos_core::{Codec, Instant, SampleFormat, SampleSpec};

use super::{HEADER_LEN, MessageHeader, MessageKind, MessageStamp, WireTime};
use crate::bytes::put_blob;
use crate::wav;
use crate::ws::{self, WsFrameHeader};

/// Bytes in front of a chunk's encoded audio: header, timestamp, length.
pub const CHUNK_HEADER_LEN: usize = HEADER_LEN + 8 + 4;

/// Writes the header of a chunk right-aligned at the end of `headroom`, directly in front of the
/// `payload_len` bytes of encoded audio, and returns its length ([`CHUNK_HEADER_LEN`]).
///
/// If there is room, it is preceded by the header of the WebSocket frame that contains the message,
/// so that both kinds of clients get the same bytes: those for a WebSocket begin
/// [`ws::header_len`](crate::ws::header_len) of the message earlier.
///
/// The bytes are the same for every client, including `sent`, which clients ignore in chunks.
/// `timestamp` is the recording time of the first frame on the server's clock. A payload above
/// [`MAX_MESSAGE`](super::MAX_MESSAGE) minus 12 makes every client disconnect.
///
/// # Real-time
/// Does not allocate.
///
/// # Panics
/// When `headroom` is shorter than [`CHUNK_HEADER_LEN`]; [`aulos_core::HEADROOM`] is not.
pub fn write_chunk_header(
    headroom: &mut [u8],
    sent: Instant,
    timestamp: Instant,
    payload_len: usize,
) -> usize {
    let head = WsFrameHeader::new(ws::FrameKind::Binary, CHUNK_HEADER_LEN + payload_len);
    if let Some(front) = headroom.len().checked_sub(CHUNK_HEADER_LEN + head.as_bytes().len())
        && let Some(place) = headroom.get_mut(front..headroom.len() - CHUNK_HEADER_LEN)
    {
        place.copy_from_slice(head.as_bytes());
    }
    let place = headroom.last_chunk_mut::<CHUNK_HEADER_LEN>();
    assert!(place.is_some(), "headroom of {CHUNK_HEADER_LEN} bytes");
    let Some(place) = place else { return 0 };
    let length = u32::try_from(payload_len).unwrap_or(u32::MAX);
    let stamp = MessageStamp { sent: WireTime::from_instant(sent), ..MessageStamp::default() };
    let header =
        MessageHeader { kind: MessageKind::WireChunk, stamp, size: length.saturating_add(12) };
    let (front, back) = place.split_at_mut(HEADER_LEN);
    front.copy_from_slice(&header.to_bytes());
    let (time, size) = back.split_at_mut(8);
    time.copy_from_slice(&WireTime::from_instant(timestamp).to_le_bytes());
    size.copy_from_slice(&length.to_le_bytes());
    CHUNK_HEADER_LEN
}

/// Payload of the message that begins a stream: the name of the codec and the header for its
/// decoder.
///
/// * `pcm`: a RIFF/WAVE header of 44 bytes without audio. With 24 bits, its block align is three
///   bytes per sample although four are sent; clients expect this.
/// * `opus`: `SUPO`, rate, 16 bits, channels.
/// * Others: `stream_header`, the encoder's own; for FLAC, `fLaC` and metadata blocks.
///
/// # Errors
/// [`UnsupportedSampleFormat`] for a PCM format that Snapcast does not support.
pub fn codec_header(
    codec: Codec,
    spec: SampleSpec,
    stream_header: &[u8],
) -> Result<Vec<u8>, UnsupportedSampleFormat> {
    let name = codec.name().as_bytes();
    Ok(match codec {
        Codec::Pcm => stream_begin(name, &pcm_header(spec)?),
        Codec::Opus => stream_begin(name, &opus_header(spec)),
        _ => stream_begin(name, stream_header),
    })
}

/// The same payload from the name of the codec and the header, as another server has sent them.
#[must_use]
pub fn stream_begin(codec: &[u8], header: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(8 + codec.len() + header.len());
    put_blob(&mut payload, codec);
    put_blob(&mut payload, header);
    payload
}

/// Sample format that Snapcast's PCM does not support; it has 8, 16, 24 (in 32) and 32 bits,
/// signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedSampleFormat(pub SampleFormat);

impl fmt::Display for UnsupportedSampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapcast clients cannot play PCM of format {}: use 8, 16, 24 or 32", self.0)
    }
}

impl core::error::Error for UnsupportedSampleFormat {}

fn pcm_header(spec: SampleSpec) -> Result<[u8; wav::HEADER_LEN], UnsupportedSampleFormat> {
    match spec.format {
        SampleFormat::S8 | SampleFormat::S16Le | SampleFormat::S24In32Le | SampleFormat::S32Le => {
            Ok(wav::RawHeader::new(wav::TAG_PCM, spec, wav::RIFF_SIZE_WITHOUT_DATA, 0).emit())
        }
        SampleFormat::U8 | SampleFormat::S24Le | SampleFormat::F32 => {
            Err(UnsupportedSampleFormat(spec.format))
        }
    }
}

fn opus_header(spec: SampleSpec) -> [u8; 12] {
    let [a, b, c, d] = OPUS_MAGIC.to_le_bytes();
    let [e, f, g, h] = spec.rate.hz().to_le_bytes();
    let [i, j] = SampleFormat::S16Le.bits().to_le_bytes();
    let [k, l] = u16::try_from(spec.layout.channels()).unwrap_or(u16::MAX).to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// `OPUS` as a number; its little-endian bytes are `SUPO`.
const OPUS_MAGIC: u32 = 0x4f50_5553;

#[cfg(test)]
mod tests {
    use super::super::{MAX_MESSAGE, ParsedMessage, ServerMessage, parse_message};
    use super::*;
    use aulos_core::{HEADROOM, Span};

    #[test]
    fn a_chunk_header_in_the_headroom_completes_the_message() {
        let mut bytes = vec![0xaa; HEADROOM];
        bytes.extend_from_slice(b"sound");
        let sent = Instant::ZERO + Span::from_micros(3_000_007);
        let timestamp = Instant::ZERO + Span::from_micros(2_980_000);
        let used = write_chunk_header(&mut bytes[..HEADROOM], sent, timestamp, 5);
        assert_eq!(used, 38);
        assert_eq!(bytes[..HEADROOM - used - 2], [0xaa; HEADROOM - 40]);
        assert_eq!(bytes[HEADROOM - used - 2..HEADROOM - used], [0x82, 43]);
        let Ok(ParsedMessage::Message(frame)) =
            parse_message(&bytes[HEADROOM - used..], MAX_MESSAGE)
        else {
            panic!("no message")
        };
        assert_eq!(frame.header.stamp.sent, WireTime { sec: 3, usec: 7 });
        assert_eq!((frame.header.stamp.id, frame.header.stamp.refers_to), (0, 0));
        let timestamp = WireTime { sec: 2, usec: 980_000 };
        assert_eq!(
            ServerMessage::parse(&frame),
            Ok(ServerMessage::WireChunk { timestamp, payload: b"sound" })
        );
    }

    #[test]
    fn the_pcm_header_has_the_fields_that_snapclient_reads() {
        let payload = codec_header(Codec::Pcm, "48000:24:2".parse().unwrap(), &[]).unwrap();
        assert_eq!(&payload[..7], b"\x03\0\0\0pcm");
        assert_eq!(payload[7..11], [44, 0, 0, 0]);
        let header = &payload[11..];
        assert_eq!(header.len(), 44);
        assert_eq!(header[4..8], [36, 0, 0, 0]);
        assert_eq!(header[20..28], [1, 0, 2, 0, 0x80, 0xbb, 0, 0]);
        assert_eq!(header[32..36], [6, 0, 24, 0]);
        assert_eq!(header[40..], [0; 4]);
    }

    #[test]
    fn opus_spells_its_name_backwards() {
        let payload = codec_header(Codec::Opus, SampleSpec::DEFAULT, &[]).unwrap();
        assert_eq!(payload, b"\x04\0\0\0opus\x0c\0\0\0SUPO\x80\xbb\0\0\x10\0\x02\0");
    }

    #[test]
    fn flac_passes_its_own_header_on() {
        let payload = codec_header(Codec::Flac, SampleSpec::DEFAULT, b"fLaC...").unwrap();
        assert_eq!(payload, b"\x04\0\0\0flac\x07\0\0\0fLaC...");
    }

    #[test]
    fn float_samples_have_no_pcm_header() {
        let spec = SampleSpec { format: SampleFormat::F32, ..SampleSpec::DEFAULT };
        assert_eq!(
            codec_header(Codec::Pcm, spec, &[]),
            Err(UnsupportedSampleFormat(SampleFormat::F32))
        );
    }
}

//! Just enough of Ogg (RFC 3533) and its Opus mapping (RFC 7845) to exchange packets with ffmpeg.

/// Contents of a stream written by ffmpeg.
pub(crate) struct OpusStream {
    pub(crate) channels: usize,
    /// Frames that a decoder skips at the start.
    pub(crate) skip: usize,
    pub(crate) packets: Vec<Vec<u8>>,
}

/// Wraps packets of `frames` frames each.
pub(crate) fn opus_stream(
    packets: &[Vec<u8>],
    channels: usize,
    skip: usize,
    frames: usize,
) -> Vec<u8> {
    let mut head = b"OpusHead\x01".to_vec();
    head.push(channels as u8);
    head.extend((skip as u16).to_le_bytes());
    head.extend(48_000u32.to_le_bytes());
    head.extend([0, 0, 0]);
    let mut tags = b"OpusTags".to_vec();
    tags.extend([4, 0, 0, 0]);
    tags.extend(b"test");
    tags.extend([0, 0, 0, 0]);

    let mut stream = page(2, 0, 0, &head);
    stream.extend(page(0, 0, 1, &tags));
    for (index, packet) in packets.iter().enumerate() {
        let flags = if index + 1 == packets.len() { 4 } else { 0 };
        let position = ((index + 1) * frames) as u64;
        stream.extend(page(flags, position, index as u32 + 2, packet));
    }
    stream
}

/// Parses a stream with one logical stream.
pub(crate) fn opus_packets(mut stream: &[u8]) -> OpusStream {
    let mut packets = vec![Vec::new()];
    while !stream.is_empty() {
        assert_eq!(stream[..5], *b"OggS\0");
        let segments = usize::from(stream[26]);
        let (lacing, mut rest) = stream[27..].split_at(segments);
        for &length in lacing {
            let (part, behind) = rest.split_at(usize::from(length));
            packets.last_mut().unwrap().extend_from_slice(part);
            rest = behind;
            if length < 255 {
                packets.push(Vec::new());
            }
        }
        stream = rest;
    }
    packets.pop();
    let head = packets.remove(0);
    assert!(head.starts_with(b"OpusHead") && packets.remove(0).starts_with(b"OpusTags"));
    let skip = usize::from(u16::from_le_bytes([head[10], head[11]]));
    OpusStream { channels: usize::from(head[9]), skip, packets }
}

fn page(flags: u8, position: u64, number: u32, packet: &[u8]) -> Vec<u8> {
    let mut page = b"OggS\0".to_vec();
    page.push(flags);
    page.extend(position.to_le_bytes());
    page.extend(1u32.to_le_bytes());
    page.extend(number.to_le_bytes());
    page.extend([0; 4]);
    let full = packet.len() / 255;
    page.push(full as u8 + 1);
    page.extend(std::iter::repeat_n(255, full));
    page.push((packet.len() % 255) as u8);
    page.extend(packet);
    let checksum = page.iter().fold(0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            (crc << 1) ^ if crc >> 31 == 1 { 0x04C1_1DB7 } else { 0 }
        })
    });
    page[22..26].copy_from_slice(&checksum.to_le_bytes());
    page
}

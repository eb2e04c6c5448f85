//! Targets of what HLS and SRT carry.

use aulos_core::Span;
use aulos_proto::m3u8::{MAX_SEGMENTS, MAX_VARIANTS, Playlist};
use aulos_proto::mpegts::{TS_PACKET, TsDemuxer, TsEvent, TsTimeline};

/// Playlists stay within their limits, and their ranges are numbers of 64 bits.
pub fn m3u8(data: &[u8]) {
    match Playlist::parse(data) {
        Ok(Playlist::Media(playlist)) => {
            assert!((1..=MAX_SEGMENTS).contains(&playlist.segments.len()));
            for segment in &playlist.segments {
                assert!(segment.duration >= Span::ZERO);
                let end = segment.range.map(|range| range.offset.checked_add(range.length));
                assert!(end.is_none_or(|end| end.is_some()));
            }
        }
        Ok(Playlist::Multivariant(playlist)) => {
            assert!((1..=MAX_VARIANTS).contains(&playlist.variants.len()));
        }
        Err(_) => {}
    }
}

/// The pieces of sound are no longer than their packets, and times move by at most half a turn.
pub fn mpegts(data: &[u8]) {
    let (mut demuxer, mut line, mut last) = (TsDemuxer::default(), TsTimeline::default(), None);
    let (packets, _) = data.as_chunks::<TS_PACKET>();
    for packet in packets {
        let Some(event) = demuxer.handle_packet(packet) else { continue };
        if let TsEvent::Sound { time, bytes, .. } = event {
            assert!(bytes.len() < TS_PACKET);
            let Some(time) = time else { continue };
            let time = line.extend(time);
            if let Some(last) = last.replace(time) {
                assert!((time - last).abs() <= Span::from_secs(47_722));
            }
        }
    }
}

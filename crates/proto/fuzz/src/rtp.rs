//! Fuzz targets of RTP and related protocols.

use core::hint::black_box;
use core::net::{IpAddr, SocketAddr};

use aulos_core::{Instant, Span};

use aulos_proto::rtp::dual_path::{DualPathMerger, RedundantPath};
use aulos_proto::rtp::rtcp::CompoundPacket;
use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpSession};
use aulos_proto::rtp::{
    Encoding, HEADER_LEN, RtpPacket, RtpReceiver, SourceLookup, SourceTable, SourceTableConfig,
    is_rtcp, red as redundancy,
};
use aulos_proto::sap::{Listener, ListenerConfig, SapPacket as Announcement};
use aulos_proto::sdp::{MAX_BYTES, MAX_LINES, SessionDescription};

/// Length-prefixed datagrams of any number of sources: no read beyond the input, the table stays
/// bounded, and every packet is counted once.
pub fn rtp(data: &[u8]) {
    let config = SourceTableConfig { capacity: 3, idle_timeout: Span::from_millis(50), key: 7 };
    let mut table = SourceTable::new(config);
    let (mut legs, mut now) = (DualPathMerger::new(), Instant::ZERO);
    for datagram in datagrams(data) {
        now += Span::from_millis(7);
        black_box(is_rtcp(datagram));
        let Ok(packet) = RtpPacket::parse(datagram) else { continue };
        let extension = packet.extension().map_or(0, |extension| 4 + extension.data.len());
        let parts = packet.sources().len() * 4 + extension + packet.payload().len();
        assert!(HEADER_LEN + parts <= datagram.len());
        assert_eq!(
            RtpPacket::parse(&packet.header().to_bytes()).map(|of| of.header()),
            Ok(packet.header())
        );
        let header = packet.header();
        let encoding = Encoding::from_static_type(header.payload_type);
        black_box(encoding.and_then(|encoding| encoding.ticks(packet.payload())));
        black_box(aulos_proto::rtp::payload::opus_fec_ticks(packet.payload()));
        let rate = encoding.map_or(48_000, |encoding| encoding.clock_rate);
        let leg = if header.marker { RedundantPath::A } else { RedundantPath::B };
        black_box(legs.receive(now, leg, header.sequence, header.timestamp, rate));
        let from = SocketAddr::from(([192, 0, 2, 1], u16::from(header.marker)));
        let make = || (RtpReceiver::new(), 0_u64);
        if let SourceLookup::Known(id) | SourceLookup::Moved(id) | SourceLookup::Inserted(id, _) =
            table.find_or_insert(now, header.ssrc, from, make)
            && let Some((receiver, count)) = table.get_mut(id)
        {
            *count += 1;
            black_box(receiver.receive(now, header.sequence, header.timestamp, rate));
            let tally = receiver.stats();
            assert_eq!(tally.received + tally.duplicates + tally.strays, *count);
            black_box(receiver.report());
            if receiver.is_valid() {
                table.mark_valid(id);
            }
        }
        assert!(table.len() <= 3);
    }
}

/// Length-prefixed datagrams: a checked datagram can be iterated, and a session stays bounded,
/// keeps running, and sends valid packets.
pub fn rtcp(data: &[u8]) {
    let config =
        RtcpConfig { ssrc: 7, max_members: 3, reference_time: true, ..RtcpConfig::default() };
    let mut session = RtcpSession::new(config, Instant::ZERO);
    let mut out = [0; 400];
    for datagram in datagrams(data) {
        if let Ok(compound) = CompoundPacket::parse(datagram) {
            assert!(compound.packets().count() <= datagram.len() / 4);
        }
        let mut told = 0;
        let Some(now) = session.poll_timeout() else { unreachable!("it has not left") };
        _ = session.handle_input(now, datagram, |_| told += 1);
        assert!(told <= datagram.len());
        session.record_received(now, 8);
        session.handle_timeout(now, |_| ());
        while let Some(length) = session.poll_output(now, &mut out, core::iter::empty()) {
            let said = out.get(..length).unwrap_or_default();
            assert!(CompoundPacket::parse(said).is_ok());
        }
        assert!(session.members() <= 4);
    }
}

/// Encoding a parsed payload reproduces it.
pub fn red(data: &[u8]) {
    let Ok(blocks) = redundancy::RedBlocks::parse(data) else { return };
    let own = blocks.primary();
    let mut all = [redundancy::RedBlock::default(); redundancy::MAX_BLOCKS];
    all.iter_mut().zip(blocks.iter()).for_each(|(place, block)| *place = block);
    let repeated = all.get(..blocks.iter().len() - 1).unwrap_or_default();
    let mut out = vec![0; data.len()];
    let length = redundancy::write(&mut out, repeated, own.payload_type, own.data);
    assert_eq!((length, out.as_slice()), (Some(data.len()), data));
}

/// Encoding and parsing again gives the same description, and an error has an existing line number.
pub fn sdp(data: &[u8]) {
    let session = match SessionDescription::parse(data) {
        Ok(session) => session,
        Err(error) => {
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&error.line));
            return;
        }
    };
    let text = session.to_string();
    // Session-level values are written in every media.
    if text.len() > MAX_BYTES || text.lines().count() >= MAX_LINES {
        return;
    }
    let Ok(again) = SessionDescription::parse(text.as_bytes()) else {
        unreachable!("what we write is read")
    };
    assert_eq!(again.media.len(), session.media.len());
    assert_eq!(SessionDescription::parse(again.to_string().as_bytes()), Ok(again));
}

/// Length-prefixed announcements: encoding and parsing again gives the same packet, and the table
/// stays bounded.
pub fn sap(data: &[u8]) {
    let mut listener = Listener::new(ListenerConfig { capacity: 2, ..ListenerConfig::default() });
    let mut now = Instant::ZERO;
    for datagram in datagrams(data) {
        now += Span::from_secs(30);
        if let Ok(packet) = Announcement::parse(datagram) {
            let mut out = vec![0; datagram.len() + 32];
            let length = packet.write(&mut out).unwrap_or(0);
            assert_eq!(Announcement::parse(out.get(..length).unwrap_or_default()), Ok(packet));
        }
        let from = IpAddr::from([192, 0, 2, u8::from(datagram.len() % 3 == 0)]);
        let mut told = 0;
        _ = listener.handle_input(now, from, datagram, |_| told += 1);
        listener.handle_timeout(now, |_| ());
        assert!(told <= 1 && listener.sessions().len() <= 2);
    }
}

/// Splits the data into datagrams: a length of two bytes, then as many bytes, or the rest.
fn datagrams(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let datagram;
        (datagram, data) = rest.split_at_checked(length)?;
        Some(datagram)
    })
}

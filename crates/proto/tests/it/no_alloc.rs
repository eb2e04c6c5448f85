//! Verifies every `# Real-time` section of this crate: after warm-up, nothing allocates.

use std::sync::Arc;

use aulos_blackbox::alloc::calls_during;
use aulos_core::{ChannelLayout, Frames, HEADROOM, Instant, SampleRate, Span};
use aulos_proto::ogg::OpusStream;
use aulos_proto::rtp::dual_path::{DualPathMerger, MergeOutcome, RedundantPath};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
};
use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpSession};
use aulos_proto::rtp::{
    HEADER_LEN, ReceiveOutcome, RtpHeader, RtpPacket, RtpReceiver, SourceLookup, SourceTable,
    SourceTableConfig, is_rtcp, red,
};
use aulos_proto::snap::session::{SessionInput, SessionOutput};
use aulos_proto::snap::sync::{OffsetFilter, SyncAction};
use aulos_proto::snap::wire::{
    ClientMessage, Hello, MessageStamp, ServerSettings, WireTime, write_chunk_header,
};
use aulos_proto::snap::{Session, TimeSync};

/// Number of allocator calls in rounds 10 to 999 of `round`.
fn calls(mut round: impl FnMut(i64)) -> u64 {
    (0..10).for_each(&mut round);
    calls_during(|| (10..1_000).for_each(&mut round))
}

fn at(micros: i64) -> Instant {
    Instant::ZERO + Span::from_secs(1) + Span::from_micros(micros)
}

#[test]
fn the_counter_counts() {
    assert_eq!(calls(|round| drop(vec![round])), 2 * 990);
}

#[test]
fn time_replies_whole_and_torn() {
    let mut session = Session::new(at(0));
    let (mut bytes, mut out) = (Vec::new(), Vec::with_capacity(1_000));
    let hello = ClientMessage::Hello(Box::new(Hello::new("me")));
    hello.write(MessageStamp { id: 1, ..MessageStamp::default() }, &mut bytes);
    session.handle_input(at(0), SessionInput::Received(&bytes));
    session.handle_input(at(0), SessionInput::Settings(ServerSettings::default()));
    session.handle_input(at(0), SessionInput::Stream(Arc::from(&b"stream"[..])));
    bytes.clear();
    ClientMessage::Time.write(MessageStamp { id: 2, ..MessageStamp::default() }, &mut bytes);

    let mut replies = 0;
    let calls = calls(|round| {
        let now = at(round * 20_000);
        let (front, back) = bytes.split_at(usize::try_from(round % 34).unwrap_or(0));
        for piece in [front, back] {
            session.handle_input(now, SessionInput::Received(piece));
            while let Some(output) = session.poll_output() {
                if let SessionOutput::Send(outgoing) = output {
                    out.clear();
                    outgoing.write(now, &mut out);
                    replies += 1;
                }
            }
        }
    });
    assert_eq!(replies, 1_000 + 2);
    assert_eq!(calls, 0);
}

#[test]
fn chunk_headers_and_ogg_pages() {
    let mut headroom = [0; HEADROOM];
    let mut out = Vec::with_capacity(10_000);
    let begun = OpusStream::begin(1, ChannelLayout::STEREO, SampleRate::HZ_48000, "", &mut out);
    let Ok(mut stream) = begun else { unreachable!("two channels") };
    let calls = calls(|round| {
        write_chunk_header(&mut headroom, at(round), at(round), 3_840);
        out.clear();
        stream.write(&[7; 500], Frames(960), &mut out);
    });
    assert_eq!(calls, 0);
}

#[test]
fn the_clients_idea_of_the_time() {
    for (filter, kept) in [(OffsetFilter::Median, 200), (OffsetFilter::Bounds, 1_000)] {
        let mut sync = TimeSync::new(filter, at(0));
        let calls = calls(|_| {
            let now = sync.poll_timeout();
            sync.handle_timeout(now);
            if let Some(SyncAction::Request(id)) = sync.poll_output() {
                let sent = WireTime::from_instant(now);
                let stamp = MessageStamp { refers_to: id, sent, ..MessageStamp::default() };
                assert!(sync.handle_reply(now, stamp, WireTime::ZERO));
            }
        });
        assert_eq!(sync.exchanges(), kept);
        assert_eq!(calls, 0);
    }
}

/// The path of an RTP packet: both redundant paths, source table, receiver, and RED.
#[test]
fn rtp_packets() {
    let mut table = SourceTable::<RtpReceiver>::new(SourceTableConfig::default());
    let mut legs = DualPathMerger::new();
    let (mut datagram, mut out) = ([0; HEADER_LEN + 160], [0; 400]);
    let mut valid = 0;
    let calls = calls(|round| {
        let sequence = u16::try_from(round).unwrap_or(0);
        // 45 sources that continue, and one packet of a new one after each nine: sources are
        // evicted.
        let fresh = sequence % 10 == 9;
        let ssrc = u32::from(if fresh { 1_000 + sequence } else { sequence % 50 });
        let timestamp = u32::from(sequence / 50) * 160;
        let header = RtpHeader { sequence: sequence / 50, timestamp, ssrc, ..RtpHeader::default() };
        assert_eq!(header.write(&mut datagram), Some(HEADER_LEN));
        let Ok(packet) = RtpPacket::parse(&datagram) else {
            unreachable!("what we write is whole")
        };
        assert!(!is_rtcp(&datagram));
        let now = at(round * 200);
        let picked = legs.receive(now, RedundantPath::A, sequence, timestamp, 8_000);
        assert_eq!(picked, MergeOutcome::First);
        assert_eq!(
            legs.receive(now, RedundantPath::B, sequence, timestamp, 8_000),
            MergeOutcome::Duplicate
        );
        let from = core::net::SocketAddr::from(([192, 0, 2, 1], 5_004));
        match table.find_or_insert(now, ssrc, from, RtpReceiver::new) {
            SourceLookup::Known(id) | SourceLookup::Inserted(id, _) => {
                let Some(receiver) = table.get_mut(id) else { unreachable!("just entered") };
                let accepted = receiver.receive(now, packet.sequence(), packet.timestamp(), 8_000);
                valid += i64::from(matches!(accepted, ReceiveOutcome::Valid(_)));
                receiver.report();
                if receiver.is_valid() {
                    table.mark_valid(id);
                }
            }
            SourceLookup::Full => {}
            other => unreachable!("{other:?}"),
        }
        let before =
            red::RedBlock { payload_type: 0, timestamp_offset: 160, data: packet.payload() };
        let Some(length) = red::write(&mut out, &[before], 0, packet.payload()) else {
            unreachable!("there is room")
        };
        assert!(red::RedBlocks::parse(&out[..length]).is_ok());
    });
    assert_eq!((table.stats().evicted, valid), (145 - 64, 900 - 45));
    assert_eq!(calls, 0);
}

/// Two sessions that report to each other, with changing members.
#[test]
fn rtcp_reports() {
    let session = |ssrc| {
        let config = RtcpConfig { ssrc, reference_time: true, ..RtcpConfig::default() };
        RtcpSession::new(config, Instant::ZERO)
    };
    let mut pair = [session(1), session(2)];
    let (mut out, mut reports) = ([0; 400], 0);
    let calls = calls(|_| {
        let Some(now) = pair.iter().filter_map(RtcpSession::poll_timeout).min() else { return };
        pair[0].record_sent(now, &RtpHeader::default(), 160, 8_000);
        pair[1].record_received(now, 1);
        for (from, to) in [(0, 1), (1, 0)] {
            pair[from].handle_timeout(now, |_| ());
            while let Some(length) = pair[from].poll_output(now, &mut out, core::iter::empty()) {
                assert!(pair[to].handle_input(now, &out[..length], |_| ()).is_ok());
                reports += 1;
            }
        }
        pair[1].record_received(now, u32::try_from(reports % 50).unwrap_or(0) + 10);
    });
    assert!(reports > 300, "{reports}");
    assert_eq!(calls, 0);
}

#[test]
fn a_jitter_buffer_in_both_modes() {
    for mode in [
        JitterMode::Playout(DelayPolicy::ADAPTIVE),
        JitterMode::Relay { hold: Span::from_millis(60) },
    ] {
        let mut buffer = JitterBuffer::new(JitterConfig { clock_rate: 8_000, slots: 16, mode });
        let mut given = 0;
        let calls = calls(|round| {
            // Every seventh packet is lost, every fifth arrives after its successor, every ninth
            // twice.
            let number = if round % 5 == 1 { round + 1 } else { round - i64::from(round % 5 == 2) };
            let arrival = Arrival {
                sequence: number.cast_unsigned(),
                timestamp: number.cast_unsigned() * 160,
                ticks: 160,
                marker: false,
                received: at(round * 20_000 + round * 7_919 % 15_000),
            };
            for _ in 0..1 + i64::from(round % 9 == 0) - i64::from(round % 7 == 0) {
                let _ = buffer.insert(arrival, number);
            }
            while let JitterOutput::Packet(_) | JitterOutput::Missing(_) | JitterOutput::Skip(_) =
                buffer.poll(at((round + 1) * 20_000))
            {
                given += 1;
            }
        });
        assert_eq!(calls, 0);
        assert!(given > 900 && buffer.stats().lost > 100, "{given}, {:?}", buffer.stats());
    }
}

use proptest::prelude::*;

use super::*;

/// SR with one block, SDES and BYE, laid out by hand after RFC 3550, 6.4.1, 6.5 and 6.6.
const COMPOUND: [u8; 100] = [
    0x81, 200, 0, 12, 0, 0, 0, 7, // one block, 13 words, from 7
    0xe9, 0x01, 0x02, 0x03, 0x80, 0x00, 0x00, 0x00, // NTP, half a second
    0, 0, 0x03, 0xe8, 0, 0, 0, 50, 0, 0, 0x1f, 0x40, // timestamp 1000, 50 packets, 8000 bytes
    0, 0, 0, 9, 64, 0xff, 0xff, 0xfe, // about 9: a quarter lost, -2 in all
    0, 1, 0, 5, 0, 0, 0, 12, 0x03, 0x04, 0x05, 0x06, 0, 1, 0x80, 0, // delay 1.5 s
    0x81, 202, 0, 4, 0, 0, 0, 7, 1, 4, b'a', b'@', b'b', b'c', 0, 0, 0, 0, 0,
    0, // two zeros too many
    0x81, 203, 0, 4, 0, 0, 0, 7, 7, b'g', b'o', b'o', b'd', b'b', b'y', b'e', 0, 0, 0, 0, 0xc0,
    204, 0, 1, 1, 2, 3, 4, // overwritten below
];

/// [`COMPOUND`] without its last eight bytes.
fn compound() -> Vec<u8> {
    COMPOUND[..92].to_vec()
}

#[test]
fn a_compound_by_hand() {
    let bytes = compound();
    let compound = CompoundPacket::parse(&bytes).unwrap();
    let mut parts = compound.packets();
    let Some(RtcpPacket::Report { ssrc: 7, sender: Some(sender), blocks }) = parts.next() else {
        panic!()
    };
    assert_eq!(
        sender,
        SenderInfo {
            ntp: NtpTime::from_bits(0xe901_0203_8000_0000),
            timestamp: 1_000,
            packets: 50,
            octets: 8_000,
        }
    );
    assert_eq!(sender.ntp.middle_bits(), 0x0203_8000);
    let block = ReportBlock {
        ssrc: 9,
        fraction_lost: 64,
        cumulative_lost: -2,
        highest: 0x1_0005,
        jitter: 12,
        last_report: 0x0304_0506,
        delay: 0x1_8000,
    };
    assert_eq!(blocks.iter().collect::<Vec<_>>(), [block]);
    assert_eq!(from_ntp_short(block.delay), Span::from_millis(1_500));
    let Some(RtcpPacket::SourceDescription(chunks)) = parts.next() else { panic!() };
    assert_eq!(chunks.cnames().collect::<Vec<_>>(), [(7, &b"a@bc"[..])]);
    let Some(RtcpPacket::Bye(sources)) = parts.next() else { panic!() };
    assert_eq!((sources.iter().collect::<Vec<_>>(), sources.reason()), (vec![7], &b"goodbye"[..]));
    assert!(parts.next().is_none());
}

#[test]
fn every_lie_has_its_kind() {
    let with = |at: usize, byte| {
        let mut bytes = compound();
        bytes[at] = byte;
        CompoundPacket::parse(&bytes).map(drop)
    };
    assert_eq!(CompoundPacket::parse(&[]).unwrap_err(), RtcpError::Short);
    assert_eq!(CompoundPacket::parse(&compound()[..54]).unwrap_err(), RtcpError::Short);
    assert_eq!(with(52, 0x41), Err(RtcpError::Version), "of any packet, not the first alone");
    assert_eq!(with(91, 1), Ok(()), "what is behind the reason");
    assert_eq!(with(75, 5), Err(RtcpError::Length));
    assert_eq!(with(0, 0xa1), Err(RtcpError::Padding), "not in the last packet");
    assert_eq!(with(72, 0xa1), Err(RtcpError::Padding), "of no bytes");
    assert_eq!(with(0, 0x82), Err(RtcpError::Count));
    assert_eq!(with(52, 0x82), Err(RtcpError::Count), "a chunk that is not there");
    assert_eq!(with(61, 20), Err(RtcpError::Count), "an item that does not end");
    assert_eq!(with(72, 0x85), Err(RtcpError::Count));
    assert_eq!(with(80, 12), Err(RtcpError::Count), "a reason that does not end");
}

#[test]
fn zeros_at_the_start_of_the_next_ssrc_are_no_padding() {
    let bytes = [
        0x82, 202, 0, 6, 0, 0, 0, 1, 1, 1, b'x', 0, // ends exactly at the word
        0, 0, 0, 2, 1, 2, b'y', b'z', 0, 0, 0, 0,
    ];
    // 6 + 1 words are 28 bytes; the item of the second chunk is followed by four zeros.
    let bytes = [&bytes[..], &[0, 0, 0, 0]].concat();
    let compound = CompoundPacket::parse(&bytes).unwrap();
    let Some(RtcpPacket::SourceDescription(chunks)) = compound.packets().next() else { panic!() };
    assert_eq!(chunks.cnames().collect::<Vec<_>>(), [(1, &b"x"[..]), (2, &b"yz"[..])]);
}

#[test]
fn times() {
    let noon = NtpTime::from_unix(Span::from_secs(0));
    assert_eq!(noon.to_bits(), 0x83aa_7e80_0000_0000, "1970 (RFC 868)");
    let later = noon.after(Span::from_millis(1_250));
    assert_eq!(later.to_bits(), 0x83aa_7e81_4000_0000);
    assert_eq!(later.after(Span::from_millis(-1_250)), noon);
    assert_eq!(to_ntp_short(Span::from_millis(1_500)), 0x1_8000);
    assert_eq!((to_ntp_short(Span::from_secs(-1)), to_ntp_short(Span::MAX)), (0, u32::MAX));
}

#[test]
fn what_does_not_fit_is_left_out_whole() {
    let mut out = [0; 52];
    let mut writer = RtcpWriter::new(&mut out);
    let mut blocks = std::iter::repeat_n(ReportBlock::default(), 3);
    assert!(writer.report(1, None, 20, blocks.by_ref()));
    assert_eq!(blocks.len(), 2, "one of three has room before 20 bytes are reserved");
    assert!(!writer.cname(1, "a name that is too long"));
    assert!(writer.cname(1, "short"));
    assert!(!writer.bye(1, ""));
    assert!(!writer.dlrr(1, std::iter::empty()), "no answer is no packet");
    let bytes = writer.finish();
    assert_eq!(bytes.len(), 32 + 16);
    assert_eq!(CompoundPacket::parse(bytes).unwrap().packets().count(), 2);
}

fn block() -> impl Strategy<Value = ReportBlock> {
    let words = any::<(u32, u32, u32, u32, u32)>();
    (words, any::<u8>(), -0x80_0000_i32..0x80_0000).prop_map(|(words, fraction_lost, lost)| {
        let (ssrc, highest, jitter, last_report, delay) = words;
        ReportBlock {
            ssrc,
            fraction_lost,
            cumulative_lost: lost,
            highest,
            jitter,
            last_report,
            delay,
        }
    })
}

proptest! {
    /// `rtcp-types` parses what this crate writes and finds the same values.
    #[test]
    fn an_independent_parser_reads_our_output(
        ssrc: u32,
        sender in proptest::option::of(any::<(u64, u32, u32, u32)>()),
        blocks in proptest::collection::vec(block(), 0..32),
        name in "[a-z@.]{0,300}",
        reason in "[a-z ]{0,40}",
    ) {
        let sender = sender.map(|(ntp, timestamp, packets, octets)| {
            SenderInfo { ntp: NtpTime::from_bits(ntp), timestamp, packets, octets }
        });
        let mut out = [0; 1_500];
        let mut writer = RtcpWriter::new(&mut out);
        prop_assert!(writer.report(ssrc, sender, 0, blocks.iter().copied()));
        prop_assert!(writer.cname(ssrc, &name));
        prop_assert!(writer.reference_time(ssrc, NtpTime::from_bits(5)));
        let delay = DlrrBlock { ssrc: 3, last_report: 4, delay: 5 };
        prop_assert!(writer.dlrr(ssrc, [delay, delay].into_iter()));
        prop_assert!(writer.bye(ssrc, &reason));
        let bytes = writer.finish();
        let theirs = rtcp_types::Compound::parse(bytes).unwrap();
        let parts: Vec<_> = theirs.map(Result::unwrap).collect();
        let check = |their: rtcp_types::ReportBlock<'_>, ours: &ReportBlock| {
            assert_eq!((their.ssrc(), their.fraction_lost()), (ours.ssrc, ours.fraction_lost));
            assert_eq!(their.cumulative_lost() & 0xff_ffff, ours.cumulative_lost.cast_unsigned() & 0xff_ffff);
            assert_eq!(their.extended_sequence_number(), ours.highest);
            assert_eq!((their.interarrival_jitter(), their.delay_since_last_sender_report_timestamp()), (ours.jitter, ours.delay));
            assert_eq!(their.last_sender_report_timestamp(), ours.last_report);
        };
        match (&parts[0], sender) {
            (rtcp_types::Packet::Sr(their), Some(sender)) => {
                prop_assert_eq!((their.ssrc(), their.ntp_timestamp()), (ssrc, sender.ntp.to_bits()));
                prop_assert_eq!((their.rtp_timestamp(), their.packet_count()), (sender.timestamp, sender.packets));
                prop_assert_eq!(their.octet_count(), sender.octets);
                prop_assert_eq!(their.report_blocks().count(), blocks.len());
                their.report_blocks().zip(&blocks).for_each(|(their, ours)| check(their, ours));
            }
            (rtcp_types::Packet::Rr(their), None) => {
                prop_assert_eq!(their.ssrc(), ssrc);
                prop_assert_eq!(their.report_blocks().count(), blocks.len());
                their.report_blocks().zip(&blocks).for_each(|(their, ours)| check(their, ours));
            }
            other => prop_assert!(false, "{:?}", other),
        }
        let rtcp_types::Packet::Sdes(sdes) = &parts[1] else { panic!() };
        let chunk = sdes.chunks().next().unwrap();
        prop_assert_eq!(chunk.ssrc(), ssrc);
        let text = chunk.items().next().unwrap().value().to_vec();
        prop_assert_eq!(&text[..], &name.as_bytes()[..name.len().min(MAX_TEXT)]);
        prop_assert!(matches!(&parts[2..4], [rtcp_types::Packet::Xr(_), rtcp_types::Packet::Xr(_)]));
        let rtcp_types::Packet::Bye(bye) = &parts[4] else { panic!() };
        prop_assert_eq!(bye.ssrcs().collect::<Vec<_>>(), [ssrc]);
        prop_assert_eq!(bye.reason().unwrap_or_default(), reason.as_bytes());

        let ours: Vec<_> = CompoundPacket::parse(bytes).unwrap().packets().collect();
        let RtcpPacket::Extended { blocks, .. } = ours[2] else { panic!() };
        prop_assert_eq!(blocks.iter().collect::<Vec<_>>(), [ExtendedBlock::ReferenceTime(NtpTime::from_bits(5))]);
        let RtcpPacket::Extended { blocks, .. } = ours[3] else { panic!() };
        prop_assert_eq!(blocks.iter().collect::<Vec<_>>(), [ExtendedBlock::Dlrr(delay); 2]);
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 200_u8..208) {
        for (at, byte) in [(0, 0x81), (1, kind), (2, 0)] {
            bytes.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        if let Ok(compound) = CompoundPacket::parse(&bytes) {
            for part in compound.packets() {
                match part {
                    RtcpPacket::Report { blocks, .. } => _ = blocks.iter().count(),
                    RtcpPacket::SourceDescription(chunks) => _ = chunks.cnames().count(),
                    RtcpPacket::Bye(sources) => _ = sources.iter().count(),
                    RtcpPacket::Extended { blocks, .. } => _ = blocks.iter().count(),
                    RtcpPacket::Other(_) => {}
                }
            }
        }
    }
}

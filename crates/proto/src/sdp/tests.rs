use super::*;
use crate::rtp::RtpCodec;

/// A description as AES67 devices announce it, with redundant paths (AES67-2018, annex; ST 2110-30;
/// RFC 7104).
const AES67: &str = "v=0\r\n\
o=- 1311738121 1311738123 IN IP4 192.0.2.10\r\n\
s=Stage left outputs 1-2\r\n\
i=2 channels: L, R\r\n\
t=0 0\r\n\
a=group:DUP primary secondary\r\n\
a=recvonly\r\n\
a=ts-refclk:ptp=IEEE1588-2008:39-A7-94-FF-FE-07-CB-D0:0\r\n\
m=audio 5004 RTP/AVP 96\r\n\
c=IN IP4 239.69.1.2/32\r\n\
a=source-filter: incl IN IP4 239.69.1.2 192.0.2.10\r\n\
a=rtpmap:96 L24/48000/2\r\n\
a=ptime:1\r\n\
a=framecount:48\r\n\
a=mediaclk:direct=963214424\r\n\
a=mid:primary\r\n\
m=audio 5004 RTP/AVP 97\r\n\
c=IN IP4 239.70.1.2/15\r\n\
a=rtpmap:97 L24/48000/2\r\n\
a=ptime:0.125\r\n\
a=ts-refclk:localmac=7C-E9-D3-1B-9A-AF\r\n\
a=mediaclk:direct=0 rate=1000/1001\r\n\
a=mid:secondary\r\n";

#[test]
fn an_aes67_stream_with_two_ways() {
    let session = SessionDescription::parse(AES67.as_bytes()).unwrap();
    assert_eq!(session.name, "Stage left outputs 1-2");
    assert_eq!(session.duplicates, [["primary", "secondary"]]);
    assert_eq!((session.origin.id.as_str(), session.origin.version), ("1311738121", 1_311_738_123));
    let [first, second] = &session.media[..] else { panic!() };
    assert_eq!((first.port, first.connection.to_string()), (5_004, "239.69.1.2/32".into()));
    let l24 = Encoding { codec: RtpCodec::L24, clock_rate: 48_000, channels: 2 };
    assert_eq!((first.formats[0].payload_type, first.formats[0].encoding), (96, l24));
    assert_eq!((first.packet_time, first.frame_count), (Some(Span::from_millis(1)), Some(48)));
    assert_eq!(first.sources, ["192.0.2.10".parse::<IpAddr>().unwrap()]);
    assert_eq!(first.direction, Direction::ReceiveOnly);
    let ptp = ReferenceClock::Ptp {
        version: "IEEE1588-2008".into(),
        grandmaster: Some([0x39, 0xa7, 0x94, 0xff, 0xfe, 0x07, 0xcb, 0xd0]),
        domain: Some(0),
    };
    assert_eq!(first.reference_clock, Some(ptp));
    let direct = MediaClock::Direct { offset: 963_214_424, rate: None };
    assert_eq!(first.media_clock, Some(direct));
    assert_eq!(second.packet_time, Some(Span::from_micros(125)));
    assert!(second.sources.is_empty() && second.direction == Direction::ReceiveOnly);
    let mac = ReferenceClock::LocalMac([0x7c, 0xe9, 0xd3, 0x1b, 0x9a, 0xaf]);
    assert_eq!(second.reference_clock, Some(mac));
    assert_eq!(SessionDescription::parse(session.to_string().as_bytes()), Ok(session));
}

/// Deviations from the standards that devices write: RAVENNA attributes, a domain in its old
/// notation, a start time, channel names, no TTL, spaces.
#[test]
fn what_devices_write_besides() {
    let text = "v=0\r\no=- 8 0 IN IP4 192.0.2.9\r\ns=ALSA (on console_9) \r\nt=0 0\r\n\
                a=clock-domain:PTPv2 0\r\nm=audio 5004 RTP/AVP 98 \r\n\
                i=2 channels: Left, Right\r\nc=IN IP4 239.1.0.9\r\na=rtpmap:98 L16/48000/8\r\n\
                a=sync-time:0\r\na=framecount:6-48\r\na=ptime: 0.250\r\n\
                a=ts-refclk:ptp=IEEE1588-2008:00-1D-C1-FF-FE-12-00-A4:domain-nmbr=3\r\n\
                a=ts-refclk:localmac=00-1D-C1-12-00-A4\r\na=mediaclk:direct=0\r\n\
                a=source-filter:incl IN IP4 239.1.0.9 192.0.2.9\r\na=recvonly\r\n";
    let session = SessionDescription::parse(text.as_bytes()).unwrap();
    let media = &session.media[0];
    assert_eq!((session.name.as_str(), media.information.as_str()), {
        ("ALSA (on console_9)", "2 channels: Left, Right")
    });
    assert_eq!((media.frame_count, media.packet_time), (None, Some(Span::from_micros(250))));
    assert_eq!((media.connection.ttl, media.sources.len()), (None, 1));
    let Some(ReferenceClock::Ptp { domain: Some(3), .. }) = media.reference_clock else { panic!() };
    assert_eq!(media.formats[0].encoding.channels, 8);
}

/// An offer of a telephone: static and dynamic types, Opus with parameters, RTCP on the RTP port.
#[test]
fn a_telephones_offer() {
    let text = "v=0\no=alice 2890844526 2890844526 IN IP6 2001:db8::1\ns=-\nc=IN IP6 2001:db8::1\n\
                t=0 0\nm=audio 49170 RTP/AVP 0 8 9 111 101\na=rtpmap:111 opus/48000/2\n\
                a=fmtp:111 useinbandfec=1;stereo=1\na=rtpmap:101 telephone-event/8000\n\
                a=fmtp:101 0-16\na=rtcp-mux\na=rtcp:49170 IN IP6 2001:db8::1\na=maxptime:60\n\
                a=ssrc-group:DUP 1 2\nm=video 51372 RTP/AVP 99\na=rtpmap:99 nonsense\n";
    let session = SessionDescription::parse(text.as_bytes()).unwrap();
    let [media] = &session.media[..] else { panic!() };
    let shown: Vec<_> = media.formats.iter().map(|format| format.encoding.to_string()).collect();
    let expected = ["PCMU/8000", "PCMA/8000", "G722/8000", "opus/48000/2", "telephone-event/8000"];
    assert_eq!(shown, expected);
    assert_eq!(media.formats[3].parameters, "useinbandfec=1;stereo=1");
    assert!(media.rtcp_mux && media.rtcp.is_some() && media.duplicates == [[1, 2]]);
    assert_eq!((media.direction, session.skipped), (Direction::Both, 1));
    let again = SessionDescription::parse(session.to_string().as_bytes()).unwrap();
    assert_eq!(again, SessionDescription { skipped: 0, ..session });
}

/// Another library parses the written descriptions and finds the same values.
#[test]
fn an_independent_parser_reads_our_output() {
    let mut session = SessionDescription::parse(AES67.as_bytes()).unwrap();
    session.media[0].formats[0].parameters = "channel-order=SMPTE2110.(ST)".into();
    session.media[0].rtcp = Some((5_005, None));
    let theirs = sdp_types::Session::parse(session.to_string().as_bytes()).unwrap();
    assert_eq!(theirs.session_name.as_str(), session.name);
    assert_eq!(theirs.medias.len(), 2);
    for (their, our) in theirs.medias.iter().zip(&session.media) {
        assert_eq!((their.media.as_str(), their.port), ("audio", our.port));
        let connection = their.connections.first().unwrap();
        assert_eq!(connection.connection_address, our.connection.to_string());
        let rtpmap = their.get_first_attribute_typed::<sdp_types::RtpMap>().unwrap().unwrap();
        assert_eq!(rtpmap.clock_rate, our.formats[0].encoding.clock_rate);
        assert_eq!(rtpmap.encoding_name, "L24");
        let clock = their.get_first_attribute_value("ts-refclk").unwrap().unwrap();
        assert_eq!(clock, our.reference_clock.as_ref().unwrap().to_string());
        assert!(their.has_attribute("recvonly"));
    }
}

#[test]
fn an_error_names_the_line_and_the_expected_syntax() {
    let with = |line: &str, instead: &str| {
        let text = AES67.replace(line, instead);
        SessionDescription::parse(text.as_bytes()).map(drop).unwrap_err()
    };
    let fault = |line, instead| {
        let Error { line, kind: fault } = with(line, instead);
        (line, fault)
    };
    assert_eq!(fault("v=0", "v=1"), (1, ErrorKind::Version));
    assert_eq!(fault("o=- 1311738121", "o=- x"), (2, ErrorKind::Origin));
    assert_eq!(
        fault("c=IN IP4 239.69.1.2/32", "c=IN IP4 studio.example"),
        (10, ErrorKind::Connection)
    );
    assert_eq!(fault("c=IN IP4 239.70.1.2/15\r\n", ""), (17, ErrorKind::NoConnection));
    assert_eq!(fault("m=audio 5004 RTP/AVP 97", "m=audio x RTP/AVP 97"), (17, ErrorKind::Media));
    assert_eq!(
        fault("m=audio 5004 RTP/AVP 97", "m=audio 5004 RTP/AVP 128"),
        (17, ErrorKind::Media)
    );
    assert_eq!(fault("5004 RTP/AVP 96", "5004 RTP/SAVPF 96"), (9, ErrorKind::Encrypted));
    assert_eq!(fault("a=rtpmap:96 L24/48000/2", "a=rtpmap:96 L24"), (12, ErrorKind::Rtpmap));
    assert_eq!(fault("96 L24/48000/2", "96 MP4A-LATM/48000/2"), (9, ErrorKind::NoEncoding));
    assert_eq!(fault("a=rtpmap:97 L24/48000/2\r\n", ""), (17, ErrorKind::NoEncoding));
    assert_eq!(fault("a=ptime:1\r\n", "a=ptime:-1\r\n"), (13, ErrorKind::PacketTime));
    assert_eq!(fault("a=ptime:1\r\n", "a=ptime:1000000\r\n"), (13, ErrorKind::PacketTime));
    assert_eq!(fault("CB-D0:0", "CB:0"), (8, ErrorKind::ReferenceClock));
    assert_eq!(fault("direct=963214424", "direct=soon"), (15, ErrorKind::MediaClock));
    assert_eq!(
        fault("a=framecount:48", "a=source-filter: incl IN IP4"),
        (14, ErrorKind::SourceFilter)
    );
    assert_eq!(fault("a=framecount:48", "a=rtcp:x"), (14, ErrorKind::Rtcp));
    assert_eq!(fault("a=framecount:48", "a=ssrc-group:DUP one"), (14, ErrorKind::SsrcGroup));
    assert_eq!(fault("a=framecount:48", "framecount"), (14, ErrorKind::InvalidLine));
    assert_eq!(fault("m=audio", "m=video"), (24, ErrorKind::NoAudio));
    let text = with("a=ptime:1\r\n", "a=ptime:soon\r\n").to_string();
    assert_eq!(text, "line 13: expected the packet time in milliseconds, as in `a=ptime:20`");
    let cut = SessionDescription::parse(b"v=0\no=\xff").unwrap_err();
    assert_eq!((cut.line, cut.kind), (2, ErrorKind::NotUtf8));
    assert_eq!(SessionDescription::parse(b"").unwrap_err().kind, ErrorKind::Version);
    assert_eq!(
        SessionDescription::parse(&vec![b' '; MAX_BYTES + 1]).unwrap_err().kind,
        ErrorKind::TooLarge
    );
    assert_eq!(SessionDescription::parse(&vec![b'\n'; MAX_LINES]).unwrap_err().line, MAX_LINES + 1);
    let many = "m=audio 5004 RTP/AVP 0\r\n".repeat(MAX_MEDIA);
    assert_eq!(fault("m=audio 5004 RTP/AVP 97", &(many + "x")).1, ErrorKind::TooLarge);
}

#[test]
fn nobody_writes_a_line_through_a_name() {
    let mut session = SessionDescription::parse(AES67.as_bytes()).unwrap();
    session.name = "a\r\nm=audio 1 RTP/AVP 0".into();
    session.origin.user = "me\nyou and all".into();
    session.media[0].id = " \n".into();
    let again = SessionDescription::parse(session.to_string().as_bytes()).unwrap();
    assert_eq!((again.media.len(), again.name.as_str()), (2, "am=audio 1 RTP/AVP 0"));
    assert_eq!(again.origin.user, "meyouandall");
    assert_eq!(again.media[0].id, "-");
}

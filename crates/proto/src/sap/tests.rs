use aulos_core::{Instant, Span};
use proptest::prelude::*;

use super::*;

fn at(secs: i64) -> Instant {
    Instant::ZERO + Span::from_secs(secs)
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn sdp(id: u32, version: u32) -> String {
    format!(
        "v=0\r\no=- {id} {version} IN IP4 192.0.2.1\r\ns=Session {id}\r\nc=IN IP4 239.1.2.3/32\r\n\
         t=0 0\r\nm=audio 5004 RTP/AVP 96\r\na=rtpmap:96 L24/48000/2\r\n"
    )
}

fn packet(deletion: bool, sdp: &str) -> Vec<u8> {
    let payload = sdp.as_bytes();
    let mut out = vec![0; 2_000];
    let packet = SapPacket { deletion, hash: description_hash(payload), origin: ip(1), payload };
    let length = packet.write(&mut out).unwrap();
    out.truncate(length);
    out
}

/// The events that a listener reports for a datagram.
fn receive(
    listener: &mut Listener,
    now: Instant,
    from: u8,
    datagram: &[u8],
) -> (String, Result<(), RejectReason>) {
    let mut told = String::new();
    let done = listener.handle_input(now, ip(from), datagram, |news| {
        told += &match news {
            SapEvent::Announced(session) => {
                format!("+{}.{}", session.origin.id, session.origin.version)
            }
            SapEvent::Changed(session) => {
                format!("~{}.{}", session.origin.id, session.origin.version)
            }
            SapEvent::Removed(session) => {
                format!("-{}.{}", session.origin.id, session.origin.version)
            }
        };
    });
    (told, done)
}

/// The header of RFC 2974, 6, laid out by hand: version 1, one word of authentication, IPv4 and
/// IPv6.
#[test]
fn a_header_by_hand() {
    let bytes = [&[0x20, 1, 0xab, 0xcd, 192, 0, 2, 1, 9, 9, 9, 9][..], b"application/sdp\0v=0\r\n"]
        .concat();
    let expected = SapPacket { deletion: false, hash: 0xabcd, origin: ip(1), payload: b"v=0\r\n" };
    assert_eq!(SapPacket::parse(&bytes), Ok(expected));
    let without = [&[0x24, 0, 0, 1, 192, 0, 2, 1][..], b"o=- 1 1 IN IP4 192.0.2.1\r\n"].concat();
    assert!(SapPacket::parse(&without).unwrap().deletion);
    let mut six = [0; 23];
    six[0] = 0x30;
    six[19] = 7;
    six[20..].copy_from_slice(b"v=0");
    assert_eq!(SapPacket::parse(&six).unwrap().origin, "::7".parse::<IpAddr>().unwrap());
    let kind = |at: usize, byte| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        SapPacket::parse(&bytes).unwrap_err()
    };
    assert_eq!(kind(0, 0x00), SapError::Version);
    assert_eq!(
        (kind(0, 0x22), kind(0, 0x21)),
        (SapError::EncryptedOrCompressed, SapError::EncryptedOrCompressed)
    );
    assert_eq!((kind(1, 99), kind(13, b'X')), (SapError::Short, SapError::NotSdp));
    assert!((0..8).all(|length| SapPacket::parse(&bytes[..length]) == Err(SapError::Short)));
}

#[test]
fn sessions_are_added_changed_and_deleted() {
    let mut listener = Listener::new(ListenerConfig::default());
    let first = packet(false, &sdp(1, 1));
    assert_eq!(receive(&mut listener, at(0), 1, &first), ("+1.1".into(), Ok(())));
    assert_eq!(receive(&mut listener, at(30), 1, &first), (String::new(), Ok(())));
    assert_eq!(
        receive(&mut listener, at(60), 1, &packet(false, &sdp(1, 2))),
        ("~1.2".into(), Ok(()))
    );
    assert_eq!(
        receive(&mut listener, at(60), 1, &packet(true, &sdp(1, 1))),
        (String::new(), Ok(()))
    );
    assert_eq!(listener.sessions().len(), 1, "the old version's end is not the new one's");
    assert_eq!(
        receive(&mut listener, at(61), 1, &packet(true, &sdp(1, 2))),
        ("-1.2".into(), Ok(()))
    );
    assert_eq!((listener.sessions().len(), listener.poll_timeout()), (0, None));
}

#[test]
fn only_the_origin_can_change_or_delete_an_announcement() {
    let mut listener = Listener::new(ListenerConfig::default());
    receive(&mut listener, at(0), 1, &packet(false, &sdp(1, 1))).1.unwrap();
    for forged in [packet(true, &sdp(1, 1)), packet(false, &sdp(1, 1)), packet(false, &sdp(1, 9))] {
        assert_eq!(
            receive(&mut listener, at(1), 66, &forged),
            (String::new(), Err(RejectReason::NotOwner))
        );
    }
    assert_eq!((listener.sessions().len(), listener.stats().not_owner), (1, 3));
}

/// RFC 2974, 4: ten intervals or an hour, whichever is longer.
#[test]
fn a_session_without_announcements_times_out() {
    let mut listener = Listener::new(ListenerConfig::default());
    let (often, seldom) = (packet(false, &sdp(1, 1)), packet(false, &sdp(2, 1)));
    for now in [0, 600] {
        receive(&mut listener, at(now), 1, &seldom).1.unwrap();
    }
    for now in (0..=600).step_by(30) {
        receive(&mut listener, at(now), 1, &often).1.unwrap();
    }
    let mut gone = Vec::new();
    while let Some(now) = listener.poll_timeout() {
        listener.handle_timeout(now, |news| {
            if let SapEvent::Removed(session) = news {
                gone.push((now, session.origin.id.clone()));
            }
        });
    }
    assert_eq!(gone, [(at(600 + 3_600), "1".into()), (at(600 + 6_000), "2".into())]);
    assert_eq!(listener.stats().expired, 2);
}

#[test]
fn a_flood_has_its_limits() {
    let mut listener = Listener::new(ListenerConfig { capacity: 200, ..ListenerConfig::default() });
    for id in 0..1_000 {
        drop(receive(&mut listener, at(0), 66, &packet(false, &sdp(id, 1))));
    }
    assert_eq!(listener.sessions().len(), MAX_PER_SENDER);
    assert_eq!(receive(&mut listener, at(1), 1, &packet(false, &sdp(5_000, 1))).1, Ok(()));
    for id in 2_000..3_000 {
        drop(receive(&mut listener, at(0), 67, &packet(false, &sdp(id, 1))));
    }
    assert_eq!(listener.sessions().len(), 200);
    assert_eq!(
        receive(&mut listener, at(1), 2, &packet(false, &sdp(6_000, 1))).1,
        Err(RejectReason::TableFull)
    );
    let broken = packet(false, "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\n");
    let refusal = receive(&mut listener, at(1), 3, &broken).1.unwrap_err().to_string();
    assert!(refusal.contains("line 3"), "{refusal}");
}

#[test]
fn an_announcer_sends_at_once_periodically_and_a_deletion() {
    let mut announcer = SapAnnouncer::new(AnnouncerConfig::default(), ip(1), at(0));
    let mut listener = Listener::new(ListenerConfig::default());
    let (mut out, mut times) = ([0; 2_000], Vec::new());
    announcer.set(at(0), &sdp(1, 1));
    let mut now = at(0);
    while now < at(3_000) {
        announcer.handle_timeout(now);
        while let Some(length) = announcer.poll_output(&mut out) {
            times.push(now);
            receive(&mut listener, now, 1, &out[..length]).1.unwrap();
        }
        now = announcer.poll_timeout().unwrap();
    }
    let apart: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((80..=120).contains(&apart.len()), "{}", apart.len());
    assert!(apart.iter().all(|apart| (20..=40).contains(&(apart.as_millis() / 1_000))));
    announcer.set(now, &sdp(1, 2));
    let told = [(); 2].map(|()| {
        let length = announcer.poll_output(&mut out).unwrap();
        receive(&mut listener, now, 1, &out[..length]).0
    });
    assert_eq!(told, ["-1.1", "+1.2"]);
    announcer.withdraw();
    let length = announcer.poll_output(&mut out).unwrap();
    assert_eq!(receive(&mut listener, now, 1, &out[..length]).0, "-1.2");
    assert_eq!((announcer.poll_output(&mut out), announcer.poll_timeout()), (None, None));
}

/// A thousand sessions of 170 bytes share 4 kbit/s: each is announced about every 340 s.
#[test]
fn the_interval_grows_with_the_number_of_announcers() {
    let mut announcer = SapAnnouncer::new(AnnouncerConfig::default(), ip(1), at(0));
    announcer.set_other_announcements(999);
    let text = sdp(1, 1);
    announcer.set(at(0), &text);
    let wait = announcer.poll_timeout().unwrap() - at(0);
    let seconds = text.len() as f64 * 8.0 * 1_000.0 / 4_000.0;
    assert!((seconds * 2.0 / 3.0..=seconds * 4.0 / 3.0).contains(&wait.as_secs_f64()), "{wait}");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        bytes.first_mut().into_iter().for_each(|flags| *flags = *flags & 0x1c | 0x20);
        let mut listener = Listener::new(ListenerConfig::default());
        _ = listener.handle_input(at(0), ip(1), &bytes, |_| ());
        if let Ok(packet) = SapPacket::parse(&bytes) {
            let mut out = [0; 200];
            let length = packet.write(&mut out).unwrap();
            prop_assert_eq!(SapPacket::parse(&out[..length]), Ok(packet));
        }
    }
}

//! Errors are counted, and block no other stream.

use super::*;

#[test]
fn empty_and_overlong_datagrams_are_counted_and_others_received() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let (own, to) = socket();
    let stream = context.add(Some(own), Probe::default()).unwrap();
    let (source, _) = socket();
    for number in 0..10u8 {
        source.send_to(&[], to).unwrap();
        source.send_to(&[number; 9_000], to).unwrap();
        source.send_to(&[number; 12_000], to).unwrap();
        source.send_to(&[number; 1], to).unwrap();
    }
    wait_for_packets(&context, 20);
    let mut stats = context.stats()[0];
    wait_for("the figures", || {
        stats = context.stats()[0];
        stats.packets == 20
    });
    assert_eq!((stats.empty, stats.truncated, stats.bytes), (10, 10, 10 * 9_001));
    assert_eq!(context.stream_reports()[0].stats.truncated, 10);
    let seen = machine_of(&mut context, stream).seen;
    for (number, pair) in (0..).zip(seen.chunks(2)) {
        assert_eq!(pair[0].bytes, [number; 9_000]);
        assert_eq!(pair[1].bytes, [number; 1]);
    }
    context.stop();
}

#[test]
fn what_is_no_rtp_is_of_no_stream_on_a_shared_port() {
    let mut context = UdpContext::<Probe>::start(&config(2)).unwrap();
    let port = aulos_io::udp::SharedPortConfig::new("127.0.0.1:0".parse().unwrap());
    let open = context
        .open(&port, |_| {
            |_: Instant, _, _: &aulos_session::datagram::Packet<'_>| Some(Probe::default())
        })
        .unwrap();
    let (source, _) = socket();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x80", b"\x80\x00\x00", &[0; 11], &[0x40; 172]]
    {
        source.send_to(bytes, open.address).unwrap();
    }
    source.send_to(&packet(1, 1), open.address).unwrap();
    wait_for("all are counted", || {
        let stats = context.stats();
        stats.iter().map(|thread| thread.keyless).sum::<u64>() == 5
            && stats.iter().map(|thread| thread.packets).sum::<u64>() == 1
    });
    assert_eq!(context.stop().len(), 1);
}

#[test]
fn a_full_socket_drops_and_counts_packets() {
    let mut config = config(1);
    config.wait = Span::from_millis(20);
    let mut context = UdpContext::start(&config).unwrap();
    let options = SocketOptions { receive_buffer: 1, ..SocketOptions::default() };
    let own = bind_socket("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let to = own.local_addr().unwrap();
    context.add(Some(own), Probe::default()).unwrap();
    let (source, _) = socket();
    (0..10_000).for_each(|number| {
        source.send_to(&packet(1, number), to).unwrap();
    });
    let mut sent = 10_000;
    let mut stats = context.stats()[0];
    // The kernel reports drops with the next packet.
    for _ in 0..60 {
        source.send_to(&packet(1, 0), to).unwrap();
        sent += 1;
        std::thread::sleep(Duration::from_millis(600));
        stats = context.stats()[0];
        if stats.packets + stats.lost_in_kernel == sent {
            break;
        }
    }
    assert_eq!(stats.packets + stats.lost_in_kernel, sent);
    assert!(stats.lost_in_kernel > 0 && stats.packets > 0, "{stats:?}");
    let [stream] = &context.stop()[..] else { panic!("one stream") };
    assert_eq!(stream.stats.lost_in_kernel, stats.lost_in_kernel);
}

#[test]
fn an_unreachable_destination_does_not_stall_others() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let (sink, good) = listener();
    // The port is closed.
    let (gone, refuses) = socket();
    drop(gone);
    let (own, to) = socket();
    // Only a connected socket gets the error.
    own.connect(refuses).unwrap();
    let stream = context.add(Some(own), Probe::default()).unwrap();
    let nowhere = "[ff02::1%9999]:5000".parse().unwrap();
    for number in 0..20 {
        let all = vec![
            (Route::to(refuses).from_own_socket(), packet(1, number)),
            (Route::to(nowhere), packet(1, number)),
            (Route::to(good), packet(1, number)),
            // Longer than a datagram can be.
            (Route::to(good), vec![0; 65_507]),
            (Route::to(refuses).from_own_socket(), packet(1, number)),
            (Route::to(good), packet(2, number)),
        ];
        assert!(context.send_command(stream, ProbeCommand::Send(all)).is_ok());
        let mut bytes = vec![0; 70_000];
        let mut next = || {
            let len = sink.recv(&mut bytes).unwrap();
            bytes[..len].to_vec()
        };
        assert_eq!(next(), packet(1, number));
        let mut second = next();
        if second.len() > 172 {
            second = next();
        }
        assert_eq!(second, packet(2, number));
    }
    let mut stats = context.stats()[0];
    wait_for("the figures", || {
        stats = context.stats()[0];
        stats.send_errors >= 20 && stats.receive_errors + stats.send_errors > 20
    });
    println!("{to}: {stats:?}");
    context.stop();
}

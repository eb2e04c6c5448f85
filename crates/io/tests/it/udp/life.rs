//! The life cycle of streams: start, timers, moves, end.

use std::time::Duration;

use super::*;

#[test]
fn timers_are_called_once_and_not_too_early() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let streams: Vec<StreamId> =
        (0..50).map(|_| context.add(None, Probe::default()).unwrap()).collect();
    let now = SystemClock::now();
    // The wheel spans 1.3 s; some of these timers are beyond that.
    for (number, stream) in (0..).zip(&streams) {
        let at = now + Span::from_millis(40 * number);
        assert!(
            context.send_command(*stream, ProbeCommand::Wake(at + Span::from_secs(3600))).is_ok()
        );
        assert!(context.send_command(*stream, ProbeCommand::Wake(at)).is_ok());
    }
    SystemClock::sleep_until(now + Span::from_millis(40 * 51));
    for stream in streams {
        let fired = machine_of(&mut context, stream).fired;
        assert!(matches!(&fired[..], [(at, then)] if then >= at), "{fired:?}");
    }
    context.stop();
}

#[test]
fn a_stream_that_moves_loses_nothing() {
    const PACKETS: u16 = 500;
    let mut context = UdpContext::start(&config(3)).unwrap();
    let (own, to) = socket();
    let (source, _) = socket();
    let stream = context.add(Some(own), Probe::default()).unwrap();
    for number in 0..PACKETS {
        source.send_to(&packet(7, number), to).unwrap();
        if number % 50 == 49 {
            assert!(context.move_to(stream, usize::from(number / 50) % 3));
        }
    }
    assert!(!context.move_to(stream, 3), "there is no such thread");
    wait_for_packets(&context, PACKETS.into());
    let [stream] = &context.stop()[..] else { panic!("one stream") };
    let numbers: Vec<u16> = stream.machine.seen.iter().map(|seen| sequence(&seen.bytes)).collect();
    assert_eq!(numbers, (0..PACKETS).collect::<Vec<_>>());
    assert_eq!(stream.stats.packets, u64::from(PACKETS));
}

#[test]
fn a_stream_may_have_two_sockets_and_moves_with_both() {
    let mut context = UdpContext::start(&config(2)).unwrap();
    let ((first, to_first), (second, to_second)) = (socket(), socket());
    let (source, _) = socket();
    let stream = context.add_redundant([first, second], Probe::default()).unwrap();
    for number in 0..100 {
        let to = if number % 3 == 0 { to_second } else { to_first };
        source.send_to(&packet(7, number), to).unwrap();
        if number == 50 {
            wait_for_packets(&context, 51);
            context.move_to(stream, 0);
            context.move_to(stream, 1);
        }
    }
    wait_for_packets(&context, 100);
    let [stream] = &context.stop()[..] else { panic!("one stream") };
    for seen in &stream.machine.seen {
        assert_eq!(seen.is_second, sequence(&seen.bytes).is_multiple_of(3));
    }
    // Both ports are free again.
    assert!(UdpSocket::bind(to_first).is_ok() && UdpSocket::bind(to_second).is_ok());
}

#[test]
fn streams_are_spread_over_the_threads_and_counted() {
    let mut context = UdpContext::start(&config(4)).unwrap();
    let streams: Vec<StreamId> =
        (0..400).map(|_| context.add(Some(socket().0), Probe::default()).unwrap()).collect();
    let count = |context: &mut UdpContext<Probe>| -> Vec<u64> {
        context.stats().iter().map(|thread| thread.streams).collect()
    };
    wait_for("all are there", || count(&mut context).iter().sum::<u64>() == 400);
    let counts = count(&mut context);
    assert!(counts.iter().all(|count| (90..=110).contains(count)), "{counts:?}");
    assert_eq!(context.stream_reports().len(), 400);
    streams.iter().for_each(|stream| context.remove(*stream));
    wait_for("all have gone", || {
        while context.poll_ended().is_some() {}
        count(&mut context).iter().sum::<u64>() == 0
    });
    // Their sockets are closed: only the threads' own remain.
    assert!(context.stats().iter().all(|thread| thread.sockets <= 2));
    assert!(context.stop().is_empty());
}

#[test]
fn a_machine_can_end_its_stream() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let stream = context.add(None, Probe::default()).unwrap();
    assert!(context.send_command(stream, ProbeCommand::End).is_ok());
    let mut cause = None;
    wait_for("its end", || {
        cause = context.poll_ended().map(|ended| (ended.id, ended.cause));
        cause.is_some()
    });
    assert_eq!(cause, Some((stream, StreamEndCause::Machine)));
    // Commands to a stream that has ended have no effect.
    assert!(
        context.send_command(stream, ProbeCommand::End).is_err() && !context.move_to(stream, 0)
    );
    context.remove(stream);
    assert!(context.stop().is_empty());
}

#[test]
fn a_stop_sends_pending_datagrams() {
    const STREAMS: usize = 20;
    let mut context = UdpContext::start(&config(2)).unwrap();
    let (sink, to) = listener();
    for _ in 0..STREAMS {
        let route = Some(Route::to(to));
        context.add(None, Probe { route, last_words: 40, ..Probe::default() }).unwrap();
    }
    assert_eq!(context.stop().len(), STREAMS);
    // Loopback delivers without delay, so everything has arrived.
    sink.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut bytes = [0; 100];
    let count = std::iter::from_fn(|| sink.recv(&mut bytes).ok()).count();
    assert_eq!(count, STREAMS * 40);
}

#[test]
fn paced_datagrams_are_sent_in_order_and_not_early() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    // A stream of another context receives, because it knows the arrival times.
    let (own, to) = socket();
    let seer = context.add(Some(own), Probe::default()).unwrap();
    let sender = context.add(None, Probe::default()).unwrap();
    let start = SystemClock::now() + Span::from_millis(10);
    let due = |number: u16| start + Span::from_millis(i64::from(number));
    let all =
        (0..20).map(|number| (Route::to(to).not_before(due(number)), packet(1, number))).collect();
    assert!(context.send_command(sender, ProbeCommand::Send(all)).is_ok());
    wait_for_packets(&context, 20);
    let seen = machine_of(&mut context, seer).seen;
    for (number, seen) in (0..).zip(&seen) {
        assert_eq!(sequence(&seen.bytes), number);
        assert!(seen.received + Span::from_micros(100) >= due(number), "{number}");
    }
    context.stop();
}

#[test]
fn three_thousand_silent_streams_cause_no_wakeups() {
    let mut context = UdpContext::start(&config(2)).unwrap();
    let (_source, _) = socket();
    let mut opened = 0;
    for _ in 0..3_000 {
        // As many as the process limit allows.
        let Ok(socket) = bind_socket("127.0.0.1:0".parse().unwrap(), &SocketOptions::default())
        else {
            break;
        };
        context.add(Some(socket), Probe::default()).unwrap();
        opened += 1;
    }
    wait_for("all are there", || {
        context.stats().iter().map(|thread| thread.streams).sum::<u64>() == opened
    });
    let total = |context: &mut UdpContext<Probe>| {
        context
            .stats()
            .iter()
            .fold((0, Span::ZERO), |(wakes, cpu), thread| (wakes + thread.wakes, cpu + thread.cpu))
    };
    std::thread::sleep(Duration::from_millis(500));
    let before = total(&mut context);
    std::thread::sleep(Duration::from_secs(2));
    let after = total(&mut context);
    let (wakes, cpu) = (after.0 - before.0, after.1 - before.1);
    println!("{opened} silent streams, 2 s on 2 threads: {wakes} wakes, {cpu} of processor");
    // 800 would be a wake-up per tick; these are for the statistics.
    assert!(wakes <= 60, "{wakes} wakes");
    assert_eq!(context.stop().len() as u64, opened);
}

#[test]
fn reports_to_the_shared_socket_are_dispatched_to_their_stream() {
    let mut context = UdpContext::start(&config(2)).unwrap();
    let (peer, to) = listener();
    let streams: Vec<StreamId> = (1..=10)
        .map(|ssrc| {
            let stream = context.add(None, Probe::default()).unwrap();
            assert!(context.send_command(stream, ProbeCommand::Claim(StreamKey::Ssrc(99))).is_ok());
            assert!(
                context.send_command(stream, ProbeCommand::Claim(StreamKey::Ssrc(ssrc))).is_ok()
            );
            let say = vec![(Route::to(to), packet(ssrc, 0))];
            assert!(context.send_command(stream, ProbeCommand::Send(say)).is_ok());
            stream
        })
        .collect();
    for _ in &streams {
        let mut bytes = [0; 2_000];
        let (_, from) = peer.recv_from(&mut bytes).unwrap();
        // A receiver report: its sender is 77, and it contains a report block.
        let mut report = vec![0x81, 201, 0, 7, 0, 0, 0, 77];
        report.extend(&bytes[8..12]);
        report.resize(32, 0);
        peer.send_to(&report, from).unwrap();
        // Without a report block, and no report at all.
        peer.send_to(&[0x80, 201, 0, 1, 0, 0, 0, 78], from).unwrap();
        peer.send_to(&packet(1, 1), from).unwrap();
    }
    wait_for_packets(&context, streams.len());
    wait_for("the others are counted", || {
        context.stats().iter().map(|thread| thread.keyless).sum::<u64>() == 20
    });
    for (ssrc, stream) in (1u8..).zip(streams) {
        let [seen] = &machine_of(&mut context, stream).seen[..] else { panic!("one report") };
        assert!(seen.is_answer && seen.from == to && seen.bytes[8..12] == [0, 0, 0, ssrc]);
    }
    context.stop();
}

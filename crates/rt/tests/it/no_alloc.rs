//! No function with a `# Real-time` line allocates or frees: an allocator counts the calls of the
//! thread. The first tests show that an allocation is detected.

use std::hint::black_box;

use aulos_blackbox::alloc::calls_during;
use aulos_rt::channel::{bounded, unbounded};
use aulos_rt::notify::{Dispatcher, PollStrategy};
use aulos_rt::pipe::{OverflowPolicy, PipeConfig, SampleEncoding, UnderrunPolicy, pipe};
use aulos_rt::ring::ring;
use aulos_rt::writer_ring::{ConsumerWaker, writer_ring};
use aulos_rt::{Pool, drop_queue, latest, rt_log};

#[test]
fn the_watch_sees_an_allocation_and_its_end() {
    assert_eq!(calls_during(|| drop(black_box(Box::new(1)))), 2);
}

/// With one allocation inserted into each path, the count must detect it.
#[test]
fn the_watch_sees_an_allocation_in_every_path() {
    let (mut writer, mut reader) = pipe(&PipeConfig::bytes(100)).unwrap();
    let calls = calls_during(|| {
        black_box(writer.write(&black_box(vec![1; 10]))).ok();
        black_box(reader.read(&mut [0; 10]).bytes);
    });
    assert_eq!(calls, 2, "pipe");

    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let (mut values, _there) = ring(1);
    let target = dispatcher.on_each(Box::new(|| ())).unwrap();
    let mut notifier = dispatcher.notifier(None).unwrap();
    let calls = calls_during(|| {
        notifier.notify(target);
        notifier.send(target, &mut values, black_box(Box::new(1))).unwrap();
    });
    assert_eq!(calls, 1, "notifier");

    let (mut publisher, _reader) = latest(vec![0]);
    assert_eq!(calls_during(|| publisher.publish(black_box(vec![1]))), 2, "latest");

    let (mut log, _reader) = rt_log(1);
    let calls = calls_during(|| log.push(1, black_box(format!("{}", 1)).len()));
    assert_eq!(calls, 2, "log");
}

#[test]
fn items_through_a_ring() {
    let (mut producer, mut consumer) = ring::<u32>(100);
    let mut out = [0; 33];
    let calls = calls_during(|| {
        for i in 0..10_000 {
            let _full = producer.push(i);
            producer.write(&[i; 17]);
            let (one, _) = producer.reserve(9);
            let n = one.len();
            producer.commit(n);
            black_box((producer.free(), producer.is_abandoned(), consumer.peek()));
            black_box((consumer.pop(), consumer.read(&mut out), consumer.as_slices()));
            black_box((consumer.advance(2), consumer.len(), consumer.is_abandoned()));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn objects_of_a_pool() {
    let pool = Pool::new(3, || vec![0_u8; 1500]);
    let calls = calls_during(|| {
        for _ in 0..10_000 {
            let mut one = pool.take();
            if let Some(packet) = &mut one {
                packet.clear();
                packet.extend_from_slice(b"sound");
            }
            let two = pool.take().map(aulos_rt::Pooled::freeze);
            black_box((two.clone(), pool.clone(), pool.available(), &one));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn the_latest_value() {
    let (mut publisher, mut reader) = latest([0_u64; 8]);
    let calls = calls_during(|| {
        for i in 0..10_000 {
            publisher.publish([i; 8]);
            publisher.update(|value| value[0] = i);
            black_box((reader.read(), i));
            black_box(reader.read_new());
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn frames_through_a_pipe() {
    let underrun = UnderrunPolicy::ALL.into_iter().cycle();
    for (overflow, underrun) in OverflowPolicy::ALL.into_iter().zip(underrun) {
        for mirrored in [true, false] {
            let audio = PipeConfig::audio(48_000, 2, SampleEncoding::S16Le, 1000);
            let config = PipeConfig { overflow, underrun, mirrored, ..audio };
            let (mut writer, mut reader) = pipe(&config).unwrap();
            let monitor = reader.monitor();
            let (data, mut out) = ([3; 1500], [0; 1000]);
            let calls = calls_during(|| {
                for i in 0..2_000 {
                    black_box((writer.write(&data), writer.reader_stamp(), writer.free())).0.ok();
                    let n = writer.reserve(401).len();
                    writer.commit(n);
                    writer.stamp(i);
                    black_box(reader.peek(30));
                    reader.advance(4, 30);
                    black_box((reader.peek_all(), ()));
                    let padded = reader.read(&mut out).padded + reader.read(&mut out).padded;
                    black_box((padded, reader.end()));
                    black_box((reader.writer_stamp(), monitor.fill(), monitor.high_water()));
                    reader.stamp(i);
                    if i % 100 == 0 {
                        writer.clear();
                    }
                }
            });
            assert_eq!(calls, 0, "{config:?}");
        }
    }
}

#[test]
fn announcements() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::PhaseLocked);
    let target = dispatcher.on(Box::new(|| ())).unwrap();
    let (mut values, _there) = ring(100);
    let mut notifier = dispatcher.notifier(None).unwrap();
    let calls = calls_during(|| {
        // More than a queue holds.
        for i in 0..10_000 {
            notifier.prefetch();
            notifier.notify(target);
            notifier.callback_ended(aulos_rt::clock::now());
            black_box(notifier.send(target, &mut values, i)).ok();
        }
    });
    assert_eq!(calls, 0);
    // The other side does not allocate either, once its buffers have grown.
    dispatcher.poll(0);
    let calls = calls_during(|| {
        for i in 0..100 {
            black_box(dispatcher.poll(i));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn items_through_a_channel() {
    let (sender, mut receiver) = bounded(100);
    let realtime = sender.realtime();
    let calls = calls_during(|| {
        for i in 0..10_000 {
            // More than fit.
            black_box((realtime.push(i), realtime.push(i), sender.try_send(i))).0.ok();
            black_box((realtime.free(), realtime.is_closed(), receiver.is_empty()));
            black_box((receiver.try_recv(), receiver.try_recv())).0.ok();
        }
    });
    assert_eq!(calls, 0);
    // Functions that are documented to allocate do: the count would detect it in the others.
    let (sender, _receiver) = unbounded();
    assert_eq!(calls_during(|| sender.send(1).unwrap()), 1);
}

#[test]
fn a_log_and_a_bin() {
    let (mut log, mut reader) = rt_log(10);
    let (mut bin, mut collector) = drop_queue(5);
    let mut old = Vec::from_iter((0..5).map(Box::new));
    let calls = calls_during(|| {
        for i in 0..1_000 {
            log.push(i, i);
            old.pop().map_or(Ok(()), |old| bin.discard(old)).ok();
            if i % 20 == 0 {
                black_box(reader.by_ref().count());
            }
        }
    });
    assert_eq!(calls, 0);
    assert_eq!(calls_during(|| assert_eq!(collector.collect(), 5)), 5);
}

#[test]
fn records_for_a_writer() {
    let (mut producer, mut consumer) = writer_ring(1000, &ConsumerWaker::default()).unwrap();
    let calls = calls_during(|| {
        for i in 0..10_000 {
            black_box((producer.push(&[3; 150]), producer.push(&[]), producer.capacity())).0.ok();
            // More than fit into the ring, then a record that is too long, then one after the
            // close.
            black_box(producer.push(&[3; 1001])).ok();
            black_box((consumer.is_wake_due(100), consumer.is_abandoned()));
            if i % 10 == 0 {
                let n = consumer.available();
                black_box(consumer.slices(n));
                consumer.release(n);
            }
            if i == 9_000 {
                consumer.watch().close();
            }
        }
    });
    assert_eq!(calls, 0);
    assert!(producer.watch().accepted() > 150_000);
}

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;

fn ring(capacity: usize) -> (RecordProducer, RecordConsumer) {
    writer_ring(capacity, &ConsumerWaker::default()).unwrap()
}

fn take(consumer: &mut RecordConsumer, n: usize) -> Vec<u8> {
    let (one, two) = consumer.slices(n);
    let bytes = [one, two].concat();
    consumer.release(n);
    bytes
}

#[test]
fn an_empty_record_leaves_no_trace_and_a_closed_ring_refuses_it() {
    let (mut producer, mut consumer) = ring(10);
    assert_eq!(producer.push(b""), Ok(()));
    assert_eq!(consumer.available(), 0);
    consumer.watch().close();
    assert_eq!(producer.push(b""), Err(WriterRingError::Closed));
}

#[test]
fn a_record_may_be_as_long_as_the_ring() {
    let (mut producer, mut consumer) = ring(10);
    assert_eq!(producer.push(&[1; 11]), Err(WriterRingError::TooLong));
    for i in 0..5 {
        assert_eq!(producer.push(&[i; 10]), Ok(()));
        assert_eq!(producer.push(&[i]), Err(WriterRingError::Full));
        let n = consumer.available();
        assert_eq!(take(&mut consumer, n), [i; 10]);
    }
    assert_eq!((consumer.watch().accepted(), consumer.watch().taken()), (50, 50));
}

#[test]
fn accepted_records_can_be_read_after_the_end() {
    let (mut producer, mut consumer) = ring(100);
    producer.push(b"before").unwrap();
    producer.watch().close();
    assert_eq!(producer.push(b"after"), Err(WriterRingError::Closed));
    drop(producer);
    assert!(consumer.is_abandoned());
    let n = consumer.available();
    assert_eq!(take(&mut consumer, n), b"before");
}

#[test]
fn a_producer_resumes_at_half_or_where_its_record_fits() {
    let (mut producer, mut consumer) = ring(100);
    let mut context = Context::from_waker(Waker::noop());
    let is_ready = |producer: &mut RecordProducer, n| producer.poll_room(&context, n).is_ready();
    producer.push(&[0; 100]).unwrap();
    assert!(!is_ready(&mut producer, 1));
    consumer.available();
    consumer.release(49);
    assert!(!is_ready(&mut producer, 1));
    consumer.release(1);
    assert!(is_ready(&mut producer, 50));
    assert!(!is_ready(&mut producer, 51));
    consumer.release(1);
    assert!(is_ready(&mut producer, 51));
    // A record that can never fit is not waited for.
    assert!(is_ready(&mut producer, 101));
    let mut never = pin!(std::future::poll_fn(|context| producer.poll_room(context, 100)));
    assert!(never.as_mut().poll(&mut context).is_pending());
    consumer.watch().close();
    assert_eq!(never.as_mut().poll(&mut context), Poll::Ready(()));
}

#[test]
fn a_ring_wakes_its_consumer_at_its_fill_level() {
    let (mut producer, consumer) = ring(10);
    assert!(!consumer.is_wake_due(1));
    producer.push(b"abcd").unwrap();
    assert!(consumer.is_wake_due(1) && consumer.is_wake_due(4) && !consumer.is_wake_due(5));
    producer.push(b"e").unwrap();
    assert!(consumer.is_wake_due(1_000));
}

/// A consumer thread that sleeps and producers that wait for space: all accepted records arrive, in
/// order.
#[test]
fn sleepers_on_both_sides() {
    let waker = ConsumerWaker::default();
    let (producers, mut consumers): (Vec<_>, Vec<_>) =
        (0..3).map(|_| writer_ring(64, &waker).unwrap()).unzip();
    std::thread::scope(|scope| {
        for mut producer in producers {
            scope.spawn(move || {
                for i in 0..5_000_u32 {
                    while producer.push(&i.to_ne_bytes()) == Err(WriterRingError::Full) {
                        producer.wait(4, None);
                    }
                    producer.wake_consumer();
                }
            });
        }
        let mut next = [0_u32; 3];
        while next != [5_000; 3] {
            waker.sleep(1, None, || consumers.iter().any(|consumer| consumer.is_wake_due(1)));
            for (consumer, next) in consumers.iter_mut().zip(&mut next) {
                let n = consumer.available();
                for record in take(consumer, n).chunks_exact(4) {
                    assert_eq!(record, next.to_ne_bytes());
                    *next += 1;
                }
            }
        }
    });
}

proptest! {
    /// Compared with a plain vector: the bytes taken are those accepted, in whole records.
    #[test]
    fn bytes_are_read_as_written(steps in prop::collection::vec((0_usize..40, 0_usize..40), 1..200)) {
        let (mut producer, mut consumer) = ring(37);
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for (i, (add, remove)) in steps.into_iter().enumerate() {
            let record = vec![u8::try_from(i % 251).unwrap(); add];
            let waiting = expected.len() - got.len();
            match producer.push(&record) {
                Ok(()) => expected.extend(record),
                Err(WriterRingError::TooLong) => prop_assert!(add > 37),
                Err(refused) => {
                    prop_assert_eq!(refused, WriterRingError::Full);
                    prop_assert!(add + waiting > 37);
                }
            }
            prop_assert_eq!(consumer.available(), expected.len() - got.len());
            let n = remove.min(expected.len() - got.len());
            got.extend(take(&mut consumer, n));
        }
        prop_assert_eq!(&got[..], &expected[..got.len()]);
    }
}

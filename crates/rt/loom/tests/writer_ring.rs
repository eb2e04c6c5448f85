//! The writer ring: every interleaving of pushing, closing, sleeping and waking.

use aulos_rt_loom::writer_ring::{ConsumerWaker, WriterRingError, RecordConsumer, writer_ring};
use loom::thread;

fn take(consumer: &mut RecordConsumer) -> Vec<u8> {
    let n = consumer.available();
    let (one, two) = consumer.slices(n);
    let bytes = [one, two].concat();
    consumer.release(n);
    bytes
}

/// More than fits, so that the model laps the ring: whole records arrive, in order.
#[test]
fn records_arrive_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = writer_ring(3, &ConsumerWaker::default()).unwrap();
        let thread = thread::spawn(move || {
            let records: [&[u8]; 3] = [&[1, 2], &[3, 4], &[5]];
            records.into_iter().filter(|record| producer.push(record).is_ok()).collect::<Vec<_>>()
        });
        let mut got = Vec::new();
        for _ in 0..2 {
            let taken = take(&mut consumer);
            assert!(!matches!(taken[..], [1] | [3]), "half a record");
            got.extend(taken);
        }
        let sent = thread.join().unwrap();
        assert!(consumer.is_abandoned());
        got.extend(take(&mut consumer));
        assert_eq!(got, sent.concat());
    });
}

/// A third thread closes the ring during a push: an accepted record is found by a read after the
/// close, a refused one is not.
#[test]
fn what_is_accepted_while_the_ring_is_closed_is_found() {
    loom::model(|| {
        let (mut producer, mut consumer) = writer_ring(2, &ConsumerWaker::default()).unwrap();
        let thread = thread::spawn(move || [producer.push(&[1]), producer.push(&[2])]);
        consumer.watch().close();
        let got = take(&mut consumer);
        let answers = thread.join().unwrap();
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(got, (1..=2).take(accepted).collect::<Vec<u8>>());
        assert!(answers.iter().all(|answer| matches!(answer, Ok(()) | Err(WriterRingError::Closed))));
    });
}

/// The writer sleeps until a record comes: the wake is not lost (a thread that is never woken is a
/// deadlock, which loom reports).
#[test]
fn a_record_wakes_the_writer() {
    loom::model(|| {
        let door = ConsumerWaker::default();
        let (mut producer, mut consumer) = writer_ring(1, &door).unwrap();
        let thread = thread::spawn(move || {
            producer.push(&[1]).unwrap();
            producer.wake_consumer();
            // The ring is kept, so that dropping it does not act as a wake.
            producer
        });
        let mut got = Vec::new();
        while got.is_empty() {
            door.sleep(1, None, || consumer.is_wake_due(1));
            got.extend(take(&mut consumer));
        }
        drop(thread.join().unwrap());
    });
}

/// The producer sleeps until there is space, which the writer frees.
#[test]
fn room_wakes_the_producer() {
    loom::model(|| {
        let (mut producer, mut consumer) = writer_ring(1, &ConsumerWaker::default()).unwrap();
        producer.push(&[1]).unwrap();
        let thread = thread::spawn(move || {
            while producer.push(&[2]) == Err(WriterRingError::Full) {
                producer.wait(1, None);
            }
        });
        assert_eq!(take(&mut consumer), [1]);
        thread.join().unwrap();
        assert_eq!(take(&mut consumer), [2]);
    });
}

/// The ring holds less than the writer's wake threshold, but the next record does not fit: the
/// producer's wait wakes the writer, and the space that it frees wakes the producer.
#[test]
fn a_producer_that_waits_for_room_wakes_the_writer() {
    loom::model(|| {
        let door = ConsumerWaker::default();
        let (mut producer, mut consumer) = writer_ring(4, &door).unwrap();
        producer.push(&[1]).unwrap();
        let thread = thread::spawn(move || {
            if producer.push(&[2; 4]) == Err(WriterRingError::Full) {
                producer.wait(4, None);
            }
            producer
        });
        while consumer.available() == 0 || !consumer.is_wake_due(4) {
            door.sleep(4, None, || consumer.is_wake_due(4));
        }
        consumer.release(1);
        drop(thread.join().unwrap());
    });
}

/// Closing the ring ends a producer's wait for space.
#[test]
fn a_close_ends_the_wait_for_room() {
    loom::model(|| {
        let (mut producer, consumer) = writer_ring(1, &ConsumerWaker::default()).unwrap();
        producer.push(&[1]).unwrap();
        let thread = thread::spawn(move || {
            while producer.push(&[2]) == Err(WriterRingError::Full) {
                producer.wait(1, None);
            }
        });
        drop(consumer);
        thread.join().unwrap();
    });
}

/// The writer sleeps on an empty ring; dropping the producer wakes it.
#[test]
fn the_end_of_a_producer_wakes_the_writer() {
    loom::model(|| {
        let door = ConsumerWaker::default();
        let (producer, consumer) = writer_ring(1, &door).unwrap();
        let thread = thread::spawn(move || drop(producer));
        while !consumer.is_abandoned() {
            door.sleep(1, None, || consumer.is_abandoned());
        }
        thread.join().unwrap();
    });
}

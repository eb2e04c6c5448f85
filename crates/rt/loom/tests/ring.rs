//! Every interleaving of the two ends of a small ring.

use aulos_rt_loom::ring::ring;
use loom::thread;

/// More items than slots, so that the model laps the ring: the items that arrive are a prefix of
/// those sent, in order, and each box is dropped once (loom reports leaks).
#[test]
fn items_arrive_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        let thread = thread::spawn(move || {
            (0..3).take_while(|&i| producer.push(loom::sync::Arc::new(i)).is_ok()).count()
        });
        let mut got = Vec::new();
        for _ in 0..2 {
            got.extend(consumer.pop().map(|item| *item));
        }
        let sent = thread.join().unwrap();
        assert!(consumer.is_abandoned());
        while let Some(item) = consumer.pop() {
            got.push(*item);
        }
        assert_eq!(got, (0..sent).collect::<Vec<_>>());
    });
}

#[test]
fn runs_arrive_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<u8>(3);
        let thread = thread::spawn(move || {
            let first = producer.write(&[1, 2]);
            let (one, two) = producer.reserve(2);
            let n = one.len() + two.len();
            one.iter_mut().chain(two).zip(3..).for_each(|(slot, i)| *slot = i);
            producer.commit(n);
            first + n
        });
        let mut got = Vec::new();
        let mut out = [0; 2];
        for _ in 0..2 {
            let n = consumer.read(&mut out);
            got.extend_from_slice(&out[..n]);
        }
        let sent = thread.join().unwrap();
        let (one, two) = consumer.as_slices();
        got.extend(one.iter().chain(two));
        assert_eq!(got, (1..=4).take(sent).collect::<Vec<u8>>());
    });
}

/// "Abandoned", then "empty", means that no item is missing.
#[test]
fn the_end_is_seen_after_the_last_item() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(1);
        let thread = thread::spawn(move || producer.push(7).unwrap());
        if consumer.is_abandoned() {
            assert_eq!(consumer.pop(), Some(7));
        }
        thread.join().unwrap();
    });
}

/// The end that is dropped last frees the remaining items.
#[test]
fn both_ends_go_at_once() {
    loom::model(|| {
        let (mut producer, consumer) = ring(2);
        producer.push(loom::sync::Arc::new(1)).unwrap();
        let thread = thread::spawn(move || drop(producer));
        drop(consumer);
        thread.join().unwrap();
    });
}

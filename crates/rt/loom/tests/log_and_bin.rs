//! The log and the drop queue: a real-time thread pushes while another thread takes.

use aulos_rt_loom::{drop_queue::drop_queue, log::rt_log};
use loom::thread;

/// Every record is either read or counted as lost.
#[test]
fn every_record_is_read_or_counted() {
    loom::model(|| {
        let (mut log, mut reader) = rt_log(1);
        let thread = thread::spawn(move || {
            (0..3).for_each(|i| log.push(i, i));
            log
        });
        let mut got: Vec<_> = reader.by_ref().collect();
        let mut log = thread.join().unwrap();
        got.extend(reader.by_ref());
        log.push(3, 3);
        got.extend(reader.by_ref());
        let mut next = 0;
        for entry in got {
            next += u64::from(entry.lost_before);
            assert_eq!((entry.nanos, entry.record), (next, next));
            next += 1;
        }
        assert_eq!(next, 4);
    });
}

/// Each value is dropped once, whichever end goes first (loom reports leaks).
#[test]
fn what_is_thrown_away_is_dropped_once() {
    loom::model(|| {
        let (mut bin, mut collector) = drop_queue(2);
        let value = loom::sync::Arc::new(());
        let (one, two) = (value.clone(), value.clone());
        let thread = thread::spawn(move || {
            assert!(bin.discard(one).is_ok());
            assert!(bin.discard(two).is_ok());
        });
        assert!(collector.collect() <= 2);
        drop(collector);
        thread.join().unwrap();
        drop(value);
    });
}

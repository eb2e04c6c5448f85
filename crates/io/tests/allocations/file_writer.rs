//! The file writer on a real file: after the start, no record makes a producer or the writer's
//! thread allocate, with a ring, a real-time ring or the shared buffer. That a real-time producer
//! makes no system call is shown by `no_syscall.rs` among the tests of `aulos-rt`.

use std::sync::atomic::Ordering::SeqCst;

use crate::counting::{ALLOCATED, COUNTING, FREED};
use crate::exclusive_counts;
use aulos_blackbox::scratch::ScratchDir;
use aulos_io::file_writer::{DiskWriters, FileWriter, FileWriterConfig};

const WARM_UP: u64 = 100;
const RECORDS: u64 = 20_000;

fn wait_until_written(writer: &FileWriter) {
    while writer.status().written < writer.status().accepted {
        std::thread::yield_now();
    }
}

#[test]
fn writing_a_record_does_not_allocate() {
    let _turn = exclusive_counts();
    let folder = ScratchDir::new("file-writer-counting").unwrap();
    let writer =
        DiskWriters::default().create(&folder.join("file"), &FileWriterConfig::default()).unwrap();
    let mut ring = writer.producer(4096).unwrap();
    let mut realtime = writer.realtime_producer(4096).unwrap();
    let shared = writer.shared_producer();
    let mut work = move |writer: &FileWriter| {
        // The shared buffer is two that take turns: each of the short rounds allocates one.
        for count in [WARM_UP, WARM_UP, RECORDS] {
            COUNTING.store(count == RECORDS, SeqCst);
            for i in 0..count {
                ring.add(&[1; 100]).unwrap();
                shared.add(&[2; 100]).unwrap();
                realtime.add_or_drop(&[3; 100]);
                if i == count / 2 {
                    realtime.add(&[3; 5000]).unwrap_err();
                }
            }
            wait_until_written(writer);
        }
        COUNTING.store(false, SeqCst);
    };
    std::thread::scope(|scope| {
        let named = std::thread::Builder::new().name("aulos-producer".to_owned());
        let thread = named.spawn_scoped(scope, || {
            // Verifies that allocations of this thread are counted.
            COUNTING.store(true, SeqCst);
            drop(std::hint::black_box(Box::new(1)));
            COUNTING.store(false, SeqCst);
            assert_eq!((ALLOCATED.swap(0, SeqCst), FREED.swap(0, SeqCst)), (1, 1));
            work(&writer);
        });
        thread.unwrap().join().unwrap();
    });
    assert_eq!((ALLOCATED.load(SeqCst), FREED.load(SeqCst)), (0, 0));
    let status = writer.status();
    assert_eq!(status.dropped_records * 100, status.dropped_bytes);
    assert_eq!(status.accepted + status.dropped_bytes, 3 * 100 * (2 * WARM_UP + RECORDS));
    writer.close().wait().unwrap();
}

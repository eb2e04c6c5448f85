//! Every record is in the file once, complete, and in the order of its producer, whatever the disk
//! does.

mod faulty;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use faulty::{FaultControl, FaultPlan, FaultyDisk};

/// The buffer size of most producers here: so small that they often wait.
const SMALL: usize = 4096;

fn writer(plan: FaultPlan) -> (FileWriter, FaultControl) {
    let (medium, faults) = FaultyDisk::new(plan);
    let settings = FileWriterConfig { shared_bytes: SMALL, ..FileWriterConfig::default() };
    let writer =
        DiskWriter::start().unwrap().writer("faulty", Box::new(medium), &settings).unwrap();
    (writer, faults)
}

/// A unique record: producer, index, length, and bytes derived from them.
fn record(producer: u8, index: u32) -> Vec<u8> {
    let length = 9 + (index.wrapping_mul(2_654_435_761) >> 16) as usize % 120;
    let mut bytes = vec![producer];
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
    let mut next = producer ^ index.to_le_bytes()[0];
    bytes.resize_with(length, || {
        next = next.wrapping_mul(5).wrapping_add(1);
        next
    });
    bytes
}

/// The records of each producer in file order. Panics at the first incomplete one.
fn read(file: &[u8]) -> HashMap<u8, Vec<u32>> {
    let mut found: HashMap<u8, Vec<u32>> = HashMap::new();
    let mut rest = file;
    while !rest.is_empty() {
        let (producer, index) = (rest[0], u32::from_le_bytes(rest[1..5].try_into().unwrap()));
        let expected = record(producer, index);
        assert!(rest.starts_with(&expected), "a torn record of {producer}, {index}");
        rest = &rest[expected.len()..];
        found.entry(producer).or_default().push(index);
    }
    found
}

fn up_to(count: u32) -> Vec<u32> {
    (0..count).collect()
}

/// Two with rings, one real-time, two shared; one of them ends early by a panic.
fn add_from_all_producers(writer: &FileWriter, count: u32) {
    std::thread::scope(|scope| {
        for who in 0..2 {
            let mut producer = writer.producer(SMALL).unwrap();
            scope.spawn(move || (0..count).for_each(|i| producer.add(&record(who, i)).unwrap()));
        }
        let mut realtime = writer.realtime_producer(SMALL).unwrap();
        scope.spawn(move || {
            for i in 0..count {
                let record = record(2, i);
                while let Err(error) = realtime.add(&record) {
                    assert!(matches!(error, AddError::Full), "{error}");
                    std::thread::yield_now();
                }
            }
        });
        for who in 3..5 {
            let producer = writer.shared_producer();
            scope.spawn(move || (0..count).for_each(|i| producer.add(&record(who, i)).unwrap()));
        }
        let mut dying = writer.producer(SMALL).unwrap();
        let dies = scope.spawn(move || {
            for i in 0.. {
                // A panic without a message.
                if i == count / 2 {
                    std::panic::resume_unwind(Box::new("dies"));
                }
                dying.add(&record(5, i)).unwrap();
            }
        });
        assert!(dies.join().is_err());
    });
}

#[test]
fn on_a_hundred_faulty_disks_every_record_is_written_once_in_order() {
    for seed in 0..100 {
        let (writer, faults) = writer(FaultPlan::bad(seed));
        add_from_all_producers(&writer, 200);
        match seed % 3 {
            0 => writer.flush().wait().unwrap(),
            1 => writer.sync().wait().unwrap(),
            _ => {}
        }
        if seed % 3 != 2 {
            let status = writer.status();
            assert_eq!(status.written, status.accepted, "seed {seed}");
            assert_eq!(faults.file().len() as u64, status.accepted, "seed {seed}");
        }
        writer.close().wait().unwrap();
        let found = read(&faults.file());
        for who in 0..5 {
            assert_eq!(found[&who], up_to(200), "seed {seed}, producer {who}");
        }
        assert_eq!(found[&5], up_to(100), "seed {seed}");
        assert_eq!(faults.synced(), faults.file().len(), "seed {seed}");
    }
}

#[test]
fn the_first_error_reaches_all_writers_and_the_file_keeps_its_records() {
    for seed in 0..100 {
        let (writer, faults) = writer(FaultPlan::breaks(seed));
        let mut waiting = writer.producer(SMALL).unwrap();
        let shared = writer.shared_producer();
        let ends = |result: Result<(), AddError>| match result {
            Ok(()) => false,
            Err(AddError::Failed(failure)) => {
                assert_eq!(failure.error().raw_os_error(), Some(libc::EIO), "seed {seed}");
                true
            }
            Err(other) => panic!("seed {seed}: {other}"),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..).take_while(|i| !ends(waiting.add(&record(0, *i)))).count());
            scope.spawn(|| (0..).take_while(|i| !ends(shared.add(&record(1, *i)))).count());
        });
        assert!(matches!(writer.status().state, FileWriterState::Failed(_)), "seed {seed}");
        let asked = [writer.flush(), writer.sync()];
        for ticket in asked {
            let failure = ticket.wait().unwrap_err();
            assert_eq!(failure.error().raw_os_error(), Some(libc::EIO), "seed {seed}");
            assert!(failure.to_string().starts_with("faulty: "), "{failure}");
        }
        assert!(matches!(writer.producer(SMALL), Err(AddError::Failed(_))));
        let status = writer.status();
        assert_eq!(faults.file().len() as u64, status.written, "seed {seed}");
        assert!(status.accepted >= status.written && status.synced <= status.written);
        writer.close().wait().unwrap_err();
    }
}

#[test]
fn writing_continues_after_a_full_disk_where_it_stopped() {
    let (writer, faults) = writer(FaultPlan::default());
    let mut producer = writer.producer(SMALL).unwrap();
    faults.fill_up(io::ErrorKind::StorageFull);
    let mut count = 0;
    while producer.try_add(&record(0, count)).is_ok() {
        count += 1;
    }
    let (flushed, synced) = (writer.flush(), writer.sync());
    while !matches!(writer.status().state, FileWriterState::DiskFull) {
        std::thread::yield_now();
    }
    assert_eq!(writer.status().written, 0);
    let mut realtime = writer.realtime_producer(SMALL).unwrap();
    assert!(realtime.add_or_drop(&record(2, 0)));
    faults.fill_up(io::ErrorKind::QuotaExceeded);
    faults.make_room();
    flushed.wait().unwrap();
    synced.wait().unwrap();
    assert!(matches!(writer.status().state, FileWriterState::Open));
    producer.add(&record(0, count)).unwrap();
    writer.close().wait().unwrap();
    let found = read(&faults.file());
    assert_eq!((&found[&0], &found[&2]), (&up_to(count + 1), &up_to(1)));
}

#[test]
fn a_real_time_producer_continues_at_a_hung_disk_until_its_memory_is_full() {
    let (writer, faults) = writer(FaultPlan::default());
    faults.hang();
    let mut producer = writer.realtime_producer(100_000).unwrap();
    let (mut accepted, mut dropped) = (Vec::new(), 0);
    let mut i = 0;
    while dropped < 1000 {
        if producer.add_or_drop(&record(7, i)) {
            accepted.push(i);
        } else {
            dropped += 1;
        }
        i += 1;
    }
    // More may have been taken before the disk hung.
    assert!(writer.status().accepted > 100_000 - 200);
    assert_eq!(writer.status().dropped_records, 1000);
    assert!(matches!(producer.add(&[0; 100_001]), Err(AddError::TooLong { .. })));
    faults.go_on();
    writer.flush().wait().unwrap();
    assert_eq!(read(&faults.file())[&7], accepted);
    assert!(producer.add_or_drop(&record(7, i)));
}

#[test]
fn cancel_ends_all_waits_at_once_and_loses_no_accepted_record() {
    let (writer, faults) = writer(FaultPlan::default());
    faults.hang();
    std::thread::scope(|scope| {
        let mut ring = writer.producer(SMALL).unwrap();
        let shared = writer.shared_producer();
        // Each counts its accepted records, and returns only because of the cancel.
        let one =
            scope.spawn(move || (0..).find_map(|i| ring.add(&record(0, i)).err().map(|e| (i, e))));
        let two = scope
            .spawn(move || (0..).find_map(|i| shared.add(&record(1, i)).err().map(|e| (i, e))));
        while writer.status().accepted < 2 * (SMALL as u64 - 128) {
            std::thread::yield_now();
        }
        writer.cancel();
        let counts = [one, two].map(|thread| {
            let (count, error) = thread.join().unwrap().unwrap();
            assert!(matches!(error, AddError::Closed), "{error}");
            count
        });
        assert!(matches!(writer.producer(SMALL), Err(AddError::Closed)));
        assert!(matches!(writer.status().state, FileWriterState::Closing));
        faults.go_on();
        writer.flush().wait().unwrap();
        let found = read(&faults.file());
        assert_eq!([&found[&0], &found[&1]], [&up_to(counts[0]), &up_to(counts[1])]);
    });
    writer.close().wait().unwrap();
}

/// "Accepted" is exact even for a record that is added while the file is being closed.
#[test]
fn closing_under_load_keeps_every_record_that_was_accepted() {
    for seed in 0..100 {
        let (writer, faults) = writer(FaultPlan::bad(seed));
        let mut threads = Vec::new();
        for who in 0..3 {
            let mut producer = writer.producer(SMALL).unwrap();
            threads.push(std::thread::spawn(move || {
                (0..).take_while(|i| producer.add(&record(who, *i)).is_ok()).count()
            }));
        }
        let shared = writer.shared_producer();
        threads.push(std::thread::spawn(move || {
            (0..).take_while(|i| shared.add(&record(3, *i)).is_ok()).count()
        }));
        while writer.status().accepted < 500 * (seed % 40) {
            std::thread::yield_now();
        }
        if seed % 2 == 0 {
            writer.close().wait().unwrap();
        } else {
            drop(writer);
        }
        let counts: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        faults.wait_until_closed();
        let found = read(&faults.file());
        for (who, count) in (0..).zip(counts) {
            let empty = Vec::new();
            let there = found.get(&who).unwrap_or(&empty);
            assert_eq!(*there, up_to(u32::try_from(count).unwrap()), "seed {seed}, producer {who}");
        }
    }
}

#[test]
fn dropping_the_writer_does_not_wait_for_a_hung_disk() {
    let (medium, faults) = FaultyDisk::new(FaultPlan::default());
    let settings =
        FileWriterConfig { drop_limit: Duration::from_millis(1), ..FileWriterConfig::default() };
    let writer = DiskWriter::start().unwrap().writer("slow", Box::new(medium), &settings).unwrap();
    faults.hang();
    let mut producer = writer.producer(SMALL).unwrap();
    producer.add(&record(0, 0)).unwrap();
    drop(writer);
    assert!(matches!(producer.add(&record(0, 1)), Err(AddError::Closed)));
    faults.go_on();
    faults.wait_until_closed();
    assert_eq!(read(&faults.file())[&0], up_to(1));
    assert_eq!(faults.synced(), faults.file().len());
}

#[test]
fn empty_records_are_accepted_and_too_long_ones_are_an_error() {
    let (writer, faults) = writer(FaultPlan::default());
    let (mut ring, shared) = (writer.producer(SMALL).unwrap(), writer.shared_producer());
    ring.add(b"").unwrap();
    shared.add(b"").unwrap();
    let text =
        "a record of 4097 bytes exceeds the queue of 4096 bytes; give its producer more memory";
    assert_eq!(ring.add(&[0; SMALL + 1]).unwrap_err().to_string(), text);
    assert_eq!(shared.add(&[0; SMALL + 1]).unwrap_err().to_string(), text);
    ring.add(&[1; SMALL]).unwrap();
    shared.add(&[1; SMALL]).unwrap();
    writer.close().wait().unwrap();
    assert_eq!(faults.file(), [1; 2 * SMALL]);
}

#[test]
fn callers_of_sync_share_one() {
    let (writer, faults) = writer(FaultPlan::default());
    let mut producer = writer.producer(SMALL).unwrap();
    faults.hang_syncs();
    producer.add(&record(0, 0)).unwrap();
    let first = writer.sync();
    faults.wait_until_syncing();
    producer.add(&record(0, 1)).unwrap();
    let others: Vec<_> = (0..100).map(|_| writer.sync()).collect();
    // Writing continues meanwhile.
    writer.flush().wait().unwrap();
    assert_eq!(writer.status().synced, 0);
    faults.go_on();
    first.wait().unwrap();
    others.into_iter().for_each(|ticket| ticket.wait().unwrap());
    assert_eq!(faults.syncs(), 2);
    let status = writer.status();
    assert_eq!([status.synced, status.written], [status.accepted; 2]);
}

#[test]
fn a_sync_that_is_interrupted_is_done_again_and_one_that_fails_is_the_end_of_the_file() {
    let (writer, faults) = writer(FaultPlan::default());
    let mut producer = writer.producer(SMALL).unwrap();
    producer.add(&record(0, 0)).unwrap();
    faults.fail_next_sync(libc::EINTR);
    writer.sync().wait().unwrap();
    assert_eq!(faults.synced(), faults.file().len());
    let synced = writer.status().synced;
    producer.add(&record(0, 1)).unwrap();
    faults.fail_next_sync(libc::EIO);
    let failure = writer.sync().wait().unwrap_err();
    assert_eq!(failure.error().raw_os_error(), Some(libc::EIO));
    assert!(matches!(producer.add(&record(0, 2)), Err(AddError::Failed(_))));
    // It was written, but whether it is durable is unknown.
    assert_eq!(
        (writer.status().synced, writer.status().written),
        (synced, writer.status().accepted)
    );
    writer.close().wait().unwrap_err();
}

#[test]
fn shared_producers_have_one_order() {
    let (writer, faults) = writer(FaultPlan::bad(1));
    let next = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (producer, next) = (writer.shared_producer(), &next);
            scope.spawn(move || {
                for _ in 0..250 {
                    // A record that another thread adds later comes later in the file.
                    let mut next = next.lock().unwrap();
                    producer.add(&record(0, *next)).unwrap();
                    *next += 1;
                }
            });
        }
    });
    writer.close().wait().unwrap();
    assert_eq!(read(&faults.file())[&0], up_to(1000));
}

#[test]
fn several_files_share_a_thread_and_a_full_one_does_not_stop_the_other() {
    let disk = DiskWriter::start().unwrap();
    let open = |plan| {
        let (medium, faults) = FaultyDisk::new(plan);
        (
            disk.writer("one of them", Box::new(medium), &FileWriterConfig::default()).unwrap(),
            faults,
        )
    };
    let (full, full_disk) = open(FaultPlan::default());
    full_disk.fill_up(io::ErrorKind::StorageFull);
    full.shared_producer().add(&record(0, 0)).unwrap();
    let waits = full.flush();
    let files: Vec<_> = (0..5).map(|seed| open(FaultPlan::bad(seed))).collect();
    for (writer, _) in &files {
        add_from_all_producers(writer, 50);
    }
    for (writer, faults) in files {
        writer.close().wait().unwrap();
        assert_eq!(read(&faults.file())[&4], up_to(50));
    }
    let waits = waits.wait_timeout(Duration::ZERO).unwrap_err();
    full_disk.make_room();
    waits.wait().unwrap();
    assert_eq!(read(&full_disk.file())[&0], up_to(1));
}

#[test]
fn a_panic_of_the_medium_is_an_error_for_all_writers() {
    let (writer, _faults) = writer(FaultPlan::panics());
    let mut producer = writer.producer(SMALL).unwrap();
    producer.add(&record(0, 0)).unwrap();
    let text = "faulty: the thread that writes this file has ended";
    assert_eq!(writer.flush().wait().unwrap_err().to_string(), text);
    assert!(matches!(producer.add(&record(0, 1)), Err(AddError::Failed(_))));
    assert_eq!(writer.sync().wait().unwrap_err().to_string(), text);
    assert_eq!(writer.close().wait().unwrap_err().to_string(), text);
}

/// Counts wake-ups, and lets a thread wait for one.
#[derive(Default)]
struct WakeCounter(AtomicBool, AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a future on this thread; it is polled again only after a wake-up.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let woken = Arc::new(WakeCounter::default());
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !woken.0.swap(false, Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn tasks_add_flush_sync_and_close_without_a_runtime_of_ours() {
    let (writer, faults) = writer(FaultPlan::bad(2));
    std::thread::scope(|scope| {
        for who in 0..2 {
            let mut ring = writer.producer(SMALL).unwrap();
            let shared = writer.shared_producer();
            scope.spawn(move || {
                block_on(async {
                    for i in 0..500 {
                        ring.add_async(&record(who, i)).await.unwrap();
                        shared.add_async(&record(who + 2, i)).await.unwrap();
                    }
                });
            });
        }
    });
    block_on(async {
        writer.flush().await.unwrap();
        assert_eq!(writer.status().written, writer.status().accepted);
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
    });
    let found = read(&faults.file());
    (0..4).for_each(|who| assert_eq!(found[&who], up_to(500)));
}

#[test]
fn a_cancel_ends_the_wait_of_a_task_for_room() {
    let (writer, faults) = writer(FaultPlan::default());
    faults.hang();
    let mut ring = writer.producer(SMALL).unwrap();
    while ring.try_add(&[1; 64]).is_ok() {}
    let waker = Waker::from(Arc::new(WakeCounter::default()));
    let mut add = pin!(ring.add_async(&[1; 64]));
    // Data taken before the disk hung may have made room once.
    if add.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        writer.cancel();
        assert!(matches!(block_on(add), Err(AddError::Closed)));
    }
    faults.go_on();
}

#[test]
fn a_real_file_is_created_once_and_gets_all_records() {
    let folder = aulos_blackbox::scratch::ScratchDir::new("file-writer").unwrap();
    let (disks, path) = (DiskWriters::default(), folder.join("file"));
    let writer = disks.create(&path, &FileWriterConfig::default()).unwrap();
    let again = disks.create(&path, &FileWriterConfig::default()).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    add_from_all_producers(&writer, 2000);
    writer.close().wait().unwrap();
    let found = read(&std::fs::read(&path).unwrap());
    (0..5).for_each(|who| assert_eq!(found[&who], up_to(2000)));
    // It appends at the current position of the file.
    let old = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let writer = disks.open("again", old, &FileWriterConfig::default()).unwrap();
    writer.shared_producer().add(&record(9, 0)).unwrap();
    writer.close().wait().unwrap();
    assert_eq!(read(&std::fs::read(&path).unwrap())[&9], up_to(1));
}

#[test]
fn more_producers_than_one_call_takes() {
    let (writer, faults) = writer(FaultPlan::default());
    faults.hang();
    let mut producers: Vec<_> = (0..600).map(|_| writer.producer(64).unwrap()).collect();
    // Twice round each ring, so that some records wrap around and need two parts.
    for round in 0..4_u8 {
        if round == 2 {
            faults.go_on();
        }
        for (producer, number) in producers.iter_mut().zip(0_u16..) {
            let mut record = [round; 30];
            record[..2].copy_from_slice(&number.to_le_bytes());
            producer.add(&record).unwrap();
        }
    }
    writer.close().wait().unwrap();
    let mut next = vec![0; 600];
    for record in faults.file().chunks_exact(30) {
        let number = usize::from(u16::from_le_bytes([record[0], record[1]]));
        assert!(record[2..].iter().all(|byte| *byte == next[number]));
        next[number] += 1;
    }
    assert_eq!(next, vec![4; 600]);
}

//! The synchronization of the pipe: sleeping, waking, and moving the read position. Only one test
//! at a time may remove the fences, so the models that depend on them share one test.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering;

use aulos_rt_loom::models;
use aulos_rt_loom::sync::WITHOUT_FENCES;

#[test]
fn no_wake_is_lost_with_the_fences_and_one_is_without() {
    let waits: [fn(); 4] = [
        models::sleep_and_wake,
        models::task_and_wake,
        models::the_peer_leaves,
        models::event_dispatcher,
    ];
    for wait in waits {
        loom::model(wait);
    }
    loom::model(models::both_sleep);
    loom::model(models::cancel);

    WITHOUT_FENCES.store(true, Ordering::Relaxed);
    let lost = waits.map(|wait| catch_unwind(|| loom::model(wait)).is_err());
    WITHOUT_FENCES.store(false, Ordering::Relaxed);
    assert_eq!(lost, [true; 4], "a model does not see what the fences are for");
}

#[test]
fn a_clear_is_heeded_once_and_in_order() {
    loom::model(models::clear);
}

#[test]
fn the_writer_never_writes_where_the_reader_reads() {
    loom::model(models::drop_the_oldest);
}

#[test]
fn an_emptied_pipe_restarts_at_the_front() {
    loom::model(models::begin_at_the_front_again);
}

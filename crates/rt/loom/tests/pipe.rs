//! The handshakes of the pipe: who sleeps, who wakes, and who may move the reading position.
//! One test at a time may take the fences out, so they are in one.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering;

use aulos_rt_loom::models;
use aulos_rt_loom::sync::WITHOUT_FENCES;

#[test]
fn no_wake_is_lost_with_the_fences_and_one_is_without() {
    loom::model(models::sleep_and_wake);
    loom::model(models::both_sleep);
    loom::model(models::cancel);

    WITHOUT_FENCES.store(true, Ordering::Relaxed);
    let lost = catch_unwind(|| loom::model(models::sleep_and_wake));
    WITHOUT_FENCES.store(false, Ordering::Relaxed);
    assert!(lost.is_err(), "the model does not see what the fences are for");
}

#[test]
fn nobody_writes_where_the_reader_looks() {
    loom::model(models::drop_the_oldest);
}

#[test]
fn a_pipe_that_was_emptied_begins_at_the_front_again() {
    loom::model(models::begin_at_the_front_again);
}

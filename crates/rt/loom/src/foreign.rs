//! A foreign loop that sleeps on the file descriptor of a channel.

use loom::thread;

use crate::channel::{TryRecvError, bounded};

/// Receives until "empty", then sleeps; no item may be left when the senders are gone.
pub fn a_descriptor_is_raised() {
    let (sender, receiver) = bounded(2);
    let thread = thread::spawn(move || (1..=2).for_each(|item| sender.try_send(item).unwrap()));
    let mut receiver = receiver.into_fd().unwrap();
    let mut got = Vec::new();
    loop {
        match receiver.try_recv() {
            Ok(item) => got.push(item),
            Err(TryRecvError::Empty) => receiver.signal().poll(),
            Err(TryRecvError::Closed) => break,
        }
    }
    assert_eq!(got, [1, 2]);
    thread.join().unwrap();
}

//! Sends that the kernel performs from this process's memory, and the buffers to keep for them.
//!
//! With `MSG_ZEROCOPY` (Linux, `networking/msg_zerocopy.rst`) a call returns before the bytes have
//! been read. The socket's error queue reports later, as ranges of call numbers, which calls are
//! complete. Until then each chunk is held here. On loopback the kernel copies after all and
//! reports so; the socket then returns to ordinary sends (`docs/decisions/zero-copy.md`).
//!
//! This module only does the bookkeeping, so that it can be tested with any queue; the system calls
//! are in [`connection`](super::connection). Epoll reports the error queue to the reactor like any
//! other event.

use std::collections::VecDeque;

use aulos_core::Instant;

/// The pending zero-copy calls of one socket.
#[derive(Debug)]
pub(super) struct ZeroCopy<T> {
    /// The number that the kernel will assign to the next call.
    next: u32,
    held: VecDeque<HeldChunk<T>>,
    /// Consecutive completions that were copies.
    copied_in_row: u8,
    /// Batches to send by copying before the next attempt.
    batches_to_skip: u8,
    off: bool,
}

#[derive(Debug)]
struct HeldChunk<T> {
    call: u32,
    timestamp: Instant,
    _chunk: T,
}

/// The calls from `first` to `last` are complete; the range may wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    first: u32,
    last: u32,
    /// The kernel copied after all.
    pub(super) copied: bool,
}

/// A raw entry of a socket's error queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedError {
    /// `cmsg_level`.
    pub(crate) level: i32,
    /// `cmsg_type`.
    pub(crate) kind: i32,
    /// `struct sock_extended_err`.
    pub(crate) data: [u8; 16],
}

impl<T> ZeroCopy<T> {
    pub(super) const fn new() -> Self {
        Self { next: 0, held: VecDeque::new(), copied_in_row: 0, batches_to_skip: 0, off: false }
    }

    /// Whether to send a batch of `chunks` with this many bytes without copying.
    pub(super) fn should_use(&mut self, chunks: usize, bytes: usize) -> bool {
        let fits = bytes >= MIN_BYTES && self.held.len() + chunks <= MAX_HELD;
        if self.off || !fits {
            return false;
        }
        if self.batches_to_skip > 0 {
            self.batches_to_skip -= 1;
            return false;
        }
        true
    }

    /// Records a call; `chunks` are the chunks that the kernel may still read.
    pub(super) fn record_send(&mut self, chunks: impl Iterator<Item = (Instant, T)>) {
        let call = self.next;
        self.held.extend(chunks.map(|(timestamp, chunk)| HeldChunk {
            call,
            timestamp,
            _chunk: chunk,
        }));
        self.next = self.next.wrapping_add(1);
    }

    /// The kernel had no memory for the notification: the batch has to be copied.
    pub(super) const fn record_refusal(&mut self) {
        self.batches_to_skip = SKIPPED_BATCHES;
    }

    /// Releases the chunks of completed calls.
    pub(super) fn complete(&mut self, completion: Completion) {
        let Completion { first, last, copied } = completion;
        self.held.retain(|held| held.call.wrapping_sub(first) > last.wrapping_sub(first));
        self.copied_in_row = if copied { self.copied_in_row.saturating_add(1) } else { 0 };
        self.off |= self.copied_in_row >= MAX_COPIED_IN_ROW;
    }

    /// The timestamp of the oldest chunk that is held.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.held.front().map(|held| held.timestamp)
    }
}

impl Completion {
    /// Parses an entry of the error queue; `None` if it is about something else.
    ///
    /// `struct sock_extended_err` (`linux/errqueue.h`): errno, origin, type, code, padding, info,
    /// data. An IPv6 socket reports with its own level, also for IPv4 peers.
    pub(super) fn parse(error: &QueuedError) -> Option<Self> {
        let [e0, e1, e2, e3, origin, _, code, _, f0, f1, f2, f3, l0, l1, l2, l3] = error.data;
        let ours = [(SOL_IP, IP_RECVERR), (SOL_IPV6, IPV6_RECVERR)];
        let done = u32::from_ne_bytes([e0, e1, e2, e3]) == 0 && origin == ORIGIN_ZEROCOPY;
        (done && ours.contains(&(error.level, error.kind))).then(|| Self {
            first: u32::from_ne_bytes([f0, f1, f2, f3]),
            last: u32::from_ne_bytes([l0, l1, l2, l3]),
            copied: code & CODE_COPIED != 0,
        })
    }
}

/// Below this, the notification costs more than the copy.
const MIN_BYTES: usize = 10_000;

/// Chunks that one socket may hold: three batches, or a round trip of 300 ms. A slower peer is sent
/// copies.
const MAX_HELD: usize = 16;

/// After this many consecutive copies the kernel is assumed to always copy for this peer.
const MAX_COPIED_IN_ROW: u8 = 3;

/// Batches to copy after the kernel was out of memory.
const SKIPPED_BATCHES: u8 = 16;

// Constants of the kernel's interface.
const SOL_IP: i32 = 0;
const SOL_IPV6: i32 = 41;
const IP_RECVERR: i32 = 11;
const IPV6_RECVERR: i32 = 25;
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn error(level: i32, kind: i32, code: u8, first: u32, last: u32) -> QueuedError {
        let mut data = [0; 16];
        data[4] = ORIGIN_ZEROCOPY;
        data[6] = code;
        data[8..12].copy_from_slice(&first.to_ne_bytes());
        data[12..].copy_from_slice(&last.to_ne_bytes());
        QueuedError { level, kind, data }
    }

    fn done(first: u32, last: u32) -> Completion {
        Completion { first, last, copied: false }
    }

    /// Sends a batch of two and returns a reference that shows whether it is still held.
    fn send(zero: &mut ZeroCopy<Rc<()>>) -> Rc<()> {
        let chunk = Rc::new(());
        let at = Instant::from_nanos(zero.next.into());
        zero.record_send([(at, Rc::clone(&chunk)), (at, Rc::clone(&chunk))].into_iter());
        chunk
    }

    fn held(chunk: &Rc<()>) -> bool {
        Rc::strong_count(chunk) > 1
    }

    #[test]
    fn a_chunk_is_held_until_the_range_that_has_its_call() {
        let mut zero = ZeroCopy::new();
        let chunks: Vec<_> = (0..5).map(|_| send(&mut zero)).collect();
        let which = || chunks.iter().map(held).collect::<Vec<_>>();
        zero.complete(done(0, 1));
        assert_eq!(which(), [false, false, true, true, true]);
        assert_eq!(zero.oldest(), Some(Instant::from_nanos(2)));
        // Out of order, and one of them twice.
        zero.complete(done(3, 3));
        zero.complete(done(3, 3));
        assert_eq!(which(), [false, false, true, false, true]);
        zero.complete(done(2, 4));
        assert_eq!(which(), [false; 5]);
        assert_eq!(zero.oldest(), None);
    }

    #[test]
    fn call_numbers_wrap() {
        let mut zero = ZeroCopy::new();
        zero.next = u32::MAX - 1;
        let chunks: Vec<_> = (0..4).map(|_| send(&mut zero)).collect();
        zero.complete(done(u32::MAX, 0));
        let which: Vec<_> = chunks.iter().map(held).collect();
        assert_eq!(which, [true, false, false, true]);
        zero.complete(done(u32::MAX - 1, 1));
        assert!(!chunks.iter().any(held));
    }

    #[test]
    fn a_peer_to_which_the_kernel_copies_is_left_alone() {
        let mut zero = ZeroCopy::new();
        let copied = |call| Completion { first: call, last: call, copied: true };
        for call in 0..10 {
            assert!(zero.should_use(2, MIN_BYTES));
            drop(send(&mut zero));
            // A completion without a copy restarts the count.
            zero.complete(if call == 2 { done(2, 2) } else { copied(call) });
            if call == 5 {
                assert!(!zero.should_use(2, MIN_BYTES));
                return;
            }
        }
        panic!("it should have given up");
    }

    #[test]
    fn small_batches_full_hands_and_a_poor_kernel_go_the_ordinary_way() {
        let mut zero = ZeroCopy::new();
        assert!(!zero.should_use(5, MIN_BYTES - 1));
        let chunks: Vec<_> = (0..MAX_HELD / 2).map(|_| send(&mut zero)).collect();
        assert!(!zero.should_use(1, MIN_BYTES));
        zero.complete(done(0, 0));
        assert!(
            !held(&chunks[0]) && zero.should_use(2, MIN_BYTES) && !zero.should_use(3, MIN_BYTES)
        );
        zero.record_refusal();
        assert!((0..SKIPPED_BATCHES).all(|_| !zero.should_use(1, MIN_BYTES)));
        assert!(zero.should_use(1, MIN_BYTES));
    }

    #[test]
    fn zerocopy_completions_are_parsed_for_ipv4_and_ipv6_only() {
        for (level, kind) in [(SOL_IP, IP_RECVERR), (SOL_IPV6, IPV6_RECVERR)] {
            let read = Completion::parse(&error(level, kind, 0, 7, 9));
            assert_eq!(read, Some(done(7, 9)));
            let copied = Completion::parse(&error(level, kind, CODE_COPIED, u32::MAX, 0));
            assert_eq!(copied, Some(Completion { first: u32::MAX, last: 0, copied: true }));
        }
        assert_eq!(Completion::parse(&error(SOL_IP, IPV6_RECVERR, 0, 1, 1)), None);
        // An ICMP error, and an entry with an errno.
        let mut other = error(SOL_IP, IP_RECVERR, 0, 1, 1);
        other.data[4] = 2;
        assert_eq!(Completion::parse(&other), None);
        let mut failed = error(SOL_IP, IP_RECVERR, 0, 1, 1);
        failed.data[..4].copy_from_slice(&111u32.to_ne_bytes());
        assert_eq!(Completion::parse(&failed), None);
    }
}

//! The memory of unfinished input: lines, messages and bodies whose end has not come.
//!
//! Each of them has a limit, but a thousand connections that never send the end would together hold
//! hundreds of megabytes. So all connections share one budget. It counts at the socket, where a
//! line, a message of a WebSocket and the body of a request are alike.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use aulos_io::memory::release_free_memory;
use tokio::time::sleep;

/// Unfinished input that each connection may hold beside the budget: more than an ordinary call, so
/// that an attacker who holds the whole budget prevents long calls only.
const FREE_BYTES: usize = 16 << 10;

/// Bytes of the budget: 128 of the longest lines at once.
const BUDGET_BYTES: usize = 32 << 20;

/// So much of the budget, once freed, is given back to the system.
const MUCH: usize = 4 << 20;

/// How often it is looked whether much was freed.
const RELEASE_INTERVAL: Duration = Duration::from_secs(2);

/// The budget of this process.
pub(crate) static INPUT_BUDGET: InputBudget = InputBudget::new(BUDGET_BYTES);

/// Bytes of unfinished input that connections may hold in all.
#[derive(Debug)]
pub(crate) struct InputBudget {
    limit: usize,
    held: AtomicUsize,
    /// Much was held since memory was released.
    held_much: AtomicBool,
}

/// The unfinished input of one connection; returned to the budget on drop.
#[derive(Debug)]
pub(crate) struct UnfinishedInput<'a> {
    budget: &'a InputBudget,
    bytes: AtomicUsize,
}

impl InputBudget {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0), held_much: AtomicBool::new(false) }
    }

    /// Whether much was held and is free now; then it is not so again until much was held again.
    fn take_freed(&self) -> bool {
        self.held.load(Ordering::Relaxed) < MUCH / 4
            && self.held_much.swap(false, Ordering::Relaxed)
    }

    /// A connection that has received nothing.
    pub(crate) const fn connection(&self) -> UnfinishedInput<'_> {
        UnfinishedInput { budget: self, bytes: AtomicUsize::new(0) }
    }
}

impl UnfinishedInput<'_> {
    /// Counts received bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`], when the budget is exhausted; the connection is to be
    /// closed.
    pub(crate) fn receive(&self, count: usize) -> io::Result<()> {
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        let more = charge(before + count) - charge(before);
        if more == 0 {
            return Ok(());
        }
        let held = self.budget.held.fetch_add(more, Ordering::Relaxed) + more;
        if held >= MUCH {
            self.budget.held_much.store(true, Ordering::Relaxed);
        }
        if held > self.budget.limit { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }

    /// Everything that was received is complete, and is no longer kept.
    pub(crate) fn complete(&self) {
        let before = self.bytes.swap(0, Ordering::Relaxed);
        self.budget.held.fetch_sub(charge(before), Ordering::Relaxed);
    }
}

impl Drop for UnfinishedInput<'_> {
    fn drop(&mut self) {
        self.complete();
    }
}

/// Gives the memory of unfinished input back to the system after it was freed. Many small pieces of
/// it lie between others, where the allocator keeps them.
pub(crate) async fn release_freed_input() {
    loop {
        sleep(RELEASE_INTERVAL).await;
        if INPUT_BUDGET.take_freed() {
            drop(tokio::task::spawn_blocking(release_free_memory).await);
        }
    }
}

/// Whether a body or a message ended because the budget was exhausted.
pub(crate) fn is_budget_error(error: &dyn Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::OutOfMemory;
        }
        cause = error.source();
    }
    false
}

/// What a connection with so much unfinished input takes of the budget.
const fn charge(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_input_has_a_limit_over_all_connections_and_short_calls_none() {
        const LONG: usize = 200_000;
        let budget = InputBudget::new(10 * LONG);
        let (mut held, mut cut) = (Vec::new(), 0);
        for _ in 0..1_100 {
            let connection = budget.connection();
            if (0..LONG / 4_000).all(|_| connection.receive(4_000).is_ok()) {
                held.push(connection);
            } else {
                cut += 1;
            }
        }
        assert!((10..=12).contains(&held.len()) && cut >= 1_088, "{} {cut}", held.len());
        let short = budget.connection();
        for _ in 0..1_000 {
            short.receive(FREE_BYTES).unwrap();
            short.complete();
        }
        held.iter().for_each(UnfinishedInput::complete);
        let next = budget.connection();
        next.receive(LONG).unwrap();
        drop((held, next, short));
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn much_that_was_freed_is_released_once() {
        let budget = InputBudget::new(4 * MUCH);
        let connection = budget.connection();
        connection.receive(MUCH / 2).unwrap();
        connection.complete();
        assert!(!budget.take_freed());
        connection.receive(2 * MUCH).unwrap();
        assert!(!budget.take_freed());
        connection.complete();
        assert!(budget.take_freed() && !budget.take_freed());
    }
}

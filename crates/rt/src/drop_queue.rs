//! A queue of values to be dropped on a thread that may free memory.
//!
//! A real-time thread that gets a new filter or buffer must dispose of the old one, and dropping it
//! would call the allocator. It pushes the value into a drop queue instead. For objects of one type
//! that are reused, a [`Pool`](crate::Pool) needs no drop queue.

use crate::ring::{Consumer, Producer, ring};

/// Creates a drop queue with room for `capacity` values that were not collected yet.
///
/// For values of many types let `T` be `Box<dyn Any + Send>`.
///
/// Not for a real-time thread: allocates.
///
/// # Panics
/// If that many values do not fit into memory.
///
/// # Examples
/// ```
/// let (mut queue, mut collector) = aulos_rt::drop_queue::<Vec<f32>>(16);
/// // Real-time side: the old one goes, nothing is freed.
/// assert!(queue.discard(vec![0.0; 1000]).is_ok());
/// // Any other thread, now and then:
/// assert_eq!(collector.collect(), 1);
/// ```
#[must_use]
pub fn drop_queue<T: Send>(capacity: usize) -> (DropQueue<T>, DropCollector<T>) {
    let (values, there) = ring(capacity);
    (DropQueue { values }, DropCollector { values: there })
}

/// The real-time end: takes values to be dropped.
#[derive(Debug)]
pub struct DropQueue<T> {
    values: Producer<T>,
}

impl<T: Send> DropQueue<T> {
    /// Queues a value for the collector.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no deallocation, no system call.
    ///
    /// # Errors
    /// Returns the value if the queue is full: keep it and try again later.
    #[inline]
    pub fn discard(&mut self, value: T) -> Result<(), T> {
        self.values.push(value)
    }
}

/// The end that drops the values. If it is dropped itself, values that are queued later are dropped
/// together with the [`DropQueue`], on that thread.
#[derive(Debug)]
pub struct DropCollector<T> {
    values: Consumer<T>,
}

impl<T: Send> DropCollector<T> {
    /// Drops all queued values and returns their number.
    ///
    /// Not for a real-time thread: frees memory.
    pub fn collect(&mut self) -> usize {
        let there = self.values.len();
        self.values.advance(there)
    }

    /// Whether the real-time end is gone; its values can still be collected.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.values.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_are_dropped_only_by_the_collector() {
        let value = Arc::new(());
        let (mut bin, mut collector) = drop_queue(2);
        assert!(bin.discard(Arc::clone(&value)).is_ok());
        assert!(bin.discard(Arc::clone(&value)).is_ok());
        assert!(bin.discard(Arc::clone(&value)).is_err());
        assert_eq!(Arc::strong_count(&value), 3);
        assert_eq!(collector.collect(), 2);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(bin);
        assert!(collector.is_abandoned());
    }
}

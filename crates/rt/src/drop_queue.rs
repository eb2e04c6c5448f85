//! Dropping what owns memory, on a thread that may free it.
//!
//! A real-time thread that is handed a new filter or a new buffer must get rid of the old one, and
//! dropping it would call the allocator. It throws it into a bin instead. Where objects are all of
//! one kind and come back into use, a [`Pool`](crate::Pool) does without.

use crate::ring::{Consumer, Producer, ring};

/// Makes a bin for `capacity` values that were not collected yet.
///
/// For values of many types let `T` be `Box<dyn Any + Send>`.
///
/// Not for a real-time thread: allocates.
///
/// # Panics
/// When that many values do not fit into memory.
///
/// # Examples
/// ```
/// let (mut bin, mut collector) = aulos_rt::bin::<Vec<f32>>(16);
/// // Real-time side: the old one goes, nothing is freed.
/// assert!(bin.discard(vec![0.0; 1000]).is_ok());
/// // Any other thread, now and then:
/// assert_eq!(collector.collect(), 1);
/// ```
#[must_use]
pub fn drop_queue<T: Send>(capacity: usize) -> (DropQueue<T>, DropCollector<T>) {
    let (values, there) = ring(capacity);
    (DropQueue { values }, DropCollector { values: there })
}

/// The real-time side: takes what is to be dropped.
#[derive(Debug)]
pub struct DropQueue<T> {
    values: Producer<T>,
}

impl<T: Send> DropQueue<T> {
    /// Leaves a value to the collector.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no freeing, no system call.
    ///
    /// # Errors
    /// Gives the value back when the bin is full: keep it and try again later.
    #[inline]
    pub fn discard(&mut self, value: T) -> Result<(), T> {
        self.values.push(value)
    }
}

/// The side that drops. When it is dropped itself, what is thrown away later is dropped with the
/// [`Bin`], on that thread.
#[derive(Debug)]
pub struct DropCollector<T> {
    values: Consumer<T>,
}

impl<T: Send> DropCollector<T> {
    /// Drops everything that is in the bin, and says how much that was.
    ///
    /// Not for a real-time thread: frees.
    pub fn collect(&mut self) -> usize {
        let there = self.values.len();
        self.values.advance(there)
    }

    /// The real-time side is gone; what it left can still be collected.
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
    fn values_are_dropped_by_the_collector_and_by_nobody_else() {
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

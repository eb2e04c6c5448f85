//! The unbounded queue: a linked list to which producers append and from which the consumer takes.
//!
//! The algorithm is D. Vyukov's multi-producer list (1024cores.net, 2010): the new node becomes the
//! tail, then its predecessor is linked to it. A null tail means closed, so nothing is accepted
//! after the close. A node holds one item (`docs/decisions/channel.md`).
#![allow(unsafe_code)]

use std::ptr;

use crate::spsc::CachePadded;
use crate::sync::{AtomicPtr, Ordering, UnsafeCell};

#[derive(Debug)]
pub(super) struct LinkedQueue<T> {
    /// The newest node; null when closed.
    tail: CachePadded<AtomicPtr<Node<T>>>,
    /// The node before the oldest item. Only the consumer moves it.
    head: CachePadded<AtomicPtr<Node<T>>>,
    /// The last node, once closed.
    last: AtomicPtr<Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    next: AtomicPtr<Self>,
    /// Empty in the node at the head.
    item: UnsafeCell<Option<T>>,
}

// SAFETY: an item moves from the producer's thread to the consumer's, which `T: Send` allows; the
// pointers are shared by the rules of `push` and `pop` only.
unsafe impl<T: Send> Sync for LinkedQueue<T> {}
// SAFETY: as above; nodes belong to the list and to no thread.
unsafe impl<T: Send> Send for LinkedQueue<T> {}

impl<T> LinkedQueue<T> {
    pub(super) fn new() -> Self {
        let first = Node::new(None);
        Self {
            tail: CachePadded(AtomicPtr::new(first)),
            head: CachePadded(AtomicPtr::new(first)),
            last: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Appends an item; returns it if the queue is closed. Allocates.
    pub(super) fn push(&self, item: T) -> Result<(), T> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        if tail.is_null() {
            return Err(item);
        }
        let node = Node::new(Some(item));
        // AcqRel: this node is complete for the next producer, and its predecessor is complete for
        // this one.
        while let Err(seen) =
            self.tail.0.compare_exchange_weak(tail, node, Ordering::AcqRel, Ordering::Relaxed)
        {
            if seen.is_null() {
                // SAFETY: the node was made above, and no other thread has seen it.
                let node = unsafe { Box::from_raw(node) };
                return node.into_item().map_or(Ok(()), Err);
            }
            tail = seen;
        }
        // SAFETY: the consumer frees a node only after it was linked to the next one, which happens
        // here; so the node before ours, which was the tail at the exchange, is still there.
        unsafe { &*tail }.next.store(node, Ordering::Release);
        Ok(())
    }

    /// Takes the oldest item, unless its node is not linked yet.
    ///
    /// # Safety
    /// * No other thread calls this, `has_item` or `is_drained` at the same time.
    pub(super) unsafe fn pop(&self) -> Option<T> {
        let head = self.head.0.load(Ordering::Relaxed);
        // SAFETY: the head is freed by this function only, below.
        let next = unsafe { &*head }.next.load(Ordering::Acquire);
        if next.is_null() {
            return None;
        }
        // SAFETY: a linked node stays until the head has passed it.
        let node = unsafe { &*next };
        // SAFETY: its producer has finished with the item, and the consumer is one thread.
        let item = node.item.with_mut(|item| unsafe { (*item).take() });
        self.head.0.store(next, Ordering::Relaxed);
        // SAFETY: it came from a box; its producer and that of the next node have finished with it.
        drop(unsafe { Box::from_raw(head) });
        item
    }

    /// Whether the oldest item can be taken.
    ///
    /// # Safety
    /// * As for `pop`.
    pub(super) unsafe fn has_item(&self) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        // SAFETY: the head is freed by `pop` only, which does not run now.
        !unsafe { &*head }.next.load(Ordering::Acquire).is_null()
    }

    /// Whether the queue is closed and every accepted item has been taken.
    ///
    /// # Safety
    /// * As for `pop`.
    pub(super) unsafe fn is_drained(&self) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        self.is_closed() && self.head.0.load(Ordering::Relaxed) == last
    }

    /// Closes the queue. Called by the consumer only.
    pub(super) fn close(&self) {
        let last = self.tail.0.swap(ptr::null_mut(), Ordering::AcqRel);
        if !last.is_null() {
            self.last.store(last, Ordering::Relaxed);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tail.0.load(Ordering::Acquire).is_null()
    }
}

impl<T> Drop for LinkedQueue<T> {
    fn drop(&mut self) {
        // SAFETY: no other reference to this queue exists any more.
        while let Some(item) = unsafe { self.pop() } {
            drop(item);
        }
        let head = self.head.0.load(Ordering::Relaxed);
        // SAFETY: the remaining node came from a box.
        drop(unsafe { Box::from_raw(head) });
    }
}

impl<T> Node<T> {
    fn new(item: Option<T>) -> *mut Self {
        let next = AtomicPtr::new(ptr::null_mut());
        Box::into_raw(Box::new(Self { next, item: UnsafeCell::new(item) }))
    }

    fn into_item(self) -> Option<T> {
        // SAFETY: this function owns the node exclusively.
        self.item.with_mut(|item| unsafe { (*item).take() })
    }
}

//! The buffers of receive calls.

use super::super::slots::Slots;
use crate::sys::Receiver;

/// The buffers of a receive call.
pub(super) struct ReceiveBuffers {
    pub(super) slots: Slots,
    pub(super) receiver: Receiver,
}

impl ReceiveBuffers {
    pub(super) fn new(count: usize, largest: usize) -> Self {
        Self { slots: Slots::new(count, largest), receiver: Receiver::new(count) }
    }

    /// For joined datagrams.
    pub(super) fn for_joined() -> Self {
        Self::new(JOINED_SLOTS, MAX_JOINED_BYTES)
    }
}

/// Joined pieces of up to 64 datagrams per call.
const JOINED_SLOTS: usize = 16;

const MAX_JOINED_BYTES: usize = 65_536;

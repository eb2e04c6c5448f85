//! Drives a machine without a thread, for tests of machines.

use core::net::SocketAddr;

use aulos_core::Instant;

use super::{Machine, Outbox, Packet, Packets, SendQueue};

/// The datagrams that were sent, with their destinations.
pub(crate) type SentDatagrams = Vec<(SocketAddr, Vec<u8>)>;

/// Delivers a datagram to `machine`.
pub(crate) fn deliver<M: Machine>(
    machine: &mut M,
    now: Instant,
    from: SocketAddr,
    bytes: &[u8],
) -> SentDatagrams {
    deliver_to(machine, false, now, from, bytes)
}

/// The same, to the second socket if `is_second`.
pub(crate) fn deliver_to<M: Machine>(
    machine: &mut M,
    is_second: bool,
    now: Instant,
    from: SocketAddr,
    bytes: &[u8],
) -> SentDatagrams {
    let mut bytes = bytes.to_vec();
    let packet = Packet { bytes: &mut bytes, received: now, from, is_answer: false, is_second };
    with_outbox(now, |out| machine.handle_packets(now, &mut Packets::one(packet), out))
}

/// Fires the timers that are due at `now`.
pub(crate) fn tick<M: Machine>(machine: &mut M, now: Instant) -> SentDatagrams {
    with_outbox(now, |out| machine.handle_timeout(now, out))
}

/// Ends the machine.
pub(crate) fn finish<M: Machine>(machine: &mut M, now: Instant) -> SentDatagrams {
    with_outbox(now, |out| machine.finish(now, out))
}

fn with_outbox(now: Instant, call: impl FnOnce(&mut Outbox<'_>)) -> SentDatagrams {
    let mut queue = SendQueue::new();
    call(&mut Outbox::new(&mut queue, None, now));
    let mut sent = SentDatagrams::new();
    queue.drain_runs(|run, bytes| {
        sent.extend(run.iter().map(|one| (one.to, bytes[one.range()].to_vec())));
        0
    });
    sent
}

//! The order of calls whose work grows with the number of clients: one at a time, so that a short
//! call waits for at most one of them. Addresses take turns: with one queue for all, a full status
//! would wait behind the batches of an attacker with many connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedMutexGuard};

/// Addresses that are remembered before those without a waiting call are forgotten.
const IDLE_ADDRESSES: usize = 64;

/// Grants the turns.
#[derive(Debug, Default)]
pub(super) struct LongCalls {
    /// Held by the call that runs; at most one call of each address waits for it.
    running: AsyncMutex<()>,
    addresses: Mutex<HashMap<IpAddr, Arc<AsyncMutex<()>>>>,
}

/// The right to run a long call, until it is dropped.
#[derive(Debug)]
pub(super) struct LongCallTurn<'a> {
    _running: MutexGuard<'a, ()>,
    _address: OwnedMutexGuard<()>,
}

impl LongCalls {
    /// Waits for the turn of a call from this address: first for the address's earlier calls, then
    /// for one call of each other address that waits.
    pub(super) async fn turn(&self, from: IpAddr) -> LongCallTurn<'_> {
        let address = self.address(from).lock_owned().await;
        LongCallTurn { _running: self.running.lock().await, _address: address }
    }

    fn address(&self, from: IpAddr) -> Arc<AsyncMutex<()>> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= IDLE_ADDRESSES {
            addresses.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(addresses.entry(from).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test]
    async fn an_address_waits_for_one_call_of_each_other_address() {
        let calls = Arc::new(LongCalls::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let running = calls.turn(ip(1)).await;
        let call = |from| {
            let (calls, order) = (Arc::clone(&calls), Arc::clone(&order));
            tokio::spawn(async move {
                let turn = calls.turn(ip(from)).await;
                order.lock().unwrap().push(from);
                tokio::task::yield_now().await;
                drop(turn);
            })
        };
        let mut tasks: Vec<_> = (0..50).map(|_| call(1)).collect();
        tokio::task::yield_now().await;
        tasks.extend([call(2), call(2), call(3)]);
        tokio::task::yield_now().await;
        drop(running);
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap();
        let at = |from| order.iter().position(|other| *other == from).unwrap();
        assert_eq!(order.len(), 53);
        assert!(at(2) <= 2 && at(3) <= 2, "{order:?}");
        let second = order.iter().rposition(|other| *other == 2).unwrap();
        assert!(second <= 5, "{order:?}");
    }

    #[tokio::test]
    async fn addresses_without_a_waiting_call_are_forgotten() {
        let calls = LongCalls::default();
        let turn = calls.turn(ip(0)).await;
        let waiting = calls.address(ip(1));
        drop(turn);
        for last in 2..=255 {
            drop(calls.turn(ip(last)).await);
        }
        assert!(calls.addresses.lock().unwrap().len() <= IDLE_ADDRESSES);
        assert!(Arc::ptr_eq(&waiting, &calls.address(ip(1))));
    }
}

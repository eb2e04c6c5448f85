//! The order of calls whose work grows with the number of clients: one at a time, so that a short
//! call waits for at most one of them. Addresses take turns: with one queue for all, a full status
//! would wait behind the batches of an attacker with many connections. Of one address, one line is
//! executed at a time: otherwise the batches of all its connections would each hold a half-built
//! answer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_io::reactor::address_key;
use tokio::sync::{
    Mutex as AsyncMutex, MutexGuard, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore,
};

use super::answer::{AnswerPermit, LARGE_ANSWERS_PER_ADDRESS, MAX_LARGE_ANSWERS};

/// Addresses that are remembered before those without a waiting call are forgotten.
const IDLE_ADDRESSES: usize = 64;

/// Grants the turns, and the permits for large answers.
#[derive(Debug)]
pub(super) struct LongCalls {
    /// Held by the call that runs; at most one call of each address waits for it.
    running: AsyncMutex<()>,
    answers: Arc<Semaphore>,
    /// By [`address_key`].
    addresses: Mutex<HashMap<u128, Arc<AddressQueue>>>,
}

#[derive(Debug)]
struct AddressQueue {
    /// Held by the line that is executed.
    line: Arc<AsyncMutex<()>>,
    answers: Arc<Semaphore>,
}

impl Default for AddressQueue {
    fn default() -> Self {
        Self { line: Arc::default(), answers: Arc::new(Semaphore::new(LARGE_ANSWERS_PER_ADDRESS)) }
    }
}

impl AddressQueue {
    fn has_answers(&self) -> bool {
        self.answers.available_permits() < LARGE_ANSWERS_PER_ADDRESS
    }
}

impl Default for LongCalls {
    fn default() -> Self {
        Self {
            running: AsyncMutex::default(),
            answers: Arc::new(Semaphore::new(MAX_LARGE_ANSWERS)),
            addresses: Mutex::default(),
        }
    }
}

/// A line of JSON-RPC or a request of the status, whose answer may be large.
#[derive(Debug)]
pub(super) struct LongCallRequest<'a> {
    calls: &'a LongCalls,
    from: IpAddr,
    permit: Option<AnswerPermit>,
    executed: Option<OwnedMutexGuard<()>>,
}

/// The right to run a long call, until it is dropped.
pub(super) type LongCallTurn<'a> = MutexGuard<'a, ()>;

impl LongCalls {
    /// A request from this address; it holds nothing yet.
    pub(super) const fn request(&self, from: IpAddr) -> LongCallRequest<'_> {
        LongCallRequest { calls: self, from, permit: None, executed: None }
    }

    /// A permit for a large answer that is already rendered.
    pub(super) async fn answer_permit(&self, from: IpAddr) -> AnswerPermit {
        self.permit_of(&self.address(from)).await
    }

    async fn permit_of(&self, address: &AddressQueue) -> AnswerPermit {
        let address = permit(&address.answers).await;
        AnswerPermit::new(address, permit(&self.answers).await)
    }

    fn address(&self, from: IpAddr) -> Arc<AddressQueue> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= IDLE_ADDRESSES {
            addresses.retain(|_, queue| Arc::strong_count(queue) > 1 || queue.has_answers());
        }
        Arc::clone(addresses.entry(address_key(from.to_canonical())).or_default())
    }
}

impl<'a> LongCallRequest<'a> {
    /// Waits for the address's earlier lines, then for the permit; at once from the second time on.
    pub(super) async fn begin(&mut self) {
        if self.permit.is_none() {
            let address = self.calls.address(self.from);
            self.executed = Some(Arc::clone(&address.line).lock_owned().await);
            self.permit = Some(self.calls.permit_of(&address).await);
        }
    }

    /// Waits for the turn of a long call: for [`Self::begin`], then for one call of each other
    /// address that waits.
    pub(super) async fn turn(&mut self) -> LongCallTurn<'a> {
        self.begin().await;
        self.calls.running.lock().await
    }

    /// Lets the address's next line begin, while a call of this one waits for another program.
    pub(super) fn let_others_begin(&mut self) {
        self.executed = None;
    }

    /// Ends the line, and returns the permit for its answer.
    pub(super) fn end(self) -> Option<AnswerPermit> {
        self.permit
    }
}

async fn permit(answers: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let Ok(permit) = Arc::clone(answers).acquire_owned().await else {
        unreachable!("the semaphore is never closed")
    };
    permit
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use tokio::task::yield_now;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// The order in which the lines of these addresses are executed, two long calls each.
    async fn order_of(first: usize, then: &[u8]) -> Vec<u8> {
        let calls = Arc::new(LongCalls::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let line = |from| {
            let (calls, order) = (Arc::clone(&calls), Arc::clone(&order));
            tokio::spawn(async move {
                let mut line = calls.request(ip(from));
                for _ in 0..2 {
                    let turn = line.turn().await;
                    order.lock().unwrap().push(from);
                    yield_now().await;
                    drop(turn);
                }
            })
        };
        let running = calls.running.lock().await;
        let mut tasks: Vec<_> = (0..first).map(|_| line(1)).collect();
        yield_now().await;
        tasks.extend(then.iter().map(|from| line(*from)));
        yield_now().await;
        drop(running);
        for task in tasks {
            task.await.unwrap();
        }
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn an_address_waits_for_one_call_of_each_other_address() {
        let order = order_of(50, &[2, 2, 3]).await;
        let at = |from| order.iter().position(|other| *other == from).unwrap();
        assert_eq!(order.len(), 106);
        assert!(at(2) <= 2 && at(3) <= 2, "{order:?}");
        let last = order.iter().rposition(|other| *other == 2).unwrap();
        assert!(last <= 10, "{order:?}");
    }

    fn is_ready(future: Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    async fn answers(calls: &LongCalls, from: IpAddr, count: usize) -> Vec<AnswerPermit> {
        let mut held = Vec::new();
        for _ in 0..count {
            let mut line = calls.request(from);
            line.begin().await;
            held.push(line.end().unwrap());
        }
        held
    }

    #[tokio::test]
    async fn an_address_has_some_large_answers_in_memory_and_all_have_some_more() {
        let calls = LongCalls::default();
        let mut held = answers(&calls, ip(1), LARGE_ANSWERS_PER_ADDRESS).await;
        let mut line = calls.request(ip(1));
        let mut next = pin!(line.begin());
        assert!(!is_ready(next.as_mut()));
        drop(answers(&calls, ip(2), LARGE_ANSWERS_PER_ADDRESS).await);
        held.pop();
        assert!(is_ready(next.as_mut()));
        for last in 2..=4 {
            held.extend(answers(&calls, ip(last), LARGE_ANSWERS_PER_ADDRESS).await);
        }
        let mut line = calls.request(ip(5));
        let mut next = pin!(line.begin());
        assert!(!is_ready(next.as_mut()), "{MAX_LARGE_ANSWERS} answers");
        held.pop();
        assert!(is_ready(next.as_mut()));
    }

    #[tokio::test]
    async fn the_addresses_of_one_network_share_their_answers() {
        let calls = LongCalls::default();
        let [one, neighbor, elsewhere] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|ip| ip.parse().unwrap());
        let _held = answers(&calls, one, LARGE_ANSWERS_PER_ADDRESS).await;
        let mut request = calls.request(neighbor);
        assert!(!is_ready(pin!(request.begin())));
        let mut request = calls.request(elsewhere);
        assert!(is_ready(pin!(request.begin())));
    }

    #[tokio::test]
    async fn addresses_are_forgotten_without_a_waiting_line_and_without_an_answer() {
        let calls = LongCalls::default();
        let held = answers(&calls, ip(1), 1).await;
        let queue = Arc::downgrade(&calls.address(ip(1)));
        for last in 2..=255 {
            drop(answers(&calls, ip(last), 1).await);
        }
        assert!(calls.addresses.lock().unwrap().len() <= IDLE_ADDRESSES);
        assert!(queue.upgrade().is_some());
        drop(held);
        for last in 2..=255 {
            drop(answers(&calls, ip(last), 1).await);
        }
        assert!(queue.upgrade().is_none());
    }
}

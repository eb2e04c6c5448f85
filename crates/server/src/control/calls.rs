//! Calls: what one line of JSON-RPC does to the control plane.
//!
//! The registry's lock is held for one call and never for a list of them, and between two calls of a
//! list everything else on this thread has its turn. Before that a list of 256 calls kept every other
//! connection, every newcomer and the stations' events waiting for as long as all of them took.

use aulos_io::SystemClock;
use aulos_proto::snap::control::{Id, Reply, Request, RpcError};
use tokio::sync::MutexGuard;
use tokio::task::yield_now;

use super::roles::{self, FORBIDDEN, UNAUTHORIZED};
use super::rpc::{Calls, Outcome};
use super::{Caller, Control, State, count, methods};
use crate::access::Role;

impl Control {
    /// Answers a line of JSON-RPC, as far as the caller may; the caller gets no notification of what
    /// it changes itself.
    pub async fn request(&self, caller: &mut Caller, line: &[u8]) -> Option<String> {
        let mut calls = match Calls::parse(line) {
            Ok(calls) => calls,
            Err(not_understood) => {
                count(&self.counters.rpc_not_understood);
                return Some(not_understood);
            }
        };
        if calls.is_batch() && caller.role == Role::Nobody {
            count(&self.counters.calls_refused_before_login);
            return Some(refusal(UNAUTHORIZED, "a list of calls needs a login before it"));
        }
        while let Some(request) = calls.next() {
            let turn = self.turn(&request.method).await;
            let (outcome, cost) = self.call(caller, &request);
            calls.answer(request, outcome, cost);
            if calls.is_batch() || turn.is_some() {
                // With its turn, so that what waits for other things comes before the next long call.
                yield_now().await;
            }
        }
        if calls.refused() > 0 {
            count(&self.counters.batches_over_budget);
        }
        calls.into_answer()
    }

    /// Of calls whose work grows with the house only one is under way at a time, in the order in which
    /// they came, so that however many connections make them a short call waits for one of them.
    async fn turn(&self, method: &str) -> Option<MutexGuard<'_, ()>> {
        if roles::is_long(method) { Some(self.long_calls.lock().await) } else { None }
    }

    /// The status, in turn with long calls.
    pub(crate) async fn status_in_turn(&self) -> String {
        let turn = self.long_calls.lock().await;
        let status = self.status();
        yield_now().await;
        drop(turn);
        status
    }

    /// Carries out one call: what came of it, and what it cost beside its answer.
    fn call(&self, caller: &mut Caller, request: &Request) -> (Result<Outcome, RpcError>, usize) {
        let Request { id, method, params, .. } = request;
        // It has no effect and no answer.
        if id.is_none() && roles::only_reads(method) {
            return (Ok(Outcome::Tree(serde_json::Value::Null)), 0);
        }
        if let Err(refused) = self.may_call_before_login(caller, method) {
            return (Err(refused), 0);
        }
        let mut inner = self.lock();
        let before = inner.rendered;
        let (mut kept, mut ended, mut text) = (Vec::new(), Vec::new(), None);
        let mut state = State {
            control: self,
            inner: &mut inner,
            caller,
            kept: &mut kept,
            ended: &mut ended,
            text: &mut text,
            answered: id.is_some(),
        };
        let answer = methods::run(&mut state, method, params);
        // Others hear of each change before the next one is made.
        for effects in kept {
            self.carry_out(&mut inner, effects, caller.peer);
        }
        for number in ended {
            self.house.remove_station(number);
        }
        let cost = roles::weight(method) + inner.rendered.wrapping_sub(before);
        (answer.map(|tree| text.map_or(Outcome::Tree(tree), Outcome::Text)), cost)
    }

    /// A connection without a login has few calls to make; a login itself is bounded by the wrong
    /// ones of its address, so that others behind the same router can still log in.
    fn may_call_before_login(&self, caller: &mut Caller, method: &str) -> Result<(), RpcError> {
        if caller.role != Role::Nobody {
            return Ok(());
        }
        let now = SystemClock::now();
        let is_login = method == "Server.Authenticate";
        if caller.before_login.take(now) && (is_login || self.access.may_call(caller.from, now)) {
            return Ok(());
        }
        count(&self.counters.calls_refused_before_login);
        Err(error(FORBIDDEN, "too many calls before a login: try again in a moment"))
    }
}

fn error((code, message): (i64, &'static str), data: &str) -> RpcError {
    RpcError { data: Some(data.into()), ..RpcError::new(code, message) }
}

/// The answer to a line that is not looked at.
fn refusal(what: (i64, &'static str), data: &str) -> String {
    Reply { id: Id::Null, outcome: Err(error(what, data)) }.to_json()
}

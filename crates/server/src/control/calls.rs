//! Executes the calls of one line of JSON-RPC.
//!
//! The state is locked for one call, not for a whole batch, and the thread yields between two calls
//! of a batch. A batch that held it would block all other connections
//! (`docs/decisions/control-state.md`).

use aulos_io::SystemClock;
use aulos_proto::snap::control::{Reply, Request, RequestId, RpcError};
use tokio::sync::MutexGuard;
use tokio::task::yield_now;

use super::markers::PendingMarkers;
use super::roles::{self, FORBIDDEN, UNAUTHORIZED};
use super::rpc::{CallBatch, CallOutput};
use super::{CallContext, Caller, Control, count, methods};
use crate::access::Role;

impl Control {
    /// Answers a line of JSON-RPC with the caller's permissions. The caller gets no notifications
    /// of its own changes.
    pub async fn request(&self, caller: &mut Caller, line: &[u8]) -> Option<String> {
        let mut calls = match CallBatch::parse(line) {
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
            let turn = self.lock_long_calls(&request.method).await;
            let (outcome, cost, pending) = self.call(caller, &request);
            let outcome = match pending.filter(|_| request.id.is_some()) {
                Some(markers) => markers.answer().await.map(CallOutput::Tree),
                None => outcome,
            };
            calls.answer(request, outcome, cost);
            if calls.is_batch() || turn.is_some() {
                // The lock on long calls is still held, so other tasks run before the next long
                // call.
                yield_now().await;
            }
        }
        if calls.refused() > 0 {
            count(&self.counters.batches_over_budget);
        }
        calls.into_answer()
    }

    /// The lock on long calls, taken if `method` is one. Only one long call runs at a time, in
    /// order of arrival, so that a short call waits for at most one of them.
    async fn lock_long_calls(&self, method: &str) -> Option<MutexGuard<'_, ()>> {
        if roles::is_long(method) { Some(self.long_calls.lock().await) } else { None }
    }

    /// The status, after the long calls that came before.
    pub(crate) async fn status_after_long_calls(&self) -> String {
        let turn = self.long_calls.lock().await;
        let status = self.status();
        yield_now().await;
        drop(turn);
        status
    }

    /// Executes one call; returns its result, its cost without the answer, and the markers that the
    /// answer waits for.
    fn call(
        &self,
        caller: &mut Caller,
        request: &Request,
    ) -> (Result<CallOutput, RpcError>, usize, Option<PendingMarkers>) {
        let Request { id, method, params, .. } = request;
        // A read without an id has no effect and no answer.
        if id.is_none() && roles::only_reads(method) {
            return (Ok(CallOutput::Tree(serde_json::Value::Null)), 0, None);
        }
        if let Err(refused) = self.check_call_before_login(caller, method) {
            return (Err(refused), 0, None);
        }
        let mut inner = self.lock();
        let before = inner.rendered_bytes;
        let (mut kept, mut ended, mut text, mut markers) = (Vec::new(), Vec::new(), None, None);
        let mut state = CallContext {
            control: self,
            inner: &mut inner,
            caller,
            effects: &mut kept,
            removed_stations: &mut ended,
            text_answer: &mut text,
            markers: &mut markers,
            has_id: id.is_some(),
        };
        let answer = methods::dispatch(&mut state, method, params);
        // Controllers are notified of each change before the next one is made.
        for effects in kept {
            self.apply_effects(&mut inner, effects, caller.peer);
        }
        for number in ended {
            self.backend.remove_station(number);
        }
        let cost = roles::call_cost(method) + inner.rendered_bytes.wrapping_sub(before);
        (answer.map(|tree| text.map_or(CallOutput::Tree(tree), CallOutput::Text)), cost, markers)
    }

    /// Limits the calls of a connection that has not logged in. Logins are limited per address by
    /// the failed ones only, so that others behind the same router can still log in.
    fn check_call_before_login(&self, caller: &mut Caller, method: &str) -> Result<(), RpcError> {
        if caller.role != Role::Nobody {
            return Ok(());
        }
        let now = SystemClock::now();
        let is_login = method == "Server.Authenticate";
        if caller.login_budget.try_take(now) && (is_login || self.access.may_call(caller.from, now))
        {
            return Ok(());
        }
        count(&self.counters.calls_refused_before_login);
        Err(rpc_error(FORBIDDEN, "too many calls before a login: try again in a moment"))
    }
}

fn rpc_error((code, message): (i64, &'static str), data: &str) -> RpcError {
    RpcError { data: Some(data.into()), ..RpcError::new(code, message) }
}

/// The error for a line that is not executed.
fn refusal(what: (i64, &'static str), data: &str) -> String {
    Reply { id: RequestId::Null, outcome: Err(rpc_error(what, data)) }.to_json()
}

//! Executes the calls of one line of JSON-RPC.
//!
//! The state is locked for one call, not for a whole batch, and the thread yields between two calls
//! of a batch. A batch that held it would block all other connections
//! (`docs/decisions/control-state.md`).

use std::net::IpAddr;

use aulos_proto::snap::control::{Reply, Request, RequestId, RpcError};
use serde_json::Value;
use tokio::task::yield_now;

use super::answer::Answer;
use super::context::{CallContext, CallEffects};
use super::counters::count;
use super::state::{Control, Subjects};
use crate::access::Role;
use crate::methods;
use crate::methods::method::{self, COST_PER_CLIENT, CallCost, Method};
use crate::methods::roles::{Caller, FORBIDDEN, UNAUTHORIZED};
use crate::methods::rpc::{CallBatch, CallOutput, MethodResult, method_not_found};
use crate::peers::long_calls::{AnswerPermit, LARGE_ANSWER};

impl Control {
    /// Answers a line of JSON-RPC with the caller's permissions. The caller gets no notifications
    /// of its own changes.
    pub async fn request(&self, caller: &mut Caller, line: &[u8]) -> Option<Answer> {
        let mut calls = match CallBatch::parse(line) {
            Ok(calls) => calls,
            Err(not_understood) => {
                count(&self.counters.rpc_not_understood);
                return Some(not_understood.into());
            }
        };
        if calls.is_batch() && caller.role == Role::None {
            count(&self.counters.calls_refused_before_login);
            return Some(refusal(UNAUTHORIZED, "a batch requires a login first").into());
        }
        let mut long = self.long_calls.request(caller.from, calls.is_batch());
        while let Some(request) = calls.next() {
            let method = methods::find(&request.method);
            if calls.answer_length() >= LARGE_ANSWER {
                long.begin().await;
            }
            let is_long = method.is_some_and(Method::is_long);
            let mut turn = if is_long { Some(long.turn().await) } else { None };
            let mut begin = self.clock.local();
            let done = self.call(caller, &request, method);
            let result = match done.result {
                Ok(CallOutput::Later(later)) if request.id.is_some() => {
                    turn = None;
                    long.pause(calls.answer_length());
                    let took = self.clock.local() - begin;
                    let answer = later.await.map(CallOutput::Tree);
                    // The wait does not occupy the server.
                    begin = self.clock.local() - took;
                    answer
                }
                result => result,
            };
            calls.answer(request, result, done.cost);
            let name = method.map(|method| method.name);
            self.statistics.count_call(name, self.clock.local() - begin);
            if turn.is_some() {
                // The turn is still held, so other tasks run before the next long call.
                let_others_run().await;
            } else if calls.is_batch() {
                yield_now().await;
            }
        }
        if calls.refused() > 0 {
            count(&self.counters.batches_over_budget);
        }
        calls.into_answer().map(|text| {
            let permit = long.end(text.len());
            Answer::new(text, permit)
        })
    }

    /// The status, in the turn of this address among the long calls.
    pub async fn status_after_long_calls(&self, from: IpAddr) -> Answer {
        let mut long = self.long_calls.request(from, false);
        let turn = long.turn().await;
        let status = self.status();
        let_others_run().await;
        drop(turn);
        let permit = long.end(status.len());
        Answer::new(status, permit)
    }

    /// The permit to send this address a text of `length` bytes that others are sent too; none for
    /// a small one.
    pub async fn answer_permit(&self, from: IpAddr, length: usize) -> Option<AnswerPermit> {
        if length < LARGE_ANSWER {
            return None;
        }
        Some(self.long_calls.answer_permit(from, length).await)
    }

    /// Executes one call.
    fn call(
        &self,
        caller: &mut Caller,
        request: &Request,
        method: Option<&'static Method>,
    ) -> FinishedCall {
        let has_id = request.id.is_some();
        // A read without an id has no effect and no answer.
        if !has_id && method.is_some_and(Method::only_reads) {
            return FinishedCall { result: Ok(Value::Null.into()), cost: 0 };
        }
        if let Err(refused) = check_call_before_login(self, caller, &request.method) {
            return FinishedCall { result: Err(refused), cost: 0 };
        }
        let Some(method) = method else {
            return FinishedCall { result: Err(method_not_found()), cost: UNKNOWN_METHOD_COST };
        };
        let (result, cost) = self.execute(caller, request, method);
        // What the notifications cost is known once they are rendered.
        let cost = cost + self.deliver();
        FinishedCall { result, cost }
    }

    /// Executes a call under the lock; returns its cost without answer and notifications too.
    fn execute(
        &self,
        caller: &mut Caller,
        request: &Request,
        method: &Method,
    ) -> (MethodResult, usize) {
        run_call(self, caller, method, |context| {
            warn_of_alias(context.subjects, method, &request.method);
            method.call(context, &request.params)
        })
    }
}

/// Runs what a call does if the caller may call this method, and carries out what it leaves
/// behind; returns the cost too.
pub(crate) fn run_call<T>(
    control: &Control,
    caller: &mut Caller,
    method: &Method,
    run: impl FnOnce(&mut CallContext<'_>) -> Result<T, RpcError>,
) -> (Result<T, RpcError>, usize) {
    let subjects = &mut *control.lock();
    let peer = caller.peer;
    let outcome = CallEffects::default();
    let mut context = CallContext { control, subjects, caller, outcome };
    let result = method::authorize(context.caller, method).and_then(|()| run(&mut context));
    let CallContext { subjects, outcome: CallEffects { changes, removed_stations }, .. } = context;
    let commands = changes.iter().map(|effects| effects.commands.len()).sum::<usize>();
    // Controllers are notified of each change before the next one is made.
    for effects in changes {
        control.apply_effects(subjects, effects, peer);
    }
    for number in removed_stations {
        control.backend.remove_station(number);
    }
    let clients = subjects.clients.registry.table.client_count();
    (result, method.cost.bytes(clients) + commands * COST_PER_CLIENT)
}

/// Limits the calls of a connection that has not logged in. Logins are limited per address by the
/// failed ones only, so that others behind the same router can still log in.
fn check_call_before_login(
    control: &Control,
    caller: &mut Caller,
    method: &str,
) -> Result<(), RpcError> {
    if caller.role != Role::None {
        return Ok(());
    }
    let now = control.clock.local();
    let is_login = method == "Server.Authenticate";
    if caller.login_budget.try_take(now) && (is_login || control.access.may_call(caller.from, now))
    {
        return Ok(());
    }
    count(&control.counters.calls_refused_before_login);
    Err(rpc_error(FORBIDDEN, "too many calls before a login; try again in a second"))
}

/// Whether a line is a single call of a method that requires no login.
#[must_use]
pub fn is_call_for_everyone(line: &[u8]) -> bool {
    let Ok(mut calls) = CallBatch::parse(line) else { return false };
    !calls.is_batch()
        && calls
            .next()
            .and_then(|request| methods::find(&request.method))
            .is_some_and(|method| method.role == Role::None)
}

/// Lets the short work of others be done between two long calls. A call over a new connection takes
/// several passes through all tasks: it is accepted, its first bytes are awaited, it is executed.
/// If each pass had a long call, it would wait for several of them.
async fn let_others_run() {
    for _ in 0..PASSES_BETWEEN_LONG_CALLS {
        yield_now().await;
    }
}

/// A pass without other work takes a few microseconds.
const PASSES_BETWEEN_LONG_CALLS: u32 = 4;

/// A call that has been executed, or refused.
struct FinishedCall {
    result: MethodResult,
    /// Its cost in a batch, without the answer.
    cost: usize,
}

/// The cost of a call of an unknown method in a batch.
const UNKNOWN_METHOD_COST: usize = CallCost::Plain.bytes(0);

/// Logs the first call that uses a former name of a method.
fn warn_of_alias(subjects: &mut Subjects, method: &Method, called: &str) {
    let alias = method.aliases.iter().copied().find(|alias| *alias == called);
    if let Some(alias) = alias.filter(|alias| subjects.logged_aliases.insert(alias)) {
        tracing::warn!("the control method {alias} is now called {}", method.name);
    }
}

fn rpc_error((code, message): (i64, &'static str), data: &str) -> RpcError {
    RpcError { data: Some(data.into()), ..RpcError::new(code, message) }
}

/// The error for a line that is not executed.
fn refusal(what: (i64, &'static str), data: &str) -> String {
    Reply { id: RequestId::Null, outcome: Err(rpc_error(what, data)) }.to_json()
}

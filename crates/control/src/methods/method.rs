//! A row of the method table: all that the server knows of a control method.
//!
//! Dispatch, permission check, parameter check, `General.GetRPCCommands`, the OpenRPC document and
//! the reference page all read the row. Separate lists of roles and of expensive methods were
//! rejected: a method that is missing in one of them is noticed late.

use aulos_proto::snap::control::RpcError;
use serde_json::Value;

use crate::access::Role;
use crate::control::context::CallContext;
use crate::methods::named_params::with_ids;
use crate::methods::params::{Param, ParamPolicy, Params};
use crate::methods::roles::{Caller, FORBIDDEN, UNAUTHORIZED};
use crate::methods::rpc::MethodResult;

pub(crate) type Handler = fn(&mut CallContext<'_>, &Params<'_>) -> MethodResult;

/// The method that returns the OpenRPC document; its name is that of the OpenRPC specification.
pub(crate) const DISCOVER: &str = "rpc.discover";

/// A control method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    /// Former names, which go on working.
    pub(crate) aliases: &'static [&'static str],
    /// The least role of a caller.
    pub(crate) role: Role,
    /// The caller needs the permission for logs too.
    pub(crate) needs_log: bool,
    pub(crate) cost: CallCost,
    /// An imperative without a full stop.
    pub(crate) about: &'static str,
    pub(crate) params: &'static [Param],
    /// Of these a call may have one only.
    pub(crate) exclusive: &'static [&'static str],
    pub(crate) result: ResultType,
    /// The notifications that a successful call causes.
    pub(crate) notifications: &'static [&'static str],
    pub(crate) run: Handler,
    pub(crate) policy: ParamPolicy,
}

/// The result of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResultType {
    /// The text `"ok"`.
    Ok,
    /// An object with these members: their names, and their JSON types separated by `|`.
    Members(&'static [(&'static str, &'static str)]),
    /// An object that another document describes.
    Document(&'static str),
}

/// The work that a call causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallCost {
    Plain,
    /// It grows with the number of clients; its cost in a batch is the JSON that it renders.
    Long,
    /// It copies all clients.
    AllClients,
    /// It waits for other threads or opens ports.
    Heavy,
}

impl CallCost {
    /// The cost of a call besides its JSON, in the bytes of
    /// [`crate::methods::rpc::MAX_BATCH_COST`], on a server with so many clients: a full batch of
    /// plain calls costs an eighth of the limit, and a batch has at most 32 heavy ones.
    pub(crate) const fn bytes(self, clients: usize) -> usize {
        match self {
            Self::Plain | Self::Long => PLAIN_COST,
            Self::AllClients => PLAIN_COST + clients * COST_PER_CLIENT,
            Self::Heavy => 256 << 10,
        }
    }
}

const PLAIN_COST: usize = 4 << 10;

/// To copy a client, or to send it a command, takes as long as to render this much of the status.
pub(crate) const COST_PER_CLIENT: usize = 512;

impl Method {
    /// A method of Snapcast, whose parameters are checked as snapserver does.
    pub(crate) const fn snapcast(
        name: &'static str,
        role: Role,
        about: &'static str,
        run: Handler,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            role,
            needs_log: false,
            cost: CallCost::Plain,
            about,
            params: &[],
            exclusive: &[],
            result: ResultType::Ok,
            notifications: &[],
            run,
            policy: ParamPolicy::Snapcast,
        }
    }

    /// A method that Snapcast does not have.
    pub(crate) const fn new(
        name: &'static str,
        role: Role,
        about: &'static str,
        run: Handler,
    ) -> Self {
        Self { policy: ParamPolicy::Strict, ..Self::snapcast(name, role, about, run) }
    }

    pub(crate) const fn params(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    /// Parameters of which a call may have one only; checked before what they name is looked up.
    pub(crate) const fn exclusive(self, exclusive: &'static [&'static str]) -> Self {
        Self { exclusive, ..self }
    }

    /// Parameters that the method checks by itself: the keys of a configuration table, of which
    /// these are some.
    pub(crate) const fn unchecked_params(self, params: &'static [Param]) -> Self {
        Self { params, policy: ParamPolicy::Method, ..self }
    }

    /// The members of the result: their names and JSON types.
    pub(crate) const fn returns(self, members: &'static [(&'static str, &'static str)]) -> Self {
        Self { result: ResultType::Members(members), ..self }
    }

    pub(crate) const fn returns_document(self, what: &'static str) -> Self {
        Self { result: ResultType::Document(what), ..self }
    }

    pub(crate) const fn notifies(self, notifications: &'static [&'static str]) -> Self {
        Self { notifications, ..self }
    }

    pub(crate) const fn long(self) -> Self {
        Self { cost: CallCost::Long, ..self }
    }

    pub(crate) const fn for_all_clients(self) -> Self {
        Self { cost: CallCost::AllClients, ..self }
    }

    pub(crate) const fn for_logs(self) -> Self {
        Self { needs_log: true, ..self }
    }

    pub(crate) const fn heavy(self) -> Self {
        Self { cost: CallCost::Heavy, ..self }
    }

    /// The name of the role or permission that it requires.
    pub(crate) const fn requirement(&self) -> &'static str {
        if self.needs_log { "log" } else { self.role.name() }
    }

    /// Whether a caller with this role and permission may call it.
    pub(crate) fn is_for(&self, role: Role, has_log: bool) -> bool {
        role >= self.role && (has_log || !self.needs_log)
    }

    /// Whether the method changes nothing. Without an id such a call has neither effect nor answer.
    pub(crate) fn only_reads(&self) -> bool {
        self.name.split_once('.').is_some_and(|(_, verb)| verb.starts_with("Get"))
            || self.name == DISCOVER
    }

    /// Whether the work of a call grows with the number of clients, or waits for other threads.
    pub(crate) fn is_long(&self) -> bool {
        self.cost != CallCost::Plain
    }

    /// Checks the parameters of a call, puts ids in place of names, and runs it. The caller's role
    /// has been checked.
    pub(crate) fn call(&self, context: &mut CallContext<'_>, values: &Value) -> MethodResult {
        self.check_and(context, values, |context, params| (self.run)(context, params))
    }

    /// The same, running this in place of the method.
    pub(crate) fn check_and<T>(
        &self,
        context: &mut CallContext<'_>,
        values: &Value,
        run: impl FnOnce(&mut CallContext<'_>, &Params<'_>) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let params = Params::new(self.params, values, self.policy);
        params.check()?;
        params.at_most_one(self.exclusive)?;
        let values = with_ids(self.params, values, self.policy, context.subjects)?;
        run(context, &Params::new(self.params, &values, self.policy))
    }
}

/// Checks that a caller may call a method; the error codes are HTTP's, as in snapserver.
pub(crate) fn authorize(caller: &Caller, method: &Method) -> Result<(), RpcError> {
    if method.is_for(caller.role, caller.has_log) {
        return Ok(());
    }
    let (code, message) = if caller.role == Role::None { UNAUTHORIZED } else { FORBIDDEN };
    let data = format!("{} is for the role `{}`", method.name, method.requirement());
    Err(RpcError { data: Some(data.into()), ..RpcError::new(code, message) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods;

    #[test]
    fn a_role_may_what_the_ones_below_it_may_and_no_more() {
        for method in methods::all() {
            for role in [Role::None, Role::Listen, Role::Control, Role::Admin] {
                let caller = Caller::new(Caller::internal().from, role);
                let may = authorize(&caller, method).is_ok();
                assert_eq!(may, role >= method.role && !method.needs_log, "{role} {}", method.name);
                let caller = Caller { has_log: true, ..caller };
                let may = authorize(&caller, method).is_ok();
                assert_eq!(may, role >= method.role, "{role} {}", method.name);
            }
        }
    }
}

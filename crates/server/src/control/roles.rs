//! Callers, and the check of their role.

use std::net::{IpAddr, Ipv4Addr};

use aulos_core::{Instant, Span, TokenBucket};
use aulos_proto::snap::control::RpcError;

use super::PeerId;
use super::method::Method;
use crate::access::Role;

/// The origin and permissions of a call.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The caller's connection, if it receives notifications.
    pub peer: Option<PeerId>,
    /// The caller's address.
    pub from: IpAddr,
    /// The caller's role; a login raises it.
    pub role: Role,
    /// Whether the caller has given valid credentials or a trusted certificate.
    pub(crate) has_logged_in: bool,
    /// Rate limit for calls before a login, where one is required.
    pub(super) login_budget: TokenBucket,
}

impl Caller {
    /// A caller at this address.
    #[must_use]
    pub const fn new(from: IpAddr, role: Role) -> Self {
        let login_budget = TokenBucket::new(CALLS_BEFORE_LOGIN, CALL_INTERVAL, Instant::ZERO);
        Self { peer: None, from, role, has_logged_in: false, login_budget }
    }

    /// The server itself, which may do everything.
    #[must_use]
    pub const fn internal() -> Self {
        Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Role::Admin)
    }
}

/// Burst of calls before a login: a controller requests the version and the list of methods and
/// logs in, possibly more than once.
const CALLS_BEFORE_LOGIN: u32 = 16;

/// Interval at which one more call before a login is allowed.
const CALL_INTERVAL: Span = Span::from_millis(100);

/// Checks that a caller may call a method; the error codes are HTTP's, as in snapserver.
pub(super) fn authorize(caller: &Caller, method: &Method) -> Result<(), RpcError> {
    let Method { name, role, .. } = method;
    if caller.role >= *role {
        return Ok(());
    }
    let (code, message) = if caller.role == Role::None { UNAUTHORIZED } else { FORBIDDEN };
    let data = format!("{name} is for the role `{role}`");
    Err(RpcError { data: Some(data.into()), ..RpcError::new(code, message) })
}

pub(super) const UNAUTHORIZED: (i64, &str) = (401, "Unauthorized");
pub(super) const FORBIDDEN: (i64, &str) = (403, "Forbidden");

#[cfg(test)]
mod tests {
    use super::super::methods;
    use super::*;

    #[test]
    fn a_role_may_what_the_ones_below_it_may_and_no_more() {
        for method in methods::all() {
            for role in [Role::None, Role::Listen, Role::Control, Role::Admin] {
                let caller = Caller::new(Caller::internal().from, role);
                let may = authorize(&caller, method).is_ok();
                assert_eq!(may, role >= method.role, "{role} {}", method.name);
            }
        }
    }
}

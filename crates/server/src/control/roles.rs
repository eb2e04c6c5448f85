//! Callers, and the role that each method requires.
//!
//! The table is separate from the methods so that the permissions of each role can be read in one
//! place. A method that is missing in it requires the highest role, and a test reports it.

use std::net::{IpAddr, Ipv4Addr};

use aulos_core::{Instant, Span, TokenBucket};
use aulos_proto::snap::control::RpcError;

use super::PeerId;
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

/// Whether a method changes nothing. Without an id such a call has neither effect nor answer.
pub(super) fn only_reads(method: &str) -> bool {
    method.split_once('.').is_some_and(|(_, verb)| verb.starts_with("Get"))
}

/// The cost of a call besides its JSON, in the bytes of [`super::rpc::MAX_BATCH_COST`]: a full
/// batch of plain calls costs an eighth of the limit; calls that wait for other threads, open ports
/// or visit all clients are limited to 32 per batch.
pub(super) fn call_cost(method: &str) -> usize {
    if HEAVY_CALLS.contains(&method) { HEAVY_CALL_COST } else { PLAIN_CALL_COST }
}

/// Whether a call's work grows with the number of clients, or waits for other threads.
pub(super) fn is_long(method: &str) -> bool {
    HEAVY_CALLS.contains(&method) || LONG_CALLS.contains(&method)
}

/// Long calls whose cost in a batch is the JSON that they render.
const LONG_CALLS: [&str; 6] = [
    "Aulos.DeletePreset",
    "Aulos.GetPresets",
    "Aulos.GetStatus",
    "Group.SetClients",
    "Server.DeleteClient",
    "Server.GetStatus",
];

const PLAIN_CALL_COST: usize = 4 << 10;
const HEAVY_CALL_COST: usize = 256 << 10;

const HEAVY_CALLS: [&str; 8] = [
    "Aulos.AddRelay",
    "Aulos.ApplyPreset",
    "Aulos.GetRelays",
    "Aulos.Reload",
    "Aulos.RemoveRelay",
    "Aulos.SavePreset",
    "Stream.AddStream",
    "Stream.RemoveStream",
];

/// The role that a method requires.
pub(super) fn required_role(method: &str) -> Role {
    let row = REQUIRED_ROLES.iter().find(|(_, methods)| methods.contains(&method));
    row.map_or(Role::Admin, |(role, _)| *role)
}

/// Checks that a caller may call a method; the error codes are HTTP's, as in snapserver.
pub(super) fn authorize(caller: &Caller, method: &str) -> Result<(), RpcError> {
    let needed = required_role(method);
    if caller.role >= needed {
        return Ok(());
    }
    let (code, message) = if caller.role == Role::Nobody { UNAUTHORIZED } else { FORBIDDEN };
    let data = format!("{method} is for the role `{needed}`");
    Err(RpcError { data: Some(data.into()), ..RpcError::new(code, message) })
}

pub(super) const UNAUTHORIZED: (i64, &str) = (401, "Unauthorized");
pub(super) const FORBIDDEN: (i64, &str) = (403, "Forbidden");

const REQUIRED_ROLES: [(Role, &[&str]); 4] = [
    (
        Role::Nobody,
        &["Aulos.GetInfo", "General.GetRPCCommands", "Server.Authenticate", "Server.GetRPCVersion"],
    ),
    (
        Role::Listen,
        &[
            "Aulos.GetEqualizer",
            "Aulos.GetLoudness",
            "Aulos.GetNormalize",
            "Aulos.GetPresets",
            "Aulos.GetRecordings",
            "Aulos.GetRelays",
            "Aulos.GetServers",
            "Aulos.GetStatus",
            "Client.GetStatus",
            "Group.GetStatus",
            "Server.GetStatus",
        ],
    ),
    (
        Role::Control,
        &[
            "Aulos.AddMarker",
            "Aulos.Announce",
            "Aulos.ApplyPreset",
            "Aulos.CancelAnnouncement",
            "Aulos.CutRecording",
            "Aulos.DeletePreset",
            "Aulos.PauseRecording",
            "Aulos.ResetLoudness",
            "Aulos.ResumeRecording",
            "Aulos.SavePreset",
            "Aulos.SetChannelMap",
            "Aulos.SetCompare",
            "Aulos.SetEqualizer",
            "Aulos.SetNormalize",
            "Aulos.SetSource",
            "Aulos.SetVolume",
            "Aulos.StartRecording",
            "Aulos.StopRecording",
            "Client.SetLatency",
            "Client.SetName",
            "Client.SetVolume",
            "Group.SetClients",
            "Group.SetMute",
            "Group.SetName",
            "Group.SetStream",
            "Stream.Control",
            "Stream.SetProperty",
        ],
    ),
    (
        Role::Admin,
        &[
            "Aulos.AddRelay",
            "Aulos.Reload",
            "Aulos.RemoveRelay",
            "Aulos.SetVolumeCap",
            "Aulos.TestHook",
            "Server.DeleteClient",
            "Stream.AddStream",
            "Stream.RemoveStream",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::super::methods;
    use super::*;

    #[test]
    fn every_method_is_in_the_table_once_and_nothing_else_is() {
        let mut listed: Vec<&str> =
            REQUIRED_ROLES.iter().flat_map(|(_, methods)| methods.iter().copied()).collect();
        let mut known: Vec<&str> = methods::names().collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known, "a method says here what it asks of its caller");
    }

    #[test]
    fn what_only_reads_is_what_a_listener_may_and_heavy_methods_exist() {
        for (needed, methods) in REQUIRED_ROLES {
            for method in methods {
                let is_login = *method == "Server.Authenticate";
                assert_eq!(only_reads(method), needed <= Role::Listen && !is_login, "{method}");
            }
        }
        let mut long = HEAVY_CALLS.iter().chain(&LONG_CALLS);
        assert!(long.all(|long| methods::names().any(|name| name == *long)));
    }

    #[test]
    fn what_is_nowhere_is_for_nobody_but_the_administrator() {
        assert_eq!(required_role("Aulos.Unheard"), Role::Admin);
    }

    #[test]
    fn a_role_may_what_the_ones_below_it_may_and_no_more() {
        let may =
            |role, method| authorize(&Caller::new(Caller::internal().from, role), method).is_ok();
        for (needed, methods) in REQUIRED_ROLES {
            for method in methods {
                for role in [Role::Nobody, Role::Listen, Role::Control, Role::Admin] {
                    assert_eq!(may(role, method), role >= needed, "{role} {method}");
                }
            }
        }
    }
}

//! Who calls, and what each method asks of him.
//!
//! The table stands apart from the methods so that it can be read as a whole, which is how somebody
//! finds out what a password gives away. A method that is not in it asks for everything, and a test
//! finds it.

use std::net::{IpAddr, Ipv4Addr};

use aulos_core::{Instant, Span, TokenBucket};
use aulos_proto::snap::control::RpcError;

use super::PeerId;
use crate::access::Role;

/// Who makes a call.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// His connection, where he hears of what others change.
    pub peer: Option<PeerId>,
    /// Where he is.
    pub from: IpAddr,
    /// What he may; a login changes it.
    pub role: Role,
    /// Whether it has shown a right secret or a good certificate.
    pub(crate) has_logged_in: bool,
    /// Calls that this connection may still make without a login, where one is needed.
    pub(super) login_budget: TokenBucket,
}

impl Caller {
    /// Somebody from this address.
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

/// Calls that a connection may make at once before it logs in: a controller asks for the version, for
/// the list of methods, and logs in, perhaps more than once.
const CALLS_BEFORE_LOGIN: u32 = 16;

/// Then it may make one more every this long.
const CALL_INTERVAL: Span = Span::from_millis(100);

/// Whether a method changes nothing. Without an id such a call has no effect and no answer.
pub(super) fn only_reads(method: &str) -> bool {
    method.split_once('.').is_some_and(|(_, verb)| verb.starts_with("Get"))
}

/// What a call costs beside the JSON that it makes the server write, in the bytes of
/// [`super::rpc::MAX_BATCH_COST`]: a whole list of plain calls is an eighth of that, and of those that
/// wait for other threads, open ports or go through all clients a list has 32 at most.
pub(super) fn call_cost(method: &str) -> usize {
    if HEAVY_CALLS.contains(&method) { HEAVY_CALL_COST } else { PLAIN_CALL_COST }
}

/// Whether a call's work grows with the number of clients, or waits for other threads.
pub(super) fn is_long(method: &str) -> bool {
    HEAVY_CALLS.contains(&method) || LONG_CALLS.contains(&method)
}

/// What they cost in a list is the JSON that they write.
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

/// What a method asks for.
pub(super) fn required_role(method: &str) -> Role {
    let row = REQUIRED_ROLES.iter().find(|(_, methods)| methods.contains(&method));
    row.map_or(Role::Admin, |(role, _)| *role)
}

/// Whether a caller may call; the errors are HTTP's numbers, as snapserver has them.
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

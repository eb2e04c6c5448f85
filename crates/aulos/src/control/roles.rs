//! Who calls, and what each method asks of him.
//!
//! The table stands apart from the methods so that it can be read as a whole, which is how somebody
//! finds out what a password gives away. A method that is not in it asks for everything, and a test
//! finds it.

use std::net::{IpAddr, Ipv4Addr};

use aulos_proto::snap::control::RpcError;

use super::PeerId;
use crate::access::Role;

/// Who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// His connection, where he hears of what others change.
    pub peer: Option<PeerId>,
    /// Where he is.
    pub from: IpAddr,
    /// What he may; a login changes it.
    pub role: Role,
}

impl Caller {
    /// Somebody from this address.
    #[must_use]
    pub const fn new(from: IpAddr, role: Role) -> Self {
        Self { peer: None, from, role }
    }

    /// The server itself, which may do everything.
    #[must_use]
    pub const fn house() -> Self {
        Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Role::Admin)
    }
}

/// What a method asks for.
pub(super) fn needs(method: &str) -> Role {
    let row = NEEDS.iter().find(|(_, methods)| methods.contains(&method));
    row.map_or(Role::Admin, |(role, _)| *role)
}

/// Whether a caller may call; the errors are HTTP's numbers, as snapserver has them.
pub(super) fn may(caller: &Caller, method: &str) -> Result<(), RpcError> {
    let needed = needs(method);
    if caller.role >= needed {
        return Ok(());
    }
    let (code, message) = if caller.role == Role::Nobody { UNAUTHORIZED } else { FORBIDDEN };
    let data = format!("{method} is for the role `{needed}`");
    Err(RpcError { data: Some(data.into()), ..RpcError::new(code, message) })
}

pub(super) const UNAUTHORIZED: (i64, &str) = (401, "Unauthorized");
pub(super) const FORBIDDEN: (i64, &str) = (403, "Forbidden");

const NEEDS: [(Role, &[&str]); 4] = [
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
            NEEDS.iter().flat_map(|(_, methods)| methods.iter().copied()).collect();
        let mut known: Vec<&str> = methods::names().collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known, "a method says here what it asks of its caller");
    }

    #[test]
    fn what_is_nowhere_is_for_nobody_but_the_administrator() {
        assert_eq!(needs("Aulos.Unheard"), Role::Admin);
    }

    #[test]
    fn a_role_may_what_the_ones_below_it_may_and_no_more() {
        let may = |role, method| may(&Caller::new(Caller::house().from, role), method).is_ok();
        for (needed, methods) in NEEDS {
            for method in methods {
                for role in [Role::Nobody, Role::Listen, Role::Control, Role::Admin] {
                    assert_eq!(may(role, method), role >= needed, "{role} {method}");
                }
            }
        }
    }
}

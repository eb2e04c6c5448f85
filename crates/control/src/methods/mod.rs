//! The table of control methods.
//!
//! A method is a row here and a handler in the module of its subject. Everything else follows from
//! the row: dispatch, permission, parameter errors, `General.GetRPCCommands`, `rpc.discover` and
//! the reference page.

pub(crate) mod method;
pub(crate) mod named_params;
pub(crate) mod params;
pub(crate) mod reference;
pub(crate) mod roles;
pub(crate) mod rpc;

pub(crate) mod announcements;
mod aulos;
mod client_sound;
mod logs;
mod recordings;
mod sendspin;
mod snapcast;
mod switches;

use crate::methods::method::Method;
pub use aulos::{EVENT_LIST_MEMBERS, STATUS_MEMBERS};

/// All methods, by subject, in the order of the reference.
pub(crate) const SECTIONS: [(&str, &[Method]); 18] = [
    ("Server", snapcast::SERVER),
    ("Clients", snapcast::CLIENTS),
    ("Groups", snapcast::GROUPS),
    ("Streams", snapcast::STREAMS),
    ("Status and configuration", aulos::STATUS),
    ("Events", aulos::EVENTS),
    ("Loudness and equalizer", aulos::SOUND),
    ("Volume and channels", aulos::VOLUME),
    ("Sound of clients", client_sound::CLIENT_SOUND),
    ("Presets", aulos::PRESETS),
    ("Sources and hooks", aulos::SOURCES),
    ("Switches at a time", switches::SWITCHES),
    ("Announcements", announcements::ANNOUNCEMENTS),
    ("Plays", announcements::PLAYS),
    ("Relays", aulos::RELAYS),
    ("Recordings", recordings::RECORDINGS),
    ("Logs", logs::LOGS),
    ("Sendspin clients", sendspin::SENDSPIN),
];

/// All methods.
pub(crate) fn all() -> impl Iterator<Item = &'static Method> {
    SECTIONS.iter().flat_map(|(_, methods)| *methods)
}

/// The method of this name, which may be a former one.
pub(crate) fn find(name: &str) -> Option<&'static Method> {
    find_in(all(), name)
}

fn find_in(
    mut methods: impl Iterator<Item = &'static Method>,
    name: &str,
) -> Option<&'static Method> {
    methods.find(|method| method.name == name || method.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;
    use crate::methods::method::ResultType;
    use crate::methods::params::{Param, ParamType};

    #[test]
    fn every_name_is_in_the_table_once() {
        let mut names: Vec<&str> =
            all().flat_map(|method| method.aliases.iter().copied().chain([method.name])).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| find(name).is_some()));
        assert!(find("Aulos.Unheard").is_none());
    }

    #[test]
    fn a_former_name_finds_the_method_of_today() {
        const ROWS: &[Method] = &[Method {
            aliases: &["Aulos.Before"],
            ..Method::new("Aulos.Now", Role::Admin, "", |_, _| Ok(serde_json::Value::Null.into()))
        }];
        for name in ["Aulos.Now", "Aulos.Before"] {
            assert_eq!(find_in(ROWS.iter(), name).map(|method| method.name), Some("Aulos.Now"));
        }
        assert!(find_in(ROWS.iter(), "Aulos.Later").is_none());
    }

    #[test]
    fn a_method_that_only_reads_is_for_listeners_and_a_login_is_for_everyone() {
        for method in all() {
            // A login and a subscription change the caller's own connection, and holds are for the
            // role `log`, which is not one of the order.
            let is_own = ["Server.Authenticate", "Aulos.Subscribe"].contains(&method.name);
            let is_hold = ["Aulos.AddLogHold", "Aulos.ReleaseLogHold"].contains(&method.name);
            // It shows the tokens by which servers are paired.
            let is_secret = method.name == "Aulos.GetSendspinSources";
            let expected = method.role <= Role::Listen && !is_own && !is_hold || is_secret;
            assert_eq!(method.only_reads(), expected, "{}", method.name);
        }
        let open: Vec<&str> =
            all().filter(|one| one.role == Role::None).map(|one| one.name).collect();
        assert_eq!(
            open,
            [
                "Server.GetRPCVersion",
                "Server.Authenticate",
                "General.GetRPCCommands",
                "rpc.discover",
                "Aulos.GetInfo"
            ]
        );
    }

    /// The words of a row end up in the reference and in schemas.
    #[test]
    fn rows_are_complete() {
        const TYPES: [&str; 7] =
            ["string", "boolean", "number", "integer", "array", "object", "null"];
        let known = |types: &str| types.split('|').all(|one| TYPES.contains(&one));
        let check = |param: &Param| match param.kind {
            ParamType::Checked(_, types) => known(types),
            ParamType::Word(words) => !words.is_empty(),
            ParamType::Number { min, max } | ParamType::Seconds { min, max } => min < max,
            _ => true,
        };
        for method in all() {
            let about = method.about;
            assert!(!about.is_empty() && !about.ends_with('.'), "{}: {about}", method.name);
            assert!(about.chars().next().is_some_and(char::is_uppercase), "{about}");
            assert!(method.params.iter().all(check), "{}", method.name);
            if let ResultType::Members(members) = method.result {
                assert!(members.iter().all(|(_, types)| known(types)), "{}", method.name);
            }
        }
    }
}

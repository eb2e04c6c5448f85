//! Which client, group or station a text names.
//!
//! People type names, programs send ids, and both may come in one parameter. An id is always taken
//! as it is, so that nothing changes for programs; then a whole name counts, then the beginning of
//! an id or a name, if only one has it. The nearest spelling was rejected: a call that changes a
//! volume must not guess.

use std::borrow::Cow;
use std::fmt;

use crate::message_text::{alternatives, join, shorten};

/// What a text is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    /// A client.
    Client,
    /// A group of clients.
    Group,
    /// A station.
    Station,
}

impl NamedKind {
    /// The word for one.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Group => "group",
            Self::Station => "station",
        }
    }

    /// The word for several.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Client => "clients",
            Self::Group => "groups",
            Self::Station => "stations",
        }
    }

    /// What a list of them holds.
    pub(crate) const fn ids(self) -> &'static str {
        match self {
            Self::Client => "client ids",
            Self::Group => "group ids",
            Self::Station => "station names",
        }
    }
}

/// Something that a text may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// Its id, which is unique.
    pub id: &'a str,
    /// Its name as people see it; empty without one, and the same as the id for a station.
    pub name: Cow<'a, str>,
}

impl<'a> Named<'a> {
    /// Something with this id and name.
    #[must_use]
    pub fn new(id: &'a str, name: impl Into<Cow<'a, str>>) -> Self {
        Self { id, name: name.into() }
    }

    /// In a message: the name, and the id that tells it from others of that name.
    fn label(&self) -> String {
        let (id, name) = (shorten(self.id), shorten(&self.name));
        if name.is_empty() || name == id { format!("`{id}`") } else { format!("`{name}` ({id})") }
    }
}

/// How much of a name a text must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch {
    /// All of it: a Snapcast controller may send the id of a client that has been deleted, which
    /// may be the beginning of another one, as `02:42:ac:11:00:02` of `02:42:ac:11:00:02#2`.
    Whole,
    /// Its beginning, if no other has the same.
    Prefix,
}

/// Why a text names nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    kind: NamedKind,
    text: String,
    is_ambiguous: bool,
    /// At most [`MAX_NAMES_LISTED`].
    listed: Vec<String>,
    has_more: bool,
}

impl NameError {
    /// The error for a text that names none of these.
    #[must_use]
    pub fn unknown(kind: NamedKind, text: &str, all: &[Named<'_>]) -> Self {
        Self::new((kind, text), false, all.iter())
    }

    fn new<'a>(
        (kind, text): (NamedKind, &str),
        is_ambiguous: bool,
        mut of: impl Iterator<Item = &'a Named<'a>>,
    ) -> Self {
        let listed = of.by_ref().take(MAX_NAMES_LISTED).map(Named::label).collect();
        let has_more = of.next().is_some();
        Self { kind, text: shorten(text), is_ambiguous, listed, has_more }
    }

    /// Whether several have this name, instead of none.
    #[must_use]
    pub const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }
}

/// Limit of names that an error lists.
pub(crate) const MAX_NAMES_LISTED: usize = 16;

/// "there is no client `attic`; there are `Kitchen` (02:42:ac:11:00:02) and `Hall` (...)".
impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, text, listed, .. } = self;
        if self.is_ambiguous {
            let more = if self.has_more { ", ..." } else { "" };
            let list = alternatives(listed);
            return write!(f, "`{text}` names several {}: {list}{more}", kind.plural());
        }
        write!(f, "there is no {} `{text}`; there ", kind.word())?;
        match &listed[..] {
            [] => write!(f, "are no {}", kind.plural()),
            [only] => write!(f, "is {only}"),
            _ if self.has_more => write!(f, "are {}, ...", listed.join(", ")),
            _ => write!(f, "are {}", join(listed, "and")),
        }
    }
}

impl std::error::Error for NameError {}

/// The id of what a text names: one with this id, else the only one with this name or, in other
/// letters, this id, else the only one whose id or name begins with the text. Upper and lower case
/// are the same in names and in beginnings.
///
/// # Errors
/// [`NameError`] when there is none or more than one; the first rule that finds any decides.
pub fn resolve<'a>(
    kind: NamedKind,
    text: &str,
    all: &'a [Named<'a>],
    extent: NameMatch,
) -> Result<&'a str, NameError> {
    if let Some(exact) = all.iter().find(|one| one.id == text) {
        return Ok(exact.id);
    }
    let is_whole = |one: &&Named<'_>| is_same(&one.name, text) || is_same(one.id, text);
    let is_prefix = |one: &&Named<'_>| begins_with(&one.name, text) || begins_with(one.id, text);
    let rules: [&dyn Fn(&&Named<'_>) -> bool; 2] = [&is_whole, &is_prefix];
    let count = match extent {
        NameMatch::Whole => 1,
        NameMatch::Prefix => 2,
    };
    // Everything begins with nothing, and a group without a name is not named by it.
    for rule in rules.into_iter().take(if text.is_empty() { 0 } else { count }) {
        let mut found = all.iter().filter(|one| rule(one));
        match (found.next(), found.next()) {
            (None, _) => {}
            (Some(one), None) => return Ok(one.id),
            (Some(_), Some(_)) => {
                let several = all.iter().filter(|one| rule(one));
                return Err(NameError::new((kind, text), true, several));
            }
        }
    }
    Err(NameError::unknown(kind, text, all))
}

/// The name of a group as people see it: its own, or else that of its clients, in any order.
#[must_use]
pub fn group_name<'a>(own: &'a str, clients: impl Iterator<Item = &'a str>) -> Cow<'a, str> {
    if !own.is_empty() {
        return own.into();
    }
    let mut clients: Vec<&str> = clients.filter(|name| !name.is_empty()).collect();
    clients.sort_unstable();
    match clients[..] {
        [] => "".into(),
        [only] => only.into(),
        [first, second] => format!("{first} and {second}").into(),
        [first, ..] => format!("{first} and {} others", clients.len() - 1).into(),
    }
}

/// The name of a client as people see it: the one that it was given, or that of its machine.
#[must_use]
pub fn client_name<'a>(given: &'a str, host: &'a str) -> &'a str {
    if given.is_empty() { host } else { given }
}

fn is_same(name: &str, text: &str) -> bool {
    lowercase(name).eq(lowercase(text))
}

fn begins_with(name: &str, text: &str) -> bool {
    let mut name = lowercase(name);
    lowercase(text).all(|c| name.next() == Some(c))
}

fn lowercase(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENTS: [(&str, &str); 7] = [
        ("02:42:ac:11:00:02", "Kitchen"),
        ("02:42:ac:11:00:02#2", "Kitchenette"),
        ("b8:27:eb:00:00:01", "Küche"),
        ("hall", "Bath"),
        ("bath", "Stairs"),
        ("c1", "pi"),
        ("c2", "pi"),
    ];

    fn named() -> Vec<Named<'static>> {
        CLIENTS.iter().map(|(id, name)| Named::new(id, *name)).collect()
    }

    #[test]
    fn an_id_wins_over_a_name_and_a_name_over_a_prefix() {
        const AMBIGUOUS: Option<&str> = Some("several");
        let all = named();
        for (text, whole, prefix) in [
            // An id, also where it is the beginning of another one or another one's name.
            ("02:42:ac:11:00:02", Some("02:42:ac:11:00:02"), Some("02:42:ac:11:00:02")),
            ("bath", Some("bath"), Some("bath")),
            // In other letters it names an id and a name.
            ("BATH", AMBIGUOUS, AMBIGUOUS),
            ("B8:27:EB:00:00:01", Some("b8:27:eb:00:00:01"), Some("b8:27:eb:00:00:01")),
            // A name that is the beginning of another one.
            ("kitchen", Some("02:42:ac:11:00:02"), Some("02:42:ac:11:00:02")),
            ("KÜCHE", Some("b8:27:eb:00:00:01"), Some("b8:27:eb:00:00:01")),
            ("pi", AMBIGUOUS, AMBIGUOUS),
            // Beginnings.
            ("kitchene", None, Some("02:42:ac:11:00:02#2")),
            ("kÜ", None, Some("b8:27:eb:00:00:01")),
            ("b8", None, Some("b8:27:eb:00:00:01")),
            ("st", None, Some("bath")),
            ("kit", None, AMBIGUOUS),
            ("02:", None, AMBIGUOUS),
            ("attic", None, None),
            ("kitchen radio", None, None),
            ("", None, None),
        ] {
            for (extent, expected) in [(NameMatch::Whole, whole), (NameMatch::Prefix, prefix)] {
                let found = match resolve(NamedKind::Client, text, &all, extent) {
                    Ok(id) => Some(id),
                    Err(error) if error.is_ambiguous() => AMBIGUOUS,
                    Err(_) => None,
                };
                assert_eq!(found, expected, "{text:?} {extent:?}");
            }
        }
    }

    #[test]
    fn an_error_lists_what_there_is_and_no_more_than_fits_a_line() {
        let error = |kind, text: &str, all: &[Named<'_>]| {
            resolve(kind, text, all, NameMatch::Prefix).unwrap_err().to_string()
        };
        let all = named();
        assert_eq!(
            error(NamedKind::Client, "attic", &all[..2]),
            "there is no client `attic`; there are `Kitchen` (02:42:ac:11:00:02) and `Kitchenette` \
             (02:42:ac:11:00:02#2)"
        );
        assert_eq!(
            error(NamedKind::Client, "pi", &all),
            "`pi` names several clients: `pi` (c1) or `pi` (c2)"
        );
        let station = [Named::new("hall", "hall")];
        assert_eq!(
            error(NamedKind::Station, "attic", &station),
            "there is no station `attic`; there is `hall`"
        );
        assert_eq!(
            error(NamedKind::Group, "attic", &[]),
            "there is no group `attic`; there are no groups"
        );
        let ids: Vec<String> = (0..9_000).map(|number| format!("{number:0>300}")).collect();
        let many: Vec<Named<'_>> = ids.iter().map(|id| Named::new(id, "x\u{1b}[2J")).collect();
        for text in ["attic", "x", &"0".repeat(200)] {
            let error = error(NamedKind::Client, text, &many);
            assert!(error.len() < 2_000 && error.ends_with(", ..."), "{error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn a_group_without_a_name_has_that_of_its_clients() {
        for (own, clients, expected) in [
            ("Downstairs", &["pi", "shelf"][..], "Downstairs"),
            ("", &["pi"], "pi"),
            ("", &["shelf", "pi"], "pi and shelf"),
            ("", &["shelf", "pi", "bath"], "bath and 2 others"),
            ("", &["", ""], ""),
        ] {
            assert_eq!(group_name(own, clients.iter().copied()), expected);
        }
        assert_eq!((client_name("Shelf", "pi"), client_name("", "pi")), ("Shelf", "pi"));
    }
}

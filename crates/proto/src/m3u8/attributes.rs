//! Attribute lists: `NAME=value,NAME="text, with commas"` (RFC 8216, 4.2).

/// The attributes of a tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a str);

impl<'a> Attributes<'a> {
    /// The value of an attribute, without its quotes.
    pub(super) fn get(self, name: &str) -> Option<&'a str> {
        let mut rest = self.0;
        loop {
            let (found, behind) = rest.split_once('=')?;
            let (value, behind) = match behind.strip_prefix('"') {
                Some(quoted) => {
                    let (value, behind) = quoted.split_once('"')?;
                    (value, behind.split_once(',').map(|(_, behind)| behind))
                }
                None => match behind.split_once(',') {
                    Some((value, behind)) => (value, Some(behind)),
                    None => (behind, None),
                },
            };
            if found.trim() == name {
                return Some(value.trim());
            }
            rest = behind?;
        }
    }
}

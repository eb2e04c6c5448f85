//! Source URIs, read the lenient way that Snapcast's users write them.
//!
//! RFC 3986 would refuse the spaces that Music Assistant sends and the missing slashes of `stdin:`.
//! So a URI is only split here, percent signs are decoded where they are followed by two hex
//! digits, and everything else is taken as it stands.

/// A URI in its parts; everything but `raw` is decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uri {
    /// As it was written.
    pub raw: String,
    /// In lower case.
    pub scheme: String,
    /// Host and port as they stand between `//` and the path.
    pub authority: String,
    /// With its leading slash where it has one.
    pub path: String,
    /// In the order in which they were written.
    pub query: Vec<(String, String)>,
    /// What stands behind `#`.
    pub fragment: String,
}

impl Uri {
    /// The value of a query key, the last one where it was written twice.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.query.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// Splits `text`.
///
/// # Errors
/// [`InvalidUri`] when there is no scheme, or the text is longer than [`MAX_URI`].
pub fn parse(text: &str) -> Result<Uri, InvalidUri> {
    if text.len() > MAX_URI {
        return Err(InvalidUri::Long);
    }
    let (scheme, rest) = text.split_once(':').ok_or(InvalidUri::Scheme)?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(letter) {
        return Err(InvalidUri::Scheme);
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    });
    Ok(Uri {
        raw: text.to_owned(),
        scheme: scheme.to_ascii_lowercase(),
        authority: decode(authority),
        path: decode(path),
        query: pairs.collect(),
        fragment: decode(fragment),
    })
}

/// A path or value in a form that [`parse`] gives back unchanged.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "%?#&= +".contains(c) || c.is_ascii_control() {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Why a text is no URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidUri {
    /// It does not begin with a word and a colon.
    Scheme,
    /// It is longer than [`MAX_URI`].
    Long,
}

/// Longer than any path or command line in use.
pub const MAX_URI: usize = 4_096;

/// Replaces `%41` by `A`; other percent signs stay, and bytes that are not UTF-8 are replaced.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let pair = bytes.get(i + 1..i + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let digits = pair.filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                out.push(decoded);
                i += 3;
            }
            _ => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_parts_of_what_users_write() {
        let uri = parse("tcp://0.0.0.0:4953?name=Music Assistant - x&mode=server#f").unwrap();
        assert_eq!((uri.scheme.as_str(), uri.authority.as_str()), ("tcp", "0.0.0.0:4953"));
        assert_eq!(uri.get("name"), Some("Music Assistant - x"));
        assert_eq!((uri.path.as_str(), uri.fragment.as_str()), ("", "f"));

        let uri = parse("FILE:///srv/a%20b.flac?loop=true&loop=false").unwrap();
        assert_eq!((uri.scheme.as_str(), uri.path.as_str()), ("file", "/srv/a b.flac"));
        assert_eq!(uri.get("loop"), Some("false"));
        assert_eq!(parse("stdin:").unwrap().scheme, "stdin");
        assert_eq!(parse("pipe:///a%zz%4").unwrap().path, "/a%zz%4");
    }

    #[test]
    fn what_has_no_scheme_is_none() {
        for text in ["", "/tmp/fifo", "://x", "1tcp://x", "a b://x"] {
            assert_eq!(parse(text), Err(InvalidUri::Scheme), "{text}");
        }
        assert_eq!(parse(&"a".repeat(MAX_URI + 1)), Err(InvalidUri::Long));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,200}") {
            drop(parse(&text));
        }

        #[test]
        fn a_path_comes_back_as_it_was(path in "/[ -~äß]{0,60}") {
            let uri = parse(&format!("pipe://{}", encode(&path))).unwrap();
            prop_assert_eq!(uri.path, path);
        }
    }
}

//! Parses JSON from untrusted peers.
//!
//! `serde_json` refuses nesting deeper than 128, but no message of these protocols needs that much,
//! so the depth is checked before any value is built.

use core::fmt;

use serde_json::Value;

/// Maximum nesting. The deepest message in use has five levels (`Server.GetStatus`).
pub(crate) const MAX_DEPTH: usize = 16;

/// Parses one value. Bytes that are not UTF-8 become U+FFFD, so a client whose host name is in
/// Latin-1 is still accepted.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    if depth(bytes) > MAX_DEPTH {
        return Err(JsonError::Depth);
    }
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(text.trim_end_matches('\0')).map_err(|_| JsonError::Syntax)
}

/// Reason why bytes are not accepted as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonError {
    /// Invalid JSON.
    Syntax,
    /// Nested deeper than 16.
    Depth,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("not valid JSON"),
            Self::Depth => write!(f, "JSON nested deeper than {MAX_DEPTH}"),
        }
    }
}

impl core::error::Error for JsonError {}

/// Maximum number of brackets that are open at once, not counting those inside strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Converts integers, floats without their fraction, and either of them in a string.
#[allow(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
pub(crate) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        _ => value.as_i64().or_else(|| value.as_f64().map(|float| float as i64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(br#"{"a":"[[[[\"[[","b":[[1]]}"#), 3);
        assert!(parse(br#"["[[[[[[[[[[[[[[[[[[[["]"#).is_ok());
    }

    #[test]
    fn a_tower_of_brackets_is_refused_before_it_is_built() {
        assert_eq!(parse("[".repeat(1_000_000).as_bytes()), Err(JsonError::Depth));
        assert!(parse(("[".repeat(16) + &"]".repeat(16)).as_bytes()).is_ok());
        assert_eq!(parse(("[".repeat(17) + &"]".repeat(17)).as_bytes()), Err(JsonError::Depth));
    }
}

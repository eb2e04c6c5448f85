//! Texts and lists of names in error messages.

/// A text of a caller, limited for an error message.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let short: String = text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect();
    if text.chars().nth(MAX_CHARS).is_some() { short + "..." } else { short }
}

/// `a, b or c`.
pub(crate) fn alternatives(words: &[impl AsRef<str>]) -> String {
    join(words, "or")
}

/// Names in back-ticks: `a`, `b` and `c`.
pub(crate) fn quoted_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    join(&quoted, "and")
}

/// Words, and `last` before the last one.
pub(crate) fn join(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        Some((end, [])) => (*end).to_owned(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
        None => String::new(),
    }
}

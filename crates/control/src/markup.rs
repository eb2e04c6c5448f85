//! Text from outside in HTML and XML.

/// The text with escapes, also for a quoted attribute. Control characters, for which XML 1.0 has no
/// place, become spaces.
pub fn escape_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        assert_eq!(escape_markup("<a b=\"c\">&\u{1}"), "&lt;a b=&quot;c&quot;&gt;&amp; ");
    }
}

//! Why a device does not deliver, in a value of fixed size: states are copied between threads.

use core::fmt;

/// A reason as text, cut at a length that fits a status.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceFailure {
    text: [u8; MAX_REASON],
    length: usize,
}

impl DeviceFailure {
    /// The reason `text`. An ellipsis replaces what does not fit.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut this = Self { text: [0; MAX_REASON], length: 0 };
        if text.len() <= MAX_REASON {
            this.append(text);
        } else {
            let fits = 0..=MAX_REASON - ELLIPSIS.len();
            let end = fits.rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            this.append(&text[..end]);
            this.append(ELLIPSIS);
        }
        this
    }

    fn append(&mut self, text: &str) {
        let end = self.length + text.len();
        self.text[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
    }
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text[..self.length]))
    }
}

impl fmt::Debug for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceFailure({self})")
    }
}

/// A reason with the names of a few devices.
const MAX_REASON: usize = 320;

const ELLIPSIS: &str = "...";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(DeviceFailure::new("busy").to_string(), "busy");
        for shift in 0..3 {
            let text = format!("{}{}", "x".repeat(shift), "\u{e9}".repeat(MAX_REASON));
            let kept = DeviceFailure::new(&text).to_string();
            assert!((MAX_REASON - 1..=MAX_REASON).contains(&kept.len()), "{}", kept.len());
            assert!(kept.ends_with("\u{e9}..."), "{kept}");
        }
    }
}

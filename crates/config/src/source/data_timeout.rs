//! How long a source that is connected may deliver nothing.

use aulos_core::Span;

use crate::keys::values::{parsed, quoted};
use crate::keys::{ConfigRead, ReadContext, ValueKind};
use crate::limits::DATA_TIMEOUT;
use crate::tree::Node;
use crate::units::{format_span, parse_span};

/// A time without data after which a source counts as failed; none for a source whose silence is
/// normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataTimeout(pub(crate) Option<Span>);

impl DataTimeout {
    /// For sources that are silent until something is played.
    pub(crate) const OFF: Self = Self(None);
    /// Of a program: one that decodes or receives delivers every second, and begins within some.
    pub(crate) const PROGRAM: Self = Self(Some(Span::from_secs(30)));
    /// Of a TCP connection: a player that is paused sends nothing. A sender that has vanished is
    /// noticed earlier, by the kernel and by the next one.
    pub(crate) const CONNECTION: Self = Self(Some(Span::from_secs(3_600)));
}

impl ConfigRead for DataTimeout {
    const KIND: &'static ValueKind =
        &ValueKind::AnyOf(&[&ValueKind::Duration, &ValueKind::Choice(|| vec![OFF])]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let timeout = match (text, text.parse::<u32>()) {
                (OFF, _) | (_, Ok(0)) => return Ok(Self::OFF),
                (_, Ok(seconds)) => Span::from_secs(seconds.into()),
                _ => parse_span(text)?,
            };
            let is_valid = DATA_TIMEOUT.contains(&timeout);
            let range = || {
                let (least, most) = (*DATA_TIMEOUT.start(), *DATA_TIMEOUT.end());
                format!("from {} to {}, or {OFF}", format_span(least), format_span(most))
            };
            if is_valid { Ok(Self(Some(timeout))) } else { Err(range()) }
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0.map_or_else(|| OFF.to_owned(), format_span)))
    }
}

const OFF: &str = "off";

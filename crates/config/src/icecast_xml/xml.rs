//! The elements of an XML file, with their lines.
//!
//! `quick-xml` splits the text. Entities that a file declares are not expanded, so no file grows;
//! the five of XML itself and characters by number are read.

use core::fmt;

use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// An element, with what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    pub(super) attributes: Vec<(String, String)>,
    /// Its own text, without spaces around it.
    pub(super) text: String,
    pub(super) children: Vec<Self>,
}

/// Why a file is no XML, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XmlError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Element {
    /// The first element of this name in it.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All elements of this name in it.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the first element of this name that has one.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        let named = self.children.iter().filter(|child| child.name == name);
        let mut texts = named.map(|child| child.text.as_str());
        texts.find(|text| !text.is_empty())
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads a file; returns its root element.
///
/// # Errors
/// [`XmlError`].
pub(super) fn parse(text: &str) -> Result<Element, XmlError> {
    let mut reader = Reader::from_str(text);
    let (mut line, mut counted) = (1, 0);
    // The elements that are open, from an unnamed one around the root.
    let mut open = vec![Element::default()];
    loop {
        let event = reader.read_event();
        let at = reader.buffer_position();
        let begins = line;
        line += count_lines(text, counted, at);
        counted = at;
        let error = |message: String| XmlError { line, message };
        let event = event.map_err(|reason| XmlError {
            line: 1 + count_lines(text, 0, reader.error_position()),
            message: reason.to_string(),
        })?;
        match event {
            Event::Start(start) => {
                if open.len() > MAX_DEPTH {
                    let message = format!("more than {MAX_DEPTH} elements are open");
                    return Err(error(message));
                }
                open.push(element(&start, begins).map_err(error)?);
            }
            Event::Empty(start) => {
                let child = element(&start, begins).map_err(error)?;
                append(&mut open, child);
            }
            Event::End(_) => {
                if let Some(mut done) = open.pop() {
                    done.text = done.text.trim().to_owned();
                    append(&mut open, done);
                }
            }
            Event::Text(piece) => {
                let piece = piece.decode().map_err(|reason| error(reason.to_string()))?;
                push_text(&mut open, &piece);
            }
            Event::CData(piece) => {
                let piece = piece.decode().map_err(|reason| error(reason.to_string()))?;
                push_text(&mut open, &piece);
            }
            Event::GeneralRef(name) => push_text(&mut open, &entity(&name).map_err(error)?),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            Event::Eof => break,
        }
    }
    root(open, line)
}

/// The only element at the top of a file that ends at `line`.
fn root(mut open: Vec<Element>, line: usize) -> Result<Element, XmlError> {
    if let [_, .., unclosed] = &open[..] {
        let message = format!("`<{}>` is not closed", unclosed.name);
        return Err(XmlError { line: unclosed.line, message });
    }
    let mut roots = open.pop().map(|around| around.children).unwrap_or_default();
    match roots.len() {
        1 => Ok(roots.remove(0)),
        count => {
            let message = format!("expected one element at the top, found {count}");
            Err(XmlError { line, message })
        }
    }
}

/// A character by its number, or one of the five entities of XML itself.
fn entity(name: &BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = name.resolve_char_ref().map_err(|reason| reason.to_string())? {
        return Ok(character.to_string());
    }
    let name = name.decode().map_err(|reason| reason.to_string())?;
    let known = resolve_xml_entity(&name).map(str::to_owned);
    known.ok_or_else(|| format!("the entity `&{name};` is not expanded"))
}

/// The line breaks between two positions.
fn count_lines(text: &str, from: u64, to: u64) -> usize {
    let at = |position| usize::try_from(position).unwrap_or(usize::MAX).min(text.len());
    let piece = text.as_bytes().get(at(from)..at(to)).unwrap_or_default();
    piece.iter().filter(|byte| **byte == b'\n').count()
}

fn element(start: &BytesStart<'_>, line: usize) -> Result<Element, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|reason| reason.to_string())?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|reason| reason.to_string())?;
        attributes.push((text(attribute.key.as_ref()), value.into_owned()));
    }
    let name = text(start.name().as_ref());
    Ok(Element { name, line, attributes, ..Element::default() })
}

fn append(open: &mut [Element], child: Element) {
    if let Some(parent) = open.last_mut() {
        parent.children.push(child);
    }
}

fn push_text(open: &mut [Element], piece: &str) {
    if let Some(parent) = open.last_mut() {
        parent.text.push_str(piece);
    }
}

impl fmt::Display for XmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl core::error::Error for XmlError {}

/// Elements in each other; Icecast's files have five.
const MAX_DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_text_attributes_and_line() {
        let text = "<?xml version=\"1.0\"?>\n<!-- a -->\n<a>\n <b c='1 &amp; 2'> x &lt;&#65;\n</b>\n \
                    <b/><![CDATA[<z>]]></a>\n";
        let root = parse(text).unwrap();
        assert_eq!((&*root.name, root.line, &*root.text), ("a", 3, "<z>"));
        assert_eq!(root.text_of("b"), Some("x <A"));
        let b = root.child("b").unwrap();
        assert_eq!((b.line, b.attribute("c")), (4, Some("1 & 2")));
        assert_eq!(root.all("b").count(), 2);
    }

    #[test]
    fn what_is_no_xml_is_named_with_its_line() {
        let deep = "<a>\n".repeat(40);
        for (text, line) in [
            ("", 1),
            ("<a>\n<b>\n</a>", 3),
            ("<a>\n<b>", 2),
            ("<a>\n\n<b c=></b></a>", 3),
            ("<a/>\n<b/>", 2),
            ("<!DOCTYPE a [<!ENTITY x \"y\">]>\n<a>\n&x;</a>", 3),
            (deep.as_str(), 33),
            ("no elements", 1),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
        }
    }
}

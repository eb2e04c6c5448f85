//! The bytes of a title for an output.

use aulos_config::{OutputCharset, TitleOutputSettings, TitleProtocol};
use aulos_proto::titles::{NowPlaying, TitleTemplate, UecpWriter, dynamic_label, fold_to_ascii};

/// Makes the bytes of titles for one output.
#[derive(Debug)]
pub(super) struct TitleEncoder {
    format: TitleTemplate,
    service_name: Option<TitleTemplate>,
    charset: OutputCharset,
    protocol: TitleProtocol,
    uecp: UecpWriter,
    /// Changes with each title.
    toggle: bool,
    last: Option<NowPlaying>,
}

impl TitleEncoder {
    pub(super) fn new(settings: &TitleOutputSettings) -> Self {
        Self {
            format: settings.format.clone(),
            service_name: settings.service_name.clone(),
            charset: settings.charset,
            protocol: settings.protocol,
            uecp: UecpWriter::new(settings.address),
            toggle: false,
            last: None,
        }
    }

    /// The type of the bytes, for HTTP.
    pub(super) const fn content_type(&self) -> &'static str {
        match (self.protocol, self.charset) {
            (TitleProtocol::Uecp, _) => "application/octet-stream",
            (TitleProtocol::Text, OutputCharset::Latin1) => "text/plain; charset=iso-8859-1",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// The bytes of a title.
    pub(super) fn encode(&mut self, playing: &NowPlaying) -> Vec<u8> {
        if self.last.as_ref() != Some(playing) {
            self.toggle = !self.toggle;
            self.last = Some(playing.clone());
        }
        let rendered = self.format.render(playing);
        match self.protocol {
            TitleProtocol::Text => in_charset(&rendered.text, self.charset),
            TitleProtocol::DlPlus => dynamic_label(&rendered, self.toggle).into_bytes(),
            TitleProtocol::Uecp => {
                let mut frames = Vec::new();
                if let Some(name) = &self.service_name {
                    self.uecp.service_name(&name.render(playing).text, &mut frames);
                }
                self.uecp.radio_text(&rendered.text, &mut frames);
                frames
            }
        }
    }
}

/// A text in these letters.
pub(super) fn in_charset(text: &str, charset: OutputCharset) -> Vec<u8> {
    match charset {
        OutputCharset::Utf8 => text.as_bytes().to_vec(),
        OutputCharset::Rds => fold_to_ascii(text).into_bytes(),
        OutputCharset::Latin1 => {
            let mut bytes = Vec::with_capacity(text.len());
            for letter in text.chars() {
                match u8::try_from(u32::from(letter)) {
                    Ok(byte) => bytes.push(byte),
                    Err(_) => bytes.extend(fold_to_ascii(letter.encode_utf8(&mut [0; 4])).bytes()),
                }
            }
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_a_charset_lacks_lose_their_accents() {
        let text = "Dvořák – Ó\r";
        assert_eq!(in_charset(text, OutputCharset::Utf8), text.as_bytes());
        assert_eq!(in_charset(text, OutputCharset::Latin1), b"Dvor\xE1k - \xD3\r");
        assert_eq!(in_charset(text, OutputCharset::Rds), b"Dvorak - O\r");
    }
}

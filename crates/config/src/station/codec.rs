//! `codec` of a station, its keys of single codecs, and `format` of a push: a codec with encoder settings.

use aulos_core::{CODECS, CodecInfo};
use aulos_engine::encode::{CodecConfig, CodecConfigError, CodecSettings};
use aulos_io::encoder;

use crate::keys::values::quoted;
use crate::keys::{ConfigRead, ReadContext, ValueKind, hint_for};
use crate::problem::{ConfigLocation, Problems};
use crate::tree::Node;

impl ConfigRead for CodecConfig {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let text = String::from_node(node, context)?;
        let parsed = parse(&text);
        parsed
            .map_err(|(message, hint)| context.problems.add_with_hint(node.at, message, hint))
            .ok()
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

/// A key with the settings of one codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CodecKey<T>(pub(crate) T);

impl<T: CodecSettings> ConfigRead for CodecKey<T> {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let text = String::from_node(node, context)?;
        let parsed = T::default().with_options(&text);
        let report = |error: CodecConfigError| {
            let message = format!("`{}` is \"{text}\": {error}", T::CODEC);
            context.problems.add_with_hint(node.at, message, error.remedy());
        };
        parsed.map(Self).map_err(report).ok()
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0.to_string()))
    }
}

/// Warns of a library that this machine does not have. That is no error: an update of the system
/// that removes the library must not keep a station from starting.
pub(crate) fn check_library(config: CodecConfig, at: ConfigLocation, problems: &Problems) {
    if let Err(missing) = encoder::check_library(config) {
        problems.warn(at, missing.to_string(), "the built-in encoder is used instead");
    }
}

/// Parses a codec with its settings; the error is a message and a hint.
pub(crate) fn parse(text: &str) -> Result<CodecConfig, (String, String)> {
    text.parse::<CodecConfig>().map_err(|error| {
        if error != CodecConfigError::UnknownCodec {
            return (format!("`codec` is \"{text}\": {error}"), error.remedy().to_owned());
        }
        let name = text.split(':').next().unwrap_or_default();
        (format!("`{name}` is not a codec"), hint_for(name, &CODECS.each_ref().map(|row| row.name)))
    })
}

/// Parses the container of a push with encoder settings, as in `ogg`, `opus:128k` or `flac:8`.
/// Without settings it takes those of its station if the codec is the same, so that no further
/// encoder is needed, or those of `own`, the settings of codecs that have a key of their own.
pub(crate) fn resolve_container(
    text: &str,
    station: CodecConfig,
    own: &[CodecConfig],
) -> Result<CodecConfig, (String, String)> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let Some(CodecInfo { codec, .. }) = CodecInfo::of_extension(name) else {
        let containers: Vec<_> = CodecInfo::all_extensions().collect();
        let hint = hint_for(name, &containers);
        return Err((format!("`format` is \"{name}\", which is not supported"), hint));
    };
    let own = own.iter().find(|own| own.codec() == *codec).copied();
    if settings.is_empty() {
        return Ok(own.unwrap_or_else(|| station.or_default_of(*codec)));
    }
    let base = own.unwrap_or_else(|| (*codec).into());
    base.with_options(settings).map_err(|error| {
        let remedy = match error {
            CodecConfigError::NoSettings => format!("write `{name}` alone"),
            _ => error.remedy().to_owned(),
        };
        (format!("`format` is \"{text}\": {error}"), remedy)
    })
}

#[cfg(test)]
mod tests {
    use aulos_engine::encode::Mp3Config;

    use super::*;

    #[test]
    fn a_container_takes_the_settings_of_a_station_with_its_codec() {
        let [plain, own]: [CodecConfig; 2] =
            ["opus", "opus:96k,cbr"].map(|text| text.parse().unwrap());
        let flac: CodecConfig = "flac:8".parse().unwrap();
        let mp3 = Mp3Config::default().with_options("128k,lame").unwrap();
        let of = |text: &str, station| {
            resolve_container(text, station, &[mp3.into()]).map(|config| config.to_string())
        };
        assert_eq!(of("mp3", own).as_deref(), Ok("mp3:128k,lame"));
        assert_eq!(of("mp3:256k", own).as_deref(), Ok("mp3:256k,lame"));
        assert_eq!(of("mp3:96k,builtin", own).as_deref(), Ok("mp3:96k,builtin"));
        assert!(of("mp3:97k", own).unwrap_err().1.contains("96k, 112k"));
        assert_eq!(of("ogg", own).as_deref(), Ok("opus:96k,cbr"));
        assert_eq!(of("opus", flac).as_deref(), Ok("opus"));
        assert_eq!(of("ogg:128k", own).as_deref(), Ok("opus:128k"));
        assert_eq!(of("flac", flac).as_deref(), Ok("flac:8"));
        assert_eq!(of("wav", plain).as_deref(), Ok("pcm"));
        let (message, hint) = of("wav:16", plain).unwrap_err();
        assert!(
            message.contains("`format` is \"wav:16\"") && hint == "write `wav` alone",
            "{hint}"
        );
        let (message, hint) = of("opus:5k", plain).unwrap_err();
        assert!(message.contains("6000 to 510000") && hint.contains("opus:128k"), "{message}");
        assert_eq!(of("oog", plain).unwrap_err().1, "did you mean `ogg`?");
    }
}

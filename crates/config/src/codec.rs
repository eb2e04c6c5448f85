//! `codec` of a station and `format` of a push: a codec with encoder settings.

use aulos_core::{CODECS, CodecInfo};
use aulos_engine::encode::{CodecConfig, CodecConfigError};

use crate::keys::{ConfigRead, Context, Shape, hint_for};
use crate::tree::Node;
use crate::values::quoted;

impl ConfigRead for CodecConfig {
    const SHAPE: &'static Shape = &Shape::Text;

    fn from_node(node: &Node, context: &Context<'_>) -> Option<Self> {
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
/// encoder is needed.
pub(crate) fn resolve_container(
    text: &str,
    station: CodecConfig,
) -> Result<CodecConfig, (String, String)> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let Some(CodecInfo { codec, .. }) = CodecInfo::of_extension(name) else {
        let containers: Vec<_> = CODECS.iter().flat_map(|row| row.extensions).copied().collect();
        let hint = hint_for(name, &containers);
        return Err((format!("`format` is \"{name}\", which is not supported"), hint));
    };
    if settings.is_empty() {
        return Ok(station.or_default_of(*codec));
    }
    format!("{codec}:{settings}").parse().map_err(|error: CodecConfigError| {
        let remedy = match error {
            CodecConfigError::NoSettings => format!("write `{name}` alone"),
            _ => error.remedy().to_owned(),
        };
        (format!("`format` is \"{text}\": {error}"), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_takes_the_settings_of_a_station_with_its_codec() {
        let [plain, own]: [CodecConfig; 2] =
            ["opus", "opus:96k,cbr"].map(|text| text.parse().unwrap());
        let flac: CodecConfig = "flac:8".parse().unwrap();
        let of =
            |text: &str, station| resolve_container(text, station).map(|config| config.to_string());
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

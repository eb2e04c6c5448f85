//! `icy`: what web listeners and directories are told of a stream.

use aulos_proto::http::icy::IcyInfo;

use crate::keys::keys;
use crate::limits::{ICY_BITRATE_KBPS, ICY_METAINT, MAX_ICY_TEXT};
use crate::problem::{ConfigValue, Problems};

keys! {
    /// What web listeners are told of a stream in `icy-` headers, and directories in the
    /// statistics.
    pub(crate) struct IcyConfig {
        /// Name of the programme (`icy-name`).
        name: Option<ConfigValue<String>>, default_doc "that of the station or the mount";
        /// Genre (`icy-genre`).
        genre: Option<ConfigValue<String>>;
        /// Description (`icy-description`).
        description: Option<ConfigValue<String>>;
        /// Web site (`icy-url`).
        site: Option<ConfigValue<String>>;
        /// Whether directories may list the stream (`icy-pub`).
        public: Option<bool>, default_doc "nothing is said";
        /// Bit rate (`icy-br`) where the encoder does not determine it, as in what a mount passes.
        bitrate_kbps: Option<u32>, range ICY_BITRATE_KBPS, "kbit/s";
        /// Bytes of audio between two places for titles (`icy-metaint`). 16000 are a second of MP3
        /// at 128 kbit/s; with fewer a title is nearer to its sound.
        metaint: Option<u32>, range ICY_METAINT, "bytes", default_doc "16000, as Icecast has it";
    }
}

pub(super) fn resolve(config: &IcyConfig, problems: &Problems) -> IcyInfo {
    let text = |text: &Option<ConfigValue<String>>| {
        let ConfigValue { value, at } = text.as_ref()?;
        if value.len() > MAX_ICY_TEXT {
            problems.add(*at, format!("a text in `icy` has at most {MAX_ICY_TEXT} bytes"));
        }
        Some(value.clone())
    };
    IcyInfo {
        name: text(&config.name),
        genre: text(&config.genre),
        description: text(&config.description),
        site: text(&config.site),
        public: config.public,
        bitrate_kbps: config.bitrate_kbps,
        interval: config.metaint.map(|bytes| bytes as usize),
    }
}

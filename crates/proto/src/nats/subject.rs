//! Names of subjects, and of keys in buckets.
//!
//! The names of sites, stations and nodes are any text. In a subject, a dot separates, `*` and `>`
//! are wildcards, and a key may have letters, digits and `-/_=.` only; so a name is written with
//! `=XX` for every other byte.

use core::fmt::Write as _;

/// The bucket that holds the [`StreamRecord`](super::StreamRecord) of each stream, and its
/// [`LeaseRecord`](super::LeaseRecord).
pub const STREAMS_BUCKET: &str = "aulos_streams";

/// Maximum length of a name in bytes; with it a subject is below the 4 kB of a line of NATS.
pub const MAX_SUBJECT_NAME: usize = 256;

/// The subject of a station's chunks.
#[must_use]
pub fn audio_subject(site: &str, station: &str, codec: &str) -> String {
    format!("{PREFIX}.{}.audio.{}.{}", token(site), token(station), token(codec))
}

/// The subjects of a station's chunks in any codec.
#[must_use]
pub fn all_audio_subjects(site: &str, station: &str) -> String {
    format!("{PREFIX}.{}.audio.{}.*", token(site), token(station))
}

/// The subject of a station's records.
#[must_use]
pub fn meta_subject(site: &str, station: &str) -> String {
    format!("{PREFIX}.{}.meta.{}", token(site), token(station))
}

/// The subject on which a node answers requests for its time.
#[must_use]
pub fn clock_subject(site: &str, node: &str) -> String {
    format!("{PREFIX}.{}.clock.{}", token(site), token(node))
}

/// The subject on which every node of a site answers requests for its status.
#[must_use]
pub fn status_subject(site: &str) -> String {
    format!("{PREFIX}.{}.control.status", token(site))
}

/// The subject on which the origin of a station takes requests for lost chunks.
#[must_use]
pub fn repair_subject(site: &str, station: &str) -> String {
    format!("{PREFIX}.{}.repair.{}", token(site), token(station))
}

/// The key of a station's record in [`STREAMS_BUCKET`].
#[must_use]
pub fn record_key(site: &str, station: &str) -> String {
    format!("{}.{}", token(site), token(station))
}

/// The key of a station's lease in [`STREAMS_BUCKET`], which needs no rights but those for records.
#[must_use]
pub fn lease_key(site: &str, station: &str) -> String {
    format!("{}.lease", record_key(site, station))
}

/// A name as one token; longer names are cut at [`MAX_SUBJECT_NAME`], an empty one is `=`.
pub(super) fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes().take(MAX_SUBJECT_NAME) {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            token.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            write!(token, "={byte:02X}").ok();
        }
    }
    if token.is_empty() { "=".to_owned() } else { token }
}

const PREFIX: &str = "aulos.v1";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_one_token() {
        assert_eq!(audio_subject("home", "Radio 1", "flac"), "aulos.v1.home.audio.Radio=201.flac");
        assert_eq!(all_audio_subjects("a.b", ">"), "aulos.v1.a=2Eb.audio.=3E.*");
        assert_eq!(meta_subject("home", "K\u{fc}che"), "aulos.v1.home.meta.K=C3=BCche");
        assert_eq!(clock_subject("home", ""), "aulos.v1.home.clock.=");
        assert_eq!(status_subject("home"), "aulos.v1.home.control.status");
        assert_eq!(repair_subject("home", "a b"), "aulos.v1.home.repair.a=20b");
        assert_eq!(record_key("home", "a=b"), "home.a=3Db");
        assert_eq!(lease_key("home", "a.b"), "home.a=2Eb.lease");
    }

    proptest! {
        #[test]
        fn different_names_have_different_tokens(a in ".{0,60}", b in ".{0,60}") {
            prop_assert_eq!(a == b, token(&a) == token(&b));
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte);
            prop_assert!(token(&a).bytes().all(is_plain));
        }
    }
}

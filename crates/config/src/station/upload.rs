//! `upload` of a recorder: S3-compatible storage for closed files.
//!
//! As for pushes, the keys are separate from the URL. Every build reads this table, so that a
//! server without the feature `s3` reports the missing feature instead of an unknown key.

use axum::http::Uri;

use crate::env::Environment;
use crate::keys::keys;
use crate::limits::{
    DEFAULT_UPLOAD_CONCURRENCY, DEFAULT_UPLOAD_PART_MIB, MAX_UPLOAD_KEY, MAX_UPLOAD_PREFIX,
    MIN_UPLOAD_KEY, UPLOAD_CONCURRENCY, UPLOAD_PART_MIB,
};
use crate::problem::{ConfigValue, Problems};
use crate::security::secrets::{RedactedDebug, SecretConfig};

keys! {
    /// Uploads of complete files to S3-compatible storage.
    pub(crate) struct UploadConfig {
        /// Bucket and prefix: `s3://BUCKET/PREFIX`. `{station}` is the station's name.
        url: Option<ConfigValue<String>>, required "upload = { url = \"s3://BUCKET/PREFIX\", region = \"eu-central-1\", access_key = \"ID\", secret_key_file = \"FILE\" }";
        /// Server: `https://HOST`.
        endpoint: Option<ConfigValue<String>>, default_doc "Amazon's for `region`";
        /// Region of signatures.
        region: Option<ConfigValue<String>>, default_doc "with `endpoint` `us-east-1`";
        /// Id of the access key.
        access_key: Option<ConfigValue<String>>, required "access_key = \"ID\"";
        /// Secret access key.
        secret_key: Option<SecretConfig>, required "secret_key_file = \"FILE\"";
        /// Write the bucket into the path instead of the host name.
        path_style: Option<bool>, default_doc "`true` with `endpoint`";
        /// Storage class.
        storage_class: Option<ConfigValue<String>>, default_doc "the server's";
        /// Keep uploaded files on this machine.
        keep_local: bool = true;
        /// Concurrent files.
        concurrency: u32 = DEFAULT_UPLOAD_CONCURRENCY, range UPLOAD_CONCURRENCY, "files";
        /// Part size of large files.
        part_mib: u32 = DEFAULT_UPLOAD_PART_MIB, range UPLOAD_PART_MIB, "MiB";
    }
}

/// S3-compatible storage for the closed files of a recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadTarget {
    /// Scheme, host and port of the server: `https://s3.example`, without the bucket.
    pub endpoint: String,
    /// The region of signatures.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// The prefix of object names; may be empty, without a slash at either end.
    pub prefix: String,
    /// Whether the bucket is in the path and not in the host name.
    pub path_style: bool,
    /// The access key id.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: RedactedDebug<String>,
    /// The storage class; none uses the server's default.
    pub storage_class: Option<String>,
    /// Whether uploaded files are kept locally.
    pub keep_local: bool,
    /// Concurrent files.
    pub concurrency: usize,
    /// Part size of large files in bytes; smaller files are sent in one request.
    pub part_bytes: u64,
}

/// Validates the table and reads its secret. `station` is the recorder's station.
pub(crate) fn resolve(
    config: &UploadConfig,
    station: &str,
    env: &Environment,
    problems: &Problems,
) -> Option<UploadTarget> {
    resolve_for(cfg!(feature = "s3"), config, station, env, problems)
}

fn resolve_for(
    built: bool,
    config: &UploadConfig,
    station: &str,
    env: &Environment,
    problems: &Problems,
) -> Option<UploadTarget> {
    if !built {
        let hint = "build with --features s3, or leave `upload` out";
        problems.add_with_hint(config.at, "`upload` requires a build with the feature `s3`", hint);
    }
    let secret = config.secret_key.as_ref();
    let secret = secret.and_then(|secret| secret.text(MIN_UPLOAD_KEY, env, problems));
    let target = config.url.as_ref().and_then(|url| target(url, station, problems));
    let endpoint = endpoint(config, problems);
    let storage_class = config.storage_class.as_ref();
    let storage_class = storage_class.map(|class| header_text(class, "storage_class", problems));
    let access_key = config.access_key.as_ref().map(|key| header_text(key, "access_key", problems));
    let ((bucket, prefix), (endpoint, region)) = (target?, endpoint?);
    let path_style = config.path_style.unwrap_or_else(|| config.endpoint.is_some());
    if !path_style && bucket.contains('.') && endpoint.starts_with("https:") {
        let message = format!("no certificate is valid for the host name of the bucket `{bucket}`");
        problems.add_with_hint(config.at, message, "path_style = true, or a bucket without a dot");
    }
    Some(UploadTarget {
        endpoint,
        region,
        bucket,
        prefix,
        path_style,
        access_key: access_key?,
        secret_key: RedactedDebug(secret?),
        storage_class,
        keep_local: config.keep_local,
        concurrency: config.concurrency as usize,
        part_bytes: u64::from(config.part_mib) << 20,
    })
}

/// Bucket and prefix.
fn target(
    url: &ConfigValue<String>,
    station: &str,
    problems: &Problems,
) -> Option<(String, String)> {
    let refuse = |fact: String, hint: &str| {
        problems.add_with_hint(url.at, fact, hint);
        None
    };
    let Some(rest) = url.value.strip_prefix("s3://") else {
        return refuse("`url` does not begin with s3://".to_owned(), &format!("as in {EXAMPLE}"));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        // The text may contain a key, so it is not printed.
        let hint = "write { url = \"s3://BUCKET/PREFIX\", access_key = \"ID\", \
                    secret_key_file = \"FILE\" }";
        return refuse("`url` must not contain a name or a key".to_owned(), hint);
    }
    // Amazon's naming rules ("General purpose bucket naming rules"), which other servers share.
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: char| is_allowed(c) && c.is_ascii_alphanumeric();
    if !(3..=63).contains(&bucket.len())
        || !bucket.chars().all(is_allowed)
        || !bucket.starts_with(ends)
        || !bucket.ends_with(ends)
        || bucket.contains("..")
    {
        let hint = "3 to 63 small letters, digits, dashes and dots";
        return refuse(format!("`{}` is not a valid bucket name", bucket.escape_debug()), hint);
    }
    let prefix = prefix.trim_end_matches('/').replace("{station}", station);
    let fine = |part: &str| !matches!(part, "" | "." | "..");
    if !prefix.is_empty() && !prefix.split('/').all(fine) {
        return refuse(
            format!("`{}` is not a valid prefix", prefix.escape_debug()),
            "no empty parts, and none of dots alone",
        );
    }
    if prefix.len() > MAX_UPLOAD_PREFIX || prefix.chars().any(char::is_control) {
        let hint = format!("at most {MAX_UPLOAD_PREFIX} bytes in one line");
        return refuse("the prefix is not valid".to_owned(), &hint);
    }
    if prefix.contains(['{', '}', '?', '#']) {
        let hint = "{station} is the only placeholder; ? and # are not permitted";
        return refuse(format!("`{prefix}` is not a valid prefix"), hint);
    }
    Some((bucket.to_owned(), prefix))
}

/// The server and its region.
fn endpoint(config: &UploadConfig, problems: &Problems) -> Option<(String, String)> {
    let region = config.region.as_ref().map(|region| {
        let region = ConfigValue { value: region.value.to_ascii_lowercase(), at: region.at };
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if region.value.is_empty() || !region.value.chars().all(fine) {
            let message = format!("`region` is \"{}\"", region.value.escape_debug());
            problems.add_with_hint(region.at, message, "as in region = \"eu-central-1\"");
        }
        region.value
    });
    let Some(ConfigValue { value, at }) = &config.endpoint else {
        let Some(region) = region else {
            let hint = "region = \"eu-central-1\" for Amazon's, or endpoint = \"https://HOST\"";
            problems.add_with_hint(config.at, "`upload` has neither `region` nor `endpoint`", hint);
            return None;
        };
        return Some((format!("https://s3.{region}.amazonaws.com"), region));
    };
    let refuse = |fact: &str| {
        problems.add_with_hint(
            *at,
            format!("`endpoint` {fact}"),
            "as in endpoint = \"https://s3.example\"",
        );
        None
    };
    let Ok(uri) = value.parse::<Uri>() else { return refuse("is not a URL") };
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return refuse("does not begin with http:// or https://");
    };
    if authority.as_str().contains('@') {
        return refuse("must not contain a name or a key: use `access_key`");
    }
    if uri.path() != "/" || uri.query().is_some() {
        return refuse("must not have a path: the bucket belongs into `url`");
    }
    let authority = authority.as_str().to_ascii_lowercase();
    Some((format!("{scheme}://{authority}"), region.unwrap_or_else(|| DEFAULT_REGION.to_owned())))
}

/// A value for an HTTP header.
fn header_text(text: &ConfigValue<String>, key: &str, problems: &Problems) -> String {
    let fine = |c: char| c.is_ascii_graphic();
    if text.value.is_empty() || text.value.len() > MAX_UPLOAD_KEY || !text.value.chars().all(fine) {
        let hint = format!("1 to {MAX_UPLOAD_KEY} ASCII characters without spaces");
        problems.add_with_hint(text.at, format!("`{key}` is not valid"), hint);
    }
    text.value.clone()
}

/// Servers without regions accept this one.
const DEFAULT_REGION: &str = "us-east-1";

const EXAMPLE: &str = "upload = { url = \"s3://BUCKET/PREFIX\", region = \"eu-central-1\", \
                       access_key = \"ID\", secret_key_file = \"FILE\" }";

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::keys::table_of;
    use crate::problem::ConfigLocation;
    use crate::tree;
    use aulos_blackbox::golden;

    /// The problems of a configuration, or the validated target.
    fn check(built: bool, keys: &str) -> Result<UploadTarget, String> {
        let problems = Problems::default();
        let root = tree::parse(&format!("upload = {{ {keys} }}"), &ConfigLocation::File, &problems);
        let config = table_of(root.get("upload").unwrap(), "upload", &problems);
        let upload = resolve_for(built, &config, "Roof", &Environment::default(), &problems);
        let mut text = String::new();
        for problem in problems.into_errors() {
            writeln!(text, "{}", problem.message).unwrap();
            writeln!(text, "    hint: {}", problem.hint.unwrap_or_default()).unwrap();
        }
        if text.is_empty() { Ok(upload.unwrap()) } else { Err(text) }
    }

    const KEYS: &str = "access_key = \"ID\", secret_key = \"hush hush\"";

    #[test]
    fn little_has_to_be_said_and_the_rest_follows() {
        let amazon = format!("url = \"s3://tapes\", region = \"eu-central-1\", {KEYS}");
        let amazon = check(true, &amazon).unwrap();
        assert_eq!(amazon.endpoint, "https://s3.eu-central-1.amazonaws.com");
        assert_eq!((amazon.prefix.as_str(), amazon.path_style), ("", false));
        assert!(amazon.keep_local, "nothing is deleted unless it is asked for");
        assert_eq!((amazon.concurrency, amazon.part_bytes), (2, 8 << 20));
        assert!(!format!("{amazon:?}").contains("hush"));
        let own = "url = \"s3://tapes/radio/{station}/\", endpoint = \"http://127.0.0.1:9000/\"";
        let own = check(true, &format!("{own}, keep_local = false, {KEYS}")).unwrap();
        assert_eq!(
            (own.endpoint.as_str(), own.region.as_str()),
            ("http://127.0.0.1:9000", "us-east-1")
        );
        assert_eq!(
            (own.prefix.as_str(), own.path_style, own.keep_local),
            ("radio/Roof", true, false)
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_what_helps() {
        let url = "url = \"s3://tapes\", region = \"eu-central-1\"";
        let wrong = [
            String::new(),
            format!("url = \"s3://tapes\", {KEYS}"),
            format!("url = \"https://tapes.example\", region = \"x\", {KEYS}"),
            format!("url = \"s3://ID:hush@tapes\", region = \"x\", {KEYS}"),
            format!("url = \"s3://My_Tapes\", region = \"x\", {KEYS}"),
            format!("url = \"s3://tapes/a//b\", region = \"x\", {KEYS}"),
            format!("url = \"s3://tapes/../b\", region = \"x\", {KEYS}"),
            format!("url = \"s3://tapes/{{name}}\", region = \"x\", {KEYS}"),
            format!("url = \"s3://my.tapes\", region = \"x\", {KEYS}"),
            format!("url = \"s3://tapes\", endpoint = \"ftp://x\", {KEYS}"),
            format!("url = \"s3://tapes\", endpoint = \"https://x/tapes\", {KEYS}"),
            format!("url = \"s3://tapes\", region = \"eu central\", {KEYS}"),
            format!("{url}, access_key = \"I D\", secret_key = \"hush hush\""),
            format!("{url}, access_key = \"ID\", secret_key_env = \"NOT_THERE\""),
            format!("{url}, access_key = \"ID\", secret_key = \"a b\", secret_key_file = \"x\""),
            format!("{url}, concurrency = 99, part_mib = 4, acess_key = \"x\", {KEYS}"),
        ];
        let mut all = String::new();
        for keys in wrong {
            let told = check(true, &keys).expect_err(&keys);
            assert!(!told.contains("hush"), "{told}");
            writeln!(all, "upload = {{ {} }}\n{told}", keys.replace("hush", "****")).unwrap();
        }
        golden::compare(env!("CARGO_MANIFEST_DIR"), "config_upload_wrong.txt", &all);
    }

    #[test]
    fn a_build_without_it_says_so_and_still_checks_the_rest() {
        let told = check(false, &format!("url = \"s3://tapes\", {KEYS}")).unwrap_err();
        assert!(told.contains("requires a build with the feature `s3`"), "{told}");
        assert!(told.contains("build with --features s3"), "{told}");
        assert!(told.contains("neither `region` nor `endpoint`"), "{told}");
    }
}

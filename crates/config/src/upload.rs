//! `upload` of a recorder: S3-compatible storage for closed files.
//!
//! As for pushes, the keys are separate from the URL. Every build reads this table, so that a
//! server without the feature `s3` reports the missing feature instead of an unknown key.

use axum::http::Uri;

use super::env::Environment;
use super::hooks::RedactedDebug;
use super::limits::{
    DEFAULT_UPLOAD_CONCURRENCY, DEFAULT_UPLOAD_PART_MIB, MAX_UPLOAD_KEY, MAX_UPLOAD_PREFIX,
    MIN_UPLOAD_KEY, UPLOAD_CONCURRENCY, UPLOAD_PART_MIB,
};
use super::problem::{ConfigLocation, ConfigValue, Problems};
use super::read::{TableReader, report_missing};
use super::security::{SecretConfig, read_secret, secret_text};
use super::tree::Node;

/// `upload` as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UploadConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// `s3://BUCKET/PREFIX`; required.
    pub url: Option<ConfigValue<String>>,
    /// The server; by default Amazon's for the region.
    pub endpoint: Option<ConfigValue<String>>,
    /// The region of signatures; by default `us-east-1`, which other servers than Amazon's accept.
    pub region: Option<ConfigValue<String>>,
    /// The access key id; required.
    pub access_key: Option<ConfigValue<String>>,
    /// The secret access key; required.
    pub secret_key: Option<SecretConfig>,
    /// Whether the bucket is in the path and not in the host name.
    pub path_style: Option<bool>,
    /// The storage class.
    pub storage_class: Option<ConfigValue<String>>,
    /// Whether uploaded files are kept locally.
    pub keep_local: Option<bool>,
    /// Concurrent files.
    pub concurrency: Option<u32>,
    /// Part size of large files in MiB.
    pub part_mib: Option<u32>,
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

/// Reads `upload`, a table.
pub(super) fn read(node: &Node, problems: &Problems) -> UploadConfig {
    let mut table = TableReader::new(node, "`upload`", problems);
    let keys = ["secret_key", "secret_key_file", "secret_key_env"];
    let upload = UploadConfig {
        at: node.at,
        url: table.text("url"),
        endpoint: table.text("endpoint"),
        region: table.text("region"),
        access_key: table.text("access_key"),
        secret_key: read_secret(&mut table, keys, "upload", problems),
        path_style: table.flag("path_style"),
        storage_class: table.text("storage_class"),
        keep_local: table.flag("keep_local"),
        concurrency: table.number("concurrency", "files", UPLOAD_CONCURRENCY).map(|at| at.value),
        part_mib: table.number("part_mib", "MiB", UPLOAD_PART_MIB).map(|at| at.value),
    };
    table.finish();
    let wrong_kind = |key| node.get(key).is_some();
    if upload.url.is_none() && !wrong_kind("url") {
        report_missing(problems, node.at, "url", "`upload`", EXAMPLE);
    }
    if upload.access_key.is_none() && !wrong_kind("access_key") {
        report_missing(problems, node.at, "access_key", "`upload`", EXAMPLE);
    }
    if upload.secret_key.is_none() && !keys.into_iter().any(wrong_kind) {
        report_missing(problems, node.at, "secret_key_file", "`upload`", EXAMPLE);
    }
    upload
}

/// Validates the table and reads its secret. `station` is the recorder's station.
pub(super) fn resolve(
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
        problems.add_with_hint(config.at, "this build has no s3, which `upload` needs", hint);
    }
    let secret = config.secret_key.as_ref();
    let secret = secret.and_then(|secret| secret_text(secret, MIN_UPLOAD_KEY, env, problems));
    let target = config.url.as_ref().and_then(|url| target(url, station, problems));
    let endpoint = endpoint(config, problems);
    let storage_class = config.storage_class.as_ref();
    let storage_class = storage_class.map(|class| header_text(class, "storage_class", problems));
    let access_key = config.access_key.as_ref().map(|key| header_text(key, "access_key", problems));
    let ((bucket, prefix), (endpoint, region)) = (target?, endpoint?);
    let path_style = config.path_style.unwrap_or_else(|| config.endpoint.is_some());
    if !path_style && bucket.contains('.') && endpoint.starts_with("https:") {
        let message = format!("a certificate is not for `{bucket}` in front of the host's name");
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
        keep_local: config.keep_local.unwrap_or(true),
        concurrency: config.concurrency.unwrap_or(DEFAULT_UPLOAD_CONCURRENCY) as usize,
        part_bytes: u64::from(config.part_mib.unwrap_or(DEFAULT_UPLOAD_PART_MIB)) << 20,
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
        return refuse("`url` is not of s3:".to_owned(), &format!("as in {EXAMPLE}"));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        // The text may contain a key, so it is not printed.
        let hint = "write { url = \"s3://BUCKET/PREFIX\", access_key = \"ID\", \
                    secret_key_file = \"FILE\" }";
        return refuse("`url` has a name or a key in front of its bucket".to_owned(), hint);
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
        return refuse(format!("`{}` cannot be a bucket", bucket.escape_debug()), hint);
    }
    let prefix = prefix.trim_end_matches('/').replace("{station}", station);
    let fine = |part: &str| !matches!(part, "" | "." | "..");
    if !prefix.is_empty() && !prefix.split('/').all(fine) {
        return refuse(
            format!("`{}` cannot begin the names of objects", prefix.escape_debug()),
            "no empty parts, and none of dots alone",
        );
    }
    if prefix.len() > MAX_UPLOAD_PREFIX || prefix.chars().any(char::is_control) {
        let hint = format!("at most {MAX_UPLOAD_PREFIX} bytes in one line");
        return refuse("what stands behind the bucket is no prefix".to_owned(), &hint);
    }
    if prefix.contains(['{', '}', '?', '#']) {
        let hint = "{station} is all that is filled in; ? and # have no meaning here";
        return refuse(format!("`{prefix}` cannot begin the names of objects"), hint);
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
    let Ok(uri) = value.parse::<Uri>() else { return refuse("is no address") };
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return refuse("is not of http: or https:");
    };
    if authority.as_str().contains('@') {
        return refuse("has a name or a key in front of its host: `access_key` takes it");
    }
    if uri.path() != "/" || uri.query().is_some() {
        return refuse("has something behind its host: the bucket stands in `url`");
    }
    let authority = authority.as_str().to_ascii_lowercase();
    Some((format!("{scheme}://{authority}"), region.unwrap_or_else(|| DEFAULT_REGION.to_owned())))
}

/// A value for an HTTP header.
fn header_text(text: &ConfigValue<String>, key: &str, problems: &Problems) -> String {
    let fine = |c: char| c.is_ascii_graphic();
    if text.value.is_empty() || text.value.len() > MAX_UPLOAD_KEY || !text.value.chars().all(fine) {
        let hint = format!("1 to {MAX_UPLOAD_KEY} letters, digits and signs without a blank");
        problems.add_with_hint(text.at, format!("`{key}` cannot be sent"), hint);
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

    use super::super::tree;
    use super::*;
    use aulos_blackbox::golden;

    /// The problems of a configuration, or the validated target.
    fn check(built: bool, keys: &str) -> Result<UploadTarget, String> {
        let problems = Problems::default();
        let root = tree::parse(&format!("upload = {{ {keys} }}"), &ConfigLocation::File, &problems);
        let config = read(root.get("upload").unwrap(), &problems);
        let upload = resolve_for(built, &config, "Roof", &Environment::default(), &problems);
        let mut text = String::new();
        for problem in problems.into_sorted() {
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
        assert!(told.contains("this build has no s3"), "{told}");
        assert!(told.contains("build with --features s3"), "{told}");
        assert!(told.contains("neither `region` nor `endpoint`"), "{told}");
    }
}

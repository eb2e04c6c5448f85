//! S3-compatible storage, for the tables that have one: `upload` of a recorder and of `hls`.
//!
//! As for pushes, the keys are separate from the URL. Every build reads them, so that a server
//! without the feature `s3` reports the missing feature instead of an unknown key.

use axum::http::Uri;

use crate::env::Environment;
use crate::limits::{MAX_UPLOAD_KEY, MAX_UPLOAD_PREFIX, MIN_UPLOAD_KEY};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::security::secrets::{RedactedDebug, SecretConfig};

/// A prefix of a bucket in S3-compatible storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageTarget {
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
}

impl StorageTarget {
    /// `s3://BUCKET/PREFIX`.
    #[must_use]
    pub fn url(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("s3://{}{slash}{}", self.bucket, self.prefix)
    }
}

/// The keys of a storage, of whichever table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorageKeys<'a> {
    pub(crate) at: ConfigLocation,
    pub(crate) url: Option<&'a ConfigValue<String>>,
    pub(crate) endpoint: Option<&'a ConfigValue<String>>,
    pub(crate) region: Option<&'a ConfigValue<String>>,
    pub(crate) access_key: Option<&'a ConfigValue<String>>,
    pub(crate) secret_key: Option<&'a SecretConfig>,
    pub(crate) path_style: Option<bool>,
    pub(crate) storage_class: Option<&'a ConfigValue<String>>,
}

/// Validates the keys and reads the secret. `station` is the name of the station.
pub(crate) fn resolve(
    is_built: bool,
    keys: &StorageKeys<'_>,
    station: &str,
    env: &Environment,
    problems: &Problems,
) -> Option<StorageTarget> {
    if !is_built {
        let hint = "build with --features s3, or leave `upload` out";
        problems.add_with_hint(keys.at, "`upload` requires a build with the feature `s3`", hint);
    }
    let secret = keys.secret_key.and_then(|secret| secret.text(MIN_UPLOAD_KEY, env, problems));
    let target = keys.url.and_then(|url| target(url, station, problems));
    let endpoint = endpoint(keys, problems);
    let storage_class = keys.storage_class;
    let storage_class = storage_class.map(|class| header_text(class, "storage_class", problems));
    let access_key = keys.access_key.map(|key| header_text(key, "access_key", problems));
    let ((bucket, prefix), (endpoint, region)) = (target?, endpoint?);
    let path_style = keys.path_style.unwrap_or_else(|| keys.endpoint.is_some());
    if !path_style && bucket.contains('.') && endpoint.starts_with("https:") {
        let message = format!("no certificate is valid for the host name of the bucket `{bucket}`");
        problems.add_with_hint(keys.at, message, "path_style = true, or a bucket without a dot");
    }
    Some(StorageTarget {
        endpoint,
        region,
        bucket,
        prefix,
        path_style,
        access_key: access_key?,
        secret_key: RedactedDebug(secret?),
        storage_class,
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
fn endpoint(keys: &StorageKeys<'_>, problems: &Problems) -> Option<(String, String)> {
    let region = keys.region.map(|region| {
        let region = ConfigValue { value: region.value.to_ascii_lowercase(), at: region.at };
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if region.value.is_empty() || !region.value.chars().all(fine) {
            let message = format!("`region` is \"{}\"", region.value.escape_debug());
            problems.add_with_hint(region.at, message, "as in region = \"eu-central-1\"");
        }
        region.value
    });
    let Some(ConfigValue { value, at }) = keys.endpoint else {
        let Some(region) = region else {
            let hint = "region = \"eu-central-1\" for Amazon's, or endpoint = \"https://HOST\"";
            problems.add_with_hint(keys.at, "`upload` has neither `region` nor `endpoint`", hint);
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

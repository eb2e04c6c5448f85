//! `upload` of a recorder: S3-compatible storage for closed files.

use crate::env::Environment;
use crate::keys::keys;
use crate::limits::{
    DEFAULT_UPLOAD_CONCURRENCY, DEFAULT_UPLOAD_PART_MIB, UPLOAD_CONCURRENCY, UPLOAD_PART_MIB,
};
use crate::problem::{ConfigValue, Problems};
use crate::security::secrets::SecretConfig;
use crate::station::storage::{self, StorageKeys, StorageTarget};

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
    /// Where they go.
    pub storage: StorageTarget,
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
    let keys = StorageKeys {
        at: config.at,
        url: config.url.as_ref(),
        endpoint: config.endpoint.as_ref(),
        region: config.region.as_ref(),
        access_key: config.access_key.as_ref(),
        secret_key: config.secret_key.as_ref(),
        path_style: config.path_style,
        storage_class: config.storage_class.as_ref(),
    };
    Some(UploadTarget {
        storage: storage::resolve(built, &keys, station, env, problems)?,
        keep_local: config.keep_local,
        concurrency: config.concurrency as usize,
        part_bytes: u64::from(config.part_mib) << 20,
    })
}

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
        assert_eq!(amazon.storage.endpoint, "https://s3.eu-central-1.amazonaws.com");
        assert_eq!((amazon.storage.prefix.as_str(), amazon.storage.path_style), ("", false));
        assert!(amazon.keep_local, "nothing is deleted unless it is asked for");
        assert_eq!((amazon.concurrency, amazon.part_bytes), (2, 8 << 20));
        assert!(!format!("{amazon:?}").contains("hush"));
        let own = "url = \"s3://tapes/radio/{station}/\", endpoint = \"http://127.0.0.1:9000/\"";
        let own = check(true, &format!("{own}, keep_local = false, {KEYS}")).unwrap();
        assert_eq!(
            (own.storage.endpoint.as_str(), own.storage.region.as_str()),
            ("http://127.0.0.1:9000", "us-east-1")
        );
        assert_eq!(
            (own.storage.prefix.as_str(), own.storage.path_style, own.keep_local),
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

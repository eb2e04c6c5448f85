//! One object on the server: looked up, and written as a whole or in parts.
//!
//! The library signs requests and performs them; its own retries are disabled, because they would
//! be invisible.

use std::sync::Arc;
use std::time::Duration;

use aulos_config::StorageTarget;
use aulos_files::record::format::FileFormatInfo;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum as Kind};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path as Key;
use object_store::{
    Attribute, ClientOptions, GetOptions, GetRange, ObjectStore as _, PutOptions, PutPayload,
    RetryConfig,
};

use super::error::UploadError;
use super::transport::{Checksum, S3Transport};
use crate::dial::Dialer;

/// The bucket, for one upload.
#[derive(Debug)]
pub(super) struct Bucket {
    builder: AmazonS3Builder,
    storage_class: Option<HeaderValue>,
    /// Reads metadata, with checksums.
    reader: AmazonS3,
    /// Sends parts, which have no headers of their own.
    sender: AmazonS3,
}

/// Metadata of an existing object.
#[derive(Clone, Debug)]
pub(super) struct RemoteObject {
    bytes: u64,
    etag: Option<String>,
    /// The SHA-256 stored with it at upload.
    declared_sha256: Option<String>,
    /// The server's checksum.
    checksum: Option<String>,
}

/// The expected properties of an object.
#[derive(Clone, Debug)]
pub(super) struct ExpectedObject {
    /// Its length.
    pub(super) bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub(super) sha256: String,
    /// The same in base64, as in S3.
    pub(super) checksum: String,
}

impl ExpectedObject {
    pub(super) fn new(bytes: u64, sha256: &[u8]) -> Self {
        let checksum = BASE64_STANDARD.encode(sha256);
        Self { bytes, sha256: super::journal::hex(sha256), checksum }
    }
}

impl RemoteObject {
    /// Whether it has these contents and was written by this program.
    pub(super) fn matches(&self, expected: &ExpectedObject) -> bool {
        let whole = self.whole_checksum();
        self.bytes == expected.bytes
            && self.declared_sha256.as_ref() == Some(&expected.sha256)
            && whole.is_none_or(|sum| *sum == expected.checksum)
    }

    /// Verifies an object that was just written; `etag` is from the server's answer.
    ///
    /// # Errors
    /// [`UploadError::Mismatch`].
    pub(super) fn verify(
        &self,
        expected: &ExpectedObject,
        etag: Option<&str>,
    ) -> Result<(), UploadError> {
        let whole = self.whole_checksum();
        if self.bytes != expected.bytes {
            return Err(UploadError::Mismatch("size"));
        }
        if whole.is_some_and(|sum| *sum != expected.checksum) {
            return Err(UploadError::Mismatch("checksum"));
        }
        if self.declared_sha256.as_ref().is_some_and(|declared| *declared != expected.sha256) {
            return Err(UploadError::Mismatch("object"));
        }
        match (self.etag.as_deref(), etag) {
            (Some(there), Some(expected_etag))
                if there.trim_matches('"') != expected_etag.trim_matches('"') =>
            {
                Err(UploadError::Mismatch("ETag"))
            }
            (None, _) | (_, None) if self.declared_sha256.is_none() => {
                Err(UploadError::Mismatch("object"))
            }
            _ => Ok(()),
        }
    }

    /// The checksum of the whole object. A composite checksum ("-3" at its end) covers parts, each
    /// of which was compared.
    fn whole_checksum(&self) -> Option<&String> {
        self.checksum.as_ref().filter(|sum| !sum.contains('-'))
    }
}

impl Bucket {
    /// Opens the configured bucket. `stall` is the maximum time without progress.
    pub(super) fn open(
        config: &StorageTarget,
        dialer: Arc<Dialer>,
        stall: Duration,
    ) -> Result<Self, UploadError> {
        let builder = bucket_builder(config, dialer, stall)?;
        let class = config.storage_class.as_deref().map(HeaderValue::from_str).transpose();
        let ask = HeaderMap::from_iter([(
            HeaderName::from_static("x-amz-checksum-mode"),
            HeaderValue::from_static("ENABLED"),
        )]);
        Ok(Self {
            reader: build(&builder, ask)?,
            sender: build(&builder, HeaderMap::new())?,
            storage_class: class.map_err(|error| UploadError::Answer(error.to_string()))?,
            builder,
        })
    }

    /// The metadata of the object with this name.
    pub(super) async fn head(&self, key: &str) -> Result<Option<RemoteObject>, UploadError> {
        let key = parse(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let error = match self.reader.get_opts(&key, options).await {
            Ok(found) => {
                let said = Attribute::Metadata(SHA256_METADATA.into());
                return Ok(Some(RemoteObject {
                    bytes: found.meta.size,
                    etag: found.meta.e_tag.clone(),
                    declared_sha256: found.attributes.get(&said).map(|text| text.to_string()),
                    checksum: found.extensions.get::<Checksum>().map(|sum| sum.0.clone()),
                }));
            }
            Err(error) => UploadError::from(&error),
        };
        if !matches!(error, UploadError::Refused { .. }) {
            return Err(error);
        }
        // A HEAD response has no body, so it does not tell a missing object from a missing bucket.
        let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        match self.reader.get_opts(&key, options).await {
            Ok(_) => Err(UploadError::Answer("contradictory answers about an object".to_owned())),
            Err(why) => match UploadError::from(&why) {
                why if why.is_not_found() => Ok(None),
                why => Err(why),
            },
        }
    }

    /// Writes an object as a whole; returns its `ETag`.
    pub(super) async fn put(
        &self,
        key: &str,
        expected: &ExpectedObject,
        bytes: Bytes,
    ) -> Result<Option<String>, UploadError> {
        let writer = self.writer(key, expected)?;
        let key = parse(key)?;
        let put = writer.put_opts(&key, PutPayload::from(bytes), PutOptions::default());
        Ok(put.await.map_err(|error| UploadError::from(&error))?.e_tag)
    }

    /// Starts a multipart upload; returns its id.
    pub(super) async fn create(
        &self,
        key: &str,
        expected: &ExpectedObject,
    ) -> Result<String, UploadError> {
        let writer = self.writer(key, expected)?;
        writer.create_multipart(&parse(key)?).await.map_err(|error| UploadError::from(&error))
    }

    /// Sends the part with this number, from 0; returns its id.
    pub(super) async fn put_part(
        &self,
        key: &str,
        id: &str,
        number: usize,
        bytes: Bytes,
    ) -> Result<String, UploadError> {
        let (key, id) = (parse(key)?, id.to_owned());
        let sent = self.sender.put_part(&key, &id, number, PutPayload::from(bytes)).await;
        Ok(sent.map_err(|error| UploadError::from(&error))?.content_id)
    }

    /// Completes a multipart upload; returns the object's `ETag`.
    pub(super) async fn complete(
        &self,
        key: &str,
        id: &str,
        parts: &[String],
    ) -> Result<Option<String>, UploadError> {
        let parts = parts.iter().map(|id| PartId { content_id: id.clone() }).collect();
        let made = self.sender.complete_multipart(&parse(key)?, &id.to_owned(), parts).await;
        Ok(made.map_err(|error| UploadError::from(&error))?.e_tag)
    }

    /// Aborts a multipart upload.
    pub(super) async fn abort(&self, key: &str, id: &str) -> Result<(), UploadError> {
        let done = self.sender.abort_multipart(&parse(key)?, &id.to_owned()).await;
        match done.map_err(|error| UploadError::from(&error)) {
            Err(failure) if !failure.is_no_such_upload() => Err(failure),
            _ => Ok(()),
        }
    }

    /// A client with headers for this object.
    fn writer(&self, key: &str, expected: &ExpectedObject) -> Result<AmazonS3, UploadError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(key)));
        if let Ok(sha256) = HeaderValue::from_str(&expected.sha256) {
            headers.insert(HeaderName::from_static("x-amz-meta-sha256"), sha256);
        }
        if let Some(class) = &self.storage_class {
            headers.insert(HeaderName::from_static("x-amz-storage-class"), class.clone());
        }
        build(&self.builder, headers)
    }
}

/// What all clients of the configured bucket have in common; they share one connection.
pub(super) fn bucket_builder(
    config: &StorageTarget,
    dialer: Arc<Dialer>,
    stall: Duration,
) -> Result<AmazonS3Builder, UploadError> {
    let endpoint = match config.endpoint.split_once("://") {
        Some((scheme, host)) if !config.path_style => {
            format!("{scheme}://{}.{host}", config.bucket)
        }
        _ => config.endpoint.clone(),
    };
    let wire = S3Transport::new(dialer, &endpoint, stall);
    Ok(AmazonS3Builder::new()
        .with_http_connector(wire.ok_or_else(|| UploadError::Name(endpoint.clone()))?)
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(!config.path_style)
        .with_region(&config.region)
        .with_bucket_name(&config.bucket)
        .with_access_key_id(&config.access_key)
        .with_secret_access_key(&config.secret_key.0)
        .with_checksum_algorithm(Kind::SHA256)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() }))
}

pub(super) fn build(
    builder: &AmazonS3Builder,
    headers: HeaderMap,
) -> Result<AmazonS3, UploadError> {
    // The endpoint determines the scheme; the transport is our own.
    let options = ClientOptions::new().with_allow_http(true).with_default_headers(headers);
    let built = builder.clone().with_client_options(options).build();
    built.map_err(|error| UploadError::from(&error))
}

pub(super) fn parse(key: &str) -> Result<Key, UploadError> {
    if key.len() > MAX_KEY {
        return Err(UploadError::KeyTooLong);
    }
    Key::parse(key).map_err(|error| UploadError::Answer(error.to_string()))
}

/// MIME type of an uploaded file: a recording or its sidecar.
fn content_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "json" => "application/json",
        _ => FileFormatInfo::of_name(extension)
            .map_or("application/octet-stream", |row| row.media_type),
    }
}

/// Metadata key of the SHA-256: `x-amz-meta-sha256`.
const SHA256_METADATA: &str = "sha256";
/// Maximum length of an object name in bytes (S3, "Naming Amazon S3 objects").
const MAX_KEY: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_object_is_compared_by_all_its_attributes() {
        let expected = ExpectedObject::new(10, &[7; 32]);
        let object = RemoteObject {
            bytes: 10,
            etag: Some("\"e\"".to_owned()),
            declared_sha256: Some(expected.sha256.clone()),
            checksum: Some(expected.checksum.clone()),
        };
        assert!(object.matches(&expected) && object.verify(&expected, Some("e")).is_ok());
        let other = |change: fn(&mut RemoteObject)| {
            let mut object = object.clone();
            change(&mut object);
            object.verify(&expected, Some("\"e\""))
        };
        assert_eq!(other(|object| object.bytes = 9), Err(UploadError::Mismatch("size")));
        assert_eq!(
            other(|object| object.etag = Some("x".into())),
            Err(UploadError::Mismatch("ETag"))
        );
        assert_eq!(
            other(|object| object.checksum = Some("x".into())),
            Err(UploadError::Mismatch("checksum"))
        );
        assert_eq!(
            other(|object| object.declared_sha256 = Some("x".into())),
            Err(UploadError::Mismatch("object"))
        );
        assert_eq!(
            other(|object| (object.declared_sha256, object.checksum) = (None, Some("x-3".into()))),
            Ok(())
        );
        assert_eq!(
            other(|object| (object.declared_sha256, object.etag) = (None, None)),
            Err(UploadError::Mismatch("object"))
        );
    }
}

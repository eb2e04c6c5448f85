//! Objects below a prefix of a bucket, which are replaced and removed again, as HLS is.
//!
//! The counterpart of uploads of recordings: an object is small, is made anew when it is lost, and
//! is sent again as a whole when it fails. So it has no journal and no parts, and no second request
//! looks at it: the server compares the digest that is sent with it.

use std::sync::Arc;
use std::time::Duration;

use aulos_config::StorageTarget;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions,
    PutPayload,
};

use super::error::UploadError;
use super::store::{bucket_builder, build, parse};
use crate::dial::Dialer;

/// Objects below a prefix of a bucket.
#[derive(Debug)]
pub(crate) struct ObjectStorage {
    /// With the storage class in its headers, and without.
    writer: AmazonS3,
    reader: AmazonS3,
    prefix: String,
}

impl ObjectStorage {
    /// Opens the bucket; nothing is sent yet. Requests follow each other over one connection, and
    /// fail after `stall` without progress.
    ///
    /// # Errors
    /// [`UploadError`], for a target that cannot be addressed.
    pub(crate) fn open(
        config: &StorageTarget,
        dialer: Arc<Dialer>,
        stall: Duration,
    ) -> Result<Self, UploadError> {
        let builder = bucket_builder(config, dialer, stall)?.with_disable_bulk_delete(true);
        let mut headers = HeaderMap::new();
        if let Some(class) = &config.storage_class {
            let class = HeaderValue::from_str(class);
            let class = class.map_err(|error| UploadError::Answer(error.to_string()))?;
            headers.insert(HeaderName::from_static("x-amz-storage-class"), class);
        }
        let reader = build(&builder, HeaderMap::new())?;
        Ok(Self { writer: build(&builder, headers)?, reader, prefix: config.prefix.clone() })
    }

    /// Writes an object with these headers; with `only_if_absent`, one that exists is left as it is.
    ///
    /// # Errors
    /// [`UploadError`].
    pub(crate) async fn put(
        &self,
        name: &str,
        bytes: Arc<[u8]>,
        (media_type, cache_control): (&'static str, &'static str),
        only_if_absent: bool,
    ) -> Result<(), UploadError> {
        let key = self.key(name)?;
        if !only_if_absent {
            return self.send(&key, bytes, media_type, cache_control, PutMode::Overwrite).await;
        }
        let mode = PutMode::Create;
        match self.send(&key, Arc::clone(&bytes), media_type, cache_control, mode).await {
            // It exists, or is being written.
            Err(UploadError::Refused { status: 409 | 412, .. }) => Ok(()),
            // A server without conditional requests.
            Err(UploadError::Refused { status: 501, .. }) => {
                let found = self.reader.head(&key).await;
                match found.map_err(|error| UploadError::from(&error)) {
                    Err(error) if error.is_not_found() => {
                        let mode = PutMode::Overwrite;
                        self.send(&key, bytes, media_type, cache_control, mode).await
                    }
                    found => found.map(drop),
                }
            }
            sent => sent,
        }
    }

    /// The contents of an object of up to a megabyte; `None` if it does not exist.
    ///
    /// # Errors
    /// [`UploadError`].
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, UploadError> {
        let found = match self.reader.get_opts(&self.key(name)?, GetOptions::default()).await {
            Ok(found) => found,
            Err(error) => match UploadError::from(&error) {
                error if error.is_not_found() => return Ok(None),
                error => return Err(error),
            },
        };
        let bytes = found.bytes().await.map_err(|error| UploadError::from(&error))?;
        Ok(Some(bytes.to_vec()))
    }

    /// The media type and the `Cache-Control` of an object.
    #[cfg(test)]
    pub(super) async fn headers(&self, name: &str) -> Result<[Option<String>; 2], UploadError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = self.reader.get_opts(&self.key(name)?, options).await;
        let found = found.map_err(|error| UploadError::from(&error))?;
        let text = |name: Attribute| found.attributes.get(&name).map(|value| value.to_string());
        Ok([text(Attribute::ContentType), text(Attribute::CacheControl)])
    }

    /// The names of the objects, at most `most`.
    ///
    /// # Errors
    /// [`UploadError`].
    pub(crate) async fn list(&self, most: usize) -> Result<Vec<String>, UploadError> {
        let folder =
            if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let prefix = (!folder.is_empty()).then_some(&*folder);
        let (mut names, mut page_token) = (Vec::new(), None);
        loop {
            let options = PaginatedListOptions { page_token, ..PaginatedListOptions::default() };
            let page = self.reader.list_paginated(prefix, options).await;
            let page = page.map_err(|error| UploadError::from(&error))?;
            let found = page.result.objects.iter();
            names.extend(
                found.filter_map(|one| {
                    Some(one.location.as_ref().strip_prefix(&*folder)?.to_owned())
                }),
            );
            page_token = page.page_token;
            if page_token.is_none() || names.len() >= most {
                names.truncate(most);
                return Ok(names);
            }
        }
    }

    /// Removes an object; one that does not exist is removed.
    ///
    /// # Errors
    /// [`UploadError`].
    pub(crate) async fn delete(&self, name: &str) -> Result<(), UploadError> {
        let deleted = self.reader.delete(&self.key(name)?).await;
        match deleted.map_err(|error| UploadError::from(&error)) {
            Err(error) if error.is_not_found() => Ok(()),
            deleted => deleted,
        }
    }

    async fn send(
        &self,
        key: &Key,
        bytes: Arc<[u8]>,
        media_type: &'static str,
        cache_control: &'static str,
        mode: PutMode,
    ) -> Result<(), UploadError> {
        let attributes = Attributes::from_iter([
            (Attribute::ContentType, media_type),
            (Attribute::CacheControl, cache_control),
        ]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let payload = PutPayload::from(Bytes::from_owner(bytes));
        let sent = self.writer.put_opts(key, payload, options).await;
        sent.map(drop).map_err(|error| UploadError::from(&error))
    }

    fn key(&self, name: &str) -> Result<Key, UploadError> {
        match &*self.prefix {
            "" => parse(name),
            prefix => parse(&format!("{prefix}/{name}")),
        }
    }
}

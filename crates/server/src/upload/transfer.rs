//! The upload of one file: look up the object, send it, verify it, and only then delete the local
//! file.
//!
//! ```text
//!  HEAD -> exists already ----------------------------------.
//!   | no                                                    v
//!  SHA-256 of the file -> PUT, or multipart with journal -> HEAD: size, checksum, ETag
//!                                                           v
//!                         journal: confirmed -> local file deleted, if configured -> entry removed
//! ```
//!
//! A restart after a kill resumes at the last journaled step: nothing is deleted before the entry
//! is marked as confirmed, and sending twice produces the same object.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aulos_config::UploadTarget;
use bytes::Bytes;
use ring::digest::{Context, SHA256};
use tokio::task::yield_now;

use super::UploadTiming;
use super::error::UploadError;
use super::journal::{Journal, JournalEntry, MultipartUpload, remove_file};
use super::store::{Bucket, ExpectedObject};
use crate::dial::Dialer;

/// Context shared by all uploads of a recording.
#[derive(Debug)]
pub(super) struct UploadContext {
    pub(super) config: UploadTarget,
    /// Directory of the recording: object names are relative to it.
    pub(super) root: PathBuf,
    pub(super) journal: Journal,
    pub(super) dialer: Arc<Dialer>,
    pub(super) timing: UploadTiming,
}

/// Result of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadOutcome {
    /// It is on the server.
    Uploaded,
    /// The file no longer exists, and was never uploaded.
    Missing,
    /// It is still being written under another name.
    StillWriting,
}

impl UploadContext {
    /// Object name of a file.
    pub(super) fn object_key(&self, file: &Path) -> Option<String> {
        let within = file.strip_prefix(&self.root).ok();
        let name = within.or_else(|| file.file_name().map(Path::new))?.to_str()?;
        let prefix = &self.config.storage.prefix;
        Some(if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") })
    }

    fn write_entry(&self, name: &str, entry: &JournalEntry) -> Result<(), UploadError> {
        self.journal.write(name, entry).map_err(|error| file_error(&entry.file, &error))
    }

    fn bucket(&self) -> Result<Bucket, UploadError> {
        let dialer = Arc::clone(&self.dialer);
        Bucket::open(&self.config.storage, dialer, self.timing.stall_timeout)
    }
}

/// Uploads a file and its sidecar, as far as that has not been done.
pub(super) async fn upload_file(
    context: &UploadContext,
    name: &str,
    entry: &mut JournalEntry,
) -> Result<UploadOutcome, UploadError> {
    if !entry.confirmed {
        let bucket = context.bucket()?;
        let Some(file) = LocalFile::open(&entry.file)? else {
            return handle_missing(context, &bucket, name, entry).await;
        };
        let key = entry.key.clone();
        let tag = send_file(context, &bucket, name, entry, &file, &key).await?;
        if let Some(tag) = &tag {
            entry.key = with_tag(&key, tag);
        }
        if let Some(path) = entry.sidecar.clone()
            && let Some(file) = LocalFile::open(&path)?
        {
            let key = context.object_key(&path).unwrap_or_default();
            let key = tag.map_or_else(|| key.clone(), |tag| with_tag(&key, &tag));
            entry.sent = false;
            send_file(context, &bucket, name, entry, &file, &key).await?;
        }
        (entry.confirmed, entry.begun) = (true, None);
        context.write_entry(name, entry)?;
    }
    if !context.config.keep_local {
        for path in [Some(&entry.file), entry.sidecar.as_ref()].into_iter().flatten() {
            remove_file(path).map_err(|error| file_error(path, &error))?;
        }
    }
    context.journal.remove(name).map_err(|error| file_error(&entry.file, &error))?;
    Ok(UploadOutcome::Uploaded)
}

/// Handles a missing file.
async fn handle_missing(
    context: &UploadContext,
    bucket: &Bucket,
    name: &str,
    entry: &JournalEntry,
) -> Result<UploadOutcome, UploadError> {
    let mut part = entry.file.clone().into_os_string();
    part.push(".part");
    if Path::new(&part).exists() {
        return Ok(UploadOutcome::StillWriting);
    }
    if let Some(begun) = &entry.begun {
        bucket.abort(&begun.key, &begun.id).await?;
    }
    context.journal.remove(name).map_err(|error| file_error(&entry.file, &error))?;
    Ok(UploadOutcome::Missing)
}

/// Sends one file and verifies it. An existing object of that name with other contents is left
/// alone: the file then gets a tag in its object name, which is returned.
async fn send_file(
    context: &UploadContext,
    bucket: &Bucket,
    name: &str,
    entry: &mut JournalEntry,
    file: &LocalFile,
    key: &str,
) -> Result<Option<String>, UploadError> {
    // First, because it shows whether the server is reachable.
    let there = match bucket.head(key).await {
        // Amazon also answers 403 for missing objects, unless the key may list the bucket.
        Err(failure) if failure.is_not_allowed() => match entry.sent {
            true => return Err(UploadError::ReadDenied),
            false => None,
        },
        there => there?,
    };
    let expected = file.digest().await?;
    let (mut key, mut tag) = (key.to_owned(), None);
    if let Some(object) = there {
        if object.matches(&expected) {
            abort_parts(bucket, entry).await;
            return Ok(None);
        }
        let other: String = expected.sha256.chars().take(TAG_DIGITS).collect();
        key = with_tag(&key, &other);
        if bucket.head(&key).await?.is_some_and(|object| object.matches(&expected)) {
            abort_parts(bucket, entry).await;
            return Ok(Some(other));
        }
        tag = Some(other);
    }
    let etag = if expected.bytes <= context.config.part_bytes {
        let bytes = file.read(0, expected.bytes)?;
        bucket.put(&key, &expected, bytes).await?
    } else {
        send_parts(context, bucket, name, entry, file, (&key, &expected)).await?
    };
    entry.sent = true;
    let object = match bucket.head(&key).await {
        Err(failure) if failure.is_not_allowed() => {
            context.write_entry(name, entry)?;
            return Err(UploadError::ReadDenied);
        }
        object => object?.ok_or(UploadError::Mismatch("bucket"))?,
    };
    object.verify(&expected, etag.as_deref())?;
    file.check_unchanged()?;
    Ok(tag)
}

/// Sends a large file in parts; parts from earlier attempts are not sent again.
async fn send_parts(
    context: &UploadContext,
    bucket: &Bucket,
    name: &str,
    entry: &mut JournalEntry,
    file: &LocalFile,
    (key, expected): (&str, &ExpectedObject),
) -> Result<Option<String>, UploadError> {
    let part_bytes = part_bytes(expected.bytes, context.config.part_bytes);
    let count = usize::try_from(expected.bytes.div_ceil(part_bytes)).unwrap_or(usize::MAX);
    let fits = |begun: &MultipartUpload| {
        begun.key == key
            && begun.sha256 == expected.sha256
            && begun.part_bytes == part_bytes
            && begun.parts.len() <= count
    };
    let resumed = entry.begun.as_ref().is_some_and(fits);
    if !resumed {
        abort_parts(bucket, entry).await;
        let id = bucket.create(key, expected).await?;
        let (key, sha256) = (key.to_owned(), expected.sha256.clone());
        entry.begun = Some(MultipartUpload { id, key, sha256, part_bytes, parts: Vec::new() });
        context.write_entry(name, entry)?;
    }
    loop {
        let Some(begun) = entry.begun.as_mut() else { return Ok(None) };
        let number = begun.parts.len();
        let done = if number == count {
            bucket.complete(key, &begun.id, &begun.parts).await
        } else {
            let from = number as u64 * part_bytes;
            let bytes = file.read(from, part_bytes.min(expected.bytes - from))?;
            match bucket.put_part(key, &begun.id, number, bytes).await {
                Ok(part) => {
                    begun.parts.push(part);
                    context.write_entry(name, entry)?;
                    continue;
                }
                Err(failure) => Err(failure),
            }
        };
        if let Err(failure) = &done
            && (failure.is_multipart_error() || resumed && failure.is_permanent())
        {
            // The server has dropped the upload, possibly with another error than Amazon's: start
            // again.
            abort_parts(bucket, entry).await;
            context.write_entry(name, entry)?;
        }
        return done;
    }
}

/// Aborts a multipart upload. If the server cannot be reached, its own lifecycle rules have to
/// clean up.
async fn abort_parts(bucket: &Bucket, entry: &mut JournalEntry) {
    if let Some(begun) = entry.begun.take()
        && let Err(failure) = bucket.abort(&begun.key, &begun.id).await
    {
        tracing::debug!(key = begun.key, error = %failure, "cannot remove the parts of an upload");
    }
}

/// Part size for a file of this size: S3 allows 10,000 parts.
fn part_bytes(bytes: u64, wished: u64) -> u64 {
    wished.max(bytes.div_ceil(MAX_PARTS).next_multiple_of(1 << 20))
}

/// Inserts a tag before the file extension.
fn with_tag(key: &str, tag: &str) -> String {
    let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (folder, name));
    let name = match name.split_once('.') {
        Some((stem, ending)) if !stem.is_empty() => format!("{stem}-{tag}.{ending}"),
        _ => format!("{name}-{tag}"),
    };
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
}

/// A local file.
struct LocalFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
}

impl LocalFile {
    /// Opens it; `None` if it does not exist.
    fn open(path: &Path) -> Result<Option<Self>, UploadError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error(path, &error)),
        };
        let metadata = file.metadata().map_err(|error| file_error(path, &error))?;
        if !metadata.is_file() {
            return Err(UploadError::LocalFile(path.to_owned(), io::ErrorKind::IsADirectory));
        }
        Ok(Some(Self { path: path.to_owned(), file, metadata }))
    }

    /// Reads a range.
    fn read(&self, from: u64, count: u64) -> Result<Bytes, UploadError> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(usize::MAX)];
        match self.file.read_exact_at(&mut bytes, from) {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(UploadError::Changed(self.path.clone()))
            }
            Err(error) => Err(file_error(&self.path, &error)),
        }
    }

    /// The size and SHA-256 of the whole file.
    async fn digest(&self) -> Result<ExpectedObject, UploadError> {
        let bytes = self.metadata.len();
        let (mut context, mut from) = (Context::new(&SHA256), 0);
        while from < bytes {
            let count = DIGEST_BLOCK.min(bytes - from);
            context.update(&self.read(from, count)?);
            from += count;
            yield_now().await;
        }
        Ok(ExpectedObject::new(bytes, context.finish().as_ref()))
    }

    /// Checks that the file has not changed since it was opened.
    fn check_unchanged(&self) -> Result<(), UploadError> {
        let same = |now: &Metadata| {
            (now.ino(), now.len(), now.mtime(), now.mtime_nsec())
                == (
                    self.metadata.ino(),
                    self.metadata.len(),
                    self.metadata.mtime(),
                    self.metadata.mtime_nsec(),
                )
        };
        match fs::metadata(&self.path) {
            Ok(now) if same(&now) => Ok(()),
            // It was deleted on purpose; the server has it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(_) => Err(UploadError::Changed(self.path.clone())),
            Err(error) => Err(file_error(&self.path, &error)),
        }
    }
}

fn file_error(path: &Path, error: &io::Error) -> UploadError {
    UploadError::LocalFile(path.to_owned(), error.kind())
}

/// Maximum number of parts (S3, "Amazon S3 multipart upload limits").
const MAX_PARTS: u64 = 10_000;
/// Digits of the SHA-256 in a tag.
const TAG_DIGITS: usize = 8;
/// Bytes read at once for a digest; other uploads wait meanwhile.
const DIGEST_BLOCK: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_inserted_before_the_extension() {
        for (key, wanted) in [
            ("a/b.c/d.wav", "a/b.c/d-x.wav"),
            ("d.wav.json", "d-x.wav.json"),
            ("a/d", "a/d-x"),
            (".d", ".d-x"),
        ] {
            assert_eq!(with_tag(key, "x"), wanted);
        }
    }

    #[test]
    fn parts_grow_with_a_file_that_has_too_many() {
        let mib = 1 << 20;
        assert_eq!(part_bytes(9 * mib, 8 * mib), 8 * mib);
        assert_eq!(part_bytes(80_000 * mib, 8 * mib), 8 * mib);
        assert_eq!(part_bytes(80_000 * mib + 1, 8 * mib), 9 * mib);
        for bytes in [1_u64, 5 << 40, (5 << 40) - 1] {
            assert!(bytes.div_ceil(part_bytes(bytes, 5 * mib)) <= MAX_PARTS);
        }
    }
}

//! One file on its way: looked for on the server, sent, looked at again, and only then forgotten
//! here.
//!
//! ```text
//!  look -> there already ----------------------------------.
//!   | no                                                   v
//!  SHA-256 of the file -> PUT, or parts noted one by one -> look: size, checksum, ETag
//!                                                          v
//!                          noted as confirmed -> deleted here, if wished -> forgotten
//! ```
//!
//! Whatever line the process is killed in, the next life goes on above it: nothing is deleted before
//! the note that it is confirmed, and what was sent twice is the same object.

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
use super::transport::S3Transport;
use crate::dial::Dialer;

/// What every upload of one recording needs.
#[derive(Debug)]
pub(super) struct UploadContext {
    pub(super) config: UploadTarget,
    /// Where the recording writes: what an object is called begins behind it.
    pub(super) root: PathBuf,
    pub(super) journal: Journal,
    pub(super) dialer: Arc<Dialer>,
    pub(super) timing: UploadTiming,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadOutcome {
    /// The server has it.
    Uploaded,
    /// It is not there any more, and the server has never had it.
    Missing,
    /// It is still being written under another name.
    StillWriting,
}

impl UploadContext {
    /// What the object of a file is called.
    pub(super) fn object_key(&self, file: &Path) -> Option<String> {
        let within = file.strip_prefix(&self.root).ok();
        let name = within.or_else(|| file.file_name().map(Path::new))?.to_str()?;
        let prefix = &self.config.prefix;
        Some(if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") })
    }

    fn write_entry(&self, name: &str, entry: &JournalEntry) -> Result<(), UploadError> {
        self.journal.write(name, entry).map_err(|error| file_error(&entry.file, &error))
    }

    fn bucket(&self) -> Result<Bucket, UploadError> {
        let UploadTarget { endpoint, bucket, path_style, .. } = &self.config;
        let at = match endpoint.split_once("://") {
            Some((scheme, host)) if !path_style => format!("{scheme}://{bucket}.{host}"),
            _ => endpoint.clone(),
        };
        let wire = S3Transport::new(Arc::clone(&self.dialer), &at, self.timing.stall_timeout);
        Bucket::open(&self.config, wire.ok_or(UploadError::Name(at))?)
    }
}

/// Uploads a file and what goes with it, as far as that has not been done.
pub(super) async fn upload_file(
    tools: &UploadContext,
    name: &str,
    entry: &mut JournalEntry,
) -> Result<UploadOutcome, UploadError> {
    if !entry.confirmed {
        let bucket = tools.bucket()?;
        let Some(file) = LocalFile::open(&entry.file)? else {
            return handle_missing(tools, &bucket, name, entry).await;
        };
        let key = entry.key.clone();
        let tag = send_file(tools, &bucket, name, entry, &file, &key).await?;
        if let Some(tag) = &tag {
            entry.key = with_tag(&key, tag);
        }
        if let Some(path) = entry.sidecar.clone()
            && let Some(file) = LocalFile::open(&path)?
        {
            let key = tools.object_key(&path).unwrap_or_default();
            let key = tag.map_or_else(|| key.clone(), |tag| with_tag(&key, &tag));
            entry.sent = false;
            send_file(tools, &bucket, name, entry, &file, &key).await?;
        }
        (entry.confirmed, entry.begun) = (true, None);
        tools.write_entry(name, entry)?;
    }
    if !tools.config.keep_local {
        for path in [Some(&entry.file), entry.sidecar.as_ref()].into_iter().flatten() {
            remove_file(path).map_err(|error| file_error(path, &error))?;
        }
    }
    tools.journal.remove(name).map_err(|error| file_error(&entry.file, &error))?;
    Ok(UploadOutcome::Uploaded)
}

/// The file is not there.
async fn handle_missing(
    tools: &UploadContext,
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
    tools.journal.remove(name).map_err(|error| file_error(&entry.file, &error))?;
    Ok(UploadOutcome::Missing)
}

/// Sends one file, and is content when the server has it. An object of that name which is another
/// file's is left as it is: then ours has a tag in its name, which is given back.
async fn send_file(
    tools: &UploadContext,
    bucket: &Bucket,
    name: &str,
    entry: &mut JournalEntry,
    file: &LocalFile,
    key: &str,
) -> Result<Option<String>, UploadError> {
    // First of all, because it tells whether the server can be had at all.
    let there = match bucket.head(key).await {
        // Amazon says so of what is not there too, to those who may not list the bucket.
        Err(failure) if failure.is_not_allowed() => match entry.sent {
            true => return Err(UploadError::ReadDenied),
            false => None,
        },
        there => there?,
    };
    let wanted = file.digest().await?;
    let (mut key, mut tag) = (key.to_owned(), None);
    if let Some(seen) = there {
        if seen.matches(&wanted) {
            abort_parts(bucket, entry).await;
            return Ok(None);
        }
        let other: String = wanted.sha256.chars().take(TAG_DIGITS).collect();
        key = with_tag(&key, &other);
        if bucket.head(&key).await?.is_some_and(|seen| seen.matches(&wanted)) {
            abort_parts(bucket, entry).await;
            return Ok(Some(other));
        }
        tag = Some(other);
    }
    let etag = if wanted.bytes <= tools.config.part_bytes {
        let bytes = file.read(0, wanted.bytes)?;
        bucket.put(&key, &wanted, bytes).await?
    } else {
        send_parts(tools, bucket, name, entry, file, (&key, &wanted)).await?
    };
    entry.sent = true;
    let seen = match bucket.head(&key).await {
        Err(failure) if failure.is_not_allowed() => {
            tools.write_entry(name, entry)?;
            return Err(UploadError::ReadDenied);
        }
        seen => seen?.ok_or(UploadError::Mismatch("bucket"))?,
    };
    seen.verify(&wanted, etag.as_deref())?;
    file.check_unchanged()?;
    Ok(tag)
}

/// Sends a large file part by part; what an earlier try or an earlier life has sent is not sent
/// again.
async fn send_parts(
    tools: &UploadContext,
    bucket: &Bucket,
    name: &str,
    entry: &mut JournalEntry,
    file: &LocalFile,
    (key, wanted): (&str, &ExpectedObject),
) -> Result<Option<String>, UploadError> {
    let part_bytes = part_bytes(wanted.bytes, tools.config.part_bytes);
    let count = usize::try_from(wanted.bytes.div_ceil(part_bytes)).unwrap_or(usize::MAX);
    let fits = |begun: &MultipartUpload| {
        begun.key == key
            && begun.sha256 == wanted.sha256
            && begun.part_bytes == part_bytes
            && begun.parts.len() <= count
    };
    let resumed = entry.begun.as_ref().is_some_and(fits);
    if !resumed {
        abort_parts(bucket, entry).await;
        let id = bucket.create(key, wanted).await?;
        let (key, sha256) = (key.to_owned(), wanted.sha256.clone());
        entry.begun = Some(MultipartUpload { id, key, sha256, part_bytes, parts: Vec::new() });
        tools.write_entry(name, entry)?;
    }
    loop {
        let Some(begun) = entry.begun.as_mut() else { return Ok(None) };
        let number = begun.parts.len();
        let done = if number == count {
            bucket.complete(key, &begun.id, &begun.parts).await
        } else {
            let from = number as u64 * part_bytes;
            let bytes = file.read(from, part_bytes.min(wanted.bytes - from))?;
            match bucket.put_part(key, &begun.id, number, bytes).await {
                Ok(part) => {
                    begun.parts.push(part);
                    tools.write_entry(name, entry)?;
                    continue;
                }
                Err(failure) => Err(failure),
            }
        };
        if let Err(failure) = &done
            && (failure.is_multipart_error() || resumed && failure.is_lasting())
        {
            // The server has forgotten it, and may have another way to say so than Amazon's; so do
            // we, and begin again.
            abort_parts(bucket, entry).await;
            tools.write_entry(name, entry)?;
        }
        return done;
    }
}

/// Parts that will never be an object. Where the server cannot be told, its own rules have to clean
/// up.
async fn abort_parts(bucket: &Bucket, entry: &mut JournalEntry) {
    if let Some(begun) = entry.begun.take()
        && let Err(failure) = bucket.abort(&begun.key, &begun.id).await
    {
        tracing::debug!("{}: parts of an upload may stay on the server: {failure}", begun.key);
    }
}

/// Of what size the parts of such a file are: S3 takes 10,000 of them.
fn part_bytes(bytes: u64, wished: u64) -> u64 {
    wished.max(bytes.div_ceil(MAX_PARTS).next_multiple_of(1 << 20))
}

/// A name with a tag in front of its ending.
fn with_tag(key: &str, tag: &str) -> String {
    let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (folder, name));
    let name = match name.split_once('.') {
        Some((stem, ending)) if !stem.is_empty() => format!("{stem}-{tag}.{ending}"),
        _ => format!("{name}-{tag}"),
    };
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
}

/// A file of ours.
struct LocalFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
}

impl LocalFile {
    /// Opens it; none when it is not there.
    fn open(path: &Path) -> Result<Option<Self>, UploadError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error(path, &error)),
        };
        let found = file.metadata().map_err(|error| file_error(path, &error))?;
        if !found.is_file() {
            return Err(UploadError::LocalFile(path.to_owned(), io::ErrorKind::IsADirectory));
        }
        Ok(Some(Self { path: path.to_owned(), file, metadata: found }))
    }

    /// A part of it.
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

    /// What all of it is.
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

    /// Whether it is still what it was when it was opened.
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
            // Who deleted it knows what he does; the server has it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(_) => Err(UploadError::Changed(self.path.clone())),
            Err(error) => Err(file_error(&self.path, &error)),
        }
    }
}

fn file_error(path: &Path, error: &io::Error) -> UploadError {
    UploadError::LocalFile(path.to_owned(), error.kind())
}

/// Parts that S3 takes (S3, "Amazon S3 multipart upload limits").
const MAX_PARTS: u64 = 10_000;
/// Digits of the SHA-256 in the name of a file whose name is another's.
const TAG_DIGITS: usize = 8;
/// What is read at once for a digest; the other uploads wait as long.
const DIGEST_BLOCK: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_stands_in_front_of_the_ending() {
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

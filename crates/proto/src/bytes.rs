//! Checked reading of little-endian fields.

/// Reads fields from the front of a slice; every method returns `None` when the slice is too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a `u32` length and as many bytes.
    pub(crate) fn blob(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// The bytes that have not been read.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Appends a `u32` length and the bytes. Input longer than 4 GiB is truncated.
pub(crate) fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes.get(..length as usize).unwrap_or(bytes));
}

/// Appends a Vorbis comment block without a magic number (Vorbis I specification, 5.2.1), as FLAC
/// and Opus use it: the vendor string, then `name=value` pairs.
pub(crate) fn put_comments<'a>(
    out: &mut Vec<u8>,
    comments: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
) {
    put_blob(out, b"aulos");
    out.extend_from_slice(&u32::try_from(comments.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (name, value) in comments {
        put_blob(out, format!("{name}={value}").as_bytes());
    }
}

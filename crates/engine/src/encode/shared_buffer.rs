//! A byte buffer that gets data back out of a library that owns its writer.
//!
//! `flac-codec` takes ownership of a `Write` and gives no access to it, but each frame is needed in
//! a separate buffer. So the writer and its reader share one fixed buffer. Its bytes are relaxed
//! atomics (plain moves on every machine): both ends belong to one encoder, thus to one thread at a
//! time, but a `Cell` would not be `Send`, and a lock does not belong on this path.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// The writing end.
#[derive(Debug)]
pub(super) struct BufferWriter(Arc<Shared>);

/// The reading end.
#[derive(Debug)]
pub(super) struct BufferReader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: Box<[AtomicU8]>,
    len: AtomicUsize,
}

/// Creates both ends of a buffer of `capacity` bytes.
pub(super) fn shared_buffer(capacity: usize) -> (BufferWriter, BufferReader) {
    let bytes = (0..capacity).map(|_| AtomicU8::new(0)).collect();
    let shared = Arc::new(Shared { bytes, len: AtomicUsize::new(0) });
    (BufferWriter(Arc::clone(&shared)), BufferReader(shared))
}

impl BufferReader {
    /// Appends to `out` what was written since the last call, and empties the buffer.
    pub(super) fn drain_into(&self, out: &mut Vec<u8>) {
        let len = self.0.len.swap(0, Relaxed);
        out.extend(self.0.bytes[..len].iter().map(|byte| byte.load(Relaxed)));
    }

    /// Discards what was written.
    pub(super) fn clear(&self) {
        self.0.len.store(0, Relaxed);
    }
}

impl io::Write for BufferWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.0.len.load(Relaxed);
        let room = &self.0.bytes[len..];
        for (to, from) in room.iter().zip(bytes) {
            to.store(*from, Relaxed);
        }
        let written = room.len().min(bytes.len());
        self.0.len.store(len + written, Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn written_bytes_are_read_and_limited_to_the_capacity() {
        let (mut writer, reader) = shared_buffer(4);
        let mut out = vec![9];
        writer.write_all(&[1, 2, 3]).unwrap();
        reader.drain_into(&mut out);
        assert_eq!(out, [9, 1, 2, 3]);
        assert_eq!(writer.write(&[4, 5, 6, 7, 8]).unwrap(), 4);
        assert_eq!(writer.write_all(&[9]).unwrap_err().kind(), io::ErrorKind::WriteZero);
        reader.clear();
        reader.drain_into(&mut out);
        assert_eq!(out, [9, 1, 2, 3]);
    }
}

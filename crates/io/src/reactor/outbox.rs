//! The outgoing bytes of one socket and their order.
//!
//! Control messages go ahead of audio and are stamped at the last moment before the write, so
//! queueing in the server never distorts a client's clock. A chunk that has been started is
//! finished first, because a byte stream cannot interrupt a message.

use std::io::{self, IoSlice, Write};

use aulos_core::{Chunk, Instant};
use aulos_engine::fanout::{ChunkCursor, ChunkLog, TimedChunk};
use aulos_proto::ws;
use aulos_rt::SharedPooled;

/// A message that is serialized at the moment of the write, with a time stamp.
pub(super) trait TimestampedMessage {
    /// Appends the message with the send time `sent`.
    fn write(&self, sent: Instant, out: &mut Vec<u8>);
}

/// A socket that can send chunks.
pub(super) trait ChunkSocket: Write {
    /// Sends `slices`, which lie in `chunks`. An implementation whose kernel reads them later keeps
    /// the chunks until then.
    fn send_chunks<'c>(
        &mut self,
        slices: &[IoSlice<'_>],
        _chunks: impl Iterator<Item = &'c TimedChunk>,
    ) -> io::Result<usize> {
        self.write_vectored(slices)
    }
}

/// Bytes and chunks on their way into a non-blocking socket.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    partial: Option<PartialChunk>,
    /// Which part of a chunk this peer gets: with the wire header, or the payload alone.
    framing: ChunkFraming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkFraming {
    Framed,
    Payload,
    /// As [`Self::Framed`], inside a WebSocket frame.
    WebSocket,
}

/// The bytes of a chunk for this framing.
fn framed_bytes<B: AsRef<[u8]>>(chunk: &Chunk<B>, part: ChunkFraming) -> &[u8] {
    match part {
        ChunkFraming::Framed => chunk.framed(),
        ChunkFraming::Payload => chunk.payload(),
        ChunkFraming::WebSocket => {
            let message = chunk.framed().len();
            let all = chunk.bytes.as_ref();
            let start = all.len().saturating_sub(message + ws::header_len(message));
            &all[start..]
        }
    }
}

#[derive(Debug)]
struct PartialChunk {
    bytes: SharedPooled<Vec<u8>>,
    offset: usize,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteStatus {
    /// Everything has been written.
    Drained,
    /// The socket accepts no more now.
    Blocked,
}

impl Outbox {
    pub(super) const fn new(framing: ChunkFraming) -> Self {
        Self { bytes: Vec::new(), written: 0, partial: None, framing }
    }

    /// Writes what is pending, then `message`.
    pub(super) fn send_timestamped(
        &mut self,
        socket: &mut impl Write,
        message: &impl TimestampedMessage,
        now: impl FnOnce() -> Instant,
    ) -> io::Result<WriteStatus> {
        let flow = self.finish(socket)?;
        // Behind a full socket the stamp is early by the time until the peer reads; the median
        // filter of the peer rejects such answers.
        message.write(now(), &mut self.bytes);
        match flow {
            WriteStatus::Drained => self.finish(socket),
            WriteStatus::Blocked => Ok(WriteStatus::Blocked),
        }
    }

    /// Appends a message whose stamp is not used for clock synchronization.
    pub(super) fn queue_timestamped(&mut self, message: &impl TimestampedMessage, now: Instant) {
        message.write(now, &mut self.bytes);
    }

    /// Appends bytes without a stamp.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends what `write` appends.
    pub(super) fn queue_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        write(&mut self.bytes)
    }

    /// Whether the peer is behind a WebSocket.
    pub(super) fn is_websocket(&self) -> bool {
        self.framing == ChunkFraming::WebSocket
    }

    /// Control bytes and copied bytes that are pending.
    pub(super) const fn queued(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes what has been started: the rest of a chunk, then control messages.
    pub(super) fn finish(&mut self, socket: &mut impl Write) -> io::Result<WriteStatus> {
        if self.finish_chunk(socket)? == WriteStatus::Blocked {
            return Ok(WriteStatus::Blocked);
        }
        while self.written < self.bytes.len() {
            match written_bytes(socket.write(&self.bytes[self.written..]))? {
                Some(count) => self.written += count,
                None => return Ok(WriteStatus::Blocked),
            }
        }
        self.clear_control();
        flush(socket)
    }

    /// Writes what is pending, and the chunks from `cursor` on, in as few calls as possible: at
    /// most [`MAX_CHUNKS`] and about `limit` bytes, up to a chunk of another codec header. Moves
    /// the cursor behind the chunks that were sent or started, and returns their number.
    pub(super) fn send_chunks(
        &mut self,
        socket: &mut impl ChunkSocket,
        log: &ChunkLog,
        cursor: &mut ChunkCursor,
        limit: usize,
    ) -> io::Result<(WriteStatus, usize)> {
        if self.finish_chunk(socket)? == WriteStatus::Blocked {
            return Ok((WriteStatus::Blocked, 0));
        }
        let mut slices = [IoSlice::new(&[]); 1 + MAX_CHUNKS];
        let (mut count, mut total) = (0, 0);
        while count < MAX_CHUNKS && total < limit {
            let Ok(Some(stamped)) = log.get(*cursor, count) else { break };
            let first = log.get(*cursor, 0).ok().flatten();
            if first.is_some_and(|first| !stamped.has_header_of(first)) {
                break;
            }
            let bytes = framed_bytes(&stamped.chunk, self.framing);
            slices[1 + count] = IoSlice::new(bytes);
            total += bytes.len();
            count += 1;
        }
        let control = self.queued();
        if count == 0 {
            return Ok((self.finish(socket)?, 0));
        }
        let sent = if control > 0 {
            slices[0] = IoSlice::new(&self.bytes[self.written..]);
            socket.write_vectored(&slices[..=count])
        } else {
            let chunks = (0..count).filter_map(|ahead| log.get(*cursor, ahead).ok().flatten());
            socket.send_chunks(&slices[1..=count], chunks)
        };
        let Some(sent) = written_bytes(sent)? else { return Ok((WriteStatus::Blocked, 0)) };
        let mut sizes = [0; MAX_CHUNKS];
        for (size, slice) in sizes.iter_mut().zip(&slices[1..=count]) {
            *size = slice.len();
        }
        self.written += sent.min(control);
        if sent < control {
            return Ok((WriteStatus::Blocked, 0));
        }
        self.clear_control();
        let (flow, whole) = self.advance(&sizes[..count], sent - control, log, cursor);
        Ok((if flow == WriteStatus::Drained { flush(socket)? } else { flow }, whole))
    }

    /// Releases a chunk that has been started by copying the rest of it. This is for a peer that
    /// reads nothing: the buffer belongs to the station's pool, and a thousand such peers must not
    /// exhaust it.
    pub(super) fn release_chunk(&mut self) {
        if let Some(PartialChunk { bytes, offset }) = self.partial.take() {
            let rest = bytes.get(offset..).unwrap_or_default();
            self.bytes = [rest, &self.bytes[self.written..]].concat();
            self.written = 0;
        }
    }

    /// Moves the cursor behind the chunks whose `sizes` make up the `sent` bytes. The rest of a
    /// chunk that has been started comes first the next time.
    fn advance(
        &mut self,
        sizes: &[usize],
        mut sent: usize,
        log: &ChunkLog,
        cursor: &mut ChunkCursor,
    ) -> (WriteStatus, usize) {
        let mut whole = 0;
        while let Some(size) = sizes.get(whole).filter(|size| **size <= sent) {
            sent -= size;
            whole += 1;
        }
        if whole == sizes.len() {
            cursor.advance(whole);
            return (WriteStatus::Drained, whole);
        }
        if sent > 0
            && let Ok(Some(stamped)) = log.get(*cursor, whole)
        {
            let bytes = stamped.chunk.bytes.clone();
            let offset = bytes.len() - sizes[whole] + sent;
            self.partial = Some(PartialChunk { bytes, offset });
            whole += 1;
        }
        cursor.advance(whole);
        (WriteStatus::Blocked, whole)
    }

    fn finish_chunk(&mut self, socket: &mut impl Write) -> io::Result<WriteStatus> {
        if let Some(partial) = &mut self.partial {
            while partial.offset < partial.bytes.len() {
                match written_bytes(socket.write(&partial.bytes[partial.offset..]))? {
                    Some(count) => partial.offset += count,
                    None => return Ok(WriteStatus::Blocked),
                }
            }
            self.partial = None;
        }
        Ok(WriteStatus::Drained)
    }

    /// All control bytes have been sent. The memory of a codec header is freed: it is sent once,
    /// and ten thousand idle sessions would keep it.
    fn clear_control(&mut self) {
        self.written = 0;
        if self.bytes.capacity() > IDLE_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }
}

/// Flushes bytes that the socket buffers (TLS does), so that they count as sent.
fn flush(socket: &mut impl Write) -> io::Result<WriteStatus> {
    match socket.flush() {
        Ok(()) => Ok(WriteStatus::Drained),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(WriteStatus::Blocked),
            _ => Err(error),
        },
    }
}

/// The number of bytes written; `None` where the socket would block.
fn written_bytes(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

/// Control buffer that an idle session keeps; a Time reply has 34 bytes.
const IDLE_BYTES: usize = 128;

/// Chunks in one call: more than the longest wait produces, fewer than the kernel's limit of 1,024.
pub(super) const MAX_CHUNKS: usize = 64;

#[cfg(test)]
mod tests {
    use aulos_core::{Codec, Frames, HEADROOM, MediaTime};
    use aulos_rt::Pool;

    use super::*;

    struct StampMessage;

    impl TimestampedMessage for StampMessage {
        fn write(&self, sent: Instant, out: &mut Vec<u8>) {
            out.push(b'<');
            out.extend_from_slice(sent.as_nanos().to_string().as_bytes());
            out.push(b'>');
        }
    }

    /// Accepts a limited number of bytes and then blocks.
    struct LimitedSocket {
        taken: Vec<u8>,
        remaining: usize,
    }

    impl Write for LimitedSocket {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.remaining);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.remaining -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl ChunkSocket for LimitedSocket {}

    fn log_of(payloads: &[&str]) -> ChunkLog {
        let pool = Pool::new(payloads.len(), Vec::new);
        let mut log = ChunkLog::new(payloads.len());
        for (number, payload) in payloads.iter().enumerate() {
            let mut bytes = pool.take().unwrap();
            bytes.clear();
            bytes.resize(HEADROOM - 1, 0);
            bytes.push(b'#');
            bytes.extend_from_slice(payload.as_bytes());
            log.push(TimedChunk {
                chunk: Chunk {
                    pts: MediaTime(number as u64),
                    duration: Frames(1),
                    codec: Codec::Pcm,
                    header: 1,
                    bytes: bytes.freeze(),
                },
                timestamp: Instant::from_nanos(number as u64),
                codec_header: None,
                origin: None,
            });
        }
        log
    }

    #[test]
    fn chunks_of_another_codec_header_wait_for_it() {
        let mut log = log_of(&["alpha", "beta", "gamma"]);
        let header = Some(std::sync::Arc::from([1; 4]));
        for mut chunk in
            [1, 2].map(|at| log.get(log.cursor_from(Instant::ZERO), at).unwrap().unwrap().clone())
        {
            chunk.codec_header.clone_from(&header);
            log.push(chunk);
        }
        // The log has dropped the two oldest: `gamma`, and two chunks of another header.
        let mut socket = LimitedSocket { taken: Vec::new(), remaining: 1_000 };
        let mut outbox = Outbox::new(ChunkFraming::Payload);
        let mut cursor = log.cursor_from(Instant::ZERO);
        for (sent, taken) in [(1, "gamma"), (2, "gammabetagamma"), (0, "gammabetagamma")] {
            let result = outbox.send_chunks(&mut socket, &log, &mut cursor, 1_000).unwrap();
            assert_eq!(result, (WriteStatus::Drained, sent));
            assert_eq!(socket.taken, taken.as_bytes());
        }
    }

    #[test]
    fn partial_writes_keep_the_order_with_control_between_chunks() {
        let log = log_of(&["alpha", "beta", "gamma", "delta"]);
        for grain in 1..30 {
            let mut socket = LimitedSocket { taken: Vec::new(), remaining: grain };
            let mut outbox = Outbox::new(ChunkFraming::Framed);
            let mut cursor = log.cursor_from(Instant::ZERO);
            let end = log.cursor_at_end();
            let mut asked = false;
            while cursor != end || outbox.finish(&mut socket).unwrap() == WriteStatus::Blocked {
                outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
                if !asked {
                    asked = true;
                    outbox
                        .send_timestamped(&mut socket, &StampMessage, || Instant::from_nanos(42))
                        .unwrap();
                }
                socket.remaining = grain;
            }
            let text = String::from_utf8(socket.taken).unwrap();
            assert_eq!(text.replace("<42>", ""), "#alpha#beta#gamma#delta", "grain {grain}");
            assert!(text.contains("<42>#") || text.ends_with("<42>"), "{text}");
        }
    }

    #[test]
    fn control_and_the_following_chunks_are_sent_in_one_call() {
        let log = log_of(&["one", "two"]);
        for grain in 1..20 {
            let mut socket = LimitedSocket { taken: Vec::new(), remaining: grain };
            let mut outbox = Outbox::new(ChunkFraming::Framed);
            let mut cursor = log.cursor_from(Instant::ZERO);
            outbox.queue(b"header");
            let mut calls = 0;
            while cursor != log.cursor_at_end()
                || outbox.finish(&mut socket).unwrap() == WriteStatus::Blocked
            {
                outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
                outbox.release_chunk();
                socket.remaining = grain;
                calls += 1;
            }
            assert_eq!(socket.taken, b"header#one#two", "grain {grain}");
            assert!(grain < 14 || calls == 1);
        }
    }

    #[test]
    fn a_partially_sent_chunk_can_return_to_its_pool() {
        let pool = Pool::new(1, || vec![b'x'; HEADROOM + 10]);
        let mut log = ChunkLog::new(1);
        let chunk = Chunk {
            pts: MediaTime(0),
            duration: Frames(1),
            codec: Codec::Pcm,
            header: 0,
            bytes: pool.take().unwrap().freeze(),
        };
        log.push(TimedChunk { chunk, timestamp: Instant::ZERO, codec_header: None, origin: None });
        let mut socket = LimitedSocket { taken: Vec::new(), remaining: 4 };
        let mut cursor = log.cursor_from(Instant::ZERO);
        let mut outbox = Outbox::new(ChunkFraming::Framed);
        outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
        drop(log);
        assert_eq!(pool.available(), 0);
        outbox.release_chunk();
        assert_eq!(pool.available(), 1);
        socket.remaining = 100;
        assert_eq!(outbox.finish(&mut socket).unwrap(), WriteStatus::Drained);
        assert_eq!(socket.taken, b"xxxxxxxxxx");
    }

    #[test]
    fn a_web_listener_gets_payloads_alone() {
        let log = log_of(&["one", "two"]);
        let mut socket = LimitedSocket { taken: Vec::new(), remaining: 100 };
        let mut cursor = log.cursor_from(Instant::ZERO);
        let mut outbox = Outbox::new(ChunkFraming::Payload);
        let sent = outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
        assert_eq!(sent, (WriteStatus::Drained, 2));
        assert_eq!(socket.taken, b"onetwo");
    }
}

//! What goes out of one socket, and in which order.
//!
//! Control messages go ahead of audio and are stamped at the last moment before the write, so that
//! our own queueing never enters a client's clock. A chunk that has been begun is finished first:
//! a stream has no way to interrupt a message.

use std::io::{self, IoSlice, Write};

use aulos_core::{Chunk, Instant};
use aulos_engine::fanout::{Cursor, Log, Stamped};
use aulos_proto::ws;
use aulos_rt::Shared;

/// Something that becomes bytes only when it is about to be written.
pub(super) trait Late {
    /// Appends the message as sent at `sent`.
    fn write(&self, sent: Instant, out: &mut Vec<u8>);
}

/// A socket as chunks need it.
pub(super) trait Wire: Write {
    /// Sends `slices`, which lie in `chunks`. Who lets the kernel read them later than now keeps the
    /// chunks until it has.
    fn send_chunks<'c>(
        &mut self,
        slices: &[IoSlice<'_>],
        _chunks: impl Iterator<Item = &'c Stamped>,
    ) -> io::Result<usize> {
        self.write_vectored(slices)
    }
}

/// Bytes and chunks on their way into a socket that does not block.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    partial: Option<Partial>,
    /// Which part of a chunk this peer gets: with the wire header, or the payload alone.
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Framed,
    Payload,
    /// As [`Self::Framed`], inside of a WebSocket frame.
    WebSocket,
}

/// What of a chunk this kind of peer gets.
fn part_of<B: AsRef<[u8]>>(chunk: &Chunk<B>, part: Part) -> &[u8] {
    match part {
        Part::Framed => chunk.framed(),
        Part::Payload => chunk.payload(),
        Part::WebSocket => {
            let message = chunk.framed().len();
            let all = chunk.bytes.as_ref();
            let start = all.len().saturating_sub(message + ws::head_len(message));
            &all[start..]
        }
    }
}

#[derive(Debug)]
struct Partial {
    bytes: Shared<Vec<u8>>,
    offset: usize,
}

/// How an attempt to write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Everything that was to go is gone.
    Drained,
    /// The socket takes no more now.
    Blocked,
}

impl Outbox {
    pub(super) const fn new(part: Part) -> Self {
        Self { bytes: Vec::new(), written: 0, partial: None, part }
    }

    /// Writes what was left over, then `message` if there is one.
    pub(super) fn send_late(
        &mut self,
        socket: &mut impl Write,
        message: &impl Late,
        now: impl FnOnce() -> Instant,
    ) -> io::Result<Flow> {
        let flow = self.finish(socket)?;
        // Behind a full socket the stamp is early by the time that the peer leaves it unread; the
        // peer's own median throws such answers away.
        message.write(now(), &mut self.bytes);
        match flow {
            Flow::Drained => self.finish(socket),
            Flow::Blocked => Ok(Flow::Blocked),
        }
    }

    /// Appends a message whose stamp nobody sets a clock by.
    pub(super) fn queue_late(&mut self, message: &impl Late, now: Instant) {
        message.write(now, &mut self.bytes);
    }

    /// Appends bytes that need no stamp.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether the peer is behind a WebSocket.
    pub(super) fn is_web(&self) -> bool {
        self.part == Part::WebSocket
    }

    /// Bytes of control and of copies that wait here.
    pub(super) const fn queued(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes what was begun: half a chunk, then control.
    pub(super) fn finish(&mut self, socket: &mut impl Write) -> io::Result<Flow> {
        if self.finish_chunk(socket)? == Flow::Blocked {
            return Ok(Flow::Blocked);
        }
        while self.written < self.bytes.len() {
            match attempt(socket.write(&self.bytes[self.written..]))? {
                Some(count) => self.written += count,
                None => return Ok(Flow::Blocked),
            }
        }
        self.forget_control();
        flush(socket)
    }

    /// Writes what was left over, control, and the chunks from `cursor` on, in as few calls as
    /// can be: at most [`MAX_CHUNKS`] and about `limit` bytes. Moves the cursor behind what went
    /// out or was begun, and returns how many chunks that were.
    pub(super) fn send_chunks(
        &mut self,
        socket: &mut impl Wire,
        log: &Log,
        cursor: &mut Cursor,
        limit: usize,
    ) -> io::Result<(Flow, usize)> {
        if self.finish_chunk(socket)? == Flow::Blocked {
            return Ok((Flow::Blocked, 0));
        }
        let mut slices = [IoSlice::new(&[]); 1 + MAX_CHUNKS];
        let (mut count, mut total) = (0, 0);
        while count < MAX_CHUNKS && total < limit {
            let Ok(Some(stamped)) = log.get(*cursor, count) else { break };
            let bytes = part_of(&stamped.chunk, self.part);
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
        let Some(sent) = attempt(sent)? else { return Ok((Flow::Blocked, 0)) };
        let mut sizes = [0; MAX_CHUNKS];
        for (size, slice) in sizes.iter_mut().zip(&slices[1..=count]) {
            *size = slice.len();
        }
        self.written += sent.min(control);
        if sent < control {
            return Ok((Flow::Blocked, 0));
        }
        self.forget_control();
        let (flow, whole) = self.count_off(&sizes[..count], sent - control, log, cursor);
        Ok((if flow == Flow::Drained { flush(socket)? } else { flow }, whole))
    }

    /// Lets go of a chunk that has been begun, by copying what is left of it. For a peer that takes
    /// nothing: the chunk's buffer is the station's, and a thousand such peers must not keep them
    /// all from it.
    pub(super) fn let_go(&mut self) {
        if let Some(Partial { bytes, offset }) = self.partial.take() {
            let rest = bytes.get(offset..).unwrap_or_default();
            self.bytes = [rest, &self.bytes[self.written..]].concat();
            self.written = 0;
        }
    }

    /// Moves the cursor behind the chunks whose `sizes` make up the `sent` bytes; what is left of
    /// one that has been begun comes first the next time.
    fn count_off(
        &mut self,
        sizes: &[usize],
        mut sent: usize,
        log: &Log,
        cursor: &mut Cursor,
    ) -> (Flow, usize) {
        let mut whole = 0;
        while let Some(size) = sizes.get(whole).filter(|size| **size <= sent) {
            sent -= size;
            whole += 1;
        }
        if whole == sizes.len() {
            cursor.advance(whole);
            return (Flow::Drained, whole);
        }
        if sent > 0
            && let Ok(Some(stamped)) = log.get(*cursor, whole)
        {
            let bytes = stamped.chunk.bytes.clone();
            let offset = bytes.len() - sizes[whole] + sent;
            self.partial = Some(Partial { bytes, offset });
            whole += 1;
        }
        cursor.advance(whole);
        (Flow::Blocked, whole)
    }

    fn finish_chunk(&mut self, socket: &mut impl Write) -> io::Result<Flow> {
        if let Some(partial) = &mut self.partial {
            while partial.offset < partial.bytes.len() {
                match attempt(socket.write(&partial.bytes[partial.offset..]))? {
                    Some(count) => partial.offset += count,
                    None => return Ok(Flow::Blocked),
                }
            }
            self.partial = None;
        }
        Ok(Flow::Drained)
    }

    /// All of the control has gone out. A codec header's room is given back: it comes once, and
    /// ten thousand idle sessions would keep it.
    fn forget_control(&mut self) {
        self.written = 0;
        if self.bytes.capacity() > IDLE_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }
}

/// What a socket took and holds back (TLS does) goes before it counts as gone.
fn flush(socket: &mut impl Write) -> io::Result<Flow> {
    match socket.flush() {
        Ok(()) => Ok(Flow::Drained),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Flow::Blocked),
            _ => Err(error),
        },
    }
}

/// The bytes that went, none where the socket would block.
fn attempt(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

/// Room for control that an idle session keeps; a Time reply has 34 bytes.
const IDLE_BYTES: usize = 128;

/// Chunks in one call: more than the longest wait brings, fewer than the kernel's 1,024.
pub(super) const MAX_CHUNKS: usize = 64;

#[cfg(test)]
mod tests {
    use aulos_core::{Codec, Frames, HEADROOM, MediaTime};
    use aulos_rt::Pool;

    use super::*;

    struct Stamp;

    impl Late for Stamp {
        fn write(&self, sent: Instant, out: &mut Vec<u8>) {
            out.push(b'<');
            out.extend_from_slice(sent.as_nanos().to_string().as_bytes());
            out.push(b'>');
        }
    }

    /// Takes `budget` bytes and then blocks.
    struct Narrow {
        taken: Vec<u8>,
        budget: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.budget);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.budget -= count;
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

    impl Wire for Narrow {}

    fn log_of(payloads: &[&str]) -> Log {
        let pool = Pool::new(payloads.len(), Vec::new);
        let mut log = Log::new(payloads.len());
        for (number, payload) in payloads.iter().enumerate() {
            let mut bytes = pool.take().unwrap();
            bytes.clear();
            bytes.resize(HEADROOM - 1, 0);
            bytes.push(b'#');
            bytes.extend_from_slice(payload.as_bytes());
            log.push(Stamped {
                chunk: Chunk {
                    pts: MediaTime(number as u64),
                    duration: Frames(1),
                    codec: Codec::Pcm,
                    header: 1,
                    bytes: bytes.freeze(),
                },
                timestamp: Instant::from_nanos(number as u64),
            });
        }
        log
    }

    #[test]
    fn whatever_the_socket_takes_the_bytes_arrive_in_order_and_control_goes_between_chunks() {
        let log = log_of(&["alpha", "beta", "gamma", "delta"]);
        for grain in 1..30 {
            let mut socket = Narrow { taken: Vec::new(), budget: grain };
            let mut outbox = Outbox::new(Part::Framed);
            let mut cursor = log.cursor_from(Instant::ZERO);
            let end = log.cursor_at_end();
            let mut asked = false;
            while cursor != end || outbox.finish(&mut socket).unwrap() == Flow::Blocked {
                outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
                if !asked {
                    asked = true;
                    outbox.send_late(&mut socket, &Stamp, || Instant::from_nanos(42)).unwrap();
                }
                socket.budget = grain;
            }
            let text = String::from_utf8(socket.taken).unwrap();
            assert_eq!(text.replace("<42>", ""), "#alpha#beta#gamma#delta", "grain {grain}");
            assert!(text.contains("<42>#") || text.ends_with("<42>"), "{text}");
        }
    }

    #[test]
    fn control_goes_out_in_the_same_call_as_the_chunks_behind_it() {
        let log = log_of(&["one", "two"]);
        for grain in 1..20 {
            let mut socket = Narrow { taken: Vec::new(), budget: grain };
            let mut outbox = Outbox::new(Part::Framed);
            let mut cursor = log.cursor_from(Instant::ZERO);
            outbox.queue(b"header");
            let mut calls = 0;
            while cursor != log.cursor_at_end()
                || outbox.finish(&mut socket).unwrap() == Flow::Blocked
            {
                outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
                outbox.let_go();
                socket.budget = grain;
                calls += 1;
            }
            assert_eq!(socket.taken, b"header#one#two", "grain {grain}");
            assert!(grain < 14 || calls == 1);
        }
    }

    #[test]
    fn a_chunk_that_was_begun_can_go_back_to_its_pool() {
        let pool = Pool::new(1, || vec![b'x'; HEADROOM + 10]);
        let mut log = Log::new(1);
        let chunk = Chunk {
            pts: MediaTime(0),
            duration: Frames(1),
            codec: Codec::Pcm,
            header: 0,
            bytes: pool.take().unwrap().freeze(),
        };
        log.push(Stamped { chunk, timestamp: Instant::ZERO });
        let mut socket = Narrow { taken: Vec::new(), budget: 4 };
        let mut cursor = log.cursor_from(Instant::ZERO);
        let mut outbox = Outbox::new(Part::Framed);
        outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
        drop(log);
        assert_eq!(pool.available(), 0);
        outbox.let_go();
        assert_eq!(pool.available(), 1);
        socket.budget = 100;
        assert_eq!(outbox.finish(&mut socket).unwrap(), Flow::Drained);
        assert_eq!(socket.taken, b"xxxxxxxxxx");
    }

    #[test]
    fn a_web_listener_gets_payloads_alone() {
        let log = log_of(&["one", "two"]);
        let mut socket = Narrow { taken: Vec::new(), budget: 100 };
        let mut cursor = log.cursor_from(Instant::ZERO);
        let mut outbox = Outbox::new(Part::Payload);
        let sent = outbox.send_chunks(&mut socket, &log, &mut cursor, usize::MAX).unwrap();
        assert_eq!(sent, (Flow::Drained, 2));
        assert_eq!(socket.taken, b"onetwo");
    }
}

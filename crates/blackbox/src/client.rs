//! One client of the load generator: sends Hello and Time, and checks the chunks.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::time::{ClockId, clock_gettime};

use crate::wire::{self, ChunkCodec, HEADER, MessageHeader, kind};

/// The monotonic clock of this machine in microseconds, as sent by Snapcast clients on Linux.
#[must_use]
pub fn clock_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// Statistics of a client.
#[derive(Clone, Debug, Default)]
pub struct ListenerStats {
    /// Number of chunks.
    pub chunks: u64,
    /// All bytes, including headers.
    pub bytes: u64,
    /// Codec headers: one for each station that the client was assigned to, and for each change of
    /// one.
    pub headers: u64,
    /// Chunks that did not begin where the one before ended.
    pub gaps: u64,
    /// The largest of these jumps in microseconds, forward or back.
    pub largest_gap_us: i64,
    /// Chunks before their codec header, which cannot be played (snapserver sends some).
    pub early: u64,
    /// Messages that could not be parsed.
    pub strange: u64,
    /// Duration of the connect call in microseconds. A second or more means that the server's
    /// accept queue was full, and the kernel tried again.
    pub connect_us: i64,
    /// From Hello to the first chunk, microseconds.
    pub first_chunk_us: Option<i64>,
    /// Server's clock minus ours as a client computes it from each reply, with the round trip.
    pub offsets: Vec<ClockOffset>,
    /// Time requests that were not answered before the next one.
    pub unanswered: u64,
    /// Whether the server ended the connection.
    pub cut: bool,
    /// Name of the codec.
    pub codec: &'static str,
}

/// Result of one Time request, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct ClockOffset {
    /// Server's clock minus ours.
    pub offset: i64,
    /// Round trip time.
    pub round_trip: i64,
}

/// A client with its connection.
#[derive(Debug)]
pub struct ListenerClient {
    socket: TcpStream,
    /// Its statistics.
    pub stats: ListenerStats,
    hello_at: i64,
    coding: Option<ChunkCodec>,
    timeline: Option<ChunkTimeline>,
    asked: Option<u16>,
    next_id: u16,
    // The beginning of the message that is being received, and the number of bytes to skip.
    head: [u8; HEAD],
    have: usize,
    pass: usize,
}

/// Expected time of the next chunk: a start time and a number of frames. Chunks carry whole
/// microseconds, so the sum must be in frames.
#[derive(Clone, Copy, Debug)]
struct ChunkTimeline {
    start_us: i64,
    frames: u64,
}

/// Bytes stored of a message: enough for a codec header with STREAMINFO.
const HEAD: usize = 160;
/// Rounding to whole microseconds, on both sides.
const ROUNDING_US: i64 = 2;

impl ListenerClient {
    /// Connects and sends Hello as client number `id`.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect(server: SocketAddr, id: usize) -> io::Result<Self> {
        let start = clock_us();
        let mut socket = TcpStream::connect(server)?;
        let connect_us = clock_us() - start;
        socket.set_nodelay(true)?;
        socket.write_all(&wire::hello(id))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            stats: ListenerStats { connect_us, ..ListenerStats::default() },
            hello_at: clock_us(),
            coding: None,
            timeline: None,
            asked: None,
            next_id: 3,
            head: [0; HEAD],
            have: 0,
            pass: 0,
        })
    }

    /// The socket, for polling.
    #[must_use]
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends a Time request.
    pub fn request_time(&mut self) {
        if self.stats.cut {
            return;
        }
        self.stats.unanswered += u64::from(self.asked.is_some());
        let id = self.next_id;
        self.next_id = if id >= 9999 { 1 } else { id + 1 };
        let header = MessageHeader {
            kind: kind::TIME,
            id,
            refers_to: 0,
            sent: clock_us(),
            received: 0,
            size: 0,
        };
        // 34 bytes fit into the socket buffer of any peer that reads.
        if self.socket.write_all(&header.message(&[0; 8])).is_err() {
            self.stats.cut = true;
        }
        self.asked = Some(id);
    }

    /// Reads what has arrived; calls `delay` with each chunk's time of arrival and timestamp.
    pub fn read(&mut self, buffer: &mut [u8], delay: &mut impl FnMut(i64, i64)) {
        while !self.stats.cut {
            match self.socket.read(buffer) {
                Ok(0) => self.stats.cut = true,
                Ok(n) => {
                    self.take(&buffer[..n], clock_us(), delay);
                    if n < buffer.len() {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.stats.cut = true,
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8], now: i64, delay: &mut impl FnMut(i64, i64)) {
        self.stats.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.pass > 0 {
                let n = self.pass.min(bytes.len());
                self.pass -= n;
                bytes = &bytes[n..];
                continue;
            }
            let wanted = if self.have < HEADER { HEADER } else { self.head_len() };
            let n = (wanted - self.have).min(bytes.len());
            self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have >= HEADER && self.have == self.head_len() {
                self.message(now, delay);
                self.have = 0;
            }
        }
    }

    /// Bytes to store of the message whose header is complete.
    fn head_len(&self) -> usize {
        let size = MessageHeader::parse(&self.head).map_or(0, |header| header.size);
        (HEADER + size as usize).min(HEAD)
    }

    fn message(&mut self, now: i64, delay: &mut impl FnMut(i64, i64)) {
        let Some(header) = MessageHeader::parse(&self.head) else { return };
        if header.kind > kind::MAX || header.size > wire::MAX_PAYLOAD {
            self.stats.strange += 1;
            self.stats.cut = true;
            return;
        }
        self.pass = HEADER + header.size as usize - self.have;
        match header.kind {
            kind::CODEC_HEADER => {
                self.stats.headers += 1;
                self.coding = ChunkCodec::parse(&self.head[HEADER..self.have]);
                self.stats.codec = self.coding.map_or("unknown", ChunkCodec::name);
                self.timeline = None;
            }
            kind::WIRE_CHUNK => self.chunk(now, delay),
            kind::TIME => self.time(header, now),
            _ => {}
        }
    }

    fn time(&mut self, header: MessageHeader, now: i64) {
        // A response after the next request has been counted as missing already.
        if self.asked != Some(header.refers_to) {
            return;
        }
        self.asked = None;
        let there = wire::time_at(&self.head, HEADER).unwrap_or(0);
        let back = now - header.sent;
        self.stats
            .offsets
            .push(ClockOffset { offset: (there - back) / 2, round_trip: there + back });
    }

    fn chunk(&mut self, now: i64, delay: &mut impl FnMut(i64, i64)) {
        if self.coding.is_none() {
            self.stats.early += 1;
            return;
        }
        self.stats.chunks += 1;
        self.stats.first_chunk_us.get_or_insert(now - self.hello_at);
        let head = &self.head[HEADER..self.have];
        let parsed = wire::time_at(head, 0).zip(self.coding).and_then(|(stamp, coding)| {
            let len = u32::from_le_bytes(head.get(8..12)?.try_into().ok()?);
            Some((stamp, coding.frames(&head[12..], len)?, coding.rate()))
        });
        let Some((stamp, frames, rate)) = parsed else {
            self.stats.strange += 1;
            return;
        };
        delay(now, stamp);
        let line = self.timeline.get_or_insert(ChunkTimeline { start_us: stamp, frames: 0 });
        let due = line.start_us + (line.frames * 1_000_000 / u64::from(rate)).cast_signed();
        if (stamp - due).abs() > ROUNDING_US {
            self.stats.gaps += 1;
            if (stamp - due).abs() > self.stats.largest_gap_us.abs() {
                self.stats.largest_gap_us = stamp - due;
            }
            *line = ChunkTimeline { start_us: stamp, frames: 0 };
        }
        line.frames += u64::from(frames);
    }
}

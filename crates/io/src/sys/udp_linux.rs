//! System calls for many datagrams on Linux.

use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use aulos_core::Span;
use rustix::time::{ClockId, clock_gettime};

use super::SendMessage;
use super::imp::set_option;
use crate::SystemClock;
use crate::udp::{DatagramInfo, Slots};

/// Makes the kernel stamp each datagram with its receive time.
pub(crate) fn stamp_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// How far the clock of these stamps is ahead of the monotonic clock, in nanoseconds. The stamps
/// use the wall clock, which may jump, so only a stamp from a moment ago can be converted.
pub(crate) fn timestamp_clock_offset_nanos() -> i64 {
    let mut best = (Span::MAX, 0);
    // A preemption between two reads spoils the result, so the closest of several tries counts.
    for _ in 0..CLOCK_READS {
        let before = SystemClock::now();
        let wall = clock_gettime(ClockId::Realtime);
        let apart = SystemClock::now() - before;
        let wall = wall.tv_sec.saturating_mul(1_000_000_000).saturating_add(wall.tv_nsec);
        let here = i64::try_from((before + apart / 2).as_nanos()).unwrap_or(i64::MAX);
        best = best.min((apart, wall.saturating_sub(here)));
        if apart <= MAX_CLOCK_GAP {
            break;
        }
    }
    best.1
}

/// Makes the kernel report, with each datagram, how many it has dropped before.
pub(crate) fn report_losses(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Makes the kernel deliver datagrams that arrived together in one piece (GRO).
pub(crate) fn receive_joined(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Distributes the streams of one port over its sockets by SSRC, so that all packets of a stream
/// reach the same socket. Sockets are numbered in the order in which they were bound.
pub(crate) fn share_by_ssrc(socket: BorrowedFd<'_>, sockets: u32) -> io::Result<()> {
    use libc::{
        BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JA, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_MOD,
        BPF_MUL, BPF_RET, BPF_RSH, BPF_W,
    };
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    };
    // A read beyond the end of the packet selects socket 0. RTCP has its SSRC at another offset;
    // where it shares the port of RTP, its packet types are 192 to 223 (RFC 5761 section 4).
    let mut program = [
        step(BPF_LD | BPF_B | BPF_ABS, 0, 0, 1),
        step(BPF_JMP | BPF_JGE | BPF_K, 0, 3, 192),
        step(BPF_JMP | BPF_JGT | BPF_K, 2, 0, 223),
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 4),
        step(BPF_JMP | BPF_JA, 0, 0, 1),
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 8),
        // The multiplication spreads consecutive SSRCs evenly.
        step(BPF_ALU | BPF_MUL | BPF_K, 0, 0, 0x9E37_79B1),
        step(BPF_ALU | BPF_RSH | BPF_K, 0, 0, 16),
        step(BPF_ALU | BPF_MOD | BPF_K, 0, 0, sockets.max(1)),
        step(BPF_RET | BPF_A, 0, 0, 0),
    ];
    let len = u16::try_from(program.len()).unwrap_or(0);
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// The buffers of a receive call, besides the slots.
pub(crate) struct Receiver {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[[libc::iovec; 2]]>,
    names: Box<[[u8; SOCKET_ADDRESS_BYTES]]>,
    /// Words, because the kernel aligns its entries.
    controls: Box<[[usize; CONTROL_WORDS]]>,
}

impl Receiver {
    /// For up to `count` datagrams per call.
    pub(crate) fn new(count: usize) -> Self {
        // SAFETY: headers of zeros are valid: they have no name, no buffers and no control.
        let headers = (0..count).map(|_| unsafe { zeroed() }).collect();
        let nowhere = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            headers,
            vectors: vec![[nowhere; 2]; count].into(),
            names: vec![[0; SOCKET_ADDRESS_BYTES]; count].into(),
            controls: vec![[0; CONTROL_WORDS]; count].into(),
        }
    }

    /// Receives up to `most` pending datagrams without waiting.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: &mut Slots,
        most: usize,
    ) -> io::Result<usize> {
        let most = most.min(slots.count()).min(self.headers.len());
        for index in 0..most {
            let vectors = slots.room(index).map(|room| libc::iovec {
                iov_base: room.as_mut_ptr().cast(),
                iov_len: room.len(),
            });
            self.vectors[index] = vectors;
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = self.names[index].as_mut_ptr().cast();
            header.msg_namelen = SOCKADDR_IN6_BYTES;
            header.msg_iov = self.vectors[index].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = (CONTROL_WORDS * size_of::<usize>()) as _;
        }
        // SAFETY: each of the first `most` headers points to a name, two buffers and a control of
        // its own, all alive and of the sizes told; the descriptor is open while it is borrowed.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                u32::try_from(most).unwrap_or(0),
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
        for index in 0..count {
            slots.datagrams[index] = self.datagram_info(index);
        }
        Ok(count)
    }

    fn datagram_info(&self, index: usize) -> DatagramInfo {
        let header = &self.headers[index];
        let mut arrived = DatagramInfo {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            from: parse_socket_address(&self.names[index]),
            ..DatagramInfo::EMPTY
        };
        let mut bytes = [0; CONTROL_WORDS * size_of::<usize>()];
        for (bytes, word) in bytes.chunks_exact_mut(size_of::<usize>()).zip(self.controls[index]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        #[allow(clippy::unnecessary_cast, reason = "another C library has another type here")]
        let len = (header.msg_hdr.msg_controllen as usize).min(bytes.len());
        let mut rest = &bytes[..len];
        // Each entry is a length (a word), a level, a type and data, aligned to words.
        while rest.len() >= CONTROL_HEADER {
            let len = usize::from_ne_bytes(bytes_at(rest, 0)).clamp(CONTROL_HEADER, rest.len());
            let level = i32::from_ne_bytes(bytes_at(rest, size_of::<usize>()));
            let kind = i32::from_ne_bytes(bytes_at(rest, size_of::<usize>() + 4));
            let data = &rest[CONTROL_HEADER..len];
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => arrived.stamp = parse_timespec(data),
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    arrived.lost = Some(u32::from_ne_bytes(bytes_at(data, 0)));
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = usize::try_from(i32::from_ne_bytes(bytes_at(data, 0))).unwrap_or(0);
                    arrived.segment = (size > 0).then_some(size);
                }
                _ => {}
            }
            rest = &rest[len.next_multiple_of(size_of::<usize>()).min(rest.len())..];
        }
        arrived
    }
}

/// The buffers of a send call.
pub(crate) struct Sender {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[[u8; SOCKET_ADDRESS_BYTES]]>,
    controls: Box<[[usize; SEGMENT_WORDS]]>,
}

impl Sender {
    /// For up to `count` messages per call.
    pub(crate) fn new(count: usize) -> Self {
        // SAFETY: headers of zeros are valid: they have no name, no buffers and no control.
        let headers = (0..count).map(|_| unsafe { zeroed() }).collect();
        let nowhere = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            headers,
            vectors: vec![nowhere; count].into(),
            names: vec![[0; SOCKET_ADDRESS_BYTES]; count].into(),
            controls: vec![[0; SEGMENT_WORDS]; count].into(),
        }
    }

    /// Sends as many of `messages` as the kernel accepts without waiting, and returns their number.
    /// An error is the error of the first message.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: &[SendMessage],
        bytes: &[u8],
    ) -> io::Result<usize> {
        let count = messages.len().min(self.headers.len());
        for (index, message) in messages.iter().take(count).enumerate() {
            let bytes = &bytes[message.bytes.clone()];
            let base = bytes.as_ptr().cast_mut().cast();
            self.vectors[index] = libc::iovec { iov_base: base, iov_len: bytes.len() };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_namelen = write_socket_address(&message.to, &mut self.names[index]);
            header.msg_name = self.names[index].as_mut_ptr().cast();
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
            if let Some(size) = message.segment {
                self.controls[index] = segment_control(size);
                header.msg_control = self.controls[index].as_mut_ptr().cast();
                header.msg_controllen = size_of_val(&self.controls[index]) as _;
            }
        }
        // SAFETY: each of the first `count` headers points to a name, a buffer and, if any, a
        // control of its own, all alive, of the sizes told, and only read by the kernel; the
        // descriptor is open while it is borrowed.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                u32::try_from(count).unwrap_or(0),
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// `UDP_SEGMENT` with a size.
fn segment_control(size: u16) -> [usize; SEGMENT_WORDS] {
    let mut bytes = [0; SEGMENT_WORDS * size_of::<usize>()];
    let len = CONTROL_HEADER + size_of::<u16>();
    bytes[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
    bytes[size_of::<usize>()..][..4].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
    bytes[size_of::<usize>() + 4..][..4].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
    bytes[CONTROL_HEADER..][..2].copy_from_slice(&size.to_ne_bytes());
    let mut words = [0; SEGMENT_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<usize>())) {
        *word = usize::from_ne_bytes(bytes_at(bytes, 0));
    }
    words
}

/// Nanoseconds of a `struct timespec`.
fn parse_timespec(data: &[u8]) -> Option<u64> {
    let (seconds, nanos) = if data.len() >= 16 {
        (i64::from_ne_bytes(bytes_at(data, 0)), i64::from_ne_bytes(bytes_at(data, 8)))
    } else {
        let word = |at| i64::from(i32::from_ne_bytes(bytes_at(data, at)));
        (word(0), word(4))
    };
    u64::try_from(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?).ok()
}

/// Reads a `struct sockaddr_in` or `struct sockaddr_in6`. An IPv4-mapped address becomes an IPv4
/// address.
fn parse_socket_address(name: &[u8; SOCKET_ADDRESS_BYTES]) -> SocketAddr {
    let port = u16::from_be_bytes(bytes_at(name, 2));
    if i32::from(u16::from_ne_bytes(bytes_at(name, 0))) != libc::AF_INET6 {
        return SocketAddr::new(Ipv4Addr::from(bytes_at::<4>(name, 4)).into(), port);
    }
    let ip = Ipv6Addr::from(bytes_at::<16>(name, 8));
    if let Some(ip) = ip.to_ipv4_mapped() {
        return SocketAddr::new(ip.into(), port);
    }
    let (flow, scope) =
        (u32::from_ne_bytes(bytes_at(name, 4)), u32::from_ne_bytes(bytes_at(name, 24)));
    SocketAddrV6::new(ip, port, flow, scope).into()
}

/// Writes a `struct sockaddr_in` or `struct sockaddr_in6`, and returns its length.
fn write_socket_address(
    address: &SocketAddr,
    name: &mut [u8; SOCKET_ADDRESS_BYTES],
) -> libc::socklen_t {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    name[..2].copy_from_slice(&u16::try_from(family).unwrap_or(0).to_ne_bytes());
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            name[4..8].copy_from_slice(&v4.ip().octets());
            name[8..16].fill(0);
            SOCKADDR_IN_BYTES
        }
        SocketAddr::V6(v6) => {
            name[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            name[8..24].copy_from_slice(&v6.ip().octets());
            name[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            SOCKADDR_IN6_BYTES
        }
    }
}

/// `N` bytes from `at`, padded with zeros.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

/// Sizes of `struct sockaddr_in` and `struct sockaddr_in6`.
const SOCKADDR_IN_BYTES: libc::socklen_t = 16;
const SOCKADDR_IN6_BYTES: libc::socklen_t = 28;
const SOCKET_ADDRESS_BYTES: usize = 28;

const CLOCK_READS: usize = 4;

/// Three clock reads take about a tenth of this.
const MAX_CLOCK_GAP: Span = Span::from_micros(2);

/// A word and two numbers.
const CONTROL_HEADER: usize = size_of::<usize>() + 8;

/// Room for a time, a count and a size, each with its header: 80 bytes on 64-bit systems.
const CONTROL_WORDS: usize = 16;

/// Room for a size with its header.
const SEGMENT_WORDS: usize = (CONTROL_HEADER + 4).div_ceil(size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["127.0.0.1:7000", "[::1]:7000", "[fe80::1%3]:65535", "239.1.2.3:1"] {
            let there: SocketAddr = text.parse().unwrap();
            let mut bytes = [0xFF; SOCKET_ADDRESS_BYTES];
            write_socket_address(&there, &mut bytes);
            assert_eq!(parse_socket_address(&bytes), there);
        }
    }
}

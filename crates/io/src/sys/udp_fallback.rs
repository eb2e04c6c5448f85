//! Systems without these calls: one datagram per call, and receive time is the time of the read.
//! Kernel drops are not counted, a port cannot be shared by several threads, and there are no
//! trunks.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, recvfrom, sendto};

use super::SendMessage;
use crate::udp::{DatagramInfo, SMALL_SLOT_BYTES, Slots};

/// Unsupported: the receive time is the time of the read.
pub(crate) fn stamp_arrivals(_socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

/// There are no time stamps.
pub(crate) fn timestamp_clock_offset_nanos() -> i64 {
    0
}

/// Unsupported: drops are not counted.
pub(crate) fn report_losses(_socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

/// Unsupported.
pub(crate) fn receive_joined(_socket: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Unsupported.
pub(crate) fn share_by_ssrc(_socket: BorrowedFd<'_>, _sockets: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Has no state.
pub(crate) struct Receiver;

impl Receiver {
    pub(crate) fn new(_count: usize) -> Self {
        Self
    }

    /// Receives up to `most` pending datagrams without waiting.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: &mut Slots,
        most: usize,
    ) -> io::Result<usize> {
        let largest = slots.largest;
        for index in 0..most.min(slots.count()) {
            let whole = &mut slots.large[index * largest..][..largest];
            let (len, full, from) = match recvfrom(socket, &mut *whole, RecvFlags::DONTWAIT) {
                Ok((len, full, from)) => (len, full, from),
                Err(_) if index > 0 => return Ok(index),
                Err(error) => return Err(error.into()),
            };
            slots.small[index * SMALL_SLOT_BYTES..][..SMALL_SLOT_BYTES]
                .copy_from_slice(&whole[..SMALL_SLOT_BYTES]);
            let from = from.and_then(|from| from.try_into().ok());
            slots.datagrams[index] = DatagramInfo {
                len,
                truncated: full > len,
                from: from.unwrap_or(DatagramInfo::EMPTY.from),
                ..DatagramInfo::EMPTY
            };
        }
        Ok(most.min(slots.count()))
    }
}

/// Has no state.
pub(crate) struct Sender;

impl Sender {
    pub(crate) fn new(_count: usize) -> Self {
        Self
    }

    /// Sends as many of `messages` as the kernel accepts without waiting, and returns their number.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: &[SendMessage],
        bytes: &[u8],
    ) -> io::Result<usize> {
        for (index, message) in messages.iter().enumerate() {
            if message.segment.is_some() {
                return if index > 0 { Ok(index) } else { Err(io::ErrorKind::Unsupported.into()) };
            }
            let to = SocketAddrAny::from(message.to);
            match sendto(socket, &bytes[message.bytes.clone()], SendFlags::DONTWAIT, &to) {
                Ok(_) => {}
                Err(_) if index > 0 => return Ok(index),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(messages.len())
    }
}

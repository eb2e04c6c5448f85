//! The options of media sockets.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;

use crate::sys::set_notsent_lowat;

/// Sets the options of a media socket.
pub(super) fn configure_socket(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, DEAD_AFTER_MS)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER)?;
    set_notsent_lowat(socket, NOTSENT_BYTES)
}

/// Bytes that may wait unsent before a socket counts as full. A Time reply queues behind them, so
/// this is little more than the 19 kB of one batch: 100 ms of 48 kHz, 16 bit, stereo.
const NOTSENT_BYTES: u32 = 32 * 1_024;

/// Kernel buffers of one session. At most a second of a typical stream is in flight, and clients
/// send next to nothing.
pub(super) const SEND_BUFFER: usize = 256 * 1_024;

const RECEIVE_BUFFER: usize = 32 * 1_024;

/// A peer that acknowledges nothing for this long counts as dead.
pub(super) const DEAD_AFTER_MS: u32 = 10_000;

//! Opens and configures sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

use crate::sys;

/// Socket options.
#[derive(Clone, Debug, Default)]
pub struct SocketOptions {
    /// The receive buffer in bytes; 0 leaves the kernel's default. A size beyond the system's limit
    /// (`net.core.rmem_max`) is granted to privileged processes only; see
    /// [`granted_receive_buffer`]. A datagram of 172 bytes counts as about 832.
    pub receive_buffer: usize,
    /// The send buffer.
    pub send_buffer: usize,
    /// Whether other sockets of the same user may be bound to the same port; datagrams are
    /// distributed over them.
    pub reuse_port: bool,
    /// The DSCP, 0 to 63: 46 is "expedited forwarding", 34 is what AES67 specifies for media.
    pub dscp: u8,
    /// The multicast TTL; 0 is the system's default, which is 1.
    pub multicast_hops: u8,
    /// Whether this machine receives its own multicast.
    pub multicast_loop: bool,
    /// The index of the network interface for multicast; 0 uses the routes.
    pub multicast_interface: u32,
    /// Multicast groups to join.
    pub groups: Vec<IpAddr>,
}

/// Opens a socket on `address`; port 0 selects a free one.
///
/// # Errors
/// When the address is unavailable, or the system refuses an option. Buffer sizes and DSCP are best
/// effort and cause no error.
pub fn bind_socket(address: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Several programs of one machine may receive the same group.
    if address.ip().is_multicast() || !options.groups.is_empty() {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    bind(&socket, &address)?;
    let socket = UdpSocket::from(socket);
    set_buffers(&socket, options);
    set_mark(&socket, address, options.dscp);
    set_multicast(&socket, address, options)?;
    Ok(socket)
}

/// The receive buffer of `socket` in bytes, in the kernel's accounting.
///
/// # Errors
/// When the system does not report it.
pub fn granted_receive_buffer(socket: &UdpSocket) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(socket)?)
}

/// Options that every socket of a context needs.
pub(super) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    sys::stamp_arrivals(socket.as_fd())?;
    sys::report_losses(socket.as_fd())
}

fn set_buffers(socket: &UdpSocket, options: &SocketOptions) {
    if options.receive_buffer > 0
        && sockopt::set_socket_recv_buffer_size_force(socket, options.receive_buffer).is_err()
    {
        // The kernel limits it to the system's maximum.
        let _ = sockopt::set_socket_recv_buffer_size(socket, options.receive_buffer);
    }
    if options.send_buffer > 0
        && sockopt::set_socket_send_buffer_size_force(socket, options.send_buffer).is_err()
    {
        let _ = sockopt::set_socket_send_buffer_size(socket, options.send_buffer);
    }
}

/// Best effort: the stream also works without the mark.
fn set_mark(socket: &UdpSocket, address: SocketAddr, dscp: u8) {
    let mark = dscp << 2;
    if mark == 0 {
        return;
    }
    if address.is_ipv6() {
        let _ = sockopt::set_ipv6_tclass(socket, mark.into());
    }
    // An IPv6 socket needs this for its IPv4 destinations.
    let _ = sockopt::set_ip_tos(socket, mark);
}

fn set_multicast(socket: &UdpSocket, own: SocketAddr, options: &SocketOptions) -> io::Result<()> {
    let index = options.multicast_interface;
    if own.is_ipv4() {
        sockopt::set_ip_multicast_loop(socket, options.multicast_loop)?;
        if options.multicast_hops > 0 {
            sockopt::set_ip_multicast_ttl(socket, options.multicast_hops.into())?;
        }
        if index > 0 {
            set_interface_v4(socket, index)?;
        }
    } else {
        sockopt::set_ipv6_multicast_loop(socket, options.multicast_loop)?;
        if options.multicast_hops > 0 {
            sockopt::set_ipv6_multicast_hops(socket, options.multicast_hops.into())?;
        }
        if index > 0 {
            sockopt::set_ipv6_multicast_if(socket, index)?;
        }
    }
    for group in &options.groups {
        match group {
            IpAddr::V4(group) => join_v4(socket, group, index)?,
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(socket, group, index)?,
        }
    }
    Ok(())
}

fn set_interface_v4(socket: &UdpSocket, index: u32) -> io::Result<()> {
    let any = Ipv4Addr::UNSPECIFIED;
    Ok(sockopt::set_ip_multicast_if_with_ifindex(socket, &any, &any, index)?)
}

fn join_v4(socket: &UdpSocket, group: &Ipv4Addr, index: u32) -> io::Result<()> {
    let any = Ipv4Addr::UNSPECIFIED;
    Ok(sockopt::set_ip_add_membership_with_ifindex(socket, group, &any, index)?)
}

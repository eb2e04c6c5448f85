//! Sockets, made as the streams want them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

use crate::sys;

/// What a socket is to be.
#[derive(Clone, Debug, Default)]
pub struct SocketOptions {
    /// Bytes that the kernel keeps for it; 0 leaves that to the kernel. What is asked for beyond the
    /// system's limit (`net.core.rmem_max`) is granted to a privileged process only; see
    /// [`granted_receive_buffer`]. A datagram of 172 bytes counts as some 832.
    pub receive_buffer: usize,
    /// The same for what is sent.
    pub send_buffer: usize,
    /// Whether other sockets may be bound to the same port, by this user: datagrams are shared
    /// among them.
    pub reuse_port: bool,
    /// The mark for routers, 0 to 63: 46 is "expedited forwarding", 34 what AES67 wants for media.
    pub dscp: u8,
    /// How many routers a multicast datagram may pass; 0 is the system's, which is 1.
    pub multicast_hops: u8,
    /// Whether this machine hears its own multicast.
    pub multicast_loop: bool,
    /// The network card for multicast, by its number; 0 leaves it to the routes.
    pub multicast_interface: u32,
    /// Groups to join.
    pub groups: Vec<IpAddr>,
}

/// Opens a socket on `address`; port 0 takes a free one.
///
/// # Errors
/// When the address cannot be had, or the system refuses an option. The buffers and the mark are
/// wishes: who gets less is not refused.
pub fn bind_socket(address: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Several programs of one machine may listen to the same group.
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

/// How many bytes the kernel keeps for what comes to `socket`, as it counts them.
///
/// # Errors
/// When the system does not say.
pub fn granted_receive_buffer(socket: &UdpSocket) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(socket)?)
}

/// What every socket needs that a context serves.
pub(super) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    sys::stamp_arrivals(socket.as_fd())?;
    sys::report_losses(socket.as_fd())
}

fn set_buffers(socket: &UdpSocket, options: &SocketOptions) {
    if options.receive_buffer > 0
        && sockopt::set_socket_recv_buffer_size_force(socket, options.receive_buffer).is_err()
    {
        // The kernel cuts it to what may be had.
        let _ = sockopt::set_socket_recv_buffer_size(socket, options.receive_buffer);
    }
    if options.send_buffer > 0
        && sockopt::set_socket_send_buffer_size_force(socket, options.send_buffer).is_err()
    {
        let _ = sockopt::set_socket_send_buffer_size(socket, options.send_buffer);
    }
}

/// A network that does not know marks carries the sound as well.
fn set_mark(socket: &UdpSocket, address: SocketAddr, dscp: u8) {
    let mark = dscp << 2;
    if mark == 0 {
        return;
    }
    if address.is_ipv6() {
        let _ = sockopt::set_ipv6_tclass(socket, mark.into());
    }
    // Also for those addresses of IPv4 that a socket of IPv6 speaks to.
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

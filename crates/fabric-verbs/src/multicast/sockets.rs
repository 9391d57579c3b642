//! Membership of an IP group: a socket that joined it.

use fabric::FabricError;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

/// A socket that is a member of `group` on the network interface `interface`, as long as it is open.
pub(super) fn join(group: IpAddr, interface: u32) -> Result<OwnedFd, FabricError> {
    let refused = |error: rustix::io::Errno| super::not_joined(error.to_string());
    let family = if group.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::DGRAM, None).map_err(refused)?;
    match group {
        IpAddr::V4(group) => {
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &any, interface).map_err(refused)?;
        }
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&socket, &group, interface).map_err(refused)?,
    }
    Ok(socket)
}

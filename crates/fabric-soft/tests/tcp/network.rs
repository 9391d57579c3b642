//! Networks to test on: the loopback, and two namespaces joined by a pair of virtual cables.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Two hosts.
pub struct Network {
    /// Names of the namespaces, removed with it; `None`: both are this one.
    namespaces: Option<[String; 2]>,
    addresses: [Vec<IpAddr>; 2],
}

impl Network {
    /// Both hosts are this one.
    pub fn loopback() -> Self {
        let addresses = [(); 2].map(|()| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        Self { namespaces: None, addresses }
    }

    /// Two network namespaces with a cable between them; why not, where that is not allowed.
    pub fn joined_by_veth() -> Result<Self, String> {
        let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
        let unique: String = unique.chars().filter(char::is_ascii_digit).collect();
        let names = ["a", "b"].map(|side| format!("frv{unique}{side}"));
        let four = [1, 2].map(|host| Ipv4Addr::new(10, 77, 0, host));
        let six = [1, 2].map(|host| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host));
        // From here on what was made is removed again.
        let network = Self {
            namespaces: Some(names.clone()),
            addresses: [0, 1].map(|side| vec![IpAddr::V4(four[side]), IpAddr::V6(six[side])]),
        };
        let [a, b] = &names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&["-n", a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", b])?;
        for side in 0..2 {
            let name = &names[side];
            ip(&["-n", name, "address", "add", &format!("{}/24", four[side]), "dev", "cable"])?;
            ip(&["-n", name, "address", "add", &format!("{}/64", six[side]), "dev", "cable", "nodad"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "cable", "up"])?;
        }
        Ok(network)
    }

    /// The calling thread is on this host from now on.
    pub fn enter(&self, side: usize) {
        let Some(names) = &self.namespaces else { return };
        let namespace = File::open(format!("/run/netns/{}", names[side])).expect("it was made");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("it is ours");
    }

    /// Where a host listens.
    pub fn listen(&self, side: usize) -> Vec<SocketAddr> {
        self.addresses[side].iter().map(|address| SocketAddr::new(*address, 0)).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.namespaces.iter().flatten() {
            // What was not made cannot be removed.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|why| format!("ip cannot be run: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

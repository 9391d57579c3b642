//! The name service: host names of the system, numbered where there are several addresses.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::address::NetAddress;
use crate::status::Error;

/// The name service of a NIC.
#[derive(Debug, Default)]
pub struct NameService {
    is_started: AtomicBool,
}

impl NameService {
    /// Starts it.
    pub fn start(&self) {
        self.is_started.store(true, Release);
    }

    /// Ends it.
    pub fn end(&self) {
        self.is_started.store(false, Release);
    }

    /// The address number `index` of a host, without a discriminator. Numbers first, then names that the system knows;
    /// this host's own name means the address at which it is found by itself.
    ///
    /// # Errors
    /// [`Error::NameService`] if the service was not started, or does not know so many addresses.
    pub fn host_by_name(&self, name: &str, index: usize) -> Result<NetAddress, Error> {
        const CALL: &str = "VipNSGetHostByName";
        self.check(CALL)?;
        let unknown = Error::NameService { call: CALL, what: "there is no such host, or it has fewer addresses" };
        let mut all: Vec<IpAddr> = Vec::new();
        if name == own_name() || name == "localhost" {
            all.push(NetAddress::local_host());
        }
        all.extend((name, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip()));
        let mut seen = Vec::new();
        all.retain(|address| {
            let fresh = !seen.contains(address);
            seen.push(*address);
            fresh
        });
        all.get(index).and_then(|host| NetAddress::new(*host, &[])).ok_or(unknown)
    }

    /// The name of a host: this host's own if the address is where it is found by itself, else the address as text.
    ///
    /// # Errors
    /// [`Error::NameService`] if the service was not started.
    pub fn host_by_address(&self, address: &NetAddress) -> Result<String, Error> {
        self.check("VipNSGetHostByAddr")?;
        let is_own = address.host().is_loopback();
        Ok(if is_own { own_name() } else { address.host().to_string() })
    }

    fn check(&self, call: &'static str) -> Result<(), Error> {
        match self.is_started.load(Acquire) {
            true => Ok(()),
            false => Err(Error::NameService { call, what: "the name service was not started" }),
        }
    }
}

fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_while_it_runs() {
        let names = NameService::default();
        assert!(matches!(names.host_by_name("localhost", 0), Err(Error::NameService { .. })));
        names.start();
        for name in ["localhost", &own_name(), "127.0.0.1"] {
            let address = names.host_by_name(name, 0).unwrap();
            assert_eq!((address.host(), address.discriminator()), (NetAddress::local_host(), &[][..]));
            assert_eq!(names.host_by_address(&address), Ok(own_name()));
        }
        assert_eq!(
            names.host_by_name("10.1.2.3", 0).and_then(|host| names.host_by_address(&host)),
            Ok("10.1.2.3".into())
        );
        assert!(names.host_by_name("127.0.0.1", 1).is_err());
        names.end();
        assert!(names.host_by_address(&NetAddress::new(NetAddress::local_host(), &[]).unwrap()).is_err());
    }
}

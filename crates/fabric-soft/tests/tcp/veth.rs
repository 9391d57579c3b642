//! The link between two network namespaces with a cable between them: hosts with several addresses each.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use base::log::{Level, Log};
use fabric::{Context, FabricError};
use fabric_conformance::{Fixture, Other};
use fabric_soft::SoftContext;
use fabric_soft::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Responder, SendOutcome};
use fabric_soft::tcp::{JobSecret, TcpLink, TcpOptions};

use crate::network::Network;

/// A link whose sockets are opened on one of the hosts, whoever calls it.
struct OnHost {
    link: TcpLink,
    network: Arc<Network>,
    host: usize,
}

impl OnHost {
    fn new(network: &Arc<Network>, host: usize) -> Result<Self, String> {
        network.enter(host);
        let log = Log::new(Level::Error, None);
        let options = TcpOptions::new(JobSecret::new([5; 32]), network.listen(host), log);
        let link = TcpLink::new(TcpOptions { connections: 2, ..options }).map_err(|error| error.to_string())?;
        Ok(Self { link, network: Arc::clone(network), host })
    }
}

impl Link for OnHost {
    fn properties(&self) -> &LinkProperties {
        self.link.properties()
    }

    fn address(&self) -> Vec<u8> {
        self.link.address()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        self.link.resolve(address)
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        self.link.send(to, header, payload)
    }

    fn flush(&mut self) {
        self.link.flush();
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        // Sockets are opened here and nowhere else.
        self.network.enter(self.host);
        self.link.progress(responder);
    }

    fn now(&self) -> Duration {
        self.link.now()
    }

    fn recall(&mut self, address: u64, len_bytes: u64) {
        self.link.recall(address, len_bytes);
    }

    fn deadline(&self) -> Option<Duration> {
        self.link.deadline()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn prepare_sleep(&mut self) -> Result<(), FabricError> {
        self.link.prepare_sleep()
    }

    fn woken(&mut self) {
        self.link.woken();
    }
}

struct Joined(Arc<Network>);

impl Fixture for Joined {
    fn name(&self) -> &'static str {
        "tcp between namespaces"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        let open =
            |host| -> Result<Box<dyn Context>, String> { Ok(Box::new(SoftContext::new(OnHost::new(&self.0, host)?))) };
        Ok((open(0)?, open(1)?.into()))
    }
}

#[test]
fn every_rule_holds_between_namespaces() {
    let network = match Network::joined_by_veth() {
        Ok(network) => Arc::new(network),
        Err(why) => return println!("skipped: no network namespaces here: {why}"),
    };
    let report = fabric_conformance::run(&mut Joined(network), |_| true);
    println!("{report}");
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, ["a_multicast_reaches_who_joined"], "everything but multicast");
}

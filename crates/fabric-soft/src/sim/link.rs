//! The network shared by its links, and the link of one adapter.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fabric::{DeviceKind, FabricError, Translation, WriteOrder};

use super::network::{Channel, Network, Ready, SimCounts};
use super::plan::SimPlan;
use crate::copying;
use crate::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Responder, SendOutcome};

/// Adapters of a network, at most.
const NODES_MAX: u32 = 1 << 16;
/// Before the seed and the number in an address.
const MAGIC: [u8; 4] = *b"sim1";

/// A simulated network.
#[derive(Clone)]
pub struct SimNetwork {
    shared: Arc<Shared>,
}

struct Shared(Mutex<Network>);

impl Drop for Shared {
    fn drop(&mut self) {
        // A test that fails can be repeated.
        if std::thread::panicking() {
            let network = lock(&self.0);
            eprintln!("simulated network at {} ns: {:?}", network.now_ns, network.plan);
        }
    }
}

impl SimNetwork {
    /// A network as `plan` says, at time 0.
    pub fn new(plan: SimPlan) -> Self {
        Self { shared: Arc::new(Shared(Mutex::new(Network::new(plan)))) }
    }

    /// A new adapter's link; they are numbered from 0.
    ///
    /// # Errors
    /// [`FabricError::Exhausted`].
    pub fn link(&self) -> Result<SimLink, FabricError> {
        let mut network = lock(&self.shared.0);
        if network.node_count() >= NODES_MAX {
            return Err(FabricError::Exhausted { object: "adapters of a simulated network", max: NODES_MAX });
        }
        let node = network.add_node();
        let plan = &network.plan;
        let properties = LinkProperties {
            kind: DeviceKind::Sim,
            description: format!(
                "simulated network inside one process; L {} ns, o {} ns, g {} ns, G {} ps/B; seed {}",
                plan.cost.latency_ns, plan.cost.overhead_ns, plan.cost.gap_ns, plan.cost.gap_per_byte_ps, plan.seed
            ),
            message_max_bytes: 1 << 30,
            datagram_max_bytes: 4096,
            asynchronous: Err("work is done while this process polls".into()),
            single_copy: Err("payload is copied into a simulated packet".into()),
            multicast: true,
            mapped_memory: false,
            answers_ride: false,
            write_order: WriteOrder::ByWord,
            writes_wake: false,
            peer_bytes: 2 * size_of::<Channel>() as u64,
        };
        let seed = plan.seed;
        Ok(SimLink { shared: Arc::clone(&self.shared), node, seed, properties })
    }

    /// The time that has passed in it.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(lock(&self.shared.0).now_ns)
    }

    /// What took place so far.
    pub fn counts(&self) -> SimCounts {
        lock(&self.shared.0).counts
    }

    /// Goes on to the next event and returns the adapters that find something when they are polled next, by number;
    /// none if the event was the network's own. `None` if nothing is under way. For
    /// [`SimClock::Driven`](super::SimClock::Driven).
    pub fn step(&self) -> Option<Vec<u32>> {
        lock(&self.shared.0).step()
    }

    /// Lets `time` pass.
    pub fn pass(&self, time: Duration) {
        lock(&self.shared.0).pass(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl fmt::Debug for SimNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = lock(&self.shared.0);
        f.debug_struct("SimNetwork").field("now_ns", &network.now_ns).field("plan", &network.plan).finish()
    }
}

/// One adapter's end. Dropping it is death: peers that exchanged packets with it lose it when their retries are spent.
pub struct SimLink {
    shared: Arc<Shared>,
    node: u32,
    seed: u64,
    properties: LinkProperties,
}

impl Drop for SimLink {
    fn drop(&mut self) {
        lock(&self.shared.0).die(self.node);
    }
}

impl Link for SimLink {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        [&MAGIC[..], &self.seed.to_le_bytes(), &self.node.to_le_bytes()].concat()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        let ours = [&MAGIC[..], &self.seed.to_le_bytes()].concat();
        let node = address.strip_prefix(&ours[..]).and_then(|rest| rest.try_into().ok()).map(u32::from_le_bytes);
        let node = node.ok_or(FabricError::BadEndpoint("not a place in this simulated network"))?;
        let count = lock(&self.shared.0).node_count();
        if node < count { Ok(LinkPeer(node)) } else { Err(FabricError::NoSuchPeer(node)) }
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        lock(&self.shared.0).send(self.node, to.0, header, || copying::gather(payload.ranges))
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        let ready = lock(&self.shared.0).poll(self.node);
        for item in ready {
            match item {
                Ready::Lost(peer) => responder.lost(LinkPeer(peer)),
                Ready::Broken(peer) => responder.broken(LinkPeer(peer)),
                Ready::Packet { from, parcel } => {
                    let placement = responder.begin(LinkPeer(from), &parcel.header, parcel.payload.len() as u64);
                    copying::scatter(&parcel.payload, &placement.ranges);
                    responder.finish(LinkPeer(from));
                }
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(lock(&self.shared.0).now_ns)
    }

    fn spend_on_registering(&mut self, deregisters: bool) {
        let mut network = lock(&self.shared.0);
        let SimPlan { registering_ns, deregistering_ns, .. } = network.plan;
        let spent_ns = if deregisters { deregistering_ns } else { registering_ns };
        if spent_ns > 0 {
            network.pass(spent_ns);
        }
    }

    fn translation(&self) -> Translation {
        if lock(&self.shared.0).plan.checks_keys { Translation::Checked } else { Translation::Unchecked }
    }

    fn recall(&mut self, _address: u64, _len_bytes: u64) {
        // Payload is copied on its way in and placed at once.
    }

    fn everyone(&mut self) -> Option<Vec<LinkPeer>> {
        let network = lock(&self.shared.0);
        let others = (0..network.node_count()).filter(|node| *node != self.node && network.is_alive(*node));
        Some(others.map(LinkPeer).collect())
    }
}

/// A test that failed in another thread has said so already; the network is whole all the same.
fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The life of a queue pair: transitions, and the way to its peer.

use crate::address::Address;
use crate::choice::{LinkLayer, PortOffer};
use crate::context::{PairEntry, VerbsContext};
use crate::ffi::numbers::{QPS_ERR, QPS_INIT, QPS_RESET, QPS_RTR, QPS_RTS, QPS_SQD, qp_attr};
use crate::ffi::{IbvAhAttr, IbvGidAligned, IbvGlobalRoute, IbvQpAttr};
use fabric::{
    DeviceKind, Endpoint, FabricError, QueuePair, QueuePairState, ReceiverNotReadyRetry, Transition, Transport,
};
use std::ffi::c_int;
use std::time::Duration;

/// Routers that a packet may pass.
const HOP_LIMIT: u8 = 64;

/// What a connection remembers of its peer.
#[derive(Clone, Copy, Default)]
struct PeerEnd {
    /// Reads and atomics under way at once that both sides allow.
    reads_in_flight: u8,
    memory_queue: u32,
}

impl VerbsContext {
    /// The state, as the adapter has it.
    pub(crate) fn state_of(&self, entry: &PairEntry) -> Result<QueuePairState, FabricError> {
        if entry.failed {
            return Ok(QueuePairState::Error);
        }
        if entry.substitute.is_some() {
            return Ok(entry.state);
        }
        Ok(match entry.pair.state()? {
            QPS_RESET => QueuePairState::Reset,
            QPS_INIT => QueuePairState::Init,
            QPS_RTR => QueuePairState::ReadyToReceive,
            QPS_RTS => QueuePairState::ReadyToSend,
            QPS_SQD => QueuePairState::SendQueueDrained,
            // A send queue in error is one for us, and so is what we do not know.
            _ => QueuePairState::Error,
        })
    }

    /// Reads and atomics that a queue pair of ours answers at once.
    pub(crate) fn reads_in_flight_max(&self) -> u8 {
        u8::try_from(self.capabilities.limits.reads_in_flight_max).unwrap_or(u8::MAX)
    }

    pub(crate) fn modify_pair(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError> {
        let entry = self.pair(qp)?;
        if entry.substitute.is_some() {
            return self.modify_substitute(qp, transition);
        }
        let state = self.state_of(entry)?;
        if !transition.fits(state) {
            return Err(FabricError::InvalidState { operation: "modify", state });
        }
        let (attributes, mask) = match transition {
            Transition::Reset => (state_only(QPS_RESET), qp_attr::STATE),
            Transition::Error => (state_only(QPS_ERR), qp_attr::STATE),
            Transition::Drain => (state_only(QPS_SQD), qp_attr::STATE),
            Transition::Resume => (state_only(QPS_RTS), qp_attr::STATE),
            Transition::Init { access, qkey } => {
                self.init(entry.attributes.transport.is_connected(), self.remote_access(*access), qkey.0)
            }
            Transition::ReadyToReceive { remote, receiver_not_ready_timer } => {
                let (attributes, mask, peer) =
                    self.ready_to_receive(entry, remote.as_ref(), *receiver_not_ready_timer)?;
                let entry = self.pairs.get_mut(qp.0).expect("looked up above");
                entry.reads_in_flight = peer.reads_in_flight;
                entry.memory_queue = peer.memory_queue;
                (attributes, mask)
            }
            Transition::ReadyToSend { timeout, retry_count, receiver_not_ready_retry } => {
                let ours = (entry.sequence_number, entry.reads_in_flight);
                ready_to_send(entry.attributes.transport, ours, *timeout, *retry_count, *receiver_not_ready_retry)
            }
        };
        if *transition == Transition::Reset {
            let of_pair = self.pair(qp)?.attributes;
            self.save_shared_receives(&of_pair);
        }
        self.pair(qp)?.pair.modify(&attributes, mask)?;
        let entry = self.pairs.get_mut(qp.0).expect("looked up above");
        entry.state = transition.state();
        if *transition == Transition::Reset {
            entry.failed = false;
            self.renew_queues(qp.0);
        }
        Ok(())
    }

    /// Attributes of [`QueuePairState::Init`], and their mask.
    pub(crate) fn init(&self, connected: bool, access: c_int, qkey: u32) -> (IbvQpAttr, c_int) {
        let attributes = IbvQpAttr {
            qp_state: QPS_INIT,
            pkey_index: self.offer.partition_index,
            port_num: self.offer.port,
            qkey,
            // What a peer may write through it, it may write through a local request's key as well.
            qp_access_flags: access as u32,
            ..IbvQpAttr::default()
        };
        let last = if connected { qp_attr::ACCESS_FLAGS } else { qp_attr::QKEY };
        (attributes, qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | last)
    }

    /// Attributes, their mask, and what to remember of the peer.
    fn ready_to_receive(
        &self,
        entry: &PairEntry,
        remote: Option<&Endpoint>,
        receiver_not_ready_timer: Duration,
    ) -> Result<(IbvQpAttr, c_int, PeerEnd), FabricError> {
        let transport = entry.attributes.transport;
        if !transport.is_connected() {
            return match remote {
                None => Ok((state_only(QPS_RTR), qp_attr::STATE, PeerEnd::default())),
                Some(_) => Err(invalid("a datagram queue pair has no peer")),
            };
        }
        let remote = remote.ok_or_else(|| invalid("a connection needs the peer's endpoint"))?;
        let address = Address::parse(remote.address_for(DeviceKind::Verbs)?)?;
        if address.substitute {
            return Err(FabricError::BadEndpoint("the peer's adapter has no XRC of its own and ours has"));
        }
        if transport == Transport::XrcInitiator && address.memory_queue == 0 {
            return Err(FabricError::BadEndpoint("the peer is no XRC target"));
        }
        let attributes = self.receive_attributes(&address, remote.qp().0, receiver_not_ready_timer)?;
        // An XRC initiator answers nothing.
        let mask = match transport {
            Transport::XrcInitiator => receive_mask() & !(qp_attr::MAX_DEST_RD_ATOMIC | qp_attr::MIN_RNR_TIMER),
            _ => receive_mask(),
        };
        let reads_in_flight = self.reads_in_flight_max().min(address.reads_in_flight);
        Ok((attributes, mask, PeerEnd { reads_in_flight, memory_queue: address.memory_queue }))
    }

    /// Attributes that make a reliable connection ready to receive from queue pair `number` at `address`.
    pub(crate) fn receive_attributes(
        &self,
        address: &Address,
        number: u32,
        receiver_not_ready_timer: Duration,
    ) -> Result<IbvQpAttr, FabricError> {
        if number > 0xff_ffff {
            return Err(FabricError::BadEndpoint("a queue pair number of more than 24 bits"));
        }
        Ok(IbvQpAttr {
            qp_state: QPS_RTR,
            ah_attr: self.route_to(address)?,
            path_mtu: self.offer.mtu.min(address.mtu).into(),
            dest_qp_num: number,
            rq_psn: address.sequence_number,
            max_dest_rd_atomic: self.reads_in_flight_max(),
            min_rnr_timer: receiver_not_ready_code(receiver_not_ready_timer),
            ..IbvQpAttr::default()
        })
    }

    /// The path to a port.
    pub(crate) fn route_to(&self, address: &Address) -> Result<IbvAhAttr, FabricError> {
        if address.link_layer != self.offer.link_layer {
            return Err(FabricError::BadEndpoint("the peer's port is on another kind of network"));
        }
        let same_subnet = address.gid[..8] == self.offer.gid.bytes[..8];
        Ok(IbvAhAttr {
            grh: global_route(&self.offer, address.gid),
            dlid: address.lid,
            is_global: u8::from(self.offer.link_layer == LinkLayer::Ethernet || !same_subnet),
            port_num: self.offer.port,
            ..IbvAhAttr::default()
        })
    }
}

/// The part of a way from `port` that passes routers.
pub(crate) fn global_route(port: &PortOffer, destination: [u8; 16]) -> IbvGlobalRoute {
    IbvGlobalRoute {
        dgid: IbvGidAligned(destination),
        sgid_index: u8::try_from(port.gid.index).expect("offers name the first 256 only"),
        hop_limit: HOP_LIMIT,
        ..IbvGlobalRoute::default()
    }
}

/// What goes with [`VerbsContext::receive_attributes`].
pub(crate) fn receive_mask() -> c_int {
    qp_attr::STATE
        | qp_attr::AV
        | qp_attr::PATH_MTU
        | qp_attr::DEST_QPN
        | qp_attr::RQ_PSN
        | qp_attr::MAX_DEST_RD_ATOMIC
        | qp_attr::MIN_RNR_TIMER
}

fn invalid(reason: &'static str) -> FabricError {
    FabricError::InvalidRequest { operation: "modify", reason }
}

fn state_only(qp_state: u32) -> IbvQpAttr {
    IbvQpAttr { qp_state, ..IbvQpAttr::default() }
}

/// Attributes of [`QueuePairState::ReadyToSend`], and their mask; `ours` is the first packet sequence number and the
/// number of reads under way at once.
pub(crate) fn ready_to_send(
    transport: Transport,
    (sequence_number, reads_in_flight): (u32, u8),
    timeout: Duration,
    retry_count: u8,
    receiver_not_ready_retry: ReceiverNotReadyRetry,
) -> (IbvQpAttr, c_int) {
    let attributes = IbvQpAttr {
        qp_state: QPS_RTS,
        sq_psn: sequence_number,
        timeout: timeout_code(timeout),
        retry_cnt: retry_count.min(7),
        rnr_retry: match receiver_not_ready_retry {
            ReceiverNotReadyRetry::Count(count) => count.min(6),
            ReceiverNotReadyRetry::Forever => 7,
        },
        max_rd_atomic: reads_in_flight,
        ..IbvQpAttr::default()
    };
    let mask = qp_attr::STATE | qp_attr::SQ_PSN;
    let initiates = qp_attr::RETRY_CNT | qp_attr::RNR_RETRY | qp_attr::MAX_QP_RD_ATOMIC;
    match transport {
        Transport::UnreliableDatagram => (attributes, mask),
        Transport::XrcTarget(_) => (attributes, mask | qp_attr::TIMEOUT),
        Transport::ReliableConnection | Transport::XrcInitiator => (attributes, mask | qp_attr::TIMEOUT | initiates),
    }
}

/// The smallest code that waits at least so long: 4.096 µs · 2^code. 0 would mean "for ever".
fn timeout_code(timeout: Duration) -> u8 {
    (1..31).find(|code| Duration::from_nanos(4096 << code) >= timeout).unwrap_or(31)
}

/// The specification's table of times to wait for a receiver, in units of 10 µs, by code from 1 on; code 0 is the longest.
const RECEIVER_NOT_READY_TIMES: [u32; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768, 49152,
];

/// The code of the shortest time of the table that is at least so long.
pub(crate) fn receiver_not_ready_code(time: Duration) -> u8 {
    let longer = |tens: &u32| Duration::from_micros(u64::from(*tens) * 10) >= time;
    RECEIVER_NOT_READY_TIMES.iter().position(longer).map_or(0, |place| place as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_the_smallest_code_that_is_long_enough() {
        for (micros, code) in [(0, 1), (8, 1), (9, 2), (67_000, 14), (67_109, 15), (4_000_000, 20)] {
            assert_eq!(timeout_code(Duration::from_micros(micros)), code, "{micros} µs");
        }
        assert_eq!(timeout_code(Duration::MAX), 31);
        for (micros, code) in [(0, 1), (10, 1), (11, 2), (640, 12), (641, 13), (491_520, 31), (491_521, 0)] {
            assert_eq!(receiver_not_ready_code(Duration::from_micros(micros)), code, "{micros} µs");
        }
    }
}

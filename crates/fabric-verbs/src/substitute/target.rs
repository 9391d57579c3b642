//! The receiving half of a substitute: makes lanes when it is asked for them.

use super::control::{LaneEnd, Message};
use super::{LANES_MAX, Role};
use crate::address::{Address, sequence_number};
use crate::connect::receive_mask;
use crate::context::VerbsContext;
use crate::ffi::IbvQpCap;
use crate::ffi::numbers::QPT_RC;
use crate::objects::{Pair, PairParts};
use base::SlabKey;
use fabric::{CompletionQueue, FabricError, XrcDomain};
use std::sync::Arc;

/// Lanes of one target.
pub(crate) struct Target {
    domain: XrcDomain,
    pub(crate) lanes: Vec<TargetLane>,
}

/// One of them.
pub(crate) struct TargetLane {
    pair: Pair,
    /// The shared receive queue, and where it completes.
    pub(crate) queue: Option<(SlabKey, CompletionQueue)>,
}

impl Target {
    pub(crate) fn new(domain: XrcDomain) -> Self {
        Self { domain, lanes: Vec::new() }
    }
}

impl TargetLane {
    /// Its number on the wire.
    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }
}

impl VerbsContext {
    /// Makes a lane and tells the initiator, or that there is no such queue.
    pub(crate) fn open_lane(
        &mut self,
        key: SlabKey,
        queue: Option<u32>,
        end: LaneEnd,
        close: Option<u32>,
    ) -> Result<(), FabricError> {
        if let Some(number) = close {
            self.close_target_lanes(key, |lane| lane.number() == number);
        }
        let Some(target) = self.target(key) else { return Ok(()) };
        if target.lanes.len() > LANES_MAX {
            return Err(FabricError::Exhausted { object: "lanes", max: LANES_MAX as u32 });
        }
        let domain = target.domain;
        let shared = queue.map(|number| {
            let numbered = |xrc: &crate::context::XrcPlace| xrc.number == number && xrc.domain == domain;
            let found = self.shared.iter().find(|(_, entry)| entry.xrc.as_ref().is_some_and(numbered));
            found.map(|(key, _)| key)
        });
        let message = match shared {
            Some(None) => Message::Refused,
            Some(Some(shared)) => Message::Opened(self.make_target_lane(key, Some(shared), end)?),
            None => Message::Opened(self.make_target_lane(key, None, end)?),
        };
        self.tell(key, message)
    }

    fn make_target_lane(
        &mut self,
        key: SlabKey,
        shared: Option<SlabKey>,
        end: LaneEnd,
    ) -> Result<LaneEnd, FabricError> {
        let entry = self.pairs.get(key).ok_or(FabricError::NoSuch("queue pair"))?;
        let service = self.service.as_ref().ok_or(FabricError::NoSuch("service"))?;
        let substitute = entry.substitute.as_ref().ok_or(FabricError::NoSuch("substitute"))?;
        let peer = substitute.peer.ok_or(FabricError::NoSuch("peer"))?;
        let (mut queue, mut receive, mut from) = (None, Arc::clone(&service.completions), None);
        if let Some(shared) = shared.and_then(|shared| Some((shared, self.shared.get(shared)?))) {
            let (shared, entry) = shared;
            let xrc = entry.xrc.as_ref().ok_or(FabricError::NoSuch("shared receive queue"))?;
            (queue, receive) = (Some((shared, xrc.completions)), Arc::clone(&xrc.held));
            from = Some(Arc::clone(&entry.queue));
        }
        let parts = PairParts {
            domain: Arc::clone(self.domain(entry.attributes.protection_domain)?),
            send: Arc::clone(&service.completions),
            receive,
            shared: from,
            extended: None,
        };
        let cap = IbvQpCap { max_send_wr: 1, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline_data: 0 };
        let pair = Pair::new(parts, QPT_RC, cap)?;
        self.init_lane(&pair, substitute.access)?;
        let address = Address { sequence_number: end.sequence_number, ..peer };
        let attributes = self.receive_attributes(&address, end.number, substitute.receiver_not_ready_timer)?;
        pair.modify(&attributes, receive_mask())?;
        let (number, stands_for) = (pair.number(), entry.pair.number());
        if let Some(target) = self.target_mut(key) {
            target.lanes.push(TargetLane { pair, queue });
        }
        if let Some(service) = &mut self.service {
            service.lane_numbers.insert(number, stands_for);
        }
        // It answers and never sends first, so where its own numbers start is all the same to it.
        Ok(LaneEnd { number, sequence_number: sequence_number() })
    }

    /// Closes lanes of a target; what they received is saved first.
    pub(crate) fn close_target_lanes(&mut self, key: SlabKey, gone: impl Fn(&TargetLane) -> bool) {
        let Some(target) = self.target(key) else { return };
        let queues: Vec<CompletionQueue> =
            target.lanes.iter().filter(|lane| gone(lane)).filter_map(|lane| Some(lane.queue?.1)).collect();
        queues.into_iter().for_each(|queue| self.save_completions(queue));
        let Some(target) = self.target_mut(key) else { return };
        let closed: Vec<TargetLane> = target.lanes.extract_if(.., |lane| gone(lane)).collect();
        if let Some(service) = &mut self.service {
            closed.iter().for_each(|lane| {
                service.lane_numbers.remove(&lane.number());
            });
        }
    }

    /// Closes all lanes to a shared receive queue that goes.
    pub(crate) fn close_lanes_to(&mut self, shared: SlabKey) {
        let users = self.service.as_ref().map(|service| service.users.clone()).unwrap_or_default();
        for key in users {
            self.close_target_lanes(key, |lane| lane.queue.is_some_and(|(queue, _)| queue == shared));
        }
    }

    fn target(&self, key: SlabKey) -> Option<&Target> {
        match &self.pairs.get(key)?.substitute.as_ref()?.role {
            Role::Target(target) => Some(target),
            Role::Initiator(_) => None,
        }
    }

    fn target_mut(&mut self, key: SlabKey) -> Option<&mut Target> {
        match &mut self.pairs.get_mut(key)?.substitute.as_mut()?.role {
            Role::Target(target) => Some(target),
            Role::Initiator(_) => None,
        }
    }
}

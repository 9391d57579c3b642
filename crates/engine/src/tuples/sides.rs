//! Which device holds the queues of whose tuples: one of its own for peers that share memory, the port's for all others.
//! Each has its own, and no message ever changes sides.

use fabric::{Context, FabricError};

use super::{TupleSetup, Tuples};
use crate::EngineError;
use crate::core::{Core, Engine};
use crate::port::Port;
use crate::request::PeerId;

/// A device, as long as the engine has it.
pub(crate) type TupleDevice = dyn Context + 'static;

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Peers that share memory with this process.
    Near,
    /// Peers that are reached through the port.
    Far,
}

impl Side {
    #[inline]
    pub(super) fn of(port: Option<&Port>, peer: PeerId) -> Self {
        if port.is_some_and(|port| port.reaches(peer)) { Self::Far } else { Self::Near }
    }
}

/// The tuple queues of a process.
#[derive(Default)]
pub(crate) struct TupleQueues {
    near: Option<(Box<Tuples>, Box<dyn Context>)>,
    far: Option<Box<Tuples>>,
}

impl TupleQueues {
    /// True if there are any, for whatever peers.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.near.is_some() || self.far.is_some()
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Tuples> {
        self.near.iter().map(|(tuples, _)| &**tuples).chain(self.far.as_deref())
    }

    #[inline]
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut Tuples> {
        self.near.iter_mut().map(|(tuples, _)| &mut **tuples).chain(self.far.as_deref_mut())
    }

    pub(super) fn on(&mut self, side: Side) -> Option<&mut Tuples> {
        match side {
            Side::Near => self.near.as_mut().map(|(tuples, _)| &mut **tuples),
            Side::Far => self.far.as_deref_mut(),
        }
    }

    /// Those of messages to and from `peer`.
    pub(super) fn of(&mut self, port: Option<&Port>, peer: PeerId) -> Option<&mut Tuples> {
        self.on(Side::of(port, peer))
    }

    /// Somebody is about to sleep, and the port's device has been told so.
    #[cold]
    pub(crate) fn arm(&mut self, port: &mut Port) {
        // Who moves data through shared memory rings the other's bell.
        if let Some(far) = &self.far {
            far.arm(port.context());
        }
    }
}

/// The tuples of messages to and from `peer`, and the device that holds their queues.
pub(super) fn at_work<'a>(
    queues: &'a mut TupleQueues,
    port: &'a mut Option<Box<Port>>,
    peer: PeerId,
) -> Option<(&'a mut Tuples, &'a mut TupleDevice)> {
    let side = Side::of(port.as_deref(), peer);
    at_work_on(queues, port, side)
}

/// The tuples of one side, and the device that holds their queues.
pub(super) fn at_work_on<'a>(
    queues: &'a mut TupleQueues,
    port: &'a mut Option<Box<Port>>,
    side: Side,
) -> Option<(&'a mut Tuples, &'a mut TupleDevice)> {
    match side {
        Side::Near => queues.near.as_mut().map(|(tuples, device)| (&mut **tuples, device.as_mut())),
        Side::Far => Some((queues.far.as_deref_mut()?, port.as_mut()?.context())),
    }
}

impl Core {
    /// The tuples of messages to and from `peer`, if they have queues.
    pub(super) fn tuples_of(&mut self, peer: PeerId) -> Option<&mut Tuples> {
        self.tuples.of(self.port.as_deref(), peer)
    }
}

impl Engine {
    /// From now on messages to peers that share memory with this process go to queues of their tuples on `device`, which
    /// reaches those peers, once their receivers have granted some. All of these peers do so, before the first message.
    ///
    /// # Errors
    /// When the device has no queues whose sends wait independently of each other.
    pub fn use_tuple_queues(&mut self, mut device: Box<dyn Context>, setup: TupleSetup) -> Result<(), EngineError> {
        let tuples = Box::new(Tuples::new(device.as_mut(), setup)?);
        self.core.tuples.near = Some((tuples, device));
        Ok(())
    }

    /// As [`Engine::use_tuple_queues`], for messages to peers that are reached through the port, on its device.
    ///
    /// # Errors
    /// When the device has no queues whose sends wait independently of each other, or there is none.
    pub fn use_tuple_queues_of_port(&mut self, setup: TupleSetup) -> Result<(), EngineError> {
        let nowhere = FabricError::Unsupported { operation: "tuple queues", reason: "no device has the queues" };
        let port = self.core.port.as_mut().ok_or(nowhere)?;
        let tuples = Tuples::new(port.context(), setup)?;
        let descriptor = tuples.descriptor(port.context())?;
        port.wakeup().add(descriptor);
        self.core.tuples.far = Some(Box::new(tuples));
        Ok(())
    }
}

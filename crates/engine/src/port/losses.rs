//! Peers that cannot be reached any more.
//!
//! A connection that has failed is not made anew: nobody knows which of the messages under way had arrived, and a library
//! that sent them again would have to keep every message until the peer's own library has it. So a queue pair that goes to
//! the error state, or whose retries are spent, is the loss of its peer, here and there: what was to be done with it fails,
//! for good, and everything else goes on. One side may see nothing of the failure. It is told by a *parting*, a hello that
//! says so, which is said again until it is answered, a few times:
//!
//! ```text
//!   A: queue pair fails                      B: waits for a message of A
//!      ── failed ──────────────────────────▶    A is lost here, too
//!      ◀───────────── failed, has yours ────
//! ```

use std::time::Duration;

use fabric::{AsynchronousEvent, Transition, WcStatus};
use protocol::verbs_channel::{Hello, RESERVED};

use super::{Connection, Port, Stage};
use crate::request::PeerId;

/// How long the engine does not hear that a peer is lost: a process that has ended is noticed sooner by whoever started
/// the job, who knows why and ends the others.
const LOSS_PAUSE: Duration = Duration::from_secs(2);

/// A peer that cannot be reached any more.
pub(crate) struct Loss {
    /// When the engine is told.
    pub(super) due: Duration,
    pub(crate) peer: PeerId,
    pub(crate) why: String,
    /// It had said that it would end.
    pub(crate) left: bool,
}

/// A peer that is told that the connection to it has failed.
pub(super) struct Parting {
    peer: PeerId,
    /// When it is told again, how much later again, and how often.
    pub(super) again: Duration,
    pause: Duration,
    left: u32,
}

/// How often a failure is told, and the first pause; later ones are twice as long each. A peer that is gone is not told for
/// long.
const PARTINGS: u32 = 7;
const PARTING_PAUSE: Duration = Duration::from_millis(20);

impl Loss {
    /// The engine is told already.
    pub(crate) fn now(peer: PeerId, why: String) -> Self {
        Self { due: Duration::ZERO, peer, why, left: false }
    }
}

impl Port {
    /// What happened to queue pairs by themselves.
    #[inline]
    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.context.next_event() {
            match event {
                AsynchronousEvent::QueuePairError(qp) => {
                    let its = |one: &Option<Box<Connection>>| one.as_ref().is_some_and(|one| one.qp == Some(qp));
                    if let Some(peer) = self.connections.iter().position(its) {
                        self.lose(peer as PeerId, "the connection failed".to_owned());
                    }
                }
                AsynchronousEvent::CompletionQueueOverrun(_) => self.lose_all("the completion queue overran"),
                AsynchronousEvent::DeviceFatal => self.lose_all("the device failed"),
                AsynchronousEvent::ReceiveLimitReached(_) | AsynchronousEvent::GroupLost(_) => {}
            }
        }
    }

    /// A peer whose loss is to be told of now.
    #[inline]
    pub(crate) fn next_loss(&mut self) -> Option<Loss> {
        if self.losses.is_empty() { None } else { self.due_loss() }
    }

    #[cold]
    fn due_loss(&mut self) -> Option<Loss> {
        let now = (self.clock)();
        let at = self.losses.iter().position(|loss| loss.due <= now)?;
        let loss = self.losses.swap_remove(at);
        if let Some(Some(connection)) = self.connections.get_mut(loss.peer as usize)
            && let Stage::Lost { told, .. } = &mut connection.stage
        {
            *told = true;
        }
        self.forget_outward(loss.peer);
        Some(loss)
    }

    /// Notes that nothing goes to a peer any more, and tells it; the first reason counts.
    pub(super) fn lose(&mut self, peer: PeerId, why: String) {
        let was_connected =
            matches!(self.connections.get(peer as usize), Some(Some(one)) if one.connected && !one.leaves);
        if self.note_loss(peer, why) && was_connected && !self.has_left {
            let again = (self.clock)();
            self.partings.push(Parting { peer, again, pause: PARTING_PAUSE, left: PARTINGS });
        }
    }

    /// As [`Port::lose`], for what a request ended with.
    #[cold]
    pub(crate) fn lose_by(&mut self, peer: PeerId, status: WcStatus) {
        self.lose(peer, status_text(status).to_owned());
    }

    /// A peer says that its end of the connection has failed.
    pub(super) fn hear_of_failure(&mut self, hello: &Hello) {
        let peer = hello.from;
        if matches!(self.connections.get(peer as usize), None | Some(None)) {
            // There was none here: it may be made, should it say hello again.
            return;
        }
        self.partings.retain(|parting| parting.peer != peer);
        self.note_loss(peer, "its end of the connection failed".to_owned());
        if !hello.has_yours {
            self.greeter.say_failed(self.context.as_mut(), peer, true);
        }
    }

    /// Tells those again that did not answer.
    pub(super) fn repeat_partings(&mut self) {
        let now = (self.clock)();
        for parting in &mut self.partings {
            if parting.again <= now {
                self.greeter.say_failed(self.context.as_mut(), parting.peer, false);
                (parting.again, parting.left) = (now + parting.pause, parting.left - 1);
                parting.pause *= 2;
            }
        }
        self.partings.retain(|parting| parting.left > 0);
    }

    /// Notes that nothing goes to a peer any more; false if that was known.
    fn note_loss(&mut self, peer: PeerId, why: String) -> bool {
        let Some(connection) = self.connections.get_mut(peer as usize) else { return false };
        let connection = connection.get_or_insert_with(Box::default);
        if matches!(connection.stage, Stage::Lost { .. }) {
            return false;
        }
        if let Some(qp) = connection.qp {
            // Nothing arrives any more, and what was posted comes back; it may be in that state already.
            let _ = self.context.modify(qp, &Transition::Error);
            self.pool.retire(connection.credits.granted() + RESERVED);
        }
        connection.stage = Stage::Lost { why: why.clone(), told: false };
        self.greeting.retain(|one| *one != peer);
        let (left, due) = (connection.leaves, (self.clock)() + LOSS_PAUSE);
        self.losses.push(Loss { due, peer, why, left });
        true
    }

    pub(super) fn lose_all(&mut self, why: &str) {
        for peer in (0..self.connections.len() as PeerId).filter(|peer| self.reaches(*peer)).collect::<Vec<_>>() {
            self.lose(peer, why.to_owned());
        }
    }
}

/// What a failed send means, in a few words.
pub(super) fn status_text(status: WcStatus) -> &'static str {
    match status {
        WcStatus::TransportRetryExceeded => "it does not answer any more",
        WcStatus::WorkRequestFlushed => "the connection failed",
        WcStatus::RemoteInvalidRequest => "it refused a message as too long",
        WcStatus::RemoteAccessError => "it refused access to its memory",
        WcStatus::RemoteOperationError => "it failed to carry out a request",
        WcStatus::ReceiverNotReadyRetryExceeded => "it posted no buffers for messages",
        WcStatus::BadResponse => "it answered something that makes no sense",
        _ => "the device failed",
    }
}

//! Peers that cannot be reached any more.

use std::time::Duration;

use fabric::{AsynchronousEvent, WcStatus};

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
                AsynchronousEvent::ReceiveLimitReached(_) => {}
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

    /// Notes that nothing goes to a peer any more; the first reason counts.
    pub(super) fn lose(&mut self, peer: PeerId, why: String) {
        let Some(connection) = self.connections.get_mut(peer as usize) else { return };
        let connection = connection.get_or_insert_with(Box::default);
        if matches!(connection.stage, Stage::Lost { .. }) {
            return;
        }
        connection.stage = Stage::Lost { why: why.clone(), told: false };
        self.greeting.retain(|one| *one != peer);
        let (left, due) = (connection.leaves, (self.clock)() + LOSS_PAUSE);
        self.losses.push(Loss { due, peer, why, left });
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

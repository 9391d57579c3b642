//! The members of a new communicator learn its id. See [`super::context_ids`] for the scheme.

use std::sync::Arc;
use std::task::Poll;

use super::commons::Commons;
use super::context_ids::{CommId, Proposal};
use super::tree::{Tree, TreeRound};
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// One agreement under way, the same on all members of the new group (or of both new groups).
pub(crate) struct Agreement {
    tree: Tree,
    commons: Arc<Commons>,
    stage: Stage,
    /// At the process that leads, what it proposes; elsewhere, what it has claimed.
    held: Option<Proposal>,
}

enum Stage {
    /// The leader's proposal is on its way.
    Proposing(TreeRound),
    /// A recycled id is being confirmed.
    Confirming(TreeRound),
    Settled,
}

impl Agreement {
    /// An agreement among the group of `tree`, whose rank 0 leads, and the one across its bridge.
    pub fn new(tree: Tree, commons: &Arc<Commons>) -> Agreement {
        let mut agreement = Agreement { tree, commons: Arc::clone(commons), stage: Stage::Settled, held: None };
        if !agreement.is_alone() {
            agreement.propose();
        }
        agreement
    }

    /// Begins to tell the others of an id, if this process leads; an empty message says that none is left.
    fn propose(&mut self) {
        let mut message = Vec::new();
        if self.tree.leads() {
            self.held = self.commons.ids.propose().ok();
            message = self.held.map(encode).unwrap_or_default();
        }
        self.stage = Stage::Proposing(TreeRound::spread(self.tree.clone(), message));
    }

    fn is_alone(&self) -> bool {
        self.tree.group.size() == 1 && self.tree.bridge.is_none()
    }

    /// Goes on; gives the id once it is settled for this process.
    ///
    /// # Errors
    /// `NoMem` when the leader has no id left: the members then learn it, too.
    pub fn advance(&mut self, world: &World) -> Poll<Result<CommId>> {
        if self.is_alone() {
            return Poll::Ready(self.commons.ids.propose_private());
        }
        loop {
            match &mut self.stage {
                Stage::Proposing(round) => {
                    // One side of a bridge has a proposal to send, the other nothing.
                    let mut decide = |own: &[u8], other: &[u8]| Ok([own, other].concat());
                    let answer = match round.advance(world, &mut decide) {
                        Poll::Ready(answer) => answer?,
                        Poll::Pending => return Poll::Pending,
                    };
                    let proposal = decode(&answer)?;
                    let is_free = self.tree.leads() || self.commons.ids.claim(proposal.id);
                    if is_free {
                        self.held = Some(proposal);
                    }
                    if !proposal.is_recycled {
                        self.stage = Stage::Settled;
                        return Poll::Ready(self.settle(is_free, proposal.id));
                    }
                    let round = TreeRound::gather(self.tree.clone(), vec![u8::from(is_free)]);
                    self.stage = Stage::Confirming(round);
                }
                Stage::Confirming(round) => {
                    let mut decide = |own: &[u8], other: &[u8]| {
                        let all = own.iter().chain(other).all(|vote| *vote == 1);
                        Ok(vec![u8::from(all)])
                    };
                    let answer = match round.advance(world, &mut decide) {
                        Poll::Ready(answer) => answer?,
                        Poll::Pending => return Poll::Pending,
                    };
                    if answer == [1] {
                        self.stage = Stage::Settled;
                        let held = self.held.ok_or_else(|| inconsistent("an id was confirmed unasked"))?;
                        return Poll::Ready(Ok(held.id));
                    }
                    self.let_go();
                    self.propose();
                }
                Stage::Settled => return Poll::Ready(Err(inconsistent("an agreement was asked twice"))),
            }
        }
    }

    fn settle(&mut self, is_free: bool, id: CommId) -> Result<CommId> {
        if is_free { Ok(id) } else { Err(inconsistent("a fresh context id is in use already")) }
    }

    /// Takes back what this process held of a refused proposal.
    fn let_go(&mut self) {
        if let Some(proposal) = self.held.take() {
            if self.tree.leads() {
                self.commons.ids.withdraw(proposal);
            } else {
                self.commons.ids.release(proposal.id);
            }
        }
    }
}

fn encode(proposal: Proposal) -> Vec<u8> {
    let mut bytes = proposal.id.0.to_le_bytes().to_vec();
    bytes.push(u8::from(proposal.is_recycled));
    bytes
}

fn decode(bytes: &[u8]) -> Result<Proposal> {
    match *bytes {
        [a, b, c, d, recycled] => {
            Ok(Proposal { id: CommId(u32::from_le_bytes([a, b, c, d])), is_recycled: recycled != 0 })
        }
        [] => ErrorClass::NoMem.fail("the first member of the new communicator has no context id left"),
        _ => Err(inconsistent("a proposal has the wrong length")),
    }
}

fn inconsistent(what: &str) -> crate::Error {
    ErrorClass::Intern.error(format!("creating a communicator: {what}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_comes_is_a_proposal_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            match decode(&bytes) {
                Ok(proposal) => prop_assert_eq!(decode(&encode(proposal)).ok(), Some(proposal)),
                Err(_) => prop_assert_ne!(bytes.len(), 5),
            }
        }
    }
}

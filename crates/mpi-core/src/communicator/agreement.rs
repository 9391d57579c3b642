//! The members of a new communicator learn its id. See [`super::context_ids`] for the scheme.

use std::sync::Arc;
use std::task::Poll;

use super::commons::Commons;
use super::context_ids::{CommId, ContextIds, Proposal};
use super::tree::{Tree, TreeRound};
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// One agreement under way, the same on all members of the new group.
pub(crate) struct Agreement {
    tree: Tree,
    commons: Arc<Commons>,
    stage: Stage,
    /// At the leader, what it proposes; elsewhere, what it has claimed.
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
    /// An agreement among the group of `tree`, whose rank 0 leads.
    pub fn new(tree: Tree, commons: &Arc<Commons>) -> Agreement {
        let stage = Stage::Proposing(TreeRound::spread(tree.clone()));
        Agreement { tree, commons: Arc::clone(commons), stage, held: None }
    }

    /// Goes on; gives the id once it is settled for this process.
    ///
    /// # Errors
    /// `NoMem` when the leader has no id left: the members then learn it, too.
    pub fn advance(&mut self, world: &World) -> Poll<Result<CommId>> {
        if self.tree.group.size() == 1 {
            return Poll::Ready(self.commons.ids.propose_private());
        }
        loop {
            match &mut self.stage {
                Stage::Proposing(round) => {
                    let (ids, held) = (&self.commons.ids, &mut self.held);
                    let mut decide = |_: &[u8]| Ok(propose(ids, held));
                    let answer = match round.advance(world, &mut decide) {
                        Poll::Ready(answer) => answer?,
                        Poll::Pending => return Poll::Pending,
                    };
                    let proposal = decode(&answer)?;
                    let is_leader = self.tree.rank == 0;
                    let is_free = is_leader || self.commons.ids.claim(proposal.id);
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
                    let mut decide = |votes: &[u8]| Ok(vec![u8::from(votes.iter().all(|vote| *vote == 1))]);
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
                    self.stage = Stage::Proposing(TreeRound::spread(self.tree.clone()));
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
            if self.tree.rank == 0 {
                self.commons.ids.withdraw(proposal);
            } else {
                self.commons.ids.release(proposal.id);
            }
        }
    }
}

/// The leader's proposal as a message; an empty one says that there is none.
fn propose(ids: &ContextIds, held: &mut Option<Proposal>) -> Vec<u8> {
    *held = ids.propose().ok();
    held.map(encode).unwrap_or_default()
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

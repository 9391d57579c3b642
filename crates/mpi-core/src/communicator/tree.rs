//! Gathering small records up a binomial tree and spreading an answer down it again.
//!
//! What creating communicators needs before there is a communicator: it runs over any group of
//! processes on a borrowed context and tag, is advanced by polling, and learns sizes as it goes.
//!
//! ```text
//!   rank 0 ◄── 1          records travel up, each process appending those of its children,
//!     ▲ ▲                 so that the root has them in order of rank;
//!     │ └─── 2 ◄── 3      the answer travels down the same edges.
//!     └───── 4 ◄── 5 …
//! ```
//!
//! Cost: α log₂ p for each direction.

use std::sync::Arc;
use std::task::Poll;

use datatype::SendBuf;
use engine::{ContextId, Outcome, PeerId, RequestId, SendMode, Source, TagPattern};

use crate::error::{ErrorClass, Result};
use crate::group::Group;
use crate::world::{World, engine_error};

use super::inbox::Inbox;

/// A group seen as a tree, and where its messages go.
#[derive(Clone)]
pub(crate) struct Tree {
    pub group: Arc<Group>,
    /// This process's rank in the group.
    pub rank: u32,
    pub context: ContextId,
    pub tag: i32,
}

impl Tree {
    fn parent(&self) -> Option<PeerId> {
        (self.rank > 0).then(|| self.group.peer(self.rank & (self.rank - 1)))
    }

    fn children(&self) -> Vec<PeerId> {
        child_ranks(self.rank, self.group.size()).map(|rank| self.group.peer(rank)).collect()
    }
}

/// The children of `rank` in a binomial tree of `size`, in ascending order.
fn child_ranks(rank: u32, size: u32) -> impl Iterator<Item = u32> {
    let step_max = if rank == 0 { u32::BITS } else { rank.trailing_zeros() };
    (0..step_max).filter_map(move |step| rank.checked_add(1 << step)).filter(move |child| *child < size)
}

/// One way up, one way down.
pub(crate) struct TreeRound {
    tree: Tree,
    children: Vec<PeerId>,
    /// Records of this subtree so far, then the answer.
    bytes: Vec<u8>,
    stage: Stage,
    inbox: Inbox,
    sends: Vec<RequestId>,
}

enum Stage {
    /// Waiting for the records of child number `.0`.
    Up(usize),
    /// Waiting for the answer.
    Down,
    /// The answer is here and on its way to the children.
    Spreading,
}

impl TreeRound {
    /// Gathers `record` from everybody; the root answers.
    pub fn gather(tree: Tree, record: Vec<u8>) -> TreeRound {
        TreeRound::at(tree, record, Stage::Up(0))
    }

    /// Spreads an answer of the root without asking anybody.
    pub fn spread(tree: Tree) -> TreeRound {
        let children = tree.children().len();
        TreeRound::at(tree, Vec::new(), Stage::Up(children))
    }

    fn at(tree: Tree, bytes: Vec<u8>, stage: Stage) -> TreeRound {
        let children = tree.children();
        TreeRound { tree, children, bytes, stage, inbox: Inbox::default(), sends: Vec::new() }
    }

    /// Goes on; at the root, `decide` turns the records of all ranks into the answer.
    /// Gives the answer once it is here and passed on.
    pub fn advance(
        &mut self,
        world: &World,
        decide: &mut dyn FnMut(&[u8]) -> Result<Vec<u8>>,
    ) -> Poll<Result<Vec<u8>>> {
        loop {
            let step = match self.stage {
                Stage::Up(child) => self.advance_up(world, child, decide),
                Stage::Down => self.advance_down(world),
                Stage::Spreading => return self.advance_spreading(world),
            };
            match step {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn advance_up(
        &mut self,
        world: &World,
        child: usize,
        decide: &mut dyn FnMut(&[u8]) -> Result<Vec<u8>>,
    ) -> Poll<Result<()>> {
        if let Some(peer) = self.children.get(child) {
            return match self.inbox.poll(world, *peer, &self.tree) {
                Poll::Ready(Ok(records)) => {
                    self.bytes.extend_from_slice(&records);
                    self.stage = Stage::Up(child + 1);
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
        }
        let Some(parent) = self.tree.parent() else {
            self.bytes = decide(&self.bytes)?;
            return Poll::Ready(self.start_spreading(world));
        };
        if !self.bytes.is_empty() {
            let records = std::mem::take(&mut self.bytes);
            self.send(world, parent, records)?;
        }
        self.stage = Stage::Down;
        Poll::Ready(Ok(()))
    }

    fn advance_down(&mut self, world: &World) -> Poll<Result<()>> {
        let parent = self.tree.parent().expect("the root decides and does not wait");
        match self.inbox.poll(world, parent, &self.tree) {
            Poll::Ready(Ok(answer)) => {
                self.bytes = answer;
                Poll::Ready(self.start_spreading(world))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn start_spreading(&mut self, world: &World) -> Result<()> {
        self.stage = Stage::Spreading;
        for peer in std::mem::take(&mut self.children) {
            self.send(world, peer, self.bytes.clone())?;
        }
        Ok(())
    }

    fn advance_spreading(&mut self, world: &World) -> Poll<Result<Vec<u8>>> {
        let mut engine = world.engine.borrow_mut();
        while let Some(id) = self.sends.last() {
            let Some(completion) = engine.take(*id) else { return Poll::Pending };
            self.sends.pop();
            if let Outcome::Failed(why) = completion.outcome {
                return Poll::Ready(ErrorClass::Other.fail(format!(
                    "creating a communicator: no message could be sent to world rank {}: {why}",
                    completion.envelope.peer
                )));
            }
        }
        Poll::Ready(Ok(std::mem::take(&mut self.bytes)))
    }

    fn send(&mut self, world: &World, peer: PeerId, bytes: Vec<u8>) -> Result<()> {
        let buf = SendBuf::from_owned(bytes.into_boxed_slice());
        let (context, tag) = (self.tree.context, self.tree.tag);
        let mut engine = world.engine.borrow_mut();
        if !engine.try_send(peer, context, tag, &buf) {
            let id = engine.send(SendMode::Standard, peer, context, tag, buf);
            self.sends.push(id.map_err(engine_error)?);
        }
        Ok(())
    }
}

/// The receive side of a tree's messages: source and tag as the engine wants them.
impl Tree {
    pub(super) fn pattern(&self, peer: PeerId) -> (Source, ContextId, TagPattern) {
        (Source::Peer(peer), self.context, TagPattern::Exact(self.tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_but_the_root_has_one_parent_and_subtrees_are_contiguous() {
        fn records(rank: u32, size: u32, into: &mut Vec<u32>) {
            into.push(rank);
            for child in child_ranks(rank, size) {
                assert_eq!(child & (child - 1), rank, "the child's parent");
                records(child, size, into);
            }
        }
        for size in 1..70 {
            let mut gathered = Vec::new();
            records(0, size, &mut gathered);
            assert_eq!(gathered, (0..size).collect::<Vec<_>>());
        }
    }
}

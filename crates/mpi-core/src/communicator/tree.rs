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
//! The roots of two trees may be joined by a bridge: each sends the other what it has gathered, and
//! both know all records before they answer.
//!
//! Cost: α log₂ p for each direction, and α for the bridge.

use std::sync::Arc;
use std::task::Poll;

use datatype::SendBuf;
use engine::{ContextId, Outcome, PeerId, RequestId, SendMode, Source, TagPattern};

use crate::error::Result;
use crate::group::Group;
use crate::request::class_of;
use crate::world::{World, engine_error};

use super::inbox::{Inbox, Label};

/// A group seen as a tree, and where its messages go.
#[derive(Clone)]
pub(crate) struct Tree {
    pub group: Arc<Group>,
    /// This process's rank in the group.
    pub rank: u32,
    pub context: ContextId,
    pub tag: i32,
    /// What the messages bring with them where the tag alone does not tell whose they are.
    pub label: Option<Label>,
    /// At rank 0 of a tree that is joined to another.
    pub bridge: Option<Bridge>,
}

/// The way between the roots of two trees.
#[derive(Clone, Copy)]
pub(crate) struct Bridge {
    /// The other root.
    peer: PeerId,
    context: ContextId,
    tag: i32,
    /// This side goes first where one side has to.
    is_first: bool,
}

impl Bridge {
    /// From `own` to `peer`.
    pub fn new(peer: PeerId, context: ContextId, tag: i32, own: PeerId) -> Bridge {
        Bridge { peer, context, tag, is_first: own < peer }
    }
}

impl Tree {
    /// The same processes with member `leader` as root, which alone knows the bridge.
    pub fn led_by(self, leader: u32, bridge: Option<Bridge>) -> Tree {
        if leader == 0 {
            return Tree { bridge, ..self };
        }
        let own = self.group.peer(self.rank);
        let others = (0..self.group.size()).filter(|rank| *rank != leader);
        let group = Group::new(std::iter::once(leader).chain(others).map(|rank| self.group.peer(rank)).collect(), own);
        let rank = group.rank().expect("the same processes");
        Tree { group: Arc::new(group), rank, bridge, ..self }
    }

    /// True for the one process that decides what all others follow.
    pub fn leads(&self) -> bool {
        self.rank == 0 && self.bridge.is_none_or(|bridge| bridge.is_first)
    }

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

/// Turns records, and those of the tree across the bridge, into an answer.
pub(crate) type Decide<'a> = dyn FnMut(&[u8], &[u8]) -> Result<Vec<u8>> + 'a;

/// Whose next message is wanted: source, context and tag.
pub(super) type Pattern = (Source, ContextId, TagPattern);

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
    /// At a root with a bridge: waiting for what the other root has gathered.
    Crossing,
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

    /// Spreads an answer of the root without asking anybody; `record` is the root's.
    pub fn spread(tree: Tree, record: Vec<u8>) -> TreeRound {
        let children = tree.children().len();
        let record = if tree.rank == 0 { record } else { Vec::new() };
        TreeRound::at(tree, record, Stage::Up(children))
    }

    fn at(tree: Tree, bytes: Vec<u8>, stage: Stage) -> TreeRound {
        let children = tree.children();
        TreeRound { tree, children, bytes, stage, inbox: Inbox::default(), sends: Vec::new() }
    }

    /// Goes on; at the root, `decide` turns the records of all ranks, and those of the tree across the
    /// bridge, into the answer. Gives the answer once it is here and passed on.
    pub fn advance(&mut self, world: &World, decide: &mut Decide<'_>) -> Poll<Result<Vec<u8>>> {
        loop {
            let step = match self.stage {
                Stage::Up(child) => self.advance_up(world, child, decide),
                Stage::Crossing => self.advance_crossing(world, decide),
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

    fn advance_up(&mut self, world: &World, child: usize, decide: &mut Decide<'_>) -> Poll<Result<()>> {
        if let Some(peer) = self.children.get(child) {
            return match self.inbox.poll(world, self.tree.pattern(*peer), self.tree.label.as_ref()) {
                Poll::Ready(Ok(records)) => {
                    self.bytes.extend_from_slice(&records);
                    self.stage = Stage::Up(child + 1);
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
        }
        if let Some(bridge) = self.tree.bridge {
            let records = self.bytes.clone();
            self.send_on(world, bridge.peer, bridge.context, bridge.tag, records)?;
            self.stage = Stage::Crossing;
            return Poll::Ready(Ok(()));
        }
        let Some(parent) = self.tree.parent() else {
            self.bytes = decide(&self.bytes, &[])?;
            return Poll::Ready(self.start_spreading(world));
        };
        if !self.bytes.is_empty() {
            let records = std::mem::take(&mut self.bytes);
            self.send(world, parent, records)?;
        }
        self.stage = Stage::Down;
        Poll::Ready(Ok(()))
    }

    fn advance_crossing(&mut self, world: &World, decide: &mut Decide<'_>) -> Poll<Result<()>> {
        let bridge = self.tree.bridge.expect("only a bridge is crossed");
        let pattern = (Source::Peer(bridge.peer), bridge.context, TagPattern::Exact(bridge.tag));
        match self.inbox.poll(world, pattern, self.tree.label.as_ref()) {
            Poll::Ready(Ok(others)) => {
                self.bytes = decide(&self.bytes, &others)?;
                Poll::Ready(self.start_spreading(world))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn advance_down(&mut self, world: &World) -> Poll<Result<()>> {
        let parent = self.tree.parent().expect("the root decides and does not wait");
        match self.inbox.poll(world, self.tree.pattern(parent), self.tree.label.as_ref()) {
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
                return Poll::Ready(class_of(&why).fail(format!(
                    "creating a communicator: no message could be sent to world rank {}: {why}",
                    completion.envelope.peer
                )));
            }
        }
        Poll::Ready(Ok(std::mem::take(&mut self.bytes)))
    }

    fn send(&mut self, world: &World, peer: PeerId, bytes: Vec<u8>) -> Result<()> {
        self.send_on(world, peer, self.tree.context, self.tree.tag, bytes)
    }

    fn send_on(&mut self, world: &World, peer: PeerId, context: ContextId, tag: i32, bytes: Vec<u8>) -> Result<()> {
        let bytes = match &self.tree.label {
            Some(label) => label.framed(&bytes),
            None => bytes,
        };
        let buf = SendBuf::from_owned(bytes.into_boxed_slice());
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
    pub(super) fn pattern(&self, peer: PeerId) -> Pattern {
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

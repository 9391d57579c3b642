//! Long reductions where members take turns on the processors, or of two: one value, to which each adds its operands in turn.
//!
//! Showing operands takes a copy of each, and by the time they are reduced no cache near holds them any more. Here there is but
//! the value besides what the caller has: it is small enough to stay near, and operands are read once, by who has them. Of two
//! members each writes where it has read last, and waits for no cache: the first what the second left, the second what the first
//! began.

use datatype::PackedOp;
use engine::BoardCommonPiece;

use super::super::flavoured;
use super::Table;
use super::blocks::Brought;
use super::reduce::{Part, Value};
use crate::collective::arguments::Reduction;
use crate::collective::board::cuts::reductions::{block_of, chain_pieces, chain_steps};
use crate::error::Result;

/// A reduction in a chain, as one member sees it.
struct Chain<'a> {
    op: PackedOp,
    data: &'a Reduction,
    /// Where the value comes, if this member wants it.
    value: Option<Value<'a>>,
    /// Who wants it, if not all.
    root: Option<usize>,
}

/// A part of a reduction, and the piece in which members add to it.
#[derive(Clone, Copy)]
struct Link {
    part: Part,
    piece: BoardCommonPiece,
}

#[flavoured]
impl Table<'_> {
    /// In order of rank, so that a sum is what a loop over all operands gives.
    ///
    /// Each member tells in the first step how long they are, and adds to nothing before those before it have told the same: so
    /// what the last has passed on is what all mean. Of several steps all know that before the second.
    pub(super) async fn reduce_in_chain(self, brought: &Brought, op: PackedOp, data: &Reduction) -> Result<()> {
        let (brought, root, size) = (&brought.in_chain(), brought.root, data.datatype.size());
        let memory = data.result.as_ref().filter(|_| root.is_none_or(|root| root == self.me()));
        let chain = Chain { op, data, value: memory.map(|memory| Value { memory, first: 0 }), root };
        let whole = Part::whole(data);
        let steps = chain_steps(data.count, size);
        for index in 0..steps {
            let step = self.group.next_step();
            if index == 0 {
                self.show(step, &[], brought.told().map(u64::to_ne_bytes).as_flattened()).await?;
                if !self.await_those_before(brought, step).await? {
                    return self.await_agreement(brought, step).await;
                }
            }
            let shared = whole.share(index, steps);
            let pieces = chain_pieces(shared.count, size);
            let link = |index| {
                let part = shared.share(index, pieces);
                let len_bytes = (part.count * size) as usize;
                Link { part, piece: BoardCommonPiece { step, index: index as usize, len_bytes } }
            };
            for index in 0..pieces {
                self.add(&chain, link(index)).await?;
            }
            if index == 0 && (chain.value.is_some() || steps > 1) {
                self.await_agreement(brought, step).await?;
            }
            if let Some(value) = chain.value.filter(|_| self.me() < self.last()) {
                for index in 0..pieces {
                    self.take_value(data, link(index), value).await?;
                }
            }
            self.finish_lone(step, None).await;
        }
        self.caller.count_chain();
        Ok(())
    }

    /// Waits until the members before this one have told in the first step what it means; false if one of them has told
    /// something else. What others tell does not count yet: the one before must come to the same conclusion about those
    /// before it, or its turn would never end.
    async fn await_those_before(self, brought: &Brought, step: u64) -> Result<bool> {
        let meant = brought.told();
        let (mut heard, mut differs) = (0, false);
        self.wait_for_shown(|| {
            while !differs && heard < self.me() && self.group.is_shown(heard, step) {
                differs = self.compare(meant, heard, step, brought.own_bytes).1.is_err();
                heard += 1;
            }
            differs || heard == self.me()
        })
        .await?;
        Ok(!differs)
    }

    /// Waits for what all tell in the first step.
    ///
    /// # Errors
    /// If they do not agree: all find that, and leave after this step.
    async fn await_agreement(self, brought: &Brought, step: u64) -> Result<()> {
        let (is_agreed, outcome) = self.compare_all(brought, step, |_| brought.own_bytes).await?;
        if outcome.is_err() {
            self.finish_first(step, is_agreed).await;
        }
        outcome
    }

    /// Adds this member's operands at its turn. The last one takes the value at once.
    async fn add(self, chain: &Chain<'_>, Link { part, piece }: Link) -> Result<()> {
        let Chain { op, data, value, root } = *chain;
        let (me, size) = (self.me(), data.datatype.size());
        let before = me.checked_sub(1);
        self.wait_for_shown(|| match before {
            Some(before) => self.group.has_passed_on(before, piece),
            None => self.group.has_common_room(piece.step),
        })
        .await?;
        match before {
            None => self.group.begin_common(piece, &part.input(data)),
            Some(before) => {
                let value = value.filter(|_| me == self.last());
                let block_bytes = block_of(size) * size;
                let is_its_turn = self.group.change_common(piece, before, block_bytes as usize, |offset, common| {
                    let first = part.first + offset as u64 / size;
                    let block = Part { first, count: common.len() as u64 / size };
                    op.reduce_to(&block.input(data), common);
                    if let Some(value) = value {
                        value.part(data, block.first, block.count).unpack_at(0, common);
                    }
                });
                if !is_its_turn {
                    // Who was before has taken back what it said.
                    return Err(self.shorter(before, 0));
                }
            }
        }
        self.group.pass_on(piece);
        self.caller.ring(self.group, if me == self.last() { root } else { Some(me + 1) }).await;
        Ok(())
    }

    /// Takes a piece of what all have added to.
    async fn take_value(self, data: &Reduction, Link { part, piece }: Link, value: Value<'_>) -> Result<()> {
        let last = self.last();
        self.wait_for_shown(|| self.group.has_passed_on(last, piece)).await?;
        let is_whole = self.group.read_common(piece, last, |common| {
            value.part(data, part.first, part.count).unpack_at(0, common);
        });
        if is_whole { Ok(()) } else { Err(self.shorter(last, 0)) }
    }

    /// The last of the chain.
    fn last(self) -> usize {
        self.size() - 1
    }
}

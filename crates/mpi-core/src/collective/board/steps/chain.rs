//! Long reductions where members take turns on the processors: one value, to which each adds its operands in turn.
//!
//! Showing operands takes a copy of each, and by the time they are reduced no cache near holds them any more. Here there is but
//! the value besides what the caller has: it is small enough to stay near, and operands are read once, by who has them.

use datatype::PackedOp;

use super::super::flavoured;
use super::Table;
use super::blocks::Brought;
use super::reduce::{Part, REDUCE_BLOCK_BYTES, Value};
use crate::collective::arguments::Reduction;
use crate::collective::board::cuts::reductions::{chain_pieces, chain_steps};
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

/// A piece of a reduction, and where members add to it.
#[derive(Clone, Copy)]
struct Link {
    step: u64,
    piece: usize,
    part: Part,
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
        let whole = Part { first: 0, count: data.count };
        let steps = chain_steps(data.count, size);
        for index in 0..steps {
            let step = self.group.next_step();
            if index == 0 {
                self.show(step, &[], brought.told().map(u64::to_ne_bytes).as_flattened()).await?;
                if !self.await_agreement(brought, step, self.me()).await? {
                    return self.leave_disagreeing(brought, step).await;
                }
            }
            let part = whole.share(index, steps);
            let pieces = chain_pieces(part.count, size);
            let link = |piece| Link { step, piece: piece as usize, part: part.share(piece, pieces) };
            for piece in 0..pieces {
                self.add(&chain, link(piece)).await?;
            }
            if index == 0 && (chain.value.is_some() || steps > 1) {
                if !self.await_agreement(brought, step, self.size()).await? {
                    return self.leave_disagreeing(brought, step).await;
                }
                self.hear(brought, step);
            }
            if let Some(value) = chain.value.filter(|_| self.me() < self.last()) {
                for piece in 0..pieces {
                    self.take_value(data, link(piece), value).await?;
                }
            }
            self.finish_lone(step, None).await;
        }
        self.caller.count_chain();
        Ok(())
    }

    /// Waits until the first `ranks` members have told in the first step what this one means; false if one of them has told
    /// something else. What others tell does not count: the one before must come to the same conclusion about those before
    /// it, or its turn would never end.
    async fn await_agreement(self, brought: &Brought, step: u64, ranks: usize) -> Result<bool> {
        let meant = brought.told();
        let (mut heard, mut differs) = (0, false);
        self.wait_for_shown(|| {
            while !differs && heard < ranks && self.group.is_shown(heard, step) {
                differs = self.compare(meant, heard, step, brought.own_bytes).1.is_err();
                heard += 1;
            }
            differs || heard >= ranks
        })
        .await?;
        Ok(!differs)
    }

    /// Members do not agree, which each finds once all have told what they mean.
    #[cold]
    async fn leave_disagreeing(self, brought: &Brought, step: u64) -> Result<()> {
        let (is_agreed, outcome) = self.compare_all(brought, step, |_| brought.own_bytes).await?;
        self.finish_first(step, is_agreed).await;
        outcome
    }

    /// Adds this member's operands at its turn. The last one takes the value at once.
    async fn add(self, chain: &Chain<'_>, Link { step, piece, part }: Link) -> Result<()> {
        let Chain { op, data, value, root } = *chain;
        let (me, size) = (self.me(), data.datatype.size());
        let before = me.checked_sub(1);
        self.wait_for_shown(|| match before {
            Some(before) => self.group.passed_on(before, step) > piece,
            None => self.group.has_common_room(step),
        })
        .await?;
        let len_bytes = (part.count * size) as usize;
        let is_its_turn = self.group.change_common(step, piece, len_bytes, before, |common| match value {
            _ if before.is_none() => {
                part.input(data).pack_at(0, common);
            }
            Some(value) if me == self.last() => {
                let block_max = (REDUCE_BLOCK_BYTES / size).max(1);
                let mut first = part.first;
                for common in common.chunks_mut((block_max * size) as usize) {
                    let block = Part { first, count: common.len() as u64 / size };
                    op.reduce_to(&block.input(data), common);
                    value.part(data, block.first, block.count).unpack_at(0, common);
                    first += block.count;
                }
            }
            _ => op.reduce_to(&part.input(data), common),
        });
        if !is_its_turn {
            return Err(self.taken_back(before));
        }
        self.group.pass_on(step, piece + 1);
        self.caller.ring(self.group, if me == self.last() { root } else { Some(me + 1) }).await;
        Ok(())
    }

    /// Takes a piece of what all have added to.
    async fn take_value(self, data: &Reduction, Link { step, piece, part }: Link, value: Value<'_>) -> Result<()> {
        let last = self.last();
        self.wait_for_shown(|| self.group.passed_on(last, step) > piece).await?;
        let len_bytes = (part.count * data.datatype.size()) as usize;
        let is_whole = self.group.read_common(step, piece, len_bytes, last, |common| {
            value.part(data, part.first, part.count).unpack_at(0, common);
        });
        if is_whole { Ok(()) } else { Err(self.taken_back(Some(last))) }
    }

    /// A member that no longer says what it has said.
    #[cold]
    fn taken_back(self, rank: Option<usize>) -> crate::Error {
        self.shorter(rank.unwrap_or(0), 0)
    }

    /// The last of the chain.
    fn last(self) -> usize {
        self.size() - 1
    }
}

//! Reductions: everyone shows operands, and whoever wants a value reduces them, or a part of them for all.

use std::ops::Range;

use collectives::Collective;
use datatype::{PackedOp, RecvBuf, Scratch, SendBuf, UserMemoryMut};
use smallvec::SmallVec;

use super::super::flavoured;
use super::Table;
use super::blocks::Brought;
use crate::collective::arguments::Reduction;
use crate::collective::board::cuts::blocks::Cut;
use crate::collective::board::cuts::reductions::{block_of, goes_in_chain, is_brief, piece_max_bytes};
use crate::collective::board::judgement::Choice;
use crate::error::{ErrorClass, Result};

#[flavoured]
impl Table<'_> {
    /// A reduction to one member, or to all. `None` if messages are to do it.
    pub(super) async fn reduce(self, root: Option<usize>, data: &Reduction) -> Result<Option<()>> {
        let (size, ranks) = (data.datatype.size(), self.size() as u64);
        let len_bytes = data.count * size;
        if is_brief(self.comm, len_bytes, root.is_some()) {
            return self.reduce_at_once(root, data).await.map(Some);
        }
        if let (Some(root), 2) = (root, ranks) {
            return self.reduce_of_two(root, data).await;
        }
        let choice = if root.is_none() { self.way_to_reduce(len_bytes) } else { Choice::PASSED };
        let brought = Brought::new(root, len_bytes, len_bytes).judged(choice);
        if choice.is_straight() && self.reduce_straight(&brought, data).await?.is_some() {
            return Ok(Some(()));
        }
        if goes_in_chain(self.comm, size)
            && let Some(op) = data.op.packed(&data.datatype)
        {
            return self.reduce_in_chain(&brought, op, data).await.map(Some);
        }
        let piece_max = (piece_max_bytes(self.comm) / size).max(1);
        let pieces = data.count.div_ceil(piece_max);
        // A value comes where it is wanted, or goes to who wants it.
        let is_reader = root.is_none_or(|root| root == self.me()) && data.result.is_some();
        let own_max = piece_max.min(data.count).div_ceil(ranks);
        let room = if is_reader { None } else { Some(self.caller.temporary(own_max, &data.datatype)?) };
        let mut outcome = Ok(());
        let whole = Part::whole(data);
        for piece in 0..pieces {
            let part = whole.share(piece, pieces);
            let (counts_alike, reduced) = self.reduce_piece(&brought, data, part, room.as_ref()).await?;
            outcome = outcome.and(reduced);
            if !counts_alike {
                break;
            }
        }
        room.into_iter().for_each(|room| self.caller.keep(room));
        outcome.map(Some)
    }

    /// A reduction in one step: whoever wants the value reduces everything.
    #[inline]
    async fn reduce_at_once(self, root: Option<usize>, data: &Reduction) -> Result<()> {
        let input = Part::whole(data).input(data);
        let Some(root) = root else {
            let step = self.show_common(&[input], &[]).await?;
            return self.reduce_shown(step, data).await;
        };
        if root != self.me() {
            return self.show_and_leave(&[input]).await;
        }
        let step = self.group.next_step();
        let outcome = self.reduce_all(step, data, false).await;
        self.leave_reading(step, data.count * data.datatype.size(), outcome).await
    }

    /// Reduces what all members show as `step`.
    #[inline]
    pub async fn reduce_shown(self, step: u64, data: &Reduction) -> Result<()> {
        let outcome = self.reduce_all(step, data, true).await;
        self.group.finish_common(step);
        outcome
    }

    /// The same, or, unless they show `our_own`, of what all others do.
    #[inline]
    async fn reduce_all(self, step: u64, data: &Reduction, our_own: bool) -> Result<()> {
        let whole = Part::whole(data);
        self.expect_all(self.others(), step, data.count * data.datatype.size()).await?;
        let Some(result) = &data.result else { return Ok(()) };
        let operands = Operands::of(0..self.size(), Standing::Shown { step, our_own });
        self.fold(data, whole, &operands, Value { memory: result, first: 0 }, |_| 0)
    }

    /// A long reduction of two operands to one member: the other shows its own, and need not wait. `None` if messages are to
    /// do it.
    async fn reduce_of_two(self, root: usize, data: &Reduction) -> Result<Option<()>> {
        let size = data.datatype.size();
        let len_bytes = data.count * size;
        let cut = Cut::of_elements(self.comm, 1, size as usize).unlimited();
        let brought = self.brought_rooted(Collective::Reduce, root, len_bytes, len_bytes);
        let part = |offset: u64, len_bytes: u64| Part { first: offset / size, count: len_bytes / size };
        let is_root = root == self.me();
        // As by messages: no bit of the result shall show which way the operands went.
        let first = if data.input.is_none() { root } else { 1 - root };
        let shown = |offset, len_bytes| (!is_root).then(|| part(offset, len_bytes).input(data)).into_iter().collect();
        let take = |step, offset, len_bytes: usize| {
            let Some(result) = data.result.as_ref().filter(|_| is_root) else { return Ok(()) };
            let piece = part(offset, len_bytes as u64);
            let operands = Operands::of(0..2, Standing::Shown { step, our_own: false }).beginning_at(first);
            self.fold(data, piece, &operands, Value { memory: result, first: piece.first }, |_| 0)
        };
        self.in_steps(&brought, cut, |_| len_bytes, shown, take).await
    }

    /// The elements of `piece`: each member reduces a part of them, in `room` if it does not want the value. Returns whether
    /// all members count alike, too.
    async fn reduce_piece(
        self,
        brought: &Brought,
        data: &Reduction,
        piece: Part,
        room: Option<&Scratch>,
    ) -> Result<(bool, Result<()>)> {
        let (size, ranks, me) = (data.datatype.size(), self.size() as u64, self.me());
        let part = |rank: usize| piece.share(rank as u64, ranks);
        let own = part(me);
        // All but what nobody else reduces.
        let below = Part { first: piece.first, count: own.first - piece.first };
        let above = Part { first: own.end(), count: piece.end() - own.end() };
        let inputs = [below.input(data), above.input(data)];
        let step = if piece.first == 0 {
            let (step, is_agreed, outcome) = self.first_step(brought, &inputs, |_| brought.own_bytes).await?;
            if outcome.is_err() {
                self.finish_first(step, is_agreed).await;
                return Ok((false, outcome));
            }
            step
        } else {
            self.show_common(&inputs, &[]).await?
        };
        let value = match (room, &data.result) {
            (None, Some(result)) => Value { memory: result, first: own.first },
            (Some(room), _) => Value { memory: room.memory(), first: 0 },
            (None, None) => unreachable!("who has no result has room"),
        };
        let operands = Operands::of(0..self.size(), Standing::Shown { step, our_own: false });
        let mut outcome = self.fold(data, own, &operands, value, |rank| {
            own.first - piece.first - if rank < me { part(rank).count } else { 0 }
        });
        self.group.finish_common(step);

        let reduced = value.part(data, 0, own.count).reader();
        let step = match brought.root {
            None => self.show_common(&[reduced], &[]).await?,
            Some(_) if room.is_none() => self.group.next_step(),
            Some(_) => return Ok((true, self.show_and_leave(&[reduced]).await.and(outcome))),
        };
        // Who reads has its own part there already.
        let result = Value { first: 0, ..value };
        for rank in self.others() {
            let part = part(rank);
            let len_bytes = part.count * size;
            let mut taken = self.expect(rank, step, len_bytes as usize).await;
            if taken.is_ok() {
                taken = self.read(rank, step, 0, len_bytes as usize, |bytes| {
                    result.part(data, part.first, part.count).unpack_at(0, bytes);
                });
            }
            outcome = outcome.and(taken);
        }
        match brought.root {
            None => self.group.finish_common(step),
            Some(_) => self.finish_lone(step, None).await,
        }
        Ok((true, outcome))
    }

    /// Blocks of a reduction, one for each member, which reduces its own. `None` if messages are to do it.
    pub(super) async fn reduce_scatter_block(self, data: &Reduction) -> Result<Option<()>> {
        let (size, count, me) = (data.datatype.size(), data.count, self.me());
        let block_bytes = count * size;
        let cut = Cut::of_elements(self.comm, self.size() - 1, size as usize);
        let brought = Brought::new(None, block_bytes, block_bytes);
        let piece = |rank: usize, offset: u64, len_bytes: u64| Part {
            first: rank as u64 * count + offset / size,
            count: len_bytes / size,
        };
        let shown = |offset, len_bytes| {
            self.others().map(|rank| piece(rank, offset, len_bytes).input(data)).collect::<SmallVec<_>>()
        };
        let take = |step, offset, len_bytes| {
            let Some(result) = &data.result else { return Ok(()) };
            let input = piece(me, offset, len_bytes as u64);
            let value = Value { memory: result, first: offset / size };
            let operands = Operands::of(0..self.size(), Standing::Shown { step, our_own: false });
            self.fold(data, input, &operands, value, |rank| self.place_at(rank) as u64 * input.count)
        };
        self.in_steps(&brought, cut, |_| block_bytes, shown, take).await
    }

    /// Each member reduces the operands of those before it, and, unless `is_exclusive`, its own. `None` if messages are to do
    /// it.
    pub(super) async fn scan(self, data: &Reduction, is_exclusive: bool) -> Result<Option<()>> {
        let len_bytes = data.count * data.datatype.size();
        if !is_brief(self.comm, len_bytes, false) {
            return self.leave_to_messages(&Brought::new(None, len_bytes, len_bytes)).await;
        }
        let ranks = 0..self.me() + usize::from(!is_exclusive);
        let whole = Part::whole(data);
        let step = self.group.next_step();
        self.show(step, &[whole.input(data)], &[]).await?;
        let mut outcome = self.expect_all(ranks.clone().filter(|rank| *rank != self.me()), step, len_bytes).await;
        if let (Ok(()), Some(result)) = (&outcome, &data.result) {
            let operands = Operands::of(ranks, Standing::Shown { step, our_own: true });
            outcome = self.fold(data, whole, &operands, Value { memory: result, first: 0 }, |_| 0);
        }
        self.finish_lone(step, None).await;
        outcome.map(Some)
    }

    /// Reduces what `operands` names, from the last on, as each step writes its right operand; or from the first on if the
    /// operation commutes and `operands` does not say otherwise, so that a sum is what a loop over all of it gives. Of what a
    /// member shows, it begins `before(rank)` elements in. Our own is read where it lies, as `input`, for what was written for
    /// others is no longer near; or, if the value comes there, from the board, or a copy.
    pub(super) fn fold(
        self,
        data: &Reduction,
        input: Part,
        operands: &Operands<'_>,
        value: Value<'_>,
        before: impl Fn(usize) -> u64,
    ) -> Result<()> {
        let Operands { ranks, standing, from_last } = operands;
        if ranks.is_empty() {
            return Ok(());
        }
        let (size, me) = (data.datatype.size(), self.me());
        let block_max = block_of(size);
        let temporary = || self.caller.temporary(input.count.min(block_max), &data.datatype);
        let way = match data.op.packed(&data.datatype) {
            Some(op) => Way::Packed(op),
            None => Way::LaidOut(temporary()?),
        };
        // In place the value comes where our operand lies.
        let is_in_place = data.input.is_none();
        let is_ours_shown = matches!(standing, Standing::Shown { our_own: true, .. });
        let is_own_apart = ranks.contains(&me) && !(is_in_place && is_ours_shown);
        let own_room = if is_own_apart && is_in_place { Some(temporary()?) } else { None };
        let mut done = 0;
        while done < input.count {
            let count = block_max.min(input.count - done);
            let mut value = value.part(data, done, count);
            let own = is_own_apart.then(|| {
                let own = Part { first: input.first + done, count }.input(data);
                let Some(room) = &own_room else { return own };
                room.memory().recv(0, count, &data.datatype).copy_from(&own);
                room.memory().send(0, count, &data.datatype)
            });
            let operand = |rank: usize, take: &mut dyn FnMut(&[u8])| {
                let (offset, len_bytes) = (((before(rank) + done) * size) as usize, (count * size) as usize);
                match standing {
                    Standing::Shown { step, .. } => self.read(rank, *step, offset, len_bytes, take),
                    Standing::Taken(room) => {
                        let all = room.send();
                        let all = all.as_contiguous().expect("what is read straight lies in one piece");
                        take(&all[offset..][..len_bytes]);
                        Ok(())
                    }
                }
            };
            let mut is_first = true;
            for index in 0..ranks.len() {
                let from_first = data.op.commutes() && !from_last;
                let rank = if from_first { ranks.start + index } else { ranks.end - 1 - index };
                match (own.as_ref().filter(|_| rank == me), &way) {
                    (Some(own), _) if is_first => {
                        value.copy_from(own);
                    }
                    (None, _) if is_first => operand(rank, &mut |bytes| {
                        value.unpack_at(0, bytes);
                    })?,
                    (Some(own), Way::Packed(op)) => op.reduce_from(own, &mut value),
                    (Some(own), Way::LaidOut(_)) => self.combine(data, own, &mut value)?,
                    (None, Way::Packed(op)) => operand(rank, &mut |bytes| op.reduce(bytes, &mut value))?,
                    (None, Way::LaidOut(room)) => {
                        let mut elements = room.memory().recv(0, count, &data.datatype);
                        operand(rank, &mut |bytes| {
                            elements.unpack_at(0, bytes);
                        })?;
                        self.combine(data, &room.memory().send(0, count, &data.datatype), &mut value)?;
                    }
                }
                is_first = false;
            }
            done += count;
        }
        if let Way::LaidOut(room) = way {
            self.caller.keep(room);
        }
        own_room.into_iter().for_each(|room| self.caller.keep(room));
        Ok(())
    }

    fn combine(self, data: &Reduction, operand: &SendBuf, value: &mut RecvBuf) -> Result<()> {
        let reduced = data.op.reduce(&data.datatype, operand, value);
        reduced.map_err(|error| ErrorClass::Op.error(format!("{}: {error}", self.caller.name_of(self.arguments))))
    }
}

/// How what stands on a board is reduced.
enum Way {
    /// Where it stands.
    Packed(PackedOp),
    /// By a function of the user's, which wants it laid out as elements: here.
    LaidOut(Scratch),
}

/// What is reduced.
pub(super) struct Operands<'a> {
    /// Whose operands, in order of rank.
    ranks: Range<usize>,
    standing: Standing<'a>,
    /// They are reduced from the last on, whatever the operation.
    from_last: bool,
}

impl<'a> Operands<'a> {
    pub fn of(ranks: Range<usize>, standing: Standing<'a>) -> Self {
        Self { ranks, standing, from_last: false }
    }

    /// The same of two, of which this rank's is the first if the operation commutes.
    fn beginning_at(self, first: usize) -> Self {
        Self { from_last: first + 1 == self.ranks.end, ..self }
    }
}

/// Where operands stand.
pub(super) enum Standing<'a> {
    /// They are shown in this step; our own, too, or not.
    Shown { step: u64, our_own: bool },
    /// They have been read to here, all but our own.
    Taken(&'a Scratch),
}

/// Where a value comes: elements from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub memory: &'a UserMemoryMut,
    pub first: u64,
}

impl Value<'_> {
    pub fn part(self, data: &Reduction, offset: u64, count: u64) -> RecvBuf {
        let first = (self.first + offset) as i64;
        self.memory.recv(first * data.datatype.extent(), count, &data.datatype)
    }
}

/// Some elements of a reduction.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub first: u64,
    pub count: u64,
}

impl Part {
    /// All of them.
    pub fn whole(data: &Reduction) -> Part {
        Part { first: 0, count: data.count }
    }

    /// The share of this with the number `index` of so many, as equal as can be.
    pub fn share(self, index: u64, shares: u64) -> Part {
        let cut = |index: u64| self.count / shares * index + index.min(self.count % shares);
        Part { first: self.first + cut(index), count: cut(index + 1) - cut(index) }
    }

    fn end(self) -> u64 {
        self.first + self.count
    }

    /// Where they come from.
    pub fn input(self, data: &Reduction) -> SendBuf {
        data.elements(self.first, self.count)
    }
}

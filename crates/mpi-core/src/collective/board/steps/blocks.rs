//! A block from each to all, or from each to each: everyone shows, everyone reads, by pieces if the blocks are long.

use datatype::{RecvBuf, SendBuf, UserMemory, UserMemoryMut};
use smallvec::SmallVec;

use super::super::flavoured;
use super::Table;
use crate::collective::arguments::{Blocks, Buffer};
use crate::collective::board::cuts::blocks::{Cut, LENGTHS, Steps, To, is_pair};
use crate::collective::board::judgement::{Choice, Way};
use crate::error::Result;

/// Bytes of the longest of some blocks.
fn longest_bytes<M>(blocks: &Blocks<M>) -> u64 {
    blocks.counts.iter().copied().max().unwrap_or(0) * blocks.datatype.size()
}

/// The block of an exchange that goes to a rank; in place, what comes from there lies there first.
pub(in crate::collective) fn outgoing(
    send: Option<&Buffer<UserMemory>>,
    recv: &Buffer<UserMemoryMut>,
    rank: usize,
) -> SendBuf {
    send.map_or_else(|| recv.block(rank).reader(), |send| send.block(rank))
}

/// What members show of their blocks in a step.
pub(in crate::collective) type Shown = SmallVec<[SendBuf; 8]>;

#[flavoured]
impl Table<'_> {
    /// `None` if messages are to do it, as below.
    pub(super) async fn allgather(
        self,
        send: Option<&Buffer<UserMemory>>,
        recv: &Buffer<UserMemoryMut>,
    ) -> Result<Option<()>> {
        let block_bytes = recv.block_bytes();
        self.gather_to_all(send, block_bytes, |_| block_bytes, |rank| recv.block(rank)).await
    }

    pub(super) async fn allgatherv(
        self,
        send: Option<&Buffer<UserMemory>>,
        recv: &Blocks<UserMemoryMut>,
    ) -> Result<Option<()>> {
        let Blocks { memory, counts, displacements, datatype } = recv;
        let block = |rank: usize| memory.recv(displacements[rank] * datatype.extent(), counts[rank], datatype);
        self.gather_to_all(send, longest_bytes(recv), |rank| counts[rank] * datatype.size(), block).await
    }

    async fn gather_to_all(
        self,
        send: Option<&Buffer<UserMemory>>,
        longest_bytes: u64,
        expected_bytes: impl Fn(usize) -> u64,
        block: impl Fn(usize) -> RecvBuf,
    ) -> Result<Option<()>> {
        let me = self.me();
        let own = match send {
            Some(send) => send.block(0),
            None => block(me).reader(),
        };
        let choice = self.way(1, longest_bytes);
        let brought = Brought::new(None, own.len_bytes(), longest_bytes).judged(choice);
        let shown = |offset, len_bytes| SmallVec::from_iter([own.slice(offset, len_bytes)]);
        let take = |step, offset, len_bytes| {
            self.others().try_for_each(|rank| {
                let len_bytes = expected_bytes(rank).saturating_sub(offset).min(len_bytes as u64) as usize;
                self.read(rank, step, 0, len_bytes, |bytes| {
                    block(rank).unpack_at(offset, bytes);
                })
            })
        };
        let mut gathered = None;
        if choice.is_straight() && !self.goes_as_message(&brought) {
            gathered = self.read_straight(&brought, own.range(), &expected_bytes, |rank| (0, block(rank))).await?;
        }
        if gathered.is_none() {
            gathered = self.in_steps(&brought, Cut::of(self.comm, 1), &expected_bytes, shown, take).await?;
        }
        if gathered.is_some() && send.is_some() {
            block(me).copy_from(&own);
        }
        Ok(gathered)
    }

    pub(super) async fn alltoall(
        self,
        send: Option<&Buffer<UserMemory>>,
        recv: &Buffer<UserMemoryMut>,
    ) -> Result<Option<()>> {
        let block_bytes = recv.block_bytes();
        let out = |rank| outgoing(send, recv, rank);
        let own = out(self.me());
        let choice = self.way(self.size() - 1, block_bytes);
        let brought = Brought::new(None, own.len_bytes(), block_bytes).judged(choice);
        let shown = |offset, len_bytes| self.others().map(|rank| out(rank).slice(offset, len_bytes)).collect();
        let cut = Cut::of(self.comm, self.size() - 1);
        let take = |step, offset, len_bytes| self.take_pieces(recv, To::Each, step, offset, len_bytes);
        let mut exchanged = None;
        if choice.is_straight() && !self.goes_as_message(&brought) {
            // In place, what is to be read would be overwritten by what has been.
            let all = send.map(|send| send.memory.send(0, send.count * self.size() as u64, &send.datatype));
            let own = all.as_ref().and_then(SendBuf::range);
            let place = self.me() as u64 * block_bytes;
            exchanged = self.read_straight(&brought, own, |_| block_bytes, |rank| (place, recv.block(rank))).await?;
        }
        if exchanged.is_none() {
            exchanged = self.in_steps(&brought, cut, |_| block_bytes, shown, take).await?;
        }
        if exchanged.is_some() && send.is_some() {
            recv.block(self.me()).copy_from(&own);
        }
        Ok(exchanged)
    }

    /// Takes so many bytes, from an offset on, of each block that others show in a step.
    pub fn take_pieces(
        self,
        recv: &Buffer<UserMemoryMut>,
        to: To,
        step: u64,
        offset: u64,
        len_bytes: usize,
    ) -> Result<()> {
        self.others().try_for_each(|rank| {
            let before = if to == To::Each { self.place_at(rank) } else { 0 };
            self.read(rank, step, before * len_bytes, len_bytes, |bytes| {
                recv.block(rank).unpack_at(offset, bytes);
            })
        })
    }

    /// How many blocks another member shows before ours, if it shows one for each of the others, in order of rank.
    pub(super) fn place_at(self, rank: usize) -> usize {
        if rank < self.me() { self.me() - 1 } else { self.me() }
    }

    /// Shows, piece by piece, what is `shown` of the blocks of this member from an offset on, so many bytes of each, and
    /// lets `take` read what others show of theirs. Where there is a root, either it shows or all others do, and who does
    /// not, reads. `None` if the blocks are so long that messages are to do it.
    ///
    /// With a root, what fits a step is one, in which nobody waits but for what it reads, and for room. Else the first step
    /// tells the length of the block that a member brings, of which `expected_bytes(rank)` are expected, and that of the
    /// longest. A member that means another longest one counts other steps, and a root that brings what is not expected
    /// stops those who would go on: both are found out by all, who leave after that step. Whatever else goes wrong, members
    /// go on to the last one: the others do not know of it.
    pub(super) async fn in_steps(
        self,
        brought: &Brought,
        cut: Cut,
        expected_bytes: impl Fn(usize) -> u64,
        shown: impl Fn(u64, u64) -> Shown,
        mut take: impl FnMut(u64, u64, usize) -> Result<()>,
    ) -> Result<Option<()>> {
        let &Brought { root, longest_bytes, choice, .. } = brought;
        if choice.is_straight() && self.goes_as_message(brought) {
            return self.leave_to_messages(&brought.straight()).await;
        }
        if longest_bytes > cut.max_bytes {
            return self.leave_to_messages(brought).await;
        }
        let steps = Steps::of(longest_bytes as usize, &cut);
        let (offset, len_bytes) = steps.range(0);
        let contents = shown(offset as u64, len_bytes as u64);
        let sources = root.filter(|_| contents.is_empty()).map(|root| self.sources(root));
        if root.is_some() && steps.count == 1 {
            let Some(sources) = sources else { return self.show_and_leave(&contents).await.map(Some) };
            let step = self.group.next_step();
            let mut outcome = self.expect_all(sources, step, (cut.blocks * len_bytes) as u64).await;
            if outcome.is_ok() {
                outcome = take(step, 0, len_bytes);
            }
            return self.leave_reading(step, longest_bytes, outcome).await.map(Some);
        }
        let (step, is_agreed, mut outcome) = self.first_step(brought, &contents, expected_bytes).await?;
        if outcome.is_ok() {
            outcome = take(step, offset as u64, len_bytes);
        }
        self.finish_first(step, is_agreed).await;
        for piece in 1..if is_agreed { steps.count } else { 1 } {
            let (offset, len_bytes) = steps.range(piece);
            let contents = shown(offset as u64, len_bytes as u64);
            let step = if root.is_none() { self.show_common(&contents, &[]).await? } else { self.group.next_step() };
            match &sources {
                Some(sources) => {
                    for rank in sources.clone() {
                        self.await_step(rank, step).await?;
                    }
                }
                // Who shows to a root, or as one, reads nothing: all are woken at the step's end.
                None if root.is_some() => self.write(step, &contents, &[]).await?,
                None => {}
            }
            if outcome.is_ok() {
                outcome = take(step, offset as u64, len_bytes);
            }
            match root {
                None => self.group.finish_common(step),
                Some(_) => self.finish_lone(step, None).await,
            }
        }
        outcome.map(Some)
    }

    /// Whom a member reads from, where there is a root: from all others at the root, elsewhere from the root.
    fn sources(self, root: usize) -> impl Iterator<Item = usize> + Clone {
        let me = self.me();
        (0..self.size()).filter(move |rank| *rank != me && (me == root || *rank == root))
    }

    /// Shows the first of several steps and waits for all others; it is not finished. Returns its number, whether all members
    /// count the same steps, and what is wrong.
    pub(super) async fn first_step(
        self,
        brought: &Brought,
        contents: &[SendBuf],
        expected_bytes: impl Fn(usize) -> u64,
    ) -> Result<(u64, bool, Result<()>)> {
        let told = brought.told().map(u64::to_ne_bytes);
        let step = self.group.next_step();
        self.show(step, contents, told.as_flattened()).await?;
        let (is_agreed, outcome) = self.compare_all(brought, step, expected_bytes).await?;
        Ok((step, is_agreed, outcome))
    }

    /// Waits for what all others tell in the first of several steps, which this member shows; returns whether all members
    /// count the same steps, and what is wrong.
    pub async fn compare_all(
        self,
        brought: &Brought,
        step: u64,
        expected_bytes: impl Fn(usize) -> u64,
    ) -> Result<(bool, Result<()>)> {
        let meant = brought.told();
        if let Some(root) = brought.root {
            // If the root counts but one step, the others may, too, and show nothing.
            self.await_step(root, step).await?;
            let (_, outcome) = self.compare(meant, root, step, expected_bytes(root));
            if outcome.is_err() {
                return Ok((false, outcome));
            }
        }
        self.await_all(step).await?;
        let mut outcome = Ok(());
        let mut is_agreed = true;
        for rank in 0..self.size() {
            let (counts_alike, found) = self.compare(meant, rank, step, expected_bytes(rank));
            is_agreed &= counts_alike;
            outcome = outcome.and(found);
        }
        if is_agreed && brought.choice.is_judged() {
            let judge = brought.judge;
            self.hear(if self.me() == judge { Some(meant) } else { self.told(judge, step) });
        }
        Ok((is_agreed, outcome))
    }

    /// The judge has told which way the next call of this kind goes.
    #[inline(never)]
    fn hear(self, told: Option<[u64; LENGTHS]>) {
        let is_straight = told.is_some_and(|[_, longest]| longest & NEXT_STRAIGHT != 0);
        self.comm.judgements().hear(if is_straight { Way::Straight } else { Way::Passed });
    }

    /// True if straight is by messages: to one member, and between two, if nothing else was said. What is the fastest way for
    /// messages between two is known better by who passes them on.
    fn goes_as_message(self, brought: &Brought) -> bool {
        brought.root.is_some() || is_pair(self.comm) && brought.choice.is_judged()
    }

    /// A step that says no more than how long the longest block is, or those to or from `root`: if all agree, they go by
    /// messages, which is `None`.
    pub(super) async fn leave_to_messages(self, brought: &Brought) -> Result<Option<()>> {
        let longest_bytes = brought.longest_bytes;
        let brought = Brought { own_bytes: longest_bytes, ..*brought };
        let (step, is_agreed, outcome) = self.first_step(&brought, &[], |_| longest_bytes).await?;
        self.finish_first(step, is_agreed).await;
        outcome.map(|()| None)
    }

    /// This member is through with the first of several steps; who leaves after it may not have seen all show it.
    pub async fn finish_first(self, step: u64, is_agreed: bool) {
        if is_agreed {
            self.group.finish_common(step);
        } else {
            self.finish_lone(step, None).await;
        }
    }

    /// The end of a step that only some show and that this member has read. Who counts on several steps, of which this
    /// would be the first, waits for all to show it: after a disagreement this member tells how long it takes a block to be.
    pub(super) async fn leave_reading(self, step: u64, block_bytes: u64, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.show(step, &[], [block_bytes; LENGTHS].map(u64::to_ne_bytes).as_flattened()).await?;
        }
        self.finish_lone(step, None).await;
        outcome
    }

    /// Compares what a member tells in the first of several steps with what this one means and tells: whether it counts the
    /// same steps, and what is wrong.
    pub(super) fn compare(
        self,
        meant: [u64; LENGTHS],
        rank: usize,
        step: u64,
        expected_bytes: u64,
    ) -> (bool, Result<()>) {
        // What this member has just written may still be on its way to its board: reading it there would wait for that.
        let told = if rank == self.me() { Some(meant) } else { self.told(rank, step) };
        let Some([own, longest]) = told else {
            // It counts one step.
            return (false, Err(self.shorter(rank, self.group.len_bytes(rank, step))));
        };
        let counts_alike = (longest ^ meant[1]) & !NEXT_STRAIGHT == 0;
        if !counts_alike {
            (false, Err(self.disagreement(rank, "expects", longest & LEN_MASK)))
        } else if own != expected_bytes {
            (true, Err(self.disagreement(rank, "brings", own)))
        } else {
            (true, Ok(()))
        }
    }
}

/// What a member passes.
pub(in crate::collective) struct Brought {
    /// The member that all others send to, or receive from.
    pub root: Option<usize>,
    /// Bytes of a block that it brings, and of the longest one that it knows of.
    pub own_bytes: u64,
    pub longest_bytes: u64,
    /// Which way the call goes, and the next one, as far as this member has a say.
    pub choice: Choice,
    /// The member whose say it is.
    judge: usize,
    /// How those go of whose steps this is told in the first.
    told_way: u64,
}

/// In the word that tells of the longest block: this call goes in a chain, its blocks go straight, or those of the next one of its
/// kind do.
const CHAIN: u64 = 1 << 61;
const STRAIGHT: u64 = 1 << 62;
const NEXT_STRAIGHT: u64 = 1 << 63;
pub(super) const LEN_MASK: u64 = CHAIN - 1;

impl Brought {
    /// Of a call whose way is not judged.
    pub fn new(root: Option<usize>, own_bytes: u64, longest_bytes: u64) -> Self {
        Self { root, own_bytes, longest_bytes, choice: Choice::PASSED, judge: 0, told_way: 0 }
    }

    /// The same of one for which that was chosen, about which the first member has the say.
    pub fn judged(self, choice: Choice) -> Self {
        self.judged_by(0, choice)
    }

    /// The same if it is the say of `judge`.
    pub fn judged_by(self, judge: usize, choice: Choice) -> Self {
        Self { choice, judge, ..self }
    }

    /// The same in a step of those who go straight.
    pub fn straight(&self) -> Self {
        Self { told_way: STRAIGHT, ..*self }
    }

    /// The same in the step of those who add to one value in turn.
    pub fn in_chain(&self) -> Self {
        Self { told_way: CHAIN, ..*self }
    }

    /// What a member tells of it in the first step.
    pub fn told(&self) -> [u64; LENGTHS] {
        let next = if self.choice.is_next_straight() { NEXT_STRAIGHT } else { 0 };
        [self.own_bytes, self.longest_bytes & LEN_MASK | self.told_way | next]
    }
}

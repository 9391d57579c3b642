//! Blocks that each member reads straight from the memory of who has them: one copy, no matter how long they are, a step
//! that says where they lie and one that says that all have been read. A reduction has another one between: each member
//! reduces a part of the operands, and reads the other parts of the result. What one of two has for the other goes straight as
//! a message.

use base::memory::ReadRange;
use collectives::Collective;
use datatype::RecvBuf;
use engine::{BOARD_PIECE_BYTES, LentPlace};
use smallvec::SmallVec;

use super::super::{Caller, Lending, flavoured};
use super::Table;
use super::blocks::Brought;
use super::reduce::{Operands, Part, Standing, Value};
use crate::collective::arguments::Reduction;
use crate::collective::board::cuts::blocks::{LENGTHS, READ_MIN_BYTES, is_pair};
use crate::collective::board::cuts::{blocks, reductions};
use crate::collective::board::judgement::{Choice, JUDGED_MIN_BYTES, Kind, Operation, Way};
use crate::error::{ErrorClass, Result};

/// Told in place of a place: this member has nothing to be read, or cannot take part this time, or never.
const NOTHING: LentPlace = LentPlace([0, 0]);
const NOT_NOW: LentPlace = LentPlace([0, 1]);
const NEVER: LentPlace = LentPlace([0, 2]);
/// Bytes of the operands of all members that are reduced at a time: they stay in a second-level cache.
const OPERANDS_BYTES: u64 = 512 << 10;

/// What all members have agreed upon.
struct Agreed<'a> {
    /// By rank.
    places: Places,
    /// Keeps our own memory lent.
    _lent: [Option<Lending<'a>>; 2],
    /// What is wrong with what this member has been brought: it goes on to the end, for others do not know of it.
    outcome: Result<()>,
}

/// Where members have lent memory: of one kind, and of another.
type Places = SmallVec<[[LentPlace; 2]; 16]>;

#[flavoured]
impl<'a> Table<'a> {
    /// Lends `own` to all others, and reads what `wanted(rank)` says of what each of them lends: from which byte on, and to
    /// where. `None`, and anything may stand there, if a member can not lend its memory or read that of another, which all
    /// find.
    #[inline(never)]
    pub(super) async fn read_straight(
        self,
        brought: &Brought,
        own: Option<ReadRange>,
        expected_bytes: impl Fn(usize) -> u64,
        wanted: impl Fn(usize) -> (u64, RecvBuf),
    ) -> Result<Option<()>> {
        let can_take = own.is_some() && self.others().all(|rank| wanted(rank).1.as_contiguous().is_some());
        let own = if can_take { [own, None] } else { [None; 2] };
        let Some(agreed) = self.lend_to_all(brought, own, expected_bytes).await? else { return Ok(None) };
        let is_read = agreed.outcome.is_err()
            || self.in_turn().all(|rank| {
                let (offset, block) = wanted(rank);
                self.read_block(rank, agreed.places[rank][0], offset, block)
            });
        if !self.have_all(is_read).await? {
            return Ok(None);
        }
        self.caller.count_straight();
        agreed.outcome.map(Some)
    }

    /// A long reduction to all. `None`, as above; the operands are as they were then.
    #[inline(never)]
    pub(super) async fn reduce_straight(self, brought: &Brought, data: &Reduction) -> Result<Option<()>> {
        let Some(result) = &data.result else { return Ok(None) };
        let (size, ranks) = (data.datatype.size(), self.size() as u64);
        let whole = Part::whole(data);
        let part = |rank: usize| whole.share(rank as u64, ranks);
        let value = Value { memory: result, first: 0 };
        let own = [whole.input(data).range(), value.part(data, 0, data.count).reader().range()];
        let own = if own.iter().all(Option::is_some) { own } else { [None; 2] };
        // Before others count on this member.
        let block_max = (OPERANDS_BYTES / ranks / size).max(1);
        let room = self.caller.temporary(block_max * ranks, &data.datatype)?;
        let Some(agreed) = self.lend_to_all(brought, own, |_| brought.own_bytes).await? else {
            self.caller.keep(room);
            return Ok(None);
        };

        let (own, mut outcome, mut is_read) = (part(self.me()), agreed.outcome, true);
        let mut done = 0;
        while done < own.count && is_read && outcome.is_ok() {
            let block = Part { first: own.first + done, count: block_max.min(own.count - done) };
            is_read = self.in_turn().all(|rank| {
                let space = Value { memory: room.memory(), first: rank as u64 * block_max };
                let space = space.part(data, 0, block.count);
                self.read_block(rank, agreed.places[rank][0], block.first * size, space)
            });
            if is_read {
                let operands = Operands::of(0..self.size(), Standing::Taken(&room));
                let value = Value { memory: result, first: block.first };
                outcome = self.fold(data, block, &operands, value, |rank| rank as u64 * block_max);
            }
            done += block.count;
        }
        self.caller.keep(room);
        if self.have_all(is_read).await? {
            is_read = outcome.is_err()
                || self.in_turn().all(|rank| {
                    let Part { first, count } = part(rank);
                    self.read_block(rank, agreed.places[rank][1], first * size, value.part(data, first, count))
                });
            if self.have_all(is_read).await? {
                self.caller.count_straight();
                return outcome.map(Some);
            }
        }
        // In place some operands are no more.
        if data.input.is_none() { Err(self.refused_later()) } else { Ok(None) }
    }

    /// Lends memory to all others, and learns what they lend; what is wrong is said if all go on all the same. `None` if a
    /// member can not lend, all of one kind or nothing, or not read.
    async fn lend_to_all(
        self,
        brought: &Brought,
        own: [Option<ReadRange>; 2],
        expected_bytes: impl Fn(usize) -> u64,
    ) -> Result<Option<Agreed<'a>>> {
        let instead = match own {
            _ if !self.caller.may_lend() => NEVER,
            [None, None] => NOT_NOW,
            _ => NOTHING,
        };
        let mut places = [instead; 2];
        let mut lent = [None, None];
        if instead == NOTHING {
            for ((own, lent), place) in own.into_iter().zip(&mut lent).zip(&mut places) {
                if let Some(memory) = own.filter(|memory| memory.len_bytes() > 0) {
                    *lent = self.caller.lend(memory);
                    *place = lent.as_ref().map_or(NOT_NOW, |lent| lent.place());
                }
            }
        }
        let [[first, key], [second, its_key]] = places.map(|place| place.0);
        let brought = brought.straight();
        let [own_bytes, longest_bytes] = brought.told();
        let told = [first, key, second, its_key, own_bytes, longest_bytes].map(u64::to_ne_bytes);
        let step = self.group.next_step();
        self.show(step, &[], told.as_flattened()).await?;
        let (is_agreed, outcome) = self.compare_all(&brought, step, expected_bytes).await?;
        let place_of = |rank| if rank == self.me() { places } else { self.places_told(rank, step) };
        let places: Places = if is_agreed { (0..self.size()).map(place_of).collect() } else { Places::new() };
        self.finish_first(step, is_agreed).await;
        if !is_agreed {
            return Err(outcome.expect_err("a member that counts other steps is an error"));
        }
        let any = |instead| places.as_flattened().contains(&instead);
        if any(NEVER) {
            self.group.forgo_reading_straight();
        }
        if any(NEVER) || any(NOT_NOW) || !self.group.has_read_straight() && !self.try_reading(&places).await? {
            return Ok(None);
        }
        Ok(Some(Agreed { places, _lent: lent, outcome }))
    }

    /// The first time each reads a byte of all others: some systems let nobody.
    async fn try_reading(self, places: &Places) -> Result<bool> {
        let byte = || RecvBuf::from_owned(Box::new([0]));
        let is_read = self.in_turn().all(|rank| self.read_block(rank, places[rank][0], 0, byte()));
        let can_read = self.have_all(is_read).await?;
        // Of one that has nothing this time it is not known.
        if can_read && !places.iter().any(|[first, _]| *first == NOTHING) {
            self.group.note_reading_straight();
        }
        Ok(can_read)
    }

    /// Reads a block, if there is anything to read; false if the system, or the member, does not let us.
    fn read_block(self, rank: usize, place: LentPlace, offset: u64, mut block: RecvBuf) -> bool {
        let into = block.range().expect("it lies in one piece");
        place == NOTHING || into.len_bytes() == 0 || self.caller.read_lent(self.group, rank, place, offset, into)
    }

    /// A step that tells whether this member has read what it wanted, and that all have once they have; whether they have.
    async fn have_all(self, is_read: bool) -> Result<bool> {
        let step = self.show_common(&[], &u64::from(is_read).to_ne_bytes()).await?;
        let have_all = is_read && self.others().all(|rank| self.told(rank, step) == Some([u64::from(true)]));
        self.group.finish_common(step);
        if !have_all {
            self.group.forgo_reading_straight();
        }
        Ok(have_all)
    }

    /// The way of a call in which each member has so many blocks, the longest of so many bytes; the same in all members.
    #[inline]
    pub(super) fn way(self, blocks: usize, longest_bytes: u64) -> Choice {
        if longest_bytes < READ_MIN_BYTES && self.comm.read_min_bytes().is_none() {
            return Choice::PASSED;
        }
        let operation = if blocks == 1 { Operation::OneEach } else { Operation::EachToEach };
        self.choose(operation, longest_bytes, blocks::read_min_bytes(self.comm, blocks))
    }

    /// The same of a reduction to all.
    pub(super) fn way_to_reduce(self, len_bytes: u64) -> Choice {
        let part_bytes = len_bytes / self.size() as u64;
        self.choose(Operation::Reduction, part_bytes, reductions::read_min_bytes(self.comm))
    }

    /// What this member passes in a call with a root: of two members that run at once, one may send the other a message. What
    /// fits a step is passed on.
    pub(super) fn brought_rooted(
        self,
        collective: Collective,
        root: usize,
        own_bytes: u64,
        longest_bytes: u64,
    ) -> Brought {
        let brought = Brought::new(Some(root), own_bytes, longest_bytes);
        let min_bytes = BOARD_PIECE_BYTES as u64;
        if longest_bytes < min_bytes || !is_pair(self.comm) {
            return brought;
        }
        let operation = Operation::ToOne { collective, root };
        brought.judged_by(operation.judge(), self.choose(operation, longest_bytes, min_bytes))
    }

    /// Straight from so many bytes on, if that was said; else as it was faster, and from `read_min_bytes` on before that is known.
    #[inline(never)]
    fn choose(self, operation: Operation, len_bytes: u64, read_min_bytes: u64) -> Choice {
        if !Caller::READS_STRAIGHT || !self.group.reads_straight() {
            return Choice::PASSED;
        }
        let way_from = |min_bytes| if len_bytes >= min_bytes { Way::Straight } else { Way::Passed };
        match self.comm.read_min_bytes() {
            Some(said_min_bytes) => Choice::fixed(way_from(said_min_bytes)),
            None if len_bytes < JUDGED_MIN_BYTES => Choice::fixed(way_from(read_min_bytes)),
            None => {
                let kind = Kind { operation, len_bits: len_bytes.ilog2() };
                let is_judge = self.me() == operation.judge();
                self.comm.judgements().choose(kind, len_bytes, way_from(read_min_bytes), is_judge)
            }
        }
    }

    /// Where a member says in `step` that its memory lies, before the lengths.
    fn places_told(self, rank: usize, step: u64) -> [LentPlace; 2] {
        let told: Option<[u64; 4 + LENGTHS]> = self.told(rank, step);
        told.map_or([NOT_NOW; 2], |[first, key, second, its_key, ..]| {
            [LentPlace([first, key]), LentPlace([second, its_key])]
        })
    }

    /// All others, so that no two members read from the same one at a time if they are equally fast: what the system does to
    /// let somebody read costs more the more do it at a time.
    fn in_turn(self) -> impl Iterator<Item = usize> {
        let (me, size) = (self.me(), self.size());
        (1..size).map(move |turn| if size.is_power_of_two() { me ^ turn } else { (me + turn) % size })
    }

    #[cold]
    fn refused_later(self) -> crate::Error {
        ErrorClass::Other.error(format!(
            "{} on {}: the system has let processes read each other's memory (cross-memory attach) and does not any more; \
             FERROVIA_CROSS_MEMORY=off does without",
            self.caller.name_of(self.arguments),
            self.comm,
        ))
    }
}

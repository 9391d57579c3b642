//! Boards of a group: its members show each other what they have, without messages.
//!
//! Where the processes of a group are mapped, a short collective needs no matching and no queues: each member writes a
//! line of its own memory, and all others read it. A group takes one of a few boards of each of its members, the same
//! one everywhere, and gives it back when it is dropped; see [`BoardTable`].

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base::memory::{ReadRange, WriteRange};
use base::sync::{AtomicBool, AtomicU64, Ordering};
use datatype::SendBuf;
use fabric::{Access, DirectCopy, LocalMemory, MappedArea, MemoryRegion, PeerIndex, RemoteMemory, Rkey};
pub use lockfree::board::CommonPiece as BoardCommonPiece;
use lockfree::board::{Ahead, Place, Places};
use lockfree::pace::Pace;
use lockfree::{Board, Stores};

use self::common::CommonChanges;
use crate::core::{Engine, write_all};
use crate::request::PeerId;

/// Boards of one process.
pub const BOARDS_MAX: usize = MappedArea::BOARDS_MAX as usize;

/// Longest content of a step of a board, in bytes.
pub const BOARD_STEP_BYTES: usize = lockfree::board::LONG_MAX_BYTES;

/// Longest content of a step of which several have room at a time, in bytes.
pub const BOARD_PIECE_BYTES: usize = lockfree::board::MEDIUM_MAX_BYTES;

/// Steps up to that length that have room at a time.
pub const BOARD_PIECES: usize = lockfree::board::SLOTS as usize;

/// Longest piece of what members change in turn, in bytes.
pub const BOARD_COMMON_BYTES: usize = lockfree::board::COMMON_MAX_BYTES;

/// Most pieces that they change in a step.
pub const BOARD_COMMON_PIECES: usize = lockfree::board::COMMON_PIECES;

/// Longest content of a step that travels in one cache line, in bytes.
pub const BOARD_SHORT_BYTES: usize = lockfree::board::SHORT_MAX_BYTES;

/// Most that is read of another member's memory at once, in bytes.
const READ_MAX_BYTES: usize = 64 << 20;

/// Pieces of the rings of all members of a group where they are long: until the turn of each comes again, its lines have left
/// the caches of one core.
const LAP_PIECES: usize = 128;
/// Laps, at most, from one trial of stores that failed to the next.
const REST_LAPS_MAX: u32 = 1024;

/// Which boards of this process are taken.
#[derive(Default)]
pub struct BoardTable(Mutex<Table>);

#[derive(Default)]
struct Table {
    uses: [Use; BOARDS_MAX],
    /// No step of any board so far is above this.
    highest_step: u64,
    /// Offers that are out: a second one would promise the same boards.
    offer_count: u32,
}

#[derive(Default)]
enum Use {
    #[default]
    Free,
    Taken,
    /// Its group is gone here; others may still read what was shown as `last`.
    Left {
        others: Box<[Board]>,
        last: u64,
    },
}

/// What one process offers to a new group, and, the greatest of each taken over all members, what the group settles on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardOffer {
    /// By board: 1 if it can not be had.
    pub taken: [u64; BOARDS_MAX],
    /// The highest step of any board so far.
    pub highest_step: u64,
}

impl Engine {
    /// Counts a collective that goes over boards.
    #[inline]
    pub fn count_board_collective(&mut self) {
        self.core.stats.board_collectives += 1;
    }

    /// Counts one of which members read the data straight from each other's memory.
    pub fn count_straight_collective(&mut self) {
        self.core.stats.straight_collectives += 1;
    }

    /// Counts one in which members added to one value in turn.
    pub fn count_chain_collective(&mut self) {
        self.core.stats.chain_collectives += 1;
    }

    /// True if processes of this host may read each other's memory, as far as this one knows.
    pub fn may_lend(&self) -> bool {
        self.core.context.direct_copies().is_ok()
    }

    /// Lets the processes of this host read `memory`; `None` if there is no key for it now.
    pub fn lend(&mut self, memory: ReadRange) -> Option<Lent> {
        self.core.context.register(LocalMemory::Source(memory), Access::REMOTE_READ).ok().map(Lent)
    }

    /// Nobody reads it any more, or may from now on.
    pub fn end_lending(&mut self, lent: &Lent) {
        self.core.context.deregister(lent.0);
    }
}

/// Memory that the processes of this host may read.
pub struct Lent(MemoryRegion);

impl Lent {
    /// Where it is, as others name it.
    pub fn place(&self) -> LentPlace {
        LentPlace([self.0.address, self.0.rkey.0.into()])
    }
}

/// Where a member has lent memory: its address and its key, as they are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentPlace(pub [u64; 2]);

impl BoardOffer {
    /// The greater of each.
    pub fn merge(&self, other: &BoardOffer) -> BoardOffer {
        let taken = std::array::from_fn(|board| self.taken[board].max(other.taken[board]));
        BoardOffer { taken, highest_step: self.highest_step.max(other.highest_step) }
    }
}

impl BoardTable {
    /// What this process can offer now. Followed by [`BoardTable::settle`] or [`BoardTable::take_back`].
    pub fn offer(&self) -> BoardOffer {
        let mut table = self.table();
        let is_second = table.offer_count > 0;
        table.offer_count += 1;
        let mut taken = [1; BOARDS_MAX];
        for (usage, taken) in table.uses.iter_mut().zip(&mut taken) {
            if usage.is_over() {
                *usage = Use::Free;
            }
            *taken = u64::from(is_second || !matches!(usage, Use::Free));
        }
        BoardOffer { taken, highest_step: table.highest_step }
    }

    /// The offer came to nothing.
    pub fn take_back(&self) {
        self.table().offer_count -= 1;
    }

    /// The board that the members of a group, `peers` in order of rank, have in common, from what they offered together;
    /// `None` if there is none or if a member's memory is not mapped here. All members say alike whether they take turns on
    /// the processors of their host.
    pub fn settle(
        self: &Arc<Self>,
        engine: &Engine,
        peers: &[PeerId],
        offered: &BoardOffer,
        take_turns: bool,
    ) -> Option<GroupBoard> {
        self.take_back();
        let index = offered.taken.iter().position(|taken| *taken == 0)?;
        let me = peers.iter().position(|peer| *peer == engine.rank())?;
        let board = |peer: &PeerId| {
            let area = MappedArea::Board { owner: PeerIndex(*peer), board: index as u32 };
            engine.core.context.mapped(area).map(Board::new)
        };
        let boards = peers.iter().map(board).collect::<Option<Box<[Board]>>>()?;
        let mut table = self.table();
        table.highest_step = table.highest_step.max(offered.highest_step);
        table.uses[index] = Use::Taken;
        // Steps go on where the highest has been: what was shown before is never taken for a step of this group. All
        // that was shown before has been finished by those who read it, or its board would not have been free.
        let before = offered.highest_step;
        Some(GroupBoard {
            boards,
            peers: peers.into(),
            me,
            index,
            step: AtomicU64::new(before),
            finished: AtomicU64::new(before),
            long_steps: Mutex::new(LongSteps {
                places: if take_turns { Places::in_turns() } else { Places::in_a_ring(LAP_PIECES / peers.len()) },
                pace: Pace::of_short_laps(REST_LAPS_MAX),
            }),
            ahead: Ahead::default(),
            common_changes: Mutex::default(),
            reads_straight: AtomicBool::new(true),
            has_read_straight: AtomicBool::new(false),
            table: Arc::clone(self),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    /// True if nobody can still read what stands on the board of a group that is gone.
    fn is_over(&self) -> bool {
        match self {
            Use::Free | Use::Taken => false,
            Use::Left { others, last } => others.iter().all(|board| board.finished() >= *last),
        }
    }
}

/// The boards of one group, as one member holds them. One operation at a time.
pub struct GroupBoard {
    /// By rank.
    boards: Box<[Board]>,
    peers: Box<[PeerId]>,
    me: usize,
    index: usize,
    /// The last step begun.
    step: AtomicU64,
    /// A step that all members are known to have finished.
    finished: AtomicU64,
    long_steps: Mutex<LongSteps>,
    ahead: Ahead,
    common_changes: Mutex<CommonChanges>,
    /// No member has failed to read the memory of another.
    reads_straight: AtomicBool,
    /// All members have read the memory of all others.
    has_read_straight: AtomicBool,
    table: Arc<BoardTable>,
}

impl GroupBoard {
    /// Number of the next step; all members count alike.
    #[inline]
    pub fn next_step(&self) -> u64 {
        let step = self.step.load(Ordering::Relaxed) + 1;
        self.step.store(step, Ordering::Relaxed);
        step
    }

    /// Number of the step that [`GroupBoard::next_step`] would begin.
    #[inline]
    pub fn upcoming_step(&self) -> u64 {
        self.step.load(Ordering::Relaxed) + 1
    }

    /// True if `len_bytes` bytes may be shown as `step`: nobody reads what stood there before.
    #[inline]
    pub fn has_room(&self, step: u64, len_bytes: usize) -> bool {
        self.have_finished(Board::finished_before(step, len_bytes), step)
    }

    /// True if all others have finished the step `needed`; `step` is one that nobody has finished.
    #[inline]
    fn have_finished(&self, needed: u64, step: u64) -> bool {
        if self.finished.load(Ordering::Relaxed) >= needed {
            return true;
        }
        let others = self.boards.iter().enumerate().filter(|(rank, _)| *rank != self.me);
        let finished = others.map(|(_, board)| board.finished()).min().unwrap_or(step);
        self.note_finished(finished);
        finished >= needed
    }

    /// All members have finished `step`. A load and a store, as in [`GroupBoard::next_step`], not one instruction that locks: the
    /// boards are those of one operation at a time.
    #[inline]
    fn note_finished(&self, step: u64) {
        if self.finished.load(Ordering::Relaxed) < step {
            self.finished.store(step, Ordering::Relaxed);
        }
    }

    /// Shows the data of `contents`, one behind the other, and then `trailer` as `step`, for which there is room. Wakes
    /// nobody.
    #[inline]
    pub fn show(&self, step: u64, contents: &[SendBuf], trailer: &[u8]) {
        let finished = self.finished.load(Ordering::Relaxed);
        let len_bytes = contents.iter().map(SendBuf::len_bytes).sum::<u64>() as usize + trailer.len();
        let write = |mut rest: &mut [u8], stores| {
            for content in contents {
                let (space, behind) = rest.split_at_mut(content.len_bytes() as usize);
                write_all(content, 0, space, stores);
                rest = behind;
            }
            rest.copy_from_slice(trailer);
        };
        let (board, is_marked) = (&self.boards[self.me], !trailer.is_empty());
        if let Some(place) = Place::fixed(step, len_bytes) {
            return board.show(step, place, is_marked, finished, |space| write(space, Stores::Ordinary));
        }
        let mut long_steps = self.long_steps.lock().unwrap_or_else(PoisonError::into_inner);
        let LongSteps { places, pace } = &mut *long_steps;
        let place = places.take(step, len_bytes, pace.is_near());
        if place.begins_lap {
            pace.turn();
        }
        if place.is_of_longer_ring() {
            pace.grown();
        }
        let (stores, is_timed) = (pace.stores(), !place.is_new && pace.wants_sample());
        let next = place.next.clone();
        board.show(step, place, is_marked, finished, |space| {
            if !is_timed {
                return write(space, stores);
            }
            let start = Instant::now();
            write(space, stores);
            pace.note(len_bytes, start.elapsed().as_nanos() as u64);
        });
        // What is timed is timed as it is without, what is written past the caches is not to be in this one, and what may
        // still be read is left to its readers.
        let is_ahead = !next.is_empty()
            && stores == Stores::Ordinary
            && !pace.wants_sample()
            && self.has_room(step + 1, len_bytes);
        self.ahead.expect(board, if is_ahead { next } else { 0..0 });
    }

    /// This member is about to wait for what others show.
    #[inline]
    pub fn note_wait(&self) {
        self.ahead.note_wait();
    }

    /// For a moment of waiting: asks for some lines of what is likely to be shown next.
    #[inline]
    pub fn ready(&self) {
        self.ahead.ready(&self.boards[self.me]);
    }

    /// True if the member of this rank shows `step`.
    #[inline]
    pub fn is_shown(&self, rank: usize, step: u64) -> bool {
        self.boards[rank].is_shown(step)
    }

    /// True if all members show `step`; those below `checked` did when this was asked before.
    #[inline]
    pub fn is_shown_by_all(&self, step: u64, checked: &mut usize) -> bool {
        while let Some(board) = self.boards.get(*checked) {
            if !board.is_shown(step) {
                return false;
            }
            *checked += 1;
        }
        true
    }

    /// True if all other members show `step`; those below `checked` did when this was asked before.
    #[inline]
    pub fn is_shown_by_others(&self, step: u64, checked: &mut usize) -> bool {
        while let Some(board) = self.boards.get(*checked) {
            if *checked != self.me && !board.is_shown(step) {
                return false;
            }
            *checked += 1;
        }
        true
    }

    /// Bytes that the member of this rank shows as `step`, its trailer included.
    #[inline]
    pub fn len_bytes(&self, rank: usize, step: u64) -> usize {
        self.boards[rank].len_bytes(step)
    }

    /// True if the member of this rank shows a trailer in `step`.
    #[inline]
    pub fn has_trailer(&self, rank: usize, step: u64) -> bool {
        self.boards[rank].is_marked(step)
    }

    /// Lets `take` read a part of what the member of this rank shows as `step`, which is not finished here; false if
    /// less is shown.
    #[inline]
    pub fn read(&self, rank: usize, step: u64, offset: usize, len_bytes: usize, take: impl FnOnce(&[u8])) -> bool {
        self.boards[rank].read(step, offset, len_bytes, take)
    }

    /// This member is through with `step`, which all showed.
    #[inline]
    pub fn finish_common(&self, step: u64) {
        self.boards[self.me].finish(step);
        // Who shows a step has finished the one before.
        self.note_finished(step - 1);
    }

    /// This member is through with `step`, which not all showed: some may wait to hear that.
    #[inline]
    pub fn finish(&self, step: u64) {
        self.boards[self.me].finish(step);
    }

    /// True unless a member has failed to read the memory of another before.
    pub fn reads_straight(&self) -> bool {
        self.reads_straight.load(Ordering::Relaxed)
    }

    /// True once all members have read the memory of all others.
    pub fn has_read_straight(&self) -> bool {
        self.has_read_straight.load(Ordering::Relaxed)
    }

    /// All have.
    pub fn note_reading_straight(&self) {
        self.has_read_straight.store(true, Ordering::Relaxed);
    }

    /// A member has failed to.
    pub fn forgo_reading_straight(&self) {
        self.reads_straight.store(false, Ordering::Relaxed);
    }

    /// Reads what the member of this rank has lent, from `offset` on; false if the system, or the member, does not let us.
    pub fn read_lent(
        &self,
        engine: &mut Engine,
        rank: usize,
        LentPlace([address, key]): LentPlace,
        offset: u64,
        into: WriteRange,
    ) -> bool {
        let Ok(rkey) = u32::try_from(key).map(Rkey) else { return false };
        (0..into.len_bytes()).step_by(READ_MAX_BYTES).all(|done| {
            let local = into.part(done, READ_MAX_BYTES.min(into.len_bytes() - done)).expect("inside the range");
            let Some(address) = address.checked_add(offset).and_then(|start| start.checked_add(done as u64)) else {
                return false;
            };
            let read = DirectCopy::Read { local, remote: RemoteMemory { address, rkey } };
            engine.core.copy(self.peers[rank], read).is_ok()
        })
    }

    /// Wakes the other members that sleep, or `only` the one of that rank.
    #[inline]
    pub fn ring(&self, engine: &Engine, only: Option<usize>) {
        if let Some(peer) = only.and_then(|rank| self.peers.get(rank)) {
            return engine.core.context.notify(PeerIndex(*peer));
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            if rank != self.me {
                engine.core.context.notify(PeerIndex(*peer));
            }
        }
    }
}

/// What is chosen for long steps.
struct LongSteps {
    /// Where they stand.
    places: Places,
    /// With which stores they are written. Memory that is touched for the first time is not for them to answer for.
    pace: Pace,
}

impl Drop for GroupBoard {
    fn drop(&mut self) {
        let others = self.boards.iter().enumerate().filter(|(rank, _)| *rank != self.me);
        let others = others.map(|(_, board)| board.clone()).collect();
        let last = self.step.load(Ordering::Relaxed);
        let mut table = self.table.table();
        table.highest_step = table.highest_step.max(last);
        table.uses[self.index] = Use::Left { others, last };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_board_is_offered_twice_while_an_offer_is_out() {
        let table = BoardTable::default();
        assert_eq!(table.offer().taken, [0; BOARDS_MAX]);
        assert_eq!(table.offer().taken, [1; BOARDS_MAX]);
        table.take_back();
        assert_eq!(table.offer().taken, [1; BOARDS_MAX], "the first is still out");
        table.take_back();
        table.take_back();
        assert_eq!(table.offer().taken, [0; BOARDS_MAX]);
    }

    #[test]
    fn the_greater_of_two_offers_counts() {
        let mut one = BoardOffer { taken: [0; BOARDS_MAX], highest_step: 7 };
        let mut other = BoardOffer { taken: [0; BOARDS_MAX], highest_step: 3 };
        (one.taken[0], other.taken[2]) = (1, 1);
        let merged = one.merge(&other);
        assert_eq!((merged.highest_step, &merged.taken[..4]), (7, &[1, 0, 1, 0][..]));
    }
}

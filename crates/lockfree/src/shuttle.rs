//! Memory that two processes write by turns: who has read it last writes it next.
//!
//! The lines that a process has read are in the caches next to it, and some processors seem to give a line that is read
//! after it was written to the reader for good ("migratory sharing": what is read so is likely to be written next). Who
//! writes back into them waits for nobody then, where one that writes to memory of its own takes each line back from whoever
//! read it. Two processes that send messages to each other in turns, each by its ordinary stores, on an AMD EPYC of the
//! fourth generation, 64 KiB, one way: through memory of each direction's own 8.5 us where the cores share a cache and 30
//! where they share none, through such that is long enough to leave the nearest caches 2.6 and 25, through a shuttle 2.1
//! and 5.0.
//!
//! A pair of processes has two, one in the memory of each, that begins at home. A record in a block says that its payload is
//! [`Aboard`], and with the last one of a message the shuttle is its reader's. Nothing else says whose it is: a process that
//! sends and never receives has given its shuttles away, and writes to the block until they are sent back empty.
//!
//! Where lengths differ, what one side has read last and what the other need not end at the same line:
//!
//! ```text
//!   A wrote 256, and B 128 since:   ├── read last by A ──┼── by B: each line would have to be taken back ──┤ nobody's yet
//!                                   0                   128                                               256
//! ```
//! So a message that is longer than what is here goes aboard as far as that. And one that is far shorter not at all, while the
//! other shuttle is with the other side, which may send a long one there and would find its lines here. Where lengths have
//! changed for good, they are given in to.

use crate::instruction::InstructionTrial;
use crate::{CACHE_LINE_BYTES, SharedMemory};

/// Bytes in a block that say where the payload of a record lies.
pub const PLACE_BYTES: usize = size_of::<u64>();

/// Where the first line of what is aboard begins in the memory of a shuttle, in bytes. What `malloc` gives of many bytes begins 16
/// bytes into a page, and processors may take long to copy, by their own instruction, to where that is less than 32 bytes further
/// into its page than the source ([`base::copy`]).
const LEAD_BYTES: usize = CACHE_LINE_BYTES;
/// Bytes beside the longest message: those before its first line, and those it lies further into its lines.
const AROUND_BYTES: usize = LEAD_BYTES + CACHE_LINE_BYTES;

/// Where so many bytes of a shuttle would be in the wrong caches, now or for the next message, not all of one goes aboard.
const MISFIT_BYTES: usize = 8 << 10;
/// So many messages one after the other that do not suit, and the next goes aboard all the same.
const MISFITS_MAX: u8 = 16;

/// One of the two shuttles between this process and another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shuttle {
    /// The one in this process's memory.
    Here,
    /// The one in the other's.
    There,
}

impl Shuttle {
    fn other(self) -> Self {
        match self {
            Self::Here => Self::There,
            Self::There => Self::Here,
        }
    }
}

/// Where the payload of a record lies that is not in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aboard {
    /// The shuttle.
    pub shuttle: Shuttle,
    /// Where it begins there, in bytes.
    pub offset: usize,
    /// So many bytes, less than a line, all of the message lies further into its lines. Copies by the processor's own instruction
    /// are quicker where both sides lie alike.
    pub lead: u8,
    /// The shuttle is the reader's once it has read this.
    pub is_last: bool,
}

impl Aboard {
    const WITH_READER: u64 = 1;
    const LAST: u64 = 2;
    const LEAD_SHIFT: u32 = 2;
    const OFFSET_SHIFT: u32 = 8;

    /// As the writer says it to the reader.
    pub(crate) fn word(self) -> u64 {
        let with_reader = if self.shuttle == Shuttle::There { Self::WITH_READER } else { 0 };
        let last = if self.is_last { Self::LAST } else { 0 };
        let lead = u64::from(self.lead) % CACHE_LINE_BYTES as u64;
        with_reader | last | lead << Self::LEAD_SHIFT | (self.offset as u64) << Self::OFFSET_SHIFT
    }

    /// As the reader understands it.
    pub(crate) fn of(word: u64) -> Self {
        let shuttle = if word & Self::WITH_READER != 0 { Shuttle::Here } else { Shuttle::There };
        let lead = (word >> Self::LEAD_SHIFT) as u8 % CACHE_LINE_BYTES as u8;
        Self { shuttle, offset: (word >> Self::OFFSET_SHIFT) as usize, lead, is_last: word & Self::LAST != 0 }
    }

    /// Where it lies in the memory of the shuttle.
    fn place(self) -> usize {
        LEAD_BYTES + usize::from(self.lead) % CACHE_LINE_BYTES + self.offset
    }
}

/// A shuttle that has come to its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brought {
    /// Which it is.
    pub shuttle: Shuttle,
    /// Bytes of the message that were aboard.
    pub len_bytes: usize,
}

/// A shuttle that was taken for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// Which it is.
    pub shuttle: Shuttle,
    /// So many bytes of the message go aboard; the others are better written elsewhere.
    pub len_bytes: usize,
}

/// The memory of both shuttles between this process and another.
#[derive(Clone)]
pub struct Shuttles {
    here: SharedMemory,
    there: SharedMemory,
    by_instruction: Option<bool>,
}

impl Shuttles {
    /// Of the one in this process's memory and the one in the other's. Whether long messages are copied by the processor's own
    /// instruction; `None`: as is found out.
    pub fn new(here: SharedMemory, there: SharedMemory, by_instruction: Option<bool>) -> Self {
        Self { here, there, by_instruction }
    }

    /// What is known of how long messages are copied, which is nothing but what was said.
    pub(crate) fn instruction_trial(&self) -> InstructionTrial {
        InstructionTrial::of(self.by_instruction)
    }

    /// Bytes of memory for one that takes messages of `len_bytes`; none for one that takes none.
    pub const fn footprint(len_bytes: usize) -> usize {
        if len_bytes == 0 { 0 } else { AROUND_BYTES + len_bytes }
    }

    /// The longest message they take, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.here.len_bytes().min(self.there.len_bytes()).saturating_sub(AROUND_BYTES)
    }

    /// True if `len_bytes` from an offset on are inside each.
    pub(crate) fn have(&self, offset: usize, len_bytes: usize) -> bool {
        offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes())
    }

    /// Writes `len_bytes` aboard.
    ///
    /// # Panics
    /// If they are not inside.
    ///
    /// # Safety
    /// As [`SharedMemory::write`].
    pub(crate) unsafe fn write(&self, aboard: Aboard, len_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        // SAFETY: the caller's promise.
        unsafe { self.memory(aboard.shuttle).write(aboard.place(), len_bytes, fill) };
    }

    /// Shows `len_bytes` that are aboard.
    ///
    /// # Panics
    /// As [`Shuttles::write`].
    ///
    /// # Safety
    /// As [`SharedMemory::read`].
    pub(crate) unsafe fn read(&self, aboard: Aboard, len_bytes: usize, take: impl FnOnce(&[u8])) {
        // SAFETY: the caller's promise.
        unsafe { self.memory(aboard.shuttle).read(aboard.place(), len_bytes, take) };
    }

    fn memory(&self, shuttle: Shuttle) -> &SharedMemory {
        match shuttle {
            Shuttle::Here => &self.here,
            Shuttle::There => &self.there,
        }
    }
}

/// How much of a message is to go aboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// As much as suits the lines that are here. A message that they do not suit is counted, once for each call.
    Suiting,
    /// All of it, if that suits them.
    AllSuiting,
    /// All of it, wherever the lines are.
    All,
}

/// Which shuttles between this process and another this one may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldShuttles {
    here: bool,
    there: bool,
    /// The one that came last.
    last: Shuttle,
    lines: [Lines; 2],
}

/// What a process knows of the lines of a shuttle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lines {
    /// So many bytes of it were read last, or are read last when it comes, by this process.
    here_bytes: usize,
    /// So many were written when it left last.
    sent_bytes: usize,
    /// So many were ever written: nobody has read what is behind them.
    used_bytes: usize,
    /// Messages, one after the other, that this did not suit.
    misfits: u8,
}

impl Lines {
    /// Bytes of a message of `len_bytes` that would be written to lines that the other has read last.
    fn there_bytes(&self, len_bytes: usize) -> usize {
        len_bytes.min(self.used_bytes).saturating_sub(self.here_bytes)
    }

    /// How much of a message of `len_bytes` suits, which `spoils` the rest for what the other sends next if it is far shorter.
    fn fitting_bytes(&self, len_bytes: usize, spoils: bool) -> usize {
        let there_bytes = self.there_bytes(len_bytes);
        let is_far_shorter = len_bytes <= self.here_bytes / 2 && self.here_bytes - len_bytes >= MISFIT_BYTES;
        match there_bytes {
            ..MISFIT_BYTES if spoils && is_far_shorter => 0,
            ..MISFIT_BYTES => len_bytes,
            _ if self.here_bytes >= MISFIT_BYTES => self.here_bytes,
            _ => 0,
        }
    }

    fn leave(&mut self, len_bytes: usize) {
        self.sent_bytes = len_bytes;
        self.used_bytes = self.used_bytes.max(len_bytes);
    }

    fn come(&mut self, len_bytes: usize) {
        // What was behind the bytes that left stayed here.
        let stayed_bytes = if len_bytes >= self.sent_bytes { self.here_bytes } else { 0 };
        self.here_bytes = len_bytes.max(stayed_bytes);
        self.used_bytes = self.used_bytes.max(len_bytes);
    }
}

impl Default for HeldShuttles {
    /// As all begins.
    fn default() -> Self {
        Self { here: true, there: false, last: Shuttle::Here, lines: [Lines::default(); 2] }
    }
}

impl HeldShuttles {
    /// True if one is here.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.here | self.there
    }

    /// Takes one to write this `load` of a message of `len_bytes` to that is `free`: the one that came last, if about as much of it
    /// is here, or else one that takes all of it, if there is one, of which as much is here, and of two such that of which less is;
    /// where of none is, that of which most is.
    #[inline]
    pub fn take(&mut self, len_bytes: usize, load: Load, mut free: impl FnMut(Shuttle) -> bool) -> Option<Passage> {
        let last = self.last;
        let is_like_last = self.lines[last as usize].here_bytes.abs_diff(len_bytes) < MISFIT_BYTES;
        if is_like_last && self.has(last) && free(last) {
            self.lines[last as usize].misfits = 0;
            return self.leave(last, len_bytes);
        }
        self.take_best(len_bytes, load, free)
    }

    #[inline(never)]
    fn take_best(&mut self, len_bytes: usize, load: Load, free: impl FnMut(Shuttle) -> bool) -> Option<Passage> {
        let shuttle = self.best_for(len_bytes, free)?;
        let mut fitting_bytes = self.fitting_bytes(shuttle, len_bytes);
        match load {
            Load::All => return self.leave(shuttle, len_bytes),
            Load::AllSuiting if fitting_bytes < len_bytes => return None,
            Load::AllSuiting | Load::Suiting => {}
        }
        let Lines { misfits, here_bytes, .. } = &mut self.lines[shuttle as usize];
        *misfits = if fitting_bytes == len_bytes { 0 } else { *misfits + 1 };
        if *misfits > MISFITS_MAX {
            (*misfits, fitting_bytes) = (0, len_bytes);
            *here_bytes = len_bytes.min(*here_bytes);
        }
        if fitting_bytes == 0 { None } else { self.leave(shuttle, fitting_bytes) }
    }

    #[inline]
    fn leave(&mut self, shuttle: Shuttle, len_bytes: usize) -> Option<Passage> {
        let shuttle = self.take_this(shuttle)?;
        self.lines[shuttle as usize].leave(len_bytes);
        Some(Passage { shuttle, len_bytes })
    }

    fn best_for(&self, len_bytes: usize, mut free: impl FnMut(Shuttle) -> bool) -> Option<Shuttle> {
        let (last, other) = (self.last, self.last.other());
        let [of_last, of_other] = [last, other].map(|shuttle| {
            let here_bytes = self.lines[shuttle as usize].here_bytes;
            let takes_all = self.fitting_bytes(shuttle, len_bytes) == len_bytes;
            // What comes first is better.
            (!takes_all, here_bytes < len_bytes, here_bytes.abs_diff(len_bytes))
        });
        let mut shuttles = if of_other < of_last { [other, last] } else { [last, other] }.into_iter();
        shuttles.find(|shuttle| self.has(*shuttle) && free(*shuttle))
    }

    fn fitting_bytes(&self, shuttle: Shuttle, len_bytes: usize) -> usize {
        self.lines[shuttle as usize].fitting_bytes(len_bytes, !self.has(shuttle.other()))
    }

    /// Takes this one, if it is here.
    pub fn take_this(&mut self, shuttle: Shuttle) -> Option<Shuttle> {
        std::mem::take(self.place(shuttle)).then_some(shuttle)
    }

    /// True if this one is here.
    pub fn has(&self, shuttle: Shuttle) -> bool {
        match shuttle {
            Shuttle::Here => self.here,
            Shuttle::There => self.there,
        }
    }

    /// One has come; with nothing, to begin again.
    pub fn welcome(&mut self, brought: Brought) {
        let Brought { shuttle, len_bytes } = brought;
        match &mut self.lines[shuttle as usize] {
            lines if len_bytes == 0 => *lines = Lines::default(),
            lines => lines.come(len_bytes),
        }
        self.keep(shuttle);
    }

    /// One was not used, or is at home again.
    pub fn keep(&mut self, shuttle: Shuttle) {
        *self.place(shuttle) = true;
        self.last = shuttle;
    }

    fn place(&mut self, shuttle: Shuttle) -> &mut bool {
        match shuttle {
            Shuttle::Here => &mut self.here,
            Shuttle::There => &mut self.there,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{BlockReceiver, BlockSender, Record};

    const BLOCK_BYTES: usize = 4096;
    const SHUTTLE_BYTES: usize = 8192;
    const KIND: Record = Record { kind: 9, short: 5, long: 77, streamed: false, by_instruction: false, brings: None };

    /// Both ends of a channel each way between two processes.
    struct Ends {
        sender: BlockSender,
        receiver: BlockReceiver,
        held: HeldShuttles,
    }

    fn pair() -> [Ends; 2] {
        let blocks = [(); 2].map(|()| SharedMemory::private(BlockSender::footprint(BLOCK_BYTES)));
        let homes = [(); 2].map(|()| SharedMemory::private(Shuttles::footprint(SHUTTLE_BYTES)));
        [0, 1].map(|me| {
            let shuttles = Some(Shuttles::new(homes[me].clone(), homes[1 - me].clone(), None));
            let mut sender = BlockSender::new(blocks[1 - me].clone(), BLOCK_BYTES);
            sender.equip(shuttles.clone());
            let receiver = BlockReceiver::new(blocks[me].clone(), BLOCK_BYTES).equipped(shuttles);
            Ends { sender, receiver, held: HeldShuttles::default() }
        })
    }

    /// Sends bytes of this value in parts aboard the shuttle that is here.
    fn send(from: &mut Ends, parts: &[usize], value: u8) -> Option<Shuttle> {
        let Passage { shuttle, .. } = from.held.take(parts.iter().sum(), Load::Suiting, |_| true)?;
        let mut offset = 0;
        for (at, len) in parts.iter().enumerate() {
            let aboard = Aboard { shuttle, offset, lead: 16, is_last: at + 1 == parts.len() };
            assert!(from.sender.push_aboard(KIND, *len, aboard, |space, _| space.fill(value)));
            offset += len;
        }
        Some(shuttle)
    }

    #[test]
    fn what_goes_aboard_arrives_and_the_shuttle_is_its_readers() {
        let [mut one, mut other] = pair();
        let parts = [100, 0, SHUTTLE_BYTES - 100];
        let mut found = Vec::new();
        for round in 0..crate::times(200, 6) as u8 {
            // As many lines of the block as there are records, however long they are.
            found.push(send(&mut one, &parts, round));
            for (at, len) in parts.iter().enumerate() {
                assert_eq!(other.receiver.peek().map(|(_, len)| len), Some(*len));
                let popped = other.receiver.pop(|record, payload| {
                    let brings = record.brings;
                    assert_eq!(Record { brings: None, ..record }, KIND);
                    assert!(payload.len() == *len && payload.iter().all(|byte| *byte == round));
                    assert_eq!(brings.is_some(), at == 2, "with the last of them");
                    let end = SHUTTLE_BYTES;
                    assert!(brings.is_none_or(|brought| brought.len_bytes == end));
                    brings.into_iter().for_each(|brought| other.held.welcome(brought));
                });
                assert!(popped);
            }
            assert!(!other.receiver.pop(|_, _| panic!("nothing more was sent")));
            other.receiver.return_credits(false);
            std::mem::swap(&mut one, &mut other);
        }
        // Who answers writes into the one that has come: that of the first, which is at home with every second message.
        assert_eq!(found[..3], [Shuttle::Here, Shuttle::There, Shuttle::Here].map(Some));
        assert!(found.chunks(2).all(|two| two == &found[..2]));
        let at_once = [&mut one, &mut other].map(|ends| send(ends, &[8], 1));
        assert_eq!(at_once, [Some(Shuttle::Here); 2], "both are at home");
        assert_eq!(one.held.take(8, Load::Suiting, |_| true), None);
    }

    const KIB: usize = 1 << 10;

    /// Those between two processes: which is taken, and how much of the message goes aboard.
    fn take(held: &mut HeldShuttles, len_kib: usize) -> Option<(Shuttle, usize)> {
        held.take(len_kib * KIB, Load::Suiting, |_| true).map(|passage| (passage.shuttle, passage.len_bytes / KIB))
    }

    fn welcome(held: &mut HeldShuttles, shuttle: Shuttle, len_kib: usize) {
        held.welcome(Brought { shuttle, len_bytes: len_kib * KIB });
    }

    /// What the other side has read last would have to be taken back from it, line by line.
    #[test]
    fn a_message_goes_where_as_much_has_come() {
        let taken = |brought: [usize; 2], len_kib| {
            let mut held = HeldShuttles::default();
            welcome(&mut held, Shuttle::Here, brought[0]);
            welcome(&mut held, Shuttle::There, brought[1]);
            take(&mut held, len_kib)
        };
        for (brought, len_kib, expected) in [
            ([64, 32], 64, Shuttle::Here),
            ([64, 32], 32, Shuttle::There),
            ([32, 64], 32, Shuttle::Here),
            ([64, 32], 16, Shuttle::There),
            ([32, 64], 16, Shuttle::Here),
            ([64, 32], 128, Shuttle::Here),
            ([32, 64], 128, Shuttle::There),
            ([64, 64], 64, Shuttle::There),
            // About as much is as good.
            ([64, 58], 64, Shuttle::There),
        ] {
            assert_eq!(taken(brought, len_kib), Some((expected, len_kib)), "{len_kib} of {brought:?}");
        }
        let mut held = HeldShuttles::default();
        welcome(&mut held, Shuttle::There, 64);
        assert_eq!([64, 64].map(|len| take(&mut held, len)), [Shuttle::There, Shuttle::Here].map(|it| Some((it, 64))));
        held.keep(Shuttle::Here);
        assert_eq!(held.take(64, Load::Suiting, |shuttle| shuttle == Shuttle::There), None, "it is with the other");
    }

    #[test]
    fn what_the_other_has_read_last_is_written_only_if_lengths_have_changed_for_good() {
        let mut held = HeldShuttles::default();
        assert_eq!(take(&mut held, 256), Some((Shuttle::Here, 256)), "nobody has read anything");
        welcome(&mut held, Shuttle::Here, 128);
        for _ in 0..MISFITS_MAX / 2 {
            assert_eq!(take(&mut held, 256), Some((Shuttle::Here, 128)), "as far as the other wrote");
            welcome(&mut held, Shuttle::Here, 128);
            assert_eq!(take(&mut held, 100), Some((Shuttle::Here, 100)));
            welcome(&mut held, Shuttle::Here, 128);
        }
        let always = (0..=MISFITS_MAX).map(|_| {
            let taken = take(&mut held, 256);
            welcome(&mut held, Shuttle::Here, 128);
            taken
        });
        let whole = always.filter(|taken| *taken == Some((Shuttle::Here, 256))).count();
        assert_eq!(whole, 1, "the last of them");
        assert_eq!(take(&mut held, 300), Some((Shuttle::Here, 128)));
        welcome(&mut held, Shuttle::Here, 4);
        assert_eq!(take(&mut held, 256), None, "so little is not worth while");
        assert_eq!(take(&mut held, 11), Some((Shuttle::Here, 11)), "so little is taken back");
    }

    /// As both sides take them in messages there and back: what is behind a short one stays with who has read it.
    #[test]
    fn a_short_message_and_its_answer_leave_the_rest_where_it_was() {
        let mut held = HeldShuttles::default();
        welcome(&mut held, Shuttle::There, 1);
        welcome(&mut held, Shuttle::Here, 64);
        for len in [64, 16, 64, 32, 20, 64] {
            assert_eq!(take(&mut held, len), Some((Shuttle::Here, len)));
            welcome(&mut held, Shuttle::Here, len);
        }
    }

    /// As both sides take them where messages cross, each of which finds the other's shuttle only.
    #[test]
    fn a_short_message_does_not_go_where_the_other_may_send_a_long_one_next() {
        let mut held = HeldShuttles::default();
        welcome(&mut held, Shuttle::Here, 256);
        assert_eq!(take(&mut held, 32), None);
        assert_eq!(take(&mut held, 200), Some((Shuttle::Here, 200)));
        welcome(&mut held, Shuttle::Here, 256);
        let short = (0..=MISFITS_MAX).filter(|_| take(&mut held, 32).is_some()).count();
        assert_eq!(short, 1, "the last of them: there are only short ones now");
        welcome(&mut held, Shuttle::Here, 32);
        assert_eq!(take(&mut held, 32), Some((Shuttle::Here, 32)));
    }

    #[test]
    fn who_asks_for_all_that_suits_again_and_again_is_not_given_in_to() {
        let mut held = HeldShuttles::default();
        assert_eq!(take(&mut held, 256), Some((Shuttle::Here, 256)));
        welcome(&mut held, Shuttle::Here, 128);
        let mut all = |len_kib| held.take(len_kib * KIB, Load::AllSuiting, |_| true);
        assert!((0..=MISFITS_MAX).all(|_| all(256).is_none()));
        assert!(all(128).is_some());
        welcome(&mut held, Shuttle::Here, 128);
        assert_eq!(take(&mut held, 256), Some((Shuttle::Here, 128)), "none of those was counted");
    }

    #[test]
    fn one_that_comes_with_nothing_begins_again() {
        let mut held = HeldShuttles::default();
        assert_eq!(take(&mut held, 256), Some((Shuttle::Here, 256)));
        welcome(&mut held, Shuttle::Here, 0);
        assert_eq!(take(&mut held, 512), Some((Shuttle::Here, 512)));
    }

    #[test]
    fn a_record_without_room_leaves_the_shuttle_as_it_was() {
        let [mut one, _] = pair();
        while one.sender.push(KIND, 8, |_| ()) {}
        let aboard = Aboard { shuttle: Shuttle::Here, offset: 0, lead: 0, is_last: true };
        assert!(!one.sender.push_aboard(KIND, 8, aboard, |_, _| panic!("there is no room for what announces it")));
    }

    #[test]
    fn nothing_is_read_outside_of_a_shuttle_whatever_the_sender_says() {
        let word = |offset: u64| offset << Aboard::OFFSET_SHIFT | Aboard::WITH_READER;
        let end = SHUTTLE_BYTES as u64;
        for (len, offset, is_taken) in [
            (64, 0, true),
            (64, end - 64, true),
            (64, end - 63, false),
            (1, end, false),
            (end as usize + 1, 0, false),
            ((1 << 30) - 1, 64, false),
            (64, u64::MAX >> Aboard::OFFSET_SHIFT, false),
        ] {
            let [mut one, mut other] = pair();
            let place = word(offset);
            let record = Record { kind: 9, ..Record::default() };
            assert!(one.sender.push_claiming(record, len, place));
            assert_eq!(other.receiver.pop(|_, payload| assert_eq!(payload.len(), len)), is_taken, "{len} at {offset}");
            let mut without = BlockReceiver::new(one.sender.memory().clone(), BLOCK_BYTES);
            assert!(!without.pop(|_, _| panic!("there are no shuttles")));
        }
    }
}

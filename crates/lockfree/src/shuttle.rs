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
//! sends and never receives has given its shuttles away, and writes to the block.

use crate::{CACHE_LINE_BYTES, SharedMemory};

/// Bytes in a block that say where the payload of a record lies.
pub const PLACE_BYTES: usize = size_of::<u64>();

/// Where what is aboard begins in the memory of a shuttle, in bytes. What `malloc` gives of many bytes begins 16 bytes into a
/// page, and processors may take long to copy, by their own instruction, to where that is less than 32 bytes further into its
/// page than the source ([`base::copy`]).
const LEAD_BYTES: usize = CACHE_LINE_BYTES;

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
    /// The shuttle is the reader's once it has read this.
    pub is_last: bool,
}

impl Aboard {
    const WITH_READER: u64 = 1;
    const LAST: u64 = 2;
    const OFFSET_SHIFT: u32 = 8;

    /// As the writer says it to the reader.
    pub(crate) fn word(self) -> u64 {
        let with_reader = if self.shuttle == Shuttle::There { Self::WITH_READER } else { 0 };
        let last = if self.is_last { Self::LAST } else { 0 };
        with_reader | last | (self.offset as u64) << Self::OFFSET_SHIFT
    }

    /// As the reader understands it.
    pub(crate) fn of(word: u64) -> Self {
        let shuttle = if word & Self::WITH_READER != 0 { Shuttle::Here } else { Shuttle::There };
        Self { shuttle, offset: (word >> Self::OFFSET_SHIFT) as usize, is_last: word & Self::LAST != 0 }
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

/// The memory of both shuttles between this process and another.
#[derive(Clone)]
pub struct Shuttles {
    here: SharedMemory,
    there: SharedMemory,
}

impl Shuttles {
    /// Of the one in this process's memory and the one in the other's.
    pub fn new(here: SharedMemory, there: SharedMemory) -> Self {
        Self { here, there }
    }

    /// Bytes of memory for one that takes messages of `len_bytes`; none for one that takes none.
    pub const fn footprint(len_bytes: usize) -> usize {
        if len_bytes == 0 { 0 } else { LEAD_BYTES + len_bytes }
    }

    /// The longest message they take, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.here.len_bytes().min(self.there.len_bytes()).saturating_sub(LEAD_BYTES)
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
        unsafe { self.memory(aboard.shuttle).write(LEAD_BYTES + aboard.offset, len_bytes, fill) };
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
        unsafe { self.memory(aboard.shuttle).read(LEAD_BYTES + aboard.offset, len_bytes, take) };
    }

    fn memory(&self, shuttle: Shuttle) -> &SharedMemory {
        match shuttle {
            Shuttle::Here => &self.here,
            Shuttle::There => &self.there,
        }
    }
}

/// Which shuttles between this process and another this one may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldShuttles {
    here: bool,
    there: bool,
    /// The one that came last.
    last: Shuttle,
    /// Bytes that came in each when it came last: so many are in the caches next to this process.
    brought_bytes: [usize; 2],
}

impl Default for HeldShuttles {
    /// As all begins.
    fn default() -> Self {
        Self { here: true, there: false, last: Shuttle::Here, brought_bytes: [0; 2] }
    }
}

impl HeldShuttles {
    /// True if one is here.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.here | self.there
    }

    /// Takes one to write a message of `len_bytes` to that `suits`: the one in which as much has come, and of two such that in
    /// which less has; where none has, that in which most has; of two alike the one that came last.
    pub fn take(&mut self, len_bytes: usize, mut suits: impl FnMut(Shuttle) -> bool) -> Option<Shuttle> {
        let (last, other) = (self.last, self.last.other());
        let [of_last, of_other] = [last, other].map(|shuttle| {
            let brought_bytes = self.brought_bytes[shuttle as usize];
            // What comes first is better.
            (brought_bytes < len_bytes, brought_bytes.abs_diff(len_bytes))
        });
        let mut shuttles = if of_other < of_last { [other, last] } else { [last, other] }.into_iter();
        let shuttle = shuttles.find(|shuttle| self.has(*shuttle) && suits(*shuttle))?;
        self.take_this(shuttle)
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

    /// One has come.
    pub fn welcome(&mut self, brought: Brought) {
        self.brought_bytes[brought.shuttle as usize] = brought.len_bytes;
        self.keep(brought.shuttle);
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
            let shuttles = Some(Shuttles::new(homes[me].clone(), homes[1 - me].clone()));
            let mut sender = BlockSender::new(blocks[1 - me].clone(), BLOCK_BYTES);
            sender.equip(shuttles.clone());
            let receiver = BlockReceiver::new(blocks[me].clone(), BLOCK_BYTES).equipped(shuttles);
            Ends { sender, receiver, held: HeldShuttles::default() }
        })
    }

    /// Sends bytes of this value in parts aboard the shuttle that is here.
    fn send(from: &mut Ends, parts: &[usize], value: u8) -> Option<Shuttle> {
        let shuttle = from.held.take(parts.iter().sum(), |_| true)?;
        let mut offset = 0;
        for (at, len) in parts.iter().enumerate() {
            let aboard = Aboard { shuttle, offset, is_last: at + 1 == parts.len() };
            assert!(from.sender.push_aboard(KIND, *len, aboard, |space| space.fill(value)));
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
        assert_eq!(one.held.take(8, |_| true), None);
    }

    /// What the other side has read last would have to be taken back from it, line by line.
    #[test]
    fn a_message_goes_where_as_much_has_come() {
        let taken = |brought: [usize; 2], len_bytes| {
            let mut held = HeldShuttles::default();
            for (shuttle, len_bytes) in [Shuttle::Here, Shuttle::There].into_iter().zip(brought) {
                held.welcome(Brought { shuttle, len_bytes });
            }
            held.take(len_bytes, |_| true)
        };
        for (brought, len_bytes, expected) in [
            ([64, 32], 64, Shuttle::Here),
            ([64, 32], 32, Shuttle::There),
            ([32, 64], 32, Shuttle::Here),
            ([64, 32], 16, Shuttle::There),
            ([32, 64], 16, Shuttle::Here),
            ([64, 32], 128, Shuttle::Here),
            ([32, 64], 128, Shuttle::There),
            ([64, 64], 64, Shuttle::There),
        ] {
            assert_eq!(taken(brought, len_bytes), Some(expected), "{len_bytes} of {brought:?}");
        }
        let mut held = HeldShuttles::default();
        held.welcome(Brought { shuttle: Shuttle::There, len_bytes: 64 });
        assert_eq!([64, 64].map(|len| held.take(len, |_| true)), [Shuttle::There, Shuttle::Here].map(Some));
        held.keep(Shuttle::Here);
        assert_eq!(held.take(64, |shuttle| shuttle == Shuttle::There), None, "it is with the other");
    }

    #[test]
    fn a_record_without_room_leaves_the_shuttle_as_it_was() {
        let [mut one, _] = pair();
        while one.sender.push(KIND, 8, |_| ()) {}
        let aboard = Aboard { shuttle: Shuttle::Here, offset: 0, is_last: true };
        assert!(!one.sender.push_aboard(KIND, 8, aboard, |_| panic!("there is no room for what announces it")));
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

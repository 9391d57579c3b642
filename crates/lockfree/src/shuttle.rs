//! Memory that two processes write by turns: who has read it last writes it next.
//!
//! The lines that a process has read are in the caches next to it, and some processors even give a line that is read
//! after it was written to the reader for good ("migratory sharing": what is read so is likely to be written next). Who
//! writes back into them waits for nobody, where one that writes to memory of its own takes each line back from whoever
//! read it. Two processes that send messages to each other in turns, each by its ordinary stores, on an AMD EPYC of the
//! fourth generation, 64 KiB, one way: through memory of each direction's own 8.5 us where the cores share a cache and 30
//! where they share none, through such that is long enough to leave the nearest caches 2.6 and 25, through a shuttle 2.1
//! and 5.0.
//!
//! A pair of processes has two, one in the memory of each, that begins at home. A record in a block says that its payload is
//! [`Aboard`], and with the last one of a message the shuttle is its reader's. Nothing else says whose it is: a process that
//! sends and never receives has given its shuttles away, and writes to the block.

use crate::SharedMemory;

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

    /// The longest message they take, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.here.len_bytes().min(self.there.len_bytes())
    }

    pub(crate) fn memory(&self, shuttle: Shuttle) -> &SharedMemory {
        match shuttle {
            Shuttle::Here => &self.here,
            Shuttle::There => &self.there,
        }
    }
}

/// Which shuttles between this process and another this one may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    here: bool,
    there: bool,
    /// The one that came last.
    last: Shuttle,
}

impl Default for Held {
    /// As all begins.
    fn default() -> Self {
        Self { here: true, there: false, last: Shuttle::Here }
    }
}

impl Held {
    /// Takes one to write to: the one that came last, if it is still here.
    pub fn take(&mut self) -> Option<Shuttle> {
        self.take_this(self.last).or_else(|| self.take_this(self.last.other()))
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

    /// One has come, or was not used.
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

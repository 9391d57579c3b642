//! What a VI and the VI it is connected to write into each other's memory.
//!
//! ```text
//!   in my segment, written by the other side
//!   posted | tail | wanted | closed       its receives, the end of its descriptors, its hunger for mine, its farewell
//!   busy                                  it is storing into my memory just now
//!   descriptors                           its receive descriptors, pushed several at a time
//!   completions                           messages that have arrived in my memory
//!   services | answers                    copies it asks my event manager for; what became of those I asked for
//! ```
//! Paper: via2sisci §1.4.3, §1.4.4. Each word has one writer, the other side, and each ring is a row of entries with ever
//! growing numbers, of which the number is stored last. **What is read is hostile until parsed**; nothing written here is
//! read back by its writer.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use lockfree::SharedMemory;

use crate::descriptor::{DataSegment, MemoryHandle, SEGMENTS_PER_DESCRIPTOR_MAX};
use crate::status::Status;

/// Most receive descriptors that lie at the other side and are not used.
pub const DESCRIPTORS_MAX: usize = 256;
/// Messages that lie at the other side and were not looked at: one for each receive, and the error that ends the connection.
const ARRIVALS_MAX: usize = DESCRIPTORS_MAX + 1;
/// Services that may be asked for and not answered.
pub const SERVICES_MAX: u64 = 64;

const POSTED: usize = 0;
const TAIL: usize = 8;
const CLOSED: usize = 16;
pub(crate) const WANTED: usize = 64;
pub(crate) const BUSY: usize = 72;
const COMPLETIONS: usize = 128;
const COMPLETION_BYTES: usize = 32;
const SERVICES: usize = COMPLETIONS + ARRIVALS_MAX * COMPLETION_BYTES;
const SERVICE_BYTES: usize = 32;
const ANSWERS: usize = SERVICES + SERVICES_MAX as usize * SERVICE_BYTES;
const ANSWER_BYTES: usize = 16;
const DESCRIPTORS: usize = ANSWERS + SERVICES_MAX as usize * ANSWER_BYTES;
/// Words of the descriptors' ring.
const RING_WORDS: u64 = 4096;
/// Bytes of the segment of a VI.
pub const FOOTPRINT: usize = (DESCRIPTORS + RING_WORDS as usize * 8).next_multiple_of(64);

/// What the other side wrote makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense(pub &'static str);

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Operation, errors, whether there are immediate data.
    pub status: Status,
    /// Bytes of it.
    pub len_bytes: u32,
    /// Immediate data.
    pub immediate: u32,
}

/// A copy between memory and its shadow that the other side asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Into the shadow, for a read; else out of it, after a write.
    pub into_shadow: bool,
    /// Which memory, with how many bytes.
    pub place: DataSegment,
}

/// The words that one descriptor takes in the ring.
pub fn words_of(segment_count: usize) -> u64 {
    1 + 2 * segment_count as u64
}

/// What the other side writes, as read here.
pub struct Inbound {
    memory: SharedMemory,
    /// Words of descriptors that were read.
    head: u64,
    arrivals: u64,
    services: u64,
    answers: u64,
}

/// What is written there, to be read by the other side.
pub struct Outbound {
    memory: SharedMemory,
    tail: u64,
    posted: u64,
    wanted: u64,
    arrivals: u64,
    services: u64,
    answers: u64,
}

impl Inbound {
    /// In the zeroed segment of this side.
    pub fn new(memory: SharedMemory) -> Self {
        assert!(memory.len_bytes() >= FOOTPRINT, "the segment of a VI has this length");
        Self { memory, head: 0, arrivals: 0, services: 0, answers: 0 }
    }

    /// Receives that the other side has posted since the connection was made.
    pub fn posted(&self) -> u64 {
        self.memory.word(POSTED).load(Acquire)
    }

    /// How often the other side has run out of descriptors while there were some.
    pub fn wanted(&self) -> u64 {
        self.memory.word(WANTED).load(Acquire)
    }

    /// The other side has disconnected.
    pub fn is_closed(&self) -> bool {
        self.memory.word(CLOSED).load(Acquire) != 0
    }

    /// The other side is storing into memory of this one. After this side's farewell ([`Outbound::close`]) it does not begin
    /// to.
    pub fn is_busy(&self) -> bool {
        self.memory.word(BUSY).load(Acquire) != 0
    }

    /// The next receive descriptor of the other side into `list`; false if it has pushed no more.
    ///
    /// # Errors
    /// If there is something that is none.
    pub fn descriptor(&mut self, list: &mut Vec<DataSegment>) -> Result<bool, Nonsense> {
        let filled = self.memory.word(TAIL).load(Acquire).wrapping_sub(self.head);
        if filled == 0 {
            return Ok(false);
        }
        let first = self.word(0).load(Relaxed);
        let count = first as usize & 0xFFFF;
        if filled > RING_WORDS || count > SEGMENTS_PER_DESCRIPTOR_MAX || words_of(count) > filled || first >> 16 != 0 {
            return Err(Nonsense("a receive descriptor does not fit its buffer"));
        }
        list.clear();
        for index in 0..count as u64 {
            let [name, address] = [1, 2].map(|part| self.word(2 * index + part).load(Relaxed));
            list.push(DataSegment { address, handle: MemoryHandle(name as u32), len_bytes: (name >> 32) as u32 });
        }
        self.head += words_of(count);
        Ok(true)
    }

    /// The next message that has arrived.
    pub fn arrival(&mut self) -> Option<Arrival> {
        let entry = COMPLETIONS + self.arrivals as usize % ARRIVALS_MAX * COMPLETION_BYTES;
        if self.memory.word(entry).load(Acquire) != self.arrivals + 1 {
            return None;
        }
        self.arrivals += 1;
        let [first, immediate] = [8, 16].map(|part| self.memory.word(entry + part).load(Relaxed));
        let status = Status::of_bits(first as u32);
        Some(Arrival { status, len_bytes: (first >> 32) as u32, immediate: immediate as u32 })
    }

    /// The next copy that is asked for.
    pub fn service(&mut self) -> Option<Service> {
        let entry = SERVICES + (self.services % SERVICES_MAX) as usize * SERVICE_BYTES;
        if self.memory.word(entry).load(Acquire) != self.services + 1 {
            return None;
        }
        self.services += 1;
        let [first, address, len] = [8, 16, 24].map(|part| self.memory.word(entry + part).load(Relaxed));
        let place = DataSegment { address, handle: MemoryHandle(first as u32), len_bytes: len as u32 };
        Some(Service { into_shadow: first >> 32 & 1 != 0, place })
    }

    /// What became of the copy that was asked for first and not answered: whether it was made.
    pub fn answer(&mut self) -> Option<bool> {
        let entry = ANSWERS + (self.answers % SERVICES_MAX) as usize * ANSWER_BYTES;
        if self.memory.word(entry).load(Acquire) != self.answers + 1 {
            return None;
        }
        self.answers += 1;
        Some(self.memory.word(entry + 8).load(Relaxed) == 1)
    }

    /// The memory, for a test that plays a peer that writes what it likes.
    #[cfg(test)]
    pub fn shared(&self) -> SharedMemory {
        self.memory.clone()
    }

    fn word(&self, ahead: u64) -> &AtomicU64 {
        ring_word(&self.memory, self.head.wrapping_add(ahead))
    }
}

impl Outbound {
    /// In the segment of the other side.
    ///
    /// # Errors
    /// If it is too short.
    pub fn new(memory: SharedMemory) -> Result<Self, Nonsense> {
        if memory.len_bytes() < FOOTPRINT {
            return Err(Nonsense("the segment of a VI is too short"));
        }
        Ok(Self { memory, tail: 0, posted: 0, wanted: 0, arrivals: 0, services: 0, answers: 0 })
    }

    /// Another receive was posted; it need not be pushed yet.
    pub fn post(&mut self) {
        self.posted += 1;
        self.memory.word(POSTED).store(self.posted, Release);
    }

    /// Pushes receive descriptors, all of which become visible at once. The caller keeps count of the ring: there is room.
    pub fn push<'a>(&mut self, descriptors: impl Iterator<Item = &'a [DataSegment]>) {
        for list in descriptors {
            ring_word(&self.memory, self.tail).store(list.len() as u64, Relaxed);
            for (index, segment) in (0..).zip(list) {
                let name = u64::from(segment.handle.0) | u64::from(segment.len_bytes) << 32;
                ring_word(&self.memory, self.tail + 2 * index + 1).store(name, Relaxed);
                ring_word(&self.memory, self.tail + 2 * index + 2).store(segment.address, Relaxed);
            }
            self.tail += words_of(list.len());
        }
        self.memory.word(TAIL).store(self.tail, Release);
    }

    /// Descriptors are wanted: some were posted and are not here.
    pub fn want(&mut self) {
        self.wanted += 1;
        self.memory.word(WANTED).store(self.wanted, Release);
    }

    /// A message was stored at the place of the next receive descriptor.
    pub fn arrive(&mut self, arrival: Arrival) {
        let entry = COMPLETIONS + self.arrivals as usize % ARRIVALS_MAX * COMPLETION_BYTES;
        self.arrivals += 1;
        let first = u64::from(arrival.status.bits()) | u64::from(arrival.len_bytes) << 32;
        self.memory.word(entry + 8).store(first, Relaxed);
        self.memory.word(entry + 16).store(arrival.immediate.into(), Relaxed);
        self.memory.word(entry).store(self.arrivals, Release);
    }

    /// Asks for a copy. The caller keeps count: no more than [`SERVICES_MAX`] are unanswered.
    pub fn ask(&mut self, service: Service) {
        let entry = SERVICES + (self.services % SERVICES_MAX) as usize * SERVICE_BYTES;
        self.services += 1;
        let first = u64::from(service.place.handle.0) | u64::from(service.into_shadow) << 32;
        self.memory.word(entry + 8).store(first, Relaxed);
        self.memory.word(entry + 16).store(service.place.address, Relaxed);
        self.memory.word(entry + 24).store(service.place.len_bytes.into(), Relaxed);
        self.memory.word(entry).store(self.services, Release);
    }

    /// Answers a request for a copy.
    pub fn answer(&mut self, made: bool) {
        let entry = ANSWERS + (self.answers % SERVICES_MAX) as usize * ANSWER_BYTES;
        self.answers += 1;
        self.memory.word(entry + 8).store(made.into(), Relaxed);
        self.memory.word(entry).store(self.answers, Release);
    }

    /// Says farewell.
    pub fn close(&self) {
        self.memory.word(CLOSED).store(1, Release);
        // Pairs with the fence in `begin`: either the other side sees the farewell before it moves anything, or this side
        // sees that it is busy.
        fence(SeqCst);
    }

    /// From now on this side stores into memory of the other one, unless its farewell is seen afterwards.
    pub fn begin(&self) {
        self.memory.word(BUSY).store(1, Relaxed);
        fence(SeqCst);
    }

    /// It does not any more.
    pub fn end(&self) {
        self.memory.word(BUSY).store(0, Release);
    }
}

/// Whether descriptors with so many words fit beside `used` words that are not known to be read.
pub fn has_room(used: u64, words: u64) -> bool {
    used + words <= RING_WORDS
}

fn ring_word(memory: &SharedMemory, at: u64) -> &AtomicU64 {
    memory.word(DESCRIPTORS + (at % RING_WORDS) as usize * 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair() -> (Outbound, Inbound) {
        let memory = SharedMemory::private(FOOTPRINT);
        (Outbound::new(memory.clone()).unwrap(), Inbound::new(memory))
    }

    fn segment(at: u64) -> DataSegment {
        DataSegment { address: at << 40 | 0xFFF, handle: MemoryHandle(at as u32 ^ 0xFFFF_0000), len_bytes: at as u32 }
    }

    #[test]
    fn descriptors_of_any_length_come_out_as_they_went_in_round_and_round() {
        let (mut out, mut inn) = pair();
        let mut list = Vec::new();
        for round in (0..400u64).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let lists: Vec<Vec<DataSegment>> = (0..=round % 4)
                .map(|more| (0..(round * 7 + more) % 253).map(|at| segment(at + round)).collect())
                .collect();
            out.push(lists.iter().map(Vec::as_slice));
            for expected in &lists {
                assert_eq!(inn.descriptor(&mut list), Ok(true));
                assert_eq!(&list, expected);
            }
            assert_eq!(inn.descriptor(&mut list), Ok(false));
        }
    }

    #[test]
    fn arrivals_services_and_answers_keep_their_order() {
        let (mut out, mut inn) = pair();
        for round in 0..if cfg!(miri) { 20 } else { 1000 } {
            let status = Status::of_bits(round & 0x8_01FF);
            let arrival = Arrival { status, len_bytes: round, immediate: !round };
            let service = Service { into_shadow: round % 2 == 0, place: segment(round.into()) };
            assert!(inn.arrival().is_none() && inn.service().is_none() && inn.answer().is_none());
            out.arrive(arrival);
            out.ask(service);
            out.answer(round % 3 == 0);
            out.post();
            assert_eq!(
                (inn.arrival(), inn.service(), inn.answer()),
                (Some(arrival), Some(service), Some(round % 3 == 0))
            );
            assert_eq!(inn.posted(), u64::from(round) + 1);
        }
        assert!(!inn.is_closed() && inn.wanted() == 0);
        out.close();
        out.want();
        assert!(inn.is_closed() && inn.wanted() == 1);
    }

    proptest! {
        /// Whatever stands there: no panic, no list beyond its limit, and an end.
        #[test]
        fn whatever_a_peer_writes_is_parsed_or_refused(
            words in prop::collection::vec((0..FOOTPRINT / 8, any::<u64>()), 0..200),
            small in prop::collection::vec((0..FOOTPRINT / 8, 0..600u64), 0..200),
        ) {
            let memory = SharedMemory::private(FOOTPRINT);
            let mut inn = Inbound::new(memory.clone());
            for (at, value) in words.into_iter().chain(small) {
                memory.word(at * 8).store(value, Relaxed);
                let mut list = Vec::new();
                let mut count = 0;
                while let Ok(true) = inn.descriptor(&mut list) {
                    prop_assert!(list.len() <= SEGMENTS_PER_DESCRIPTOR_MAX);
                    count += 1;
                    prop_assert!(count <= RING_WORDS);
                }
                while inn.arrival().is_some() {}
                while inn.service().is_some() {}
                while inn.answer().is_some() {}
            }
        }
    }
}

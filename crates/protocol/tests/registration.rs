//! The registration cache against a naive one, against a device that pins pages, and against the memory map itself.

use std::collections::BTreeMap;

use base::address_watch::AddressWatch;
use base::memory::{ReadRange, WriteRange};
use fabric::{Access, FabricError, Lkey, LocalMemory, MemoryRegion, Rkey, Translation};
use proptest::prelude::*;
use protocol::registration::{self, CacheLimits, CacheStats, Registrar, Registration, RegistrationCache, Scheme};

const NO_LIMITS: CacheLimits = CacheLimits { entries_max: usize::MAX, bytes_max: u64::MAX };

/// A device that knows what is registered, and which pages lay there then.
#[derive(Default)]
struct Table {
    live: BTreeMap<u32, Region>,
    next: u32,
    room: usize,
    /// How often each page has been replaced, from this address on.
    pages: Vec<u64>,
    pages_start: u64,
    failures: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Region {
    kind: usize,
    start: u64,
    end: u64,
    /// The pages it pins.
    pages: Vec<u64>,
}

impl Table {
    fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Which of the pages these bytes lie on.
    fn pages_of(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let page = |address: u64| ((address - self.pages_start) / PAGE_BYTES as u64) as usize;
        if self.pages.is_empty() { 0..0 } else { page(start)..page(end - 1) + 1 }
    }

    /// True if a key names pages that do not lie at these bytes now.
    fn is_stale(&self, registration: &Registration) -> bool {
        let (start, len) = (registration.region.address, registration.region.len_bytes);
        let pinned = &self.live[&registration.region.rkey.0];
        let first_pinned = self.pages_of(pinned.start, pinned.end).start;
        self.pages_of(start, start + len).any(|page| pinned.pages[page - first_pinned] != self.pages[page])
    }

    fn replace(&mut self, pages: std::ops::Range<usize>) {
        self.pages[pages].iter_mut().for_each(|page| *page += 1);
    }
}

impl Registrar for Table {
    fn register_memory(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        if self.live.len() >= self.room {
            self.failures += 1;
            return Err(FabricError::Exhausted { object: "memory regions", max: self.room as u32 });
        }
        self.next += 1;
        let (start, len_bytes) = (memory.address() as u64, memory.len_bytes() as u64);
        let kind = KINDS.iter().position(|kind| *kind == (matches!(memory, LocalMemory::Target(_)), access)).unwrap();
        let pages = self.pages[self.pages_of(start, start + len_bytes)].to_vec();
        self.live.insert(self.next, Region { kind, start, end: start + len_bytes, pages });
        Ok(MemoryRegion { address: start, len_bytes, lkey: Lkey(self.next), rkey: Rkey(self.next) })
    }

    fn deregister_memory(&mut self, region: MemoryRegion) {
        let ended = self.live.remove(&region.rkey.0).expect("registered once, deregistered once");
        assert_eq!(
            (ended.start, ended.end),
            (region.address, region.address + region.len_bytes),
            "as it was registered"
        );
    }
}

const KINDS: [(bool, Access); 3] =
    [(false, Access::REMOTE_READ), (true, Access::REMOTE_READ), (true, Access::REMOTE_WRITE)];

/// `len` bytes at `start` of nothing: the device of these tests does not touch them.
fn memory(kind: usize, start: u64, len: u64) -> LocalMemory {
    if KINDS[kind].0 {
        // SAFETY: nobody touches the bytes.
        LocalMemory::Target(unsafe { WriteRange::new(start as *mut u8, len as usize) })
    } else {
        // SAFETY: as above.
        LocalMemory::Source(unsafe { ReadRange::new(start as *const u8, len as usize) })
    }
}

/// One entry of the naive cache.
#[derive(Clone, Copy, Debug)]
struct Kept {
    kind: usize,
    start: u64,
    end: u64,
    uses: u32,
    last_use: u64,
    indexed: bool,
    number: u64,
}

/// The same cache, by looking at everything every time.
struct Naive {
    scheme: Scheme,
    limits: CacheLimits,
    room: usize,
    kept: Vec<Kept>,
    time: u64,
    stats: CacheStats,
}

impl Naive {
    fn acquire(&mut self, kind: usize, start: u64, end: u64) -> Option<u64> {
        self.time += 1;
        let covers = |kept: &Kept| match self.scheme {
            Scheme::Interval => kept.start <= start && kept.end >= end,
            _ => kept.start == start && kept.end >= end,
        };
        let found = self.kept.iter_mut().filter(|kept| kept.indexed && kept.kind == kind && covers(kept));
        if let Some(kept) = found.max_by_key(|kept| kept.start) {
            kept.uses += 1;
            self.stats.hits += 1;
            return Some(kept.number);
        }
        for kept in self.kept.iter_mut().filter(|kept| {
            kept.kind == kind && kept.start == start || {
                kept.kind == kind && self.scheme == Scheme::Interval && kept.start >= start && kept.end <= end
            }
        }) {
            kept.indexed = false;
        }
        self.kept.retain(|kept| kept.indexed || kept.uses > 0);
        while self.kept.len() + 1 > self.limits.entries_max || self.bytes() + end - start > self.limits.bytes_max {
            if !self.evict() {
                break;
            }
        }
        while self.kept.len() >= self.room {
            if !self.evict() {
                return None;
            }
        }
        self.stats.misses += 1;
        let number = self.time;
        self.kept.push(Kept { kind, start, end, uses: 1, last_use: 0, indexed: true, number });
        self.stats.bytes = self.bytes();
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.bytes);
        Some(number)
    }

    fn release(&mut self, number: u64) {
        self.time += 1;
        let kept = self.kept.iter_mut().find(|kept| kept.number == number).expect("in use");
        kept.uses -= 1;
        kept.last_use = self.time;
        self.kept.retain(|kept| kept.indexed || kept.uses > 0);
        while (self.kept.len() > self.limits.entries_max || self.bytes() > self.limits.bytes_max) && self.evict() {}
    }

    fn evict(&mut self) -> bool {
        let unused = self.kept.iter().enumerate().filter(|(_, kept)| kept.uses == 0);
        let Some((at, _)) = unused.min_by_key(|(_, kept)| kept.last_use) else { return false };
        self.kept.remove(at);
        self.stats.evictions += 1;
        true
    }

    fn bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.end - kept.start).sum()
    }

    fn live(&self) -> Vec<Region> {
        let region = |kept: &Kept| Region { kind: kept.kind, start: kept.start, end: kept.end, pages: Vec::new() };
        let mut live: Vec<_> = self.kept.iter().map(region).collect();
        live.sort();
        live
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire { kind: usize, start: u64, len: u64 },
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..KINDS.len(), 1u64..24, 1u64..10).prop_map(|(kind, start, len)| Step::Acquire { kind, start, len }),
        any::<usize>().prop_map(Step::Release),
    ]
}

proptest! {
    #[test]
    fn it_holds_what_the_naive_cache_holds(
        is_interval in any::<bool>(),
        entries_max in 0usize..8,
        bytes_max in 0u64..60,
        room in 1usize..10,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let scheme = if is_interval { Scheme::Interval } else { Scheme::Dme };
        let limits = CacheLimits { entries_max, bytes_max };
        let mut table = Table::with_room(room);
        let mut cache = RegistrationCache::new(scheme, limits, Translation::Checked, None);
        let mut naive =
            Naive { scheme, limits, room, kept: Vec::new(), time: 0, stats: CacheStats::default() };
        let mut held: Vec<(Registration, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Acquire { kind, start, len } => {
                    let acquired = cache.acquire(&mut table, memory(kind, start, len), KINDS[kind].1).ok();
                    let expected = naive.acquire(kind, start, start + len);
                    prop_assert_eq!(acquired.is_some(), expected.is_some());
                    if let (Some(registration), Some(number)) = (acquired, expected) {
                        let region = &table.live[&registration.region.rkey.0];
                        prop_assert_eq!((registration.region.address, registration.region.len_bytes), (start, len));
                        prop_assert!(region.kind == kind && region.start <= start && region.end >= start + len);
                        held.push((registration, number));
                    }
                }
                Step::Release(at) if !held.is_empty() => {
                    let (registration, number) = held.swap_remove(at % held.len());
                    cache.release(&mut table, registration);
                    naive.release(number);
                }
                Step::Release(_) => {}
            }
            let mut live: Vec<Region> = table.live.values().cloned().collect();
            live.sort();
            prop_assert_eq!(live, naive.live());
            prop_assert_eq!(cache.entry_count(), table.live.len());
            let stats = CacheStats { bytes: naive.bytes(), ..naive.stats };
            prop_assert_eq!(cache.stats(), stats);
            for (registration, _) in &held {
                prop_assert!(table.live.contains_key(&registration.region.rkey.0), "in use");
            }
        }
        held.drain(..).for_each(|(registration, _)| cache.release(&mut table, registration));
        cache.clear(&mut table);
        prop_assert!(table.live.is_empty() && cache.stats().bytes == 0);
    }
}

/// What stays registered after one use.
fn kept_after_use(
    scheme: Scheme,
    translation: Translation,
    watch: Option<Box<dyn registration::AddressWatch>>,
) -> usize {
    let mut table = Table::with_room(4);
    let mut cache = RegistrationCache::new(scheme, NO_LIMITS, translation, watch);
    let registration = cache.acquire(&mut table, memory(0, 4096, 100), KINDS[0].1).unwrap();
    cache.release(&mut table, registration);
    table.live.len()
}

/// Somebody who says that it sees changes, or that it cannot.
struct Claims(bool);

impl registration::AddressWatch for Claims {
    fn watch(&mut self, _: u64, _: u64) -> bool {
        self.0
    }

    fn unwatch(&mut self, _: u64, _: u64) {}

    fn take_changes(&mut self, _: &mut dyn FnMut(u64, u64)) {}
}

#[test]
fn what_is_kept_follows_from_what_an_old_key_means() {
    let watching = |sees| Some(Box::new(Claims(sees)) as Box<dyn registration::AddressWatch>);
    for scheme in [Scheme::Interval, Scheme::Dme] {
        assert_eq!(kept_after_use(scheme, Translation::Checked, None), 1);
        assert_eq!(kept_after_use(scheme, Translation::Pinned, watching(true)), 1);
        assert_eq!(kept_after_use(scheme, Translation::Pinned, watching(false)), 0, "this memory cannot be watched");
        assert_eq!(kept_after_use(scheme, Translation::Pinned, None), 0);
        assert_eq!(kept_after_use(scheme, Translation::Unchecked, watching(true)), 0);
    }
    assert_eq!(kept_after_use(Scheme::Off, Translation::Checked, None), 0);
}

#[test]
fn without_a_cache_every_use_is_a_region_of_its_own() {
    let mut table = Table::with_room(3);
    let mut cache = RegistrationCache::new(Scheme::Off, NO_LIMITS, Translation::Checked, None);
    let held: Vec<_> =
        (0..3).map(|_| cache.acquire(&mut table, memory(0, 64, 8), KINDS[0].1).expect("there is room")).collect();
    assert!(cache.acquire(&mut table, memory(0, 64, 8), KINDS[0].1).is_err(), "full");
    assert_eq!((table.live.len(), cache.stats().misses, cache.stats().bytes), (3, 3, 24));
    held.into_iter().for_each(|registration| cache.release(&mut table, registration));
    assert_eq!((table.live.len(), cache.stats().bytes, cache.stats().peak_bytes), (0, 0, 24));
}

const PAGE_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 8 * PAGE_BYTES;

/// Fresh pages at `address`, or wherever there is room if it is 0.
fn map(address: usize, len: usize) -> usize {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: fresh pages, or pages of this test replaced.
    let mapped = unsafe { libc::mmap(address as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped as usize
}

fn unmap(address: usize, len: usize) {
    // SAFETY: pages of this test that nobody uses.
    assert_eq!(unsafe { libc::munmap(address as *mut _, len) }, 0);
}

/// Uses a buffer `rounds` times on a device that pins, with other pages under part or all of it every other time or
/// so; returns how often the key named pages that lie there no more, and what the cache did.
fn use_buffer(watch: Box<dyn registration::AddressWatch>, rounds: u64) -> (u64, CacheStats) {
    let mut table = Table::with_room(usize::MAX);
    let mut cache = RegistrationCache::new(Scheme::Interval, NO_LIMITS, Translation::Pinned, Some(watch));
    let mut address = map(0, BUFFER_BYTES);
    const PAGES: usize = BUFFER_BYTES / PAGE_BYTES;
    (table.pages, table.pages_start) = (vec![0; PAGES], address as u64);
    let (mut stale, mut state) = (0, 1u64);
    for round in 0..rounds {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = state >> 33;
        match draw % 8 {
            0 => {
                unmap(address, BUFFER_BYTES);
                // Most often the same place; other threads of this process map memory, too.
                address = map(0, BUFFER_BYTES);
                table.pages_start = address as u64;
                table.replace(0..PAGES);
            }
            1 => {
                map(address, BUFFER_BYTES);
                table.replace(0..PAGES);
            }
            2 => {
                let page = draw as usize / 8 % PAGES;
                map(address + page * PAGE_BYTES, PAGE_BYTES);
                table.replace(page..page + 1);
            }
            3 => {
                // SAFETY: pages of this test that nobody uses.
                assert_eq!(unsafe { libc::madvise(address as *mut _, BUFFER_BYTES, libc::MADV_DONTNEED) }, 0);
                table.replace(0..PAGES);
            }
            _ => {}
        }
        // Now and then only a part, which is found inside the whole.
        let (offset, len) = if round % 5 == 0 { (1000, 5000) } else { (0, BUFFER_BYTES) };
        let wanted = memory(2, (address + offset) as u64, len as u64);
        let registration = cache.acquire(&mut table, wanted, KINDS[2].1).unwrap();
        stale += u64::from(table.is_stale(&registration));
        cache.release(&mut table, registration);
    }
    cache.clear(&mut table);
    assert!(table.live.is_empty());
    unmap(address, BUFFER_BYTES);
    (stale, cache.stats())
}

#[test]
fn no_key_outlives_its_pages_in_a_hundred_thousand_rounds() {
    let (stale, _) = use_buffer(Box::new(Claims(true)), 1000);
    assert!(stale > 300, "without a watch keys go stale; {stale} did");
    let watch = match AddressWatch::start() {
        Ok(watch) => watch,
        Err(why) => return println!("skipped: no userfaultfd here: {why}"),
    };
    let (stale, stats) = use_buffer(Box::new(watch), 100_000);
    assert_eq!(stale, 0);
    assert!(stats.hits > 20_000 && stats.changes > 20_000, "{stats:?}");
}

#[test]
fn a_child_neither_disturbs_the_cache_nor_waits_for_it() {
    let watch = match AddressWatch::start() {
        Ok(watch) => watch,
        Err(why) => return println!("skipped: no userfaultfd here: {why}"),
    };
    let mut table = Table::with_room(4);
    let mut cache = RegistrationCache::new(Scheme::Interval, NO_LIMITS, Translation::Pinned, Some(Box::new(watch)));
    let address = map(0, BUFFER_BYTES);
    let wanted = memory(0, address as u64, BUFFER_BYTES as u64);
    for round in 0..20 {
        let registration = cache.acquire(&mut table, wanted, KINDS[0].1).unwrap();
        cache.release(&mut table, registration);
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child's copy of pages of this test.
            let refused = unsafe { libc::munmap(address as *mut _, BUFFER_BYTES) };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(refused) };
        }
        let mut status = -1;
        // SAFETY: `status` is of this frame.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((status, cache.stats().hits, cache.stats().misses), (0, round, 1));
    }
    unmap(address, BUFFER_BYTES);
}

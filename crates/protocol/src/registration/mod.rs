//! A cache of registered memory: buffers that are used again need not be registered again.
//! Paper: mpich2-ib §2.4.2 (the dynamic memory engine).
//!
//! ```text
//!   acquire ── found ──▶ uses + 1                                    hit
//!           └─ absent ─▶ make room, register, enter into the index   miss
//!   release ──▶ uses − 1 ── still used ─▶ stays
//!                        └─ unused ─────▶ may be kept? at the head of the unused : taken back
//!   room is made at the tail of the unused: least recently used first
//! ```
//! [`Scheme::Dme`] finds an entry by the address at which it begins, as the paper does: a buffer is found again if it
//! begins at the same address and is not longer. [`Scheme::Interval`] also finds a buffer inside a registered one,
//! which the paper asks for: entries stand in order of address, none inside another, so that the last one that begins
//! at or before the buffer is the only one to look at. Rights are never more than were asked for: buffers to be read
//! and buffers to be written are different entries.
//!
//! # When an entry may be kept that nobody uses
//! A program may unmap a buffer and map other memory at the same address; nobody tells us. Intercepting `malloc` or
//! `munmap` is what other libraries do and what breaks them (allocators linked in statically, system calls made
//! directly, tools that intercept the same). What an old key means then is the device's affair
//! ([`fabric::Translation`]), and decides:
//!
//! - *Checked*: the system looks into the memory map at every access, so an old key means the memory that lies there
//!   now, or an error; that is exactly what a new registration would mean. Kept. (That peers may still read what they
//!   were once allowed to read is no more than processes of one user may do to each other anyway.)
//! - *Pinned*: the adapter goes on using the pages that lay there once: it would send old bytes, or receive into
//!   nowhere. Kept only while an [`AddressWatch`] sees every unmapping, moving and emptying of the range before the
//!   program goes on; where the system offers none, taken back with the last use, as without a cache. After a fork
//!   the pages stay the parent's (kernels since 5.12 copy pinned pages for the child; before, `ibv_fork_init`).
//! - *Unchecked*: the device touches the address whatever lies there, so a key must not outlive the caller's promise.
//!   Never kept and never shared; registering is an entry in a table there and costs no more than looking it up.
//!
//! An entry in use that changes, or that a longer one replaces, leaves the index at once and goes with its last use.

mod groups;
mod index;

use base::{Config, Slab, SlabKey};
use fabric::{Access, Context, FabricError, LocalMemory, MappedPeers, MemoryRegion, ProtectionDomain, Translation};

pub use base::config::RegistrationScheme as Scheme;

pub use groups::group_gaps;
use index::Index;

/// Where memory is registered.
pub trait Registrar {
    /// Registers memory.
    ///
    /// # Errors
    /// What the device says.
    fn register_memory(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError>;

    /// Takes the keys back.
    fn deregister_memory(&mut self, region: MemoryRegion);
}

impl Registrar for dyn MappedPeers {
    fn register_memory(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        self.register(memory, access)
    }

    fn deregister_memory(&mut self, region: MemoryRegion) {
        self.deregister(region);
    }
}

/// A protection domain of an opened device.
pub struct DomainRegistrar<'a> {
    /// The device.
    pub context: &'a mut dyn Context,
    /// Where regions go.
    pub domain: ProtectionDomain,
}

impl Registrar for DomainRegistrar<'_> {
    fn register_memory(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        self.context.register(self.domain, memory, access)
    }

    fn deregister_memory(&mut self, region: MemoryRegion) {
        // It fails only for a region that is gone already.
        let _ = self.context.deregister(region);
    }
}

/// Somebody who sees which addresses come to mean other memory.
pub trait AddressWatch: Send {
    /// From now on changes of these bytes are seen; false if that cannot be had for them.
    fn watch(&mut self, address: u64, len_bytes: u64) -> bool;

    /// Changes of these bytes need not be seen any more.
    fn unwatch(&mut self, address: u64, len_bytes: u64);

    /// Tells every range (first byte, byte after the last) that has changed since this was asked last. A change that
    /// the program has seen the end of is told.
    fn take_changes(&mut self, changed: &mut dyn FnMut(u64, u64));
}

impl AddressWatch for base::address_watch::AddressWatch {
    fn watch(&mut self, address: u64, len_bytes: u64) -> bool {
        Self::watch(self, address, len_bytes)
    }

    fn unwatch(&mut self, address: u64, len_bytes: u64) {
        Self::unwatch(self, address, len_bytes);
    }

    fn take_changes(&mut self, changed: &mut dyn FnMut(u64, u64)) {
        Self::take_changes(self, changed);
    }
}

/// How much a cache holds, entries in use included; those are never turned away, but nothing else is kept beside them
/// past the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Entries.
    pub entries_max: usize,
    /// Bytes registered.
    pub bytes_max: u64,
}

/// What a cache has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Buffers that were registered already.
    pub hits: u64,
    /// Buffers that had to be registered.
    pub misses: u64,
    /// Unused entries that made room.
    pub evictions: u64,
    /// Entries dropped because their addresses came to mean other memory.
    pub changes: u64,
    /// Bytes registered now.
    pub bytes: u64,
    /// Most bytes registered at once.
    pub peak_bytes: u64,
}

/// Of two caches together; their peaks need not have been at the same time, so the sum is a bound.
impl std::ops::Add for CacheStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            changes: self.changes + other.changes,
            bytes: self.bytes + other.bytes,
            peak_bytes: self.peak_bytes + other.peak_bytes,
        }
    }
}

/// Memory that is registered as long as this is held: it goes back by [`RegistrationCache::release`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The bytes that were asked for, under the keys of the region around them.
    pub region: MemoryRegion,
    /// Its entry; none without a cache.
    entry: Option<SlabKey>,
}

struct Entry {
    /// As the device knows it.
    region: MemoryRegion,
    kind: Kind,
    uses: u32,
    /// It is found by those who look for it.
    indexed: bool,
    watched: bool,
    /// Neighbours among the unused: used later, used earlier.
    later: Option<SlabKey>,
    earlier: Option<SlabKey>,
}

impl Entry {
    fn end(&self) -> u64 {
        self.region.address + self.region.len_bytes
    }
}

/// What a region allows: only regions of the same kind stand in for each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Kind(u8);

impl Kind {
    fn of(memory: LocalMemory, access: Access) -> Self {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        Self(
            bit(memory.is_target(), 1)
                | bit(access.remote_read, 2)
                | bit(access.remote_write, 4)
                | bit(access.remote_atomic, 8),
        )
    }
}

/// Registered memory, by address.
pub struct RegistrationCache {
    index: Option<Index>,
    translation: Translation,
    watch: Option<Box<dyn AddressWatch>>,
    limits: CacheLimits,
    entries: Slab<Entry>,
    /// Both ends of the unused, in the order of their last use.
    latest: Option<SlabKey>,
    earliest: Option<SlabKey>,
    stats: CacheStats,
    /// Ranges told by the watch, kept for their memory.
    changed: Vec<(u64, u64)>,
}

impl RegistrationCache {
    /// A cache for a device of this `translation`; `watch` is asked for devices that pin pages.
    pub fn new(
        scheme: Scheme,
        limits: CacheLimits,
        translation: Translation,
        watch: Option<Box<dyn AddressWatch>>,
    ) -> Self {
        let index = match scheme {
            _ if translation == Translation::Unchecked => None,
            Scheme::Off => None,
            Scheme::Dme => Some(Index::by_start()),
            Scheme::Interval => Some(Index::by_interval()),
        };
        Self {
            index,
            translation,
            watch,
            limits,
            entries: Slab::new(),
            latest: None,
            earliest: None,
            stats: CacheStats::default(),
            changed: Vec::new(),
        }
    }

    /// A cache as configured, with a watch if the device needs one and the system offers it.
    pub fn configured(config: &Config, translation: Translation) -> Self {
        let limits = CacheLimits {
            entries_max: config.registration_cache_entries_max,
            bytes_max: config.registration_cache_max_bytes as u64,
        };
        let watches = translation == Translation::Pinned && config.registration_cache != Scheme::Off;
        // Where the system refuses, nothing is kept that nobody uses.
        let watch = watches.then(|| base::address_watch::AddressWatch::start().ok()).flatten();
        let watch = watch.map(|watch| Box::new(watch) as Box<dyn AddressWatch>);
        Self::new(config.registration_cache, limits, translation, watch)
    }

    /// What it has done so far.
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Entries held, in use or not.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Registers `memory`, or finds it registered. Ends with [`RegistrationCache::release`].
    ///
    /// # Errors
    /// What the device says, after everything unused has been given up.
    pub fn acquire<R: Registrar + ?Sized>(
        &mut self,
        registrar: &mut R,
        memory: LocalMemory,
        access: Access,
    ) -> Result<Registration, FabricError> {
        if self.index.is_none() {
            let region = registrar.register_memory(memory, access)?;
            self.stats.misses += 1;
            self.add_bytes(region.len_bytes);
            return Ok(Registration { region, entry: None });
        }
        self.drop_changed(registrar);
        let (address, len_bytes) = (memory.address() as u64, memory.len_bytes() as u64);
        let kind = Kind::of(memory, access);
        let found = self.index.as_ref().and_then(|index| index.find(kind, address, address + len_bytes));
        let key = match found {
            Some(key) => self.use_again(key),
            None => self.enter(registrar, memory, access, kind)?,
        };
        let region = self.entries.get(key).expect("found or entered above").region;
        let region = MemoryRegion { address, len_bytes, ..region };
        Ok(Registration { region, entry: Some(key) })
    }

    /// Registers several buffers, or none of them.
    ///
    /// # Errors
    /// What the device says of the first that it refuses.
    pub fn acquire_all<R: Registrar + ?Sized>(
        &mut self,
        registrar: &mut R,
        memories: impl IntoIterator<Item = LocalMemory>,
        access: Access,
    ) -> Result<Vec<Registration>, FabricError> {
        let mut acquired = Vec::new();
        for memory in memories {
            match self.acquire(registrar, memory, access) {
                Ok(registration) => acquired.push(registration),
                Err(error) => {
                    acquired.into_iter().for_each(|registration| self.release(registrar, registration));
                    return Err(error);
                }
            }
        }
        Ok(acquired)
    }

    /// What the device makes of keys whose memory has been unmapped.
    pub fn translation(&self) -> Translation {
        self.translation
    }

    /// Ends one use of a registration.
    pub fn release<R: Registrar + ?Sized>(&mut self, registrar: &mut R, registration: Registration) {
        let Some(key) = registration.entry else {
            self.stats.bytes -= registration.region.len_bytes;
            return registrar.deregister_memory(registration.region);
        };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        let may_be_kept = entry.indexed && (entry.watched || self.translation == Translation::Checked);
        if may_be_kept {
            self.put_latest(key);
            self.make_room(registrar, 0, 0);
        } else {
            self.take_back(registrar, key);
        }
    }

    /// Gives up everything that nobody uses.
    pub fn clear<R: Registrar + ?Sized>(&mut self, registrar: &mut R) {
        while self.evict_earliest(registrar) {}
    }

    /// Another use of an entry that the index found.
    fn use_again(&mut self, key: SlabKey) -> SlabKey {
        self.stats.hits += 1;
        let entry = self.entries.get_mut(key).expect("the index names live entries");
        entry.uses += 1;
        if entry.uses == 1 {
            self.leave_unused(key);
        }
        key
    }

    /// Registers what was not found.
    fn enter<R: Registrar + ?Sized>(
        &mut self,
        registrar: &mut R,
        memory: LocalMemory,
        access: Access,
        kind: Kind,
    ) -> Result<SlabKey, FabricError> {
        let (address, len_bytes) = (memory.address() as u64, memory.len_bytes() as u64);
        self.replace_covered(registrar, kind, address, address + len_bytes);
        self.make_room(registrar, 1, len_bytes);
        let watched = self.translation == Translation::Pinned
            && self.watch.as_mut().is_some_and(|watch| watch.watch(address, len_bytes));
        let region = match self.register_making_room(registrar, memory, access) {
            Ok(region) => region,
            Err(error) => {
                if watched {
                    self.unwatch_alone(address, address + len_bytes);
                }
                return Err(error);
            }
        };
        self.stats.misses += 1;
        self.add_bytes(len_bytes);
        let entry = Entry { region, kind, uses: 1, indexed: true, watched, later: None, earlier: None };
        let key = self.entries.insert(entry);
        if let Some(index) = &mut self.index {
            index.insert(kind, address, address + len_bytes, key);
        }
        Ok(key)
    }

    /// Registers; while the device has no room for it, what is unused makes some.
    fn register_making_room<R: Registrar + ?Sized>(
        &mut self,
        registrar: &mut R,
        memory: LocalMemory,
        access: Access,
    ) -> Result<MemoryRegion, FabricError> {
        loop {
            match registrar.register_memory(memory, access) {
                // The system refuses to pin more (`RLIMIT_MEMLOCK`), or the table is full.
                Err(FabricError::Exhausted { .. } | FabricError::System { .. }) if self.evict_earliest(registrar) => {}
                outcome => return outcome,
            }
        }
    }

    /// Entries that the new one stands in for leave the index.
    fn replace_covered<R: Registrar + ?Sized>(&mut self, registrar: &mut R, kind: Kind, start: u64, end: u64) {
        while let Some(key) = self.index.as_mut().and_then(|index| index.remove_covered(kind, start, end)) {
            self.retire(registrar, key);
        }
    }

    /// Drops what the watch says has changed.
    fn drop_changed<R: Registrar + ?Sized>(&mut self, registrar: &mut R) {
        let Some(watch) = &mut self.watch else { return };
        let mut changed = std::mem::take(&mut self.changed);
        watch.take_changes(&mut |start, end| changed.push((start, end)));
        for (start, end) in changed.drain(..) {
            let overlaps = |entry: &Entry| entry.indexed && entry.region.address < end && start < entry.end();
            let keys: Vec<SlabKey> =
                self.entries.iter().filter(|(_, entry)| overlaps(entry)).map(|(key, _)| key).collect();
            for key in keys {
                self.stats.changes += 1;
                self.remove_from_index(key);
                self.retire(registrar, key);
            }
        }
        self.changed = changed;
    }

    /// An entry that is in the index no more: it goes now, or with its last use.
    fn retire<R: Registrar + ?Sized>(&mut self, registrar: &mut R, key: SlabKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.indexed = false;
        if entry.uses == 0 {
            self.leave_unused(key);
            self.take_back(registrar, key);
        }
    }

    /// Evicts until this much more fits, or nothing unused is left.
    fn make_room<R: Registrar + ?Sized>(&mut self, registrar: &mut R, more_entries: usize, more_bytes: u64) {
        while (self.entries.len() + more_entries > self.limits.entries_max
            || self.stats.bytes.saturating_add(more_bytes) > self.limits.bytes_max)
            && self.evict_earliest(registrar)
        {}
    }

    /// Gives up the unused entry whose last use is longest ago; false if there is none.
    fn evict_earliest<R: Registrar + ?Sized>(&mut self, registrar: &mut R) -> bool {
        let Some(key) = self.earliest else { return false };
        self.stats.evictions += 1;
        self.remove_from_index(key);
        self.leave_unused(key);
        self.take_back(registrar, key);
        true
    }

    /// Ends an entry that nobody uses and that stands in no list.
    fn take_back<R: Registrar + ?Sized>(&mut self, registrar: &mut R, key: SlabKey) {
        self.remove_from_index(key);
        let Some(entry) = self.entries.remove(key) else { return };
        self.stats.bytes -= entry.region.len_bytes;
        registrar.deregister_memory(entry.region);
        if entry.watched {
            self.unwatch_alone(entry.region.address, entry.end());
        }
    }

    /// Ends the watch of these bytes unless another entry needs it. Pages are what is watched, so entries that only
    /// come near count as well.
    fn unwatch_alone(&mut self, start: u64, end: u64) {
        const PAGE_BYTES: u64 = 4096;
        let (first, last) = (start & !(PAGE_BYTES - 1), end.next_multiple_of(PAGE_BYTES));
        let is_shared =
            self.entries.iter().any(|(_, other)| other.watched && other.region.address < last && first < other.end());
        if let Some(watch) = self.watch.as_mut().filter(|_| !is_shared) {
            watch.unwatch(start, end - start);
        }
    }

    fn remove_from_index(&mut self, key: SlabKey) {
        let (Some(entry), Some(index)) = (self.entries.get_mut(key), &mut self.index) else { return };
        if std::mem::replace(&mut entry.indexed, false) {
            index.remove(entry.kind, entry.region.address);
        }
    }

    fn put_latest(&mut self, key: SlabKey) {
        let before = self.latest.replace(key);
        if let Some(entry) = self.entries.get_mut(key) {
            (entry.later, entry.earlier) = (None, before);
        }
        match before.and_then(|before| self.entries.get_mut(before)) {
            Some(before) => before.later = Some(key),
            None => self.earliest = Some(key),
        }
    }

    fn leave_unused(&mut self, key: SlabKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let (later, earlier) = (entry.later.take(), entry.earlier.take());
        match later.and_then(|later| self.entries.get_mut(later)) {
            Some(later) => later.earlier = earlier,
            None => self.latest = earlier,
        }
        match earlier.and_then(|earlier| self.entries.get_mut(earlier)) {
            Some(earlier) => earlier.later = later,
            None => self.earliest = later,
        }
    }

    fn add_bytes(&mut self, len_bytes: u64) {
        self.stats.bytes += len_bytes;
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.bytes);
    }
}

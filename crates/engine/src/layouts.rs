//! The layouts of datatypes that this process has shown to others, and those that others have shown to it.
//!
//! A process that lets a peer copy scattered data keeps the layout's wire form at a numbered place of a small table, and
//! says place and version in each message. The peer keeps what it understood until the version changes. Where memory is
//! mapped the peer reads the wire form when it needs it; over verbs it is sent along with the first message that names it.
//! Paper: datatypes §5.4.2
//!
//! The tables are bounded: when one is full, places are used again in turn, under a new version. A message that still names
//! an old version finds the old wire form gone, or its hash wrong, and goes through the channel.

use std::sync::{Arc, Weak};

use datatype::{Datatype, Layout, RecvBuf, SendBuf};
use fabric::{Access, DirectCopy, LocalMemory, MappedPeers, MemoryRegion, PeerIndex};
use protocol::LayoutReference;
use rustc_hash::FxHashMap;

use crate::request::PeerId;

/// Layouts of this process that peers know at a time.
const PUBLISHED_MAX: usize = 64;
/// Longest wire form that is shown, in bytes.
const WIRE_MAX_BYTES: usize = 64 << 10;
/// Layouts of peers that are remembered; past this all are forgotten, and learnt again when they are named.
const KNOWN_MAX: usize = 1024;

/// Both tables of one process towards mapped peers.
#[derive(Default)]
pub(crate) struct Layouts {
    published: Table<Readable>,
    known: Known,
    /// Wire forms read from peers.
    pub(crate) read_count: u64,
}

/// Both tables of one process towards peers reached over verbs.
#[derive(Default)]
pub(crate) struct PortLayouts {
    published: Table<Arc<[u8]>>,
    /// By peer and place: the version that it was told last.
    told: FxHashMap<(PeerId, u32), u32>,
    known: Known,
    /// Wire forms that peers have sent.
    pub(crate) learnt_count: u64,
}

/// A layout of this process as peers over verbs get to know it.
#[derive(Clone)]
pub(crate) struct ShownLayout {
    pub(crate) index: u32,
    pub(crate) version: u32,
    pub(crate) wire: Arc<[u8]>,
}

/// Layouts of this process, by place.
struct Table<W> {
    shown: Vec<Shown<W>>,
    /// Where the layout of the datatype at an address stands.
    places: FxHashMap<usize, usize>,
    /// The place to use next when all are taken.
    oldest: usize,
}

struct Shown<W> {
    /// Holds the address of the datatype, so that no other takes it, without holding the datatype.
    datatype: Weak<Datatype>,
    version: u32,
    wire: W,
}

/// A wire form that peers can read.
struct Readable {
    wire: SendBuf,
    region: MemoryRegion,
}

/// Layouts of peers.
#[derive(Default)]
struct Known(FxHashMap<(PeerId, u32), (u32, Arc<Layout>)>);

impl AsRef<[u8]> for Readable {
    fn as_ref(&self) -> &[u8] {
        self.wire.as_contiguous().unwrap_or_default()
    }
}

impl<W> Default for Table<W> {
    fn default() -> Self {
        Self { shown: Vec::new(), places: FxHashMap::default(), oldest: 0 }
    }
}

impl<W: AsRef<[u8]>> Table<W> {
    /// The place of the layout of `datatype`. `keep` makes a wire form one that is shown, in the place of
    /// an old one if there is one.
    fn place_of(
        &mut self,
        datatype: &Arc<Datatype>,
        keep: impl FnOnce(Box<[u8]>, Option<&W>) -> Option<W>,
    ) -> Option<usize> {
        let address = Arc::as_ptr(datatype).addr();
        if let Some(place) = self.places.get(&address) {
            return Some(*place);
        }
        let wire = Layout::of(datatype)?.encode();
        if wire.len() > WIRE_MAX_BYTES {
            return None;
        }
        // The same layout made again: types that come and go need no new place.
        let place = match self.shown.iter().position(|shown| *shown.wire.as_ref() == *wire) {
            Some(place) => place,
            None => self.enter(wire, keep)?,
        };
        self.places.remove(&self.shown[place].datatype.as_ptr().addr());
        self.shown[place].datatype = Arc::downgrade(datatype);
        self.places.insert(address, place);
        Some(place)
    }

    /// Puts a wire form at a free place, or at the one that was filled first.
    fn enter(&mut self, wire: Box<[u8]>, keep: impl FnOnce(Box<[u8]>, Option<&W>) -> Option<W>) -> Option<usize> {
        if self.shown.len() < PUBLISHED_MAX {
            let wire = keep(wire, None)?;
            self.shown.push(Shown { datatype: Weak::new(), version: 1, wire });
            return Some(self.shown.len() - 1);
        }
        let place = self.oldest;
        let old = &mut self.shown[place];
        let wire = keep(wire, Some(&old.wire))?;
        self.oldest = (place + 1) % PUBLISHED_MAX;
        (old.version, old.wire) = (old.version.wrapping_add(1), wire);
        Some(place)
    }
}

impl Known {
    fn get(&self, peer: PeerId, index: u32, version: u32) -> Option<Arc<Layout>> {
        let (known, layout) = self.0.get(&(peer, index))?;
        (*known == version).then(|| Arc::clone(layout))
    }

    /// Understands a wire form and remembers it.
    fn learn(&mut self, peer: PeerId, index: u32, version: u32, wire: &[u8]) -> Option<Arc<Layout>> {
        let layout = Arc::new(Layout::parse(wire).ok()?);
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        self.0.insert((peer, index), (version, Arc::clone(&layout)));
        Some(layout)
    }
}

impl Layouts {
    /// Shows the layout of `datatype`; `None` if it is too long or the device cannot.
    pub(crate) fn publish(
        &mut self,
        context: &mut dyn MappedPeers,
        datatype: &Arc<Datatype>,
    ) -> Option<LayoutReference> {
        let place = self.published.place_of(datatype, |wire, old| {
            let wire = SendBuf::from_owned(wire);
            let region = context.register(LocalMemory::Source(wire.range()?), Access::REMOTE_READ).ok()?;
            if let Some(old) = old {
                context.deregister(old.region);
            }
            Some(Readable { wire, region })
        })?;
        let Shown { version, wire: Readable { wire, region }, .. } = &self.published.shown[place];
        let (memory, len_bytes) = (region.remote(0), wire.len_bytes() as u32);
        Some(LayoutReference { index: place as u32, version: *version, memory, len_bytes })
    }

    /// The layout that a peer names, read from its memory if it is not known; `None` if that cannot be had.
    pub(crate) fn resolve(
        &mut self,
        context: &mut dyn MappedPeers,
        peer: PeerId,
        named: LayoutReference,
    ) -> Option<Arc<Layout>> {
        if let Some(layout) = self.known.get(peer, named.index, named.version) {
            return Some(layout);
        }
        if named.index as usize >= PUBLISHED_MAX || named.len_bytes as usize > WIRE_MAX_BYTES {
            return None;
        }
        let mut wire = RecvBuf::from_owned(vec![0; named.len_bytes as usize].into());
        let read = DirectCopy::Read { local: wire.range()?, remote: named.memory };
        context.copy(PeerIndex(peer), &read).ok()?;
        self.read_count += 1;
        self.known.learn(peer, named.index, named.version, wire.as_contiguous()?)
    }
}

impl PortLayouts {
    /// The layout of `datatype` to be shown; `None` if it is too long.
    pub(crate) fn show(&mut self, datatype: &Arc<Datatype>) -> Option<ShownLayout> {
        let place = self.published.place_of(datatype, |wire, _| Some(wire.into()))?;
        let Shown { version, wire, .. } = &self.published.shown[place];
        Some(ShownLayout { index: place as u32, version: *version, wire: Arc::clone(wire) })
    }

    /// True if the peer was told this version.
    pub(crate) fn is_known(&self, shown: &ShownLayout, peer: PeerId) -> bool {
        self.told.get(&(peer, shown.index)) == Some(&shown.version)
    }

    /// The peer has been told.
    pub(crate) fn told(&mut self, index: u32, version: u32, peer: PeerId) {
        self.told.insert((peer, index), version);
    }

    /// The peer does not know it any more.
    pub(crate) fn forget(&mut self, shown: &ShownLayout, peer: PeerId) {
        self.told.remove(&(peer, shown.index));
    }

    /// The layout that a peer names, from the wire form that came along if there is one.
    pub(crate) fn learn(&mut self, peer: PeerId, index: u32, version: u32, wire: &[u8]) -> Option<Arc<Layout>> {
        if wire.is_empty() {
            return self.known.get(peer, index, version);
        }
        if index as usize >= PUBLISHED_MAX {
            return None;
        }
        self.learnt_count += 1;
        self.known.learn(peer, index, version, wire)
    }
}

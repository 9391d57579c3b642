//! The layouts of datatypes that this process has shown to others, and those that others have shown to it.
//!
//! A process that lets a peer copy scattered data keeps the layout's wire form where the peer can read it, at a numbered
//! place of a small table, and says place and version in each message. The peer reads the wire form once and keeps what it
//! understood until the version changes. Paper: datatypes §5.4.2
//!
//! The table is bounded: when it is full, places are used again in turn, under a new version. A message that still names an
//! old version finds the old wire form gone, or its hash wrong, and goes through the channel.

use std::sync::{Arc, Weak};

use datatype::{Datatype, Layout, RecvBuf, SendBuf};
use fabric::{Access, DirectCopy, LocalMemory, MappedPeers, MemoryRegion, PeerIndex};
use protocol::LayoutReference;
use rustc_hash::FxHashMap;

use crate::request::PeerId;

/// Layouts of this process that peers can read at a time.
const PUBLISHED_MAX: usize = 64;
/// Longest wire form that is shown, in bytes.
const WIRE_MAX_BYTES: usize = 64 << 10;
/// Layouts of peers that are remembered; past this all are forgotten, and read again when they are named.
const KNOWN_MAX: usize = 1024;

/// Both tables of one process.
#[derive(Default)]
pub(crate) struct Layouts {
    published: Vec<Published>,
    /// Where the layout of the datatype at an address stands.
    places: FxHashMap<usize, usize>,
    /// The place to use next when all are taken.
    oldest: usize,
    known: FxHashMap<(PeerId, u32), (u32, Arc<Layout>)>,
    /// Wire forms read from peers.
    pub(crate) read_count: u64,
}

struct Published {
    /// Holds the address of the datatype, so that no other takes it, without holding the datatype.
    datatype: Weak<Datatype>,
    version: u32,
    wire: SendBuf,
    region: MemoryRegion,
}

impl Layouts {
    /// Shows the layout of `datatype`; `None` if it is too long or the device cannot.
    pub(crate) fn publish(
        &mut self,
        context: &mut dyn MappedPeers,
        datatype: &Arc<Datatype>,
    ) -> Option<LayoutReference> {
        let address = Arc::as_ptr(datatype).addr();
        if let Some(place) = self.places.get(&address) {
            return Some(self.reference(*place));
        }
        let wire = Layout::of(datatype)?.encode();
        if wire.len() > WIRE_MAX_BYTES {
            return None;
        }
        let wire = SendBuf::from_owned(wire);
        let place = match self.published.iter().position(|shown| shown.wire.as_contiguous() == wire.as_contiguous()) {
            // The same layout made again: types that come and go need no new place.
            Some(place) => {
                self.places.remove(&self.published[place].datatype.as_ptr().addr());
                place
            }
            None => self.enter(context, wire)?,
        };
        self.published[place].datatype = Arc::downgrade(datatype);
        self.places.insert(address, place);
        Some(self.reference(place))
    }

    /// Puts a wire form at a free place, or at the one that was filled first.
    fn enter(&mut self, context: &mut dyn MappedPeers, wire: SendBuf) -> Option<usize> {
        let region = context.register(LocalMemory::Source(wire.range()?), Access::REMOTE_READ).ok()?;
        if self.published.len() < PUBLISHED_MAX {
            self.published.push(Published { datatype: Weak::new(), version: 1, wire, region });
            return Some(self.published.len() - 1);
        }
        let place = self.oldest;
        self.oldest = (place + 1) % PUBLISHED_MAX;
        let old = &mut self.published[place];
        self.places.remove(&old.datatype.as_ptr().addr());
        context.deregister(old.region);
        *old = Published { datatype: Weak::new(), version: old.version.wrapping_add(1), wire, region };
        Some(place)
    }

    fn reference(&self, place: usize) -> LayoutReference {
        let shown = &self.published[place];
        LayoutReference {
            index: place as u32,
            version: shown.version,
            memory: shown.region.remote(0),
            len_bytes: shown.wire.len_bytes() as u32,
        }
    }

    /// The layout that a peer names, read from its memory if it is not known; `None` if that cannot be had.
    pub(crate) fn resolve(
        &mut self,
        context: &mut dyn MappedPeers,
        peer: PeerId,
        named: LayoutReference,
    ) -> Option<Arc<Layout>> {
        if let Some((version, layout)) = self.known.get(&(peer, named.index))
            && *version == named.version
        {
            return Some(Arc::clone(layout));
        }
        if named.index as usize >= PUBLISHED_MAX || named.len_bytes as usize > WIRE_MAX_BYTES {
            return None;
        }
        let mut wire = RecvBuf::from_owned(vec![0; named.len_bytes as usize].into());
        let read = DirectCopy::Read { local: wire.range()?, remote: named.memory };
        context.copy(PeerIndex(peer), &read).ok()?;
        self.read_count += 1;
        let layout = Arc::new(Layout::parse(wire.as_contiguous()?).ok()?);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert((peer, named.index), (named.version, Arc::clone(&layout)));
        Some(layout)
    }
}

//! Finding a registered region by address: by where it begins, or by what it covers.

use base::SlabKey;
use rustc_hash::FxHashMap;

use super::Kind;

/// Where entries are found.
pub(super) enum Index {
    /// By first byte: the longest entry that begins there. Paper: mpich2-ib §2.4.2.
    Start(FxHashMap<(Kind, u64), (u64, SlabKey)>),
    /// In order of kind and first byte. No entry lies inside another of its kind, so that both first and last bytes
    /// grow.
    Interval(Vec<Span>),
}

#[derive(Clone, Copy)]
pub(super) struct Span {
    kind: Kind,
    start: u64,
    end: u64,
    key: SlabKey,
}

impl Index {
    pub(super) fn by_start() -> Self {
        Self::Start(FxHashMap::default())
    }

    pub(super) fn by_interval() -> Self {
        Self::Interval(Vec::new())
    }

    /// The entry around these bytes.
    #[inline]
    pub(super) fn find(&self, kind: Kind, start: u64, end: u64) -> Option<SlabKey> {
        match self {
            Self::Start(entries) => entries.get(&(kind, start)).filter(|(last, _)| *last >= end).map(|(_, key)| *key),
            Self::Interval(spans) => {
                let after = spans.partition_point(|span| (span.kind, span.start) <= (kind, start));
                let span = spans.get(after.checked_sub(1)?)?;
                (span.kind == kind && span.end >= end).then_some(span.key)
            }
        }
    }

    /// Takes out one entry that a region of these bytes stands in for.
    pub(super) fn remove_covered(&mut self, kind: Kind, start: u64, end: u64) -> Option<SlabKey> {
        match self {
            Self::Start(entries) => entries.remove(&(kind, start)).map(|(_, key)| key),
            Self::Interval(spans) => {
                let at = spans.partition_point(|span| (span.kind, span.start) < (kind, start));
                let is_covered = spans.get(at).is_some_and(|span| span.kind == kind && span.end <= end);
                is_covered.then(|| spans.remove(at).key)
            }
        }
    }

    /// Enters a region that nothing in the index covers and that covers nothing in it.
    pub(super) fn insert(&mut self, kind: Kind, start: u64, end: u64, key: SlabKey) {
        match self {
            Self::Start(entries) => {
                entries.insert((kind, start), (end, key));
            }
            Self::Interval(spans) => {
                let at = spans.partition_point(|span| (span.kind, span.start) < (kind, start));
                spans.insert(at, Span { kind, start, end, key });
            }
        }
    }

    /// Takes out the entry that begins there.
    pub(super) fn remove(&mut self, kind: Kind, start: u64) {
        match self {
            Self::Start(entries) => {
                entries.remove(&(kind, start));
            }
            Self::Interval(spans) => {
                if let Ok(at) = spans.binary_search_by_key(&(kind, start), |span| (span.kind, span.start)) {
                    spans.remove(at);
                }
            }
        }
    }
}

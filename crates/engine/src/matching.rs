//! Matching in constant time, wildcards included. MPI: §3.5, §3.2.4.
//!
//! A receive names a context and, each exactly or by wildcard, a source and a tag: four classes of pattern. Whatever
//! waits, receives or messages, stands in a line in the order it came. Most often what is looked for is near the
//! front; when a walk of [`WALK_MAX`] entries does not find it, those behind move to a hash table of lists, one list
//! per pattern, and later ones join them there until it is empty again. A message looks into the (at most four) lists
//! that could hold its receive and takes the one posted first; unexpected messages stand in all four lists that could
//! ask for them, and a receive looks at the head of its own. Lists are doubly linked through one slab, so that taking
//! an entry out of all its lists does not depend on how many there are. Each entry moves once, if at all.

use std::collections::VecDeque;

use base::{Slab, SlabKey};
use rustc_hash::FxHashMap;

use crate::request::{ContextId, PeerId, Source, Tag, TagPattern};

const ANY_PEER: u32 = u32::MAX;
const ANY_TAG: i32 = -1;

/// What a list holds: two numbers, which are handed on in registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    context: u32,
    /// The peer above, the tag below.
    label: u64,
}

impl Pattern {
    #[inline]
    pub(crate) fn new(context: ContextId, source: Source, tag: TagPattern) -> Self {
        let peer = match source {
            Source::Any => ANY_PEER,
            Source::Peer(peer) => peer,
        };
        let tag = match tag {
            TagPattern::Any => ANY_TAG,
            TagPattern::Exact(tag) => tag,
        };
        Self::of(context, peer, tag)
    }

    #[inline]
    fn of(context: ContextId, peer: u32, tag: i32) -> Self {
        Self { context: context.0, label: u64::from(peer) << 32 | u64::from(tag as u32) }
    }

    #[inline]
    fn peer(self) -> u32 {
        (self.label >> 32) as u32
    }

    #[inline]
    fn tag(self) -> i32 {
        self.label as i32
    }

    /// The four patterns that a message matches, by class.
    fn of_message(context: ContextId, peer: PeerId, tag: Tag) -> [Self; 4] {
        [
            Self::of(context, peer, tag),
            Self::of(context, peer, ANY_TAG),
            Self::of(context, ANY_PEER, tag),
            Self::of(context, ANY_PEER, ANY_TAG),
        ]
    }

    #[inline]
    fn accepts(self, context: ContextId, peer: PeerId, tag: Tag) -> bool {
        self.context == context.0
            && (self.peer() == peer || self.peer() == ANY_PEER)
            && (self.tag() == tag || self.tag() == ANY_TAG)
    }

    fn class(self) -> usize {
        usize::from(self.tag() == ANY_TAG) + 2 * usize::from(self.peer() == ANY_PEER)
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "context {}, peer {}, tag {}", self.context, self.peer(), self.tag())
    }
}

#[derive(Clone, Copy)]
struct List {
    head: SlabKey,
    tail: SlabKey,
}

struct Node<T, const LANES: usize> {
    value: T,
    order: u64,
    patterns: [Pattern; LANES],
    previous: [Option<SlabKey>; LANES],
    next: [Option<SlabKey>; LANES],
}

/// Entries in order, each in `LANES` lists.
struct Lists<T, const LANES: usize> {
    nodes: Slab<Node<T, LANES>>,
    lists: FxHashMap<Pattern, List>,
    /// Numbers rise from the first that was given to those put before all others.
    first_order: u64,
    next_order: u64,
}

impl<T, const LANES: usize> Lists<T, LANES> {
    fn new() -> Self {
        Self { nodes: Slab::new(), lists: FxHashMap::default(), first_order: MIDDLE, next_order: MIDDLE }
    }

    fn push(&mut self, value: T, patterns: [Pattern; LANES]) -> SlabKey {
        let order = self.next_order;
        self.next_order += 1;
        let node = Node { value, order, patterns, previous: [None; LANES], next: [None; LANES] };
        let key = self.nodes.insert(node);
        for (lane, pattern) in patterns.into_iter().enumerate() {
            let list = self.lists.entry(pattern).or_insert(List { head: key, tail: key });
            let tail = std::mem::replace(&mut list.tail, key);
            if tail != key {
                self.node(tail).next[lane] = Some(key);
                self.node(key).previous[lane] = Some(tail);
            }
        }
        key
    }

    /// Puts an entry before all others.
    fn push_first(&mut self, value: T, patterns: [Pattern; LANES]) -> SlabKey {
        self.first_order -= 1;
        let order = self.first_order;
        let node = Node { value, order, patterns, previous: [None; LANES], next: [None; LANES] };
        let key = self.nodes.insert(node);
        for (lane, pattern) in patterns.into_iter().enumerate() {
            let list = self.lists.entry(pattern).or_insert(List { head: key, tail: key });
            let head = std::mem::replace(&mut list.head, key);
            if head != key {
                self.node(head).previous[lane] = Some(key);
                self.node(key).next[lane] = Some(head);
            }
        }
        key
    }

    fn head(&self, pattern: Pattern) -> Option<SlabKey> {
        self.lists.get(&pattern).map(|list| list.head)
    }

    fn remove(&mut self, key: SlabKey) -> Option<T> {
        let node = self.nodes.remove(key)?;
        for lane in 0..LANES {
            let (previous, next) = (node.previous[lane], node.next[lane]);
            match (previous, next) {
                (None, None) => {
                    self.lists.remove(&node.patterns[lane]);
                    continue;
                }
                (Some(previous), _) => self.node(previous).next[lane] = next,
                (None, Some(_)) => {}
            }
            if let Some(next) = next {
                self.node(next).previous[lane] = previous;
            }
            let list = self.lists.get_mut(&node.patterns[lane]).expect("a list with entries is in the table");
            match (previous, next) {
                (None, Some(next)) => list.head = next,
                (Some(previous), None) => list.tail = previous,
                _ => {}
            }
        }
        Some(node.value)
    }

    fn node(&mut self, key: SlabKey) -> &mut Node<T, LANES> {
        self.nodes.get_mut(key).expect("links name live entries")
    }
}

/// Where a posted receive stands, to take it out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    /// It stood in line when it was posted; this is its number.
    InLine(u64),
    /// In a list.
    Listed(SlabKey),
}

/// Entries of the line that are looked at; walking so few is faster than hashing.
const WALK_MAX: usize = 8;
/// A line that was longer than this gives its memory back when it is empty.
const LINE_KEPT_MAX: usize = 4096;

/// Where numbers begin that rise on one side and fall on the other.
const MIDDLE: u64 = 1 << 63;

struct Standing<T> {
    number: u64,
    /// A receive's pattern, or that of exactly this message.
    pattern: Pattern,
    value: T,
}

/// Entries in the order they came, those in the line before those in the lists.
struct Queue<T, const LANES: usize> {
    line: VecDeque<Standing<T>>,
    /// Numbers in line rise from the first that was given to those put before all others.
    first_number: u64,
    next_number: u64,
    lists: Lists<T, LANES>,
}

impl<T, const LANES: usize> Queue<T, LANES> {
    fn new() -> Self {
        Self { line: VecDeque::new(), first_number: MIDDLE, next_number: MIDDLE, lists: Lists::new() }
    }

    fn len(&self) -> usize {
        self.line.len() + self.lists.nodes.len()
    }

    fn is_empty(&self) -> bool {
        self.line.is_empty() && self.lists.nodes.is_empty()
    }

    /// Where in the line the first entry stands that `is_wanted`, if it is near enough to the front.
    #[inline]
    fn walk(&self, is_wanted: impl Fn(Pattern) -> bool) -> Option<usize> {
        let front = self.line.front()?;
        if is_wanted(front.pattern) {
            return Some(0);
        }
        (1..self.line.len().min(WALK_MAX)).find(|at| is_wanted(self.line[*at].pattern))
    }

    /// Puts an entry at the end of the line, or hands it back: it belongs into the lists.
    #[inline]
    fn stand(&mut self, pattern: Pattern, value: T) -> Result<u64, T> {
        if !self.lists.nodes.is_empty() {
            return Err(value);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.line.push_back(Standing { number, pattern, value });
        Ok(number)
    }

    #[inline]
    fn take_from_line(&mut self, at: usize) -> Option<T> {
        let standing = if at == 0 { self.line.pop_front() } else { self.line.remove(at) };
        if self.line.is_empty() && self.line.capacity() > LINE_KEPT_MAX {
            self.line = VecDeque::new();
        }
        standing.map(|standing| standing.value)
    }

    /// Moves what a walk does not reach into the lists, before all that stand there, and tells where each entry went.
    #[cold]
    fn spill(&mut self, lanes: impl Fn(Pattern) -> [Pattern; LANES], mut tell: impl FnMut(u64, Pattern, SlabKey)) {
        for standing in self.line.drain(WALK_MAX..).rev() {
            let key = self.lists.push_first(standing.value, lanes(standing.pattern));
            tell(standing.number, standing.pattern, key);
        }
    }
}

/// Receives that wait for their message, in the order they were posted.
pub(crate) struct PostedQueue<T> {
    queue: Queue<T, 1>,
    /// Receives in the lists, per class; empty classes are not looked up.
    count: [usize; 4],
    /// Where receives went that stood in line when they were posted.
    spilled: FxHashMap<u64, SlabKey>,
}

impl<T: Copy> PostedQueue<T> {
    pub(crate) fn new() -> Self {
        Self { queue: Queue::new(), count: [0; 4], spilled: FxHashMap::default() }
    }

    #[inline]
    pub(crate) fn post(&mut self, pattern: Pattern, receive: T) -> Links {
        match self.queue.stand(pattern, receive) {
            Ok(number) => Links::InLine(number),
            Err(receive) => {
                self.count[pattern.class()] += 1;
                Links::Listed(self.queue.lists.push(receive, [pattern]))
            }
        }
    }

    /// True if no receive waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// As if it had been posted before all others.
    pub(crate) fn post_first(&mut self, pattern: Pattern, receive: T) -> Links {
        self.queue.first_number -= 1;
        let number = self.queue.first_number;
        self.queue.line.push_front(Standing { number, pattern, value: receive });
        Links::InLine(number)
    }

    /// True if a receive would take the message.
    pub(crate) fn would_match(&mut self, context: ContextId, peer: PeerId, tag: Tag) -> bool {
        if self.queue.walk(|pattern| pattern.accepts(context, peer, tag)).is_some() {
            return true;
        }
        self.spill();
        let lists = &self.queue.lists;
        Pattern::of_message(context, peer, tag).into_iter().any(|pattern| lists.head(pattern).is_some())
    }

    /// Takes out the receive that the message matches: the one posted first.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, context: ContextId, peer: PeerId, tag: Tag) -> Option<T> {
        match self.queue.line.front() {
            Some(front) if front.pattern.accepts(context, peer, tag) => self.queue.take_from_line(0),
            _ => self.arrive_behind(context, peer, tag),
        }
    }

    /// As `arrive`, where the first in line is not the one.
    fn arrive_behind(&mut self, context: ContextId, peer: PeerId, tag: Tag) -> Option<T> {
        if let Some(at) = self.queue.walk(|pattern| pattern.accepts(context, peer, tag)) {
            return self.queue.take_from_line(at);
        }
        self.spill();
        if self.queue.lists.nodes.is_empty() { None } else { self.arrive_listed(context, peer, tag) }
    }

    #[inline]
    fn spill(&mut self) {
        if self.queue.line.len() > WALK_MAX {
            let (count, spilled) = (&mut self.count, &mut self.spilled);
            self.queue.spill(
                |pattern| [pattern],
                |number, pattern, key| {
                    count[pattern.class()] += 1;
                    spilled.insert(number, key);
                },
            );
        }
    }

    fn arrive_listed(&mut self, context: ContextId, peer: PeerId, tag: Tag) -> Option<T> {
        let lists = &self.queue.lists;
        let mut first: Option<(u64, SlabKey)> = None;
        for (class, pattern) in Pattern::of_message(context, peer, tag).into_iter().enumerate() {
            if self.count[class] == 0 {
                continue;
            }
            if let Some(key) = lists.head(pattern) {
                let order = lists.nodes.get(key).expect("links name live entries").order;
                if first.is_none_or(|(earliest, _)| order < earliest) {
                    first = Some((order, key));
                }
            }
        }
        let (_, key) = first?;
        self.remove_listed(key)
    }

    fn remove_listed(&mut self, key: SlabKey) -> Option<T> {
        let class = self.queue.lists.nodes.get(key)?.patterns[0].class();
        self.count[class] -= 1;
        if self.queue.lists.nodes.len() == 1 {
            self.spilled.clear();
        }
        self.queue.lists.remove(key)
    }

    /// Takes out every receive that only `peer` can fill or, with `any`, that it could have filled.
    pub(crate) fn take_all_of(&mut self, peer: PeerId, any: bool) -> Vec<T> {
        let meant = |pattern: Pattern| pattern.peer() == peer || any && pattern.peer() == ANY_PEER;
        let line = std::mem::take(&mut self.queue.line);
        let mut taken = Vec::new();
        for standing in line {
            if meant(standing.pattern) {
                taken.push(standing.value);
            } else {
                self.queue.line.push_back(standing);
            }
        }
        let listed: Vec<SlabKey> =
            self.queue.lists.nodes.iter().filter(|(_, node)| meant(node.patterns[0])).map(|(key, _)| key).collect();
        taken.extend(listed.into_iter().filter_map(|key| self.remove_listed(key)));
        taken
    }

    pub(crate) fn remove(&mut self, links: Links) -> Option<T> {
        let number = match links {
            Links::Listed(key) => return self.remove_listed(key),
            Links::InLine(number) => number,
        };
        // Taking out of the middle of a long line would move many; in the lists it does not.
        if self.queue.line.get(WALK_MAX).is_some_and(|standing| standing.number <= number) {
            self.spill();
        }
        match self.queue.line.iter().take(WALK_MAX).position(|standing| standing.number == number) {
            Some(at) => self.queue.take_from_line(at),
            None => self.spilled.remove(&number).and_then(|key| self.remove_listed(key)),
        }
    }
}

/// Messages that came before their receive, in the order they came.
pub(crate) struct UnexpectedQueue<T> {
    queue: Queue<T, 4>,
}

impl<T> UnexpectedQueue<T> {
    pub(crate) fn new() -> Self {
        Self { queue: Queue::new() }
    }

    pub(crate) fn push(&mut self, context: ContextId, peer: PeerId, tag: Tag, message: T) {
        let exact = Pattern::of(context, peer, tag);
        if let Err(message) = self.queue.stand(exact, message) {
            self.queue.lists.push(message, Pattern::of_message(context, peer, tag));
        }
    }

    /// Where the earliest message stands that `pattern` accepts.
    #[inline]
    fn find(&mut self, pattern: Pattern) -> Option<Place> {
        let is_wanted = |message: Pattern| pattern.accepts(ContextId(message.context), message.peer(), message.tag());
        if let Some(at) = self.queue.walk(is_wanted) {
            return Some(Place::InLine(at));
        }
        self.spill();
        if self.queue.lists.nodes.is_empty() { None } else { self.queue.lists.head(pattern).map(Place::Listed) }
    }

    #[inline]
    fn spill(&mut self) {
        if self.queue.line.len() > WALK_MAX {
            let lanes = |of: Pattern| Pattern::of_message(ContextId(of.context), of.peer(), of.tag());
            self.queue.spill(lanes, |_, _, _| ());
        }
    }

    /// The earliest message that `pattern` accepts.
    #[inline]
    pub(crate) fn peek(&mut self, pattern: Pattern) -> Option<&T> {
        if self.queue.is_empty() { None } else { self.peek_found(pattern) }
    }

    fn peek_found(&mut self, pattern: Pattern) -> Option<&T> {
        match self.find(pattern)? {
            Place::InLine(at) => self.queue.line.get(at).map(|standing| &standing.value),
            Place::Listed(key) => self.queue.lists.nodes.get(key).map(|node| &node.value),
        }
    }

    /// Takes it out.
    #[inline(always)]
    pub(crate) fn take(&mut self, pattern: Pattern) -> Option<T> {
        if self.queue.is_empty() { None } else { self.take_found(pattern) }
    }

    fn take_found(&mut self, pattern: Pattern) -> Option<T> {
        match self.find(pattern)? {
            Place::InLine(at) => self.queue.take_from_line(at),
            Place::Listed(key) => self.queue.lists.remove(key),
        }
    }

    /// True if a message of exactly this envelope is one of those meant.
    pub(crate) fn any(&mut self, context: ContextId, peer: PeerId, tag: Tag, is_meant: impl Fn(&T) -> bool) -> bool {
        let pattern = Pattern::new(context, Source::Peer(peer), TagPattern::Exact(tag));
        if self.queue.line.iter().any(|standing| standing.pattern == pattern && is_meant(&standing.value)) {
            return true;
        }
        let lists = &self.queue.lists;
        let listed = |key: &SlabKey| lists.nodes.get(*key);
        std::iter::successors(lists.head(pattern), |key| listed(key)?.next[pattern.class()])
            .any(|key| listed(&key).is_some_and(|node| is_meant(&node.value)))
    }

    /// Takes out the message of exactly this envelope that `is_meant` names, wherever it stands among its like.
    pub(crate) fn take_one(
        &mut self,
        context: ContextId,
        peer: PeerId,
        tag: Tag,
        is_meant: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let pattern = Pattern::new(context, Source::Peer(peer), TagPattern::Exact(tag));
        self.spill();
        let is_it = |standing: &Standing<T>| standing.pattern == pattern && is_meant(&standing.value);
        if let Some(at) = self.queue.line.iter().position(is_it) {
            return self.queue.take_from_line(at);
        }
        let (lane, lists) = (pattern.class(), &mut self.queue.lists);
        let mut at = lists.head(pattern);
        while let Some(key) = at {
            let node = lists.nodes.get(key)?;
            if is_meant(&node.value) {
                return lists.remove(key);
            }
            at = node.next[lane];
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

enum Place {
    InLine(usize),
    Listed(SlabKey),
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);
    impl Random {
        fn below(&mut self, limit: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as u32 % limit
        }
    }

    fn matches(pattern: Pattern, (context, peer, tag): (u32, u32, i32)) -> bool {
        pattern.context == context
            && (pattern.peer() == ANY_PEER || pattern.peer() == peer)
            && (pattern.tag() == ANY_TAG || pattern.tag() == tag)
    }

    fn random_pattern(random: &mut Random) -> Pattern {
        let source = if random.below(3) == 0 { Source::Any } else { Source::Peer(random.below(3)) };
        let tag = if random.below(3) == 0 { TagPattern::Any } else { TagPattern::Exact(random.below(3) as i32) };
        Pattern::new(ContextId(random.below(2)), source, tag)
    }

    /// The oracle is a list walked from its front, as the standard words it.
    #[test]
    fn posted_receives_match_as_a_walked_list_would() {
        (0..100).for_each(|seed| posted_receives_match(seed, 1000));
    }

    #[test]
    fn receives_put_before_all_others_match_first() {
        (0..100).for_each(|seed| posted_receives_match(seed, 3));
    }

    /// One receive of so many is put before all others.
    fn posted_receives_match(seed: u64, first_one_in: u32) {
        let mut random = Random(seed);
        let mut queue = PostedQueue::new();
        let mut oracle: Vec<(u32, Pattern, Links)> = Vec::new();
        for number in 0..1000 {
            match random.below(5) {
                0 | 1 if random.below(first_one_in) == 0 => {
                    let pattern = random_pattern(&mut random);
                    let links = queue.post_first(pattern, number);
                    oracle.insert(0, (number, pattern, links));
                }
                0 | 1 => {
                    let pattern = random_pattern(&mut random);
                    let links = queue.post(pattern, number);
                    oracle.push((number, pattern, links));
                }
                2 if !oracle.is_empty() => {
                    let at = random.below(oracle.len() as u32) as usize;
                    let (number, _, links) = oracle.remove(at);
                    assert_eq!(queue.remove(links), Some(number), "seed {seed}");
                    assert_eq!(queue.remove(links), None, "seed {seed}");
                }
                _ => {
                    let message = (random.below(2), random.below(3), random.below(3) as i32);
                    let at = oracle.iter().position(|(_, pattern, _)| matches(*pattern, message));
                    let expected = at.map(|at| oracle.remove(at).0);
                    assert_eq!(queue.arrive(ContextId(message.0), message.1, message.2), expected, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn unexpected_messages_are_found_as_a_walked_list_would() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let mut queue = UnexpectedQueue::new();
            let mut oracle: Vec<(u32, (u32, u32, i32))> = Vec::new();
            for number in 0..1000 {
                let chance = random.below(5);
                if chance < 2 {
                    let message = (random.below(2), random.below(3), random.below(3) as i32);
                    queue.push(ContextId(message.0), message.1, message.2, number);
                    oracle.push((number, message));
                } else if chance == 2 && !oracle.is_empty() {
                    let at = random.below(oracle.len() as u32) as usize;
                    let (meant, (context, peer, tag)) = oracle.remove(at);
                    let mut take = || queue.take_one(ContextId(context), peer, tag, |value| *value == meant);
                    assert_eq!((take(), take()), (Some(meant), None), "seed {seed}");
                } else {
                    let pattern = random_pattern(&mut random);
                    let at = oracle.iter().position(|(_, message)| matches(pattern, *message));
                    assert_eq!(queue.peek(pattern).copied(), at.map(|at| oracle[at].0), "seed {seed}");
                    assert_eq!(queue.take(pattern), at.map(|at| oracle.remove(at).0), "seed {seed}");
                }
                assert_eq!(queue.len(), oracle.len());
            }
            assert!(queue.queue.lists.lists.len() <= 4 * oracle.len(), "empty lists are dropped");
        }
    }
}

//! Random programs: what each rank does, in its own order.

use engine::{PeerId, Source, Tag, TagPattern};

/// A small generator of numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

pub const CONTEXTS: u32 = 2;
const TAGS: u64 = 3;

/// A message of the program; its length tells it from all others between the same two ranks.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub from: PeerId,
    pub to: PeerId,
    pub context: u32,
    pub tag: Tag,
    pub len: u64,
    pub synchronous: bool,
}

/// What a receive or probe accepts.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    pub context: u32,
    pub source: Source,
    pub tag: TagPattern,
}

impl Pattern {
    pub fn accepts(&self, message: &Message) -> bool {
        self.context == message.context
            && (self.source == Source::Any || self.source == Source::Peer(message.from))
            && (self.tag == TagPattern::Any || self.tag == TagPattern::Exact(message.tag))
    }
}

/// One thing that a rank does.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Message of this number.
    Send(usize),
    Receive {
        pattern: Pattern,
        capacity: u64,
    },
    /// A probe, and the receive of what it found.
    Probe {
        pattern: Pattern,
        capacity: u64,
    },
    /// A matched probe; the message is received some operations later.
    MatchedProbe {
        pattern: Pattern,
        capacity: u64,
    },
    /// One of the sends or receives that are not complete.
    Cancel,
    /// Nobody asks for one of the sends again.
    Detach,
}

/// What the messages of a program are like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of many contexts and tags.
    Varied,
    /// Of few: a tuple comes again and again.
    Repeated,
    /// Of many, and receives wait for them: few sends are under way at a time.
    Awaited,
}

/// Messages, and what each rank does.
pub struct Program {
    pub messages: Vec<Message>,
    pub operations: Vec<Vec<Operation>>,
    /// After so many operations of all ranks nobody does anything until what is on its way has come.
    pub rests_after: Option<usize>,
}

impl Program {
    pub fn draw(random: &mut Random, size: u32, kind: Kind) -> Self {
        let per_rank = match size {
            0..=32 => 10 + random.below(60),
            33..=128 => 3,
            _ => 1,
        };
        let (contexts, tags, rests_after) = match kind {
            Kind::Varied => (CONTEXTS, TAGS, None),
            Kind::Repeated => (1, 2, Some(4 * size as usize)),
            Kind::Awaited => (CONTEXTS, TAGS, Some(1)),
        };
        // Sometimes everybody sends to one.
        let target = random.chance(4).then(|| random.below(size.into()) as u32);
        let mut program = Self { messages: Vec::new(), operations: vec![Vec::new(); size as usize], rests_after };
        let mut number_of_pair = std::collections::HashMap::new();
        for from in 0..size {
            for _ in 0..per_rank {
                let to = target.unwrap_or_else(|| random.below(size.into()) as u32);
                let number: &mut u64 = number_of_pair.entry((from, to)).or_default();
                // Classes lie so far apart that lengths stay apart as well.
                let class = *random.one_of(&[0, 0, 0, 1000, 1000, 5000, 20_000, 100_000]);
                let len = class + *number;
                *number += 1;
                let message = Message {
                    from,
                    to,
                    context: random.below(contexts.into()) as u32,
                    tag: random.below(tags) as Tag,
                    len,
                    synchronous: random.chance(4),
                };
                program.operations[from as usize].push(Operation::Send(program.messages.len()));
                program.messages.push(message);
            }
        }
        for at in 0..program.messages.len() {
            let message = program.messages[at];
            let operation = receiving(random, &message);
            let theirs = &mut program.operations[message.to as usize];
            let end = if kind == Kind::Awaited { 0 } else { theirs.len() as u64 };
            let place = random.below(end + 1) as usize;
            theirs.insert(place, operation);
        }
        for operations in &mut program.operations {
            for _ in 0..operations.len() / 8 {
                let place = random.below(operations.len() as u64 + 1) as usize;
                operations.insert(place, if random.chance(4) { Operation::Detach } else { Operation::Cancel });
            }
        }
        program
    }
}

/// An operation that could receive `message`, among others.
fn receiving(random: &mut Random, message: &Message) -> Operation {
    let source = if random.chance(3) { Source::Any } else { Source::Peer(message.from) };
    let tag = if random.chance(3) { TagPattern::Any } else { TagPattern::Exact(message.tag) };
    let pattern = Pattern { context: message.context, source, tag };
    let capacity = match random.below(10) {
        0 => message.len / 2,
        1 => message.len,
        _ => 110_000,
    };
    match random.below(6) {
        0 => Operation::Probe { pattern, capacity },
        1 => Operation::MatchedProbe { pattern, capacity },
        _ => Operation::Receive { pattern, capacity },
    }
}

//! Engines that take turns as the seed draws, until everything is over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use datatype::{RecvBuf, SendBuf};
use engine::{
    Completion, ContextId, Engine, Envelope, Holdings, MessageId, Outcome, RequestId, SendMode, Source, TagPattern,
};

use crate::memory::Memory;
use crate::oracle::{self, Fate, Posted};
use crate::program::{CONTEXTS, Operation, Pattern, Program, Random};

/// Steps after which a run counts as one that does not end.
const STEPS_MAX: u64 = 4_000_000;
/// Rounds in which nothing moves, after which nothing more is awaited.
const QUIET_ROUNDS: u32 = 4;
/// How long nothing may move while something is still to come; far longer than anything is repeated after.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pauses after which a run counts as one that does not end, though something is repeated now and then.
const PAUSES_MAX: u32 = 30_000;

struct Sending {
    number: usize,
    request: RequestId,
    cancelled: bool,
}

struct Receiving {
    posted: usize,
    request: RequestId,
    memory: Memory,
    capacity: u64,
    /// What a probe promised.
    promised: Option<Envelope>,
}

/// A message that a matched probe has taken.
struct Taken {
    posted: usize,
    message: MessageId,
    envelope: Envelope,
    capacity: u64,
}

#[derive(Default)]
struct Rank {
    next: usize,
    sends: Vec<Sending>,
    receives: Vec<Receiving>,
    taken: Vec<Taken>,
    posted: Vec<Posted>,
}

/// What took place.
#[derive(Default, Debug)]
pub struct Totals {
    messages: u64,
    truncated: u64,
    sends_cancelled: u64,
    sends_cancelled_late: u64,
    receives_cancelled: u64,
    probed: u64,
    taken_by_probe: u64,
    detached: u64,
    unexpected: u64,
    waited_for_room: u64,
    held_back: u64,
    staged: u64,
    /// Of worlds in which the kernel lets processes copy from each other.
    read: u64,
    shared: u64,
    registrations_found: u64,
    registrations_evicted: u64,
    /// Of worlds over verbs.
    connections: u64,
    credit_stalls: u64,
    credits_returned: u64,
    given_back: u64,
    written: u64,
    closed: u64,
    resized: u64,
    block_writes: u64,
    block_reads: u64,
    segments: u64,
    packed_refused: u64,
}

impl Totals {
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let mut rows = vec![
            ("truncation", self.truncated),
            ("a cancelled send", self.sends_cancelled),
            ("a send cancelled too late", self.sends_cancelled_late),
            ("a cancelled receive", self.receives_cancelled),
            ("a probe that found something", self.probed),
            ("a matched probe that found something", self.taken_by_probe),
            ("a request that was let go", self.detached),
            ("an unexpected message", self.unexpected),
            ("a wait for room", self.waited_for_room),
            ("senders held back", self.held_back),
            ("a staged message", self.staged),
        ];
        if self.connections > 0 {
            rows.extend([
                ("a record without a credit", self.credit_stalls),
                ("a credit taken back", self.credits_returned),
                ("a byte of buffers given back", self.given_back),
                ("a write of blocks", self.block_writes),
                ("a read into blocks", self.block_reads),
                ("a packed segment", self.segments),
                ("a message without room for its packed form", self.packed_refused),
                ("a record by RDMA write", self.written),
            ]);
        }
        rows.push(("a channel that was given up", self.closed));
        if self.read + self.shared > 0 {
            rows.extend([
                ("a message read", self.read),
                ("a message copied by both", self.shared),
                ("a registration evicted", self.registrations_evicted),
            ]);
        }
        // Where only some are mapped, few buffers are used twice.
        if self.read + self.shared > 0 && self.connections == 0 {
            rows.push(("a registration found", self.registrations_found));
        }
        rows
    }

    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.truncated += other.truncated;
        self.sends_cancelled += other.sends_cancelled;
        self.sends_cancelled_late += other.sends_cancelled_late;
        self.receives_cancelled += other.receives_cancelled;
        self.probed += other.probed;
        self.taken_by_probe += other.taken_by_probe;
        self.detached += other.detached;
        self.unexpected += other.unexpected;
        self.waited_for_room += other.waited_for_room;
        self.held_back += other.held_back;
        self.staged += other.staged;
        self.read += other.read;
        self.shared += other.shared;
        self.registrations_found += other.registrations_found;
        self.registrations_evicted += other.registrations_evicted;
        self.connections += other.connections;
        self.credit_stalls += other.credit_stalls;
        self.credits_returned += other.credits_returned;
        self.given_back += other.given_back;
        self.written += other.written;
        self.closed += other.closed;
        self.resized += other.resized;
        self.block_writes += other.block_writes;
        self.block_reads += other.block_reads;
        self.segments += other.segments;
        self.packed_refused += other.packed_refused;
    }
}

pub struct Simulation {
    engines: Vec<Engine>,
    program: Program,
    random: Random,
    title: String,
    ranks: Vec<Rank>,
    fates: Vec<Fate>,
    /// Which message a length between two ranks means.
    by_length: HashMap<(u32, u32, u64), usize>,
    totals: Totals,
}

impl Simulation {
    pub fn new(engines: Vec<Engine>, program: Program, random: Random, title: String) -> Self {
        let by_length =
            program.messages.iter().enumerate().map(|(number, m)| ((m.from, m.to, m.len), number)).collect();
        Self {
            ranks: engines.iter().map(|_| Rank::default()).collect(),
            fates: vec![Fate::Unknown; program.messages.len()],
            by_length,
            engines,
            program,
            random,
            title,
            totals: Totals::default(),
        }
    }

    /// Runs to the end and checks everything.
    pub fn run(mut self) -> Totals {
        println!("{}", self.title);
        let count = self.engines.len() as u64;
        let mut unfinished = self.program.operations.iter().filter(|operations| !operations.is_empty()).count();
        let mut steps = 0;
        while unfinished > 0 {
            steps += 1;
            assert!(steps < STEPS_MAX, "operations go on for ever");
            let rank = self.random.below(count) as usize;
            if self.random.chance(2) {
                self.turn(rank);
            } else if self.ranks[rank].next < self.program.operations[rank].len() {
                self.operate(rank);
                self.ranks[rank].next += 1;
                unfinished -= usize::from(self.ranks[rank].next == self.program.operations[rank].len());
            }
        }
        self.drain();
        self.finish()
    }

    /// Everybody goes on until every message has met its fate and nothing moves any more.
    fn drain(&mut self) {
        let (mut idle_rounds, mut last_move, mut pauses) = (0, Instant::now(), 0);
        while idle_rounds < QUIET_ROUNDS || (!self.is_settled() && last_move.elapsed() < PATIENCE) {
            let mut moved = false;
            for rank in 0..self.engines.len() {
                while let Some(taken) = self.ranks[rank].taken.pop() {
                    self.receive_taken(rank, taken);
                }
                moved |= self.turn(rank);
            }
            for rank in 0..self.engines.len() {
                moved |= !moved && self.take_leftover(rank);
            }
            if moved {
                (idle_rounds, last_move) = (0, Instant::now());
            } else {
                idle_rounds += 1;
                if idle_rounds > 1000 {
                    pauses += 1;
                    assert!(pauses < PAUSES_MAX, "something moves for ever, and messages do not come");
                    // Lost greetings are repeated by the clock on the wall.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// True if every message was received or cancelled, every send has ended, and its buffers are back.
    fn is_settled(&self) -> bool {
        !self.fates.contains(&Fate::Unknown)
            && self.ranks.iter().all(|rank| rank.sends.is_empty())
            && self.engines.iter().all(|engine| engine.pending_sends() == 0)
    }

    /// Posts a receive for a message that waits; false if none does.
    fn take_leftover(&mut self, rank: usize) -> bool {
        let pattern = |context| Pattern { context, source: Source::Any, tag: TagPattern::Any };
        let waits =
            |context: &u32| self.engines[rank].probe(Source::Any, ContextId(*context), TagPattern::Any).is_some();
        let Some(context) = (0..CONTEXTS).find(waits) else { return false };
        self.post(rank, pattern(context), 200_000, None);
        true
    }

    fn finish(mut self) -> Totals {
        let unknown = self.fates.iter().filter(|fate| **fate == Fate::Unknown).count();
        assert_eq!(unknown, 0, "messages that never came");
        for rank in 0..self.engines.len() {
            for receive in &self.ranks[rank].receives {
                self.engines[rank].cancel(receive.request);
            }
            self.collect(rank);
            let left = &self.ranks[rank];
            assert!(left.receives.is_empty(), "a receive of rank {rank} neither ends nor can be cancelled");
            let stuck: Vec<_> = left.sends.iter().map(|send| &self.program.messages[send.number]).collect();
            assert!(stuck.is_empty(), "sends of rank {rank} do not end: {stuck:?}");
        }
        for (rank, of_rank) in self.ranks.iter().enumerate() {
            oracle::check(&self.program.messages, &self.fates, rank as u32, &of_rank.posted);
        }
        for (rank, engine) in self.engines.iter_mut().enumerate() {
            engine.release_registrations();
            assert_eq!(engine.holdings(), Holdings::default(), "rank {rank} still holds something");
            assert_eq!(engine.stats().refused_records, 0, "rank {rank}");
        }
        self.totals()
    }

    fn totals(mut self) -> Totals {
        self.totals.messages = self.program.messages.len() as u64;
        for engine in &self.engines {
            let stats = engine.stats();
            self.totals.unexpected += stats.unexpected;
            self.totals.waited_for_room += stats.eager_waited;
            self.totals.held_back += stats.held_back;
            self.totals.staged += stats.staged_received;
            self.totals.read += stats.read_received;
            self.totals.shared += stats.shared_received;
            self.totals.registrations_found += stats.registrations.hits;
            self.totals.registrations_evicted += stats.registrations.evictions;
            self.totals.connections += stats.connections;
            self.totals.credit_stalls += stats.credit_stalls;
            self.totals.credits_returned += stats.credits_returned;
            self.totals.given_back += stats.pool_given_back_bytes;
            self.totals.written += stats.written_sent;
            self.totals.closed += stats.channels_retired;
            self.totals.resized += stats.blocks_resized;
            self.totals.block_writes += stats.block_writes;
            self.totals.block_reads += stats.block_reads;
            self.totals.segments += stats.segments_packed;
            self.totals.packed_refused += stats.packed_refused;
        }
        self.totals
    }

    /// One rank progresses and fetches what has ended.
    fn turn(&mut self, rank: usize) -> bool {
        let moved = self.engines[rank].progress();
        self.collect(rank) || moved
    }

    fn operate(&mut self, rank: usize) {
        match self.program.operations[rank][self.ranks[rank].next] {
            Operation::Send(number) => self.send(rank, number),
            Operation::Receive { pattern, capacity } => self.post(rank, pattern, capacity, None),
            Operation::Probe { pattern, capacity } => {
                let context = ContextId(pattern.context);
                if let Some(found) = self.engines[rank].probe(pattern.source, context, pattern.tag) {
                    self.totals.probed += 1;
                    let (source, tag) = (Source::Peer(found.peer), TagPattern::Exact(found.tag));
                    self.post(rank, Pattern { source, tag, ..pattern }, capacity, Some(found));
                }
            }
            Operation::MatchedProbe { pattern, capacity } => {
                let context = ContextId(pattern.context);
                if let Some((message, envelope)) =
                    self.engines[rank].matched_probe(pattern.source, context, pattern.tag)
                {
                    self.totals.taken_by_probe += 1;
                    let posted = self.note_posted(rank, pattern);
                    self.ranks[rank].taken.push(Taken { posted, message, envelope, capacity });
                }
            }
            Operation::Cancel => self.cancel(rank),
            Operation::Detach => {
                let sends = &mut self.ranks[rank].sends;
                if let Some(at) = sends.iter().position(|send| !send.cancelled) {
                    self.totals.detached += 1;
                    self.engines[rank].detach(sends.swap_remove(at).request);
                }
            }
        }
        if self.random.chance(3)
            && let Some(taken) = self.ranks[rank].taken.pop()
        {
            self.receive_taken(rank, taken);
        }
    }

    fn send(&mut self, rank: usize, number: usize) {
        let message = self.program.messages[number];
        let payload = payload(number, message.len);
        let buf = if self.random.chance(4) {
            Memory::scattered(&mut self.random, message.len).holding(&payload)
        } else {
            SendBuf::from_owned(payload)
        };
        let context = ContextId(message.context);
        if !message.synchronous
            && self.random.chance(2)
            && self.engines[rank].try_send(message.to, context, message.tag, &buf)
        {
            return;
        }
        let mode = if message.synchronous { SendMode::Synchronous } else { SendMode::Standard };
        let request = self.engines[rank].send(mode, message.to, context, message.tag, buf).expect("a peer");
        self.ranks[rank].sends.push(Sending { number, request, cancelled: false });
    }

    fn post(&mut self, rank: usize, pattern: Pattern, capacity: u64, promised: Option<Envelope>) {
        let (memory, window) = self.memory(capacity);
        let request =
            self.engines[rank].recv(pattern.source, ContextId(pattern.context), pattern.tag, window).expect("a peer");
        let posted = self.note_posted(rank, pattern);
        self.ranks[rank].receives.push(Receiving { posted, request, memory, capacity, promised });
    }

    fn receive_taken(&mut self, rank: usize, taken: Taken) {
        let Taken { posted, message, envelope, capacity } = taken;
        let (memory, window) = self.memory(capacity);
        let request = self.engines[rank].matched_recv(message, window).expect("taken once");
        self.ranks[rank].receives.push(Receiving { posted, request, memory, capacity, promised: Some(envelope) });
    }

    /// Memory for a receive, in one piece or in blocks, and what is received into.
    fn memory(&mut self, capacity: u64) -> (Memory, RecvBuf) {
        let mut memory = if self.random.chance(4) {
            Memory::scattered(&mut self.random, capacity)
        } else {
            Memory::in_one_piece(capacity)
        };
        let window = memory.window();
        (memory, window)
    }

    fn note_posted(&mut self, rank: usize, pattern: Pattern) -> usize {
        self.ranks[rank].posted.push(Posted { pattern, matched: None, left_early: false });
        self.ranks[rank].posted.len() - 1
    }

    /// Cancels something that is not over.
    fn cancel(&mut self, rank: usize) {
        let of_rank = &mut self.ranks[rank];
        let count = of_rank.sends.len() + of_rank.receives.len();
        if count == 0 {
            return;
        }
        let at = self.random.below(count as u64) as usize;
        if let Some(send) = of_rank.sends.get_mut(at) {
            send.cancelled = true;
            self.engines[rank].cancel(send.request);
        } else {
            let receive = &of_rank.receives[at - of_rank.sends.len()];
            of_rank.posted[receive.posted].left_early = true;
            self.engines[rank].cancel(receive.request);
        }
    }

    /// Fetches what has ended at one rank; true if anything has.
    fn collect(&mut self, rank: usize) -> bool {
        let (mut at, mut any) = (0, false);
        while at < self.ranks[rank].sends.len() {
            let Some(completion) = self.engines[rank].take(self.ranks[rank].sends[at].request) else {
                at += 1;
                continue;
            };
            any = true;
            let send = self.ranks[rank].sends.swap_remove(at);
            self.ended_send(&send, &completion);
        }
        at = 0;
        while at < self.ranks[rank].receives.len() {
            let Some(completion) = self.engines[rank].take(self.ranks[rank].receives[at].request) else {
                at += 1;
                continue;
            };
            any = true;
            let receive = self.ranks[rank].receives.swap_remove(at);
            self.ended_receive(rank, &receive, &completion);
        }
        any
    }

    fn ended_send(&mut self, send: &Sending, completion: &Completion) {
        match &completion.outcome {
            Outcome::Cancelled => {
                assert!(send.cancelled, "message {} was cancelled by nobody", send.number);
                assert_eq!(self.fates[send.number], Fate::Unknown, "message {} was received", send.number);
                self.fates[send.number] = Fate::Cancelled;
                self.totals.sends_cancelled += 1;
            }
            outcome => {
                assert_eq!(*outcome, Outcome::Done, "message {}", send.number);
                self.totals.sends_cancelled_late += u64::from(send.cancelled);
            }
        }
    }

    fn ended_receive(&mut self, rank: usize, receive: &Receiving, completion: &Completion) {
        let bytes = receive.memory.received();
        let envelope = completion.envelope;
        if completion.outcome == Outcome::Cancelled {
            assert!(receive.promised.is_none(), "a probe had promised {:?}", receive.promised);
            self.totals.receives_cancelled += 1;
            return;
        }
        let number = self.by_length.get(&(envelope.peer, rank as u32, envelope.len_bytes)).copied();
        let number = number.unwrap_or_else(|| panic!("rank {rank} got what nobody sent: {envelope:?}"));
        assert_eq!(envelope.tag, self.program.messages[number].tag);
        assert_eq!(self.fates[number], Fate::Unknown, "message {number} is received again");
        if let Some(promised) = receive.promised {
            assert_eq!(promised, envelope, "what was probed is what is received");
        }
        self.fates[number] = Fate::Matched(receive.posted);
        self.ranks[rank].posted[receive.posted].matched = Some(number);
        let len = envelope.len_bytes;
        if len > receive.capacity {
            let expected = Outcome::Truncated { sent_bytes: len, capacity_bytes: receive.capacity };
            assert_eq!(completion.outcome, expected, "message {number}");
            self.totals.truncated += 1;
        } else {
            assert_eq!(completion.outcome, Outcome::Done, "message {number}");
            assert!(bytes[..len as usize] == *payload(number, len), "the bytes of message {number}, {len} of them");
        }
    }
}

fn payload(number: usize, len: u64) -> Box<[u8]> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ (number as u64 * 7)) as u8).collect()
}

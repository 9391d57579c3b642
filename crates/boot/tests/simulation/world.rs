//! Engines that take turns as the seed draws, until everything is over.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use datatype::{RecvBuf, SendBuf};
use engine::{
    Completion, ContextId, Engine, EngineError, Envelope, Holdings, MessageId, Outcome, RequestId, SendMode, Source,
    TagPattern,
};

use crate::memory::Memory;
use crate::oracle::{self, Fate, Posted};
use crate::program::{CONTEXTS, Message, Operation, Pattern, Program, Random};

/// Steps after which a run counts as one that does not end.
const STEPS_MAX: u64 = 4_000_000;
/// Rounds in which nothing moves, after which nothing more is awaited.
const QUIET_ROUNDS: u32 = 4;
/// Time that passes for engines in a step, or, where losses are to be told of before everything is over, in such a step;
/// and in a round in which nothing moves.
const STEP_TIME: Duration = Duration::from_micros(2);
const FAILING_STEP_TIME: Duration = Duration::from_millis(3);
const ROUND_TIME: Duration = Duration::from_millis(1);
/// Rounds in which nothing moves until that time passes, for a network has times of its own.
const NETWORK_ROUNDS: u32 = 50;
/// Rounds of a rest, at most.
const RESTING_ROUNDS: u32 = 1000;
/// Rounds after the last operation, of which a message takes a hundred or so where credits are scarce.
const DRAIN_ROUNDS_MAX: u32 = 500_000;
/// Rests until credits that are under way have come.
const BALANCE_RESTS_MAX: u32 = 100;
/// Rounds in which nothing moves while something is still to come; far longer than anything is repeated after.
const PATIENCE_ROUNDS: u32 = 20_000;
/// Such rounds after which a run counts as one that does not end, though something is repeated now and then.
const PAUSES_MAX: u32 = 60_000;

thread_local! {
    static TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The time of engines in a simulation.
pub fn time() -> Duration {
    TIME.get()
}

fn pass(time: Duration) {
    TIME.set(TIME.get() + time);
}

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
    /// Of worlds in which memory is mapped.
    ahead_taken: u64,
    ahead_dropped: u64,
    met_in_channel: u64,
    aboard: u64,
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
    /// Of worlds with tuple queues.
    tuple_sent: u64,
    tuple_hits: u64,
    tuple_fallbacks: u64,
    /// Of worlds in which queue pairs fail.
    failures: u64,
    sends_failed: u64,
    calls_refused: u64,
    receives_failed: u64,
    failed_under_way: u64,
    lost: u64,
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
        if self.tuple_sent > 0 {
            rows.extend([
                ("a message by the queue of its tuple", self.tuple_sent),
                ("a message that met its receive there", self.tuple_hits),
                ("a message of a queue that met a receive outside", self.tuple_fallbacks),
            ]);
        }
        rows.push(("a channel that was given up", self.closed));
        if self.failures > 0 {
            rows.extend([
                ("a connection that failed", self.failures),
                ("a send that failed", self.sends_failed),
                ("a call that needs a process that was lost before", self.calls_refused),
                ("a receive that failed before its message came", self.receives_failed),
                ("a message that was lost", self.lost),
            ]);
        }
        if self.read + self.shared > 0 {
            rows.extend([
                ("a message read", self.read),
                ("a message copied by both", self.shared),
                ("a registration evicted", self.registrations_evicted),
            ]);
        }
        // Where only some are mapped, few buffers are used twice.
        if self.read + self.shared > 0 && self.connections == 0 {
            rows.extend([
                ("a registration found", self.registrations_found),
                ("a byte that went ahead and was taken", self.ahead_taken),
                ("a byte that went ahead in vain", self.ahead_dropped),
                ("a message that met its receive in its channel", self.met_in_channel),
                ("a message aboard a shuttle", self.aboard),
            ]);
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
        self.ahead_taken += other.ahead_taken;
        self.ahead_dropped += other.ahead_dropped;
        self.met_in_channel += other.met_in_channel;
        self.aboard += other.aboard;
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
        self.tuple_sent += other.tuple_sent;
        self.tuple_hits += other.tuple_hits;
        self.tuple_fallbacks += other.tuple_fallbacks;
        self.failures += other.failures;
        self.sends_failed += other.sends_failed;
        self.calls_refused += other.calls_refused;
        self.receives_failed += other.receives_failed;
        self.failed_under_way += other.failed_under_way;
        self.lost += other.lost;
    }
}

pub struct Simulation {
    engines: Vec<Engine>,
    program: Program,
    random: Random,
    title: String,
    ranks: Vec<Rank>,
    fates: Vec<Fate>,
    /// Pairs of ranks whose connection may fail, the lower number first.
    failing: BTreeSet<(u32, u32)>,
    /// Messages whose senders wanted to cancel them and lost the receivers before they had an answer: these may have
    /// thrown them out.
    doubtful: BTreeSet<usize>,
    /// Which message a length between two ranks means.
    by_length: HashMap<(u32, u32, u64), usize>,
    totals: Totals,
}

impl Simulation {
    pub fn new(engines: Vec<Engine>, program: Program, random: Random, title: String) -> Self {
        let by_length =
            program.messages.iter().enumerate().map(|(number, m)| ((m.from, m.to, m.len), number)).collect();
        Self {
            failing: BTreeSet::new(),
            doubtful: BTreeSet::new(),
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

    /// The connections of these pairs may fail; no others.
    pub fn with_failing(mut self, pairs: impl IntoIterator<Item = (u32, u32)>) -> Self {
        self.failing = pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
        self
    }

    /// True if one of the two has lost the other.
    fn is_broken(&self, a: u32, b: u32) -> bool {
        self.engines[a as usize].lost(b).is_some() || self.engines[b as usize].lost(a).is_some()
    }

    /// Runs to the end and checks everything.
    pub fn run(mut self) -> Totals {
        println!("{}", self.title);
        let count = self.engines.len() as u64;
        let mut unfinished = self.program.operations.iter().filter(|operations| !operations.is_empty()).count();
        let (mut steps, mut operations) = (0, 0usize);
        while unfinished > 0 {
            steps += 1;
            pass(if self.failing.is_empty() { STEP_TIME } else { FAILING_STEP_TIME });
            assert!(steps < STEPS_MAX, "operations go on for ever");
            let rank = self.random.below(count) as usize;
            if self.random.chance(2) {
                self.turn(rank);
            } else if self.ranks[rank].next < self.program.operations[rank].len() {
                self.operate(rank);
                self.ranks[rank].next += 1;
                operations += 1;
                if self.program.rests_after.is_some_and(|after| operations.is_multiple_of(after)) {
                    self.rest();
                }
                unfinished -= usize::from(self.ranks[rank].next == self.program.operations[rank].len());
            }
        }
        self.drain();
        self.balance();
        self.finish()
    }

    /// Nobody does anything new until nothing moves any more, or for long enough.
    fn rest(&mut self) {
        let mut idle_rounds = 0;
        for _ in 0..RESTING_ROUNDS {
            pass(STEP_TIME);
            let mut moved = false;
            for rank in 0..self.engines.len() {
                moved |= self.turn(rank);
            }
            idle_rounds = if moved { 0 } else { idle_rounds + 1 };
            if idle_rounds > NETWORK_ROUNDS {
                return;
            }
        }
    }

    /// Everybody goes on until every message has met its fate and nothing moves any more.
    fn drain(&mut self) {
        let (mut idle_rounds, mut pauses, mut rounds) = (0, 0, 0);
        while idle_rounds < QUIET_ROUNDS || (idle_rounds < PATIENCE_ROUNDS && !self.is_settled()) {
            let mut moved = false;
            rounds += 1;
            assert!(rounds < DRAIN_ROUNDS_MAX, "messages come too slowly\n{}", self.standing_of_missing());
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
                idle_rounds = 0;
            } else {
                idle_rounds += 1;
                if idle_rounds > NETWORK_ROUNDS {
                    pauses += 1;
                    assert!(pauses < PAUSES_MAX, "messages do not come\n{}", self.standing_of_missing());
                    // Greetings that are lost are said again by the clock, and losses told of.
                    pass(ROUND_TIME);
                }
            }
        }
    }

    /// True if every message was received, cancelled or lost as both sides know, every send has ended, and its buffers
    /// are back.
    fn is_settled(&self) -> bool {
        let knows = |a: u32, b: u32| self.engines[a as usize].lost(b).is_some();
        let is_over =
            |(fate, m): (&Fate, &Message)| *fate != Fate::Unknown || (knows(m.from, m.to) && knows(m.to, m.from));
        self.fates.iter().zip(&self.program.messages).all(is_over)
            && self.failing.iter().all(|(a, b)| knows(*a, *b) == knows(*b, *a))
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
        self.tell_lost_messages();
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

    /// What never came was between ranks that have lost each other, both of which know; and only those have whose
    /// connection was to fail.
    fn tell_lost_messages(&mut self) {
        for number in 0..self.fates.len() {
            let message = self.program.messages[number];
            if self.fates[number] == Fate::Unknown {
                let (from, to) = (message.from, message.to);
                let knows = |a: u32, b: u32| self.engines[a as usize].lost(b).is_some();
                let standing = || self.standing(from, to);
                assert!(knows(from, to) && knows(to, from), "message {number} never came: {message:?}\n{}", standing());
                self.fates[number] = if self.doubtful.contains(&number) { Fate::Cancelled } else { Fate::Lost };
                self.totals.lost += 1;
            }
        }
        for a in 0..self.engines.len() as u32 {
            for b in 0..a {
                if self.is_broken(a, b) {
                    assert!(self.failing.contains(&(b, a)), "{a} and {b} lost each other, and nothing had failed");
                    assert!(self.engines[a as usize].lost(b).is_some(), "{a} does not know that {b} lost it");
                    assert!(self.engines[b as usize].lost(a).is_some(), "{b} does not know that {a} lost it");
                    self.totals.failures += 1;
                    self.use_lost(a, b);
                    self.use_lost(b, a);
                }
            }
        }
    }

    /// What each of two has for the other.
    fn standing(&self, a: u32, b: u32) -> String {
        format!("{}\n{}", self.engines[a as usize].standing(b), self.engines[b as usize].standing(a))
    }

    /// The same for the first message that nothing is known of.
    fn standing_of_missing(&self) -> String {
        let missing = self.fates.iter().position(|fate| *fate == Fate::Unknown).map(|at| &self.program.messages[at]);
        missing.map_or_else(String::new, |message| format!("{message:?}\n{}", self.standing(message.from, message.to)))
    }

    /// What each grants is what the other has, or is owed, as soon as nothing is under way.
    fn balance(&mut self) {
        for _ in 0..BALANCE_RESTS_MAX {
            if self.unbalanced().is_none() {
                return;
            }
            self.rest();
        }
        let (a, b) = self.unbalanced().expect("looked at above");
        panic!("credits were lost between {a} and {b}\n{}", self.standing(a, b));
    }

    /// Two whose credits do not add up.
    fn unbalanced(&self) -> Option<(u32, u32)> {
        let count = self.engines.len() as u32;
        let mut pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        pairs.find(|(a, b)| {
            let balances = [(*a, *b), (*b, *a)].map(|(a, b)| self.engines[a as usize].credit_balance(b));
            let [Some(here), Some(there)] = balances else { return false };
            here.granted != here.owed + there.available + there.set_aside
        })
    }

    /// Calls that need a lost process say so at once.
    fn use_lost(&mut self, rank: u32, peer: u32) {
        let context = ContextId(CONTEXTS);
        let engine = &mut self.engines[rank as usize];
        let buf = SendBuf::from_owned(Box::default());
        let sent = engine.send(SendMode::Standard, peer, context, 0, buf).err();
        let window = RecvBuf::from_owned(Box::default());
        let received = engine.recv(Source::Peer(peer), context, TagPattern::Any, window).err();
        for error in [sent, received] {
            self.expect_loss(&error.expect("it is lost"), rank as usize, peer);
            self.totals.calls_refused += 1;
        }
    }

    fn totals(mut self) -> Totals {
        self.totals.messages = self.program.messages.len() as u64;
        for engine in &self.engines {
            let stats = engine.stats();
            self.totals.unexpected += stats.unexpected;
            self.totals.waited_for_room += stats.eager_waited;
            self.totals.held_back += stats.held_back;
            self.totals.staged += stats.staged_received;
            self.totals.ahead_taken += stats.ahead_taken_bytes;
            self.totals.ahead_dropped += stats.ahead_dropped_bytes;
            self.totals.met_in_channel += stats.met_in_channel;
            self.totals.aboard += stats.aboard_sent;
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
            self.totals.tuple_sent += stats.tuple_sent;
            self.totals.tuple_hits += stats.tuple_hits;
            self.totals.tuple_fallbacks += stats.tuple_fallbacks;
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
        match self.engines[rank].send(mode, message.to, context, message.tag, buf) {
            Ok(request) => {
                self.ranks[rank].sends.push(Sending { number, request, cancelled: false });
                if self.random.chance(2) {
                    self.engines[rank].answer();
                }
            }
            Err(error) => {
                self.expect_loss(&error, rank, message.to);
                self.totals.calls_refused += 1;
            }
        }
    }

    /// A call failed since this rank had lost that one.
    fn expect_loss(&self, error: &EngineError, rank: usize, peer: u32) {
        let pair = (peer.min(rank as u32), peer.max(rank as u32));
        assert!(matches!(error, EngineError::PeerLost { peer: its, .. } if *its == peer), "{error}");
        assert!(self.failing.contains(&pair), "{error}");
    }

    fn post(&mut self, rank: usize, pattern: Pattern, capacity: u64, promised: Option<Envelope>) {
        let (memory, window) = self.memory(capacity);
        let Pattern { source, tag, .. } = pattern;
        let (context, engine) = (ContextId(pattern.context), &mut self.engines[rank]);
        let posted = match self.random.chance(2) {
            true => engine.recv_beside_work(source, context, tag, window),
            false => engine.recv(source, context, tag, window),
        };
        let request = match posted {
            Ok(request) => request,
            Err(error) => {
                let Source::Peer(peer) = pattern.source else { panic!("{error}") };
                return self.expect_loss(&error, rank, peer);
            }
        };
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
            Outcome::Failed(fault) => {
                let message = &self.program.messages[send.number];
                assert!(fault.is_loss && self.is_broken(message.from, message.to), "{fault:?}");
                self.totals.sends_failed += 1;
                if send.cancelled {
                    self.doubtful.insert(send.number);
                }
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
        if let Outcome::Failed(fault) = &completion.outcome {
            assert!(fault.is_loss && self.is_broken(envelope.peer, rank as u32), "{fault:?}");
            return self.failed_receive(rank, receive, envelope);
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

    /// A receive failed: with its message, or while it waited for one.
    fn failed_receive(&mut self, rank: usize, receive: &Receiving, envelope: Envelope) {
        let posted = &mut self.ranks[rank].posted[receive.posted];
        // A message without data is there as soon as it is matched.
        let its = self.by_length.get(&(envelope.peer, rank as u32, envelope.len_bytes));
        match its.filter(|_| envelope.len_bytes > 0) {
            Some(number) => {
                assert_eq!(self.fates[*number], Fate::Unknown, "message {number} is received again");
                self.fates[*number] = Fate::Failed(receive.posted);
                posted.matched = Some(*number);
                self.totals.failed_under_way += 1;
            }
            None => {
                assert!(receive.promised.is_none(), "a probe had promised {:?}", receive.promised);
                let may = [Source::Any, Source::Peer(envelope.peer)].contains(&posted.pattern.source);
                assert!(may, "{posted:?} failed with {}", envelope.peer);
                posted.left_early = true;
                self.totals.receives_failed += 1;
            }
        }
    }
}

fn payload(number: usize, len: u64) -> Box<[u8]> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ (number as u64 * 7)) as u8).collect()
}

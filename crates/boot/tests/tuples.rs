//! Tuple queues under random programs of sends, receives, wildcards, probes and cancellations, judged by MPI's rules of
//! order (MPI: §3.5) when everything is over.

use base::Config;
use base::config::Rendezvous;
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{Completion, ContextId, Engine, Outcome, RequestId, SendMode, Source, Stats, TagPattern};
use fabric_soft::shm::probe_cross_memory;

const CONTEXT: ContextId = ContextId(5);
const TAGS: u64 = 3;
const ROOM: usize = 20_000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn config(rendezvous: Rendezvous) -> Config {
    Config { rendezvous, tuple_queues_max: 4, tuple_retreat: 12, ..Config::default() }
}

/// True if the test can not run here.
fn is_skipped() -> bool {
    let probed = probe_cross_memory();
    if let Err(why) = &probed {
        println!("skipped: whoever comes second moves the data: {why}");
    }
    probed.is_err()
}

/// A receive, and the message it got.
struct Receive {
    source: Source,
    tag: TagPattern,
    request: Option<RequestId>,
    buf: RecvBuf,
    /// Sender, its number there, tag.
    got: Option<(u32, u64, i32)>,
    is_cancelled: bool,
}

impl Receive {
    fn accepts(&self, from: u32, tag: i32) -> bool {
        (self.source == Source::Any || self.source == Source::Peer(from))
            && (self.tag == TagPattern::Any || self.tag == TagPattern::Exact(tag))
    }
}

struct Sent {
    to: u32,
    tag: i32,
    len: usize,
    request: Option<RequestId>,
}

struct Rank {
    engine: Engine,
    sent: Vec<Sent>,
    receives: Vec<Receive>,
}

/// Who sent it and its number are in the message itself, and every byte of it tells of them.
fn bytes(from: u32, number: u64, len: usize) -> Box<[u8]> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u64 * 31 + number * 7 + u64::from(from)) as u8).collect();
    bytes[..4].copy_from_slice(&from.to_ne_bytes());
    bytes[4..12].copy_from_slice(&number.to_ne_bytes());
    bytes.into()
}

impl Rank {
    fn send(&mut self, random: &mut Random, to: u32) {
        let from = self.engine.rank();
        let tag = random.below(TAGS) as i32;
        let len = [12, 100, 300, 5000, 9000, ROOM][random.below(6) as usize];
        let number = self.sent.iter().filter(|sent| sent.to == to).count() as u64;
        let mode = if random.below(6) == 0 { SendMode::Synchronous } else { SendMode::Standard };
        let buf = SendBuf::from_owned(bytes(from, number, len));
        let request = Some(self.engine.send(mode, to, CONTEXT, tag, buf).expect("a peer"));
        self.sent.push(Sent { to, tag, len, request });
    }

    fn receive(&mut self, source: Source, tag: TagPattern) {
        let mut buf = RecvBuf::from_owned(vec![0; ROOM].into());
        let request = Some(self.engine.recv(source, CONTEXT, tag, buf.slice(0, ROOM as u64)).expect("a peer"));
        self.receives.push(Receive { source, tag, request, buf, got: None, is_cancelled: false });
    }

    fn look(&mut self) {
        self.engine.progress();
        for sent in &mut self.sent {
            if let Some(done) = sent.request.and_then(|request| self.engine.take(request)) {
                assert_eq!(done.outcome, Outcome::Done, "sends are not cancelled here");
                sent.request = None;
            }
        }
        for receive in &mut self.receives {
            let Some(Completion { envelope, outcome }) = receive.request.and_then(|it| self.engine.take(it)) else {
                continue;
            };
            receive.request = None;
            if outcome == Outcome::Cancelled {
                receive.is_cancelled = true;
                continue;
            }
            assert_eq!(outcome, Outcome::Done);
            let data = &receive.buf.as_contiguous().expect("bytes")[..envelope.len_bytes as usize];
            let from = u32::from_ne_bytes(data[..4].try_into().expect("four"));
            let number = u64::from_ne_bytes(data[4..12].try_into().expect("eight"));
            assert_eq!(data, &bytes(from, number, data.len())[..], "whole");
            assert_eq!(envelope.peer, from);
            receive.got = Some((from, number, envelope.tag));
        }
    }
}

/// One program; what the engines counted.
fn program(seed: u64, size: u32, steps: u64, rendezvous: Rendezvous, wildcards: u64) -> Stats {
    let mut random = Random(seed);
    let engines = local_engines(size, &config(rendezvous)).expect("a world");
    let mut ranks: Vec<Rank> =
        engines.into_iter().map(|engine| Rank { engine, sent: Vec::new(), receives: Vec::new() }).collect();
    for _ in 0..steps {
        let me = random.below(size.into()) as usize;
        let other = random.below(size.into()) as u32;
        let rank = &mut ranks[me];
        match random.below(10) {
            0..3 => rank.send(&mut random, other),
            3..6 => {
                let is_wild = random.below(100) < wildcards;
                let source = if is_wild && random.below(2) == 0 { Source::Any } else { Source::Peer(other) };
                let exact = TagPattern::Exact(random.below(TAGS) as i32);
                let tag = if is_wild && random.below(2) == 0 { TagPattern::Any } else { exact };
                rank.receive(source, tag);
            }
            6 if random.below(3) == 0 => {
                let pending: Vec<RequestId> = rank.receives.iter().filter_map(|receive| receive.request).collect();
                if let Some(request) = pending.get(random.below(pending.len().max(1) as u64) as usize) {
                    rank.engine.cancel(*request);
                }
            }
            7 if random.below(3) == 0 && wildcards > 0 => {
                if let Some((message, envelope)) = rank.engine.matched_probe(Source::Any, CONTEXT, TagPattern::Any) {
                    let mut buf = RecvBuf::from_owned(vec![0; ROOM].into());
                    let request = rank.engine.matched_recv(message, buf.slice(0, ROOM as u64)).expect("it is there");
                    let (source, tag) = (Source::Peer(envelope.peer), TagPattern::Exact(envelope.tag));
                    let request = Some(request);
                    rank.receives.push(Receive { source, tag, request, buf, got: None, is_cancelled: false });
                }
            }
            _ => rank.look(),
        }
    }
    drain(&mut ranks, seed);
    judge(&ranks, seed);
    ranks.iter().fold(Stats::default(), |mut sum, rank| {
        let stats = rank.engine.stats();
        sum.tuple_sent += stats.tuple_sent;
        sum.tuple_hits += stats.tuple_hits;
        sum.tuple_received += stats.tuple_received;
        sum.tuple_fallbacks += stats.tuple_fallbacks;
        sum.tuple_queues += stats.tuple_queues;
        sum
    })
}

/// Receives what is left, with wildcards; then cancels the receives that nothing was sent for.
fn drain(ranks: &mut [Rank], seed: u64) {
    let mut idle = 0;
    for round in 0.. {
        assert!(round < 200_000, "seed {seed}: messages are missing");
        ranks.iter_mut().for_each(Rank::look);
        let is_done = ranks
            .iter()
            .all(|rank| rank.sent.iter().all(|sent| sent.request.is_none()) && rank.engine.pending_sends() == 0);
        idle = if is_done { idle + 1 } else { 0 };
        if idle > 50 && ranks.iter().all(|rank| rank.engine.unexpected_count() == 0) {
            break;
        }
        for rank in ranks.iter_mut() {
            if rank.engine.probe(Source::Any, CONTEXT, TagPattern::Any).is_some() {
                rank.receive(Source::Any, TagPattern::Any);
            }
        }
    }
    for rank in ranks.iter_mut() {
        for receive in &rank.receives {
            if let Some(request) = receive.request {
                rank.engine.cancel(request);
            }
        }
        rank.look();
        assert!(rank.receives.iter().all(|it| it.request.is_none()), "seed {seed}: a receive neither ends nor goes");
    }
}

/// Every message came once, with its tag; none was overtaken; no receive was passed over.
fn judge(ranks: &[Rank], seed: u64) {
    for rank in ranks {
        let me = rank.engine.rank();
        for peer in ranks {
            let from = peer.engine.rank();
            let sent: Vec<&Sent> = peer.sent.iter().filter(|sent| sent.to == me).collect();
            let mut receives = vec![None; sent.len()];
            for (index, receive) in rank.receives.iter().enumerate() {
                let Some((source, number, tag)) = receive.got.filter(|(source, ..)| *source == from) else { continue };
                let message = sent[number as usize];
                assert_eq!(message.tag, tag, "seed {seed}");
                assert!(receive.accepts(source, tag), "seed {seed}");
                let before = receives[number as usize].replace(index);
                assert_eq!(before, None, "seed {seed}: message {number} of {from} came twice to {me}");
            }
            for (number, message) in sent.iter().enumerate() {
                let Some(by) = receives[number] else {
                    panic!("seed {seed}: message {number} of {from} to {me} ({} bytes) is lost", message.len)
                };
                // A receive posted earlier that takes this message has a message sent earlier, or another sender's.
                for (index, receive) in rank.receives[..by].iter().enumerate() {
                    let is_passed_over = match receive.got {
                        _ if !receive.accepts(from, message.tag) || receive.is_cancelled => false,
                        Some((source, other, _)) => source == from && other > number as u64,
                        None => true,
                    };
                    assert!(!is_passed_over, "seed {seed}: {me}'s receive {index} was passed over for {by}");
                }
            }
        }
    }
}

#[test]
fn random_programs_without_wildcards_go_by_queues_in_order() {
    if is_skipped() {
        return;
    }
    for seed in 1..=30 {
        let stats = program(seed, 2 + (seed % 3) as u32, 2000, Rendezvous::TupleQueueCopy, 0);
        assert!(stats.tuple_sent > 0 && stats.tuple_sent == stats.tuple_received, "seed {seed}: {stats:?}");
    }
}

#[test]
fn random_programs_with_wildcards_and_probes_keep_the_order() {
    if is_skipped() {
        return;
    }
    let mut fallbacks = 0;
    for seed in 1..=60 {
        let rendezvous = if seed % 2 == 0 { Rendezvous::TupleQueue } else { Rendezvous::TupleQueueCopy };
        let stats = program(seed, 2 + (seed % 3) as u32, 1500, rendezvous, [5, 30, 80][(seed % 3) as usize]);
        assert_eq!(stats.tuple_sent, stats.tuple_received, "seed {seed}");
        fallbacks += stats.tuple_fallbacks;
    }
    assert!(fallbacks > 0, "wildcards met messages of tuples with queues");
}

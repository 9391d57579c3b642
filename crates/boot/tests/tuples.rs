//! Tuple queues under random programs of sends, receives, wildcards, probes and cancellations, judged by MPI's rules of
//! order (MPI: §3.5) when everything is over.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use base::Config;
use base::config::{DeviceChoice, Medium, Rendezvous};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{
    Completion, ContextId, Engine, EngineError, Holdings, Outcome, RequestId, SendMode, Source, Stats, TagPattern,
    TupleSetup, WaitPolicy,
};
use fabric::{Context, MappedArea, MappedPeers, PeerIndex, QueuePairAttributes, Transport};
use fabric_soft::shm::{Segment, Shape, ShmLink, ShmPeers, probe_cross_memory};
use fabric_soft::{SimNetwork, SimPlan, SoftContext};
use lockfree::{Announcements, BlockSender, Record};
use protocol::fastpath::Geometry;
use protocol::tupleq::{self, TupleMessage};

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
fn program(seed: u64, size: u32, steps: u64, config: &Config, wildcards: u64) -> Stats {
    let mut random = Random(seed);
    let engines = local_engines(size, config).expect("a world");
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
        sum.tuple_held += stats.tuple_held;
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

/// Two processes share memory, where some do.
fn over(device: DeviceChoice, rendezvous: Rendezvous) -> Config {
    let host_ranks_max = if device == DeviceChoice::ShmAndTcp { 2 } else { 0 };
    Config { device, host_ranks_max, ..config(rendezvous) }
}

fn without_wildcards(device: DeviceChoice) {
    if is_skipped() {
        return;
    }
    let mut sent = 0;
    for seed in 1..=30 {
        let config = over(device, Rendezvous::TupleQueueCopy);
        let stats = program(seed, 2 + (seed % 3) as u32, 2000, &config, 0);
        assert_eq!(stats.tuple_sent, stats.tuple_received, "seed {seed}: {stats:?}");
        assert_eq!(stats.tuple_held, 0, "seed {seed}: nobody waits for a queue");
        // A short program may be over before queues are granted, where that takes time.
        assert!(stats.tuple_sent > 0 || device == DeviceChoice::Tcp, "seed {seed}: {stats:?}");
        sent += stats.tuple_sent;
    }
    assert!(sent > 0, "queues were granted");
}

#[test]
fn random_programs_without_wildcards_go_by_queues_in_order() {
    without_wildcards(DeviceChoice::Shm);
}

#[test]
fn random_programs_without_wildcards_go_by_queues_in_order_beside_an_adapter() {
    without_wildcards(DeviceChoice::ShmVerbs);
}

#[test]
fn random_programs_without_wildcards_go_by_queues_in_order_over_sockets() {
    without_wildcards(DeviceChoice::Tcp);
}

#[test]
fn random_programs_without_wildcards_go_by_queues_in_order_over_shared_memory_and_sockets() {
    without_wildcards(DeviceChoice::ShmAndTcp);
}

fn with_wildcards(device: DeviceChoice) {
    if is_skipped() {
        return;
    }
    let mut fallbacks = 0;
    for seed in 1..=60 {
        let rendezvous = if seed % 2 == 0 { Rendezvous::TupleQueue } else { Rendezvous::TupleQueueCopy };
        let config = over(device, rendezvous);
        let stats = program(seed, 2 + (seed % 3) as u32, 1500, &config, [5, 30, 80][(seed % 3) as usize]);
        assert_eq!(stats.tuple_sent, stats.tuple_received, "seed {seed}");
        fallbacks += stats.tuple_fallbacks;
    }
    assert!(fallbacks > 0, "wildcards met messages of tuples with queues");
}

#[test]
fn random_programs_with_wildcards_and_probes_keep_the_order() {
    with_wildcards(DeviceChoice::Shm);
}

#[test]
fn random_programs_with_wildcards_and_probes_keep_the_order_beside_an_adapter() {
    with_wildcards(DeviceChoice::ShmVerbs);
}

#[test]
fn random_programs_with_wildcards_and_probes_keep_the_order_over_sockets() {
    with_wildcards(DeviceChoice::Tcp);
}

#[test]
fn random_programs_with_wildcards_and_probes_keep_the_order_over_shared_memory_and_sockets() {
    with_wildcards(DeviceChoice::ShmAndTcp);
}

#[test]
fn messages_of_tuples_go_by_queues_to_who_shares_memory_and_to_who_does_not() {
    if is_skipped() {
        return;
    }
    let mut engines = local_engines(4, &over(DeviceChoice::ShmAndTcp, Rendezvous::TupleQueue)).expect("a world");
    let deadline = Instant::now() + Duration::from_secs(60);
    let by_queues = |engines: &[Engine], to| {
        let found = engines[0].peer_stats().find(|(peer, _)| *peer == to);
        found.map_or(0, |(_, stats)| stats.tuple_sent)
    };
    while by_queues(&engines, 1) < 20 || by_queues(&engines, 3) < 20 {
        assert!(Instant::now() < deadline, "{} and {}", by_queues(&engines, 1), by_queues(&engines, 3));
        // One comes first and then the other.
        for (to, receives_first) in [(1, true), (3, true), (1, false), (3, false)] {
            let mut request = None;
            let receive = |engine: &mut Engine| {
                let buf = RecvBuf::from_owned([0; 5000].into());
                engine.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(9), buf).expect("a peer")
            };
            if receives_first {
                request = Some(receive(&mut engines[to]));
            }
            let buf = SendBuf::from_owned([7; 5000].into());
            let send = engines[0].send(SendMode::Standard, to as u32, CONTEXT, 9, buf).expect("a peer");
            engines.iter_mut().for_each(|engine| _ = engine.progress());
            let request = request.unwrap_or_else(|| receive(&mut engines[to]));
            while !engines[to].is_complete(request) || !engines[0].is_complete(send) {
                engines.iter_mut().for_each(|engine| _ = engine.progress());
            }
            let completion = engines[to].take(request).expect("it came");
            assert_eq!((completion.outcome, completion.envelope.len_bytes), (Outcome::Done, 5000));
            engines[0].take(send);
        }
    }
}

/// Two engines over a device; messages of these tags go from the first to the second by queues of their tuples.
fn granted(device: DeviceChoice, tags: std::ops::Range<i32>) -> [Engine; 2] {
    let config = Config { device, tuple_queues_max: 512, ..config(Rendezvous::TupleQueue) };
    let engines = local_engines(2, &config).expect("a world");
    let mut pair: [Engine; 2] = engines.try_into().unwrap_or_else(|_| panic!("two"));
    for tag in tags {
        for _ in 0..2 {
            let [sender, receiver] = &mut pair;
            sender.send(SendMode::Standard, 1, CONTEXT, tag, SendBuf::from_owned([7; 12].into())).expect("a peer");
            let buf = RecvBuf::from_owned([0; 12].into());
            let request = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(tag), buf).expect("a peer");
            while !pair[1].is_complete(request) {
                pair.iter_mut().for_each(|engine| _ = engine.progress());
            }
            (0..4).for_each(|_| pair.iter_mut().for_each(|engine| _ = engine.progress()));
            assert_eq!(pair[1].take(request).expect("it came").outcome, Outcome::Done);
        }
    }
    pair
}

#[test]
fn receives_in_queues_leave_room_for_fetching_what_a_probe_took() {
    if is_skipped() {
        return;
    }
    let tags = 160;
    let [mut sender, mut receiver] = granted(DeviceChoice::Shm, 0..tags);
    assert_eq!(receiver.stats().tuple_queues, tags as u64);
    for tag in 1..tags {
        for _ in 0..32 {
            let buf = RecvBuf::from_owned([0; 12].into());
            receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(tag), buf).expect("a peer");
        }
    }
    sender.send(SendMode::Standard, 1, CONTEXT, 0, SendBuf::from_owned(bytes(0, 1, 300))).expect("a peer");
    receiver.progress();
    let (message, _) = receiver.matched_probe(Source::Any, CONTEXT, TagPattern::Exact(0)).expect("it was announced");
    let mut buf = RecvBuf::from_owned(vec![0; 300].into());
    let request = receiver.matched_recv(message, buf.slice(0, 300)).expect("it is there");
    assert_eq!(receiver.take(request).expect("it is here").outcome, Outcome::Done);
    assert_eq!(buf.as_contiguous().expect("bytes"), &bytes(0, 1, 300)[..]);
    // Those that found no room in the queues are met as well.
    sender.send(SendMode::Standard, 1, CONTEXT, tags - 1, SendBuf::from_owned([7; 12].into())).expect("a peer");
    let before = receiver.holdings().requests;
    receiver.progress();
    assert_eq!((receiver.holdings().requests, receiver.unexpected_count()), (before, 0));
}

#[test]
fn a_cancelled_send_that_was_received_is_forgotten() {
    if is_skipped() {
        return;
    }
    let [mut sender, mut receiver] = granted(DeviceChoice::Shm, 0..1);
    let buf = SendBuf::from_owned(bytes(0, 1, 300));
    let send = sender.send(SendMode::Synchronous, 1, CONTEXT, 0, buf).expect("a peer");
    receiver.progress();
    let buf = RecvBuf::from_owned(vec![0; 300].into());
    let receive = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(0), buf).expect("a peer");
    assert_eq!(receiver.take(receive).expect("it was fetched").outcome, Outcome::Done);
    sender.cancel(send);
    assert_eq!(sender.holdings().cancellations, 1);
    sender.progress();
    receiver.progress();
    sender.progress();
    assert_eq!(sender.take(send).expect("it is over").outcome, Outcome::Done);
    assert_eq!(sender.holdings().cancellations, 0);
}

/// A message waits that is longer than the receive that was posted for it: with room made for it, it is there at once, and
/// nothing is known of a message for the receive behind.
#[test]
fn the_receive_behind_one_that_was_too_short_can_be_cancelled() {
    if is_skipped() {
        return;
    }
    let [mut sender, mut receiver] = granted(DeviceChoice::Shm, 0..1);
    sender.send(SendMode::Standard, 1, CONTEXT, 0, SendBuf::from_owned(bytes(0, 1, 300))).expect("a peer");
    let [short, behind] = [(); 2].map(|()| {
        let buf = RecvBuf::from_owned([0; 12].into());
        receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(0), buf).expect("a peer")
    });
    assert!(!receiver.is_complete(short), "it was not told of yet");
    receiver.progress();
    let outcome = receiver.take(short).expect("there is room").outcome;
    assert_eq!(outcome, Outcome::Truncated { sent_bytes: 300, capacity_bytes: 12 });
    receiver.cancel(behind);
    assert_eq!(receiver.take(behind).expect("it is over").outcome, Outcome::Cancelled);
}

/// The answer to a cancellation, and the news that the device is done with the message, come in any order. Who cancels
/// again meanwhile, and again, waits for no second answer.
#[test]
fn a_send_that_is_cancelled_again_and_again_ends() {
    let mut cancelled = 0;
    for seed in 0..40 {
        let plan = SimPlan { jitter_ns: 100_000, ..SimPlan::new(seed) };
        let network = SimNetwork::new(plan);
        let open = |_| Box::new(SoftContext::new(network.link().expect("room"))) as Box<dyn Context>;
        let engines = boot::engines_over((0..2).map(open).collect(), &config(Rendezvous::TupleQueue), None);
        let mut pair: [Engine; 2] = engines.expect("a world").try_into().unwrap_or_else(|_| panic!("two"));
        let send = |pair: &mut [Engine; 2]| {
            let buf = SendBuf::from_owned(bytes(0, 1, 300));
            pair[0].send(SendMode::Synchronous, 1, CONTEXT, 0, buf).expect("a peer")
        };
        while pair[0].stats().tuple_sent == 0 {
            send(&mut pair);
            let buf = RecvBuf::from_owned(vec![0; 300].into());
            pair[1].recv(Source::Peer(0), CONTEXT, TagPattern::Exact(0), buf).expect("a peer");
            turns(&mut pair);
        }
        let request = send(&mut pair);
        turns(&mut pair);
        let standing = pair[0].standing(1);
        assert!(standing.contains("1 messages on the device") && standing.contains("send(tag 0, 300 bytes)"));
        for _ in 0..10_000 {
            pair[0].cancel(request);
            pair.iter_mut().for_each(|engine| _ = engine.progress());
        }
        let ended = pair[0].take(request).unwrap_or_else(|| panic!("seed {seed}: {}", pair[0].standing(1)));
        cancelled += u32::from(ended.outcome == Outcome::Cancelled);
    }
    assert!(cancelled > 30, "{cancelled} were cancelled in time");
}

fn turns(pair: &mut [Engine; 2]) {
    (0..10_000).for_each(|_| pair.iter_mut().for_each(|engine| _ = engine.progress()));
}

/// Longer than any machine keeps a runnable thread waiting, and shorter than so many sleeps that nobody ends.
const LOST: Duration = Duration::from_secs(25);
const SLEEPS: u32 = 80;

#[test]
fn who_comes_second_wakes_who_sleeps_beside_an_adapter() {
    if is_skipped() {
        return;
    }
    let [mut sender, mut receiver] = granted(DeviceChoice::ShmVerbs, 0..1);
    let (posted, is_posted) = mpsc::channel();
    let start = Instant::now();
    let thread = thread::spawn(move || {
        let waiter = receiver.waiter();
        for _ in 0..SLEEPS {
            let buf = RecvBuf::from_owned([0; 12].into());
            let receive = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(0), buf).expect("a peer");
            posted.send(()).expect("it listens");
            while !receiver.is_complete(receive) {
                let ticket = waiter.announce();
                let moved = receiver.progress();
                if moved || receiver.is_complete(receive) { waiter.withdraw(ticket) } else { waiter.sleep(ticket) }
            }
            receiver.take(receive);
        }
    });
    for _ in 0..SLEEPS {
        is_posted.recv().expect("it posts");
        thread::sleep(Duration::from_millis(3));
        let buf = SendBuf::from_owned([7; 12].into());
        let send = sender.send(SendMode::Standard, 1, CONTEXT, 0, buf).expect("a peer");
        assert!(sender.take(send).is_some(), "the receive was there: the sender moved the data");
    }
    thread.join().expect("it only receives");
    assert!(start.elapsed() < LOST, "sleepers are woken");
    assert!(sender.stats().tuple_hits >= SLEEPS.into(), "{:?}", sender.stats());
}

#[test]
fn a_receive_in_a_queue_ends_when_its_sender_is_lost() {
    if is_skipped() {
        return;
    }
    let [sender, mut receiver] = granted(DeviceChoice::ShmVerbs, 0..1);
    let buf = RecvBuf::from_owned([0; 12].into());
    let receive = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(0), buf).expect("a peer");
    drop(sender);
    let start = Instant::now();
    while !receiver.is_complete(receive) {
        receiver.progress();
        thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < LOST, "nobody misses it");
    }
    let outcome = receiver.take(receive).expect("it is over").outcome;
    assert!(matches!(&outcome, Outcome::Failed(fault) if fault.is_loss), "{outcome:?}");
    let sent = receiver.send(SendMode::Standard, 0, CONTEXT, 0, SendBuf::from_owned([7; 12].into()));
    assert!(matches!(sent, Err(EngineError::PeerLost { peer: 0, .. })), "{sent:?}");
}

/// An engine that has granted a queue to process 0, and the channel by which that process, which is none, says what it
/// likes.
fn with_a_stranger() -> (Engine, BlockSender) {
    let config = config(Rendezvous::TupleQueue);
    let channel_bytes = Geometry::new(&config).reserved_bytes();
    let shape = Shape { process_count: 2, channel_bytes, ..Shape::default() };
    let (segment, queues) = (Segment::create(shape).expect("memory"), Segment::create(shape).expect("memory"));
    let adapter = |place: u32| {
        let link = ShmLink::join(queues.clone(), PeerIndex(place), Ok(())).expect("a place");
        Box::new(SoftContext::new(link)) as Box<dyn Context>
    };
    let stranger = ShmPeers::join(segment.clone(), PeerIndex(0), Ok(())).expect("a place");
    let peers = ShmPeers::join(segment, PeerIndex(1), Ok(())).expect("a place");
    let mut engine = Engine::new(Box::new(peers), &config, WaitPolicy::for_host(2, 1)).expect("one");
    let setup = TupleSetup { copy_below_bytes: 0, queues_max: 4, retreat_after: 0 };
    engine.use_tuple_queues(adapter(1), setup).expect("queues");

    let area = MappedArea::Channel { from: PeerIndex(0), to: PeerIndex(1) };
    let mut channel =
        BlockSender::new(stranger.mapped(area).expect("a channel"), config.sizes(Medium::Memory).channel_bytes);
    let announcements = stranger.mapped(MappedArea::Announcements { owner: PeerIndex(1) }).expect("its words");
    Announcements::new(announcements, 3).announce(0);
    let mut device = adapter(0);
    let domain = device.allocate_protection_domain().expect("one");
    let completions = device.create_completion_queue(16).expect("one");
    let attributes =
        QueuePairAttributes { transport: Transport::XrcInitiator, ..QueuePairAttributes::new(domain, completions) };
    let qp = device.create_queue_pair(&attributes).expect("one");
    let endpoint = device.endpoint(qp).expect("an address").to_bytes();
    say(&mut channel, TupleMessage::Ask { key: key(0), endpoint: &endpoint });
    engine.progress();
    assert_eq!(engine.stats().tuple_queues, 1);
    (engine, channel)
}

fn key(tag: i32) -> u64 {
    u64::from(CONTEXT.0) << 32 | tag as u64
}

fn say(channel: &mut BlockSender, message: TupleMessage<'_>) {
    let (record, payload, len) = message.encode().expect("short enough");
    assert!(channel.push(record, len, |space| space.copy_from_slice(&payload[..len])));
}

fn messages_that_were_held_back_come(device: DeviceChoice) {
    /// More than a device keeps for this process.
    const COUNT: u32 = 2048 + 100;
    if is_skipped() {
        return;
    }
    let [mut sender, mut receiver] = granted(device, 0..1);
    let payload = |number: u32| number.to_ne_bytes().repeat(100).into_boxed_slice();
    let send = |engine: &mut Engine, number| {
        engine.send(SendMode::Standard, 1, CONTEXT, 0, SendBuf::from_owned(payload(number))).expect("a peer")
    };
    let mut sends: Vec<RequestId> = Vec::new();
    for number in 0..COUNT {
        sends.push(send(&mut sender, number));
        // Nothing of it is received: some polls find nothing while there is no room.
        sender.progress();
        receiver.progress();
    }
    let held = sender.stats().tuple_held;
    assert!(held > 0 && sends.len() > 2048, "{held} of {} were held back", sends.len());
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 0..COUNT {
        let bytes = RecvBuf::from_owned(vec![0; 400].into());
        let request = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(0), bytes).expect("a peer");
        while !receiver.is_complete(request) {
            assert!(Instant::now() < deadline, "message {number} did not come, {held} were held back");
            sender.progress();
            receiver.progress();
        }
        let done = receiver.take(request).expect("it came");
        assert_eq!((done.outcome, done.envelope.len_bytes), (Outcome::Done, 400), "message {number}");
    }
    while let Some(left) = sends.iter().find(|request| !sender.is_complete(**request)) {
        assert!(Instant::now() < deadline, "{left:?} does not end");
        sender.progress();
        receiver.progress();
    }
}

#[test]
fn messages_come_that_were_held_back() {
    messages_that_were_held_back_come(DeviceChoice::Shm);
}

#[test]
fn messages_come_that_were_held_back_beside_an_adapter() {
    messages_that_were_held_back_come(DeviceChoice::ShmVerbs);
}

#[test]
fn messages_come_that_were_held_back_over_sockets() {
    messages_that_were_held_back_come(DeviceChoice::Tcp);
}

#[test]
fn an_announced_length_that_no_queue_takes_is_refused() {
    let (mut engine, mut channel) = with_a_stranger();
    for len_bytes in [u64::MAX, (1 << 30) + 1] {
        say(&mut channel, TupleMessage::Announce { key: key(0), send: 1, len_bytes, number: 0 });
    }
    engine.progress();
    assert_eq!(engine.stats().refused_records, 2);
    assert!(engine.matched_probe(Source::Any, CONTEXT, TagPattern::Any).is_none());
}

#[test]
fn an_announced_message_that_the_device_does_not_have_is_no_message_of_zeros() {
    let (mut engine, mut channel) = with_a_stranger();
    for number in 0..2 {
        say(&mut channel, TupleMessage::Announce { key: key(0), send: number, len_bytes: 5000, number });
    }
    engine.progress();
    for _ in 0..2 {
        let (message, _) = engine.matched_probe(Source::Any, CONTEXT, TagPattern::Any).expect("it was announced");
        let buf = RecvBuf::from_owned(vec![0; 5000].into());
        let request = engine.matched_recv(message, buf).expect("it was taken");
        engine.progress();
        engine.cancel(request);
        assert!(!engine.is_complete(request), "what is matched waits for its bytes");
    }
    assert_eq!(engine.holdings(), Holdings { requests: 2, ..Holdings::default() });
}

#[test]
fn whatever_a_stranger_says_about_tuples_breaks_nothing() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 1..=60 {
        let (mut engine, mut channel) = with_a_stranger();
        let mut random = Random(seed);
        let mut requests = Vec::new();
        for _ in 0..300 {
            let word = |random: &mut Random| match random.below(3) {
                0 => random.below(4),
                1 => key(random.below(3) as i32),
                _ => u64::MAX >> random.below(64),
            };
            let (long, len) = ((word(&mut random), word(&mut random)), random.below(24) as usize);
            let record = Record {
                kind: tupleq::KIND,
                short: random.below(12) as u32,
                long: u128::from(long.0) << 64 | u128::from(long.1),
                ..Record::default()
            };
            // It is full now and then: then the engine has something to do first.
            channel.push(record, len, |space| space.iter_mut().for_each(|byte| *byte = random.below(4) as u8));
            let tag = TagPattern::Exact(random.below(3) as i32);
            match random.below(8) {
                0 | 1 => {
                    let source = if seed % 2 == 0 { Source::Any } else { Source::Peer(0) };
                    let buf = RecvBuf::from_owned([0; 100].into());
                    requests.push(engine.recv(source, CONTEXT, tag, buf).expect("a peer"));
                }
                2 => {
                    if let Some((message, _)) = engine.matched_probe(Source::Any, CONTEXT, tag) {
                        let buf = RecvBuf::from_owned([0; 100].into());
                        requests.extend(engine.matched_recv(message, buf));
                    }
                }
                3 => {
                    let buf = SendBuf::from_owned(vec![7; 300].into());
                    let send = engine.send(SendMode::Standard, 0, CONTEXT, random.below(3) as i32, buf);
                    requests.extend(send);
                }
                4 if !requests.is_empty() => engine.cancel(requests[random.below(requests.len() as u64) as usize]),
                _ => _ = engine.progress(),
            }
        }
        for request in requests {
            // Nothing was sent: what a receive has got is an error or that it was cancelled.
            if let Some(done) = engine.take(request).filter(|done| done.envelope.len_bytes > 0) {
                let is_sent = done.envelope.len_bytes == 300;
                assert!(is_sent || done.outcome != Outcome::Done, "seed {seed}: {done:?}");
            }
        }
        refused += engine.stats().refused_records;
        taken += engine.stats().tuple_queues;
    }
    assert!(refused > 1000 && taken >= 60, "{refused} refused, {taken} queues");
}

//! Random traffic between engines of one process, every protocol, checked against what was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base::Config;
use base::config::{DeviceChoice, FastPath, LargeCopy, Rendezvous, TcpChoice};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{Completion, ContextId, Engine, Outcome, Pause, RequestId, SendMode, Source, Stats, TagPattern};

const CONTEXT: ContextId = ContextId(3);

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Progresses until `done` gives something; sleeps when nothing moves.
fn wait_until<T>(engine: &mut Engine, mut done: impl FnMut(&mut Engine) -> Option<T>) -> T {
    let waiter = engine.waiter();
    let mut backoff = waiter.backoff();
    loop {
        if let Some(value) = done(engine) {
            return value;
        }
        if engine.progress() {
            backoff.reset();
            continue;
        }
        match backoff.pause() {
            Pause::Poll => {}
            Pause::Spin => std::hint::spin_loop(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep => {
                let ticket = waiter.announce();
                if engine.progress() {
                    waiter.withdraw(ticket);
                } else {
                    waiter.sleep(ticket);
                }
            }
        }
    }
}

fn wait(engine: &mut Engine, request: RequestId) -> Completion {
    wait_until(engine, |engine| engine.take(request))
}

/// The bytes of message `number` from `from` to `to`.
fn payload(from: u32, to: u32, number: u64, len: usize) -> Box<[u8]> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ number ^ u64::from(from * 7 + to * 13)) as u8).collect()
}

/// Length and tag of message `number`: both sides compute them from the seed.
fn shape(seed: u64, from: u32, to: u32, number: u64) -> (usize, i32) {
    let mut random = Random(seed ^ u64::from(from) << 40 ^ u64::from(to) << 20 ^ number);
    random.below(10);
    let lens = [0, 1, 40, 41, 1000, 8192, 8193, 16000, 40_000, 200_000, 1_500_000];
    let len = lens[random.below(if number.is_multiple_of(8) { 11 } else { 8 }) as usize];
    (len, random.below(3) as i32)
}

/// Every rank sends `count` messages to every rank (itself included) and receives as many, with wildcards or without.
fn exchange(engine: &mut Engine, seed: u64, count: u64) -> Stats {
    let (me, size) = (engine.rank(), engine.size());
    let mut random = Random(seed + u64::from(me));
    let mut sends = Vec::new();
    let mut receives: Vec<(u32, u64, RequestId, RecvBuf)> = Vec::new();
    let mut next = vec![0u64; size as usize];
    for number in 0..count {
        for to in 0..size {
            let (len, tag) = shape(seed, me, to, number);
            let mode = if random.below(5) == 0 { SendMode::Synchronous } else { SendMode::Standard };
            let buf = SendBuf::from_owned(payload(me, to, number, len));
            sends.push(engine.send(mode, to, CONTEXT, tag, buf).expect("a peer"));
        }
        for from in 0..size {
            let expected = next[from as usize];
            next[from as usize] += 1;
            let (len, tag) = shape(seed, from, me, expected);
            if random.below(3) == 0 {
                // Wait for it first, so that it is unexpected.
                let (message, envelope) = wait_until(engine, |engine| {
                    engine.matched_probe(Source::Peer(from), CONTEXT, TagPattern::Exact(tag))
                });
                assert_eq!((envelope.len_bytes, envelope.tag), (len as u64, tag), "seed {seed}");
                let request = engine.matched_recv(message, RecvBuf::from_owned(vec![0; len].into())).expect("there");
                check(wait(engine, request), from, tag, len, seed);
            } else {
                let mut buf = RecvBuf::from_owned(vec![0xee; len + 3].into());
                let window = buf.slice(0, len as u64 + 3);
                let request = engine.recv(Source::Peer(from), CONTEXT, TagPattern::Exact(tag), window).expect("a peer");
                receives.push((from, expected, request, buf));
            }
        }
        if receives.len() > 40 {
            drain(engine, &mut receives, seed);
        }
    }
    drain(engine, &mut receives, seed);
    for send in sends {
        assert_eq!(wait(engine, send).outcome, Outcome::Done);
    }
    wait_until(engine, |engine| (engine.pending_sends() == 0).then_some(()));
    engine.stats()
}

fn drain(engine: &mut Engine, receives: &mut Vec<(u32, u64, RequestId, RecvBuf)>, seed: u64) {
    for (from, number, request, buf) in receives.drain(..) {
        let (len, tag) = shape(seed, from, engine.rank(), number);
        check(wait(engine, request), from, tag, len, seed);
        let bytes = buf.as_contiguous().expect("in one piece");
        assert!(
            bytes[..len] == *payload(from, engine.rank(), number, len),
            "seed {seed}: {from} #{number} {len} bytes"
        );
        assert_eq!(bytes[len..], [0xee; 3], "nothing is written past the message");
    }
}

fn check(completion: Completion, from: u32, tag: i32, len: usize, seed: u64) {
    let envelope = completion.envelope;
    assert_eq!((envelope.peer, envelope.tag, envelope.len_bytes), (from, tag, len as u64), "seed {seed}");
    assert_eq!(completion.outcome, Outcome::Done, "seed {seed}");
}

fn run(size: u32, config: &Config, count: u64, seed: u64) -> Vec<Stats> {
    run_among(local_engines(size, config).expect("a segment"), count, seed)
}

fn run_among(engines: Vec<Engine>, count: u64, seed: u64) -> Vec<Stats> {
    let size = engines.len() as u32;
    let arrived = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = engines
        .into_iter()
        .map(|mut engine| {
            let arrived = Arc::clone(&arrived);
            std::thread::spawn(move || {
                let stats = exchange(&mut engine, seed, count);
                arrived.fetch_add(1, Ordering::Relaxed);
                // An engine that rests owes its peers answers: they wait for these.
                while arrived.load(Ordering::Relaxed) < size {
                    if !engine.progress() {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
                assert_eq!(engine.unexpected_count(), 0);
                stats
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("no rank fails")).collect()
}

fn sum(stats: &[Stats], count: impl Fn(&Stats) -> u64) -> u64 {
    stats.iter().map(count).sum()
}

#[test]
fn every_message_arrives_once_whole_and_in_order() {
    for seed in 0..6 {
        let stats = run(1 + (seed % 4) as u32, &Config::default(), 60, seed);
        assert_eq!(sum(&stats, |stats| stats.refused_records), 0, "seed {seed}");
    }
}

/// Where processes share processors, long messages are left in their channels for a while, and blocks are begun anew.
#[test]
fn every_message_arrives_once_whole_and_in_order_where_processors_are_shared() {
    let mut met_in_channel = 0;
    for seed in 0..6 {
        let mut engines = local_engines(2 + (seed % 3) as u32, &Config::default()).expect("a segment");
        engines.iter_mut().for_each(|engine| engine.set_crowded(true));
        let stats = run_among(engines, 60, seed);
        assert_eq!(sum(&stats, |stats| stats.refused_records), 0, "seed {seed}");
        met_in_channel += sum(&stats, |stats| stats.met_in_channel);
    }
    assert!(met_in_channel > 0, "none of them was left there");
}

/// The devices on which engines stand on verbs.
const OVER_VERBS: [DeviceChoice; 2] = [DeviceChoice::ShmVerbs, DeviceChoice::Tcp];

#[test]
fn every_message_arrives_once_whole_and_in_order_over_verbs() {
    for device in OVER_VERBS {
        for seed in 0..4 {
            // Some with a single credit and hardly any buffers: nothing is lost for want of them.
            let credits_initial = [8, 1, 2, 256][seed as usize];
            let pool_max_bytes = Some(if seed % 2 == 0 { 64 << 20 } else { 1 << 20 });
            let config = Config { device, credits_initial, pool_max_bytes, ..Config::default() };
            let stats = run(1 + (seed % 4) as u32, &config, 60, seed);
            assert_eq!(sum(&stats, |stats| stats.refused_records), 0, "{device:?} seed {seed}");
        }
        for (seed, (name, fastpath)) in (10..).zip(FastPath::ALL) {
            let credits_initial = if seed % 2 == 0 { 8 } else { 1 };
            let config = Config {
                device,
                credits_initial,
                fastpath: *fastpath,
                channel_bytes: Some(32 << 10),
                ..Config::default()
            };
            let stats = run(3, &config, 60, seed);
            assert_eq!(sum(&stats, |stats| stats.refused_records), 0, "{device:?} {name}");
            let written = sum(&stats, |stats| stats.written_sent);
            match fastpath {
                FastPath::Auto => {}
                FastPath::Off => assert_eq!(written, 0, "{device:?} {name}"),
                _ => assert!(written > 100, "{device:?} {name}: {written} records by RDMA"),
            }
        }
    }
}

/// Waits without spinning; `asleep` counts the sleeps that have begun, and is odd during one.
fn wait_asleep(engine: &mut Engine, request: RequestId, asleep: &AtomicU32) {
    let waiter = engine.waiter();
    while engine.take(request).is_none() {
        if engine.progress() {
            continue;
        }
        let ticket = waiter.announce();
        if engine.progress() {
            waiter.withdraw(ticket);
            continue;
        }
        asleep.fetch_add(1, Ordering::Relaxed);
        waiter.sleep(ticket);
        asleep.fetch_add(1, Ordering::Relaxed);
    }
}

/// Longer than any machine keeps a runnable thread waiting, and far shorter than as many sleeps that nobody ends, of half a
/// second and more each.
const LOST: Duration = Duration::from_secs(10);

/// Where a write into a channel wakes nobody by itself, whoever sleeps is sent an announcement.
#[test]
fn records_in_channels_over_verbs_wake_a_sleeper() {
    const ROUNDS: u64 = 30;
    for (device, wakes) in [(DeviceChoice::ShmVerbs, true), (DeviceChoice::Tcp, true), (DeviceChoice::Tcp, false)] {
        // The thread of an adapter moves what comes, and its process sleeps on.
        let tcp = TcpChoice { thread: !wakes, ..TcpChoice::default() };
        let config = Config { device, tcp, fastpath: FastPath::Veloblock, ..Config::default() };
        let mut engines = local_engines(2, &config).expect("a device");
        let (mut there, mut here) = (engines.pop().expect("two"), engines.pop().expect("two"));
        let ball = || SendBuf::from_owned([5u8; 8].into());
        let asleep = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&asleep);
        let partner = std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                let receive =
                    there.recv(Source::Peer(0), CONTEXT, TagPattern::Any, RecvBuf::from_owned([0u8; 8].into()));
                wait(&mut there, receive.expect("a peer"));
                // What the other one still waits for is an answer to its marks: it sleeps when it has slept for a while.
                loop {
                    let before = seen.load(Ordering::Relaxed);
                    for _ in 0..20 {
                        there.progress();
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    if before % 2 == 1 && seen.load(Ordering::Relaxed) == before {
                        break;
                    }
                }
                let send = there.send(SendMode::Standard, 0, CONTEXT, 1, ball()).expect("a peer");
                wait(&mut there, send);
            }
            there
        });
        for _ in 0..ROUNDS {
            let send = here.send(SendMode::Standard, 1, CONTEXT, 1, ball()).expect("a peer");
            wait(&mut here, send);
            let receive = here.recv(Source::Peer(1), CONTEXT, TagPattern::Any, RecvBuf::from_owned([0u8; 8].into()));
            wait_asleep(&mut here, receive.expect("a peer"), &asleep);
        }
        // The partner waits until its last message is known to have come.
        while !partner.is_finished() {
            if !here.progress() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let there = partner.join().expect("it sends back");
        let (announced, written) = (here.stats().announced, there.stats().written_sent);
        assert!(written >= ROUNDS - 3, "{device:?}: {written} records by RDMA");
        match wakes {
            true => assert_eq!(announced, 0, "{device:?}: nothing has to be announced"),
            false => assert!(announced >= ROUNDS / 2, "{device:?}: {announced} announcements"),
        }
    }
}

fn progress_all(engines: &mut [Engine]) {
    for engine in engines {
        engine.progress();
    }
}

/// A receiver's mark waits behind a message that its sender, who computes, does not acknowledge: the record that the
/// sender writes meanwhile is found all the same.
#[test]
fn a_record_in_a_channel_wakes_a_sleeper_who_could_not_say_that_it_sleeps() {
    for device in OVER_VERBS {
        // The one channel that the sender grants is another's, so the receiver sends it messages by its queue pair.
        let config = Config { device, fastpath: FastPath::Veloblock, channels_max: 1, ..Config::default() };
        let mut engines = local_engines(3, &config).expect("a device");
        let ball = || SendBuf::from_owned([5u8; 8].into());
        let window = || RecvBuf::from_owned([0u8; 8].into());
        let all = |engines: &mut Vec<Engine>, from: usize, to: usize| {
            let send = engines[from].send(SendMode::Standard, to as u32, CONTEXT, 1, ball()).expect("a peer");
            let source = Source::Peer(from as u32);
            let receive = engines[to].recv(source, CONTEXT, TagPattern::Any, window()).expect("a peer");
            while !engines[from].is_complete(send) || !engines[to].is_complete(receive) {
                progress_all(engines);
            }
            (engines[from].take(send), engines[to].take(receive))
        };
        (0..4).for_each(|_| drop((all(&mut engines, 2, 0), all(&mut engines, 0, 1))));
        let start = Instant::now();
        for round in 0..200 {
            while engines.iter_mut().any(Engine::progress) {}
            let written = engines[0].stats().written_sent;
            let receive = engines[1].recv(Source::Peer(0), CONTEXT, TagPattern::Any, window()).expect("a peer");
            assert!(engines[1].try_send(0, CONTEXT, 1, &ball()), "there is a credit");
            let waiter = engines[1].waiter();
            let mut ticket = waiter.announce();
            while engines[1].progress() {
                waiter.withdraw(ticket);
                ticket = waiter.announce();
            }
            // Without any progress of its own, before or afterwards.
            assert!(engines[0].try_send(1, CONTEXT, 1, &ball()), "there is room");
            assert_eq!(engines[0].stats().written_sent, written + 1, "{device:?}: it goes through the channel");
            waiter.sleep(ticket);
            while engines[1].take(receive).is_none() {
                if !engines[1].progress() {
                    let ticket = waiter.announce();
                    if !engines[1].progress() {
                        waiter.sleep(ticket);
                    }
                }
            }
            let receive = engines[0].recv(Source::Peer(1), CONTEXT, TagPattern::Any, window()).expect("a peer");
            while engines[0].take(receive).is_none() {
                progress_all(&mut engines);
            }
            assert!(start.elapsed() < LOST, "{device:?}: nobody woke it in {round} rounds");
        }
    }
}

/// A sender that sleeps until there is room in its channel is woken, or wakes, when there is some.
#[test]
fn room_in_a_channel_over_verbs_is_found_by_a_sleeper() {
    const MESSAGES: u32 = 20_000;
    for (device, thread) in [(DeviceChoice::ShmVerbs, false), (DeviceChoice::Tcp, false), (DeviceChoice::Tcp, true)] {
        let tcp = TcpChoice { thread, ..TcpChoice::default() };
        let sizes = Config {
            channel_bytes: Some(8 << 10),
            channel_min_bytes: 8 << 10,
            channel_max_bytes: 8 << 10,
            ..Config::default()
        };
        let config = Config { device, tcp, fastpath: FastPath::Veloblock, ..sizes };
        let mut engines = local_engines(2, &config).expect("a device");
        let (mut there, mut here) = (engines.pop().expect("two"), engines.pop().expect("two"));
        let asleep = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&asleep);
        let start = Instant::now();
        let receiver = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                let window = RecvBuf::from_owned([0u8; 8].into());
                let receive = there.recv(Source::Peer(0), CONTEXT, TagPattern::Any, window).expect("a peer");
                wait(&mut there, receive);
                // Now and then it computes until the other one has filled the channel and sleeps, or does already.
                if number % 500 == 499 && number + 200 < MESSAGES {
                    while seen.load(Ordering::Relaxed).is_multiple_of(2) {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
            }
            there
        });
        for _ in 0..MESSAGES {
            let ball = SendBuf::from_owned([5u8; 8].into());
            let send = here.send(SendMode::Standard, 1, CONTEXT, 1, ball).expect("a peer");
            wait_asleep(&mut here, send, &asleep);
        }
        while !receiver.is_finished() {
            if !here.progress() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        receiver.join().expect("it receives");
        assert!(start.elapsed() < LOST, "{device:?}, thread {thread}: {} sleeps", asleep.load(Ordering::Relaxed) / 2);
        assert!(asleep.load(Ordering::Relaxed) >= 2 * 30, "{device:?}, thread {thread}: it hardly slept");
    }
}

#[test]
fn neighbours_share_memory_and_others_are_reached_over_sockets() {
    // Hosts of two and one, of two and two, of three and one, and of one each.
    for (seed, size, host_ranks_max) in [(41, 3, 2), (42, 4, 2), (43, 4, 3), (44, 3, 1)] {
        let config = Config { device: DeviceChoice::ShmAndTcp, host_ranks_max, ..Config::default() };
        let stats = run(size, &config, 40, seed);
        let way = format!("{size} ranks, {host_ranks_max} on a host");
        assert_eq!(sum(&stats, |stats| stats.refused_records), 0, "{way}");
        for (rank, stats) in (0..).zip(&stats) {
            let mates = (0..size).filter(|other| other / host_ranks_max == rank / host_ranks_max).count() as u64;
            assert_eq!(stats.channels_opened, mates - 1, "{way}");
            assert_eq!(stats.connections, u64::from(size) - mates, "{way}");
        }
    }
}

#[test]
fn the_shorter_of_two_ways_says_how_long_an_eager_message_is() {
    let config = Config {
        device: DeviceChoice::ShmAndTcp,
        host_ranks_max: 2,
        channel_bytes: Some(8 << 10),
        credits_initial: 1,
        ..Config::default()
    };
    let stats = run(4, &config, 40, 51);
    assert_eq!(sum(&stats, |stats| stats.refused_records), 0);
    assert!(sum(&stats, |stats| stats.rendezvous_sent) > 0);
}

#[test]
fn long_messages_cross_verbs_as_asked_for() {
    use Rendezvous::{Auto, Rget, Rput, Staged};
    for device in OVER_VERBS {
        for (seed, rendezvous) in (0..).zip([Auto, Rget, Rput, Staged]) {
            // A piece of a message is shorter than the longest of them; one credit makes the last write wait for it.
            let credits_initial = if seed % 2 == 0 { 8 } else { 1 };
            let config = Config { device, rendezvous, credits_initial, ..Config::default() };
            let stats = run(2, &config, 60, 31 + seed);
            let ways = [
                sum(&stats, |stats| stats.get_received),
                sum(&stats, |stats| stats.put_received),
                sum(&stats, |stats| stats.staged_received),
            ];
            let way = format!("{device:?} {rendezvous:?} {ways:?}");
            let wanted = match rendezvous {
                Auto => ways[0] + ways[1] > 0 && ways[2] == 0,
                Rget => ways[0] > 0 && ways[1] == 0,
                Rput => ways[1] > 0 && ways[0] == 0,
                _ => ways[2] > 0 && ways[0] + ways[1] == 0,
            };
            assert!(wanted, "{way}");
            assert_eq!(sum(&stats, |stats| stats.refused_records), 0, "{way}");
            assert_eq!(sum(&stats, |stats| stats.registrations.bytes), 0, "everything is given back: {way}");
        }
    }
}

#[test]
fn both_sides_copy_long_messages_where_the_kernel_allows_it() {
    let config = Config { shared_copy_min_bytes: 20_000, large_copy: LargeCopy::Both, ..Config::default() };
    let stats = run(2, &config, 100, 11);
    if fabric_soft::shm::probe_cross_memory().is_ok() {
        assert!(sum(&stats, |stats| stats.shared_received) > 0, "{stats:?}");
        assert!(sum(&stats, |stats| stats.read_received) > 0, "the first from each peer is read: {stats:?}");
    }
}

#[test]
fn now_and_then_a_long_message_tries_the_channel() {
    if fabric_soft::shm::probe_cross_memory().is_err() {
        return;
    }
    let (seed, count) = (12, 3000);
    let staged = |staged_near_max_bytes| {
        let config = Config { staged_near_max_bytes, ..Config::default() };
        sum(&run(2, &config, count, seed), |stats| stats.staged_received)
    };
    // The first MiB from each other process goes that way untried.
    let untried = |(from, to)| {
        let long = |number| Some(shape(seed, from, to, number).0).filter(|len| (32 << 10..1 << 20).contains(len));
        let before = (0..count).filter_map(long).scan(0, |bytes, len| Some(std::mem::replace(bytes, *bytes + len)));
        before.take_while(|bytes| *bytes < 1 << 20).count() as u64
    };
    let untried: u64 = [(0, 1), (1, 0)].map(untried).iter().sum();
    // Of data in pieces some is staged in any case.
    let (with, without) = (staged(1 << 20), staged(0));
    assert!(with > without + untried, "{with} of long messages, {without} without trials, {untried} before any");
}

#[test]
fn long_messages_go_through_the_channel_when_nothing_else_is_allowed() {
    let config = Config { large_copy: LargeCopy::Staged, channel_bytes: Some(8 << 10), ..Config::default() };
    let stats = run(3, &config, 60, 21);
    assert!(sum(&stats, |stats| stats.staged_received) > 0);
    assert_eq!(sum(&stats, |stats| stats.read_received + stats.shared_received), 0);
}

#[test]
fn a_full_store_of_unexpected_messages_holds_senders_back() {
    let config = Config { unexpected_max_bytes: 100_000, ..Config::default() };
    let mut engines = local_engines(2, &config).expect("a segment");
    let mut sender = engines.pop().expect("two");
    let mut receiver = engines.pop().expect("two");
    let data = [7u8; 4000];
    let requests: Vec<_> = (0..500)
        .map(|_| {
            let buf = SendBuf::from_owned(data.into());
            let request = sender.send(SendMode::Standard, 0, CONTEXT, 1, buf).expect("a peer");
            while receiver.progress() | sender.progress() {}
            request
        })
        .collect();
    let stats = receiver.stats();
    assert!(stats.held_back >= 1);
    assert!(stats.unexpected_peak_bytes < 200_000, "{stats:?}");
    for _ in 0..500 {
        let buf = RecvBuf::from_owned(vec![0; 4000].into());
        let request = receiver.recv(Source::Any, CONTEXT, TagPattern::Any, buf).expect("any");
        while !receiver.is_complete(request) {
            receiver.progress();
            sender.progress();
        }
        assert_eq!(receiver.take(request).map(|completion| completion.outcome), Some(Outcome::Done));
    }
    for request in requests {
        while !sender.is_complete(request) {
            receiver.progress();
            sender.progress();
        }
    }
}

/// A cancelled send is either received or gone, never both, and its like keep their order.
#[test]
fn cancelled_sends_are_received_or_gone() {
    let mut engines = local_engines(2, &Config::default()).expect("a segment");
    let mut other = engines.pop().expect("two");
    let mut own = engines.pop().expect("two");
    let (mut gone_count, mut late_count) = (0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let to_self = random.below(4) == 0;
        let lengths = [0, 8, 3000, 100_000, 3_000_000];
        let (mut sends, mut sent_bytes) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            let len = lengths[random.below(5) as usize];
            let mode = if random.below(2) == 0 { SendMode::Synchronous } else { SendMode::Standard };
            let from = if to_self { &mut own } else { &mut other };
            sends.push(from.send(mode, 0, CONTEXT, 1, SendBuf::from_owned(vec![1; len].into())).expect("a peer"));
            sent_bytes.push(len as u64);
        }
        let sender_rank = if to_self { 0 } else { 1 };
        let receive = |own: &mut Engine| {
            let buf = RecvBuf::from_owned(vec![0; 3_000_000].into());
            own.recv(Source::Peer(sender_rank), CONTEXT, TagPattern::Exact(1), buf).expect("a peer")
        };
        // Some receives meet their messages before the cancellation, some after.
        let early = random.below(4) as usize;
        let mut receives: Vec<_> = (0..early).map(|_| receive(&mut own)).collect();
        let turns = random.below(3);
        for _ in 0..turns {
            own.progress();
            other.progress();
        }
        let cancelled: Vec<bool> = sends.iter().map(|_| random.below(2) == 0).collect();
        for (send, _) in sends.iter().zip(&cancelled).filter(|(_, cancelled)| **cancelled) {
            if to_self { own.cancel(*send) } else { other.cancel(*send) }
        }
        // The engines of one process take turns; every message that is not gone finds a receive.
        let mut outcomes = vec![None; sends.len()];
        while outcomes.iter().any(Option::is_none) {
            other.progress();
            own.progress();
            let sender = if to_self { &mut own } else { &mut other };
            for (send, outcome) in sends.iter().zip(&mut outcomes) {
                *outcome = outcome.take().or_else(|| sender.take(*send).map(|completion| completion.outcome));
            }
            let pending = receives.iter().filter(|receive| !own.is_complete(**receive)).count();
            if pending == 0 && own.probe(Source::Any, CONTEXT, TagPattern::Any).is_some() {
                receives.push(receive(&mut own));
            }
        }
        let mut expected = Vec::new();
        for ((outcome, cancelled), len_bytes) in outcomes.iter().zip(&cancelled).zip(&sent_bytes) {
            match outcome {
                Some(Outcome::Cancelled) => gone_count += 1,
                _ => expected.push(*len_bytes),
            }
            late_count += usize::from(*cancelled && *outcome == Some(Outcome::Done));
            assert!(*outcome == Some(Outcome::Done) || *cancelled, "seed {seed}: {outcome:?}");
        }
        while receives.iter().filter(|receive| own.is_complete(**receive)).count() < expected.len() {
            if receives.len() < expected.len() {
                receives.push(receive(&mut own));
            }
            other.progress();
            own.progress();
        }
        let mut arrived = Vec::new();
        for receive in receives {
            own.cancel(receive);
            let completion = own.take(receive).expect("received or cancelled");
            if completion.outcome == Outcome::Done {
                arrived.push(completion.envelope.len_bytes);
            }
        }
        assert_eq!(arrived, expected, "seed {seed}");
        assert_eq!((own.unexpected_count(), own.pending_sends(), other.pending_sends()), (0, 0, 0), "seed {seed}");
    }
    assert_eq!((own.stats().refused_records, other.stats().refused_records), (0, 0));
    assert!(gone_count > 50 && late_count > 50, "{gone_count} gone, {late_count} too late");
}

#[test]
fn truncation_cancel_and_detach() {
    let mut engines = local_engines(2, &Config::default()).expect("a segment");
    let mut sender = engines.pop().expect("two");
    let mut receiver = engines.pop().expect("two");
    for len in [100usize, 100_000] {
        let buf = RecvBuf::from_owned(vec![0; 10].into());
        let request = receiver.recv(Source::Peer(1), CONTEXT, TagPattern::Any, buf).expect("a peer");
        let send = sender
            .send(SendMode::Synchronous, 0, CONTEXT, 1, SendBuf::from_owned(vec![1; len].into()))
            .expect("a peer");
        sender.detach(send);
        while !receiver.is_complete(request) || sender.pending_sends() > 0 {
            receiver.progress();
            sender.progress();
        }
        let outcome = receiver.take(request).expect("complete").outcome;
        assert_eq!(outcome, Outcome::Truncated { sent_bytes: len as u64, capacity_bytes: 10 });
    }
    let request =
        receiver.recv(Source::Any, CONTEXT, TagPattern::Any, RecvBuf::from_owned(vec![0; 10].into())).expect("any");
    receiver.cancel(request);
    assert_eq!(receiver.take(request).expect("cancelled").outcome, Outcome::Cancelled);
    assert_eq!(receiver.take(request), None, "a request is taken once");
    assert!(sender.try_send(0, CONTEXT, 5, &SendBuf::from_owned(vec![1; 4].into())));
    while receiver.probe(Source::Any, CONTEXT, TagPattern::Exact(5)).is_none() {
        receiver.progress();
    }
    assert_eq!(receiver.probe(Source::Any, ContextId(4), TagPattern::Any), None, "contexts keep apart");
}

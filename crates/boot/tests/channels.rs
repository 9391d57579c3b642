//! Channels between engines of one process, under every design: on demand, under a limit, given up and made again, cold
//! and announced. Every message is checked for its bytes and its order.

use std::time::{Duration, Instant};

use base::Config;
use base::config::{DeviceChoice, FastPath, Rendezvous, TcpChoice};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, PeerStats, SendMode, Source, Stats, TagPattern};
use fabric::Context;
use fabric_soft::sim::SimClock;
use fabric_soft::{SimNetwork, SimPlan, SoftContext};

const CONTEXT: ContextId = ContextId(3);

/// Every design; the engine under it.
const DESIGNS: [FastPath; 6] = [
    FastPath::Off,
    FastPath::FixedTop,
    FastPath::FixedTopReduced,
    FastPath::FixedBottom,
    FastPath::VariableTop,
    FastPath::Veloblock,
];

/// Engines of one process that take turns, and what they have said to each other.
struct World {
    engines: Vec<Engine>,
    sent: Vec<Vec<u32>>,
    taken: Vec<Vec<u32>>,
}

/// Message `number` from `from` to `to`; its length runs through those that matter to the designs.
fn message(from: usize, to: usize, number: u32) -> Vec<u8> {
    let lens = [4, 8, 40, 41, 200, 3000, 4100, 8000];
    let len = lens[number as usize * 7 % 23 % lens.len()];
    let mut bytes = vec![(from * 31 + to * 7) as u8 ^ number as u8; len];
    bytes[..4].copy_from_slice(&number.to_ne_bytes());
    bytes
}

impl World {
    fn new(count: usize, config: &Config) -> Self {
        Self::over(local_engines(count as u32, config).expect("a segment"))
    }

    fn over(engines: Vec<Engine>) -> Self {
        let count = engines.len();
        Self { engines, sent: vec![vec![0; count]; count], taken: vec![vec![0; count]; count] }
    }

    fn send(&mut self, from: usize, to: usize) {
        let number = self.sent[from][to];
        self.sent[from][to] += 1;
        let buf = SendBuf::from_owned(message(from, to, number).into());
        let send = self.engines[from].send(SendMode::Standard, to as u32, CONTEXT, 1, buf).expect("a peer");
        self.engines[from].detach(send);
    }

    /// One turn of every engine.
    fn turn(&mut self, turns: usize) {
        for _ in 0..turns {
            for engine in &mut self.engines {
                engine.progress();
            }
        }
    }

    /// Receives everything that was sent, in the order it was sent.
    fn take_all(&mut self) {
        let count = self.engines.len();
        for to in 0..count {
            for from in 0..count {
                while self.taken[from][to] < self.sent[from][to] {
                    let expected = message(from, to, self.taken[from][to]);
                    self.taken[from][to] += 1;
                    let mut buf = RecvBuf::from_owned(vec![0; 10_000].into());
                    let window = buf.slice(0, 10_000);
                    let source = Source::Peer(from as u32);
                    let request = self.engines[to].recv(source, CONTEXT, TagPattern::Exact(1), window).expect("a peer");
                    let mut turns = 0;
                    while !self.engines[to].is_complete(request) {
                        self.turn(1);
                        turns += 1;
                        assert!(turns < 1_000_000, "a message from {from} to {to} does not arrive");
                    }
                    let envelope = self.engines[to].take(request).expect("complete").envelope;
                    let bytes = buf.as_contiguous().expect("in one piece");
                    assert_eq!(bytes[..envelope.len_bytes as usize], expected, "{from} to {to}");
                }
            }
        }
    }

    fn stats(&self, rank: usize) -> Stats {
        self.engines[rank].stats()
    }

    fn sum(&self, count: impl Fn(&Stats) -> u64) -> u64 {
        self.engines.iter().map(|engine| count(&engine.stats())).sum()
    }
}

/// Everybody sends to everybody, in bursts that no channel of some designs has room for.
fn bursts(world: &mut World, rounds: u32) {
    let count = world.engines.len();
    for round in 0..rounds {
        for from in 0..count {
            for to in 0..count {
                for _ in 0..(round * 13 + from as u32 * 5 + to as u32) % 90 {
                    world.send(from, to);
                }
            }
        }
        world.take_all();
    }
    assert_eq!(world.sum(|stats| stats.refused_records), 0);
}

#[test]
fn every_design_carries_every_message_in_order() {
    for fastpath in DESIGNS {
        let mut world = World::new(3, &Config { fastpath, ..Config::default() });
        bursts(&mut world, 12);
        let (fast, slow) = (world.sum(Stats::fast_sent), world.sum(|stats| stats.slow_sent));
        if fastpath == FastPath::Off {
            assert!(fast == 0 && slow > 0, "{fast} fast, {slow} slow");
            assert_eq!(world.sum(|stats| stats.channels_live + stats.channel_bytes), 0);
        } else {
            assert!(fast > 0 && slow == 0, "{fastpath:?}: {fast} fast, {slow} slow");
            assert_eq!(world.sum(|stats| stats.channels_live), 6, "{fastpath:?}");
        }
        let (carried, alone) = (world.sum(|s| s.credits_carried), world.sum(|s| s.credits_explicit));
        // Two slots are too few for credits that wait for company.
        let waits = !matches!(fastpath, FastPath::Off | FastPath::FixedTopReduced);
        assert_eq!(carried > 0, waits, "{fastpath:?}: {carried} carried, {alone} alone");
    }
}

/// What is counted for each peer adds up to what is counted for all.
#[test]
fn counts_for_peers_add_up() {
    for (device, fastpath) in [
        (DeviceChoice::Shm, FastPath::Veloblock),
        (DeviceChoice::Shm, FastPath::VariableTop),
        (DeviceChoice::ShmVerbs, FastPath::VariableTop),
        (DeviceChoice::Tcp, FastPath::Off),
    ] {
        let mut world = World::new(3, &Config { device, fastpath, channel_bytes: Some(32 << 10), ..Config::default() });
        bursts(&mut world, 6);
        for engine in &world.engines {
            let (stats, mut sum) = (engine.stats(), PeerStats::default());
            for (_, peer) in engine.peer_stats() {
                assert_eq!(peer, PeerStats::from_words(peer.to_words()));
                sum = sum.plus(peer);
            }
            let ours = (sum.eager_sent, sum.eager_sent_bytes, sum.eager_waited, sum.slow_sent, sum.held_bytes);
            let all =
                (stats.eager_sent, stats.eager_sent_bytes, stats.eager_waited, stats.slow_sent, stats.channel_bytes);
            assert_eq!(ours, all, "{device:?} {fastpath:?}");
            assert_eq!(sum.held_bytes > 0, fastpath != FastPath::Off);
            assert_eq!(sum.fast_sent() > 0, fastpath != FastPath::Off);
        }
    }
}

/// The same designs written by RDMA.
#[test]
fn every_design_carries_every_message_over_verbs() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        for fastpath in DESIGNS {
            let mut world =
                World::new(3, &Config { device, fastpath, channel_bytes: Some(32 << 10), ..Config::default() });
            bursts(&mut world, 8);
            let (fast, written) = (world.sum(Stats::fast_sent), world.sum(|stats| stats.written_sent));
            let explicit = world.sum(|stats| stats.credits_explicit);
            if fastpath == FastPath::Off {
                assert_eq!((fast, written, explicit), (0, 0, 0), "{device:?}");
                continue;
            }
            assert!(fast > 0 && written > fast && explicit > 0, "{device:?} {fastpath:?}: {fast} fast of {written}");
            assert_eq!(world.sum(|stats| stats.channels_live), 6, "{device:?} {fastpath:?}");
            let waits = fastpath != FastPath::FixedTopReduced;
            assert_eq!(world.sum(|stats| stats.credits_carried) > 0, waits, "{device:?} {fastpath:?}");
        }
    }
}

/// Paper: veloblock Table 2. With equal memory, fixed slots have room for far fewer messages.
#[test]
fn variable_lengths_keep_more_messages_on_the_fast_path() {
    let share = |fastpath| {
        let config =
            Config { fastpath, channel_bytes: Some(32 << 10), channel_max_bytes: 32 << 10, ..Config::default() };
        let mut world = World::new(4, &config);
        bursts(&mut world, 12);
        world.sum(Stats::fast_sent) as f64 / world.sum(|stats| stats.eager_sent) as f64
    };
    let (reduced, veloblock) = (share(FastPath::FixedTopReduced), share(FastPath::Veloblock));
    assert!(veloblock > 2.0 * reduced, "{veloblock} against {reduced}");
}

#[test]
fn credits_go_alone_where_nothing_goes_back() {
    for fastpath in DESIGNS.into_iter().filter(|design| *design != FastPath::Off) {
        let mut world = World::new(2, &Config { fastpath, ..Config::default() });
        for _ in 0..40 {
            for _ in 0..100 {
                world.send(0, 1);
            }
            world.take_all();
        }
        let stats = world.stats(1);
        assert!(stats.credits_explicit > 0 && world.stats(0).credits_carried == 0, "{fastpath:?}: {stats:?}");
    }
}

#[test]
fn a_process_grants_as_many_channels_as_it_may() {
    for channels_max in [0, 1, 3] {
        let mut world = World::new(6, &Config { channels_max, ..Config::default() });
        bursts(&mut world, 4);
        for rank in 0..6 {
            assert_eq!(world.stats(rank).channels_live, channels_max.into());
        }
        assert!(world.sum(|stats| stats.slow_sent) > 0);
        assert_eq!(world.sum(Stats::fast_sent) > 0, channels_max > 0);
    }
}

/// Long messages get long blocks, as far as a process may spend memory; short ones give that back.
#[test]
fn blocks_are_long_while_messages_are() {
    // What is left of 3 MiB is not enough for as much again, and not even half of it without leaving others nothing.
    for (channel_memory_bytes, all) in [(3 << 20, 2560 << 10), (0, 128 << 10)] {
        let mut world =
            World::new(3, &Config { channel_memory_bytes: Some(channel_memory_bytes), ..Config::default() });
        for _ in 0..1500 {
            world.send(1, 0);
            world.send(2, 0);
            world.take_all();
        }
        let stats = world.stats(0);
        assert_eq!(stats.channel_bytes, all, "{stats:?}");

        let mut buf = RecvBuf::from_owned(vec![0; 40].into());
        for number in 0..3 * (2 << 20) / 64u32 {
            let from = 1 + number % 2;
            let send = SendBuf::from_owned(vec![number as u8; 40].into());
            while !world.engines[from as usize].try_send(0, CONTEXT, 2, &send) {
                world.turn(1);
            }
            let window = buf.slice(0, 40);
            let request = world.engines[0].recv(Source::Peer(from), CONTEXT, TagPattern::Exact(2), window).expect("it");
            while !world.engines[0].is_complete(request) {
                world.turn(1);
            }
            world.engines[0].take(request);
            assert_eq!(buf.as_contiguous().expect("in one piece"), [number as u8; 40]);
        }
        assert!(world.stats(0).channel_bytes <= 128 << 10, "{:?}", world.stats(0));
    }
}

/// Channels that are not used go, those in need take their places, and nothing is lost or overtaken on the way.
#[test]
fn unused_channels_are_given_up_and_made_again() {
    for fastpath in DESIGNS.into_iter().filter(|design| *design != FastPath::Off) {
        let config = Config { fastpath, channels_max: 1, channel_idle_looks: Some(1), ..Config::default() };
        let mut world = World::new(3, &config);
        for round in 0..4 {
            // One of the two others is busy, the other silent.
            let busy = 1 + round % 2;
            for _ in 0..200 {
                world.send(busy, 0);
            }
            world.take_all();
            let live = world.stats(0).channels_live;
            assert_eq!(live, 1, "{fastpath:?}, round {round}");
            assert!(world.stats(0).channel_bytes > 0);
            world.turn(2 * 16 * 4096 + 2);
            assert_eq!(world.stats(0).channels_live, 0, "{fastpath:?}, round {round}: it was not used");
            // Who gave it up looks whether a shuttle has come home.
            world.turn(4096);
            assert_eq!(world.sum(|stats| stats.channel_bytes), 0, "{fastpath:?}, round {round}");
        }
        assert_eq!(world.sum(|stats| stats.channels_closed), 4, "{fastpath:?}");
        assert_eq!(world.sum(|stats| stats.channels_retired), 4, "{fastpath:?}");
        assert!((1..3).all(|rank| world.stats(rank).fast_sent() > 0), "{fastpath:?}: both had the place");
        assert_eq!(world.sum(|stats| stats.refused_records), 0);
    }
}

/// The same over verbs, and whoever sends again gets its channel again.
#[test]
fn unused_channels_over_verbs_are_given_up_and_made_again() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        for fastpath in DESIGNS.into_iter().filter(|design| *design != FastPath::Off) {
            let base = Config { device, fastpath, channels_max: 1, ..Config::default() };
            let config = Config { channel_look_turns: 16, channel_idle_looks: Some(4), ..base };
            let mut world = World::new(3, &config);
            for round in 0..4 {
                // One of the two others is busy, the other silent.
                let busy = 1 + round % 2;
                for _ in 0..10 {
                    for _ in 0..20 {
                        world.send(busy, 0);
                    }
                    world.take_all();
                }
                assert_eq!(world.stats(0).channels_live, 1, "{device:?} {fastpath:?}, round {round}");
                assert!(world.stats(0).channel_bytes > 0);
                let is_given_back = |world: &World| {
                    let closed = world.sum(|stats| stats.channels_closed);
                    (closed, world.sum(|stats| stats.channels_retired)) == (round as u64 + 1, round as u64 + 1)
                };
                let mut turns = 0;
                while !is_given_back(&world) {
                    world.turn(16);
                    turns += 16;
                    assert!(turns < 1_000_000, "{device:?} {fastpath:?}, round {round}: it was not used");
                }
                world.turn(100 * 16);
                assert_eq!(world.stats(0).channels_live, 0, "{device:?} {fastpath:?}, round {round}");
                assert_eq!(world.sum(|stats| stats.channel_bytes), 0, "{device:?} {fastpath:?}, round {round}");
            }
            assert_eq!(world.sum(|stats| stats.channels_opened), 4, "{device:?} {fastpath:?}");
            assert!((1..3).all(|rank| world.stats(rank).fast_sent() > 0), "{fastpath:?}: both had the place");
            assert_eq!(world.sum(|stats| stats.refused_records), 0);
        }
    }
}

/// Where none is granted a sender asks for one now and then, which costs a credit. While records wait for the only one
/// there is they try again and again, in the time that a credit needs to come back: that is no reason to ask.
#[test]
fn who_is_granted_no_channel_spends_its_credits_on_records() {
    let config = Config {
        fastpath: FastPath::Veloblock,
        channels_max: 0,
        credits_initial: 1,
        pool_max_bytes: Some(0),
        ..Config::default()
    };
    let network = SimNetwork::new(SimPlan { clock: SimClock::Driven, ..SimPlan::new(1) });
    let open = |_| Box::new(SoftContext::new(network.link().expect("room"))) as Box<dyn Context>;
    let mut engines = boot::engines_over((0..2).map(open).collect(), &config, None).expect("a network");
    let count = 100;
    for number in 0..count {
        let buf = SendBuf::from_owned(message(0, 1, number).into());
        let send = engines[0].send(SendMode::Standard, 1, CONTEXT, 1, buf).expect("a peer");
        engines[0].detach(send);
    }
    let mut steps = 0;
    while engines[1].unexpected_count() < count as usize {
        for _ in 0..200 {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
        }
        network.step();
        steps += 1;
        assert!(steps < 40 * count, "{}\n{}", engines[0].standing(1), engines[1].standing(0));
    }
}

/// A block over verbs is followed by a longer one while it is full, as far as its receiver may spend memory.
#[test]
fn blocks_over_verbs_grow_with_their_traffic() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        for (channel_memory_bytes, longest) in [(1 << 20, 256 << 10), (40 << 10, 96 << 10), (0, 64 << 10)] {
            let base =
                Config { device, fastpath: FastPath::Veloblock, channel_bytes: Some(64 << 10), ..Config::default() };
            let config = Config { channel_memory_bytes: Some(channel_memory_bytes), ..base };
            let mut world = World::new(2, &config);
            for _ in 0..60 {
                for _ in 0..300 {
                    world.send(1, 0);
                }
                world.take_all();
            }
            let stats = world.stats(0);
            assert_eq!(stats.channel_bytes, longest, "{device:?}, {channel_memory_bytes} bytes: {stats:?}");
            assert_eq!(world.stats(1).blocks_resized > 0, channel_memory_bytes > 0, "{device:?}");
            assert_eq!(world.sum(|stats| stats.refused_records), 0);
        }
    }
}

/// And by shorter ones where little comes, until a record is too long for those.
#[test]
fn blocks_over_verbs_shrink_with_their_traffic() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        let config =
            Config { device, fastpath: FastPath::Veloblock, channel_bytes: Some(64 << 10), ..Config::default() };
        let mut world = World::new(2, &config);
        let mut buf = RecvBuf::from_owned(vec![0; 40].into());
        for number in 0..25_000u32 {
            let send = SendBuf::from_owned(vec![number as u8; 40].into());
            while !world.engines[1].try_send(0, CONTEXT, 2, &send) {
                world.turn(1);
            }
            let window = buf.slice(0, 40);
            let request = world.engines[0].recv(Source::Peer(1), CONTEXT, TagPattern::Exact(2), window).expect("it");
            while !world.engines[0].is_complete(request) {
                world.turn(1);
            }
            world.engines[0].take(request);
            assert_eq!(buf.as_contiguous().expect("in one piece"), [number as u8; 40]);
        }
        assert_eq!(world.stats(0).channel_bytes, 16 << 10, "{device:?}: {:?}", world.stats(0));
        assert_eq!(world.stats(1).blocks_resized, 4, "{device:?}: 48, 32, 24, 16 KiB");
        let long = (0..23).find(|number| message(1, 0, *number).len() == 8000).expect("one");
        (world.sent[1][0], world.taken[1][0]) = (long, long);
        world.send(1, 0);
        world.take_all();
        assert_eq!(world.stats(0).channel_bytes, 24 << 10, "{device:?}: {:?}", world.stats(0));
        assert_eq!(world.sum(|stats| stats.refused_records), 0);
    }
}

/// Both ways at once, the answer to each wish for a longer block overtakes the record that waits for the other's.
#[test]
fn blocks_over_verbs_that_are_too_short_both_ways_are_followed_by_longer_ones() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        let config =
            Config { device, fastpath: FastPath::Veloblock, channel_bytes: Some(64 << 10), ..Config::default() };
        let mut world = World::new(2, &config);
        let mut exchange = |len: usize| {
            let requests = [0, 1].map(|me: usize| {
                let (window, tag) = (RecvBuf::from_owned(vec![0; len].into()), TagPattern::Exact(2));
                let source = Source::Peer(1 - me as u32);
                world.engines[me].recv(source, CONTEXT, tag, window).expect("it is there")
            });
            for me in 0..2 {
                let buf = SendBuf::from_owned(vec![7; len].into());
                let engine = &mut world.engines[me];
                let send = engine.send(SendMode::Standard, 1 - me as u32, CONTEXT, 2, buf).expect("a peer");
                engine.detach(send);
            }
            let start = Instant::now();
            while (0..2).any(|me| !world.engines[me].is_complete(requests[me])) {
                world.turn(1);
                let standing = || [world.engines[0].standing(1), world.engines[1].standing(0)].join("\n");
                assert!(start.elapsed() < LOST, "{device:?}, {len} bytes: {}", standing());
            }
            (0..2).for_each(|me| drop(world.engines[me].take(requests[me])));
        };
        (0..25_000).for_each(|_| exchange(40));
        (0..200).for_each(|number| exchange(if number % 3 == 0 { 40 } else { 12_000 }));
        assert!(world.sum(|stats| stats.blocks_resized) > 8, "{device:?}: shorter, and longer again");
        assert_eq!(world.sum(|stats| stats.refused_records), 0);
    }
}

/// Who wants no channels says so to whoever asks for one.
#[test]
fn a_peer_without_channels_answers_all_the_same() {
    let asks = Config { device: DeviceChoice::Tcp, fastpath: FastPath::Veloblock, ..Config::default() };
    let has_none = Config { fastpath: FastPath::Off, ..asks.clone() };
    let contexts = boot::open_together("tcp", 2, &asks).expect("the device");
    let mut world = World::over(boot::pair_over(contexts, [&asks, &has_none]).expect("a pair"));
    (0..10).for_each(|_| world.send(0, 1));
    world.take_all();
    let start = Instant::now();
    let is_refused = |standing: &str| standing.contains("next nothing") && !standing.contains("asks in 0");
    while !is_refused(&world.engines[0].standing(1)) {
        world.turn(1);
        assert!(start.elapsed() < LOST, "{}", world.engines[0].standing(1));
    }
    assert_eq!(world.sum(|stats| stats.channels_opened), 0);
}

/// Nobody polls any more in a process that has left, and nobody waits for it.
#[test]
fn who_has_left_owes_nobody_an_answer() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        for fastpath in DESIGNS {
            let mut world = World::new(2, &Config { device, fastpath, ..Config::default() });
            bursts(&mut world, 3);
            for count in 1..20 {
                (0..count).for_each(|_| world.send(0, 1));
                world.take_all();
                world.engines[1].leave();
                let start = Instant::now();
                while world.engines[0].pending_sends() > 0 {
                    world.engines[0].progress();
                    let standing = || world.engines[0].standing(1);
                    assert!(start.elapsed() < LOST, "{device:?} {fastpath:?}, {count} messages: {}", standing());
                }
                world.engines[1].come_back();
            }
        }
    }
}

/// Longer than any machine keeps a process waiting for word of a death.
const LOST: Duration = Duration::from_secs(20);

/// Peers that die while their channels are opened, grow, are full or are given up: what they had written is received, in
/// order, and all memory comes back.
#[test]
fn channels_over_verbs_from_the_dead_are_emptied_and_given_back() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        let tcp = TcpChoice { patience: Duration::from_millis(100), ..TcpChoice::default() };
        let base =
            Config { device, tcp, fastpath: FastPath::Veloblock, channel_bytes: Some(32 << 10), ..Config::default() };
        let base = Config { channel_look_turns: 3, channel_idle_looks: Some(2), eager_max_bytes: Some(8000), ..base };
        let mut world = World::new(9, &Config { channel_min_bytes: 8 << 10, channel_max_bytes: 64 << 10, ..base });
        for from in 1..9 {
            for _ in 0..from * from * 20 {
                world.send(from, 0);
                world.engines[from].progress();
                for _ in 0..1 + from % 3 {
                    world.engines[0].progress();
                }
            }
        }
        let written: Vec<u64> = world.engines[1..].iter().map(|engine| engine.stats().written_sent).collect();
        let mut survivor = std::mem::take(&mut world.engines).swap_remove(0);
        let start = Instant::now();
        let mut missed: Vec<u32> = (1..9).collect();
        while !missed.is_empty() {
            survivor.progress();
            let tag = TagPattern::Exact(9);
            missed.retain(|peer| survivor.recv(Source::Peer(*peer), CONTEXT, tag, nothing()).is_ok());
            std::thread::sleep(Duration::from_millis(1));
            assert!(start.elapsed() < LOST, "{device:?}: nobody misses {missed:?}");
        }
        let stats = survivor.stats();
        assert_eq!((stats.channels_live, stats.channel_bytes, stats.refused_records), (0, 0, 0), "{device:?}");
        assert!(stats.channels_retired >= 5 && written.iter().sum::<u64>() > 500, "{device:?}: {written:?}, {stats:?}");
        let mut received = 0;
        for from in 1..9 {
            for number in 0.. {
                let tag = TagPattern::Exact(1);
                if survivor.probe(Source::Peer(from as u32), CONTEXT, tag).is_none() {
                    break;
                }
                let mut buf = RecvBuf::from_owned(vec![0; 10_000].into());
                let window = buf.slice(0, 10_000);
                let request = survivor.recv(Source::Peer(from as u32), CONTEXT, tag, window).expect("it is here");
                let envelope = survivor.take(request).map(|completion| completion.envelope);
                let Some(envelope) = envelope else { break };
                let bytes = buf.as_contiguous().expect("in one piece");
                assert_eq!(bytes[..envelope.len_bytes as usize], message(from, 0, number), "from {from}");
                received += 1;
            }
        }
        assert!(received > 500, "{device:?}: {received} received");
    }
}

/// What comes behind the only message that somebody waits for has no receive yet; where ranks share processors it is taken in
/// all the same, for its sender's next turn may be far.
#[test]
fn what_comes_behind_the_message_that_is_waited_for_stays_in_the_channel() {
    for (is_crowded, unexpected) in [(false, 0), (true, 3)] {
        let mut world = World::new(2, &Config::default());
        world.engines.iter_mut().for_each(|engine| engine.set_crowded(is_crowded));
        world.send(0, 1);
        world.take_all();
        let before = world.stats(1).unexpected;
        let mut buf = RecvBuf::from_owned(vec![0; 8].into());
        let mut receive = |world: &mut World| {
            let window = buf.slice(0, 8);
            world.engines[1].recv(Source::Peer(0), CONTEXT, TagPattern::Exact(2), window).expect("a peer")
        };
        let first = receive(&mut world);
        for number in 0..4u64 {
            let data = SendBuf::from_owned(number.to_ne_bytes().into());
            let send = world.engines[0].send(SendMode::Standard, 1, CONTEXT, 2, data).expect("a peer");
            world.engines[0].detach(send);
        }
        world.engines[1].progress();
        assert!(world.engines[1].take(first).is_some());
        assert_eq!(world.stats(1).unexpected - before, unexpected);
        for _ in 1..4 {
            let next = receive(&mut world);
            world.engines[1].progress();
            assert!(world.engines[1].take(next).is_some());
        }
        assert_eq!(world.stats(1).unexpected - before, unexpected);
        assert_eq!(buf.as_contiguous(), Some(&3u64.to_ne_bytes()[..]));
    }
}

fn nothing() -> RecvBuf {
    RecvBuf::from_owned([0u8; 0].into())
}

/// What is polled does not grow with those who have nothing to say.
#[test]
fn silent_channels_are_not_polled_and_wake_when_they_are_used() {
    for fastpath in DESIGNS.into_iter().filter(|design| *design != FastPath::Off) {
        let mut world = World::new(10, &Config { fastpath, ..Config::default() });
        for from in 1..10 {
            world.send(from, 0);
        }
        world.take_all();
        assert_eq!(world.stats(0).channels_polled, 9);
        world.turn(3 * 4096);
        assert_eq!(world.stats(0).channels_polled, 4, "{fastpath:?}: as many as are always polled");
        let announced = world.stats(0).announced;
        for round in 0..3 {
            for from in 1..10 {
                for _ in 0..=round {
                    world.send(from, 0);
                }
            }
            world.take_all();
            world.turn(4096 * round as usize);
        }
        assert!(world.stats(0).announced >= announced + 5, "{fastpath:?}: the cold ones announced themselves");
        assert_eq!(world.stats(0).channels_live, 9);
    }
}

/// What is not polled announces itself over verbs, too.
#[test]
fn silent_channels_over_verbs_are_not_polled_and_wake_when_they_are_used() {
    for device in [DeviceChoice::Tcp, DeviceChoice::ShmVerbs] {
        for fastpath in [FastPath::Veloblock, FastPath::FixedTop] {
            let mut world = World::new(7, &Config { device, fastpath, ..Config::default() });
            let round = |world: &mut World| {
                (1..7).for_each(|from| world.send(from, 0));
                world.take_all();
            };
            (0..3).for_each(|_| round(&mut world));
            let stats = world.stats(0);
            assert_eq!((stats.channels_live, stats.channels_polled), (6, 6), "{device:?} {fastpath:?}");
            world.turn(4 * 4096);
            let stats = world.stats(0);
            assert_eq!(stats.channels_polled, 4, "{device:?} {fastpath:?}: as many as are always polled");
            (0..3).for_each(|_| round(&mut world));
            let after = world.stats(0);
            assert_eq!((after.channels_live, after.channels_polled), (6, 6), "{device:?} {fastpath:?}");
            assert_eq!(after.announced - stats.announced, 2, "{device:?} {fastpath:?}: the cold ones, once each");
        }
    }
}

/// Senders are held back through channels that are not polled, too.
#[test]
fn a_full_store_holds_cold_channels_and_the_mailbox_back() {
    for fastpath in DESIGNS {
        let config = Config { fastpath, unexpected_max_bytes: 60_000, ..Config::default() };
        let mut world = World::new(8, &config);
        for from in 1..8 {
            world.send(from, 0);
        }
        world.take_all();
        world.turn(3 * 4096);
        for _ in 0..60 {
            for from in 1..8 {
                world.send(from, 0);
            }
            world.turn(2);
        }
        let stats = world.stats(0);
        assert!(stats.held_back >= 1 && stats.unexpected_peak_bytes < 200_000, "{fastpath:?}: {stats:?}");
        world.take_all();
    }
}

/// What nobody needs any more and finds no room keeps no process from ending: here answers to wishes for tuple queues.
#[test]
fn nobody_waits_for_room_with_a_process_that_has_left() {
    if fabric_soft::shm::probe_cross_memory().is_err() {
        return println!("skipped: tuple queues need cross-memory attach");
    }
    // Those that have room for few records of whatever length.
    for fastpath in [FastPath::Off, FastPath::FixedTop, FastPath::FixedTopReduced, FastPath::FixedBottom] {
        let config = Config { fastpath, rendezvous: Rendezvous::TupleQueue, ..Config::default() };
        let mut world = World::new(2, &config);
        let [asked, asks] = &mut world.engines[..] else { panic!("two") };
        // It asks for a queue with one message of several, and does not look at the answers.
        for number in 0..20_000 {
            let buf = SendBuf::from_owned(vec![1; 4].into());
            let send = asks.send(SendMode::Standard, 0, CONTEXT, number / 8, buf).expect("a peer");
            asks.detach(send);
            asked.progress();
        }
        assert!(asked.holdings().pending_sends > 0, "{fastpath:?}: the answers find room");
        let waiter = asked.waiter();
        let ticket = waiter.announce();
        asks.leave();
        assert_eq!(asked.holdings().pending_sends, 0, "{fastpath:?}");
        waiter.withdraw(ticket);
        let later = waiter.announce();
        assert_ne!(later, ticket, "{fastpath:?}: whoever waits is told");
        waiter.withdraw(later);
        asks.come_back();
        assert!(asked.holdings().pending_sends > 0, "{fastpath:?}");
        world.turn(10_000);
        assert_eq!(world.engines[0].holdings().pending_sends, 0, "{fastpath:?}: nothing was dropped");
    }
}

/// Whoever finds no room and sleeps is woken when there is some.
#[test]
fn whoever_waits_for_room_is_woken() {
    for fastpath in DESIGNS {
        let mut world = World::new(2, &Config { fastpath, ..Config::default() });
        (0..1000).for_each(|_| world.send(0, 1));
        for _ in 0..3 {
            let waiter = world.engines[0].waiter();
            let ticket = waiter.announce();
            world.engines[0].progress();
            assert!(world.engines[0].holdings().pending_sends > 0, "{fastpath:?}: nothing waits");
            for _ in 0..8 {
                world.engines[1].progress();
            }
            waiter.withdraw(ticket);
            let later = waiter.announce();
            assert_ne!(later, ticket, "{fastpath:?}: room was made, and nobody told of it");
            waiter.withdraw(later);
        }
        world.take_all();
    }
}

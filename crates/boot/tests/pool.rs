//! The pool of registered buffers over verbs: it grows when senders need credits, and gives back what is not used.

use std::time::Duration;

use base::Config;
use base::config::{DatatypeScheme, DatatypeSettings, DeviceChoice, FastPath};
use boot::local_engines;
use datatype::{Basic, Datatype, RecvBuf, Scratch, SendBuf};
use engine::{ContextId, Engine, Outcome, SendMode, Source, Stats, TagPattern};

const CONTEXT: ContextId = ContextId(3);
const LEN: usize = 5000;
/// Rounds without an end after which something is taken to be stuck; each sleeps for a millisecond.
const ROUNDS_MAX: u32 = 30_000;

fn config(device: DeviceChoice) -> Config {
    Config {
        device,
        fastpath: FastPath::Off,
        // A period is over at each look, and a look takes place in each turn.
        pool_idle: Some(Duration::ZERO),
        channel_look_turns: 64,
        ..Config::default()
    }
}

fn payload(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8; LEN];
    bytes[..4].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// One process sends `count` messages at once, the other receives them in order.
fn burst(engines: &mut [Engine], from: usize, to: usize, count: u32) {
    for number in 0..count {
        let buf = SendBuf::from_owned(payload(number).into());
        let send = engines[from].send(SendMode::Standard, to as u32, CONTEXT, 1, buf).expect("a peer");
        engines[from].detach(send);
    }
    for number in 0..count {
        let mut buf = RecvBuf::from_owned(vec![0; LEN].into());
        let window = buf.slice(0, LEN as u64);
        let receive =
            engines[to].recv(Source::Peer(from as u32), CONTEXT, TagPattern::Exact(1), window).expect("a peer");
        let mut turns = 0;
        while !engines[to].is_complete(receive) {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
            turns += 1;
            assert!(turns < 10_000_000, "message {number} does not arrive\n{}", engines[from].standing(to as u32));
        }
        assert_eq!(engines[to].take(receive).expect("complete").outcome, Outcome::Done);
        assert_eq!(buf.as_contiguous().expect("in one piece"), payload(number));
    }
}

/// Nobody sends anything until `done`.
fn quiet_until(engines: &mut [Engine], what: &str, done: impl Fn(&[Engine]) -> bool) {
    let mut rounds = 0;
    while !done(engines) {
        rounds += 1;
        assert!(rounds < ROUNDS_MAX, "{what}: {:?}", engines.iter().map(Engine::stats).collect::<Vec<_>>());
        for _ in 0..64 {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn of(engines: &[Engine], rank: usize) -> Stats {
    engines[rank].stats()
}

/// Paper: mpich2-ib §2.3.2, and back again.
#[test]
fn it_grows_in_a_burst_shrinks_in_quiet_and_grows_again() {
    for device in [DeviceChoice::ShmVerbs, DeviceChoice::Tcp] {
        let quiet_config = config(device);
        // Until the burst is over, nothing is given back.
        let mut engines = local_engines(3, &Config { pool_idle: None, ..quiet_config.clone() }).expect("a device");
        burst(&mut engines, 0, 1, 4000);
        let grown = of(&engines, 1);
        assert!(grown.credits_granted > 200, "{device:?}: {} granted", grown.credits_granted);
        for _ in 0..10_000 {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
        }
        assert_eq!(of(&engines, 1).pool_bytes, grown.pool_bytes, "{device:?}: nothing goes unless asked for");

        let mut engines = local_engines(3, &quiet_config).expect("a device");
        for round in 1..4 {
            burst(&mut engines, 0, 1, 4000);
            let (before, most) = (of(&engines, 1), of(&engines, 1).pool_peak_bytes);
            assert!(before.credits_granted >= round * 200, "{device:?}, round {round}: {before:?}");
            quiet_until(&mut engines, "the pool keeps what is not used", |engines| {
                let stats = of(engines, 1);
                stats.credits_returned >= stats.credits_granted && stats.pool_bytes <= most / 3 * 2
            });
            // What is left may be in several chunks, and moves together as messages come, without another to grow for them.
            for few in 0.. {
                if of(&engines, 1).pool_bytes <= most / 4 {
                    break;
                }
                assert!(few < 1000, "{device:?}, round {round}: {:?}", of(&engines, 1));
                burst(&mut engines, 0, 1, 4);
                burst(&mut engines, 2, 1, 4);
                (0..128).for_each(|_| engines.iter_mut().for_each(|engine| _ = engine.progress()));
            }
            burst(&mut engines, 1, 0, 100);
        }
        let stats = of(&engines, 1);
        assert!(stats.pool_given_back_bytes > 2 * stats.pool_peak_bytes, "{device:?}: {stats:?}");
        assert_eq!(stats.refused_records, 0);
    }
}

/// What connections need at least may take all the buffers there may be, to the last one of a chunk. Whoever sends gets some
/// all the same.
#[test]
fn a_pool_that_is_full_of_receives_sends() {
    for device in [DeviceChoice::ShmVerbs, DeviceChoice::Tcp] {
        for (count, credits_initial) in (3..7).flat_map(|count| [1, 2, 5].map(|credits| (count, credits))) {
            let config = Config { pool_max_bytes: Some(0), credits_initial, pool_idle: None, ..config(device) };
            let mut engines = local_engines(count, &config).expect("a device");
            let pairs = (0..count as usize).flat_map(|from| (0..count as usize).map(move |to| (from, to)));
            pairs.filter(|(from, to)| from != to).for_each(|(from, to)| burst(&mut engines, from, to, 20));
        }
    }
}

/// What segments of packed data take is given back as well.
#[test]
fn segments_that_are_not_used_are_given_back() {
    let datatypes = DatatypeSettings { scheme: DatatypeScheme::RwgUp, ..DatatypeSettings::default() };
    let mut engines = local_engines(2, &Config { datatypes, ..config(DeviceChoice::ShmVerbs) }).expect("a device");
    let int = Datatype::predefined(Basic::Int32);
    let column = Datatype::vector(4096, 64, 128, &int).expect("a vector");
    let ours = Scratch::new(1, &column).expect("memory");
    let theirs = Scratch::new(1, &column).expect("memory");
    let send = engines[0].send(SendMode::Standard, 1, CONTEXT, 1, ours.memory().send(0, 1, &column)).expect("a peer");
    let window = theirs.memory().recv(0, 1, &column);
    let receive = engines[1].recv(Source::Peer(0), CONTEXT, TagPattern::Exact(1), window).expect("a peer");
    let mut most = 0;
    while !(engines[0].is_complete(send) && engines[1].is_complete(receive)) {
        engines.iter_mut().for_each(|engine| _ = engine.progress());
        most = most.max(of(&engines, 1).pool_bytes);
    }
    assert!(of(&engines, 1).segments_unpacked > 0);
    quiet_until(&mut engines, "segments are kept", |engines| of(engines, 1).pool_bytes < 1 << 20);
    let stats = of(&engines, 1);
    assert!(most > 1 << 20 && stats.pool_given_back_bytes >= 1 << 20, "{most}, {stats:?}");
}

/// Memory of packed messages serves the next ones, and is given back when none come.
#[test]
fn memory_of_packed_messages_is_kept_while_it_is_used() {
    for device in [DeviceChoice::ShmVerbs, DeviceChoice::Tcp] {
        let mut engines = local_engines(2, &config(device)).expect("a device");
        let int = Datatype::predefined(Basic::Int32);
        let column = Datatype::vector(2048, 64, 128, &int).expect("a vector");
        let len_bytes = 2048 * 64 * 4;
        for _ in 0..3 {
            let ours = Scratch::new(1, &column).expect("memory");
            let theirs = Scratch::new(1, &column).expect("memory");
            let source = ours.memory().send(0, 1, &column);
            let target = theirs.memory().recv(0, 1, &column);
            let send = engines[0].send(SendMode::Standard, 1, CONTEXT, 1, source).expect("a peer");
            let receive = engines[1].recv(Source::Peer(0), CONTEXT, TagPattern::Exact(1), target).expect("a peer");
            while !(engines[0].is_complete(send) && engines[1].is_complete(receive)) {
                engines.iter_mut().for_each(|engine| _ = engine.progress());
            }
            for side in 0..2 {
                let stats = of(&engines, side);
                assert_eq!((stats.packed_kept_bytes, stats.packed_peak_bytes), (len_bytes, len_bytes), "{device:?}");
            }
        }
        quiet_until(&mut engines, "memory of packed messages is kept", |engines| {
            (0..2).all(|side| of(engines, side).packed_kept_bytes == 0)
        });
    }
}

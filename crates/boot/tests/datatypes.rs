//! Long messages whose data does not lie in one piece: every scheme brings the same bytes, and its counter says that it did.

use std::sync::Arc;

use base::Config;
use base::config::{CrossMemory, DatatypeScheme, DatatypeSettings};
use boot::local_engines;
use datatype::{Basic, Datatype, Scratch};
use engine::{ContextId, Engine, Outcome, SendMode, Source, Stats, TagPattern};

const CONTEXT: ContextId = ContextId(3);

fn engines(datatypes: DatatypeSettings, cross_memory: CrossMemory) -> (Engine, Engine) {
    let config = Config { datatypes, cross_memory, ..Config::default() };
    let mut engines = local_engines(2, &config).expect("a segment");
    let receiver = engines.pop().expect("two");
    (engines.pop().expect("two"), receiver)
}

/// Memory for elements, every byte of it written; gaps included.
fn filled(datatype: &Arc<Datatype>, count: u64, seed: u64) -> Scratch {
    let mut scratch = Scratch::new(count, datatype).expect("memory");
    let bytes: Box<[u8]> = (0..scratch.send().len_bytes()).map(|at| (at * 7 + at / 251 + seed) as u8).collect();
    assert_eq!(scratch.recv().unpack_at(0, &bytes), bytes.len());
    scratch
}

fn packed(scratch: &Scratch) -> Vec<u8> {
    let mut bytes = vec![0; scratch.send().len_bytes() as usize];
    scratch.send().pack_at(0, &mut bytes);
    bytes
}

/// One message from elements of one type to elements of another.
fn transfer(engines: &mut (Engine, Engine), source: &Scratch, target: &mut Scratch) -> Outcome {
    let (sender, receiver) = engines;
    let receive = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Any, target.recv()).expect("a peer");
    let send = sender.send(SendMode::Standard, 1, CONTEXT, 7, source.send()).expect("a peer");
    while !receiver.is_complete(receive) || !sender.is_complete(send) {
        sender.progress();
        receiver.progress();
    }
    assert_eq!(sender.take(send).expect("complete").outcome, Outcome::Done);
    receiver.take(receive).expect("complete").outcome
}

/// Pairs of a sender's and a receiver's type, and how many of each: together as many bytes on both sides, or more room.
fn pairs() -> Vec<(Arc<Datatype>, u64, Arc<Datatype>, u64)> {
    let int = Datatype::predefined(Basic::Int);
    let vector = |count, length, stride| Datatype::vector(count, length, stride, &int).expect("small");
    let whole = |ints| Datatype::contiguous(ints, &int).expect("small");
    let doubling: Vec<i64> = (0..14).map(|block| 1 << block).collect();
    let places: Vec<i64> = (0..14).map(|block| 2 << block).collect();
    let doubling = Datatype::indexed(&doubling, &places, &int).expect("small");
    vec![
        (vector(128, 2048, 4096), 1, vector(128, 2048, 4096), 1),
        (vector(128, 2048, 4096), 1, whole(128 * 2048), 1),
        (whole(128 * 2048), 1, vector(128, 2048, 4096), 1),
        (vector(16, 1024, 1100), 8, vector(64, 2048, 2050), 1),
        (vector(9000, 3, 7), 1, vector(4500, 6, 8), 1),
        (whole(27_000), 1, vector(9000, 3, -7), 2),
        (doubling.clone(), 5, doubling.clone(), 5),
        (doubling, 3, vector(3, 16_383, 20_000), 1),
    ]
}

/// All pairs of types under one scheme, the received bytes compared; the receiver's and the sender's counters.
fn run(datatypes: DatatypeSettings, cross_memory: CrossMemory) -> (Stats, Stats) {
    let mut engines = engines(datatypes, cross_memory);
    for round in 0..2 {
        for (from, from_count, to, to_count) in pairs() {
            let source = filled(&from, from_count, round);
            let mut target = filled(&to, to_count, 99);
            let mut expected = packed(&target);
            let sent = packed(&source);
            expected[..sent.len()].copy_from_slice(&sent);
            assert_eq!(transfer(&mut engines, &source, &mut target), Outcome::Done);
            assert!(packed(&target) == expected, "{datatypes:?} {cross_memory:?} {from:?} {to:?}");
        }
    }
    (engines.0.stats(), engines.1.stats())
}

#[test]
fn every_scheme_brings_the_same_bytes_and_is_counted() {
    let cross_memory = engines(DatatypeSettings::default(), CrossMemory::Auto).0.direct_copies();
    for &(word, scheme) in DatatypeScheme::ALL {
        for (segment_unpack, list_post) in [(true, true), (false, false)] {
            let (sender, receiver) = run(DatatypeSettings { scheme, segment_unpack, list_post }, CrossMemory::Auto);
            let counts = receiver.schemes;
            assert_eq!((receiver.refused_records, sender.refused_records), (0, 0), "{word}");
            let total = counts.generic + counts.bc_spup + counts.rwg_up + counts.p_rrs + counts.multi_w + counts.direct;
            if cross_memory.is_err() {
                continue;
            }
            let counted = match scheme {
                DatatypeScheme::Auto => counts.direct.min(counts.bc_spup),
                DatatypeScheme::Generic => counts.generic,
                DatatypeScheme::BcSpup => counts.bc_spup,
                DatatypeScheme::RwgUp => counts.rwg_up,
                DatatypeScheme::PRrs => counts.p_rrs,
                DatatypeScheme::MultiW => counts.multi_w,
                DatatypeScheme::Direct => counts.direct,
            };
            // Auto takes both ways here; what a scheme cannot do goes through the channel.
            let at_least = if scheme == DatatypeScheme::Auto { 2 } else { total * 3 / 4 };
            assert!(counted >= at_least && counted > 0, "{word}: {counts:?}");
        }
    }
    if let Err(why) = cross_memory {
        println!("skipped in part: {why}");
    }
}

#[test]
fn where_the_kernel_refuses_everything_goes_through_the_channel() {
    for &(_, scheme) in DatatypeScheme::ALL {
        let datatypes = DatatypeSettings { scheme, ..DatatypeSettings::default() };
        let (_, receiver) = run(datatypes, CrossMemory::Off);
        assert_eq!(receiver.read_received + receiver.shared_received, 0);
        assert_eq!(receiver.layouts_read, 0);
    }
}

#[test]
fn a_layout_is_read_once_however_often_its_type_is_made() {
    let datatypes = DatatypeSettings { scheme: DatatypeScheme::Direct, ..DatatypeSettings::default() };
    let mut engines = engines(datatypes, CrossMemory::Auto);
    if let Err(why) = engines.0.direct_copies() {
        return println!("skipped: {why}");
    }
    let int = Datatype::predefined(Basic::Int);
    let mut send = |stride| {
        let datatype = Datatype::vector(64, 1024, stride, &int).expect("small");
        let source = filled(&datatype, 1, 5);
        let mut target = filled(&int, 64 * 1024, 9);
        assert_eq!(transfer(&mut engines, &source, &mut target), Outcome::Done);
        assert!(packed(&source) == packed(&target));
        engines.1.stats().layouts_read
    };
    for _ in 0..10 {
        assert_eq!(send(2000), 1, "the same layout each time");
    }
    // More layouts than the table has places: each is read, and those that lost their place are read again.
    for stride in 2001..2101 {
        send(stride);
    }
    assert_eq!(send(2000), 102, "its place was taken by another");
    assert_eq!(send(2100), 102, "the last one is still there");
}

#[test]
fn a_message_longer_than_the_elements_is_truncated_and_writes_nothing() {
    for &(_, scheme) in DatatypeScheme::ALL {
        let datatypes = DatatypeSettings { scheme, ..DatatypeSettings::default() };
        let mut engines = engines(datatypes, CrossMemory::Auto);
        let int = Datatype::predefined(Basic::Int);
        let datatype = Datatype::vector(128, 1024, 2048, &int).expect("small");
        let source = filled(&datatype, 2, 1);
        let mut target = filled(&datatype, 1, 50);
        let before = packed(&target);
        let sent_bytes = source.send().len_bytes();
        let outcome = transfer(&mut engines, &source, &mut target);
        assert_eq!(outcome, Outcome::Truncated { sent_bytes, capacity_bytes: sent_bytes / 2 });
        assert!(packed(&target) == before);
    }
}

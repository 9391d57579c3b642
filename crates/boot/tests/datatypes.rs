//! Long messages whose data does not lie in one piece: every scheme brings the same bytes, and its counter says that it did.

use std::sync::Arc;

use base::Config;
use base::config::{CrossMemory, DatatypeScheme, DatatypeSettings, DeviceChoice};
use boot::local_engines;
use datatype::{Basic, Datatype, Scratch};
use engine::{ContextId, Engine, Outcome, SendMode, Source, Stats, TagPattern};

const CONTEXT: ContextId = ContextId(3);

fn engines(datatypes: DatatypeSettings, cross_memory: CrossMemory) -> (Engine, Engine) {
    engines_of(&Config { datatypes, cross_memory, ..Config::default() })
}

fn engines_of(config: &Config) -> (Engine, Engine) {
    let mut engines = local_engines(2, config).expect("a segment");
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
    run_with(&Config { datatypes, cross_memory, ..Config::default() })
}

fn run_with(config: &Config) -> (Stats, Stats) {
    let mut engines = engines_of(config);
    for round in 0..2 {
        for (from, from_count, to, to_count) in pairs() {
            let source = filled(&from, from_count, round);
            let mut target = filled(&to, to_count, 99);
            let mut expected = packed(&target);
            let sent = packed(&source);
            expected[..sent.len()].copy_from_slice(&sent);
            assert_eq!(transfer(&mut engines, &source, &mut target), Outcome::Done);
            assert!(packed(&target) == expected, "{config:?} {from:?} {to:?}");
        }
    }
    (engines.0.stats(), engines.1.stats())
}

#[test]
fn every_scheme_brings_the_same_bytes_and_is_counted() {
    let cross_memory = engines(DatatypeSettings::default(), CrossMemory::Auto).0.direct_copies();
    for &(word, scheme) in DatatypeScheme::ALL {
        for (segment_unpack, list_post) in [(true, true), (false, false)] {
            let (sender, receiver) = run(
                DatatypeSettings { scheme, segment_unpack, list_post, ..DatatypeSettings::default() },
                CrossMemory::Auto,
            );
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

/// The devices whose verbs an engine may stand on without an adapter.
const PORTS: [DeviceChoice; 2] = [DeviceChoice::ShmVerbs, DeviceChoice::Tcp];

fn over(device: DeviceChoice, datatypes: DatatypeSettings) -> Config {
    // So that messages go by their schemes over sockets, too.
    Config { device, datatypes, eager_max_bytes: Some(16 << 10), ..Config::default() }
}

#[test]
fn over_verbs_every_scheme_brings_the_same_bytes_and_does_what_it_is_called_after() {
    for device in PORTS {
        for &(word, scheme) in DatatypeScheme::ALL {
            for (segment_unpack, list_post) in [(true, true), (false, false)] {
                let settings = DatatypeSettings { scheme, segment_unpack, list_post, ..DatatypeSettings::default() };
                let (sender, receiver) = run_with(&over(device, settings));
                let case = format!("{word} over {device:?}: {receiver:?}\n{sender:?}");
                assert_eq!((receiver.refused_records, sender.refused_records), (0, 0), "{case}");
                assert_eq!((receiver.packed_refused, sender.packed_refused), (0, 0), "{case}");
                let counts = receiver.schemes;
                let total =
                    counts.generic + counts.bc_spup + counts.rwg_up + counts.p_rrs + counts.multi_w + counts.direct;
                let (counted, proofs) = match scheme {
                    DatatypeScheme::Auto => {
                        (counts.generic, vec![sender.packed_peak_bytes, receiver.packed_peak_bytes])
                    }
                    DatatypeScheme::Generic => (counts.generic, vec![receiver.get_received + receiver.put_received]),
                    DatatypeScheme::BcSpup => {
                        (counts.bc_spup, vec![sender.segments_packed, receiver.segments_unpacked])
                    }
                    DatatypeScheme::RwgUp => (counts.rwg_up, vec![sender.block_writes, receiver.segments_unpacked]),
                    DatatypeScheme::PRrs => (counts.p_rrs, vec![receiver.block_reads]),
                    // Copied from layout to layout, by writes.
                    DatatypeScheme::MultiW | DatatypeScheme::Direct => (counts.multi_w, vec![sender.block_writes]),
                };
                assert!(counted >= total * 3 / 4 && counted > 0, "{case}");
                assert!(proofs.iter().all(|proof| *proof > 0), "{proofs:?} {case}");
            }
        }
    }
}

/// Several messages at once, so that the pool is asked for more than it has.
fn burst(engines: &mut (Engine, Engine), datatype: &Arc<Datatype>, count: usize) {
    let (sender, receiver) = engines;
    let sources: Vec<Scratch> = (0..count).map(|seed| filled(datatype, 1, seed as u64)).collect();
    let mut targets: Vec<Scratch> = (0..count).map(|_| filled(datatype, 1, 99)).collect();
    let receives: Vec<_> = targets
        .iter_mut()
        .map(|target| receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Any, target.recv()).expect("a peer"))
        .collect();
    let sends: Vec<_> = sources
        .iter()
        .map(|source| sender.send(SendMode::Standard, 1, CONTEXT, 7, source.send()).expect("a peer"))
        .collect();
    while !(receives.iter().all(|one| receiver.is_complete(*one)) && sends.iter().all(|one| sender.is_complete(*one))) {
        sender.progress();
        receiver.progress();
    }
    for (source, target) in sources.iter().zip(&targets) {
        assert!(packed(source) == packed(target));
    }
}

#[test]
fn packed_data_keeps_to_its_limit_and_what_finds_no_room_goes_through_the_channel() {
    let int = Datatype::predefined(Basic::Int);
    let datatype = Datatype::vector(1024, 128, 300, &int).expect("small");
    let devices = [DeviceChoice::Shm, DeviceChoice::ShmVerbs, DeviceChoice::Tcp];
    for device in devices {
        for scheme in [DatatypeScheme::BcSpup, DatatypeScheme::RwgUp, DatatypeScheme::PRrs] {
            for (pool_max_bytes, all_fit) in [(0, false), (600 << 10, false), (20 << 20, true)] {
                let settings = DatatypeSettings { scheme, pool_max_bytes, ..DatatypeSettings::default() };
                let mut engines = engines_of(&over(device, settings));
                let is_mapped = device == DeviceChoice::Shm;
                if is_mapped && engines.0.direct_copies().is_err() {
                    continue;
                }
                burst(&mut engines, &datatype, 8);
                let (sender, receiver) = (engines.0.stats(), engines.1.stats());
                let case = format!("{device:?} {scheme:?} {pool_max_bytes}: {sender:?}\n{receiver:?}");
                // One pool to pack and one to unpack.
                for stats in [sender, receiver] {
                    assert!(stats.packed_peak_bytes <= 2 * pool_max_bytes as u64, "{case}");
                }
                let refused = sender.packed_refused + receiver.packed_refused;
                let needs_pool = !(is_mapped && scheme == DatatypeScheme::BcSpup);
                assert_eq!(refused > 0, needs_pool && !all_fit, "{case}");
                assert_eq!(sender.packed_peak_bytes + receiver.packed_peak_bytes > 0, needs_pool && pool_max_bytes > 0);
                assert_eq!(receiver.staged_received == 8, !needs_pool || pool_max_bytes == 0, "{case}");
            }
        }
    }
}

#[test]
fn blocks_that_lie_near_each_other_are_registered_together() {
    let int = Datatype::predefined(Basic::Int);
    let settings = DatatypeSettings { scheme: DatatypeScheme::MultiW, ..DatatypeSettings::default() };
    for device in PORTS {
        let mut engines = engines_of(&over(device, settings));
        let mut regions = |length, stride| {
            let datatype = Datatype::vector(64, length, stride, &int).expect("small");
            let (source, mut target) = (filled(&datatype, 1, 3), filled(&datatype, 1, 4));
            let before = (engines.0.stats(), engines.1.stats());
            assert_eq!(transfer(&mut engines, &source, &mut target), Outcome::Done);
            assert!(packed(&source) == packed(&target));
            let after = (engines.0.stats(), engines.1.stats());
            let writes = after.0.block_writes - before.0.block_writes;
            let sides = [(before.0, after.0), (before.1, after.1)];
            (sides.map(|(before, after)| after.block_regions - before.block_regions), writes)
        };
        // Gaps of less than a page lie on pages of the blocks. Larger ones may hold no memory, and nobody would notice.
        assert_eq!(regions(1024, 2000), ([1, 1], 64), "{device:?}");
        assert_eq!(regions(1024, 4096), ([64, 64], 64), "{device:?}");
    }
}

#[test]
fn over_verbs_a_layout_is_sent_once_however_often_its_type_is_made() {
    let int = Datatype::predefined(Basic::Int);
    let settings = DatatypeSettings { scheme: DatatypeScheme::MultiW, ..DatatypeSettings::default() };
    for device in PORTS {
        let mut engines = engines_of(&over(device, settings));
        let mut send = |stride| {
            let datatype = Datatype::vector(64, 1024, stride, &int).expect("small");
            let source = filled(&int, 64 * 1024, 9);
            let mut target = filled(&datatype, 1, 5);
            assert_eq!(transfer(&mut engines, &source, &mut target), Outcome::Done);
            assert!(packed(&source) == packed(&target));
            engines.0.stats().layouts_read
        };
        for _ in 0..10 {
            assert_eq!(send(1500), 1, "the same layout each time");
        }
        for stride in 1501..1601 {
            send(stride);
        }
        assert_eq!(send(1500), 102, "its place was taken by another");
        assert_eq!(send(1600), 102, "the last one is still there");
        assert_eq!(engines.1.stats().schemes.multi_w, 112);
    }
}

#[test]
fn over_verbs_a_message_longer_than_the_elements_is_truncated_and_writes_nothing() {
    for device in PORTS {
        for &(_, scheme) in DatatypeScheme::ALL {
            let settings = DatatypeSettings { scheme, ..DatatypeSettings::default() };
            let mut engines = engines_of(&over(device, settings));
            let int = Datatype::predefined(Basic::Int);
            let datatype = Datatype::vector(128, 1024, 2048, &int).expect("small");
            let (source, mut target) = (filled(&datatype, 2, 1), filled(&datatype, 1, 50));
            let before = packed(&target);
            let sent_bytes = source.send().len_bytes();
            let outcome = transfer(&mut engines, &source, &mut target);
            assert_eq!(outcome, Outcome::Truncated { sent_bytes, capacity_bytes: sent_bytes / 2 });
            assert!(packed(&target) == before);
        }
    }
}

/// While a peer gives no credits, a look at what waits for them costs the same however much that is, and packs nothing.
#[test]
fn who_waits_for_credits_does_not_pack_meanwhile() {
    const LOOKS: u64 = 1000;
    // As many as there are segments for.
    const MESSAGES: usize = 16;
    for device in PORTS {
        let settings = DatatypeSettings { scheme: DatatypeScheme::BcSpup, ..DatatypeSettings::default() };
        let (mut sender, mut receiver) = engines_of(&over(device, settings));
        let int = Datatype::predefined(Basic::Int);
        let column = Datatype::vector(128, 512, 1024, &int).expect("small");
        let source = filled(&column, 1, 3);
        let mut targets: Vec<Scratch> = (0..MESSAGES).map(|_| filled(&column, 1, 9)).collect();
        let receives: Vec<_> = targets
            .iter_mut()
            .map(|target| receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Any, target.recv()).expect("a peer"))
            .collect();
        let sends: Vec<_> = (0..MESSAGES)
            .map(|_| sender.send(SendMode::Standard, 1, CONTEXT, 7, source.send()).expect("a peer"))
            .collect();
        let is_complete = |sender: &Engine, receiver: &Engine| {
            sends.iter().all(|send| sender.is_complete(*send)) && receives.iter().all(|one| receiver.is_complete(*one))
        };
        let mut starved = 0;
        while !is_complete(&sender, &receiver) {
            let before = sender.stats().credit_stalls;
            (0..LOOKS).for_each(|_| _ = sender.progress());
            let stalls = sender.stats().credit_stalls - before;
            assert!(stalls <= 2 * LOOKS, "{device:?}: {stalls} stalls in {LOOKS} looks");
            starved += u64::from(stalls >= LOOKS / 2);
            receiver.progress();
        }
        assert!(starved > 0, "{device:?}: nothing had to wait");
        assert!(targets.iter().all(|target| packed(target) == packed(&source)), "{device:?}");
        // An eighth of 256 KiB each, and a quarter where sockets carry them.
        let segments = if device == DeviceChoice::Tcp { 4 } else { 8 };
        assert_eq!(sender.stats().segments_packed, segments * MESSAGES as u64, "{device:?}");
    }
}

/// A read takes no receive of the peer: it is posted although there are writes that wait for one.
#[test]
fn a_read_does_not_wait_for_credits() {
    let settings = DatatypeSettings { scheme: DatatypeScheme::BcSpup, ..DatatypeSettings::default() };
    let (mut near, mut far) = engines_of(&over(DeviceChoice::ShmVerbs, settings));
    if let Err(why) = engines(settings, CrossMemory::Auto).0.direct_copies() {
        return println!("skipped: {why}");
    }
    let int = Datatype::predefined(Basic::Int);
    let column = Datatype::vector(128, 512, 1024, &int).expect("small");
    let whole = Datatype::contiguous(128 * 512, &int).expect("small");
    let (source, theirs) = (filled(&column, 1, 3), filled(&whole, 1, 5));
    let mut targets: Vec<Scratch> = (0..16).map(|_| filled(&column, 1, 9)).collect();
    let mut ours = filled(&whole, 1, 7);
    let asked = far.send(SendMode::Standard, 0, CONTEXT, 8, theirs.send()).expect("a peer");
    let receives: Vec<_> = targets
        .iter_mut()
        .map(|target| far.recv(Source::Peer(0), CONTEXT, TagPattern::Any, target.recv()).expect("a peer"))
        .collect();
    let sends: Vec<_> =
        (0..16).map(|_| near.send(SendMode::Standard, 1, CONTEXT, 7, source.send()).expect("a peer")).collect();
    // Until the request is here, and segments wait for credits.
    let mut stalls = 0;
    while stalls < 100 || near.stats().segments_packed == 0 || near.stats().unexpected == 0 {
        assert!(sends.iter().any(|send| !near.is_complete(*send)), "nothing had to wait");
        far.progress();
        let before = near.stats().credit_stalls;
        (0..100).for_each(|_| _ = near.progress());
        stalls = near.stats().credit_stalls - before;
    }
    // The other side does nothing from here on: what is posted stays under way.
    let under_way = |near: &Engine| {
        let standing = near.standing(1);
        let before = standing.split(" in flight").next().and_then(|text| text.rsplit(' ').next());
        before.and_then(|count| count.parse::<u32>().ok()).expect("a connection")
    };
    let before = under_way(&near);
    let receive = near.recv(Source::Peer(1), CONTEXT, TagPattern::Exact(8), ours.recv()).expect("a peer");
    (0..100).for_each(|_| _ = near.progress());
    assert_eq!(under_way(&near), before + 1, "{}", near.standing(1));
    while !far.is_complete(asked)
        || !sends.iter().all(|send| near.is_complete(*send))
        || !receives.iter().all(|receive| far.is_complete(*receive))
        || !near.is_complete(receive)
    {
        near.progress();
        far.progress();
    }
    assert_eq!(near.stats().get_received, 1);
    assert!(packed(&ours) == packed(&theirs) && targets.iter().all(|target| packed(target) == packed(&source)));
}

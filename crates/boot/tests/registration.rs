//! Long messages from the same places: what the cache of registered memory saves, by its counters.

use base::Config;
use base::config::{LargeCopy, RegistrationScheme};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, Outcome, SendMode, Source, Stats, TagPattern};

const CONTEXT: ContextId = ContextId(3);
const LEN_BYTES: u64 = 64 << 10;

fn engines(scheme: RegistrationScheme) -> (Engine, Engine) {
    let sizes = Config { shared_copy_min_bytes: LEN_BYTES as usize, large_copy: LargeCopy::Both, ..Config::default() };
    let config = Config { registration_cache: scheme, ..sizes };
    let mut engines = local_engines(2, &config).expect("a segment");
    let receiver = engines.pop().expect("two");
    (engines.pop().expect("two"), receiver)
}

/// Sends `source` to `target`, both of one length, and waits for both.
fn transfer(sender: &mut Engine, receiver: &mut Engine, source: SendBuf, target: RecvBuf) {
    let receive = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Any, target).expect("a peer");
    let send = sender.send(SendMode::Standard, 1, CONTEXT, 7, source).expect("a peer");
    while !receiver.is_complete(receive) || !sender.is_complete(send) {
        sender.progress();
        receiver.progress();
    }
    assert_eq!(receiver.take(receive).expect("complete").outcome, Outcome::Done);
    assert_eq!(sender.take(send).expect("complete").outcome, Outcome::Done);
}

/// One buffer sent whole `rounds` times, and its halves as often; the counters of both sides.
fn use_again(scheme: RegistrationScheme, rounds: u64) -> (Stats, Stats) {
    let (mut sender, mut receiver) = engines(scheme);
    let source = SendBuf::from_owned((0..2 * LEN_BYTES).map(|at| ((at * 7) >> 3) as u8).collect());
    let mut target = RecvBuf::from_owned(vec![0; 2 * LEN_BYTES as usize].into());
    for _ in 0..rounds {
        transfer(&mut sender, &mut receiver, source.slice(0, 2 * LEN_BYTES), target.slice(0, 2 * LEN_BYTES));
        for half in [0, LEN_BYTES] {
            transfer(&mut sender, &mut receiver, source.slice(half, LEN_BYTES), target.slice(half, LEN_BYTES));
        }
    }
    assert!(target.as_contiguous() == source.as_contiguous());
    sender.release_registrations();
    receiver.release_registrations();
    assert_eq!((sender.stats().registrations.bytes, receiver.stats().registrations.bytes), (0, 0));
    (sender.stats(), receiver.stats())
}

#[test]
fn a_buffer_is_registered_once_however_often_it_is_sent() {
    let rounds = 50;
    // The first message from a peer is read alone: its target is not registered.
    for (scheme, sent, received) in [
        (RegistrationScheme::Interval, (3 * rounds - 1, 1), (3 * rounds - 4, 3)),
        (RegistrationScheme::Dme, (3 * rounds - 2, 2), (3 * rounds - 4, 3)),
        (RegistrationScheme::Off, (0, 3 * rounds), (0, 3 * rounds - 1)),
    ] {
        let (sender, receiver) = use_again(scheme, rounds);
        assert_eq!(sender.rendezvous_sent, 3 * rounds);
        assert_eq!((sender.registrations.hits, sender.registrations.misses), sent, "{scheme:?}");
        let refused_first = receiver.staged_received > 0;
        if !refused_first {
            assert_eq!((receiver.registrations.hits, receiver.registrations.misses), received, "{scheme:?}");
        }
    }
}

/// More sends of one buffer under way than the device has regions.
#[test]
fn sends_of_one_buffer_share_a_region() {
    for (scheme, staged) in [(RegistrationScheme::Interval, false), (RegistrationScheme::Off, true)] {
        let copies = Config { large_copy: LargeCopy::Read, ..Config::default() };
        let config = Config { registration_cache: scheme, ..copies };
        let mut engines = local_engines(2, &config).expect("a segment");
        let (mut receiver, mut sender) = (engines.pop().expect("two"), engines.pop().expect("two"));
        let source = SendBuf::from_owned((0..LEN_BYTES).map(|at| ((at * 5) >> 2) as u8).collect());
        let sends: Vec<_> = (0..1200)
            .map(|_| sender.send(SendMode::Standard, 1, CONTEXT, 7, source.slice(0, LEN_BYTES)).expect("a peer"))
            .collect();
        for send in sends {
            let mut target = RecvBuf::from_owned(vec![0; LEN_BYTES as usize].into());
            let window = target.slice(0, LEN_BYTES);
            let receive = receiver.recv(Source::Any, CONTEXT, TagPattern::Any, window).expect("any");
            while !receiver.is_complete(receive) || !sender.is_complete(send) {
                sender.progress();
                receiver.progress();
            }
            assert!(target.as_contiguous() == source.as_contiguous());
        }
        if receiver.direct_copies().is_ok() {
            assert_eq!(receiver.stats().staged_received > 0, staged, "{scheme:?}");
        }
    }
}

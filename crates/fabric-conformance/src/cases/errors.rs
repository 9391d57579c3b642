//! What must fail, how, and at which side.

use std::time::Duration;

use fabric::{
    Access, ConnectOptions, Lkey, Operation, Payload, QueuePairState, ReceiverNotReadyRetry, RemoteMemory, Rkey,
    ScatterGather, SendRequest, Transition, WcStatus,
};

use super::{with_ability, with_pair};
use crate::memory::Memory;
use crate::side::{Connection, Pair, break_down};
use crate::{Case, Fixture, Outcome, operations_of_every_kind};

pub(super) const CASES: &[Case] = &[
    Case { name: "keys_bounds_and_rights_are_checked_at_the_target", run: remote_access },
    Case { name: "a_queue_pair_grants_no_more_than_it_was_told", run: queue_pair_access },
    Case { name: "what_was_allowed_once_is_checked_the_next_time", run: checked_again },
    Case { name: "a_queue_pair_that_is_reset_grants_what_it_is_told_next", run: told_anew },
    Case { name: "a_deregistered_region_is_out_of_reach", run: deregistered },
    Case { name: "nothing_is_written_through_a_queue_pair_that_has_failed", run: failed_there },
    Case { name: "another_protection_domain_is_out_of_reach", run: other_domain },
    Case { name: "local_keys_and_bounds_are_checked", run: local_protection },
    Case { name: "what_stands_before_a_bad_list_is_done_and_reported", run: bad_list_comes_second },
    Case { name: "a_receive_with_a_bad_key_fails_at_both_sides", run: bad_receive },
    Case { name: "truncation_fails_at_both_sides", run: truncation },
    Case { name: "an_atomic_off_its_alignment_is_invalid", run: misaligned },
    Case { name: "a_failed_queue_pair_flushes_everything_in_order", run: flush },
    Case { name: "the_error_state_flushes_what_is_posted_later", run: flush_later },
    Case { name: "one_failed_queue_pair_does_not_hurt_another", run: independence },
    Case { name: "a_receiver_that_is_never_ready_ends_the_send", run: receiver_not_ready },
    Case { name: "a_send_waits_for_ever_if_told_so", run: waits_for_ever },
    Case { name: "a_peer_that_goes_fails_every_operation", run: peer_gone },
];

fn remote_access(fixture: &mut dyn Fixture) -> Outcome {
    type Wrong = fn(&Memory) -> RemoteMemory;
    let cases: [(&str, Wrong, Access); 6] = [
        ("past the end", |far| far.remote(57), Access::REMOTE_ALL),
        ("before the start", |far| far.remote(0u64.wrapping_sub(8)), Access::REMOTE_ALL),
        ("an address that wraps", |far| RemoteMemory { address: u64::MAX - 7, ..far.remote(0) }, Access::REMOTE_ALL),
        (
            "another key",
            |far| RemoteMemory { rkey: Rkey(far.region.rkey.0 ^ 0x5a_5a5a), ..far.remote(0) },
            Access::REMOTE_ALL,
        ),
        ("no rights at all", |far| far.remote(0), Access::LOCAL),
        ("key zero", |far| RemoteMemory { rkey: Rkey(0), ..far.remote(0) }, Access::REMOTE_ALL),
    ];
    with_pair(fixture, |pair| {
        let atomics = pair.here.context.capabilities().atomics;
        for (name, wrong, access) in cases {
            for kind in ["write", "read", "add"] {
                if kind == "add" && (!atomics || name == "past the end") {
                    continue;
                }
                check_remote_access(pair, &format!("{kind} {name}"), kind, access, wrong);
            }
        }
        check_remote_access(pair, "a write where only reading is allowed", "write", Access::REMOTE_READ, |far| {
            far.remote(0)
        });
        check_remote_access(pair, "a read where only writing is allowed", "read", Access::REMOTE_WRITE, |far| {
            far.remote(0)
        });
        if atomics {
            let access = Access { remote_read: true, remote_write: true, remote_atomic: false };
            check_remote_access(pair, "an atomic where it is not allowed", "add", access, |far| far.remote(0));
        }
    })
}

fn check_remote_access(
    pair: &mut Pair,
    name: &str,
    kind: &str,
    access: Access,
    wrong: impl Fn(&Memory) -> RemoteMemory,
) {
    let qp = pair.connect();
    let far = pair.there.memory(64, access);
    let near = pair.here.memory(64, Access::LOCAL);
    far.fill(7);
    near.fill(1);
    let remote = wrong(&far);
    let (operation, len) = match kind {
        "write" => (Operation::RdmaWrite(remote), 16),
        "read" => (Operation::RdmaRead(remote), 16),
        _ => (Operation::FetchAdd { remote, add: 1 }, 8),
    };
    pair.here.send(qp.here, 1, operation, &[near.part(0, len)]);
    pair.expect_here(1, WcStatus::RemoteAccessError, name);
    assert_eq!((far.all(), near.all()), (vec![7; 64], vec![1; 64]), "{name}: nothing was changed");
    assert_eq!(pair.here.state(qp.here), QueuePairState::Error, "{name}");
    pair.here.context.destroy_queue_pair(qp.here).expect("it exists");
    pair.there.context.destroy_queue_pair(qp.there).expect("it exists");
}

fn queue_pair_access(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let options = ConnectOptions { access: Access::REMOTE_READ, ..ConnectOptions::default() };
        let qp = pair.connect_with(&options, |_| {});
        let far = pair.there.memory(16, Access::REMOTE_ALL);
        let near = pair.here.memory(16, Access::LOCAL);
        far.fill(7);
        pair.here.send(qp.here, 1, Operation::RdmaRead(far.remote(0)), &[near.part(0, 16)]);
        pair.expect_here(1, WcStatus::Success, "a read is granted");
        assert_eq!(near.all(), [7; 16]);
        near.fill(1);
        pair.here.send(qp.here, 2, Operation::RdmaWrite(far.remote(0)), &[near.part(0, 16)]);
        pair.expect_here(2, WcStatus::RemoteAccessError, "a write is not");
        assert_eq!(far.all(), [7; 16]);
    })
}

/// By the queue pair that has read the region, or by another one.
fn checked_again(fixture: &mut dyn Fixture) -> Outcome {
    let (all, reads) = (Access::REMOTE_ALL, Access::REMOTE_READ);
    let before_start = 0u64.wrapping_sub(8);
    // What the region allows, the queue pair that reads, and the one that writes, if it is another.
    let cases = [
        ("past the end", (all, all, None), 57),
        ("past the end, by another queue pair", (all, all, Some(all)), 57),
        ("before the start", (all, all, None), before_start),
        ("where only reading is allowed", (reads, all, None), 0),
        ("through a queue pair that only reads", (all, reads, None), 0),
        ("through a queue pair that only reads, after one that may write", (all, all, Some(reads)), 0),
    ];
    with_pair(fixture, |pair| {
        for (name, (region, reader, writer), offset) in cases {
            let far = pair.there.memory(64, region);
            let near = pair.here.memory(64, Access::LOCAL);
            far.fill(7);
            let mut connect =
                |access| pair.connect_with(&ConnectOptions { access, ..ConnectOptions::default() }, |_| {}).here;
            let reader = connect(reader);
            let writer = writer.map_or(reader, connect);
            for round in 0..2 {
                pair.here.send(reader, round, Operation::RdmaRead(far.remote(0)), &[near.part(0, 64)]);
                pair.expect_here(round, WcStatus::Success, name);
            }
            assert_eq!(near.all(), [7; 64], "{name}");
            near.fill(1);
            pair.here.send(writer, 2, Operation::RdmaWrite(far.remote(offset)), &[near.part(0, 16)]);
            pair.expect_here(2, WcStatus::RemoteAccessError, name);
            assert_eq!(far.all(), [7; 64], "{name}: nothing was changed");
        }
    })
}

/// The same two queue pairs are connected again, and neither has another number.
fn told_anew(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let far = pair.there.memory(16, Access::REMOTE_ALL);
        let near = pair.here.memory(16, Access::LOCAL);
        far.fill(7);
        near.fill(1);
        let (all, reads) = (Access::REMOTE_ALL, Access::REMOTE_READ);
        for (id, access) in (1..).zip([all, all, reads]) {
            for (side, qp) in [(&mut pair.here, qp.here), (&mut pair.there, qp.there)] {
                side.context.modify(qp, &Transition::Reset).expect("from anywhere");
            }
            pair.join(Connection { ..qp }, &ConnectOptions { access, ..ConnectOptions::default() });
            pair.here.send(qp.here, id, Operation::RdmaWrite(far.remote(0)), &[near.part(0, 16)]);
            let expected = if access == all { WcStatus::Success } else { WcStatus::RemoteAccessError };
            pair.expect_here(id, expected, "a write through queue pairs that were connected anew");
            assert_eq!(far.all(), [if access == all { 1 } else { 7 }; 16]);
            far.fill(7);
        }
    })
}

fn deregistered(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let far = pair.there.memory(16, Access::REMOTE_ALL);
        let near = pair.here.memory(16, Access::LOCAL);
        pair.here.send(qp.here, 1, Operation::RdmaWrite(far.remote(0)), &[near.part(0, 16)]);
        pair.expect_here(1, WcStatus::Success, "a write while it is registered");
        far.fill(7);
        pair.there.context.deregister(far.region).expect("registered");
        assert!(pair.there.context.deregister(far.region).is_err(), "once");
        pair.here.send(qp.here, 2, Operation::RdmaWrite(far.remote(0)), &[near.part(0, 16)]);
        pair.expect_here(2, WcStatus::RemoteAccessError, "a write after it");
        assert_eq!(far.all(), [7; 16]);
    })
}

fn failed_there(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let options = ConnectOptions { retry_count: 1, timeout: Duration::from_millis(4), ..ConnectOptions::default() };
        let qp = pair.connect_with(&options, |_| {});
        let far = pair.there.memory(16, Access::REMOTE_ALL);
        let near = pair.here.memory(16, Access::LOCAL);
        pair.here.send(qp.here, 1, Operation::RdmaWrite(far.remote(0)), &[near.part(0, 16)]);
        pair.expect_here(1, WcStatus::Success, "a write while it works");
        far.fill(7);
        break_down(&mut pair.there, qp.there).expect("any state leads to the error state");
        pair.there.poll();
        pair.here.send(qp.here, 2, Operation::RdmaWrite(far.remote(0)), &[near.part(0, 16)]);
        pair.expect_here(2, WcStatus::TransportRetryExceeded, "a write after that");
        assert_eq!(far.all(), [7; 16]);
    })
}

fn other_domain(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let usual = pair.there.domain;
        pair.there.domain = pair.there.context.allocate_protection_domain().expect("another domain");
        let far = pair.there.memory(16, Access::REMOTE_ALL);
        pair.there.domain = usual;
        far.fill(7);
        let write = Operation::RdmaWrite(far.remote(0));
        pair.here.post(qp.here, &SendRequest::new(1, write, Payload::Inline(b"not here")));
        pair.expect_here(1, WcStatus::RemoteAccessError, "a region of another domain");
        assert_eq!(far.all(), [7; 16]);
    })
}

fn local_protection(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let near = pair.here.memory(64, Access::LOCAL);
        let far = pair.there.memory(64, Access::REMOTE_ALL);
        near.fill(1);
        far.fill(7);
        let cases: [(&str, ScatterGather); 4] = [
            ("past the end", near.part(60, 8)),
            ("before the start", near.part(0u64.wrapping_sub(4), 8)),
            ("another key", ScatterGather { lkey: Lkey(near.region.lkey.0 ^ 0x5a_5a5a), ..near.part(0, 8) }),
            ("an address that wraps", ScatterGather { address: u64::MAX - 3, ..near.part(0, 8) }),
        ];
        for (name, entry) in cases {
            for operation in [Operation::Send, Operation::RdmaWrite(far.remote(0)), Operation::RdmaRead(far.remote(0))]
            {
                let qp = pair.connect();
                pair.here.send(qp.here, 1, operation, &[near.part(0, 0), entry]);
                pair.expect_here(1, WcStatus::LocalProtectionError, name);
                assert_eq!(pair.here.state(qp.here), QueuePairState::Error, "{name}");
                assert_eq!((near.all(), far.all()), (vec![1; 64], vec![7; 64]), "{name}: nothing was changed");
            }
        }
    })
}

fn bad_list_comes_second(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let near = pair.here.memory(64, Access::LOCAL);
        let far = pair.there.memory(64, Access::REMOTE_ALL);
        for operation in [Operation::Send, Operation::RdmaWrite(far.remote(0)), Operation::RdmaRead(far.remote(0))] {
            let qp = pair.connect();
            far.fill(7);
            let write = Operation::RdmaWrite(far.remote(56));
            pair.here.post(qp.here, &SendRequest::new(1, write, Payload::Inline(b"is there")));
            pair.here.send(qp.here, 2, operation, &[near.part(60, 8)]);
            pair.expect_here(1, WcStatus::Success, "a write before a request with a bad list");
            pair.expect_here(2, WcStatus::LocalProtectionError, "a list past the end");
            assert_eq!(pair.here.state(qp.here), QueuePairState::Error, "{operation:?}");
            assert_eq!((far.read(0, 56), far.read(56, 8)), (vec![7; 56], b"is there".to_vec()), "{operation:?}");
        }
    })
}

fn bad_receive(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let target = pair.there.memory(16, Access::LOCAL);
        let entry = ScatterGather { lkey: Lkey(target.region.lkey.0 ^ 0x5a_5a5a), ..target.part(0, 16) };
        pair.there.receive(qp.there, 1, &[entry]);
        pair.here.post(qp.here, &SendRequest::new(2, Operation::Send, Payload::Inline(b"nowhere")));
        pair.expect_there(1, WcStatus::LocalProtectionError, "a receive into nothing");
        pair.expect_here(2, WcStatus::RemoteOperationError, "its send");
        assert_eq!(target.all(), [0; 16]);
    })
}

fn truncation(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let source = pair.here.memory(64, Access::LOCAL);
        let target = pair.there.memory(64, Access::LOCAL);
        source.fill(1);
        for (list, len) in
            [(vec![target.part(0, 16)], 17), (vec![], 1), (vec![target.part(0, 8), target.part(20, 8)], 64)]
        {
            target.fill(7);
            let qp = pair.connect();
            pair.there.receive(qp.there, 1, &list);
            pair.there.receive(qp.there, 2, &list);
            pair.here.send(qp.here, 3, Operation::Send, &[source.part(0, len)]);
            pair.here.send(qp.here, 4, Operation::Send, &[]);
            pair.expect_there(1, WcStatus::LocalLengthError, "a receive that is too short");
            pair.expect_here(3, WcStatus::RemoteInvalidRequest, "its send");
            pair.expect_here(4, WcStatus::WorkRequestFlushed, "what was behind it");
            pair.expect_there(2, WcStatus::WorkRequestFlushed, "the next receive");
            assert_eq!(pair.here.state(qp.here), QueuePairState::Error);
            assert_eq!(pair.there.state(qp.there), QueuePairState::Error);
            let outside = match list.as_slice() {
                [_] => target.read(16, 48),
                [_, _] => [target.read(8, 12), target.read(28, 36)].concat(),
                _ => target.all(),
            };
            assert!(outside.iter().all(|byte| *byte == 7), "nothing is written outside the receive");
        }
    })
}

fn misaligned(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "atomics",
        |has| has.atomics,
        |pair| {
            let qp = pair.connect();
            let far = pair.there.memory(64, Access::REMOTE_ALL);
            let near = pair.here.memory(8, Access::LOCAL);
            far.fill(7);
            let add = Operation::FetchAdd { remote: far.remote(4), add: 1 };
            pair.here.send(qp.here, 1, add, &[near.part(0, 8)]);
            pair.expect_here(1, WcStatus::RemoteInvalidRequest, "an atomic across two words");
            assert_eq!(far.all(), [7; 64]);
        },
    )
}

fn flush(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let memory = pair.here.memory(64, Access::LOCAL);
        for id in 0..4 {
            pair.here.receive(qp.here, id, &[memory.part(0, 8)]);
        }
        // No receive is posted there: these wait.
        for id in 10..14 {
            pair.here.post(qp.here, &SendRequest::new(id, Operation::Send, Payload::Inline(b"waits")));
        }
        break_down(&mut pair.here, qp.here).expect("any state leads to the error state");
        let done = pair.here(8);
        assert!(done.iter().all(|done| done.status == WcStatus::WorkRequestFlushed), "{done:?}");
        let of = |range: std::ops::Range<u64>| done.iter().map(|done| done.id).filter(move |id| range.contains(id));
        assert!(of(0..4).eq(0..4) && of(10..14).eq(10..14), "each queue in its order: {done:?}");
        pair.check_quiet();
    })
}

fn flush_later(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let memory = pair.here.memory(64, Access::LOCAL);
        break_down(&mut pair.here, qp.here).expect("any state leads to the error state");
        pair.here.receive(qp.here, 1, &[memory.part(0, 8)]);
        pair.expect_here(1, WcStatus::WorkRequestFlushed, "a receive");
        pair.here.send(qp.here, 2, Operation::Send, &[memory.part(0, 8)]);
        pair.expect_here(2, WcStatus::WorkRequestFlushed, "a send");
        let mut request = SendRequest::new(3, Operation::Send, Payload::Inline(b"x"));
        request.flags = fabric::SendFlags::default();
        pair.here.post(qp.here, &request);
        pair.expect_here(3, WcStatus::WorkRequestFlushed, "an unsignalled send");
        pair.check_quiet();
    })
}

fn independence(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let [good, bad] = [pair.connect(), pair.connect()];
        let far = pair.there.memory(16, Access::LOCAL);
        pair.here.post(bad.here, &SendRequest::new(1, Operation::RdmaWrite(far.remote(0)), Payload::Inline(b"x")));
        pair.expect_here(1, WcStatus::RemoteAccessError, "a write without rights");
        pair.check_alive(good);
        assert_eq!(pair.here.state(good.here), QueuePairState::ReadyToSend);
    })
}

fn receiver_not_ready(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        for count in [0, 1, 3] {
            let options = ConnectOptions {
                receiver_not_ready_retry: ReceiverNotReadyRetry::Count(count),
                receiver_not_ready_timer: Duration::from_micros(640),
                ..ConnectOptions::default()
            };
            let qp = pair.connect_with(&options, |_| {});
            pair.here.post(qp.here, &SendRequest::new(1, Operation::Send, Payload::Inline(b"nobody")));
            pair.here.post(qp.here, &SendRequest::new(2, Operation::Send, Payload::Inline(b"there")));
            pair.expect_here(1, WcStatus::ReceiverNotReadyRetryExceeded, "a send without a receive");
            pair.expect_here(2, WcStatus::WorkRequestFlushed, "the send behind it");
            assert_eq!(pair.here.state(qp.here), QueuePairState::Error, "after {count} retries");
        }
    })
}

fn waits_for_ever(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let (waiting, other) = (pair.connect(), pair.connect());
        let target = pair.there.memory(64, Access::REMOTE_WRITE);
        for (id, text) in [(1, b"first "), (2, b"second"), (3, b"third ")] {
            pair.here.post(waiting.here, &SendRequest::new(id, Operation::Send, Payload::Inline(text)));
        }
        // What comes behind a send that waits, waits too, whatever it is.
        let write = Operation::RdmaWrite(target.remote(32));
        pair.here.post(waiting.here, &SendRequest::new(4, write, Payload::Inline(b"write")));
        for _ in 0..20 {
            pair.check_alive(other);
        }
        assert_eq!(target.read(32, 5), [0; 5], "the write has not overtaken the sends");
        for id in 0..3 {
            pair.there.receive(waiting.there, 10 + id, &[target.part(8 * id, 8)]);
            pair.expect_here(id + 1, WcStatus::Success, "a send that waited");
            pair.expect_there(10 + id, WcStatus::Success, "its receive");
        }
        pair.expect_here(4, WcStatus::Success, "the write behind them");
        assert_eq!(target.read(0, 22), b"first \0\0second\0\0third ".to_vec());
        assert_eq!(target.read(32, 5), b"write");
    })
}

fn peer_gone(fixture: &mut dyn Fixture) -> Outcome {
    for kind in 0..7 {
        let Ok(mut pair) = Pair::open(fixture) else { return Outcome::Skipped("no device".into()) };
        let options = ConnectOptions { retry_count: 1, timeout: Duration::from_millis(4), ..ConnectOptions::default() };
        let qp = pair.connect_with(&options, |_| {});
        let near = pair.here.memory(64, Access::LOCAL);
        let far = pair.there.memory(64, Access::REMOTE_ALL);
        pair.check_alive(qp);
        let operation = operations_of_every_kind(far.remote(0))[kind];
        if kind >= 5 && !pair.here.context.capabilities().atomics {
            continue;
        }
        pair.here.receive(qp.here, 9, &[near.part(0, 8)]);
        let Pair { mut here, there, .. } = pair;
        drop(there);
        here.send(qp.here, 1, operation, &[near.part(8, 8)]);
        here.send(qp.here, 2, operation, &[near.part(8, 8)]);
        let start = std::time::Instant::now();
        while here.done.len() < 3 && start.elapsed() < Duration::from_secs(60) {
            here.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
        let mut done: Vec<_> = here.done.iter().map(|done| (done.id, done.status)).collect();
        done.sort_by_key(|(id, _)| *id);
        let gone = |status| matches!(status, WcStatus::TransportRetryExceeded | WcStatus::WorkRequestFlushed);
        assert!(done.len() == 3 && done.iter().all(|(_, status)| gone(*status)), "{operation:?}: {done:?}");
        assert_eq!(here.state(qp.here), QueuePairState::Error, "{operation:?}");
    }
    Outcome::Passed
}

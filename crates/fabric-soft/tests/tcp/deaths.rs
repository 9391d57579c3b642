//! A peer killed (SIGKILL) in the middle of every operation, as target and as initiator.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fabric::{Context, Operation, QueuePairState, RemoteMemory, WcStatus, WorkCompletion};
use fabric_conformance::operations_of_every_kind;

use crate::process::{Role, sleep_until_done, with_process};
use crate::side::{PATIENCE, Side};

const KINDS: usize = 7;
/// Of a long message: enough for three connections.
const LONG_BYTES: usize = 256 << 10;
/// Operations under way at once.
const WINDOW: u64 = 12;
const RECEIVES: u64 = 16;

/// Operation number `id` of a kind; short and long ones in turn.
fn operation(kind: usize, remote: RemoteMemory, id: u64) -> (Operation, usize) {
    let len = if id.is_multiple_of(2) { LONG_BYTES } else { 8 };
    let operation = operations_of_every_kind(remote)[kind];
    (operation, if kind >= 5 { 8 } else { len })
}

/// Takes what comes, in another process.
pub fn take_all(side: &mut Side) {
    (0..RECEIVES).for_each(|id| side.receive(id, 0, LONG_BYTES));
    loop {
        sleep_until_done(side);
        for done in std::mem::take(&mut side.done) {
            side.receive(done.id, 0, LONG_BYTES);
        }
    }
}

/// Does one kind of operation again and again, in another process.
pub fn do_all(side: &mut Side, far: RemoteMemory, kind: usize) {
    let (mut posted, mut ended) = (0, 0);
    loop {
        while posted < ended + WINDOW {
            let (operation, len) = operation(kind, far, posted);
            side.post(posted, operation, 0, len);
            posted += 1;
        }
        sleep_until_done(side);
        ended += side.done.drain(..).count() as u64;
    }
}

/// Each of them waits for its peer's loss most of the time: all kinds at once, over one connection and over three.
fn of_every_kind(check: impl Fn(usize, usize) + Sync) {
    std::thread::scope(|scope| {
        let check = &check;
        for kind in 0..KINDS {
            for connections in [1, 3] {
                scope.spawn(move || check(kind, connections));
            }
        }
    });
}

/// Nothing holds the memory any more.
fn check_over(side: &mut Side, what: &str) {
    assert_eq!(side.adapter.queue_pair_state(side.qp), Ok(QueuePairState::Error), "{what}");
    assert_eq!(side.adapter.deregister(side.region), Ok(()), "{what}");
}

#[test]
fn a_target_killed_in_the_middle_of_every_operation_ends_them_in_order() {
    of_every_kind(|kind, connections| {
        for after in [0, 1, 30] {
            let what = format!("kind {kind} over {connections}, killed after {after}");
            let (mut side, process, far) = with_process(Role::Takes, |options| options.connections = connections);
            let mut process = Some(process);
            side.receive(900, LONG_BYTES, 8);
            let (mut posted, mut done) = (0, Vec::<WorkCompletion>::new());
            let mut post = |side: &mut Side| {
                let (operation, len) = operation(kind, far, posted);
                side.post(posted, operation, 0, len);
                posted += 1;
                posted
            };
            let mut count = 0;
            while process.is_some() || done.len() as u64 <= count {
                while process.is_some() && count < done.len() as u64 + WINDOW {
                    count = post(&mut side);
                }
                if done.len() >= after && process.take().is_some() {
                    // What follows meets a peer that is no more.
                    count = post(&mut side);
                }
                sleep_until_done(&mut side);
                done.append(&mut side.done);
            }
            let (received, sent): (Vec<WorkCompletion>, Vec<WorkCompletion>) =
                done.into_iter().partition(|done| done.id == 900);
            assert_eq!(received[0].status, WcStatus::WorkRequestFlushed, "{what}: the receive");
            assert!(sent.iter().map(|done| done.id).eq(0..count), "{what}: in order {sent:?}");
            let first_bad = sent.iter().position(|done| done.status != WcStatus::Success);
            let (first, rest) = sent[first_bad.expect("the last cannot have been done")..].split_first().expect("one");
            assert_eq!(first.status, WcStatus::TransportRetryExceeded, "{what}: {sent:?}");
            let is_flushed = |done: &WorkCompletion| done.status == WcStatus::WorkRequestFlushed;
            assert!(rest.iter().all(is_flushed), "{what}: {sent:?}");
            check_over(&mut side, &what);
        }
    });
}

#[test]
fn an_initiator_killed_in_the_middle_of_every_operation_leaves_its_target_whole() {
    of_every_kind(|kind, connections| {
        let what = format!("kind {kind} over {connections}");
        let (mut side, process, _) = with_process(Role::Does(kind), |options| options.connections = connections);
        let mut process = Some(process);
        let mut posted: VecDeque<u64> = (0..RECEIVES).collect();
        (0..RECEIVES).for_each(|id| side.receive(id, 0, LONG_BYTES));
        let start = Instant::now();
        while !posted.is_empty() {
            // It has been answered for a while.
            if side.adapter.link().writes() >= 30 {
                drop(process.take());
            }
            side.poll();
            if side.done.is_empty() {
                std::thread::sleep(Duration::from_micros(500));
            }
            for done in std::mem::take(&mut side.done) {
                assert_eq!(posted.pop_front(), Some(done.id), "{what}: in order");
                if done.status == WcStatus::Success {
                    side.receive(done.id, 0, LONG_BYTES);
                    posted.push_back(done.id);
                } else {
                    assert_eq!((done.status, process.is_none()), (WcStatus::WorkRequestFlushed, true), "{what}");
                }
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {posted:?} are not flushed");
        }
        check_over(&mut side, &what);
    });
}

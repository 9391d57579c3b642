//! Several threads of each rank at once, every call inside the gate as a face makes it.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use datatype::{Op, PredefinedOp};
use mpi_core::collective::{Arguments, Reduction};
use mpi_core::constants::ANY_SOURCE;
use mpi_core::{Comm, Request, ThreadLevel, World};

const THREADS: i32 = 4;

/// A world used by several threads.
struct Shared<'a>(&'a World);

// SAFETY: every use below happens inside the gate, which is a lock at this thread level.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    /// One call of the library.
    fn call<T>(&self, body: impl FnOnce(&World) -> T) -> T {
        let _gate = self.0.enter();
        body(self.0)
    }
}

/// Runs `body` on every thread of every rank.
fn on_threads(ranks: u32, body: impl Fn(&Shared<'_>, i32) + Sync) {
    run_at(ranks, ThreadLevel::Multiple, |world| {
        let shared = Shared(world);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shared, body) = (&shared, &body);
                scope.spawn(move || guarded(shared, || body(shared, thread)));
            }
        });
    });
}

/// A panic of one thread would leave the others waiting.
fn guarded(shared: &Shared<'_>, body: impl FnOnce()) {
    if let Err(why) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        die(shared.call(World::peer), &*why);
    }
}

#[test]
fn threads_receive_what_other_threads_poll() {
    on_threads(2, |shared, thread| {
        let comm = shared.call(|world| Arc::clone(world.comm_world()));
        let (me, other) = (comm.rank() as i32, 1 - comm.rank() as i32);
        for round in 0..100 {
            let mut got = [0];
            let mut sent = [me * 1000 + round];
            if me == 0 {
                shared.call(|world| world.send(&comm, other, thread, to_send(&mut sent))).unwrap();
            }
            let status = shared.call(|world| world.recv(&comm, ANY_SOURCE, thread, to_fill(&mut got))).unwrap();
            assert_eq!((status.source(), got[0]), (other, other * 1000 + round));
            if me == 1 {
                shared.call(|world| world.send(&comm, other, thread, to_send(&mut sent))).unwrap();
            }
        }
    });
}

fn sum(world: &World, comm: &Comm, value: i32) -> i32 {
    let (mut input, mut result) = ([value], [0]);
    let data = Reduction {
        input: Some(memory(&mut input)),
        result: Some(room(&mut result)),
        count: 1,
        datatype: int(),
        op: Op::predefined(PredefinedOp::Sum),
    };
    world.collective(comm, &Arguments::Allreduce { data }).unwrap();
    result[0]
}

#[test]
fn threads_wait_for_what_stands_behind_what_others_wait_for() {
    const COUNT: i32 = 3 * THREADS;
    run_with_boards(2, ThreadLevel::Multiple, |world| {
        let shared = Shared(world);
        let comm = shared.call(|world| Arc::clone(world.comm_world()));
        let me = comm.rank() as i32;
        for round in 0..60 {
            let mut operands: Vec<[i32; 1]> = (0..COUNT).map(|at| [me + at + round]).collect();
            let mut sums = vec![[0; 1]; COUNT as usize];
            let start = |(operand, sum): (&mut [i32; 1], &mut [i32; 1])| {
                let (input, result) = (Some(memory(operand)), Some(room(sum)));
                let data =
                    Reduction { input, result, count: 1, datatype: int(), op: Op::predefined(PredefinedOp::Sum) };
                let started = shared.call(|world| world.start_collective(&comm, Arguments::Allreduce { data }));
                Mutex::new(Some(started.unwrap()))
            };
            let requests: Vec<Mutex<Option<Request>>> = operands.iter_mut().zip(&mut sums).map(start).collect();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (shared, requests) = (&shared, &requests);
                    scope.spawn(move || {
                        guarded(shared, || {
                            for at in (0..COUNT).rev().filter(|at| at % THREADS == thread) {
                                let request = requests[at as usize].lock().unwrap().take().unwrap();
                                shared.call(|world| wait(world, request)).unwrap();
                            }
                        });
                    });
                }
            });
            assert!(sums.iter().zip(0..).all(|(sum, at)| sum[0] == 1 + 2 * (at + round)), "{sums:?}");
        }
    });
}

#[test]
fn threads_create_communicators_of_overlapping_groups_at_once() {
    on_threads(3, |shared, thread| {
        let comm = shared.call(|world| Arc::clone(world.comm_world()));
        let me = comm.rank() as i32;
        // Each thread leaves another rank out, or nobody; the tag tells the threads apart.
        let members: Vec<i32> = (0..3).filter(|rank| *rank != thread).collect();
        if !members.contains(&me) {
            return;
        }
        let group = Arc::new(comm.group().incl(&members).unwrap());
        let expected: i32 = members.iter().sum();
        let mut live = Vec::new();
        for _ in 0..20 {
            let new = shared.call(|world| world.comm_create_group(&comm, &group, thread)).unwrap().unwrap();
            assert_eq!(shared.call(|world| sum(world, &new, me)), expected);
            let copy = shared.call(|world| world.comm_dup(&new)).unwrap();
            assert_eq!(shared.call(|world| sum(world, &copy, me)), expected);
            live.push((new, copy));
        }
    });
}

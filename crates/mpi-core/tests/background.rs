//! What collectives in the background owe each other: turns, and progress of those that are behind one another.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::*;
use datatype::{Op, PredefinedOp};
use mpi_core::ThreadLevel::Single;
use mpi_core::collective::{Arguments, Reduction};
use mpi_core::{Comm, ErrorClass, Request, World};

/// Calls after which a communicator has boards.
const WARM_UP: usize = 16;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sum over all ranks of `comm`.
fn start_sum(world: &World, comm: &Arc<Comm>, operands: &mut [i32], sums: &mut [i32]) -> Request {
    let count = operands.len() as u64;
    let (input, result) = (Some(memory(operands)), Some(room(sums)));
    let data = Reduction { input, result, count, datatype: int(), op: Op::predefined(PredefinedOp::Sum) };
    world.start_collective(comm, Arguments::Allreduce { data }).unwrap()
}

/// A sum for the root.
fn start_reduction(world: &World, comm: &Arc<Comm>, root: i32, operands: &mut [i32], sums: &mut [i32]) -> Request {
    let count = operands.len() as u64;
    let result = (world.peer() as i32 == root).then(|| room(sums));
    let input = Some(memory(operands));
    let data = Reduction { input, result, count, datatype: int(), op: Op::predefined(PredefinedOp::Sum) };
    world.start_collective(comm, Arguments::Reduce { root, data }).unwrap()
}

fn start_broadcast(world: &World, comm: &Arc<Comm>, root: i32, number: &mut [i32]) -> Request {
    let count = number.len();
    world.start_collective(comm, Arguments::Bcast { root, buffer: blocks_of(room(number), count) }).unwrap()
}

fn warm_up(world: &World, comm: &Arc<Comm>) {
    for _ in 0..WARM_UP {
        let request = world.start_collective(comm, Arguments::Barrier).unwrap();
        wait(world, request).unwrap();
    }
}

/// Waits for another rank without a call of the library.
fn stand_by(stage: &AtomicU32, needed: u32, what: &str) {
    let since = Instant::now();
    while stage.load(Ordering::Acquire) < needed {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn what_stands_behind_another_is_shown_when_that_one_has_been_waited_for() {
    // Rank 1 has shown its operand of the first before rank 0 waits for it, or shows it meanwhile.
    for is_shown_before in [true, false] {
        let stage = AtomicU32::new(0);
        run_with_boards(2, Single, |world| {
            let comm = world.comm_world();
            warm_up(world, comm);
            let me = world.peer() as i32;
            let (mut one, mut two) = ([me + 1], [me + 10]);
            let (mut first_sum, mut second_sum) = ([0], [0]);
            if me == 0 {
                // The second has no turn yet: the first waits for rank 1.
                let first = start_sum(world, comm, &mut one, &mut first_sum);
                let second = start_sum(world, comm, &mut two, &mut second_sum);
                stage.store(1, Ordering::Release);
                if is_shown_before {
                    stand_by(&stage, 2, "rank 1 has started the first");
                }
                wait(world, first).unwrap();
                stand_by(&stage, 3, "rank 1 waits for what only rank 0 can show, which is in no call");
                wait(world, second).unwrap();
            } else {
                stand_by(&stage, 1, "rank 0 has started both");
                let first = start_sum(world, comm, &mut one, &mut first_sum);
                stage.store(2, Ordering::Release);
                let second = start_sum(world, comm, &mut two, &mut second_sum);
                wait(world, second).unwrap();
                stage.store(3, Ordering::Release);
                wait(world, first).unwrap();
            }
            assert_eq!((first_sum, second_sum), ([3], [21]));
        });
    }
}

#[test]
fn one_that_need_not_wait_has_come_to_its_end_when_it_is_started() {
    let stage = AtomicU32::new(0);
    run_with_boards(2, Single, |world| {
        let comm = world.comm_world();
        warm_up(world, comm);
        let me = world.peer();
        let mut number = [if me == 0 { 7 } else { 0 }];
        if me == 1 {
            stand_by(&stage, 1, "rank 0 shows its number");
        }
        let request = start_broadcast(world, comm, 0, &mut number);
        // On the root before anybody has read it, elsewhere because it stands there.
        assert_eq!(number, [7]);
        if me == 0 {
            stage.store(1, Ordering::Release);
            stand_by(&stage, 2, "rank 1 needs nothing more from rank 0");
        } else {
            stage.store(2, Ordering::Release);
        }
        wait(world, request).unwrap();
    });
}

#[test]
fn a_root_runs_ahead_without_waiting_and_overwrites_nothing() {
    for (len, times) in [(1, 300), (20, 300), (3000, 100)] {
        let stage = AtomicU32::new(0);
        run_with_boards(3, Single, |world| {
            let comm = world.comm_world();
            warm_up(world, comm);
            let is_root = world.peer() == 1;
            let mut numbers: Vec<Vec<i32>> = (0..times).map(|at| vec![if is_root { at } else { -1 }; len]).collect();
            if !is_root {
                stand_by(&stage, 1, "the root has started all, though nobody reads");
            }
            let requests: Vec<_> = numbers.iter_mut().map(|number| start_broadcast(world, comm, 1, number)).collect();
            if is_root {
                stage.store(1, Ordering::Release);
            }
            for request in requests.into_iter().rev() {
                wait(world, request).unwrap();
            }
            assert!(numbers.iter().zip(0..).all(|(number, at)| number.iter().all(|value| *value == at)), "{len}");
        });
    }
}

/// Collectives of which rank 0, the root, means another length than all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Sum,
    Broadcast,
    /// In many steps, where the others expect one.
    LongBroadcast,
    Reduction,
}

#[test]
fn a_mistake_is_told_at_the_end_and_gives_its_turn_up() {
    for (ranks, late) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
        for kind in [Wrong::Sum, Wrong::Broadcast, Wrong::LongBroadcast, Wrong::Reduction] {
            let stage = AtomicU32::new(0);
            run_with_boards(ranks, Single, |world| {
                let comm = world.comm_world();
                warm_up(world, comm);
                let is_root = world.peer() == 0;
                let len = match (is_root, kind) {
                    (false, _) => 3,
                    (true, Wrong::LongBroadcast) => 1 << 20,
                    (true, _) => 5,
                };
                let (mut operands, mut results) = (vec![1; len], vec![0; len]);
                // None of the starts waits for a rank that is in no call.
                if is_root == (late == 0) {
                    stand_by(&stage, if late == 0 { ranks - 1 } else { 1 }, "the others have started it");
                }
                let wrong = match kind {
                    Wrong::Sum => start_sum(world, comm, &mut operands, &mut results),
                    Wrong::Broadcast | Wrong::LongBroadcast => start_broadcast(world, comm, 0, &mut operands),
                    Wrong::Reduction => start_reduction(world, comm, 0, &mut operands, &mut results),
                };
                stage.fetch_add(1, Ordering::Release);
                let (mut number, mut sum) = ([world.peer() as i32], [0]);
                let right = start_sum(world, comm, &mut number, &mut sum);
                wait(world, right).unwrap();
                assert_eq!(sum[0] as u32, ranks * (ranks - 1) / 2);
                match wait(world, wrong) {
                    Err(failure) => {
                        assert_eq!(failure.error.class, ErrorClass::Truncate);
                        assert!(failure.error.to_string().contains("MPI_I"), "the call as it was made: {failure:?}");
                        assert!(failure.comm.is_some(), "whose error handler is asked");
                    }
                    // Who only shows need not learn it.
                    Ok(_) => assert!(if is_root { kind != Wrong::Sum } else { kind == Wrong::Reduction }, "{kind:?}"),
                }
            });
        }
    }
}

#[test]
fn a_request_holds_its_communicator_until_it_is_waited_for() {
    run_with_boards(2, Single, |world| {
        let comm = world.comm_world();
        warm_up(world, comm);
        let mut number = [world.peer() as i32];
        let request = start_broadcast(world, comm, 0, &mut number);
        assert!(request.comm().is_some_and(|held| Arc::ptr_eq(held, comm)));
        assert!(request.check_may_be_freed().is_err());
        wait(world, request).unwrap();
        assert_eq!(number, [0]);
    });
}

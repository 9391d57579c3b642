//! Making, comparing and freeing communicators.

mod common;

use std::sync::Arc;

use common::*;
use datatype::{Op, PredefinedOp};
use mpi_core::collective::{Arguments, Reduction};
use mpi_core::communicator::{Comparison, SplitType};
use mpi_core::constants::{ANY_SOURCE, UNDEFINED};
use mpi_core::{Comm, ErrorClass, World};

/// The sum over a communicator, as a proof that its collectives work.
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
fn a_duplicate_has_messages_of_its_own() {
    run(3, |world| {
        let comm = world.comm_world();
        let copy = world.comm_dup(comm).unwrap();
        assert_eq!(comm.compare(&copy), Comparison::Congruent);
        assert_eq!(comm.compare(comm), Comparison::Identical);
        assert_ne!(comm.id(), copy.id());
        assert_eq!((copy.rank(), copy.size()), (comm.rank(), 3));
        if comm.rank() == 0 {
            world.send(comm, 1, 0, to_send(&mut [1])).unwrap();
            world.send(&copy, 1, 0, to_send(&mut [2])).unwrap();
        } else if comm.rank() == 1 {
            let mut got = [0];
            world.recv(&copy, ANY_SOURCE, 0, to_fill(&mut got)).unwrap();
            assert_eq!(got, [2]);
            world.recv(comm, ANY_SOURCE, 0, to_fill(&mut got)).unwrap();
            assert_eq!(got, [1]);
        }
        assert_eq!(sum(world, &copy, 1), 3);
        world.comm_free(&copy).unwrap();
        assert_eq!(world.comm_free(comm).unwrap_err().class, ErrorClass::Comm);
    });
}

#[test]
fn splits_order_ranks_by_key() {
    run(5, |world| {
        let comm = world.comm_world();
        let me = comm.rank() as i32;
        // Evens in descending order, odds all with the same key, rank 4 stays out.
        let colour = if me == 4 { UNDEFINED } else { me % 2 };
        let key = if me % 2 == 0 { -me } else { 0 };
        let new = world.comm_split(comm, colour, key).unwrap();
        assert_eq!(new.is_none(), me == 4);
        if let Some(new) = new {
            let expected = [1, 0, 0, 1][me as usize];
            assert_eq!((new.rank(), new.size()), (expected, 2));
            assert_eq!(sum(world, &new, me), if me % 2 == 0 { 2 } else { 4 });
        }
        assert_eq!(world.comm_split(comm, -5, 0).unwrap_err().class, ErrorClass::Arg);
        let alone = world.comm_split(comm, me, 0).unwrap().unwrap();
        assert_eq!(alone.size(), 1);
        assert_eq!(sum(world, &alone, me), me);
        let node = world.comm_split_type(comm, SplitType::Shared, -me, None).unwrap().unwrap();
        assert_eq!((node.size(), node.rank() as i32), (5, 4 - me));
        assert_eq!(comm.compare(&node), Comparison::Similar);
        assert_eq!(comm.compare(&alone), Comparison::Unequal);
        assert!(world.comm_split_type(comm, SplitType::HardwareUnguided, 0, None).unwrap().is_none());
        assert!(world.comm_split_type(comm, SplitType::Undefined, 0, None).unwrap().is_none());
    });
}

#[test]
fn groups_make_communicators_together_or_alone() {
    run(4, |world| {
        let comm = world.comm_world();
        let me = comm.rank();
        let halves = [[3, 1], [0, 2]].map(|ranks| Arc::new(comm.group().incl(&ranks).unwrap()));
        let mine = &halves[if me % 2 == 1 { 0 } else { 1 }];
        let new = world.comm_create(comm, mine).unwrap().unwrap();
        assert_eq!(sum(world, &new, me as i32), if me % 2 == 1 { 4 } else { 2 });

        let new = world.comm_create(comm, &halves[0]).unwrap();
        assert_eq!(new.is_some(), me % 2 == 1);

        // Overlapping groups in a chain, without anybody else taking part.
        for first in 0..3 {
            if me == first || me == first + 1 {
                let pair = Arc::new(comm.group().incl(&[first as i32 + 1, first as i32]).unwrap());
                let new = world.comm_create_group(comm, &pair, 5).unwrap().unwrap();
                assert_eq!(sum(world, &new, me as i32), 2 * first as i32 + 1);
                let new = world
                    .comm_create_from_group(&pair, "org.example.pairs", None, comm.error_handler())
                    .unwrap()
                    .unwrap();
                assert_eq!((new.size(), new.rank()), (2, u32::from(me == first)));
            }
        }
        let error = world.comm_create_group(world.comm_self(), mine, 0).unwrap_err();
        assert_eq!(error.class, ErrorClass::Group);
    });
}

#[test]
fn duplications_in_the_background_complete_in_any_order_of_waiting() {
    run(3, |world| {
        let comm = world.comm_world();
        let mut started: Vec<_> = (0..10).map(|_| world.comm_idup(comm).unwrap()).collect();
        let mut copies = Vec::new();
        while let Some((copy, request)) = started.pop() {
            wait(world, request).unwrap();
            copies.push(copy);
        }
        for (number, copy) in copies.iter().enumerate() {
            assert_eq!(sum(world, copy, number as i32), 3 * number as i32);
        }
    });
}

#[test]
fn thousands_live_at_once_and_ids_come_back() {
    run(2, |world| {
        let comm = world.comm_world();
        let live: Vec<_> = (0..3000).map(|_| world.comm_dup(comm).unwrap()).collect();
        assert_eq!(world.live_communicators(), 3002);
        assert_eq!(sum(world, &live[2999], 1), 2);
        drop(live);
        assert_eq!(world.live_communicators(), 2);
        for _ in 0..3000 {
            world.comm_dup(comm).unwrap();
        }
        assert_eq!(world.live_communicators(), 2);
    });
}

#[test]
fn a_freed_communicator_lives_until_its_receive_has_completed() {
    run(2, |world| {
        let comm = world.comm_world();
        let copy = world.comm_dup(comm).unwrap();
        let mut got = [0];
        let request = (comm.rank() == 1).then(|| world.irecv(&copy, 0, 0, to_fill(&mut got)).unwrap());
        if comm.rank() == 0 {
            world.recv(comm, 1, 0, to_fill(&mut [])).unwrap();
            world.send(&copy, 1, 0, to_send(&mut [8])).unwrap();
        }
        world.comm_free(&copy).unwrap();
        drop(copy);
        if let Some(request) = request {
            assert_eq!(world.live_communicators(), 3);
            world.send(comm, 0, 0, to_send(&mut [])).unwrap();
            wait(world, request).unwrap();
            assert_eq!(got, [8]);
        }
        assert_eq!(world.live_communicators(), 2);
    });
}

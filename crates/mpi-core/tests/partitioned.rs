//! Partitioned communication on worlds of a few ranks, against what the bytes must be.

mod common;

use std::cell::RefCell;
use std::sync::Arc;

use common::{memory, one, room, run};
use datatype::{Basic, Datatype};
use mpi_core::constants::{ANY_SOURCE, PROC_NULL};
use mpi_core::{ErrorClass, Request, World};

type Held = RefCell<Vec<Option<Request>>>;

fn bytes() -> Arc<Datatype> {
    Datatype::predefined(Basic::Byte)
}

fn free(world: &World, held: &Held) {
    let request = held.borrow_mut()[0].take().expect("persistent requests stay");
    world.free_request(request).expect("a request can be freed");
}

/// Byte `index` of start `start`.
fn pattern(start: usize, index: usize) -> u8 {
    (index * 31 + start * 7 + 1) as u8
}

/// Every number of partitions on either side, every order of a few, several starts.
#[test]
fn any_partitions_on_either_side_give_the_same_bytes() {
    run(2, |world| {
        let comm = world.comm_world();
        for (sent, received) in [(1, 1), (1, 6), (6, 1), (2, 3), (3, 2), (12, 4), (0, 0), (0, 3)] {
            let total = if sent == 0 { 0 } else { 12 * 5 };
            let mut data = vec![0xee_u8; 60];
            let request = if comm.rank() == 0 {
                let count = total / u64::max(sent, 1);
                world.psend_init(comm, 1, 3, memory(&mut data), sent as i32, count, &bytes()).unwrap()
            } else {
                let count = total / u64::max(received, 1);
                world.precv_init(comm, 0, 3, room(&mut data), received as i32, count, &bytes()).unwrap()
            };
            let request = one(request);
            for start in 0..3 {
                if comm.rank() == 0 {
                    data.iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(start, index));
                }
                world.start_all(&request).unwrap();
                if comm.rank() == 0 {
                    let order = (0..sent as i32).map(|n| (n * 5 + start as i32) % (sent as i32));
                    let order: Vec<i32> = if sent % 5 == 0 { (0..sent as i32).collect() } else { order.collect() };
                    world.pready(&request, order).unwrap();
                }
                let status = world.wait(&request).unwrap();
                if comm.rank() == 1 {
                    assert_eq!(
                        (status.source(), status.tag(), status.len_bytes),
                        (0, 3, total),
                        "{sent} to {received}"
                    );
                    let right = (0..total as usize).all(|index| data[index] == pattern(start, index));
                    assert!(right, "{sent} partitions to {received}, start {start}: {data:?}");
                    assert!(data[total as usize..].iter().all(|byte| *byte == 0xee));
                    if received > 0 {
                        assert!(world.parrived(&request, 0).unwrap(), "an inactive request counts as arrived");
                    }
                }
            }
            free(world, &request);
        }
    });
}

#[test]
fn requests_freed_without_their_other_half_do_not_keep_the_world() {
    run(2, |world| {
        let comm = world.comm_world();
        let mut data = [0_u8; 4];
        let peer = 1 - comm.rank() as i32;
        let send = world.psend_init(comm, peer, 1, memory(&mut data), 2, 2, &bytes()).unwrap();
        let receive = world.precv_init(comm, peer, 2, room(&mut data), 2, 2, &bytes()).unwrap();
        world.free_request(send).unwrap();
        if comm.rank() == 0 {
            world.free_request(receive).unwrap();
        } else {
            // Not even freed: the end does not wait for what was never started.
            std::mem::forget(receive);
        }
    });
}

#[test]
fn wrong_uses_have_their_classes() {
    run(1, |world| {
        let comm = world.comm_world();
        let mut data = [0_u8; 4];
        let mut receive =
            |source, partitions| world.precv_init(comm, source, 1, room(&mut data), partitions, 1, &bytes()).map(one);
        let class = |result: Result<Held, mpi_core::Error>| result.err().map(|error| error.class);
        assert_eq!(class(receive(ANY_SOURCE, 1)), Some(ErrorClass::Rank));
        assert_eq!(class(receive(0, -1)), Some(ErrorClass::Arg));
        assert_eq!(class(receive(0, i32::MAX)), Some(ErrorClass::NoMem));
        let request = receive(PROC_NULL, 2).unwrap();
        world.start_all(&request).unwrap();
        assert!(world.parrived(&request, 1).unwrap());
        assert_eq!(world.parrived(&request, 2).unwrap_err().class, ErrorClass::Arg);
        assert_eq!(world.pready(&request, [0]).unwrap_err().class, ErrorClass::Request);
        assert_eq!(world.wait(&request).unwrap().source(), PROC_NULL);
        free(world, &request);
    });
}

//! Choosing algorithms, wrong parameters, and proof that the simulated world can fail.

use std::collections::BTreeSet;

use collectives::{
    Allgather, Allreduce, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast, BuildError, Call, Collective, Data, Gather,
    NeighborAlltoall, Neighbours, Part, Place, ReduceScatter, Selection, SelectionError, TypeShape, Vector, build,
};

use crate::memory::SimType;
use crate::world::{Member, Sends, run};

fn bytes(count: u64) -> Data {
    Data::new(count, TypeShape::basic(1))
}

fn bcast(root: u32, count: u64) -> Call {
    Call::Bcast(Bcast { root, data: bytes(count) })
}

#[test]
fn every_collective_lists_its_algorithms_once() {
    let mut seen = BTreeSet::new();
    for info in collectives::algorithms() {
        assert!(seen.insert((info.collective, info.name)), "{} {} twice", info.collective, info.name);
        assert!(!info.summary.is_empty() && !info.cost.is_empty());
    }
    for collective in Collective::ALL {
        assert!(seen.iter().any(|(listed, _)| *listed == collective), "{collective} has no algorithm");
    }
    for collective in Collective::ALL {
        let rows: Vec<_> = collectives::choices().filter(|row| row.collective == collective).collect();
        assert!(rows.iter().all(|row| seen.contains(&(collective, row.algorithm))), "{collective}");
        let last = rows.last().expect("a table has rows");
        assert_eq!((last.ranks_max, last.bytes_max, last.oversubscribed), (None, None, None), "{collective}");
    }
    assert!(seen.len() > 45, "{} algorithms", seen.len());
}

#[test]
fn a_name_overrides_the_table_where_it_fits() {
    let place = Place { rank: 0, size: 6 };
    let selection: Selection = " bcast = chain, allgather=recursive_doubling ".parse().unwrap();
    assert_eq!(build(place, &bcast(0, 8), &selection).unwrap().algorithm(), "chain");
    let call = Call::Allgather(collectives::Allgather { in_place: false, send: bytes(8), recv: bytes(8) });
    assert_eq!(build(place, &call, &selection).unwrap().algorithm(), "direct", "6 is no power of two");
    let place = Place { rank: 0, size: 8 };
    assert_eq!(build(place, &call, &selection).unwrap().algorithm(), "recursive_doubling");
}

#[test]
fn tables_go_by_size_and_by_cores() {
    let place = Place { rank: 0, size: 64 };
    let mut selection = Selection::default();
    assert_eq!(build(place, &Call::Barrier(Barrier), &selection).unwrap().algorithm(), "dissemination");
    assert_eq!(build(place, &bcast(0, 8), &selection).unwrap().algorithm(), "binomial");
    assert_eq!(build(place, &bcast(0, 8 << 20), &selection).unwrap().algorithm(), "scatter_allgather");
    selection.oversubscribed = true;
    assert_eq!(build(place, &Call::Barrier(Barrier), &selection).unwrap().algorithm(), "linear");
}

#[test]
fn tables_have_an_answer_to_every_call() {
    let block = bytes(3);
    for size in [1, 2, 5, 16, 100] {
        let vector = || Vector::new(vec![3; size], (0..size as i64).collect(), TypeShape::basic(1));
        let parts = || vec![Part::new(3, 0, 1); size];
        for oversubscribed in [false, true] {
            let mut selection = Selection::default();
            selection.oversubscribed = oversubscribed;
            for yes in [false, true] {
                let (in_place, commutative, shape) = (yes, yes, TypeShape::basic(1));
                let calls = [
                    Call::Alltoall(Alltoall { in_place, send: block, recv: block }),
                    Call::Alltoallv(Alltoallv { in_place, send: vector(), recv: vector() }),
                    Call::Alltoallw(Alltoallw { in_place, send: parts(), recv: parts() }),
                    Call::Allgather(Allgather { in_place, send: block, recv: block }),
                    Call::Allreduce(Allreduce { in_place, commutative, data: bytes(8 << 20) }),
                    Call::ReduceScatter(ReduceScatter { in_place, commutative, counts: vec![1; size], shape }),
                ];
                for call in calls {
                    let place = Place { rank: size as u32 - 1, size: size as u32 };
                    let schedule = build(place, &call, &selection).unwrap();
                    assert_eq!(schedule.is_empty(), size == 1 && in_place, "{schedule}");
                }
            }
        }
    }
}

#[test]
fn unknown_names_are_answered_with_the_known() {
    let error = "allreduce=rnig".parse::<Selection>().unwrap_err();
    assert!(matches!(error, SelectionError::Algorithm { collective: Collective::Allreduce, .. }));
    assert_eq!(
        error.to_string(),
        "allreduce has no algorithm 'rnig'; \
         it has: recursive_doubling, rabenseifner, ring, reduce_bcast, direct, linear"
    );
    let error = "allreduces=ring".parse::<Selection>().unwrap_err();
    assert!(error.to_string().contains("reduce_scatter_block"), "{error}");
    assert!(matches!("ring".parse::<Selection>(), Err(SelectionError::Form { .. })));
    assert_eq!("".parse::<Selection>().unwrap(), Selection::default());
}

fn check_refused(place: Place, call: &Call, expected: &str) {
    let error = build(place, call, &Selection::default()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn wrong_parameters_are_refused() {
    let place = Place { rank: 0, size: 2 };
    check_refused(Place { rank: 2, size: 2 }, &Call::Barrier(Barrier), "rank 2 is not in a communicator of 2");
    check_refused(place, &bcast(2, 1), "bcast: root 2 is not in a communicator of 2 ranks");
    check_refused(place, &bcast(0, u64::MAX), "bcast: the buffer reaches beyond what 63-bit byte offsets can address");
    let send = Vector::new(vec![1, 1], vec![0, 1], TypeShape::basic(1));
    let recv = Vector::new(vec![1], vec![0, 1], TypeShape::basic(1));
    let call = Call::Alltoallv(Alltoallv { in_place: false, send, recv });
    check_refused(place, &call, "alltoallv: receive counts has 1 entries where 2 are needed");
    let neighbours = Neighbours::graph(&[5], &[]);
    let call = Call::NeighborAlltoall(NeighborAlltoall { neighbours, send: bytes(1), recv: bytes(1) });
    assert!(matches!(build(place, &call, &Selection::default()), Err(BuildError::Neighbour { rank: 5, .. })));
}

#[test]
fn elements_without_data_move_nothing() {
    let empty = TypeShape { size_bytes: 0, extent_bytes: 1 << 40, contiguous: false };
    let data = Data::new(u64::MAX, empty);
    let call = Call::Gather(Gather { root: 1, in_place: false, send: data, recv: data });
    for rank in 0..3 {
        assert!(build(Place { rank, size: 3 }, &call, &Selection::default()).unwrap().is_empty());
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn ranks_that_disagree_about_the_root_deadlock() {
    let members = (0..2).map(|rank| disagreeing(1 - rank, 4)).collect();
    run(members, &Selection::default(), Sends::Buffered, 1);
}

#[test]
#[should_panic(expected = "leaked messages")]
fn ranks_that_all_send_leak_messages() {
    let members = (0..2).map(|rank| disagreeing(rank, 4)).collect();
    run(members, &Selection::default(), Sends::Buffered, 1);
}

#[test]
#[should_panic(expected = "of another size")]
fn ranks_that_disagree_about_the_size_are_found_out() {
    let members = (0..2).map(|rank| disagreeing(0, 4 + rank)).collect();
    run(members, &Selection::default(), Sends::Synchronous, 1);
}

fn disagreeing(root: u32, count: u32) -> Member {
    let mut member = Member::new(bcast(root, u64::from(count)));
    member.recv_type = SimType::contiguous(1);
    member
}

//! Every collective against a plain loop, in its three ways.

mod common;

use std::cell::RefCell;

use common::*;
use datatype::{Op, PredefinedOp, UserMemory, UserMemoryMut};
use mpi_core::collective::{Arguments, Blocks, Parts, Reduction};
use mpi_core::{Comm, ErrorClass, World};

const RANKS: [u32; 5] = [1, 2, 3, 4, 7];
const LENGTHS: [usize; 4] = [0, 1, 9, 3000];

/// Element `index` of the data of `rank`.
fn value(rank: u32, index: usize) -> i32 {
    (rank as i32 + 1) * 1000 + (index % 97) as i32
}

fn data_of(rank: u32, len: usize) -> Vec<i32> {
    (0..len).map(|index| value(rank, index)).collect()
}

/// Runs `arguments` blocking, in the background, and twice as a persistent operation; `check` is
/// called after each.
fn in_three_ways(
    world: &World,
    comm: &std::sync::Arc<Comm>,
    arguments: impl Fn() -> Arguments,
    mut check: impl FnMut(),
) {
    world.collective(comm, &arguments()).unwrap();
    check();
    let request = world.start_collective(comm, arguments()).unwrap();
    wait(world, request).unwrap();
    check();
    let set = one(world.collective_init(comm, arguments()).unwrap());
    for _ in 0..2 {
        world.start_all(&set).unwrap();
        world.wait(&set).unwrap();
        check();
    }
}

/// Runs `body` for all numbers of ranks and all lengths.
fn everywhere(body: impl Fn(&World, &std::sync::Arc<Comm>, usize) + Sync) {
    for ranks in RANKS {
        run(ranks, |world| {
            for len in LENGTHS {
                body(world, world.comm_world(), len);
            }
        });
    }
}

fn reduction(input: Option<UserMemory>, result: UserMemoryMut, count: usize, op: PredefinedOp) -> Reduction {
    Reduction { input, result: Some(result), count: count as u64, datatype: int(), op: Op::predefined(op) }
}

fn blocks<M>(memory: M, counts: &[usize], places: &[usize]) -> Blocks<M> {
    Blocks {
        memory,
        counts: counts.iter().map(|n| *n as u64).collect(),
        displacements: places.iter().map(|n| *n as i64).collect(),
        datatype: int(),
    }
}

fn parts<M>(memory: M, counts: &[usize], places: &[usize]) -> Parts<M> {
    Parts {
        memory,
        counts: counts.iter().map(|n| *n as u64).collect(),
        displacements_bytes: places.iter().map(|n| 4 * *n as i64).collect(),
        datatypes: vec![int(); counts.len()],
    }
}

fn sum_to(ranks: u32, index: usize) -> i32 {
    (0..ranks).map(|rank| value(rank, index)).sum()
}

#[test]
fn a_broadcast_reaches_everybody() {
    everywhere(|world, comm, len| {
        let root = comm.size() - 1;
        let buffer = RefCell::new(vec![0; len]);
        let refill = || {
            let mine = if comm.rank() == root { data_of(root, len) } else { vec![0; len] };
            buffer.borrow_mut().copy_from_slice(&mine);
        };
        refill();
        let arguments =
            || Arguments::Bcast { root: root as i32, buffer: blocks_of(room(&mut buffer.borrow_mut()), len) };
        in_three_ways(world, comm, arguments, || {
            assert_eq!(*buffer.borrow(), data_of(root, len));
            refill();
        });
        world.collective(comm, &Arguments::Barrier).unwrap();
    });
}

#[test]
fn gather_and_scatter_are_inverse() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank(), comm.size());
        let is_root = me == 0;
        let mut mine = data_of(me, len);
        let mut all = vec![0; if is_root { len * size as usize } else { 0 }];
        let (mine_memory, all_memory) = (blocks_of(memory(&mut mine), len), room(&mut all));
        let gather = || Arguments::Gather {
            root: 0,
            send: Some(mine_memory.clone()),
            recv: is_root.then(|| blocks_of(all_memory.clone(), len)),
        };
        in_three_ways(world, comm, gather, || {});
        let expected: Vec<_> = (0..size).flat_map(|rank| data_of(rank, len)).collect();
        assert!(!is_root || all == expected);

        let mut back = vec![0; len];
        let back_memory = blocks_of(room(&mut back), back.len());
        let scatter = || Arguments::Scatter {
            root: 0,
            send: is_root.then(|| blocks_of(all_memory.reader(), len)),
            recv: Some(back_memory.clone()),
        };
        in_three_ways(world, comm, scatter, || {});
        assert_eq!(back, mine);
    });
}

#[test]
fn blocks_of_different_lengths_travel() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank(), comm.size());
        // Rank r has len + r elements; blocks stand in reverse order with gaps of two.
        let lengths: Vec<_> = (0..size).map(|rank| len + rank as usize).collect();
        let stride = len + size as usize + 2;
        let places: Vec<_> = (0..size).map(|rank| (size - 1 - rank) as usize * stride).collect();
        let mut mine = data_of(me, lengths[me as usize]);
        let mut all = vec![-1; stride * size as usize];
        let all_memory = room(&mut all);
        let mut expected = vec![-1; all.len()];
        for rank in 0..size {
            let data = data_of(rank, lengths[rank as usize]);
            expected[places[rank as usize]..][..data.len()].copy_from_slice(&data);
        }
        let mine_memory = blocks_of(memory(&mut mine), mine.len());
        let allgatherv = || Arguments::Allgatherv {
            send: Some(mine_memory.clone()),
            recv: blocks(all_memory.clone(), &lengths, &places),
        };
        in_three_ways(world, comm, allgatherv, || {});
        assert_eq!(all, expected);
        let gatherv = || Arguments::Gatherv {
            root: 0,
            send: Some(mine_memory.clone()),
            recv: (me == 0).then(|| blocks(all_memory.clone(), &lengths, &places)),
        };
        in_three_ways(world, comm, gatherv, || {});
        assert_eq!(all, expected);
        let mut back = vec![0; mine.len()];
        let back_memory = blocks_of(room(&mut back), back.len());
        let scatterv = || Arguments::Scatterv {
            root: 0,
            send: (me == 0).then(|| blocks(all_memory.reader(), &lengths, &places)),
            recv: Some(back_memory.clone()),
        };
        in_three_ways(world, comm, scatterv, || {});
        assert_eq!(back, mine);
    });
}

#[test]
fn allgather_and_alltoall_also_in_place() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank(), comm.size() as usize);
        let mut mine = data_of(me, len);
        let mut all = vec![0; len * size];
        let (mine_memory, all_memory) = (blocks_of(memory(&mut mine), len), room(&mut all));
        let allgather =
            || Arguments::Allgather { send: Some(mine_memory.clone()), recv: blocks_of(all_memory.clone(), len) };
        in_three_ways(world, comm, allgather, || {});
        let expected: Vec<_> = (0..size as u32).flat_map(|rank| data_of(rank, len)).collect();
        assert_eq!(all, expected);
        let in_place = || Arguments::Allgather { send: None, recv: blocks_of(all_memory.clone(), len) };
        in_three_ways(world, comm, in_place, || {});
        assert_eq!(all, expected);

        // Block b of rank r is b of data_of(r): afterwards block b of rank r is r of data_of(b).
        let mut out: Vec<_> = data_of(me, len * size);
        let out_memory = room(&mut out);
        let send = || Some(blocks_of(out_memory.reader(), len));
        let alltoall = || Arguments::Alltoall { send: send(), recv: blocks_of(all_memory.clone(), len) };
        in_three_ways(world, comm, alltoall, || {});
        let block = |rank: u32| data_of(rank, len * size)[me as usize * len..][..len].to_vec();
        let expected: Vec<_> = (0..size as u32).flat_map(block).collect();
        assert_eq!(all, expected);
        world.collective(comm, &Arguments::Alltoall { send: None, recv: blocks_of(out_memory, len) }).unwrap();
        assert_eq!(out, expected);
    });
}

#[test]
fn alltoall_with_own_counts_and_types() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank() as usize, comm.size() as usize);
        // Rank r sends len + r + b elements to rank b, all values r * 100 + b.
        let count = |from: usize, to: usize| len + from + to;
        let starts = |counts: &[usize]| -> Vec<usize> {
            counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect()
        };
        let out_counts: Vec<_> = (0..size).map(|to| count(me, to)).collect();
        let in_counts: Vec<_> = (0..size).map(|from| count(from, me)).collect();
        let fill = |from: usize, to: usize| vec![(from * 100 + to) as i32; count(from, to)];
        let mut out: Vec<_> = (0..size).flat_map(|to| fill(me, to)).collect();
        let expected: Vec<_> = (0..size).flat_map(|from| fill(from, me)).collect();
        let mut all = vec![0; expected.len()];
        let (out_memory, all_memory) = (memory(&mut out), room(&mut all));
        let (out_places, in_places) = (starts(&out_counts), starts(&in_counts));
        let alltoallv = || Arguments::Alltoallv {
            send: Some(blocks(out_memory.clone(), &out_counts, &out_places)),
            recv: blocks(all_memory.clone(), &in_counts, &in_places),
        };
        in_three_ways(world, comm, alltoallv, || {});
        assert_eq!(all, expected);
        all.fill(0);
        let alltoallw = || Arguments::Alltoallw {
            send: Some(parts(out_memory.clone(), &out_counts, &out_places)),
            recv: parts(all_memory.clone(), &in_counts, &in_places),
        };
        in_three_ways(world, comm, alltoallw, || {});
        assert_eq!(all, expected);
    });
}

#[test]
fn reductions_agree_with_a_loop() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank(), comm.size());
        let mut mine = data_of(me, len);
        let mut result = vec![0; len];
        let (input, output) = (room(&mut mine), room(&mut result));
        let expected: Vec<_> = (0..len).map(|index| sum_to(size, index)).collect();
        let sum = || reduction(Some(input.reader()), output.clone(), len, PredefinedOp::Sum);
        in_three_ways(world, comm, || Arguments::Allreduce { data: sum() }, || {});
        assert_eq!(result, expected);
        let root = size as i32 - 1;
        in_three_ways(world, comm, || Arguments::Reduce { root, data: sum() }, || {});
        assert_eq!(result, expected);
        in_three_ways(world, comm, || Arguments::Scan { data: sum() }, || {});
        let scanned: Vec<_> = (0..len).map(|index| sum_to(me + 1, index)).collect();
        assert_eq!(result, scanned);
        in_three_ways(world, comm, || Arguments::Exscan { data: sum() }, || {});
        if me > 0 {
            let scanned: Vec<_> = (0..len).map(|index| sum_to(me, index)).collect();
            assert_eq!(result, scanned);
        }
        let in_place = reduction(None, input, len, PredefinedOp::Max);
        world.collective(comm, &Arguments::Allreduce { data: in_place }).unwrap();
        assert_eq!(mine, data_of(size - 1, len));
    });
}

#[test]
fn reduced_blocks_are_scattered() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank() as usize, comm.size() as usize);
        let total = len * size + size * (size - 1) / 2;
        let mut mine = data_of(me as u32, total);
        let expected: Vec<_> = (0..total).map(|index| sum_to(size as u32, index)).collect();
        let mut result = vec![0; len + size];
        let (input, output) = (room(&mut mine), room(&mut result));
        let sum = |count| reduction(Some(input.reader()), output.clone(), count, PredefinedOp::Sum);
        in_three_ways(world, comm, || Arguments::ReduceScatterBlock { data: sum(len) }, || {});
        assert_eq!(result[..len], expected[me * len..][..len]);
        // Rank r gets len + r elements.
        let counts: Vec<_> = (0..size).map(|rank| (len + rank) as u64).collect();
        let arguments = || Arguments::ReduceScatter { counts: counts.clone(), data: sum(0) };
        in_three_ways(world, comm, arguments, || {});
        let start = len * me + me * me.saturating_sub(1) / 2;
        assert_eq!(result[..len + me], expected[start..][..len + me]);
    });
}

#[test]
fn a_reduction_in_place_leaves_the_rest_of_the_buffer_alone() {
    everywhere(|world, comm, len| {
        let (me, size) = (comm.rank() as usize, comm.size() as usize);
        let input = data_of(me as u32, len * size);
        let mut mine = input.clone();
        let own: Vec<_> = (0..len).map(|index| sum_to(size as u32, me * len + index)).collect();
        let data = reduction(None, room(&mut mine), len, PredefinedOp::Sum);
        world.collective(comm, &Arguments::ReduceScatterBlock { data }).unwrap();
        assert_eq!((&mine[..len], &mine[len..]), (&own[..], &input[len..]));
        mine.copy_from_slice(&input);
        let data = reduction(None, room(&mut mine), 0, PredefinedOp::Sum);
        world.collective(comm, &Arguments::ReduceScatter { counts: vec![len as u64; size], data }).unwrap();
        assert_eq!((&mine[..len], &mine[len..]), (&own[..], &input[len..]));
    });
}

#[test]
fn what_a_process_does_alone_counts_as_what_it_does_with_others() {
    run(2, |world| {
        let (mut input, mut output) = ([1, 2], [0, 0]);
        let (input, output) = (room(&mut input).reader(), room(&mut output));
        let sum = |op| reduction(Some(input.clone()), output.clone(), 2, op);
        for (comm, is_alone) in [(world.comm_self(), true), (world.comm_world(), false)] {
            let before = comm.collectives_started();
            assert_eq!((comm.barrier_alone(), comm.is_alone()), (is_alone, is_alone));
            world.collective(comm, &Arguments::Barrier).unwrap();
            world.collective(comm, &Arguments::Allreduce { data: sum(PredefinedOp::Sum) }).unwrap();
            world.collective(comm, &Arguments::Allreduce { data: sum(PredefinedOp::Replace) }).unwrap_err();
            assert_eq!(comm.collectives_started() - before, 2 + u64::from(is_alone));
        }
    });
}

#[test]
fn many_collectives_run_at_once_and_complete_in_any_order() {
    run(4, |world| {
        let comm = world.comm_world();
        let mut inputs: Vec<_> = (0..40).map(|n| vec![n + comm.rank() as i32; 500]).collect();
        let mut results = vec![vec![0; 500]; 40];
        let mut requests: Vec<_> = inputs
            .iter_mut()
            .zip(&mut results)
            .map(|(input, result)| {
                let data = reduction(Some(memory(input)), room(result), 500, PredefinedOp::Sum);
                world.start_collective(comm, Arguments::Allreduce { data }).unwrap()
            })
            .collect();
        while let Some(request) = requests.pop() {
            wait(world, request).unwrap();
        }
        for (number, result) in (0..).zip(&results) {
            assert_eq!(*result, vec![4 * number + 6; 500]);
        }
    });
}

#[test]
fn disagreement_and_bad_arguments_are_explained() {
    run(2, |world| {
        let comm = world.comm_world();
        let mut data = [0; 4];
        let error =
            world.collective(comm, &Arguments::Bcast { root: 2, buffer: blocks_of(room(&mut data), 4) }).unwrap_err();
        assert_eq!(error.class, ErrorClass::Root);
        assert!(error.message.contains("root 2") && error.message.contains("MPI_COMM_WORLD"), "{error}");
        // Too much is refused by any receive; too little by who does what the others do.
        for lens in [[4, 1], [1, 4]] {
            let len = lens[comm.rank() as usize];
            let result = world.collective(comm, &Arguments::Bcast { root: 0, buffer: blocks_of(room(&mut data), len) });
            if comm.rank() == 1 {
                let error = result.unwrap_err();
                assert_eq!(error.class, ErrorClass::Truncate);
                let sizes = lens.map(|len| len * size_of::<i32>());
                let (sent, expected) =
                    (format!("rank 0 sent {} bytes", sizes[0]), format!("rank 1 expects {};", sizes[1]));
                for part in ["MPI_Bcast", &sent, &expected] {
                    assert!(error.message.contains(part), "'{part}' in: {error}");
                }
            }
        }
    });
}

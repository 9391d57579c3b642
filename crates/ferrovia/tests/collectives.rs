//! Every collective against a plain loop, blocking and in a scope.

use ferrovia::local::run;
use ferrovia::{
    BitAnd, BitOr, BitXor, Blocks, Bool, Communicator, Complex, ErrorClass, LogicalAnd, LogicalOr, LogicalXor, Max,
    Min, Op, Product, Sum,
};
use proptest::prelude::*;

const LENGTHS: [usize; 4] = [0, 1, 9, 3000];

/// Element `index` of the data of `rank`.
fn value(rank: u32, index: usize) -> i64 {
    i64::from(rank + 1) * 1000 + (index % 97) as i64
}

fn data_of(rank: u32, len: usize) -> Vec<i64> {
    (0..len).map(|index| value(rank, index)).collect()
}

/// The data of several ranks, one after the other.
fn data_of_all(ranks: impl IntoIterator<Item = u32>, len: usize) -> Vec<i64> {
    ranks.into_iter().flat_map(|rank| data_of(rank, len)).collect()
}

fn sums(ranks: std::ops::Range<u32>, len: usize) -> Vec<i64> {
    (0..len).map(|index| ranks.clone().map(|rank| value(rank, index)).sum()).collect()
}

/// Runs `body` for all numbers of ranks and all lengths.
fn everywhere(body: impl Fn(&Communicator<'_>, usize) + Sync) {
    for ranks in 1..=4 {
        run(ranks, |universe| LENGTHS.into_iter().for_each(|len| body(&universe.world(), len)));
    }
}

#[test]
fn nobody_passes_a_barrier_alone() {
    use std::sync::atomic::{AtomicU32, Ordering};
    for ranks in 1..=4 {
        let arrived = AtomicU32::new(0);
        run(ranks, |universe| {
            let world = universe.world();
            for round in 1..=20 {
                arrived.fetch_add(1, Ordering::SeqCst);
                if round % 2 == 0 {
                    world.barrier().unwrap();
                } else {
                    world.scope(|scope| scope.ibarrier()?.wait()).unwrap();
                }
                assert!(arrived.load(Ordering::SeqCst) >= round * ranks);
            }
        });
    }
}

#[test]
fn a_broadcast_reaches_everybody() {
    everywhere(|world, len| {
        for root in 0..world.size() {
            let start = if world.rank() == root { data_of(root, len) } else { vec![0; len] };
            let (mut blocking, mut scoped) = (start.clone(), start);
            world.broadcast(&mut blocking, root).unwrap();
            world
                .scope(|scope| {
                    assert_eq!(scope.ibroadcast(&mut scoped, root)?.wait()?, data_of(root, len));
                    Ok(())
                })
                .unwrap();
            assert_eq!((&blocking, &scoped), (&data_of(root, len), &data_of(root, len)));
        }
    });
}

#[test]
fn gathers_and_scatters_are_each_others_reverse() {
    everywhere(|world, len| {
        let (rank, size) = (world.rank(), world.size());
        let (mine, everything) = (data_of(rank, len), data_of_all(0..size, len));
        let root = size - 1;
        let at_root = if rank == root { everything.len() } else { 0 };
        let mut all = vec![0; at_root];
        world.gather(&mine, &mut all, root).unwrap();
        assert_eq!(all, everything[..at_root]);
        all.fill(0);
        world.scope(|scope| scope.igather(&mine, &mut all, root).map(drop)).unwrap();
        assert_eq!(all, everything[..at_root]);

        let mut part = vec![0; len];
        world.scatter(&all, &mut part, root).unwrap();
        assert_eq!(part, mine);
        part.fill(0);
        world.scope(|scope| scope.iscatter(&all, &mut part, root).map(drop)).unwrap();
        assert_eq!(part, mine);

        let mut all = vec![0; everything.len()];
        world.all_gather(&mine, &mut all).unwrap();
        assert_eq!(all, everything);
        all.fill(0);
        world.scope(|scope| scope.iall_gather(&mine, &mut all).map(drop)).unwrap();
        assert_eq!(all, everything);
        assert_eq!(world.all_gather_value([rank, 7]).unwrap(), (0..size).map(|rank| [rank, 7]).collect::<Vec<_>>());
    });
}

#[test]
fn an_exchange_transposes() {
    everywhere(|world, len| {
        let (rank, size) = (world.rank(), world.size());
        let block = |from: u32, to: u32| data_of(10 * from + to, len);
        let out: Vec<i64> = (0..size).flat_map(|to| block(rank, to)).collect();
        let expected: Vec<i64> = (0..size).flat_map(|from| block(from, rank)).collect();
        let mut into = vec![0; out.len()];
        world.all_to_all(&out, &mut into).unwrap();
        assert_eq!(into, expected);
        into.fill(0);
        world.scope(|scope| scope.iall_to_all(&out, &mut into).map(drop)).unwrap();
        assert_eq!(into, expected);
    });
}

#[test]
fn reductions_add_up() {
    everywhere(|world, len| {
        let (rank, size) = (world.rank(), world.size());
        let mine = data_of(rank, len);
        let total = sums(0..size, len);
        let mut result = vec![0; len];

        world.all_reduce(&mine, &mut result, Sum).unwrap();
        assert_eq!(result, total);
        result.fill(0);
        world.scope(|scope| scope.iall_reduce(&mine, &mut result, Sum).map(drop)).unwrap();
        assert_eq!(result, total);
        result.copy_from_slice(&mine);
        world.all_reduce_in_place(&mut result, Sum).unwrap();
        assert_eq!(result, total);

        let root = size / 2;
        let mut at_root = vec![0; if rank == root { len } else { 0 }];
        world.reduce(&mine, &mut at_root, Sum, root).unwrap();
        assert_eq!(at_root, total[..at_root.len()]);
        at_root.fill(0);
        world.scope(|scope| scope.ireduce(&mine, &mut at_root, Sum, root).map(drop)).unwrap();
        assert_eq!(at_root, total[..at_root.len()]);

        world.scan(&mine, &mut result, Sum).unwrap();
        assert_eq!(result, sums(0..rank + 1, len));
        result.fill(0);
        world.scope(|scope| scope.iscan(&mine, &mut result, Sum).map(drop)).unwrap();
        assert_eq!(result, sums(0..rank + 1, len));

        result.fill(-1);
        world.exscan(&mine, &mut result, Sum).unwrap();
        assert_eq!(result, if rank == 0 { vec![-1; len] } else { sums(0..rank, len) });
        result.fill(-1);
        world.scope(|scope| scope.iexscan(&mine, &mut result, Sum).map(drop)).unwrap();
        assert_eq!(result, if rank == 0 { vec![-1; len] } else { sums(0..rank, len) });

        let wide = data_of(rank, len * size as usize);
        let expected = &sums(0..size, wide.len())[rank as usize * len..][..len];
        world.reduce_scatter_block(&wide, &mut result, Sum).unwrap();
        assert_eq!(result, expected);
        result.fill(0);
        world.scope(|scope| scope.ireduce_scatter_block(&wide, &mut result, Sum).map(drop)).unwrap();
        assert_eq!(result, expected);
    });
}

#[test]
fn every_operation_does_what_it_says() {
    run(3, |universe| {
        let world = universe.world();
        let mine = world.rank() + 1;
        assert_eq!(world.all_reduce_value(mine, Sum).unwrap(), 6);
        assert_eq!(world.all_reduce_value(mine + 1, Product).unwrap(), 24);
        assert_eq!(world.all_reduce_value(-f64::from(mine), Min).unwrap(), -3.0);
        assert_eq!(world.all_reduce_value(mine as u8, Max).unwrap(), 3);
        assert_eq!(world.all_reduce_value(mine | 8, BitAnd).unwrap(), 8);
        assert_eq!(world.all_reduce_value(mine, BitOr).unwrap(), 3);
        assert_eq!(world.all_reduce_value(1_u16 << mine, BitXor).unwrap(), 14);
        assert_eq!(world.all_reduce_value(mine - 1, LogicalAnd).unwrap(), 0);
        let truth = Bool::from(mine == 2);
        assert_eq!(world.all_reduce_value(truth, LogicalOr).unwrap(), Bool::from(true));
        assert_eq!(world.all_reduce_value(truth, LogicalAnd).unwrap(), Bool::from(false));
        assert_eq!(world.all_reduce_value(truth, LogicalXor).unwrap(), Bool::from(true));
        let turn = world.all_reduce_value(Complex::new(0.0_f32, 1.0), Product).unwrap();
        assert_eq!(turn, Complex::new(0.0, -1.0));
        assert_eq!(world.all_reduce_value([[mine as i8; 2]; 3], Sum).unwrap(), [[6; 2]; 3]);
        assert_eq!(world.all_reduce_value([f32::from(mine as u8), -1.0], Max).unwrap(), [3.0, -1.0]);
    });
}

#[test]
fn an_operation_of_ones_own_keeps_the_order_of_ranks() {
    // Matrices of two rows: their product depends on the order.
    type Matrix = [u64; 4];
    fn product(a: Matrix, b: Matrix) -> Matrix {
        let cell = |row: usize, column: usize| {
            a[2 * row].wrapping_mul(b[column]).wrapping_add(a[2 * row + 1].wrapping_mul(b[2 + column]))
        };
        [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)]
    }
    fn matrix(rank: u32, index: usize) -> Matrix {
        [u64::from(rank) + 1, index as u64, 3, u64::from(rank) + 7]
    }
    let by_element = Op::elementwise(false, product);
    let by_slice = Op::from_fn(false, |a: &[Matrix], b: &mut [Matrix]| {
        assert_eq!(a.len(), b.len());
        b.iter_mut().zip(a).for_each(|(b, a)| *b = product(*a, *b));
    });
    everywhere(|world, len| {
        let mine: Vec<Matrix> = (0..len).map(|index| matrix(world.rank(), index)).collect();
        let expected = |ranks: std::ops::Range<u32>| -> Vec<Matrix> {
            let over = |index| ranks.clone().map(|rank| matrix(rank, index)).reduce(product).expect("there are ranks");
            (0..len).map(over).collect()
        };
        let mut result = vec![[0; 4]; len];
        for op in [&by_element, &by_slice] {
            world.all_reduce(&mine, &mut result, op).unwrap();
            assert_eq!(result, expected(0..world.size()));
            world.scan(&mine, &mut result, op).unwrap();
            assert_eq!(result, expected(0..world.rank() + 1));
            world.scope(|scope| scope.ireduce(&mine, &mut result, op, 0).map(drop)).unwrap();
            assert!(world.rank() > 0 || result == expected(0..world.size()));
        }
    });
}

#[test]
fn an_operation_the_leaves_do_not_have_is_refused() {
    #[derive(Clone, Copy)]
    struct Opaque(#[expect(dead_code, reason = "only its bytes matter")] [u8; 3]);
    // SAFETY: three bytes, all of whose values are good.
    unsafe impl ferrovia::Element for Opaque {
        const LEAF: ferrovia::Basic = ferrovia::Basic::Byte;
        const LEAVES: usize = 3;
    }
    impl ferrovia::Number for Opaque {}
    run(2, |universe| {
        let world = universe.world();
        let error = world.all_reduce_value(Opaque([1; 3]), Sum).err().expect("bytes have no sum");
        assert_eq!(error.class(), ErrorClass::Op);
        assert!(error.message().contains("MPI_SUM") && error.message().contains("Opaque"), "{error}");
    });
}

#[test]
fn lengths_and_roots_are_checked_before_anything_happens() {
    run(2, |universe| {
        let world = universe.world();
        let check = |result: ferrovia::Result<()>, class, text: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            assert!(error.message().contains(text), "{text:?} in {error}");
        };
        check(world.broadcast(&mut [0], 2), ErrorClass::Root, "root 2");
        check(world.all_reduce(&[1, 2], &mut [0], Sum), ErrorClass::Count, "2 elements");
        check(world.scan(&[1], &mut [0, 0], Sum), ErrorClass::Count, "slice of 2");
        check(world.all_gather(&[1], &mut [0; 3]), ErrorClass::Count, "are 3, not 1 for each of 2 ranks");
        check(world.all_to_all(&[1; 3], &mut [0; 3]), ErrorClass::Count, "elements to send");
        check(world.all_to_all(&[1; 4], &mut [0; 6]), ErrorClass::Count, "room to receive");
        check(world.reduce_scatter_block(&[1; 4], &mut [0; 3], Sum), ErrorClass::Count, "elements to reduce");
        let mut number = [0];
        check(world.scope(|scope| scope.ibroadcast(&mut number, 9).map(drop)), ErrorClass::Root, "ibroadcast: ");
        let three = Blocks::adjacent(&[1; 3]);
        check(world.all_gather_v(&[1], &mut [0; 3], &three), ErrorClass::Arg, "for the 2 ranks");
        let wide = Blocks::at(&[2, 2], &[0, usize::MAX]);
        check(world.all_gather_v(&[1; 2], &mut [0; 4], &wide), ErrorClass::Count, "the block of rank 1");
        let overlapping = Blocks::at(&[2, 2], &[0, 1]);
        check(world.all_gather_v(&[1; 2], &mut [0; 4], &overlapping), ErrorClass::Arg, "overlap");
        // Nothing has been sent, so this works.
        assert_eq!(world.all_reduce_value(1, Sum).unwrap(), 2);
    });
}

/// Runs the operations with blocks of different lengths; `counts[from][to]` elements go from one rank to another, and
/// every block is followed by `gap` elements nobody touches.
fn check_blocks(counts: &[Vec<usize>], gap: usize) {
    let ranks = counts.len();
    let spread = |counts: &[usize]| {
        let starts = counts.iter().scan(gap, |next, count| Some(std::mem::replace(next, *next + count + gap)));
        Blocks::at(counts, &starts.collect::<Vec<_>>())
    };
    let room_for = |counts: &[usize]| vec![-1_i64; counts.iter().map(|count| count + gap).sum::<usize>() + gap];
    // A slice with the given blocks in their places.
    let filled = |counts: &[usize], block: &dyn Fn(usize) -> Vec<i64>| -> Vec<i64> {
        let mut slice = vec![-1; gap];
        for index in 0..counts.len() {
            slice.extend(block(index));
            slice.extend(vec![-1; gap]);
        }
        slice
    };
    run(ranks as u32, |universe| {
        let world = universe.world();
        let me = world.rank() as usize;
        let pair = |from: usize, to: usize| data_of((10 * from + to) as u32, counts[from][to]);
        let (out_counts, in_counts) = (&counts[me], counts.iter().map(|row| row[me]).collect::<Vec<_>>());
        let out = filled(out_counts, &|to| pair(me, to));
        let expected = filled(&in_counts, &|from| pair(from, me));
        let mut into = room_for(&in_counts);
        world.all_to_all_v(&out, &spread(out_counts), &mut into, &spread(&in_counts)).unwrap();
        assert_eq!(into, expected);
        into = room_for(&in_counts);
        let blocks = (spread(out_counts), spread(&in_counts));
        world.scope(|scope| scope.iall_to_all_v(&out, &blocks.0, &mut into, &blocks.1).map(drop)).unwrap();
        assert_eq!(into, expected);

        // What each rank sends to rank 0 is its part of a gather.
        let counts: Vec<usize> = counts.iter().map(|row| row[0]).collect();
        let (mine, blocks) = (pair(me, 0), spread(&counts));
        let everything = filled(&counts, &|from| pair(from, 0));
        let root = ranks - 1;
        let mut all = if me == root { room_for(&counts) } else { Vec::new() };
        world.gather_v(&mine, &mut all, &blocks, root as u32).unwrap();
        assert_eq!(all, everything[..all.len()]);
        let mut part = vec![0; mine.len()];
        world.scatter_v(&all, &blocks, &mut part, root as u32).unwrap();
        assert_eq!(part, mine);
        let mut everywhere = room_for(&counts);
        world.all_gather_v(&mine, &mut everywhere, &blocks).unwrap();
        assert_eq!(everywhere, everything);

        let (mut again, mut part_again, mut everywhere_again) =
            (vec![-1; all.len()], vec![0; mine.len()], room_for(&counts));
        world
            .scope(|scope| {
                scope.igather_v(&mine, &mut again, &blocks, root as u32)?;
                scope.iscatter_v(&all, &blocks, &mut part_again, root as u32)?;
                scope.iall_gather_v(&mine, &mut everywhere_again, &blocks)?;
                Ok(())
            })
            .unwrap();
        assert_eq!((again, part_again, everywhere_again), (all.clone(), mine.clone(), everything.clone()));
    });
}

#[test]
fn blocks_are_counted_in_elements_whatever_these_are() {
    run(3, |universe| {
        let world = universe.world();
        let rank = world.rank() as u16;
        let mine = vec![[rank, 10 + rank, 20 + rank]; world.rank() as usize];
        let mut all = [[9; 3]; 5];
        world.all_gather_v(&mine, &mut all, &Blocks::at(&[0, 1, 2], &[0, 4, 1])).unwrap();
        assert_eq!(all, [[9; 3], [2, 12, 22], [2, 12, 22], [9; 3], [1, 11, 21]]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_of_any_lengths_arrive_where_they_belong(
        counts in (1_usize..=4).prop_flat_map(|ranks| {
            prop::collection::vec(prop::collection::vec(prop_oneof![0_usize..4, 0_usize..2000], ranks), ranks)
        }),
        gap in 0_usize..3,
    ) {
        check_blocks(&counts, gap);
    }
}

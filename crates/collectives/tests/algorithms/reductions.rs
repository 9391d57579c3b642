//! Reductions: allreduce, reduce and their kin.

use collectives::{
    Allreduce, Call, Collective, Data, Exscan, Reduce, ReduceScatter, ReduceScatterBlock, Scan, Selection,
};
use proptest::prelude::*;

use crate::memory::{Chance, Memory, SimType};
use crate::operations::Operation;
use crate::world::{Member, Sends, run};
use crate::{SIZES, selections};

/// Bytes of an element.
const ELEMENT: usize = 8;
const COUNTS: [u64; 6] = [0, 1, 2, 5, 16, 37];

/// One reduction of `count` elements, with everything else left to chance.
struct Case {
    size: u32,
    count: u64,
    operation: Operation,
    seed: u64,
}

impl Case {
    fn all() -> impl Iterator<Item = Case> {
        let operations = [Operation::Matrix, Operation::Sum];
        SIZES.into_iter().flat_map(move |size| {
            COUNTS.into_iter().flat_map(move |count| {
                operations.into_iter().map(move |operation| {
                    let seed = u64::from(size) * 1000 + count * 2 + u64::from(operation.commutative());
                    Case { size, count, operation, seed }
                })
            })
        })
    }

    /// Input per rank, packed, of `count` elements.
    fn inputs(&self, chance: &mut Chance, count: u64) -> Vec<Vec<u8>> {
        (0..self.size).map(|_| self.operation.input(chance.bytes(count as usize * ELEMENT))).collect()
    }

    /// A member with its input in the send or the receive buffer.
    fn member(&self, call: Call, ty: &SimType, in_place: bool, input: &[u8]) -> Member {
        let count = (input.len() / ELEMENT) as u64;
        let mut member = Member { operation: self.operation, ..Member::new(call) };
        member.recv = Memory::new(ty, 0, count);
        if in_place {
            member.recv.write(ty, 0, input);
        } else {
            member.send = Memory::new(ty, 0, count);
            member.send.write(ty, 0, input);
        }
        member.send_type = ty.clone();
        member.recv_type = ty.clone();
        member
    }

    fn sends(&self) -> Sends {
        if self.seed.is_multiple_of(3) { Sends::Buffered } else { Sends::Synchronous }
    }
}

/// Memory as it was, with `packed` written to its start.
fn with_result(before: &Memory, ty: &SimType, packed: &[u8]) -> Memory {
    let mut memory = before.clone();
    memory.write(ty, 0, packed);
    memory
}

fn refs(inputs: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    inputs.iter().map(Vec::as_slice)
}

fn check_allreduce(case: &Case, selection: &Selection) -> Vec<Vec<u8>> {
    let mut chance = Chance::new(case.seed);
    let inputs = case.inputs(&mut chance, case.count);
    let ty = SimType::kinds(ELEMENT)[chance.below(3)].clone();
    let in_place = chance.below(2) == 0;
    let data = Data::new(case.count, ty.shape());
    let call = Call::Allreduce(Allreduce { in_place, commutative: case.operation.commutative(), data });
    let members: Vec<Member> = inputs.iter().map(|input| case.member(call.clone(), &ty, in_place, input)).collect();
    let before: Vec<Memory> = members.iter().map(|member| member.recv.clone()).collect();
    let expected = case.operation.fold(refs(&inputs)).unwrap();
    let outcome = run(members, selection, case.sends(), case.seed);
    if case.operation != Operation::FloatSum {
        for (rank, member) in outcome.members.iter().enumerate() {
            let whole = with_result(&before[rank], &ty, &expected);
            assert!(member.recv == whole, "{selection}: rank {rank} of {}, {} elements", case.size, case.count);
        }
    }
    outcome.members.iter().map(|member| member.recv.read(&ty, 0, case.count)).collect()
}

#[test]
fn allreduce_gives_all_the_whole() {
    for selection in selections(Collective::Allreduce) {
        for case in Case::all() {
            check_allreduce(&case, &selection);
        }
    }
}

#[test]
fn allreduce_of_floats_is_equal_to_the_bit_everywhere() {
    for selection in selections(Collective::Allreduce) {
        for size in SIZES {
            for count in [1, 3, 40] {
                let case = Case { size, count, operation: Operation::FloatSum, seed: u64::from(size) + count };
                let results = check_allreduce(&case, &selection);
                assert!(results.iter().all(|result| *result == results[0]), "{selection} on {size} ranks");
            }
        }
    }
}

#[test]
fn long_allreduces_go_in_parts() {
    for selection in selections(Collective::Allreduce) {
        for size in [2, 3, 5] {
            for operation in [Operation::Sum, Operation::Matrix] {
                for seed in 0..2 {
                    check_allreduce(&Case { size, count: 21_003, operation, seed }, &selection);
                }
            }
        }
    }
}

fn check_reduce(case: &Case, root: u32, selection: &Selection) {
    let mut chance = Chance::new(case.seed);
    let inputs = case.inputs(&mut chance, case.count);
    let ty = SimType::kinds(ELEMENT)[chance.below(3)].clone();
    let root_in_place = chance.below(2) == 0;
    let members: Vec<Member> = (0..case.size)
        .map(|rank| {
            let in_place = rank == root && root_in_place;
            let data = Data::new(case.count, ty.shape());
            let call = Call::Reduce(Reduce { root, in_place, commutative: case.operation.commutative(), data });
            let mut member = case.member(call, &ty, in_place, &inputs[rank as usize]);
            if rank != root {
                // Not significant: there may be no memory at all.
                member.recv = Memory::spanning(0, 0);
            }
            member
        })
        .collect();
    let before: Vec<Memory> = members.iter().map(|member| member.recv.clone()).collect();
    let expected = case.operation.fold(refs(&inputs)).unwrap();
    let outcome = run(members, selection, case.sends(), case.seed);
    for (rank, member) in outcome.members.iter().enumerate() {
        let result = if rank == root as usize { expected.as_slice() } else { &[] };
        let whole = with_result(&before[rank], &ty, result);
        assert!(member.recv == whole, "{selection}: rank {rank} of {}, root {root}", case.size);
    }
}

#[test]
fn reduce_gives_every_root_the_whole() {
    for selection in selections(Collective::Reduce) {
        for case in Case::all() {
            let roots = if case.count == 5 { 0..case.size } else { case.size / 3..case.size / 3 + 1 };
            for root in roots {
                check_reduce(&Case { seed: case.seed + u64::from(root) * 7, ..case }, root, &selection);
            }
        }
    }
}

fn check_reduce_scatter(case: &Case, counts: Option<Vec<u64>>, selection: &Selection) {
    let mut chance = Chance::new(case.seed);
    let equal = counts.is_none();
    let counts = counts.unwrap_or_else(|| vec![case.count; case.size as usize]);
    let total: u64 = counts.iter().sum();
    let inputs = case.inputs(&mut chance, total);
    let ty = SimType::kinds(ELEMENT)[chance.below(3)].clone();
    let in_place = chance.below(2) == 0;
    let commutative = case.operation.commutative();
    let call = if equal {
        let data = Data::new(case.count, ty.shape());
        Call::ReduceScatterBlock(ReduceScatterBlock { in_place, commutative, data })
    } else {
        let counts = counts.clone();
        Call::ReduceScatter(ReduceScatter { in_place, commutative, counts, shape: ty.shape() })
    };
    let members: Vec<Member> = (inputs.iter().zip(&counts))
        .map(|(input, &count)| {
            let mut member = case.member(call.clone(), &ty, in_place, input);
            if !in_place {
                // There is room for the result only.
                member.recv = Memory::new(&ty, 0, count);
            }
            member
        })
        .collect();
    let expected = case.operation.fold(refs(&inputs)).unwrap();
    let outcome = run(members, selection, case.sends(), case.seed);
    let mut first = 0;
    for (rank, member) in outcome.members.iter().enumerate() {
        let count = counts[rank] as usize;
        let block = &expected[first * ELEMENT..(first + count) * ELEMENT];
        let result = member.recv.read(&ty, 0, count as u64);
        assert!(result == block, "{selection}: rank {rank} of {counts:?}, in place {in_place}, seed {}", case.seed);
        first += count;
    }
}

#[test]
fn reduce_scatter_block_gives_each_its_block() {
    for selection in selections(Collective::ReduceScatterBlock) {
        for case in Case::all() {
            for seed in [case.seed, case.seed + 1_000_000] {
                check_reduce_scatter(&Case { seed, ..case }, None, &selection);
            }
        }
    }
}

#[test]
fn reduce_scatter_gives_each_its_block() {
    for selection in selections(Collective::ReduceScatter) {
        for case in Case::all() {
            let mut chance = Chance::new(case.seed);
            let counts = (0..case.size).map(|_| chance.below(case.count as usize + 1) as u64).collect();
            check_reduce_scatter(&case, Some(counts), &selection);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reduce_scatter_of_any_blocks(
        counts in prop::collection::vec(0u64..9, 1..12),
        commutative: bool,
        seed in any::<u64>(),
    ) {
        let operation = if commutative { Operation::Sum } else { Operation::Matrix };
        for selection in selections(Collective::ReduceScatter) {
            let case = Case { size: counts.len() as u32, count: 0, operation, seed };
            check_reduce_scatter(&case, Some(counts.clone()), &selection);
        }
    }
}

fn check_scan(case: &Case, exclusive: bool, selection: &Selection) {
    let mut chance = Chance::new(case.seed);
    let inputs = case.inputs(&mut chance, case.count);
    let ty = SimType::kinds(ELEMENT)[chance.below(3)].clone();
    let commutative = case.operation.commutative();
    let data = Data::new(case.count, ty.shape());
    let members: Vec<Member> = (inputs.iter())
        .map(|input| {
            let in_place = chance.below(2) == 0;
            let call = match exclusive {
                true => Call::Exscan(Exscan { in_place, commutative, data }),
                false => Call::Scan(Scan { in_place, commutative, data }),
            };
            case.member(call, &ty, in_place, input)
        })
        .collect();
    let before: Vec<Memory> = members.iter().map(|member| member.recv.clone()).collect();
    let outcome = run(members, selection, case.sends(), case.seed);
    for (rank, member) in outcome.members.iter().enumerate() {
        let covered = &inputs[..if exclusive { rank } else { rank + 1 }];
        // An exclusive scan leaves the receive buffer of rank 0 as it was.
        let result = case.operation.fold(refs(covered)).unwrap_or_default();
        let whole = with_result(&before[rank], &ty, &result);
        assert!(member.recv == whole, "{selection}: rank {rank} of {}, {} elements", case.size, case.count);
    }
}

#[test]
fn scans_cover_the_ranks_so_far() {
    for (collective, exclusive) in [(Collective::Scan, false), (Collective::Exscan, true)] {
        for selection in selections(collective) {
            for case in Case::all() {
                for seed in [case.seed, case.seed + 1_000_000] {
                    check_scan(&Case { seed, ..case }, exclusive, &selection);
                }
            }
        }
    }
}

#[test]
fn long_scans_are_pipelined() {
    for size in [1, 2, 3, 5] {
        for seed in 0..3 {
            let case = Case { size, count: 21_000, operation: Operation::Matrix, seed };
            check_scan(&case, false, &"scan=chain".parse().unwrap());
            check_scan(&case, true, &"exscan=chain".parse().unwrap());
        }
    }
}

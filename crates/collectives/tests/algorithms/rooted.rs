//! Gather and scatter, with their variants of listed blocks.

use collectives::{Call, Collective, Data, Gather, Gatherv, Scatter, Scatterv, Selection, Vector};
use proptest::prelude::*;

use crate::blocks::Blocks;
use crate::memory::{Chance, Memory, SimType};
use crate::world::{Member, Sends, run};
use crate::{SIZES, selections};

/// Bytes of an element.
const ELEMENT: usize = 4;

fn some_type(chance: &mut Chance) -> SimType {
    SimType::kinds(ELEMENT)[chance.below(3)].clone()
}

fn some_sends(chance: &mut Chance) -> Sends {
    if chance.below(2) == 0 { Sends::Buffered } else { Sends::Synchronous }
}

/// `listed` asks for the variant with a list of blocks; `counts` are then free.
fn check_gather(counts: &[u64], root: u32, listed: bool, selection: &Selection, seed: u64) {
    let mut chance = Chance::new(seed);
    let size = counts.len() as u32;
    let root_in_place = chance.below(2) == 0;
    let contents: Vec<Vec<u8>> = counts.iter().map(|&count| chance.bytes(count as usize * ELEMENT)).collect();
    let blocks = if listed { Blocks::spread(counts, &mut chance) } else { Blocks::even(size as usize, counts[0]) };
    let members: Vec<Member> = (0..size)
        .map(|rank| {
            let (send_type, recv_type) = (some_type(&mut chance), some_type(&mut chance));
            let at_root = rank == root;
            let in_place = at_root && root_in_place;
            let count = counts[rank as usize];
            let send = if in_place { Data::none() } else { Data::new(count, send_type.shape()) };
            let call = if listed {
                let recv = if at_root { blocks.vector(&recv_type) } else { Vector::none() };
                Call::Gatherv(Gatherv { root, in_place, send, recv })
            } else {
                let recv = if at_root { Data::new(counts[0], recv_type.shape()) } else { Data::none() };
                Call::Gather(Gather { root, in_place, send, recv })
            };
            let mut member = Member::new(call);
            if at_root {
                member.recv = blocks.memory(&recv_type);
            }
            if in_place {
                blocks.write(&mut member.recv, &recv_type, rank, &contents[rank as usize]);
            } else {
                member.send = Memory::new(&send_type, 0, count);
                member.send.write(&send_type, 0, &contents[rank as usize]);
            }
            (member.send_type, member.recv_type) = (send_type, recv_type);
            member
        })
        .collect();
    let mut expected: Vec<Memory> = members.iter().map(|member| member.recv.clone()).collect();
    for (rank, content) in (0..).zip(&contents) {
        blocks.write(&mut expected[root as usize], &members[root as usize].recv_type, rank, content);
    }
    let outcome = run(members, selection, some_sends(&mut chance), seed);
    for (rank, member) in outcome.members.iter().enumerate() {
        assert!(member.recv == expected[rank], "{selection}, root {root}: rank {rank} of {counts:?}, seed {seed}");
    }
}

fn check_scatter(counts: &[u64], root: u32, listed: bool, selection: &Selection, seed: u64) {
    let mut chance = Chance::new(seed);
    let size = counts.len() as u32;
    let root_in_place = chance.below(2) == 0;
    let contents: Vec<Vec<u8>> = counts.iter().map(|&count| chance.bytes(count as usize * ELEMENT)).collect();
    let blocks = if listed { Blocks::spread(counts, &mut chance) } else { Blocks::even(size as usize, counts[0]) };
    let members: Vec<Member> = (0..size)
        .map(|rank| {
            let (send_type, recv_type) = (some_type(&mut chance), some_type(&mut chance));
            let at_root = rank == root;
            let in_place = at_root && root_in_place;
            let count = counts[rank as usize];
            let recv = if in_place { Data::none() } else { Data::new(count, recv_type.shape()) };
            let call = if listed {
                let send = if at_root { blocks.vector(&send_type) } else { Vector::none() };
                Call::Scatterv(Scatterv { root, in_place, send, recv })
            } else {
                let send = if at_root { Data::new(counts[0], send_type.shape()) } else { Data::none() };
                Call::Scatter(Scatter { root, in_place, send, recv })
            };
            let mut member = Member::new(call);
            if at_root {
                member.send = blocks.memory(&send_type);
                for (rank, content) in (0..).zip(&contents) {
                    blocks.write(&mut member.send, &send_type, rank, content);
                }
            }
            if !in_place {
                member.recv = Memory::new(&recv_type, 0, count);
            }
            (member.send_type, member.recv_type) = (send_type, recv_type);
            member
        })
        .collect();
    let mut expected: Vec<Memory> = members.iter().map(|member| member.recv.clone()).collect();
    for (rank, content) in contents.iter().enumerate() {
        if rank != root as usize || !root_in_place {
            expected[rank].write(&members[rank].recv_type, 0, content);
        }
    }
    let outcome = run(members, selection, some_sends(&mut chance), seed);
    for (rank, member) in outcome.members.iter().enumerate() {
        assert!(member.recv == expected[rank], "{selection}, root {root}: rank {rank} of {counts:?}, seed {seed}");
    }
}

type Check = fn(&[u64], u32, bool, &Selection, u64);

fn every_root_and_count(collective: Collective, listed: bool, check: Check) {
    for selection in selections(collective) {
        for size in SIZES {
            for root in 0..size {
                check(&vec![3; size as usize], root, listed, &selection, u64::from(size * 100 + root));
            }
            for count in [0, 1, 2, 17] {
                check(&vec![count; size as usize], size / 2, listed, &selection, count);
            }
        }
    }
}

#[test]
fn gather_brings_blocks_to_every_root() {
    every_root_and_count(Collective::Gather, false, check_gather);
}

#[test]
fn gatherv_brings_blocks_to_every_root() {
    every_root_and_count(Collective::Gatherv, true, check_gather);
}

#[test]
fn scatter_hands_out_blocks_from_every_root() {
    every_root_and_count(Collective::Scatter, false, check_scatter);
}

#[test]
fn scatterv_hands_out_blocks_from_every_root() {
    every_root_and_count(Collective::Scatterv, true, check_scatter);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gatherv_and_scatterv_of_any_blocks(
        counts in prop::collection::vec(0u64..9, 1..12),
        root in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let root = root.index(counts.len()) as u32;
        for selection in selections(Collective::Gatherv) {
            check_gather(&counts, root, true, &selection, seed);
        }
        for selection in selections(Collective::Scatterv) {
            check_scatter(&counts, root, true, &selection, seed);
        }
    }
}

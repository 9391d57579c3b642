//! Barrier and broadcast.

use collectives::{Barrier, Bcast, Call, Collective, Data, Place, Selection, Step, build};

use crate::memory::{Chance, Memory, SimType};
use crate::world::{Member, Sends, run};
use crate::{SIZES, selections};

#[test]
fn barriers_end() {
    for selection in selections(Collective::Barrier) {
        for size in SIZES {
            for seed in 0..4 {
                let sends = if seed % 2 == 0 { Sends::Buffered } else { Sends::Synchronous };
                run(vec![Member::new(Call::Barrier(Barrier)); size as usize], &selection, sends, seed);
            }
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_came() {
    // Knowledge flows along messages: after the barrier each rank must have heard of every other.
    for selection in selections(Collective::Barrier) {
        for size in SIZES {
            let schedules: Vec<_> = (0..size)
                .map(|rank| build(Place { rank, size }, &Call::Barrier(Barrier), &selection).unwrap())
                .collect();
            let mut knows: Vec<u64> = (0..size).map(|rank| 1 << rank).collect();
            let mut next = vec![0; size as usize];
            let mut sent = std::collections::BTreeMap::new();
            loop {
                let mut moved = false;
                for rank in 0..size as usize {
                    // Receives are taken to complete where they are posted: a stricter order.
                    while let Some(step) = schedules[rank].steps().get(next[rank]) {
                        match *step {
                            Step::Send { peer, tag_offset, .. } => {
                                sent.insert((rank as u32, peer, tag_offset), knows[rank]);
                            }
                            Step::Recv { .. } => {}
                            Step::Wait { leaving } => {
                                let Some(heard) = heard(&schedules[rank].steps()[..next[rank]], leaving, rank, &sent)
                                else {
                                    break;
                                };
                                knows[rank] |= heard;
                            }
                            _ => panic!("a barrier moves no data"),
                        }
                        next[rank] += 1;
                        moved = true;
                    }
                }
                if !moved {
                    break;
                }
            }
            let all = (1u64 << size) - 1;
            assert!(knows.iter().all(|&known| known == all), "{selection} on {size} ranks: {knows:x?}");
        }
    }
}

/// What the receives before a wait have brought; none if one of them has not come.
fn heard(
    before: &[Step],
    leaving: u32,
    rank: usize,
    sent: &std::collections::BTreeMap<(u32, u32, u32), u64>,
) -> Option<u64> {
    let posted: Vec<_> = before.iter().filter(|s| matches!(s, Step::Send { .. } | Step::Recv { .. })).collect();
    let mut known = 0;
    for step in &posted[..posted.len() - leaving as usize] {
        if let Step::Recv { peer, tag_offset, .. } = **step {
            known |= sent.get(&(peer, rank as u32, tag_offset))?;
        }
    }
    Some(known)
}

fn check(size: u32, root: u32, elements: u64, element_bytes: usize, selection: &Selection, seed: u64) {
    let mut chance = Chance::new(seed);
    let content = chance.bytes(elements as usize * element_bytes);
    let sends = if chance.below(2) == 0 { Sends::Buffered } else { Sends::Synchronous };
    let uniform = chance.below(2) == 0;
    let common = chance.below(3);
    let members: Vec<Member> = (0..size)
        .map(|rank| {
            // Ranks may see the same bytes through different types: many small or few large elements.
            let kind = if uniform { common } else { chance.below(3) };
            let (count, bytes) = if !uniform && chance.below(2) == 0 {
                (elements * element_bytes as u64, 1)
            } else {
                (elements, element_bytes)
            };
            let ty = SimType::kinds(bytes)[kind].clone();
            let mut member = Member::new(Call::Bcast(Bcast { root, data: Data::new(count, ty.shape()) }));
            member.recv = Memory::new(&ty, 0, count);
            if rank == root {
                member.recv.write(&ty, 0, &content);
            }
            member.recv_type = ty;
            member
        })
        .collect();
    let mut expected: Vec<Memory> = members.iter().map(|member| member.recv.clone()).collect();
    for (memory, member) in expected.iter_mut().zip(&members) {
        memory.write(&member.recv_type, 0, &content);
    }
    let outcome = run(members, selection, sends, seed);
    for (rank, member) in outcome.members.iter().enumerate() {
        assert!(member.recv == expected[rank], "seed {seed}: rank {rank} of {size}, root {root}, {selection}");
    }
}

#[test]
fn broadcasts_reach_all_from_every_root() {
    for selection in selections(Collective::Bcast) {
        for size in SIZES {
            for root in 0..size {
                check(size, root, 37, 8, &selection, u64::from(size * 100 + root));
            }
        }
    }
}

#[test]
fn broadcasts_of_any_count() {
    for selection in selections(Collective::Bcast) {
        for size in SIZES {
            for elements in [0, 1, 2, 7, 63, 64, 65, 1000] {
                check(size, size / 2, elements, 4, &selection, elements * 1000 + u64::from(size));
            }
        }
    }
}

#[test]
fn long_broadcasts_are_pipelined() {
    for selection in selections(Collective::Bcast) {
        for size in [2, 3, 5, 8] {
            check(size, size - 1, 25_432, 16, &selection, u64::from(size));
        }
    }
    let call = Call::Bcast(Bcast { root: 0, data: Data::new(1 << 20, SimType::contiguous(1).shape()) });
    let schedule = build(Place { rank: 1, size: 3 }, &call, &"bcast=chain".parse().unwrap()).unwrap();
    let first_send = schedule.steps().iter().position(|step| matches!(step, Step::Send { .. }));
    let last_recv = schedule.steps().iter().rposition(|step| matches!(step, Step::Recv { .. }));
    assert!(first_send < last_recv, "segments are passed on while others come in");
    assert!(schedule.outstanding_max() <= 4, "a pipeline is short: {}", schedule.outstanding_max());
}

//! Collectives in which all send to all: allgather and alltoall with their variants.

use collectives::{
    Allgather, Allgatherv, Alltoall, Alltoallv, Alltoallw, Call, Collective, Data, Part, Selection, Vector,
};
use proptest::prelude::*;

use crate::blocks::Blocks;
use crate::memory::{Chance, Memory, SimType};
use crate::world::{Member, Sends, run};
use crate::{SIZES, selections};

/// Bytes of an element.
const ELEMENT: usize = 4;

pub fn some_type(chance: &mut Chance) -> SimType {
    SimType::kinds(ELEMENT)[chance.below(3)].clone()
}

pub fn some_sends(chance: &mut Chance) -> Sends {
    if chance.below(2) == 0 { Sends::Buffered } else { Sends::Synchronous }
}

pub fn expect(members: Vec<Member>, expected: Vec<Memory>, selection: &Selection, sends: Sends, seed: u64) {
    let outcome = run(members, selection, sends, seed);
    for (rank, member) in outcome.members.iter().enumerate() {
        assert!(
            member.recv == expected[rank],
            "{selection}: rank {rank} of {}, seed {seed}\n{}",
            expected.len(),
            outcome.schedules[rank]
        );
    }
}

fn check_allgather(counts: &[u64], listed: bool, selection: &Selection, seed: u64) {
    let mut chance = Chance::new(seed);
    let in_place = chance.below(2) == 0;
    let contents: Vec<Vec<u8>> = counts.iter().map(|&count| chance.bytes(count as usize * ELEMENT)).collect();
    let (mut members, mut expected) = (Vec::new(), Vec::new());
    for (rank, content) in (0..).zip(&contents) {
        // Displacements and types may differ from rank to rank.
        let (send_type, recv_type) = (some_type(&mut chance), some_type(&mut chance));
        let blocks = if listed { Blocks::spread(counts, &mut chance) } else { Blocks::even(counts.len(), counts[0]) };
        let send = if in_place { Data::none() } else { Data::new(counts[rank as usize], send_type.shape()) };
        let call = if listed {
            Call::Allgatherv(Allgatherv { in_place, send, recv: blocks.vector(&recv_type) })
        } else {
            Call::Allgather(Allgather { in_place, send, recv: Data::new(counts[0], recv_type.shape()) })
        };
        let mut member = Member::new(call);
        member.recv = blocks.memory(&recv_type);
        if in_place {
            blocks.write(&mut member.recv, &recv_type, rank, content);
        } else {
            member.send = Memory::new(&send_type, 0, counts[rank as usize]);
            member.send.write(&send_type, 0, content);
        }
        let mut result = member.recv.clone();
        for (peer, content) in (0..).zip(&contents) {
            blocks.write(&mut result, &recv_type, peer, content);
        }
        (member.send_type, member.recv_type) = (send_type, recv_type);
        members.push(member);
        expected.push(result);
    }
    expect(members, expected, selection, some_sends(&mut chance), seed);
}

#[test]
fn allgather_gives_all_blocks_to_all() {
    for selection in selections(Collective::Allgather) {
        for size in SIZES {
            for count in [0, 1, 3, 20] {
                for seed in 0..3 {
                    check_allgather(&vec![count; size as usize], false, &selection, seed + count * 7);
                }
            }
        }
    }
}

#[test]
fn allgatherv_gives_all_blocks_to_all() {
    for selection in selections(Collective::Allgatherv) {
        for size in SIZES {
            for seed in 0..6 {
                let mut chance = Chance::new(seed * 1000 + u64::from(size));
                let counts: Vec<u64> = (0..size).map(|_| chance.below(6) as u64).collect();
                check_allgather(&counts, true, &selection, seed);
            }
        }
    }
}

/// Which variant a check is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocking {
    Even,
    Listed,
    Typed,
}

/// `counts[r][s]` elements go from rank `r` to rank `s`.
fn check_alltoall(counts: &[Vec<u64>], blocking: Blocking, in_place: bool, selection: &Selection, seed: u64) {
    let mut chance = Chance::new(seed);
    let size = counts.len();
    let contents: Vec<Vec<Vec<u8>>> =
        (counts.iter()).map(|row| row.iter().map(|&count| chance.bytes(count as usize * ELEMENT)).collect()).collect();
    let (mut members, mut expected) = (Vec::new(), Vec::new());
    for rank in 0..size {
        let incoming: Vec<u64> = counts.iter().map(|row| row[rank]).collect();
        let mut side = |counts: &[u64]| match blocking {
            Blocking::Even => Side::even(size, counts[0], &mut chance),
            Blocking::Listed => Side::listed(counts, &mut chance),
            Blocking::Typed => Side::typed(counts, &mut chance),
        };
        let (send, recv) = (side(&counts[rank]), side(&incoming));
        let call = match blocking {
            Blocking::Even => Call::Alltoall(Alltoall {
                in_place,
                send: if in_place { Data::none() } else { Data::new(counts[rank][0], send.types[0].shape()) },
                recv: Data::new(incoming[0], recv.types[0].shape()),
            }),
            Blocking::Listed => Call::Alltoallv(Alltoallv {
                in_place,
                send: if in_place { Vector::none() } else { send.vector() },
                recv: recv.vector(),
            }),
            Blocking::Typed => Call::Alltoallw(Alltoallw {
                in_place,
                send: if in_place { Vec::new() } else { send.parts() },
                recv: recv.parts(),
            }),
        };
        let mut member = Member::new(call);
        member.recv = recv.memory();
        if in_place {
            recv.write(&mut member.recv, &contents[rank]);
        } else {
            member.send = send.memory();
            send.write(&mut member.send, &contents[rank]);
        }
        let mut result = member.recv.clone();
        let arriving: Vec<Vec<u8>> = contents.iter().map(|row| row[rank].clone()).collect();
        recv.write(&mut result, &arriving);
        (member.send_type, member.recv_type) = (send.one_type(), recv.one_type());
        (member.send_types, member.recv_types) = (send.types, recv.types);
        members.push(member);
        expected.push(result);
    }
    expect(members, expected, selection, some_sends(&mut chance), seed);
}

/// Blocks of one side of one rank: where each begins and its type.
pub struct Side {
    pub counts: Vec<u64>,
    starts_bytes: Vec<i64>,
    pub types: Vec<SimType>,
}

impl Side {
    pub fn even(number: usize, count: u64, chance: &mut Chance) -> Side {
        Side::of_blocks(Blocks::even(number, count), some_type(chance))
    }

    pub fn listed(counts: &[u64], chance: &mut Chance) -> Side {
        Side::of_blocks(Blocks::spread(counts, chance), some_type(chance))
    }

    pub fn typed(counts: &[u64], chance: &mut Chance) -> Side {
        let mut at = 0;
        let mut side = Side { counts: counts.to_vec(), starts_bytes: Vec::new(), types: Vec::new() };
        for &count in counts {
            let ty = some_type(chance);
            let (low, high) = ty.span(0, count).unwrap_or((0, 0));
            side.starts_bytes.push(at - low);
            side.types.push(ty);
            at += high - low + chance.below(9) as i64;
        }
        side
    }

    fn of_blocks(blocks: Blocks, ty: SimType) -> Side {
        let starts_bytes = blocks.starts.iter().map(|start| start * ty.extent()).collect();
        let types = vec![ty; blocks.counts.len()];
        Side { counts: blocks.counts, starts_bytes, types }
    }

    /// The type of all blocks, where they have one.
    pub fn one_type(&self) -> SimType {
        self.types.first().cloned().unwrap_or(SimType::contiguous(1))
    }

    pub fn vector(&self) -> Vector {
        let ty = self.one_type();
        let starts = self.starts_bytes.iter().map(|start| start / ty.extent()).collect();
        Vector::new(self.counts.clone(), starts, ty.shape())
    }

    pub fn parts(&self) -> Vec<Part> {
        let parts = self.counts.iter().zip(&self.starts_bytes);
        parts.map(|(&count, &start)| Part::new(count, start, ELEMENT as u64)).collect()
    }

    pub fn memory(&self) -> Memory {
        let blocks = self.counts.iter().zip(&self.starts_bytes).zip(&self.types);
        let spans = blocks.filter_map(|((&count, &start), ty)| ty.span(start, count));
        let (low, high) = spans.fold((0, 0), |all, span| (all.0.min(span.0), all.1.max(span.1)));
        Memory::spanning(low, high)
    }

    pub fn write(&self, memory: &mut Memory, contents: &[Vec<u8>]) {
        for ((&start, ty), content) in self.starts_bytes.iter().zip(&self.types).zip(contents) {
            memory.write(ty, start, content);
        }
    }
}

const BLOCKINGS: [(Blocking, Collective); 3] = [
    (Blocking::Even, Collective::Alltoall),
    (Blocking::Listed, Collective::Alltoallv),
    (Blocking::Typed, Collective::Alltoallw),
];

#[test]
fn alltoall_of_equal_blocks() {
    for (blocking, collective) in BLOCKINGS {
        for selection in selections(collective) {
            for size in SIZES {
                for (count, in_place) in [(0, false), (1, false), (1, true), (5, false), (5, true)] {
                    let counts = vec![vec![count; size as usize]; size as usize];
                    check_alltoall(&counts, blocking, in_place, &selection, u64::from(size) * 10 + count);
                }
            }
        }
    }
}

#[test]
fn alltoall_keeps_within_its_window() {
    let data = Data::new(1 << 10, SimType::contiguous(4).shape());
    let call = Call::Alltoall(Alltoall { in_place: false, send: data, recv: data });
    let place = collectives::Place { rank: 3, size: 1000 };
    let schedule = collectives::build(place, &call, &"alltoall=linear".parse().unwrap()).unwrap();
    assert_eq!(schedule.messages_sent(), 999);
    assert!(schedule.outstanding_max() <= 66, "{} messages at once", schedule.outstanding_max());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn allgatherv_of_any_blocks(counts in prop::collection::vec(0u64..9, 1..12), seed in any::<u64>()) {
        for selection in selections(Collective::Allgatherv) {
            check_allgather(&counts, true, &selection, seed);
        }
    }

    #[test]
    fn alltoall_of_any_blocks(size in 1usize..9, most in 1usize..7, in_place: bool, seed in any::<u64>()) {
        let mut chance = Chance::new(seed);
        let mut counts: Vec<Vec<u64>> =
            (0..size).map(|_| (0..size).map(|_| chance.below(most) as u64).collect()).collect();
        if in_place {
            // What leaves a place must fit what comes there.
            let lower = counts.clone();
            for (rank, row) in counts.iter_mut().enumerate() {
                row.iter_mut().enumerate().take(rank).for_each(|(peer, count)| *count = lower[peer][rank]);
            }
        }
        for (blocking, collective) in &BLOCKINGS[1..] {
            for selection in selections(*collective) {
                check_alltoall(&counts, *blocking, in_place, &selection, seed);
            }
        }
    }
}

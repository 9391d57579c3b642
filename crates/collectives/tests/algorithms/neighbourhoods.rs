//! Collectives over topologies.

use collectives::{
    Call, Collective, Data, NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv,
    NeighborAlltoallw, Neighbour, Neighbours,
};
use proptest::prelude::*;

use crate::all_to_all::{Side, expect, some_sends};
use crate::memory::{Chance, Memory, SimType};
use crate::selections;
use crate::world::Member;

/// Bytes of an element.
const ELEMENT: usize = 4;

/// The place of an edge in the lists of its two ends.
struct Edge {
    from: (usize, usize),
    to: (usize, usize),
}

/// Pairs the destinations of all ranks with the sources of all ranks, each pair of ranks and tag
/// offset in order.
fn edges(world: &[Neighbours]) -> Vec<Edge> {
    let mut open: Vec<(usize, usize, Neighbour)> = Vec::new();
    for (rank, neighbours) in world.iter().enumerate() {
        let destinations = neighbours.destinations().iter().enumerate();
        open.extend(destinations.map(|(index, destination)| (rank, index, *destination)));
    }
    let mut edges = Vec::new();
    for (rank, neighbours) in world.iter().enumerate() {
        for (index, source) in neighbours.sources().iter().enumerate() {
            let Some(peer) = source.rank else { continue };
            let at = open.iter().position(|(from, _, destination)| {
                *from == peer as usize
                    && destination.rank == Some(rank as u32)
                    && destination.tag_offset == source.tag_offset
            });
            let (from, place, _) = open.remove(at.expect("every source has its destination"));
            edges.push(Edge { from: (from, place), to: (rank, index) });
        }
    }
    assert!(open.iter().all(|(_, _, destination)| destination.rank.is_none()), "every destination has its source");
    edges
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
}

const VARIANTS: [(Variant, Collective); 5] = [
    (Variant::Allgather, Collective::NeighborAllgather),
    (Variant::Allgatherv, Collective::NeighborAllgatherv),
    (Variant::Alltoall, Collective::NeighborAlltoall),
    (Variant::Alltoallv, Collective::NeighborAlltoallv),
    (Variant::Alltoallw, Collective::NeighborAlltoallw),
];

fn check(world: &[Neighbours], variant: Variant, collective: Collective, seed: u64) {
    let mut chance = Chance::new(seed);
    let edges = edges(world);
    let gathering = matches!(variant, Variant::Allgather | Variant::Allgatherv);
    let even = matches!(variant, Variant::Allgather | Variant::Alltoall);
    let common = chance.below(5) as u64;

    // Blocks to send, by rank and place; a gathering rank sends the same to all.
    let mut outgoing: Vec<Vec<Vec<u8>>> = Vec::new();
    for neighbours in world {
        let mut block = || {
            let count = if even { common } else { chance.below(6) as u64 };
            chance.bytes(count as usize * ELEMENT)
        };
        let degree = neighbours.destinations().len();
        let blocks = if gathering { vec![block(); degree.max(1)] } else { (0..degree).map(|_| block()).collect() };
        outgoing.push(blocks);
    }
    // Blocks to receive; where a grid ends, room that stays as it is.
    let mut incoming: Vec<Vec<Option<Vec<u8>>>> = world.iter().map(|n| vec![None; n.sources().len()]).collect();
    for edge in &edges {
        incoming[edge.to.0][edge.to.1] = Some(outgoing[edge.from.0][edge.from.1].clone());
    }

    let (mut members, mut expected) = (Vec::new(), Vec::new());
    for (rank, neighbours) in world.iter().enumerate() {
        let count = |block: &[u8]| (block.len() / ELEMENT) as u64;
        let send_counts: Vec<u64> = outgoing[rank].iter().map(|block| count(block)).collect();
        let recv_counts: Vec<u64> = (incoming[rank].iter())
            .map(|block| block.as_deref().map_or(if even { common } else { 2 }, count))
            .collect();
        let mut side = |counts: &[u64]| match variant {
            Variant::Alltoallw => Side::typed(counts, &mut chance),
            Variant::Alltoall | Variant::Allgather => Side::even(counts.len(), common, &mut chance),
            Variant::Alltoallv | Variant::Allgatherv => Side::listed(counts, &mut chance),
        };
        let recv = side(&recv_counts);
        let send = if gathering { Side::even(1, send_counts[0], &mut chance) } else { side(&send_counts) };
        let neighbours = neighbours.clone();
        let whole = |side: &Side, count| Data::new(count, side.one_type().shape());
        let call = match variant {
            Variant::Allgather => Call::NeighborAllgather(NeighborAllgather {
                neighbours,
                send: whole(&send, common),
                recv: whole(&recv, common),
            }),
            Variant::Allgatherv => Call::NeighborAllgatherv(NeighborAllgatherv {
                neighbours,
                send: whole(&send, send_counts[0]),
                recv: recv.vector(),
            }),
            Variant::Alltoall => Call::NeighborAlltoall(NeighborAlltoall {
                neighbours,
                send: whole(&send, common),
                recv: whole(&recv, common),
            }),
            Variant::Alltoallv => {
                Call::NeighborAlltoallv(NeighborAlltoallv { neighbours, send: send.vector(), recv: recv.vector() })
            }
            Variant::Alltoallw => {
                Call::NeighborAlltoallw(NeighborAlltoallw { neighbours, send: send.parts(), recv: recv.parts() })
            }
        };
        let mut member = Member::new(call);
        member.send = send.memory();
        send.write(&mut member.send, if gathering { &outgoing[rank][..1] } else { &outgoing[rank] });
        member.recv = recv.memory();
        let arriving: Vec<Vec<u8>> = incoming[rank].iter().map(|block| block.clone().unwrap_or_default()).collect();
        let mut result: Memory = member.recv.clone();
        recv.write(&mut result, &arriving);
        (member.send_type, member.recv_type) = (send.one_type(), recv.one_type());
        (member.send_types, member.recv_types) = (send.types, recv.types);
        members.push(member);
        expected.push(result);
    }
    for selection in selections(collective) {
        expect(members.clone(), expected.clone(), &selection, some_sends(&mut chance), seed);
    }
}

/// The neighbours of all ranks of a grid, row by row.
fn grid(extents: &[u32], periodic: bool) -> Vec<Neighbours> {
    let size: u32 = extents.iter().product();
    let at = |rank: u32| {
        let mut stride = size;
        let along: Vec<_> = (extents.iter())
            .map(|&extent| {
                stride /= extent;
                let here = rank / stride % extent;
                let step = |by: i64| {
                    let there = i64::from(here) + by;
                    let inside = (0..i64::from(extent)).contains(&there);
                    let there = there.rem_euclid(i64::from(extent)) as u32;
                    (inside || periodic).then(|| rank - here * stride + there * stride)
                };
                (step(-1), step(1))
            })
            .collect();
        Neighbours::cartesian(&along)
    };
    (0..size).map(at).collect()
}

#[test]
fn grids() {
    for extents in [&[1][..], &[2], &[5], &[2, 3], &[1, 4], &[2, 2, 2], &[3, 4]] {
        for periodic in [false, true] {
            for (variant, collective) in VARIANTS {
                for seed in 0..4 {
                    check(&grid(extents, periodic), variant, collective, seed);
                }
            }
        }
    }
}

#[test]
fn what_goes_up_in_a_ring_of_two_comes_from_below() {
    // Both neighbours are the same rank; the block for the one after arrives as from the one before.
    let ty = SimType::contiguous(1);
    let block = Data::new(1, ty.shape());
    let members: Vec<Member> = (0u8..2)
        .map(|rank| {
            let other = Some(u32::from(1 - rank));
            let neighbours = Neighbours::cartesian(&[(other, other)]);
            let call = NeighborAlltoall { neighbours, send: block, recv: block };
            let mut member = Member::new(Call::NeighborAlltoall(call));
            member.send.write(&ty, 0, &[10 * rank, 10 * rank + 1]);
            member
        })
        .collect();
    let outcome = crate::world::run(members, &Default::default(), crate::world::Sends::Synchronous, 1);
    assert_eq!(outcome.members[0].recv.read(&ty, 0, 2), [11, 10]);
    assert_eq!(outcome.members[1].recv.read(&ty, 0, 2), [1, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn graphs(size in 1usize..7, edges in prop::collection::vec((0usize..7, 0usize..7), 0..20), seed in any::<u64>()) {
        let mut sources = vec![Vec::new(); size];
        let mut destinations = vec![Vec::new(); size];
        for (from, to) in edges {
            destinations[from % size].push((to % size) as u32);
            sources[to % size].push((from % size) as u32);
        }
        let lists = sources.iter().zip(&destinations);
        let world: Vec<Neighbours> = lists.map(|(from, to)| Neighbours::graph(from, to)).collect();
        for (variant, collective) in VARIANTS {
            check(&world, variant, collective, seed);
        }
    }
}

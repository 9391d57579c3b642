//! Two groups at a time, and graphs told by anybody: random cases against plain lists.

mod common;

use std::sync::Arc;

use common::*;
use datatype::{Op, PredefinedOp};
use mpi_core::collective::{Arguments, Reduction};
use mpi_core::constants::UNDEFINED;
use mpi_core::topology::{Edges, Topology};
use mpi_core::{Comm, ErrorClass, World};
use proptest::prelude::*;

/// The sum over the other group, as a proof that messages cross in both directions.
fn sum_of_others(world: &World, comm: &Comm, value: i32) -> i32 {
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

/// World ranks of one group in the order of their ranks there.
fn ranks(group: &mpi_core::group::Group) -> Vec<u32> {
    group.peers().collect()
}

/// Members of `side` ordered by key, then by world rank.
fn ordered(sides: &[bool], keys: &[i32], side: bool) -> Vec<u32> {
    let mut members: Vec<u32> = (0..).zip(sides).filter(|(_, own)| **own == side).map(|(rank, _)| rank).collect();
    members.sort_by_key(|rank| (keys[*rank as usize], *rank));
    members
}

/// Checks groups and traffic of an intercommunicator of which each side's members are known.
fn expect(world: &World, inter: &Comm, own: &[u32], other: &[u32]) {
    assert!(inter.is_inter());
    assert_eq!(ranks(inter.group()), own);
    assert_eq!(ranks(inter.remote_group().unwrap()), other);
    assert_eq!(own[inter.rank() as usize], world.peer());
    let sum: i32 = other.iter().map(|rank| 1 << rank).sum();
    assert_eq!(sum_of_others(world, inter, 1 << world.peer()), sum);
}

/// Makes an intercommunicator of the two sides, each led by member number `leader` of it.
fn connect(world: &World, sides: &[bool], keys: &[i32], leader: usize, tag: i32) -> (Arc<Comm>, Vec<u32>, Vec<u32>) {
    let me = world.peer() as usize;
    let (own, other) = (ordered(sides, keys, sides[me]), ordered(sides, keys, !sides[me]));
    let local = world.comm_split(world.comm_world(), i32::from(sides[me]), keys[me]).unwrap().unwrap();
    let local_leader = leader % own.len();
    let remote_leader = other[leader % other.len()] as i32;
    let peer = (local.rank() as usize == local_leader).then_some((world.comm_world(), remote_leader));
    let inter = world.intercomm_create(&local, local_leader as i32, peer, tag).unwrap();
    (inter, own, other)
}

fn check(sides: &[bool], keys: &[i32], colours: &[i32], leader: usize, few_ids: bool) {
    run(sides.len() as u32, |world| {
        if few_ids {
            world.limit_context_ids(12 * sides.len() as u32);
        }
        let me = world.peer() as usize;
        for round in 0..if few_ids { 12 } else { 2 } {
            let (inter, own, other) = connect(world, sides, keys, leader + round, round as i32);
            expect(world, &inter, &own, &other);
            let copy = world.comm_dup(&inter).unwrap();
            expect(world, &copy, &own, &other);

            let of_colour = |members: &[u32]| {
                let mut members: Vec<u32> = members.to_vec();
                members.retain(|rank| colours[*rank as usize] == colours[me]);
                members.reverse();
                members
            };
            let (part_own, part_other) = (of_colour(&own), of_colour(&other));
            let key = -(inter.rank() as i32);
            let part = world.comm_split(&inter, colours[me], key).unwrap();
            let is_there = colours[me] != UNDEFINED && !part_other.is_empty();
            assert_eq!(part.is_some(), is_there);
            if let Some(part) = part {
                expect(world, &part, &part_own, &part_other);
            }

            let high = sides[me];
            let merged = world.intercomm_merge(&inter, high).unwrap();
            let (low, high) = if high { (&other, &own) } else { (&own, &other) };
            assert_eq!(ranks(merged.group()), [low.as_slice(), high].concat());
            assert_eq!(sum_of_others(world, &merged, 1), sides.len() as i32);
        }
    });
}

#[test]
fn wrong_groups_are_refused() {
    run(2, |world| {
        let (all, own) = (world.comm_world(), world.comm_self());
        let class = |result: mpi_core::Result<Arc<Comm>>| result.unwrap_err().class;
        // Both processes are in both groups.
        let leads = (world.peer() == 0).then_some((all, 0));
        assert_eq!(class(world.intercomm_create(all, 0, leads, 3)), ErrorClass::Comm);
        assert_eq!(class(world.intercomm_create(own, 1, None, 3)), ErrorClass::Rank);
        assert_eq!(class(world.intercomm_create(own, 0, Some((all, 2)), 3)), ErrorClass::Rank);
        assert_eq!(class(world.intercomm_create(own, 0, Some((all, 0)), -3)), ErrorClass::Tag);
        assert_eq!(class(world.intercomm_merge(all, true)), ErrorClass::Comm);
        let inter = world.intercomm_create(own, 0, Some((all, 1 - world.peer() as i32)), 3).unwrap();
        assert_eq!(class(world.intercomm_create(&inter, 0, None, 3)), ErrorClass::Comm);
        assert_eq!(world.cart_create(&inter, &[1], &[true]).unwrap_err().class, ErrorClass::Comm);
        assert_eq!(world.comm_create_group(&inter, own.group(), 0).unwrap_err().class, ErrorClass::Comm);
        // An intercommunicator introduces leaders as well as any other.
        let again = world.intercomm_create(own, 0, Some((&inter, 0)), 3).unwrap();
        expect(world, &again, &[world.peer()], &[1 - world.peer()]);
    });
}

/// Every process names some edges; both ends of each learn of it, in an order that fits.
fn check_graph(size: u32, told: &[Vec<(i32, i32, i32)>]) {
    run(size, |world| {
        let mine = &told[world.peer() as usize];
        let sources: Vec<i32> = mine.iter().map(|edge| edge.0).collect();
        let destinations = Edges {
            ranks: mine.iter().map(|edge| edge.1).collect(),
            weights: Some(mine.iter().map(|edge| edge.2).collect()),
        };
        let degrees = vec![1; mine.len()];
        let comm = world.dist_graph_create(world.comm_world(), &sources, &degrees, &destinations, None).unwrap();
        let Some(Topology::Distributed(graph)) = comm.topology() else { panic!("a graph was made") };
        let me = world.peer() as i32;
        let list = |edges: &Edges| -> Vec<(i32, i32)> {
            edges.ranks.iter().copied().zip(edges.weights.iter().flatten().copied()).collect()
        };
        let all = told.iter().flatten();
        let reaching: Vec<_> = all.clone().filter(|edge| edge.1 == me).map(|edge| (edge.0, edge.2)).collect();
        let leaving: Vec<_> = all.filter(|edge| edge.0 == me).map(|edge| (edge.1, edge.2)).collect();
        assert_eq!(list(graph.sources()), reaching);
        assert_eq!(list(graph.destinations()), leaving);

        // What is sent along an edge, its weight, is what arrives along it.
        let mut out: Vec<i32> = leaving.iter().map(|edge| edge.1).collect();
        let mut arrived = vec![-1; reaching.len()];
        let (send, recv) = (blocks_of(memory(&mut out), 1), blocks_of(room(&mut arrived), 1));
        world.collective(&comm, &Arguments::NeighborAlltoall { send, recv }).unwrap();
        assert_eq!(arrived, reaching.iter().map(|edge| edge.1).collect::<Vec<_>>());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_two_groups(
        members in prop::collection::vec((any::<bool>(), -2..3, prop::sample::select(vec![0, 1, UNDEFINED])), 2..7),
        leader in 0usize..6,
        few_ids: bool,
    ) {
        let mut sides: Vec<bool> = members.iter().map(|member| member.0).collect();
        if sides.iter().all(|side| *side == sides[0]) {
            sides[0] = !sides[0];
        }
        let keys: Vec<i32> = members.iter().map(|member| member.1).collect();
        let colours: Vec<i32> = members.iter().map(|member| member.2).collect();
        check(&sides, &keys, &colours, leader, few_ids);
    }

    #[test]
    fn any_graph(size in 1u32..6, edges in prop::collection::vec((0u32..6, 0i32..6, 0i32..6, 0i32..99), 0..24)) {
        let mut told = vec![Vec::new(); size as usize];
        for (teller, from, to, weight) in edges {
            let size = size as i32;
            told[teller as usize % size as usize].push((from % size, to % size, weight));
        }
        check_graph(size, &told);
    }
}

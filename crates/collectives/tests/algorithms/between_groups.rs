//! Collectives over two groups.

use collectives::{
    Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast, BuildError, Call, Collective,
    Data, Gather, Gatherv, Inter, Place, Reduce, ReduceScatter, ReduceScatterBlock, Scan, Scatter, Scatterv, Selection,
    Side as Part, Vector,
};

use crate::all_to_all::{Side, some_sends};
use crate::memory::{Chance, Memory, SimType};
use crate::operations::Operation;
use crate::selections;
use crate::world::{Member, run_groups};

/// Bytes of an element that is moved, and of one that is reduced.
const ELEMENT: usize = 4;
const REDUCED: usize = 8;

/// Sizes of the two groups.
const GROUPS: [(u32, u32); 11] =
    [(1, 1), (1, 2), (2, 1), (2, 2), (1, 5), (5, 1), (3, 4), (4, 3), (8, 3), (7, 7), (20, 40)];

/// Two groups, all ranks in one row.
#[derive(Clone, Copy)]
struct Groups {
    left: u32,
    right: u32,
}

impl Groups {
    fn all() -> impl Iterator<Item = Groups> {
        GROUPS.into_iter().map(|(left, right)| Groups { left, right })
    }

    fn size(self) -> u32 {
        self.left + self.right
    }

    fn is_left(self, member: u32) -> bool {
        member < self.left
    }

    /// The members of the same group as `member`.
    fn own(self, member: u32) -> std::ops::Range<u32> {
        if self.is_left(member) { 0..self.left } else { self.left..self.size() }
    }

    /// The members of the other group.
    fn other(self, member: u32) -> std::ops::Range<u32> {
        if self.is_left(member) { self.left..self.size() } else { 0..self.left }
    }

    fn call(self, member: u32, side: Part, call: Call) -> Call {
        Call::Inter(Box::new(Inter { remote_size: self.other(member).len() as u32, side, call }))
    }

    /// What a member has to do with a root, and the root's rank in its group.
    fn side(self, member: u32, root: u32) -> (Part, u32) {
        let number = root - self.own(root).start;
        match self.is_left(member) == self.is_left(root) {
            _ if member == root => (Part::Root, number),
            true => (Part::Beside, number),
            false => (Part::Opposite, number),
        }
    }

    fn check(self, members: Vec<Member>, expected: &[Memory], selection: &Selection, seed: u64) {
        let sends = some_sends(&mut Chance::new(seed));
        let outcome = run_groups(members, self.left, selection, sends, seed);
        for (number, member) in outcome.members.iter().enumerate() {
            let schedule = &outcome.schedules[number];
            let same = member.recv == expected[number];
            assert!(same, "member {number} of {} and {}, seed {seed}\n{schedule}", self.left, self.right);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Bcast,
}

impl Move {
    const ACROSS: [Move; 5] = [Move::Allgather, Move::Allgatherv, Move::Alltoall, Move::Alltoallv, Move::Alltoallw];
    const ROOTED: [Move; 5] = [Move::Gather, Move::Gatherv, Move::Scatter, Move::Scatterv, Move::Bcast];

    /// Whether all blocks of a buffer have one size.
    fn is_even(self) -> bool {
        matches!(self, Move::Allgather | Move::Alltoall | Move::Gather | Move::Scatter | Move::Bcast)
    }

    /// Whether one block goes to all.
    fn repeats(self) -> bool {
        matches!(self, Move::Allgather | Move::Allgatherv | Move::Bcast)
    }

    fn call(self, root: u32, send: &Side, recv: &Side) -> Call {
        let one = |side: &Side| match side.counts.first() {
            Some(&count) => Data::new(count, side.one_type().shape()),
            None => Data::none(),
        };
        let list = |side: &Side| if side.counts.is_empty() { Vector::none() } else { side.vector() };
        let in_place = false;
        match self {
            Move::Allgather => Call::Allgather(Allgather { in_place, send: one(send), recv: one(recv) }),
            Move::Allgatherv => Call::Allgatherv(Allgatherv { in_place, send: one(send), recv: list(recv) }),
            Move::Alltoall => Call::Alltoall(Alltoall { in_place, send: one(send), recv: one(recv) }),
            Move::Alltoallv => Call::Alltoallv(Alltoallv { in_place, send: list(send), recv: list(recv) }),
            Move::Alltoallw => Call::Alltoallw(Alltoallw { in_place, send: send.parts(), recv: recv.parts() }),
            Move::Gather => Call::Gather(Gather { root, in_place, send: one(send), recv: one(recv) }),
            Move::Gatherv => Call::Gatherv(Gatherv { root, in_place, send: one(send), recv: list(recv) }),
            Move::Scatter => Call::Scatter(Scatter { root, in_place, send: one(send), recv: one(recv) }),
            Move::Scatterv => Call::Scatterv(Scatterv { root, in_place, send: list(send), recv: one(recv) }),
            Move::Bcast => Call::Bcast(Bcast { root, data: one(recv) }),
        }
    }
}

/// Moves blocks between the groups: all of them, or those from or to the root.
fn check_move(what: Move, groups: Groups, root: Option<u32>, selection: &Selection, seed: u64) {
    let mut chance = Chance::new(seed);
    let size = groups.size();
    let even = [chance.below(5), chance.below(5)];
    // A block from each member to each of the other group; in the two directions of different size.
    let goes = |from: u32, to: u32| {
        groups.is_left(from) != groups.is_left(to)
            && match (what, root) {
                (Move::Gather | Move::Gatherv, Some(root)) => to == root,
                (_, Some(root)) => from == root,
                (_, None) => true,
            }
    };
    let mut blocks: Vec<Vec<Vec<u8>>> = vec![vec![Vec::new(); size as usize]; size as usize];
    for from in 0..size {
        let direction = if root.is_some() || what == Move::Alltoall { 0 } else { usize::from(groups.is_left(from)) };
        let mut block = || {
            let count = if what.is_even() { even[direction] } else { chance.below(5) };
            chance.bytes(count * ELEMENT)
        };
        let repeated = block();
        for to in (0..size).filter(|to| goes(from, *to)) {
            blocks[from as usize][to as usize] = if what.repeats() { repeated.clone() } else { block() };
        }
    }
    let (mut members, mut expected) = (Vec::new(), Vec::new());
    for member in 0..size {
        let mut leaving: Vec<Vec<u8>> =
            (0..size).filter(|to| goes(member, *to)).map(|to| blocks[member as usize][to as usize].clone()).collect();
        if what.repeats() {
            leaving.truncate(1);
        }
        let arriving: Vec<Vec<u8>> = (0..size)
            .filter(|from| goes(*from, member))
            .map(|from| blocks[from as usize][member as usize].clone())
            .collect();
        let mut side = |contents: &[Vec<u8>]| {
            let counts: Vec<u64> = contents.iter().map(|block| (block.len() / ELEMENT) as u64).collect();
            match what {
                Move::Alltoallw => Side::typed(&counts, &mut chance),
                _ if what.is_even() => Side::even(counts.len(), counts.first().copied().unwrap_or(0), &mut chance),
                _ => Side::listed(&counts, &mut chance),
            }
        };
        // A single block begins where its buffer does.
        let single = what.repeats() || matches!(what, Move::Gatherv) || arriving.len() == 1;
        let send = if leaving.len() == 1 && (what.repeats() || what == Move::Gatherv) {
            Side::even(1, (leaving[0].len() / ELEMENT) as u64, &mut Chance::new(seed ^ 77))
        } else {
            side(&leaving)
        };
        let recv = if single && what == Move::Scatterv {
            Side::even(1, (arriving[0].len() / ELEMENT) as u64, &mut Chance::new(seed ^ 78))
        } else {
            side(&arriving)
        };
        let (part, number) = root.map_or((Part::Both, 0), |root| groups.side(member, root));
        // The root of a broadcast sends from its one buffer.
        let (send, recv, from_recv) =
            if what == Move::Bcast && part == Part::Root { (recv, send, true) } else { (send, recv, false) };
        let mut it = Member::new(groups.call(member, part, what.call(number, &send, &recv)));
        it.send = send.memory();
        it.recv = recv.memory();
        if from_recv {
            recv.write(&mut it.recv, &leaving);
        } else {
            send.write(&mut it.send, &leaving);
        }
        let mut result = it.recv.clone();
        recv.write(&mut result, &arriving);
        (it.send_type, it.recv_type) = (send.one_type(), recv.one_type());
        (it.send_types, it.recv_types) = (send.types, recv.types);
        members.push(it);
        expected.push(result);
    }
    groups.check(members, &expected, selection, seed);
}

#[test]
fn blocks_go_across() {
    for groups in Groups::all() {
        for what in Move::ACROSS {
            for seed in 0..8 {
                check_move(what, groups, None, &Selection::default(), seed);
            }
        }
    }
}

#[test]
fn blocks_go_from_and_to_roots_in_either_group() {
    for groups in Groups::all() {
        for what in Move::ROOTED {
            for root in [0, groups.left - 1, groups.left, groups.size() - 1] {
                for seed in 0..4 {
                    check_move(what, groups, Some(root), &Selection::default(), seed);
                }
            }
        }
    }
}

#[test]
fn any_broadcast_serves_the_receiving_group() {
    for selection in selections(Collective::Bcast) {
        check_move(Move::Bcast, Groups { left: 2, right: 9 }, Some(1), &selection, 3);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    Reduce(u32),
    Allreduce,
    Scatter,
    ScatterBlock,
}

/// Combines `count` elements per member (per member of the smaller group for blocks) in rank order.
fn check_reduction(what: Reduction, groups: Groups, count: u64, operation: Operation, seed: u64) {
    let mut chance = Chance::new(seed);
    // Elements of the result of each member of both groups: equal sums, for scattered ones.
    let mut results = vec![count; groups.size() as usize];
    let total = match what {
        Reduction::ScatterBlock => count * u64::from(groups.left) * u64::from(groups.right),
        Reduction::Scatter => count * 3 + 1,
        _ => count,
    };
    for group in [0..groups.left, groups.left..groups.size()] {
        let (mut rest, members) = (total, group.len() as u64);
        for member in group.clone() {
            let result = &mut results[member as usize];
            match what {
                Reduction::ScatterBlock => *result = total / members,
                Reduction::Scatter if member + 1 == group.end => *result = rest,
                Reduction::Scatter => *result = chance.below(rest as usize + 1) as u64,
                _ => {}
            }
            rest = rest.saturating_sub(*result);
        }
    }
    let inputs: Vec<Vec<u8>> =
        (0..groups.size()).map(|_| operation.input(chance.bytes(total as usize * REDUCED))).collect();
    let ty = SimType::kinds(REDUCED)[chance.below(3)].clone();
    let (in_place, commutative, shape) = (false, operation.commutative(), ty.shape());
    let (mut members, mut expected) = (Vec::new(), Vec::new());
    for member in 0..groups.size() {
        let own = groups.own(member);
        let sent = &inputs[groups.other(member).start as usize..groups.other(member).end as usize];
        let whole = operation.fold(sent.iter().map(Vec::as_slice)).unwrap();
        let before: u64 = results[own.start as usize..member as usize].iter().sum();
        let counts = results[own.start as usize..own.end as usize].to_vec();
        let data = |count| Data::new(count, shape);
        let (side, call, result) = match what {
            Reduction::Reduce(root) => {
                let (side, number) = groups.side(member, root);
                let call = Call::Reduce(Reduce { root: number, in_place, commutative, data: data(count) });
                (side, call, if side == Part::Root { whole.as_slice() } else { &[] })
            }
            Reduction::Allreduce => {
                let call = Call::Allreduce(Allreduce { in_place, commutative, data: data(count) });
                (Part::Both, call, whole.as_slice())
            }
            Reduction::Scatter | Reduction::ScatterBlock => {
                let mine = results[member as usize];
                let call = match what {
                    Reduction::Scatter => Call::ReduceScatter(ReduceScatter { in_place, commutative, counts, shape }),
                    _ => Call::ReduceScatterBlock(ReduceScatterBlock { in_place, commutative, data: data(mine) }),
                };
                let part = before as usize * REDUCED..(before + mine) as usize * REDUCED;
                (Part::Both, call, &whole[part])
            }
        };
        let mut it = Member { operation, ..Member::new(groups.call(member, side, call)) };
        it.send = Memory::new(&ty, 0, total);
        it.send.write(&ty, 0, &inputs[member as usize]);
        it.recv = Memory::new(&ty, 0, total);
        (it.send_type, it.recv_type) = (ty.clone(), ty.clone());
        let mut memory = it.recv.clone();
        memory.write(&ty, 0, result);
        members.push(it);
        expected.push(memory);
    }
    groups.check(members, &expected, &Selection::default(), seed);
}

#[test]
fn each_group_gets_what_the_other_has_reduced() {
    for groups in Groups::all() {
        for operation in [Operation::Matrix, Operation::Sum] {
            for count in [0, 1, 5] {
                let seed = u64::from(groups.size()) * 10 + count;
                for root in [0, groups.left - 1, groups.left, groups.size() - 1] {
                    check_reduction(Reduction::Reduce(root), groups, count, operation, seed);
                }
                for what in [Reduction::Allreduce, Reduction::Scatter, Reduction::ScatterBlock] {
                    check_reduction(what, groups, count, operation, seed);
                }
            }
        }
    }
}

#[test]
fn a_barrier_is_a_tree_over_both_groups() {
    for groups in Groups::all() {
        let of = |member| groups.call(member, Part::Both, Call::Barrier(Barrier));
        let members: Vec<Member> = (0..groups.size()).map(|member| Member::new(of(member))).collect();
        // Everybody's release depends on a message from the other group, and that on all of it.
        let outcome = run_groups(members, groups.left, &Selection::default(), Default::default(), 5);
        let sent: usize = outcome.schedules.iter().map(|schedule| schedule.messages_sent()).sum();
        let edges = groups.left - 1 + groups.right - 1 + 1;
        assert_eq!(sent, 2 * edges as usize, "up and down every edge of a tree over all");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place { rank: 0, size: 2 };
    let data = Data::none();
    let build = |side, call| {
        let inter = Inter { remote_size: 3, side, call };
        collectives::build(place, &Call::Inter(Box::new(inter)), &Selection::default()).map(drop)
    };
    let bcast = |root| Call::Bcast(Bcast { root, data });
    assert!(matches!(build(Part::Opposite, bcast(3)), Err(BuildError::RootOutOfRange { root: 3, size: 3, .. })));
    assert!(build(Part::Opposite, bcast(2)).is_ok());
    let scan = Call::Scan(Scan { in_place: false, commutative: true, data });
    assert!(matches!(build(Part::Both, scan), Err(BuildError::NotBetweenGroups { collective: Collective::Scan })));
    let short = Call::Allgatherv(Allgatherv { in_place: false, send: data, recv: Vector::none() });
    assert!(matches!(build(Part::Both, short), Err(BuildError::ListLength { expected_count: 3, .. })));
}

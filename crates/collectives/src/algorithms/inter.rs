//! Collectives over two groups: each group's part within itself, and messages between the groups.
//!
//! ```text
//! group        remote group
//! 0 <──────────► 0          leaders exchange what a group has made together
//! │╲            ╱│          (barrier, allreduce, reduce-scatter)
//! 1 2          2 1
//!
//! root ────────► 0 ─► 1 2   rooted calls: down the group that receives (broadcast), or up the group
//!                           that sends (reduce), or straight to and from everyone (gather, scatter)
//!
//! 0 1 2 ══════ 0 1 2        everyone with everyone across (allgather, all-to-all)
//! ```
//!
//! Peer `size + r` is rank `r` of the remote group. Messages between the groups have tag offset 0
//! whatever phase either group is in: nobody of the other group sends anything else.
//!
//! In exchanges across, rank `a` and remote rank `b` meet in step `a + b` round the larger group, at
//! both ends, so that no window of messages under way closes a circle of waits.
//!
//! Cost: that of the call within a group, and `α + n β` between leaders; for exchanges across
//! `q (α + n β)` with `q` ranks in the remote group.
//!
//! Source: textbook.

use crate::algorithms::bcast;
use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::layout::Layout;
use crate::algorithms::common::tree::Tree;
use crate::algorithms::reduce::binomial::up_tree;
use crate::builder::Builder;
use crate::call::{Bcast, Call, Inter, Side};
use crate::collective::Collective;
use crate::data::{Data, Part, Place};
use crate::error::BuildError;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::Selection;

/// Messages under way at once in exchanges across.
const WINDOW: u64 = 64;
/// Messages between groups are told apart by their ends alone.
const ACROSS: u32 = 0;

/// Checks ranks and lists, and that all offsets can be computed in 64 bits.
pub(crate) fn check(place: Place, inter: &Inter) -> Result<(), BuildError> {
    let remote = inter.remote_size;
    let collective = inter.call.collective();
    let (receives, sends) = (["receive counts", "receive displacements"], ["send counts", "send displacements"]);
    let root = |root: u32| match inter.side {
        Side::Opposite if root >= remote => Err(BuildError::RootOutOfRange { collective, root, size: remote }),
        _ => Ok(()),
    };
    let at_root = inter.side == Side::Root;
    match &inter.call {
        _ if inter.side == Side::Beside => Ok(()),
        Call::Barrier(_) => Ok(()),
        Call::Bcast(call) => root(call.root).and_then(|()| call.data.check(collective, "the buffer", 1)),
        Call::Gather(call) if at_root => call.recv.check(collective, "the receive buffer", remote),
        Call::Gather(call) => root(call.root).and_then(|()| call.send.check(collective, "the send buffer", 1)),
        Call::Gatherv(call) if at_root => call.recv.check(collective, receives, remote as usize),
        Call::Gatherv(call) => root(call.root).and_then(|()| call.send.check(collective, "the send buffer", 1)),
        Call::Scatter(call) if at_root => call.send.check(collective, "the send buffer", remote),
        Call::Scatter(call) => root(call.root).and_then(|()| call.recv.check(collective, "the receive buffer", 1)),
        Call::Scatterv(call) if at_root => call.send.check(collective, sends, remote as usize),
        Call::Scatterv(call) => root(call.root).and_then(|()| call.recv.check(collective, "the receive buffer", 1)),
        Call::Allgather(call) => {
            call.send.check(collective, "the send buffer", 1)?;
            call.recv.check(collective, "the receive buffer", remote)
        }
        Call::Allgatherv(call) => {
            call.send.check(collective, "the send buffer", 1)?;
            call.recv.check(collective, receives, remote as usize)
        }
        Call::Alltoall(call) => {
            call.send.check(collective, "the send buffer", remote)?;
            call.recv.check(collective, "the receive buffer", remote)
        }
        Call::Alltoallv(call) => {
            call.send.check(collective, sends, remote as usize)?;
            call.recv.check(collective, receives, remote as usize)
        }
        Call::Alltoallw(call) => {
            Part::check(&call.send, collective, sends[0], remote as usize)?;
            Part::check(&call.recv, collective, receives[0], remote as usize)
        }
        Call::Reduce(call) => root(call.root).and_then(|()| call.data.check(collective, "the buffer", 1)),
        Call::Allreduce(call) => call.data.check(collective, "the buffer", 1),
        Call::ReduceScatter(call) => crate::selection::CollectiveCall::check(call, place),
        Call::ReduceScatterBlock(call) => crate::selection::CollectiveCall::check(call, place),
        _ => Err(BuildError::NotBetweenGroups { collective }),
    }
}

/// Writes the steps of one rank for a call that [`check`] has passed.
pub(crate) fn append(b: &mut Builder, inter: &Inter, selection: &Selection) {
    let across = Across { remote_size: inter.remote_size };
    let at_root = inter.side == Side::Root;
    match &inter.call {
        _ if inter.side == Side::Beside => {}
        Call::Barrier(_) => across.barrier(b),
        Call::Bcast(call) => across.bcast(b, call, at_root, selection),
        Call::Gather(call) if at_root => across.recv_from_all(b, &Layout::even(BufferId::Recv, &call.recv)),
        Call::Gather(call) => across.send(b, call.root, own_send(&call.send)),
        Call::Gatherv(call) if at_root => across.recv_from_all(b, &Layout::listed(BufferId::Recv, &call.recv)),
        Call::Gatherv(call) => across.send(b, call.root, own_send(&call.send)),
        Call::Scatter(call) if at_root => across.send_to_all(b, &Layout::even(BufferId::Send, &call.send)),
        Call::Scatter(call) => across.recv(b, call.root, own_recv(&call.recv)),
        Call::Scatterv(call) if at_root => across.send_to_all(b, &Layout::listed(BufferId::Send, &call.send)),
        Call::Scatterv(call) => across.recv(b, call.root, own_recv(&call.recv)),
        Call::Allgather(call) => {
            let recv = Layout::even(BufferId::Recv, &call.recv);
            across.exchange(b, |_| own_send(&call.send), |remote| recv.block(remote));
        }
        Call::Allgatherv(call) => {
            let recv = Layout::listed(BufferId::Recv, &call.recv);
            across.exchange(b, |_| own_send(&call.send), |remote| recv.block(remote));
        }
        Call::Alltoall(call) => {
            across.transpose(b, Layout::even(BufferId::Send, &call.send), Layout::even(BufferId::Recv, &call.recv));
        }
        Call::Alltoallv(call) => {
            across.transpose(b, Layout::listed(BufferId::Send, &call.send), Layout::listed(BufferId::Recv, &call.recv));
        }
        Call::Alltoallw(call) => {
            across.transpose(b, Layout::typed(BufferId::Send, &call.send), Layout::typed(BufferId::Recv, &call.recv));
        }
        Call::Reduce(call) if at_root => across.recv(b, LEADER, whole(BufferId::Recv, &call.data)),
        Call::Reduce(call) => {
            let value = reduce_locally(b, call.data, call.commutative);
            if b.rank() == LEADER {
                across.send(b, call.root, value.whole());
            }
        }
        Call::Allreduce(call) => across.allreduce(b, &call.data, call.commutative),
        Call::ReduceScatter(call) => {
            let blocks = crate::algorithms::reduce_scatter::ScatteredReduction::offsets(call, b.size());
            across.reduce_scatter(b, call.shape, &blocks, call.commutative);
        }
        Call::ReduceScatterBlock(call) => {
            let blocks = crate::algorithms::reduce_scatter::ScatteredReduction::offsets(call, b.size());
            across.reduce_scatter(b, call.data.shape(), &blocks, call.commutative);
        }
        _ => unreachable!("the call was checked"),
    }
}

/// The rank of each group that speaks with the other group for it.
const LEADER: u32 = 0;

/// The way to the other group.
struct Across {
    remote_size: u32,
}

impl Across {
    fn send(&self, b: &mut Builder, remote: u32, region: Region) {
        b.send_tagged(b.size() + remote, ACROSS, region);
    }

    fn recv(&self, b: &mut Builder, remote: u32, region: Region) {
        b.recv_tagged(b.size() + remote, ACROSS, region);
    }

    fn recv_from_all(&self, b: &mut Builder, blocks: &Layout<'_>) {
        for remote in 0..self.remote_size {
            self.recv(b, remote, blocks.block(remote));
            b.wait_window(WINDOW);
        }
    }

    fn send_to_all(&self, b: &mut Builder, blocks: &Layout<'_>) {
        for remote in 0..self.remote_size {
            self.send(b, remote, blocks.block(remote));
            b.wait_window(WINDOW);
        }
    }

    fn transpose(&self, b: &mut Builder, send: Layout<'_>, recv: Layout<'_>) {
        self.exchange(b, |remote| send.block(remote), |remote| recv.block(remote));
    }

    /// A message to and one from every remote rank.
    fn exchange(&self, b: &mut Builder, send: impl Fn(u32) -> Region, recv: impl Fn(u32) -> Region) {
        let steps = b.size().max(self.remote_size);
        for step in 0..steps {
            let remote = crate::builder::ring(step, -i64::from(b.rank()), steps);
            if remote < self.remote_size {
                self.recv(b, remote, recv(remote));
                self.send(b, remote, send(remote));
                b.wait_window(WINDOW);
            }
        }
    }

    fn barrier(&self, b: &mut Builder) {
        let tree = Tree::binomial(b, LEADER);
        for &child in &tree.children {
            b.await_signal(child);
        }
        b.wait_all();
        let above = tree.parent.unwrap_or(b.size() + LEADER);
        b.signal(above);
        let released = b.await_signal(above);
        b.wait(released);
        for &child in &tree.children {
            b.signal(child);
        }
    }

    fn bcast(&self, b: &mut Builder, call: &Bcast, at_root: bool, selection: &Selection) {
        if at_root {
            return self.send(b, LEADER, whole(BufferId::Recv, &call.data));
        }
        if b.rank() == LEADER {
            self.recv(b, call.root, whole(BufferId::Recv, &call.data));
            b.wait_all();
        }
        let local = Bcast { root: LEADER, data: call.data };
        (selection.choose(b.place(), &local).build)(b, &local);
    }

    fn allreduce(&self, b: &mut Builder, data: &Data, commutative: bool) {
        let value = reduce_locally(b, *data, commutative);
        if b.rank() == LEADER {
            self.recv(b, LEADER, whole(BufferId::Recv, data));
            self.send(b, LEADER, value.whole());
            b.wait_all();
        }
        b.phase();
        bcast::binomial::append(b, LEADER, data);
    }

    /// `offsets` is where the block of each rank begins, and the end.
    fn reduce_scatter(&self, b: &mut Builder, shape: crate::data::TypeShape, offsets: &[u64], commutative: bool) {
        let data = Data::new(offsets[offsets.len() - 1], shape);
        let value = reduce_locally(b, data, commutative);
        b.phase();
        let count = |rank: u32| offsets[rank as usize + 1] - offsets[rank as usize];
        if b.rank() != LEADER {
            b.recv(LEADER, element_range(&data, BufferId::Recv, 0, count(b.rank())));
            return;
        }
        let result = b.temp_elements(data.count());
        self.recv(b, LEADER, whole(result, &data));
        self.send(b, LEADER, value.whole());
        b.wait_all();
        let block = |rank: u32| element_range(&data, result, offsets[rank as usize], count(rank));
        for rank in 1..b.size() {
            b.send(rank, block(rank));
            b.wait_window(WINDOW);
        }
        b.copy(block(LEADER), element_range(&data, BufferId::Recv, 0, count(LEADER)));
    }
}

/// Reduces the inputs of this group to its leader, in rank order, into temporary memory.
fn reduce_locally(b: &mut Builder, data: Data, commutative: bool) -> Accumulator {
    let order = if commutative { Order::Any } else { Order::ValueFirst };
    let mut value = Accumulator::new(data, false, false);
    up_tree(b, LEADER, &mut value, order);
    value
}

fn whole(buffer: BufferId, data: &Data) -> Region {
    element_range(data, buffer, 0, data.count())
}

fn own_send(data: &Data) -> Region {
    data.blocks(BufferId::Send, TypeSlot::Send, 0, 1)
}

fn own_recv(data: &Data) -> Region {
    data.blocks(BufferId::Recv, TypeSlot::Recv, 0, 1)
}

impl Call {
    /// The operation.
    fn collective(&self) -> Collective {
        match self {
            Call::Barrier(_) => Collective::Barrier,
            Call::Bcast(_) => Collective::Bcast,
            Call::Gather(_) => Collective::Gather,
            Call::Gatherv(_) => Collective::Gatherv,
            Call::Scatter(_) => Collective::Scatter,
            Call::Scatterv(_) => Collective::Scatterv,
            Call::Allgather(_) => Collective::Allgather,
            Call::Allgatherv(_) => Collective::Allgatherv,
            Call::Alltoall(_) => Collective::Alltoall,
            Call::Alltoallv(_) => Collective::Alltoallv,
            Call::Alltoallw(_) => Collective::Alltoallw,
            Call::Reduce(_) => Collective::Reduce,
            Call::Allreduce(_) => Collective::Allreduce,
            Call::ReduceScatter(_) => Collective::ReduceScatter,
            Call::ReduceScatterBlock(_) => Collective::ReduceScatterBlock,
            Call::Scan(_) => Collective::Scan,
            Call::Exscan(_) => Collective::Exscan,
            Call::NeighborAllgather(_) => Collective::NeighborAllgather,
            Call::NeighborAllgatherv(_) => Collective::NeighborAllgatherv,
            Call::NeighborAlltoall(_) => Collective::NeighborAlltoall,
            Call::NeighborAlltoallv(_) => Collective::NeighborAlltoallv,
            Call::NeighborAlltoallw(_) => Collective::NeighborAlltoallw,
            Call::Inter(inter) => inter.call.collective(),
        }
    }
}

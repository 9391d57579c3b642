//! From slices to the arguments of a collective.
//!
//! **Invariant**: what the arguments describe lies within the slices. Lengths are compared here, before anything is
//! lent; the floor below trusts them.

use mpi_core::collective::{Arguments, Buffer, Reduction};
use mpi_core::{Comm, ErrorClass};

use super::Blocks;
use crate::borrowed::{Borrowed, reading, writing};
use crate::communicator::Communicator;
use crate::element::Element;
use crate::op::Operation;
use crate::shared::Checked;

/// A collective ready to be carried out or started.
pub(crate) type Plan<'b> = Checked<Borrowed<'b, Arguments>>;

/// What plans are made for.
pub(crate) struct Planner<'c>(pub &'c Communicator<'c>);

impl Planner<'_> {
    pub fn barrier(&self) -> Plan<'static> {
        Ok(Borrowed::none(Arguments::Barrier))
    }

    pub fn broadcast<'b, T: Element>(&self, data: &'b mut [T], root: u32) -> Plan<'b> {
        let root = self.root(root)?;
        let buffer = self.buffer::<T, _>(data.len())?;
        Ok(writing(data).map(|memory| Arguments::Bcast { root, buffer: buffer(memory) }))
    }

    pub fn gather<'b, T: Element>(&self, data: &'b [T], all: &'b mut [T], root: u32) -> Plan<'b> {
        let (is_root, root) = (self.is_root(root), self.root(root)?);
        if is_root {
            self.expect_blocks("the gathered elements", all.len(), data.len())?;
        }
        let (send, recv) = (self.buffer::<T, _>(data.len())?, self.buffer::<T, _>(data.len())?);
        Ok(reading(data).with(writing(all)).map(|(data, all)| Arguments::Gather {
            root,
            send: Some(send(data)),
            recv: is_root.then(|| recv(all)),
        }))
    }

    pub fn gather_v<'b, T: Element>(&self, data: &'b [T], all: &'b mut [T], blocks: &Blocks, root: u32) -> Plan<'b> {
        let (is_root, root) = (self.is_root(root), self.root(root)?);
        let send = self.buffer::<T, _>(data.len())?;
        if !is_root {
            let gather = |memory| Arguments::Gatherv { root, send: Some(send(memory)), recv: None };
            return Ok(reading(data).map(gather));
        }
        let recv = blocks.of_mut(self.0.shared(), self.comm(), all)?;
        Ok(reading(data).with(recv).map(|(data, recv)| Arguments::Gatherv {
            root,
            send: Some(send(data)),
            recv: Some(recv),
        }))
    }

    pub fn scatter<'b, T: Element>(&self, all: &'b [T], data: &'b mut [T], root: u32) -> Plan<'b> {
        let (is_root, root) = (self.is_root(root), self.root(root)?);
        if is_root {
            self.expect_blocks("the elements to scatter", all.len(), data.len())?;
        }
        let (send, recv) = (self.buffer::<T, _>(data.len())?, self.buffer::<T, _>(data.len())?);
        Ok(reading(all).with(writing(data)).map(|(all, data)| Arguments::Scatter {
            root,
            send: is_root.then(|| send(all)),
            recv: Some(recv(data)),
        }))
    }

    pub fn scatter_v<'b, T: Element>(&self, all: &'b [T], blocks: &Blocks, data: &'b mut [T], root: u32) -> Plan<'b> {
        let (is_root, root) = (self.is_root(root), self.root(root)?);
        let recv = self.buffer::<T, _>(data.len())?;
        if !is_root {
            let scatter = |memory| Arguments::Scatterv { root, send: None, recv: Some(recv(memory)) };
            return Ok(writing(data).map(scatter));
        }
        let send = blocks.of(self.0.shared(), self.comm(), all)?;
        Ok(send.with(writing(data)).map(|(send, data)| Arguments::Scatterv {
            root,
            send: Some(send),
            recv: Some(recv(data)),
        }))
    }

    pub fn all_gather<'b, T: Element>(&self, data: &'b [T], all: &'b mut [T]) -> Plan<'b> {
        self.expect_blocks("the gathered elements", all.len(), data.len())?;
        let (send, recv) = (self.buffer::<T, _>(data.len())?, self.buffer::<T, _>(data.len())?);
        let gather = |(data, all)| Arguments::Allgather { send: Some(send(data)), recv: recv(all) };
        Ok(reading(data).with(writing(all)).map(gather))
    }

    pub fn all_gather_v<'b, T: Element>(&self, data: &'b [T], all: &'b mut [T], blocks: &Blocks) -> Plan<'b> {
        let send = self.buffer::<T, _>(data.len())?;
        let recv = blocks.of_mut(self.0.shared(), self.comm(), all)?;
        let gather = |(data, recv)| Arguments::Allgatherv { send: Some(send(data)), recv };
        Ok(reading(data).with(recv).map(gather))
    }

    pub fn all_to_all<'b, T: Element>(&self, out: &'b [T], into: &'b mut [T]) -> Plan<'b> {
        let block = out.len() / self.size();
        self.expect_blocks("the elements to send", out.len(), block)?;
        self.expect_blocks("the room to receive", into.len(), block)?;
        let (send, recv) = (self.buffer::<T, _>(block)?, self.buffer::<T, _>(block)?);
        let exchange = |(out, into)| Arguments::Alltoall { send: Some(send(out)), recv: recv(into) };
        Ok(reading(out).with(writing(into)).map(exchange))
    }

    pub fn all_to_all_v<'b, T: Element>(
        &self,
        out: &'b [T],
        out_blocks: &Blocks,
        into: &'b mut [T],
        into_blocks: &Blocks,
    ) -> Plan<'b> {
        let send = out_blocks.of(self.0.shared(), self.comm(), out)?;
        let recv = into_blocks.of_mut(self.0.shared(), self.comm(), into)?;
        Ok(send.with(recv).map(|(send, recv)| Arguments::Alltoallv { send: Some(send), recv }))
    }

    pub fn reduce<'b, T: Element>(
        &self,
        data: &'b [T],
        result: &'b mut [T],
        op: impl Operation<T>,
        root: u32,
    ) -> Plan<'b> {
        let (is_root, root) = (self.is_root(root), self.root(root)?);
        if is_root {
            expect_same(data.len(), result.len())?;
        }
        let mut data = self.reduction(Some(data), result, data.len(), op)?;
        if !is_root {
            data = data.map(|data| Reduction { result: None, ..data });
        }
        Ok(data.map(|data| Arguments::Reduce { root, data }))
    }

    pub fn all_reduce<'b, T: Element>(&self, data: &'b [T], result: &'b mut [T], op: impl Operation<T>) -> Plan<'b> {
        expect_same(data.len(), result.len())?;
        Ok(self.reduction(Some(data), result, data.len(), op)?.map(|data| Arguments::Allreduce { data }))
    }

    pub fn all_reduce_in_place<'b, T: Element>(&self, data: &'b mut [T], op: impl Operation<T>) -> Plan<'b> {
        let count = data.len();
        Ok(self.reduction(None, data, count, op)?.map(|data| Arguments::Allreduce { data }))
    }

    pub fn reduce_scatter_block<'b, T: Element>(
        &self,
        data: &'b [T],
        result: &'b mut [T],
        op: impl Operation<T>,
    ) -> Plan<'b> {
        self.expect_blocks("the elements to reduce", data.len(), result.len())?;
        let count = result.len();
        Ok(self.reduction(Some(data), result, count, op)?.map(|data| Arguments::ReduceScatterBlock { data }))
    }

    pub fn scan<'b, T: Element>(&self, data: &'b [T], result: &'b mut [T], op: impl Operation<T>) -> Plan<'b> {
        expect_same(data.len(), result.len())?;
        Ok(self.reduction(Some(data), result, data.len(), op)?.map(|data| Arguments::Scan { data }))
    }

    pub fn exscan<'b, T: Element>(&self, data: &'b [T], result: &'b mut [T], op: impl Operation<T>) -> Plan<'b> {
        expect_same(data.len(), result.len())?;
        Ok(self.reduction(Some(data), result, data.len(), op)?.map(|data| Arguments::Exscan { data }))
    }

    /// A reduction to `count` elements per block.
    fn reduction<'b, T: Element>(
        &self,
        data: Option<&'b [T]>,
        result: &'b mut [T],
        count: usize,
        op: impl Operation<T>,
    ) -> Checked<Borrowed<'b, Reduction>> {
        let reducer = op.reducer();
        let shared = self.0.shared();
        let (count, datatype) = if reducer.takes_whole {
            (count, shared.whole_type::<T>()?)
        } else {
            (count * T::LEAVES, shared.leaf_type::<T>()?)
        };
        let op = reducer.op;
        if !op.supports(&datatype) {
            return ErrorClass::Op.fail(format!("{op:?} is not defined for {}", std::any::type_name::<T>()));
        }
        let input = data.map_or(Borrowed::none(None), |data| reading(data).map(Some));
        Ok(input.with(writing(result)).map(|(input, result)| Reduction {
            input,
            result: Some(result),
            count: count as u64,
            datatype,
            op,
        }))
    }

    /// Makes a buffer of `count` elements from their memory.
    fn buffer<T: Element, M>(&self, count: usize) -> Checked<impl FnOnce(M) -> Buffer<M> + use<T, M>> {
        let datatype = self.0.shared().leaf_type::<T>()?;
        let count = (count * T::LEAVES) as u64;
        Ok(move |memory| Buffer { memory, count, datatype })
    }

    fn expect_blocks(&self, what: &str, len: usize, block: usize) -> Checked<()> {
        let size = self.size();
        if block.checked_mul(size) == Some(len) {
            return Ok(());
        }
        ErrorClass::Count.fail(format!("{what} on {} are {len}, not {block} for each of {size} ranks", self.comm()))
    }

    fn root(&self, root: u32) -> Checked<i32> {
        let size = self.0.size();
        if root < size {
            return Ok(root as i32);
        }
        ErrorClass::Root.fail(format!("root {root} is no rank of {}, whose size is {size}", self.comm()))
    }

    fn is_root(&self, root: u32) -> bool {
        root == self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size() as usize
    }

    fn comm(&self) -> &Comm {
        self.0.comm()
    }
}

fn expect_same(data: usize, result: usize) -> Checked<()> {
    if data == result {
        return Ok(());
    }
    ErrorClass::Count.fail(format!("{data} elements cannot be reduced into a slice of {result}"))
}

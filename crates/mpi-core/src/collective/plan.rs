//! From the user's arguments to a schedule and the memory it runs on.

use std::sync::Arc;

use collectives::{BuildError, Call, Data, Part, Schedule, TypeShape, Vector};
use datatype::{Datatype, Op, UserMemory, UserMemoryMut};

use super::arguments::{Arguments, Blocks, Buffer, Parts, Reduction};
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};

/// What a schedule's symbols stand for.
#[derive(Clone, Default)]
pub(crate) struct Binding {
    pub send: Option<UserMemory>,
    pub recv: Option<UserMemoryMut>,
    pub send_type: Option<Arc<Datatype>>,
    pub recv_type: Option<Arc<Datatype>>,
    pub part_types: Option<Box<PartTypes>>,
    pub op: Option<Op>,
}

/// The types of blocks that differ in type.
#[derive(Clone, Default)]
pub(crate) struct PartTypes {
    pub send: Vec<Arc<Datatype>>,
    pub recv: Vec<Arc<Datatype>>,
}

/// A collective call made ready: what to do, and on what memory.
#[derive(Clone)]
pub(crate) struct Plan {
    pub schedule: Arc<Schedule>,
    pub binding: Binding,
}

impl Plan {
    /// Checks the arguments and finds or writes the schedule of this rank.
    pub fn new(comm: &Comm, arguments: Arguments) -> Result<Plan> {
        let mut binding = Binding::default();
        let call = translate(comm, arguments, &mut binding)?;
        let schedule = comm.schedules().schedule(&call).map_err(build_error)?;
        Ok(Plan { schedule, binding })
    }
}

/// The schedule's view of the arguments; memory and types go into `binding`.
fn translate(comm: &Comm, arguments: Arguments, binding: &mut Binding) -> Result<Call> {
    let b = binding;
    Ok(match arguments {
        Arguments::Barrier => Call::Barrier(collectives::Barrier),
        Arguments::Bcast { root, buffer } => {
            let data = b.recv(Some(buffer));
            Call::Bcast(collectives::Bcast { root: root_rank(comm, root)?, data })
        }
        Arguments::Gather { root, send, recv } => {
            let (root, in_place) = (root_rank(comm, root)?, send.is_none());
            Call::Gather(collectives::Gather { root, in_place, send: b.send(send), recv: b.recv(recv) })
        }
        Arguments::Gatherv { root, send, recv } => {
            let (root, in_place) = (root_rank(comm, root)?, send.is_none());
            Call::Gatherv(collectives::Gatherv { root, in_place, send: b.send(send), recv: b.recv_blocks(recv) })
        }
        Arguments::Scatter { root, send, recv } => {
            let (root, in_place) = (root_rank(comm, root)?, recv.is_none());
            Call::Scatter(collectives::Scatter { root, in_place, send: b.send(send), recv: b.recv(recv) })
        }
        Arguments::Scatterv { root, send, recv } => {
            let (root, in_place) = (root_rank(comm, root)?, recv.is_none());
            Call::Scatterv(collectives::Scatterv { root, in_place, send: b.send_blocks(send), recv: b.recv(recv) })
        }
        Arguments::Allgather { send, recv } => {
            let in_place = send.is_none();
            Call::Allgather(collectives::Allgather { in_place, send: b.send(send), recv: b.recv(Some(recv)) })
        }
        Arguments::Allgatherv { send, recv } => {
            let in_place = send.is_none();
            let recv = b.recv_blocks(Some(recv));
            Call::Allgatherv(collectives::Allgatherv { in_place, send: b.send(send), recv })
        }
        Arguments::Alltoall { send, recv } => {
            let in_place = send.is_none();
            Call::Alltoall(collectives::Alltoall { in_place, send: b.send(send), recv: b.recv(Some(recv)) })
        }
        Arguments::Alltoallv { send, recv } => {
            let in_place = send.is_none();
            let recv = b.recv_blocks(Some(recv));
            Call::Alltoallv(collectives::Alltoallv { in_place, send: b.send_blocks(send), recv })
        }
        Arguments::Alltoallw { send, recv } => {
            let in_place = send.is_none();
            let (send, recv) = b.parts(send, recv);
            Call::Alltoallw(collectives::Alltoallw { in_place, send, recv })
        }
        Arguments::Reduce { root, data } => {
            let root = root_rank(comm, root)?;
            let (in_place, commutative, data) = b.reduction(comm, data)?;
            Call::Reduce(collectives::Reduce { root, in_place, commutative, data })
        }
        Arguments::Allreduce { data } => {
            let (in_place, commutative, data) = b.reduction(comm, data)?;
            Call::Allreduce(collectives::Allreduce { in_place, commutative, data })
        }
        Arguments::ReduceScatter { counts, data } => {
            let (in_place, commutative, data) = b.reduction(comm, data)?;
            let shape = data.shape();
            Call::ReduceScatter(collectives::ReduceScatter { in_place, commutative, counts, shape })
        }
        Arguments::ReduceScatterBlock { data } => {
            let (in_place, commutative, data) = b.reduction(comm, data)?;
            Call::ReduceScatterBlock(collectives::ReduceScatterBlock { in_place, commutative, data })
        }
        Arguments::Scan { data } => {
            let (in_place, commutative, data) = b.reduction(comm, data)?;
            Call::Scan(collectives::Scan { in_place, commutative, data })
        }
        Arguments::Exscan { data } => {
            let (in_place, commutative, data) = b.reduction(comm, data)?;
            Call::Exscan(collectives::Exscan { in_place, commutative, data })
        }
    })
}

impl Binding {
    fn send(&mut self, buffer: Option<Buffer<UserMemory>>) -> Data {
        let Some(buffer) = buffer else { return Data::none() };
        let data = Data::new(buffer.count, shape(&buffer.datatype));
        self.send = Some(buffer.memory);
        self.send_type = Some(buffer.datatype);
        data
    }

    fn recv(&mut self, buffer: Option<Buffer<UserMemoryMut>>) -> Data {
        let Some(buffer) = buffer else { return Data::none() };
        let data = Data::new(buffer.count, shape(&buffer.datatype));
        self.recv = Some(buffer.memory);
        self.recv_type = Some(buffer.datatype);
        data
    }

    fn send_blocks(&mut self, blocks: Option<Blocks<UserMemory>>) -> Vector {
        let Some(blocks) = blocks else { return Vector::none() };
        let shape = shape(&blocks.datatype);
        self.send = Some(blocks.memory);
        self.send_type = Some(blocks.datatype);
        Vector::new(blocks.counts, blocks.displacements, shape)
    }

    fn recv_blocks(&mut self, blocks: Option<Blocks<UserMemoryMut>>) -> Vector {
        let Some(blocks) = blocks else { return Vector::none() };
        let shape = shape(&blocks.datatype);
        self.recv = Some(blocks.memory);
        self.recv_type = Some(blocks.datatype);
        Vector::new(blocks.counts, blocks.displacements, shape)
    }

    fn parts(&mut self, send: Option<Parts<UserMemory>>, recv: Parts<UserMemoryMut>) -> (Vec<Part>, Vec<Part>) {
        let mut types = PartTypes::default();
        let sent = send.map_or_else(Vec::new, |send| {
            let parts = part_list(&send);
            self.send = Some(send.memory);
            types.send = send.datatypes;
            parts
        });
        let received = part_list(&recv);
        self.recv = Some(recv.memory);
        types.recv = recv.datatypes;
        self.part_types = Some(Box::new(types));
        (sent, received)
    }

    /// `(in place, commutative, data)` of a reduction.
    fn reduction(&mut self, comm: &Comm, data: Reduction) -> Result<(bool, bool, Data)> {
        if !data.op.supports(&data.datatype) {
            return ErrorClass::Op.fail(format!(
                "{:?} is not defined for datatype {} (reduction on {comm})",
                data.op,
                data.datatype.name()
            ));
        }
        let in_place = data.input.is_none();
        let commutative = data.op.commutes();
        let measures = Data::new(data.count, shape(&data.datatype));
        self.send = data.input;
        self.recv = data.result;
        self.recv_type = Some(data.datatype);
        self.op = Some(data.op);
        Ok((in_place, commutative, measures))
    }
}

fn part_list<M>(parts: &Parts<M>) -> Vec<Part> {
    let measures = parts.counts.iter().zip(&parts.displacements_bytes).zip(&parts.datatypes);
    measures.map(|((count, displacement), datatype)| Part::new(*count, *displacement, datatype.size())).collect()
}

fn shape(datatype: &Datatype) -> TypeShape {
    TypeShape {
        size_bytes: datatype.size(),
        extent_bytes: datatype.extent(),
        contiguous: datatype.is_contiguous(),
    }
}

fn root_rank(comm: &Comm, root: i32) -> Result<u32> {
    if (0..comm.size() as i32).contains(&root) {
        return Ok(root as u32);
    }
    ErrorClass::Root.fail(format!("root {root} is no rank of {comm}, whose size is {}", comm.size()))
}

fn build_error(error: BuildError) -> crate::Error {
    let class = match error {
        BuildError::RootOutOfRange { .. } => ErrorClass::Root,
        BuildError::TooLarge { .. } => ErrorClass::Count,
        BuildError::RankOutOfRange { .. } => ErrorClass::Intern,
        _ => ErrorClass::Arg,
    };
    class.error(error.to_string())
}

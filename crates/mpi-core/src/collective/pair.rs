//! Short blocking collectives between two processes: each says what it has and hears what the other has.
//!
//! ```text
//! rank 0   ── a ─►  ◄─ b ──   rank 1        barrier, allreduce
//! root     ── a ─►            other         broadcast
//! ```
//!
//! The messages are those of the schedules (barrier by direct exchange, recursive doubling, binomial tree), so that one
//! side may go this way and the other that; only the schedule, which costs as much as such a message, is left out.
//!
//! Cost: one message, both directions at once.

use collectives::Collective;
use datatype::{RecvBuf, SendBuf};
use engine::{RequestId, SendMode, Source, TagPattern};

use super::arguments::{Arguments, Buffer, Reduction};
use super::host::blame;
use crate::communicator::{Comm, Sequence};
use crate::error::{ErrorClass, Result};
use crate::world::{World, engine_error};

/// Longer ones are left to the schedules, in bytes.
const PAIR_MAX_BYTES: u64 = 4096;

impl World {
    /// Carries the collective out if it is one for this way.
    #[inline]
    pub(super) fn between_two(&self, comm: &Comm, arguments: &Arguments) -> Option<Result<()>> {
        if comm.size() != 2 || comm.is_inter() {
            return None;
        }
        let is_short = |count: u64, size: u64| count.checked_mul(size).is_some_and(|len| len <= PAIR_MAX_BYTES);
        match arguments {
            Arguments::Barrier if comm.chooses_freely(Collective::Barrier) => {
                Some(self.exchange_with_other(comm, Some(SendBuf::empty()), Some(RecvBuf::empty()), "MPI_Barrier"))
            }
            Arguments::Bcast { root: root @ (0 | 1), buffer }
                if is_short(buffer.count, buffer.datatype.size()) && comm.chooses_freely(Collective::Bcast) =>
            {
                Some(self.tell_one(comm, *root as u32, buffer))
            }
            Arguments::Allreduce { data: data @ Reduction { input: Some(_), result: Some(_), .. } }
                if is_short(data.count, data.datatype.size())
                    && data.op.supports(&data.datatype)
                    && comm.chooses_freely(Collective::Allreduce) =>
            {
                Some(self.reduce_two(comm, data))
            }
            _ => None,
        }
    }

    fn tell_one(&self, comm: &Comm, root: u32, buffer: &Buffer<datatype::UserMemoryMut>) -> Result<()> {
        let Buffer { memory, count, datatype } = buffer;
        if comm.rank() == root {
            self.exchange_with_other(comm, Some(memory.send(0, *count, datatype)), None, "MPI_Bcast")
        } else {
            self.exchange_with_other(comm, None, Some(memory.recv(0, *count, datatype)), "MPI_Bcast")
        }
    }

    fn reduce_two(&self, comm: &Comm, data: &Reduction) -> Result<()> {
        let Reduction { input: Some(input), result: Some(result), count, datatype, op } = data else {
            unreachable!("asked for above")
        };
        let own = input.send(0, *count, datatype);
        let mut into = result.recv(0, *count, datatype);
        let outgoing = Some(own.clone());
        // Both evaluate the same expression, rank 0's input to the left, so that both get the same bits.
        let reduced = if comm.rank() == 0 {
            self.exchange_with_other(comm, outgoing, Some(result.recv(0, *count, datatype)), "MPI_Allreduce")?;
            op.reduce(datatype, &own, &mut into)
        } else {
            let left = self.temporary(*count, datatype)?;
            let arrives = left.memory().recv(0, *count, datatype);
            self.exchange_with_other(comm, outgoing, Some(arrives), "MPI_Allreduce")?;
            into.copy_from(&own);
            let reduced = op.reduce(datatype, &left.memory().send(0, *count, datatype), &mut into);
            self.keep_temporaries(std::iter::once(left));
            reduced
        };
        reduced.map_err(|error| ErrorClass::Op.error(format!("MPI_Allreduce: {error}")))
    }

    /// One message to the other process, one from it, or both: the next collective operation on `comm`.
    fn exchange_with_other(
        &self,
        comm: &Comm,
        outgoing: Option<SendBuf>,
        incoming: Option<RecvBuf>,
        call: &'static str,
    ) -> Result<()> {
        let (peer, context) = (comm.participant(1 - comm.rank()), comm.collective());
        let tag = comm.next_collective_tag(Sequence::Blocking);
        let mut engine = self.engine.borrow_mut();
        let mut sending = None;
        if let Some(buf) = outgoing
            && !engine.try_send(peer, context, tag, &buf)
        {
            sending = Some(engine.send(SendMode::Standard, peer, context, tag, buf).map_err(engine_error)?);
        }
        let mut receiving = None;
        if let Some(buf) = incoming {
            let posted = engine.recv(Source::Peer(peer), context, TagPattern::Exact(tag), buf);
            receiving = Some(posted.map_err(engine_error)?);
        }
        drop(engine);
        self.wake_sleepers();
        let received = receiving.map_or(Ok(()), |id| self.finish_exchange(comm, id, call));
        let sent = sending.map_or(Ok(()), |id| self.finish_exchange(comm, id, call));
        received.and(sent)
    }

    #[inline]
    fn finish_exchange(&self, comm: &Comm, id: RequestId, call: &'static str) -> Result<()> {
        let completion = self.wait_for(id);
        match completion.outcome {
            engine::Outcome::Done => Ok(()),
            outcome => Err(blame(comm, call, completion.envelope.peer, outcome)),
        }
    }
}

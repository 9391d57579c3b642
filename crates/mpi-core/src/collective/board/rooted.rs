//! A block from each to the root, or from the root to each: who sends shows, who receives reads.

use datatype::{SendBuf, UserMemory, UserMemoryMut};
use smallvec::SmallVec;

use super::Table;
use super::blocks::{Call, Cut, Shown};
use crate::collective::arguments::Buffer;
use crate::error::Result;

/// Longest block of a scatter where members do not all run at once: of a longer one two copies cost more than the turns.
const SCATTER_MAX_BYTES: u64 = 128 << 10;

impl Table<'_> {
    /// `recv` is there at the root, `send` at all others; without it, the root's block stands in its place. `None` if
    /// messages are to do it.
    pub(super) fn gather(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<Option<()>> {
        let name = "MPI_Gather";
        let cut = Cut::of(self.comm, 1);
        let own = send.map(|send| send.memory.send(0, send.count, &send.datatype));
        let Some(Buffer { memory, count, datatype }) = recv.filter(|_| root == self.me()) else {
            let own = own.unwrap_or_else(SendBuf::empty);
            let bytes = own.len_bytes();
            let call = Call { name, root: Some(root), own_bytes: bytes, longest_bytes: bytes };
            let shown = |offset, len_bytes| SmallVec::from_iter([own.slice(offset, len_bytes)]);
            return self.in_steps(&call, cut, |_| bytes, shown, |_, _, _| Ok(()));
        };
        let block = |rank: usize| memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let block_bytes = count * datatype.size();
        let own_bytes = own.as_ref().map_or(block_bytes, SendBuf::len_bytes);
        let call = Call { name, root: Some(root), own_bytes, longest_bytes: block_bytes };
        let nothing = |_, _| Shown::new();
        let gathered = self.in_steps(
            &call,
            cut,
            |_| block_bytes,
            nothing,
            |step, offset, len_bytes| {
                self.others().try_for_each(|rank| {
                    self.read(name, rank, step, 0, len_bytes, |bytes| {
                        block(rank).unpack_at(offset, bytes);
                    })
                })
            },
        )?;
        if let (Some(()), Some(own)) = (gathered, own) {
            if own_bytes != block_bytes {
                return Err(self.shorter(root, own_bytes as usize, name));
            }
            block(root).copy_from(&own);
        }
        Ok(gathered)
    }

    /// `send` is there at the root, `recv` at all others; without it, the root's block stays where it is. `None` if messages
    /// are to do it.
    pub(super) fn scatter(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<Option<()>> {
        let name = "MPI_Scatter";
        let mut cut = Cut::of(self.comm, self.size() - 1);
        cut.max_bytes = cut.max_bytes.min(SCATTER_MAX_BYTES);
        let mut own = recv.map(|recv| recv.memory.recv(0, recv.count, &recv.datatype));
        let Some(Buffer { memory, count, datatype }) = send.filter(|_| root == self.me()) else {
            let bytes = own.as_ref().map_or(0, |own| own.len_bytes());
            let before = self.place_at(root);
            let call = Call { name, root: Some(root), own_bytes: bytes, longest_bytes: bytes };
            let nothing = |_, _| Shown::new();
            return self.in_steps(
                &call,
                cut,
                |_| bytes,
                nothing,
                |step, offset, len_bytes| {
                    self.read(name, root, step, before * len_bytes, len_bytes, |bytes| {
                        own.iter_mut().for_each(|own| {
                            own.unpack_at(offset, bytes);
                        });
                    })
                },
            );
        };
        let block = |rank: usize| memory.send(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let block_bytes = count * datatype.size();
        let call = Call { name, root: Some(root), own_bytes: block_bytes, longest_bytes: block_bytes };
        let shown = |offset, len_bytes| self.others().map(|rank| block(rank).slice(offset, len_bytes)).collect();
        let scattered = self.in_steps(&call, cut, |_| block_bytes, shown, |_, _, _| Ok(()))?;
        if let (Some(()), Some(mut own)) = (scattered, own) {
            if own.len_bytes() != block_bytes {
                return Err(self.shorter(root, block_bytes as usize, name));
            }
            own.copy_from(&block(root));
        }
        Ok(scattered)
    }
}

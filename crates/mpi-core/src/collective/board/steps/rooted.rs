//! A block from each to the root, or from the root to each: who sends shows, who receives reads.

use collectives::Collective;
use datatype::{SendBuf, UserMemory, UserMemoryMut};
use smallvec::SmallVec;

use super::super::flavoured;
use super::Table;
use super::blocks::Shown;
use crate::collective::arguments::Buffer;
use crate::collective::board::cuts::blocks::{Cut, To};
use crate::error::Result;

#[flavoured]
impl Table<'_> {
    /// `recv` is there at the root, `send` at all others; without it, the root's block stands in its place. `None` if
    /// messages are to do it.
    pub(super) async fn gather(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<Option<()>> {
        let cut = Cut::to_root(self.comm);
        let own = send.map(|send| send.block(0));
        let Some(recv) = recv.filter(|_| root == self.me()) else {
            let own = own.unwrap_or_else(SendBuf::empty);
            let bytes = own.len_bytes();
            let brought = self.brought_rooted(Collective::Gather, root, bytes, bytes);
            let shown = |offset, len_bytes| SmallVec::from_iter([own.slice(offset, len_bytes)]);
            return self.in_steps(&brought, cut, |_| bytes, shown, |_, _, _| Ok(())).await;
        };
        let block_bytes = recv.block_bytes();
        let own_bytes = own.as_ref().map_or(block_bytes, SendBuf::len_bytes);
        let brought = self.brought_rooted(Collective::Gather, root, own_bytes, block_bytes);
        let nothing = |_, _| Shown::new();
        let take = |step, offset, len_bytes| self.take_pieces(recv, To::All, step, offset, len_bytes);
        let gathered = self.in_steps(&brought, cut, |_| block_bytes, nothing, take).await?;
        if let (Some(()), Some(own)) = (gathered, own) {
            if own_bytes != block_bytes {
                return Err(self.shorter(root, own_bytes as usize));
            }
            recv.block(root).copy_from(&own);
        }
        Ok(gathered)
    }

    /// `send` is there at the root, `recv` at all others; without it, the root's block stays where it is. `None` if messages
    /// are to do it.
    pub(super) async fn scatter(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<Option<()>> {
        let cut = Cut::from_root(self.comm);
        let mut own = recv.map(|recv| recv.block(0));
        let Some(send) = send.filter(|_| root == self.me()) else {
            let bytes = own.as_ref().map_or(0, |own| own.len_bytes());
            let before = self.place_at(root);
            let brought = self.brought_rooted(Collective::Scatter, root, bytes, bytes);
            let nothing = |_, _| Shown::new();
            let take = |step, offset, len_bytes| {
                self.read(root, step, before * len_bytes, len_bytes, |bytes| {
                    own.iter_mut().for_each(|own| {
                        own.unpack_at(offset, bytes);
                    });
                })
            };
            return self.in_steps(&brought, cut, |_| bytes, nothing, take).await;
        };
        let block_bytes = send.block_bytes();
        let brought = self.brought_rooted(Collective::Scatter, root, block_bytes, block_bytes);
        let shown = |offset, len_bytes| self.others().map(|rank| send.block(rank).slice(offset, len_bytes)).collect();
        let scattered = self.in_steps(&brought, cut, |_| block_bytes, shown, |_, _, _| Ok(())).await?;
        if let (Some(()), Some(mut own)) = (scattered, own) {
            if own.len_bytes() != block_bytes {
                return Err(self.shorter(root, block_bytes as usize));
            }
            own.copy_from(&send.block(root));
        }
        Ok(scattered)
    }
}

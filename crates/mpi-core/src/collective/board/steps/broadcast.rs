//! Broadcasts: the root shows, all others read, piece by piece.

use collectives::Collective;
use datatype::{RecvBuf, SendBuf, UserMemoryMut};
use engine::BOARD_PIECES;

use super::super::{Caller, flavoured};
use super::Table;
use super::blocks::LEN_MASK;
use crate::collective::arguments::Buffer;
use crate::collective::board::cuts::blocks::{Cut, is_pair};
use crate::collective::board::cuts::broadcast::{ONE_STEP_MAX_BYTES, Pieces};
use crate::error::Result;

#[flavoured]
impl Table<'_> {
    /// `None` if messages are to do it.
    pub(super) async fn bcast(self, root: usize, buffer: &Buffer<UserMemoryMut>) -> Result<Option<()>> {
        let Buffer { memory, count, datatype } = buffer;
        let len_bytes = count * datatype.size();
        if len_bytes > ONE_STEP_MAX_BYTES && self.may_send() {
            return self.pass_to_other(root, buffer, len_bytes).await;
        }
        if root == self.me() {
            self.show_pieces(&memory.send(0, *count, datatype)).await.map(Some)
        } else {
            self.read_pieces(root, len_bytes as usize, &mut memory.recv(0, *count, datatype)).await.map(Some)
        }
    }

    /// True if a long broadcast may be a message, which both agree about first.
    fn may_send(self) -> bool {
        Caller::READS_STRAIGHT && is_pair(self.comm)
    }

    /// A long broadcast to one: as a block for it.
    async fn pass_to_other(self, root: usize, buffer: &Buffer<UserMemoryMut>, len_bytes: u64) -> Result<Option<()>> {
        let Buffer { memory, count, datatype } = buffer;
        let is_root = root == self.me();
        let content = memory.send(0, *count, datatype);
        let mut into = memory.recv(0, *count, datatype);
        let shown = |offset, len_bytes| is_root.then(|| content.slice(offset, len_bytes)).into_iter().collect();
        let take = |step, offset, len_bytes| {
            if is_root {
                return Ok(());
            }
            self.read(root, step, 0, len_bytes, |bytes| {
                into.unpack_at(offset, bytes);
            })
        };
        let brought = self.brought_rooted(Collective::Bcast, root, len_bytes, len_bytes);
        self.in_steps(&brought, Cut::from_root(self.comm), |_| len_bytes, shown, take).await
    }

    /// The root's part of a broadcast.
    async fn show_pieces(self, content: &SendBuf) -> Result<()> {
        let pieces = Pieces::of(content.len_bytes() as usize);
        let mut step = 0;
        for piece in 0..pieces.count {
            let (offset, len_bytes) = pieces.range(piece);
            let whole_bytes = (pieces.len_bytes as u64).to_ne_bytes();
            let told = if piece == 0 && pieces.count > 1 { &whole_bytes[..] } else { &[] };
            step = self.group.next_step();
            self.show(step, &[content.slice(offset as u64, len_bytes as u64)], told).await?;
        }
        self.finish_lone(step, None).await;
        Ok(())
    }

    /// The part of all others. Who expects another length than the root has follows it through all of its steps, so that
    /// what comes next is not mistaken for one of them.
    async fn read_pieces(self, root: usize, own_bytes: usize, into: &mut RecvBuf) -> Result<()> {
        let mut outcome = Ok(());
        let mut pieces = Pieces::of(own_bytes);
        let mut piece = 0;
        while piece < pieces.count {
            let step = self.group.next_step();
            self.await_step(root, step).await?;
            if piece == 0 {
                pieces = Pieces::of(self.broadcast_bytes(root, step));
                if pieces.len_bytes != own_bytes {
                    outcome = Err(self.shorter(root, pieces.len_bytes));
                    if self.may_send() {
                        // It may count other steps.
                        return self.leave_reading(step, own_bytes as u64, outcome).await;
                    }
                }
            }
            let (offset, len_bytes) = pieces.range(piece);
            if outcome.is_ok() {
                let whole = self.group.read(root, step, 0, len_bytes, |bytes| {
                    into.unpack_at(offset as u64, bytes);
                });
                if !whole {
                    outcome = Err(self.shorter(root, pieces.len_bytes));
                }
            }
            // For the room of a piece only the root waits, until all is shown; for that of the last ones whoever shows
            // something next.
            let only = Some(root).filter(|_| piece + BOARD_PIECES < pieces.count);
            self.finish_lone(step, only).await;
            piece += 1;
        }
        outcome
    }

    /// Bytes of the broadcast whose first piece the root shows as `step`.
    fn broadcast_bytes(self, root: usize, step: u64) -> usize {
        self.told(root, step).map_or(self.group.len_bytes(root, step), |[told]| (told & LEN_MASK) as usize)
    }
}

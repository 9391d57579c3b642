//! Broadcasts: the root shows, all others read, piece by piece.

use datatype::{RecvBuf, SendBuf, UserMemoryMut};
use engine::BOARD_PIECES;

use super::super::flavoured;
use super::Table;
use crate::collective::arguments::Buffer;
use crate::collective::board::cuts::broadcast::Pieces;
use crate::error::Result;

#[flavoured]
impl Table<'_> {
    pub(super) async fn bcast(self, root: usize, buffer: &Buffer<UserMemoryMut>) -> Result<()> {
        let Buffer { memory, count, datatype } = buffer;
        if root == self.me() {
            self.show_pieces(&memory.send(0, *count, datatype)).await
        } else {
            let len_bytes = (count * datatype.size()) as usize;
            self.read_pieces(root, len_bytes, &mut memory.recv(0, *count, datatype)).await
        }
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
        self.told(root, step).map_or(self.group.len_bytes(root, step), |[len_bytes]| len_bytes as usize)
    }
}

//! Blocks of any lengths from each to each: what goes to all others is one stream, cut into steps without regard to the
//! blocks. The first step tells how long each block is, so that all know how many steps there are, and every reader where
//! its own block lies.

use std::ops::Range;

use datatype::{RecvBuf, SendBuf, UserMemory, UserMemoryMut};
use smallvec::SmallVec;

use super::super::flavoured;
use super::Table;
use crate::collective::arguments::{Blocks, Parts};
use crate::collective::board::cuts::LENGTH_BYTES;
use crate::collective::board::cuts::streams::{STREAM_STEP_BYTES, Stream, len_max_bytes, window};
use crate::error::Result;

#[flavoured]
impl Table<'_> {
    /// `None` if messages are to do it, for some member's stream is too long: all come to the same conclusion.
    pub(super) async fn alltoallv(self, send: &Blocks<UserMemory>, recv: &Blocks<UserMemoryMut>) -> Result<Option<()>> {
        self.in_streams(
            |rank| {
                let at = send.displacements[rank] * send.datatype.extent();
                send.memory.send(at, send.counts[rank], &send.datatype)
            },
            |rank| {
                let at = recv.displacements[rank] * recv.datatype.extent();
                recv.memory.recv(at, recv.counts[rank], &recv.datatype)
            },
        )
        .await
    }

    /// As [`Table::alltoallv`].
    pub(super) async fn alltoallw(self, send: &Parts<UserMemory>, recv: &Parts<UserMemoryMut>) -> Result<Option<()>> {
        self.in_streams(
            |rank| send.memory.send(send.displacements_bytes[rank], send.counts[rank], &send.datatypes[rank]),
            |rank| recv.memory.recv(recv.displacements_bytes[rank], recv.counts[rank], &recv.datatypes[rank]),
        )
        .await
    }

    async fn in_streams(self, out: impl Fn(usize) -> SendBuf, block: impl Fn(usize) -> RecvBuf) -> Result<Option<()>> {
        let (me, ranks) = (self.me(), self.size());
        let own = Stream::of((0..ranks).map(|rank| if rank == me { 0 } else { out(rank).len_bytes() }));
        let shown = |window: Range<u64>| -> SmallVec<[SendBuf; 8]> {
            let inside = |rank| {
                let (part, offset) = own.part(rank, &window)?;
                Some(out(rank).slice(offset, part.end - part.start))
            };
            (0..ranks).filter_map(inside).collect()
        };
        let most = len_max_bytes(self.comm);
        let first = if own.len_bytes() > most { SmallVec::new() } else { shown(window(0)) };
        let mut step = self.show_common(&first, &own.told()).await?;
        // Who can not be understood is taken to bring nothing: that is an error below.
        let streams: SmallVec<[Option<Stream>; 8]> = (0..ranks).map(|rank| self.stream_of(rank, step)).collect();
        let longest = streams.iter().flatten().map(Stream::len_bytes).max().unwrap_or(0);
        if longest > most {
            self.group.finish_common(step);
            return Ok(None);
        }
        let mut outcome = Ok(());
        for index in 0..longest.div_ceil(STREAM_STEP_BYTES).max(1) {
            let window = window(index);
            if index > 0 {
                step = self.show_common(&shown(window.clone()), &[]).await?;
            }
            for rank in (0..ranks).filter(|rank| *rank != me) {
                // Members go on to the last step whatever they find: the others do not know of it.
                let taken = self.take_part(rank, step, streams[rank].as_ref(), &window, &mut block(rank));
                outcome = outcome.and(taken.map_err(|brought| self.shorter(rank, brought)));
            }
            self.group.finish_common(step);
        }
        let own_block = out(me);
        if block(me).copy_from(&own_block) < own_block.len_bytes() {
            outcome = outcome.and(Err(self.shorter(me, own_block.len_bytes() as usize)));
        }
        outcome.map(Some)
    }

    /// What a member's first step tells of its stream; `None` if that is not how one looks.
    fn stream_of(self, rank: usize, step: u64) -> Option<Stream> {
        let told_bytes = self.size() * LENGTH_BYTES;
        let shown = self.group.len_bytes(rank, step);
        let mut stream = None;
        self.group.read(rank, step, shown.checked_sub(told_bytes)?, told_bytes, |told| {
            let (lengths, _) = told.as_chunks::<LENGTH_BYTES>();
            stream = Some(Stream::of(lengths.iter().map(|length| u64::from_ne_bytes(*length))));
        });
        stream
    }

    /// Reads what a member shows for this one in a window of its stream, as `step`.
    ///
    /// # Errors
    /// The bytes it brings, if they are more than there is room for or less than it said.
    fn take_part(
        self,
        rank: usize,
        step: u64,
        stream: Option<&Stream>,
        window: &Range<u64>,
        into: &mut RecvBuf,
    ) -> std::result::Result<(), usize> {
        let stream = stream.ok_or(0_usize)?;
        let brought = stream.block_bytes(self.me());
        if brought > into.len_bytes() {
            return Err(brought as usize);
        }
        let Some((part, offset)) = stream.part(self.me(), window) else { return Ok(()) };
        let (at, len_bytes) = ((part.start - window.start) as usize, (part.end - part.start) as usize);
        let is_there = self.group.read(rank, step, at, len_bytes, |bytes| {
            into.unpack_at(offset, bytes);
        });
        if is_there { Ok(()) } else { Err(self.group.len_bytes(rank, step)) }
    }
}

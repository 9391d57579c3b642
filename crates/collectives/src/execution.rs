//! Running a schedule: a program counter and the messages under way, moved on by polling.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::schedule::{Region, Schedule, Step};

/// What a schedule runs on: point-to-point messages and local work over bound buffers.
///
/// Messages between a pair of ranks with equal tag offsets arrive in the order of their starts.
pub trait Host {
    /// A message under way.
    type Handle: Copy;
    /// Why a message or a local step failed.
    type Error;

    /// Starts sending `region` to rank `peer`.
    ///
    /// # Errors
    /// The message could not be started.
    fn start_send(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<Self::Handle, Self::Error>;

    /// Starts receiving exactly `region` from rank `peer`.
    ///
    /// # Errors
    /// The message could not be started.
    fn start_recv(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<Self::Handle, Self::Error>;

    /// True once the message has completed; the handle is then spent and never polled again.
    ///
    /// # Errors
    /// The message failed or was truncated; the handle is spent.
    fn poll(&mut self, handle: Self::Handle) -> Result<bool, Self::Error>;

    /// Copies between regions of equal packed size that do not overlap.
    ///
    /// # Errors
    /// The regions do not lie in their buffers.
    fn copy(&mut self, from: Region, to: Region) -> Result<(), Self::Error>;

    /// `into = from op into`, with the operation of this start; the regions do not overlap.
    ///
    /// # Errors
    /// The operation does not apply to the datatype.
    fn reduce(&mut self, from: Region, into: Region) -> Result<(), Self::Error>;
}

/// How far an execution has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything has run and every message has completed.
    Done,
    /// A message has not completed yet; advance again later.
    Pending,
}

/// Messages held without allocation; schedules with more under way at once allocate at their start.
const HANDLES_INLINE: usize = 8;

/// One start of a schedule.
#[derive(Debug)]
pub struct Execution<H> {
    schedule: Arc<Schedule>,
    next_step: usize,
    /// Started messages in order; those before `oldest` have completed.
    handles: SmallVec<[H; HANDLES_INLINE]>,
    oldest: usize,
}

impl<H: Copy> Execution<H> {
    /// An execution at the first step.
    pub fn new(schedule: Arc<Schedule>) -> Execution<H> {
        // Spent handles are shifted out when the list is full, so twice the maximum keeps that rare.
        let inline = schedule.outstanding_max as usize <= HANDLES_INLINE;
        let capacity = if inline { 0 } else { 2 * schedule.outstanding_max as usize };
        Execution { schedule, next_step: 0, handles: SmallVec::with_capacity(capacity), oldest: 0 }
    }

    /// The schedule being executed.
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    /// Back to the first step, for the next start of a persistent operation; keeps its memory.
    ///
    /// # Panics
    /// If messages are under way.
    pub fn restart(&mut self) {
        assert!(self.outstanding().is_empty(), "a collective was restarted while messages were under way");
        self.next_step = 0;
        self.handles.clear();
        self.oldest = 0;
    }

    /// Messages started and not yet seen complete, oldest first: what an abandoned execution must
    /// have cancelled.
    pub fn outstanding(&self) -> &[H] {
        &self.handles[self.oldest..]
    }

    /// Runs as far as completed messages allow. Calling it again after `Done` returns `Done`.
    ///
    /// # Errors
    /// The first error of the host. The execution has then failed: it must not be advanced again,
    /// and the messages in [`Execution::outstanding`] are the host's to clean up.
    pub fn advance<T: Host<Handle = H>>(&mut self, host: &mut T) -> Result<Progress, T::Error> {
        while let Some(&step) = self.schedule.steps.get(self.next_step) {
            match step {
                Step::Send { peer, tag_offset, region } => {
                    let handle = host.start_send(peer, tag_offset, region)?;
                    self.started(handle);
                }
                Step::Recv { peer, tag_offset, region } => {
                    let handle = host.start_recv(peer, tag_offset, region)?;
                    self.started(handle);
                }
                Step::Wait { leaving } => {
                    while self.handles.len() - self.oldest > leaving as usize {
                        let handle = self.handles[self.oldest];
                        match host.poll(handle) {
                            Ok(true) => self.oldest += 1,
                            Ok(false) => return Ok(Progress::Pending),
                            Err(error) => {
                                self.oldest += 1;
                                return Err(error);
                            }
                        }
                    }
                }
                Step::Copy { from, to } => host.copy(from, to)?,
                Step::Reduce { from, into } => host.reduce(from, into)?,
            }
            self.next_step += 1;
        }
        Ok(Progress::Done)
    }

    fn started(&mut self, handle: H) {
        if self.oldest == self.handles.len() {
            self.handles.clear();
            self.oldest = 0;
        } else if self.handles.len() == self.handles.capacity() && self.oldest > 0 {
            self.handles.drain(..self.oldest);
            self.oldest = 0;
        }
        self.handles.push(handle);
    }
}

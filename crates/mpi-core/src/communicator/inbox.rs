//! Receiving a message whose length is not known beforehand.

use std::task::Poll;

use datatype::Scratch;
use engine::{Outcome, RequestId};

use super::tree::Pattern;
use crate::error::{ErrorClass, Result};
use crate::world::{World, engine_error};

/// Longest message of a tree. A record per process is the longest there is.
const MESSAGE_MAX_BYTES: u64 = 1 << 30;

/// At most one message on its way in.
#[derive(Default)]
pub(super) struct Inbox {
    under_way: Option<(RequestId, Scratch)>,
}

impl Inbox {
    /// Goes on receiving the next message of this pattern; gives its bytes once it is here.
    pub fn poll(&mut self, world: &World, pattern: Pattern) -> Poll<Result<Vec<u8>>> {
        let mut engine = world.engine.borrow_mut();
        if self.under_way.is_none() {
            let (from, context, tag) = pattern;
            let Some((message, envelope)) = engine.matched_probe(from, context, tag) else {
                return Poll::Pending;
            };
            if envelope.len_bytes > MESSAGE_MAX_BYTES {
                return Poll::Ready(ErrorClass::Intern.fail(format!(
                    "creating a communicator: world rank {} sent {} bytes",
                    envelope.peer, envelope.len_bytes
                )));
            }
            let mut scratch = Scratch::new(envelope.len_bytes, &world.commons.byte)
                .map_err(|error| ErrorClass::NoMem.error(error.to_string()))?;
            let id = engine.matched_recv(message, scratch.recv()).map_err(engine_error)?;
            self.under_way = Some((id, scratch));
        }
        let Some((id, _)) = &self.under_way else { return Poll::Pending };
        let Some(completion) = engine.take(*id) else { return Poll::Pending };
        let scratch = self.under_way.take().map(|(_, scratch)| scratch);
        match completion.outcome {
            Outcome::Done => {
                let buf = scratch.as_ref().map(Scratch::send);
                let bytes = buf.as_ref().and_then(|buf| buf.as_contiguous()).unwrap_or_default();
                Poll::Ready(Ok(bytes.to_vec()))
            }
            outcome => Poll::Ready(ErrorClass::Other.fail(format!(
                "creating a communicator: a message from world rank {} did not arrive: {outcome:?}",
                completion.envelope.peer
            ))),
        }
    }
}

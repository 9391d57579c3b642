//! Receiving a message whose length is not known beforehand.

use std::task::Poll;

use datatype::{Datatype, Scratch};
use engine::{Outcome, PeerId, RequestId};

use super::tree::Tree;
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
    /// Goes on receiving the next message from `peer`; gives its bytes once it is here.
    pub fn poll(&mut self, world: &World, peer: PeerId, tree: &Tree) -> Poll<Result<Vec<u8>>> {
        let mut engine = world.engine.borrow_mut();
        if self.under_way.is_none() {
            let (from, context, tag) = tree.pattern(peer);
            let Some((message, envelope)) = engine.matched_probe(from, context, tag) else {
                return Poll::Pending;
            };
            if envelope.len_bytes > MESSAGE_MAX_BYTES {
                return Poll::Ready(ErrorClass::Intern.fail(format!(
                    "creating a communicator: world rank {peer} sent {} bytes",
                    envelope.len_bytes
                )));
            }
            let scratch = Scratch::new(envelope.len_bytes, Datatype::byte());
            let buf = scratch.memory().recv_buf(0, envelope.len_bytes, Datatype::byte());
            let id = engine.matched_recv(message, buf).map_err(engine_error)?;
            self.under_way = Some((id, scratch));
        }
        let Some((id, _)) = &self.under_way else { return Poll::Pending };
        let Some(completion) = engine.take(*id) else { return Poll::Pending };
        let bytes = self.under_way.take().map(|(_, scratch)| scratch.into_bytes()).unwrap_or_default();
        match completion.outcome {
            Outcome::Done => Poll::Ready(Ok(bytes)),
            outcome => Poll::Ready(ErrorClass::Other.fail(format!(
                "creating a communicator: a message from world rank {peer} did not arrive: {outcome:?}"
            ))),
        }
    }
}

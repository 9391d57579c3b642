//! Receiving a message whose length is not known beforehand.
//!
//! Creations without a parent share one context, and a tag made of their names, which may be that of another name. Their
//! messages therefore bring the name with them: what comes for another name is laid aside for whoever waits for it.

use std::sync::Arc;
use std::task::Poll;

use datatype::Scratch;
use engine::{Outcome, RequestId, Source};

use super::tree::Pattern;
use crate::error::{ErrorClass, Result};
use crate::world::{World, engine_error};

/// Longest message of a tree. A record per process is the longest there is.
const MESSAGE_MAX_BYTES: u64 = 1 << 30;

/// The name of a creation without a parent.
#[derive(Clone, Debug)]
pub(crate) struct Label(Arc<str>);

impl Label {
    pub fn new(name: &str) -> Label {
        Label(name.into())
    }

    /// The length of the name in four bytes, the name, the message.
    pub fn framed(&self, body: &[u8]) -> Vec<u8> {
        let name = self.0.as_bytes();
        [&(name.len() as u32).to_le_bytes(), name, body].concat()
    }

    /// Name and message of what came where messages of this label do.
    fn unframed<'a>(&self, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8])> {
        let parts = bytes.split_first_chunk().and_then(|(len, rest)| {
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            rest.split_at_checked(len)
        });
        let unnamed =
            || ErrorClass::Intern.error(format!("creating a communicator: no name came where '{}' does", self.0));
        parts.ok_or_else(unnamed)
    }
}

/// Messages that were received by somebody who waits for another name.
#[derive(Debug, Default)]
pub(crate) struct Strays(Vec<(Source, Vec<u8>, Vec<u8>)>);

impl Strays {
    fn lay_aside(&mut self, from: Source, name: &[u8], body: &[u8]) {
        self.0.push((from, name.to_vec(), body.to_vec()));
    }

    fn take(&mut self, from: Source, label: &Label) -> Option<Vec<u8>> {
        let is_wanted = |(source, name, _): &(Source, Vec<u8>, Vec<u8>)| *source == from && name == label.0.as_bytes();
        self.0.iter().position(is_wanted).map(|at| self.0.remove(at).2)
    }
}

/// At most one message on its way in.
#[derive(Default)]
pub(super) struct Inbox {
    under_way: Option<(RequestId, Scratch)>,
}

impl Inbox {
    /// Goes on receiving the next message of this pattern and label; gives its bytes once it is here.
    pub fn poll(&mut self, world: &World, pattern: Pattern, label: Option<&Label>) -> Poll<Result<Vec<u8>>> {
        let Some(label) = label else { return self.poll_any(world, pattern) };
        loop {
            // What is on its way in may be somebody else's, who would never get it: that comes first.
            if self.under_way.is_none()
                && let Some(bytes) = world.commons.strays().take(pattern.0, label)
            {
                return Poll::Ready(Ok(bytes));
            }
            let bytes = match self.poll_any(world, pattern) {
                Poll::Ready(bytes) => bytes?,
                Poll::Pending => return Poll::Pending,
            };
            match label.unframed(&bytes)? {
                (name, body) if name == label.0.as_bytes() => return Poll::Ready(Ok(body.to_vec())),
                (name, body) => world.commons.strays().lay_aside(pattern.0, name, body),
            }
            world.wake_sleepers();
        }
    }

    fn poll_any(&mut self, world: &World, pattern: Pattern) -> Poll<Result<Vec<u8>>> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_brings_its_name() {
        let (ours, other) = (Label::new("ours"), Label::new(""));
        let (from, elsewhere) = (Source::Peer(3), Source::Peer(4));
        assert_eq!(ours.unframed(&ours.framed(b"body")).unwrap(), (&b"ours"[..], &b"body"[..]));
        assert_eq!(ours.unframed(&other.framed(b"")).unwrap(), (&b""[..], &b""[..]));
        assert!(ours.unframed(&[9, 0, 0, 0, b'o']).is_err() && ours.unframed(b"abc").is_err());
        let mut strays = Strays::default();
        strays.lay_aside(from, b"ours", b"first");
        strays.lay_aside(from, b"", b"nameless");
        strays.lay_aside(from, b"ours", b"second");
        assert_eq!(strays.take(elsewhere, &ours), None);
        let taken: Vec<_> = std::iter::from_fn(|| strays.take(from, &ours)).collect();
        assert_eq!(taken, [b"first".to_vec(), b"second".to_vec()]);
        assert_eq!((strays.take(from, &other), strays.take(from, &other)), (Some(b"nameless".to_vec()), None));
    }

    proptest! {
        #[test]
        fn whatever_comes_has_a_name_or_is_refused(bytes in proptest::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..40)) {
            if let Ok((name, body)) = Label::new("any").unframed(&bytes) {
                prop_assert_eq!([&(name.len() as u32).to_le_bytes(), name, body].concat(), bytes);
            }
        }
    }
}

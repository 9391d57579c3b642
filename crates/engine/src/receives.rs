//! Receives: how they begin, beside work and with probes.

use datatype::RecvBuf;

use crate::EngineError;
use crate::core::{Core, Engine};
use crate::matching::Pattern;
use crate::request::{ContextId, Envelope, MessageId, Request, RequestId, Source, State, TagPattern};

impl Engine {
    /// Starts a receive.
    ///
    /// # Errors
    /// [`EngineError::NoSuchPeer`].
    #[inline(always)]
    pub fn recv(
        &mut self,
        from: Source,
        context: ContextId,
        tag: TagPattern,
        buf: impl Into<RecvBuf>,
    ) -> Result<RequestId, EngineError> {
        self.post(from, context, tag, buf).map(|(id, _)| id)
    }

    /// Starts a receive of a caller who goes on to other work: a long message whose sender has asked already gets under way
    /// meanwhile.
    ///
    /// # Errors
    /// [`EngineError::NoSuchPeer`].
    #[inline(always)]
    pub fn recv_beside_work(
        &mut self,
        from: Source,
        context: ContextId,
        tag: TagPattern,
        buf: impl Into<RecvBuf>,
    ) -> Result<RequestId, EngineError> {
        let (id, room_bytes) = self.post(from, context, tag, buf)?;
        if room_bytes > self.core.thresholds.eager_max_bytes as u64 {
            self.answer();
        }
        Ok(id)
    }

    /// Starts a receive; also how many bytes it has room for, if it waits for its message.
    #[inline(always)]
    fn post(
        &mut self,
        from: Source,
        context: ContextId,
        tag: TagPattern,
        buf: impl Into<RecvBuf>,
    ) -> Result<(RequestId, u64), EngineError> {
        let pattern = Pattern::new(context, from, tag);
        self.core.check_source(from, pattern)?;
        if let Some(message) = self.core.unexpected.take(pattern) {
            return Ok((self.core.receive_unexpected(message, buf.into()), 0));
        }
        if self.has_tuples() {
            return Ok((self.core.recv_by_tuple(from, context, tag, buf.into()), 0));
        }
        let Core { requests, posted, .. } = &mut self.core;
        let mut room_bytes = 0;
        let key = requests.insert_with(|key| {
            let links = posted.post(pattern, key);
            let buf = buf.into();
            room_bytes = buf.len_bytes();
            Request { state: State::Posted { buf, links }, detached: false }
        });
        Ok((RequestId(key), room_bytes))
    }

    /// The earliest message that could be received so.
    #[inline]
    pub fn probe(&mut self, from: Source, context: ContextId, tag: TagPattern) -> Option<Envelope> {
        let found = self.core.unexpected.peek(Pattern::new(context, from, tag)).map(|message| message.envelope);
        if found.is_none() {
            // It may lie in a channel, and no receive is posted for it meanwhile.
            self.core.is_patient = false;
        }
        found
    }

    /// Takes the earliest message that could be received so out of matching. MPI: §3.8.2.
    pub fn matched_probe(
        &mut self,
        from: Source,
        context: ContextId,
        tag: TagPattern,
    ) -> Option<(MessageId, Envelope)> {
        let Some(message) = self.core.unexpected.take(Pattern::new(context, from, tag)) else {
            self.core.is_patient = false;
            return None;
        };
        let envelope = message.envelope;
        let message = self.core.fetch_probed(message);
        Some((MessageId(self.core.matched.insert(message)), envelope))
    }

    /// Receives a message taken by a matched probe.
    ///
    /// # Errors
    /// [`EngineError::NoSuchMessage`].
    pub fn matched_recv(&mut self, message: MessageId, buf: RecvBuf) -> Result<RequestId, EngineError> {
        let message = self.core.matched.remove(message.0).ok_or(EngineError::NoSuchMessage)?;
        Ok(self.core.receive_unexpected(message, buf))
    }
}

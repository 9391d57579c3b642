//! Completions and events: from the library's structures to our words.

use crate::context::VerbsContext;
use crate::ffi::numbers::{QPS_ERR, WC_WITH_IMM, event, qp_attr};
use crate::ffi::{IbvQpAttr, IbvWc};
use crate::queues::WorkQueue;
use crate::status::{receive_opcode, status};
use base::SlabKey;
use fabric::{
    AsynchronousEvent, CompletionQueue, FabricError, QpNumber, QueuePair, SharedReceiveQueue, Transport, WcStatus,
    WorkCompletion,
};

/// Completions taken off the adapter in one call.
const BATCH: usize = 64;
/// Every so many empty polls we ask the kernel whether the queue overran, which no poll tells.
const EMPTY_POLLS: u32 = 256;
/// Events kept for a caller that never asks; older ones are forgotten.
const EVENTS_MAX: usize = 1024;

impl VerbsContext {
    pub(crate) fn poll_completions(
        &mut self,
        queue: CompletionQueue,
        into: &mut [WorkCompletion],
    ) -> Result<usize, FabricError> {
        self.serve();
        let entry = self.completion_queues.get_mut(queue.0).ok_or(FabricError::NoSuch("completion queue"))?;
        let mut count = entry.backlog.len().min(into.len());
        for (place, saved) in into.iter_mut().zip(entry.backlog.drain(..count)) {
            *place = saved;
        }
        while count < into.len() {
            let asked = (into.len() - count).min(BATCH);
            let polled = self.poll_adapter(queue, asked, |context, completion| {
                if let Some(completion) = context.translate(completion) {
                    into[count] = completion;
                    count += 1;
                }
            })?;
            if polled < asked {
                break;
            }
        }
        if count == 0 && !into.is_empty() {
            self.look_for_overrun(queue)?;
        }
        Ok(count)
    }

    /// Polls once and hands each completion to `take`; returns how many there were.
    fn poll_adapter(
        &mut self,
        queue: CompletionQueue,
        asked: usize,
        mut take: impl FnMut(&mut Self, &IbvWc),
    ) -> Result<usize, FabricError> {
        let mut polled = std::mem::take(&mut self.scratch.completions);
        polled.resize(asked, IbvWc::default());
        let result = self.completion_entry(queue)?.completions.poll(&mut polled);
        if let Ok(count) = result {
            polled[..count].iter().for_each(|completion| take(self, completion));
        }
        self.scratch.completions = polled;
        result
    }

    /// Takes everything off the adapter into the queue's backlog.
    pub(crate) fn save_completions(&mut self, queue: CompletionQueue) {
        let mut saved = Vec::new();
        while let Ok(BATCH) = self.poll_adapter(queue, BATCH, |context, completion| {
            saved.extend(context.translate(completion));
        }) {}
        if let Some(entry) = self.completion_queues.get_mut(queue.0) {
            entry.backlog.extend(saved);
        }
    }

    /// What to report of one completion, if anything.
    fn translate(&mut self, completion: &IbvWc) -> Option<WorkCompletion> {
        let status = status(completion.status);
        let mut report = WorkCompletion { status, qp: QpNumber(completion.qp_num), ..WorkCompletion::default() };
        let mut received = true;
        let lane = self.service.as_ref().and_then(|service| service.lane_numbers.get(&completion.qp_num));
        if let Some(stands_for) = lane {
            report.qp = QpNumber(*stands_for);
        }
        let pair = match self.registry.find(completion.wr_id)? {
            (WorkQueue::Send(pair, queue), slot) => {
                let request = queue.complete(slot)?;
                (report.id, report.opcode, report.bytes) = (request.id, request.opcode, request.bytes);
                if status == WcStatus::Success && !request.signalled {
                    return None;
                }
                received = false;
                Some(*pair)
            }
            (WorkQueue::Receive(pair, queue), slot) => {
                report.id = queue.complete(slot)?;
                Some(*pair)
            }
            (WorkQueue::Shared(queue), slot) => {
                report.id = queue.complete(slot)?;
                None
            }
            // These complete to a queue of our own.
            (WorkQueue::Lane(..) | WorkQueue::Control(_), _) => return None,
        };
        if let Some(entry) = pair.and_then(|pair| self.pairs.get(pair)) {
            report.qp = QpNumber(entry.pair.number());
        }
        if status != WcStatus::Success {
            // Only these mean something, and the pair goes to the error state with all that is posted.
            let failed = pair.or_else(|| self.pair_of_number(report.qp.0));
            failed.into_iter().for_each(|pair| self.fail(pair));
            return Some(WorkCompletion { bytes: 0, ..report });
        }
        if received {
            self.describe_receive(completion, pair, &mut report);
        }
        Some(report)
    }

    fn describe_receive(&self, completion: &IbvWc, pair: Option<SlabKey>, report: &mut WorkCompletion) {
        report.opcode = receive_opcode(completion.opcode);
        report.bytes = completion.byte_len.into();
        report.immediate = (completion.wc_flags & WC_WITH_IMM != 0).then(|| u32::from_be(completion.imm_data));
        let pair = pair.or_else(|| self.pair_of_number(report.qp.0)).and_then(|pair| self.pairs.get(pair));
        if pair.is_some_and(|pair| pair.attributes.transport == Transport::UnreliableDatagram) {
            report.source = Some(QpNumber(completion.src_qp));
        }
    }

    fn pair_of_number(&self, number: u32) -> Option<SlabKey> {
        self.pair_numbers.get(&number).copied()
    }

    /// Notes that a request of a pair failed, and sees to it that everything posted to it is flushed: an adapter may
    /// have stopped one of its queues only.
    fn fail(&mut self, key: SlabKey) {
        let Some(entry) = self.pairs.get_mut(key) else { return };
        if entry.failed || entry.attributes.transport == Transport::UnreliableDatagram {
            return;
        }
        if entry.substitute.is_some() {
            self.fail_substitute(key, true);
            return;
        }
        entry.failed = true;
        self.flush(key);
        if self.pairs.get(key).is_some_and(|entry| entry.state != fabric::QueuePairState::Error) {
            self.note(AsynchronousEvent::QueuePairError(QueuePair(key)));
        }
    }

    /// Moves a pair to the error state, again if it is there.
    pub(crate) fn flush(&self, key: SlabKey) {
        let attributes = IbvQpAttr { qp_state: QPS_ERR, ..IbvQpAttr::default() };
        if let Some(entry) = self.pairs.get(key) {
            // Refused only where there is nothing left to flush.
            let _ = entry.pair.modify(&attributes, qp_attr::STATE);
        }
    }

    pub(crate) fn note(&mut self, event: AsynchronousEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn look_for_overrun(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        let Some(entry) = self.completion_queues.get_mut(queue.0) else { return Ok(()) };
        entry.empty_polls += 1;
        if entry.empty_polls >= EMPTY_POLLS {
            entry.empty_polls = 0;
            self.take_events();
        }
        match self.completion_entry(queue)? {
            entry if entry.overrun => Err(FabricError::CompletionQueueOverrun { depth: entry.depth }),
            _ => Ok(()),
        }
    }

    /// Takes the events of the adapter.
    pub(crate) fn take_events(&mut self) {
        while let Some((kind, object)) = self.adapter.next_event() {
            match kind {
                event::CQ_ERR => self.overran(object),
                event::QP_FATAL | event::QP_REQ_ERR | event::QP_ACCESS_ERR => {
                    let failed = self.pairs.iter().find(|(_, entry)| entry.pair.id() == object).map(|(key, _)| key);
                    failed.into_iter().for_each(|key| self.fail(key));
                }
                event::SRQ_LIMIT_REACHED => {
                    let low = self.shared.iter().find(|(_, entry)| entry.queue.id() == object).map(|(key, _)| key);
                    if let Some(key) = low {
                        self.note(AsynchronousEvent::ReceiveLimitReached(SharedReceiveQueue(key)));
                    }
                }
                event::DEVICE_FATAL => self.note(AsynchronousEvent::DeviceFatal),
                _ => {}
            }
        }
        self.note_lost_groups();
    }

    /// Some completions of the queue are lost: whatever completes to it can not be trusted any more.
    fn overran(&mut self, object: u64) {
        let full = self.completion_queues.iter().find(|(_, entry)| entry.completions.id() == object);
        let Some((key, _)) = full else { return };
        if let Some(entry) = self.completion_queues.get_mut(key) {
            entry.overrun = true;
        }
        let queue = CompletionQueue(key);
        self.note(AsynchronousEvent::CompletionQueueOverrun(queue));
        let uses = |attributes: &fabric::QueuePairAttributes| {
            attributes.send_completions == queue || attributes.receive_completions == queue
        };
        let pairs: Vec<SlabKey> =
            self.pairs.iter().filter(|(_, entry)| uses(&entry.attributes)).map(|(key, _)| key).collect();
        pairs.into_iter().for_each(|pair| self.fail(pair));
    }
}

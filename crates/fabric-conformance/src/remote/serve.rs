//! The other side of the stream: makes the calls that come.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use fabric::{Context, FabricError, MemoryRegion, WorkCompletion};

use super::call::{self, Call, MemoryNumber, OwnedReceive, OwnedSend};
use super::wire::{from_bytes, malformed, to_bytes};
use crate::memory::LocalBytes;

/// Serves the [`Remote`](super::Remote) at the other end of `stream` until it closes it: opens contexts with `open`, one
/// after the other, and makes the calls on them that are asked for.
///
/// # Errors
/// When the stream breaks, or brings what is no call.
///
/// # Panics
/// If a call goes beyond its memory.
pub fn serve(
    mut stream: impl Read + Write,
    mut open: impl FnMut(&str) -> Result<Box<dyn Context>, String>,
) -> io::Result<()> {
    let mut context: Option<Served> = None;
    while let Some(body) = call::receive(&mut stream)? {
        let answer = match (from_bytes(&body)?, &mut context) {
            (Call::Open(how), None) => {
                let opened = open(&how);
                let capabilities = opened.as_ref().map(|context| context.capabilities().clone());
                let answer = to_bytes(&capabilities.map_err(String::clone));
                context = opened.ok().map(|context| Served { context, memories: Vec::new() });
                answer
            }
            (Call::Close, Some(_)) => {
                context = None;
                to_bytes(&())
            }
            (call, Some(context)) => context.answer(call)?,
            (call, None) => return Err(malformed(&format!("{call:?} without a context"))),
        };
        call::send(&mut stream, &answer)?;
    }
    Ok(())
}

/// A context, and the memory that was registered on request.
struct Served {
    context: Box<dyn Context>,
    memories: Vec<LocalBytes>,
}

impl Served {
    /// Makes the call; returns its answer as bytes.
    fn answer(&mut self, call: Call) -> io::Result<Vec<u8>> {
        let context = self.context.as_mut();
        Ok(match call {
            Call::Open(_) | Call::Close => return Err(malformed("one context at a time")),
            Call::AllocateProtectionDomain => to_bytes(&context.allocate_protection_domain()),
            Call::DeallocateProtectionDomain(domain) => to_bytes(&context.deallocate_protection_domain(domain)),
            Call::Deregister(region) => to_bytes(&context.deregister(region)),
            Call::CreateCompletionQueue(depth) => to_bytes(&context.create_completion_queue(depth)),
            Call::DestroyCompletionQueue(queue) => to_bytes(&context.destroy_completion_queue(queue)),
            Call::Poll(queue, count_max) => polled(count_max, |into| context.poll(queue, into)),
            Call::PollAtHand(queue, count_max) => polled(count_max, |into| context.poll_at_hand(queue, into)),
            Call::Arm(queue, on) => to_bytes(&context.arm(queue, on)),
            Call::Acknowledge(queue) => to_bytes(&context.acknowledge(queue)),
            Call::IsReadable(queue) => to_bytes(&context.descriptor(queue).map(is_readable)),
            Call::OpenXrcDomain => to_bytes(&context.open_xrc_domain()),
            Call::CloseXrcDomain(domain) => to_bytes(&context.close_xrc_domain(domain)),
            Call::CreateSharedReceiveQueue(attributes) => to_bytes(&context.create_shared_receive_queue(&attributes)),
            Call::DestroySharedReceiveQueue(queue) => to_bytes(&context.destroy_shared_receive_queue(queue)),
            Call::SharedReceiveQueueNumber(queue) => to_bytes(&context.shared_receive_queue_number(queue)),
            Call::SetReceiveLimit(queue, limit) => to_bytes(&context.set_receive_limit(queue, limit)),
            Call::PostSharedReceive(queue, requests) => {
                let requests: Vec<_> = requests.iter().map(OwnedReceive::request).collect();
                to_bytes(&context.post_shared_receive(queue, &requests))
            }
            Call::PostMultiQueueReceive(queues, request) => {
                to_bytes(&context.post_multi_queue_receive(&queues, &request.request()))
            }
            Call::WithdrawReceive(receive) => to_bytes(&context.withdraw_receive(receive)),
            Call::CreateQueuePair(attributes) => to_bytes(&context.create_queue_pair(&attributes)),
            Call::DestroyQueuePair(qp) => to_bytes(&context.destroy_queue_pair(qp)),
            Call::Endpoint(qp) => to_bytes(&context.endpoint(qp)),
            Call::Modify(qp, transition) => to_bytes(&context.modify(qp, &transition)),
            Call::QueuePairState(qp) => to_bytes(&context.queue_pair_state(qp)),
            Call::PostSend(qp, requests) => {
                let requests: Vec<_> = requests.iter().map(OwnedSend::request).collect();
                to_bytes(&context.post_send(qp, &requests))
            }
            Call::PostReceive(qp, requests) => {
                let requests: Vec<_> = requests.iter().map(OwnedReceive::request).collect();
                to_bytes(&context.post_receive(qp, &requests))
            }
            Call::CreateAddressHandle(domain, to) => to_bytes(&context.create_address_handle(domain, to.address())),
            Call::DestroyAddressHandle(address) => to_bytes(&context.destroy_address_handle(address)),
            Call::AttachMulticast(qp, group) => to_bytes(&context.attach_multicast(qp, group)),
            Call::DetachMulticast(qp, group) => to_bytes(&context.detach_multicast(qp, group)),
            Call::NextEvent => to_bytes(&context.next_event()),
            Call::Register(domain, len, access) => {
                let made = LocalBytes::registered(context, domain, len, access);
                to_bytes(&self.keep(made))
            }
            Call::Allocate(domain, len, access) => {
                let made = LocalBytes::allocated(context, domain, len, access);
                to_bytes(&self.keep(made))
            }
            Call::Write(memory, offset, bytes) => to_bytes(&self.memory(memory)?.write(offset, &bytes)),
            Call::Fill(memory, byte) => to_bytes(&self.memory(memory)?.fill(byte)),
            Call::Read(memory, offset, len) => to_bytes(&self.memory(memory)?.read(offset, len).into_boxed_slice()),
        })
    }

    fn keep(
        &mut self,
        made: Result<(LocalBytes, MemoryRegion), FabricError>,
    ) -> Result<(MemoryNumber, MemoryRegion), FabricError> {
        let (bytes, region) = made?;
        self.memories.push(bytes);
        Ok((self.memories.len() - 1, region))
    }

    fn memory(&self, number: MemoryNumber) -> io::Result<&LocalBytes> {
        self.memories.get(number).ok_or_else(|| malformed("there is no such memory"))
    }
}

/// What polling so many completions at most comes to, as bytes.
fn polled(count_max: usize, poll: impl FnOnce(&mut [WorkCompletion]) -> Result<usize, FabricError>) -> Vec<u8> {
    let mut into = vec![WorkCompletion::default(); count_max];
    let found = poll(&mut into).map(|count| {
        into.truncate(count);
        into
    });
    to_bytes(&found)
}

/// True if the descriptor is readable now.
pub(crate) fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&now)).expect("a poll") == 1
}

#[cfg(test)]
mod tests {
    use super::super::Remote;
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> [UnixStream; 2] {
        UnixStream::pair().expect("a stream").into()
    }

    #[test]
    fn who_has_no_device_says_why_and_can_be_asked_again() {
        let [ours, theirs] = pair();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| serve(theirs, |how| Err(format!("no {how} here"))));
            let remote = Remote::new(ours);
            for how in ["adapter", "wire"] {
                assert_eq!(remote.open(how).err(), Some(format!("no {how} here")));
            }
            drop(remote);
            served.join().expect("no panic").expect("the end of the stream is no error");
        });
    }

    #[test]
    fn what_is_no_call_ends_the_service() {
        for body in [to_bytes(&Call::Close), to_bytes(&Call::NextEvent), vec![200], vec![]] {
            let [mut ours, theirs] = pair();
            call::send(&mut ours, &body).expect("sent");
            drop(ours);
            assert!(serve(theirs, |_| Err("none".into())).is_err(), "{body:?}");
        }
    }

    #[test]
    #[should_panic(expected = "the other process does not answer Open(\"adapter\")")]
    fn a_process_that_has_gone_is_noticed() {
        let [ours, theirs] = pair();
        drop(theirs);
        let _ = Remote::new(ours).open("adapter");
    }
}

//! XRC, the adapter's own or its substitute: what the conformance suite's few messages do not reach.

use crate::side::Side;
use base::memory::WriteRange;
use fabric::{
    Access, AsynchronousEvent, ConnectOptions, Destination, Endpoint, FabricError, LocalMemory, NotifyOn, Operation,
    Payload, QueuePairAttributes, QueuePairState, ReceiveRequest, SendRequest, SharedReceiveQueue,
    SharedReceiveQueueAttributes, SrqNumber, Transition, Transport, WcStatus, WorkCompletion, XrcDomain,
};
use std::time::Duration;

/// An initiator, a target, and the domain it reaches.
struct Connection {
    from: Side,
    to: Side,
    domain: XrcDomain,
}

impl Connection {
    fn new(options: &ConnectOptions) -> Option<Self> {
        let from = Side::new(|attributes| {
            (attributes.transport, attributes.receive_depth) = (Transport::XrcInitiator, 0);
        })?;
        let mut to = Side::new(|_| {})?;
        let domain = to.context.open_xrc_domain().unwrap();
        let mut attributes = QueuePairAttributes::new(to.domain, to.completions);
        attributes.transport = Transport::XrcTarget(domain);
        to.context.destroy_queue_pair(to.qp).unwrap();
        to.qp = to.context.create_queue_pair(&attributes).unwrap();
        let mut connection = Self { from, to, domain };
        connection.join(options);
        Some(connection)
    }

    fn join(&mut self, options: &ConnectOptions) {
        let (here, there): (Endpoint, Endpoint) = (self.from.endpoint(), self.to.endpoint());
        fabric::connect(&mut *self.to.context, self.to.qp, Some(here), options).unwrap();
        fabric::connect(&mut *self.from.context, self.from.qp, Some(there), options).unwrap();
    }

    fn queue(&mut self, depth: u32) -> (SharedReceiveQueue, SrqNumber) {
        let attributes = SharedReceiveQueueAttributes {
            protection_domain: self.to.domain,
            depth,
            entries_max: 1,
            xrc: Some((self.domain, self.to.completions)),
        };
        let queue = self.to.context.create_shared_receive_queue(&attributes).unwrap();
        (queue, self.to.context.shared_receive_queue_number(queue).unwrap())
    }

    fn receive(&mut self, queue: SharedReceiveQueue, id: u64) {
        let list = [self.to.region.part(8 * (id % 1000), 8)];
        assert_eq!(self.to.context.post_shared_receive(queue, &[ReceiveRequest { id, list: &list }]), Ok(1));
    }

    /// Waits for what the target completes in its own time.
    fn receive_until(&mut self, count: usize, received: &mut Vec<WorkCompletion>) {
        while received.len() < count {
            received.push(self.to.next());
        }
    }

    /// Polls both ends until the initiator has `count` completions; those of the target go to `received`.
    fn until(&mut self, count: usize, received: &mut Vec<WorkCompletion>) -> Vec<WorkCompletion> {
        let mut done = Vec::new();
        let mut some = [WorkCompletion::default(); 16];
        for _ in 0..400_000 {
            let polled = self.to.context.poll(self.to.completions, &mut some).unwrap();
            received.extend_from_slice(&some[..polled]);
            let room = (count - done.len()).min(some.len());
            let polled = self.from.context.poll(self.from.completions, &mut some[..room]).unwrap();
            done.extend_from_slice(&some[..polled]);
            if done.len() == count {
                return done;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        panic!("{} of {count} completions: {done:?}; received {received:?}", done.len());
    }
}

fn to(number: SrqNumber, id: u64, bytes: &[u8]) -> SendRequest<'_> {
    let destination = Destination::SharedReceiveQueue(number);
    SendRequest { destination, ..SendRequest::new(id, Operation::Send, Payload::Inline(bytes)) }
}

fn hasty() -> ConnectOptions {
    ConnectOptions { timeout: Duration::from_millis(17), retry_count: 2, ..ConnectOptions::default() }
}

fn ends(done: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    done.iter().map(|completion| (completion.id, completion.status)).collect()
}

#[test]
fn requests_to_many_queues_are_carried_out_in_order() {
    let Some(mut pair) = Connection::new(&ConnectOptions::default()) else { return };
    let queues: Vec<_> = (0..4).map(|_| pair.queue(64)).collect();
    let counter = pair.to.region.remote(16_000);
    let (mut received, mut expected, mut random) = (Vec::new(), Vec::new(), 88_172_645_463_325_252_u64);
    for round in 0..10u64 {
        let mut signalled = 0;
        for step in 0..16u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (queue, number) = queues[random as usize % 4];
            let message = round * 16 + step;
            pair.receive(queue, random % 4 * 1000 + message);
            expected.push(random % 4 * 1000 + message);
            // Who gets the message finds the number that was written before it.
            let count = (message + 1).to_ne_bytes();
            let mut write = SendRequest::new(message, Operation::RdmaWrite(counter), Payload::Inline(&count));
            write.flags.signalled = random & 16 == 0;
            let mut send = to(number, message, &count);
            send.flags.signalled = step == 15 || random & 32 == 0;
            signalled += usize::from(write.flags.signalled) + usize::from(send.flags.signalled);
            assert_eq!(pair.from.context.post_send(pair.from.qp, &[write, send]), Ok(2));
        }
        let done = pair.until(signalled, &mut received);
        assert!(done.iter().all(|completion| completion.status == WcStatus::Success), "{done:?}");
        assert!(done.is_sorted_by_key(|completion| completion.id), "{done:?}");
    }
    pair.receive_until(expected.len(), &mut received);
    let mut ids: Vec<u64> = received.iter().map(|completion| completion.id).collect();
    assert!(received.iter().all(|completion| completion.qp == pair.to.endpoint().qp()));
    for queue in 0..4 {
        let of_queue: Vec<u64> = ids.iter().copied().filter(|id| id / 1000 == queue).collect();
        assert!(of_queue.is_sorted(), "queue {queue}: {of_queue:?}");
    }
    ids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert_eq!(pair.to.memory[16_000..16_008], 160u64.to_ne_bytes());
    // The receive that a message met has its number.
    for message in 0..160usize {
        assert_eq!(pair.to.memory[8 * message..8 * message + 8], (message as u64 + 1).to_ne_bytes());
    }
}

#[test]
fn a_queue_that_is_not_there_ends_the_connection_in_order() {
    let Some(mut pair) = Connection::new(&ConnectOptions::default()) else { return };
    let (queue, number) = pair.queue(8);
    pair.receive(queue, 1);
    pair.receive(queue, 2);
    let requests = [
        to(number, 10, b"first"),
        to(SrqNumber(0x00ab_cdef), 11, b"nowhere"),
        to(number, 12, b"never"),
        SendRequest::new(13, Operation::RdmaWrite(pair.to.region.remote(0)), Payload::Inline(b"never")),
    ];
    assert_eq!(pair.from.context.post_send(pair.from.qp, &requests), Ok(4));
    let (mut received, flushed) = (Vec::new(), WcStatus::WorkRequestFlushed);
    let done = pair.until(4, &mut received);
    assert_eq!(
        ends(&done),
        [(10, WcStatus::Success), (11, WcStatus::RemoteInvalidRequest), (12, flushed), (13, flushed)]
    );
    assert_eq!(pair.from.context.queue_pair_state(pair.from.qp), Ok(QueuePairState::Error));
    assert_eq!(pair.from.context.next_event(), Some(AsynchronousEvent::QueuePairError(pair.from.qp)));
    pair.receive_until(1, &mut received);
    assert_eq!(ends(&received), [(1, WcStatus::Success)]);
    pair.from.send(to(number, 14, b"late"));
    assert_eq!(ends(&pair.until(1, &mut received)), [(14, flushed)]);
    // Both start again, and nothing of before is left.
    for side in [&mut pair.from, &mut pair.to] {
        side.context.modify(side.qp, &Transition::Reset).unwrap();
    }
    pair.join(&ConnectOptions::default());
    pair.from.send(to(number, 15, b"again"));
    assert_eq!(ends(&pair.until(1, &mut received)), [(15, WcStatus::Success)]);
    pair.receive_until(2, &mut received);
    assert_eq!(ends(&received[1..]), [(2, WcStatus::Success)]);
}

#[test]
fn a_target_that_is_gone_ends_what_waits_for_it() {
    let Some(pair) = Connection::new(&hasty()) else { return };
    let Connection { mut from, to: target, .. } = pair;
    drop(target);
    from.send(to(SrqNumber(1), 1, b"hello?"));
    from.send(to(SrqNumber(1), 2, b"hello?"));
    assert_eq!(from.next().status, WcStatus::TransportRetryExceeded);
    assert_eq!(from.next().status, WcStatus::WorkRequestFlushed);
}

#[test]
fn a_queue_that_goes_is_out_of_reach() {
    let Some(mut pair) = Connection::new(&hasty()) else { return };
    let ((queue, number), (other, other_number)) = (pair.queue(8), pair.queue(8));
    pair.receive(queue, 1);
    pair.receive(other, 2);
    let mut received = Vec::new();
    pair.from.send(to(number, 1, b"here"));
    pair.from.send(to(other_number, 2, b"there"));
    assert_eq!(ends(&pair.until(2, &mut received)), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    pair.receive(queue, 3);
    pair.to.context.destroy_shared_receive_queue(queue).unwrap();
    assert!(pair.to.context.shared_receive_queue_number(queue).is_err());
    pair.from.send(to(number, 3, b"gone"));
    let status = pair.until(1, &mut received)[0].status;
    assert!(matches!(status, WcStatus::RemoteInvalidRequest | WcStatus::TransportRetryExceeded), "{status:?}");
}

#[test]
fn what_a_queue_has_received_is_told_though_it_goes() {
    let Some(mut pair) = Connection::new(&ConnectOptions::default()) else { return };
    let (queue, number) = pair.queue(8);
    let mut received = Vec::new();
    // Once before, so that nothing is left to be made that takes polls of both.
    pair.receive(queue, 1);
    pair.from.send(to(number, 1, b"first"));
    pair.until(1, &mut received);
    pair.receive_until(1, &mut received);
    pair.receive(queue, 2);
    pair.from.send(to(number, 2, b"second"));
    assert_eq!(pair.from.next().status, WcStatus::Success);
    pair.to.context.destroy_shared_receive_queue(queue).unwrap();
    received.push(pair.to.next());
    assert_eq!(ends(&received), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn memory_is_reached_though_no_queue_is_there_and_within_its_protection_domain_only() {
    let Some(mut pair) = Connection::new(&ConnectOptions::default()) else { return };
    let mut none = Vec::new();
    let beside = pair.to.region.remote(8);
    pair.from.send(SendRequest::new(1, Operation::RdmaWrite(beside), Payload::Inline(b"reached!")));
    assert_eq!(ends(&pair.until(1, &mut none)), [(1, WcStatus::Success)]);
    assert_eq!(&pair.to.memory[8..16], b"reached!");
    let list = [pair.from.region.part(0, 8)];
    pair.from.send(SendRequest::new(2, Operation::RdmaRead(beside), Payload::Memory(&list)));
    assert_eq!(ends(&pair.until(1, &mut none)), [(2, WcStatus::Success)]);
    assert_eq!(&pair.from.memory[..8], b"reached!");
    if pair.from.context.capabilities().atomics {
        let swap = Operation::CompareSwap { remote: beside, compare: u64::from_ne_bytes(*b"reached!"), swap: 7 };
        pair.from.send(SendRequest::new(3, swap, Payload::Memory(&list)));
        assert_eq!(ends(&pair.until(1, &mut none)), [(3, WcStatus::Success)]);
        assert_eq!(pair.to.memory[8..16], 7u64.to_ne_bytes());
    }
    // Another domain's memory is out of reach, though the same process owns it.
    let other = pair.to.context.allocate_protection_domain().unwrap();
    // SAFETY: the memory lives until the region is deregistered, at the latest with the context.
    let range = unsafe { WriteRange::new(pair.to.memory.as_mut_ptr(), 64) };
    let region = pair.to.context.register(other, LocalMemory::Target(range), Access::REMOTE_ALL).unwrap();
    pair.from.send(SendRequest::new(4, Operation::RdmaWrite(region.remote(16)), Payload::Inline(b"strange")));
    assert_eq!(ends(&pair.until(1, &mut none)), [(4, WcStatus::RemoteAccessError)]);
    assert_eq!(pair.to.memory[16..24], [0; 8]);
}

#[test]
fn what_an_xrc_target_was_made_from_stays_until_it_goes() {
    let Some(pair) = Connection::new(&ConnectOptions::default()) else { return };
    let Connection { mut to, domain, .. } = pair;
    let mut attributes = QueuePairAttributes::new(to.domain, to.completions);
    attributes.transport = Transport::XrcTarget(domain);
    let another = to.context.create_queue_pair(&attributes).unwrap();
    to.context.deregister(to.region).unwrap();
    for qp in [to.qp, another] {
        let in_use = |result| assert!(matches!(result, Err(FabricError::InUse { .. })), "{result:?}");
        in_use(to.context.close_xrc_domain(domain));
        in_use(to.context.destroy_completion_queue(to.completions));
        in_use(to.context.deallocate_protection_domain(to.domain));
        to.context.destroy_queue_pair(qp).unwrap();
    }
    to.context.close_xrc_domain(domain).unwrap();
    to.context.destroy_completion_queue(to.completions).unwrap();
    to.context.deallocate_protection_domain(to.domain).unwrap();
}

#[test]
fn more_queues_than_a_connection_has_lanes_are_all_reached() {
    let Some(mut pair) = Connection::new(&ConnectOptions::default()) else { return };
    let queues: Vec<_> = (0..300).map(|_| pair.queue(2)).collect();
    let mut received = Vec::new();
    for round in 0..2u64 {
        for (place, (queue, number)) in queues.iter().enumerate() {
            let id = round * 1000 + place as u64;
            pair.receive(*queue, id);
            pair.from.send(to(*number, id, b"x"));
            assert_eq!(ends(&pair.until(1, &mut received)), [(id, WcStatus::Success)]);
        }
    }
    pair.receive_until(600, &mut received);
    assert!(received.iter().all(|completion| completion.status == WcStatus::Success));
    assert!(received.is_sorted_by_key(|completion| completion.id), "one at a time, so in order");
}

#[test]
fn whoever_sleeps_on_the_descriptor_hears_of_everything() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(mut pair) = Connection::new(&ConnectOptions::default()) else { return };
    let (queue, number) = pair.queue(8);
    for turn in 0..3 {
        for side in [&mut pair.from, &mut pair.to] {
            side.context.arm(side.completions, NotifyOn::Any).unwrap();
            assert_eq!(side.context.poll(side.completions, &mut [WorkCompletion::default()]), Ok(0));
        }
        pair.receive(queue, turn);
        pair.from.send(to(number, turn, b"wake up"));
        let mut done = [0, 0];
        // Nobody polls unless its descriptor says so.
        for _ in 0..200 {
            for (side, done) in [&mut pair.from, &mut pair.to].into_iter().zip(&mut done) {
                let descriptor = side.context.descriptor(side.completions).unwrap();
                let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                if poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap() == 0 {
                    continue;
                }
                side.context.acknowledge(side.completions).unwrap();
                side.context.arm(side.completions, NotifyOn::Any).unwrap();
                *done += side.context.poll(side.completions, &mut [WorkCompletion::default()]).unwrap();
            }
            if done == [1, 1] {
                break;
            }
        }
        assert_eq!(done, [1, 1], "turn {turn}");
    }
}

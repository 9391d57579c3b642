//! Two contexts of one process, on one adapter.

use crate::side::{BYTES, Side, connect, connected, pattern};
use fabric::{
    AsynchronousEvent, CompletionOpcode, ConnectOptions, DatagramAddress, Destination, FabricError, MulticastGroup,
    NotifyOn, Operation, Payload, Qkey, QueuePairAttributes, QueuePairState, ReceiveRequest, ReceiverNotReadyRetry,
    SendFlags, SendRequest, SharedReceiveQueueAttributes, Transition, Transport, WcStatus, WorkCompletion,
};
use std::time::Duration;

#[test]
fn messages_arrive_gathered_and_scattered() {
    let Some((mut a, mut b)) = connected(&ConnectOptions::default()) else { return };
    pattern(&mut a.memory, 1);
    let into = [b.region.part(0, 10), b.region.part(100, 0), b.region.part(100, 4000)];
    b.context.post_receive(b.qp, &[ReceiveRequest { id: 7, list: &into }]).unwrap();
    b.receive(8, 8000, 100);
    let from = [a.region.part(5, 3000), a.region.part(4000, 1000)];
    a.send(SendRequest::new(1, Operation::SendWithImmediate(0x1234_5678), Payload::Memory(&from)));
    a.send(SendRequest::new(2, Operation::Send, Payload::Inline(b"ferrovia")));
    assert_eq!(a.completed(1).opcode, CompletionOpcode::Send);
    a.completed(2);
    let got = b.completed(7);
    assert_eq!((got.bytes, got.immediate, got.opcode), (4000, Some(0x1234_5678), CompletionOpcode::Receive));
    assert_eq!(got.qp, b.endpoint().qp());
    assert_eq!((b.completed(8).bytes, &b.memory[8000..8008]), (8, &b"ferrovia"[..]));
    let sent: Vec<u8> = a.memory[5..3005].iter().chain(&a.memory[4000..5000]).copied().collect();
    let arrived: Vec<u8> = b.memory[..10].iter().chain(&b.memory[100..4090]).copied().collect();
    assert_eq!(sent, arrived);
}

#[test]
fn remote_memory_is_written_read_and_counted_in() {
    let Some((mut a, mut b)) = connected(&ConnectOptions::default()) else { return };
    pattern(&mut a.memory, 2);
    b.memory[8192..8200].copy_from_slice(&40u64.to_ne_bytes());
    b.receive(9, 0, 0);
    let list = [a.region.part(0, 5000)];
    a.send(SendRequest::new(1, Operation::RdmaWrite(b.region.remote(16)), Payload::Memory(&list)));
    a.send(SendRequest::new(2, Operation::RdmaWriteWithImmediate(b.region.remote(6000), 5), Payload::Inline(b"x")));
    a.completed(1);
    a.completed(2);
    let got = b.completed(9);
    assert_eq!((got.opcode, got.immediate), (CompletionOpcode::ReceiveRdmaWithImmediate, Some(5)));
    assert_eq!((&b.memory[16..5016], b.memory[6000]), (&a.memory[..5000], b'x'));
    let back = [a.region.part(10_000, 3000)];
    a.send(SendRequest::new(3, Operation::RdmaRead(b.region.remote(1000)), Payload::Memory(&back)));
    assert_eq!((a.completed(3).bytes, &a.memory[10_000..13_000]), (3000, &b.memory[1000..4000]));
    if a.context.capabilities().atomics {
        let old = [a.region.part(16_000, 8)];
        let remote = b.region.remote(8192);
        a.send(SendRequest::new(4, Operation::FetchAdd { remote, add: 2 }, Payload::Memory(&old)));
        assert_eq!(a.completed(4).opcode, CompletionOpcode::FetchAdd);
        assert_eq!(a.memory[16_000..16_008], 40u64.to_ne_bytes());
        let swap = Operation::CompareSwap { remote, compare: 42, swap: 99 };
        a.send(SendRequest::new(5, swap, Payload::Memory(&old)));
        a.completed(5);
        assert_eq!(
            (&a.memory[16_000..16_008], &b.memory[8192..8200]),
            (&42u64.to_ne_bytes()[..], &99u64.to_ne_bytes()[..])
        );
    }
}

#[test]
fn unsignalled_sends_make_room_again() {
    let Some((mut a, mut b)) = connected(&ConnectOptions::default()) else { return };
    let mut posted = 0u64;
    let quiet = |id| SendRequest {
        flags: SendFlags::default(),
        ..SendRequest::new(id, Operation::RdmaWrite(b.region.remote(8 * (id % 512))), Payload::Inline(b"12345678"))
    };
    let mut none = [WorkCompletion::default()];
    for _ in 0..100_000 {
        if posted == 1000 {
            break;
        }
        match a.context.post_send(a.qp, &[quiet(posted), quiet(posted + 1)]).unwrap() {
            0 => std::thread::sleep(Duration::from_micros(20)),
            taken => posted += taken as u64,
        }
        assert_eq!(a.context.poll(a.completions, &mut none), Ok(0), "{none:?}");
    }
    assert_eq!(posted, 1000);
    a.send(SendRequest::new(77, Operation::RdmaWrite(b.region.remote(0)), Payload::Inline(b"last")));
    a.completed(77);
    assert_eq!((&b.memory[..8], &b.memory[8..16]), (&b"last5678"[..], &b"12345678"[..]));
    b.receive(1, 0, 0);
}

#[test]
fn a_full_send_queue_takes_no_more_and_that_is_no_error() {
    let Some((mut a, b)) = connected(&ConnectOptions::default()) else { return };
    // Nothing is received, so nothing completes.
    let requests: Vec<SendRequest<'_>> =
        (0..100).map(|id| SendRequest::new(id, Operation::Send, Payload::Inline(b"x"))).collect();
    assert_eq!(a.context.post_send(a.qp, &requests), Ok(64));
    assert_eq!(a.context.post_send(a.qp, &requests), Ok(0));
    let long = vec![0; 5000];
    let error = |request: SendRequest<'_>, a: &mut Side| {
        a.context.destroy_queue_pair(a.qp).unwrap();
        a.qp = a.context.create_queue_pair(&QueuePairAttributes::new(a.domain, a.completions)).unwrap();
        let before = a.context.post_send(a.qp, &[request]).unwrap_err();
        assert!(matches!(before, FabricError::InvalidState { .. }), "{before}");
        fabric::connect(&mut *a.context, a.qp, Some(b.endpoint()), &ConnectOptions::default()).unwrap();
        a.context.post_send(a.qp, &[request]).unwrap_err()
    };
    let refused = error(SendRequest::new(1, Operation::Send, Payload::Inline(&long)), &mut a);
    assert!(matches!(refused, FabricError::BeyondLimit { .. }), "{refused}");
}

#[test]
fn rights_and_bounds_hold_and_a_failure_flushes_both_sides() {
    let Some((mut a, mut b)) = connected(&ConnectOptions::default()) else { return };
    b.receive(20, 0, 64);
    let beyond = b.region.remote(BYTES as u64 - 4);
    a.send(SendRequest::new(1, Operation::RdmaWrite(beyond), Payload::Inline(b"12345678")));
    a.send(SendRequest::new(2, Operation::Send, Payload::Inline(b"never")));
    assert_eq!(a.next().status, WcStatus::RemoteAccessError);
    let flushed = a.next();
    assert_eq!((flushed.id, flushed.status), (2, WcStatus::WorkRequestFlushed));
    assert_eq!(a.context.queue_pair_state(a.qp), Ok(QueuePairState::Error));
    assert_eq!(a.context.next_event(), Some(AsynchronousEvent::QueuePairError(a.qp)));
    let flushed = b.next();
    assert_eq!((flushed.id, flushed.status), (20, WcStatus::WorkRequestFlushed));
    assert_eq!(b.context.queue_pair_state(b.qp), Ok(QueuePairState::Error));
    // What is posted now is flushed too.
    a.send(SendRequest::new(3, Operation::Send, Payload::Inline(b"never")));
    assert_eq!((a.next().status, b.memory[..8].to_vec()), (WcStatus::WorkRequestFlushed, vec![0; 8]));
    b.receive(21, 0, 64);
    let flushed = b.next();
    assert_eq!((flushed.id, flushed.status), (21, WcStatus::WorkRequestFlushed));
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for_or_not() {
    let patient = ConnectOptions::default();
    let Some((mut a, mut b)) = connected(&patient) else { return };
    a.send(SendRequest::new(1, Operation::Send, Payload::Inline(b"later")));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(a.context.poll(a.completions, &mut [WorkCompletion::default()]), Ok(0));
    b.receive(2, 0, 64);
    b.completed(2);
    a.completed(1);
    let hasty = ConnectOptions { receiver_not_ready_retry: ReceiverNotReadyRetry::Count(1), ..patient };
    let Some((mut a, _b)) = connected(&hasty) else { return };
    a.send(SendRequest::new(3, Operation::Send, Payload::Inline(b"never")));
    assert_eq!(a.next().status, WcStatus::ReceiverNotReadyRetryExceeded);
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides() {
    let Some((mut a, mut b)) = connected(&ConnectOptions::default()) else { return };
    b.receive(1, 0, 4);
    a.send(SendRequest::new(2, Operation::Send, Payload::Inline(b"12345678")));
    // The specification says "invalid request" and "length"; Soft-RoCE says "operation" on both sides.
    let (there, here) = (a.next().status, b.next().status);
    assert!(matches!(there, WcStatus::RemoteInvalidRequest | WcStatus::RemoteOperationError), "{there:?}");
    assert!(matches!(here, WcStatus::LocalLengthError | WcStatus::LocalQueuePairOperationError), "{here:?}");
    assert_eq!(b.memory[4..8], [0; 4]);
}

#[test]
fn a_peer_that_is_gone_fails_what_is_sent_to_it() {
    let hasty = ConnectOptions { timeout: Duration::from_millis(4), retry_count: 1, ..ConnectOptions::default() };
    let Some((mut a, b)) = connected(&hasty) else { return };
    drop(b);
    a.send(SendRequest::new(1, Operation::Send, Payload::Inline(b"hello?")));
    assert_eq!(a.next().status, WcStatus::TransportRetryExceeded);
}

#[test]
fn a_shared_queue_serves_two_connections_and_says_when_it_runs_low() {
    let (Some(mut a), Some(mut b)) = (Side::new(|_| {}), Side::new(|_| {})) else { return };
    let attributes = SharedReceiveQueueAttributes { protection_domain: b.domain, depth: 16, entries_max: 2, xrc: None };
    let shared = b.context.create_shared_receive_queue(&attributes).unwrap();
    let mut of_b = QueuePairAttributes::new(b.domain, b.completions);
    of_b.shared_receives = Some(shared);
    of_b.receive_depth = 0;
    let mut connections = Vec::new();
    for _ in 0..2 {
        let from = a.context.create_queue_pair(&QueuePairAttributes::new(a.domain, a.completions)).unwrap();
        let to = b.context.create_queue_pair(&of_b).unwrap();
        let (at_a, at_b) = (a.context.endpoint(from).unwrap(), b.context.endpoint(to).unwrap());
        let number = at_b.qp();
        fabric::connect(&mut *a.context, from, Some(at_b), &ConnectOptions::default()).unwrap();
        fabric::connect(&mut *b.context, to, Some(at_a), &ConnectOptions::default()).unwrap();
        connections.push((from, to, number));
    }
    let lists: Vec<[_; 1]> = (0..20).map(|slot| [b.region.part(slot * 64, 64)]).collect();
    let receives: Vec<ReceiveRequest<'_>> =
        (0..20).map(|id| ReceiveRequest { id, list: &lists[id as usize] }).collect();
    assert_eq!(b.context.post_shared_receive(shared, &receives), Ok(16), "as deep as it was made");
    b.context.set_receive_limit(shared, 15).unwrap();
    assert_eq!(b.context.next_event(), None);
    for (id, &(from, _, number)) in [0, 1, 0, 1].iter().map(|place| &connections[*place]).enumerate() {
        a.context.post_send(from, &[SendRequest::new(id as u64, Operation::Send, Payload::Inline(b"abc"))]).unwrap();
        a.completed(id as u64);
        let got = b.completed(id as u64);
        assert_eq!((got.qp, got.bytes), (number, 3));
    }
    assert_eq!(b.context.next_event(), Some(AsynchronousEvent::ReceiveLimitReached(shared)));
    assert_eq!(b.context.next_event(), None, "once");
    assert!(matches!(b.context.destroy_shared_receive_queue(shared), Err(FabricError::InUse { .. })));
    for (_, to, _) in connections {
        b.context.destroy_queue_pair(to).unwrap();
    }
    b.context.destroy_shared_receive_queue(shared).unwrap();
}

#[test]
fn a_reset_takes_no_place_from_the_shared_queue() {
    let (Some(mut a), Some(mut b)) = (Side::new(|_| {}), Side::new(|_| {})) else { return };
    let attributes = SharedReceiveQueueAttributes { protection_domain: b.domain, depth: 2, entries_max: 1, xrc: None };
    let shared = b.context.create_shared_receive_queue(&attributes).unwrap();
    let mut of_b = QueuePairAttributes::new(b.domain, b.completions);
    (of_b.shared_receives, of_b.receive_depth) = (Some(shared), 0);
    b.context.destroy_queue_pair(b.qp).unwrap();
    b.qp = b.context.create_queue_pair(&of_b).unwrap();
    for id in 0..4 {
        connect(&mut a, &mut b, &ConnectOptions::default());
        assert_eq!(b.context.post_shared_receive(shared, &[ReceiveRequest { id, list: &[] }]), Ok(1));
        a.send(SendRequest::new(id, Operation::Send, Payload::Inline(b"")));
        a.completed(id);
        // It has been received and not been polled.
        for side in [&mut b, &mut a] {
            side.context.modify(side.qp, &Transition::Reset).unwrap();
        }
        b.completed(id);
    }
}

fn datagrams() -> Option<(Side, Side)> {
    let side = || Side::new(|attributes| attributes.transport = Transport::UnreliableDatagram);
    let (mut a, mut b) = (side()?, side()?);
    let options = ConnectOptions { qkey: Qkey(0x1122), ..ConnectOptions::default() };
    fabric::connect(&mut *a.context, a.qp, None, &options).unwrap();
    fabric::connect(&mut *b.context, b.qp, None, &options).unwrap();
    Some((a, b))
}

#[test]
fn datagrams_arrive_behind_a_header_and_name_their_sender() {
    let Some((mut a, mut b)) = datagrams() else { return };
    let header = b.context.capabilities().limits.datagram_header_bytes;
    b.receive(1, 0, 200);
    let to = b.endpoint();
    let address = a.context.create_address_handle(a.domain, DatagramAddress::Endpoint(&to)).unwrap();
    let destination = Destination::Datagram { address, qp: to.qp(), qkey: Qkey(0x1122) };
    a.send(SendRequest {
        destination,
        ..SendRequest::new(2, Operation::SendWithImmediate(3), Payload::Inline(b"post"))
    });
    a.completed(2);
    let got = b.completed(1);
    assert_eq!((got.bytes, got.immediate, got.source), (u64::from(header) + 4, Some(3), Some(a.endpoint().qp())));
    assert_eq!(&b.memory[header as usize..header as usize + 4], b"post");
    a.context.destroy_address_handle(address).unwrap();
    let gone = SendRequest { destination, ..SendRequest::new(2, Operation::Send, Payload::Inline(b"post")) };
    assert!(matches!(a.context.post_send(a.qp, &[gone]), Err(FabricError::NoSuch(_))));
}

#[test]
fn a_group_is_reached_by_its_members_only() {
    let Some((mut a, mut b)) = datagrams() else { return };
    if !a.context.capabilities().multicast {
        println!("skipped: the adapter has no multicast");
        return;
    }
    let group = MulticastGroup([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7]);
    let header = u64::from(b.context.capabilities().limits.datagram_header_bytes);
    b.receive(1, 0, 200);
    b.receive(2, 200, 200);
    b.context.attach_multicast(b.qp, group).unwrap();
    let address = a.context.create_address_handle(a.domain, DatagramAddress::Multicast(group)).unwrap();
    let destination = Destination::Datagram { address, qp: fabric::QpNumber(0), qkey: Qkey(0x1122) };
    let request = SendRequest { destination, ..SendRequest::new(3, Operation::Send, Payload::Inline(b"all")) };
    a.send(request);
    a.completed(3);
    assert_eq!(b.completed(1).bytes, header + 3);
    b.context.detach_multicast(b.qp, group).unwrap();
    assert!(matches!(b.context.detach_multicast(b.qp, group), Err(FabricError::NoSuch(_))));
    a.send(request);
    a.completed(3);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(b.context.poll(b.completions, &mut [WorkCompletion::default()]), Ok(0));
}

#[test]
fn an_armed_queue_makes_its_descriptor_readable_once() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some((mut a, mut b)) = connected(&ConnectOptions::default()) else { return };
    let readable = |side: &Side, millis: i64| {
        let descriptor = side.context.descriptor(side.completions).unwrap();
        let mut one = [PollFd::new(&descriptor, PollFlags::IN)];
        let limit = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
        poll(&mut one, Some(&limit)).unwrap() == 1
    };
    b.receive(1, 0, 64);
    b.receive(2, 0, 64);
    b.context.arm(b.completions, NotifyOn::Solicited).unwrap();
    a.send(SendRequest::new(1, Operation::Send, Payload::Inline(b"quiet")));
    a.completed(1);
    b.completed(1);
    assert!(!readable(&b, 50), "nobody asked for this one");
    let mut loud = SendRequest::new(2, Operation::Send, Payload::Inline(b"loud"));
    loud.flags.solicited = true;
    a.send(loud);
    assert!(readable(&b, 10_000));
    b.context.acknowledge(b.completions).unwrap();
    assert!(!readable(&b, 0));
    b.completed(2);
    a.completed(2);
}

#[test]
fn handles_of_what_is_gone_name_nothing_and_what_is_used_stays() {
    let Some(mut side) = Side::new(|_| {}) else { return };
    assert!(matches!(side.context.destroy_completion_queue(side.completions), Err(FabricError::InUse { .. })));
    assert!(matches!(side.context.deallocate_protection_domain(side.domain), Err(FabricError::InUse { .. })));
    side.context.destroy_queue_pair(side.qp).unwrap();
    assert!(matches!(side.context.destroy_queue_pair(side.qp), Err(FabricError::NoSuch(_))));
    assert!(matches!(side.context.deallocate_protection_domain(side.domain), Err(FabricError::InUse { .. })));
    side.context.deregister(side.region).unwrap();
    assert_eq!(side.context.deregister(side.region), Err(FabricError::NoSuch("memory region")));
    side.context.deallocate_protection_domain(side.domain).unwrap();
    side.context.destroy_completion_queue(side.completions).unwrap();
    assert!(side.context.create_completion_queue(u32::MAX).is_err());
}

#[test]
fn completions_that_are_lost_are_told() {
    let Some(mut a) = Side::new(|attributes| attributes.send_depth = 1024) else { return };
    let Some(mut b) = Side::new(|_| {}) else { return };
    let small = a.context.create_completion_queue(1).unwrap();
    let mut attributes = QueuePairAttributes::new(a.domain, small);
    attributes.send_depth = 1024;
    let qp = a.context.create_queue_pair(&attributes).unwrap();
    let (at_a, at_b) = (a.context.endpoint(qp).unwrap(), b.endpoint());
    fabric::connect(&mut *a.context, qp, Some(at_b), &ConnectOptions::default()).unwrap();
    fabric::connect(&mut *b.context, b.qp, Some(at_a), &ConnectOptions::default()).unwrap();
    for id in 0..1000 {
        let write = SendRequest::new(id, Operation::RdmaWrite(b.region.remote(0)), Payload::Inline(b"x"));
        assert_eq!(a.context.post_send(qp, &[write]), Ok(1));
    }
    let mut event = None;
    for _ in 0..100_000 {
        event = event.or_else(|| a.context.next_event());
        if event.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(event, Some(AsynchronousEvent::CompletionQueueOverrun(small)));
    let (mut saved, mut next) = (0, [WorkCompletion::default()]);
    let overrun = loop {
        match a.context.poll(small, &mut next) {
            Ok(count) => saved += count,
            Err(error) => break error,
        }
    };
    assert!(matches!(overrun, FabricError::CompletionQueueOverrun { depth: 1 }), "{overrun}");
    assert!((1..1000).contains(&saved), "{saved}");
    assert_eq!(a.context.queue_pair_state(qp), Ok(QueuePairState::Error));
}

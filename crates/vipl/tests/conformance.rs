//! Each call of the provider, each of its errors, and the states of a VI.

mod common;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::*;
use vipl::*;

fn settings() -> Settings {
    Settings::default()
}

#[test]
fn a_nic_opens_with_settings_that_make_sense() {
    for push_max in [0, Settings::PUSH_MAX + 1] {
        assert!(matches!(Nic::open(Settings { push_max, ..settings() }), Err(Error::InvalidParameter { .. })));
    }
    let nic = Nic::open(settings()).unwrap();
    assert_eq!((nic.settings().push_max, nic.limits().segments_max), (32, 252));
    assert!(nic.is_unused());
}

#[test]
fn tags_are_taken_back_only_when_nothing_has_them() {
    let nic = Nic::open(settings()).unwrap();
    let (ptag, other) = (nic.create_ptag().unwrap(), nic.create_ptag().unwrap());
    let memory = nic.allocate(10, MemoryAttributes { ptag, rdma_write: false, rdma_read: false }).unwrap();
    assert!(matches!(nic.destroy_ptag(ptag), Err(Error::Resource { .. })));
    nic.deregister(memory.address(), memory.handle()).unwrap();
    let vi = nic.create_vi(&attributes(ptag, Reliability::Delivery), None, None).unwrap();
    assert!(matches!(nic.destroy_ptag(ptag), Err(Error::Resource { .. })));
    assert!(vi.destroy().is_ok());
    assert_eq!(nic.destroy_ptag(ptag), Ok(()));
    assert!(matches!(nic.destroy_ptag(ptag), Err(Error::InvalidPtag(_))));
    assert_eq!(nic.destroy_ptag(other), Ok(()));
}

#[test]
fn memory_is_registered_looked_up_changed_and_taken_back() {
    let side = Side::new(settings(), Reliability::Delivery);
    let foreign = Side::new(settings(), Reliability::Delivery).ptag;
    for way in [2, 3] {
        let memory = side.memory(way, 100);
        let (address, handle) = (memory.address(), memory.handle());
        let none = MemoryAttributes { ptag: side.ptag, rdma_write: false, rdma_read: false };
        assert_eq!(side.nic.query_memory(address, handle), Ok(side.memory_attributes()));
        assert_eq!(side.nic.set_memory_attributes(address, handle, none), Ok(()));
        assert_eq!(side.nic.query_memory(address, handle), Ok(none));
        // A tag of another NIC may have the same number; this one was taken back.
        let gone = side.nic.create_ptag().unwrap();
        side.nic.destroy_ptag(gone).unwrap();
        let wrong = MemoryAttributes { ptag: gone, ..none };
        assert!(matches!(side.nic.set_memory_attributes(address, handle, wrong), Err(Error::InvalidPtag(_))));
        assert!(matches!(side.nic.allocate(1, wrong), Err(Error::InvalidPtag(_))));
        for (address, handle) in [(address + 1, handle), (address, MemoryHandle(handle.0 ^ 1 << 20))] {
            assert!(matches!(side.nic.query_memory(address, handle), Err(Error::InvalidParameter { .. })));
            assert!(matches!(side.nic.deregister(address, handle), Err(Error::InvalidParameter { .. })));
            assert!(side.nic.set_memory_attributes(address, handle, none).is_err());
        }
        assert!(side.nic.is_registered(address + 10, handle, 90) && !side.nic.is_registered(address + 10, handle, 91));
    }
    let _ = foreign;
    assert!(matches!(side.nic.allocate(0, side.memory_attributes()), Err(Error::InvalidParameter { .. })));
    let beyond = LIMITS.region_max_bytes as usize + 1;
    assert!(matches!(side.nic.allocate(beyond, side.memory_attributes()), Err(Error::Resource { .. })));
}

#[test]
fn memory_in_use_is_not_taken_back() {
    let (server, _client) = pair();
    let memory = server.nic.allocate(8, server.memory_attributes()).unwrap();
    server.vi.post_receive(Descriptor::of(vec![memory.segment(0, 8)], 1)).unwrap();
    let taken = server.nic.deregister(memory.address(), memory.handle());
    assert!(matches!(taken, Err(Error::Resource { .. })), "{taken:?}");
    server.vi.disconnect();
    assert!(server.received().status.has(Status::FLUSHED_ERROR));
    assert_eq!(server.nic.deregister(memory.address(), memory.handle()), Ok(()));
}

#[test]
fn vis_are_made_with_attributes_that_make_sense() {
    let side = Side::new(settings(), Reliability::Delivery);
    let good = attributes(side.ptag, Reliability::Delivery);
    let make = |attributes: &ViAttributes| side.nic.create_vi(attributes, None, None).map(drop);
    assert_eq!(make(&good), Ok(()));
    let gone = side.nic.create_ptag().unwrap();
    side.nic.destroy_ptag(gone).unwrap();
    assert!(matches!(make(&ViAttributes { ptag: gone, ..good }), Err(Error::InvalidPtag(_))));
    let long = ViAttributes { transfer_max_bytes: LIMITS.transfer_max_bytes + 1, ..good };
    assert!(matches!(make(&long), Err(Error::InvalidMtu(_))));
    let unreliable = ViAttributes { reliability: Reliability::Unreliable, ..good };
    assert!(matches!(make(&unreliable), Err(Error::InvalidRdmaRead(_))));
    assert!(matches!(side.vi.set_attributes(&long), Err(Error::InvalidMtu(_))));
    let less = ViAttributes { transfer_max_bytes: 10, ..good };
    side.vi.set_attributes(&less).unwrap();
    let report = side.vi.query();
    assert_eq!((report.state, report.attributes), (State::Idle, less));
    assert!(report.send_queue_empty && report.receive_queue_empty);
    let others = Nic::open(settings()).unwrap().create_queue(1).unwrap();
    let made = side.nic.create_vi(&good, Some(&others), None).map(drop);
    assert!(matches!(made, Err(Error::InvalidParameter { .. })));
}

#[test]
fn there_are_as_many_vis_and_descriptors_as_there_may_be() {
    let side = Side::new(settings(), Reliability::Delivery);
    let good = attributes(side.ptag, Reliability::Delivery);
    let mut vis: Vec<Vi> = (1..LIMITS.vis_max).map(|_| side.nic.create_vi(&good, None, None).unwrap()).collect();
    assert!(matches!(side.nic.create_vi(&good, None, None).map(drop), Err(Error::Resource { .. })));
    vis.pop();
    assert!(side.nic.create_vi(&good, None, None).is_ok());
    for i in 0..LIMITS.descriptors_max as u64 {
        side.vi.post_receive(Descriptor::of(vec![], i)).unwrap();
    }
    assert!(matches!(side.vi.post_receive(Descriptor::of(vec![], 0)), Err(Error::Resource { .. })));
    assert!(matches!(side.vi.check_unused(), Err(Error::Resource { .. })));
}

#[test]
fn a_vi_that_is_not_connected_flushes_what_it_is_to_send_and_keeps_receives() {
    let (server, client) = (Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Delivery));
    client.vi.post_send(Descriptor::of(vec![], 7)).unwrap();
    let flushed = client.vi.done(WorkQueue::Send).unwrap();
    assert_eq!((flushed.context, flushed.status), (7, Status::DONE.and(Status::FLUSHED_ERROR)));
    let memory = server.memory(3, 8);
    server.vi.post_receive(Descriptor::of(vec![memory.segment(0, 8)], 8)).unwrap();
    assert_eq!(server.vi.done(WorkQueue::Receive), None);
    connect(&server, &client);
    let mine = client.memory(3, 8);
    client.vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], 9)).unwrap();
    assert_eq!(server.received().context, 8);
}

#[test]
fn disconnecting_flushes_and_the_vi_can_be_connected_again() {
    let (server, client) = pair();
    let memory = server.memory(3, 8);
    for round in 0..3 {
        server.vi.post_receive(Descriptor::of(vec![memory.segment(0, 8)], round)).unwrap();
        assert!(matches!(server.vi.check_unused(), Err(Error::Resource { .. })));
        let again = client.vi.connect_request(&fresh_address(), &fresh_address(), SHORT);
        assert!(matches!(again, Err(Error::InvalidState { state: State::Connected, .. })));
        client.vi.disconnect();
        assert_eq!(client.vi.query().state, State::Idle);
        let flushed = server.received();
        assert_eq!((flushed.context, flushed.status.errors()), (round, Status::FLUSHED_ERROR));
        assert_eq!(server.vi.query().state, State::Error);
        server.vi.post_receive(Descriptor::of(vec![], 5)).unwrap();
        assert!(server.received().status.has(Status::FLUSHED_ERROR));
        server.vi.post_send(Descriptor::of(vec![], 6)).unwrap();
        assert!(server.sent().status.has(Status::FLUSHED_ERROR));
        server.vi.disconnect();
        assert_eq!(server.vi.check_unused(), Ok(()));
        connect(&server, &client);
    }
}

#[test]
fn what_was_sent_before_a_farewell_arrives() {
    let (server, client) = pair();
    let (mine, theirs) = (client.memory(3, 8), server.memory(3, 8));
    for i in 0..10 {
        server.vi.post_receive(Descriptor::of(vec![theirs.segment(0, 8)], i)).unwrap();
    }
    for i in 0..5 {
        client.vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], i)).unwrap();
    }
    client.vi.disconnect();
    for i in 0..10 {
        assert_eq!(server.received().status.has(Status::FLUSHED_ERROR), i >= 5);
    }
}

/// Sends `sent` bytes to a receive of `room` bytes.
fn send_to(reliability: Reliability, sent: usize, room: Option<usize>) -> (Side, Side) {
    let (server, client) = pair_with(settings(), reliability);
    let (mine, theirs) = (client.memory(3, 64), server.memory(3, 64));
    if let Some(room) = room {
        server.vi.post_receive(Descriptor::of(vec![theirs.segment(0, room)], 1)).unwrap();
    }
    client.vi.post_send(Descriptor::of(vec![mine.segment(0, sent)], 2)).unwrap();
    (server, client)
}

#[test]
fn a_receive_that_is_too_small_is_an_error_in_both_descriptors() {
    for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
        let (server, client) = send_to(reliability, 64, Some(63));
        assert_eq!(server.received().status.errors(), Status::LENGTH_ERROR);
        assert_eq!(client.sent().status.errors(), Status::REMOTE_DESCRIPTOR_ERROR);
        let expected = if reliability.is_reliable() { State::Error } else { State::Connected };
        assert_eq!((server.vi.query().state, client.vi.query().state), (expected, expected));
    }
}

#[test]
fn a_message_without_a_receive_is_dropped_or_ends_the_connection() {
    let (server, client) = send_to(Reliability::Unreliable, 64, None);
    assert!(!client.sent().status.is_error());
    assert_eq!((client.count(Counter::Dropped), client.vi.query().state), (1, State::Connected));
    assert_eq!(server.vi.query().state, State::Connected);

    let (server, client) = send_to(Reliability::Delivery, 64, None);
    let (tell, told) = channel();
    server.nic.set_error_handler(Some(Box::new(move |event: ErrorEvent| tell.send(event).unwrap())));
    assert_eq!(client.sent().status.errors(), Status::TRANSPORT_ERROR);
    assert_eq!(client.vi.query().state, State::Error);
    let event = told.recv_timeout(LONG.unwrap()).unwrap();
    assert_eq!((event.code, event.vi), (ErrorCode::ReceiveQueueEmpty, server.vi.number()));
    assert_eq!(server.vi.query().state, State::Error);
}

/// As many messages as can lie with a receiver that does not look, and one more, which has no receive.
#[test]
fn every_message_that_was_delivered_before_an_error_comes_out() {
    let (server, client) = (Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Delivery));
    let (mine, theirs) = (client.memory(3, 8), server.memory(3, 8));
    let most = Settings::PUSH_MAX as u64;
    (0..most).for_each(|i| server.vi.post_receive(Descriptor::of(vec![theirs.segment(0, 8)], i)).unwrap());
    connect(&server, &client);
    for i in 0..=most {
        client.vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], i)).unwrap();
        let expected = if i < most { Status::default() } else { Status::TRANSPORT_ERROR };
        assert_eq!(client.sent().status.errors(), expected);
    }
    for i in 0..most {
        let received = server.received();
        assert_eq!((received.context, received.status.errors()), (i, Status::default()));
    }
    let (tell, told) = channel();
    server.nic.set_error_handler(Some(Box::new(move |event: ErrorEvent| tell.send(event.code).unwrap())));
    assert_eq!(told.recv_timeout(LONG.unwrap()), Ok(ErrorCode::ReceiveQueueEmpty));
}

/// Posts a descriptor that cannot be transferred; what its status says.
fn wrong(make: impl Fn(&Side, &Memory) -> Descriptor) -> Status {
    let (server, client) = pair();
    let mine = client.memory(3, 64);
    client.vi.post_send(make(&client, &mine)).unwrap();
    let status = client.sent().status;
    assert!(status.has(Status::DONE) && client.vi.query().state == State::Error);
    drop(server);
    status.errors()
}

#[test]
fn descriptors_that_make_no_sense_come_back() {
    let long =
        |_: &Side, memory: &Memory| Descriptor::of(vec![memory.segment(0, 0); SEGMENTS_PER_DESCRIPTOR_MAX + 1], 1);
    assert_eq!(wrong(long), Status::FORMAT_ERROR);
    let aimless = |_: &Side, memory: &Memory| {
        let mut aimless = Descriptor::of(vec![memory.segment(0, 1)], 1);
        aimless.operation = Operation::RdmaWrite;
        aimless
    };
    assert_eq!(wrong(aimless), Status::FORMAT_ERROR);
    assert_eq!(wrong(|_, memory| Descriptor::of(vec![memory.segment(0, 65)], 1)), Status::PROTECTION_ERROR);
    assert_eq!(wrong(|_, memory| Descriptor::of(vec![memory.segment(0, usize::MAX >> 32)], 1)), Status::LENGTH_ERROR);
    let stale = |_: &Side, memory: &Memory| {
        let segment = DataSegment { handle: MemoryHandle(memory.handle().0 + 1024), ..memory.segment(0, 1) };
        Descriptor::of(vec![segment], 1)
    };
    assert_eq!(wrong(stale), Status::PROTECTION_ERROR);
    let before = |_: &Side, memory: &Memory| {
        Descriptor::of(vec![DataSegment { address: memory.address() - 1, ..memory.segment(0, 1) }], 1)
    };
    assert_eq!(wrong(before), Status::PROTECTION_ERROR);
    let of_other_tag = |side: &Side, _: &Memory| {
        let ptag = side.nic.create_ptag().unwrap();
        let memory = side.nic.allocate(8, MemoryAttributes { ptag, rdma_write: true, rdma_read: true }).unwrap();
        Descriptor::of(vec![memory.segment(0, 8)], 1)
    };
    assert_eq!(wrong(of_other_tag), Status::PROTECTION_ERROR);
    // A receive.
    let (server, client) = pair();
    server.vi.post_receive(Descriptor::of(vec![DataSegment { len_bytes: 1, ..DataSegment::default() }], 3)).unwrap();
    assert_eq!(server.received().status.errors(), Status::PROTECTION_ERROR);
    assert_eq!(server.vi.query().state, State::Error);
    drop(client);
}

/// An RDMA operation that the other side does not allow; what its status says.
fn forbidden(write: bool, prepare: impl Fn(&Side) -> (u64, MemoryHandle)) {
    let (server, client) = pair();
    let mine = client.memory(3, 64);
    let list = vec![mine.segment(0, 64)];
    let remote = prepare(&server);
    let descriptor =
        if write { Descriptor::rdma_write(list, remote, 1) } else { Descriptor::rdma_read(list, remote, 1) };
    client.vi.post_send(descriptor).unwrap();
    assert_eq!(client.sent().status.errors(), Status::RDMA_PROTECTION_ERROR, "write: {write}");
    assert_eq!(client.vi.query().state, State::Error);
}

#[test]
fn rdma_keeps_to_what_the_other_side_allows() {
    for write in [true, false] {
        let allocate = |side: &Side, len, rdma_write, rdma_read| {
            let attributes = MemoryAttributes { ptag: side.ptag, rdma_write, rdma_read };
            let memory = side.nic.allocate(len, attributes).unwrap();
            (memory.address(), memory.handle())
        };
        forbidden(write, |side| allocate(side, 64, !write, write));
        forbidden(write, |side| allocate(side, 63, true, true));
        forbidden(write, |side| (allocate(side, 64, true, true).0 - 1, allocate(side, 64, true, true).1));
        forbidden(write, |_| (0, MemoryHandle(12345)));
        forbidden(write, |side| {
            let (address, handle) = allocate(side, 64, true, true);
            side.nic.deregister(address, handle).unwrap();
            (address, handle)
        });
        forbidden(write, |side| {
            let ptag = side.nic.create_ptag().unwrap();
            let memory = side.nic.allocate(64, MemoryAttributes { ptag, rdma_write: true, rdma_read: true }).unwrap();
            (memory.address(), memory.handle())
        });
    }
}

#[test]
fn completion_queues_tell_of_all_work_queues_and_are_never_overrun() {
    let server = Side::new(settings(), Reliability::Delivery);
    let client = Side::new(settings(), Reliability::Delivery);
    assert!(matches!(server.nic.create_queue(0).map(drop), Err(Error::InvalidParameter { .. })));
    let beyond = LIMITS.queue_entries_max + 1;
    assert!(matches!(server.nic.create_queue(beyond).map(drop), Err(Error::Resource { .. })));
    let queue = server.nic.create_queue(3).unwrap();
    let both =
        server.nic.create_vi(&attributes(server.ptag, Reliability::Delivery), Some(&queue), Some(&queue)).unwrap();
    let server = Side { vi: both, ..server };
    connect(&server, &client);
    assert!(matches!(server.vi.wait(WorkQueue::Receive, SHORT), Err(Error::Resource { .. })));
    assert!(matches!(server.vi.notify(WorkQueue::Send, Box::new(drop)), Err(Error::Resource { .. })));
    assert_eq!(queue.done(), None);
    assert!(matches!(queue.wait(SHORT), Err(Error::Timeout(_))));
    let (mine, theirs) = (client.memory(2, 8), server.memory(2, 8));
    for i in 0..10 {
        server.vi.post_receive(Descriptor::of(vec![theirs.segment(0, 8)], i)).unwrap();
        client.vi.post_receive(Descriptor::of(vec![mine.segment(0, 8)], i)).unwrap();
    }
    for i in 0..10 {
        client.vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], i)).unwrap();
    }
    server.vi.post_send(Descriptor::of(vec![theirs.segment(0, 8)], 100)).unwrap();
    let (mut sends, mut receives) = (0, 0);
    for _ in 0..11 {
        let (vi, which) = queue.wait(LONG).unwrap();
        assert_eq!(vi, server.vi.number());
        let completion = server.vi.done(which).expect("there is one for each entry");
        match which {
            WorkQueue::Send => sends += 1,
            WorkQueue::Receive => {
                assert_eq!(completion.context, receives);
                receives += 1;
            }
        }
    }
    assert_eq!((sends, receives, queue.done()), (1, 10, None));
    assert!(matches!(queue.resize(0), Err(Error::InvalidParameter { .. })));
    queue.resize(100).unwrap();
    let Err((queue, Error::Resource { .. })) = queue.destroy() else { panic!("a VI still uses it") };
    drop(server);
    assert!(queue.destroy().is_ok());
}

#[test]
fn a_completion_queue_tells_nothing_of_a_vi_that_is_gone() {
    let side = Side::new(settings(), Reliability::Delivery);
    let queue = side.nic.create_queue(8).unwrap();
    let vi = side.nic.create_vi(&attributes(side.ptag, Reliability::Delivery), Some(&queue), None).unwrap();
    (0..2).for_each(|i| vi.post_send(Descriptor::of(vec![], i)).unwrap());
    assert_eq!(queue.done(), Some((vi.number(), WorkQueue::Send)));
    assert!(vi.done(WorkQueue::Send).is_some() && vi.done(WorkQueue::Send).is_some());
    assert!(vi.destroy().is_ok());
    assert_eq!(queue.done(), None);
}

/// Whoever takes an error handler away may take away what it uses.
#[test]
fn an_error_handler_is_over_when_it_was_taken_away() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let side = Side::new(settings(), Reliability::Delivery);
    let ((tell, told), over) = (channel(), std::sync::Arc::new(AtomicBool::new(false)));
    let ends = over.clone();
    let handler = move |_| {
        tell.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        ends.store(true, SeqCst);
    };
    side.nic.set_error_handler(Some(Box::new(handler)));
    let beyond = DataSegment { len_bytes: 1, ..DataSegment::default() };
    side.vi.post_send(Descriptor::of(vec![beyond], 1)).unwrap();
    told.recv_timeout(LONG.unwrap()).unwrap();
    side.nic.set_error_handler(None);
    assert!(over.load(SeqCst), "it is still called");
    assert!(side.vi.done(WorkQueue::Send).is_some());
}

#[test]
fn handlers_are_called_once_each_with_the_next_descriptor() {
    let (server, client) = pair();
    let (mine, theirs) = (client.memory(3, 8), server.memory(3, 8));
    let (tell, told) = channel();
    for i in 0..4 {
        let tell = tell.clone();
        let handler = move |completion: Completion| tell.send((i, completion.context)).unwrap();
        server.vi.notify(WorkQueue::Receive, Box::new(handler)).unwrap();
        server.vi.post_receive(Descriptor::of(vec![theirs.segment(0, 8)], 10 + i)).unwrap();
    }
    let (sent_tell, sent_told) = channel();
    client.vi.notify(WorkQueue::Send, Box::new(move |done| sent_tell.send(done.context).unwrap())).unwrap();
    for i in 0..4 {
        client.vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], i)).unwrap();
        assert_eq!(told.recv_timeout(LONG.unwrap()), Ok((i, 10 + i)));
    }
    assert_eq!(sent_told.recv_timeout(LONG.unwrap()), Ok(0));
    assert_eq!(client.sent().context, 1);
    assert_eq!(server.vi.done(WorkQueue::Receive), None);

    let queue = server.nic.create_queue(8).unwrap();
    let vi = server.nic.create_vi(&attributes(server.ptag, Reliability::Delivery), Some(&queue), None).unwrap();
    let (tell, told) = channel();
    queue.notify(Box::new(move |entry| tell.send(entry).unwrap())).unwrap();
    vi.post_send(Descriptor::of(vec![], 1)).unwrap();
    assert_eq!(told.recv_timeout(LONG.unwrap()), Ok((vi.number(), WorkQueue::Send)));
}

#[test]
fn waits_sleep_and_end_in_time() {
    let (server, client) = pair();
    let start = Instant::now();
    assert_eq!(server.vi.wait(WorkQueue::Receive, SHORT), Err(Error::Timeout("VipRecvWait")));
    assert!(start.elapsed() >= SHORT.unwrap());
    assert_eq!(client.vi.wait(WorkQueue::Send, Some(Duration::ZERO)), Err(Error::Timeout("VipSendWait")));
    let before = server.count(Counter::Sleeps);
    let (mine, theirs) = (client.memory(3, 8), server.memory(3, 8));
    server.vi.post_receive(Descriptor::of(vec![theirs.segment(0, 8)], 1)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.received());
        let deadline = Instant::now() + LONG.unwrap();
        while server.count(Counter::Sleeps) == before {
            assert!(Instant::now() < deadline, "whoever waits sleeps");
            std::thread::sleep(Duration::from_millis(1));
        }
        client.vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], 1)).unwrap();
        assert!(!waiting.join().unwrap().status.is_error());
    });
}

#[test]
fn clients_are_matched_accepted_rejected_or_told_that_nobody_waits() {
    let (server, client) = (Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Delivery));
    let (here, there) = (fresh_address(), fresh_address());
    assert!(matches!(client.vi.connect_request(&here, &there, LONG), Err(Error::NoMatch(_))));
    assert_eq!(client.vi.query().state, State::Idle);
    assert!(matches!(server.nic.connect_wait(&there, SHORT), Err(Error::Timeout(_))));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| request(&client.vi, &here, &there));
        let asked = server.nic.connect_wait(&there, LONG).unwrap();
        assert_eq!((asked.remote(), asked.attributes().reliability), (&here, Reliability::Delivery));
        asked.reject();
        assert!(matches!(asking.join().unwrap(), Err(Error::Reject(_))));

        let unlike = Side::new(settings(), Reliability::Unreliable);
        let short = ViAttributes { transfer_max_bytes: 5, ..attributes(server.ptag, Reliability::Delivery) };
        let short = server.nic.create_vi(&short, None, None).unwrap();
        let unreliable = server.nic.create_vi(&attributes(server.ptag, Reliability::Unreliable), None, None).unwrap();
        let asking = scope.spawn(|| request(&client.vi, &here, &there));
        let mut asked = server.nic.connect_wait(&there, LONG).unwrap();
        assert!(matches!(asked.accept(&unlike.vi), Err(Error::InvalidParameter { .. })));
        assert!(matches!(asked.accept(&unreliable), Err(Error::InvalidReliabilityLevel(_))));
        assert!(matches!(asked.accept(&short), Err(Error::InvalidMtu(_))));
        assert_eq!(short.query().state, State::Idle);
        asked.accept(&server.vi).unwrap();
        assert_eq!(asking.join().unwrap().unwrap().transfer_max_bytes, 1 << 24);
        assert!(asked.accept(&short).is_err(), "the request is over");
        assert!(matches!(
            server.vi.set_attributes(&attributes(server.ptag, Reliability::Delivery)),
            Err(Error::InvalidState { .. })
        ));
    });
}

#[test]
fn a_client_whose_server_thinks_too_long_gives_up() {
    let (server, client) = (Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Delivery));
    let (here, there) = (fresh_address(), fresh_address());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.nic.connect_wait(&there, LONG));
        let asked = loop {
            match client.vi.connect_request(&here, &there, SHORT) {
                Err(Error::NoMatch(_)) => std::thread::sleep(Duration::from_millis(1)),
                other => break other,
            }
        };
        assert!(matches!(asked, Err(Error::Timeout(_))), "{asked:?}");
        let mut late = waiting.join().unwrap().unwrap();
        assert!(matches!(late.accept(&server.vi), Err(Error::NotReachable(_))));
        assert_eq!((server.vi.query().state, client.vi.query().state), (State::Idle, State::Idle));
    });
}

#[test]
fn peers_meet_whoever_is_first() {
    for first in [0, 1] {
        let sides = [Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Delivery)];
        let addresses = [fresh_address(), fresh_address()];
        let ask = |me: usize| sides[me].vi.connect_peer(&addresses[me], &addresses[1 - me], LONG).unwrap();
        let early = ask(first);
        assert_eq!(early.done(), None);
        assert_eq!(sides[first].vi.query().state, State::ConnectPending);
        std::thread::sleep(Duration::from_millis(20));
        let late = ask(1 - first);
        assert!(late.wait().is_ok() && early.wait().is_ok());
        assert!(matches!(early.done(), Some(Ok(_))));
        let (mine, theirs) = (sides[0].memory(3, 8), sides[1].memory(2, 8));
        sides[1].vi.post_receive(Descriptor::of(vec![theirs.segment(0, 8)], 1)).unwrap();
        sides[0].vi.post_send(Descriptor::of(vec![mine.segment(0, 8)], 1)).unwrap();
        assert!(!sides[1].received().status.is_error());
    }
    let side = Side::new(settings(), Reliability::Delivery);
    let address = fresh_address();
    assert!(matches!(side.vi.connect_peer(&address, &address, LONG).map(drop), Err(Error::InvalidParameter { .. })));
    for (here, there) in [("a", "b"), ("b", "a")] {
        let [here, there] = [here, there].map(|name| common::address(&format!("{name}{}", std::process::id())));
        let alone = side.vi.connect_peer(&here, &there, SHORT).unwrap();
        assert!(matches!(alone.wait(), Err(Error::Timeout(_))));
        assert_eq!(side.vi.query().state, State::Idle);
    }
}

#[test]
fn peers_that_differ_do_not_meet() {
    let sides = [Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Reception)];
    let addresses = [fresh_address(), fresh_address()];
    let requests = [0, 1].map(|me: usize| sides[me].vi.connect_peer(&addresses[me], &addresses[1 - me], LONG).unwrap());
    for request in &requests {
        assert!(matches!(request.wait(), Err(Error::InvalidReliabilityLevel(_))), "{:?}", request.done());
    }
}

#[test]
fn strangers_on_the_socket_keep_nobody_from_connecting() {
    use std::io::Write;
    let (server, client) = (Side::new(settings(), Reliability::Delivery), Side::new(settings(), Reliability::Delivery));
    let (here, there) = (fresh_address(), fresh_address());
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.nic.connect_wait(&there, LONG)?.accept(&server.vi));
        let mut said = 0;
        let deadline = Instant::now() + LONG.unwrap();
        while said == 0 && Instant::now() < deadline {
            for port in there.ports() {
                if let Ok(mut socket) = std::net::TcpStream::connect((there.host(), port)) {
                    let _ = socket.write_all(b"\x05\0\0\0GET /");
                    said += 1;
                }
            }
        }
        assert!(said > 0, "somebody listens");
        request(&client.vi, &here, &there).unwrap();
        accepting.join().unwrap().unwrap();
    });
}
